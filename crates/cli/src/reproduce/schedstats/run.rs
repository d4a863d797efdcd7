//! One run of the experiment: from a point of the plan to its figure.

use crate::reproduce::experiment::{self, processes};
use crate::reproduce::loads::{hackbench, length, repeat};
use crate::reproduce::vary::Vary;
use anyhow::Result;
use homenode_core::costs::{Constant, Cost};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{CpuStep, Process, Scenario, Step};
use homenode_core::sched::frequency::Governor;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_report::Better;
use homenode_sim::{Setup, Simulation};

homenode_core::named! {
    /// Whether statistics are kept, and what their lines cost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Way {
        /// On, as before the seed.
        On => "on",
        /// Off, as with it.
        Off => "off",
        /// On, where each line is waited for by itself.
        Alone => "on-alone",
    }
}

homenode_core::named! {
    /// On which machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Of {
        /// 48 CPUs.
        Server => "48 CPUs",
        /// Eight.
        Desktop => "8 CPUs",
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Pipetest,
    /// So many groups.
    Hackbench(u32),
    /// Messages of so many bytes.
    TcpStream(u32),
    UdpStream(u32),
    TcpRr,
    UdpRr,
    /// So many clients.
    Tbench(u32),
}

impl Work {
    /// Which way its figure is better.
    pub(super) const fn better(self) -> Better {
        match self {
            Self::Pipetest | Self::Hackbench(_) => Better::Lower,
            Self::TcpStream(_)
            | Self::UdpStream(_)
            | Self::TcpRr
            | Self::UdpRr
            | Self::Tbench(_) => Better::Higher,
        }
    }
    pub(super) fn name(self) -> String {
        match self {
            Self::Pipetest => "pipetest".into(),
            Self::Hackbench(groups) => format!("hackbench-pipes {groups}"),
            Self::TcpStream(bytes) => format!("netperf-tcp {bytes}"),
            Self::UdpStream(bytes) => format!("netperf-udp {bytes}"),
            Self::TcpRr => "netperf-tcp-rr".into(),
            Self::UdpRr => "netperf-udp-rr".into(),
            Self::Tbench(clients) => format!("tbench {clients}"),
        }
    }
    /// The unit of its figure.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Pipetest => "us",
            Self::Hackbench(_) => "ms",
            Self::TcpStream(_) | Self::UdpStream(_) => "Mbit/s",
            Self::TcpRr | Self::UdpRr => "trans/s",
            Self::Tbench(_) => "MB/s",
        }
    }
    /// Whether the random streams decide anything.
    pub(super) const fn is_drawn(self) -> bool {
        matches!(self, Self::Tbench(_) | Self::Hackbench(_))
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) work: Work,
    pub(super) of: Of,
    pub(super) way: Way,
    /// Who chooses the clocks; the registered runs have the nominal one.
    pub(super) clocks: Governor,
    /// In its small form.
    pub(super) small: bool,
    /// A constant that is moved.
    pub(super) vary: Option<Vary>,
    pub(super) seed: u64,
}

/// What a dirty line takes that is waited for by itself, in picoseconds: of the same last-level cache, of another one. The
/// machines' files have a fifth of each.
const ALONE: [(Cost, u64); 2] = [(Cost::StatsLine, 75_000), (Cost::StatsLineFar, 200_000)];

/// What all runs have in common.
pub(super) struct Bench {
    server: Hardware,
    desktop: Hardware,
    pipetest: Scenario,
    hackbench: Scenario,
    tcp_stream: Scenario,
    udp_stream: Scenario,
    tcp_rr: Scenario,
    udp_rr: Scenario,
    tbench: Scenario,
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

macro_rules! machine {
    ($name:literal) => {
        homenode_config::parse_machine(
            concat!("machines/", $name, ".toml"),
            include_str!(concat!("../../../../../machines/", $name, ".toml")),
        )?
    };
}

impl Bench {
    /// The registered experiment.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(super) fn new() -> Result<Self> {
        let server = machine!("haswell-ep-2");
        Ok(Self {
            desktop: machine!("ivy-bridge-desktop"),
            pipetest: scenario!("reproduce/schedstats", &server),
            hackbench: scenario!("hackbench-pipe-processes", &server),
            tcp_stream: scenario!("netperf-tcp-stream", &server),
            udp_stream: scenario!("netperf-udp-stream", &server),
            tcp_rr: scenario!("netperf-tcp-rr", &server),
            udp_rr: scenario!("netperf-udp-rr", &server),
            tbench: scenario!("tbench", &server),
            server,
        })
    }
    /// The kernel that all run on.
    pub(super) fn kernel(&self) -> KernelVersion {
        self.pipetest.kernel
    }
    /// The registered workload.
    pub(super) fn about(&self) -> &Scenario {
        &self.pipetest
    }
    pub(super) fn machine(&self, of: Of) -> &Hardware {
        match of {
            Of::Server => &self.server,
            Of::Desktop => &self.desktop,
        }
    }
    fn scenario(&self, p: &Point) -> Scenario {
        let mut s = match p.work {
            Work::Pipetest => &self.pipetest,
            Work::Hackbench(_) => &self.hackbench,
            Work::TcpStream(_) => &self.tcp_stream,
            Work::UdpStream(_) => &self.udp_stream,
            Work::TcpRr => &self.tcp_rr,
            Work::UdpRr => &self.udp_rr,
            Work::Tbench(_) => &self.tbench,
        }
        .clone();
        s.kernel = self.kernel();
        s.model.clocks = p.clocks;
        let length = |small| if is_slow(p.clocks) { LONG } else { length(small) };
        match p.work {
            Work::Pipetest => {
                s.duration = None;
                s.processes.iter_mut().for_each(|p_| repeat(p_, trips(p)));
            }
            Work::Hackbench(groups) => hackbench(&mut s, groups, p.small),
            Work::TcpStream(size) | Work::UdpStream(size) => {
                s.duration = Some(length(p.small));
                s.processes.iter_mut().for_each(|process| resize(process, size));
            }
            Work::TcpRr | Work::UdpRr => s.duration = Some(length(p.small)),
            Work::Tbench(clients) => {
                s.duration = Some(length(p.small));
                s.channels.iter_mut().for_each(|c| (c.count, c.group) = (clients, clients));
                s.processes.iter_mut().for_each(|process| process.copies = clients);
            }
        }
        s
    }
}

/// How long a run is in which clocks take a while until they are high.
const LONG: Picos = Picos::from_ms(500);

/// Whether clocks come to rest only after hundreds of ms.
const fn is_slow(clocks: Governor) -> bool {
    matches!(clocks, Governor::PstatePid)
}

/// Round trips of pipetest.
const fn trips(p: &Point) -> u64 {
    match (is_slow(p.clocks), p.small) {
        (true, _) => 100_000,
        (false, true) => 500,
        (false, false) => 2000,
    }
}

fn resize(process: &mut Process, size: u32) {
    for step in &mut process.steps {
        if let Step::Cpu(CpuStep::Write { bytes, .. } | CpuStep::Read { bytes, .. }) = step {
            *bytes = size;
        }
    }
}

impl experiment::Bench for Bench {
    const NAME: &'static str = "schedstats";
    type Point = Point;
    type Answer = f64;
    fn length(p: &Point) -> (u64, u64) {
        let most = match p.work {
            Work::Hackbench(n) => 4 * n,
            Work::Tbench(n) => n,
            Work::Pipetest
            | Work::TcpStream(_)
            | Work::UdpStream(_)
            | Work::TcpRr
            | Work::UdpRr => 0,
        };
        (u64::MAX - u64::from(most), 0)
    }
    fn label(p: &Point) -> String {
        format!("{} on {}, {}, seed {}", p.work.name(), p.of.name(), p.way.name(), p.seed)
    }
    fn run(&self, p: &Point) -> Result<f64> {
        let (mut machine, mut scenario) = (self.machine(p.of).clone(), self.scenario(p));
        if let Some(vary) = p.vary {
            vary.apply(&mut machine, &mut scenario);
        }
        if p.way == Way::Alone {
            for (cost, value) in ALONE {
                machine.costs.0.insert(cost, Constant::assumed(value, "waited for by itself"));
            }
        }
        let on = if p.way == Way::Off { "0" } else { "1" };
        scenario.knobs.push(("sched_schedstats".into(), on.into()));
        let mut sim =
            Simulation::new(&machine, &scenario, &Setup { seed: p.seed, ..Setup::of(&scenario) })?;
        sim.run();
        let all = processes(&sim)?;
        let last = all.iter().map(|p| p.time_ps).max().unwrap_or(0) as f64;
        let time = scenario.duration.map_or(last, |d| d.0 as f64);
        let nets = sim.connections();
        let bytes: u64 = nets.iter().map(|n| n.bytes).sum();
        let answers = nets.last().map_or(0, |n| n.messages);
        Ok(match p.work {
            Work::Pipetest => time / 1e6 / trips(p) as f64,
            Work::Hackbench(_) => time / 1e9,
            Work::TcpStream(_) | Work::UdpStream(_) => bytes as f64 * 8.0 / (time / 1e6),
            Work::TcpRr | Work::UdpRr => answers as f64 / (time / 1e12),
            Work::Tbench(_) => bytes as f64 / (time / 1e6),
        })
    }
}
