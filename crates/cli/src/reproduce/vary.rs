//! Constants that the sensitivity runs move, one at a time, by ±20 %.

use homenode_core::costs::{Constant, Cost};
use homenode_core::scenario::{Completion, CpuStep, Scenario, Step};
use homenode_core::topology::{BANDWIDTH_BOUNDS, Hardware, LATENCY_BOUNDS, Link};
use homenode_core::units::Picos;

/// One of the constants of a link, by its place among [`OF_LINK`].
type OfLink = usize;

/// Where a constant of a link is.
type Place = fn(&mut Link) -> &mut Constant;

/// The constants of a link: the key in a machine's file, where it is, its bounds.
const OF_LINK: [(&str, Place, (u64, u64)); 4] = [
    ("read_latency", |l| &mut l.read_latency, LATENCY_BOUNDS),
    ("write_latency", |l| &mut l.write_latency, LATENCY_BOUNDS),
    ("read_bandwidth", |l| &mut l.read_bandwidth, BANDWIDTH_BOUNDS),
    ("write_bandwidth", |l| &mut l.write_bandwidth, BANDWIDTH_BOUNDS),
];

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reproduce) enum What {
    /// Of the link in that place of the machine's list.
    Link(usize, OfLink),
    /// Of every link whose read latency is the machine's smallest, second smallest, …:
    /// what a publication gives one figure for.
    Links(usize, OfLink),
    /// Of the machine as a whole.
    Cost(Cost),
    /// What a program computes between two accesses.
    Compute,
    /// What programs, and the kernel's workers for them, compute by themselves.
    Work,
    /// What leaving any idle state takes.
    Idle,
}

/// A constant, moved by so many per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reproduce) struct Vary {
    pub(in crate::reproduce) what: What,
    pub(in crate::reproduce) percent: i32,
}

impl Vary {
    /// How far each constant is moved, down and up.
    pub(in crate::reproduce) const STEPS: [i32; 2] = [-20, 20];

    /// Each of the constants, moved down and up.
    pub(in crate::reproduce) fn each(constants: &[What]) -> Vec<Self> {
        let both = |what| Self::STEPS.map(|percent| Self { what, percent });
        constants.iter().copied().flat_map(both).collect()
    }

    /// Moves it, within the bounds of its kind.
    pub(in crate::reproduce) fn apply(self, machine: &mut Hardware, scenario: &mut Scenario) {
        let percent = (100 + self.percent) as u64;
        let moved = |value: u64, (low, high): (u64, u64)| (value * percent / 100).clamp(low, high);
        let move_link = |which: OfLink| {
            move |link: &mut Link| {
                let (_, constant, bounds) = OF_LINK[which];
                constant(link).value = moved(constant(link).value, bounds);
            }
        };
        let scale = |time: &mut Picos| *time = Picos((time.0 * percent / 100).max(1));
        match self.what {
            What::Link(i, which) => machine.links.get_mut(i).into_iter().for_each(move_link(which)),
            What::Links(rank, which) => {
                let Some(&latency) = latencies(machine).get(rank) else { return };
                let alike = |l: &&mut Link| l.read_latency.value == latency;
                machine.links.iter_mut().filter(alike).for_each(move_link(which));
            }
            What::Cost(cost) => {
                let value = moved(machine.costs.get(cost), cost.bounds());
                let constant = Constant::assumed(value, "moved to see what depends on it");
                machine.costs.0.insert(cost, constant);
            }
            What::Compute => {
                for step in scenario.processes.iter_mut().flat_map(|p| &mut p.steps) {
                    if let Step::Access { compute, .. } = step {
                        *compute = Picos(compute.0 * percent / 100);
                    }
                }
            }
            What::Work => {
                for step in scenario.processes.iter_mut().flat_map(|p| &mut p.steps) {
                    match step {
                        Step::Cpu(CpuStep::Compute { time, times, .. }) => {
                            scale(time);
                            times.iter_mut().for_each(scale);
                        }
                        Step::Cpu(
                            CpuStep::Work { time, .. }
                            | CpuStep::Io { completion: Completion::Worker { time, .. }, .. },
                        ) => scale(time),
                        _ => {}
                    }
                }
            }
            What::Idle => {
                for state in &mut machine.idle_states {
                    let value = state.leaving() * percent / 100;
                    let why = "moved to see what depends on it";
                    state.wake_latency = Some(Constant::assumed(value, why));
                }
            }
        }
    }
}

/// Whether nobody has published it of any machine: it is nothing there, and so is a fifth of it.
fn only_measured(cost: Cost) -> bool {
    matches!(cost, Cost::SocketSendFar | Cost::SocketReceiveFar | Cost::ExitMap)
}

/// Whether only tasks pay it that wait for one another, that balancing moves, or that share a core:
/// no experiment here has any.
fn of_channels(cost: Cost) -> bool {
    matches!(
        cost,
        Cost::Interrupt
            | Cost::Syscall
            | Cost::PipeWrite
            | Cost::PipeRead
            | Cost::SocketSend
            | Cost::SocketReceive
            | Cost::SocketSendFar
            | Cost::SocketReceiveFar
            | Cost::FutexCall
            | Cost::TcpSend
            | Cost::TcpQueue
            | Cost::TcpReceive
            | Cost::UdpSend
            | Cost::UdpReceive
            | Cost::SocketCopy
            | Cost::QueueWork
            | Cost::IoSubmit
            | Cost::Fork
            | Cost::Exec
            | Cost::Exit
            | Cost::ExitMap
            | Cost::Ipi
            | Cost::BalanceTask
            | Cost::SiblingSpeed
            | Cost::StatsCount
            | Cost::StatsLine
            | Cost::StatsLineFar
    ) || of_clocks(cost)
}

/// Whether it is of a disk, or of clocks that are not the nominal one.
const fn of_clocks(cost: Cost) -> bool {
    matches!(
        cost,
        Cost::DiskWrite
            | Cost::DiskFlush
            | Cost::ClockMin
            | Cost::ClockTurbo1
            | Cost::ClockTurbo2
            | Cost::ClockTurbo3
            | Cost::ClockTurbo4
            | Cost::ClockTurboAll
            | Cost::ClockShared
            | Cost::ClockThreshold
    )
}

/// The read latencies of a machine's links, each once, in rising order.
pub(in crate::reproduce) fn latencies(machine: &Hardware) -> Vec<u64> {
    let mut all: Vec<u64> = machine.links.iter().map(|l| l.read_latency.value).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl What {
    /// Every constant of a machine, link by link, and the workload's, where nothing is
    /// merged: what only ksmd pays can't matter there, nor what tasks pay that wait for others.
    pub(in crate::reproduce) fn all(machine: &Hardware) -> Vec<Self> {
        let links = (0..machine.links.len())
            .flat_map(|i| (0..OF_LINK.len()).map(move |w| Self::Link(i, w)));
        let pays = |c: &&Cost| !c.name().starts_with("ksm_") && !of_channels(**c);
        let costs = Cost::ALL.iter().filter(pays).map(|&c| Self::Cost(c));
        links.chain(costs).chain([Self::Compute]).collect()
    }

    /// Every constant of a machine in which all links of one kind are alike, and the
    /// workload's.
    pub(in crate::reproduce) fn by_kind(machine: &Hardware) -> Vec<Self> {
        let kinds = 0..latencies(machine).len();
        let links = kinds.flat_map(|rank| (0..OF_LINK.len()).map(move |w| Self::Links(rank, w)));
        let costs = Cost::ALL.iter().filter(|c| !of_channels(**c)).map(|&c| Self::Cost(c));
        links.chain(costs).collect()
    }

    /// The costs of a switch, of a wake-up and of what tasks hand on.
    pub(in crate::reproduce) fn of_switches() -> Vec<Self> {
        [Cost::ContextSwitch, Cost::WakeUp, Cost::QueueWork].map(Self::Cost).to_vec()
    }

    /// Every constant that tasks pay which wait for one another and touch no memory.
    pub(in crate::reproduce) fn of_tasks() -> Vec<Self> {
        let scheduling = [
            Cost::ContextSwitch,
            Cost::WakeUp,
            Cost::WakeIdle,
            Cost::WakeDeep,
            Cost::Tick,
            Cost::BalanceCpu,
        ];
        let pays = |c: &&Cost| of_channels(**c) || scheduling.contains(c);
        let none = |c: &&Cost| !of_clocks(**c) && !only_measured(**c);
        Cost::ALL.iter().filter(pays).filter(none).map(|&c| Self::Cost(c)).collect()
    }

    /// What a client of a file server pays: what it computes, the disk, the clocks, and what waiting takes.
    pub(in crate::reproduce) fn of_clients() -> Vec<Self> {
        let costs = [
            Cost::DiskWrite,
            Cost::DiskFlush,
            Cost::ClockMin,
            Cost::ClockTurbo1,
            Cost::ClockTurbo2,
            Cost::SiblingSpeed,
            Cost::MemoryParallelism,
            Cost::ContextSwitch,
            Cost::WakeUp,
            Cost::WakeCall,
            Cost::Tick,
            Cost::Interrupt,
            Cost::QueueWork,
            Cost::IoSubmit,
            Cost::BalanceCpu,
        ];
        [Self::Work, Self::Idle].into_iter().chain(costs.map(Self::Cost)).collect()
    }

    /// Every constant that a build pays: its memory's, those of processes that begin and end, those
    /// of switches, and what scans cost.
    pub(in crate::reproduce) fn of_builds() -> Vec<Self> {
        let links = (0..2).flat_map(|rank| (0..2).map(move |which| Self::Links(rank, which)));
        let costs = [
            Cost::MinorFault,
            Cost::HintFault,
            Cost::PageCopy,
            Cost::MigratePage,
            Cost::PteScan,
            Cost::PteMark,
            Cost::Fork,
            Cost::Exec,
            Cost::Exit,
            Cost::ContextSwitch,
            Cost::WakeUp,
            Cost::WakeIdle,
            Cost::Tick,
            Cost::BalanceCpu,
            Cost::BalanceTask,
            Cost::MemoryParallelism,
        ];
        links.chain(costs.map(Self::Cost)).chain([Self::Compute]).collect()
    }

    /// Its name: as in the machine's file.
    pub(in crate::reproduce) fn name(self, machine: &Hardware) -> String {
        match self {
            Self::Link(i, which) => {
                let (from, to) = machine.links.get(i).map_or((0, 0), |l| (l.from.0, l.to.0));
                format!("link {from} to {to}: {}", OF_LINK[which].0)
            }
            Self::Links(0, which) => format!("local links: {}", OF_LINK[which].0),
            Self::Links(1, which) => format!("links of one hop: {}", OF_LINK[which].0),
            Self::Links(n, which) => format!("links of {n} hops: {}", OF_LINK[which].0),
            Self::Cost(cost) => format!("cost: {}", cost.name()),
            Self::Compute => "workload: compute".to_owned(),
            Self::Work => "workload: what is computed".to_owned(),
            Self::Idle => "idle states: wake_latency".to_owned(),
        }
    }
}
