//! S1: a hot set on the slow node, the fast one full of somebody else's pages.
//!
//! ```text
//!   fast node                                  slow node
//!   ┌──────────────────────────────────┐      ┌──────────────────────┐
//!   │ neighbour, bound here, asleep    │      │ hot │ cold           │
//!   │ + 128 pages, + 128, + 128        │ ◀─── │  ▲ read all the time │
//!   │ free: about `low`                │  ?   │  │ from a CPU there ◀┤
//!   └──────────────────────────────────┘      └──────────────────────┘
//! ```
//!
//! | mode | demotion off | demotion on |
//! |---|---|---|
//! | 0 | nothing is sampled, nothing moves | the neighbour's oldest pages go down |
//! | 1 | sampled; no room, so hardly anything comes up | as much as allocations happen to free |
//! | 2 | sampled; no room | each refusal wakes kswapd: the hot set comes up |
//!
//! Never, in any of them, does an allocation have to reclaim itself, and the cold pages
//! stay where they are.
//!
//! Source: specs/end-to-end.md#s1, specs/tiering.md#admission

use super::text::{tiers_of, zones};
use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs, Started, ZoneNow};
use super::{placed, under, until_ran};
use homenode_core::knobs::Knob;
use homenode_core::units::{NodeId, Pages, Picos};

/// Pages that are read over and over: four huge ones.
pub const HOT: u64 = 2048;
/// Pages beside them that are touched once.
pub const COLD: u64 = 1024;
/// Pages by which the neighbour grows at a time. Three times this, and page tables and
/// what else a program takes, is less than lies between `low` and `min`: no allocation has
/// to wait for kswapd.
pub const CHUNK: u64 = 128;
/// How often what is free again after filling is taken, too.
const REFILLS: u32 = 4;
/// How often it grows.
const CHUNKS: u32 = 3;
/// What the kernel has to spare without anybody's being told: lists of the CPUs, caches
/// that it shrinks.
const SPARE: u64 = 512;
/// `min_free_kbytes`, the same on both machines: about the kernel's own figure for 2 GiB.
const MIN_FREE_KB: u64 = 65_536;
/// `watermark_scale_factor`: marks so far apart that what a kernel sets aside between them
/// for itself (blocks for atomic allocations count as free, but programs don't get them)
/// leaves room for the neighbour's steps.
const SCALE_FACTOR: u64 = 200;
/// Processor time of the hot program before, between and after what the neighbour takes.
const STRETCH: Picos = Picos::from_ms(500);
/// It is over when kswapd and balancing have moved nothing for so many stretches …
const QUIET: u32 = 2;
/// … and after so many in any case.
const STRETCHES: u32 = 24;
/// Where tiers are shown.
const TIERS: &str = "/sys/devices/virtual/memory_tiering";

/// How the kernel is set, and what pages the programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// `numa_balancing`: 0, 1, 2 or 3.
    pub mode: u8,
    /// `demotion_enabled`.
    pub demotion: bool,
    /// Huge pages, for the hot set and for the neighbour.
    pub huge: bool,
    /// The node with the CPUs, which is filled.
    pub fast: NodeId,
    /// The node where the hot set begins.
    pub slow: NodeId,
}

impl Case {
    /// A short name.
    pub fn name(&self) -> String {
        let demotion = if self.demotion { "on" } else { "off" };
        let huge = if self.huge { ", huge" } else { "" };
        format!("mode {}, demotion {demotion}{huge}", self.mode)
    }
    /// Figures in which two runs of one kernel differ as much as two kernels: how much
    /// comes up without tiering is what kswapd happens to free beyond what was asked for.
    pub fn open(&self) -> &'static [&'static str] {
        match (self.mode, self.demotion) {
            (1, true) => &["hot_fast", "pages_migrated", "hint_faults", "pte_updates"],
            _ => &[],
        }
    }
}

/// Runs a case.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn s1<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let text = |n: u64| n.to_string();
    let knobs = [
        (Knob::ScanDelayMs, text(200)),
        (Knob::ScanPeriodMinMs, text(200)),
        (Knob::ScanPeriodMaxMs, text(400)),
        (Knob::ScanSizeMb, text(256)),
        // An emulated machine is slow, and a busy host makes it stand still: whatever is
        // accessed at all has to count as hot.
        (Knob::HotThresholdMs, text(20_000)),
        // Switching huge pages on may raise min_free_kbytes: first the one, then the other.
        (Knob::TransparentHugepage, if case.huge { "madvise" } else { "never" }.to_owned()),
        (Knob::MinFreeKbytes, text(MIN_FREE_KB)),
        (Knob::WatermarkScaleFactor, text(SCALE_FACTOR)),
        (Knob::DemotionEnabled, case.demotion.to_string()),
        (Knob::NumaBalancing, text(case.mode.into())),
    ];
    under(stage, &knobs, |stage| hot_and_neighbour(stage, case))
}

/// Whether the kernel takes `slow` for slower than `fast`.
pub(super) fn tiered<S: KernelStage>(
    stage: &mut S,
    (fast, slow): (NodeId, NodeId),
) -> Result<bool, Finding> {
    let mut folders = Vec::new();
    for name in stage.list(TIERS)?.into_iter().filter(|n| n.starts_with("memory_tier")) {
        let list = stage.read(&format!("{TIERS}/{name}/nodelist"))?;
        folders.push((name, list));
    }
    let tiers = tiers_of(&folders);
    Ok(matches!((tiers.get(&fast), tiers.get(&slow)), (Some(f), Some(s)) if f < s))
}

pub(super) fn zones_on<S: KernelStage>(
    stage: &mut S,
    node: NodeId,
) -> Result<Vec<ZoneNow>, Finding> {
    let all = zones(&stage.read("/proc/zoneinfo")?);
    let mine: Vec<ZoneNow> = all.into_iter().filter(|z| z.node == node).collect();
    hold!(!mine.is_empty(), "node {node} has no zone with memory");
    Ok(mine)
}

/// Pages above the high marks: what promotions may take.
fn room(zones: &[ZoneNow]) -> u64 {
    zones.iter().map(|z| z.above(z.high)).sum()
}

/// A program on some CPU takes so many pages of a node and sleeps.
pub(super) fn neighbour<S: KernelStage>(
    stage: &mut S,
    (node, cpu): (NodeId, NodeId),
    pages: u64,
    huge: bool,
) -> Result<Started, Finding> {
    stage.start(&Program {
        name: "neighbour",
        hot: 0,
        cold: pages,
        on: At::Bound(node),
        huge: Some(huge),
        later: None,
        runs: Runs::Pinned(cpu),
        reads: Reads::For(Picos::ZERO),
    })
}

fn hot_and_neighbour<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let tiered = tiered(stage, (case.fast, case.slow))?;
    let before = Counters::of(stage)?;
    // The fast node down to its low marks: from here on allocations wake kswapd.
    let fill: u64 = zones_on(stage, case.fast)?.iter().map(|z| z.above(z.low)).sum();
    hold!(fill > 8 * CHUNK, "node {} has no room to be filled: {fill} pages", case.fast);
    neighbour(stage, (case.fast, case.fast), fill, case.huge)?;
    // The kernel may have shrunk caches of its own meanwhile; where kswapd has begun to
    // demote the node was full.
    for _ in 0..REFILLS {
        let down: u64 = zones_on(stage, case.fast)?.iter().map(|z| z.above(z.low)).sum();
        let demoted = Counters::of(stage)?.grown(&before, "pgdemote_kswapd");
        if down <= CHUNK || demoted > 0 {
            break;
        }
        neighbour(stage, (case.fast, case.fast), down, case.huge)?;
    }
    let left = room(&zones_on(stage, case.fast)?);
    hold!(
        case.demotion || left <= SPARE,
        "node {} was filled, and {left} pages are free above its high marks",
        case.fast
    );
    let who = stage.start(&Program {
        name: "hot",
        hot: HOT,
        cold: COLD,
        on: At::First(case.slow),
        huge: Some(case.huge),
        later: None,
        runs: Runs::Pinned(case.fast),
        reads: Reads::For(crate::conformance::ALWAYS),
    })?;
    let mut until = stage.ran(&who)? + STRETCH * 2;
    until_ran(stage, &who, until)?;
    for _ in 0..CHUNKS {
        // Too little for huge pages.
        neighbour(stage, (case.fast, case.fast), CHUNK, false)?;
        until += STRETCH;
        until_ran(stage, &who, until)?;
    }
    // kswapd looks at each page of the node once before it finds one that was not accessed
    // since: on an emulated machine that takes longer than all of the above.
    let (mut last, mut quiet) = (Counters::of(stage)?, 0);
    for _ in 0..STRETCHES {
        until += STRETCH;
        until_ran(stage, &who, until)?;
        let now = Counters::of(stage)?;
        let busy = ["pgscan_kswapd", "pgdemote_kswapd", "numa_pages_migrated"];
        quiet = if busy.iter().all(|name| now.grown(&last, name) == 0) { quiet + 1 } else { 0 };
        last = now;
        if quiet == QUIET {
            break;
        }
    }
    let hot = placed(stage, &who, who.hot, HOT)?;
    let cold = placed(stage, &who, who.cold, COLD)?;
    let mut figures = Counters::of(stage)?.since(&before);
    let end = zones_on(stage, case.fast)?;
    let on = |m: &std::collections::BTreeMap<NodeId, Pages>, n| m.get(&n).map_or(0, |p| p.0);
    figures.insert("filled", fill);
    figures.insert("hot_fast", on(&hot, case.fast));
    figures.insert("cold_fast", on(&cold, case.fast));
    let high: u64 = end.iter().map(|z| z.high).sum();
    figures.insert("high_marks", high);
    judge(case, tiered, left, &figures)?;
    Ok(figures)
}

/// What holds on every kernel.
fn judge(case: &Case, tiered: bool, left: u64, figures: &Figures) -> Result<(), Finding> {
    let one = |name: &str| figures.get(name).copied().unwrap_or(0);
    let (marked, faults, moved) = (one("pte_updates"), one("hint_faults"), one("pages_migrated"));
    let (up, down) = (one("promoted"), one("demoted_kswapd") + one("demoted_direct"));
    let hot = one("hot_fast");
    hold!(one("cold_fast") == 0, "{} cold pages came up", one("cold_fast"));
    let (stalls, scans) = (one("stalls"), one("direct_scans"));
    hold!(stalls == 0, "{stalls} allocations had to reclaim themselves");
    hold!(scans == 0, "{scans} pages were scanned on behalf of allocations");
    hold!(faults <= marked, "{faults} hint faults of {marked} entries that were marked");
    hold!(hot <= moved, "{hot} hot pages came up, {moved} pages were moved by balancing");
    if case.demotion && tiered {
        hold!(down > 0, "the fast node is full, demotion is on, and nothing went down");
    } else {
        hold!(down == 0, "{down} pages went down, though nothing may be demoted");
        // With nothing that makes room there is the room that was, and no more.
        hold!(
            hot <= left + SPARE,
            "{hot} hot pages came up, where {left} pages were free above the high marks"
        );
    }
    let tiering = case.mode & 2 != 0 && tiered;
    hold!(tiering || up == 0, "{up} promotions without tiering");
    hold!(!tiering || hot <= up, "{hot} hot pages came up, {up} promotions were counted");
    match case.mode {
        0 => {
            hold!(
                marked == 0 && faults == 0,
                "{marked} marked, {faults} faults, with balancing off"
            );
            hold!(moved == 0, "{moved} pages were moved, with balancing off");
        }
        // Every node is in the top tier: it isn't looked at.
        2 if !tiered => hold!(marked == 0, "{marked} marked, though no node is slow"),
        _ => hold!(marked > 0 && faults > 0, "{marked} marked, {faults} faults: nobody samples"),
    }
    if tiering && case.demotion {
        hold!(hot >= HOT / 4 * 3, "only {hot} of {HOT} hot pages came up, {down} went down");
    }
    Ok(())
}
