//! A scenario as data: which kernel with which knobs runs which programs.
//!
//! The machine comes apart from it, so that one scenario can be run on several.
//! `homenode-config` reads scenarios from TOML; `homenode-sim` runs them.

mod cpu;
mod group;

pub use crate::pattern::Pattern;
pub use crate::sched::frequency::Governor;
pub use cpu::{
    Channel, ChannelKind, Command, Completion, CpuStep, Device, DeviceTime, NICE, REST,
    SchedPolicy, Which,
};
pub use group::Group;

use crate::kernel::KernelVersion;
use crate::knobs::Errno;
use crate::scale::Scale;
use crate::sched::fair::Features;
use crate::units::{Bytes, CpuId, NodeId, Pages, Picos};

/// What is simulated, without the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// A short name for captions.
    pub name: String,
    /// One sentence on what it shows.
    pub about: String,
    /// Path of the machine's file, relative to the scenario's own.
    pub machine: String,
    /// What the machine and the workload stand for.
    pub scale: Scale,
    /// Whose rules are simulated.
    pub kernel: KernelVersion,
    /// Knobs by the kernel's names with their values as text, in the order in
    /// which they are written before the run.
    pub knobs: Vec<(String, String)>,
    /// Files of `/sys/kernel/mm/ksm` by name with what is written to them before the
    /// run, in this order.
    pub ksm: Vec<(String, String)>,
    /// The kernel's command line: `schedstats=enable`, or nothing.
    pub command_line: String,
    /// Choices that are no knob of a kernel.
    pub model: Model,
    /// Virtual time after which everything stops; `None`: when all programs end.
    pub duration: Option<Picos>,
    /// Seed of all random streams.
    pub seed: u64,
    /// Groups that processes are in; the one that a group is in may stand behind it.
    pub groups: Vec<Group>,
    /// The programs, in the order of their start, and those that others run.
    pub processes: Vec<Process>,
    /// What their tasks wait for one another with.
    pub channels: Vec<Channel>,
    /// Devices that they wait for.
    pub devices: Vec<Device>,
    /// What is read from and written to the kernel's files in the middle of the run.
    pub actions: Vec<Action>,
}

impl Scenario {
    /// What is wrong with the programs that steps run: the place of the process, that of the step
    /// (`None`: the process itself), and why.
    ///
    /// Source: specs/workloads.md#spawn.
    pub fn spawns_wrong(&self) -> Option<(usize, Option<usize>, String)> {
        for (place, p) in self.processes.iter().enumerate() {
            for (at, step) in p.steps.iter().enumerate() {
                let Step::Spawn { programs, .. } = step else { continue };
                for name in programs {
                    let found = self.processes.iter().position(|q| q.name == *name);
                    let why = match found.map(|n| (n, &self.processes[n])) {
                        None => format!("there is no process \"{name}\" to run"),
                        Some((_, q)) if !q.spawned => {
                            format!("\"{name}\" starts by itself; give it start = \"spawn\"")
                        }
                        Some((n, _)) if n <= place => {
                            format!("\"{name}\" stands before it; a program runs only later ones")
                        }
                        Some(_) => continue,
                    };
                    return Some((place, Some(at), why));
                }
            }
            let runs = |q: &Process| q.spawns().any(|(names, _)| names.contains(&p.name));
            if p.spawned && !self.processes.iter().any(runs) {
                let why = format!("no step runs \"{}\", which doesn't start by itself", p.name);
                return Some((place, None, why));
            }
        }
        None
    }
    /// Whether a program may have equal pages merged, so that contents must be kept.
    pub fn may_merge(&self) -> bool {
        self.processes.iter().any(Process::may_merge)
    }
}

/// A read or write of a file of the simulated `/proc` or `/sys` at a given time.
///
/// Source: specs/files.md#actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// When, in virtual time. Actions of one moment happen in the scenario's order,
    /// after the programs that start at that moment.
    pub at: Picos,
    /// With whose rights.
    pub who: Rights,
    /// What.
    pub what: FileOp,
    /// The error that must come; `None`: none may come.
    pub expect: Option<Errno>,
}

crate::named! {
    /// With whose rights a file is opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rights {
        /// User 0 with all capabilities.
        #[default]
        Root => "root",
        /// User 0 that has dropped its capabilities.
        RootWithoutCaps => "root-without-caps",
        /// Any other user.
        Nobody => "nobody",
    }
}

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Read it whole.
    Read {
        /// The kernel's path; `{name}` stands for the PID of the process of that name.
        path: String,
    },
    /// Write to it from its start, in one piece.
    Write {
        /// The kernel's path, as for a read.
        path: String,
        /// The bytes.
        text: String,
    },
}

impl FileOp {
    /// The path as the scenario has it.
    pub fn path(&self) -> &str {
        match self {
            Self::Read { path } | Self::Write { path, .. } => path,
        }
    }
}

/// The names in braces of a path, in their order.
pub fn names_in(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).collect()
}

/// Choices of the model that no knob of a kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Which rules promotions follow at the target's watermarks.
    pub admission: AdmissionChoice,
    /// How far above `high` kswapd aims while tiering is on.
    pub margin: Margin,
    /// Slow start as in the seed's kernel or as today.
    pub slow_start: SlowStart,
    /// Which rules of its series 3.8 balances by.
    pub balancing: Balancing,
    /// Free-space shortcut, hot threshold and rate limit of today's kernels;
    /// off, promotion is the seed's: the ordinary page filter.
    pub hot_page_selection: bool,
    /// Whether its threshold follows the rate limit. Off, `hot_threshold_ms` stays what is hot.
    pub adjust_hot_threshold: bool,
    /// What happens to a cold page below the last tier.
    pub swap: Swap,
    /// How threads of several CPUs are ordered.
    pub order: CpuOrder,
    /// Whose node unmerging allocates at.
    pub unmerge_target: UnmergeTarget,
    /// Which recently used CPU wake-ups remember.
    pub recent_cpu: RecentCpu,
    /// By whose rules the CPU of a woken task is chosen beside that.
    pub wakeups: Wakeups,
    /// Switches of the fair class.
    pub features: Features,
    /// Who chooses the clocks of the CPUs, on a machine whose file has any but the nominal one.
    pub clocks: Governor,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            admission: AdmissionChoice::B,
            margin: Margin::Kernel,
            slow_start: SlowStart::Today,
            balancing: Balancing::Kernel,
            hot_page_selection: true,
            adjust_hot_threshold: true,
            swap: Swap::None,
            order: CpuOrder::Quantum(Picos::from_us(10)),
            unmerge_target: UnmergeTarget::Caller,
            recent_cpu: RecentCpu::Kernel,
            wakeups: Wakeups::Kernel,
            features: Features::default(),
            clocks: Governor::Nominal,
        }
    }
}

crate::named! {
    /// The versions of the recently used CPU.
    ///
    /// Source: specs/wake.md#recent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecentCpu {
        /// The kernel's own.
        Kernel => "kernel",
        /// None is remembered, as before the seed S3.
        None => "none",
        /// The seed's: where a task ran when it last woke another.
        Seed => "seed",
        /// Today's: where a task ran before its last search for an idle CPU.
        Today => "today",
    }
}

crate::named! {
    /// By whose rules the CPU of a woken task is chosen.
    ///
    /// Source: specs/wake.md.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wakeups {
        /// The kernel's own.
        Kernel => "kernel",
        /// Those of Linux 4.16, on which the seed S3 was built.
        Seed => "seed",
        /// Those of 6.12.
        Today => "today",
    }
}

crate::named! {
    /// Which rules of NUMA balancing 3.8 has: they came one by one, slow start before most others.
    ///
    /// Source: specs/numa.md#slow-start-seed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Balancing {
        /// Those of the release.
        Kernel => "kernel",
        /// Those that were there when slow start came: a, c, e and g of that section are not.
        Seed => "seed",
    }
}

/// The seed's two choices for promotions into a full node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionChoice {
    /// Ignore the watermarks down to `min`.
    A,
    /// Stop above `high` and wake demotion.
    B,
}

/// For whom a page is allocated that unmerging gives back.
///
/// Source: specs/ksm.md#unmerge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmergeTarget {
    /// For the task that unmerges, by the mapping's policy or else by its own: kernels.
    Caller,
    /// As if a task of the address space had faulted: what the seed S4 misses.
    Home,
}

/// How far above the high watermark kswapd aims while tiering is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Margin {
    /// `high / 4`: the seed's example.
    SeedQuarter,
    /// `max(10 MiB, high / 4)`: the mail that the seed links.
    PostedQuarter,
    /// The distance between the other marks: merged kernels.
    Kernel,
}

/// The two versions of slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStart {
    /// v3.8: processor time only.
    Seed,
    /// 6.1 to 7.3: processor time and wall time.
    Today,
}

/// What lies below the last tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Nothing: anonymous pages of the last tier can't be reclaimed.
    None,
    /// A swap device of that many pages.
    Device(Pages),
}

/// How threads on several CPUs interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOrder {
    /// Each CPU runs on for at most this long (≤ 10 µs) before the next gets its turn.
    Quantum(Picos),
    /// The CPU whose clock is furthest behind makes the next access: the reference.
    Strict,
}

/// A program of one or more threads in one address space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its name in tables.
    pub name: String,
    /// One thread on each of these CPUs, pinned. Where `threads` says how many there are:
    /// the CPUs that they may run on, all where none is named.
    pub cpus: Vec<CpuId>,
    /// Threads that the scheduler places; 0: one on each of `cpus`, pinned.
    pub threads: u32,
    /// Its threads are the vCPUs of a virtual machine, which has a group of its own.
    pub guest: bool,
    /// So many processes alike, each with its own address space; 0 is one.
    pub copies: u32,
    /// Nice value of its tasks.
    pub nice: i8,
    /// How the fair class treats its tasks.
    pub sched_policy: SchedPolicy,
    /// `sched_runtime` of `sched_setattr`: a slice of its tasks' own, 0.1 to 100 ms. `None`: the kernel's base
    /// slice. Kernels before 6.12 have none.
    pub sched_runtime: Option<Picos>,
    /// The name of the group that it is in; `None`: the root.
    pub group: Option<String>,
    /// When it starts.
    pub start: Picos,
    /// It doesn't start by itself: tasks run it that come to a [`Step::Spawn`].
    pub spawned: bool,
    /// It pays for its end before it is one, as those do that a parent has made.
    pub exits: bool,
    /// Mempolicy of the tasks.
    pub policy: Mempolicy,
    /// `prctl(PR_SET_MEMORY_MERGE)` before anything is mapped: all its private
    /// anonymous memory may be merged, and that of its children.
    pub memory_merge: bool,
    /// Mappings, made at the start in this order.
    pub maps: Vec<Map>,
    /// What each thread does, in order; then it exits.
    pub steps: Vec<Step>,
}

impl Process {
    /// One that starts with the run, under the default policy, and asks for no merging.
    pub fn new(name: &str, cpus: Vec<CpuId>, maps: Vec<Map>, steps: Vec<Step>) -> Self {
        Self { name: name.to_owned(), cpus, maps, steps, ..Self::default() }
    }
    /// How many threads one copy of it has.
    pub fn thread_count(&self) -> usize {
        if self.threads > 0 { self.threads as usize } else { self.cpus.len() }
    }
    /// How many copies of it there are.
    pub fn copy_count(&self) -> u32 {
        self.copies.max(1)
    }
    /// The place among its mappings of the one that steps call so.
    pub fn map_number(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|m| m.name == name)
    }
    /// The names of programs that its steps run in children, and how many children each such step
    /// leaves at most.
    pub fn spawns(&self) -> impl Iterator<Item = (&[String], u32)> {
        self.steps.iter().filter_map(|s| match s {
            Step::Spawn { programs, at_most } => Some((programs.as_slice(), *at_most)),
            _ => None,
        })
    }
    /// Whether some of its memory may be merged with equal pages.
    pub fn may_merge(&self) -> bool {
        let asks = |s: &Step| matches!(s, Step::Madvise { mergeable: true, .. });
        self.memory_merge || self.maps.iter().any(|m| m.mergeable) || self.steps.iter().any(asks)
    }
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Its name in steps.
    pub name: String,
    /// Its size; rounded up to pages.
    pub size: Bytes,
    /// Backed by a file instead of anonymous.
    pub file: bool,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Mapped without `PROT_WRITE`.
    pub read_only: bool,
    /// `madvise`: `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, or none.
    pub huge: Option<bool>,
    /// What its pages hold after a first touch.
    pub content: Content,
    /// `madvise(MADV_MERGEABLE)` when it is made.
    pub mergeable: bool,
    /// Its own policy, as by `mbind`.
    pub policy: Mempolicy,
}

impl Map {
    /// Private, anonymous and writable, with contents of its own; it has asked for nothing.
    pub fn anonymous(name: &str, size: Bytes) -> Self {
        Self { name: name.to_owned(), size, ..Self::default() }
    }
}

/// What pages hold, as far as merging sees it: which are equal.
///
/// A first touch and [`Step::Fill`] give contents. Any other write makes a page differ
/// from all others and from what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Each page differs from every other.
    #[default]
    Own,
    /// Zeroes.
    Zero,
    /// Pages of an image: page `i` of the mapping holds number `i` modulo `distinct`.
    /// Pages of one image and number are equal, whatever process they are in.
    Image {
        /// The image's name, the same for all processes.
        name: String,
        /// Different pages of the image, at least 1; `None`: as many as the mapping has.
        distinct: Option<Pages>,
    },
}

/// A memory policy with the kernel's modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mempolicy {
    /// None of its own: the task's, and in the end local allocation.
    #[default]
    Default,
    /// `MPOL_LOCAL`.
    Local,
    /// `MPOL_BIND`; `balancing` is `MPOL_F_NUMA_BALANCING`.
    Bind {
        /// Allowed nodes.
        nodes: Vec<NodeId>,
        /// Sampled all the same.
        balancing: bool,
    },
    /// `MPOL_PREFERRED`.
    Preferred(NodeId),
    /// `MPOL_INTERLEAVE`.
    Interleave(Vec<NodeId>),
    /// `MPOL_WEIGHTED_INTERLEAVE`, weights from 1 to 255.
    WeightedInterleave(Vec<(NodeId, u8)>),
}

/// Most accesses of a step that are under way at once: no core has more lines under way.
pub const MLP_MAX: u32 = 64;

/// Most that a stream asks for, in bandwidths of the node that serves it.
///
/// Source: specs/load.md#stream.
pub const STREAM_MAX: u64 = 10;

/// Something that a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write to each page of a mapping once, in rising order; each thread takes its share.
    Touch {
        /// The mapping's name.
        map: String,
    },
    /// The first thread writes to each page of a mapping once; the others wait for it.
    Initialize {
        /// The mapping's name.
        map: String,
        /// In which order.
        order: TouchOrder,
    },
    /// Write a content to each page of a mapping, in rising order; each thread takes
    /// its share.
    Fill {
        /// The mapping's name.
        map: String,
        /// What the pages hold from then on.
        content: Content,
    },
    /// `madvise(MADV_MERGEABLE)` or `MADV_UNMERGEABLE` of a whole mapping.
    Madvise {
        /// The mapping's name.
        map: String,
        /// Which of the two.
        mergeable: bool,
    },
    /// Access a mapping in a pattern.
    Access {
        /// The mapping's name.
        map: String,
        /// Which pages.
        pattern: Pattern,
        /// Writes among accesses, in thousandths.
        write: u32,
        /// Computing between two accesses.
        compute: Picos,
        /// Accesses under way at once, 1 to [`MLP_MAX`]; at 1 each waits for the one before it.
        mlp: u32,
        /// How long.
        until: Until,
    },
    /// Read lines of a mapping in order, so many bytes a second, as others on a machine do who need a part
    /// of a node's bandwidth. Source: specs/load.md#stream.
    Stream {
        /// The mapping's name; each thread takes its share.
        map: String,
        /// What all threads together ask for, in MB/s, at least 1: lines of 64 bytes.
        rate: u64,
        /// Written lines among them, in thousandths.
        write: u32,
        /// How long.
        time: Picos,
    },
    /// Sleep, using no CPU.
    Sleep(Picos),
    /// Fork a child that runs the remaining steps on the same CPUs, beside its parent.
    Fork,
    /// Wait until all children have exited.
    Wait,
    /// Fork a child that runs another program of the scenario. Source: specs/workloads.md#spawn.
    Spawn {
        /// The names of the processes that it may run, each [`Process::spawned`] and behind its own in
        /// the scenario's list. Each round goes through all of them, in an order drawn anew.
        programs: Vec<String>,
        /// First wait until fewer children than this have not exited; at least 1.
        at_most: u32,
    },
    /// Wait until all threads of the process have come here.
    Barrier,
    /// Make a mapping of the process again that was given back; nothing where it stands.
    Map {
        /// The mapping's name.
        map: String,
    },
    /// Do the steps before this one again. They hold no fork.
    Repeat {
        /// How many steps, at least 1.
        steps: u32,
        /// How often, or how long.
        until: Again,
    },
    /// Give a mapping back.
    Unmap {
        /// The mapping's name.
        map: String,
    },
    /// `mbind` without moving what is there.
    Mbind {
        /// The mapping's name.
        map: String,
        /// The new policy.
        policy: Mempolicy,
    },
    /// `move_pages` of a whole mapping.
    MovePages {
        /// The mapping's name.
        map: String,
        /// Where to.
        to: NodeId,
    },
    /// Something that is about CPUs.
    Cpu(CpuStep),
}

/// The order of a first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOrder {
    /// From the first page to the last.
    Linear,
    /// From the middle outwards, to both sides in turn.
    MiddleFirst,
    /// Each next page far from the last, evenly over the mapping.
    Scattered,
}

impl Step {
    /// The mapping that it names, if it is about one.
    pub fn map(&self) -> Option<&str> {
        match self {
            Self::Touch { map }
            | Self::Initialize { map, .. }
            | Self::Map { map }
            | Self::Access { map, .. }
            | Self::Stream { map, .. }
            | Self::Fill { map, .. }
            | Self::Madvise { map, .. }
            | Self::Unmap { map }
            | Self::Mbind { map, .. }
            | Self::MovePages { map, .. } => Some(map),
            Self::Sleep(_)
            | Self::Fork
            | Self::Wait
            | Self::Spawn { .. }
            | Self::Barrier
            | Self::Repeat { .. }
            | Self::Cpu(_) => None,
        }
    }
    /// Whether it accesses a mapping over and over, rather than each page once.
    pub fn accesses(&self) -> bool {
        matches!(self, Self::Access { .. } | Self::Stream { .. })
    }
}

/// How long steps are repeated.
///
/// Source: specs/pmbench.md#steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// So many rounds in all, the first one counted.
    Times(u64),
    /// As long as less than this has passed since the task's start.
    Until(Picos),
}

/// When an access step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many accesses of each thread.
    Accesses(u64),
    /// After so much virtual time.
    Time(Picos),
}
