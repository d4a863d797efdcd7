//! Figures of tasks that the scheduler places, and of the CPUs: where their time has gone.

use super::processes::{instances, together};
use super::{Part, Rows, RunFigures, Shown};
use homenode_core::scenario::{Process, Scenario, Step};
use homenode_report::Better::{Lower, Neither};
use homenode_report::Figure;
use homenode_sim::{CpuFigures, ProcessFigures, Vcpu};

/// So many CPUs are told one by one.
const ONE_BY_ONE: usize = 16;

/// A figure of a process, or of the mean of several, and how it is taken of one.
type OfTasks = (Figure, fn(&ProcessFigures) -> f64);

const TASKS: [OfTasks; 10] = [
    (Figure::new("run", "ms", Neither, 3, "processor time of its tasks"), |p| {
        p.ran_ps as f64 / 1e9
    }),
    (Figure::new("wait", "ms", Lower, 3, "time on a queue without running"), |p| {
        p.tasks.wait_ns as f64 / 1e6
    }),
    (Figure::new("sleep", "ms", Neither, 3, "time in interruptible sleep"), |p| {
        p.tasks.sleep_ns as f64 / 1e6
    }),
    (Figure::new("block", "ms", Neither, 3, "time in uninterruptible sleep"), |p| {
        p.tasks.block_ns as f64 / 1e6
    }),
    (Figure::count("migrations", "how often its tasks went to another CPU"), |p| {
        p.tasks.migrations as f64
    }),
    (Figure::count("switches", "how often its tasks left a CPU, by themselves or not"), |p| {
        (p.tasks.voluntary + p.tasks.involuntary) as f64
    }),
    (Figure::count("wake-ups", "how often its tasks were woken"), |p| p.tasks.wakeups as f64),
    (Figure::new("latency mean", "us", Lower, 3, "from a wake-up until the task runs"), |p| {
        p.tasks.latency.mean_ps() as f64 / 1e6
    }),
    (Figure::new("latency p50", "us", Lower, 3, "median of that time"), |p| {
        p.tasks.latency.percentile_ps(500) as f64 / 1e6
    }),
    (Figure::new("latency p99", "us", Lower, 3, "99th percentile of that time"), |p| {
        p.tasks.latency.percentile_ps(990) as f64 / 1e6
    }),
];

/// A figure of a CPU or of the sum of several, and how it is taken: of what they did, how many
/// they are, and of the run's time in picoseconds.
type OfCpus = (Figure, fn(&CpuFigures, f64, f64) -> f64);

const CPUS: [OfCpus; 3] = [
    (
        Figure::new("busy", "%", Neither, 2, "share of the time in which a task ran"),
        |c, n, time| c.busy_ps as f64 * 100.0 / (time * n).max(1.0),
    ),
    (Figure::count("switches of CPUs", "from one task to another"), |c, _, _| c.switches as f64),
    (Figure::count("idle entries", "how often a CPU had nothing to do"), |c, _, _| c.idles as f64),
];

/// Of all CPUs together: a task that waits could have any of several.
const WASTED: Figure = Figure::new(
    "wasted",
    "ms",
    Lower,
    3,
    "CPU time that was idle while a task waited that may run there",
);

/// A figure of a vCPU.
type OfVcpu = (Figure, fn(&Vcpu) -> f64);

const VCPUS: [OfVcpu; 2] = [
    (Figure::new("steal", "ms", Lower, 3, "time in which a vCPU could run and did not"), |v| {
        v.steal_ns as f64 / 1e6
    }),
    (Figure::new("stolen", "%", Lower, 2, "steal time of what it ran and that together"), |v| {
        let steal = v.steal_ns as f64 * 1e3;
        steal * 100.0 / (steal + v.ran_ps as f64).max(1.0)
    }),
];

pub(super) fn of_vcpus() -> impl Iterator<Item = Figure> {
    VCPUS.into_iter().map(|(figure, _)| figure)
}
/// Steal time of each vCPU; where there are many, the mean of each virtual machine.
fn push_vcpus(rows: &mut Rows<'_>) {
    let Some(first) = rows.columns.first().and_then(|runs| runs.first()) else { return };
    let each = first.vcpus.len() <= ONE_BY_ONE;
    let mut names: Vec<(usize, usize, String)> = Vec::new();
    for v in &first.vcpus {
        let name = &first.processes[v.process].name;
        if each {
            names.push((v.process, v.number, format!("{name} vCPU {}", v.number)));
        } else if v.number == 0 {
            names.push((v.process, 0, name.clone()));
        }
    }
    for (process, number, name) in names {
        for (figure, get) in &VCPUS {
            let row = rows.push(Part::Tasks, figure, "", Shown::IfAny, &|r| {
                let mine = |v: &&Vcpu| v.process == process && (!each || v.number == number);
                let mine: Vec<f64> = r.vcpus.iter().filter(mine).map(get).collect();
                (!mine.is_empty()).then(|| mine.iter().sum::<f64>() / mine.len() as f64)
            });
            row.name = format!("{name}: {}", row.name);
        }
    }
}

pub(super) fn of_tasks() -> impl Iterator<Item = Figure> {
    TASKS.into_iter().map(|(figure, _)| figure)
}
pub(super) fn of_cpus() -> impl Iterator<Item = Figure> {
    CPUS.into_iter().map(|(figure, _)| figure).chain([WASTED])
}

/// Whether the scheduler has something to decide about a process.
fn is_scheduled(p: &Process) -> bool {
    p.threads > 0 || p.steps.iter().any(|s| matches!(s, Step::Cpu(_)))
}

/// Where the time of each process's tasks has gone, and that of the CPUs: for scenarios about
/// them.
pub(super) fn push(rows: &mut Rows<'_>, scenario: &Scenario) {
    let Some(runs) = rows.columns.first() else { return };
    if !scenario.processes.iter().any(is_scheduled) {
        return;
    }
    for (of, name) in together(&instances(scenario), runs) {
        for (figure, get) in &TASKS {
            let row = rows.push(Part::Tasks, figure, "", Shown::IfAny, &|r| {
                let these = &r.processes[of.clone()];
                Some(these.iter().map(get).sum::<f64>() / these.len() as f64)
            });
            row.name = format!("{name}: {}", row.name);
        }
    }
    let cpus = runs.first().map_or(0, |r| r.cpus.len());
    push_vcpus(rows);
    let sum = |all: &[CpuFigures]| {
        let add = |a: CpuFigures, b: &CpuFigures| CpuFigures {
            busy_ps: a.busy_ps + b.busy_ps,
            switches: a.switches + b.switches,
            idles: a.idles + b.idles,
            clocks: a.clocks + b.clocks,
        };
        all.iter().fold(CpuFigures::default(), add)
    };
    let each = (cpus <= ONE_BY_ONE).then_some(0..cpus).into_iter().flatten();
    let stretches = std::iter::once((0..cpus, "all".to_owned()))
        .chain(each.map(|cpu| (cpu..cpu + 1, format!("CPU {cpu}"))));
    for (i, (of, name)) in stretches.enumerate() {
        for (figure, get) in &CPUS {
            // One by one only what tells them apart at a glance.
            let shown = i == 0 || figure.name == CPUS[0].0.name;
            let shown = if shown { Shown::IfAny } else { Shown::Never };
            let row = rows.push(Part::Cpus, figure, "", shown, &|r| {
                Some(get(&sum(&r.cpus[of.clone()]), of.len() as f64, r.time_ps as f64))
            });
            row.name = format!("{name}: {}", row.name);
        }
        if i == 0 {
            let wasted = |r: &RunFigures| Some(r.wasted_ps as f64 / 1e9);
            let row = rows.push(Part::Cpus, &WASTED, "", Shown::IfAny, &wasted);
            row.name = format!("{name}: {}", row.name);
        }
    }
}
