//! Hint faults, by an observer in the kernel's fault. Source: specs/sources.md.

use super::{HeatSource, Watched, tell_lost};
use crate::kernel::TICK;
use crate::ring::Probe;
use crate::simulation::Simulation;
use homenode_core::costs::Cost;
use homenode_core::policy::seen::Seen;
use homenode_core::units::Picos;

pub(super) struct HintFaults;

impl HintFaults {
    pub(super) fn start(sim: &mut Simulation) -> Self {
        let each = sim.machine.costs.time(Cost::HintProbe).0;
        sim.kernel.probe = Some(Box::new(Probe::new(each)));
        Self
    }
}

impl HeatSource for HintFaults {
    fn watch(&mut self, sim: &mut Simulation, space: usize, on: bool) {
        let Some(probe) = &mut sim.kernel.probe else { return };
        if on {
            probe.watched.insert(space)
        } else {
            probe.watched.remove(&space)
        };
    }
    fn tell(&mut self, sim: &mut Simulation, watched: &Watched, out: &mut Vec<Seen>) -> u64 {
        let Some(probe) = &mut sim.kernel.probe else { return 0 };
        let (faults, lost) = probe.ring.drain();
        tell_lost(lost, out);
        let cost = sim.kernel.prices[Cost::EventRead] * faults.len() as u64;
        for f in faults {
            let Some(&who) = watched.get(&f.space) else { continue };
            // Both ends were read from a clock that goes by ticks.
            let after = f.after_ms.map(|ms| Picos(Picos::from_ms(ms.into()).0 + TICK));
            out.push(Seen::Fault { who, vpn: f.vpn, from: f.from, on: f.on, after });
        }
        cost
    }
}
