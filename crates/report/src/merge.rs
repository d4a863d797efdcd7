//! The estimate of same-page merging: its advice, text and JSON.

use homenode_core::ksm::saving::{Ended, NodeSaving, ProcessSaving, Saving};
use homenode_core::units::count;
use serde::Serialize;
use serde::ser::Serializer;
use std::fmt::Write;

/// Bytes that the kernel keeps for each page that it looks at (an rmap item).
///
/// Source: specs/ksm.md#structures.
const ITEM_BYTES: u64 = 64;
/// A saving below this share of the memory looked at, in thousandths, is not worth
/// ksmd's time.
const WORTH_PERMILLE: u64 = 10;
/// Merging per node keeps at least this share, in thousandths, of what merging
/// across saves: then there is no reason to make pages remote.
const KEPT_PERMILLE: u64 = 900;
/// What merging across adds must be at least this share, in thousandths, of the
/// memory looked at to pay for pages that become remote.
const ADDED_PERMILLE: u64 = 50;

/// Merging within each node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergePerNode {
    /// All nodes together.
    #[serde(flatten, with = "SavingJson")]
    pub sum: Saving,
    /// Each node.
    #[serde(serialize_with = "nodes")]
    pub nodes: Vec<NodeSaving>,
}

/// What merging costs those who use the pages, from latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MergeCosts {
    /// Pages that would be on another node than now, merged across; each equal page
    /// is as likely the one that stays.
    pub remote_pages: u64,
    /// What an access to one of them that misses the caches takes longer, on average
    /// over them, in nanoseconds; `null` if there are none.
    pub remote_extra_ns: Option<f64>,
    /// What the first write to a merged page takes: fault and copy, in nanoseconds.
    pub copy_on_write_ns: f64,
    /// Writes that would have broken a merged page, a second: pages that changed
    /// between the looks; `null` with one look.
    pub volatile_per_second: Option<f64>,
    /// Memory that the kernel keeps for the pages it looks at, in bytes.
    pub item_bytes: u64,
    /// CPU time of ksmd until all of it is merged, in seconds.
    pub ksmd_cpu_seconds: f64,
    /// Whether that follows from its work since boot, or from the slowest that was met.
    pub ksmd_measured: bool,
    /// Where the latencies are from.
    pub source: String,
}

/// How it was looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MergeLooks {
    /// Seconds of the first look.
    pub first_seconds: f64,
    /// Seconds between the looks; `null` with one.
    pub between_seconds: Option<f64>,
    /// Seconds of the second look; `null` with one.
    pub second_seconds: Option<f64>,
    /// Pages read, in all.
    pub pages_read: u64,
    /// Pages that the kernel said nobody had written.
    pub pages_spared: u64,
    /// Own memory of the tables, in bytes.
    pub table_bytes: u64,
    /// `max_page_sharing` that was taken.
    pub max_page_sharing: u32,
    /// `use_zero_pages` that was taken.
    pub use_zero_pages: bool,
}

/// How much merging would save: one JSON object, with its keys in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MergeEstimate {
    /// Pages that may be merged and are in memory, volatile ones among them.
    pub pages_scanned: u64,
    /// Different contents.
    pub distinct: u64,
    /// Pages of zeros.
    pub zero: u64,
    /// Pages that changed between the looks.
    pub volatile: u64,
    /// Merged across nodes.
    #[serde(with = "SavingJson")]
    pub across: Saving,
    /// Merged within each node.
    pub per_node: MergePerNode,
    /// By process, in rising order of numbers.
    #[serde(serialize_with = "processes")]
    pub processes: Vec<ProcessSaving>,
    /// What to do, and why.
    pub advice: String,
    /// What it costs.
    pub costs: MergeCosts,
    /// How it was looked.
    pub looks: MergeLooks,
    /// What makes it less exact.
    pub notes: Vec<String>,
}

impl MergeEstimate {
    /// The sentence of advice, from the other figures.
    ///
    /// * `memory_nodes` – nodes with memory on the machine.
    ///
    /// Leave it off where the saving, less what the kernel keeps for it, is below 1 %
    /// of the memory; per node where that keeps 90 % of the saving, or where merging
    /// across adds less than 5 % of the memory; else across.
    pub fn advise(&mut self, memory_nodes: usize) {
        let scanned = self.pages_scanned * 4096;
        let kept = self.costs.item_bytes;
        let (across, per_node) = (self.across.saved_bytes, self.per_node.sum.saved_bytes);
        let share = |bytes: u64| percent(bytes, scanned);
        self.advice = if across <= kept || (across - kept) * 1000 < scanned * WORTH_PERMILLE {
            format!(
                "Leave merging off: it would free {} of {} ({}), and the kernel keeps {} to know which pages are equal.",
                size(across),
                size(scanned),
                share(across),
                size(kept)
            )
        } else if memory_nodes < 2 {
            format!(
                "Merge: {} of {} ({}) would become free; with one node merge_across_nodes makes no difference.",
                size(across),
                size(scanned),
                share(across)
            )
        } else {
            let added = across.saturating_sub(per_node);
            let remote = format!(
                "{} remote, {} longer for each access that misses the caches",
                count(self.costs.remote_pages, "page", "pages"),
                ns(self.costs.remote_extra_ns.unwrap_or(0.0))
            );
            if per_node * 1000 >= across * KEPT_PERMILLE {
                format!(
                    "Merge per node (merge_across_nodes 0): it frees {}, {} of what merging across would, and makes no page remote; across, {remote}.",
                    size(per_node),
                    percent(per_node, across)
                )
            } else if added * 1000 < scanned * ADDED_PERMILLE && per_node > kept {
                format!(
                    "Merge per node (merge_across_nodes 0): merging across would add only {} ({} of the memory) to {}, and make {remote}.",
                    size(added),
                    share(added),
                    size(per_node)
                )
            } else {
                format!(
                    "Merge across nodes (merge_across_nodes 1): it frees {} against {} per node, at the price of {remote}.",
                    size(across),
                    size(per_node)
                )
            }
        };
    }

    /// What the kernel keeps for so many pages that it looks at, in bytes.
    pub fn item_bytes(pages_scanned: u64) -> u64 {
        pages_scanned * ITEM_BYTES
    }

    /// The estimate as one JSON object on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }

    /// The estimate for people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<26}{text}");
        };
        let pages = |n: u64| format!("{n:>10} pages  {:>10}", size(n * 4096));
        line("looked at", pages(self.pages_scanned));
        line("different contents", format!("{:>10}", self.distinct));
        line("zeros", pages(self.zero));
        let volatile = match self.looks.between_seconds {
            Some(s) => format!("{}  changed within {s:.1} s", pages(self.volatile)),
            None => {
                format!("{:>10}  one look only; --again N looks again after N seconds", "unknown")
            }
        };
        line("volatile", volatile);
        let saving = |s: &Saving| {
            format!(
                "{:>10} saved  {:>10}  pages_shared {}, pages_sharing {}",
                percent(s.saved_bytes, self.pages_scanned * 4096),
                size(s.saved_bytes),
                s.pages_shared,
                s.pages_sharing
            )
        };
        line("merged across nodes", saving(&self.across));
        line("merged per node", saving(&self.per_node.sum));
        if self.per_node.nodes.len() > 1 {
            for n in &self.per_node.nodes {
                line(&format!("  node {}", n.node), saving(&n.saving));
            }
        }
        line(
            "kept by the kernel for it",
            format!("{:>10}        {:>10}", "", size(self.costs.item_bytes)),
        );
        let how = match self.costs.ksmd_measured {
            true => "two passes, at its speed since boot",
            false => "two passes of 5 µs a page; it has not worked enough to be measured",
        };
        line("ksmd's CPU time for it", format!("{:>8.1} s  {how}", self.costs.ksmd_cpu_seconds));
        if let Some(extra) = self.costs.remote_extra_ns {
            let text =
                format!("{}  {} longer for each miss", pages(self.costs.remote_pages), ns(extra));
            line("remote if merged across", text);
        }
        let rate = self.costs.volatile_per_second.map_or(String::new(), |r| {
            format!("  pages that would have been: {r:.0} a second at most")
        });
        line("a write to a merged page", format!("{:>10}{rate}", ns(self.costs.copy_on_write_ns)));
        line("", self.costs.source.clone());
        let _ = writeln!(
            out,
            "\n{:>8} {:<24} {:>10} {:>9} {:>9} {:>10} {:>12}",
            "pid", "name", "pages", "zero", "volatile", "mergeable", "part saved"
        );
        for p in &self.processes {
            let ProcessSaving { pid, name, pages_scanned, zero, volatile, mergeable, .. } = p;
            let saved = size(p.saved_bytes);
            let ended = p.ended.map_or(String::new(), |e| format!("  {}", word(e)));
            let _ = writeln!(
                out,
                "{pid:>8} {name:<24} {pages_scanned:>10} {zero:>9} {volatile:>9} {mergeable:>10} {saved:>12}{ended}"
            );
        }
        for note in &self.notes {
            let _ = write!(out, "\nnote: {note}");
        }
        let MergeLooks { first_seconds, pages_spared, max_page_sharing, .. } = self.looks;
        let zero_pages = u8::from(self.looks.use_zero_pages);
        let second = self.looks.second_seconds.map_or(String::new(), |s| format!(" and {s:.2} s"));
        let read = count(self.looks.pages_read, "page", "pages");
        let spared = match pages_spared {
            0 => String::new(),
            n => format!(" and spared {n}"),
        };
        let _ = write!(
            out,
            "\nmax_page_sharing {max_page_sharing}, use_zero_pages {zero_pages}; looked for {first_seconds:.2} s{second}, read {read}{spared}; tables took {}\n\n{}\n",
            size(self.looks.table_bytes),
            self.advice
        );
        out
    }
}

// ── JSON of the core's figures, which know nothing of formats ──────────────────

#[derive(Serialize)]
#[serde(remote = "Saving")]
struct SavingJson {
    pages_shared: u64,
    pages_sharing: u64,
    saved_bytes: u64,
}

#[derive(Serialize)]
#[serde(remote = "NodeSaving")]
struct NodeJson {
    node: u16,
    pages_scanned: u64,
    #[serde(flatten, with = "SavingJson")]
    saving: Saving,
}

#[derive(Serialize)]
#[serde(remote = "ProcessSaving")]
struct ProcessJson {
    pid: u32,
    name: String,
    pages_scanned: u64,
    zero: u64,
    volatile: u64,
    mergeable: u64,
    saved_bytes: u64,
    #[serde(serialize_with = "ended")]
    ended: Option<Ended>,
}

fn nodes<S: Serializer>(all: &[NodeSaving], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct One(#[serde(with = "NodeJson")] NodeSaving);
    to.collect_seq(all.iter().map(|n| One(*n)))
}
fn processes<S: Serializer>(all: &[ProcessSaving], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct One(#[serde(with = "ProcessJson")] ProcessSaving);
    to.collect_seq(all.iter().map(|p| One(p.clone())))
}
fn ended<S: Serializer>(ended: &Option<Ended>, to: S) -> Result<S::Ok, S::Error> {
    ended.map(word).serialize(to)
}
fn word(e: Ended) -> &'static str {
    match e {
        Ended::Exited => "exited",
        Ended::Refused => "refused",
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn ns(ns: f64) -> String {
    if ns >= 1000.0 { format!("{:.2} µs", ns / 1000.0) } else { format!("{ns:.0} ns") }
}

fn size(bytes: u64) -> String {
    let b = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", b / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", b / 1_048_576.0),
        _ => format!("{:.2} GiB", b / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// MiB looked at, saved across, saved per node; nodes.
    fn check((scanned, across, per_node): (u64, u64, u64), nodes: usize, expected: Expect) {
        let saving = |mib: u64| Saving { saved_bytes: mib << 20, ..Saving::default() };
        let mut e = MergeEstimate {
            pages_scanned: scanned << 8,
            across: saving(across),
            per_node: MergePerNode { sum: saving(per_node), nodes: Vec::new() },
            ..MergeEstimate::default()
        };
        e.costs.item_bytes = MergeEstimate::item_bytes(e.pages_scanned);
        e.costs.remote_pages = 700;
        e.costs.remote_extra_ns = Some(60.0);
        e.advise(nodes);
        expected.assert_eq(&e.advice);
    }

    #[test]
    fn advice_follows_the_figures() {
        check(
            (1024, 20, 20),
            2,
            expect![
                "Leave merging off: it would free 20.0 MiB of 1.00 GiB (2.0 %), and the kernel keeps 16.0 MiB to know which pages are equal."
            ],
        );
        check(
            (1024, 400, 400),
            1,
            expect![
                "Merge: 400.0 MiB of 1.00 GiB (39.1 %) would become free; with one node merge_across_nodes makes no difference."
            ],
        );
        check(
            (1024, 400, 380),
            2,
            expect![
                "Merge per node (merge_across_nodes 0): it frees 380.0 MiB, 95.0 % of what merging across would, and makes no page remote; across, 700 pages remote, 60 ns longer for each access that misses the caches."
            ],
        );
        check(
            (1024, 140, 100),
            2,
            expect![
                "Merge per node (merge_across_nodes 0): merging across would add only 40.0 MiB (3.9 % of the memory) to 100.0 MiB, and make 700 pages remote, 60 ns longer for each access that misses the caches."
            ],
        );
        check(
            (1024, 400, 100),
            2,
            expect![
                "Merge across nodes (merge_across_nodes 1): it frees 400.0 MiB against 100.0 MiB per node, at the price of 700 pages remote, 60 ns longer for each access that misses the caches."
            ],
        );
        check(
            (0, 0, 0),
            1,
            expect![
                "Leave merging off: it would free 0 B of 0 B (0.0 %), and the kernel keeps 0 B to know which pages are equal."
            ],
        );
    }

    #[test]
    fn json_has_the_promised_keys_in_their_order() {
        let e =
            MergeEstimate { processes: vec![ProcessSaving::default()], ..MergeEstimate::default() };
        let text = e.to_json();
        let start = r#"{"pages_scanned":0,"distinct":0,"zero":0,"volatile":0,"across":{"pages_shared":0,"pages_sharing":0,"saved_bytes":0},"per_node":{"pages_shared":0,"pages_sharing":0,"saved_bytes":0,"nodes":[]},"processes":[{"pid":0,"#;
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains(r#""advice":"""#), "{text}");
        let saving = Saving { pages_shared: 1, pages_sharing: 2, saved_bytes: 3 };
        let e = MergeEstimate {
            per_node: MergePerNode {
                sum: saving,
                nodes: vec![NodeSaving { node: 4, pages_scanned: 5, saving }],
            },
            processes: vec![ProcessSaving {
                pid: 6,
                name: "guest".into(),
                pages_scanned: 7,
                zero: 8,
                volatile: 9,
                mergeable: 10,
                saved_bytes: 11,
                ended: Some(Ended::Refused),
            }],
            ..MergeEstimate::default()
        };
        let text = e.to_json();
        let parts = r#""per_node":{"pages_shared":1,"pages_sharing":2,"saved_bytes":3,"nodes":[{"node":4,"pages_scanned":5,"pages_shared":1,"pages_sharing":2,"saved_bytes":3}]},"processes":[{"pid":6,"name":"guest","pages_scanned":7,"zero":8,"volatile":9,"mergeable":10,"saved_bytes":11,"ended":"refused"}]"#;
        assert!(text.contains(parts), "{text}");
    }
}
