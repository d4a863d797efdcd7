//! Memory goes offline and comes back, block by block, while programs run.
//!
//! ```text
//! write "offline" ─▶ isolate: the block's free pages are nobody's ─▶ going offline
//!                       ▼
//!                    move its pages away ◀── again: a page is busy
//!                       │ none left            │ five rounds in which nothing moved,
//!                       ▼                      ▼ or nowhere to go
//!                    offline: the zone is    cancelled: all as before
//!                    smaller, marks follow
//! ```
//!
//! Which pages a block has is a convention here, since a zone is a count: its used pages
//! fill its blocks from the lowest, in the order of the columns. Example: a zone of
//! four blocks of 512 pages with 700 pages in use. Block 1 has 188 of them; it goes
//! offline by moving those and keeping its other 324 from being allocated.
//!
//! Source: specs/files.md#blocks, specs/exceptions/memory-offline.md.

use super::alloc::Mark;
use super::huge::Split;
use super::migrate::Entries;
use super::{Cost, Ctx, Kernel, marks};
use crate::memory::{BLOCK, Memory};
use crate::vmstat::Item;
use homenode_core::knobs::Errno;
use homenode_core::numa::rebind::{rebind, settable};
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::tiers::{Tiers, allocator_order};
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, HUGE_PAGES, NodeId, Pages};
use std::collections::BTreeMap;

/// How a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Online,
    GoingOffline,
    Offline,
}

/// A piece of memory that goes offline as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBlock {
    pub(crate) zone: usize,
    /// All of a block, or what the end of a zone leaves.
    pub(crate) pages: u64,
    pub(crate) state: BlockState,
}

/// What others are told about a block, as by the kernel's chain of notifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Its free pages are isolated; its used ones are about to move.
    GoingOffline,
    /// No page of anybody is there any more.
    Offlined,
    /// It stays.
    Cancelled,
}

/// A block on its way.
#[derive(Clone, Debug)]
struct Going {
    block: usize,
    /// What is still to be moved in this round, the next one last.
    left: Vec<u32>,
    /// What could not be moved in this round.
    again: Vec<u32>,
    /// Pages moved in this round.
    moved: u64,
    /// Rounds in which nothing moved, one after the other.
    fruitless: u32,
}

/// What the kernel knows of memory that can go offline.
#[derive(Clone, Debug)]
pub(crate) struct Hotplug {
    /// Pages of a block.
    pub(crate) block_pages: u64,
    pub(crate) blocks: Vec<MemoryBlock>,
    going: Option<Going>,
    /// Abstract distances as the drivers found them: they outlast a node's memory.
    distances: BTreeMap<NodeId, u64>,
    /// Pages that were moved on the way, and those of them that stayed on their node.
    pub(crate) moved: u64,
    pub(crate) within: u64,
    /// From place to place: whether moving there has ever been downwards, or upwards.
    pub(crate) lower: Vec<Vec<bool>>,
    pub(crate) upper: Vec<Vec<bool>>,
}

/// Rounds of nothing but failures after which the writer is told to stop.
const FRUITLESS: u32 = 5;

impl Hotplug {
    pub(crate) fn new(machine: &Hardware, memory: &Memory, tiers: &Tiers) -> Self {
        let sizes = machine.nodes.iter().map(|n| n.managed().0);
        let block_pages = block_pages(sizes);
        let mut blocks = Vec::new();
        for (zone, z) in memory.zones.iter().enumerate() {
            let mut left = z.managed;
            while left > 0 {
                let pages = left.min(block_pages);
                blocks.push(MemoryBlock { zone, pages, state: BlockState::Online });
                left -= pages;
            }
        }
        let n = machine.nodes.len();
        let ids = tiers.iter().flat_map(|(_, nodes)| nodes.iter().copied());
        let distances = ids.filter_map(|id| Some((id, tiers.abstract_distance(id)?))).collect();
        Self {
            block_pages,
            blocks,
            going: None,
            distances,
            moved: 0,
            within: 0,
            lower: vec![vec![false; n]; n],
            upper: vec![vec![false; n]; n],
        }
    }
    /// Notes which moves are demotions and promotions from now on.
    fn learn(&mut self, demote_any: &[Vec<usize>], top: &[bool]) {
        for (from, to) in demote_any.iter().enumerate() {
            for &to in to {
                self.lower[from][to] = true;
            }
            for (to, &is_top) in top.iter().enumerate() {
                self.upper[from][to] |= is_top && !top[from];
            }
        }
    }
}

/// Pages of a block on a machine with nodes of these sizes: 128 MiB, or 2 GiB from 64 GiB
/// of memory on, but so small that every node with memory has four, down to 2 MiB.
///
/// Source: specs/exceptions/memory-offline.md.
fn block_pages(nodes: impl Iterator<Item = u64> + Clone) -> u64 {
    let all: u64 = nodes.clone().sum();
    let large = all >= Pages::holding(Bytes(64 << 30)).0;
    let mut pages = Pages::holding(Bytes(if large { 2 << 30 } else { 128 << 20 })).0;
    let least = nodes.filter(|&n| n > 0).min().unwrap_or(0);
    while pages > HUGE_PAGES && pages * 4 > least {
        pages /= 2;
    }
    pages
}

impl Kernel {
    /// Nodes with memory.
    pub(crate) fn with_memory(&self) -> Vec<NodeId> {
        let nodes = self.memory.nodes.iter().filter(|n| !n.zones.is_empty());
        nodes.map(|n| NodeId(n.id)).collect()
    }
    /// A policy as a system call would set it now; `None`: EINVAL.
    pub(crate) fn settable(&self, policy: &Mempolicy) -> Option<Mempolicy> {
        settable(policy, &self.with_memory())
    }

    /// Whoever must know of a block is told here, in the order in which they asked to.
    fn notify(&mut self, block: usize, notice: Notice) {
        let zone = self.hotplug.blocks[block].zone;
        self.merge_notice(notice);
        if let Some(watch) = &mut self.watch {
            let node = self.memory.node_of(zone);
            watch.block(node, block, notice != Notice::Cancelled, notice == Notice::Offlined);
        }
    }

    /// Begins to take a block offline: its free pages are isolated.
    ///
    /// # Errors
    /// EINVAL: it isn't online. EBUSY: it holds what can't be moved.
    pub(crate) fn offline_begin(&mut self, ctx: &mut Ctx, block: usize) -> Result<(), Errno> {
        let b = self.hotplug.blocks[block];
        if b.state != BlockState::Online || self.hotplug.going.is_some() {
            return Err(Errno::Einval);
        }
        // The kernel's image and the shared page of zeroes lie in the lowest memory.
        if block == 0 {
            return Err(Errno::Ebusy);
        }
        let mine = |o: &&MemoryBlock| o.zone == b.zone && o.state == BlockState::Online;
        let below: u64 = self.hotplug.blocks[..block].iter().filter(mine).map(|o| o.pages).sum();
        let zone = &mut self.memory.zones[b.zone];
        let used = zone.managed - zone.free;
        let inside = used.saturating_sub(below).min(b.pages);
        zone.free -= b.pages - inside;
        zone.isolated = b.pages - inside;
        self.hotplug.blocks[block].state = BlockState::GoingOffline;
        self.notify(block, Notice::GoingOffline);
        let mut left = self.memory.items_in(b.zone, below, inside);
        left.reverse();
        // Looking at each page of the block once.
        ctx.clock += b.pages * self.prices[Cost::PteScan];
        self.hotplug.going = Some(Going { block, left, again: Vec::new(), moved: 0, fruitless: 0 });
        Ok(())
    }

    /// Goes on with the block on its way until the clock reaches `end`; `Some` once that
    /// is decided. The machine is the simulation's: what is online follows.
    pub(crate) fn offline_run(
        &mut self,
        ctx: &mut Ctx,
        machine: &mut Hardware,
        end: u64,
    ) -> Option<Result<(), Errno>> {
        let mut going = self.hotplug.going.take()?;
        let b = self.hotplug.blocks[going.block];
        while ctx.clock < end {
            if let Some(item) = going.left.pop() {
                self.move_out(ctx, &mut going, item, b);
                continue;
            }
            if going.again.is_empty() {
                // What programs gave back meanwhile, from wherever: pages have no place.
                let zone = &mut self.memory.zones[b.zone];
                let back = (b.pages - zone.isolated).min(zone.free);
                zone.free -= back;
                zone.isolated += back;
                if zone.isolated == b.pages {
                    self.offlined(machine, going.block);
                    return Some(Ok(()));
                }
                // It was taken again at once: others go in its place.
                let missing = b.pages - zone.isolated;
                let used = zone.managed - zone.free - zone.isolated;
                going.left = self.memory.items_in(b.zone, used.saturating_sub(missing), missing);
                continue;
            }
            going.fruitless = if going.moved > 0 { 0 } else { going.fruitless + 1 };
            going.moved = 0;
            if going.fruitless >= FRUITLESS {
                self.offline_cancelled(going.block);
                // The kernel would try for ever: it is the writer who is stopped.
                return Some(Err(Errno::Eintr));
            }
            going.left.append(&mut going.again);
            going.left.reverse();
            ctx.clock += b.pages * self.prices[Cost::PteScan];
        }
        self.hotplug.going = Some(going);
        None
    }

    /// Moves one item out of its block, if it is still there.
    fn move_out(&mut self, ctx: &mut Ctx, going: &mut Going, item: u32, b: MemoryBlock) {
        if !self.memory.is_in(item, b.zone) {
            return;
        }
        let n = self.memory.pages_of(item);
        let src = self.memory.node_of(b.zone);
        if self.move_fails() {
            self.not_moved(src, n);
            ctx.clock += self.prices[Cost::MigratePage];
            going.again.push(item);
            return;
        }
        let Some(zone) = self.shelter(ctx, src, n) else {
            if n > 1 {
                // Its base pages may find room one by one.
                self.stat.add(src, Item::ThpMigrationFail, 1);
                self.stat.add(src, Item::ThpMigrationSplit, 1);
                self.split(item, Split::Page);
                going.left.extend((item..item + BLOCK).rev());
                return;
            }
            self.stat.add(src, Item::PgmigrateFail, n);
            ctx.clock += self.prices[Cost::MigratePage];
            // The round is over: the next page would find no room either.
            going.again.push(item);
            going.again.extend(going.left.drain(..).rev());
            return;
        };
        // Reclaim on the way may have taken it.
        if !self.memory.is_in(item, b.zone) || self.memory.pages_of(item) != n {
            self.give_quietly(zone, n);
            return;
        }
        let dst = self.memory.node_of(zone);
        let at = self.isolated(item, dst, false);
        let w = self.memory.word(item);
        let stamp = self.stamp_on(src, dst, w.stamp());
        self.move_item(ctx, item, zone, at, stamp, Entries::Keep);
        going.moved += n;
        self.hotplug.moved += n;
        self.hotplug.within += if src == dst { n } else { 0 };
        // The pages that became free are nobody's. Of a huge page that reaches beyond the
        // block the rest is free.
        let from = &mut self.memory.zones[b.zone];
        let kept = (b.pages - from.isolated).min(n);
        from.free -= kept;
        from.isolated += kept;
    }

    /// Takes `n` pages for what must leave a node: on the nearest other one; on its own if
    /// no other has memory. Reclaims there, but kills nobody. Policies don't count.
    fn shelter(&mut self, ctx: &mut Ctx, src: usize, n: u64) -> Option<usize> {
        let mut order: Vec<usize> =
            self.fallback[src].iter().copied().filter(|&p| p != src).collect();
        if order.is_empty() {
            order.push(src);
        }
        if let Some(zone) = order.iter().find_map(|&p| self.take_quietly(p, n, Mark::Low)) {
            return Some(zone);
        }
        for &node in &order {
            self.wake_kswapd(node);
        }
        let mut zone = order.iter().find_map(|&p| self.take_quietly(p, n, Mark::Min));
        if zone.is_none() && n < HUGE_PAGES {
            self.stat.add(ctx.node, Item::Allocstall, 1);
            zone = self.take_after_reclaim(ctx, n, &order);
        }
        zone
    }

    fn offline_cancelled(&mut self, block: usize) {
        let zone = &mut self.memory.zones[self.hotplug.blocks[block].zone];
        zone.free += zone.isolated;
        zone.isolated = 0;
        self.hotplug.blocks[block].state = BlockState::Online;
        self.notify(block, Notice::Cancelled);
    }
    fn offlined(&mut self, machine: &mut Hardware, block: usize) {
        let b = self.hotplug.blocks[block];
        let zone = &mut self.memory.zones[b.zone];
        zone.managed -= b.pages;
        zone.isolated = 0;
        self.hotplug.blocks[block].state = BlockState::Offline;
        self.resized(machine, b.zone);
        self.notify(block, Notice::Offlined);
    }

    /// Brings a block back, empty.
    ///
    /// # Errors
    /// EINVAL: it isn't offline.
    pub(crate) fn online(
        &mut self,
        ctx: &mut Ctx,
        machine: &mut Hardware,
        block: usize,
    ) -> Result<(), Errno> {
        let b = self.hotplug.blocks[block];
        if b.state != BlockState::Offline {
            return Err(Errno::Einval);
        }
        let zone = &mut self.memory.zones[b.zone];
        zone.managed += b.pages;
        zone.free += b.pages;
        self.hotplug.blocks[block].state = BlockState::Online;
        ctx.clock += b.pages * self.prices[Cost::PteScan];
        self.resized(machine, b.zone);
        Ok(())
    }

    /// A zone has another size: what is computed from sizes follows.
    fn resized(&mut self, machine: &mut Hardware, zone: usize) {
        let place = self.memory.node_of(zone);
        let before = self.with_memory();
        for own in self.memory.zones.iter().filter(|z| z.node == place) {
            let zones = machine.nodes[place].zones.iter_mut();
            zones.filter(|z| z.kind == own.kind).for_each(|z| z.managed = Pages(own.managed));
        }
        // The highest come first.
        let own = self.memory.zones.iter().enumerate().rev();
        self.memory.nodes[place].zones =
            own.filter(|(_, z)| z.node == place && z.managed > 0).map(|(i, _)| i).collect();
        self.marks = marks(&self.memory, &self.knobs, &self.model);
        let after = self.with_memory();
        if before != after {
            self.nodes_changed(machine, place, &before, &after);
        }
    }

    /// A node has lost its last memory, or has some again: fallback, tiers and the
    /// policies of tasks follow. Its kswapd sleeps while there is none.
    fn nodes_changed(
        &mut self,
        machine: &Hardware,
        place: usize,
        before: &[NodeId],
        after: &[NodeId],
    ) {
        self.hotplug.learn(&self.demote_any, &self.top);
        let known = &self.hotplug.distances;
        let distances =
            after.iter().filter_map(|id| Some((*id, *known.get(id)?))).collect::<BTreeMap<_, _>>();
        self.tiers = Tiers::from_distances(machine, distances, self.knobs.version);
        self.order_nodes(machine);
        self.hotplug.learn(&self.demote_any, &self.top);
        // Who has no memory has nothing to be woken for.
        self.woken.retain(|&n| n != place);
        for task in &mut self.numa {
            task.policy = rebind(&task.policy, before, after);
        }
    }
    /// Where each node's allocations and demotions go, by what memory there is.
    pub(super) fn order_nodes(&mut self, machine: &Hardware) {
        let with_memory = self.with_memory();
        let places = |list: Vec<NodeId>| -> Vec<usize> {
            list.iter().filter_map(|id| machine.position(*id)).collect()
        };
        for (p, node) in machine.nodes.iter().enumerate() {
            self.fallback[p] = places(allocator_order(machine, node.id, &with_memory));
            self.top[p] = self.tiers.is_top(node.id);
            self.demote_to[p] = places(self.tiers.demotion_targets(machine, node.id));
            self.demote_any[p] = places(self.tiers.demotion_fallback(machine, node.id));
        }
    }
}
