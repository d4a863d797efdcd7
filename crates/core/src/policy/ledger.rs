//! What was decided, done and spent.

use super::order::{Act, Evidence, Fails, Order, Reason};
use super::span::Span;
use crate::units::{NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// What the engine thinks of a stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It should go there; ordered as the budgets allow.
    Move {
        /// Where to.
        to: NodeId,
        /// The reason.
        why: Reason,
    },
    /// It stays.
    Stay {
        /// The reason.
        why: Why,
    },
    /// Can't be said without evidence.
    Unknown {
        /// Which.
        lacks: Evidence,
    },
}

crate::named! {
    /// Why something is not moved.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Why {
        /// The process has not run for longer than the start delay.
        SlowStart => "slow_start",
        /// It is where it should be.
        Home => "home",
        /// A move would cost more than it saves within the horizon.
        NotWorthIt => "not_worth_it",
        /// The destination is full, and nothing there is enough colder.
        NoRoom => "no_room",
        /// Worth it, but others were worth more of the budget.
        OverBudget => "over_budget",
        /// An order for it is on its way.
        OnItsWay => "on_its_way",
        /// It was busy; its retry is not due.
        Backoff => "backoff",
        /// It was busy too often.
        GivenUp => "given_up",
        /// It must not be moved.
        Forbidden => "forbidden",
        /// Its heat is too old, or the source is silent.
        Stale => "stale",
        /// Its threads have not been on that node for long.
        Unsettled => "unsettled",
        /// Its threads go to its memory instead.
        ThreadsCome => "threads_come",
        /// Nothing of it is in memory.
        Absent => "absent",
    }
}

/// How often, and about how many pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Times.
    pub times: u64,
    /// Pages, summed over the times.
    pub pages: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, pages: u64) {
        self.times += 1;
        self.pages = self.pages.saturating_add(pages);
    }
}

/// Moves of one reason from one node to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Orders that have reported.
    pub orders: u64,
    /// Pages tried, as the machine told.
    pub tried: Pages,
    /// Pages that got there.
    pub moved: Pages,
    /// The others by cause. What a machine left unexplained is in
    /// [`Ledger::unexplained`], so that tried = moved + fails + unexplained.
    pub fails: Fails,
}

/// Adds without wrapping: a machine may report nonsense.
fn sum(to: &mut Pages, pages: Pages) {
    to.0 = to.0.saturating_add(pages.0);
}

impl Moved {
    fn add(&mut self, tried: Pages, moved: Pages, fails: &Fails) {
        sum(&mut self.tried, tried);
        sum(&mut self.moved, moved);
        sum(&mut self.fails.no_room, fails.no_room);
        sum(&mut self.fails.busy, fails.busy);
        sum(&mut self.fails.absent, fails.absent);
        sum(&mut self.fails.forbidden, fails.forbidden);
        sum(&mut self.fails.gone, fails.gone);
    }
}

/// Everything that an engine has decided, done and spent. Only grows.
///
/// Source: specs/engine.md#ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Orders handed out, by reason; the pages are those named.
    pub ordered: BTreeMap<Reason, Tally>,
    /// Judgements, by verdict; once for each stretch of memory and decision.
    pub verdicts: BTreeMap<Verdict, Tally>,
    /// Moves that have reported, by reason, from and to.
    pub moves: BTreeMap<(Reason, NodeId, NodeId), Moved>,
    /// Pages of moves that the machine's report leaves unexplained.
    pub unexplained: Pages,
    /// Pages that were reported as moved or failed beyond those tried.
    pub overexplained: Pages,
    /// Orders that have reported, of all kinds.
    pub done: u64,
    /// Orders that reported nothing tried: the machine did not take them.
    pub refused: u64,
    /// Orders that were withdrawn before they were handed out, as their process ended.
    pub withdrawn: u64,
    /// Reports of orders that are not open: none should be.
    pub strays: u64,
    /// Expected savings of the moves ordered.
    pub saves: Picos,
    /// What accesses to memory that was moved came to save within the horizon, as far as the
    /// source shows it, and what others lost.
    pub gained: Picos,
    /// See [`Self::gained`].
    pub forgone: Picos,
    /// Expected costs of looks and moves ordered.
    pub costs: Picos,
    /// Processor time that orders took, as reported.
    pub took: Picos,
    /// Processor time of taking in what was seen, as the settings estimate it.
    pub observing: Picos,
    /// Processor time of deciding, as the settings estimate it. A simulated machine spends it.
    pub deciding: Picos,
    /// Observations.
    pub seen: u64,
    /// Samples among them.
    pub samples: u64,
    /// Stretches of memory that the last decision told apart, over all processes.
    pub stretches: u64,
    /// Events that the source lost.
    pub lost: u64,
    /// Times the source fell silent.
    pub stale: u64,
    /// Decisions.
    pub decisions: u64,
    /// How often a decision was put off until the budget has paid for it.
    pub postponed: u64,
    /// Processes whose sampling was ordered.
    pub watched: u64,
    /// Processes that ended or were replaced.
    pub gone: u64,
    /// Observations about processes or nodes that the engine does not know.
    pub unknown: u64,
    /// Times that neighbouring stretches were taken together for want of memory.
    pub coarsened: u64,
    /// Heat of the coldest stretch taken up in the last decision that took one, in
    /// thousandths of an access per page and second: the threshold as it adapted.
    pub threshold: Option<u64>,
}

impl Ledger {
    /// Sums over all moves.
    pub fn total(&self) -> Moved {
        let mut t = Moved::default();
        for m in self.moves.values() {
            t.orders += m.orders;
            t.add(m.tried, m.moved, &m.fails);
        }
        t
    }
    /// Judgements that stayed for a reason.
    pub fn stays(&self, why: Why) -> Tally {
        self.verdicts.get(&Verdict::Stay { why }).copied().unwrap_or_default()
    }
    /// Orders handed out for a reason.
    pub fn orders(&self, why: Reason) -> Tally {
        self.ordered.get(&why).copied().unwrap_or_default()
    }
    /// Books an order as it is handed out.
    pub fn hand_out(&mut self, order: &Order) {
        let pages: u64 = order.act.spans().iter().map(|s| s.pages().0).sum();
        self.ordered.entry(order.why).or_default().add(pages);
        if let Act::Move { .. } = order.act {
            self.saves = Picos(self.saves.0.saturating_add(order.expect.saves.0));
        }
        self.costs = Picos(self.costs.0.saturating_add(order.expect.costs.0));
    }
    /// Books what a machine says of an order that is done.
    ///
    /// * `between` – from which node to which it moves, if it moves.
    pub fn report(
        &mut self,
        why: Reason,
        between: Option<(NodeId, NodeId)>,
        tried: Pages,
        moved: Pages,
        fails: &Fails,
        took: Picos,
    ) {
        self.done += 1;
        self.took = Picos(self.took.0.saturating_add(took.0));
        let Some((from, to)) = between else { return };
        let failed = [fails.no_room, fails.busy, fails.absent, fails.forbidden, fails.gone];
        let told = failed.iter().fold(moved.0, |t, p| t.saturating_add(p.0));
        sum(&mut self.unexplained, Pages(tried.0.saturating_sub(told)));
        sum(&mut self.overexplained, Pages(told.saturating_sub(tried.0)));
        self.refused += u64::from(tried.0 == 0);
        let row = self.moves.entry((why, from, to)).or_default();
        row.orders += 1;
        row.add(tried, moved, fails);
    }
    pub(crate) fn judge(&mut self, verdict: Verdict, pages: u64) {
        self.verdicts.entry(verdict).or_default().add(pages);
    }
}

/// A stretch of a process's memory as the engine knows it, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where.
    pub span: Span,
    /// Accesses per page and second, in thousandths.
    pub heat: u64,
    /// Pages by node, rising; `None` where nobody has looked.
    pub on: Option<Vec<(NodeId, u64)>>,
}
