//! An order between its giving and its report: what it holds, and what its report is
//! about.
//!
//! ```text
//! pump ─────── moves, looks ──┐         ┌──▶ budgets and room are given back
//!                             ├─▶ Open ─┤
//! process ─── begin to watch ─┘    ▲    └──▶ process: what its spans are from now on
//!                              Seen::Done
//! ```

use crate::policy::order::Reason;
use crate::policy::span::{Span, Who};
use crate::units::{NodeId, Picos};

/// An order that has not reported yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) who: Who,
    pub(super) spans: Vec<Span>,
    /// From and to, if it moves pages.
    pub(super) between: Option<(NodeId, NodeId)>,
    /// Pages that it names.
    pub(super) named: u64,
    /// Processor time that was set aside for it.
    pub(super) cost: u64,
    /// What its pages' accesses are expected to save.
    pub(super) gains: u128,
    /// What that comes to beyond what it costs, what is lost elsewhere for it taken off.
    pub(super) pays: Picos,
    pub(super) why: Reason,
}

impl Open {
    /// One that moves no page: to watch, to look, to bring threads.
    pub(super) fn new(who: Who, why: Reason) -> Self {
        Self {
            who,
            spans: Vec::new(),
            between: None,
            named: 0,
            cost: 0,
            gains: 0,
            pays: Picos::ZERO,
            why,
        }
    }
    /// Whether it is a look or a census.
    pub(super) fn looks(&self) -> bool {
        let other = matches!(self.why, Reason::SlowStartOver | Reason::NearItsMemory);
        self.between.is_none() && !other
    }
    pub(super) fn leaves(&self, node: NodeId) -> bool {
        self.between.is_some_and(|(from, _)| from == node)
    }
}
