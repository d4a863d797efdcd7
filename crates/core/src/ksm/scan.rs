//! The daemon's work: a pass over all items, and what happens to one page.

use super::item::{Item, State};
use super::memory::{Memory, MmId, Next, Page, Refusal, StableId, Vpn};
use super::stable::Place;
use super::tree::{Links, NIL};
use super::{BETWEEN_PASSES, Cursor, Ksm, Now, smart};
use crate::kernel::msecs_to_jiffies;
use std::cmp::Ordering;

/// Why a page hangs nowhere after its visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Its checksum is another than at the visit before.
    Changed,
    /// The merged page is locked or being moved; the next pass tries again.
    Locked,
    /// A change was refused, here or at the address it was to merge with.
    Refused(Refusal),
    /// Its equal now lives on another node than when it was put into the tree.
    OtherNode,
    /// Its equal is the same page, by a fork.
    SamePage,
    /// A page that the search met is gone.
    PathGone,
    /// Its equal is part of the same huge page, which was split.
    SameHuge,
}

/// What a visit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// A merged page where it belongs.
    InPlace,
    /// The item now hangs at the merged page that it maps already.
    Attached(StableId),
    /// Merged into a page of the stable tree.
    Merged(StableId),
    /// Merged with a page of the unstable tree, in the visited page's frame.
    Paired(StableId),
    /// Put into the unstable tree.
    Inserted,
    /// Replaced by the shared page of zeroes.
    Zero,
    /// Nothing came of it.
    Volatile(Why),
}

/// One visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Whose page.
    pub mm: MmId,
    /// Its address.
    pub vpn: Vpn,
    /// The page before the visit.
    pub page: Page,
    /// What came of it.
    pub fate: Fate,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is registered.
    Idle,
    /// A page was visited.
    Page(Visit),
    /// The end of a pass, which ends its batch.
    PassEnded,
}

/// What a batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Pages visited, without skipped ones.
    pub nr_scanned: u32,
    /// A pass is over.
    pub pass_ended: bool,
}

/// What a search of the stable tree found.
enum Found {
    Nothing,
    /// The merged page that was searched for is in its tree now, with room.
    Own,
    Page(Page),
    Locked,
}

/// What a search meets at one place of a stable tree.
struct Met {
    page: Page,
    /// The node compared with.
    dup: u32,
    /// What hangs in the tree: the same, or its chain.
    at: u32,
}

/// Where a walk through a stable tree ended.
enum Walk {
    /// At an equal page.
    Twin(Met),
    /// At a free place below `parent`.
    Gap { parent: u32, side: Ordering },
}

impl Ksm {
    /// What ksmd does between two sleeps: `pages_to_scan` pages, or what is left
    /// of the pass. Nothing while it should not run.
    ///
    /// Source: specs/ksm.md#pass.
    pub fn batch<M: Memory>(&mut self, mem: &mut M, now: &Now) -> Batch {
        let mut batch = Batch::default();
        if !self.should_run() {
            return batch;
        }
        for _ in 0..self.settings.pages_to_scan {
            match self.step(mem, now) {
                Step::Idle => break,
                Step::Page(_) => batch.nr_scanned += 1,
                Step::PassEnded => {
                    batch.pass_ended = true;
                    break;
                }
            }
        }
        batch
    }

    /// How long ksmd sleeps after a batch, in ticks. A write of
    /// `sleep_millisecs` ends it.
    ///
    /// Source: specs/ksm.md#pass.
    pub const fn sleep_jiffies(&self) -> u64 {
        msecs_to_jiffies(self.settings.sleep_millisecs as u64)
    }

    /// Visit the next page, or end the pass.
    ///
    /// Source: specs/ksm.md#pass.
    pub fn step<M: Memory>(&mut self, mem: &mut M, now: &Now) -> Step {
        if self.first == NIL {
            return Step::Idle;
        }
        if self.cursor.mm == NIL {
            self.begin_pass(mem, now);
        }
        loop {
            let Cursor { mm: m, vpn: from, item: before } = self.cursor;
            let next = if self.mm(m).exiting {
                self.cursor.item = NIL;
                Next::End { mergeable: false }
            } else {
                mem.next(MmId(m), Vpn(from))
            };
            match next {
                Next::Page { vpn, page } => {
                    let item = self.item_at(mem, m, before, vpn);
                    self.cursor = Cursor { mm: m, vpn: vpn.0 + 1, item };
                    if self.skips(mem, item, page) {
                        continue;
                    }
                    self.counters.pages_scanned += 1;
                    self.jiffies = now.jiffies;
                    let fate = self.process(mem, item, page);
                    return Step::Page(Visit { mm: MmId(m), vpn, page, fate });
                }
                Next::End { mergeable } => {
                    self.drop_items_after(mem, m, self.cursor.item);
                    let next = self.mm(m).next;
                    // One whose mappings went while it was being visited stays
                    // until the next pass finds nothing in it.
                    if self.mm(m).exiting || !mergeable && from == 0 {
                        self.forget_mm(m);
                    }
                    self.cursor = Cursor { mm: next, ..BETWEEN_PASSES };
                    if next == NIL {
                        self.end_pass(now);
                        return Step::PassEnded;
                    }
                }
            }
        }
    }

    fn begin_pass<M: Memory>(&mut self, mem: &mut M, now: &Now) {
        self.advisor.pass_begins(now);
        mem.drain();
        if !self.settings.merge_across_nodes {
            let waiting: Vec<u32> = self.stable.list(self.stable.migrate).collect();
            for node in waiting {
                self.live_page(mem, node);
            }
        }
        self.cursor = Cursor { mm: self.first, ..BETWEEN_PASSES };
    }

    fn end_pass(&mut self, now: &Now) {
        let pages = self.settings.pages_to_scan;
        self.settings.pages_to_scan = self.advisor.pass_ends(pages, now);
        self.counters.full_scans += 1;
        // The kernel forgets them when the next pass begins; nothing looks at
        // them in between.
        self.forget_unstable();
    }

    /// The item of an address, searched behind `before`; those of absent
    /// addresses on the way are dropped.
    fn item_at<M: Memory>(&mut self, mem: &M, m: u32, before: u32, vpn: Vpn) -> u32 {
        let first = self.item_after(m, before);
        let mut n = first;
        while n != NIL {
            let at = self.items.get(n).vpn();
            if at >= vpn {
                break;
            }
            n = self.drop_item(mem, m, n);
        }
        if n == NIL || self.items.get(n).vpn() != vpn {
            n = self.items.add(Item::new(MmId(m), vpn, n));
            self.counters.rmap_items += 1;
            self.mm_mut(m).stat.rmap_items += 1;
        }
        if n != first {
            self.set_item_after(m, before, n);
        }
        n
    }

    /// Whether smart scan passes the page over.
    ///
    /// Source: specs/ksm.md#smart-scan.
    fn skips<M: Memory>(&mut self, mem: &M, item: u32, page: Page) -> bool {
        if !self.settings.smart_scan || mem.pages().stable(page).is_some() {
            return false;
        }
        if self.rules.stable_never_skipped && self.items.get(item).state() == State::Stable {
            return false;
        }
        let it = self.items.get_mut(item);
        let v = smart::visit(it.age(), it.skips());
        it.set_age_and_skips(v.age, v.skips);
        if v.skip {
            self.counters.pages_skipped += 1;
            self.leave_tree(mem, item);
        }
        v.skip
    }

    /// What becomes of one page.
    ///
    /// Source: specs/ksm.md#one-page.
    fn process<M: Memory>(&mut self, mem: &mut M, item: u32, page: Page) -> Fate {
        let own = self.node_of(mem, page);
        if let Some(node) = own {
            let n = self.stable.get(node);
            let (is_waiting, tree) = (n.place == Place::Migrate, usize::from(n.tree));
            if !is_waiting && self.tree_of(mem.pages(), page) != tree {
                self.stable.unhang(node);
                self.stable.push_migrate(node);
            }
            let is_waiting = self.stable.get(node).place == Place::Migrate;
            if !is_waiting && self.items.get(item).head() == Some(node) {
                return Fate::InPlace;
            }
        } else {
            self.leave_tree(mem, item);
            if self.rules.gate_first {
                if let Some(fate) = self.gate(mem, item, page) {
                    return fate;
                }
            }
        }

        let found = self.search_stable(mem, page, own);
        if matches!(found, Found::Own) && self.items.get(item).head() == own {
            return Fate::InPlace;
        }
        self.leave_tree(mem, item);
        match found {
            Found::Nothing => {}
            Found::Locked => return Fate::Volatile(Why::Locked),
            Found::Own => {
                // Leaving another, stale node can't have taken this one along:
                // its page is mapped here.
                let node = own.unwrap_or(NIL);
                self.join_stable(item, node);
                return Fate::Attached(StableId(node));
            }
            Found::Page(with) => {
                if let Err(why) = self.replace(mem, item, page, with) {
                    return Fate::Volatile(Why::Refused(why));
                }
                let Some(node) = mem.pages().stable(with) else {
                    return Fate::Volatile(Why::Refused(Refusal::Gone));
                };
                self.join_stable(item, node.0);
                return Fate::Merged(node);
            }
        }
        if !self.rules.gate_first {
            if let Some(fate) = self.gate(mem, item, page) {
                return fate;
            }
        }
        self.search_unstable(mem, item, page)
    }

    /// The stable node of a merged page. A page that carries a node which is not
    /// its own is taken as an ordinary one.
    #[inline]
    fn node_of<M: Memory>(&self, mem: &M, page: Page) -> Option<u32> {
        let node = mem.pages().stable(page)?.0;
        let is_its = node < self.stable.len() && {
            let n = self.stable.get(node);
            n.place != Place::Free && !n.is_chain() && n.page() == page
        };
        is_its.then_some(node)
    }

    /// The checksum gate, and the page of zeroes behind it.
    fn gate<M: Memory>(&mut self, mem: &mut M, item: u32, page: Page) -> Option<Fate> {
        let checksum = mem.checksum(page);
        self.effort.checksums += 1;
        let it = self.items.get_mut(item);
        if it.checksum != checksum {
            it.checksum = checksum;
            return Some(Fate::Volatile(Why::Changed));
        }
        if self.settings.use_zero_pages && checksum == mem.zero_checksum() {
            let (mm, vpn) = (it.mm(), it.vpn());
            let done = mem.map_zero(mm, vpn, page);
            self.effort.verifications += u64::from(matches!(done, Ok(()) | Err(Refusal::Changed)));
            if done.is_ok() {
                self.zero_pages_changed(mm, 1);
                return Some(Fate::Zero);
            }
        }
        None
    }

    /// Map `with` where `page` is mapped. A merged page can't be replaced by
    /// another: the kernel can't look its address up, in all versions.
    fn replace<M: Memory>(
        &mut self,
        mem: &mut M,
        item: u32,
        page: Page,
        with: Page,
    ) -> Result<(), Refusal> {
        if mem.pages().stable(page).is_some() {
            return Err(Refusal::Merged);
        }
        let it = self.items.get(item);
        let done = mem.replace(it.mm(), it.vpn(), page, with);
        self.effort.verifications += u64::from(matches!(done, Ok(()) | Err(Refusal::Changed)));
        done
    }

    /// The page at one place of a stable tree: the node's, or that of a
    /// duplicate of the chain. `None`: something stale was met and removed, the
    /// search has to begin again.
    ///
    /// Source: specs/ksm.md#chains.
    fn meet<M: Memory>(&mut self, mem: &M, at: u32, prunes: bool) -> Option<Met> {
        if !self.stable.get(at).is_chain() {
            return self.live_page(mem, at).map(|page| Met { page, dup: at, at });
        }
        let interval = msecs_to_jiffies(u64::from(self.settings.chains_prune_millisecs));
        let prunes = prunes && self.jiffies >= self.stable.get(at).prune_jiffies() + interval;
        if prunes {
            self.stable.note_prune(at, self.jiffies);
        }
        let mut best: Option<(u32, Page)> = None;
        let mut nr_live = 0u32;
        let mut n = self.stable.get(at).first;
        while n != NIL {
            let dup = n;
            n = self.stable.get(dup).next();
            self.effort.dups_walked += 1;
            let Some(page) = self.live_page(mem, dup) else { continue };
            nr_live += 1;
            let len = |node: u32| self.stable.get(node).len();
            let is_better = best.is_none_or(|(b, _)| {
                self.has_room(dup, 0) && (!self.has_room(b, 0) || len(dup) > len(b))
            });
            if is_better {
                best = Some((dup, page));
                if !prunes && self.has_room(dup, 0) {
                    break;
                }
            }
        }
        let Some((dup, page)) = best else {
            self.stable.remove_empty_chain(at);
            return None;
        };
        let mut at = at;
        if prunes && nr_live == 1 {
            at = self.stable.collapse(at);
        } else if self.stable.get(at).first != dup && self.has_room(dup, 1) {
            self.stable.bring_forward(dup);
        }
        Some(Met { page, dup, at })
    }

    /// Search the stable tree of the page's node. For a merged page that waits
    /// on the migrate list (`own`) it is also where it finds its new home.
    ///
    /// Source: specs/ksm.md#one-page, specs/ksm.md#migration.
    fn search_stable<M: Memory>(&mut self, mem: &mut M, page: Page, own: Option<u32>) -> Found {
        if own.is_some_and(|n| self.stable.get(n).place != Place::Migrate) {
            return Found::Own;
        }
        let tree = self.tree_of(mem.pages(), page);
        match (self.walk_stable(mem, page, tree, true), own) {
            (Walk::Twin(met), _) => self.twin(mem, page, own, tree, &met),
            (Walk::Gap { .. }, None) => Found::Nothing,
            (Walk::Gap { parent, side }, Some(node)) => {
                self.stable.unhang(node);
                self.stable.plant(node, tree, parent, side);
                self.own_if_room(node)
            }
        }
    }

    /// Walk a stable tree to an equal page, or to where it would hang.
    fn walk_stable<M: Memory>(&mut self, mem: &M, page: Page, tree: usize, prunes: bool) -> Walk {
        self.effort.stable_searches += 1;
        'again: loop {
            let (mut parent, mut side, mut at) = (NIL, Ordering::Less, self.stable.roots[tree].0);
            while at != NIL {
                let Some(met) = self.meet(mem, at, prunes) else {
                    self.effort.restarts += 1;
                    continue 'again;
                };
                self.effort.stable_comparisons += 1;
                side = mem.compare(page, met.page);
                parent = met.at;
                let link = self.stable.nodes.link(met.at);
                at = match side {
                    Ordering::Less => link.left(),
                    Ordering::Greater => link.right(),
                    Ordering::Equal => return Walk::Twin(met),
                };
            }
            return Walk::Gap { parent, side };
        }
    }

    /// A page of the same content is in the tree already.
    fn twin<M: Memory>(
        &mut self,
        mem: &mut M,
        page: Page,
        own: Option<u32>,
        tree: usize,
        met: &Met,
    ) -> Found {
        if let Some(node) = own {
            if self.rules.chains && mem.pages().mapcount(page) > 1 {
                let chain = if met.dup == met.at {
                    self.stable.make_chain(met.at, self.jiffies)
                } else {
                    met.at
                };
                self.stable.unhang(node);
                self.stable.push_dup(chain, node);
                return self.own_if_room(node);
            }
        }
        if !self.has_room(met.dup, 0) {
            return Found::Nothing;
        }
        if mem.pages().is_locked(met.page) {
            return Found::Locked;
        }
        if self.tree_of(mem.pages(), met.page) == tree {
            return Found::Page(met.page);
        }
        // The twin's page has left this memory node: it makes room.
        let found = match own {
            None => {
                self.stable.unhang(met.dup);
                Found::Nothing
            }
            Some(node) => {
                self.stable.unhang(node);
                if met.dup == met.at {
                    self.stable.supplant(met.dup, node);
                } else {
                    self.stable.unhang(met.dup);
                    self.stable.push_dup(met.at, node);
                }
                self.own_if_room(node)
            }
        };
        self.stable.push_migrate(met.dup);
        found
    }

    fn own_if_room(&self, node: u32) -> Found {
        if self.has_room(node, 0) { Found::Own } else { Found::Nothing }
    }
    /// A stable node for a new merged page, in the tree of its memory node.
    /// `None` where an equal one is there and this kernel has no chains.
    fn insert_stable<M: Memory>(&mut self, mem: &mut M, page: Page) -> Option<u32> {
        let tree = self.tree_of(mem.pages(), page);
        let walk = self.walk_stable(mem, page, tree, false);
        if matches!(walk, Walk::Twin(_)) && !self.rules.chains {
            return None;
        }
        let node = self.stable.add_node(page, tree);
        match walk {
            Walk::Gap { parent, side } => self.stable.plant(node, tree, parent, side),
            Walk::Twin(met) => {
                let chain = if self.stable.get(met.at).is_chain() {
                    met.at
                } else {
                    self.stable.make_chain(met.at, self.jiffies)
                };
                self.stable.push_dup(chain, node);
            }
        }
        mem.set_stable(page, Some(StableId(node)));
        Some(node)
    }

    /// Search the unstable tree of the page's node for an equal one to merge
    /// with; if there is none, the page is put into the tree.
    ///
    /// Source: specs/ksm.md#one-page.
    fn search_unstable<M: Memory>(&mut self, mem: &mut M, item: u32, page: Page) -> Fate {
        let tree = self.tree_of(mem.pages(), page);
        self.effort.unstable_searches += 1;
        let (mut parent, mut side, mut at) = (NIL, Ordering::Less, self.unstable[tree].0);
        while at != NIL {
            let other = self.items.get(at);
            let (mm, vpn) = (other.mm(), other.vpn());
            let there = if self.mm(mm.0).exiting { None } else { mem.pages().lookup(mm, vpn) };
            let Some(there) = there else { return Fate::Volatile(Why::PathGone) };
            if there == page {
                return Fate::Volatile(Why::SamePage);
            }
            self.effort.unstable_comparisons += 1;
            side = mem.compare(page, there);
            parent = at;
            let l = self.items.link(at);
            at = match side {
                Ordering::Less => l.left(),
                Ordering::Greater => l.right(),
                Ordering::Equal if self.tree_of(mem.pages(), there) != tree => {
                    return Fate::Volatile(Why::OtherNode);
                }
                Ordering::Equal => return self.merge_two(mem, item, page, at, there),
            };
        }
        // A copy: with the top in memory the search above takes 2 % more instructions.
        let mut root = self.unstable[tree];
        root.insert(&mut self.items, parent, side, item);
        self.unstable[tree] = root;
        let seq = self.seq;
        self.items.get_mut(item).set_unstable(tree, seq);
        self.counters.pages_unshared += 1;
        Fate::Inserted
    }

    /// Make two equal ordinary pages one, in the frame of the one visited now.
    fn merge_two<M: Memory>(
        &mut self,
        mem: &mut M,
        item: u32,
        page: Page,
        other: u32,
        there: Page,
    ) -> Fate {
        // Two parts of one huge page hold each other back from being split off;
        // after the attempt it is split whole, and the next pass succeeds.
        if mem.pages().huge(page).is_some_and(|h| mem.pages().huge(there) == Some(h)) {
            mem.split(page);
            return Fate::Volatile(Why::SameHuge);
        }
        let (mm, vpn) = (self.items.get(item).mm(), self.items.get(item).vpn());
        if mem.pages().stable(page).is_some() {
            return Fate::Volatile(Why::Refused(Refusal::Merged));
        }
        let merged = match mem.freeze(mm, vpn, page) {
            Ok(merged) => merged,
            Err(why) => return Fate::Volatile(Why::Refused(why)),
        };
        if let Err(why) = self.replace(mem, other, there, merged) {
            // A copy that can't be had leaves a protected page, which the next
            // write copies.
            let _ = mem.break_cow(mm, vpn);
            return Fate::Volatile(Why::Refused(why));
        }
        let (other_mm, other_vpn) = (self.items.get(other).mm(), self.items.get(other).vpn());
        self.leave_tree(mem, other);
        let Some(node) = self.insert_stable(mem, merged) else {
            let _ = mem.break_cow(other_mm, other_vpn);
            let _ = mem.break_cow(mm, vpn);
            return Fate::Volatile(Why::Refused(Refusal::Changed));
        };
        self.join_stable(other, node);
        self.join_stable(item, node);
        Fate::Paired(StableId(node))
    }
}
