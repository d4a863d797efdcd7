//! `homenode merge estimate`: what merging would save, from the memory itself.

use super::costs;
use crate::output;
use crate::progress::Progress;
use anyhow::Result;
use clap::ValueEnum;
use homenode_merge::estimate::{self, Changes, Estimate, Options, Targets};
use homenode_report::{MergeEstimate, MergeLooks, MergePerNode};
use std::path::PathBuf;
use std::time::Duration;

/// Say how much same-page merging would save here, before it is switched on.
///
/// Reads the anonymous memory of processes and counts equal pages: what ksmd would
/// reach merged across nodes and per node, what that costs, which pages change too
/// often to be merged, and what each process (a libvirt guest by its domain's name)
/// has in it. Nothing is written, nothing is brought in from swap; neither contents
/// nor hashes of them are printed or kept. Needs root (CAP_SYS_PTRACE) for processes of
/// others.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  homenode merge estimate --all
  homenode merge estimate --all --registered
  homenode merge estimate --cgroup machine.slice --again 10
  homenode merge estimate --pid 4711 --pid 4712 --json --machine this.toml")]
#[command(group(clap::ArgGroup::new("whose").required(true)))]
pub(super) struct Args {
    /// This process; may be given several times
    #[arg(long, value_name = "P", group = "whose", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// All processes of a version 2 cgroup and of those below it
    #[arg(long, value_name = "PATH", group = "whose")]
    cgroup: Option<PathBuf>,
    /// All processes
    #[arg(long, group = "whose")]
    all: bool,
    /// Only memory that is registered for merging already, by madvise or prctl: what ksmd
    /// looks at today
    #[arg(long)]
    registered: bool,
    /// Look again after so many seconds: what changed between is too volatile to merge
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    again: Option<Duration>,
    /// How the second look learns what changed
    #[arg(long, value_enum, default_value = "auto", requires = "again")]
    changes: HowChanges,
    /// Threads that read; by default as many as --cpu pays for or, without --cpu, 2 where
    /// this process may use two CPUs. The figures are the same with any number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Processor time of all threads together, in percent of one CPU; by default as much as
    /// the threads can use
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cpu: Option<u32>,
    /// Latencies from a machine TOML (`homenode measure` writes one)
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// In place of the kernel's setting: mappings of a merged page at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=0x7fff_ffff))]
    max_page_sharing: Option<u32>,
    /// In place of the kernel's setting: pages of zeros become the shared page of zeros
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    use_zero_pages: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum HowChanges {
    /// Soft-dirty bits where a probe finds that they work, else reading again
    Auto,
    /// Reading all again
    Read,
}

/// `10` or `0.5`.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|s| (0.0..=1e6).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not a number of seconds between 0 and 1000000".to_owned())
}

pub(super) fn run(args: &Args) -> Result<u8> {
    // A wrong file is told before minutes of reading.
    let machine = args.machine.as_deref().map(homenode_config::read_machine).transpose()?;
    let targets = match &args.cgroup {
        Some(path) => Targets::Cgroup(path.clone()),
        None if args.all => Targets::All,
        None => Targets::Pids(args.pid.clone()),
    };
    let options = Options {
        jobs: args.jobs,
        cpu_percent: args.cpu,
        again: args.again,
        changes: match args.changes {
            HowChanges::Auto => Changes::Auto,
            HowChanges::Read => Changes::Read,
        },
        max_page_sharing: args.max_page_sharing,
        use_zero_pages: args.use_zero_pages.map(|v| v == 1),
        registered: args.registered,
    };
    let estimate = {
        let progress = Progress::new(1000);
        estimate::estimate(&targets, &options, &mut |p| show(&progress, p))?
    };
    let mut report = report(&estimate);
    report.costs = costs::costs(&estimate, machine.as_ref())?;
    report.advise(estimate.memory_nodes.len());
    output::print(&if args.json { report.to_json() } else { report.to_text() })?;
    Ok(0)
}

fn show(progress: &Progress, now: estimate::Progress) {
    match now {
        estimate::Progress::Reading { again, done, of } => {
            progress.say(if again { "looking again" } else { "looking" });
            progress.at(done.min(of) * 1000 / of.max(1));
        }
        estimate::Progress::Waiting { left } => {
            progress.say("waiting for the second look");
            progress.murmur(&format!("{:.0} s to the second look", left.as_secs_f64()));
        }
    }
}

fn report(e: &Estimate) -> MergeEstimate {
    MergeEstimate {
        pages_scanned: e.pages_scanned,
        distinct: e.distinct,
        zero: e.zero,
        volatile: e.volatile,
        across: e.across,
        per_node: MergePerNode { sum: e.per_node, nodes: e.nodes.clone() },
        processes: e.processes.clone(),
        looks: MergeLooks {
            first_seconds: e.looks.first.as_secs_f64(),
            between_seconds: e.looks.second.map(|(between, _)| between.as_secs_f64()),
            second_seconds: e.looks.second.map(|(_, took)| took.as_secs_f64()),
            pages_read: e.looks.pages_read,
            pages_spared: e.looks.pages_spared,
            table_bytes: e.looks.peak_bytes,
            max_page_sharing: e.max_page_sharing,
            use_zero_pages: e.use_zero_pages,
        },
        notes: e.notes.clone(),
        ..MergeEstimate::default()
    }
}
