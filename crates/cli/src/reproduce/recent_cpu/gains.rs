//! What the seed measured: which runs, and the tables of them.

use super::judge::{EXT4, Gains, HACKBENCH, MORE, ONE, One, RR, TWO, mean_of};
use super::loads::{Came, Cpus, HALF, Load, Loads, Point};
use super::run::Patch;
use crate::reproduce::Asked;
use crate::reproduce::elastic;
use crate::reproduce::experiment::{Runs, Sensitivity};
use crate::reproduce::vary::{Vary, What};
use anyhow::Result;
use homenode_report::{Better, ComparisonTable, Figure, Reproduced, Section, Surface, stats};

/// dbench on XFS of the seed: clients, and the gain in per cent.
const XFS: [(u32, f64); 5] = [(1, 184.14), (2, 40.46), (4, -8.35), (8, 0.63), (64, -1.44)];
/// dbench on XFS of the patch of 2020, on eight CPUs: clients, and by how much less time a loadfile takes.
const QUEUES: [(u32, f64); 4] = [(1, 10.24), (2, 9.40), (4, 2.51), (8, 0.0)];
/// netperf RR of the seed: "roughly 10 %".
const NETPERF: f64 = 10.0;
/// hackbench of the seed: the middle of "6-11 %".
const HACKBENCH_SEED: f64 = 8.5;
/// Thresholds at which the rule that has one is shown, in thousandths.
const THRESHOLDS: [u16; 7] = [50, 100, 150, 200, 300, HALF, 700];

/// What is run.
pub(super) struct Plan {
    pub(super) small: bool,
    pub(super) seeds: u64,
    pub(super) clients: Vec<u32>,
    pub(super) groups: Vec<u32>,
    /// Clients of the check.
    pub(super) check: Vec<u32>,
    pub(super) thresholds: Vec<u16>,
    pub(super) constants: Vec<What>,
}

impl Plan {
    pub(super) fn new(asked: &Asked<'_>, loads: &Loads) -> Self {
        let (small, seeds) = if asked.quick { (true, 1) } else { (false, 5) };
        Self {
            small,
            seeds: asked.seeds.unwrap_or(seeds),
            clients: XFS.map(|(n, _)| n).to_vec(),
            groups: vec![1, 2, 4, 8],
            check: QUEUES.map(|(n, _)| n).to_vec(),
            thresholds: THRESHOLDS.to_vec(),
            constants: if small {
                elastic::most("recent-cpu", What::of_clients(), &loads.machine)
            } else {
                What::of_clients()
            },
        }
    }
    /// All that decides, in the order of the table.
    fn loads(&self) -> Vec<Load> {
        let xfs = self.clients.iter().map(|&n| Load::Xfs(n));
        let hackbench = self.groups.iter().map(|&n| Load::Hackbench(n));
        let check = self.check.iter().map(|&n| Load::Queues(n));
        xfs.chain([Load::Ext4, Load::UdpRr, Load::TcpRr]).chain(hackbench).chain(check).collect()
    }
    fn seeds_of(&self, load: Load) -> std::ops::RangeInclusive<u64> {
        1..=if load.is_drawn() { self.seeds } else { 1 }
    }
    fn point(&self, load: Load, patch: Patch, cpus: Cpus, seed: u64) -> Point {
        Point { load, patch, cpus, small: self.small, vary: None, seed }
    }
    fn points(&self, load: Load, cpus: Cpus) -> Vec<Point> {
        let both = |seed| BOTH.map(|patch| self.point(load, patch, cpus, seed));
        self.seeds_of(load).flat_map(both).collect()
    }
}

const BOTH: [Patch; 2] = [Patch::Without, Patch::With];

impl Runs<'_, Loads> {
    fn gain(&self, p: Point) -> f64 {
        let of = |patch| self.done[&Point { patch, ..p }].value;
        let better = p.load.better();
        better.gain(of(Patch::Without), of(Patch::With)).unwrap_or(f64::NAN)
    }
    /// By seed.
    fn gains(&self, plan: &Plan, load: Load, cpus: Cpus) -> Vec<f64> {
        let at = |seed| self.gain(plan.point(load, Patch::With, cpus, seed));
        plan.seeds_of(load).map(at).collect()
    }
    /// The mean of a figure.
    fn mean(&self, plan: &Plan, (load, patch, cpus): (Load, Patch, Cpus), get: Get) -> f64 {
        let at = |seed| get(&self.done[&plan.point(load, patch, cpus, seed)]);
        stats::mean(&plan.seeds_of(load).map(at).collect::<Vec<_>>())
    }
}

/// A figure of a run.
type Get = fn(&Came) -> f64;

/// What is shown of it.
pub(super) struct Shown {
    pub(super) table: (String, ComparisonTable),
    pub(super) surfaces: Vec<Surface>,
    pub(super) rows: Vec<Reproduced>,
    pub(super) found: Gains,
}

/// Moves each constant.
pub(super) fn moved(
    runs: &mut Runs<'_, Loads>,
    loads: &Loads,
    plan: &Plan,
) -> Result<Sensitivity<One>> {
    let point = |patch, vary: Option<Vary>| Point {
        vary,
        small: true,
        ..plan.point(Load::Xfs(1), patch, Cpus::DECIDES, 1)
    };
    runs.move_each(
        &plan.constants,
        &loads.machine,
        |v| BOTH.map(|patch| point(patch, v)).to_vec(),
        |runs, v| {
            let with = point(Patch::With, v);
            One { gain: runs.gain(with), mhz: runs.done[&with].mhz }
        },
    )
}

/// Runs all of it.
pub(super) fn run(plan: &Plan, loads: &Loads, jobs: usize) -> Result<Shown> {
    let mut runs = Runs::new(loads, jobs);
    let all = plan.loads();
    let decide = all.iter().flat_map(|&load| plan.points(load, Cpus::DECIDES));
    runs.ensure("dbench, netperf, hackbench", decide)?;
    let one = Load::Xfs(1);
    let beside = Cpus::BESIDE.into_iter().chain(plan.thresholds.iter().map(|&t| Cpus::at(t)));
    runs.ensure("other clocks", beside.flat_map(|cpus| plan.points(one, cpus)))?;
    let moved = moved(&mut runs, loads, plan)?;

    let gain = |load| stats::mean(&runs.gains(plan, load, Cpus::DECIDES));
    let of = |counts: &[u32], load: fn(u32) -> Load| -> Vec<(u32, f64)> {
        counts.iter().map(|&n| (n, gain(load(n)))).collect()
    };
    let found = Gains {
        xfs: of(&plan.clients, Load::Xfs),
        ext4: gain(Load::Ext4),
        rr: [Load::UdpRr, Load::TcpRr].map(|load| (load.name(), gain(load))).to_vec(),
        hackbench: of(&plan.groups, Load::Hackbench),
        moved: moved.moved,
    };
    Ok(Shown {
        table: ("what the seed measured".into(), table(&runs, plan)),
        surfaces: vec![parts(&runs, plan), thresholds(&runs, plan)],
        rows: rows(&runs, plan, &found),
        found,
    })
}

fn table(runs: &Runs<'_, Loads>, plan: &Plan) -> ComparisonTable {
    let samples = |load: Load, get: Get| -> Vec<Vec<f64>> {
        let of = |patch| {
            let at = |seed| get(&runs.done[&plan.point(load, patch, Cpus::DECIDES, seed)]);
            plan.seeds_of(load).map(at).collect()
        };
        BOTH.map(of).to_vec()
    };
    let mut figures = Vec::new();
    for load in plan.loads() {
        let figure = Figure::new("{}", "", load.better(), 2, "a load's figure");
        let name = format!("{} [{}]", load.name(), load.unit());
        figures.push(figure.compared_of(&name, samples(load, |c| c.value)));
        if let Load::Xfs(_) | Load::Ext4 | Load::Queues(_) = load {
            let mhz = Figure::new("  {}", "", Better::Neither, 0, "mean clock while busy");
            figures.push(mhz.compared_of("clock [MHz]", samples(load, |c| c.mhz)));
            let moves = Figure::new("  {}", "", Better::Neither, 1, "of the clients");
            let title = "migrations of 100 wake-ups";
            figures.push(moves.compared_of(title, samples(load, |c| c.migrations)));
        }
    }
    ComparisonTable {
        columns: BOTH.iter().map(|p| p.name().to_owned()).collect(),
        groups: vec![Section { title: String::new(), figures }],
    }
}

/// One line of a surface: dbench with one client.
fn line(runs: &Runs<'_, Loads>, plan: &Plan, cpus: Cpus) -> Vec<f64> {
    let load = Load::Xfs(1);
    let of = |patch, get: Get| runs.mean(plan, (load, patch, cpus), get);
    let gain = stats::mean(&runs.gains(plan, load, cpus));
    let values = BOTH.map(|patch| of(patch, |c| c.value));
    let clocks = BOTH.map(|patch| of(patch, |c| c.mhz));
    values.into_iter().chain([gain]).chain(clocks).collect()
}

fn columns() -> Vec<String> {
    ["MB/s without", "MB/s with", "gain, %", "MHz without", "MHz with"].map(str::to_owned).to_vec()
}

/// By whom the clocks are chosen, with and without idle states that cost.
fn parts(runs: &Runs<'_, Loads>, plan: &Plan) -> Surface {
    let all: Vec<Cpus> = [Cpus::DECIDES].into_iter().chain(Cpus::BESIDE).collect();
    Surface {
        title: "dbench XFS-like, 1 client, by what chooses clocks".into(),
        rows: all.iter().map(|cpus| cpus.name()).collect(),
        columns: columns(),
        cells: all.iter().map(|&cpus| line(runs, plan, cpus)).collect(),
        seed: None,
        digits: 0,
    }
}

/// By the threshold of the rule that has one.
fn thresholds(runs: &Runs<'_, Loads>, plan: &Plan) -> Surface {
    Surface {
        title:
            "dbench XFS-like, 1 client, hwp-threshold, by the busy share from which on it goes up"
                .into(),
        rows: plan.thresholds.iter().map(|&t| format!("{:.2}", f64::from(t) / 1000.0)).collect(),
        columns: columns(),
        cells: plan.thresholds.iter().map(|&t| line(runs, plan, Cpus::at(t))).collect(),
        seed: None,
        digits: 0,
    }
}

/// The gains beside the seed's.
fn rows(runs: &Runs<'_, Loads>, plan: &Plan, found: &Gains) -> Vec<Reproduced> {
    let row = |load: Load, seed: Option<f64>, low: Option<f64>, high: Option<f64>| {
        let ours = runs.gains(plan, load, Cpus::DECIDES);
        Reproduced::new(&format!("{}, gain [%]", load.name()), seed, &ours, low, high)
    };
    let mut rows = Vec::new();
    for &n in &plan.clients {
        let seed = XFS.iter().find(|(of, _)| *of == n).map(|(_, gain)| *gain);
        let (low, high) = match n {
            1 => (Some(ONE), None),
            2 => (Some(TWO.0), Some(TWO.1)),
            _ => (Some(-MORE), Some(MORE)),
        };
        rows.push(row(Load::Xfs(n), seed, low, high));
        if n == 1 {
            for cpus in Cpus::BESIDE {
                let name = format!("  the same, {}, gain [%]", cpus.name());
                let ours = runs.gains(plan, Load::Xfs(1), cpus);
                rows.push(Reproduced::new(&name, None, &ours, None, None));
            }
        }
    }
    rows.push(row(Load::Ext4, None, None, Some(EXT4)));
    for load in [Load::UdpRr, Load::TcpRr] {
        rows.push(row(load, Some(NETPERF), Some(RR.0), Some(RR.1)));
    }
    let (low, high) = (Some(HACKBENCH.0), Some(HACKBENCH.1));
    let mean = [mean_of(&found.hackbench)];
    rows.push(Reproduced::new("hackbench, mean gain [%]", Some(HACKBENCH_SEED), &mean, low, high));
    rows.extend(plan.groups.iter().map(|&n| row(Load::Hackbench(n), None, None, None)));
    let published = |n| QUEUES.iter().find(|(of, _)| *of == n).map(|(_, gain)| *gain);
    rows.extend(plan.check.iter().map(|&n| row(Load::Queues(n), published(n), None, None)));
    rows
}
