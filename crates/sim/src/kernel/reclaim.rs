//! kswapd and direct reclaim, and passes over active and inactive lists (specs/tiering.md#rounds);
//! passes over generations are in `generations`.

use super::alloc::Mark;
use super::generations::GenPass;
use super::hooks::page_at;
use super::huge::Split;
use super::migrate::{Demotion, Entries};
use super::numa::zones_of;
use super::{Cost, Ctx, Kernel, Reclaimer};
use crate::lists::{Listed, Lru};
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::{SWAPPED, Word};
use crate::vmstat::Item;
use homenode_core::hooks::InactivePage;
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::Swap;
use homenode_core::tiering::mglru::{Arrives, Filters, Flags, Generations, Shadow};
use homenode_core::tiering::reclaim::{
    Budget, DEF_PRIORITY, DirectRuns, Kswapd, ListFacts, LruCosts, MayDeactivate, Reference, Round,
    SWAP_CLUSTER_MAX, scan_goal, shares, stays_active, trims_cache,
};
use homenode_core::tiering::watermarks::is_balanced;
use homenode_core::units::{HUGE_PAGES, Pages};

/// A node's kswapd, and what reclaim remembers of the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct KswapdState {
    pub(crate) state: Kswapd,
    pub(crate) costs: LruCosts,
    /// Anonymous pages, and pages of files, came back since a round or a direct reclaim
    /// ended: their active list must shrink.
    refaults: [bool; 2],
    round: Round,
    pass: Option<Pass>,
    /// The most pages that somebody who has woken it since its last round began wants at once.
    asked: u64,
    /// The node's generations: their numbers stay while MGLRU is off.
    pub(crate) generations: Generations,
    /// Page tables that a walk on behalf of the node reads.
    pub(super) filters: Filters,
}

impl KswapdState {
    pub(super) fn at_boot(now_ms: u64) -> Self {
        Self { generations: Generations::new(now_ms), ..Self::default() }
    }
    /// Somebody wants so many pages at once.
    pub(super) fn asks(&mut self, pages: u64) {
        self.asked = self.asked.max(pages);
    }
    /// At how many reclaimed pages a pass of generations ends, and whether it may end early.
    pub(super) fn ends(&self) -> (Pages, bool) {
        (self.round.gap(), self.round.wants.0 == 1)
    }
    pub(super) fn priority(&self) -> u32 {
        self.round.priority
    }
    pub(super) fn set_priority(&mut self, priority: u32) {
        self.round.priority = priority;
    }
    /// Whether it is to begin a pass next.
    #[cfg(test)]
    pub(crate) fn is_between_passes(&self) -> bool {
        self.pass.is_none()
    }
    /// The pages are on other lists now.
    pub(super) fn drop_pass(&mut self) {
        self.pass = None;
    }
}

/// One pass over a node, cut into batches.
#[derive(Clone, Debug)]
enum Pass {
    Lists(ListPass),
    Gens(GenPass),
}

/// One pass over the lists of a node.
#[derive(Clone, Debug)]
struct ListPass {
    who: Reclaimer,
    goal: Pages,
    budget: Budget,
    may: MayDeactivate,
    /// It goes for files alone, since they are plentiful.
    cache_trim: bool,
    /// It had budget for an active list that may not shrink.
    found_frozen: bool,
    scanned: u64,
    reclaimed: u64,
}

/// What a reclaimer's batch came to, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    scanned: u64,
    reclaimed: u64,
    written: u64,
}

impl Kernel {
    /// Whether kswapd would find nothing to do for one who wants so many pages at once.
    pub(crate) fn balanced_for(&self, node: usize, wants: Pages) -> bool {
        let (margin, wake) = (self.model.margin, self.wake_facts(node));
        let zones = zones_of(&self.memory, &self.marks, node);
        is_balanced(zones, wants, |marks| self.inside.rules.aim(marks, margin, wake))
    }
    pub(crate) fn kswapd_start(&mut self, node: usize) {
        self.kswapd[node].state.running = true;
        self.begin_round(node);
    }
    fn begin_round(&mut self, node: usize) {
        self.stat.add(node, Item::Pageoutrun, 1);
        let k = &mut self.kswapd[node];
        k.round = Round::asked_for(Pages(std::mem::take(&mut k.asked).max(1)));
        k.pass = None;
    }
    /// Whether kswapd sleeps when a round is over.
    ///
    /// Source: specs/tiering.md#kswapd.
    fn may_sleep(&self, node: usize) -> bool {
        let k = &self.kswapd[node];
        // Who has given in sleeps on a single page; what others ask for now is for when they wake it.
        let wants = if k.round.has_given_in() { 1 } else { k.asked.max(1) };
        k.state.is_hopeless() || self.balanced_for(node, Pages(wants))
    }
    /// Runs a node's kswapd until its clock reaches `end`; true once it goes to sleep.
    pub(crate) fn kswapd_run(&mut self, ctx: &mut Ctx, node: usize, end: u64) -> bool {
        while ctx.clock < end {
            if self.kswapd[node].pass.is_none() {
                if self.balanced_for(node, self.kswapd[node].round.wants) {
                    if self.may_sleep(node) {
                        return self.kswapd_sleep(node);
                    }
                    self.begin_round(node);
                }
                // Looking at the node and its lists is not free.
                ctx.clock += self.prices[Cost::ReclaimPage];
                let pass = if self.memory.has_generations() {
                    let goal = self.kswapd_goal(node);
                    self.before_gen_pass(ctx, node, goal);
                    let goal = (self.kswapd[node].priority(), goal);
                    Pass::Gens(self.begin_gen_pass(node, Reclaimer::Kswapd, goal, 0))
                } else {
                    if self.facts(node).ages_anon() {
                        self.shrink_active(ctx, node, Lru::ActiveAnon, SWAP_CLUSTER_MAX);
                    }
                    let round = self.kswapd[node].round;
                    let (who, spares_anon) = (Reclaimer::Kswapd, !round.no_cache_trim);
                    Pass::Lists(self.begin_pass(node, round.priority, who, false, spares_anon))
                };
                self.kswapd[node].pass = Some(pass);
            }
            let mut pass = self.kswapd[node].pass.take().expect("begun above");
            let goes_on = match &mut pass {
                Pass::Lists(p) => self.step(ctx, node, p),
                Pass::Gens(p) => self.gen_step(ctx, node, p, end),
            };
            if goes_on {
                self.kswapd[node].pass = Some(pass);
                continue;
            }
            let version = self.knobs.version;
            let k = &mut self.kswapd[node];
            let (goal, (scanned, reclaimed, cache_trim)) = match &pass {
                Pass::Lists(p) => (p.goal, (p.scanned, p.reclaimed, p.cache_trim)),
                Pass::Gens(p) => (p.goal, (p.scanned, p.reclaimed, false)),
            };
            let (scanned, reclaimed) = (Pages(scanned), Pages(reclaimed));
            if k.round.pass_done(goal, scanned, reclaimed, cache_trim, version) {
                continue;
            }
            let round = k.round;
            k.state.round_done(&round);
            k.refaults = [false; 2];
            if self.may_sleep(node) {
                return self.kswapd_sleep(node);
            }
            self.begin_round(node);
        }
        false
    }
    fn kswapd_sleep(&mut self, node: usize) -> bool {
        let k = &mut self.kswapd[node];
        k.state.running = false;
        k.pass = None;
        k.refaults = [false; 2];
        true
    }

    fn facts(&self, node: usize) -> ListFacts {
        let n = &self.memory.nodes[node];
        let marks = n.zones.iter().map(|&z| self.marks[z].high);
        let demotes = self.knobs.demotion_enabled && !self.demote_any[node].is_empty();
        let [anon_refaults, file_refaults] = self.kswapd[node].refaults;
        ListFacts {
            can_reclaim_anon: self.swap_free > 0 || demotes,
            can_age_anon: demotes || self.model.swap != Swap::None,
            inactive_anon: Pages(n.on(Lru::InactiveAnon)),
            active_anon: Pages(n.on(Lru::ActiveAnon)),
            inactive_file: Pages(n.on(Lru::InactiveFile)),
            active_file: Pages(n.on(Lru::ActiveFile)),
            free: Pages(self.memory.free_of(node)),
            sum_high: marks.sum(),
            anon_refaults,
            file_refaults,
            swappiness: self.knobs.swappiness,
            costs: self.kswapd[node].costs,
        }
    }
    fn begin_pass(
        &self,
        node: usize,
        priority: u32,
        who: Reclaimer,
        forced: bool,
        spares_anon: bool,
    ) -> ListPass {
        let facts = self.facts(node);
        let may = if forced { MayDeactivate::FORCED } else { MayDeactivate::new(&facts) };
        let cache_trim = trims_cache(&facts, priority, may, spares_anon);
        let share = shares(&facts, priority, may, cache_trim);
        let targets = Lru::ALL.map(|l| {
            let size = Pages(self.memory.nodes[node].on(l));
            share.target(l.file(), size, priority)
        });
        let goal = match who {
            Reclaimer::Kswapd => self.kswapd_goal(node),
            Reclaimer::Direct | Reclaimer::Khugepaged => Pages(SWAP_CLUSTER_MAX),
        };
        let kswapd = who == Reclaimer::Kswapd;
        let budget = Budget::new(targets, goal, kswapd, priority, self.knobs.version);
        ListPass {
            who,
            goal,
            budget,
            may,
            cache_trim,
            found_frozen: false,
            scanned: 0,
            reclaimed: 0,
        }
    }
    fn kswapd_goal(&self, node: usize) -> Pages {
        scan_goal(self.memory.nodes[node].zones.iter().map(|&z| self.marks[z].high))
    }
    /// One batch of a pass; false when the pass is over.
    fn step(&mut self, ctx: &mut Ctx, node: usize, pass: &mut ListPass) -> bool {
        let Some((lru, Pages(batch))) = pass.budget.next(Pages(pass.reclaimed)) else {
            // Also where nothing anonymous was looked at: their lists are kept in proportion.
            if self.facts(node).ages_anon() {
                self.shrink_active(ctx, node, Lru::ActiveAnon, SWAP_CLUSTER_MAX);
            }
            if pass.reclaimed > 0 {
                self.kswapd[node].state.note_progress();
            }
            return false;
        };
        if !lru.active() {
            let done = self.shrink_inactive(ctx, node, lru, batch, pass.who);
            pass.scanned += done.scanned;
            pass.reclaimed += done.reclaimed;
        } else if pass.may.of(lru) {
            self.shrink_active(ctx, node, lru, batch);
        } else {
            pass.found_frozen = true;
        }
        true
    }
    /// Reclaims on behalf of a task that waits for memory; pages reclaimed.
    pub(super) fn direct_reclaim(&mut self, ctx: &mut Ctx, order: &[usize], who: Reclaimer) -> u64 {
        let mut runs = DirectRuns::default();
        let mut found_frozen = false;
        loop {
            self.stat.add(ctx.node, Item::Allocstall, 1);
            let mut reclaimed = 0;
            for priority in (0..=DEF_PRIORITY).rev() {
                for &node in order {
                    if self.memory.has_generations() {
                        reclaimed = self.direct_gen_pass(ctx, node, (priority, who), reclaimed);
                        continue;
                    }
                    let mut pass = self.begin_pass(node, priority, who, runs.forced, true);
                    while self.step(ctx, node, &mut pass) {}
                    reclaimed += pass.reclaimed;
                    found_frozen |= pass.found_frozen;
                }
                if reclaimed >= SWAP_CLUSTER_MAX {
                    break;
                }
            }
            for &node in order {
                self.kswapd[node].refaults = [false; 2];
            }
            if reclaimed > 0 || !runs.again(found_frozen, self.knobs.version) {
                return reclaimed;
            }
        }
    }

    /// Moves pages from the tail of an active list to the inactive one.
    fn shrink_active(&mut self, ctx: &mut Ctx, node: usize, lru: Lru, batch: u64) {
        let (mut looked, mut stayed) = (0, 0);
        // What goes back to this list meanwhile isn't looked at twice.
        for _ in 0..self.memory.nodes[node].members_on(lru) {
            if looked >= batch {
                break;
            }
            let Some((item, referenced)) = self.memory.pop_tail(node, lru) else { break };
            let n = self.memory.pages_of(item);
            looked += n;
            ctx.clock += self.prices[Cost::ReclaimPage];
            self.stat.add(node, Item::Pgrefill, n);
            let accessed = self.memory.test_and_clear_young(item);
            self.flush_if_huge(item, accessed);
            let stays = stays_active(accessed, lru.file() && self.executable(item));
            if stays {
                stayed += n;
            } else {
                self.stat.add(node, Item::Pgdeactivate, n);
            }
            let to = Lru::of(lru.file(), stays);
            self.memory.enter_list(item, node, Listed::with(to, referenced));
        }
        if stayed > 0 {
            self.note_cost(node, lru.file(), 0, stayed);
        }
    }
    fn note_cost(&mut self, node: usize, file: bool, nr_io: u64, nr_rotated: u64) {
        let lists = Pages(Lru::ALL.into_iter().map(|l| self.memory.nodes[node].on(l)).sum());
        self.kswapd[node].costs.note(file, nr_io, nr_rotated, lists, self.knobs.version);
    }
    pub(super) fn executable(&self, item: u32) -> bool {
        let Some(page) = self.memory.first_mapper(item) else { return false };
        let Ok(at) = self.place(page) else { return false };
        self.space(at.space).vmas[at.vma].kind.executable
    }

    /// Looks at pages at the tail of an inactive list.
    fn shrink_inactive(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        lru: Lru,
        batch: u64,
        who: Reclaimer,
    ) -> Batch {
        let mut done = Batch::default();
        let mut demotion = Demotion::default();
        // What goes back to this list meanwhile isn't looked at twice.
        for _ in 0..self.memory.nodes[node].members_on(lru) {
            if done.scanned >= batch {
                break;
            }
            let Some((item, referenced)) = self.memory.pop_tail(node, lru) else { break };
            let n = self.memory.pages_of(item);
            done.scanned += n;
            ctx.clock += self.prices[Cost::ReclaimPage];
            let accessed = self.memory.test_and_clear_young(item);
            self.flush_if_huge(item, accessed);
            let active = Lru::of(lru.file(), true);
            let page = InactivePage {
                page: page_at(&self.memory, item),
                file: lru.file(),
                nr_pages: Pages(n),
                nr_accessed: accessed,
                referenced,
                executable_file: lru.file() && accessed > 0 && self.executable(item),
            };
            let verdict = self.inside.rules.inactive(&page);
            match verdict {
                Reference::Activate => {
                    self.stat.add(node, Item::Pgactivate, n);
                    self.memory.enter_list(item, node, Listed::with(active, true));
                }
                Reference::Keep => self.memory.enter_list(item, node, Listed::with(lru, true)),
                Reference::Cold | Reference::Drop => {
                    let demotes = verdict == Reference::Cold;
                    let mut left = vec![item];
                    if demotes {
                        left = self.demote(ctx, item, node, n, who, &mut demotion);
                        done.reclaimed += n - self.pages_in(&left);
                    }
                    for item in self.for_swap(left) {
                        let n = self.memory.pages_of(item);
                        if let Some(wrote) = self.evict(ctx, item, node, Flags::default()) {
                            done.reclaimed += n;
                            done.written += wrote;
                        } else {
                            // What can go nowhere is taken for a page in use.
                            self.stat.add(node, Item::Pgactivate, n);
                            self.memory.enter_list(item, node, Listed::with(active, false));
                        }
                    }
                }
            }
        }
        self.end_batch();
        let [scan, steal, _] = who.items(self.knobs.version);
        self.stat.add(node, scan, done.scanned);
        self.stat.add(node, steal, done.reclaimed);
        self.note_cost(node, lru.file(), done.written, done.scanned - done.reclaimed);
        done
    }
    /// Moves a cold page to a slower node, if demotion is on and there is room; what of it is
    /// left, isolated. A huge page for which there is no room is split, and its base pages are
    /// tried in turn.
    ///
    /// Source: specs/huge-pages.md#demotion.
    pub(super) fn demote(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        node: usize,
        n: u64,
        who: Reclaimer,
        batch: &mut Demotion,
    ) -> Vec<u32> {
        let off = !self.knobs.demotion_enabled || self.demote_any[node].is_empty();
        if off || batch.no_room {
            return vec![item];
        }
        if self.move_fails() {
            self.not_moved(node, n);
            return vec![item];
        }
        if self.demote_whole(ctx, item, node, n, who, batch) {
            return Vec::new();
        }
        if n == 1 {
            // A base page ends the batch.
            self.stat.add(node, Item::PgmigrateFail, 1);
            batch.no_room = true;
            return vec![item];
        }
        self.stat.add(node, Item::ThpMigrationFail, 1);
        self.stat.add(node, Item::ThpMigrationSplit, 1);
        self.split(item, Split::Page);
        let mut left = Vec::new();
        let mut parts = item..item + BLOCK;
        for page in parts.by_ref() {
            if self.demote_whole(ctx, page, node, 1, who, batch) {
                continue;
            }
            // The rest of them isn't tried either; what else is in the batch is.
            self.stat.add(node, Item::PgmigrateFail, 1);
            left.push(page);
            break;
        }
        left.extend(parts);
        left
    }
    /// Moves an isolated item to a slower node as it is; whether there was room.
    fn demote_whole(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        node: usize,
        n: u64,
        who: Reclaimer,
        batch: &mut Demotion,
    ) -> bool {
        // The preferred targets first: among several one is drawn for each batch.
        let mut target = None;
        let first = self.demote_to[node].len();
        let draw = *batch.draw.get_or_insert_with(|| {
            if first > 1 { self.faults.below(first as u64) as usize } else { 0 }
        });
        for i in 0..first {
            let to = self.demote_to[node][(draw + i) % first];
            target = target.or_else(|| self.take_quietly(to, n, Mark::Min));
            // A huge page wakes nobody: the allocation may not.
            if n > 1 {
                continue;
            }
            if target.is_some() {
                self.wake_below_low(to);
                break;
            }
            self.wake_kswapd(to);
        }
        let target = target.or_else(|| {
            let mut any = 0..self.demote_any[node].len();
            any.find_map(|i| self.take_quietly(self.demote_any[node][i], n, Mark::Min))
        });
        let Some(zone) = target else { return false };
        // A page that changes tier forgets who used it (specs/tiering.md#access-time).
        let stamp = if self.knobs.numa_balancing.tiering() {
            crate::page::STAMP_UNSET
        } else {
            self.memory.word(item).stamp()
        };
        let (file, to) = (self.memory.is_file(item), self.memory.node_of(zone));
        let at = self.arrival(file, to, Arrives::Demoted, None);
        self.move_item(ctx, item, zone, at, stamp, Entries::Accessible { read_only: false });
        let [.., counter] = who.items(self.knobs.version);
        self.stat.add(node, counter, n);
        true
    }
    pub(super) fn pages_in(&self, items: &[u32]) -> u64 {
        items.iter().map(|&item| self.memory.pages_of(item)).sum()
    }
    /// Isolated items as the swap device may take them: a huge page that doesn't fit is split,
    /// also where there is no device.
    ///
    /// Source: specs/huge-pages.md#swap. Where Linux does otherwise: specs/exceptions/huge-reclaim.md.
    pub(super) fn for_swap(&mut self, items: Vec<u32>) -> Vec<u32> {
        let mut parts = Vec::with_capacity(items.len());
        for item in items {
            let whole = self.swap_free >= HUGE_PAGES && self.knobs.version >= KernelVersion::V4_15;
            if self.memory.pages_of(item) == 1 || whole {
                parts.push(item);
            } else {
                let node = self.memory.node_of(self.memory.word(item).zone());
                self.stat.add(node, Item::ThpSwpoutFallback, 1);
                self.split(item, Split::Page);
                parts.extend(item..item + BLOCK);
            }
        }
        parts
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
    pub(super) fn evict(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        node: usize,
        flags: Flags,
    ) -> Option<u64> {
        let file = self.memory.is_file(item);
        if !file && self.swap_free == 0 {
            return None;
        }
        let n = self.memory.pages_of(item);
        let written;
        if n > 1 {
            self.unmap_to_drop(item, true);
            // Its entries are base entries from here on.
            let zone = self.memory.word(item).zone();
            self.memory.blocks[(item / BLOCK) as usize].huge = false;
            self.memory.blocks[(item / BLOCK) as usize].table = true;
            self.stat.add(node, Item::ThpSplitPmd, 1);
            self.stat.add(node, Item::ThpSwpout, 1);
            self.give(zone, n);
            let left = self.leaves_behind(node, file, flags, n);
            for page in item..item + BLOCK {
                self.gone(page, file, zone, left);
            }
            self.memory.forget_young(item);
            written = n;
        } else if item & FRAME_ITEM != 0 {
            let frame = item ^ FRAME_ITEM;
            let pages = self.memory.mappers(frame).to_vec();
            if !file && self.swap_free < pages.len() as u64 {
                return None;
            }
            let zone = self.memory.word(item).zone();
            let dirty = self.memory.is_dirty(item);
            self.unmap_to_drop(item, !file || dirty);
            let left = self.leaves_behind(node, file, flags, 1);
            let (held, merged) = (self.memory.content(item), self.memory.is_merged(frame));
            for (i, &p) in pages.iter().enumerate() {
                self.memory.unmap_frame(frame, p);
                self.gone(p, file, zone, left);
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
            self.unmap_to_drop(item, written > 0);
            self.give(w.zone(), 1);
            let left = self.leaves_behind(node, file, flags, 1);
            self.gone(item, file, w.zone(), left);
        }
        if !file {
            self.stat.add(node, Item::Pswpout, n);
        }
        ctx.clock += written * self.prices[Cost::SwapOut];
        Some(written)
    }
    /// An entry's page is on the device now.
    fn gone(&mut self, page: u32, file: bool, zone: usize, left: Option<Shadow>) {
        let word = left.map_or(Word(SWAPPED), |shadow| Word::left(zone, shadow));
        self.memory.words[page as usize] = word.0;
        if !file {
            self.swap_free -= 1;
        }
        let space = self.space_of(page);
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
        self.note_cost(node, file, 1, 0);
        self.kswapd[node].refaults[usize::from(file)] = true;
    }
}
