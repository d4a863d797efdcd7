//! A machine of two nodes for tests: it says what they give it.

use crate::{ApplyError, Caps, KnobOp, Machine, ObserveError};
use homenode_core::knobs::{Errno, KnobError};
use homenode_core::policy::order::{Act, Order};
use homenode_core::policy::seen::{Seen, Source};
use homenode_core::topology::{self, Cpu, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};

/// A machine that says what it is given and notes what it is asked for.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) now: Picos,
    pub(crate) says: Vec<Seen>,
    pub(crate) asked: Vec<Act>,
    pub(crate) periods: Vec<u64>,
    caps: Option<Caps>,
    topology: Option<topology::Hardware>,
}

impl Told {
    pub(crate) fn new() -> Self {
        let caps = Caps {
            source: Source::Damon,
            lacks: Vec::new(),
            moves: false,
            affinity: false,
            splits: false,
            knobs: false,
            most_pages: 1000,
        };
        let node = |id| Node {
            id,
            medium: Medium::Dram,
            zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(1000) }],
        };
        let topology = topology::Hardware {
            name: "two".into(),
            about: String::new(),
            nodes: vec![node(NodeId(0)), node(NodeId(1))],
            cpus: vec![Cpu {
                id: CpuId(0),
                node: NodeId(1),
                core: 0,
                llc: 0,
                capacity: 1024,
                mhz: None,
            }],
            caches: Vec::new(),
            distances: vec![vec![10, 20], vec![20, 10]],
            links: Vec::new(),
            idle_states: Vec::new(),
            curves: Vec::new(),
            loaded: Vec::new(),
            defaults: None,
            costs: Default::default(),
        };
        Self { caps: Some(caps), topology: Some(topology), ..Self::default() }
    }
}

impl Machine for Told {
    fn sample_every(&mut self, period: u64) {
        self.periods.push(period);
    }
    fn caps(&self) -> &Caps {
        self.caps.as_ref().expect("new")
    }
    fn topology(&self) -> &topology::Hardware {
        self.topology.as_ref().expect("new")
    }
    fn now(&self) -> Picos {
        self.now
    }
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        self.now = self.now.max(until);
        out.append(&mut self.says);
        Ok(())
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        self.asked.push(order.act.clone());
        Ok(())
    }
    fn knob(&mut self, _: KnobOp<'_>) -> Result<String, KnobError> {
        let allowed = "nothing".to_owned();
        Err(KnobError { knob: String::new(), given: None, errno: Errno::Eperm, allowed })
    }
}
