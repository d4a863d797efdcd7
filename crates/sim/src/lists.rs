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

/// A kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Of a node: active and inactive ones.
    Lru(Lru),
    /// Of a zone: the generation at that place (its number modulo 4), of files' pages or not.
    Gen(usize, bool),
}

/// Where an item stands: its list, or the generation that it belongs to, and the flags that
/// reclaim sets on a page which it finds used. An active page keeps the flag, so does one that
/// moves to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) place: Place,
    pub(crate) referenced: bool,
    /// Of generations only.
    pub(crate) workingset: bool,
}

impl Listed {
    /// A new page: inactive, and nobody has looked at it yet.
    pub(crate) const fn fresh(file: bool) -> Self {
        Self::with(Lru::of(file, false), false)
    }
    /// On an active or inactive list, without the flag or with it.
    pub(crate) const fn with(lru: Lru, referenced: bool) -> Self {
        Self { place: Place::Lru(lru), referenced, workingset: false }
    }
}

/// One list of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListAt {
    /// Of the node at that place.
    Lru(usize, Lru),
    /// Of the zone at that place: a generation's, of files' pages or not.
    Gen(usize, usize, bool),
}

/// How the column of numbers holds a member's number and flags. The flags are the lowest bits,
/// so that a sweep still compares plain numbers; where there are generations the list's place
/// is in the highest two, since a page may belong to another generation than its list's.
///
/// ```text
///  31  30                                   2   1   0
/// │        number                               │ r │   active and inactive lists
/// │ list │  number                        │ w │ r │   generations; all 0: on no list
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// Bits of flags.
    shift: u32,
    /// The list's place, where it belongs.
    high: u32,
    /// The number of the first member at the head; lower ones are for members at the tail.
    pub(crate) first: u32,
    /// Numbers below this one fit.
    pub(crate) numbers: u32,
}

const LIST_SHIFT: u32 = 30;
const WORKINGSET: u32 = 0b10;
/// Where generations' members have their flags.
pub(crate) const FLAGS: u32 = 0b11;
/// Members that can be put at the tail of a generation's list before it is renumbered.
const AT_TAIL: u32 = 1 << 24;
/// Pages that one list of generations can hold.
pub(crate) const GEN_PAGES_MAX: u64 = (1 << 28) - AT_TAIL as u64;

impl Ranks {
    /// Of a list.
    #[inline]
    pub(crate) const fn of(at: ListAt) -> Self {
        match at {
            ListAt::Lru(..) => Self { shift: 1, high: 0, first: 0, numbers: u32::MAX / 2 },
            ListAt::Gen(_, index, _) => Self {
                shift: 2,
                high: (index as u32) << LIST_SHIFT,
                first: AT_TAIL,
                numbers: 1 << 28,
            },
        }
    }
    /// What the column holds for a member.
    #[inline]
    pub(crate) const fn order(self, number: u32, referenced: bool, workingset: bool) -> u32 {
        self.high | number << self.shift | self.flags(referenced, workingset)
    }
    #[inline]
    const fn flags(self, referenced: bool, workingset: bool) -> u32 {
        // Active and inactive lists have one flag.
        referenced as u32 | ((workingset && self.shift > 1) as u32 * WORKINGSET)
    }
    /// A range of orders: its base and how wide it is.
    #[inline]
    pub(crate) const fn range(self, base: u32, window: u32) -> (u32, u32) {
        (self.high | base << self.shift, window << self.shift)
    }
    #[inline]
    pub(crate) const fn number(self, order: u32) -> u32 {
        (order ^ self.high) >> self.shift
    }
    /// Flags as generations' members have them.
    pub(crate) const fn of_flags(referenced: bool, workingset: bool) -> u32 {
        referenced as u32 | (workingset as u32 * WORKINGSET)
    }
    /// The same member with other flags.
    #[inline]
    pub(crate) const fn with(self, order: u32, referenced: bool, workingset: bool) -> u32 {
        order >> self.shift << self.shift | self.flags(referenced, workingset)
    }
    #[inline]
    pub(crate) const fn referenced(order: u32) -> bool {
        order & 1 != 0
    }
    /// Whether a member of a generation has that flag.
    #[inline]
    pub(crate) const fn workingset(order: u32) -> bool {
        order & WORKINGSET != 0
    }
    /// The place of the generation on whose list a member is.
    #[inline]
    pub(crate) const fn gen_list(order: u32) -> usize {
        (order >> LIST_SHIFT) as usize
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
    /// Members that were put at the tail, the last one first to go: the one at place `i` had
    /// number `first - 1 - i` then. Of generations only.
    tail: Vec<u32>,
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
    /// No number is left for another member at the head, or at the tail.
    #[inline]
    pub(crate) fn exhausted(&self, ranks: Ranks) -> bool {
        self.head == ranks.numbers || self.tail.len() as u32 + 1 == ranks.first
    }
    /// A list that begins with these numbers.
    pub(crate) fn starting(ranks: Ranks) -> Self {
        Self { head: ranks.first, base: ranks.first, ..Self::default() }
    }
    /// Counts a member in at the tail and gives it its number.
    pub(crate) fn enter_tail(&mut self, item: u32, pages: u64, ranks: Ranks) -> u32 {
        self.pages += pages;
        self.members += 1;
        self.tail.push(item);
        ranks.first - self.tail.len() as u32
    }
    /// The last one that was put at the tail, with the number that it had then: it is still a
    /// member if it has it now.
    pub(crate) fn next_of_tail(&mut self, ranks: Ranks) -> Option<(u32, u32)> {
        let item = self.tail.pop()?;
        Some((item, ranks.first - 1 - self.tail.len() as u32))
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
    /// Begins numbering anew: the caller has given the members numbers from `first` on, in order.
    pub(crate) fn renumbered(&mut self, first: u32, members: u32) {
        self.head = first + members;
        self.tail.clear();
        self.go_on_at(first);
    }
    /// Bytes that the ripe members take.
    pub(crate) fn bytes(&self) -> usize {
        (self.slots.capacity() + self.tail.capacity()) * 4
    }
}
