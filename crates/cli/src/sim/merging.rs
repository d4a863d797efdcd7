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

/// What is told beside the counters: name, unit, digits, and the figure.
type Told = (&'static str, &'static str, usize, fn(&MergeFigures, &Run) -> f64);

const TOLD: [Told; 8] = [
    ("saved", "MB", 1, |m, _| m.saved_bytes as f64 / 1e6),
    ("checksums", "", 0, |m, _| m.effort.checksums as f64),
    ("stable searches", "", 0, |m, _| m.effort.stable_searches as f64),
    ("comparisons in one", "", 2, |m, _| {
        per(m.effort.stable_comparisons, m.effort.stable_searches)
    }),
    ("unstable searches", "", 0, |m, _| m.effort.unstable_searches as f64),
    ("comparisons in one of these", "", 2, |m, _| {
        per(m.effort.unstable_comparisons, m.effort.unstable_searches)
    }),
    ("read by ksmd", "MB", 1, |m, _| m.read_bytes as f64 / 1e6),
    ("ksmd's CPU", "%", 2, |m, r| m.ksmd_ran_ps as f64 / 10.0 / r.run.time_ns.max(1) as f64),
];

/// The section; `None` where no run keeps contents. Of the counters, those that are 0
/// everywhere are left out.
pub(super) fn group(columns: &[Column]) -> Option<Group> {
    let version = columns[0].setup.version;
    columns.iter().flat_map(|c| &c.runs).find_map(|r| r.merging.as_ref())?;
    let figure = |name: &str, unit: &str, precision, get: &dyn Fn(&MergeFigures, &Run) -> f64| {
        let of =
            |c: &Column| c.runs.iter().filter_map(|r| Some(get(r.merging.as_ref()?, r))).collect();
        Figure {
            name: name.into(),
            unit: unit.into(),
            better: Better::Neither,
            precision,
            samples: columns.iter().map(of).collect(),
        }
    };
    let is_there = |f: &Figure| f.samples.iter().flatten().any(|x| *x != 0.0);
    let counted = counters(version)
        .map(|file| figure(file.name(), "", 0, &|m, _| counter(m, file).unwrap_or(0) as f64));
    let mut figures: Vec<Figure> = counted.filter(is_there).collect();
    figures.extend(TOLD.iter().map(|(name, unit, digits, get)| figure(name, unit, *digits, get)));
    Some(Group { title: "merging, as the run ends".into(), figures })
}

/// A run's merging as JSON.
pub(super) fn json(m: &MergeFigures, version: KernelVersion) -> Value {
    let e = &m.effort;
    let mut it = json!({
        "saved_bytes": m.saved_bytes,
        "checksums": e.checksums,
        "stable_searches": e.stable_searches,
        "stable_comparisons": e.stable_comparisons,
        "unstable_searches": e.unstable_searches,
        "unstable_comparisons": e.unstable_comparisons,
        "verifications": e.verifications,
        "ksmd_cpu_ns": m.ksmd_ran_ps as f64 / 1000.0,
        "read_bytes": m.read_bytes,
    });
    for file in counters(version) {
        it[file.name()] = json!(counter(m, file));
    }
    it
}
