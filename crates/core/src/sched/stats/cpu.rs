//! What is counted of a CPU and of its domains.

use super::Version;
use super::counter::{Counter, Counters, counters};

counters! {
    /// What is counted of a CPU: a `cpuN` line of `/proc/schedstat`.
    ///
    /// The kernel keeps counts in 32 bits, which begin at 0 again, and times in 64; the text has
    /// them so.
    ///
    /// Source: specs/schedstats.md#schedstat.
    pub struct CpuStats of Cpu {
        /// Calls of `sched_yield` on this CPU. With the switch.
        yld_count: Sum Count 32 ALWAYS,
        /// Calls of `schedule()` on this CPU, whether they switch or not. With the switch.
        sched_count: Sum Count 32 ALWAYS,
        /// How often the idle task was picked. With the switch.
        sched_goidle: Sum Count 32 ALWAYS,
        /// Wake-ups that a task or interrupt of this CPU made. With the switch.
        ttwu_count: Sum Count 32 ALWAYS,
        /// Those of them whose task was put on this CPU. With the switch.
        ttwu_local: Sum Count 32 ALWAYS,
        /// Time that tasks ran here, added when each leaves the CPU. Always.
        rq_cpu_time: Sum Ns 64 ALWAYS,
        /// Time that tasks waited here, added when each runs or leaves the queue. Always.
        run_delay: Sum Ns 64 ALWAYS,
        /// How often a task began to run here: timeslices. Always.
        pcount: Sum Count 64 ALWAYS,
    }
}

impl Counters for CpuStats {
    fn counters() -> Vec<Counter> {
        Self::COUNTERS.to_vec()
    }
    fn each(&self) -> Vec<u64> {
        self.values().to_vec()
    }
    fn set_each(&mut self, values: &[u64]) {
        if let Ok(values) = values.try_into() {
            self.set_values(values);
        }
    }
}

crate::named! {
    /// What a CPU is doing when it looks whether there is work to pull.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum IdleType {
        /// It runs tasks.
        Busy = 0 => "busy",
        /// It is idle, at a tick or on behalf of an idle CPU without one; also where a task is
        /// pushed to it (active balance).
        Idle = 1 => "idle",
        /// It is about to go idle.
        NewlyIdle = 2 => "newly idle",
    }
}

impl IdleType {
    /// Whether it has nothing to run.
    #[inline]
    pub const fn idle(self) -> bool {
        !matches!(self, Self::Busy)
    }
    /// The order in which a version prints the three groups.
    pub(super) const fn printed(version: Version) -> [Self; 3] {
        match version {
            Version::V15 => [Self::Idle, Self::Busy, Self::NewlyIdle],
            Version::V16 | Version::V17 => [Self::Busy, Self::Idle, Self::NewlyIdle],
        }
    }
}

crate::named! {
    /// What an imbalance is counted in.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Migration {
        /// Load.
        #[default]
        Load => "load",
        /// Utilisation.
        Util => "util",
        /// Tasks.
        Task => "task",
        /// One task that its CPU is too small for.
        Misfit => "misfit",
    }
}

counters! {
    /// What is counted of balancing in a domain, while a CPU is busy, idle or newly idle. All of
    /// it with the switch.
    ///
    /// Source: specs/schedstats.md#domains.
    pub struct LbStats of DomainByIdle {
        /// Calls of balancing.
        lb_count: Sum Count 32 ALWAYS,
        /// Calls that found nothing to do: another CPU of the group balances, no busiest group,
        /// no busiest queue, or all its tasks are pinned.
        lb_balanced: Sum Count 32 ALWAYS,
        /// Calls that found a busiest queue and moved nothing.
        lb_failed: Sum Count 32 ALWAYS,
        /// Imbalances found, added up whatever they are measured in. From version 17 on not
        /// printed; here it is the sum of the four below.
        lb_imbalance: Sum Count 32 TO_16,
        /// Imbalances in load, added up.
        lb_imbalance_load: Sum Count 32 FROM_17,
        /// Imbalances in utilisation, added up.
        lb_imbalance_util: Sum Count 32 FROM_17,
        /// Imbalances in tasks, added up.
        lb_imbalance_task: Sum Count 32 FROM_17,
        /// Imbalances of tasks too large for their CPU, added up.
        lb_imbalance_misfit: Sum Count 32 FROM_17,
        /// Tasks that were pulled; while idle also those pushed by active balance.
        lb_gained: Sum Count 32 ALWAYS,
        /// Those of them that were cache-hot, and taken since balancing had failed too often.
        lb_hot_gained: Sum Count 32 ALWAYS,
        /// Calls that found a busiest group and no queue in it to pull from.
        lb_nobusyq: Sum Count 32 ALWAYS,
        /// Calls that found no busiest group.
        lb_nobusyg: Sum Count 32 ALWAYS,
    }
}

impl LbStats {
    /// Counts an imbalance that was found. Where balancing tries again within a call, each one.
    #[inline]
    pub fn imbalance(&mut self, kind: Migration, amount: u64) {
        self.lb_imbalance = self.lb_imbalance.wrapping_add(amount);
        let of = match kind {
            Migration::Load => &mut self.lb_imbalance_load,
            Migration::Util => &mut self.lb_imbalance_util,
            Migration::Task => &mut self.lb_imbalance_task,
            Migration::Misfit => &mut self.lb_imbalance_misfit,
        };
        *of = of.wrapping_add(amount);
    }
}

counters! {
    /// What is counted of a domain from one of its CPUs: a `domainN` line of `/proc/schedstat`.
    /// All of it with the switch; all of it begins at 0 again when domains are rebuilt.
    ///
    /// Source: specs/schedstats.md#domains.
    pub struct DomainStats of Domain {
        /// Active balances: the stopper of the busiest CPU was asked to push a task here.
        alb_count: Sum Count 32 ALWAYS,
        /// Those that found no task that may go.
        alb_failed: Sum Count 32 ALWAYS,
        /// Those that pushed a task.
        alb_pushed: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbe_count: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbe_balanced: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbe_pushed: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbf_count: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbf_balanced: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        sbf_pushed: Sum Count 32 ALWAYS,
        /// Wake-ups from this CPU to another one, of which this is the lowest common domain.
        ttwu_wake_remote: Sum Count 32 ALWAYS,
        /// Wake-ups for which `wake_affine` chose the waker's CPU over the previous one.
        ttwu_move_affine: Sum Count 32 ALWAYS,
        /// Nothing updates it.
        ttwu_move_balance: Sum Count 32 ALWAYS,
    }
    with {
        /// Balancing, by [`IdleType`] as a number.
        lb: [LbStats; 3]
    }
}

impl DomainStats {
    /// What is counted of balancing while a CPU is so.
    #[inline]
    pub fn lb(&mut self, idle: IdleType) -> &mut LbStats {
        &mut self.lb[idle as usize]
    }
}

impl Counters for DomainStats {
    fn counters() -> Vec<Counter> {
        let lb = LbStats::COUNTERS;
        [lb, lb, lb, Self::COUNTERS].concat()
    }
    fn each(&self) -> Vec<u64> {
        let mut out: Vec<u64> = self.lb.iter().flat_map(LbStats::values).collect();
        out.extend(self.values());
        out
    }
    fn set_each(&mut self, values: &[u64]) {
        let n = LbStats::COUNTERS.len();
        for (lb, values) in self.lb.iter_mut().zip(values.chunks_exact(n)) {
            if let Ok(values) = values.try_into() {
                lb.set_values(values);
            }
        }
        if let Some(Ok(values)) = values.get(3 * n..).map(TryInto::try_into) {
            self.set_values(values);
        }
    }
}
