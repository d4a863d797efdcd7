//! The virtual `/proc` and `/sys` of the simulated kernel: its files by their paths,
//! with the kernel's errors.
//!
//! ```text
//! path ──▶ which file, who may open it ──▶ read:  a view, made now from what memory,
//!                                          │      tasks and counters say
//!                                          └▶ write: a knob of the core's table
//! ```
//!
//! Which files there are follows from the kernel's version, the machine and the
//! processes that live. Nothing is kept for them: a run that reads no file does no
//! work for one.
//!
//! ```
//! # use homenode_core::topology::*;
//! # use homenode_core::units::*;
//! # let c = |v| homenode_core::costs::Constant::assumed(v, "an example");
//! # let zones = vec![Zone { kind: ZoneKind::Normal, managed: Pages(4096) }];
//! # let machine = Hardware { name: "m".into(), about: "m".into(), caches: vec![],
//! #     nodes: vec![Node { id: NodeId(0), medium: Medium::Dram, zones }],
//! #     cpus: vec![Cpu { id: CpuId(0), node: NodeId(0), core: 0, llc: 0, capacity: 1024, mhz: None }],
//! #     distances: vec![vec![10]], idle_states: vec![], curves: vec![], loaded: vec![], defaults: None, costs: Default::default(),
//! #     links: vec![Link { from: NodeId(0), to: NodeId(0), read_latency: c(90_000),
//! #         write_latency: c(90_000), read_bandwidth: c(10_000), write_bandwidth: c(10_000) }] };
//! use homenode_core::{knobs::Errno, scenario::Rights};
//! use homenode_sim::{Setup, Simulation};
//! let mut sim = Simulation::boot(&machine, &Setup::default(), 0)?;
//! let path = "/proc/sys/kernel/numa_balancing";
//! sim.write_file(path, "2\n", Rights::Root)?;
//! assert_eq!(sim.read_file(path)?, "2\n");
//! assert_eq!(sim.write_file(path, "5", Rights::Root).unwrap_err().errno, Errno::Einval);
//! assert_eq!(sim.write_file(path, "1", Rights::Nobody).unwrap_err().errno, Errno::Eacces);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: specs/files.md.

mod action;
mod block;
mod cpuidle;
mod ksm;
mod node;
mod process;
mod sched;
mod vmstat;

pub use crate::simulation::{FileError, Outcome};

use crate::groups::GroupFile;
use crate::hotplug::CpuList;
use crate::simulation::{Job, Simulation};
use crate::switch::{LATENCYTOP, TRACEPOINTS, Tracepoint};
use block::BlockView;
use cpuidle::IdleView;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Errno, Knob, WriteAs};
use homenode_core::ksm::files::File as KsmFile;
use homenode_core::scenario::Rights;
use homenode_core::units::Picos;
use ksm::{ProcessView, Wrote};
use node::{NodeView, Set};
use std::collections::BTreeMap;

/// A file: what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Knob(Knob),
    Vmstat,
    Zoneinfo,
    /// A file of the node at that place.
    Node(usize, NodeView),
    /// A set of nodes.
    Nodes(Set),
    /// `nodelist` of the tier at that place.
    Tier(usize),
    /// A file of a memory block.
    Block(usize, BlockView),
    BlockSize,
    NumaMaps(process::Id),
    Status(process::Id),
    /// `/proc/schedstat`.
    Schedstat,
    /// `/proc/PID/schedstat`.
    TaskSchedstat(process::Id),
    /// `/proc/PID/sched`: any write clears the task's statistics.
    TaskSched(process::Id),
    /// A file of an idle state, of the CPU at that place.
    CpuIdle(usize, usize, IdleView),
    /// A file of same-page merging.
    Ksm(KsmFile),
    /// A counter of khugepaged's.
    Khugepaged(KhugepagedView),
    /// What merging has of a process.
    KsmProcess(process::Id, ProcessView),
    /// A file of the group of that number.
    Group(u32, GroupFile),
    /// `kernel.latencytop`.
    Latencytop,
    /// `enable` of a tracepoint.
    Tracepoint(Tracepoint),
    /// A list of CPUs.
    Cpus(CpuList),
    /// `online` of the CPU at that place.
    CpuOnline(usize),
}

impl File {
    /// What somebody gets who is let in and writes to what can't be written.
    const fn refusal(self) -> Option<Errno> {
        match self {
            Self::Knob(_) => None,
            Self::Ksm(file) if !file.is_counter() => None,
            Self::TaskSched(_) | Self::CpuIdle(_, _, IdleView::Disable) => None,
            Self::Vmstat | Self::Zoneinfo | Self::Schedstat => Some(Errno::Eio),
            Self::Block(_, view) if view.is_writable() => None,
            Self::Group(_, file) if file.is_writable() => None,
            Self::Group(..) | Self::Cpus(_) => Some(Errno::Eacces),
            Self::CpuOnline(_) | Self::Latencytop | Self::Tracepoint(_) => None,
            // sysfs looks at the mode even for root.
            Self::Block(..) | Self::BlockSize => Some(Errno::Eacces),
            Self::Node(..)
            | Self::Nodes(_)
            | Self::Tier(_)
            | Self::CpuIdle(..)
            | Self::Ksm(_)
            | Self::Khugepaged(_) => Some(Errno::Eacces),
            Self::NumaMaps(_) | Self::Status(_) | Self::TaskSchedstat(_) | Self::KsmProcess(..) => {
                Some(Errno::Einval)
            }
        }
    }
}

homenode_core::named! {
    /// What khugepaged has done.
    ///
    /// Source: specs/files.md#khugepaged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum KhugepagedView {
        /// Huge pages that it has made.
        PagesCollapsed => "pages_collapsed",
        /// Rounds over all address spaces.
        FullScans => "full_scans",
    }
}

/// What stands at a path.
enum Found {
    File(File),
    /// A folder, by its path without a slash at the end.
    Folder(String),
}

/// Only root may look below it.
const DEBUGFS: &str = "/sys/kernel/debug";
/// The same.
const TRACEFS: &str = "/sys/kernel/tracing";
const NODES: &str = "/sys/devices/system/node";
const BLOCKS: &str = "/sys/devices/system/memory";
const CPUS: &str = "/sys/devices/system/cpu";
const CGROUPS: &str = "/sys/fs/cgroup";
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";
const TIERS: &str = "/sys/devices/virtual/memory_tiering";

impl Simulation {
    /// Reads a file as root.
    ///
    /// # Errors
    /// [`FileError`] with ENOENT, ENOTDIR or EISDIR.
    ///
    /// Source: specs/files.md#paths.
    pub fn read_file(&self, path: &str) -> Result<String, FileError> {
        self.read_file_as(path, Rights::Root)
    }

    /// Reads a file with somebody's rights.
    ///
    /// # Errors
    /// As [`Simulation::read_file`], and EACCES.
    ///
    /// Source: specs/files.md#rights.
    pub fn read_file_as(&self, path: &str, who: Rights) -> Result<String, FileError> {
        let file = self.open(path, who)?;
        let refused = |why: &str| Err(FileError::new(path, Errno::Eacces, why));
        // Where the memory of a process lies is for its owner, which is root here.
        if matches!(file, File::NumaMaps(_)) && who == Rights::Nobody {
            return refused("the process is another user's");
        }
        if matches!(file, File::KsmProcess(..)) && who == Rights::Nobody {
            return refused("its mode is 0400: only the owner may read it");
        }
        Ok(self.view(file))
    }

    /// Writes a text to a file from its start, in one piece; what it took, or what is
    /// still to be done.
    ///
    /// Source: specs/files.md#rights.
    fn write_timed(&mut self, path: &str, text: &str, who: Rights) -> Result<Wrote, FileError> {
        let file = self.open(path, who)?;
        if let Some(errno) = file.refusal() {
            let errno = if who == Rights::Root { errno } else { Errno::Eacces };
            return Err(FileError::new(path, errno, "this file is for reading only"));
        }
        if who == Rights::Nobody {
            let why = "its mode is 0644: only root may write to it";
            return Err(FileError::new(path, Errno::Eacces, why));
        }
        match file {
            File::Ksm(file) => self.write_ksm(path, file, text),
            File::Knob(knob) => {
                let who = WriteAs { offset: 0, cap_sys_admin: who == Rights::Root };
                let done = self.kernel.set_knob(&knob.name(), text, who, self.now());
                self.sched.set_knobs(&self.kernel.knobs);
                done.map(|()| Wrote::Done(Picos::ZERO)).map_err(|e| FileError::of_knob(path, e))
            }
            File::TaskSched(id) => {
                self.clear_task_sched(id);
                Ok(Wrote::Done(Picos::ZERO))
            }
            File::Group(group, file) => {
                self.write_group(path, group, file, text)?;
                Ok(Wrote::Done(Picos::ZERO))
            }
            File::Latencytop => {
                self.write_latencytop(path, text)?;
                Ok(Wrote::Done(Picos::ZERO))
            }
            File::Tracepoint(which) => {
                self.write_tracepoint(path, which, text)?;
                Ok(Wrote::Done(Picos::ZERO))
            }
            File::CpuOnline(place) => {
                self.write_online(path, place, text)?;
                Ok(Wrote::Done(Picos::ZERO))
            }
            File::CpuIdle(cpu, state, IdleView::Disable) => {
                self.disable_idle(path, (cpu, state), text, who).map(|()| Wrote::Done(Picos::ZERO))
            }
            File::Block(block, view) => Job::parse(path, block, view, text).map(Wrote::Begins),
            // All others have been refused.
            _ => Ok(Wrote::Done(Picos::ZERO)),
        }
    }

    /// The names in a folder, in the order of their bytes.
    ///
    /// # Errors
    /// [`FileError`] with ENOENT or ENOTDIR.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, FileError> {
        let files = self.files();
        match self.find(&files, folder, Rights::Root)? {
            Found::Folder(path) => Ok(names(&files, &path)),
            Found::File(_) => Err(FileError::new(folder, Errno::Enotdir, "this is a file")),
        }
    }

    /// All files of now, by path.
    fn files(&self) -> BTreeMap<String, File> {
        let version = self.kernel.knobs.version;
        let mut all = BTreeMap::new();
        let nodes = self.machine.nodes.iter();
        let weights = nodes.map(|n| Knob::InterleaveWeight(n.id));
        for knob in Knob::ALL.into_iter().chain(weights) {
            if let Some(path) = knob.path(version) {
                all.insert(path, File::Knob(knob));
            }
        }
        all.insert("/proc/vmstat".to_owned(), File::Vmstat);
        all.insert("/proc/zoneinfo".to_owned(), File::Zoneinfo);
        all.insert("/proc/schedstat".to_owned(), File::Schedstat);
        for set in Set::ALL {
            all.insert(format!("{NODES}/{}", set.name()), File::Nodes(set));
        }
        for (place, node) in self.machine.nodes.iter().enumerate() {
            for view in NodeView::ALL {
                let path = format!("{NODES}/node{}/{}", node.id, view.name());
                all.insert(path, File::Node(place, view));
            }
        }
        all.insert(format!("{BLOCKS}/block_size_bytes"), File::BlockSize);
        for block in 0..self.kernel.hotplug.blocks.len() {
            for view in BlockView::ALL {
                all.insert(
                    format!("{BLOCKS}/memory{block}/{}", view.name()),
                    File::Block(block, view),
                );
            }
        }
        self.idle_files(&mut all);
        if version >= KernelVersion::V6_1 {
            for (place, (name, _)) in self.kernel.tiers.listing().iter().enumerate() {
                all.insert(format!("{TIERS}/{name}/nodelist"), File::Tier(place));
            }
        }
        for (pid, id) in self.pids() {
            all.insert(format!("/proc/{pid}/numa_maps"), File::NumaMaps(id));
            all.insert(format!("/proc/{pid}/status"), File::Status(id));
            all.insert(format!("/proc/{pid}/schedstat"), File::TaskSchedstat(id));
            all.insert(format!("/proc/{pid}/sched"), File::TaskSched(id));
            for view in ProcessView::ALL.into_iter().filter(|v| v.exists(version)) {
                all.insert(format!("/proc/{pid}/{}", view.name()), File::KsmProcess(id, view));
            }
        }
        all.insert(LATENCYTOP.to_owned(), File::Latencytop);
        for which in Tracepoint::ALL {
            all.insert(format!("{TRACEPOINTS}/{}/enable", which.name()), File::Tracepoint(which));
        }
        for list in CpuList::ALL {
            all.insert(format!("{CPUS}/{}", list.name()), File::Cpus(list));
        }
        // The CPU that the machine boots on can't go.
        for place in 1..self.cpus.len() {
            let number = self.cpus[place].number;
            all.insert(format!("{CPUS}/cpu{number}/online"), File::CpuOnline(place));
        }
        if !self.sched.q.groups.all.is_empty() {
            let groups = self.sched.q.groups.all.iter().map(|g| format!("{CGROUPS}/{}", g.path));
            for (number, folder) in std::iter::once(CGROUPS.to_owned()).chain(groups).enumerate() {
                for file in GroupFile::ALL.into_iter().filter(|f| number > 0 || f.is_of_root()) {
                    let path = format!("{folder}/{}", file.name());
                    all.insert(path, File::Group(number as u32, file));
                }
            }
        }
        for view in KhugepagedView::ALL {
            all.insert(format!("{KHUGEPAGED}/{}", view.name()), File::Khugepaged(view));
        }
        all.extend(ksm::all(version).map(|(path, file)| (path, File::Ksm(file))));
        all
    }

    fn open(&self, path: &str, who: Rights) -> Result<File, FileError> {
        match self.find(&self.files(), path, who)? {
            Found::File(file) => Ok(file),
            Found::Folder(_) => Err(FileError::new(path, Errno::Eisdir, "this is a folder")),
        }
    }

    /// Walks a path as the kernel does: name by name from the root.
    fn find(
        &self,
        files: &BTreeMap<String, File>,
        path: &str,
        who: Rights,
    ) -> Result<Found, FileError> {
        if !path.starts_with('/') {
            return Err(FileError::new(path, Errno::Enoent, "a path begins with a slash"));
        }
        let mut at = String::new();
        let mut file = None;
        for name in path.split('/').skip(1) {
            if file.is_some() {
                return Err(FileError::new(path, Errno::Enotdir, &format!("{at} is a file")));
            }
            match name {
                // A second slash, or one at the end.
                "" | "." => continue,
                ".." => {
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            if [DEBUGFS, TRACEFS].contains(&at.as_str()) && who == Rights::Nobody {
                let why = format!("only root may enter {at}");
                return Err(FileError::new(path, Errno::Eacces, &why));
            }
            let above = at.len();
            at.push('/');
            at.push_str(name);
            file = files.get(&at).copied();
            if file.is_none() && !is_folder(files, &at) {
                at.truncate(above);
                return Err(self.missing(files, path, &at));
            }
        }
        Ok(file.map_or_else(|| Found::Folder(at), Found::File))
    }

    /// ENOENT, with what there is instead.
    fn missing(&self, files: &BTreeMap<String, File>, path: &str, above: &str) -> FileError {
        let version = self.kernel.knobs.version;
        let with_path =
            |v: &KernelVersion| Knob::find(path, *v).is_some_and(|k| k.path(*v).is_some());
        let with_file: Vec<KernelVersion> = ksm::elsewhere(path)
            .unwrap_or_else(|| KernelVersion::ALL.into_iter().filter(with_path).collect());
        let here = with_file.first().and_then(|v| Knob::find(path, *v)?.path(version));
        let why = if let Some(here) = here.filter(|here| here != path) {
            format!("Linux {version} has it as {here}")
        } else if !with_file.is_empty() && !with_file.contains(&version) {
            let names: Vec<&str> = with_file.iter().map(|v| v.name()).collect();
            format!("Linux {version} does not have it; {} do", names.join(", "))
        } else {
            // A weight of a node that the machine lacks, among others.
            let there = names(files, above).join(", ");
            let above = if above.is_empty() { "/" } else { above };
            format!("the simulated kernel has no such file; in {above} there are {there}")
        };
        FileError::new(path, Errno::Enoent, &why)
    }

    fn view(&self, file: File) -> String {
        match file {
            File::Knob(knob) => self.knob_text(knob),
            File::Vmstat => self.vmstat_text(),
            File::Zoneinfo => self.zoneinfo_text().unwrap_or_default(),
            File::Node(place, view) => self.node_text(place, view),
            File::Nodes(set) => self.set_text(set),
            File::Tier(place) => {
                let list = self.kernel.tiers.listing();
                list.get(place).map_or_else(String::new, |(_, nodes)| format!("{nodes}\n"))
            }
            File::Block(block, view) => self.block_text(block, view),
            File::BlockSize => self.block_size_text(),
            File::NumaMaps(id) => self.numa_maps_text(id).unwrap_or_default(),
            File::Status(id) => self.status_text(id).unwrap_or_default(),
            File::Schedstat => self.schedstat().to_text(),
            File::TaskSchedstat(id) => self.task_schedstat_text(id),
            File::TaskSched(id) => self.task_sched(id).map_or_else(String::new, |s| s.to_text()),
            File::CpuIdle(cpu, state, view) => self.idle_text(cpu, state, view),
            File::Ksm(file) => self.ksm_text(file),
            File::KsmProcess(id, view) => self.ksm_process_text(id, view),
            File::Khugepaged(view) => {
                let k = &self.kernel.khugepaged;
                let count = match view {
                    KhugepagedView::PagesCollapsed => k.pages_collapsed,
                    KhugepagedView::FullScans => k.full_scans,
                };
                format!("{count}\n")
            }
            File::Group(number, file) => self.group_text(number, file),
            File::Latencytop => format!("{}\n", self.sched.q.counters.latencytop),
            File::Tracepoint(which) => self.tracepoint_text(which),
            File::Cpus(list) => self.cpus_text(list),
            File::CpuOnline(place) => self.online_text(place),
        }
    }

    fn knob_text(&self, knob: Knob) -> String {
        let text = match knob {
            // The table doesn't know the machine that this is computed from.
            Knob::MinFreeKbytes => self.mark_knobs().min_free_kbytes.to_string(),
            Knob::BaseSliceNs => self.sched.base_slice_ns().to_string(),
            _ => self.kernel.knobs.get(&knob.name()).unwrap_or_default(),
        };
        text + "\n"
    }
}

fn is_folder(files: &BTreeMap<String, File>, path: &str) -> bool {
    let inside = format!("{path}/");
    files.range(inside.clone()..).next().is_some_and(|(p, _)| p.starts_with(&inside))
}

/// The names in a folder.
fn names(files: &BTreeMap<String, File>, folder: &str) -> Vec<String> {
    let inside = format!("{folder}/");
    let below = files.range(inside.clone()..).map_while(|(p, _)| p.strip_prefix(&inside));
    let mut names: Vec<String> =
        below.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}
