//! Threads that go to their memory, where that costs less than memory that goes to them.
//!
//! ```text
//! threads on N, memory on M   ┌─ pages: so many moves ─────────────────┐
//!                             ├─ threads: what they leave in caches ───┼──▶ what gains more
//! idle CPUs of M >= their use ┘   (only with room)                     ┘
//! ```
//!
//! A process is brought as a whole: whoever has spread its threads had a reason. Only one whose
//! threads have stayed on one node for a while is judged, as for its pages.
//!
//! Source: specs/engine.md#home.

use super::Engine;
use super::heat::{Cell, Rate};
use super::nodes::saving;
use super::open::Open;
use super::plan::{Bring, Near};
use super::process::Tracked;
use crate::policy::order::{Act, Benefit, Evidence, Reason};
use crate::policy::span::Who;
use crate::units::{NodeId, PAGE_SIZE, Picos};
use std::collections::BTreeMap;

/// What all accesses of a process save with its threads on other nodes, by node.
pub(super) type Elsewhere = BTreeMap<NodeId, i128>;

impl Engine {
    /// The machine can bring threads to a node, or can not: if so they are brought, where that
    /// gains more than moving their memory.
    #[must_use]
    pub fn bringing_threads(mut self, can: bool) -> Self {
        self.brings = can;
        self
    }

    /// The node of a process's threads, if it may be brought elsewhere.
    pub(super) fn may_go_home(&self, p: &Tracked) -> Option<NodeId> {
        // As soon as pages would follow them: samples and faults tell where accesses come from.
        let settled = match self.lack(Evidence::Cpu) {
            true => self.settings.long,
            false => self.settings.short,
        };
        let stayed = self.now.saturating_sub(p.node_since) >= settled;
        let may = self.brings && stayed && self.now >= p.brought.not_before && !self.silent;
        p.node.filter(|_| may && self.settings.cpu_permille > 0 && p.used.permille.is_some())
    }

    /// Adds what accesses to a stretch save with threads elsewhere than on `from`.
    pub(super) fn elsewhere(
        &self,
        from: NodeId,
        p: &Tracked,
        (cell, heat): (&Cell, Rate),
        sums: &mut Elsewhere,
    ) {
        let known = cell.place.as_ref().filter(|_| heat > 0);
        for &(on, pages) in known.iter().flat_map(|place| place.on.iter()) {
            for to in self.nodes.with_cpus().filter(|to| *to != from) {
                let (Some(here), Some(there)) =
                    (self.nodes.latency(from, on), self.nodes.latency(to, on))
                else {
                    continue;
                };
                let each = p.waited.of(here.abs_diff(there));
                let all = saving(heat, each, pages, self.settings.horizon);
                let all = i128::try_from(all).unwrap_or(i128::MAX);
                let sum = sums.entry(to).or_default();
                *sum = sum.saturating_add(if there < here { all } else { -all });
            }
        }
    }

    /// Where its threads should go, if that gains more than its pages that would follow them.
    ///
    /// * `near` – those pages; `all` – all processes.
    ///
    /// Source: specs/engine.md#home.
    pub(super) fn bring(
        &self,
        who: Who,
        p: &Tracked,
        sums: &Elsewhere,
        near: Near,
        all: &BTreeMap<Who, Tracked>,
    ) -> Option<Bring> {
        let (&to, &saves) = sums.iter().max_by_key(|(node, saves)| (**saves, **node))?;
        let saves = u128::try_from(saves).ok()?;
        let costs = self.cold_caches(p, to);
        let net = saves.checked_sub(u128::from(costs)).filter(|net| *net > 0)?;
        let pages = u128::from(near.pages) * u128::from(self.per_page);
        if near.saves.saturating_sub(pages) >= net {
            return None;
        }
        // Its own use and an eighth: what differs by less counts as alike.
        let used = p.used.permille?;
        let needs = used + used / 8;
        let planned = self.plan.brings.iter().filter(|b| b.to == to).map(|b| b.needs);
        // Those on their way are not in what was told of idle CPUs.
        let coming = all.values().filter(|p| self.now < p.brought.settles);
        let coming = coming.filter_map(|p| p.brought.to.filter(|(node, _)| *node == to));
        let taken = planned.chain(coming.map(|(_, needs)| needs)).fold(0, u64::saturating_add);
        let idle = u64::from(self.nodes.idle(to)?);
        (idle >= needs.saturating_add(taken)).then_some(Bring { who, to, saves, costs, needs })
    }

    /// What threads pay that come to another node: all that a last level holds is read again.
    fn cold_caches(&self, p: &Tracked, to: NodeId) -> u64 {
        let lines =
            p.resident.0.saturating_mul(PAGE_SIZE).min(self.last_level.0) / self.last_level.1;
        lines.saturating_mul(self.nodes.latency(to, to).unwrap_or(0))
    }

    /// Orders what the last decision wants brought.
    pub(super) fn pump_home(&mut self) -> bool {
        let Some(bring) = self.plan.brings.pop() else { return false };
        let now = self.now;
        let Some(p) = self.processes.get_mut(&bring.who) else { return true };
        // One that came back before it paid is left alone for longer each time.
        let pause = self.settings.horizon.0.saturating_mul(1 << p.brought.times.min(16));
        p.brought.not_before = Picos(now.0.saturating_add(pause));
        p.brought.settles =
            Picos(now.0.saturating_add(Act::AFFINE_FOR.0).saturating_add(self.settings.interval.0));
        p.brought.to = Some((bring.to, bring.needs));
        p.brought.times += 1;
        let saves = Picos(u64::try_from(bring.saves).unwrap_or(u64::MAX));
        let over = self.settings.horizon;
        let expect = Benefit { saves, costs: Picos(bring.costs), over };
        let act = Act::Affine { who: bring.who, node: bring.to };
        self.issue(act, expect, Open::new(bring.who, Reason::NearItsMemory));
        true
    }
}
