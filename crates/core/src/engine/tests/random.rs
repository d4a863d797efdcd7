//! Properties, on random streams of observations, likely and unlikely ones.

use super::rig::{expander, machine};
use crate::engine::{Engine, Settings};
use crate::kernel::KernelVersion;
use crate::offcore::Offcore;
use crate::policy::Policy as _;
use crate::policy::order::{Act, Evidence, Fails, Order, OrderId};
use crate::policy::seen::{Seen, Source, Span, Who, ZoneSeen};
use crate::tiering::watermarks::ZoneMarks;
use crate::topology::{Hardware, Medium, ZoneKind};
use crate::units::{NodeId, Pages, Picos};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::{BTreeMap, BTreeSet};

/// `migrate_page` and `page_copy` where a machine's file is silent.
const PER_PAGE: u64 = 2_700_000;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Passes(u64),
    Sees(Seen),
    /// The n-th open order reports: how many of a thousand pages it names it tried,
    /// moved, and why the others failed.
    Reports {
        nth: usize,
        tried: u64,
        moved: u64,
        cause: u8,
        took: u64,
    },
    /// The n-th open order, if it looks, finds its spans on a node.
    Finds {
        nth: usize,
        on: u16,
    },
    /// All nodes have so much free, with sensible marks: 10, 20, 30, 40 pages.
    Nodes(u64),
    /// All open orders succeed; a look finds each span on that node or the next one.
    Succeed(u16),
    /// A report about no order.
    Strays(u64),
}

fn some_u64() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..5_000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn some_who() -> impl Strategy<Value = Who> {
    (1..4u32, prop_oneof![20 => Just(1u64), 1 => 2..4u64])
        .prop_map(|(pid, start)| Who { pid, start })
}

fn some_node() -> impl Strategy<Value = NodeId> {
    prop_oneof![9 => 0..4u16, 1 => any::<u16>()].prop_map(NodeId)
}

fn some_span() -> impl Strategy<Value = Span> {
    prop_oneof![
        9 => (0..4_000u64, 1..1_000u64).prop_map(|(s, n)| Span { start: s, end: s + n }),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(start, end)| Span { start, end }),
    ]
}

fn some_seen() -> impl Strategy<Value = Seen> {
    let ps = || some_u64().prop_map(|ms| Picos(ms.saturating_mul(1_000_000_000)));
    let zone = (some_u64(), some_u64(), 0..100u64).prop_map(|(free, managed, min)| ZoneSeen {
        free: Pages(free),
        marks: ZoneMarks {
            kind: ZoneKind::Normal,
            managed: Pages(managed),
            min: Pages(min),
            low: Pages(min * 2),
            high: Pages(min.saturating_mul(managed)),
            promo: Pages(min * 4),
            reserve: Pages(0),
        },
    });
    prop_oneof![
        6 => (some_who(), ps(), proptest::option::of(some_node()), some_u64())
            .prop_map(|(who, ran, node, n)| Seen::Task { who, ran, node, resident: Pages(n) }),
        1 => some_who().prop_map(|who| Seen::Gone { who }),
        9 => (some_who(), some_span(), 0..25u32, prop_oneof![9 => Just(20u32), 1 => any::<u32>()],
              ps(), ps())
            .prop_map(|(who, span, accessed, checks, every, age)| {
                Seen::Region { who, span, accessed, checks, every, age }
            }),
        6 => (some_who(), some_u64(), some_node(), some_node(), proptest::option::of(ps()))
            .prop_map(|(who, vpn, from, on, after)| Seen::Fault { who, vpn, from, on, after }),
        6 => (some_who(), some_u64(), some_node(), some_u64())
            .prop_map(|(who, vpn, from, period)| Seen::Sample { who, vpn, from, period }),
        3 => (some_who(), some_u64(), some_u64(), some_u64()).prop_map(|(who, reads, busy, all)| {
            let counted = Offcore { reads, busy: Picos(busy), under_way: Picos(all) };
            Seen::Loads { who, counted }
        }),
        2 => (some_who(), some_span(), some_node(), some_u64())
            .prop_map(|(who, span, on, n)| Seen::Resident { who, span, on, pages: Pages(n) }),
        6 => (
            some_node(),
            proptest::collection::vec(zone, 0..3),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
        )
            .prop_map(|(node, zones, load, idle)| Seen::Node { node, zones, load, idle }),
        1 => some_u64().prop_map(|events| Seen::Lost { events }),
        1 => Just(Seen::Stale { since: Picos(0) }),
    ]
}

fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => some_seen().prop_map(Event::Sees),
        5 => prop_oneof![20 => 0..1_500u64, 1 => Just(400_000_000u64)]
            .prop_map(Event::Passes),
        8 => (any::<usize>(), 0..=1000u64, 0..=1000u64, 0..7u8, 0..=1000u64)
            .prop_map(|(nth, tried, moved, cause, took)| {
                Event::Reports { nth, tried, moved, cause, took }
            }),
        4 => prop_oneof![0..60u64, 0..3_000u64].prop_map(Event::Nodes),
        8 => (0..4u16).prop_map(Event::Succeed),
        8 => (any::<usize>(), 0..4u16).prop_map(|(nth, on)| Event::Finds { nth, on }),
        1 => any::<u64>().prop_map(Event::Strays),
    ]
}

/// What a bystander knows of a run, and holds against the promises.
#[derive(Default)]
struct Bystander {
    last_id: u64,
    dead: BTreeSet<Who>,
    newest: BTreeMap<u32, Who>,
    watched: BTreeSet<Who>,
    open: BTreeMap<OrderId, Order>,
    used_pages: u64,
    /// Processor time of looks, and of moves.
    used_cpu: [u64; 2],
    log: Vec<String>,
}

fn spans(order: &Order) -> &[Span] {
    match &order.act {
        Act::Look { spans, .. } | Act::Move { spans, .. } => spans,
        _ => &[],
    }
}

fn named(order: &Order) -> u64 {
    spans(order).iter().map(|s| s.end - s.start).sum()
}

impl Bystander {
    fn sees(&mut self, seen: &Seen) {
        match *seen {
            Seen::Gone { who } => {
                self.dead.insert(who);
                self.replaced_by(who);
            }
            Seen::Task { who, .. } => self.replaced_by(who),
            _ => {}
        }
    }

    /// A PID that means another process now has lost the former.
    fn replaced_by(&mut self, who: Who) {
        let old = *self.newest.entry(who.pid).or_insert(who);
        if old.start < who.start {
            self.dead.insert(old);
            self.newest.insert(who.pid, who);
        }
    }

    fn cost(order: &Order, settings: &Settings) -> u64 {
        let each = match order.act {
            Act::Look { .. } => settings.look_page.0,
            // It names no pages.
            Act::Census { .. } => return order.expect.costs.0,
            _ => PER_PAGE,
        };
        named(order) * each
    }

    fn takes(
        &mut self,
        order: Order,
        now: Picos,
        settings: &Settings,
        most_pages: u64,
        gained: Picos,
    ) {
        assert!(order.id.0 > self.last_id, "numbers rise");
        self.last_id = order.id.0;
        let who = order.act.who().expect("all orders are about a process");
        assert!(!self.dead.contains(&who), "no order for a process that is gone: {order}");
        self.log.push(order.to_string());
        match &order.act {
            Act::Watch { .. } => assert!(self.watched.insert(who), "sampled once: {order}"),
            Act::Census { .. } => assert!(self.watched.contains(&who), "sampled first: {order}"),
            Act::Look { .. } | Act::Move { .. } => {
                assert!(self.watched.contains(&who), "sampled first: {order}");
                assert!(!spans(&order).is_empty());
                assert!(spans(&order).iter().all(|s| s.start < s.end), "{order}");
                assert!(spans(&order).windows(2).all(|w| w[0].end <= w[1].start), "{order}");
                assert!(named(&order) <= most_pages, "{order}");
                for other in self.open.values().filter(|o| o.act.who() == Some(who)) {
                    for (a, b) in
                        spans(other).iter().flat_map(|a| spans(&order).iter().map(move |b| (a, b)))
                    {
                        assert!(a.end <= b.start || b.end <= a.start, "{other} and {order}");
                    }
                }
            }
            Act::Affine { .. } => {
                assert!(self.watched.contains(&who), "sampled first: {order}");
                assert!(order.expect.saves > order.expect.costs, "{order}: {:?}", order.expect);
                let open = self.open.values().filter(|o| o.act == order.act);
                assert_eq!(open.count(), 0, "{order}");
            }
            Act::Split { .. } | Act::Unwatch { .. } | Act::SetKnob { .. } => {
                panic!("{order} is not ordered by this engine")
            }
        }
        if let Act::Move { from, to, .. } = order.act {
            assert_ne!(from, to);
            assert!(order.expect.saves > order.expect.costs, "{order}: {:?}", order.expect);
            assert!(named(&order) * PER_PAGE <= settings.stall.0.max(PER_PAGE), "{order}");
            self.used_pages += named(&order);
        }
        let moves = usize::from(matches!(order.act, Act::Move { .. }));
        self.used_cpu[moves] += Self::cost(&order, settings);
        let horizon = u128::from(settings.horizon.0);
        let rate = settings.moved_mbps.0 * 1_000_000 / 4096;
        let pages = u128::from(rate) * u128::from(now.0) / 1_000_000_000_000;
        let most = pages + u128::from(rate) * horizon / 1_000_000_000_000;
        // Those that have paid for their moves come on top, but not beyond what all may move.
        let most = most + u128::from(gained.0 / PER_PAGE);
        assert!(u128::from(self.used_pages) <= most, "{order}");
        let rate = u128::from(settings.most_mbps.0 * 1_000_000 / 4096);
        let traffic = rate * (u128::from(now.0) + 1_000_000_000_000) / 1_000_000_000_000;
        assert!(u128::from(self.used_pages) <= traffic, "{order}");
        // A horizon of it may be saved up at the start; moves have what they gained, too.
        let cpu = u128::from(settings.cpu_permille) * (u128::from(now.0) + horizon) / 1000;
        assert!(u128::from(self.used_cpu[0]) <= cpu, "{order}");
        assert!(u128::from(self.used_cpu[1]) <= cpu + u128::from(gained.0), "{order}");
        self.open.insert(order.id, order);
    }
}

fn run(
    m: &Hardware,
    source: Source,
    lacks: &[Evidence],
    settings: Settings,
    events: &[Event],
) -> Vec<String> {
    let most_pages = 1000;
    let mut engine = Engine::new(settings, m, KernelVersion::V6_12, source, lacks, most_pages)
        .bringing_threads(true);
    let mut by = Bystander::default();
    let mut now = Picos(0);
    let mut nr_done = 0;
    for event in events {
        let mut seen = Vec::new();
        let nth = |n: usize| by.open.values().nth(n % by.open.len().max(1)).cloned();
        match event {
            Event::Passes(ms) => now = Picos(now.0.saturating_add(ms * 1_000_000_000)),
            Event::Sees(s) => seen.push(s.clone()),
            Event::Finds { nth: n, on } => {
                let order = nth(*n).filter(|o| matches!(o.act, Act::Look { .. }));
                for (order, &span) in
                    order.iter().flat_map(|o| spans(o).iter().map(move |s| (o, s)))
                {
                    let (who, on) = (order.act.who().unwrap(), NodeId(*on));
                    seen.push(Seen::Resident { who, span, on, pages: span.pages() });
                }
            }
            Event::Nodes(free) => seen.extend(m.nodes.iter().map(|n| Seen::Node {
                node: n.id,
                zones: vec![ZoneSeen { free: Pages(*free), marks: marks(n.managed()) }],
                load: None,
                idle: Some(u32::try_from(*free).unwrap_or(u32::MAX)),
            })),
            Event::Succeed(on) => {
                for order in std::mem::take(&mut by.open).into_values() {
                    nr_done += 1;
                    let who = order.act.who().unwrap();
                    let looks = matches!(order.act, Act::Look { .. });
                    for (i, &span) in spans(&order).iter().enumerate().filter(|_| looks) {
                        let on = NodeId((on + i as u16 % 2) % m.nodes.len() as u16);
                        seen.push(Seen::Resident { who, span, on, pages: span.pages() });
                    }
                    let mut pages = Pages(if looks { 0 } else { named(&order) });
                    if matches!(order.act, Act::Census { .. }) {
                        let on = NodeId(on % m.nodes.len() as u16);
                        let span = Span { start: 1, end: 5_000 };
                        pages = span.pages();
                        seen.push(Seen::Resident { who, span, on, pages });
                    }
                    seen.push(Seen::Done {
                        order: order.id,
                        tried: pages,
                        moved: pages,
                        fails: Fails::default(),
                        took: Picos(Bystander::cost(&order, &settings)),
                    });
                }
            }
            Event::Reports { nth: n, tried, moved, cause, took } => {
                if let Some(order) = nth(*n) {
                    by.open.remove(&order.id);
                    nr_done += 1;
                    let tried = named(&order) * tried / 1000;
                    let moved = tried * moved / 1000;
                    let mut fails = Fails::default();
                    let rest = Pages(tried - moved);
                    match cause {
                        0 => fails.no_room = rest,
                        1 => fails.busy = rest,
                        2 => fails.absent = rest,
                        3 => fails.forbidden = rest,
                        4 => fails.gone = rest,
                        5 => {
                            (fails.busy, fails.forbidden) =
                                (Pages(rest.0 / 2), Pages(rest.0 - rest.0 / 2))
                        }
                        _ => {}
                    }
                    let cost = Bystander::cost(&order, &settings);
                    let took = cost / 1000 * took;
                    let moves = usize::from(matches!(order.act, Act::Move { .. }));
                    by.used_cpu[moves] -= cost - took;
                    if let Act::Move { .. } = order.act {
                        by.used_pages -= named(&order) - moved;
                    }
                    if fails.gone.0 > 0 {
                        by.dead.insert(order.act.who().unwrap());
                    }
                    seen.push(Seen::Done {
                        order: order.id,
                        tried: Pages(tried),
                        moved: Pages(moved),
                        fails,
                        took: Picos(took),
                    });
                }
            }
            Event::Strays(n) => seen.push(Seen::Done {
                order: OrderId(n.saturating_add(1_000_000)),
                tried: Pages(*n),
                moved: Pages(*n),
                fails: Fails { busy: Pages(*n), ..Fails::default() },
                took: Picos(*n),
            }),
        }
        seen.iter().for_each(|s| by.sees(s));
        engine.handle(now, &seen);
        while let Some(order) = engine.poll() {
            let gained = engine.ledger().gained;
            by.takes(order, now, &settings, most_pages, gained);
        }
        assert!(engine.timeout().is_some_and(|t| t > now), "it does not spin");
    }
    let ledger = engine.ledger();
    let t = ledger.total();
    assert_eq!(t.moved + t.fails.all() + ledger.unexplained, t.tried + ledger.overexplained);
    assert_eq!(ledger.done, nr_done);
    assert_eq!(engine.open().count(), by.open.len(), "every order is open until it reports");
    let handed: u64 = ledger.ordered.values().map(|t| t.times).sum();
    assert_eq!(handed, by.log.len() as u64);
    for (who, p) in &engine.processes {
        assert!(p.map.len() <= 3 * settings.most_spans.max(16 * 8), "{who}: {}", p.map.len());
    }
    by.log
}

fn marks(managed: Pages) -> ZoneMarks {
    ZoneMarks {
        kind: ZoneKind::Normal,
        managed,
        min: Pages(10),
        low: Pages(20),
        high: Pages(30),
        promo: Pages(40),
        reserve: Pages(0),
    }
}

fn machines() -> [Hardware; 2] {
    [
        expander(5_000, 20_000),
        machine(&[
            (Medium::Dram, 3_000, true),
            (Medium::Dram, 3_000, true),
            (Medium::Cxl, 9_000, false),
            (Medium::Cxl, 9_000, false),
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    // specs/engine.md#budgets, specs/engine.md#ledger, specs/engine.md#processes
    #[test]
    fn promises_hold_on_any_stream(
        events in proptest::collection::vec(some_event(), 1..250),
        source in 0..4usize,
        two in any::<bool>(),
        lacks in proptest::collection::vec(0..8usize, 0..2),
        most_spans in prop_oneof![Just(16usize), Just(1 << 16)],
    ) {
        let all = [Evidence::Heat, Evidence::Cpu, Evidence::Place, Evidence::Marks];
        let lacks: Vec<Evidence> = lacks.iter().filter_map(|i| all.get(*i).copied()).collect();
        // A process is sampled from the first: what follows is not about slow start.
        let settings = Settings { start_delay: Picos(0), most_spans, ..Settings::default() };
        let m = &machines()[usize::from(two)];
        let first = run(m, Source::ALL[source], &lacks, settings, &events);
        let again = run(m, Source::ALL[source], &lacks, settings, &events);
        prop_assert_eq!(first, again);
    }
}

/// Random streams must reach what they are to test: all kinds of orders come about.
#[test]
fn random_streams_reach_looks_and_moves() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let settings = Settings { start_delay: Picos(0), ..Settings::default() };
    let mut reached = BTreeMap::<String, u32>::new();
    for i in 0..120 {
        let events = proptest::collection::vec(some_event(), 250)
            .new_tree(&mut runner)
            .expect("a stream")
            .current();
        let source = Source::ALL[i / 2 % 3];
        for line in run(&machines()[i % 2], source, &[], settings, &events) {
            let reason = line.rsplit('(').next().unwrap_or_default().trim_end_matches(')');
            *reached.entry(reason.to_owned()).or_default() += 1;
        }
    }
    for reason in ["slow_start_over", "memory_unknown", "place_unknown", "hot", "make_room"] {
        assert!(reached.contains_key(reason), "{reason} never came about: {reached:?}");
    }
}
