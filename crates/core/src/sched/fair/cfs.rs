//! CFS, the fair class before EEVDF: who is behind the most runs (Linux 4.5, 4.15, 6.1).
//!
//! Those who wait stand in the order of their virtual run times. A queue has a floor, `min_vruntime`, which
//! follows the earliest of them and never goes back; who comes is placed relative to it, and who moves
//! carries its distance to it along. Nobody has a deadline: a tick asks whether who runs has had its share of
//! a period, in which each who is queued is to run once.
//!
//! Example, 8 CPUs, two tasks A and B of nice 0: the period is 24 ms, a share 11.999994 ms. A runs; at
//! 4 and 8 ms it hasn't had its share; at 12 ms it has, and the CPU is marked. So they run by turns for 12 ms:
//! `AAABBB` in ticks of 4 ms.
//!
//! Three buddies say who had better run, if that isn't too unfair: `next` (it was woken and preempts), `last` (it
//! was preempted), and who had better not: `skip` (it has yielded).
//!
//! Everything else is shared with EEVDF: queues, groups, quotas, averages. An entity in the order has its
//! virtual run time as its key where EEVDF has the deadline.
//!
//! Source: specs/sched-cfs.md.

use super::parts::Queue;
use super::timeline::{NONE, before};
use super::{Fair, Rules, SchedPolicy};
use crate::sched::weight::{self, Load, Scaling, scale_down};

/// What may be set of CFS.
///
/// ```
/// use homenode_core::sched::fair::Cfs;
/// use homenode_core::sched::weight::Scaling;
/// let of_8 = Cfs::scaled(8, Scaling::Log);
/// assert_eq!((of_8.latency_ns, of_8.nr_latency()), (24_000_000, 8));
/// ```
///
/// Source: specs/sched-cfs.md#knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cfs {
    /// `sched_latency_ns`: the period in which each who is queued runs once.
    pub latency_ns: u32,
    /// `sched_min_granularity_ns`: with many, a period is this for each of them.
    pub min_granularity_ns: u32,
    /// `sched_wakeup_granularity_ns`: how far who wakes has to be behind who runs.
    pub wakeup_granularity_ns: u32,
}

impl Cfs {
    /// The kernel's defaults on so many CPUs that are online, of which 8 count.
    ///
    /// Source: specs/sched-cfs.md#knobs.
    pub const fn scaled(online_cpus: usize, scaling: Scaling) -> Self {
        let factor = weight::scaling_factor(online_cpus, scaling);
        Self {
            latency_ns: 6_000_000 * factor,
            min_granularity_ns: 750_000 * factor,
            wakeup_granularity_ns: 1_000_000 * factor,
        }
    }

    /// From more than so many on, periods are longer than the latency.
    pub const fn nr_latency(&self) -> u32 {
        let least = if self.min_granularity_ns == 0 { 1 } else { self.min_granularity_ns };
        self.latency_ns.div_ceil(least)
    }

    /// The period of so many.
    const fn period(&self, nr: u32) -> u64 {
        if nr > self.nr_latency() {
            nr as u64 * self.min_granularity_ns as u64
        } else {
            self.latency_ns as u64
        }
    }
}

/// The shortest slice of an idle task beside others in 6.1, ns; the number of CPUs doesn't scale it.
const IDLE_MIN_GRANULARITY_NS: u64 = 750_000;

impl Fair {
    /// How long `e` may run in a period, of its queue and of those above it.
    ///
    /// Source: specs/sched-cfs.md#slice.
    pub(super) fn sched_slice(&self, q: u32, e: u32) -> u64 {
        let cfs = &self.knobs.cfs;
        let today = self.knobs.rules == Rules::Cfs6_1;
        let coming = u32::from(!self.entities[e].on_rq);
        let (mut at, mut of) = (e, q);
        let nr = if today { self.queues[self.queues[q].cpu].h_nr } else { self.queues[q].nr };
        let mut slice = cfs.period(nr + coming);
        while at != NONE {
            let (entity, queue) = (&self.entities[at], &self.queues[of]);
            let mut sum = queue.weight;
            if !entity.on_rq {
                sum += u64::from(entity.load.scaled);
            }
            slice = weight::calc_delta(slice, entity.load.w, scale_down(sum) as u32);
            at = queue.owner;
            if at != NONE {
                of = self.entities[at].queue;
            }
        }
        if today {
            let beside = self.queues[q].idle_h_nr < self.queues[q].h_nr;
            let least = if self.is_idle_entity(e) && beside {
                IDLE_MIN_GRANULARITY_NS
            } else {
                u64::from(cfs.min_granularity_ns)
            };
            slice = slice.max(least);
        }
        slice
    }

    /// The floor follows the earliest of who runs and who waits, and never goes back.
    ///
    /// Source: specs/sched-cfs.md#floor.
    #[inline]
    pub(super) fn update_min_vruntime(&mut self, q: u32) {
        let queue = &self.queues[q];
        // In 4.5 who has just gone to sleep still counts.
        let counts =
            |&c: &u32| c != NONE && (self.entities[c].on_rq || self.knobs.rules == Rules::Cfs4_5);
        let curr = Some(queue.curr).filter(counts).map(|c| self.entities[c].vruntime);
        let first = queue.line.head(&self.nodes).map(|s| s.vruntime);
        let v = match (curr, first) {
            (Some(c), Some(f)) if before(f, c) => f,
            (Some(c), _) => c,
            (None, Some(f)) => f,
            (None, None) => return,
        };
        let queue = &mut self.queues[q];
        if before(queue.min_vruntime, v) {
            queue.min_vruntime = v;
        }
    }

    /// Who carried its distance to another queue's floor along has it to this one's.
    #[inline]
    pub(super) fn rebase(&mut self, q: u32, e: u32) {
        let floor = self.queues[q].min_vruntime;
        let entity = &mut self.entities[e];
        if std::mem::take(&mut entity.relative) {
            entity.vruntime = entity.vruntime.wrapping_add(floor);
        }
    }

    /// Who goes takes its distance to the floor along.
    #[inline]
    pub(super) fn unbase(&mut self, q: u32, e: u32) {
        let floor = self.queues[q].min_vruntime;
        let entity = &mut self.entities[e];
        if !std::mem::replace(&mut entity.relative, true) {
            entity.vruntime = entity.vruntime.wrapping_sub(floor);
        }
    }

    /// Gives who has slept, or is new, a virtual run time near the floor; never an earlier one than it has.
    ///
    /// Source: specs/sched-cfs.md#placement.
    pub(super) fn place_cfs(&mut self, q: u32, e: u32, initial: bool) {
        let features = self.knobs.features;
        let mut v = self.queues[q].min_vruntime;
        if initial {
            if features.start_debit {
                let slice = self.sched_slice(q, e);
                v = v.wrapping_add(self.entities[e].load.vd(slice) as i64);
            }
        } else {
            let of_idle = self.knobs.rules == Rules::Cfs6_1 && self.is_idle_entity(e);
            let cfs = &self.knobs.cfs;
            let credit = if of_idle { cfs.min_granularity_ns } else { cfs.latency_ns };
            let credit = if features.gentle_fair_sleepers { credit / 2 } else { credit };
            v = v.wrapping_sub(i64::from(credit));
        }
        let entity = &mut self.entities[e];
        if before(entity.vruntime, v) {
            entity.vruntime = v;
        }
    }

    /// A task that another has made begins where that one is, and a slice behind the floor. To be told before its
    /// first enqueue; kernels that place at the enqueue itself (EEVDF) need it not.
    ///
    /// Source: specs/sched-cfs.md#placement.
    pub fn forked(&mut self, task: u32, parent: u32, now: u64) {
        if !self.knobs.rules.is_cfs() {
            return;
        }
        let (e, p) = (self.entity_of(task), self.entity_of(parent));
        let q = self.entities[p].queue;
        self.rqs[self.queues[q].cpu].clock.advance(now);
        let curr = self.queues[q].curr;
        if curr != NONE {
            self.update_curr(q);
            self.entities[e].vruntime = self.entities[curr].vruntime;
        }
        self.place_cfs(q, e, true);
        self.unbase(q, e);
    }

    /// A task that nobody has made, and that was on no queue, comes to one.
    pub(super) fn place_first(&mut self, e: u32) {
        if self.entities[e].relative {
            return;
        }
        let q = self.entities[e].queue;
        self.update_curr(q);
        self.entities[e].vruntime = self.queues[q].min_vruntime;
        self.place_cfs(q, e, true);
    }

    /// Whether one that leaves lets the floor follow at once.
    ///
    /// Source: specs/sched-cfs.md#floor.
    pub(super) fn floor_follows(&self, comes_back: bool) -> bool {
        match self.knobs.rules {
            Rules::Cfs4_5 => true,
            Rules::Cfs4_15 => comes_back,
            Rules::Cfs6_1 => !comes_back,
            Rules::Eevdf => false,
        }
    }

    /// Whether `a` is ahead of `b` by more than the granularity, in `b`'s virtual time.
    #[inline]
    fn is_unfair(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.entities[a], &self.entities[b]);
        let ahead = a.vruntime.wrapping_sub(b.vruntime);
        ahead > 0 && ahead > self.wakeup_gran(&b.load)
    }

    fn wakeup_gran(&self, load: &Load) -> i64 {
        load.vd(u64::from(self.knobs.cfs.wakeup_granularity_ns)) as i64
    }

    /// Who should run: the earliest, unless a buddy should. The queue has somebody.
    ///
    /// Source: specs/sched-cfs.md#pick.
    pub(super) fn pick_cfs(&self, q: u32) -> u32 {
        let queue = &self.queues[q];
        let curr = Some(queue.curr).filter(|&c| c != NONE && self.entities[c].on_rq);
        let earlier = |a: u32, b: u32| before(self.entities[a].vruntime, self.entities[b].vruntime);
        let first = queue.line.head(&self.nodes).map(|s| s.entity);
        let left = match (first, curr) {
            (Some(f), Some(c)) if earlier(c, f) => c,
            (Some(f), _) => f,
            (None, c) => c.unwrap_or(NONE),
        };
        let mut e = left;
        if queue.skip == left {
            let second = if Some(left) == curr {
                first
            } else {
                let second = queue.line.second(&self.nodes).map(|s| s.entity);
                match (second, curr) {
                    (Some(s), Some(c)) if earlier(c, s) => Some(c),
                    (Some(s), _) => Some(s),
                    (None, c) => c,
                }
            };
            if let Some(second) = second.filter(|&s| !self.is_unfair(s, left)) {
                e = second;
            }
        }
        let fair = |&b: &u32| b != NONE && !self.is_unfair(b, left);
        [queue.next, queue.last].iter().find(|b| fair(b)).copied().unwrap_or(e)
    }

    /// At a tick: who runs has had its share, or is a share ahead of who waits longest.
    ///
    /// Source: specs/sched-cfs.md#tick.
    pub(super) fn check_preempt_tick(&mut self, q: u32, c: u32) {
        let share = self.sched_slice(q, c);
        let entity = &self.entities[c];
        let ran = entity.sum_exec - entity.prev_sum_exec;
        let cpu = self.queues[q].cpu;
        if ran > share {
            self.rqs[cpu].resched = true;
            self.clear_buddies(q, c);
            return;
        }
        if ran < u64::from(self.knobs.cfs.min_granularity_ns) {
            return;
        }
        if let Some(first) = self.queues[q].line.head(&self.nodes) {
            let ahead = entity.vruntime.wrapping_sub(first.vruntime);
            if ahead > 0 && ahead as u64 > share {
                self.rqs[cpu].resched = true;
            }
        }
    }

    /// Whether so many are queued beside who runs that buddies are made.
    pub(super) fn is_crowded(&self, curr: u32) -> bool {
        self.queues[self.entities[curr].queue].nr >= self.knobs.cfs.nr_latency()
    }

    /// Whether the woken `p` takes the CPU from `curr`; buddies are made of them then.
    ///
    /// Source: specs/sched-cfs.md#preemption.
    pub(super) fn preempts_cfs(&mut self, curr: u32, p: u32) -> bool {
        let crowded = self.is_crowded(curr);
        let idle = |fair: &Fair, e: u32| fair.entities[e].policy == SchedPolicy::Idle;
        let (mut c, mut by_policy) = (curr, idle(self, curr) && !idle(self, p));
        if !by_policy {
            if self.entities[p].policy != SchedPolicy::Normal {
                return false;
            }
            let (sibling, w) = self.siblings(curr, p);
            c = sibling;
            if self.knobs.rules == Rules::Cfs6_1 {
                let (c_idle, w_idle) = (self.is_idle_entity(c), self.is_idle_entity(w));
                if w_idle && !c_idle {
                    return false;
                }
                by_policy = c_idle && !w_idle;
            }
            if !by_policy {
                self.update_curr(self.entities[c].queue);
                // More than the granularity ahead, in the wakee's virtual time.
                if !self.is_unfair(c, w) {
                    return false;
                }
                if !(self.knobs.features.next_buddy && crowded) {
                    self.set_next_buddy(w);
                }
            }
        }
        let entity = &self.entities[c];
        if self.knobs.features.last_buddy && crowded && entity.on_rq && entity.is_task() {
            self.set_last_buddy(c);
        }
        true
    }

    /// This one was preempted and had better run again soon, and its groups.
    fn set_last_buddy(&mut self, e: u32) {
        if self.is_idle_entity(e) {
            return;
        }
        self.set_buddy(e, |queue| &mut queue.last);
    }

    /// This one lets others run, and its groups.
    ///
    /// Source: specs/sched-cfs.md#yield.
    pub(super) fn set_skip_buddy(&mut self, e: u32) {
        self.set_buddy(e, |queue| &mut queue.skip);
    }

    fn set_buddy(&mut self, e: u32, buddy: fn(&mut Queue) -> &mut u32) {
        let mut e = e;
        while e != NONE {
            let q = self.entities[e].queue;
            *buddy(&mut self.queues[q]) = e;
            e = self.queues[q].owner;
        }
    }

    /// What a group's entity weighs in 4.5: by weights alone, and in whole weights.
    ///
    /// Source: specs/sched-cfs.md#groups.
    pub(super) fn share_of_4_5(shares: u32, load: u64, total: u64) -> u32 {
        let whole = u64::from(shares / weight::SCALE);
        let share = (whole * load).checked_div(total).unwrap_or(0).min(whole).max(2);
        share as u32 * weight::SCALE
    }

    // The load of those who are queued, which wake-ups up to 4.16 compare.

    /// An entity that comes to a queue brings its load.
    pub(super) fn add_runnable_load(&mut self, q: u32, e: u32) {
        if !self.knobs.rules.keeps_runnable_load() {
            return;
        }
        let entity = &self.entities[e];
        let to = &mut self.queues[q].runnable_load;
        to.load_avg += entity.avg.load_avg;
        to.load_sum += u64::from(entity.load.w) * entity.avg.load_sum;
    }

    /// One that leaves takes it along.
    pub(super) fn sub_runnable_load(&mut self, q: u32, e: u32) {
        if !self.knobs.rules.keeps_runnable_load() {
            return;
        }
        let entity = &self.entities[e];
        let (avg, sum) = (entity.avg.load_avg, u64::from(entity.load.w) * entity.avg.load_sum);
        let from = &mut self.queues[q].runnable_load;
        from.load_avg = from.load_avg.saturating_sub(avg);
        from.load_sum = from.load_sum.saturating_sub(sum);
    }

    /// Load of those who are queued on `cpu`, as it was last updated: `runnable_load_avg`, which wake-ups up to
    /// 4.16 compare. 0 under rules that don't keep it.
    ///
    /// Source: specs/sched-cfs.md#load.
    #[inline]
    pub fn runnable_load_avg(&self, cpu: usize) -> u64 {
        self.queues[cpu as u32].runnable_load.load_avg
    }

    /// `min_vruntime` of the root queue of `cpu`, under CFS.
    pub fn min_vruntime(&self, cpu: usize) -> i64 {
        self.queues[cpu as u32].min_vruntime
    }
}

/// How an entity comes to a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Come {
    /// For the first time.
    pub(super) initial: bool,
    /// From another CPU.
    pub(super) migrated: bool,
    /// From sleep; a group's entity always.
    pub(super) wakes: bool,
}

/// A group's entity.
pub(super) const GROUP_COMES: Come = Come { initial: false, migrated: false, wakes: true };
