//! The executive: whose turn it is, and how tasks wake, block and pay.
//!
//! What a task does is private or an act. Private is what only the task can notice:
//! accesses to pages that are there, computing. It runs ahead of the others by up to a
//! quantum. An act is what others can see: a fault, a system call, a daemon's step, going to
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
use crate::load::WINDOW;
use crate::program::Program;
use crate::simulation::Simulation;
use crate::table::{prefetch_at, prefetch_value};
use crate::tasks::{Home, Kind, On, Run, Why};
use crate::timeline::Event;
use crate::watch::By;
use homenode_core::costs::Cost;

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
        self.fetch_next(cpu);
        loop {
            self.settle(cpu);
            let limit = self.timeline.next().min(stop);
            if self.cpus[cpu].before_act {
                self.act(cpu, limit);
            }
            let limit = self.timeline.next().min(stop);
            let Some(clock) = self.go_on(cpu, limit) else { return };
            let limit = self.timeline.next().min(stop);
            self.cpus.reach(cpu, clock);
            let first = |other| (clock, cpu as u32) < other;
            if clock >= limit || self.speaks || !self.cpus.others_behind(cpu).is_none_or(first) {
                return;
            }
            self.timeline.reach(clock);
        }
    }
    /// Has what the CPU after this one begins with fetched meanwhile.
    #[inline]
    fn fetch_next(&self, cpu: usize) {
        if let Some((_, next)) = self.cpus.others_behind(cpu) {
            self.fetch(next as usize);
        }
    }
    /// Has what a CPU's turn begins with fetched; whose turn that is, as far as is known.
    #[inline]
    fn fetch(&self, cpu: usize) -> usize {
        let Near { task, ops } = self.cpus.fetch(cpu);
        let task = task as usize;
        prefetch_value(ops, 8 * 64);
        prefetch_at(&raw const self.tasks[task].clock);
        self.tallies[task].fetch();
        if let Some(program) = &self.programs[task] {
            program.fetch();
        }
        task
    }
    /// Has the pages fetched that the CPU after this one goes to first.
    #[inline]
    fn fetch_pages(&self, cpu: usize) {
        let Some((_, next)) = self.cpus.others_behind(cpu) else { return };
        let Near { task, .. } = self.cpus.near(next as usize);
        if let Some(program) = &self.programs[task as usize] {
            program.fetch_pages(&self.kernel.memory.words);
        }
    }
    /// What the current task waits to do, if its time has come.
    fn act(&mut self, cpu: usize, limit: u64) {
        let Some(id) = self.cpus[cpu].current() else { return };
        let task = &self.tasks[id];
        if task.clock > self.now() || task.run != Run::Runnable {
            return;
        }
        self.cpus[cpu].before_act = false;
        let others = self.cpus.others_clock(cpu);
        let until = limit.min(others).max(self.now() + 1);
        self.with(id, |program, sim| program.act(sim, id, until));
        let clock = self.tasks[id].clock;
        // Whoever has been put before it begins when the act is over.
        if let Some(first) = self.cpus[cpu].current() {
            let first = &mut self.tasks[first];
            first.clock = first.clock.max(clock);
        }
        self.heed(clock);
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
            if task.run != Run::Runnable {
                self.leave(cpu, id);
                continue;
            }
            if !self.keeps(cpu) {
                self.cpus[cpu].rotate();
                self.next(cpu);
                continue;
            }
            if limit <= now {
                return Some(now);
            }
            self.tasks[id].clock = now;
            let number = self.cpus[cpu].number.index();
            if self.kernel.running[number].is_none_or(|r| r.0 != id) {
                self.kernel.running[number] = Some((id, self.kernel.numa[id].pid));
            }
            let others = self.cpus.others_clock(cpu);
            let mut until = limit.min(others.saturating_add(self.quantum));
            if self.cpus[cpu].load() > 1 {
                until = until.min(self.cpus[cpu].slice_end);
            }
            let until = until.max(now + 1);
            // Before that nobody else does anything, unless an act of its own calls somebody.
            let seen = self.agent.is_some() || self.pmu.is_some() || self.one_act_a_turn;
            let alone = !seen && self.cpus[cpu].load() == 1;
            self.own = if alone { limit.min(others) } else { 0 };
            let (ran, ops) = self.with(id, |program, sim| {
                let ran = program.ahead(sim, id, until);
                (ran, program.next_ops())
            });
            self.cpus.set_near(cpu, Near { task: id as u32, ops });
            self.fetch_pages(cpu);
            let acted = self.tasks[id].clock;
            let here = &mut self.cpus[cpu];
            here.ran_ahead = ran.clock > acted;
            here.before_act = ran.act;
            if acted > now && self.calls() {
                self.heed(acted);
            }
            return Some(ran.clock);
        }
    }
    /// Whether a task that has its turn, and has changed nothing for others, goes on with
    /// its next act at this very moment.
    pub(crate) fn goes_on_now(&self, id: usize) -> bool {
        let task = &self.tasks[id];
        task.clock == self.now() && self.keeps(task.cpu)
    }
    /// Whether a CPU's task goes on, in spite of those that wait for the CPU.
    fn keeps(&self, cpu: usize) -> bool {
        let cpu = &self.cpus[cpu];
        cpu.load() == 1 || self.now() < cpu.slice_end
    }
    /// The first task of a CPU's queue begins.
    fn next(&mut self, cpu: usize) {
        let now = self.now();
        self.cpus[cpu].before_act = false;
        if let Some(id) = self.cpus[cpu].current() {
            self.cpus[cpu].slice_end = now + self.tasks[id].kind.slice();
            let task = &mut self.tasks[id];
            task.clock = task.clock.max(now);
        }
    }
    /// A CPU that has nothing to do takes over a task that waits for the busiest, as the
    /// kernel's balancing of a CPU that becomes idle does: tasks of a recording only.
    fn pull(&mut self, cpu: usize) {
        if self.cpus[cpu].load() > 0 || !self.is_allowed(self.cpus[cpu].number) {
            return;
        }
        let waits = |from: usize| {
            let of = |&id: &usize| {
                let task = &self.tasks[id];
                task.kind == Kind::Replayed && task.run == Run::Runnable
            };
            self.cpus[from].waiting().find(of).map(|id| (self.cpus[from].load(), from, id))
        };
        // The first of the busiest.
        let most = self.cpus.busy().filter_map(waits).reduce(|a, b| if b.0 > a.0 { b } else { a });
        if let Some((_, from, id)) = most {
            self.off_queue(from, id);
            self.enqueue(id, cpu);
        }
    }
    /// A task that has stopped leaves its CPU to the next.
    fn leave(&mut self, cpu: usize, id: usize) {
        self.off_queue(cpu, id);
        let task = &self.tasks[id];
        let sleeps = matches!(task.run, Run::Blocked(_)) && task.kind == Kind::Replayed;
        self.voluntary_switches += u64::from(sleeps);
        if !self.replayed.is_empty() {
            self.pull(cpu);
        }
        if self.tasks[id].run == Run::Ended {
            if let Some(why) = self.tasks[id].killed {
                self.end_space(self.tasks[id].space, Some(why));
            }
            self.task_ended(id);
        }
    }
    /// Takes a task off its CPU's queue, what it ran ahead included.
    pub(crate) fn off_queue(&mut self, cpu: usize, id: usize) {
        let is_current = self.cpus[cpu].current() == Some(id);
        if is_current {
            self.cut(cpu, self.now());
            self.settle(cpu);
        }
        let booked = self.cpus[cpu].clock();
        let idle = self.cpus.remove(cpu, id);
        self.tasks[id].on_queue = false;
        self.tell_runtime(id);
        if is_current {
            self.next(cpu);
            if !idle {
                self.cpus.reach(cpu, booked.max(self.now()));
            }
        }
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
    fn settle(&mut self, cpu: usize) {
        if !std::mem::take(&mut self.cpus[cpu].ran_ahead) {
            return;
        }
        let Some(id) = self.cpus[cpu].current() else { return };
        let clock = self.cpus[cpu].clock();
        self.charge(id, clock - self.tasks[id].clock, Why::User);
        self.with(id, |program, sim| program.settle(sim, id));
        let clock = self.tasks[id].clock;
        if clock > self.cpus[cpu].clock() {
            self.cpus.reach(cpu, clock);
        }
    }
    /// What all have run ahead stands: somebody reads times or loads.
    pub(crate) fn settle_all(&mut self) {
        self.each_busy(|sim, cpu| {
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
    fn cut(&mut self, cpu: usize, to: u64) {
        if !self.cpus[cpu].ran_ahead || self.cpus[cpu].clock() <= to {
            return;
        }
        let Some(id) = self.cpus[cpu].current() else { return };
        let began = self.tasks[id].clock;
        let clock = self.with(id, |program, sim| program.back(sim, id, to));
        let here = &mut self.cpus[cpu];
        here.ran_ahead = clock > began;
        here.before_act = false;
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
    }
    /// A task's timer is set, in the place of what it was set to.
    pub(crate) fn set_timer(&mut self, id: usize, time: u64) {
        self.tasks[id].timer_wakes = false;
        self.timeline.set(self.tasks[id].timer, time);
    }
    /// Wakes a task at a time that may still come.
    pub(crate) fn wake_at(&mut self, id: usize, time: u64, by: By) {
        if time <= self.now() {
            self.wake(id, by);
        } else if matches!(self.tasks[id].run, Run::Blocked(_)) {
            self.set_timer(id, time);
            self.tasks[id].timer_wakes = true;
        }
    }
    /// Wakes a task now, if it waits: whatever it waits for is over.
    pub(crate) fn wake(&mut self, id: usize, by: By) {
        if !matches!(self.tasks[id].run, Run::Blocked(_)) {
            return;
        }
        self.timeline.clear(self.tasks[id].timer);
        let task = &mut self.tasks[id];
        task.timer_wakes = false;
        task.run = Run::Runnable;
        // Before it has left its CPU it just goes on.
        if !task.on_queue {
            let home = task.kind.home();
            let cpu = self.place(self.tasks[id].cpu, home);
            self.enqueue(id, cpu);
        }
        let (now, pid) = (self.now(), self.kernel.numa[id].pid);
        let begins = self.tasks[id].clock;
        if let Some(watch) = &mut self.kernel.watch {
            watch.woken(pid, by, now, begins);
        }
    }
    /// The CPU that a woken task runs on.
    pub(crate) fn place(&self, last: usize, home: Home) -> usize {
        let cpus = &self.cpus;
        let any = || cpus.least_loaded(|_| true).unwrap_or(0);
        match home {
            Home::Own => last,
            Home::Any => any(),
            Home::Idle if cpus[last].load() == 0 => last,
            Home::Idle => self.least_loaded_allowed(),
            Home::Node(node) => cpus.least_loaded(|c| c.node == node).unwrap_or_else(any),
            Home::Next => {
                let n = cpus.len();
                let turn = (0..n).map(|i| (last + i) % n);
                turn.min_by_key(|&i| cpus[i].load()).unwrap_or(last)
            }
        }
    }
    /// Puts a task on a CPU's queue.
    pub(crate) fn enqueue(&mut self, id: usize, cpu: usize) {
        let now = self.now();
        let kind = self.tasks[id].kind;
        self.kernel.numa[id].node = self.cpus[cpu].node;
        let mut from = now;
        match self.cpus[cpu].current() {
            None => {
                let (rest, booked) = self.idle_exit(id, cpu);
                from = from.max(self.cpus[cpu].clock()).max(self.tasks[id].clock) + rest;
                self.cpus.push(cpu, id, 0);
                let here = &mut self.cpus[cpu];
                (here.ran_ahead, here.before_act) = (false, false);
                here.slice_end = now + rest + booked + kind.slice();
                self.tasks[id].clock = from;
                self.charge(id, booked, Why::System);
                self.cpus.reach(cpu, self.tasks[id].clock);
            }
            // It runs at once; who has stopped leaves first.
            Some(current) if kind.preempts() || self.tasks[current].kind.gives_way() => {
                self.cut(cpu, now);
                self.settle(cpu);
                from = from.max(self.tasks[current].clock);
                let stopped = self.tasks[current].run != Run::Runnable;
                self.cpus.push(cpu, id, usize::from(stopped));
                self.cpus[cpu].before_act = false;
                self.cpus[cpu].slice_end = now + kind.slice();
                self.cpus.reach(cpu, from);
            }
            Some(_) => {
                self.cut(cpu, now.max(self.cpus[cpu].slice_end));
                let load = self.cpus[cpu].load();
                self.cpus.push(cpu, id, load);
            }
        }
        let task = &mut self.tasks[id];
        (task.cpu, task.on_queue) = (cpu, true);
        task.clock = task.clock.max(from);
    }
    /// How long an idle CPU takes until a task of a recording that was woken runs on it: time
    /// of nobody, and time that is booked as the task's. A CPU that has become idle at this
    /// moment has no idle state to leave: it takes over a task, or the task that ran there has
    /// woken it with its end. Whatever else is woken runs at once.
    ///
    /// Source: specs/waits.md#replay.
    fn idle_exit(&self, id: usize, cpu: usize) -> (u64, u64) {
        let idle = self.now().saturating_sub(self.cpus[cpu].clock());
        if self.tasks[id].kind != Kind::Replayed || idle == 0 {
            return (0, 0);
        }
        let prices = &self.kernel.prices;
        let deep = idle > prices[Cost::DeepAfter];
        let exit = prices[if deep { Cost::WakeDeep } else { Cost::WakeIdle }];
        let booked = exit * prices[Cost::WakeCharged] / 1000;
        (exit - booked, booked)
    }
    /// Whether a daemon has been called.
    #[inline]
    pub(crate) fn calls(&self) -> bool {
        !self.kernel.woken.is_empty() || self.kernel.merging.calls()
    }
    /// Wakes the daemons that were called, when what called them is over.
    pub(crate) fn heed(&mut self, when: u64) {
        while !self.kernel.woken.is_empty() {
            let node = self.kernel.woken.remove(0);
            self.kernel.kswapd_start(node);
            // The tasks of that number are the kswapds: the first that begin.
            self.wake_at(node, when, By::Kernel);
        }
        self.heed_ksmd(when);
        if self.agent.is_some() {
            self.heed_rings(when);
        }
    }

    // ── Events ─────────────────────────────────────────────────────────────────

    /// The next event of the timeline.
    fn happen(&mut self) {
        let Some((time, event, slot)) = self.timeline.take() else { return };
        self.timeline.reach(time);
        match event {
            Event::Tick => {
                self.settle_all();
                self.tick();
                self.timeline.set(slot, time + TICK);
            }
            Event::Window => {
                self.settle_all();
                self.close_window();
                self.timeline.set(slot, time + WINDOW);
            }
            Event::Start(process) => self.start_process(process),
            Event::Timer(id) if self.tasks[id].timer_wakes => self.wake(id, By::Timer),
            Event::Timer(id) => self.with(id, |program, sim| program.timer(sim, id)),
            Event::LookAround => self.look_around(),
            Event::File(action) => {
                self.settle_all();
                self.act_on_file(action);
            }
        }
        self.heed(time);
    }
    /// The tick of every busy CPU, for the task that runs there.
    fn tick(&mut self) {
        self.charge_displaced();
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
            sim.delay(cpu, id, ctx.clock - before);
        });
    }
    /// A task that runs on a CPU is held up there.
    pub(crate) fn hold_up(&mut self, cpu: usize, time: u64) {
        if let Some(id) = self.cpus[cpu].current() {
            self.delay(cpu, id, time);
        }
    }
}
