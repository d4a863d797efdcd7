//! Who waits on a queue, in the order of virtual deadlines; under CFS in that of virtual run times.
//!
//! Wanted are: insert, remove, the first in order whose virtual run time is at most `V`, and the smallest
//! slice. Most queues have a few tasks: then a sorted array of small rows is the fastest there is, since
//! it is one or two cache lines, and its first or second row is nearly always the one that is
//! picked. The first row lies in the queue itself, so that a queue with one who waits goes nowhere else. Beyond [`ARRAY_MAX`] it becomes a treap, a search tree whose nodes know the least virtual run
//! time and slice below them, as the kernel's tree does; so thousands of tasks on one queue
//! still cost a logarithm. A tree that has shrunk under [`TREE_MIN`] becomes an array again; the
//! gap keeps a queue at the edge from changing at each wake-up.
//!
//! Virtual times wrap: of two, the earlier one is that from which the difference to the other is positive.
//!
//! Source: specs/sched-fair.md#timeline, specs/sched-cfs.md#order.

/// The longest array.
const ARRAY_MAX: usize = 40;

/// A tree of fewer is made an array.
const TREE_MIN: u32 = 20;

/// Nobody.
pub(super) const NONE: u32 = u32::MAX;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) deadline: i64,
    pub(super) vruntime: i64,
    pub(super) slice: u32,
    /// Place of the entity.
    pub(super) entity: u32,
}

impl Slot {
    /// The row of nobody: it has the largest slice, so that whoever looks for the smallest need not ask.
    const NOBODY: Slot = Slot { deadline: 0, vruntime: 0, slice: u32::MAX, entity: NONE };

    #[inline]
    fn somebody(self) -> Option<Slot> {
        (self.entity != NONE).then_some(self)
    }
}

/// The place of an entity in a tree; unused while it is in an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    deadline: i64,
    vruntime: i64,
    min_vruntime: i64,
    /// Rising with each insertion: of equal deadlines the one who came first is first.
    seq: u64,
    slice: u32,
    min_slice: u32,
    left: u32,
    right: u32,
    priority: u32,
}

impl Default for Node {
    fn default() -> Self {
        Node {
            deadline: 0,
            vruntime: 0,
            min_vruntime: 0,
            seq: 0,
            slice: 0,
            min_slice: 0,
            left: NONE,
            right: NONE,
            priority: 0,
        }
    }
}

/// Whether `a` lies before `b`.
#[inline]
pub(super) fn before(a: i64, b: i64) -> bool {
    a.wrapping_sub(b) < 0
}

#[derive(Debug)]
pub(super) struct Timeline {
    /// The first in order, if there is no tree; of nobody where none waits.
    first: Slot,
    /// The others in order, if there is no tree.
    slots: Vec<Slot>,
    root: u32,
    len: u32,
    seq: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { first: Slot::NOBODY, slots: Vec::new(), root: NONE, len: 0, seq: 0 }
    }
}

impl Timeline {
    #[inline]
    pub(super) fn insert(&mut self, nodes: &mut [Node], slot: Slot) {
        self.len += 1;
        if self.root == NONE && self.len as usize <= ARRAY_MAX {
            if self.len == 1 {
                self.first = slot;
                return;
            }
            // From the back: late deadlines are the common case, and equal ones stay in front.
            let mut at = self.slots.len();
            while at > 0 && before(slot.deadline, self.slots[at - 1].deadline) {
                at -= 1;
            }
            if at == 0 && before(slot.deadline, self.first.deadline) {
                let second = std::mem::replace(&mut self.first, slot);
                self.slots.insert(0, second);
            } else {
                self.slots.insert(at, slot);
            }
            return;
        }
        self.insert_in_tree(nodes, slot);
    }

    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut [Node], entity: u32) {
        self.len -= 1;
        if self.root == NONE {
            if self.first.entity == entity {
                self.first = if self.len == 0 { Slot::NOBODY } else { self.slots.remove(0) };
                return;
            }
            let at = self.slots.iter().position(|s| s.entity == entity);
            self.slots.remove(at.expect("who is removed is on the queue"));
            return;
        }
        self.remove_from_tree(nodes, entity);
    }

    /// The first in order for whom `eligible` holds, which must hold for all
    /// earlier virtual run times if it holds for one.
    #[inline]
    pub(super) fn first(&self, nodes: &[Node], eligible: impl Fn(i64) -> bool) -> Option<Slot> {
        if self.root == NONE {
            if eligible(self.first.vruntime) {
                return self.first.somebody();
            }
            return self.slots.iter().find(|s| eligible(s.vruntime)).copied();
        }
        let mut at = self.root;
        while at != NONE {
            let n = &nodes[at as usize];
            if n.left != NONE && eligible(nodes[n.left as usize].min_vruntime) {
                at = n.left;
            } else if eligible(n.vruntime) {
                return Some(n.slot(at));
            } else {
                at = n.right;
            }
        }
        None
    }

    /// The only one, or the first of all.
    #[inline]
    pub(super) fn head(&self, nodes: &[Node]) -> Option<Slot> {
        self.first(nodes, |_| true)
    }

    /// The entity of the first of all, as long as that is known without looking anywhere else.
    #[inline]
    pub(super) fn near(&self) -> Option<u32> {
        self.first.somebody().map(|s| s.entity)
    }

    /// The second of all.
    pub(super) fn second(&self, nodes: &[Node]) -> Option<Slot> {
        if self.root == NONE {
            return self.slots.first().copied();
        }
        // The first one has nobody on its left: the second is the first on its right, or above it.
        let (mut above, mut at) = (NONE, self.root);
        while nodes[at as usize].left != NONE {
            above = at;
            at = nodes[at as usize].left;
        }
        let mut next = nodes[at as usize].right;
        if next == NONE {
            return (above != NONE).then(|| nodes[above as usize].slot(above));
        }
        while nodes[next as usize].left != NONE {
            next = nodes[next as usize].left;
        }
        Some(nodes[next as usize].slot(next))
    }

    /// The smallest slice of those who wait.
    #[inline]
    pub(super) fn min_slice(&self, nodes: &[Node]) -> Option<u32> {
        if self.root == NONE {
            let first = self.first.somebody()?;
            Some(self.slots.iter().fold(first.slice, |least, s| least.min(s.slice)))
        } else {
            Some(nodes[self.root as usize].min_slice)
        }
    }

    /// Changes the slice of one who waits.
    pub(super) fn set_slice(&mut self, nodes: &mut [Node], entity: u32, slice: u32) {
        if self.root == NONE {
            let all = std::iter::once(&mut self.first).chain(&mut self.slots);
            let slot = all.into_iter().find(|s| s.entity == entity);
            slot.expect("who is changed is on the queue").slice = slice;
            return;
        }
        nodes[entity as usize].slice = slice;
        touch(nodes, self.root, entity);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) fn entities(&self, nodes: &[Node]) -> Vec<u32> {
        let mut all: Vec<Slot> = self.first.somebody().into_iter().collect();
        all.extend(&self.slots);
        in_order(nodes, self.root, &mut all);
        all.iter().map(|s| s.entity).collect()
    }

    #[cold]
    #[inline(never)]
    fn insert_in_tree(&mut self, nodes: &mut [Node], slot: Slot) {
        let first = std::mem::replace(&mut self.first, Slot::NOBODY).somebody();
        for slot in first.into_iter().chain(self.slots.drain(..)) {
            self.root = plant(nodes, self.root, &mut self.seq, slot);
        }
        self.root = plant(nodes, self.root, &mut self.seq, slot);
    }

    #[cold]
    #[inline(never)]
    fn remove_from_tree(&mut self, nodes: &mut [Node], entity: u32) {
        self.root = pull_out(nodes, self.root, entity);
        if self.len < TREE_MIN {
            in_order(nodes, self.root, &mut self.slots);
            self.root = NONE;
            self.first = self.slots.remove(0);
        }
    }
}

impl Node {
    fn slot(&self, entity: u32) -> Slot {
        Slot { deadline: self.deadline, vruntime: self.vruntime, slice: self.slice, entity }
    }

    fn key_before(&self, other: &Node) -> bool {
        if self.deadline == other.deadline {
            self.seq < other.seq
        } else {
            before(self.deadline, other.deadline)
        }
    }
}

/// A treap wants priorities as if drawn; the number of an insertion, mixed, is one that repeats.
fn mix(seq: u64) -> u32 {
    let x = (seq ^ (seq >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 32) as u32
}

fn plant(nodes: &mut [Node], root: u32, seq: &mut u64, slot: Slot) -> u32 {
    *seq += 1;
    nodes[slot.entity as usize] = Node {
        deadline: slot.deadline,
        vruntime: slot.vruntime,
        min_vruntime: slot.vruntime,
        seq: *seq,
        slice: slot.slice,
        min_slice: slot.slice,
        left: NONE,
        right: NONE,
        priority: mix(*seq),
    };
    join_node(nodes, root, slot.entity)
}

/// What a node knows of those below it.
#[inline]
fn sum_up(nodes: &mut [Node], at: u32) {
    let n = nodes[at as usize];
    let (mut v, mut slice) = (n.vruntime, n.slice);
    for child in [n.left, n.right] {
        if child != NONE {
            let c = &nodes[child as usize];
            if before(c.min_vruntime, v) {
                v = c.min_vruntime;
            }
            slice = slice.min(c.min_slice);
        }
    }
    let n = &mut nodes[at as usize];
    n.min_vruntime = v;
    n.min_slice = slice;
}

fn join_node(nodes: &mut [Node], at: u32, new: u32) -> u32 {
    if at == NONE {
        return new;
    }
    let (here, it) = (nodes[at as usize], nodes[new as usize]);
    if it.priority > here.priority {
        let (left, right) = split(nodes, at, new);
        nodes[new as usize].left = left;
        nodes[new as usize].right = right;
        sum_up(nodes, new);
        return new;
    }
    if it.key_before(&here) {
        let left = join_node(nodes, here.left, new);
        nodes[at as usize].left = left;
    } else {
        let right = join_node(nodes, here.right, new);
        nodes[at as usize].right = right;
    }
    sum_up(nodes, at);
    at
}

/// Those below `at` before `key`, and the others.
fn split(nodes: &mut [Node], at: u32, key: u32) -> (u32, u32) {
    if at == NONE {
        return (NONE, NONE);
    }
    let here = nodes[at as usize];
    if nodes[key as usize].key_before(&here) {
        let (left, rest) = split(nodes, here.left, key);
        nodes[at as usize].left = rest;
        sum_up(nodes, at);
        (left, at)
    } else {
        let (rest, right) = split(nodes, here.right, key);
        nodes[at as usize].right = rest;
        sum_up(nodes, at);
        (at, right)
    }
}

fn merge(nodes: &mut [Node], a: u32, b: u32) -> u32 {
    if a == NONE {
        return b;
    }
    if b == NONE {
        return a;
    }
    if nodes[a as usize].priority > nodes[b as usize].priority {
        let right = merge(nodes, nodes[a as usize].right, b);
        nodes[a as usize].right = right;
        sum_up(nodes, a);
        a
    } else {
        let left = merge(nodes, a, nodes[b as usize].left);
        nodes[b as usize].left = left;
        sum_up(nodes, b);
        b
    }
}

fn pull_out(nodes: &mut [Node], at: u32, entity: u32) -> u32 {
    let here = nodes[at as usize];
    if at == entity {
        return merge(nodes, here.left, here.right);
    }
    if nodes[entity as usize].key_before(&here) {
        let left = pull_out(nodes, here.left, entity);
        nodes[at as usize].left = left;
    } else {
        let right = pull_out(nodes, here.right, entity);
        nodes[at as usize].right = right;
    }
    sum_up(nodes, at);
    at
}

/// Sums up anew from `entity` to the root.
fn touch(nodes: &mut [Node], at: u32, entity: u32) {
    if at != entity {
        let here = nodes[at as usize];
        let next = if nodes[entity as usize].key_before(&here) { here.left } else { here.right };
        touch(nodes, next, entity);
    }
    sum_up(nodes, at);
}

fn in_order(nodes: &[Node], at: u32, to: &mut Vec<Slot>) {
    if at == NONE {
        return;
    }
    let n = nodes[at as usize];
    in_order(nodes, n.left, to);
    to.push(n.slot(at));
    in_order(nodes, n.right, to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Specs: specs/sched-fair.md#timeline.
        #[test]
        fn it_is_a_sorted_list(ops in prop::collection::vec((0_u32..150, -20_i64..20, -20_i64..20, 1_u32..9), 1..600)) {
            let mut nodes = vec![Node::default(); 150];
            let mut line = Timeline::default();
            // The plain one: insertion behind all with an equal or earlier deadline.
            let mut plain: Vec<Slot> = Vec::new();
            // Begins where virtual time wraps.
            let zero = i64::MAX - 3;
            for (entity, d, v, slice) in ops {
                if let Some(at) = plain.iter().position(|s| s.entity == entity) {
                    if slice == 1 {
                        plain[at].slice = 7;
                        line.set_slice(&mut nodes, entity, 7);
                    } else {
                        plain.remove(at);
                        line.remove(&mut nodes, entity);
                    }
                } else {
                    let slot = Slot {
                        deadline: zero.wrapping_add(d),
                        vruntime: zero.wrapping_add(v),
                        slice,
                        entity,
                    };
                    let at = plain
                        .iter()
                        .position(|s| s.deadline.wrapping_sub(slot.deadline) > 0)
                        .unwrap_or(plain.len());
                    plain.insert(at, slot);
                    line.insert(&mut nodes, slot);
                }
                let order: Vec<u32> = plain.iter().map(|s| s.entity).collect();
                prop_assert_eq!(line.entities(&nodes), order);
                prop_assert_eq!(line.min_slice(&nodes), plain.iter().map(|s| s.slice).min());
                prop_assert_eq!(line.is_empty(), plain.is_empty());
                prop_assert_eq!(line.second(&nodes).map(|s| s.entity), plain.get(1).map(|s| s.entity));
                for limit in -21..20 {
                    let ok = |x: i64| x.wrapping_sub(zero.wrapping_add(limit)) <= 0;
                    prop_assert_eq!(
                        line.first(&nodes, ok).map(|s| s.entity),
                        plain.iter().find(|s| ok(s.vruntime)).map(|s| s.entity)
                    );
                }
            }
        }
    }
}
