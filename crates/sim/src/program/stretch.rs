//! A stretch of operations on pages, which a task works through.

use super::Ahead;
use crate::hot::{self, CostTable, Counts, Event, KINDS, OP_PAGE, OP_WRITE, Pages};
use crate::kernel::{Ctx, Fatal};
use crate::overlap::{Floor, Overlap};
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
    /// How its accesses overlap; `None`: each waits for the one before it.
    pub(crate) pace: Option<Pace>,
    /// What it writes, if that is said: then each page is an act.
    pub(crate) filling: Option<Filling>,
    /// What it has run ahead, or done, and not counted yet.
    counts: Counts,
}

/// Accesses that do not wait each for the one before it.
#[derive(Clone)]
pub(crate) enum Pace {
    /// Several are under way at once.
    Wide(Box<Wide>),
    /// A line is asked for in each so many picoseconds, 1 at least. Source: specs/load.md#stream.
    Stream(u64),
}

impl Pace {
    /// What a load takes where nothing else loads its node.
    fn unloaded(&self, latency: u64, compute: u64) -> u64 {
        match self {
            Self::Wide(wide) => wide.unloaded(latency, compute),
            Self::Stream(ps) => *ps,
        }
    }
    /// What an access of each kind costs on a CPU.
    fn costs(&mut self, sim: &Simulation, cpu: usize, compute: u64) -> CostTable {
        match self {
            Self::Wide(wide) => wide.costs(sim, cpu, compute),
            Self::Stream(ps) => sim.paced_from(cpu, *ps),
        }
    }
}

/// Accesses of which several are under way at once.
///
/// Each of `mlp` chains waits for its line and computes; a core has no more lines under way
/// than its machine's file says, computes one thing at a time, and a node serves no more than
/// its bandwidth. So an access takes the largest of
///
/// ```text
/// (latency now + computing) / mlp      computing      unloaded latency / lines under way
/// ```
///
/// Worked example: 100 ns, 20 ns of computing, four chains, ten lines: 30 ns; with eight
/// chains 20 ns, which is the computing.
///
/// Source: specs/load.md#mlp.
#[derive(Clone)]
pub(crate) struct Wide {
    mlp: u64,
    /// Lines under way.
    lines: Overlap,
    /// The least time of a line, and of which window of load and which CPU it is.
    floor: Option<((u64, usize), Floor)>,
}

impl Wide {
    /// So many accesses under way at once, of which a core bears as many as `core` says.
    pub(crate) fn new(mlp: u32, core: Overlap) -> Self {
        let most = u64::from(mlp) * 1000;
        let lines = Overlap { random: core.random.map(|lines| lines.min(most)), ..core };
        Self { mlp: mlp.into(), lines, floor: None }
    }
    /// What a load takes where nothing else loads its node.
    fn unloaded(&self, latency: u64, compute: u64) -> u64 {
        self.cost(latency, compute, latency * 1000 / self.lines.random[0].max(1000))
    }
    fn cost(&self, latency: u64, compute: u64, floor: u64) -> u64 {
        ((latency + compute) / self.mlp).max(compute).max(floor)
    }
    /// What an access of each kind costs on a CPU.
    fn costs(&mut self, sim: &Simulation, cpu: usize, compute: u64) -> CostTable {
        let at = (sim.window(), cpu);
        let [floor, _] = match self.floor {
            Some((of, floor)) if of == at => floor,
            _ => self.floor.insert((at, sim.floor_from(cpu, &self.lines))).1,
        };
        let mut costs = [0; KINDS];
        let each = costs.iter_mut().zip(sim.latency_from(cpu)).zip(floor);
        for ((cost, latency), floor) in each.take(sim.zones_used * 2) {
            *cost = self.cost(*latency, compute, floor);
        }
        costs
    }
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
            pace: None,
            filling: None,
        }
    }
}

impl Stretch {
    /// The operations begin anew.
    pub(crate) fn rewind(&mut self) {
        (self.at, self.began, self.sampled) = (0, 0, 0);
    }
    /// Whether its accesses are lines that follow one another.
    fn in_order(&self) -> bool {
        matches!(self.pace, Some(Pace::Stream(_)))
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
    pub(crate) fn most(&mut self, sim: &Simulation, id: usize) -> u64 {
        if self.deadline == u64::MAX {
            return u64::MAX;
        }
        let task = &sim.tasks[id];
        let told = self.costs(sim, task.cpu);
        let costs = told.as_ref().unwrap_or(sim.latency_from(task.cpu));
        let used = &costs[..sim.zones_used * 2];
        let least = used.iter().copied().filter(|&cost| cost > 0).min().unwrap_or(1);
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
        let cpu = sim.tasks[id].cpu;
        let told = self.costs(sim, cpu);
        let cost = told.as_ref().unwrap_or(&sim.latency[sim.cpus[cpu].node]);
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
        let told = self.costs(sim, sim.tasks[id].cpu);
        // Nobody asks for latencies at an event.
        let latency = std::mem::take(&mut sim.latency);
        let cost = told.as_ref().unwrap_or(&latency[ctx.node]);
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
        sim.latency = latency;
        if done > 0 || failed.is_some() {
            sim.count_loads(id, &made, told.as_ref());
            sim.charge(id, system, Why::System);
            sim.charge(id, ctx.clock - began - system, Why::User);
            sim.account(id, &mut made, self.in_order());
            self.score(sim, id, &ops[self.sampled..from + done]);
            (self.began, self.sampled) = (from + done, from + done);
        }
        *clock += sim.pay_for_flushes(id);
        if let Some(why) = failed {
            sim.kill(id, why);
        }
        last || failed.is_some()
    }
    /// What it has run ahead counts.
    pub(crate) fn settle(&mut self, sim: &mut Simulation, id: usize, ops: &[u32]) {
        let in_order = self.in_order();
        if sim.counts_loads() {
            let told = self.costs(sim, sim.tasks[id].cpu);
            sim.count_loads(id, &self.counts, told.as_ref());
        }
        sim.account(id, &mut self.counts, in_order);
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
        self.score(sim, id, &ops[from..self.at]);
        let Some(pmu) = sim.pmu.as_deref_mut() else { return false };
        let task = &sim.tasks[id];
        let place = sim.cpus[task.cpu].node;
        let node = sim.machine.nodes[place].id;
        let blocks = &sim.kernel.memory.blocks;
        let ops = &ops[from..self.at];
        let answers = |page| sim.kernel.answers(page, place);
        let cost = pmu.burst((task.cpu, node), task.space, ops, blocks, answers);
        sim.charge(id, cost, Why::System);
        cost > 0
    }
    /// Writes operations down where the run is judged.
    #[inline]
    fn score(&self, sim: &mut Simulation, id: usize, ops: &[u32]) {
        if sim.kernel.score.is_some() && !ops.is_empty() {
            let (compute, pace) = (self.compute, self.pace.as_ref());
            sim.score_accesses(id, ops, |latency| match pace {
                Some(pace) => pace.unloaded(latency, compute),
                None => latency + compute,
            });
        }
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
                let cpu = sim.tasks[id].cpu;
                let told = self.costs(sim, cpu);
                let cost = told.as_ref().unwrap_or(sim.latency_from(cpu))[kind];
                sim.charge(id, cost, Why::User);
                if sim.counts_loads() {
                    let mut one = Counts::default();
                    one.add(kind);
                    sim.count_loads(id, &one, told.as_ref());
                }
                sim.account_one(id, kind, self.in_order());
                self.at += 1;
            }
            Err(why) => sim.kill(id, why),
        }
        self.sample(sim, id, ops);
    }
    /// What an access of each kind costs on a CPU, with the computing before it; `None`: its
    /// latency and no more.
    #[inline]
    fn costs(&mut self, sim: &Simulation, cpu: usize) -> Option<CostTable> {
        let compute = sim.cpus[cpu].computing(self.compute);
        if let Some(pace) = &mut self.pace {
            return Some(pace.costs(sim, cpu, compute));
        }
        (compute > 0).then(|| {
            let mut costs = [0; KINDS];
            let each = costs.iter_mut().zip(sim.latency_from(cpu)).take(sim.zones_used * 2);
            each.for_each(|(cost, latency)| *cost = latency + compute);
            costs
        })
    }
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
    /// The last event has called or interrupted somebody, or lasted beyond its own time.
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
                // Who is interrupted has not run as far as was known.
                let flushes = !sim.kernel.flushes.are_none();
                self.last = self.ctx.clock >= sim.own || sim.calls() || flushes;
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
