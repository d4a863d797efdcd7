//! Made-up figures, on both sides of each conclusion.

use super::*;
use expect_test::{Expect, expect};

fn quiet() -> Beside {
    Beside { allocstall: 0.0, pgscan_direct: 0.0, p99_ns: 520.0 }
}

fn neighbour(factor: u64) -> Neighbour {
    let loud = Beside { allocstall: 40.0, pgscan_direct: 1300.0, p99_ns: 9_000.0 };
    Neighbour { factor, off: quiet(), b: quiet(), a: loud }
}

fn good() -> Findings {
    let gains = |factor| Gains {
        factor,
        percents: vec![125, 300, 800],
        mode1: vec![-1.0, -1.5, 0.5],
        b: vec![-0.2, 90.0, 12.0],
        a: vec![-0.3, 95.0, 12.0],
    };
    let moved = |percent| Moved {
        name: "cost: page_copy".into(),
        percent,
        figures: Gained { b: 88.0, mode1: -1.0, neighbour: neighbour(256) },
    };
    Findings {
        gains: vec![gains(64), gains(256)],
        neighbours: vec![neighbour(64), neighbour(256)],
        moved: vec![moved(-20), moved(20)],
    }
}

/// Which conclusions fail after a change, and their sentences.
fn check(change: impl FnOnce(&mut Findings), expected: Expect) {
    let mut f = good();
    change(&mut f);
    let failed: Vec<String> =
        judge(&f).into_iter().filter(|c| !c.holds).map(|c| c.text + "\n").collect();
    expected.assert_eq(&failed.concat());
}

#[test]
fn good_figures_hold() {
    let all = judge(&good());
    assert!(all.iter().all(|c| c.holds));
    let text: Vec<String> = all.into_iter().map(|c| c.text + "\n").collect();
    expect![[r#"
        1. The largest gain of mode 2/b over balancing off lies between +50 % and +150 %: +90.0 %, at a map of 3.00 times DRAM (seed: up to +95.9 %).
        2. Mode 1 gains less than a tenth of that once DRAM is full: +0.5 % at most.
        3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.52 µs; b 0 stalls, 0 pages, p99 0.52 µs; a 40 stalls, 1300 pages, p99 9.00 µs.
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %.
    "#]].assert_eq(&text.concat());
}

#[test]
fn the_largest_gain_has_a_band() {
    check(
        |f| f.gains[0].b[1] = 49.9,
        expect![[r#"
        1. The largest gain of mode 2/b over balancing off lies between +50 % and +150 %: +49.9 %, at a map of 3.00 times DRAM (seed: up to +95.9 %).
    "#]],
    );
    check(
        |f| f.gains[0].b[2] = 150.1,
        expect![[r#"
        1. The largest gain of mode 2/b over balancing off lies between +50 % and +150 %: +150.1 %, at a map of 8.00 times DRAM (seed: up to +95.9 %).
    "#]],
    );
    check(|f| f.gains[0].b[2] = 150.0, expect![[r#""#]]);
}

#[test]
fn mode_1_gains_little() {
    check(
        |f| f.gains[0].mode1[2] = 9.0,
        expect![[r#"
        2. Mode 1 gains less than a tenth of that once DRAM is full: +9.0 % at most.
    "#]],
    );
    check(|f| f.gains[0].mode1[2] = 8.9, expect![[r#""#]]);
}

#[test]
fn the_neighbour_notices_a_and_not_b() {
    check(
        |f| f.neighbours[0].b.p99_ns = 531.0,
        expect![[r#"
        3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.52 µs; b 0 stalls, 0 pages, p99 0.53 µs (differs: p99); a 40 stalls, 1300 pages, p99 9.00 µs.
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: at 1:64: p99 under b isn't that with balancing off.
    "#]],
    );
    check(|f| f.neighbours[0].b.p99_ns = 530.0, expect![[r#""#]]);
    check(
        |f| f.neighbours[0].b.allocstall = 1.0,
        expect![[r#"
        3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.52 µs; b 1 stalls, 0 pages, p99 0.52 µs (differs: allocstall); a 40 stalls, 1300 pages, p99 9.00 µs.
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: at 1:64: allocstall under b isn't that with balancing off.
    "#]],
    );
    check(
        |f| f.neighbours[0].a.p99_ns = 520.0,
        expect![[r#"
        3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.52 µs; b 0 stalls, 0 pages, p99 0.52 µs; a 40 stalls, 1300 pages, p99 0.52 µs.
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: at 1:64: not all rises under a.
    "#]],
    );
    check(
        |f| f.neighbours[0].a.p99_ns = f64::NAN,
        expect![[r#"
        3. Beside an allocating neighbour bound to the fast node, direct reclaim and its p99 under b equal those with balancing off within 2 %, and rise under a: off 0 stalls, 0 pages, p99 0.52 µs; b 0 stalls, 0 pages, p99 0.52 µs; a 40 stalls, 1300 pages, p99 NaN µs.
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: at 1:64: not all rises under a.
    "#]],
    );
}

#[test]
fn signs_and_order_hold_at_the_other_scale_and_with_moved_constants() {
    check(
        |f| f.gains[1].b = vec![-3.0, -2.0, -1.0],
        expect![[r#"
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: at 1:256: mode 2/b gains -1.0 %; at 1:256: mode 1 gains 0.5 % where mode 2/b gains -1.0 %.
    "#]],
    );
    check(
        |f| f.moved[1].figures.b = -1.0,
        expect![[r#"
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: cost: page_copy +20 %: mode 2/b gains -1.0 %.
    "#]],
    );
    check(
        |f| f.moved[0].figures.mode1 = 50.0,
        expect![[r#"
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: cost: page_copy -20 %: mode 1 gains 50.0 % where mode 2/b gains 88.0 %.
    "#]],
    );
    check(
        |f| f.moved[0].figures.neighbour.a = quiet(),
        expect![[r#"
        4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: cost: page_copy -20 %: not all rises under a.
    "#]],
    );
    check(
        |f| {
            for m in &mut f.moved {
                m.figures.b = f64::NAN;
                m.figures.neighbour.b.allocstall = 3.0;
                m.figures.neighbour.a = quiet();
            }
        },
        expect![[r#"
            4. Signs and order are the same at two scales (1:64, 1:256) and with each of 1 constants moved by ±20 %: cost: page_copy -20 %: mode 2/b gains NaN %; cost: page_copy -20 %: mode 1 gains -1.0 % where mode 2/b gains NaN %; cost: page_copy -20 %: allocstall under b isn't that with balancing off; cost: page_copy -20 %: not all rises under a; and 4 more.
        "#]],
    );
}
