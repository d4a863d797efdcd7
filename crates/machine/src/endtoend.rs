//! The kernel's own mechanisms, end to end: what a simulated kernel does has to be what
//! a real one does.
//!
//! ```text
//!            knobs, programs             files
//!  body ────────────────────▶ stage ◀──────────── /proc/vmstat, zoneinfo, numa_maps
//!    │                          ├── a real kernel, in a guest
//!    │                          └── the simulated one, on the same machine
//!    └──▶ figures of each ──▶ compare ──▶ differences
//! ```
//!
//! A body is written once. It sets knobs and starts programs through a [`KernelStage`],
//! and it reads the kernel's own files, on both machines the same text. What has to hold
//! on each machine alone it says as [`Finding`]; what it counted it returns as
//! [`Figures`], which [`compare`] holds against each other by a table of factors with
//! their reasons.
//!
//! Time is the programs' own processor time. An emulated machine says nothing about
//! speed, so no body looks at a clock.
//!
//! Source: specs/end-to-end.md

mod compare;
mod text;

pub mod collapse;
pub mod home;
pub mod huge;
pub mod lists;
pub mod pressure;
pub mod sched;
pub mod slow_start;
pub mod split;
pub mod tiering;

pub use compare::{Difference, FACTORS, Factor, compare};
pub use text::{ZoneNow, on_nodes, tiers_of, vmstat, zones};

pub use crate::conformance::Finding;

use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Knob;
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// What a body counted, by name. Pages and events; never times.
pub type Figures = BTreeMap<&'static str, u64>;

/// Where a program's memory lies at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Where the kernel puts it: it never has a policy.
    Anywhere,
    /// It is put there, and has no policy from then on: the kernel may move it.
    First(NodeId),
    /// It is bound there and stays bound: what balancing leaves alone.
    Bound(NodeId),
    /// The same with `MPOL_F_NUMA_BALANCING`: balancing samples it and leaves it where it is.
    Tied(NodeId),
}

/// Where a program's only thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// On the first CPU of this node and nowhere else.
    Pinned(NodeId),
    /// It begins on this node and may go anywhere.
    From(NodeId),
}

/// How long a program reads its hot stretch, after which it sleeps until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Over and over, until it has had so much processor time in all, touching included.
    For(Picos),
    /// Once from end to end whenever [`KernelStage::walk`] asks for it, at most so often.
    /// In between it sleeps.
    Walks(u32),
}

/// A program: two stretches of private anonymous memory, touched once; then it reads the
/// pages of the first, one after the other, and sleeps until it is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in findings.
    pub name: &'static str,
    /// Pages that are read over and over.
    pub hot: u64,
    /// Pages that are touched once.
    pub cold: u64,
    /// Where both lie at first.
    pub on: At,
    /// What it says of huge pages: `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, or nothing.
    pub huge: Option<bool>,
    /// What it does once it has touched them: of each 2 MiB it keeps so many pages, the first
    /// ones, gives the others back (`MADV_DONTNEED`), and asks for huge pages.
    pub later: Option<u64>,
    /// Where it runs.
    pub runs: Runs,
    /// How long it reads.
    pub reads: Reads,
}

/// A program that runs: its memory has been touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its PID.
    pub pid: u32,
    /// Address of the hot stretch in bytes; `None` if it has none.
    pub hot: Option<u64>,
    /// The same of the cold one.
    pub cold: Option<u64>,
}

/// A kernel with its files and knobs, and programs on it.
pub trait KernelStage {
    /// Which kernel it is, as far as rules differ.
    fn version(&self) -> KernelVersion;
    /// A file's text, by the kernel's path.
    ///
    /// # Errors
    /// With the path and why it can't be read.
    fn read(&mut self, path: &str) -> Result<String, Finding>;
    /// Writes a text to a file, with all rights.
    ///
    /// # Errors
    /// With the path, the text and why it is refused.
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding>;
    /// Names in a folder; none where the kernel doesn't have it.
    ///
    /// # Errors
    /// Where it is there but can't be read.
    fn list(&mut self, folder: &str) -> Result<Vec<String>, Finding>;
    /// Starts a program and waits until all of its memory is where it is to be at first.
    ///
    /// # Errors
    /// Where it ends before.
    fn start(&mut self, program: &Program) -> Result<Started, Finding>;
    /// Lets a program that [`Reads::Walks`] read its hot stretch once, and waits until it is
    /// through and sleeps. Each page's accessed bit is set then, unless reclaim has cleared
    /// it since.
    ///
    /// # Errors
    /// Where it has ended by itself, or has walked as often as it was to.
    fn walk(&mut self, who: &Started) -> Result<(), Finding>;
    /// Processor time that a program has used.
    ///
    /// # Errors
    /// Where it has ended by itself.
    fn ran(&mut self, who: &Started) -> Result<Picos, Finding>;
    /// The node on whose CPU it runs, or ran last.
    ///
    /// # Errors
    /// As [`Self::ran`].
    fn cpu_node(&mut self, who: &Started) -> Result<NodeId, Finding>;
    /// Lets everything run on for a while. How much happens in it nobody may rely on.
    ///
    /// # Errors
    /// Where the machine stops.
    fn pass(&mut self) -> Result<(), Finding>;
    /// Ends all programs and waits until their memory is free.
    fn end_all(&mut self);
}

/// Rounds of [`KernelStage::pass`] for which a program may not get on before it counts as
/// stuck. Many times what any takes.
const PATIENCE: u32 = 20_000;

/// Waits until a program has used so much processor time.
fn until_ran<S: KernelStage>(stage: &mut S, who: &Started, ran: Picos) -> Result<(), Finding> {
    let (mut last, mut still) = (Picos::ZERO, 0);
    loop {
        let now = stage.ran(who)?;
        if now >= ran {
            return Ok(());
        }
        still = if now > last { 0 } else { still + 1 };
        hold!(still < PATIENCE, "the program {} gets no processor after {now:?}", who.pid);
        last = now;
        stage.pass()?;
    }
}

/// Looks at where pages are before some count as lost: one that is just being moved is
/// nowhere for a moment.
const LOOKS: u32 = 50;

/// The pages of a stretch of a program by node: all of them.
fn placed<S: KernelStage>(
    stage: &mut S,
    who: &Started,
    at: Option<u64>,
    pages: u64,
) -> Result<BTreeMap<NodeId, Pages>, Finding> {
    let at = at.ok_or("the program has no such memory")?;
    let path = format!("/proc/{}/numa_maps", who.pid);
    let mut there = BTreeMap::new();
    for _ in 0..LOOKS {
        let text = stage.read(&path)?;
        let found = on_nodes(&text, at);
        there = found.ok_or_else(|| format!("{path} has no mapping at {at:x}:\n{text}"))?;
        if there.values().map(|p| p.0).sum::<u64>() == pages {
            return Ok(there);
        }
        stage.pass()?;
    }
    Err(format!("{pages} pages at {at:x} were touched, {there:?} are there"))
}

/// Looks until nothing has come of it so many times; on a busy host a thread of the kernel may get
/// no processor for a while.
const RESTS: u32 = 50;
/// Looks within which it has. Many times what it takes.
const RESTS_WITHIN: u32 = 3000;

/// Waits until a thread of the kernel has nothing more to do; what was seen last.
///
/// * `see` – what it has done so far.
/// * `idle` – whether it has done nothing between two of these.
fn at_rest<S: KernelStage, T>(
    stage: &mut S,
    thread: &str,
    mut see: impl FnMut(&mut S) -> Result<T, Finding>,
    mut idle: impl FnMut(&mut S, &T, &T) -> Result<bool, Finding>,
) -> Result<T, Finding> {
    let (mut last, mut quiet) = (see(stage)?, 0);
    for _ in 0..RESTS_WITHIN {
        stage.pass()?;
        let now = see(stage)?;
        quiet = if idle(stage, &now, &last)? { quiet + 1 } else { 0 };
        last = now;
        if quiet == RESTS {
            return Ok(last);
        }
    }
    Err(format!("{thread} does not come to rest"))
}

/// Runs a body under knobs of its choice; afterwards they are what they were, and no
/// program is left, whatever the body found. A knob that the kernel doesn't have stays out.
fn under<S: KernelStage, T>(
    stage: &mut S,
    knobs: &[(Knob, String)],
    body: impl FnOnce(&mut S) -> Result<T, Finding>,
) -> Result<T, Finding> {
    let mut before = Vec::new();
    let mut set = || -> Result<(), Finding> {
        for (knob, text) in knobs {
            let Some(path) = knob.path(stage.version()) else { continue };
            let old = stage.read(&path)?;
            stage.write(&path, text)?;
            before.push((path, text::chosen(&old).to_owned()));
        }
        Ok(())
    };
    let ready = set();
    let found = ready.and_then(|()| body(stage));
    stage.end_all();
    let mut restored = Ok(());
    for (path, old) in before.iter().rev() {
        // All of them are tried; the first refusal is told.
        restored = restored.and(stage.write(path, old));
    }
    let found = found?;
    restored?;
    Ok(found)
}

/// Counters of now; what happened since is [`Counters::since`].
struct Counters(BTreeMap<String, u64>);

impl Counters {
    fn of<S: KernelStage>(stage: &mut S) -> Result<Self, Finding> {
        Ok(Self(vmstat(&stage.read("/proc/vmstat")?)))
    }
    /// How much a counter has grown; 0 for one that this kernel doesn't have.
    fn grown(&self, before: &Self, name: &str) -> u64 {
        let of = |c: &Self| c.0.get(name).copied().unwrap_or(0);
        of(self).saturating_sub(of(before))
    }
    /// The same for all whose name begins so.
    fn grown_all(&self, before: &Self, prefix: &str) -> u64 {
        let mine = self.0.keys().filter(|name| name.starts_with(prefix));
        mine.map(|name| self.grown(before, name)).sum()
    }
    /// What both bodies count.
    fn since(&self, before: &Self) -> Figures {
        let one = |name| self.grown(before, name);
        Figures::from([
            ("pte_updates", one("numa_pte_updates")),
            ("hint_faults", one("numa_hint_faults")),
            ("pages_migrated", one("numa_pages_migrated")),
            ("promoted", one("pgpromote_success")),
            ("demoted_kswapd", one("pgdemote_kswapd")),
            ("demoted_direct", one("pgdemote_direct")),
            ("direct_scans", one("pgscan_direct")),
            ("stalls", self.grown_all(before, "allocstall")),
        ])
    }
}
