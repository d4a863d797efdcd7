//! The table's section on processes: each of them, or many that are alike as one.

use super::Column;
use crate::nodes::Shelf;
use homenode_core::scenario::{Process, Scenario, Step};
use homenode_report::{Better, Figure, Group};
use homenode_sim::ProcessFigures;
use std::ops::Range;

/// So many are told one by one; a host has more guests than a table should have rows.
const ONE_BY_ONE: usize = 8;

/// Figures of a process, from one or from the mean of several.
struct Rows<'a> {
    name: String,
    columns: &'a [Column],
    of: Range<usize>,
    figures: Vec<Figure>,
}

impl Rows<'_> {
    fn push(
        &mut self,
        what: &str,
        unit: &str,
        better: Better,
        precision: usize,
        get: &dyn Fn(&ProcessFigures) -> f64,
    ) {
        let of = self.of.clone();
        let mean = move |all: &[ProcessFigures]| {
            all[of.clone()].iter().map(get).sum::<f64>() / of.len() as f64
        };
        self.push_all(what, unit, better, precision, &mean);
    }
    fn push_all(
        &mut self,
        what: &str,
        unit: &str,
        better: Better,
        precision: usize,
        get: &dyn Fn(&[ProcessFigures]) -> f64,
    ) {
        let of = |c: &Column| c.runs.iter().map(|r| get(&r.processes)).collect();
        self.figures.push(Figure {
            name: format!("{}: {what}", self.name),
            unit: unit.into(),
            better,
            precision,
            samples: self.columns.iter().map(of).collect(),
        });
    }
}

/// Time and place of accesses, process by process; the rate of its main part where it
/// has phases to tell apart, and what allocations took where it allocates over and over.
/// Of many that are alike the mean, and by how much their rates differ.
pub(super) fn group(scenario: &Scenario, shelves: &[Shelf], columns: &[Column]) -> Group {
    let runs = &columns[0].runs;
    let count = runs.iter().map(|r| r.processes.len()).min().unwrap_or(0);
    let all = &scenario.processes[..count];
    let mut figures = Vec::new();
    for of in stretches(all) {
        let first = &runs[0].processes[of.start].name;
        let name = match of.len() {
            1 => first.clone(),
            n => format!("{first} and {} more", n - 1),
        };
        let rows = Rows { name, columns, of: of.clone(), figures: Vec::new() };
        figures.extend(told(rows, &all[of.start].steps, shelves));
    }
    Group { title: "processes".into(), figures }
}

/// What is told together, as places of the first and behind the last.
fn stretches(all: &[Process]) -> Vec<Range<usize>> {
    let alike = |a: &Process, b: &Process| {
        a.steps == b.steps && a.maps == b.maps && a.cpus.len() == b.cpus.len()
    };
    let mut out: Vec<Range<usize>> = Vec::new();
    for i in 0..all.len() {
        match out.last_mut() {
            Some(last) if all.len() > ONE_BY_ONE && alike(&all[last.start], &all[i]) => {
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
    let pattern = |i: &usize| matches!(steps[*i], Step::Access { .. });
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

fn told(mut rows: Rows<'_>, steps: &[Step], shelves: &[Shelf]) -> Vec<Figure> {
    rows.push("time", "s", Better::Lower, 4, &|p| p.time_ps as f64 / 1e12);
    if let Some(first) = shelves.first() {
        let what = format!("accesses in {}", first.name);
        rows.push(&what, "%", Better::Neither, 2, &|p| {
            let sum = |places: &mut dyn Iterator<Item = usize>| -> u64 {
                places.filter_map(|x| p.accesses.get(x)).map(|a| a[0] + a[1]).sum()
            };
            let all = sum(&mut (0..p.accesses.len()));
            sum(&mut first.places.iter().copied()) as f64 * 100.0 / all.max(1) as f64
        });
    }
    if steps.iter().any(|s| matches!(s, Step::Initialize { .. } | Step::Barrier)) {
        let main = main_part(steps);
        rows.push("accesses", "1/s", Better::Higher, 0, &|p| rate(p, &main));
        let of = rows.of.clone();
        if of.len() > 1 {
            rows.push_all("their deviation", "%", Better::Lower, 3, &|all| {
                let rates: Vec<f64> = all[of.clone()].iter().map(|p| rate(p, &main)).collect();
                deviation(&rates)
            });
        }
    }
    if steps.iter().any(|s| matches!(s, Step::Map { .. })) {
        let us = |ps: u64| ps as f64 / 1e6;
        rows.push("allocations", "", Better::Neither, 0, &|p| p.allocations.count() as f64);
        for (what, thousandths) in [("allocation p50", 500), ("allocation p99", 990)] {
            rows.push(what, "us", Better::Lower, 3, &|p| {
                us(p.allocations.percentile_ps(thousandths))
            });
        }
        rows.push("allocation max", "us", Better::Lower, 3, &|p| us(p.allocations.max_ps()));
    }
    rows.figures
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
        assert_eq!(stretches(&few).len(), 8);
        let mut many: Vec<Process> = (0..9).map(guest).collect();
        assert_eq!(stretches(&many), vec![0..9]);
        many.insert(4, process("other", vec![Step::Wait]));
        assert_eq!(stretches(&many), [0..4, 4..5, 5..10]);
        assert!(stretches(&[]).is_empty());
    }

    #[test]
    fn deviations_are_of_all_and_relative() {
        assert_eq!(deviation(&[5.0, 5.0]), 0.0);
        assert_eq!(deviation(&[9.0, 11.0]), 10.0);
        assert_eq!(deviation(&[0.0, 0.0]), 0.0);
    }
}
