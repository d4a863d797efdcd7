//! Nodes, CPUs, distances and tiers against what QEMU was told.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use homenode_core::units::PAGE_SIZE;
use homenode_live::sysfs::{parse_list, read_topology};
use serde_json::json;

use crate::TestResult;
use crate::asked::Asked;

/// Tiers come from HMAT since this version; before, they take a driver.
const TIERS_BY_HMAT: (u32, u32) = (6, 7);

/// Of its memory a node may keep this much for the kernel, in percent.
const KERNELS_SHARE: u64 = 25;

pub(crate) fn as_asked(asked: &Asked) -> TestResult {
    let seen = read_topology(Path::new("/"))?;
    let ids: Vec<usize> = seen.nodes.iter().map(|node| node.id.index()).collect();
    let want: Vec<usize> = (0..asked.nodes.len()).collect();
    ensure!(ids == want, "nodes {ids:?}, asked for {want:?}");
    let cpus: Vec<(u32, u32)> = seen.cpus.iter().map(|cpu| (cpu.id.0, cpu.node.0.into())).collect();
    let mut want: Vec<(u32, u32)> = Vec::new();
    for (node, asked) in asked.nodes.iter().enumerate() {
        want.extend(asked.cpus.iter().map(|&cpu| (cpu, node as u32)));
    }
    ensure!(cpus == want, "CPUs and their nodes are {cpus:?}, asked for {want:?}");
    ensure!(
        seen.distances == asked.distances,
        "distances {:?}, asked for {:?}",
        seen.distances,
        asked.distances
    );
    let mut managed_mib = Vec::new();
    for (node, asked) in seen.nodes.iter().zip(&asked.nodes) {
        let mib = (node.managed().0 * PAGE_SIZE) >> 20;
        let least = asked.memory_mib * (100 - KERNELS_SHARE) / 100;
        ensure!(
            (least..=asked.memory_mib).contains(&mib),
            "node {} has {mib} MiB, asked for {} MiB",
            node.id,
            asked.memory_mib
        );
        managed_mib.push(mib);
    }
    // CPUs of different nodes have no last-level cache in common.
    for a in &seen.cpus {
        for b in seen.cpus.iter().filter(|b| b.node != a.node) {
            ensure!(a.llc != b.llc, "CPUs {} and {} share a cache across nodes", a.id, b.id);
        }
    }
    let tiers = tiers()?;
    if let Some(tiers) = &tiers {
        let shown: Vec<&[u32]> = tiers.iter().map(|(_, nodes)| nodes.as_slice()).collect();
        let one: Vec<Vec<u32>> = vec![(0..asked.nodes.len() as u32).collect()];
        let by_hmat = release()? >= TIERS_BY_HMAT && !asked.tiers.is_empty();
        let want = if by_hmat { &asked.tiers } else { &one };
        ensure!(shown == *want, "memory tiers {tiers:?}, expected {want:?}");
    }
    let tiers = tiers.map(|tiers| {
        let name = |(tier, nodes): Tier| (format!("memory_tier{tier}"), json!(nodes));
        tiers.into_iter().map(name).collect::<serde_json::Map<_, _>>()
    });
    Ok(json!({
        "nodes": ids.len(),
        "cpus": cpus.len(),
        "managed_mib": managed_mib,
        "tiers": tiers,
    }))
}

/// A tier's number and its nodes.
type Tier = (u32, Vec<u32>);

/// Tiers by number; `None` where the kernel shows none.
fn tiers() -> Result<Option<Vec<Tier>>> {
    let Ok(entries) = fs::read_dir("/sys/devices/virtual/memory_tiering") else { return Ok(None) };
    let mut tiers = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_string_lossy().strip_prefix("memory_tier").map(str::parse);
        let Some(Ok(number)) = number else { continue };
        let text = fs::read_to_string(entry.path().join("nodelist"))?;
        tiers.push((number, parse_list(&text).with_context(|| format!("nodelist {text:?}"))?));
    }
    tiers.sort();
    Ok(Some(tiers))
}

/// The running kernel's version, as far as it is compared.
pub(crate) fn release() -> Result<(u32, u32)> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("the kernel calls itself {text:?}"),
    }
}
