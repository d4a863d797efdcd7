//! The engine on a machine that carries no move out, and what it wished.
//!
//! ```text
//! machine ◀─▶ Advised ◀─▶ engine
//!                │ wishes, each second   │ heat of what they name, verdicts
//!                └──────▶ Wishes ◀───────┘
//! ```

use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy as _;
use homenode_core::policy::order::{Act, Evidence, Reason};
use homenode_core::policy::seen::{Source, Span, Who};
use homenode_core::policy::{Ledger, Verdict, Why};
use homenode_core::units::{NodeId, Picos};
use homenode_machine::{Advised, Around as _, Machine, ObserveError, Wish, drive};
use std::collections::{BTreeMap, BTreeSet};

/// Whoever wants to stop is asked so often.
const STEP: Picos = Picos::from_ms(500);

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
    /// Everybody who was seen.
    pub(super) names: BTreeMap<Who, String>,
    pub(super) ledger: Ledger,
    pub(super) looked: Picos,
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

    fn add(&mut self, engine: &Engine, more: Vec<Wish>) {
        let mut heat: BTreeMap<Who, Vec<(Span, u64)>> = BTreeMap::new();
        for wish in more {
            let Act::Move { who, spans, from, to } = wish.order.act else { continue };
            let known = heat
                .entry(who)
                .or_insert_with(|| engine.stretches(who).map(|s| (s.span, s.heat)).collect());
            let sum = self.moves.entry((who, from, to, wish.order.why)).or_default();
            sum.orders += 1;
            sum.pages += wish.pages.0;
            sum.saves += u128::from(wish.order.expect.saves.0);
            sum.costs += u128::from(wish.order.expect.costs.0);
            sum.heat += mean(known, &spans) * u128::from(wish.pages.0);
        }
    }
}

/// Mean heat of some spans.
fn mean(known: &[(Span, u64)], spans: &[Span]) -> u128 {
    let (mut all, mut pages) = (0u128, 0u128);
    for s in spans {
        let first = known.partition_point(|(k, _)| k.end <= s.start);
        for (k, heat) in known[first..].iter().take_while(|(k, _)| k.start < s.end) {
            let n = u128::from(k.end.min(s.end) - k.start.max(s.start));
            all += n * u128::from(*heat);
            pages += n;
        }
    }
    all / pages.max(1)
}

/// Lets an engine think about a machine for some time; nothing is moved.
///
/// * `names` – adds those that are there now.
/// * `stop` – whether somebody wants to stop.
///
/// Returns the machine, and what was found until it ended, or its source broke.
pub(super) fn run<M: Machine>(
    machine: M,
    settings: Settings,
    version: KernelVersion,
    length: Option<Picos>,
    names: &dyn Fn(&M, &mut BTreeMap<Who, String>),
    stop: &mut dyn FnMut() -> bool,
) -> (M, Wishes, Result<(), ObserveError>) {
    let caps = machine.caps().clone();
    let mut engine = Engine::new(
        settings,
        machine.topology(),
        version,
        caps.source,
        &caps.lacks,
        caps.most_pages,
    );
    let mut machine = Advised::new(machine);
    let mut wishes = Wishes::default();
    let begun = machine.now();
    let end = length.map_or(Picos(u64::MAX), |l| Picos(begun.0.saturating_add(l.0)));
    let mut result = Ok(());
    while machine.now() < end && !stop() {
        let before = machine.now();
        result = drive(&mut machine, &mut engine, end.min(before + STEP));
        wishes.add(&engine, machine.take_wishes());
        names(machine.inside(), &mut wishes.names);
        // A machine that stands still has stopped.
        if result.is_err() || machine.now() == before {
            break;
        }
    }
    wishes.looked = machine.now().saturating_sub(begun);
    wishes.ledger = engine.ledger().clone();
    (machine.into_inner(), wishes, result)
}

/// Evidence that a source lacks, by name.
pub(super) fn missing(source: Source) -> String {
    let names: BTreeSet<&str> = source.sheet().lacks.iter().map(|e| e.name()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
