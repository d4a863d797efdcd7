//! When a task scans: the trigger with its slow start.
//!
//! Each task has a *stamp* (CPU time at its last trigger) and a *period*; each
//! address space has a wall-clock *gate* (`next_scan`). On a tick the task
//! triggers once it has run for more than a period since the stamp; the scan
//! work is queued only if the gate is open.
//!
//! Worked example, one CPU-bound task, HZ 250, period 1000 ms, forked at 0:
//!
//! ```text
//! CPU time ms   1000   1004            2008   2012
//! trigger         no    yes              no    yes
//! stamp after      0   1000 (+8)       1008   2008 (+8)
//! gate       J>=250 open, next 501           J=503 >= 501 open
//! ```
//!
//! (+8): who does the scan adds two ticks to its stamp, so that a sibling wins
//! the next time. There is no randomness in any of this.

use crate::kernel::{KernelVersion, TICK_NSEC, msecs_to_jiffies};
use crate::knobs::Knobs;
use crate::scenario::SlowStart;
use crate::units::NodeId;

/// Scan state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskScan {
    /// CPU time of the last trigger in ns; 0: never triggered.
    pub stamp_ns: u64,
    /// Current period in ms.
    pub period_ms: u32,
    /// Longest period, as of the last placement, in ms.
    pub period_max_ms: u32,
    /// The scan sequence that placement has seen.
    pub seq: i32,
    /// Scan work is queued or runs; no further trigger until it is done.
    pub work_pending: bool,
}

/// Scan state of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmScan {
    /// Tick from which the next scan may run; 0: not armed yet.
    pub next_scan_jiffies: u64,
    /// How often the whole address space has been passed.
    pub seq: i32,
    /// Page number at which the next scan goes on.
    pub offset_vpn: u64,
    /// 3.8: node of the first scan work.
    pub first_node: Option<NodeId>,
    /// 3.8: scan work has run on another node than the first.
    pub seen_other_node: bool,
    /// 3.8: tick from which the period is put back to its minimum; 0: not set.
    pub next_reset_jiffies: u64,
}

impl MmScan {
    /// The address space that `exec` makes: its gate is still to be armed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The address space that `exec` makes at `now_jiffies` under either slow
    /// start. The seed's has no wall-clock gate, so it opens at once; this
    /// matters where a scenario asks for the seed's slow start on a later kernel.
    pub fn at_exec(slow_start: SlowStart, now_jiffies: u64) -> Self {
        match slow_start {
            SlowStart::Seed => Self { next_scan_jiffies: now_jiffies, ..Self::default() },
            SlowStart::Today => Self::new(),
        }
    }

    /// The address space that a child of fork gets, after [`fork`] has touched
    /// the parent's: gate, sequence and offset are inherited; the nodes that 3.8
    /// remembers are the child's own.
    pub fn inherited(&self) -> Self {
        Self { first_node: None, seen_other_node: false, ..*self }
    }
}

/// What a tick does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickOutcome {
    /// Not due.
    Nothing,
    /// Due, but the gate is closed: the stamp has moved, nothing is queued.
    TriggerSpentAtClosedGate,
    /// Due: [`begin_work`] is to run when the task returns to user mode.
    QueueWork,
}

/// The scheduler's tick in a running task. Not to be called for tasks without
/// an address space, exiting or kernel tasks, or outside the fair class, nor
/// while balancing is off.
///
/// * `cpu_ns` – CPU time the task has used in its life.
/// * `start_period_ms` – the period with which sampling starts
///   ([`super::period::Limits::start_ms`]); asked at the first trigger only.
///
/// Source: specs/numa.md#slow-start-seed, specs/numa.md#slow-start-today.
#[inline]
pub fn tick(
    task: &mut TaskScan,
    mm: &MmScan,
    slow_start: SlowStart,
    now_jiffies: u64,
    cpu_ns: u64,
    start_period_ms: impl FnOnce() -> u32,
) -> TickOutcome {
    if task.work_pending {
        return TickOutcome::Nothing;
    }
    let period_ns = u64::from(task.period_ms) * 1_000_000;
    let due = match slow_start {
        SlowStart::Seed => cpu_ns.saturating_sub(task.stamp_ns) > period_ns,
        SlowStart::Today => cpu_ns > task.stamp_ns.saturating_add(period_ns),
    };
    if !due {
        return TickOutcome::Nothing;
    }
    if task.stamp_ns == 0 {
        task.period_ms = start_period_ms();
    }
    match slow_start {
        SlowStart::Seed => task.stamp_ns = cpu_ns,
        // By the period that was waited for: a task that is behind catches up tick by tick.
        SlowStart::Today => task.stamp_ns += period_ns,
    }
    if now_jiffies < mm.next_scan_jiffies {
        return TickOutcome::TriggerSpentAtClosedGate;
    }
    task.work_pending = true;
    TickOutcome::QueueWork
}

/// How a new task comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// `fork`: the child gets an address space of its own.
    Fork,
    /// A thread, `vfork` or `posix_spawn`: the address space is shared.
    SharedMm,
}

/// Scan state of a new task; touches the address space of its parent.
///
/// * `mm` – the parent's address space: the hook runs before the child has its own.
/// * `mm_users` – how many tasks use it, without the new one.
/// * `parent_scan_max_ms` – the parent's present longest period.
///
/// The child of [`Birth::Fork`] then takes [`MmScan::inherited`], and no preferred node.
///
/// Source: specs/numa.md#fork.
pub fn fork(
    birth: Birth,
    parent: &TaskScan,
    mm: &mut MmScan,
    mm_users: u32,
    parent_scan_max_ms: u32,
    slow_start: SlowStart,
    scan_delay_ms: u32,
    now_jiffies: u64,
) -> TaskScan {
    if mm_users == 1 {
        mm.next_scan_jiffies = match slow_start {
            SlowStart::Seed => now_jiffies,
            SlowStart::Today => now_jiffies + msecs_to_jiffies(u64::from(scan_delay_ms)),
        };
        mm.seq = 0;
    }
    let mut child = TaskScan {
        stamp_ns: 0,
        period_ms: scan_delay_ms,
        period_max_ms: parent.period_max_ms,
        seq: mm.seq,
        work_pending: false,
    };
    if birth == Birth::SharedMm && slow_start == SlowStart::Today {
        // The kernel mixes units here: the smaller of a figure in ms and one in ns of
        // 32 bits, then used as ns. Reproduced, since it makes the stamp non-zero.
        let mixed =
            parent.period_ms.wrapping_mul(mm_users).wrapping_mul(1_000_000).min(parent_scan_max_ms);
        child.stamp_ns = u64::from(mixed.wrapping_add(2 * TICK_NSEC as u32));
    }
    child
}

/// What beginning the scan work came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStart {
    /// The task exits.
    Exiting,
    /// 7.3: cpusets leave the task one node only.
    SingleAllowedNode,
    /// The gate was not armed: it is now, for after `scan_delay_ms`, and nothing is scanned.
    Armed,
    /// Another task of the address space has had this turn.
    GateClosed,
    /// 3.8: the address space has been scanned from one node only so far.
    SingleNode,
    /// `scan_size_mb` is 0 (only with `emulate_quirks`): there is nothing to scan.
    NoBudget,
    /// Go on with [`super::window::ScanWork::new`]. The slot is taken, also if the
    /// address space's lock can't be had and nothing gets scanned (not in 3.8, which waits).
    Scan,
}

/// Facts about the task that begins scan work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkFacts {
    /// The tick now.
    pub now_jiffies: u64,
    /// Node of the CPU it runs on.
    pub cpu_node: NodeId,
    /// The task is exiting.
    pub exiting: bool,
    /// Cpusets are in use and leave the task a single node.
    pub single_allowed_node: bool,
}

/// Begins the queued scan work: arms or takes the turn. Taking it replaces the
/// gate at once, so that of several tasks one scans.
///
/// Source: specs/numa.md#scan-work, steps 1 to 4; specs/numa.md#slow-start-seed, a and d.
pub fn begin_work(
    task: &mut TaskScan,
    mm: &mut MmScan,
    facts: WorkFacts,
    knobs: &Knobs,
    start_period_ms: impl FnOnce() -> u32,
) -> WorkStart {
    let now = facts.now_jiffies;
    let seed = knobs.version == KernelVersion::V3_8;
    task.work_pending = false;
    if facts.exiting {
        return WorkStart::Exiting;
    }
    if knobs.version >= KernelVersion::V7_3 && facts.single_allowed_node {
        return WorkStart::SingleAllowedNode;
    }
    if seed {
        if mm.first_node.is_none() {
            mm.first_node = Some(facts.cpu_node);
        }
        mm.seen_other_node |= mm.first_node != Some(facts.cpu_node);
        if !mm.seen_other_node {
            return WorkStart::SingleNode;
        }
        let reset = msecs_to_jiffies(u64::from(knobs.scan_period_reset_ms));
        if mm.next_reset_jiffies == 0 {
            mm.next_reset_jiffies = now + reset;
        } else if now > mm.next_reset_jiffies {
            task.period_ms = knobs.scan_period_min_ms;
            mm.next_reset_jiffies = now + reset;
        }
    } else if mm.next_scan_jiffies == 0 {
        // Without a delay the gate is open at once, and the work goes on.
        let delay = msecs_to_jiffies(u64::from(knobs.scan_delay_ms));
        mm.next_scan_jiffies = now + delay;
        if delay > 0 {
            return WorkStart::Armed;
        }
    }
    if now < mm.next_scan_jiffies {
        return WorkStart::GateClosed;
    }
    if task.period_ms == 0 {
        task.period_ms = start_period_ms();
    }
    mm.next_scan_jiffies = now + msecs_to_jiffies(u64::from(task.period_ms));
    if !seed {
        task.stamp_ns += 2 * TICK_NSEC;
    }
    if knobs.scan_size_mb == 0 { WorkStart::NoBudget } else { WorkStart::Scan }
}

/// Charges a finished scan to the stamp: 32 times the CPU time that was accounted to the
/// task meanwhile, so that scanning stays near 3 %. A task's time is accounted at ticks, and
/// a scan begins right after one: a scan that is over before the next tick costs nothing.
/// 3.8 does not do this.
///
/// Source: specs/numa.md#scan-work.
#[inline]
pub fn charge_scan(task: &mut TaskScan, accounted_ns: u64, version: KernelVersion) {
    if version > KernelVersion::V3_8 {
        task.stamp_ns += 32 * accounted_ns;
    }
}

/// The CPU time that is accounted to a task which runs from `began_ns` to `ended_ns` without
/// a break, if it is looked up at both ends: by the ticks that fall between.
///
/// Source: specs/numa.md#scan-work.
#[inline]
pub const fn accounted_between(began_ns: u64, ended_ns: u64) -> u64 {
    (ended_ns / TICK_NSEC - began_ns / TICK_NSEC) * TICK_NSEC
}

/// 3.8: a hint fault that moved nothing lengthens the period by ten ticks. Others leave it.
///
/// Source: specs/numa.md#slow-start-seed, c.
#[inline]
pub fn seed_back_off(
    task: &mut TaskScan,
    scan_period_max_ms: u32,
    moved: bool,
    version: KernelVersion,
) {
    if moved || version != KernelVersion::V3_8 {
        return;
    }
    let step = crate::kernel::jiffies_to_msecs(10);
    task.period_ms = task.period_ms.saturating_add(step).min(scan_period_max_ms);
}

/// 3.8: the limit of 128 MB moved to a node in 100 ms, which also skips scans. Other
/// versions have none.
///
/// Source: specs/numa.md#slow-start-seed, e.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeedRateLimit {
    window_end_jiffies: u64,
    nr_pages: u64,
}

impl SeedRateLimit {
    /// Pages that may be moved to a node in one window.
    pub const PAGES: u64 = 128 << 8;
    /// Length of a window in ms.
    pub const WINDOW_MS: u64 = 100;

    /// Whether the node is over its limit: no scan begins from it.
    #[inline]
    pub fn is_over(&self, now_jiffies: u64, version: KernelVersion) -> bool {
        version == KernelVersion::V3_8
            && now_jiffies <= self.window_end_jiffies
            && self.nr_pages >= Self::PAGES
    }
    /// Asks to move `nr_pages` there; counts them if they may go.
    #[inline]
    pub fn take(&mut self, now_jiffies: u64, nr_pages: u64, version: KernelVersion) -> bool {
        if version != KernelVersion::V3_8 {
            return true;
        }
        if now_jiffies > self.window_end_jiffies {
            self.window_end_jiffies = now_jiffies + msecs_to_jiffies(Self::WINDOW_MS);
            self.nr_pages = 0;
        }
        if self.nr_pages >= Self::PAGES {
            return false;
        }
        self.nr_pages += nr_pages;
        true
    }
}

#[cfg(test)]
mod tests;
