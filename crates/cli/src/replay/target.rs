//! The machine that a program is replayed on: less DRAM, and a slow node beside it.

use anyhow::{Context, Result};
use homenode_config::{AddNode, Size};
use homenode_core::knobs::Knobs;
use homenode_core::scenario::{Margin, Mempolicy};
use homenode_core::tiering::watermarks::MarkKnobs;
use homenode_core::topology::{Hardware, Link, Medium};
use homenode_core::units::{Bytes, NodeId, Pages};

/// A machine and how it came about.
pub(crate) struct Target {
    pub(crate) machine: Hardware,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// What `--dram` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dram {
    /// As much as the machine has.
    All,
    /// Half of the program's memory, and what the kernel keeps free.
    Half,
    /// So much.
    Bytes(Bytes),
}

/// Reads `all`, `half` or a size.
pub(crate) fn parse_dram(text: &str) -> Result<Dram, String> {
    match text {
        "all" => Ok(Dram::All),
        "half" => Ok(Dram::Half),
        _ => homenode_config::parse_size(text)
            .map(Dram::Bytes)
            .map_err(|e| format!("{e}, or write half or all")),
    }
}

/// Changes a machine for a program of `memory` pages.
pub(crate) fn build(
    this: &Hardware,
    memory: Pages,
    dram: Dram,
    add: Option<AddNode>,
    knobs: &Knobs,
    margin: Margin,
) -> Result<Target> {
    let shown = |p: Pages| crate::nodes::size(p.bytes());
    let (mut machine, mut notes, mut warnings) = (this.clone(), Vec::new(), Vec::new());
    notes.push(format!("the program's memory: {} resident at its peak", shown(memory)));
    match dram {
        Dram::All => {}
        Dram::Bytes(size) => {
            machine = homenode_config::shrink_dram(&machine, size).context("--dram")?;
            notes.push(format!("DRAM shrunk to {}", crate::nodes::size(size)));
        }
        Dram::Half => {
            let half = Pages(memory.0.div_ceil(2));
            // The marks grow with the memory that they are marks of: a few steps settle it.
            let mut kept = Pages(0);
            for _ in 0..8 {
                let wanted = half + kept;
                machine = homenode_config::shrink_dram(this, wanted.bytes())
                    .context("DRAM for half of the program's memory")?;
                kept = marks(&machine, knobs, margin).map(|(_, high)| high).sum();
            }
            notes.push(format!(
                "DRAM shrunk to {}: half of the program's memory, {}, and the {} that the kernel keeps free (its high marks)",
                shown(half + kept), shown(half), shown(kept)
            ));
        }
    }
    if let Some(add) = add {
        // Half of the memory has to fit, and pages that are on their way; a share of
        // interleaving that is larger than half too.
        let size = match add.size {
            Size::Half => Pages(memory.0 * 3 / 4 + 1024).bytes(),
            Size::Bytes(b) => b,
        };
        machine = homenode_config::add_node(&machine, add.part, size).context("--add-node")?;
        let room = if add.size == Size::Half {
            ": the other half, and half as much again, so that nothing runs out of memory"
        } else {
            ""
        };
        if let Some(node) = machine.nodes.last() {
            let links = machine.links.iter().filter(|l| l.to == node.id);
            let link = links.min_by_key(|l| l.read_latency.value);
            let seen = link.map_or(String::new(), |l| {
                use homenode_core::costs::{Shown, Unit};
                format!(
                    ", read latency {} ns ({}), bandwidth {} MB/s ({})",
                    Shown(l.read_latency.value, Unit::Nanoseconds),
                    l.read_latency.method,
                    l.read_bandwidth.value,
                    l.read_bandwidth.method
                )
            });
            notes.push(format!(
                "node {} added: {} of {}{room}{seen}",
                node.id,
                crate::nodes::size(node.size()),
                node.medium.name()
            ));
        }
    }
    for (node, high) in marks(&machine, knobs, margin) {
        let has = machine.position(node).map_or(Pages(0), |p| machine.nodes[p].managed());
        if high.0 * 3 > has.0 {
            warnings.push(format!(
                "the kernel keeps {} of node {node}'s {} free (its high mark); --set min_free_kbytes or watermark_scale_factor to a smaller value",
                shown(high), shown(has)
            ));
        }
    }
    let fast: u64 =
        machine.nodes.iter().filter(|n| n.medium == Medium::Dram).map(|n| n.managed().0).sum();
    if machine.nodes.len() > 1 && fast > memory.0 * 5 / 4 {
        notes.push("the program fits into DRAM, so that a slower node is hardly used; --dram half shrinks it".into());
    }
    Ok(Target { machine, notes, warnings })
}

/// DRAM nodes with the sum of their zones' high marks.
fn marks<'a>(
    machine: &'a Hardware,
    knobs: &Knobs,
    margin: Margin,
) -> impl Iterator<Item = (NodeId, Pages)> + 'a {
    let of = MarkKnobs::new(knobs, margin, &machine.zones());
    let dram = machine.nodes.iter().filter(|n| n.medium == Medium::Dram && !n.zones.is_empty());
    dram.map(move |n| (n.id, of.node(&n.zones).iter().map(|m| m.high).sum()))
}

/// Interleaving in proportion to bandwidth, as seen from the first CPU's node, in small
/// whole numbers: shares of 32, at least 1, divided by what divides them all.
///
/// `None` where there is nothing to interleave between.
pub(crate) fn interleave(machine: &Hardware) -> Option<Mempolicy> {
    let from = machine.cpus.first()?.node;
    let with_memory = machine.nodes.iter().filter(|n| n.managed().0 > 0);
    let links = with_memory.filter_map(|n| machine.link(from, n.id));
    let bandwidth = |l: &Link| l.read_bandwidth.value.min(l.write_bandwidth.value);
    let links: Vec<(NodeId, u64)> = links.map(|l| (l.to, bandwidth(l))).collect();
    if links.len() < 2 {
        return None;
    }
    let all: u128 = links.iter().map(|l| u128::from(l.1)).sum();
    let weights: Vec<u64> =
        links.iter().map(|l| ((32 * u128::from(l.1) / all.max(1)) as u64).clamp(1, 255)).collect();
    let by = weights.iter().copied().fold(0, gcd).max(1);
    Some(Mempolicy::WeightedInterleave(
        links.iter().zip(weights).map(|(l, w)| (l.0, (w / by) as u8)).collect(),
    ))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
