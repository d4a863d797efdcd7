//! A story per rule: what is there, what was found, what is said.

use super::*;

fn node(id: u16, cpus: bool, slow: bool) -> NodeFacts {
    let (bandwidth, write_bandwidth, weight) = (None, None, None);
    NodeFacts { id: NodeId(id), cpus, memory: true, slow, bandwidth, write_bandwidth, weight }
}
/// DRAM with CPUs beside an expander, all knobs as a kernel boots.
fn tiered() -> Facts {
    Facts {
        nodes: vec![node(0, true, false), node(1, false, true)],
        balancing: Some(1),
        demotion: Some(false),
        promote_limit: Some(65_536),
        auto_weights: None,
        zone_reclaim: Some(0),
        found: Found { heat: true, ..Found::default() },
    }
}
fn said(facts: &Facts) -> Vec<String> {
    consider(facts)
        .into_iter()
        .map(|o| match o {
            Opinion::Set(s) => {
                assert!(!s.why.is_empty() && !s.when_not.is_empty(), "{s:?}");
                assert_eq!(s.to_do().len(), s.to_undo().len());
                format!("{}: {} -> {}", s.knob, s.now, s.then)
            }
            Opinion::Leave(l) => {
                assert!(!l.why.is_empty(), "{l:?}");
                format!("{}: stays {}", l.knob, l.now)
            }
        })
        .collect()
}

#[test]
fn hot_memory_on_a_slow_node_asks_for_tiering_and_a_full_fast_one_for_demotion() {
    let mut f = tiered();
    f.found.up = Pages(262_144);
    assert_eq!(
        said(&f),
        [
            "kernel.numa_balancing: 1 -> 3",
            "demotion_enabled: stays false",
            "kernel.numa_balancing_promote_rate_limit_MBps: stays 65536",
        ]
    );
    f.found.room = Pages(1000);
    f.balancing = Some(0);
    let all = advise(&f);
    assert_eq!(all[0].to_do(), ["echo 2 > /proc/sys/kernel/numa_balancing"]);
    assert_eq!(all[0].to_undo(), ["echo 0 > /proc/sys/kernel/numa_balancing"]);
    assert!(all[0].why.starts_with("1.0 GiB in use on slow nodes"), "{}", all[0].why);
    assert_eq!(all[1].to_do(), ["echo true > /sys/kernel/mm/numa/demotion_enabled"]);
    assert!(all[1].why.contains("3.9 MiB of them would have to go down"), "{}", all[1].why);
}

#[test]
fn where_nothing_would_move_nothing_is_switched() {
    let f = tiered();
    assert_eq!(said(&f), ["kernel.numa_balancing: stays 1", "demotion_enabled: stays false"]);
    let [Opinion::Leave(l), _] = &consider(&f)[..] else { panic!("left") };
    assert!(l.why.contains("up to 20 %"), "it is not switched off on that ground: {}", l.why);
}

#[test]
fn a_slow_node_that_the_kernel_takes_for_fast_is_named() {
    // 6.1 puts a node without CPUs into the top tier, unless a driver knows better.
    let mut f = tiered();
    f.nodes[1].slow = false;
    f.found.up = Pages(10);
    let [Opinion::Leave(l)] = &consider(&f)[..] else { panic!("left") };
    assert!(l.why.contains("counts to its fastest tier"), "{}", l.why);
}

#[test]
fn without_heat_nothing_is_said_on_a_guess() {
    let mut f = tiered();
    // Even if somebody counted pages.
    f.found = Found { heat: false, up: Pages(1000), room: Pages(1000), ..Found::default() };
    f.promote_limit = None;
    assert!(advise(&f).is_empty());
    for o in consider(&f) {
        let Opinion::Leave(l) = o else { panic!("a guess") };
        assert!(l.why.ends_with("not known"), "{}", l.why);
    }
}

#[test]
fn memory_away_from_its_cpus_asks_for_balancing_between_sockets() {
    let mut f = tiered();
    f.nodes = vec![node(0, true, false), node(1, true, false)];
    f.balancing = Some(0);
    f.found.near = Pages(512);
    assert_eq!(said(&f), ["kernel.numa_balancing: 0 -> 1"]);
    assert!(advise(&f)[0].when_not.contains("31 ms"));
    f.balancing = Some(1);
    assert_eq!(said(&f), ["kernel.numa_balancing: stays 1"]);
    // Tiering's bit alone does not look between sockets.
    f.balancing = Some(2);
    assert_eq!(said(&f)[0], "kernel.numa_balancing: 2 -> 3");
}

#[test]
fn on_one_node_balancing_only_costs() {
    let mut f = tiered();
    f.nodes.truncate(1);
    assert_eq!(said(&f), ["kernel.numa_balancing: 1 -> 0"]);
    f.balancing = Some(0);
    assert_eq!(said(&f), ["kernel.numa_balancing: stays 0"]);
    f.balancing = None;
    assert!(said(&f).is_empty());
}

#[test]
fn promotion_is_bounded_by_a_tenth_of_what_the_slow_node_can_write() {
    let mut f = tiered();
    f.balancing = Some(2);
    f.found.up = Pages(10);
    f.nodes[1].write_bandwidth = Some(8_000);
    let limit = "kernel.numa_balancing_promote_rate_limit_MBps";
    assert_eq!(said(&f)[2], format!("{limit}: 65536 -> 800"));
    f.promote_limit = Some(100);
    assert_eq!(said(&f)[2], format!("{limit}: stays 100"));
    f.promote_limit = Some(0);
    assert_eq!(said(&f)[2], format!("{limit}: 0 -> 800"));
    // Neither on nor suggested: it has no effect.
    (f.balancing, f.found.up) = (Some(1), Pages(0));
    assert!(!said(&f).iter().any(|s| s.starts_with(limit)));
}

#[test]
fn weights_follow_known_bandwidths() {
    let mut f = tiered();
    f.balancing = None;
    f.demotion = None;
    for n in &mut f.nodes {
        n.weight = Some(1);
    }
    assert_eq!(said(&f), ["weighted_interleave: stays node 0: 1, node 1: 1"]);
    f.nodes[0].bandwidth = Some(100_000);
    f.nodes[1].bandwidth = Some(30_000);
    f.auto_weights = Some(true);
    let s = &advise(&f)[0];
    let at = "/sys/kernel/mm/mempolicy/weighted_interleave";
    let lines = |all: &[(&str, &str)]| -> Vec<String> {
        all.iter().map(|(v, n)| format!("echo {v} > {at}/{n}")).collect()
    };
    assert_eq!(s.to_do(), lines(&[("false", "auto"), ("7", "node0"), ("2", "node1")]));
    assert_eq!(s.to_undo(), lines(&[("1", "node1"), ("1", "node0"), ("true", "auto")]));
    // The same ratio in other numbers is left.
    (f.nodes[0].weight, f.nodes[1].weight) = (Some(14), Some(4));
    assert!(advise(&f).is_empty());
}

#[test]
fn weights_are_the_smallest_that_are_near_enough() {
    assert_eq!(weights(&[100, 100]), [1, 1]);
    assert_eq!(weights(&[100, 60]), [5, 3]);
    assert_eq!(weights(&[200, 200, 50]), [4, 4, 1]);
    assert_eq!(weights(&[1_000_000, 1]), [255, 1]);
    assert_eq!(weights(&[0, 5]), [1, 5]);
    assert!(weights(&[]).is_empty());
    assert_eq!(weights(&[u64::MAX, u64::MAX / 2]), [2, 1]);
    // Ratios hold to a twentieth wherever the slowest has its due.
    for a in 1..300u64 {
        for b in a..(a * 10).min(300) {
            let w = weights(&[a, b]);
            let (x, y) = (u64::from(w[0]) * b, u64::from(w[1]) * a);
            assert!(x.abs_diff(y) * 15 <= x.max(y), "{a}:{b} as {w:?}");
        }
    }
}

#[test]
fn reclaim_within_a_node_is_questioned_where_there_are_several() {
    let mut f = tiered();
    f.zone_reclaim = Some(1);
    assert_eq!(said(&f)[2], "vm.zone_reclaim_mode: 1 -> 0");
    f.nodes.truncate(1);
    assert!(!said(&f).iter().any(|s| s.contains("reclaim")));
}
