//! What follows from where the client ran: the seed's sentences, held exactly.

use super::run::{COUNTED, Course, Patch};
use crate::reproduce::experiment::{Figures, Moved, conclusion, with_each};
use homenode_report::{Conclusion, stats};
use std::collections::BTreeSet;

/// So many CPUs the seed writes down.
pub(super) const WRITTEN: usize = 4;

/// Both ways at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) without: Course,
    pub(super) with: Course,
}

impl Ways {
    /// That of a patch which decides.
    pub(super) fn of(&self, patch: Patch) -> &Course {
        if patch == Patch::With { &self.with } else { &self.without }
    }
}

/// Everything that is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// By seed of the random streams.
    pub(super) seeds: Vec<Ways>,
    pub(super) moved: Vec<Moved<Ways>>,
}

fn list(cpus: &[u16]) -> String {
    cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// Where the first runs are not those of the seed.
fn other_runs(ways: &Ways, patch: Patch) -> Option<String> {
    let runs = &ways.of(patch).runs;
    let first = &runs[..runs.len().min(COUNTED)];
    (first != patch.expected()).then(|| format!("{} {}", patch.name(), list(first)))
}

/// Where the client used more CPUs or fewer over the whole run.
fn other_cpus(ways: &Ways, patch: Patch) -> Option<String> {
    let expected: BTreeSet<u16> = patch.expected().into_iter().collect();
    let used = &ways.of(patch).cpus;
    let told = || list(&used.iter().copied().collect::<Vec<_>>());
    (*used != expected).then(|| format!("{} uses {}", patch.name(), told()))
}

const BOTH: [Patch; 2] = [Patch::Without, Patch::With];

/// What is wrong at a point.
pub(super) fn wrong(ways: &Ways) -> Vec<String> {
    let all = BOTH.into_iter().flat_map(|p| [other_runs(ways, p), other_cpus(ways, p)]);
    all.flatten().collect()
}

/// The conclusions.
pub(super) fn judge(found: &Findings) -> Vec<Conclusion> {
    let at_seeds = |what: fn(&Ways, Patch) -> Option<String>, patches: &[Patch]| {
        let mut wrong: Vec<String> = Vec::new();
        for (i, ways) in found.seeds.iter().enumerate() {
            let here = patches.iter().filter_map(|&p| what(ways, p));
            wrong.extend(here.map(|w| format!("seed {}: {w}", i + 1)));
        }
        if found.seeds.is_empty() {
            wrong.push("nothing was run".to_owned());
        }
        wrong
    };
    let runs = |patch: Patch| list(&patch.expected());
    let (constants, elsewhere) = with_each(&found.moved);
    vec![
        conclusion(
            &format!("1. Without the seed the client walks: {}", runs(Patch::Without)),
            at_seeds(other_runs, &[Patch::Without]),
        ),
        conclusion(
            &format!("2. With it the two stay on two CPUs: {}", runs(Patch::With)),
            at_seeds(other_runs, &[Patch::With]),
        ),
        conclusion(
            "3. So it is over the whole run: all eight CPUs without it, two with it",
            at_seeds(other_cpus, &BOTH),
        ),
        conclusion(
            &format!("4. All of this holds with each of {} constants moved by ±20 %", constants),
            elsewhere,
        ),
    ]
}

// ── What the seed measured ─────────────────────────────────────────────────────

/// Least gain of dbench on XFS with one client, in per cent.
pub(super) const ONE: f64 = 100.0;
/// Bounds of it with two.
pub(super) const TWO: (f64, f64) = (20.0, 60.0);
/// Most that more clients gain or lose.
pub(super) const MORE: f64 = 10.0;
/// Below this on ext4.
pub(super) const EXT4: f64 = 10.0;
/// Bounds of netperf's RR.
pub(super) const RR: (f64, f64) = (4.0, 20.0);
/// Bounds of hackbench.
pub(super) const HACKBENCH: (f64, f64) = (2.0, 15.0);

/// Gains in per cent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gains {
    /// dbench on XFS, by clients.
    pub(super) xfs: Vec<(u32, f64)>,
    pub(super) ext4: f64,
    /// netperf, by name.
    pub(super) rr: Vec<(String, f64)>,
    /// hackbench, by groups.
    pub(super) hackbench: Vec<(u32, f64)>,
    pub(super) moved: Vec<Moved<One>>,
}

/// The gain of dbench on XFS with one client, and its clock with the seed in MHz.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct One {
    pub(super) gain: f64,
    pub(super) mhz: f64,
}

impl Figures for One {
    const DIGITS: usize = 1;
    const MOST: Option<&'static str> = Some("MHz with, most");
    fn figure(&self) -> f64 {
        self.gain
    }
    fn most(&self) -> f64 {
        self.mhz
    }
    fn wrong(&self) -> Vec<String> {
        if self.gain > 0.0 { Vec::new() } else { vec![format!("{:+.1} %", self.gain)] }
    }
}

/// The mean gain of hackbench's counts.
pub(super) fn mean_of(all: &[(u32, f64)]) -> f64 {
    stats::mean(&all.iter().map(|(_, gain)| *gain).collect::<Vec<_>>())
}

/// A gain that is outside of its bounds, or none.
fn outside(name: &str, gain: f64, low: f64, high: f64) -> Option<String> {
    (!(low..=high).contains(&gain)).then(|| format!("{gain:+.1} %{name}"))
}

/// The conclusions about them.
pub(super) fn judge_gains(found: &Gains) -> Vec<Conclusion> {
    let xfs = |which: &dyn Fn(u32) -> bool, low: f64, high: f64| -> Vec<String> {
        let mut those = found.xfs.iter().filter(|(n, _)| which(*n)).peekable();
        if those.peek().is_none() {
            return vec!["nothing was run".to_owned()];
        }
        those.filter_map(|(n, gain)| outside(&format!(" at {n}"), *gain, low, high)).collect()
    };
    let rr = found
        .rr
        .iter()
        .filter_map(|(name, gain)| outside(&format!(" of {name}"), *gain, RR.0, RR.1));
    let mut rr: Vec<String> = rr.collect();
    if found.rr.is_empty() {
        rr.push("nothing was run".to_owned());
    }
    let hackbench = mean_of(&found.hackbench);
    let (constants, elsewhere) = with_each(&found.moved);
    let below = f64::from_bits(EXT4.to_bits() - 1);
    vec![
        conclusion(
            "5. dbench XFS-like with one client gains 100 % or more",
            xfs(&|n| n == 1, ONE, f64::INFINITY),
        ),
        conclusion("6. With two clients 20 to 60 %", xfs(&|n| n == 2, TWO.0, TWO.1)),
        conclusion("7. With more it is within ±10 %", xfs(&|n| n > 2, -MORE, MORE)),
        conclusion(
            "8. dbench ext4-like with one client gains less than 10 %",
            outside("", found.ext4, f64::NEG_INFINITY, below).into_iter().collect(),
        ),
        conclusion("9. netperf's RR gains 4 to 20 %, UDP and TCP", rr),
        conclusion(
            "10. hackbench gains 2 to 15 % in the mean of its counts",
            outside("", hackbench, HACKBENCH.0, HACKBENCH.1).into_iter().collect(),
        ),
        conclusion(
            &format!(
                "11. dbench XFS-like with one client gains with each of {constants} constants moved by ±20 %"
            ),
            elsewhere,
        ),
    ]
}
