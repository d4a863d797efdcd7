//! A wake-up, and what was chosen for it.

use crate::raw::{self, Up};

/// CPUs that a task may run on.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'a> {
    /// All of them.
    All,
    /// A bit per CPU, as many words as [`crate::Layout::nr_words`].
    Words(&'a [u64]),
}

/// A task that wakes up.
///
/// Source: specs/wake.md#entry.
#[derive(Clone, Copy, Debug)]
pub struct Wakeup<'a> {
    /// Where the waker runs; in an interrupt, the CPU that has it.
    pub waker_cpu: u32,
    /// Where the wakee is to be looked for: its `wake_cpu`, where it ran last.
    pub prev: u32,
    /// Its CPU. Another one than `prev` only if a swap by NUMA balancing gave it another
    /// `wake_cpu` in its sleep. A fall-back begins at this one's node.
    pub task_cpu: u32,
    /// The wakee's number, by which the waker knows it again.
    pub wakee: u32,
    /// Where it may run.
    pub allowed: Allowed<'a>,
    /// How many CPUs that are; 1 as long as its migration is disabled.
    pub nr_allowed: u32,
    /// The waker is about to sleep. Not said of one that exits.
    pub sync: bool,
    /// The caller asks for the waker's CPU (kernels from 6.12 on).
    pub current_cpu: bool,
    /// The waker is a kernel thread bound to one CPU, and no interrupt wakes in its place.
    pub waker_per_cpu_kthread: bool,
    /// The wakee's policy is SCHED_IDLE.
    pub wakee_idle_policy: bool,
    /// Now.
    pub jiffies: u64,
    /// The waker's load, by the weight of its groups. Looked at if `sync`.
    pub waker_load: u64,
    /// The wakee's.
    pub wakee_load: u64,
    /// The wakee's utilisation, the greater of average and estimate. Looked at where
    /// capacities differ.
    pub wakee_util: u64,
}

impl Wakeup<'_> {
    /// As the header wants it; `allowed` goes with the view.
    pub(crate) fn up(&self) -> Up {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        Up {
            waker_cpu: self.waker_cpu,
            prev: self.prev,
            task_cpu: self.task_cpu,
            wakee: self.wakee,
            nr_allowed: self.nr_allowed,
            flags: flag(self.sync, raw::SYNC)
                | flag(self.current_cpu, raw::CURRENT_CPU)
                | flag(self.waker_per_cpu_kthread, raw::KTHREAD)
                | flag(self.wakee_idle_policy, raw::IDLE_POLICY),
            jiffies: self.jiffies,
            waker_load: self.waker_load,
            wakee_load: self.wakee_load,
            wakee_util: self.wakee_util,
        }
    }
}

/// Why a CPU was chosen.
///
/// Source: specs/wake.md#reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It is the only one allowed; nothing was looked at.
    OnlyAllowed,
    /// The caller asked for the waker's CPU.
    CurrentCpu,
    /// The target is idle.
    TargetIdle,
    /// The wakee's CPU is, in the target's LLC.
    PrevIdle,
    /// The waker is a kernel thread of this CPU with nobody else on it.
    Stacked,
    /// A CPU that the wakee used recently is idle.
    Recent,
    /// On a machine of unequal CPUs: the first idle one that the task fits.
    CapacityFits,
    /// The same: it fits none, this is the best one.
    CapacityBest,
    /// A whole core is idle.
    IdleCore,
    /// An idle CPU, found within the budget.
    IdleCpu,
    /// No core was idle as a whole, but this CPU was seen while one was looked for.
    IdleSeen,
    /// A CPU of prev's core (up to 4.16: of the target's).
    SmtSibling,
    /// Prev is idle, but in another cluster, and the LLC had no idle CPU to offer.
    PrevOtherCluster,
    /// The same with the recent CPU.
    RecentOtherCluster,
    /// Nothing was idle, or nothing was looked at: the target.
    NothingIdle,
    /// The target is in no LLC's domain.
    NoLlc,
    /// A domain balances at wake-ups: the caller has to search the groups of [`Choice::level`].
    SlowPath,
    /// What was chosen isn't allowed or active: a CPU of the task's node.
    FallbackNode,
    /// The same: any allowed CPU.
    Fallback,
    /// No allowed CPU is active: one that is. The caller has to widen what is allowed.
    AffinityBroken,
}

impl Reason {
    /// In the header's order.
    pub const ALL: [Self; 20] = [
        Self::OnlyAllowed,
        Self::CurrentCpu,
        Self::TargetIdle,
        Self::PrevIdle,
        Self::Stacked,
        Self::Recent,
        Self::CapacityFits,
        Self::CapacityBest,
        Self::IdleCore,
        Self::IdleCpu,
        Self::IdleSeen,
        Self::SmtSibling,
        Self::PrevOtherCluster,
        Self::RecentOtherCluster,
        Self::NothingIdle,
        Self::NoLlc,
        Self::SlowPath,
        Self::FallbackNode,
        Self::Fallback,
        Self::AffinityBroken,
    ];

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What was chosen, why, and what is to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Where the task goes.
    pub cpu: u32,
    /// Why.
    pub reason: Reason,
    /// Where the search for an idle CPU began: the waker's CPU or prev.
    pub target: u32,
    /// Of the waker's CPU, the level (0: its smallest domain) in which `wake_affine` was
    /// tried: then `nr_wakeups_affine_attempts` counts one. With [`Reason::SlowPath`], where
    /// the search through groups begins.
    pub level: Option<u8>,
    /// It chose the waker's CPU: `nr_wakeups_affine` counts one, and that domain's
    /// `ttwu_move_affine`.
    pub affine: bool,
    /// Both have too many partners to be drawn together.
    pub wide: bool,
    /// CPUs that the search went past, the chosen one included. One that looks for a whole
    /// core counts each CPU of those it passes.
    pub scanned: u32,
    /// The wakee's recent CPU was written.
    pub recent_changed: bool,
    /// The waker's was.
    pub waker_recent_changed: bool,
    /// The waker's flips were halved or counted.
    pub flips_changed: bool,
    /// `has_idle_core` of the target's LLC was cleared.
    pub idle_core_cleared: bool,
    /// Up to 4.16: how long the search took goes to [`crate::Cpus::note_scan_cost`].
    pub scan_timed: bool,
}
