//! Elements in a row of memory, named by their place in it: items and stable nodes.
//!
//! A place whose element is gone is taken again before the row grows; until then
//! the element's own fields hold the list of free places, so that none costs a
//! byte more. An element hangs in a tree ([`super::tree`]) or, by the same link,
//! in a list.

use super::tree::{Link, Links, NIL};

/// What can live in an [`Arena`].
pub(crate) trait Slot {
    /// What they are called in the plural.
    const WHAT: &'static str;
    fn link(&self) -> &Link;
    fn link_mut(&mut self) -> &mut Link;
    /// The next free place, while this one is free.
    fn next_free(&self) -> u32;
    /// This place is free now.
    fn set_next_free(&mut self, next: u32);
}

/// All elements of a kind; a handle is an index.
#[derive(Clone, Debug)]
pub(crate) struct Arena<T> {
    all: Vec<T>,
    free: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: NIL }
    }
}

impl<T: Slot> Arena<T> {
    #[inline]
    pub(crate) fn get(&self, n: u32) -> &T {
        &self.all[n as usize]
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, n: u32) -> &mut T {
        &mut self.all[n as usize]
    }
    /// Places, free ones among them.
    pub(crate) fn len(&self) -> u32 {
        self.all.len() as u32
    }
    pub(crate) fn add(&mut self, element: T) -> u32 {
        if self.free != NIL {
            let n = self.free;
            self.free = self.get(n).next_free();
            *self.get_mut(n) = element;
            return n;
        }
        assert!(self.all.len() < NIL as usize, "more than 2^31 - 1 {}", T::WHAT);
        self.all.push(element);
        self.all.len() as u32 - 1
    }
    pub(crate) fn release(&mut self, n: u32) {
        let free = self.free;
        self.get_mut(n).set_next_free(free);
        self.free = n;
    }

    /// Put `n`, which hangs nowhere, in front of the list that begins at `head`.
    #[inline]
    pub(crate) fn push_list(&mut self, owner: u32, head: u32, n: u32) {
        *self.link_mut(n) = Link::list(owner, NIL, head);
        if head != NIL {
            self.link_mut(head).set_prev(n);
        }
    }
    /// Take `n` from the list that begins at `head`; returns where it begins now.
    #[inline]
    pub(crate) fn pull_list(&mut self, head: u32, n: u32) -> u32 {
        let (prev, next) = (self.link(n).prev(), self.link(n).next());
        if next != NIL {
            self.link_mut(next).set_prev(prev);
        }
        if prev != NIL {
            self.link_mut(prev).set_next(next);
            return head;
        }
        next
    }
}

impl<T: Slot> Links for Arena<T> {
    #[inline]
    fn link(&self, n: u32) -> &Link {
        self.get(n).link()
    }
    #[inline]
    fn link_mut(&mut self, n: u32) -> &mut Link {
        self.get_mut(n).link_mut()
    }
}
