//! The seed S2: scheduler statistics are off unless somebody asks for them.
//!
//! Each workload runs twice, with statistics on and off; nothing else differs. The table has the gains in per cent,
//! the seed's beside ours.
//!
//! Reading order: [`mod@run`] (one run), [`judge`] (the conclusions), and here the plan and the table.

mod judge;
mod run;
#[cfg(test)]
mod tests;

use super::Asked;
use super::elastic;
use super::experiment::{Figures, Runs, Sensitivity};
use super::vary::What;
use anyhow::{Result, bail};
use homenode_core::costs::Cost;
use homenode_core::sched::frequency::Governor;
use homenode_report::{
    Caption, Compared, ComparisonTable, Figure, Reproduced, Reproduction, Section,
};
use judge::{FEW, Findings, GAINS, MANY, NOTHING, PIPETEST, SOME, Signs};
use run::{Bench, Of, Point, Way, Work};
use serde_json::Value;

/// netperf-tcp of the seed: bytes, and the gain in per cent.
const TCP: [(u32, f64); 9] = [
    (64, 2.77),
    (128, 3.80),
    (256, 3.26),
    (1024, 2.32),
    (2048, 2.46),
    (3312, 1.38),
    (4096, 0.75),
    (8192, 1.10),
    (16_384, 0.42),
];
/// tbench of the seed on 48 CPUs: clients, and the gain. It goes on to 3072.
const TBENCH: [(u32, f64); 11] = [
    (1, 4.31),
    (2, 3.41),
    (4, 1.09),
    (8, 1.40),
    (16, 1.79),
    (32, -1.28),
    (64, 1.63),
    (128, 0.93),
    (256, 1.50),
    (512, 0.99),
    (1024, 0.16),
];
/// The same on eight.
const DESKTOP: [(u32, f64); 10] = [
    (1, 1.39),
    (2, -0.29),
    (4, 1.60),
    (8, 3.19),
    (16, 2.85),
    (32, 2.88),
    (64, 2.31),
    (128, 3.55),
    (256, 3.19),
    (512, -0.89),
];
/// hackbench of the seed: groups, and the gain, of those that are run.
const HACKBENCH: [(u32, f64); 6] =
    [(1, -3.59), (4, 3.84), (12, 6.23), (30, 3.33), (79, 0.43), (192, 0.19)];
/// pipetest of the seed: the gain of the mean.
const PIPETEST_SEED: f64 = 1.91;

/// What is run again with clocks that somebody chooses, and who. The second governor takes a while, so of it there is less.
const CLOCKS: [(Of, Work, Governor); 8] = [
    (Of::Server, Work::Pipetest, Governor::Performance),
    (Of::Server, Work::Pipetest, Governor::PstatePid),
    (Of::Server, Work::TcpStream(64), Governor::Performance),
    (Of::Server, Work::Tbench(1), Governor::Performance),
    (Of::Server, Work::Tbench(1), Governor::PstatePid),
    (Of::Server, Work::Tbench(4), Governor::Performance),
    (Of::Desktop, Work::Tbench(1), Governor::Performance),
    (Of::Desktop, Work::Tbench(1), Governor::PstatePid),
];

/// What is run.
struct Plan {
    small: bool,
    seeds: u64,
    tcp: Vec<u32>,
    udp: Vec<u32>,
    hackbench: Vec<u32>,
    tbench: Vec<u32>,
    desktop: Vec<u32>,
    /// What is run again where somebody chooses clocks, which decides nothing.
    clocks: Vec<(Of, Work, Governor)>,
    /// Constants that are moved.
    constants: Vec<What>,
}

impl Plan {
    fn new(asked: &Asked<'_>, bench: &Bench) -> Result<Self> {
        if asked.machine.is_some() {
            bail!("--machine: schedstats runs on the two machines of the seed");
        }
        if asked.scale.is_some() {
            bail!(
                "--scale: there is nothing in schedstats that could be scaled down; --quick does less"
            );
        }
        let counts = |all: &[(u32, f64)]| all.iter().map(|(n, _)| *n).collect();
        let mut plan = match asked.quick {
            true => Self::small(bench),
            false => Self {
                small: false,
                seeds: 5,
                tcp: counts(&TCP),
                udp: vec![64, 1024, 16_384],
                hackbench: counts(&HACKBENCH),
                tbench: counts(&TBENCH),
                desktop: counts(&DESKTOP),
                clocks: CLOCKS.to_vec(),
                constants: constants(),
            },
        };
        plan.seeds = asked.seeds.unwrap_or(plan.seeds);
        Ok(plan)
    }
    fn small(bench: &Bench) -> Self {
        Self {
            small: true,
            seeds: 1,
            tcp: vec![64, 256, 1024, 4096],
            udp: vec![64, 1024],
            hackbench: vec![1, 12, 79],
            tbench: vec![1, 2, 4, 16, 64],
            desktop: vec![1, 2, 4, 8, 64],
            clocks: Vec::new(),
            constants: elastic::most("schedstats", constants(), bench.machine(Of::Server)),
        }
    }
    /// All that is compared, in the order of the table.
    fn all(&self) -> Vec<(Of, Work)> {
        let server = [Work::Pipetest]
            .into_iter()
            .chain(self.tcp.iter().map(|&n| Work::TcpStream(n)))
            .chain(self.udp.iter().map(|&n| Work::UdpStream(n)))
            .chain([Work::TcpRr, Work::UdpRr])
            .chain(self.hackbench.iter().map(|&n| Work::Hackbench(n)))
            .chain(self.tbench.iter().map(|&n| Work::Tbench(n)))
            .map(|work| (Of::Server, work));
        let desktop = self.desktop.iter().map(|&n| (Of::Desktop, Work::Tbench(n)));
        server.chain(desktop).collect()
    }
    fn seeds_of(&self, work: Work) -> u64 {
        if work.is_drawn() { self.seeds } else { 1 }
    }
}

/// Every constant that the workloads pay.
fn constants() -> Vec<What> {
    let unpaid = [
        Cost::Interrupt,
        Cost::QueueWork,
        Cost::IoSubmit,
        Cost::Fork,
        Cost::Exec,
        Cost::FutexCall,
        Cost::SocketSend,
        Cost::SocketReceive,
        Cost::Syscall,
        // Only machines without idle states have these.
        Cost::WakeIdle,
        Cost::WakeDeep,
    ];
    let paid = |w: &What| !unpaid.iter().any(|&c| *w == What::Cost(c));
    What::of_tasks().into_iter().filter(paid).chain([What::Cost(Cost::WakeCall)]).collect()
}

/// Who chooses clocks in the registered runs.
const NOMINAL: Governor = Governor::Nominal;

/// The points of one workload where somebody chooses clocks: on and off. One seed, as the runs are long.
fn with_clocks(plan: &Plan, of: Of, work: Work, clocks: Governor) -> [Point; 2] {
    let small = plan.small;
    [Way::On, Way::Off].map(|way| Point { work, of, way, clocks, small, vary: None, seed: 1 })
}

/// The points of one workload: on, off, and what decides nothing.
fn points(plan: &Plan, of: Of, work: Work) -> Vec<Point> {
    let small = plan.small;
    let seeds = 1..=plan.seeds_of(work);
    let each = seeds.flat_map(|seed| {
        Way::ALL.map(|way| Point { work, of, way, clocks: NOMINAL, small, vary: None, seed })
    });
    each.collect()
}

impl Runs<'_, Bench> {
    /// By which one way is better than statistics that are on, in per cent, seed by seed.
    fn gains(&self, plan: &Plan, of: Of, work: Work, way: Way) -> Vec<f64> {
        let seeds = 1..=plan.seeds_of(work);
        seeds
            .map(|seed| {
                self.gain(Point {
                    work,
                    of,
                    way,
                    clocks: NOMINAL,
                    small: plan.small,
                    vary: None,
                    seed,
                })
            })
            .collect()
    }
    /// The same of one point.
    fn gain(&self, p: Point) -> f64 {
        let on = self.done[&Point { way: Way::On, ..p }];
        p.work.better().gain(on, self.done[&p]).unwrap_or(f64::NAN)
    }
    /// Whether off and on differ by more than runs do. Runs that are all alike always do.
    fn is_significant(&self, plan: &Plan, of: Of, work: Work) -> bool {
        let figures = |way| -> Vec<f64> {
            let seeds = 1..=plan.seeds_of(work);
            let at = |seed| Point {
                work,
                of,
                way,
                clocks: NOMINAL,
                small: plan.small,
                vary: None,
                seed,
            };
            seeds.map(|seed| self.done[&at(seed)]).collect()
        };
        let p = homenode_report::stats::welch_p(&figures(Way::On), &figures(Way::Off));
        p.is_none_or(|p| p < 0.05)
    }
    fn mean(&self, plan: &Plan, of: Of, work: Work) -> f64 {
        homenode_report::stats::mean(&self.gains(plan, of, work, Way::Off))
    }
}

/// Runs the experiment.
pub(super) fn run(asked: &Asked<'_>) -> Result<Reproduction> {
    let bench = Bench::new()?;
    reproduce(&Plan::new(asked, &bench)?, &bench, asked.jobs)
}

const SIGNS: [Work; 3] = [Work::Pipetest, Work::TcpStream(64), Work::Tbench(1)];

fn moved(
    runs: &mut Runs<'_, Bench>,
    bench: &Bench,
    constants: &[What],
) -> Result<Sensitivity<Signs>> {
    let point = |work, way, vary| Point {
        work,
        of: Of::Server,
        way,
        clocks: NOMINAL,
        small: true,
        vary,
        seed: 1,
    };
    runs.move_each(
        constants,
        bench.machine(Of::Server),
        |v| {
            let each = |work| [Way::On, Way::Off].map(|way| point(work, way, v));
            SIGNS.into_iter().flat_map(each).collect()
        },
        |runs, v| {
            let [pipetest, tcp, tbench] = SIGNS.map(|work| runs.gain(point(work, Way::Off, v)));
            Signs { pipetest, tcp, tbench }
        },
    )
}

fn reproduce(plan: &Plan, bench: &Bench, jobs: usize) -> Result<Reproduction> {
    let mut runs = Runs::new(bench, jobs);
    let all = plan.all();
    runs.ensure("on and off", all.iter().flat_map(|&(of, work)| points(plan, of, work)))?;
    let others = &plan.clocks;
    runs.ensure("clocks", others.iter().flat_map(|&(of, work, g)| with_clocks(plan, of, work, g)))?;
    let moved = moved(&mut runs, bench, &plan.constants)?;

    let gains = |counts: &[u32], of, work: fn(u32) -> Work| -> Vec<(u32, f64)> {
        counts.iter().map(|&n| (n, runs.mean(plan, of, work(n)))).collect()
    };
    let desktop = gains(&plan.desktop, Of::Desktop, Work::Tbench);
    let nothing = all.iter().filter(|(_, work)| is_nothing(*work));
    let findings = Findings {
        pipetest: runs.mean(plan, Of::Server, Work::Pipetest),
        tcp: gains(&plan.tcp, Of::Server, Work::TcpStream),
        tbench: gains(&plan.tbench, Of::Server, Work::Tbench),
        desktop: desktop.into_iter().map(|g| (g, of_seed(&DESKTOP, g.0).unwrap_or(0.0))).collect(),
        nothing: nothing
            .map(|&(of, work)| {
                (work.name(), runs.mean(plan, of, work), runs.is_significant(plan, of, work))
            })
            .collect(),
        moved: moved.moved,
    };
    Ok(Reproduction {
        name: "schedstats".into(),
        machine: bench.machine(Of::Server).name.clone(),
        tables: [Of::Server, Of::Desktop].map(|of| table(&runs, plan, of)).to_vec(),
        surfaces: Vec::new(),
        rows: all
            .iter()
            .map(|&(of, work)| row(&runs, plan, of, work))
            .chain(others.iter().map(|&(of, work, g)| clocks_row(&runs, plan, of, work, g)))
            .collect(),
        conclusions: judge::judge(&findings),
        caption: caption(bench, plan),
        digits: 2,
    })
}

/// Whether the seed found nothing in it, or noise.
const fn is_nothing(work: Work) -> bool {
    match work {
        Work::Hackbench(_) | Work::UdpStream(_) | Work::TcpRr | Work::UdpRr => true,
        Work::Pipetest | Work::TcpStream(_) | Work::Tbench(_) => false,
    }
}

fn of_seed(table: &[(u32, f64)], n: u32) -> Option<f64> {
    table.iter().find(|(of, _)| *of == n).map(|(_, gain)| *gain)
}

/// What was measured, by way.
fn table(runs: &Runs<'_, Bench>, plan: &Plan, of: Of) -> (String, ComparisonTable) {
    let figure = |work: Work| -> Compared {
        let samples = Way::ALL.map(|way| {
            let seeds = 1..=plan.seeds_of(work);
            let value = |seed| {
                runs.done
                    [&Point { work, of, way, clocks: NOMINAL, small: plan.small, vary: None, seed }]
            };
            seeds.map(value).collect()
        });
        let figure = Figure::new("{}", "", work.better(), 3, "a workload's figure");
        figure.compared_of(&format!("{} [{}]", work.name(), work.unit()), samples.to_vec())
    };
    let here = plan.all().into_iter().filter(|(on, _)| *on == of);
    let table = ComparisonTable {
        columns: Way::ALL.iter().map(|w| w.name().to_owned()).collect(),
        groups: vec![Section {
            title: String::new(),
            figures: here.map(|(_, work)| figure(work)).collect(),
        }],
    };
    (of.name().to_owned(), table)
}

/// A gain beside the seed's.
fn row(runs: &Runs<'_, Bench>, plan: &Plan, of: Of, work: Work) -> Reproduced {
    let ours = runs.gains(plan, of, work, Way::Off);
    let noise = is_nothing(work) && !runs.is_significant(plan, of, work);
    let nothing = if noise { (None, None) } else { (Some(-NOTHING), Some(NOTHING)) };
    let (seed, (low, high)) = match (of, work) {
        (_, Work::Pipetest) => (Some(PIPETEST_SEED), (Some(PIPETEST.0), Some(PIPETEST.1))),
        (_, Work::TcpStream(n)) => (of_seed(&TCP, n), ((n <= GAINS).then_some(SOME), None)),
        (_, Work::Hackbench(n)) => (of_seed(&HACKBENCH, n), nothing),
        (_, Work::UdpStream(_) | Work::TcpRr | Work::UdpRr) => (None, nothing),
        (Of::Server, Work::Tbench(n)) if n <= FEW => (of_seed(&TBENCH, n), (Some(SOME), None)),
        (Of::Server, Work::Tbench(n)) => (of_seed(&TBENCH, n), (Some(-MANY), Some(MANY))),
        (Of::Desktop, Work::Tbench(n)) => (of_seed(&DESKTOP, n), (None, None)),
    };
    let where_ = match of {
        _ if noise => ", not significant",
        Of::Server => "",
        Of::Desktop => ", 8 CPUs",
    };
    Reproduced::new(&format!("{}{where_}, gain [%]", work.name()), seed, &ours, low, high)
}

/// A gain where somebody chooses clocks: it decides nothing.
fn clocks_row(
    runs: &Runs<'_, Bench>,
    plan: &Plan,
    of: Of,
    work: Work,
    clocks: Governor,
) -> Reproduced {
    let [_, off] = with_clocks(plan, of, work, clocks);
    let where_ = match of {
        Of::Server => "",
        Of::Desktop => ", 8 CPUs",
    };
    let name = format!("{}{where_}, clocks: {}, gain [%]", work.name(), clocks.name());
    Reproduced::new(&name, None, &[runs.gain(off)], None, None)
}

fn caption(bench: &Bench, plan: &Plan) -> Caption {
    let machine = |of| {
        let m = bench.machine(of);
        format!("{}: {}", m.name, m.about)
    };
    Caption {
        machine: format!("{}; tbench also on {}", machine(Of::Server), machine(Of::Desktop)),
        workload: format!(
            "{}; hackbench, netperf and tbench as in scenarios/, their counts and sizes changed",
            bench.about().about
        ),
        kernel: format!(
            "{}; wake-ups of Linux 4.5; balancing and domains as in 6.12",
            homenode_core::sched::fair::Rules::of(bench.kernel()).name()
        ),
        loops: 1,
        seeds: (1..=plan.seeds).collect(),
        notes: vec![
            "gain: by how much off is better than on; there is no noise, so only what draws something has a spread".into(),
            "the column on-alone decides nothing: each line of statistics that moves is waited for by itself, \
             75 ns of the same socket, 200 ns of the other"
                .into(),
            "no seed's figure was an input".into(),
        ],
        ..Caption::default()
    }
}

impl Figures for Signs {
    const DIGITS: usize = 2;
    const MOST: Option<&'static str> = Some("tbench 1, most");
    /// pipetest's gain.
    fn figure(&self) -> f64 {
        self.pipetest
    }
    fn most(&self) -> f64 {
        self.tbench
    }
    fn wrong(&self) -> Vec<String> {
        judge::wrong(self)
    }
}

/// Moves all constants (`--quick`: those that matter most): JSON, and the page.
pub(super) fn sensitivity(asked: &Asked<'_>) -> Result<(Value, String)> {
    let bench = Bench::new()?;
    let plan = Plan::new(asked, &bench)?;
    let s = moved(&mut Runs::new(&bench, asked.jobs), &bench, &plan.constants)?;
    let head = "# What the cost of scheduler statistics hangs on\n\n\
         Made by `homenode reproduce schedstats --sensitivity`. Each constant that pipetest, netperf's \
         TCP_STREAM with 64 bytes and tbench with one client pay is moved by ±20 %, one at a time; small \
         runs, one seed. Shown is pipetest's gain in per cent with statistics off and, as the largest of both \
         runs, tbench's. *Signs*: all three gain.\n\n"
        .to_owned();
    Ok(s.told(head, "pipetest, −20 %", "pipetest", elastic::names("schedstats")))
}
