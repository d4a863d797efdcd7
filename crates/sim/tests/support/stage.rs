//! A stage for the conformance bodies: a small simulated machine, bare or wrapped.
#![allow(unreachable_pub, reason = "a module of tests")]

use crate::support::{access, dram, machine, map, process, touch};
use homenode_core::policy::seen::{Seen, Source, Span, Who, ZoneSeen};
use homenode_core::scenario::{Mempolicy, Pattern, Process, Step, Until};
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::conformance::{ALWAYS, Load, Stage};
use homenode_machine::{Around as _, FaultPlan, Faulty, Machine};
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeMap;

/// A machine with a simulated one inside.
pub trait Holds: Machine {
    fn sim(&mut self) -> &mut SimMachine;
}
impl Holds for SimMachine {
    fn sim(&mut self) -> &mut SimMachine {
        self
    }
}
impl<M: Holds> Holds for Faulty<M> {
    fn sim(&mut self) -> &mut SimMachine {
        self.inside_mut().sim()
    }
}

/// Where programs run: two CPUs for them, one for whoever comes.
pub struct SimStage<M> {
    pub machine: M,
    next_cpu: u32,
}

/// A machine of 16 MiB DRAM and 64 MiB behind a link.
pub fn booted(source: Source, seed: u64) -> SimMachine {
    let m = machine(&[dram(4096, 3), crate::support::cxl(16_384)]);
    let mut knobs = knobs_for(source);
    // A kernel that samples at once, where it is the source: homenode's own delay is
    // what is tested.
    knobs.push(("scan_delay_ms".into(), "0".into()));
    knobs.push(("scan_period_min_ms".into(), "20".into()));
    let setup = Setup { knobs, seed, room: 1 << 19, ..Setup::default() };
    let sim = Simulation::boot(&m, &setup, 0).expect("a machine");
    let mut m = SimMachine::new(sim, source).expect("a source");
    // A machine without any program has stopped; this one sleeps through it all.
    let steps = vec![Step::Sleep(ALWAYS)];
    m.spawn(process("rest", &[2], vec![map("rest", 1)], steps), None);
    m
}
pub fn stage(source: Source) -> SimStage<SimMachine> {
    over(booted(source, 1))
}
pub fn faulty(source: Source, plan: FaultPlan) -> SimStage<Faulty<SimMachine>> {
    over(Faulty::new(booted(source, plan.seed), plan))
}
pub fn over<M: Holds>(machine: M) -> SimStage<M> {
    SimStage { machine, next_cpu: 0 }
}

impl<M: Holds> SimStage<M> {
    fn program(&mut self, load: Load) -> Process {
        let mut m = map("a", load.pages);
        m.policy = Mempolicy::Preferred(load.on);
        let mut steps = vec![touch("a")];
        // From here on the kernel may sample it too.
        steps.push(Step::Mbind { map: "a".into(), policy: Mempolicy::Default });
        if load.busy > Picos::ZERO {
            steps.push(access("a", Pattern::Uniform, 100, Until::Time(load.busy)));
        }
        steps.push(Step::Sleep(ALWAYS));
        self.next_cpu = (self.next_cpu + 1) % 2;
        process("load", &[self.next_cpu], vec![m], steps)
    }
}

impl<M: Holds> Stage for SimStage<M> {
    type Machine = M;
    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn nodes(&self) -> (NodeId, NodeId) {
        (NodeId(0), NodeId(1))
    }
    fn start(&mut self, load: Load) -> (Who, Span) {
        let p = self.program(load);
        let (who, spans) = self.machine.sim().spawn(p, None);
        (who, spans[0])
    }
    fn end(&mut self, who: Who) {
        self.machine.sim().end(who);
    }
    fn replace(&mut self, who: Who, load: Load) -> (Who, Span) {
        self.machine.sim().end(who);
        // A PID comes round again after a while.
        let sim = self.machine.sim().simulation_mut();
        let until = sim.now() + Picos::from_ms(20).0;
        sim.run_until(until);
        let p = self.program(load);
        let (who, spans) = self.machine.sim().spawn(p, Some(who.pid));
        (who, spans[0])
    }
    fn bind(&mut self, who: Who, span: Span, to: NodeId) {
        assert!(self.machine.sim().bind(who, span, to));
    }
    fn placed(&mut self, who: Who, span: Span) -> BTreeMap<NodeId, Pages> {
        self.machine.sim().placed(who, span)
    }
    fn ran(&mut self, who: Who) -> Option<Picos> {
        self.machine.sim().ran(who)
    }
    fn moved(&mut self) -> Pages {
        self.machine.sim().moved()
    }
    fn zones(&mut self, node: NodeId) -> Vec<ZoneSeen> {
        self.machine.sim().zones(node)
    }
}

/// Whether something that was seen is heat.
pub fn is_heat(seen: &Seen) -> bool {
    matches!(seen, Seen::Region { .. } | Seen::Fault { .. } | Seen::Sample { .. })
}
