//! Same-page merging in the simulated kernel: what the core's rules ask of it, who is
//! registered, ksmd's steps and what they take.
//!
//! A [`Page`] of the rules is the number of an item: a private page (its own number also
//! inside a huge page), or a frame. A merged page is a frame that carries a stable node and
//! whose entries are all read-only; the page of zeroes is a frame apart
//! (`memory::ZERO_FRAME`).

use super::fault::Place;
use super::hotplug::Notice;
use super::huge::Split;
use super::{BOOT_JIFFIES, Ctx, Fatal, Kernel, TICK};
use crate::content::{Content, Merged};
use crate::hot::{CostTable, KINDS};
use crate::memory::{BLOCK, FRAME_ITEM, MemoryError};
use crate::page::{PRESENT, Word, ZONES_MAX};
use crate::space::{Holds, Kind};
use crate::vmstat::Item;
use homenode_core::costs::Cost;
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Errno, KnobError};
use homenode_core::ksm::files::Written;
use homenode_core::ksm::memory::{
    BreakError, Memory, MmId, Next, Page, PageFacts, Refusal, StableId, Vpn,
};
use homenode_core::ksm::register::{self, Mapping};
use homenode_core::ksm::{Ksm, Now, Step};
use homenode_core::scenario::{Content as Said, UnmergeTarget};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, PAGE_SIZE, Pages};
use std::cell::Cell;
use std::cmp::Ordering;

/// Most address spaces that merging can name.
const MMS_MAX: usize = 1 << 20;
/// An address space that is gone; its number is free once ksmd has cleaned up.
const GONE: usize = usize::MAX;
/// No number for merging.
const NO_MM: u32 = u32::MAX;
/// Lines of a page.
const LINES: u64 = PAGE_SIZE / crate::load::LINE;

/// What wakes ksmd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// There is something to do: ends its wait.
    pub(crate) work: bool,
    /// Another time to sleep: ends its sleep between two batches.
    pub(crate) sleep: bool,
}

/// All that merging keeps in the kernel.
pub(crate) struct Merging {
    /// The rules with their state; `None` only while they are at work.
    ksm: Option<Box<Ksm>>,
    /// Address space by its number for merging.
    mms: Vec<usize>,
    /// Images by the order of their first appearance.
    images: Vec<String>,
    pub(crate) wakes: Wakes,
    /// Pages left of ksmd's batch; `None` between two.
    pub(crate) batch: Option<u32>,
    /// Lines that were read to look at contents, since somebody took account of them.
    pub(crate) read: u64,
    /// The same in all.
    pub(crate) lines: u64,
    /// What could not be modelled while the rules were at work.
    pub(crate) trouble: Option<MemoryError>,
}

impl Merging {
    /// Whether ksmd has been called, or something could not be modelled.
    #[inline]
    pub(crate) fn calls(&self) -> bool {
        self.wakes.work || self.wakes.sleep || self.trouble.is_some()
    }
    pub(super) fn new(machine: &Hardware, version: KernelVersion) -> Self {
        let nodes = machine.nodes.iter().map(|n| n.id.index() + 1).max().unwrap_or(1);
        Self {
            ksm: Some(Box::new(Ksm::new(version, nodes))),
            mms: Vec::new(),
            images: Vec::new(),
            wakes: Wakes::default(),
            batch: None,
            read: 0,
            lines: 0,
            trouble: None,
        }
    }
}

impl Kernel {
    /// The rules of merging and their state.
    pub(crate) fn ksm(&self) -> &Ksm {
        self.merging.ksm.as_ref().expect("the rules are back after their work")
    }
    pub(crate) fn ksm_mut(&mut self) -> &mut Ksm {
        self.merging.ksm.as_mut().expect("the rules are back after their work")
    }
    /// Lets the rules work on this memory on behalf of `ctx`.
    fn with_ksm<R>(
        &mut self,
        ctx: &mut Ctx,
        latency: &CostTable,
        work: impl FnOnce(&mut Ksm, &mut Merger<'_>) -> R,
    ) -> R {
        let mut ksm = self.merging.ksm.take().expect("the rules don't call themselves");
        let mut mem = Merger {
            latency,
            ctx: *ctx,
            looks: Cell::new(0),
            read: std::array::from_fn(|_| Cell::new(0)),
            k: self,
        };
        let done = work(&mut ksm, &mut mem);
        ctx.clock = mem.ctx.clock + mem.looks.get();
        let read = mem.read;
        self.merging.ksm = Some(ksm);
        for (zone, lines) in read.iter().enumerate().filter(|(_, l)| l.get() > 0) {
            let node = self.memory.node_of(zone);
            self.loads.nodes[node].read += lines.get() * crate::load::LINE;
            self.merging.read += lines.get();
            self.merging.lines += lines.get();
        }
        done
    }

    // ── Registration ───────────────────────────────────────────────────────────

    /// The number of a space for merging, if it has been registered.
    pub(crate) fn mm_of(&self, space: usize) -> Option<MmId> {
        let mm = self.spaces[space].as_ref()?.mm;
        (mm != NO_MM).then_some(MmId(mm))
    }
    /// The same, given if it has none yet.
    fn mm_for(&mut self, space: usize) -> Result<MmId, MemoryError> {
        if let Some(mm) = self.mm_of(space) {
            return Ok(mm);
        }
        let mms = &self.merging.mms;
        let number = if mms.len() < MMS_MAX {
            self.merging.mms.push(GONE);
            self.merging.mms.len() - 1
        } else {
            let free = |m: &usize| mms[*m] == GONE && !self.ksm().knows(MmId(*m as u32));
            (0..MMS_MAX).find(free).ok_or(MemoryError::Spaces)?
        };
        self.merging.mms[number] = space;
        self.space_mut(space).mm = number as u32;
        Ok(MmId(number as u32))
    }
    fn enter(&mut self, space: usize) -> Result<(), MemoryError> {
        let mm = self.mm_for(space)?;
        self.merging.wakes.work |= self.ksm_mut().enter(mm);
        Ok(())
    }
    /// Whether a mapping's pages can be merged at all.
    fn may_merge(kind: &Kind) -> bool {
        Mapping { shared: kind.shared, ..Mapping::default() }.may_merge()
    }
    /// A mapping is about to be made.
    pub(super) fn merge_map(&mut self, space: usize, kind: &mut Kind) -> Result<(), MemoryError> {
        if self.memory.contents.is_none() {
            kind.mergeable = false;
            return Ok(());
        }
        let wanted = kind.mergeable || self.space(space).merge_any;
        kind.mergeable = wanted && Self::may_merge(kind);
        if kind.mergeable { self.enter(space) } else { Ok(()) }
    }
    /// `prctl(PR_SET_MEMORY_MERGE, 1)`, where this kernel has it and contents are kept.
    ///
    /// Source: specs/ksm.md#registration.
    pub(crate) fn set_merge_any(&mut self, space: usize) -> Result<(), MemoryError> {
        if self.memory.contents.is_none() || !register::has_merge_any(self.knobs.version) {
            return Ok(());
        }
        let s = self.space_mut(space);
        s.merge_any = true;
        for v in s.vmas.iter_mut().filter(|v| Self::may_merge(&v.kind)) {
            v.kind.mergeable = true;
        }
        self.enter(space)
    }
    /// `madvise` with `MADV_MERGEABLE` or `MADV_UNMERGEABLE`.
    ///
    /// # Errors
    /// `EAGAIN` without memory for the copies: the mappings stay mergeable.
    ///
    /// Source: specs/ksm.md#registration.
    pub(crate) fn madvise_merge(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        (start, end): (u64, u64),
        mergeable: bool,
    ) -> Result<(), Errno> {
        ctx.clock += super::mm::CALL;
        if self.memory.contents.is_none() {
            return Ok(());
        }
        if !mergeable {
            self.unmerge(ctx, space, start, end).map_err(BreakError::madvise_errno)?;
        }
        let s = self.space_mut(space);
        let range = s.carve(start, end);
        let mut any = false;
        for v in &mut s.vmas[range] {
            v.kind.mergeable = mergeable && Self::may_merge(&v.kind);
            any |= v.kind.mergeable;
        }
        if any && self.enter(space).is_err() {
            return Err(Errno::Eagain);
        }
        Ok(())
    }
    /// Gives what is merged in a range pages of its own.
    pub(super) fn unmerge(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        start: u64,
        end: u64,
    ) -> Result<(), BreakError> {
        let Some(mm) = self.mm_of(space) else { return Ok(()) };
        let none = [0; KINDS];
        self.with_ksm(ctx, &none, |ksm, mem| ksm.unmerge(mem, mm, Vpn(start), Vpn(end)))
    }
    /// `child` was forked from `parent`; `zeroes` of its entries map the page of zeroes.
    pub(super) fn merge_fork(
        &mut self,
        parent: usize,
        child: usize,
        zeroes: u64,
    ) -> Result<(), MemoryError> {
        let Some(from) = self.mm_of(parent) else { return Ok(()) };
        let to = self.mm_for(child)?;
        self.merging.wakes.work |= self.ksm_mut().fork(from, to, zeroes);
        Ok(())
    }
    /// Another program runs in a space, whose mappings are gone: for merging that is
    /// another space.
    pub(super) fn merge_exec(&mut self, space: usize) -> Result<(), MemoryError> {
        let Some(old) = self.mm_of(space) else { return Ok(()) };
        self.space_mut(space).mm = NO_MM;
        let merge_any = self.space(space).merge_any;
        let new = self.mm_for(space)?;
        self.merging.wakes.work |= self.ksm_mut().exec(old, new, merge_any);
        self.merging.mms[old.0 as usize] = GONE;
        Ok(())
    }
    /// A space is gone; its pages are, already.
    pub(super) fn merge_exit(&mut self, space: usize) {
        if let Some(mm) = self.mm_of(space) {
            self.ksm_mut().exit(mm);
            self.merging.mms[mm.0 as usize] = GONE;
        }
    }
    /// Entries of the page of zeroes came or went, otherwise than by merging.
    pub(super) fn zero_pages_changed(&mut self, mm: u32, by: i64) {
        if mm != NO_MM {
            self.ksm_mut().zero_pages_changed(MmId(mm), by);
        }
    }

    /// Memory goes offline, has done so, or stays: ksmd rests meanwhile, and nodes whose
    /// page did not move away but was freed go.
    ///
    /// Source: specs/ksm.md#offline.
    pub(super) fn merge_notice(&mut self, notice: Notice) {
        match notice {
            Notice::GoingOffline => self.ksm_mut().going_offline(),
            Notice::Offlined => {
                // Every page has left. A node whose page is no merged one any more has none,
                // and may have had it there (specs/exceptions/memory-offline.md).
                let mut ksm = self.merging.ksm.take().expect("the rules are back");
                ksm.offlined(|page| !self.is_merged_page(page));
                self.merging.ksm = Some(ksm);
                self.merging.wakes.work = true;
            }
            Notice::Cancelled => {
                self.ksm_mut().offline_cancelled();
                self.merging.wakes.work = true;
            }
        }
    }
    fn is_merged_page(&self, page: Page) -> bool {
        let item = page.0 as u32;
        let frame = item & !FRAME_ITEM;
        let known = item & FRAME_ITEM != 0 && self.memory.contents.is_some();
        known && self.memory.is_merged(frame) && !self.memory.mappers(frame).is_empty()
    }

    // ── Contents ───────────────────────────────────────────────────────────────

    /// What pages hold of which a scenario says this: `pages` of them from `vpn` on.
    pub(crate) fn holds(&mut self, said: &Said, vpn: u64, pages: u64) -> Holds {
        match said {
            Said::Own => Holds::Own,
            Said::Zero => Holds::Zero,
            Said::Image { name, distinct } => {
                let image = self.image(name);
                let distinct = distinct.map_or(pages, |Pages(n)| n).max(1);
                Holds::Image { image, distinct, base: vpn }
            }
        }
    }
    /// The number of an image, by the order in which they first appear.
    pub(crate) fn image(&mut self, name: &str) -> u32 {
        let images = &mut self.merging.images;
        let known = images.iter().position(|i| i == name);
        known.unwrap_or_else(|| {
            images.push(name.to_owned());
            images.len() - 1
        }) as u32
    }
    /// A page that was just written holds this.
    pub(crate) fn fill(&mut self, page: u32, content: Content) {
        let w = Word(self.memory.words[page as usize]);
        if w.resident() && !w.shared() && !self.memory.blocks[(page / BLOCK) as usize].file {
            self.memory.set_content(page, content);
        }
    }

    // ── ksmd and its files ─────────────────────────────────────────────────────

    /// Writes to a file of `/sys/kernel/mm/ksm` as root, on behalf of `ctx`.
    ///
    /// # Errors
    /// [`KnobError`] with what the kernel's file answers.
    pub(crate) fn write_ksm(
        &mut self,
        ctx: &mut Ctx,
        name: &str,
        text: &str,
    ) -> Result<Written, KnobError> {
        let none = [0; KINDS];
        let done = self.with_ksm(ctx, &none, |ksm, mem| {
            let before = ksm.settings().sleep_millisecs;
            let done = ksm.write(mem, name, text);
            (done, ksm.settings().sleep_millisecs != before)
        });
        let (done, slept) = done;
        if let Ok(Written::Done { wakes: true }) = done {
            self.merging.wakes.work = true;
            self.merging.wakes.sleep |= slept;
        }
        done
    }
    /// One step of ksmd, which has run for `ran` picoseconds; charges `ctx` what it took.
    ///
    /// * `latency` – of one access from ksmd's CPU, by kind.
    pub(crate) fn ksmd_step(&mut self, ctx: &mut Ctx, latency: &CostTable, ran: u64) -> Step {
        let now = Self::ksm_now(ctx.clock, ran);
        let visit = self.prices[Cost::KsmVisit];
        self.with_ksm(ctx, latency, |ksm, mem| {
            let visits = |ksm: &Ksm| ksm.counters().pages_scanned + ksm.counters().pages_skipped;
            let before = visits(ksm);
            let step = ksm.step(mem, &now);
            // The end of a pass looks for a next page too.
            mem.ctx.clock += visit * (visits(ksm) - before).max(1);
            step
        })
    }
    /// What the rules take for the time at a moment of virtual time.
    pub(crate) fn ksm_now(clock: u64, ran: u64) -> Now {
        let boot = BOOT_JIFFIES * (TICK / 1000);
        Now { jiffies: Self::jiffies(clock), ns: boot + clock / 1000, ksmd_cpu_ns: ran / 1000 }
    }

    // ── What the rules see ─────────────────────────────────────────────────────

    fn mm_space(&self, mm: MmId) -> Option<usize> {
        self.merging.mms.get(mm.0 as usize).copied().filter(|s| *s != GONE)
    }
    /// The entry at an address of a mergeable mapping, if it maps an anonymous page.
    fn merge_entry(&self, mm: MmId, vpn: Vpn) -> Option<u32> {
        let s = self.space(self.mm_space(mm)?);
        let v = &s.vmas[s.find(vpn.0)?];
        if !v.kind.mergeable || v.kind.file {
            return None;
        }
        let page = s.place_in(&self.memory, v, vpn.0)?;
        let w = Word(self.memory.words[page as usize]);
        (w.resident() && !self.memory.is_zero_page(w)).then_some(page)
    }
    fn merge_item(&self, page: u32) -> Page {
        let w = Word(self.memory.words[page as usize]);
        Page(u64::from(if w.shared() { w.frame() | FRAME_ITEM } else { page }))
    }
    /// The first entry at or behind `from` in a mergeable mapping that `is` wants; else
    /// whether there is a mergeable mapping.
    fn merge_next(
        &self,
        mm: MmId,
        from: u64,
        is: impl Fn(&crate::memory::Memory, Word) -> bool,
    ) -> Result<(u64, u32), bool> {
        let Some(space) = self.mm_space(mm) else { return Err(false) };
        let s = self.space(space);
        let step = u64::from(BLOCK);
        let first = s.vmas.partition_point(|v| v.end <= from);
        for v in s.vmas[first..].iter().filter(|v| v.kind.mergeable && !v.kind.file) {
            let mut vpn = v.start.max(from);
            while vpn < v.end {
                let stop = ((vpn / step + 1) * step).min(v.end);
                if let Some(page) = s.place_in(&self.memory, v, vpn) {
                    let words = &self.memory.words[page as usize..];
                    let words = &words[..(stop - vpn) as usize];
                    let found = words.iter().position(|&w| {
                        let w = Word(w);
                        w.resident() && is(&self.memory, w)
                    });
                    if let Some(i) = found {
                        return Ok((vpn + i as u64, page + i as u32));
                    }
                }
                vpn = stop;
            }
        }
        Err(s.vmas.iter().any(|v| v.kind.mergeable))
    }
    fn merge_content(&self, page: Page) -> Content {
        self.memory.content(page.0 as u32)
    }

    /// The entry lets go of what it maps; it maps nothing now, and counts as it did.
    fn let_go(&mut self, entry: u32) {
        let w = Word(self.memory.words[entry as usize]);
        if w.shared() {
            let node = self.memory.node_of(self.memory.word(w.frame() | FRAME_ITEM).zone());
            if self.memory.unmap_frame(w.frame(), entry) {
                self.stat.add(node, Item::Pgfree, 1);
            }
        } else {
            self.memory.leave_list(entry);
            self.memory.forget_young(entry);
            self.memory.words[entry as usize] = 0;
            self.give(w.zone(), 1);
        }
    }
}

impl PageFacts for Kernel {
    fn lookup(&self, mm: MmId, vpn: Vpn) -> Option<Page> {
        Some(self.merge_item(self.merge_entry(mm, vpn)?))
    }
    fn order(&self, a: Page, b: Page) -> Ordering {
        self.merge_content(a).key().cmp(&self.merge_content(b).key())
    }
    fn node(&self, page: Page) -> NodeId {
        let zone = self.memory.word(page.0 as u32).zone();
        self.memory.node_id(self.memory.node_of(zone))
    }
    fn stable(&self, page: Page) -> Option<StableId> {
        let frame = (page.0 as u32 & FRAME_ITEM != 0).then_some(page.0 as u32 ^ FRAME_ITEM)?;
        match self.memory.contents.as_ref()?.merged(frame) {
            Merged::Node(n) => Some(StableId(n)),
            Merged::No | Merged::Frozen => None,
        }
    }
    fn keeps(&self, page: Page, node: StableId) -> bool {
        let item = page.0 as u32;
        item & FRAME_ITEM != 0
            && ((item ^ FRAME_ITEM) as usize) < self.memory.nr_frames()
            && !self.memory.mappers(item ^ FRAME_ITEM).is_empty()
            && self.stable(page) == Some(node)
    }
    fn mapcount(&self, page: Page) -> u32 {
        self.memory.nr_mappers(page.0 as u32)
    }
    fn huge(&self, page: Page) -> Option<u64> {
        let item = page.0 as u32;
        let block = item / BLOCK;
        (item & FRAME_ITEM == 0 && self.memory.blocks[block as usize].huge)
            .then_some(u64::from(block))
    }
}

/// The kernel's memory as the rules work on it, in somebody's context.
struct Merger<'a> {
    k: &'a mut Kernel,
    ctx: Ctx,
    latency: &'a CostTable,
    /// Time of looking at contents, in picoseconds.
    looks: Cell<u64>,
    /// Lines read, by zone.
    read: [Cell<u64>; ZONES_MAX],
}

impl Merger<'_> {
    /// Reads `lines` of a page; the time that one of them takes.
    fn read(&self, page: Page, lines: u64) -> u64 {
        let zone = self.k.memory.word(page.0 as u32).zone();
        let sum = &self.read[zone];
        sum.set(sum.get() + lines);
        self.latency[zone * 2]
    }
    /// Whole pages are read in order, with many lines under way, told in thousandths.
    fn stream(&self, page: Page) -> u64 {
        self.read(page, LINES) * LINES * 1000 / self.k.prices[Cost::StreamParallelism].max(1000)
    }
    fn took(&self, time: u64) {
        self.looks.set(self.looks.get() + time);
    }
    /// The entry that still maps `page`, out of any huge page.
    fn still(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<u32, Refusal> {
        let entry = self.k.merge_entry(mm, vpn).ok_or(Refusal::Gone)?;
        if self.k.merge_item(entry) != page {
            return Err(Refusal::Gone);
        }
        self.split(page);
        Ok(entry)
    }
}

impl Memory for Merger<'_> {
    fn pages(&self) -> &dyn PageFacts {
        &*self.k
    }
    fn next(&mut self, mm: MmId, from: Vpn) -> Next {
        match self.k.merge_next(mm, from.0, |m, w| !m.is_zero_page(w)) {
            Ok((vpn, entry)) => {
                let page = self.k.merge_item(entry);
                if page.0 as u32 & FRAME_ITEM == 0 {
                    // A visit looks at what the page holds: the next write must be seen.
                    self.k.memory.look_at(entry);
                }
                Next::Page { vpn: Vpn(vpn), page }
            }
            Err(mergeable) => Next::End { mergeable },
        }
    }
    fn compare(&self, a: Page, b: Page) -> Ordering {
        let (x, y) = (self.k.merge_content(a), self.k.merge_content(b));
        // Pages that differ do so in their first line, mostly; equal ones are read whole.
        let reads = if x == y {
            self.stream(a) + self.stream(b)
        } else {
            self.read(a, 1).max(self.read(b, 1))
        };
        self.took(self.k.prices[Cost::KsmCompare] + reads);
        self.k.order(a, b)
    }
    fn checksum(&self, page: Page) -> u32 {
        self.took(self.k.prices[Cost::KsmChecksum].max(self.stream(page)));
        self.k.merge_content(page).checksum()
    }
    fn zero_checksum(&self) -> u32 {
        Content::ZERO.checksum()
    }
    fn split(&mut self, page: Page) {
        if let Some(block) = self.k.huge(page) {
            self.k.split(block as u32 * BLOCK, Split::Page);
        }
    }
    fn freeze(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<Page, Refusal> {
        let entry = self.still(mm, vpn, page)?;
        let w = Word(self.k.memory.words[entry as usize]);
        let frame = if w.shared() {
            w.frame()
        } else {
            self.k.flush_entry(entry, 1);
            self.k.memory.forbid_write(entry);
            match self.k.memory.share(entry) {
                Ok(frame) => frame,
                Err(e) => {
                    self.k.merging.trouble.get_or_insert(e);
                    return Err(Refusal::Pinned);
                }
            }
        };
        if let Some(c) = &mut self.k.memory.contents {
            c.set_merged(frame, Merged::Frozen);
        }
        self.ctx.clock += self.k.prices[Cost::KsmMerge];
        Ok(Page(u64::from(frame | FRAME_ITEM)))
    }
    fn set_stable(&mut self, page: Page, node: Option<StableId>) {
        if let Some(c) = &mut self.k.memory.contents {
            let merged = node.map_or(Merged::Frozen, |n| Merged::Node(n.0));
            c.set_merged(page.0 as u32 ^ FRAME_ITEM, merged);
        }
    }
    fn replace(&mut self, mm: MmId, vpn: Vpn, page: Page, with: Page) -> Result<(), Refusal> {
        let entry = self.still(mm, vpn, page)?;
        if self.compare(page, with) != Ordering::Equal {
            return Err(Refusal::Changed);
        }
        // Protected against writes, and replaced.
        self.k.flush_entry(entry, 2);
        self.k.let_go(entry);
        let frame = with.0 as u32 ^ FRAME_ITEM;
        self.k.memory.map_frame(frame, entry, PRESENT, false);
        let w = Word(self.k.memory.words[entry as usize]);
        self.k.memory.words[entry as usize] = w.with_young(true).0;
        self.ctx.clock += self.k.prices[Cost::KsmMerge];
        Ok(())
    }
    fn map_zero(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<(), Refusal> {
        let entry = self.still(mm, vpn, page)?;
        self.took(self.stream(page));
        if self.k.merge_content(page) != Content::ZERO {
            return Err(Refusal::Changed);
        }
        self.k.flush_entry(entry, 2);
        self.k.let_go(entry);
        self.k.memory.map_zero(entry);
        let space = self.k.mm_space(mm).ok_or(Refusal::Gone)?;
        self.k.space_mut(space).rss -= 1;
        self.ctx.clock += self.k.prices[Cost::KsmZero];
        Ok(())
    }
    fn break_cow(&mut self, mm: MmId, vpn: Vpn) -> Result<(), BreakError> {
        let Some(space) = self.k.mm_space(mm) else { return Ok(()) };
        let Some(entry) = self.k.space(space).place(vpn.0, false) else { return Ok(()) };
        let w = Word(self.k.memory.words[entry as usize]);
        let (k, ctx) = (&mut *self.k, &mut self.ctx);
        let zero = k.memory.is_zero_page(w);
        let merged = w.resident() && w.shared() && k.memory.is_merged(w.frame());
        if !zero && !merged {
            return Ok(());
        }
        let at: Place = k.place(entry).map_err(|_| BreakError::NoMemory)?;
        // For the task that unmerges, as kernels do, or for one of the space's own.
        let mut whose = *ctx;
        if k.model.unmerge_target == UnmergeTarget::Home {
            if let Some(id) = k.numa.iter().rposition(|n| n.space == space) {
                (whose.task, whose.node) = (id, k.numa[id].node);
            }
        }
        if zero {
            k.zero_to_own(&mut whose, at, entry).map_err(no_memory)?;
            ctx.clock = whose.clock;
            k.memory.set_content(entry, Content::ZERO);
            return Ok(());
        }
        let content = k.memory.content(w.frame() | FRAME_ITEM);
        let kind = &k.space(space).vmas[at.vma].kind;
        let write = register::unmerged_writable(kind.writable, k.knobs.version);
        let copied = k.copy_frame(&mut whose, at, entry, w.frame(), write);
        ctx.clock = whose.clock;
        if copied.map_err(no_memory)? {
            k.memory.written(entry);
            k.memory.set_content(entry, content);
            k.count(ctx, Item::CowKsm, 1);
        }
        Ok(())
    }
    fn next_zero(&mut self, mm: MmId, from: Vpn) -> Option<Vpn> {
        let found = self.k.merge_next(mm, from.0, |m, w| m.is_zero_page(w));
        found.ok().map(|(vpn, _)| Vpn(vpn))
    }
}

fn no_memory(_: Fatal) -> BreakError {
    BreakError::NoMemory
}
