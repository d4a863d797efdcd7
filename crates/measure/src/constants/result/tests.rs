//! Samples made up in data; constants and their sentences out.

use super::*;
use homenode_core::costs::Origin;
use homenode_core::topology::{Cpu, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{Bytes, CpuId, Pages};

fn topology(distances: &[&[u32]]) -> Topology {
    let zone = Zone { kind: ZoneKind::Normal, managed: Pages(1000) };
    let ids = || (0..distances.len() as u16).map(NodeId);
    let shape =
        |level, size| CacheShape { level, size: Bytes(size), ways: 8, line: 64, shared_by: 1 };
    Topology {
        nodes: ids().map(|id| Node { id, medium: Medium::Dram, zones: vec![zone] }).collect(),
        cpus: ids()
            .map(|node| Cpu {
                id: CpuId(node.0.into()),
                node,
                core: node.0.into(),
                llc: 0,
                capacity: 1024,
                mhz: None,
            })
            .collect(),
        caches: vec![shape(1, 32 << 10), shape(2, 1 << 20)],
        distances: distances.iter().map(|r| r.to_vec()).collect(),
        model: Some("Brand(R) CPU 7 @ 2.00GHz".into()),
        kernel: Some("6.1.0".into()),
        virtual_machine: true,
        notes: vec!["a note".into()],
    }
}

fn series(samples: &[f64]) -> Series {
    samples.iter().copied().collect()
}

/// Every key has a sentence and lies inside its bounds.
fn check(m: &Hardware) {
    for key in Cost::ALL {
        let c = &m.costs.0[key];
        let (low, high) = key.bounds();
        assert!((low..=high).contains(&c.value), "{key:?} {c:?}");
        assert!(!c.method.is_empty(), "{key:?}");
    }
    let links = m
        .links
        .iter()
        .flat_map(|l| [&l.read_latency, &l.write_latency, &l.read_bandwidth, &l.write_bandwidth]);
    for c in links.chain(m.caches.iter().map(|c| &c.latency)) {
        assert!(c.value > 0 && !c.method.is_empty(), "{c:?}");
    }
}

#[test]
fn without_samples_everything_is_assumed() {
    let m = machine(&topology(&[&[10, 30], &[25, 10]]), &Samples::default());
    check(&m);
    assert!(m.costs.0.values().all(|c| c.origin == Origin::Assumed && c.spread.is_none()));
    assert_eq!(m.links.len(), 4);
    // Asymmetric distances: each direction by its own.
    let remote = |a, b| m.link(NodeId(a), NodeId(b)).unwrap().read_latency.value;
    assert_eq!((remote(0, 0), remote(0, 1), remote(1, 0)), (100_000, 300_000, 250_000));
    assert_eq!(m.name, "brand-7-2-00ghz-2cpu-2node");
    assert!(m.about.contains("virtual machine") && m.about.contains("a note"));
}

fn with_link(huge: bool) -> Samples {
    let link = LinkSeries {
        load_huge: series(&[100_000.0, 104_000.0, 102_000.0]),
        load_base: series(&[121_000.0, 124_000.0, 122_000.0]),
        store: series(&[120_000.0, 121_000.0, 122_000.0]),
        read: series(&[30_000.0]),
        write: series(&[15_000.0]),
        read_one: series(&[16_000.0]),
        write_one: series(&[9_000.0]),
        threads: 2,
        cpu: Some(CpuId(0)),
        walked: 256 << 20,
        streamed: 256 << 20,
        huge,
    };
    let home = (NodeId(0), NodeId(0));
    let mut s = Samples { home: Some(home), ..Samples::default() };
    s.links.insert(home, link);
    s.near_load = series(&[1_000.0]);
    s.near_store = series(&[6_000.0]);
    // 2 ns up to 1,536 pages, then 22 ns.
    for (n, t) in [(128, 2e3), (512, 2e3), (1536, 2e3), (2048, 22e3), (8192, 22e3)] {
        s.tlb.insert(n, series(&[t, t, t]));
    }
    s
}

#[test]
fn a_links_figures_follow_from_its_samples() {
    let m = machine(&topology(&[&[10, 20], &[20, 10]]), &with_link(true));
    check(&m);
    let local = m.link(NodeId(0), NodeId(0)).unwrap();
    assert_eq!(local.read_latency.value, 102_000);
    assert_eq!(local.read_latency.spread, Some(1_000));
    assert_eq!(local.write_latency.value, 116_000);
    assert_eq!(local.read_bandwidth.value, 30_000);
    assert!(local.read_bandwidth.method.contains("16000 MB/s"));
    assert_eq!(m.costs.get(Cost::TlbMiss), 20_000);
    assert_eq!(m.costs.get(Cost::TlbEntries), 1_792);
    // What was not measured is scaled from what was.
    let remote = m.link(NodeId(0), NodeId(1)).unwrap();
    assert_eq!(remote.read_latency.value, 204_000);
    assert_eq!(remote.write_bandwidth.value, 7_500);
    assert_eq!(remote.read_latency.origin, Origin::Assumed);
}

#[test]
fn without_huge_pages_the_tlb_is_taken_off() {
    let m = machine(&topology(&[&[10]]), &with_link(false));
    check(&m);
    assert_eq!(m.costs.get(Cost::TlbMiss), 20_000);
    let l = &m.links[0].read_latency;
    assert_eq!(l.value, 102_000);
    assert!(l.method.contains("refused"));
}

#[test]
fn a_flat_curve_has_no_knee() {
    let mut s = with_link(true);
    s.tlb.values_mut().for_each(|t| *t = series(&[2e3, 2.1e3]));
    let c = tlb_entries(&s);
    assert_eq!((c.value, c.origin), (Cost::TlbEntries.default_value(), Origin::Assumed));
    assert!(c.method.contains("no step"));
}

#[test]
fn migration_is_the_move_less_the_copy() {
    let mut s = Samples { migration: Some(Migration::Compaction("x")), ..Samples::default() };
    s.migrate.series = series(&[2_600_000.0, 2_700_000.0, 2_800_000.0]);
    s.copy = series(&[400_000.0]);
    let c = migrate_page(&s);
    assert_eq!((c.value, c.spread, c.origin), (2_300_000, Some(50_000), Origin::Measured));
    assert!(c.method.contains("upper bound"));
    // A copy that seems dearer than the move leaves a tenth.
    s.copy = series(&[9_000_000.0]);
    assert_eq!(migrate_page(&s).value, 270_000);
    // Refused: the reason is in the sentence.
    let mut s = Samples::default();
    s.migrate.refusal = Some("compact_memory: Permission denied".into());
    let c = migrate_page(&s);
    assert_eq!(c.origin, Origin::Assumed);
    assert!(c.method.contains("Permission denied"));
}

#[test]
fn an_operation_without_one_of_its_parts_is_no_constant() {
    let mut s = Samples::default();
    s.fork_and_end.series = series(&[900_000.0, 950_000.0]);
    s.fork.refusal = Some("fork: Resource temporarily unavailable".into());
    let c = exit(&s);
    assert_eq!((c.value, c.origin), (Cost::Exit.default_value(), Origin::Assumed));
    assert!(c.method.ends_with("not measured: fork: Resource temporarily unavailable"));
}

#[test]
fn a_wake_up_after_a_long_rest_is_another() {
    let mut s = Samples::default();
    let us = |t: f64| t * 1e6;
    for (gap, t) in [(20, 4.0), (100, 4.0), (300, 6.0), (1_000, 40.0), (10_000, 44.0)] {
        let (took, booked) = (series(&[us(t); 3]), series(&[800.0, 850.0, 900.0]));
        let call = series(&[us(2.0), us(3.0), us(9.0)]);
        s.wakes.insert(gap, Wakes { took, booked, call });
    }
    let m = machine(&topology(&[&[10]]), &s);
    check(&m);
    let get = |key| m.costs.get(key);
    assert_eq!((get(Cost::WakeIdle), get(Cost::WakeDeep)), (4_000_000, 44_000_000));
    // 24 µs lies 18/34 of the way from 300 µs to 1 ms.
    assert_eq!(get(Cost::DeepAfter), 670_588_235);
    assert_eq!(get(Cost::WakeCharged), 850);
    assert_eq!(get(Cost::WakeCall), 3_000_000);
    assert!(m.costs.0[&Cost::WakeDeep].method.contains("idle for 10 ms"));
    // All alike: one state only.
    s.wakes.values_mut().for_each(|w| w.took = series(&[us(5.0); 3]));
    let m = machine(&topology(&[&[10]]), &s);
    assert_eq!(m.costs.0[&Cost::DeepAfter].origin, Origin::Assumed);
    assert_eq!(m.costs.get(Cost::WakeDeep), m.costs.get(Cost::WakeIdle));
    // One CPU.
    let s = Samples { wake_refusal: Some("one CPU".into()), ..Samples::default() };
    let m = machine(&topology(&[&[10]]), &s);
    assert_eq!(m.costs.0[&Cost::WakeIdle].origin, Origin::Assumed);
    assert!(m.costs.0[&Cost::WakeIdle].method.ends_with("not measured: one CPU"));
}

#[test]
fn parallelism_is_the_best_width_against_one() {
    let mut s = Samples::default();
    for (n, t) in [(1, [100e3, 110e3]), (8, [20e3, 22e3]), (16, [10e3, 10e3]), (32, [12e3, 12e3])] {
        s.widths.insert(n, series(&t));
    }
    let c = parallelism(&s).unwrap();
    assert_eq!(c.value, 10_500);
    assert!(c.method.contains("16 interleaved"));
}

#[test]
fn updates_whose_address_is_loaded_are_told_apart_from_others() {
    let mut s = with_link(true);
    s.update = series(&[14_500.0, 14_500.0, 14_500.0]);
    s.told = series(&[58_000.0, 58_000.0, 145_000.0]);
    let m = machine(&topology(&[&[10]]), &s);
    check(&m);
    assert_eq!(m.costs.get(Cost::UpdateParallelism), 8_000);
    let told = &m.costs.0[&Cost::ToldStoreParallelism];
    // 116 ns a store; an update that takes longer has one line under way all the same.
    assert_eq!((told.value, told.spread, told.origin), (2_000, Some(250), Origin::Measured));
    assert!(told.method.starts_with("58.0 ns a load") && told.method.ends_with("116.0 ns a store"));
}

#[test]
fn a_caches_effective_size_is_in_its_method() {
    let mut s = with_link(true);
    for (size, t) in [
        (16 << 10, 1e3),
        (32 << 10, 1e3),
        (64 << 10, 4e3),
        (256 << 10, 4.5e3),
        (512 << 10, 5e3),
        (1 << 20, 30e3),
        (2 << 20, 90e3),
    ] {
        s.sweep.insert(size, series(&[t, t]));
    }
    let m = machine(&topology(&[&[10]]), &s);
    check(&m);
    let of = |i: usize| (m.caches[i].latency.value, m.caches[i].latency.method.as_str());
    assert_eq!(of(0).0, 1_000);
    assert!(of(0).1.contains("at 64 KiB"), "{}", of(0).1);
    // The last of two levels is read at a quarter of its size.
    assert_eq!(of(1).0, 4_500);
    assert!(of(1).1.contains("at 2 MiB") && of(1).1.contains("virtual machine"), "{}", of(1).1);
}

/// sysfs shows 32 MiB of last level, of which strangers leave some three.
#[test]
fn a_last_level_that_is_shared_is_read_where_this_machine_has_it() {
    let mut s = with_link(true);
    let mib = |m: f64| (m * (1 << 20) as f64) as usize;
    for (size, t) in [
        (16 << 10, [1e3; 3]),
        (256 << 10, [4e3; 3]),
        (mib(2.0), [14e3, 15e3, 16e3]),
        (mib(2.5), [15e3, 15e3, 17e3]),
        (mib(3.25), [20e3, 40e3, 70e3]),
        (mib(4.0), [70e3, 90e3, 95e3]),
        (mib(8.0), [99e3, 100e3, 101e3]),
        (mib(64.0), [102e3; 3]),
    ] {
        s.sweep.insert(size, series(&t));
        s.streams.insert(size, series(&t.map(|t| t / 10.0)));
        s.updates.insert(size, series(&t.map(|t| t / 5.0)));
    }
    let mut t = topology(&[&[10]]);
    let shape = |level, size: u64| CacheShape { level, size: Bytes(size), ..t.caches[0] };
    t.caches = vec![shape(1, 32 << 10), shape(2, 1 << 20), shape(3, 32 << 20)];
    let m = machine(&t, &s);
    check(&m);
    assert_eq!(m.caches[2].latency.value, 15_000, "{}", m.caches[2].latency.method);
    // Half of the way from 15 ns to 102 is between 3.25 and 4 MiB.
    let reach = &m.costs.0[&Cost::LlcReach];
    assert!((mib(3.25) as u64..mib(4.0) as u64).contains(&reach.value), "{reach:?}");
    assert!(reach.spread.is_some_and(|s| s > 0));
    // 64 bytes in 1.5 ns; an update in 3.
    assert_eq!(m.costs.get(Cost::StreamLlc), 42_667);
    assert_eq!(m.costs.get(Cost::UpdateLlc), 3_000);
    // All three curves are in the file, and may be there.
    assert_eq!(m.curves.iter().map(|c| c.walk).collect::<Vec<_>>(), Walk::ALL);
    assert!(m.curves.iter().all(|c| c.check().is_ok() && c.points.len() == 8));
}
