//! What should be where: once in an interval, over all that is known.
//!
//! Candidates for a fast node are sorted by what a page of theirs saves, hottest
//! first, and its residents by what they would lose, coldest first. As many
//! candidates are planned as fit above the mark; after that each must displace the
//! coldest resident and be worth the difference and both moves:
//!
//! ```text
//! candidates  900 700 400 | 90  60   5        saving per page within the horizon
//! room           fits 3   |
//! residents                 0   10  20        loss per page; two moves cost 20
//! net                       70  30  -35       so five go up, two go down
//! ```
//!
//! The heat of the last one taken is the threshold: it follows from what fits, and
//! nobody sets it.
//!
//! Of a chunk whose pages are told apart, pages that were observed about as often and are on one node are a
//! candidate or a resident by themselves.

use super::Engine;
use super::along::Along;
use super::estimate::{Estimate, ONE, RowHeat};
use super::heat::{Cell, Rate};
use super::home::Elsewhere;
use super::lower::Shares;
use super::nodes::{Nodes, saving};
use super::page_set::PageSet;
use super::pairs::CHUNK;
use super::place::{OnNodes, Place};
use super::plan::{Candidate, LookPiece, Near, Part, Piece, Plan, Round, times};
use super::process::Tracked;
use crate::policy::order::{Evidence, Reason};
use crate::policy::seen::Shows;
use crate::policy::span::{Span, Who};
use crate::policy::{Verdict, Why};
use crate::units::{NodeId, Picos};
use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// So many samples of a process tell silence from chance before a short half-life is over: a
/// tenth of its memory that is as warm as the rest is missed by all of them once in 37,000 times.
const TELLING: u128 = 100;

/// A stretch that could make room.
struct Resident {
    who: Who,
    span: Span,
    /// Which pages of it, where they are told apart.
    set: Option<Box<PageSet>>,
    pages: u64,
    /// How many pages of it move as one.
    unit: u64,
    /// Its heat, as far as it is waited for.
    waited: Rate,
    /// What one page loses within the horizon.
    each: u128,
}

impl Resident {
    fn order(&self) -> impl Ord + use<> {
        (self.each, self.who, self.span)
    }
}

/// The greatest is the one that loses least, and so goes first.
impl Ord for Resident {
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}
impl PartialOrd for Resident {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Eq for Resident {}
impl PartialEq for Resident {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

/// What is judged at once: a stretch, a part of one, or pages of one that are told apart.
#[derive(Clone, Copy)]
struct Judged<'a> {
    span: Span,
    set: Option<&'a PageSet>,
    place: Option<&'a Place>,
    heat: Rate,
    /// Where would be looked to learn where it is.
    look: Span,
}

impl Judged<'_> {
    fn pages(&self) -> u64 {
        self.set.map_or(self.span.pages().0, PageSet::len)
    }
}

/// A stretch of unknown place that might make room.
struct Hidden {
    look: LookPiece,
    /// Its heat, as far as it is waited for.
    waited: Rate,
    /// It was never found.
    never: bool,
}

/// What the machine's nodes make of memory on one of them that CPUs of one use: the same for all
/// stretches of a decision.
#[derive(Clone, Copy)]
struct View {
    /// The fast node for these CPUs, and what an access saves there.
    gain: Option<(NodeId, u64)>,
    /// It is on a fast node.
    is_top: bool,
    /// What an access loses on the node below that has room.
    loss: Option<u64>,
}

/// The views that were asked for in a decision; there are few.
#[derive(Default)]
struct Views {
    on: Vec<(Option<NodeId>, NodeId, View)>,
    /// By CPU: what an access may save at most.
    most: Vec<(NodeId, u64)>,
}

impl Views {
    fn on(&mut self, nodes: &Nodes, cpu: Option<NodeId>, on: NodeId) -> View {
        if let Some((.., view)) = self.on.iter().find(|(c, n, _)| (*c, *n) == (cpu, on)) {
            return *view;
        }
        let home = cpu.and_then(|c| Some((c, nodes.fast_for(c)?)));
        let view = View {
            gain: home.and_then(|(c, to)| Some((to, nodes.gain(c, on, to)?))),
            is_top: nodes.is_top(on),
            loss: nodes.down(on, 1).map(|(below, _)| nodes.loss(cpu, on, below)),
        };
        self.on.push((cpu, on, view));
        view
    }

    fn most(&mut self, nodes: &Nodes, cpu: NodeId, home: NodeId) -> u64 {
        if let Some((_, most)) = self.most.iter().find(|(c, _)| *c == cpu) {
            return *most;
        }
        let most = nodes.most_gain(cpu, home).max(nodes.relief(cpu, home));
        self.most.push((cpu, most));
        most
    }
}

/// What huge pages would have for heat, if all of a process were in such: the heat of all pages of
/// a chunk, added up.
///
/// Source: specs/engine.md#along.
struct Chunks(BTreeMap<u64, u128>);

impl Chunks {
    /// Of stretches with their heat. Of long ones only the ends share a chunk with others.
    fn of(stretches: impl Iterator<Item = (Span, Rate)>) -> Self {
        let mut all = BTreeMap::new();
        for (span, heat) in stretches {
            for chunk in Self::ends(span) {
                let start = span.start.max(chunk * CHUNK);
                let pages = span.end.min((chunk + 1).saturating_mul(CHUNK)) - start;
                *all.entry(chunk).or_default() += u128::from(heat) * u128::from(pages);
            }
        }
        Self(all)
    }
    fn ends(span: Span) -> impl Iterator<Item = u64> {
        let (first, last) = (span.start / CHUNK, span.end.saturating_sub(1) / CHUNK);
        std::iter::once(first).chain((last > first).then_some(last))
    }
    /// What a page of the chunks at its ends has in the mean, whichever has more.
    fn heat(&self, span: Span) -> Rate {
        let sums = Self::ends(span).filter_map(|chunk| self.0.get(&chunk));
        let mean = sums.max().map_or(0, |sum| sum / u128::from(CHUNK));
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

#[derive(Default)]
struct Gathered {
    views: Views,
    candidates: BTreeMap<NodeId, Vec<Candidate>>,
    residents: BTreeMap<NodeId, Vec<Resident>>,
    looks: Vec<LookPiece>,
    hidden: Vec<Hidden>,
    /// Whose places a census is going to tell.
    counted: BTreeSet<Who>,
    /// Of the process that is judged.
    near: Near,
    /// The mean heat of what may go down with the stretch that is judged.
    along: Rate,
    /// Of fast nodes whose load is told, who serves how much of the heat.
    shares: BTreeMap<NodeId, Shares>,
    /// One after the other, processes share what it is done in.
    estimate: Estimate,
}

impl Engine {
    /// Decides anew what should be where; what the last decision had left is void. Returns
    /// what it cost.
    ///
    /// Source: specs/engine.md#decision.
    pub(super) fn decide(&mut self) -> Picos {
        self.ledger.decisions += 1;
        let censuses = std::mem::take(&mut self.plan.censuses);
        self.plan = Plan { censuses, ..Plan::default() };
        let spent = self.fold();
        let shares = self.shares_under_load();
        let estimate = std::mem::take(&mut self.estimate);
        let counted = self.counted_soon();
        let mut all = Gathered { counted, shares, estimate, ..Gathered::default() };
        let processes = std::mem::take(&mut self.processes);
        for (&who, p) in &processes {
            all.near = Near::default();
            let sums = self.judge_process(who, p, &mut all);
            if let Some(bring) = self.bring(who, p, &sums, all.near, &processes) {
                // What is near to its threads now is not near to them then.
                let verdict = Verdict::Stay { why: Why::ThreadsCome };
                for list in all.candidates.values_mut() {
                    let its = list.iter().filter(|c| c.piece.who == who);
                    self.ledger.judge(verdict, its.map(|c| c.piece.pages).sum());
                    list.retain(|c| c.piece.who != who);
                }
                self.plan.brings.push(bring);
            }
        }
        let fast = self.nodes.fast_nodes();
        let (mut short, mut left_out) = (false, false);
        // Memory that was never looked for may be the better choice than a resident
        // that is in use. One that is not may go at once: looking for all of a large
        // process takes minutes. And an eighth of what is known changes little.
        let never = || all.hidden.iter().filter(|h| h.never);
        let unseen: u128 = never().map(|h| u128::from(h.look.span.pages().0)).sum();
        let known: u128 = all.residents.values().flatten().map(|r| u128::from(r.pages)).sum();
        let hidden = never().map(|h| h.waited).min().filter(|_| unseen > known / 8);
        let cost = u128::from(self.per_page);
        for residents in all.residents.values_mut() {
            residents.retain(|r| r.each <= cost || hidden.is_none_or(|h| r.waited <= h));
        }
        for node in fast {
            let mut candidates = all.candidates.remove(&node).unwrap_or_default();
            if let Some(shares) = all.shares.remove(&node) {
                self.under_load(node, shares, &mut candidates);
            }
            let residents = all.residents.remove(&node).unwrap_or_default();
            let want = self.plan_node(node, candidates, residents);
            short |= want.residents;
            left_out |= want.room;
        }
        let mut looks = by_what_they_tell(std::mem::take(&mut all.looks), left_out);
        if short && self.can_look() {
            all.hidden.sort_by_key(|h| (h.waited, h.look.who, h.look.span));
            looks.extend(all.hidden.into_iter().map(|h| h.look));
            for (&who, p) in &processes {
                if !all.counted.contains(&who) {
                    self.explore(who, p, &mut looks);
                }
            }
        }
        self.plan.looks = looks.into();
        self.processes = processes;
        self.estimate = all.estimate;
        spent
    }

    /// Closes the window of samples and takes alike neighbours together. Returns what the
    /// decision costs by their number.
    fn fold(&mut self) -> Picos {
        let (now, scales) = (self.now, self.settings.scales());
        let (limit, source, silent) = (self.limit(), self.source, self.silent);
        let mut spans = 0;
        self.stretches = 0;
        for p in self.processes.values_mut().filter(|p| p.watched.is_some()) {
            spans += p.map.weight() as u64;
            match source.shows() {
                // A source that has fallen silent says nothing by it; heat decays below.
                Shows::Samples if !silent => {
                    if p.census.is_none() {
                        p.map.fill(p.resident.0, now);
                    }
                    let watched = p.watched.unwrap_or(now);
                    p.map.fold_samples(p.folded, watched, now, &scales);
                }
                Shows::Faults => p.map.fold_faults(now, self.settings.interval, &scales),
                Shows::Samples | Shows::Regions | Shows::Nothing => {}
            }
            p.learn_keeps(now, self.settings.horizon, self.per_page);
            p.folded = now;
            if p.along == Along::Together {
                p.map.join_chunks(&scales);
            }
            if p.map.tidy(limit, now, &scales) {
                self.ledger.coarsened += 1;
            }
            self.stretches += p.map.weight() as u64;
        }
        self.ledger.stretches = self.stretches;
        let cost = self.deciding_costs(spans);
        if self.savings_pay(Picos(cost)) {
            self.purse.take(cost);
        } else {
            self.spend(cost);
        }
        self.ledger.deciding = Picos(self.ledger.deciding.0.saturating_add(cost));
        Picos(cost)
    }

    /// Returns what its accesses would save with its threads elsewhere.
    fn judge_process(&mut self, who: Who, p: &Tracked, all: &mut Gathered) -> Elsewhere {
        let mut sums = Elsewhere::new();
        let stay = |why| Verdict::Stay { why };
        if p.watched.is_none() {
            self.ledger.judge(stay(Why::SlowStart), p.resident.0);
            return sums;
        }
        if self.lack(Evidence::Heat) {
            self.ledger.judge(Verdict::Unknown { lacks: Evidence::Heat }, p.resident.0);
            return sums;
        }
        if self.silent {
            self.ledger.judge(stay(Why::Stale), p.resident.0);
            return sums;
        }
        let scales = self.settings.scales();
        let mut estimate = std::mem::take(&mut all.estimate);
        let told = estimate.heats(&p.map, p.apart(), self.now, &scales);
        for shares in all.shares.values_mut() {
            shares.refused = p.map.iter().any(|(_, cell)| cell.trouble.forbidden);
        }
        let away = self.may_go_home(p);
        let unsure = p.apart().is_some() && !p.along.is_alone();
        // As it was observed: in the mean of a chunk it does not matter which of its pages it was.
        let seen = p.map.iter().map(|(s, c)| (s, scales.heat(c, self.now)));
        let chunks = unsure.then(|| Chunks::of(seen));
        for ((span, cell), (heat, rows)) in p.map.iter().zip(told.by_stretch()) {
            all.along = chunks.as_ref().map_or(0, |c| c.heat(span));
            if let Some(from) = away {
                self.elsewhere(from, p, (cell, heat), &mut sums);
            }
            if !rows.is_empty() {
                rows.iter().for_each(|row| self.judge_row(who, p, (span, cell), row, all));
                continue;
            }
            let place = cell.place.as_ref();
            if !p.is_busy(span) {
                let it = Judged { span, set: None, place, heat, look: span };
                self.judge_idle(who, p, it, cell, all);
                continue;
            }
            // An order names a part of what may be a long stretch; the others are judged.
            let (whole, mut named) = (span.pages().0, span.pages().0);
            for part in p.idle_parts(span).into_iter().filter_map(|part| p.in_units(part, span)) {
                let pages = part.pages().0;
                named -= pages;
                let place = place.map(|place| place.share(pages, whole));
                let place = place.as_ref();
                let it = Judged { span: part, set: None, place, heat, look: part };
                self.judge_idle(who, p, it, cell, all);
            }
            self.ledger.judge(stay(Why::OnItsWay), named);
        }
        all.estimate = estimate;
        sums
    }

    /// Judges pages of a chunk that are told apart.
    fn judge_row(
        &mut self,
        who: Who,
        p: &Tracked,
        (span, cell): (Span, &Cell),
        row: &RowHeat,
        all: &mut Gathered,
    ) {
        let idle = p.idle_pages(span.start / CHUNK, &row.set);
        let named = row.set.len() - idle.len();
        self.ledger.judge(Verdict::Stay { why: Why::OnItsWay }, named);
        let (Some(hull), Some(tally), Some(place)) =
            (idle.hull(span.start / CHUNK), &cell.tally, &cell.place)
        else {
            return;
        };
        let mut here = Place { at: place.at, on: OnNodes::default() };
        match row.on {
            Some(node) => here.add(node, idle.len()),
            None => {
                let (rest, nr) = tally.rest(PageSet::of(span), place);
                for (node, pages) in rest {
                    here.add(node, (pages * idle.len()).div_ceil(nr.max(1)).min(idle.len()));
                }
            }
        }
        let it =
            Judged { span: hull, set: Some(&idle), place: Some(&here), heat: row.heat, look: span };
        self.judge_idle(who, p, it, cell, all);
    }

    /// Judges what no open order names, and notes the verdict.
    fn judge_idle(
        &mut self,
        who: Who,
        p: &Tracked,
        it: Judged<'_>,
        cell: &Cell,
        all: &mut Gathered,
    ) {
        if let Some(verdict) = self.judge(who, p, it, cell, all) {
            self.ledger.judge(verdict, it.pages());
        }
    }

    /// The verdict on what no open order names; `None` where [`Self::plan_node`] has the last word.
    ///
    /// Source: specs/engine.md#decision, specs/engine.md#unknown.
    fn judge(
        &self,
        who: Who,
        p: &Tracked,
        it: Judged<'_>,
        cell: &Cell,
        all: &mut Gathered,
    ) -> Option<Verdict> {
        let Judged { span, heat, .. } = it;
        let stay = |why| Some(Verdict::Stay { why });
        let unknown = |lacks| Some(Verdict::Unknown { lacks });
        if cell.trouble.forbidden {
            return stay(Why::Forbidden);
        }
        if cell.trouble.busy > self.settings.retries {
            return stay(Why::GivenUp);
        }
        if cell.trouble.until > self.now {
            return stay(Why::Backoff);
        }
        let cpu = match cell.from {
            Some((node, _)) if !self.lack(Evidence::Cpu) => Some(node),
            _ => p.node.or_else(|| self.nodes.only_cpu()),
        };
        let horizon = self.settings.horizon;
        let home = cpu.and_then(|c| self.nodes.fast_for(c));
        let is_old = |place: &Place| {
            // What is where it should be is checked less often: it needs nothing.
            let settled = place.is_all_on(|node| Some(node) == home);
            let valid = self.settings.look_again.0.saturating_mul(if settled { 4 } else { 1 });
            self.now.saturating_sub(place.at).0 > valid
        };
        let place = match it.place {
            Some(place) if !is_old(place) || !self.can_look() => place,
            place => {
                // Would it be worth knowing?
                let most = |(c, home)| all.views.most(&self.nodes, c, home);
                let gain = p.waited.of(cpu.zip(home).map_or(0, most));
                let pages = it.look.pages().0;
                let pays = place.is_none_or(|p| p.present() > 0);
                let saves = saving(heat, gain, it.pages(), horizon);
                let look = LookPiece { who, span: it.look, saves };
                let cost = u128::from(self.per_page + self.settings.look_page.0);
                let asks = self.can_look() && !all.counted.contains(&who);
                if pays && saves > cost * u128::from(pages) {
                    if asks {
                        all.looks.push(look);
                    }
                    return unknown(Evidence::Place);
                }
                if pays && asks {
                    let waited = p.waited.of(heat);
                    all.hidden.push(Hidden { look, waited, never: place.is_none() });
                }
                return match (cpu, pays) {
                    (_, false) => stay(Why::Absent),
                    (None, _) if heat > 0 => unknown(Evidence::Cpu),
                    _ => stay(Why::NotWorthIt),
                };
            }
        };
        if place.on.is_empty() {
            return stay(Why::Absent);
        }
        let mut verdict = None;
        let (least, most) = cell.borne_out(heat);
        let most = most.max(all.along);
        let unit = p.along.unit();
        let set = || it.set.map(|set| Box::new(*set));
        for &(on, pages) in place.on.iter() {
            let fast = cpu.zip(home);
            let View { gain, is_top: top, loss } = all.views.on(&self.nodes, cpu, on);
            let is_stale = self.now.saturating_sub(cell.at) > self.settings.fresh;
            let shares = home.and_then(|home| all.shares.get_mut(&home));
            // Whether it goes down is said once all heat is known.
            let may_lower = shares.is_some_and(|s| {
                let piece = Piece {
                    who,
                    span,
                    set: set(),
                    from: on,
                    to: on,
                    pages,
                    unit,
                    saves: 0,
                    gains: 0,
                    why: Reason::Hot,
                };
                s.add(Some(on) == home, top, is_stale, (heat, p.waited.of(heat)), piece)
            });
            let lead = if top { self.lead(p, span, cell) } else { Some(ONE) };
            let each = gain.map_or(0, |(_, g)| saving(least, p.waited.of(g), 1, horizon));
            // What one side gains the other loses.
            let gains = (each * u128::from(lead.unwrap_or(ONE))) >> 32;
            let each = p.comes(gains, self.per_page);
            let worth = each > u128::from(self.per_page);
            if let Some((to, _)) = gain.filter(|_| worth) {
                let why = if top { Reason::NearItsCpus } else { Reason::Hot };
                if is_stale {
                    verdict = stay(Why::Stale);
                } else if lead.is_none() {
                    verdict = stay(Why::Unsettled);
                } else {
                    let piece = Piece {
                        who,
                        span,
                        set: set(),
                        from: on,
                        to,
                        pages,
                        unit,
                        saves: 0,
                        gains: 0,
                        why,
                    };
                    if top {
                        all.near.pages += pages;
                        all.near.saves = all.near.saves.saturating_add(times(each, pages));
                    }
                    let c = Candidate { piece, heat, each, gains };
                    all.candidates.entry(to).or_default().push(c);
                    continue;
                }
                continue;
            }
            verdict = verdict.or(match (fast, cpu) {
                _ if may_lower => None,
                (None, None) if heat > 0 => unknown(Evidence::Cpu),
                (Some((_, to)), _) if to == on => stay(Why::Home),
                _ => stay(Why::NotWorthIt),
            });
            let known_for = self.now.saturating_sub(cell.born);
            if !top || known_for < self.settings.short && !self.is_telling(p, known_for) {
                continue;
            }
            if !self.silence_is_cold(p, cell, top) {
                verdict = unknown(Evidence::Heat);
                continue;
            }
            if let Some(loss) = loss {
                let each = saving(most, p.waited.of(loss), 1, horizon);
                all.residents.entry(on).or_default().push(Resident {
                    who,
                    span,
                    set: set(),
                    pages,
                    unit,
                    waited: p.waited.of(heat),
                    each,
                });
            }
        }
        verdict
    }

    /// Whether a process was sampled so often within a time that silence in it means something.
    fn is_telling(&self, p: &Tracked, known_for: Picos) -> bool {
        if self.source.shows() != Shows::Samples {
            return false;
        }
        let watched = self.now.saturating_sub(p.watched.unwrap_or(self.now));
        let nr = u128::from(p.samples) * u128::from(known_for.0) / u128::from(watched.0.max(1));
        nr >= TELLING
    }

    /// By what part of the accesses its node leads, as 2^-32; `None` where threads have
    /// not been there long enough to move memory between fast nodes after them. Samples and
    /// faults say so themselves, by their majority.
    fn lead(&self, p: &Tracked, span: Span, cell: &Cell) -> Option<u64> {
        if self.now < p.brought.settles {
            return None;
        }
        match cell.from {
            Some(_) if !self.lack(Evidence::Cpu) => cell.lead(span.pages().0),
            _ => (self.now.saturating_sub(p.node_since) >= self.settings.long).then_some(ONE),
        }
    }

    /// Plans what goes up to a node and down from it; says what it was in want of.
    ///
    /// Source: specs/engine.md#decision, specs/engine.md#thrash.
    fn plan_node(&mut self, node: NodeId, up: Vec<Candidate>, down: Vec<Resident>) -> Want {
        if up.is_empty() {
            return Want::default();
        }
        // Twice what an interval can move: the rest is planned again then.
        let rate = u128::from(self.settings.moved_mbps.0) * u128::from(self.settings.interval.0);
        let rate = u64::try_from(rate / 1_000_000 / 4096).unwrap_or(u64::MAX);
        let most = rate.saturating_mul(2).max(1).saturating_add(self.moved.has());
        let Some(room) = self.nodes.room(node, most).filter(|_| !self.lack(Evidence::Marks)) else {
            for c in up {
                self.ledger.judge(Verdict::Unknown { lacks: Evidence::Marks }, c.piece.pages);
            }
            return Want::default();
        };
        let cost = u128::from(self.per_page);
        let mut below = self.nodes.down(node, most);
        let lost = self.nodes.shortfall(node);
        let mut left = room;
        let mut budget = most;
        let mut residents = Taker { queue: down.into(), below: below.map_or(0, |(_, n)| n) };
        // What makes up for the shortfall gains nothing by itself.
        let mut out: Vec<Piece> = Vec::new();
        let mut loss: u128 = 0;
        let mut pairs: Vec<Piece> = Vec::new();
        let mut gain: u128 = 0;
        let mut want = Want::default();
        let mut opened = lost == 0;
        let mut threshold = None;
        let queue = self.plan.up.entry(node).or_default();
        // Most are for a later decision: only those that are taken are put into their order.
        let mut up = BinaryHeap::from(up);
        while budget > 0 {
            let Some(c) = up.pop() else { break };
            let verdict = Verdict::Move { to: node, why: c.piece.why };
            let unit = c.piece.unit;
            let mut rest = Some(c.piece.part());
            let mut taken = 0;
            let direct = c.piece.pages.min(left).min(budget);
            if direct > 0 {
                let (head, tail) = c.piece.part().split(direct, unit, Round::Down);
                rest = tail;
                if let Some(head) = head {
                    let pages = head.pages;
                    left -= pages;
                    budget -= pages;
                    taken += pages;
                    let (saves, gains) = (times(c.each, pages), times(c.gains, pages));
                    queue.push_back(Piece { saves, gains, ..c.piece.clone().with(head) });
                }
            }
            let Some(rest) = rest else {
                self.ledger.judge(verdict, taken);
                threshold = Some(c.heat);
                continue;
            };
            if !opened {
                opened = true;
                for (r, n) in residents.take(lost, |_| true) {
                    loss = loss.saturating_add(times(r.each, n));
                    out.push(r.piece(node, below, n));
                }
                if residents.is_short(lost, &out) {
                    below = None;
                    residents.queue.clear();
                    want.residents = true;
                }
            }
            let most = rest.pages.min(budget);
            // An eighth hotter at least: less is what neighbours of one heat differ by.
            let taken_now = residents.take(most, |r| c.each > r.each + r.each / 8 + 2 * cost);
            let n_pairs = taken_now.iter().map(|(_, n)| *n).sum::<u64>().min(most);
            want.residents |= residents.queue.is_empty() && n_pairs < most;
            want.room |= n_pairs < most;
            if let Some(head) = rest.head(n_pairs, unit) {
                let pages = head.pages;
                for (r, n) in taken_now {
                    loss = loss.saturating_add(times(r.each, n));
                    out.push(r.piece(node, below, n));
                }
                gain = gain.saturating_add(times(c.each, pages));
                budget -= pages;
                taken += pages;
                let gains = times(c.gains, pages);
                pairs.push(Piece { gains, ..c.piece.clone().with(head) });
            } else {
                residents.put_back(taken_now);
            }
            if taken > 0 {
                threshold = Some(c.heat);
                self.ledger.judge(verdict, taken);
            }
            if taken < c.piece.pages {
                let why = if budget == 0 { Why::OverBudget } else { Why::NoRoom };
                self.ledger.judge(Verdict::Stay { why }, c.piece.pages - taken);
            }
        }
        for c in up {
            self.ledger.judge(Verdict::Stay { why: Why::OverBudget }, c.piece.pages);
        }
        if threshold.is_some() {
            self.ledger.threshold = threshold;
        }
        // All pairs and what opens the node must be worth it together; each page
        // carries its share of the net.
        let pages: u128 = out.iter().chain(&pairs).map(|p| u128::from(p.pages)).sum();
        let net = gain.saturating_sub(loss).min(u128::from(u64::MAX));
        if pages > 0 && !pairs.is_empty() && net > pages * cost {
            for p in out.iter_mut().chain(&mut pairs) {
                p.saves = net * u128::from(p.pages) / pages;
            }
            queue.extend(pairs);
            self.plan.down.insert(node, out.into());
        }
        want
    }

    /// Where cold memory may lie that no sample ever showed: beside what is known to
    /// be in memory.
    ///
    /// Source: specs/engine.md#exploring.
    fn explore(&self, who: Who, p: &Tracked, looks: &mut Vec<LookPiece>) {
        // Regions leave nothing out. Where silence is not coldness, memory that is found
        // would make no room either.
        let useful = match self.source.shows() {
            Shows::Samples => true,
            Shows::Faults => p.fast_faults.is_some(),
            Shows::Regions | Shows::Nothing => false,
        };
        // A census has told of all memory there is.
        if p.census.is_some() || p.watched.is_none() || self.lack(Evidence::Heat) || !useful {
            return;
        }
        let block = self.look_limit().min(p.look_pages().saturating_mul(64)).max(1);
        let mut before: Option<(u64, bool)> = None;
        let present = |c: &Cell| c.place.as_ref().map_or(c.short > 0, |p| p.present() > 0);
        let mut push = |span: Span| {
            if span.start < span.end && !p.is_busy(span) {
                looks.push(LookPiece { who, span, saves: 0 });
            }
        };
        for (span, cell) in p.map.iter() {
            let here = present(cell);
            let gap = before.map_or(0, |(end, _)| end);
            if here && gap < span.start {
                push(Span { start: gap.max(span.start.saturating_sub(block)), end: span.start });
            }
            if let Some((end, true)) = before {
                // What the block below has not named already.
                let upto = if here { span.start.saturating_sub(block) } else { span.start };
                push(Span { start: end, end: upto.min(end.saturating_add(block)).max(end) });
            }
            before = Some((span.end, here));
        }
        if let Some((end, true)) = before {
            push(Span { start: end, end: end.saturating_add(block) });
        }
    }
}

/// What a plan was in want of.
#[derive(Clone, Copy, Default)]
struct Want {
    /// Of residents whose place is known.
    residents: bool,
    /// Of room for all that would gain.
    room: bool,
}

/// Looks in the order of what a page may save, as they cost by the page. Where there is no
/// room for all that is hot, what is coldest tells as much: from both ends in turn, page
/// for page.
///
/// Source: specs/engine.md#looking.
fn by_what_they_tell(mut looks: Vec<LookPiece>, both_ends: bool) -> Vec<LookPiece> {
    looks.sort_by_cached_key(|l| {
        let each = l.saves / u128::from(l.span.pages().0.max(1));
        (std::cmp::Reverse(each), l.who, l.span)
    });
    if !both_ends {
        return looks;
    }
    let mut out = Vec::with_capacity(looks.len());
    let mut looks = VecDeque::from(looks);
    let (mut hot, mut cold) = (0u64, 0u64);
    while let Some(next) = if hot <= cold { looks.pop_front() } else { looks.pop_back() } {
        let side = if hot <= cold { &mut hot } else { &mut cold };
        *side = side.saturating_add(next.span.pages().0);
        out.push(next);
    }
    out
}

/// Takes residents, coldest first, as long as there is room below.
struct Taker {
    queue: BinaryHeap<Resident>,
    below: u64,
}

impl Taker {
    /// Up to `n` pages of residents that fit; the last one may be taken in part.
    fn take(&mut self, n: u64, fits: impl Fn(&Resident) -> bool) -> Vec<(Resident, u64)> {
        let mut out = Vec::new();
        let mut rest = n.min(self.below);
        while rest > 0 {
            let Some(mut r) = self.queue.peek_mut().filter(|r| fits(r)) else { break };
            let all = Part { span: r.span, set: r.set.clone(), pages: r.pages };
            let (head, tail) = all.split(rest, r.unit, Round::Up);
            let Some(Part { span, set, pages }) = head.filter(|h| h.pages <= self.below) else {
                break;
            };
            out.push((Resident { span, set, pages, ..*r }, pages));
            rest = rest.saturating_sub(pages);
            self.below -= pages;
            match tail {
                Some(Part { span, set, pages }) => (r.span, r.set, r.pages) = (span, set, pages),
                None => drop(PeekMut::pop(r)),
            }
        }
        out
    }
    /// They stay after all.
    fn put_back(&mut self, taken: Vec<(Resident, u64)>) {
        for (r, n) in taken {
            self.below += n;
            self.queue.push(r);
        }
    }
    /// Whether fewer than `n` could be taken.
    fn is_short(&self, n: u64, taken: &[Piece]) -> bool {
        taken.iter().map(|p| u128::from(p.pages)).sum::<u128>() < u128::from(n)
    }
}

impl Resident {
    fn piece(self, from: NodeId, below: Option<(NodeId, u64)>, pages: u64) -> Piece {
        Piece {
            who: self.who,
            span: self.span,
            set: self.set,
            from,
            to: below.map_or(from, |(n, _)| n),
            pages,
            unit: self.unit,
            saves: 0,
            gains: 0,
            why: Reason::MakeRoom,
        }
    }
}
