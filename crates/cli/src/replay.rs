//! `homenode replay`: a recorded program on another machine.

mod conclusion;
pub(crate) mod interval;
pub(crate) mod load;
pub(crate) mod play;
pub(crate) mod recorded;
pub(crate) mod sched;
pub(crate) mod target;

use crate::contender::{self, Contender, Contenders, once};
use crate::figures::{self, Choice};
use crate::knobs::{self, Setting};
use crate::progress::Progress;
use crate::{output, parallel};
use anyhow::{Context as _, Result, bail};
use homenode_config::{AddNode, parse_add_node};
use homenode_core::topology::{Hardware, MAX_CPUS};
use homenode_core::units::{CpuId, Picos, count};
use homenode_report::{Report, Snapshot};
use homenode_sim::Stretch;
use homenode_sim::replay::Rounds;
use interval::Intervals;
use load::Loaded;
use play::{Mlp, Played};
use recorded::Recorded;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use target::Dram;

/// Replay a recording on a simulated machine, under each of the kernel's balancing modes.
///
/// Loops the recording and charges compute plus misses, divided by memory parallelism.
/// What an instruction costs comes from the program's native time on the unmodified
/// machine. The first mode runs until --for is over, the others for as many rounds; a
/// round is over when the program and all that it started have ended.
/// Prints one table, and where the hot pages were in the first round and in the last.
///
/// Tasks wait as they did: each until the task that ended its wait has come as far again. A
/// sleep lasts as long as it did. The first round on the unmodified machine is compared with the
/// program's own time on the clock, and so is each of its tasks, from its beginning to its end.
/// A difference beyond 10 % of the program's time is a warning. Where the program, or a task, is
/// off by more than 50 % of it, the replay ends with exit code 1, since it can't have run so;
/// --force prints the figures all the same.
///
/// Recordings of version 1 don't say when threads wait for one another. One in which threads
/// ran is refused with exit code 3. With --force its wrong figures are printed, and the caption
/// (in --json "wrong") says that they are.
///
/// Recordings of scheduling are replayed by `homenode replay sched`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Example:
  homenode replay sort.parquet --machine this.toml --add-node cxl:half --for 120s
  homenode replay sort.parquet --machine this.toml --add-node pmem:64GiB --dram 8GiB \\
      --columns off,mode2 --set numa_balancing_promote_rate_limit_MBps=100
  homenode replay sort.parquet --machine this.toml --add-node cxl:half \\
      --columns off,mode2,homenode:pmu,all-dram")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The recording, by `homenode record mem`
    #[arg(value_name = "FILE", required = true)]
    recording: Option<PathBuf>,
    /// The machine that the program was recorded on, by `homenode measure`
    #[arg(long, value_name = "FILE", required = true)]
    machine: Option<PathBuf>,
    /// A published part beside the first node with CPUs: cxl:half (half of the program's
    /// memory, and DRAM shrunk to the other half), cxl:16GiB, pmem:64GiB
    #[arg(long, value_name = "PART:SIZE", value_parser = add_node)]
    add_node: Option<AddNode>,
    /// How much DRAM the machine has: all, half (of the program's memory), or a size; half
    /// if the added node is half, else all
    #[arg(long, value_name = "SIZE", value_parser = target::parse_dram)]
    dram: Option<Dram>,
    /// Virtual time that the recording is looped for at least
    #[arg(long = "for", value_name = "TIME", default_value = "120s", value_parser = span("120s"))]
    span: Picos,
    /// The CPUs that the program may use, as for taskset: 0, 0-3,8; all unless given. The
    /// unmodified machine has all of them
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<Cpus>,
    #[arg(long = "set", value_name = "KNOB=VALUE", value_parser = knobs::parse, help = knobs::HELP)]
    set: Vec<Setting>,
    #[arg(
        long,
        alias = "modes",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "off,mode1,mode2,mode3,interleave",
        help = format!("{}. all-dram: off, with DRAM for all of the program's memory", contender::HELP)
    )]
    columns: Vec<String>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', help = figures::HELP)]
    figures: Vec<String>,
    /// How many of its misses are under way at once at most, which no recording shows: 1 (each
    /// waits for the one before, as along pointers) to 64, or measured (loads that don't wait for
    /// one another, as without this). Of several each has its table, and all of them one
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Mlp::parse)]
    mlp: Vec<Mlp>,
    /// Replay the recording although its times are known to come out wrong
    #[arg(long, alias = "threads-anyway")]
    force: bool,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Table, picture and what follows from them, without the caption, which says what they rest on
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn add_node(text: &str) -> Result<AddNode, String> {
    parse_add_node(text).map_err(|e| e.to_string())
}

/// The share of waiting, in percent, from which on a recorded order of locks is doubtful on
/// another number of CPUs.
const TURNS_PERCENT: f64 = 20.0;

#[derive(clap::Subcommand)]
enum What {
    Sched(sched::Args),
}

/// CPUs by number.
#[derive(Clone)]
pub(crate) struct Cpus(Vec<CpuId>);

pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let list = homenode_config::parse_list(text, MAX_CPUS - 1)?;
    Ok(Cpus(list.into_iter().map(CpuId).collect()))
}

/// Reads a span of time that is not 0.
///
/// * `example` – how one is written.
pub(crate) fn span(example: &'static str) -> impl Fn(&str) -> Result<Picos, String> + Clone {
    move |text| match homenode_config::parse_time(text)? {
        Picos(0) => Err(format!("0 is no span of time; write one such as {example}")),
        t => Ok(t),
    }
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    if let Some(What::Sched(args)) = &args.what {
        return sched::run(args, contenders);
    }
    let (Some(recording), Some(machine)) = (&args.recording, &args.machine) else {
        bail!("a recording, and its machine with --machine, are missing");
    };
    let setup = recorded::setup(&[]);
    knobs::check(&args.set, &[], setup.version)?;
    knobs::check_columns(&args.set, setup.version)?;
    let columns = columns(&args.columns, contenders)?;
    let choice = Choice::parse(&args.figures)?;
    // What a column can't be set to is told before minutes of replaying.
    columns.iter().try_for_each(|c| c.setup(&setup, &args.set).map(drop))?;
    once("--mlp", args.mlp.iter().map(ToString::to_string))?;
    let this = homenode_config::read_machine(machine)?;
    if let Some(mlp) = args.mlp.iter().find(|mlp| !mlp.is_known(&this)) {
        bail!(
            "--mlp {mlp}: the machine \"{}\" does not say how many instructions a core holds \
             (reorder_window); measure it anew",
            this.name
        );
    }
    load::check(recording, args.force)?;

    let progress = Progress::new(1000);
    progress.say("reading the recording");
    let loaded = load::load(recording, &mut |rows, all| {
        progress.at(rows * 30 / all.max(1));
    })?;
    let loaded = Arc::new(loaded);

    let mlps = if args.mlp.is_empty() { vec![Mlp::Measured] } else { args.mlp.clone() };
    let mut ends = Vec::new();
    for (i, &mlp) in mlps.iter().enumerate() {
        let part = 970 / mlps.len() as u64;
        let way = Way { from: 30 + i as u64 * part, part, progress: &progress };
        ends.push(replay(args, &this, Arc::clone(&loaded), &columns, mlp, &choice, &way)?);
    }
    drop(progress);
    output::print(&if args.json {
        match &ends[..] {
            [one] => one.json()?.to_string(),
            all => {
                let all = all.iter().map(End::json).collect::<Result<Vec<Value>>>()?;
                json!({"mlp": all}).to_string()
            }
        }
    } else {
        let (width, glyphs) = (output::width(), output::glyphs());
        let shown = |report: &Report| match args.brief {
            true => report.to_brief(width, glyphs),
            false => report.to_text(width, glyphs),
        };
        let mut text: Vec<String> = ends.iter().map(|e| shown(&e.report)).collect();
        if ends.len() > 1 {
            text.push(beside(&ends));
        }
        text.join("\n")
    })?;
    Ok(0)
}

/// The columns that were asked for; the one that fits is known here alone.
fn columns(names: &[String], contenders: &Contenders) -> Result<Vec<Contender>> {
    let mut out: Vec<Contender> = Vec::new();
    for name in names {
        let one = match name.as_str() {
            contender::ALL_DRAM => Contender::all_dram(),
            name => contenders.one(name).with_context(|| format!("--columns {name}"))?,
        };
        out.push(one);
    }
    once("--columns", out.iter().map(Contender::title))?;
    if out[0].fits {
        bail!("--columns {}: it is no baseline; name another column first", contender::ALL_DRAM);
    }
    Ok(out)
}

/// A part of all that is to be done, in thousandths.
struct Way<'a> {
    from: u64,
    part: u64,
    progress: &'a Progress,
}

impl Way<'_> {
    /// So many thousandths of it are done.
    fn at(&self, done: u64) {
        self.progress.at(self.from + done * self.part / 1000);
    }
}

/// A recording that was replayed in all columns with so many misses under way.
struct End {
    mlp: Mlp,
    recorded: Recorded,
    columns: Vec<Contender>,
    played: Vec<Played>,
    report: Report,
}

impl End {
    fn json(&self) -> Result<Value> {
        let Self { mlp, recorded, columns, played, report } = self;
        let intervals = Intervals::new(recorded, played);
        let mut all: Value = serde_json::from_str(&report.to_json())?;
        all["name"] = json!(recorded.loaded.header.command.first());
        all["mlp"] = json!(mlp.to_string());
        all["as_per_insn"] = json!(recorded.calibrated.rates.all);
        all["unmodified_round_s"] = json!(recorded.calibrated.round as f64 / 1e12);
        all["runs"] = columns
            .iter()
            .zip(played)
            .enumerate()
            .map(|(i, (c, p))| {
                let ends: Vec<f64> = p.rounds().iter().map(|&e| e as f64 / 1e12).collect();
                let own = intervals.as_ref().and_then(|all| all.columns.get(i));
                json!({
                    "column": c.title(),
                    "hash": format!("{:016x}", p.hash),
                    "round_ends_s": ends,
                    "interval_80": own.map(interval::Interval::json),
                })
            })
            .collect();
        Ok(all)
    }
}

/// What each column gains with so many misses under way, beside the others.
fn beside(ends: &[End]) -> String {
    let mut out = "misses under way".to_owned();
    for end in ends {
        let _ = write!(out, " {:>24}", end.mlp.to_string());
    }
    let columns = &ends[0].columns;
    for (i, column) in columns.iter().enumerate() {
        let _ = write!(out, "\n{:<16}", column.title());
        for end in ends {
            let (own, first) = (end.played[i].round(), end.played[0].round());
            let gain = if i == 0 {
                String::new()
            } else {
                format!(" ({:+.2}%)", (first / own.max(f64::MIN_POSITIVE) - 1.0) * 100.0)
            };
            let _ = write!(out, " {:>24}", format!("{own:.4}{gain}"));
        }
    }
    let _ = writeln!(
        out,
        "\ntime of a round in seconds, mean; in brackets the speed against {}",
        columns[0].title()
    );
    out
}

fn replay(
    args: &Args,
    this: &Hardware,
    loaded: Arc<Loaded>,
    columns: &[Contender],
    mlp: Mlp,
    choice: &Choice,
    way: &Way<'_>,
) -> Result<End> {
    let progress = way.progress;
    progress.say("one round on the unmodified machine");
    let mut recorded =
        Recorded::new(loaded, this, args.dram, args.add_node, &args.set, mlp, args.force)?;
    way.at(20);
    if let Some(Cpus(cpus)) = &args.cpus {
        recorded.restrict(cpus)?;
    }
    let columns = recorded.columns(columns.to_vec())?;

    let done = AtomicU64::new(0);
    let one = |column: &Contender, rounds: Rounds| -> Result<Played> {
        let own = AtomicU64::new(0);
        let told = |round: u64, now: u64| {
            let part = match rounds {
                Rounds::Count(n) => round * 1000 / n.max(1),
                Rounds::Until(t) => (u128::from(now) * 1000 / u128::from(t.max(1))) as u64,
            };
            let before = own.fetch_max(part.min(1000), Ordering::Relaxed);
            let more = part.min(1000).saturating_sub(before);
            let all = done.fetch_add(more, Ordering::Relaxed) + more;
            way.at(20 + all * 980 / (1000 * columns.len() as u64));
        };
        recorded.play(column, &args.set, rounds, &told)
    };
    progress.say(&format!("replaying: {}", columns[0].title()));
    let base = one(&columns[0], Rounds::Until(args.span.0))?;
    let rounds = base.rounds().len() as u64;
    let rest = &columns[1..];
    if !rest.is_empty() {
        let names: Vec<String> = rest.iter().map(Contender::title).collect();
        progress.say(&format!(
            "replaying {}: {}",
            count(rounds, "round", "rounds"),
            names.join(", ")
        ));
    }
    let others = parallel::map(parallel::jobs(args.jobs), rest, |c| one(c, Rounds::Count(rounds)));
    let mut played = vec![base];
    for run in others {
        played.push(run?);
    }
    let report = report(args, &recorded, &columns, &played, choice, mlp);
    Ok(End { mlp, recorded, columns, played, report })
}

fn report(
    args: &Args,
    recorded: &Recorded,
    columns: &[Contender],
    played: &[Played],
    choice: &Choice,
    mlp: Mlp,
) -> Report {
    let knobs: Vec<String> =
        columns.iter().map(|c| format!("{}: {}", c.title(), c.settings())).collect();
    let mut notes = recorded.target.notes.clone();
    notes.extend(recorded.calibrated.notes.iter().cloned());
    notes.push(format!(
        "the recording is looped to {} of virtual time at least with {}, and as often in the other columns; from the second round on the program has its memory already, as a server has",
        homenode_config::write_time(args.span), columns[0].title()
    ));
    notes.push(format!(
        "kernel default knobs except {}; demotion is on with tiering, since Linux leaves it off by default and nothing else makes room in DRAM",
        knobs.join("; ")
    ));
    let intervals = Intervals::new(recorded, played);
    if let Some(intervals) = &intervals {
        let names: Vec<String> = columns.iter().map(Contender::title).collect();
        notes.push(intervals.note(&names));
        notes.extend(intervals.told().map(str::to_owned));
    }
    notes.extend(mlp.note());
    if !recorded.cpus.is_empty() {
        let cpus: Vec<u32> = recorded.cpus.iter().map(|c| c.0).collect();
        let cpus = homenode_config::write_list(&cpus);
        notes.push(format!("the program may use CPUs {cpus} only, in all columns"));
    }
    notes.extend(columns.iter().flat_map(Contender::notes));
    if !args.set.is_empty() {
        let set: Vec<String> = args.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
        notes.push(format!("in all columns: {}", set.join(", ")));
    }
    let mut warnings = recorded.loaded.warnings();
    let all = recorded.target.machine.cpus.len();
    let other = !recorded.cpus.is_empty() && recorded.cpus.len() != all;
    let turns = played.iter().filter_map(Played::turns_percent).reduce(f64::max);
    if let Some(share) = turns.filter(|&share| other && share > TURNS_PERCENT) {
        warnings.push(format!(
            "{share:.0} % of the time that tasks wait for one another is for their turn, in the \
             order of a run on {}: on {} they may get it in another",
            count(all as u64, "CPU", "CPUs"),
            recorded.cpus.len()
        ));
    }
    let mut report = recorded.report(columns, played, choice, notes, warnings);
    if recorded.loaded.wrong().is_none() {
        report.conclusion = conclusion::conclusion(columns, played, intervals.as_ref());
    }
    report.picture = picture(&recorded.loaded, columns, played);
    report
}

/// The first and the last round of the baseline, and of homenode or else tiering where they ran,
/// else of the last column.
fn picture(loaded: &Loaded, columns: &[Contender], played: &[Played]) -> Vec<Snapshot> {
    let mut shown = vec![0];
    let of = |is: fn(&Contender) -> bool| columns.iter().position(is);
    let second = of(|c| c.drives.is_some()).or_else(|| of(|c| c.name == "mode-2"));
    let second = second.unwrap_or(columns.len() - 1);
    if second != 0 {
        shown.push(second);
    }
    let snapshot = |label: String, at: &[Stretch]| Snapshot {
        label,
        columns: at
            .iter()
            .zip(&loaded.heat)
            .map(|(s, &accesses)| homenode_report::Column {
                accesses,
                resident: s.resident,
                fast: s.fast,
            })
            .collect(),
    };
    shown
        .into_iter()
        .flat_map(|i| {
            let name = columns[i].title();
            [
                snapshot(format!("{name}, start"), &played[i].first),
                snapshot(format!("{name}, end"), &played[i].last),
            ]
        })
        .collect()
}
