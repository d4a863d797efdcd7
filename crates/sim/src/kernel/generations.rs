//! kswapd and direct reclaim on generations, as MGLRU has them (specs/mglru.md).
//!
//! ```text
//!  pass ──▶ step? ──age──▶ walk: page tables of processes, table by table ──▶ a new newest
//!             │
//!             └─evict──▶ batch: sort, isolate ──▶ advance ──▶ test each ──▶ demote, evict, keep
//!                                                               │ used
//!                                                               └──▶ look around
//! ```
//!
//! What a page was looked at for is decided by the core's rules; here stand the tables, the
//! lists and who pays: kswapd, or the task that reclaims.

use super::hooks::page_at;
use super::migrate::Demotion;
use super::numa::zones_of;
use super::{Cost, Ctx, Kernel, Reclaimer};
use crate::lists::{ListAt, Listed, Lru, Place, Ranks};
use crate::memory::{BLOCK, FRAME_ITEM, Lifts, MemoryError};
use crate::page::Word;
use crate::space::Vma;
use crate::vmstat::Item;
use homenode_core::hooks::InactivePage;
use homenode_core::tiering::mglru::{
    self, Arrives, Choice, Emptied, Facts, Flags, Generations, Shadow, Sorted, Step, Used,
};
use homenode_core::tiering::reclaim::{DEF_PRIORITY, Reference, SWAP_CLUSTER_MAX};
use homenode_core::tiering::watermarks::mglru_aborts;
use homenode_core::units::{HUGE_PAGES, Pages};

/// So many pages before its turn what stands around one is fetched.
const SOON: usize = 4;
/// Tables that are looked up at a time in a walk.
const TABLES: usize = 64;

/// A pass over the generations of a node, cut into batches.
#[derive(Clone, Debug)]
pub(super) struct GenPass {
    who: Reclaimer,
    pub(super) goal: Pages,
    priority: u32,
    /// Pages that batches have seen.
    seen: u64,
    /// Pages that were tested.
    pub(super) scanned: u64,
    /// Pages reclaimed, by direct reclaim since it began.
    pub(super) reclaimed: u64,
    /// What it may see in all, where that is set when it begins.
    budget: Option<Pages>,
    /// The present walk through page tables.
    walk: Option<Walk>,
    /// It has aged: one batch more.
    last: bool,
}

/// A walk through page tables on behalf of a node: whose, and how far it is.
#[derive(Clone, Debug)]
struct Walk {
    /// Address spaces, and whether the node has not looked at one before.
    spaces: Vec<(usize, bool)>,
    at: usize,
    step: u64,
}

/// A page table's part that one block holds: first page, and which virtual ones are mapped.
struct Part {
    first: u32,
    file: bool,
    ranges: Vec<(u32, u32)>,
}

/// What a batch has isolated.
#[derive(Default)]
struct Isolated {
    items: Vec<(u32, Flags)>,
    /// Pages, as they were looked at.
    seen: u64,
    isolated: u64,
    folios: u64,
}

impl Kernel {
    // ── Where pages are ────────────────────────────────────────────────────────

    /// Pages of a node that count as on a list: of generations the two newest are active.
    pub(crate) fn on(&self, node: usize, lru: Lru) -> u64 {
        if !self.memory.has_generations() {
            return self.memory.nodes[node].on(lru);
        }
        let (g, sizes) = (&self.kswapd[node].generations, self.memory.sizes(node));
        let counts = |index: &usize| g.is_active(*index) == lru.active();
        (0..sizes.len()).filter(counts).map(|i| sizes[i][usize::from(lru.file())]).sum()
    }
    /// Whether an item counts as active.
    pub(super) fn is_active(&self, item: u32) -> bool {
        match self.memory.listed(item).map(|at| at.place) {
            Some(Place::Lru(lru)) => lru.active(),
            Some(Place::Gen(index, _)) => {
                let node = self.memory.node_of(self.memory.word(item).zone());
                self.kswapd[node].generations.is_active(index)
            }
            None => false,
        }
    }
    /// Where an item of a node enters.
    ///
    /// * `came` – where it stood; `None` if it is new.
    pub(crate) fn arrival(
        &self,
        file: bool,
        node: usize,
        how: Arrives,
        came: Option<Listed>,
    ) -> Listed {
        if self.memory.has_generations() {
            let flags = came.map_or(Flags::default(), flags_of);
            return self.enters_generation(file, node, how, flags);
        }
        match how {
            Arrives::HintFault { .. } | Arrives::Moved { .. } => {
                came.unwrap_or(Listed::fresh(file))
            }
            _ => Listed::fresh(file),
        }
    }
    fn enters_generation(&self, file: bool, node: usize, how: Arrives, flags: Flags) -> Listed {
        let g = &self.kswapd[node].generations;
        let entry = g.entry(file, how, flags, self.knobs.version);
        listed(Generations::index(entry.seq), file, entry.flags)
    }

    // ── Switching ──────────────────────────────────────────────────────────────

    /// Makes lists of generations or generations of lists, as the knob has it. Passes that are
    /// under way are over.
    ///
    /// Source: specs/mglru.md#switch.
    pub(crate) fn match_generations(&mut self) -> Result<(), MemoryError> {
        let on = self.knobs.lru_gen.core();
        if on == self.memory.has_generations() {
            return Ok(());
        }
        if on {
            for (node, lru, item, referenced) in self.memory.begin_generations()? {
                let flags = Flags { referenced, workingset: false };
                let how = Arrives::SwitchedOn { active: lru.active() };
                let at = self.enters_generation(lru.file(), node, how, flags);
                self.memory.enter_list(item, node, at);
            }
        } else {
            for (node, at, item) in self.memory.end_generations() {
                let Place::Gen(index, file) = at.place else { continue };
                let active = self.kswapd[node].generations.is_active(index);
                let at = Listed::with(Lru::of(file, active), at.referenced && !active);
                self.memory.enter_list(item, node, at);
            }
        }
        for k in &mut self.kswapd {
            k.drop_pass();
        }
        Ok(())
    }

    // ── Passes ─────────────────────────────────────────────────────────────────

    fn gen_facts(&self, node: usize, priority: u32) -> Facts {
        let demotes = self.wake_facts(node).can_demote;
        let swappiness = mglru::swappiness(self.knobs.swappiness, demotes, Pages(self.swap_free));
        Facts { swappiness, priority, version: self.knobs.version }
    }
    /// What kswapd does before a pass: the priority at which it begins, and who has to die
    /// since nothing is old enough.
    ///
    /// Source: specs/mglru.md#passes, specs/mglru.md#ttl.
    pub(super) fn before_gen_pass(&mut self, ctx: &Ctx, node: usize, goal: Pages) {
        if self.kswapd[node].priority() == DEF_PRIORITY {
            let demotes = self.wake_facts(node).can_demote;
            let anon =
                if demotes || self.swap_free > 0 { self.on(node, Lru::InactiveAnon) } else { 0 };
            let inactive = Pages(anon + self.on(node, Lru::InactiveFile));
            self.kswapd[node].set_priority(mglru::initial_priority(inactive, goal));
        }
        let ttl = self.knobs.lru_gen_min_ttl_ms;
        if ttl == 0 {
            return;
        }
        let facts = self.gen_facts(node, self.kswapd[node].priority());
        let sizes = self.memory.sizes(node);
        let now_ms = Self::ms(ctx.clock).into();
        if !self.kswapd[node].generations.outlives(&sizes, &facts, ttl, now_ms) {
            let spaces = self.spaces.iter().flatten().filter(|s| s.users > 0 && s.rss > 0);
            // The first of the largest: the kernel's badness is what a process has in memory.
            let largest = spaces.max_by_key(|s| (s.rss, std::cmp::Reverse(s.number)));
            self.doomed = self.doomed.or(largest.map(|s| s.number as usize));
        }
    }
    pub(super) fn begin_gen_pass(
        &self,
        node: usize,
        who: Reclaimer,
        (priority, goal): (u32, Pages),
        reclaimed: u64,
    ) -> GenPass {
        let facts = self.gen_facts(node, priority);
        let sizes = self.memory.sizes(node);
        let budget = mglru::budget_is_kept(facts.version)
            .then(|| self.kswapd[node].generations.budget(&sizes, &facts));
        GenPass {
            who,
            goal,
            priority,
            seen: 0,
            scanned: 0,
            reclaimed,
            budget,
            walk: None,
            last: false,
        }
    }
    /// A batch of a pass, or a stretch of its walk up to `end`; false when the pass is over.
    pub(super) fn gen_step(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        pass: &mut GenPass,
        end: u64,
    ) -> bool {
        let version = self.knobs.version;
        let facts = self.gen_facts(node, pass.priority);
        if let Some(walk) = &mut pass.walk {
            if !self.walk_on(ctx, node, walk, facts.swappiness, end) {
                return true;
            }
            pass.walk = None;
            self.next_generation(ctx, node, facts.swappiness);
            pass.last = !mglru::aging_ends_pass(version);
            return pass.last || self.gen_pass_done(node, pass);
        }
        if pass.budget == Some(Pages(0)) {
            return self.gen_pass_done(node, pass);
        }
        let sizes = self.memory.sizes(node);
        let generations = &self.kswapd[node].generations;
        let budget = match (pass.budget, generations.step(&sizes, &facts)) {
            (_, Step::Age) if !pass.last => {
                pass.walk = Some(self.begin_walk(node));
                return true;
            }
            (Some(kept), _) => kept,
            (None, Step::Evict(pages)) => pages,
            (None, Step::Age) => Pages(0),
        };
        if budget.0 == 0 {
            return self.gen_pass_done(node, pass);
        }
        let left = Pages(budget.0.saturating_sub(pass.seen));
        let seen = self.evict_batch(ctx, node, pass, &facts, left);
        pass.seen += seen;
        if seen == 0 || pass.seen >= budget.0 || pass.last || self.aborts(node, pass) {
            return self.gen_pass_done(node, pass);
        }
        true
    }
    fn gen_pass_done(&mut self, node: usize, pass: &GenPass) -> bool {
        if pass.reclaimed > 0 {
            self.kswapd[node].state.note_progress();
        }
        false
    }
    /// Whether a pass has what it wants.
    ///
    /// Source: specs/mglru.md#passes.
    fn aborts(&self, node: usize, pass: &GenPass) -> bool {
        let (margin, wake) = (self.model.margin, self.wake_facts(node));
        let (gap, early) = match pass.who {
            Reclaimer::Kswapd => self.kswapd[node].ends(),
            Reclaimer::Direct | Reclaimer::Khugepaged => (Pages(1), false),
        };
        pass.reclaimed >= pass.goal.0.max(gap.0)
            || early && mglru_aborts(zones_of(&self.memory, &self.marks, node), margin, wake)
    }
    /// A pass of direct reclaim over a node, with what was reclaimed before it; what is now.
    pub(super) fn direct_gen_pass(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        (priority, who): (u32, Reclaimer),
        reclaimed: u64,
    ) -> u64 {
        let goal = (priority, Pages(SWAP_CLUSTER_MAX));
        let mut pass = self.begin_gen_pass(node, who, goal, reclaimed);
        while self.gen_step(ctx, node, &mut pass, u64::MAX) {}
        pass.reclaimed
    }

    // ── Aging ──────────────────────────────────────────────────────────────────

    /// Who is walked: address spaces that a CPU has run since this node looked last, and new
    /// ones. Nobody, where walks are switched off.
    ///
    /// Source: specs/mglru.md#aging.
    fn begin_walk(&mut self, node: usize) -> Walk {
        let mut spaces = Vec::new();
        if self.knobs.lru_gen.walks() {
            // Who runs now runs on. The kernel marks at switches, which others' work makes.
            for &(task, _) in self.running.iter().flatten() {
                let ran = self.numa.get(task).and_then(|t| self.spaces_ran.get_mut(t.space));
                ran.into_iter().for_each(|ran| *ran = u64::MAX);
            }
            let bit = 1 << node;
            for (number, (s, ran)) in self.spaces.iter_mut().zip(&mut self.spaces_ran).enumerate() {
                let Some(s) = s.as_mut().filter(|s| (*ran | s.unseen) & bit != 0) else {
                    continue;
                };
                spaces.push((number, s.unseen & bit != 0));
                *ran &= !bit;
                s.unseen &= !bit;
            }
        }
        let k = &mut self.kswapd[node];
        if !spaces.is_empty() {
            k.filters.begin(&k.generations);
        }
        Walk { spaces, at: 0, step: 0 }
    }
    /// Goes on with a walk until the clock reaches `end`; whether it is done.
    fn walk_on(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        walk: &mut Walk,
        swappiness: u32,
        end: u64,
    ) -> bool {
        while let Some(&(number, new)) = walk.spaces.get(walk.at) {
            let Some(space) = self.spaces.get(number).and_then(Option::as_ref) else {
                (walk.at, walk.step) = (walk.at + 1, 0);
                continue;
            };
            let tables = space.steps(walk.step, u64::MAX / 4);
            let mut steps: Vec<u64> =
                tables.map(|(vpn, _)| vpn / u64::from(BLOCK)).take(TABLES).collect();
            steps.dedup();
            let Some(&last) = steps.last() else {
                (walk.at, walk.step) = (walk.at + 1, 0);
                continue;
            };
            // Both blocks of the last one may not be in yet.
            walk.step = last + 1;
            for step in steps {
                self.walk_table(ctx, node, number, step, new, swappiness);
            }
            if ctx.clock >= end {
                return walk.at + 1 == walk.spaces.len() && self.walked_out(walk, number);
            }
        }
        true
    }
    /// Whether nothing is left of a space.
    fn walked_out(&self, walk: &Walk, number: usize) -> bool {
        let space = self.spaces.get(number).and_then(Option::as_ref);
        space.is_none_or(|s| s.steps(walk.step, u64::MAX / 4).next().is_none())
    }
    /// One page table: 2 MiB of an address space.
    fn walk_table(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        number: usize,
        step: u64,
        new: bool,
        swappiness: u32,
    ) {
        let parts = self.parts(number, step, swappiness);
        if parts.is_empty() {
            return;
        }
        let look = self.prices[Cost::PteScan];
        ctx.clock += look;
        let table = table_number(number, step);
        let to = Generations::index(self.kswapd[node].generations.max);
        let reads = {
            let k = &self.kswapd[node];
            new || k.filters.reads(&k.generations, table)
        };
        let (mut seen, mut young, mut any) = (0, 0, false);
        let lifts = self.lifts(node, to);
        for part in &parts {
            if self.memory.blocks[(part.first / BLOCK) as usize].huge {
                // Its one entry is always read.
                young += u64::from(self.lift_used(part.first, node, to));
                continue;
            }
            if !reads {
                continue;
            }
            for &(from, end) in &part.ranges {
                seen += u64::from(end - from);
                if !part.file {
                    let found = self.memory.lift_stretch(from..end, &lifts);
                    (any, young) = (any | found.any, young + found.young);
                    for page in found.others {
                        young += u64::from(self.lift_used(page, node, to));
                    }
                    continue;
                }
                for page in from..end {
                    if Word(self.memory.words[page as usize]).young() {
                        any = true;
                        young += u64::from(self.lift_used(page, node, to));
                    }
                }
            }
        }
        // A table that nobody has used is passed over by its own bit; which is set where one of
        // its entries' is.
        let passes = self.knobs.lru_gen.clears_tables() && !new;
        if seen == 0 || passes && !any {
            return;
        }
        ctx.clock += look * seen;
        if mglru::worth_reading(seen, young) {
            let k = &mut self.kswapd[node];
            k.filters.keep(&k.generations, table);
        }
    }
    /// How a walk on behalf of a node lifts pages that belong to no file.
    fn lifts(&self, node: usize, to: usize) -> Lifts {
        let version = self.knobs.version;
        let used = [0, 1, 2, 3].map(|flags| {
            let flags = Flags {
                referenced: Ranks::referenced(flags),
                workingset: Ranks::workingset(flags),
            };
            match mglru::used(flags, false, version) {
                Used::Lifted(f) => (true, Ranks::of_flags(f.referenced, f.workingset)),
                Used::Noted(f) => (false, Ranks::of_flags(f.referenced, f.workingset)),
            }
        });
        let zones = self.memory.nodes[node].zones.iter().fold(0, |all, z| all | 1 << z);
        Lifts { to, zones, listed_only: mglru::passes_over_isolated(version), used }
    }
    /// The blocks of a table with the stretches of them that a walk reads.
    fn parts(&self, number: usize, step: u64, swappiness: u32) -> Vec<Part> {
        let space = self.space(number);
        let start = step * u64::from(BLOCK);
        let first = space.vmas.partition_point(|v| v.end <= start);
        let mut parts: Vec<Part> = Vec::new();
        let inside = |v: &&Vma| v.start < start + u64::from(BLOCK);
        for v in space.vmas[first..].iter().take_while(inside) {
            let readable = v.kind.readable || v.kind.writable || v.kind.executable;
            if !readable || !v.kind.file && swappiness == 0 {
                continue;
            }
            let Some(place) = space.place(start, v.kind.file) else { continue };
            let from = place + v.start.saturating_sub(start) as u32;
            let end = place + (v.end - start).min(u64::from(BLOCK)) as u32;
            match parts.iter_mut().find(|p| p.file == v.kind.file) {
                Some(p) => p.ranges.push((from, end)),
                None => {
                    parts.push(Part { first: place, file: v.kind.file, ranges: vec![(from, end)] });
                }
            }
        }
        parts
    }
    /// Clears the accessed bit of an entry, if it is set and its page is on this node, and lifts
    /// the page; whether it was.
    fn lift_used(&mut self, page: u32, node: usize, to: usize) -> bool {
        let w = Word(self.memory.words[page as usize]);
        if !w.resident() || self.memory.is_zero_page(w) {
            return false;
        }
        let item = self.memory.item_of(page);
        if !self.is_looked_at(item, node) || !self.memory.clear_entry_young(page) {
            return false;
        }
        self.lift(item, to);
        true
    }
    /// Whether walks and look-arounds on behalf of a node look at a page.
    fn is_looked_at(&self, item: u32, node: usize) -> bool {
        self.memory.node_of(self.memory.word(item).zone()) == node
            && (self.memory.listed(item).is_some()
                || !mglru::passes_over_isolated(self.knobs.version))
    }
    /// What a look makes of a used page that has these flags.
    fn used(&self, item: u32, flags: Flags) -> Used {
        let file =
            matches!(self.memory.listed(item), Some(Listed { place: Place::Gen(_, true), .. }));
        mglru::used(flags, file && self.executable(item), self.knobs.version)
    }
    /// A used page that is on a list; whether it is.
    fn lift(&mut self, item: u32, to: usize) -> bool {
        if self.memory.listed(item).is_none() {
            return false;
        }
        match self.used(item, self.memory.flags(item)) {
            Used::Lifted(flags) => self.memory.lift(item, to, flags),
            Used::Noted(flags) => self.memory.set_flags(item, flags),
        }
        true
    }
    /// Page tables are walked: a new generation begins.
    fn next_generation(&mut self, ctx: &mut Ctx, node: usize, swappiness: u32) {
        // Files' first, as the kernel does.
        let full = self.kswapd[node].generations.overfull(swappiness);
        for file in [true, false] {
            match full[usize::from(file)] {
                Some(Emptied::Moved) => self.empty_oldest(ctx, node, file),
                Some(Emptied::Renumbered) => {}
                None => continue,
            }
            self.kswapd[node].generations.drop_oldest(file);
        }
        self.kswapd[node].generations.begin_next(Self::ms(ctx.clock).into());
    }
    fn empty_oldest(&mut self, ctx: &mut Ctx, node: usize, file: bool) {
        let min = self.kswapd[node].generations.min[usize::from(file)];
        let (old, next) = (Generations::index(min), Generations::index(min + 1));
        for zone in self.memory.nodes[node].zones.clone() {
            while let Some((item, mut at)) = self.memory.pop(ListAt::Gen(zone, old, file)) {
                ctx.clock += self.prices[Cost::PteScan];
                if at.place == Place::Gen(old, file) {
                    let n = Pages(self.memory.pages_of(item));
                    let g = &mut self.kswapd[node].generations;
                    let flags = g.moves_on(file, flags_of(at), n, self.knobs.version);
                    at = listed(next, file, flags);
                }
                self.memory.enter_tail(item, at);
            }
        }
    }

    // ── Eviction ───────────────────────────────────────────────────────────────

    /// One batch: sorts and isolates pages of the oldest generation, then tests each; pages
    /// that it has seen, and one more if the oldest generation is another one now.
    ///
    /// Source: specs/mglru.md#eviction.
    fn evict_batch(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        pass: &mut GenPass,
        f: &Facts,
        left: Pages,
    ) -> u64 {
        let version = f.version;
        if mglru::advances_first(version) {
            self.advance(node, f);
        }
        let mut choice = self.kswapd[node].generations.choose(f);
        let mut taken = self.isolate_batch(ctx, node, choice, pass.who, left);
        let mut seen = taken.seen;
        let isolated = Pages(taken.isolated);
        if let Some(file) = mglru::looks_again(choice.file, f.swappiness, seen, isolated, version) {
            choice = self.kswapd[node].generations.own_choice(file, version);
            taken = self.isolate_batch(ctx, node, choice, pass.who, left);
            seen += taken.seen;
        }
        let moved = (seen > 0 || !mglru::advances_first(version)) && self.advance(node, f);
        let seen = self.kswapd[node].generations.counted(f.swappiness, seen, moved, version);
        if !taken.items.is_empty() {
            self.test_batch(ctx, node, taken.items, pass, choice.file);
        }
        seen
    }
    /// Passes over oldest generations that are empty; whether over any.
    fn advance(&mut self, node: usize, f: &Facts) -> bool {
        let memory = &self.memory;
        let empty = |index, file| memory.generation_is_empty(node, index, file);
        self.kswapd[node].generations.advance(f.swappiness, f.version, empty)
    }
    /// Takes pages off the tail of a type's oldest lists, the highest zone first.
    fn isolate_batch(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        by: Choice,
        who: Reclaimer,
        left: Pages,
    ) -> Isolated {
        let mut got = Isolated::default();
        if !self.kswapd[node].generations.gives(by.file) {
            return got;
        }
        let version = self.knobs.version;
        let min = self.kswapd[node].generations.min[usize::from(by.file)];
        let (old, next) = (Generations::index(min), Generations::index(min + 1));
        let full =
            |got: &Isolated| mglru::batch_is_full(Pages(got.isolated), got.folios, left, version);
        for zone in self.memory.nodes[node].zones.clone() {
            while !full(&got) {
                let Some((item, at)) = self.memory.pop(ListAt::Gen(zone, old, by.file)) else {
                    break;
                };
                let n = self.memory.pages_of(item);
                got.folios += 1;
                got.seen += n;
                let Place::Gen(index, _) = at.place else { continue };
                let k = &mut self.kswapd[node].generations;
                match k.sort(index, flags_of(at), Pages(n), by, version) {
                    Sorted::Lifted => self.memory.enter_list(item, node, at),
                    Sorted::Spared { .. } => {
                        let flags = mglru::goes_on(flags_of(at), version);
                        let at = listed(next, by.file, flags);
                        if mglru::spared_to_head(version) {
                            self.memory.enter_list(item, node, at);
                        } else {
                            self.memory.enter_tail(item, at);
                        }
                    }
                    Sorted::Taken(flags) => {
                        got.items.push((item, flags));
                        got.isolated += n;
                        continue;
                    }
                }
                ctx.clock += self.prices[Cost::PteScan];
                self.stat.add(node, Item::Pgrefill, n);
            }
        }
        let [scan, ..] = who.items(version);
        self.stat.add(node, scan, got.isolated);
        if got.isolated == 0 && !mglru::counts_sorted(full(&got), version) {
            got.seen = 0;
        }
        got
    }
    fn test_batch(
        &mut self,
        ctx: &mut Ctx,
        node: usize,
        items: Vec<(u32, Flags)>,
        pass: &mut GenPass,
        file: bool,
    ) {
        let mut demotion = Demotion::default();
        let (mut kept, mut flagged) = (Vec::new(), Vec::new());
        let mut isolated: Vec<u32> = items.iter().map(|i| i.0).collect();
        isolated.sort_unstable();
        let mut reclaimed = 0;
        for (i, &(item, flags)) in items.iter().enumerate() {
            // What stands around a page that comes soon is fetched meanwhile.
            if let Some(&(later, _)) = items.get(i + SOON) {
                self.memory.fetch_around(later);
            }
            let n = self.memory.pages_of(item);
            pass.scanned += n;
            ctx.clock += self.prices[Cost::ReclaimPage];
            let said = if flagged.contains(&item) {
                Reference::Keep
            } else {
                self.test_page(ctx, item, (node, file), flags, (pass.who, &isolated, &mut flagged))
            };
            match mglru::verdict(said, flagged.contains(&item)) {
                Reference::Keep => kept.push((item, flags, Arrives::Kept { activated: false })),
                Reference::Activate => {
                    self.stat.add(node, Item::Pgactivate, n);
                    kept.push((item, flags, Arrives::Kept { activated: true }));
                }
                Reference::Cold | Reference::Drop => {
                    let demotes = said == Reference::Cold;
                    let mut left = vec![item];
                    if demotes {
                        left = self.demote(ctx, item, node, n, pass.who, &mut demotion);
                        let stay = self.pages_in(&left);
                        reclaimed += n - stay;
                        // What demotion left is looked at once more.
                        pass.scanned += if self.wake_facts(node).can_demote { stay } else { 0 };
                    }
                    for item in self.for_swap(left) {
                        let n = self.memory.pages_of(item);
                        if self.evict(ctx, item, node, flags).is_some() {
                            reclaimed += n;
                        } else {
                            // What can go nowhere is taken for a page in use.
                            self.stat.add(node, Item::Pgactivate, n);
                            kept.push((item, flags, Arrives::Stuck));
                        }
                    }
                }
            }
        }
        self.end_batch();
        for (item, flags, how) in kept {
            let at = self.enters_generation(file, node, how, flags);
            self.memory.enter_list(item, node, at);
        }
        pass.reclaimed += reclaimed;
        let [_, steal, _] = pass.who.items(self.knobs.version);
        self.stat.add(node, steal, reclaimed);
    }
    /// Tests an isolated page by its mappings, and looks around each that was used.
    fn test_page(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        (node, file): (usize, bool),
        flags: Flags,
        (who, isolated, flagged): (Reclaimer, &[u32], &mut Vec<u32>),
    ) -> Reference {
        let mut around = Vec::new();
        if item & FRAME_ITEM != 0 {
            let mappers = self.memory.mappers(item ^ FRAME_ITEM).iter().copied();
            around.extend(mappers.filter(|&p| self.memory.is_young(p)));
        } else if self.memory.pages_of(item) == 1 && self.memory.is_young(item) {
            around.push(item);
        }
        let accessed = self.memory.test_and_clear_young(item);
        self.flush_if_huge(item, accessed);
        for page in around {
            self.look_around(ctx, page, node, (who, isolated, flagged));
        }
        let (nr_accessed, referenced) = mglru::looked_at(accessed, flags, self.knobs.version);
        let page = InactivePage {
            page: page_at(&self.memory, item),
            file,
            nr_pages: Pages(self.memory.pages_of(item)),
            nr_accessed,
            referenced,
            executable_file: file && accessed > 0 && self.executable(item),
        };
        self.inside.rules.inactive(&page)
    }
    /// Clears the accessed bits of entries around a used one and lifts their pages.
    ///
    /// Source: specs/mglru.md#around.
    fn look_around(
        &mut self,
        ctx: &mut Ctx,
        page: u32,
        node: usize,
        (who, isolated, flagged): (Reclaimer, &[u32], &mut Vec<u32>),
    ) {
        let Ok(at) = self.place(page) else { return };
        let v = &self.space(at.space).vmas[at.vma];
        let table = at.vpn / HUGE_PAGES * HUGE_PAGES;
        let (start, end) = (v.start.max(table), v.end.min(table + HUGE_PAGES));
        if end - start == 1 {
            return;
        }
        let (from, to) = mglru::window(at.vpn, start, end);
        let max = Generations::index(self.kswapd[node].generations.max);
        let first = (u64::from(page) + from - at.vpn) as u32;
        let window = first..first + (to - from) as u32;
        let mut young = 1;
        let mut others = Vec::new();
        if who != Reclaimer::Kswapd || self.memory.is_file(page) {
            others.extend(window);
        } else {
            let found = self.memory.lift_stretch(window, &self.lifts(node, max));
            young += found.young;
            others = found.others;
            let mine = |page: &u32| isolated.binary_search(page).is_ok();
            flagged.extend(found.unlisted.into_iter().filter(mine));
        }
        for other in others {
            let w = Word(self.memory.words[other as usize]);
            if !w.young() || !w.resident() || self.memory.is_zero_page(w) {
                continue;
            }
            let item = self.memory.item_of(other);
            if !self.is_looked_at(item, node) || !self.memory.clear_entry_young(other) {
                continue;
            }
            young += 1;
            // Few of a batch: 64 pages at most are isolated.
            if self.memory.listed(item).is_none() && isolated.binary_search(&item).is_ok() {
                flagged.push(item);
            } else if who == Reclaimer::Kswapd {
                self.lift(item, max);
            } else {
                self.activate_now(item, node, max);
            }
        }
        ctx.clock += self.prices[Cost::PteScan] * (to - from);
        if mglru::worth_reading(to - from, young) {
            let table = table_number(at.space, at.vpn / HUGE_PAGES);
            let k = &mut self.kswapd[node];
            k.filters.report(&k.generations, table);
        }
    }
    /// Who reclaims for himself has nothing to count changes of generations in: a used page is
    /// put on the newest list.
    fn activate_now(&mut self, item: u32, node: usize, max: usize) {
        let Some(at) = self.memory.listed(item) else { return };
        let Place::Gen(index, file) = at.place else { return };
        match self.used(item, flags_of(at)) {
            Used::Noted(flags) => self.memory.set_flags(item, flags),
            Used::Lifted(_) if index == max => {}
            Used::Lifted(_) => {
                self.memory.leave_list(item);
                let how = Arrives::Kept { activated: true };
                let at = self.enters_generation(file, node, how, flags_of(at));
                self.memory.enter_list(item, node, at);
                self.stat.add(node, Item::Pgactivate, self.memory.pages_of(item));
            }
        }
    }

    // ── What goes and comes back ───────────────────────────────────────────────

    /// What a page leaves behind that goes to the device or is dropped, where generations ask
    /// for it.
    pub(super) fn leaves_behind(
        &mut self,
        node: usize,
        file: bool,
        flags: Flags,
        n: u64,
    ) -> Option<Shadow> {
        if !self.memory.has_generations() {
            return None;
        }
        let version = self.knobs.version;
        Some(self.kswapd[node].generations.evicted(file, flags, Pages(n), version))
    }
    /// How a page arrives on a node that a fault brings back.
    ///
    /// * `left` – its entry until then.
    pub(super) fn comes_back(&mut self, left: Word, node: usize, file: bool) -> Arrives {
        if !self.memory.has_generations() {
            self.note_refault(node, file);
            return Arrives::Fault;
        }
        let same = |&(zone, _): &(usize, Shadow)| self.memory.node_of(zone) == node;
        let Some((_, shadow)) = left.shadow().filter(same) else { return Arrives::Fault };
        let version = self.knobs.version;
        self.kswapd[node].generations.comes_back(file, shadow, version)
    }
}

/// The number of a page table: the address space, and which 2 MiB of it.
fn table_number(space: usize, step: u64) -> u64 {
    (space as u64) << 40 | step
}

const fn flags_of(at: Listed) -> Flags {
    Flags { referenced: at.referenced, workingset: at.workingset }
}

const fn listed(index: usize, file: bool, flags: Flags) -> Listed {
    let Flags { referenced, workingset } = flags;
    Listed { place: Place::Gen(index, file), referenced, workingset }
}
