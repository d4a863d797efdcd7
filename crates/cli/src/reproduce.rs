//! `homenode reproduce`: a seed's table, with our figures beside it.

mod vary;

mod amended;
mod elastic;
mod experiment;
mod loads;

mod ksm;
mod recent_cpu;
mod schedstats;
mod slow_start;
mod tiering;

use crate::contender::{Contender, Contenders};
use crate::{output, parallel};
use anyhow::{Result, bail};
use homenode_core::scenario::Margin;
use homenode_report::Reproduction;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub(crate) use experiment::processes;

/// Reproduce a seed's table and check its conclusions.
///
/// Runs the seed's experiment on a simulated machine whose constants are published or
/// measured, and never fitted. Prints the seed's figures beside ours, also where ours
/// are off, and each conclusion with whether it holds. Sizes are scaled down; the factor
/// stands below the table. Exit code 1 if a conclusion fails.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode reproduce tiering --quick")]
pub(crate) struct Args {
    /// Which: tiering, ksm, schedstats, recent-cpu, slow-start, or all
    #[arg(value_name = "NAME")]
    name: String,
    /// Fewer points, so that it takes a minute
    #[arg(long)]
    quick: bool,
    /// Runs of each point, each with its own seed, from 1 on
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroUsize>,
    /// Sizes are divided by this [default: 64, with --quick 256]
    #[arg(long, value_name = "FACTOR")]
    scale: Option<NonZeroUsize>,
    /// tiering: another machine than the experiment's
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Only move every constant by ±20 % (--quick: the most elastic ones), and print the
    /// table as a page of Markdown, with --json in one JSON object
    #[arg(long)]
    sensitivity: bool,
    /// tiering: how far above high kswapd aims while tiering is on
    #[arg(long, value_name = "MARGIN", value_enum, default_value = "kernel")]
    margin: MarginName,
    /// tiering: further columns beside those of the plan, which decide nothing; words as
    /// `homenode sim` has them, such as homenode:damon
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    columns: Vec<String>,
    /// tiering: only the gain by scale, from 1:1024 to 1:16 or --scale, as a table of Markdown;
    /// each run is kept in this file as it ends, and not run again if it is there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sensitivity", "json", "quick"])]
    by_scale: Option<PathBuf>,
    /// Print one JSON object per name
    #[arg(long)]
    json: bool,
}

/// The margins that S1 speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MarginName {
    /// high / 4: the seed's example
    Seed,
    /// The larger of 10 MiB (not scaled) and high / 4: the mail that the seed links
    Posted,
    /// The distance between the other marks: what was merged
    Kernel,
}

impl MarginName {
    const fn margin(self) -> Margin {
        match self {
            Self::Seed => Margin::SeedQuarter,
            Self::Posted => Margin::PostedQuarter,
            Self::Kernel => Margin::Kernel,
        }
    }
}

/// What an experiment is asked for.
struct Asked<'a> {
    quick: bool,
    seeds: Option<u64>,
    scale: Option<u64>,
    machine: Option<&'a std::path::Path>,
    jobs: usize,
    margin: Margin,
    /// Further columns.
    columns: Vec<Contender>,
}

/// An experiment.
struct Experiment {
    name: &'static str,
    run: fn(&Asked<'_>) -> Result<Reproduction>,
    /// With every constant moved: JSON, and a page.
    sensitivity: fn(&Asked<'_>) -> Result<(Value, String)>,
}

/// All of them.
const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "tiering", run: tiering::run, sensitivity: tiering::sensitivity },
    Experiment { name: "ksm", run: ksm::run, sensitivity: ksm::sensitivity },
    Experiment { name: "schedstats", run: schedstats::run, sensitivity: schedstats::sensitivity },
    Experiment { name: "recent-cpu", run: recent_cpu::run, sensitivity: recent_cpu::sensitivity },
    Experiment { name: "slow-start", run: slow_start::run, sensitivity: slow_start::sensitivity },
];

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    let wanted: Vec<_> =
        EXPERIMENTS.iter().filter(|e| args.name == "all" || args.name == e.name).collect();
    if wanted.is_empty() {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        bail!(
            "nothing named \"{}\" can be reproduced; there are {} and all",
            args.name,
            names.join(", ")
        );
    }
    let asked = Asked {
        quick: args.quick,
        seeds: args.seeds.map(|n| n.get() as u64),
        scale: args.scale.map(|n| n.get() as u64),
        machine: args.machine.as_deref(),
        jobs: parallel::jobs(args.jobs),
        margin: args.margin.margin(),
        columns: contenders.parse(&args.columns)?,
    };
    if !asked.columns.is_empty() && (args.sensitivity || wanted.iter().any(|e| e.name != "tiering"))
    {
        bail!(
            "--columns: only `reproduce tiering` compares placement; name it, without --sensitivity"
        );
    }
    if args.sensitivity {
        let [one] = wanted[..] else {
            bail!("--sensitivity moves the constants of one experiment; name it instead of all");
        };
        let (json, page) = (one.sensitivity)(&asked)?;
        output::print(&if args.json { json.to_string() } else { page })?;
        return Ok(0);
    }
    if let Some(path) = &args.by_scale {
        if !matches!(wanted[..], [one] if one.name == "tiering") {
            bail!("--by-scale: only `reproduce tiering` is scaled so far down; name it");
        }
        output::print(&tiering::by_scale(&asked, path)?)?;
        return Ok(0);
    }
    let mut code = 0;
    for experiment in wanted {
        let mut result = (experiment.run)(&asked)?;
        amended::mark(&mut result);
        let mut text = if args.json { result.to_json() } else { result.to_text(output::width()) };
        if args.json {
            text.push('\n');
        }
        output::print(&text)?;
        if !result.pass() {
            code = 1;
        }
    }
    Ok(code)
}
