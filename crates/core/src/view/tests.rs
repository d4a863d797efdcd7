//! What is told, and the rows that it makes: stories of one, two and three nodes.

use super::*;
use crate::fixtures;
use crate::kernel::KernelVersion;
use crate::tiering::tiers::Firmware;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Nodes of DRAM with a CPU each, and one of an expander behind them.
fn machine(dram: u16, cxl: u16) -> Hardware {
    let dram = (0..dram).map(|_| fixtures::dram(1 << 20, 1));
    let cxl = (0..cxl).map(|_| fixtures::cxl(1 << 20));
    fixtures::machine(&dram.chain(cxl).collect::<Vec<_>>())
}

fn view(source: Source, m: &Hardware) -> View {
    let tiers = Tiers::new(m, Firmware::Silent, KernelVersion::default());
    View::new(Settings::default(), source, m, &tiers)
}

const A: Who = Who { pid: 10, start: 5 };
const B: Who = Who { pid: 11, start: 7 };

fn s(seconds: u64) -> Picos {
    Picos::from_secs(seconds)
}
fn task(who: Who, ran_ms: u64, node: Option<u16>, resident: u64) -> Seen {
    let (ran, node) = (Picos::from_ms(ran_ms), node.map(NodeId));
    Seen::Task { who, ran, node, resident: Pages(resident) }
}
fn census(who: Who, on: u16, pages: u64) -> Seen {
    Seen::Resident { who, span: Span::WHOLE, on: NodeId(on), pages: Pages(pages) }
}
fn region(who: Who, start: u64, end: u64, accessed: u32) -> Seen {
    let (span, every) = (Span { start, end }, Picos::from_ms(5));
    Seen::Region { who, span, accessed, checks: 20, every, age: s(1) }
}
fn fault(who: Who, vpn: u64, from: u16, on: u16, after_ms: Option<u64>) -> Seen {
    let after = after_ms.map(Picos::from_ms);
    Seen::Fault { who, vpn, from: NodeId(from), on: NodeId(on), after }
}

fn show(rows: &[Usage]) -> String {
    let nodes = |by: &BTreeMap<NodeId, Pages>| {
        let all: Vec<String> = by.iter().map(|(n, p)| format!("{n}:{}", p.0)).collect();
        all.join(",")
    };
    let placed = |by: &Option<BTreeMap<NodeId, Pages>>, error: Option<Pages>| {
        assert_eq!(by.is_some(), error.is_some());
        let off = error.filter(|e| e.0 > 0).map_or(String::new(), |e| format!(" +-{}", e.0));
        by.as_ref().map_or("?".into(), |by| nodes(by) + &off)
    };
    let mut out = String::new();
    for r in rows {
        let tiers: Vec<String> = r.by_tier.iter().map(|(t, p)| format!("{t}:{}", p.0)).collect();
        out += &format!(
            "{}{} {} cpu {:?} on {:?} resident {} [{}] tiers [{}] local {:?} age {} ms\n",
            r.who,
            if r.gone { " gone" } else { "" },
            r.name,
            r.cpu,
            r.node.map(|n| n.0),
            r.resident.0,
            nodes(&r.by_node),
            tiers.join(","),
            r.local,
            r.age.as_ms()
        );
        if let Some(h) = &r.heat {
            out += &format!(
                "  {}{}/s touched {} [{}] hot {:?} [{}] local {:?}\n",
                if h.at_least { ">=" } else { "" },
                h.rate / 1000,
                h.touched.0,
                placed(&h.touched_by_node, h.touched_error),
                h.hot.map(|p| p.0),
                placed(&h.hot_by_node, h.hot_error),
                h.local
            );
        }
    }
    out
}

fn check(rows: &[Usage], expected: Expect) {
    expected.assert_eq(&show(rows));
}

// specs/observe.md#view: the worked example of the module.
#[test]
fn a_period_of_two_nodes_with_damon() {
    let mut v = view(Source::Damon, &machine(2, 0));
    v.handle(s(1), &[task(A, 500, Some(0), 4000)]);
    v.name(A, "web");
    check(
        &v.rows(s(1)),
        expect![[r#"
            10@5 web cpu None on Some(0) resident 4000 [] tiers [] local None age 0 ms
        "#]],
    );
    let seen = [
        task(A, 2000, Some(0), 4000),
        census(A, 0, 3000),
        census(A, 1, 1000),
        region(A, 100, 1100, 20),
        region(A, 5000, 9000, 0),
    ];
    v.handle(s(6), &seen);
    check(
        &v.rows(s(6)),
        expect![[r#"
            10@5 web cpu Some(300) on Some(0) resident 4000 [0:3000,1:1000] tiers [4:4000] local Some(750) age 0 ms
              >=200000/s touched 1000 [?] hot Some(1000) [?] local None
        "#]],
    );
    v.handle(s(11), &[task(A, 2000, None, 4000), census(A, 1, 4000)]);
    check(
        &v.rows(s(11)),
        expect![[r#"
            10@5 web cpu Some(0) on None resident 4000 [1:4000] tiers [4:4000] local None age 5000 ms
        "#]],
    );
}

fn place(who: Who, start: u64, end: u64, on: u16, pages: u64) -> Seen {
    Seen::Resident { who, span: Span { start, end }, on: NodeId(on), pages: Pages(pages) }
}

// DAMON tells no nodes: they are asked for, of the last aggregation's regions; what was told
// is divided as the answers say. 100 · 200/s on node 1, 300 · 10/s of which a third on node 0.
#[test]
fn where_it_is_hot_is_asked_for() {
    let mut v = view(Source::Damon, &machine(1, 1));
    let told = [
        task(A, 0, Some(0), 4000),
        census(A, 0, 1000),
        census(A, 1, 3000),
        region(A, 700, 900, 20),
        region(A, 100, 200, 20),
        region(A, 300, 500, 0),
        region(A, 500, 800, 1),
    ];
    v.handle(s(0), &told);
    let spans = [(100, 200), (500, 800)].map(|(start, end)| Span { start, end }).to_vec();
    assert_eq!(v.ask(Pages(10_000)), [Act::Look { who: A, spans }]);
    let answers =
        [place(A, 100, 200, 1, 100), place(A, 500, 800, 0, 100), place(A, 500, 800, 1, 200)];
    v.handle(s(1), &answers);
    v.handle(s(1), &[place(A, 100, 201, 1, 100)]);
    // An aggregation that ends meanwhile counts as the others do, but was not asked for.
    v.handle(s(1), &[region(A, 100, 200, 20), region(A, 300, 800, 0)]);
    check(
        &v.rows(s(5)),
        expect![[r#"
            10@5  cpu None on Some(0) resident 4000 [0:1000,1:3000] tiers [4:1000,22:3000] local Some(250) age 4000 ms
              >=27666/s touched 500 [0:125,1:375] hot Some(233) [0:58,1:175] local Some(43)
        "#]],
    );
    assert_eq!(v.totals().unknown, 1, "nobody asked for that");
    assert_eq!(v.ask(Pages(10_000)), [], "nothing was accessed since");
}

// Shares of what may be asked for follow what was accessed.
#[test]
fn what_is_asked_for_is_bounded_over_all_processes() {
    let mut v = view(Source::Damon, &machine(2, 0));
    for (who, end) in [(A, 30_000), (B, 10_000)] {
        v.handle(s(0), &[task(who, 0, Some(0), end), region(who, 0, end, 20)]);
        v.handle(s(0), &[census(who, 0, 5), census(who, 1, end - 5)]);
    }
    let asked = v.ask(Pages(400)).into_iter().map(|act| {
        let pages: u64 = act.spans().iter().map(|s| s.pages().0).sum();
        (act.who(), act.spans().len(), pages)
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(Some(A), 5, 300), (Some(B), 2, 100)]);
}

#[test]
fn samples_are_asked_for_page_by_page() {
    let sample = |vpn| Seen::Sample { who: A, vpn, from: NodeId(0), period: 10_000 };
    let mut v = view(Source::Pmu, &machine(2, 0));
    v.handle(s(0), &[task(A, 0, None, 300), sample(1), sample(2), sample(9)]);
    let spans = [(1, 3), (9, 10)].map(|(start, end)| Span { start, end }).to_vec();
    assert_eq!(v.ask(Pages(100)), [Act::Look { who: A, spans }]);
    v.handle(s(0), &[place(A, 1, 3, 0, 2), place(A, 9, 10, 1, 1)]);
    let rows = v.rows(s(5));
    let heat = rows[0].heat.as_ref().unwrap();
    let by_node = [(0, 2), (1, 1)].map(|(n, p)| (NodeId(n), Pages(p)));
    assert_eq!(heat.touched_by_node, Some(BTreeMap::from(by_node)));
}

// One node, hint faults (they tell it themselves), no source, a process that has ended.
#[test]
fn nothing_is_asked_for_that_is_known_or_that_nobody_wants() {
    let told = [task(A, 0, Some(0), 9), census(A, 0, 9), region(A, 0, 9, 20)];
    for source in Source::ALL {
        let mut v = view(source, &machine(2, 0));
        v.handle(s(0), &told);
        v.handle(s(0), &[fault(A, 1, 0, 1, None)]);
        v.handle(s(0), &[Seen::Sample { who: A, vpn: 3, from: NodeId(0), period: 1 }]);
        assert_eq!(v.ask(Pages(100)), [], "{source:?}");
    }
    let mut v = view(Source::Damon, &machine(2, 0));
    v.handle(s(0), &[told[0].clone(), told[2].clone(), Seen::Gone { who: A }]);
    assert_eq!(v.ask(Pages(100)), []);
    let mut v = view(Source::Damon, &machine(1, 0));
    v.handle(s(0), &[told[0].clone(), told[2].clone()]);
    assert_eq!(v.ask(Pages(100)), []);
}

// Two aggregations in one period: their mean; touched is their union.
#[test]
fn several_aggregations_are_taken_together() {
    let mut v = view(Source::Damon, &machine(1, 0));
    v.handle(s(0), &[task(A, 0, Some(0), 900)]);
    v.handle(s(1), &[region(A, 0, 100, 20), region(A, 100, 200, 0)]);
    v.handle(s(2), &[region(A, 0, 100, 0), region(A, 100, 200, 1)]);
    check(
        &v.rows(s(5)),
        expect![[r#"
            10@5  cpu None on Some(0) resident 900 [0:900] tiers [4:900] local Some(1000) age 3000 ms
              >=10500/s touched 200 [0:200] hot Some(100) [0:100] local Some(1000)
        "#]],
    );
}

#[test]
fn regions_reach_over_holes_but_no_more_is_touched_than_there_is() {
    let mut v = view(Source::Damon, &machine(1, 0));
    v.handle(s(0), &[task(A, 0, Some(0), 50), region(A, 0, 1 << 40, 3)]);
    let rows = v.rows(s(5));
    let heat = rows[0].heat.as_ref().unwrap();
    assert_eq!((heat.touched, heat.hot), (Pages(50), Some(Pages(50))));
}

#[test]
fn hint_faults_tell_node_and_time() {
    let mut v = view(Source::HintFault, &machine(1, 1));
    let seen = [
        task(A, 0, Some(0), 300),
        census(A, 0, 200),
        census(A, 1, 100),
        fault(A, 1, 0, 1, Some(4)),
        fault(A, 2, 0, 1, Some(1000)),
        fault(A, 2, 0, 0, None),
        fault(B, 2, 0, 0, None),
    ];
    v.handle(s(0), &seen);
    check(
        &v.rows(s(5)),
        expect![[r#"
            10@5  cpu None on Some(0) resident 300 [0:200,1:100] tiers [4:200,22:100] local Some(666) age 5000 ms
              >=167/s touched 2 [0:1,1:1] hot Some(1) [1:1] local Some(333)
        "#]],
    );
    assert_eq!(v.totals().unknown, 1, "nobody has spoken of {B}");
}

#[test]
fn samples_stand_for_their_period() {
    let sample = |vpn, from| Seen::Sample { who: A, vpn, from: NodeId(from), period: 10_007 };
    let seen = [task(A, 0, None, 300), census(A, 1, 300), sample(1, 0), sample(1, 1), sample(9, 1)];
    let mut v = view(Source::Pmu, &machine(2, 0));
    v.handle(s(0), &seen);
    check(
        &v.rows(s(5)),
        expect![[r#"
            10@5  cpu None on None resident 300 [1:300] tiers [4:300] local None age 5000 ms
              6004/s touched 2 [1:2] hot None [?] local Some(666)
        "#]],
    );
}

// A process ends: one last row. Its PID is another's: two rows, then one.
#[test]
fn who_ends_has_a_last_row() {
    let again = Who { pid: A.pid, start: 99 };
    let mut v = view(Source::Residency, &machine(1, 0));
    v.handle(s(0), &[task(A, 0, Some(0), 5), task(B, 0, Some(0), 6)]);
    v.rows(s(0));
    v.handle(s(1), &[task(A, 250, Some(0), 5), task(B, 0, Some(0), 6)]);
    v.handle(s(1), &[Seen::Gone { who: B }, Seen::Gone { who: B }, task(B, 9, None, 6)]);
    v.handle(s(2), &[task(again, 0, Some(0), 8), task(A, 9000, None, 7)]);
    check(
        &v.rows(s(5)),
        expect![[r#"
            10@5 gone  cpu Some(250) on Some(0) resident 5 [0:5] tiers [4:5] local Some(1000) age 4000 ms
            10@99  cpu None on Some(0) resident 8 [0:8] tiers [4:8] local Some(1000) age 3000 ms
            11@7 gone  cpu Some(0) on Some(0) resident 6 [0:6] tiers [4:6] local Some(1000) age 4000 ms
        "#]],
    );
    assert_eq!(v.rows(s(6)).len(), 1);
    let t = v.totals();
    assert_eq!((t.processes, t.ended, t.unknown, v.len()), (3, 2, 2, 1));
}

#[test]
fn loss_and_silence_are_counted_and_a_word_ends_silence() {
    let mut v = view(Source::Damon, &machine(1, 0));
    v.handle(s(0), &[task(A, 0, None, 5), Seen::Lost { events: 7 }, Seen::Stale { since: s(0) }]);
    v.handle(s(1), &[Seen::Stale { since: s(1) }, Seen::Lost { events: u64::MAX }]);
    assert_eq!((v.totals().lost, v.totals().stale), (u64::MAX, 2));
    assert_eq!(v.silent(), Some(s(0)));
    v.handle(s(2), &[region(A, 0, 1, 0)]);
    assert_eq!(v.silent(), None);
}

fn word() -> impl Strategy<Value = Seen> {
    let who = (0..3u32, 0..2u64).prop_map(|(pid, start)| Who { pid, start });
    (who, 0..8u8, any::<u64>(), any::<u64>(), 0..4u16, any::<u32>()).prop_map(
        |(who, kind, x, y, n, k)| match kind {
            0 | 1 => Seen::Task {
                who,
                ran: Picos(x),
                node: (n < 3).then_some(NodeId(n)),
                resident: Pages(y),
            },
            2 => Seen::Gone { who },
            3 => {
                let span = Span { start: x, end: y };
                let (checks, every, age) = (k / 7, Picos(y), Picos(x));
                Seen::Region { who, span, accessed: k, checks, every, age }
            }
            4 => {
                let after = (k % 2 == 0).then_some(Picos(y));
                Seen::Fault { who, vpn: x, from: NodeId(n), on: NodeId(k as u16), after }
            }
            5 => Seen::Sample { who, vpn: x, from: NodeId(n), period: y },
            6 => Seen::Lost { events: x },
            _ => Seen::Resident { who, span: Span::WHOLE, on: NodeId(n), pages: Pages(y) },
        },
    )
}

proptest! {
    // Whatever is told, in whatever order: no panic, and the sums agree.
    #[test]
    fn sums_agree(words in prop::collection::vec((any::<u64>(), word()), 0..60), source in 0..4usize) {
        let mut v = view(Source::ALL[source], &machine(2, 1));
        for (i, (now, word)) in words.into_iter().enumerate() {
            v.handle(Picos(now), &[word]);
            if i % 7 != 0 {
                continue;
            }
            // Some are answered, not all of them with the truth.
            for (k, act) in v.ask(Pages(now % 5000)).into_iter().enumerate() {
                if k % 3 == 2 {
                    continue;
                }
                let who = act.who().unwrap();
                let mut after = 0;
                for span in act.spans() {
                    prop_assert!(after <= span.start && span.start < span.end);
                    after = span.end;
                    let pages = Pages(if k == 0 { span.pages().0 } else { now });
                    let on = NodeId((span.start % 3) as u16);
                    v.handle(Picos(now), &[Seen::Resident { who, span: *span, on, pages }]);
                }
            }
            for r in v.rows(Picos(now)) {
                let sum = |it: &mut dyn Iterator<Item = &Pages>| {
                    it.fold(0u64, |sum, p| sum.saturating_add(p.0))
                };
                prop_assert_eq!(r.by_node.is_empty(), r.by_tier.is_empty());
                if !r.by_node.is_empty() {
                    prop_assert_eq!(sum(&mut r.by_node.values()), r.resident.0);
                    prop_assert_eq!(sum(&mut r.by_tier.values()), r.resident.0);
                }
                prop_assert!(r.local.is_none_or(|l| l <= 1000));
                let Some(h) = r.heat else { continue };
                prop_assert!(h.local.is_none_or(|l| l <= 1000));
                prop_assert!(h.hot.is_none_or(|hot| hot <= h.touched));
                prop_assert_eq!(h.touched_by_node.is_some(), h.touched_error.is_some());
                prop_assert!(h.touched_error.is_none_or(|error| error <= h.touched));
                prop_assert!(h.hot_error.is_none_or(|error| Some(error) <= h.hot));
                if let Some(by) = h.touched_by_node {
                    prop_assert_eq!(sum(&mut by.values()), h.touched.0);
                }
                if let Some(by) = h.hot_by_node {
                    prop_assert_eq!(sum(&mut by.values()), h.hot.map_or(0, |p| p.0));
                }
            }
        }
    }
}
