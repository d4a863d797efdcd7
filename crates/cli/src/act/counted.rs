//! What the kernel moved on its own, as rows of the ledger.
//!
//! ```text
//! pgpromote_success of a node     came up to it: kernel balancing     ?>node
//! numa_pages_migrated, the rest   moved between equals: the same      ?>?
//! pgdemote_* of a node            went down from it: kernel demotion  node>?
//! pgmigrate_success, the rest     less ours: other                    ?>?
//! ```
//!
//! The other node of a pair is told where there is only one that it can be. So all rows
//! together are what `pgmigrate_success` grew by.
//!
//! Source: specs/act.md#counters.

use homenode_core::engine::Engine;
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, PAGE_SIZE};
use homenode_live::counters::Counters;
use homenode_report::{LedgerEntry, LedgerMover};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The counters, from one reading to the next.
pub(super) struct Counted {
    root: PathBuf,
    fast: Vec<NodeId>,
    slow: Vec<NodeId>,
    last: Counters,
    /// Pages of ours that the counters do not show yet.
    ours: u64,
}

impl Counted {
    pub(super) fn begin(root: &Path, machine: &Hardware, engine: &Engine) -> Self {
        Self::of(root, machine, &|node| engine.is_fast(node))
    }
    /// * `fast` – whether a node is of the top tier.
    pub(super) fn of(root: &Path, machine: &Hardware, fast: &dyn Fn(NodeId) -> bool) -> Self {
        let nodes = machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id);
        let (fast, slow): (Vec<_>, Vec<_>) = nodes.partition(|n| fast(*n));
        let last = Counters::read(root, fast.iter().chain(&slow).copied());
        Self { root: root.to_owned(), fast, slow, last, ours: 0 }
    }

    /// Rows of what was moved since the last call.
    ///
    /// * `ours` – pages that homenode moved meanwhile; they are in the counters too.
    pub(super) fn rows(&mut self, unix_ms: u64, ours: u64) -> Vec<LedgerEntry> {
        let now = Counters::read(&self.root, self.fast.iter().chain(&self.slow).copied());
        let grown = now.since(&self.last);
        self.last = now;
        self.ours += ours;
        let (rows, shown) = rows(&grown, self.ours, &self.slow, unix_ms);
        self.ours -= shown;
        rows
    }
}

/// Rows, and how many pages of ours are among those counted.
fn rows(grown: &Counters, ours: u64, slow: &[NodeId], unix_ms: u64) -> (Vec<LedgerEntry>, u64) {
    let only = |nodes: &[NodeId]| if let [one] = nodes { Some(*one) } else { None };
    let mut out = Vec::new();
    let mut row = |mover, from: Option<NodeId>, to: Option<NodeId>, pages: u64, cause: &str| {
        if pages == 0 {
            return;
        }
        let bytes = pages.saturating_mul(PAGE_SIZE);
        out.push(LedgerEntry {
            threads: None,
            guest: None,
            unix_ms,
            mover,
            pid: None,
            start_ticks: None,
            name: None,
            from: from.map(|n| n.0),
            to: to.map(|n| n.0),
            tried_bytes: bytes,
            moved_bytes: bytes,
            failed_bytes: BTreeMap::new(),
            cause: cause.to_owned(),
            expected_saves_s: None,
            took_s: None,
            by: std::process::id(),
        });
    };
    let up: u64 = grown.promoted.values().sum();
    for (node, pages) in &grown.promoted {
        let mover = LedgerMover::KernelBalancing;
        row(mover, only(slow), Some(*node), *pages, "hint faults on slow memory");
    }
    // A kernel may count promotions in one and not in the other.
    let across = grown.balanced.saturating_sub(up);
    row(LedgerMover::KernelBalancing, None, None, across, "hint faults");
    let down: u64 = grown.demoted.values().sum();
    for (node, pages) in &grown.demoted {
        row(LedgerMover::KernelDemotion, Some(*node), only(slow), *pages, "reclaim");
    }
    let rest = grown.migrated.saturating_sub(up + across + down);
    let shown = ours.min(rest);
    row(LedgerMover::Other, None, None, rest - shown, "compaction, other tools");
    (out, shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_to_what_the_kernel_counted() {
        let slow = [NodeId(2)];
        let grown = Counters {
            migrated: 1000,
            failed: 3,
            balanced: 150,
            promoted: [(NodeId(0), 100), (NodeId(1), 0), (NodeId(2), 0)].into(),
            demoted: [(NodeId(0), 0), (NodeId(1), 40), (NodeId(2), 0)].into(),
        };
        let (rows, shown) = rows(&grown, 700, &slow, 1);
        let told: Vec<_> =
            rows.iter().map(|r| (r.mover, r.from, r.to, r.moved_bytes / PAGE_SIZE)).collect();
        assert_eq!(
            told,
            [
                (LedgerMover::KernelBalancing, Some(2), Some(0), 100),
                (LedgerMover::KernelBalancing, None, None, 50),
                (LedgerMover::KernelDemotion, Some(1), Some(2), 40),
                (LedgerMover::Other, None, None, 110),
            ]
        );
        assert_eq!(shown, 700);
        assert_eq!(told.iter().map(|t| t.3).sum::<u64>() + shown, grown.migrated);
    }

    #[test]
    fn pages_of_ours_that_are_not_counted_yet_are_not_somebody_elses_later() {
        let two = [NodeId(1), NodeId(2)];
        let grown = |migrated| Counters { migrated, ..Counters::default() };
        // Ours were told before the counters had them.
        assert_eq!(rows(&grown(10), 16, &two, 1), (Vec::new(), 10));
        let (rows, shown) = rows(&grown(8), 6, &two, 1);
        assert_eq!((rows.len(), rows[0].moved_bytes, shown), (1, 2 * PAGE_SIZE, 6));
    }
}
