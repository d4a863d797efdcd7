//! One run of what the seed measured: dbench, netperf, hackbench, with the seed and without.

use super::run::Patch;
use crate::reproduce::experiment::{self, processes};
use crate::reproduce::loads::{hackbench, length, repeat};
use crate::reproduce::vary::Vary;
use anyhow::Result;
use homenode_core::costs::{Constant, Cost};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{Governor, RecentCpu, Scenario, Wakeups};
use homenode_core::topology::Hardware;
use homenode_core::units::count;
use homenode_report::Better;
use homenode_sim::{CpuFigures, Setup, Simulation};

/// What dbench's loadfile reads and writes, in bytes, and how often it syncs.
const LOADFILE: (f64, u64) = (19_119_736.0, 43);

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// dbench on XFS with so many clients.
    Xfs(u32),
    /// The same on ext4, one client.
    Ext4,
    /// On XFS as in 5.5, on a disk with a queue for each CPU: the check by the patch of 2020.
    Queues(u32),
    TcpRr,
    UdpRr,
    /// So many groups.
    Hackbench(u32),
}

impl Load {
    /// Which way its figure is better.
    pub(super) const fn better(self) -> Better {
        match self {
            Self::Hackbench(_) => Better::Lower,
            Self::Xfs(_) | Self::Ext4 | Self::Queues(_) | Self::TcpRr | Self::UdpRr => {
                Better::Higher
            }
        }
    }
    pub(super) fn name(self) -> String {
        match self {
            Self::Xfs(1) => "dbench XFS-like, 1 client".into(),
            Self::Xfs(n) => format!("dbench XFS-like, {n} clients"),
            Self::Ext4 => "dbench ext4-like, 1 client".into(),
            Self::Queues(n) => {
                format!("the check of 2020, {}", count(n.into(), "client", "clients"))
            }
            Self::TcpRr => "netperf RR, TCP".into(),
            Self::UdpRr => "netperf RR, UDP".into(),
            Self::Hackbench(n) => format!("hackbench-pipes {n}"),
        }
    }
    /// The unit of its figure.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Xfs(_) | Self::Ext4 | Self::Queues(_) => "MB/s",
            Self::TcpRr | Self::UdpRr => "trans/s",
            Self::Hackbench(_) => "ms",
        }
    }
    /// Whether the random streams decide anything.
    pub(super) const fn is_drawn(self) -> bool {
        match self {
            Self::Xfs(_) | Self::Ext4 | Self::Queues(_) | Self::Hackbench(_) => true,
            Self::TcpRr | Self::UdpRr => false,
        }
    }
}

/// By whom clocks are chosen, and what else of a CPU is not as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cpus {
    pub(super) clocks: Governor,
    /// Of the rule that has one, in thousandths.
    pub(super) threshold: u16,
    /// Whether leaving an idle state takes any time.
    pub(super) idle: bool,
}

/// As half of the energy preference's scale.
pub(super) const HALF: u16 = 500;

impl Cpus {
    /// What decides.
    pub(super) const DECIDES: Self = Self::of(Governor::HwpProportional);
    /// What is shown beside it.
    pub(super) const BESIDE: [Self; 5] = [
        Self::of(Governor::HwpThreshold),
        Self::of(Governor::Pstate),
        Self::of(Governor::Performance),
        Self { idle: false, ..Self::DECIDES },
        Self { idle: false, ..Self::of(Governor::Performance) },
    ];
    const fn of(clocks: Governor) -> Self {
        Self { clocks, threshold: HALF, idle: true }
    }
    /// The rule with a threshold, at another one.
    pub(super) const fn at(threshold: u16) -> Self {
        Self { threshold, ..Self::of(Governor::HwpThreshold) }
    }
    pub(super) fn name(self) -> String {
        let idle = if self.idle { "" } else { ", idle states free" };
        format!("{}{idle}", self.clocks.name())
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) load: Load,
    pub(super) patch: Patch,
    pub(super) cpus: Cpus,
    /// In its small form.
    pub(super) small: bool,
    /// A constant that is moved.
    pub(super) vary: Option<Vary>,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Came {
    /// In the unit of the load.
    pub(super) value: f64,
    /// Mean clock of busy CPUs, in MHz.
    pub(super) mhz: f64,
    /// Of 100 wake-ups of the clients, so many went to another CPU.
    pub(super) migrations: f64,
}

/// What all runs have in common.
pub(super) struct Loads {
    pub(super) machine: Hardware,
    xfs: Scenario,
    ext4: Scenario,
    queues: Scenario,
    tcp_rr: Scenario,
    udp_rr: Scenario,
    hackbench: Scenario,
}

macro_rules! scenario {
    ($name:literal, $machine:expr) => {{
        let text = include_str!(concat!("../../../../../scenarios/", $name, ".toml"));
        let file = homenode_config::parse_scenario(concat!("scenarios/", $name, ".toml"), text)?;
        file.check($machine)?;
        // The experiment's machine stands for itself.
        Scenario { scale: Scale::AS_IS, ..file.scenario }
    }};
}

impl Loads {
    /// The registered experiment.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(super) fn new() -> Result<Self> {
        let machine = homenode_config::parse_machine(
            "machines/skylake-uma.toml",
            include_str!("../../../../../machines/skylake-uma.toml"),
        )?;
        Ok(Self {
            xfs: scenario!("dbench-xfs", &machine),
            ext4: scenario!("dbench-ext4", &machine),
            queues: scenario!("dbench-xfs-queues", &machine),
            tcp_rr: scenario!("netperf-tcp-rr", &machine),
            udp_rr: scenario!("netperf-udp-rr", &machine),
            hackbench: scenario!("hackbench-pipe-processes", &machine),
            machine,
        })
    }
    fn scenario(&self, p: &Point) -> Scenario {
        let mut s = match p.load {
            Load::Xfs(_) => &self.xfs,
            Load::Ext4 => &self.ext4,
            Load::Queues(_) => &self.queues,
            Load::TcpRr => &self.tcp_rr,
            Load::UdpRr => &self.udp_rr,
            Load::Hackbench(_) => &self.hackbench,
        }
        .clone();
        if !matches!(p.load, Load::Queues(_)) {
            s.kernel = KernelVersion::V4_15;
        }
        match p.load {
            Load::Xfs(clients) => {
                s.duration = None;
                s.processes[0].copies = clients;
                repeat(&mut s.processes[0], loadfiles(clients, p.small) * LOADFILE.1);
            }
            Load::Ext4 => {
                s.duration = None;
                let times = loadfiles(1, p.small) * LOADFILE.1;
                s.processes.iter_mut().for_each(|process| repeat(process, times));
            }
            Load::Queues(clients) => {
                s.duration = None;
                s.channels.iter_mut().for_each(|c| (c.count, c.group) = (clients, clients));
                let times = loadfiles(clients, p.small) * LOADFILE.1;
                for process in &mut s.processes {
                    process.copies = clients;
                    repeat(process, times);
                }
            }
            Load::TcpRr | Load::UdpRr => s.duration = Some(length(p.small)),
            Load::Hackbench(groups) => hackbench(&mut s, groups, p.small),
        }
        s
    }
}

/// How often each client plays the loadfile.
const fn loadfiles(clients: u32, small: bool) -> u64 {
    match (clients, small) {
        (0..=1, false) => 16,
        (0..=1, true) => 6,
        (2, false) => 8,
        (3..=4, false) => 6,
        (2, true) | (5..=16, false) => 4,
        (3..=4, true) => 3,
        (5..=16, true) | (_, false) => 2,
        (_, true) => 1,
    }
}

impl experiment::Bench for Loads {
    const NAME: &'static str = "recent-cpu";
    type Point = Point;
    type Answer = Came;
    fn length(p: &Point) -> (u64, u64) {
        let most = match p.load {
            Load::Hackbench(n) => 10 * n,
            Load::Xfs(n) | Load::Queues(n) => n,
            Load::Ext4 | Load::TcpRr | Load::UdpRr => 0,
        };
        (u64::MAX - u64::from(most), 0)
    }
    fn label(p: &Point) -> String {
        format!("{}, {}, {}, seed {}", p.load.name(), p.patch.name(), p.cpus.name(), p.seed)
    }
    fn run(&self, p: &Point) -> Result<Came> {
        let (mut machine, mut scenario) = (self.machine.clone(), self.scenario(p));
        let threshold = Constant::assumed(p.cpus.threshold.into(), "moved to see what it decides");
        machine.costs.0.insert(Cost::ClockThreshold, threshold);
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        if !p.cpus.idle {
            for state in &mut machine.idle_states {
                state.wake_latency = Some(Constant::assumed(0, "left out to see what it makes"));
            }
        }
        scenario.model.clocks = p.cpus.clocks;
        let with = p.patch == Patch::With;
        (scenario.model.wakeups, scenario.model.recent_cpu) = match p.load {
            Load::Queues(_) if with => (Wakeups::Today, RecentCpu::Today),
            Load::Queues(_) => (Wakeups::Seed, RecentCpu::Seed),
            _ if with => (Wakeups::Seed, RecentCpu::Seed),
            _ => (Wakeups::Seed, RecentCpu::None),
        };
        let mut sim =
            Simulation::new(&machine, &scenario, &Setup { seed: p.seed, ..Setup::of(&scenario) })?;
        sim.run();
        let all = processes(&sim)?;
        let clients = || all.iter().filter(|one| one.name.starts_with("client"));
        let value = match p.load {
            Load::Xfs(_) | Load::Ext4 | Load::Queues(_) => {
                let n = if let Load::Xfs(n) | Load::Queues(n) = p.load { n } else { 1 };
                let bytes = loadfiles(n, p.small) as f64 * LOADFILE.0;
                clients().map(|one| bytes / (one.time_ps as f64 / 1e6)).sum()
            }
            Load::TcpRr | Load::UdpRr => {
                let answers = sim.connections().last().map_or(0, |n| n.messages);
                answers as f64 / (length(p.small).0 as f64 / 1e12)
            }
            Load::Hackbench(_) => all.iter().map(|one| one.time_ps).max().unwrap_or(0) as f64 / 1e9,
        };
        let sum = |get: fn(&homenode_sim::ProcessFigures) -> u64| clients().map(get).sum::<u64>();
        let (moved, woken) = (sum(|one| one.tasks.migrations), sum(|one| one.tasks.wakeups));
        let busy = sim.cpu_figures().iter().fold(CpuFigures::default(), |all, one| CpuFigures {
            busy_ps: all.busy_ps + one.busy_ps,
            clocks: all.clocks + one.clocks,
            ..all
        });
        Ok(Came {
            value,
            mhz: busy.mean_mhz().unwrap_or(f64::NAN),
            migrations: moved as f64 * 100.0 / woken.max(1) as f64,
        })
    }
}
