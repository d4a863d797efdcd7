//! Where the kernel asks its hooks, beside the places in faults and reclaim: who they
//! are, which page they are told of, and what they are asked at a tick.

use super::huge::Split;
use super::{Ctx, Kernel};
use crate::memory::{BLOCK, Memory};
use crate::ring::{Pmu, SampleSeen};
use homenode_core::costs::Cost;
use homenode_core::hooks::{Hooks, MakeHooks, PageAt, SampledAccess};
use homenode_core::offcore::Offcore;
use homenode_core::topology::Hardware;
use homenode_core::units::HUGE_PAGES;

/// What decides in this kernel.
pub(crate) struct Inside {
    pub(crate) rules: Box<dyn Hooks>,
    /// Whether a contender brought it, so that nothing is known of its verdicts.
    pub(crate) own: bool,
    /// Samples that they have not been told yet.
    pub(crate) samples: Vec<SampleSeen>,
    /// The CPUs' counters of loads, where they read them.
    pub(crate) offcore: Option<Offcore>,
}

impl Inside {
    pub(super) fn new(rules: Box<dyn Hooks>) -> Self {
        Self { rules, own: false, samples: Vec::new(), offcore: None }
    }
}

impl Kernel {
    /// Puts a contender's hooks in, with counters where they read them; the processor's sampling,
    /// where they want it.
    pub(crate) fn put_in(&mut self, make: MakeHooks, machine: &Hardware) -> Option<Box<Pmu>> {
        let rules = make(machine, self.knobs.version);
        let each = machine.costs.time(Cost::PmuSample).0;
        let sampling = rules.samples().then(|| Pmu::of_kernel(machine.cpus.len(), each));
        let offcore = rules.counts().then(Offcore::default);
        self.inside = Inside { own: true, offcore, ..Inside::new(rules) };
        sampling.map(Box::new)
    }

    /// At the tick of a running task: tells the counters and the samples since the last one and
    /// splits the huge pages that the hooks name, on the task's time.
    pub(super) fn ask_hooks(&mut self, ctx: &mut Ctx) {
        if !self.inside.own {
            return;
        }
        let now_ms = Self::ms(ctx.clock);
        if let Some(offcore) = &self.inside.offcore {
            self.inside.rules.counted(offcore, now_ms);
        }
        for SampleSeen { space, vpn, .. } in std::mem::take(&mut self.inside.samples) {
            let page = PageAt { space: space as u32, vpn };
            let Some(item) = self.item_at(page) else { continue };
            let on = self.memory.node_id(self.memory.node_of(self.memory.word(item).zone()));
            let huge = self.memory.pages_of(item) > 1;
            self.inside.rules.sampled(&SampledAccess { page, huge, on, now_ms });
        }
        while let Some(page) = self.inside.rules.next_split() {
            if let Some(head) = self.huge_at(page) {
                self.split_whole(ctx, head);
            }
        }
    }
    /// Splits a huge page because somebody wants it, on the context's time: it is unmapped once, and
    /// then an entry for each base page is written.
    ///
    /// Source: specs/huge-pages.md#split.
    fn split_whole(&mut self, ctx: &mut Ctx, head: u32) {
        ctx.clock += self.prices[Cost::MigratePage] + HUGE_PAGES * self.prices[Cost::PteMark];
        self.split(head, Split::Page);
    }
    /// Splits the huge page around `vpn`, as homenode asks for it; for how many pages up to `stop`
    /// that is the answer, and whether there was one. Where there is none, looking costs.
    pub(crate) fn split_ordered(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        (vpn, stop): (u64, u64),
    ) -> (u64, bool) {
        let end = stop.min((vpn / HUGE_PAGES + 1) * HUGE_PAGES);
        let head = self.huge_at(PageAt { space: space as u32, vpn });
        match head {
            Some(head) => self.split_whole(ctx, head),
            None => ctx.clock += self.prices[Cost::PageQuery],
        }
        (end - vpn, head.is_some())
    }
    /// Whether a huge page maps this page.
    pub(crate) fn is_huge(&self, space: usize, vpn: u64) -> bool {
        self.huge_at(PageAt { space: space as u32, vpn }).is_some()
    }
    /// The huge page that maps a page.
    fn huge_at(&self, page: PageAt) -> Option<u32> {
        self.item_at(page).filter(|&head| self.memory.pages_of(head) > 1)
    }
    /// The item behind a page of an address space, if it is in memory.
    fn item_at(&self, page: PageAt) -> Option<u32> {
        let space = self.spaces.get(page.space as usize)?.as_ref()?;
        let file = space.vmas[space.find(page.vpn)?].kind.file;
        let entry = space.place(page.vpn, file)?;
        let w = crate::page::Word(self.memory.words[entry as usize]);
        (w.resident() && !self.memory.is_zero_page(w)).then(|| self.memory.item_of(entry))
    }
}

/// An item as hooks are told of it: by its first mapping.
pub(super) fn page_at(memory: &Memory, item: u32) -> PageAt {
    let page = memory.first_mapper(item).unwrap_or(0);
    let block = memory.blocks[(page / BLOCK) as usize];
    let vpn = block.step * u64::from(BLOCK) + u64::from(page % BLOCK);
    PageAt { space: block.space.saturating_sub(1), vpn }
}
