//! A checker that looks at every tree, list and counter, and believes none of
//! the increments.
//!
//! It is apart from the rules on purpose and slow: it visits everything.

use super::item::State;
use super::memory::{Page, PageFacts, StableId, Vpn};
use super::stable::Place;
use super::tree::{Links, NIL};
use super::{Counters, Ksm};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Notes what does not hold, for checkers.
#[macro_export]
macro_rules! hold {
    ($found:expr, $holds:expr, $($text:tt)*) => {
        if !$holds {
            $found.push(format!($($text)*));
        }
    };
}

/// A stable node as the checker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Which one.
    pub node: StableId,
    /// Its page.
    pub page: Page,
    /// Its tree; `None` on the migrate list.
    pub tree: Option<usize>,
    /// Items that hang at it.
    pub items: u32,
}

impl Ksm {
    /// All stable nodes with a page, tree by tree, then the migrate list.
    pub fn nodes_seen(&self) -> Vec<NodeSeen> {
        let seen = |n: u32, tree| NodeSeen {
            node: StableId(n),
            page: self.stable.get(n).page(),
            tree,
            items: self.stable.get(n).len(),
        };
        let mut out: Vec<_> = (0..self.stable.roots.len())
            .flat_map(|t| self.stable.pages_in(t).into_iter().map(move |n| (n, t)))
            .map(|(n, t)| seen(n, Some(t)))
            .collect();
        out.extend(self.stable.list(self.stable.migrate).map(|n| seen(n, None)));
        out
    }

    /// Stable nodes whose page is gone.
    pub fn stale_nodes(&self, pages: &dyn PageFacts) -> Vec<NodeSeen> {
        let mut nodes = self.nodes_seen();
        nodes.retain(|n| !pages.keeps(n.page, n.node));
        nodes
    }

    /// Stable nodes in the tree of another memory node than their page's,
    /// or in the trees of another `merge_across_nodes`.
    pub fn misplaced_nodes(&self, pages: &dyn PageFacts) -> Vec<NodeSeen> {
        let mut nodes = self.nodes_seen();
        nodes.retain(|n| {
            pages.keeps(n.page, n.node) && n.tree.is_some_and(|t| t != self.tree_of(pages, n.page))
        });
        nodes
    }

    /// Neighbours in the unstable trees that are not in ascending order. Contents
    /// change under these trees, so there may be some; not in a pass during which
    /// nobody writes.
    pub fn unstable_disorder(&self, pages: &dyn PageFacts) -> usize {
        let page = |n: u32| pages.lookup(self.items.get(n).mm(), self.items.get(n).vpn());
        let of_tree = |root: &super::Root| {
            let there: Vec<Option<Page>> = root.elements(&self.items).map(page).collect();
            let is_wrong = |pair: &&[Option<Page>]| match pair {
                [Some(a), Some(b)] => pages.order(*a, *b) != Ordering::Less,
                _ => true,
            };
            there.windows(2).filter(is_wrong).count()
        };
        self.unstable.iter().map(of_tree).sum()
    }

    /// Whatever contradicts itself; empty if all is well. To be called between
    /// two calls of the rules, at any time.
    ///
    /// Held: shape and order of the stable trees (of the nodes that are not
    /// stale), shape and membership of the unstable ones (not their order:
    /// contents change under them), every node in one place and known to its
    /// page, lists of items, ascending addresses, all counters.
    pub fn faults(&self, pages: &dyn PageFacts) -> Vec<String> {
        let mut out = Vec::new();
        let hung = self.check_stable(pages, &mut out);
        let (counted, merging) = self.check_items(&hung, &mut out);
        self.check_unstable(&mut out);
        let c = &self.counters;
        for (name, value, recounted) in [
            ("pages_shared", c.pages_shared, counted.pages_shared),
            ("pages_sharing", c.pages_sharing, counted.pages_sharing),
            ("pages_unshared", c.pages_unshared, counted.pages_unshared),
            ("items", c.rmap_items, counted.rmap_items),
            ("stable nodes", self.stable.nr_nodes, hung.len() as u64),
            // Volatile ones are counted on their own, not as what is left.
            ("pages_volatile", self.pages_volatile(), merging.nr_volatile),
            ("merging pages", c.pages_shared + c.pages_sharing, merging.nr_attached),
        ] {
            hold!(out, value == recounted, "{name} is {value}, counted {recounted}");
        }
        out
    }

    /// Walks the stable trees; returns each node with its items.
    fn check_stable(&self, pages: &dyn PageFacts, out: &mut Vec<String>) -> BTreeMap<u32, u32> {
        let s = &self.stable;
        let mut hung = BTreeMap::new();
        let (mut nr_chains, mut nr_dups) = (0, 0);
        for (t, root) in s.roots.iter().enumerate() {
            out.extend(root.faults(&s.nodes).into_iter().map(|f| format!("stable tree {t}: {f}")));
            let mut before: Option<Page> = None;
            for top in root.elements(&s.nodes) {
                let node = s.get(top);
                hold!(
                    out,
                    node.place == Place::Tree && usize::from(node.tree) == t,
                    "node {top} in tree {t} believes {node:?}"
                );
                let dups: Vec<u32> = if node.is_chain() {
                    nr_chains += 1;
                    s.list(node.first).collect()
                } else {
                    vec![top]
                };
                let mut own: Option<Page> = None;
                for n in dups {
                    if node.is_chain() {
                        nr_dups += 1;
                        let dup = s.get(n);
                        hold!(
                            out,
                            dup.place == Place::Dup && dup.chain() == top && dup.tree == node.tree,
                            "duplicate {n} of chain {top} believes {dup:?}"
                        );
                    }
                    let page = s.get(n).page();
                    hung.insert(n, s.get(n).len());
                    if !pages.keeps(page, StableId(n)) {
                        continue;
                    }
                    hold!(
                        out,
                        own.is_none_or(|o| pages.order(o, page) == Ordering::Equal),
                        "chain {top} of tree {t} holds different contents"
                    );
                    own = Some(page);
                }
                if let (Some(b), Some(o)) = (before, own) {
                    hold!(
                        out,
                        pages.order(b, o) == Ordering::Less,
                        "stable tree {t} is out of order at node {top}"
                    );
                }
                before = own.or(before);
            }
        }
        for n in s.list(s.migrate) {
            hold!(
                out,
                s.get(n).place == Place::Migrate && hung.insert(n, s.get(n).len()).is_none(),
                "node {n} of the migrate list believes {:?}",
                s.get(n)
            );
        }
        for (name, value, counted) in
            [("chains", s.nr_chains, nr_chains), ("dups", s.nr_dups, nr_dups)]
        {
            hold!(out, value == counted, "stable_node_{name} is {value}, counted {counted}");
        }
        hung
    }

    fn check_items(
        &self,
        hung: &BTreeMap<u32, u32>,
        out: &mut Vec<String>,
    ) -> (Counters, Attachment) {
        let mut c = Counters::default();
        let mut a = Attachment::default();
        let mut at_node: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut back = NIL;
        for mm in self.listed() {
            let m = self.mm(mm.0);
            hold!(
                out,
                m.prev == back && m.listed,
                "address space {} has a bad place in the list",
                mm.0
            );
            back = mm.0;
            let (mut last, mut stat) = (None::<Vpn>, super::MmStat::default());
            for n in self.items_of(mm) {
                let it = self.items.get(n);
                if it.mm() != mm || last.is_some_and(|l| l >= it.vpn()) {
                    out.push(format!("item {n} of {} is out of place: {it:?}", mm.0));
                    break;
                }
                last = Some(it.vpn());
                stat.rmap_items += 1;
                match it.state() {
                    State::None => a.nr_volatile += 1,
                    State::Unstable => c.pages_unshared += 1,
                    State::Stable => {
                        stat.merging_pages += 1;
                        at_node.entry(it.head().unwrap_or(NIL)).or_default().insert(n);
                    }
                }
            }
            stat.zero_pages = m.stat.zero_pages;
            hold!(out, stat == m.stat, "address space {}: {:?}, counted {stat:?}", mm.0, m.stat);
            c.rmap_items += stat.rmap_items;
            a.nr_attached += stat.merging_pages;
        }
        hold!(out, back == self.last, "the list of address spaces has another end");
        for (node, items) in &at_node {
            c.pages_shared += 1;
            c.pages_sharing += items.len() as u64 - 1;
            let mut listed = BTreeSet::new();
            let (mut n, mut prev) = (self.stable.get(*node).first, NIL);
            while n != NIL && listed.insert(n) {
                hold!(
                    out,
                    self.items.link(n).prev() == prev,
                    "item {n} of node {node} forgot who is before it"
                );
                (prev, n) = (n, self.items.link(n).next());
            }
            hold!(
                out,
                listed == *items && hung.get(node) == Some(&(items.len() as u32)),
                "node {node} lists {listed:?}, at it hang {items:?}"
            );
        }
        for (node, len) in hung {
            hold!(
                out,
                *len == 0 || at_node.contains_key(node),
                "node {node} claims {len} items, none hangs at it"
            );
        }
        (c, a)
    }

    fn check_unstable(&self, out: &mut Vec<String>) {
        let mut in_trees = BTreeSet::new();
        for (t, root) in self.unstable.iter().enumerate() {
            out.extend(root.faults(&self.items).into_iter().map(|f| format!("unstable {t}: {f}")));
            for n in root.elements(&self.items) {
                let it = self.items.get(n);
                let fits = it.state() == State::Unstable && it.unstable_tree() == (t, self.seq);
                hold!(
                    out,
                    fits && in_trees.insert(n),
                    "item {n} in unstable tree {t} believes {it:?}"
                );
            }
        }
        for mm in self.listed() {
            for n in self.items_of(mm) {
                let it = self.items.get(n);
                let present = it.state() == State::Unstable && it.unstable_tree().1 == self.seq;
                hold!(
                    out,
                    !present || in_trees.contains(&n),
                    "item {n} is in no unstable tree: {it:?}"
                );
            }
        }
    }
}

#[derive(Default)]
struct Attachment {
    nr_volatile: u64,
    nr_attached: u64,
}
