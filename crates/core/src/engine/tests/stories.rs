//! One story per behaviour.

use super::rig::{Rig, expander};
use crate::engine::Settings;
use crate::engine::seen::Source;
use expect_test::{Expect, expect};

fn tell(rig: &mut Rig, story: &str) {
    for line in story.lines().map(str::trim).filter(|l| !l.is_empty()) {
        rig.line(line);
    }
}

fn check(rig: &mut Rig, story: &str, expected: Expect) {
    tell(rig, story);
    expected.assert_eq(&rig.out);
    rig.out.clear();
}

fn damon(dram: u64, cxl: u64) -> Rig {
    Rig::new(&expander(dram, cxl), Settings::default(), Source::Damon, &[])
}

// specs/engine.md#processes: strictly more than the delay, exactly once.
#[test]
fn sampling_begins_after_the_delay_and_once() {
    check(
        &mut damon(10_000, 10_000),
        "task 7@100 ran 1000 node 0
         to 10
         task 7@100 ran 1001 node 0
         to 20
         task 7@100 ran 90000 node 0
         to 5000
         task 8@100 ran 999 node 0
         gone 8@100
         to 6000",
        expect![[r#"
                10 ms  -
                20 ms  watch 7@100 (slow_start_over)
              5000 ms  -
              6000 ms  -
        "#]],
    );
}

// specs/engine.md#decision: the hot half goes up, the cold one stays.
#[test]
fn hot_memory_goes_up() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-2000 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-1000 20/20 age 3000
         keep region 7@100 1000-2000 0/20 age 3000
         to 3000
         ledger
         stays",
        expect![[r#"
              3000 ms  watch 7@100 (slow_start_over)
                       look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                       move 7@100 1->0 (hot) 0-1000: 3 orders, 1000 pages
                      hot 1->0: tried 1000 moved 1000
                      move to 0, hot: 1000 pages in 1
                      stay, not_worth_it: 2000 pages in 2
                      unknown place: 1000 pages in 1
        "#]],
    );
}

// specs/engine.md#room-first
#[test]
fn a_full_node_makes_room_first() {
    let mut rig = damon(1_000, 10_000);
    check(
        &mut rig,
        "map 7@100 0-970 on 0
         map 7@100 970-2000 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-600 0/20 age 3000
         keep region 7@100 600-1000 10/20 age 3000
         keep region 7@100 1000-1200 20/20 age 3000
         keep region 7@100 1200-2000 0/20 age 3000
         to 4000
         ledger
         stays",
        expect![[r#"
              4000 ms  watch 7@100 (slow_start_over)
                       look 7@100 (place_unknown) 0-2000: 2 orders, 2000 pages
                       move 7@100 0->1 (make_room) 0-231: 1 orders, 231 pages
                       move 7@100 1->0 (hot) 960-1200: 2 orders, 240 pages
                      hot 1->0: tried 230 moved 230
                      make_room 0->1: tried 231 moved 231
                      move to 0, hot: 230 pages in 2
                      stay, home: 1400 pages in 5
                      stay, not_worth_it: 3600 pages in 5
                      stay, no_room: 230 pages in 2
                      unknown place: 600 pages in 2
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 600..1200), [(0, 600)]);
}
