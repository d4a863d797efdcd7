//! The whole pipeline, and that each conclusion can fail.

use super::judge::{Findings, Ways, judge, wrong};
use super::run::{Bench, Took};
use super::*;
use crate::reproduce::experiment::{Bench as _, Moved};
use expect_test::expect;
use homenode_core::costs::Cost;

/// A build of two rounds, one group, five seconds.
#[test]
fn the_reproduction_prints_every_part() {
    let bench = Bench::new().expect("the registered experiment");
    let plan = Plan {
        seeds: 1,
        build: Load::Build(2),
        messaging: Load::Messaging(1),
        long: Load::Long(5),
        moved: Load::Build(1),
        constants: vec![What::Cost(Cost::HintFault)],
    };
    let result = reproduce(&plan, &bench, 2).expect("it runs");
    expect![[r#"
        3.8 as it was when slow start came
                                                     off                  without                     with
        build: CPU time [s]             7.972 (   0.00%)         8.220 (  -3.11%)         8.016 (  -0.55%)
        build: elapsed [s]              1.618 (   0.00%)         1.655 (  -2.24%)         1.640 (  -1.36%)
        build: entries marked               0                   391770                    92158
        build: hint faults                  0                   290468                    49848
        build: pages moved                  0                        0                        0
        hackbench: elapsed [ms]         5.191 (   0.00%)         5.191 (   0.00%)         5.191 (   0.00%)
        long: local [%]                     -                   100.00                   100.00

        6.12, scan_period_min_ms 100
                                                     off                  without                     with
        build: CPU time [s]             7.970 (   0.00%)         7.978 (  -0.10%)         7.970 (   0.00%)
        build: elapsed [s]              1.619 (   0.00%)         1.621 (  -0.13%)         1.619 (   0.00%)
        build: entries marked               0                        0                        0
        build: hint faults                  0                        0                        0
        build: pages moved                  0                        0                        0
        hackbench: elapsed [ms]         5.358 (   0.00%)         5.358 (   0.00%)         5.358 (   0.00%)
        long: local [%]                     -                   100.00                   100.00

        3.8 as it was released
                                                     off                  without                     with
        build: CPU time [s]             7.972 (   0.00%)         7.972 (   0.00%)         7.972 (   0.00%)
        build: elapsed [s]              1.618 (   0.00%)         1.618 (   0.00%)         1.618 (   0.00%)
        build: entries marked               0                        0                        0
        build: hint faults                  0                        0                        0
        build: pages moved                  0                        0                        0
        hackbench: elapsed [ms]         5.191 (   0.00%)         5.191 (   0.00%)         5.191 (   0.00%)

                                                                    seed    ours  Stddev   from    to
        build, CPU time without slow start, % above off (seed)      2.29    3.11    0.00   1.00  4.00  holds
        build, elapsed without slow start, % above off (seed)       2.29    2.24    0.00      -     -
        build, CPU time with slow start, % above off (seed)        -0.07    0.55    0.00  -0.50  0.50  FAILS
        build, elapsed with slow start, % above off (seed)         -0.07    1.36    0.00      -     -
        hackbench without slow start, % above off (seed)            2.60    0.00    0.00      -     -
        hackbench with slow start, % above off (seed)               0.75    0.00    0.00      -  1.20  holds
        long tasks, locality with slow start, % of without (seed)      -  100.00    0.00  98.00     -  holds
        build, CPU time without slow start, % above off (6.12)      2.29    0.10    0.00   1.00  4.00  FAILS
        build, elapsed without slow start, % above off (6.12)       2.29    0.13    0.00      -     -
        build, CPU time with slow start, % above off (6.12)        -0.07    0.00    0.00  -0.50  0.50  holds
        build, elapsed with slow start, % above off (6.12)         -0.07    0.00    0.00      -     -
        hackbench without slow start, % above off (6.12)            2.60    0.00    0.00      -     -
        hackbench with slow start, % above off (6.12)               0.75    0.00    0.00      -  1.20  holds
        long tasks, locality with slow start, % of without (6.12)      -  100.00    0.00  98.00     -  holds

        holds  1. A build costs 1 to 4 % without slow start (seed).
        FAILS  1. With slow start it costs what it costs without balancing, within 0.5 % (seed): it is +0.55 %.
        FAILS  1. A build costs 1 to 4 % without slow start (6.12): it is +0.10 %.
        holds  1. With slow start it costs what it costs without balancing, within 0.5 % (6.12).
        holds  2. hackbench with slow start is at most 1.2 % above off, and not above what it is without.
        holds  3. Tasks that run for long come to at least 98 % of the locality that they have without (seed).
        holds  3. Tasks that run for long come to at least 98 % of the locality that they have without (6.12).
        holds  4. Without slow start costs more than with it for each seed, and with each of 1 constants moved by ±20 %.

        machine: xeon-e7-2: two Xeon E7 of 10 cores (Westmere-EX); latencies published for four sockets,
          composed, no single machine
        workload: kernbench: make -j40 of a part of Linux 6.12: 384 jobs of eight classes, as a build had
          them; hackbench of 10 groups; slow-start-long: four tasks whose memory is on another node, 61 s
        kernel: seed and 3.8: NUMA balancing of 3.8, with the fair class, wake-ups and domains of 4.5 as a
          stand-in; 6.12 with scan_period_min_ms = 100, as in the seed; balancing of load as in 6.12
        scaled down: files of the build 1:7
        seed: 1
        note: the seed's build is measured by its elapsed time; ours by processor time, since at the end of
          a short build CPUs run dry
        note: a task of hackbench has less than 100 ms of processor time, so nothing is ever scanned: no
          rule of balancing can tell its three columns apart
        note: 6.12 passes over pages that are near a process of one thread; 3.8 marked them as well
        note: 6.12's tasks may go where their memory is, 3.8's never do
    "#]].assert_eq(&result.to_text(120));
    let p = point(plan.moved, Kernel::Seed, Way::Without, 1, None);
    let twice = [(); 2].map(|()| bench.run(&p).expect("it runs"));
    assert_eq!(twice[0], twice[1], "the same point, the same times");
}

fn ways(without: f64, with: f64) -> Ways {
    let took = |busy_s, local| Took { busy_s, elapsed_s: busy_s, local, ..Took::default() };
    Ways { off: took(100.0, 5.0), without: took(without, 99.0), with: took(with, 98.5) }
}

/// Numbers of the conclusions that fail.
fn failing(found: &Findings) -> Vec<usize> {
    let all = judge(found);
    (1..=all.len()).filter(|i| !all[i - 1].holds).collect()
}

#[test]
fn conclusions_hold_within_their_bands_or_fail() {
    let as_the_seed = [ways(102.3, 99.9); 2];
    let fine = Findings {
        build: vec![as_the_seed],
        messaging: vec![[ways(102.6, 100.8); 2]],
        long: vec![as_the_seed],
        moved: vec![],
    };
    assert_eq!(failing(&fine), [0usize; 0]);
    assert_eq!(wrong(&as_the_seed), [""; 0]);
    // Nothing was run.
    assert_eq!(failing(&Findings::default()), [1, 2, 3, 4, 5, 6, 7, 8]);
    let build = |a, b| Findings { build: vec![[a, b]], ..fine.clone() };
    assert_eq!(failing(&build(ways(100.9, 99.9), as_the_seed[1])), [1]);
    assert_eq!(failing(&build(as_the_seed[0], ways(104.1, 100.0))), [3]);
    assert_eq!(failing(&build(ways(102.0, 100.6), as_the_seed[1])), [2]);
    assert_eq!(failing(&build(ways(101.0, 101.5), as_the_seed[1])), [2, 8]);
    let messaging = |with| Findings { messaging: vec![[ways(102.6, with); 2]], ..fine.clone() };
    assert_eq!(failing(&messaging(101.3)), [5]);
    let above = Findings { messaging: vec![[ways(100.5, 101.0); 2]], ..fine.clone() };
    assert_eq!(failing(&above), [5]);
    let mut far = as_the_seed;
    far[1].with.local = 97.0;
    assert_eq!(failing(&Findings { long: vec![far], ..fine.clone() }), [7]);
    let moved = Moved {
        name: "cost: hint_fault".into(),
        percent: -20,
        figures: [as_the_seed[0], ways(99.8, 99.9)],
    };
    let found = Findings { moved: vec![moved], ..fine };
    assert_eq!(failing(&found), [8]);
    let text = &judge(&found)[7].text;
    assert!(text.contains("cost: hint_fault -20 %: 6.12: -0.20 % without"), "{text}");
}
