//! Moving a page: what it takes, what it costs, why it can fail.

use super::alloc::Mark;
use super::{Cost, Ctx, Kernel};
use crate::lists::Listed;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::Word;
use crate::space::{Space, Vma};
use crate::vmstat::Item;
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::mglru::Arrives;

/// What becomes of the entries of a moved page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    /// As they were.
    Keep,
    /// Accessible, and read-only where `read_only` (specs/numa.md#hint-fault: a private page that
    /// a hint fault moved).
    Accessible { read_only: bool },
}

/// How the cold pages of one batch are demoted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demotion {
    /// The first of the preferred targets to be asked, drawn once for the batch.
    pub(super) draw: Option<usize>,
    /// A page found no room: the rest of the batch isn't tried.
    pub(super) no_room: bool,
}

/// What became of a page that homenode wanted moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// It is there now.
    Moved,
    /// Not in memory, or on another node than the order says.
    Absent,
    /// It can't move now.
    Busy,
    /// The target is at its min.
    NoRoom,
    /// Others map it too, or a policy binds it elsewhere.
    Forbidden,
}

impl Kernel {
    /// Moves an isolated item to a zone in which its pages are already taken, gives
    /// the old ones back and puts it at the head of its list there. Charges `ctx`.
    pub(super) fn move_item(
        &mut self,
        ctx: &mut Ctx,
        item: u32,
        zone: usize,
        at: Listed,
        stamp: u32,
        entries: Entries,
    ) {
        let n = self.memory.pages_of(item);
        let w = self.memory.word(item);
        debug_assert!(self.memory.listed(item).is_none());
        self.unmap_to_move(item);
        let from = w.zone();
        self.give_quietly(from, n);
        let change = |w: Word| {
            let w = if w.shared() { w } else { w.with_zone(zone).with_stamp(stamp) };
            match entries {
                Entries::Keep => w,
                Entries::Accessible { read_only } => {
                    w.with_state(crate::page::PRESENT).with_write(w.writable() && !read_only)
                }
            }
        };
        if item & FRAME_ITEM != 0 {
            self.memory.set_word(item, w.with_zone(zone).with_stamp(stamp));
            if let Entries::Accessible { .. } = entries {
                for i in 0..self.memory.mappers(item ^ FRAME_ITEM).len() {
                    let page = self.memory.mappers(item ^ FRAME_ITEM)[i] as usize;
                    self.memory.words[page] = change(Word(self.memory.words[page])).0;
                }
            }
        } else {
            for page in item as usize..item as usize + n as usize {
                self.memory.words[page] = change(Word(self.memory.words[page])).0;
            }
            // Its next write is a fault, whether somebody has looked at the page or not.
            if let Entries::Accessible { read_only: true } = entries {
                for page in item..item + n as u32 {
                    self.memory.forbid_write(page);
                }
            }
        }
        let (src, dst) = (self.memory.node_of(from), self.memory.node_of(zone));
        self.memory.enter_list(item, dst, at);
        self.stat.add(dst, Item::PgmigrateSuccess, n);
        self.stat.add(dst, Item::ThpMigrationSuccess, u64::from(n > 1));
        self.loads.copied(src, dst, n * homenode_core::units::PAGE_SIZE);
        self.moved[src][dst] += n;
        // A huge page is unmapped and remapped once, but copied whole.
        let copy = self.loads.apply_copy(src, dst, self.copy_time(src, dst));
        ctx.clock += self.prices[Cost::MigratePage] + copy * n;
        self.score_move(item, n, src, dst);
        if let Some(watch) = &mut self.watch {
            if src == dst {
                watch.moved_within(src, n);
            } else {
                watch.moved(item, src, dst, n);
            }
        }
    }
    /// Writes down, where the run is judged, that an item has moved between two nodes.
    pub(super) fn score_move(&mut self, item: u32, n: u64, src: usize, dst: usize) {
        if self.score.is_none() || item & FRAME_ITEM != 0 || self.top[src] == self.top[dst] {
            return;
        }
        let copies = self.copy_time(src, dst) + self.copy_time(dst, src);
        let both = 2 * self.prices[Cost::MigratePage] / n + copies;
        if let Some(score) = &mut self.score {
            score.moved(item, n, self.top[dst], both);
        }
    }
    /// Whether a page changes tier on its way between two nodes, where tiers count.
    pub(super) fn crosses(&self, from: usize, to: usize) -> bool {
        self.knobs.numa_balancing.tiering() && self.top[from] != self.top[to]
    }
    /// A page's stamp on another node: one that changes tier forgets who used it
    /// (specs/tiering.md#access-time).
    pub(super) fn stamp_on(&self, from: usize, to: usize, stamp: u32) -> u32 {
        if self.crosses(from, to) { crate::page::STAMP_UNSET } else { stamp }
    }
    /// Takes an item off its list; where it will stand on its new node.
    ///
    /// * `by_fault` – a hint fault moves it.
    pub(super) fn isolated(&mut self, item: u32, to: usize, by_fault: bool) -> Listed {
        let (file, active) = (self.memory.is_file(item), self.is_active(item));
        let came = self.memory.leave_list(item);
        let how = if by_fault { Arrives::HintFault { active } } else { Arrives::Moved { active } };
        self.arrival(file, to, how, came)
    }
    /// Time to copy a base page between two nodes, unloaded: what `page_copy` says,
    /// or what the slower end's bandwidth allows if that is longer.
    pub(crate) fn copy_time(&self, src: usize, dst: usize) -> u64 {
        self.prices[Cost::PageCopy].max(self.copy_bound[src]).max(self.copy_bound[dst])
    }
    /// Gives pages back without counting a free: the page lives on elsewhere.
    pub(super) fn give_quietly(&mut self, zone: usize, n: u64) {
        self.memory.zones[zone].free += n;
    }
    /// Takes pages without counting an allocation, if `mark` allows.
    pub(super) fn take_quietly(&mut self, node: usize, n: u64, mark: Mark) -> Option<usize> {
        // More than the mark remains, or is met by the last page
        // (specs/tiering.md#allocation).
        let zones = &self.memory.nodes[node].zones;
        let free = |z: usize| self.memory.zones[z].free;
        let zone = zones.iter().copied().find(|&z| free(z) > self.keep(z, mark) + n - 1)?;
        self.memory.zones[zone].free -= n;
        Some(zone)
    }
    /// Counts a move that came to nothing.
    pub(super) fn not_moved(&mut self, node: usize, n: u64) {
        self.stat.add(node, Item::PgmigrateFail, n);
        self.stat.add(node, Item::ThpMigrationFail, u64::from(n > 1));
    }
    /// An injected failure, where the run asks for them.
    pub(super) fn move_fails(&mut self) -> bool {
        self.fail_moves > 0 && self.faults.below(1000) < u64::from(self.fail_moves)
    }

    /// Moves the page at `vpn`, as homenode asks for it: only from `from`, not if other
    /// processes map it, not against a policy that binds. How many pages up to `stop`
    /// the answer is for (a huge page moves as a whole), and the answer.
    ///
    /// * `query` – what looking at a page costs that does not move.
    pub(crate) fn move_ordered(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        (vpn, stop): (u64, u64),
        (from, to): (usize, usize),
        own: &Mempolicy,
        query: u64,
    ) -> (u64, Ordered) {
        let s = self.space(space);
        let Some(vma) = s.find(vpn).map(|v| &s.vmas[v]) else {
            return (hole(s, vpn, stop), Ordered::Absent);
        };
        let policy = if vma.kind.policy == Mempolicy::Default { own } else { &vma.kind.policy };
        let target = self.memory.node_id(to);
        let bound = matches!(policy, Mempolicy::Bind { nodes, .. } if !nodes.contains(&target));
        let end = stop.min(vma.end);
        let Some(page) = s.place(vpn, vma.kind.file) else {
            let step = (vpn / u64::from(BLOCK) + 1) * u64::from(BLOCK);
            return (step.min(end) - vpn, Ordered::Absent);
        };
        let item = self.memory.item_of(page);
        let n = self.memory.pages_of(item);
        let covered = if n == 1 { 1 } else { (vpn / n * n + n).min(end) - vpn };
        let w = self.memory.word(item);
        // The page of zeroes belongs to nobody, and stays where it is.
        let entry = Word(self.memory.words[page as usize]);
        let resident = entry.resident() && !self.memory.is_zero_page(entry);
        if !resident || self.memory.node_of(w.zone()) != from || from == to {
            ctx.clock += query;
            return (covered, Ordered::Absent);
        }
        if self.memory.nr_mappers(item) > 1 || bound {
            ctx.clock += query;
            return (covered, Ordered::Forbidden);
        }
        if self.move_fails() {
            ctx.clock += query;
            self.not_moved(to, n);
            return (covered, Ordered::Busy);
        }
        let Some(zone) = self.take_quietly(to, n, Mark::Min) else {
            ctx.clock += query;
            self.wake_kswapd(to);
            self.not_moved(to, n);
            return (covered, Ordered::NoRoom);
        };
        let at = self.isolated(item, to, false);
        let stamp = self.stamp_on(from, to, w.stamp());
        self.move_item(ctx, item, zone, at, stamp, Entries::Keep);
        (covered, Ordered::Moved)
    }

    /// `move_pages` of one page to a node, as root asks for it; whether it moved.
    pub(crate) fn move_page_to(&mut self, ctx: &mut Ctx, page: u32, node: usize) -> bool {
        let w = Word(self.memory.words[page as usize]);
        if !w.resident() || self.memory.is_zero_page(w) {
            return false;
        }
        let item = self.memory.item_of(page);
        let w = self.memory.word(item);
        // ENODEV where the node's memory is offline.
        if self.memory.node_of(w.zone()) == node || self.memory.nodes[node].zones.is_empty() {
            return false;
        }
        let n = self.memory.pages_of(item);
        if self.move_fails() {
            self.not_moved(node, n);
            return false;
        }
        // The kernel allocates here with reclaim, on this node only.
        let Some(zone) = self.take_quietly(node, n, Mark::Min) else {
            self.wake_kswapd(node);
            self.not_moved(node, n);
            return false;
        };
        let at = self.isolated(item, node, false);
        self.move_item(ctx, item, zone, at, w.stamp(), Entries::Keep);
        true
    }
}

/// Pages from `vpn` to the next mapping, or to `stop`.
fn hole(s: &Space, vpn: u64, stop: u64) -> u64 {
    let next = s.vmas.partition_point(|v: &Vma| v.end <= vpn);
    s.vmas.get(next).map_or(stop, |v| v.start.min(stop)) - vpn
}
