//! What a scenario says that a kernel accepts without a word and does not heed.

use homenode_core::scenario::{Content, Map, Process, Scenario, Step};

/// One sentence for each mapping on which asking for merging or a content has no effect.
///
/// Linux's `madvise(MADV_MERGEABLE)` succeeds on mappings that it ignores, so these are
/// no errors here either; a table without any merging should not come as a surprise.
///
/// Source: specs/ksm.md#registration.
pub fn notes(scenario: &Scenario) -> Vec<String> {
    scenario.processes.iter().flat_map(|p| p.maps.iter().filter_map(|m| note(p, m))).collect()
}

fn note(process: &Process, map: &Map) -> Option<String> {
    let advised =
        |s: &Step| matches!(s, Step::Madvise { map: m, mergeable: true } if *m == map.name);
    let filled = |s: &Step| matches!(s, Step::Fill { map: m, .. } if *m == map.name);
    let asked = map.mergeable || process.steps.iter().any(advised);
    let told = map.content != Content::Own || process.steps.iter().any(filled);
    let what = match (map.file, map.shared) {
        (false, false) => return None,
        (_, true) => "shared",
        (true, false) => "a file's",
    };
    let why = match (asked, told) {
        (false, false) => return None,
        (true, false) => "MADV_MERGEABLE succeeds there and has no effect",
        (false, true) => "nobody looks at what its pages hold",
        (true, true) => {
            "MADV_MERGEABLE succeeds there and has no effect, and nobody looks at what its pages hold"
        }
    };
    Some(format!("the map {} of {} is {what}: {why}", map.name, process.name))
}
