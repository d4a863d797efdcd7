//! What the last decision wants done, as far as it is not ordered yet.
//!
//! ```text
//!            ┌─ up     by the node that it goes to, hottest first ──┐
//! decide ──▶ ├─ down   by the node that it leaves, coldest first ───┼──▶ pump
//!            ├─ looks  most worth knowing first ────────────────────┤
//!            ├─ censuses  in the order of the processes ────────────┤
//!            └─ brings  threads that go to their memory ────────────┘
//! ```
//!
//! The next decision throws it away and fills it anew.

use super::heat::Rate;
use crate::policy::order::Reason;
use crate::policy::span::{Span, Who};
use crate::units::NodeId;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

/// A stretch to be moved.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) who: Who,
    pub(super) span: Span,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// Its pages on `from`, as far as is known.
    pub(super) pages: u64,
    /// What moving it is expected to save, in picoseconds.
    pub(super) saves: u128,
    /// What its accesses are expected to save, with nothing taken off for what makes room or doesn't
    /// stay hot.
    pub(super) gains: u128,
    pub(super) why: Reason,
}

/// A stretch to be looked at.
#[derive(Clone, Debug)]
pub(super) struct LookPiece {
    pub(super) who: Who,
    pub(super) span: Span,
    /// What knowing it may save at most.
    pub(super) saves: u128,
}

/// Pages of a process that would follow its threads between fast nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Near {
    pub(super) pages: u64,
    /// What that saves within the horizon, before their moves are paid for.
    pub(super) saves: u128,
}

/// A process whose threads would be nearer to its memory elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bring {
    pub(super) who: Who,
    pub(super) to: NodeId,
    /// What its accesses save within the horizon, in picoseconds.
    pub(super) saves: u128,
    /// What filling caches anew takes, in picoseconds.
    pub(super) costs: u64,
    /// Thousandths of a CPU that are to be idle there.
    pub(super) needs: u64,
}

/// What the last decision wants done, as far as it is not ordered yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// By the node that they go to.
    pub(super) up: BTreeMap<NodeId, VecDeque<Piece>>,
    /// By the node that they leave.
    pub(super) down: BTreeMap<NodeId, VecDeque<Piece>>,
    pub(super) looks: VecDeque<LookPiece>,
    /// Whose mappings are to be counted.
    pub(super) censuses: VecDeque<Who>,
    /// Whose threads are to go to their memory.
    pub(super) brings: Vec<Bring>,
}

impl Plan {
    pub(super) fn forget(&mut self, who: Who) {
        self.forget_moves(who);
        self.looks.retain(|l| l.who != who);
        self.censuses.retain(|w| *w != who);
        self.brings.retain(|b| b.who != who);
    }

    pub(super) fn forget_moves(&mut self, who: Who) {
        for queue in self.up.values_mut().chain(self.down.values_mut()) {
            queue.retain(|p| p.who != who);
        }
    }
}

/// A stretch that would gain on another node.
pub(super) struct Candidate {
    pub(super) piece: Piece,
    pub(super) heat: Rate,
    /// What one page saves within the horizon, as far as such memory has been seen to stay hot.
    pub(super) each: u128,
    /// And if it did for all of it.
    pub(super) gains: u128,
}

impl Candidate {
    fn order(&self) -> impl Ord + use<> {
        (self.each, Reverse((self.piece.who, self.piece.span, self.piece.from)))
    }
}

/// The greatest is the one that saves most.
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Eq for Candidate {}
impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

/// What several pages save, as far as a time can say it.
pub(super) fn times(each: u128, pages: u64) -> u128 {
    each.saturating_mul(u128::from(pages)).min(u128::from(u64::MAX))
}

/// The part of a span of `pages` pages in memory that holds about `k` of them, and
/// the rest of it.
pub(super) fn split(span: Span, pages: u64, k: u64) -> (Span, Option<Span>) {
    if k >= pages {
        return (span, None);
    }
    let whole = u128::from(span.end - span.start);
    let part = (whole * u128::from(k)).div_ceil(u128::from(pages));
    let at = span.start + u64::try_from(part).unwrap_or(u64::MAX).max(1);
    if at >= span.end {
        return (span, None);
    }
    (Span { start: span.start, end: at }, Some(Span { start: at, end: span.end }))
}
