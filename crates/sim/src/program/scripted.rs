//! A task of a script of scheduling: its parts of the steps, one after the other.
//!
//! ```text
//!  begins + offset of the step + when ──▶ acts ──▶ sleeps until its next part begins
//! ```
//!
//! Source: specs/end-to-end.md#script.

use super::compute::Computing;
use super::{Ahead, Program};
use crate::channel::Tried;
use crate::cpus::parts;
use crate::sched::Waker;
use crate::simulation::Simulation;
use crate::tasks::{On, Run, Why};
use crate::watch::By as Who;
use homenode_core::costs::Cost;
use homenode_core::scenario::Rights;
use homenode_core::units::CpuId;
use homenode_machine::endtoend::sched::{Act, By, Name, Part, Script, Start};
use std::sync::{Arc, OnceLock};

/// A task that computes asks so often how long it has run. It is told by charging it, so that its
/// slice is over to the microsecond and not at the next tick.
const ASKS: u64 = 30_000_000;

/// A script, and what all of its tasks know.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) script: Script,
    pub(crate) names: Vec<Name>,
    /// When its first step begins, and when each step does, counted from there.
    pub(crate) begins: u64,
    pub(crate) offsets: Vec<u64>,
    /// The task of each name, once it was made.
    pub(crate) tasks: Vec<OnceLock<usize>>,
    /// The first task's pipe and futex among all channels; the others' follow.
    pub(crate) pipes: u32,
    pub(crate) futexes: u32,
}

impl Crew {
    pub(crate) fn place(&self, who: Name) -> Option<usize> {
        self.names.iter().position(|name| *name == who)
    }
    /// The number of a task, once it was made.
    pub(crate) fn task(&self, who: Name) -> Option<usize> {
        self.tasks[self.place(who)?].get().copied()
    }
    fn channel(&self, of: usize, by: By) -> u32 {
        of as u32
            + match by {
                By::Pipe => self.pipes,
                By::Futex => self.futexes,
            }
    }
    /// A task's next part from a step on, and the number of that step.
    fn part(&self, of: usize, from: usize) -> Option<(usize, &Part)> {
        let steps = self.script.steps.iter().enumerate().skip(from);
        let who = self.names[of];
        let mut parts = steps.map(|(k, step)| (k, step.parts.iter().find(|part| part.who == who)));
        parts.find_map(|(k, part)| Some((k, part?)))
    }
}

/// A task of a script.
pub(crate) struct Scripted {
    crew: Arc<Crew>,
    /// The place of its name.
    of: usize,
    /// Its next part is in this step or a later one.
    step: usize,
    /// How many of the part's acts are done; `None`: the part has not begun.
    done: Option<usize>,
    /// It has paid for what it does next.
    paid: bool,
    /// It has begun to end.
    ending: bool,
    /// It computes until it has run so long.
    until: Option<u64>,
    computing: Computing,
}

impl Scripted {
    /// The task at that place among the names, from a step on.
    pub(crate) fn new(crew: Arc<Crew>, of: usize, step: usize) -> Self {
        let computing = Computing::default();
        Self { crew, of, step, done: None, paid: false, ending: false, until: None, computing }
    }
    /// Waits until it has been woken so; whether that is over.
    fn waits(&mut self, sim: &mut Simulation, id: usize, by: By) -> bool {
        let channel = self.crew.channel(self.of, by);
        let tried = match by {
            By::Futex => sim.channels.futex_wait(channel, id),
            By::Pipe => {
                match sim.channels.read(channel, (id, sim.tasks[id].cpu), 1, &mut Vec::new()) {
                    0 => Tried::Waits,
                    _ => Tried::Done,
                }
            }
        };
        if tried == Tried::Waits {
            sim.block(id, On::Channel(channel));
        }
        tried == Tried::Done
    }
    /// What an act or a wait costs before it is done.
    fn price(sim: &Simulation, act: &Act) -> u64 {
        let cost = match act {
            Act::Run(_) | Act::Exit => return 0,
            Act::Wake(_, By::Pipe) => Cost::PipeWrite,
            Act::Await(By::Pipe) => Cost::PipeRead,
            Act::Wake(_, By::Futex) | Act::Await(By::Futex) => Cost::FutexCall,
            Act::Fork(_) => Cost::Fork,
            Act::Sleep(_) | Act::Allow(..) | Act::Yield | Act::Write(..) => Cost::Syscall,
        };
        sim.kernel.prices[cost]
    }
    /// Does an act; whether it is done.
    fn act_once(&mut self, sim: &mut Simulation, id: usize, act: &Act) -> bool {
        let crew = self.crew.clone();
        let place = |who: &Name| crew.place(who).expect("a script that was checked");
        let task = |who: &Name| crew.task(who).expect("a script that was checked");
        match act {
            Act::Run(long) => {
                let ran = sim.tasks[id].ran;
                let until = *self.until.get_or_insert(ran + long.0);
                if ran < until {
                    sim.asks_runtime(id);
                    self.computing.begin(parts(ASKS.min(until - ran)));
                    return false;
                }
                self.until = None;
            }
            Act::Sleep(long) => {
                let until = sim.tasks[id].clock + long.0;
                sim.sleep_until(id, until);
            }
            Act::Wake(whom, by) => {
                let mut wakes = std::mem::take(&mut sim.wakes);
                let channel = crew.channel(place(whom), *by);
                match by {
                    By::Pipe => {
                        // One byte always fits.
                        sim.channels.write(channel, (id, sim.tasks[id].cpu), 1, &mut wakes);
                    }
                    By::Futex => sim.channels.futex_wake(channel, 1, &mut wakes),
                }
                let (cpu, sync) = (sim.tasks[id].cpu, *by == By::Pipe);
                let waker = Waker { cpu, task: Some(id), sync, in_task: true };
                for other in wakes.drain(..) {
                    sim.wake_from(other, Who::Task(id), waker);
                }
                sim.wakes = wakes;
            }
            Act::Await(by) => return self.waits(sim, id, *by),
            Act::Allow(whom, cpus) => {
                let places: Vec<usize> =
                    cpus.iter().map(|&cpu| sim.cpus.place(CpuId(cpu))).collect();
                sim.set_affinity(id, task(whom), &places);
            }
            Act::Fork(child) => {
                let mut ctx = sim.ctx(id);
                let before = ctx.clock;
                let of = place(child);
                let program = Box::new(Self::new(crew.clone(), of, self.step));
                if let Some(child) = sim.fork_task(&mut ctx, id, program) {
                    let first = crew.tasks[of].set(child);
                    debug_assert!(first.is_ok(), "a script that was checked makes it once");
                    sim.enqueue(child);
                }
                sim.charge(id, ctx.clock - before, Why::System);
            }
            Act::Yield => sim.yield_now(id),
            Act::Write(path, text) => {
                if let Err(error) = sim.write_file(path, text, Rights::Root) {
                    sim.deadlock = Some(error.to_string());
                }
            }
            Act::Exit => {
                if !std::mem::replace(&mut self.ending, true) {
                    sim.leaves_group(id);
                    return false;
                }
                sim.tasks[id].run = Run::Ended;
            }
        }
        true
    }
}

impl Program for Scripted {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, _until: u64) -> Ahead {
        if self.computing.is_done() {
            return Ahead { clock: sim.tasks[id].clock, act: true, far: false };
        }
        self.computing.ahead(sim, id)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        if self.computing.is_done() {
            return sim.tasks[id].clock;
        }
        self.computing.back(sim, id, to)
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        if !self.computing.is_done() {
            self.computing.settle(sim, id);
        }
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        if !self.computing.is_done() {
            return;
        }
        let crew = self.crew.clone();
        let Some((step, part)) = crew.part(self.of, self.step) else {
            // It sleeps for good.
            sim.block(id, On::Sleep);
            return;
        };
        self.step = step;
        let Some(done) = self.done else {
            let begun = match part.start {
                Start::Forked => true,
                Start::Woken(by) => self.waits(sim, id, by),
                Start::At(when) => {
                    let time = crew.begins + crew.offsets[step] + when.0;
                    sim.sleep_until(id, time.max(sim.tasks[id].clock));
                    true
                }
            };
            self.done = begun.then_some(0);
            return;
        };
        let Some(act) = part.acts.get(done) else {
            (self.step, self.done) = (step + 1, None);
            return;
        };
        if !std::mem::replace(&mut self.paid, true) {
            let price = Self::price(sim, act);
            sim.charge(id, price, Why::System);
            if price > 0 {
                return;
            }
        }
        if self.act_once(sim, id, act) {
            (self.done, self.paid) = (Some(done + 1), false);
        }
    }
}
