//! `homenode sim`: a scenario under the simulated kernel.

mod cpus;

use crate::contender::{self, Contender, Contenders};
use crate::figures::{self, Choice, RunFigures};
use crate::homenode::Runner;
use crate::knobs::{self, Setting};
use crate::nodes::{self, Shelf};
use crate::progress::Progress;
use crate::watched::{self, Watcher};
use crate::{output, parallel, schedule, small};
use anyhow::{Context, Result, anyhow};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{FileOp, Scenario};
use homenode_core::sched::fair::Rules;
use homenode_core::topology::Hardware;
use homenode_core::units::{Picos, count};
use homenode_report::{Caption, Lane, Report, cpu_picture};
use homenode_sim::files::Outcome;
use homenode_sim::{ProcessFigures, Setup, Simulation, Track};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Whose reclaim is simulated, for captions: of each column, its name, version and knobs.
pub(crate) fn reclaim<'a>(
    columns: impl IntoIterator<Item = (String, KernelVersion, &'a [Setting])>,
) -> String {
    const LISTS: &str = "active and inactive lists, not MGLRU";
    const GENERATIONS: &str = "MGLRU, not active and inactive lists";
    let (mut lists, mut generations) = (Vec::new(), Vec::new());
    for (name, version, set) in columns {
        let knobs = small::booted(Scale::AS_IS, version, set);
        if knobs.lru_gen.core() { &mut generations } else { &mut lists }.push(name);
    }
    match (lists.is_empty(), generations.is_empty()) {
        (_, true) => LISTS.to_owned(),
        (true, false) => GENERATIONS.to_owned(),
        (false, false) => {
            format!(
                "{LISTS}, in {}; {GENERATIONS}, in {}",
                lists.join(", "),
                generations.join(", ")
            )
        }
    }
}

/// Run a scenario and print what the kernel did to it.
///
/// Simulates the programs of a scenario on its machine (or another) in exact virtual
/// time. Prints time, share of accesses by tier, pages moved and the kernel's counters:
/// mean and spread where there are several seeds, and a hash of each run, which is the
/// same on every machine.
///
/// A scenario can read and write files of the simulated /proc and /sys at given times
/// (at entries in its TOML): what they answered is printed under the table. Exit code 1 if
/// one of them did not answer as the scenario expects.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode sim scenarios/tiering-gauss.toml --set numa_balancing=0 --seeds 5
  homenode sim scenarios/zipf.toml --columns off,mode1,mode2,mode3,homenode
  homenode sim scenarios/tiering-gauss.toml --columns mode2@6.1,mode2,mode2+hot_threshold_ms=500
  homenode sim scenarios/merge-guests.toml --set merge_across_nodes=0")]
pub(crate) struct Args {
    /// The scenario's TOML
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    #[arg(long = "set", value_name = "KNOB=VALUE", value_parser = knobs::parse, help = knobs::HELP_SIM)]
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
    #[arg(
        long,
        alias = "modes",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "scenario",
        help = contender::HELP
    )]
    columns: Vec<String>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', help = figures::HELP)]
    figures: Vec<String>,
    /// Write the first run's scheduling as a trace that Perfetto opens (JSON)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What one run left.
struct SimRun {
    seed: u64,
    hash: u64,
    figures: RunFigures,
    /// What the kernel's files answered, in the scenario's order.
    files: Vec<Outcome>,
    /// What the kernel said, with times in picoseconds.
    messages: Vec<(u64, String)>,
}

/// A column and its runs, one for each seed.
struct SimColumn {
    contender: Contender,
    setup: Setup,
    runs: Vec<SimRun>,
}

impl SimColumn {
    /// What its runs are told apart by, where it is not the scenario as it is.
    fn told(&self) -> Option<String> {
        (self.contender.name != "scenario").then(|| self.contender.title())
    }
}

/// Settings as a caption tells them: of one that was made twice, the later.
fn told(settings: &[Setting]) -> String {
    let last = |i: usize, name: &str| settings[i + 1..].iter().all(|(later, _)| later != name);
    let kept = settings.iter().enumerate().filter(|(i, (name, _))| last(*i, name));
    kept.map(|(_, (name, value))| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    let (scenario, machine) = match &args.machine {
        None => homenode_config::read_scenario_and_machine(&args.scenario)?,
        Some(path) => {
            let file = homenode_config::read_scenario(&args.scenario)?;
            let machine = homenode_config::read_machine(path)?;
            file.check(&machine)?;
            (file.scenario, machine)
        }
    };
    let choice = Choice::parse(&args.figures)?;
    if let Some(path) = &args.perfetto {
        output::check_output(path)?;
    }
    let mut setup = Setup::of(&scenario);
    // The scenario's own first, so that an error names the right source.
    knobs::check_file(&args.scenario, &setup.knobs, setup.version)?;
    let (ksm, set) = knobs::split(&args.set, setup.version);
    knobs::check(&set, &knobs::files_of_merging(setup.version), setup.version)?;
    setup.ksm.extend(ksm);
    let chosen = contenders.parse(&args.columns)?;
    if chosen.iter().all(|c| c.balances()) {
        knobs::check_columns(&set, setup.version)?;
    }
    let column = |contender: Contender| -> Result<SimColumn> {
        let contender = contender.on(&machine)?;
        let setup = contender.setup(&setup, &set)?;
        Ok(SimColumn { contender, setup, runs: Vec::new() })
    };
    let mut columns: Vec<SimColumn> = chosen.into_iter().map(column).collect::<Result<_>>()?;

    let shelves = nodes::shelves(&machine, setup.version);
    let last = scenario.seed.checked_add(args.seeds.get() as u64 - 1);
    let last = last.ok_or_else(|| anyhow!("--seeds {}: seeds end at 2^64 - 1", args.seeds))?;
    let seeds: Vec<u64> = (scenario.seed..=last).collect();
    let jobs: Vec<(usize, u64)> =
        (0..columns.len()).flat_map(|c| seeds.iter().map(move |&s| (c, s))).collect();
    let mut runs: Vec<SimRun> = {
        let progress = Progress::new(jobs.len() as u64);
        progress.murmur(&format!("{}: {}", scenario.name, count(jobs.len() as u64, "run", "runs")));
        let all = parallel::map(parallel::jobs(args.jobs), &jobs, |&(c, seed)| {
            let setup = Setup { seed, ..columns[c].setup.clone() };
            let trace = args.perfetto.as_deref().filter(|_| c == 0 && seed == seeds[0]);
            let done = one(&machine, &scenario, &setup, &columns[c].contender, &shelves, trace);
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
    let report = report(&machine, &scenario, &shelves, &columns, &choice);
    let runs: Vec<(&SimColumn, &SimRun)> =
        columns.iter().flat_map(|c| c.runs.iter().map(move |r| (c, r))).collect();
    let ids: Vec<u16> = machine.nodes.iter().map(|n| n.id.0).collect();
    // One run needs no name.
    let name_of = |c: &SimColumn, r: &SimRun| {
        let seed = (seeds.len() > 1).then(|| format!(" with seed {}", r.seed));
        let column = c.told().map(|name| format!(" in {name}"));
        seed.into_iter().chain(column).collect::<String>()
    };
    output::print(&if args.json {
        let mut all: Value = serde_json::from_str(&report.to_json())?;
        all["name"] = json!(scenario.name);
        all["runs"] = runs
            .iter()
            .map(|(column, run)| {
                let of = run.figures.processes.iter().map(|p| process(p, &ids));
                let processes: Vec<Value> = of.collect();
                let mut it = json!({
                    "column": column.contender.column(&scenario.name),
                    "seed": run.seed,
                    "hash": format!("{:016x}", run.hash),
                    "processes": processes,
                });
                if let Some(cpus) = cpus::json(&run.figures, &machine) {
                    it["cpus"] = cpus;
                }
                if let Some(m) = &run.figures.merge {
                    it["merge"] = figures::merging_json(m, column.setup.version);
                }
                if !run.figures.groups.is_empty() {
                    it["groups"] = figures::groups_json(&run.figures.groups);
                }
                if !run.messages.is_empty() {
                    let message = |(at, text): &(u64, String)| json!({"time_ps": at, "text": text});
                    it["messages"] = run.messages.iter().map(message).collect();
                }
                if !run.files.is_empty() {
                    it["files"] = run.files.iter().map(file_json).collect();
                }
                it
            })
            .collect();
        all.to_string()
    } else {
        let mut text = report.to_text(output::width(), output::glyphs());
        for (column, run) in &runs {
            let whose = column.told().map_or(String::new(), |name| format!(", {name}"));
            text.push_str(&format!("hash of seed {}{whose}: {:016x}\n", run.seed, run.hash));
        }
        for (column, run) in &runs {
            let which = name_of(column, run);
            text.push_str(&cpus::text(&run.figures, &machine, &which));
            text.push_str(&tracks_text(run, &machine, &which));
        }
        for (column, run) in &runs {
            text.push_str(&messages_text(run, &name_of(column, run)));
            for outcome in &run.files {
                text.push_str(&file_text(outcome, &name_of(column, run)));
            }
        }
        text
    })?;
    let missed: Vec<String> = runs
        .iter()
        .flat_map(|(c, r)| r.files.iter().map(|o| (name_of(c, r), o)))
        .filter_map(|(run, o)| Some(format!("{}: {}", headline(o, &run), o.missed()?)))
        .collect();
    if missed.is_empty() {
        return Ok(0);
    }
    eprintln!(
        "homenode: {}: not as the scenario expects:\n  {}",
        args.scenario.display(),
        missed.join("\n  ")
    );
    Ok(1)
}

/// Where the tasks of a run were over time, for people; nothing where the scheduler placed none.
fn tracks_text(run: &SimRun, machine: &Hardware, which: &str) -> String {
    let (width, tracks) = &run.figures.tracks;
    let number = |place: u16| machine.cpus[usize::from(place)].id.0;
    let lane = |(process, track): &(usize, Track)| Lane {
        label: run.figures.processes[*process].name.clone(),
        cells: track.cells().map(|c| c.map(number)).collect(),
        first: track.first.iter().copied().map(number).collect(),
    };
    let lanes: Vec<Lane> = tracks.iter().map(lane).collect();
    match cpu_picture(&lanes, *width, output::width().min(100)) {
        text if text.is_empty() => text,
        text => format!("\nCPUs over time{which}\n{text}"),
    }
}

/// What the kernel said in a run, as `dmesg` prints it; nothing where it said nothing.
fn messages_text(run: &SimRun, which: &str) -> String {
    if run.messages.is_empty() {
        return String::new();
    }
    let mut text = format!("\nthe kernel's messages{which}\n");
    for (at, said) in &run.messages {
        let us = at / 1_000_000;
        text.push_str(&format!("[{:5}.{:06}] {said}\n", us / 1_000_000, us % 1_000_000));
    }
    text
}

/// When, as whom and what, on one line.
fn headline(o: &Outcome, run: &str) -> String {
    let what = match &o.action.what {
        FileOp::Read { .. } => format!("read {}", o.path),
        FileOp::Write { text, .. } => format!("write {text:?} to {}", o.path),
    };
    let who = match o.action.who.name() {
        "root" => String::new(),
        other => format!(" as {other}"),
    };
    format!("at {}{run}{who}: {what}", homenode_config::write_time(o.action.at))
}

/// What a file answered, for people.
fn file_text(o: &Outcome, run: &str) -> String {
    let came = match (&o.result, o.missed()) {
        (_, Some(missed)) => format!(": {missed}"),
        (Some(Err(e)), None) => format!(": {}, as expected", e.errno.name()),
        (_, None) if o.took > Picos::ZERO => {
            format!(": done, in {} ms of the writer's time", o.took.0 as f64 / 1e9)
        }
        (_, None) if matches!(o.action.what, FileOp::Write { .. }) => ": done".to_owned(),
        (_, None) => String::new(),
    };
    let text = match &o.result {
        Some(Ok(text)) => text.as_str(),
        _ => "",
    };
    format!("\n{}{came}\n{text}", headline(o, run))
}

fn file_json(o: &Outcome) -> Value {
    let mut it = json!({
        "time_ns": o.action.at.as_ns(),
        "as": o.action.who.name(),
        "path": o.path,
        "errno": o.errno().map(|e| e.name()),
        "expected": o.action.expect.map(|e| e.name()),
        "missed": o.missed(),
    });
    match &o.action.what {
        FileOp::Read { .. } => {
            it["op"] = json!("read");
            it["text"] = json!(o.result.as_ref().and_then(|r| r.as_ref().ok()));
        }
        FileOp::Write { text, .. } => {
            it["op"] = json!("write");
            it["value"] = json!(text);
            it["took_ns"] = json!(o.took.as_ns());
        }
    }
    it
}

fn one(
    machine: &Hardware,
    scenario: &Scenario,
    setup: &Setup,
    contender: &Contender,
    shelves: &[Shelf],
    trace: Option<&Path>,
) -> Result<SimRun> {
    let scenario = contender.scenario(scenario);
    let mut sim = Simulation::new(machine, &scenario, setup)?;
    let watcher = trace.map(|path| (path, Watcher::on(&mut sim, machine)));
    let mut runner = Runner::new(sim, contender, setup)?;
    runner.run()?;
    let sim = runner.ended()?;
    if let Some((path, watcher)) = watcher {
        // Daemons have no name, and are not what is asked about.
        let header = watched::header(sim, machine);
        let mut rows = watcher.rows();
        rows.retain(|r| header.tasks.get(r.task as usize).is_some_and(|t| !t.name.is_empty()));
        schedule::write_perfetto(path, &header, &rows)?;
    }
    let files = sim.outcomes().to_vec();
    let messages = sim.messages().to_vec();
    let figures = RunFigures::of(&runner, sim.now(), shelves);
    Ok(SimRun { seed: setup.seed, hash: runner.hash(), figures, files, messages })
}

/// A process as JSON: times in nanoseconds, accesses by node.
fn process(p: &ProcessFigures, ids: &[u16]) -> Value {
    let by_node = |accesses: &[[u64; 2]]| -> Value {
        let node = |(id, a): (&u16, &[u64; 2])| json!({"node": id, "reads": a[0], "writes": a[1]});
        ids.iter().zip(accesses).map(node).collect()
    };
    let ns = |ps: u64| ps as f64 / 1000.0;
    let phases: Vec<Value> = p
        .phases
        .iter()
        .map(|f| {
            json!({
                "step": f.step,
                "first_touch": f.first_touch,
                "threads": f.threads,
                "from_ns": ns(f.span_ps.0),
                "to_ns": ns(f.span_ps.1),
                "time_ns": ns(f.time_ps),
                "accesses": by_node(&f.accesses),
                "accesses_per_second": f.per_second(),
            })
        })
        .collect();
    let a = &p.allocations;
    json!({
        "name": p.name,
        "time_ns": ns(p.time_ps),
        "cpu_time_ns": ns(p.ran_ps),
        "ended": p.ended,
        "killed": p.killed,
        "accesses": by_node(&p.accesses),
        "phases": phases,
        "tasks": {
            "wait_ns": p.tasks.wait_ns,
            "sleep_ns": p.tasks.sleep_ns,
            "block_ns": p.tasks.block_ns,
            "migrations": p.tasks.migrations,
            "wakeups": p.tasks.wakeups,
            "voluntary_switches": p.tasks.voluntary,
            "involuntary_switches": p.tasks.involuntary,
            "latency_mean_ns": ns(p.tasks.latency.mean_ps()),
            "latency_p50_ns": ns(p.tasks.latency.percentile_ps(500)),
            "latency_p99_ns": ns(p.tasks.latency.percentile_ps(990)),
            "latency_max_ns": ns(p.tasks.latency.max_ps()),
        },
        "allocations": {
            "count": a.count(),
            "mean_ns": ns(a.mean_ps()),
            "p50_ns": ns(a.percentile_ps(500)),
            "p99_ns": ns(a.percentile_ps(990)),
            "max_ns": ns(a.max_ps()),
        },
    })
}

/// Which fair class a kernel has, behind `before`, where it is not today's.
fn old_fair(version: KernelVersion, before: &str) -> String {
    let rules = Rules::of(version);
    if rules.is_cfs() { format!("{before}{}", rules.name()) } else { String::new() }
}

fn report(
    machine: &Hardware,
    scenario: &Scenario,
    shelves: &[Shelf],
    columns: &[SimColumn],
    choice: &Choice,
) -> Report {
    let (setup, runs) = (&columns[0].setup, &columns[0].runs);
    let contenders: Vec<&Contender> = columns.iter().map(|c| &c.contender).collect();
    let names: Vec<&str> = contenders.iter().map(|c| c.column(&scenario.name)).collect();
    let all: Vec<Vec<&RunFigures>> =
        columns.iter().map(|c| c.runs.iter().map(|r| &r.figures).collect()).collect();
    let table =
        figures::table(&contenders, &names, &all, shelves, setup.version, Some(scenario), choice);
    let mut caption = Caption {
        wrong: None,
        machine: format!("{}: {}", machine.name, machine.about),
        workload: format!("{}: {}", scenario.name, scenario.about),
        kernel: format!(
            "Linux {}'s rules; {}{}",
            setup.version,
            reclaim(columns.iter().map(|c| {
                let name = c.contender.column(&scenario.name).replacen('-', " ", 1);
                (name, c.setup.version, &c.setup.knobs[..])
            })),
            old_fair(setup.version, "; ")
        ),
        loops: 1,
        seeds: runs.iter().map(|r| r.seed).collect(),
        ..Caption::default()
    };
    caption.notes.extend(figures::defaults(machine));
    if let Some(told) = small::stands_for(machine, setup.scale) {
        caption.scales = small::scales(setup.scale);
        caption.notes.push(told);
        let (scale, margin) = (setup.scale, setup.model.margin);
        let amounts = small::amounts(machine, scale, setup.version, margin, &setup.knobs);
        caption.notes.push(amounts);
    } else if scenario.processes.iter().any(|p| !p.maps.is_empty()) {
        caption.notes.extend(small::loses(machine, setup));
    }
    // Who drives has a note of its own below.
    for c in columns.iter().filter(|c| c.contender.drives.is_none() && !c.setup.knobs.is_empty()) {
        let whose = c.told().map_or(String::new(), |name| format!(", {name}"));
        caption.notes.push(format!("knobs{whose}: {}", told(&c.setup.knobs)));
    }
    for c in columns.iter().filter(|c| c.setup.version != setup.version) {
        let title = c.contender.title();
        let fair = old_fair(c.setup.version, ", its fair class is ");
        caption
            .notes
            .push(format!("the column {title} has Linux {}'s rules{fair}", c.setup.version));
    }
    let files: Vec<String> = setup.ksm.iter().map(|(k, v)| format!("{k}={v}")).collect();
    if !files.is_empty() {
        caption.notes.push(format!("/sys/kernel/mm/ksm: {}", files.join(", ")));
    }
    for c in columns.iter().map(|c| &c.contender) {
        if c.drives.is_some() {
            caption.notes.push(format!(
                "the column {} has the same knobs but {}, so that it alone moves pages between tiers upwards",
                c.title(),
                c.settings()
            ));
        }
        caption.notes.extend(c.notes());
    }
    caption.notes.extend(homenode_config::notes(scenario));
    for r in columns.iter().flat_map(|c| &c.runs) {
        for p in &r.figures.processes {
            if let Some(why) = &p.killed {
                let text = format!("with seed {} the process {} was killed: {why}", r.seed, p.name);
                caption.warnings.push(text);
            }
            if p.goes_nowhere() {
                caption.warnings.push(format!(
                    "with seed {} the process {} goes round {} without taking any time: such a \
                     round is given 1 us, or it would never end",
                    r.seed,
                    p.name,
                    count(p.empty_rounds, "time", "times")
                ));
            }
        }
    }
    Report { caption, table, picture: Vec::new(), conclusion: None }
}
