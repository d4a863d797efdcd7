//! What a machine has for each source of heat, and what it may lack.
//!
//! Source: specs/sources.md#choice.

use std::fmt;

crate::named! {
    /// Whether something is so, as far as it could be seen.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Known {
        /// It is.
        Yes => "yes",
        /// It is not.
        No => "no",
        /// It could not be seen, for want of privilege or of a file that tells.
        #[default]
        Unseen => "unseen",
    }
}

impl Known {
    /// From what was seen.
    pub const fn from_bool(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// What a machine has for DAMON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamonFacts {
    /// `/sys/kernel/mm/damon/admin`.
    pub sysfs: Known,
    /// Operations for virtual address spaces.
    pub vaddr: Known,
    /// Whether its files may be written.
    pub may: Known,
    /// Slots that somebody has made in sysfs.
    pub slots: u32,
    /// kdamonds of others that run, in a slot or not; those of modules don't count.
    pub running: u32,
    /// Whether a kernel module has DAMON for itself (`DAMON_RECLAIM`, `DAMON_LRU_SORT`,
    /// `DAMON_STAT`).
    pub module: bool,
}

/// What a machine has for watching NUMA hint faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintFacts {
    /// `CONFIG_NUMA_BALANCING`.
    pub built: Known,
    /// `kernel.numa_balancing`, a bit field; `None` where it can't be read.
    pub mode: Option<u32>,
    /// The kernel's own BTF.
    pub btf: Known,
    /// `CONFIG_BPF_SYSCALL`.
    pub bpf: Known,
    /// Whether programs may be loaded.
    pub may: Known,
    /// Whether a function to watch is there.
    pub function: Known,
}

/// What became of opening an event that samples addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// It opened, and was closed again.
    Opens,
    /// No PMU here tells addresses.
    NoDevice,
    /// The only one that opens has samples in a form that homenode does not read.
    OwnForm,
    /// Refused for want of privilege.
    Refused,
    /// Refused with another error number.
    Failed(i32),
    /// It wasn't tried.
    #[default]
    Unseen,
}

/// What is known of a machine before a source is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes with memory.
    pub memory_nodes: u32,
    /// Those of them that are below the top tier or have no CPU.
    pub slow_nodes: u32,
    /// Those of them that the kernel itself has below its top tier.
    pub lower_nodes: u32,
    /// Nodes with CPUs.
    pub cpu_nodes: u32,
    /// DAMON.
    pub damon: DamonFacts,
    /// Hint faults.
    pub hints: HintFacts,
    /// Samples.
    pub pmu: Sampling,
}

/// Bit of `numa_balancing`: pages go where they are accessed from.
pub(super) const NORMAL: u32 = 1;

/// Something that a source would need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// The kernel is built without this option.
    NotBuilt(&'static str),
    /// Whether the kernel is built with this option could not be seen.
    BuiltUnseen(&'static str),
    /// DAMON's files may not be written.
    NotAdmin,
    /// Somebody else's kdamonds.
    SlotTaken {
        /// Slots.
        slots: u32,
        /// Running ones.
        running: u32,
    },
    /// A kernel module has DAMON.
    ModuleHolds,
    /// `kernel.numa_balancing` can't be read.
    ModeUnseen,
    /// `kernel.numa_balancing` is 0.
    BalancingOff,
    /// One node with memory: no page is marked that one thread uses, and none can move.
    OneNode,
    /// Only lower tiers are scanned, and there is none.
    NothingSlow,
    /// BPF programs may not be loaded.
    NoBpf,
    /// No function of the kernel is known where a hint fault can be watched.
    NoFunction,
    /// No PMU that tells addresses.
    NoPmu,
    /// A PMU whose samples are in a form that homenode does not read.
    PmuForm,
    /// perf refuses.
    PerfRefused,
    /// perf failed with this error number.
    PerfFailed(i32),
    /// perf was not asked.
    PerfUnseen,
}

impl Lack {
    /// A short name for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotBuilt(_) => "not_built",
            Self::BuiltUnseen(_) => "built_unseen",
            Self::NotAdmin => "not_admin",
            Self::SlotTaken { .. } => "slot_taken",
            Self::ModuleHolds => "module_holds",
            Self::ModeUnseen => "mode_unseen",
            Self::BalancingOff => "balancing_off",
            Self::OneNode => "one_node",
            Self::NothingSlow => "nothing_slow",
            Self::NoBpf => "no_bpf",
            Self::NoFunction => "no_function",
            Self::NoPmu => "no_pmu",
            Self::PmuForm => "pmu_form",
            Self::PerfRefused => "perf_refused",
            Self::PerfFailed(_) => "perf_failed",
            Self::PerfUnseen => "perf_unseen",
        }
    }
    /// How to get it, for people.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NotBuilt("CONFIG_DAMON_VADDR") => {
                "boot a kernel with CONFIG_DAMON_VADDR=y; stock Debian 6.12 and newer have it"
            }
            Self::NotBuilt(_) => "boot a kernel that has it",
            Self::BuiltUnseen(_) => {
                "run it as root, or install the kernel's configuration as /boot/config-RELEASE"
            }
            Self::NotAdmin => {
                "run it as root of the machine itself, not of a container, with /sys writable"
            }
            Self::SlotTaken { .. } => {
                "end the other user of DAMON (damo stop; 0 into \
                 /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds): homenode never stops one that \
                 it didn't start"
            }
            Self::ModuleHolds => {
                "switch the module off (stock Debian 7.3 has damon_stat on): N into \
                 /sys/module/damon_*/parameters/enabled, or boot with damon_stat.enabled=N"
            }
            Self::ModeUnseen => "mount /proc so that /proc/sys/kernel/numa_balancing can be read",
            Self::BalancingOff => {
                "sysctl kernel.numa_balancing=1 (3 with a slow node), or boot with \
                 numa_balancing=enable; the kernel then moves pages itself"
            }
            Self::OneNode => "nothing to get: there is no other node",
            Self::NothingSlow => "sysctl kernel.numa_balancing=1",
            Self::NoBpf => {
                "run it as root of the machine itself, or with CAP_BPF and CAP_PERFMON (setcap \
                 cap_bpf,cap_perfmon+ep), and without lockdown=confidentiality"
            }
            Self::NoFunction => "tell us the kernel's release: its functions have other names",
            Self::NoPmu => {
                "run on bare metal, or let the hypervisor pass a PMU with PEBS or IBS through \
                 (libvirt: cpu mode host-passthrough, pmu state on)"
            }
            Self::PmuForm => "none: homenode would have to learn it",
            Self::PerfRefused => {
                "run it as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0"
            }
            Self::PerfFailed(_) => "see what perf mem record says on this machine",
            Self::PerfUnseen => "run it on the machine itself",
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt(option) => write!(f, "the kernel is built without {option}"),
            Self::BuiltUnseen(option) => {
                write!(f, "can't see whether the kernel is built with {option}")
            }
            Self::NotAdmin => f.write_str("DAMON's files may not be written"),
            Self::SlotTaken { slots, running } => write!(
                f,
                "DAMON belongs to somebody else: {slots} kdamond slot{}, {running} running",
                if *slots == 1 { "" } else { "s" }
            ),
            Self::ModuleHolds => f.write_str("a kernel module has DAMON for itself"),
            Self::ModeUnseen => f.write_str("kernel.numa_balancing can't be read"),
            Self::BalancingOff => f.write_str("kernel.numa_balancing is 0: nothing is marked"),
            Self::OneNode => f.write_str("only one node has memory: hint faults tell too little"),
            Self::NothingSlow => f.write_str(
                "kernel.numa_balancing marks memory of lower tiers only, and this kernel has none",
            ),
            Self::NoBpf => f.write_str("BPF programs may not be loaded"),
            Self::NoFunction => {
                f.write_str("no function is known where this kernel handles hint faults")
            }
            Self::NoPmu => f.write_str("no PMU here samples addresses of memory accesses"),
            Self::PmuForm => {
                f.write_str("the PMU writes its samples in a form that homenode does not read")
            }
            Self::PerfRefused => f.write_str("perf refuses samples of memory accesses"),
            Self::PerfFailed(errno) => {
                write!(f, "opening samples of memory accesses failed with error {errno}")
            }
            Self::PerfUnseen => f.write_str("samples of memory accesses were not tried"),
        }
    }
}
