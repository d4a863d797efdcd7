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
mod drawn;
mod kept;
mod sweep;
mod workloads;

use crate::contender::{self, Contender, Contenders, Knowledge, once};
use crate::figures;
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
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use sweep::{Sweep, Swept};
use workloads::{Recordings, Workload};

/// The contenders where nobody chose.
const COLUMNS: &[&str] = &[
    "off",
    "interleave",
    "mode2+lru_gen=n",
    "mode2",
    "tuned",
    "hindsight",
    "tpp",
    "alto",
    "hemem",
    "colloid",
    "arms",
    "memtis",
    "hybridtier",
    "damos",
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
/// against the first contender (in all and in the last quarter of the time), of several programs
/// the mean of what each of them gained, share of accesses in the fast tier, seconds until nine
/// tenths of the way to its share at the end were made, pages moved, share of moves that were in
/// vain (up, and down again before they paid), CPU time of the kernel and the policy beside the
/// programs (of one CPU), CPU time of an access all in, and the optimum's CPU time for an access
/// over it. A star says that the 95 % interval, paired by seed, leaves 1 out. At the end stands the
/// geometric mean over the workloads.
///
/// Two further columns are mode 2 with knobs that a sweep has found: tuned has the one setting that
/// is best over a training set, hindsight the best one of each workload.
///
/// Each finished run is kept in a file. The same command goes on where it was cut off; another
/// program, machine, scenario or setting is run anew.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode compare --quick
  homenode compare zipf scenarios/tiering-gauss.toml --columns off,mode2,homenode:pmu --seeds 5
  homenode compare drawn:some-text:1-20 --columns off,mode2,homenode:pmu --seeds 1 --lines
  homenode compare sort.parquet zipf --machine this.toml --columns off,mode2,homenode:pmu --seeds 3")]
pub(crate) struct Args {
    #[arg(value_name = "WORKLOAD", help = workloads::HELP)]
    workloads: Vec<String>,
    #[command(flatten)]
    recordings: Recordings,
    #[arg(long, value_name = "LIST", value_delimiter = ',', help = contender::HELP)]
    columns: Vec<String>,
    #[arg(long = "set", value_name = "KNOB=VALUE", value_parser = knobs::parse, help = knobs::HELP_SIM)]
    set: Vec<Setting>,
    /// Runs of each, with the seeds 1 and on [default: 10, with --quick 2]. A workload ends after
    /// two if each speed is known to a hundredth
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroUsize>,
    /// Virtual time after which a run ends, if its scenario does not end before; a recording ends
    /// with a round [default of recordings: 60s]
    #[arg(long, value_name = "TIME", value_parser = homenode_config::parse_time)]
    time: Option<Picos>,
    /// How right contenders are about the machine: exact, or by how much each figure that they are told
    /// may be off, by a factor of its own that follows from the seed
    #[arg(long, value_name = "exact|PERCENT", default_value = "30%", value_parser = Knowledge::parse)]
    knowledge: Knowledge,
    /// Four workloads, five contenders, two seeds, 10 s
    #[arg(long)]
    quick: bool,
    /// Try mode 2's knobs instead, one setting a column, and keep in this file what the columns tuned and hindsight
    /// follow from; one seed unless given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["columns", "quick"])]
    sweep: Option<PathBuf>,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// The file in which finished runs are kept [default: homenode/compare.jsonl in
    /// $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A line for each workload, with speeds alone
    #[arg(long, conflicts_with_all = ["json", "sweep"])]
    lines: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A column of the table.
struct Column {
    title: String,
    /// Where it follows from the sweep, mode 2, before it has a setting.
    contender: Contender,
    swept: Option<Swept>,
}

/// What all runs have in common.
struct Terms<'a> {
    set: &'a [Setting],
    time: Option<Picos>,
    knowledge: Knowledge,
    jobs: usize,
    /// Whether the optimum is looked for.
    looks: bool,
    /// How recorded programs are run.
    recordings: &'a Recordings,
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
    let all: Vec<&str> = workloads::names().collect();
    let mut names = Vec::new();
    for name in or(&args.workloads, QUICK_WORKLOADS, &all) {
        names.extend(drawn::expand(&name)?);
    }
    let has_recordings = names.iter().any(|name| workloads::is_recording(name));
    if args.recordings.is_said() && !has_recordings {
        bail!("--machine, --add-node, --dram and --force are for recordings, and none is named");
    }
    let usual = match (&args.sweep, args.quick) {
        (Some(_), _) => 1,
        (None, true) => QUICK_SEEDS,
        (None, false) => 10,
    };
    let seeds = args.seeds.map_or(usual, NonZeroUsize::get);
    let time = args.time.or(args.quick.then_some(QUICK_TIME));
    if time == Some(Picos::ZERO) {
        bail!("--time 0s: nothing would run");
    }
    let path = match &args.out {
        Some(path) => path.clone(),
        None => kept::default_path()?,
    };
    let terms = Terms {
        set: &args.set,
        time,
        knowledge: args.knowledge,
        jobs: parallel::jobs(args.jobs),
        looks: args.sweep.is_none(),
        recordings: &args.recordings,
    };
    if let Some(file) = &args.sweep {
        return run_sweep(args, &terms, (file, &path), &names, seeds, contenders);
    }
    let mut wanted = or(&args.columns, QUICK_COLUMNS, COLUMNS);
    // Nobody has swept workloads of one's own; only who asks for the column is told so.
    if args.columns.is_empty() && names.iter().any(|name| !all.contains(&name.as_str())) {
        wanted.retain(|column| column != "hindsight");
    }
    let columns = columns(&wanted, contenders)?;
    let sweep = match columns.iter().any(|c| c.swept.is_some()) {
        true => Some(Sweep::shipped()?),
        false => None,
    };
    let on = |workload: &Workload| -> Result<Vec<(String, Contender)>> {
        let (name, scale) = (&workload.name, workload.scale);
        let one = |c: &Column| match (c.swept, &sweep) {
            (Some(swept), Some(sweep)) => {
                Ok((c.title.clone(), sweep.contender(swept, name, scale, contenders)?))
            }
            _ => Ok((c.title.clone(), c.contender.clone())),
        };
        columns.iter().map(one).collect()
    };
    let (fields, reused) = measured(&terms, &path, &names, seeds, on)?;
    let mut notes = notes(&columns, &fields);
    let told: Vec<&str> = fields.iter().map(|f| f.told.name.as_str()).collect();
    if let Some(sweep) = &sweep {
        notes.extend(columns.iter().filter_map(|c| Some(sweep.note(c.swept?, &told))));
    }
    let knows = columns.iter().any(|c| c.contender.drives.is_some() || c.contender.interleaves);
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
    } else if args.lines {
        table.to_lines(output::glyphs())
    } else {
        table.to_text(output::width(), output::glyphs())
    })?;
    Ok(0)
}

/// The columns that were asked for; `tuned` and `hindsight` are known here alone, since they hang on
/// the workload.
fn columns(names: &[String], contenders: &Contenders) -> Result<Vec<Column>> {
    let mut out: Vec<Column> = Vec::new();
    for name in names {
        let column = match Swept::find(name) {
            Some(swept) => Column {
                title: swept.title().to_owned(),
                contender: contenders.one("mode2")?,
                swept: Some(swept),
            },
            None => {
                let contender =
                    contenders.one(name).with_context(|| format!("--columns {name}"))?;
                Column { title: contender.title(), contender, swept: None }
            }
        };
        out.push(column);
    }
    once("--columns", out.iter().map(|c| c.title.clone()))?;
    Ok(out)
}

/// `--sweep`: mode 2 under each setting.
fn run_sweep(
    args: &Args,
    terms: &Terms<'_>,
    (file, path): (&Path, &Path),
    names: &[String],
    seeds: usize,
    contenders: &Contenders,
) -> Result<u8> {
    let on = |workload: &Workload| -> Result<Vec<(String, Contender)>> {
        let one = |at| Ok((sweep::title(at), sweep::setting(at, workload.scale, contenders)?));
        (0..sweep::settings()).map(one).collect()
    };
    let (fields, _) = measured(terms, path, names, seeds, on)?;
    let workloads = fields.into_iter().map(|field| field.told).collect();
    let time = match terms.time {
        Some(time) => format!("at most {}", homenode_config::write_time(time)),
        None => "whole runs".to_owned(),
    };
    let told = format!("{time}, {}", count(seeds as u64, "seed", "seeds"));
    let sweep = Sweep::of(&CompareTable { workloads, notes: Vec::new() }, told);
    sweep.write(file)?;
    output::print(&if args.json { sweep.to_json() } else { sweep.to_text() })?;
    Ok(0)
}

/// Runs all cells that no file has; of how many it had them.
fn measured(
    terms: &Terms<'_>,
    path: &Path,
    names: &[String],
    seeds: usize,
    on: impl Fn(&Workload) -> Result<Vec<(String, Contender)>>,
) -> Result<(Vec<Field>, u64)> {
    let mut fields: Vec<Field> = Vec::new();
    for name in names {
        let workload = Workload::read(name, terms.recordings)?;
        if fields.iter().any(|f| f.workload.name == workload.name) {
            bail!("two workloads are called {}", workload.name);
        }
        let columns = on(&workload)?;
        fields.push(field(workload, columns, terms)?);
    }
    let columns = fields.first().map_or(0, |f| f.contenders.len());
    let kept = Kept::open(path)?;
    let progress = Progress::new((fields.len() * columns * seeds) as u64);
    let mut reused = 0;
    for seed in 1..=seeds as u64 {
        let open: Vec<usize> = (0..fields.len()).filter(|&f| !fields[f].is_sure()).collect();
        let jobs: Vec<Job<'_>> = open
            .iter()
            .flat_map(|&f| (0..columns).map(move |c| (f, c)))
            .map(|(f, c)| {
                let field = &fields[f];
                let (contender, setup) = &field.contenders[c];
                Job {
                    workload: &field.workload,
                    contender,
                    setup,
                    seed,
                    knowledge: terms.knowledge,
                    is_first: c == 0 && terms.looks,
                }
            })
            .collect();
        // Where a column has another one's setting, as tuned can have the defaults, one run is both.
        let keys: Vec<String> = jobs.iter().map(|job| job.key(kept.program())).collect();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut different: Vec<usize> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            places.entry(key).or_insert_with(|| {
                different.push(i);
                different.len() - 1
            });
        }
        let done = parallel::map(terms.jobs, &different, |&i| -> Result<(CompareCell, bool)> {
            let (job, key) = (&jobs[i], &keys[i]);
            let (name, title) = (&job.workload.name, job.contender.title());
            progress.murmur(&format!("{name}, {title}, seed {seed}"));
            let done = match kept.find(key) {
                Some(cell) => (cell, true),
                None => {
                    let cell = job.run().with_context(|| format!("{name} under {title}"))?;
                    (kept.put(key, (name, &title), &cell)?, false)
                }
            };
            progress.advance(1);
            Ok(done)
        });
        let done: Vec<(CompareCell, bool)> = done.into_iter().collect::<Result<_>>()?;
        progress.advance((jobs.len() - different.len()) as u64);
        reused += done.iter().filter(|(_, was_kept)| *was_kept).count() as u64;
        for (i, key) in keys.iter().enumerate() {
            let cell = done[places[key.as_str()]].0.clone();
            fields[open[i / columns]].told.rows[i % columns].cells.push(cell);
        }
    }
    drop(progress);
    Ok((fields, reused))
}

/// A workload with all contenders on it, each with its title.
fn field(
    workload: Workload,
    columns: Vec<(String, Contender)>,
    terms: &Terms<'_>,
) -> Result<Field> {
    let mut shared = workload.setup();
    if !workload.has_two_tiers(shared.version) {
        return Err(anyhow!(
            "workload {}: the machine \"{}\" has one tier, and there is nothing to compare; take one with a slow node, such as machines/middle-cxl.toml",
            workload.name,
            workload.machine.name
        ));
    }
    if let Some(time) = terms.time {
        shared.duration = Some(shared.duration.map_or(time.0, |d| d.min(time.0)));
    }
    let one = |contender: Contender| -> Result<(Contender, Setup)> {
        let contender = contender.on(&workload.machine)?;
        let setup = contender.setup(&shared, terms.set)?;
        Ok((contender, setup))
    };
    let (titles, contenders): (Vec<String>, Vec<Contender>) = columns.into_iter().unzip();
    let contenders: Vec<_> = contenders
        .into_iter()
        .map(one)
        .collect::<Result<_>>()
        .with_context(|| format!("workload {}", workload.name))?;
    let row = |column: String| CompareRow { column, cells: Vec::new() };
    let told = CompareWorkload {
        name: workload.name.clone(),
        about: workload.about.clone(),
        machine: workload.machine.name.clone(),
        rows: titles.into_iter().map(row).collect(),
    };
    Ok(Field { workload, contenders, told })
}

/// Sentences below the table.
fn notes(columns: &[Column], fields: &[Field]) -> Vec<String> {
    let columns: Vec<&Contender> = columns.iter().map(|c| &c.contender).collect();
    let mut out = vec![
        "speed and at end: accesses a second against the first contender, in all and in the last \
         quarter of the time; * where the 95 % interval, paired by seed, leaves 1 out\n\
         each: of several programs, the geometric mean of what each has accessed against the first contender\n\
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
            let Workload { machine, scale, .. } = &f.workload;
            let told = match small::stands_for(machine, *scale) {
                Some(told) => format!("; 1:{}, {told}", scale.factor()),
                None => String::new(),
            };
            let left_out = figures::defaults(machine).map(|d| format!("; {d}")).unwrap_or_default();
            format!("machine {}: {}{told}{left_out}", machine.name, machine.about)
        })
        .collect();
    machines.sort();
    machines.dedup();
    out.extend(machines);
    out.extend(fields.iter().filter_map(|f| f.workload.note()));
    // What many see is told once.
    for (i, c) in columns.iter().enumerate() {
        let source = |c: &Contender| c.drives.map(|d| d.source);
        let mut told = c.notes();
        if source(c).is_some() {
            let alike = |c: &&&Contender| source(c) == source(columns[i]);
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
