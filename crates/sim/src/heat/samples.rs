//! Samples of the performance-monitoring unit. Source: specs/sources.md.

use super::{HeatSource, Watched, tell_lost};
use crate::ring::{Answered, Pmu};
use crate::simulation::Simulation;
use homenode_core::costs::Cost;
use homenode_core::policy::answers::Answers;
use homenode_core::policy::seen::Seen;
use homenode_core::units::{NodeId, Picos};

#[derive(Default)]
pub(super) struct PmuSamples {
    /// How late nodes answer.
    answers: Answers,
}

impl PmuSamples {
    pub(super) fn start(sim: &mut Simulation) -> Self {
        let (cpus, each) = (sim.machine.cpus.len(), sim.machine.costs.time(Cost::PmuSample).0);
        // Rules inside the kernel may have switched it on before.
        sim.pmu.get_or_insert_with(|| Box::new(Pmu::new(cpus, each)));
        Self::default()
    }
}

impl HeatSource for PmuSamples {
    fn watch(&mut self, sim: &mut Simulation, space: usize, on: bool) {
        if let Some(pmu) = &mut sim.pmu {
            pmu.watch(space, on);
        }
    }
    fn tell(&mut self, sim: &mut Simulation, watched: &Watched, out: &mut Vec<Seen>) -> u64 {
        let Some(pmu) = &mut sim.pmu else { return 0 };
        let (samples, lost) = pmu.ring.drain();
        tell_lost(lost, out);
        for s in &samples {
            let Some(&who) = watched.get(&s.space) else { continue };
            if let Some(Answered { by, took }) = s.answered {
                let on = sim.kernel.memory.node_id(usize::from(by));
                self.answers.add(on, 1000, u64::from(took));
            }
            out.push(Seen::Sample { who, vpn: s.vpn, from: s.from, period: s.period });
        }
        sim.kernel.prices[Cost::EventRead] * samples.len() as u64
    }
    /// Source: specs/sources.md#pmu.
    fn load(&mut self, now: Picos, node: NodeId) -> Option<u32> {
        self.answers.load(now, node)
    }
}
