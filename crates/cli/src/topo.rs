//! `homenode topo`: nodes, CPUs, distances, tiers.

use crate::{nodes, output};
use anyhow::Result;
use homenode_core::costs::{Costs, Shown, Unit};
use homenode_core::kernel::KernelVersion;
use homenode_core::tiering::tiers::{Firmware, Tiers, list_format};
use homenode_core::topology::{Hardware, SCHED_CAPACITY_SCALE};
use homenode_live::{probe, sysfs};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Show a machine's nodes, CPUs, distances and memory tiers.
///
/// Without a file: this machine, as sysfs shows it, with its kernel's tiers. With one: that
/// machine, with its latencies, and the tiers that Linux makes of them.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode topo --machine machines/sapphire-rapids-cxl.toml")]
pub(crate) struct Args {
    /// A machine TOML in place of this machine
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Another machine's files in place of this one's: a folder with `proc` and `sys`
    #[arg(long, value_name = "FOLDER", hide = true, default_value = "/")]
    root: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let version = KernelVersion::default();
    let (machine, tiers) = match &args.machine {
        Some(path) => {
            let machine = homenode_config::read_machine(path)?;
            let tiers = Tiers::new(&machine, Firmware::Hmat, version);
            (machine, tiers)
        }
        None => {
            let machine = this_machine(&args.root)?;
            let shown = probe::memory_tiers(&args.root);
            // A kernel before tiers: what the drivers of today's make of it, since sysfs
            // tells no latencies.
            let tiers = if shown.is_empty() {
                Tiers::new(&machine, Firmware::Silent, version)
            } else {
                Tiers::shown(&machine, &shown, version)
            };
            (machine, tiers)
        }
    };
    output::print(&if args.json {
        to_json(&machine, &tiers)
    } else {
        to_text(&machine, &tiers, version)
    })?;
    Ok(0)
}

pub(crate) fn this_machine(root: &Path) -> Result<Hardware> {
    let t = sysfs::read_topology(root)?;
    let mut about = t.model.unwrap_or_else(|| "unnamed processor".into());
    if t.virtual_machine {
        about.push_str(" in a virtual machine");
    }
    if let Some(kernel) = t.kernel {
        about.push_str(&format!(", Linux {kernel}"));
    }
    for note in t.notes {
        about.push_str(&format!("; {note}"));
    }
    Ok(Hardware {
        name: "this machine".into(),
        about,
        nodes: t.nodes,
        cpus: t.cpus,
        caches: Vec::new(),
        distances: t.distances,
        links: Vec::new(),
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    })
}

fn cpus(m: &Hardware, node: homenode_core::units::NodeId) -> String {
    let mut by_capacity: BTreeMap<Reverse<u32>, Vec<u32>> = BTreeMap::new();
    for cpu in m.cpus.iter().filter(|c| c.node == node) {
        by_capacity.entry(Reverse(cpu.capacity)).or_default().push(cpu.id.0);
    }
    let group = |(Reverse(capacity), ids): (_, Vec<u32>)| {
        let ids = homenode_config::write_list(&ids);
        if capacity == SCHED_CAPACITY_SCALE { ids } else { format!("{ids} (capacity {capacity})") }
    };
    let groups: Vec<String> = by_capacity.into_iter().map(group).collect();
    if groups.is_empty() { "none".into() } else { groups.join(", ") }
}

fn to_text(m: &Hardware, tiers: &Tiers, version: KernelVersion) -> String {
    let mut out = format!("{}: {}\n\n", m.name, m.about);
    for n in &m.nodes {
        let tier = tiers.tier(n.id).map_or("no memory".to_owned(), |t| {
            format!("tier {t}{}", if tiers.is_top(n.id) { ", top" } else { "" })
        });
        out.push_str(&format!(
            "node {:<3} {:<5} {:>10}  {tier:<14} CPUs {}\n",
            n.id.to_string(),
            n.medium.name(),
            nodes::size(n.size()),
            cpus(m, n.id)
        ));
    }
    out.push_str("\ndistances\n     ");
    for n in &m.nodes {
        out.push_str(&format!("{:>5}", n.id.to_string()));
    }
    for (n, row) in m.nodes.iter().zip(&m.distances) {
        out.push_str(&format!("\n{:>5}", n.id.to_string()));
        for d in row {
            out.push_str(&format!("{d:>5}"));
        }
    }
    out.push('\n');
    if !m.links.is_empty() {
        out.push_str("\nread latency and bandwidth\n");
        for l in &m.links {
            out.push_str(&format!(
                "node {} to node {}: {:>8} ns {:>8} MB/s\n",
                l.from,
                l.to,
                Shown(l.read_latency.value, Unit::Nanoseconds).to_string(),
                l.read_bandwidth.value
            ));
        }
    }
    out.push_str(&format!("\ntiers and demotion as in Linux {version}\n"));
    for (tier, members) in tiers.iter() {
        out.push_str(&format!("memory_tier{tier}: nodes {}\n", list_format(members)));
    }
    for n in &m.nodes {
        let targets = tiers.demotion_targets(m, n.id);
        if !targets.is_empty() {
            out.push_str(&format!("node {} demotes to node {}\n", n.id, list_format(&targets)));
        }
    }
    out
}

fn to_json(m: &Hardware, tiers: &Tiers) -> String {
    let on_node = |node| m.cpus.iter().filter(move |c| c.node == node);
    let nodes: Vec<_> = m
        .nodes
        .iter()
        .map(|n| {
            let targets: Vec<u16> = tiers.demotion_targets(m, n.id).iter().map(|t| t.0).collect();
            json!({
                "id": n.id.0,
                "medium": n.medium.name(),
                "bytes": n.size().0,
                "cpus": m.cpus_of(n.id).map(|c| c.0).collect::<Vec<_>>(),
                "capacities": on_node(n.id).map(|c| c.capacity).collect::<Vec<_>>(),
                "tier": tiers.tier(n.id),
                "top": tiers.is_top(n.id),
                "demotes_to": targets,
            })
        })
        .collect();
    json!({"name": m.name, "about": m.about, "nodes": nodes, "distances": m.distances}).to_string()
}
