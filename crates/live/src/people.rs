//! Who is there: processes below /proc.
//!
//! ```text
//!             numbers                   one line each              those asked for
//! /proc ─────────────────▶ (pid, inode) ──────────────▶ Stat ─────────────────────▶ Person
//! cgroup.procs, Pids ────▶    │ strangers: not read        │ name: when comm is new
//!                             └ again                      └ threads: where nodes differ
//! ```
//!
//! A look reads one file per process, `stat`, and of what was there before no other. It
//! holds everything that changes: processor time, resident pages, the name, the CPU. Here
//! it takes 9.1 µs to open, read and close it, 13 µs with all the rest of a look. Held open
//! it would be 4.5 µs less, for 4 KiB of the kernel's memory and a descriptor each: not
//! worth it, since 100 processes every 5 s take 0.03 % of a CPU as it is. `status` would
//! take 14 µs, `schedstat` 6 µs more for each thread.
//!
//! Processor time is `stat`'s, in ticks of 10 ms: the scheduler's own sum over all threads,
//! those that ended included, rounded down (by less than two ticks, once: it does not grow).
//! The sum of the threads' `schedstat` is finer, but falls when one ends.
//!
//! Source: specs/live.md#people.

#[cfg(test)]
pub(crate) mod corpus;
mod error;
pub mod find;
pub mod guest;
pub mod name;
pub mod stat;
#[cfg(test)]
mod tests;
mod tree;

pub use error::PeopleError;

use crate::machine::{People, Person};
use crate::text::field;
use guest::Role;
use homenode_core::policy::seen::Who;
use homenode_core::topology::Cpu;
use homenode_core::units::{NodeId, PAGE_SIZE, Pages, Picos};
use stat::{Stat, is_gone};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use tree::Tree;

/// What a process had used before it was first seen counts to at most this: [`Picos`] end
/// after 213 days, and a machine of many CPUs may have used more by then.
const BEFORE: Picos = Picos::from_secs(24 * 3600);

/// Who is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// These processes.
    Pids(Vec<u32>),
    /// All processes of a cgroup and of those below it; a folder, or a path from the
    /// hierarchy's root.
    Cgroup(PathBuf),
    /// All processes.
    All,
    /// A process and all that it started, and so on: as long as they live, also when those
    /// between ended.
    Tree(u32),
}

/// Processes below a `/proc`. Kernel threads are not among them, nor homenode itself and
/// what it started, unless they are named.
#[derive(Debug)]
pub struct Proc {
    proc: PathBuf,
    targets: Target,
    /// Our own number, if it is our own `/proc`.
    ours: Option<u32>,
    /// Nodes of CPUs, where several nodes have some.
    homes: BTreeMap<u32, NodeId>,
    /// The node that has all CPUs.
    home: Option<NodeId>,
    tick_ns: u64,
    page: u64,
    known: BTreeMap<u32, Known>,
    strangers: BTreeMap<u32, u64>,
    unseen: usize,
}

/// [`Targets`], with what is kept of them.
#[derive(Debug)]
enum Target {
    /// By number: a number that is used again is somebody else's.
    Pids(Vec<Who>),
    Cgroup(PathBuf),
    All,
    Tree(Tree),
}

/// What is kept of a process.
#[derive(Debug)]
struct Known {
    start: u64,
    comm: Vec<u8>,
    name: String,
    /// Whether its program runs guests: then its threads are not alike.
    guest: bool,
    /// Ticks when it was first seen.
    first: u64,
    /// Two of its threads that were on different nodes: asked first.
    apart: Apart,
}

/// Two threads on different nodes.
type Apart = Option<[u32; 2]>;

/// Whether some threads are on one node.
#[derive(Clone, Copy, Default)]
struct Together {
    first: Option<(u32, Option<NodeId>)>,
    /// The first two that are not.
    apart: Apart,
}

impl Together {
    fn add(&mut self, tid: u32, home: Option<NodeId>) {
        let (before, node) = *self.first.get_or_insert((tid, home));
        if node != home {
            self.apart.get_or_insert([before, tid]);
        }
    }
    fn node(&self) -> Option<NodeId> {
        self.first.filter(|_| self.apart.is_none()).and_then(|(_, node)| node)
    }
}

/// What the threads of a process have in common.
struct Threads {
    /// Resident pages of the system's size.
    rss: u64,
    /// Where all of them ran last; of a guest, its vCPUs.
    node: Option<NodeId>,
    /// Two of them that show that there is no such node.
    apart: Apart,
}

impl Proc {
    /// Processes below `root` (`/` for this machine).
    ///
    /// * `cpus` – the machine's CPUs, for the nodes on which processes run.
    ///
    /// # Errors
    /// [`PeopleError`] if one that is named is not there or can't be looked at, or if
    /// `/proc` is not that of our own PID namespace.
    pub fn new(root: &Path, targets: &Targets, cpus: &[Cpu]) -> Result<Self, PeopleError> {
        let proc = root.join("proc");
        let ours = own_number(root, &proc)?;
        let nodes: BTreeSet<NodeId> = cpus.iter().map(|c| c.node).collect();
        let home = nodes.first().copied().filter(|_| nodes.len() == 1);
        let several = cpus.iter().filter(|_| home.is_none());
        let homes = several.map(|c| (c.id.0, c.node)).collect();
        let named = |pid| named(&proc, pid);
        let targets = match targets {
            Targets::Pids(pids) => {
                let pids: BTreeSet<u32> = pids.iter().copied().collect();
                Target::Pids(pids.into_iter().map(named).collect::<Result<_, _>>()?)
            }
            Targets::Cgroup(path) => {
                let folder = find::cgroup_folder(root, path)
                    .ok_or_else(|| PeopleError::NoCgroup { path: path.clone() })?;
                find::of_cgroup(&folder)
                    .map_err(|(path, source)| PeopleError::Cgroup { path, source })?;
                Target::Cgroup(folder)
            }
            Targets::All => Target::All,
            Targets::Tree(pid) => Target::Tree(Tree::of(named(*pid)?)),
        };
        if matches!(targets, Target::All | Target::Tree(_)) {
            find::all(&proc).map_err(|source| PeopleError::Proc { path: proc.clone(), source })?;
        }
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1).unsigned_abs();
        Ok(Self {
            proc,
            targets,
            ours,
            homes,
            home,
            tick_ns: stat::tick_ns(),
            page: page.div_ceil(PAGE_SIZE),
            known: BTreeMap::new(),
            strangers: BTreeMap::new(),
            unseen: 0,
        })
    }

    /// How many processes could not be read at the last look, mostly for want of privilege.
    /// What `/proc` hides altogether is not counted.
    pub fn unseen(&self) -> usize {
        self.unseen
    }

    /// Numbers to be looked at, with their folders' inodes where these are known.
    fn candidates(&self) -> io::Result<Vec<(u32, u64)>> {
        match &self.targets {
            Target::Pids(named) => Ok(named.iter().map(|who| (who.pid, 0)).collect()),
            Target::Cgroup(folder) => {
                let pids = find::of_cgroup(folder).map_err(|(_, source)| source)?;
                Ok(pids.into_iter().map(|pid| (pid, 0)).collect())
            }
            Target::All | Target::Tree(_) => find::all(&self.proc),
        }
    }

    /// Those that are wanted, of those that could be read.
    fn wanted(&mut self, found: &mut BTreeMap<u32, (u64, Stat)>) {
        let ours = self.ours;
        let foreign =
            |pid: u32, stat: &Stat| ours.is_none_or(|ours| pid != ours && stat.parent != ours);
        match &mut self.targets {
            Target::Pids(named) => {
                named.retain(|who| found.get(&who.pid).is_some_and(|(_, s)| s.start == who.start));
                found.retain(|pid, _| named.iter().any(|who| who.pid == *pid));
            }
            Target::Cgroup(_) | Target::All => found.retain(|pid, (_, s)| foreign(*pid, s)),
            Target::Tree(tree) => {
                let members = tree.members(found);
                found.retain(|pid, (inode, _)| {
                    let member = members.contains(pid);
                    if !member {
                        // Who was not born into it never comes into it.
                        self.strangers.insert(*pid, *inode);
                    }
                    member
                });
            }
        }
    }

    fn person(&mut self, pid: u32, stat: &Stat) -> io::Result<Option<Person>> {
        let before = self.known.remove(&pid).filter(|k| k.start == stat.start);
        let apart = before.as_ref().and_then(|k| k.apart);
        let mut known = match before {
            Some(known) if known.comm == stat.comm => known,
            before => {
                // Not there for a user who may not ask, or any more: the name will do.
                let cmdline = fs::read(self.file(pid, "cmdline")).unwrap_or_default();
                Known {
                    start: stat.start,
                    comm: stat.comm.clone(),
                    name: name::name_of(&cmdline, &stat.comm),
                    guest: name::runs_guests(&cmdline, &stat.comm),
                    first: before.map_or(stat.ticks, |k| k.first),
                    apart: None,
                }
            }
        };
        let Some(threads) = self.threads(pid, stat, apart, known.guest)? else { return Ok(None) };
        known.apart = threads.apart;
        let ran = self.ran(known.first, stat.ticks);
        let name = known.name.clone();
        self.known.insert(pid, known);
        let who = Who { pid, start: stat.start };
        let resident = Pages(threads.rss.saturating_mul(self.page));
        Ok(Some(Person { who, name, ran, node: threads.node, resident }))
    }

    /// Processor time; of what was used before the process was first seen, a day at most.
    fn ran(&self, first: u64, ticks: u64) -> Picos {
        let picos = |ticks: u64| ticks.saturating_mul(self.tick_ns).saturating_mul(1000);
        let since = picos(ticks.saturating_sub(first));
        Picos(picos(first).min(BEFORE.0).saturating_add(since))
    }

    /// What its threads have in common; `None` if it has no memory any more.
    ///
    /// * `apart` – two threads that were on different nodes before.
    /// * `guest` – whether its program runs guests.
    fn threads(
        &self,
        pid: u32,
        stat: &Stat,
        apart: Apart,
        guest: bool,
    ) -> io::Result<Option<Threads>> {
        let over = !stat.has_memory();
        if over && (stat.is_kernel() || stat.threads <= 1) {
            return Ok(None);
        }
        let home = |stat: &Stat| self.homes.get(&stat.cpu).copied();
        if !over && (self.homes.is_empty() || stat.threads <= 1) {
            let node = self.home.or_else(|| home(stat));
            return Ok(Some(Threads { rss: stat.rss, node, apart: None }));
        }
        if let Some([one, other]) = apart.filter(|_| !over) {
            let (one, other) = (self.thread(pid, one)?, self.thread(pid, other)?);
            if one.zip(other).is_some_and(|(one, other)| home(&one) != home(&other)) {
                return Ok(Some(Threads { rss: stat.rss, node: None, apart }));
            }
        }
        // A leader that ended has no memory to show, but its threads have.
        let mut rss = (!over).then_some(stat.rss);
        let (mut all, mut vcpus) = (Together::default(), Together::default());
        for (tid, _) in unless_gone(find::all(&self.file(pid, "task")))?.unwrap_or_default() {
            let Some(thread) = self.thread(pid, tid)? else { continue };
            let rss = *rss.get_or_insert(thread.rss);
            if self.homes.is_empty() {
                return Ok(Some(Threads { rss, node: self.home, apart: None }));
            }
            all.add(tid, home(&thread));
            if Role::of(&thread.comm) == Role::Vcpu {
                vcpus.add(tid, home(&thread));
            }
            // That they are spread is known by two of them; of a guest, by two vCPUs.
            if vcpus.apart.is_some() || all.apart.is_some() && !guest {
                break;
            }
        }
        let which = if vcpus.first.is_some() { vcpus } else { all };
        Ok(rss.map(|rss| Threads { rss, node: which.node(), apart: which.apart }))
    }

    /// A thread that runs or may.
    fn thread(&self, pid: u32, tid: u32) -> io::Result<Option<Stat>> {
        let file = self.file(pid, "task").join(tid.to_string()).join("stat");
        let thread = unless_gone(Stat::read(&file))?.flatten();
        Ok(thread.filter(|thread| thread.has_memory() && !thread.is_over()))
    }

    fn file(&self, pid: u32, name: &str) -> PathBuf {
        let mut path = self.proc.join(pid.to_string());
        path.push(name);
        path
    }
}

impl People for Proc {
    fn look(&mut self) -> io::Result<Vec<Person>> {
        let candidates = self.candidates()?;
        self.unseen = 0;
        let mut found = BTreeMap::new();
        let before = std::mem::take(&mut self.strangers);
        for (pid, inode) in candidates {
            if inode != 0 && before.get(&pid) == Some(&inode) {
                self.strangers.insert(pid, inode);
                continue;
            }
            match unless_gone(Stat::read(&self.file(pid, "stat"))) {
                Ok(Some(Some(stat))) if stat.is_kernel() && !stat.has_memory() => {
                    self.strangers.insert(pid, inode);
                }
                Ok(Some(Some(stat))) => {
                    found.insert(pid, (inode, stat));
                }
                Ok(None) => {}
                // No such line: whatever it is, it can't be told.
                Ok(Some(None)) => self.unseen += 1,
                Err(e) if is_everyones(&e) => return Err(e),
                Err(_) => self.unseen += 1,
            }
        }
        self.wanted(&mut found);
        let mut people = Vec::with_capacity(found.len());
        for (pid, (_, stat)) in &found {
            match self.person(*pid, stat) {
                Ok(person) => people.extend(person),
                Err(e) if is_everyones(&e) => return Err(e),
                Err(_) => self.unseen += 1,
            }
        }
        self.known.retain(|pid, _| found.contains_key(pid));
        Ok(people)
    }

    fn lives(&self, who: Who) -> bool {
        let stat = Stat::read(&self.file(who.pid, "stat")).ok().flatten();
        stat.filter(|stat| stat.start == who.start).is_some_and(|stat| {
            stat.has_memory()
                || self.threads(who.pid, &stat, None, false).is_ok_and(|found| found.is_some())
        })
    }
}

/// What was read, unless its process has gone.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether no process could be read for that reason: no descriptors, no memory.
fn is_everyones(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Our own number below there; `None` if that is no kernel's.
fn own_number(root: &Path, proc: &Path) -> Result<Option<u32>, PeopleError> {
    let ours = std::process::id();
    let link = proc.join("self");
    match fs::read_link(&link) {
        Ok(number) if number == Path::new(&ours.to_string()) => Ok(Some(ours)),
        Err(_) if !proc.is_dir() => {
            let source = ErrorKind::NotFound.into();
            Err(PeopleError::Proc { path: proc.to_owned(), source })
        }
        // A test's folder has none. That of a namespace in which we have no number has one
        // that leads nowhere.
        Err(_) if root != Path::new("/") && fs::symlink_metadata(&link).is_err() => Ok(None),
        _ => Err(PeopleError::Namespace { path: proc.to_owned() }),
    }
}

/// A process that was named.
fn named(proc: &Path, pid: u32) -> Result<Who, PeopleError> {
    let folder = proc.join(pid.to_string());
    let failed = |source: io::Error| match is_gone(&source) {
        true => PeopleError::NoProcess { pid },
        false => PeopleError::Refused { pid, source },
    };
    let stat = Stat::read(&folder.join("stat")).map_err(failed)?;
    let stat = stat.ok_or(PeopleError::NoProcess { pid })?;
    if !stat.has_memory() && (stat.is_kernel() || stat.threads <= 1) {
        let name = name::name_of(&[], &stat.comm);
        return Err(PeopleError::NoMemory { pid, name });
    }
    let status = fs::read(folder.join("status")).unwrap_or_default();
    match process_of(&String::from_utf8_lossy(&status)) {
        Some(of) if of != pid => Err(PeopleError::Thread { pid, of }),
        _ => Ok(Who { pid, start: stat.start }),
    }
}

/// Whose thread `/proc/PID/status` is of: a thread has a folder too, though no listing
/// shows it.
fn process_of(status: &str) -> Option<u32> {
    field(status, "Tgid:")?.parse().ok()
}
