//! What counters show of loads, process by process: specs/sources.md#loads.

use super::replay::{charge, recording};
use super::support::{access, dram, for_ms, knobs, machine, map, process, touch};
use crate::build::Setup;
use crate::machine::{SimMachine, knobs_for};
use crate::replay::{Op, Rounds};
use crate::simulation::Simulation;
use crate::{Overlap, replay};
use homenode_core::costs::{Constant, Cost};
use homenode_core::hooks::{Hooks, MakeHooks};
use homenode_core::offcore::Offcore;
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::policy::{Ledger, Policy};
use homenode_core::scenario::{Pattern, Process, Step};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::{Acting, Machine as _, Recorded, drive};
use std::collections::VecDeque;

/// 200 ns, of which a core has ten under way; a CPU for homenode and three for programs.
fn fast_enough() -> Hardware {
    let mut m = machine(&[super::support::Spec { ns: 200, mbps: 1_000_000, ..dram(32_768, 4) }]);
    for cost in [Cost::MemoryParallelism, Cost::UpdateParallelism] {
        m.costs.0.insert(cost, Constant::assumed(10_000, "a round figure"));
    }
    m
}
fn boot(source: Source, hooks: Option<MakeHooks>) -> SimMachine {
    let mut all = knobs_for(source);
    all.extend(knobs(&[("scan_delay_ms", "0")]));
    let setup = Setup { knobs: all, room: 1 << 17, hooks, ..Setup::default() };
    let sim = Simulation::boot(&fast_enough(), &setup, 0).expect("a machine");
    SimMachine::new(sim, source).expect("a source")
}
/// A program on these CPUs that accesses its memory for so long and then sleeps.
fn program(cpus: &[u32], (mlp, write, compute): (u32, u32, u64), ms: u64) -> Process {
    let mut step = access("m", Pattern::Uniform, write, for_ms(ms));
    if let Step::Access { mlp: at_once, compute: between, .. } = &mut step {
        (*at_once, *between) = (mlp, Picos::from_ns(compute));
    }
    let steps = vec![touch("m"), step, Step::Sleep(Picos::from_secs(1000))];
    process("p", cpus, vec![map("m", 2048)], steps)
}
const LONG: u64 = 1_000_000;
const CHAIN: (u32, u32, u64) = (1, 0, 0);

fn order(m: &mut SimMachine, act: Act) {
    let (expect, why) = (Benefit::default(), Reason::SourceNeeds);
    m.submit(&Order { id: OrderId(1), act, expect, why }).expect("it is there");
}
fn watch(m: &mut SimMachine, who: Who) {
    order(m, Act::Watch { who });
}
fn see(m: &mut SimMachine, ms: u64) -> Vec<Seen> {
    let until = m.now() + Picos::from_ms(ms);
    let mut out = Vec::new();
    while m.now() < until {
        m.wait(until.min(m.now() + Picos::from_ms(20)), &mut out).expect("programs run");
    }
    out
}
/// What was told of a process, together, and how often.
fn told(seen: &[Seen], of: Who) -> (Offcore, usize) {
    let (mut all, mut times) = (Offcore::default(), 0);
    for s in seen {
        match s {
            Seen::Loads { who, counted } if *who == of => {
                all.take_over(counted);
                times += 1;
            }
            _ => {}
        }
    }
    (all, times)
}
fn near(found: u64, want: u64) -> bool {
    found.abs_diff(want) * 50 <= want
}

#[test]
fn a_chain_has_one_load_under_way_and_eight_chains_eight() {
    for (what, at_once, waited_for) in [
        (CHAIN, 1000, 200),
        ((8, 0, 0), 8000, 25),
        // A core has ten under way.
        ((40, 0, 0), 10_000, 20),
        // Computing between loads that wait for one another is no time in which one is under way.
        ((1, 0, 100), 1000, 200),
        // Eight at once, and so much computing that two are.
        ((8, 0, 100), 2000, 100),
        // A store is no load: half of four are two.
        ((4, 500, 0), 2000, 100),
        ((1, 500, 0), 1000, 200),
    ] {
        let mut m = boot(Source::Pmu, None);
        m.count_overlap();
        let (who, _) = m.spawn(program(&[1], what, LONG), None);
        watch(&mut m, who);
        let seen = see(&mut m, 1000);
        let (all, times) = told(&seen, who);
        assert!((9..=11).contains(&times), "{times} in a second, as often as it is read");
        let found = all.at_once().expect("there were loads");
        assert!(near(found, at_once) && (at_once > 1000 || found == 1000), "{what:?}: {found}");
        let (latency, waited) = (all.latency().unwrap().as_ns(), all.amortized().unwrap().as_ns());
        assert!(near(latency, 200) && near(waited, waited_for), "{what:?}: {latency} {waited}");
        // All of them but those since the last time, and no store.
        let reads = m.simulation().processes()[0].accesses[0][0];
        assert!(all.reads < reads && all.reads * 100 > reads * 88, "{} of {reads}", all.reads);
    }
    // Stores alone.
    let mut m = boot(Source::Pmu, None);
    m.count_overlap();
    let (who, _) = m.spawn(program(&[1], (8, 1000, 0), LONG), None);
    watch(&mut m, who);
    assert_eq!(told(&see(&mut m, 1000), who).1, 0, "nothing was read");
}

#[test]
fn processes_are_told_apart_and_threads_together() {
    let run = || {
        let mut m = boot(Source::Pmu, None);
        m.count_overlap();
        let chain = m.spawn(program(&[1, 2], CHAIN, LONG), None).0;
        let wide = m.spawn(program(&[3], (8, 0, 0), LONG), None).0;
        let other = m.spawn(program(&[3], CHAIN, LONG), None).0;
        watch(&mut m, chain);
        watch(&mut m, wide);
        let seen = see(&mut m, 1000);
        assert_eq!(told(&seen, other).1, 0, "nobody watches it");
        ([chain, wide].map(|who| told(&seen, who).0), seen, m.hash())
    };
    let ([chain, wide], seen, hash) = run();
    assert_eq!(chain.at_once(), Some(1000));
    assert!(near(wide.at_once().unwrap(), 8000), "{wide:?}");
    // Two threads, each with a load under way all the time; nine tenths of a second are told.
    let ms = chain.busy.0 / 1_000_000_000;
    assert!((1750..2000).contains(&ms), "{ms}");
    // After its process, each time.
    for pair in seen.windows(2) {
        if let Seen::Loads { who: of, .. } = pair[1] {
            assert!(matches!(pair[0], Seen::Task { who, .. } if who == of), "{pair:?}");
        }
    }
    assert!(run() == ([chain, wide], seen, hash), "the same twice");
}

#[test]
fn counting_begins_with_watching_and_leaves_nothing_behind() {
    let mut m = boot(Source::Pmu, None);
    m.count_overlap();
    let (who, _) = m.spawn(program(&[1], CHAIN, 2000), None);
    assert_eq!(told(&see(&mut m, 500), who).1, 0, "nobody has asked");
    let second = |m: &mut SimMachine| told(&see(m, 300), who).0.busy.0 / 1_000_000_000;
    watch(&mut m, who);
    let first = second(&mut m);
    assert!((180..=310).contains(&first), "{first}");
    order(&mut m, Act::Unwatch { who });
    see(&mut m, 50);
    assert_eq!(second(&mut m), 0);
    // Nothing of the time between.
    watch(&mut m, who);
    let again = second(&mut m);
    assert!((180..=310).contains(&again), "{again}");
    // It sleeps: read as ever, and nothing to tell.
    see(&mut m, 1500);
    assert_eq!(told(&see(&mut m, 300), who).1, 0);
    // It ends.
    let space = m.simulation().procs()[0].space;
    let (stays, _) = m.spawn(program(&[2], CHAIN, LONG), None);
    assert!(m.end(who));
    let seen = see(&mut m, 300);
    assert!(seen.contains(&Seen::Gone { who }));
    assert_eq!((told(&seen, who).1, told(&seen, stays).1), (0, 0));
    let pmu = m.simulation_mut().pmu.as_mut().expect("the source");
    assert_eq!(pmu.read_loads(space), None);
}

#[test]
fn what_is_told_of_processes_is_what_was_counted_of_all_cpus() {
    struct Reads;
    impl Hooks for Reads {
        fn counts(&self) -> bool {
            true
        }
    }
    let mut m = boot(Source::Pmu, Some(|_, _| Box::new(Reads)));
    m.count_overlap();
    let all = [(&[1, 2][..], CHAIN), (&[3], (8, 300, 20))]
        .map(|(cpus, what)| m.spawn(program(cpus, what, 500), None).0);
    all.iter().for_each(|&who| watch(&mut m, who));
    let seen = see(&mut m, 1000);
    let mut sum = Offcore::default();
    all.iter().for_each(|&who| sum.take_over(&told(&seen, who).0));
    assert!(sum.reads > 1_000_000);
    assert_eq!(m.simulation().kernel.inside.offcore, Some(sum));
}

#[test]
fn each_reading_has_its_price() {
    // They sleep: nothing to tell, and nothing else that the counters change.
    let run = |counts: bool| {
        let mut m = boot(Source::Pmu, None);
        if counts {
            m.count_overlap();
        }
        let all = [1, 2, 3].map(|cpu| m.spawn(program(&[cpu], CHAIN, 10), None).0);
        all[1..].iter().for_each(|&who| watch(&mut m, who));
        see(&mut m, 200);
        let before = m.spent().homenode;
        let seen = see(&mut m, 1000);
        let read = seen.iter().filter(|s| matches!(s, Seen::Task { who, .. } if *who != all[0]));
        (m.spent().homenode - before, read.count() as u64)
    };
    let ((with, read), (without, same)) = (run(true), run(false));
    assert!(read == same && (18..=22).contains(&read), "{read} {same}");
    // Two that are watched, of three.
    assert_eq!(with - without, read * fast_enough().costs.get(Cost::EventRead));
}

/// Watches all, and keeps what it is told.
struct Asks {
    now: Picos,
    overlap: bool,
    seen: Vec<Seen>,
    orders: VecDeque<Order>,
    watched: Vec<Who>,
    ledger: Ledger,
}

impl Policy for Asks {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        self.now = now;
        for s in seen {
            let Seen::Task { who, .. } = *s else { continue };
            if !self.watched.contains(&who) {
                self.watched.push(who);
                let id = OrderId(self.watched.len() as u64);
                let (act, expect, why) =
                    (Act::Watch { who }, Benefit::default(), Reason::SourceNeeds);
                self.orders.push_back(Order { id, act, expect, why });
            }
        }
        self.seen.extend_from_slice(seen);
    }
    fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }
    fn timeout(&self) -> Option<Picos> {
        Some(self.now + Picos::from_ms(50))
    }
    fn needs_overlap(&self) -> bool {
        self.overlap
    }
    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// What a policy is told of one machine in a second.
fn driven(m: SimMachine, overlap: bool) -> (Offcore, usize, u64) {
    // As commands have it.
    let mut m = Acting::new(Recorded::new(m, None));
    let (seen, orders, watched) = (Vec::new(), VecDeque::new(), Vec::new());
    let (now, ledger) = (Picos::ZERO, Ledger::default());
    let mut p = Asks { now, overlap, seen, orders, watched, ledger };
    for tenth in 1..=10 {
        drive(&mut m, &mut p, Picos::from_ms(tenth * 100)).expect("it runs");
    }
    let (all, times) = told(&p.seen, p.watched[0]);
    (all, times, m.into_inner().into_inner().hash())
}

#[test]
fn only_who_asks_is_told_and_only_where_the_source_is_the_pmu() {
    let run = |source, overlap| {
        let mut m = boot(source, None);
        m.spawn(program(&[1], (8, 0, 0), LONG), None);
        driven(m, overlap)
    };
    let (all, times, _) = run(Source::Pmu, true);
    assert!(times >= 7 && near(all.at_once().unwrap(), 8000), "{all:?}, {times} times");
    assert_eq!(run(Source::Pmu, false).1, 0, "nobody asks");
    for source in [Source::Damon, Source::HintFault, Source::Residency] {
        assert_eq!(run(source, true), run(source, false), "{}", source.name());
        assert_eq!(run(source, true).1, 0, "{}", source.name());
    }
}

#[test]
fn a_replayed_recording_is_counted_likewise() {
    let page = 0x10_0000;
    let (prot, read) = ([true, true, false], |n, reads, writes| Op::Access {
        page: page + n,
        reads,
        writes,
        write: writes > 0,
        stream: false,
    });
    let map = Op::Map { page, pages: 40, prot, file: false, shared: false };
    let rows = [(0, 0, map), (0, 10, read(7, 3000, 0)), (0, 20_000, read(9, 1000, 1000))];
    let lines = |lines| Some(Overlap { window: 250, random: [lines; 2], stream: [lines; 2] });
    for (overlap, at_once) in [
        (Some(Overlap::chain()), 1000),
        // Four thousand loads, under way in 3000 / 4 + 2000 / 4 latencies: half of a row are stores.
        (lines(4000), 3200),
        (lines(8000), 6400),
        // As many as the machine has, which is ten.
        (None, 8000),
    ] {
        let charge = replay::Charge { overlap, ..charge(Rounds::Until(Picos::from_secs(2).0)) };
        let setup = Setup { knobs: knobs_for(Source::Pmu), ..Setup::default() };
        let sim = Simulation::replay(&fast_enough(), &setup, &recording(&rows), "job", &charge);
        let m = SimMachine::new(sim.expect("it fits"), Source::Pmu).expect("a source");
        let (all, times, _) = driven(m, true);
        let (found, latency) = (all.at_once().expect("loads"), all.latency().unwrap().as_ns());
        assert!(times >= 7 && near(found, at_once) && near(latency, 200), "{found} {latency}");
    }
}
