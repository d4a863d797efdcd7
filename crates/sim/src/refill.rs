//! What a task that was moved takes to fill caches again.
//!
//! ```text
//!              CPU 0   CPU 1   CPU 2   CPU 3      from CPU 0 to
//!  core          0       0       1       2         CPU 1   nothing
//!  last level    ├───── 0 ───────┤     ──1──       CPU 2   lines of the level below, from the last one
//!                                                  CPU 3   lines of the last level, from memory
//! ```
//!
//! It is about computing whose accesses are not simulated one by one and that says how much memory
//! it uses over and over. Accesses of steps and of recordings go through memory themselves.
//!
//! Source: specs/workloads.md#footprint.

use crate::caches::Footprint;
use crate::simulation::Simulation;
use crate::tasks::{Kind, Why};

impl Simulation {
    /// A task's computing uses so much memory from now on.
    pub(crate) fn set_footprint(&mut self, id: usize, bytes: u64) {
        self.tasks[id].footprint.bytes = bytes;
        self.refill(id);
    }
    /// A task that computes may be on another CPU than before: it pays for what it has left
    /// behind, once.
    ///
    /// Source: specs/workloads.md#footprint.
    pub(crate) fn refill(&mut self, id: usize) {
        let task = &self.tasks[id];
        let Footprint { bytes, warm } = task.footprint;
        if bytes == 0 {
            return;
        }
        let to = &self.cpus[task.cpu];
        // Its memory is where it computed first.
        let home = warm.map_or(to.node, |(_, home)| home);
        let time = match warm {
            Some((from, _)) if from != task.cpu && task.kind != Kind::Replayed => {
                let (of, caches) = (&self.machine.cpus, &self.caches);
                if of[from].core == of[task.cpu].core {
                    0
                } else if of[from].llc == of[task.cpu].llc {
                    caches.fill(bytes.min(caches.own), caches.from_last)
                } else {
                    caches.fill(bytes.min(caches.last), self.memory_latency(to.node, home))
                }
            }
            _ => 0,
        };
        self.tasks[id].footprint.warm = Some((self.tasks[id].cpu, home));
        if time > 0 {
            self.charge(id, time, Why::User);
        }
    }
    /// What a line takes from a node's memory for a CPU of another, unloaded.
    fn memory_latency(&self, from: usize, to: usize) -> u64 {
        let nodes = &self.machine.nodes;
        let link = self.machine.link(nodes[from].id, nodes[to].id);
        // A node of CPUs without memory has its neighbour's.
        let least = || {
            let of = self.machine.links.iter().filter(|l| l.from == nodes[from].id);
            of.map(|l| l.read_latency.value).min().unwrap_or(0)
        };
        link.map_or_else(least, |l| l.read_latency.value)
    }
}
