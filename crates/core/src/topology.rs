//! A machine as data: nodes, CPUs, caches, distances, and what each pair of
//! nodes takes to reach one another.
//!
//! ```text
//!        node 0 (CPUs 0-1, DRAM)          node 2 (no CPU, CXL)
//!   ┌──────────────────────────────┐    ┌──────────────────────┐
//!   │ core 0   core 1   LLC  DRAM  │ ─▶ │ expander's DRAM      │
//!   └──────────────────────────────┘    └──────────────────────┘
//!      distance 10 to itself, 20 to node 2; link (0, 2) holds the
//!      latency and bandwidth that CPUs of node 0 see there
//! ```

use crate::costs::{Constant, Costs};
use crate::units::{Bytes, CpuId, NodeId, Pages};

/// Distance of a node to itself in the kernel's table.
pub const LOCAL_DISTANCE: u32 = 10;
/// Distance that the kernel takes where firmware says nothing.
pub const REMOTE_DISTANCE: u32 = 20;

/// What a node's memory is made of. Decides the default abstract distance, as
/// the kernel's drivers do (SPEC §B.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    /// Ordinary memory, onlined by the firmware's map.
    Dram,
    /// An expander behind a link, onlined by dax/kmem.
    Cxl,
    /// Persistent memory, onlined by dax/kmem.
    Pmem,
}

/// A zone's kind, in the order in which the kernel stacks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma,
    /// Below 4 GiB.
    Dma32,
    /// All other memory.
    Normal,
    /// Memory that holds movable pages only.
    Movable,
}

/// A zone of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its kind; one zone of each kind at most.
    pub kind: ZoneKind,
    /// Managed pages.
    pub managed: Pages,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its medium.
    pub medium: Medium,
    /// Its zones in rising order; the sum is the node's size. Empty nodes have none.
    pub zones: Vec<Zone>,
}

impl Node {
    /// Managed pages in all zones.
    pub fn managed(&self) -> Pages {
        self.zones.iter().map(|z| z.managed).sum()
    }
    /// The node's size.
    pub fn size(&self) -> Bytes {
        self.managed().bytes()
    }
}

/// A logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// The node it belongs to.
    pub node: NodeId,
    /// Physical core: CPUs with the same number are SMT siblings.
    pub core: u32,
    /// Last-level cache: CPUs with the same number share it.
    pub llc: u32,
}

/// A data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Size of one instance.
    pub size: Bytes,
    /// Associativity.
    pub ways: u32,
    /// Line size in bytes.
    pub line: u32,
    /// CPUs that share one instance.
    pub shared_by: u32,
    /// Load-to-use latency in picoseconds.
    pub latency: Constant,
}

/// What the CPUs of `from` see in the memory of `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The initiator's node; it has CPUs.
    pub from: NodeId,
    /// The target's node; it has memory.
    pub to: NodeId,
    /// Latency of a dependent random load, unloaded, in picoseconds.
    pub read_latency: Constant,
    /// Latency of a store that misses, unloaded, in picoseconds.
    pub write_latency: Constant,
    /// Read bandwidth in MB/s.
    pub read_bandwidth: Constant,
    /// Write bandwidth in MB/s.
    pub write_bandwidth: Constant,
}

/// A machine: what stands in a machine's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// A short name for captions.
    pub name: String,
    /// One sentence: CPU model, kernel, where the figures come from.
    pub about: String,
    /// Nodes in rising order of their numbers.
    pub nodes: Vec<Node>,
    /// CPUs in rising order of their numbers.
    pub cpus: Vec<Cpu>,
    /// Data caches in rising order of their levels.
    pub caches: Vec<Cache>,
    /// `distances[i][j]`: from `nodes[i]` to `nodes[j]`, the kernel's table.
    pub distances: Vec<Vec<u32>>,
    /// One for each pair of a node with CPUs and a node with memory.
    pub links: Vec<Link>,
    /// Everything that belongs to no pair.
    pub costs: Costs,
}

/// Why a machine is impossible. `node` and `cpu` name the offender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// No node, or none with memory, or none with a CPU.
    Nothing(&'static str),
    /// A number occurs twice or out of order.
    Order(String),
    /// A CPU names a node that is not there, or two CPUs have one number.
    Cpu(CpuId, String),
    /// A distance is not what the kernel accepts.
    Distance(NodeId, NodeId, u32, &'static str),
    /// A link is missing, doubled, or names a node that cannot be its end.
    Link(NodeId, NodeId, &'static str),
    /// A size is 0 or beyond 2^52 bytes.
    Size(NodeId, u64),
    /// A constant lies outside its bounds.
    Bounds(String),
}

impl Machine {
    /// The node's place in `nodes`, if it is there.
    pub fn position(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |n| n.id).ok()
    }
    /// Distance from node `a` to node `b`; `None` if either is not there.
    pub fn distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        Some(self.distances[self.position(a)?][self.position(b)?])
    }
    /// What CPUs of `from` see in the memory of `to`.
    pub fn link(&self, from: NodeId, to: NodeId) -> Option<&Link> {
        self.links.iter().find(|l| l.from == from && l.to == to)
    }
    /// CPUs of a node, in rising order.
    pub fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().filter(move |c| c.node == node).map(|c| c.id)
    }
    /// Whether the node has a CPU.
    pub fn has_cpu(&self, node: NodeId) -> bool {
        self.cpus.iter().any(|c| c.node == node)
    }
}
