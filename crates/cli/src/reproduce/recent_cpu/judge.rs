//! What follows from where the client ran: the seed's sentences, held exactly.

use super::run::{COUNTED, Course, Patch};
use crate::reproduce::experiment::{Moved, conclusion, with_each};
use homenode_report::Conclusion;
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
