//! What same-page merging reached and what it took, and all of it as JSON.

use super::{Part, Rows, Shown, declared};
use homenode_core::kernel::KernelVersion;
use homenode_core::ksm::files::File;
use homenode_report::Better::{Higher, Lower};
use homenode_report::Figure;
use homenode_sim::MergeFigures;
use serde_json::{Value, json};

type Taken = super::Taken<MergeFigures>;

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

fn every_counter() -> impl Iterator<Item = File> {
    File::ALL.into_iter().filter(|f| f.is_counter())
}

/// All comparisons.
fn comparisons(m: &MergeFigures) -> u64 {
    m.effort.stable_comparisons + m.effort.unstable_comparisons + m.effort.verifications
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn per(all: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { all as f64 / of as f64 }
}

const SAVED: &[Taken] =
    &[(Figure::new("saved", "MiB", Higher, 1, "memory that merging saves at the end"), |m| {
        mib(m.saved_bytes)
    })];

/// The figure that a counter of merging is.
const fn counted(file: File) -> Figure {
    Figure::count(file.name(), file.about())
}

const fn lower(
    name: &'static str,
    unit: &'static str,
    digits: usize,
    about: &'static str,
) -> Figure {
    Figure::new(name, unit, Lower, digits, about)
}

const TOOK: &[Taken] = &[
    (lower("checksums", "", 0, "checksums of pages made"), |m| m.effort.checksums as f64),
    (lower("comparisons", "", 0, "comparisons of a page with another"), |m| comparisons(m) as f64),
    // The depth of the trees, which a tree per node lessens.
    (
        lower("comparisons in a stable search", "", 2, "mean depth of the trees of merged pages"),
        |m| per(m.effort.stable_comparisons, m.effort.stable_searches),
    ),
    (
        lower("comparisons in an unstable search", "", 2, "mean depth of the trees of candidates"),
        |m| per(m.effort.unstable_comparisons, m.effort.unstable_searches),
    ),
    (lower("ksmd: processor time", "s", 6, "what the kernel's merging thread ran"), |m| {
        m.ksmd_ran_ps as f64 / 1e12
    }),
    (lower("ksmd: read", "MiB", 1, "memory that the kernel's merging thread read"), |m| {
        mib(m.read_bytes)
    }),
];

pub(super) fn all() -> impl Iterator<Item = Figure> {
    declared(SAVED).chain(every_counter().map(counted)).chain(declared(TOOK))
}

/// The rows; none where nothing may merge. Of the counters, those that are 0 in all runs are
/// left out, and those that the first column's kernel lacks.
pub(super) fn push(rows: &mut Rows<'_>) {
    rows.push_all(Part::Merge, SAVED, |r| r.merge.as_ref());
    let version = rows.version;
    for file in every_counter() {
        let shown = if file.exists(version) { Shown::IfCounted } else { Shown::Never };
        rows.push(Part::Merge, &counted(file), "", shown, &|r| {
            Some(counter(r.merge.as_ref()?, file)? as f64)
        });
    }
    rows.push_all(Part::Merge, TOOK, |r| r.merge.as_ref());
}

/// The counters that a kernel has by its names, then what it took.
pub(crate) fn json(m: &MergeFigures, version: KernelVersion) -> Value {
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
    for file in every_counter().filter(|f| f.exists(version)) {
        it[file.name()] = json!(counter(m, file));
    }
    it
}
