//! Computing: work that a task does by itself, at its CPU's speed.

use super::Ahead;
use crate::simulation::Simulation;

/// Work that is left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Computing {
    /// In parts: see [`crate::cpus::Cpu::time`].
    left: u64,
    /// The task's clock when it began to run ahead.
    began: u64,
}

impl Computing {
    /// There is so much to do, in parts.
    pub(crate) fn begin(&mut self, work: u64) {
        self.left = work;
    }
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }
    /// To its end at once: where it is cut costs nothing, so no turn is needed before.
    pub(crate) fn ahead(&mut self, sim: &Simulation, id: usize) -> Ahead {
        let task = &sim.tasks[id];
        self.began = task.clock;
        let end = task.clock.saturating_add(sim.cpus[task.cpu].time(self.left));
        Ahead { clock: end, act: true, far: true }
    }
    pub(crate) fn back(&self, sim: &Simulation, id: usize, to: u64) -> u64 {
        let task = &sim.tasks[id];
        task.clock.saturating_add(sim.cpus[task.cpu].time(self.left)).min(to).max(task.clock)
    }
    pub(crate) fn settle(&mut self, sim: &Simulation, id: usize) {
        let task = &sim.tasks[id];
        let done = sim.cpus[task.cpu].work(task.clock.saturating_sub(self.began));
        self.left -= done.min(self.left);
        self.began = task.clock;
    }
}
