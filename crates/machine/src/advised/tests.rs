//! What is told, ordered and shown, beside a model that knows every page; and the machine
//! around one that tells what the test says.

use super::places::{Counts, Places};
use super::*;
use crate::told::Told;
use homenode_core::policy::order::{Benefit, OrderId, Reason};
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::ZoneKind;
use proptest::prelude::*;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const ONE: Who = Who { pid: 10, start: 5 };

fn span(start: u64, end: u64) -> Span {
    Span { start, end }
}
fn counts(all: &[(NodeId, u64)]) -> Counts {
    all.iter().copied().collect()
}

#[test]
fn what_was_ordered_is_shown_wherever_it_is_looked_at() {
    let mut p = Places::default();
    assert_eq!(p.told(span(0, 100), counts(&[(B, 90)])), counts(&[(B, 90)]));
    assert_eq!(p.order(span(0, 100), B, A), 90);
    assert_eq!(p.told(span(0, 100), counts(&[(B, 90)])), counts(&[(A, 90)]));
    // A second order goes on from where the first one left it.
    assert_eq!(p.order(span(0, 50), A, B), 45);
    assert_eq!(p.told(span(0, 50), counts(&[(B, 50)])), counts(&[(B, 50)]));
    assert_eq!(p.parts(span(0, 200)), [span(0, 50), span(50, 100), span(100, 200)]);
    // The process as a whole: the second half only.
    let whole = span(0, 1 << 52);
    assert_eq!(p.told(whole, counts(&[(A, 7), (B, 95)])), counts(&[(A, 52), (B, 50)]));
    assert_eq!(p.freed(), &[(A, -45), (B, 45)].into());
}

#[test]
fn what_was_never_told_does_not_move() {
    let mut p = Places::default();
    p.told(span(10, 20), counts(&[(B, 10)]));
    assert_eq!(p.order(span(0, 100), B, A), 10);
    assert_eq!(p.order(span(0, 100), B, A), 0, "they are there already");
    assert_eq!(p.told(span(50, 60), counts(&[(B, 10)])), counts(&[(B, 10)]));
}

#[test]
fn a_span_over_a_border_is_shared_as_its_pages_were() {
    let mut p = Places::default();
    p.told(span(0, 10), counts(&[(B, 10)]));
    p.told(span(10, 20), counts(&[(B, 2)]));
    p.order(span(0, 10), B, A);
    assert_eq!(p.told(span(0, 20), counts(&[(B, 12)])), counts(&[(A, 10), (B, 2)]));
}

/// A step of the story, over 64 pages of which each is told by itself.
#[derive(Clone, Debug)]
enum Step {
    /// The kernel moves a page, or takes it away.
    Kernel(u64, Option<u16>),
    /// Pages are looked at one by one.
    Look(u64, u64),
    /// A hint fault.
    Fault(u64),
    Order(u64, u64, u16, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..64u64, prop::option::of(0..3u16)).prop_map(|(p, n)| Step::Kernel(p, n)),
        (0..64u64, 1..20u64).prop_map(|(a, n)| Step::Look(a, (a + n).min(64))),
        (0..64u64).prop_map(Step::Fault),
        (0..64u64, 1..30u64, 0..3u16, 0..3u16).prop_map(|(a, n, f, t)| Step::Order(
            a,
            (a + n).min(64),
            f,
            t
        )),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Where every page is told by itself, what is shown is what a machine that had
    /// carried the orders out would show: a page's node goes through the orders that it
    /// was in when it was last known to be on their `from`.
    #[test]
    fn pages_told_one_by_one_are_shown_exactly(steps in steps()) {
        let mut places = Places::default();
        let mut real: Vec<Option<u16>> = vec![Some(0); 64];
        let mut told: Vec<Option<u16>> = vec![None; 64];
        let mut map: Vec<[u16; 3]> = vec![[0, 1, 2]; 64];
        for step in steps {
            match step {
                Step::Kernel(p, n) => real[p as usize] = n,
                Step::Look(a, b) => {
                    for p in a..b {
                        let i = p as usize;
                        told[i] = real[i];
                        let is = real[i].map(|n| (NodeId(n), 1));
                        let shown = places.told(span(p, p + 1), is.into_iter().collect());
                        let due = real[i].map(|n| (NodeId(map[i][usize::from(n)]), 1));
                        prop_assert_eq!(shown, due.into_iter().collect::<Counts>());
                    }
                }
                Step::Fault(p) => {
                    let i = p as usize;
                    let Some(n) = real[i] else { continue };
                    told[i] = Some(n);
                    let due = NodeId(map[i][usize::from(n)]);
                    prop_assert_eq!(places.told_page(p, NodeId(n)), due);
                }
                Step::Order(a, b, from, to) => {
                    let mut n = 0;
                    // A page that isn't known to be there is in no order.
                    for i in a as usize..b as usize {
                        let there = told[i].is_some_and(|t| map[i][usize::from(t)] == from);
                        if there && from != to {
                            n += 1;
                            map[i].iter_mut().filter(|m| **m == from).for_each(|m| *m = to);
                        }
                    }
                    prop_assert_eq!(places.order(span(a, b), NodeId(from), NodeId(to)), n);
                }
            }
            let sum: i64 = places.freed().values().sum();
            prop_assert_eq!(sum, 0, "memory came from nowhere");
            let parts = places.parts(span(0, 64));
            prop_assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
            prop_assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, 64));
        }
    }

    /// Odd reports never panic, and pages are neither made nor lost.
    #[test]
    fn whatever_is_told_pages_are_kept(
        all in prop::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>(), 0..3u16, 0..3u16, any::<bool>()), 0..40),
    ) {
        let mut places = Places::default();
        for (a, b, n, from, to, order) in all {
            let s = span(a, b);
            if order {
                places.order(s, NodeId(from), NodeId(to));
            } else {
                let due = if s.pages().0 > 1 << 40 || s.pages().0 == 0 { n } else { n.min(s.pages().0) };
                let shown = places.told(s, counts(&[(NodeId(from), n)]));
                prop_assert_eq!(shown.values().sum::<u64>(), due);
            }
            places.told_page(a, NodeId(to));
            if a < b {
                places.parts(s);
            }
        }
    }
}

fn order(id: u64, act: Act) -> Order {
    let expect =
        Benefit { saves: Picos::from_ms(50), costs: Picos::from_ms(1), over: Picos::from_secs(10) };
    Order { id: OrderId(id), act, expect, why: Reason::Hot }
}
fn moves(who: Who, spans: &[Span]) -> Act {
    Act::Move { who, spans: spans.to_vec(), from: B, to: A }
}
fn task(who: Who) -> Seen {
    Seen::Task { who, ran: Picos::ZERO, node: Some(A), resident: Pages(100) }
}
fn resident(s: Span, on: NodeId, pages: u64) -> Seen {
    Seen::Resident { who: ONE, span: s, on, pages: Pages(pages) }
}
fn node(node: NodeId, free: u64) -> Seen {
    let p = Pages;
    let (managed, min, low, high, promo, reserve) = (p(1000), p(1), p(2), p(3), p(4), p(0));
    let kind = ZoneKind::Normal;
    let marks = ZoneMarks { kind, managed, min, low, high, promo, reserve };
    Seen::Node { node, zones: vec![ZoneSeen { free: Pages(free), marks }], load: None, idle: None }
}
fn see(m: &mut Advised<Told>, says: Vec<Seen>) -> Vec<Seen> {
    m.inside_mut().says = says;
    let mut out = Vec::new();
    m.wait(m.now() + Picos::from_secs(1), &mut out).expect("it never ends");
    out
}

#[test]
fn an_order_is_written_down_reported_once_and_shown() {
    let mut m = Advised::new(Told::new());
    let s = span(0, 100);
    see(&mut m, vec![task(ONE), resident(s, A, 10), resident(s, B, 80)]);
    m.submit(&order(1, moves(ONE, &[s]))).unwrap();
    let out = see(&mut m, vec![node(A, 500), node(B, 500), resident(s, A, 10), resident(s, B, 80)]);
    let (n, fails) = (Pages(80), Fails::default());
    let took = Picos::from_ms(1);
    let done = Seen::Done { order: OrderId(1), tried: n, moved: n, fails, took };
    let due = vec![done, node(A, 420), node(B, 580), resident(s, A, 90)];
    assert_eq!(out, due);
    assert_eq!(m.now(), Picos(1_001_000_000_000), "it waited as long as the order takes");
    let wishes = m.take_deeds();
    assert_eq!((wishes.len(), wishes[0].moved), (1, Pages(80)));
    assert!(m.take_deeds().is_empty());
    // Looks are cut at the order's border, and the machine is asked nothing else.
    m.submit(&order(2, Act::Look { who: ONE, spans: vec![span(50, 150)] })).unwrap();
    let parts = vec![span(50, 100), span(100, 150)];
    assert_eq!(m.inside().asked, [Act::Look { who: ONE, spans: parts }]);
    // With the process, what it would have left free goes.
    let out = see(&mut m, vec![Seen::Gone { who: ONE }, node(A, 510)]);
    assert_eq!(out[1], node(A, 510));
    assert_eq!(m.submit(&order(3, moves(ONE, &[s]))), Err(ApplyError::NoProcess));
}

#[test]
fn what_can_not_be_is_refused_and_what_is_gone_is_told() {
    let mut m = Advised::new(Told::new());
    see(&mut m, vec![task(ONE)]);
    let s = span(0, 100);
    let elsewhere = Act::Move { who: ONE, spans: vec![s], from: B, to: NodeId(9) };
    assert_eq!(m.submit(&order(1, elsewhere)), Err(ApplyError::NoNode));
    assert_eq!(m.submit(&order(1, moves(ONE, &[]))), Err(ApplyError::BadSpan));
    assert_eq!(m.submit(&order(1, moves(ONE, &[s, s]))), Err(ApplyError::BadSpan));
    assert_eq!(m.submit(&order(1, moves(ONE, &[span(0, 1001)]))), Err(ApplyError::BadSpan));
    let home = |who, node| Act::Affine { who, node };
    assert_eq!(m.submit(&order(1, home(ONE, A))), Err(ApplyError::NoNode), "it has no CPU");
    // Never told: absent. Replaced under its PID: gone.
    m.submit(&order(1, moves(ONE, &[s]))).unwrap();
    let out = see(&mut m, vec![task(Who { start: 9, ..ONE })]);
    assert!(matches!(out[0], Seen::Done { moved: Pages(0), fails, .. } if fails.absent.0 == 100));
    assert_eq!(m.submit(&order(2, moves(ONE, &[s]))), Err(ApplyError::NoProcess));
    let new = Who { start: 9, ..ONE };
    m.submit(&order(3, moves(new, &[s]))).unwrap();
    m.inside_mut().says = vec![Seen::Gone { who: new }];
    // Too short a wait for the report: the process goes first.
    let mut out = Vec::new();
    m.wait(m.now(), &mut out).unwrap();
    assert_eq!(out, [Seen::Gone { who: new }]);
    let out = see(&mut m, Vec::new());
    assert!(matches!(out[0], Seen::Done { fails, .. } if fails.gone.0 == 100));
    assert!(m.take_deeds().is_empty(), "nothing would have moved");
}

/// Threads are told as if they ran where they were to be brought.
#[test]
fn brought_threads_are_told_there() {
    let mut m = Advised::new(Told::new());
    see(&mut m, vec![task(ONE)]);
    let home = Act::Affine { who: ONE, node: B };
    m.submit(&order(1, home.clone())).unwrap();
    let out = see(&mut m, vec![task(ONE)]);
    assert!(matches!(out[0], Seen::Done { tried: Pages(1), moved: Pages(1), .. }), "{out:?}");
    assert!(matches!(out[1], Seen::Task { node: Some(B), .. }), "{out:?}");
    assert_eq!(m.take_deeds().len(), 1);
    assert!(m.inside().asked.is_empty(), "nothing is done to the machine");
    // One that goes first.
    m.submit(&order(2, home)).unwrap();
    m.inside_mut().says = vec![Seen::Gone { who: ONE }];
    let mut out = Vec::new();
    m.wait(m.now(), &mut out).unwrap();
    out.extend(see(&mut m, Vec::new()));
    let done = out.iter().find_map(|s| match s {
        Seen::Done { tried, moved, fails, .. } => Some((*tried, *moved, fails.all())),
        _ => None,
    });
    let (tried, moved, failed) = done.expect("a report");
    assert_eq!(tried, moved + failed, "{out:?}");
}

#[test]
fn a_fault_is_told_only_from_where_the_kernel_marks_pages() {
    let mut m = Advised::new(Told::new());
    let fault = |vpn, on| Seen::Fault { who: ONE, vpn, from: A, on, after: None };
    let out = see(&mut m, vec![task(ONE), fault(7, B)]);
    assert_eq!(out[1], fault(7, B));
    m.submit(&order(1, moves(ONE, &[span(7, 8)]))).unwrap();
    // On the fast node nothing was ever marked: there would be no fault.
    let out = see(&mut m, vec![fault(7, B)]);
    assert_eq!(out.len(), 1);
    // Now the kernel marks there as well.
    let out = see(&mut m, vec![fault(20, A), fault(7, B)]);
    assert_eq!(out, [fault(20, A), fault(7, A)]);
}
