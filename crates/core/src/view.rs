//! What is where, and how hot: a look that decides nothing.
//!
//! ```text
//! machine ──Seen──▶ handle ──▶ one record per process ──▶ rows, once a period
//!     ▲                        CPU time · pages by node · what its source tells
//!     └──Look── ask, before rows: on which nodes is what was accessed?
//! ```
//!
//! Like the engine it has no clock and knows no machine: each call says what time it is,
//! so that a simulated machine's rows are made by the same code. What nobody told is
//! `None`, never a guess.
//!
//! | source     | accesses a second                              | touched pages     | they by node | local accesses |
//! |------------|------------------------------------------------|-------------------|--------------|----------------|
//! | DAMON      | pages · accessed / (checks · every), mean of its aggregations: at least | union of regions, at most what is resident | by asking | by asking |
//! | hint fault | mean of 1 / after over faults · touched pages: at least | pages that faulted | told | faults with CPU and page on one node |
//! | PMU        | samples · period / time                        | pages sampled     | by asking    | unknown, but with all pages on one node |
//! | residency  | unknown                                        | unknown           | unknown      | unknown        |
//!
//! Worked example: a process ran 1.5 s in a period of 5 s, and its CPUs are of node 0;
//! 3000 of its 4000 pages are there. Its share is 300 thousandths of one CPU, 750
//! thousandths of its memory are local. DAMON told one region of 1000 pages, accessed in
//! 20 of 20 checks of 5 ms: at least 200 · 1000 accesses a second.
//!
//! Source: specs/observe.md#view.

mod pages;
mod places;
mod process;
#[cfg(test)]
mod tests;

use crate::engine::living::Living;
use crate::policy::order::Act;
use crate::policy::seen::{Seen, Shows, Source, Span, Who};
use crate::tiering::tiers::Tiers;
use crate::topology::Hardware;
use crate::units::{NodeId, Pages, Picos};
use process::{Observed, add};
use std::collections::BTreeMap;

/// What is known of a process about one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Which.
    pub who: Who,
    /// What people call it; empty where nobody said.
    pub name: String,
    /// Processor time over time, in thousandths of one CPU, between the last words of this
    /// period and of the one before; `None` with one word only.
    pub cpu: Option<u32>,
    /// Node of the CPUs on which its threads ran last, if it is one.
    pub node: Option<NodeId>,
    /// Pages in memory.
    pub resident: Pages,
    /// They by node: their sum is `resident`. Empty where nothing told it.
    pub by_node: BTreeMap<NodeId, Pages>,
    /// They by the kernel's tier, the smallest the fastest; the same sum. Empty as `by_node`.
    pub by_tier: BTreeMap<u64, Pages>,
    /// Share of its memory on the node where it runs, in thousandths, rounded down.
    pub local: Option<u32>,
    /// What is accessed; `None` where no source told anything in this period.
    pub heat: Option<Heat>,
    /// Time since the source's last word about it; since the last look at it where there
    /// is no source of heat.
    pub age: Picos,
    /// Whether it ended in this period: its last row.
    pub gone: bool,
}

/// What was accessed in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// Accesses a second of the whole process, in thousandths.
    pub rate: u64,
    /// Whether there were at least so many, and maybe more.
    pub at_least: bool,
    /// Pages accessed at all, as far as it was told.
    pub touched: Pages,
    /// They by node, where the source or an answer told: see [`View::ask`]. Their sum is
    /// `touched`.
    pub touched_by_node: Option<BTreeMap<NodeId, Pages>>,
    /// By how much one of these may be off where only pieces were looked at: in 19 of 20
    /// cases by no more. 0 where all of it was; `None` as they.
    pub touched_error: Option<Pages>,
    /// Pages accessed at [`Settings::hot`] or above; `None` where the source tells no rate
    /// of a page.
    pub hot: Option<Pages>,
    /// They by node, as above.
    pub hot_by_node: Option<BTreeMap<NodeId, Pages>>,
    /// By how much one of these may be off, as above.
    pub hot_error: Option<Pages>,
    /// Share of the accesses told that were to memory of the CPU's node, in thousandths.
    pub local: Option<u32>,
}

/// Pages by node as pages by tier, with the same sum.
///
/// * `tiers` – of the nodes; one without tier counts to the fastest.
pub fn by_tier(
    by_node: &BTreeMap<NodeId, Pages>,
    tiers: &BTreeMap<NodeId, u64>,
) -> BTreeMap<u64, Pages> {
    let first = tiers.values().min().copied().unwrap_or(0);
    let mut out = BTreeMap::new();
    for (node, pages) in by_node {
        let sum = out.entry(*tiers.get(node).unwrap_or(&first)).or_default();
        *sum = add(*sum, *pages);
    }
    out
}

/// What counts as hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Accesses per page and second from which on a page is hot, in thousandths.
    pub hot: u64,
}

impl Default for Settings {
    /// Ten accesses a second: one in each of DAMON's aggregations.
    fn default() -> Self {
        Self { hot: 10_000 }
    }
}

/// What was counted from the beginning on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Processes.
    pub processes: u64,
    /// Those of them that ended.
    pub ended: u64,
    /// Events that the source could not deliver, at least.
    pub lost: u64,
    /// Times that the source fell silent.
    pub stale: u64,
    /// Words about processes that are not there, and answers that nobody asked for.
    pub unknown: u64,
}

/// The fold.
#[derive(Clone, Debug)]
pub struct View {
    settings: Settings,
    source: Source,
    /// Tier by node with memory.
    tiers: BTreeMap<NodeId, u64>,
    now: Picos,
    /// When the period began.
    since: Option<Picos>,
    processes: BTreeMap<Who, Observed>,
    living: Living,
    silent: Option<Picos>,
    totals: Totals,
}

impl View {
    /// A view of a machine.
    ///
    /// * `source` – where heat comes from.
    /// * `tiers` – of its nodes; a node without one counts to the fastest, as for the kernel.
    pub fn new(settings: Settings, source: Source, machine: &Hardware, tiers: &Tiers) -> Self {
        let first = tiers.iter().next().map_or(0, |(tier, _)| tier);
        let with_memory = machine.nodes.iter().filter(|n| n.managed().0 > 0);
        Self {
            settings,
            source,
            tiers: with_memory.map(|n| (n.id, tiers.tier(n.id).unwrap_or(first))).collect(),
            now: Picos::ZERO,
            since: None,
            processes: BTreeMap::new(),
            living: Living::default(),
            silent: None,
            totals: Totals::default(),
        }
    }

    /// Takes in what was seen, oldest first; may be empty.
    ///
    /// * `now` – the machine's clock; a time before the last one counts as that.
    pub fn handle(&mut self, now: Picos, seen: &[Seen]) {
        self.now = self.now.max(now);
        self.since.get_or_insert(self.now);
        for s in seen {
            self.see(s);
        }
    }

    /// What people call a process; as often as that changes. Nothing for one that is not
    /// there.
    pub fn name(&mut self, who: Who, name: &str) {
        if let Some(p) = self.processes.get_mut(&who).filter(|p| p.name != name) {
            name.clone_into(&mut p.name);
        }
    }

    /// What to ask of the machine before [`Self::rows`]: on which nodes what was accessed
    /// in this period is, where the source did not tell that itself. One order per process
    /// with memory on several nodes; the answers go to [`Self::handle`]. Rows without them
    /// say so.
    ///
    /// * `most` – pages asked for, about; more where more regions were told of. What is
    ///   longer is looked at in pieces that stand for the rest.
    pub fn ask(&mut self, most: Pages) -> Vec<Act> {
        if !matches!(self.source.shows(), Shows::Regions | Shows::Samples) || self.tiers.len() < 2 {
            return Vec::new();
        }
        let open: Vec<(Who, u64)> =
            self.processes.iter_mut().map(|(who, p)| (*who, p.open(self.source))).collect();
        let all = open.iter().map(|(_, n)| u128::from(*n)).sum::<u128>().max(1);
        let mut out = Vec::new();
        for (who, pages) in open.into_iter().filter(|(_, n)| *n > 0) {
            let share = (u128::from(most.0) * u128::from(pages)).div_ceil(all);
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            let spans = self.processes.get_mut(&who).map_or(Vec::new(), |p| p.ask(share));
            out.push(Act::Look { who, spans });
        }
        out
    }

    /// One row per process, in the order of their PIDs, about the time since the last call;
    /// those that ended in it a last time. A new period begins.
    ///
    /// * `now` – as in [`Self::handle`].
    pub fn rows(&mut self, now: Picos) -> Vec<Usage> {
        self.now = self.now.max(now);
        let time = self.now.saturating_sub(self.since.unwrap_or(self.now));
        let (now, source, hot, tiers) = (self.now, self.source, self.settings.hot, &self.tiers);
        let row = |(who, p): (&Who, &mut Observed)| p.row(*who, now, time, source, hot, tiers);
        let rows = self.processes.iter_mut().map(row).collect();
        self.processes.retain(|_, p| !p.gone);
        self.since = Some(self.now);
        rows
    }

    /// The processes that live.
    pub fn len(&self) -> usize {
        self.living.len()
    }
    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.living.len() == 0
    }
    /// What was counted so far.
    pub const fn totals(&self) -> Totals {
        self.totals
    }
    /// Since when the source is silent, if it is.
    pub const fn silent(&self) -> Option<Picos> {
        self.silent
    }

    fn see(&mut self, seen: &Seen) {
        let (now, hot) = (self.now, self.settings.hot);
        match *seen {
            Seen::Task { who, ran, node, resident } => self.see_task(who, ran, node, resident),
            Seen::Gone { who } => self.end(who),
            Seen::Region { who, span, accessed, checks, every, .. } => {
                self.told(who, |p| p.region(now, span, accessed, checks, every, hot));
            }
            Seen::Fault { who, vpn, from, on, after } => {
                self.told(who, |p| p.fault(now, vpn, from, on, after, hot));
            }
            Seen::Sample { who, vpn, from, period } => {
                self.told(who, |p| p.sample(now, vpn, from, period));
            }
            Seen::Resident { who, span, on, pages } => {
                let p = self.processes.get_mut(&who).filter(|p| !p.gone);
                let known = p.is_some_and(|p| match span {
                    Span::WHOLE => {
                        p.census(on, pages);
                        true
                    }
                    span => p.place(span, on, pages),
                });
                self.totals.unknown += u64::from(!known);
            }
            Seen::Lost { events } => self.totals.lost = self.totals.lost.saturating_add(events),
            Seen::Stale { since } => {
                self.totals.stale += 1;
                self.silent.get_or_insert(since);
            }
            // Huge pages, the nodes' room, loads under way, and what became of orders: not asked for here.
            Seen::Huge { .. } | Seen::Node { .. } | Seen::Loads { .. } | Seen::Done { .. } => {}
        }
    }

    /// A word of the source of heat.
    fn told(&mut self, who: Who, f: impl FnOnce(&mut Observed)) {
        match self.processes.get_mut(&who).filter(|p| !p.gone) {
            Some(p) => {
                f(p);
                self.silent = None;
            }
            None => self.totals.unknown += 1,
        }
    }

    fn see_task(&mut self, who: Who, ran: Picos, node: Option<NodeId>, resident: Pages) {
        let Some(before) = self.living.see(who) else { return self.totals.unknown += 1 };
        if let Some(before) = before {
            self.end(before);
        }
        let (now, nr) = (self.now, &mut self.totals.processes);
        let p = self.processes.entry(who).or_insert_with(|| {
            *nr += 1;
            Observed::new(now, ran)
        });
        p.task(now, ran, node, resident);
    }

    fn end(&mut self, who: Who) {
        self.living.end(who);
        let Some(p) = self.processes.get_mut(&who).filter(|p| !p.gone) else { return };
        p.gone = true;
        self.totals.ended += 1;
    }
}
