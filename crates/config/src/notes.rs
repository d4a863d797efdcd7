//! What a scenario says that a kernel accepts without a word and does not heed.

use homenode_core::scenario::{Content, Map, Process, Scenario, Step};

/// One sentence for each mapping on which asking for merging or a content has no effect.
///
/// Linux's `madvise(MADV_MERGEABLE)` succeeds on mappings that it ignores, so these are
/// no errors here either; a table without any merging should not come as a surprise.
///
/// Source: specs/ksm.md#registration, specs/exceptions/private-file-maps.md.
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
    // Linux would merge the copies that writes have made of a file's pages.
    let ignored = match map.shared {
        true => "MADV_MERGEABLE succeeds there and has no effect",
        false => "its private pages count as the file's here, so that none is merged",
    };
    let unseen = "nobody looks at what its pages hold";
    let why = match (asked, told) {
        (false, false) => return None,
        (true, false) => ignored.to_owned(),
        (false, true) => unseen.to_owned(),
        (true, true) => format!("{ignored}, and {unseen}"),
    };
    Some(format!("the map {} of {} is {what}: {why}", map.name, process.name))
}
