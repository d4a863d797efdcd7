//! Whether a machine has the CPUs and nodes that a scenario names, and a process the maps
//! that its steps do.
//!
//! ```text
//! scenario ──▶ check ◀── machine
//!                │
//!                └──▶ Misfit: process[1].cpus, "CPU 9 is not in the machine; …"
//! ```
//!
//! It looks at the two as values, so that a scenario made by a program is checked too.
//! Where a file says so is added by whoever has read the file.

use crate::tree::Seg;
use homenode_core::scenario::{CpuStep, Mempolicy, Process, STREAM_MAX, Scenario, Step};
use homenode_core::topology::Hardware;
use homenode_core::units::{CpuId, NodeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What of a scenario a machine hasn't got.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Misfit {
    pub(crate) path: Vec<Seg>,
    pub(crate) what: String,
}

/// Whether a scenario's CPUs, nodes and maps are there.
///
/// A policy names nodes with memory only.
///
/// # Errors
/// The first that is not. [`crate::ScenarioFile::check`] adds the place in the file.
pub fn check(scenario: &Scenario, machine: &Hardware) -> Result<(), Misfit> {
    use Seg::{At, Key};
    let cpus: BTreeSet<CpuId> = machine.cpus.iter().map(|c| c.id).collect();
    let with_memory: BTreeSet<NodeId> =
        machine.nodes.iter().filter(|n| !n.zones.is_empty()).map(|n| n.id).collect();
    let sets = |kind: &str, all: &[u32]| {
        format!("; the machine \"{}\" has {kind} {}", machine.name, crate::write_list(all))
    };
    let cpu_list: Vec<u32> = cpus.iter().map(|c| c.0).collect();
    let node_list: Vec<u32> = with_memory.iter().map(|n| n.0.into()).collect();
    let nodes_fit = |policy: &Mempolicy, path: &[Seg]| {
        let named: Vec<NodeId> = match policy {
            Mempolicy::Default | Mempolicy::Local => return Ok(()),
            Mempolicy::Bind { nodes, .. } | Mempolicy::Interleave(nodes) => nodes.clone(),
            Mempolicy::Preferred(n) => vec![*n],
            Mempolicy::WeightedInterleave(w) => w.iter().map(|(n, _)| *n).collect(),
        };
        match named.iter().find(|n| !with_memory.contains(n)) {
            None => Ok(()),
            Some(n) => Err(Misfit {
                path: path.to_vec(),
                what: format!(
                    "node {n} is not in the machine or has no memory{}",
                    sets("memory on nodes", &node_list)
                ),
            }),
        }
    };
    let known = |named: &[CpuId], path: &[Seg]| match named.iter().find(|c| !cpus.contains(c)) {
        None => Ok(()),
        Some(c) => Err(Misfit {
            path: path.to_vec(),
            what: format!("CPU {c} is not in the machine{}", sets("CPUs", &cpu_list)),
        }),
    };
    for (d, device) in scenario.devices.iter().enumerate() {
        let cpus: Vec<CpuId> = device.interrupts.into_iter().collect();
        known(&cpus, &[Key("device"), At(d), Key("interrupts")])?;
    }
    for (g, group) in scenario.groups.iter().enumerate() {
        let path = [Key("group"), At(g), Key("cpuset"), Key("cpus")];
        known(&group.cpus, &path)?;
        if allowed(scenario, Some(&group.name), &cpus).is_empty() {
            return Err(Misfit {
                path: path.to_vec(),
                what: format!(
                    "none of these CPUs is allowed by the group \"{}\" that it is in",
                    group.parent.as_deref().unwrap_or_default()
                ),
            });
        }
    }
    for (p, process) in scenario.processes.iter().enumerate() {
        let path = |rest: &[Seg]| [&[Key("process"), At(p)], rest].concat();
        known(&process.cpus, &path(&[Key("cpus")]))?;
        let mine = allowed(scenario, process.group.as_deref(), &cpus);
        let inside = |named: &[CpuId], path: &[Seg]| {
            // Who has threads of its own on each CPU needs all, who is placed needs one.
            let pinned = process.threads == 0 && path.len() == 3;
            let is = |c: &CpuId| mine.contains(c);
            let fits = if pinned { named.iter().all(is) } else { named.iter().any(is) };
            let group = process.group.as_deref().unwrap_or_default();
            if fits || named.is_empty() {
                return Ok(());
            }
            let mine: Vec<u32> = mine.iter().map(|c| c.0).collect();
            Err(Misfit {
                path: path.to_vec(),
                what: format!(
                    "the group \"{group}\" allows CPUs {} only (EINVAL)",
                    crate::write_list(&mine)
                ),
            })
        };
        inside(&process.cpus, &path(&[Key("cpus")]))?;
        nodes_fit(&process.policy, &path(&[Key("policy")]))?;
        for (m, map) in process.maps.iter().enumerate() {
            nodes_fit(&map.policy, &path(&[Key("map"), At(m), Key("policy")]))?;
        }
        for (s, step) in process.steps.iter().enumerate() {
            let there = |name: &str| process.maps.iter().any(|m| m.name == name);
            if let Some(map) = step.map().filter(|name| !there(name)) {
                return Err(Misfit {
                    path: path(&[Key("step"), At(s), Key("map")]),
                    what: format!("the process has no map \"{map}\""),
                });
            }
            match step {
                Step::Mbind { policy, .. } => {
                    nodes_fit(policy, &path(&[Key("step"), At(s), Key("policy")]))?;
                }
                Step::MovePages { to, .. } => {
                    nodes_fit(&Mempolicy::Preferred(*to), &path(&[Key("step"), At(s), Key("to")]))?;
                }
                Step::Stream { map, rate, .. } => {
                    let (reads, node) = widest(process, map, machine);
                    let most = reads.saturating_mul(STREAM_MAX);
                    if *rate > most {
                        return Err(Misfit {
                            path: path(&[Key("step"), At(s), Key("rate")]),
                            what: format!(
                                "{} is more than {STREAM_MAX} times what node {node} reads ({}); \
                                 ask for {} at most",
                                crate::write_rate(*rate),
                                crate::write_rate(reads),
                                crate::write_rate(most)
                            ),
                        });
                    }
                }
                // These name no node.
                Step::Touch { .. }
                | Step::Initialize { .. }
                | Step::Fill { .. }
                | Step::Madvise { .. }
                | Step::Access { .. }
                | Step::Sleep(_)
                | Step::Fork
                | Step::Wait
                | Step::Spawn { .. }
                | Step::Barrier
                | Step::Map { .. }
                | Step::Repeat { .. }
                | Step::Unmap { .. } => {}
                Step::Cpu(CpuStep::Affinity { cpus: named }) => {
                    known(named, &path(&[Key("step"), At(s), Key("cpus")]))?;
                    inside(named, &path(&[Key("step"), At(s), Key("cpus")]))?;
                }
                Step::Cpu(_) => {}
            }
        }
    }
    Ok(())
}

/// The widest of the nodes that a mapping may lie on, by its policy or by steps, and what is read there in
/// MB/s.
///
/// Source: specs/load.md#stream.
fn widest(process: &Process, map: &str, machine: &Hardware) -> (u64, NodeId) {
    let own = process.maps.iter().find(|m| m.name == map).map(|m| &m.policy);
    let policy = own.filter(|own| **own != Mempolicy::Default).unwrap_or(&process.policy);
    let moved = process.steps.iter().any(|step| {
        let moves = matches!(step, Step::Mbind { .. } | Step::MovePages { .. });
        moves && step.map() == Some(map)
    });
    let may = |id: &NodeId| match policy {
        Mempolicy::Bind { nodes, .. } if !moved => nodes.contains(id),
        _ => true,
    };
    let nodes = machine.nodes.iter().map(|n| n.id).filter(may);
    nodes
        .map(|id| (machine.bandwidth(id)[0], id))
        .max_by_key(|&(reads, id)| (reads, Reverse(id)))
        .unwrap_or_default()
}

/// The CPUs of a machine that a group and those above it allow.
fn allowed(scenario: &Scenario, group: Option<&str>, all: &BTreeSet<CpuId>) -> BTreeSet<CpuId> {
    let mut left = all.clone();
    let mut next = group;
    while let Some(group) = next.and_then(|n| scenario.groups.iter().find(|g| g.name == n)) {
        if !group.cpus.is_empty() {
            left.retain(|c| group.cpus.contains(c));
        }
        next = group.parent.as_deref();
    }
    left
}
