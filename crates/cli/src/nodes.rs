//! A machine's nodes by tier, as the rules see them, and what they are called.

use homenode_core::kernel::KernelVersion;
use homenode_core::tiering::tiers::{Firmware, Tiers, list_format};
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, NodeId};

/// Nodes that share a column of a table.
pub(crate) struct Shelf {
    /// Such as `node 0 (dram)`.
    pub(crate) name: String,
    /// Their places in the machine's list.
    pub(crate) places: Vec<usize>,
}

/// Tiers, fastest first; where there is only one, its nodes one by one.
pub(crate) fn shelves(machine: &Hardware, version: KernelVersion) -> Vec<Shelf> {
    let tiers = Tiers::new(machine, Firmware::Hmat, version);
    let mut sets: Vec<Vec<NodeId>> = tiers.iter().map(|(_, nodes)| nodes.to_vec()).collect();
    if sets.len() == 1 {
        sets = sets.remove(0).into_iter().map(|n| vec![n]).collect();
    }
    sets.into_iter()
        .map(|nodes| {
            let places: Vec<usize> = nodes.iter().filter_map(|n| machine.position(*n)).collect();
            let mut media: Vec<&str> =
                places.iter().map(|&p| machine.nodes[p].medium.name()).collect();
            media.dedup();
            let s = if nodes.len() == 1 { "" } else { "s" };
            Shelf {
                name: format!("node{s} {} ({})", list_format(&nodes), media.join(", ")),
                places,
            }
        })
        .collect()
}

/// A size for people, in binary units with one decimal.
pub(crate) fn size(bytes: Bytes) -> String {
    let mut value = bytes.0 as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let digits = usize::from(unit != "bytes" && value.fract() != 0.0);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}
