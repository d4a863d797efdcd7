//! One task on a booted machine, driven call by call.

use crate::build::Setup;
use crate::check::Checker;
use crate::kernel::{Ctx, Fatal, Mapping};
use crate::memory::FRAME_ITEM;
use crate::page::Word;
use crate::program::Ids;
use crate::sched::Terms;
use crate::simulation::Simulation;
use crate::space::{Holds, Kind};
use crate::tasks::Kind as TaskKind;
use crate::vmstat::Item;
use homenode_core::scenario::Mempolicy;
use homenode_core::topology::Hardware;

/// Active and inactive lists instead of generations: for tests of what they do.
pub(super) const LISTS: (&str, &str) = ("lru_gen", "n");

pub(super) struct Bench {
    pub(super) sim: Simulation,
    pub(super) ctx: Ctx,
    pub(super) space: usize,
    checker: Checker,
}

pub(super) fn kind() -> Kind {
    Kind {
        file: false,
        shared: false,
        readable: true,
        writable: true,
        executable: false,
        huge: Some(false),
        policy: Mempolicy::Default,
        holds: Holds::Own,
        mergeable: false,
        map: None,
    }
}

impl Bench {
    pub(super) fn new(machine: &Hardware, knobs: &[(&str, &str)]) -> Self {
        Self::with(machine, Setup { knobs: super::support::knobs(knobs), ..Setup::default() })
    }
    pub(super) fn with(machine: &Hardware, setup: Setup) -> Self {
        let mut sim = Simulation::boot(machine, &setup, 1 << 20).expect("it boots");
        let checker = Checker::watch(&mut sim);
        let process = sim.add_program("bench");
        let space = sim.kernel.new_space();
        let task = sim.new_task(
            TaskKind::Thread,
            process,
            space,
            0,
            &Terms::default(),
            Box::new(Ids::new([].into())),
        );
        sim.kernel.space_mut(space).users = 1;
        let cpu = machine.cpus[0].id.0;
        let ctx = Ctx { task, node: 0, cpu, clock: 0 };
        Self { sim, ctx, space, checker }
    }
    /// Maps and returns the first page's place.
    pub(super) fn map(&mut self, pages: u64, kind: Kind) -> u32 {
        let start = self.sim.kernel.space(self.space).above();
        self.map_at(start, pages, kind)
    }
    pub(super) fn map_at(&mut self, start: u64, pages: u64, kind: Kind) -> u32 {
        let file = kind.file;
        let m = Mapping { start, pages, kind, name: String::new() };
        let own = Mempolicy::Default;
        self.sim.kernel.map(&mut self.ctx, self.space, m, &own).expect("there is room");
        self.sim.kernel.space(self.space).place(start, file).expect("just mapped")
    }
    /// The virtual page of the last mapping's start.
    pub(super) fn last(&self) -> (u64, u64) {
        let v = self.sim.kernel.space(self.space).vmas.last().expect("a mapping");
        (v.start, v.end)
    }
    pub(super) fn touch(&mut self, page: u32, write: bool) -> Result<usize, Fatal> {
        self.sim.kernel.touch(&mut self.ctx, page, write)
    }
    /// Writes `n` pages from `first`; how many each node (by place) served.
    pub(super) fn fill(&mut self, first: u32, n: u32) -> Vec<u64> {
        let mut on = vec![0; self.sim.kernel.memory.nodes.len()];
        for page in first..first + n {
            let zone = self.touch(page, true).expect("memory is left");
            on[self.sim.kernel.memory.node_of(zone)] += 1;
        }
        on
    }
    pub(super) fn word(&self, page: u32) -> Word {
        Word(self.sim.kernel.memory.words[page as usize])
    }
    /// Place of the node on which a page lies.
    pub(super) fn node(&self, page: u32) -> usize {
        let w = self.word(page);
        assert!(w.resident(), "page {page} is not in memory");
        let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
        self.sim.kernel.memory.node_of(self.sim.kernel.memory.word(item).zone())
    }
    pub(super) fn free(&self, node: usize) -> u64 {
        self.sim.kernel.memory.free_of(node)
    }
    pub(super) fn stat(&self, item: Item) -> u64 {
        self.sim.kernel.stat.get(item)
    }
    /// Lets a woken kswapd work until it sleeps, outside of virtual time.
    pub(super) fn kswapd(&mut self, node: usize) {
        assert!(self.sim.kernel.woken.contains(&node), "kswapd of {node} was not woken");
        self.sim.kernel.woken.retain(|&n| n != node);
        self.sim.kernel.kswapd_start(node);
        let mut ctx = Ctx { task: usize::MAX, ..self.ctx };
        while !self.sim.kernel.kswapd_run(&mut ctx, node, u64::MAX) {}
    }
    pub(super) fn fork(&mut self) -> usize {
        let child = self.sim.kernel.fork_space(&mut self.ctx, self.space).expect("room");
        self.sim.kernel.space_mut(child).users = 1;
        child
    }
    /// The moves were asked for by hand: they have no counter of their own.
    pub(super) fn by_hand(&mut self) {
        self.checker.moves_by_hand = true;
    }
    pub(super) fn check(&self) {
        let found = self.checker.findings(&self.sim);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    pub(super) fn findings(&self) -> Vec<String> {
        self.checker.findings(&self.sim)
    }
}
