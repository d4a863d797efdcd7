//! `cpu.max`: a group may run for so long in a period, on all CPUs together.
//!
//! The group has an account that a timer fills once a period. Its queue on a CPU takes 5 ms from there at
//! a time; one that has run out is throttled: its tasks stay on it, but it leaves the queue above, and its
//! averages stand still. The next filling pays what is owed and lets it back.
//!
//! Source: specs/sched-fair.md#bandwidth (Linux 6.12).

use super::cfs::GROUP_COMES;
use super::load::{GROUP, PLAIN};
use super::queueing::Leave;
use super::timeline::NONE;
use super::{Fair, GroupId, Quota};

/// What a queue keeps for itself when it gets empty, ns.
const MIN_RUNTIME: i64 = 1_000_000;

/// How near the next filling must be for what is given back to wait for it, ns.
const MIN_EXPIRATION: u64 = 2_000_000;

/// How long what was given back is gathered before it is handed out, ns.
const SLACK_PERIOD: u64 = 5_000_000;

/// A group's account.
#[derive(Debug)]
pub(super) struct Bandwidth {
    quota: Quota,
    /// Left in this period, ns.
    runtime: u64,
    runtime_at_refill: u64,
    /// Nobody has taken any since the last filling.
    idle: bool,
    /// When the period ends; kept while the timer does not run.
    period_end: u64,
    active: bool,
    /// When what was given back is handed out.
    slack_at: Option<u64>,
    /// Queues without run time, in the order in which they ran out.
    throttled: Vec<u32>,
}

/// The lines of `cpu.stat` that a quota adds.
///
/// Source: specs/sched-fair.md#bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Periods that have ended while somebody ran.
    pub nr_periods: u64,
    /// Of those: in which a queue was throttled.
    pub nr_throttled: u64,
    /// How long queues with tasks were throttled, ns, added up.
    pub throttled_ns: u64,
    /// Periods in which more than the quota was used.
    pub nr_bursts: u64,
    /// How much more, ns.
    pub burst_ns: u64,
}

impl Bandwidth {
    fn timer(&self) -> Option<u64> {
        let period = self.active.then_some(self.period_end);
        match (period, self.slack_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The end of the first period after `now`, and how many have ended since the timer was set.
    fn forward(&mut self, now: u64) -> u64 {
        if now < self.period_end {
            return 0;
        }
        let over = (now - self.period_end) / self.quota.period_ns + 1;
        self.period_end += over * self.quota.period_ns;
        over
    }

    fn start(&mut self, now: u64) {
        if !self.active {
            self.active = true;
            self.forward(now);
        }
    }

    fn refill(&mut self, stat: &mut CpuStat) {
        self.runtime += self.quota.quota_ns;
        if let Some(over @ 1..) = self.runtime_at_refill.checked_sub(self.runtime) {
            stat.burst_ns += over;
            stat.nr_bursts += 1;
        }
        self.runtime = self.runtime.min(self.quota.quota_ns + self.quota.burst_ns);
        self.runtime_at_refill = self.runtime;
    }

    /// A filling is near: `within` ns.
    fn ends_within(&self, now: u64, within: u64) -> bool {
        self.period_end.saturating_sub(now) < within
    }
}

impl Fair {
    /// Sets `cpu.max` of a group; `None` lifts it. The root has none.
    ///
    /// Periods and quotas of 0 are taken as 1 ns. A throttled group begins anew. What the account has left stays in
    /// it, as far as the new burst allows, beside the new quota.
    ///
    /// Source: specs/sched-fair.md#bandwidth.
    pub fn set_quota(&mut self, group: GroupId, quota: Option<Quota>, now: u64) {
        if group == GroupId::ROOT {
            return;
        }
        let queues: Vec<u32> =
            self.groups[group.0].queues.iter().copied().filter(|&q| q != NONE).collect();
        for &q in &queues {
            if self.queues[q].limited.throttled {
                self.advance_queue(q, now);
                self.unthrottle(q);
            }
        }
        let it = &mut self.groups[group.0];
        let old = it.bandwidth.take();
        if let Some(old) = &old {
            it.lifted = (old.runtime, old.runtime_at_refill);
        }
        it.bandwidth = quota.map(|quota| {
            let quota = Quota {
                quota_ns: quota.quota_ns.max(1),
                period_ns: quota.period_ns.max(1),
                burst_ns: quota.burst_ns,
            };
            let mut new = Bandwidth {
                quota,
                runtime: it.lifted.0,
                runtime_at_refill: it.lifted.1,
                idle: false,
                // All groups' periods end at multiples of their length.
                period_end: 0,
                active: false,
                slack_at: None,
                throttled: Vec::new(),
            };
            new.refill(&mut it.stat);
            if old.is_some_and(|o| o.active) {
                new.start(now);
            }
            new
        });
        for &q in &queues {
            let limited = &mut self.queues[q].limited;
            limited.enabled = quota.is_some();
            limited.remaining = 1;
        }
        self.find_timer();
    }

    /// `cpu.max` of a group; `None` where it has none.
    pub fn quota(&self, group: GroupId) -> Option<Quota> {
        self.groups[group.0].bandwidth.as_ref().map(|b| b.quota)
    }

    /// What `cpu.stat` says of a group's quota; zeros where there never was one.
    pub fn cpu_stat(&self, group: GroupId) -> CpuStat {
        self.groups[group.0].stat
    }

    /// The next time for [`Fair::refill`], and whose. `None` while no group that has a quota runs.
    #[inline]
    pub fn next_timer(&self) -> Option<(u64, GroupId)> {
        self.timer
    }

    fn find_timer(&mut self) {
        self.timer = (0_u32..)
            .zip(&self.groups.0)
            .filter_map(|(g, group)| Some((group.bandwidth.as_ref()?.timer()?, GroupId(g))))
            .min_by_key(|&(at, g)| (at, g.0));
    }

    fn timer_set(&mut self, group: u32) {
        let at = self.groups[group].bandwidth.as_ref().and_then(Bandwidth::timer);
        if let Some(at) = at {
            if self.timer.is_none_or(|(first, g)| (at, group) < (first, g.0)) {
                self.timer = Some((at, GroupId(group)));
            }
        }
    }

    /// A group's timer fires at `now`: its account is filled, throttled queues come back. Idle CPUs that
    /// got work are marked for reschedule and pushed to `woken`.
    ///
    /// Early or for a group without a timer it does nothing.
    ///
    /// Source: specs/sched-fair.md#bandwidth.
    pub fn refill(&mut self, group: GroupId, now: u64, woken: &mut Vec<usize>) {
        let g = group.0;
        if let Some(b) = self.groups[g].bandwidth.as_mut() {
            if b.slack_at.is_some_and(|at| at <= now) {
                b.slack_at = None;
                let slice = self.knobs.bandwidth_slice_ns;
                if !b.ends_within(now, MIN_EXPIRATION) && b.runtime > slice {
                    self.distribute(g, now, woken);
                }
            }
        }
        if let Some(b) = self.groups[g].bandwidth.as_mut() {
            let over = if b.active { b.forward(now) } else { 0 };
            if over > 0 {
                self.period_ends(g, over, now, woken);
            }
        }
        self.find_timer();
    }

    fn period_ends(&mut self, g: u32, over: u64, now: u64, woken: &mut Vec<usize>) {
        let group = &mut self.groups[g];
        let Some(b) = group.bandwidth.as_mut() else { return };
        group.stat.nr_periods += over;
        b.refill(&mut group.stat);
        if b.throttled.is_empty() {
            if b.idle {
                b.active = false;
            }
            b.idle = true;
            return;
        }
        group.stat.nr_throttled += over;
        self.distribute(g, now, woken);
        if let Some(b) = self.groups[g].bandwidth.as_mut() {
            b.idle = false;
        }
    }

    /// Pays what throttled queues owe, in the order in which they were throttled, while there is something to pay with.
    fn distribute(&mut self, g: u32, now: u64, woken: &mut Vec<usize>) {
        let Some(b) = self.groups[g].bandwidth.as_mut() else { return };
        let mut waiting = std::mem::take(&mut b.throttled);
        let mut free = 0;
        for &q in &waiting {
            if b.runtime == 0 {
                break;
            }
            let remaining = &mut self.queues[q].limited.remaining;
            let pay = ((1 - *remaining) as u64).min(b.runtime);
            b.runtime -= pay;
            *remaining += pay as i64;
            if *remaining <= 0 {
                break;
            }
            free += 1;
        }
        let back: Vec<u32> = waiting.drain(..free).collect();
        b.throttled = waiting;
        for q in back {
            self.advance_queue(q, now);
            self.unthrottle(q);
            let cpu = self.queues[q].cpu;
            let rq = &mut self.rqs[cpu];
            if rq.clock.is_idle() && self.queues[cpu].nr > 0 {
                rq.resched = true;
                woken.push(cpu as usize);
            }
        }
    }

    fn advance_queue(&mut self, q: u32, now: u64) {
        let cpu = self.queues[q].cpu;
        self.rqs[cpu].clock.advance(now);
    }

    /// Takes run time from the group's account until the queue has `target`; false if it has none then.
    fn assign_runtime(&mut self, q: u32, target: u64) -> bool {
        let queue = &mut self.queues[q];
        let group = queue.group;
        let now = self.rqs[queue.cpu].clock.task;
        let want = (target as i64 - queue.limited.remaining) as u64;
        let Some(b) = self.groups[group].bandwidth.as_mut() else {
            queue.limited.remaining += want as i64;
            return queue.limited.remaining > 0;
        };
        let was_active = b.active;
        b.start(now);
        if b.runtime > 0 {
            let amount = b.runtime.min(want);
            b.runtime -= amount;
            b.idle = false;
            queue.limited.remaining += amount as i64;
        }
        let enough = queue.limited.remaining > 0;
        if !was_active {
            self.timer_set(group);
        }
        enough
    }

    /// Charges the queue's own account.
    #[inline]
    pub(super) fn account_runtime(&mut self, q: u32, ran: u64) {
        let limited = &mut self.queues[q].limited;
        if !limited.enabled {
            return;
        }
        limited.remaining -= ran as i64;
        if limited.remaining > 0 || limited.throttled {
            return;
        }
        let slice = self.knobs.bandwidth_slice_ns;
        let queue = &self.queues[q];
        let (runs, cpu) = (queue.curr != NONE, queue.cpu);
        if !self.assign_runtime(q, slice) && runs {
            self.rqs[cpu].resched = true;
        }
    }

    /// Throttles a queue that has no run time left; true if it is.
    #[inline]
    pub(super) fn check_runtime(&mut self, q: u32) -> bool {
        let limited = &self.queues[q].limited;
        if !limited.enabled || limited.remaining > 0 {
            return false;
        }
        limited.throttled || self.throttle(q)
    }

    /// A group that wakes up must not run before it has run time.
    #[inline]
    pub(super) fn check_enqueue_throttle(&mut self, q: u32) {
        let queue = &self.queues[q];
        if !queue.limited.enabled || queue.curr != NONE || queue.limited.throttled {
            return;
        }
        self.account_runtime(q, 0);
        if self.queues[q].limited.remaining <= 0 {
            self.throttle(q);
        }
    }

    /// Throttled time counts from when there is somebody who waits.
    #[inline]
    pub(super) fn note_throttled_work(&mut self, q: u32) {
        let queue = &mut self.queues[q];
        let limited = &mut queue.limited;
        if limited.throttled && limited.throttled_at.is_none() {
            limited.throttled_at = Some(self.rqs[queue.cpu].clock.task);
        }
    }

    /// A queue that has become empty gives back all but 1 ms.
    #[inline]
    pub(super) fn return_runtime(&mut self, q: u32) {
        let queue = &mut self.queues[q];
        if !queue.limited.enabled || queue.nr > 0 {
            return;
        }
        let slack = queue.limited.remaining - MIN_RUNTIME;
        if slack <= 0 {
            return;
        }
        queue.limited.remaining -= slack;
        let group = queue.group;
        let now = self.rqs[queue.cpu].clock.task;
        let Some(b) = self.groups[group].bandwidth.as_mut() else { return };
        b.runtime += slack as u64;
        if b.runtime > self.knobs.bandwidth_slice_ns
            && !b.throttled.is_empty()
            && !b.ends_within(now, SLACK_PERIOD + MIN_EXPIRATION)
            && b.slack_at.is_none()
        {
            b.slack_at = Some(now + SLACK_PERIOD);
            self.timer_set(group);
        }
    }

    /// A group and all below it, on one CPU.
    fn queues_below(&self, q: u32) -> Vec<u32> {
        let cpu = self.queues[q].cpu as usize;
        let mut below = vec![];
        let mut groups = vec![self.queues[q].group];
        while let Some(g) = groups.pop() {
            let q = self.groups[g].queues[cpu];
            if q != NONE {
                below.push(q);
            }
            groups.extend(&self.groups[g].children);
        }
        below
    }

    fn throttle(&mut self, q: u32) -> bool {
        if self.assign_runtime(q, 1) {
            return false;
        }
        let group = self.queues[q].group;
        if let Some(b) = self.groups[group].bandwidth.as_mut() {
            b.throttled.push(q);
        }
        let cpu = self.queues[q].cpu;
        let (pelt, now) = (self.rqs[cpu].clock.now(), self.rqs[cpu].clock.task);
        for below in self.queues_below(q) {
            if self.queues[below].limited.count == 0 {
                self.queues[below].limited.pelt_at = pelt;
                self.unlist_leaf(below);
            }
            self.queues[below].limited.count += 1;
        }
        let queue = &self.queues[q];
        let (tasks, delayed, mut idle) = (queue.h_nr, queue.h_nr_delayed, queue.idle_h_nr);
        let mut e = queue.owner;
        let mut leaving = true;
        while e != NONE && self.entities[e].on_rq {
            let above = self.entities[e].queue;
            if self.queues[self.entities[e].my_q].idle {
                idle = tasks;
            }
            if leaving {
                let leave = Leave {
                    sleep: true,
                    special: true,
                    delayed: self.entities[e].delayed,
                    moving: false,
                };
                self.dequeue_entity(above, e, leave);
                leaving = self.queues[above].weight == 0;
            } else {
                self.update_load_avg(above, e, PLAIN);
                self.note_runnable(e);
            }
            let queue = &mut self.queues[above];
            queue.h_nr -= tasks;
            queue.h_nr_delayed -= delayed;
            queue.idle_h_nr -= idle;
            e = queue.owner;
        }
        let queue = &mut self.queues[q];
        queue.limited.throttled = true;
        if queue.nr > 0 {
            queue.limited.throttled_at = Some(now);
        }
        true
    }

    fn unthrottle(&mut self, q: u32) {
        let cpu = self.queues[q].cpu;
        let (pelt, now) = (self.rqs[cpu].clock.now(), self.rqs[cpu].clock.task);
        let queue = &mut self.queues[q];
        queue.limited.throttled = false;
        let group = queue.group;
        if let Some(at) = queue.limited.throttled_at.take() {
            self.groups[group].stat.throttled_ns += now.saturating_sub(at);
        }
        for below in self.queues_below(q) {
            let queue = &mut self.queues[below];
            queue.limited.count -= 1;
            if queue.limited.count == 0 {
                let stood = pelt.wrapping_sub(queue.limited.pelt_at);
                queue.limited.pelt_time = queue.limited.pelt_time.wrapping_add(stood);
                self.list_leaf(below);
            }
        }
        let queue = &self.queues[q];
        if queue.weight == 0 {
            return;
        }
        let (tasks, delayed, mut idle) = (queue.h_nr, queue.h_nr_delayed, queue.idle_h_nr);
        let mut e = queue.owner;
        let mut coming = true;
        while e != NONE {
            let above = self.entities[e].queue;
            if self.queues[self.entities[e].my_q].idle {
                idle = tasks;
            }
            if coming && self.entities[e].delayed {
                let leave = Leave { sleep: true, special: false, delayed: true, moving: false };
                self.dequeue_entity(above, e, leave);
            } else if coming && self.entities[e].on_rq {
                coming = false;
            }
            if coming {
                self.enqueue_entity(above, e, GROUP_COMES);
            } else {
                self.update_load_avg(above, e, GROUP);
                self.note_runnable(e);
            }
            let queue = &mut self.queues[above];
            queue.h_nr += tasks;
            queue.h_nr_delayed += delayed;
            queue.idle_h_nr += idle;
            if queue.limited.throttled {
                break;
            }
            e = queue.owner;
        }
    }
}
