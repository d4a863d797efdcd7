//! Records put together to what one target had at the end of one aggregation.
//!
//! DAMON's thread tells target by target, region by region, and with each how many regions
//! the target has:
//!
//! ```text
//! target   1 1 1   2 2   1 1 1   2        what has come so far
//! of       3 3 3   2 2   3 3 3   2
//! block    whole   whole whole   not yet
//! ```
//!
//! Only the last whole block of each target is kept: homenode looks more seldom than DAMON
//! aggregates. A block of which a record was lost is never whole.

use super::record::Record;
use std::collections::BTreeMap;

/// A target's regions at the end of an aggregation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// When its last region was told, `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) at: u64,
    /// Nanoseconds since the aggregation before, if that was seen.
    pub(super) took: Option<u64>,
    /// In the order of their addresses.
    pub(super) regions: Vec<Record>,
    /// Whole blocks of this target since the last time.
    pub(super) of: u32,
}

/// Puts them together.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Being put together.
    open: Vec<Record>,
    whole: BTreeMap<u64, Block>,
    /// When each target's last whole block came, also if it was taken.
    came: BTreeMap<u64, u64>,
}

impl Blocks {
    /// The next record.
    pub(super) fn push(&mut self, record: Record) {
        let goes_on = self.open.last().is_some_and(|last| {
            last.target == record.target
                && last.regions == record.regions
                && last.end <= record.start
        });
        if !goes_on {
            self.open.clear();
        }
        self.open.push(record);
        if self.open.len() as u64 == record.regions {
            self.close(record);
        }
    }

    fn close(&mut self, last: Record) {
        let before = self.came.insert(last.target, last.at);
        let took = before.and_then(|b| last.at.checked_sub(b)).filter(|t| *t > 0);
        let block = self.whole.entry(last.target).or_default();
        block.at = last.at;
        block.took = took;
        block.of = block.of.saturating_add(1);
        // The buffers change places, so that none is made anew.
        std::mem::swap(&mut block.regions, &mut self.open);
        self.open.clear();
    }

    /// Records were lost: what is being put together isn't whole, nor is the time since
    /// the last block that of one aggregation.
    pub(super) fn gap(&mut self) {
        self.open.clear();
        self.came.clear();
    }

    /// The last whole block of each target that got one since the last time.
    pub(super) fn take(&mut self) -> BTreeMap<u64, Block> {
        std::mem::take(&mut self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(at: u64, target: u64, regions: u64, i: u64) -> Record {
        let (start, end) = (i * 4096, (i + 1) * 4096);
        Record { at, target, regions, start, end, accesses: i, age: 1 }
    }
    fn told(at: u64, target: u64, regions: u64) -> impl Iterator<Item = Record> {
        (0..regions).map(move |i| record(at, target, regions, i))
    }

    #[test]
    fn the_last_whole_aggregation_of_each_target_counts() {
        let mut blocks = Blocks::default();
        let all = [told(100, 1, 3), told(100, 2, 2), told(200, 1, 4)];
        all.into_iter().flatten().for_each(|r| blocks.push(r));
        // Of this one a part only, so far.
        blocks.push(record(200, 2, 2, 0));
        let taken = blocks.take();
        let seen: Vec<_> =
            taken.iter().map(|(t, b)| (*t, b.at, b.took, b.regions.len(), b.of)).collect();
        assert_eq!(seen, [(1, 200, Some(100), 4, 2), (2, 100, None, 2, 1)]);
        // The rest of it comes later.
        blocks.push(record(201, 2, 2, 1));
        let taken = blocks.take();
        assert_eq!((taken.len(), taken[&2].took), (1, Some(101)));
        assert!(blocks.take().is_empty());
    }

    #[test]
    fn one_target_alone_is_told_apart_by_its_number_of_regions() {
        let mut blocks = Blocks::default();
        told(1, 0, 2).chain(told(2, 0, 2)).chain(told(3, 0, 5)).for_each(|r| blocks.push(r));
        assert_eq!(blocks.take()[&0].regions.len(), 5);
    }

    #[test]
    fn a_block_with_a_hole_is_never_whole() {
        let mut blocks = Blocks::default();
        told(1, 0, 4).take(2).for_each(|r| blocks.push(r));
        blocks.gap();
        told(2, 0, 4).skip(2).for_each(|r| blocks.push(r));
        assert!(blocks.take().is_empty());
        told(3, 0, 4).for_each(|r| blocks.push(r));
        assert_eq!(blocks.take()[&0].at, 3);
    }

    proptest! {
        /// Whatever is lost, what comes out was told as a whole.
        #[test]
        fn no_block_is_made_up(
            sizes in proptest::collection::vec(1u64..5, 1..4),
            drops in proptest::collection::vec(any::<bool>(), 60),
        ) {
            let mut blocks = Blocks::default();
            let mut drops = drops.into_iter().cycle();
            for at in 1..8 {
                for (target, &n) in sizes.iter().enumerate() {
                    for r in told(at, target as u64, n) {
                        if drops.next() == Some(true) {
                            blocks.gap();
                        } else {
                            blocks.push(r);
                        }
                    }
                }
            }
            for (target, block) in blocks.take() {
                let want: Vec<_> = told(block.at, target, sizes[target as usize]).collect();
                prop_assert_eq!(block.regions, want);
            }
        }
    }
}
