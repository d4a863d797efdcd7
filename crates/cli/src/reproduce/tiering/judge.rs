//! What follows from the figures: the seed's conclusions, each with the figures that
//! decide. Nothing here knows where the figures come from.
#![expect(clippy::neg_cmp_op_on_partial_ord, reason = "what is no number has to fail")]

use super::curve::{self, Curve};
use super::selection::{self, Selection};
use crate::reproduce::experiment::{Moved, everywhere};
use homenode_report::Conclusion;

/// The largest gain of mode 2/b over balancing off lies in this band, in per cent.
pub(super) const LARGEST_GAIN: (f64, f64) = (50.0, 150.0);
/// Mode 1 gains less than this share of it.
pub(super) const MODE1_SHARE: f64 = 0.1;
/// What counts as equal beside the neighbour.
pub(super) const EQUAL: f64 = 0.02;

/// Gains over balancing off, in per cent, by working set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gains {
    pub(super) factor: u64,
    /// Working sets in hundredths of the fast node.
    pub(super) percents: Vec<u64>,
    pub(super) mode1: Vec<f64>,
    pub(super) b: Vec<f64>,
    pub(super) a: Vec<f64>,
}

impl Gains {
    /// The largest gain of mode 2/b, and at which place of the working sets.
    pub(super) fn largest(&self) -> (f64, usize) {
        let best = |best: (f64, usize), (i, &g): (usize, &f64)| {
            if g > best.0 { (g, i) } else { best }
        };
        self.b.iter().enumerate().fold((f64::NEG_INFINITY, 0), best)
    }
    /// The largest gain of mode 1.
    pub(super) fn mode1_most(&self) -> f64 {
        self.mode1.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// What the neighbour sees under one kernel, summed or averaged over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// Allocations that had to reclaim.
    pub(super) allocstall: f64,
    /// Pages that direct reclaim looked at.
    pub(super) pgscan_direct: f64,
    /// 99th percentile of the allocations' latency, in ns.
    pub(super) p99_ns: f64,
}

impl Beside {
    fn all(&self) -> [(&'static str, f64); 3] {
        [
            ("allocstall", self.allocstall),
            ("pgscan_direct", self.pgscan_direct),
            ("p99", self.p99_ns),
        ]
    }
    /// What of it differs from `other` by more than counts as equal.
    fn differs(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.all().into_iter().zip(other.all());
        pairs
            // Written so that what is no number differs from everything.
            .filter(|((_, x), (_, y))| !((x - y).abs() <= EQUAL * y.abs()))
            .map(|((name, _), _)| name)
            .collect()
    }
    /// Whether direct reclaim and the latency are both above `other`'s by more than
    /// counts as equal.
    fn above(&self, other: &Self) -> bool {
        self.all().into_iter().zip(other.all()).all(|((_, x), (_, y))| x > y * (1.0 + EQUAL))
    }
    fn shown(&self) -> String {
        format!(
            "{:.0} stalls, {:.0} pages, p99 {:.2} µs",
            self.allocstall,
            self.pgscan_direct,
            self.p99_ns / 1000.0
        )
    }
}

/// The neighbour under three kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbour {
    pub(super) factor: u64,
    pub(super) off: Beside,
    pub(super) b: Beside,
    pub(super) a: Beside,
}

/// At the working set of the largest gain: gains of two modes, and the neighbour.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gained {
    pub(super) b: f64,
    pub(super) mode1: f64,
    pub(super) neighbour: Neighbour,
}

/// Everything that is judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Findings {
    /// By scale, the main one first.
    pub(super) gains: Vec<Gains>,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) moved: Vec<Moved<Gained>>,
    pub(super) selection: Selection,
    /// The gain by scale; `None` on another machine than the curve's, or with another margin.
    pub(super) curve: Option<Curve>,
}

impl Findings {
    /// The gain that conclusion 1 is about: the curve's limit, or the largest at the main scale where there
    /// is no curve. No number where there is none to be seen.
    pub(super) fn decides(&self) -> f64 {
        match &self.curve {
            Some(curve) => curve.limit().unwrap_or(f64::NAN),
            None => self.gains.first().map_or(f64::NAN, |main| main.largest().0),
        }
    }
}

/// Signs and order of one set of figures; what is wrong with them.
pub(super) fn order(b: f64, mode1: f64, n: &Neighbour) -> Vec<String> {
    let mut wrong = Vec::new();
    // Both written so that what is no number is wrong.
    if !(b > 0.0) {
        wrong.push(format!("mode 2/b gains {b:.1} %"));
    }
    if !(mode1 < b * MODE1_SHARE) {
        wrong.push(format!("mode 1 gains {mode1:.1} % where mode 2/b gains {b:.1} %"));
    }
    for what in n.b.differs(&n.off) {
        wrong.push(format!("{what} under b isn't that with balancing off"));
    }
    if !n.a.above(&n.off) {
        wrong.push("not all rises under a".to_owned());
    }
    wrong
}

/// The conclusions.
pub(super) fn judge(f: &Findings) -> Vec<Conclusion> {
    let mut all = Vec::new();
    let mut say = |holds: bool, text: String| all.push(Conclusion { text, holds, amended: false });
    let times = |p: u64| format!("{:.2}", p as f64 / 100.0);
    if let Some(main) = f.gains.first() {
        let (largest, at) = main.largest();
        let (low, high) = LARGEST_GAIN;
        let decides = f.decides();
        let here = format!("{largest:+.1} %, at a map of {} times DRAM", times(main.percents[at]));
        let (where_from, fine) = match &f.curve {
            None => (here, true),
            Some(curve) => {
                // The curve was taken at one map; it has to be of the rules that run here.
                let place = main.percents.iter().position(|&p| p == curve::PERCENT);
                let fine = place.is_none_or(|at| curve.agrees(main.factor, main.b[at]));
                let limit = match curve.limit() {
                    Some(limit) => format!("{limit:+.1} % in the limit of its scale"),
                    None => "no limit of its scale is to be seen".to_owned(),
                };
                let other = if fine { "" } else { ", which is not the curve's: make it anew" };
                (
                    format!(
                        "{limit} ({}; here, at 1:{}, {here}{other})",
                        curve.told(),
                        main.factor
                    ),
                    fine,
                )
            }
        };
        say(
            fine && (low..=high).contains(&decides),
            format!(
                "1. The largest gain of mode 2/b over balancing off lies between +{low:.0} % and \
                 +{high:.0} %: {where_from} (seed: up to +95.9 %)."
            ),
        );
        let mode1 = main.mode1_most();
        say(
            mode1 < largest * MODE1_SHARE,
            format!(
                "2. Mode 1 gains less than a tenth of that once DRAM is full: {mode1:+.1} % at most."
            ),
        );
    }
    if let Some(n) = f.neighbours.first() {
        let differs = n.b.differs(&n.off);
        let because = if differs.is_empty() {
            String::new()
        } else {
            format!(" (differs: {})", differs.join(", "))
        };
        say(
            differs.is_empty() && n.a.above(&n.off),
            format!(
                "3. Beside an allocating neighbour bound to the fast node, direct reclaim and its \
                 p99 under b equal those with balancing off within {:.0} %, and rise under a: off \
                 {}; b {}{because}; a {}.",
                EQUAL * 100.0,
                n.off.shown(),
                n.b.shown(),
                n.a.shown()
            ),
        );
    }
    let at_scales = f.gains.iter().zip(&f.neighbours).map(|(g, n)| {
        let (b, at) = g.largest();
        (g.factor, order(b, g.mode1[at], n))
    });
    all.push(everywhere("4. Signs and order are the same", at_scales, &f.moved));
    all.extend(selection::judge(&f.selection));
    all
}

#[cfg(test)]
mod tests;
