//! `homenode observe`: where memory is, how hot it is, and how near; process by process.
//!
//! ```text
//! live::open ─▶ Machine ─▶ course: looks, periods ─▶ core::view rows ─▶ show
//! ```
//!
//! Source: specs/observe.md#observe.

mod course;
mod sampled;
mod show;

use crate::advise::facts;
use crate::here::{link, one_node, own_time, priced};
use crate::live::{self, Ask, Found, Opened};
use crate::output;
use crate::program::Stop;
use crate::seen::{self, Above, BY_OBSERVE, Recording};
use crate::whom::{Means, Whom};
use anyhow::{Result, bail};
use course::{Course, Turn};
use homenode_core::engine::Settings as EngineSettings;
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::units::{NodeId, Picos, count};
use homenode_core::view::{Settings, View};
use homenode_live::machine::{LiveMachine, Pace};
use homenode_live::people::PeopleError;
use homenode_machine::{Machine as _, Recorded};
use homenode_report::{ObserveOrder, ObserveTable};
use homenode_trace::observation::{self, Writer};
use homenode_trace::seen::About;
use show::{About as Shown, Shower};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Processes that DAMON watches where everybody was asked for: it has 1000 regions in all,
/// and ten for a process tell something.
const MOST_DAMON: usize = 100;
/// Time between two looks where a source tells something, or where programs come and go.
const STEP: Picos = Picos::from_secs(1);
/// How often signals and the program's end are looked for.
const SLICE: Duration = Duration::from_millis(50);
/// Most of one CPU's time for looking at processes, in thousandths, where looks come more
/// often than periods.
///
/// Source: specs/observe.md#cost.
const PERMILLE: u32 = 5;

/// Show where processes' memory is and how hot it is, over time.
///
/// A row per process and period: share of a CPU, resident memory by tier and node, the share
/// of it on the node where the process runs; and with a source of heat, accesses a second,
/// memory touched and hot, and the share of local accesses. Libvirt guests go by their
/// domain's name. On a terminal the table is redrawn in place. Beside CMD, which is observed
/// with all that it starts until it ends, everything goes to standard error.
///
/// The source is the one that `homenode doctor` would use; where there is none, it is
/// 'residency only'. Observing changes nothing but what the source disturbs, which is
/// printed; what a source sets up is taken down at the end, also after a signal.
///
/// Exit codes: 0 done; 2 bad usage, or processes that are not there; 3 the system lacks
/// something; with CMD its own, or 128 and the signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode observe --pid 4711
  homenode observe --cgroup system.slice/db.service --period 1s --for 60s --json
  homenode observe --all -o today.parquet
  homenode observe --pid 4711 --for 60s --record db.seen
  homenode observe -- make -j8")]
#[command(mut_group("who", |who| who.required(true)))]
#[command(mut_arg("command", |c| c.help("The program to be observed, with its arguments")))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Time between rows
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = period)]
    period: Picos,
    /// How long; without it until Ctrl-C, or until nobody is left
    #[arg(long = "for", value_name = "TIME", value_parser = homenode_config::parse_time, conflicts_with = "command")]
    length: Option<Picos>,
    #[command(flatten)]
    means: Means,
    /// A machine's file, whose latencies make tiers where the kernel shows none
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Processes in a table; else as many as fit, or 20
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    top: Option<u32>,
    /// Which come first; else the hottest, or without heat the largest
    #[arg(long, value_name = "ORDER")]
    sort: Option<SortArg>,
    /// All rows go to this file too, as Parquet; at any time it is whole up to some rows
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What a policy would be told goes to this file, for `homenode advise --seen`; names of
    /// processes are in it, contents of memory are not
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print a JSON object a row, and all else to standard error
    #[arg(long)]
    json: bool,
}

/// Which processes come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SortArg {
    /// Most memory
    Resident,
    /// Most accesses a second
    Heat,
    /// Most processor time
    Cpu,
}

fn period(text: &str) -> Result<Picos, String> {
    let period = homenode_config::parse_time(text)?;
    if period < Picos::from_ms(100) {
        return Err("a period is 100ms at least: looking takes time too".to_owned());
    }
    if period > Picos::from_secs(24 * 3600) {
        return Err("a period is a day at most (86400s)".to_owned());
    }
    Ok(period)
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    if let Some(path) = &args.output {
        output::check_output(path)?;
    }
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    let mut found = args.means.look(args.machine.as_deref())?;
    if recording.is_some() {
        link(&mut found);
    }
    let named = args.means.named();
    let chosen = live::choose(&found, named)?;
    let tiers = tiers(&found);
    // Caught before anything is set up: from here on there is something to take down.
    let mut stop = Stop::new();
    let ready = live::set_up(&found, chosen, named.is_some())?;
    let file = match &args.output {
        Some(path) => Some(Writer::create(path, &about(args, &ready, &tiers))?),
        None => None,
    };
    let targets = args.whom.targets(&mut stop, None)?;
    let pace = match ready.source.shows() {
        Shows::Nothing => Pace::UNBOUND,
        // At the end of each period processes are looked at in any case: a little less, since
        // a look is a little late.
        Shows::Regions | Shows::Faults | Shows::Samples => {
            Pace { permille: PERMILLE, longest: Picos(args.period.0 / 10 * 9) }
        }
    };
    let opened = match ready
        .open(&found, Ask { targets, census: true, pace, moves: None, closely: false })
    {
        Ok(opened) => opened,
        Err(e) => return not_opened(e, &mut stop),
    };
    observe(args, &found, opened, tiers, &mut stop, Outputs { file, recording })
}

/// Files that all goes to.
struct Outputs {
    file: Option<Writer>,
    recording: Option<Recording>,
}

/// A program may be over before anybody could look.
fn not_opened(error: anyhow::Error, stop: &mut Stop) -> Result<u8> {
    let Some(program) = &mut stop.program else { return Err(error) };
    let gone =
        |e: &PeopleError| matches!(e, PeopleError::NoProcess { .. } | PeopleError::NoMemory { .. });
    if !error.downcast_ref::<PeopleError>().is_some_and(gone) {
        eprintln!("homenode: the program goes on, not observed");
        return Err(error);
    }
    eprintln!("homenode: the program ended before it could be looked at");
    program.wait();
    Ok(program.code().unwrap_or(0))
}

fn observe(
    args: &Args,
    found: &Found,
    opened: Opened,
    tiers: BTreeMap<NodeId, u64>,
    stop: &mut Stop,
    outputs: Outputs,
) -> Result<u8> {
    let Opened { machine, source, why, refused } = opened;
    let Outputs { file, recording } = outputs;
    let heat = source.shows() != Shows::Nothing;
    let cpu_nodes = found.machine.cpus.iter().map(|c| c.node).collect::<BTreeSet<_>>().len();
    let order = match args.sort {
        Some(SortArg::Heat) => ObserveOrder::Heat,
        None if heat => ObserveOrder::Heat,
        Some(SortArg::Cpu) => ObserveOrder::Cpu,
        Some(SortArg::Resident) | None => ObserveOrder::Resident,
    };
    let (form, term) = show::form(args.json, stop.program.is_some());
    let most = args.top.map(|n| n as usize);
    let table = ObserveTable { tiers, cpu_nodes, heat, order };
    let mut shower = Shower::new(form, term, table, source.name(), most, file);
    for line in heading(args, found, source, &why) {
        shower.say(&line)?;
    }
    let began = match &recording {
        Some(recording) => Some(recording.begin(&above(found, &machine, source, &why)?)),
        None => None,
    };
    let machine = Recorded::new(machine, began);
    let notes = machine.notes().cloned();
    let view = View::new(Settings::default(), source, &found.machine, &found.tiers);
    let sampled = match (source.shows(), args.whom.all) {
        (Shows::Nothing, _) => 0,
        (Shows::Regions, true) => MOST_DAMON,
        (Shows::Regions | Shows::Faults | Shows::Samples, _) => usize::MAX,
    };
    let ends = args.whom.ends();
    // What a program starts may be over soon.
    let often = heat || stop.program.is_some();
    let step = if often { STEP.min(args.period) } else { args.period };
    let own = own_time(&args.means.root);
    let began = machine.now();
    let mut course = Course::new(machine, view, args.period, step, sampled, ends);
    if recording.is_some() {
        course.take_census();
    }
    let until = args.length.map(|length| Picos(began.0.saturating_add(length.0)));
    let wakes = heat;
    let turn = loop {
        let turn = {
            let mut pause =
                |m: &Recorded<LiveMachine>, at: Picos| wait(m.inside(), at, until, wakes, stop);
            course.period(&mut pause, &|m, tell| {
                m.inside().people().for_each(|p| tell(p.who, &p.name));
            })
        };
        if let (Some(notes), Some(recording)) = (&notes, &recording) {
            course.machine.inside().people().for_each(|p| notes.name(p.who, &p.name));
            recording.keep();
        }
        let rows = course.rows();
        let now = course.machine.now();
        let silent = course.silent().map(|since| now.saturating_sub(since));
        let (since, totals, len) = (now.saturating_sub(began), course.totals(), course.len());
        let last = turn != Turn::Over;
        shower.rows(&rows, &Shown { since, totals, len, silent, last })?;
        if turn != Turn::Over || !shower.is_read() {
            break turn;
        }
    };
    let machine = course.machine.inside();
    let time = machine.now().saturating_sub(began);
    if let Some(line) = show::ending(&turn) {
        shower.say(line)?;
    }
    let kernel = machine.source_spent();
    let own = own_time(&args.means.root).saturating_sub(own);
    let (totals, periods) = (course.totals(), shower.periods());
    shower.say(&summary(&totals, periods, refused(), time, own, kernel, source))?;
    if let (Some((bytes, rows)), Some(path)) = (shower.finish()?, &args.output) {
        shower.say(&format!(
            "{}: {}, {bytes} bytes",
            path.display(),
            count(rows, "row", "rows")
        ))?;
    }
    if let Some(recording) = &recording {
        shower.say(&recording.finish(&[])?)?;
    }
    let closed = course.machine.into_inner().close();
    if let Turn::Broken(Some(why)) = turn {
        bail!(crate::failure::Lacks(format!("{} broke: {why}", source.name())));
    }
    if let Err(why) = closed {
        bail!(crate::failure::Lacks(why));
    }
    let code = stop.program.as_mut().map(|p| if p.is_over() { p.code() } else { None });
    if code == Some(None) {
        eprintln!("homenode: the program goes on, not observed any more");
    }
    Ok(code.flatten().unwrap_or(0))
}

/// Waits until that time, or leaves it to the machine where its source wakes it; `None` if
/// it is to stop.
fn wait(
    machine: &LiveMachine,
    at: Picos,
    until: Option<Picos>,
    wakes: bool,
    stop: &mut Stop,
) -> Option<()> {
    loop {
        let now = machine.now();
        if stop.wanted() || until.is_some_and(|until| now >= until) {
            return None;
        }
        // A source that wakes is asked now, and the machine sleeps in its stead.
        if now >= at || wakes && until.is_none_or(|until| until >= at) {
            return Some(());
        }
        let at = until.map_or(at, |until| until.min(at));
        let left = Duration::from_nanos(at.saturating_sub(now).as_ns());
        std::thread::sleep(left.min(SLICE));
    }
}

/// Nodes with memory, with their tiers; one that has none counts to the fastest.
fn tiers(found: &Found) -> BTreeMap<NodeId, u64> {
    let first = found.tiers.iter().next().map_or(0, |(tier, _)| tier);
    let nodes = found.machine.nodes.iter().filter(|n| n.managed().0 > 0);
    nodes.map(|n| (n.id, found.tiers.tier(n.id).unwrap_or(first))).collect()
}

fn about(args: &Args, ready: &live::Ready, tiers: &BTreeMap<NodeId, u64>) -> observation::About {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    observation::About {
        source: ready.source,
        why: ready.why.clone(),
        period: args.period,
        tiers: tiers.clone(),
        began_unix_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
    }
}

/// What stands above a recording: what `advise` would have known here.
fn above(found: &Found, machine: &LiveMachine, source: Source, why: &str) -> Result<About> {
    let source_notes = [why.to_owned(), format!("disturbs: {}", source.sheet().disturbs)];
    let facts = facts::live(&found.root, &found.probe, &found.machine, &found.tiers);
    let nothing = one_node(&found.machine);
    let above = Above {
        by: BY_OBSERVE,
        kernel: found.probe.kernel.as_deref(),
        version: found.version,
        source,
        source_notes: &source_notes,
        nothing: nothing.as_deref(),
        length: None,
        config: None,
        users: BTreeMap::new(),
        settings: priced(EngineSettings::default(), found),
        facts: &facts,
    };
    seen::about(above, machine)
}

/// What stands above everything: the source, why, what it disturbs; where there is none, how
/// to get one.
fn heading(args: &Args, found: &Found, source: Source, why: &str) -> Vec<String> {
    let mut out = vec![format!("source   {why}"), format!("disturbs {}", source.sheet().disturbs)];
    out.extend(args.means.how_to_get(found, source));
    if source.shows() == Shows::Regions && args.whom.all {
        out.push(format!(
            "sampled  the {MOST_DAMON} processes with most CPU time: DAMON has 1000 regions for \
             all of them"
        ));
    }
    out
}

/// What it was, in a few lines.
fn summary(
    totals: &homenode_core::view::Totals,
    periods: u64,
    refused: u64,
    time: Picos,
    own: Picos,
    kernel: Option<Picos>,
    source: Source,
) -> String {
    let share = |part: Picos| part.0 as f64 * 100.0 / time.0.max(1) as f64;
    let mut out = format!(
        "observed {:.1} s in {}: {}, {} ended",
        time.as_secs_f64(),
        count(periods, "period", "periods"),
        count(totals.processes, "process", "processes"),
        totals.ended
    );
    if source.shows() != Shows::Nothing {
        out += &format!(
            "; {} lost, {} silent {}",
            count(totals.lost, "event", "events"),
            source.name(),
            count(totals.stale, "time", "times")
        );
    }
    out += &format!("; it cost {:.2} % of one CPU ({:.3} s)", share(own), own.as_secs_f64());
    if let Some(kernel) = kernel {
        out += &format!(", and in the kernel {:.2} % for {}", share(kernel), source.name());
    }
    if refused > 0 {
        out += &format!(
            ". Where pages are could not be asked {}, of other users' processes: run it as root \
             or with CAP_SYS_PTRACE",
            count(refused, "time", "times")
        );
    }
    out
}
