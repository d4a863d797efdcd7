use super::*;
use KernelVersion::{V6_1, V6_12};

const MIB: u64 = 256;

fn limits(rss_mib: u64) -> (u32, u32) {
    let l = Limits::new(&Knobs::new(V6_12), Pages(rss_mib * MIB), None);
    assert_eq!(l.start_ms, l.min_ms);
    (l.min_ms, l.max_ms)
}

// specs/numa.md#periods: the table.
#[test]
fn limits_vectors() {
    assert_eq!(limits(0), (1000, 60000));
    assert_eq!(limits(1), (1000, 60000));
    assert_eq!(limits(256), (1000, 60000));
    assert_eq!(limits(257), (500, 30000));
    assert_eq!(limits(1024), (250, 15000));
    assert_eq!(limits(2560), (100, 6000));
    assert_eq!(limits(16 * 1024), (100, 937));
}

// specs/numa.md#periods: rounds up only if the size is a power of two (100 MB, 30000 pages:
// 1, not 2).
#[test]
fn windows() {
    assert_eq!(nr_windows(Pages(30000), 100), 1);
    assert_eq!(nr_windows(Pages(65537), 256), 2);
    assert_eq!(nr_windows(Pages(u64::MAX >> 12), 0), 1);
}

// specs/numa.md#periods: floor = 1000 / (2560/size), 1000 from 2560 MB on.
#[test]
fn floor() {
    for (size, floor) in
        [(1, 0), (100, 40), (256, 100), (1000, 500), (2559, 1000), (2560, 1000), (9999, 1000)]
    {
        let mut k = Knobs::new(V6_12);
        (k.scan_size_mb, k.scan_period_min_ms) = (size, 0);
        assert_eq!(Limits::new(&k, Pages(1), None).min_ms, floor, "{size} MB");
    }
}

// specs/numa.md#periods: groups scale start and maximum by refs · (shared+1)/(private+shared+1),
// never down.
#[test]
fn groups() {
    let k = Knobs::new(V6_12);
    let l = |refs, shared, private| {
        Limits::new(&k, Pages(1), Some(GroupScale { refs, shared, private }))
    };
    let of = |l: Limits| (l.min_ms, l.start_ms, l.max_ms);
    assert_eq!(of(l(4, 99, 0)), (1000, 4000, 240_000));
    assert_eq!(of(l(4, 49, 50)), (1000, 2000, 120_000));
    assert_eq!(of(l(4, 0, 99)), (1000, 1000, 60_000));
    assert_eq!(of(l(u32::MAX, u64::MAX / 2, 0)).0, 1000);
}

fn vector(since: [u64; 5], limits: (u32, u32)) -> u32 {
    let [local, remote, shared, private, failed] = since;
    let l = Limits { min_ms: limits.0, max_ms: limits.1, start_ms: limits.0 };
    adapt(1000, l, Since { local, remote, failed, shared, private }, V6_12).period_ms
}

// specs/numa.md#adaptive-period: the table (local, remote, shared, private, failed).
#[test]
fn adaptation_vectors() {
    for (since, period) in [
        ([0, 100, 0, 100, 0], 2000),
        ([100, 0, 0, 100, 0], 1300),
        ([70, 30, 100, 0, 0], 1100),
        ([0, 100, 100, 0, 0], 300),
        ([50, 50, 50, 50, 0], 800),
        ([90, 10, 0, 100, 1], 2000),
    ] {
        assert_eq!(vector(since, (100, 6000)), period, "{since:?}");
        assert_eq!(vector(since, (1000, 60000)), period.max(1000), "{since:?}");
    }
}

// specs/numa.md#adaptive-period: privacy before locality, so remote but private traffic slows
// down too; specs/seeds.md#open: purely private, remote faults keep doubling.
#[test]
fn surprises() {
    assert_eq!(vector([1, 99, 10, 90, 0], (100, 6000)), 1200);
    let l = Limits { min_ms: 100, max_ms: 6000, start_ms: 100 };
    let a = adapt(4000, l, Since { remote: 5, private: 5, ..Default::default() }, V6_12);
    assert_eq!(a, Adapted { period_ms: 6000, push_next_scan: true, clear_locality: true });
    // 6.1 does not clear when doubling: one failure keeps doubling.
    assert!(!adapt(1000, l, Since::default(), V6_1).clear_locality);
    let s = Since { local: 1, private: 1, ..Default::default() };
    assert!(adapt(1000, l, s, V6_1).clear_locality);
}

// specs/tiering.md#bits: mode 2 alone: only successful promotions are accounted, private and
// remote, so each sequence doubles the period up to the maximum.
#[test]
fn promotions_alone_double() {
    use crate::numa::faults::{AccountedFault, FaultFlags, Runtime, TaskFaults};
    use crate::numa::scan::TaskScan;
    let l = Limits::new(&Knobs::new(V6_12), Pages(1), None);
    let (mut faults, mut task) = (TaskFaults::default(), TaskScan::default());
    let mut period = l.start_ms;
    let mut seen = vec![];
    for seq in 1..=8 {
        let promotion = AccountedFault {
            mem_node: NodeId(0),
            cpu_node: NodeId(0),
            nr_pages: 10,
            flags: FaultFlags(FaultFlags::MIGRATED),
            private: true,
        };
        faults.account(promotion, None, 2);
        let p = faults.place(&mut task, seq, Runtime::first(47742), None).unwrap();
        assert_eq!(p.max_node, Some(NodeId(0)), "promotions set a preferred node");
        let since = Since {
            local: faults.local,
            remote: faults.remote,
            failed: faults.failed,
            shared: p.fault_types[0],
            private: p.fault_types[1],
        };
        period = adapt(period, l, since, V6_12).period_ms;
        (faults.local, faults.remote) = (0, 0);
        seen.push(period);
    }
    assert_eq!(seen, [2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
}

// specs/numa.md#adaptive-period: a task that moves between nodes.
#[test]
fn pull() {
    let n = NodeId;
    let r = |seq, p| restarts_after_move(seq, n(0), n(1), p);
    assert!(r(0, Some(n(1))) && r(0, None));
    assert!(!r(1, Some(n(1))), "to the preferred node");
    assert!(r(1, Some(n(0))), "away from it");
    assert!(!r(1, Some(n(2))), "neither");
    assert!(r(1, None));
    assert!(!restarts_after_move(0, n(1), n(1), None));
}

proptest::proptest! {
    // The period stays in its limits once it has been adapted without failure,
    // and never exceeds the maximum in any case.
    #[test]
    fn stays_in_limits(
        period in 1u32..100_000, rss in 0u64..1 << 32, size in 1u32..5000,
        since: [u16; 5], min in 0u32..5000, max in 0u32..100_000,
    ) {
        let mut k = Knobs::new(V6_12);
        (k.scan_size_mb, k.scan_period_min_ms, k.scan_period_max_ms) = (size, min, max);
        let l = Limits::new(&k, Pages(rss), None);
        proptest::prop_assert!(l.min_ms <= l.max_ms);
        let [local, remote, shared, private, failed] = since.map(u64::from);
        let s = Since { local, remote, failed, shared, private };
        let a = adapt(period, l, s, V6_12);
        proptest::prop_assert!(a.period_ms <= l.max_ms);
        if !a.push_next_scan {
            proptest::prop_assert!(a.period_ms >= l.min_ms);
        }
    }
}

// specs/numa.md#adaptive-period: 4.5 looks at locality, and scans faster only by as much as is private.
#[test]
fn locality_alone() {
    let limits = Limits { min_ms: 100, max_ms: 6000, start_ms: 100 };
    let next = |local, remote, shared, private| {
        let since = Since { local, remote, failed: 0, shared, private };
        adapt(1000, limits, since, KernelVersion::V4_5).period_ms
    };
    assert_eq!(next(100, 0, 0, 100), 1300);
    assert_eq!(next(70, 30, 0, 100), 1100);
    assert_eq!(next(0, 100, 1, 99), 300, "mostly private: seven slots of 100 ms");
    assert_eq!(next(0, 100, 100, 0), 1000, "all of it shared: it would only bounce");
    assert_eq!(next(50, 50, 50, 50), 900);
}

// specs/numa.md#periods: in 4.5 a group's size doesn't scale its members' periods.
#[test]
fn groups_scale_later() {
    let group = GroupScale { refs: 4, shared: 100, private: 0 };
    let limits = |version| {
        let knobs = Knobs { version, ..Knobs::default() };
        Limits::new(&knobs, Pages(65536), Some(group)).start_ms
    };
    assert_eq!((limits(KernelVersion::V4_5), limits(KernelVersion::V4_15)), (1000, 4000));
}
