//! `homenode merge drive`: the kernel's own merging, watched or driven.

mod show;

use crate::{program, restore};
use anyhow::{Context, Result, bail};
use clap::ArgGroup;
use homenode_core::ksm::pace::{Goal, LEAST_BENEFIT};
use homenode_core::units::count;
use homenode_live::place::Place;
use homenode_merge::ksm::{Act, DriveEnd, Event, Folder, Watch, act, look, merging_others};
use show::Shower;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Watch or drive the kernel's same-page merging (KSM).
///
/// --observe shows over time what ksmd does and what it is worth. --act launches CMD with
/// all of its memory registered for merging (PR_SET_MEMORY_MERGE, Linux 6.4), and gives
/// ksmd as much of a CPU as the budget allows while it pays: what is newly saved, by second
/// of its CPU time. At the end, also after a signal or a failure, every knob is put back;
/// after a crash, `homenode restore` does it. Whether it would pay says
/// `homenode merge estimate`.
///
/// ksmd merges all registered processes with each other. Merging leaks through timing,
/// so --act refuses if they belong to different users (homenode-merge(1), WHAT MERGING
/// LEAKS).
///
/// Exit codes: 0 done; 2 bad usage, a program that is not there, or users who would
/// meet; 3 the system lacks something; once CMD runs its own code, or 128 and the
/// signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  homenode merge drive --observe --for 60s --json
  homenode merge drive --act --cpu-budget 10 -- ./build-and-test
  homenode merge drive --act --registered --across-nodes 0 --for 1h")]
#[command(group(ArgGroup::new("mode").required(true)))]
pub(super) struct Args {
    /// Show counters, profit and ksmd's CPU time; change nothing
    #[arg(long, group = "mode")]
    observe: bool,
    /// Launch CMD to be merged, and drive ksmd until it ends
    #[arg(long, group = "mode")]
    act: bool,
    /// Merge within nodes (0) or across them (1): unmerges everything first, if memory
    /// suffices
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    across_nodes: Option<u8>,
    /// CPU time of ksmd, in percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100))]
    cpu_budget: u32,
    /// MiB to be newly saved by second of ksmd's CPU time; below that it goes slower
    #[arg(long, value_name = "MIB", default_value_t = LEAST_BENEFIT >> 20, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    worth: u64,
    /// Let the kernel's advisor choose pages_to_scan (budgets from 10)
    #[arg(long)]
    advisor: bool,
    /// Drive what is registered already, such as guests, in place of a CMD
    #[arg(long, conflicts_with = "command")]
    registered: bool,
    /// Merge although processes of different users meet: each can find out by timing
    /// which pages the others have
    #[arg(long)]
    across_users: bool,
    /// Show these processes only; may be given several times
    #[arg(long, value_name = "P", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Time between lines
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// How long; without it until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "command")]
    length: Option<Duration>,
    /// Lines go to this file; else to standard output, beside a CMD to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a JSON object a line
    #[arg(long)]
    json: bool,
    /// A folder in place of / (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
    /// The program to be merged, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn time(text: &str) -> Result<Duration, String> {
    Ok(Duration::from_nanos(homenode_config::parse_time(text)?.as_ns()))
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < Duration::from_millis(100) {
        return Err("between looks are 100ms at least: looking takes time too".to_owned());
    }
    Ok(interval)
}

pub(super) fn run(args: &Args) -> Result<u8> {
    check(args)?;
    let place = args.root.as_deref().map_or_else(Place::here, Place::at);
    let goal = Goal {
        cpu_percent: args.cpu_budget,
        least_benefit: args.worth << 20,
        advisor: args.advisor,
    };
    if args.observe {
        return observe(args, &place);
    }
    drive(args, &place, goal)
}

/// What does not go together.
fn check(args: &Args) -> Result<()> {
    if !args.act && !args.command.is_empty() {
        bail!("only --act launches a program; leave `-- CMD` out, or name processes by --pid");
    }
    if !args.act && (args.registered || args.across_users) {
        bail!("--registered and --across-users belong to --act");
    }
    if args.observe && args.across_nodes.is_some() {
        bail!("--observe changes nothing; --across-nodes belongs to --act");
    }
    if let (true, Some(pid)) = (args.act, args.pid.first()) {
        let answer = match merging_others(*pid) {
            Ok(()) => "would allow".to_owned(),
            Err(e) => format!("answers `{e}` to"),
        };
        bail!(
            "--act has only that merged which it launches: a process registers its memory by itself, and this kernel {answer} process_madvise(MADV_MERGEABLE) for process {pid}. Launch it: homenode merge drive --act -- CMD; or drive what is registered already: --act --registered"
        );
    }
    if args.act && args.command.is_empty() && !args.registered {
        bail!(
            "--act needs the program to be merged, as in `homenode merge drive --act -- CMD`, or --registered for processes that are registered already"
        );
    }
    Ok(())
}

/// Where lines go.
fn sink(args: &Args) -> Result<Box<dyn Write>> {
    Ok(match &args.output {
        Some(path) => {
            crate::output::check_output(path)?;
            let file = File::create(path);
            Box::new(file.with_context(|| format!("{}: can't be written", path.display()))?)
        }
        None if args.command.is_empty() => Box::new(io::stdout()),
        None => Box::new(io::stderr()),
    })
}

fn observe(args: &Args, place: &Place) -> Result<u8> {
    let mut watch = Watch::new(place, args.pid.clone())?;
    let mut shower = Shower::new(sink(args)?, args.json);
    if !watch.sees_ksmd() {
        shower.note("ksmd is not among the processes here (another PID namespace?): its CPU time is not known");
    }
    look(place, &mut watch, args.interval, args.length, &mut |seen| shower.seen(seen, None))?;
    shower.end(watch.scan());
    Ok(0)
}

fn drive(args: &Args, place: &Place, goal: Goal) -> Result<u8> {
    let options = Act {
        command: args.command.clone(),
        goal,
        across: args.across_nodes.map(|v| v == 1),
        across_users: args.across_users,
        interval: args.interval,
        length: args.length,
    };
    let mut shower = Shower::new(sink(args)?, args.json);
    let end = act(place, Folder::of(place), &options, &mut |event| match event {
        Event::Switching { across, cost } => shower.note(&show::switching(across, &cost)),
        Event::Note(text) => shower.note(text),
        Event::Seen(seen, pace) => {
            shower.seen(seen, Some(pace));
        }
    })?;
    shower.sum_up();
    shower.restored(&end.restored, &restore::to_text(&end.restored));
    if end.left > 0 {
        shower.note(&format!(
            "{} on: registered as before, and what is merged stays so",
            count(end.left as u64, "process of the program lives", "processes of the program live")
        ));
    }
    Ok(code(&end))
}

/// The program's code, or what a shell makes of a signal.
fn code(end: &DriveEnd) -> u8 {
    match (end.ended, end.signal) {
        (Some(status), _) => program::of_status(status),
        (None, Some(signal)) => program::of_signal(signal),
        (None, None) if end.restored.journal.is_some() => 3,
        (None, None) => 0,
    }
}
