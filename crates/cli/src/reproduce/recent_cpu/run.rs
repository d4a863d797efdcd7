//! One run of the experiment: from a point of the plan to where the client ran.

use crate::reproduce::experiment::{self, processes};
use crate::reproduce::vary::Vary;
use anyhow::{Result, bail};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{RecentCpu, Scenario, Wakeups};
use homenode_core::topology::Hardware;
use homenode_sim::{Setup, Simulation};
use std::collections::BTreeSet;

/// Runs of the client that are held one by one.
pub(super) const COUNTED: usize = 8;

homenode_core::named! {
    /// What a run is under.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Patch {
        /// The seed's baseline.
        Without => "without-seed",
        /// The seed.
        With => "with-seed",
        /// 4.5 as it is.
        V4_5 => "4.5",
        /// 4.15 as it is, without any patch of the seed's series.
        V4_15 => "4.15",
        /// 6.1 as it is.
        V6_1 => "6.1",
        /// 6.12 as it is.
        V6_12 => "6.12",
    }
}

impl Patch {
    /// Whether it decides nothing.
    pub(super) const fn is_beside(self) -> bool {
        !matches!(self, Self::Without | Self::With)
    }
    /// Where the client has to run.
    pub(super) const fn expected(self) -> [u16; COUNTED] {
        match self {
            Self::With => [0, 1, 0, 1, 0, 1, 0, 1],
            Self::Without | Self::V4_5 | Self::V4_15 | Self::V6_1 | Self::V6_12 => {
                [0, 1, 2, 3, 4, 5, 6, 7]
            }
        }
    }
    fn setup(self, setup: &mut Setup) {
        let kernels_own = |setup: &mut Setup, version| {
            setup.version = version;
            setup.model.wakeups = Wakeups::Kernel;
            setup.model.recent_cpu = RecentCpu::Kernel;
        };
        match self {
            Self::Without => setup.model.recent_cpu = RecentCpu::None,
            Self::With => setup.model.recent_cpu = RecentCpu::Seed,
            Self::V4_5 => kernels_own(setup, KernelVersion::V4_5),
            Self::V4_15 => kernels_own(setup, KernelVersion::V4_15),
            Self::V6_1 => kernels_own(setup, KernelVersion::V6_1),
            Self::V6_12 => kernels_own(setup, KernelVersion::V6_12),
        }
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) patch: Patch,
    /// A constant that is moved.
    pub(super) vary: Option<Vary>,
    pub(super) seed: u64,
}

/// Where the client ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// The CPU of each of its first runs.
    pub(super) runs: Vec<u16>,
    /// All that it was seen on.
    pub(super) cpus: BTreeSet<u16>,
    pub(super) wakeups: u64,
    pub(super) migrations: u64,
}

impl Course {
    /// The CPU of a run, from 0 on; no number where there was none.
    pub(super) fn run(&self, i: usize) -> f64 {
        self.runs.get(i).map_or(f64::NAN, |&cpu| f64::from(cpu))
    }
}

/// What all runs have in common.
pub(super) struct Bench {
    pub(super) machine: Hardware,
    pub(super) scenario: Scenario,
}

impl Bench {
    /// The registered experiment.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(super) fn new() -> Result<Self> {
        let machine = homenode_config::parse_machine(
            "machines/small-smt.toml",
            include_str!("../../../../../machines/small-smt.toml"),
        )?;
        let file = homenode_config::parse_scenario(
            "scenarios/reproduce/recent-cpu.toml",
            include_str!("../../../../../scenarios/reproduce/recent-cpu.toml"),
        )?;
        file.check(&machine)?;
        Ok(Self { machine, scenario: file.scenario })
    }
}

impl experiment::Bench for Bench {
    const NAME: &'static str = "recent-cpu";
    type Point = Point;
    type Answer = Course;
    fn length(_: &Point) -> (u64, u64) {
        (0, 0)
    }
    fn label(p: &Point) -> String {
        format!("{}, seed {}", p.patch.name(), p.seed)
    }
    fn run(&self, p: &Point) -> Result<Course> {
        let (mut machine, mut scenario) = (self.machine.clone(), self.scenario.clone());
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        let mut setup = Setup { seed: p.seed, ..Setup::of(&scenario) };
        p.patch.setup(&mut setup);
        let mut sim = Simulation::new(&machine, &scenario, &setup)?;
        sim.run();
        let all = processes(&sim)?;
        let (_, tracks) = sim.tracks();
        let Some(((client, track), figures)) = tracks.first().zip(all.first()) else {
            bail!("nobody was followed");
        };
        debug_assert_eq!(*client, 0, "the client is the first process");
        let id = |place: u16| machine.cpus[usize::from(place)].id.0 as u16;
        Ok(Course {
            runs: track.first.iter().copied().map(id).collect(),
            cpus: track.cells().flatten().chain(track.first.iter().copied()).map(id).collect(),
            wakeups: figures.tasks.wakeups,
            migrations: figures.tasks.migrations,
        })
    }
}
