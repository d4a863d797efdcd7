//! The whole pipeline, tiny: figures mean little at this scale, but every part runs.

use super::*;
use crate::reproduce::vary::{Vary, What};
use expect_test::expect;
use homenode_core::topology::Machine;
use std::collections::BTreeSet;

fn tiny() -> Plan {
    Plan { factors: [4096, 2048], seeds: [1, 1], moved: 4096, shares: &[50, 200] }
}

#[test]
fn a_tiny_reproduction_prints_every_part() {
    let bench = Bench::new().expect("the registered experiment");
    let result = reproduce(&tiny(), &bench, 2).expect("it runs");
    expect![[r#""#]].assert_eq(&result.to_text(168));
    let p = Point { nodes: 4, share: 50, across: false, ..base(4096) };
    let twice = [(); 2].map(|()| bench.run(&p).expect("it runs"));
    assert_eq!(twice[0], twice[1], "the same point, the same figures");
}

/// How far apart nodes are, as hops: the place of a link's latency among all.
fn hops(machine: &Machine) -> Vec<Vec<usize>> {
    let kinds = crate::reproduce::vary::latencies(machine);
    let of = |from, to| {
        let link = machine.link(from, to).expect("all pairs have one");
        kinds.iter().position(|k| *k == link.read_latency.value).expect("one of them")
    };
    let row = |from| machine.nodes.iter().map(|to| of(from, to.id)).collect();
    machine.nodes.iter().map(|from| row(from.id)).collect()
}

#[test]
fn eight_sockets_are_a_twisted_hypercube() {
    let bench = Bench::new().expect("the registered experiment");
    for (nodes, machine) in &bench.machines {
        let hops = hops(machine);
        for (a, row) in hops.iter().enumerate() {
            let count = |h| row.iter().filter(|&&x| x == h).count();
            let expected = if *nodes == 8 { [1, 3, 4] } else { [1, nodes - 1, 0] };
            assert_eq!([count(0), count(1), count(2)], expected, "node {a} of {nodes}");
            for (b, &h) in row.iter().enumerate() {
                assert_eq!(h, hops[b][a], "{a} and {b} are as far apart both ways");
                // Two hops lead over a neighbour of both.
                let between = (0..*nodes).any(|c| hops[a][c] == 1 && hops[c][b] == 1);
                assert!(h != 2 || between, "{a} to {b}");
            }
        }
    }
}

#[test]
fn one_kind_of_constant_moves_at_a_time() {
    let bench = Bench::new().expect("the registered experiment");
    let mut names = BTreeSet::new();
    for what in What::by_kind(bench.largest()) {
        assert!(names.insert(what.name(bench.largest())), "names are unique");
        for percent in Vary::STEPS {
            for machine in bench.machines.values() {
                let mut moved = machine.clone();
                Vary { what, percent }.apply(&mut moved, &mut bench.scenario.clone());
                moved.check().expect("still possible");
                let links = |m: &Machine| m.links.clone();
                let both = links(&moved) != links(machine) && moved.costs != machine.costs;
                assert!(!both, "{}", what.name(machine));
            }
        }
    }
    for name in sensitivity::MOST_ELASTIC {
        assert!(names.contains(name), "{name}");
    }
}
