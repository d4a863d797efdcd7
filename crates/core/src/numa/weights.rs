//! How near a task is to its memory on each node: its faults there, and on nodes nearby, of a thousand.
//!
//! On most machines all nodes are equally far from each other, or there are two: then a node's
//! weight is the share of the faults there. Where there are more distances, faults on near nodes count as
//! well, in one of two ways:
//!
//! ```text
//!  mesh:       0 ── 1 ── 2     2 is reached through 1:    faults of 1 count for 0, the less the farther
//!  backplane:  0 ─ 1 ═══ 2 ─ 3  two boards, no way round: faults of 1 count for 0 against 2 and 3
//! ```
//!
//! Worked example: 1000 faults on a mesh whose largest distance is 28: 100 on the node itself, 80 on one
//! at 16, 60 on one at 22: 100 + 80·12/18 + 60·6/18 = 173 of 1000.

use super::faults::{GroupFaults, NodeFaults, TaskFaults};
use crate::topology::Hardware;
use crate::units::NodeId;

/// The distance of a node to itself.
pub const LOCAL_DISTANCE: u32 = 10;

crate::named! {
    /// How the nodes that have CPUs are connected.
    ///
    /// Source: specs/numa.md#shapes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Shape {
        /// Each to each, all equally far.
        Direct => "direct",
        /// Some by way of others that lie between them.
        Mesh => "mesh",
        /// In groups, without a node between two groups.
        Backplane => "backplane",
    }
}

/// Distances between nodes, by their numbers, and what follows of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distances {
    nr: usize,
    /// By number and number; 0 where there is no node.
    table: Vec<u32>,
    with_cpus: Vec<NodeId>,
    /// Distances between nodes with CPUs that occur, falling; the local one included.
    levels: Vec<u32>,
    shape: Shape,
}

impl Distances {
    /// Those of nodes of these numbers, in rising order.
    ///
    /// * `distances` – `distances[i][j]` from the node at place `i` to the one at place `j`.
    /// * `with_cpus` – those of them that have CPUs, in rising order.
    pub fn new(nodes: &[NodeId], distances: &[Vec<u32>], with_cpus: &[NodeId]) -> Self {
        let nr = nodes.iter().map(|n| n.index() + 1).max().unwrap_or(0);
        let mut table = vec![0; nr * nr];
        for (a, row) in nodes.iter().zip(distances) {
            for (b, &distance) in nodes.iter().zip(row) {
                table[a.index() * nr + b.index()] = distance;
            }
        }
        let with_cpus = with_cpus.to_vec();
        let mut d = Self { nr, table, with_cpus, levels: Vec::new(), shape: Shape::Direct };
        let pairs = d.with_cpus.iter().flat_map(|&a| d.with_cpus.iter().map(move |&b| (a, b)));
        d.levels = pairs.map(|(a, b)| d.between(a, b)).collect();
        d.levels.sort_unstable_by(|a, b| b.cmp(a));
        d.levels.dedup();
        d.shape = d.shape_of();
        d
    }
    /// Those of a machine.
    pub fn of(machine: &Hardware) -> Self {
        let nodes: Vec<NodeId> = machine.nodes.iter().map(|n| n.id).collect();
        let mut with_cpus: Vec<NodeId> = machine.cpus.iter().map(|c| c.node).collect();
        with_cpus.sort_unstable();
        with_cpus.dedup();
        Self::new(&nodes, &machine.distances, &with_cpus)
    }
    /// The first pair of nodes that are farthest apart decides.
    fn shape_of(&self) -> Shape {
        if self.levels.len() <= 2 {
            return Shape::Direct;
        }
        let max = self.max();
        for &a in &self.with_cpus {
            for &b in &self.with_cpus {
                if self.between(a, b) < max {
                    continue;
                }
                let lies_between =
                    |&c: &NodeId| self.between(a, c) < max && self.between(b, c) < max;
                return match self.with_cpus.iter().any(lies_between) {
                    true => Shape::Mesh,
                    false => Shape::Backplane,
                };
            }
        }
        Shape::Direct
    }
    /// How the nodes are connected.
    pub const fn shape(&self) -> Shape {
        self.shape
    }
    /// The nodes that have CPUs, in rising order.
    pub fn with_cpus(&self) -> &[NodeId] {
        &self.with_cpus
    }
    /// From one node to another; 0 where there is none of that number.
    #[inline]
    pub fn between(&self, a: NodeId, b: NodeId) -> u32 {
        let inside = a.index() < self.nr && b.index() < self.nr;
        if inside { self.table[a.index() * self.nr + b.index()] } else { 0 }
    }
    /// The largest between nodes that have CPUs.
    fn max(&self) -> u32 {
        self.levels.first().copied().unwrap_or(LOCAL_DISTANCE)
    }

    /// Faults of a task on a node and near it, of 1000 faults of the task. 0 without any.
    ///
    /// * `limit` – the distance between the two nodes that are compared: of a backplane, nodes as far as
    ///   that or farther don't count.
    ///
    /// Source: specs/numa.md#weights.
    pub fn task_weight(&self, task: &TaskFaults, node: NodeId, limit: u32) -> i64 {
        self.weight(&task.nodes, task.total, node, limit)
    }
    /// The same of a task's group; 0 without a group.
    ///
    /// Source: specs/numa.md#weights.
    pub fn group_weight(&self, group: Option<&GroupFaults>, node: NodeId, limit: u32) -> i64 {
        let Some(g) = group else { return 0 };
        self.weight(&g.nodes, g.nodes.iter().map(mem).sum(), node, limit)
    }
    fn weight(&self, nodes: &[NodeFaults], total: u64, node: NodeId, limit: u32) -> i64 {
        if total == 0 {
            return 0;
        }
        let own = nodes.get(node.index()).map_or(0, mem);
        (1000 * (own + self.nearby(nodes, node, limit)) / total) as i64
    }
    /// What faults on other nodes count for a node.
    fn nearby(&self, nodes: &[NodeFaults], node: NodeId, limit: u32) -> u64 {
        if self.shape == Shape::Direct {
            return 0;
        }
        let max = self.max();
        let mut score = 0;
        for (other, n) in nodes.iter().enumerate() {
            let distance = self.between(node, NodeId(other as u16));
            if distance == 0 || distance >= max || other == node.index() {
                continue;
            }
            score += match self.shape {
                Shape::Mesh => mem(n) * u64::from(max - distance) / u64::from(max - LOCAL_DISTANCE),
                Shape::Backplane if distance >= limit => 0,
                Shape::Backplane | Shape::Direct => mem(n),
            };
        }
        score
    }

    /// Where a group is at home, given the node with most of its faults: on a mesh the node of the largest
    /// weight, on a backplane the one that is found by going down from the best group of nodes to
    /// the best one in it.
    ///
    /// Source: specs/numa.md#weights.
    pub fn home_of_group(&self, g: &GroupFaults, most: NodeId) -> NodeId {
        match self.shape {
            Shape::Direct => most,
            Shape::Mesh => {
                let (mut best, mut home) = (0, most);
                for &node in &self.with_cpus {
                    let weight = self.group_weight(Some(g), node, self.max());
                    if weight > best {
                        (best, home) = (weight, node);
                    }
                }
                home
            }
            Shape::Backplane => self.home_on_backplane(g, most),
        }
    }
    fn home_on_backplane(&self, g: &GroupFaults, most: NodeId) -> NodeId {
        let mut home = most;
        let mut left = self.with_cpus.clone();
        for &distance in self.levels.iter().filter(|&&d| d > LOCAL_DISTANCE) {
            let (mut best, mut best_nodes) = (0, Vec::new());
            // Each node that is in no group yet begins one, with all that are nearer than the distance.
            let mut rest = left;
            while let Some(&first) = rest.first() {
                let (near, far): (Vec<NodeId>, Vec<NodeId>) =
                    rest.iter().partition(|&&n| self.between(first, n) < distance);
                let faults: u64 = near.iter().map(|&n| g.mem(n)).sum();
                if faults > best {
                    (best, home) = (faults, first);
                    best_nodes = near;
                }
                // A node whose distance to itself is not the least would never leave.
                rest = far.into_iter().filter(|&n| n != first).collect();
            }
            if best == 0 {
                break;
            }
            left = best_nodes;
        }
        home
    }
}

#[inline]
const fn mem(n: &NodeFaults) -> u64 {
    n.mem[0] + n.mem[1]
}

#[cfg(test)]
pub(super) mod tests;
