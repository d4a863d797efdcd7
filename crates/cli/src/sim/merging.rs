//! What merging reached, as a group of the table and as JSON.

use super::{Column, Run};
use homenode_report::{Better, Figure, Group};
use homenode_sim::MergeFigures;
use serde_json::{Value, json};

/// What merging reached by the end of the run, and what it took; none where nothing may merge.
pub(super) fn group(columns: &[Column]) -> Option<Group> {
    columns[0].runs.first()?.merge?;
    let mut figures = Vec::new();
    let mut push = |name: &str, unit: &str, better, get: &dyn Fn(&MergeFigures) -> f64| {
        let of = |r: &Run| r.merge.as_ref().map_or(0.0, get);
        figures.push(Figure {
            name: name.into(),
            unit: unit.into(),
            better,
            precision: if unit == "s" { 6 } else { usize::from(unit == "MiB") },
            samples: columns.iter().map(|c| c.runs.iter().map(of).collect()).collect(),
        });
    };
    let (neither, lower) = (Better::Neither, Better::Lower);
    push("saved", "MiB", Better::Higher, &|m| m.saved_bytes as f64 / (1 << 20) as f64);
    push("pages_shared", "", neither, &|m| m.counters.pages_shared as f64);
    push("pages_sharing", "", neither, &|m| m.counters.pages_sharing as f64);
    push("pages_unshared", "", neither, &|m| m.counters.pages_unshared as f64);
    push("pages_volatile", "", neither, &|m| m.pages_volatile as f64);
    push("ksm_zero_pages", "", neither, &|m| m.counters.ksm_zero_pages as f64);
    push("full_scans", "", neither, &|m| m.counters.full_scans as f64);
    push("pages_scanned", "", neither, &|m| m.counters.pages_scanned as f64);
    push("checksums", "", lower, &|m| m.effort.checksums as f64);
    push("comparisons", "", lower, &|m| comparisons(m) as f64);
    push("ksmd: processor time", "s", lower, &|m| m.ksmd_ran_ps as f64 / 1e12);
    push("ksmd: read", "MiB", lower, &|m| m.read_bytes as f64 / (1 << 20) as f64);
    Some(Group { title: "merge".into(), figures })
}

fn comparisons(m: &MergeFigures) -> u64 {
    m.effort.stable_comparisons + m.effort.unstable_comparisons + m.effort.verifications
}

/// The counters by the kernel's names, then what it took.
pub(super) fn json(m: &MergeFigures) -> Value {
    let (c, e) = (&m.counters, &m.effort);
    json!({
        "saved_bytes": m.saved_bytes,
        "pages_shared": c.pages_shared,
        "pages_sharing": c.pages_sharing,
        "pages_unshared": c.pages_unshared,
        "pages_volatile": m.pages_volatile,
        "pages_scanned": c.pages_scanned,
        "pages_skipped": c.pages_skipped,
        "full_scans": c.full_scans,
        "ksm_zero_pages": c.ksm_zero_pages,
        "stable_node_chains": m.stable_node_chains,
        "stable_node_dups": m.stable_node_dups,
        "general_profit": m.general_profit,
        "rmap_items": c.rmap_items,
        "effort": {
            "checksums": e.checksums,
            "stable_searches": e.stable_searches,
            "stable_comparisons": e.stable_comparisons,
            "unstable_searches": e.unstable_searches,
            "unstable_comparisons": e.unstable_comparisons,
            "verifications": e.verifications,
            "restarts": e.restarts,
            "dups_walked": e.dups_walked,
        },
        "ksmd_cpu_time_ns": m.ksmd_ran_ps as f64 / 1000.0,
        "ksmd_read_bytes": m.read_bytes,
    })
}
