use super::*;
use crate::fixtures::{self, Spec, dram};
use KernelVersion::{V3_8, V5_18, V6_1, V6_12, V7_3};

/// Nodes as (medium, has a CPU), a distance table, and for each node latency and
/// bandwidth (read and write alike) as all CPUs see it, 1 ps more from another node.
fn machine(nodes: &[(Medium, bool)], distances: &[&[u32]], perf: &[(u64, u64)]) -> Hardware {
    let spec = |&(medium, cpu): &_| Spec { medium, cpus: u32::from(cpu), ..dram(1000, 0) };
    let mut m = fixtures::machine(&nodes.iter().map(spec).collect::<Vec<_>>());
    m.distances = distances.iter().map(|r| r.to_vec()).collect();
    fixtures::with_links(m, |from, to| {
        let (ps, mbps) = perf[to.index()];
        (ps + u64::from(from != to), mbps)
    })
}

const DRAM: (Medium, bool) = (Medium::Dram, true);
const BARE: (Medium, bool) = (Medium::Dram, false);
const CXL: (Medium, bool) = (Medium::Cxl, false);
const PMEM: (Medium, bool) = (Medium::Pmem, false);

fn two_and_two() -> Hardware {
    machine(
        &[DRAM, DRAM, PMEM, PMEM],
        &[&[10, 20, 17, 28], &[20, 10, 28, 17], &[17, 28, 10, 28], &[28, 17, 28, 10]],
        &[(100_000, 10_000), (100_000, 10_000), (300_000, 2000), (300_000, 2000)],
    )
}

fn perf(latency: u64, bandwidth: u64) -> Perf {
    Perf {
        read_latency: latency,
        write_latency: latency,
        read_bandwidth: bandwidth,
        write_bandwidth: bandwidth,
    }
}

// specs/tiering.md#tiers: the examples.
#[test]
fn abstract_distances() {
    let reference = perf(1000, 1000);
    for (latency, bandwidth, adist, tier) in [
        (1000, 1000, 576, 4),
        (1100, 1000, 633, 4),
        (1200, 1000, 691, 5),
        (2000, 1000, 1152, 9),
        (2000, 500, 2304, 18),
        (1100, 900, 703, 5),
    ] {
        let d = abstract_distance(&reference, &perf(latency, bandwidth));
        assert_eq!((d, tier_of(adist)), (Some(adist), tier));
    }
    assert_eq!(abstract_distance(&reference, &perf(0, 1)), None);
    assert_eq!(abstract_distance(&perf(1, 0), &reference), None);
    assert_eq!((tier_of(ADIST_DRAM), tier_of(ADIST_KMEM)), (4, 22));
}

// specs/tiering.md#tiers: what makes a tier, by kernel; specs/seeds.md#s1: a CPU with fast memory,
// and slow memory as a node without CPUs.
#[test]
fn listings() {
    let m = two_and_two();
    let l = |firmware, v| {
        let lines: Vec<_> = Tiers::new(&m, firmware, v)
            .listing()
            .iter()
            .map(|(t, n)| format!("{t}: {n}"))
            .collect();
        lines.join("; ")
    };
    // 3 times the latency, a fifth of the bandwidth (a link adds 1 ps): 8640, tier 67.
    assert_eq!(l(Firmware::Hmat, V6_12), "memory_tier4: 0-1; memory_tier67: 2-3");
    assert_eq!(l(Firmware::Silent, V7_3), "memory_tier4: 0-1; memory_tier22: 2-3");
    assert_eq!(l(Firmware::Hmat, V6_1), "memory_tier4: 0-1; memory_tier22: 2-3");
    assert_eq!(l(Firmware::Hmat, V5_18), "memory_tier4: 0-1; memory_tier22: 2-3");
    assert_eq!(l(Firmware::Hmat, V3_8), "memory_tier4: 0-3");
    let t = Tiers::new(&m, Firmware::Hmat, V6_12);
    assert!(t.is_top(NodeId(0)) && t.is_top(NodeId(1)) && !t.is_top(NodeId(2)));
    assert!(t.is_top(NodeId(77)), "no tier: top");
}

// specs/tiering.md#tiers: without HMAT or dax data a CPU-less DRAM node is in the same tier,
// always top.
#[test]
fn bare_dram() {
    let m = machine(&[DRAM, BARE], &[&[10, 20], &[20, 10]], &[(100, 100), (300, 50)]);
    for v in [V6_1, V6_12] {
        let t = Tiers::new(&m, Firmware::Silent, v);
        assert!(t.is_top(NodeId(1)) && t.demotion_targets(&m, NodeId(0)).is_empty());
    }
    assert!(!Tiers::new(&m, Firmware::Hmat, V6_12).is_top(NodeId(1)));
    assert!(Tiers::new(&m, Firmware::Hmat, V6_1).is_top(NodeId(1)));
    assert!(!Tiers::new(&m, Firmware::Silent, V5_18).is_top(NodeId(1)));
}

// specs/tiering.md#tiers: CPU nodes that differ by more than 10 %, or a zero among them, switch
// it off.
#[test]
fn algorithm_off() {
    let m = |second| {
        machine(
            &[DRAM, DRAM, CXL],
            &[&[10, 20, 30], &[20, 10, 30], &[30, 30, 10]],
            &[(1000, 1000), second, (2000, 1000)],
        )
    };
    let tier = |second| {
        let m = m(second);
        Tiers::new(&m, Firmware::Hmat, V6_12).tier(NodeId(2))
    };
    assert_eq!([tier((1100, 900)), tier((1000, 1000))], [Some(9), Some(9)]);
    for second in [(1101, 1000), (1000, 899), (0, 1000), (1000, 0)] {
        assert_eq!(tier(second), Some(22), "{second:?}");
    }
}

// specs/tiering.md#tiers: top tier reaches down to the slowest tier that holds a CPU.
#[test]
fn slow_tier_with_cpu_is_top() {
    let m = two_and_two();
    let d = [(NodeId(0), 300), (NodeId(1), 1200), (NodeId(2), 700), (NodeId(3), 1500)];
    let t = Tiers::from_distances(&m, d.into_iter().collect(), V6_12);
    let top: Vec<bool> = (0..4).map(|n| t.is_top(NodeId(n))).collect();
    assert_eq!(top, [true, true, true, false]);
}

// specs/tiering.md#demotion, the examples: {0,1 DRAM; 2,3 PMEM} gives 0 to 2, 1 to 3; HBM,
// DRAM, PMEM gives 1 to 0 to 2.
#[test]
fn demotion_targets() {
    let m = two_and_two();
    let t = Tiers::new(&m, Firmware::Hmat, V6_12);
    let to = |t: &Tiers, m: &Hardware, n| t.demotion_targets(m, NodeId(n));
    assert_eq!(to(&t, &m, 0), [NodeId(2)]);
    assert_eq!(to(&t, &m, 1), [NodeId(3)]);
    assert!(to(&t, &m, 2).is_empty());
    assert_eq!(t.demotion_fallback(&m, NodeId(0)), [NodeId(2), NodeId(3)]);
    assert!(to(&Tiers::new(&m, Firmware::Hmat, V3_8), &m, 0).is_empty());

    let hbm = machine(
        &[DRAM, BARE, PMEM],
        &[&[10, 15, 20], &[15, 10, 25], &[20, 25, 10]],
        &[(1000, 1000), (1000, 4000), (3000, 300)],
    );
    let t = Tiers::new(&hbm, Firmware::Hmat, V6_12);
    assert_eq!((to(&t, &hbm, 1), to(&t, &hbm, 0)), (vec![NodeId(0)], vec![NodeId(2)]));
    assert_eq!(t.demotion_fallback(&hbm, NodeId(1)), [NodeId(0), NodeId(2)]);
}

// specs/tiering.md#demotion: all nodes of the next tier at the best one's distance, in the
// allocator's order.
#[test]
fn several_targets() {
    let m = |d2, d3| {
        machine(
            &[DRAM, CXL, CXL, CXL],
            &[&[10, 30, d2, d3], &[30, 10, 40, 40], &[d2, 40, 10, 40], &[d3, 40, 40, 10]],
            &[(100, 100), (300, 50), (300, 50), (300, 50)],
        )
    };
    let targets =
        |m: &Hardware| Tiers::new(m, Firmware::Hmat, V6_12).demotion_targets(m, NodeId(0));
    assert_eq!(targets(&m(30, 31)), [NodeId(1), NodeId(2)]);
    assert_eq!(targets(&m(29, 31)), [NodeId(2)]);
    assert_eq!(targets(&m(30, 30)), [NodeId(1), NodeId(2), NodeId(3)]);
}

// specs/tiering.md#demotion: distance, plus one each for a lower number and for having CPUs.
#[test]
fn order() {
    let m = machine(
        &[DRAM, DRAM, CXL, CXL],
        &[&[10, 20, 21, 22], &[20, 10, 20, 22], &[21, 20, 10, 20], &[22, 22, 20, 10]],
        &[(1, 1); 4],
    );
    let all: Vec<_> = (0..4).map(NodeId).collect();
    // From 1: node 0 costs 20+1+1, node 2 costs 20, node 3 costs 22; the tie goes by number.
    assert_eq!(allocator_order(&m, NodeId(1), &all), [1, 2, 0, 3].map(NodeId));
    assert_eq!(allocator_order(&m, NodeId(0), &all), [0, 1, 2, 3].map(NodeId));
}

#[test]
fn lists() {
    let l = |n: &[u16]| list_format(&n.iter().copied().map(NodeId).collect::<Vec<_>>());
    assert_eq!(l(&[]), "");
    assert_eq!(l(&[3]), "3");
    assert_eq!(l(&[0, 1, 4, 6, 7, 8]), "0-1,4,6-8");
    assert_eq!(l(&[2, 0]), "0,2");
}
