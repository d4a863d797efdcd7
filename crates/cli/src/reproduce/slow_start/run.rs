//! One run of the experiment: from a point of the plan to what it took.

use crate::reproduce::experiment::{self, processes};
use crate::reproduce::vary::Vary;
use anyhow::Result;
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{Again, Balancing, Scenario, SlowStart, Step, Until};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_sim::vmstat::Item;
use homenode_sim::{Setup, Simulation};

/// Jobs of a round of the build.
pub(super) const ROUND: u64 = 8;
/// Tasks of a group of hackbench, on either side.
const SIDE: u32 = 20;

homenode_core::named! {
    /// Whose rules.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Kernel {
        /// 3.8 as it was when slow start came.
        Seed => "seed",
        /// 6.12 at the seed's scan period.
        V6_12 => "6.12",
        /// 3.8 as it was released.
        V3_8 => "3.8",
    }
}

impl Kernel {
    /// Those that decide.
    pub(super) const DECIDE: [Self; 2] = [Self::Seed, Self::V6_12];

    fn setup(self, setup: &mut Setup) {
        (setup.version, setup.model.slow_start) = match self {
            Self::Seed | Self::V3_8 => (KernelVersion::V3_8, SlowStart::Seed),
            Self::V6_12 => (KernelVersion::V6_12, SlowStart::Today),
        };
        if self == Self::Seed {
            setup.model.balancing = Balancing::Seed;
        }
    }
}

homenode_core::named! {
    /// With which balancing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Way {
        /// None.
        Off => "off",
        /// From the first period on.
        Without => "without",
        /// After a second.
        With => "with",
    }
}

impl Way {
    fn setup(self, setup: &mut Setup) {
        // Base pages, of which the registered figures are.
        setup.knobs = vec![("transparent_hugepage".to_owned(), "madvise".to_owned())];
        let delay = match self {
            Self::Off => {
                setup.without_balancing = true;
                return;
            }
            Self::Without => "100",
            Self::With => "1000",
        };
        setup.knobs.extend([
            ("scan_period_min_ms".to_owned(), "100".to_owned()),
            ("scan_delay_ms".to_owned(), delay.to_owned()),
        ]);
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// So many rounds of the build.
    Build(u64),
    /// So many groups of hackbench.
    Messaging(u32),
    /// Tasks that use their memory for so many seconds, and then for one more.
    Long(u64),
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) load: Load,
    pub(super) kernel: Kernel,
    pub(super) way: Way,
    /// A constant that is moved.
    pub(super) vary: Option<Vary>,
    pub(super) seed: u64,
}

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Took {
    /// Processor time of all CPUs, s.
    pub(super) busy_s: f64,
    /// Until the last has ended, s.
    pub(super) elapsed_s: f64,
    /// Local accesses of the last step, %; only of long tasks.
    pub(super) local: f64,
    /// Entries that scans have marked, hint faults, pages moved.
    pub(super) marked: u64,
    pub(super) faults: u64,
    pub(super) moved: u64,
}

/// What all runs have in common.
pub(super) struct Bench {
    pub(super) machine: Hardware,
    pub(super) build: Scenario,
    pub(super) messaging: Scenario,
    pub(super) long: Scenario,
}

impl Bench {
    /// The registered experiment.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(super) fn new() -> Result<Self> {
        let machine = homenode_config::parse_machine(
            "machines/xeon-e7-2.toml",
            include_str!("../../../../../machines/xeon-e7-2.toml"),
        )?;
        let read = |name, text| -> Result<Scenario> {
            let file = homenode_config::parse_scenario(name, text)?;
            file.check(&machine)?;
            // The experiment's machine stands for itself.
            Ok(Scenario { scale: Scale::AS_IS, ..file.scenario })
        };
        Ok(Self {
            build: read(
                "scenarios/kernbench.toml",
                include_str!("../../../../../scenarios/kernbench.toml"),
            )?,
            messaging: read(
                "scenarios/hackbench-socket-processes.toml",
                include_str!("../../../../../scenarios/hackbench-socket-processes.toml"),
            )?,
            long: read(
                "scenarios/reproduce/slow-start.toml",
                include_str!("../../../../../scenarios/reproduce/slow-start.toml"),
            )?,
            machine,
        })
    }
    fn scenario(&self, load: Load) -> Scenario {
        match load {
            Load::Build(rounds) => {
                let mut s = self.build.clone();
                for step in s.processes.iter_mut().take(1).flat_map(|make| &mut make.steps) {
                    if let Step::Repeat { until, .. } = step {
                        *until = Again::Times(rounds * ROUND);
                    }
                }
                s
            }
            Load::Messaging(groups) => {
                let mut s = self.messaging.clone();
                s.channels.iter_mut().for_each(|c| c.count = groups * SIDE);
                s.processes.iter_mut().for_each(|p| p.copies = groups * SIDE);
                s
            }
            Load::Long(seconds) => {
                let mut s = self.long.clone();
                for step in s.processes.iter_mut().flat_map(|p| &mut p.steps) {
                    if let Step::Access { until: Until::Time(time), .. } = step {
                        if *time > Picos::from_secs(1) {
                            *time = Picos::from_secs(seconds);
                        }
                    }
                }
                s
            }
        }
    }
}

impl experiment::Bench for Bench {
    const NAME: &'static str = "slow-start";
    type Point = Point;
    type Answer = Took;
    fn length(p: &Point) -> (u64, u64) {
        // The longest first: a second of a long task is about as much as a round of the build.
        let length = match p.load {
            Load::Build(rounds) => rounds,
            Load::Messaging(groups) => u64::from(groups),
            Load::Long(seconds) => seconds,
        };
        (u64::MAX - length, p.seed)
    }
    fn label(p: &Point) -> String {
        let load = match p.load {
            Load::Build(_) => "build",
            Load::Messaging(_) => "hackbench",
            Load::Long(_) => "long tasks",
        };
        format!("{load}, {}, {}, seed {}", p.kernel.name(), p.way.name(), p.seed)
    }
    fn run(&self, p: &Point) -> Result<Took> {
        let (mut machine, mut scenario) = (self.machine.clone(), self.scenario(p.load));
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        let mut setup = Setup { seed: p.seed, ..Setup::of(&scenario) };
        p.kernel.setup(&mut setup);
        p.way.setup(&mut setup);
        let mut sim = Simulation::new(&machine, &scenario, &setup)?;
        sim.run();
        let all = processes(&sim)?;
        let seconds = |ps: u64| ps as f64 / 1e12;
        let (mut local, mut total) = (0, 0);
        if let Load::Long(_) = p.load {
            for last in all.iter().filter_map(|f| f.phases.last()) {
                let mut by_node = last.accesses.iter().map(|a| a[0] + a[1]);
                total += by_node.clone().sum::<u64>();
                local += by_node.next_back().unwrap_or(0);
            }
        }
        let stat = |item| sim.vmstat().get(item);
        Ok(Took {
            busy_s: seconds(sim.cpu_figures().iter().map(|c| c.busy_ps).sum()),
            elapsed_s: seconds(all.iter().map(|f| f.time_ps).max().unwrap_or(0)),
            local: if total > 0 { local as f64 * 100.0 / total as f64 } else { 0.0 },
            marked: stat(Item::NumaPteUpdates),
            faults: stat(Item::NumaHintFaults),
            moved: stat(Item::NumaPagesMigrated),
        })
    }
}
