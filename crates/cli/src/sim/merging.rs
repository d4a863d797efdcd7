//! The table's section on same-page merging, and the same as JSON.

use super::{Column, Run};
use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::files::File;
use homenode_report::{Better, Figure, Group};
use homenode_sim::MergeFigures;
use serde_json::{Value, json};

/// What the kernel counts, by the names of its files.
fn counter(m: &MergeFigures, file: File) -> Option<i64> {
    let c = &m.counters;
    Some(match file {
        File::PagesShared => c.pages_shared as i64,
        File::PagesSharing => c.pages_sharing as i64,
        File::PagesUnshared => c.pages_unshared as i64,
        File::PagesVolatile => m.pages_volatile as i64,
        File::KsmZeroPages => c.ksm_zero_pages,
        File::StableNodeChains => m.stable_node_chains as i64,
        File::StableNodeDups => m.stable_node_dups as i64,
        File::PagesScanned => c.pages_scanned as i64,
        File::PagesSkipped => c.pages_skipped as i64,
        File::FullScans => c.full_scans as i64,
        File::GeneralProfit => m.general_profit,
        _ => return None,
    })
}

/// All counters that a kernel has.
fn counters(version: KernelVersion) -> impl Iterator<Item = File> {
    File::ALL.into_iter().filter(move |f| f.is_counter() && f.exists(version))
}

fn per(all: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { all as f64 / of as f64 }
}

/// All comparisons.
fn comparisons(m: &MergeFigures) -> u64 {
    m.effort.stable_comparisons + m.effort.unstable_comparisons + m.effort.verifications
}

/// The section; `None` where nothing may merge. Of the counters, those that are 0 in all
/// runs are left out.
pub(super) fn group(columns: &[Column]) -> Option<Group> {
    columns[0].runs.first()?.merge?;
    let figure = |name: &str, unit: &str, better, precision, get: &dyn Fn(&MergeFigures) -> f64| {
        let of = |r: &Run| r.merge.as_ref().map_or(0.0, get);
        Figure {
            name: name.into(),
            unit: unit.into(),
            better,
            precision,
            samples: columns.iter().map(|c| c.runs.iter().map(of).collect()).collect(),
        }
    };
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let (neither, lower) = (Better::Neither, Better::Lower);
    let mut figures = vec![figure("saved", "MiB", Better::Higher, 1, &|m| mib(m.saved_bytes))];
    let is_there = |f: &Figure| f.samples.iter().flatten().any(|x| *x != 0.0);
    let counted = counters(columns[0].setup.version)
        .map(|f| figure(f.name(), "", neither, 0, &|m| counter(m, f).unwrap_or(0) as f64));
    figures.extend(counted.filter(is_there));
    figures.push(figure("checksums", "", lower, 0, &|m| m.effort.checksums as f64));
    figures.push(figure("comparisons", "", lower, 0, &|m| comparisons(m) as f64));
    // The depth of the trees, which a tree per node lessens.
    for (name, get) in SEARCHES {
        figures.push(figure(name, "", lower, 2, &|m| {
            let (all, searches) = get(m);
            per(all, searches)
        }));
    }
    figures.push(figure("ksmd: processor time", "s", lower, 6, &|m| m.ksmd_ran_ps as f64 / 1e12));
    figures.push(figure("ksmd: read", "MiB", lower, 1, &|m| mib(m.read_bytes)));
    Some(Group { title: "merge".into(), figures })
}

/// Comparisons and searches.
type Searches = fn(&MergeFigures) -> (u64, u64);

const SEARCHES: [(&str, Searches); 2] = [
    ("comparisons in a stable search", |m| (m.effort.stable_comparisons, m.effort.stable_searches)),
    ("comparisons in an unstable search", |m| {
        (m.effort.unstable_comparisons, m.effort.unstable_searches)
    }),
];

/// The counters that a kernel has by its names, then what it took.
pub(super) fn json(m: &MergeFigures, version: KernelVersion) -> Value {
    let e = &m.effort;
    let mut it = json!({
        "saved_bytes": m.saved_bytes,
        "rmap_items": m.counters.rmap_items,
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
    });
    for file in counters(version) {
        it[file.name()] = json!(counter(m, file));
    }
    it
}
