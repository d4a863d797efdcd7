//! What policies that drive did and used.

use super::{Part, Rows, RunFigures, Shown, declared};
use crate::homenode::Own;
use homenode_core::policy::order::Reason;
use homenode_core::policy::{Verdict, order::Fails};
use homenode_report::Better::Neither;
use homenode_report::Figure;
use std::collections::BTreeSet;

type Taken = super::Taken<Own>;

const fn seconds(name: &'static str, about: &'static str) -> Figure {
    Figure::new(name, "s", Neither, 4, about)
}

fn s(ps: u64) -> f64 {
    ps as f64 / 1e12
}

const USED: &[Taken] = &[
    (
        seconds("its own CPU time", "what the policy's task ran, and threads that it keeps busy"),
        |o| s(o.spent.homenode),
    ),
    (seconds("CPU time of DAMON's thread", "what kdamond ran, where DAMON is the source"), |o| {
        s(o.spent.kdamond)
    }),
    (
        seconds("programs' time for being sampled", "what the source of heat took from programs"),
        |o| s(o.spent.sampled),
    ),
    (Figure::new("all of it, of one CPU", "%", Neither, 2, "these three by virtual time"), |o| {
        o.spent.all() as f64 * 100.0 / o.time.max(1) as f64
    }),
];

const ORDERS: Figure = Figure::count("orders: {}", "orders to move pages, by their reason");

const PAGES: &[Taken] = &[
    (Figure::count("pages tried", "pages in all orders"), |o| o.ledger.total().tried.0 as f64),
    (Figure::count("pages moved", "pages that were moved by an order"), |o| {
        o.ledger.total().moved.0 as f64
    }),
    (Figure::count("not moved: no room", "pages for which the target node had no room"), |o| {
        failed(o, |f| f.no_room.0)
    }),
    (Figure::count("not moved: busy", "pages that somebody else held on to"), |o| {
        failed(o, |f| f.busy.0)
    }),
    (
        Figure::count("not moved: absent or elsewhere", "pages that were not where they had been"),
        |o| failed(o, |f| f.absent.0),
    ),
    (Figure::count("not moved: forbidden", "pages that may not be moved there"), |o| {
        failed(o, |f| f.forbidden.0)
    }),
    (Figure::count("not moved: process gone", "pages of processes that had ended"), |o| {
        failed(o, |f| f.gone.0)
    }),
];

fn failed(o: &Own, get: fn(&Fails) -> u64) -> f64 {
    get(&o.ledger.total().fails) as f64
}

/// What was left alone and why: a table without moves has to say what kept them.
const LEFT: Figure = Figure::new(
    "left, a decision: {}",
    "pages",
    Neither,
    0,
    "pages left where they are, in a decision on average, by verdict",
);

const EXPECTED: &[Taken] = &[
    (
        seconds("expected to save", "time that programs save by the moves, as the policy expects"),
        |o| o.ledger.saves.as_secs_f64(),
    ),
    (seconds("expected to cost", "time that the moves take, as the policy expects"), |o| {
        o.ledger.costs.as_secs_f64()
    }),
    (Figure::count("events lost", "events that the source of heat had no room for"), |o| {
        o.ledger.lost as f64
    }),
];

pub(super) fn all() -> impl Iterator<Item = Figure> {
    let before = declared(USED).chain([ORDERS]).chain(declared(PAGES));
    before.chain([LEFT]).chain(declared(EXPECTED))
}

pub(super) fn push(rows: &mut Rows<'_>) {
    rows.push_all(Part::Policy, USED, |r| r.own.as_ref());
    for why in Reason::ALL {
        let times = |r: &RunFigures| Some(r.own.as_ref()?.ledger.orders(why).times as f64);
        rows.push(Part::Policy, &ORDERS, why.name(), Shown::IfCounted, &times);
    }
    rows.push_all(Part::Policy, PAGES, |r| r.own.as_ref());
    let own = rows.columns.iter().flatten().filter_map(|r| r.own.as_ref());
    let judged: BTreeSet<Verdict> = own.flat_map(|o| o.ledger.verdicts.keys().copied()).collect();
    for verdict in judged {
        let name = match verdict {
            Verdict::Move { .. } => continue,
            Verdict::Stay { why } => why.name().to_owned(),
            Verdict::Unknown { lacks } => format!("unknown {}", lacks.name()),
        };
        rows.push(Part::Policy, &LEFT, &name, Shown::IfAny, &|r| {
            let ledger = &r.own.as_ref()?.ledger;
            let pages = ledger.verdicts.get(&verdict).map_or(0, |t| t.pages);
            Some(pages as f64 / ledger.decisions.max(1) as f64)
        });
    }
    rows.push_all(Part::Policy, EXPECTED, |r| r.own.as_ref());
}
