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
use super::page_set::PageSet;
use super::pairs::CHUNK;
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
    /// Which pages of it, where they are told apart: it lies in one chunk then.
    pub(super) set: Option<Box<PageSet>>,
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
        Part { span: self.span, set: self.set.clone(), pages: self.pages }
    }

    /// The same of a part of it.
    pub(super) fn with(self, part: Part) -> Self {
        Self { span: part.span, set: part.set, pages: part.pages, ..self }
    }

    /// How many pages it names, wherever they are.
    pub(super) fn named(&self) -> u64 {
        self.set.as_ref().map_or(self.span.pages().0, |set| set.len())
    }

    /// Takes pages off that are told apart. Says whether anything is left.
    pub(super) fn leave_out_pages(&mut self, gone: &PageSet) -> bool {
        let Some(set) = &self.set else { return true };
        let (left, all) = (set.without(gone), set.len());
        let share = |v: u128| v * u128::from(left.len()) / u128::from(all.max(1));
        // Rounded up: what is left must not cost more for each page than the whole.
        let pages = u128::from(self.pages) * u128::from(all - left.len());
        let pages = u64::try_from(pages.div_ceil(u128::from(all.max(1)))).unwrap_or(u64::MAX);
        (self.saves, self.gains) = (share(self.saves), share(self.gains));
        self.pages = self.pages.saturating_sub(pages);
        let hull = left.hull(self.span.start / CHUNK);
        (self.set, self.span) = (Some(Box::new(left)), hull.unwrap_or(self.span));
        hull.is_some()
    }

    /// What of its first `k` pages can go by itself.
    pub(super) fn head(&self, k: u64) -> Option<Part> {
        self.part().head(k, self.unit)
    }

    /// Takes a span off, and what is behind it where it lies inside. Says whether anything is left.
    fn leave_out(&mut self, gone: Span) -> bool {
        if self.set.is_some() {
            let first = self.span.start / CHUNK * CHUNK;
            let start = gone.start.max(first);
            let end = gone.end.min(first.saturating_add(CHUNK));
            return start >= end || self.leave_out_pages(&PageSet::of(Span { start, end }));
        }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) span: Span,
    /// Which, where that is known: all in one chunk, each moving by itself.
    pub(super) set: Option<Box<PageSet>>,
    pub(super) pages: u64,
}

impl Part {
    /// What of its first `k` pages can go by itself.
    pub(super) fn head(self, k: u64, unit: u64) -> Option<Self> {
        if k == 0 { None } else { self.split(k, unit, Round::Down).0 }
    }

    /// The part that holds about `k` of its pages, and the rest of it; either may be nothing.
    ///
    /// * `unit` – so many pages move as one, at least 1: the border is a multiple of them. Below, the part
    ///   has `k` pages at most.
    pub(super) fn split(self, k: u64, unit: u64, round: Round) -> (Option<Self>, Option<Self>) {
        let Span { start, end } = self.span;
        if k >= self.pages {
            return (Some(self), None);
        }
        if let Some(set) = self.set {
            let named = (u128::from(set.len()) * u128::from(k)).div_ceil(u128::from(self.pages));
            let head = set.first(u64::try_from(named).unwrap_or(u64::MAX));
            let part = |set: PageSet, pages: u64| {
                let span = set.hull(start / CHUNK)?;
                Some(Self { span, set: Some(Box::new(set)), pages })
            };
            return (part(head, k), part(set.without(&head), self.pages - k));
        }
        let whole = u128::from(end - start);
        let part = (whole * u128::from(k)).div_ceil(u128::from(self.pages));
        let at = start + u64::try_from(part).unwrap_or(u64::MAX).max(1);
        let at = match round {
            Round::Down => at / unit * unit,
            Round::Up => at.div_ceil(unit).saturating_mul(unit),
        };
        if at <= start {
            return (None, Some(self));
        }
        let at = at.min(end);
        let pages = u128::from(self.pages) * u128::from(at - start) / whole;
        let pages = match round {
            _ if unit <= 1 => k,
            Round::Down => u64::try_from(pages).unwrap_or(u64::MAX).min(k),
            Round::Up => u64::try_from(pages).unwrap_or(u64::MAX),
        };
        let head = Self { span: Span { start, end: at }, set: None, pages };
        let span = Span { start: at, end };
        let tail = Self { span, set: None, pages: self.pages - pages };
        (Some(head), (at < end).then_some(tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/engine.md#along
    #[test]
    fn a_border_lies_where_pages_can_be_parted() {
        let split = |start, end, pages, k, unit, round| {
            let (head, tail) =
                Part { span: Span { start, end }, set: None, pages }.split(k, unit, round);
            let tell = |p: Option<Part>| p.map(|p| (p.span.start, p.span.end, p.pages));
            (tell(head), tell(tail))
        };
        let (down, up) = (Round::Down, Round::Up);
        assert_eq!(split(0, 10, 10, 4, 1, down), (Some((0, 4, 4)), Some((4, 10, 6))));
        assert_eq!(split(0, 10, 5, 2, 1, up), (Some((0, 4, 2)), Some((4, 10, 3))));
        assert_eq!(split(0, 10, 5, 5, 512, down), (Some((0, 10, 5)), None), "all of it");
        let all = 3 * 512;
        assert_eq!(
            split(0, all, all, 700, 512, down),
            (Some((0, 512, 512)), Some((512, all, 1024)))
        );
        assert_eq!(
            split(0, all, all, 700, 512, up),
            (Some((0, 1024, 1024)), Some((1024, all, 512)))
        );
        assert_eq!(split(0, 512, 512, 100, 512, down), (None, Some((0, 512, 512))));
        assert_eq!(split(0, 512, 512, 100, 512, up), (Some((0, 512, 512)), None));
        // It begins in the middle of one, where memory does.
        assert_eq!(
            split(500, 1024, 524, 12, 512, down),
            (Some((500, 512, 12)), Some((512, 1024, 512)))
        );
        // A source that tells of more pages than there are: no more than was asked for.
        assert_eq!(split(7, 8, 5, 3, 1, down), (Some((7, 8, 3)), None));
        assert_eq!(
            split(0, 1024, 4096, 2049, 512, down),
            (Some((0, 512, 2048)), Some((512, 1024, 2048)))
        );
    }

    // specs/engine.md#along
    #[test]
    fn what_is_elsewhere_by_now_is_left_out() {
        let piece = |start, end| Piece {
            who: Who { pid: 7, start: 100 },
            span: Span { start, end },
            set: None,
            from: NodeId(0),
            to: NodeId(1),
            pages: end - start,
            unit: 1,
            saves: u128::from(end - start) * 10,
            gains: 0,
            why: Reason::MakeRoom,
        };
        let left = |start, end, gone: (u64, u64)| {
            let mut p = piece(start, end);
            let any = p.leave_out(Span { start: gone.0, end: gone.1 });
            any.then_some((p.span.start, p.span.end, p.pages, p.saves))
        };
        assert_eq!(left(0, 100, (100, 200)), Some((0, 100, 100, 1000)));
        assert_eq!(left(200, 300, (100, 200)), Some((200, 300, 100, 1000)));
        assert_eq!(left(100, 300, (0, 200)), Some((200, 300, 100, 1000)));
        assert_eq!(left(100, 300, (200, 400)), Some((100, 200, 100, 1000)));
        assert_eq!(left(100, 300, (150, 200)), Some((100, 150, 50, 500)), "and what is behind it");
        assert_eq!(left(100, 200, (0, 512)), None);
    }
}
