//! S0: a burst of processor time on the wrong node.
//!
//! ```text
//!   node `memory`        node `cpu`
//!   all its pages  ◀──── the only thread, for 0.5 s or 3 s
//!
//!   0.5 s   never sampled: nothing is marked, nothing moves
//!   3 s     sampled once the delay is over: pages and thread end on one node
//! ```
//!
//! Source: specs/end-to-end.md#s0, specs/numa.md#slow-start-today

use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs, Started};
use super::{placed, under, until_ran};
use homenode_core::knobs::Knob;
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// Pages of the burst's memory: few enough that one scan marks all of them.
pub const PAGES: u64 = 2048;
/// What may be left behind: a page that was on its way to a list, for one.
const LEFT_BEHIND: u64 = PAGES / 10;
/// A long burst goes on for so much longer at most, until what was marked has faulted: a
/// first scan may come late on a busy host, and other work may push a free thread away again
/// and again.
const GRACE: Picos = Picos::from_ms(8000);
/// Between two looks meanwhile.
const STEP: Picos = Picos::from_ms(250);
/// Processor time after which sampling may begin, in milliseconds: the kernel's default.
const DELAY_MS: u64 = 1000;

/// A burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// How much processor time.
    pub burst: Picos,
    /// Where its memory lies.
    pub memory: NodeId,
    /// Where its thread begins, on another node.
    pub cpu: NodeId,
    /// Whether the thread may go elsewhere.
    pub free: bool,
}

impl Case {
    /// A short name.
    pub fn name(&self) -> String {
        let free = if self.free { ", free" } else { "" };
        format!("{} ms{free}", self.burst.0 / Picos::from_ms(1).0)
    }
}

impl Case {
    /// Figures that may differ: where a thread is free, it may come to its memory as well as
    /// that to it, and before anything of it is marked.
    pub fn open(&self) -> &'static [&'static str] {
        if self.free { &["pte_updates", "hint_faults", "pages_migrated", "where_put"] } else { &[] }
    }
}

/// Runs a burst on a machine with balancing on and default delays.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn s0<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let text = |n: u64| n.to_string();
    let knobs = [
        (Knob::ScanDelayMs, text(DELAY_MS)),
        (Knob::ScanPeriodMinMs, text(1000)),
        (Knob::ScanPeriodMaxMs, text(60_000)),
        (Knob::ScanSizeMb, text(256)),
        (Knob::TransparentHugepage, "never".to_owned()),
        (Knob::NumaBalancing, text(1)),
    ];
    under(stage, &knobs, |stage| burst(stage, case))
}

/// Where the thread and its pages are at one moment.
struct Look {
    node: NodeId,
    there: BTreeMap<NodeId, Pages>,
}

impl Look {
    fn take<S: KernelStage>(stage: &mut S, who: &Started) -> Result<Self, Finding> {
        let there = placed(stage, who, who.hot, PAGES)?;
        Ok(Self { node: stage.cpu_node(who)?, there })
    }
    fn on(&self, node: NodeId) -> Pages {
        self.there.get(&node).copied().unwrap_or_default()
    }
    fn together(&self) -> bool {
        self.on(self.node).0 >= PAGES - LEFT_BEHIND
    }
}

fn burst<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let short = case.burst <= Picos::from_ms(DELAY_MS);
    let before = Counters::of(stage)?;
    let who = stage.start(&Program {
        name: "burst",
        hot: PAGES,
        cold: 0,
        on: At::First(case.memory),
        huge: Some(false),
        later: None,
        runs: if case.free { Runs::From(case.cpu) } else { Runs::Pinned(case.cpu) },
        reads: Reads::For(if short { case.burst } else { case.burst + GRACE }),
    })?;
    until_ran(stage, &who, case.burst)?;
    let (mut ran, mut last) = (case.burst, 0);
    let mut look = Look::take(stage, &who)?;
    while !short && ran < case.burst + GRACE - STEP {
        let now = Counters::of(stage)?.grown(&before, "numa_hint_faults");
        // A free thread stays nowhere for certain: when its pages have come to it, other work may
        // push it away, and they come again, or it goes back. What holds is that they meet.
        // Pages that could not be moved at once are marked and asked for again.
        let through = case.free || now >= PAGES - LEFT_BEHIND && now == last;
        if through && look.together() {
            break;
        }
        (last, ran) = (now, ran + STEP);
        until_ran(stage, &who, ran)?;
        look = Look::take(stage, &who)?;
    }
    let (node, there) = (look.node, &look.there);
    let mut figures = Counters::of(stage)?.since(&before);
    let here = look.on(node);
    figures.insert("with_thread", here.0);
    figures.insert("where_put", look.on(case.memory).0);
    let all = Pages(PAGES);
    let one = |name| figures.get(name).copied().unwrap_or(0);
    let (marked, faults) = (one("pte_updates"), one("hint_faults"));
    hold!(case.free || node == case.cpu, "pinned to node {}, it ran on {node}", case.cpu);
    if short {
        hold!(marked == 0, "{marked} entries were marked within the delay");
        hold!(faults == 0, "{faults} hint faults within the delay");
        hold!(look.on(case.memory) == all, "pages moved within the delay: {there:?}");
        return Ok(figures);
    }
    // A free thread may have come home before the first scan, which then passes it over.
    if node != case.memory {
        hold!(marked > 0, "after {} nothing has been marked", case.name());
        hold!(faults > 0, "{marked} entries were marked, and nothing has faulted");
    }
    hold!(faults <= marked, "{faults} hint faults of {marked} entries that were marked");
    hold!(look.together(), "the thread is on node {node}, its pages are on {there:?}");
    let (migrated, came) = (one("pages_migrated"), (all - look.on(case.memory)).0);
    hold!(migrated >= came, "{came} pages came, {migrated} were counted");
    Ok(figures)
}
