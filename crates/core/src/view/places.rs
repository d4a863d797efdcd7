//! On which nodes the accessed memory is: what to ask for, and what the answers make of it.
//!
//! ```text
//! stretches accessed   |■■■■■■■■■■■■■■■■■■■■■|     |■■|
//! asked                |   ■■      ■■      ■■|     |■■|     so many pages at most
//! answers              node 0: 1/3, node 1: 2/3    node 0
//!                        └──────── shares of what the source told ────────┘
//! ```
//!
//! A source that tells addresses does not tell nodes. All pages of a process are asked for
//! where they are few enough; else evenly spread pieces of each stretch stand for it.
//!
//! Source: specs/observe.md#places.

use crate::engine::seen::Span;
use crate::units::{NodeId, Pages};
use std::collections::BTreeMap;

/// Pages of a piece where a stretch is too long to be asked for as a whole.
const PIECE: u64 = 64;
/// Most stretches of a process: DAMON has 1000 regions for all of them, and what samples
/// say of one are at most so many pages.
const MOST: usize = 4096;

/// A stretch that was accessed, at one rate.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    span: Span,
    /// Accesses per page and second, in thousandths.
    rate: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    span: Span,
    /// Of which stretch.
    of: usize,
    on: BTreeMap<NodeId, Pages>,
}

/// The stretches of one period, and where they are as far as it was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// In rising order, without overlap.
    stretches: Vec<Stretch>,
    /// The same.
    pieces: Vec<Piece>,
}

impl Places {
    /// What was accessed earlier in the period no longer counts; unless it was asked for
    /// already: what is told meanwhile does not take its place.
    pub(super) fn begin(&mut self) {
        if self.pieces.is_empty() {
            self.stretches.clear();
        }
    }

    /// A stretch behind those before.
    pub(super) fn add(&mut self, span: Span, rate: u64) {
        if rate > 0 && self.stretches.len() < MOST && self.pieces.is_empty() {
            self.stretches.push(Stretch { span, rate });
        }
    }

    /// All their pages.
    pub(super) fn pages(&self) -> u64 {
        self.stretches.iter().fold(0, |sum, s| sum.saturating_add(s.span.pages().0))
    }

    /// The spans to ask for: about `most` pages, and a page of each stretch at least.
    pub(super) fn ask(&mut self, most: u64) -> Vec<Span> {
        let all = u128::from(self.pages().max(1));
        self.pieces.clear();
        for (of, stretch) in self.stretches.iter().enumerate() {
            let (Span { start, .. }, pages) = (stretch.span, stretch.span.pages().0);
            let share = (u128::from(pages) * u128::from(most)).div_ceil(all);
            let share = u64::try_from(share).unwrap_or(u64::MAX).clamp(1, pages);
            let count = if share == pages { 1 } else { share.div_ceil(PIECE) };
            let part = pages / count;
            let length = (share / count).max(1);
            for i in 0..count {
                // In the middle of its part.
                let start = start + part * i + (part - length) / 2;
                let span = Span { start, end: start + length };
                self.pieces.push(Piece { span, of, on: BTreeMap::new() });
            }
        }
        self.pieces.iter().map(|p| p.span).collect()
    }

    /// Takes an answer; whether it was asked for.
    pub(super) fn answer(&mut self, span: Span, on: NodeId, pages: Pages) -> bool {
        let at = self.pieces.binary_search_by_key(&span.start, |p| p.span.start);
        let piece = at.ok().map(|i| &mut self.pieces[i]).filter(|p| p.span == span);
        piece.map(|p| p.on.insert(on, pages)).is_some()
    }

    /// Pages by node of the stretches at that rate or above; empty if nobody answered.
    pub(super) fn at_least(&self, rate: u64) -> BTreeMap<NodeId, u128> {
        self.sums(|s| u128::from(s.rate >= rate))
    }
    /// Accesses by node of all stretches.
    pub(super) fn accesses(&self) -> BTreeMap<NodeId, u128> {
        self.sums(|s| s.rate.into())
    }

    fn sums(&self, weight: impl Fn(&Stretch) -> u128) -> BTreeMap<NodeId, u128> {
        let mut out = BTreeMap::new();
        for pieces in self.pieces.chunk_by(|a, b| a.of == b.of) {
            let stretch = &self.stretches[pieces[0].of];
            let asked: u128 = pieces.iter().map(|p| u128::from(p.span.pages().0)).sum();
            let pages = u128::from(stretch.span.pages().0);
            let mut found = BTreeMap::<NodeId, u128>::new();
            for (node, n) in pieces.iter().flat_map(|p| &p.on) {
                *found.entry(*node).or_default() += u128::from(n.0);
            }
            for (node, n) in found {
                // As many pages as asked for answer, at most.
                let there = n.min(asked) * pages / asked.max(1);
                let sum: &mut u128 = out.entry(node).or_default();
                *sum = sum.saturating_add(there.saturating_mul(weight(stretch)));
            }
        }
        out.retain(|_, sum| *sum > 0);
        out
    }
}

/// Pages in proportion to the shares; their sum is `pages`. `None` without any share,
/// unless there are no pages.
pub(super) fn split(
    pages: Pages,
    shares: &BTreeMap<NodeId, u128>,
) -> Option<BTreeMap<NodeId, Pages>> {
    if pages == Pages::ZERO {
        return Some(BTreeMap::new());
    }
    let (most, _) = shares.iter().max_by_key(|(_, n)| **n)?;
    let mut left = pages;
    let mut out = BTreeMap::new();
    for node in shares.keys().filter(|node| *node != most) {
        let part = Pages(share(pages.0, *node, shares));
        left = left.saturating_sub(part);
        out.insert(*node, part);
    }
    // What rounding leaves over goes to the largest.
    out.insert(*most, left);
    out.retain(|_, pages| pages.0 > 0);
    Some(out)
}

/// The part of `whole` that is that node's, rounded down; 0 without any share.
pub(super) fn share(whole: u64, node: NodeId, shares: &BTreeMap<NodeId, u128>) -> u64 {
    // Shares of up to 56 bits each, so that neither sum nor product overflows.
    let most = shares.values().max().copied().unwrap_or(0);
    let shift = (128 - most.leading_zeros()).saturating_sub(56);
    let all: u128 = shares.values().map(|n| n >> shift).sum();
    let own = shares.get(&node).map_or(0, |n| n >> shift);
    let part = (u128::from(whole) * own).checked_div(all).unwrap_or(0);
    u64::try_from(part).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }
    fn by(shares: &[(u16, u128)]) -> BTreeMap<NodeId, u128> {
        shares.iter().map(|(n, v)| (NodeId(*n), *v)).collect()
    }

    #[test]
    fn few_pages_are_all_asked_for_and_each_counts() {
        let mut p = Places::default();
        p.add(span(0, 10), 5);
        p.add(span(10, 20), 0);
        p.add(span(90, 100), 100);
        assert_eq!(p.ask(20), [span(0, 10), span(90, 100)]);
        assert!(p.answer(span(0, 10), NodeId(0), Pages(10)));
        assert!(p.answer(span(90, 100), NodeId(0), Pages(4)));
        assert!(p.answer(span(90, 100), NodeId(1), Pages(6)));
        assert!(!p.answer(span(90, 99), NodeId(1), Pages(6)), "nobody asked for that");
        assert_eq!(p.at_least(1), by(&[(0, 14), (1, 6)]));
        assert_eq!(p.at_least(50), by(&[(0, 4), (1, 6)]));
        assert_eq!(p.accesses(), by(&[(0, 10 * 5 + 4 * 100), (1, 600)]));
        // Another aggregation, before the answers have come.
        p.begin();
        p.add(span(0, 1000), 9);
        assert_eq!(p.at_least(1), by(&[(0, 14), (1, 6)]));
    }

    #[test]
    fn only_the_last_aggregation_is_asked_for() {
        let mut p = Places::default();
        p.add(span(0, 10), 5);
        p.begin();
        p.add(span(4, 6), 5);
        assert_eq!((p.pages(), p.ask(20)), (2, vec![span(4, 6)]));
    }

    //  |  ■■  |  ■■  |  ■■  |  ■■  |     256 of 1024 pages: four pieces of 64
    #[test]
    fn pieces_of_a_long_stretch_stand_for_it() {
        let mut p = Places::default();
        p.add(span(1000, 2024), 1);
        let asked = p.ask(256);
        assert_eq!(asked, [1096, 1352, 1608, 1864].map(|s| span(s, s + 64)));
        for (i, span) in asked.into_iter().enumerate() {
            assert!(p.answer(span, NodeId((i / 3) as u16), Pages(64)));
        }
        assert_eq!(p.at_least(0), by(&[(0, 768), (1, 256)]));
    }

    #[test]
    fn where_nothing_is_mapped_counts_for_nobody() {
        let mut p = Places::default();
        p.add(span(0, 1 << 40), 1);
        let asked = p.ask(128);
        assert_eq!(asked.len(), 2);
        p.answer(asked[0], NodeId(0), Pages(0));
        assert_eq!(p.at_least(0), by(&[]));
        assert_eq!(split(Pages(5), &p.at_least(0)), None);
        assert_eq!(split(Pages(0), &p.at_least(0)), Some(BTreeMap::new()));
        p.answer(asked[1], NodeId(3), Pages(1));
        let all = BTreeMap::from([(NodeId(3), Pages(5))]);
        assert_eq!(split(Pages(5), &p.at_least(0)), Some(all));
    }

    #[test]
    fn what_rounding_leaves_goes_to_the_largest() {
        let parts = split(Pages(10), &by(&[(0, 1), (1, 1), (2, 2)])).unwrap();
        assert_eq!(parts, [(0, 2), (1, 2), (2, 6)].map(|(n, p)| (NodeId(n), Pages(p))).into());
        assert_eq!(share(1000, NodeId(1), &by(&[(0, 1), (1, 2)])), 666);
        assert_eq!(share(1000, NodeId(7), &by(&[])), 0);
    }

    proptest! {
        #[test]
        fn what_is_asked_for_rises_within_what_was_accessed(
            holes in prop::collection::vec((0..1u64 << 20, 1..1u64 << 30, any::<u64>()), 0..40),
            most in 1..1u64 << 20,
        ) {
            let (mut p, mut at, mut spans) = (Places::default(), 0, Vec::new());
            for (hole, length, rate) in holes {
                spans.push((span(at + hole, at + hole + length), rate));
                at += hole + length;
                let (last, rate) = spans[spans.len() - 1];
                p.add(last, rate);
            }
            let asked = p.ask(most);
            prop_assert!(asked.windows(2).all(|w| w[0].end <= w[1].start));
            let within = |a: &Span| spans.iter().any(|(s, _)| s.start <= a.start && a.end <= s.end);
            prop_assert!(asked.iter().all(|a| a.start < a.end && within(a)));
            let sum: u64 = asked.iter().map(|a| a.pages().0).sum();
            prop_assert!(sum <= most + spans.len() as u64, "{sum} of {most}");
            let has = |s: &Span| asked.iter().any(|a| s.start <= a.start && a.end <= s.end);
            prop_assert!(spans.iter().all(|(s, rate)| *rate == 0 || has(s)));
        }

        #[test]
        fn parts_add_up(pages in any::<u64>(), shares in prop::collection::vec(any::<u128>(), 1..6)) {
            let shares = shares.into_iter().enumerate().map(|(i, n)| (NodeId(i as u16), n)).collect();
            let parts = split(Pages(pages), &shares).unwrap();
            let sum = parts.values().map(|p| u128::from(p.0)).sum::<u128>();
            prop_assert_eq!(sum, u128::from(pages));
        }
    }
}
