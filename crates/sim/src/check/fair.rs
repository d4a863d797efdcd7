//! What the fair class owes everybody: lags are bounded, and nobody waits for ever.
//!
//! Of a queue with slices up to `s`, ticks of `t` and acts that nobody may interrupt of up to `a`,
//! in virtual time of a task of weight `w`, `vd(x, w) = x * 1024 / w`:
//!
//! * L = max(2 s, t) is what a task's lag is cut to when it leaves, so who comes is at most
//!   vd(L, w) away from the mean, and moves the mean by at most vd(L, W), W the weights that were
//!   there before.
//! * Ahead of the mean is who came so, or was picked at the mean or behind it and ran a slice, until
//!   the next tick, and to the end of an act: vd(max(L, s + t + a), w).
//! * Behind the mean by more than its own slice, the first deadline is its own: others get ahead of it
//!   by what they came with, and each by one tick and one act.
//!
//! In the worst case all others came one after the other, the lightest first: the sum of vd(L, W)
//! with W as it grows; and as many have left since, who move the mean as much.
//!
//! Under CFS there is no lag. What holds instead: the floor of a queue never goes back; and nobody who is queued
//! is further before it than the credit of a sleeper, a latency at most. The second not in 4.5, where who
//! comes from another CPU is placed by the floor as it stood before the running task is charged, which may be far behind.
//!
//! Source: specs/sched-fair.md#queue, #pick, #placement, specs/sched-cfs.md#floor, #placement.

use super::cpus::Told;
use crate::kernel::TICK;
use crate::simulation::Simulation;
use homenode_core::hold;
use homenode_core::sched::fair::Rules;

/// A tick in nanoseconds.
const TICK_NS: i128 = (TICK / 1000) as i128;

/// What the bounds are made of, the largest so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// A slice, in nanoseconds.
    slice: i128,
    /// An act that lasted beyond now, in nanoseconds.
    act: i128,
    /// By CPU: weights and tasks of its queue.
    most: Vec<(i128, i128)>,
    /// CFS: by CPU, the floor of its root queue.
    floors: Vec<i64>,
}

/// A task of a queue: its number, weight, virtual run time and deadline.
type Member = (usize, i128, i128, i128);

/// So much time of a task as virtual time of a weight.
fn vd(ns: i128, weight: i128) -> i128 {
    ns * 1024 / weight.max(1) + 1
}

impl Bounds {
    /// What they are when somebody begins to look on.
    pub(super) fn of(sim: &Simulation) -> Self {
        Self { slice: sim.sched.base_slice_ns().into(), ..Self::default() }
    }
    /// An act lasts so long, in picoseconds.
    pub(super) fn acted(&mut self, lasts: u64) {
        self.act = self.act.max(i128::from(lasts / 1000));
    }
}

/// What is wrong now.
pub(super) fn recount(sim: &Simulation, told: &Told, bounds: &mut Bounds) -> Vec<String> {
    let (q, fair) = (&sim.sched.q, &sim.sched.q.fair);
    if fair.knobs().rules.is_cfs() {
        return recount_cfs(sim, bounds);
    }
    let now = sim.now();
    let mut found = Vec::new();
    bounds.slice = bounds.slice.max(i128::from(sim.sched.base_slice_ns()));
    let own = q.tasks.iter().filter_map(|t| t.terms.slice_ns).max();
    bounds.slice = bounds.slice.max(own.map_or(0, i128::from));
    for t in sim.tasks.iter() {
        bounds.act = bounds.act.max(i128::from(t.clock.saturating_sub(now) / 1000));
    }
    bounds.most.resize(sim.cpus.len(), (0, 0));
    let (slice, act) = (bounds.slice, bounds.act);
    let limit = (2 * slice).max(TICK_NS);
    let queues: Vec<(usize, u32)> = (0..sim.cpus.len()).flat_map(|cpu| alone(sim, cpu)).collect();
    for (cpu, group) in queues {
        let mut all: Vec<Member> = Vec::new();
        for id in 0..sim.tasks.len() {
            let number = id as u32;
            if is_on(sim, id, cpu) && q.tasks[id].terms.group == group {
                let (v, deadline) = fair.virtual_times(number);
                all.push((id, fair.task_weight(number).into(), v.into(), deadline.into()));
            }
        }
        let Some(&(_, _, zero, _)) = all.first() else { continue };
        let weight: i128 = all.iter().map(|m| m.1).sum();
        let n = all.len() as i128;
        let most = &mut bounds.most[cpu];
        *most = (most.0.max(weight), most.1.max(n));
        // Virtual times wrap: they are near one another.
        let from = |v: i128| i128::from((v as i64).wrapping_sub(zero as i64));
        let mean = all.iter().map(|m| m.1 * from(m.2)).sum::<i128>().div_euclid(weight);
        let mut weights: Vec<i128> = all.iter().map(|m| m.1).collect();
        weights.sort_unstable();
        for &(id, w, v, deadline) in &all {
            let mut there = w;
            let mut came = 0;
            let mut own = false;
            for &other in &weights {
                // Each but itself.
                if other == w && !std::mem::replace(&mut own, true) {
                    continue;
                }
                came += vd(limit, there);
                there += other;
            }
            let lag = mean - from(v);
            let request = i128::from((deadline as i64).wrapping_sub(v as i64)).max(0);
            let behind = request + 2 * came + vd(n * (TICK_NS + act), weight);
            let ahead = vd(limit.max(slice + TICK_NS + act), w) + 2 * came;
            hold!(
                found,
                -ahead <= lag && lag <= behind,
                "task {id} of weight {w} on CPU place {cpu} is {lag} ns of virtual time behind \
                 the mean of {n} tasks; allowed are -{ahead} to {behind}"
            );
            // Beside other groups a queue has a share of its CPU only.
            let since = told.waits_since(id).filter(|_| q.groups.all.is_empty());
            let Some(since) = since else { continue };
            let waits = i128::from(now.saturating_sub(since) / 1000);
            // The mean has to come from as far behind it as may be to as far ahead.
            let longest = 2 * (ahead + behind) * most.0 / 1024 + most.1 * (slice + TICK_NS + act);
            hold!(
                found,
                waits <= longest || fair.is_throttled(id as u32),
                "task {id} of weight {w} has waited for {waits} ns on CPU place {cpu}, beside \
                 {n} of weight {weight}; at most {longest} are allowed"
            );
        }
    }
    found
}

/// The longest latency: of 8 CPUs and more.
const LATENCY_NS: i64 = 24_000_000;

/// What is wrong now under CFS.
fn recount_cfs(sim: &Simulation, bounds: &mut Bounds) -> Vec<String> {
    let (q, fair) = (&sim.sched.q, &sim.sched.q.fair);
    let mut found = Vec::new();
    let floors: Vec<i64> = (0..sim.cpus.len()).map(|cpu| fair.min_vruntime(cpu)).collect();
    for (cpu, (&floor, &before)) in floors.iter().zip(&bounds.floors).enumerate() {
        let on = floor.wrapping_sub(before);
        hold!(found, on >= 0, "the floor of CPU place {cpu} has gone back by {on} ns");
    }
    let bounded = fair.knobs().rules != Rules::Cfs4_5;
    for (cpu, &floor) in floors.iter().enumerate().filter(|_| bounded) {
        for id in 0..sim.tasks.len() {
            if is_on(sim, id, cpu) && q.tasks[id].terms.group == 0 {
                let ahead = fair.virtual_times(id as u32).0.wrapping_sub(floor);
                hold!(
                    found,
                    ahead >= -LATENCY_NS,
                    "task {id} on CPU place {cpu} is {ahead} ns from the floor of its queue; \
                     nobody gets more credit than {LATENCY_NS}"
                );
            }
        }
    }
    bounds.floors = floors;
    found
}

fn is_on(sim: &Simulation, id: usize, cpu: usize) -> bool {
    let fair = &sim.sched.q.fair;
    sim.tasks[id].lives() && fair.is_queued(id as u32) && fair.cpu_of(id as u32) == cpu
}

/// The groups that have tasks queued on a CPU, and on whose queues is nobody but tasks; the root is 0.
fn alone(sim: &Simulation, cpu: usize) -> Vec<(usize, u32)> {
    let q = &sim.sched.q;
    let of = |id: usize| q.tasks[id].terms.group;
    let mut all: Vec<u32> =
        (0..sim.tasks.len()).filter(|&id| is_on(sim, id, cpu)).map(of).collect();
    all.sort_unstable();
    all.dedup();
    // A group's entity may wait there with nobody in it.
    let groups = 1..=q.groups.all.len() as u32;
    let below = |g: u32| groups.clone().any(|other| other != g && q.groups.is_in(other, g));
    all.iter().filter(|&&g| !below(g)).map(|&g| (cpu, g)).collect()
}
