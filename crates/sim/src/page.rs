//! The word of a page: everything that an access, a scan and a fault look at.
//!
//! ```text
//!  31                              11 10    7 6  5  4   3   2   1  0
//! ┌──────────────────────────────────┬───────┬────┬───┬───┬───┬─────┐
//! │ stamp: cpupid or scan time in ms │ zone  │list│ y │ w │ s │state│   s = 0
//! ├──────────────────────────────────┴───────┴────┼───┼───┼───┼─────┤
//! │ number of the shared frame                    │ y │ w │ 1 │state│   s = 1
//! └───────────────────────────────────────────────┴───┴───┴───┴─────┘
//! ```
//!
//! docs/decisions/0002-page-layout.md says why.

use homenode_core::tiering::mglru::Shadow;

/// Where a page is, as its process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Never touched, discarded or unmapped.
    None,
    /// Mapped and accessible.
    Present,
    /// Mapped; the scanner has made it inaccessible.
    ProtNone,
    /// On the swap device.
    Swapped,
}

/// Which list of its node a page is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnList {
    /// On none.
    Isolated,
    /// On an inactive one.
    Inactive,
    /// On an active one.
    Active,
}

pub(crate) const STATE: u32 = 0b11;
pub(crate) const PRESENT: u32 = 0b01;
pub(crate) const PROTNONE: u32 = 0b10;
pub(crate) const SWAPPED: u32 = 0b11;
pub(crate) const SHARED: u32 = 1 << 2;
pub(crate) const WRITE_SHIFT: u32 = 3;
pub(crate) const WRITE: u32 = 1 << WRITE_SHIFT;
pub(crate) const YOUNG: u32 = 1 << 4;
const LIST_SHIFT: u32 = 5;
pub(crate) const LIST: u32 = 0b11 << LIST_SHIFT;
/// List bits of a page on an active list.
pub(crate) const LIST_ACTIVE: u32 = 1 << LIST_SHIFT;
/// The same on an inactive one.
pub(crate) const LIST_INACTIVE: u32 = 2 << LIST_SHIFT;
pub(crate) const ZONE_SHIFT: u32 = 7;
pub(crate) const ZONE: u32 = 0xf << ZONE_SHIFT;
const STAMP_SHIFT: u32 = 11;
const FRAME_SHIFT: u32 = 5;
/// The bits of a stamp, as in Debian's kernels: 8 of the pid, 13 of the CPU.
pub(crate) const STAMP_BITS: u32 = 21;
/// The stamp that means "unset".
pub(crate) const STAMP_UNSET: u32 = (1 << STAMP_BITS) - 1;
/// Most zones that a word can name.
pub(crate) const ZONES_MAX: usize = 16;
/// Most shared frames that a word can name.
pub(crate) const FRAMES_MAX: u32 = 1 << (32 - FRAME_SHIFT);

/// The word of one entry, or of one shared frame (whose state is unused).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u32);

impl Word {
    /// A page that is mapped in `zone`, isolated, with unset stamp.
    pub(crate) const fn mapped(zone: usize, write: bool) -> Self {
        let w = if write { WRITE } else { 0 };
        Self(PRESENT | w | YOUNG | (zone as u32) << ZONE_SHIFT | STAMP_UNSET << STAMP_SHIFT)
    }
    /// An entry that maps shared frame `frame`.
    pub(crate) const fn sharing(frame: u32, state: u32, write: bool, young: bool) -> Self {
        let w = if write { WRITE } else { 0 };
        let y = if young { YOUNG } else { 0 };
        Self(state | SHARED | w | y | frame << FRAME_SHIFT)
    }
    #[inline]
    pub(crate) const fn state(self) -> State {
        match self.0 & STATE {
            0 => State::None,
            PRESENT => State::Present,
            PROTNONE => State::ProtNone,
            _ => State::Swapped,
        }
    }
    /// In memory: present or protnone.
    #[inline]
    pub(crate) const fn resident(self) -> bool {
        matches!(self.0 & STATE, PRESENT | PROTNONE)
    }
    #[inline]
    pub(crate) const fn shared(self) -> bool {
        self.0 & SHARED != 0
    }
    #[inline]
    pub(crate) const fn frame(self) -> u32 {
        self.0 >> FRAME_SHIFT
    }
    #[inline]
    pub(crate) const fn writable(self) -> bool {
        self.0 & WRITE != 0
    }
    #[inline]
    pub(crate) const fn young(self) -> bool {
        self.0 & YOUNG != 0
    }
    #[inline]
    pub(crate) const fn zone(self) -> usize {
        ((self.0 & ZONE) >> ZONE_SHIFT) as usize
    }
    #[inline]
    pub(crate) const fn stamp(self) -> u32 {
        self.0 >> STAMP_SHIFT
    }
    #[inline]
    pub(crate) const fn on_list(self) -> OnList {
        match (self.0 & LIST) >> LIST_SHIFT {
            0 => OnList::Isolated,
            1 => OnList::Active,
            _ => OnList::Inactive,
        }
    }
    /// The place of the generation that it belongs to: the same two bits, where there are
    /// generations.
    #[inline]
    pub(crate) const fn gen_index(self) -> usize {
        ((self.0 & LIST) >> LIST_SHIFT) as usize
    }
    #[inline]
    pub(crate) const fn with_gen(self, index: usize) -> Self {
        Self(self.0 & !LIST | (index as u32) << LIST_SHIFT)
    }
    /// An entry on the device that remembers where its page was, and what generations ask of it.
    pub(crate) const fn left(zone: usize, shadow: Shadow) -> Self {
        let stamp = 1 | (shadow.workingset as u32) << 1 | shadow.seq << 2;
        Self(SWAPPED | (zone as u32) << ZONE_SHIFT).with_stamp(stamp)
    }
    /// What such an entry remembers.
    pub(crate) const fn shadow(self) -> Option<(usize, Shadow)> {
        let stamp = self.stamp();
        if self.0 & STATE != SWAPPED || stamp & 1 == 0 {
            return None;
        }
        Some((self.zone(), Shadow { seq: stamp >> 2, workingset: stamp & 2 != 0 }))
    }
    #[inline]
    pub(crate) const fn with_state(self, state: u32) -> Self {
        Self(self.0 & !STATE | state)
    }
    #[inline]
    pub(crate) const fn with_write(self, write: bool) -> Self {
        Self(if write { self.0 | WRITE } else { self.0 & !WRITE })
    }
    #[inline]
    pub(crate) const fn with_young(self, young: bool) -> Self {
        Self(if young { self.0 | YOUNG } else { self.0 & !YOUNG })
    }
    #[inline]
    pub(crate) const fn with_zone(self, zone: usize) -> Self {
        Self(self.0 & !ZONE | (zone as u32) << ZONE_SHIFT)
    }
    #[inline]
    pub(crate) const fn with_stamp(self, stamp: u32) -> Self {
        Self(self.0 & ((1 << STAMP_SHIFT) - 1) | stamp << STAMP_SHIFT)
    }
    #[inline]
    pub(crate) const fn with_list(self, list: OnList) -> Self {
        let l = match list {
            OnList::Isolated => 0,
            OnList::Active => 1,
            OnList::Inactive => 2,
        };
        Self(self.0 & !LIST | l << LIST_SHIFT)
    }
}
