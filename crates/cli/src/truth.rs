//! `homenode truth`: is what the simulator predicts what really happens?

mod cpu;
mod interval;
mod merge;
mod predict;
mod programs;
mod replay;
mod sched;
mod table;

use crate::failure::Lacks;
use crate::output;
use crate::progress::Progress;
use crate::spread::Predicted;
use crate::told::Told;
use anyhow::{Context, Result, anyhow, bail};
use homenode_config::{TruthPlan, parse_truth, read_machine};
use homenode_core::costs::{Cost, Origin};
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, count};
use homenode_live::sysfs;
use homenode_measure::constants::{self, Options};
use homenode_measure::record;
use homenode_measure::truth::{self, Case, Kernel};
use homenode_measure::workload::Program;
use homenode_sim::Overlap;
use predict::Near;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::{MemCheck, Workload};

/// The registered checks, part of the command so that nobody changes them before a run.
const MEM: &str = include_str!("../../../truth/mem.toml");

/// Compare what the simulator predicts with what this machine does.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth mem --machine this.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Cpu(cpu::Args),
    Mem(Mem),
    Merge(merge::Args),
    Replay(replay::Args),
    Sched(sched::Args),
}

/// Predict memory times on the measured machine, then run for real and compare.
///
/// Measures this machine (or takes --machine), predicts pointer chasing, streaming and
/// random updates over sizes from the second cache to 1 GiB and two recorded programs, a
/// hash join and a breadth-first search, prints the predictions, and only then runs all
/// of them. Sizes and bounds were registered beforehand (truth/mem.toml) and are none that
/// measuring uses. The exit code is 1 where a bound is missed. Takes up to five minutes,
/// with --quick up to one; the machine should be idle meanwhile. Recording needs
/// qemu-x86_64; without it the programs are left out.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth mem --machine this.toml --json")]
struct Mem {
    /// The machine's file, measured on this machine; measured anew unless given
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Fewer rounds, and smaller programs: up to a minute
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Sizes up to 4 MiB and tiny programs: tries the machinery, its verdict means nothing
    #[arg(long, hide = true)]
    tiny: bool,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let args = match &args.what {
        What::Cpu(args) => return cpu::run(args),
        What::Mem(args) => args,
        What::Merge(args) => return merge::run(args),
        What::Replay(args) => return replay::run(args),
        What::Sched(args) => return sched::run(args),
    };
    let plan = plan(args)?;
    let check = check(args, &plan)?;
    output::print(&if args.json { check.to_json() } else { check.to_text() })?;
    Ok(u8::from(!check.pass()))
}

/// What is registered, cut down where that is asked for.
fn plan(args: &Mem) -> Result<TruthPlan> {
    let mut plan = parse_truth("truth/mem.toml", MEM)?;
    if args.tiny {
        for (_, sizes) in &mut plan.kernels {
            sizes.retain(|s| s.0 <= 4 << 20);
        }
        for p in &mut plan.programs {
            (p.small, p.large, p.large_quick) = (256, 4096, 4096);
        }
    }
    Ok(plan)
}

/// Samples of each kernel and size, and how long one takes.
fn effort(args: &Mem) -> (u32, Duration) {
    match (args.tiny, args.quick) {
        (true, _) => (2, Duration::from_millis(1)),
        (_, true) => (5, Duration::from_millis(20)),
        _ => (15, Duration::from_millis(60)),
    }
}

fn kernels(plan: &TruthPlan) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, sizes) in &plan.kernels {
        let kernel = Kernel::ALL
            .into_iter()
            .find(|k| k.name() == name)
            .ok_or_else(|| anyhow!("truth/mem.toml: there is no kernel \"{name}\""))?;
        cases.extend(sizes.iter().map(|s| Case { kernel, bytes: s.0 }));
    }
    Ok(cases)
}

fn check(args: &Mem, plan: &TruthPlan) -> Result<MemCheck> {
    let cases = kernels(plan)?;
    let mut known = Vec::new();
    for p in &plan.programs {
        let program = Program::parse(&p.name)
            .ok_or_else(|| anyhow!("truth/mem.toml: there is no program \"{}\"", p.name))?;
        known.push((program, p));
    }
    let progress = Progress::new(1000);
    let given = args.machine.as_deref();
    let machine = this_machine(given, args.quick, args.tiny, &progress)?;
    let geometry = record::geometry(&machine)?;
    let (rounds, slot) = effort(args);

    progress.say("what a core needs where its first cache answers");
    let near_cases =
        [Kernel::Stream, Kernel::Update].map(|kernel| Case { kernel, bytes: 16 << 10 });
    let near = truth::run(&near_cases, rounds, slot, &mut |_| {}).map_err(lacks)?;
    let near =
        Near { stream: Predicted::of_samples(&near[0]), update: Predicted::of_samples(&near[1]) };

    let runs = runs_again(&machine, near, rounds.min(5), slot, &progress)?;
    let busy = load();
    // Everything is predicted before anything runs.
    let mut check = MemCheck::new(plan, &machine);
    check.notes.push(format!(
        "kernels: {rounds} samples of {} ms each, of all sizes by turns; predicted with what a core needs on 16 KiB: {:.2} ns a line of a stream, {:.2} ns an update",
        slot.as_millis(),
        near.stream.time / 1e3,
        near.update.time / 1e3
    ));
    progress.say("predicting the kernels");
    for &case in &cases {
        let (predicted, interval) =
            match predict::by_curve(&machine, case, near, runs.of(case.kernel)) {
                Some(p) => {
                    let p = p.scaled(1e-3);
                    (p.time, Some((p.low, p.high)))
                }
                None => (predict::kernel(&machine, &geometry, case, near)? / 1e3, None),
            };
        let size = crate::nodes::size(Bytes(case.bytes));
        let row = Workload::new(case.kernel.name(), size, "ns", predicted);
        check.rows.push(row.within(interval));
    }
    check.notes.push(match machine.curves.is_empty() {
        true => "the machine's file has no curves, so that caches are what their sizes and latencies say, and predictions have no interval; measure it anew with: homenode measure -o FILE".to_owned(),
        false => format!(
            "kernels are predicted from the machine's curves, which were taken over other sizes; {} of the curves, run again before anything was predicted, were off by {} (standard deviation)",
            count(runs.footprints as u64, "footprint", "footprints"),
            runs.to_text()
        ),
    });
    let mut recorded = Vec::new();
    for &(program, planned) in &known {
        let large = if args.quick { planned.large_quick } else { planned.large };
        let run =
            programs::Extrapolation { program, small: planned.small, large, seed: planned.seed };
        progress.say(&format!("{}: a small run, and recordings", program.name()));
        // Both look up what does not depend on the look-up before, as updates do.
        match programs::predict(&machine, &run, rounds, runs.of(Kernel::Update)) {
            Ok((predicted, note)) => {
                let size = crate::nodes::size(Bytes(program.bytes(large)));
                let p = predicted.scaled(1e-9);
                let interval = (!machine.curves.is_empty()).then_some((p.low, p.high));
                let row = Workload::new(program.name(), size, "ms", p.time);
                check.rows.push(row.within(interval));
                check.notes.push(note);
                recorded.push(run);
            }
            Err(e) => match e.downcast_ref::<record::RecordError>() {
                Some(lack) if lack.is_lack() => check.warnings.push(format!(
                    "{} is left out: it can't be recorded here: {lack}",
                    program.name()
                )),
                _ => return Err(e.context(program.name().to_owned())),
            },
        }
    }
    let told = Told::of(&machine, Some(Overlap::of(&machine)));
    // Without curves there is no interval to name.
    check.notes.extend(told.filter(|_| !machine.curves.is_empty()).map(|t| t.note(&machine)));
    for row in &check.rows {
        progress.murmur(&format!("predicted: {}", row.prediction()));
    }
    progress.say(&format!("predicted: {}", check.predictions()));

    progress.say("running the kernels");
    let all = cases.len() * rounds as usize;
    let samples = truth::run(&cases, rounds, slot, &mut |n| {
        progress.at((n * 800 / all.max(1)) as u64);
    })
    .map_err(lacks)?;
    for (row, s) in check.rows.iter_mut().zip(&samples) {
        row.measured(s.iter().map(|ps| ps / 1e3).collect());
    }
    progress.say("running the programs");
    let repeats = if args.tiny || args.quick { 3 } else { 7 };
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); recorded.len()];
    for _ in 0..repeats {
        for (run, times) in recorded.iter().zip(&mut times) {
            // The first of each run finds its memory's pages and no caches; the second counts.
            let ns = programs::natively(run.program, run.large, run.seed, 2)?;
            times.push(ns.last().copied().unwrap_or(0) as f64 / 1e6);
        }
    }
    for (row, t) in check.rows[cases.len()..].iter_mut().zip(times) {
        row.measured(t);
    }
    check.notes.push(format!(
        "programs: {repeats} runs by turns, the second repetition of the measured phase of each; predicted for the same",
    ));
    // This command itself is one task.
    if let Some(most) = [busy, load()].into_iter().flatten().reduce(f64::max).filter(|l| *l > 1.5) {
        check.warnings.push(format!(
            "the machine was not idle (load {most:.1}): others take their part of the last level and of the memory's bandwidth, differently at each moment"
        ));
    }
    check.notes.push(
        "measured is the median over samples, ± half the distance between the quartiles; all buffers, those of measuring too, are in huge pages where the kernel has them (MADV_HUGEPAGE)"
            .to_owned(),
    );
    Ok(check)
}

/// By how much footprints of the curves differ now from what the curves say, as a logarithm: how far
/// one run of this machine is from another.
#[derive(Clone, Copy, Debug, Default)]
struct RunsAgain {
    chase: f64,
    stream: f64,
    update: f64,
    footprints: usize,
}

impl RunsAgain {
    fn of(&self, kernel: Kernel) -> f64 {
        match kernel {
            Kernel::Chase => self.chase,
            Kernel::Stream => self.stream,
            Kernel::Update => self.update,
        }
    }
    fn to_text(self) -> String {
        let each =
            Kernel::ALL.map(|k| format!("{} {:.1} %", k.name(), self.of(k).exp_m1() * 100.0));
        each.join(", ")
    }
}

/// Footprints of each curve that are run again, and the largest of them: chains beyond take long to build.
const AGAIN: usize = 5;
const AGAIN_MOST: u64 = 256 << 20;
/// What the first cache answers is in the other figures.
const AGAIN_LEAST: u64 = 128 << 10;

fn runs_again(
    machine: &Hardware,
    near: Near,
    rounds: u32,
    slot: Duration,
    progress: &Progress,
) -> Result<RunsAgain> {
    let mut cases = Vec::new();
    for kernel in Kernel::ALL {
        let Some(curve) = machine.curve(predict::walk(kernel)) else { continue };
        let sizes = interval::again(curve, AGAIN_LEAST, AGAIN_MOST, AGAIN);
        cases.extend(sizes.into_iter().map(|bytes| Case { kernel, bytes }));
    }
    if cases.is_empty() {
        return Ok(RunsAgain::default());
    }
    progress.say("footprints of the machine's curves, once more");
    let samples = truth::run(&cases, rounds, slot, &mut |_| {}).map_err(lacks)?;
    let of = |kernel: Kernel| {
        let both = cases.iter().zip(&samples).filter(|(c, _)| c.kernel == kernel);
        let quotient = |(case, samples): (&Case, &Vec<f64>)| {
            let told = predict::by_curve(machine, *case, near, 0.0)?;
            Some(table::median(samples) / told.time).filter(|q| *q > 0.0 && q.is_finite())
        };
        interval::between_runs(&both.filter_map(quotient).collect::<Vec<f64>>())
    };
    Ok(RunsAgain {
        chase: of(Kernel::Chase),
        stream: of(Kernel::Stream),
        update: of(Kernel::Update),
        footprints: cases.len(),
    })
}

/// A folder for recordings and the like, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("homenode-truth-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("can't make the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies among other temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tasks that ran or waited for a CPU over the last minute, as the kernel counts them.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn lacks(e: std::io::Error) -> anyhow::Error {
    anyhow!(Lacks(format!("can't get memory for the kernels: {e}")))
}

/// The machine's file that is given, or this machine measured now.
fn this_machine(
    given: Option<&Path>,
    quick: bool,
    tiny: bool,
    progress: &Progress,
) -> Result<Hardware> {
    if let Some(path) = given {
        let machine = read_machine(path)?;
        measured_here(&machine, path)?;
        return Ok(machine);
    }
    let options = if tiny {
        Options::tiny()
    } else if quick {
        Options { budget: Duration::from_secs(10), rounds: 5, ..Options::default() }
    } else {
        Options::default()
    };
    progress.say("measuring this machine");
    Ok(constants::measure(&options, &mut |p| progress.murmur(p.what))?)
}

/// Refuses a file that says of itself that it is another machine's, or nobody's.
fn measured_here(machine: &Hardware, path: &Path) -> Result<()> {
    let shown = path.display();
    let measured = machine.links.iter().any(|l| l.read_latency.origin == Origin::Measured);
    if !measured {
        bail!(
            "{shown}: its latencies are not measured, so that nothing here can be compared with it; make one with: homenode measure -o FILE"
        );
    }
    if !machine.costs.0.contains_key(&Cost::ReorderWindow) {
        bail!("{shown}: it has no reorder_window; measure it anew with: homenode measure -o FILE");
    }
    let here = sysfs::read_topology(Path::new("/")).context("what machine this is")?;
    let model = here.model.unwrap_or_default();
    if model.is_empty() || !machine.about.contains(&model) || machine.cpus.len() != here.cpus.len()
    {
        bail!(
            "{shown}: it was measured on another machine (\"{}\"), and this one is a {model} with {}; measure this one with: homenode measure -o FILE",
            machine.about,
            count(here.cpus.len() as u64, "CPU", "CPUs")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
