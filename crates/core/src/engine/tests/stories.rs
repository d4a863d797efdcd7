//! One story per behaviour.

use super::rig::{Rig, expander, machine};
use crate::costs::Constant;
use crate::engine::Settings;
use crate::engine::along::Along;
use crate::policy::order::Evidence;
use crate::policy::seen::Source;
use crate::topology::{Cache, Medium};
use crate::units::{Bytes, MBps, NodeId};
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

/// Told how many loads are under way at once, it goes by that.
fn waits(dram: u64, cxl: u64) -> Rig {
    let settings = Settings { most_at_once: 64, ..Settings::default() };
    Rig::new(&expander(dram, cxl), settings, Source::Damon, &[])
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
            10 ms     -
            20 ms     watch 7@100 (slow_start_over)
            5000 ms   -
            6000 ms   -
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
            3000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                      move 7@100 1->0 (hot) 0-1000: 3 orders, 1000 pages
                    hot 1->0: tried 1000 moved 1000
                    move to 0, hot: 1000 pages in 1
                    stay, home: 1000 pages in 1
                    stay, not_worth_it: 3000 pages in 3
                    unknown place: 1000 pages in 1
        "#]],
    );
}

// specs/engine.md#last-word: hot for 2 s, but no more when its place comes to be known; and then
// it is hot again.
#[test]
fn what_the_last_word_denies_stays() {
    let mut rig = damon(10_000, 10_000);
    let lines = |rig: &mut Rig, lines: &[&str]| lines.iter().for_each(|l| rig.line(l));
    let hot = "keep region 7@100 0-500 20/20 age 3000";
    let task = "keep task 7@100 ran 2000 node 0";
    lines(&mut rig, &["map 7@100 0-500 on 1", task, hot, "hold", "to 2000", "quiet"]);
    lines(&mut rig, &[task, "keep region 7@100 0-500 0/20 age 0", "to 2200", "go", "to 2600"]);
    let who = crate::policy::seen::Who { pid: 7, start: 100 };
    let known: Vec<_> = rig.engine.stretches(who).collect();
    assert!(known.iter().all(|s| s.on == Some(vec![(NodeId(1), s.span.pages().0)])), "{known:?}");
    assert!(known.iter().all(|s| s.heat > 50_000), "on the average it is hot still: {known:?}");
    assert_eq!(rig.where_is("7@100", 0..500), [(1, 500)]);
    lines(&mut rig, &["quiet", task, hot, "to 5000"]);
    assert_eq!(rig.where_is("7@100", 0..500), [(0, 500)]);
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
            4000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-2000: 2 orders, 2000 pages
                      move 7@100 0->1 (make_room) 0-231: 1 orders, 231 pages
                      move 7@100 1->0 (hot) 960-1200: 2 orders, 240 pages
                    hot 1->0: tried 230 moved 230
                    make_room 0->1: tried 231 moved 231
                    move to 0, hot: 230 pages in 2
                    stay, home: 3338 pages in 15
                    stay, not_worth_it: 5662 pages in 9
                    stay, no_room: 230 pages in 2
                    unknown place: 600 pages in 2
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 600..1200), [(0, 600)]);
}

// specs/engine.md#along: each move takes twenty times what the machine file says, as on an emulated
// machine. Of stretches as DAMON tells them that says nothing of huge pages: none is left where it is
// for being less than one.
#[test]
fn slow_moves_make_no_huge_pages() {
    let mut rig = damon(10_000, 10_000);
    let lines = "slow 54000
         map 7@100 0-8192 on 1
         keep task 7@100 ran 2000 node 0";
    tell(&mut rig, lines);
    for nth in 0..6 {
        let (start, end) = (nth * 1024 + 100, nth * 1024 + 200);
        tell(&mut rig, &format!("keep region 7@100 {start}-{end} 20/20 age 3000"));
        tell(&mut rig, &format!("to {}", (nth + 1) * 8000));
        assert_eq!(rig.where_is("7@100", start..end), [(0, 100)], "stretch {nth}");
    }
    assert!(rig.engine.processes.values().all(|p| p.along != Along::Together));
}

// specs/engine.md#thrash: hotter, but not by what two moves cost.
#[test]
fn a_resident_stays_if_the_difference_is_small() {
    check(
        &mut damon(1_000, 10_000),
        "map 7@100 0-970 on 0
         map 7@100 970-2000 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-970 9/20 age 90000
         keep region 7@100 970-2000 10/20 age 90000
         to 4000
         ledger",
        expect![[r#"
            4000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-2000: 1 orders, 2000 pages
        "#]],
    );
}

// specs/engine.md#waited: one process accesses its memory twice as often, but eight of its loads are
// under way at once. What the other one waits for is more.
#[test]
fn who_waits_for_each_load_has_the_fast_node() {
    let story = |at_once: u64| {
        format!(
            "map 7@100 0-970 on 0
             map 8@100 0-970 on 1
             keep task 7@100 ran 2000 node 0
             keep task 8@100 ran 2000 node 0
             keep loads 7@100 20000 at {at_once}
             keep loads 8@100 20000 at 1
             keep region 7@100 0-970 20/20 age 90000
             keep region 8@100 0-970 10/20 age 90000
             to 4000"
        )
    };
    let told = |mut rig: Rig, at_once| {
        tell(&mut rig, &story(at_once));
        rig.out
    };
    let alone = told(waits(1_000, 10_000), 1);
    assert_eq!(told(damon(1_000, 10_000), 8), alone, "by default all are taken to be alone");
    check(
        &mut waits(1_000, 10_000),
        &story(1),
        expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  watch 8@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-970: 1 orders, 970 pages
                  look 8@100 (place_unknown) 0-970: 1 orders, 970 pages
    "#]],
    );
    check(
        &mut waits(1_000, 10_000),
        &story(8),
        expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  watch 8@100 (slow_start_over)
                  look 8@100 (place_unknown) 0-970: 1 orders, 970 pages
                  look 7@100 (place_unknown) 0-970: 1 orders, 970 pages
                  move 7@100 0->1 (make_room) 0-970: 3 orders, 970 pages
                  move 8@100 1->0 (hot) 0-969: 3 orders, 969 pages
    "#]],
    );
}

// specs/engine.md#waited: of memory that nobody has looked for the colder part may be the one that is
// accessed more often, if that is hardly waited for. So it is looked for before residents go.
#[test]
fn unknown_memory_is_as_cold_as_it_is_waited_for() {
    check(
        &mut waits(1_000, 10_000),
        "hold
         map 7@100 0-970 on 0
         map 8@100 0-230 on 1
         keep task 7@100 ran 2000 node 0
         keep task 8@100 ran 2000 node 0
         keep task 9@100 ran 2000 node 0
         keep loads 7@100 20000 at 3
         keep loads 9@100 20000 at 8
         to 2000
         keep resident 7@100 0-970 on 0
         keep resident 8@100 0-230 on 1
         keep region 7@100 0-970 1/20 age 90000
         keep region 8@100 0-230 20/20 age 90000
         keep region 9@100 5000-6000 1/20 age 90000
         to 4000",
        expect![[r#"
            2000 ms   watch 7@100 (slow_start_over)
                      watch 8@100 (slow_start_over)
                      watch 9@100 (slow_start_over)
            4000 ms   look 9@100 (place_unknown) 5000-6000: 1 orders, 1000 pages
                      move 7@100 0->1 (make_room) 0-231: 1 orders, 231 pages
        "#]],
    );
}

// specs/engine.md#waited: what is worth a look, and what a move came to save, likewise.
#[test]
fn looks_and_savings_are_of_what_is_waited_for() {
    let told = |at_once: u64, checks: u64| {
        let mut rig = waits(10_000, 10_000);
        let story = format!(
            "map 7@100 0-1000 on 1
             keep task 7@100 ran 2000 node 0
             keep loads 7@100 20000 at {at_once}
             keep region 7@100 0-1000 {checks}/20 age 90000
             to 4000"
        );
        story.lines().for_each(|line| rig.line(line.trim()));
        (rig.engine.ledger.gained.0 / 1_000_000, rig.out)
    };
    let (alone, out) = told(1, 20);
    expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                  move 7@100 1->0 (hot) 0-1000: 3 orders, 1000 pages
    "#]]
    .assert_eq(&out);
    let (eight, out) = told(8, 20);
    expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                  move 7@100 1->0 (hot) 0-1000: 3 orders, 1000 pages
    "#]]
    .assert_eq(&out);
    assert!((alone / 8).abs_diff(eight) <= 1, "{alone} us, {eight} us of eight at once");
    let (_, out) = told(64, 5);
    expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
    "#]]
    .assert_eq(&out);
}

// specs/engine.md#looking: cold memory that nobody has looked for may be a better choice than what is in DRAM.
// A hundred pages may be so for a hundred only, and others go at once; a thousand are looked for first.
#[test]
fn a_few_pages_of_unknown_place_keep_no_resident() {
    let story = |unknown| {
        format!(
            "hold
             map 7@100 0-970 on 0
             map 7@100 970-1200 on 1
             keep task 7@100 ran 2000 node 0
             keep resident 7@100 0-970 on 0
             keep resident 7@100 970-1200 on 1
             keep region 7@100 5000-{unknown} 0/20 age 90000
             keep region 7@100 0-970 5/20 age 90000
             keep region 7@100 970-1200 20/20 age 90000
             to 4000"
        )
    };
    check(
        &mut damon(1_000, 10_000),
        &story(5100),
        expect![[r#"
            4000 ms   watch 7@100 (slow_start_over)
                      move 7@100 0->1 (make_room) 0-231: 1 orders, 231 pages
                      look 7@100 (place_unknown) 5000-5100: 1 orders, 100 pages
        "#]],
    );
    check(
        &mut damon(1_000, 10_000),
        &story(6000),
        expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 5000-6000: 1 orders, 1000 pages
                  move 7@100 0->1 (make_room) 0-231: 1 orders, 231 pages
    "#]],
    );
}

// specs/engine.md#unknown: two sockets, threads on both; then all on the second.
#[test]
fn without_a_cpu_nothing_goes_up() {
    let m = machine(&[
        (Medium::Dram, 10_000, true),
        (Medium::Dram, 10_000, true),
        (Medium::Cxl, 10_000, false),
    ]);
    check(
        &mut Rig::new(&m, Settings::default(), Source::Damon, &[]),
        "map 7@100 0-500 on 2
         keep task 7@100 ran 2000 node -
         keep region 7@100 0-500 20/20 age 3000
         to 3000
         stays
         quiet
         keep task 7@100 ran 3000 node 1
         keep region 7@100 0-500 20/20 age 3000
         to 6000",
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
                    unknown cpu: 1000 pages in 2
            6000 ms   look 7@100 (place_unknown) 0-500: 1 orders, 500 pages
                      move 7@100 2->1 (hot) 0-500: 2 orders, 500 pages
        "#]],
    );
}

// specs/engine.md#nodes, specs/engine.md#thrash: memory follows threads that stay.
#[test]
fn memory_follows_threads_to_their_socket() {
    let m = machine(&[(Medium::Dram, 10_000, true), (Medium::Dram, 10_000, true)]);
    check(
        &mut Rig::new(&m, Settings::default(), Source::Damon, &[]),
        "map 7@100 0-500 on 0
         keep task 7@100 ran 2000 node 1
         keep region 7@100 0-500 20/20 age 3000
         to 7000
         stays
         to 10000",
        expect![[r#"
            7000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-500: 1 orders, 500 pages
                    stay, unsettled: 3000 pages in 6
                    unknown place: 500 pages in 1
            10000 ms  move 7@100 0->1 (near_its_cpus) 0-500: 2 orders, 500 pages
        "#]],
    );
}

// specs/engine.md#home: moving 50,000 pages takes 135 ms of a CPU, filling a last level of 32 MiB
// anew 47 ms at most; of 100 pages it takes less.
#[test]
fn threads_go_to_their_memory_where_that_is_cheaper() {
    let mut m = machine(&[(Medium::Dram, 90_000, true), (Medium::Dram, 90_000, true)]);
    m.caches.push(Cache {
        level: 3,
        size: Bytes(32 << 20),
        ways: 16,
        line: 64,
        shared_by: 1,
        latency: Constant::assumed(10_000, "a test"),
    });
    let settings = Settings { most_at_once: 64, ..Settings::default() };
    let told = |pages: u64, idle: u64, more: &str| {
        let mut rig = Rig::new(&m, settings, Source::Damon, &[Evidence::Cpu]);
        let story = format!(
            "map 7@100 0-{pages} on 0
             idle 0 {idle}
             idle 1 0
             keep task 7@100 uses 800 node 1
             {more}
             keep region 7@100 0-{pages} 20/20 age 3000
             to 9500
             quiet
             keep task 7@100 uses 800 node 0
             keep region 7@100 0-{pages} 20/20 age 3000
             to 40000"
        );
        story.lines().for_each(|line| rig.line(line.trim()));
        rig.out
    };
    // They follow, and nothing more is to be done.
    expect![[r#"
        9500 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
                  affine 7@100 0 (near_its_memory)
        40000 ms  -
    "#]]
    .assert_eq(&told(50_000, 900, "nodes"));
    // Nine tenths of a CPU are asked for 800 thousandths and an eighth: the pages go.
    expect![[r#"
        9500 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
                  move 7@100 0->1 (near_its_cpus) 0-50000: 136 orders, 50000 pages
        40000 ms  look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
                  move 7@100 1->0 (near_its_cpus) 0-50000: 136 orders, 50000 pages
    "#]]
    .assert_eq(&told(50_000, 899, "nodes"));
    expect![[r#"
        9500 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-100: 1 orders, 100 pages
                  move 7@100 0->1 (near_its_cpus) 0-100: 1 orders, 100 pages
        40000 ms  look 7@100 (place_unknown) 0-100: 1 orders, 100 pages
                  move 7@100 1->0 (near_its_cpus) 0-100: 1 orders, 100 pages
    "#]]
    .assert_eq(&told(100, 900, "nodes"));
    // What 60 loads wait for together is less than what is in the caches.
    let of = |at_once: u64| {
        let story = "keep resident 7@100 0-20000 on 0
                     keep loads 7@100 20000 at";
        told(20_000, 900, &format!("{story} {at_once}"))
    };
    expect![[r#"
        9500 ms   watch 7@100 (slow_start_over)
                  affine 7@100 0 (near_its_memory)
        40000 ms  -
    "#]]
    .assert_eq(&of(1));
    expect![[r#"
        9500 ms   watch 7@100 (slow_start_over)
        40000 ms  -
    "#]]
    .assert_eq(&of(60));
}

// specs/engine.md#home: two want the same idle CPU, and one gets it.
#[test]
fn a_nodes_idle_cpus_are_promised_once() {
    let m = machine(&[(Medium::Dram, 200_000, true), (Medium::Dram, 200_000, true)]);
    let settings = Settings { moved_mbps: MBps(0), ..Settings::default() };
    check(
        &mut Rig::new(&m, settings, Source::Damon, &[Evidence::Cpu]),
        "map 7@100 0-50000 on 0
         map 8@100 0-50000 on 0
         idle 0 1000
         keep task 7@100 uses 800 node 1
         keep task 8@100 uses 800 node 1
         keep region 7@100 0-50000 20/20 age 3000
         keep region 8@100 0-50000 20/20 age 3000
         to 10000",
        expect![[r#"
            10000 ms  watch 7@100 (slow_start_over)
                      watch 8@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
                      look 8@100 (place_unknown) 0-50000: 1 orders, 50000 pages
                      affine 7@100 0 (near_its_memory)
        "#]],
    );
}

// specs/engine.md#home: who does not stay there is left alone for longer each time.
#[test]
fn threads_that_do_not_stay_with_their_memory_are_brought_ever_more_rarely() {
    let m = machine(&[(Medium::Dram, 90_000, true), (Medium::Dram, 90_000, true)]);
    check(
        &mut Rig::new(
            &m,
            Settings { moved_mbps: MBps(0), ..Settings::default() },
            Source::Damon,
            &[Evidence::Cpu],
        ),
        "map 7@100 0-50000 on 0
         idle 0 1000
         keep task 7@100 uses 800 node 1
         keep region 7@100 0-50000 20/20 age 3000
         to 15000
         to 30000
         to 45000
         to 60000
         to 75000
         to 90000",
        expect![[r#"
            15000 ms  watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-50000: 2 orders, 100000 pages
                      affine 7@100 0 (near_its_memory)
            30000 ms  affine 7@100 0 (near_its_memory)
                      look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
            45000 ms  look 7@100 (place_unknown) 0-50000: 2 orders, 100000 pages
                      affine 7@100 0 (near_its_memory)
            60000 ms  look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
            75000 ms  look 7@100 (place_unknown) 0-50000: 1 orders, 50000 pages
            90000 ms  look 7@100 (place_unknown) 0-50000: 2 orders, 100000 pages
                      affine 7@100 0 (near_its_memory)
        "#]],
    );
}

// specs/engine.md#unknown: marks are not told.
#[test]
fn without_marks_nothing_goes_up() {
    let mut rig =
        Rig::new(&expander(1_000, 1_000), Settings::default(), Source::Damon, &[Evidence::Marks]);
    check(
        &mut rig,
        "map 7@100 0-500 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-500 20/20 age 3000
         to 3000
         stays",
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-500: 1 orders, 500 pages
                    unknown place: 500 pages in 1
                    unknown marks: 1000 pages in 2
        "#]],
    );
}

// specs/engine.md#unknown: no heat at all.
#[test]
fn residency_alone_moves_nothing() {
    check(
        &mut Rig::new(&expander(1_000, 1_000), Settings::default(), Source::Residency, &[]),
        "map 7@100 0-500 on 1
         keep task 7@100 ran 2000 node 0
         to 3000
         stays",
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
        "#]],
    );
}

// specs/engine.md#unknown: heat without a way to ask for places.
#[test]
fn without_places_nothing_moves() {
    let lacks = [Evidence::Place];
    check(
        &mut Rig::new(&expander(1_000, 1_000), Settings::default(), Source::Damon, &lacks),
        "map 7@100 0-500 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-500 20/20 age 3000
         to 3000
         stays",
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
                    unknown place: 1000 pages in 2
        "#]],
    );
}

// specs/engine.md#failures: ten pages must not be moved; tried once more at most.
#[test]
fn forbidden_pages_are_left_alone() {
    let mut rig = damon(10_000, 10_000);
    check(
        &mut rig,
        "map 7@100 0-300 on 1
         forbid 7@100 64-128
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-300 20/20 age 3000
         to 4000
         free 7@100 64-128
         to 30000
         ledger",
        expect![[r#"
            4000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-300: 2 orders, 600 pages
                      move 7@100 1->0 (hot) 0-300: 1 orders, 300 pages
            30000 ms  -
                    hot 1->0: tried 300 moved 236 forbidden 64
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 64..128), [(1, 64)]);
}

// specs/engine.md#failures: busy pages are retried after 2, 4 and 8 s, then given up.
#[test]
fn busy_pages_are_retried_a_few_times() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-64 on 1
         busy 7@100 0-64
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-64 20/20 age 3000
         to 2500
         to 3900
         to 5000
         to 9000
         to 20000
         to 60000
         ledger",
        expect![[r#"
            2500 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-64: 1 orders, 64 pages
                      move 7@100 1->0 (hot) 0-64: 1 orders, 64 pages
            3900 ms   move 7@100 1->0 (hot) 0-64: 1 orders, 64 pages
            5000 ms   -
            9000 ms   move 7@100 1->0 (hot) 0-64: 1 orders, 64 pages
            20000 ms  look 7@100 (place_unknown) 0-64: 1 orders, 64 pages
                      move 7@100 1->0 (hot) 0-64: 1 orders, 64 pages
            60000 ms  -
                    hot 1->0: tried 256 moved 0 busy 256
        "#]],
    );
}

// specs/engine.md#processes: it ends while an order is on its way; the PID comes back.
#[test]
fn a_process_that_ends_in_the_middle_is_forgotten() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-300 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-300 20/20 age 3000
         to 250
         resident 7@100 0-300 on 1
         hold
         to 1950
         quiet
         gone 7@100
         done #2 tried 0
         done #2 tried 0
         task 7@100 ran 9000 node 0
         task 7@900 ran 500 node 0
         region 7@900 0-300 20/20 age 3000
         to 9000
         task 7@900 ran 1500 node 0
         to 9100
         ledger",
        expect![[r#"
            250 ms    watch 7@100 (slow_start_over)
            1950 ms   move 7@100 1->0 (hot) 0-300: 1 orders, 300 pages
            9000 ms   -
            9100 ms   watch 7@900 (slow_start_over)
                    hot 1->0: tried 0 moved 0
                    strays 1
                    gone 1
                    refused 1
                    unknown 2
        "#]],
    );
}

// specs/engine.md#silence
#[test]
fn stale_heat_moves_nothing() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-300 on 1
         keep task 7@100 ran 2000 node 0
         keep stale
         region 7@100 0-300 20/20 age 3000
         to 250
         resident 7@100 0-300 on 1
         to 9000
         stays
         quiet
         lost 17
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-300 20/20 age 3000
         to 11000
         ledger",
        expect![[r#"
            250 ms    watch 7@100 (slow_start_over)
            9000 ms   -
                    stay, stale: 300 pages in 1
            11000 ms  move 7@100 1->0 (hot) 0-300: 1 orders, 300 pages
                    hot 1->0: tried 300 moved 300
                    lost 17
                    stale 90
                    unknown 1
        "#]],
    );
}

// specs/engine.md#heat: a fault tells its page's place, so no look is needed.
#[test]
fn hint_faults_move_pages_without_looking() {
    let mut rig = Rig::new(&expander(9_000, 1_000), Settings::default(), Source::HintFault, &[]);
    check(
        &mut rig,
        "map 7@100 0-975 on 1
         keep task 7@100 ran 2000 node -
         keep fault 7@100 970 from 0 on 1 after 2
         keep fault 7@100 971 from 0 on 1 after -
         to 1950
         ledger
         stays",
        expect![[r#"
            1950 ms   watch 7@100 (slow_start_over)
                      census 7@100 (memory_unknown)
                      move 7@100 1->0 (hot) 970-972: 2 orders, 4 pages
                    hot 1->0: tried 2 moved 2
                    refused 1
                    move to 0, hot: 4 pages in 3
                    stay, not_worth_it: 1946 pages in 4
        "#]],
    );
}

// specs/engine.md#silence: mode 2 makes no faults on the fast node, so that nothing
// is known of the memory there and it makes no room; a fault from there changes that.
#[test]
fn silence_about_a_node_that_is_not_sampled_is_not_coldness() {
    let mut rig = Rig::new(&expander(1_000, 1_000), Settings::default(), Source::HintFault, &[]);
    check(
        &mut rig,
        "map 7@100 0-970 on 0
         map 7@100 970-975 on 1
         keep task 7@100 ran 2000 node 0
         keep fault 7@100 970 from 0 on 1 after 2
         to 20000
         ledger
         keep fault 7@100 969 from 0 on 0 after 2
         to 40000
         ledger",
        expect![[r#"
            20000 ms  watch 7@100 (slow_start_over)
                      census 7@100 (memory_unknown)
                      look 7@100 (place_unknown) 0-970 971-975: 1 orders, 974 pages
            40000 ms  move 7@100 0->1 (make_room) 0-3: 2 orders, 3 pages
                      move 7@100 1->0 (hot) 970-971: 5 orders, 5 pages
                    hot 1->0: tried 1 moved 1
                    make_room 0->1: tried 3 moved 3
                    refused 4
        "#]],
    );
}

// specs/engine.md#exploring: three pages are hot on the slow node; what fills the fast
// one is never accessed, so no sample shows it. At first their neighbours may be as hot: no
// more than thirty samples were seen.
#[test]
fn samples_find_cold_memory_by_looking_around() {
    let mut rig = Rig::new(&expander(1_000, 10_000), Settings::default(), Source::Pmu, &[]);
    check(
        &mut rig,
        "uncounted
         map 7@100 0-970 on 0
         map 7@100 970-1500 on 1
         keep task 7@100 ran 2000 node 0
         keep sample 7@100 1000 from 0 period 1000
         keep sample 7@100 1001 from 0 period 1000
         keep sample 7@100 1002 from 0 period 1000
         to 12000
         ledger",
        expect![[r#"
            12000 ms  watch 7@100 (slow_start_over)
                      census 7@100 (memory_unknown)
                      look 7@100 (place_unknown) 0-5120: 4 orders, 6148 pages
                      move 7@100 0->1 (make_room) 0-4: 1 orders, 4 pages
                      move 7@100 1->0 (hot) 1000-1003: 1 orders, 3 pages
                    hot 1->0: tried 3 moved 3
                    make_room 0->1: tried 4 moved 4
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 1000..1003), [(0, 3)]);
}

// specs/engine.md#census: idle memory in a mapping of its own that no sample ever showed.
#[test]
fn idle_mappings_make_room() {
    let mut rig = Rig::new(&expander(1_000, 10_000), Settings::default(), Source::Pmu, &[]);
    check(
        &mut rig,
        "map 7@100 5000-5970 on 0
         map 7@100 100000-100003 on 1
         keep task 7@100 ran 2000 node 0
         keep sample 7@100 100000 from 0 period 1000
         keep sample 7@100 100001 from 0 period 1000
         keep sample 7@100 100002 from 0 period 1000
         to 12000
         ledger",
        expect![[r#"
            12000 ms  watch 7@100 (slow_start_over)
                      census 7@100 (memory_unknown)
                      look 7@100 (place_unknown) 99840-100000 100003-100352: 1 orders, 509 pages
                      move 7@100 0->1 (make_room) 5000-5004: 1 orders, 4 pages
                      move 7@100 1->0 (hot) 100000-100003: 1 orders, 3 pages
                    hot 1->0: tried 3 moved 3
                    make_room 0->1: tried 4 moved 4
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 100_000..100_003), [(0, 3)]);
}

// specs/engine.md#budgets: a hot set of 400 MB against 100 MB/s counted over ten seconds, and
// against as much in any second.
#[test]
fn budgets_bound_what_is_moved() {
    let story = "map 7@100 0-100000 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-100000 20/20 age 3000
         to 3000
         to 4000
         to 5000
         to 6000";
    check(
        &mut damon(200_000, 200_000),
        story,
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-100000: 2 orders, 100000 pages
                      move 7@100 1->0 (hot) 0-100000: 271 orders, 100000 pages
            4000 ms   -
            5000 ms   -
            6000 ms   -
        "#]],
    );
    let settings = Settings { most_mbps: MBps(100), ..Settings::default() };
    let mut rig = Rig::new(&expander(200_000, 200_000), settings, Source::Damon, &[]);
    check(
        &mut rig,
        story,
        expect![[r#"
            3000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-100000: 2 orders, 100000 pages
                      move 7@100 1->0 (hot) 0-70670: 191 orders, 70670 pages
            4000 ms   move 7@100 1->0 (hot) 70670-95090: 66 orders, 24420 pages
            5000 ms   move 7@100 1->0 (hot) 95090-100000: 14 orders, 4910 pages
            6000 ms   -
        "#]],
    );
}

// specs/engine.md#budgets: moves that nobody sees pay may take 1 % of a CPU, counted over the
// horizon: 0.1 s are 37,000 pages. Once accesses to what came up are seen, the rest follows.
#[test]
fn moves_pay_for_themselves() {
    check(
        &mut damon(200_000, 200_000),
        "map 7@100 0-100000 on 1
         keep task 7@100 ran 2000 node 0
         to 1000
         region 7@100 0-100000 20/20 age 3000
         to 2500
         to 3500
         region 7@100 0-20000 20/20 age 5000
         to 4500",
        expect![[r#"
            1000 ms   watch 7@100 (slow_start_over)
            2500 ms   look 7@100 (place_unknown) 0-100000: 2 orders, 100000 pages
                      move 7@100 1->0 (hot) 0-46250: 125 orders, 46250 pages
            3500 ms   move 7@100 1->0 (hot) 46250-49950: 10 orders, 3700 pages
            4500 ms   move 7@100 1->0 (hot) 49950-100000: 136 orders, 50050 pages
        "#]],
    );
}

// specs/engine.md#budgets: DAMON's last aggregation of 100 ms is told for all since the last word, two
// seconds at most: 1000 pages at 200 accesses a second that save 185 ns each come to 3.7 ms in 100 ms.
#[test]
fn what_moves_earn_is_counted_since_the_last_word() {
    let gained = |again: u64| {
        let mut rig = damon(10_000, 10_000);
        let told = "region 7@100 0-1000 20/20 age 90000";
        let story = format!(
            "map 7@100 0-1000 on 1
             keep task 7@100 ran 2000 node 0
             to 1000
             {told}
             to 3000
             {told}
             to {again}"
        );
        story.lines().for_each(|line| rig.line(line.trim()));
        let before = rig.engine.ledger.gained;
        rig.line(told);
        (rig.engine.ledger.gained.0 - before.0) / 1_000_000
    };
    let of = |ms: u64| ms * 1000 * 200 * 185 / 1_000_000;
    assert_eq!([3050, 3500, 4000, 9000].map(gained), [100, 500, 1000, 2000].map(of));
}

// specs/engine.md#budgets: 20,000 pages change places with hotter ones and become hot themselves. In
// the next second they lose 0.7 s of accesses, seventy times what the budget gets in one. They come
// back with what there is of it, 1 % of a CPU; no debt keeps them where they are.
#[test]
fn what_should_not_have_gone_down_comes_back() {
    let mut rig = damon(40_000, 60_000);
    check(
        &mut rig,
        "map 7@100 0-38000 on 0
         map 7@100 50000-70000 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-38000 0/20 age 3000
         keep region 7@100 50000-70000 20/20 age 3000
         to 8000
         quiet
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-38000 20/20 age 0
         keep region 7@100 50000-70000 0/20 age 0
         to 11000
         to 12000
         to 14000
         to 17000",
        expect![[r#"
            8000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-38000 50000-70000: 2 orders, 58000 pages
                      move 7@100 1->0 (hot) 50000-70000: 55 orders, 20000 pages
                      move 7@100 0->1 (make_room) 0-19201: 52 orders, 19201 pages
            11000 ms  -
            12000 ms  look 7@100 (place_unknown) 0-19201: 1 orders, 19201 pages
                      move 7@100 0->1 (make_room) 50000-69201: 52 orders, 19201 pages
                      move 7@100 1->0 (hot) 0-19201: 52 orders, 19201 pages
            14000 ms  look 7@100 (place_unknown) 50000-69201: 1 orders, 19201 pages
            17000 ms  -
        "#]],
    );
    assert_eq!(rig.where_is("7@100", 0..38_000), [(0, 38_000)]);
}

// specs/engine.md#admission: it stops at the mark if nothing can make room.
#[test]
fn promotion_stops_at_the_mark() {
    let mut rig = damon(1_000, 2_000);
    check(
        &mut rig,
        "map 7@100 0-1900 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-1900 20/20 age 3000
         to 9000
         ledger
         stays",
        expect![[r#"
            9000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-1900: 1 orders, 1900 pages
                      move 7@100 1->0 (hot) 0-969: 3 orders, 969 pages
                    hot 1->0: tried 969 moved 969
                    move to 0, hot: 969 pages in 1
                    stay, home: 6783 pages in 7
                    stay, no_room: 7448 pages in 8
                    unknown place: 1900 pages in 1
        "#]],
    );
    assert_eq!(rig.free(NodeId(0)), 31);
}

// specs/engine.md#failures: a node that has no room is left alone until it is seen again.
#[test]
fn a_node_without_room_is_closed() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-64 on 1
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-64 20/20 age 3000
         to 250
         resident 7@100 0-64 on 1
         hold
         to 2050
         done #2 tried 64 no_room 64
         quiet
         go
         to 3500
         stays
         nodes
         to 4500
         ledger",
        expect![[r#"
            250 ms    watch 7@100 (slow_start_over)
            2050 ms   move 7@100 1->0 (hot) 0-64: 1 orders, 64 pages
            3500 ms   -
                    move to 0, hot: 64 pages in 1
                    stay, on_its_way: 64 pages in 1
            4500 ms   -
                    hot 1->0: tried 64 moved 0 no_room 64
        "#]],
    );
}

// specs/engine.md#under-load: 90 ns times six are more than the expander's 275.
#[test]
fn nothing_goes_up_to_a_node_that_answers_later() {
    check(
        &mut damon(10_000, 10_000),
        "map 7@100 0-2000 on 1
         load 0 6000
         keep nodes
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-1000 20/20 age 3000
         keep region 7@100 1000-2000 0/20 age 3000
         to 5000
         load 0 1500
         to 9000
         ledger",
        expect![[r#"
            5000 ms   watch 7@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
            9000 ms   move 7@100 1->0 (hot) 0-115: 4 orders, 115 pages
                    hot 1->0: tried 115 moved 115
        "#]],
    );
}

// specs/engine.md#under-load: as much goes down as evens both, nothing then, and all comes back
// when the others have gone, but not at once.
#[test]
fn hot_memory_leaves_a_node_that_answers_later_until_both_are_alike() {
    let mut rig = damon(10_000, 10_000);
    let by_load = |rig: &mut Rig, from: u64, to: u64, load: &dyn Fn(u64) -> u64| {
        let mut on_fast = Vec::new();
        for tenth in from..to {
            let here = rig.where_is("7@100", 0..4000);
            let fast = here.iter().find(|(n, _)| *n == 0).map_or(0, |(_, p)| *p as u64);
            on_fast.push(fast);
            rig.line(&format!("load 0 {}", load(fast)));
            rig.line("nodes");
            rig.line(&format!("to {}", tenth * 100));
        }
        on_fast
    };
    tell(
        &mut rig,
        "map 7@100 0-8000 on 0
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-4000 20/20 age 3000
         keep region 7@100 4000-8000 0/20 age 3000
         load 0 1200
         nodes
         to 2000",
    );
    // Others fill it: with all 4000 hot pages it takes six times as long, without them twice.
    let full = |fast: u64| 2000 + fast;
    let down = by_load(&mut rig, 21, 300, &full);
    assert_eq!(down[0], 4000);
    // Both take 275 ns at 1055 pages, alike within an eighth from 700 to 1440.
    let rest = &down[down.len() - 100..];
    assert!(rest.iter().all(|p| *p == rest[0]) && (700..=1440).contains(&rest[0]), "{rest:?}");
    assert!(down.windows(2).filter(|w| w[1] > w[0]).count() <= 3, "it does not swing: {down:?}");
    // The others have gone.
    let up = by_load(&mut rig, 300, 700, &|_| 1100);
    assert_eq!(up.last(), Some(&4000), "{up:?}");
    assert!(up[30] < 4000, "one word is not enough to bring all of it back: {up:?}");
}

// specs/engine.md#waited: going down costs the same, and saves a 64th.
#[test]
fn what_is_hardly_waited_for_stays_under_load() {
    let story = |at_once: u64| {
        format!(
            "map 7@100 0-8000 on 0
             keep task 7@100 ran 2000 node 0
             keep loads 7@100 20000 at {at_once}
             keep region 7@100 0-4000 10/20 age 3000
             load 0 6000
             keep nodes
             to 4000"
        )
    };
    check(
        &mut waits(10_000, 10_000),
        &story(1),
        expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-4000: 1 orders, 4000 pages
                  move 7@100 0->1 (slow_under_load) 0-3500: 11 orders, 3500 pages
    "#]],
    );
    check(
        &mut waits(10_000, 10_000),
        &story(64),
        expect![[r#"
        4000 ms   watch 7@100 (slow_start_over)
                  look 7@100 (place_unknown) 0-4000: 1 orders, 4000 pages
    "#]],
    );
}

// specs/engine.md#under-load: what is bound stays, and what belongs to it is left alone as well.
#[test]
fn what_may_not_be_moved_is_not_tried_again_under_load() {
    let mut rig = damon(10_000, 10_000);
    check(
        &mut rig,
        "map 7@100 0-1000 on 0
         map 8@100 0-1000 on 0
         forbid 7@100 0-1000
         load 0 6000
         keep nodes
         keep task 7@100 ran 2000 node 0
         keep region 7@100 0-1000 20/20 age 3000
         keep task 8@100 ran 2000 node 0
         keep region 8@100 0-1000 10/20 age 3000
         to 8000
         ledger",
        expect![[r#"
            8000 ms   watch 7@100 (slow_start_over)
                      watch 8@100 (slow_start_over)
                      look 7@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                      look 8@100 (place_unknown) 0-1000: 1 orders, 1000 pages
                      move 7@100 0->1 (slow_under_load) 0-500: 2 orders, 500 pages
                      move 8@100 0->1 (slow_under_load) 0-991: 8 orders, 991 pages
                    slow_under_load 0->1: tried 1491 moved 991 forbidden 500
        "#]],
    );
    // Nothing evens the two, so all of it goes but what is within a sixty-fourth.
    let left = rig.where_is("8@100", 0..1000);
    assert!(matches!(left[..], [(0, 0..=15), (1, _)] | [(1, 1000)]), "{left:?}");
}
