//! Huge pages: who gets one at a first touch, where it comes from, how it is split.

use super::alloc::Mark;
use super::fault::Place;
use super::{Cost, Ctx, Kernel, Reclaimer};
use crate::memory::BLOCK;
use crate::page::{SHARED, Word};
use crate::space::Vma;
use crate::vmstat::Item;
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::mglru::Arrives;
use homenode_core::units::HUGE_PAGES;

/// What of a huge page is split, which is what Linux counts.
///
/// Source: specs/huge-pages.md#split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Its entry only: a part of the mapping goes or changes.
    Mapping,
    /// The page, with its entry.
    Page,
}

/// What reclaim for a huge page wants: room enough to compact into.
pub(super) const COMPACT_GAP: u64 = 2 * HUGE_PAGES;

impl Kernel {
    /// Whether a mapping may have a huge page around `vpn`.
    ///
    /// Source: specs/huge-pages.md#who.
    pub(super) fn wants_huge(&self, v: &Vma, vpn: u64) -> bool {
        let start = vpn & !(HUGE_PAGES - 1);
        self.may_be_huge(v) && v.start <= start && start + HUGE_PAGES <= v.end
    }
    /// Whether knob, advice and kind of a mapping allow huge pages.
    pub(crate) fn may_be_huge(&self, v: &Vma) -> bool {
        !v.kind.file && !v.kind.shared && self.knobs.transparent_hugepage.allow(v.kind.huge)
    }

    /// A program asks for huge pages in the mapping at `vpn`, or forbids them, as by
    /// `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`. What is there stays.
    ///
    /// Source: specs/huge-pages.md#khugepaged.
    pub(crate) fn advise_huge(&mut self, space: usize, vpn: u64, huge: bool) {
        let s = self.space_mut(space);
        let Some(vma) = s.find(vpn) else { return };
        s.vmas[vma].kind.huge = Some(huge);
        self.khugepaged_meets(space, vpn);
    }
    /// A first touch where a huge page may be; whether it got one.
    ///
    /// Source: specs/huge-pages.md#fault.
    pub(super) fn first_huge(&mut self, ctx: &mut Ctx, at: Place, head: u32) -> bool {
        let block = (head / BLOCK) as usize;
        if self.memory.blocks[block].table {
            return false;
        }
        debug_assert!(!self.memory.blocks[block].huge);
        self.khugepaged_meets(at.space, at.vpn);
        let Some(zone) = self.allocate_huge(ctx, at) else {
            self.count(ctx, Item::ThpFaultFallback, 1);
            return false;
        };
        let range = head as usize..(head + BLOCK) as usize;
        let writable = self.space(at.space).vmas[at.vma].kind.writable;
        self.memory.words[range].fill(Word::mapped(zone, writable).with_young(false).0);
        self.memory.blocks[block].huge = true;
        self.first_content(at, head, BLOCK);
        self.memory.forget_young(head);
        let node = self.memory.node_of(zone);
        let listed = self.arrival(false, node, Arrives::Fault, None);
        self.memory.enter_list(head, node, listed);
        self.space_mut(at.space).rss += HUGE_PAGES;
        self.count(ctx, Item::ThpFaultAlloc, 1);
        ctx.clock +=
            self.prices[Cost::MinorFault] + (HUGE_PAGES - 1) * self.prices[Cost::PageCopy] / 2;
        true
    }
    /// Takes a huge page's 512 pages for a fault, as `defrag` says; the zone.
    fn allocate_huge(&mut self, ctx: &mut Ctx, at: Place) -> Option<usize> {
        let (wanted, only) = self.asked(ctx, at, HUGE_PAGES);
        let order = self.nodes_for(wanted, only.as_deref());
        let kind = &self.space(at.space).vmas[at.vma].kind;
        let advised = kind.huge == Some(true);
        let policy = match &kind.policy {
            Mempolicy::Default if ctx.task != usize::MAX => &self.numa[ctx.task].policy,
            own => own,
        };
        // Policies that interleave, or bind elsewhere, take whatever node they allow.
        let one = match policy {
            Mempolicy::Interleave(_) | Mempolicy::WeightedInterleave(_) => false,
            Mempolicy::Bind { nodes, .. } => nodes.contains(&self.memory.node_id(ctx.node)),
            Mempolicy::Default | Mempolicy::Local | Mempolicy::Preferred(_) => true,
        };
        let defrag = self.knobs.transparent_hugepage_defrag;
        let (reclaims, wakes) = (defrag.reclaims(advised), defrag.wakes_kswapd(advised));
        let start = *order.first()?;
        let first = self.place_of(wanted);
        let own: Vec<usize> = order.iter().copied().filter(|&p| p == first).collect();
        let mut zone = None;
        if one {
            zone = self.take_huge(&own, wakes);
        }
        if zone.is_none() && (!one || reclaims) {
            zone = self.take_huge(&order, wakes);
            if zone.is_none() && reclaims {
                self.reclaim_for_huge(ctx, &order, Reclaimer::Direct);
                zone = order.iter().find_map(|&p| self.take_from(p, HUGE_PAGES, Mark::Min));
            }
        }
        let zone = zone?;
        self.count_allocated(ctx, zone, start);
        Some(zone)
    }
    /// Takes 512 pages of one of some nodes, at their low marks, then at their min: any pages,
    /// specs/exceptions/huge-contiguous.md. What else is left out: specs/huge-pages.md#not.
    pub(super) fn take_huge(&mut self, nodes: &[usize], wakes: bool) -> Option<usize> {
        let low = nodes.iter().find_map(|&p| self.take_from(p, HUGE_PAGES, Mark::Low));
        if low.is_some() {
            return low;
        }
        for &node in nodes.iter().filter(|_| wakes) {
            self.wake_kswapd_for(node, HUGE_PAGES);
        }
        nodes.iter().find_map(|&p| self.take_from(p, HUGE_PAGES, Mark::Min))
    }
    /// Reclaims once for a huge page.
    pub(super) fn reclaim_for_huge(&mut self, ctx: &mut Ctx, nodes: &[usize], who: Reclaimer) {
        let mut got = 0;
        while got < COMPACT_GAP {
            match self.direct_reclaim(ctx, nodes, who) {
                0 => return,
                n => got += n,
            }
        }
    }

    /// Splits a huge page into its base pages. Each gets the list of the whole, and counts as
    /// used if the whole was.
    ///
    /// Source: specs/huge-pages.md#split.
    pub(super) fn split(&mut self, head: u32, what: Split) {
        let node = self.memory.node_of(self.memory.word(head).zone());
        if what == Split::Page {
            self.flush_for(head, 1);
        }
        let listed = self.memory.leave_list(head);
        let (w, young) = (self.memory.word(head), self.memory.is_young(head));
        let block = &mut self.memory.blocks[(head / BLOCK) as usize];
        (block.huge, block.table) = (false, true);
        for page in head..head + BLOCK {
            debug_assert!(self.memory.words[page as usize] & SHARED == 0);
            let part = self.memory.word(page).with_stamp(w.stamp()).with_young(young);
            self.memory.set_word(page, part);
            if let Some(at) = listed {
                self.memory.enter_list(page, node, at);
            }
        }
        self.stat.add(node, Item::ThpSplitPage, u64::from(what == Split::Page));
        self.stat.add(node, Item::ThpSplitPmd, 1);
    }
    /// Splits huge pages that a mapping's new border would go through. Linux waits for pressure:
    /// specs/exceptions/huge-deferred.md.
    pub(super) fn split_at(&mut self, space: usize, borders: [u64; 2]) {
        for vpn in borders {
            let Some(page) = self.space(space).place(vpn, false) else { continue };
            let head = page & !(BLOCK - 1);
            if page != head && self.memory.blocks[(page / BLOCK) as usize].huge {
                self.split(head, Split::Mapping);
            }
        }
    }
}
