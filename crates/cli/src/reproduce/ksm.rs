//! The seed S4: same-page merging with trees per node, and how far the access times of
//! guests on 2, 4 and 8 nodes then lie apart.
//!
//! Guests that have a share of their pages in common are bound to the nodes. Merging
//! across nodes leaves a merged page in one guest's frame, so that one node's guests
//! read it near and all others far; with a tree per node everybody reads at home. The
//! seed gives the deviation of the access times, not the share: it is swept, and the
//! table is made where two nodes deviate by what the seed says.
//!
//! Reading order: [`mod@run`] (one run), [`judge`] (the conclusions),
//! [`mod@sensitivity`] (constants moved), and here the plan and the table.

mod judge;
mod run;
mod sensitivity;
#[cfg(test)]
mod tests;

use super::Asked;
use super::experiment::{Runs, Scales};
use anyhow::{Result, bail};
use homenode_report::{
    Better, Caption, Compared, ComparisonTable, Figure, Reproduced, Reproduction, Scale, Section,
    Surface, stats,
};
use judge::{ByNodes, Findings, Pair, SEED, Way};
use run::{Bench, Bursts, GUESTS, GuestFigures, Hops, IN_ALL, MEMORY, Point, Unmerge};

pub(super) use sensitivity::table as sensitivity;

/// A figure of a run.
type Get = fn(&GuestFigures) -> f64;

/// What is run.
struct Plan {
    scales: Scales,
    /// Shares that are swept, in thousandths.
    shares: &'static [u64],
}

impl Plan {
    fn new(asked: &Asked<'_>) -> Result<Self> {
        if asked.machine.is_some() {
            bail!("--machine: ksm runs on machines of its own, with 2, 4 and 8 nodes");
        }
        let (scales, shares): (_, &[u64]) = if asked.quick {
            (Scales { factors: [512, 1024], seeds: [2, 1], moved: 1024 }, &[25, 100, 400])
        } else {
            let shares = &[10, 25, 50, 100, 200, 400, 800];
            (Scales { factors: [64, 256], seeds: [3, 2], moved: 1024 }, shares)
        };
        let little = "of guests that small no share can be merged that means anything";
        Ok(Self { scales: scales.asked(asked, 1024, little)?, shares })
    }
}

impl Runs<'_, Bench> {
    /// A figure of each seed.
    fn samples(&self, p: &Point, seeds: u64, get: impl Fn(&GuestFigures) -> f64) -> Vec<f64> {
        (1..=seeds).map(|seed| get(&self.done[&Point { seed, ..*p }])).collect()
    }
    fn way(&self, p: &Point, seeds: u64) -> Way {
        let mean = |get: &dyn Fn(&GuestFigures) -> f64| stats::mean(&self.samples(p, seeds, get));
        Way {
            deviation: mean(&GuestFigures::deviation),
            saved: mean(&GuestFigures::saved_percent),
            comparisons: mean(&GuestFigures::each_search),
        }
    }
    /// The machines with unequal hops at a point's share and scale.
    fn row_of_unequal(&self, base: &Point, seeds: u64, hops: Hops) -> ByNodes {
        let pairs = self.bench.unequal.keys().map(|&nodes| {
            let way = |across| self.way(&Point { nodes, across, hops, ..*base }, seeds);
            Pair { nodes, across: way(true), within: way(false) }
        });
        ByNodes { share: base.share, pairs: pairs.collect() }
    }
    /// All machines at a point's share and scale.
    fn row(&self, base: &Point, seeds: u64) -> ByNodes {
        let pairs = self.bench.machines.keys().map(|&nodes| {
            let way = |across| self.way(&Point { nodes, across, ..*base }, seeds);
            Pair { nodes, across: way(true), within: way(false) }
        });
        ByNodes { share: base.share, pairs: pairs.collect() }
    }
    /// The same with as many guests on each machine.
    fn row_of_sixteen(&self, base: &Point, seeds: u64) -> ByNodes {
        let pairs = self.bench.machines.keys().map(|&nodes| {
            let at = Point { nodes, guests: IN_ALL / nodes, ..*base };
            let way = |across| self.way(&Point { across, ..at }, seeds);
            Pair { nodes, across: way(true), within: way(false) }
        });
        ByNodes { share: base.share, pairs: pairs.collect() }
    }
}

/// Points on all machines, both ways, with so many seeds.
fn each(bench: &Bench, base: Point, seeds: u64) -> Vec<Point> {
    let ways = |nodes: usize| [true, false].map(|across| (nodes, across));
    let all = bench.machines.keys().flat_map(|&n| ways(n));
    all.flat_map(|(nodes, across)| {
        (1..=seeds).map(move |seed| Point { nodes, across, seed, ..base })
    })
    .collect()
}

/// The point from which the others differ.
const fn base(factor: u64) -> Point {
    Point {
        factor,
        hops: Hops::Alike,
        nodes: 2,
        guests: GUESTS,
        share: 0,
        across: true,
        vary: None,
        unmerge: None,
        seed: 1,
    }
}

/// Runs the experiment.
pub(super) fn run(asked: &Asked<'_>) -> Result<Reproduction> {
    let plan = Plan::new(asked)?;
    reproduce(&plan, &Bench::new(Bursts::Registered)?, asked.jobs)
}

fn reproduce(plan: &Plan, bench: &Bench, jobs: usize) -> Result<Reproduction> {
    let mut runs = Runs::new(bench, jobs);
    let [seeds, seeds_again] = plan.scales.seeds;
    let [main, again] = plan.scales.factors.map(base);
    let points = plan.shares.iter().flat_map(|&share| each(bench, Point { share, ..main }, seeds));
    runs.ensure("shares", points)?;
    let sweep: Vec<ByNodes> =
        plan.shares.iter().map(|&share| runs.row(&Point { share, ..main }, seeds)).collect();

    let two: Vec<(u64, f64)> =
        sweep.iter().map(|r| (r.share, r.pairs[0].across.deviation)).collect();
    let found = judge::share_at(&two, judge::SEED_TWO);
    // Where it arises nowhere, the table is made in the middle, and a conclusion says so.
    let share = found.map_or(plan.shares[plan.shares.len() / 2], |s| s.round() as u64);
    let (main, again) = (Point { share, ..main }, Point { share, ..again });
    runs.ensure("the table's share", each(bench, main, seeds))?;
    runs.ensure("the other scale", each(bench, again, seeds_again))?;
    let all_sixteen =
        each(bench, main, seeds).into_iter().map(|p| Point { guests: IN_ALL / p.nodes, ..p });
    runs.ensure("16 guests in all", all_sixteen)?;
    let far = [Hops::Measured, Hops::ByDistance];
    let all_far = far.iter().flat_map(|&hops| {
        let on =
            move |&nodes: &usize| [true, false].map(|across| Point { hops, nodes, across, ..main });
        bench.unequal.keys().flat_map(on)
    });
    let all_far = all_far.flat_map(|p| (1..=seeds).map(move |seed| Point { seed, ..p }));
    runs.ensure("unequal hops", all_far)?;
    let apart = Unmerge::ALL.map(|unmerge| Point { unmerge: Some(unmerge), ..main });
    let on_all = |p: Point| bench.machines.keys().map(move |&nodes| Point { nodes, ..p });
    runs.ensure("unmerged", apart.into_iter().flat_map(on_all))?;
    let at = Point { factor: plan.scales.moved, ..main };
    let moved = sensitivity::run(&mut runs, at, &sensitivity::most_elastic(bench))?;
    let moved_surface = sensitivity::surface(&moved, at);

    let findings = Findings {
        found,
        table: vec![
            (main.factor, runs.row(&main, seeds)),
            (again.factor, runs.row(&again, seeds_again)),
        ],
        sweep,
        sixteen: runs.row_of_sixteen(&main, seeds),
        unequal: runs.row_of_unequal(&main, seeds, Hops::Measured),
        moved: moved.moved,
    };
    Ok(Reproduction {
        name: "ksm".into(),
        machine: "xeon-e7-2, xeon-e7-4, xeon-e7-8".into(),
        tables: vec![(
            format!("share of merged pages {}", percent(share)),
            table(&runs, &main, seeds),
        )],
        surfaces: vec![
            deviations(&findings.sweep),
            saved(&findings.sweep),
            sixteen(&findings.sixteen),
            unequal(bench, &far.map(|hops| (hops, runs.row_of_unequal(&main, seeds, hops)))),
            unmerged(&runs, &apart),
            moved_surface,
        ],
        rows: rows(&runs, &main, seeds),
        conclusions: judge::judge(&findings),
        caption: caption(&runs, plan, &main),
        digits: 3,
    })
}

/// Thousandths as per cent.
fn percent(share: u64) -> String {
    format!("{:.1} %", share as f64 / 10.0)
}

/// A figure by share, nodes and knob.
fn surface(sweep: &[ByNodes], title: &str, get: fn(&Way) -> f64, digits: usize) -> Surface {
    let pairs = sweep.first().map(|r| r.pairs.as_slice()).unwrap_or_default();
    let column = |knob: u8| pairs.iter().map(move |p| format!("{} nodes, {knob}", p.nodes));
    let cells = |r: &ByNodes| {
        let across = r.pairs.iter().map(|p| get(&p.across));
        across.chain(r.pairs.iter().map(|p| get(&p.within))).collect()
    };
    Surface {
        title: title.to_owned(),
        rows: sweep.iter().map(|r| percent(r.share)).collect(),
        columns: column(1).chain(column(0)).collect(),
        cells: sweep.iter().map(cells).collect(),
        seed: None,
        digits,
    }
}

fn deviations(sweep: &[ByNodes]) -> Surface {
    let title = "deviation of the guests' access times [%] by share of merged pages, nodes and \
                 merge_across_nodes";
    Surface { seed: Some(judge::SEED_TWO), ..surface(sweep, title, |w| w.deviation, 3) }
}

fn saved(sweep: &[ByNodes]) -> Surface {
    surface(sweep, "memory saved [% of all guests'], likewise", |w| w.saved, 2)
}

/// Columns of a surface beside the seed's figures.
const BESIDE: [&str; 6] =
    ["1 [%]", "seed's 1", "0 [%]", "seed's 0", "saved, 1 [%]", "saved, 0 [%]"];

/// A row of such a surface.
fn beside(p: &Pair) -> Vec<f64> {
    let seed = SEED.iter().find(|s| s.0 == p.nodes).map_or((f64::NAN, f64::NAN), |s| (s.1, s.2));
    let (across, within) = (&p.across, &p.within);
    vec![across.deviation, seed.0, within.deviation, seed.1, across.saved, within.saved]
}

/// Machines with unequal hops, beside the seed's figures.
fn unequal(bench: &Bench, rows: &[(Hops, ByNodes)]) -> Surface {
    let all = || rows.iter().flat_map(|(hops, row)| row.pairs.iter().map(move |p| (hops, p)));
    let names: Vec<&str> = bench.unequal.values().map(|m| m.name.as_str()).collect();
    let share = rows.first().map_or(0, |(_, row)| row.share);
    Surface {
        title: format!(
            "unequal hops ({}): deviation of the guests' access times by nodes and \
             merge_across_nodes, and memory saved; share of merged pages {}",
            names.join(", "),
            percent(share)
        ),
        rows: all().map(|(hops, p)| format!("{} nodes, {}", p.nodes, hops.name())).collect(),
        columns: BESIDE.map(str::to_owned).to_vec(),
        cells: all().map(|(_, p)| beside(p)).collect(),
        seed: None,
        digits: 3,
    }
}

/// One number of guests on all machines, beside the seed's figures.
fn sixteen(row: &ByNodes) -> Surface {
    Surface {
        title: format!(
            "{IN_ALL} guests in all: deviation of their access times by nodes and \
             merge_across_nodes, and memory saved; share of merged pages {}",
            percent(row.share)
        ),
        rows: row.pairs.iter().map(|p| format!("{} nodes", p.nodes)).collect(),
        columns: BESIDE.map(str::to_owned).to_vec(),
        cells: row.pairs.iter().map(beside).collect(),
        seed: None,
        digits: 3,
    }
}

/// Where the image's pages lie once they are unmerged, and how fast they then are.
fn unmerged(runs: &Runs<'_, Bench>, apart: &[Point]) -> Surface {
    let nodes: Vec<usize> = runs.bench.machines.keys().copied().collect();
    let all = |p: &Point, get: Get| -> Vec<f64> {
        nodes.iter().map(|&nodes| get(&runs.done[&Point { nodes, ..*p }])).collect()
    };
    let figures: [(&str, Get); 3] = [
        ("home %", |o| o.at_home / 10.0),
        ("node 0 %", |o| o.at_first / 10.0),
        ("ns", |o| stats::mean(&o.times)),
    ];
    let columns = figures.iter().flat_map(|f| nodes.iter().map(move |n| format!("{n}: {}", f.0)));
    let name = |p: &Point| p.unmerge.map_or("", Unmerge::name).to_owned();
    Surface {
        title: "the image's pages after unmerging, by nodes: on the guest's own node, on node 0 \
                where 2 is written to run, and the time of an access"
            .into(),
        rows: apart.iter().map(name).collect(),
        columns: columns.collect(),
        cells: apart.iter().map(|p| figures.iter().flat_map(|f| all(p, f.1)).collect()).collect(),
        seed: None,
        digits: 1,
    }
}

const fn nanoseconds(name: &'static str, about: &'static str) -> Figure {
    Figure::new(name, "ns", Better::Lower, 2, about)
}

const fn search(name: &'static str, about: &'static str) -> Figure {
    Figure::new(name, "", Better::Lower, 2, about)
}

const DEVIATION: Figure =
    Figure::new("deviation", "%", Better::Lower, 3, "of the guests' access times, by their mean");
const SAVED: Figure =
    Figure::new("memory saved, of all guests'", "%", Better::Higher, 2, "what merging saves");
const KSMD: Figure =
    Figure::new("ksmd, of one CPU", "‰", Better::Neither, 1, "while access times are taken");

/// What the table shows, by number of nodes.
const FIGURES: [(Figure, Get); 9] = [
    (DEVIATION, GuestFigures::deviation),
    (nanoseconds("access, mean of the guests", "mean time of an access"), |o| {
        stats::mean(&o.times)
    }),
    (nanoseconds("access, nearest guest", "the same of the fastest guest"), |o| {
        o.times.iter().copied().fold(f64::INFINITY, f64::min)
    }),
    (nanoseconds("access, farthest guest", "the same of the slowest guest"), |o| {
        o.times.iter().copied().fold(0.0, f64::max)
    }),
    (SAVED, GuestFigures::saved_percent),
    (search("comparisons of a search", "mean depth of ksmd's trees"), GuestFigures::each_search),
    (search("comparisons of a search of a stable tree", "of merged pages"), |o| {
        o.each_search_of(0)
    }),
    (search("comparisons of a search of an unstable tree", "of candidates"), |o| {
        o.each_search_of(1)
    }),
    (KSMD, |o| o.ksmd),
];

/// What is behind the deviations, at the table's share.
fn table(runs: &Runs<'_, Bench>, p: &Point, seeds: u64) -> ComparisonTable {
    let section = |(figure, get): &(Figure, Get)| {
        let row = |&nodes: &usize| {
            let of = |across| runs.samples(&Point { nodes, across, ..*p }, seeds, get);
            let row = figure.compared([true, false].map(of).to_vec());
            Compared { name: format!("{nodes} nodes"), ..row }
        };
        let figures = runs.bench.machines.keys().map(row).collect();
        Section { title: figure.name.to_owned(), figures }
    };
    ComparisonTable {
        columns: vec!["across-1".into(), "across-0".into()],
        groups: FIGURES.iter().map(section).collect(),
    }
}

/// Our figures beside the seed's.
fn rows(runs: &Runs<'_, Bench>, p: &Point, seeds: u64) -> Vec<Reproduced> {
    let row = |nodes: usize, across: bool, seed: f64| {
        let knob = u8::from(across);
        let name = format!("deviation, merge_across_nodes={knob}, {nodes} nodes [%]");
        let ours = runs.samples(&Point { nodes, across, ..*p }, seeds, GuestFigures::deviation);
        Reproduced::new(&name, Some(seed), &ours, None, None)
    };
    let across = SEED.iter().map(|&(nodes, seed, _)| row(nodes, true, seed));
    across.chain(SEED.iter().map(|&(nodes, _, seed)| row(nodes, false, seed))).collect()
}

fn caption(runs: &Runs<'_, Bench>, plan: &Plan, p: &Point) -> Caption {
    let machine = runs.bench.largest();
    let names: Vec<&str> = runs.bench.machines.values().map(|m| m.name.as_str()).collect();
    Caption {
        wrong: None,
        machine: format!("{}; the last one is {}", names.join(", "), machine.about),
        workload: format!(
            "{}: {}; {GUESTS} guests a node of {} each at full size",
            runs.bench.scenario.name,
            runs.bench.scenario.about,
            crate::nodes::size(MEMORY)
        ),
        kernel: "Linux 3.8 with the seed's series; ksmd as it boots, 100 pages every 20 ms".into(),
        scales: vec![Scale { what: "memory".into(), factor: p.factor }],
        loops: 1,
        seeds: (1..=plan.scales.seeds[0]).collect(),
        notes: vec![
            "the share of merged pages is read off the surface: the seed does not give it; its \
             2 nodes, merge_across_nodes=1 agree by that choice and by nothing else"
                .into(),
            "all pages of the image end in frames of one node, that of the guest which ksmd \
             visits second: its guests read them near, all others far"
                .into(),
            "what is left with merge_across_nodes=0 comes from ksmd alone: it reads pages, which \
             loads its memory's node, displaces lines of its CPU's last-level cache, and takes \
             processor time where no CPU is idle (specs/ksm.md, section 16); all nodes' latencies \
             are alike here, and no two real ones are: see unequal hops"
                .into(),
            "ksmd's rate stays while memory shrinks: it comes round more often than at full size"
                .into(),
        ],
        warnings: Vec::new(),
    }
}
