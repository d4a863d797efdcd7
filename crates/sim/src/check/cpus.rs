//! CPUs and their tasks over time, counted from who was said to run, to wait and to stop.
//!
//! ```text
//! CPU 0   ├─ran a─┤├─ran b──┤ idle ├exit├─ran a─┤      adds up to the time, to the picosecond
//!                  └ between: a switch has to look elsewhere first
//! ```

use crate::kernel::TICK;
use crate::simulation::Simulation;
use homenode_core::hold;
use homenode_core::scenario::SchedPolicy;
use homenode_core::sched::domain::Flags;

/// A task that runs: its clock and its processor time when it began.
#[derive(Clone, Copy, Debug)]
struct Run {
    task: usize,
    clock: u64,
    ran: u64,
}

/// A CPU's time in picoseconds, of runs that are over.
#[derive(Clone, Debug, Default)]
struct OfCpu {
    /// Since when it is looked at, and how long it had been busy until then.
    start: u64,
    busy: u64,
    /// Where CPUs have idle states: how long it had been in them by then.
    slept: u64,
    run: Option<Run>,
    /// When the last task stopped, if none runs.
    free: u64,
    ran: u64,
    idle: u64,
    /// From the choice of a task until it ran (leaving an idle state, looking elsewhere), and what
    /// the kernel did for nobody before it was idle.
    between: u64,
}

#[derive(Clone, Debug, Default)]
struct OfTask {
    cpu: Option<usize>,
    /// When it stopped last, and its processor time then.
    until: u64,
    ran: u64,
    /// Since when it waits, for which CPUs.
    waits: Option<(u64, u32)>,
}

/// Something that changes who waits beside whom.
#[derive(Clone, Copy, Debug)]
enum Change {
    Waits(u32),
    Waited(u32),
    Busy(usize),
    Idle(usize),
}

/// All of a machine, as it was told of.
#[derive(Default)]
pub(super) struct Told {
    cpus: Vec<OfCpu>,
    tasks: Vec<OfTask>,
    /// What has changed since wasted time was last counted.
    changes: Vec<(u64, Change)>,
    pub(super) found: Vec<String>,
}

/// Time that CPUs idled beside tasks that waited for them, counted with what each CPU may do.
#[derive(Clone, Debug, Default)]
pub(super) struct Wasted {
    waiting: Vec<u32>,
    busy: Vec<bool>,
    /// How often CPUs had gone offline or come back: what changes then isn't counted anew.
    rebuilds: u64,
    at: u64,
    ps: u64,
}

impl Told {
    /// What there is when somebody begins to look on.
    pub(super) fn of(sim: &Simulation) -> (Self, Wasted) {
        let now = sim.now();
        let mut told = Self::default();
        let figures = sim.cpu_figures();
        for (cpu, f) in figures.iter().enumerate() {
            let c = &sim.cpus[cpu];
            let run = c.current().map(|task| {
                let t = &sim.tasks[task];
                Run { task, clock: t.clock, ran: t.ran }
            });
            // An act may last beyond now.
            let start = run.map_or(now.max(c.clock()), |r| r.clock.max(now));
            let run = run.map(|r| Run { clock: start, ..r });
            let busy = f.busy_ps + run.map_or(0, |_| start - now);
            let slept = sim.sched.idle.times(cpu, now).iter().sum();
            told.cpus.push(OfCpu { start, busy, slept, run, free: start, ..OfCpu::default() });
        }
        let mut wasted = Wasted { at: now, ..Wasted::default() };
        wasted.ps = sim.wasted_ps();
        wasted.rebuilds = sim.sched.rebuilds;
        let busy = |(cpu, c): (usize, &OfCpu)| c.run.is_some() || sim.called.out(cpu).is_some();
        wasted.busy = told.cpus.iter().enumerate().map(busy).collect();
        wasted.waiting = vec![0; sim.sched.q.sets.len()];
        for (id, t) in sim.tasks.iter().enumerate() {
            let cpu = told.cpus.iter().position(|c| c.run.is_some_and(|r| r.task == id));
            let waits = (t.on_queue && cpu.is_none()).then(|| (now, sim.sched.q.tasks[id].set));
            if let Some((_, set)) = waits {
                wasted.waiting[set as usize] += 1;
            }
            told.tasks.push(OfTask { cpu, until: 0, ran: t.ran, waits });
        }
        (told, wasted)
    }
    fn task(&mut self, task: usize) -> &mut OfTask {
        if task >= self.tasks.len() {
            self.tasks.resize(task + 1, OfTask::default());
        }
        &mut self.tasks[task]
    }
    fn waits(&mut self, task: usize, set: Option<u32>, since: u64, now: u64) {
        let before = std::mem::replace(&mut self.task(task).waits, set.map(|set| (since, set)));
        self.changes.extend(before.map(|(_, set)| (now, Change::Waited(set))));
        self.changes.extend(set.map(|set| (now, Change::Waits(set))));
    }
    pub(super) fn queued(&mut self, task: usize, waits: Option<u32>, now: u64) {
        let t = self.task(task);
        let cpu = t.cpu;
        hold!(self.found, cpu.is_none(), "task {task} is queued at {now} ps and runs on {cpu:?}");
        self.waits(task, waits, now, now);
    }
    pub(super) fn runs(&mut self, cpu: usize, task: usize, now: u64, clock: u64, ran: u64) {
        let (elsewhere, until) = (self.task(task).cpu.replace(cpu), self.task(task).until);
        let before = self.task(task).ran;
        hold!(
            self.found,
            before == ran,
            "task {task} had run for {before} ps when it stopped, and for {ran} when it runs again"
        );
        hold!(
            self.found,
            elsewhere.is_none(),
            "task {task} runs on CPU place {cpu} at {now} ps, and on {elsewhere:?}"
        );
        hold!(
            self.found,
            until <= clock,
            "task {task} runs on CPU place {cpu} from {clock} ps on, elsewhere until {until}"
        );
        self.waits(task, None, now, now);
        self.changes.push((now, Change::Busy(cpu)));
        let c = &mut self.cpus[cpu];
        let (free, run) = (c.free, c.run);
        hold!(
            self.found,
            run.is_none(),
            "task {task} runs on CPU place {cpu} at {now} ps beside {run:?}"
        );
        // Its last task may have had an act that lasted beyond now.
        let chosen = now.max(free);
        c.idle += chosen - free;
        hold!(
            self.found,
            clock >= chosen,
            "task {task} runs on CPU place {cpu} from {clock} ps on, which is free from {chosen}"
        );
        c.between += clock.saturating_sub(chosen);
        c.run = Some(Run { task, clock, ran });
    }
    pub(super) fn stops(
        &mut self,
        cpu: usize,
        task: usize,
        now: u64,
        (clock, ran): (u64, u64),
        waits: Option<u32>,
    ) {
        self.waits(task, waits, clock, now);
        let t = self.task(task);
        (t.cpu, t.until, t.ran) = (None, clock, ran);
        self.changes.push((now, Change::Idle(cpu)));
        let c = &mut self.cpus[cpu];
        let run = c.run.take();
        let Some(run) = run.filter(|r| r.task == task) else {
            self.found.push(format!("task {task} stops on CPU place {cpu}, where {run:?} ran"));
            return;
        };
        c.ran += clock - run.clock;
        c.free = clock;
        let (took, charged) = (clock - run.clock, ran - run.ran);
        hold!(
            self.found,
            took == charged,
            "task {task} had CPU place {cpu} for {took} ps until {clock}, and was charged {charged}"
        );
    }
    pub(super) fn comes_out(&mut self, cpu: usize, is: bool, now: u64) {
        self.changes.push((now, if is { Change::Busy(cpu) } else { Change::Idle(cpu) }));
    }
    pub(super) fn rests(&mut self, cpu: usize, from: u64) {
        let c = &mut self.cpus[cpu];
        c.between += from.saturating_sub(c.free);
        c.free = c.free.max(from);
    }

    /// What doesn't add up at this moment.
    pub(super) fn recount(&mut self, sim: &Simulation, wasted: &mut Wasted) -> Vec<String> {
        let mut found = Vec::new();
        let now = sim.now();
        let figures = sim.cpu_figures();
        for (cpu, c) in self.cpus.iter().enumerate() {
            let current = sim.cpus[cpu].current();
            let told = c.run.map(|r| r.task);
            hold!(found, current == told, "CPU place {cpu} runs {current:?}, told {told:?}");
            // Until when this CPU's time is booked: an act may last beyond now.
            let (mut ran, mut idle, mut busy) = (c.ran, c.idle, figures[cpu].busy_ps);
            let until = match c.run {
                Some(run) => {
                    let t = &sim.tasks[run.task];
                    let (took, charged) = (t.clock.saturating_sub(run.clock), t.ran - run.ran);
                    hold!(
                        found,
                        took == charged,
                        "task {} has had CPU place {cpu} for {took} ps, and was charged {charged}",
                        run.task
                    );
                    ran += took;
                    let from = now.max(sim.cpus[cpu].busy_since());
                    busy += run.clock.max(t.clock).max(now).saturating_sub(from);
                    // It has come so far, and has not been charged beyond.
                    ran += now.saturating_sub(run.clock.max(t.clock));
                    run.clock.max(t.clock).max(now)
                }
                None => {
                    idle += now.saturating_sub(c.free);
                    now.max(c.free)
                }
            };
            let (all, until, busy) = (ran + idle + c.between, until - c.start, busy - c.busy);
            hold!(
                found,
                all == until,
                "CPU place {cpu}: {ran} ps of tasks, {idle} idle, {} on the way to a task; that \
                 is {all} ps of {until}",
                c.between
            );
            // With idle states, what leaving one takes is time of the state.
            let states = || sim.sched.idle.times(cpu, now).iter().sum::<u64>() - c.slept;
            let idle = if sim.sched.idle.is_modelled() { states() } else { idle };
            hold!(
                found,
                busy + idle == until,
                "CPU place {cpu} was busy for {busy} ps and idle for {idle} of {until}"
            );
        }
        for (id, t) in self.tasks.iter().enumerate().filter(|(_, t)| t.cpu.is_none()) {
            let (ran, now) = (t.ran, sim.tasks[id].ran);
            hold!(
                found,
                ran == now,
                "task {id} had run for {ran} ps when it stopped, now for {now}"
            );
        }
        wasted.follow(sim, self.changes.drain(..), now);
        let (counted, kept) = (wasted.ps, sim.wasted_ps());
        hold!(found, counted == kept, "CPUs idled for {counted} ps beside tasks, counted {kept}");
        self.beside(sim, &mut found);
        found.append(&mut self.found);
        found
    }
    /// Since when a task waits, if it does.
    pub(super) fn waits_since(&self, task: usize) -> Option<u64> {
        self.tasks.get(task)?.waits.map(|w| w.0)
    }

    /// No CPU idles long beside a task that waits in its last-level cache, where all are alike.
    ///
    /// Source: specs/sched-balance.md.
    fn beside(&self, sim: &Simulation, found: &mut Vec<String>) {
        let now = sim.now();
        let domains = &sim.sched.domains;
        let q = &sim.sched.q;
        // Groups weigh tasks, and may be throttled.
        if !q.groups.all.is_empty() {
            return;
        }
        for llc in 0..sim.sched.balance.llcs.len() {
            let span: Vec<usize> =
                domains.llc_span(llc).iter().filter(|&cpu| q.is_online(cpu)).collect();
            let idlest = span
                .iter()
                .filter(|&&cpu| self.cpus[cpu].run.is_none())
                .map(|&cpu| (self.cpus[cpu].free, cpu))
                .min();
            let Some((idle_since, idle)) = idlest else { continue };
            // Groups whose CPUs differ, or tasks that do, may well leave one idle.
            let capacity = |cpu: usize| sim.cpus[cpu].capacity();
            let alike = span.windows(2).all(|w| capacity(w[0]) == capacity(w[1]));
            let smt = domains.siblings(idle).len() > 1;
            if !alike || smt {
                continue;
            }
            let level = (0..domains.levels(idle))
                .rfind(|&level| domains.at(idle, level).flags.has(Flags::SHARE_LLC));
            let Some(level) = level else { continue };
            // Twice the longest interval of an idle CPU, and ticks until somebody is asked.
            let ms = u64::from(domains.at(idle, level).max_interval());
            let most = 2 * ms * 1_000_000_000 + 4 * TICK;
            for (id, t) in sim.tasks.iter().enumerate() {
                let Some((since, set)) = self.tasks.get(id).and_then(|t| t.waits) else { continue };
                let plain = |id: usize| {
                    let t = &q.tasks[id];
                    t.terms.nice == 0 && t.terms.policy == SchedPolicy::Normal
                };
                let here = span.contains(&t.cpu) && t.on_queue;
                let on_cpu =
                    |other: &usize| sim.tasks[*other].cpu == t.cpu && sim.tasks[*other].on_queue;
                if !here
                    || !(0..sim.tasks.len()).filter(on_cpu).all(plain)
                    || set != crate::sched::ALL
                {
                    continue;
                }
                let both = now.saturating_sub(since.max(idle_since));
                hold!(
                    found,
                    both <= most,
                    "task {id} has waited on CPU place {} for {both} ps beside the idle CPU place \
                     {idle}, which shares its last-level cache; at most {most} are allowed",
                    t.cpu
                );
            }
        }
    }
}

impl Wasted {
    fn rate(&self, sim: &Simulation) -> u64 {
        let wanted = |cpu: usize| {
            let mut sets = self.waiting.iter().zip(&sim.sched.q.sets);
            sets.any(|(n, set)| *n > 0 && set.has(cpu))
        };
        (0..self.busy.len()).filter(|&cpu| !self.busy[cpu] && wanted(cpu)).count() as u64
    }
    fn follow(&mut self, sim: &Simulation, changes: impl Iterator<Item = (u64, Change)>, now: u64) {
        let sets = &sim.sched.q.sets;
        self.waiting.resize(sets.len(), 0);
        let same = std::mem::replace(&mut self.rebuilds, sim.sched.rebuilds) == sim.sched.rebuilds;
        for (at, change) in changes {
            if at > self.at {
                self.ps += self.rate(sim) * (at - self.at);
                self.at = at;
            }
            match change {
                Change::Waits(set) => self.waiting[set as usize] += 1,
                Change::Waited(set) => self.waiting[set as usize] -= 1,
                Change::Busy(cpu) => self.busy[cpu] = true,
                Change::Idle(cpu) => self.busy[cpu] = false,
            }
        }
        self.ps += self.rate(sim) * now.saturating_sub(self.at);
        self.at = self.at.max(now);
        if !same {
            self.ps = sim.wasted_ps();
        }
    }
}
