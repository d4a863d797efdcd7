//! `homenode truth merge`: the kernel's ksmd, the simulated one and the estimate on the
//! same contents.
//!
//! ```text
//! truth/merge.toml ─▶ case ─┬─▶ real processes ── ksmd, pass by pass ──▶ counters ─┐
//!                           ├─▶ simulated ones ── its ksmd, the same ──▶ counters ─┼─▶ equal?
//!                           └─▶ real processes ── merge estimate ────▶ two of them ┘
//! ```
//!
//! Reading order: [`side`] drives ksmd through its files, one pass at a time, whoever's
//! files they are; [`real`] and [`simulated`] are the two; [`look`] is the estimate;
//! [`table`] is what comes out.

mod look;
mod real;
mod side;
mod simulated;
mod table;

use crate::failure::Lacks;
use crate::progress::Progress;
use crate::{live, output};
use anyhow::{Context, Result, anyhow};
use homenode_config::{MergeCase, MergePlan, parse_truth_merge};
use homenode_core::kernel::KernelVersion;
use homenode_measure::truth::merge::{Kernel, registered};
use table::{Comparison, MergeCheck};

/// The registered cases, part of the command so that nobody changes them before a run.
const MERGE: &str = include_str!("../../../../truth/merge.toml");
/// Where they are, for errors.
const FILE: &str = "truth/merge.toml";
/// The hidden command that a case's processes run.
const HOLD: &str = "hold";

/// Hold the kernel's ksmd, the simulated ksmd and the estimate against one another.
///
/// Runs small programs of known content (a few MB) twice: as real processes beside the
/// kernel's own ksmd, and in simulation, ksmd making one pass at a time. After each pass
/// all counters of merging must be equal. Where it applies, `homenode merge estimate`
/// must come within 1 % of what ksmd reached. The cases were registered beforehand
/// (truth/merge.toml). Needs root and a kernel with KSM that nobody uses meanwhile; its
/// knobs are put back at the end, and by `homenode restore` should it be killed. Refused
/// while `homenode merge drive --act` or another check is at work. Exit code 1 where something differs, 3 where the
/// kernel has no KSM.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode truth merge --case chains --json")]
pub(super) struct Args {
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Whose rules the simulated ksmd follows; the nearest release not after this kernel's
    #[arg(long, value_name = "RELEASE", value_parser = release)]
    kernel: Option<KernelVersion>,
    /// Print all counters after each pass
    #[arg(long)]
    passes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn release(name: &str) -> Result<KernelVersion, String> {
    KernelVersion::parse(name).ok_or_else(|| {
        let names = KernelVersion::ALL.map(KernelVersion::name);
        format!("there are only {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args) -> Result<u8> {
    let plan = plan(&args.cases)?;
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let here = here.trim().to_owned();
    let version = args.kernel.unwrap_or_else(|| live::version(Some(&here)));
    let check = check(&plan, here, version)?;
    output::print(&if args.json { check.to_json() } else { check.to_text(args.passes) })?;
    Ok(u8::from(!check.pass()))
}

/// What is registered, or those cases of it that are asked for.
fn plan(names: &[String]) -> Result<MergePlan> {
    let mut plan = parse_truth_merge(FILE, MERGE)?;
    let all: Vec<String> = plan.cases.iter().map(|c| c.scenario.name.clone()).collect();
    if let Some(name) = names.iter().find(|n| !all.contains(n)) {
        return Err(anyhow!("{FILE} has no case \"{name}\"; it has {}", all.join(", ")));
    }
    if !names.is_empty() {
        plan.cases.retain(|c| names.contains(&c.scenario.name));
    }
    Ok(plan)
}

fn check(plan: &MergePlan, here: String, version: KernelVersion) -> Result<MergeCheck> {
    let progress = Progress::new(plan.cases.len() as u64);
    // Nobody else may be in the counters: refused if so, before anything is changed.
    let (kernel, notes) = Kernel::take()?;
    notes.iter().for_each(|note| eprintln!("homenode: {note}"));
    let mut check = MergeCheck {
        kernel: here,
        rules: version,
        registered: plan.registered.clone(),
        bound_percent: plan.bound_percent,
        cases: Vec::new(),
    };
    for case in &plan.cases {
        let name = &case.scenario.name;
        progress.say(name);
        let outcome =
            one(&kernel, case, version).with_context(|| format!("{FILE}: case \"{name}\""))?;
        check.cases.push(outcome);
        progress.advance(1);
    }
    Ok(check)
}

/// Whether this kernel gives huge pages to those who ask.
fn gives_huge_pages() -> bool {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    text.is_ok_and(|t| !t.contains("[never]"))
}

/// Whether nobody has registered memory, now that a case's processes are gone.
fn alone() -> Result<()> {
    match registered().first() {
        None => Ok(()),
        Some((pid, name)) => Err(anyhow!(Lacks(format!(
            "process {pid} ({name}) registered memory for merging in the middle, which counts among ours; run it again"
        )))),
    }
}

fn one(kernel: &Kernel, case: &MergeCase, version: KernelVersion) -> Result<Comparison> {
    kernel.alone.reset()?;
    let early = case.estimate.filter(|look| look.at < case.passes);
    let mut estimate = early.map(|look| look::early(kernel, case, look)).transpose()?;
    let mut side = real::Real::new(kernel, case);
    let real = side::run(&mut side, case).context("beside the kernel's ksmd")?;
    if case.estimate.is_some_and(|look| look.at == case.passes) {
        estimate = Some(look::late(&side, case)?);
    }
    drop(side);
    alone()?;
    let simulated = simulated::run(case, version, gives_huge_pages()).context("in simulation")?;
    Ok(Comparison {
        name: case.scenario.name.clone(),
        about: case.scenario.about.clone(),
        real,
        simulated,
        estimate,
    })
}

#[cfg(test)]
mod tests;
