//! The executive: whose turn it is, and how tasks wake, block and pay.
//!
//! What a task does is private or an act. Private is what only the task can notice:
//! accesses to pages that are there, computing. It runs ahead of the others by up to a
//! quantum; computing to its very end, since it can be cut anywhere and nobody has to ask it before. An act is what others can see: a fault, a system call, a daemon's step, going to
//! sleep, waking somebody. Acts and events are done in the order of their times; of one
//! time events come first, then CPUs in rising number.
//!
//! ```text
//!         now                        quantum
//!  CPU 0   ├─private──private──private──┤            runs ahead
//!  CPU 1   ├─private──┤act                           waits at its act's time
//!  CPU 2   ├─private──private──┊─ ─ ─ ─ ┤            cut: CPU 1's act wakes somebody here
//! ```
//!
//! What ran ahead is provisional until its CPU has the next turn. If an act reaches the CPU
//! before (`cut`), the program goes back and runs again to the time of the act, so nobody is
//! woken late.
//!
//! Source: docs/decisions/0014-time-and-tasks.md.

use crate::cpus::Near;
use crate::kernel::TICK;
use crate::kernel::flush::Flush;
use crate::load::WINDOW;
use crate::program::Program;
use crate::sched::{Stop, Waiting, Waker, Woken, ns};
use crate::simulation::{Out, Simulation};
use crate::table::{prefetch_at, prefetch_value};
use crate::tasks::{Kind, On, Run, Why};
use crate::timeline::Event;
use crate::vmstat::Item;
use crate::watch::{By, Leaves};
use homenode_core::costs::Cost;
use homenode_core::sched::fair::Dequeue;

impl Simulation {
    /// Runs until all programs have ended or the duration is over.
    pub fn run(&mut self) {
        self.run_until(self.duration.unwrap_or(u64::MAX));
    }

    /// Runs until all programs have ended or virtual time has reached `stop`.
    pub fn run_until(&mut self, stop: u64) {
        while !self.idle() && self.now() < stop && !self.speaks {
            let limit = self.timeline.next().min(stop);
            match self.cpus.furthest_behind() {
                Some((clock, cpu)) if clock < limit => self.turn(cpu, clock, stop),
                _ if self.timeline.next() <= stop => self.happen(),
                _ => self.timeline.reach(stop),
            }
            self.follow_quotas();
            let now = self.now();
            if let Some(watch) = &mut self.kernel.watch {
                watch.time(now);
            }
        }
        while self.timeline.next() <= self.now() {
            self.happen();
        }
        // homenode thinks for a moment: what runs ahead may still be cut by its orders.
        if !self.speaks {
            self.settle_all();
        }
    }

    // ── Turns ──────────────────────────────────────────────────────────────────

    /// The CPU that is furthest behind goes on, for as long as it is.
    fn turn(&mut self, cpu: usize, clock: u64, stop: u64) {
        self.timeline.reach(clock);
        self.turn_of = cpu;
        self.turns += 1;
        self.cpus.begin_turn(cpu);
        self.pays_as(cpu);
        self.fetch_next(cpu);
        self.have_turn(cpu, stop);
        self.cpus.end_turn();
    }
    #[inline]
    fn have_turn(&mut self, cpu: usize, stop: u64) {
        loop {
            self.cpus.note_turn(self.now());
            self.settle(cpu);
            let limit = self.timeline.next().min(stop);
            if std::mem::take(&mut self.cpus[cpu].in_act) && self.is_in_act(cpu) {
                if let Some(clock) = self.calls_ahead(cpu, limit) {
                    self.cpus.reach(cpu, clock);
                    if clock >= limit || !self.is_first(cpu, clock) {
                        return;
                    }
                    self.timeline.reach(clock);
                    continue;
                }
                self.cpus[cpu].before_act = true;
            }
            // Where the CPU has been marked at this very moment, it may be another's turn.
            self.cpus[cpu].before_act &= !self.sched.marked(cpu);
            let begun = match self.cpus[cpu].before_act {
                true => self.act(cpu, limit),
                false => None,
            };
            let limit = self.timeline.next().min(stop);
            let Some(clock) = begun.or_else(|| self.go_on(cpu, limit)) else { return };
            self.follow_quotas();
            let limit = self.timeline.next().min(stop);
            self.cpus.reach(cpu, clock);
            if clock >= limit || self.speaks || !self.is_first(cpu, clock) {
                return;
            }
            self.timeline.reach(clock);
        }
    }
    /// Whether the CPU that has its turn, and comes so far, is still furthest behind.
    #[inline]
    fn is_first(&self, cpu: usize, clock: u64) -> bool {
        self.cpus.others_behind(cpu).is_none_or(|other| (clock, cpu as u32) < other)
    }
    /// The current task, which is in a call, does this and the next ones ahead, if they are certain to disturb
    /// nobody; its CPU's clock then.
    #[inline]
    fn calls_ahead(&mut self, cpu: usize, limit: u64) -> Option<u64> {
        let seen = self.agent.is_some() || self.pmu.is_some() || self.one_act_a_turn;
        if seen || self.sched.marked(cpu) {
            return None;
        }
        let id = self.cpus[cpu].current()?;
        let others = self.cpus.others_clock(cpu);
        let until = limit.min(others.saturating_add(self.quantum)).max(self.now() + 1);
        let clock = self.with(id, |program, sim| program.calls_ahead(sim, id, until))?;
        let here = &mut self.cpus[cpu];
        (here.ran_ahead, here.by_calls, here.far) = (true, true, true);
        (here.before_act, here.in_act) = (false, true);
        if let Some(watch) = &mut self.kernel.watch {
            let prices = self.prices.of(cpu);
            watch.acted(prices[Cost::PipeWrite].max(prices[Cost::PipeRead]));
        }
        Some(clock)
    }
    /// What tasks have done ahead at a channel, and comes later than now, is taken back; the rest has come.
    pub(crate) fn cut_at(&mut self, channel: u32) {
        let mut places = self.channels.ahead_at(channel);
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            places &= places - 1;
            for cpu in (place..self.cpus.len()).step_by(64) {
                let here = &self.cpus[cpu];
                let (true, true, Some(id)) = (here.ran_ahead, here.by_calls, here.current()) else {
                    continue;
                };
                if let Some(clock) = self.with(id, |program, sim| program.back_at(sim, id, channel))
                {
                    self.cpus[cpu].ran_ahead = clock > self.tasks[id].clock;
                    self.cpus.reach(cpu, clock);
                }
            }
        }
    }
    /// Has what the CPU after this one begins with fetched meanwhile, and, where nothing of it is near, what the
    /// one after that does: a turn is too short for one thing that says where the other lies.
    #[inline]
    fn fetch_next(&mut self, cpu: usize) {
        if let Some((_, next)) = self.cpus.others_behind(cpu) {
            if next as usize != self.fetched {
                self.fetch(next as usize);
            } else {
                self.sched.idle.fetch_further(next as usize);
                let Near { task, ops, .. } = self.cpus.near(next as usize);
                if let (0, Some(Some(program))) = (ops, self.programs.get(task as usize)) {
                    program.fetch_further();
                }
                if let Some(task) = self.sched.q.fair.waits_first(next as usize) {
                    self.fetch_follower(task as usize);
                }
            }
        }
        self.fetched = usize::MAX;
        let next = if self.cpus.are_many() { self.cpus.next_but_one() } else { None };
        if let Some(cpu) = next {
            self.fetch(cpu);
            self.fetched = cpu;
        }
    }
    /// Has what a CPU's turn begins with fetched; whose turn that is, as far as is known.
    #[inline]
    fn fetch(&self, cpu: usize) -> usize {
        let Near { task, ops, program } = self.cpus.fetch(cpu);
        let task = task as usize;
        prefetch_value((&raw const self.tasks[task]).addr(), 2 * 64);
        if ops != 0 {
            prefetch_value(ops, 5 * 64);
            prefetch_value(program, 6 * 64);
            prefetch_at(&raw const self.programs[task]);
            prefetch_at(self.kernel.running.as_ptr().wrapping_add(cpu));
            prefetch_at(self.sched.q.fair.mark_address(cpu) as *const u8);
            self.tallies[task].fetch();
        } else if self.cpus.are_many() {
            // It does steps: it may be about to wait.
            prefetch_at(self.kernel.running.as_ptr().wrapping_add(cpu));
            self.sched.q.fetch(task);
            self.sched.fetch_cpu(cpu);
            prefetch_value(program, 5 * 64);
            prefetch_at(&raw const self.programs[task]);
        }
        task
    }
    /// Has fetched what is known of a task, beside its program.
    #[inline]
    fn fetch_task(&self, id: usize) {
        prefetch_value((&raw const self.tasks[id]).addr(), 2 * 64);
        prefetch_at(&raw const self.kernel.numa[id].node);
        self.sched.q.fetch(id);
    }
    /// Has fetched what is touched of a task that may run next on a CPU where another has its turn.
    #[inline]
    fn fetch_follower(&self, id: usize) {
        self.fetch_task(id);
        prefetch_at(self.last_cpu.as_ptr().wrapping_add(id));
        if let Some(program) = &self.programs[id] {
            program.fetch();
        }
    }
    /// Has what waking a task begins with fetched: where there are thousands of them, nothing of one is in the
    /// host's caches when its time comes.
    #[inline]
    fn fetch_sleeper(&self, id: usize) {
        self.fetch_task(id);
        // Where it is most likely to go. The task itself is not here yet to be asked.
        if let Some(&cpu) = self.last_cpu.get(id) {
            let Near { task: runs, program, .. } = self.cpus.fetch(cpu as usize);
            self.sched.q.fetch_running(runs as usize);
            self.sched.fetch_cpu(cpu as usize);
            // Who runs there may be cut.
            prefetch_value((&raw const self.tasks[runs as usize]).addr(), 64);
            prefetch_value(program, 5 * 64);
        }
        if let Some(program) = &self.programs[id] {
            program.fetch();
        }
    }
    /// The same for one of many that are woken together, on a machine of so many CPUs that it is of use.
    #[inline]
    pub(crate) fn fetch_woken(&self, id: usize) {
        if self.cpus.may_be_many() {
            self.fetch_sleeper(id);
        }
    }
    /// Has the pages fetched that the CPU after this one goes to first.
    #[inline]
    fn fetch_pages(&self, cpu: usize) {
        let Some((_, next)) = self.cpus.others_behind(cpu) else { return };
        let Near { task, ops, .. } = self.cpus.near(next as usize);
        if ops == 0 {
            return;
        }
        if let Some(program) = &self.programs[task as usize] {
            program.fetch_pages(&self.kernel.memory.words);
        }
    }
    /// Whether the act that the current task has begun is to be done now, and nothing has come between:
    /// then nobody needs to ask its program what it runs ahead.
    #[inline]
    fn is_in_act(&self, cpu: usize) -> bool {
        let Some(id) = self.cpus[cpu].current() else { return false };
        let task = &self.tasks[id];
        task.clock == self.now() && task.run == Run::Runnable && task.leaves_to.is_none()
    }
    /// What the current task waits to do, if its time has come. If it has begun a call after that, ahead of time, its
    /// CPU's clock then.
    fn act(&mut self, cpu: usize, limit: u64) -> Option<u64> {
        let id = self.cpus[cpu].current()?;
        let task = &self.tasks[id];
        if task.clock > self.now() || task.run != Run::Runnable {
            return None;
        }
        self.cpus[cpu].before_act = false;
        let others = self.cpus.others_clock(cpu);
        let until = limit.min(others).max(self.now() + 1);
        let (in_act, begun) = self.with(id, |program, sim| {
            program.act(sim, id, until);
            sim.pay_for_flushes(id);
            let in_act = program.is_in_act();
            let may = !in_act && sim.may_begin_ahead(cpu, id);
            (in_act, if may { program.begin_ahead(sim, id) } else { None })
        });
        let runs = self.cpus[cpu].current() == Some(id);
        self.cpus[cpu].in_act = in_act && runs;
        let clock = self.tasks[id].clock;
        if let Some(watch) = &mut self.kernel.watch {
            watch.acted(clock - self.timeline.now());
            watch.acted(begun.map_or(0, |begun| begun - clock));
        }
        self.heed(clock);
        if begun.is_some() {
            let here = &mut self.cpus[cpu];
            (here.ran_ahead, here.by_calls, here.far) = (true, true, true);
            (here.in_act, here.began) = (true, clock);
            self.note_begun(cpu);
        }
        begun
    }
    /// Whether a task that has done an act goes on with the next thing when that is over, for all that is known now.
    #[inline]
    fn may_begin_ahead(&self, cpu: usize, id: usize) -> bool {
        let task = &self.tasks[id];
        let seen = self.agent.is_some() || self.pmu.is_some() || self.one_act_a_turn;
        task.clock > self.now()
            && task.run == Run::Runnable
            && task.leaves_to.is_none()
            && !seen
            && self.cpus[cpu].current() == Some(id)
            && !self.sched.marked(cpu)
            && !self.calls()
    }
    /// Who runs on a CPU now, and how far; its clock then. `None`: it is idle.
    fn go_on(&mut self, cpu: usize, limit: u64) -> Option<u64> {
        let now = self.now();
        loop {
            let id = self.cpus[cpu].current()?;
            let task = &self.tasks[id];
            if task.clock > now {
                return Some(task.clock);
            }
            let run = task.run;
            self.catch_up(id);
            if run != Run::Runnable {
                self.leave(cpu, id);
                continue;
            }
            if let Some(to) = self.tasks[id].leaves_to.take() {
                if self.go_over(cpu, id, to) {
                    continue;
                }
                self.has_left(cpu, id);
            }
            if self.sched.marked(cpu) {
                self.reschedule(cpu, id);
                continue;
            }
            if limit <= now {
                return Some(now);
            }
            let number = self.cpus[cpu].number.index();
            if self.kernel.running[number].is_none_or(|r| r.0 != id) {
                self.kernel.running[number] = Some((id, self.kernel.numa[id].pid));
                let space = self.tasks[id].space;
                if let Some(ran) = self.kernel.spaces_ran.get_mut(space) {
                    *ran = u64::MAX;
                }
            }
            let others = self.cpus.others_clock(cpu);
            let until = limit.min(others.saturating_add(self.quantum)).max(now + 1);
            // Before that nobody else does anything, unless an act of its own calls somebody.
            let seen = self.agent.is_some() || self.pmu.is_some() || self.one_act_a_turn;
            self.own = if seen { 0 } else { limit.min(others) };
            let (ran, ops, program) = self.with(id, |program, sim| {
                let ran = program.ahead(sim, id, until);
                let address = std::ptr::from_ref(program).addr();
                (ran, program.next_ops(), address)
            });
            self.cpus.set_near(cpu, Near { task: id as u32, ops, program });
            self.fetch_pages(cpu);
            let acted = self.tasks[id].clock;
            let here = &mut self.cpus[cpu];
            here.ran_ahead = ran.clock > acted;
            (here.far, here.by_calls) = (ran.far, false);
            here.before_act = ran.act;
            if acted > now && self.calls() {
                self.heed(acted);
            }
            return Some(ran.clock);
        }
    }
    /// A task that has its CPU, but has not come as far as now, has had it until now: what it ran
    /// ahead was cut, and then it could not come so far again, since pages have changed meanwhile.
    pub(crate) fn catch_up(&mut self, id: usize) {
        let behind = self.now().saturating_sub(self.tasks[id].clock);
        if behind > 0 {
            self.charge(id, behind, Why::User);
        }
    }
    /// Whether a task that has its turn, and has changed nothing for others, goes on with
    /// its next act at this very moment.
    pub(crate) fn goes_on_now(&self, id: usize) -> bool {
        let task = &self.tasks[id];
        task.clock == self.now() && task.leaves_to.is_none() && !self.sched.marked(task.cpu)
    }

    // ── Who runs ───────────────────────────────────────────────────────────────

    /// A CPU that has been marked looks for who runs next: its task, or another.
    fn reschedule(&mut self, cpu: usize, id: usize) {
        self.sched.at(self.now());
        let (next, looked) = self.sched.next(cpu);
        if next == Some(id) {
            let owed = self.sched.q.counters.owed();
            self.pay(id, owed);
            return self.take_note(cpu);
        }
        self.sched.q.put_back(id, cpu);
        self.tell_runtime(id);
        match next {
            Some(next) => {
                let switch = self.price(cpu, Cost::ContextSwitch);
                self.start(cpu, next, self.now() + looked * 1000, switch);
            }
            // Its group has used up its quota.
            None => {
                let from = self.now() + self.sched.q.counters.owed();
                self.rests(cpu, from);
            }
        }
        self.take_note(cpu);
    }
    /// A task runs on a CPU from a time on, after what it takes to get there.
    fn start(&mut self, cpu: usize, id: usize, from: u64, cost: u64) {
        self.stops(cpu);
        self.sched.q.begins(id, cpu);
        // What leaving an idle state takes is time of that state.
        let since = if self.sched.idle.is_modelled() { from } else { self.now() };
        let was_idle = self.cpus[cpu].current().is_none();
        self.cpus.run(cpu, id, since);
        self.sched.wasted.waits(id, None, &self.sched.q.sets);
        self.count_wasted();
        if was_idle {
            self.heed_siblings(cpu);
            self.heed_clocks();
        }
        self.note_cpu(id, cpu);
        let now = self.now();
        let task = &mut self.tasks[id];
        task.clock = task.clock.max(from);
        if let Some(watch) = &mut self.kernel.watch {
            watch.runs(cpu, id, now, task.clock, task.ran);
        }
        let owed = self.sched.q.counters.owed();
        self.pay(id, cost + owed);
        self.refill(id);
        self.cpus.reach(cpu, self.tasks[id].clock);
    }
    /// The task of a CPU does not run there any more: it waits on a queue, or sleeps.
    fn stops(&mut self, cpu: usize) {
        let Some(id) = self.cpus[cpu].current() else { return };
        let now = self.now();
        let task = &self.tasks[id];
        let waits = if task.on_queue { self.waits_for(id) } else { None };
        if let Some(watch) = &mut self.kernel.watch {
            watch.stops(cpu, id, now, task.clock, task.ran, waits);
        }
        self.sched.wasted.waits(id, waits, &self.sched.q.sets);
    }
    /// The set of CPUs that a task waits for that is on a queue, unless its group may be throttled.
    fn waits_for(&self, id: usize) -> Option<u32> {
        (!self.sched.q.has_quota(id)).then_some(self.sched.q.tasks[id].set)
    }
    /// A CPU has nothing to do from a time on.
    fn rests(&mut self, cpu: usize, from: u64) {
        self.stops(cpu);
        if let Some(watch) = &mut self.kernel.watch {
            watch.rests(cpu, from);
        }
        self.cpus.rest(cpu, from);
        self.heed_siblings(cpu);
        self.heed_clocks();
        self.sched.goes_idle(cpu);
        self.enter_idle(cpu, from);
        self.sched.stop_tick(cpu, false);
        self.count_wasted();
    }
    /// What a task may use has changed, or that of a group above it: whoever waits, waits for that.
    pub(crate) fn waits_elsewhere(&mut self, id: usize) {
        if self.tasks[id].on_queue && self.cpus[self.tasks[id].cpu].current() != Some(id) {
            self.waits(id, true);
        }
    }
    /// A task waits on a queue from now on, or not.
    pub(crate) fn waits(&mut self, id: usize, is: bool) {
        let now = self.now();
        let waits = if is { self.waits_for(id) } else { None };
        if let Some(watch) = &mut self.kernel.watch {
            watch.queued(id, waits, now);
        }
        self.sched.wasted.waits(id, waits, &self.sched.q.sets);
        self.count_wasted();
    }
    /// Who waits and who is idle has changed.
    pub(crate) fn count_wasted(&mut self) {
        let now = self.now();
        let (busy, nr_idle) = self.cpus.busy_words();
        let (out, nr_out) = self.called.out_words();
        self.sched.wasted.from(now, &self.sched.q.sets, (busy, out), nr_idle - nr_out);
    }
    /// A CPU has become busy, or idle: who is on its core computes at another speed from now on.
    ///
    /// Source: specs/workloads.md#speed.
    #[inline]
    fn heed_siblings(&mut self, cpu: usize) {
        if self.cpus.sibling(cpu, 0).is_some() {
            self.change_speeds(cpu);
        }
    }
    fn change_speeds(&mut self, cpu: usize) {
        if let Some(pace) = self.cpus.other_pace(cpu) {
            self.cpus.set_pace(cpu, pace);
        }
        let mut number = 0;
        while let Some(sibling) = self.cpus.sibling(cpu, number) {
            number += 1;
            if let Some(pace) = self.cpus.other_pace(sibling) {
                // What it has computed until now stands, the rest is done at the other speed.
                self.cut(sibling, self.now());
                self.settle(sibling);
                self.cpus.set_pace(sibling, pace);
            }
        }
    }
    /// A task's CPU, as everybody knows it.
    pub(crate) fn note_cpu(&mut self, id: usize, cpu: usize) {
        self.tasks[id].cpu = cpu;
        if self.cpus.may_be_many() {
            if self.last_cpu.len() <= id {
                self.last_cpu.resize(id + 1, 0);
            }
            self.last_cpu[id] = cpu as u32;
        }
        let node = self.cpus[cpu].node;
        if self.kernel.numa[id].node != node {
            self.kernel.numa_moved(id, node);
        }
    }
    /// A CPU whose task has left looks for the next, which begins at a time; or it is idle. When it has switched.
    fn next(&mut self, cpu: usize, from: u64) -> u64 {
        let (next, looked) = self.sched.next(cpu);
        let switched = match next {
            Some(next) => {
                let switch = self.price(cpu, Cost::ContextSwitch);
                let from = from + looked * 1000;
                self.start(cpu, next, from, switch);
                from + switch
            }
            None => {
                // Switching to the idle task takes no time of its own.
                let owed = self.sched.q.counters.owed();
                self.rests(cpu, from + owed);
                from
            }
        };
        self.take_note(cpu);
        switched
    }
    /// A CPU chooses what it does without a task.
    fn enter_idle(&mut self, cpu: usize, from: u64) {
        if !self.sched.idle.is_modelled() {
            return;
        }
        let (timeline, tasks) = (&self.timeline, &self.tasks);
        let holds = |id: usize, time| timeline.time_of(tasks[id].timer) == Some(time);
        let next = self.sched.idle.next_timer(cpu, from, holds);
        self.sched.idle.enter(cpu, from, next);
    }
    /// An idle CPU has a task on its queue, put there by a CPU: it leaves its idle state and runs
    /// it.
    fn rouse(&mut self, cpu: usize, by: usize, late: u64) {
        if self.called.out(cpu).is_some() {
            // It has been called already, and looks at its queue when it is there.
            return;
        }
        // What was done there last may last beyond now.
        let now = (self.now() + late).max(self.cpus[cpu].clock());
        let (rest, booked, switch) = self.idle_exit(cpu, by, now);
        self.come_out(cpu, Out { at: now + rest, booked, switch });
    }
    /// A CPU that has left its idle state runs who is on its queue.
    pub(crate) fn come_out(&mut self, cpu: usize, out: Out) {
        let Out { at, booked, switch } = out;
        self.sched.at(at);
        // It is the idle task that calls schedule here.
        self.sched.q.counters.schedules(cpu);
        let Some(id) = self.sched.q.pick(cpu) else {
            // Nobody there may run after all.
            if self.sched.idle.is_modelled() {
                self.sched.idle.stay_on(cpu, at);
            }
            let now = self.now();
            if let Some(watch) = &mut self.kernel.watch {
                watch.comes_out(cpu, false, now);
            }
            return self.count_wasted();
        };
        self.start(cpu, id, at, switch);
        self.charge(id, booked, Why::System);
        self.cpus.reach(cpu, self.tasks[id].clock);
        self.sched.at(self.now());
    }
    /// A CPU's queue has grown by what another has done, or it itself: who is idle begins, who is
    /// marked stops as soon as it can.
    pub(crate) fn grown(&mut self, cpu: usize, by: usize) {
        self.grown_after(cpu, by, 0);
    }
    /// The same, where who is idle hears of it so much later.
    fn grown_after(&mut self, cpu: usize, by: usize, late: u64) {
        if self.cpus[cpu].current().is_none() {
            self.rouse(cpu, by, late);
        } else if self.sched.marked(cpu) {
            self.cut(cpu, self.now());
            // Who has been sent for already is not sent for again.
            if std::mem::take(&mut self.sched.q.newly_marked) && by != cpu {
                self.send_for(cpu);
            }
        }
    }
    /// A busy CPU is sent an interrupt, since another has marked it.
    ///
    /// Source: specs/idle.md#wake.
    fn send_for(&mut self, cpu: usize) {
        let pays = |&id: &usize| self.tasks[id].kind != Kind::Replayed;
        if self.cpus[cpu].current().filter(pays).is_some() {
            self.settle(cpu);
            self.hold_up(cpu, self.kernel.prices[Cost::Ipi]);
        }
    }
    /// What balancing by a CPU has done is known to everybody.
    fn take_note(&mut self, by: usize) {
        while !self.sched.q.moved.is_empty() {
            for (task, to) in std::mem::take(&mut self.sched.q.moved) {
                // It may have been moved on.
                self.note_cpu(task as usize, self.sched.cpu_of(task as usize));
                let task = &mut self.tasks[task as usize];
                task.clock = task.clock.max(self.timeline.now());
                self.grown(to, by);
            }
        }
        while let Some(cpu) = self.sched.q.charged.pop() {
            if self.sched.marked(cpu) {
                self.cut(cpu, self.now());
            }
        }
        while let Some(from) = self.sched.q.pushes.pop() {
            self.push_away(from);
        }
    }
    /// The task that runs on a CPU is pushed to another, if it isn't in the middle of an act.
    fn push_away(&mut self, from: usize) {
        let now = self.now();
        self.cut(from, now);
        self.settle(from);
        let Some(id) = self.cpus[from].current() else { return };
        if self.tasks[id].clock > now || self.tasks[id].run != Run::Runnable {
            return;
        }
        self.catch_up(id);
        self.sched.at(now);
        self.sched.q.stopped(id, from);
        self.tell_runtime(id);
        let took = self.sched.push(from) * 1000;
        self.next(from, now + took);
    }
    /// A task that has stopped leaves its CPU to the next.
    fn leave(&mut self, cpu: usize, id: usize) {
        self.sched.at(self.now());
        let stop = match self.tasks[id].run {
            Run::Blocked(on) => Stop::Waits(on.waiting()),
            Run::Ended | Run::Runnable => Stop::Ends,
        };
        if let Some(watch) = &mut self.kernel.watch {
            watch.leaves(
                id,
                match stop {
                    Stop::Waits(Waiting::Sleep) => Leaves::Sleeps,
                    Stop::Waits(Waiting::Block { iowait }) => Leaves::Blocks { iowait },
                    Stop::Ends => Leaves::Ends,
                },
            );
        }
        self.sched.q.stop(id, cpu, stop);
        self.tasks[id].on_queue = false;
        self.tell_runtime(id);
        if self.tasks[id].kind == Kind::Replayed && stop != Stop::Ends {
            self.voluntary_switches += 1;
        }
        self.has_left(cpu, id);
        self.tasks[id].off_cpu = self.next(cpu, self.now());
        if self.tasks[id].run == Run::Ended {
            if let Some(why) = self.tasks[id].killed {
                self.end_space(self.tasks[id].space, Some(why));
            }
            self.task_ended(id);
        }
    }
    /// Takes a task that ends off its CPU's queue, what it ran ahead included.
    pub(crate) fn off_queue(&mut self, cpu: usize, id: usize) {
        let is_current = self.cpus[cpu].current() == Some(id);
        if is_current {
            self.cut(cpu, self.now());
            self.settle(cpu);
            self.catch_up(id);
        }
        self.sched.at(self.now());
        self.tasks[id].on_queue = false;
        self.tell_runtime(id);
        if is_current {
            let booked = self.cpus[cpu].clock().max(self.now());
            self.sched.q.stop(id, cpu, Stop::Ends);
            self.next(cpu, booked);
        } else {
            self.sched.q.take(id, Dequeue::End);
            self.waits(id, false);
        }
    }
    /// A task that runs goes to another CPU.
    pub(crate) fn move_over(&mut self, cpu: usize, id: usize, to: usize) {
        self.carry_over(cpu, id, to, 0);
    }
    /// The same, where it takes the CPU's stopper some time.
    pub(crate) fn carry_over(&mut self, cpu: usize, id: usize, to: usize, took: u64) {
        let now = self.now();
        self.sched.at(now);
        self.sched.q.stopped(id, cpu);
        self.tell_runtime(id);
        self.sched.q.take(id, Dequeue::Move);
        self.sched.q.arrive(id, to);
        self.note_cpu(id, to);
        self.has_left(cpu, id);
        self.next(cpu, now + took);
        self.grown(to, cpu);
    }
    /// Two tasks, each of which runs on its CPU, run on the other's from now on.
    pub(crate) fn exchange(
        &mut self,
        (a, one): (usize, usize),
        (b, other): (usize, usize),
        took: u64,
    ) {
        let now = self.now();
        self.sched.at(now);
        for (cpu, id) in [(a, one), (b, other)] {
            self.sched.q.stopped(id, cpu);
            self.tell_runtime(id);
            self.sched.q.take(id, Dequeue::Move);
            // Neither runs until both have left.
            self.stops(cpu);
            self.cpus.rest(cpu, now);
        }
        for (from, id, to) in [(a, one, b), (b, other, a)] {
            self.sched.q.arrive(id, to);
            self.note_cpu(id, to);
            self.has_left(from, id);
        }
        self.next(b, now + took);
        self.next(a, now + took);
    }
    /// A task that was to leave a CPU runs there no more, or may stay: whoever waits for that is
    /// woken by the CPU's stopper, which still has the CPU.
    fn has_left(&mut self, cpu: usize, id: usize) {
        let Some(by) = self.tasks[id].leaves_for.take() else { return };
        self.sched.q.wake.set_idle(cpu as u32, false);
        let waker = Waker { cpu, task: None, sync: false, in_task: true };
        self.wake_from(by, By::Kernel, waker);
        self.sched.q.wake.set_idle(cpu as u32, self.sched.q.is_idle(cpu));
    }
    /// A task asks how long it has run: so its CPU knows it too, and may have another one run.
    pub(crate) fn asks_runtime(&mut self, id: usize) {
        self.sched.at(self.now());
        self.sched.q.fair.update(self.tasks[id].cpu, ns(self.now()));
    }
    /// A task that ends leaves its group first, by which its CPU looks for who runs next.
    pub(crate) fn leaves_group(&mut self, id: usize) {
        self.sched.at(self.now());
        self.sched.q.requeued(id);
        self.sched.q.fair.set_need_resched(self.tasks[id].cpu);
    }
    /// A task gives its CPU to others that wait for it.
    pub(crate) fn yield_now(&mut self, id: usize) {
        self.sched.at(self.now());
        self.sched.yields(self.tasks[id].cpu);
    }
    /// A task has another nice value from now on.
    pub(crate) fn set_nice(&mut self, id: usize, nice: i8) {
        self.sched.at(self.now());
        self.sched.q.fair.set_nice(id as u32, nice, ns(self.now()));
    }
    /// The program of a task does something, which may be anything but to ask for itself.
    fn with<R>(&mut self, id: usize, f: impl FnOnce(&mut dyn Program, &mut Self) -> R) -> R {
        let mut program = self.programs[id].take().expect("a task that runs has a program");
        let result = f(&mut *program, self);
        self.programs[id] = Some(program);
        result
    }

    // ── What ran ahead ─────────────────────────────────────────────────────────

    /// What a CPU's task has run ahead stands.
    pub(crate) fn settle(&mut self, cpu: usize) {
        if !std::mem::take(&mut self.cpus[cpu].ran_ahead) {
            return;
        }
        let Some(id) = self.cpus[cpu].current() else { return };
        let clock = self.cpus[cpu].clock();
        let why = if self.cpus[cpu].by_calls { Why::System } else { Why::User };
        self.charge(id, clock - self.tasks[id].clock, why);
        self.with(id, |program, sim| program.settle(sim, id));
        let clock = self.tasks[id].clock;
        if clock > self.cpus[cpu].clock() {
            self.cpus.reach(cpu, clock);
        }
    }
    /// What all have run ahead until now stands: somebody reads times or loads.
    pub(crate) fn settle_all(&mut self) {
        let now = self.now();
        self.each_busy(|sim, cpu| {
            if sim.cpus[cpu].far {
                sim.cut(cpu, now);
            }
            sim.settle(cpu);
            if let Some(id) = sim.cpus[cpu].current() {
                sim.tell_runtime(id);
            }
        });
    }
    /// Does something for each busy CPU, in rising order.
    fn each_busy(&mut self, mut f: impl FnMut(&mut Self, usize)) {
        let mut next = self.cpus.busy_from(0);
        while let Some(cpu) = next {
            if let Some(after) = self.cpus.busy_from(cpu + 1) {
                let task = self.fetch(after);
                prefetch_at(&raw const self.kernel.numa[task].ran_ns);
            }
            f(self, cpu);
            next = self.cpus.busy_from(cpu + 1);
        }
    }
    /// Tells NUMA balancing how long a task has run.
    fn tell_runtime(&mut self, id: usize) {
        self.kernel.numa[id].ran_ns = self.tasks[id].ran / 1000;
    }
    /// Processor time of a task, with what it has run ahead by now.
    pub(crate) fn ran_until_now(&self, id: usize) -> u64 {
        let task = &self.tasks[id];
        let cpu = &self.cpus[task.cpu];
        let runs = cpu.ran_ahead && cpu.current() == Some(id);
        task.ran + if runs { self.now().saturating_sub(task.clock) } else { 0 }
    }
    /// Takes back what a CPU's task has run ahead beyond a time.
    pub(crate) fn cut(&mut self, cpu: usize, to: u64) {
        if !self.cpus[cpu].ran_ahead || self.cpus[cpu].clock() <= to {
            return;
        }
        let Some(id) = self.cpus[cpu].current() else { return };
        let began = self.tasks[id].clock;
        let clock = self.with(id, |program, sim| program.back(sim, id, to));
        let here = &mut self.cpus[cpu];
        here.ran_ahead = clock > began;
        here.before_act = false;
        if !here.ran_ahead {
            here.began = 0;
        }
        self.cpus.reach(cpu, clock);
    }

    // ── Waking, blocking, paying ───────────────────────────────────────────────

    /// Books time of a task, where it runs.
    pub(crate) fn charge(&mut self, id: usize, time: u64, why: Why) {
        let task = &mut self.tasks[id];
        task.clock += time;
        task.ran += time;
        match why {
            Why::User => {}
            Why::System => task.system += time,
        }
    }
    /// A task pays for what the kernel does. What recorded tasks took has that in it.
    pub(crate) fn pay(&mut self, id: usize, cost: u64) {
        if cost > 0 && self.tasks[id].kind != Kind::Replayed {
            self.charge(id, cost, Why::System);
        }
    }
    /// A task pays for waking another, for which it calls a CPU or not. A recorded one pays too:
    /// what it took has that in it for where its wake-ups went then, and they may go elsewhere. `owed` is for statistics.
    fn pay_for_wake(&mut self, id: usize, calls: bool, owed: u64) {
        let owed = if self.tasks[id].kind == Kind::Replayed { 0 } else { owed };
        let cost = owed + self.kernel.prices[if calls { Cost::WakeCall } else { Cost::WakeUp }];
        if cost > 0 {
            self.charge(id, cost, Why::System);
        }
    }
    /// Books the time of a task that runs elsewhere at this moment: it goes on later.
    fn delay(&mut self, cpu: usize, id: usize, time: u64) {
        if time > 0 {
            self.charge(id, time, Why::System);
            self.tell_runtime(id);
            self.cpus.reach(cpu, self.tasks[id].clock);
        }
    }
    /// A task waits from its clock on.
    pub(crate) fn block(&mut self, id: usize, on: On) {
        self.tasks[id].run = Run::Blocked(on);
        if matches!(on, On::Device { iowait: true }) {
            self.sched.idle.waits_for_io(self.tasks[id].cpu, true);
        }
    }
    /// A task's timer is set, in the place of what it was set to.
    pub(crate) fn set_timer(&mut self, id: usize, time: u64) {
        self.tasks[id].timer_wakes = false;
        self.timeline.set(self.tasks[id].timer, time);
    }
    /// The same for a timer of the task's CPU, which an idle CPU knows of before it comes.
    pub(crate) fn set_cpu_timer(&mut self, id: usize, time: u64) {
        self.set_timer(id, time);
        if self.sched.idle.is_modelled() {
            let now = self.now();
            self.sched.idle.set_timer(self.tasks[id].cpu, time, now, id);
        }
    }
    /// Wakes a task at a time that may still come.
    pub(crate) fn wake_at(&mut self, id: usize, time: u64, by: By) {
        if time <= self.now() {
            self.wake(id, by);
        } else if matches!(self.tasks[id].run, Run::Blocked(_)) {
            self.set_cpu_timer(id, time);
            self.tasks[id].timer_wakes = true;
        } else if self.spins(id) {
            self.set_timer(id, time);
            self.tasks[id].timer_wakes = true;
        }
    }
    /// Wakes a task now, if it waits: whatever it waits for is over.
    pub(crate) fn wake(&mut self, id: usize, by: By) {
        let waker = self.waker(id, by);
        self.wake_from(id, by, waker);
    }
    /// Whoever wakes a task, as the scheduler sees it.
    fn waker(&self, id: usize, by: By) -> Waker {
        let cpu = match by {
            By::Task(other) => self.tasks[other].cpu,
            // A timer's interrupt comes where it was set.
            By::Timer => self.tasks[id].cpu,
            By::Kernel | By::Outside => self.last_turn(),
        };
        let cpu = self.sched.q.online_or_first(cpu);
        let in_task = matches!(by, By::Task(_));
        let task = match by {
            By::Task(other) => Some(other),
            By::Timer | By::Kernel | By::Outside => self.cpus[cpu].current(),
        };
        Waker { cpu, task, sync: false, in_task }
    }
    /// The CPU that had its turn last: one that has begun a call ahead would have had it at that time.
    fn last_turn(&self) -> usize {
        let now = self.now();
        let latest = (self.cpus.latest(), self.turn_of);
        if latest.0 == now {
            return latest.1;
        }
        let began = self.begun.iter().map(|&cpu| (self.cpus[cpu as usize].began, cpu as usize));
        began.filter(|began| (1..now).contains(&began.0)).fold(latest, Ord::max).1
    }
    /// A CPU's task has begun a call ahead of time. Those are forgotten that had begun before the latest turn.
    #[inline]
    fn note_begun(&mut self, cpu: usize) {
        const MANY: usize = 64;
        if self.begun.len() >= MANY && self.begun.len() >= 2 * self.begun_kept {
            let (cpus, latest) = (&self.cpus, self.cpus.latest());
            self.begun.retain(|&cpu| cpus[cpu as usize].began >= latest);
            self.begun.sort_unstable();
            self.begun.dedup();
            self.begun_kept = self.begun.len();
        }
        self.begun.push(cpu as u32);
    }
    /// The same, by somebody of whom more is known.
    pub(crate) fn wake_from(&mut self, id: usize, by: By, waker: Waker) {
        let Run::Blocked(on) = self.tasks[id].run else {
            let cpu = self.tasks[id].cpu;
            if self.spins(id) && self.cpus[cpu].current() == Some(id) {
                // It sees at once that there is something.
                self.cut(cpu, self.now());
            }
            return;
        };
        if matches!(on, On::Device { iowait: true }) {
            self.sched.idle.waits_for_io(self.tasks[id].cpu, false);
        }
        self.timeline.clear(self.tasks[id].timer);
        let task = &mut self.tasks[id];
        task.timer_wakes = false;
        task.run = Run::Runnable;
        // Before it has left its CPU it just goes on.
        if !task.on_queue {
            let now = self.now();
            self.sched.at(now);
            if self.sched.q.is_nowhere(id) {
                self.refuge(id);
            }
            let off = self.tasks[id].off_cpu;
            let (cpu, woken) = self.sched.wake(id, &waker, off > now);
            let waker_cpu = waker.cpu;
            if woken == Woken::Queued && cpu == waker_cpu {
                self.ask_for_boost(cpu, matches!(on, On::Device { iowait: true }));
            }
            // Where an interrupt wakes it, that is in the interrupt's time.
            let (owed, before) = self.sched.q.counters.owed_for_wake();
            let calls = match woken {
                Woken::Queued => cpu != waker_cpu && self.cpus[cpu].current().is_none(),
                Woken::Calls => true,
                Woken::Listed => false,
            };
            let task = &mut self.tasks[id];
            (task.on_queue, task.clock) = (woken == Woken::Queued, task.clock.max(now));
            self.note_cpu(id, cpu);
            if woken == Woken::Queued {
                self.waits(id, true);
            }
            // Who ends has left its CPU already, and no CPU has time for that any more.
            let runs = |&task: &usize| self.cpus[self.tasks[task].cpu].current() == Some(task);
            if let Some(waker) = waker.task.filter(|_| waker.in_task).filter(runs) {
                self.pay_for_wake(waker, calls, owed);
            }
            let late = if self.tasks[id].kind == Kind::Replayed { 0 } else { before };
            match woken {
                Woken::Queued => self.grown_after(cpu, waker_cpu, late),
                Woken::Calls => self.call(cpu, waker_cpu, late, off),
                Woken::Listed => {}
            }
            if by == By::Timer && cpu != waker_cpu {
                self.disturb(waker_cpu);
            }
        }
        let (now, pid) = (self.now(), self.kernel.numa[id].pid);
        let begins = self.tasks[id].clock;
        if let Some(watch) = &mut self.kernel.watch {
            watch.woken(pid, by, now, begins);
        }
    }
    /// A new task begins, on the CPU that balancing of forks finds from its parent's.
    pub(crate) fn enqueue(&mut self, id: usize) {
        let (now, parent) = (self.now(), self.tasks[id].cpu);
        self.sched.at(now);
        if self.sched.q.is_nowhere(id) {
            self.refuge(id);
        }
        let cpu = self.sched.place_new(id, parent);
        self.sched.begin(id, cpu);
        let task = &mut self.tasks[id];
        (task.on_queue, task.clock) = (true, task.clock.max(now));
        self.note_cpu(id, cpu);
        self.waits(id, true);
        self.grown(cpu, parent);
    }
    /// How long an idle CPU takes until a task that was woken by a CPU runs on it: time of nobody,
    /// time that is booked as the task's, and what the switch to it takes then. A CPU that has
    /// become idle at this moment has no idle state to leave.
    ///
    /// Source: specs/idle.md#wake, specs/idle.md#without, specs/waits.md#replay.
    pub(crate) fn idle_exit(&mut self, cpu: usize, by: usize, now: u64) -> (u64, u64, u64) {
        let prices = self.prices.of(cpu);
        if self.sched.idle.is_modelled() {
            let interrupt = if by == cpu { 0 } else { prices[Cost::Ipi] };
            let switch = prices[Cost::ContextSwitch];
            return (self.sched.idle.leave(cpu, now, interrupt), 0, switch);
        }
        let idle = self.now().saturating_sub(self.cpus[cpu].clock());
        if idle == 0 {
            return (0, 0, 0);
        }
        let deep = idle > prices[Cost::DeepAfter];
        let exit = prices[if deep { Cost::WakeDeep } else { Cost::WakeIdle }];
        let booked = exit * prices[Cost::WakeCharged] / 1000;
        (exit - booked, booked, 0)
    }
    /// An interrupt comes to a CPU that may be idle: how long it takes until the CPU sees to it.
    ///
    /// Source: specs/idle.md#wake.
    pub(crate) fn disturb(&mut self, cpu: usize) -> u64 {
        if !self.sched.idle.is_modelled() || self.cpus[cpu].current().is_some() {
            return 0;
        }
        match self.called.out(cpu) {
            Some(out) => out.at.saturating_sub(self.now()),
            None => self.sched.idle.disturb(cpu, self.now()),
        }
    }
    /// Whether a daemon has been called.
    #[inline]
    pub(crate) fn calls(&self) -> bool {
        !self.kernel.woken.is_empty()
            || !self.kernel.placed.is_empty()
            || !self.kernel.regrouped.is_empty()
            || self.kernel.merging.calls()
            || self.kernel.khugepaged.calls()
    }
    /// Wakes the daemons that were called, when what called them is over.
    pub(crate) fn heed(&mut self, when: u64) {
        while !self.kernel.woken.is_empty() {
            let node = self.kernel.woken.remove(0);
            self.kernel.kswapd_start(node);
            // The tasks of that number are the kswapds: the first that begin.
            self.wake_at(node, when, By::Kernel);
        }
        if !(self.kernel.placed.is_empty() && self.kernel.regrouped.is_empty()) {
            self.heed_placed();
        }
        self.heed_ksmd(when);
        self.heed_khugepaged(when);
        if self.agent.is_some() {
            self.heed_rings(when);
        }
    }

    // ── Events ─────────────────────────────────────────────────────────────────

    /// The next event of the timeline.
    fn happen(&mut self) {
        let Some((time, event, slot)) = self.timeline.take() else { return };
        self.timeline.reach(time);
        if let Some(Event::Timer(id)) = self.timeline.coming() {
            self.fetch_sleeper(id);
        }
        match event {
            Event::Tick => {
                self.settle_all();
                self.tick();
                self.timeline.set(slot, time + TICK);
            }
            Event::Window => {
                self.settle_all();
                self.close_window();
                self.score_time(time);
                self.timeline.set(slot, time + WINDOW);
            }
            Event::Start(process) => {
                self.unstarted -= 1;
                self.start_process(process);
            }
            Event::Timer(id) if self.tasks[id].timer_wakes => self.wake(id, By::Timer),
            Event::Timer(id) => self.with(id, |program, sim| program.timer(sim, id)),
            Event::Called(cpu) => self.come(cpu),
            Event::LookAround => self.look_around(),
            Event::Quota => self.refill_quotas(),
            Event::File(action) => {
                self.settle_all();
                self.act_on_file(action);
            }
        }
        // Whoever has asked for them outside of a turn doesn't pay.
        self.flush_others(usize::MAX);
        self.heed(time);
    }
    /// The tick of every busy CPU, for the task that runs there.
    fn tick(&mut self) {
        self.charge_displaced();
        if self.nobody_works() {
            self.find_deadlock();
        }
        self.heed_clocks();
        self.sched.at(self.now());
        self.each_busy(|sim, cpu| {
            sim.pays_as(cpu);
            let cost = sim.price(cpu, Cost::Tick);
            let (kick, balanced) = sim.sched.tick(cpu);
            let pays = |&id: &usize| sim.tasks[id].kind != Kind::Replayed;
            if let Some(id) = sim.cpus[cpu].current().filter(pays) {
                let owed = sim.sched.q.counters.owed();
                sim.delay(cpu, id, cost + balanced * 1000 + owed);
            }
            match kick {
                Some(idle) => {
                    sim.sched.kicked(idle);
                    sim.take_note(idle);
                    sim.disturb(idle);
                }
                None => sim.take_note(cpu),
            }
        });
        self.idle_ticks();
        if self.without_balancing {
            return;
        }
        if let Some(pmu) = &mut self.pmu {
            self.kernel.inside.samples.extend(pmu.take_for_kernel());
        }
        self.each_busy(|sim, cpu| {
            let Some(id) = sim.cpus[cpu].current() else { return };
            if sim.tasks[id].space == usize::MAX || sim.tasks[id].run != Run::Runnable {
                return;
            }
            let mut ctx = sim.ctx(id);
            let before = ctx.clock;
            sim.kernel.numa_tick(&mut ctx, id);
            let flushes = sim.flush_others(cpu) * sim.price(cpu, Cost::TlbRemoteFlush);
            sim.delay(cpu, id, ctx.clock - before + flushes);
        });
    }
    /// Whether all CPUs are idle, or busy with threads that only look for something to do.
    fn nobody_works(&self) -> bool {
        let idle = self.agent.as_ref().is_none_or(|agent| agent.is_idle());
        self.cpus.busy().all(|cpu| {
            let id = self.cpus[cpu].current();
            id.is_some_and(|id| self.tasks[id].kind == Kind::Busy || idle && self.spins(id))
        })
    }
    /// Whether a task looks for something to do while there is nothing, in place of sleeping.
    fn spins(&self, id: usize) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.spins && agent.task == id)
    }
    /// The tick of CPUs that are idle and have kept it.
    fn idle_ticks(&mut self) {
        let now = self.now();
        let mut next = self.sched.next_ticking(0);
        while let Some(cpu) = next {
            if self.sched.idle_tick(cpu) {
                self.take_note(cpu);
                if self.cpus[cpu].current().is_none() {
                    if self.sched.idle.is_modelled() {
                        self.sched.idle.lapse(cpu, now + 1);
                    }
                    self.sched.stop_tick(cpu, true);
                }
            }
            next = self.sched.next_ticking(cpu + 1);
        }
    }
    /// Whether all that is left waits for others that wait as well: then who waits for what.
    ///
    /// Source: specs/workloads.md#ends.
    fn find_deadlock(&mut self) {
        let left = |id: &usize| self.tasks[*id].space != usize::MAX && self.tasks[*id].lives();
        let left: Vec<usize> = (0..self.tasks.len()).filter(left).collect();
        let waits = |id: &usize| match self.tasks[*id].run {
            Run::Blocked(on) => on.by_others() && !self.tasks[*id].timer_wakes,
            Run::Runnable | Run::Ended => false,
        };
        if self.unstarted > 0 || left.is_empty() || !left.iter().all(waits) {
            return;
        }
        let mut text = String::from("all tasks wait for one another, and nobody can go on:");
        if let Some(ring) = left.iter().find_map(|&id| self.ring(id)) {
            let names: Vec<String> =
                ring.iter().chain(ring.first()).map(|&id| self.told(id)).collect();
            text.push_str(&format!("\n  in a ring: {}", names.join(" for ")));
        }
        for &id in left.iter().take(8) {
            let what = match self.tasks[id].run {
                Run::Blocked(On::Channel(channel)) => {
                    let has = match (self.channels.owner(channel), self.waits_for_whom(id)) {
                        (Some(owner), _) => format!(", which {} has", self.told(owner)),
                        (None, Some(other)) if other == id => ", which nobody else uses".to_owned(),
                        (None, Some(other)) => {
                            format!(", whose other end only {} has", self.told(other))
                        }
                        (None, None) => String::new(),
                    };
                    format!("{}{has}", self.channels.told(channel))
                }
                Run::Blocked(On::Task(other)) => format!("the end of {}", self.told(other)),
                Run::Blocked(On::Children) => "its children".to_owned(),
                Run::Blocked(On::Child) => "the end of a child".to_owned(),
                Run::Blocked(On::Barrier) => "the other threads at a barrier".to_owned(),
                Run::Blocked(
                    On::Sleep
                    | On::Point(_)
                    | On::Lock(_)
                    | On::Count(_)
                    | On::Work
                    | On::Device { .. },
                )
                | Run::Runnable
                | Run::Ended => continue,
            };
            text.push_str(&format!("\n  {} waits for {what}", self.told(id)));
        }
        if left.len() > 8 {
            text.push_str(&format!("\n  and {} more", left.len() - 8));
        }
        self.deadlock = Some(text);
    }
    /// The task that alone can end another's wait, as far as is known.
    fn waits_for_whom(&self, id: usize) -> Option<usize> {
        match self.tasks[id].run {
            Run::Blocked(On::Channel(channel)) => {
                self.channels.owner(channel).or_else(|| self.only_other_end(id, channel))
            }
            Run::Blocked(On::Task(other)) => Some(other),
            Run::Blocked(
                On::Sleep
                | On::Children
                | On::Child
                | On::Barrier
                | On::Point(_)
                | On::Lock(_)
                | On::Count(_)
                | On::Work
                | On::Device { .. },
            )
            | Run::Runnable
            | Run::Ended => None,
        }
    }
    /// The one task that can still end another's wait for a channel; `None` if there are several.
    fn only_other_end(&self, id: usize, channel: u32) -> Option<usize> {
        let takes = self.channels.takes(channel, id);
        let ends = |other: &usize| {
            let program = self.programs[*other].as_deref();
            self.tasks[*other].lives()
                && program.is_some_and(|p| p.ends_wait(&self.channels, channel, takes))
        };
        let mut others = (0..self.tasks.len()).filter(ends);
        others.next().filter(|_| others.next().is_none())
    }
    /// The tasks that wait for one another in a ring, from this one on, if it is in one.
    fn ring(&self, id: usize) -> Option<Vec<usize>> {
        let mut ring = vec![id];
        loop {
            let next = self.waits_for_whom(*ring.last()?)?;
            if next == id {
                return Some(ring);
            }
            if ring.contains(&next) {
                return None;
            }
            ring.push(next);
        }
    }
    /// What people call a task.
    pub(crate) fn told(&self, id: usize) -> String {
        format!("{} (PID {})", self.name_of(id), self.kernel.numa[id].pid)
    }
    /// The name of a task's process.
    pub(crate) fn name_of(&self, id: usize) -> &str {
        self.names.get(self.tasks[id].process).map_or("", String::as_str)
    }
    /// An interrupt comes to a CPU: whoever runs there is held up.
    pub(crate) fn interrupt(&mut self, cpu: usize, time: u64) {
        self.cut(cpu, self.now());
        self.settle(cpu);
        self.hold_up(cpu, time);
    }
    /// A task that has its turn has changed what other CPUs must forget: what that takes of it.
    #[inline]
    pub(crate) fn pay_for_flushes(&mut self, id: usize) -> u64 {
        if self.kernel.flushes.are_none() {
            return 0;
        }
        let cpu = self.tasks[id].cpu;
        let flushes = self.flush_others(cpu);
        // Who has left its CPU doesn't pay any more.
        if self.cpus[cpu].current() != Some(id) {
            return 0;
        }
        let time = flushes * self.price(cpu, Cost::TlbRemoteFlush);
        self.charge(id, time, Why::System);
        time
    }
    /// What the kernel has changed has CPUs interrupted that run such an address space, but not the one that asks: how
    /// many of the flushes reach another CPU.
    ///
    /// Source: specs/remote-flush.md#cost.
    fn flush_others(&mut self, by: usize) -> u64 {
        if self.kernel.flushes.are_none() {
            return 0;
        }
        let flushes = self.kernel.take_flushes();
        let mut reached = vec![false; flushes.len()];
        self.each_busy(|sim, cpu| {
            let Some(id) = sim.cpus[cpu].current().filter(|_| cpu != by) else { return };
            let space = sim.tasks[id].space;
            let mut times = 0;
            for (flush, reached) in flushes.iter().zip(&mut reached) {
                let is_for = match flush {
                    Flush::Spaces(spaces) => spaces.iter().any(|&s| s as usize == space),
                    Flush::All => true,
                };
                *reached |= is_for;
                times += u64::from(is_for);
            }
            if times > 0 {
                let node = sim.cpus[cpu].node;
                sim.kernel.stat.add(node, Item::NrTlbRemoteFlushReceived, times);
                let each = sim.price(cpu, Cost::TlbRemoteFlushReceived);
                if each > 0 {
                    sim.interrupt(cpu, times * each);
                }
            }
        });
        let sent = reached.into_iter().filter(|&r| r).count() as u64;
        let node = if by < self.cpus.len() { self.cpus[by].node } else { 0 };
        self.kernel.stat.add(node, Item::NrTlbRemoteFlush, sent);
        sent
    }
    /// A task that runs on a CPU is held up there.
    pub(crate) fn hold_up(&mut self, cpu: usize, time: u64) {
        if let Some(id) = self.cpus[cpu].current() {
            self.delay(cpu, id, time);
        }
    }
}
