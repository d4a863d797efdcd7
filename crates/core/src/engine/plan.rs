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
    /// How many pages of it move as one: it goes in multiples of them.
    pub(super) unit: u64,
    /// What moving it is expected to save, in picoseconds.
    pub(super) saves: u128,
    /// What its accesses are expected to save, with nothing taken off for what makes room or doesn't
    /// stay hot.
    pub(super) gains: u128,
    pub(super) why: Reason,
}

impl Piece {
    pub(super) fn part(&self) -> Part {
        Part { span: self.span, pages: self.pages }
    }

    /// Takes a span off, and what is behind it where it lies inside. Says whether anything is left.
    fn leave_out(&mut self, gone: Span) -> bool {
        let Span { start, end } = self.span;
        let left = match gone.start <= start {
            true => Span { start: start.max(gone.end), end },
            false => Span { start, end: end.min(gone.start) },
        };
        if left.start >= left.end {
            return false;
        }
        let share = |v: u128| v * u128::from(left.end - left.start) / u128::from(end - start);
        let pages = share(u128::from(self.pages));
        self.pages = u64::try_from(pages).unwrap_or(u64::MAX);
        (self.saves, self.gains, self.span) = (share(self.saves), share(self.gains), left);
        true
    }
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

    /// Drops what would move some of a span.
    pub(super) fn leave_out(&mut self, who: Who, span: Span) {
        for queue in self.up.values_mut().chain(self.down.values_mut()) {
            queue.retain_mut(|p| p.who != who || p.leave_out(span));
        }
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

/// Which way a border goes that would lie inside of pages that move as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Down,
    Up,
}

/// A span, and how many pages of it are in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) span: Span,
    pub(super) pages: u64,
}

impl Part {
    /// The part that holds about `k` of its pages, and the rest of it.
    ///
    /// * `unit` – so many pages move as one: the border is a multiple of them, below or above.
    pub(super) fn split(self, k: u64, unit: u64, round: Round) -> (Option<Self>, Option<Self>) {
        let Span { start, end } = self.span;
        if k >= self.pages {
            return (Some(self), None);
        }
        let whole = u128::from(end - start);
        let part = (whole * u128::from(k)).div_ceil(u128::from(self.pages));
        let at = start + u64::try_from(part).unwrap_or(u64::MAX).max(1);
        if unit <= 1 {
            if at >= end {
                return (Some(self), None);
            }
            let head = Self { span: Span { start, end: at }, pages: k };
            return (
                Some(head),
                Some(Self { span: Span { start: at, end }, pages: self.pages - k }),
            );
        }
        let at = match round {
            Round::Down => at / unit * unit,
            Round::Up => at.div_ceil(unit).saturating_mul(unit),
        };
        if at <= start {
            return (None, Some(self));
        }
        if at >= end {
            return (Some(self), None);
        }
        let pages = u128::from(self.pages) * u128::from(at - start) / whole;
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        let head = Self { span: Span { start, end: at }, pages };
        (Some(head), Some(Self { span: Span { start: at, end }, pages: self.pages - pages }))
    }
}
