//! What pages hold: an optional column beside the words.
//!
//! One number of 64 bits per private page and per frame stands for 4096 bytes: equal
//! numbers are equal bytes. The order of two contents and their checksum come from
//! fixed bijective mixes of the number, so that a tree isn't built in the order of
//! addresses.
//!
//! ```text
//!   63     62    61 … 36          35 … 0
//! ┌──────┬─────┬──────────────────────────────┐
//! │ armed│ copy│ 0                            │  its process's own, not looked at since
//! │      │     │ 1                            │  zeroes
//! │      │     │ image + 1     page of image  │  a page of an image
//! │      │     │ FRESH         a counter      │  its own, as it was when looked at
//! └──────┴─────┴──────────────────────────────┘
//! ```
//!
//! *Writes after a look.* The hot loop writes where the word's write bit is set, and
//! nobody sees it. So a page whose number is not 0 never has that bit: it is taken
//! away, and `armed` remembers that it was there. The next write is then an event, which
//! gives the bit back and sets the number to 0. It takes no virtual time, as the kernel
//! has no fault there.
//!
//! The number of a page counts while the page is private and in memory, or on the swap
//! device; an entry of a frame has the frame's. docs/decisions/0006-contents.md.

use crate::table::Table;
use homenode_core::splitmix::mix;
use std::io;

const ARMED: u64 = 1 << 63;
/// On the swap device, as one of several that mapped a merged page: reading it back
/// makes a copy.
const COPY: u64 = 1 << 62;
const FRESH: u64 = 1 << 61;
const IMAGE_SHIFT: u32 = 36;
const VALUE: u64 = !(ARMED | COPY);

/// What a page holds. Equal numbers are equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Content(pub(crate) u64);

impl Content {
    /// Its process's own: like no other.
    pub(crate) const OWN: Self = Self(0);
    /// Zeroes.
    pub(crate) const ZERO: Self = Self(1);
    /// Page `page` of an image.
    pub(crate) const fn image(image: u32, page: u64) -> Self {
        Self((image as u64 + 1) << IMAGE_SHIFT | page & ((1 << IMAGE_SHIFT) - 1))
    }
    /// What places it among all contents; zeroes are the lowest.
    #[inline]
    pub(crate) const fn key(self) -> u64 {
        mix(self.0.wrapping_sub(1))
    }
    /// 32 bits of another mix: equal for one pair of contents in 2^32.
    #[inline]
    pub(crate) const fn checksum(self) -> u32 {
        (mix(self.0 ^ 0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// A frame's stable node, for merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// An ordinary frame.
    No,
    /// Write-protected for good, without a node yet.
    Frozen,
    /// With this node.
    Node(u32),
}

const NOT_MERGED: u32 = u32::MAX;
const FROZEN: u32 = u32::MAX - 1;

/// The column.
pub(crate) struct Contents {
    pages: Table<u64>,
    frames: Vec<u64>,
    nodes: Vec<u32>,
    /// Contents that were made up so far.
    fresh: u64,
}

impl Contents {
    pub(crate) fn new(pages: usize) -> io::Result<Self> {
        Ok(Self { pages: Table::new(pages)?, frames: Vec::new(), nodes: Vec::new(), fresh: 0 })
    }
    /// A content that nobody has had.
    pub(crate) fn fresh(&mut self) -> Content {
        self.fresh += 1;
        Content(FRESH | self.fresh)
    }
    /// What a page holds. One that nobody has looked at is like no other: its place in
    /// the columns stands for it.
    #[inline]
    pub(crate) fn of_page(&self, page: u32) -> Content {
        match self.pages[page as usize] & VALUE {
            0 => Content(FRESH | 1 << 60 | u64::from(page)),
            v => Content(v),
        }
    }
    /// The same with [`Content::OWN`] where nobody has looked.
    #[inline]
    pub(crate) fn known(&self, page: u32) -> Content {
        Content(self.pages[page as usize] & VALUE)
    }
    #[inline]
    pub(crate) fn is_armed(&self, page: u32) -> bool {
        self.pages[page as usize] & ARMED != 0
    }
    pub(crate) fn set(&mut self, page: u32, content: Content, armed: bool) {
        debug_assert!(!armed || content != Content::OWN);
        self.pages[page as usize] = content.0 | if armed { ARMED } else { 0 };
    }
    /// The page can no longer be written, for another reason than a look at it.
    pub(crate) fn disarm(&mut self, page: u32) {
        self.pages[page as usize] &= !ARMED;
    }
    /// Everything that the column says of `from` holds of `to`.
    pub(crate) fn carry(&mut self, from: u32, to: u32) {
        self.pages[to as usize] = self.pages[from as usize];
    }
    /// Gives a page a content that nobody has had, if nobody has looked at it.
    pub(crate) fn pin_down(&mut self, page: u32) -> Content {
        if self.known(page) == Content::OWN {
            let fresh = self.fresh();
            self.set(page, fresh, false);
        }
        self.known(page)
    }
    /// An entry of a frame has gone to the swap device.
    pub(crate) fn swapped(&mut self, page: u32, content: Content, copy: bool) {
        self.pages[page as usize] = content.0 | if copy { COPY } else { 0 };
    }
    /// Whether reading the page back makes a copy of what was one merged page.
    pub(crate) fn is_copy(&self, page: u32) -> bool {
        self.pages[page as usize] & COPY != 0
    }

    pub(crate) fn add_frame(&mut self) {
        self.frames.push(0);
        self.nodes.push(NOT_MERGED);
    }
    #[inline]
    pub(crate) fn of_frame(&self, frame: u32) -> Content {
        Content(self.frames[frame as usize])
    }
    pub(crate) fn set_frame(&mut self, frame: u32, content: Content) {
        self.frames[frame as usize] = content.0;
        self.nodes[frame as usize] = NOT_MERGED;
    }
    #[inline]
    pub(crate) fn merged(&self, frame: u32) -> Merged {
        match self.nodes[frame as usize] {
            NOT_MERGED => Merged::No,
            FROZEN => Merged::Frozen,
            n => Merged::Node(n),
        }
    }
    pub(crate) fn set_merged(&mut self, frame: u32, merged: Merged) {
        self.nodes[frame as usize] = match merged {
            Merged::No => NOT_MERGED,
            Merged::Frozen => FROZEN,
            Merged::Node(n) => n,
        };
    }
    /// Pages and frames that the column reaches.
    pub(crate) fn lens(&self) -> (usize, usize) {
        (self.pages.len(), self.frames.len().min(self.nodes.len()))
    }
    /// Bytes of the frames' part.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.frames.capacity() * 8 + self.nodes.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn zeroes_come_first_and_neighbours_lie_apart() {
        assert_eq!(Content::ZERO.key(), 0);
        let all: Vec<Content> = (0..1000).map(|p| Content::image(3, p)).collect();
        let keys: BTreeSet<u64> = all.iter().map(|c| c.key()).collect();
        let sums: BTreeSet<u32> = all.iter().map(|c| c.checksum()).collect();
        assert_eq!((keys.len(), sums.len()), (1000, 1000));
        assert!(!keys.contains(&0) && !sums.contains(&Content::ZERO.checksum()));
        // A tree in the order of addresses would have half of all pairs in order too,
        // but no runs: here a run is as long as in a shuffle.
        let rises = all.windows(2).filter(|w| w[0].key() < w[1].key()).count();
        assert!((450..550).contains(&rises), "{rises}");
    }

    #[test]
    fn a_page_nobody_has_looked_at_is_like_no_other() {
        let mut c = Contents::new(1024).unwrap();
        assert_ne!(c.of_page(1), c.of_page(2));
        assert_eq!(c.known(1), Content::OWN);
        let first = c.pin_down(1);
        assert_eq!((c.pin_down(1), c.of_page(1)), (first, first));
        assert_ne!(c.pin_down(2), first);
        c.set(1, Content::ZERO, true);
        assert!(c.is_armed(1) && c.of_page(1) == Content::ZERO);
        c.disarm(1);
        assert!(!c.is_armed(1) && c.of_page(1) == Content::ZERO);
        c.swapped(1, Content::image(0, 7), true);
        assert!(c.is_copy(1) && c.known(1) == Content::image(0, 7));
    }
}
