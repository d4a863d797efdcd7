//! `homenode record sched`: what the scheduler does with a program's tasks, or with all.
//!
//! ```text
//! CMD, held ─▶ BPF program attached ─▶ let go ─▶ events ─▶ rows ─▶ FILE
//! perf.data ─▶ perf script ─▶ text ───────────────────────▶ rows ─▶ FILE
//! ```
//!
//! Source: specs/record-sched.md.

mod own;
mod rows;

use crate::failure::Lacks;
use crate::program::{self, Program, Stop};
use crate::progress::Progress;
use crate::{output, record, schedule};
use anyhow::{Context, Result, anyhow, bail};
use homenode_bpf::record::{RING_BYTES, RecordError, Recorder, Whose};
use homenode_core::units::{Picos, count};
use homenode_live::held::{Held, HeldError};
use homenode_live::sysfs;
use homenode_trace::Ended;
use homenode_trace::sched::{FIELDS, Header, Row, VERSION, Writer, parse_perf, tally};
use own::Beyond;
use rows::Rows;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// How long to wait for events at a time.
const POLL: Duration = Duration::from_millis(50);

/// Record what the scheduler does with a program's tasks, or with all of the system.
///
/// Says when each task ran and where, what it waited for, who woke it, whom it started, and its nice
/// value and CPUs. A BPF program in the kernel tells, of the program and all that it starts only; it is gone
/// when this command ends, by whatever end. `homenode replay sched` asks what these tasks would have done
/// on another machine.
///
/// With --from-perf the data of `perf sched record` are taken instead, as `perf script` prints them. They
/// don't say what a task waited for.
///
/// The file is whole at any moment: it is replaced by a longer one now and then.
///
/// Exit codes: the program's own, or 128 and the signal that ended it; 2 bad usage or input, and 3 the
/// system lacks something (root, or CAP_BPF and CAP_PERFMON; a kernel with BTF).
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode record sched -o make.parquet -- make -j2
  homenode record sched --system --for 10s -o all.parquet --perfetto all.json
  perf sched record -- make -j2; homenode record sched --from-perf perf.data -o make.parquet")]
pub(super) struct Args {
    /// Where the recording (Parquet) goes
    #[arg(short, long, value_name = "FILE", default_value = "sched.parquet")]
    output: PathBuf,
    /// Record all tasks of the system
    #[arg(long, conflicts_with_all = ["command", "from_perf"])]
    system: bool,
    /// How long to record at most; a program runs on unrecorded
    #[arg(long = "for", value_name = "TIME", value_parser = crate::replay::span("10s"), conflicts_with = "from_perf")]
    span: Option<Picos>,
    /// Take what `perf sched record` has recorded
    #[arg(long, value_name = "PERF.DATA", conflicts_with = "command")]
    from_perf: Option<PathBuf>,
    /// Write a trace that Perfetto opens as well (JSON)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print one JSON object, after what the program itself prints
    #[arg(long)]
    json: bool,
    /// The program with its arguments, after --
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A recording that was made.
struct Made {
    header: Header,
    rows: Vec<Row>,
    bytes: u64,
    /// What recording took beyond its own clock, or why that is not known. Data of others have none.
    beyond: Result<Beyond, String>,
}

pub(super) fn run(args: &Args) -> Result<u8> {
    output::check_output(&args.output)?;
    if let Some(path) = &args.perfetto {
        output::check_output(path)?;
    }
    let (made, code) = if let Some(path) = &args.from_perf {
        (from_perf(path, &args.output)?, 0)
    } else {
        if args.system && args.span.is_none() {
            bail!("--system needs --for, such as --for 10s");
        }
        if !args.system && args.command.is_empty() {
            bail!(
                "what to record is missing: a command after --, --system --for 10s, or --from-perf perf.data"
            );
        }
        let (output, command) = (args.output.as_path(), args.command.as_slice());
        live(&Wanted { output, span: args.span, command, quiet: false })?
    };
    if let Some(path) = &args.perfetto {
        schedule::write_perfetto(path, &made.header, &made.rows)?;
    }
    output::print(&if args.json { to_json(args, &made) } else { to_text(args, &made) })?;
    Ok(code)
}

/// Records a command into a file; its exit code.
///
/// * `quiet` – what it prints goes nowhere.
pub(crate) fn record(command: &[OsString], output: &Path, quiet: bool) -> Result<u8> {
    Ok(live(&Wanted { output, span: None, command, quiet })?.1)
}

/// What is to be recorded.
struct Wanted<'a> {
    output: &'a Path,
    span: Option<Picos>,
    /// None: everybody.
    command: &'a [OsString],
    quiet: bool,
}

fn refused(e: RecordError) -> anyhow::Error {
    let lack = Lacks(homenode_live::sentence(&e));
    anyhow!(lack)
}

/// Records with BPF: the program that is named, or everybody.
fn live(args: &Wanted<'_>) -> Result<(Made, u8)> {
    let mut stop = Stop::new();
    let held = match args.command.is_empty() {
        true => None,
        false => Some(Held::start(args.command, args.quiet).map_err(|e| match e {
            HeldError::Start { .. } => anyhow!(e),
            HeldError::Trace { .. } => anyhow!(Lacks(homenode_live::sentence(&e))),
        })?),
    };
    let whose = held.as_ref().map_or(Whose::System, |held| Whose::Tree(held.pid()));
    let mut writer = Writer::create(args.output)?;
    // Before the program begins: it is held. Without it the program's own clock has to do.
    let beyond = Beyond::measure();
    let mut recorder = Recorder::attach(whose).map_err(refused)?;
    let mut header = Header {
        version: VERSION,
        source: "bpf".into(),
        command: args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        kernel: release(),
        cpus: online(),
        began_unix_ms: unix_ms(),
        contexts: true,
        calls: recorder.tells_calls(),
        ..Header::default()
    };
    let mut rows = Rows::default();
    let mut all = Vec::new();
    let began = Instant::now();
    if let Some(held) = held {
        stop.program = Some(Program::of(held.go()?));
    }
    let progress = Progress::new(0);
    let until = args.span.map(|t| Duration::from_nanos(t.as_ns()));
    let (mut over, mut keep) = (false, Duration::from_secs(1));
    let mut in_time = false;
    while !over {
        // What came before the end is in the ring by now: it is taken once more.
        in_time = until.is_some_and(|until| began.elapsed() >= until);
        over = stop.wanted() || in_time;
        let before = all.len();
        for event in recorder.take(if over { Duration::ZERO } else { POLL }).map_err(refused)? {
            rows.take(event, &mut all);
        }
        let [lost, untold] = recorder.lost().map_err(refused)?;
        rows.lost(lost, &mut all);
        header.lost += lost;
        header.untold_tasks += untold;
        for &row in &all[before..] {
            writer.push(row)?;
        }
        if began.elapsed() >= keep && !over {
            keep = began.elapsed() * 2;
            rows.describe(&mut header);
            header.ended = Ended::Interrupted;
            writer.keep(&header)?;
            progress.murmur(&format!(
                "{}: {} in {:.0} s",
                header.name(),
                count(writer.rows(), "row", "rows"),
                began.elapsed().as_secs_f64()
            ));
        }
    }
    header.own_ns = recorder.own_ns().map_err(refused)?;
    if let Ok(beyond) = &beyond {
        for (own, beyond) in header.own_ns.iter_mut().zip(beyond.each) {
            // What never happened took nothing.
            *own += if *own > 0 { beyond } else { 0 };
        }
    }
    drop(recorder);
    drop(progress);
    rows.describe(&mut header);
    let (mut code, mut ended) = (0, Ended::Interrupted);
    if args.command.is_empty() {
        header.span_ns = header.span_ns.max(began.elapsed().as_nanos() as u64);
        header.complete = in_time;
    }
    if let Some(program) = &mut stop.program {
        let itself = program.is_over();
        header.complete = itself;
        if in_time && !itself {
            ended = Ended::SliceFull;
            header.span_ns = header.span_ns.max(began.elapsed().as_nanos() as u64);
        }
        program.wait();
        if itself {
            ended = program.ended();
        }
        code = program.code().unwrap_or(0);
    }
    header.ended = ended;
    let bytes = writer.finish(&header)?;
    all.sort_by_key(|r| r.time_ns);
    Ok((Made { header, rows: all, bytes, beyond }, code))
}

/// Takes what perf has recorded.
fn from_perf(path: &Path, output: &Path) -> Result<Made> {
    if !path.exists() {
        bail!("{}: there is no such file", path.display());
    }
    let progress = Progress::new(0);
    progress.say("perf script");
    let done = Command::new("perf")
        .args(["script", "--ns", "--show-lost-events", "-F", FIELDS, "-i"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            anyhow!(Lacks(format!("perf can't be run: {e}; install the package linux-perf")))
        })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let last = said.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("nothing");
        bail!("{}: perf script can't read it: {last}", path.display());
    }
    let text = String::from_utf8_lossy(&done.stdout);
    let (header, rows) = parse_perf(&text).with_context(|| path.display().to_string())?;
    let mut writer = Writer::create(output)?;
    for &row in &rows {
        writer.push(row)?;
    }
    let bytes = writer.finish(&header)?;
    Ok(Made { header, rows, bytes, beyond: Ok(Beyond::default()) })
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// CPUs that are online, by number.
pub(crate) fn online() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online");
    text.ok().and_then(|t| sysfs::parse_list(&t)).unwrap_or_else(|| vec![0])
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as u64)
}

/// What is missing, in sentences.
pub(crate) fn warnings(h: &Header) -> Vec<String> {
    let mut out = Vec::new();
    if h.lost > 0 {
        out.push(format!(
            "{} lost, since the ring of {} MiB was full: figures of the tasks that they were of are wrong",
            count(h.lost, "event was", "events were"),
            RING_BYTES >> 20
        ));
    }
    if h.untold_tasks > 0 {
        out.push(format!(
            "{} not recorded, since the table of tasks was full",
            count(h.untold_tasks, "task is", "tasks are")
        ));
    }
    out
}

fn to_text(args: &Args, made: &Made) -> String {
    let h = &made.header;
    let tally = tally(h, &made.rows);
    let ended = match (h.source.as_str(), args.command.is_empty()) {
        ("bpf", false) => format!("; the program {}", record::ended(h.ended)),
        _ => String::new(),
    };
    let mut out = format!(
        "{}: {:.1} MB, {} of {} in {:.3} s{ended}\n",
        args.output.display(),
        made.bytes as f64 / 1e6,
        count(made.rows.len() as u64, "row", "rows"),
        count(h.tasks.len() as u64, "task", "tasks"),
        h.span_ns as f64 / 1e9,
    );
    if h.source == "bpf" {
        out.push_str(&format!(
            "the kernel's side had a ring of {} MiB and room for 131,072 tasks at once, and took {} ns of a switch, {} of a wake-up, {} of a call that moves bytes{}; {}\n",
            RING_BYTES >> 20,
            h.own_ns[0],
            h.own_ns[1],
            h.own_ns[2],
            match &made.beyond {
                Ok(beyond) => format!(", and {} of any other call", beyond.plain),
                Err(_) => " by its own clock".to_owned(),
            },
            if h.lost == 0 { "nothing was lost".to_owned() } else { format!("{} lost", h.lost) }
        ));
    }
    out.push_str(&schedule::table(h, &tally));
    for warning in warnings(h) {
        out.push_str(&format!("warning: {warning}\n"));
    }
    if let Err(why) = &made.beyond {
        out.push_str(&format!(
            "warning: what recording took beyond its own clock is not known, and a replay does not take it off: {why}\n"
        ));
    }
    out
}

fn to_json(args: &Args, made: &Made) -> String {
    let h = &made.header;
    let tally = tally(h, &made.rows);
    json!({
        "output": args.output,
        "bytes": made.bytes,
        "rows": made.rows.len(),
        "source": h.source,
        "span_ns": h.span_ns,
        "lost": h.lost,
        "own_ns": { "switch": h.own_ns[0], "wake": h.own_ns[1], "call": h.own_ns[2], "other_call": made.beyond.as_ref().ok().map(|b| b.plain) },
        "untold_tasks": h.untold_tasks,
        "complete": h.complete,
        "ended": record::ended(h.ended),
        "code": program::code_of(h.ended),
        "tasks": schedule::tasks_json(h, &tally),
    })
    .to_string()
}
