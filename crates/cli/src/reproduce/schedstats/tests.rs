//! The pipeline in a small form, and that each conclusion can fail.

use super::judge::{Findings, Signs, judge, wrong};
use super::run::{Bench, Of, Point, Way, Work};
use super::*;
use crate::reproduce::experiment::{Bench as _, Moved};

fn as_the_seed() -> Findings {
    let desktop = DESKTOP.iter().map(|&(n, gain)| ((n, gain), gain)).collect();
    Findings {
        pipetest: PIPETEST_SEED,
        tcp: TCP.to_vec(),
        tbench: TBENCH.to_vec(),
        desktop,
        nothing: vec![
            ("hackbench-pipes 12".into(), 6.23, false),
            ("netperf-udp 64".into(), -0.4, true),
        ],
        moved: Vec::new(),
    }
}

/// Numbers of the conclusions that fail.
fn failing(found: &Findings) -> Vec<usize> {
    let all = judge(found);
    (1..=all.len()).filter(|i| !all[i - 1].holds).collect()
}

#[test]
fn each_conclusion_holds_for_the_seed_and_can_fail() {
    let fine = as_the_seed();
    assert_eq!(failing(&fine), Vec::<usize>::new());
    assert_eq!(failing(&Findings::default()), [1, 2, 3, 4, 6], "nothing was run");
    let of = |change: fn(&mut Findings)| {
        let mut found = as_the_seed();
        change(&mut found);
        failing(&found)
    };
    assert_eq!(of(|f| f.pipetest = 0.7), [1]);
    assert_eq!(of(|f| f.pipetest = f64::NAN), [1]);
    assert_eq!(of(|f| f.tcp[6].1 = 0.0), [2], "no gain at 4096");
    assert_eq!(of(|f| f.tcp[8].1 = -1.0), Vec::<usize>::new(), "beyond 4096 there is no band");
    assert_eq!(of(|f| f.tcp.iter_mut().for_each(|(n, g)| *g = f64::from(*n) / 1e4 + 0.1)), [2]);
    assert_eq!(of(|f| f.tbench[2].1 = -0.1), [3]);
    assert_eq!(of(|f| f.tbench[9].1 = 3.5), [4]);
    assert_eq!(of(|f| f.nothing[1].1 = -2.5), [5]);
    assert_eq!(of(|f| f.nothing[0].2 = true), [5], "6 % is much, unless it is noise");
    // Two of ten may have the other sign.
    assert_eq!(
        of(|f| f.desktop.iter_mut().take(2).for_each(|d| d.0.1 = -d.0.1)),
        Vec::<usize>::new()
    );
    assert_eq!(of(|f| f.desktop.iter_mut().take(3).for_each(|d| d.0.1 = -d.0.1)), [6]);
    let signs = Signs { pipetest: 1.0, tcp: 1.0, tbench: -0.2 };
    assert_eq!(wrong(&signs), ["tbench with 1 client -0.20 %"]);
    let moved = Moved { name: "cost: stats_line".into(), percent: -20, figures: signs };
    let found = Findings { moved: vec![moved], ..fine };
    assert_eq!(failing(&found), [7]);
    let text = &judge(&found)[6].text;
    assert!(text.contains("cost: stats_line -20 %: tbench with 1 client"), "{text}");
}

#[test]
fn the_reproduction_prints_every_part() {
    let bench = Bench::new().expect("the registered experiment");
    let plan = Plan {
        tcp: vec![64, 1024],
        udp: vec![64],
        hackbench: vec![1],
        tbench: vec![1, 8],
        desktop: vec![1],
        clocks: vec![(Of::Server, Work::Pipetest, Governor::Performance)],
        constants: vec![What::Cost(Cost::TcpSend)],
        ..Plan::small(&bench)
    };
    let result = reproduce(&plan, &bench, 2).expect("it runs");
    let text = result.to_text(168);
    for part in [
        "48 CPUs",
        "8 CPUs",
        "pipetest [us]",
        "on",
        "alone",
        "tbench 8, gain [%]",
        "pipetest, clocks: performance, gain [%]",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(result.conclusions.len(), 7);
    // Nothing but the counting differs, so whatever waits for nothing else gains.
    let row = |name: &str| result.rows.iter().find(|r| r.row.starts_with(name)).expect("a row");
    assert!(row("pipetest").ours > 0.0, "{text}");
    assert_eq!(row("pipetest").seed, Some(PIPETEST_SEED));
}

#[test]
fn the_same_point_gives_the_same_figure() {
    let bench = Bench::new().expect("the registered experiment");
    let point = |work| Point {
        work,
        of: Of::Desktop,
        way: Way::On,
        clocks: NOMINAL,
        small: true,
        vary: None,
        seed: 7,
    };
    for work in [Work::Pipetest, Work::TcpStream(256), Work::UdpStream(64), Work::Tbench(3)] {
        let twice = [(); 2].map(|()| bench.run(&point(work)).expect("it runs"));
        assert!(twice[0] > 0.0 && twice[0].to_bits() == twice[1].to_bits(), "{work:?} {twice:?}");
    }
}
