//! What a source of heat can tell, what a machine lacks for it, and which one is used.
//!
//! ```text
//!  facts of a machine ──▶ lacks(source) ──▶ offered or not, and how to get it
//!                    └──▶ cell(decision, source): the matrix, as it is here
//!                    └──▶ choose: the offered source that decides best what is open here
//! ```
//!
//! What each source can decide stands on its sheet ([`crate::policy::source`]); `ARCHITECTURE.md` shows all.
//! Two of its rows part the sources: what is *cold* matters where a slow node could take it,
//! *who* accesses matters where several nodes have CPUs. A row counts 2 where a source is
//! exact and 1 where it is degraded; of equals the one with the lower
//! rank is taken.
//!
//! Worked example: two sockets and no slow node. Cold memory has nowhere to go, so that row
//! does not count. Who accesses does: DAMON counts 1 there, samples of a PMU 2. The PMU is
//! used, if it can be opened.
//!
//! Source: specs/sources.md#choice.

use super::facts::{Facts, Lack, NORMAL};
use super::matrix::{Cell, Decision, Quality, exact};
use super::source::{Shows, Source};
use std::fmt;

/// The matrix's field for a machine that offers everything and has several nodes.
pub fn at_best(decision: Decision, source: Source) -> Cell {
    source.sheet().decides[decision as usize]
}

/// What is missing for a source here; empty: it is offered.
///
/// What could not be seen is missing too: nothing is chosen on a guess. Residency lacks
/// nothing.
pub fn lacks(source: Source, facts: &Facts) -> Vec<Lack> {
    (source.sheet().missing)(facts)
}

/// The matrix's field on this machine: unavailable where the source is not offered, and
/// exact where there is nothing to tell apart.
pub fn cell(decision: Decision, source: Source, facts: &Facts) -> Cell {
    if !lacks(source, facts).is_empty() {
        return Cell { quality: Quality::Unavailable, note: "not offered here" };
    }
    let scans_all = facts.hints.mode.is_some_and(|m| m & NORMAL != 0);
    match (decision, source.shows()) {
        (Decision::Cold, Shows::Faults) if !scans_all => {
            Cell { quality: Quality::Unavailable, note: "only lower tiers are scanned" }
        }
        (Decision::Accessor, _) if facts.cpu_nodes == 1 => exact("since one node has all CPUs"),
        (Decision::Place, _) if facts.memory_nodes == 1 => exact("since one node has all memory"),
        _ => at_best(decision, source),
    }
}

/// Why a source was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// No source of heat is offered.
    NoHeat,
    /// It is the only one that is.
    OnlyOne,
    /// It decides best what is open here: points, and those of the next one.
    Best {
        /// Its points.
        points: u32,
        /// Of the next best.
        next: u32,
        /// Whether what is cold counted.
        cold: bool,
        /// Whether who accesses counted.
        accessor: bool,
    },
}

/// Which source is used, why, and what the others lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The source; [`Source::Residency`] is none of heat.
    pub source: Source,
    /// Why.
    pub why: Because,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Because::NoHeat => f.write_str("residency only: no source of heat is offered here"),
            Because::OnlyOne => {
                write!(f, "{}: the only source of heat that is offered here", self.source.name())
            }
            Because::Best { points, next, cold, accessor } => {
                let open = match (cold, accessor) {
                    (true, true) => "there is a slow node and several nodes have CPUs",
                    (true, false) => "there is a slow node",
                    (false, true) => "several nodes have CPUs",
                    (false, false) => "only heat is to be told here",
                };
                let than = match points.cmp(&next) {
                    std::cmp::Ordering::Greater => {
                        format!("it decides most ({points} points, the next one {next})")
                    }
                    _ => format!("of equals ({points} points) it costs or disturbs least"),
                };
                write!(f, "{}: {open}, and {than}", self.source.name())
            }
        }
    }
}

/// Which source homenode uses on a machine, by the matrix.
///
/// Source: specs/sources.md#choice.
pub fn choose(facts: &Facts) -> Choice {
    let (cold, accessor) = (facts.slow_nodes > 0, facts.cpu_nodes > 1);
    let points = |source| -> u32 {
        Decision::ALL
            .into_iter()
            .filter(|d| match d {
                Decision::Cold => cold,
                Decision::Accessor => accessor,
                _ => true,
            })
            .map(|d| cell(d, source, facts).quality as u32)
            .sum()
    };
    let heat = Source::HEAT.iter().copied();
    let mut offered: Vec<(u32, Source)> =
        heat.filter(|s| lacks(*s, facts).is_empty()).map(|s| (points(s), s)).collect();
    offered.sort_by_key(|(points, s)| (std::cmp::Reverse(*points), s.sheet().rank));
    match offered[..] {
        [] => Choice { source: Source::Residency, why: Because::NoHeat },
        [(_, source)] => Choice { source, why: Because::OnlyOne },
        [(points, source), (next, _), ..] => {
            Choice { source, why: Because::Best { points, next, cold, accessor } }
        }
    }
}
