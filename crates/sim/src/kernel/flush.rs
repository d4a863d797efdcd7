//! Remote flushes: translations that other CPUs have to forget.
//!
//! A CPU that runs an address space keeps entries of its page tables. Whoever takes a right away from an entry, or puts
//! another page behind it, has such CPUs interrupted, and waits until all have answered.
//!
//! ```text
//! kernel      changes entries ──▶ of which address spaces     knows nothing of who runs where
//! executive   takes that      ──▶ interrupts CPUs that run them, has the asker pay
//! ```
//!
//! Entries that change in a batch are flushed together when it ends.
//!
//! Source: specs/remote-flush.md; what is left out: specs/remote-flush.md#not.

use super::Kernel;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::{State, Word};
use homenode_core::kernel::KernelVersion;
use homenode_core::units::HUGE_PAGES;

/// Whom a flush is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// CPUs that run one of these address spaces.
    Spaces(Vec<u32>),
    /// All CPUs.
    All,
}

/// Base pages of a batch that nobody maps any more, until its flush.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Whose pages, each address space once.
    spaces: Vec<u32>,
    pages: u64,
}

/// What is to be flushed.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    due: Vec<Flush>,
    /// The batch that is under way.
    pub(crate) batch: Batch,
}

impl Flushes {
    /// One of an address space's CPUs.
    pub(super) fn of(&mut self, space: usize) {
        self.due.push(Flush::Spaces(vec![space as u32]));
    }
    /// One of all CPUs.
    pub(super) fn of_all(&mut self) {
        self.due.push(Flush::All);
    }
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.due.is_empty() && self.batch.pages == 0
    }
}

impl Kernel {
    /// What is to be flushed now, in the order in which it came; a batch under way is over.
    pub(crate) fn take_flushes(&mut self) -> Vec<Flush> {
        self.end_batch();
        std::mem::take(&mut self.flushes.due)
    }
    /// The batch under way is over: its pages' entries are flushed.
    pub(crate) fn end_batch(&mut self) {
        let Batch { spaces, pages } = std::mem::take(&mut self.flushes.batch);
        if pages == 0 {
            return;
        }
        for &space in &spaces {
            if let Some(s) = &mut self.spaces[space as usize] {
                s.unmapped_in_batch = true;
            }
        }
        self.flushes.due.push(Flush::Spaces(spaces));
    }
    /// The batch under way goes on to another flush where it is as large as one may be.
    fn end_full_batch(&mut self, most: u64) {
        if self.flushes.batch.pages >= most {
            self.end_batch();
        }
    }
    /// An item's entries go, since the item moves. Huge ones are flushed at once; those that no CPU may use, since the
    /// scan has marked them, are not.
    ///
    /// Source: specs/remote-flush.md#moves.
    pub(super) fn unmap_to_move(&mut self, item: u32) {
        if self.memory.pages_of(item) > 1 {
            return self.flush_for(item, 1);
        }
        if self.knobs.version >= KernelVersion::V6_12 {
            self.unmap_in_batch(item);
            return self.end_full_batch(HUGE_PAGES);
        }
        // Each page by itself, whatever batch is under way.
        let batch = std::mem::take(&mut self.flushes.batch);
        self.unmap_in_batch(item);
        let Batch { spaces, pages } = std::mem::replace(&mut self.flushes.batch, batch);
        if pages > 0 {
            self.flushes.due.push(Flush::Spaces(spaces));
        }
    }
    /// An item's entries go, since the item leaves memory.
    ///
    /// * `dirty` – it is written first, which may not begin before the flush.
    ///
    /// Source: specs/remote-flush.md#swap.
    pub(super) fn unmap_to_drop(&mut self, item: u32, dirty: bool) {
        /// Freed pages at whose number Linux doesn't wait for the batch's end.
        const FREED: u64 = 31;
        if self.memory.pages_of(item) > 1 {
            // The entry is split, and then its parts go.
            return self.flush_for(item, 2);
        }
        self.unmap_in_batch(item);
        let clean = match self.knobs.version {
            KernelVersion::V3_8 => 1,
            KernelVersion::V4_5
            | KernelVersion::V4_15
            | KernelVersion::V5_18
            | KernelVersion::V6_1 => u64::MAX,
            KernelVersion::V6_12 | KernelVersion::V7_3 => FREED,
        };
        self.end_full_batch(if dirty { 1 } else { clean });
    }
    fn unmap_in_batch(&mut self, item: u32) {
        if item & FRAME_ITEM == 0 {
            self.note_unmapped(item);
        } else {
            for i in 0..self.memory.mappers(item ^ FRAME_ITEM).len() {
                self.note_unmapped(self.memory.mappers(item ^ FRAME_ITEM)[i]);
            }
        }
    }
    fn note_unmapped(&mut self, page: u32) {
        if Word(self.memory.words[page as usize]).state() != State::Present {
            return;
        }
        let space = self.space_of(page) as u32;
        let batch = &mut self.flushes.batch;
        batch.pages += 1;
        if !batch.spaces.contains(&space) {
            batch.spaces.push(space);
        }
    }
    /// A base page's entry is changed, so many times, each time with a flush; one that no CPU may use has none.
    ///
    /// Source: specs/remote-flush.md#merging.
    pub(super) fn flush_entry(&mut self, entry: u32, times: u32) {
        if Word(self.memory.words[entry as usize]).state() == State::Present {
            self.flush_for(entry, times);
        }
    }
    /// So many flushes at once, for the CPUs of an entry's address space.
    pub(super) fn flush_for(&mut self, entry: u32, times: u32) {
        let space = self.space_of(entry);
        (0..times).for_each(|_| self.flushes.of(space));
    }
    /// The address space of an entry.
    pub(super) fn space_of(&self, page: u32) -> usize {
        self.memory.blocks[(page / BLOCK) as usize].space as usize - 1
    }
    /// A huge page was used, as reclaim has found: its accessed bit is cleared, and flushed. Those of base pages are not.
    ///
    /// Source: specs/remote-flush.md#accessed.
    pub(super) fn flush_if_huge(&mut self, item: u32, accessed: u32) {
        if accessed > 0 && self.memory.pages_of(item) > 1 {
            self.flush_for(item, 1);
        }
    }
}
