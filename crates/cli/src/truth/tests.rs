//! Machines and kernels in, predicted times out; and what is registered.

use super::*;
use expect_test::{Expect, expect};
use homenode_config::parse_machine;
use homenode_live::sysfs::{CacheShape, Topology};

fn small() -> Hardware {
    let text = include_str!("../../../../machines/small.toml");
    let mut m = parse_machine("small.toml", text).unwrap();
    m.nodes[0].zones[0].managed.0 = 1 << 20;
    m
}

fn predicted(m: &Hardware, expected: Expect) {
    let alike = |ps| Predicted { low: ps, time: ps, high: ps };
    let near = Near { stream: alike(2_000.0), update: alike(1_500.0) };
    let geometry = record::geometry(m).unwrap();
    let mut text = String::new();
    for kernel in Kernel::ALL {
        for mib in [0.5, 8.0, 300.0] {
            let bytes = (mib * (1 << 20) as f64) as u64;
            let ps = predict::kernel(m, &geometry, Case { kernel, bytes }, near).unwrap();
            text.push_str(&format!("{:<6} {mib:>5} MiB {:>7.2} ns\n", kernel.name(), ps / 1e3));
        }
    }
    expected.assert_eq(&text);
}

/// L2 4.5 ns, L3 20 ns, memory 90 ns; 5 misses under way, 15 lines of a stream.
#[test]
fn kernels_on_a_synthetic_machine() {
    predicted(
        &small(),
        expect![[r#"
            chase    0.5 MiB    4.50 ns
            chase      8 MiB   20.00 ns
            chase    300 MiB   92.59 ns
            stream   0.5 MiB    1.07 ns
            stream     8 MiB    2.56 ns
            stream   300 MiB    6.00 ns
            update   0.5 MiB    1.50 ns
            update     8 MiB    2.55 ns
            update   300 MiB   21.36 ns
        "#]],
    );
}

/// Half the memory latency: chases in memory take half as long, those in caches as long.
#[test]
fn a_faster_memory() {
    let mut m = small();
    m.links[0].read_latency.value /= 2;
    m.links[0].write_latency.value /= 2;
    predicted(
        &m,
        expect![[r#"
            chase    0.5 MiB    4.50 ns
            chase      8 MiB   20.00 ns
            chase    300 MiB   47.21 ns
            stream   0.5 MiB    1.07 ns
            stream     8 MiB    2.56 ns
            stream   300 MiB    3.15 ns
            update   0.5 MiB    1.50 ns
            update     8 MiB    2.37 ns
            update   300 MiB   10.71 ns
        "#]],
    );
}

fn topology(kib: &[u64]) -> Topology {
    let m = small();
    let shape = |(i, k): (usize, &u64)| CacheShape {
        level: i as u8 + 1,
        size: Bytes(k << 10),
        ways: 16,
        line: 64,
        shared_by: 1,
    };
    Topology {
        nodes: m.nodes,
        cpus: m.cpus,
        caches: kib.iter().enumerate().map(shape).collect(),
        distances: m.distances,
        model: None,
        kernel: None,
        virtual_machine: false,
        notes: vec![],
    }
}

#[test]
fn no_registered_size_is_one_that_measuring_uses() {
    let plan = parse_truth("truth/mem.toml", MEM).unwrap();
    let mut sizes: Vec<u64> = kernels(&plan).unwrap().iter().map(|c| c.bytes).collect();
    sizes.sort_unstable();
    assert_eq!((sizes[0], sizes[sizes.len() - 1]), (600 << 10, 1 << 30));
    for caches in [
        &[32, 1024, 32 << 10][..],
        &[32, 512, 16 << 10],
        &[48, 2048, 105 << 10],
        &[48, 1280, 54 << 10],
        &[32, 1024, 36_608],
        &[64, 1024, 256 << 10],
        &[32, 256, 8 << 10],
        &[64, 512],
    ] {
        let used = constants::sizes_used(&Options::default(), &topology(caches));
        assert!(used.len() > 20);
        let both: Vec<&u64> = sizes.iter().filter(|s| used.contains(s)).collect();
        assert!(both.is_empty(), "{both:?} with caches of {caches:?} KiB");
    }
}

#[test]
fn what_is_registered_exists() {
    let plan = parse_truth("truth/mem.toml", MEM).unwrap();
    assert_eq!((plan.bound_percent, plan.goal_percent), (15, 5));
    assert_eq!(kernels(&plan).unwrap().len(), 24);
    assert_eq!(plan.programs.len(), Program::ALL.len());
    for p in &plan.programs {
        assert!(Program::parse(&p.name).is_some() && p.small < p.large_quick);
        assert!(p.large_quick < p.large);
    }
}

#[test]
fn files_of_other_machines_are_refused() {
    let refused = |m: &Hardware| measured_here(m, Path::new("m.toml")).unwrap_err().to_string();
    let mut m = small();
    assert!(refused(&m).contains("not measured"));
    m.links[0].read_latency.origin = Origin::Measured;
    assert!(refused(&m).contains("no reorder_window"));
    let window = m.costs.constant(Cost::ReorderWindow);
    m.costs.0.insert(Cost::ReorderWindow, window);
    assert!(refused(&m).contains("another machine"));
}
