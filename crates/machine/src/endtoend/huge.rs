//! Huge pages as the knob and the program say.
//!
//! ```text
//!  enabled: always, madvise, never  ×  the program: asks, forbids, says nothing
//!       │
//!       ▼
//!  16 MiB are touched ──▶ thp_fault_alloc, and AnonHugePages of the node
//! ```
//!
//! The counter is of the whole machine: other programs may take huge pages meanwhile. What the
//! program has is what the node's `AnonHugePages` grows by while it lives.
//!
//! Source: specs/end-to-end.md#huge, specs/huge-pages.md#who

use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs, under};
use homenode_core::knobs::Knob;
use homenode_core::units::{HUGE_PAGES, NodeId, Picos};

/// What the program touches.
const PAGES: u64 = 8 * HUGE_PAGES;
/// Huge pages that others may take or give back meanwhile.
const OTHERS: u64 = 2;

/// Who asks, on which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// `enabled`.
    pub enabled: &'static str,
    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, or none.
    pub advice: Option<bool>,
    /// A node with CPUs and room.
    pub node: NodeId,
}

impl Case {
    /// All that there are.
    pub fn all(node: NodeId) -> Vec<Self> {
        let advices = [None, Some(true), Some(false)];
        let of = |enabled| advices.map(|advice| Self { enabled, advice, node });
        ["always", "madvise", "never"].into_iter().flat_map(of).collect()
    }
    /// A short name.
    pub fn name(&self) -> String {
        let says = match self.advice {
            None => "says nothing",
            Some(true) => "asks",
            Some(false) => "forbids",
        };
        format!("{}, the program {says}", self.enabled)
    }
    /// Whether it gets huge pages.
    fn gets(&self) -> bool {
        match (self.enabled, self.advice) {
            ("always", advice) => advice != Some(false),
            ("madvise", advice) => advice == Some(true),
            _ => false,
        }
    }
}

/// Huge pages on a node, by its own file.
pub(super) fn on_node<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<u64, Finding> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = stage.read(&path)?;
    let line = text.lines().find(|l| l.contains("AnonHugePages:"));
    let kb = line.and_then(|l| l.split_whitespace().nth_back(1)).and_then(|n| n.parse().ok());
    kb.map(|kb: u64| kb / 4 / HUGE_PAGES).ok_or_else(|| format!("{path} has no AnonHugePages"))
}

/// Allocations that a node has served, by its own file.
fn served<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<u64, Finding> {
    let path = format!("/sys/devices/system/node/node{node}/numastat");
    let text = stage.read(&path)?;
    let hits = text.lines().find_map(|l| l.strip_prefix("numa_hit ")?.trim().parse().ok());
    hits.ok_or_else(|| format!("{path} has no numa_hit"))
}

/// Runs a case.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn touched<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let knobs = [
        (Knob::TransparentHugepage, case.enabled.to_owned()),
        (Knob::NumaBalancing, "0".to_owned()),
    ];
    under(stage, &knobs, |stage| {
        let (before, had) = (Counters::of(stage)?, on_node(stage, case.node)?);
        let hits = served(stage, case.node)?;
        stage.start(&Program {
            name: "toucher",
            hot: 0,
            cold: PAGES,
            on: At::Bound(case.node),
            huge: case.advice,
            later: None,
            runs: Runs::Pinned(case.node),
            reads: Reads::For(Picos::ZERO),
        })?;
        let has = on_node(stage, case.node)?.saturating_sub(had);
        let now = Counters::of(stage)?;
        let hits = served(stage, case.node)?.saturating_sub(hits);
        let one = |name| now.grown(&before, name);
        let (came, fell, faults) =
            (one("thp_fault_alloc"), one("thp_fault_fallback"), one("pgfault"));
        let all = PAGES / HUGE_PAGES;
        if case.gets() {
            hold!(has >= all, "{all} huge pages fit, {has} are there");
            hold!(came >= all, "{has} huge pages are there, thp_fault_alloc grew by {came}");
            hold!(hits < PAGES, "{all} huge pages count as {hits} allocations");
        } else {
            hold!(has <= OTHERS, "nobody may have huge pages, {has} are there");
            hold!(faults >= PAGES, "{PAGES} base pages were touched by {faults} faults");
            hold!(hits >= PAGES, "{PAGES} base pages count as {hits} allocations");
        }
        hold!(fell <= OTHERS, "the node has room, and {fell} first touches fell back");
        Ok(Figures::from([("thp_on_node", has), ("thp_fault_alloc", came), ("numa_hit", hits)]))
    })
}
