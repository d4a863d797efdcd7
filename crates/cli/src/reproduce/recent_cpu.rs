//! The seed S3: a task remembers a CPU that it used recently.
//!
//! First come two tasks, and then what the seed measured. Two tasks that wake each other walk over all CPUs that share a cache, since each finds the
//! other on the CPU that it would go back to. With the seed they stay on two. The table has
//! the CPUs of the client in the order of its runs, the seed's beside ours; they have to be the same.
//!
//! dbench, netperf and hackbench run with the seed and without, and the gains stand beside the seed's.
//!
//! Reading order: [`mod@run`] (one run of the two tasks), [`loads`] (of the others), [`judge`] (the conclusions),
//! [`gains`] (the others' plan and tables), and here the plan and the table.

mod gains;
mod judge;
mod loads;
mod run;
#[cfg(test)]
mod tests;

use super::Asked;
use super::elastic;
use super::experiment::{Figures, Runs, Sensitivity, names};
use super::vary::{Vary, What};
use anyhow::{Result, bail};
use homenode_report::{
    Better, Caption, ComparisonTable, Figure, Reproduced, Reproduction, Section,
};
use judge::{Findings, Ways};
use loads::Loads;
use run::{Bench, Course, Patch, Point};
use serde_json::Value;

/// What is run.
struct Plan {
    seeds: u64,
    /// Constants that are moved.
    constants: Vec<What>,
    gains: gains::Plan,
}

impl Plan {
    fn new(asked: &Asked<'_>, loads: &Loads) -> Result<Self> {
        if asked.machine.is_some() {
            bail!("--machine: recent-cpu runs on a machine of its own, of eight CPUs");
        }
        if asked.scale.is_some() {
            bail!("--scale: there is nothing in recent-cpu that could be scaled down");
        }
        let constants = if asked.quick { What::of_switches() } else { What::of_tasks() };
        let seeds = if asked.quick { 1 } else { 3 };
        let gains = gains::Plan::new(asked, loads);
        Ok(Self { seeds: asked.seeds.unwrap_or(seeds), constants, gains })
    }
}

/// The seed's patch and no other, of that seed of the random streams.
const fn point(patch: Patch, seed: u64, vary: Option<Vary>) -> Point {
    Point { patch, vary, seed }
}

impl Runs<'_, Bench> {
    fn ways(&self, seed: u64, vary: Option<Vary>) -> Ways {
        let of = |patch| self.done[&point(patch, seed, vary)].clone();
        Ways { without: of(Patch::Without), with: of(Patch::With) }
    }
}

/// Both ways of a point.
fn both(seed: u64, vary: Option<Vary>) -> Vec<Point> {
    [Patch::Without, Patch::With].map(|patch| point(patch, seed, vary)).to_vec()
}

/// Runs the experiment.
pub(super) fn run(asked: &Asked<'_>) -> Result<Reproduction> {
    let loads = Loads::new()?;
    reproduce(&Plan::new(asked, &loads)?, &Bench::new()?, &loads, asked.jobs)
}

fn moved(
    runs: &mut Runs<'_, Bench>,
    bench: &Bench,
    constants: &[What],
) -> Result<Sensitivity<Ways>> {
    runs.move_each(constants, &bench.machine, |v| both(1, v), |runs, v| runs.ways(1, v))
}

fn reproduce(plan: &Plan, bench: &Bench, loads: &Loads, jobs: usize) -> Result<Reproduction> {
    let mut runs = Runs::new(bench, jobs);
    runs.ensure("the two tasks", (1..=plan.seeds).flat_map(|seed| both(seed, None)))?;
    let others = Patch::ALL.into_iter().filter(|p| p.is_beside());
    runs.ensure("other kernels", others.clone().map(|patch| point(patch, 1, None)))?;
    let moved = moved(&mut runs, bench, &plan.constants)?;

    let findings = Findings {
        seeds: (1..=plan.seeds).map(|seed| runs.ways(seed, None)).collect(),
        moved: moved.moved,
    };
    let shown: Vec<Patch> = Patch::ALL.to_vec();
    let gains = gains::run(&plan.gains, loads, jobs)?;
    let two = ("two tasks, 10 ms".to_owned(), table(&runs, &shown, plan.seeds));
    Ok(Reproduction {
        name: "recent-cpu".into(),
        machine: bench.machine.name.clone(),
        tables: vec![two, gains.table],
        surfaces: gains.surfaces,
        rows: rows(&findings.seeds).into_iter().chain(gains.rows).collect(),
        conclusions: judge::judge(&findings)
            .into_iter()
            .chain(judge::judge_gains(&gains.found))
            .collect(),
        caption: caption(&runs, plan, loads),
        digits: 1,
    })
}

/// A figure of a run.
type Get = fn(&Course) -> f64;

const FIGURES: [(Figure, Get); 3] = [
    (Figure::new("CPUs that the client used", "", Better::Lower, 0, "all in all"), |c| {
        c.cpus.len() as f64
    }),
    (Figure::new("migrations of 100 wake-ups", "", Better::Lower, 1, "of the client"), |c| {
        c.migrations as f64 * 100.0 / c.wakeups.max(1) as f64
    }),
    (Figure::new("wake-ups", "", Better::Higher, 0, "of the client"), |c| c.wakeups as f64),
];

fn table(runs: &Runs<'_, Bench>, patches: &[Patch], seeds: u64) -> ComparisonTable {
    let figure = |(figure, get): &(Figure, Get)| {
        let of = |patch: &Patch| -> Vec<f64> {
            let seeds = if patch.is_beside() { 1 } else { seeds };
            (1..=seeds).map(|seed| get(&runs.done[&point(*patch, seed, None)])).collect()
        };
        figure.compared(patches.iter().map(of).collect())
    };
    ComparisonTable {
        columns: patches.iter().map(|p| p.name().to_owned()).collect(),
        groups: vec![Section {
            title: String::new(),
            figures: FIGURES.iter().map(figure).collect(),
        }],
    }
}

/// The client's CPUs, run by run, beside the seed's.
fn rows(seeds: &[Ways]) -> Vec<Reproduced> {
    let row = |patch: Patch, i: usize| {
        let name =
            format!("CPU of the client's run {}, {}", i + 1, patch.name().replacen('-', " ", 1));
        let expected = f64::from(patch.expected()[i]);
        let ours: Vec<f64> = seeds.iter().map(|w| w.of(patch).run(i)).collect();
        // The seed writes four.
        let seed = (i < judge::WRITTEN).then_some(expected);
        Reproduced::new(&name, seed, &ours, Some(expected), Some(expected))
    };
    let each = |patch| (0..run::COUNTED).map(move |i| (patch, i));
    each(Patch::Without).chain(each(Patch::With)).map(|(patch, i)| row(patch, i)).collect()
}

fn caption(runs: &Runs<'_, Bench>, plan: &Plan, loads: &Loads) -> Caption {
    let bench = runs.bench;
    Caption {
        wrong: None,
        machine: format!(
            "{}: {}; the gains on {}: {}",
            bench.machine.name, bench.machine.about, loads.machine.name, loads.machine.about
        ),
        workload: format!("{}: {}", bench.scenario.name, bench.scenario.about),
        kernel: format!(
            "Linux 4.15 with the patch before the seed's (keep the previous CPU if both are idle); {}; \
             balancing and domains as in 6.12",
            homenode_core::sched::fair::Rules::of(bench.scenario.kernel).name()
        ),
        scales: Vec::new(),
        loops: 1,
        seeds: (1..=plan.seeds).collect(),
        notes: vec![
            "each run of the client is one wake-up by the worker of the CPU that it slept on, while that \
             worker still runs there"
                .into(),
            "the columns of other kernels decide nothing; 6.1 and 6.12 put the client behind the worker of its CPU"
                .into(),
            format!(
                "gain: by how much with the seed is better than without; {} of the random streams where any decide",
                homenode_core::units::count(plan.gains.seeds, "seed", "seeds")
            ),
            "HWP's choice of clocks is not published: hwp-proportional and hwp-threshold are rules of our own".into(),
            "no figure of the seed was an input".into(),
        ],
        ..Caption::default()
    }
}

impl Figures for Ways {
    const DIGITS: usize = 0;
    const MOST: Option<&'static str> = Some("with, most");
    /// How many CPUs the client uses without the seed.
    fn figure(&self) -> f64 {
        self.without.cpus.len() as f64
    }
    /// The same with it.
    fn most(&self) -> f64 {
        self.with.cpus.len() as f64
    }
    fn wrong(&self) -> Vec<String> {
        judge::wrong(self)
    }
}

/// Moves all constants (`--quick`: those of switches, and of dbench's those that matter most): JSON, and the page.
pub(super) fn sensitivity(asked: &Asked<'_>) -> Result<(Value, String)> {
    let loads = Loads::new()?;
    let plan = Plan::new(asked, &loads)?;
    let bench = Bench::new()?;
    let two = moved(&mut Runs::new(&bench, asked.jobs), &bench, &plan.constants)?;
    let one = gains::moved(&mut Runs::new(&loads, asked.jobs), &loads, &plan.gains)?;
    let head = "# What the recently used CPU hangs on\n\n\
         Made by `homenode reproduce recent-cpu --sensitivity`; `cargo xtask bench sensitivity-recent-cpu` \
         writes it anew. Each constant is moved by ±20 %, one at a time; one seed.\n\n\
         ## dbench on XFS, one client\n\n\
         Shown is the gain with the seed's patch in per cent and, as the largest of both runs, the mean clock with it. \
         *Signs*: it gains.\n\n"
        .to_owned();
    let (mut told, page) = one.told(head, "gain, −20 %", "gain", elastic::names("recent-cpu"));
    let head = page
        + "\n## The two tasks\n\n\
           Shown is how many CPUs the client uses without the \
           seed's patch and, as the largest of both runs, with it. *Signs and order*: the client's first \
           eight CPUs are exactly the walk and exactly the two. That nothing moves them is the point: \
           where a task goes hangs on who is idle, not on how long anything takes.\n\n";
    let quick = names(&What::of_switches(), &bench.machine);
    let (two, page) = two.told(head, "CPUs without, −20 %", "without", &quick);
    told["two_tasks"] = two;
    told["page"] = page.clone().into();
    Ok((told, page))
}
