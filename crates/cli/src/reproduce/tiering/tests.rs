//! The whole pipeline, tiny: figures mean nothing at this scale, but every part runs.

use super::*;
use crate::reproduce::vary::{Vary, What};
use expect_test::expect;
use homenode_core::scenario::Margin;
use std::collections::BTreeSet;

fn tiny() -> Plan {
    Plan {
        scales: Scales { factors: [4096, 2048], seeds: [2, 1], moved: 4096 },
        percents: &[150, 300],
        percents_again: &[300],
        widths: &[24, 6],
    }
}

fn bench() -> Bench {
    Bench::new(None, Margin::Kernel, &[]).expect("the registered experiment")
}

#[test]
fn a_tiny_reproduction_prints_every_part() {
    let result = reproduce(&tiny(), &bench(), 2).expect("it runs");
    expect![[r#"
        pmbench
                                                 off                   mode 1                 mode 2/b                 mode 2/a                   mode 2
                                                5.18                     5.18                     5.18                     5.18                     6.12
        score by size of the map
        1.50 x [M/s]               154.78 (   0.00%)        153.41 *  -0.89%*        156.73 *   1.26%*        157.31 *   1.64%*        156.92 *   1.38%*
          Stddev over seeds          0.01                     0.14                     0.57                     0.19                     0.50
          Welch-p                       -                   0.0450                   0.1294                   0.0323                   0.1040
        3.00 x [M/s]                45.90 (   0.00%)         45.54 *  -0.80%*         53.02 *  15.50%*         53.26 *  16.03%*         50.85 *  10.77%*
          Stddev over seeds          0.00                     0.01                     0.01                     0.08                     0.13
          Welch-p                       -                   0.0003                   0.0002                   0.0047                   0.0116
        accesses in DRAM
        1.50 x [%]                   97.6                     97.6                     98.8                     99.0                     98.9
        3.00 x [%]                    2.1                      2.1                     20.8                     21.4                     15.8
        pages promoted
        1.50 x                          0                        0                     1535                     1586                     1074
        3.00 x                          0                        0                     4653                     4882                     2721
        run until 95 % of its last third's score
        1.50 x [%]                      0                        0                        0                        0                        0
        3.00 x [%]                      0                        0                       40                       42                       68

        beside a neighbour that allocates
                                                 off                 mode 2/b                    mode 2/a
                                                5.18                     5.18                        5.18
        map 3.00 x of DRAM
        pmbench [M/s]               45.90 (   0.00%)         53.26 *  16.04%*            53.61 *  16.80%*
          Stddev over seeds          0.00                     0.08                        0.21
          Welch-p                       -                   0.0046                      0.0125
        allocation p50 [µs]          0.50 (   0.00%)          0.50 (   0.00%)             0.50 *  -0.20%*
          Stddev over seeds          0.00                     0.00                        0.00
          Welch-p                       -                   1.0000                      0.0000
        allocation p99 [µs]          0.50 (   0.00%)          0.50 (   0.00%)             0.50 *  -0.20%*
          Stddev over seeds          0.00                     0.00                        0.00
          Welch-p                       -                   1.0000                      0.0000
        allocation max [µs]          0.50 (   0.00%)          0.50 (   0.00%)       1016.17 *-203133.86%*
          Stddev over seeds          0.00                     0.00                      118.68
          Welch-p                       -                   1.0000                      0.0525
        allocations                  1320                     1140                        1124
        allocstall                      0                        0                           5
        pgscan_direct                   0                        0                        3864

        gain of mode 2/b over off [%] by width and first touch; map 3.00 x of DRAM, 1:4096
                                      linear  middle-first  scattered
        deviation 1/24 of the map      16.5          -0.2        8.3
        deviation 1/6 of the map        5.8          -1.2        0.8
        * 95.9 and above. It lies between no two rows.

        the same with one constant moved, beside the neighbour (15.9 with none moved); map 3.00 x of DRAM, 1:4096
                                        -20 %      +20 %
        link 0 to 2: read_latency       13.4       17.5
        cost: migrate_page              17.3       13.3
        cost: pmem_line                 14.0       17.1
        cost: reclaim_page              15.7       14.8
        link 0 to 0: write_latency      16.2       15.7
        cost: pte_scan                  15.7       16.1

                                                         seed     ours  Stddev    from      to
        largest gain of mode 2/b over off [%]           95.90    15.50    0.04   50.00  150.00  FAILS
        largest gain of mode 1 over off [%]                 -    -0.80    0.00       -    1.55  holds
        gain of mode 2/b, map 1.50 x of DRAM [%]            -     1.26    0.36       -       -
        gain of mode 2/a, map 1.50 x of DRAM [%]            -     1.64    0.11       -       -
        gain of mode 2 of 6.12, map 1.50 x of DRAM [%]      -     1.38    0.31       -       -
        gain of mode 2/b, map 3.00 x of DRAM [%]            -    15.50    0.04       -       -
        gain of mode 2/a, map 3.00 x of DRAM [%]            -    16.03    0.18       -       -
        gain of mode 2 of 6.12, map 3.00 x of DRAM [%]      -    10.77    0.27       -       -
        neighbour, off: allocstall                          -     0.00    0.00       -       -
        neighbour, mode 2/b: allocstall                     -     0.00    0.00    0.00    0.00  holds
        neighbour, mode 2/a: allocstall                     -     5.00    4.24    0.00       -  holds
        neighbour, off: pgscan_direct                       -     0.00    0.00       -       -
        neighbour, mode 2/b: pgscan_direct                  -     0.00    0.00    0.00    0.00  holds
        neighbour, mode 2/a: pgscan_direct                  -  3864.00  654.78    0.00       -  holds
        neighbour, off: p99 of an allocation [ns]           -   500.00    0.00       -       -
        neighbour, mode 2/b: p99 of an allocation [ns]      -   500.00    0.00  490.00  510.00  holds
        neighbour, mode 2/a: p99 of an allocation [ns]      -   501.00    0.00  510.00       -  FAILS

        FAILS  1. The largest gain of mode 2/b over balancing off lies between +50 % and +150 %: +15.5 %, at a map of 3.00 times DRAM (seed: up to +95.9 %).
        holds  2. Mode 1 gains less than a tenth of that once DRAM is full: -0.8 % at most.
        FAILS  3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.50 µs; b 0 stalls, 0 pages, p99 0.50 µs; a 5 stalls, 3864 pages, p99 0.50 µs.
        FAILS  4. Signs and order are the same at two scales (1:4096, 1:2048) and with each of 6 constants moved by ±20 %: at 1:4096: not all rises under a; at 1:2048: not all rises under a; link 0 to 0: write_latency -20 %: not all rises under a; link 0 to 0: write_latency +20 %: not all rises under a; and 10 more.

        machine: cascade-lake-pmem: two Xeon Gold of 24 cores (Cascade Lake), six DDR4-2933 channels a
          socket, six Optane DC PMMs a socket as nodes 2 and 3; composed of published measurements, no
          single machine
        workload: tiering: pmbench: 80:20, normal_ih, 24 threads on one socket, 300 s
        kernel: Linux 5.18's promotion (S1), 6.12's in the last column; margin the marks' own distance, as
          merged; active and inactive lists, not MGLRU
        scaled down: memory and time 1:4096
        seeds: 1, 2
        note: the fast node has 24 MiB here; a map of 1.25 x is larger than it by a quarter
        note: memory, min_free_kbytes, the run's time and the times that a scan waits shrink alike; latency,
          bandwidth, threads, costs and bytes scanned a second stay; the 4 ms tick, kswapd's nap and its
          batches of 32 can't shrink, so that promotion comes in coarser bursts than at full size and the
          gain grows with the scale
        note: the score counts the whole run phase, 40 % of which is ramp where the gain is largest (time
          until the score is 95 % of the last third's)
        note: of a run's work every access goes to memory and pays no page walk: caches hold little of such
          a map, but huge pages or a smaller map would differ
        note: mode 2 of 6.12: the hot threshold is scaled like a scan's times and comes in ticks of 4 ms, so
          that column is coarse
        note: knobs at 1:4096: min_free_kbytes=16, scan_size_mb=10, scan_delay_ms=1, scan_period_min_ms=1,
          scan_period_max_ms=14
    "#]].assert_eq(&result.to_text(168));
    let again = reproduce(&tiny(), &bench(), 1).expect("it runs");
    assert_eq!(result, again, "another number of workers, the same figures");
}

#[test]
fn amounts_shrink_and_rates_stay() {
    let bench = bench();
    let p = Point { percent: 300, kernel: Kernel::B, ..base(64) };
    let (machine, scenario, setup) = bench.prepare(&p).expect("a setup");
    let sizes: Vec<String> = machine.nodes.iter().map(|n| crate::nodes::size(n.size())).collect();
    let pmbench = &scenario.processes[0];
    let time = |s: &homenode_core::scenario::Step| format!("{s:?}\n");
    expect![[r#"
        1.5 GiB, 1.5 GiB, 11.8 GiB, 11.8 GiB
        4.5 GiB
        Initialize { map: "map", order: Linear }
        Access { map: "map", pattern: NormalIh, write: 200, compute: Picos(64000), until: Accesses(1179647) }
        Barrier
        Access { map: "map", pattern: NormalIh, write: 200, compute: Picos(64000), until: Time(Picos(4687500000000)) }
        [("numa_balancing", "0"), ("demotion_enabled", "true"), ("min_free_kbytes", "1056"), ("scan_size_mb", "10"), ("scan_delay_ms", "15"), ("scan_period_min_ms", "15"), ("scan_period_max_ms", "937"), ("numa_balancing", "2"), ("demotion_enabled", "true")]
    "#]].assert_eq(&format!(
        "{}\n{}\n{}{:?}\n",
        sizes.join(", "),
        crate::nodes::size(pmbench.maps[0].size),
        pmbench.steps.iter().map(time).collect::<String>(),
        setup.knobs,
    ));
    assert_eq!(machine.links, bench.machine.links);
    assert_eq!(machine.costs, bench.machine.costs);
    // The same share of the fast node is kept free as at full size.
    assert_eq!(scaled::knobs(&bench.machine, 1, bench.version(Kernel::B), Margin::Kernel), []);
}

#[test]
fn one_constant_moves_at_a_time() {
    let bench = bench();
    let mut names = BTreeSet::new();
    for what in What::all(&bench.machine) {
        assert!(names.insert(what.name(&bench.machine)), "names are unique");
        for percent in Vary::STEPS {
            let mut machine = bench.machine.clone();
            let mut scenario = bench.scenario.clone();
            Vary { what, percent }.apply(&mut machine, &mut scenario);
            machine.check().expect("still possible");
            let changed =
                usize::from(machine != bench.machine) + usize::from(scenario != bench.scenario);
            assert_eq!(changed, 1, "{}", what.name(&bench.machine));
        }
    }
    for name in sensitivity::MOST_ELASTIC {
        assert!(names.contains(name), "{name}");
    }
}

#[test]
fn a_machine_without_a_slow_node_is_refused() {
    let mut bench = bench();
    bench.machine.nodes.truncate(2);
    bench.machine.links.retain(|l| l.to.0 < 2);
    bench.machine.distances =
        bench.machine.distances.iter().take(2).map(|row| row[..2].to_vec()).collect();
    let text = homenode_config::write_machine(&bench.machine);
    let folder = homenode_fixtures::Folder::new();
    let path = folder.write("dram.toml", text);
    let refused = Bench::new(Some(&path), Margin::Kernel, &[]).err().expect("no slow node");
    assert!(refused.to_string().contains("has no slow node beside node 0"), "{refused}");
}
