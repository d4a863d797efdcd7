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

use crate::files::{Outcome, Writer};
use crate::hot::{self, CostTable, Counts, KINDS, OP_PAGE, OP_WRITE};
use crate::kernel::{Ctx, Fatal, Kernel, Mapping, TICK, TaskNuma};
use crate::latency::Latencies;
use crate::load::WINDOW;
use crate::machine::agent::Agent;
use crate::machine::ring::Pmu;
use crate::memory::MemoryError;
use crate::overlap::{self, Overlap};
use crate::page::{State, Word};
use crate::program::{Access, Steps};
use crate::random::Stream;
use crate::replay::Player;
use crate::space::Kind;
use crate::vmstat::Item;
use homenode_core::costs::Cost;
use homenode_core::scenario::{Action, Again, Map, Order, Policy, Process, Step, Until};
use homenode_core::topology::Machine;
use homenode_core::units::{CpuId, Pages};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

/// How long a task keeps a CPU that others wait for: the fair scheduler's base
/// slice on two CPUs (0.75 ms × (1 + log2 CPUs), 2.8 to 3 ms on larger machines).
const SLICE: u64 = 3_000_000_000;

/// What a task is.
pub(crate) enum Program {
    /// The steps of a scenario.
    Steps(Box<Steps>),
    /// Operations made beforehand on one mapping, over and over.
    Ids { ids: Arc<[u32]>, at: usize },
    /// A recording's task.
    Player(Box<Player>),
    /// A node's kswapd.
    Kswapd(usize),
    /// homenode, the daemon.
    Homenode,
    /// DAMON's thread, on homenode's behalf.
    Kdamond,
    /// Whoever writes to files whose answer takes time: memory going offline.
    Writer,
    /// It has ended.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// On its CPU's queue.
    Runnable,
    /// Until a timer.
    Sleeping,
    /// Until all its children have ended.
    Waiting,
    /// Until the other threads come to the same step.
    Barrier,
    /// For good.
    Ended,
}

/// A task: a thread of a program, or a daemon.
pub(crate) struct Task {
    pub(crate) process: usize,
    pub(crate) space: usize,
    pub(crate) cpu: usize,
    pub(crate) clock: u64,
    /// Processor time in picoseconds.
    pub(crate) ran: u64,
    pub(crate) run: Run,
    pub(crate) program: Program,
    /// Operations being worked through, from `at`.
    ops: Vec<u32>,
    at: usize,
    /// Computing before each access, in picoseconds.
    compute: u64,
    deadline: u64,
    pub(crate) parent: Option<usize>,
    pub(crate) children: usize,
    /// The task whose end this one waits for.
    pub(crate) waits_for: Option<usize>,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// Accesses by zone and direction.
    pub(crate) accesses: [u64; KINDS],
    pub(crate) killed: Option<Fatal>,
    /// What its steps that access memory did, by place of the step.
    phases: BTreeMap<usize, Phase>,
    /// The step it is in, when it began, and the accesses before it.
    phase: Option<(usize, u64, [u64; KINDS])>,
}

/// What one task did in one of its steps.
#[derive(Clone, Copy, Default)]
struct Phase {
    /// When it first began and last ended.
    from: u64,
    to: u64,
    /// Time in it.
    time: u64,
    accesses: [u64; KINDS],
}

impl Task {
    /// The phase that the task is in, as it would be if it ended at `clock`.
    fn phase_until(&self, clock: u64) -> Option<(usize, Phase)> {
        let (step, began, before) = self.phase?;
        let mut p =
            self.phases.get(&step).copied().unwrap_or(Phase { from: began, ..Phase::default() });
        p.to = clock;
        p.time += clock.saturating_sub(began);
        for (p, (now, before)) in p.accesses.iter_mut().zip(self.accesses.iter().zip(before)) {
            *p += now - before;
        }
        Some((step, p))
    }
    fn begin_phase(&mut self, step: usize) {
        self.phase = Some((step, self.clock, self.accesses));
    }
    fn end_phase(&mut self) {
        if let Some((step, p)) = self.phase_until(self.clock) {
            self.phases.insert(step, p);
            self.phase = None;
        }
    }
}

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
}

/// What one process did, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFigures {
    /// Its name.
    pub name: String,
    /// From its start to its end (or to the end of the run), in picoseconds.
    pub time_ps: u64,
    /// Whether it ended by itself.
    pub ended: bool,
    /// Whether memory ran out or an access was not allowed.
    pub killed: Option<String>,
    /// Processor time of its threads, in picoseconds.
    pub ran_ps: u64,
    /// Accesses by place of the node: reads and writes.
    pub accesses: Vec<[u64; 2]>,
    /// What its steps that access memory did, in the order of the steps.
    pub phases: Vec<PhaseFigures>,
    /// How long each first touch of a page took, direct reclaim included.
    pub allocations: Latencies,
}

/// What the threads of a process did in one step that accesses memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseFigures {
    /// The step's place among the process's steps, from 0.
    pub step: usize,
    /// Whether the step touches each page once, instead of following a pattern.
    pub first_touch: bool,
    /// Threads that took part.
    pub threads: u64,
    /// When the first thread began it and the last one ended it, in picoseconds.
    pub span_ps: (u64, u64),
    /// Time of all threads in it, in picoseconds.
    pub time_ps: u64,
    /// Accesses by place of the node: reads and writes.
    pub accesses: Vec<[u64; 2]>,
}

impl PhaseFigures {
    /// Accesses of all threads.
    pub fn count(&self) -> u64 {
        self.accesses.iter().flatten().sum()
    }
    /// Accesses of all threads per second, by their mean time: pmbench's score where the
    /// step is its main part. 0 where no time has passed.
    ///
    /// Source: specs/pmbench.md#score.
    pub fn per_second(&self) -> u64 {
        let all = u128::from(self.count()) * u128::from(self.threads) * 1_000_000_000_000;
        all.checked_div(u128::from(self.time_ps)).unwrap_or(0) as u64
    }
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
    /// Tasks that are homenode's or write files: the others' PIDs don't depend on them.
    helpers: u32,
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

    /// The CPU that a daemon of a node runs on: an idle one of the node, else the
    /// one with the fewest tasks; a node without CPUs borrows from all.
    fn daemon_cpu(&self, node: usize) -> usize {
        let own = |c: &&(usize, &Cpu)| c.1.node == node;
        let all: Vec<(usize, &Cpu)> = self.cpus.iter().enumerate().collect();
        let best = |cpus: &mut dyn Iterator<Item = &(usize, &Cpu)>| {
            cpus.min_by_key(|(i, c)| (c.queue.len(), *i)).map(|(i, _)| *i)
        };
        best(&mut all.iter().filter(own)).or_else(|| best(&mut all.iter())).unwrap_or(0)
    }

    pub(crate) fn new_task(
        &mut self,
        process: usize,
        space: usize,
        cpu: usize,
        program: Program,
        now: u64,
    ) -> usize {
        let id = self.tasks.len();
        // PIDs begin where a booted system's begin; the low bits matter (SPEC §A.7).
        let pid = match program {
            Program::Homenode | Program::Kdamond | Program::Writer => {
                self.helpers += 1;
                900 + self.helpers
            }
            _ => 1000 + id as u32 - self.helpers,
        };
        self.kernel.numa.push(TaskNuma::new(pid, space));
        self.tasks.push(Some(Box::new(Task {
            process,
            space,
            cpu,
            clock: now,
            ran: 0,
            run: Run::Runnable,
            program,
            ops: Vec::new(),
            at: 0,
            compute: 0,
            deadline: u64::MAX,
            parent: None,
            children: 0,
            waits_for: None,
            started: now,
            ended: 0,
            accesses: [0; KINDS],
            killed: None,
            phases: BTreeMap::new(),
            phase: None,
        })));
        id
    }
    pub(crate) fn enqueue(&mut self, id: usize, front: bool) {
        let now = self.now;
        let task = self.task_mut(id);
        task.run = Run::Runnable;
        task.clock = task.clock.max(now);
        let cpu = task.cpu;
        let cpu = &mut self.cpus[cpu];
        if front {
            // A daemon that wakes runs at once, as a sleeper with much lag does.
            cpu.queue.push_front(id);
            cpu.slice_end = now + SLICE;
        } else {
            cpu.queue.push_back(id);
            if cpu.queue.len() == 1 {
                cpu.slice_end = now + SLICE;
            }
        }
    }
    pub(crate) fn cpu_place(&self, cpu: CpuId) -> usize {
        self.cpu_at.get(&cpu.0).copied().unwrap_or(0)
    }

    /// Adds a program of a scenario.
    pub(crate) fn add_process(&mut self, process: Process) {
        let start = process.start.0;
        self.names.push(process.name.clone());
        self.processes.push(process);
        self.running_programs += 1;
        self.at(start, Event::Start(self.processes.len() - 1));
    }
    /// Adds a program that isn't made of steps; its place among the processes.
    pub(crate) fn add_program(&mut self, name: &str) -> usize {
        self.names.push(name.to_owned());
        let empty = Process {
            name: name.to_owned(),
            cpus: Vec::new(),
            start: homenode_core::units::Picos::ZERO,
            policy: Policy::Default,
            memory_merge: false,
            maps: Vec::new(),
            steps: Vec::new(),
        };
        self.processes.push(empty);
        self.running_programs += 1;
        self.processes.len() - 1
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

    fn start_process(&mut self, number: usize) {
        let mut p = self.processes[number].clone();
        // A policy of nodes without memory is refused: the program goes on without.
        p.policy = self.kernel.settable(&p.policy).unwrap_or_default();
        let space = self.kernel.new_space();
        let mut ids = Vec::new();
        for (i, &cpu) in p.cpus.iter().enumerate() {
            let cpu = self.cpu_place(cpu);
            let steps = Steps {
                steps: p.steps.clone().into(),
                at: 0,
                access: None,
                thread: i as u64,
                threads: p.cpus.len() as u64,
                label: format!("{}/{i}", p.name),
                rounds: BTreeMap::new(),
                returns: 0,
            };
            let id = self.new_task(number, space, cpu, Program::Steps(Box::new(steps)), self.now);
            self.kernel.numa[id].policy = p.policy.clone();
            ids.push(id);
        }
        self.kernel.space_mut(space).users = ids.len() as u32;
        self.born(&ids);
        let Some(&first) = ids.first() else {
            self.running_programs -= 1;
            return;
        };
        let mut ctx = self.ctx(first);
        for m in &p.maps {
            self.map(&mut ctx, space, m, &p.policy);
        }
        self.task_mut(first).clock = ctx.clock;
        for id in ids {
            self.enqueue(id, false);
        }
    }
    /// Makes a mapping of a scenario, above all others.
    fn map(&mut self, ctx: &mut Ctx, space: usize, m: &Map, policy: &Policy) {
        let mapping = Mapping {
            start: self.kernel.space(space).above(),
            pages: Pages::holding(m.size).0,
            kind: Kind {
                file: m.file,
                shared: m.shared,
                readable: true,
                writable: !m.read_only,
                executable: false,
                huge: m.huge,
                policy: self.kernel.settable(&m.policy).unwrap_or_default(),
            },
            name: m.name.clone(),
        };
        if let Err(e) = self.kernel.map(ctx, space, mapping, policy) {
            self.memory_error.get_or_insert(e);
        }
    }
    /// Starts a program now, beside those that run; its first task.
    pub(crate) fn spawn(&mut self, process: Process) -> usize {
        self.names.push(process.name.clone());
        self.processes.push(process);
        self.running_programs += 1;
        let first = self.tasks.len();
        self.start_process(self.processes.len() - 1);
        first
    }
    /// Ends all threads of a space, as by a signal.
    pub(crate) fn end_space(&mut self, space: usize) {
        for id in 0..self.tasks.len() {
            let t = self.task_mut(id);
            if t.space != space || t.run == Run::Ended {
                continue;
            }
            (t.run, t.program) = (Run::Ended, Program::Ended);
            let cpu = t.cpu;
            self.cpus[cpu].queue.retain(|&q| q != id);
            self.task_ended(id);
        }
    }
    /// Homenode's task or DAMON's begins; it sleeps at first.
    pub(crate) fn helper(&mut self, program: Program) -> usize {
        let id = self.new_task(usize::MAX, usize::MAX, 0, program, self.now);
        self.task_mut(id).run = Run::Sleeping;
        id
    }
    /// Wakes a helper on the least loaded CPU, unless it is awake.
    pub(crate) fn wake_helper(&mut self, id: usize) {
        if self.task(id).run != Run::Sleeping {
            return;
        }
        let cpus = self.cpus.iter().enumerate();
        let cpu = cpus.min_by_key(|(i, c)| (c.queue.len(), *i)).map_or(0, |(i, _)| i);
        self.task_mut(id).cpu = cpu;
        self.enqueue(id, true);
    }
    pub(crate) fn at_look_around(&mut self, time: u64) {
        self.at(time, Event::LookAround);
    }
    fn run_helper(&mut self, task: &mut Task, end: u64) {
        let Some(mut agent) = self.agent.take() else {
            task.run = Run::Sleeping;
            return;
        };
        let mut ctx = self.ctx_of(usize::MAX, task);
        ctx.clock = task.clock;
        let sleeps = if let Program::Kdamond = task.program {
            if let Some(next) = agent.damon_look(&mut self.kernel, &mut ctx) {
                self.at(next, Event::Damon);
            }
            true
        } else {
            agent.work(self, &mut ctx, end)
        };
        if sleeps {
            task.run = Run::Sleeping;
        }
        task.clock = ctx.clock;
        self.speaks |= agent.has_word();
        self.agent = Some(agent);
    }
    /// The balancing state of a new process: its first task as by fork and exec of
    /// a launcher, the others as threads of it.
    fn born(&mut self, ids: &[usize]) {
        let now = self.now;
        for (i, &id) in ids.iter().enumerate() {
            let of = if i == 0 { None } else { Some(ids[0]) };
            self.kernel.numa_born(id, of, i as u32 + 1, now);
        }
    }
    pub(crate) fn ctx(&self, id: usize) -> Ctx {
        let t = self.task(id);
        self.ctx_of(id, t)
    }
    /// The context of a task whose turn it is.
    pub(crate) fn ctx_for(&self, id: usize, t: &Task) -> Ctx {
        self.ctx_of(id, t)
    }
    /// A thread in the space of a task whose turn it is, not yet enqueued.
    pub(crate) fn thread_task(&mut self, id: usize, task: &mut Task, program: Program) -> usize {
        let thread = self.new_task(task.process, task.space, task.cpu, program, task.clock);
        self.kernel.numa[thread].policy = self.kernel.numa[id].policy.clone();
        self.kernel.numa_thread(thread, id, task.clock);
        self.kernel.space_mut(task.space).users += 1;
        thread
    }
    /// Puts a new task on the CPU that has the fewest.
    pub(crate) fn spread(&mut self, id: usize) {
        let cpus = self.cpus.iter().enumerate();
        let cpu = cpus.min_by_key(|(i, c)| (c.queue.len(), *i)).map_or(0, |(i, _)| i);
        self.task_mut(id).cpu = cpu;
        self.enqueue(id, false);
    }
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
                            self.turn(cpu, clock + 1);
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
        let left = self.turn_from(cpu, self.now, end);
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
                let left = self.turn_from(cpu, from, end);
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
    fn turn(&mut self, cpu: usize, end: u64) {
        self.turn_from(cpu, self.now, end);
    }
    /// Lets the current task of a CPU run from `from` until `end`. Returns the time
    /// at which it left the CPU to another, if it did.
    fn turn_from(&mut self, cpu: usize, from: u64, end: u64) -> Option<u64> {
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
            self.cpus[cpu].slice_end = clock + SLICE;
            if run == Run::Ended {
                if let Some(why) = self.task(id).killed {
                    self.kill_siblings(id, why);
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
            self.cpus[cpu].slice_end = clock + SLICE;
            return Some(clock);
        }
        None
    }

    /// Runs a task until its clock reaches `end` or it stops being runnable.
    fn run_task(&mut self, id: usize, task: &mut Task, end: u64) {
        if let Program::Kswapd(node) = task.program {
            let mut ctx = self.ctx_of(usize::MAX, task);
            ctx.clock = task.clock;
            if self.kernel.kswapd_run(&mut ctx, node, end) {
                task.run = Run::Sleeping;
                self.at(ctx.clock + RECHECK, Event::Recheck(node));
            }
            task.clock = ctx.clock;
            return;
        }
        if let Program::Homenode | Program::Kdamond = task.program {
            self.run_helper(task, end);
            return;
        }
        if let Program::Writer = task.program {
            self.run_writer(task, end);
            return;
        }
        if let Program::Player(_) = task.program {
            crate::replay::run(self, id, task, end);
            return;
        }
        let lent = match &task.program {
            Program::Ids { ids, .. } => Some(ids.clone()),
            _ => None,
        };
        let mut counts = Counts::default();
        let mut cost = [0; KINDS];
        let node = self.cpus[task.cpu].node;
        let kinds = self.zones_used * 2;
        let mut clock = task.clock;
        let mut end = end;
        self.cost_table(node, task.compute, &mut cost);
        while clock < end && task.run == Run::Runnable {
            let ops: &[u32] = match (&lent, &task.program) {
                (Some(ids), Program::Ids { at, .. }) => &ids[*at..],
                _ => &task.ops[task.at..],
            };
            if ops.is_empty() || clock >= task.deadline {
                task.clock = clock;
                // A copy, so that the loop's own counts need no address.
                let mut sum = std::mem::take(&mut counts);
                self.advance(id, task, &mut sum);
                counts = sum;
                clock = task.clock;
                self.cost_table(node, task.compute, &mut cost);
                continue;
            }
            let limit = end.min(task.deadline);
            let words = &mut self.kernel.memory.words[..];
            let mut done = hot::run(ops, words, &cost, kinds, &mut counts, &mut clock, limit);
            if clock < limit && done < ops.len() {
                let op = ops[done];
                let mut ctx = self.ctx_of(id, task);
                ctx.clock = clock;
                match self.serve(&mut ctx, task.process, op & OP_PAGE, op & OP_WRITE != 0) {
                    Ok(zone) => {
                        let kind = zone * 2 + (op >> 31) as usize;
                        clock = ctx.clock + cost[kind];
                        counts.add(kind);
                        done += 1;
                    }
                    Err(why) => {
                        clock = ctx.clock;
                        self.kill(task, why);
                    }
                }
                // Somebody was woken: the quantum ends here, so that they start now.
                if !self.kernel.woken.is_empty() {
                    end = end.min(clock);
                }
            }
            if let Some(pmu) = self.pmu.as_deref_mut() {
                let ops: &[u32] = match (&lent, &task.program) {
                    (Some(ids), Program::Ids { at, .. }) => &ids[*at..],
                    _ => &task.ops[task.at..],
                };
                let from = self.machine.nodes[node].id;
                let blocks = &self.kernel.memory.blocks;
                clock += pmu.burst((task.cpu, from), task.space, &ops[..done], blocks);
            }
            match &mut task.program {
                Program::Ids { ids, at } => {
                    *at += done;
                    if *at >= ids.len() {
                        *at = 0;
                    }
                }
                _ => task.at += done,
            }
        }
        task.clock = clock;
        self.account(task, &mut counts);
    }
    /// Serves an access that is an event; the zone. A first touch's time goes into its
    /// process's figures.
    pub(crate) fn serve(
        &mut self,
        ctx: &mut Ctx,
        process: usize,
        page: u32,
        write: bool,
    ) -> Result<usize, Fatal> {
        if Word(self.kernel.memory.words[page as usize]).state() != State::None {
            return self.kernel.touch(ctx, page, write);
        }
        let before = ctx.clock;
        let served = self.kernel.touch(ctx, page, write);
        if served.is_ok() {
            if process >= self.allocations.len() {
                self.allocations.resize(process + 1, Latencies::default());
            }
            self.allocations[process].add(ctx.clock - before);
        }
        served
    }
    /// Adds what a task's accesses moved to its counts and to the load of the nodes.
    fn account(&mut self, task: &mut Task, counts: &mut Counts) {
        let mut sum = [0; KINDS];
        counts.drain_into(&mut sum);
        // Each access is a line of its own, far from the last.
        self.account_lines(task, &sum, &sum, &sum);
    }
    /// The same with lines by kind, the grains of the medium that they lie in, and how
    /// many of those that are written are so in part only.
    pub(crate) fn account_lines(
        &mut self,
        task: &mut Task,
        sum: &[u64; KINDS],
        grains: &[u64; KINDS],
        parts: &[u64; KINDS],
    ) {
        for zone in 0..self.zones_used {
            let (r, w) = (sum[zone * 2], sum[zone * 2 + 1]);
            if r + w == 0 {
                continue;
            }
            task.accesses[zone * 2] += r;
            task.accesses[zone * 2 + 1] += w;
            self.accesses += r + w;
            let load = &mut self.kernel.loads[self.kernel.memory.zones[zone].node];
            let write = zone * 2 + 1;
            load.access(grains[zone * 2], grains[write], parts[write]);
        }
    }
    fn cost_table(&self, node: usize, compute: u64, cost: &mut CostTable) {
        let latency = &self.latency[node];
        for k in 0..self.zones_used * 2 {
            cost[k] = latency[k] + compute;
        }
    }
    /// Latencies that CPUs of a node see now, by kind.
    pub(crate) fn latency_from(&self, cpu: usize) -> &CostTable {
        &self.latency[self.cpus[cpu].node]
    }
    /// The least time of a line that CPUs of a node see now.
    pub(crate) fn floor_from(&self, cpu: usize, o: &Overlap) -> overlap::Floor {
        let base = &self.base[self.cpus[cpu].node];
        let load = |k: usize| self.kernel.loads[self.kernel.memory.zones[k / 2].node].clone();
        overlap::floor(o, base, self.latency_from(cpu), self.zones_used * 2, load)
    }
    pub(crate) fn kill(&mut self, task: &mut Task, why: Fatal) {
        if why == Fatal::Oom {
            let node = self.cpus[task.cpu].node;
            self.kernel.stat.add(node, Item::OomKill, 1);
        }
        task.killed = Some(why);
        task.run = Run::Ended;
        task.program = Program::Ended;
    }

    /// Whatever kills a thread kills its process: the other threads of its space.
    fn kill_siblings(&mut self, id: usize, why: Fatal) {
        let space = self.task(id).space;
        for other in 0..self.tasks.len() {
            let t = self.task_mut(other);
            if other == id || t.space != space || t.run == Run::Ended {
                continue;
            }
            (t.run, t.killed, t.program) = (Run::Ended, Some(why), Program::Ended);
            let cpu = t.cpu;
            self.cpus[cpu].queue.retain(|&q| q != other);
            self.task_ended(other);
        }
    }

    // ── Steps ──────────────────────────────────────────────────────────────────

    /// Makes the next operations of a task, or does its next step.
    fn advance(&mut self, id: usize, task: &mut Task, counts: &mut Counts) {
        let late = task.clock >= task.deadline;
        let Program::Steps(steps) = &mut task.program else { return };
        if let Some(access) = steps.access.as_mut().filter(|_| !late) {
            access.fill(task.clock, &mut task.ops);
            task.at = 0;
            if !task.ops.is_empty() {
                return;
            }
        }
        if steps.access.take().is_some() {
            let place = steps.at - 1;
            let others_wait = matches!(steps.steps[place], Step::Initialize { .. });
            task.ops.clear();
            task.at = 0;
            task.deadline = u64::MAX;
            task.compute = 0;
            self.account(task, counts);
            task.end_phase();
            if others_wait {
                self.arrive(id, task, place);
                return;
            }
        }
        let Program::Steps(steps) = &mut task.program else { return };
        let Some(step) = steps.steps.get(steps.at).cloned() else {
            task.run = Run::Ended;
            return;
        };
        let place = steps.at;
        steps.at += 1;
        let (thread, threads) = (steps.thread, steps.threads);
        let mut label = format!("{}/{}", steps.label, steps.at);
        if steps.returns > 0 {
            label += &format!("/r{}", steps.returns);
        }
        let random = Stream::new(self.seed, &label);
        let space = task.space;
        let find = |k: &Kernel, name: &str| {
            let v = k.space(space).named(name)?;
            let (start, pages, file) = (v.start, v.pages(), v.kind.file);
            Some((start, pages, k.space(space).place(start, file)?))
        };
        let mut ctx = self.ctx_of(id, task);
        ctx.clock = task.clock;
        match step {
            Step::Madvise { .. } => {}
            Step::Touch { map } | Step::Fill { map, .. } => {
                if let Some((_, pages, first)) = find(&self.kernel, &map) {
                    let (a, b) = (pages * thread / threads, pages * (thread + 1) / threads);
                    let Program::Steps(steps) = &mut task.program else { return };
                    if b > a {
                        steps.access = Some(Access::touch(first + a as u32, b - a, random));
                        task.begin_phase(place);
                    }
                }
            }
            Step::Initialize { map, order } => {
                let found = find(&self.kernel, &map);
                let Program::Steps(steps) = &mut task.program else { return };
                match found.filter(|_| thread == 0) {
                    Some((_, pages, first)) => {
                        let all = Access::initialize(first, pages, order, random);
                        steps.access = Some(all);
                        task.begin_phase(place);
                    }
                    None => self.arrive(id, task, place),
                }
                return;
            }
            Step::Barrier => {
                self.arrive(id, task, place);
                return;
            }
            Step::Map { map } => {
                if find(&self.kernel, &map).is_none() {
                    let maps = &self.processes[task.process].maps;
                    if let Some(m) = maps.iter().find(|m| m.name == map).cloned() {
                        let own = self.kernel.numa[id].policy.clone();
                        self.map(&mut ctx, space, &m, &own);
                    }
                }
            }
            Step::Repeat { steps: back, until } => {
                let Program::Steps(steps) = &mut task.program else { return };
                let (rounds, last) = steps.rounds.get(&place).copied().unwrap_or((0, u64::MAX));
                let more = match until {
                    Again::Times(n) => rounds + 1 < n,
                    Again::Until(t) => task.clock - task.started < t.0,
                };
                if more {
                    // A round in which nothing takes time would never come to an end.
                    ctx.clock += if last == task.clock { EMPTY_ROUND } else { 0 };
                    steps.rounds.insert(place, (rounds + 1, ctx.clock));
                    steps.returns += 1;
                    steps.at = place.saturating_sub(back as usize);
                } else {
                    steps.rounds.remove(&place);
                }
            }
            Step::Access { map, pattern, write, compute, until } => {
                if let Some((_, pages, first)) = find(&self.kernel, &map) {
                    let a = Access::new(first, pages, pattern, write, until, task.clock, random);
                    let Program::Steps(steps) = &mut task.program else { return };
                    steps.access = Some(a);
                    task.begin_phase(place);
                    task.compute = compute.0;
                    if let Until::Time(t) = until {
                        task.deadline = task.clock + t.0;
                    }
                }
            }
            Step::Sleep(t) => {
                task.run = Run::Sleeping;
                self.at(task.clock + t.0, Event::Wake(id));
            }
            Step::Wait => {
                if task.children > 0 {
                    task.run = Run::Waiting;
                }
            }
            Step::Fork => {
                task.clock = ctx.clock;
                self.fork(id, task);
                return;
            }
            Step::Unmap { map } => {
                if let Some((start, pages, _)) = find(&self.kernel, &map) {
                    self.kernel.unmap(&mut ctx, space, start, start + pages);
                }
            }
            Step::Mbind { map, policy } => {
                if let Some((start, pages, _)) = find(&self.kernel, &map) {
                    let own = self.kernel.numa[id].policy.clone();
                    self.kernel.mbind(&mut ctx, space, start, start + pages, &policy, &own);
                }
            }
            Step::MovePages { map, to } => {
                if let Some((_, pages, first)) = find(&self.kernel, &map) {
                    let node = self.kernel.place_of(to);
                    for page in first..first + pages as u32 {
                        self.kernel.move_page_to(&mut ctx, page, node);
                    }
                }
            }
        }
        task.clock = ctx.clock;
    }

    /// A thread comes to a step at which all threads of its process meet. The last one
    /// to come goes on at once, the others from the time of its coming.
    fn arrive(&mut self, id: usize, task: &mut Task, place: usize) {
        let Program::Steps(steps) = &task.program else { return };
        let waiting = self.barriers.entry((task.space, place)).or_default();
        if waiting.len() as u64 + 1 < steps.threads {
            waiting.push(id);
            task.run = Run::Barrier;
            return;
        }
        for other in std::mem::take(waiting) {
            let t = self.task_mut(other);
            t.clock = t.clock.max(task.clock);
            self.enqueue(other, false);
        }
    }

    /// A child with a copy of the space that does the parent's remaining steps.
    fn fork(&mut self, id: usize, task: &mut Task) {
        let Program::Steps(steps) = &task.program else { return };
        let mut child_steps = steps.clone();
        child_steps.label = format!("{}/fork{}", steps.label, task.children);
        child_steps.rounds.clear();
        child_steps.thread = 0;
        child_steps.threads = 1;
        let Some(child) = self.fork_task(id, task, Program::Steps(child_steps)) else { return };
        self.enqueue(child, false);
    }
    /// A child task with a copy of the parent's space, not yet enqueued.
    pub(crate) fn fork_task(
        &mut self,
        id: usize,
        task: &mut Task,
        program: Program,
    ) -> Option<usize> {
        let mut ctx = self.ctx_of(id, task);
        ctx.clock = task.clock;
        // The hook of balancing runs before the child's space is made (SPEC §A.3).
        let numa = self.kernel.numa_fork(id, ctx.clock);
        let space = match self.kernel.fork_space(&mut ctx, task.space) {
            Ok(s) => s,
            Err(e) => {
                self.memory_error.get_or_insert(e);
                return None;
            }
        };
        self.kernel.space_mut(space).users = 1;
        task.clock = ctx.clock;
        let child = self.new_task(task.process, space, task.cpu, program, task.clock);
        let pid = self.kernel.numa[child].pid;
        let policy = self.kernel.numa[id].policy.clone();
        let n = &mut self.kernel.numa[child];
        n.scan = numa;
        n.pid = pid;
        n.policy = policy;
        self.task_mut(child).parent = Some(id);
        task.children += 1;
        self.running_programs += 1;
        Some(child)
    }

    /// What a task's end means for its space, its parent and the run.
    fn task_ended(&mut self, id: usize) {
        let task = self.task(id);
        let (space, clock, parent) = (task.space, task.clock, task.parent);
        let mut ctx = self.ctx_of(id, task);
        self.kernel.numa_exit(id);
        let users = &mut self.kernel.space_mut(space).users;
        *users -= 1;
        let last = *users == 0;
        if last {
            self.kernel.drop_space(&mut ctx, space);
            self.running_programs -= 1;
        }
        let t = self.task_mut(id);
        t.ended = ctx.clock.max(clock);
        t.ops = Vec::new();
        t.program = Program::Ended;
        if let Some(parent) = parent.filter(|_| last) {
            self.child_ended(parent, clock);
        }
        let waiting = |t: &Task| t.run == Run::Waiting && t.waits_for == Some(id);
        let waiters: Vec<usize> = (0..self.tasks.len())
            .filter(|&w| self.tasks[w].as_deref().is_some_and(waiting))
            .collect();
        for w in waiters {
            let t = self.task_mut(w);
            t.waits_for = None;
            t.clock = t.clock.max(clock);
            self.enqueue(w, false);
        }
    }
    fn child_ended(&mut self, parent: usize, clock: u64) {
        // The parent may be the task whose turn it is.
        let Some(p) = self.tasks[parent].as_mut() else { return };
        p.children = p.children.saturating_sub(1);
        if p.run == Run::Waiting && p.children == 0 && p.waits_for.is_none() {
            p.clock = p.clock.max(clock);
            self.enqueue(parent, false);
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
            }
        }
    }
    /// The tick of every CPU, for the task that runs there.
    fn tick(&mut self) {
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
    /// Loads are measured, and the latencies of the next window follow.
    fn window(&mut self) {
        let span = self.now - self.window_start;
        self.window_start = self.now;
        for load in &mut self.kernel.loads {
            load.close(span);
        }
        for (table, base) in self.latency.iter_mut().zip(&self.base) {
            for k in 0..self.zones_used * 2 {
                let load = &self.kernel.loads[self.kernel.memory.zones[k / 2].node];
                table[k] = load.apply(base[k]);
            }
        }
    }
    /// Puts the daemons that were woken on a CPU.
    fn wake_daemons(&mut self) {
        for node in std::mem::take(&mut self.kernel.woken) {
            self.kernel.kswapd_start(node);
            let cpu = self.daemon_cpu(node);
            self.task_mut(node).cpu = cpu;
            self.enqueue(node, true);
        }
        if self.agent.is_some() {
            self.heed_rings();
        }
    }

    // ── Figures ────────────────────────────────────────────────────────────────

    /// What each process did.
    pub fn processes(&self) -> Vec<ProcessFigures> {
        let nodes = self.machine.nodes.len();
        let mut all: Vec<ProcessFigures> = self
            .names
            .iter()
            .map(|name| ProcessFigures {
                name: name.clone(),
                ended: true,
                accesses: vec![[0; 2]; nodes],
                ..Default::default()
            })
            .collect();
        let mut first = vec![u64::MAX; all.len()];
        let mut last = vec![0; all.len()];
        for t in self.tasks.iter().flatten().filter(|t| t.process != usize::MAX) {
            let f = &mut all[t.process];
            f.ended &= t.run == Run::Ended;
            let end = if t.run == Run::Ended { t.ended } else { self.now };
            first[t.process] = first[t.process].min(t.started);
            last[t.process] = last[t.process].max(end);
            f.ran_ps += t.ran;
            if let Some(why) = t.killed {
                f.killed.get_or_insert(match why {
                    Fatal::Oom => "out of memory".to_owned(),
                    Fatal::Segv => "segmentation fault".to_owned(),
                });
            }
            for zone in 0..self.zones_used {
                let node = self.kernel.memory.zones[zone].node;
                f.accesses[node][0] += t.accesses[zone * 2];
                f.accesses[node][1] += t.accesses[zone * 2 + 1];
            }
            let open = t.phase_until(t.clock.max(t.ended));
            let mut phases = t.phases.clone();
            phases.extend(open);
            for (step, phase) in phases {
                let steps = &self.processes[t.process].steps;
                let at = f.phases.partition_point(|p| p.step < step);
                if f.phases.get(at).is_none_or(|p| p.step != step) {
                    let pattern = matches!(steps.get(step), Some(Step::Access { .. }));
                    f.phases.insert(
                        at,
                        PhaseFigures {
                            step,
                            first_touch: !pattern,
                            span_ps: (u64::MAX, 0),
                            accesses: vec![[0; 2]; nodes],
                            ..Default::default()
                        },
                    );
                }
                let sum = &mut f.phases[at];
                sum.threads += 1;
                sum.span_ps = (sum.span_ps.0.min(phase.from), sum.span_ps.1.max(phase.to));
                sum.time_ps += phase.time;
                for zone in 0..self.zones_used {
                    let node = self.kernel.memory.zones[zone].node;
                    sum.accesses[node][0] += phase.accesses[zone * 2];
                    sum.accesses[node][1] += phase.accesses[zone * 2 + 1];
                }
            }
        }
        for (f, l) in all.iter_mut().zip(&self.allocations) {
            f.allocations = l.clone();
        }
        for (p, f) in all.iter_mut().enumerate() {
            f.time_ps = last[p].saturating_sub(first[p].min(last[p]));
        }
        all
    }
}

/// What a round of repeated steps takes that would take no time at all.
const EMPTY_ROUND: u64 = 1_000_000;

/// How long kswapd naps before it looks again and then sleeps until it is woken.
const RECHECK: u64 = 100_000_000_000;
