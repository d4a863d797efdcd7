//! What the kernel says of nodes and zones: `/proc/zoneinfo`, and the folders in
//! `/sys/devices/system/node`.
//!
//! Source: specs/files.md#zoneinfo, specs/files.md#nodes.

use super::vmstat::text;
use crate::lists::Lru;
use crate::simulation::Simulation;
use crate::vmstat::Item;
use homenode_core::kernel::KernelVersion;
use homenode_core::tiering::tiers::list_format;
use homenode_core::tiering::watermarks::MarkKnobs;
use homenode_core::topology::{Node, Zone, ZoneKind};
use homenode_core::units::{HUGE_PAGES, NodeId, PAGE_SIZE};
use std::fmt::{self, Write as _};

homenode_core::named! {
    /// A file in a node's folder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum NodeView {
        Cpulist => "cpulist",
        Distance => "distance",
        Meminfo => "meminfo",
        Numastat => "numastat",
        Vmstat => "vmstat",
    }
}

homenode_core::named! {
    /// A set of nodes that has a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Set {
        Online => "online",
        Possible => "possible",
        HasCpu => "has_cpu",
        HasMemory => "has_memory",
        /// With memory that is not only for movable pages.
        HasNormalMemory => "has_normal_memory",
    }
}

/// The zones of a node that the kernel has, lowest first.
fn zones_of(node: &Node) -> Vec<Zone> {
    node.zones.iter().filter(|z| z.managed.0 > 0).copied().collect()
}

impl Simulation {
    /// What the marks of all zones are computed from now.
    pub(super) fn mark_knobs(&self) -> MarkKnobs {
        let all: Vec<Zone> = self.machine.nodes.iter().flat_map(zones_of).collect();
        MarkKnobs::new(&self.kernel.knobs, self.kernel.model.margin, &all)
    }

    /// Source: specs/files.md#zoneinfo.
    pub(super) fn zoneinfo_text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        let k = &self.kernel;
        let version = k.knobs.version;
        let knobs = self.mark_knobs();
        for (place, node) in self.machine.nodes.iter().enumerate() {
            let zones = zones_of(node);
            // Memory has them highest first.
            let places = k.memory.nodes[place].zones.iter().rev();
            for (i, (zone, &at)) in zones.iter().zip(places).enumerate() {
                let (state, marks) = (&k.memory.zones[at], &k.marks[at]);
                writeln!(out, "Node {}, zone {:>8}", node.id, zone.kind.in_kernel())?;
                if i == 0 {
                    writeln!(out, "  per-node stats")?;
                    for (name, value) in self.node_lines(&[place]) {
                        writeln!(out, "      {name:<12} {value}")?;
                    }
                }
                writeln!(out, "  pages free     {}", state.free)?;
                let mut line = |name: &str, value: u64| writeln!(out, "        {name:<8} {value}");
                line("boost", 0)?;
                line("min", marks.min.0)?;
                line("low", marks.low.0)?;
                line("high", marks.high.0)?;
                if version >= KernelVersion::V6_12 {
                    line("promo", marks.promo.0)?;
                }
                for name in ["spanned", "present", "managed"] {
                    line(name, state.managed)?;
                }
                line("cma", 0)?;
                // What a zone keeps from those who could also have taken a higher one,
                // for each that they could have begun with.
                let mut kept: Vec<String> = ZoneKind::ALL
                    .iter()
                    .map(|kind| {
                        let upto: Vec<_> =
                            zones.iter().filter(|z| z.kind <= *kind).copied().collect();
                        let reserve = knobs.node(&upto).get(i).map_or(0, |m| m.reserve.0);
                        reserve.to_string()
                    })
                    .collect();
                // Above all stands the zone of devices, which has no pages.
                kept.extend(kept.last().cloned());
                writeln!(out, "        protection: ({})", kept.join(", "))?;
                writeln!(out, "      {:<12} {}", "nr_free_pages", state.free)?;
            }
        }
        Ok(out)
    }

    /// Source: specs/files.md#nodes.
    pub(super) fn node_text(&self, place: usize, view: NodeView) -> String {
        let node = &self.machine.nodes[place];
        match view {
            NodeView::Cpulist => {
                let cpus: Vec<u32> = self.machine.cpus_of(node.id).map(|c| c.0).collect();
                homenode_core::list::sorted(&cpus) + "\n"
            }
            NodeView::Distance => {
                let row = self.machine.distances[place].iter();
                row.map(u32::to_string).collect::<Vec<_>>().join(" ") + "\n"
            }
            NodeView::Meminfo => self.meminfo_text(place),
            NodeView::Numastat => {
                let value = |item| self.sum(item, &[place]);
                text(&[
                    ("numa_hit".into(), value(Item::NumaHit)),
                    ("numa_miss".into(), value(Item::NumaMiss)),
                    ("numa_foreign".into(), value(Item::NumaForeign)),
                    ("local_node".into(), value(Item::NumaLocal)),
                    ("other_node".into(), value(Item::NumaOther)),
                ])
            }
            NodeView::Vmstat => {
                let mut lines = self.zone_lines(&[place]);
                lines.extend(self.node_lines(&[place]));
                text(&lines)
            }
        }
    }

    fn meminfo_text(&self, place: usize) -> String {
        let node = &self.machine.nodes[place];
        let on = |lru| self.on_list(lru, &[place]);
        let (total, free) = (node.managed().0, self.kernel.memory.free_of(place));
        let [ia, aa, inf, af] = Lru::ALL.map(on);
        let lines = [
            ("MemTotal", total),
            ("MemFree", free),
            ("MemUsed", total - free),
            ("Active", aa + af),
            ("Inactive", ia + inf),
            ("Active(anon)", aa),
            ("Inactive(anon)", ia),
            ("Active(file)", af),
            ("Inactive(file)", inf),
            ("Unevictable", 0),
            ("AnonHugePages", self.huge_pages(&[place]) * HUGE_PAGES),
        ];
        let mut out = String::new();
        for (name, pages) in lines {
            let name = format!("{name}:");
            let _ = writeln!(out, "Node {} {name:<15} {:>8} kB", node.id, pages * PAGE_SIZE / 1024);
        }
        out
    }

    pub(super) fn set_text(&self, set: Set) -> String {
        let nodes = self.machine.nodes.iter();
        let members: Vec<NodeId> = nodes
            .filter(|n| match set {
                Set::Online | Set::Possible => true,
                Set::HasCpu => self.machine.has_cpu(n.id),
                Set::HasMemory => n.managed().0 > 0,
                Set::HasNormalMemory => zones_of(n).iter().any(|z| z.kind < ZoneKind::Movable),
            })
            .map(|n| n.id)
            .collect();
        list_format(&members) + "\n"
    }
}
