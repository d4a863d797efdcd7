//! What homenode sees: whom it watches through which source, and what is to be read in
//! `/proc` of processes and zones.
//!
//! ```text
//! /proc ───────────────────────────────▶ Gone, Task, Node
//! counters of loads, where asked for ──▶ Loads
//! regions, faults, samples, by source ─▶ Region, Fault, Sample, Lost
//! page tables, asked ──────────────────▶ counts by node
//! ```
//!
//! Source: specs/sources.md.

use crate::kernel::Kernel;
use crate::memory::{BLOCK, FRAME_ITEM};
use crate::page::Word;
use crate::simulation::Simulation;
use crate::simulation::agent::{Agent, CpuLook};
use homenode_core::costs::Cost;
use homenode_core::policy::seen::{Seen, Span, Who, ZoneSeen};
use homenode_core::units::{HUGE_PAGES, NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// Pages looked at in one step of a job: some ten microseconds.
const STEP: u64 = 32;
/// Processes are read anew after this time at the earliest: 100 ms. A timer that only
/// waits for a budget wakes more often than they change.
const PROC_EVERY: u64 = 100_000_000_000;
/// Picoseconds of a clock tick, the unit of a process's start.
const CLOCK_TICK: u64 = 10_000_000_000;

/// A process as `/proc` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) who: Who,
    pub(crate) space: usize,
    ran: u64,
    /// The node of all its tasks; `None` if they run on several.
    pub(crate) node: Option<NodeId>,
    rss: u64,
}

impl Proc {
    /// Processor time of all its threads, in picoseconds.
    pub(crate) fn ran(&self) -> u64 {
        self.ran
    }
}

impl Agent {
    pub(super) fn watch(&mut self, sim: &mut Simulation, space: usize, who: Who) {
        self.watched.insert(space, who);
        self.heat.watch(sim, space, true);
    }
    pub(super) fn unwatch(&mut self, sim: &mut Simulation, space: usize) {
        self.watched.remove(&space);
        self.heat.watch(sim, space, false);
    }

    /// Who lives, who has ended; what reading it takes.
    fn read_procs(&mut self, sim: &mut Simulation, seen: &mut Vec<Seen>) -> u64 {
        let procs = sim.procs();
        let known = procs.iter().map(|p| (p.who, p.space)).collect();
        let before = std::mem::replace(&mut self.known, known);
        for (who, space) in before {
            if !self.known.contains_key(&who) {
                self.unwatch(sim, space);
                seen.push(Seen::Gone { who });
            }
        }
        let mut cost = self.prices[Cost::ProcRead] * procs.len() as u64;
        for proc in &procs {
            // In nanoseconds, as `schedstat` has it.
            let ran = Picos(proc.ran / 1000 * 1000);
            let (who, node, resident) = (proc.who, proc.node, Pages(proc.rss));
            seen.push(Seen::Task { who, ran, node, resident });
            let Some(counted) = sim.pmu.as_mut().and_then(|p| p.read_loads(proc.space)) else {
                continue;
            };
            // Source: specs/sources.md#loads.
            cost += self.prices[Cost::EventRead];
            if counted.reads > 0 {
                seen.push(Seen::Loads { who, counted });
            }
        }
        cost
    }
    /// Everything that is to be seen now, and what reading it takes.
    pub(super) fn look(&mut self, sim: &mut Simulation) -> (u64, Vec<Seen>) {
        let (mut cost, mut seen) = (0, Vec::new());
        if self.read_at.is_none_or(|at| at + PROC_EVERY <= sim.now()) {
            self.read_at = Some(sim.now());
            cost += self.read_procs(sim, &mut seen);
        }
        if let Some(cpus) = &mut self.cpus {
            if cpus.look(sim) {
                cost += self.prices[Cost::ProcRead];
            }
        }
        for (place, node) in sim.machine.nodes.iter().enumerate() {
            cost += self.prices[Cost::ZoneinfoRead];
            let zones = sim.zones_seen(place);
            let load = if self.has_counters {
                Some(sim.kernel.loads.nodes[place].permille())
            } else {
                self.heat.load(Picos(sim.now()), node.id)
            };
            let load = load.map(|load| {
                let share = self.load_shares.get(place).map_or(1000, |s| u64::from(*s));
                let told = 1000 + u64::from(load.saturating_sub(1000)) * share / 1000;
                u32::try_from(told).unwrap_or(u32::MAX)
            });
            let idle = self.cpus.as_ref().and_then(|c| c.idle.get(place).copied().flatten());
            seen.push(Seen::Node { node: node.id, zones, load, idle });
        }
        cost += self.heat.tell(sim, &self.watched, &mut seen);
        (cost, seen)
    }
}

/// CPUs are looked at over so long at least: `/proc/stat` counts in ticks of 10 ms.
const STAT_EVERY: u64 = 1_000_000_000_000;

impl CpuLook {
    /// Reads how long each CPU was busy, if it is time; whether it did.
    fn look(&mut self, sim: &Simulation) -> bool {
        let now = sim.now();
        if self.before.as_ref().is_some_and(|(at, _)| now - at < STAT_EVERY) {
            return false;
        }
        let busy: Vec<u64> = (0..sim.cpus.len()).map(|cpu| sim.cpus[cpu].busy_until(now)).collect();
        if let Some((at, before)) = self.before.take() {
            self.idle = vec![None; sim.machine.nodes.len()];
            for (cpu, (now_busy, was)) in busy.iter().zip(before).enumerate() {
                let idle = (now - at).saturating_sub(now_busy - was);
                let permille = (u128::from(idle) * 1000 / u128::from(now - at)) as u32;
                let sum = self.idle[sim.cpus[cpu].node].get_or_insert(0);
                *sum += permille;
            }
        }
        self.before = Some((now, busy));
        true
    }
}

/// Counts pages in memory from `vpn` on by place of their node; returns as [`each_page`].
pub(super) fn count_pages(
    k: &Kernel,
    space: usize,
    vpn: u64,
    end: u64,
    found: &mut BTreeMap<u16, u64>,
) -> (u64, u64) {
    each_page(k, space, vpn, end, |_, on| *found.entry(on).or_default() += 1)
}

/// Notes the huge page that begins at `vpn` and is mapped by its entry, if one does; neighbours are
/// one stretch.
pub(super) fn note_huge(k: &Kernel, space: usize, vpn: u64, huge: &mut Vec<Span>) {
    if vpn % HUGE_PAGES != 0 || !k.is_huge(space, vpn) {
        return;
    }
    match huge.last_mut().filter(|last| last.end == vpn) {
        Some(last) => last.end += HUGE_PAGES,
        None => huge.push(Span { start: vpn, end: vpn + HUGE_PAGES }),
    }
}

/// Goes over pages in memory from `vpn` on, some at a time, with the place of their node:
/// where it stopped, and how many it looked at. Stretches that no page table reaches cost
/// nothing.
pub(super) fn each_page(
    k: &Kernel,
    space: usize,
    vpn: u64,
    end: u64,
    mut each: impl FnMut(u64, u16),
) -> (u64, u64) {
    let s = k.space(space);
    let Some(v) = s.find(vpn).map(|v| &s.vmas[v]) else {
        let next = s.vmas.partition_point(|v| v.end <= vpn);
        return (s.vmas.get(next).map_or(end, |v| v.start.min(end)), 0);
    };
    let step = u64::from(BLOCK);
    let stop = end.min(v.end).min((vpn / step + 1) * step);
    let Some(first) = s.place(vpn, v.kind.file) else { return (stop, 0) };
    let stop = stop.min(vpn + STEP);
    for (at, page) in (vpn..stop).zip(first..) {
        let w = Word(k.memory.words[page as usize]);
        if w.resident() && !k.memory.is_zero_page(w) {
            let item = if w.shared() { w.frame() | FRAME_ITEM } else { page };
            each(at, k.memory.node_of(k.memory.word(item).zone()) as u16);
        }
    }
    (stop, stop - vpn)
}

impl Simulation {
    /// Living processes in the order of their address spaces.
    pub(crate) fn procs(&self) -> Vec<Proc> {
        let mut all: BTreeMap<usize, Proc> = BTreeMap::new();
        for (id, t) in self.tasks.iter().enumerate() {
            if t.process == usize::MAX {
                continue;
            }
            if self.kernel.spaces.get(t.space).is_none_or(Option::is_none) {
                continue;
            }
            let node = self.machine.cpus[t.cpu].node;
            let who = Who { pid: self.kernel.numa[id].pid, start: t.started / CLOCK_TICK };
            let rss = self.kernel.space(t.space).rss;
            // The lowest number is that of the thread group.
            let new = Proc { who, space: t.space, ran: 0, node: None, rss };
            let first = !all.contains_key(&t.space);
            let p = all.entry(t.space).or_insert(new);
            p.ran += self.ran_until_now(id);
            if first {
                p.node = Some(node);
            } else if t.lives() && p.node != Some(node) {
                p.node = None;
            }
        }
        all.into_values().collect()
    }
    /// The policy of a space's tasks, as `numa_maps` shows it.
    pub(crate) fn policy_of(&self, space: usize) -> homenode_core::scenario::Mempolicy {
        let own = self.tasks.iter().position(|t| t.space == space);
        own.map(|id| self.kernel.numa[id].policy.clone()).unwrap_or_default()
    }
    /// A node's zones as `/proc/zoneinfo` shows them.
    pub(crate) fn zones_seen(&self, place: usize) -> Vec<ZoneSeen> {
        let zones = &self.kernel.memory.nodes[place].zones;
        let zone = |&z: &usize| ZoneSeen {
            free: Pages(self.kernel.memory.zones[z].free),
            marks: self.kernel.marks[z],
        };
        zones.iter().map(zone).collect()
    }
    /// Pages of a stretch by node.
    pub(crate) fn placed(&self, space: usize, span: Span) -> BTreeMap<NodeId, Pages> {
        let (mut vpn, mut found) = (span.start, BTreeMap::new());
        while vpn < span.end {
            vpn = count_pages(&self.kernel, space, vpn, span.end, &mut found).0;
        }
        let on = |place: u16| self.kernel.memory.node_id(usize::from(place));
        found.into_iter().map(|(place, pages)| (on(place), Pages(pages))).collect()
    }
}
