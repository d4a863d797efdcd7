//! What CPUs see in the nodes' memory where nobody has measured it: firmware's figures,
//! else what distances suggest.
//!
//! ```text
//! ROOT/sys/devices/system/node/node2/access1/initiators/node0           whose CPUs
//!                                                      /read_latency    ns
//!                                                      /read_bandwidth  MB/s
//! ```
//!
//! Class 1 is of CPUs; class 0, the best of all initiators, may be a device's and is used
//! where there is no class 1. The kernel shows the best initiators only. For the others
//! the figures are scaled by the table of distances, and without any figures they are
//! what that table makes of ordinary DRAM.
//!
//! Source: specs/advise.md#constants.

use homenode_core::costs::{Constant, Origin};
use homenode_core::topology::{
    BANDWIDTH_BOUNDS, Hardware, LATENCY_BOUNDS, LOCAL_DISTANCE, Link, REMOTE_DISTANCE,
};
use homenode_core::units::NodeId;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What CPUs are taken to see in their own node's DRAM: the order of current servers.
pub const ASSUMED_LATENCY_PS: u64 = 100_000;
/// The same of bandwidth, in MB/s: the order of one channel of DDR4.
pub const ASSUMED_BANDWIDTH: u64 = 20_000;

/// Figures of a target, as firmware tells them; each above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    /// In picoseconds, read and write.
    latency: [u64; 2],
    /// In MB/s, read and write.
    bandwidth: [u64; 2],
}

/// One link for each pair of a node with CPUs and a node with memory of this machine.
///
/// * `root` – `/`, or a folder with another machine's `sys`.
/// * `machine` – nodes, CPUs and distances; its links don't matter.
///
/// Nothing fails: what can't be read, or makes no sense, is assumed, and each constant
/// says so.
pub fn links(root: &Path, machine: &Hardware) -> Vec<Link> {
    let cpu_nodes: BTreeSet<NodeId> = machine.cpus.iter().map(|c| c.node).collect();
    let mut out = Vec::new();
    for to in machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id) {
        let told = ["access1", "access0"].into_iter().find_map(|class| {
            let (figures, best) = read(root, to, class)?;
            let best: Vec<NodeId> = best.into_iter().filter(|n| cpu_nodes.contains(n)).collect();
            Some((class, figures, best))
        });
        for &from in &cpu_nodes {
            out.push(link(machine, from, to, told.as_ref()));
        }
    }
    out.sort_by_key(|l| (l.from, l.to));
    out
}

type Told = (&'static str, Figures, Vec<NodeId>);

fn link(machine: &Hardware, from: NodeId, to: NodeId, told: Option<&Told>) -> Link {
    let away = |a: NodeId| u64::from(machine.distance(a, to).unwrap_or(REMOTE_DISTANCE)).max(1);
    let own = away(from);
    let (figures, over, origin, method) = match told {
        Some((class, figures, best)) if best.contains(&from) => {
            let method = format!("firmware's figure (HMAT), in node{to}/{class}/initiators");
            (*figures, own, Origin::Quoted, method)
        }
        Some((class, figures, best)) => {
            // Firmware that names no initiator means the nearest.
            let nearest = machine.cpus.iter().map(|c| c.node).min_by_key(|n| (away(*n), *n));
            let near = best.iter().copied().min_by_key(|n| (away(*n), *n)).or(nearest);
            let near = near.unwrap_or(from);
            let method = format!(
                "firmware's figure for CPUs of node {near} (node{to}/{class}/initiators), times \
                 the ratio of the distances {own} and {}",
                away(near)
            );
            (*figures, away(near).min(own), Origin::Assumed, method)
        }
        None => {
            let method = format!(
                "firmware tells nothing: distance {own} over {LOCAL_DISTANCE}, of DRAM at {} ns \
                 and {} GB/s",
                ASSUMED_LATENCY_PS / 1000,
                ASSUMED_BANDWIDTH / 1000
            );
            let figures =
                Figures { latency: [ASSUMED_LATENCY_PS; 2], bandwidth: [ASSUMED_BANDWIDTH; 2] };
            (figures, u64::from(LOCAL_DISTANCE).min(own), Origin::Assumed, method)
        }
    };
    let constant = |value: u128, (low, high): (u64, u64)| {
        let value = u64::try_from(value).unwrap_or(u64::MAX).clamp(low, high);
        Constant { value, spread: None, method: method.clone(), origin }
    };
    let scale = |v: u64, by: u64, over: u64| u128::from(v) * u128::from(by) / u128::from(over);
    let latency = |i: usize| constant(scale(figures.latency[i], own, over), LATENCY_BOUNDS);
    let bandwidth = |i: usize| constant(scale(figures.bandwidth[i], over, own), BANDWIDTH_BOUNDS);
    Link {
        from,
        to,
        read_latency: latency(0),
        write_latency: latency(1),
        read_bandwidth: bandwidth(0),
        write_bandwidth: bandwidth(1),
    }
}

/// Figures of a node and its best initiators; `None` where one is missing or 0.
fn read(root: &Path, to: NodeId, class: &str) -> Option<(Figures, Vec<NodeId>)> {
    let folder = root.join(format!("sys/devices/system/node/node{to}/{class}/initiators"));
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok().filter(|n| *n > 0)
    };
    let ps = |ns: u64| ns.saturating_mul(1000);
    let figures = Figures {
        latency: [ps(number("read_latency")?), ps(number("write_latency")?)],
        bandwidth: [number("read_bandwidth")?, number("write_bandwidth")?],
    };
    let node = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    let nodes = fs::read_dir(&folder).ok()?.flatten().filter_map(node);
    let mut best: Vec<NodeId> = nodes.map(NodeId).collect();
    best.sort_unstable();
    Some((figures, best))
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::topology::{Cpu, Medium, Node, Zone, ZoneKind};
    use homenode_core::units::{CpuId, Pages};
    use homenode_fixtures::Folder;
    use proptest::prelude::*;

    /// Two sockets and an expander at the second.
    fn machine(distances: Vec<Vec<u32>>) -> Hardware {
        let node = |id| Node {
            id: NodeId(id),
            medium: Medium::Dram,
            zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(1000) }],
        };
        let cpu = |id, node| Cpu {
            id: CpuId(id),
            node: NodeId(node),
            core: id,
            llc: 0,
            capacity: 1024,
            mhz: None,
        };
        Hardware {
            name: "three".into(),
            about: "a test's".into(),
            nodes: vec![node(0), node(1), node(2)],
            cpus: vec![cpu(0, 0), cpu(1, 1)],
            caches: Vec::new(),
            distances,
            links: Vec::new(),
            idle_states: Vec::new(),
            curves: Vec::new(),
            loaded: Vec::new(),
            defaults: None,
            costs: Default::default(),
        }
    }
    fn distances() -> Vec<Vec<u32>> {
        vec![vec![10, 21, 30], vec![21, 10, 15], vec![30, 15, 10]]
    }
    /// A tree with these files of node 2's initiators.
    fn tree(class: &str, files: &[(&str, &str)]) -> Folder {
        let folder = format!("sys/devices/system/node/node2/{class}/initiators");
        files
            .iter()
            .fold(Folder::new(), |tree, (name, text)| tree.with(format!("{folder}/{name}"), text))
    }
    fn shown(links: &[Link]) -> Vec<String> {
        let one = |l: &Link| {
            format!(
                "{}>{} {} {} {}",
                l.from,
                l.to,
                l.read_latency.value / 1000,
                l.read_bandwidth.value,
                l.read_latency.origin.name()
            )
        };
        links.iter().map(one).collect()
    }

    #[test]
    fn firmware_is_quoted_and_distances_do_the_rest() {
        let files = [
            ("read_latency", "250\n"),
            ("write_latency", "260\n"),
            ("read_bandwidth", "30000\n"),
            ("write_bandwidth", "15000\n"),
            ("node1", ""),
        ];
        let root = tree("access1", &files);
        let mut m = machine(distances());
        m.links = links(&root, &m);
        assert_eq!(
            shown(&m.links),
            [
                "0>0 100 20000 assumed",
                "0>1 210 9523 assumed",
                "0>2 500 15000 assumed",
                "1>0 210 9523 assumed",
                "1>1 100 20000 assumed",
                "1>2 250 30000 quoted",
            ]
        );
        assert_eq!(m.check(), Ok(()));
        assert!(m.links[2].read_latency.method.contains("distances 30 and 15"));
    }

    #[test]
    fn a_figure_that_is_missing_or_nonsense_is_none() {
        for odd in ["", "0", "-3", "99999999999999999999", "fast"] {
            let files = [
                ("read_latency", odd),
                ("write_latency", "1"),
                ("read_bandwidth", "1"),
                ("write_bandwidth", "1"),
            ];
            let root = tree("access0", &files);
            let links = links(&root, &machine(distances()));
            assert!(links.iter().all(|l| l.read_latency.origin == Origin::Assumed), "{odd}");
        }
    }

    proptest! {
        #[test]
        fn every_machine_gets_possible_links(
            d in prop::collection::vec(prop::collection::vec(10..255u32, 3), 3),
            figures in prop::array::uniform4(any::<u64>()),
            node in 0..4u16,
        ) {
            let names = ["read_latency", "write_latency", "read_bandwidth", "write_bandwidth"];
            let text: Vec<String> = figures.iter().map(u64::to_string).collect();
            let best = format!("node{node}");
            let mut files: Vec<(&str, &str)> =
                names.into_iter().zip(text.iter().map(String::as_str)).collect();
            files.push((&best, ""));
            let root = tree("access1", &files);
            let found = links(&root, &machine(d));
            prop_assert_eq!(found.len(), 6);
            for l in found {
                let (low, high) = LATENCY_BOUNDS;
                prop_assert!((low..=high).contains(&l.read_latency.value));
                let (low, high) = BANDWIDTH_BOUNDS;
                prop_assert!((low..=high).contains(&l.write_bandwidth.value));
            }
        }
    }
}
