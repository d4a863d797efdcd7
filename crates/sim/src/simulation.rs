//! A machine with its programs at some moment of virtual time: the CPUs and who waits for
//! them, the tasks, what is to happen when.
//!
//! ```text
//! build ──▶ Simulation: machine, kernel, tasks, queues, events
//!             ▲     ▲          ▲
//!             │   files      agent      what is read and written; homenode's jobs
//!             │     ▲          ▲
//!             └── engine ──────┘        who has the next turn, what is due
//! ```
//!
//! Here is what is, and what may happen to it at any time: a task begins, waits for a CPU,
//! ends (`task`); a daemon is woken (`daemons`); accesses cost something and are counted
//! (`accounting`). `agent` and `outcome` are data that others work on.

mod accounting;
pub(crate) mod agent;
mod daemons;
mod outcome;
mod task;

use crate::hot::{CostTable, KINDS};
use crate::kernel::{Ctx, Kernel, TICK};
use crate::latency::Latencies;
use crate::load::WINDOW;
use crate::memory::MemoryError;
use crate::ring::Pmu;
use agent::Agent;
use homenode_core::costs::Cost;
use homenode_core::knobs::{KnobError, WriteAs};
use homenode_core::scenario::{Action, Order, Process};
use homenode_core::topology::Machine;
use homenode_core::units::CpuId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub use accounting::{PhaseFigures, ProcessFigures};
pub(crate) use daemons::Ksmd;
pub use outcome::{FileError, Outcome};
pub(crate) use outcome::{Job, Writer};
pub(crate) use task::{Filling, Program, Run, Task, Turn};

/// How long a task keeps a CPU that others wait for: the fair scheduler's base
/// slice on two CPUs (0.75 ms × (1 + log2 CPUs), 2.8 to 3 ms on larger machines).
const SLICE: u64 = 3_000_000_000;

pub(crate) struct Cpu {
    pub(crate) node: usize,
    /// Who wants to run here; the first one does.
    pub(crate) queue: VecDeque<usize>,
    /// When the current task's slice ends.
    pub(crate) slice_end: u64,
}

/// What happens at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
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
    pub(crate) cpus: Vec<Cpu>,
    /// CPU number → place in `cpus`.
    cpu_at: BTreeMap<u32, usize>,
    /// What is set down to happen (`at`), by time and by when it was set down.
    pub(crate) events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    stamp: u64,
    pub(crate) now: u64,
    window_start: u64,
    pub(crate) order: Order,
    pub(crate) processes: Vec<Process>,
    pub(crate) names: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) duration: Option<u64>,
    /// Per CPU node and kind: latency of one access now, in picoseconds.
    pub(crate) latency: Vec<CostTable>,
    /// Per CPU node and kind: unloaded.
    base: Vec<CostTable>,
    pub(crate) zones_used: usize,
    pub(crate) parallelism: u64,
    running_programs: usize,
    /// Ticks do nothing for balancing: for measuring what its being there costs.
    pub(crate) without_balancing: bool,
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
    pub(crate) barriers: BTreeMap<(usize, usize), Vec<usize>>,
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
    pub(crate) ksmd: Option<Ksmd>,
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

    /// Sets down what is to happen at a time; of several at one time, the first that was
    /// set down comes first.
    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.stamp += 1;
        self.events.push(Reverse((time, self.stamp, event)));
    }
    pub(crate) fn task_mut(&mut self, id: usize) -> &mut Task {
        self.tasks[id].as_mut().expect("a task is put back after its turn")
    }
    pub(crate) fn task(&self, id: usize) -> &Task {
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
        if front || behind_ksmd {
            // A daemon that wakes runs at once, as a sleeper with much lag does; and ksmd
            // gives way to whoever wakes.
            cpu.queue.push_front(id);
            cpu.slice_end = now + SLICE;
        } else {
            cpu.queue.push_back(id);
            if cpu.queue.len() == 1 {
                cpu.slice_end = now + slice;
            }
        }
    }
    /// The slice of a CPU's current task begins.
    pub(crate) fn begin_slice(&mut self, cpu: usize, clock: u64) {
        let slice = self.cpus[cpu].queue.front().map_or(SLICE, |&id| self.slice(id));
        self.cpus[cpu].slice_end = clock + slice;
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

    /// Writes a knob in the middle of a run.
    ///
    /// # Errors
    /// [`KnobError`], with nothing changed.
    pub fn set_knob(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        self.kernel.set_knob(name, value, WriteAs::default(), self.now)
    }
}
