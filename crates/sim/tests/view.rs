//! A look at simulated machines: what `homenode observe` would show, by the same fold.
//!
//! Source: specs/observe.md#view.

use homenode_core::costs::{Constant, Costs};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::scenario::{Content, Map, Mempolicy, Pattern, Process, Step, Until};
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::{Cpu, Hardware as Topology, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{Bytes, CpuId, NodeId, Pages, Picos};
use homenode_core::view::{Heat, Settings, Usage, View};
use homenode_machine::Machine as _;
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::{Setup, Simulation};

/// DRAM with a CPU and an expander.
fn topology() -> Topology {
    let c = |v| Constant::assumed(v, "a test's round figure");
    let node = |id, medium, kind| {
        let zones = vec![Zone { kind, managed: Pages(40_000) }];
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
            node(0, Medium::Dram, ZoneKind::Normal),
            node(1, Medium::Cxl, ZoneKind::Movable),
        ],
        cpus: (0..2)
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

/// 600 hot pages with that policy, 3000 cold ones in DRAM.
fn process(policy: Mempolicy) -> Process {
    let touch = |map: &str| Step::Touch { map: map.into() };
    let access = Step::Access {
        map: "hot".into(),
        pattern: Pattern::Uniform,
        write: 0,
        compute: Picos(0),
        mlp: 1,
        until: Until::Time(Picos::from_secs(1000)),
    };
    // Without a policy of its own: the kernel's scan leaves others alone.
    let scanned = Step::Mbind { map: "hot".into(), policy: Mempolicy::Default };
    let maps = vec![Map { policy, ..map("hot", 600, 1) }, map("cold", 3000, 0)];
    let steps = vec![touch("cold"), touch("hot"), scanned, access];
    Process::new("p", vec![CpuId(0)], maps, steps)
}

/// A machine that is observed for some periods of a second; the rows of the last.
fn observe(source: Source, periods: u64) -> (Who, View, Vec<Usage>) {
    observe_in(source, periods, Mempolicy::Preferred(NodeId(1)), Pages(1 << 16))
}

/// Hot memory with that policy; asking for so many pages at the end of a period.
fn observe_in(
    source: Source,
    periods: u64,
    policy: Mempolicy,
    most: Pages,
) -> (Who, View, Vec<Usage>) {
    let topology = topology();
    let mut knobs = knobs_for(source);
    knobs.push(("scan_delay_ms".into(), "0".into()));
    let setup = Setup { knobs, seed: 1, room: 1 << 18, ..Setup::default() };
    let sim = Simulation::boot(&topology, &setup, 0).expect("a machine");
    let mut m = SimMachine::new(sim, source).expect("a source");
    let tiers = Tiers::new(&topology, Firmware::Silent, KernelVersion::default());
    let mut view = View::new(Settings::default(), source, &topology, &tiers);
    let (who, _) = m.spawn(process(policy), None);
    let act = Act::Watch { who };
    let (expect, why) = (Benefit::default(), Reason::SourceNeeds);
    m.submit(&Order { id: OrderId(1), act, expect, why }).expect("it is there");
    let mut rows = Vec::new();
    for period in 1..=periods {
        let until = Picos::from_secs(period);
        while m.now() < until {
            let mut seen: Vec<Seen> = Vec::new();
            m.wait(until, &mut seen).expect("the program runs");
            view.handle(m.now(), &seen);
        }
        ask(&mut m, &mut view, period, most);
        rows = view.rows(m.now());
    }
    (who, view, rows)
}

/// Asks what the view wants to know, and waits for the answers.
fn ask(m: &mut SimMachine, view: &mut View, period: u64, most: Pages) {
    let mut open = 0;
    for (i, act) in view.ask(most).into_iter().enumerate() {
        let id = OrderId(period * 1000 + i as u64);
        let (expect, why) = (Benefit::default(), Reason::SourceNeeds);
        m.submit(&Order { id, act, expect, why }).expect("it is there");
        open += 1;
    }
    while open > 0 {
        let mut seen: Vec<Seen> = Vec::new();
        m.wait(m.now() + Picos::from_ms(10), &mut seen).expect("the program runs");
        view.handle(m.now(), &seen);
        open -= seen.iter().filter(|s| matches!(s, Seen::Done { .. })).count();
    }
}

fn row(rows: &[Usage], who: Who) -> &Usage {
    rows.iter().find(|r| r.who == who).expect("it has a row")
}

#[test]
fn damon_shows_how_much_is_hot_and_where() {
    let (who, view, rows) = observe(Source::Damon, 5);
    let r = row(&rows, who);
    assert_eq!(r.resident, Pages(3600));
    assert_eq!(r.node, Some(NodeId(0)));
    assert!(r.cpu.is_some_and(|c| (900..=1000).contains(&c)), "it never sleeps: {:?}", r.cpu);
    assert!(r.by_node.is_empty(), "nobody has looked where its pages are");
    let heat = r.heat.as_ref().expect("DAMON has told");
    // Regions don't end just where the mapping does.
    assert!((500..1500).contains(&heat.touched.0), "{heat:?}");
    assert!(heat.hot.is_some_and(|hot| (300..1200).contains(&hot.0)), "{heat:?}");
    assert!(heat.rate > 1000 * 10 * 300, "{heat:?}");
    // It has told addresses; the pages there are on the expander.
    let hot = heat.hot_by_node.as_ref().expect("it was asked for");
    assert_eq!(hot.values().copied().sum::<Pages>(), heat.hot.unwrap(), "{heat:?}");
    assert!(hot[&NodeId(1)].0 * 10 >= heat.hot.unwrap().0 * 8, "{heat:?}");
    assert_eq!(heat.hot_error, Some(Pages(0)), "each page was looked at");
    assert!(heat.local.is_some_and(|l| l <= 200), "it runs on the other node: {heat:?}");
    assert!(r.age < Picos::from_secs(1));
    assert_eq!((view.totals().processes, view.totals().unknown), (1, 0));
}

// Few pages stand for all: less is known, which is told, and it is not wrong by more.
#[test]
fn what_is_looked_at_in_part_says_how_far_it_may_be_off() {
    let look = |most| {
        let both = Mempolicy::Interleave(vec![NodeId(0), NodeId(1)]);
        let (who, _, rows) = observe_in(Source::Damon, 5, both, Pages(most));
        row(&rows, who).heat.clone().expect("DAMON has told")
    };
    let (all, part) = (look(1 << 16), look(30));
    let on = |h: &Heat| h.touched_by_node.as_ref().expect("asked for")[&NodeId(1)].0;
    let error = part.touched_error.expect("asked for").0;
    assert_eq!(all.touched_error, Some(Pages(0)));
    assert!(on(&part).abs_diff(on(&all)) <= error, "{part:?} but {all:?}");
    assert!(0 < error && error < part.touched.0, "{part:?}");
}

#[test]
fn hint_faults_show_where_it_is_and_who_is_near() {
    let (who, _, rows) = observe(Source::HintFault, 3);
    let heat = row(&rows, who).heat.as_ref().expect("the scan comes by each second");
    assert!(heat.at_least && heat.rate > 0 && heat.touched <= Pages(3600), "{heat:?}");
    let by_node = heat.touched_by_node.as_ref().expect("a fault tells the page's node");
    assert_eq!(by_node.values().copied().sum::<Pages>(), heat.touched);
    assert!(heat.local.is_some());
}

#[test]
fn samples_show_the_mapping_that_is_accessed() {
    let (who, _, rows) = observe(Source::Pmu, 3);
    let heat = row(&rows, who).heat.as_ref().expect("there are samples");
    assert!(heat.touched.0 > 100 && heat.touched.0 <= 600, "{heat:?}");
    assert!(!heat.at_least && heat.rate > 0 && heat.hot.is_none());
    let all = std::collections::BTreeMap::from([(NodeId(1), heat.touched)]);
    assert_eq!(heat.touched_by_node, Some(all), "only the expander's are accessed");
}

#[test]
fn residency_shows_no_heat() {
    let (who, _, rows) = observe(Source::Residency, 2);
    assert_eq!(row(&rows, who).heat, None);
    assert_eq!(row(&rows, who).resident, Pages(3600));
}
