//! Which pages were accessed: exactly, and in bounded memory.
//!
//! ```text
//! Spans   DAMON    |■■■■■|    |■■|            a union of stretches
//! Marks   events   2 MiB ─▶ 512 bits          a bitmap by block and node
//! ```
//!
//! Both count each page once, however often it was told of.

use crate::policy::seen::Span;
use crate::units::{NodeId, Pages};
use std::collections::BTreeMap;

/// Pages in a bitmap: a huge page.
const BLOCK: u64 = 512;
/// Most bitmaps of a process; 80 bytes each. Pages beyond them are not counted, so
/// that what is told stays a lower bound.
const MOST_BLOCKS: usize = 8192;

/// A union of spans.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    /// End by start; they neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl Spans {
    pub(super) fn add(&mut self, span: Span) {
        if span.start >= span.end {
            return;
        }
        let (mut start, mut end) = (span.start, span.end);
        // Those that overlap it or touch it, from the last one that begins before its end.
        while let Some((&s, &e)) = self.ends.range(..=end).next_back().filter(|(_, e)| **e >= start)
        {
            (start, end) = (start.min(s), end.max(e));
            self.ends.remove(&s);
        }
        self.ends.insert(start, end);
    }
    pub(super) fn pages(&self) -> Pages {
        Pages(self.ends.iter().fold(0, |sum, (s, e)| sum.saturating_add(e - s)))
    }
}

/// Single pages, each with the node where it was seen last, if that was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    blocks: BTreeMap<(u64, Option<NodeId>), [u64; 8]>,
}

impl Marks {
    pub(super) fn mark(&mut self, vpn: u64, on: Option<NodeId>) {
        let (block, bit) = (vpn / BLOCK, (vpn % BLOCK) as usize);
        let (word, mask) = (bit / 64, 1u64 << (bit % 64));
        let key = (block, on);
        if !self.blocks.contains_key(&key) && self.blocks.len() >= MOST_BLOCKS {
            return;
        }
        // A page that has moved is where it was seen last.
        let all = (block, None)..=(block, Some(NodeId(u16::MAX)));
        for (_, bits) in self.blocks.range_mut(all) {
            bits[word] &= !mask;
        }
        self.blocks.entry(key).or_default()[word] |= mask;
    }
    /// Pages by node; `None` if the node of one is not known.
    pub(super) fn by_node(&self) -> Option<BTreeMap<NodeId, Pages>> {
        let mut out = BTreeMap::new();
        for ((_, on), bits) in &self.blocks {
            let pages = count(bits);
            if pages.0 > 0 {
                *out.entry((*on)?).or_default() += pages;
            }
        }
        Some(out)
    }
    pub(super) fn pages(&self) -> Pages {
        self.blocks.values().map(count).sum()
    }
    /// Those whose node is not known, as stretches in rising order.
    pub(super) fn runs(&self) -> Vec<Span> {
        let mut out: Vec<Span> = Vec::new();
        for ((block, _), bits) in self.blocks.iter().filter(|((_, on), _)| on.is_none()) {
            for bit in 0..BLOCK {
                if bits[(bit / 64) as usize] >> (bit % 64) & 1 == 0 {
                    continue;
                }
                let vpn = block * BLOCK + bit;
                // The very last page number has no end, and no machine has it.
                if vpn == u64::MAX {
                    continue;
                }
                match out.last_mut().filter(|s| s.end == vpn) {
                    Some(last) => last.end += 1,
                    None => out.push(Span { start: vpn, end: vpn + 1 }),
                }
            }
        }
        out
    }
}

fn count(bits: &[u64; 8]) -> Pages {
    Pages(bits.iter().map(|b| u64::from(b.count_ones())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    //   |--- 10-20 ---|       |-- 30-40 --|
    //               |-- 20-30 --|                 touches both
    #[test]
    fn spans_that_touch_are_one_and_no_page_counts_twice() {
        let mut spans = Spans::default();
        for (start, end) in [(10, 20), (30, 40), (5, 5), (20, 30), (12, 15), (50, 60)] {
            spans.add(Span { start, end });
        }
        assert_eq!(spans.ends, BTreeMap::from([(10, 40), (50, 60)]));
        assert_eq!(spans.pages(), Pages(40));
        spans.add(Span { start: 0, end: 100 });
        assert_eq!(spans.pages(), Pages(100));
    }

    // Against a set of pages, with spans as a simple generator makes them.
    #[test]
    fn a_union_is_what_a_set_of_pages_says() {
        let (mut spans, mut set) = (Spans::default(), BTreeSet::new());
        let mut x = 12_345u64;
        for _ in 0..2000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len) = ((x >> 33) % 5000, (x >> 20) % 9);
            spans.add(Span { start, end: start + len });
            set.extend(start..start + len);
            assert_eq!(spans.pages(), Pages(set.len() as u64));
        }
    }

    #[test]
    fn a_page_counts_once_and_where_it_was_seen_last() {
        let mut marks = Marks::default();
        for vpn in [0, 1, 1, 511, 512, u64::MAX] {
            marks.mark(vpn, Some(NodeId(0)));
        }
        assert_eq!(marks.by_node(), Some(BTreeMap::from([(NodeId(0), Pages(5))])));
        marks.mark(1, Some(NodeId(2)));
        let by = BTreeMap::from([(NodeId(0), Pages(4)), (NodeId(2), Pages(1))]);
        assert_eq!(marks.by_node(), Some(by));
        assert_eq!(marks.pages(), Pages(5));
        marks.mark(7, None);
        assert_eq!(marks.by_node(), None, "of one page nobody knows");
        assert_eq!(marks.pages(), Pages(6));
        assert_eq!(marks.runs(), [Span { start: 7, end: 8 }]);
        for vpn in [8, 511, 512, 513, u64::MAX - 1, u64::MAX] {
            marks.mark(vpn, None);
        }
        let runs = [(7, 9), (511, 514), (u64::MAX - 1, u64::MAX)];
        assert_eq!(marks.runs(), runs.map(|(start, end)| Span { start, end }));
    }

    #[test]
    fn memory_is_bounded_and_what_is_counted_a_lower_bound() {
        let mut marks = Marks::default();
        for i in 0..MOST_BLOCKS as u64 + 1000 {
            marks.mark(i * BLOCK, None);
        }
        assert_eq!(marks.pages(), Pages(MOST_BLOCKS as u64));
        marks.mark(3, None);
        assert_eq!(marks.pages(), Pages(MOST_BLOCKS as u64 + 1), "known blocks go on");
    }
}
