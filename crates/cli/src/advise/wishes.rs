//! What an engine wishes on a machine that carries no move out, or what it has moved on one that
//! does and is told again.
//!
//! ```text
//! machine ◀─▶ Advised | Acting ◀─▶ engine
//!                │ deeds, each half second   │ heat of what they name, verdicts
//!                └────────▶ Wishes ◀─────────┘
//! ```

use crate::drive::{Onlooker, mean_heat};
use crate::seen;
use homenode_core::engine::Engine;
use homenode_core::policy::Policy as _;
use homenode_core::policy::order::{Act, Evidence, Reason};
use homenode_core::policy::seen::{Source, Span, Who};
use homenode_core::policy::{Ledger, Verdict, Why};
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::{Around, Deed, Deeds, Limited};
use std::collections::{BTreeMap, BTreeSet};

/// Wishes of one process in one direction for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) orders: u64,
    pub(super) pages: u64,
    pub(super) saves: u128,
    pub(super) costs: u128,
    /// Thousandths of accesses a second of all pages.
    pub(super) heat: u128,
}

/// Whose pages would go from where to where, and why.
pub(super) type Way = (Who, NodeId, NodeId, Reason);

/// What was wished and thought.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    pub(super) moves: BTreeMap<Way, Sum>,
    /// Whose threads would go to which node.
    pub(super) threads: BTreeMap<(Who, NodeId), Sum>,
    /// Everybody who was seen.
    pub(super) names: BTreeMap<Who, String>,
    pub(super) ledger: Ledger,
    pub(super) looked: Picos,
    /// A line for each move, where they are wanted.
    pub(super) orders: Vec<String>,
}

impl Wishes {
    /// Pages that would have gone for a reason.
    pub(super) fn pages(&self, why: Reason) -> u64 {
        self.moves.iter().filter(|(way, _)| way.3 == why).map(|(_, s)| s.pages).sum()
    }
    /// Whether any memory was judged by its heat.
    pub(super) fn knows_heat(&self) -> bool {
        let blind = |v: &Verdict| {
            matches!(
                v,
                Verdict::Unknown { lacks: Evidence::Heat }
                    | Verdict::Stay { why: Why::SlowStart | Why::Stale }
            )
        };
        self.ledger.verdicts.keys().any(|v| !blind(v))
    }
    /// Pages with a verdict, in a decision on average.
    pub(super) fn mean(&self, pages: u64) -> u64 {
        pages / self.ledger.decisions.max(1)
    }

    fn add(&mut self, engine: &Engine, more: Vec<Deed>) {
        let mut heat: BTreeMap<Who, Vec<(Span, u64)>> = BTreeMap::new();
        // What could not be moved saves nothing.
        for wish in more.into_iter().filter(|d| d.moved > Pages::ZERO) {
            if let Act::Affine { who, node } = wish.order.act {
                let sum = self.threads.entry((who, node)).or_default();
                sum.orders += 1;
                sum.saves += u128::from(wish.order.expect.saves.0);
                sum.costs += u128::from(wish.order.expect.costs.0);
            }
            let Act::Move { who, spans, from, to } = wish.order.act else { continue };
            let known = heat
                .entry(who)
                .or_insert_with(|| engine.stretches(who).map(|s| (s.span, s.heat)).collect());
            let sum = self.moves.entry((who, from, to, wish.order.why)).or_default();
            sum.orders += 1;
            sum.pages += wish.moved.0;
            sum.saves += u128::from(wish.order.expect.saves.0);
            sum.costs += u128::from(wish.order.expect.costs.0);
            sum.heat += mean_heat(known, &spans) * u128::from(wish.moved.0);
        }
    }
}

/// Adds those that are there now; whether to go on.
pub(super) type Names<'a, M> = &'a dyn Fn(&M, &mut BTreeMap<Who, String>) -> bool;

/// Adds up what is wished.
pub(super) struct Listener<'a, M> {
    pub(super) wishes: Wishes,
    names: Names<'a, M>,
    note: &'a dyn Fn(&Deed),
    orders: bool,
}

impl<'a, M> Listener<'a, M> {
    /// * `note` – is told each move.
    /// * `orders` – whether a line is kept for each.
    pub(super) fn new(names: Names<'a, M>, note: &'a dyn Fn(&Deed), orders: bool) -> Self {
        Self { wishes: Wishes::default(), names, note, orders }
    }
    /// What was wished in so long.
    pub(super) fn finish(mut self, engine: &Engine, looked: Picos) -> Wishes {
        self.wishes.looked = looked;
        self.wishes.ledger = engine.ledger().clone();
        self.wishes
    }
}

impl<A> Onlooker<Limited<A>> for Listener<'_, A::Inner>
where
    A: Around<Inner: Sized> + Deeds,
{
    fn step(&mut self, machine: &Limited<A>, engine: &Engine, deeds: Vec<Deed>) -> bool {
        deeds.iter().for_each(self.note);
        if self.orders {
            let lines = deeds.iter().map(|d| seen::line(d.at, &d.order, d.moved.0));
            self.wishes.orders.extend(lines);
        }
        self.wishes.add(engine, deeds);
        (self.names)(machine.inside().inside(), &mut self.wishes.names)
    }
}

/// Evidence that a source lacks, by name.
pub(super) fn missing(source: Source) -> String {
    let names: BTreeSet<&str> = source.sheet().lacks.iter().map(|e| e.name()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
