//! `homenode compare`: contenders over workloads, what each gains and what it costs.
//!
//! ```text
//! workloads × contenders × seeds ──▶ cells ──▶ runs, two at a time ──▶ a line each in a file
//!                                      ▲ those that the file has           │
//!                                      └───────────────────────────────────┤
//!                                                    table, bars, JSON ◀───┘
//! ```
//!
//! Source: docs/decisions/0024-compare.md.

mod cell;
mod kept;
mod workloads;

use crate::contender::{self, Contender, Contenders, Knowledge};
use crate::knobs::{self, Setting};
use crate::output;
use crate::parallel;
use crate::progress::Progress;
use crate::small;
use anyhow::{Context, Result, anyhow, bail};
use cell::Job;
use homenode_core::units::{Picos, count};
use homenode_report::{CompareCell, CompareRow, CompareTable, CompareWorkload};
use homenode_sim::Setup;
use kept::Kept;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use workloads::Workload;

/// The contenders where nobody chose.
const COLUMNS: &[&str] = &[
    "off",
    "interleave",
    "mode2+lru_gen=n",
    "mode2",
    "tpp",
    "hemem",
    "colloid",
    "arms",
    "memtis",
    "hybridtier",
    "homenode:damon",
    "homenode:pmu",
];
/// Those of the quick slice, its workloads, seeds and time.
const QUICK_COLUMNS: &[&str] = &["off", "mode2", "colloid", "arms", "homenode:pmu"];
const QUICK_WORKLOADS: &[&str] = &["gauss", "zipf", "hot-spot", "uniform"];
const QUICK_SEEDS: usize = 2;
const QUICK_TIME: Picos = Picos::from_secs(10);
/// Seeds after which a workload may end, where its intervals are narrow.
const LEAST_SEEDS: usize = 2;

/// Compare placement policies over workloads, and with the best that could be done.
///
/// Runs each workload under each contender with several seeds, and prints per workload: speed
/// against the first contender (in all and in the last quarter of the time), share of accesses in
/// the fast tier, seconds until nine tenths of the way to its share at the end were made, pages
/// moved, share of moves that were in vain (up, and down again before they paid), CPU time of the
/// kernel and the policy beside the programs (of one CPU), CPU time of an access all in, and the
/// optimum's CPU time for an access over it. A star says that the 95 % interval, paired by seed,
/// leaves 1 out. At the end stands the geometric mean over the workloads.
///
/// Each finished run is kept in a file. The same command goes on where it was cut off; another
/// program, machine, scenario or setting is run anew.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode compare --quick
  homenode compare zipf scenarios/tiering-gauss.toml --columns off,mode2,homenode:pmu --seeds 5")]
pub(crate) struct Args {
    #[arg(value_name = "SCENARIO", help = workloads::HELP)]
    scenarios: Vec<String>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', help = contender::HELP)]
    columns: Vec<String>,
    #[arg(long = "set", value_name = "KNOB=VALUE", value_parser = knobs::parse, help = knobs::HELP_SIM)]
    set: Vec<Setting>,
    /// Runs of each, with the seeds 1 and on [default: 10, with --quick 2]. A workload ends after
    /// two if each speed is known to a hundredth
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroUsize>,
    /// Virtual time after which a run ends, if its scenario does not end before
    #[arg(long, value_name = "TIME", value_parser = homenode_config::parse_time)]
    time: Option<Picos>,
    /// How right contenders are about the machine: exact, or by how much each figure that they are told
    /// may be off, by a factor of its own that follows from the seed
    #[arg(long, value_name = "exact|PERCENT", default_value = "30%", value_parser = Knowledge::parse)]
    knowledge: Knowledge,
    /// Four workloads, five contenders, two seeds, 10 s
    #[arg(long)]
    quick: bool,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The file in which finished runs are kept [default: homenode/compare.jsonl in
    /// $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A workload with its contenders ready to run, and what is told of it so far.
struct Field {
    workload: Workload,
    contenders: Vec<(Contender, Setup)>,
    told: CompareWorkload,
}

impl Field {
    /// Whether further seeds would change little.
    fn is_sure(&self) -> bool {
        let rows = &self.told.rows;
        rows[0].cells.len() >= LEAST_SEEDS
            && (1..rows.len()).all(|row| self.told.ratio(row).is_sure())
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    let or = |given: &[String], quick: &[&str], full: &[&str]| match given {
        [] => texts(if args.quick { quick } else { full }),
        given => given.to_vec(),
    };
    let columns = contenders.parse(&or(&args.columns, QUICK_COLUMNS, COLUMNS))?;
    let all: Vec<&str> = workloads::names().collect();
    let names = or(&args.scenarios, QUICK_WORKLOADS, &all);
    let seeds = args.seeds.map_or(if args.quick { QUICK_SEEDS } else { 10 }, NonZeroUsize::get);
    let time = args.time.or(args.quick.then_some(QUICK_TIME));
    if time == Some(Picos::ZERO) {
        bail!("--time 0s: nothing would run");
    }
    let mut fields: Vec<Field> = Vec::new();
    for name in &names {
        let workload = Workload::read(name)?;
        if fields.iter().any(|f| f.workload.scenario.name == workload.scenario.name) {
            bail!("two workloads are called {}", workload.scenario.name);
        }
        fields.push(field(workload, &columns, &args.set, time)?);
    }
    let path = match &args.out {
        Some(path) => path.clone(),
        None => kept::default_path()?,
    };
    let kept = Kept::open(&path)?;
    let progress = Progress::new((fields.len() * columns.len() * seeds) as u64);
    let mut reused = 0;
    for seed in 1..=seeds as u64 {
        let open: Vec<usize> = (0..fields.len()).filter(|&f| !fields[f].is_sure()).collect();
        let jobs: Vec<Job<'_>> = open
            .iter()
            .flat_map(|&f| (0..columns.len()).map(move |c| (f, c)))
            .map(|(f, c)| {
                let field = &fields[f];
                let (contender, setup) = &field.contenders[c];
                Job {
                    workload: &field.workload,
                    contender,
                    setup,
                    seed,
                    knowledge: args.knowledge,
                    is_first: c == 0,
                }
            })
            .collect();
        let done =
            parallel::map(parallel::jobs(args.jobs), &jobs, |job| -> Result<(CompareCell, bool)> {
                let (name, title) = (&job.workload.scenario.name, job.contender.title());
                progress.murmur(&format!("{name}, {title}, seed {seed}"));
                let key = job.key(kept.program());
                let done = match kept.find(&key) {
                    Some(cell) => (cell, true),
                    None => {
                        let cell = job.run().with_context(|| format!("{name} under {title}"))?;
                        (kept.put(&key, (name, &title), &cell)?, false)
                    }
                };
                progress.advance(1);
                Ok(done)
            });
        let done: Vec<(CompareCell, bool)> = done.into_iter().collect::<Result<_>>()?;
        for (i, (cell, was_kept)) in done.into_iter().enumerate() {
            fields[open[i / columns.len()]].told.rows[i % columns.len()].cells.push(cell);
            reused += u64::from(was_kept);
        }
    }
    drop(progress);
    let mut notes = notes(&columns, &fields);
    let knows = columns.iter().any(|c| c.drives.is_some() || c.interleaves);
    notes.extend(args.knowledge.note().filter(|_| knows));
    let workloads = fields.into_iter().map(|field| field.told).collect();
    let mut table = CompareTable { workloads, notes };
    if reused > 0 {
        table.notes.push(format!(
            "{} from {}",
            count(reused, "run was", "runs were"),
            path.display()
        ));
    }
    output::print(&if args.json {
        table.to_json()
    } else {
        table.to_text(output::width(), output::glyphs())
    })?;
    Ok(0)
}

/// A workload with all contenders on it.
fn field(
    workload: Workload,
    columns: &[Contender],
    set: &[Setting],
    time: Option<Picos>,
) -> Result<Field> {
    let mut shared = Setup::of(&workload.scenario);
    if !workload.has_two_tiers(shared.version) {
        return Err(anyhow!(
            "workload {}: the machine \"{}\" has one tier, and there is nothing to compare; take one with a slow node, such as machines/middle-cxl.toml",
            workload.scenario.name,
            workload.machine.name
        ));
    }
    if let Some(time) = time {
        shared.duration = Some(shared.duration.map_or(time.0, |d| d.min(time.0)));
    }
    let one = |contender: &Contender| -> Result<(Contender, Setup)> {
        let contender = contender.clone().on(&workload.machine)?;
        let setup = contender.setup(&shared, set)?;
        Ok((contender, setup))
    };
    let contenders: Vec<_> = columns
        .iter()
        .map(one)
        .collect::<Result<_>>()
        .with_context(|| format!("workload {}", workload.scenario.name))?;
    let row = |c: &Contender| CompareRow { column: c.title(), cells: Vec::new() };
    let told = CompareWorkload {
        name: workload.scenario.name.clone(),
        about: workload.scenario.about.clone(),
        machine: workload.machine.name.clone(),
        rows: columns.iter().map(row).collect(),
    };
    Ok(Field { workload, contenders, told })
}

/// Sentences below the table.
fn notes(columns: &[Contender], fields: &[Field]) -> Vec<String> {
    let mut out = vec![
        "speed and at end: accesses a second against the first contender, in all and in the last \
         quarter of the time; * where the 95 % interval, paired by seed, leaves 1 out\n\
         there s: seconds until nine tenths of the way from the first contender's share in the fast \
         tier to its own at the end\n\
         vain %: moves up and down again before the page had gained what both moves cost\n\
         beside %: CPU time of kernel and policy, of one CPU; ns each: all CPU time for an access\n\
         of opt %: the optimum's CPU time for an access over this one's"
            .to_owned(),
    ];
    let mut machines: Vec<String> = fields
        .iter()
        .map(|f| {
            let Workload { scenario, machine } = &f.workload;
            let told = match small::stands_for(machine, scenario.scale) {
                Some(told) => format!("; 1:{}, {told}", scenario.scale.factor()),
                None => String::new(),
            };
            format!("machine {}: {}{told}", machine.name, machine.about)
        })
        .collect();
    machines.sort();
    machines.dedup();
    out.extend(machines);
    // What many see is told once.
    for (i, c) in columns.iter().enumerate() {
        let source = |c: &Contender| c.drives.map(|d| d.source);
        let mut told = c.notes();
        if source(c).is_some() {
            let alike = |c: &&Contender| source(c) == source(&columns[i]);
            if columns[..i].iter().any(|c| alike(&c)) {
                told.remove(0);
            } else {
                let so = columns[i + 1..].iter().filter(alike).filter_map(|c| Some(c.drives?.name));
                let so: Vec<&str> = so.collect();
                if !so.is_empty() {
                    told[0] += &format!("; so do {}", so.join(", "));
                }
            }
        }
        out.extend(told);
    }
    out
}
