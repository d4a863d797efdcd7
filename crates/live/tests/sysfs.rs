//! Topologies from trees of files made for the test.

use homenode_core::topology::{Cpu, Medium, Zone, ZoneKind};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages};
use homenode_fixtures::Folder;
use homenode_live::sysfs::{CacheShape, Topology, TopologyError, parse_list, read_topology};
use std::fs;
use std::path::Path;

/// A machine's files.
struct Tree(Folder);

impl Tree {
    fn new() -> Self {
        Self(Folder::new())
    }
    fn with(self, path: &str, text: &str) -> Self {
        Self(self.0.with(path, text))
    }
    fn without(self, path: &str) -> Self {
        Self(self.0.without(path))
    }
    fn node(self, n: u32, cpulist: &str, distance: &str) -> Self {
        let dir = format!("sys/devices/system/node/node{n}");
        self.with(&format!("{dir}/cpulist"), cpulist).with(&format!("{dir}/distance"), distance)
    }
    fn cache(self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) -> Self {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.with(&format!("{dir}/level"), &format!("{level}\n"))
            .with(&format!("{dir}/type"), &format!("{kind}\n"))
            .with(&format!("{dir}/size"), &format!("{size}\n"))
            .with(&format!("{dir}/ways_of_associativity"), "8\n")
            .with(&format!("{dir}/coherency_line_size"), "64\n")
            .with(&format!("{dir}/shared_cpu_list"), &format!("{shared}\n"))
    }
    fn read(&self) -> Result<Topology, TopologyError> {
        read_topology(&self.0)
    }
    fn error(&self) -> String {
        let e = self.read().unwrap_err().to_string();
        e.replace(&self.0.display().to_string(), "ROOT")
    }
}

fn zoneinfo(zones: &[(u32, &str, u64, u64)]) -> String {
    let mut s = String::new();
    for (node, zone, present, managed) in zones {
        s += &format!(
            "Node {node}, zone {zone:>8}\n  pages free     10\n        present  {present}\n"
        );
        s += &format!("        managed  {managed}\n      nr_free_pages 10\n");
    }
    s
}

/// Two sockets of two cores with two threads each.
///
/// ```text
///   node 0: CPUs 0-1, 4-5      node 1: CPUs 2-3, 6-7
///   cores 0,4  1,5             cores 2,6  3,7
///   one LLC                    one LLC
/// ```
fn two_sockets() -> Tree {
    let mut t = Tree::new()
        .with("sys/devices/system/node/online", "0-1\n")
        .with("sys/devices/system/cpu/online", "0-7\n")
        .node(0, "0-1,4-5\n", "10 21\n")
        .node(1, "2-3,6-7\n", "31 10\n")
        .with("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu hypervisor\n")
        .with("proc/sys/kernel/osrelease", "6.1.0-18\n")
        .with(
            "proc/zoneinfo",
            &zoneinfo(&[
                (0, "DMA", 4000, 3840),
                (0, "DMA32", 800_000, 772_000),
                (0, "Normal", 1_000_000, 990_000),
                (0, "Movable", 0, 0),
                (0, "Device", 0, 0),
                (1, "Normal", 2_000_000, 1_990_000),
                (1, "Movable", 500_000, 500_000),
            ]),
        );
    for cpu in 0..8 {
        let siblings = format!("{},{}", cpu % 4, cpu % 4 + 4);
        let socket = if cpu % 4 < 2 { "0-1,4-5" } else { "2-3,6-7" };
        t = t
            .with(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), &siblings)
            .cache(cpu, 0, 1, "Data", "48K", &siblings)
            .cache(cpu, 1, 1, "Instruction", "32K", &siblings)
            .cache(cpu, 2, 2, "Unified", "2048K", &siblings)
            .cache(cpu, 3, 3, "Unified", "30M", socket);
    }
    t
}

#[test]
fn efficiency_cores_have_less_capacity() {
    let mut t = two_sockets();
    for (cpu, said) in [(0, "1024"), (1, "446"), (2, "0"), (3, "fast"), (4, "4096")] {
        t = t.with(&format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), said);
    }
    // What is no capacity is as if the kernel had said none.
    let capacities: Vec<u32> = t.read().unwrap().cpus.iter().map(|c| c.capacity).collect();
    assert_eq!(capacities, [1024, 446, 1024, 1024, 1024, 1024, 1024, 1024]);
}

#[test]
fn two_sockets_with_threads_and_asymmetric_distances() {
    let t = two_sockets().read().unwrap();
    assert_eq!(t.distances, [[10, 21], [31, 10]]);
    assert_eq!(t.nodes.len(), 2);
    let zone = |kind, managed| Zone { kind, managed: Pages(managed) };
    assert_eq!(
        t.nodes[0].zones,
        [
            zone(ZoneKind::Dma, 3840),
            zone(ZoneKind::Dma32, 772_000),
            zone(ZoneKind::Normal, 990_000)
        ]
    );
    assert_eq!(t.nodes[1].managed(), Pages(2_490_000));
    assert_eq!(t.cpus.len(), 8);
    assert_eq!(
        t.cpus[6],
        Cpu { id: CpuId(6), node: NodeId(1), core: 2, llc: 1, capacity: 1024, mhz: None }
    );
    assert_eq!(t.cpus.iter().map(|c| c.core).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
    let shape = |level, size, shared_by| CacheShape {
        level,
        size: Bytes(size),
        ways: 8,
        line: 64,
        shared_by,
    };
    assert_eq!(t.caches, [shape(1, 48 << 10, 2), shape(2, 2 << 20, 2), shape(3, 30 << 20, 4)]);
    assert_eq!(t.model.as_deref(), Some("Some CPU"));
    assert_eq!(t.kernel.as_deref(), Some("6.1.0-18"));
    assert!(t.virtual_machine);
    assert_eq!(t.notes, [""; 0]);
}

#[test]
fn a_node_without_cpus_behind_a_dax_device() {
    let tree = two_sockets()
        .with("sys/devices/system/node/online", "0-1,4\n")
        .node(0, "0-1,4-5\n", "10 21 40\n")
        .node(1, "2-3,6-7\n", "21 10 50\n")
        .node(4, "\n", "40 50 10\n")
        .with("sys/bus/dax/devices/dax0.0/target_node", "4\n");
    let zones = fs::read_to_string(tree.0.join("proc/zoneinfo")).unwrap();
    let tree = tree.with("proc/zoneinfo", &(zones + &zoneinfo(&[(4, "Movable", 7000, 7000)])));
    let t = tree.read().unwrap();
    assert_eq!(t.nodes[2].id, NodeId(4));
    assert_eq!(t.nodes[2].medium, Medium::Cxl);
    assert_eq!(t.nodes[0].medium, Medium::Dram);
    assert_eq!(t.nodes[2].managed(), Pages(7000));
    assert!(t.cpus.iter().all(|c| c.node != NodeId(4)));
    assert_eq!(t.distances[2], [40, 50, 10]);
}

#[test]
fn a_node_without_memory_has_no_zones() {
    let tree = two_sockets()
        .with("proc/zoneinfo", &zoneinfo(&[(0, "Normal", 100, 100), (1, "Normal", 0, 0)]));
    let t = tree.read().unwrap();
    assert!(t.nodes[1].zones.is_empty());
    let none = two_sockets().with("proc/zoneinfo", &zoneinfo(&[(0, "Normal", 0, 0)]));
    assert_eq!(none.error(), "ROOT/proc/zoneinfo: no node has memory");
}

#[test]
fn offline_cpus_are_left_out() {
    let t = two_sockets().with("sys/devices/system/cpu/online", "0,2-3,7\n").read().unwrap();
    assert_eq!(t.cpus.iter().map(|c| c.id.0).collect::<Vec<_>>(), [0, 2, 3, 7]);
    // CPU 4, the sibling, is offline: the caches of CPU 0 are its own.
    assert_eq!(t.caches.iter().map(|c| c.shared_by).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn missing_caches_are_said_to_be_missing() {
    let mut tree = two_sockets();
    for cpu in 0..8 {
        tree = tree.without(&format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    }
    let t = tree.read().unwrap();
    assert!(t.caches.is_empty());
    assert_eq!(t.notes, ["sysfs shows no caches"]);
    // A node stands for the shared cache.
    assert_eq!(t.cpus.iter().map(|c| c.llc).collect::<Vec<_>>(), [0, 0, 1, 1, 0, 0, 1, 1]);
}

#[test]
fn caches_without_ways_or_sizes() {
    let dir = "sys/devices/system/cpu/cpu0/cache";
    let t = two_sockets()
        .without(&format!("{dir}/index3/size"))
        .with(&format!("{dir}/index2/ways_of_associativity"), "0\n")
        .with(&format!("{dir}/index2/number_of_sets"), "2048\n")
        .without(&format!("{dir}/index0/ways_of_associativity"))
        .read()
        .unwrap();
    assert_eq!(t.caches.len(), 2, "a cache without a size is not known");
    assert_eq!(t.caches[1].ways, 16, "from sets and line size");
    assert_eq!(t.caches[0].ways, 8);
    assert!(t.notes.iter().any(|n| n.contains("level 1")), "{:?}", t.notes);
    assert!(t.notes.iter().any(|n| n.contains("different caches")), "{:?}", t.notes);
    let bad = two_sockets().with(&format!("{dir}/index2/size"), "many\n");
    assert_eq!(
        bad.error(),
        format!("ROOT/{dir}/index2/size: expected a size such as 32K, found \"many\"")
    );
}

#[test]
fn a_kernel_without_nodes() {
    let t = two_sockets()
        .without("sys/devices/system/node")
        .without("proc/zoneinfo")
        .with("proc/meminfo", "MemTotal:        4096 kB\nMemFree: 1 kB\n")
        .read()
        .unwrap();
    assert_eq!((t.nodes.len(), t.cpus.len()), (1, 8));
    assert_eq!(t.nodes[0].zones, [Zone { kind: ZoneKind::Normal, managed: Pages(1024) }]);
    assert_eq!(t.distances, [[10]]);
    assert_eq!(t.notes.len(), 2, "{:?}", t.notes);
}

#[test]
fn without_zoneinfo_each_node_has_its_total() {
    let dir = "sys/devices/system/node";
    let tree = two_sockets()
        .without("proc/zoneinfo")
        .with(&format!("{dir}/node0/meminfo"), "Node 0 MemTotal:       8192 kB\n");
    assert!(tree.error().contains("node1/meminfo"), "{}", tree.error());
    let t = tree.with(&format!("{dir}/node1/meminfo"), "Node 1 MemTotal: 0 kB\n").read().unwrap();
    assert_eq!(t.nodes[0].managed(), Pages(2048));
    assert!(t.nodes[1].zones.is_empty());
}

#[test]
fn missing_distances_are_the_kernels_defaults() {
    let t = two_sockets().without("sys/devices/system/node/node1/distance").read().unwrap();
    assert_eq!(t.distances, [[10, 21], [20, 10]]);
    assert_eq!(t.notes.len(), 1);
}

#[test]
fn memory_that_is_handed_out_lazily_counts() {
    let one = |total_kib: u64| {
        Tree::new()
            .with("sys/devices/system/node/online", "0")
            .with("sys/devices/system/cpu/online", "0")
            .node(0, "0", "10")
            .with("proc/meminfo", &format!("MemTotal: {total_kib} kB\n"))
            .with(
                "proc/zoneinfo",
                &zoneinfo(&[(0, "DMA32", 1000, 1000), (0, "Normal", 50_000, 9_000)]),
            )
            .read()
            .unwrap()
    };
    let t = one(40_000 * 4);
    assert_eq!(t.nodes[0].managed(), Pages(40_000));
    assert_eq!(t.nodes[0].zones[1].managed, Pages(39_000));
    assert!(t.notes[0].contains("lazily"));
    // Equal but for rounding: as it is. Never beyond what is present.
    assert_eq!(one(10_050 * 4).nodes[0].managed(), Pages(10_000));
    assert_eq!(one(900_000 * 4).nodes[0].zones[1].managed, Pages(50_000));
}

#[test]
fn contradictions_and_damage_name_the_file() {
    let node = "ROOT/sys/devices/system/node";
    let cases: [(Tree, &str); 7] = [
        (
            two_sockets().node(1, "1-3\n", "21 10\n"),
            "node1/cpulist: CPU 1 is in node 1 and in node 0",
        ),
        (
            two_sockets().node(1, "2-3,6\n", "21 10\n"),
            "cpu/online: CPU 7 is online but in no node's cpulist",
        ),
        (
            two_sockets().node(1, "2-3,6-7\n", "21\n"),
            "node1/distance: 1 distance for 2 online nodes",
        ),
        (two_sockets().node(1, "2-3,6-7\n", "10 10\n"), "distance 10 from node 1 to node 0"),
        (
            two_sockets().node(1, "2-3,6-7\n", "21 x\n"),
            "expected distances, one for each online node, found \"21 x\"",
        ),
        (
            two_sockets().with("sys/devices/system/node/online", "0-\n"),
            "online: expected a list such as 0-3,8, found \"0-\"",
        ),
        (
            two_sockets().with("proc/zoneinfo", "Node x, zone DMA\n"),
            "zoneinfo: expected zones of nodes",
        ),
    ];
    for (tree, want) in cases {
        let got = tree.error();
        assert!(got.contains(want), "{got}\nlacks {want}");
    }
    let missing = two_sockets().without("sys/devices/system/node/node0/cpulist").error();
    assert_eq!(missing, format!("cannot read {node}/node0/cpulist; is /sys mounted and readable?"));
    assert!(read_topology(Path::new("/nowhere/at/all")).is_err());
}

#[test]
fn lists_as_the_kernel_prints_them() {
    for (text, want) in [
        ("", Some(vec![])),
        ("\n", Some(vec![])),
        ("3\n", Some(vec![3])),
        ("0-2,7,9-10", Some(vec![0, 1, 2, 7, 9, 10])),
        ("5,1", Some(vec![1, 5])),
        ("2-1", None),
        ("1,,2", None),
        ("-1", None),
        ("+1", None),
        ("0-99999999999", None),
        ("0-4294967295", None),
        ("a", None),
    ] {
        assert_eq!(parse_list(text), want, "{text:?}");
    }
}

#[test]
fn this_machine_has_a_topology() {
    let t = read_topology(Path::new("/")).unwrap();
    assert!(!t.cpus.is_empty() && t.nodes.iter().any(|n| !n.zones.is_empty()));
    assert!(t.cpus.windows(2).all(|c| c[0].id < c[1].id));
}
