//! Constants that the sensitivity runs move, one at a time, by ±20 %.

use homenode_core::costs::{Constant, Cost};
use homenode_core::scenario::{Scenario, Step};
use homenode_core::topology::{BANDWIDTH_BOUNDS, LATENCY_BOUNDS, Link, Machine};
use homenode_core::units::Picos;

/// One of the four constants of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OfLink {
    ReadLatency,
    WriteLatency,
    ReadBandwidth,
    WriteBandwidth,
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// Of the link in that place of the machine's list.
    Link(usize, OfLink),
    /// Of the machine as a whole.
    Cost(Cost),
    /// What pmbench computes between two accesses.
    Compute,
}

/// A constant, moved by so many per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vary {
    pub(super) what: What,
    pub(super) percent: i32,
}

impl Vary {
    /// How far each constant is moved, down and up.
    pub(super) const STEPS: [i32; 2] = [-20, 20];

    /// Moves it, within the bounds of its kind.
    pub(super) fn apply(self, machine: &mut Machine, scenario: &mut Scenario) {
        let percent = (100 + self.percent) as u64;
        let moved = |value: u64, (low, high): (u64, u64)| (value * percent / 100).clamp(low, high);
        match self.what {
            What::Link(i, which) => {
                if let Some(link) = machine.links.get_mut(i) {
                    let (constant, bounds) = of_link(link, which);
                    constant.value = moved(constant.value, bounds);
                }
            }
            What::Cost(cost) => {
                let value = moved(machine.costs.get(cost), cost.bounds());
                let constant = Constant::assumed(value, "moved to see what depends on it");
                machine.costs.0.insert(cost, constant);
            }
            What::Compute => {
                for step in scenario.processes.iter_mut().flat_map(|p| &mut p.steps) {
                    if let Step::Access { compute, .. } = step {
                        *compute = Picos(compute.0 * percent / 100);
                    }
                }
            }
        }
    }
}

fn of_link(link: &mut Link, which: OfLink) -> (&mut Constant, (u64, u64)) {
    match which {
        OfLink::ReadLatency => (&mut link.read_latency, LATENCY_BOUNDS),
        OfLink::WriteLatency => (&mut link.write_latency, LATENCY_BOUNDS),
        OfLink::ReadBandwidth => (&mut link.read_bandwidth, BANDWIDTH_BOUNDS),
        OfLink::WriteBandwidth => (&mut link.write_bandwidth, BANDWIDTH_BOUNDS),
    }
}

impl What {
    /// Every constant of a machine and the workload's.
    pub(super) fn all(machine: &Machine) -> Vec<Self> {
        use OfLink::{ReadBandwidth, ReadLatency, WriteBandwidth, WriteLatency};
        let links = (0..machine.links.len()).flat_map(|i| {
            [ReadLatency, WriteLatency, ReadBandwidth, WriteBandwidth].map(|w| Self::Link(i, w))
        });
        // Nothing is merged here: what only ksmd pays can't matter.
        let pays = |c: &&Cost| !c.name().starts_with("ksm_");
        let costs = Cost::ALL.iter().filter(pays).map(|&c| Self::Cost(c));
        links.chain(costs).chain([Self::Compute]).collect()
    }

    /// Its name: as in the machine's file.
    pub(super) fn name(self, machine: &Machine) -> String {
        match self {
            Self::Link(i, which) => {
                let (from, to) = machine.links.get(i).map_or((0, 0), |l| (l.from.0, l.to.0));
                let key = match which {
                    OfLink::ReadLatency => "read_latency",
                    OfLink::WriteLatency => "write_latency",
                    OfLink::ReadBandwidth => "read_bandwidth",
                    OfLink::WriteBandwidth => "write_bandwidth",
                };
                format!("link {from} to {to}: {key}")
            }
            Self::Cost(cost) => format!("cost: {}", cost.name()),
            Self::Compute => "workload: compute".to_owned(),
        }
    }
}
