//! A kernel worker: does what is on its queue, one thing after the other.

use super::compute::Computing;
use super::{Ahead, Program};
use crate::cpus::parts;
use crate::sched::Waker;
use crate::simulation::Simulation;
use crate::tasks::On;
use crate::watch::By;

/// A kernel worker.
#[derive(Default)]
pub(crate) struct Worker {
    computing: Computing,
    /// It has something to do, for whom.
    at_work: Option<Option<usize>>,
}

impl Program for Worker {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, _until: u64) -> Ahead {
        self.computing.ahead(sim, id)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        self.computing.back(sim, id, to)
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        self.computing.settle(sim, id);
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        if !self.computing.is_done() {
            return;
        }
        if let Some(waiter) = self.at_work.take().flatten() {
            let cpu = sim.tasks[id].cpu;
            let waker = Waker { cpu, task: Some(id), sync: false, in_task: true };
            sim.wake_from(waiter, By::Task(id), waker);
        }
        match sim.devices.take(id) {
            Some(work) => {
                self.computing.begin(parts(work.time));
                self.at_work = Some(work.waiter);
            }
            None => sim.block(id, On::Sleep),
        }
    }
}
