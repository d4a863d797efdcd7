//! A simulated run as rows of scheduling, such as a recording has: who looks on writes them.

use homenode_core::sched::course::{Blocked, Wait};
use homenode_core::topology::Hardware;
use homenode_sim::Simulation;
use homenode_sim::watch::{By, Leaves, Watch};
use homenode_trace::sched::{Context, Header, Kind, NOBODY, Row, Stop, Task, VERSION};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was seen so far. Tasks are the simulation's.
#[derive(Default)]
struct Seen {
    rows: Vec<Row>,
    /// By place of a CPU: its number.
    numbers: Vec<u32>,
    /// How tasks are about to leave their CPUs.
    leaves: BTreeMap<usize, Leaves>,
    /// The row of the wake-up that is under way.
    wakes: Option<usize>,
}

impl Seen {
    fn push(&mut self, kind: Kind, at_ps: u64, cpu: usize, task: usize, arg: u64) {
        let cpu = self.numbers.get(cpu).copied().unwrap_or(0);
        let (time_ns, task) = (at_ps / 1000, task as u32);
        self.rows.push(Row { kind, time_ns, cpu, task, other: NOBODY, arg });
    }
}

/// Writes down what a simulated scheduler does.
pub(crate) struct Watcher(Arc<Mutex<Seen>>);

impl Watcher {
    /// Looks on at a simulation from now on.
    pub(crate) fn on(sim: &mut Simulation, machine: &Hardware) -> Self {
        let numbers = machine.cpus.iter().map(|c| c.id.0).collect();
        let seen = Arc::new(Mutex::new(Seen { numbers, ..Seen::default() }));
        sim.watch(Box::new(Self(Arc::clone(&seen))));
        Self(seen)
    }
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The rows so far, by their times. Tasks are the simulation's.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = std::mem::take(&mut self.seen().rows);
        rows.sort_by_key(|r| r.time_ns);
        rows
    }
}

/// What a simulated run says of itself, with all tasks of programs.
pub(crate) fn header(sim: &Simulation, machine: &Hardware) -> Header {
    let task = |(tid, name): (u32, String)| Task { tid, tgid: tid, name, kernel: false };
    Header {
        version: VERSION,
        source: "simulated".into(),
        cpus: machine.cpus.iter().map(|c| c.id.0).collect(),
        span_ns: sim.now() / 1000,
        complete: true,
        contexts: true,
        tasks: sim.who_ran().into_iter().map(task).collect(),
        ..Header::default()
    }
}

impl Watch for Watcher {
    fn queued(&mut self, task: usize, waits: Option<u32>, now: u64) {
        if waits.is_some() {
            let mut seen = self.seen();
            seen.wakes = Some(seen.rows.len());
            seen.push(Kind::Wake, now, 0, task, Context::Interrupt as u64);
        }
    }
    fn woken(&mut self, _pid: u32, by: By, now: u64, _begins: u64) {
        let mut seen = self.seen();
        // Who had not left its CPU was not queued.
        let Some(at) = seen.wakes.take() else { return };
        let row = &mut seen.rows[at];
        if let (By::Task(by), true) = (by, row.time_ns == now / 1000) {
            (row.other, row.arg) = (by as u32, Context::Task as u64);
        }
    }
    fn leaves(&mut self, task: usize, how: Leaves) {
        self.seen().leaves.insert(task, how);
    }
    fn runs(&mut self, cpu: usize, task: usize, _now: u64, clock: u64, _ran: u64) {
        self.seen().push(Kind::Run, clock, cpu, task, 0);
    }
    fn stops(
        &mut self,
        cpu: usize,
        task: usize,
        _now: u64,
        clock: u64,
        _ran: u64,
        waits: Option<u32>,
    ) {
        let mut seen = self.seen();
        let leaves = seen.leaves.remove(&task).filter(|_| waits.is_none());
        let wait = |uninterruptible, iowait| {
            let what = if iowait { Blocked::Disk } else { Blocked::Other };
            Stop::Waits(Wait { what, uninterruptible, iowait })
        };
        let stop = match leaves {
            None => Stop::Preempted,
            Some(Leaves::Sleeps) => wait(false, false),
            Some(Leaves::Blocks { iowait }) => wait(true, iowait),
            Some(Leaves::Ends) => Stop::Dead,
        };
        seen.push(Kind::Stop, clock, cpu, task, stop.to_arg());
    }
}
