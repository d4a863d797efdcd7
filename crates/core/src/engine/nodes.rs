//! The machine's nodes: which are fast, what reaching them takes, how much fits.

use super::Settings;
use crate::kernel::KernelVersion;
use crate::policy::seen::ZoneSeen;
use crate::scenario::AdmissionChoice;
use crate::tiering::tiers::{Firmware, Tiers, allocator_order};
use crate::tiering::watermarks::{WakeFacts, ZoneMarks, admit_node};
use crate::topology::{Hardware, MAX_SIZE};
use crate::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, BTreeSet};

/// Latency under load that is believed: a thousand times the unloaded one.
const MOST_LOAD: u64 = 1_000_000;

/// What is known of one node's memory.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// As seen last; `None`: never.
    zones: Option<Vec<ZoneSeen>>,
    /// Pages that orders on their way may bring.
    coming: u64,
    /// Pages brought (or, negative, taken away) since it was seen.
    drift: i64,
    /// It said that there was no room: nothing more until it is seen again.
    closed: bool,
    /// Latency under load, in thousandths of the unloaded one, and whether anything told it.
    load: u64,
    told: bool,
    /// Thousandths of CPUs that were idle.
    idle: Option<u32>,
    /// Where its cold pages go, best first.
    below: Vec<NodeId>,
}

/// How long a fast node and the one below it take to answer, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderLoad {
    pub(super) below: NodeId,
    pub(super) fast: u64,
    pub(super) slow: u64,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    tiers: Tiers,
    memory: BTreeMap<NodeId, Memory>,
    /// For each node, the fast node that is nearest to its CPUs.
    fast: BTreeMap<NodeId, NodeId>,
    with_cpu: BTreeSet<NodeId>,
    /// Unloaded latency in picoseconds.
    latency: BTreeMap<(NodeId, NodeId), u64>,
    choice: AdmissionChoice,
    settings: Settings,
}

impl Nodes {
    /// Tiers are those of the latencies and bandwidths that the machine's file
    /// holds, also where its firmware is silent: they decide what a move is worth.
    ///
    /// Source: specs/engine.md#nodes.
    pub(super) fn new(settings: Settings, machine: &Hardware, version: KernelVersion) -> Self {
        let tiers = Tiers::new(machine, Firmware::Hmat, version);
        let mut memory = BTreeMap::new();
        for node in machine.nodes.iter().filter(|n| n.managed().0 > 0) {
            let mut below = tiers.demotion_targets(machine, node.id);
            for other in tiers.demotion_fallback(machine, node.id) {
                if !below.contains(&other) {
                    below.push(other);
                }
            }
            memory.insert(node.id, Memory { load: 1000, below, ..Memory::default() });
        }
        let top: Vec<NodeId> = memory.keys().copied().filter(|n| tiers.is_top(*n)).collect();
        let nearest = |n| allocator_order(machine, n, &top).first().copied();
        let fast = machine.nodes.iter().filter_map(|n| Some((n.id, nearest(n.id)?))).collect();
        Self {
            tiers,
            memory,
            fast,
            with_cpu: machine.cpus.iter().map(|c| c.node).collect(),
            latency: machine.links.iter().map(|l| ((l.from, l.to), l.read_latency.value)).collect(),
            choice: settings.admission,
            settings,
        }
    }

    /// Takes what was seen of a node; says whether it is one with memory.
    pub(super) fn see(
        &mut self,
        node: NodeId,
        zones: &[ZoneSeen],
        load: Option<u32>,
        idle: Option<u32>,
    ) -> bool {
        let Some(m) = self.memory.get_mut(&node) else { return false };
        m.zones = (!zones.is_empty()).then(|| zones.iter().map(|z| sane(*z)).collect());
        m.drift = 0;
        m.closed = false;
        m.idle = idle;
        m.load = load.map_or(1000, |l| u64::from(l).clamp(1, MOST_LOAD));
        m.told = load.is_some();
        true
    }

    /// The only node with CPUs, if there is but one: then all accesses are from there.
    pub(super) fn only_cpu(&self) -> Option<NodeId> {
        (self.with_cpu.len() == 1).then(|| self.with_cpu.first().copied()).flatten()
    }
    /// Nodes with CPUs.
    pub(super) fn with_cpus(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.with_cpu.iter().copied()
    }
    /// How many of a node's CPUs were idle lately, in thousandths; `None` where nothing tells.
    pub(super) fn idle(&self, node: NodeId) -> Option<u32> {
        self.memory.get(&node)?.idle
    }
    /// The fast node for CPUs of that node.
    pub(super) fn fast_for(&self, cpu: NodeId) -> Option<NodeId> {
        self.fast.get(&cpu).copied()
    }
    /// Whether a node is of the top tier.
    pub(super) fn is_top(&self, node: NodeId) -> bool {
        self.tiers.is_top(node)
    }
    /// Nodes that are fast for somebody.
    pub(super) fn fast_nodes(&self) -> BTreeSet<NodeId> {
        self.fast.values().copied().collect()
    }

    /// What an access takes, under the target's load, in picoseconds.
    ///
    /// Source: specs/engine.md#benefit.
    pub(super) fn latency(&self, cpu: NodeId, on: NodeId) -> Option<u64> {
        let load = self.memory.get(&on)?.load;
        Some(self.latency.get(&(cpu, on))?.saturating_mul(load) / 1000)
    }
    /// A fast node and the one below it, as its CPUs reach both under their load; `None` where
    /// the load of the fast one isn't told.
    ///
    /// Source: specs/engine.md#under-load.
    pub(super) fn under_load(&self, fast: NodeId) -> Option<UnderLoad> {
        let m = self.memory.get(&fast).filter(|m| m.told)?;
        let cpu = self.with_cpu.iter().copied().find(|c| self.fast_for(*c) == Some(fast))?;
        let below = *m.below.first()?;
        Some(UnderLoad { below, fast: self.latency(cpu, fast)?, slow: self.latency(cpu, below)? })
    }
    /// What an access saves if the page is on `to` instead of `from`; `None` where it
    /// loses or nothing is known.
    pub(super) fn gain(&self, cpu: NodeId, from: NodeId, to: NodeId) -> Option<u64> {
        u64::try_from(self.saves(cpu, from, to)).ok().filter(|g| *g > 0)
    }
    /// What an access saves on `to` instead of `from`, or loses; 0 where nothing is known.
    pub(super) fn saves(&self, cpu: NodeId, from: NodeId, to: NodeId) -> i64 {
        match (self.latency(cpu, from), self.latency(cpu, to)) {
            (Some(a), Some(b)) => i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(0),
            _ => 0,
        }
    }
    /// The most that an access from any CPU, or those of one node, can lose.
    pub(super) fn loss(&self, cpu: Option<NodeId>, from: NodeId, to: NodeId) -> u64 {
        let one = |c: NodeId| self.gain(c, to, from).unwrap_or(0);
        match cpu {
            Some(c) => one(c),
            None => self.with_cpu.iter().map(|c| one(*c)).max().unwrap_or(0),
        }
    }
    /// The slowest node for a CPU, for what a page might gain at most.
    pub(super) fn most_gain(&self, cpu: NodeId, to: NodeId) -> u64 {
        self.memory.keys().filter_map(|n| self.gain(cpu, *n, to)).max().unwrap_or(0)
    }

    /// The same downwards: what an access saves below a fast node that load makes slow.
    pub(super) fn relief(&self, cpu: NodeId, fast: NodeId) -> u64 {
        let below = self.memory.get(&fast).and_then(|m| m.below.first());
        below.and_then(|below| self.gain(cpu, fast, *below)).unwrap_or(0)
    }

    fn zones_now<'a>(
        &self,
        m: &'a Memory,
    ) -> Option<impl Iterator<Item = (Pages, ZoneMarks)> + Clone + use<'a>> {
        let zones = m.zones.as_ref()?;
        // Nothing tells to which zone pages come or go. What comes counts against
        // each of them; what has gone, for the largest only.
        let largest = zones.iter().map(|z| z.marks.managed).max()?;
        let gone = m.drift.min(0).unsigned_abs();
        let used = m.coming.saturating_add(m.drift.max(0).unsigned_abs());
        Some(zones.iter().map(move |z| {
            let back = if z.marks.managed == largest { gone } else { 0 };
            (Pages(z.free.0.saturating_add(back).saturating_sub(used)), z.marks)
        }))
    }

    fn room_by(&self, node: NodeId, most: u64, choice: AdmissionChoice) -> Option<u64> {
        let m = self.memory.get(&node)?;
        let zones = self.zones_now(m)?;
        if m.closed {
            return Some(0);
        }
        let wake = WakeFacts { tiering: true, can_demote: !m.below.is_empty() };
        let most = most.min(MAX_SIZE);
        let fits = |n: u64| {
            let margin = self.settings.margin;
            admit_node(zones.clone(), Pages(n), choice, margin, wake).is_admitted()
        };
        // Admission falls with n: the largest admitted one by halving.
        let (mut low, mut high) = (0, most.saturating_add(1));
        while high - low > 1 {
            let n = low + (high - low) / 2;
            if fits(n) { low = n } else { high = n }
        }
        Some(low)
    }

    /// How many pages, up to `most`, the admission rule lets up to a node now; `None`
    /// where its marks have not been seen.
    ///
    /// Source: specs/engine.md#admission.
    pub(super) fn room(&self, node: NodeId, most: u64) -> Option<u64> {
        self.room_by(node, most, self.choice)
    }
    /// The same for pages that come down: a node is used down to its min.
    pub(super) fn room_below(&self, node: NodeId, most: u64) -> Option<u64> {
        self.room_by(node, most, AdmissionChoice::A)
    }
    /// Pages that must go before the first is admitted.
    pub(super) fn shortfall(&self, node: NodeId) -> u64 {
        let Some(zones) = self.memory.get(&node).and_then(|m| self.zones_now(m)) else { return 0 };
        zones.max_by_key(|(_, m)| m.managed).map_or(0, |(free, m)| {
            let mark = match self.choice {
                AdmissionChoice::B => m.high,
                AdmissionChoice::A => m.min,
            };
            // Strictly more must remain: one page above the mark admits nobody yet.
            mark.0.saturating_add(m.reserve.0).saturating_add(1).saturating_sub(free.0)
        })
    }
    /// The node below with room, and how much up to `most`.
    pub(super) fn down(&self, node: NodeId, most: u64) -> Option<(NodeId, u64)> {
        let below = &self.memory.get(&node)?.below;
        below.iter().find_map(|n| self.room_below(*n, most).filter(|r| *r > 0).map(|r| (*n, r)))
    }

    /// An order may bring so many.
    pub(super) fn expect(&mut self, node: NodeId, named: u64) {
        if let Some(m) = self.memory.get_mut(&node) {
            m.coming = m.coming.saturating_add(named);
        }
    }
    /// It has brought `moved` of them from `from`, or will never.
    pub(super) fn arrived(&mut self, from: NodeId, to: NodeId, named: u64, moved: u64) {
        let moved = i64::try_from(moved).unwrap_or(i64::MAX);
        if let Some(m) = self.memory.get_mut(&to) {
            m.coming = m.coming.saturating_sub(named);
            m.drift = m.drift.saturating_add(moved);
        }
        if let Some(m) = self.memory.get_mut(&from) {
            m.drift = m.drift.saturating_sub(moved);
        }
    }
    /// It had no room, whatever its marks said.
    pub(super) fn close(&mut self, node: NodeId) {
        if let Some(m) = self.memory.get_mut(&node) {
            m.closed = true;
        }
    }
}

/// A zone as a machine could have it, so that a wrong word overflows nothing.
fn sane(mut zone: ZoneSeen) -> ZoneSeen {
    let ZoneSeen { free, marks: m } = &mut zone;
    for v in
        [free, &mut m.managed, &mut m.min, &mut m.low, &mut m.high, &mut m.promo, &mut m.reserve]
    {
        v.0 = v.0.min(MAX_SIZE);
    }
    zone
}

/// What `pages` at `heat` save in `horizon` if each access saves `gain`.
///
/// Source: specs/engine.md#benefit.
pub(super) fn saving(heat: u64, gain: u64, pages: u64, horizon: Picos) -> u128 {
    // Nearly always it fits into 64 bits, which are divided by a constant in no time.
    let small = || {
        let per_page = heat.checked_mul(gain)? / 1_000;
        Some(per_page.checked_mul(horizon.0 / 1_000_000_000)?.checked_mul(pages)? / 1_000)
    };
    if let Some(saves) = small() {
        return u128::from(saves);
    }
    // thousandths of an access a second × ps × pages × ps of the horizon
    let per_page = u128::from(heat) * u128::from(gain) / 1_000;
    let ms = u128::from(horizon.0 / 1_000_000_000);
    let saves = per_page.saturating_mul(ms).saturating_mul(u128::from(pages)) / 1_000;
    // 213 days, as a time has; so that a sum or a share can't overflow.
    saves.min(u128::from(u64::MAX))
}
