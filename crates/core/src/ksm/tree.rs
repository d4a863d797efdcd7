//! The red-black tree of both kinds of tree, over links that live in an arena.
//!
//! Which page a search compares with depends on the tree's shape, so the shape
//! has to be the kernel's: insertion repairs from the new leaf upwards, a node
//! with two children is replaced by its successor, and repairs after a removal
//! try the sibling's colour, then its children, the far one last. Any
//! implementation of these textbook rules gives the same shape, which is what
//! makes a count of comparisons exact rather than about right.
//!
//! Source: specs/ksm.md#comparisons.

use std::cmp::Ordering;

/// No node: 31 bits, since a link keeps its colour beside the parent.
pub(crate) const NIL: u32 = (1 << 31) - 1;

/// The elements of a list, which `next` leads to, from the first on.
pub(crate) fn list(first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
    let is_one = |n: u32| (n != NIL).then_some(n);
    std::iter::successors(is_one(first), move |&n| is_one(next(n)))
}

/// Where an element hangs in a tree: 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    child: [u32; 2],
    /// The parent, shifted by the colour's bit (1: red).
    up: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { child: [NIL; 2], up: NIL << 1 }
    }
}

impl Link {
    /// Three handles for an element that is in a list instead of a tree.
    pub(crate) const fn list(owner: u32, prev: u32, next: u32) -> Self {
        Self { child: [owner, next], up: prev << 1 }
    }
    pub(crate) const fn left(&self) -> u32 {
        self.child[0]
    }
    pub(crate) const fn right(&self) -> u32 {
        self.child[1]
    }
    pub(crate) const fn parent(&self) -> u32 {
        self.up >> 1
    }
    pub(crate) const fn is_red(&self) -> bool {
        self.up & 1 == 1
    }
    fn set_parent(&mut self, p: u32) {
        self.up = p << 1 | self.up & 1;
    }
    fn set_red(&mut self, red: bool) {
        self.up = self.up & !1 | u32::from(red);
    }
    /// In a list: who it belongs to.
    pub(crate) const fn owner(&self) -> u32 {
        self.child[0]
    }
    /// In a list: the one before.
    pub(crate) const fn prev(&self) -> u32 {
        self.up >> 1
    }
    /// In a list: the one behind.
    pub(crate) const fn next(&self) -> u32 {
        self.child[1]
    }
    pub(crate) fn set_prev(&mut self, n: u32) {
        self.up = n << 1;
    }
    pub(crate) fn set_next(&mut self, n: u32) {
        self.child[1] = n;
    }
}

/// Elements with a link each.
pub(crate) trait Links {
    fn link(&self, n: u32) -> &Link;
    fn link_mut(&mut self, n: u32) -> &mut Link;
}

/// The top of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root(pub(crate) u32);

impl Root {
    pub(crate) const EMPTY: Self = Self(NIL);

    /// Hang `n` below `parent` on the side where a search for it ended; an
    /// empty tree has the parent [`NIL`].
    pub(crate) fn insert<A: Links>(&mut self, a: &mut A, parent: u32, side: Ordering, n: u32) {
        *a.link_mut(n) = Link { child: [NIL; 2], up: parent << 1 | 1 };
        if parent == NIL {
            self.0 = n;
        } else {
            a.link_mut(parent).child[usize::from(side == Ordering::Greater)] = n;
        }
        self.repair_insertion(a, n);
    }

    fn repair_insertion<A: Links>(&mut self, a: &mut A, mut n: u32) {
        loop {
            let parent = a.link(n).parent();
            if parent == NIL {
                a.link_mut(n).set_red(false);
                return;
            }
            if !a.link(parent).is_red() {
                return;
            }
            // A red parent has a parent.
            let grand = a.link(parent).parent();
            let side = usize::from(a.link(grand).child[1] == parent);
            let uncle = a.link(grand).child[1 - side];
            if is_red(a, uncle) {
                a.link_mut(uncle).set_red(false);
                a.link_mut(parent).set_red(false);
                a.link_mut(grand).set_red(true);
                n = grand;
                continue;
            }
            if a.link(parent).child[1 - side] == n {
                self.rotate(a, parent, side);
                // The former parent is now below.
                n = parent;
            }
            let parent = a.link(n).parent();
            a.link_mut(parent).set_red(false);
            a.link_mut(grand).set_red(true);
            self.rotate(a, grand, 1 - side);
            return;
        }
    }

    /// Turn `x` down to `side`; its other child comes up.
    fn rotate<A: Links>(&mut self, a: &mut A, x: u32, side: usize) {
        let y = a.link(x).child[1 - side];
        let inner = a.link(y).child[side];
        a.link_mut(x).child[1 - side] = inner;
        if inner != NIL {
            a.link_mut(inner).set_parent(x);
        }
        self.put_in_place(a, x, y);
        a.link_mut(y).child[side] = x;
        a.link_mut(x).set_parent(y);
    }

    /// Let the parent of `old` point to `new`, and `new` to it.
    fn put_in_place<A: Links>(&mut self, a: &mut A, old: u32, new: u32) {
        let parent = a.link(old).parent();
        if parent == NIL {
            self.0 = new;
        } else {
            let l = a.link_mut(parent);
            let side = usize::from(l.child[1] == old);
            l.child[side] = new;
        }
        if new != NIL {
            a.link_mut(new).set_parent(parent);
        }
    }

    /// Put `new` where `old` hangs, with its colour.
    pub(crate) fn replace<A: Links>(&mut self, a: &mut A, old: u32, new: u32) {
        *a.link_mut(new) = *a.link(old);
        self.put_in_place(a, old, new);
        for child in a.link(new).child {
            if child != NIL {
                a.link_mut(child).set_parent(new);
            }
        }
    }

    /// Take `z` out.
    pub(crate) fn erase<A: Links>(&mut self, a: &mut A, z: u32) {
        let [left, right] = a.link(z).child;
        // `x` is what moves up into the gap, `above` whom it then hangs below.
        let (x, above, lost_red);
        if left == NIL || right == NIL {
            x = if left == NIL { right } else { left };
            above = a.link(z).parent();
            lost_red = a.link(z).is_red();
            self.put_in_place(a, z, x);
        } else {
            let mut y = right;
            while a.link(y).left() != NIL {
                y = a.link(y).left();
            }
            lost_red = a.link(y).is_red();
            x = a.link(y).right();
            if a.link(y).parent() == z {
                above = y;
            } else {
                above = a.link(y).parent();
                self.put_in_place(a, y, x);
                a.link_mut(y).child[1] = right;
                a.link_mut(right).set_parent(y);
            }
            self.put_in_place(a, z, y);
            a.link_mut(y).child[0] = left;
            a.link_mut(left).set_parent(y);
            let red = a.link(z).is_red();
            a.link_mut(y).set_red(red);
        }
        if !lost_red {
            self.repair_removal(a, x, above);
        }
    }

    /// `x` (possibly none) below `above` carries one black too many.
    fn repair_removal<A: Links>(&mut self, a: &mut A, mut x: u32, mut above: u32) {
        while above != NIL && !is_red(a, x) {
            let side = usize::from(a.link(above).child[0] != x);
            let mut w = a.link(above).child[1 - side];
            if is_red(a, w) {
                a.link_mut(w).set_red(false);
                a.link_mut(above).set_red(true);
                self.rotate(a, above, side);
                w = a.link(above).child[1 - side];
            }
            let near = a.link(w).child[side];
            let far = a.link(w).child[1 - side];
            if !is_red(a, near) && !is_red(a, far) {
                a.link_mut(w).set_red(true);
                x = above;
                above = a.link(x).parent();
                continue;
            }
            if !is_red(a, far) {
                a.link_mut(near).set_red(false);
                a.link_mut(w).set_red(true);
                self.rotate(a, w, 1 - side);
                w = a.link(above).child[1 - side];
            }
            let red = a.link(above).is_red();
            a.link_mut(w).set_red(red);
            a.link_mut(above).set_red(false);
            let far = a.link(w).child[1 - side];
            a.link_mut(far).set_red(false);
            self.rotate(a, above, side);
            return;
        }
        if x != NIL {
            a.link_mut(x).set_red(false);
        }
    }

    /// The smallest element.
    pub(crate) fn first<A: Links>(self, a: &A) -> Option<u32> {
        let mut n = self.0;
        while n != NIL && a.link(n).left() != NIL {
            n = a.link(n).left();
        }
        (n != NIL).then_some(n)
    }

    /// The next larger element.
    pub(crate) fn after<A: Links>(a: &A, mut n: u32) -> Option<u32> {
        let right = a.link(n).right();
        if right != NIL {
            return Self(right).first(a);
        }
        loop {
            let parent = a.link(n).parent();
            if parent == NIL || a.link(parent).left() == n {
                return (parent != NIL).then_some(parent);
            }
            n = parent;
        }
    }

    /// All elements, ascending.
    pub(crate) fn elements<A: Links>(self, a: &A) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first(a), |&n| Self::after(a, n))
    }

    /// What is wrong with the shape: a child that does not know its parent, a
    /// red element below a red one, paths with different numbers of black ones.
    pub(crate) fn faults<A: Links>(self, a: &A) -> Vec<String> {
        fn black_height<A: Links>(a: &A, n: u32, depth: u32, out: &mut Vec<String>) -> u32 {
            if n == NIL {
                return 0;
            }
            if depth > 64 {
                out.push(format!("deeper than 64 at {n}"));
                return 0;
            }
            let l = a.link(n);
            for c in l.child {
                if c != NIL && a.link(c).parent() != n {
                    out.push(format!("{c} hangs below {n} and knows {}", a.link(c).parent()));
                }
                if l.is_red() && is_red(a, c) {
                    out.push(format!("red {c} below red {n}"));
                }
            }
            let heights = l.child.map(|c| black_height(a, c, depth + 1, out));
            if heights[0] != heights[1] {
                out.push(format!("black heights {heights:?} below {n}"));
            }
            heights[0] + u32::from(!l.is_red())
        }
        let mut out = Vec::new();
        if is_red(a, self.0) {
            out.push(format!("the root {} is red", self.0));
        }
        black_height(a, self.0, 0, &mut out);
        out
    }
}

fn is_red<A: Links>(a: &A, n: u32) -> bool {
    n != NIL && a.link(n).is_red()
}

#[cfg(test)]
mod tests;
