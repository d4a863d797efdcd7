//! Small machines and scenarios for tests.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use homenode_core::costs::{Constant, Costs};
use homenode_core::scenario::*;
use homenode_core::topology::{Cpu, Link, Machine, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages, Picos};

/// A node of a test's machine.
#[derive(Clone, Debug)]
pub struct Spec {
    pub medium: Medium,
    /// Kinds and managed pages.
    pub zones: Vec<(ZoneKind, u64)>,
    pub cpus: u32,
    pub ns: u64,
    pub mbps: u64,
}

/// DRAM with CPUs.
pub fn dram(pages: u64, cpus: u32) -> Spec {
    let zones = vec![(ZoneKind::Normal, pages)];
    Spec { medium: Medium::Dram, zones, cpus, ns: 100, mbps: 100_000 }
}
/// An expander.
pub fn cxl(pages: u64) -> Spec {
    let zones = vec![(ZoneKind::Movable, pages)];
    Spec { medium: Medium::Cxl, zones, cpus: 0, ns: 250, mbps: 30_000 }
}
/// Persistent memory: slower than an expander.
pub fn pmem(pages: u64) -> Spec {
    let zones = vec![(ZoneKind::Movable, pages)];
    Spec { medium: Medium::Pmem, zones, cpus: 0, ns: 400, mbps: 10_000 }
}

/// The machine of these nodes. CPU nodes lie 21 apart, memory without CPUs 14 and
/// more, the farther the higher its number.
pub fn machine(specs: &[Spec]) -> Machine {
    let c = |v| Constant::assumed(v, "a test's round figure");
    let nodes: Vec<Node> = specs
        .iter()
        .enumerate()
        .map(|(i, s)| Node {
            id: NodeId(i as u16),
            medium: s.medium,
            zones: s
                .zones
                .iter()
                .map(|&(kind, pages)| Zone { kind, managed: Pages(pages) })
                .collect(),
        })
        .collect();
    let mut cpus = Vec::new();
    for (i, s) in specs.iter().enumerate() {
        for _ in 0..s.cpus {
            let id = cpus.len() as u32;
            cpus.push(Cpu { id: CpuId(id), node: NodeId(i as u16), core: id, llc: i as u32 });
        }
    }
    let distance = |a: usize, b: usize| match (a == b, specs[a].cpus > 0 && specs[b].cpus > 0) {
        (true, _) => 10,
        (false, true) => 21,
        (false, false) => 14 + 3 * a.abs_diff(b) as u32,
    };
    let n = specs.len();
    let distances = (0..n).map(|a| (0..n).map(|b| distance(a, b)).collect()).collect();
    let mut links = Vec::new();
    for (a, from) in specs.iter().enumerate().filter(|(_, s)| s.cpus > 0) {
        for (b, to) in specs.iter().enumerate().filter(|(_, s)| !s.zones.is_empty()) {
            let far = if a != b && to.cpus > 0 { 60 } else { 0 };
            let _ = from;
            links.push(Link {
                from: NodeId(a as u16),
                to: NodeId(b as u16),
                read_latency: c((to.ns + far) * 1000),
                write_latency: c((to.ns + far) * 1000),
                read_bandwidth: c(to.mbps),
                write_bandwidth: c(to.mbps),
            });
        }
    }
    let machine = Machine {
        name: "test".into(),
        about: "a test's machine".into(),
        nodes,
        cpus,
        caches: Vec::new(),
        distances,
        links,
        costs: Costs::default(),
    };
    machine.check().expect("a test's machine is possible");
    machine
}

pub fn scenario(processes: Vec<Process>) -> Scenario {
    Scenario {
        name: "test".into(),
        about: "a test".into(),
        machine: String::new(),
        knobs: Vec::new(),
        ksm: Vec::new(),
        model: Model::default(),
        duration: None,
        seed: 1,
        processes,
        actions: Vec::new(),
    }
}
pub fn process(name: &str, cpus: &[u32], maps: Vec<Map>, steps: Vec<Step>) -> Process {
    Process {
        name: name.into(),
        cpus: cpus.iter().map(|&c| CpuId(c)).collect(),
        start: Picos(0),
        policy: Mempolicy::Default,
        memory_merge: false,
        maps,
        steps,
    }
}
pub fn map(name: &str, pages: u64) -> Map {
    Map {
        name: name.into(),
        size: Bytes(pages * 4096),
        file: false,
        shared: false,
        read_only: false,
        huge: false,
        content: Content::Own,
        mergeable: false,
        policy: Mempolicy::Default,
    }
}
pub fn touch(map: &str) -> Step {
    Step::Touch { map: map.into() }
}
pub fn access(map: &str, pattern: Pattern, write: u32, until: Until) -> Step {
    Step::Access { map: map.into(), pattern, write, compute: Picos(0), until }
}
pub fn for_ms(ms: u64) -> Until {
    Until::Time(Picos::from_ms(ms))
}
pub fn knobs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
}
