//! Which nodes are fast, and where cold pages go.
//!
//! A node has an *abstract distance*, smaller is faster; 128 of it make a tier.
//! DRAM has 576 (tier 4), expanders and persistent memory that a driver onlines
//! have 2880 (tier 22), unless the firmware's table (HMAT) tells latency and
//! bandwidth:
//!
//! ```text
//! adist = 576 · (rl+wl)/(RL+WL) · (RB+WB)/(rb+wb)      capitals: reference DRAM
//! twice the latency, half the bandwidth: 576 → 1152 → 2304, tier 18
//! ```
//!
//! All tiers down to the slowest one that holds a CPU are *top tier*.

use crate::kernel::KernelVersion;
use crate::topology::{Hardware, Link, Medium};
use crate::units::NodeId;
use std::collections::BTreeMap;

/// Abstract distance of DRAM.
pub const ADIST_DRAM: u64 = 576;
/// Abstract distance of memory onlined by dax/kmem, where firmware tells nothing.
pub const ADIST_KMEM: u64 = 2880;

/// Latency and bandwidth of a node's memory as its best initiator sees them, in
/// any unit that is the same for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perf {
    /// Read latency.
    pub read_latency: u64,
    /// Write latency.
    pub write_latency: u64,
    /// Read bandwidth.
    pub read_bandwidth: u64,
    /// Write bandwidth.
    pub write_bandwidth: u64,
}

impl Perf {
    /// The figures of a link.
    pub fn of(link: &Link) -> Self {
        Self {
            read_latency: link.read_latency.value,
            write_latency: link.write_latency.value,
            read_bandwidth: link.read_bandwidth.value,
            write_bandwidth: link.write_bandwidth.value,
        }
    }
    fn latency(&self) -> u64 {
        self.read_latency.saturating_add(self.write_latency)
    }
    fn bandwidth(&self) -> u64 {
        self.read_bandwidth.saturating_add(self.write_bandwidth)
    }
    fn is_usable(&self) -> bool {
        self.latency() != 0 && self.bandwidth() != 0
    }
    fn fields(&self) -> [u64; 4] {
        [self.read_latency, self.write_latency, self.read_bandwidth, self.write_bandwidth]
    }
    /// Whether any of the four lies more than a tenth from `reference`'s.
    fn differs(&self, reference: &Perf) -> bool {
        self.fields()
            .iter()
            .zip(reference.fields())
            .any(|(v, r)| u128::from(v.abs_diff(r)) * 10 > u128::from(r))
    }
}

/// Abstract distance of memory with `perf`, against `reference`; `None` where
/// a sum is 0 and nothing can be said. Truncates after each division.
///
/// Source: specs/tiering.md#tiers.
pub fn abstract_distance(reference: &Perf, perf: &Perf) -> Option<u64> {
    if !reference.is_usable() || !perf.is_usable() {
        return None;
    }
    let mul_div = |a: u64, b: u64, c: u64| {
        u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
    };
    let by_latency = mul_div(ADIST_DRAM, perf.latency(), reference.latency());
    Some(mul_div(by_latency, reference.bandwidth(), perf.bandwidth()))
}

/// The tier of an abstract distance.
pub const fn tier_of(adist: u64) -> u64 {
    adist >> TIER_SHIFT
}

/// Bits of abstract distance within a tier.
const TIER_SHIFT: u32 = 7;

/// What the kernel knows about the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// Latency and bandwidth of all links (HMAT).
    Hmat,
    /// Only which nodes a driver onlined.
    Silent,
}

/// The tiers of a machine.
///
/// | kernel   | what makes a tier                                  |
/// |----------|----------------------------------------------------|
/// | 3.8      | there is one                                       |
/// | 5.18     | a node with CPUs is fast, one without is slow      |
/// | 6.1      | the driver: DRAM 576, kmem 2880                    |
/// | 6.12 on  | HMAT, else the driver                              |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Nodes with memory by tier, fastest first.
    by_tier: BTreeMap<u64, Vec<NodeId>>,
    /// The slowest tier that is top.
    top: u64,
    /// Abstract distance by node.
    adist: BTreeMap<NodeId, u64>,
    version: KernelVersion,
}

impl Tiers {
    /// The tiers that `version` makes of `machine`.
    ///
    /// Source: specs/tiering.md#tiers.
    pub fn new(machine: &Hardware, firmware: Firmware, version: KernelVersion) -> Self {
        let with_memory = || machine.nodes.iter().filter(|n| n.managed().0 > 0);
        let reference = (version >= KernelVersion::V6_12 && firmware == Firmware::Hmat)
            .then(|| reference(machine))
            .flatten();
        let mut adist = BTreeMap::new();
        for node in with_memory() {
            let by_medium = match node.medium {
                Medium::Dram => ADIST_DRAM,
                Medium::Cxl | Medium::Pmem => ADIST_KMEM,
            };
            let d = match version {
                KernelVersion::V3_8 | KernelVersion::V4_5 | KernelVersion::V4_15 => ADIST_DRAM,
                KernelVersion::V5_18 if machine.has_cpu(node.id) => ADIST_DRAM,
                KernelVersion::V5_18 => ADIST_KMEM,
                _ => reference
                    .and_then(|r| abstract_distance(&r, &best_perf(machine, node.id)?))
                    .unwrap_or(by_medium),
            };
            adist.insert(node.id, d);
        }
        Self::from_distances(machine, adist, version)
    }

    /// Tiers of given abstract distances.
    pub fn from_distances(
        machine: &Hardware,
        adist: BTreeMap<NodeId, u64>,
        version: KernelVersion,
    ) -> Self {
        let mut by_tier: BTreeMap<u64, Vec<NodeId>> = BTreeMap::new();
        for (node, d) in &adist {
            by_tier.entry(tier_of(*d)).or_default().push(*node);
        }
        let top = by_tier
            .iter()
            .rev()
            .find(|(_, nodes)| nodes.iter().any(|n| machine.has_cpu(*n)))
            // No tier with a CPU: nothing is slow.
            .map_or(u64::MAX, |(tier, _)| *tier);
        Self { by_tier, top, adist, version }
    }

    /// Tiers as a kernel shows them, each with its nodes.
    pub fn shown(
        machine: &Hardware,
        tiers: &BTreeMap<u32, Vec<u32>>,
        version: KernelVersion,
    ) -> Self {
        let of = |n: NodeId| tiers.iter().find(|(_, nodes)| nodes.contains(&n.0.into()));
        let distance = |n: NodeId| of(n).map(|(tier, _)| (n, u64::from(*tier) << TIER_SHIFT));
        let adist = machine.nodes.iter().filter_map(|n| distance(n.id)).collect();
        Self::from_distances(machine, adist, version)
    }

    /// Abstract distance of a node with memory.
    pub fn abstract_distance(&self, node: NodeId) -> Option<u64> {
        self.adist.get(&node).copied()
    }
    /// Tier of a node with memory.
    pub fn tier(&self, node: NodeId) -> Option<u64> {
        self.abstract_distance(node).map(tier_of)
    }
    /// Whether the node is top tier; so is a node without tier.
    pub fn is_top(&self, node: NodeId) -> bool {
        self.tier(node).is_none_or(|t| t <= self.top)
    }
    /// Tiers with their nodes, fastest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[NodeId])> {
        self.by_tier.iter().map(|(t, n)| (*t, n.as_slice()))
    }

    /// The listing of `/sys/devices/virtual/memory_tiering/`: name of the tier
    /// and text of its `nodelist`.
    pub fn listing(&self) -> Vec<(String, String)> {
        self.iter().map(|(t, nodes)| (format!("memory_tier{t}"), list_format(nodes))).collect()
    }

    /// Where cold pages of `node` go first: of the next lower tier the nearest
    /// nodes, in the allocator's order. The kernel chooses among them at random
    /// once per batch. Empty in the lowest tier.
    ///
    /// Source: specs/tiering.md#demotion.
    pub fn demotion_targets(&self, machine: &Hardware, node: NodeId) -> Vec<NodeId> {
        if self.version < KernelVersion::V5_18 {
            return Vec::new();
        }
        let Some((_, lower)) = self.tier(node).and_then(|t| self.by_tier.range(t + 1..).next())
        else {
            return Vec::new();
        };
        let order = allocator_order(machine, node, lower);
        let nearest = order.first().and_then(|n| machine.distance(node, *n));
        order.into_iter().take_while(|n| machine.distance(node, *n) == nearest).collect()
    }

    /// Where else they may go: all nodes of all lower tiers, in the allocator's order.
    ///
    /// Source: specs/tiering.md#demotion.
    pub fn demotion_fallback(&self, machine: &Hardware, node: NodeId) -> Vec<NodeId> {
        let Some(t) = self.tier(node).filter(|_| self.version >= KernelVersion::V5_18) else {
            return Vec::new();
        };
        let lower: Vec<_> = self.by_tier.range(t + 1..).flat_map(|(_, n)| n).copied().collect();
        allocator_order(machine, node, &lower)
    }
}

/// The reference: the first node with CPU and memory. `None` switches the
/// algorithm off, as do CPU nodes that differ too much.
fn reference(machine: &Hardware) -> Option<Perf> {
    let mut reference: Option<Perf> = None;
    for node in &machine.nodes {
        if node.managed().0 == 0 || !machine.has_cpu(node.id) {
            continue;
        }
        let perf = best_perf(machine, node.id).filter(Perf::is_usable)?;
        match &reference {
            None => reference = Some(perf),
            Some(r) if perf.differs(r) => return None,
            Some(_) => {}
        }
    }
    reference
}

/// What the node's own CPUs see, else the CPU node with the lowest latency
/// (then the highest bandwidth, then the lowest number).
fn best_perf(machine: &Hardware, node: NodeId) -> Option<Perf> {
    if let Some(own) = machine.link(node, node) {
        return Some(Perf::of(own));
    }
    machine
        .links
        .iter()
        .filter(|l| l.to == node)
        .map(|l| (Perf::of(l), l.from))
        .min_by_key(|(p, from)| (p.latency(), u64::MAX - p.bandwidth(), *from))
        .map(|(p, _)| p)
}

/// Nodes of `among` in the order in which the allocator falls back from `from`:
/// itself, then by distance, where a lower number and having CPUs count one each.
///
/// Source: specs/tiering.md#demotion.
pub fn allocator_order(machine: &Hardware, from: NodeId, among: &[NodeId]) -> Vec<NodeId> {
    let cost = |to: NodeId| {
        let distance = machine.distance(from, to).unwrap_or(u32::MAX - 2);
        (to != from, distance + u32::from(to < from) + u32::from(machine.has_cpu(to)), to)
    };
    let mut order = among.to_vec();
    order.sort_by_key(|n| cost(*n));
    order
}

/// Nodes as the kernel lists them: `0-1,4`.
pub fn list_format(nodes: &[NodeId]) -> String {
    crate::list::sorted(&nodes.iter().map(|n| u32::from(n.0)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
