//! What the simulator says that a kernel or a recorded program takes.
//!
//! ```text
//! kernel ──accesses──▶ model of caches ──rows──▶ replay on the machine ──▶ time
//! recording ─────────────────────────────rows──▶ replay on the machine ──▶ time
//! ```
//!
//! The model of the caches is the recorder's, the replay the one of `homenode replay`,
//! with misses that overlap as the machine's constants have it. What the caches answer
//! is spread over the instructions.

use super::interval;
use crate::spread::{self, Predicted, Rests, Z80};
use crate::told::Told;
use anyhow::{Result, bail};
use homenode_core::costs::Cost;
use homenode_core::curve::Walk;
use homenode_core::splitmix::SplitMix;
use homenode_core::topology::Hardware;
use homenode_measure::truth::{Case, Kernel};
use homenode_sim::replay::{Charge, Op, Recording, Rounds};
use homenode_sim::{MissTime, Overlap, Setup, Simulation};
use homenode_trace::model::{Core, Geometry, Llc, Open, Sink};
use homenode_trace::{ARG_STREAM, ARG_WRITE, Totals};
use std::sync::Arc;

/// Most operations of a kernel that are modelled: the rest are alike.
const OPERATIONS: u64 = 1 << 20;
/// First line of a kernel's memory: anywhere.
const BASE: u64 = 1 << 30;

/// What a core needs for an operation that its first cache answers, in picoseconds,
/// measured on 16 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Near {
    pub(super) stream: Predicted,
    pub(super) update: Predicted,
}

impl Near {
    /// Of a chase it is in the curve: a load waits for the one before, whatever the loop.
    fn of(self, kernel: Kernel) -> Predicted {
        match kernel {
            Kernel::Chase => Predicted::default(),
            Kernel::Stream => self.stream,
            Kernel::Update => self.update,
        }
    }
}

/// Rows of a model as a recording.
struct Rows {
    recording: Recording,
    last: u64,
}

impl Sink for Rows {
    fn row(&mut self, row: Open, _: &Totals) {
        let insns = row.at.max(self.last) - self.last;
        self.last += insns;
        let op = Op::Access {
            page: row.page,
            reads: row.reads,
            writes: row.writes,
            write: row.arg & ARG_WRITE != 0,
            stream: row.arg & ARG_STREAM != 0,
        };
        self.recording.push(0, insns, op);
    }
}

/// What an operation of a kernel takes by the machine's curves, in picoseconds; `None` where it has none of
/// this kernel.
pub(super) fn by_curve(
    machine: &Hardware,
    case: Case,
    near: Near,
    between_runs: f64,
) -> Option<Predicted> {
    let curve = machine.curve(walk(case.kernel))?;
    Some(interval::by_curve(curve, case.bytes, near.of(case.kernel), between_runs))
}

/// The curve that has a kernel's accesses.
pub(super) fn walk(kernel: Kernel) -> Walk {
    match kernel {
        Kernel::Chase => Walk::Chase,
        Kernel::Stream => Walk::Stream,
        Kernel::Update => Walk::Update,
    }
}

/// Picoseconds of an operation of a kernel, by the simulator, for machines without curves.
///
/// # Errors
/// Where the machine's memory is too small for it.
pub(super) fn kernel(
    machine: &Hardware,
    geometry: &Geometry,
    case: Case,
    near: Near,
) -> Result<f64> {
    let lines = (case.bytes / 64).max(2);
    let (mut core, llc) = (Core::new(geometry), Llc::new(geometry));
    let each = case.kernel.insns();
    let mut order = LineOrder::new(case.kernel, lines);
    let mut now = 0;
    let mut rows = Rows { recording: Recording::new(1), last: 0 };
    let mut go = |core: &mut Core, rows: &mut Rows, operations: u64| {
        for _ in 0..operations {
            now += each;
            let line = BASE + order.next();
            touch(core, &llc, line, false, now, rows);
            if case.kernel == Kernel::Update {
                touch(core, &llc, line, true, now, rows);
            }
        }
        now
    };
    // Twice what the caches hold brings them to where they stay.
    let cached = 2 * (geometry.llc.0 + geometry.l2.0 + geometry.l1.0) / 64;
    let warm = if case.kernel == Kernel::Update { cached } else { lines.min(cached) };
    let begun = go(&mut core, &mut rows, warm);
    core.close_all(&mut rows);
    core.settle();
    let before = answered(&core.totals);
    rows = Rows { recording: Recording::new(1), last: begun };
    let operations = lines.clamp(OPERATIONS / 4, OPERATIONS);
    let end = go(&mut core, &mut rows, operations);
    core.close_all(&mut rows);
    rows.recording.push(0, end - rows.last, Op::Wait { child: None });
    let after = answered(&core.totals);
    let [missed, second, last] = std::array::from_fn(|i| (after[i] - before[i]) as f64);

    let n = operations as f64;
    let get = |key| machine.costs.get(key) as f64;
    let latency = |i: usize| machine.caches.get(i).map_or(0.0, |c| c.latency.value as f64);
    let first = n - missed;
    let has_l2 = geometry.l2.0 > 0;
    let outer = machine.caches.len().saturating_sub(1);
    let second_latency = if has_l2 { latency(1) } else { latency(outer) };
    let (overlap, operation) = match case.kernel {
        Kernel::Chase => (
            Overlap::chain(),
            (first * latency(0) + second * second_latency + last * latency(outer)) / n,
        ),
        Kernel::Stream => {
            // 64 bytes at MB/s, in picoseconds.
            let line = |key| 64.0 * 1e6 / get(key);
            let inner = second * line(Cost::StreamL2) + last * line(Cost::StreamLlc);
            (Overlap::of(machine), (first * near.stream.time + inner).max(0.0) / n)
        }
        Kernel::Update => {
            // A store to a line counts as an access of its own, which the first cache answers.
            let least = |key| get(key).max(near.update.time);
            let inner = second * least(Cost::UpdateL2) + last * least(Cost::UpdateLlc);
            let rest = (n - second - last).max(0.0);
            (Overlap::of(machine), (rest * near.update.time + inner) / n)
        }
    };
    let as_per_insn = (operation * 1e6 / each as f64).round() as u64;
    Ok(round(machine, &Arc::new(rows.recording), as_per_insn, overlap)?.ps / n)
}

/// Lines that the first cache did not answer, that the second did, and the last.
fn answered(t: &Totals) -> [u64; 3] {
    [t.l1_misses, t.l2_hits(), t.llc_hits()]
}

fn touch(core: &mut Core, llc: &Llc, line: u64, write: bool, now: u64, rows: &mut Rows) {
    if !core.done(line, u8::from(!write)) {
        if let Err(old) = core.l1(line, write) {
            core.access(llc, line, write, old, now, rows);
        }
    }
}

/// In which order a kernel goes over its lines.
enum LineOrder {
    /// A random cycle through all.
    Cycle(Vec<u32>, usize),
    /// Any line, each time; also for cycles so long that no cache holds them.
    Random(SplitMix, u64),
    /// One after the other.
    Rising(u64, u64),
}

/// Cycles of more lines (2 GiB) are taken as random.
const CYCLE_LINES: u64 = 1 << 25;

impl LineOrder {
    fn new(kernel: Kernel, lines: u64) -> Self {
        let mut random = SplitMix::new(0x006f_7264_6572);
        match kernel {
            Kernel::Stream => Self::Rising(0, lines),
            Kernel::Chase if lines <= CYCLE_LINES => {
                let mut order: Vec<u32> = (0..lines as u32).collect();
                random.shuffle(&mut order);
                Self::Cycle(order, 0)
            }
            _ => Self::Random(random, lines),
        }
    }
    fn next(&mut self) -> u64 {
        match self {
            Self::Cycle(order, at) => {
                *at = (*at + 1) % order.len();
                u64::from(order[*at])
            }
            Self::Random(random, lines) => random.below(*lines),
            Self::Rising(at, lines) => {
                *at = (*at + 1) % *lines;
                *at
            }
        }
    }
}

/// The measured phase of a recorded program.
pub(super) struct Phase {
    pub(super) recording: Recording,
    pub(super) totals: Totals,
}

/// What a phase of a program takes, by the simulator, in picoseconds.
///
/// * `small` – the same phase on a small input, and what it took natively.
/// * `between_runs` – by how much runs differ from what was measured, as a logarithm.
///
/// # Errors
/// Where the machine's memory is too small for it.
pub(super) fn program(
    machine: &Hardware,
    large: Phase,
    small: &Totals,
    small_ps: &Predicted,
    between_runs: f64,
) -> Result<Predicted> {
    let Phase { recording, totals } = large;
    let recording = Arc::new(recording);
    let time = |machine: &Hardware, small_ps: f64| -> Result<Round> {
        one_program(machine, &recording, &totals, small, small_ps)
    };
    let middle = time(machine, small_ps.time)?;
    // What an instruction takes, and the last level, of which more is in the large input than in the small one,
    // at the upper end of their own intervals, the others in the middle. Downwards is taken to be as far.
    let off = |end: &Round| (end.ps / middle.ps).ln().abs();
    let mut changed = machine.clone();
    changed.caches.last_mut().into_iter().for_each(|c| spread::raise(&mut c.latency));
    let cache = if changed == *machine { 0.0 } else { off(&time(&changed, small_ps.time)?) };
    let mut parts = vec![off(&time(machine, small_ps.high)?), cache, Z80 * between_runs];
    // All that misses rest on was counted, of two rounds.
    let more = |it: Rests| it.weight(machine, &middle.missed) / 2.0 * it.end(machine) / middle.ps;
    parts.extend(Rests::of(machine).into_iter().map(|it| more(it).max(-0.99).ln_1p()));
    let told = Told::of(machine, Some(Overlap::of(machine)));
    let told = told.map_or(0.0, |t| (t.more(&middle.missed) / 2.0 / middle.ps).ln_1p());
    let parts: Vec<(f64, f64)> = parts.into_iter().map(|p| (p, p)).chain([(0.0, told)]).collect();
    Ok(Predicted::of(middle.ps, &parts))
}

/// Picoseconds that a phase takes on a machine whose constants are exactly these.
fn one_program(
    machine: &Hardware,
    recording: &Arc<Recording>,
    t: &Totals,
    small: &Totals,
    small_ps: f64,
) -> Result<Round> {
    let overlap = Overlap::of(machine);
    let per = |n: u64, t: &Totals| n as f64 / t.insns.max(1) as f64;
    let plain = small_ps / small.insns.max(1) as f64;
    // What more the caches answer than for the small input, overlapped as misses are.
    let latency = |i: usize| machine.caches.get(i).map_or(0.0, |c| c.latency.value as f64);
    let outer = machine.caches.len().saturating_sub(1);
    let wait = |hits: f64, latency: f64| {
        if hits <= 0.0 {
            return 0.0;
        }
        let apart = (1.0 / hits / overlap.window as f64).min(1.0);
        hits * latency * apart.max(1e3 / overlap.random[0] as f64)
    };
    let second = per(t.l2_hits(), t) - per(small.l2_hits(), small);
    let last = per(t.llc_hits(), t) - per(small.llc_hits(), small);
    let inner = wait(last, latency(outer)) + if outer > 1 { wait(second, latency(1)) } else { 0.0 };
    let as_per_insn = (plain.max(inner) * 1e6).round() as u64;
    round(machine, recording, as_per_insn, overlap)
}

/// A recording's second round, which has its memory already, and what misses took in both.
struct Round {
    ps: f64,
    missed: MissTime,
}

fn round(
    machine: &Hardware,
    recording: &Arc<Recording>,
    as_per_insn: u64,
    overlap: Overlap,
) -> Result<Round> {
    let setup = Setup { knobs: vec![("numa_balancing".into(), "0".into())], ..Setup::default() };
    let charge = Charge {
        as_per_insn,
        own_as_per_insn: Arc::default(),
        rounds: Rounds::Count(2),
        policy: Default::default(),
        overlap: Some(overlap),
        cpus: Vec::new(),
    };
    let mut sim = Simulation::replay(machine, &setup, recording, "truth", &charge)?;
    sim.run();
    if let Some(e) = sim.error() {
        bail!("{e}");
    }
    if let Some(why) = sim.processes().iter().find_map(|p| p.killed.clone()) {
        bail!("the machine \"{}\" killed the simulated workload: {why}", machine.name);
    }
    match *sim.round_ends() {
        [first, second] => Ok(Round { ps: (second - first) as f64, missed: sim.missed().clone() }),
        _ => bail!("the simulated workload did not end"),
    }
}
