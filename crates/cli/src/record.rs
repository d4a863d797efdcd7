//! `homenode record`: what a program does to memory, what the scheduler does with it, which processes it starts.

pub(crate) mod sched;

use crate::progress::Progress;
use crate::topo::this_machine;
use crate::{output, program};
use anyhow::{Result, anyhow, bail};
use homenode_core::topology::Hardware;
use homenode_core::units::count;
use homenode_live::sysfs;
use homenode_measure::jobs::{self, Form, Shape};
use homenode_measure::record::{self, Mark, Options, Summary};
use homenode_trace::{Ended, Slice};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Record what a program does.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode record mem -o sort.parquet --machine this.toml -- sort --parallel=1 words.txt
  homenode record sched -o make.parquet -- make -j2")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Mem(Mem),
    Sched(sched::Args),
    Tasks(Tasks),
}

/// Record which processes a command starts, and make a scenario of them.
///
/// For builds: who starts whom, processor time, faults and memory of each process, of which so many classes
/// of jobs are made (specs/workloads.md). The command runs under ptrace, which stops a process only where it
/// forks, runs another program or ends. It reads nothing from standard input.
///
/// Exit codes: the command's own, or 128 and the signal that ended it; 2 bad usage, and 3 the
/// system lacks something.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode record tasks -o build.toml --machine machines/xeon-e7-2.toml -- make -j2")]
struct Tasks {
    /// Where the scenario goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The machine that the scenario names, relative to it
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// Classes of jobs, of equal number, by the time of a job's heaviest process
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    classes: u32,
    /// How many jobs the scenario's build runs at once
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    at_most: u32,
    /// The command with its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Record a program's memory accesses behind a model of this machine's caches.
///
/// Runs the program natively first, up to three times, for its times; then under
/// qemu-user with a plugin in which every access goes through L1, L2, last level and
/// TLB, so that only what reaches memory is kept, page by page. Threads and children are
/// recorded too, and who of them waits for whom. Takes about 10 to 25 times as long as the program itself. The program
/// reads nothing from standard input unless --stdin names a file, and what it does to
/// files it does in every run. Interrupted, it keeps what was recorded until then.
///
/// Waits are those for futexes (locks, conditions, joins), pipes, sockets within the program, event
/// counters, poll and its like, signals, locks of files, children, timers and time. What is outside
/// of the program (a terminal, the network) takes in a replay what it took while it was recorded.
///
/// Exit codes: the program's own, or 128 and the signal that ended it; 0 where it was ended
/// because the slice was full or the recording was interrupted; 2 bad usage, and 3 the
/// system lacks something, with nothing recorded.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode record mem -o sort.parquet --machine this.toml --skip 1s --for 2G \\
      -- sort --parallel=1 words.txt")]
struct Mem {
    /// Where the recording (Parquet) goes; replaced only when it is complete
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The machine whose caches are modelled; this machine's sizes from sysfs unless given
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Where the slice begins: instructions (500M, 2G) or native CPU time (10s, 250ms)
    #[arg(long, value_name = "MARK", value_parser = mark)]
    skip: Option<Mark>,
    /// How long the slice is; the program is ended then
    #[arg(long = "for", value_name = "MARK", value_parser = mark)]
    length: Option<Mark>,
    /// What the program reads as its standard input
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// How often to run it natively, at most; without such a run, replay has to assume the
    /// time of an instruction
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=3))]
    native_runs: u32,
    /// Print one JSON object, after what the program itself prints
    #[arg(long)]
    json: bool,
    /// The program with its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn mark(text: &str) -> Result<Mark, String> {
    Mark::parse(text).ok_or_else(|| {
        "write instructions such as 500M or 2G, or native CPU time such as 10s or 250ms".into()
    })
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let args = match &args.what {
        What::Mem(args) => args,
        What::Sched(args) => return sched::run(args),
        What::Tasks(args) => return tasks(args),
    };
    output::check_output(&args.output)?;
    let machine = match &args.machine {
        Some(path) => homenode_config::read_machine(path)?,
        None => caches_of_this_machine()?,
    };
    let mut options = Options::new(args.command.clone(), args.output.clone(), machine);
    options.stdin.clone_from(&args.stdin);
    options.native_runs = args.native_runs;
    options.skip = args.skip;
    options.length = args.length;
    let name = Path::new(&args.command[0]).file_name().map_or_else(
        || args.command[0].to_string_lossy().into_owned(),
        |n| n.to_string_lossy().into_owned(),
    );
    let summary = {
        let progress = Progress::new(0);
        record::record(&options, &mut |p| match p {
            record::Progress::Native { run } => {
                progress.say(&format!("{name}: native run {run}, for its times"));
            }
            record::Progress::Shares => {
                progress.say("running the program by itself, task by task");
            }
            record::Progress::Waits => {
                progress.say(&format!("{name}: by itself, for what it waits for"));
            }
            record::Progress::Counting => {
                progress.say(&format!("{name}: counting its instructions"));
            }
            record::Progress::Recording { elapsed_ns, rows, insns, bytes } => {
                progress.say(&format!("{name}: recording"));
                progress.murmur(&format!(
                    "{name}: recorded {:.1} G instructions, {:.1} M rows, {:.0} MB in {:.0} s",
                    insns as f64 / 1e9,
                    rows as f64 / 1e6,
                    bytes as f64 / 1e6,
                    elapsed_ns as f64 / 1e9
                ));
            }
        })?
    };
    output::print(&if args.json { to_json(&summary) } else { to_text(&summary) })?;
    Ok(program::code_of(summary.header.ended))
}

/// The caches of this machine by sysfs; the recorder needs their shapes only.
/// A command's processes as a scenario.
fn tasks(args: &Tasks) -> Result<u8> {
    output::check_output(&args.output)?;
    let tree = jobs::record(&args.command)?;
    let shape = Shape::of(&tree, args.classes as usize);
    if shape.jobs == 0 {
        bail!(
            "{} started no process; there is nothing to make a scenario of",
            args.command[0].to_string_lossy()
        );
    }
    let name = args.output.file_stem().map_or("build".into(), |n| n.to_string_lossy());
    let form = Form {
        name: name.into_owned(),
        about: format!(
            "{} of {}, as recorded",
            count(shape.jobs as u64, "job", "jobs"),
            count(shape.classes.len() as u64, "class", "classes")
        ),
        machine: args.machine.display().to_string(),
        at_most: args.at_most,
    };
    std::fs::write(&args.output, shape.scenario(&form))
        .map_err(|e| anyhow!("{} can't be written: {e}", args.output.display()))?;
    let ran: u64 = tree.jobs.iter().map(|j| j.ran_ns).sum();
    output::print(&format!(
        "{}, {}, {:.1} s of processor time; memory looked at {}\n",
        count(tree.jobs.len() as u64, "process", "processes"),
        count(shape.jobs as u64, "job", "jobs"),
        ran as f64 / 1e9,
        count(shape.windows as u64, "time", "times")
    ))?;
    Ok(tree.code())
}

fn caches_of_this_machine() -> Result<Hardware> {
    use homenode_core::costs::Constant;
    let t = sysfs::read_topology(Path::new("/"))?;
    if t.caches.is_empty() {
        return Err(anyhow!(crate::failure::Lacks(
            "sysfs shows no caches of this machine; name a machine TOML with --machine".into()
        )));
    }
    let latency = Constant::assumed(1, "not needed to record");
    let caches = t.caches.iter().map(|c| c.with_latency(latency.clone())).collect();
    let name = "this machine, by sysfs".to_owned();
    Ok(Hardware { name, caches, ..this_machine(Path::new("/"))? })
}

/// How a recording ended, for people.
pub(crate) fn ended(e: Ended) -> String {
    match e {
        Ended::Exit(n) => format!("ended with status {n}"),
        Ended::Signal(n) => format!("was ended by signal {n}"),
        Ended::SliceFull => "was ended when the slice was full".into(),
        Ended::Interrupted => "was interrupted".into(),
        Ended::Unknown => "ended, nobody knows how".into(),
    }
}

/// Which part of the program's life it is; `None` for all of it.
pub(crate) fn slice(s: &Slice) -> Option<String> {
    let m = |n: u64| format!("{:.1} M", n as f64 / 1e6);
    match (s.skip_insns, s.for_insns) {
        (0, None) => None,
        (skip, None) => Some(format!("instructions from {} to the end", m(skip))),
        (skip, Some(n)) => Some(format!("instructions {} to {}", m(skip), m(skip + n))),
    }
}

fn to_text(s: &Summary) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let h = &s.header;
    let mut out = format!(
        "{}: {:.1} MB, {} of {}; the program {}\n",
        s.output.display(),
        s.bytes as f64 / 1e6,
        count(s.rows, "row", "rows"),
        count(h.tasks.len() as u64, "task", "tasks"),
        ended(h.ended)
    );
    if let Some(slice) = slice(&h.slice) {
        out.push_str(&format!("slice: {slice}\n"));
    }
    let t = &h.totals;
    out.push_str(&format!(
        "{:.2} G instructions, {:.2} G accesses, {:.2} M lines from memory, {} touched\n",
        t.insns as f64 / 1e9,
        t.accesses as f64 / 1e9,
        (t.read_misses + t.write_misses) as f64 / 1e6,
        crate::nodes::size(homenode_core::units::Pages(h.pages_touched).bytes())
    ));
    if let Some(n) = &h.native {
        out.push_str(&format!(
            "natively {:.2} s on the clock, {:.2} s CPU time in user mode and {:.2} s in the kernel\n",
            seconds(n.wall_ns),
            seconds(n.user_ns),
            seconds(n.sys_ns)
        ));
    }
    out.push_str(&format!("recorded in {:.2} s", seconds(h.recorded_wall_ns)));
    if let Some(slower) = s.slowdown() {
        out.push_str(&format!(", {slower:.1} times as long"));
    }
    out.push('\n');
    for warning in warnings(h.lost_frames, h.unrecorded_execs) {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out
}

/// What is missing from a recording.
pub(crate) fn warnings(lost_frames: u64, unrecorded_execs: u64) -> Vec<String> {
    let mut out = Vec::new();
    if lost_frames > 0 {
        out.push(format!(
            "{} lost",
            count(lost_frames, "frame of the recording was", "frames of the recording were")
        ));
    }
    if unrecorded_execs > 0 {
        out.push(format!(
            "{} that it started ran unrecorded",
            count(unrecorded_execs, "program", "programs")
        ));
    }
    out
}

fn to_json(s: &Summary) -> String {
    let h = &s.header;
    json!({
        "output": s.output,
        "bytes": s.bytes,
        "rows": s.rows,
        "tasks": h.tasks.len(),
        "native": h.native,
        "recorded_wall_ns": h.recorded_wall_ns,
        "slowdown": s.slowdown(),
        "insns": h.totals.insns,
        "accesses": h.totals.accesses,
        "read_misses": h.totals.read_misses,
        "write_misses": h.totals.write_misses,
        "tlb_misses": h.totals.tlb_misses,
        "pages_touched": h.pages_touched,
        "slice": h.slice,
        "ended": ended(h.ended),
        "complete": h.complete,
        "lost_frames": h.lost_frames,
        "unrecorded_execs": h.unrecorded_execs,
        "threads": h.threads().map(|t| json!({"program": t.program, "threads": t.threads})),
    })
    .to_string()
}
