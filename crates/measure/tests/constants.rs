//! The whole measurement on this machine, on small buffers and in little time:
//! that everything is there and legal, never how large a figure is.

use homenode_core::costs::{Constant, Cost, Origin};
use homenode_core::topology::Hardware;
use homenode_fixtures::until;
use homenode_measure::constants::{Options, Progress, measure};
use std::time::{Duration, Instant};

fn check(what: &str, c: &Constant) {
    assert!(c.value > 0, "{what}: {c:?}");
    assert!(!c.method.is_empty(), "{what} has no method");
    assert!(!c.method.contains("outside the bounds"), "{what}: {c:?}");
    if c.origin == Origin::Assumed {
        assert_eq!(c.spread, None, "{what} is assumed, yet has a spread");
    }
}

fn latencies_rise(m: &Hardware) {
    let near = m.links.iter().map(|l| l.read_latency.value).min().unwrap();
    let mut levels: Vec<u64> = m.caches.iter().map(|c| c.latency.value).collect();
    levels.push(near);
    for pair in levels.windows(2) {
        // Buffers of this size may fit into the last cache, and a neighbour may
        // be loud: only nonsense fails.
        assert!(pair[0] < pair[1] * 3, "{levels:?}");
    }
}

#[test]
fn everything_is_measured_or_says_why_not() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (threads_before, resident_before) = (threads(), resident());
    let mut seen: Vec<Progress> = vec![];
    let began = Instant::now();
    let m = measure(&Options::tiny(), &mut |p| seen.push(p)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    for key in Cost::ALL {
        let c = m.costs.0.get(key).unwrap_or_else(|| panic!("{} is missing", key.name()));
        let (low, high) = key.bounds();
        // Of a few nothing is a legal figure.
        if low > 0 || c.value > 0 {
            check(key.name(), c);
        }
        assert!((low..=high).contains(&c.value), "{}: {c:?}", key.name());
    }
    assert_eq!(m.costs.0.len(), Cost::ALL.len());
    assert_eq!(m.costs.0[&Cost::SwapIn].origin, Origin::Assumed);
    for from in m.nodes.iter().filter(|n| m.has_cpu(n.id)) {
        for to in m.nodes.iter().filter(|n| !n.zones.is_empty()) {
            let l = m.link(from.id, to.id).expect("a link for each pair");
            for c in [&l.read_latency, &l.write_latency, &l.read_bandwidth, &l.write_bandwidth] {
                check("link", c);
            }
        }
    }
    for c in &m.caches {
        check("cache", &c.latency);
        assert!(c.ways > 0 && c.line > 0 && c.shared_by > 0);
    }
    latencies_rise(&m);
    assert!(!m.name.is_empty() && !m.about.is_empty());

    assert!(seen.windows(2).all(|p| p[0].done_permille <= p[1].done_permille));
    assert_eq!(seen.last().map(|p| p.done_permille), Some(1000));

    // Nothing stays: no thread, no buffer. A joined thread's entry may outlive
    // it for a moment.
    until("the end of all threads", || (threads() <= threads_before).then_some(()));
    // The allocator may keep a little; the smallest buffer has 16 MiB.
    assert!(resident() < resident_before + (10 << 10), "{} KiB", resident());
}
