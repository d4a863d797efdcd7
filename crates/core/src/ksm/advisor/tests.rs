use super::*;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

fn at(ns: u64, cpu_ns: u64) -> Now {
    Now { jiffies: 0, ns, ksmd_cpu_ns: cpu_ns }
}

fn on() -> Advisor {
    let mut a = Advisor::default();
    assert_eq!(a.switch(AdvisorMode::ScanTime), Some(500));
    a
}

// specs/ksm.md#advisor: 500 pages, t = 20 s, 1 s of CPU, first pass: 1000.
#[test]
fn vector() {
    let mut a = on();
    a.pass_begins(&at(100 * S, 0));
    assert_eq!(a.pass_ends(500, &at(120 * S, S)), 1000);
    // Without the lift to ten percent it would have been 15.
    let mut b = on();
    b.pass_begins(&at(100 * S, 0));
    // 2 s of CPU in 20 are ten percent: unit 50.
    assert_eq!(b.pass_ends(500, &at(120 * S, 2 * S)), 500);
    // CPU above 100 %: unit 500 / 200 = 2, so 20 at least.
    let mut c = on();
    c.pass_begins(&at(100 * S, 0));
    assert_eq!(c.pass_ends(500, &at(120 * S, 40 * S)), 20);
    // And with 1500 %: unit 1, 15 is above 10.
    let mut d = on();
    d.pass_begins(&at(100 * S, 0));
    assert_eq!(d.pass_ends(500, &at(120 * S, 300 * S)), 15);
}

// Several passes by hand: change 30, 51, 65 where the time stays; 100 s a pass
// with target 200 s: factor 200; 80 % of a CPU, so unit 6, 3, 1.
#[test]
fn passes() {
    let mut a = on();
    let (mut now, mut cpu, mut pages) = (0, 0, 500);
    let mut seen = Vec::new();
    for _ in 0..4 {
        a.pass_begins(&at(now, cpu));
        now += 100 * S;
        cpu += 80 * S;
        pages = a.pass_ends(pages, &at(now, cpu));
        seen.push(pages);
    }
    // 250 * 30 % = 75 of [60, 420]; 37 * 51 % = 18 lifted to 10; 9 * 65 % = 5
    // lifted to 10; 5 * 75 % lifted to 10.
    assert_eq!(seen, [75, 18, 10, 10]);
}

// specs/ksm.md#advisor: cap at max_cpu units, then at max_pages; advisor_min is no floor.
#[test]
fn caps() {
    let mut a = on();
    a.target_scan_time = 1;
    a.pass_begins(&at(0, 0));
    // Too slow by a hundred: wanted 500 * 100 * 30 % = 15000; 50 % for 500 pages: 10 a percent.
    assert_eq!(a.pass_ends(500, &at(100 * S, 50 * S)), 700);
    let mut a = on();
    (a.target_scan_time, a.max_pages_to_scan) = (1, 600);
    a.pass_begins(&at(0, 0));
    assert_eq!(a.pass_ends(500, &at(100 * S, 50 * S)), 600);
    let mut a = on();
    a.min_pages_to_scan = 5000;
    a.pass_begins(&at(0, 0));
    assert!(a.pass_ends(500, &at(20 * S, 400 * S)) < 500);
}

// specs/ksm.md#advisor: CPU time counts since boot at first; switched on in the middle of
// a pass, so does the time.
#[test]
fn switched_on_in_the_middle() {
    let mut a = Advisor::default();
    a.pass_begins(&at(900 * S, 0));
    a.switch(AdvisorMode::ScanTime);
    // t = 1000 s, 10 %: factor 20, change 30: 500*5*0.3 = 750; unit 50: 500 to 3500.
    assert_eq!(a.pass_ends(500, &at(1000 * S, 100 * S)), 750);
}

// specs/ksm.md#advisor: switching resets pages_to_scan; the same mode does nothing.
#[test]
fn switch() {
    let mut a = on();
    assert_eq!(a.switch(AdvisorMode::ScanTime), None);
    a.pass_begins(&at(0, 0));
    a.pass_ends(500, &at(20 * S, S));
    assert_eq!(a.switch(AdvisorMode::None), Some(100));
    assert_eq!(a.pass_ends(77, &at(20 * S, S)), 77);
    a.min_pages_to_scan = 42;
    assert_eq!(a.switch(AdvisorMode::ScanTime), Some(42));
    let fresh = {
        let mut f = Advisor { min_pages_to_scan: 42, ..Advisor::default() };
        f.switch(AdvisorMode::ScanTime);
        f
    };
    assert_eq!(a, fresh);
}

proptest! {
    // Never above the cap, never a panic, whatever the clock and the knobs say.
    #[test]
    fn bounded(pages: u32, ns: u64, cpu: u64, max_cpu: u32, max in 0u64..=u64::MAX, target in 1u64..) {
        let mut a = Advisor { max_cpu, max_pages_to_scan: max, target_scan_time: target, ..on() };
        a.pass_begins(&at(ns / 2, 0));
        let new = a.pass_ends(pages, &at(ns, cpu));
        prop_assert!(u64::from(new) <= max.max(u64::from(u32::MAX)));
        if max <= u64::from(u32::MAX) {
            prop_assert!(u64::from(new) <= max);
        }
    }
}
