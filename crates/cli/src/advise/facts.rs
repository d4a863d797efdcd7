//! What the rules for knobs are told: of a live machine, or of a simulated one.

use super::wishes::Wishes;
use homenode_core::advice::{Facts, Found, NodeFacts};
use homenode_core::costs::Origin;
use homenode_core::knobs::Knobs;
use homenode_core::policy::Why;
use homenode_core::policy::order::Reason;
use homenode_core::tiering::tiers::Tiers;
use homenode_core::topology::{Hardware, Link};
use homenode_core::units::{NodeId, Pages};
use homenode_live::probe::Probe;
use std::path::Path;

/// What an engine found.
pub(super) fn found(wishes: &Wishes) -> Found {
    Found {
        heat: wishes.knows_heat(),
        up: Pages(wishes.pages(Reason::Hot)),
        room: Pages(wishes.pages(Reason::MakeRoom)),
        no_room: Pages(wishes.mean(wishes.ledger.stays(Why::NoRoom).pages)),
        near: Pages(wishes.pages(Reason::NearItsCpus)),
    }
}

/// Nodes as the kernel sees them; weights come from `weight`.
fn nodes(
    machine: &Hardware,
    tiers: &Tiers,
    weight: impl Fn(NodeId) -> Option<u32>,
) -> Vec<NodeFacts> {
    let nearest = |to: NodeId| {
        machine.links.iter().filter(|l| l.to == to).min_by_key(|l| l.read_latency.value)
    };
    let known = |l: &Link| {
        let all = [&l.read_bandwidth, &l.write_bandwidth];
        let (read, write) = (l.read_bandwidth.value, l.write_bandwidth.value);
        all.iter().all(|c| c.origin != Origin::Assumed).then_some((read, write))
    };
    let facts = |id: NodeId, memory: bool| {
        let bandwidth = nearest(id).and_then(known);
        NodeFacts {
            id,
            cpus: machine.has_cpu(id),
            memory,
            slow: memory && !tiers.is_top(id),
            bandwidth: bandwidth.map(|(r, w)| r.min(w)),
            write_bandwidth: bandwidth.map(|(_, w)| w),
            weight: weight(id),
        }
    };
    machine.nodes.iter().map(|n| facts(n.id, n.managed().0 > 0)).collect()
}

/// A live machine's knobs, as the probe found them.
pub(crate) fn live(root: &Path, probe: &Probe, machine: &Hardware, tiers: &Tiers) -> Facts {
    let weights = probe.interleave.as_ref();
    let number = |name: &str| -> Option<u32> {
        std::fs::read_to_string(root.join(name)).ok()?.trim().parse().ok()
    };
    Facts {
        nodes: nodes(machine, tiers, |n| weights?.weights.get(&u32::from(n.0)).copied()),
        balancing: probe.hints.mode,
        demotion: probe.demotion_enabled,
        promote_limit: number("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps"),
        auto_weights: weights.and_then(|i| i.auto),
        zone_reclaim: number("proc/sys/vm/zone_reclaim_mode"),
        found: Found::default(),
    }
}

/// A simulated machine's knobs: those with which a kernel boots.
pub(super) fn booted(machine: &Hardware, tiers: &Tiers, knobs: &Knobs) -> Facts {
    let number = |name: &str| knobs.get(name).ok().and_then(|text| text.trim().parse().ok());
    let several = machine.nodes.iter().filter(|n| n.managed().0 > 0).count() > 1;
    Facts {
        nodes: nodes(machine, tiers, |_| Some(1)),
        balancing: Some(u32::from(several)),
        demotion: knobs.get("demotion_enabled").ok().map(|text| text.trim() == "true"),
        promote_limit: number("numa_balancing_promote_rate_limit_MBps"),
        auto_weights: None,
        zone_reclaim: None,
        found: Found::default(),
    }
}
