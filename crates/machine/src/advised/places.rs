//! Where one process's pages are, as told, and where they would be by now.
//!
//! ```text
//! pages       0 ......... 100 ......... 200 ......... 300
//! told        │ node 1: 90  │ node 0: 100 │   nothing    │
//! ordered     │ 1 ▶ 0       │ 0 ▶ 1       │              │
//! shown       │ node 0: 90  │ node 1: 100 │              │
//! ```
//!
//! An order is kept as a mapping of nodes over a stretch: whatever is told later of its
//! pages goes through it. Two orders over one stretch become one mapping.

use homenode_core::policy::seen::Span;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;

/// Stretches that one process may have before what is only known is thrown away.
const MOST: usize = 1 << 16;
/// A report about more pages than that is about the whole process, not about a stretch.
const WHOLE: u64 = 1 << 40;

/// Pages by node, in the order of the nodes.
pub(super) type Counts = BTreeMap<NodeId, u64>;

/// A stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// Where its pages are, as told last.
    told: Counts,
    /// Where pages of a node would be; others stay.
    moved: BTreeMap<NodeId, NodeId>,
}

impl Piece {
    fn shown(&self, real: NodeId) -> NodeId {
        self.moved.get(&real).copied().unwrap_or(real)
    }
    /// Pages that would be on a node.
    fn pages_on(&self, node: NodeId) -> u64 {
        self.told.iter().filter(|(n, _)| self.shown(**n) == node).map(|(_, c)| c).sum()
    }
    fn order(&mut self, from: NodeId, to: NodeId) {
        let stays = !self.moved.contains_key(&from);
        for there in self.moved.values_mut().filter(|there| **there == from) {
            *there = to;
        }
        if stays {
            self.moved.insert(from, to);
        }
        self.moved.retain(|real, there| real != there);
    }
    /// Cuts off what lies from `at` on; pages are shared evenly, as nothing tells more.
    fn cut(&mut self, start: u64, at: u64) -> Piece {
        let mut rest = self.clone();
        let (whole, part) = (u128::from(self.end - start), u128::from(at - start));
        for (node, count) in &mut self.told {
            let first = u64::try_from(u128::from(*count) * part / whole).unwrap_or(*count);
            if let Some(other) = rest.told.get_mut(node) {
                *other = *count - first;
            }
            *count = first;
        }
        self.end = at;
        self.told.retain(|_, c| *c > 0);
        rest.told.retain(|_, c| *c > 0);
        rest
    }
}

/// What is known and ordered of one process's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Not overlapping, by their starts.
    pieces: BTreeMap<u64, Piece>,
    /// Free pages that nodes would have more; `None` after a change.
    freed: Option<BTreeMap<NodeId, i64>>,
}

impl Places {
    fn cut(&mut self, at: u64) {
        if let Some((&start, piece)) = self.pieces.range_mut(..at).next_back() {
            if piece.end > at {
                let rest = piece.cut(start, at);
                self.pieces.insert(at, rest);
            }
        }
    }
    fn starts(&self, span: Span) -> Vec<u64> {
        self.pieces.range(span.start..span.end).map(|(s, _)| *s).collect()
    }

    /// Takes in where the pages of a span are; gives where they would be.
    pub(super) fn told(&mut self, span: Span, mut counts: Counts) -> Counts {
        if span.start >= span.end {
            return counts;
        }
        if span.pages().0 > WHOLE {
            return self.shown_of(counts);
        }
        for count in counts.values_mut() {
            *count = (*count).min(span.pages().0);
        }
        counts.retain(|_, c| *c > 0);
        self.freed = None;
        self.cut(span.start);
        self.cut(span.end);
        // What is known of the span, and the gaps between.
        let mut parts: Vec<(u64, Piece)> = Vec::new();
        let mut at = span.start;
        for start in self.starts(span) {
            if at < start {
                parts.push((at, Piece { end: start, ..Piece::default() }));
            }
            if let Some(piece) = self.pieces.remove(&start) {
                at = piece.end;
                parts.push((start, piece));
            }
        }
        if at < span.end {
            parts.push((at, Piece { end: span.end, ..Piece::default() }));
        }
        let alike = parts.windows(2).all(|w| w[0].1.moved == w[1].1.moved);
        if alike {
            let moved = parts.pop().map(|p| p.1.moved).unwrap_or_default();
            parts = vec![(span.start, Piece { end: span.end, told: counts, moved })];
        } else {
            share(&mut parts, &counts);
        }
        let mut shown = Counts::new();
        for (start, piece) in parts {
            for (&node, &count) in &piece.told {
                *shown.entry(piece.shown(node)).or_default() += count;
            }
            self.pieces.insert(start, piece);
        }
        self.bound();
        shown
    }

    /// A whole process's pages by node, as they would be.
    fn shown_of(&self, mut counts: Counts) -> Counts {
        for piece in self.pieces.values().filter(|p| !p.moved.is_empty()) {
            for (real, there) in &piece.moved {
                let known = piece.told.get(real).copied().unwrap_or(0);
                let Some(from) = counts.get_mut(real) else { continue };
                let n = known.min(*from);
                *from -= n;
                let to = counts.entry(*there).or_default();
                *to = to.saturating_add(n);
            }
        }
        counts.retain(|_, c| *c > 0);
        counts
    }

    /// Takes in on which node a page is; gives on which it would be.
    pub(super) fn told_page(&mut self, vpn: u64, on: NodeId) -> NodeId {
        let Some(end) = vpn.checked_add(1) else { return on };
        let shown = self.told(Span { start: vpn, end }, Counts::from([(on, 1)]));
        self.join(vpn);
        if let Some((&start, _)) = self.pieces.range(..vpn).next_back() {
            self.join(start);
        }
        shown.into_keys().next().unwrap_or(on)
    }

    /// Joins a stretch with the one behind it, where both are of one node wholly.
    fn join(&mut self, start: u64) {
        let full = |start: u64, p: &Piece| {
            let (node, count) = p.told.first_key_value()?;
            (p.told.len() == 1 && *count == p.end - start).then_some(*node)
        };
        let Some(one) = self.pieces.get(&start) else { return };
        let Some(other) = self.pieces.get(&one.end) else { return };
        let same = full(start, one).is_some() && full(start, one) == full(one.end, other);
        if !same || one.moved != other.moved {
            return;
        }
        let at = one.end;
        if let (Some(other), Some(one)) = (self.pieces.remove(&at), self.pieces.get_mut(&start)) {
            one.end = other.end;
            for (node, count) in other.told {
                *one.told.entry(node).or_default() += count;
            }
        }
    }

    /// Keeps memory bounded: neighbours with one mapping are taken together, and what is
    /// only known goes; orders stay.
    fn bound(&mut self) {
        if self.pieces.len() <= MOST {
            return;
        }
        let mut kept: BTreeMap<u64, Piece> = BTreeMap::new();
        for (start, piece) in std::mem::take(&mut self.pieces) {
            match kept.last_entry() {
                Some(mut last) if last.get().end == start && last.get().moved == piece.moved => {
                    let last = last.get_mut();
                    last.end = piece.end;
                    for (node, count) in piece.told {
                        *last.told.entry(node).or_default() += count;
                    }
                }
                _ => drop(kept.insert(start, piece)),
            }
        }
        if kept.len() > MOST / 2 {
            kept.retain(|_, p| !p.moved.is_empty());
        }
        self.pieces = kept;
    }

    /// An order as if it had been carried out: pages of the span that would be on `from`
    /// are on `to` from now on. How many they are; of what was never told, none.
    pub(super) fn order(&mut self, span: Span, from: NodeId, to: NodeId) -> u64 {
        if span.start >= span.end || from == to {
            return 0;
        }
        self.freed = None;
        self.cut(span.start);
        self.cut(span.end);
        let mut pages = 0;
        for piece in self.pieces.range_mut(span.start..span.end).map(|(_, p)| p) {
            let n = piece.pages_on(from);
            if n > 0 {
                pages += n;
                piece.order(from, to);
            }
        }
        pages
    }

    /// The span in parts over each of which one mapping holds, so that what is told of
    /// them goes through it exactly.
    pub(super) fn parts(&self, span: Span) -> Vec<Span> {
        let first = self.pieces.range(..=span.start).next_back().map_or(span.start, |(s, _)| *s);
        let mut out: Vec<Span> = Vec::new();
        let mut at = span.start;
        let mut last: Option<&BTreeMap<NodeId, NodeId>> = None;
        let none = BTreeMap::new();
        let mut push = |start: u64, end: u64, moved| {
            if start >= end {
                return;
            }
            match out.last_mut().filter(|_| last.unwrap_or(&none) == moved) {
                Some(part) => part.end = end,
                None => out.push(Span { start, end }),
            }
            last = Some(moved);
        };
        for (&start, piece) in self.pieces.range(first..span.end) {
            let (start, end) = (start.max(span.start), piece.end.min(span.end));
            if end <= span.start {
                continue;
            }
            push(at, start, &none);
            push(start, end, &piece.moved);
            at = end;
        }
        push(at, span.end, &none);
        out
    }

    /// Free pages that nodes would have more (or, negative, fewer).
    pub(super) fn freed(&mut self) -> &BTreeMap<NodeId, i64> {
        self.freed.get_or_insert_with(|| {
            let mut freed = BTreeMap::new();
            for piece in self.pieces.values().filter(|p| !p.moved.is_empty()) {
                for (real, there) in &piece.moved {
                    let n = piece.told.get(real).copied().unwrap_or(0);
                    let n = i64::try_from(n).unwrap_or(i64::MAX);
                    *freed.entry(*real).or_default() += n;
                    *freed.entry(*there).or_default() -= n;
                }
            }
            freed
        })
    }
}

/// Shares pages of a span among its parts: as they were before, or evenly.
fn share(parts: &mut [(u64, Piece)], counts: &Counts) {
    let mut shared: Vec<Counts> = vec![Counts::new(); parts.len()];
    for (node, &count) in counts {
        let before: Vec<u64> =
            parts.iter().map(|(_, p)| p.told.get(node).copied().unwrap_or(0)).collect();
        let weights: Vec<u64> = if before.iter().all(|n| *n == 0) {
            parts.iter().map(|(start, p)| p.end - start).collect()
        } else {
            before
        };
        let all: u128 = weights.iter().map(|w| u128::from(*w)).sum();
        let (mut sum, mut given) = (0u128, 0u64);
        for (own, weight) in shared.iter_mut().zip(weights) {
            sum += u128::from(weight);
            let upto = u128::from(count) * sum / all.max(1);
            let upto = u64::try_from(upto).unwrap_or(count);
            if upto > given {
                own.insert(*node, upto - given);
            }
            given = upto;
        }
    }
    for ((_, piece), own) in parts.iter_mut().zip(shared) {
        piece.told = own;
    }
}
