//! Stable nodes: merged pages, chains of them, and where each one hangs.
//!
//! A stable node is one write-protected page with the list of items that map
//! it. It holds no reference to the page: when the last mapping goes, the node
//! is stale and goes on next touch. Nodes of the same content (duplicates, once
//! one is full) hang in a chain that takes their place in the tree.

use super::arena::{Arena, Slot};
use super::memory::Page;
use super::tree::{Link, NIL, Root, list};

/// Where a node hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: a free slot.
    Free,
    /// In the stable tree of its `tree`.
    Tree,
    /// In a chain.
    Dup,
    /// On the list of nodes whose page has left its tree's memory node.
    Migrate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The page; of a chain, the jiffy of its last prune.
    value: u64,
    /// In a tree, or owner (the chain), previous and next.
    link: Link,
    /// The first item; of a chain, the first duplicate.
    pub(crate) first: u32,
    /// Attached items; of a chain, [`CHAIN`].
    len: u32,
    pub(crate) place: Place,
    /// Which tree it is in, itself or by its chain.
    pub(crate) tree: u16,
}

const CHAIN: u32 = u32::MAX;
const _: () = assert!(size_of::<Node>() == 32);

impl Node {
    pub(crate) const fn is_chain(&self) -> bool {
        self.len == CHAIN
    }
    pub(crate) const fn page(&self) -> Page {
        Page(self.value)
    }
    pub(crate) const fn prune_jiffies(&self) -> u64 {
        self.value
    }
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }
    pub(crate) const fn next(&self) -> u32 {
        self.link.next()
    }
    /// The chain of a duplicate.
    pub(crate) const fn chain(&self) -> u32 {
        self.link.owner()
    }
}

impl Slot for Node {
    const WHAT: &'static str = "merged pages";
    #[inline]
    fn link(&self) -> &Link {
        &self.link
    }
    #[inline]
    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }
    fn next_free(&self) -> u32 {
        self.first
    }
    fn set_next_free(&mut self, next: u32) {
        (self.place, self.len, self.first) = (Place::Free, 0, next);
    }
}

/// All stable nodes, the trees and lists that they hang in.
#[derive(Clone, Debug)]
pub(crate) struct Stable {
    pub(crate) nodes: Arena<Node>,
    pub(crate) roots: Vec<Root>,
    /// First node of the migrate list.
    pub(crate) migrate: u32,
    pub(crate) nr_chains: u64,
    pub(crate) nr_dups: u64,
    pub(crate) nr_nodes: u64,
}

impl Stable {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Arena::default(),
            roots: vec![Root::EMPTY],
            migrate: NIL,
            nr_chains: 0,
            nr_dups: 0,
            nr_nodes: 0,
        }
    }
    #[inline]
    pub(crate) fn get(&self, n: u32) -> &Node {
        self.nodes.get(n)
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, n: u32) -> &mut Node {
        self.nodes.get_mut(n)
    }
    pub(crate) fn len(&self) -> u32 {
        self.nodes.len()
    }

    fn add(&mut self, value: u64, len: u32, tree: usize) -> u32 {
        self.nr_nodes += u64::from(len != CHAIN);
        self.nodes.add(Node {
            value,
            link: Link::default(),
            first: NIL,
            len,
            place: Place::Free,
            tree: tree as u16,
        })
    }
    pub(crate) fn add_node(&mut self, page: Page, tree: usize) -> u32 {
        self.add(page.0, 0, tree)
    }
    fn release(&mut self, n: u32) {
        self.nr_nodes -= u64::from(!self.get(n).is_chain());
        self.nodes.release(n);
    }
    pub(crate) fn set_page(&mut self, n: u32, page: Page) {
        self.get_mut(n).value = page.0;
    }

    /// One more item hangs at `n`, in front; returns the former first one.
    pub(crate) fn attach(&mut self, n: u32, item: u32) -> u32 {
        let node = self.get_mut(n);
        node.len += 1;
        std::mem::replace(&mut node.first, item)
    }
    /// One less; `first` is in front then.
    pub(crate) fn detach(&mut self, n: u32, first: u32) -> u32 {
        let node = self.get_mut(n);
        node.len -= 1;
        node.first = first;
        node.len
    }

    /// Hang `n` into a tree where a search for it ended.
    pub(crate) fn plant(&mut self, n: u32, tree: usize, parent: u32, side: std::cmp::Ordering) {
        self.roots[tree].insert(&mut self.nodes, parent, side, n);
        let node = self.get_mut(n);
        (node.place, node.tree) = (Place::Tree, tree as u16);
    }
    /// Put `new` into the tree in the place of `old`, which then hangs nowhere.
    pub(crate) fn supplant(&mut self, old: u32, new: u32) {
        let tree = self.get(old).tree;
        self.roots[usize::from(tree)].replace(&mut self.nodes, old, new);
        let node = self.get_mut(new);
        (node.place, node.tree) = (Place::Tree, tree);
        self.get_mut(old).place = Place::Free;
    }
    fn uproot(&mut self, n: u32) {
        let tree = usize::from(self.get(n).tree);
        self.roots[tree].erase(&mut self.nodes, n);
        self.get_mut(n).place = Place::Free;
    }

    /// Put `n`, which hangs nowhere, in front of the migrate list.
    pub(crate) fn push_migrate(&mut self, n: u32) {
        let head = self.migrate;
        self.nodes.push_list(NIL, head, n);
        self.migrate = n;
        self.get_mut(n).place = Place::Migrate;
    }
    /// Put `n`, which hangs nowhere, in front of a chain.
    pub(crate) fn push_dup(&mut self, chain: u32, n: u32) {
        let (head, tree) = (self.get(chain).first, self.get(chain).tree);
        self.nodes.push_list(chain, head, n);
        self.get_mut(chain).first = n;
        let node = self.get_mut(n);
        (node.place, node.tree) = (Place::Dup, tree);
        self.nr_dups += 1;
    }
    /// Turn the node `n` of a tree into a chain with `n` as its only duplicate.
    pub(crate) fn make_chain(&mut self, n: u32, now_jiffies: u64) -> u32 {
        let chain = self.add(now_jiffies, CHAIN, usize::from(self.get(n).tree));
        self.supplant(n, chain);
        self.nr_chains += 1;
        self.push_dup(chain, n);
        chain
    }
    /// Bring a duplicate to the front of its chain.
    pub(crate) fn bring_forward(&mut self, n: u32) {
        let chain = self.get(n).chain();
        self.unhang(n);
        self.push_dup(chain, n);
    }
    /// A chain with one duplicate left: the duplicate takes its place.
    pub(crate) fn collapse(&mut self, chain: u32) -> u32 {
        let n = self.get(chain).first;
        self.unhang(n);
        self.supplant(chain, n);
        self.drop_chain(chain);
        n
    }
    fn drop_chain(&mut self, chain: u32) {
        self.nr_chains -= 1;
        self.release(chain);
    }
    /// Take all empty chains out of their trees.
    pub(crate) fn remove_empty_chains(&mut self) {
        let is_empty = |&n: &u32| self.get(n).is_chain() && self.get(n).first == NIL;
        let tops = self.roots.iter().flat_map(|root| root.elements(&self.nodes));
        for chain in tops.filter(is_empty).collect::<Vec<u32>>() {
            self.remove_empty_chain(chain);
        }
    }
    /// Take an empty chain out of its tree.
    pub(crate) fn remove_empty_chain(&mut self, chain: u32) {
        debug_assert!(self.get(chain).first == NIL);
        self.uproot(chain);
        self.drop_chain(chain);
    }

    /// Take `n` from wherever it hangs.
    pub(crate) fn unhang(&mut self, n: u32) {
        match self.get(n).place {
            Place::Free => {}
            Place::Tree => self.uproot(n),
            Place::Dup => {
                let chain = self.get(n).chain();
                let head = self.nodes.pull_list(self.get(chain).first, n);
                self.get_mut(chain).first = head;
                self.nr_dups -= 1;
            }
            Place::Migrate => self.migrate = self.nodes.pull_list(self.migrate, n),
        }
        self.get_mut(n).place = Place::Free;
    }
    /// Take `n`, which has no items any more, out for good.
    pub(crate) fn remove(&mut self, n: u32) {
        debug_assert!(self.get(n).len == 0);
        self.unhang(n);
        self.release(n);
    }

    pub(crate) fn note_prune(&mut self, chain: u32, now_jiffies: u64) {
        debug_assert!(self.get(chain).is_chain());
        self.get_mut(chain).value = now_jiffies;
    }
    /// The nodes of a list by their `next`.
    pub(crate) fn list(&self, first: u32) -> impl Iterator<Item = u32> {
        list(first, |n| self.get(n).next())
    }
    /// All nodes with pages, tree by tree, then those of the migrate list.
    pub(crate) fn with_pages(&self) -> Vec<u32> {
        let trees = (0..self.roots.len()).flat_map(|tree| self.pages_in(tree));
        trees.chain(self.list(self.migrate)).collect()
    }
    /// The nodes with pages in a tree: single ones and duplicates of chains.
    pub(crate) fn pages_in(&self, tree: usize) -> Vec<u32> {
        let mut out = Vec::new();
        for n in self.roots[tree].elements(&self.nodes) {
            if self.get(n).is_chain() {
                out.extend(self.list(self.get(n).first));
            } else {
                out.push(n);
            }
        }
        out
    }
}
