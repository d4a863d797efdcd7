//! Averages on queues: who brings which, what groups hand up, what groups weigh.
//!
//! A queue's average is the sum of those of all who belong to it, asleep ones too, which decay there. So
//! every coming and going adds to or takes from the queue, and a group's entity above copies what its queue has
//! become (`propagate`).
//!
//! Source: specs/sched-fair.md#pelt-queues (Linux 6.12).

use super::parts::{Limited, Queue, mul_div};
use super::timeline::NONE;
use super::{Fair, Rules};
use crate::sched::pelt::{self, MIN_DIVIDER, at_least, sub_positive};
use crate::sched::weight::Load;

/// What else is done at an update.
#[derive(Clone, Copy, Default)]
pub(super) struct Update {
    /// The group hears of the change.
    pub(super) group: bool,
    /// Who is not part of the queue's averages becomes it.
    pub(super) attach: bool,
    /// Who is leaves.
    pub(super) detach: bool,
}

pub(super) const PLAIN: Update = Update { group: false, attach: false, detach: false };
pub(super) const GROUP: Update = Update { group: true, attach: false, detach: false };

impl Fair {
    /// The PELT clock of a queue: that of its CPU without the time that it was throttled.
    #[inline]
    pub(super) fn pelt_now(&self, q: u32) -> u64 {
        let queue = &self.queues[q];
        let limited = &queue.limited;
        let at = if limited.count > 0 { limited.pelt_at } else { self.rqs[queue.cpu].clock.now() };
        at.wrapping_sub(limited.pelt_time)
    }

    /// Brings an entity's averages and its queue's to now.
    ///
    /// Source: specs/sched-fair.md#pelt-inputs.
    #[inline]
    pub(super) fn update_load_avg(&mut self, q: u32, e: u32, update: Update) {
        let now = self.pelt_now(q);
        let (queue, entity) = (&mut self.queues[q], &mut self.entities[e]);
        if entity.my_q == NONE
            && entity.attached
            && !update.detach
            && queue.removed.nr == 0
            && now.wrapping_sub(queue.avg.last_update_time) < 1024
            && now.wrapping_sub(entity.avg.last_update_time) < 1024
        {
            // Both are up to date, as at all but the first of the updates of one switch.
            return;
        }
        if entity.attached
            && entity.avg.accumulate(
                now,
                u64::from(entity.on_rq),
                entity.runnable(),
                queue.curr == e,
            )
        {
            entity.avg.average(u64::from(entity.load.w));
            entity.util_changed = true;
        }
        let mut decayed = self.update_queue_avg(q, now);
        if self.entities[e].my_q != NONE {
            decayed |= self.propagate(q, e);
        }
        if update.attach && !self.entities[e].attached {
            self.attach_load(q, e);
            self.update_group_load(q);
        } else if update.detach {
            self.detach_load(q, e);
            self.update_group_load(q);
        } else if decayed && update.group {
            self.update_group_load(q);
        }
    }

    /// Ages one who is off its queue.
    fn update_blocked_entity(&mut self, e: u32, now: u64) {
        let entity = &mut self.entities[e];
        if entity.avg.accumulate(now, 0, 0, false) {
            entity.avg.average(u64::from(entity.load.w));
        }
    }

    /// Brings a queue's averages to `now`; true if they have changed.
    #[inline]
    pub(super) fn update_queue_avg(&mut self, q: u32, now: u64) -> bool {
        let queue = &mut self.queues[q];
        let mut changed = false;
        if queue.removed.nr > 0 {
            queue.subtract_removed();
            changed = true;
        }
        let (w, runnable, running) =
            (queue.w(), u64::from(queue.h_nr_runnable()), queue.curr != NONE);
        if queue.avg.accumulate(now, w, runnable, running) {
            queue.avg.average(1);
            changed = true;
        }
        if self.knobs.rules.keeps_runnable_load()
            && queue.runnable_load.accumulate(now, w, 0, false)
        {
            queue.runnable_load.average(1);
        }
        changed
    }

    fn enqueue_load(&mut self, q: u32, e: u32) {
        let entity = &self.entities[e];
        let avg = &mut self.queues[q].avg;
        avg.load_avg += entity.avg.load_avg;
        avg.load_sum += u64::from(entity.load.w) * entity.avg.load_sum;
    }

    fn dequeue_load(&mut self, q: u32, e: u32) {
        let entity = &self.entities[e];
        let avg = &mut self.queues[q].avg;
        sub_positive(&mut avg.load_avg, entity.avg.load_avg);
        sub_positive(&mut avg.load_sum, u64::from(entity.load.w) * entity.avg.load_sum);
        avg.load_sum = at_least(avg.load_sum, avg.load_avg);
    }

    /// An entity's averages become part of its queue's, which is up to date.
    ///
    /// Source: specs/sched-fair.md#pelt-migration.
    pub(super) fn attach_load(&mut self, q: u32, e: u32) {
        let to = self.queues[q].avg;
        let divider = to.divider();
        let entity = &mut self.entities[e];
        let w = u64::from(entity.load.w);
        let avg = &mut entity.avg;
        avg.last_update_time = to.last_update_time;
        avg.period_contrib = to.period_contrib;
        avg.util_sum = u64::from(avg.util_avg) * divider;
        avg.runnable_sum = u64::from(avg.runnable_avg) * divider;
        avg.load_sum = avg.load_avg * divider;
        avg.load_sum = if w < avg.load_sum { avg.load_sum / w } else { 1 };
        entity.attached = true;
        let avg = entity.avg;
        self.enqueue_load(q, e);
        let queue = &mut self.queues[q];
        queue.avg.util_avg += avg.util_avg;
        queue.avg.util_sum += avg.util_sum;
        queue.avg.runnable_avg += avg.runnable_avg;
        queue.avg.runnable_sum += avg.runnable_sum;
        queue.propagate = true;
        queue.prop_runnable_sum += avg.load_sum as i64;
    }

    /// An entity's averages leave its queue's, which is up to date.
    pub(super) fn detach_load(&mut self, q: u32, e: u32) {
        self.dequeue_load(q, e);
        let avg = self.entities[e].avg;
        let queue = &mut self.queues[q];
        let to = &mut queue.avg;
        to.util_avg = to.util_avg.saturating_sub(avg.util_avg);
        sub_positive(&mut to.util_sum, avg.util_sum);
        to.util_sum = at_least(to.util_sum, u64::from(to.util_avg));
        to.runnable_avg = to.runnable_avg.saturating_sub(avg.runnable_avg);
        sub_positive(&mut to.runnable_sum, avg.runnable_sum);
        to.runnable_sum = at_least(to.runnable_sum, u64::from(to.runnable_avg));
        queue.propagate = true;
        queue.prop_runnable_sum -= avg.load_sum as i64;
    }

    /// A sleeping task leaves its queue's averages: aged to the queue's last update, booked there as removed.
    ///
    /// Source: specs/sched-fair.md#pelt-migration.
    pub(super) fn remove_load(&mut self, e: u32) {
        let q = self.entities[e].queue;
        let at = self.queues[q].avg.last_update_time;
        self.update_blocked_entity(e, at);
        let avg = &self.entities[e].avg;
        let removed = &mut self.queues[q].removed;
        removed.nr += 1;
        removed.load_avg += avg.load_avg;
        removed.util_avg += u64::from(avg.util_avg);
        removed.runnable_avg += u64::from(avg.runnable_avg);
    }

    /// Ages a task that leaves an idle CPU by the time that this CPU's averages have not seen.
    pub(super) fn age_by_idle(&mut self, e: u32, now: u64) {
        let entity = &self.entities[e];
        let queue = &self.queues[entity.queue];
        let clock = &self.rqs[queue.cpu].clock;
        let stopped = queue.limited.pelt_idle;
        if stopped == Limited::STOOD {
            return;
        }
        if entity.avg.is_decayed() || !clock.is_idle() {
            return;
        }
        let at = clock.idle_estimate(now, queue.avg.last_update_time, stopped);
        self.update_blocked_entity(e, at);
    }

    /// A group's entity takes over what has come to or gone from its queue.
    fn propagate(&mut self, q: u32, e: u32) -> bool {
        let my_q = self.entities[e].my_q;
        if !self.queues[my_q].propagate {
            return false;
        }
        let sum = std::mem::take(&mut self.queues[my_q].prop_runnable_sum);
        self.queues[my_q].propagate = false;
        let (of, of_weight) = (self.queues[my_q].avg, self.queues[my_q].w());
        let queue = &mut self.queues[q];
        queue.propagate = true;
        queue.prop_runnable_sum += sum;

        let entity = &mut self.entities[e];
        let divider = queue.avg.divider();
        if of.util_avg != entity.avg.util_avg {
            let new = u64::from(of.util_avg) * divider;
            replace32(&mut queue.avg.util_avg, entity.avg.util_avg, of.util_avg);
            replace(&mut queue.avg.util_sum, entity.avg.util_sum, new);
            queue.avg.util_sum = at_least(queue.avg.util_sum, u64::from(queue.avg.util_avg));
            entity.avg.util_avg = of.util_avg;
            entity.avg.util_sum = new;
        }
        if of.runnable_avg != entity.avg.runnable_avg {
            let new = u64::from(of.runnable_avg) * divider;
            replace32(&mut queue.avg.runnable_avg, entity.avg.runnable_avg, of.runnable_avg);
            replace(&mut queue.avg.runnable_sum, entity.avg.runnable_sum, new);
            queue.avg.runnable_sum =
                at_least(queue.avg.runnable_sum, u64::from(queue.avg.runnable_avg));
            entity.avg.runnable_avg = of.runnable_avg;
            entity.avg.runnable_sum = new;
        }
        if sum == 0 {
            return true;
        }
        let runnable = if sum > 0 {
            (sum as u64 + entity.avg.load_sum).min(divider)
        } else {
            // All who are left are taken to be runnable alike.
            let left = of.load_sum.checked_div(of_weight).unwrap_or(0);
            left.min(entity.avg.load_sum)
        };
        // Nobody runs without being runnable.
        let runnable = runnable.max(entity.avg.util_sum >> 10);
        let w = u64::from(entity.load.w);
        let load_avg = w * runnable / divider;
        if load_avg != entity.avg.load_avg {
            replace(&mut queue.avg.load_avg, entity.avg.load_avg, load_avg);
            replace(&mut queue.avg.load_sum, w * entity.avg.load_sum, w * runnable);
            if entity.on_rq && self.knobs.rules.keeps_runnable_load() {
                let queued = &mut queue.runnable_load;
                replace(&mut queued.load_avg, entity.avg.load_avg, load_avg);
                replace(&mut queued.load_sum, w * entity.avg.load_sum, w * runnable);
            }
            queue.avg.load_sum = at_least(queue.avg.load_sum, queue.avg.load_avg);
            entity.avg.load_sum = runnable;
            entity.avg.load_avg = load_avg;
        }
        true
    }

    /// The group hears what this queue's load has become: at most once in a ms and by more than 1/64.
    ///
    /// Source: specs/sched-fair.md#groups.
    pub(super) fn update_group_load(&mut self, q: u32) {
        let queue = &mut self.queues[q];
        if queue.owner == NONE {
            return;
        }
        let now = self.rqs[queue.cpu].clock.task;
        if now.saturating_sub(queue.contributed_at) < 1_000_000 {
            return;
        }
        if queue.avg.load_avg.abs_diff(queue.contribution) > queue.contribution / 64 {
            let group = &mut self.groups[queue.group];
            group.load_avg = group.load_avg + queue.avg.load_avg - queue.contribution;
            queue.contribution = queue.avg.load_avg;
            queue.contributed_at = now;
        }
    }

    /// Weighs a group's entity by the share that its queue has in the group.
    ///
    /// Source: specs/sched-fair.md#groups.
    pub(super) fn update_group_weight(&mut self, e: u32) {
        let my_q = self.entities[e].my_q;
        if my_q == NONE {
            return;
        }
        let queue = &self.queues[my_q];
        // An empty group keeps what it had: it may be delayed.
        if queue.weight == 0 || queue.limited.count > 0 {
            return;
        }
        let group = &self.groups[queue.group];
        let load = queue.w().max(queue.avg.load_avg);
        let total = group.load_avg - queue.contribution + load;
        let share = if self.knobs.rules == Rules::Cfs4_5 {
            let total = group.load_avg - queue.contribution + queue.w();
            Fair::share_of_4_5(group.shares, queue.w(), total)
        } else {
            let share = (u64::from(group.shares) * load).checked_div(total).unwrap_or(0);
            share.min(u64::from(group.shares)).max(2) as u32
        };
        if share != self.entities[e].load.scaled {
            self.reweight(self.entities[e].queue, e, Load::of_scaled(share));
        }
    }

    /// Gives an entity another weight: its lag stays what it is in time, and so does its way to the deadline if it is queued.
    ///
    /// Source: specs/sched-fair.md#reweight.
    pub(super) fn reweight(&mut self, q: u32, e: u32, load: Load) {
        if self.knobs.rules.is_cfs() {
            self.reweight_cfs(q, e, load);
            return;
        }
        let (on_rq, is_curr) = (self.entities[e].on_rq, self.queues[q].curr == e);
        let mut v = 0;
        if on_rq {
            self.update_curr(q);
            let queue = &mut self.queues[q];
            v = queue.virtual_time(&self.entities);
            if !is_curr {
                queue.remove(&mut self.nodes, &self.entities[e], e);
            }
            queue.weight -= u64::from(self.entities[e].load.scaled);
        }
        let tick_ns = self.knobs.tick_ns;
        let entity = &mut self.entities[e];
        let (old, new) = (i64::from(entity.load.scaled), i64::from(load.scaled));
        if on_rq {
            if v != entity.vruntime {
                let lag = mul_div(entity.lag(v, tick_ns), old, new);
                entity.vruntime = v.wrapping_sub(lag);
            }
            let rest = mul_div(entity.deadline.wrapping_sub(v), old, new);
            entity.deadline = v.wrapping_add(rest);
        } else {
            entity.vlag = mul_div(entity.vlag, old, new);
        }
        self.weigh(q, e, load);
        if on_rq {
            let queue = &mut self.queues[q];
            queue.weight += u64::from(load.scaled);
            if !is_curr {
                queue.insert(&mut self.nodes, &self.entities[e], e);
            }
        }
    }

    /// The same under CFS: its virtual run time and its place in the order stay.
    ///
    /// Source: specs/sched-cfs.md#groups.
    fn reweight_cfs(&mut self, q: u32, e: u32, load: Load) {
        let (on_rq, is_curr) = (self.entities[e].on_rq, self.queues[q].curr == e);
        if on_rq {
            self.update_curr(q);
            self.sub_runnable_load(q, e);
            let (entity, queue) = (&self.entities[e], &mut self.queues[q]);
            queue.weight = queue.weight + u64::from(load.scaled) - u64::from(entity.load.scaled);
            if !is_curr {
                queue.reweigh(entity.vruntime, entity.load.w, load.w);
            }
        }
        self.weigh(q, e, load);
        if on_rq {
            self.add_runnable_load(q, e);
        }
    }

    /// An entity weighs something else from now on, in its own averages and in its queue's.
    fn weigh(&mut self, q: u32, e: u32, load: Load) {
        let attached = self.entities[e].attached;
        if attached {
            self.dequeue_load(q, e);
        }
        let entity = &mut self.entities[e];
        entity.load = load;
        if attached {
            let divider = entity.avg.divider();
            entity.avg.load_avg = u64::from(load.w) * entity.avg.load_sum / divider;
            self.enqueue_load(q, e);
        }
    }

    /// Hands up to the root what has come to or gone from a queue.
    pub(super) fn propagate_up(&mut self, q: u32) {
        if self.queues[q].limited.throttled {
            return;
        }
        self.list_leaf(q);
        let mut e = self.queues[q].owner;
        while e != NONE {
            let q = self.entities[e].queue;
            self.update_load_avg(q, e, GROUP);
            if self.queues[q].limited.throttled {
                break;
            }
            self.list_leaf(q);
            e = self.queues[q].owner;
        }
    }

    /// The queue has something to age.
    pub(super) fn list_leaf(&mut self, q: u32) {
        let queue = &mut self.queues[q];
        if queue.on_list || queue.owner == NONE || queue.limited.count > 0 {
            return;
        }
        queue.on_list = true;
        let (depth, owner) = (queue.depth, queue.owner);
        let rq = &mut self.rqs[queue.cpu];
        let at = rq.leaves.partition_point(|&o| self.queues[o].depth >= depth);
        rq.leaves.insert(at, q);
        let parent = self.entities[owner].queue;
        self.queues[parent].children_on_list += 1;
    }

    pub(super) fn unlist_leaf(&mut self, q: u32) {
        if !self.queues[q].on_list {
            return;
        }
        self.queues[q].on_list = false;
        let rq = &mut self.rqs[self.queues[q].cpu];
        rq.leaves.retain(|&o| o != q);
        let parent = self.entities[self.queues[q].owner].queue;
        self.queues[parent].children_on_list -= 1;
    }

    /// Ages all queues of a CPU, as balancing does; true while something is left to decay.
    ///
    /// Source: specs/sched-fair.md#pelt-inputs.
    pub fn update_blocked(&mut self, cpu: usize, now: u64) -> bool {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        let mut left = false;
        let mut i = 0;
        while i < self.rqs[cpu].leaves.len() {
            let q = self.rqs[cpu].leaves[i];
            if self.update_queue_avg(q, self.pelt_now(q)) {
                self.update_group_load(q);
                self.note_empty(q);
            }
            let e = self.queues[q].owner;
            let avg = &self.entities[e].avg;
            if avg.load_avg != 0 || avg.util_avg != 0 || self.queues[q].propagate {
                self.update_load_avg(self.entities[e].queue, e, GROUP);
            }
            let queue = &self.queues[q];
            if queue.weight == 0
                && queue.avg.is_decayed()
                && queue.children_on_list == 0
                && queue.contribution == 0
            {
                self.unlist_leaf(q);
            } else {
                i += 1;
            }
            left |= has_blocked(&self.queues[q].avg);
        }
        self.update_queue_avg(cpu, self.pelt_now(cpu));
        left | has_blocked(&self.queues[cpu].avg)
    }

    /// A queue that is empty remembers how long it had been throttled.
    pub(super) fn note_empty(&mut self, q: u32) {
        let queue = &mut self.queues[q];
        if queue.nr == 0 {
            let limited = &mut queue.limited;
            limited.pelt_idle = if limited.count > 0 { Limited::STOOD } else { limited.pelt_time };
        }
    }

    /// Load of a task as the whole CPU sees it: its share in its queue, that queue's in the group, and so on.
    ///
    /// * `jiffies` – tick count; shares of queues are worked out once in a tick.
    ///
    /// Source: specs/sched-fair.md#pelt-h-load.
    pub fn task_h_load(&mut self, task: u32, jiffies: u64) -> u64 {
        let e = self.entity_of(task);
        let q = self.entities[e].queue;
        self.update_h_load(q, jiffies);
        let queue = &self.queues[q];
        self.entities[e].avg.load_avg * queue.h_load / (queue.avg.load_avg + 1)
    }

    fn update_h_load(&mut self, q: u32, jiffies: u64) {
        if self.queues[q].h_load_at == jiffies {
            return;
        }
        let e = self.queues[q].owner;
        let h_load = if e == NONE {
            self.queues[q].avg.load_avg
        } else {
            let above = self.entities[e].queue;
            self.update_h_load(above, jiffies);
            let above = &self.queues[above];
            above.h_load * self.entities[e].avg.load_avg / (above.avg.load_avg + 1)
        };
        let queue = &mut self.queues[q];
        queue.h_load = h_load;
        queue.h_load_at = jiffies;
    }

    // What a CPU's estimate is made of.

    pub(super) fn util_est_enqueue(&mut self, cpu: u32, e: u32) {
        if self.knobs.features.util_est {
            self.queues[cpu].avg.util_est += self.entities[e].avg.util_est;
        }
    }

    pub(super) fn util_est_dequeue(&mut self, cpu: u32, e: u32) {
        if self.knobs.features.util_est {
            let est = &mut self.queues[cpu].avg.util_est;
            *est = est.saturating_sub(self.entities[e].avg.util_est);
        }
    }

    pub(super) fn util_est_update(&mut self, cpu: u32, e: u32) {
        let capacity = self.rqs[cpu].clock.capacity();
        let entity = &mut self.entities[e];
        if !self.knobs.features.util_est || !entity.util_changed {
            return;
        }
        let avg = &mut entity.avg;
        if let Some(est) =
            pelt::util_est_next(avg.util_est, avg.util_avg, avg.runnable_avg, capacity)
        {
            avg.util_est = est;
            entity.util_changed = false;
        }
    }
}

impl Queue {
    /// What has left from elsewhere leaves the averages.
    ///
    /// Source: specs/sched-fair.md#pelt-migration.
    #[cold]
    fn subtract_removed(&mut self) {
        let removed = std::mem::take(&mut self.removed);
        let avg = &mut self.avg;
        let divider = avg.divider();
        sub_positive(&mut avg.load_avg, removed.load_avg);
        sub_positive(&mut avg.load_sum, removed.load_avg * divider);
        avg.load_sum = at_least(avg.load_sum, avg.load_avg);
        avg.util_avg = avg.util_avg.saturating_sub(removed.util_avg as u32);
        sub_positive(&mut avg.util_sum, removed.util_avg * divider);
        avg.util_sum = at_least(avg.util_sum, u64::from(avg.util_avg));
        avg.runnable_avg = avg.runnable_avg.saturating_sub(removed.runnable_avg as u32);
        sub_positive(&mut avg.runnable_sum, removed.runnable_avg * divider);
        avg.runnable_sum = at_least(avg.runnable_sum, u64::from(avg.runnable_avg));
        self.propagate = true;
        // A negative number is shifted: rounded down.
        self.prop_runnable_sum += -((removed.runnable_avg * divider) as i64) >> 10;
    }
}

/// Adds what is new and subtracts what was, not below 0.
fn replace(sum: &mut u64, old: u64, new: u64) {
    *sum = (*sum + new).saturating_sub(old);
}

fn replace32(sum: &mut u32, old: u32, new: u32) {
    *sum = (*sum + new).saturating_sub(old);
}

fn has_blocked(avg: &pelt::Avg) -> bool {
    avg.load_avg != 0 || avg.util_avg != 0
}

const _: () = assert!(MIN_DIVIDER == 46718);
