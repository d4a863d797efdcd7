//! kswapd and direct reclaim on the classic lists: active and inactive, of Linux
//! 6.12 with MGLRU off (SPEC §B.7).

use super::alloc::Mark;
use super::migrate::Entries;
use super::{Ctx, Kernel, Reclaimer};
use crate::lists::Lru;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::{SWAPPED, Word};
use crate::vmstat::Item;
use homenode_core::kernel::KernelVersion;
use homenode_core::tiering::reclaim::{
    Kswapd, ListFacts, LruCosts, Reference, Round, SWAP_CLUSTER_MAX, Shares, after_goal,
    check_references, inactive_is_low, scan_goal, shares, stays_active,
};
use homenode_core::tiering::watermarks::is_balanced;
use homenode_core::units::Pages;

/// A node's kswapd, and what reclaim remembers of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct KswapdState {
    pub(crate) state: Kswapd,
    pub(crate) costs: LruCosts,
    /// Dropped pages of files came back lately: their active list must shrink.
    file_refaults: bool,
    round: Round,
    pass: Option<Pass>,
}

/// One pass over the lists of a node, cut into batches.
#[derive(Clone, Debug)]
struct Pass {
    goal: u64,
    targets: [u64; 4],
    left: [u64; 4],
    /// The goal was reached, and what is left was cut.
    cut: bool,
    scanned: u64,
    reclaimed: u64,
    started_anon: bool,
}

impl Kernel {
    /// Whether kswapd would find nothing to do.
    pub(crate) fn balanced(&self, node: usize) -> bool {
        is_balanced(self.zones_of(node), self.model.margin, self.wake_facts(node))
    }
    pub(crate) fn kswapd_start(&mut self, node: usize) {
        self.stat.add(node, Item::Pageoutrun, 1);
        let k = &mut self.kswapd[node];
        k.state.running = true;
        k.round = Round::default();
        k.pass = None;
    }
    /// The nap is over: on with it if the node is out of balance again.
    pub(crate) fn kswapd_recheck(&mut self, node: usize) {
        self.wake_kswapd(node);
    }
    /// Runs a node's kswapd until its clock reaches `end`; true once it goes to sleep.
    pub(crate) fn kswapd_run(&mut self, ctx: &mut Ctx, node: usize, end: u64) -> bool {
        while ctx.clock < end {
            if self.kswapd[node].pass.is_none() {
                if self.balanced(node) {
                    return self.kswapd_sleep(node);
                }
                // Looking at the node and its lists is not free.
                ctx.clock += self.times.reclaim_page;
                let priority = self.kswapd[node].round.priority;
                let pass = self.begin_pass(ctx, node, priority, Reclaimer::Kswapd);
                self.kswapd[node].pass = Some(pass);
            }
            let mut pass = self.kswapd[node].pass.take().expect("begun above");
            if self.step(ctx, node, &mut pass, Reclaimer::Kswapd) {
                self.kswapd[node].pass = Some(pass);
                continue;
            }
            let balanced = self.balanced(node);
            let k = &mut self.kswapd[node];
            let (goal, scanned) = (Pages(pass.goal), Pages(pass.scanned));
            if k.round.pass_done(goal, scanned, Pages(pass.reclaimed), balanced) {
                continue;
            }
            let round = k.round;
            k.state.round_done(&round);
            k.round = Round::default();
            if balanced || k.state.is_hopeless() {
                return self.kswapd_sleep(node);
            }
        }
        false
    }
    fn kswapd_sleep(&mut self, node: usize) -> bool {
        let k = &mut self.kswapd[node];
        k.state.running = false;
        k.pass = None;
        k.file_refaults = false;
        true
    }

    fn facts(&self, node: usize) -> ListFacts {
        let n = &self.memory.nodes[node];
        let marks = n.zones.iter().map(|&z| self.marks[z].high);
        ListFacts {
            can_reclaim_anon: self.swap_free > 0
                || (self.knobs.demotion_enabled && !self.demote_any[node].is_empty()),
            inactive_anon: Pages(n.on(Lru::InactiveAnon)),
            active_anon: Pages(n.on(Lru::ActiveAnon)),
            inactive_file: Pages(n.on(Lru::InactiveFile)),
            active_file: Pages(n.on(Lru::ActiveFile)),
            free: Pages(self.memory.free_of(node)),
            sum_high: marks.sum(),
            file_refaults: self.kswapd[node].file_refaults,
            swappiness: self.knobs.swappiness,
            costs: self.kswapd[node].costs,
        }
    }
    fn begin_pass(&mut self, ctx: &mut Ctx, node: usize, priority: u32, who: Reclaimer) -> Pass {
        let facts = self.facts(node);
        if who == Reclaimer::Kswapd
            && facts.can_reclaim_anon
            && inactive_is_low(facts.inactive_anon, facts.active_anon)
        {
            self.shrink_active(ctx, node, Lru::ActiveAnon, SWAP_CLUSTER_MAX);
        }
        let share: Shares = shares(&facts, priority);
        let left = Lru::ALL.map(|l| {
            let size = Pages(self.memory.nodes[node].on(l));
            share.target(l.file(), size, priority).0
        });
        let zones = self.memory.nodes[node].zones.iter();
        let goal = scan_goal(zones.map(|&z| self.marks[z].high)).0;
        let started_anon = facts.can_reclaim_anon;
        Pass { goal, targets: left, left, cut: false, scanned: 0, reclaimed: 0, started_anon }
    }
    /// One batch of a pass; false when the pass is over.
    fn step(&mut self, ctx: &mut Ctx, node: usize, pass: &mut Pass, who: Reclaimer) -> bool {
        // The lists take turns: whichever has most left to do goes next.
        let Some(lru) = Lru::ALL
            .into_iter()
            .filter(|&l| pass.left[l as usize] > 0)
            .max_by_key(|&l| (pass.left[l as usize], std::cmp::Reverse(l)))
        else {
            return false;
        };
        let batch = pass.left[lru as usize].min(SWAP_CLUSTER_MAX);
        pass.left[lru as usize] -= batch;
        if lru.active() {
            let inactive = Pages(self.memory.nodes[node].on(Lru::of(lru.file(), false)));
            let active = Pages(self.memory.nodes[node].on(lru));
            let refaults = lru.file() && self.kswapd[node].file_refaults;
            if inactive_is_low(inactive, active) || refaults {
                self.shrink_active(ctx, node, lru, batch);
            }
        } else {
            let (scanned, reclaimed) = self.shrink_inactive(ctx, node, lru, batch, who);
            pass.scanned += scanned;
            pass.reclaimed += reclaimed;
            if scanned == 0 {
                pass.left[lru as usize] = 0;
            }
        }
        debug_assert!(pass.started_anon || lru.file());
        // Before 6.1 the rest was scanned once it was cut.
        let ends = !pass.cut || self.knobs.version >= KernelVersion::V6_1;
        if who == Reclaimer::Kswapd && pass.reclaimed >= pass.goal && ends {
            pass.left = after_goal(pass.targets.map(Pages), pass.left.map(Pages)).map(|p| p.0);
            pass.cut = true;
        }
        true
    }
    /// A whole pass over a node, for direct reclaim; pages reclaimed.
    pub(super) fn shrink_node(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        priority: u32,
        who: Reclaimer,
    ) -> u64 {
        let mut pass = self.begin_pass(ctx, node, priority, who);
        while self.step(ctx, node, &mut pass, who) {
            if pass.reclaimed >= SWAP_CLUSTER_MAX && who == Reclaimer::Direct {
                break;
            }
        }
        if pass.reclaimed > 0 {
            self.kswapd[node].state.note_progress();
        }
        pass.reclaimed
    }

    /// Moves pages from the tail of an active list to the inactive one.
    fn shrink_active(&mut self, ctx: &mut Ctx, node: usize, lru: Lru, batch: u64) {
        let mut looked = 0;
        while looked < batch {
            let Some((item, _)) = self.memory.pop_tail(node, lru) else { break };
            let n = self.memory.pages_of(item);
            looked += n;
            ctx.clock += self.times.reclaim_page;
            self.stat.add(node, Item::Pgrefill, n);
            // Accessed bits are looked at, and cleared, for pages of files only: an
            // anonymous page keeps its bit and shows it at the inactive tail.
            let accessed = if lru.file() { self.memory.test_and_clear_young(item) } else { 0 };
            if stays_active(accessed, lru.file() && self.executable(item)) {
                self.memory.enter_list(item, node, lru);
            } else {
                self.stat.add(node, Item::Pgdeactivate, n);
                self.memory.enter_list(item, node, Lru::of(lru.file(), false));
            }
        }
    }
    fn executable(&self, item: u32) -> bool {
        let page = if item & FRAME_ITEM == 0 {
            item
        } else {
            match self.memory.mappers(item ^ FRAME_ITEM).first() {
                Some(&p) => p,
                None => return false,
            }
        };
        let Ok(at) = self.place(page) else { return false };
        self.space(at.space).vmas[at.vma].kind.executable
    }

    /// Looks at pages at the tail of an inactive list: scanned and reclaimed.
    fn shrink_inactive(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        lru: Lru,
        batch: u64,
        who: Reclaimer,
    ) -> (u64, u64) {
        let (mut scanned, mut reclaimed, mut written) = (0, 0, 0);
        while scanned < batch {
            let Some((item, referenced)) = self.memory.pop_tail(node, lru) else { break };
            let n = self.memory.pages_of(item);
            scanned += n;
            ctx.clock += self.times.reclaim_page;
            let accessed = self.memory.test_and_clear_young(item);
            let executable = lru.file() && accessed > 0 && self.executable(item);
            match check_references(accessed, referenced, executable) {
                Reference::Activate => {
                    self.stat.add(node, Item::Pgactivate, n);
                    self.memory.enter_list(item, node, Lru::of(lru.file(), true));
                }
                Reference::Keep => self.memory.enter_list_as(item, node, lru, true),
                Reference::Cold => {
                    if self.demote(ctx, item, node, n, who) {
                        reclaimed += n;
                    } else if let Some(wrote) = self.evict(ctx, item, node) {
                        // Of a huge page, one base page: the others are back on the list.
                        reclaimed += 1;
                        written += wrote;
                    } else {
                        // Nowhere to go: round again, as a page that can't be freed does.
                        self.memory.enter_list(item, node, lru);
                    }
                }
            }
        }
        let (scan, steal) = match who {
            Reclaimer::Kswapd => (Item::PgscanKswapd, Item::PgstealKswapd),
            Reclaimer::Direct => (Item::PgscanDirect, Item::PgstealDirect),
        };
        self.stat.add(node, scan, scanned);
        self.stat.add(node, steal, reclaimed);
        let lists = Pages(Lru::ALL.into_iter().map(|l| self.memory.nodes[node].on(l)).sum());
        let version = self.knobs.version;
        self.kswapd[node].costs.note(lru.file(), written, scanned - reclaimed, lists, version);
        (scanned, reclaimed)
    }
    /// Moves a cold page to a slower node, if demotion is on and there is room.
    fn demote(&mut self, ctx: &mut Ctx, item: u32, node: usize, n: u64, who: Reclaimer) -> bool {
        if !self.knobs.demotion_enabled || self.demote_any[node].is_empty() {
            return false;
        }
        if self.move_fails() {
            self.stat.add(node, Item::PgmigrateFail, n);
            return false;
        }
        // The preferred targets first: among several one is drawn for each batch.
        let mut target = None;
        let first = self.demote_to[node].len();
        let draw = if first > 1 { self.faults.below(first as u64) as usize } else { 0 };
        for i in 0..first {
            let to = self.demote_to[node][(draw + i) % first];
            target = target.or_else(|| self.take_quietly(to, n, Mark::Min));
            if target.is_some() {
                self.wake_below_low(to);
                break;
            }
            self.wake_kswapd(to);
        }
        for i in 0..self.demote_any[node].len() {
            if target.is_some() {
                break;
            }
            let to = self.demote_any[node][i];
            target = self.take_quietly(to, n, Mark::Min);
        }
        let Some(zone) = target else {
            self.stat.add(node, Item::PgmigrateFail, n);
            return false;
        };
        // A page that changes tier forgets who used it (SPEC §B.4).
        let stamp = if self.knobs.numa_balancing.tiering() {
            crate::page::STAMP_UNSET
        } else {
            self.memory.word(item).stamp()
        };
        self.move_item(ctx, item, zone, false, stamp, Entries::Accessible { read_only: false });
        let counter = match who {
            Reclaimer::Kswapd => Item::PgdemoteKswapd,
            Reclaimer::Direct => Item::PgdemoteDirect,
        };
        self.stat.add(node, counter, n);
        true
    }
    fn wake_below_low(&mut self, node: usize) {
        let low = self.memory.nodes[node]
            .zones
            .iter()
            .all(|&z| self.memory.zones[z].free <= self.keep(z, Mark::Low));
        if low {
            self.wake_kswapd(node);
        }
    }
    /// Drops a clean page of a file, or writes a page to the swap device; `Some`
    /// with the pages written if it is gone.
    fn evict(&mut self, ctx: &mut Ctx, item: u32, node: usize) -> Option<u64> {
        let file = self.memory.is_file(item);
        if !file && self.swap_free == 0 {
            return None;
        }
        if self.memory.pages_of(item) > 1 {
            // Base pages from here on; the others of the huge page go back to the list.
            self.memory.enter_list(item, node, Lru::InactiveAnon);
            self.split(item);
            self.memory.leave_list(item);
        }
        let written;
        if item & FRAME_ITEM != 0 {
            let frame = item ^ FRAME_ITEM;
            let pages = self.memory.mappers(frame).to_vec();
            if !file && self.swap_free < pages.len() as u64 {
                return None;
            }
            let zone = self.memory.word(item).zone();
            let dirty = self.memory.is_dirty(item);
            let (held, merged) = (self.memory.content(item), self.memory.is_merged(frame));
            for (i, &p) in pages.iter().enumerate() {
                self.memory.unmap_frame(frame, p);
                self.gone(p, file);
                if let Some(c) = &mut self.memory.contents {
                    c.swapped(p, held, merged && i > 0);
                }
            }
            let at = self.memory.node_of(zone);
            self.stat.add(at, Item::Pgfree, 1);
            written = u64::from(!file || dirty);
        } else {
            let w = Word(self.memory.words[item as usize]);
            written = u64::from(!file || self.memory.is_dirty(item));
            self.give(w.zone(), 1);
            self.gone(item, file);
        }
        if !file {
            self.stat.add(node, Item::Pswpout, 1);
        }
        ctx.clock += written * self.times.swap_out;
        Some(written)
    }
    /// An entry's page is on the device now.
    fn gone(&mut self, page: u32, file: bool) {
        self.memory.words[page as usize] = SWAPPED;
        if !file {
            self.swap_free -= 1;
        }
        let space = self.memory.blocks[(page / BLOCK) as usize].space as usize - 1;
        self.space_mut(space).rss -= 1;
    }
    /// A copy of an entry holds a slot of the device too: one of its own while there
    /// are some, so that the count is right where both sides read their pages back;
    /// else the same one, as the kernel's count of users has it.
    pub(super) fn hold_slot_again(&mut self) {
        if self.swap_free > 0 {
            self.swap_free -= 1;
        } else {
            self.swap_shared += 1;
        }
    }
    /// An entry on the device is gone.
    pub(super) fn drop_slot(&mut self) {
        if self.swap_shared > 0 {
            self.swap_shared -= 1;
        } else {
            self.swap_free += 1;
        }
    }
    /// A page came back from the device: reclaim of its kind has cost something.
    pub(super) fn note_refault(&mut self, node: usize, file: bool) {
        let lists = Pages(Lru::ALL.into_iter().map(|l| self.memory.nodes[node].on(l)).sum());
        let version = self.knobs.version;
        self.kswapd[node].costs.note(file, 1, 0, lists, version);
        self.kswapd[node].file_refaults |= file;
    }
}
