//! What the fair class is made of: entities, queues, groups, and what a CPU knows. No rule stands here
//! but those of one queue's virtual time.

use std::ops::{Index, IndexMut};

use super::timeline::{NONE, Node, Slot, Timeline, before};
use super::{Bandwidth, CpuStat, SchedPolicy};
use crate::sched::pelt::{Avg, Clock};
use crate::sched::weight::{Load, scale_down};

/// Things that are called by their place.
#[derive(Debug)]
pub(super) struct Arena<T>(pub(super) Vec<T>);

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.0[at as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.0[at as usize]
    }
}

/// A task, or a group on one CPU: something that is queued and weighs. No more lines of the host's cache than it needs.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entity {
    pub(super) vruntime: i64,
    pub(super) deadline: i64,
    /// Off the queue: how much it is behind. Of the running one: the deadline up to which it is protected.
    pub(super) vlag: i64,
    pub(super) load: Load,
    pub(super) slice: u32,
    /// The queue it belongs to.
    pub(super) queue: u32,
    /// The queue that it stands for, if it is a group.
    pub(super) my_q: u32,
    pub(super) on_rq: bool,
    /// Asleep, but still on the queue.
    pub(super) delayed: bool,
    /// `deadline` is relative to `vruntime`.
    pub(super) rel_deadline: bool,
    /// CFS: `vruntime` is relative to the floor of a queue.
    pub(super) relative: bool,
    pub(super) custom_slice: bool,
    /// Its averages are part of its queue's.
    pub(super) attached: bool,
    /// Between dequeue and enqueue on its way to another CPU.
    pub(super) moving: bool,
    /// It has changed CPU since it was last on a queue.
    pub(super) migrated: bool,
    /// Its averages have changed since `util_est` was last looked at.
    pub(super) util_changed: bool,
    pub(super) policy: SchedPolicy,
    pub(super) nice: i8,
    pub(super) exec_start: u64,
    pub(super) sum_exec: u64,
    pub(super) prev_sum_exec: u64,
    /// How long it had run when it last had the CPU before this time.
    pub(super) last_run: u64,
    pub(super) avg: Avg,
    /// Of a group: how many in it can run.
    pub(super) runnable: u32,
    pub(super) task: u32,
    pub(super) cpu: u32,
    pub(super) group: u32,
    /// Neighbours in the balancer's list.
    pub(super) newer: u32,
    pub(super) older: u32,
}

impl Entity {
    #[inline]
    pub(super) fn is_task(&self) -> bool {
        self.my_q == NONE
    }

    /// How many of it can run.
    #[inline]
    pub(super) fn runnable(&self) -> u64 {
        if self.delayed {
            0
        } else if self.is_task() {
            u64::from(self.on_rq)
        } else {
            u64::from(self.runnable)
        }
    }

    #[inline]
    pub(super) fn protected(&self) -> bool {
        self.vlag == self.deadline
    }

    pub(super) fn cancel_protection(&mut self) {
        if self.protected() {
            self.vlag = self.deadline.wrapping_add(1);
        }
    }

    /// How far it may be behind or ahead.
    #[inline]
    pub(super) fn lag(&self, v: i64, tick_ns: u64) -> i64 {
        let limit = self.load.vd((2 * u64::from(self.slice)).max(tick_ns)) as i64;
        v.wrapping_sub(self.vruntime).clamp(-limit, limit)
    }
}

/// What left a queue from elsewhere and is subtracted at its next update.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Removed {
    pub(super) nr: u32,
    pub(super) load_avg: u64,
    pub(super) util_avg: u64,
    pub(super) runnable_avg: u64,
}

/// The queue of one group on one CPU. What changes whenever a task comes or goes comes first, in four lines of the
/// host's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Queue {
    /// Sum of `w * (v - zero)` of those in `line`.
    pub(super) sum: i128,
    /// Sum of `w` of those in `line`.
    pub(super) line_weight: u64,
    /// What virtual times are taken relative to; it follows `V`.
    pub(super) zero: i64,
    /// Sum of scaled weights of all queued.
    pub(super) weight: u64,
    /// Entity that runs: not in `line`.
    pub(super) curr: u32,
    /// Entity that somebody wants to run next.
    pub(super) next: u32,
    /// The group's entity, of which this is the queue.
    pub(super) owner: u32,
    pub(super) cpu: u32,
    /// Entities queued.
    pub(super) nr: u32,
    /// Tasks queued here and below, delayed ones too.
    pub(super) h_nr: u32,
    pub(super) avg: Avg,
    pub(super) h_nr_delayed: u32,
    /// Of those: policy idle, or in a group below that is idle.
    pub(super) idle_h_nr: u32,
    pub(super) line: Timeline,
    /// Its group is idle (`cpu.idle`).
    pub(super) idle: bool,
    /// Something has come or gone that the group's entity does not know of.
    pub(super) propagate: bool,
    pub(super) on_list: bool,
    pub(super) children_on_list: u32,
    pub(super) removed: Removed,
    pub(super) limited: Limited,
    pub(super) h_load: u64,
    pub(super) h_load_at: u64,
    pub(super) prop_runnable_sum: i64,
    pub(super) group: u32,
    pub(super) depth: u32,
    /// What the group's sum of loads has of this queue.
    pub(super) contribution: u64,
    pub(super) contributed_at: u64,
    /// CFS: who comes is placed relative to it, and it never goes back.
    pub(super) min_vruntime: i64,
    /// CFS: one that was preempted, and one that has yielded.
    pub(super) last: u32,
    /// See `last`.
    pub(super) skip: u32,
    /// Up to 4.16: as `avg`, of those who are queued only.
    pub(super) runnable_load: Avg,
}

/// What a quota does to a queue.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Limited {
    /// How many of the group and those above it are throttled here.
    pub(super) count: u32,
    pub(super) enabled: bool,
    pub(super) throttled: bool,
    /// How long it has stood.
    pub(super) pelt_time: u64,
    /// The same when the queue got empty; [`Limited::STOOD`]: it stood.
    pub(super) pelt_idle: u64,
    /// Run time that is left, ns.
    pub(super) remaining: i64,
    pub(super) throttled_at: Option<u64>,
    /// PELT clock when it stopped.
    pub(super) pelt_at: u64,
}

impl Limited {
    /// The queue stood when it got empty.
    pub(super) const STOOD: u64 = u64::MAX;
}

impl Queue {
    /// The bytes that come first.
    pub(super) const HOT: usize = 4 * 64;

    pub(super) fn new(cpu: u32, group: u32, depth: u32, owner: u32) -> Self {
        Queue {
            sum: 0,
            line_weight: 0,
            zero: -(1 << 20),
            weight: 0,
            line: Timeline::default(),
            curr: NONE,
            next: NONE,
            last: NONE,
            skip: NONE,
            owner,
            cpu,
            group,
            depth,
            nr: 0,
            h_nr: 0,
            h_nr_delayed: 0,
            idle_h_nr: 0,
            idle: false,
            avg: Avg::default(),
            removed: Removed::default(),
            propagate: false,
            on_list: false,
            children_on_list: 0,
            prop_runnable_sum: 0,
            contribution: 0,
            contributed_at: 0,
            h_load: 0,
            h_load_at: u64::MAX,
            limited: Limited::default(),
            min_vruntime: -(1 << 20),
            runnable_load: Avg::default(),
        }
    }

    /// The running one, if it is on the queue.
    #[inline]
    fn counted<'e>(&self, entities: &'e Arena<Entity>) -> Option<&'e Entity> {
        if self.curr == NONE {
            return None;
        }
        Some(&entities[self.curr]).filter(|e| e.on_rq)
    }

    /// Sum of weights, and of weighted virtual times, with the running one.
    #[inline]
    pub(super) fn sums(&self, entities: &Arena<Entity>) -> (u64, i128) {
        match self.counted(entities) {
            Some(e) => (
                self.line_weight + u64::from(e.load.w),
                self.sum + i128::from(e.vruntime.wrapping_sub(self.zero)) * i128::from(e.load.w),
            ),
            None => (self.line_weight, self.sum),
        }
    }

    /// `V`, the weighted mean of virtual run times, rounded down; `zero` is moved there.
    ///
    /// Source: specs/sched-fair.md#queue.
    #[inline]
    pub(super) fn virtual_time(&mut self, entities: &Arena<Entity>) -> i64 {
        let delta = if self.line_weight == 0 {
            // One entity is its own mean.
            self.counted(entities).map_or(0, |e| e.vruntime.wrapping_sub(self.zero))
        } else {
            let (weight, sum) = self.sums(entities);
            match i64::try_from(sum) {
                Ok(sum) => sum.div_euclid(weight as i64),
                Err(_) => sum.div_euclid(i128::from(weight)) as i64,
            }
        };
        self.sum -= i128::from(self.line_weight) * i128::from(delta);
        self.zero = self.zero.wrapping_add(delta);
        self.zero
    }

    /// Whether who has run for `vruntime` has had no more than its share.
    ///
    /// Source: specs/sched-fair.md#queue.
    #[inline]
    pub(super) fn eligible(&self, entities: &Arena<Entity>, vruntime: i64) -> bool {
        let (weight, sum) = self.sums(entities);
        self.eligible_of(weight, sum, vruntime)
    }

    #[inline]
    pub(super) fn eligible_of(&self, weight: u64, sum: i128, vruntime: i64) -> bool {
        i128::from(vruntime.wrapping_sub(self.zero)) * i128::from(weight) <= sum
    }

    /// Puts an entity into the order.
    #[inline]
    pub(super) fn insert(&mut self, nodes: &mut [Node], e: &Entity, entity: u32) {
        self.sum += i128::from(e.vruntime.wrapping_sub(self.zero)) * i128::from(e.load.w);
        self.line_weight += u64::from(e.load.w);
        self.line.insert(
            nodes,
            Slot { deadline: e.deadline, vruntime: e.vruntime, slice: e.slice, entity },
        );
    }

    /// One who stays where it is in the order weighs something else.
    pub(super) fn reweigh(&mut self, vruntime: i64, old: u32, new: u32) {
        let away = i128::from(vruntime.wrapping_sub(self.zero));
        self.sum += away * (i128::from(new) - i128::from(old));
        self.line_weight = self.line_weight + u64::from(new) - u64::from(old);
    }

    /// Takes an entity out of the order.
    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut [Node], e: &Entity, entity: u32) {
        self.line.remove(nodes, entity);
        self.sum -= i128::from(e.vruntime.wrapping_sub(self.zero)) * i128::from(e.load.w);
        self.line_weight -= u64::from(e.load.w);
    }

    /// Who should run, buddies aside. The queue has somebody.
    ///
    /// Source: specs/sched-fair.md#pick.
    #[inline]
    pub(super) fn pick_eevdf(
        &self,
        entities: &Arena<Entity>,
        nodes: &[Node],
        run_to_parity: bool,
    ) -> u32 {
        let curr = self.counted(entities);
        if self.nr == 1 {
            return match curr {
                Some(_) => self.curr,
                None => self.line.head(nodes).map_or(NONE, |s| s.entity),
            };
        }
        let (weight, sum) = self.sums(entities);
        let curr = curr.filter(|e| self.eligible_of(weight, sum, e.vruntime));
        if run_to_parity && curr.is_some_and(Entity::protected) {
            return self.curr;
        }
        let best = self.line.first(nodes, |v| self.eligible_of(weight, sum, v));
        match (curr, best) {
            (Some(c), Some(b)) if !before(c.deadline, b.deadline) => b.entity,
            (None, Some(b)) => b.entity,
            (Some(_), _) => self.curr,
            // The mean is never before all: not reached.
            (None, None) => self.line.head(nodes).map_or(NONE, |s| s.entity),
        }
    }

    /// The smallest slice of those queued.
    pub(super) fn min_slice(&self, entities: &Arena<Entity>, nodes: &[Node]) -> u32 {
        let waiting = self.line.min_slice(nodes).unwrap_or(u32::MAX);
        self.counted(entities).map_or(waiting, |e| waiting.min(e.slice))
    }

    /// Weight of all queued, as averages use it.
    #[inline]
    pub(super) fn w(&self) -> u64 {
        scale_down(self.weight)
    }

    #[inline]
    pub(super) fn h_nr_runnable(&self) -> u32 {
        self.h_nr - self.h_nr_delayed
    }
}

/// A group of tasks, over all CPUs.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) parent: u32,
    pub(super) children: Vec<u32>,
    pub(super) depth: u32,
    pub(super) tasks: u32,
    pub(super) gone: bool,
    /// `cpu.idle`.
    pub(super) idle: bool,
    /// Weight among its siblings, scaled.
    pub(super) shares: u32,
    /// Sum of what its queues contribute.
    pub(super) load_avg: u64,
    /// Its queue on each CPU; made when first needed.
    pub(super) queues: Vec<u32>,
    pub(super) bandwidth: Option<Bandwidth>,
    /// What the account had, and had after its last filling, when the quota was last set or lifted.
    pub(super) lifted: (u64, u64),
    pub(super) stat: CpuStat,
}

/// What the fair class knows of a CPU. Its root queue has the CPU's place.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct RunQueue {
    pub(super) clock: Clock,
    /// Entity of the task that runs.
    pub(super) curr: u32,
    /// Most recently run first.
    pub(super) newest: u32,
    pub(super) oldest: u32,
    /// Marked for reschedule.
    pub(super) resched: bool,
    /// Queues of groups that have something to age, deepest first.
    pub(super) leaves: Vec<u32>,
}

const _: () = assert!(std::mem::offset_of!(Queue, limited) + 24 <= Queue::HOT, "four lines");

/// `a * b / c`, toward zero.
#[inline]
pub(super) fn mul_div(a: i64, b: i64, c: i64) -> i64 {
    match a.checked_mul(b) {
        Some(p) => p / c,
        None => (i128::from(a) * i128::from(b) / i128::from(c)) as i64,
    }
}
