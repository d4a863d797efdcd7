//! One address that has been examined: 32 bytes, two to a cache line.
//!
//! The kernel's takes 64; 268 million of ours, a TiB of guests, are 8 GiB. All
//! that a visit needs is in one place, and items are handed out in the order in
//! which addresses are first visited, so a pass over them reads memory in a row.

use super::arena::{Arena, Slot};
use super::memory::{MmId, Vpn};
use super::tree::Link;

const VPN_BITS: u32 = 44;
const AGE: (u32, u32) = (0, 8);
const SKIPS: (u32, u32) = (8, 4);
const STATE: (u32, u32) = (12, 2);
const NODE: (u32, u32) = (14, 10);
const SEQ: (u32, u32) = (24, 8);

/// Where an item hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nowhere: counted as volatile.
    None,
    /// In an unstable tree, or left over from a forgotten one.
    Unstable,
    /// In the list of a stable node.
    Stable,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    at: u64,
    /// The next item of this address space, or the next free one.
    pub(crate) next: u32,
    /// The checksum seen last; 0 at first.
    pub(crate) checksum: u32,
    bits: u32,
    link: Link,
}

const _: () = assert!(size_of::<Item>() == 32);

impl Item {
    pub(crate) fn new(mm: MmId, vpn: Vpn, next: u32) -> Self {
        debug_assert!(vpn.0 < 1 << VPN_BITS && mm.0 < 1 << (64 - VPN_BITS));
        Self {
            at: u64::from(mm.0) << VPN_BITS | vpn.0,
            next,
            checksum: 0,
            bits: 0,
            link: Link::default(),
        }
    }
    pub(crate) fn mm(&self) -> MmId {
        MmId((self.at >> VPN_BITS) as u32)
    }
    pub(crate) fn vpn(&self) -> Vpn {
        Vpn(self.at & ((1 << VPN_BITS) - 1))
    }
    fn field(&self, (shift, width): (u32, u32)) -> u32 {
        self.bits >> shift & ((1 << width) - 1)
    }
    fn set_field(&mut self, (shift, width): (u32, u32), v: u32) {
        let mask = (1 << width) - 1;
        debug_assert!(v <= mask);
        self.bits = self.bits & !(mask << shift) | v << shift;
    }
    pub(crate) fn age(&self) -> u8 {
        self.field(AGE) as u8
    }
    pub(crate) fn skips(&self) -> u8 {
        self.field(SKIPS) as u8
    }
    pub(crate) fn set_age_and_skips(&mut self, age: u8, skips: u8) {
        self.set_field(AGE, u32::from(age));
        self.set_field(SKIPS, u32::from(skips));
    }
    pub(crate) fn state(&self) -> State {
        match self.field(STATE) {
            0 => State::None,
            1 => State::Unstable,
            _ => State::Stable,
        }
    }
    /// The unstable tree it is in, and the pass that put it there.
    pub(crate) fn unstable_tree(&self) -> (usize, u8) {
        (self.field(NODE) as usize, self.field(SEQ) as u8)
    }
    pub(crate) fn set_unstable(&mut self, tree: usize, seq: u8) {
        self.set_field(STATE, 1);
        self.set_field(NODE, tree as u32);
        self.set_field(SEQ, u32::from(seq));
    }
    pub(crate) fn set_detached(&mut self) {
        self.set_field(STATE, 0);
    }
    /// The stable node that it hangs at.
    pub(crate) fn head(&self) -> Option<u32> {
        (self.state() == State::Stable).then_some(self.link.owner())
    }
    /// Its link is in a stable node's list now.
    pub(crate) fn set_stable(&mut self) {
        self.set_field(STATE, 2);
    }
}

impl Slot for Item {
    const WHAT: &'static str = "examined pages";
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }
    #[inline]
    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }
    fn next_free(&self) -> u32 {
        self.next
    }
    fn set_next_free(&mut self, next: u32) {
        debug_assert!(self.state() == State::None);
        self.next = next;
    }
}

/// All items.
pub(crate) type Items = Arena<Item>;
