use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::shapes::{Shape, all_online, layouts, shape};
use super::*;

fn list(cpus: impl Iterator<Item = usize>) -> String {
    let cpus: Vec<usize> = cpus.collect();
    let mut parts = Vec::new();
    let mut i = 0;
    while i < cpus.len() {
        let mut end = i;
        while end + 1 < cpus.len() && cpus[end + 1] == cpus[end] + 1 {
            end += 1;
        }
        parts.push(match end - i {
            0 => cpus[i].to_string(),
            _ => format!("{}-{}", cpus[i], cpus[end]),
        });
        i = end + 1;
    }
    parts.join(",")
}

fn stack(d: &Domains, cpu: usize) -> String {
    let mut text = format!("CPU {cpu}\n");
    for level in 0..d.levels(cpu) {
        let domain = d.at(cpu, level);
        text += &format!("  {} {}: groups", domain.kind.name(), list(d.span(domain).iter()));
        for group in d.groups(cpu, level) {
            text += &format!(" {{{}}}", list(d.group_span(group).iter()));
            let mask: Vec<usize> = d.balance_mask(group).iter().map(|&c| usize::from(c)).collect();
            if mask.len() < group.weight as usize {
                text += &format!("({})", list(mask.into_iter()));
            }
        }
        text += "\n";
    }
    text
}

fn check(d: &Domains, cpus: &[usize], expected: Expect) {
    let text: String = cpus.iter().map(|&cpu| stack(d, cpu)).collect();
    expected.assert_eq(&text);
}

// specs/sched-balance.md#levels: what adds nothing vanishes.
#[test]
fn two_nodes_two_cores_two_threads() {
    let d = shape(2, 2, 2).domains();
    check(
        &d,
        &[0, 5],
        expect![[r#"
        CPU 0
          SMT 0-1: groups {0} {1}
          MC 0-3: groups {0-1} {2-3}
          NUMA 0-7: groups {0-3} {4-7}
        CPU 5
          SMT 4-5: groups {5} {4}
          MC 4-7: groups {4-5} {6-7}
          NUMA 0-7: groups {4-7} {0-3}
    "#]],
    );
    // As a 6.12 guest of that shape prints them in debugfs: level, flags and flags of the own group.
    let mut text = String::new();
    for level in 0..3 {
        let (s, own) = (d.at(0, level), d.local(0, level));
        text += &format!(
            "{} level {} pct {} tries {} {}-{} ms: {:?} |{:?}|\n",
            s.kind.name(),
            s.level,
            s.imbalance_pct,
            s.cache_nice_tries,
            s.min_interval(),
            s.max_interval(),
            s.flags,
            own.flags
        );
    }
    expect![[r#"
        SMT level 0 pct 110 tries 0 2-4 ms: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_CPUCAPACITY SD_SHARE_LLC SD_PREFER_SIBLING ||
        MC level 2 pct 117 tries 1 4-8 ms: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_LLC SD_PREFER_SIBLING |SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_CPUCAPACITY SD_SHARE_LLC SD_PREFER_SIBLING|
        NUMA level 5 pct 117 tries 2 8-16 ms: SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SERIALIZE SD_OVERLAP SD_NUMA |SD_BALANCE_NEWIDLE SD_BALANCE_EXEC SD_BALANCE_FORK SD_WAKE_AFFINE SD_SHARE_LLC SD_PREFER_SIBLING|
    "#]].assert_eq(&text);
}

#[test]
fn other_shapes() {
    // One LLC, no threads: MC alone. Threads numbered after all cores: rings keep the numbers' order.
    check(
        &shape(1, 4, 1).domains(),
        &[2],
        expect![[r#"
        CPU 2
          MC 0-3: groups {2} {3} {0} {1}
    "#]],
    );
    let s = Shape { siblings_adjacent: false, ..shape(1, 4, 2) };
    check(
        &s.domains(),
        &[1, 6],
        expect![[r#"
        CPU 1
          SMT 1,5: groups {1} {5}
          MC 0-7: groups {1,5} {2,6} {3,7} {0,4}
        CPU 6
          SMT 2,6: groups {6} {2}
          MC 0-7: groups {2,6} {3,7} {0,4} {1,5}
    "#]],
    );
    // Two LLCs in a node, clusters in each.
    let s = Shape { llcs: 2, clusters: 2, ..shape(1, 2, 1) };
    check(
        &s.domains(),
        &[3],
        expect![[r#"
        CPU 3
          CLS 2-3: groups {3} {2}
          MC 0-3: groups {2-3} {0-1}
          PKG 0-7: groups {0-3} {4-7}
    "#]],
    );
    // A CPU that is alone has no domain.
    check(
        &shape(1, 1, 1).domains(),
        &[0],
        expect![[r#"
        CPU 0
    "#]],
    );
    // A cluster as wide as the LLC takes MC's place.
    let s = Shape { clusters: 1, ..shape(2, 4, 1) };
    check(
        &s.domains(),
        &[3],
        expect![[r#"
        CPU 3
          CLS 0-3: groups {3} {0} {1} {2}
          NUMA 0-7: groups {0-3} {4-7}
    "#]],
    );
    // One core a node.
    check(
        &shape(2, 1, 2).domains(),
        &[3],
        expect![[r#"
        CPU 3
          SMT 2-3: groups {3} {2}
          NUMA 0-3: groups {2-3} {0-1}
    "#]],
    );
}

// specs/sched-balance.md#levels: a package that holds two nodes has no level of its own; a node of two caches has.
#[test]
fn nodes_within_a_package() {
    let mut layout = Shape { llcs: 2, ..shape(2, 2, 1) }.layout();
    let kinds = |layout: &Layout| -> Vec<&str> {
        let d = all_online(layout);
        (0..d.levels(0)).map(|l| d.at(0, l).kind.name()).collect()
    };
    assert_eq!(kinds(&layout), ["MC", "PKG", "NUMA"]);
    layout.cpus.iter_mut().for_each(|site| site.package = 0);
    assert_eq!(kinds(&layout), ["MC", "NODE", "NUMA"]);
}

// specs/sched-balance.md#groups: the kernel's own examples of overlapping groups: a ring of four nodes, one
// with a chord, and a line of four.
#[test]
fn overlapping_groups() {
    let nodes = |rows: [[u32; 4]; 4]| {
        let mut layout = shape(4, 1, 1).layout();
        layout.distances = rows.iter().map(|r| r.to_vec()).collect();
        layout.reclaim_distance = 40;
        all_online(&layout)
    };
    let ring = [[10, 20, 30, 20], [20, 10, 20, 30], [30, 20, 10, 20], [20, 30, 20, 10]];
    check(
        &nodes(ring),
        &[0, 1],
        expect![[r#"
        CPU 0
          NUMA 0-1,3: groups {0} {1} {3}
          NUMA 0-3: groups {0-1,3}(0) {1-3}(2)
        CPU 1
          NUMA 0-2: groups {1} {2} {0}
          NUMA 0-3: groups {0-2}(1) {0,2-3}(3)
    "#]],
    );
    let chord = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]];
    check(
        &nodes(chord),
        &[0, 1, 3],
        expect![[r#"
        CPU 0
          NUMA 0-2: groups {0} {1} {2}
          NUMA 0-3: groups {0-2}(0) {1-3}(3)
        CPU 1
          NUMA 0-3: groups {1} {2} {3} {0}
        CPU 3
          NUMA 1-3: groups {3} {1} {2}
          NUMA 0-3: groups {1-3}(3) {0-2}(0)
    "#]],
    );
    let line = [[10, 20, 30, 40], [20, 10, 20, 30], [30, 20, 10, 20], [40, 30, 20, 10]];
    check(
        &nodes(line),
        &[0, 1, 3],
        expect![[r#"
        CPU 0
          NUMA 0-1: groups {0} {1}
          NUMA 0-2: groups {0-1}(0) {2}
          NUMA 0-3: groups {0-2}(0) {1-3}(3)
        CPU 1
          NUMA 0-2: groups {1} {2} {0}
          NUMA 0-3: groups {0-2}(1) {2-3}(3)
        CPU 3
          NUMA 2-3: groups {3} {2}
          NUMA 1-3: groups {2-3}(3) {1}
          NUMA 0-3: groups {1-3}(3) {0-2}(0)
    "#]],
    );
}

// specs/sched-balance.md#imb-numa-nr: the vectors.
#[test]
fn imb_numa_nr() {
    let numa = |d: &Domains| -> Vec<u32> {
        (0..d.levels(0))
            .map(|l| d.at(0, l))
            .filter(|s| s.flags.has(Flags::NUMA))
            .map(|s| s.imb_numa_nr)
            .collect()
    };
    assert_eq!(numa(&shape(2, 16, 1).domains()), [2]);
    assert_eq!(numa(&shape(2, 4, 1).domains()), [1]);
    let mut four = shape(4, 32, 1).layout();
    for a in 0..4 {
        for b in 0..4 {
            four.distances[a][b] = if a == b {
                10
            } else if a / 2 == b / 2 {
                16
            } else {
                28
            };
        }
    }
    assert_eq!(numa(&all_online(&four)), [4, 8]);
    assert_eq!(numa(&Shape { llcs: 8, ..shape(2, 16, 1) }.domains()), [8]);
}

// specs/sched-balance.md#flags: what is too far away is not for fork, exec and affine wake-ups.
#[test]
fn far_nodes() {
    let mut layout = shape(2, 2, 1).layout();
    (layout.distances[0][1], layout.distances[1][0]) = (31, 31);
    let d = all_online(&layout);
    let top = d.at(0, 1);
    assert_eq!((top.kind, top.flags.has(Flags::BALANCE_NEWIDLE)), (Kind::Numa, true));
    assert!(!top.flags.has(Flags::BALANCE_FORK | Flags::BALANCE_EXEC | Flags::WAKE_AFFINE));
    layout.reclaim_distance = 32;
    assert!(all_online(&layout).at(0, 1).flags.has(Flags::BALANCE_FORK));
}

// specs/sched-balance.md#flags: a machine of two kinds of CPUs.
#[test]
fn capacities() {
    let mut layout = shape(1, 4, 1).layout();
    for site in &mut layout.cpus[2..] {
        (site.capacity, site.llc) = (512, 1);
    }
    let d = all_online(&layout);
    assert_eq!(d.asym_level(0), Some(1));
    check(
        &d,
        &[0],
        expect![[r#"
        CPU 0
          MC 0-1: groups {0} {1}
          PKG 0-3: groups {0-1} {2-3}
    "#]],
    );
    assert!(!d.at(0, 0).flags.has(Flags::PREFER_SIBLING), "tasks aren't spread over both kinds");
    assert!(d.asym() && !shape(1, 4, 1).domains().asym());
}

// specs/sched-balance.md#levels: CPUs that go offline leave stacks, groups and levels.
#[test]
fn offline() {
    let layout = shape(2, 2, 2).layout();
    let d = Domains::new(&layout, &[0b0000_1101]);
    check(
        &d,
        &[0, 1, 2, 4],
        expect![[r#"
        CPU 0
          MC 0,2-3: groups {0} {2-3}
        CPU 1
        CPU 2
          SMT 2-3: groups {2} {3}
          MC 0,2-3: groups {2-3} {0}
        CPU 4
    "#]],
    );
    assert_eq!(
        (d.nr_online(), d.smt_active(), d.siblings(1), d.siblings(2)),
        (3, true, &[1][..], &[2, 3][..])
    );
    // Bits beyond the machine mean nothing; no CPU at all is no domain.
    assert_eq!(Domains::new(&layout, &[u64::MAX, u64::MAX]).nr_online(), 8);
    assert_eq!(Domains::new(&layout, &[]).slots(), 0);
}

// specs/sched-balance.md#levels: what is looked up by CPU.
#[test]
fn lookups() {
    let d = Shape { llcs: 2, clusters: 2, ..shape(2, 2, 1) }.domains();
    assert_eq!(
        (d.llc_level(5), d.llc(5), d.llc_size(5), d.llc_id(5), d.share_id(7)),
        (Some(1), Some(1), 4, 4, 6)
    );
    assert_eq!(
        (d.numa_level(5), d.common(5, 4), d.common(5, 6), d.common(5, 0), d.common(5, 9)),
        (Some(3), Some(0), Some(1), Some(2), Some(3))
    );
    assert_eq!((d.node(9), d.nr_llcs(), d.local(5, 1).cores), (1, 4, 2));
    // CPUs of two nodes never share a cache, whatever the machine's file says.
    let mut layout = shape(2, 2, 1).layout();
    for site in &mut layout.cpus {
        site.llc = 0;
    }
    assert_eq!(all_online(&layout).llc_size(0), 2);
    let machine = crate::fixtures::machine(&[
        crate::fixtures::dram(1 << 18, 4),
        crate::fixtures::cxl(1 << 18),
    ]);
    check(
        &all_online(&Layout::of(&machine)),
        &[1],
        expect![[r#"
        CPU 1
          MC 0-3: groups {1} {2} {3} {0}
    "#]],
    );
}

/// The memory of the domains takes no more than a few KiB for each CPU.
#[test]
fn bytes_per_cpu() {
    for (s, most) in [
        (shape(1, 8, 1), 1024),
        (shape(2, 16, 2), 1024),
        (Shape { llcs: 8, siblings_adjacent: false, ..shape(16, 16, 2) }, 2048),
        (shape(64, 32, 2), 1024),
    ] {
        let d = s.domains();
        let each = d.bytes() / d.nr_cpus();
        println!("{} CPUs: {each} bytes each, {} slots", d.nr_cpus(), d.slots());
        assert!(each <= most, "{each} bytes a CPU of {}", d.nr_cpus());
    }
}

fn set(span: Span<'_>) -> std::collections::BTreeSet<usize> {
    span.iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // Spans nest and the top one has all CPUs; groups cover the span, are disjoint unless they may overlap, and
    // begin with the CPU's own one, which is the level below; balance masks lie within their groups.
    #[test]
    fn well_formed(layout in layouts(), online in any::<u64>(), all in any::<bool>()) {
        let online = if all { u64::MAX } else { online | 1 };
        let d = Domains::new(&layout, &[online, online]);
        let on = set(d.online());
        for cpu in 0..d.nr_cpus() {
            if !on.contains(&cpu) {
                prop_assert_eq!(d.levels(cpu), 0);
                continue;
            }
            let mut below = std::collections::BTreeSet::from([cpu]);
            for level in 0..d.levels(cpu) {
                let domain = d.at(cpu, level);
                let span = set(d.span(domain));
                prop_assert!(span.is_superset(&below) && span.contains(&cpu));
                prop_assert_eq!(span.len(), domain.weight as usize);
                let mut covered = std::collections::BTreeSet::new();
                for (i, group) in d.groups(cpu, level).enumerate() {
                    let members = set(d.group_span(group));
                    prop_assert_eq!(members.len(), group.weight as usize);
                    prop_assert!(members.is_subset(&span));
                    if i == 0 {
                        prop_assert_eq!(&members, &below);
                        prop_assert_eq!(group, d.local(cpu, level));
                    }
                    if !domain.flags.has(Flags::OVERLAP) {
                        prop_assert!(members.is_disjoint(&covered));
                    }
                    prop_assert!(!d.balance_mask(group).is_empty());
                    prop_assert!(d.balance_mask(group).iter().all(|&c| members.contains(&usize::from(c))));
                    let cores: std::collections::BTreeSet<&[u16]> = members.iter().map(|&c| d.siblings(c)).collect();
                    prop_assert_eq!(cores.len(), group.cores as usize);
                    covered.extend(members);
                }
                prop_assert_eq!(&covered, &span);
                below = span;
            }
            prop_assert_eq!(&below, &on, "the top level spans all");
            prop_assert_eq!(d.common(cpu, *on.iter().next_back().unwrap()).is_some(), on.len() > 1);
        }
        // The same once more.
        let again = Domains::new(&layout, &[online, online]);
        prop_assert_eq!(format!("{d:?}"), format!("{again:?}"));
    }
}
