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
//! where they are few enough; else evenly spread pieces of each stretch stand for it. How far
//! that may be off is told by how much pieces next to each other differ.
//!
//! Source: specs/observe.md#places.

use crate::policy::seen::Span;
use crate::units::{NodeId, Pages};
use std::collections::{BTreeMap, BTreeSet};

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

    /// Of so many pages in the stretches at that rate or above: by how much a node's part
    /// may be off, two standard errors. 0 where all of them were asked for.
    ///
    /// A piece stands for its part of a stretch. How much parts differ from their pieces is
    /// not known; that pieces differ from those next to them is, and is taken for it, as is
    /// usual where samples are evenly spread. One piece alone says nothing: it may be wrong
    /// by half its part.
    pub(super) fn error(&self, pages: Pages, rate: u64) -> Pages {
        let mut parts = Vec::new();
        for pieces in self.pieces.chunk_by(|a, b| a.of == b.of) {
            let stretch = &self.stretches[pieces[0].of];
            if stretch.rate >= rate {
                let whole = u128::from(stretch.span.pages().0);
                let part = whole / pieces.len() as u128;
                parts.extend(pieces.iter().map(|p| (p, part)));
            }
        }
        let all = parts.iter().fold(0u128, |sum, (_, part)| sum.saturating_add(*part));
        let nodes: BTreeSet<NodeId> =
            parts.iter().flat_map(|(p, _)| p.on.keys().copied()).collect();
        let errors = nodes.into_iter().map(|node| variance(&parts, node).isqrt());
        // In pages, twice, in the proportion in which they were divided.
        let two = errors.max().unwrap_or(0).saturating_mul(2) / ONE;
        let part = u128::from(pages.0).saturating_mul(two).checked_div(all).unwrap_or(0);
        Pages(u64::try_from(part).unwrap_or(u64::MAX)).min(pages)
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

/// One, of shares of a piece.
const ONE: u128 = 1 << 10;

/// Of the pages that pieces and the parts for which they stand have on a node, squared, in
/// [`ONE`]s.
fn variance(parts: &[(&Piece, u128)], node: NodeId) -> u128 {
    let share = |piece: &Piece| {
        let (on, all) = (piece.on.get(&node).map_or(0, |p| p.0), piece.span.pages().0);
        u128::from(on.min(all)) * ONE / u128::from(all.max(1))
    };
    let mut sum = 0u128;
    for (i, (piece, part)) in parts.iter().enumerate() {
        let unseen = part.saturating_sub(piece.span.pages().0.into());
        if unseen == 0 {
            continue;
        }
        let here = share(piece);
        let sides = [i.checked_sub(1), Some(i + 1)].map(|j| parts.get(j?).map(|(p, _)| share(p)));
        let squares = sides.into_iter().flatten().map(|there| here.abs_diff(there).pow(2) / 2);
        let (count, all) = squares.fold((0, 0), |(n, all), square| (n + 1, all + square));
        let one = all.checked_div(count).unwrap_or(ONE * ONE / 4);
        // Of the part only what was not looked at can be otherwise.
        sum = sum.saturating_add(part.saturating_mul(unseen).saturating_mul(one));
    }
    sum
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
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

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

    #[test]
    fn what_was_looked_at_as_a_whole_is_not_off() {
        let mut p = Places::default();
        p.add(span(0, 10), 5);
        p.add(span(90, 190), 100);
        p.ask(110);
        p.answer(span(0, 10), NodeId(0), Pages(10));
        p.answer(span(90, 190), NodeId(1), Pages(50));
        assert_eq!((p.error(Pages(110), 1), p.error(Pages(0), 1)), (Pages(0), Pages(0)));
    }

    #[test]
    fn pieces_that_differ_tell_how_far_it_may_be_off() {
        let off = |on: [u16; 4], rate| {
            let mut p = Places::default();
            p.add(span(1000, 2024), 1);
            for (span, node) in p.ask(256).into_iter().zip(on) {
                p.answer(span, NodeId(node), Pages(64));
            }
            p.error(Pages(1024), rate).0
        };
        // All alike: nothing says that it is otherwise anywhere.
        assert_eq!(off([0, 0, 0, 0], 1), 0);
        // Two of four parts have a neighbour that differs; each time another one.
        assert!(off([0, 0, 1, 1], 1) < off([0, 1, 1, 0], 1));
        assert!(off([0, 1, 1, 0], 1) < off([0, 1, 0, 1], 1));
        // Nothing is as hot as that.
        assert_eq!(off([0, 1, 0, 1], 2), 0);
        // One piece alone: half of what was not looked at, and a bit.
        let mut p = Places::default();
        p.add(span(0, 1000), 1);
        let asked = p.ask(1);
        p.answer(asked[0], NodeId(0), Pages(1));
        assert_eq!(p.error(Pages(1000), 1), Pages(999));
        assert_eq!(p.error(Pages(10), 1), Pages(9), "of what it is divided for");
    }

    // Memory that lies on two nodes in runs of some length: what was told is off by more
    // than it says seldom, as it says, and what it says is not much more than that.
    #[test]
    fn it_is_as_far_off_as_it_says() {
        let (mut within, mut told, mut was) = (0, 0u64, 0u64);
        let mut runner = TestRunner::deterministic();
        for longest in [20u64, 200, 2000, 20_000].repeat(100) {
            let runs = prop::collection::vec(1..=longest, 1..40_000);
            let runs = runs.new_tree(&mut runner).expect("there are some").current();
            let mut nodes: Vec<u16> = Vec::new();
            for (i, run) in runs.into_iter().enumerate() {
                nodes.resize((nodes.len() as u64 + run).min(40_000) as usize, (i % 2) as u16);
            }
            let all = nodes.len() as u64;
            let mut p = Places::default();
            p.add(span(0, all), 1);
            for span in p.ask(2048) {
                let part = &nodes[span.start as usize..span.end as usize];
                let there = part.iter().filter(|n| **n == 1).count() as u64;
                p.answer(span, NodeId(1), Pages(there));
                p.answer(span, NodeId(0), Pages(part.len() as u64 - there));
            }
            let real = nodes.iter().filter(|n| **n == 1).count() as u64;
            let found = split(Pages(all), &p.at_least(1)).expect("somewhere");
            let off = found.get(&NodeId(1)).map_or(0, |p| p.0).abs_diff(real);
            let error = p.error(Pages(all), 1).0;
            within += u32::from(off <= error);
            (told, was) = (told + error, was + off);
        }
        assert!(within >= 380, "{within} of 400");
        // Twice the deviation is two and a half times what one is off on average.
        assert!(told < 5 * was, "{told} and {was}");
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
