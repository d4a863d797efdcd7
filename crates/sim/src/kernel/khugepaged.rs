//! khugepaged: makes huge pages of base pages, some at a time.

use super::{Cost, Ctx, Kernel, Reclaimer};
use crate::content::Content;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::{State, Word};
use crate::space::Holds;
use crate::vmstat::Item;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{HugePages, Knob};
use homenode_core::tiering::mglru::Arrives;
use homenode_core::units::HUGE_PAGES;
use std::ops::ControlFlow;

/// What khugepaged remembers.
///
/// Source: specs/huge-pages.md#khugepaged.
#[derive(Debug, Default)]
pub(crate) struct Khugepaged {
    /// Address spaces in the order in which they entered.
    spaces: Vec<usize>,
    /// The one that it is at, by its place among them; `None` between two rounds.
    at: Option<usize>,
    /// The virtual page that it has come to there.
    vpn: u64,
    scan: Option<Scan>,
    /// Since boot.
    pub(crate) pages_collapsed: u64,
    pub(crate) full_scans: u64,
    pub(crate) rest: Rest,
    /// Somebody has called it: there is work, or its time to sleep has changed.
    pub(crate) called: Calls,
}

/// What khugepaged was called for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) work: bool,
    pub(crate) sleep: bool,
}

/// What it does while it doesn't run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It waits for work.
    #[default]
    Idle,
    /// It sleeps for so many ms.
    Naps(u32),
    /// It has work.
    Runs,
}

/// From one sleep to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// What it has looked at, in its own units.
    progress: u64,
    /// How often it has begun with the first address space.
    begun: u32,
    /// It has slept since it found no huge page.
    slept: bool,
    /// The visit of an address space that it is in: what that has looked at, and may.
    visit: Option<(u64, u64)>,
    /// The last stretch found no huge page.
    no_page: bool,
}

/// A stretch of 512 entries, as khugepaged counts them.
#[derive(Clone, Debug, Default)]
struct Looked {
    entries: u64,
    none: u32,
    swapped: u32,
    shared: u32,
    referenced: u32,
    writable: bool,
    /// Pages by place of a node.
    nodes: Vec<u64>,
}

/// What became of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It isn't fit.
    Unfit,
    /// It was fit, and no huge page could be had.
    NoPage,
    /// It was fit, and is not any more.
    Lost,
    /// A huge page maps it.
    Collapsed,
}

impl Kernel {
    /// A mapping came, or a first touch: its space enters if huge pages may be there.
    pub(super) fn khugepaged_meets(&mut self, space: usize, vpn: u64) {
        let s = self.space(space);
        if s.khugepaged {
            return;
        }
        let Some(v) = s.find(vpn).map(|v| &s.vmas[v]) else { return };
        let first = v.start.next_multiple_of(HUGE_PAGES);
        if self.may_be_huge(v) && first + HUGE_PAGES <= v.end {
            self.khugepaged_enters(space);
        }
    }
    pub(super) fn khugepaged_forked(&mut self, parent: usize, child: usize) {
        if self.space(parent).khugepaged {
            self.khugepaged_enters(child);
        }
    }
    fn khugepaged_enters(&mut self, space: usize) {
        self.space_mut(space).khugepaged = true;
        self.khugepaged.called.work |= self.khugepaged.spaces.is_empty();
        self.khugepaged.spaces.push(space);
    }
    /// An address space is at its end.
    pub(super) fn khugepaged_leaves(&mut self, space: usize) {
        if !std::mem::take(&mut self.space_mut(space).khugepaged) {
            return;
        }
        let k = &mut self.khugepaged;
        let Some(place) = k.spaces.iter().position(|&s| s == space) else { return };
        k.spaces.remove(place);
        match k.at {
            Some(at) if at > place => k.at = Some(at - 1),
            Some(at) if at == place => {
                if let Some(scan) = &mut k.scan {
                    scan.visit = None;
                }
                k.go_to(at);
            }
            _ => {}
        }
    }
    /// A knob was written; `before` is what `enabled` was. Its times to sleep wake it, also
    /// where they stay what they are.
    pub(super) fn khugepaged_told(&mut self, before: HugePages, written: Option<Knob>) {
        let called = &mut self.khugepaged.called;
        called.work |=
            before != self.knobs.transparent_hugepage && !self.khugepaged.spaces.is_empty();
        called.sleep |= matches!(
            written,
            Some(Knob::KhugepagedScanSleepMillisecs | Knob::KhugepagedAllocSleepMillisecs)
        );
    }
    fn khugepaged_has_work(&self) -> bool {
        !self.khugepaged.spaces.is_empty() && self.knobs.transparent_hugepage != HugePages::Never
    }

    /// Scans until its clock reaches `end` or it rests.
    ///
    /// Source: specs/huge-pages.md#khugepaged.
    pub(crate) fn khugepaged_run(&mut self, ctx: &mut Ctx, end: u64) -> Rest {
        while ctx.clock < end {
            if let ControlFlow::Break(rest) = self.khugepaged_step(ctx) {
                return rest;
            }
        }
        Rest::Runs
    }
    fn khugepaged_step(&mut self, ctx: &mut Ctx) -> ControlFlow<Rest> {
        let settings = self.knobs.khugepaged;
        let pages = u64::from(settings.pages_to_scan);
        let work = self.khugepaged_has_work();
        let between = self.khugepaged.at.is_none();
        let mut scan = self.khugepaged.scan.unwrap_or_default();
        if scan.visit.is_none() {
            scan.begun += u32::from(between);
            if work && scan.begun < 2 {
                scan.visit = Some((1, pages.saturating_sub(scan.progress)));
                scan.no_page = false;
                if between {
                    self.khugepaged.go_to(0);
                }
            } else {
                scan.progress = pages;
            }
        }
        if scan.visit.is_some() {
            self.khugepaged.scan = Some(scan);
            self.visit_on(ctx);
            scan = self.khugepaged.scan.unwrap_or_default();
            if scan.visit.is_some() {
                return ControlFlow::Continue(());
            }
        }
        self.khugepaged.scan = Some(scan);
        if scan.progress < pages {
            if !scan.no_page {
                return ControlFlow::Continue(());
            }
            if !scan.slept {
                self.khugepaged.scan = Some(Scan { slept: true, no_page: false, ..scan });
                return ControlFlow::Break(Rest::Naps(settings.alloc_sleep_millisecs));
            }
        }
        self.khugepaged.scan = None;
        if !work {
            return ControlFlow::Break(Rest::Idle);
        }
        // Not nothing: with no sleep either, time would stand still.
        ctx.clock += self.prices[Cost::PteScan].max(1000);
        match settings.scan_sleep_millisecs {
            0 => ControlFlow::Continue(()),
            ms => ControlFlow::Break(Rest::Naps(ms)),
        }
    }
    /// Goes on in the address space that it is at by one stretch, or to the next space.
    fn visit_on(&mut self, ctx: &mut Ctx) {
        let Some(at) = self.khugepaged.at else { return };
        let (space, mut vpn) = (self.khugepaged.spaces[at], self.khugepaged.vpn);
        let Some(scan) = self.khugepaged.scan else { return };
        let Some((mut seen, may)) = scan.visit else { return };
        let s = self.space(space);
        let from = s.vmas.partition_point(|v| v.end <= vpn);
        let mut found = None;
        for (i, v) in s.vmas.iter().enumerate().skip(from) {
            let first = v.start.next_multiple_of(HUGE_PAGES);
            let last = v.end / HUGE_PAGES * HUGE_PAGES;
            if !self.may_be_huge(v) || first >= last || vpn > last {
                seen += 1;
                ctx.clock += self.prices[Cost::PteScan];
                continue;
            }
            vpn = vpn.max(first);
            if vpn < last {
                found = Some(i);
                break;
            }
        }
        let mut fate = Fate::Unfit;
        if let Some(vma) = found {
            let (found, entries) = self.try_collapse(ctx, space, vma, vpn);
            fate = found;
            self.khugepaged.pages_collapsed += u64::from(fate == Fate::Collapsed);
            self.khugepaged.vpn = vpn + HUGE_PAGES;
            // 7.3 counts what it has looked at.
            let counted = self.knobs.version >= KernelVersion::V7_3;
            seen += if counted { entries } else { HUGE_PAGES };
        } else {
            self.khugepaged.go_to(at + 1);
        }
        // Whoever has tried has let go of the address space.
        let over = found.is_none() || fate != Fate::Unfit || seen >= may;
        if let Some(scan) = &mut self.khugepaged.scan {
            scan.no_page = fate == Fate::NoPage;
            scan.visit = Some((seen, may)).filter(|_| !over);
            scan.progress += if over { seen } else { 0 };
        }
    }

    /// Looks at a stretch of 512 entries and puts a huge page in their place if they are fit.
    /// What became of it, and how many entries were looked at: at least that of the table.
    fn try_collapse(&mut self, ctx: &mut Ctx, space: usize, vma: usize, vpn: u64) -> (Fate, u64) {
        ctx.clock += self.prices[Cost::PteScan];
        let Some(head) = self.space(space).place(vpn, false) else { return (Fate::Unfit, 1) };
        let block = self.memory.blocks[(head / BLOCK) as usize];
        if block.huge || !block.table {
            return (Fate::Unfit, 1);
        }
        let (fit, looked) = self.look_at_stretch(ctx, head);
        let fate =
            if fit { self.try_fit(ctx, (space, vma, vpn), head, &looked) } else { Fate::Unfit };
        (fate, looked.entries)
    }
    /// Puts a huge page in the place of 512 entries that are fit by their numbers.
    fn try_fit(
        &mut self,
        ctx: &mut Ctx,
        (space, vma, vpn): (usize, usize, u64),
        head: u32,
        looked: &Looked,
    ) -> Fate {
        let few = looked.referenced < HUGE_PAGES as u32 / 2;
        if !looked.writable || looked.referenced == 0 || looked.swapped > 0 && few {
            return Fate::Unfit;
        }
        // On the node that has most of it; as many on several: on any of these.
        let most = looked.nodes.iter().copied().max().unwrap_or(0);
        let first = looked.nodes.iter().position(|&n| n == most).unwrap_or(0);
        let near = self.fallback[first].iter().copied();
        let order: Vec<usize> = near.filter(|&p| looked.nodes[p] == most).collect();
        let mut zone = self.take_huge(&order, false);
        if zone.is_none() && self.knobs.khugepaged.defrag {
            self.reclaim_for_huge(ctx, &order, Reclaimer::Khugepaged);
            zone = self.take_huge(&order, false);
        }
        let Some(zone) = zone else {
            self.count(ctx, Item::ThpCollapseAllocFailed, 1);
            return Fate::NoPage;
        };
        self.count(ctx, Item::ThpCollapseAlloc, 1);
        self.count_allocated(ctx, zone, order[0]);
        let read = (head..head + BLOCK)
            .filter(|&page| Word(self.memory.words[page as usize]).state() == State::Swapped);
        let read: Vec<u32> = read.collect();
        for page in read {
            if self.swap_in(ctx, page, false).is_err() {
                self.give(zone, HUGE_PAGES);
                return Fate::Lost;
            }
        }
        // Reclaim may have taken pages of it meanwhile.
        let (fit, again) = self.look_at_stretch(ctx, head);
        if !fit || again.swapped > 0 || !again.writable || again.referenced == 0 {
            self.give(zone, HUGE_PAGES);
            return Fate::Lost;
        }
        self.collapse(ctx, (space, vma, vpn), head, zone);
        Fate::Collapsed
    }
    /// Whether nothing in a stretch is in the way of a huge page, and what it has, up to what is.
    fn look_at_stretch(&self, ctx: &mut Ctx, head: u32) -> (bool, Looked) {
        let settings = &self.knobs.khugepaged;
        // Kernels without the limit on shared pages take none.
        let shared = match self.knobs.version {
            KernelVersion::V3_8 | KernelVersion::V4_5 | KernelVersion::V4_15 => 0,
            _ => settings.max_ptes_shared,
        };
        let mut looked = Looked { nodes: vec![0; self.memory.nodes.len()], ..Looked::default() };
        let mut fit = true;
        for page in head..head + BLOCK {
            looked.entries += 1;
            fit = self.look_at_entry(page, &mut looked)
                && looked.none <= settings.max_ptes_none
                && looked.swapped <= settings.max_ptes_swap
                && looked.shared <= shared;
            if !fit {
                break;
            }
        }
        ctx.clock += looked.entries * self.prices[Cost::PteScan];
        (fit, looked)
    }
    fn look_at_entry(&self, page: u32, looked: &mut Looked) -> bool {
        let w = Word(self.memory.words[page as usize]);
        match w.state() {
            State::Swapped => {
                looked.swapped += 1;
                return true;
            }
            State::None => {
                looked.none += 1;
                return true;
            }
            State::Present | State::ProtNone => {}
        }
        if self.memory.is_zero_page(w) {
            looked.none += 1;
            return true;
        }
        let item = self.memory.item_of(page);
        // What the scan has marked is not writable.
        let written = if w.shared() { w.writable() } else { self.memory.is_dirty(page) };
        looked.writable |= w.state() == State::Present && written;
        looked.shared += u32::from(self.memory.nr_mappers(item) > 1);
        let Some(listed) = self.memory.listed(item) else { return false };
        looked.nodes[self.memory.node_of(self.memory.word(item).zone())] += 1;
        let referenced = w.young() || listed.referenced || self.memory.was_young(item);
        looked.referenced += u32::from(referenced);
        true
    }
    /// Puts a huge page, of which the pages are taken, in the place of 512 entries.
    fn collapse(
        &mut self,
        ctx: &mut Ctx,
        (space, vma, vpn): (usize, usize, u64),
        head: u32,
        zone: usize,
    ) {
        let (writable, holds) = {
            let k = &self.space(space).vmas[vma].kind;
            (k.writable, k.holds)
        };
        let dst = self.memory.node_of(zone);
        let with_contents = self.memory.contents.is_some();
        let mut held: Vec<Content> = Vec::new();
        // Entries are looked at once more and cleared, and all CPUs are told: who runs the space to forget them, then all
        // others, so that nobody walks the old table any more. Source: specs/remote-flush.md#huge.
        self.flushes.of(space);
        if self.knobs.version >= KernelVersion::V6_1 {
            self.flushes.of_all();
        }
        ctx.clock += self.prices[Cost::MigratePage] + HUGE_PAGES * self.prices[Cost::PteScan];
        let mut young = Vec::with_capacity(BLOCK as usize);
        for (i, page) in (head..head + BLOCK).enumerate() {
            let w = Word(self.memory.words[page as usize]);
            young.push(w.resident() && w.young());
            if w.state() == State::None || self.memory.is_zero_page(w) {
                if with_contents {
                    held.push(if w.resident() { Content::ZERO } else { first(holds, vpn, i) });
                }
                if w.resident() {
                    self.memory.words[page as usize] = 0;
                    let mm = self.space(space).mm;
                    self.zero_pages_changed(mm, -1);
                }
                self.space_mut(space).rss += 1;
                ctx.clock += self.prices[Cost::PageCopy] / 2;
                continue;
            }
            let item = self.memory.item_of(page);
            let from = self.memory.word(item).zone();
            let src = self.memory.node_of(from);
            if with_contents {
                held.push(self.memory.content(item));
            }
            let copy = self.loads.apply_copy(src, dst, self.copy_time(src, dst));
            ctx.clock += copy;
            self.loads.copied(src, dst, homenode_core::units::PAGE_SIZE);
            self.score_move(page, 1, src, dst);
            if item & FRAME_ITEM != 0 {
                if self.memory.unmap_frame(item ^ FRAME_ITEM, page) {
                    self.stat.add(src, Item::Pgfree, 1);
                }
            } else {
                self.memory.leave_list(page);
                self.memory.forget_young(page);
                self.memory.words[page as usize] = 0;
                self.give(from, 1);
            }
        }
        // A word per page knows whether it was used; the entry of the whole is.
        for (i, page) in (head..head + BLOCK).enumerate() {
            let w = Word::mapped(zone, writable).with_young(young[i] || i == 0);
            self.memory.words[page as usize] = w.0;
        }
        let block = &mut self.memory.blocks[(head / BLOCK) as usize];
        (block.huge, block.table) = (true, false);
        for (page, content) in (head..).zip(held) {
            self.memory.set_content(page, content);
        }
        let at = self.arrival(false, dst, Arrives::Demoted, None);
        self.memory.enter_list(head, dst, at);
    }
}

impl Khugepaged {
    /// On with the address space at that place; past the last one a round is over.
    fn go_to(&mut self, place: usize) {
        self.vpn = 0;
        self.at = Some(place).filter(|&p| p < self.spaces.len());
        self.full_scans += u64::from(self.at.is_none());
    }
    /// Whether somebody has called it.
    pub(crate) fn calls(&self) -> bool {
        self.called.work || self.called.sleep
    }
}

/// What a page holds that the process has not touched yet.
fn first(holds: Holds, vpn: u64, i: usize) -> Content {
    holds.at(vpn + i as u64)
}
