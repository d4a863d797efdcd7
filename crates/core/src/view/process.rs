//! What was told of one process.

use super::pages::{Marks, Spans};
use super::places::{Places, share, split};
use super::{Heat, Usage, by_tier};
use crate::engine::heat::{count_rate, fault_rate, region_rate};
use crate::policy::seen::{Shows, Source, Span, Who};
use crate::units::{NodeId, Pages, Picos};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) gone: bool,
    /// When its processor time was told, and what it was: before this period, and now.
    before: (Picos, Picos),
    last: (Picos, Picos),
    node: Option<NodeId>,
    resident: Pages,
    on: BTreeMap<NodeId, Pages>,
    /// Whether the next census replaces the one that is known.
    anew: bool,
    /// When its source spoke last, or it was first seen.
    told: Picos,
    heard: Heard,
}

/// What its source told in this period.
#[derive(Clone, Debug, Default)]
struct Heard {
    words: u64,
    /// Regions: aggregations, and where the last region ended.
    passes: u64,
    at: u64,
    spans: Spans,
    /// Accesses a second of all regions in thousandths, and pages of the hot ones, over all
    /// aggregations.
    rates: u128,
    hot: u128,
    /// Whether a region was accessed in every check.
    full: bool,
    /// Regions of the last aggregation, or the pages sampled, and where they are.
    places: Places,
    marks: Marks,
    hot_marks: Marks,
    /// Faults with and without a time, local ones, and whether one had a time at all.
    faults: u64,
    untimed: u64,
    local: u64,
    /// Accesses that samples stand for, by node of the CPU.
    accesses: BTreeMap<NodeId, u64>,
}

impl Observed {
    pub(super) fn new(now: Picos, ran: Picos) -> Self {
        let last = (now, ran);
        Self { before: last, last, anew: true, told: now, ..Self::default() }
    }

    pub(super) fn task(&mut self, now: Picos, ran: Picos, node: Option<NodeId>, resident: Pages) {
        // Processor time that falls is a reading in the middle of a thread's end.
        self.last = (now, self.last.1.max(ran));
        self.node = node;
        self.resident = resident;
        self.anew = true;
    }

    pub(super) fn census(&mut self, on: NodeId, pages: Pages) {
        // The same node twice: the next one has begun.
        if self.anew || self.on.contains_key(&on) {
            self.on.clear();
            self.anew = false;
        }
        self.on.insert(on, pages);
    }

    pub(super) fn region(
        &mut self,
        now: Picos,
        span: Span,
        accessed: u32,
        checks: u32,
        every: Picos,
        hot: u64,
    ) {
        let Some(rate) = region_rate(accessed, checks, every) else { return };
        if span.start >= span.end {
            return;
        }
        self.told = now;
        let h = &mut self.heard;
        h.words += 1;
        // Addresses rise within an aggregation.
        if h.passes == 0 || span.start < h.at {
            h.passes += 1;
            h.places.begin();
        }
        h.at = span.end;
        h.places.add(span, rate);
        let pages = u128::from(span.pages().0);
        h.rates = h.rates.saturating_add(u128::from(rate) * pages);
        if rate >= hot {
            h.hot = h.hot.saturating_add(pages);
        }
        h.full |= accessed >= checks;
        if accessed > 0 {
            h.spans.add(span);
        }
    }

    pub(super) fn fault(
        &mut self,
        now: Picos,
        vpn: u64,
        from: NodeId,
        on: NodeId,
        after: Option<Picos>,
        hot: u64,
    ) {
        self.told = now;
        let h = &mut self.heard;
        h.words += 1;
        h.local += u64::from(from == on);
        h.marks.mark(vpn, Some(on));
        match after.map(fault_rate) {
            Some(rate) => {
                h.faults += 1;
                h.rates = h.rates.saturating_add(rate.into());
                if rate >= hot {
                    h.hot_marks.mark(vpn, Some(on));
                }
            }
            None => h.untimed += 1,
        }
    }

    pub(super) fn sample(&mut self, now: Picos, vpn: u64, from: NodeId, period: u64) {
        self.told = now;
        let h = &mut self.heard;
        h.words += 1;
        h.marks.mark(vpn, None);
        let sum = h.accesses.entry(from).or_default();
        *sum = sum.saturating_add(period);
    }

    /// Pages whose place is to be asked for: none where all of it is on one node, or the
    /// source tells nodes itself.
    pub(super) fn open(&mut self, source: Source) -> u64 {
        if self.gone || self.on.values().filter(|p| p.0 > 0).count() == 1 {
            return 0;
        }
        if source.shows() == Shows::Samples {
            self.heard.places.begin();
            for span in self.heard.marks.runs() {
                self.heard.places.add(span, 1);
            }
        }
        self.heard.places.pages()
    }

    /// Which of them, about `most`.
    pub(super) fn ask(&mut self, most: u64) -> Vec<Span> {
        self.heard.places.ask(most)
    }

    /// Whether that was asked for.
    pub(super) fn place(&mut self, span: Span, on: NodeId, pages: Pages) -> bool {
        self.heard.places.answer(span, on, pages)
    }

    /// The row of a period of that length; the next one begins.
    pub(super) fn row(
        &mut self,
        who: Who,
        now: Picos,
        time: Picos,
        source: Source,
        hot: u64,
        tiers: &BTreeMap<NodeId, u64>,
    ) -> Usage {
        let by_node = self.by_node(tiers);
        let resident = match by_node.is_empty() {
            true => self.resident,
            false => by_node.values().copied().fold(Pages::ZERO, add),
        };
        let here = |node| by_node.get(&node).map_or(0, |p| p.0);
        let local = self.node.and_then(|node| permille(here(node), resident.0));
        let local = local.filter(|_| !by_node.is_empty());
        let heat = self.heard.heat(source, time, hot, resident, &by_node, self.node);
        let word = if source.shows() == Shows::Nothing { self.last.0 } else { self.told };
        let row = Usage {
            who,
            name: self.name.clone(),
            cpu: self.cpu(),
            node: self.node,
            resident,
            local,
            heat,
            by_tier: by_tier(&by_node, tiers),
            by_node,
            age: now.saturating_sub(word),
            gone: self.gone,
        };
        self.before = self.last;
        self.heard = Heard::default();
        row
    }

    /// Where nothing told it and only one node has memory, all is there.
    fn by_node(&self, tiers: &BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, Pages> {
        let mut nodes = tiers.keys();
        match (nodes.next(), nodes.next()) {
            (Some(only), None) if self.on.is_empty() => BTreeMap::from([(*only, self.resident)]),
            _ => self.on.iter().filter(|(_, p)| p.0 > 0).map(|(n, p)| (*n, *p)).collect(),
        }
    }

    fn cpu(&self) -> Option<u32> {
        let time = self.last.0.saturating_sub(self.before.0);
        let ran = self.last.1.saturating_sub(self.before.1);
        permille(ran.0, time.0)
    }
}

impl Heard {
    fn heat(
        &self,
        source: Source,
        time: Picos,
        hot: u64,
        resident: Pages,
        by_node: &BTreeMap<NodeId, Pages>,
        node: Option<NodeId>,
    ) -> Option<Heat> {
        if self.words == 0 {
            return None;
        }
        let only = match by_node.len() {
            1 => by_node.keys().next().copied(),
            _ => None,
        };
        // By the answers, where there was something to ask.
        let shares = |asked| only.map_or(asked, |n| BTreeMap::from([(n, 1)]));
        let split = |pages, rate| split(pages, &shares(self.places.at_least(rate)));
        let error = |pages, rate| match only {
            Some(_) => Pages::ZERO,
            None => self.places.error(pages, rate),
        };
        match source.shows() {
            Shows::Regions => {
                let passes = u128::from(self.passes.max(1));
                let touched = self.spans.pages().min(resident);
                let very = Pages(narrow(self.hot / passes)).min(resident);
                let (on, very_on) = (split(touched, 1), split(very, hot));
                let accesses = shares(self.places.accesses());
                let at = node.filter(|_| !accesses.is_empty());
                Some(Heat {
                    rate: narrow(self.rates / passes),
                    at_least: self.full,
                    touched,
                    touched_error: on.as_ref().map(|_| error(touched, 1)),
                    touched_by_node: on,
                    hot: Some(very),
                    hot_error: very_on.as_ref().map(|_| error(very, hot)),
                    hot_by_node: very_on,
                    local: at.map(|at| share(1000, at, &accesses) as u32),
                })
            }
            Shows::Faults => {
                let touched = self.marks.pages();
                let words = self.faults + self.untimed;
                let on = self.marks.by_node();
                let very_on = self.hot_marks.by_node().filter(|_| self.faults > 0);
                // One access in this period, where no time was told.
                let untimed = u128::from(self.untimed) * u128::from(count_rate(1000, 1, time));
                let mean = self.rates.saturating_add(untimed) / u128::from(words.max(1));
                Some(Heat {
                    rate: narrow(mean.saturating_mul(u128::from(touched.0))),
                    at_least: true,
                    touched,
                    touched_error: on.as_ref().map(|_| Pages::ZERO),
                    touched_by_node: on,
                    hot: (self.faults > 0).then(|| self.hot_marks.pages()),
                    hot_error: very_on.as_ref().map(|_| Pages::ZERO),
                    hot_by_node: very_on,
                    local: permille(self.local, words),
                })
            }
            Shows::Samples => {
                let all = self.accesses.values().fold(0u64, |sum, n| sum.saturating_add(*n));
                let from = |n| self.accesses.get(&n).copied().unwrap_or(0);
                let touched = self.marks.pages();
                let on = split(touched, 1);
                Some(Heat {
                    rate: count_rate(all.saturating_mul(1000), 1, time),
                    at_least: false,
                    touched,
                    touched_error: on.as_ref().map(|_| error(touched, 1)),
                    touched_by_node: on,
                    hot: None,
                    hot_error: None,
                    hot_by_node: None,
                    local: only.and_then(|on| permille(from(on), all)),
                })
            }
            Shows::Nothing => None,
        }
    }
}

/// Thousandths, rounded down; `None` of nothing.
fn permille(part: u64, whole: u64) -> Option<u32> {
    let share = u128::from(part) * 1000 / u128::from(std::num::NonZeroU64::new(whole)?.get());
    Some(u32::try_from(share).unwrap_or(u32::MAX))
}

fn narrow(v: u128) -> u64 {
    u64::try_from(v).unwrap_or(u64::MAX)
}

pub(super) fn add(a: Pages, b: Pages) -> Pages {
    Pages(a.0.saturating_add(b.0))
}
