//! Mappings: made, given back, copied by fork.

use super::huge::Split;
use super::{Cost, Ctx, Kernel};
use crate::memory::{BLOCK, MemoryError};
use crate::page::{PRESENT, State, Word};
use crate::space::{Kind, Space, Vma};
use crate::vmstat::Item;
use homenode_core::numa::scan::MmScan;
use homenode_core::numa::window::{PolicyKind, policy_migrates};
use homenode_core::scenario::Mempolicy;
use homenode_core::units::{HUGE_PAGES, PAGE_SIZE};

/// A mapping to be made.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// Time of a system call on mappings beside what it does per page: about that of
/// a small `mmap` (assumed; no figure in a machine's file).
pub(super) const CALL: u64 = 1_000_000;

impl Kernel {
    /// A new address space; its number.
    pub(crate) fn new_space(&mut self) -> usize {
        let number = self.spaces.len();
        self.spaces.push(Some(Space::new(number as u32)));
        self.spaces_ran.push(0);
        number
    }

    /// What the scan makes of a mapping's policy, or the task's where it has none.
    fn scannable(&self, own: &Mempolicy, task: &Mempolicy) -> bool {
        let effective = if *own == Mempolicy::Default { task } else { own };
        let kind = match effective {
            Mempolicy::Default => PolicyKind::Default,
            Mempolicy::Bind { balancing: true, .. } => PolicyKind::BindBalancing,
            _ => PolicyKind::Explicit,
        };
        policy_migrates(kind, self.knobs.version)
    }

    /// Maps anew; what was there before is given back.
    pub(crate) fn map(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        m: Mapping,
        task_policy: &Mempolicy,
    ) -> Result<(), MemoryError> {
        self.lock_mappings(ctx, space);
        ctx.clock += CALL;
        self.unmap_quietly(ctx, space, m.start, m.start + m.pages);
        let policy_migrates = self.scannable(&m.kind.policy, task_policy);
        let (start, end, file) = (m.start, m.start + m.pages, m.kind.file);
        let mut m = m;
        self.merge_map(space, &mut m.kind)?;
        let Self { memory, spaces, .. } = self;
        let s = spaces[space].as_mut().expect("a task's space lives");
        s.reserve(memory, start, end, file)?;
        s.insert(Vma {
            start,
            end,
            kind: m.kind,
            name: m.name,
            scan: None,
            policy_migrates,
            hint: 0,
        });
        self.khugepaged_meets(space, start);
        Ok(())
    }

    /// Gives a range back.
    pub(crate) fn unmap(&mut self, ctx: &mut Ctx, space: usize, start: u64, end: u64) {
        self.lock_mappings(ctx, space);
        ctx.clock += CALL;
        self.unmap_quietly(ctx, space, start, end);
    }
    /// Whoever changes mappings waits for a scan that reads them.
    ///
    /// Source: specs/remote-flush.md#lock.
    fn lock_mappings(&self, ctx: &mut Ctx, space: usize) {
        ctx.clock = ctx.clock.max(self.space(space).read_until);
    }
    fn unmap_quietly(&mut self, ctx: &mut Ctx, space: usize, start: u64, end: u64) {
        let gone: Vec<Vma> = {
            let s = self.space_mut(space);
            let range = s.carve(start, end);
            s.vmas.drain(range).collect()
        };
        for v in &gone {
            self.zap(ctx, space, v.start, v.end, v.kind.file);
        }
        // Only now: two of them may have pages in one block.
        for v in gone {
            let Self { memory, spaces, .. } = self;
            let s = spaces[space].as_mut().expect("a task's space lives");
            s.release(memory, v.start, v.end, v.kind.file);
        }
    }
    /// Gives the contents of a range up; the mappings stay.
    pub(crate) fn discard(&mut self, ctx: &mut Ctx, space: usize, start: u64, end: u64) {
        ctx.clock += CALL;
        let kinds: Vec<(u64, u64, bool)> = {
            let s = self.space(space);
            let inside = s.vmas.iter().filter(|v| v.start < end && v.end > start);
            inside.map(|v| (v.start.max(start), v.end.min(end), v.kind.file)).collect()
        };
        for (a, b, file) in kinds {
            self.zap(ctx, space, a, b, file);
        }
    }
    /// Frees what a range holds.
    fn zap(&mut self, ctx: &mut Ctx, space: usize, start: u64, end: u64, file: bool) {
        let mut vpn = start;
        while vpn < end {
            let next = (vpn / HUGE_PAGES + 1) * HUGE_PAGES;
            let stop = next.min(end);
            if let Some(first) = self.space(space).place(vpn, file) {
                let huge = self.memory.blocks[(first / BLOCK) as usize].huge;
                if huge && stop - vpn == HUGE_PAGES {
                    self.free_huge(ctx, space, first);
                    vpn = stop;
                    continue;
                }
                for page in first..first + (stop - vpn) as u32 {
                    if self.memory.words[page as usize] != 0 {
                        self.free_entry(ctx, space, page);
                    }
                }
            }
            vpn = stop;
        }
    }
    /// Frees a huge page with the one entry that maps it.
    fn free_huge(&mut self, ctx: &mut Ctx, space: usize, head: u32) {
        self.memory.leave_list(head);
        let zone = self.memory.word(head).zone();
        self.memory.words[head as usize..(head + BLOCK) as usize].fill(0);
        self.memory.blocks[(head / BLOCK) as usize].huge = false;
        self.space_mut(space).rss -= HUGE_PAGES;
        self.give(zone, HUGE_PAGES);
        ctx.clock += self.prices[Cost::PteScan];
    }
    /// Clears one entry and frees its page if that was the last mapping.
    fn free_entry(&mut self, ctx: &mut Ctx, space: usize, page: u32) {
        let w = Word(self.memory.words[page as usize]);
        match w.state() {
            State::None => {}
            State::Swapped => {
                if !self.memory.blocks[(page / BLOCK) as usize].file {
                    self.drop_slot();
                }
                self.memory.words[page as usize] = 0;
            }
            State::Present | State::ProtNone => {
                if self.memory.is_zero_page(w) {
                    self.memory.words[page as usize] = 0;
                    let mm = self.space(space).mm;
                    self.zero_pages_changed(mm, -1);
                    ctx.clock += self.prices[Cost::PteScan];
                    return;
                }
                self.space_mut(space).rss -= 1;
                if w.shared() {
                    let zone = self.memory.word(self.memory.item_of(page)).zone();
                    let node = self.memory.node_of(zone);
                    if self.memory.unmap_frame(w.frame(), page) {
                        self.stat.add(node, Item::Pgfree, 1);
                    }
                } else {
                    if self.memory.blocks[(page / BLOCK) as usize].huge {
                        self.split(page & !(BLOCK - 1), Split::Mapping);
                    }
                    let w = Word(self.memory.words[page as usize]);
                    self.memory.leave_list(page);
                    self.memory.words[page as usize] = 0;
                    self.give(w.zone(), 1);
                }
            }
        }
        // Clearing an entry is a share of a scan's look at it.
        ctx.clock += self.prices[Cost::PteScan];
    }

    /// The policy of a range becomes `policy`, as by `mbind` without moving.
    pub(crate) fn mbind(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        start: u64,
        end: u64,
        policy: &Mempolicy,
        task_policy: &Mempolicy,
    ) {
        self.lock_mappings(ctx, space);
        ctx.clock += CALL;
        // EINVAL where no node of it has memory: what was there stays.
        let Some(policy) = self.settable(policy) else { return };
        let scannable = self.scannable(&policy, task_policy);
        self.split_at(space, [start, end]);
        let s = self.space_mut(space);
        let range = s.carve(start, end);
        for v in &mut s.vmas[range] {
            v.kind.policy = policy.clone();
            v.policy_migrates = scannable;
        }
    }
    /// The protection of a range.
    pub(crate) fn protect(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        start: u64,
        end: u64,
        read: bool,
        write: bool,
        exec: bool,
    ) {
        self.lock_mappings(ctx, space);
        ctx.clock += CALL;
        self.split_at(space, [start, end]);
        let s = self.space_mut(space);
        let range = s.carve(start, end);
        let mut narrowed = Vec::new();
        for v in &mut s.vmas[range] {
            if v.kind.writable && !write {
                narrowed.push((v.start, v.end, v.kind.file));
            }
            (v.kind.readable, v.kind.writable, v.kind.executable) = (read, write, exec);
        }
        // Entries lose their write bit; a later write faults and finds it allowed or not.
        for (a, b, file) in narrowed {
            for vpn in a..b {
                if let Some(page) = self.space(space).place(vpn, file) {
                    let w = Word(self.memory.words[page as usize]);
                    if w.resident() {
                        self.memory.forbid_write(page);
                    }
                }
            }
        }
    }

    /// A copy of an address space, as fork makes it: private pages become shared
    /// frames, read-only on both sides. The child's mappings begin anew with the scan.
    ///
    /// Where Linux does otherwise: specs/exceptions/fork-huge.md,
    /// specs/exceptions/fork-order.md, specs/exceptions/fork-protnone.md,
    /// specs/exceptions/shared-mappings.md, specs/exceptions/shared-swap.md.
    pub(crate) fn fork_space(
        &mut self,
        ctx: &mut Ctx,
        parent: usize,
    ) -> Result<usize, MemoryError> {
        self.lock_mappings(ctx, parent);
        let child = self.new_space();
        let mut zeroes = 0;
        let vmas = self.space(parent).vmas.clone();
        let scan = self.space(parent).scan.inherited();
        let turn = self.space(parent).turn;
        for v in vmas {
            let (start, end, file) = (v.start, v.end, v.kind.file);
            let keeps_write = v.kind.shared;
            let Self { memory, spaces, .. } = self;
            let s = spaces[child].as_mut().expect("made above");
            s.reserve(memory, start, end, file)?;
            s.insert(Vma { scan: None, ..v });
            for vpn in start..end {
                let from = self.space(parent).place(vpn, file).expect("mapped pages have a place");
                let w = Word(self.memory.words[from as usize]);
                if w.state() == State::None {
                    continue;
                }
                let to = self.space(child).place(vpn, file).expect("reserved above");
                ctx.clock += self.prices[Cost::PteScan];
                self.memory.blocks[(to / BLOCK) as usize].table = true;
                if w.state() == State::Swapped {
                    // The entry is copied; each side reads a page of its own later.
                    self.memory.words[to as usize] = w.0;
                    if let Some(c) = self.memory.contents.as_mut().filter(|_| !file) {
                        // Both sides will read the same.
                        c.pin_down(from);
                        c.carry(from, to);
                    }
                    if !file {
                        self.hold_slot_again();
                    }
                    continue;
                }
                if self.memory.is_zero_page(w) {
                    self.memory.map_zero(to);
                    zeroes += 1;
                    continue;
                }
                if self.memory.blocks[(from / BLOCK) as usize].huge {
                    self.split(from & !(BLOCK - 1), Split::Mapping);
                }
                let w = Word(self.memory.words[from as usize]);
                let frame = if w.shared() { w.frame() } else { self.memory.share(from)? };
                let entry = Word(self.memory.words[from as usize]);
                let write = keeps_write && entry.writable();
                self.memory.words[from as usize] = entry.with_write(write).0;
                self.memory.map_frame(frame, to, PRESENT, write);
                self.space_mut(child).rss += 1;
            }
        }
        let merge_any = self.space(parent).merge_any;
        let c = self.space_mut(child);
        c.scan = scan;
        c.turn = turn;
        c.merge_any = merge_any;
        self.khugepaged_forked(parent, child);
        self.merge_fork(parent, child, zeroes)?;
        Ok(child)
    }

    /// Moves a mapping with its pages, as `mremap` does.
    pub(crate) fn remap(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        start: u64,
        pages: u64,
        to: u64,
    ) -> Result<(), MemoryError> {
        self.lock_mappings(ctx, space);
        ctx.clock += CALL;
        // What moves is unmerged first; without memory for that, nothing moves.
        if start == to || pages == 0 || self.unmerge(ctx, space, start, start + pages).is_err() {
            return Ok(());
        }
        self.unmap_quietly(ctx, space, to, to + pages);
        let parts: Vec<Vma> = {
            let s = self.space_mut(space);
            let range = s.carve(start, start + pages);
            s.vmas.drain(range).collect()
        };
        let mut left = Vec::new();
        for v in parts {
            let (from, file, len) = (v.start, v.kind.file, v.pages());
            let at = to + (v.start - start);
            {
                let Self { memory, spaces, .. } = self;
                let s = spaces[space].as_mut().expect("a task's space lives");
                s.reserve(memory, at, at + len, file)?;
                let kind = Kind { holds: v.kind.holds.moved(v.start, at), ..v.kind.clone() };
                s.insert(Vma { start: at, end: at + len, scan: None, kind, ..v });
            }
            for i in 0..len {
                let (Some(a), Some(b)) = (
                    self.space(space).place(from + i, file),
                    self.space(space).place(at + i, file),
                ) else {
                    continue;
                };
                self.move_entry(a, b);
                ctx.clock += self.prices[Cost::PteScan];
            }
            left.push((from, from + len, file));
        }
        // Only now: two of them may have pages in one block.
        for (start, end, file) in left {
            let Self { memory, spaces, .. } = self;
            let s = spaces[space].as_mut().expect("a task's space lives");
            s.release(memory, start, end, file);
        }
        Ok(())
    }
    /// The page behind one entry is behind another from now on.
    fn move_entry(&mut self, from: u32, to: u32) {
        let w = Word(self.memory.words[from as usize]);
        if w.state() == State::None {
            return;
        }
        self.memory.blocks[(to / BLOCK) as usize].table = true;
        if w.resident() && !w.shared() {
            if self.memory.blocks[(from / BLOCK) as usize].huge {
                self.split(from & !(BLOCK - 1), Split::Mapping);
            }
            let listed = self.memory.leave_list(from);
            if let Some(c) = &mut self.memory.contents {
                c.carry(from, to);
            }
            let w = self.memory.word(from);
            self.memory.words[from as usize] = 0;
            self.memory.words[to as usize] = w.0;
            if !self.memory.kept_young.is_empty() && self.memory.kept_young.remove(&from) {
                self.memory.kept_young.insert(to);
            }
            if let Some(at) = listed {
                let node = self.memory.node_of(w.zone());
                self.memory.enter_list(to, node, at);
            }
        } else {
            if w.shared() && w.resident() {
                self.memory.remap_frame(w.frame(), from, to);
            } else if let Some(c) = &mut self.memory.contents {
                c.carry(from, to);
            }
            self.memory.words[to as usize] = w.0;
            self.memory.words[from as usize] = 0;
        }
    }
    /// Another program: nothing of the old mappings stays, and the space is new to
    /// the scan (specs/numa.md#fork).
    pub(crate) fn exec_space(&mut self, ctx: &mut Ctx, space: usize) -> Result<(), MemoryError> {
        self.unmap_quietly(ctx, space, 0, u64::MAX / PAGE_SIZE);
        self.khugepaged_leaves(space);
        let now = Self::jiffies(ctx.clock);
        let slow_start = self.model.slow_start;
        self.space_mut(space).scan = MmScan::at_exec(slow_start, now);
        self.merge_exec(space)
    }

    /// The last task of a space has gone: everything is freed.
    pub(crate) fn drop_space(&mut self, ctx: &mut Ctx, space: usize) {
        self.unmap_quietly(ctx, space, 0, u64::MAX / PAGE_SIZE);
        debug_assert_eq!(self.space(space).rss, 0);
        self.khugepaged_leaves(space);
        self.merge_exit(space);
        self.spaces[space] = None;
    }
}
