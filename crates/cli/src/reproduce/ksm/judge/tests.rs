//! Made-up figures, on both sides of each conclusion.

use super::*;
use expect_test::{Expect, expect};

/// 2, 4 and 8 nodes: deviations across and within, memory saved, comparisons.
fn row(share: u64) -> Row {
    let pair = |nodes, across, within| Pair {
        nodes,
        across: Way { deviation: across, saved: 6.0, comparisons: 12.0 },
        within: Way { deviation: within, saved: 3.0, comparisons: 10.0 },
    };
    Row { share, pairs: vec![pair(2, 1.4, 0.04), pair(4, 1.6, 0.03), pair(8, 1.7, 0.02)] }
}

fn good() -> Findings {
    let moved = |percent| Moved { name: "cost: page_copy".into(), percent, row: row(75) };
    Findings {
        found: Some(74.6),
        table: vec![(64, row(75)), (256, row(75))],
        sweep: vec![row(25), row(100)],
        moved: vec![moved(-20), moved(20)],
    }
}

/// The sentences that fail after a change.
fn check(change: impl FnOnce(&mut Findings), expected: Expect) {
    let mut f = good();
    change(&mut f);
    let failed: Vec<String> =
        judge(&f).into_iter().filter(|c| !c.holds).map(|c| c.text + "\n").collect();
    expected.assert_eq(&failed.concat());
}

fn main(f: &mut Findings) -> &mut Vec<Pair> {
    &mut f.table[0].1.pairs
}

#[test]
fn good_figures_hold() {
    let all = judge(&good());
    assert!(all.iter().all(|c| c.holds));
    let text: Vec<String> = all.into_iter().map(|c| c.text + "\n").collect();
    expect![[r#""#]].assert_eq(&text.concat());
}

#[test]
fn the_level_has_to_arise_somewhere() {
    check(|f| f.found = None, expect![[r#""#]]);
    let rising = [(10, 0.3), (50, 1.0), (100, 2.0), (200, 4.0)];
    assert_eq!(share_at(&rising, 1.4), Some(70.0));
    assert_eq!(share_at(&rising, 2.0), Some(100.0));
    assert_eq!(share_at(&rising, 0.2), None, "below all of them");
    assert_eq!(share_at(&rising, 5.0), None, "above all of them");
    assert_eq!(share_at(&[(10, f64::NAN), (20, 2.0)], 1.4), None);
    assert_eq!(share_at(&[], 1.4), None);
}

#[test]
fn each_number_of_nodes_has_its_bound() {
    check(|f| main(f)[0].within.deviation = 1.41, expect![[r#""#]]);
    check(|f| main(f)[1].across.deviation = 0.11, expect![[r#""#]]);
    check(|f| f.sweep[1].pairs[2].across.deviation = 0.19, expect![[r#""#]]);
    check(|f| f.sweep[0].pairs[2].within.deviation = f64::NAN, expect![[r#""#]]);
}

#[test]
fn growth_beyond_a_hundredth_fails() {
    // 1 % of 1.7 is 0.017: 0.03 may become 0.047.
    check(|f| main(f)[2].within.deviation = 0.046, expect![[r#""#]]);
    check(|f| main(f)[2].within.deviation = 0.048, expect![[r#""#]]);
}

#[test]
fn what_saves_as_much_or_compares_as_much_fails() {
    check(|f| main(f)[1].within.saved = 6.0, expect![[r#""#]]);
    check(|f| main(f)[0].within.comparisons = 12.0, expect![[r#""#]]);
}

#[test]
fn the_other_scale_and_each_moved_constant_count() {
    check(
        |f| {
            f.table[1].1.pairs[2].within.deviation = 0.5;
            f.moved[1].row.pairs[0].within.saved = 7.0;
            f.moved[0].row.pairs.clear();
        },
        expect![[r#""#]],
    );
}
