//! Where a process's pages were last told to be.
//!
//! ```text
//! told     [0,100) 60 on node 0, 40 on node 1      then [20,30) 10 on node 1
//! kept     [0,20) 12 and 8    [20,30) 10 on node 1    [30,100) 42 and 28
//! asked    [25,40) ─▶ [25,30) 5 on node 1, [30,40) 6 and 4
//! ```

use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::units::{NodeId, Pages};
use std::collections::BTreeMap;

type Counts = BTreeMap<NodeId, u64>;

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Of the whole address space.
    whole: Counts,
    /// Ends and counts by beginnings; none overlap.
    blocks: BTreeMap<u64, (u64, Counts)>,
}

impl Known {
    /// Pages of a span are on a node.
    ///
    /// * `first` – this is the first report on the span; more of them tell of other nodes.
    pub(super) fn see(&mut self, span: Span, on: NodeId, pages: Pages, first: bool) {
        if span == Span::WHOLE {
            if first {
                self.whole.clear();
            }
            self.whole.insert(on, pages.0);
            return;
        }
        if span.end <= span.start {
            return;
        }
        if first {
            self.cut(span);
            self.blocks.insert(span.start, (span.end, Counts::new()));
        }
        if let Some((_, counts)) = self.blocks.get_mut(&span.start) {
            counts.insert(on, pages.0);
        }
    }

    /// Forgets what was told of a span.
    fn cut(&mut self, span: Span) {
        for (start, (end, counts)) in self.overlapping(span) {
            self.blocks.remove(&start);
            let whole = Span { start, end };
            for rest in [Span { start, end: span.start }, Span { start: span.end, end }] {
                if rest.start < rest.end {
                    self.blocks.insert(rest.start, (rest.end, share(&counts, whole, rest)));
                }
            }
        }
    }

    /// Those of a span that are on one node are on another from now on; how many.
    pub(super) fn go(&mut self, span: Span, from: NodeId, to: NodeId) -> Pages {
        let parts = self.overlapping(span);
        let mut gone = 0;
        for (start, (end, counts)) in &parts {
            let part = Span { start: span.start.max(*start), end: span.end.min(*end) };
            let mut counts = share(counts, Span { start: *start, end: *end }, part);
            gone += shift(&mut counts, from, to, u64::MAX);
            self.cut(part);
            self.blocks.insert(part.start, (part.end, counts));
        }
        if parts.is_empty() {
            gone = shift(&mut self.whole, from, to, span.pages().0);
        }
        Pages(gone)
    }

    fn overlapping(&self, span: Span) -> Vec<(u64, (u64, Counts))> {
        let first = self.blocks.range(..=span.start).next_back().map_or(span.start, |(s, _)| *s);
        let all = self.blocks.range(first..span.end.max(first));
        all.filter(|(_, (end, _))| *end > span.start).map(|(s, b)| (*s, b.clone())).collect()
    }

    /// What is known of a span, as a machine tells it, with the pages of each report.
    pub(super) fn within(&self, who: Who, span: Span) -> Vec<(Seen, Pages)> {
        let mut out = Vec::new();
        for (start, (end, counts)) in self.overlapping(span) {
            let part = Span { start: start.max(span.start), end: end.min(span.end) };
            tell(who, part, &share(&counts, Span { start, end }, part), &mut out);
        }
        let mut on = self.whole.iter().filter(|(_, n)| **n > 0);
        if let (true, Some((&node, &n)), None) = (out.is_empty(), on.next(), on.next()) {
            tell(who, span, &Counts::from([(node, span.pages().0.min(n))]), &mut out);
        }
        out
    }

    /// All of it.
    pub(super) fn all(&self, who: Who) -> Vec<(Seen, Pages)> {
        let mut out = Vec::new();
        for (&start, (end, counts)) in &self.blocks {
            tell(who, Span { start, end: *end }, counts, &mut out);
        }
        out
    }
}

/// The part of evenly spread pages that falls into a part of their span, rounded to the nearest.
fn share(counts: &Counts, whole: Span, part: Span) -> Counts {
    let (all, of) = (u128::from(whole.pages().0.max(1)), u128::from(part.pages().0));
    let one = |n: u64| u64::try_from((u128::from(n) * of + all / 2) / all).unwrap_or(u64::MAX);
    counts.iter().map(|(node, n)| (*node, one(*n))).collect()
}

/// Takes at most so many pages from one node to another; how many.
fn shift(counts: &mut Counts, from: NodeId, to: NodeId, most: u64) -> u64 {
    let there = counts.get(&from).map_or(0, |n| most.min(*n));
    if there > 0 {
        counts.entry(from).and_modify(|n| *n -= there);
        *counts.entry(to).or_default() += there;
    }
    there
}

fn tell(who: Who, span: Span, counts: &Counts, out: &mut Vec<(Seen, Pages)>) {
    let some = counts.iter().filter(|(_, n)| **n > 0);
    let some: Vec<_> = some.map(|(node, n)| (*node, Pages(*n))).collect();
    let none = counts.keys().next().map(|node| (*node, Pages::ZERO));
    let all = if some.is_empty() { none.into_iter().collect() } else { some };
    out.extend(all.into_iter().map(|(on, pages)| (Seen::Resident { who, span, on, pages }, pages)));
}
