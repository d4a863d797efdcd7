//! A machine with its programs at some moment of virtual time. What there is of time, CPUs,
//! tasks and programs has rooms of its own; here they are put together.
//!
//! ```text
//! build ──▶ Simulation: timeline, cpus, tasks, programs, kernel
//!             ▲        ▲          ▲
//!             │      files      agent      what is read and written; homenode's jobs
//!             │        ▲          ▲
//!             └─── executive ─────┘        whose turn it is, what happens
//! ```
//!
//! `accounting` is what accesses cost and leave; `agent`, `called` and `outcome` are data that others
//! work on.

mod accounting;
pub(crate) mod agent;
mod called;
mod devices;
mod frequency;
mod outcome;
mod passed;
mod program;
mod scored;

use crate::caches::Caches;
use crate::channel::Channels;
use crate::cpus::Cpus;
use crate::hot::{CostTable, KINDS};
use crate::kernel::{Ctx, Kernel, TICK};
use crate::latency::Latencies;
use crate::load::WINDOW;
use crate::memory::MemoryError;
use crate::overlap::MissTime;
use crate::ring::Pmu;
use crate::sched::Scheduler;
use crate::tasks::Tasks;
use crate::timeline::{Event, QuotaTimer, Timeline};
use agent::Agent;
use homenode_core::costs::Cost;
use homenode_core::knobs::{KnobError, WriteAs};
use homenode_core::scenario::{Action, CpuOrder, Process};
use homenode_core::topology::Hardware;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use accounting::{EMPTY_ROUND, Tally};
pub use accounting::{PhaseFigures, ProcessFigures};
pub(crate) use called::{Called, Out};
pub(crate) use devices::{Devices, Work};
pub(crate) use frequency::{Frequency, PricesByClock};
pub use outcome::{FileError, Outcome};
pub(crate) use outcome::{Job, Writing};
pub use passed::Waited;
pub(crate) use passed::{Counted, Passed, Wants};
pub(crate) use program::{Ahead, KsmdState, Loaded, Plain, Program};
pub(crate) use scored::{ScoredLines, ScoredRows};

/// A machine with its programs, at some moment of virtual time.
pub struct Simulation {
    pub(crate) machine: Hardware,
    pub(crate) kernel: Kernel,
    pub(crate) timeline: Timeline,
    pub(crate) cpus: Cpus,
    /// The clocks of the CPUs.
    pub(crate) frequency: Frequency,
    /// What the kernel's work costs on each CPU.
    pub(crate) prices: PricesByClock,
    pub(crate) sched: Scheduler,
    /// CPUs that have been called for tasks on their lists.
    pub(crate) called: Called,
    pub(crate) tasks: Tasks,
    /// What each task runs, by its number; not there while it has its turn.
    pub(crate) programs: Vec<Option<Box<dyn Program>>>,
    /// By task: its CPU, on a machine of so many that fetching things early is of use. Nothing else is decided by that.
    pub(crate) last_cpu: Vec<u32>,
    /// What each task has accessed, by its number.
    pub(crate) tallies: Vec<Tally>,
    /// How far a task may run ahead of the CPU that is furthest behind.
    pub(crate) quantum: u64,
    /// Until when the task that has its turn may do its acts as it comes to them: nobody
    /// else does anything before, unless it calls somebody.
    pub(crate) own: u64,
    /// It never may: for tests, to which that makes no difference.
    pub(crate) one_act_a_turn: bool,
    window_start: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) names: Vec<String>,
    /// By process: which of the copies of a scenario's program it is.
    pub(crate) copies: Vec<u64>,
    /// By process: what it does, once it has started.
    pub(crate) loaded: Vec<Option<Arc<Loaded>>>,
    /// Programs of a scenario that have yet to start.
    pub(crate) unstarted: usize,
    /// What tasks wait for one another with.
    pub(crate) channels: Channels,
    /// Devices, and the kernel workers of each CPU.
    pub(crate) devices: Devices,
    /// When quotas of groups are filled.
    pub(crate) quotas: QuotaTimer,
    /// What the kernel has said (`dmesg`), with the time in picoseconds.
    pub(crate) messages: Vec<(u64, String)>,
    /// Why all tasks wait for ever, if they do.
    pub(crate) deadlock: Option<String>,
    /// Whom a call wakes: one list for all calls.
    pub(crate) wakes: Vec<usize>,
    /// The CPU that has its turn, or had the last.
    pub(crate) turn_of: usize,
    /// The CPU whose things have been fetched as those of the turn after the next; `usize::MAX`: none.
    pub(crate) fetched: usize,
    /// CPUs whose task has begun a call ahead of time, those of them at least that have done so since the latest turn;
    /// and how many they were when others were forgotten.
    pub(crate) begun: Vec<u32>,
    pub(crate) begun_kept: usize,
    /// How many turns there were.
    pub(crate) turns: u64,
    pub(crate) seed: u64,
    pub(crate) duration: Option<u64>,
    /// Per CPU node and kind: latency of one access now, in picoseconds.
    pub(crate) latency: Vec<CostTable>,
    /// Per CPU node and kind: unloaded.
    base: Vec<CostTable>,
    pub(crate) zones_used: usize,
    pub(crate) parallelism: u64,
    /// What a task that is moved leaves behind.
    pub(crate) caches: Caches,
    /// Programs that have not ended, and children that they have forked.
    pub(crate) running_programs: usize,
    /// Ticks do nothing for balancing: for measuring what its being there costs.
    pub(crate) without_balancing: bool,
    pub(crate) memory_error: Option<MemoryError>,
    accesses: u64,
    /// Task of a recording → the task that replays it, the latest.
    pub(crate) replayed: BTreeMap<u32, usize>,
    /// By task of a recording and by program: how long it ran.
    pub(crate) ran_by_program: BTreeMap<(usize, usize), u64>,
    /// How far the order of a recording has come in this round.
    pub(crate) passed: Passed,
    /// What misses of a replay took.
    missed: MissTime,
    /// When each round of a replay ended.
    pub(crate) round_ends: Vec<u64>,
    /// How often a recording's tasks have blocked and left their CPU.
    pub(crate) voluntary_switches: u64,
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
    pub(crate) writing: Writing,
    /// Tasks that are homenode's, ksmd and who writes files: the others' PIDs don't depend on them.
    pub(crate) helpers: u32,
    /// Where contents are kept.
    pub(crate) ksmd: Option<KsmdState>,
    /// khugepaged's task, once there has been work for it.
    pub(crate) khugepaged: Option<usize>,
}

impl Simulation {
    pub(crate) fn empty(
        machine: &Hardware,
        kernel: Kernel,
        order: CpuOrder,
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
        let quantum = match order {
            CpuOrder::Quantum(q) => q.0,
            CpuOrder::Strict => 0,
        };
        let sched = Scheduler::new(machine, &kernel, seed);
        let prices = kernel.prices;
        let mut s = Self {
            machine: machine.clone(),
            kernel,
            timeline: Timeline::default(),
            cpus: Cpus::new(machine),
            frequency: Frequency::none(),
            prices: PricesByClock::fixed(prices),
            sched,
            called: Called::new(machine.cpus.len()),
            tasks: Tasks::default(),
            programs: Vec::new(),
            last_cpu: Vec::new(),
            tallies: Vec::new(),
            quantum,
            own: 0,
            one_act_a_turn: false,
            window_start: 0,
            processes: Vec::new(),
            names: Vec::new(),
            copies: Vec::new(),
            loaded: Vec::new(),
            unstarted: 0,
            channels: Channels::default(),
            devices: Devices::default(),
            quotas: QuotaTimer::default(),
            messages: Vec::new(),
            deadlock: None,
            turn_of: 0,
            fetched: usize::MAX,
            begun: Vec::new(),
            begun_kept: 0,
            turns: 0,
            wakes: Vec::new(),
            seed,
            duration,
            latency: base.clone(),
            base,
            zones_used: zones,
            parallelism: machine.costs.get(Cost::MemoryParallelism).max(1000),
            caches: Caches::of(machine),
            running_programs: 0,
            without_balancing: false,
            memory_error: None,
            accesses: 0,
            replayed: BTreeMap::new(),
            missed: MissTime::new(machine.nodes.len()),
            ran_by_program: BTreeMap::new(),
            passed: Passed::default(),
            round_ends: Vec::new(),
            voluntary_switches: 0,
            planned: Vec::new(),
            allocations: Vec::new(),
            barriers: BTreeMap::new(),
            agent: None,
            speaks: false,
            pmu: None,
            writing: Writing::default(),
            helpers: 0,
            ksmd: None,
            khugepaged: None,
        };
        // The ticks and windows come first of what happens at one time.
        let (tick, window) = (s.timeline.slot(Event::Tick), s.timeline.slot(Event::Window));
        s.timeline.set(tick, TICK);
        s.timeline.set(window, WINDOW);
        s
    }

    /// Sets down when the kernel's files are read and written.
    pub(crate) fn plan(&mut self, actions: &[Action]) {
        for action in actions {
            let slot = self.timeline.slot(Event::File(self.planned.len()));
            self.timeline.set(slot, action.at.0);
            self.planned.push(Outcome::planned(action.clone()));
        }
    }

    /// The context of a task at its clock.
    pub(crate) fn ctx(&self, id: usize) -> Ctx {
        let task = &self.tasks[id];
        let cpu = &self.cpus[task.cpu];
        Ctx { task: id, node: cpu.node, cpu: cpu.number.0, clock: task.clock.max(self.now()) }
    }
    /// The context of nobody of the scenario: somebody on the first CPU, of no policy.
    pub(crate) fn outside(&self) -> Ctx {
        let Some(cpu) = self.machine.cpus.first() else { return Ctx::nobody(self.now()) };
        let node = self.machine.position(cpu.node).unwrap_or(0);
        Ctx { node, cpu: cpu.id.0, ..Ctx::nobody(self.now()) }
    }
    /// Virtual time in picoseconds.
    pub fn now(&self) -> u64 {
        self.timeline.now()
    }
    /// What has come of changing memory; the run ends where that can't be modelled.
    pub(crate) fn modelled<T>(&mut self, done: Result<T, MemoryError>) -> Option<T> {
        done.map_err(|e| {
            self.memory_error.get_or_insert(e);
        })
        .ok()
    }
    /// Whether all programs have ended.
    pub fn idle(&self) -> bool {
        self.running_programs == 0 || self.memory_error.is_some() || self.deadlock.is_some()
    }
    /// Why the run came to no end, if all tasks wait for one another: who waits for what.
    pub fn deadlock(&self) -> Option<&str> {
        self.deadlock.as_deref()
    }
    /// How often a recording's tasks have blocked and left their CPU so far, as the kernel counts
    /// voluntary switches. Who is woken before has not switched.
    pub fn voluntary_switches(&self) -> u64 {
        self.voluntary_switches
    }
    /// Accesses made so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// From now on each act has a turn of its own, and no call is done ahead of time: slower, and the same run. That
    /// it is the same is what tests hold with it.
    pub fn act_one_by_one(&mut self) {
        self.one_act_a_turn = true;
    }
    /// Writes a knob in the middle of a run.
    ///
    /// # Errors
    /// [`KnobError`], with nothing changed.
    pub fn set_knob(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        let now = self.now();
        self.kernel.set_knob(name, value, WriteAs::default(), now)
    }
}
