//! Source: specs/merge-drive.md#speed.

use super::*;

#[test]
fn a_batch_is_what_the_budget_allows() {
    // 20 ms · 5 / 95 = 1.0526 ms.
    assert_eq!(pages_for(5, 2000, 20), 526);
    assert_eq!(pages_for(50, 2000, 20), 10_000);
    // All of a CPU still sleeps; nothing costs nothing.
    assert_eq!(pages_for(100, 2000, 20), 990_000);
    assert_eq!(pages_for(99, 0, 20), PAGES_MAX);
    assert_eq!(pages_for(1, u64::MAX, 20), 1);
    assert_eq!(pages_for(0, 2000, u64::MAX), PAGES_MAX);
}

#[test]
fn profit_is_counted_where_the_kernel_does_not() {
    let r = Reading { pages_shared: 10, pages_sharing: 90, pages_unshared: 900, ..here(0) };
    assert_eq!(r.profit(), 90 * 4096 - 1000 * 64);
    let loss = Reading { pages_sharing: 1, pages_unshared: 1000, ..here(0) };
    assert_eq!(loss.profit(), 4096 - 1001 * 64);
    assert_eq!(Reading { general_profit: Some(-7), ..r }.profit(), -7);
}

#[test]
fn a_first_merge_takes_two_passes() {
    // 262144 pages twice at 2 µs: 1.05 s of CPU time.
    assert_eq!(first_merge_ns(262_144, 2000), 1_048_576_000);
}

fn here(full_scans: u64) -> Reading {
    Reading { full_scans, pages_scanned: Some(0), ..Reading::default() }
}

#[test]
fn visits_without_a_counter_are_whole_passes() {
    let r = |full_scans, at_ns| Reading {
        pages_scanned: None,
        pages_unshared: 500,
        at_ns,
        ..here(full_scans)
    };
    let i = Interval::between(&r(2, 0), &r(5, 1_000_000_000));
    assert_eq!((i.visits, i.passes, i.visits_per_second()), (1500, 3, 1500));
    assert_eq!(i.benefit(), None);
    // Everything was unmerged in between: passes begin at 0 again.
    assert_eq!(Interval::between(&r(5, 0), &r(1, 1)).passes, 0);
}

/// A machine with one number: what a visit costs. It saves what it is told to.
struct Toy {
    now: Reading,
    cost_ns: u64,
    pages: u64,
}

impl Toy {
    fn new(pages: u64, cost_ns: u64) -> Self {
        let now = Reading { offered_pages: pages, ..here(0) };
        Self { now, cost_ns, pages }
    }
    /// A second at `pages_to_scan`, saving `merged` pages.
    fn second(&mut self, pages_to_scan: u64, merged: u64) -> Reading {
        let batch = pages_to_scan.min(self.pages + 1) * self.cost_ns;
        let cpu = 1_000_000_000 * batch / (batch + 20_000_000);
        let visits = cpu / self.cost_ns;
        let scanned = self.now.pages_scanned.unwrap_or(0) + visits;
        self.now.at_ns += 1_000_000_000;
        self.now.ksmd_cpu_ns += cpu;
        self.now.pages_scanned = Some(scanned);
        self.now.full_scans = scanned / self.pages.max(1);
        self.now.pages_sharing += merged;
        self.now.pages_unshared = self.pages.saturating_sub(self.now.pages_sharing);
        self.now
    }
}

/// Seconds of a run as lines: what was ordered and why.
fn run(toy: &mut Toy, pace: &mut Pace, pages: &mut u64, seconds: u32, merged: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for second in 0..seconds {
        let before = toy.now;
        let now = toy.second(*pages, merged);
        let permille = Interval::between(&before, &now).cpu_permille();
        if let Some(order) = pace.poll(&now) {
            if order.file == File::PagesToScan {
                *pages = order.value;
            }
            lines.push(format!(
                "{second}: {} {} {} at {permille}",
                order.file.name(),
                order.value,
                order.why.name()
            ));
        }
    }
    lines
}

#[test]
fn the_budget_is_kept_from_the_first_second_on() {
    for (cost_ns, percent) in [(500, 5), (2000, 5), (4900, 20), (1000, 60)] {
        let mut toy = Toy::new(5_000_000, cost_ns);
        let mut pace = Pace::new(Goal { cpu_percent: percent, ..Goal::default() }, &toy.now);
        let start = pace.start(&toy.now);
        let mut pages = start.iter().find(|o| o.file == File::PagesToScan).unwrap().value;
        assert_eq!(start.last().map(|o| (o.file, o.value)), Some((File::Run, 1)));
        let mut last = 0;
        for _ in 0..20 {
            let before = toy.now;
            let now = toy.second(pages, 5000);
            last = Interval::between(&before, &now).cpu_permille();
            assert!(last <= u64::from(percent) * 10, "{last} at {cost_ns} ns");
            if let Some(order) = pace.poll(&now) {
                pages = order.value;
            }
        }
        assert!(last * 10 >= u64::from(percent) * 95, "{last} at {cost_ns} ns");
        assert_eq!(pace.cost(), (cost_ns, true));
    }
}

#[test]
fn it_slows_down_when_nothing_new_comes_of_it_and_speeds_up_again() {
    let mut toy = Toy::new(20_000, 2000);
    let mut pace = Pace::new(Goal::default(), &toy.now);
    let mut pages = pace.start(&toy.now)[1].value;
    assert_eq!(pages, 210, "5 µs a visit until it is known");
    let lines = run(&mut toy, &mut pace, &mut pages, 4, 1000);
    assert_eq!(lines, ["1: pages_to_scan 526 budget at 20"]);
    // Nothing more to be had: three passes, then half by half.
    let lines = run(&mut toy, &mut pace, &mut pages, 60, 0);
    assert_eq!(
        lines
            .iter()
            .map(|l| &l[l.find(' ').unwrap() + 1..l.rfind(" at").unwrap()])
            .collect::<Vec<_>>(),
        [
            "pages_to_scan 263 nothing_new",
            "pages_to_scan 131 nothing_new",
            "pages_to_scan 65 nothing_new",
            "pages_to_scan 32 nothing_new",
        ]
    );
    assert_eq!(pace.slow(), SLOWEST);
    // A process with as much memory again.
    toy.now.offered_pages += 20_000;
    assert_eq!(
        run(&mut toy, &mut pace, &mut pages, 1, 0),
        ["0: pages_to_scan 526 new_memory at 3"]
    );
    // And what merges by itself.
    run(&mut toy, &mut pace, &mut pages, 60, 0);
    assert_eq!(pace.slow(), SLOWEST);
    let lines = run(&mut toy, &mut pace, &mut pages, 20, 200);
    assert!(lines[0].contains("pages_to_scan 526 pays"), "{lines:?}");
    assert!(pace.benefit().is_some_and(|b| b > LEAST_BENEFIT as i64));
}

#[test]
fn undone_merging_does_not_pay() {
    let mut toy = Toy::new(2000, 2000);
    toy.now.pages_sharing = 1500;
    let mut pace = Pace::new(Goal::default(), &toy.now);
    let mut pages = pace.start(&toy.now)[1].value;
    run(&mut toy, &mut pace, &mut pages, 2, 0);
    toy.now.pages_sharing = 100;
    run(&mut toy, &mut pace, &mut pages, 1, 0);
    assert!(pace.benefit().is_some_and(|b| b < 0), "{:?}", pace.benefit());
    assert!(pace.slow() > 0);
    // Nothing at all: neither memory nor CPU time.
    let empty = here(0);
    let mut pace = Pace::new(Goal::default(), &empty);
    pace.start(&empty);
    assert_eq!(pace.poll(&empty), None);
}

#[test]
fn small_memory_needs_no_large_batches() {
    let toy = Toy::new(300, 100);
    let mut pace = Pace::new(Goal { cpu_percent: 90, ..Goal::default() }, &toy.now);
    assert_eq!(pace.start(&toy.now)[1].value, 1001);
}

#[test]
fn the_advisor_is_told_a_limit_and_a_target() {
    let mut toy = Toy::new(20_000, 2000);
    let goal = Goal { cpu_percent: 20, advisor: true, ..Goal::default() };
    let mut pace = Pace::new(goal, &toy.now);
    let orders: Vec<_> = pace.start(&toy.now).iter().map(|o| (o.file.name(), o.value)).collect();
    assert_eq!(
        orders,
        [
            ("sleep_millisecs", 20),
            ("advisor_max_cpu", 20),
            ("advisor_target_scan_time", 20),
            ("advisor_mode", 1),
            ("run", 1)
        ]
    );
    let mut pages = 500;
    let lines = run(&mut toy, &mut pace, &mut pages, 10, 0);
    assert!(lines[0].contains("advisor_target_scan_time 40 nothing_new"), "{lines:?}");
    assert!(lines.iter().all(|l| l.contains("advisor_target_scan_time")), "{lines:?}");
}
