//! What published policies of 2 MiB pages have in common here: a map of chunks by process, samples
//! that fall on them, looks at where they are, and orders that move them.
//!
//! ```text
//! Sample ─▶ chunk's counters     Task ─▶ watched; looked at anew where it has grown
//! Resident ─▶ chunk's place      Done ─▶ chunk's place, and what its move took
//! ```
//!
//! The policies know their memory's place since they map it themselves. Here it is looked up: once
//! a process stops growing, and when it has grown by a hundredth since. A chunk is where most of its
//! pages are. Memory here is of 4 KiB pages; a chunk moves page by page, at the price of 512 moves.
//!
//! Source: specs/compare.md#terms.

use homenode_core::policy::Ledger;
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, VecDeque};

/// Pages of a chunk.
pub(super) const CHUNK: u64 = 512;
/// Chunks to either side of what was sampled that are looked at: 4 GiB. What is not mapped costs
/// nothing to look at.
const AROUND: u64 = 2048;

/// A chunk of a process.
pub(super) type Key = (Who, u64);

/// A chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk<T> {
    /// Pages in the fast and in the slow tier.
    pub(super) pages: [u64; 2],
    /// A move of it has not reported yet.
    pub(super) on_its_way: bool,
    /// It must not be moved.
    pinned: bool,
    /// What the policy keeps.
    pub(super) own: T,
}

impl<T> Chunk<T> {
    /// Whether it is in the fast tier; `None`: nothing of it is in memory, nobody has looked, or
    /// it must not be moved.
    pub(super) fn fast(&self) -> Option<bool> {
        let known = self.pages != [0, 0] && !self.pinned;
        known.then_some(self.pages[0] >= self.pages[1])
    }
}

/// A process that is watched.
#[derive(Clone, Debug, Default)]
struct Process {
    resident: u64,
    /// What was resident at the last look.
    looked_at: u64,
    looking: bool,
    /// The first and one past the last chunk that was sampled.
    sampled: Option<(u64, u64)>,
}

/// A move that has reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landed {
    pub(super) up: bool,
    pub(super) took: Picos,
    pub(super) moved: Pages,
}

/// The two nodes between which these policies move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiers {
    pub(super) fast: NodeId,
    pub(super) slow: NodeId,
    /// Pages of the fast node.
    pub(super) room: u64,
    /// Unloaded latencies of both.
    pub(super) latency: [Picos; 2],
}

impl Tiers {
    /// The first node with CPUs, and the first without. Where every node has CPUs there is nothing
    /// to move between: both are the same.
    pub(super) fn of(machine: &Hardware) -> Self {
        let has_cpus = |id: NodeId| machine.cpus_of(id).next().is_some();
        let (fast, slow): (Vec<NodeId>, Vec<NodeId>) =
            machine.nodes.iter().map(|node| node.id).partition(|&id| has_cpus(id));
        let fast = fast.first().copied().unwrap_or(NodeId(0));
        let slow = slow.first().copied().unwrap_or(fast);
        let latency =
            |to| machine.link(fast, to).map_or(Picos::ZERO, |l| Picos(l.read_latency.value));
        let node = machine.nodes.iter().find(|n| n.id == fast);
        let room = node.map_or(0, |n| n.managed().0);
        Self { fast, slow, room, latency: [latency(fast), latency(slow)] }
    }
    /// From which node to which a move goes.
    pub(super) fn way(&self, up: bool) -> (NodeId, NodeId) {
        if up { (self.slow, self.fast) } else { (self.fast, self.slow) }
    }
}

/// What a policy of chunks knows and has ordered.
pub(super) struct Chunks<T> {
    pub(super) tiers: Tiers,
    /// Free pages of the fast node above its high mark, as they were last told, without those that
    /// orders on their way take.
    pub(super) free: i64,
    /// Latencies of the fast and the slow tier over their unloaded ones, in thousandths, where
    /// that is told.
    pub(super) loads: [Option<u32>; 2],
    pub(super) all: BTreeMap<Key, Chunk<T>>,
    processes: BTreeMap<Who, Process>,
    orders: VecDeque<Order>,
    /// Orders that have not reported: the reason, and of moves the chunk and whether it goes up.
    open: BTreeMap<OrderId, (Reason, Option<(Key, bool)>)>,
    moving: usize,
    last: u64,
    ledger: Ledger,
}

impl<T: Default> Chunks<T> {
    pub(super) fn new(machine: &Hardware) -> Self {
        Self {
            tiers: Tiers::of(machine),
            free: 0,
            loads: [None; 2],
            all: BTreeMap::new(),
            processes: BTreeMap::new(),
            orders: VecDeque::new(),
            open: BTreeMap::new(),
            moving: 0,
            last: 0,
            ledger: Ledger::default(),
        }
    }
    fn order(&mut self, act: Act, why: Reason, moves: Option<(Key, bool)>) {
        self.last += 1;
        let id = OrderId(self.last);
        self.open.insert(id, (why, moves));
        self.orders.push_back(Order { id, act, expect: Benefit::default(), why });
    }
    /// Moves that have not reported.
    pub(super) fn moving(&self) -> usize {
        self.moving
    }
    /// Orders a chunk up, or down.
    pub(super) fn shift(&mut self, key: Key, up: bool) {
        let Some(chunk) = self.all.get_mut(&key) else { return };
        if chunk.on_its_way || self.tiers.fast == self.tiers.slow {
            return;
        }
        chunk.on_its_way = true;
        self.free += if up { -(chunk.pages[1] as i64) } else { chunk.pages[0] as i64 };
        self.moving += 1;
        let (who, at) = key;
        let spans = vec![Span { start: at * CHUNK, end: (at + 1) * CHUNK }];
        let (from, to) = self.tiers.way(up);
        let why = if up { Reason::Hot } else { Reason::MakeRoom };
        self.order(Act::Move { who, spans, from, to }, why, Some((key, up)));
    }
    /// Takes in what was seen. Each sample is told to `sampled`, with its chunk and period; what
    /// moves came back is returned.
    pub(super) fn take(
        &mut self,
        seen: &[Seen],
        mut sampled: impl FnMut(Key, &mut Chunk<T>, u64),
    ) -> Vec<Landed> {
        let mut landed = Vec::new();
        // The span of the last report: the first of a span forgets what was known before.
        let mut told = None;
        for one in seen {
            match one {
                Seen::Task { who, resident, .. } => self.task(*who, resident.0),
                Seen::Gone { who } => {
                    self.processes.remove(who);
                    let gone = self.all.range((*who, 0)..=(*who, u64::MAX)).map(|(k, _)| *k);
                    for key in gone.collect::<Vec<Key>>() {
                        self.all.remove(&key);
                    }
                }
                Seen::Sample { who, vpn, period, .. } => {
                    let at = vpn / CHUNK;
                    let Some(process) = self.processes.get_mut(who) else { continue };
                    let (low, high) = process.sampled.unwrap_or((at, at + 1));
                    process.sampled = Some((low.min(at), high.max(at + 1)));
                    let key = (*who, at);
                    sampled(key, self.all.entry(key).or_default(), *period);
                }
                Seen::Resident { who, span, on, pages } => {
                    let tier = usize::from(*on != self.tiers.fast);
                    let key = (*who, span.start / CHUNK);
                    if told.replace(key) != Some(key) {
                        if let Some(chunk) = self.all.get_mut(&key) {
                            chunk.pages = [0, 0];
                        }
                    }
                    if pages.0 > 0 {
                        self.all.entry(key).or_default().pages[tier] = pages.0;
                    }
                }
                Seen::Node { node, zones, load, .. } => {
                    if *node == self.tiers.fast {
                        let free = zones.iter().map(|z| z.free.0 as i64 - z.marks.high.0 as i64);
                        self.free = free.sum();
                        let coming =
                            self.open.values().filter_map(|(_, m)| m.filter(|(_, up)| *up));
                        let coming =
                            coming.filter_map(|(key, _)| Some(self.all.get(&key)?.pages[1]));
                        self.free -= coming.sum::<u64>() as i64;
                    }
                    self.loads[usize::from(*node != self.tiers.fast)] = *load;
                }
                Seen::Done { order, tried, moved, fails, took } => {
                    let Some((why, moves)) = self.open.remove(order) else { continue };
                    let between = moves.map(|(_, up)| self.tiers.way(up));
                    self.ledger.report(why, between, *tried, *moved, fails, *took);
                    let Some((key, up)) = moves else {
                        self.processes.values_mut().for_each(|p| p.looking = false);
                        continue;
                    };
                    self.moving -= 1;
                    if let Some(chunk) = self.all.get_mut(&key) {
                        chunk.on_its_way = false;
                        chunk.pinned |= moved.0 == 0 && fails.forbidden.0 > 0;
                        let (to, from) = if up { (0, 1) } else { (1, 0) };
                        chunk.pages[to] += moved.0;
                        chunk.pages[from] = chunk.pages[from].saturating_sub(moved.0);
                    }
                    landed.push(Landed { up, took: *took, moved: *moved });
                }
                Seen::Region { .. }
                | Seen::Loads { .. }
                | Seen::Huge { .. }
                | Seen::Fault { .. }
                | Seen::Stale { .. } => {}
                Seen::Lost { events } => self.ledger.lost += events,
            }
        }
        landed
    }
    fn task(&mut self, who: Who, resident: u64) {
        let Some(process) = self.processes.get_mut(&who) else {
            self.processes.insert(who, Process { resident, ..Process::default() });
            self.order(Act::Watch { who }, Reason::SlowStartOver, None);
            return;
        };
        let grows = resident > process.resident + process.resident / 100;
        process.resident = resident;
        let news = resident.abs_diff(process.looked_at) > process.looked_at / 100;
        let (Some((low, high)), false) = (process.sampled, grows || process.looking || !news)
        else {
            return;
        };
        (process.looked_at, process.looking) = (resident, true);
        let chunks = low.saturating_sub(AROUND)..high + AROUND;
        let spans = chunks.map(|c| Span { start: c * CHUNK, end: (c + 1) * CHUNK }).collect();
        self.order(Act::Look { who, spans }, Reason::PlaceUnknown, None);
    }
    pub(super) fn poll(&mut self) -> Option<Order> {
        let order = self.orders.pop_front()?;
        self.ledger.hand_out(&order);
        Some(order)
    }
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
