//! Where a process's memory lies, as a census tells it: what lies together on one node.
//!
//! ```text
//! pages   0....63│64...127│128..191│192..255│256..319
//! node    0000000│00000000│01010101│1111    │           by blocks of 64 pages
//! told    └ 128 on 0 ─────┘└ 32+32 ┘└ 4 on 1
//! ```
//!
//! Blocks that follow each other and are on one node are one extent, however long; holes
//! inside of them are not told apart. A block with pages of several nodes is one by itself.
//! So the number of extents follows from how mixed memory is, and not from how large; and of
//! memory that is mixed everywhere, such as interleaved pages, blocks are doubled where there would be
//! more than [`MOST`].
//!
//! Source: specs/engine.md#census.

use super::span::Span;
use crate::units::{NodeId, Pages};
use std::collections::BTreeMap;

/// Pages of a block: within it, places are known as counts only.
pub const BLOCK_PAGES: u64 = 64;

/// Extents that there are at most, some 16 MB of them.
pub const MOST: usize = 1 << 16;

/// A stretch and its pages by node.
pub type Extent = (Span, BTreeMap<NodeId, Pages>);

/// Takes pages in memory, by rising number, and makes extents of them.
#[derive(Clone, Debug)]
pub struct Extents {
    done: Vec<Extent>,
    /// The block whose pages are being told.
    block: Option<Extent>,
    /// Pages of a block by now.
    pages: u64,
    most: usize,
}

impl Default for Extents {
    fn default() -> Self {
        Self::of_at_most(MOST)
    }
}

impl Extents {
    fn of_at_most(most: usize) -> Self {
        Self { done: Vec::new(), block: None, pages: BLOCK_PAGES, most }
    }
    const fn block_of(&self, page: u64) -> u64 {
        page / self.pages
    }

    /// Pages from `first` on are on a node; all before were told before.
    pub fn add(&mut self, first: u64, pages: u64, on: NodeId) {
        let (mut page, end) = (first, first.saturating_add(pages));
        while page < end {
            let of = self.block_of(page);
            let part = end.min((of + 1).saturating_mul(self.pages));
            if self.block.as_ref().is_none_or(|b| self.block_of(b.0.start) != of) {
                self.close();
            }
            let span = Span { start: page, end: part };
            let (whole, nodes) = self.block.get_or_insert_with(|| (span, BTreeMap::new()));
            whole.end = part;
            *nodes.entry(on).or_default() += Pages(part - page);
            page = part;
        }
    }

    /// The block is told: it goes on with what is before it, or is an extent of its own.
    fn close(&mut self) {
        let Some((span, nodes)) = self.block.take() else { return };
        let only = |nodes: &BTreeMap<NodeId, Pages>| {
            nodes.keys().next().copied().filter(|_| nodes.len() == 1)
        };
        let here = only(&nodes);
        let before = self.block_of(span.start).checked_sub(1);
        let size = self.pages;
        let goes_on = |(last, on): &&mut Extent| {
            here.is_some() && only(on) == here && Some((last.end - 1) / size) == before
        };
        match self.done.last_mut().filter(goes_on) {
            Some(last) => join(last, (span, nodes)),
            None => self.done.push((span, nodes)),
        }
        while self.done.len() > self.most && self.pages < 1 << 40 {
            self.double();
        }
    }

    /// Doubles blocks: extents within one of them become one.
    fn double(&mut self) {
        self.pages *= 2;
        let size = self.pages;
        let within = |span: &Span| {
            let block = span.start / size;
            Some(block).filter(|block| *block == (span.end - 1) / size)
        };
        let all = std::mem::take(&mut self.done);
        for extent in all {
            let block = within(&extent.0);
            match self.done.last_mut().filter(|l| block.is_some() && within(&l.0) == block) {
                Some(last) => join(last, extent),
                None => self.done.push(extent),
            }
        }
    }

    /// The extents, by rising addresses.
    pub fn done(mut self) -> Vec<Extent> {
        self.close();
        self.done
    }
}

/// An extent and what follows it, as one.
fn join(last: &mut Extent, next: Extent) {
    last.0.end = next.0.end;
    for (node, pages) in next.1 {
        *last.1.entry(node).or_default() += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pages: impl IntoIterator<Item = (u64, u64, u16)>) -> Vec<String> {
        told_by(Extents::default(), pages)
    }

    fn told_by(mut all: Extents, pages: impl IntoIterator<Item = (u64, u64, u16)>) -> Vec<String> {
        pages.into_iter().for_each(|(first, n, on)| all.add(first, n, NodeId(on)));
        let nodes = |on: BTreeMap<NodeId, Pages>| {
            on.iter().map(|(n, p)| format!(" {}:{}", n.0, p.0)).collect::<String>()
        };
        all.done()
            .into_iter()
            .map(|(s, on)| format!("{}..{}{}", s.start, s.end, nodes(on)))
            .collect()
    }

    // specs/engine.md#census: the picture above.
    #[test]
    fn blocks_on_one_node_are_one_extent_and_mixed_ones_are_their_own() {
        let mixed = (128..192).map(|page| (page, 1, u16::from(page % 2 == 1)));
        let all = [(0, 128, 0)].into_iter().chain(mixed).chain([(192, 4, 1)]);
        assert_eq!(told(all), ["0..128 0:128", "128..192 0:32 1:32", "192..196 1:4"]);
    }

    // Interleaved pages: no more than four extents, and all pages are counted. What is on one node
    // alone stays so.
    #[test]
    fn blocks_are_doubled_where_there_would_be_too_many() {
        let mixed = (0..1280).map(|page| (page, 1, u16::from(page % 2 == 1)));
        let all = mixed.clone().chain([(1280, 6400, 0)]);
        let four = [
            "0..512 0:256 1:256",
            "512..1024 0:256 1:256",
            "1024..1280 0:128 1:128",
            "1280..7680 0:6400",
        ];
        assert_eq!(told_by(Extents::of_at_most(4), all), four);
        let many = told_by(Extents::of_at_most(1), mixed);
        assert_eq!(many, ["0..1280 0:640 1:640"]);
    }

    #[test]
    fn extents_begin_and_end_at_pages_that_are_there() {
        assert!(told([]).is_empty());
        // A block without pages between: two extents, though on one node.
        assert_eq!(told([(70, 1, 2), (130, 2, 2), (260, 1, 2)]), ["70..132 2:3", "260..261 2:1"]);
        // A huge page of 512 and more behind it.
        assert_eq!(told([(512, 512, 1), (1024, 1, 1)]), ["512..1025 1:513"]);
        assert_eq!(told([(u64::MAX - 1, 5, 0)]), [format!("{}..{} 0:1", u64::MAX - 1, u64::MAX)]);
    }
}
