//! `homenode replay sched`: recorded tasks under another scheduler, on another machine.
//!
//! ```text
//! FILE ─▶ rows ─▶ lives ─┬─▶ the machine as it is ─▶ rows ─▶ beside the recorded ones
//!                        └─▶ each column ──────────▶ rows ─▶ table, tasks, picture
//! ```
//!
//! Source: specs/record-sched.md#replay.

pub(crate) mod groups;
mod run;

use crate::contender::{self, Contender, Contenders};
use crate::failure::NotSo;
use crate::knobs::{self, Setting};
use crate::progress::Progress;
use crate::record::sched::warnings;
use crate::{output, parallel, schedule};
use anyhow::{Context as _, Result, bail};
use homenode_core::sched::course::Course;
use homenode_core::topology::Hardware;
use homenode_core::units::count;
use homenode_report::Better::{Lower, Neither};
use homenode_report::{Caption, ComparisonTable, Figure, Report, Section};
use homenode_sim::play::Acting;
use homenode_trace::sched::{Counted, Found, Header, Tally, lives, load, tally};
pub(crate) use run::{Replayed, charged, play};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A larger difference from what was recorded is a warning, as a share of the recorded time.
const NEAR: f64 = 0.10;
/// A larger one means that it can't have been so.
const FAR: f64 = 0.50;
/// Tasks whose differences are told.
const TOLD: usize = 5;

/// Ask what recorded tasks would have done on another machine, with other knobs.
///
/// Each task runs as long as it ran, on a simulated kernel: it goes on when the task that woke it has come so
/// far again, after as long as it slept where no task of the recording woke it, and it starts whom it started.
/// What the recorded kernel took for switches and wake-ups is taken off and charged where it arises now.
///
/// The tasks are first put on the machine that they were recorded on, and compared with the recording.
/// A difference beyond 10 % of the recorded time, of the whole or of a task's time on a CPU or waiting for one, is
/// a warning; one beyond 50 % ends with exit code 1, but for --force.
///
/// What a task got without waiting is not in a recording: where it comes earlier now, it does not wait. So on fewer CPUs
/// tasks wait at most as often for each other as they did.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode replay sched make.parquet --machine this.toml --cpus 0
  homenode replay sched make.parquet --machine this.toml --nice 10 --hogs 1
  homenode replay sched all.parquet --machine this.toml --on machines/xeon-e7-4.toml \\
      --columns scenario,scenario+recent_cpu=none")]
pub(crate) struct Args {
    /// The recording, by `homenode record sched`
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// The machine that it was recorded on, by `homenode measure`
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// The machine that is asked about; the same unless given
    #[arg(long, value_name = "FILE")]
    on: Option<PathBuf>,
    /// The CPUs that the tasks may use, as for taskset: 0, 0-3,8
    #[arg(long, value_name = "LIST", value_parser = super::cpus)]
    cpus: Option<super::Cpus>,
    /// The nice value of all tasks, in place of their own
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i8).range(-20..=19))]
    nice: Option<i8>,
    /// So many programs beside them that compute all the time, at nice 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    hogs: u32,
    /// Keep a share of the groups of tasks that wake one another, such as 1/2; who starts others stays
    #[arg(long, value_name = "N/M", value_parser = groups::share)]
    keep_groups: Option<(u32, u32)>,
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = knobs::parse,
        help = "A knob of the simulated kernel or a choice of the model, in all columns, such as \
                base_slice_ns=1000000 or recent_cpu=none; may be given several times")]
    set: Vec<Setting>,
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "scenario",
        help = contender::HELP
    )]
    columns: Vec<String>,
    /// Write the last column's run as a trace that Perfetto opens (JSON)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Go on although the recording's times come out far off
    #[arg(long)]
    force: bool,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A recording with what was found in it.
pub(crate) struct Recording {
    pub(crate) header: Header,
    pub(crate) tally: Tally,
    pub(crate) course: Arc<Course>,
    pub(crate) found: Found,
}

impl Recording {
    /// Reads one that was made on a machine.
    pub(crate) fn read(path: &Path, machine: &Hardware) -> Result<Self> {
        let (header, rows) = load(path)?;
        let (course, found) = lives(&header, &rows, &charged(machine));
        if rows.is_empty() {
            bail!("{}: nothing is recorded in it", path.display());
        }
        Ok(Self { tally: tally(&header, &rows), course: Arc::new(course), found, header })
    }
}

/// What a replay on the unmodified machine differs by.
pub(crate) struct Compared {
    notes: Vec<String>,
    warnings: Vec<String>,
    /// What can't be so.
    far: Option<String>,
}

/// How far a figure is off, as a share of a time.
fn off(now: u64, then: u64, of: u64) -> f64 {
    (now as f64 - then as f64) / (of as f64).max(1.0)
}

/// Holds a replay against the recording.
pub(crate) fn compare(recorded: &Recording, replayed: &Replayed) -> Compared {
    let (then, now) = (&recorded.tally, &replayed.tally);
    let whole = then.elapsed_ns();
    let mut it = Compared { notes: Vec::new(), warnings: Vec::new(), far: None };
    let more = off(now.elapsed_ns(), whole, whole);
    let text = format!(
        "on the unmodified machine the replay takes {:.3} ms and the recording {:.3} ms ({:+.1} %)",
        schedule::ms(now.elapsed_ns()),
        schedule::ms(whole),
        more * 100.0
    );
    let judge = |share: f64, text: String, it: &mut Compared| {
        if share.abs() > FAR && it.far.is_none() {
            it.far = Some(format!("can't replay it as it ran: {text}"));
        }
        if share.abs() > NEAR { it.warnings.push(text) } else { it.notes.push(text) }
    };
    judge(more, text, &mut it);
    let mut tasks: Vec<(f64, usize)> = (0..then.tasks.len())
        .map(|t| {
            let (a, b) = (&now.tasks[t], &then.tasks[t]);
            let run = off(a.run_ns, b.run_ns, whole);
            let wait = off(a.wait_ns, b.wait_ns, whole);
            (if run.abs() > wait.abs() { run } else { wait }, t)
        })
        .collect();
    tasks.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(&b.1)));
    for &(share, t) in tasks.iter().take(TOLD).filter(|(share, _)| share.abs() >= 0.01) {
        let (a, b) = (&now.tasks[t], &then.tasks[t]);
        let text = format!(
            "{}: runs {:.3} ms where it ran {:.3}, waits {:.3} where it waited {:.3}",
            schedule::label(&recorded.header, t),
            schedule::ms(a.run_ns),
            schedule::ms(b.run_ns),
            schedule::ms(a.wait_ns),
            schedule::ms(b.wait_ns)
        );
        judge(share, text, &mut it);
    }
    it
}

/// What tasks had, and how it is taken of all of them together.
type OfAll = (Figure, fn(&Tally, &Counted) -> f64);

const FIGURES: [OfAll; 11] = [
    (
        Figure::new(
            "elapsed",
            "ms",
            Lower,
            3,
            "from the first task's beginning to the last one's end",
        ),
        |t, _| schedule::ms(t.elapsed_ns()),
    ),
    (Figure::new("run", "ms", Neither, 3, "on a CPU, all tasks together"), |_, c| {
        schedule::ms(c.run_ns)
    }),
    (Figure::new("wait", "ms", Lower, 3, "ready, without a CPU"), |_, c| schedule::ms(c.wait_ns)),
    (Figure::new("sleep", "ms", Neither, 3, "in interruptible sleep"), |_, c| {
        schedule::ms(c.sleep_ns)
    }),
    (Figure::new("block", "ms", Neither, 3, "in uninterruptible sleep"), |_, c| {
        schedule::ms(c.block_ns)
    }),
    (Figure::count("wake-ups", "how often tasks were woken"), |_, c| c.wakeups as f64),
    (Figure::count("migrations", "how often a task ran on another CPU than before"), |_, c| {
        c.migrations as f64
    }),
    (Figure::count("voluntary", "how often a task left its CPU to wait"), |_, c| {
        c.voluntary as f64
    }),
    (Figure::count("involuntary", "how often a task left its CPU for another"), |_, c| {
        c.involuntary as f64
    }),
    (
        Figure::new("latency p50", "us", Lower, 3, "from a wake-up until the task runs, median"),
        |_, c| c.latency_ns(500) as f64 / 1e3,
    ),
    (Figure::new("latency p99", "us", Lower, 3, "the same, 99th percentile"), |_, c| {
        c.latency_ns(990) as f64 / 1e3
    }),
];

fn table(columns: &[(String, &Tally)]) -> ComparisonTable {
    let all: Vec<Counted> = columns.iter().map(|(_, t)| schedule::together(t)).collect();
    let row = |(figure, of): &OfAll| {
        let samples = columns.iter().zip(&all).map(|((_, t), c)| vec![of(t, c)]).collect();
        figure.compared(samples)
    };
    let figures = FIGURES.iter().map(row).collect();
    let mut cpus: Vec<usize> = Vec::new();
    for (_, t) in columns {
        cpus.extend((0..t.busy_ns.len()).filter(|&c| t.busy_ns[c] > 0));
    }
    cpus.sort_unstable();
    cpus.dedup();
    const BUSY: Figure =
        Figure::new("busy CPU {}", "%", Neither, 2, "share of the time in which a task ran there");
    let busy = |&cpu: &usize| {
        let of = |t: &Tally| {
            let ns = t.busy_ns.get(cpu).copied().unwrap_or(0);
            ns as f64 * 100.0 / t.elapsed_ns().max(1) as f64
        };
        BUSY.compared_of(&cpu.to_string(), columns.iter().map(|(_, t)| vec![of(t)]).collect())
    };
    let busy = if cpus.len() <= 16 { cpus.iter().map(busy).collect() } else { Vec::new() };
    ComparisonTable {
        columns: columns.iter().map(|(name, _)| name.clone()).collect(),
        groups: vec![
            Section { title: String::new(), figures },
            Section { title: String::new(), figures: busy },
        ],
    }
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    if let Some(path) = &args.perfetto {
        output::check_output(path)?;
    }
    let this = homenode_config::read_machine(&args.machine)?;
    let other = args.on.as_deref().map(homenode_config::read_machine).transpose()?;
    let asked = other.as_ref().unwrap_or(&this);
    // What holds in all columns is behind each column's own words.
    let set: String = args.set.iter().map(|(k, v)| format!("+{k}={v}")).collect();
    let texts: Vec<String> = args.columns.iter().map(|c| format!("{c}{set}")).collect();
    let columns = contenders.parse(&texts)?;
    if let Some(c) = columns.iter().find(|c| c.drives.is_some() || c.interleaves) {
        bail!("column {}: it is about memory, and a recording of scheduling has none", c.title());
    }
    let shared = super::recorded::setup(&[("numa_balancing".into(), "0".into())]);
    columns.iter().try_for_each(|c| c.setup(&shared, &[]).map(drop))?;
    let mut acting = Acting { nice: args.nice, hogs: args.hogs, ..Acting::default() };
    if let Some(super::Cpus(cpus)) = &args.cpus {
        super::recorded::has(asked, cpus)?;
        acting.cpus.clone_from(cpus);
    }

    let progress = Progress::new(0);
    progress.say("reading the recording");
    let recorded = Recording::read(&args.recording, &this)?;
    progress.say("the unmodified machine");
    let plain = Contender::kernel("scenario", Vec::new());
    let unmodified =
        play(&this, &plain.setup(&shared, &[])?, &recorded, &recorded.course, &Acting::default())
            .with_context(|| args.recording.display().to_string())?;
    let compared = compare(&recorded, &unmodified);
    if let Some(far) = compared.far.as_ref().filter(|_| !args.force) {
        bail!(NotSo(format!("{far}. See the figures all the same with --force")));
    }
    let (course, kept) = match args.keep_groups {
        Some(share) => groups::keep(&recorded.course, share)?,
        None => (Course::clone(&recorded.course), String::new()),
    };
    let course = Arc::new(course);
    let same = args.on.is_none()
        && acting == Acting::default()
        && args.keep_groups.is_none()
        && columns.len() == 1
        && columns[0].name == "scenario";
    progress.say("what is asked");
    let runs: Vec<Replayed> = if same {
        Vec::new()
    } else {
        let one = |c: &Contender| play(asked, &c.setup(&shared, &[])?, &recorded, &course, &acting);
        let all = parallel::map(parallel::jobs(args.jobs), &columns, one);
        all.into_iter().collect::<Result<_>>()?
    };
    drop(progress);

    let mut names: Vec<(String, &Tally)> =
        vec![("recorded".into(), &recorded.tally), ("unmodified".into(), &unmodified.tally)];
    for (c, run) in columns.iter().zip(&runs) {
        let name = c.column("asked").replacen("scenario", "asked", 1);
        names.push((name, &run.tally));
    }
    let last = runs.last().unwrap_or(&unmodified);
    if let Some(path) = &args.perfetto {
        schedule::write_perfetto(path, &last.header, &last.rows)?;
    }
    let mut notes = notes(args, &recorded, asked, &kept);
    notes.extend(compared.notes);
    let mut warned = warnings(&recorded.header);
    warned.extend(odd(&recorded));
    notes.extend(crate::figures::defaults(asked));
    if last.opened > 0 {
        warned.push(format!(
            "{} a task went on without what it waited for, since nobody could go on: events are missing",
            count(last.opened as u64, "time", "times")
        ));
    }
    warned.extend(compared.warnings);
    let h = &recorded.header;
    let report = Report {
        caption: Caption {
            wrong: None,
            machine: format!("{}: {}", asked.name, asked.about),
            workload: format!(
                "{}, as recorded: {}",
                h.name(),
                count(h.tasks.len() as u64, "task", "tasks")
            ),
            kernel: format!("Linux {}'s rules", shared.version),
            scales: Vec::new(),
            loops: 1,
            seeds: vec![shared.seed],
            notes,
            warnings: warned,
        },
        table: table(&names),
        picture: Vec::new(),
        conclusion: None,
    };
    output::print(&if args.json {
        let mut all: Value = serde_json::from_str(&report.to_json())?;
        let of = |(name, header, tally): (&str, &Header, &Tally)| json!({"column": name, "tasks": schedule::tasks_json(header, tally)});
        let mut each = vec![
            of(("recorded", h, &recorded.tally)),
            of(("unmodified", &unmodified.header, &unmodified.tally)),
        ];
        for ((name, _), run) in names[2..].iter().zip(&runs) {
            each.push(of((name, &run.header, &run.tally)));
        }
        all["runs"] = json!(each);
        all.to_string()
    } else {
        let mut text = report.to_text(output::width(), output::glyphs());
        let shown = [("recorded", h, &recorded.tally)].into_iter().chain(
            names[1..]
                .iter()
                .zip([&unmodified].into_iter().chain(&runs))
                .map(|((name, _), run)| (name.as_str(), &run.header, &run.tally)),
        );
        for (name, header, tally) in shown {
            text.push_str(&format!("\ntasks, {name}\n{}", schedule::table(header, tally)));
        }
        text.push_str("\nCPUs over time, the last column\n");
        let width = output::width().min(120);
        text.push_str(&schedule::picture(&last.header, &last.rows, &last.tally, width));
        text
    })?;
    Ok(0)
}

fn notes(args: &Args, recorded: &Recording, asked: &Hardware, kept: &str) -> Vec<String> {
    let mut notes = Vec::new();
    let found = &recorded.found;
    notes.push(format!(
        "{}: {} by a task of the recording, {} of them for bytes, {} before the woken one slept; {} by interrupts and others, which are waited for as long as they were",
        count(found.causal + found.outside, "wake-up", "wake-ups"),
        found.causal,
        found.by_bytes,
        found.early,
        found.outside
    ));
    if let Some(super::Cpus(cpus)) = &args.cpus {
        let cpus: Vec<u32> = cpus.iter().map(|c| c.0).collect();
        notes.push(format!("asked: on CPUs {} only", homenode_config::write_list(&cpus)));
    }
    if let Some(nice) = args.nice {
        notes.push(format!("asked: all tasks at nice {nice}"));
    }
    if args.hogs > 0 {
        let hogs = count(args.hogs.into(), "program", "programs");
        notes.push(format!("asked: {hogs} beside them that compute all the time, at nice 0"));
    }
    if !kept.is_empty() {
        notes.push(kept.to_owned());
    }
    if args.on.is_some() {
        notes.push(format!(
            "asked: on \"{}\"; run times are those of the recorded machine, at its CPUs' speed",
            asked.name
        ));
    }
    notes
}

/// What of a recording makes its figures doubtful.
fn odd(recorded: &Recording) -> Vec<String> {
    let mut out = Vec::new();
    let (h, found) = (&recorded.header, &recorded.found);
    if !h.complete {
        out.push(format!("the recording is not complete: it {}", crate::record::ended(h.ended)));
    }
    if found.unexplained > 0 {
        out.push(format!(
            "{} a task ran again or slept, and rows in between are missing",
            count(found.unexplained, "time", "times")
        ));
    }
    if found.other_class > 0 {
        out.push(format!(
            "{} of a real-time or deadline class: replayed as of the fair class",
            count(found.other_class, "task was", "tasks were")
        ));
    }
    if !h.calls {
        out.push(
            "it does not say what calls moved: who found bytes without waiting does not wait for them now either"
                .to_owned(),
        );
    }
    if !h.contexts {
        out.push(
            "perf does not say where the kernel was when it woke a task: whoever ran there counts as \
             the waker"
                .to_owned(),
        );
    }
    out
}
