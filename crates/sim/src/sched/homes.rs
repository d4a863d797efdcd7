//! Where tasks are at home, as far as balancing looks at it: their preferred nodes, and their faults by node.
//!
//! What a task's faults are, NUMA balancing knows (`kernel/numa`), which tells it here when it has placed
//! the task.

use homenode_core::numa::faults::{GroupFaults, TaskFaults};
use homenode_core::numa::weights::Distances;
use homenode_core::topology::Hardware;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;

/// What is known of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Home {
    pub(super) faults: TaskFaults,
    pub(super) group: Option<u32>,
    /// The CPU that counts it, and whether it is on its preferred node there.
    pub(super) counted: Option<(usize, bool)>,
}

/// What is known of all.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    pub(crate) distances: Distances,
    /// By place of a node: its number.
    nodes: Vec<NodeId>,
    /// By place of a CPU: the number of its node.
    pub(super) of_cpu: Vec<NodeId>,
    /// Balancing of memory is on.
    pub(crate) on: bool,
    /// By number of a task; those that never faulted may be missing.
    pub(super) tasks: Vec<Home>,
    pub(super) groups: BTreeMap<u32, GroupFaults>,
}

impl Homes {
    pub(crate) fn new(machine: &Hardware) -> Self {
        Self {
            distances: Distances::of(machine),
            nodes: machine.nodes.iter().map(|n| n.id).collect(),
            of_cpu: machine.cpus.iter().map(|c| c.node).collect(),
            on: false,
            tasks: Vec::new(),
            groups: BTreeMap::new(),
        }
    }
    pub(super) fn nr_cpus(&self) -> usize {
        self.of_cpu.len()
    }
    pub(crate) fn node_of(&self, cpu: usize) -> NodeId {
        self.of_cpu[cpu]
    }
    pub(super) fn place(&self, node: NodeId) -> u16 {
        self.nodes.iter().position(|&n| n == node).unwrap_or(0) as u16
    }
    /// A group's faults are these from now on; without any it is gone.
    pub(super) fn set_group(&mut self, id: u32, group: Option<&GroupFaults>) {
        match group {
            Some(g) => _ = self.groups.insert(id, g.clone()),
            None => _ = self.groups.remove(&id),
        }
    }
}
