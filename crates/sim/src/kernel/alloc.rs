//! Where a page comes from: fallback by distance, watermarks, and who is woken
//! when there is none (specs/tiering.md#allocation).

use super::{Ctx, Kernel, Reclaimer};
use crate::vmstat::Item;
use homenode_core::tiering::reclaim::MAX_RECLAIM_RETRIES;
use homenode_core::topology::ZoneKind;
use homenode_core::units::{NodeId, Pages};

/// The mark that a zone must stay above.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Min,
    Low,
}

impl Kernel {
    /// Free pages that a zone must keep for an allocation of movable memory held
    /// against `mark`, with what it reserves against the node's higher zones.
    pub(super) fn keep(&self, zone: usize, mark: Mark) -> u64 {
        let m = &self.marks[zone];
        let mark = match mark {
            Mark::Min => m.min,
            Mark::Low => m.low,
        };
        mark.0 + m.reserve.0
    }

    /// Takes `n` pages from one zone of a node, if that leaves more than `mark`.
    pub(super) fn take_from(&mut self, node: usize, n: u64, mark: Mark) -> Option<usize> {
        let zone = self.take_quietly(node, n, mark)?;
        self.count_taken(zone, n);
        Some(zone)
    }
    pub(super) fn count_taken(&mut self, zone: usize, n: u64) {
        self.memory.zones[zone].allocated += n;
        let node = self.memory.node_of(zone);
        self.stat.add(node, Item::Pgalloc, n);
    }
    /// Takes pages of a zone for good, as the kernel's own are; no more than are free.
    pub(crate) fn take_for_good(&mut self, node: NodeId, kind: ZoneKind, pages: Pages) {
        let place = self.place_of(node);
        let zones = &self.memory.nodes[place].zones;
        let found = zones.iter().copied().find(|&z| self.marks[z].kind == kind);
        if let Some(zone) = found {
            let n = pages.0.min(self.memory.zones[zone].free);
            self.memory.zones[zone].free -= n;
            self.count_taken(zone, n);
        }
    }
    pub(super) fn give(&mut self, zone: usize, n: u64) {
        self.memory.zones[zone].free += n;
        let node = self.memory.node_of(zone);
        self.stat.add(node, Item::Pgfree, n);
    }

    /// Reclaims from nodes until one of them gives pages down to its min, as long as that
    /// comes to anything. Nothing is counted as allocated.
    pub(super) fn take_after_reclaim(
        &mut self,
        ctx: &mut Ctx,
        n: u64,
        order: &[usize],
    ) -> Option<usize> {
        let mut fruitless = 0;
        while fruitless <= MAX_RECLAIM_RETRIES {
            let got = self.direct_reclaim(ctx, order, Reclaimer::Direct);
            fruitless = if got == 0 { fruitless + 1 } else { 0 };
            let zone = order.iter().find_map(|&node| self.take_quietly(node, n, Mark::Min));
            if zone.is_some() {
                return zone;
            }
        }
        None
    }

    /// Nodes with memory that a policy allows, the wanted one first, then by distance.
    pub(super) fn nodes_for(&self, wanted: NodeId, only: Option<&[NodeId]>) -> Vec<usize> {
        let start = self.place_of(wanted);
        match only {
            None => self.fallback[start].clone(),
            Some(nodes) => {
                let allowed = |&p: &usize| nodes.contains(&self.memory.node_id(p));
                self.fallback[start].iter().copied().filter(allowed).collect()
            }
        }
    }

    /// Allocates a base page: on the wanted node first, then on the others by distance; the
    /// zone. `None`: no memory, also not by reclaim.
    pub(super) fn allocate(
        &mut self,
        ctx: &mut Ctx,
        wanted: NodeId,
        only: Option<&[NodeId]>,
    ) -> Option<usize> {
        let n = 1;
        let order = self.nodes_for(wanted, only);
        // No node of the policy has memory: reclaim would not help.
        if order.is_empty() {
            return None;
        }
        let version = self.knobs.version;
        let mut zone = order.iter().find_map(|&node| {
            let passed_over = self.kswapd[node].state.is_passed_over(version);
            (!passed_over).then(|| self.take_from(node, n, Mark::Low)).flatten()
        });
        if zone.is_none() {
            for &node in &order {
                self.wake_kswapd(node);
            }
            zone = order.iter().find_map(|&node| self.take_from(node, n, Mark::Min));
        }
        if zone.is_none() {
            let taken = self.take_after_reclaim(ctx, n, &order);
            zone = taken.inspect(|&zone| self.count_taken(zone, n));
        }
        let zone = zone?;
        self.count_allocated(ctx, zone, order[0]);
        Some(zone)
    }
    /// Counts an allocation that `start` was wanted for: one, of whatever size. Wakes kswapd
    /// where a contender's rules say so.
    pub(super) fn count_allocated(&mut self, ctx: &Ctx, zone: usize, start: usize) {
        let node = self.memory.node_of(zone);
        let (free, can_demote) = (self.memory.zones[zone].free, self.wake_facts(node).can_demote);
        if self.inside.rules.wakes_kswapd(Pages(free), &self.marks[zone], can_demote) {
            self.wake_kswapd(node);
        }
        // What is wanted of a node without memory is wanted of the nearest that has some.
        if node == start {
            self.stat.add(node, Item::NumaHit, 1);
        } else {
            self.stat.add(node, Item::NumaMiss, 1);
            self.stat.add(start, Item::NumaForeign, 1);
        }
        let near = if node == ctx.node { Item::NumaLocal } else { Item::NumaOther };
        self.stat.add(node, near, 1);
    }
}
