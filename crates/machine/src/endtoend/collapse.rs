//! khugepaged: what it makes of base pages in a wake, and what it leaves.
//!
//! ```text
//!  a program touches base pages, gives some back, asks for huge ones
//!       │
//!       ▼            scan_sleep_millisecs is written: khugepaged is woken, once
//!  wake ──▶ thp_collapse_alloc ──▶ wake ──▶ … ──▶ AnonHugePages, full_scans
//! ```
//!
//! It sleeps for ten minutes by itself; whoever writes its time to sleep wakes it. So a body
//! says when it looks, and how much comes of a wake is a matter of its rules. The knob is
//! `madvise`: nobody else has huge pages meanwhile.
//!
//! A small program asks before: on a real machine others stand in khugepaged's list already,
//! and whoever comes to an empty one wakes it.
//!
//! Source: specs/end-to-end.md#collapse, specs/huge-pages.md#khugepaged

use super::huge::on_node;
use super::tiering::{neighbour, zones_on};
use super::{
    At, Counters, Figures, Finding, KernelStage, Program, RESTS_WITHIN, Reads, Runs, at_rest, under,
};
use homenode_core::knobs::Knob;
use homenode_core::units::{HUGE_PAGES, NodeId, Picos};

/// Time to sleep, which writing changes and nobody waits for.
const SLEEP_MS: u64 = 600_000;
/// Wakes of a case.
const WAKES: usize = 3;
/// Pages above the min mark where there is to be no huge page.
const LEFT: u64 = 128;
/// Pages that CPUs may keep of a full node: they give back some a second.
const KEPT: u64 = 64;
/// How often a node is filled until no more is left.
const FILLS: u32 = 8;

/// What there is for khugepaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// 20 stretches, all there: more than two wakes take.
    Whole,
    /// Four of which 100 pages of 512 are there: one page too few for `max_ptes_none`, and
    /// from the second wake on enough.
    Partly,
    /// Four, and no node that has a huge page.
    NoRoom,
}

/// One of them, on which nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What there is for khugepaged.
    pub what: What,
    /// Where memory is.
    pub node: NodeId,
    /// Where programs run.
    pub cpu: NodeId,
}

impl Case {
    /// A short name.
    pub const fn name(&self) -> &'static str {
        match self.what {
            What::Whole => "whole stretches",
            What::Partly => "stretches with holes",
            What::NoRoom => "no room",
        }
    }
    const fn stretches(&self) -> u64 {
        match self.what {
            What::Whole => 20,
            What::Partly | What::NoRoom => 4,
        }
    }
    /// Pages of a stretch that are there.
    const fn kept(&self) -> u64 {
        match self.what {
            What::Whole | What::NoRoom => HUGE_PAGES,
            What::Partly => 100,
        }
    }
}

/// Runs a case.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn collapses<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let text = |n: u64| n.to_string();
    let knobs = [
        (Knob::TransparentHugepage, "madvise".to_owned()),
        (Knob::NumaBalancing, "0".to_owned()),
        // Nobody makes room.
        (Knob::DemotionEnabled, "false".to_owned()),
        (Knob::KhugepagedDefrag, "0".to_owned()),
        (Knob::KhugepagedPagesToScan, text(8 * HUGE_PAGES)),
        // One page too few, where some are absent.
        (Knob::KhugepagedMaxPtesNone, text((HUGE_PAGES - case.kept()).saturating_sub(1))),
        (Knob::KhugepagedAllocSleepMillisecs, text(10)),
        (Knob::KhugepagedScanSleepMillisecs, text(SLEEP_MS)),
    ];
    under(stage, &knobs, |stage| wakes(stage, case))
}

/// A program that touches base pages and then asks for huge ones.
fn asks<S: KernelStage>(
    stage: &mut S,
    case: &Case,
    stretches: u64,
    kept: u64,
) -> Result<(), Finding> {
    let program = Program {
        name: "asks-late",
        hot: 0,
        cold: stretches * HUGE_PAGES,
        on: At::Bound(case.node),
        huge: Some(false),
        later: Some(kept),
        runs: Runs::Pinned(case.cpu),
        reads: Reads::For(Picos::ZERO),
    };
    stage.start(&program).map(|_| ())
}

/// What khugepaged has done: huge pages had and not had, made, rounds.
fn done<S: KernelStage>(stage: &mut S) -> Result<[u64; 4], Finding> {
    let all = Counters::of(stage)?;
    let of = |name: &str| all.0.get(name).copied().unwrap_or(0);
    let (had, failed) = (of("thp_collapse_alloc"), of("thp_collapse_alloc_failed"));
    let mut file = |name: &str| -> Result<u64, Finding> {
        let path = format!("/sys/kernel/mm/transparent_hugepage/khugepaged/{name}");
        let text = stage.read(&path)?;
        text.trim().parse().map_err(|e| format!("{path} holds {text:?}: {e}"))
    };
    Ok([had, failed, file("pages_collapsed")?, file("full_scans")?])
}

/// Wakes khugepaged and waits until it sleeps again.
fn wake<S: KernelStage>(stage: &mut S) -> Result<[u64; 4], Finding> {
    let knob = Knob::KhugepagedScanSleepMillisecs;
    let path = knob.path(stage.version()).ok_or("this kernel has no khugepaged")?;
    stage.write(&path, &SLEEP_MS.to_string())?;
    at_rest(stage, "khugepaged", done, |_, now, last| Ok(now == last))
}

/// Waits until CPUs keep few of a node's free pages: those would be room that nobody sees.
fn until_given_back<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<(), Finding> {
    for _ in 0..RESTS_WITHIN {
        let kept: u64 = zones_on(stage, node)?.iter().map(|z| z.kept).sum();
        if kept <= KEPT {
            return Ok(());
        }
        stage.pass()?;
    }
    Err(format!("CPUs keep free pages of node {node}"))
}

/// Fills a node until it has no huge page.
pub(super) fn fill_up<S: KernelStage>(
    stage: &mut S,
    (node, cpu): (NodeId, NodeId),
) -> Result<(), Finding> {
    for _ in 0..FILLS {
        until_given_back(stage, node)?;
        let left: u64 = zones_on(stage, node)?.iter().map(|z| z.above(z.min)).sum();
        if left <= 2 * LEFT {
            return Ok(());
        }
        // Its page tables may lie on this node too: without room for them it would be killed.
        neighbour(stage, (node, cpu), left - LEFT - left / HUGE_PAGES, false)?;
    }
    Err(format!("node {node} does not get full"))
}

fn wakes<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    asks(stage, case, 1, HUGE_PAGES)?;
    wake(stage)?;
    asks(stage, case, case.stretches(), case.kept())?;
    if case.what == What::NoRoom {
        fill_up(stage, (case.node, case.cpu))?;
    }
    let (first, had) = (done(stage)?, on_node(stage, case.node)?);
    let mut all = Vec::new();
    for n in 0..WAKES {
        all.push(wake(stage)?);
        if case.what == What::Partly && n == 0 {
            let path = Knob::KhugepagedMaxPtesNone.path(stage.version());
            let path = path.ok_or("this kernel has no max_ptes_none")?;
            stage.write(&path, &(HUGE_PAGES - case.kept()).to_string())?;
        }
    }
    let since = |n: usize, i: usize| all[n][i].saturating_sub(first[i]);
    let (got, failed, made) = (since(WAKES - 1, 0), since(WAKES - 1, 1), since(WAKES - 1, 2));
    let has = on_node(stage, case.node)?.saturating_sub(had);
    hold!(made <= got, "{made} huge pages were made of {got}");
    hold!(has == made, "{made} huge pages were made, {has} more are there");
    if case.what == What::Partly {
        let early = since(0, 0);
        hold!(early == 0, "{early} stretches lack a page more than may be absent, and are huge");
    }
    match case.what {
        What::Whole | What::Partly => {
            hold!(made == case.stretches(), "{made} of {} are huge", case.stretches());
            hold!(failed == 0, "there is room, and {failed} huge pages were not had");
        }
        What::NoRoom => {
            hold!(made == 0, "there is no room, and {made} huge pages were made");
            hold!(failed > 0, "there is no room, and nobody says so");
        }
    }
    Ok(Figures::from([
        ("collapse_first", since(0, 0)),
        ("collapse_second", since(1, 0)),
        ("collapse_third", since(2, 0)),
        ("collapse_failed", failed),
        ("collapse_pages", made),
        ("collapse_rounds", since(WAKES - 1, 3)),
    ]))
}
