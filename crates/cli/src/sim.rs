//! `homenode sim`: a scenario under the simulated kernel.

use crate::homenode::{self, Own, Runner, Source};
use crate::knobs::{self, Setting};
use crate::nodes::{self, Shelf};
use crate::progress::Progress;
use crate::{output, parallel};
use anyhow::{Context, Result, anyhow, bail};
use homenode_core::scenario::Scenario;
use homenode_core::topology::Machine;
use homenode_report::{Better, Caption, ComparisonTable, Figure, Group, ReplayRun, Report};
use homenode_sim::vmstat::Item;
use homenode_sim::{ProcessFigures, Setup, Simulation};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Whose reclaim is simulated, for captions.
pub(crate) const KERNEL: &str = "active and inactive lists, not MGLRU";

/// Run a scenario and print what the kernel did to it.
///
/// Simulates the programs of a scenario on its machine (or another) in exact virtual
/// time. Prints time, share of accesses by tier, pages moved and the kernel's counters:
/// mean and spread where there are several seeds, and a hash of each run, which is the
/// same on every machine.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode sim scenarios/tiering-gauss.toml --set numa_balancing=0 --seeds 5
  homenode sim scenarios/tiering-gauss.toml --engine --source damon")]
pub(crate) struct Args {
    /// The scenario's TOML
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    #[arg(long = "set", value_name = "KNOB=VALUE", value_parser = knobs::parse, help = knobs::HELP)]
    set: Vec<Setting>,
    /// Runs, each with its own seed: the scenario's and those after it
    #[arg(long, value_name = "N", default_value = "1")]
    seeds: NonZeroUsize,
    /// Runs at once; the CPUs' number unless given. The results don't depend on it
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Another machine than the scenario's
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// A second column: the same programs with homenode's engine in place of the kernel's
    /// balancing, paying for itself
    #[arg(long)]
    engine: bool,
    /// What homenode sees of memory accesses
    #[arg(long, value_enum, value_name = "SOURCE", default_value = "damon", requires = "engine")]
    source: Source,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What one run left.
struct Run {
    seed: u64,
    hash: u64,
    run: ReplayRun,
    processes: Vec<ProcessFigures>,
    own: Option<Own>,
}

/// A column: its name, who moves pages there, and its runs, one for each seed.
struct Column {
    name: String,
    source: Option<Source>,
    setup: Setup,
    runs: Vec<Run>,
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    let (scenario, machine) = match &args.machine {
        None => homenode_config::read_scenario_and_machine(&args.scenario)?,
        Some(path) => {
            let file = homenode_config::read_scenario(&args.scenario)?;
            let machine = homenode_config::read_machine(path)?;
            file.check(&machine)?;
            (file.scenario, machine)
        }
    };
    let mut setup = Setup::of(&scenario);
    // The scenario's own first, so that an error names the right source.
    knobs::check_file(&args.scenario, &setup.knobs, setup.version)?;
    knobs::check(&args.set, setup.version)?;
    setup.knobs.extend(args.set.iter().cloned());

    let shelves = nodes::shelves(&machine, setup.version);
    let last = scenario.seed.checked_add(args.seeds.get() as u64 - 1);
    let last = last.ok_or_else(|| anyhow!("--seeds {}: seeds end at 2^64 - 1", args.seeds))?;
    let seeds: Vec<u64> = (scenario.seed..=last).collect();
    let mut columns =
        vec![Column { name: scenario.name.clone(), source: None, setup, runs: Vec::new() }];
    if args.engine {
        let mut setup = columns[0].setup.clone();
        // Last, so that homenode and the kernel don't both move pages.
        setup.knobs.extend(homenode_sim::machine::knobs_for(args.source.of_core()));
        let (name, source) = (args.source.column(), Some(args.source));
        columns.push(Column { name, source, setup, runs: Vec::new() });
    }
    let jobs: Vec<(usize, u64)> =
        (0..columns.len()).flat_map(|c| seeds.iter().map(move |&s| (c, s))).collect();
    let mut runs: Vec<Run> = {
        let progress = Progress::new(jobs.len() as u64);
        progress.murmur(&format!("{}: {} runs", scenario.name, jobs.len()));
        let all = parallel::map(parallel::jobs(args.jobs), &jobs, |&(c, seed)| {
            let setup = Setup { seed, ..columns[c].setup.clone() };
            let done = one(&machine, &scenario, &setup, columns[c].source, &shelves);
            progress.advance(1);
            done
        });
        all.into_iter()
            .collect::<Result<_>>()
            .with_context(|| format!("{}", args.scenario.display()))?
    };
    for column in columns.iter_mut().rev() {
        column.runs = runs.split_off(runs.len() - seeds.len());
    }
    let report = report(&machine, &scenario, &shelves, &columns);
    let hashes = columns.iter().enumerate().flat_map(|(i, c)| {
        c.runs.iter().map(move |r| (i, c.name.as_str(), r.seed, format!("{:016x}", r.hash)))
    });
    output::print(&if args.json {
        let mut all: Value = serde_json::from_str(&report.to_json())?;
        all["name"] = json!(scenario.name);
        all["runs"] = hashes
            .map(|(_, column, seed, hash)| json!({"column": column, "seed": seed, "hash": hash}))
            .collect();
        all.to_string()
    } else {
        let mut text = report.to_text(output::width(), output::glyphs());
        for (i, column, seed, hash) in hashes {
            let whose = if i == 0 { String::new() } else { format!(", {column}") };
            text.push_str(&format!("hash of seed {seed}{whose}: {hash}\n"));
        }
        text
    })?;
    Ok(0)
}

fn one(
    machine: &Machine,
    scenario: &Scenario,
    setup: &Setup,
    source: Option<Source>,
    shelves: &[Shelf],
) -> Result<Run> {
    let sim = Simulation::new(machine, scenario, setup)?;
    let mut runner = Runner::new(sim, source, setup.version)?;
    runner.run()?;
    let sim = runner.sim();
    if let Some(e) = sim.error() {
        bail!("{e}");
    }
    let processes = sim.processes();
    let own = runner.own();
    let mut run = figures(sim, sim.now(), shelves);
    homenode::add_moves(&mut run, own.as_ref());
    Ok(Run { seed: setup.seed, hash: runner.hash(), run, processes, own })
}

/// What a table shows of a run that took `time_ps`.
pub(crate) fn figures(sim: &Simulation, time_ps: u64, shelves: &[Shelf]) -> ReplayRun {
    let stat = sim.vmstat();
    let processes = sim.processes();
    let accesses_of = |place: usize| -> u64 {
        processes.iter().filter_map(|p| p.accesses.get(place)).map(|a| a[0] + a[1]).sum()
    };
    let moved: u64 = sim.moved().iter().flatten().sum();
    ReplayRun {
        time_ns: time_ps / 1000,
        accesses: shelves.iter().map(|s| s.places.iter().map(|&p| accesses_of(p)).sum()).collect(),
        promoted: stat.get(Item::PgpromoteSuccess),
        demoted: stat.get(Item::PgdemoteKswapd) + stat.get(Item::PgdemoteDirect),
        moved_bytes: moved * homenode_core::units::PAGE_SIZE,
        vmstat: Item::ALL.iter().map(|i| (i.name().to_owned(), stat.get(*i))).collect(),
    }
}

fn report(machine: &Machine, scenario: &Scenario, shelves: &[Shelf], columns: &[Column]) -> Report {
    let (setup, runs) = (&columns[0].setup, &columns[0].runs);
    let tiers: Vec<&str> = shelves.iter().map(|s| s.name.as_str()).collect();
    let all: Vec<(&str, Vec<ReplayRun>)> = columns
        .iter()
        .map(|c| (c.name.as_str(), c.runs.iter().map(|r| r.run.clone()).collect()))
        .collect();
    let mut table = ComparisonTable::replay(&tiers, &all);
    let own: Vec<Vec<Option<Own>>> =
        columns.iter().map(|c| c.runs.iter().map(|r| r.own.clone()).collect()).collect();
    table.groups.splice(1..1, homenode::group(&own));
    if scenario.processes.len() > 1 {
        table.groups.insert(1, by_process(shelves, columns));
    }
    let mut caption = Caption {
        machine: format!("{}: {}", machine.name, machine.about),
        workload: format!("{}: {}", scenario.name, scenario.about),
        kernel: format!("Linux {}'s rules; {KERNEL}", setup.version),
        loops: 1,
        seeds: runs.iter().map(|r| r.seed).collect(),
        ..Caption::default()
    };
    let knobs: Vec<String> = setup.knobs.iter().map(|(k, v)| format!("{k}={v}")).collect();
    if !knobs.is_empty() {
        caption.notes.push(format!("knobs: {}", knobs.join(", ")));
    }
    for source in columns.iter().filter_map(|c| c.source) {
        let set = homenode_sim::machine::knobs_for(source.of_core());
        let set: Vec<String> = set.iter().map(|(k, v)| format!("{k}={v}")).collect();
        caption.notes.push(format!(
            "the column homenode has the same knobs but {}, so that homenode alone moves pages between tiers upwards",
            set.join(", ")
        ));
        caption.notes.extend(homenode::notes(source));
    }
    for r in columns.iter().flat_map(|c| &c.runs) {
        for p in &r.processes {
            if let Some(why) = &p.killed {
                let text = format!("with seed {} the process {} was killed: {why}", r.seed, p.name);
                caption.warnings.push(text);
            }
        }
    }
    Report { caption, table, picture: Vec::new() }
}

/// Time and place of accesses, process by process.
fn by_process(shelves: &[Shelf], columns: &[Column]) -> Group {
    let runs = &columns[0].runs;
    let count = runs.iter().map(|r| r.processes.len()).min().unwrap_or(0);
    let mut figures = Vec::new();
    for i in 0..count {
        let name = &runs[0].processes[i].name;
        let mut push =
            |what: &str, unit: &str, better, precision, get: &dyn Fn(&ProcessFigures) -> f64| {
                figures.push(Figure {
                    name: format!("{name}: {what}"),
                    unit: unit.into(),
                    better,
                    precision,
                    samples: columns
                        .iter()
                        .map(|c| c.runs.iter().map(|r| get(&r.processes[i])).collect())
                        .collect(),
                });
            };
        push("time", "s", Better::Lower, 4, &|p| p.time_ps as f64 / 1e12);
        if let Some(first) = shelves.first() {
            push(&format!("accesses in {}", first.name), "%", Better::Neither, 2, &|p| {
                let sum = |places: &mut dyn Iterator<Item = usize>| -> u64 {
                    places.filter_map(|x| p.accesses.get(x)).map(|a| a[0] + a[1]).sum()
                };
                let all = sum(&mut (0..p.accesses.len()));
                sum(&mut first.places.iter().copied()) as f64 * 100.0 / all.max(1) as f64
            });
        }
    }
    Group { title: "processes".into(), figures }
}
