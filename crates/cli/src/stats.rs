//! `homenode stats`: scheduler statistics, read for people, or counted while one looks.
//!
//! Source: specs/schedstats.md#views.

mod beside;
mod cost;
mod live;
mod reading;
mod silent;

pub(crate) use silent::of_command;

use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use homenode_core::sched::stats::StatsFile;
use homenode_report::StatsReport;
use homenode_sim::{Setup, Simulation};
use std::path::{Path, PathBuf};

/// Show scheduler statistics: of this machine while one looks, or of a file.
///
/// With --pid, --cgroup, --system or a program, what the scheduler does with their tasks is
/// counted by BPF programs for that time, on any kernel from 5.18 on that describes its types
/// (BTF), whether or not it has schedstats: time run, waited, slept and blocked, switches,
/// wake-ups, migrations, and how long it took from a wake-up to running, by task, cgroup, CPU,
/// last-level cache and node. Nothing is loaded before, and nothing is left afterwards, also
/// after SIGKILL. With --why also where each wake-up put the task, for which reason, and how
/// that lies to the task's memory. --measure-cost runs a program by turns without and with
/// being looked at, and tells the difference. Beside a program all goes to standard error.
///
/// With --kernel the kernel's own statistics are shown beside it, with the difference, where the
/// kernel has them (CONFIG_SCHEDSTATS). Their switch, kernel.sched_schedstats, is turned on if
/// it is off, which is written down before, and put back at the end; after SIGKILL
/// `homenode restore` does that.
///
/// With FILE, which is a copy of /proc/schedstat, of /proc/PID/sched or of /proc/PID/schedstat
/// or that file itself, its counters as tables. By CPU: calls of schedule, switches to idle,
/// wake-ups, time run and waited, timeslices. By domain: pulls tried, and what came of them. By
/// task: waits, sleeps, wake-ups by kind, migrations. With FILE2 what was counted from FILE to
/// FILE2; a counter that went back is shown as - and said. Linux 6.1 to 7.3 (versions 15, 16
/// and 17) are read; a text that no such kernel prints is refused with its line.
///
/// With --sim a scenario is run under the simulated kernel with the statistics on, and what
/// that kernel counted is shown: of CPUs and domains, or of a process with --task.
///
/// Exit codes: 0 done; 2 bad usage or input; 3 the system lacks something; with CMD its own, or
/// 128 and the signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode stats --system --for 10s
  homenode stats --pid 4711 --why --for 10s
  homenode stats -- make -j8
  homenode stats --kernel --system --for 10s
  homenode stats --measure-cost -- perf bench sched pipe
  homenode stats /proc/schedstat
  cat /proc/self/sched | homenode stats -
  cat /proc/schedstat > before; make; homenode stats before /proc/schedstat
  homenode stats --sim scenarios/server.toml --task server")]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Args {
    /// The file; - is standard input
    #[arg(value_name = "FILE", group = "what")]
    file: Option<PathBuf>,
    /// A later reading of the same file
    #[arg(value_name = "FILE2", requires = "file")]
    later: Option<PathBuf>,
    /// Run this scenario and show what the simulated kernel counted
    #[arg(long, value_name = "SCENARIO.toml", group = "what")]
    sim: Option<PathBuf>,
    /// Of this process of the scenario; it must live when the run ends
    #[arg(long, value_name = "NAME", requires = "sim")]
    task: Option<String>,
    #[command(flatten)]
    live: live::Live,
    /// Print one JSON object; times are nanoseconds
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    if let Some(targets) = args.live.targets() {
        return if args.live.measure_cost {
            cost::run(&args.live, args.json)
        } else {
            live::run(&args.live, &targets, args.json)
        };
    }
    let report = match (&args.file, &args.later) {
        (None, _) => match &args.sim {
            Some(scenario) => simulated(scenario, args.task.as_deref())?,
            None => bail!("a FILE, or a scenario with --sim, is missing"),
        },
        (Some(file), None) => one(reading::read(file)?),
        (Some(file), Some(later)) => {
            if is_input(file) && is_input(later) {
                bail!("standard input can be only one of the two files");
            }
            let earlier = reading::read(file)?;
            let why = || later.display().to_string();
            two(&earlier, &reading::read(later)?).map_err(|e| anyhow!(e)).with_context(why)?
        }
    };
    output::print(&if args.json { report.to_json() } else { report.to_text(output::width()) })?;
    Ok(0)
}

/// What the simulated kernel counted in a scenario, of a process or of all CPUs.
fn simulated(path: &Path, task: Option<&str>) -> Result<StatsReport> {
    let (scenario, machine) = {
        let path = path.to_owned();
        let name = path.display().to_string();
        reading::patiently(&path.clone(), &name, move || {
            homenode_config::read_scenario_and_machine(&path)
        })?
    };
    let mut setup = Setup::of(&scenario);
    // What the scenario itself says of it comes later, and holds.
    setup.knobs.insert(0, ("sched_schedstats".to_owned(), "1".to_owned()));
    let run = || -> Result<StatsReport> {
        let mut sim = Simulation::new(&machine, &scenario, &setup)?;
        sim.run();
        if let Some(e) = sim.error() {
            bail!("{e}");
        }
        if let Some(why) = sim.deadlock() {
            bail!("{why}");
        }
        let Some(name) = task else {
            return Ok(StatsReport::Schedstat(sim.schedstat().whole()));
        };
        match sim.task_sched_of(name) {
            Ok(of) => Ok(StatsReport::Task(Box::new(of.whole()))),
            Err(why) => bail!("--task {name}: {why}"),
        }
    };
    run().with_context(|| path.display().to_string())
}

fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn one(file: StatsFile) -> StatsReport {
    match file {
        StatsFile::Schedstat(f) => StatsReport::Schedstat(f.whole()),
        StatsFile::TaskSched(f) => StatsReport::Task(Box::new(f.whole())),
        StatsFile::TaskSchedstat(f) => f.into(),
    }
}

fn two(earlier: &StatsFile, later: &StatsFile) -> Result<StatsReport, String> {
    use StatsFile::{Schedstat, TaskSched, TaskSchedstat};
    match (earlier, later) {
        (Schedstat(old), Schedstat(new)) => new.since(old).map(StatsReport::Schedstat),
        (TaskSched(old), TaskSched(new)) => new.since(old).map(|c| StatsReport::Task(Box::new(c))),
        (TaskSchedstat(old), TaskSchedstat(new)) => Ok(StatsReport::Slices(new.since(old))),
        (Schedstat(_), _) | (TaskSched(_), _) | (TaskSchedstat(_), _) => Err(format!(
            "this is {}, the other is {}: two readings of one file have a difference",
            kind(later),
            kind(earlier)
        )),
    }
}

fn kind(file: &StatsFile) -> &'static str {
    match file {
        StatsFile::Schedstat(_) => "/proc/schedstat",
        StatsFile::TaskSched(_) => "/proc/PID/sched",
        StatsFile::TaskSchedstat(_) => "/proc/PID/schedstat",
    }
}
