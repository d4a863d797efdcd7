//! Same-page merging: equal anonymous pages become one write-protected page.
//!
//! Terms. An *item* is an address that ksmd has examined. A *stable node* is a
//! merged page with the items that map it; a *chain* holds several for one
//! content, since each takes `max_page_sharing` items at most (its
//! *duplicates*). Items whose page could merge wait in an *unstable* tree,
//! which a pass forgets. Both kinds of tree are ordered by content; there is
//! one of each, or with `merge_across_nodes` = 0 one per memory node. The
//! *migrate list* holds nodes whose page has moved to another memory node than
//! their tree's, until a visit brings them home.
//!
//! Example: three equal pages A, B, C, visited in this order. First pass: their
//! checksums are noted. Second: A is put into the unstable tree; B finds A
//! there, both become one page in B's frame; C finds that page in the stable
//! tree. `pages_shared` is 1, `pages_sharing` 2: two pages are saved.
//!
//! Reading order: [`memory`] (what a machine must offer), `tree`, `arena`,
//! `item`, `stable` (the structures), [`smart`], [`advisor`], [`register`] (small
//! rules), `scan` (the daemon's work), [`files`], [`pace`] and [`plan`] (driving a
//! kernel that does the merging itself), [`check`].
//!
//! The machine tells what happened ([`Ksm::enter`], [`Ksm::fork`],
//! [`Ksm::exit`], [`Ksm::page_moved`], offlining) and gives ksmd its turns
//! ([`Ksm::batch`], or [`Ksm::step`] page by page).

pub mod memory;

mod tree;

mod arena;

mod item;

mod stable;

pub mod smart;

pub mod advisor;

pub mod register;

pub mod saving;

mod scan;

pub mod files;

pub mod pace;

pub mod plan;

pub mod check;

use crate::kernel::KernelVersion;
use advisor::Advisor;
use item::{Items, State};
use memory::{BreakError, Memory, MmId, Next, Page, PageFacts, StableId, Vpn};
use stable::Stable;
use tree::{NIL, Root, list};

pub use scan::{Batch, Fate, Step, Visit, Why};

/// Bytes of the kernel's own item, by which it counts its profit.
pub const ITEM_BYTES: i64 = 64;
/// `pages_to_scan` unless written.
pub const PAGES_TO_SCAN: u32 = 100;
/// Most memory nodes whose trees an item can name.
pub const NODES_MAX: usize = 1024;

/// What differs between kernels.
///
/// Source: specs/ksm.md#versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whose files there are.
    pub version: KernelVersion,
    /// The checksum gate comes before the stable search; before 6.12 after it.
    pub gate_first: bool,
    /// `max_page_sharing` and chains.
    pub chains: bool,
    /// `use_zero_pages`.
    pub zero_pages: bool,
    /// `smart_scan`, the advisor and their counters.
    pub smart: bool,
    /// Joining a stable node wipes checksum, age and skips.
    pub join_wipes: bool,
    /// Smart scan passes no item over that hangs at a stable node.
    pub stable_never_skipped: bool,
}

impl Rules {
    /// Of a release; for 3.8 the seed's series as a whole.
    pub fn of(version: KernelVersion) -> Self {
        use KernelVersion::{V4_15, V6_12, V7_3};
        Self {
            version,
            gate_first: version >= V6_12,
            chains: version >= V4_15,
            zero_pages: version >= V4_15,
            smart: version >= V6_12,
            join_wipes: version >= V7_3,
            stable_never_skipped: version >= V7_3,
        }
    }
}

/// The time, as a visit needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Ticks since boot.
    pub jiffies: u64,
    /// Nanoseconds since boot.
    pub ns: u64,
    /// Nanoseconds of CPU time that ksmd has used since boot.
    pub ksmd_cpu_ns: u64,
}

/// The knobs. Write them by [`Ksm::write`], which holds the kernel's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `run`: bit 0 merge, bit 1 unmerge, bit 2 memory is going offline.
    pub run: u8,
    /// `pages_to_scan`, of one batch.
    pub pages_to_scan: u32,
    /// `sleep_millisecs`, between batches.
    pub sleep_millisecs: u32,
    /// `merge_across_nodes`.
    pub merge_across_nodes: bool,
    /// `max_page_sharing`, 2 or more.
    pub max_page_sharing: u32,
    /// `stable_node_chains_prune_millisecs`.
    pub chains_prune_millisecs: u32,
    /// `use_zero_pages`.
    pub use_zero_pages: bool,
    /// `smart_scan`.
    pub smart_scan: bool,
}

/// Counters of ksmd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Merged pages that are mapped by an item.
    pub pages_shared: u64,
    /// Further items that map them: the saving.
    pub pages_sharing: u64,
    /// Items in the unstable trees, also forgotten ones until their visit.
    pub pages_unshared: u64,
    /// Items.
    pub rmap_items: u64,
    /// Visits, without skipped ones.
    pub pages_scanned: u64,
    /// Visits that smart scan saved.
    pub pages_skipped: u64,
    /// Passes.
    pub full_scans: u64,
    /// Mappings of the page of zeroes that merging has made.
    pub ksm_zero_pages: i64,
}

/// What the work has cost: comparisons are counted one by one, as the kernel's
/// trees would need them on the same pages in the same order.
///
/// Source: specs/ksm.md#comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Checksums computed.
    pub checksums: u64,
    /// Searches of a stable tree for a page, and for a new node's place.
    pub stable_searches: u64,
    /// Comparisons in them.
    pub stable_comparisons: u64,
    /// Searches of an unstable tree.
    pub unstable_searches: u64,
    /// Comparisons in them.
    pub unstable_comparisons: u64,
    /// Comparisons of a page, once protected, with the one that replaces it.
    pub verifications: u64,
    /// Searches of a stable tree that began again, having met a stale node.
    pub restarts: u64,
    /// Steps along chains.
    pub dups_walked: u64,
}

/// What is known about an address space: `/proc/PID/ksm_stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmStat {
    /// Items.
    pub rmap_items: u64,
    /// Mappings of the page of zeroes that merging has made.
    pub zero_pages: i64,
    /// Items that hang at stable nodes.
    pub merging_pages: u64,
}

impl MmStat {
    /// `ksm_process_profit` in bytes.
    pub const fn profit(&self) -> i64 {
        profit(self.merging_pages as i64 + self.zero_pages, self.rmap_items)
    }
}

const fn profit(saved: i64, items: u64) -> i64 {
    saved * crate::units::PAGE_SIZE as i64 - items as i64 * ITEM_BYTES
}

/// An address space on the list, or remembered for its counters.
#[derive(Clone, Copy, Debug)]
struct Mm {
    prev: u32,
    next: u32,
    /// Its items, ascending by address.
    items: u32,
    listed: bool,
    exiting: bool,
    stat: MmStat,
}

impl Default for Mm {
    fn default() -> Self {
        let stat = MmStat::default();
        Self { prev: NIL, next: NIL, items: NIL, listed: false, exiting: false, stat }
    }
}

/// Where the pass is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The address space; [`NIL`] between passes.
    mm: u32,
    /// The next address.
    vpn: u64,
    /// The item visited last in it.
    item: u32,
}

const BETWEEN_PASSES: Cursor = Cursor { mm: NIL, vpn: 0, item: NIL };

/// The state of merging on one machine.
#[derive(Clone, Debug)]
pub struct Ksm {
    rules: Rules,
    settings: Settings,
    advisor: Advisor,
    counters: Counters,
    effort: Effort,
    nr_nodes: usize,
    items: Items,
    stable: Stable,
    unstable: Vec<Root>,
    /// Which generation of unstable trees is the present one.
    seq: u8,
    mms: Vec<Mm>,
    first: u32,
    last: u32,
    cursor: Cursor,
    /// The time of the visit under way.
    jiffies: u64,
}

impl Ksm {
    /// Nothing registered, everything at its default.
    ///
    /// * `nr_nodes` – possible memory nodes (highest number + 1), 1 to [`NODES_MAX`].
    ///
    /// Source: specs/ksm.md#files.
    pub fn new(version: KernelVersion, nr_nodes: usize) -> Self {
        let rules = Rules::of(version);
        assert!((1..=NODES_MAX).contains(&nr_nodes), "1 to {NODES_MAX} nodes, not {nr_nodes}");
        Self {
            rules,
            settings: Settings {
                run: 0,
                pages_to_scan: PAGES_TO_SCAN,
                sleep_millisecs: 20,
                merge_across_nodes: true,
                max_page_sharing: 256,
                chains_prune_millisecs: 2000,
                use_zero_pages: false,
                smart_scan: rules.smart,
            },
            advisor: Advisor::default(),
            counters: Counters::default(),
            effort: Effort::default(),
            nr_nodes,
            items: Items::default(),
            stable: Stable::new(),
            unstable: vec![Root::EMPTY],
            seq: 0,
            mms: Vec::new(),
            first: NIL,
            last: NIL,
            cursor: BETWEEN_PASSES,
            jiffies: 0,
        }
    }

    /// What this kernel does.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }
    /// The knobs.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
    /// The advisor and its knobs.
    pub const fn advisor(&self) -> &Advisor {
        &self.advisor
    }
    /// The counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// What the work has cost so far.
    pub const fn effort(&self) -> &Effort {
        &self.effort
    }
    /// `stable_node_chains`.
    pub const fn stable_node_chains(&self) -> u64 {
        self.stable.nr_chains
    }
    /// `stable_node_dups`.
    pub const fn stable_node_dups(&self) -> u64 {
        self.stable.nr_dups
    }
    /// Stable nodes with a page, stale ones included.
    pub const fn nr_stable_nodes(&self) -> u64 {
        self.stable.nr_nodes
    }
    /// `pages_volatile`: items that hang nowhere.
    ///
    /// Source: specs/ksm.md#counters.
    pub const fn pages_volatile(&self) -> u64 {
        let c = &self.counters;
        c.rmap_items.saturating_sub(c.pages_shared + c.pages_sharing + c.pages_unshared)
    }
    /// `general_profit` in bytes; may be negative.
    ///
    /// Source: specs/ksm.md#counters.
    pub const fn general_profit(&self) -> i64 {
        let c = &self.counters;
        profit(c.pages_sharing as i64 + c.ksm_zero_pages, c.rmap_items)
    }

    /// What is known about an address space.
    pub fn mm_stat(&self, mm: MmId) -> MmStat {
        self.mms.get(mm.0 as usize).map(|m| m.stat).unwrap_or_default()
    }
    /// Whether `mm` is on the list: registered, or gone but not yet cleaned up.
    pub fn knows(&self, mm: MmId) -> bool {
        self.mms.get(mm.0 as usize).is_some_and(|m| m.listed)
    }
    /// The listed address spaces in the order of a pass.
    pub fn listed(&self) -> impl Iterator<Item = MmId> {
        list(self.first, |m| self.mm(m).next).map(MmId)
    }

    fn mm(&self, m: u32) -> &Mm {
        &self.mms[m as usize]
    }
    fn mm_mut(&mut self, m: u32) -> &mut Mm {
        &mut self.mms[m as usize]
    }

    /// Put `m` before `at`; before [`NIL`] is last.
    fn link_mm(&mut self, m: u32, at: u32) {
        let prev = if at == NIL { self.last } else { self.mm(at).prev };
        *(if prev == NIL { &mut self.first } else { &mut self.mms[prev as usize].next }) = m;
        *(if at == NIL { &mut self.last } else { &mut self.mms[at as usize].prev }) = m;
        (self.mm_mut(m).prev, self.mm_mut(m).next) = (prev, at);
        self.mm_mut(m).listed = true;
    }
    fn unlink_mm(&mut self, m: u32) {
        let Mm { prev, next, .. } = *self.mm(m);
        *(if prev == NIL { &mut self.first } else { &mut self.mms[prev as usize].next }) = next;
        *(if next == NIL { &mut self.last } else { &mut self.mms[next as usize].prev }) = prev;
        self.mm_mut(m).listed = false;
    }
    /// A listed address space without items leaves the list.
    fn forget_mm(&mut self, m: u32) {
        self.unlink_mm(m);
        if self.mm(m).exiting {
            self.mms[m as usize] = Mm::default();
        }
    }

    /// The first mergeable mapping of `mm`: it goes behind the cursor, to be
    /// visited last; while everything is unmerged (`run` = 2), to the end.
    /// Nothing changes where it is on the list. Returns whether ksmd is to be woken.
    ///
    /// Source: specs/ksm.md#registration.
    pub fn enter(&mut self, mm: MmId) -> bool {
        let m = mm.0;
        assert!(m < 1 << 20, "address spaces are numbered by 20 bits, {m} is beyond");
        if self.mms.len() <= m as usize {
            self.mms.resize(m as usize + 1, Mm::default());
        }
        if self.mm(m).listed {
            return false;
        }
        let was_empty = self.first == NIL;
        let at = if self.settings.run & 2 != 0 { NIL } else { self.cursor.mm };
        self.mm_mut(m).exiting = false;
        self.link_mm(m, at);
        was_empty
    }

    /// `child` was forked from `parent`: registration is inherited, items are
    /// not. `zero_pages` of the entries that were copied map the page of zeroes
    /// by merging; they count again. Returns whether ksmd is to be woken.
    ///
    /// Source: specs/ksm.md#registration.
    pub fn fork(&mut self, parent: MmId, child: MmId, zero_pages: u64) -> bool {
        let wakes = self.knows(parent) && self.enter(child);
        if zero_pages > 0 {
            self.zero_pages_changed(child, zero_pages as i64);
        }
        wakes
    }

    /// A program was replaced: `old` is gone; `new` is registered if
    /// `merge_any`, the state of `PR_SET_MEMORY_MERGE`, which survives.
    /// Returns whether ksmd is to be woken.
    ///
    /// Source: specs/ksm.md#registration.
    pub fn exec(&mut self, old: MmId, new: MmId, merge_any: bool) -> bool {
        let wakes = merge_any && register::has_merge_any(self.rules.version) && self.enter(new);
        self.exit(old);
        wakes
    }

    /// `mm` is going away. It leaves the list at once if ksmd is elsewhere and
    /// has no items of it; else it is moved just behind the cursor, or stays if
    /// the cursor is in it, for ksmd to clean up.
    ///
    /// Source: specs/ksm.md#registration.
    pub fn exit(&mut self, mm: MmId) {
        let m = mm.0;
        if !self.knows(mm) {
            if let Some(mm) = self.mms.get_mut(m as usize) {
                *mm = Mm::default();
            }
            return;
        }
        self.mm_mut(m).exiting = true;
        if self.cursor.mm == m {
            return;
        }
        if self.mm(m).items == NIL {
            self.forget_mm(m);
            return;
        }
        self.unlink_mm(m);
        let at = if self.cursor.mm == NIL { self.first } else { self.mm(self.cursor.mm).next };
        self.link_mm(m, at);
    }

    /// The machine has mapped (above 0) or unmapped pages of zeroes that merging
    /// had mapped in `mm`; those that merging itself maps and unmaps are counted here.
    pub fn zero_pages_changed(&mut self, mm: MmId, by: i64) {
        self.counters.ksm_zero_pages += by;
        if self.mms.len() <= mm.0 as usize {
            self.mms.resize(mm.0 as usize + 1, Mm::default());
        }
        self.mm_mut(mm.0).stat.zero_pages += by;
    }

    /// A merged page was moved: its node stays where it is, only the number of
    /// its page changes. A later visit brings it to the right tree.
    ///
    /// Source: specs/ksm.md#migration.
    pub fn page_moved(&mut self, node: StableId, to: Page) {
        self.stable.set_page(node.0, to);
    }

    /// Give the pages of `mm` from `from` up to `to` copies of their own:
    /// `MADV_UNMERGEABLE`, and what `mremap` does before it moves. Items stay
    /// until ksmd's visit. Call it while the mapping still is mergeable.
    ///
    /// # Errors
    /// [`BreakError`]; the pages before it are unmerged. `madvise` reports
    /// missing memory as EAGAIN.
    ///
    /// Source: specs/ksm.md#registration.
    pub fn unmerge<M: Memory + ?Sized>(
        &mut self,
        mem: &mut M,
        mm: MmId,
        from: Vpn,
        to: Vpn,
    ) -> Result<(), BreakError> {
        let mut at = from;
        while let Next::Page { vpn, page } = mem.next(mm, at) {
            if vpn >= to {
                break;
            }
            if mem.pages().stable(page).is_some() {
                mem.break_cow(mm, vpn)?;
            }
            at = Vpn(vpn.0 + 1);
        }
        if self.rules.smart {
            let mut at = from;
            while let Some(vpn) = mem.next_zero(mm, at).filter(|v| *v < to) {
                mem.break_cow(mm, vpn)?;
                self.zero_pages_changed(mm, -1);
                at = Vpn(vpn.0 + 1);
            }
        }
        Ok(())
    }

    /// `run` = 2: unmerge everything, keep the registrations.
    ///
    /// Source: specs/ksm.md#unmerge.
    fn unmerge_all<M: Memory + ?Sized>(&mut self, mem: &mut M) -> Result<(), BreakError> {
        self.cursor = BETWEEN_PASSES;
        let mut m = self.first;
        while m != NIL {
            let next = self.mm(m).next;
            if !self.mm(m).exiting {
                if let Err(e) = self.unmerge(mem, MmId(m), Vpn(0), Vpn(u64::MAX)) {
                    // The pass begins anew, with trees that know nothing of what was dropped.
                    self.forget_unstable();
                    return Err(e);
                }
            }
            self.drop_items_after(mem, m, NIL);
            if self.mm(m).exiting {
                self.forget_mm(m);
            }
            m = next;
        }
        // A node whose page is still mapped (by an address that is no longer
        // mergeable) stays; the rest goes.
        self.remove_stable_nodes(mem);
        self.forget_unstable();
        self.counters.full_scans = 0;
        Ok(())
    }

    /// Remove the stable nodes whose page is gone or no longer mapped, in every
    /// tree and on the migrate list; whether none is left.
    ///
    /// Source: specs/ksm.md#switch.
    fn remove_stable_nodes<M: Memory + ?Sized>(&mut self, mem: &mut M) -> bool {
        let mut all = true;
        for node in self.stable.with_pages() {
            all &= self.remove_if_unmapped(mem, node);
        }
        self.stable.remove_empty_chains();
        all
    }
    fn remove_if_unmapped<M: Memory + ?Sized>(&mut self, mem: &mut M, node: u32) -> bool {
        let Some(page) = self.live_page(mem, node) else { return true };
        if mem.pages().mapcount(page) > 0 {
            return false;
        }
        mem.set_stable(page, None);
        self.remove_node(node);
        true
    }

    /// Memory is going offline: ksmd and writers of `run`, `merge_across_nodes`
    /// and `max_page_sharing` wait until [`Ksm::offlined`] or [`Ksm::offline_cancelled`].
    ///
    /// Source: specs/ksm.md#offline.
    pub fn going_offline(&mut self) {
        self.settings.run |= 4;
    }
    /// The memory is offline: nodes whose page was there and did not move away
    /// go. Waiters are to be woken.
    ///
    /// * `is_gone` – whether a page's number lies in the range that went.
    ///
    /// Source: specs/ksm.md#offline.
    pub fn offlined(&mut self, is_gone: impl Fn(Page) -> bool) {
        let mut gone = self.stable.with_pages();
        gone.retain(|&n| is_gone(self.stable.get(n).page()));
        for node in gone {
            self.remove_node(node);
        }
        self.stable.remove_empty_chains();
        self.settings.run &= !4;
    }
    /// The memory stays. Waiters are to be woken.
    ///
    /// Source: specs/ksm.md#offline.
    pub fn offline_cancelled(&mut self) {
        self.settings.run &= !4;
    }
    /// Whether memory is going offline right now.
    pub const fn is_offlining(&self) -> bool {
        self.settings.run & 4 != 0
    }

    /// Whether ksmd has anything to do.
    ///
    /// Source: specs/ksm.md#pass.
    pub const fn should_run(&self) -> bool {
        self.settings.run & 1 != 0 && !self.is_offlining() && self.first != NIL
    }

    /// Forget the unstable trees; items stay counted as unshared until their visit.
    fn forget_unstable(&mut self) {
        self.unstable.fill(Root::EMPTY);
        self.seq = self.seq.wrapping_add(1);
    }

    /// Which tree a page belongs to.
    #[inline]
    fn tree_of(&self, pages: &dyn PageFacts, page: Page) -> usize {
        if self.settings.merge_across_nodes { 0 } else { pages.node(page).index() }
    }

    /// Whether another item may hang at the node.
    #[inline]
    fn has_room(&self, node: u32, further: u32) -> bool {
        let len = self.stable.get(node).len();
        !self.rules.chains || len > 0 && len + further < self.settings.max_page_sharing
    }

    /// The page of a node; a stale node goes, and all its items are detached.
    #[inline]
    fn live_page<M: Memory + ?Sized>(&mut self, mem: &M, node: u32) -> Option<Page> {
        let page = self.stable.get(node).page();
        if mem.pages().keeps(page, StableId(node)) {
            return Some(page);
        }
        self.remove_node(node);
        None
    }

    /// Take a node out with all its memberships.
    fn remove_node(&mut self, node: u32) {
        while self.stable.get(node).first != NIL {
            self.leave_stable(self.stable.get(node).first, node);
        }
        self.stable.remove(node);
    }

    /// Take an item from its stable node.
    fn leave_stable(&mut self, item: u32, node: u32) {
        let first = self.items.pull_list(self.stable.get(node).first, item);
        let left = self.stable.detach(node, first);
        if left == 0 {
            self.counters.pages_shared -= 1;
        } else {
            self.counters.pages_sharing -= 1;
        }
        let mm = self.items.get(item).mm();
        self.mm_mut(mm.0).stat.merging_pages -= 1;
        self.items.get_mut(item).set_detached();
    }

    /// Hang an item, which hangs nowhere, at a stable node.
    fn join_stable(&mut self, item: u32, node: u32) {
        debug_assert!(self.items.get(item).state() == State::None);
        let next = self.stable.attach(node, item);
        if next == NIL {
            self.counters.pages_shared += 1;
        } else {
            self.counters.pages_sharing += 1;
        }
        self.items.push_list(node, next, item);
        let wipes = self.rules.join_wipes;
        let it = self.items.get_mut(item);
        it.set_stable();
        if wipes {
            it.checksum = 0;
            it.set_age_and_skips(0, 0);
        }
        let mm = it.mm();
        self.mm_mut(mm.0).stat.merging_pages += 1;
    }

    /// Take an item from wherever it hangs.
    ///
    /// Items of a forgotten tree only change their count. One whose stable node
    /// turns out stale takes the others of it along.
    fn leave_tree<M: Memory + ?Sized>(&mut self, mem: &M, item: u32) {
        match self.items.get(item).state() {
            State::None => {}
            State::Unstable => {
                let (tree, seq) = self.items.get(item).unstable_tree();
                if seq == self.seq {
                    self.unstable[tree].erase(&mut self.items, item);
                }
                self.counters.pages_unshared -= 1;
                self.items.get_mut(item).set_detached();
            }
            State::Stable => {
                let node = self.items.get(item).head().unwrap_or(NIL);
                if self.live_page(mem, node).is_some() {
                    self.leave_stable(item, node);
                }
            }
        }
    }

    /// The items of `m` behind `item` ([`NIL`]: all) go.
    fn drop_items_after<M: Memory + ?Sized>(&mut self, mem: &M, m: u32, item: u32) {
        let mut n = self.item_after(m, item);
        while n != NIL {
            n = self.drop_item(mem, m, n);
        }
        self.set_item_after(m, item, NIL);
    }
    /// Drop an item; returns the next. The caller mends the list.
    fn drop_item<M: Memory + ?Sized>(&mut self, mem: &M, m: u32, item: u32) -> u32 {
        self.leave_tree(mem, item);
        let next = self.items.get(item).next;
        self.items.release(item);
        self.counters.rmap_items -= 1;
        self.mm_mut(m).stat.rmap_items -= 1;
        next
    }
    /// The items of an address space, ascending by address.
    fn items_of(&self, mm: MmId) -> impl Iterator<Item = u32> {
        list(self.mm(mm.0).items, |n| self.items.get(n).next)
    }
    fn item_after(&self, m: u32, item: u32) -> u32 {
        if item == NIL { self.mm(m).items } else { self.items.get(item).next }
    }
    fn set_item_after(&mut self, m: u32, item: u32, next: u32) {
        if item == NIL {
            self.mm_mut(m).items = next;
        } else {
            self.items.get_mut(item).next = next;
        }
    }
}

#[cfg(test)]
mod tests;
