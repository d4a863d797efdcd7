//! homenode's place in the simulated machine: what it sees, what that costs, what its
//! orders do. The conformance bodies are in `tests/conformance.rs`.

use super::*;
use crate::build::Setup;
use crate::ring;
use crate::spare::with_spare;
use homenode_core::costs::{Constant, Cost, Costs};
use homenode_core::policy::order::{Benefit, OrderId, Reason};
use homenode_core::scenario::{Content, Map, Mempolicy, Pattern, Process, Step, Until};
use homenode_core::topology::{Cpu, Hardware as Topology, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{Bytes, CpuId};

/// DRAM with CPUs and an expander, each of so many pages.
fn topology(fast: u64, slow: u64, cpus: u32) -> Topology {
    let c = |v| Constant::assumed(v, "a test's round figure");
    let node = |id, medium, kind, pages| {
        let zones = vec![Zone { kind, managed: Pages(pages) }];
        Node { id: NodeId(id), medium, zones }
    };
    let link = |to, ns: u64| Link {
        from: NodeId(0),
        to: NodeId(to),
        read_latency: c(ns * 1000),
        write_latency: c(ns * 1000),
        read_bandwidth: c(100_000),
        write_bandwidth: c(100_000),
    };
    Topology {
        name: "test".into(),
        about: "a test's machine".into(),
        nodes: vec![
            node(0, Medium::Dram, ZoneKind::Normal, fast),
            node(1, Medium::Cxl, ZoneKind::Movable, slow),
        ],
        cpus: (0..cpus)
            .map(|i| Cpu {
                id: CpuId(i),
                node: NodeId(0),
                core: i,
                llc: 0,
                capacity: 1024,
                mhz: None,
            })
            .collect(),
        caches: Vec::new(),
        distances: vec![vec![10, 14], vec![14, 10]],
        links: vec![link(0, 100), link(1, 300)],
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}
fn map(name: &str, pages: u64, on: u16) -> Map {
    Map {
        name: name.into(),
        size: Bytes(pages * 4096),
        file: false,
        shared: false,
        read_only: false,
        huge: Some(false),
        content: Content::Own,
        mergeable: false,
        policy: Mempolicy::Preferred(NodeId(on)),
    }
}
fn touch(map: &str) -> Step {
    Step::Touch { map: map.into() }
}
/// Without a policy of its own: the kernel's scan leaves others alone.
fn scanned(map: &str) -> Step {
    Step::Mbind { map: map.into(), policy: Mempolicy::Default }
}
fn access(map: &str) -> Step {
    Step::Access {
        map: map.into(),
        pattern: Pattern::Uniform,
        write: 0,
        compute: Picos(0),
        mlp: 1,
        until: Until::Time(Picos::from_secs(1000)),
    }
}
fn process(cpus: &[u32], maps: Vec<Map>, steps: Vec<Step>) -> Process {
    Process::new("p", cpus.iter().map(|&c| CpuId(c)).collect(), maps, steps)
}
fn booted(topology: &Topology, source: Source, set: &[(&str, &str)]) -> SimMachine {
    let mut knobs: Vec<(String, String)> = knobs_for(source);
    knobs.push(("scan_delay_ms".into(), "0".into()));
    knobs.extend(set.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())));
    let setup = Setup { knobs, seed: 1, room: 1 << 18, ..Setup::default() };
    let sim = Simulation::boot(topology, &setup, 0).expect("a machine");
    SimMachine::new(sim, source).expect("a source")
}
fn see(m: &mut SimMachine, ms: u64) -> Vec<Seen> {
    let until = m.now() + Picos::from_ms(ms);
    let mut out = Vec::new();
    while m.now() < until {
        m.wait(until, &mut out).expect("programs run");
    }
    out
}
fn order(m: &mut SimMachine, id: u64, act: Act) -> Result<(), ApplyError> {
    let (expect, why) = (Benefit::default(), Reason::SourceNeeds);
    m.submit(&Order { id: OrderId(id), act, expect, why })
}
fn took(seen: &[Seen], id: u64) -> (Pages, Picos) {
    let all: Vec<(Pages, Picos)> = seen
        .iter()
        .filter_map(|s| match *s {
            Seen::Done { order, moved, took, .. } if order.0 == id => Some((moved, took)),
            _ => None,
        })
        .collect();
    assert_eq!(all.len(), 1, "reports of {id}");
    all[0]
}

#[test]
fn damon_shows_which_mapping_is_hot_and_only_once_it_is_asked_to() {
    let t = topology(40_000, 40_000, 2);
    let mut m = booted(&t, Source::Damon, &[]);
    let maps = vec![map("hot", 600, 0), map("cold", 9000, 0)];
    let steps = vec![touch("cold"), touch("hot"), access("hot")];
    let (who, spans) = m.spawn(process(&[0], maps, steps), None);
    let regions = |seen: &[Seen]| -> Vec<(Span, u32, u32)> {
        let of = |s: &Seen| match *s {
            Seen::Region { span, accessed, checks, .. } => Some((span, accessed, checks)),
            _ => None,
        };
        seen.iter().filter_map(of).collect()
    };
    let before = see(&mut m, 1000);
    assert_eq!(regions(&before), [], "nobody has asked");
    assert_eq!(m.spent().kdamond, 0);
    order(&mut m, 1, Act::Watch { who }).unwrap();
    see(&mut m, 5000);
    let seen = see(&mut m, 200);
    let mut share = [(0, 0), (0, 0)];
    for (r, accessed, checks) in regions(&seen) {
        assert!(accessed <= checks && r.start < r.end);
        for (sum, map) in share.iter_mut().zip(&spans) {
            let inside = r.end.min(map.end).saturating_sub(r.start.max(map.start));
            sum.0 += inside * u64::from(accessed);
            sum.1 += inside * u64::from(checks);
        }
    }
    let percent = share.map(|(a, n)| a * 100 / n);
    // 600 pages, each accessed some 80 times between two looks; the other mapping never.
    assert!(percent[0] >= 80, "{percent:?}");
    assert!(percent[1] <= 10, "{percent:?}");
    assert!(m.spent().kdamond > 0);
    // Nothing more comes once nobody wants it.
    order(&mut m, 2, Act::Unwatch { who }).unwrap();
    see(&mut m, 100);
    let spent = m.spent().kdamond;
    assert_eq!(regions(&see(&mut m, 500)), []);
    assert!(m.spent().kdamond <= spent + 10_000_000_000);
}

#[test]
fn damon_does_not_make_pages_look_cold_to_reclaim() {
    let t = topology(40_000, 40_000, 1);
    let mut m = booted(&t, Source::Damon, &[]);
    let (_, spans) = m.spawn(
        process(&[0], vec![map("a", 8, 0)], vec![touch("a"), Step::Sleep(Picos::from_secs(50))]),
        None,
    );
    see(&mut m, 20);
    let memory = &mut m.sim.kernel.memory;
    let page = m.sim.kernel.spaces[0].as_ref().unwrap().place(spans[0].start, false).unwrap();
    assert!(memory.is_young(page));
    memory.make_old(page);
    assert!(!memory.is_young(page), "DAMON would see the next access");
    assert_eq!(memory.test_and_clear_young(page), 1, "reclaim sees the last one");
    assert_eq!(memory.test_and_clear_young(page), 0, "once");
    memory.make_old(page);
    assert_eq!(memory.test_and_clear_young(page), 0, "nothing was there to keep");
}

#[test]
fn samples_go_by_count_not_by_time() {
    let t = topology(40_000, 40_000, 2);
    let mut m = booted(&t, Source::Pmu, &[]);
    // Half of the accesses go to pages that take three times as long.
    let maps = vec![map("near", 2000, 0), map("far", 2000, 1)];
    let part = |map: &str| Step::Access {
        map: map.into(),
        pattern: Pattern::Uniform,
        write: 300,
        compute: Picos(0),
        mlp: 1,
        until: Until::Accesses(20_000),
    };
    let mut steps = vec![touch("near"), touch("far")];
    for _ in 0..400 {
        steps.extend([part("near"), part("far")]);
    }
    steps.push(Step::Sleep(Picos::from_secs(100)));
    let (who, spans) = m.spawn(process(&[0], maps, steps), None);
    order(&mut m, 1, Act::Watch { who }).unwrap();
    let seen = see(&mut m, 8000);
    let mut counts = [0u64, 0];
    for s in &seen {
        if let Seen::Sample { vpn, period, from, .. } = *s {
            assert_eq!((period, from), (ring::PERIOD, NodeId(0)));
            counts[usize::from(spans[1].holds(vpn))] += 1;
        }
    }
    let all = counts[0] + counts[1];
    // 16 M accesses and the first touches.
    assert!((1590..=1605).contains(&all), "{counts:?}");
    assert!(counts[0].abs_diff(counts[1]) * 20 < all, "{counts:?}");
    assert_eq!(m.spent().sampled, all * t.costs.get(Cost::PmuSample));
}

#[test]
fn hint_faults_show_page_and_nodes_and_the_ring_is_bounded() {
    let t = topology(40_000, 40_000, 2);
    // The node is too small to have plenty of room, and the rate is 0: the kernel's own
    // promotion stays out of it.
    let mut m = booted(&t, Source::HintFault, &[("scan_period_min_ms", "16")]);
    let steps = vec![touch("a"), scanned("a"), access("a")];
    let (who, spans) = m.spawn(process(&[0], vec![map("a", 20_000, 1)], steps), None);
    let mut seen = see(&mut m, 500);
    let faults = |seen: &[Seen]| seen.iter().filter(|s| matches!(s, Seen::Fault { .. })).count();
    assert_eq!(faults(&seen), 0, "nobody has asked");
    order(&mut m, 1, Act::Watch { who }).unwrap();
    see(&mut m, 20);
    seen.clear();
    // homenode is stuck for a while: nobody reads.
    let agent = m.sim.agent.take();
    let so_far = m.sim.vmstat().get(Item::NumaHintFaults);
    while m.sim.vmstat().get(Item::NumaHintFaults) < so_far + 3 * ring::RING as u64 {
        assert!(m.sim.now() < Picos::from_secs(60).0, "no faults");
        m.sim.run_until(m.sim.now() + 100_000_000_000);
    }
    m.sim.agent = agent;
    seen.extend(see(&mut m, 10));
    let lost: u64 =
        seen.iter().map(|s| if let Seen::Lost { events } = s { *events } else { 0 }).sum();
    // What fitted, and what came while it was read.
    assert!((ring::RING..2 * ring::RING).contains(&faults(&seen)), "{}", faults(&seen));
    assert!(lost > 0);
    for s in &seen {
        if let Seen::Fault { vpn, from, on, after, .. } = *s {
            assert!(spans[0].holds(vpn));
            assert_eq!((from, on), (NodeId(0), NodeId(1)));
            assert!(after.is_some_and(|a| a < Picos::from_secs(10)), "{after:?}");
        }
    }
    assert_eq!(m.sim.vmstat().get(Item::NumaPagesMigrated), 0, "homenode alone moves pages");
    // A reader that is awake loses nothing: the ring wakes it.
    let seen = see(&mut m, 2000);
    assert!(faults(&seen) > ring::RING, "{}", faults(&seen));
    assert!(!seen.iter().any(|s| matches!(s, Seen::Lost { .. })));
    let err = Simulation::boot(&t, &Setup::default(), 0);
    let mut off = err.expect("a machine");
    off.set_knob("numa_balancing", "0").unwrap();
    let why = SimMachine::new(off, Source::HintFault).err().expect("nothing to see").to_string();
    assert!(why.contains("numa_balancing=3"), "{why}");
}

#[test]
fn the_kernels_shortcut_still_promotes_where_there_is_plenty_of_room() {
    // 1.5 GiB: plenty is 1 GiB above the promo mark.
    let t = topology(393_216, 40_000, 2);
    let mut m = booted(&t, Source::HintFault, &[("scan_period_min_ms", "16")]);
    let steps = vec![touch("a"), scanned("a"), access("a")];
    m.spawn(process(&[0], vec![map("a", 2000, 1)], steps), None);
    see(&mut m, 2000);
    assert!(m.sim.vmstat().get(Item::NumaPagesMigrated) > 1000);
}

#[test]
fn looking_and_moving_cost_homenode_what_the_machine_says() {
    let t = topology(40_000, 40_000, 2);
    let mut m = booted(&t, Source::Damon, &[]);
    let (who, spans) = m.spawn(
        process(&[0], vec![map("a", 3000, 1)], vec![touch("a"), Step::Sleep(Picos::from_secs(50))]),
        None,
    );
    see(&mut m, 50);
    let before = m.spent();
    order(&mut m, 1, Act::Look { who, spans: spans.clone() }).unwrap();
    let seen = see(&mut m, 50);
    let cost = |c| t.costs.get(c);
    assert_eq!(took(&seen, 1).1, Picos(3000 * cost(Cost::PageFrame)));
    let residents: Vec<(NodeId, Pages)> = seen
        .iter()
        .filter_map(|s| {
            if let Seen::Resident { on, pages, .. } = s { Some((*on, *pages)) } else { None }
        })
        .collect();
    assert_eq!(residents, [(NodeId(1), Pages(3000))]);
    let act = Act::Move { who, spans, from: NodeId(1), to: NodeId(0) };
    order(&mut m, 2, act).unwrap();
    let seen = see(&mut m, 50);
    let each = cost(Cost::MigratePage) + cost(Cost::PageCopy);
    let (moved, took) = took(&seen, 2);
    assert_eq!(moved, Pages(3000));
    // Copies meet the load that they make themselves: at least the unloaded time.
    assert!(took.0 >= 3000 * each && took.0 < 3000 * each * 2, "{took:?}");
    let spent = m.spent().homenode - before.homenode;
    assert!(spent > took.0 + 3000 * cost(Cost::PageFrame), "reading and thinking are not free");
}

/// A page that is asked for takes the rest of its huge page along, and what came to a faster tier is all of it.
#[test]
fn what_came_to_a_tier_is_counted_whole_whatever_was_asked_for() {
    let t = topology(40_000, 40_000, 2);
    let mut m = booted(&t, Source::Damon, &[]);
    let huge = Map { huge: Some(true), ..map("a", 2048, 1) };
    let (who, spans) = m.spawn(
        process(&[0], vec![huge], vec![touch("a"), Step::Sleep(Picos::from_secs(50))]),
        None,
    );
    see(&mut m, 50);
    let start = spans[0].start;
    let one = vec![Span { start, end: start + 1 }];
    order(&mut m, 1, Act::Move { who, spans: one, from: NodeId(1), to: NodeId(0) }).unwrap();
    let told = took(&see(&mut m, 50), 1).0;
    assert_eq!(m.sim.vmstat().get(Item::ThpMigrationSuccess), 1);
    assert_eq!((told, m.sim.moved_between_tiers()), (Pages(1), [512, 0]));
}

// specs/sources.md#orders: of two huge pages the one that an order names in part is split whole, and of
// base pages beside them none. After that a page moves by itself, and only what is asked for. A census
// tells what is huge to who wants it, and to nobody else.
#[test]
fn a_huge_page_is_split_by_order_and_then_its_pages_move_one_by_one() {
    let t = topology(40_000, 40_000, 2);
    // khugepaged is not to make one of it again.
    let mut m = booted(&t, Source::Damon, &[("transparent_hugepage", "madvise")]);
    let huge = Map { huge: Some(true), ..map("a", 1024, 1) };
    let steps = vec![touch("a"), touch("b"), Step::Sleep(Picos::from_secs(50))];
    let (who, spans) = m.spawn(process(&[0], vec![huge, map("b", 600, 1)], steps), None);
    see(&mut m, 50);
    let census = |m: &mut SimMachine, id| {
        order(m, id, Act::Census { who }).unwrap();
        let huge = see(m, 50).into_iter().filter_map(|s| match s {
            Seen::Huge { who: of, span } if of == who => Some(span),
            _ => None,
        });
        huge.collect::<Vec<_>>()
    };
    assert!(census(&mut m, 1).is_empty(), "nobody asked");
    m.tell_huge();
    let [start, middle, end] = [0, 512, 1024].map(|n| spans[0].start + n);
    assert_eq!(start % 512, 0);
    assert_eq!(census(&mut m, 2), [Span { start, end }], "neighbours are one stretch");

    // A part of the first, and 100 base pages.
    let some = Span { start: spans[1].start, end: spans[1].start + 100 };
    let mut named = vec![Span { start: start + 500, end: start + 510 }, some];
    named.sort_unstable();
    order(&mut m, 3, Act::Split { who, spans: named }).unwrap();
    let seen = see(&mut m, 50);
    let Some(Seen::Done { tried, moved, fails, took, .. }) =
        seen.iter().find(|s| matches!(s, Seen::Done { .. }))
    else {
        panic!("{seen:?}")
    };
    assert_eq!((tried.0, moved.0, fails.absent.0, fails.all().0), (110, 10, 100, 100));
    let cost = |c| t.costs.get(c);
    let least = cost(Cost::MigratePage) + 512 * cost(Cost::PteMark);
    assert!(took.0 >= least, "{took:?} of {least}");
    let split = |m: &SimMachine| m.sim.vmstat().get(Item::ThpSplitPage);
    assert_eq!(split(&m), 1);
    assert_eq!(census(&mut m, 4), [Span { start: middle, end }]);
    assert_eq!(m.sim.moved_between_tiers(), [0, 0], "placement is as it was");

    let one = vec![Span { start, end: start + 1 }];
    order(&mut m, 5, Act::Move { who, spans: one, from: NodeId(1), to: NodeId(0) }).unwrap();
    assert_eq!(took_of(&mut m, 5), Pages(1));
    assert_eq!(m.sim.moved_between_tiers(), [1, 0]);
    // Split already: there is nothing left of it to split.
    order(&mut m, 6, Act::Split { who, spans: vec![Span { start, end: middle }] }).unwrap();
    assert_eq!((took_of(&mut m, 6), split(&m)), (Pages(0), 1));
    let nothing = Act::Split { who, spans: Vec::new() };
    assert_eq!(order(&mut m, 7, nothing), Err(ApplyError::BadSpan));
}

/// What an order came to.
fn took_of(m: &mut SimMachine, id: u64) -> Pages {
    let seen = see(m, 50);
    took(&seen, id).0
}

// specs/compare.md#busy
#[test]
fn busy_threads_take_turns_with_a_program_where_no_cpu_is_idle() {
    // By CPUs, and threads that are kept busy: what the program has of a CPU, and what they have.
    for (cpus, threads, of_program, of_threads) in [
        (1, 0, 100, 0),
        (1, 1, 50, 50),
        (1, 3, 25, 75),
        (2, 1, 100, 100),
        (2, 3, 50, 150),
        (3, 2, 100, 200),
    ] {
        let t = topology(40_000, 40_000, cpus);
        let mut m = booted(&t, Source::Damon, &[]);
        m.keep_busy(threads);
        let mut one = process(&[], vec![map("a", 4000, 0)], vec![touch("a"), access("a")]);
        one.threads = 1;
        let (who, _) = m.spawn(one, None);
        see(&mut m, 1000);
        let (ran, spent, at) = (m.ran(who).unwrap(), m.spent().homenode, m.now());
        see(&mut m, 2000);
        let took = (m.now() - at).0;
        let percent = |ps: u64| ps * 100 / took;
        let program = percent((m.ran(who).unwrap() - ran).0);
        let busy = percent(m.spent().homenode - spent);
        let case = format!("{cpus} CPUs, {threads} threads: {program} and {busy}");
        assert!(program.abs_diff(of_program) <= 3 && busy.abs_diff(of_threads) <= 3, "{case}");
    }
}

// specs/compare.md#busy
#[test]
fn a_machine_keeps_the_cpus_that_are_used_and_as_many_as_are_asked_for() {
    let t = topology(1000, 1000, 6);
    let left = |used: &[u32], spare| {
        let used = used.iter().map(|&c| CpuId(c)).collect();
        let cut = with_spare(&t, &used, spare)?;
        assert_eq!(cut.check(), Ok(()));
        Ok(cut.cpus.iter().map(|c| c.id.0).collect::<Vec<_>>())
    };
    assert_eq!(left(&[1, 4], 0), Ok(vec![1, 4]));
    assert_eq!(left(&[1, 4], 2), Ok(vec![0, 1, 2, 4]));
    assert_eq!(left(&[1, 4], 4), Ok(vec![0, 1, 2, 3, 4, 5]));
    let why = "spare=5: programs may use 2 of the 6 CPUs of the machine \"test\", so 4 are there to spare; \
               ask for no more, bind the programs to fewer CPUs (cpus), or take a machine with more";
    assert_eq!(left(&[1, 4], 5), Err(why.to_owned()));
    // A node that has none would be another tier.
    let mut two = t.clone();
    two.cpus[5].node = NodeId(1);
    let used = [CpuId(0)].into();
    let why = with_spare(&two, &used, 4).expect_err("no CPU there");
    assert!(why.starts_with("spare=4: node 1 would have no CPU left"), "{why}");
    assert!(with_spare(&two, &used, 5).is_ok());
}

#[test]
fn on_one_cpu_homenode_and_a_program_share_it() {
    let t = topology(40_000, 40_000, 1);
    let mut m = booted(&t, Source::Damon, &[]);
    let maps = vec![map("a", 12_000, 1)];
    let (who, spans) = m.spawn(process(&[0], maps, vec![touch("a"), access("a")]), None);
    see(&mut m, 100);
    let (ran, spent, at) = (m.ran(who).unwrap(), m.spent().homenode, m.now());
    for (id, pair) in [(1, (1, 0)), (2, (0, 1)), (3, (1, 0))] {
        let (from, to) = (NodeId(pair.0), NodeId(pair.1));
        order(&mut m, id, Act::Move { who, spans: spans.clone(), from, to }).unwrap();
    }
    let mut out = Vec::new();
    while !out.iter().any(|s| matches!(s, Seen::Done { order, .. } if order.0 == 3)) {
        m.wait(m.now() + Picos::from_ms(5), &mut out).unwrap();
    }
    let (ran, spent, took) = (m.ran(who).unwrap() - ran, m.spent().homenode - spent, m.now() - at);
    // 36,000 moves of 2.7 µs and more; the program gets its slices in between.
    assert!(spent > Picos::from_ms(95).0, "{spent}");
    assert!(ran.0 * 3 > took.0 && spent * 3 > took.0, "{ran:?} and {spent} of {took:?}");
    assert!(ran.0 + spent <= took.0 + Picos::from_ms(1).0, "{ran:?} and {spent} of {took:?}");
}

#[test]
fn shared_pages_stay_and_a_node_at_its_min_takes_none() {
    let t = topology(4_000, 40_000, 2);
    let mut m = booted(&t, Source::Damon, &[]);
    let maps = vec![map("a", 500, 1)];
    let sleep = || Step::Sleep(Picos::from_secs(50));
    let (who, spans) = m.spawn(process(&[0], maps, vec![touch("a"), Step::Fork, sleep()]), None);
    see(&mut m, 50);
    let to_fast = |who, spans: &[Span]| Act::Move {
        who,
        spans: spans.to_vec(),
        from: NodeId(1),
        to: NodeId(0),
    };
    order(&mut m, 1, to_fast(who, &spans)).unwrap();
    let fails = |seen: &[Seen]| {
        seen.iter().find_map(|s| if let Seen::Done { fails, .. } = s { Some(*fails) } else { None })
    };
    let seen = see(&mut m, 150);
    assert_eq!(fails(&seen).unwrap().forbidden, Pages(500), "parent and child map them");
    assert_eq!(seen.iter().filter(|s| matches!(s, Seen::Task { .. })).count(), 2);

    let (big, spans) =
        m.spawn(process(&[1], vec![map("b", 9000, 1)], vec![touch("b"), sleep()]), None);
    see(&mut m, 50);
    order(&mut m, 2, to_fast(big, &spans)).unwrap();
    let f = fails(&see(&mut m, 100)).unwrap();
    assert!(f.no_room.0 >= 5000 && f.no_room == f.all(), "{f:?}");
    let min = m.sim.kernel.marks[0].min.0;
    assert!(m.sim.kernel.memory.zones[0].free >= min);
}

#[test]
fn knobs_are_read_and_written_with_the_kernels_errors() {
    use homenode_core::knobs::Knob;
    let mut m = booted(&topology(4000, 4000, 1), Source::Damon, &[]);
    assert_eq!(m.knob(KnobOp::Read(Knob::Swappiness)).unwrap(), "60");
    assert_eq!(m.knob(KnobOp::Write(Knob::Swappiness, "10")).unwrap(), "10");
    let err = m.knob(KnobOp::Write(Knob::Swappiness, "1000")).unwrap_err();
    assert_eq!(err.errno.name(), "EINVAL");
    assert_eq!(m.knob(KnobOp::Read(Knob::Swappiness)).unwrap(), "10");
}

#[test]
fn twice_the_same_with_each_source() {
    let t = topology(3_000, 20_000, 2);
    for source in Source::ALL {
        let once = || {
            let mut m = booted(&t, source, &[("demotion_enabled", "true")]);
            let maps = vec![map("a", 6000, 0)];
            let (who, spans) = m.spawn(process(&[0, 1], maps, vec![touch("a"), access("a")]), None);
            order(&mut m, 1, Act::Watch { who }).unwrap();
            let mut seen = see(&mut m, 300);
            let act = Act::Move { who, spans, from: NodeId(1), to: NodeId(0) };
            order(&mut m, 2, act).unwrap();
            seen.extend(see(&mut m, 300));
            (m.hash(), seen)
        };
        let (a, b) = (once(), once());
        assert!(a == b, "{}", source.name());
    }
}
