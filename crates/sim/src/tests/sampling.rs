//! Slow start, modes of balancing, promotion and its two choices, in whole runs.

use super::support::*;
use crate::build::Setup;
use crate::check::Checker;
use crate::simulation::Simulation;
use crate::vmstat::Item;
use crate::watch::Watch;
use homenode_core::scenario::*;
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Picos};
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000_000;
const NO_THP: (&str, &str) = ("transparent_hugepage", "never");

fn simulation(m: &Hardware, s: &Scenario) -> Simulation {
    Simulation::new(m, s, &Setup::of(s)).expect("it fits")
}
/// Runs to that time under the checker.
fn until(sim: &mut Simulation, checker: &Checker, ms: u64) {
    checker.run(sim, ms * MS, 250 * MS).expect("nothing is wrong");
}
fn stat(sim: &Simulation, item: Item) -> u64 {
    sim.vmstat().get(item)
}
/// Steps that put a map on node 1 and then let balancing see it.
fn away(pages: u64) -> (Vec<Map>, Vec<Step>) {
    let m = Map { policy: Mempolicy::Preferred(NodeId(1)), ..map("m", pages) };
    let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
    (vec![m], vec![touch("m"), free])
}
fn uniform(map: &str, ms: u64) -> Step {
    access(map, Pattern::Uniform, 300, for_ms(ms))
}
fn two_sockets() -> Hardware {
    machine(&[dram(16384, 2), dram(16384, 2)])
}
fn tiered() -> Hardware {
    machine(&[dram(4096, 2), cxl(16384)])
}
/// Sampling that begins at once and comes often.
const FAST: [(&str, &str); 4] = [
    ("scan_delay_ms", "0"),
    ("scan_period_min_ms", "20"),
    ("scan_period_max_ms", "100"),
    ("hot_threshold_ms", "100"),
];
fn fast(more: &[(&str, &str)]) -> Vec<(String, String)> {
    knobs(&[&FAST[..], more].concat())
}

// ── Slow start (specs/numa.md#slow-start-today; specs/seeds.md#s0) ─────────────

/// Whether anything is marked by the given times.
fn marked_at(m: &Hardware, s: &Scenario, times: &[u64]) -> Vec<bool> {
    let mut sim = simulation(m, s);
    let checker = Checker::watch(&mut sim);
    times
        .iter()
        .map(|&ms| {
            until(&mut sim, &checker, ms);
            stat(&sim, Item::NumaPteUpdates) > 0
        })
        .collect()
}

#[test]
fn an_execed_program_is_first_scanned_after_two_seconds() {
    let (maps, mut steps) = away(512);
    steps.push(uniform("m", 4000));
    let mut s = scenario(vec![process("p", &[0], maps, steps)]);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "1")]);
    // specs/numa.md#slow-start-today: fork+exec 2004, HZ 250.
    assert_eq!(marked_at(&two_sockets(), &s, &[2003, 2009]), [false, true]);
}

#[test]
fn the_seeds_slow_start_has_no_wall_gate() {
    let (maps, mut steps) = away(512);
    steps.push(uniform("m", 4000));
    let mut s = scenario(vec![process("p", &[0], maps, steps)]);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "1")]);
    s.model.slow_start = SlowStart::Seed;
    // specs/numa.md#slow-start-seed: 1004.
    assert_eq!(marked_at(&two_sockets(), &s, &[1003, 1009]), [false, true]);
}

#[test]
fn a_forked_child_is_first_scanned_after_one_second() {
    for slow_start in [SlowStart::Today, SlowStart::Seed] {
        let (maps, rest) = away(512);
        // The parent waits, so that the child has the CPU for itself.
        let mut steps = vec![Step::Fork, Step::Wait];
        steps.extend(rest);
        steps.push(uniform("m", 2500));
        let mut s = scenario(vec![process("p", &[0], maps, steps)]);
        s.knobs = knobs(&[NO_THP, ("numa_balancing", "1")]);
        s.model.slow_start = slow_start;
        // specs/numa.md#slow-start-today: fork 1004; the fork is in the first microseconds.
        let marked = marked_at(&two_sockets(), &s, &[1003, 1009]);
        assert_eq!(marked, [false, true], "{slow_start:?}");
    }
}

#[test]
fn tasks_shorter_than_the_delay_are_never_scanned() {
    let (maps, mut steps) = away(256);
    steps.push(uniform("m", 800));
    let all = (0..12)
        .map(|i| {
            let mut p = process(&format!("p{i}"), &[i % 2], maps.clone(), steps.clone());
            p.start = Picos::from_ms(u64::from(i / 2) * 850);
            p
        })
        .collect();
    let mut s = scenario(all);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "1")]);
    let mut sim = simulation(&two_sockets(), &s);
    sim.run();
    assert!(sim.now() > 5_000 * MS);
    assert_eq!(stat(&sim, Item::NumaPteUpdates), 0);
    assert_eq!(stat(&sim, Item::NumaPagesMigrated), 0);
    // As fast as with balancing disabled.
    let on = sim.processes();
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "0")]);
    let mut off = simulation(&two_sockets(), &s);
    off.run();
    assert_eq!(on, off.processes());
}

#[test]
fn a_sleeper_is_never_scanned() {
    let (maps, mut steps) = away(256);
    for _ in 0..40 {
        steps.push(Step::Sleep(Picos::from_ms(95)));
        steps.push(uniform("m", 5));
    }
    let mut s = scenario(vec![process("p", &[0], maps, steps)]);
    s.knobs = knobs(&[NO_THP, ("numa_balancing", "1")]);
    assert_eq!(marked_at(&two_sockets(), &s, &[3900]), [false]);
}

// ── Modes (specs/tiering.md#bits; specs/seeds.md#s1) ───────────────────────────

#[test]
fn mode_1_brings_a_private_page_to_its_user() {
    let (maps, mut steps) = away(512);
    steps.push(uniform("m", 1500));
    let mut s = scenario(vec![process("p", &[0], maps, steps)]);
    s.knobs = fast(&[NO_THP, ("numa_balancing", "1")]);
    let mut sim = simulation(&two_sockets(), &s);
    let checker = Checker::watch(&mut sim);
    until(&mut sim, &checker, 1000);
    assert_eq!(stat(&sim, Item::NumaPagesMigrated), 512);
    assert_eq!(sim.free()[1], 16384, "all of it has moved");
    assert_eq!(stat(&sim, Item::PgpromoteSuccess), 0);
}

/// Two threads share pages of the fast node only, then pages of the slow one only.
#[test]
fn mode_2_never_samples_the_fast_tier() {
    for (mode, from_fast, from_slow) in
        [("0", false, false), ("1", true, true), ("2", false, true), ("3", true, true)]
    {
        for (place, expected) in [(0, from_fast), (1, from_slow)] {
            let at = Mempolicy::Preferred(NodeId(place));
            let m = Map { policy: at, ..map("m", 512) };
            let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
            let steps = vec![touch("m"), free, uniform("m", 400)];
            let mut s = scenario(vec![process("p", &[0, 1], vec![m], steps)]);
            s.knobs = fast(&[NO_THP, ("numa_balancing", mode)]);
            let marked = marked_at(&tiered(), &s, &[300]);
            assert_eq!(marked, [expected], "mode {mode}, pages on node {place}");
        }
    }
}

#[test]
fn mode_1_does_not_promote_into_a_full_node() {
    for (mode, promotes) in [("1", false), ("2", true), ("3", true)] {
        let steps = vec![touch("m"), access("m", Pattern::Gauss { sd: 100 }, 300, for_ms(1500))];
        let mut s = scenario(vec![process("p", &[0], vec![map("m", 8192)], steps)]);
        s.knobs = fast(&[NO_THP, ("numa_balancing", mode), ("demotion_enabled", "true")]);
        let mut sim = simulation(&tiered(), &s);
        let checker = Checker::watch(&mut sim);
        until(&mut sim, &checker, 1500);
        assert!(stat(&sim, Item::NumaHintFaults) > 1000, "mode {mode}");
        let moved = stat(&sim, Item::NumaPagesMigrated);
        // The old mode stops above high: the node was full to low before it began.
        assert_eq!(moved > 0, promotes, "mode {mode}: {moved}");
        assert_eq!(stat(&sim, Item::PgpromoteSuccess), moved, "mode {mode}");
        assert_eq!(stat(&sim, Item::PgdemoteKswapd) > 0, promotes, "mode {mode}");
    }
}

#[test]
fn a_huge_page_is_marked_and_promoted_whole() {
    let m = Map { huge: Some(true), policy: Mempolicy::Preferred(NodeId(1)), ..map("m", 2048) };
    let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
    let steps = vec![touch("m"), free, uniform("m", 1000)];
    let mut s = scenario(vec![process("p", &[0], vec![m], steps)]);
    s.knobs = fast(&[("numa_balancing", "2"), ("demotion_enabled", "true")]);
    let mut sim = simulation(&machine(&[dram(16384, 1), cxl(16384)]), &s);
    let checker = Checker::watch(&mut sim);
    until(&mut sim, &checker, 1000);
    let huge = stat(&sim, Item::NumaHugePteUpdates);
    assert!(huge >= 4);
    assert_eq!(stat(&sim, Item::NumaPteUpdates), 512 * huge);
    assert_eq!(stat(&sim, Item::NumaHintFaults), huge, "one fault each");
    assert_eq!(stat(&sim, Item::PgpromoteSuccess), 2048);
    assert_eq!(stat(&sim, Item::ThpSplitPage), 0);
}

// specs/tiering.md#kswapd: who wants 512 pages wakes kswapd for as many. Here its marks are 32 pages
// apart: with these alone it would stop where no huge page could ever enter.
#[test]
fn a_refused_huge_page_has_kswapd_make_room_for_it() {
    for lists in [true, false] {
        let far = Mempolicy::Preferred(NodeId(1));
        let m = Map { huge: Some(true), policy: far, ..map("m", 2048) };
        let idle = Map { huge: Some(true), ..map("idle", 8192) };
        let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
        let steps = vec![touch("idle"), touch("m"), free, uniform("m", 1500)];
        let mut s = scenario(vec![process("p", &[0], vec![idle, m], steps)]);
        let set =
            [("numa_balancing", "2"), ("demotion_enabled", "true"), ("min_free_kbytes", "512")];
        s.knobs = fast(&set);
        s.knobs.extend(lists.then(|| ("lru_gen".to_owned(), "n".to_owned())));
        let mut sim = simulation(&machine(&[dram(8192, 1), cxl(16384)]), &s);
        let checker = Checker::watch(&mut sim);
        until(&mut sim, &checker, 1500);
        let promoted = stat(&sim, Item::PgpromoteSuccess);
        assert!(promoted >= 2048, "lists {lists}: {promoted}");
        // It demotes what is needed, not the node.
        let demoted = stat(&sim, Item::PgdemoteKswapd);
        assert!((promoted..promoted + 2048).contains(&demoted), "lists {lists}: {demoted}");
    }
}

#[test]
fn an_explicit_policy_is_not_scanned_until_it_is_taken_back() {
    let m = Map { policy: Mempolicy::Preferred(NodeId(1)), ..map("m", 512) };
    let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
    let steps = vec![touch("m"), uniform("m", 500), free, uniform("m", 500)];
    let mut s = scenario(vec![process("p", &[0], vec![m], steps)]);
    s.knobs = fast(&[NO_THP, ("numa_balancing", "1")]);
    assert_eq!(marked_at(&two_sockets(), &s, &[495, 700]), [false, true]);
}

// specs/numa.md#pte: a dirty page of a file is not marked.
#[test]
fn dirty_file_pages_are_not_scanned() {
    for (write, marked) in [(1000, false), (0, true)] {
        let policy = Mempolicy::Preferred(NodeId(1));
        let m = Map { policy, file: true, shared: true, ..map("m", 512) };
        let free = Step::Mbind { map: "m".into(), policy: Mempolicy::Default };
        let first = access("m", Pattern::Sequential, write, Until::Accesses(512));
        let steps = vec![first, free, access("m", Pattern::Uniform, 0, for_ms(500))];
        let mut s = scenario(vec![process("p", &[0], vec![m], steps)]);
        s.knobs = fast(&[NO_THP, ("numa_balancing", "1")]);
        assert_eq!(marked_at(&two_sockets(), &s, &[400]), [marked]);
    }
}

#[test]
fn a_knob_written_in_the_middle_takes_effect() {
    let (maps, mut steps) = away(512);
    steps.push(uniform("m", 2000));
    let mut s = scenario(vec![process("p", &[0], maps, steps)]);
    s.knobs = fast(&[NO_THP, ("numa_balancing", "0")]);
    let mut sim = simulation(&two_sockets(), &s);
    let checker = Checker::watch(&mut sim);
    until(&mut sim, &checker, 500);
    assert_eq!(stat(&sim, Item::NumaPteUpdates), 0);
    sim.set_knob("numa_balancing", "1").expect("a legal value");
    until(&mut sim, &checker, 700);
    let marked = stat(&sim, Item::NumaPteUpdates);
    assert!(marked > 0);
    sim.set_knob("numa_balancing", "0").expect("a legal value");
    until(&mut sim, &checker, 800);
    let then = stat(&sim, Item::NumaPteUpdates);
    until(&mut sim, &checker, 1500);
    assert_eq!(stat(&sim, Item::NumaPteUpdates), then, "switched off");
    assert!(sim.set_knob("numa_balancing", "4").is_err());
}

// ── Promotion: the seed's two choices (specs/tiering.md#admission) ─────────────

#[derive(Default)]
struct Log {
    /// Least of `free − high` that a promotion left.
    least: Option<i64>,
    /// What happened in which order, repetitions left out.
    events: Vec<&'static str>,
}

struct Onlooker(Arc<Mutex<Log>>);

impl Onlooker {
    fn event(&self, what: &'static str) {
        let mut log = self.0.lock().expect("one thread");
        if log.events.last() != Some(&what) {
            log.events.push(what);
        }
    }
}
impl Watch for Onlooker {
    fn promoted(&mut self, _: usize, _: u64, free: u64, high: u64) {
        let left = free as i64 - high as i64;
        {
            let mut log = self.0.lock().expect("one thread");
            log.least = Some(log.least.map_or(left, |l| l.min(left)));
        }
        self.event("promoted");
    }
    fn refused(&mut self, _: usize, _: u64, signalled: bool) {
        self.event(if signalled { "refused, woken" } else { "refused" });
    }
    fn moved(&mut self, _: u32, from: usize, to: usize, _: u64) {
        if (from, to) == (0, 1) {
            self.event("demoted");
        }
    }
}

fn choice(admission: AdmissionChoice) -> (Simulation, Arc<Mutex<Log>>) {
    let hot = Pattern::HotSpot { size: 200, share: 900, every: Picos::from_ms(200) };
    let steps = vec![touch("m"), access("m", hot, 300, for_ms(2000))];
    // A second program allocates all the time, on the same node.
    let mut more = Vec::new();
    let maps: Vec<Map> = (0..10).map(|i| map(&format!("a{i}"), 300)).collect();
    for i in 0..10 {
        more.push(Step::Sleep(Picos::from_ms(100)));
        more.push(touch(&format!("a{i}")));
        more.push(Step::Unmap { map: format!("a{i}") });
    }
    let mut s = scenario(vec![
        process("p", &[0], vec![map("m", 8192)], steps),
        process("q", &[1], maps, more),
    ]);
    s.knobs = fast(&[NO_THP, ("numa_balancing", "2"), ("demotion_enabled", "true")]);
    s.model.admission = admission;
    let mut sim = simulation(&tiered(), &s);
    let log = Arc::new(Mutex::new(Log::default()));
    sim.watch(Box::new(Onlooker(log.clone())));
    sim.run_until(2000 * MS);
    (sim, log)
}

#[test]
fn choice_b_keeps_promotions_above_high_and_choice_a_does_not() {
    let (b, log) = choice(AdmissionChoice::B);
    assert!(stat(&b, Item::PgpromoteSuccess) > 0);
    assert!(log.lock().expect("done").least > Some(0));
    assert_eq!(stat(&b, Item::Allocstall), 0, "no direct reclaim comes of promotions");
    assert_eq!(stat(&b, Item::PgscanDirect), 0);
    let (a, log) = choice(AdmissionChoice::A);
    assert!(stat(&a, Item::PgpromoteSuccess) > 0);
    assert!(log.lock().expect("done").least < Some(0), "promotions eat into the reserves");
}

#[test]
fn a_blocked_promotion_wakes_demotion_and_a_later_one_succeeds() {
    let (_, log) = choice(AdmissionChoice::B);
    let log = log.lock().expect("done");
    assert_eq!(log.events[..2], ["refused, woken", "demoted"], "the node is full at first");
    assert!(log.events.contains(&"promoted"));
    assert!(!log.events.contains(&"refused"));
}

// ── Load, and what happens when memory runs out ────────────────────────────────

#[test]
fn latency_grows_with_load() {
    let time = |cpus: &[u32]| {
        let mut spec = dram(16384, 8);
        spec.mbps = 3000;
        let steps = vec![touch("m"), access("m", Pattern::Uniform, 0, Until::Accesses(200_000))];
        let mut s = scenario(vec![process("p", cpus, vec![map("m", 4096)], steps)]);
        s.knobs = knobs(&[("numa_balancing", "0")]);
        let mut sim = simulation(&machine(&[spec]), &s);
        sim.run();
        sim.processes()[0].ran_ps / cpus.len() as u64
    };
    let (one, four, eight) = (time(&[0]), time(&[0, 1, 2, 3]), time(&[0, 1, 2, 3, 4, 5, 6, 7]));
    // 64 bytes per 100 ns and thread: 640 MB/s of 3000 each, at which one takes 12 % longer and
    // four 31 %; eight ask for more than there is. The touch is shared.
    assert!(one > 200_000 * 100_000);
    assert!(four > one * 21 / 20, "{one} {four}");
    assert!(eight > four * 5 / 4, "{four} {eight}");
}

#[test]
fn memory_runs_out_for_one_process_only() {
    let m = machine(&[dram(4096, 3)]);
    let small = vec![touch("m"), uniform("m", 300)];
    let big = vec![Step::Sleep(Picos::from_ms(10)), touch("m"), uniform("m", 300)];
    let mut s = scenario(vec![
        process("small", &[0], vec![map("m", 500)], small),
        process("big", &[1, 2], vec![map("m", 5000)], big),
    ]);
    s.knobs = knobs(&[NO_THP]);
    let mut sim = simulation(&m, &s);
    let checker = Checker::watch(&mut sim);
    until(&mut sim, &checker, 400);
    let p = sim.processes();
    assert_eq!((p[0].killed.as_deref(), p[0].ended), (None, true));
    assert_eq!((p[1].killed.as_deref(), p[1].ended), (Some("out of memory"), true));
    assert_eq!(stat(&sim, Item::OomKill), 1, "both threads go at once");
    assert_eq!(sim.free(), [4096]);
}
