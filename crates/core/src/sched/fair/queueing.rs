//! Coming and going: placement, enqueue, dequeue, and tasks that sleep but stay queued.
//!
//! Source: specs/sched-fair.md#placement, specs/sched-fair.md#delayed (Linux 6.12).

use super::cfs::{Come, GROUP_COMES};
use super::load::{GROUP, PLAIN, Update};
use super::parts::mul_div;
use super::timeline::NONE;
use super::{Dequeue, Dequeued, Enqueue, Enqueued, Fair, Rules, SchedPolicy};
use crate::sched::pelt;

#[derive(Clone, Copy)]
pub(super) struct Leave {
    pub(super) sleep: bool,
    /// Must not stay queued.
    pub(super) special: bool,
    /// It had stayed; now it goes.
    pub(super) delayed: bool,
    /// Its averages go with it.
    pub(super) moving: bool,
}

impl Fair {
    /// Gives an entity that comes to a queue its virtual run time and deadline.
    ///
    /// Source: specs/sched-fair.md#placement.
    fn place(&mut self, q: u32, e: u32, initial: bool) {
        let features = self.knobs.features;
        let queue = &mut self.queues[q];
        let v = queue.virtual_time(&self.entities);
        let here = if features.place_lag && queue.nr > 0 {
            queue.sums(&self.entities).0 as i64
        } else {
            0
        };
        let entity = &mut self.entities[e];
        if !entity.custom_slice {
            entity.slice = self.knobs.base_slice_ns;
        }
        let mut vslice = entity.load.vd(u64::from(entity.slice)) as i64;
        let mut lag = 0;
        if here > 0 && entity.vlag != 0 {
            // Its coming moves V; the lag is stretched so that it is right afterwards.
            lag = mul_div(entity.vlag, here + i64::from(entity.load.w), here);
        }
        entity.vruntime = v.wrapping_sub(lag);
        if features.place_rel_deadline && entity.rel_deadline {
            entity.deadline = entity.deadline.wrapping_add(entity.vruntime);
            entity.rel_deadline = false;
            return;
        }
        if features.place_deadline_initial && initial {
            vslice /= 2;
        }
        entity.deadline = entity.vruntime.wrapping_add(vslice);
    }

    /// How far an entity that is queued is behind, kept for when it has left.
    fn keep_lag(&mut self, q: u32, e: u32) {
        let v = self.queues[q].virtual_time(&self.entities);
        let entity = &mut self.entities[e];
        entity.vlag = entity.lag(v, self.knobs.tick_ns);
    }

    pub(super) fn enqueue_entity(&mut self, q: u32, e: u32, come: Come) {
        let is_curr = self.queues[q].curr == e;
        let cfs = self.knobs.rules.is_cfs();
        if cfs {
            if is_curr || self.knobs.rules == Rules::Cfs4_5 {
                self.rebase(q, e);
            }
        } else if is_curr {
            self.place(q, e, come.initial);
        }
        self.update_curr(q);
        if cfs {
            self.rebase(q, e);
        }
        self.update_load_avg(q, e, Update { attach: true, ..GROUP });
        if self.entities[e].my_q != NONE {
            self.note_runnable(e);
            self.update_group_weight(e);
        }
        if cfs {
            if come.wakes {
                self.place_cfs(q, e, false);
            }
            let entity = &mut self.entities[e];
            entity.deadline = entity.vruntime;
            self.add_runnable_load(q, e);
        } else if !is_curr {
            self.place(q, e, come.initial);
        }
        let entity = &mut self.entities[e];
        let queue = &mut self.queues[q];
        queue.weight += u64::from(entity.load.scaled);
        queue.nr += 1;
        if come.migrated {
            // Not hot in the caches of this CPU.
            entity.exec_start = 0;
        }
        if !is_curr {
            queue.insert(&mut self.nodes, entity, e);
        }
        entity.on_rq = true;
        if self.queues[q].nr == 1 {
            self.check_enqueue_throttle(q);
            self.list_leaf(q);
            self.note_throttled_work(q);
        }
    }

    /// Takes an entity off its queue; false if it stays, asleep.
    pub(super) fn dequeue_entity(&mut self, q: u32, e: u32, leave: Leave) -> bool {
        self.update_curr(q);
        self.clear_buddies(q, e);
        if !leave.delayed
            && leave.sleep
            && !leave.special
            && self.knobs.features.delay_dequeue
            && !self.knobs.rules.is_cfs()
            && !self.queues[q].eligible(&self.entities, self.entities[e].vruntime)
        {
            self.update_load_avg(q, e, PLAIN);
            self.set_delayed(e, true);
            return false;
        }
        self.update_load_avg(q, e, Update { detach: leave.moving, ..GROUP });
        if self.entities[e].my_q != NONE {
            self.note_runnable(e);
        }
        let cfs = self.knobs.rules.is_cfs();
        if cfs {
            self.sub_runnable_load(q, e);
        } else {
            self.keep_lag(q, e);
        }
        let entity = &mut self.entities[e];
        let queue = &mut self.queues[q];
        if !cfs && self.knobs.features.place_rel_deadline && !leave.sleep {
            entity.rel_deadline = true;
        }
        if queue.curr != e {
            queue.remove(&mut self.nodes, entity, e);
        }
        if entity.rel_deadline {
            entity.deadline = entity.deadline.wrapping_sub(entity.vruntime);
        }
        entity.on_rq = false;
        queue.weight -= u64::from(entity.load.scaled);
        queue.nr -= 1;
        if cfs && !leave.sleep {
            self.unbase(q, e);
        }
        self.return_runtime(q);
        self.update_group_weight(e);
        if cfs && self.floor_follows(!leave.sleep && !leave.moving) {
            self.update_min_vruntime(q);
        }
        if leave.delayed {
            self.set_delayed(e, false);
            let entity = &mut self.entities[e];
            if self.knobs.features.delay_zero {
                entity.vlag = entity.vlag.min(0);
            }
        }
        self.note_empty(q);
        true
    }

    /// What a group's entity says of how many in it can run.
    pub(super) fn note_runnable(&mut self, e: u32) {
        let my_q = self.entities[e].my_q;
        if my_q != NONE {
            self.entities[e].runnable = self.queues[my_q].h_nr_runnable();
        }
    }

    /// Marks one who sleeps but stays. Tasks are counted in all queues above them.
    fn set_delayed(&mut self, e: u32, delayed: bool) {
        self.entities[e].delayed = delayed;
        if self.entities[e].my_q != NONE {
            return;
        }
        let mut e = e;
        while e != NONE {
            let queue = &mut self.queues[self.entities[e].queue];
            if delayed {
                queue.h_nr_delayed += 1;
            } else {
                queue.h_nr_delayed -= 1;
            }
            if queue.limited.throttled {
                break;
            }
            e = queue.owner;
        }
    }

    /// One who slept but stayed is awake; true if it was placed anew.
    ///
    /// Source: specs/sched-fair.md#delayed.
    pub(super) fn requeue_delayed(&mut self, e: u32) -> bool {
        let q = self.entities[e].queue;
        let mut placed = false;
        if self.knobs.features.delay_zero {
            self.keep_lag(q, e);
            if self.entities[e].vlag > 0 {
                placed = true;
                let queue = &mut self.queues[q];
                queue.nr -= 1;
                let in_line = queue.curr != e;
                if in_line {
                    queue.remove(&mut self.nodes, &self.entities[e], e);
                }
                self.entities[e].vlag = 0;
                self.place(q, e, false);
                let queue = &mut self.queues[q];
                if in_line {
                    queue.insert(&mut self.nodes, &self.entities[e], e);
                }
                queue.nr += 1;
            }
        }
        self.update_load_avg(q, e, PLAIN);
        self.set_delayed(e, false);
        placed
    }

    /// What changes in the queues from `e` upward when tasks below came or went. Returns false at a throttled queue.
    ///
    /// * `idle` – of the tasks, those that are idle to this queue; afterwards, to the queue above: below a
    ///   group that is idle, all are.
    fn count(&mut self, q: u32, tasks: i64, delayed: i64, idle: &mut i64) -> bool {
        let queue = &mut self.queues[q];
        let add = |to: &mut u32, n: i64| *to = (i64::from(*to) + n) as u32;
        add(&mut queue.h_nr, tasks);
        add(&mut queue.h_nr_delayed, delayed);
        add(&mut queue.idle_h_nr, *idle);
        if queue.idle {
            *idle = tasks;
        }
        !queue.limited.throttled
    }

    /// The slice of a group's entity is the smallest inside.
    fn set_slice_of(&mut self, q: u32, e: u32, slice: u32) {
        let entity = &mut self.entities[e];
        if entity.slice == slice {
            return;
        }
        entity.slice = slice;
        let queue = &mut self.queues[q];
        if entity.on_rq && queue.curr != e {
            queue.line.set_slice(&mut self.nodes, e, slice);
        }
    }

    /// The queues above one whose tasks have changed.
    pub(super) fn refresh(&mut self, q: u32, e: u32) {
        self.update_load_avg(q, e, GROUP);
        self.note_runnable(e);
        self.update_group_weight(e);
    }

    /// An entity that stays queued and those above it: so many tasks, delayed and idle ones came or went
    /// below, up to a queue that is throttled.
    fn refresh_above(
        &mut self,
        mut e: u32,
        mut slice: u32,
        (tasks, delayed, mut idle): (i64, i64, i64),
    ) {
        while e != NONE {
            let q = self.entities[e].queue;
            self.refresh(q, e);
            self.set_slice_of(q, e, slice);
            if self.queues[q].owner != NONE {
                slice = self.queues[q].min_slice(&self.entities, &self.nodes);
            }
            if !self.count(q, tasks, delayed, &mut idle) {
                return;
            }
            e = self.queues[q].owner;
        }
    }

    fn enqueue_task(&mut self, e: u32, wakeup: bool, initial: bool, migrated: bool) {
        let mut idle = i64::from(self.entities[e].policy == SchedPolicy::Idle);
        let delayed = i64::from(!wakeup && self.entities[e].delayed);
        let mut come = Come { initial, migrated, wakes: wakeup };
        let mut slice = 0;
        let mut e = e;
        while e != NONE {
            if self.entities[e].on_rq {
                if self.entities[e].delayed {
                    self.requeue_delayed(e);
                }
                break;
            }
            let q = self.entities[e].queue;
            if slice != 0 {
                self.entities[e].slice = slice;
                self.entities[e].custom_slice = true;
            }
            self.enqueue_entity(q, e, come);
            if self.queues[q].owner != NONE {
                slice = self.queues[q].min_slice(&self.entities, &self.nodes);
            }
            if !self.count(q, 1, delayed, &mut idle) {
                return;
            }
            come = GROUP_COMES;
            e = self.queues[q].owner;
        }
        self.refresh_above(e, slice, (1, delayed, idle));
    }

    /// Takes an entity off, and each group above that gets empty; false if it is a task and stays, asleep.
    pub(super) fn dequeue_entities(&mut self, e: u32, leave: Leave) -> bool {
        let entity = &self.entities[e];
        let (mut tasks, mut idle, mut delayed) = (0, 0, 0);
        if entity.is_task() {
            tasks = 1;
            idle = -i64::from(entity.policy == SchedPolicy::Idle);
            delayed = i64::from(!leave.sleep && !leave.delayed && entity.delayed);
        }
        let sleeps = leave.sleep;
        let mut leave = leave;
        let mut slice = 0;
        let first = e;
        let mut e = e;
        while e != NONE {
            let q = self.entities[e].queue;
            if !self.dequeue_entity(q, e, leave) {
                if e == first && tasks == 1 {
                    return false;
                }
                slice = self.queues[q].min_slice(&self.entities, &self.nodes);
                break;
            }
            if first == e && tasks == 1 {
                self.unlink(e);
            }
            if !self.count(q, -tasks, -delayed, &mut idle) {
                return true;
            }
            let queue = &self.queues[q];
            e = queue.owner;
            if queue.weight != 0 {
                if e != NONE {
                    slice = queue.min_slice(&self.entities, &self.nodes);
                    if sleeps && queue.limited.count == 0 {
                        // A task sleeps within its slice: its group may go on.
                        self.set_next_buddy(e);
                    }
                }
                break;
            }
            leave = Leave { sleep: true, special: false, delayed: false, moving: false };
        }
        self.refresh_above(e, slice, (-tasks, -delayed, idle));
        true
    }

    /// One who slept but stayed leaves for real.
    pub(super) fn leave_delayed(&mut self, e: u32) {
        let leave = Leave { sleep: true, special: false, delayed: true, moving: false };
        self.dequeue_entities(e, leave);
    }

    /// Puts a task on the queue of its group on `cpu`. One that belongs to another CPU is migrated first.
    ///
    /// The caller then asks [`Fair::wakeup_preempts`].
    ///
    /// Source: specs/sched-fair.md#placement.
    pub fn enqueue(&mut self, cpu: usize, task: u32, now: u64, how: Enqueue) -> Enqueued {
        let e = self.entity_of(task);
        if self.entities[e].cpu != cpu as u32 {
            debug_assert!(!self.entities[e].on_rq, "a queued task is woken where it is");
            self.migrate(task, cpu, now);
        }
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        if self.entities[e].on_rq {
            debug_assert!(self.entities[e].delayed, "task {task} is queued already");
            if !self.entities[e].delayed {
                return Enqueued::RequeuedKept;
            }
            self.util_est_enqueue(cpu, e);
            return if self.requeue_delayed(e) {
                Enqueued::RequeuedPlaced
            } else {
                Enqueued::RequeuedKept
            };
        }
        if how == Enqueue::Fork {
            let avg = &self.queues[self.entities[e].queue].avg;
            let capacity = self.rqs[cpu].clock.capacity();
            let entity = &mut self.entities[e];
            let util = pelt::new_task_util(capacity, avg.util_avg, avg.load_avg, entity.load.w);
            entity.avg.util_avg = util;
            entity.avg.runnable_avg = util;
        }
        let entity = &mut self.entities[e];
        // Moved, but back to where it was: its averages come back as well.
        entity.attached &= !std::mem::take(&mut entity.moving);
        let migrated = std::mem::take(&mut entity.migrated) && how != Enqueue::Fork;
        if !entity.delayed {
            self.util_est_enqueue(cpu, e);
        }
        if how == Enqueue::Fork && self.knobs.rules.is_cfs() {
            self.place_first(e);
        }
        self.enqueue_task(e, how == Enqueue::Wakeup, how == Enqueue::Fork, migrated);
        self.link_front(e);
        Enqueued::New
    }

    /// Takes a task off its queue, which is on the CPU that it belongs to.
    ///
    /// A task that sleeps while it is ahead of its share stays queued
    /// ([`Dequeued::Delayed`]) until it is picked, woken or moved. One that stays already and sleeps or ends
    /// once more leaves for real.
    ///
    /// Source: specs/sched-fair.md#delayed.
    pub fn dequeue(&mut self, task: u32, now: u64, how: Dequeue) -> Dequeued {
        let e = self.entity_of(task);
        let entity = &self.entities[e];
        let cpu = entity.cpu;
        self.rqs[cpu].clock.advance(now);
        if !entity.on_rq {
            return Dequeued::Gone;
        }
        let was_delayed = entity.delayed;
        let leave = match how {
            Dequeue::Sleep { .. } | Dequeue::End if was_delayed => {
                self.leave_delayed(e);
                return Dequeued::Gone;
            }
            Dequeue::Sleep { special } => {
                Leave { sleep: true, special, delayed: false, moving: false }
            }
            Dequeue::End => Leave { sleep: true, special: true, delayed: false, moving: false },
            Dequeue::Move => Leave { sleep: false, special: false, delayed: false, moving: true },
            Dequeue::Change => {
                Leave { sleep: false, special: false, delayed: false, moving: false }
            }
        };
        if !was_delayed {
            self.util_est_dequeue(cpu, e);
        }
        if leave.sleep {
            self.util_est_update(cpu, e);
        }
        self.entities[e].moving = leave.moving;
        if self.dequeue_entities(e, leave) { Dequeued::Gone } else { Dequeued::Delayed }
    }

    /// A task that is on no queue belongs to CPU `to` from now on.
    ///
    /// After [`Dequeue::Move`] its averages have left already; those of a sleeping one are booked
    /// as removed on its old CPU and aged by what that CPU, if idle, has not seen.
    ///
    /// Source: specs/sched-fair.md#pelt-migration.
    pub fn migrate(&mut self, task: u32, to: usize, now: u64) {
        let e = self.entity_of(task);
        let entity = &self.entities[e];
        if entity.cpu == to as u32 {
            return;
        }
        debug_assert!(!entity.on_rq, "task {task} is queued: dequeue it to move it");
        debug_assert!(self.rqs[entity.cpu].curr != e, "task {task} is not switched out yet");
        if entity.attached {
            if !entity.moving {
                self.remove_load(e);
                self.age_by_idle(e, now);
            }
            if self.knobs.rules.is_cfs() {
                self.unbase(self.entities[e].queue, e);
            }
            self.entities[e].migrated = true;
        }
        let q = self.queue_of(self.entities[e].group, to as u32);
        let entity = &mut self.entities[e];
        entity.attached = false;
        entity.cpu = to as u32;
        entity.queue = q;
    }

    // The balancer's list: most recently run first.

    fn link_front(&mut self, e: u32) {
        let rq = &mut self.rqs[self.entities[e].cpu];
        let old = std::mem::replace(&mut rq.newest, e);
        if old == NONE {
            rq.oldest = e;
        } else {
            self.entities[old].newer = e;
        }
        let entity = &mut self.entities[e];
        entity.newer = NONE;
        entity.older = old;
    }

    fn unlink(&mut self, e: u32) {
        let entity = &self.entities[e];
        let (newer, older, cpu) = (entity.newer, entity.older, entity.cpu);
        if newer == NONE {
            self.rqs[cpu].newest = older;
        } else {
            self.entities[newer].older = older;
        }
        if older == NONE {
            self.rqs[cpu].oldest = newer;
        } else {
            self.entities[older].newer = newer;
        }
    }

    #[inline]
    pub(super) fn touch_list(&mut self, e: u32) {
        if self.rqs[self.entities[e].cpu].newest != e {
            self.unlink(e);
            self.link_front(e);
        }
    }
}
