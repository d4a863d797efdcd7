//! A look at the scheduler of this machine.
//!
//! ```text
//! Live ─▶ live::stats::wanted ─▶ bpf::stats::Stats, until time, Ctrl-C or the program ends ─▶ report
//! ```
//!
//! Source: specs/schedstats.md#live.

use super::beside::Beside;
use crate::output;
use crate::program::{Program, Stop};
use anyhow::Result;
use homenode_bpf::stats::{Stats, Who as Whose};
use homenode_core::policy::seen::Who;
use homenode_core::sched::look::{CpuLook, Look};
use homenode_core::units::Picos;
use homenode_live::machine::Places as _;
use homenode_live::people::stat::start_of;
use homenode_live::place::Place;
use homenode_live::places::ThisKernel;
use homenode_live::stats::{LookError, Targets, cgroup_names, rename, wanted};
use homenode_report::LookReport;
use homenode_trace::look::{self, About, Of, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How often places of tasks that are over are given back, and signals are looked for.
const SLICE: Duration = Duration::from_millis(20);
/// How often memory is looked for, while reasons are wanted: a process' last one counts.
const MEMORY_EVERY: Duration = Duration::from_secs(1);
/// Processes whose memory is looked for, at most.
const MEMORY_OF: usize = 64;

/// Places for tasks, unless told.
pub(super) const TASKS: u32 = 16_384;

/// Whom to look at, how long and how closely.
#[derive(clap::Args)]
pub(crate) struct Live {
    /// Look at these processes; may be given several times
    #[arg(long, value_name = "P", num_args = 1.., group = "what", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Look at all processes of a cgroup and of those below it
    #[arg(long, value_name = "PATH", group = "what")]
    cgroup: Option<PathBuf>,
    /// Look at everybody
    #[arg(long, group = "what")]
    system: bool,
    /// The program to be looked at, with all that it starts
    #[arg(last = true, value_name = "CMD", group = "what")]
    pub(super) command: Vec<OsString>,
    /// How long; without it until Ctrl-C, or until nobody is left
    #[arg(long = "for", value_name = "TIME", value_parser = homenode_config::parse_time, conflicts_with_all = ["command", "file", "sim"])]
    length: Option<Picos>,
    /// Tell where wake-ups put tasks, and why, and where their memory is
    #[arg(long, conflicts_with_all = ["file", "sim"])]
    why: bool,
    /// Have the kernel count as well, where it can (CONFIG_SCHEDSTATS), and show both side by side
    #[arg(long, conflicts_with_all = ["file", "sim", "measure_cost"])]
    kernel: bool,
    /// Run CMD by turns without and with being looked at, and tell what looking costs
    #[arg(long, requires = "command")]
    pub(super) measure_cost: bool,
    /// How often, with --measure-cost
    #[arg(long, value_name = "N", default_value_t = 10, requires = "measure_cost", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(super) rounds: u32,
    /// Another tool to be measured beside, with --measure-cost: words that go before CMD
    #[arg(long, value_name = "WORDS", requires = "measure_cost")]
    pub(super) peer: Option<String>,
    /// Write all of it into a file of columns (Parquet) as well, a row for each task, cgroup, CPU, cache and node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "sim", "measure_cost"])]
    parquet: Option<PathBuf>,
    /// Rows of tasks
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Places for tasks at a time; each is 800 bytes of the kernel's memory
    #[arg(long, value_name = "N", default_value_t = TASKS, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tasks: u32,
}

impl Live {
    /// Whom; `None` if it is not this machine that is asked for.
    pub(super) fn targets(&self) -> Option<Targets> {
        if self.system {
            Some(Targets::All)
        } else if let Some(path) = &self.cgroup {
            Some(Targets::Cgroup(path.clone()))
        } else if !self.pid.is_empty() {
            Some(Targets::Pids(self.pid.clone()))
        } else {
            (!self.command.is_empty()).then_some(Targets::Tree)
        }
    }

    /// Attached, and not counting yet.
    fn attach(&self, place: &Place, targets: &Targets) -> Result<Stats, LookError> {
        Ok(Stats::open(wanted(place, targets, self.tasks, self.why)?)?)
    }
    /// Attached, and counting.
    pub(super) fn open(&self, place: &Place, targets: &Targets) -> Result<Stats, LookError> {
        let mut stats = self.attach(place, targets)?;
        stats.begin()?;
        Ok(stats)
    }
}

/// Pages by node.
type ByNode = BTreeMap<u16, u64>;

/// Where processes' memory is; of those that are over, where it was.
struct Memory {
    places: ThisKernel,
    place: Place,
    found: BTreeMap<u32, ByNode>,
}

impl Memory {
    fn of(place: &Place) -> Self {
        Self { places: ThisKernel::new("/"), place: place.clone(), found: BTreeMap::new() }
    }
    fn look(&mut self, look: &Look) {
        // Who was woken most comes first.
        let mut by: BTreeMap<u32, u64> = BTreeMap::new();
        for t in &look.tasks {
            *by.entry(t.tgid).or_default() += t.counts.nr_wakeups;
        }
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        for (pid, _) in by.into_iter().take(MEMORY_OF) {
            let Some(start) = start_of(&self.place, pid) else { continue };
            if let Some(pages) = self.places.census(Who { pid, start }) {
                if !pages.is_empty() {
                    self.found.insert(pid, pages.iter().map(|(n, p)| (n.0, p.0)).collect());
                }
            }
        }
    }
}

pub(super) fn run(args: &Live, targets: &Targets, json: bool) -> Result<u8> {
    if let Some(path) = &args.parquet {
        output::check_output(path)?;
    }
    let place = Place::here();
    let mut stop = Stop::new();
    let mut stats = args.attach(&place, targets)?;
    let mut beside = args.kernel.then(|| Beside::begin(&place, targets)).transpose()?;
    stats.begin().map_err(LookError::from)?;
    if let Some(beside) = &mut beside {
        beside.begun()?;
    }
    if let Targets::Tree = targets {
        stop.program = Some(start(&mut stats, &args.command)?);
    }
    let mut memory = args.why.then(|| Memory::of(&place));
    let begun = Instant::now();
    let length = args.length.map(|l| Duration::from_nanos(l.0 / 1000));
    let mut next = Duration::ZERO;
    loop {
        if let Some(memory) = memory.as_mut().filter(|_| begun.elapsed() >= next) {
            memory.look(&stats.look().map_err(LookError::from)?);
            next = begun.elapsed() + MEMORY_EVERY;
        }
        let left = length.map(|l| l.saturating_sub(begun.elapsed()));
        let gone = || match targets {
            Targets::Pids(pids) => !pids.iter().any(|p| place.path(&format!("/proc/{p}")).exists()),
            Targets::All | Targets::Cgroup(_) | Targets::Tree => false,
        };
        // A program that nobody has waited for can still be read.
        let over = || args.kernel && stop.program.as_ref().is_some_and(Program::has_ended);
        if over() || stop.wanted() || left == Some(Duration::ZERO) || gone() {
            break;
        }
        std::thread::sleep(left.map_or(SLICE, |left| left.min(SLICE)));
        stats.gather().map_err(LookError::from)?;
    }
    let controller = match stats.whose() {
        Whose::Cgroup { controller, .. } => controller.clone(),
        Whose::All | Whose::Processes(_) | Whose::Tree => None,
    };
    let mut notes = Vec::new();
    let reading = match &beside {
        Some(beside) => Some(beside.ending(&stats.look().map_err(LookError::from)?)?),
        None => None,
    };
    let mut look = stats.end().map_err(LookError::from)?;
    let compared = match beside.zip(reading) {
        Some((beside, reading)) => {
            let (compared, more) = beside.ended(reading, &look)?;
            notes.extend(more);
            Some(compared)
        }
        None => None,
    };
    if let Some(program) = stop.program.as_mut().filter(|p| p.has_ended()) {
        program.wait();
    }
    rename(&place, &mut look);
    let cgroups: BTreeSet<u64> = look.tasks.iter().map(|t| t.cgroup).collect();
    if look.tasks.is_empty() {
        notes.push("none of their tasks had an event".to_owned());
    }
    let mut names = cgroup_names(&place, controller.as_deref());
    names.retain(|id, _| cgroups.contains(id));
    let memory = memory.map(|m| m.found).unwrap_or_default();
    let (why, top) = (args.why, args.top);
    let report = LookReport { look, cgroups: names, memory, why, top, compared, notes };
    if let Some(path) = &args.parquet {
        columns(path, &report)?;
    }
    let text = if json { report.to_json() } else { report.to_text(output::width()) };
    match &stop.program {
        None => output::print(&text)?,
        Some(_) => eprintln!("{}", text.trim_end()),
    }
    Ok(stop.program.as_ref().and_then(Program::code).unwrap_or(0))
}

/// Writes a look as columns.
fn columns(path: &Path, report: &LookReport) -> Result<()> {
    let tasks = report.tasks();
    let cgroups = report.by_cgroup(&tasks);
    let named: BTreeMap<u64, String> =
        tasks.iter().map(|t| (t.cgroup, report.cgroup_name(t.cgroup))).collect();
    let of_tasks = tasks.iter().map(|t| {
        let memory = t.why.as_ref().and_then(|_| report.memory.get(&t.tgid));
        Row::Task(t, named.get(&t.cgroup).map_or("", String::as_str), memory)
    });
    let of_cgroups = cgroups.iter().map(|(name, t)| Row::Cgroup(t, name));
    let by: [(Of, BTreeMap<u32, CpuLook>); 3] = [
        (Of::Cpu, report.cpus_by(|c| c.cpu)),
        (Of::Llc, report.cpus_by(|c| c.llc)),
        (Of::Node, report.cpus_by(|c| c.node)),
    ];
    let of_cpus = by.iter().flat_map(|(of, all)| all.iter().map(|(n, c)| Row::Cpus(*of, *n, c)));
    let (cpu, _) = report.look.all_cpus();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let about = About {
        ns: report.look.ns,
        lost: [cpu.lost_tasks, cpu.lost_events],
        ended_unix_ms: now.as_millis() as u64,
    };
    look::write(path, &about, of_tasks.chain(of_cgroups).chain(of_cpus))?;
    Ok(())
}

/// Starts a program that is looked at from its first moment on.
pub(super) fn start(stats: &mut Stats, command: &[OsString]) -> Result<Program> {
    stats.mother(std::process::id()).map_err(LookError::from)?;
    let program = Program::start(command);
    stats.mother(0).map_err(LookError::from)?;
    program
}
