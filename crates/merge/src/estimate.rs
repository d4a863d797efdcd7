//! How much same-page merging would save here, from the memory itself.
//!
//! ```text
//! processes ─▶ private mappings ─▶ pages in memory ─▶ batches of 1 MiB
//!                                  (pagemap: frame,    process_vm_readv, XXH3-128
//!                                   file or not)            │
//!   what merging makes of them ◀── contents: mappings, ◀────┘
//!   (count, rules of ksmd)         frames, by node
//! ```
//!
//! Terms: a *mapping* is a page-table entry of a process; a *frame* is the page
//! that it shows. Forked processes have several mappings of a frame. ksmd counts
//! mappings (`pages_shared` + `pages_sharing`), memory is saved in frames.
//!
//! Worked example: three processes have the same page, one of them has forked
//! since: four mappings of three frames. ksmd ends at `pages_shared` 1 and
//! `pages_sharing` 3; two frames are saved.
//!
//! What is looked at: anonymous pages of private mappings that are in memory,
//! those that a process would offer by `prctl(PR_SET_MEMORY_MERGE)`. Other
//! memory is only read: nothing is brought in from swap, nothing is touched that
//! was never touched. Pages that several processes map, after a fork or since the
//! kernel merged them, are read through /proc/kcore: `process_vm_readv` pins what it
//! reads, and since Linux 5.19 such a page is copied for the process that is read
//! before it is pinned, which takes memory and undoes merging. Where the kernel has no
//! /proc/kcore each such frame counts as a content of its own, so that what is shared
//! or merged already is counted right, and further copies of it are missed. Contents are held as hashes under a secret of this run, and
//! neither they nor hashes leave this process.
//!
//! Memory of our own: at most 32 bytes a content on a node, 1 MiB a thread and
//! 1 MiB beside; with a second look, or to split the saving among several
//! processes, 4 bytes a page more.
//!
//! Source: specs/ksm.md#registration and specs/ksm.md#one-page.

mod again;
mod count;
mod kcore;
mod look;
mod maps;
mod nodes;
mod pages;
mod read;
mod table;
mod who;

pub use again::Changes;
pub use homenode_core::ksm::saving::{Ended, NodeSaving, ProcessSaving, Saving};

use count::{Rules, Share};
use homenode_core::units::count;
use kcore::Kcore;
use look::{Budget, Common, Counts, Done, Kept, Unit};
use nodes::NodeSource;
use read::Hasher;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use table::{Frames, Key, Table};
use who::Owner;

/// Whose memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// These processes.
    Pids(Vec<u32>),
    /// All processes of a version 2 cgroup and of those below it; a folder, or a
    /// path from the hierarchy's root.
    Cgroup(PathBuf),
    /// All processes but this one.
    All,
}

/// How to look; by default once, on two CPUs where there are two, as the kernel is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads that read, at least 1; `None`: as many as `cpu_percent` pays for or,
    /// without that, two. Never more than this process has CPUs, unless it is said.
    pub jobs: Option<u32>,
    /// Processor time of all threads together, in percent of one CPU, at least 1;
    /// `None`: as much as the threads can use.
    pub cpu_percent: Option<u32>,
    /// Looks again after this time: what changed between is volatile.
    pub again: Option<Duration>,
    /// How the second look learns what changed.
    pub changes: Changes,
    /// Mappings of a KSM page at most, at least 2; `None`: as the kernel is set.
    pub max_page_sharing: Option<u32>,
    /// Whether pages of zeros become the shared page of zeros; `None`: as the
    /// kernel is set.
    pub use_zero_pages: Option<bool>,
    /// Only mappings that are registered for merging already, by `madvise` or `prctl`:
    /// what ksmd looks at today. Reads `smaps`, which takes longer than `maps`.
    pub registered: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Reading, for the first or second time.
    Reading {
        /// Whether it is the second look.
        again: bool,
        /// Pages done.
        done: u64,
        /// Pages that there were at the start.
        of: u64,
    },
    /// Waiting for the second look.
    Waiting {
        /// Time left.
        left: Duration,
    },
}

/// Mappings whose page would be on another node than now, merged across nodes.
///
/// Each of the equal pages is taken to be as likely the one that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where the page is now.
    pub from: u16,
    /// Where it would be.
    pub to: u16,
    /// How many, on average.
    pub pages: u64,
}

/// How the estimate was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// How long the first look took.
    pub first: Duration,
    /// Time between the end of the first look and the begin of the second, and
    /// how long that one took.
    pub second: Option<(Duration, Duration)>,
    /// Pages that were read, in all.
    pub pages_read: u64,
    /// Pages that were not read again, since the kernel told that nobody wrote
    /// them.
    pub pages_spared: u64,
    /// Most bytes that tables of contents and pages took.
    pub peak_bytes: u64,
}

/// How much merging would save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Anonymous pages in memory, by page-table entry, volatile ones among them.
    pub pages_scanned: u64,
    /// Different contents, volatile pages left out.
    pub distinct: u64,
    /// Pages of zeros, of which every page but the shared page of zeros counts.
    pub zero: u64,
    /// Pages that changed between the looks; 0 with one look.
    pub volatile: u64,
    /// Merged across nodes.
    pub across: Saving,
    /// Merged within each node: the sum of `nodes`.
    pub per_node: Saving,
    /// By node.
    pub nodes: Vec<NodeSaving>,
    /// What would become remote, merged across nodes.
    pub flows: Vec<Flow>,
    /// By process, in rising order of numbers.
    pub processes: Vec<ProcessSaving>,
    /// Limit of mappings of a page that was taken.
    pub max_page_sharing: u32,
    /// Whether pages of zeros were taken to become the shared page of zeros.
    pub use_zero_pages: bool,
    /// Nodes with memory on this machine.
    pub memory_nodes: Vec<u16>,
    /// How it was made.
    pub looks: Looks,
    /// Sentences on what makes it less exact.
    pub notes: Vec<String>,
}

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A named process is not there or has no memory of its own.
    #[error("there is no process {pid} with memory of its own (kernel threads have none)")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// No cgroup of that name.
    #[error(
        "{}: no version 2 cgroup: neither this folder nor the one of this name below /sys/fs/cgroup has a cgroup.procs",
        path.display()
    )]
    NoCgroup {
        /// As it was given.
        path: PathBuf,
    },
    /// A cgroup's processes could not be listed.
    #[error("{}: cannot list the cgroup's processes", path.display())]
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nothing to look at.
    #[error("there is no process with memory of its own to look at")]
    Nobody,
    /// Privilege is missing; nothing was read.
    #[error(
        "reading the memory of process {pid} ({name}){} is refused, nothing was read: it needs \
         CAP_SYS_PTRACE (root), or the same user and a kernel that allows it \
         (/proc/sys/kernel/yama/ptrace_scope 0)",
        if *others > 0 { format!(" and {others} more of {asked}") } else { String::new() }
    )]
    Refused {
        /// The first of them.
        pid: u32,
        /// Its name.
        name: String,
        /// How many more.
        others: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// /proc can't be listed.
    #[error("cannot list the processes in /proc")]
    Proc(#[source] io::Error),
    /// The page size is another one.
    #[error("this machine's pages have {bytes} bytes; only pages of 4096 bytes are supported")]
    PageSize {
        /// Bytes of a page.
        bytes: i64,
    },
    /// No random numbers for the hash.
    #[error("cannot read /dev/urandom, from which the hash takes its secret")]
    Random(#[source] io::Error),
    /// More contents than can be held.
    #[error("there are more than 2^31 different pages; name fewer processes")]
    TooMany,
}

impl MergeError {
    /// Whether the system lacks something, rather than the request being wrong.
    pub fn is_lack(&self) -> bool {
        !matches!(
            self,
            Self::NoProcess { .. } | Self::NoCgroup { .. } | Self::Nobody | Self::TooMany
        )
    }
}

/// Estimates what merging would save in the memory of `targets`.
///
/// `progress` is called about ten times a second.
///
/// # Errors
/// [`MergeError`]; where privilege is missing, before anything is read. Processes
/// that end in the middle are no error.
pub fn estimate(
    targets: &Targets,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Estimate, MergeError> {
    // SAFETY: asks for a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if bytes != pages::PAGE as i64 {
        return Err(MergeError::PageSize { bytes });
    }
    let (processes, left_out) = who::find(targets)?;
    let memory_nodes = homenode_live::places::with_memory(Path::new("/"));
    let source = nodes::source(&memory_nodes);
    let mut estimation = Estimation::new(processes, options, source.as_ref())?;
    if left_out > 0 {
        estimation.notes.push(format!(
            "{} left out: the kernel lets nobody here read {} (another user namespace, or a guard)",
            count(left_out as u64, "process was", "processes were"),
            if left_out == 1 { "it" } else { "them" }
        ));
    }
    let began = Instant::now();
    estimation.first(progress);
    let first = began.elapsed();
    let mut second = None;
    if let Some(wait) = options.again {
        let waiting = Instant::now();
        loop {
            let left = wait.saturating_sub(waiting.elapsed());
            progress(Progress::Waiting { left });
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(200)));
        }
        let between = waiting.elapsed();
        let began = Instant::now();
        estimation.second(who::find_again(targets), progress);
        second = Some((between, began.elapsed()));
    }
    estimation.finish(first, second, memory_nodes)
}

/// A number of the kernel's settings of merging.
fn setting(name: &str) -> Option<u64> {
    std::fs::read_to_string(Path::new("/sys/kernel/mm/ksm").join(name)).ok()?.trim().parse().ok()
}

/// How many threads read where so many CPUs are `available` to this process.
///
/// Two unless something else is said: they answer in little more than half the time
/// of one, and leave a server's other CPUs to those whose memory is read.
fn threads(jobs: Option<u32>, cpu_percent: Option<u32>, available: usize) -> usize {
    match (jobs, cpu_percent) {
        (Some(jobs), _) => jobs.max(1) as usize,
        (None, Some(percent)) => (percent.max(1).div_ceil(100) as usize).min(available),
        (None, None) => available.min(2),
    }
}

/// An estimate in the making.
struct Estimation<'a> {
    common: Common<'a>,
    registered: bool,
    threads: usize,
    rules: Rules,
    processes: Vec<Owner>,
    /// What came out, by process.
    sums: Vec<Sum>,
    kept: Vec<(usize, Kept)>,
    pages_read: u64,
    pages_spared: u64,
    pages_unread: u64,
    pages_by_frame: u64,
    kept_bytes: u64,
    notes: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    scanned: i64,
    volatile: u64,
    ended: Option<Ended>,
}

impl<'a> Estimation<'a> {
    fn new(
        processes: Vec<Owner>,
        options: &Options,
        nodes: &'a dyn NodeSource,
    ) -> Result<Self, MergeError> {
        let mut notes = Vec::new();
        let most = setting("max_page_sharing").and_then(|v| u32::try_from(v).ok());
        let most = options.max_page_sharing.or(most);
        if most.is_none() {
            notes.push(
                "this kernel shows no settings of merging: limits are the defaults".to_owned(),
            );
        }
        let zero_pages = || setting("use_zero_pages") == Some(1);
        let rules = Rules {
            max_page_sharing: most.unwrap_or(256),
            use_zero_pages: options.use_zero_pages.unwrap_or_else(zero_pages),
        };
        let hasher = Hasher::new().map_err(MergeError::Random)?;
        let sight = pages::Sight::probe(setting("pages_shared").unwrap_or(0) > 0);
        let mut tell: Option<again::Tell> = None;
        if options.again.is_some() && options.changes == Changes::Auto {
            let note = if again::soft_dirty_tells() {
                tell = Some(again::soft_dirty);
                "soft-dirty bits of the processes were cleared: a checkpoint by CRIU that relies on them must start anew"
            } else {
                "this kernel does not tell which pages were written (a page of our own was, and read clean): all were read again"
            };
            notes.push(note.to_owned());
        }
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads(options.jobs, options.cpu_percent, available);
        // Threads can't use more than a CPU each.
        let limit = options.cpu_percent.filter(|p| (*p as usize) < threads * 100);
        let zero = Key::new(hasher.hash(&[0; pages::PAGE]), 0).content();
        let counts =
            Counts { table: Table::new(), frames: Frames::default(), known: 0, full: false };
        let common = Common {
            counts: Mutex::new(counts),
            sight,
            nodes,
            hasher,
            zero,
            tell,
            kcore: Kcore::open(),
            keep: options.again.is_some() || processes.len() > 1,
            budget: Budget::new(limit),
            spare: Mutex::default(),
        };
        Ok(Self {
            common,
            registered: options.registered,
            threads,
            rules,
            sums: vec![Sum::default(); processes.len()],
            processes,
            kept: Vec::new(),
            pages_read: 0,
            pages_spared: 0,
            pages_unread: 0,
            pages_by_frame: 0,
            kept_bytes: 0,
            notes,
        })
    }

    /// Units of a process as it is mapped now.
    fn units_of(&mut self, process: usize, again: bool) -> Vec<Unit> {
        let who = &self.processes[process];
        let noted = !again && self.common.tell.is_some() && again::clear_soft_dirty(who.pid);
        let found = match self.registered {
            true => maps::registered(who.pid),
            false => maps::mappings(who.pid, !self.common.sight.frames),
        };
        match found {
            Ok(mappings) => look::units(process, who, &mappings, noted),
            Err(e) => {
                self.sums[process].ended = Some(look::ended(&e));
                Vec::new()
            }
        }
    }

    fn first(&mut self, progress: &mut dyn FnMut(Progress)) {
        let of = self.processes.iter().map(|p| p.pages).sum();
        let units = (0..self.processes.len()).flat_map(|i| self.units_of(i, false)).collect();
        self.look(units, &mut |done| progress(Progress::Reading { again: false, done, of }));
        let mut counts = self.common.counts();
        counts.known = counts.table.len() as u32;
    }

    fn second(&mut self, now: Vec<Owner>, progress: &mut dyn FnMut(Progress)) {
        // What was kept, by process and window.
        let mut before: BTreeMap<(usize, u64), Kept> = BTreeMap::new();
        for (process, kept) in self.kept.drain(..) {
            if let Some(window) = kept.first_window() {
                before.insert((process, window), kept);
            }
        }
        let mut units = Vec::new();
        let mut of = 0;
        for who in now {
            let same = |p: &Owner| (p.pid, p.start) == (who.pid, who.start);
            let process = self.processes.iter().position(same).unwrap_or_else(|| {
                self.processes.push(who.clone());
                self.sums.push(Sum::default());
                self.processes.len() - 1
            });
            of += who.pages;
            self.processes[process] = who;
            self.sums[process].ended = None;
            units.extend(self.units_of(process, true));
        }
        for unit in &mut units {
            let window = unit.pieces.first().map_or(0, |p| p.first / look::WINDOW);
            unit.kept = Some(before.remove(&(unit.process, window)).unwrap_or_default());
        }
        // Windows that nothing is mapped in any longer, and processes that ended.
        for ((process, _), kept) in before {
            let pid = self.processes[process].pid;
            units.push(Unit { process, pid, noted: false, pieces: Vec::new(), kept: Some(kept) });
        }
        self.look(units, &mut |done| progress(Progress::Reading { again: true, done, of }));
    }

    fn look(&mut self, units: Vec<Unit>, progress: &mut dyn FnMut(u64)) {
        let mut bytes = 0;
        // Of the last look only: the same pages are met in each.
        (self.pages_unread, self.pages_by_frame) = (0, 0);
        for done in look::run(&self.common, units, self.threads, progress) {
            let Done { process, scanned, volatile, read, by_frame, unread, spared, stop, kept } =
                done;
            let sum = &mut self.sums[process];
            sum.scanned += scanned;
            sum.volatile += volatile;
            self.pages_read += read - by_frame;
            self.pages_spared += spared;
            self.pages_unread += unread;
            self.pages_by_frame += by_frame;
            sum.ended = stop.or(sum.ended);
            bytes += kept.as_ref().map_or(0, Kept::bytes) as u64;
            self.kept.extend(kept.map(|k| (process, k)));
        }
        self.kept_bytes = self.kept_bytes.max(bytes);
    }

    fn finish(
        self,
        first: Duration,
        second: Option<(Duration, Duration)>,
        memory_nodes: Vec<u16>,
    ) -> Result<Estimate, MergeError> {
        let mut notes = self.notes.clone();
        let counts = self.common.counts();
        if counts.full {
            return Err(MergeError::TooMany);
        }
        let (table, zero) = (&counts.table, self.common.zero);
        let sums = count::sums(table, zero, self.rules);
        let mut shares = vec![Share::default(); self.processes.len()];
        if self.common.keep {
            for (process, kept) in &self.kept {
                for id in kept.ids.iter().chain(&kept.more).filter_map(|id| look::content_of(*id)) {
                    shares[*process].add(table, (id, 1), zero, self.rules, sums.nodes.len());
                }
            }
        } else {
            // All that is counted is the only process'.
            for (id, entry) in table.entries().enumerate() {
                let pages = (id as u32, entry.mappings);
                shares[0].add(table, pages, zero, self.rules, sums.nodes.len());
            }
        }
        let bytes = count::whole_bytes(&shares, sums.across.saved_bytes);
        let mut processes: Vec<ProcessSaving> = self
            .processes
            .iter()
            .zip(&self.sums)
            .zip(shares.iter().zip(bytes))
            .map(|((who, sum), (share, saved_bytes))| ProcessSaving {
                pid: who.pid,
                name: who.name.clone(),
                pages_scanned: sum.scanned.max(0) as u64,
                zero: share.zero,
                volatile: sum.volatile,
                mergeable: share.mergeable,
                saved_bytes,
                ended: sum.ended,
            })
            .collect();
        processes.sort_by_key(|p| p.pid);
        if self.registered {
            notes.push(match processes.iter().filter(|p| p.pages_scanned > 0).count() {
                0 => "none of these processes has memory that is registered for merging: ksmd looks at nothing of theirs".to_owned(),
                n => format!(
                    "only memory that is registered for merging was looked at: {n} of {} some",
                    count(processes.len() as u64, "process has", "processes have")
                ),
            });
        }
        if self.pages_unread > 0 {
            notes.push(format!(
                "{} left out that several processes map: reading would end the sharing, and frames are hidden (they need CAP_SYS_ADMIN and /proc/kpageflags)",
                count(self.pages_unread, "page was", "pages were")
            ));
        }
        if self.pages_by_frame > 0 {
            notes.push(format!(
                "{} counted by their frames, not by what is in them: several processes map these pages, reading them would end their sharing, and this kernel has no /proc/kcore; further copies are missed",
                count(self.pages_by_frame, "mapping was", "mappings were")
            ));
        }
        let ended = processes.iter().filter(|p| p.ended.is_some()).count();
        if ended > 0 {
            notes.push(format!(
                "{} ended or refused in the middle, {}",
                count(ended as u64, "process", "processes"),
                if second.is_some() { "counted as gone" } else { "counted as far as read" }
            ));
        }
        Ok(Estimate {
            pages_scanned: processes.iter().map(|p| p.pages_scanned).sum(),
            distinct: sums.distinct,
            zero: sums.zero,
            volatile: processes.iter().map(|p| p.volatile).sum(),
            across: sums.across,
            per_node: sums.per_node,
            nodes: sums.nodes,
            flows: sums.flows,
            processes,
            max_page_sharing: self.rules.max_page_sharing,
            use_zero_pages: self.rules.use_zero_pages,
            memory_nodes,
            looks: Looks {
                first,
                second,
                pages_read: self.pages_read,
                pages_spared: self.pages_spared,
                peak_bytes: table.peak_bytes() as u64 + self.kept_bytes,
            },
            notes,
        })
    }
}

#[cfg(test)]
mod tests;
