//! Sources of heat on a simulated machine, one file each: what homenode's task switches on,
//! reads and pays for. What a source is for everybody else stands on its data sheet
//! (`homenode_core::policy::source`).

mod damon;
mod hints;
mod samples;

use crate::kernel::{Ctx, Kernel};
use crate::simulation::Simulation;
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::units::{NodeId, Picos};
use std::collections::BTreeMap;

/// Who is watched, by address space.
pub(crate) type Watched = BTreeMap<usize, Who>;

/// A source of heat.
pub(crate) trait HeatSource: Send {
    /// Begins to look at a process's memory, or looks at it no more.
    fn watch(&mut self, sim: &mut Simulation, space: usize, on: bool);
    /// Tells what was seen since the last time of those who are watched; what reading it
    /// takes.
    fn tell(&mut self, sim: &mut Simulation, watched: &Watched, out: &mut Vec<Seen>) -> u64;
    /// How late a node answers, in thousandths of the unloaded latency, if the source shows it.
    fn load(&mut self, now: Picos, node: NodeId) -> Option<u32> {
        let _ = (now, node);
        None
    }
    /// homenode has moved memory: what came of it is worth a close look.
    fn moved(&mut self, now: Picos) {
        let _ = now;
    }
    /// The task that is its thread, if it has one.
    fn thread(&self) -> Option<usize> {
        None
    }
    /// Its thread has its turn; when it wants the next, if it does.
    fn turn(&mut self, kernel: &mut Kernel, ctx: &mut Ctx) -> Option<u64> {
        let _ = (kernel, ctx);
        None
    }
}

/// Sets a source up on a machine; nobody is watched yet.
pub(crate) fn start(source: Source, sim: &mut Simulation, seed: u64) -> Box<dyn HeatSource> {
    match source {
        Source::Damon => Box::new(damon::DamonRegions::start(sim, seed)),
        Source::HintFault => Box::new(hints::HintFaults::start(sim)),
        Source::Pmu => Box::new(samples::PmuSamples::start(sim)),
        Source::Residency => Box::new(Nothing),
    }
}

/// Tells that records did not fit.
fn tell_lost(lost: u64, out: &mut Vec<Seen>) {
    if lost > 0 {
        out.push(Seen::Lost { events: lost });
    }
}

/// No heat.
struct Nothing;

impl HeatSource for Nothing {
    fn watch(&mut self, _: &mut Simulation, _: usize, _: bool) {}
    fn tell(&mut self, _: &mut Simulation, _: &Watched, _: &mut Vec<Seen>) -> u64 {
        0
    }
}
