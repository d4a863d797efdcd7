//! Virtual time: CPUs, the tasks on them, and what happens when.
//!
//! A run advances in quanta. In each, every CPU in rising number lets its current
//! task run until the task's clock reaches the end of the quantum; then what is
//! due happens: ticks, timers, load windows, kswapd's wake-ups. A quantum ends
//! early at the next known event (docs/decisions/0003-time-and-batches.md).
//!
//! ```text
//! now        +10 µs      +20 µs   tick
//!  │ CPU 0 ────┤ CPU 0 ────┤ CPU 0 ─┤
//!  │ CPU 1 ────┤ CPU 1 ────┤ CPU 1 ─┤   CPU 1's task may overrun the end
//!  │           ▼ events    ▼        ▼   with a fault; it starts later then
//! ```
//!
//! `task` is what a task is, how it begins and ends; `steps` the turn of one that is made of
//! operations; `daemons` the turns of the kernel's and homenode's, `ksmd` that of the one
//! that merges pages; `accounting` what
//! accesses cost and what they leave. Other turns come as a [`Turn`].

mod accounting;
mod daemons;
mod ksmd;
mod steps;
mod task;

use crate::files::{Outcome, Writer};
use crate::hot::{CostTable, KINDS};
use crate::kernel::{Ctx, Kernel, TICK};
use crate::latency::Latencies;
use crate::load::WINDOW;
use crate::machine::agent::Agent;
use crate::memory::MemoryError;
use crate::ring::Pmu;
use homenode_core::costs::Cost;
use homenode_core::scenario::{Action, Order, Process};
use homenode_core::topology::Machine;
use homenode_core::units::CpuId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub use accounting::{PhaseFigures, ProcessFigures};
pub(crate) use task::{Program, Run, Task, Turn};

/// How long a task keeps a CPU that others wait for: the fair scheduler's base
/// slice on two CPUs (0.75 ms × (1 + log2 CPUs), 2.8 to 3 ms on larger machines).
const SLICE: u64 = 3_000_000_000;

struct Cpu {
    node: usize,
    queue: VecDeque<usize>,
    /// When the current task's slice ends.
    slice_end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The tick of all CPUs.
    Tick,
    /// Loads are measured.
    Window,
    /// A program of the scenario starts.
    Start(usize),
    /// A sleep ends.
    Wake(usize),
    /// kswapd looks again before it sleeps for good.
    Recheck(usize),
    /// A file of the kernel is read or written.
    File(usize),
    /// homenode looks around, if it still means to do so at this time.
    LookAround,
    /// DAMON's next look.
    Damon,
    /// ksmd's sleep ends, if it still is to end now.
    Ksmd,
}

/// A machine with its programs, at some moment of virtual time.
pub struct Simulation {
    pub(crate) machine: Machine,
    pub(crate) kernel: Kernel,
    pub(crate) tasks: Vec<Option<Box<Task>>>,
    cpus: Vec<Cpu>,
    /// CPU number → place in `cpus`.
    cpu_at: BTreeMap<u32, usize>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    stamp: u64,
    pub(crate) now: u64,
    window_start: u64,
    order: Order,
    processes: Vec<Process>,
    pub(crate) names: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) duration: Option<u64>,
    /// Per CPU node and kind: latency of one access now, in picoseconds.
    latency: Vec<CostTable>,
    /// Per CPU node and kind: unloaded.
    base: Vec<CostTable>,
    zones_used: usize,
    pub(crate) parallelism: u64,
    running_programs: usize,
    /// Ticks do nothing for balancing: for measuring what its being there costs.
    without_balancing: bool,
    pub(crate) memory_error: Option<MemoryError>,
    accesses: u64,
    /// Task of a recording → the task that replays it, the latest.
    pub(crate) replayed: BTreeMap<u32, usize>,
    /// When each round of a replay ended.
    pub(crate) round_ends: Vec<u64>,
    /// Reads and writes of the kernel's files, in the scenario's order.
    pub(crate) planned: Vec<Outcome>,
    /// By process: times of first touches.
    allocations: Vec<Latencies>,
    /// By space and place of a step: the threads that wait there for the others.
    barriers: BTreeMap<(usize, usize), Vec<usize>>,
    /// homenode, where it runs on this machine.
    pub(crate) agent: Option<Box<Agent>>,
    /// homenode has something to say: the run pauses.
    pub(crate) speaks: bool,
    /// Samples accesses, where homenode asks for that.
    pub(crate) pmu: Option<Box<Pmu>>,
    /// Writes that wait for memory to go offline.
    pub(crate) writer: Writer,
    /// Tasks that are homenode's, ksmd and who writes files: the others' PIDs don't depend on them.
    helpers: u32,
    /// Where contents are kept.
    ksmd: Option<ksmd::Ksmd>,
}

impl Simulation {
    pub(crate) fn empty(
        machine: &Machine,
        kernel: Kernel,
        order: Order,
        seed: u64,
        duration: Option<u64>,
    ) -> Self {
        let zones = kernel.memory.zones.len();
        let mut base = vec![[0; KINDS]; machine.nodes.len()];
        for (p, table) in base.iter_mut().enumerate() {
            for (z, zone) in kernel.memory.zones.iter().enumerate() {
                let to = machine.nodes[zone.node].id;
                if let Some(l) = machine.link(machine.nodes[p].id, to) {
                    table[z * 2] = l.read_latency.value;
                    table[z * 2 + 1] = l.write_latency.value;
                }
            }
        }
        let cpus: Vec<Cpu> = machine
            .cpus
            .iter()
            .map(|c| Cpu {
                node: machine.position(c.node).expect("a checked machine"),
                queue: VecDeque::new(),
                slice_end: 0,
            })
            .collect();
        let cpu_at = machine.cpus.iter().enumerate().map(|(i, c)| (c.id.0, i)).collect();
        let mut s = Self {
            machine: machine.clone(),
            kernel,
            tasks: Vec::new(),
            cpus,
            cpu_at,
            events: BinaryHeap::new(),
            stamp: 0,
            now: 0,
            window_start: 0,
            order,
            processes: Vec::new(),
            names: Vec::new(),
            seed,
            duration,
            latency: base.clone(),
            base,
            zones_used: zones,
            parallelism: machine.costs.get(Cost::MemoryParallelism).max(1000),
            running_programs: 0,
            without_balancing: false,
            memory_error: None,
            accesses: 0,
            replayed: BTreeMap::new(),
            round_ends: Vec::new(),
            planned: Vec::new(),
            allocations: Vec::new(),
            barriers: BTreeMap::new(),
            agent: None,
            speaks: false,
            pmu: None,
            writer: Writer::default(),
            helpers: 0,
            ksmd: None,
        };
        for node in 0..s.machine.nodes.len() {
            let space = usize::MAX;
            let id = s.new_task(usize::MAX, space, s.daemon_cpu(node), Program::Kswapd(node), 0);
            s.task_mut(id).run = Run::Sleeping;
        }
        s.at(TICK, Event::Tick);
        s.at(WINDOW, Event::Window);
        s
    }

    fn at(&mut self, time: u64, event: Event) {
        self.stamp += 1;
        self.events.push(Reverse((time, self.stamp, event)));
    }
    fn task_mut(&mut self, id: usize) -> &mut Task {
        self.tasks[id].as_mut().expect("a task is put back after its turn")
    }
    fn task(&self, id: usize) -> &Task {
        self.tasks[id].as_ref().expect("a task is put back after its turn")
    }

    /// Puts a task on its CPU's queue; at its front, it runs at once.
    pub(crate) fn enqueue(&mut self, id: usize, front: bool) {
        let now = self.now;
        let task = self.task_mut(id);
        task.run = Run::Runnable;
        task.clock = task.clock.max(now);
        let cpu = task.cpu;
        let slice = self.slice(id);
        let current = self.cpus[cpu].queue.front();
        let behind_ksmd = current.is_some_and(|&c| c != id && self.is_ksmd(c));
        let cpu = &mut self.cpus[cpu];
        if front {
            // A daemon that wakes runs at once, as a sleeper with much lag does.
            cpu.queue.push_front(id);
            cpu.slice_end = now + SLICE;
        } else if behind_ksmd {
            // ksmd gives way to whoever wakes.
            cpu.queue.push_front(id);
            cpu.slice_end = now + SLICE;
        } else {
            cpu.queue.push_back(id);
            if cpu.queue.len() == 1 {
                cpu.slice_end = now + slice;
            }
        }
    }
    /// Puts a task on the CPU that has the fewest.
    pub(crate) fn spread(&mut self, id: usize, front: bool) {
        self.task_mut(id).cpu = self.least_loaded(|_| true).unwrap_or(0);
        self.enqueue(id, front);
    }
    /// The CPU with the fewest tasks of those that `fits` names, the first of several.
    fn least_loaded(&self, fits: impl Fn(&Cpu) -> bool) -> Option<usize> {
        let cpus = self.cpus.iter().enumerate().filter(|(_, c)| fits(c));
        cpus.min_by_key(|(i, c)| (c.queue.len(), *i)).map(|(i, _)| i)
    }
    pub(crate) fn cpu_place(&self, cpu: CpuId) -> usize {
        self.cpu_at.get(&cpu.0).copied().unwrap_or(0)
    }

    /// Sets down when the kernel's files are read and written.
    pub(crate) fn plan(&mut self, actions: &[Action]) {
        for action in actions {
            self.at(action.at.0, Event::File(self.planned.len()));
            self.planned.push(Outcome::planned(action.clone()));
        }
    }
    pub(crate) fn set_without_balancing(&mut self) {
        self.without_balancing = true;
    }

    pub(crate) fn ctx(&self, id: usize) -> Ctx {
        let t = self.task(id);
        self.ctx_of(id, t)
    }
    /// The context of a task whose turn it is.
    pub(crate) fn ctx_of(&self, id: usize, t: &Task) -> Ctx {
        let cpu = self.machine.cpus[t.cpu].id.0;
        Ctx { task: id, node: self.cpus[t.cpu].node, cpu, clock: t.clock.max(self.now) }
    }

    // ── The run ────────────────────────────────────────────────────────────────

    /// Runs until all programs have ended or the duration is over.
    pub fn run(&mut self) {
        self.run_until(self.duration.unwrap_or(u64::MAX));
    }
    /// Virtual time in picoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }
    /// Whether all programs have ended.
    pub fn idle(&self) -> bool {
        self.running_programs == 0 || self.memory_error.is_some()
    }
    /// Accesses made so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Runs until all programs have ended or virtual time has reached `stop`.
    pub fn run_until(&mut self, stop: u64) {
        while !self.idle() && self.now < stop && !self.speaks {
            self.due();
            let next_event = self.events.peek().map_or(u64::MAX, |Reverse((t, ..))| *t);
            let limit = next_event.min(stop);
            match self.order {
                Order::Quantum(q) => {
                    if self.cpus.iter().all(|c| c.queue.is_empty()) {
                        self.now = limit;
                        continue;
                    }
                    let mut busy =
                        self.cpus.iter().enumerate().filter(|(_, c)| !c.queue.is_empty());
                    let first = busy.next().map(|(i, _)| i);
                    match (first, busy.next()) {
                        // Nobody to take turns with: on to the next event.
                        (Some(cpu), None) if self.cpus[cpu].queue.len() == 1 => {
                            self.alone(cpu, limit);
                        }
                        _ => {
                            let end = limit.min(self.now + q.0.max(1));
                            self.now = self.quantum(end);
                        }
                    }
                }
                Order::Strict => {
                    let behind = self.behind();
                    match behind {
                        Some((clock, cpu)) if clock < limit => {
                            self.now = self.now.max(clock);
                            self.turn(cpu, self.now, clock + 1);
                        }
                        _ => self.now = limit,
                    }
                }
            }
            self.wake_daemons();
            if let Some(watch) = &mut self.kernel.watch {
                watch.time(self.now);
            }
        }
        self.due();
    }
    /// The only task runs until `end`, or until it wakes somebody, starts somebody
    /// or stops.
    fn alone(&mut self, cpu: usize, end: u64) {
        let left = self.turn(cpu, self.now, end);
        let others = self.cpus.iter().map(|c| c.queue.len()).sum::<usize>() > 1;
        self.now = if left.is_some() || others || !self.kernel.woken.is_empty() {
            let id = self.cpus[cpu].queue.front();
            let clock = left.or(id.map(|&id| self.task(id).clock)).unwrap_or(end);
            clock.clamp(self.now, end)
        } else {
            end
        };
    }
    /// Every CPU's current task runs until `end`, or until one wakes somebody; when
    /// the quantum ended.
    fn quantum(&mut self, mut end: u64) -> u64 {
        for cpu in 0..self.cpus.len() {
            // A task that ends or sleeps leaves the rest of the quantum to the next.
            let mut from = self.now;
            while from < end {
                let before = self.kernel.woken.len();
                let left = self.turn(cpu, from, end);
                if self.kernel.woken.len() > before {
                    let id = self.cpus[cpu].queue.front();
                    let clock = left.or(id.map(|&id| self.task(id).clock)).unwrap_or(end);
                    end = clock.clamp(self.now + 1, end);
                }
                let Some(left_at) = left else { break };
                from = left_at;
            }
        }
        end
    }
    /// The CPU whose task is furthest behind, and that task's clock.
    fn behind(&self) -> Option<(u64, usize)> {
        self.cpus
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((self.task(*c.queue.front()?).clock.max(self.now), i)))
            .min()
    }
    /// Lets the current task of a CPU run from `from` until `end`. Returns the time
    /// at which it left the CPU to another, if it did.
    fn turn(&mut self, cpu: usize, from: u64, end: u64) -> Option<u64> {
        let id = *self.cpus[cpu].queue.front()?;
        let mut task = self.tasks[id].take().expect("one CPU runs a task");
        task.clock = task.clock.max(from);
        let before = task.clock;
        let number = self.machine.cpus[cpu].id.index();
        self.kernel.running[number] = Some((id, self.kernel.numa[id].pid));
        self.run_task(id, &mut task, end);
        task.ran += task.clock - before;
        self.kernel.numa[id].ran_ns = task.ran / 1000;
        let (clock, run) = (task.clock, task.run);
        self.tasks[id] = Some(task);
        if run != Run::Runnable {
            self.cpus[cpu].queue.retain(|&t| t != id);
            self.begin_slice(cpu, clock);
            if run == Run::Ended {
                if let Some(why) = self.task(id).killed {
                    self.end_space(self.task(id).space, Some(why));
                }
                self.task_ended(id);
            }
            return Some(clock);
        }
        if self.cpus[cpu].queue.len() > 1 && clock >= self.cpus[cpu].slice_end {
            let queue = &mut self.cpus[cpu].queue;
            // A daemon may have been put before it meanwhile: rotate the one that ran.
            if let Some(at) = queue.iter().position(|&t| t == id) {
                queue.remove(at);
                queue.push_back(id);
            }
            self.begin_slice(cpu, clock);
            return Some(clock);
        }
        None
    }
    /// The slice of a CPU's current task begins.
    fn begin_slice(&mut self, cpu: usize, clock: u64) {
        let slice = self.cpus[cpu].queue.front().map_or(SLICE, |&id| self.slice(id));
        self.cpus[cpu].slice_end = clock + slice;
    }

    /// Runs a task until its clock reaches `end` or it stops being runnable.
    fn run_task(&mut self, id: usize, task: &mut Task, end: u64) {
        match &task.program {
            Program::Steps(_) | Program::Ids { .. } => self.run_ops(id, task, end),
            Program::Turns(_) => self.run_turns(id, task, end),
            Program::Kswapd(node) => self.run_kswapd(*node, task, end),
            Program::Homenode | Program::Kdamond => self.run_helper(task, end),
            Program::Ksmd => self.run_ksmd(task, end),
            Program::Writer => self.run_writer(task, end),
            Program::Ended => {}
        }
    }
    /// The task's own code has its turn; meanwhile the task is without it.
    fn run_turns(&mut self, id: usize, task: &mut Task, end: u64) {
        let program = std::mem::replace(&mut task.program, Program::Ended);
        let Program::Turns(mut turns) = program else { return };
        turns.turn(self, id, task, end);
        if task.run != Run::Ended {
            task.program = Program::Turns(turns);
        }
    }

    // ── Events ─────────────────────────────────────────────────────────────────

    /// Handles everything that is due now.
    fn due(&mut self) {
        while let Some(&Reverse((time, _, event))) = self.events.peek() {
            if time > self.now {
                return;
            }
            self.events.pop();
            match event {
                Event::Tick => {
                    self.tick();
                    self.at(time + TICK, Event::Tick);
                }
                Event::Window => {
                    self.window();
                    self.at(time + WINDOW, Event::Window);
                }
                Event::Start(p) => self.start_process(p),
                Event::Wake(id) => {
                    if self.task(id).run == Run::Sleeping {
                        self.enqueue(id, false);
                    }
                }
                Event::Recheck(node) => self.kernel.kswapd_recheck(node),
                Event::File(action) => self.act(action),
                Event::LookAround => self.look_around(time),
                Event::Damon => self.wake_damon(),
                Event::Ksmd => self.ksmd_slept(time),
            }
        }
    }
    /// The tick of every CPU, for the task that runs there.
    fn tick(&mut self) {
        self.charge_displaced();
        if self.without_balancing {
            return;
        }
        for cpu in 0..self.cpus.len() {
            let Some(&id) = self.cpus[cpu].queue.front() else { continue };
            if self.task(id).space == usize::MAX {
                continue;
            }
            let mut ctx = self.ctx(id);
            let before = ctx.clock;
            self.kernel.numa_tick(&mut ctx, id);
            let task = self.task_mut(id);
            task.clock = ctx.clock;
            task.ran += ctx.clock - before;
            let ran = task.ran;
            self.kernel.numa[id].ran_ns = ran / 1000;
        }
    }
}
