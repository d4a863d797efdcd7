//! Load balancing: who pulls tasks, from where, how many, and which.
//!
//! A CPU balances level by level up its stack of domains ([`super::domain`]): at a tick when a level is
//! due, when it goes idle, or for CPUs that sleep without a tick. At each level
//!
//! 1. one CPU of the own group is *elected* ([`elected`]); the others stop here;
//! 2. groups are summed up and classified, and the *busiest* one is compared with the own ([`group`]);
//! 3. that says how much is out of balance, in load, utilisation or tasks;
//! 4. the busiest queue of that group gives tasks from its cold end until that much has moved ([`pull`]).
//!
//! Worked example: four idle CPUs, of which CPU 2 gets three tasks. CPU 0, the first idle one, finds its
//! own group {0} with spare capacity and {2} overloaded with three tasks: half of the difference of
//! three, one task, is to move; the task that ran longest ago goes.
//!
//! [`Balance`] holds what changes. It asks run queues through [`Queues`]; whoever implements that
//! owns tasks, clocks and statistics. Time comes as ticks (`now_j`), or as ns of the CPU's clock.
//!
//! Source: specs/sched-balance.md (Linux 6.12; no asymmetric packing, no energy model).

mod blocks;

pub mod group;

pub mod pull;

pub mod interval;

mod level;

mod periodic;

mod nohz;

pub mod place;

#[cfg(test)]
mod tests;

use crate::units::HZ;

use super::domain::Domains;
pub use blocks::Blocks;
use blocks::{BLOCK, Sum};
pub use group::{GroupStats, GroupType, NumaClass};
pub use level::{Pushed, elected};
pub use nohz::Nohz;
pub use periodic::NewlyIdle;
pub use pull::{Candidate, Locality, Refusal};

pub use super::stats::{IdleType, Migration};

/// What balancing sees of a CPU. The array of them is the simulator's, by CPU place, and is as
/// current as each queue's last update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Figures {
    /// The fair class's `load_avg`, sleepers' share included; weights as of nice 0 = 1024.
    pub load: u64,
    /// Utilisation, of 1024: the larger of `util_avg` and the estimate, at most the CPU's capacity.
    pub util: u32,
    /// `runnable_avg`, of 1024 for one task; above it where tasks wait.
    pub runnable: u32,
    /// Tasks of all classes that run or wait, delayed ones too; not the stopper that pushes a task.
    pub nr_running: u32,
    /// Those of the fair class, at all depths of groups, delayed ones too.
    pub h_nr_queued: u32,
    /// Tasks with a preferred node.
    pub nr_numa: u32,
    /// Tasks on their preferred node.
    pub nr_preferred: u32,
}

/// What balancing sees of all CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// By CPU place; as long as the machine has CPUs.
    pub figures: &'a [Figures],
    /// A bitmap: the idle task is current, nothing is queued, no wake-up is pending.
    pub idle: &'a [u64],
    /// Load of a task that its CPU's capacity is too small for, 0 for none; by CPU place. May be empty
    /// where all CPUs are equal.
    pub misfit: &'a [u64],
}

impl Facts<'_> {
    /// Whether a CPU is idle.
    #[inline]
    pub fn idle(&self, cpu: usize) -> bool {
        self.idle[cpu / 64] >> (cpu % 64) & 1 != 0
    }
    /// Whether all other threads of its core are idle.
    #[inline]
    pub fn core_idle(&self, d: &Domains, cpu: usize) -> bool {
        d.siblings(cpu).iter().all(|&s| usize::from(s) == cpu || self.idle(usize::from(s)))
    }
    #[inline]
    fn misfit(&self, cpu: usize) -> u64 {
        self.misfit.get(cpu).copied().unwrap_or(0)
    }
}

/// What a balancing of one level did. All counts go to the domain's line in `/proc/schedstat`, in the
/// columns of its [`IdleType`], where `lb_count` rises by one for each.
///
/// Source: specs/sched-balance.md#counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tasks moved; 0 where an active balance was begun.
    pub moved: u32,
    /// The CPU was not elected: it goes no level higher.
    pub stop: bool,
    /// `lb_balanced`: nothing to do, or not this CPU's business, or everything is pinned.
    pub balanced: bool,
    /// `lb_failed`: there was an imbalance and nothing moved.
    pub failed: bool,
    /// `lb_nobusyg`: no group is busier.
    pub nobusyg: bool,
    /// `lb_nobusyq`: no queue in the busiest group has what could be moved.
    pub nobusyq: bool,
    /// `lb_imbalance`, by [`Migration`]; versions before 17 print the sum.
    pub imbalance: [u64; 4],
    /// `lb_gained`: tasks taken off the busiest queue.
    pub gained: u32,
    /// `lb_hot_gained`: those of them that were cache-hot.
    pub hot_gained: u32,
    /// The queue whose running task is to be pushed here by its CPU's stopper.
    pub active: Option<usize>,
    /// CPUs that were looked at: what the balancing costs grows with them.
    pub scanned: u32,
    /// How many CPUs of this one's last-level cache a wake-up may look at from now on, where that was found
    /// ([`Llc::nr_idle_scan`]).
    pub idle_scan: Option<u32>,
}

/// Run queues, tasks and clocks, as balancing asks for them and changes them.
///
/// After `detach` and `attach` what [`Queues::facts`] shows has changed accordingly.
pub trait Queues {
    /// What is seen of all CPUs now.
    fn facts(&self) -> Facts<'_>;
    /// Brings what [`Self::blocks`] tells up to date. Asked only at levels of many CPUs.
    fn sum_up(&mut self) {}
    /// The sums of all blocks as [`Self::facts`] showed them when they were last summed up; `None`: nobody keeps them,
    /// and each CPU is looked at.
    fn blocks(&self) -> Option<&Blocks> {
        None
    }
    /// Capacity that interrupts and higher classes leave to the fair class, of 1024. 0 counts as 1.
    fn capacity_left(&self, cpu: usize) -> u32;
    /// Charges a CPU's running task, before its queue is looked into.
    fn update(&mut self, cpu: usize);
    /// Ages a CPU's averages, those of sleepers too. Whether anything is left that can age.
    fn update_blocked(&mut self, cpu: usize) -> bool;

    /// The task at the cold end of a CPU's list of fair tasks: those that ran come to the other end.
    fn coldest(&self, cpu: usize) -> Option<u32>;
    /// The next one towards the hot end.
    fn warmer(&self, cpu: usize, task: u32) -> Option<u32>;
    /// Moves a refused task to the hot end.
    fn to_hot_end(&mut self, cpu: usize, task: u32);
    /// What there is to know of a task that could move. `numa`: the level spans nodes, so that
    /// [`Candidate::locality`] matters.
    fn candidate(&mut self, task: u32, from: usize, to: usize, numa: bool) -> Candidate;
    /// Whether a task may run on a CPU.
    fn allowed(&self, task: u32, cpu: usize) -> bool;
    /// Whether what runs on `cpu`, of whatever class, may run on `to`.
    fn current_allowed(&self, cpu: usize, to: usize) -> bool;
    /// Takes a task off its queue and list; it belongs to `to` from now on.
    fn detach(&mut self, task: u32, from: usize, to: usize);
    /// Puts a detached task on a queue, with the test for preemption.
    fn attach(&mut self, task: u32, to: usize);

    /// Whether a wake-up waits in a CPU's wake list.
    fn pending(&self, cpu: usize) -> bool;
    /// Whether a CPU runs tasks of the policy IDLE only.
    fn sched_idle(&self, cpu: usize) -> bool;
    /// Whether a CPU is marked for reschedule.
    fn need_resched(&self, cpu: usize) -> bool;

    /// The time in ns on a CPU; after `scanned` CPUs were looked at since it was asked before, for
    /// whoever lets that take time.
    fn clock(&mut self, cpu: usize, scanned: u32) -> u64;
    /// A random number below 1024.
    fn roll(&mut self, cpu: usize) -> u32;

    /// A task was looked at and left: counts of the task.
    fn refused(&mut self, task: u32, why: Refusal);
    /// A task was taken though it was cache-hot: `nr_forced_migrations`.
    fn forced(&mut self, task: u32);
    /// A level was balanced: counts of the domain.
    fn balanced(&mut self, cpu: usize, level: usize, idle: IdleType, outcome: &Outcome);
    /// Wakes the stopper of `from`, which calls [`Balance::active_push`].
    fn push(&mut self, from: usize, to: usize);
}

/// Settings that balancing knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// `migration_cost_ns`: a task that ran more recently is cache-hot. -1: always, 0: never.
    pub migration_cost_ns: i64,
    /// `nr_migrate`: tasks of a queue that are looked at.
    pub nr_migrate: u32,
    /// CACHE_HOT_BUDDY: the next buddy is cache-hot.
    pub cache_hot_buddy: bool,
    /// LB_MIN: tasks of a load below 16 stay at first.
    pub lb_min: bool,
    /// SIS_UTIL: balancing says how many CPUs a wake-up may look at.
    pub sis_util: bool,
    /// NI_RANDOM: a CPU that goes idle balances as often as it has helped.
    pub newidle_random: bool,
    /// The kernel can be preempted: a CPU that goes idle takes one task at most.
    pub preemption: bool,
}

impl Default for Knobs {
    /// Those of Debian's 6.12.
    fn default() -> Self {
        Self {
            migration_cost_ns: 500_000,
            nr_migrate: 32,
            cache_hot_buddy: true,
            lb_min: false,
            sis_util: true,
            newidle_random: true,
            preemption: true,
        }
    }
}

/// What balancing keeps for a level of a CPU's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// When it was balanced last, in ticks.
    pub last_balance: u64,
    /// Time between balancings of an idle CPU, in ms.
    pub balance_interval: u32,
    /// Balancings in a row that moved nothing though there was an imbalance.
    pub nr_balance_failed: u32,
    /// The most that balancing on going idle has taken, in ns; decays.
    pub max_newidle_lb_cost: u64,
    /// When that rose or decayed last, in ticks.
    pub last_decay_max_lb_cost: u64,
    /// Times of going idle, up to 1024.
    pub newidle_call: u32,
    /// How many of them brought a task.
    pub newidle_success: u32,
    /// Of 1024, how many brought one the last time that it was reckoned.
    pub newidle_ratio: u32,
}

/// What balancing keeps for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct CpuState {
    /// How long the CPU is idle on average, in ns.
    pub avg_idle: u64,
    /// When it ran out of tasks, in ns of its clock; 0: it has tasks.
    pub idle_stamp: u64,
    /// The most that balancing on going idle has taken in all levels, in ns.
    pub max_idle_balance_cost: u64,
    /// The tick from which a level may be due.
    pub next_balance: u64,
    /// Capacity left to the fair class, as of its last periodic balancing, of 1024.
    pub capacity: u32,
    /// Where its stopper is to push a task.
    push_to: Option<u16>,
    /// Its tick is stopped, and balancing knows.
    tick_stopped: bool,
    /// Its LLC counts it as not busy: since the domains were built it went to sleep without a tick.
    llc_idle: bool,
    /// Its averages still age.
    has_blocked_load: bool,
    /// What it was kicked for.
    kick: u8,
    /// The tick at which its averages were aged last.
    last_blocked_update: u64,
}

/// What balancing keeps for a group, shared by equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Sum of its CPUs' capacities.
    pub capacity: u64,
    /// The smallest of them.
    pub min: u64,
    /// The largest of them.
    pub max: u64,
    /// The tick from which a CPU that goes idle sums it anew.
    next_update: u64,
    /// A level below could not balance since tasks are pinned.
    pub imbalance: bool,
}

/// What balancing keeps for a last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Llc {
    /// CPUs whose tick runs.
    pub nr_busy: u32,
    /// How many CPUs a wake-up may look at (SIS_UTIL). 0 until the first balancing.
    pub nr_idle_scan: u32,
}

/// All that balancing keeps, for the domains that it was made with.
#[derive(Clone, Debug)]
pub struct Balance {
    /// Settings.
    pub knobs: Knobs,
    /// By [`Domains::slot`].
    pub levels: Vec<Level>,
    /// By CPU place.
    pub cpus: Vec<CpuState>,
    /// By [`super::domain::Group::capacity`].
    pub groups: Vec<Capacity>,
    /// By [`Domains::llc`].
    pub llcs: Vec<Llc>,
    /// Some CPU had more than one task when the top level was summed up.
    pub overloaded: bool,
    /// A balancing of a level that only one CPU may balance at a time is under way elsewhere.
    pub serializing: bool,
    /// CPUs that sleep without a tick.
    pub nohz: Nohz,
    /// CPUs that have less than their full capacity left.
    nr_reduced: u32,
    /// The CPUs that a balancing still considers, where it has excluded some.
    mask: Vec<u64>,
    detached: Vec<u32>,
}

impl Balance {
    /// The state after boot, or after a CPU came or went: the kernel keeps what belongs to a CPU and
    /// forgets levels and groups; see [`Self::rebuilt`].
    ///
    /// `now_j` is the tick.
    pub fn new(d: &Domains, knobs: Knobs, now_j: u64) -> Self {
        let cost = knobs.migration_cost_ns.max(0) as u64;
        let cpu = |cpu| CpuState {
            avg_idle: 2 * cost,
            idle_stamp: 0,
            max_idle_balance_cost: cost,
            next_balance: now_j,
            capacity: d.original(cpu),
            push_to: None,
            tick_stopped: false,
            llc_idle: false,
            has_blocked_load: false,
            kick: 0,
            last_blocked_update: now_j,
        };
        let mut b = Self {
            knobs,
            levels: Vec::new(),
            cpus: (0..d.nr_cpus()).map(cpu).collect(),
            groups: Vec::new(),
            llcs: Vec::new(),
            overloaded: false,
            serializing: false,
            nohz: Nohz::new(d.nr_cpus(), now_j),
            nr_reduced: 0,
            mask: Vec::new(),
            detached: Vec::new(),
        };
        b.rebuilt(d, now_j);
        b
    }

    /// Begins anew with the domains `d` of the same machine, and keeps what belongs to CPUs.
    pub fn rebuilt(&mut self, d: &Domains, now_j: u64) {
        self.levels.clear();
        for cpu in 0..d.nr_cpus() {
            for level in 0..d.levels(cpu) {
                self.levels.push(Level {
                    last_balance: now_j,
                    balance_interval: d.at(cpu, level).min_interval(),
                    nr_balance_failed: 0,
                    max_newidle_lb_cost: 0,
                    last_decay_max_lb_cost: now_j,
                    newidle_call: 512,
                    newidle_success: 256,
                    newidle_ratio: 512,
                });
            }
        }
        let none = Capacity { capacity: 0, min: 0, max: 0, next_update: now_j, imbalance: false };
        self.groups = vec![none; d.nr_capacities()];
        self.llcs = (0..d.nr_llcs())
            .map(|llc| Llc { nr_busy: d.llc_span(llc).weight(), nr_idle_scan: 0 })
            .collect();
        for cpu in 0..d.nr_cpus() {
            for level in 0..d.levels(cpu) {
                for group in d.groups(cpu, level) {
                    let state = &mut self.groups[group.capacity as usize];
                    if state.capacity == 0 {
                        let of = d
                            .members(group)
                            .iter()
                            .map(|&c| u64::from(self.cpus[usize::from(c)].capacity));
                        state.capacity = of.clone().sum();
                        state.min = of.clone().min().unwrap_or(0);
                        state.max = of.max().unwrap_or(0);
                    }
                }
            }
            let state = &mut self.cpus[cpu];
            state.push_to = None;
            state.llc_idle = false;
        }
        self.mask = vec![0; d.nr_cpus().div_ceil(64)];
    }

    /// Sums up the capacity of a CPU's own group at a level.
    ///
    /// Source: specs/sched-balance.md#capacity.
    fn update_capacity(
        &mut self,
        d: &Domains,
        q: &impl Queues,
        cpu: usize,
        level: usize,
        now_j: u64,
    ) {
        let ms = self.levels[d.slot(cpu, level)].balance_interval;
        let next_update =
            now_j + interval::jiffies(ms).clamp(1, interval::max_interval(d.nr_online()));
        let group = d.local(cpu, level);
        let (mut capacity, mut min, mut max) = (0, u64::MAX, 0);
        let mut add = |sum: u64, least: u64, most: u64| {
            capacity += sum;
            min = min.min(least);
            max = max.max(most);
        };
        if level == 0 {
            let left = q.capacity_left(cpu).max(1);
            let before = std::mem::replace(&mut self.cpus[cpu].capacity, left);
            let full = d.original(cpu);
            self.nr_reduced += u32::from(left < full);
            self.nr_reduced -= u32::from(before < full);
            add(left.into(), left.into(), left.into());
        } else if d.at(cpu, level - 1).flags.has(super::domain::Flags::OVERLAP) {
            for &member in d.members(group) {
                let left = u64::from(self.cpus[usize::from(member)].capacity);
                add(left, left, left);
            }
        } else {
            for child in d.groups(cpu, level - 1) {
                let c = self.groups[child.capacity as usize];
                add(c.capacity, c.min, c.max);
            }
        }
        let state = &mut self.groups[group.capacity as usize];
        (state.capacity, state.min, state.max, state.next_update) =
            (capacity, min, max, next_update);
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.levels.capacity() * size_of::<Level>()
            + self.cpus.capacity() * size_of::<CpuState>()
            + self.groups.capacity() * size_of::<Capacity>()
            + self.llcs.capacity() * size_of::<Llc>()
            + self.mask.capacity() * size_of::<u64>()
            + self.nohz.bytes()
    }
}

/// A minute, in ticks.
const MINUTE: u64 = 60 * HZ;
