//! What accesses cost now, and what they leave: counts, loads, figures for reports.

use super::Simulation;
use crate::hot::{CostTable, Counts, KINDS};
use crate::kernel::{Ctx, Fatal};
use crate::latency::Latencies;
use crate::overlap::{self, MissTime, Missed, Overlap};
use crate::page::{State, Word};
use crate::sched::TaskFigures;
use crate::table::prefetch_at;
use crate::tasks::Task;
use homenode_core::offcore::Offcore;
use homenode_core::scenario::Step;
use homenode_core::units::Picos;
use std::collections::BTreeMap;

/// What one process did, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFigures {
    /// Its name.
    pub name: String,
    /// From its start to its end (or to the end of the run), in picoseconds.
    pub time_ps: u64,
    /// Whether it ended by itself.
    pub ended: bool,
    /// Whether memory ran out or an access was not allowed.
    pub killed: Option<String>,
    /// Processor time of its threads, in picoseconds.
    pub ran_ps: u64,
    /// How much of it is the kernel's work for them: faults, system calls, ticks.
    pub system_ps: u64,
    /// Accesses by place of the node: reads and writes.
    pub accesses: Vec<[u64; 2]>,
    /// What its steps that access memory did, in the order of the steps.
    pub phases: Vec<PhaseFigures>,
    /// How long each first touch of a page took, direct reclaim included.
    pub allocations: Latencies,
    /// What its threads waited for and how often they were moved, all of them together.
    pub tasks: TaskFigures,
    /// Rounds of repeated steps that took no time, and got 1 µs each.
    pub empty_rounds: u64,
}

impl ProcessFigures {
    /// Whether a tenth of its time or more is that of rounds that took none: it goes round and comes
    /// nowhere.
    pub fn goes_nowhere(&self) -> bool {
        self.empty_rounds > 0 && self.empty_rounds * EMPTY_ROUND >= self.time_ps / 10
    }
}

/// What a round of repeated steps takes that would take no time at all, in picoseconds.
///
/// Source: specs/workloads.md#ends.
pub(crate) const EMPTY_ROUND: u64 = 1_000_000;

/// What the threads of a process did in one step that accesses memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseFigures {
    /// The step's place among the process's steps, from 0.
    pub step: usize,
    /// Whether the step touches each page once, instead of following a pattern.
    pub first_touch: bool,
    /// Threads that took part.
    pub threads: u64,
    /// When the first thread began it and the last one ended it, in picoseconds.
    pub span_ps: (u64, u64),
    /// Time of all threads in it, in picoseconds.
    pub time_ps: u64,
    /// Accesses by place of the node: reads and writes.
    pub accesses: Vec<[u64; 2]>,
}

impl PhaseFigures {
    /// Accesses of all threads.
    pub fn count(&self) -> u64 {
        self.accesses.iter().flatten().sum()
    }
    /// Accesses of all threads per second, by their mean time: pmbench's score where the
    /// step is its main part. 0 where no time has passed.
    ///
    /// Source: specs/pmbench.md#score.
    pub fn per_second(&self) -> u64 {
        let all = u128::from(self.count()) * u128::from(self.threads) * 1_000_000_000_000;
        all.checked_div(u128::from(self.time_ps)).unwrap_or(0) as u64
    }
}

/// What one task did in one of its steps.
#[derive(Clone, Copy, Default)]
pub(crate) struct Phase {
    /// When it first began and last ended.
    from: u64,
    to: u64,
    /// Time in it.
    time: u64,
    accesses: [u64; KINDS],
}

/// What one task has accessed.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    /// By zone and direction.
    accesses: [u64; KINDS],
    /// What its steps that access memory did, by place of the step.
    phases: BTreeMap<usize, Phase>,
    /// Rounds that took no time.
    pub(crate) empty_rounds: u64,
    /// The step it is in, when it began, and the accesses before it.
    phase: Option<(usize, u64, [u64; KINDS])>,
}

impl Tally {
    /// The phase that the task is in, as it would be if it ended at `clock`.
    fn phase_until(&self, clock: u64) -> Option<(usize, Phase)> {
        let (step, began, before) = self.phase?;
        let mut p =
            self.phases.get(&step).copied().unwrap_or(Phase { from: began, ..Phase::default() });
        p.to = clock;
        p.time += clock.saturating_sub(began);
        for (p, (now, before)) in p.accesses.iter_mut().zip(self.accesses.iter().zip(before)) {
            *p += now - before;
        }
        Some((step, p))
    }
    /// Has what every turn counts in fetched.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch_at(&raw const self.accesses);
    }
    pub(crate) fn begin_phase(&mut self, step: usize, clock: u64) {
        self.phase = Some((step, clock, self.accesses));
    }
    pub(crate) fn end_phase(&mut self, clock: u64) {
        if let Some((step, p)) = self.phase_until(clock) {
            self.phases.insert(step, p);
            self.phase = None;
        }
    }
}

impl Simulation {
    /// Serves an access that is an event; the zone. A first touch's time goes into its
    /// process's figures.
    pub(crate) fn serve(
        &mut self,
        ctx: &mut Ctx,
        process: usize,
        page: u32,
        write: bool,
    ) -> Result<usize, Fatal> {
        if Word(self.kernel.memory.words[page as usize]).state() != State::None {
            return self.kernel.touch(ctx, page, write);
        }
        let before = ctx.clock;
        let served = self.kernel.touch(ctx, page, write);
        if served.is_ok() {
            if process >= self.allocations.len() {
                self.allocations.resize(process + 1, Latencies::default());
            }
            self.allocations[process].add(ctx.clock - before);
        }
        served
    }
    /// Adds what a task's accesses moved to its counts and to the load of the nodes.
    ///
    /// * `in_order` – whether they are lines that follow one another; otherwise each lies far from the last.
    pub(crate) fn account(&mut self, id: usize, counts: &mut Counts, in_order: bool) {
        let from = self.cpus[self.tasks[id].cpu].node;
        let tally = &mut self.tallies[id].accesses;
        for zone in 0..self.zones_used {
            let (r, w) = counts.take(zone);
            if r + w > 0 {
                if let Some(score) = &mut self.kernel.score {
                    let fast = self.kernel.top[self.kernel.memory.zones[zone].node];
                    score.served(self.tasks[id].clock, fast, r + w);
                }
                tally[zone * 2] += r;
                tally[zone * 2 + 1] += w;
                self.accesses += r + w;
                let ways = (from, self.kernel.memory.zones[zone].node);
                self.kernel.loads.lines(ways, r, w, in_order);
            }
        }
    }
    /// The same for one access.
    pub(crate) fn account_one(&mut self, id: usize, kind: usize, in_order: bool) {
        self.tallies[id].accesses[kind] += 1;
        self.accesses += 1;
        if let Some(score) = &mut self.kernel.score {
            let fast = self.kernel.top[self.kernel.memory.zones[kind / 2].node];
            score.served(self.tasks[id].clock, fast, 1);
        }
        let ways = (self.cpus[self.tasks[id].cpu].node, self.kernel.memory.zones[kind / 2].node);
        let (read, write) = ((kind as u64 + 1) % 2, kind as u64 % 2);
        self.kernel.loads.lines(ways, read, write, in_order);
    }
    /// The same with lines by kind, the grains of the medium that they lie in, and how
    /// many of those that are written are so in part only.
    pub(crate) fn account_lines(
        &mut self,
        id: usize,
        sum: &[u64; KINDS],
        grains: &[u64; KINDS],
        parts: &[u64; KINDS],
    ) {
        let from = self.cpus[self.tasks[id].cpu].node;
        let tally = &mut self.tallies[id].accesses;
        for zone in 0..self.zones_used {
            let (read, write) = (zone * 2, zone * 2 + 1);
            let both = sum[read] + sum[write];
            if both == 0 {
                continue;
            }
            tally[read] += sum[read];
            tally[write] += sum[write];
            self.accesses += both;
            let node = self.kernel.memory.zones[zone].node;
            if let Some(score) = &mut self.kernel.score {
                score.served(self.tasks[id].clock, self.kernel.top[node], both);
            }
            let in_grains = (grains[read], grains[write], parts[write]);
            self.kernel.loads.access((from, node), (sum[read], sum[write]), in_grains);
        }
    }
    /// Whether anybody reads the CPUs' counters of loads: the kernel's hooks those of all CPUs,
    /// homenode those of the processes that it watches.
    #[inline]
    pub(crate) fn counts_loads(&self) -> bool {
        self.kernel.inside.offcore.is_some() || self.pmu.as_ref().is_some_and(|p| p.counts_loads)
    }
    /// Counts loads, and how long they were under way, as the CPU's counters do, where somebody
    /// reads them. Accesses of one task, which take what `costs` says, each after the other, or
    /// their latency where it says nothing.
    ///
    /// Source: specs/compare.md#alto, specs/sources.md#loads.
    pub(crate) fn count_loads(&mut self, id: usize, counts: &Counts, costs: Option<&CostTable>) {
        if !self.counts_loads() {
            return;
        }
        let cpu = self.tasks[id].cpu;
        let latency = &self.latency[self.cpus[cpu].node];
        let costs = costs.unwrap_or(latency);
        let (mut reads, mut under_way, mut took) = (0, 0, 0);
        for read in (0..self.zones_used * 2).step_by(2) {
            let (r, w) = (counts.get(read), counts.get(read + 1));
            reads += r;
            under_way += r * latency[read];
            took += r * costs[read] + w * costs[read + 1];
        }
        let mut loads = Offcore::default();
        loads.add(reads, Picos(under_way), Picos(took));
        self.count_lines(id, &loads);
    }
    /// The same for loads of a task that were counted as they came.
    pub(crate) fn count_lines(&mut self, id: usize, loads: &Offcore) {
        if let Some(all) = &mut self.kernel.inside.offcore {
            all.take_over(loads);
        }
        if let Some(pmu) = &mut self.pmu {
            pmu.count_loads(self.tasks[id].space, loads);
        }
    }
    /// What misses of a replaying task took.
    pub(crate) fn account_missed(&mut self, id: usize, missed: &Missed) {
        let (from, zones) = (self.cpus[self.tasks[id].cpu].node, &self.kernel.memory.zones);
        self.missed.add(from, missed, |zone| zones[zone].node);
    }
    /// What misses of a replay took, and what that hangs on.
    pub fn missed(&self) -> &MissTime {
        &self.missed
    }
    /// Unloaded latencies that CPUs of a node see, by kind.
    pub(crate) fn unloaded_from(&self, cpu: usize) -> &CostTable {
        &self.base[self.cpus[cpu].node]
    }
    /// Latencies that CPUs of a node see now, by kind.
    pub(crate) fn latency_from(&self, cpu: usize) -> &CostTable {
        &self.latency[self.cpus[cpu].node]
    }
    /// How long each line takes of a stream that asks for one in `ps` picoseconds, by kind.
    pub(crate) fn paced_from(&self, cpu: usize, ps: u64) -> CostTable {
        let from = self.cpus[cpu].node;
        let mut costs = [0; KINDS];
        for (kind, cost) in costs.iter_mut().enumerate().take(self.zones_used * 2) {
            let node = self.kernel.memory.zones[kind / 2].node;
            *cost = self.kernel.loads.paced(from, node, ps);
        }
        costs
    }
    /// The least time of a line that CPUs of a node see now.
    pub(crate) fn floor_from(&self, cpu: usize, o: &Overlap) -> overlap::Floor {
        let base = &self.base[self.cpus[cpu].node];
        let load = |k: usize| &self.kernel.loads.nodes[self.kernel.memory.zones[k / 2].node];
        overlap::floor(o, base, self.latency_from(cpu), self.zones_used * 2, load)
    }
    /// When the present window of load began.
    pub(crate) fn window(&self) -> u64 {
        self.window_start
    }
    /// Loads are measured, and the latencies of the next window follow.
    pub(crate) fn close_window(&mut self) {
        let span = self.now() - self.window_start;
        self.window_start = self.now();
        self.kernel.loads.close(span);
        for (from, (table, base)) in self.latency.iter_mut().zip(&self.base).enumerate() {
            for k in 0..self.zones_used * 2 {
                let node = self.kernel.memory.zones[k / 2].node;
                table[k] = self.kernel.loads.apply(from, node, base[k]);
            }
        }
    }

    /// What each process did.
    pub fn processes(&self) -> Vec<ProcessFigures> {
        let nodes = self.machine.nodes.len();
        let mut all: Vec<ProcessFigures> = self
            .names
            .iter()
            .map(|name| ProcessFigures {
                name: name.clone(),
                ended: true,
                accesses: vec![[0; 2]; nodes],
                ..Default::default()
            })
            .collect();
        let mut first = vec![u64::MAX; all.len()];
        let mut last = vec![0; all.len()];
        for &(task, ns) in self.sched.q.latencies() {
            if let Some(f) = all.get_mut(self.tasks[task as usize].process) {
                f.tasks.latency.add(ns * 1000);
            }
        }
        let tallied = self.tasks.iter().zip(&self.tallies);
        let of_programs = |(_, (t, _)): &(usize, (&Task, &Tally))| t.process != usize::MAX;
        for (id, (t, tally)) in tallied.enumerate().filter(of_programs) {
            let f = &mut all[t.process];
            f.ended &= !t.lives();
            let end = if t.lives() { self.now() } else { t.ended };
            first[t.process] = first[t.process].min(t.started);
            last[t.process] = last[t.process].max(end);
            f.ran_ps += t.ran;
            f.system_ps += t.system;
            f.tasks.add(&self.sched.q.tasks[id].figures);
            f.empty_rounds += tally.empty_rounds;
            if let Some(why) = t.killed {
                f.killed.get_or_insert(match why {
                    Fatal::Oom => "out of memory".to_owned(),
                    Fatal::Segv => "segmentation fault".to_owned(),
                });
            }
            for zone in 0..self.zones_used {
                let node = self.kernel.memory.zones[zone].node;
                f.accesses[node][0] += tally.accesses[zone * 2];
                f.accesses[node][1] += tally.accesses[zone * 2 + 1];
            }
            let open = tally.phase_until(t.clock.max(t.ended));
            let mut phases = tally.phases.clone();
            phases.extend(open);
            for (step, phase) in phases {
                let steps = &self.processes[t.process].steps;
                let at = f.phases.partition_point(|p| p.step < step);
                if f.phases.get(at).is_none_or(|p| p.step != step) {
                    let pattern = steps.get(step).is_some_and(Step::accesses);
                    f.phases.insert(
                        at,
                        PhaseFigures {
                            step,
                            first_touch: !pattern,
                            span_ps: (u64::MAX, 0),
                            accesses: vec![[0; 2]; nodes],
                            ..Default::default()
                        },
                    );
                }
                let sum = &mut f.phases[at];
                sum.threads += 1;
                sum.span_ps = (sum.span_ps.0.min(phase.from), sum.span_ps.1.max(phase.to));
                sum.time_ps += phase.time;
                for zone in 0..self.zones_used {
                    let node = self.kernel.memory.zones[zone].node;
                    sum.accesses[node][0] += phase.accesses[zone * 2];
                    sum.accesses[node][1] += phase.accesses[zone * 2 + 1];
                }
            }
        }
        for (f, l) in all.iter_mut().zip(&self.allocations) {
            f.allocations = l.clone();
        }
        for (p, f) in all.iter_mut().enumerate() {
            f.time_ps = last[p].saturating_sub(first[p].min(last[p]));
        }
        all
    }
}
