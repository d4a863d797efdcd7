//! The busiest queue, and which of its tasks go.

use super::super::domain::{Flags, Group};
use super::group::{Env, NumaClass, capacity_greater, reduced};
use super::{BLOCK, Balance, Blocks, Facts, Knobs, Migration};

crate::named! {
    /// What NUMA balancing thinks of a move.
    ///
    /// Source: specs/sched-balance.md#hot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Locality {
        /// It doesn't matter.
        #[default]
        Any => "any",
        /// The task comes nearer to its memory: it is never cache-hot.
        Better => "better",
        /// The task leaves its memory: it is cache-hot.
        Worse => "worse",
    }
}

/// What NUMA balancing knows of a task that could be moved between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaFacts {
    /// Place of the node that it would leave.
    pub src: u16,
    /// Place of the node that it would come to.
    pub dst: u16,
    /// Its preferred node.
    pub preferred: Option<u16>,
    /// The queue that it would leave has tasks that are away from their preferred node, or have none:
    /// more tasks than [`super::Figures::nr_preferred`].
    pub others_away: bool,
    /// Its faults on `src` and on `dst`, or its group's, of 1000.
    pub weights: (u64, u64),
}

/// What NUMA balancing thinks of the move of a task that has fault statistics.
///
/// * `idle` – the CPU that pulls was idle before; not one that becomes idle now.
///
/// Source: specs/sched-balance.md#hot.
pub fn locality(facts: &NumaFacts, idle: bool) -> Locality {
    if facts.src == facts.dst {
        Locality::Any
    } else if facts.preferred == Some(facts.src) {
        if facts.others_away { Locality::Worse } else { Locality::Any }
    } else if facts.preferred == Some(facts.dst) {
        Locality::Better
    } else if idle {
        Locality::Any
    } else if facts.weights.1 < facts.weights.0 {
        Locality::Worse
    } else {
        Locality::Better
    }
}

/// A task that could be pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Its group may not run, on this CPU or on the other.
    pub throttled: bool,
    /// It is a kernel thread of its CPU.
    pub per_cpu_kthread: bool,
    /// It may run on the CPU that pulls.
    pub allowed: bool,
    /// It is on its CPU.
    pub running: bool,
    /// Its policy is IDLE.
    pub idle_policy: bool,
    /// It is the next buddy of its queue.
    pub next_buddy: bool,
    /// How long ago it was charged last, in ns; long for one that has changed its CPU since.
    pub ran_ago_ns: i64,
    /// Its share of its CPU's load (`h_load`).
    pub load: u64,
    /// Its estimated utilisation.
    pub util: u64,
    /// Whether its CPU is large enough for it.
    pub fits: bool,
    /// What NUMA balancing thinks; asked for at levels that span nodes.
    pub locality: Locality,
}

crate::named! {
    /// Why a task stays, and the count of the task that rises by it.
    ///
    /// Source: specs/sched-balance.md#detach.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refusal {
        /// Its group may not run; no count.
        Throttled => "throttled",
        /// It belongs to its CPU; no count.
        PerCpuKthread => "per-CPU kthread",
        /// It may not run there: `nr_failed_migrations_affine`.
        Affine => "affine",
        /// It runs: `nr_failed_migrations_running`.
        Running => "running",
        /// It is cache-hot: `nr_failed_migrations_hot`.
        Hot => "hot",
        /// It is larger than what is out of balance; no count.
        TooMuch => "too much",
        /// The same of one that is cache-hot, which didn't hold it any more: `nr_failed_migrations_hot`.
        TooMuchAndHot => "too much and hot",
    }
}

/// What the verdict on a task depends on beside the task.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// In what the imbalance is counted.
    pub migration: Migration,
    /// How much is left of it.
    pub imbalance: i64,
    /// Failed balancings of this level in a row.
    pub failed: u32,
    /// After more than so many, cache-hot tasks go too.
    pub cache_nice_tries: u32,
    /// The level's CPUs are threads of a core, which share all caches.
    pub share_cpucapacity: bool,
    /// The CPU that pulls has tasks.
    pub dst_has_tasks: bool,
}

/// A task that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// What is left of the imbalance.
    pub left: i64,
    /// It was cache-hot and goes nevertheless.
    pub forced: bool,
}

/// Whether a task has something in its CPU's caches.
///
/// Source: specs/sched-balance.md#hot.
#[inline]
pub fn is_hot(c: &Candidate, pull: &Pull, knobs: &Knobs) -> bool {
    match c.locality {
        Locality::Better => false,
        Locality::Worse => true,
        Locality::Any if c.idle_policy || pull.share_cpucapacity => false,
        Locality::Any => {
            knobs.cache_hot_buddy && pull.dst_has_tasks && c.next_buddy
                || knobs.migration_cost_ns == -1
                || knobs.migration_cost_ns != 0 && c.ran_ago_ns < knobs.migration_cost_ns
        }
    }
}

/// Halved once for each failure, never quite to nothing.
#[inline]
const fn shr_bound(v: u64, shift: u32) -> u64 {
    v >> if shift < 63 { shift } else { 63 }
}

/// Whether a task goes, after the tests for being throttled, pinned and running.
///
/// # Errors
/// Why it stays.
///
/// Source: specs/sched-balance.md#detach.
pub fn verdict(c: &Candidate, pull: &Pull, knobs: &Knobs) -> Result<Take, Refusal> {
    let forced = is_hot(c, pull, knobs);
    if forced && pull.failed <= pull.cache_nice_tries {
        return Err(Refusal::Hot);
    }
    let too_much = if forced { Refusal::TooMuchAndHot } else { Refusal::TooMuch };
    let left = match pull.migration {
        Migration::Load => {
            let load = c.load.max(1);
            let small = knobs.lb_min && load < 16 && pull.failed == 0;
            if small || shr_bound(load, pull.failed) as i64 > pull.imbalance {
                return Err(too_much);
            }
            pull.imbalance - load as i64
        }
        Migration::Util => {
            if shr_bound(c.util, pull.failed) as i64 > pull.imbalance {
                return Err(too_much);
            }
            pull.imbalance - c.util as i64
        }
        Migration::Task => pull.imbalance - 1,
        Migration::Misfit if c.fits => return Err(too_much),
        Migration::Misfit => 0,
    };
    Ok(Take { left, forced })
}

impl Env<'_> {
    /// The queue of a group that tasks are pulled from.
    ///
    /// * `blocks` – those of [`Facts`] as they are now, where the level is one of many CPUs.
    ///
    /// Source: specs/sched-balance.md#busiest-queue.
    pub(super) fn find_src_queue(
        &mut self,
        b: &Balance,
        (f, blocks): (&Facts<'_>, Option<&Blocks>),
        group: &Group,
    ) -> Option<usize> {
        let d = self.d;
        let pct = u64::from(self.domain.imbalance_pct);
        let asym = self.domain.flags.has(Flags::ASYM_CPUCAPACITY);
        let mut busiest = None;
        let (mut most_load, mut its_capacity, mut most, mut most_tasks) = (0u64, 1u64, 0u64, 0u32);
        let members = d.members(group);
        self.scanned += members.len() as u32;
        let blocks = blocks.filter(|_| !self.masked);
        let mut at = 0;
        while let Some(&cpu) = members.get(at) {
            let cpu = usize::from(cpu);
            let has_none =
                blocks.and_then(|blocks| blocks.whole(&members[at..])).is_some_and(|b| {
                    b.h_nr_queued == 0 || b.crowded == 0 && self.needs_several(most_tasks > 0)
                });
            if has_none {
                at += BLOCK;
                continue;
            }
            at += 1;
            if !self.considers(&b.mask, cpu) {
                continue;
            }
            let c = &f.figures[cpu];
            // Most have none where many are looked at.
            let tasks = c.h_nr_queued;
            if tasks == 0 || NumaClass::of(c.nr_running, c.nr_numa, c.nr_preferred) > self.numa {
                continue;
            }
            let capacity = u64::from(b.cpus[cpu].capacity);
            let here = u64::from(b.cpus[self.dst].capacity);
            if asym && tasks == 1 && !capacity_greater(here, capacity) {
                // It would come back by being pushed to the larger CPU.
                continue;
            }
            let found = match self.migration {
                Migration::Load => {
                    let alone =
                        tasks == 1 && c.load as i64 > self.imbalance && !reduced(b, d, cpu, pct);
                    let more = u128::from(c.load) * u128::from(its_capacity)
                        > u128::from(most_load) * u128::from(capacity);
                    let found = !alone && more;
                    if found {
                        (most_load, its_capacity) = (c.load, capacity);
                    }
                    found
                }
                Migration::Util => {
                    let boosted = u64::from(c.util.max(c.runnable).min(d.original(cpu)));
                    let found = tasks > 1 && most < boosted;
                    if found {
                        most = boosted;
                    }
                    found
                }
                Migration::Task => {
                    let found = most_tasks < tasks;
                    most_tasks = most_tasks.max(tasks);
                    found
                }
                Migration::Misfit => {
                    let misfit = f.misfit.get(cpu).copied().unwrap_or(0);
                    let found = misfit > most_load;
                    most_load = most_load.max(misfit);
                    found
                }
            };
            if found {
                busiest = Some(cpu);
            }
        }
        busiest
    }

    /// Whether only a queue of several tasks can be the one that is looked for.
    ///
    /// * `found` – there has been one that has a task.
    #[inline]
    fn needs_several(&self, found: bool) -> bool {
        match self.migration {
            Migration::Util => true,
            Migration::Task => found,
            Migration::Load | Migration::Misfit => false,
        }
    }
}
