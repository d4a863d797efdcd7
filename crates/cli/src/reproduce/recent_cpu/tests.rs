//! The whole pipeline, and that each conclusion can fail.

use super::judge::{Findings, Ways, judge, wrong};
use super::run::{Bench, Course, Patch};
use super::*;
use crate::reproduce::experiment::{Bench as _, Moved};
use expect_test::expect;

#[test]
fn the_reproduction_prints_every_part() {
    let bench = Bench::new().expect("the registered experiment");
    let plan = Plan { seeds: 2, constants: What::of_switches() };
    let result = reproduce(&plan, &bench, 2).expect("it runs");
    assert!(result.pass(), "{}", result.to_text(168));
    expect![[r#"
        two tasks, 10 ms
                                                    without                     with                      4.5                     4.15                      6.1
                                                       seed                     seed
        CPUs that the client used              8 (   0.00%)             2 *  75.00%*             4 (  50.00%)             8 (   0.00%)             1 (  87.50%)
          Stddev over seeds                    0                        0                        0                        0                        0
          Welch-p                              -                   0.0000                        -                        -                        -
        migrations of 100 wake-ups         100.0 (   0.00%)         100.0 (   0.00%)         100.0 (   0.00%)         100.0 (   0.00%)           0.0 ( 100.00%)
          Stddev over seeds                  0.0                      0.0                      0.0                      0.0                      0.0
          Welch-p                              -                   1.0000                        -                        -                        -
        wake-ups                              62 (   0.00%)           140 * 125.81%*            60 (  -3.23%)            62 (   0.00%)           187 ( 201.61%)
          Stddev over seeds                    0                        0                        0                        0                        0
          Welch-p                              -                   0.0000                        -                        -                        -

                                                       6.12
        CPUs that the client used              1 (  87.50%)
          Stddev over seeds                    0
          Welch-p                              -
        migrations of 100 wake-ups           0.0 ( 100.00%)
          Stddev over seeds                  0.0
          Welch-p                              -
        wake-ups                             187 ( 201.61%)
          Stddev over seeds                    0
          Welch-p                              -

                                                 seed  ours  Stddev  from  to
        CPU of the client's run 1, without seed     0     0       0     0   0  holds
        CPU of the client's run 2, without seed     1     1       0     1   1  holds
        CPU of the client's run 3, without seed     2     2       0     2   2  holds
        CPU of the client's run 4, without seed     3     3       0     3   3  holds
        CPU of the client's run 5, without seed     -     4       0     4   4  holds
        CPU of the client's run 6, without seed     -     5       0     5   5  holds
        CPU of the client's run 7, without seed     -     6       0     6   6  holds
        CPU of the client's run 8, without seed     -     7       0     7   7  holds
        CPU of the client's run 1, with seed        0     0       0     0   0  holds
        CPU of the client's run 2, with seed        1     1       0     1   1  holds
        CPU of the client's run 3, with seed        0     0       0     0   0  holds
        CPU of the client's run 4, with seed        1     1       0     1   1  holds
        CPU of the client's run 5, with seed        -     0       0     0   0  holds
        CPU of the client's run 6, with seed        -     1       0     1   1  holds
        CPU of the client's run 7, with seed        -     0       0     0   0  holds
        CPU of the client's run 8, with seed        -     1       0     1   1  holds

        holds  1. Without the seed the client walks: 0,1,2,3,4,5,6,7.
        holds  2. With it the two stay on two CPUs: 0,1,0,1,0,1,0,1.
        holds  3. So it is over the whole run: all eight CPUs without it, two with it.
        holds  4. All of this holds with each of 3 constants moved by ±20 %.

        machine: small-smt: one node of 256 MiB, four cores of two threads each, one last-level cache, idle
          states; small enough for tests
        workload: recent-cpu: a client and the worker that wakes it while it has the client's CPU; eight
          CPUs, one cache
        kernel: Linux 4.15 with the patch before the seed's (keep the previous CPU if both are idle); CFS of
          Linux 4.15; balancing and domains as in 6.12
        seeds: 1, 2
        note: each run of the client is one wake-up by the worker of the CPU that it slept on, while that
          worker still runs there
        note: the columns of other kernels decide nothing; 6.1 and 6.12 put the client behind the worker of
          its CPU
        note: the seed's rows of dbench, netperf and hackbench are not part of this table yet
    "#]].assert_eq(&result.to_text(168));
    let p = point(Patch::With, 1, None);
    let twice = [(); 2].map(|()| bench.run(&p).expect("it runs"));
    assert_eq!(twice[0], twice[1], "the same point, the same runs");
}

fn course(runs: &[u16]) -> Course {
    let cpus = runs.iter().copied().collect();
    Course { runs: runs.to_vec(), cpus, wakeups: 9, migrations: 8 }
}

fn as_the_seed() -> Ways {
    Ways {
        without: course(&[0, 1, 2, 3, 4, 5, 6, 7, 0]),
        with: course(&[0, 1, 0, 1, 0, 1, 0, 1, 0]),
    }
}

/// Numbers of the conclusions that fail.
fn failing(found: &Findings) -> Vec<usize> {
    let all = judge(found);
    (1..=all.len()).filter(|i| !all[i - 1].holds).collect()
}

#[test]
fn conclusions_hold_exactly_or_fail() {
    let fine = as_the_seed();
    assert_eq!(wrong(&fine), Vec::<String>::new());
    let of = |ways: Ways| Findings { seeds: vec![as_the_seed(), ways], moved: Vec::new() };
    assert_eq!(failing(&of(fine.clone())), Vec::<usize>::new());
    // Nothing was run, or too little.
    assert_eq!(failing(&Findings::default()), [1, 2, 3]);
    let short = Ways { without: course(&[0, 1, 2]), ..fine.clone() };
    assert_eq!(failing(&of(short)), [1, 3]);
    // A walk in another order; a pair on other CPUs; a third CPU later.
    let order = Ways { without: course(&[0, 2, 1, 3, 4, 5, 6, 7]), ..fine.clone() };
    assert_eq!(failing(&of(order)), [1]);
    let pair = Ways { with: course(&[0, 4, 0, 4, 0, 4, 0, 4]), ..fine.clone() };
    assert_eq!(failing(&of(pair)), [2, 3]);
    let later = Ways { with: course(&[0, 1, 0, 1, 0, 1, 0, 1, 5]), ..fine.clone() };
    assert_eq!(failing(&of(later.clone())), [3]);
    // With a constant moved.
    let moved = Moved { name: "cost: wake_up".into(), percent: 20, figures: later };
    let found = Findings { seeds: vec![fine], moved: vec![moved] };
    assert_eq!(failing(&found), [4]);
    let text = &judge(&found)[3].text;
    assert!(text.contains("cost: wake_up +20 %: with-seed uses 0,1,5"), "{text}");
}
