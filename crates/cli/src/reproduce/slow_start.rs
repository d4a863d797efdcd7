//! The seed S0: a task is sampled only after it has run for a second.
//!
//! Balancing marks the memory of a task so that its next accesses fault, which says who uses it.
//! Short tasks pay for that and have nothing of it: they end before their memory could move. So of a build,
//! made of compilers that live for half a second, the scans and faults are what balancing costs; with
//! slow start they are gone, and a task that runs for long has its memory near it all the same.
//!
//! Reading order: [`mod@run`] (one run), [`judge`] (the bands), and here the plan and the table.

mod judge;
mod run;
#[cfg(test)]
mod tests;

use super::Asked;
use super::elastic;
use super::experiment::{Figures, Runs, Sensitivity};
use super::vary::{Vary, What};
use anyhow::{Result, bail};
use homenode_core::topology::Hardware;
use homenode_report::{
    Better, Caption, ComparisonTable, Figure, Reproduced, Reproduction, Scale, Section,
};
use judge::{ByKernel, Findings, Ways};
use run::{Bench, Kernel, Load, Point, Took, Way};
use serde_json::Value;

/// What is run.
struct Plan {
    seeds: u64,
    build: Load,
    messaging: Load,
    long: Load,
    /// What is run with constants moved.
    moved: Load,
    constants: Vec<What>,
}

/// Seconds in which memory has time to come.
const SECONDS: u64 = 60;
/// Groups of perf bench's default.
const GROUPS: u32 = 10;
/// Files of the seed's build over those of ours, roughly: a bzImage of 2012 and its 302 compilers.
const FILES: u64 = 7;

impl Plan {
    fn new(asked: &Asked<'_>, machine: &Hardware) -> Result<Self> {
        if asked.machine.is_some() {
            bail!("--machine: slow-start runs on the machine that its plan registers");
        }
        if asked.scale.is_some() {
            bail!("--scale: slow-start is as long as its plan says; --quick makes it shorter");
        }
        let (seeds, rounds) = if asked.quick { (1, 10) } else { (3, 48) };
        Ok(Self {
            seeds: asked.seeds.unwrap_or(seeds),
            build: Load::Build(rounds),
            messaging: Load::Messaging(GROUPS),
            long: Load::Long(SECONDS),
            moved: Load::Build(3),
            constants: if asked.quick {
                elastic::most("slow-start", What::of_builds(), machine)
            } else {
                What::of_builds()
            },
        })
    }
}

const fn point(load: Load, kernel: Kernel, way: Way, seed: u64, vary: Option<Vary>) -> Point {
    Point { load, kernel, way, vary, seed }
}

/// The ways of a load, and the kernels beside those that decide: who balances nothing comes to no locality,
/// which is what long tasks are asked for.
fn ways_of(load: Load) -> (Vec<Way>, Vec<Kernel>) {
    match load {
        Load::Build(_) | Load::Messaging(_) => (Way::ALL.to_vec(), vec![Kernel::V3_8]),
        Load::Long(_) => (vec![Way::Without, Way::With], Vec::new()),
    }
}

/// All ways of these kernels.
fn points(load: Load, kernels: &[Kernel], seed: u64, vary: Option<Vary>) -> Vec<Point> {
    let ways = ways_of(load).0;
    let of = |&kernel: &Kernel| ways.iter().map(move |&way| (kernel, way));
    kernels.iter().flat_map(of).map(|(kernel, way)| point(load, kernel, way, seed, vary)).collect()
}

impl Runs<'_, Bench> {
    fn ways(&self, load: Load, kernel: Kernel, seed: u64, vary: Option<Vary>) -> Ways {
        let of =
            |way| self.done.get(&point(load, kernel, way, seed, vary)).copied().unwrap_or_default();
        Ways { off: of(Way::Off), without: of(Way::Without), with: of(Way::With) }
    }
    fn by_kernel(&self, load: Load, seed: u64, vary: Option<Vary>) -> ByKernel {
        Kernel::DECIDE.map(|kernel| self.ways(load, kernel, seed, vary))
    }
}

/// Runs the experiment.
pub(super) fn run(asked: &Asked<'_>) -> Result<Reproduction> {
    let bench = Bench::new()?;
    reproduce(&Plan::new(asked, &bench.machine)?, &bench, asked.jobs)
}

fn moved(runs: &mut Runs<'_, Bench>, bench: &Bench, plan: &Plan) -> Result<Sensitivity<ByKernel>> {
    let load = plan.moved;
    runs.move_each(
        &plan.constants,
        &bench.machine,
        |v| points(load, &Kernel::DECIDE, 1, v),
        |runs, v| runs.by_kernel(load, 1, v),
    )
}

fn reproduce(plan: &Plan, bench: &Bench, jobs: usize) -> Result<Reproduction> {
    let mut runs = Runs::new(bench, jobs);
    let loads =
        [("the build", plan.build), ("hackbench", plan.messaging), ("long tasks", plan.long)];
    for (what, load) in loads {
        let of = |seed| points(load, &Kernel::DECIDE, seed, None);
        let beside = points(load, &ways_of(load).1, 1, None);
        runs.ensure(what, (1..=plan.seeds).flat_map(of).chain(beside))?;
    }
    let moved = moved(&mut runs, bench, plan)?;
    let of = |load| (1..=plan.seeds).map(|seed| runs.by_kernel(load, seed, None)).collect();
    let findings = Findings {
        build: of(plan.build),
        messaging: of(plan.messaging),
        long: of(plan.long),
        moved: moved.moved,
    };
    Ok(Reproduction {
        name: "slow-start".into(),
        machine: bench.machine.name.clone(),
        tables: Kernel::ALL
            .into_iter()
            .map(|kernel| (title(kernel), table(&runs, plan, kernel)))
            .collect(),
        surfaces: Vec::new(),
        rows: rows(&findings),
        conclusions: judge::judge(&findings),
        caption: caption(&runs, plan),
        digits: 2,
    })
}

fn title(kernel: Kernel) -> String {
    match kernel {
        Kernel::Seed => "3.8 as it was when slow start came".into(),
        Kernel::V6_12 => "6.12, scan_period_min_ms 100".into(),
        Kernel::V3_8 => "3.8 as it was released".into(),
    }
}

/// A figure of a run.
type Get = fn(&Took) -> f64;

const BUILD: [(Figure, Get); 5] = [
    (Figure::new("build: CPU time", "s", Better::Lower, 3, "of all CPUs"), |t| t.busy_s),
    (Figure::new("build: elapsed", "s", Better::Lower, 3, "until make has ended"), |t| t.elapsed_s),
    (Figure::count("build: entries marked", "numa_pte_updates"), |t| t.marked as f64),
    (Figure::count("build: hint faults", "numa_hint_faults"), |t| t.faults as f64),
    (Figure::count("build: pages moved", "numa_pages_migrated"), |t| t.moved as f64),
];
const MESSAGING: (Figure, Get) =
    (Figure::new("hackbench: elapsed", "ms", Better::Lower, 3, "until the last has ended"), |t| {
        t.elapsed_s * 1e3
    });
const LONG: (Figure, Get) =
    (Figure::new("long: local", "%", Better::Neither, 2, "accesses of the last second"), |t| {
        t.local
    });

fn table(runs: &Runs<'_, Bench>, plan: &Plan, kernel: Kernel) -> ComparisonTable {
    let seeds = if Kernel::DECIDE.contains(&kernel) { plan.seeds } else { 1 };
    let figure = |load: Load, (figure, get): &(Figure, Get)| {
        let of = |way: Way| -> Vec<f64> {
            let took =
                (1..=seeds).filter_map(|s| runs.done.get(&point(load, kernel, way, s, None)));
            took.map(get).collect()
        };
        figure.compared(Way::ALL.into_iter().map(of).collect())
    };
    let mut figures: Vec<_> = BUILD.iter().map(|f| figure(plan.build, f)).collect();
    figures.push(figure(plan.messaging, &MESSAGING));
    if kernel != Kernel::V3_8 {
        figures.push(figure(plan.long, &LONG));
    }
    ComparisonTable {
        columns: Way::ALL.into_iter().map(|w| w.name().to_owned()).collect(),
        groups: vec![Section { title: String::new(), figures }],
    }
}

/// The seed's two measurements, as one figure: time above off, in per cent.
const SEED: [f64; 2] = [
    (46.172_308_123 + 46.343_168_745) / (45.291_088_843 + 45.154_231_752) * 100.0 - 100.0,
    (45.224_189_155 + 45.160_866_532) / (45.291_088_843 + 45.154_231_752) * 100.0 - 100.0,
];
/// The same of hackbench.
const SEED_MESSAGING: [f64; 2] =
    [0.252_620_063 / 0.246_225_691 * 100.0 - 100.0, 0.248_076_230 / 0.246_225_691 * 100.0 - 100.0];

/// The seed's figures beside ours.
fn rows(found: &Findings) -> Vec<Reproduced> {
    let mut all = Vec::new();
    for (k, kernel) in Kernel::DECIDE.into_iter().enumerate() {
        let name = kernel.name();
        let of = |seeds: &[ByKernel], get: &dyn Fn(&Ways) -> f64| -> Vec<f64> {
            seeds.iter().map(|w| get(&w[k])).collect()
        };
        for (way, seed, (low, high)) in
            [(Way::Without, SEED[0], judge::WITHOUT), (Way::With, SEED[1], judge::WITH)]
        {
            all.push(Reproduced::new(
                &format!("build, CPU time {} slow start, % above off ({name})", way.name()),
                Some(seed),
                &of(&found.build, &|w| w.busy(way)),
                Some(low),
                Some(high),
            ));
            all.push(Reproduced::new(
                &format!("build, elapsed {} slow start, % above off ({name})", way.name()),
                Some(seed),
                &of(&found.build, &|w| w.elapsed(way)),
                None,
                None,
            ));
        }
        for (way, seed, high) in [
            (Way::Without, SEED_MESSAGING[0], None),
            (Way::With, SEED_MESSAGING[1], Some(judge::MESSAGING)),
        ] {
            all.push(Reproduced::new(
                &format!("hackbench {} slow start, % above off ({name})", way.name()),
                Some(seed),
                &of(&found.messaging, &|w| w.elapsed(way)),
                None,
                high,
            ));
        }
        all.push(Reproduced::new(
            &format!("long tasks, locality with slow start, % of without ({name})"),
            None,
            &of(&found.long, &Ways::locality),
            Some(judge::LOCALITY),
            None,
        ));
    }
    all
}

fn caption(runs: &Runs<'_, Bench>, plan: &Plan) -> Caption {
    let bench = runs.bench;
    Caption {
        wrong: None,
        machine: format!("{}: {}", bench.machine.name, bench.machine.about),
        workload: format!(
            "{}: {}; hackbench of {GROUPS} groups; {}: {}",
            bench.build.name, bench.build.about, bench.long.name, bench.long.about
        ),
        kernel: "seed and 3.8: NUMA balancing of 3.8, with the fair class, wake-ups and domains of 4.5 as a \
                 stand-in; 6.12 with scan_period_min_ms = 100, as in the seed; balancing of load as in 6.12"
            .into(),
        scales: vec![Scale { what: "files of the build".into(), factor: FILES }],
        loops: 1,
        seeds: (1..=plan.seeds).collect(),
        notes: vec![
            "the seed's build is measured by its elapsed time; ours by processor time, since at the end of a \
             short build CPUs run dry"
                .into(),
            "a task of hackbench has less than 100 ms of processor time, so nothing is ever scanned: no rule of \
             balancing can tell its three columns apart"
                .into(),
            "6.12 passes over pages that are near a process of one thread; 3.8 marked them as well".into(),
            "6.12's tasks may go where their memory is, 3.8's never do".into(),
        ],
        ..Caption::default()
    }
}

impl Figures for ByKernel {
    const DIGITS: usize = 2;
    const MOST: Option<&'static str> = Some("with, most");
    /// What a build costs more without slow start, %, in the seed's kernel.
    fn figure(&self) -> f64 {
        self[0].busy(Way::Without)
    }
    /// The same with it.
    fn most(&self) -> f64 {
        self[0].busy(Way::With)
    }
    fn wrong(&self) -> Vec<String> {
        judge::wrong(self)
    }
}

/// Moves all constants (`--quick`: those that matter most): JSON, and the page.
pub(super) fn sensitivity(asked: &Asked<'_>) -> Result<(Value, String)> {
    let bench = Bench::new()?;
    let mut plan = Plan::new(asked, &bench.machine)?;
    if asked.quick {
        plan.moved = Load::Build(1);
    }
    let s = moved(&mut Runs::new(&bench, asked.jobs), &bench, &plan)?;
    let head = "# What slow start hangs on\n\n\
         Made by `homenode reproduce slow-start --sensitivity`; `cargo xtask bench sensitivity-slow-start` \
         writes it anew. Each constant that a build pays is moved by \
         ±20 %, one at a time; one seed, three rounds of the build. Shown is how much more processor time the \
         build takes without slow start than without balancing, in per cent, in 3.8 as it was when slow start came, and, \
         as the largest of both runs, with slow start. *Signs and order*: without slow start costs more than \
         with it, in that kernel and in 6.12.\n\n"
        .to_owned();
    Ok(s.told(head, "%, −20 %", "without", elastic::names("slow-start")))
}
