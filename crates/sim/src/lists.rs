//! A least-recently-used list as an order.
//!
//! Every member carries the number that it got at the head of its list. The
//! oldest members are *harvested*: one sequential sweep over the columns picks
//! those whose number lies in the next window, sorting puts them in order, and
//! [`List::next_ripe`] hands them out. A member that has left the list, or left
//! and returned, no longer has a number inside the window and is passed over.
//!
//! ```text
//! numbers   base            end                       head
//!             ├──── window ───┤                          │
//!   tail ─────●──●───●●──●────●──●────●───●──────●───●───▶ new members
//!             └─ ripe, sorted ┘
//! ```
//!
//! Worked example: members a:3 b:9 c:5, head 10. A window of 4 from base 3 ripens
//! a, c. If c is then touched and put at the head (c:10), handing out gives a,
//! then nothing: c's number 10 is not the 5 that it ripened with.

/// The lists of a node, as the kernel numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lru {
    InactiveAnon,
    ActiveAnon,
    InactiveFile,
    ActiveFile,
}

impl Lru {
    pub(crate) const ALL: [Self; 4] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile];

    pub(crate) const fn of(file: bool, active: bool) -> Self {
        match (file, active) {
            (false, false) => Self::InactiveAnon,
            (false, true) => Self::ActiveAnon,
            (true, false) => Self::InactiveFile,
            (true, true) => Self::ActiveFile,
        }
    }
    pub(crate) const fn active(self) -> bool {
        matches!(self, Self::ActiveAnon | Self::ActiveFile)
    }
    pub(crate) const fn file(self) -> bool {
        matches!(self, Self::InactiveFile | Self::ActiveFile)
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
    /// Ripe members as `number << 32 | item`, oldest last.
    ripe: Vec<u64>,
}

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
        self.head == u32::MAX
    }
    /// The oldest ripe candidate: its number and item. The caller checks that the
    /// item is still on this list with this number.
    #[inline]
    pub(crate) fn next_ripe(&mut self) -> Option<(u32, u32)> {
        self.ripe.pop().map(|r| ((r >> 32) as u32, r as u32))
    }
    /// The candidates that will be handed out after the next few, to be fetched early.
    #[inline]
    pub(crate) fn peek_ripe(&self, ahead: usize) -> Option<u32> {
        let n = self.ripe.len();
        (n > ahead).then(|| self.ripe[n - 1 - ahead] as u32)
    }
    /// How far the next window reaches so that about `wish` members ripen.
    pub(crate) fn window(&self, wish: u64) -> u32 {
        let span = u64::from(self.head - self.base);
        let per_member = span / self.members.max(1);
        (wish * per_member.max(1)).clamp(wish.min(span).max(1), span.max(1)) as u32
    }
    /// Takes what a sweep found, in any order, for the window that ends before `end`.
    pub(crate) fn ripen(&mut self, mut found: Vec<u64>, end: u32) {
        found.sort_unstable_by(|a, b| b.cmp(a));
        self.ripe = found;
        self.base = end;
    }
    /// Begins numbering anew: the caller has given the members 0 … n−1 in order.
    pub(crate) fn renumbered(&mut self, members: u32) {
        self.base = 0;
        self.head = members;
        self.ripe.clear();
    }
    /// Bytes that the ripe members take.
    pub(crate) fn bytes(&self) -> usize {
        self.ripe.capacity() * 8
    }
}
