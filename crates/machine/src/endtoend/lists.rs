//! kswapd on the active and inactive lists, or on generations: a program that walks through more memory than
//! its node has, and a neighbour for whom room has to be made there.
//!
//! ```text
//!   fast node                                  slow node
//!   ┌──────────────────────────────────┐      ┌──────────────────────────┐
//!   │ most of the walker   │ neighbour │ ───▶ │ the rest of the walker,  │
//!   │                      │ grows ◀── │      │ what kswapd has demoted  │
//!   └──────────────────────────────────┘      └──────────────────────────┘
//! ```
//!
//! In turns: the walker reads each of its pages once and sleeps; then the neighbour takes
//! what is free down to below the low mark, and kswapd works until it rests. So kswapd
//! finds every page of the walker accessed since it looked last, and nobody accesses one
//! while it looks: what it does is a matter of its rules, not of who was faster.
//!
//! Its first turn finds new pages, which it passes over once; in later ones pages that have
//! the referenced flag come to the active list, and go down again when the inactive one is
//! low. No balancing: nothing comes back up.
//!
//! With generations a third program reads a few pages all the time. Aging begins once the
//! newest generation has more than half of all pages, and a pass at priority 1 sees at most
//! half of them: whether it empties the oldest generation hangs on the few pages in between.
//! A real machine has some (its programs' own, used at every look), a simulated one none:
//! the third program's, in both, are more than either's.
//!
//! Source: specs/end-to-end.md#lists, specs/end-to-end.md#generations, specs/tiering.md#turns

use super::tiering::{neighbour, tiered, zones_on};
use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs};
use super::{at_rest, placed, under};
use crate::conformance::ALWAYS;
use homenode_core::knobs::Knob;
use homenode_core::units::NodeId;

/// How often the walker walks, and the neighbour grows after it. From the fifth turn on two
/// boots of one kernel differ: a pass more or less is a goal of pages more or less.
const TURNS: u32 = 4;
/// The same with generations, where two boots differ from the third turn on.
const GENERATION_TURNS: u32 = 2;
/// The walker's memory is so many tenths of what is free on the fast node at first.
const WALKER_TENTHS: u64 = 12;
/// By which the neighbour goes below the low mark: kswapd has to come, nobody has to wait.
pub(super) const CHUNK: u64 = 256;
/// Pages of the program that always reads: several batches of kswapd.
const BYSTANDER: u64 = 512;
/// `min_free_kbytes` and `watermark_scale_factor`: marks near each other beside the node, so
/// that a turn takes many batches and no single one decides the figures.
const MIN_FREE_KB: u64 = 32_768;
const SCALE_FACTOR: u64 = 100;

/// Demoted in the first turn, and what the node lacked then: shown, not compared.
pub const FIRST: &str = "lists_first_turn";
/// See [`FIRST`].
pub const NEEDED: &str = "lists_needed";

/// Whether kswapd ended its first turn as soon as the node was balanced.
///
/// All pages are new then, and passed over once. Mostly the pass that comes round to the
/// first of them again ends with its whole goal, three times what the node lacked; in one of
/// six runs of one kernel, in one boot, it ends at once, and all later turns are others.
pub fn ended_early(figures: &Figures) -> bool {
    let of = |name| figures.get(name).copied().unwrap_or(0);
    of(FIRST) < 2 * of(NEEDED)
}

/// On which nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The node with the CPUs.
    pub fast: NodeId,
    /// The node of a slower tier.
    pub slow: NodeId,
    /// Generations in the place of active and inactive lists.
    pub generations: bool,
}

impl Case {
    /// A short name.
    pub const fn name(&self) -> &'static str {
        if self.generations { "walker and neighbour, MGLRU" } else { "walker and neighbour" }
    }
    /// Figures that are shown and not compared.
    pub const fn open(&self) -> &'static [&'static str] {
        &[FIRST, NEEDED]
    }
    const fn turns(&self) -> u32 {
        if self.generations { GENERATION_TURNS } else { TURNS }
    }
}

/// Runs the turns. Where no tier is slower nothing can be demoted: `None`.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn lists<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Option<Figures>, Finding> {
    if !tiered(stage, (case.fast, case.slow))? {
        return Ok(None);
    }
    under(stage, &knobs(case.generations, "never"), |stage| turns(stage, case)).map(Some)
}

/// kswapd demotes, and marks are near each other.
///
/// * `generations` – in the place of active and inactive lists.
/// * `huge` – who has huge pages.
pub(super) fn knobs(generations: bool, huge: &str) -> [(Knob, String); 6] {
    [
        (Knob::LruGen, if generations { "y" } else { "n" }.to_owned()),
        // Switching huge pages may change min_free_kbytes: first the one, then the other.
        (Knob::TransparentHugepage, huge.to_owned()),
        (Knob::MinFreeKbytes, MIN_FREE_KB.to_string()),
        (Knob::WatermarkScaleFactor, SCALE_FACTOR.to_string()),
        (Knob::DemotionEnabled, "true".to_owned()),
        (Knob::NumaBalancing, "0".to_owned()),
    ]
}

/// The program that reads a few pages all the time.
pub(super) fn bystander<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<(), Finding> {
    let program = Program {
        name: "bystander",
        hot: BYSTANDER,
        cold: 0,
        on: At::Bound(node),
        huge: Some(false),
        later: None,
        runs: Runs::Pinned(node),
        reads: Reads::For(ALWAYS),
    };
    stage.start(&program).map(|_| ())
}

fn turns<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let before = Counters::of(stage)?;
    let above_low = |stage: &mut S| -> Result<u64, Finding> {
        Ok(zones_on(stage, case.fast)?.iter().map(|z| z.above(z.low)).sum())
    };
    if case.generations {
        bystander(stage, case.fast)?;
    }
    let pages = above_low(stage)? * WALKER_TENTHS / 10;
    let walker = stage.start(&Program {
        name: "walker",
        hot: pages,
        cold: 0,
        on: At::Anywhere,
        huge: Some(false),
        later: None,
        runs: Runs::Pinned(case.fast),
        reads: Reads::Walks(case.turns()),
    })?;
    let filled = Counters::of(stage)?.grown(&before, "pgscan_kswapd");
    let needed = zones_on(stage, case.fast)?.iter().map(|z| z.high - z.low).sum::<u64>() + CHUNK;
    let mut first = None;
    for _ in 0..case.turns() {
        stage.walk(&walker)?;
        let cold = above_low(stage)? + CHUNK;
        neighbour(stage, (case.fast, case.fast), cold, false)?;
        rest(stage, case.fast)?;
        let demoted = Counters::of(stage)?.grown(&before, "pgdemote_kswapd");
        first.get_or_insert(demoted);
    }
    let there = placed(stage, &walker, walker.hot, pages)?;
    let now = Counters::of(stage)?;
    let one = |name| now.grown(&before, name);
    let (scanned, demoted) = (one("pgscan_kswapd"), one("pgdemote_kswapd"));
    let moved = one("numa_pages_migrated") + one("numa_pte_updates");
    let stalls = now.grown_all(&before, "allocstall");
    hold!(filled == 0, "kswapd scanned {filled} pages while the slow node had room");
    hold!(stalls == 0, "{stalls} allocations had to reclaim themselves");
    hold!(moved == 0, "balancing is off, and {moved} pages were marked or moved");
    hold!(demoted > 0, "the fast node is full, demotion is on, and nothing went down");
    hold!(scanned >= demoted, "{demoted} pages went down, {scanned} were scanned");
    let slow = there.get(&case.slow).map_or(0, |p| p.0);
    hold!(slow > 0, "{demoted} pages went down, and none of the walker's is on the slow node");
    Ok(Figures::from([
        ("walker", pages),
        (FIRST, first.unwrap_or(0)),
        (NEEDED, needed),
        ("lists_scanned", scanned),
        ("lists_demoted", demoted),
        ("lists_activated", one("pgactivate")),
        ("lists_deactivated", one("pgdeactivate")),
    ]))
}

/// Waits until kswapd has nothing more to do: it has looked at nothing, and the node is balanced.
pub(super) fn rest<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<(), Finding> {
    let looked = |now: &Counters, last: &Counters| {
        now.grown(last, "pgscan_kswapd") + now.grown(last, "pgrefill")
    };
    let balanced = |stage: &mut S| -> Result<bool, Finding> {
        Ok(zones_on(stage, node)?.iter().any(|z| z.above(z.high) > 0))
    };
    at_rest(
        stage,
        "kswapd",
        |stage| Counters::of(stage),
        |stage, now, last| Ok(looked(now, last) == 0 && balanced(stage)?),
    )
    .map(|_| ())
}
