//! One run: a workload under a contender with a seed, and what is told of it.

use super::workloads::Workload;
use crate::contender::{Contender, Knowledge};
use crate::homenode::Runner;
use anyhow::{Result, anyhow, bail};
use homenode_core::optimum::Case;
use homenode_core::topology::Hardware;
use homenode_core::units::{LINE_SIZE, Picos, count};
use homenode_report::{CompareCell, CompareLate, CompareOptimum};
use homenode_sim::{PhaseFigures, Score, Setup, Simulation, Slice, Used};
use std::cmp::Reverse;
use std::ops::Range;
use twox_hash::XxHash3_128;

/// Slices of a run.
const SLICES: u64 = 100;
/// Of so many pages one is followed, as a binary logarithm; of small workloads all are.
const GROUP: u32 = 3;
const SMALL: u64 = 4096;

/// A run to be made.
pub(super) struct Job<'a> {
    pub(super) workload: &'a Workload,
    pub(super) contender: &'a Contender,
    pub(super) setup: &'a Setup,
    pub(super) seed: u64,
    pub(super) knowledge: Knowledge,
    /// Whether the optimum is looked for with this one's accesses.
    pub(super) is_first: bool,
}

impl Job<'_> {
    /// A hash of everything that decides what comes of it.
    ///
    /// * `program` – what tells this program from others.
    pub(super) fn key(&self, program: u64) -> String {
        let workload = self.workload.key();
        let Setup { version, knobs, model, duration, ksm, .. } = self.setup;
        // The kernel's own knows none of it.
        let knows = self.contender.drives.is_some() || self.contender.interleaves;
        let knowledge = knows.then_some(self.knowledge);
        let text = format!(
            "{program:x} {workload} {} {version:?} {knobs:?} {model:?} {duration:?} {ksm:?} {} {} {knowledge:?}",
            self.contender.name, self.seed, self.is_first
        );
        format!("{:032x}", XxHash3_128::oneshot(text.as_bytes()))
    }
    pub(super) fn run(&self) -> Result<CompareCell> {
        let (workload, machine) = (self.workload, &self.workload.machine);
        let setup = Setup { seed: self.seed, ..self.setup.clone() };
        // Weights of interleaving follow from bandwidths as they are known.
        let contender = self.contender.clone().on(&self.knowledge.told(machine, self.seed))?;
        let mut sim = workload.simulation(&contender, &setup)?;
        let slice = Picos((workload.lasts(&setup).0 / SLICES).max(1));
        let group = if workload.pages() <= SMALL { 0 } else { GROUP };
        sim.keep_score(Score::new(slice, group, self.is_first));
        let mut runner = Runner::knowing(sim, &contender, &setup, self.knowledge)?;
        workload.run(&mut runner)?;
        let sim = runner.ended()?;
        for p in sim.processes() {
            if let Some(why) = p.killed {
                bail!("the process {} was killed: {why}", p.name);
            }
        }
        told_of(sim, workload, self.seed, self.is_first)
    }
}

/// What is told of a run that is over.
fn told_of(sim: &Simulation, workload: &Workload, seed: u64, looks: bool) -> Result<CompareCell> {
    let score = sim.score().ok_or_else(|| anyhow!("no score was kept"))?;
    let every = score.every().0;
    // Whole slices after the last first touch. What touches its memory as it goes along has no
    // such phase; a recorded program does so in its first round.
    let touched = sim.processes().into_iter().flat_map(|p| p.phases).filter(|f| f.first_touch);
    let touched = touched.map(|f| f.span_ps.1).max();
    let touched = touched.or(sim.round_ends().first().copied()).unwrap_or(0);
    let from = touched.div_ceil(every) as usize;
    let to = score.used().len().min(score.slices().len());
    if to < from + 4 {
        bail!(
            "the run ends at {}, too soon after its first touch of memory; give it more --time",
            homenode_config::write_time(Picos(sim.now()))
        );
    }
    let slices = &score.slices()[from..to];
    let seconds = |ps: u64| ps as f64 / 1e12;
    let all = |s: &Slice| s.fast + s.slow;
    let used_from = |from: usize, f: fn(&Used) -> u64| {
        let before = from.checked_sub(1).map_or(0, |i| f(&score.used()[i]));
        seconds(f(&score.used()[to - 1]).saturating_sub(before))
    };
    let used = |f| used_from(from, f);
    let quarter = to - slices.len().div_ceil(4);
    let late = &score.slices()[quarter..to];
    let (moves, vain) = score.moves();
    let mut cell = CompareCell {
        seed,
        accesses: slices.iter().map(all).sum(),
        seconds: seconds(every) * slices.len() as f64,
        slice: seconds(every),
        speeds: slices.iter().map(|s| all(s) as f64 / seconds(every) / 1e6).collect(),
        shares: slices.iter().map(|s| s.fast as f64 * 100.0 / all(s).max(1) as f64).collect(),
        moved: sim.moved().iter().flatten().sum(),
        vain_percent: (moves > 0).then(|| vain as f64 * 100.0 / moves as f64),
        busy: used(|u| u.busy_ps),
        user: used(|u| u.user_ps),
        programs: progress(sim),
        late: CompareLate {
            accesses: late.iter().map(all).sum(),
            seconds: seconds(every) * late.len() as f64,
            busy: used_from(quarter, |u| u.busy_ps),
            user: used_from(quarter, |u| u.user_ps),
        },
        optimum: None,
    };
    if cell.late.accesses == 0 {
        bail!(
            "no program accesses memory after its first touch, or in the last quarter of the run"
        );
    }
    if looks && cell.moved == 0 {
        cell.optimum = Some(optimum(sim, &workload.machine, &cell, from..to, quarter..to));
    }
    if let Some(lines) = workload.round() {
        by_rounds(&mut cell, sim.round_ends(), lines)?;
    }
    Ok(cell)
}

/// What each program has accessed, beside its first touch: in the order in which they began, those
/// left out that did nothing else.
fn progress(sim: &Simulation) -> Vec<u64> {
    let of = |phases: Vec<PhaseFigures>| {
        phases.iter().filter(|f| !f.first_touch).map(PhaseFigures::count).sum()
    };
    sim.processes().into_iter().map(|p| of(p.phases)).filter(|n| *n > 0).collect()
}

/// Rounds of a recording that have to be judged: with fewer, the last quarter is no whole one.
const LEAST_ROUNDS: usize = 4;

/// A recorded program does other things in other parts of its round. So its speed is by whole rounds
/// after the first, and what CPUs did is that of as much time.
///
/// * `ends` – when rounds ended, in picoseconds.
/// * `lines` – what each of them fetches.
fn by_rounds(cell: &mut CompareCell, ends: &[u64], lines: u64) -> Result<()> {
    let judged = ends.len().saturating_sub(1);
    if judged < LEAST_ROUNDS {
        bail!(
            "{} after the first, and {LEAST_ROUNDS} have to be judged; give it more --time",
            count(judged as u64, "round is over", "rounds are over")
        );
    }
    let last = |rounds: usize| {
        let ps = ends[judged] - ends[judged - rounds];
        (lines * rounds as u64, ps as f64 / 1e12)
    };
    let CompareCell { accesses, seconds, busy, user, late, .. } = cell;
    let whole = (last(judged), accesses, seconds, busy, user);
    let late = (
        last(judged.div_ceil(4)),
        &mut late.accesses,
        &mut late.seconds,
        &mut late.busy,
        &mut late.user,
    );
    for ((lines, took), accesses, seconds, busy, user) in [whole, late] {
        let longer = took / *seconds;
        (*accesses, *seconds) = (lines, took);
        *busy *= longer;
        *user *= longer;
    }
    Ok(())
}

/// The best that could have been done for the accesses of a run in which nothing moved.
///
/// Source: specs/compare.md#optimum.
fn optimum(
    sim: &Simulation,
    machine: &Hardware,
    cell: &CompareCell,
    slices: Range<usize>,
    late: Range<usize>,
) -> CompareOptimum {
    let (score, top) = (sim.score().expect("kept"), sim.top_tier());
    let stands_for = score.stands_for();
    let one = |p: homenode_sim::PageCourse| {
        let gain = |s: usize| p.gains.get(s).copied().unwrap_or(0);
        (p.fast, slices.clone().map(gain).collect())
    };
    let courses = sim.courses();
    let in_late = |p: &homenode_sim::PageCourse| -> u64 {
        late.clone().filter_map(|s| p.gains.get(s)).map(|&g| u64::from(g)).sum()
    };
    let mut by_late: Vec<u64> = courses.iter().map(in_late).collect();
    let pages: Vec<(bool, Vec<u32>)> = courses.into_iter().map(one).collect();
    let fast = machine.nodes.iter().zip(top).filter(|(_, top)| **top);
    let slots: u64 = fast.map(|(n, _)| n.managed().0).sum::<u64>() / stands_for;
    let [up, down] = sim.move_costs().map(|c| c.as_ns());
    let most: i64 = pages.iter().flat_map(|p| &p.1).map(|&g| i64::from(g)).sum();
    let case = Case { pages, slots, up, down };
    let found = case.solve();
    let ns = |slices: Range<usize>, accesses: u64, lost: f64| {
        let least: u64 = score.slices()[slices].iter().map(|s| s.least_ps).sum();
        let cpu = (least as f64 / 1000.0 + lost * stands_for as f64) / accesses as f64;
        cpu.max(by_bandwidth(machine, cell))
    };
    let of = |gained: i64| ns(slices.clone(), cell.accesses, (most - gained) as f64);
    // The pages that gain most are there before, and stay.
    by_late.sort_unstable_by_key(|&gain| Reverse(gain));
    let below: u64 = by_late.iter().skip(slots as usize).sum();
    CompareOptimum {
        how: found.how.name().to_owned(),
        least_ns: of(found.most),
        reached_ns: of(found.reached),
        late_ns: ns(late.clone(), cell.late.accesses, below as f64),
    }
}

/// The least CPU time of an access in nanoseconds that the bandwidth of all nodes allows, with as
/// many CPUs busy for programs as there were.
fn by_bandwidth(machine: &Hardware, cell: &CompareCell) -> f64 {
    let all: u64 = machine.nodes.iter().map(|n| machine.bandwidth(n.id)[0]).sum();
    let programs = cell.user / cell.seconds;
    // MB/s are bytes per microsecond.
    LINE_SIZE as f64 * 1000.0 / all.max(1) as f64 * programs
}
