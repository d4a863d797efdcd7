//! Faults: first touch, writes to read-only pages, pages on the swap device.

use super::{Cost, Ctx, Fatal, Kernel};
use crate::content::Content;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::{STAMP_UNSET, State, Word, YOUNG};
use crate::space::{Holds, wanted};
use crate::vmstat::Item;
use homenode_core::hooks::{NewPage, PageAt};
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::mglru::Arrives;
use homenode_core::units::{NodeId, Pages};

/// Where an entry lies in its address space.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) space: usize,
    /// In the space's mappings.
    pub(super) vma: usize,
    pub(super) vpn: u64,
}

impl Kernel {
    /// Makes an entry accessible for a read or write and marks it accessed; the
    /// zone that serves the access. Charges `ctx` for all but the access itself.
    pub(crate) fn touch(&mut self, ctx: &mut Ctx, page: u32, write: bool) -> Result<usize, Fatal> {
        loop {
            let w = Word(self.memory.words[page as usize]);
            match w.state() {
                State::Present if !write || w.writable() => {
                    self.memory.words[page as usize] |= YOUNG;
                    let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
                    return Ok(self.memory.word(item).zone());
                }
                State::Present if self.memory.disarm_for_write(page) => {}
                State::Present => self.write_fault(ctx, page)?,
                State::ProtNone => self.hint_fault(ctx, page)?,
                State::None => {
                    self.first_touch(ctx, page, write)?;
                    // What the mapping's pages hold is there by this very access: it must
                    // not count as a write to it.
                    if self.memory.contents.is_some() {
                        self.memory.words[page as usize] |= YOUNG;
                        return Ok(self.memory.word(page).zone());
                    }
                }
                State::Swapped => self.swap_in(ctx, page, write)?,
            }
        }
    }

    pub(super) fn place(&self, page: u32) -> Result<Place, Fatal> {
        let block = self.memory.blocks[(page / BLOCK) as usize];
        if block.space == 0 {
            return Err(Fatal::Segv);
        }
        let vpn = block.step * u64::from(BLOCK) + u64::from(page % BLOCK);
        let space = block.space as usize - 1;
        let vma = self.space(space).find(vpn).ok_or(Fatal::Segv)?;
        Ok(Place { space, vma, vpn })
    }

    /// The node that the mapping's policy, or the task's, wants for a page.
    pub(super) fn wants(&mut self, ctx: &Ctx, at: Place, n: u64) -> (NodeId, Option<Vec<NodeId>>) {
        let local = self.memory.node_id(ctx.node);
        let own = &self.spaces[at.space].as_ref().expect("placed").vmas[at.vma].kind.policy;
        let (policy, turn) = if *own == Mempolicy::Default && ctx.task != usize::MAX {
            let n = &mut self.numa[ctx.task];
            n.turn += 1;
            (&n.policy, n.turn - 1)
        } else {
            // A mapping's own policy interleaves by address, so that it doesn't
            // matter who touches first: page by page of the size that is asked for.
            (own, at.vpn / n)
        };
        let (node, only) = wanted(policy, local, turn);
        (node, only.map(<[_]>::to_vec))
    }
    /// The node that is asked first, by policies and a contender's rules, and those that may serve.
    pub(super) fn asked(&mut self, ctx: &Ctx, at: Place, n: u64) -> (NodeId, Option<Vec<NodeId>>) {
        let (mut node, only) = self.wants(ctx, at, n);
        let kind = &self.space(at.space).vmas[at.vma].kind;
        let own = kind.policy == Mempolicy::Default && ctx.task != usize::MAX;
        if own && self.numa[ctx.task].policy == Mempolicy::Default {
            let page = PageAt { space: at.space as u32, vpn: at.vpn };
            let below = self.demote_to[ctx.node].first().map(|&to| self.memory.node_id(to));
            let (file, nr_pages) = (kind.file, Pages(n));
            let new = NewPage { page, file, nr_pages, local: node, below };
            node = self.inside.rules.new_page(&new);
        }
        (node, only)
    }
    /// Allocates for an entry.
    fn page_for(&mut self, ctx: &mut Ctx, at: Place) -> Option<usize> {
        let (node, only) = self.asked(ctx, at, 1);
        self.allocate(ctx, node, only.as_deref())
    }
    /// Puts a new page behind an entry: on the inactive list, as new pages are, or in the
    /// generation that its arrival asks for.
    fn install(&mut self, at: Place, page: u32, zone: usize, write: bool) {
        self.install_as(at, page, zone, write, Arrives::Fault);
    }
    fn install_as(&mut self, at: Place, page: u32, zone: usize, write: bool, how: Arrives) {
        self.memory.words[page as usize] = Word::mapped(zone, write).0;
        self.memory.blocks[(page / BLOCK) as usize].table = true;
        self.memory.forget_young(page);
        let node = self.memory.node_of(zone);
        let listed = self.arrival(self.memory.is_file(page), node, how, None);
        self.memory.enter_list(page, node, listed);
        self.space_mut(at.space).rss += 1;
    }

    /// The first access to a page. A read allocates too: the kernel would map the
    /// zero page until the first write (specs/exceptions/zero-page.md).
    fn first_touch(&mut self, ctx: &mut Ctx, page: u32, write: bool) -> Result<(), Fatal> {
        let at = self.place(page)?;
        self.count(ctx, Item::Pgfault, 1);
        let (writable, file, huge) = {
            let v = &self.space(at.space).vmas[at.vma];
            if write && !v.kind.writable || !write && !v.kind.readable {
                return Err(Fatal::Segv);
            }
            // Clean pages of a file wait for a write fault; anonymous ones don't.
            (v.kind.writable, v.kind.file, self.wants_huge(v, at.vpn))
        };
        if huge && self.first_huge(ctx, at, page & !(BLOCK - 1)) {
            return Ok(());
        }
        let zone = self.page_for(ctx, at).ok_or(Fatal::Oom)?;
        self.install(at, page, zone, writable && (write || !file));
        self.first_content(at, page, 1);
        ctx.clock += self.prices[Cost::MinorFault];
        Ok(())
    }
    /// New pages of a mapping hold what it says.
    pub(super) fn first_content(&mut self, at: Place, page: u32, n: u32) {
        if self.memory.contents.is_none() {
            return;
        }
        let k = &self.space(at.space).vmas[at.vma].kind;
        let holds = if k.file || k.shared { Holds::Own } else { k.holds };
        let first = at.vpn - at.vpn % u64::from(n);
        for i in 0..n {
            self.memory.set_content(page + i, holds.at(first + u64::from(i)));
        }
    }

    /// A write to a page that is mapped read-only.
    fn write_fault(&mut self, ctx: &mut Ctx, page: u32) -> Result<(), Fatal> {
        let at = self.place(page)?;
        self.count(ctx, Item::Pgfault, 1);
        let (writable, shared) = {
            let k = &self.space(at.space).vmas[at.vma].kind;
            (k.writable, k.shared)
        };
        if !writable {
            return Err(Fatal::Segv);
        }
        let w = Word(self.memory.words[page as usize]);
        if w.shared() && !shared {
            let frame = w.frame();
            if self.memory.is_zero_page(w) {
                let mm = self.space(at.space).mm;
                self.zero_to_own(ctx, at, page)?;
                self.zero_pages_changed(mm, -1);
                return Ok(());
            }
            // A merged page is never written, also not by its last mapper.
            if self.memory.mappers(frame).len() > 1 || self.memory.is_merged(frame) {
                return self.copy_on_write(ctx, at, page, frame);
            }
            self.memory.unshare(frame);
        }
        let w = Word(self.memory.words[page as usize]).with_write(true);
        let entries = self.memory.entries(page);
        for w in &mut self.memory.words[entries.clone()] {
            *w = Word(*w).with_write(true).0;
        }
        // Writes to the other parts of a huge page are seen where it matters what they hold.
        if self.memory.contents.is_some() {
            for part in entries.map(|p| p as u32).filter(|&p| p != page) {
                self.memory.set_content(part, self.memory.content(part));
            }
        }
        // The page is used on from here by one process: its past is forgotten.
        if !w.shared() {
            self.memory.written(page);
            let item = self.memory.item_of(page);
            self.memory.set_word(item, self.memory.word(item).with_stamp(STAMP_UNSET));
        }
        ctx.clock += self.prices[Cost::HintFault];
        Ok(())
    }
    /// An entry of a frame gets a copy that is written to.
    fn copy_on_write(
        &mut self,
        ctx: &mut Ctx,
        at: Place,
        page: u32,
        frame: u32,
    ) -> Result<(), Fatal> {
        let merged = self.memory.is_merged(frame);
        if self.copy_frame(ctx, at, page, frame, true)? {
            self.memory.set_content(page, Content::OWN);
            self.count(ctx, Item::CowKsm, u64::from(merged));
        }
        Ok(())
    }
    /// An entry of a frame gets a copy; false if the frame is no longer there.
    pub(super) fn copy_frame(
        &mut self,
        ctx: &mut Ctx,
        at: Place,
        page: u32,
        frame: u32,
        write: bool,
    ) -> Result<bool, Fatal> {
        let zone = self.page_for(ctx, at).ok_or(Fatal::Oom)?;
        // Reclaim on the way may have taken the old page to the swap device.
        let still = Word(self.memory.words[page as usize]);
        if !(still.resident() && still.shared() && still.frame() == frame) {
            self.give(zone, 1);
            return Ok(false);
        }
        let old = self.memory.node_of(self.memory.word(frame | FRAME_ITEM).zone());
        if self.memory.unmap_frame(frame, page) {
            self.stat.add(old, Item::Pgfree, 1);
        }
        self.space_mut(at.space).rss -= 1;
        self.install(at, page, zone, write);
        ctx.clock += self.prices[Cost::MinorFault] + self.prices[Cost::PageCopy];
        Ok(true)
    }
    /// An entry of the page of zeroes gets a page of its own: zeroed, as at a first touch.
    pub(super) fn zero_to_own(&mut self, ctx: &mut Ctx, at: Place, page: u32) -> Result<(), Fatal> {
        let zone = self.page_for(ctx, at).ok_or(Fatal::Oom)?;
        self.install(at, page, zone, true);
        self.memory.set_content(page, Content::OWN);
        ctx.clock += self.prices[Cost::MinorFault];
        Ok(())
    }

    /// A page comes back from the swap device, or a dropped page of a file is read.
    pub(super) fn swap_in(&mut self, ctx: &mut Ctx, page: u32, write: bool) -> Result<(), Fatal> {
        let at = self.place(page)?;
        let (readable, writable, file, shared) = {
            let k = &self.space(at.space).vmas[at.vma].kind;
            (k.readable, k.writable, k.file, k.shared)
        };
        if write && !writable || !write && !readable {
            return Err(Fatal::Segv);
        }
        let zone = self.page_for(ctx, at).ok_or(Fatal::Oom)?;
        self.count(ctx, Item::Pgfault, 1);
        self.count(ctx, Item::Pgmajfault, 1);
        let left = Word(std::mem::take(&mut self.memory.words[page as usize]));
        // What came back so soon had better stayed.
        let how = self.comes_back(left, self.memory.node_of(zone), file);
        self.install_as(at, page, zone, writable && (write || !file), how);
        if let Some(c) = &self.memory.contents {
            // Each side of what was merged reads a page of its own: only the one that
            // comes first has the page of the swap cache itself.
            let (held, copy) = (c.known(page), c.is_copy(page));
            let held = if file || shared { Content::OWN } else { held };
            self.memory.set_content(page, held);
            self.count(ctx, Item::KsmSwpinCopy, u64::from(copy));
        }
        if !file {
            self.drop_slot();
            self.count(ctx, Item::Pswpin, 1);
        }
        ctx.clock += self.prices[Cost::MinorFault] + self.prices[Cost::SwapIn];
        Ok(())
    }
}
