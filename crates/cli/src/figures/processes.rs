//! Figures of processes: each of them, or many that are alike as one.

use super::{Part, Rows, RunFigures, Shown};
use crate::nodes::Shelf;
use homenode_core::scenario::{Process, Scenario, Step};
use homenode_core::units::LINE_SIZE;
use homenode_report::Better::{Higher, Lower, Neither};
use homenode_report::Figure;
use homenode_sim::ProcessFigures;
use std::ops::Range;

/// So many are told one by one; a host has more guests than a table should have rows.
const ONE_BY_ONE: usize = 8;

/// Processes that are told together, in one run.
struct Alike<'a> {
    all: &'a [ProcessFigures],
    /// The steps of their main part.
    main: &'a [usize],
    /// Places of the fastest nodes.
    fast: &'a [usize],
    /// The places of its streams among its steps.
    streams: &'a [usize],
}

impl Alike<'_> {
    fn mean(&self, get: impl Fn(&ProcessFigures) -> f64) -> f64 {
        self.all.iter().map(get).sum::<f64>() / self.all.len() as f64
    }
    /// The mean of so many thousandths of the allocations, in microseconds.
    fn allocation(&self, thousandths: u32) -> f64 {
        self.mean(|p| p.allocations.percentile_ps(thousandths) as f64 / 1e6)
    }
}

/// A figure of a process or of the mean of several, and how it is taken.
type Taken = (Figure, fn(&Alike<'_>) -> f64);

const TIME: Taken =
    (Figure::new("time", "s", Lower, 4, "virtual time from a process's start to its end"), |a| {
        a.mean(|p| p.time_ps as f64 / 1e12)
    });

const IN_TIER: Taken = (
    Figure::new("accesses in {}", "%", Neither, 2, "share of its accesses that went there"),
    |a| {
        a.mean(|p| {
            let sum = |places: &mut dyn Iterator<Item = usize>| -> u64 {
                places.filter_map(|x| p.accesses.get(x)).map(|a| a[0] + a[1]).sum()
            };
            let all = sum(&mut (0..p.accesses.len()));
            sum(&mut a.fast.iter().copied()) as f64 * 100.0 / all.max(1) as f64
        })
    },
);

const RATE: Taken =
    (Figure::new("accesses", "1/s", Higher, 0, "accesses a second of its main part"), |a| {
        a.mean(|p| rate(p, a.main))
    });

const STREAMED: Taken = (
    Figure::new("streamed", "GB/s", Higher, 3, "what its streams had, in lines of 64 bytes"),
    |a| a.mean(|p| rate(p, a.streams)) * LINE_SIZE as f64 / 1e9,
);

const DEVIATION: Taken =
    (Figure::new("their deviation", "%", Lower, 3, "by how much these rates lie apart"), |a| {
        deviation(&a.all.iter().map(|p| rate(p, a.main)).collect::<Vec<_>>())
    });

/// What allocations took, where a process allocates over and over.
const ALLOCATIONS: [Taken; 4] = [
    (Figure::count("allocations", "first touches of a page"), |a| {
        a.mean(|p| p.allocations.count() as f64)
    }),
    (Figure::new("allocation p50", "us", Lower, 3, "median time of a first touch"), |a| {
        a.allocation(500)
    }),
    (Figure::new("allocation p99", "us", Lower, 3, "99th percentile of that time"), |a| {
        a.allocation(990)
    }),
    (Figure::new("allocation max", "us", Lower, 3, "the longest of them"), |a| {
        a.mean(|p| p.allocations.max_ps() as f64 / 1e6)
    }),
];

pub(super) fn all() -> impl Iterator<Item = Figure> {
    let all = [TIME, IN_TIER, RATE, STREAMED, DEVIATION].into_iter().chain(ALLOCATIONS);
    all.map(|(figure, _)| figure)
}

/// Time and place of accesses, process by process; the rate of its main part where it
/// has phases to tell apart, and what allocations took where it allocates over and over.
/// Of many that are alike the mean, and by how much their rates differ.
pub(super) fn push(rows: &mut Rows<'_>, scenario: &Scenario, shelves: &[Shelf]) {
    let Some(runs) = rows.columns.first() else { return };
    let all = instances(scenario);
    let asks = |s: &Step| matches!(s, Step::Initialize { .. } | Step::Barrier | Step::Map { .. });
    let several =
        scenario.processes.len() > 1 || scenario.processes.iter().any(|p| p.steps.iter().any(asks));
    let beside = scenario.processes.iter().any(|p| p.steps.iter().any(is_stream));
    for (of, name) in together(&all, runs) {
        let steps = &all[of.start].steps;
        let main = main_part(steps);
        let streams: Vec<usize> = (0..steps.len()).filter(|&i| is_stream(&steps[i])).collect();
        let fast = shelves.first().map(|s| s.places.as_slice()).unwrap_or_default();
        let mut push = |(figure, get): &Taken, what: &str, shown: bool| {
            let shown = if several && shown { Shown::IfAny } else { Shown::Never };
            let row = rows.push(Part::Processes, figure, what, shown, &|r| {
                Some(get(&Alike {
                    all: &r.processes[of.clone()],
                    main: &main,
                    fast,
                    streams: &streams,
                }))
            });
            row.name = format!("{name}: {}", row.name);
        };
        push(&TIME, "", true);
        if let Some(first) = shelves.first() {
            let any = |r: &&RunFigures| r.processes[of.clone()].iter().any(has_accesses);
            push(&IN_TIER, &first.name, runs.iter().any(any));
        }
        let phases = steps.iter().any(|s| matches!(s, Step::Initialize { .. } | Step::Barrier));
        // Who shares a machine with streams asks how fast it was in its own time.
        push(&RATE, "", phases || (beside && streams.is_empty()));
        push(&STREAMED, "", !streams.is_empty());
        if of.len() > 1 {
            push(&DEVIATION, "", phases);
        }
        let allocates = steps.iter().any(|s| matches!(s, Step::Map { .. }));
        for figure in &ALLOCATIONS {
            push(figure, "", allocates);
        }
    }
}

fn is_stream(step: &Step) -> bool {
    matches!(step, Step::Stream { .. })
}

/// Whether a process has used memory.
fn has_accesses(p: &ProcessFigures) -> bool {
    p.accesses.iter().flatten().any(|&n| n > 0)
}

/// A scenario's processes with all their copies, in the order of the run's.
pub(super) fn instances(scenario: &Scenario) -> Vec<&Process> {
    let copies = |p| std::iter::repeat_n(p, Process::copy_count(p) as usize);
    scenario.processes.iter().flat_map(copies).collect()
}

/// What is told together of the processes that all runs have: their places and what they are called.
pub(super) fn together(all: &[&Process], runs: &[&RunFigures]) -> Vec<(Range<usize>, String)> {
    let count = runs.iter().map(|r| r.processes.len()).min().unwrap_or(0);
    let name = |of: Range<usize>| {
        let first = &runs[0].processes[of.start].name;
        match of.len() {
            1 => (of, first.clone()),
            n => (of, format!("{first} and {} more", n - 1)),
        }
    };
    stretches(&all[..count]).into_iter().map(name).collect()
}

/// What is told together, as places of the first and behind the last.
fn stretches(all: &[&Process]) -> Vec<Range<usize>> {
    let alike = |a: &Process, b: &Process| {
        a.steps == b.steps && a.maps == b.maps && a.thread_count() == b.thread_count()
    };
    let mut out: Vec<Range<usize>> = Vec::new();
    for i in 0..all.len() {
        match out.last_mut() {
            Some(last) if all.len() > ONE_BY_ONE && alike(all[last.start], all[i]) => {
                last.end = i + 1;
            }
            _ => out.push(i..i + 1),
        }
    }
    out
}

/// The steps whose accesses are a process's main part: the last pattern, as pmbench's
/// is, with those that are repeated together with it. What came before warms up.
fn main_part(steps: &[Step]) -> Vec<usize> {
    let pattern = |i: &usize| steps[*i].accesses();
    let Some(last) = (0..steps.len()).rev().find(pattern) else { return Vec::new() };
    let mut loops = steps.iter().enumerate().filter_map(|(i, s)| match s {
        Step::Repeat { steps: n, .. } => Some(i.saturating_sub(*n as usize)..i),
        _ => None,
    });
    // The innermost comes first.
    let part = loops.find(|l| l.contains(&last)).unwrap_or(last..last + 1);
    part.filter(pattern).collect()
}

/// Accesses a second of the phases of some steps, by the mean time of a thread.
fn rate(p: &ProcessFigures, steps: &[usize]) -> f64 {
    let of = || p.phases.iter().filter(|f| steps.contains(&f.step));
    if let [one] = of().collect::<Vec<_>>()[..] {
        return one.per_second() as f64;
    }
    let time: u64 = of().map(|f| f.time_ps).sum();
    let thread_accesses: u64 = of().map(|f| f.count() * f.threads).sum();
    if time == 0 { 0.0 } else { thread_accesses as f64 * 1e12 / time as f64 }
}

/// Standard deviation of all, in percent of their mean.
fn deviation(all: &[f64]) -> f64 {
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let variance = all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    if mean == 0.0 { 0.0 } else { variance.sqrt() * 100.0 / mean }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::scenario::{Again, Pattern, Until};
    use homenode_core::units::{CpuId, Picos};

    fn access() -> Step {
        Step::Access {
            map: "m".into(),
            pattern: Pattern::Sequential,
            write: 0,
            compute: Picos::ZERO,
            mlp: 1,
            until: Until::Accesses(1),
        }
    }
    fn process(name: &str, steps: Vec<Step>) -> Process {
        Process::new(name, vec![CpuId(0)], Vec::new(), steps)
    }

    #[test]
    fn the_main_part_is_the_last_pattern_and_its_round() {
        let again = |steps| Step::Repeat { steps, until: Again::Times(2) };
        assert_eq!(main_part(&[Step::Barrier]), [0usize; 0]);
        assert_eq!(main_part(&[access(), Step::Barrier, access()]), [2]);
        let round = [access(), Step::Barrier, access(), access(), again(3), Step::Barrier];
        assert_eq!(main_part(&round), [2, 3]);
        // A loop beside the last pattern has nothing to do with it.
        assert_eq!(main_part(&[access(), access(), again(1), access()]), [3]);
    }

    #[test]
    fn only_many_that_are_alike_are_told_as_one() {
        let guest = |i: usize| process(&format!("vm-{i}"), vec![Step::Barrier]);
        let few: Vec<Process> = (0..8).map(guest).collect();
        assert_eq!(stretches(&few.iter().collect::<Vec<_>>()).len(), 8);
        let mut many: Vec<Process> = (0..9).map(guest).collect();
        assert_eq!(stretches(&many.iter().collect::<Vec<_>>()), vec![0..9]);
        many.insert(4, process("other", vec![Step::Wait]));
        assert_eq!(stretches(&many.iter().collect::<Vec<_>>()), [0..4, 4..5, 5..10]);
        assert!(stretches(&[]).is_empty());
    }

    #[test]
    fn deviations_are_of_all_and_relative() {
        assert_eq!(deviation(&[5.0, 5.0]), 0.0);
        assert_eq!(deviation(&[9.0, 11.0]), 10.0);
        assert_eq!(deviation(&[0.0, 0.0]), 0.0);
    }
}
