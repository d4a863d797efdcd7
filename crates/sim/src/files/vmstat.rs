//! `/proc/vmstat`: gauges and counters with the names and in the order of a version.
//!
//! | group | where else |
//! |---|---|
//! | of zones: `nr_free_pages`, `nr_zone_…`, then `numa_hit` … `numa_other` | node's `vmstat` |
//! | of nodes: lists, promotions, [6.12] demotions | node's `vmstat`, `zoneinfo` |
//! | events | – |
//!
//! Source: specs/files.md#vmstat.

use crate::lists::Lru;
use crate::simulation::Simulation;
use crate::vmstat::{Item, Listed};
use homenode_core::kernel::KernelVersion;
use homenode_core::topology::ZoneKind;
use std::fmt::Write as _;

/// Name and value of a line.
pub(super) type Line = (String, u64);

impl Simulation {
    pub(super) fn vmstat_text(&self) -> String {
        let version = self.kernel.knobs.version;
        let places: Vec<usize> = (0..self.machine.nodes.len()).collect();
        let mut lines = self.zone_lines(&places);
        lines.extend(self.node_lines(&places));
        let events = |i: &Item| i.listed(version) == Listed::Events;
        let old_demotions = [Item::PgdemoteKswapd, Item::PgdemoteDirect];
        for item in Item::ALL.into_iter().filter(events) {
            let value = self.kernel.stat.get(item);
            match item {
                Item::Pgalloc => lines.extend(self.allocated()),
                Item::Allocstall => {
                    // All that programs allocate may lie in movable zones, and it is the
                    // highest zone allowed that is counted.
                    let of = |kind| if kind == ZoneKind::Movable { value } else { 0 };
                    lines
                        .extend(ZoneKind::ALL.map(|k| (format!("allocstall_{}", k.name()), of(k))));
                }
                // Until they became counters of nodes they stood behind what was reclaimed.
                _ if old_demotions.contains(&item) => {}
                Item::PgstealDirect => {
                    lines.push((item.name().to_owned(), value));
                    let here = old_demotions.into_iter().filter(events);
                    lines.extend(here.map(|d| (d.name().to_owned(), self.kernel.stat.get(d))));
                }
                _ => lines.push((item.name().to_owned(), value)),
            }
        }
        text(&lines)
    }

    /// The lines of zones, summed over the nodes at those places.
    pub(super) fn zone_lines(&self, places: &[usize]) -> Vec<Line> {
        let free = places.iter().map(|&p| self.kernel.memory.free_of(p)).sum();
        let mut lines = vec![("nr_free_pages".to_owned(), free)];
        lines.extend(self.list_lines("nr_zone_", places));
        lines.extend(self.item_lines(Listed::Zones, places));
        lines
    }

    /// The lines of nodes, summed over those at these places.
    pub(super) fn node_lines(&self, places: &[usize]) -> Vec<Line> {
        let version = self.kernel.knobs.version;
        let mut lines = self.list_lines("nr_", places);
        lines.push(("nr_anon_transparent_hugepages".to_owned(), self.huge_pages(places)));
        lines.extend(self.item_lines(Listed::Nodes, places));
        // Nothing in the simulated kernel demotes on these grounds.
        if version >= KernelVersion::V7_3 {
            lines.push(("pgdemote_proactive".to_owned(), 0));
        }
        lines
    }

    /// The counters that this version lists among those.
    fn item_lines(&self, listed: Listed, places: &[usize]) -> impl Iterator<Item = Line> {
        let version = self.kernel.knobs.version;
        let of = move |item: &Item| item.listed(version) == listed;
        let line = |item: Item| (item.name().to_owned(), self.sum(item, places));
        Item::ALL.into_iter().filter(of).map(line)
    }
    /// Pages by list; nothing is ever locked in memory.
    fn list_lines(&self, prefix: &str, places: &[usize]) -> Vec<Line> {
        let names = ["inactive_anon", "active_anon", "inactive_file", "active_file"];
        let mut lines: Vec<Line> = Lru::ALL
            .iter()
            .zip(names)
            .map(|(&lru, name)| (format!("{prefix}{name}"), self.on_list(lru, places)))
            .collect();
        lines.push((format!("{prefix}unevictable"), 0));
        lines
    }
    pub(super) fn on_list(&self, lru: Lru, places: &[usize]) -> u64 {
        places.iter().map(|&p| self.kernel.on(p, lru)).sum()
    }
    /// Huge pages in memory.
    pub(super) fn huge_pages(&self, places: &[usize]) -> u64 {
        let memory = &self.kernel.memory;
        let heads = memory.blocks.iter().enumerate().filter(|(_, b)| b.space != 0 && b.huge);
        heads
            .map(|(b, _)| memory.word(b as u32 * crate::memory::BLOCK))
            .filter(|w| w.resident() && places.contains(&memory.node_of(w.zone())))
            .count() as u64
    }
    pub(super) fn sum(&self, item: Item, places: &[usize]) -> u64 {
        places.iter().map(|&p| self.kernel.stat.of(p, item)).sum()
    }
    /// Pages handed out, by kind of zone.
    fn allocated(&self) -> Vec<Line> {
        let zones = || self.kernel.memory.zones.iter().zip(&self.kernel.marks);
        let of_kind = |kind: ZoneKind| {
            let mine = zones().filter(|(_, m)| m.kind == kind);
            (format!("pgalloc_{}", kind.name()), mine.map(|(z, _)| z.allocated).sum::<u64>())
        };
        ZoneKind::ALL.map(of_kind).to_vec()
    }
}

/// Name, blank, value.
pub(super) fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    for (name, value) in lines {
        let _ = writeln!(out, "{name} {value}");
    }
    out
}
