//! A stretch of operations on pages, which a task works through.

use super::Ahead;
use crate::hot::{self, CostTable, Counts, Event, KINDS, OP_PAGE, OP_WRITE, Pages};
use crate::kernel::{Ctx, Fatal};
use crate::simulation::Simulation;
use crate::space::Holds;
use crate::table::prefetch_at;
use crate::tasks::Why;

/// Where a task is in a stretch of operations. What each turn looks at comes first.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Stretch {
    /// The next operation.
    pub(crate) at: usize,
    /// Where it was when it began to run ahead.
    began: usize,
    /// The first operation that sampling has not seen.
    sampled: usize,
    /// When it ends at the latest.
    pub(crate) deadline: u64,
    /// Computing before each access, in picoseconds at full speed.
    pub(crate) compute: u64,
    /// What it writes, if that is said: then each page is an act.
    pub(crate) filling: Option<Filling>,
    /// What it has run ahead, or done, and not counted yet.
    counts: Counts,
}

/// A step that writes a content of its own choice.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    pub(crate) holds: Holds,
    /// The mapping's first page in the columns and its address.
    pub(crate) first: u32,
    pub(crate) vpn: u64,
}

impl Default for Stretch {
    fn default() -> Self {
        Self {
            at: 0,
            began: 0,
            sampled: 0,
            counts: Counts::default(),
            compute: 0,
            deadline: u64::MAX,
            filling: None,
        }
    }
}

impl Stretch {
    /// The operations begin anew.
    pub(crate) fn rewind(&mut self) {
        (self.at, self.began, self.sampled) = (0, 0, 0);
    }
    /// It has nothing to run ahead.
    #[inline]
    pub(crate) fn stay(&mut self) {
        self.began = self.at;
    }
    /// Whether the time for it is over.
    pub(crate) fn is_late(&self, clock: u64) -> bool {
        clock >= self.deadline
    }
    /// Has what a turn begins with fetched: all but most of the counts.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch_at(&raw const self.at);
        prefetch_at(&raw const self.deadline);
        prefetch_at(&raw const self.filling);
        prefetch_at(&raw const self.counts);
    }
    /// How many operations there can be at most before it ends.
    pub(crate) fn most(&self, sim: &Simulation, id: usize) -> u64 {
        if self.deadline == u64::MAX {
            return u64::MAX;
        }
        let task = &sim.tasks[id];
        let cpu = &sim.cpus[task.cpu];
        let latency = &sim.latency[cpu.node][..sim.zones_used * 2];
        let compute = cpu.computing(self.compute);
        let least = latency.iter().filter(|&&l| l > 0).min().map_or(1, |l| l + compute);
        self.deadline.saturating_sub(task.clock) / least + 1
    }
    /// Runs accesses that raise no event, and those that do as long as the time is its own.
    pub(crate) fn ahead(
        &mut self,
        sim: &mut Simulation,
        id: usize,
        ops: &[u32],
        until: u64,
    ) -> Ahead {
        let mut clock = sim.tasks[id].clock;
        self.began = self.at;
        if self.filling.is_none() {
            let end = until.min(self.deadline);
            if sim.own > clock {
                if self.through(sim, id, ops, &mut clock, end) {
                    return Ahead { clock, act: false, far: false };
                }
            } else {
                self.run(sim, id, ops, &mut clock, end);
            }
        }
        let act = clock < until || self.at >= ops.len() || self.is_late(clock);
        Ahead { clock, act, far: false }
    }
    /// The same again, to an earlier time.
    pub(crate) fn back(&mut self, sim: &mut Simulation, id: usize, ops: &[u32], to: u64) -> u64 {
        let mut clock = sim.tasks[id].clock;
        self.at = self.began;
        self.counts = Counts::default();
        self.run(sim, id, ops, &mut clock, to);
        clock
    }
    fn run(&mut self, sim: &mut Simulation, id: usize, ops: &[u32], clock: &mut u64, until: u64) {
        let kinds = sim.zones_used * 2;
        let cpu = &sim.cpus[sim.tasks[id].cpu];
        let (latency, compute) = (&sim.latency[cpu.node], cpu.computing(self.compute));
        let with_compute;
        let cost = if compute == 0 {
            latency
        } else {
            with_compute = costs(latency, compute, kinds);
            &with_compute
        };
        let mut words = &mut sim.kernel.memory.words[..];
        let counts = &mut self.counts;
        self.at += hot::run(&ops[self.at..], &mut words, cost, kinds, counts, clock, until);
    }
    /// Runs through events as long as the time is its own; whether it has stopped behind one.
    fn through(
        &mut self,
        sim: &mut Simulation,
        id: usize,
        ops: &[u32],
        clock: &mut u64,
        until: u64,
    ) -> bool {
        let kinds = sim.zones_used * 2;
        let ctx = sim.ctx(id);
        let compute = sim.cpus[sim.tasks[id].cpu].computing(self.compute);
        // Nobody asks for latencies at an event.
        let latency = std::mem::take(&mut sim.latency);
        let with_compute;
        let cost = if compute == 0 {
            &latency[ctx.node]
        } else {
            with_compute = costs(&latency[ctx.node], compute, kinds);
            &with_compute
        };
        let (from, began) = (self.at, *clock);
        let mut own = Own {
            until: sim.own.min(self.deadline),
            process: sim.tasks[id].process,
            sim,
            ctx,
            kinds,
            cost,
            made: Counts::default(),
            done: 0,
            system: 0,
            last: false,
            failed: None,
        };
        let counts = &mut self.counts;
        self.at += hot::run(&ops[from..], &mut own, cost, kinds, counts, clock, until);
        let Own { ctx, mut made, done, system, last, failed, .. } = own;
        if done > 0 || failed.is_some() {
            sim.charge(id, system, Why::System);
            sim.charge(id, ctx.clock - began - system, Why::User);
            sim.account(id, &mut made);
            (self.began, self.sampled) = (from + done, from + done);
        }
        sim.latency = latency;
        if let Some(why) = failed {
            sim.kill(id, why);
        }
        last || failed.is_some()
    }
    /// What it has run ahead counts.
    pub(crate) fn settle(&mut self, sim: &mut Simulation, id: usize, ops: &[u32]) {
        sim.account(id, &mut self.counts);
        self.began = self.at;
        // Before an act, both are sampled together.
        if !sim.cpus[sim.tasks[id].cpu].before_act {
            self.sample(sim, id, ops);
        }
    }
    /// Samples of the operations since the last ones, and what they cost the task; whether
    /// that is anything.
    pub(crate) fn sample(&mut self, sim: &mut Simulation, id: usize, ops: &[u32]) -> bool {
        let from = std::mem::replace(&mut self.sampled, self.at);
        let Some(pmu) = sim.pmu.as_deref_mut() else { return false };
        let task = &sim.tasks[id];
        let node = sim.machine.nodes[sim.cpus[task.cpu].node].id;
        let blocks = &sim.kernel.memory.blocks;
        let cost = pmu.burst((task.cpu, node), task.space, &ops[from..self.at], blocks);
        sim.charge(id, cost, Why::System);
        cost > 0
    }
    /// Serves the operation that it is at, which raises an event. One that raises none any
    /// more, since somebody else was before, is left to running ahead.
    pub(crate) fn serve(&mut self, sim: &mut Simulation, id: usize, ops: &[u32]) {
        let op = ops[self.at];
        let (page, write) = (op & OP_PAGE, op & OP_WRITE != 0);
        let word = sim.kernel.memory.words[page as usize];
        if self.filling.is_none() && !hot::is_event(op, word) {
            return;
        }
        let mut ctx = sim.ctx(id);
        let before = ctx.clock;
        let served = sim.serve(&mut ctx, sim.tasks[id].process, page, write);
        sim.charge(id, ctx.clock - before, Why::System);
        match served {
            Ok(zone) => {
                if let Some(f) = self.filling {
                    let vpn = f.vpn + u64::from(page - f.first);
                    sim.kernel.fill(page, f.holds.at(vpn));
                }
                let kind = zone * 2 + (op >> 31) as usize;
                let cpu = &sim.cpus[sim.tasks[id].cpu];
                let cost = sim.latency[cpu.node][kind] + cpu.computing(self.compute);
                sim.charge(id, cost, Why::User);
                sim.account_one(id, kind);
                self.at += 1;
            }
            Err(why) => sim.kill(id, why),
        }
        self.sample(sim, id, ops);
    }
}

/// What each kind costs, with the computing before each access.
fn costs(latency: &CostTable, compute: u64, kinds: usize) -> CostTable {
    let mut costs = [0; KINDS];
    for (cost, latency) in costs.iter_mut().zip(latency).take(kinds) {
        *cost = latency + compute;
    }
    costs
}

/// Serves events of a task as long as the time is its own.
struct Own<'a> {
    sim: &'a mut Simulation,
    /// Where it runs, and the time at which the last event was over.
    ctx: Ctx,
    process: usize,
    /// No event at that time or later is its own.
    until: u64,
    kinds: usize,
    cost: &'a CostTable,
    /// Accesses up to the last event, and how many of the operations that were.
    made: Counts,
    done: usize,
    /// What the events took without the accesses themselves.
    system: u64,
    /// The last event has called somebody, or lasted beyond its own time.
    last: bool,
    failed: Option<Fatal>,
}

impl Pages for Own<'_> {
    #[inline]
    fn words(&mut self) -> &mut [u32] {
        &mut self.sim.kernel.memory.words
    }
    fn event(&mut self, op: u32, done: usize, counts: &mut Counts, clock: &mut u64) -> Event {
        if *clock >= self.until {
            return Event::Left;
        }
        let sim = &mut *self.sim;
        sim.timeline.reach(*clock);
        self.ctx.clock = *clock;
        let served = sim.serve(&mut self.ctx, self.process, op & OP_PAGE, op & OP_WRITE != 0);
        self.system += self.ctx.clock - *clock;
        self.made.take_over(counts, self.kinds);
        match served {
            Ok(zone) => {
                let kind = zone * 2 + (op >> 31) as usize;
                self.made.add(kind);
                self.ctx.clock += self.cost[kind];
                self.done = done + 1;
                self.last = self.ctx.clock >= sim.own || sim.calls();
            }
            Err(why) => self.failed = Some(why),
        }
        *clock = self.ctx.clock;
        match (self.failed, self.last) {
            (Some(_), _) => Event::Left,
            (None, true) => Event::Last,
            (None, false) => Event::Served,
        }
    }
}
