//! What follows from what the runs took: the plan's bands and criteria.

use super::run::{Kernel, Took, Way};
use crate::reproduce::experiment::{Moved, conclusion, with_each};
use homenode_report::{Conclusion, stats};

/// Without slow start against off, %: the seed's +1.9 and +2.6.
pub(super) const WITHOUT: (f64, f64) = (1.0, 4.0);
/// With slow start against off, %: the seed's −0.2 and +0.0.
pub(super) const WITH: (f64, f64) = (-0.5, 0.5);
/// hackbench with slow start against off, %, at most: the seed's +0.8.
pub(super) const MESSAGING: f64 = 1.2;
/// Locality with slow start, % of that without, at least.
pub(super) const LOCALITY: f64 = 98.0;

/// The three ways of one kernel at one point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ways {
    pub(super) off: Took,
    pub(super) without: Took,
    pub(super) with: Took,
}

impl Ways {
    pub(super) const fn of(&self, way: Way) -> &Took {
        match way {
            Way::Off => &self.off,
            Way::Without => &self.without,
            Way::With => &self.with,
        }
    }
    /// More processor time than with balancing off, %.
    pub(super) fn busy(&self, way: Way) -> f64 {
        more(self.of(way).busy_s, self.off.busy_s)
    }
    /// More elapsed time, %.
    pub(super) fn elapsed(&self, way: Way) -> f64 {
        more(self.of(way).elapsed_s, self.off.elapsed_s)
    }
    /// Locality with slow start, % of that without.
    pub(super) fn locality(&self) -> f64 {
        self.with.local * 100.0 / self.without.local
    }
}

fn more(x: f64, of: f64) -> f64 {
    (x / of - 1.0) * 100.0
}

/// By kernel that decides.
pub(super) type ByKernel = [Ways; Kernel::DECIDE.len()];

/// Everything that is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// By seed of the random streams.
    pub(super) build: Vec<ByKernel>,
    pub(super) messaging: Vec<ByKernel>,
    pub(super) long: Vec<ByKernel>,
    pub(super) moved: Vec<Moved<ByKernel>>,
}

/// The mean of a figure over seeds; no number where there are none.
pub(super) fn mean(seeds: &[ByKernel], kernel: usize, get: impl Fn(&Ways) -> f64) -> f64 {
    stats::mean(&seeds.iter().map(|ways| get(&ways[kernel])).collect::<Vec<_>>())
}

/// What is wrong with the order at a point: without slow start costs more than with it, and more than nothing.
pub(super) fn wrong(point: &ByKernel) -> Vec<String> {
    let mut all = Vec::new();
    for (kernel, ways) in Kernel::DECIDE.iter().zip(point) {
        let (without, with) = (ways.busy(Way::Without), ways.busy(Way::With));
        // What is no number is wrong as well.
        if !(without > with && without > 0.0) {
            all.push(format!("{}: {without:+.2} % without, {with:+.2} % with", kernel.name()));
        }
    }
    all
}

/// The conclusions.
pub(super) fn judge(found: &Findings) -> Vec<Conclusion> {
    let outside = |kernel: usize, seeds: &[ByKernel], (low, high), get: &dyn Fn(&Ways) -> f64| {
        let x = mean(seeds, kernel, get);
        let inside = (low..=high).contains(&x);
        if inside { vec![] } else { vec![format!("it is {x:+.2} %")] }
    };
    let build = &found.build;
    let above: Vec<String> = Kernel::DECIDE
        .iter()
        .enumerate()
        .filter_map(|(k, kernel)| {
            let of = |way| mean(&found.messaging, k, |w: &Ways| w.elapsed(way));
            let (with, without) = (of(Way::With), of(Way::Without));
            let fine = with <= without && with <= MESSAGING;
            (!fine)
                .then(|| format!("{}: {with:+.2} % with, {without:+.2} % without", kernel.name()))
        })
        .collect();
    let mut order = Vec::new();
    for (i, point) in build.iter().enumerate() {
        order.extend(wrong(point).into_iter().map(|w| format!("seed {}: {w}", i + 1)));
    }
    if build.is_empty() {
        order.push("nothing was run".to_owned());
    }
    let (constants, elsewhere) = with_each(&found.moved);
    order.extend(elsewhere);
    let mut all = Vec::new();
    for (k, kernel) in Kernel::DECIDE.iter().enumerate() {
        let name = kernel.name();
        all.push(conclusion(
            &format!("1. A build costs 1 to 4 % without slow start ({name})"),
            outside(k, build, WITHOUT, &|w| w.busy(Way::Without)),
        ));
        all.push(conclusion(
            &format!(
                "1. With slow start it costs what it costs without balancing, within 0.5 % ({name})"
            ),
            outside(k, build, WITH, &|w| w.busy(Way::With)),
        ));
    }
    all.push(conclusion(
        "2. hackbench with slow start is at most 1.2 % above off, and not above what it is without",
        above,
    ));
    for (k, kernel) in Kernel::DECIDE.iter().enumerate() {
        all.push(conclusion(
            &format!(
                "3. Tasks that run for long come to at least 98 % of the locality that they have without ({})",
                kernel.name()
            ),
            outside(k, &found.long, (LOCALITY, f64::INFINITY), &Ways::locality),
        ));
    }
    all.push(conclusion(
        &format!(
            "4. Without slow start costs more than with it for each seed, and with each of {constants} constants moved by ±20 %"
        ),
        order,
    ));
    all
}
