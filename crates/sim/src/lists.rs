//! A least-recently-used list as an order.
//!
//! Every member carries the number that it got at the head of its list. The
//! oldest members are *harvested*: one sequential sweep over the columns puts
//! those whose number lies in the next window into the slot of their number,
//! and [`List::next_ripe`] hands the slots out in order. A member that has left
//! the list, or left and returned, no longer has a number inside the window and
//! is passed over.
//!
//! ```text
//! numbers   from            base                      head
//!             ├──── window ───┤                          │
//!   tail ─────●──●───●●──●────●──●────●───●──────●───●───▶ new members
//!             └─ ripe: slots ─┘
//! ```
//!
//! Worked example: members a:3 b:9 c:5, head 10. A window of 4 from 3 gives the
//! slots a, –, c, –. If c is then put at the head (c:10), handing out gives a,
//! then nothing: c's number 10 is not in 3 … 6.

pub(crate) use homenode_core::tiering::reclaim::Lru;

/// Where an item stands: its list, and the flag that reclaim sets on a page which it finds
/// used. An active page keeps the flag, so does one that moves to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) lru: Lru,
    pub(crate) referenced: bool,
}

impl Listed {
    /// A new page: inactive, and nobody has looked at it yet.
    pub(crate) const fn fresh(file: bool) -> Self {
        Self { lru: Lru::of(file, false), referenced: false }
    }
    /// The same place without the flag, or with it.
    pub(crate) const fn with(lru: Lru, referenced: bool) -> Self {
        Self { lru, referenced }
    }
}

/// A member's number and its referenced flag, as the column of numbers holds them: the flag
/// is the lowest bit, so that a sweep still compares plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(pub(crate) u32);

impl Rank {
    /// Numbers below this one fit.
    pub(crate) const NUMBERS: u32 = u32::MAX / 2;

    #[inline]
    pub(crate) const fn new(number: u32, referenced: bool) -> Self {
        Self(number << 1 | referenced as u32)
    }
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.0 >> 1
    }
    #[inline]
    pub(crate) const fn referenced(self) -> bool {
        self.0 & 1 != 0
    }
}

/// One list of one node. Members are items: pages or shared frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// Base pages on the list.
    pub(crate) pages: u64,
    /// Members on the list (a huge page is one).
    pub(crate) members: u64,
    /// The number that the next new member gets.
    pub(crate) head: u32,
    /// Every member with a smaller number has been handed out or is ripe.
    pub(crate) base: u32,
    /// The window: slot `i` holds the item that had number `from + i`, or [`NOBODY`].
    slots: Vec<u32>,
    from: u32,
    /// The next slot to hand out.
    next: usize,
}

/// So many slots before its turn a candidate is fetched.
const AHEAD: usize = 16;
/// An empty slot.
const NOBODY: u32 = u32::MAX;

impl List {
    /// Counts a member in and gives it its number. The caller renumbers the list
    /// before the numbers run out: see [`List::exhausted`].
    #[inline]
    pub(crate) fn enter(&mut self, pages: u64) -> u32 {
        self.pages += pages;
        self.members += 1;
        let number = self.head;
        self.head += 1;
        number
    }
    /// Counts a member out.
    #[inline]
    pub(crate) fn leave(&mut self, pages: u64) {
        self.pages -= pages;
        self.members -= 1;
    }
    /// No number is left for another member.
    #[inline]
    pub(crate) fn exhausted(&self) -> bool {
        self.head == Rank::NUMBERS
    }
    /// The oldest ripe candidate. It is still a member if it is on this list and
    /// its number [`List::is_ripe`]: whoever left and came back has a new number.
    ///
    /// * `fetch` – told of each candidate early, once.
    #[inline]
    pub(crate) fn next_ripe(&mut self, mut fetch: impl FnMut(u32)) -> Option<u32> {
        while let Some(&item) = self.slots.get(self.next) {
            if let Some(&later) = self.slots.get(self.next + AHEAD).filter(|&&i| i != NOBODY) {
                fetch(later);
            }
            self.next += 1;
            if item != NOBODY {
                return Some(item);
            }
        }
        None
    }
    /// Whether a number lies in the window that is being handed out.
    #[inline]
    pub(crate) fn is_ripe(&self, number: u32) -> bool {
        number.wrapping_sub(self.from) < self.slots.len() as u32
    }
    /// Opens the next window, wide enough for about `wish` members; its first
    /// number and its slots, to be filled by a sweep.
    pub(crate) fn open(&mut self, wish: u64) -> (u32, &mut [u32]) {
        let span = u64::from(self.head - self.base);
        // A list with gaps needs a wider window, but not one that is nearly empty.
        let spread = (span / self.members.max(1)).clamp(1, 4);
        let window = (wish * spread).clamp(1, span.max(1)) as usize;
        self.slots.clear();
        self.slots.resize(window, NOBODY);
        self.slots.shrink_to(window);
        self.from = self.base;
        self.next = 0;
        self.base += window as u32;
        (self.from, &mut self.slots)
    }
    /// Nobody has a number below `number`: the next window begins there.
    pub(crate) fn go_on_at(&mut self, number: u32) {
        self.base = number;
        self.slots.clear();
        self.next = 0;
    }
    /// Begins numbering anew: the caller has given the members 0 … n−1 in order.
    pub(crate) fn renumbered(&mut self, members: u32) {
        self.head = members;
        self.go_on_at(0);
    }
    /// Bytes that the ripe members take.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * 4
    }
}
