//! What becomes of memory policies when the set of nodes with memory changes.
//!
//! A policy's nodes are mapped by their place: the n-th of the nodes that there were
//! becomes the n-th of those that there are, and where these are fewer, counting begins
//! again at the first.
//!
//! ```text
//! there were   0  1  2          there are   0  2
//! place        0  1  2          place       0  1
//! bound to 1 (place 1) → 2      bound to 2 (place 2, so place 0) → 0
//! ```
//!
//! So a program that is bound to a node which is still there can come to another all
//! the same, and coming back does not restore what was.

use crate::scenario::Mempolicy;
use crate::units::NodeId;
use std::collections::BTreeMap;

/// Where one node of a policy goes.
///
/// * `before`, `now` – nodes with memory, rising.
///
/// A node that had no memory before stays as it is, and so does every node where none
/// has memory now.
///
/// Source: specs/numa.md#rebind.
pub fn rebound(node: NodeId, before: &[NodeId], now: &[NodeId]) -> NodeId {
    match before.iter().position(|&n| n == node) {
        Some(place) if !now.is_empty() => now[place % now.len()],
        _ => node,
    }
}

/// A task's policy after a change of the nodes with memory. Policies of mappings stay
/// as they are: only a task's follows.
///
/// A preferred node is not rebound, since allocation falls back from it anyway.
///
/// Source: specs/numa.md#rebind.
pub fn rebind(policy: &Mempolicy, before: &[NodeId], now: &[NodeId]) -> Mempolicy {
    let all = |nodes: &[NodeId]| {
        let mut to: Vec<NodeId> = nodes.iter().map(|&n| rebound(n, before, now)).collect();
        to.sort_unstable();
        to.dedup();
        to
    };
    match policy {
        Mempolicy::Default | Mempolicy::Local | Mempolicy::Preferred(_) => policy.clone(),
        Mempolicy::Bind { nodes, balancing } => {
            Mempolicy::Bind { nodes: all(nodes), balancing: *balancing }
        }
        Mempolicy::Interleave(nodes) => Mempolicy::Interleave(all(nodes)),
        Mempolicy::WeightedInterleave(weights) => {
            // Weights belong to nodes, not to policies: a node that the policy named
            // before keeps its own.
            let known: BTreeMap<NodeId, u8> = weights.iter().copied().collect();
            let mut to = BTreeMap::new();
            for &(node, weight) in weights {
                let node = rebound(node, before, now);
                to.entry(node).or_insert(known.get(&node).copied().unwrap_or(weight));
            }
            Mempolicy::WeightedInterleave(to.into_iter().collect())
        }
    }
}

/// A policy as a system call sets it: nodes without memory are left out. `None`: none is
/// left, which the kernel answers with EINVAL.
///
/// Source: specs/numa.md#rebind.
pub fn settable(policy: &Mempolicy, with_memory: &[NodeId]) -> Option<Mempolicy> {
    let keep = |nodes: &[NodeId]| -> Option<Vec<NodeId>> {
        let kept: Vec<NodeId> = nodes.iter().copied().filter(|n| with_memory.contains(n)).collect();
        (!kept.is_empty()).then_some(kept)
    };
    Some(match policy {
        Mempolicy::Default | Mempolicy::Local => policy.clone(),
        Mempolicy::Preferred(n) => keep(&[*n]).map(|_| policy.clone())?,
        Mempolicy::Bind { nodes, balancing } => {
            Mempolicy::Bind { nodes: keep(nodes)?, balancing: *balancing }
        }
        Mempolicy::Interleave(nodes) => Mempolicy::Interleave(keep(nodes)?),
        Mempolicy::WeightedInterleave(weights) => {
            let kept: Vec<_> =
                weights.iter().copied().filter(|(n, _)| with_memory.contains(n)).collect();
            (!kept.is_empty()).then_some(Mempolicy::WeightedInterleave(kept))?
        }
    })
}

#[cfg(test)]
mod tests;
