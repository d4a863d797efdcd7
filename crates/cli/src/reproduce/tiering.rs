//! The seed S1: pmbench on DRAM and persistent memory, with the two choices of how a
//! promotion may enter a full node.
//!
//! Runs of pmbench with a map of 1.25 to 8 times the fast node's memory, demotion on,
//! no swap, under five kernels: balancing off, mode 1, mode 2 with choice *b* (the
//! seed's) and with choice *a*, all by the rules of 5.18, and mode 2 of 6.12. Then
//! the same beside a neighbour that allocates; the gain over width and first touch;
//! signs and order at another scale and with constants moved.
//!
//! The seed reports a gain of up to 95.9 %. It names neither threads, nor time, nor
//! working set: what stands in for them is registered in
//! `scenarios/reproduce/tiering.toml`.
//!
//! Reading order: [`scaled`] (what shrinks), [`super::vary`] (what is moved), [`mod@run`] (one
//! run), [`mod@sensitivity`] (constants moved), [`curve`] (the gain by scale), [`selection`] (a later series), [`judge`] (the
//! conclusions), and here the plan and the table.

pub(super) mod scaled;

mod curve;
mod judge;
mod run;
mod selection;
mod sensitivity;
#[cfg(test)]
mod tests;

use super::Asked;
use super::experiment::{Runs, Scales};
use crate::figures::{counter, defaults};
use anyhow::Result;
use curve::Curve;
use homenode_core::scale::Scale as Factor;
use homenode_report::{
    Better, Caption, Compared, ComparisonTable, Figure, Reproduced, Reproduction, Scale, Section,
    Surface, stats,
};
use homenode_sim::vmstat::Item;
use judge::{Beside, Findings, Gains, Neighbour};
use run::{Bench, Kernel, Point, Scored, TOUCHES};
use std::ops::RangeInclusive;

pub(super) use curve::page as by_scale;
pub(super) use sensitivity::table as sensitivity;

/// What the seed reports, in per cent.
const SEED_GAIN: f64 = 95.9;

/// What is run.
struct Plan {
    scales: Scales,
    /// Maps in hundredths of the fast node.
    percents: &'static [u64],
    /// The same at the second scale.
    percents_again: &'static [u64],
    /// Deviations in parts of the map.
    widths: &'static [u32],
}

impl Plan {
    fn new(asked: &Asked<'_>) -> Result<Self> {
        let mut plan = if asked.quick {
            Self {
                scales: Scales { factors: [256, 512], seeds: [2, 1], moved: 1024 },
                percents: &[200, 300, 800],
                percents_again: &[300],
                widths: &[24, 12, 6],
            }
        } else {
            Self {
                scales: Scales { factors: [64, 256], seeds: [3, 2], moved: 256 },
                percents: &[125, 150, 200, 300, 400, 600, 800],
                percents_again: &[125, 200, 300, 800],
                widths: &[24, 18, 12, 8, 6],
            }
        };
        let little = "a fast node of so little memory means nothing";
        plan.scales = plan.scales.asked(asked, 512, little)?;
        Ok(plan)
    }
    /// Seeds of the table.
    fn seeds(&self) -> RangeInclusive<u64> {
        1..=self.scales.seeds[0]
    }
}

impl Runs<'_, Bench> {
    /// Gain of a point's score over balancing off with the same seed, in per cent.
    fn gain(&self, p: &Point) -> f64 {
        let off = self.done[&Point { kernel: Kernel::Off, ..*p }].score;
        (self.done[p].score / off - 1.0) * 100.0
    }
    /// The same of each seed.
    fn gains(&self, p: &Point, seeds: u64) -> Vec<f64> {
        (1..=seeds).map(|seed| self.gain(&Point { seed, ..*p })).collect()
    }
    /// What the neighbour saw, on average over the seeds.
    fn beside(&self, p: &Point, seeds: u64) -> Beside {
        let mean = |f: &dyn Fn(&Scored) -> f64| {
            let all: Vec<f64> =
                (1..=seeds).map(|seed| f(&self.done[&Point { seed, ..*p }])).collect();
            stats::mean(&all)
        };
        Beside {
            allocstall: mean(&|o| o.allocstall as f64),
            pgscan_direct: mean(&|o| o.pgscan_direct as f64),
            p99_ns: mean(&|o| o.latency[1]),
        }
    }
    fn neighbour(&self, p: &Point, seeds: u64) -> Neighbour {
        let of = |kernel| self.beside(&Point { kernel, neighbour: true, ..*p }, seeds);
        Neighbour { factor: p.factor, off: of(Kernel::Off), b: of(Kernel::B), a: of(Kernel::A) }
    }
}

/// Points that differ in kernel and seed.
fn each(base: Point, kernels: &[Kernel], seeds: u64) -> Vec<Point> {
    let by_seed = |kernel: Kernel| (1..=seeds).map(move |seed| Point { kernel, seed, ..base });
    kernels.iter().flat_map(|&k| by_seed(k)).collect()
}

/// Runs the experiment.
pub(super) fn run(asked: &Asked<'_>) -> Result<Reproduction> {
    let plan = Plan::new(asked)?;
    let bench = Bench::new(asked.machine, asked.margin, &asked.columns)?;
    reproduce(&plan, &bench, asked.jobs)
}

/// The point from which the others differ: balancing off, as the scenario has it.
fn base(factor: u64) -> Point {
    Point {
        factor,
        kernel: Kernel::Off,
        percent: 100,
        width: None,
        touch: 0,
        neighbour: false,
        vary: None,
        seed: 1,
    }
}

fn reproduce(plan: &Plan, bench: &Bench, jobs: usize) -> Result<Reproduction> {
    let mut runs = Runs::new(bench, jobs);
    let [seeds, seeds_again] = plan.scales.seeds;
    let [base, again] = plan.scales.factors.map(base);

    let percents = plan.percents.iter();
    let points =
        percents.flat_map(|&percent| each(Point { percent, ..base }, &bench.kernels(), seeds));
    runs.ensure("working sets", points)?;
    let points = plan
        .percents_again
        .iter()
        .flat_map(|&percent| each(Point { percent, ..again }, &Kernel::GAINS, seeds_again));
    runs.ensure("working sets at the other scale", points)?;
    let gains = vec![
        gains(&runs, base, plan.percents, seeds),
        gains(&runs, again, plan.percents_again, seeds_again),
    ];

    let best = plan.percents[gains[0].largest().1];
    let beside = |p: Point| Point { percent: best, neighbour: true, ..p };
    let mut points = each(beside(base), &Kernel::BESIDE, seeds);
    points.extend(each(beside(again), &Kernel::BESIDE, seeds_again));
    runs.ensure("beside the neighbour", points)?;

    let selected = Point { percent: best, ..base };
    runs.ensure("page selection", each(selected, &Kernel::SELECTION, seeds))?;

    let cells = surface_points(plan, Point { factor: plan.scales.moved, percent: best, ..base });
    let points = cells.iter().flatten().flat_map(|&p| each(p, &[Kernel::Off, Kernel::B], 1));
    runs.ensure("widths and first touch", points)?;

    let at = Point { factor: plan.scales.moved, ..beside(base) };
    let constants = sensitivity::most_elastic(bench);
    let moved = sensitivity::run(&mut runs, at, &constants)?;
    let moved_surface = sensitivity::surface(&moved, at);

    let findings = Findings {
        gains,
        neighbours: vec![
            runs.neighbour(&beside(base), seeds),
            runs.neighbour(&beside(again), seeds_again),
        ],
        moved: moved.moved,
        selection: selection::found(&runs, selected, seeds),
        curve: if bench.registered { Some(Curve::kept(bench)?) } else { None },
    };
    let mut tables = tables(&runs, plan, base, beside(base));
    tables.push(("page selection".into(), selection::table(&runs, selected, seeds)));
    let mut rows = rows(&runs, plan, base, beside(base), &findings);
    rows.extend(selection::rows(&runs, selected, seeds));
    Ok(Reproduction {
        name: "tiering".into(),
        machine: bench.machine.name.clone(),
        tables,
        surfaces: vec![surface(&runs, plan, &cells, best), moved_surface],
        rows,
        conclusions: judge::judge(&findings),
        caption: caption(&runs, plan, Point { percent: best, ..base }),
        digits: 2,
    })
}

/// Mean gains by working set.
fn gains(runs: &Runs<'_, Bench>, base: Point, percents: &[u64], seeds: u64) -> Gains {
    let of = |kernel| {
        let mean =
            |&percent: &u64| stats::mean(&runs.gains(&Point { kernel, percent, ..base }, seeds));
        percents.iter().map(mean).collect()
    };
    Gains {
        factor: base.factor,
        percents: percents.to_vec(),
        mode1: of(Kernel::Mode1),
        b: of(Kernel::B),
        a: of(Kernel::A),
    }
}

/// One list per width, one point per order of the first touch.
fn surface_points(plan: &Plan, base: Point) -> Vec<Vec<Point>> {
    let widths = plan.widths.iter().copied().map(Some);
    let row = |width| (0..TOUCHES.len()).map(move |touch| Point { width, touch, ..base });
    widths.map(|width| row(width).collect()).collect()
}

fn surface(runs: &Runs<'_, Bench>, plan: &Plan, cells: &[Vec<Point>], best: u64) -> Surface {
    let gain = |p: &Point| runs.gain(&Point { kernel: Kernel::B, ..*p });
    Surface {
        title: format!(
            "gain of mode 2/b over off [%] by width and first touch; map {} of DRAM, 1:{}",
            times(best),
            plan.scales.moved
        ),
        rows: plan.widths.iter().map(|n| format!("deviation 1/{n} of the map")).collect(),
        columns: TOUCHES.map(|t| t.1.to_owned()).to_vec(),
        cells: cells.iter().map(|row| row.iter().map(gain).collect()).collect(),
        seed: Some(SEED_GAIN),
        digits: 1,
    }
}

fn times(percent: u64) -> String {
    format!("{:.2} x", percent as f64 / 100.0)
}

/// How a figure is taken from a run.
type Get = fn(&Scored) -> f64;

const fn rate(name: &'static str, about: &'static str) -> Figure {
    Figure::new(name, "M/s", Better::Higher, 2, about)
}

const fn share(name: &'static str, digits: usize, about: &'static str) -> Figure {
    Figure::new(name, "%", Better::Neither, digits, about)
}

const fn latency(name: &'static str, about: &'static str) -> Figure {
    Figure::new(name, "µs", Better::Lower, 2, about)
}

const RAMP: Figure =
    share("run until 95 % of its last third's score", 0, "how long tiering takes to get there");

/// Figures by the size of the map.
const BY_SET: [(Figure, Get); 4] = [
    (rate("score by size of the map", "accesses a second after the first touch"), million),
    (share("accesses in DRAM", 1, "share of these in the fast tier"), |o| o.fast * 100.0),
    (Figure::count("pages promoted", "pages that came to the fast tier"), |o| o.promoted as f64),
    (RAMP, |o| o.ramp * 100.0),
];

fn million(o: &Scored) -> f64 {
    o.score / 1e6
}

/// Figures beside the neighbour.
const BESIDE: [(Figure, Get); 7] = [
    (rate("pmbench", "pmbench's score"), million),
    (latency("allocation p50", "median of the neighbour's allocations"), |o| o.latency[0] / 1e3),
    (latency("allocation p99", "their 99th percentile"), |o| o.latency[1] / 1e3),
    (latency("allocation max", "the longest of them"), |o| o.latency[2] / 1e3),
    (Figure::count("allocations", "how many there were"), |o| o.latency[3]),
    (counter(Item::Allocstall), |o| o.allocstall as f64),
    (counter(Item::PgscanDirect), |o| o.pgscan_direct as f64),
];

/// The scores, what is behind them, and the neighbour.
fn tables(
    runs: &Runs<'_, Bench>,
    plan: &Plan,
    base: Point,
    beside: Point,
) -> Vec<(String, ComparisonTable)> {
    let all = runs.bench.kernels();
    let columns = |kernels: &[Kernel]| kernels.iter().map(|&k| runs.bench.column(k)).collect();
    let samples = |p: Point, get: Get| {
        let kernels: &[Kernel] = if p.neighbour { &Kernel::BESIDE } else { &all };
        let of = |&kernel: &Kernel| {
            let done = |seed| runs.done.get(&Point { kernel, seed, ..p });
            plan.seeds().filter_map(done).map(get).collect()
        };
        kernels.iter().map(of).collect::<Vec<Vec<f64>>>()
    };
    let by_set = |(figure, get): &(Figure, Get)| {
        let row = |&percent: &u64| {
            let row = figure.compared(samples(Point { percent, ..base }, *get));
            Compared { name: times(percent), ..row }
        };
        Section { title: figure.name.to_owned(), figures: plan.percents.iter().map(row).collect() }
    };
    let main =
        ComparisonTable { columns: columns(&all), groups: BY_SET.iter().map(by_set).collect() };
    let beside_it = |(figure, get): &(Figure, Get)| figure.compared(samples(beside, *get));
    let neighbour = ComparisonTable {
        columns: columns(&Kernel::BESIDE),
        groups: vec![Section {
            title: format!("map {} of DRAM", times(beside.percent)),
            figures: BESIDE.iter().map(beside_it).collect(),
        }],
    };
    vec![("pmbench".into(), main), ("beside a neighbour that allocates".into(), neighbour)]
}

/// Our figures beside the seed's.
fn rows(
    runs: &Runs<'_, Bench>,
    plan: &Plan,
    base: Point,
    beside: Point,
    f: &Findings,
) -> Vec<Reproduced> {
    let gains = |kernel, percent, p: Point| {
        runs.gains(&Point { kernel, percent, ..p }, plan.scales.seeds[0])
    };
    let best = plan.percents[f.gains[0].largest().1];
    let (low, high) = judge::LARGEST_GAIN;
    let b = gains(Kernel::B, best, base);
    let mode1 = plan.percents.iter().map(|&percent| gains(Kernel::Mode1, percent, base));
    let most = mode1.max_by(|x, y| stats::mean(x).total_cmp(&stats::mean(y))).unwrap_or_default();
    let limit = stats::mean(&b) * judge::MODE1_SHARE;
    let mut rows = Vec::new();
    let mut row = |name: &str, seed, samples: &[f64], low, high| {
        rows.push(Reproduced::new(name, seed, samples, low, high));
    };
    row("largest gain of mode 2/b over off [%]", Some(SEED_GAIN), &b, None, None);
    let decides = [f.decides()];
    row("the same in the limit of its scale [%]", Some(SEED_GAIN), &decides, Some(low), Some(high));
    row("largest gain of mode 1 over off [%]", None, &most, None, Some(limit));
    let mut shown: Vec<(String, Kernel)> =
        [("mode 2/b", Kernel::B), ("mode 2/a", Kernel::A), ("mode 2 of 6.12", Kernel::Today)]
            .map(|(name, kernel)| (name.to_owned(), kernel))
            .to_vec();
    let all = runs.bench.kernels();
    let further = all.into_iter().filter(|kernel| matches!(kernel, Kernel::Further(_)));
    shown.extend(further.map(|kernel| (runs.bench.column(kernel).replacen('-', " ", 1), kernel)));
    for &percent in plan.percents {
        for &(ref name, kernel) in &shown {
            let name = format!("gain of {name}, map {} of DRAM [%]", times(percent));
            row(&name, None, &gains(kernel, percent, base), None, None);
        }
    }
    let samples = |kernel, get: Get| -> Vec<f64> {
        plan.seeds().map(|seed| get(&runs.done[&Point { kernel, seed, ..beside }])).collect()
    };
    let figures: [(&str, Get); 3] = [
        (Item::Allocstall.name(), |o| o.allocstall as f64),
        (Item::PgscanDirect.name(), |o| o.pgscan_direct as f64),
        ("p99 of an allocation [ns]", |o| o.latency[1]),
    ];
    for (name, get) in figures {
        let off = samples(Kernel::Off, get);
        let mean = stats::mean(&off);
        let (down, up) = (mean * (1.0 - judge::EQUAL), mean * (1.0 + judge::EQUAL));
        row(&format!("neighbour, off: {name}"), None, &off, None, None);
        let b = samples(Kernel::B, get);
        row(&format!("neighbour, mode 2/b: {name}"), None, &b, Some(down), Some(up));
        let a = samples(Kernel::A, get);
        row(&format!("neighbour, mode 2/a: {name}"), None, &a, Some(up), None);
    }
    rows
}

fn caption(runs: &Runs<'_, Bench>, plan: &Plan, best: Point) -> Caption {
    let bench = runs.bench;
    let ramp = |seed| runs.done[&Point { kernel: Kernel::B, seed, ..best }].ramp * 100.0;
    let ramp: Vec<f64> = plan.seeds().map(ramp).collect();
    let mut notes = vec![
        format!(
            "the fast node has {} here; a map of 1.25 x is larger than it by a quarter",
            crate::nodes::size(bench.dram(best.factor))
        ),
        "memory, min_free_kbytes, the run's time and the times that a scan waits shrink alike; \
         latency, bandwidth, threads, costs and bytes scanned a second stay; the 4 ms tick, \
         kswapd's nap and its batches of 32 can't shrink, so that promotion comes in coarser \
         bursts than at full size and the gain grows with the scale"
            .into(),
        format!(
            "the score counts the whole run phase, {:.0} % of which is ramp where the gain is \
             largest (time until the score is 95 % of the last third's)",
            stats::mean(&ramp)
        ),
        "of a run's work every access goes to memory and pays no page walk: caches hold little of \
         such a map, but huge pages or a smaller map would differ"
            .into(),
        "mode 2 of 6.12: the hot threshold is scaled like a scan's times and comes in ticks of 4 \
         ms, so that column is coarse"
            .into(),
        "page selection: the hot threshold is scaled too, and doesn't adapt beyond 1:125, where a \
         sixteenth of it is nothing; the second by which the kernel counts candidates is not, so a \
         limit means little where a run has no few of them"
            .into(),
    ];
    notes.extend(defaults(&bench.machine));
    if let Some(scale) = Factor::new(best.factor).filter(|s| !s.is_as_is()) {
        let small = scaled::machine(&bench.machine, best.factor);
        let version = bench.version(Kernel::Off);
        notes.push(crate::small::amounts(&small, scale, version, bench.margin, &[]));
    }
    Caption {
        wrong: None,
        machine: format!("{}: {}", bench.machine.name, bench.machine.about),
        workload: format!("{}: {}", bench.scenario.name, bench.scenario.about),
        kernel: format!(
            "Linux 5.18's promotion (S1), 6.12's in the last column; page selection: 6.1's, with active \
             and inactive lists; margin {}; {}",
            bench.margin_name(),
            crate::sim::reclaim(
                bench
                    .kernels()
                    .into_iter()
                    .map(|k| { (bench.column(k), bench.version(k), bench.knobs(k)) })
            )
        ),
        scales: vec![Scale { what: "memory and time".into(), factor: best.factor }],
        loops: 1,
        seeds: plan.seeds().collect(),
        notes,
        warnings: Vec::new(),
    }
}
