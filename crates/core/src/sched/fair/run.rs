//! Who runs: charging, picking, preempting, yielding.
//!
//! Source: specs/sched-fair.md#charging and the sections after it (Linux 6.12).

use super::load::{GROUP, PLAIN};
use super::parts::Queue;
use super::timeline::{NONE, before};
use super::{Fair, Pick, Rules, SchedPolicy};

impl Fair {
    /// Charges a queue's running entity for the time since it was last charged.
    ///
    /// Source: specs/sched-fair.md#charging.
    #[inline]
    pub(super) fn update_curr(&mut self, q: u32) {
        let queue = &self.queues[q];
        let c = queue.curr;
        if c == NONE {
            return;
        }
        let cpu = queue.cpu;
        let now = self.rqs[cpu].clock.task;
        let entity = &mut self.entities[c];
        if now <= entity.exec_start {
            return;
        }
        let ran = now - entity.exec_start;
        entity.exec_start = now;
        entity.sum_exec += ran;
        entity.vruntime = entity.vruntime.wrapping_add(entity.load.vd(ran) as i64);
        if self.knobs.rules.is_cfs() {
            self.update_min_vruntime(q);
            self.account_runtime(q, ran);
            return;
        }
        let expired = self.update_deadline(q, c);
        self.account_runtime(q, ran);
        if self.queues[q].nr == 1 {
            return;
        }
        if expired || self.stands_back(q, c) {
            self.rqs[cpu].resched = true;
            self.clear_buddies(q, c);
        }
    }

    /// Whether the running one has lost its protection to a shorter slice and has had its share.
    fn stands_back(&self, q: u32, c: u32) -> bool {
        let entity = &self.entities[c];
        self.knobs.features.preempt_short
            && !entity.protected()
            && !self.queues[q].eligible(&self.entities, entity.vruntime)
    }

    /// Gives one that has come to its deadline the next one.
    fn update_deadline(&mut self, q: u32, e: u32) -> bool {
        let entity = &mut self.entities[e];
        if before(entity.vruntime, entity.deadline) {
            return false;
        }
        if !entity.custom_slice {
            entity.slice = self.knobs.base_slice_ns;
        }
        let vslice = entity.load.vd(u64::from(entity.slice)) as i64;
        entity.deadline = entity.vruntime.wrapping_add(vslice);
        self.queues[q].virtual_time(&self.entities);
        true
    }

    /// Nobody wants this one to run next any more, or not to.
    #[inline]
    pub(super) fn clear_buddies(&mut self, q: u32, e: u32) {
        self.clear_buddy(q, e, |queue| &mut queue.next);
        if self.knobs.rules.is_cfs() {
            self.clear_buddy(q, e, |queue| &mut queue.last);
            self.clear_buddy(q, e, |queue| &mut queue.skip);
        }
    }

    #[inline]
    fn clear_buddy(&mut self, q: u32, e: u32, buddy: fn(&mut Queue) -> &mut u32) {
        let (mut q, mut e) = (q, e);
        while *buddy(&mut self.queues[q]) == e {
            *buddy(&mut self.queues[q]) = NONE;
            e = self.queues[q].owner;
            if e == NONE {
                break;
            }
            q = self.entities[e].queue;
        }
    }

    /// This one should run next, and its groups.
    pub(super) fn set_next_buddy(&mut self, e: u32) {
        let mut e = e;
        while e != NONE {
            let entity = &self.entities[e];
            if !entity.on_rq || self.is_idle_entity(e) {
                return;
            }
            let q = entity.queue;
            self.queues[q].next = e;
            e = self.queues[q].owner;
        }
    }

    #[inline]
    pub(super) fn is_idle_entity(&self, e: u32) -> bool {
        let entity = &self.entities[e];
        match entity.my_q {
            NONE => entity.policy == SchedPolicy::Idle,
            below => self.queues[below].idle,
        }
    }

    /// Makes an entity the running one of its queue.
    #[inline]
    pub(super) fn set_next_entity(&mut self, q: u32, e: u32) {
        self.clear_buddies(q, e);
        if self.entities[e].on_rq {
            self.queues[q].remove(&mut self.nodes, &self.entities[e], e);
            self.update_load_avg(q, e, GROUP);
            let entity = &mut self.entities[e];
            entity.vlag = entity.deadline;
        }
        self.queues[q].curr = e;
        let now = self.rqs[self.queues[q].cpu].clock.task;
        let entity = &mut self.entities[e];
        entity.exec_start = now;
        entity.last_run = entity.sum_exec - entity.prev_sum_exec;
        entity.prev_sum_exec = entity.sum_exec;
    }

    /// Puts a queue's running entity back.
    #[inline]
    pub(super) fn put_prev_entity(&mut self, q: u32, e: u32) {
        if self.entities[e].on_rq {
            self.update_curr(q);
        }
        self.check_runtime(q);
        if self.entities[e].on_rq {
            if self.knobs.rules.is_cfs() {
                let entity = &mut self.entities[e];
                entity.deadline = entity.vruntime;
            }
            self.queues[q].insert(&mut self.nodes, &self.entities[e], e);
            self.update_load_avg(q, e, PLAIN);
        }
        self.queues[q].curr = NONE;
    }

    fn pick_eevdf(&self, q: u32) -> u32 {
        self.queues[q].pick_eevdf(&self.entities, &self.nodes, self.knobs.features.run_to_parity)
    }

    fn pick_next_entity(&mut self, q: u32) -> u32 {
        match self.knobs.rules {
            Rules::Eevdf => {}
            Rules::Cfs6_1 => return self.pick_cfs(q),
            Rules::Cfs4_5 | Rules::Cfs4_15 => {
                let e = self.pick_cfs(q);
                // Also of one that runs already.
                self.clear_buddies(q, e);
                return e;
            }
        }
        let queue = &self.queues[q];
        if queue.next != NONE
            && self.knobs.features.pick_buddy
            && queue.eligible(&self.entities, self.entities[queue.next].vruntime)
        {
            return queue.next;
        }
        self.pick_eevdf(q)
    }

    /// Who runs on `cpu` from `now` on; who ran is charged and put back. The mark for reschedule is cleared.
    ///
    /// Picking who runs already changes nothing of its protection. After [`Pick::LeftDelayed`] the
    /// caller picks again. After [`Pick::Idle`] a task that went to sleep stays the CPU's current
    /// one, so that balancing may bring another and pick again; then [`Fair::go_idle`].
    ///
    /// Source: specs/sched-fair.md#pick.
    pub fn pick(&mut self, cpu: usize, now: u64) -> Pick {
        let root = cpu as u32;
        self.rqs[root].clock.advance(now);
        let e = 'again: loop {
            let mut q = root;
            if self.queues[q].nr == 0 {
                self.rqs[root].resched = false;
                return Pick::Idle;
            }
            loop {
                let c = self.queues[q].curr;
                if c != NONE && self.entities[c].on_rq {
                    self.update_curr(q);
                }
                if self.check_runtime(q) {
                    continue 'again;
                }
                let e = self.pick_next_entity(q);
                if self.entities[e].delayed {
                    self.leave_delayed(e);
                    if self.entities[e].is_task() {
                        return Pick::LeftDelayed(self.entities[e].task);
                    }
                    continue 'again;
                }
                if self.entities[e].is_task() {
                    break 'again e;
                }
                q = self.entities[e].my_q;
            }
        };
        self.switch_to(root, e);
        Pick::Task(self.entities[e].task)
    }

    /// Puts back who ran as far as the one who will run is elsewhere, and sets that one.
    #[inline]
    fn switch_to(&mut self, root: u32, e: u32) {
        let rq = &mut self.rqs[root];
        rq.resched = false;
        rq.clock.get_busy();
        let prev = std::mem::replace(&mut rq.curr, e);
        if prev == e {
            return;
        }
        if prev == NONE {
            let mut at = e;
            while at != NONE {
                let q = self.entities[at].queue;
                self.set_next_entity(q, at);
                self.account_runtime(q, 0);
                at = self.queues[q].owner;
            }
        } else {
            let (mut old, mut new) = (prev, e);
            loop {
                let (old_q, new_q) = (self.entities[old].queue, self.entities[new].queue);
                if old_q == new_q {
                    self.put_prev_entity(old_q, old);
                    self.set_next_entity(new_q, new);
                    break;
                }
                let (old_depth, new_depth) = (self.queues[old_q].depth, self.queues[new_q].depth);
                if new_depth <= old_depth {
                    self.put_prev_entity(old_q, old);
                    old = self.queues[old_q].owner;
                }
                if new_depth >= old_depth {
                    self.set_next_entity(new_q, new);
                    new = self.queues[new_q].owner;
                }
            }
        }
        self.touch_list(e);
    }

    /// Another class takes the CPU: who ran goes back to its queue, or has left.
    pub fn put_prev(&mut self, cpu: usize, now: u64) {
        let rq = &mut self.rqs[cpu as u32];
        rq.clock.advance(now);
        rq.clock.get_busy();
        self.put_prev_task(cpu as u32);
    }

    pub(super) fn put_prev_task(&mut self, cpu: u32) {
        let mut e = std::mem::replace(&mut self.rqs[cpu].curr, NONE);
        while e != NONE {
            let q = self.entities[e].queue;
            self.put_prev_entity(q, e);
            e = self.queues[q].owner;
        }
    }

    /// A task that has been taken off the CPU for a change runs on.
    pub(super) fn set_next_task(&mut self, cpu: u32, e: u32) {
        let mut at = e;
        while at != NONE {
            let q = self.entities[at].queue;
            self.set_next_entity(q, at);
            self.account_runtime(q, 0);
            at = self.queues[q].owner;
        }
        self.rqs[cpu].curr = e;
        if self.entities[e].on_rq {
            self.touch_list(e);
        }
    }

    /// Nobody runs on `cpu` from `now` on. Its PELT clock jumps to the task clock.
    ///
    /// Source: specs/sched-fair.md#pelt-clock.
    pub fn go_idle(&mut self, cpu: usize, now: u64) {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        self.put_prev_task(cpu);
        let util_sum = self.queues[cpu].avg.util_sum;
        let rq = &mut self.rqs[cpu];
        rq.resched = false;
        rq.clock.go_idle(util_sum);
    }

    /// The tick on `cpu`: charges, ages averages, weighs groups. Returns whether the CPU is marked for reschedule.
    ///
    /// Source: specs/sched-fair.md#charging.
    pub fn tick(&mut self, cpu: usize, now: u64) -> bool {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        let mut e = self.rqs[cpu].curr;
        while e != NONE {
            let q = self.entities[e].queue;
            self.update_curr(q);
            self.update_load_avg(q, e, GROUP);
            self.update_group_weight(e);
            if self.queues[q].nr > 1 && self.knobs.rules.is_cfs() {
                self.check_preempt_tick(q, e);
            }
            e = self.queues[q].owner;
        }
        self.rqs[cpu].resched
    }

    /// Charges who runs on `cpu`, in its own queue.
    pub fn update(&mut self, cpu: usize, now: u64) {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        let e = self.rqs[cpu].curr;
        if e != NONE {
            self.update_curr(self.entities[e].queue);
        }
    }

    /// Whether `wakee`, which was queued on `cpu`, takes the CPU from who runs there; marks it then.
    ///
    /// An idle CPU is marked; one that another class has is not. Returns whether it is marked by this call.
    ///
    /// Source: specs/sched-fair.md#preemption.
    pub fn wakeup_preempts(&mut self, cpu: usize, wakee: u32, now: u64) -> bool {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        let p = self.entity_of(wakee);
        let curr = self.rqs[cpu].curr;
        if curr == NONE {
            let rq = &mut self.rqs[cpu];
            let idle = rq.clock.is_idle();
            return idle && !std::mem::replace(&mut rq.resched, true);
        }
        if curr == p || self.queues[self.entities[p].queue].limited.count > 0 {
            return false;
        }
        let buddies = !self.knobs.rules.is_cfs() || self.is_crowded(curr);
        if self.knobs.features.next_buddy && !self.entities[p].delayed && buddies {
            self.set_next_buddy(p);
        }
        if self.rqs[cpu].resched || !self.knobs.features.wakeup_preemption {
            return false;
        }
        if self.preempts(curr, p) {
            self.rqs[cpu].resched = true;
        }
        self.rqs[cpu].resched
    }

    fn preempts(&mut self, curr: u32, p: u32) -> bool {
        if self.knobs.rules.is_cfs() {
            return self.preempts_cfs(curr, p);
        }
        let (c, w) = self.siblings(curr, p);
        let (c_idle, w_idle) = (self.is_idle_entity(c), self.is_idle_entity(w));
        if c_idle && !w_idle {
            self.entities[c].cancel_protection();
            return true;
        }
        if c_idle != w_idle || self.entities[p].policy != SchedPolicy::Normal {
            return false;
        }
        let q = self.entities[c].queue;
        self.update_curr(q);
        if self.knobs.features.preempt_short {
            let (curr, wakee) = (&self.entities[c], &self.entities[w]);
            let queue = &self.queues[q];
            if wakee.slice < curr.slice
                && queue.eligible(&self.entities, wakee.vruntime)
                && (before(wakee.deadline, curr.deadline)
                    || !queue.eligible(&self.entities, curr.vruntime))
            {
                self.entities[c].cancel_protection();
            }
        }
        self.pick_eevdf(q) == w
    }

    /// The ancestors of two that are in one queue.
    pub(super) fn siblings(&self, a: u32, b: u32) -> (u32, u32) {
        let (mut a, mut b) = (a, b);
        loop {
            let (a_q, b_q) = (self.entities[a].queue, self.entities[b].queue);
            if a_q == b_q {
                return (a, b);
            }
            let (a_depth, b_depth) = (self.queues[a_q].depth, self.queues[b_q].depth);
            if a_depth >= b_depth {
                a = self.queues[a_q].owner;
            }
            if b_depth >= a_depth {
                b = self.queues[b_q].owner;
            }
        }
    }

    /// Who runs on `cpu` lets others run: under EEVDF, if it has had no more than its share, it gives up the rest of its slice.
    ///
    /// The caller then picks, as at any switch.
    ///
    /// Source: specs/sched-fair.md#yield.
    pub fn yield_(&mut self, cpu: usize, now: u64) {
        let cpu = cpu as u32;
        self.rqs[cpu].clock.advance(now);
        let e = self.rqs[cpu].curr;
        if e == NONE || self.queues[cpu].h_nr == 1 {
            return;
        }
        let q = self.entities[e].queue;
        self.clear_buddies(q, e);
        if self.knobs.rules.is_cfs() {
            if self.entities[e].policy != SchedPolicy::Batch {
                self.update_curr(q);
            }
            self.set_skip_buddy(e);
            return;
        }
        self.update_curr(q);
        if self.queues[q].eligible(&self.entities, self.entities[e].vruntime) {
            let entity = &mut self.entities[e];
            entity.vruntime = entity.deadline;
            self.update_deadline(q, e);
        }
    }

    /// [`Fair::yield_`] in favour of `task`; false if that is not queued where it could run.
    pub fn yield_to(&mut self, cpu: usize, task: u32, now: u64) -> bool {
        let e = self.entity_of(task);
        let entity = &self.entities[e];
        if !entity.on_rq || self.queues[entity.queue].limited.count > 0 {
            return false;
        }
        self.set_next_buddy(e);
        self.yield_(cpu, now);
        true
    }
}
