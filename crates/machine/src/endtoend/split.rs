//! Demotion of huge pages: whole where the slow node has room for them, split where it hasn't.
//!
//! ```text
//!   fast node                              slow node
//!   ┌──────────────────────────────┐      ┌───────────────────────────┐
//!   │ huge pages, nobody reads them│ ───▶ │ empty, or full but for    │
//!   │ + a neighbour, below `low`   │      │ some pages above `min`    │
//!   └──────────────────────────────┘      └───────────────────────────┘
//! ```
//!
//! With room each huge page that goes down goes whole, and all counters of pages grow by 512.
//! Without, kswapd splits what it would demote, and base pages go until no room is left. What is
//! counted as demoted then is others' too: pages of programs that look, which come, go down and
//! are given back while kswapd tries.
//!
//! Source: specs/end-to-end.md#split, specs/huge-pages.md#demotion

use super::collapse::fill_up;
use super::huge::on_node;
use super::lists::{CHUNK, knobs};
use super::tiering::{neighbour, tiered, zones_on};
use super::{Counters, Figures, Finding, KernelStage, Started, at_rest, on_nodes, under};
use homenode_core::units::{HUGE_PAGES, NodeId};

/// Rounds of a kswapd that finds nothing to reclaim: the one in which room ran out, 16 more, and
/// one that was under way.
pub(super) const UNDISTURBED: u64 = 18;

/// On which nodes, and whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The node with the CPUs.
    pub fast: NodeId,
    /// The node of a slower tier.
    pub slow: NodeId,
    /// Generations in the place of active and inactive lists.
    pub generations: bool,
    /// Whether the slow node has room for huge pages.
    pub room: bool,
}

impl Case {
    /// All that there are. Those in which kswapd can only fail come last.
    pub fn all(fast: NodeId, slow: NodeId) -> Vec<Self> {
        let of = |(room, generations)| Self { fast, slow, generations, room };
        [(true, false), (true, true), (false, false), (false, true)].map(of).into()
    }
    /// A short name.
    pub fn name(&self) -> String {
        let room = if self.room { "room" } else { "no room" };
        let lists = if self.generations { ", MGLRU" } else { "" };
        format!("{room}{lists}")
    }
    /// Figures that are shown and not compared. Without room kswapd gives up after 16 rounds in
    /// which nothing was reclaimed. Each page of others that goes down meanwhile, or is given
    /// back on the slow node, begins that count anew, so that it scans several times as much.
    /// With generations what it scans differs by half between two boots as well.
    ///
    /// * `real` – what the real kernel did.
    pub fn open(&self, real: &Figures) -> &'static [&'static str] {
        let rounds = real.get("split_rounds").copied().unwrap_or(0);
        match (self.room, self.generations || rounds > UNDISTURBED) {
            (true, _) => &["split_rounds"],
            (false, false) => &["split_demoted"],
            (false, true) => &["split_demoted", "split_rounds", "split_scanned"],
        }
    }
}

/// Runs a case. Where no tier is slower nothing can be demoted: `None`.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn goes_down<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Option<Figures>, Finding> {
    if !tiered(stage, (case.fast, case.slow))? {
        return Ok(None);
    }
    under(stage, &knobs(case.generations, "madvise"), |stage| filled(stage, case)).map(Some)
}

/// Lets somebody reclaim by himself, who finds room on the slow node: a kswapd that has failed
/// 16 times goes on after that.
///
/// # Errors
/// Where that can't be done.
pub fn revive<S: KernelStage>(
    stage: &mut S,
    (fast, slow): (NodeId, NodeId),
) -> Result<(), Finding> {
    if !tiered(stage, (fast, slow))? {
        return Ok(());
    }
    under(stage, &knobs(false, "madvise"), |stage| {
        let pages: u64 = zones_on(stage, fast)?.iter().map(|z| z.above(z.min)).sum();
        neighbour(stage, (fast, fast), pages + 4 * CHUNK, false).map(|_| ())
    })
}

fn filled<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    if !case.room {
        fill_up(stage, (case.slow, case.fast))?;
    }
    let (start, had) = (Counters::of(stage)?, on_node(stage, case.fast)?);
    let above_low = |stage: &mut S| -> Result<u64, Finding> {
        Ok(zones_on(stage, case.fast)?.iter().map(|z| z.above(z.low)).sum())
    };
    // Each zone may lack a part of a huge page.
    let huge = (above_low(stage)? / HUGE_PAGES).saturating_sub(2);
    hold!(huge > 8, "node {} has no room to be filled: {huge} huge pages", case.fast);
    let pages = huge * HUGE_PAGES;
    let who = neighbour(stage, (case.fast, case.fast), pages, true)?;
    let came = Counters::of(stage)?.grown(&start, "thp_fault_alloc");
    hold!(came >= huge * 9 / 10, "{huge} huge pages fit, {came} came");
    let before = Counters::of(stage)?;
    let cold = above_low(stage)? + CHUNK;
    neighbour(stage, (case.fast, case.fast), cold, false)?;
    given_up(stage)?;
    let now = Counters::of(stage)?;
    let one = |name| now.grown(&before, name);
    let left = on_node(stage, case.fast)?.saturating_sub(had);
    let (whole, fell, split) =
        (one("thp_migration_success"), one("thp_migration_fail"), one("thp_migration_split"));
    let (parted, demoted, scanned) =
        (one("thp_split_page"), one("pgdemote_kswapd"), one("pgscan_kswapd"));
    let rounds = one("pageoutrun");
    let moved = gone_to(stage, &who, case.slow)?;
    let stalls = now.grown_all(&before, "allocstall");
    hold!(stalls == 0, "{stalls} allocations had to reclaim themselves");
    hold!(demoted > 0, "the fast node is full, demotion is on, and nothing went down");
    hold!(demoted >= whole * HUGE_PAGES, "{whole} huge pages went down, as {demoted} pages");
    hold!(scanned >= demoted, "{demoted} pages went down, {scanned} were scanned");
    hold!(split <= parted, "{split} were split to be demoted, {parted} in all");
    if case.room {
        hold!(split == 0 && parted == 0, "there is room, and {parted} huge pages were split");
        hold!(fell == 0, "there is room, and {fell} huge pages could not be moved");
    } else {
        hold!(whole == 0, "there is no room, and {whole} huge pages went down whole");
        hold!(split > 0, "there is no room for huge pages, and none was split");
        // With generations it may have failed before and been woken once only.
        hold!(
            case.generations || rounds >= 16,
            "kswapd gives up after 16 rounds for nothing, and made {rounds}"
        );
        hold!(moved < HUGE_PAGES, "room for less than 512 pages, and {moved} went down");
    }
    Ok(Figures::from([
        ("split_filled", came),
        ("split_left", left),
        ("split_whole", whole),
        ("split_failed", fell),
        ("split_to_move", split),
        ("split_pages", parted),
        ("split_moved", moved),
        ("split_demoted", demoted),
        ("split_scanned", scanned),
        ("split_rounds", rounds),
    ]))
}

/// Pages of a program that are on a node. Not all of it need be anywhere: Linux gives back a part
/// that holds zeroes when it splits a huge page.
fn gone_to<S: KernelStage>(stage: &mut S, who: &Started, node: NodeId) -> Result<u64, Finding> {
    let path = format!("/proc/{}/numa_maps", who.pid);
    let at = who.cold.ok_or("the program has no memory")?;
    let there = on_nodes(&stage.read(&path)?, at);
    let there = there.ok_or_else(|| format!("{path} has no mapping at {at:x}"))?;
    Ok(there.get(&node).map_or(0, |p| p.0))
}

/// Waits until kswapd does nothing more: for want of room it gives up.
pub(super) fn given_up<S: KernelStage>(stage: &mut S) -> Result<(), Finding> {
    const BUSY: [&str; 4] = ["pgscan_kswapd", "pgrefill", "pgdemote_kswapd", "thp_split_page"];
    at_rest(
        stage,
        "kswapd",
        |stage| Counters::of(stage),
        |_, now, last| Ok(BUSY.iter().all(|name| now.grown(last, name) == 0)),
    )
    .map(|_| ())
}
