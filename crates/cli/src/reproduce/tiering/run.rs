//! One run of the experiment: from a point of the plan to its figures.

use super::scaled;
use crate::contender::{Contender, Contenders};
use crate::homenode::Runner;
use crate::reproduce::experiment;
use crate::reproduce::vary::Vary;
use anyhow::{Context, Result, bail};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{Margin, Pattern, Scenario, Step, TouchOrder, Until};
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, NodeId, PAGE_SIZE};
use homenode_sim::vmstat::Item;
use homenode_sim::{PhaseFigures, Setup, Simulation};
use std::collections::BTreeMap;
use std::path::Path;

/// Which kernel with which balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kernel {
    /// `numa_balancing` 0.
    Off,
    /// 1: between nodes, without tiering.
    Mode1,
    /// 2, promotions stop above high: the seed's choice.
    B,
    /// 2, promotions ignore the marks: the choice that the seed turns down.
    A,
    /// 2 with the rules of 6.12: hot threshold, rate limit, free-space shortcut.
    Today,
    /// 2 of 6.1 without its page selection: any page that is used is promoted.
    Base,
    /// With hot page selection: of 6.1's rules the threshold, as it boots, and no limit.
    Hot,
    /// And so much a second at most.
    Limited,
    /// And with a threshold that follows this limit.
    Adjusted,
    /// A column that was asked for beside the plan's, by its place among those.
    Further(usize),
}

impl Kernel {
    /// Whose gains are judged, also while a constant is moved.
    pub(super) const GAINS: [Self; 4] = [Self::Off, Self::Mode1, Self::B, Self::A];
    /// Which run beside the neighbour.
    pub(super) const BESIDE: [Self; 3] = [Self::Off, Self::B, Self::A];
    /// All of the plan's, in the order of the columns.
    pub(super) const PLANNED: [Self; 5] = [Self::Off, Self::Mode1, Self::B, Self::A, Self::Today];
    /// The page-selection series, each with what those before it have.
    pub(super) const SELECTION: [Self; 4] = [Self::Base, Self::Hot, Self::Limited, Self::Adjusted];
    /// Its column, split into two header rows at the first `-`, and the kernel as
    /// `--columns` has it.
    const fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Off => ("off-5.18", "off@5.18+hot_page_selection=false"),
            Self::Mode1 => ("mode 1-5.18", "mode1@5.18+hot_page_selection=false"),
            Self::B => ("mode 2/b-5.18", "mode2@5.18+hot_page_selection=false+admission=b"),
            Self::A => ("mode 2/a-5.18", "mode2@5.18+hot_page_selection=false+admission=a"),
            Self::Today => ("mode 2-6.12", "mode2@6.12"),
            Self::Base => ("base-6.1", "mode2@6.1+lru_gen=0+hot_page_selection=false"),
            Self::Hot => ("hot selection-6.1", "mode2@6.1+lru_gen=0+adjust_hot_threshold=false"),
            Self::Limited => (
                "rate limit-6.1",
                "mode2@6.1+lru_gen=0+adjust_hot_threshold=false+promote_rate_limit_MBps=82",
            ),
            Self::Adjusted => {
                ("auto adjustment-6.1", "mode2@6.1+lru_gen=0+promote_rate_limit_MBps=82")
            }
            // Its own column says it.
            Self::Further(_) => ("", ""),
        }
    }
}

/// Orders of the first touch, and what they are called; the registered one first.
pub(super) const TOUCHES: [(TouchOrder, &str); 3] = [
    (TouchOrder::Linear, "linear"),
    (TouchOrder::MiddleFirst, "middle-first"),
    (TouchOrder::Scattered, "scattered"),
];

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    /// Original sizes over ours.
    pub(super) factor: u64,
    pub(super) kernel: Kernel,
    /// The map in hundredths of the fast node.
    pub(super) percent: u64,
    /// How wide the distribution is: normal, with a deviation of one `n`-th of the map; else
    /// as the scenario has it, pmbench's `normal_ih`.
    pub(super) width: Option<u32>,
    /// As a place in [`TOUCHES`].
    pub(super) touch: usize,
    /// With the allocating neighbour beside.
    pub(super) neighbour: bool,
    /// A constant of the machine or the workload that is moved.
    pub(super) vary: Option<Vary>,
    pub(super) seed: u64,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scored {
    /// pmbench's score: accesses a second after the first touch.
    pub(super) score: f64,
    /// Share of these in the fast tier.
    pub(super) fast: f64,
    pub(super) promoted: u64,
    pub(super) allocstall: u64,
    pub(super) pgscan_direct: u64,
    /// Of the neighbour's allocations, in ns: median, 99th percentile, largest, count.
    pub(super) latency: [f64; 4],
    /// Share of the run until the score first reached 95 % of that of the last third.
    pub(super) ramp: f64,
    /// Accesses a second in the last third of the run.
    pub(super) late: f64,
    /// What was promoted in the main part, in MB/s.
    pub(super) rate: f64,
}

/// What all runs have in common.
pub(super) struct Bench {
    pub(super) machine: Hardware,
    pub(super) scenario: Scenario,
    pub(super) margin: Margin,
    /// Whether the machine and its margin are those of the plan.
    pub(super) registered: bool,
    /// The columns, the plan's first.
    contenders: BTreeMap<Kernel, Contender>,
}

/// Parts of a run in which the score is watched for its ramp.
const WINDOWS: usize = 60;

impl Bench {
    /// The registered experiment, on its own machine or another.
    ///
    /// # Errors
    /// A machine's file that can't be read, or a machine on which it can't run.
    pub(super) fn new(
        machine: Option<&Path>,
        margin: Margin,
        further: &[Contender],
    ) -> Result<Self> {
        let registered = machine.is_none() && margin == Margin::Kernel;
        let machine = match machine {
            Some(path) => homenode_config::read_machine(path)?,
            None => homenode_config::parse_machine(
                "machines/cascade-lake-pmem.toml",
                include_str!("../../../../../machines/cascade-lake-pmem.toml"),
            )?,
        };
        let file = homenode_config::parse_scenario(
            "scenarios/reproduce/tiering.toml",
            include_str!("../../../../../scenarios/reproduce/tiering.toml"),
        )?;
        file.check(&machine)
            .with_context(|| format!("the machine {} can't run the experiment", machine.name))?;
        let mut contenders = BTreeMap::new();
        for kernel in Kernel::PLANNED.into_iter().chain(Kernel::SELECTION) {
            let (name, text) = kernel.told();
            let planned = Contenders::with(&[]).one(text)?;
            contenders.insert(kernel, Contender { name: name.to_owned(), ..planned });
        }
        for (i, column) in further.iter().enumerate() {
            contenders.insert(Kernel::Further(i), column.clone().on(&machine)?);
        }
        let bench = Self { machine, scenario: file.scenario, margin, registered, contenders };
        let tiers = Tiers::new(&bench.machine, Firmware::Hmat, bench.version(Kernel::Off));
        let fast = bench.fast();
        let slow = bench.machine.nodes.iter().filter(|n| n.managed().0 > 0 && !tiers.is_top(n.id));
        if bench.dram(1).0 == 0 || slow.count() == 0 {
            bail!(
                "the machine {} has no slow node beside node {fast} to promote from; the experiment \
                 needs one",
                bench.machine.name
            );
        }
        Ok(bench)
    }
    /// All columns of the tables by the size of the map, the plan's first.
    pub(super) fn kernels(&self) -> Vec<Kernel> {
        let all = self.contenders.keys().copied();
        all.filter(|kernel| !Kernel::SELECTION.contains(kernel)).collect()
    }
    /// A column's name.
    pub(super) fn column(&self, kernel: Kernel) -> String {
        self.contenders[&kernel].name.clone()
    }
    /// Whose rules a column has.
    pub(super) fn version(&self, kernel: Kernel) -> KernelVersion {
        self.contenders[&kernel].version.unwrap_or_default()
    }
    /// A column's own knobs.
    pub(super) fn knobs(&self, kernel: Kernel) -> &[crate::knobs::Setting] {
        &self.contenders[&kernel].knobs
    }
    /// What the margin is called.
    pub(super) const fn margin_name(&self) -> &'static str {
        match self.margin {
            Margin::SeedQuarter => "high/4, the seed's example",
            Margin::PostedQuarter => "max(10 MiB, high/4), as posted; the 10 MiB are not scaled",
            Margin::Kernel => "the marks' own distance, as merged",
        }
    }
    /// The node of the first CPU that pmbench runs on.
    pub(super) fn fast(&self) -> NodeId {
        let cpu = self.scenario.processes[0].cpus[0];
        self.machine.cpus.iter().find(|c| c.id == cpu).map_or(NodeId(0), |c| c.node)
    }
    /// The fast node's size at a factor.
    pub(super) fn dram(&self, factor: u64) -> Bytes {
        let m = scaled::machine(&self.machine, factor);
        m.position(self.fast()).map_or(Bytes(0), |p| m.nodes[p].size())
    }
    /// Hardware, scenario and setup of a point.
    pub(super) fn prepare(&self, p: &Point) -> Result<(Hardware, Scenario, Setup)> {
        let mut machine = self.machine.clone();
        let mut scenario = self.scenario.clone();
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        if !p.neighbour {
            scenario.processes.truncate(1);
        }
        for process in &mut scenario.processes {
            *process = scaled::process(process, p.factor);
        }
        let size = self.dram(p.factor).0 * p.percent / 100 / PAGE_SIZE * PAGE_SIZE;
        let pmbench = &mut scenario.processes[0];
        for map in &mut pmbench.maps {
            map.size = Bytes(size);
        }
        for step in &mut pmbench.steps {
            match step {
                Step::Access { pattern, until, .. } => {
                    if let Until::Accesses(n) = until {
                        *n = (size / PAGE_SIZE).saturating_sub(1).max(1);
                    }
                    if let Some(n) = p.width {
                        *pattern = Pattern::Gauss { sd: (1000 + n / 2) / n };
                    }
                }
                Step::Initialize { order, .. } => *order = TOUCHES[p.touch].0,
                _ => {}
            }
        }
        let mut shared = Setup::of(&scenario);
        shared.seed = p.seed;
        shared.model.margin = self.margin;
        shared.scale =
            Scale::new(p.factor).with_context(|| format!("a machine of 1:{} is none", p.factor))?;
        let contender = &self.contenders[&p.kernel];
        let setup = contender.setup(&shared, &[])?;
        let scenario = contender.scenario(&scenario).into_owned();
        Ok((scaled::machine(&machine, p.factor), scenario, setup))
    }
}

impl experiment::Bench for Bench {
    const NAME: &'static str = "tiering";
    type Point = Point;
    type Answer = Scored;
    fn length(p: &Point) -> (u64, u64) {
        (p.factor, p.percent)
    }
    fn label(p: &Point) -> String {
        format!("seed {}", p.seed)
    }
    fn run(&self, p: &Point) -> Result<Scored> {
        let (machine, scenario, setup) = self.prepare(p)?;
        let sim = Simulation::new(&machine, &scenario, &setup)?;
        let mut runner = Runner::new(sim, &self.contenders[&p.kernel], &setup)?;
        let (main, run_time) = main_part(&scenario);
        // Windows of the main part, which begins once the warm-up is over.
        let step = (run_time / WINDOWS as u64).max(1);
        let mut made = Vec::new();
        let (mut before, mut begun) = (None, None);
        let all = loop {
            runner.run_until(runner.sim().now() + step)?;
            let sim = runner.sim();
            let all = experiment::processes(sim)?;
            let phase = all[0].phases.iter().find(|f| f.step == main);
            let done = phase.map(PhaseFigures::count);
            if let (Some(before), Some(done)) = (before, done) {
                made.push(done - before);
            }
            before = done;
            if done.is_some() && begun.is_none() {
                begun = Some((sim.now(), sim.moved_between_tiers()[0]));
            }
            if all[0].ended || sim.idle() {
                break all;
            }
        };
        let Some(phase) = all[0].phases.iter().find(|f| f.step == main) else {
            bail!("pmbench never came to its main part");
        };
        let sim = runner.sim();
        let top = sim.top_tier();
        let fast = phase.accesses.iter().zip(top).filter(|(_, top)| **top);
        let fast: u64 = fast.map(|(a, _)| a[0] + a[1]).sum();
        let latency = all.get(1).map_or([0.0; 4], |neighbour| {
            let l = &neighbour.allocations;
            let ns = |ps: u64| ps as f64 / 1e3;
            let [p50, p99] = [500, 990].map(|p| ns(l.percentile_ps(p)));
            [p50, p99, ns(l.max_ps()), l.count() as f64]
        });
        let stat = sim.vmstat();
        let [promoted, _] = sim.moved_between_tiers();
        let (from, until_then) = begun.unwrap_or((sim.now(), promoted));
        let seconds = (sim.now() - from) as f64 / 1e12;
        Ok(Scored {
            score: phase.per_second() as f64,
            fast: fast as f64 / phase.count().max(1) as f64,
            promoted,
            allocstall: stat.get(Item::Allocstall),
            pgscan_direct: stat.get(Item::PgscanDirect),
            latency,
            ramp: ramp(&made),
            rate: ((promoted - until_then) * PAGE_SIZE) as f64 / 1e6 / seconds.max(1e-12),
            late: last_third(&made).map_or(0.0, |n| n as f64 / (step as f64 / 1e12)),
        })
    }
}

/// The place of pmbench's main part among its steps, and its virtual time in
/// picoseconds.
fn main_part(scenario: &Scenario) -> (usize, u64) {
    let time = |(i, s): (usize, &Step)| match s {
        Step::Access { until: Until::Time(t), .. } => Some((i, t.0)),
        _ => None,
    };
    scenario.processes[0].steps.iter().enumerate().rev().find_map(time).unwrap_or((0, 1))
}

/// Share of the windows before the first that reaches 95 % of the mean of the last
/// third; the very last is cut short by the end and doesn't count.
fn ramp(made: &[u64]) -> f64 {
    let Some(steady) = last_third(made) else { return 0.0 };
    let whole = made.len() - 1;
    let first = made[..whole].iter().position(|&n| n * 100 >= steady * 95).unwrap_or(whole);
    first as f64 / whole as f64
}

/// Mean of the windows of the last third, without the very last; none where there are few.
fn last_third(made: &[u64]) -> Option<u64> {
    let whole = made.len().checked_sub(1).filter(|&n| n >= 3)?;
    let last = &made[whole - whole / 3..whole];
    Some(last.iter().sum::<u64>() / last.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::ramp;

    #[test]
    fn the_ramp_ends_where_the_score_is_that_of_the_end() {
        assert_eq!(ramp(&[]), 0.0);
        assert_eq!(ramp(&[5, 5, 5, 5, 1]), 0.0);
        assert_eq!(ramp(&[1, 2, 50, 96, 100, 100, 100, 100, 100, 100, 3]), 0.3);
    }
}
