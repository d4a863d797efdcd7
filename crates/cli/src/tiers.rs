//! Tiers that firmware tells wrong, mended by what a file says.
//!
//! ```text
//! fast = "0"     node 2 is told as fast as node 0     taken as twice as slow, half the bandwidth
//! fast = "0-1"   node 1 is told as slow               taken to be like the CPUs' own memory
//! ```
//!
//! Latencies are mended, since they decide what a move is worth: the engine and all that is
//! printed go by the same. What is made up is *assumed*; `--machine` has better figures.
//!
//! Source: specs/act.md#tiers.

use crate::live::Found;
use anyhow::Result;
use homenode_config::{ConfigError, FastNodes};
use homenode_core::costs::Constant;
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::{Hardware, Link, Medium};
use homenode_core::units::NodeId;
use std::collections::BTreeSet;

const WHY_SLOW: &str = "the file of --config has this node as a slow one, firmware not: twice the \
                        latency of the CPUs' fastest memory, half its bandwidth";
const WHY_FAST: &str = "the file of --config has this node as a fast one, firmware not: as the \
                        CPUs' fastest memory";

/// Makes these nodes the fast ones, and the others slow.
///
/// # Errors
/// Nodes that are not there, and what no kernel could be told: a node with CPUs that is slow.
pub(crate) fn mend(found: &mut Found, fast: &FastNodes) -> Result<()> {
    let machine = &mut found.machine;
    let version = found.version;
    let with_memory: BTreeSet<NodeId> =
        machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id).collect();
    if let Some(none) = fast.nodes.iter().find(|n| !with_memory.contains(n)) {
        return Err(fast.error(format!("there is no node {none} with memory here")).into());
    }
    let told = Tiers::new(machine, Firmware::Hmat, version);
    let wrong = with_memory.iter().filter(|n| told.is_top(**n) != fast.nodes.contains(n));
    let wrong: Vec<NodeId> = wrong.copied().collect();
    for &node in &wrong {
        mend_node(machine, node, fast)?;
    }
    let tiers = Tiers::new(machine, Firmware::Hmat, version);
    if let Some(node) = with_memory.iter().find(|n| tiers.is_top(**n) != fast.nodes.contains(n)) {
        let what = format!(
            "node {node} can't be made {} by Linux {version}'s rules: give this machine's \
             latencies with --machine",
            if fast.nodes.contains(node) { "fast" } else { "slow" }
        );
        return Err(fast.error(what).into());
    }
    found.tiers = tiers;
    Ok(())
}

fn mend_node(machine: &mut Hardware, node: NodeId, fast: &FastNodes) -> Result<(), ConfigError> {
    let is_fast = fast.nodes.contains(&node);
    if !is_fast && machine.has_cpu(node) {
        let what = format!("node {node} has CPUs, and memory beside CPUs is fast: name it too");
        return Err(fast.error(what));
    }
    let best = |from: NodeId| {
        let fast = |l: &&Link| l.from == from && l.to != node && fast.nodes.contains(&l.to);
        machine.links.iter().filter(fast).min_by_key(|l| l.read_latency.value).cloned()
    };
    let from: BTreeSet<NodeId> = machine.links.iter().map(|l| l.from).collect();
    let best: Vec<Link> = from.into_iter().filter_map(best).collect();
    for l in machine.links.iter_mut().filter(|l| l.to == node) {
        let Some(best) = best.iter().find(|b| b.from == l.from) else { continue };
        let (why, times) = if is_fast { (WHY_FAST, 1) } else { (WHY_SLOW, 2) };
        let latency = |c: &Constant| Constant::assumed(c.value.saturating_mul(times), why);
        let bandwidth = |c: &Constant| Constant::assumed((c.value / times).max(1), why);
        l.read_latency = latency(&best.read_latency);
        l.write_latency = latency(&best.write_latency);
        l.read_bandwidth = bandwidth(&best.read_bandwidth);
        l.write_bandwidth = bandwidth(&best.write_bandwidth);
    }
    for n in machine.nodes.iter_mut().filter(|n| n.id == node) {
        n.medium = if is_fast { Medium::Dram } else { Medium::Cxl };
    }
    Ok(())
}
