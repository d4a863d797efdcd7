//! `policy`: on which nodes memory is allocated, of a process, a map, a guest or `mbind`.

use crate::ConfigError;
use crate::machine::node_id;
use crate::tree::{Cur, Fields, Kind};
use homenode_core::scenario::Mempolicy;
use homenode_core::topology::MAX_NODES;
use homenode_core::units::NodeId;
use std::collections::BTreeSet;

/// The field "policy", which may be left out.
pub(crate) fn policy_of(t: &Fields<'_>) -> Result<Mempolicy, ConfigError> {
    t.opt("policy").map_or(Ok(Mempolicy::Default), |c| policy(&c))
}

/// A word, or a table with what its mode needs.
pub(crate) fn policy(c: &Cur<'_>) -> Result<Mempolicy, ConfigError> {
    if let Kind::Text(_) = c.val.kind {
        return c.word(&[("default", Mempolicy::Default), ("local", Mempolicy::Local)]);
    }
    let modes = ["bind", "preferred", "interleave", "weighted-interleave"].map(|m| (m, m));
    Ok(match c.any_table()?.get("mode")?.word(&modes)? {
        "bind" => {
            let t = c.table(&["mode", "nodes", "balancing"])?;
            let balancing = t.opt("balancing").map_or(Ok(false), |b| b.bool())?;
            Mempolicy::Bind { nodes: nodes(&t.get("nodes")?)?, balancing }
        }
        "preferred" => Mempolicy::Preferred(node_id(&c.table(&["mode", "node"])?.get("node")?)?),
        "interleave" => Mempolicy::Interleave(nodes(&c.table(&["mode", "nodes"])?.get("nodes")?)?),
        _ => {
            let weights = c.table(&["mode", "weights"])?.get("weights")?;
            let mut out: Vec<(NodeId, u8)> = Vec::new();
            for pair in weights.list()? {
                let [node, weight] = &pair.list()?[..] else {
                    return Err(pair.error("a weight is a pair: [node, weight from 1 to 255]"));
                };
                let node = node_id(node)?;
                if out.iter().any(|(n, _)| *n == node) {
                    return Err(pair.error(format!("node {node} has two weights; it has one")));
                }
                out.push((node, weight.int(1, 255)? as u8));
            }
            if out.is_empty() {
                return Err(weights.error("empty; a policy names at least one node"));
            }
            Mempolicy::WeightedInterleave(out)
        }
    })
}

fn nodes(c: &Cur<'_>) -> Result<Vec<NodeId>, ConfigError> {
    let list = c.numbers(u32::from(MAX_NODES) - 1)?;
    let unique: BTreeSet<u32> = list.iter().copied().collect();
    if unique.len() != list.len() {
        return Err(c.error("a node stands twice; a policy names each once"));
    }
    Ok(list.into_iter().map(|n| NodeId(n as u16)).collect())
}
