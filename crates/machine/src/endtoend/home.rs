//! A task that runs away from its memory, which may not move: it comes home.
//!
//! ```text
//!   node `memory`                         node `cpu`
//!   all its pages, bound but sampled ◀─── the only thread, which may go anywhere
//!
//!   hint faults show where its memory is; nothing else brings the thread there
//! ```
//!
//! Its memory is bound with `MPOL_F_NUMA_BALANCING`: pages on the node that they are bound to are sampled and stay.
//! So it is certain which of the two moves. Emulation makes everything slow, and no figure here hangs on it: which node the
//! kernel prefers for the task, where the task ends, and where its pages are.
//!
//! Source: specs/end-to-end.md#home, specs/numa.md#homing

use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs, Started};
use super::{placed, under, until_ran};
use homenode_core::knobs::Knob;
use homenode_core::units::{NodeId, Picos};

/// Pages of its memory: few enough that one scan marks all of them.
pub const PAGES: u64 = 2048;
/// Processor time after which it has come home at the latest.
const WHOLE: Picos = Picos::from_ms(6000);
/// Between two looks meanwhile.
const STEP: Picos = Picos::from_ms(250);
/// How often it is begun anew where something else brought the thread home before anything was sampled.
const TRIES: u32 = 6;

/// Who is away, and where from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Where its memory lies.
    pub memory: NodeId,
    /// Where its thread begins, on another node.
    pub cpu: NodeId,
}

/// Figures that may differ: when it comes home, sampling stops, and that is sooner or later.
pub const OPEN: &[&str] = &["pte_updates", "hint_faults", "pages_migrated"];

/// Runs it with balancing on.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn comes_home<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let text = |n: u64| n.to_string();
    let knobs = [
        (Knob::ScanDelayMs, text(200)),
        (Knob::ScanPeriodMinMs, text(200)),
        (Knob::ScanPeriodMaxMs, text(1000)),
        (Knob::ScanSizeMb, text(256)),
        (Knob::TransparentHugepage, "never".to_owned()),
        (Knob::NumaBalancing, text(1)),
    ];
    under(stage, &knobs, |stage| {
        for _ in 0..TRIES {
            if let Some(figures) = one(stage, case)? {
                return Ok(figures);
            }
            stage.end_all();
        }
        Err(format!("{TRIES} times the thread came home before anything of it was sampled"))
    })
}

/// `numa_preferred_nid` of a program's first task; -1: none yet.
fn preferred<S: KernelStage>(stage: &mut S, who: &Started) -> Result<i64, Finding> {
    let path = format!("/proc/{}/sched", who.pid);
    let text = stage.read(&path)?;
    let line = text.lines().find(|line| line.starts_with("numa_preferred_nid"));
    let value = line.and_then(|line| line.rsplit(':').next()?.trim().parse().ok());
    value.ok_or_else(|| format!("{path} has no line numa_preferred_nid:\n{text}"))
}

fn one<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Option<Figures>, Finding> {
    let before = Counters::of(stage)?;
    let who = stage.start(&Program {
        name: "away",
        hot: PAGES,
        cold: 0,
        on: At::Tied(case.memory),
        huge: Some(false),
        later: None,
        runs: Runs::From(case.cpu),
        reads: Reads::For(WHOLE),
    })?;
    let home = i64::from(case.memory.0);
    let mut ran = Picos::ZERO;
    // Other work may push it away again for a moment: it comes back.
    while ran < WHOLE - STEP {
        ran += STEP;
        until_ran(stage, &who, ran)?;
        if preferred(stage, &who)? == home && stage.cpu_node(&who)? == case.memory {
            break;
        }
    }
    let (wants, node) = (preferred(stage, &who)?, stage.cpu_node(&who)?);
    let there = placed(stage, &who, who.hot, PAGES)?;
    let mut figures = Counters::of(stage)?.since(&before);
    let faults = figures.get("hint_faults").copied().unwrap_or(0);
    if wants < 0 && node == case.memory {
        return Ok(None);
    }
    hold!(faults > 0, "after {ran:?} nothing of it has been sampled, on node {node}");
    hold!(wants == home, "its memory is on node {home}, the kernel prefers {wants}");
    hold!(node == case.memory, "its memory is on node {home}, and it stays on node {node}");
    let put = there.get(&case.memory).map_or(0, |pages| pages.0);
    hold!(put == PAGES, "its pages are bound to node {home}, and they are on {there:?}");
    figures.insert("preferred", wants.unsigned_abs());
    figures.insert("thread_node", node.0.into());
    figures.insert("where_put", put);
    Ok(Some(figures))
}
