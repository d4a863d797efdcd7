//! A process as the engine knows it: slow start, and news about its memory.

use super::along::Along;
use super::earns::{Class, Earns, Kept};
use super::estimate::ONE;
use super::fade::{Scales, decay};
use super::heat::{self, Cell, HeatMap, Told};
use super::open::Open;
use super::page_set::PageSet;
use super::pairs::{CHUNK, Hit, Pairs};
use super::place::{OnNodes, Place};
use super::tally;
use super::waited::Waited;
use super::{Engine, Settings};
use crate::numa::scan::{MmScan, TaskScan, TickOutcome, tick};
use crate::offcore::Offcore;
use crate::policy::Ledger;
use crate::policy::extents::BLOCK_PAGES;
use crate::policy::order::{Act, Benefit, Evidence, Fails, Reason};
use crate::policy::seen::Shows;
use crate::policy::span::{Span, Who, overlaps};
use crate::scenario::SlowStart;
use crate::units::{NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// A move counts for this part of what it promises at least, as 2^-32: a sixty-fourth, so that
/// what is hot enough goes up even so, and shows whether it stays hot by now.
const LEAST_KEPT: u64 = ONE / 64;

/// Spans that every process may tell apart.
const LEAST_SPANS: usize = 16;

/// A process's use of CPUs is its mean over this time at least.
const USE_OVER: Picos = Picos::from_secs(1);
/// Thousandths.
const WHOLE: u128 = 1000;

/// How much processor time a process uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    /// When it was asked for last, and what it had run by then.
    since: Option<(Picos, Picos)>,
    /// Thousandths of a CPU between the last two times.
    pub(super) permille: Option<u64>,
    /// When it was seen first, and what it had run by then.
    first: Option<(Picos, Picos)>,
}

impl Use {
    /// It has run so long by now.
    fn see(&mut self, now: Picos, ran: Picos) {
        let Some((at, before)) = self.since else {
            self.since = Some((now, ran));
            return;
        };
        let over = now.saturating_sub(at);
        if over >= USE_OVER {
            let used = u128::from(ran.saturating_sub(before).0) * WHOLE;
            self.permille = u64::try_from(used / u128::from(over.0)).ok();
            self.since = Some((now, ran));
        }
    }

    /// When it will have run for `all`, at the pace since it was seen first. Of one that is new it
    /// isn't known, so it is worth another look; `None` where it hasn't run since.
    fn reaches(&mut self, now: Picos, ran: Picos, all: Picos) -> Option<Picos> {
        let (at, before) = *self.first.get_or_insert((now, ran));
        let (over, used) = (now.saturating_sub(at).0, ran.saturating_sub(before).0);
        if over == 0 {
            return Some(now);
        }
        let left = u128::from(all.saturating_sub(ran).0) * u128::from(over);
        let left = u64::try_from(left.checked_div(u128::from(used))?).unwrap_or(u64::MAX);
        // It begins strictly after.
        Some(Picos(now.0.saturating_add(left).saturating_add(1)))
    }
}

/// When a process may be brought, and how often it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brought {
    /// Not again before.
    pub(super) not_before: Picos,
    /// Until then its threads may be on their way, and no page follows them.
    pub(super) settles: Picos,
    /// Where it was brought to last, and what of CPUs it was promised there.
    pub(super) to: Option<(NodeId, u64)>,
    /// How often.
    pub(super) times: u32,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracked {
    /// The rule of slow start: the whole process is its task.
    scan: TaskScan,
    /// Since when it is sampled.
    pub(super) watched: Option<Picos>,
    /// Node of all its CPUs, and since when.
    pub(super) node: Option<NodeId>,
    pub(super) node_since: Picos,
    /// What of an access's time it waits for.
    pub(super) waited: Waited,
    /// What it uses of CPUs, and when its threads may be brought elsewhere.
    pub(super) used: Use,
    pub(super) brought: Brought,
    pub(super) resident: Pages,
    /// Its memory was growing when it was seen last.
    grows: bool,
    /// Pages that one sample stands for, a power of two.
    pub(super) grain: u64,
    pub(super) map: HeatMap,
    /// Which pages samples hit again.
    pub(super) pairs: Pairs,
    /// Whether its pages move by themselves.
    pub(super) along: Along,
    /// What became of memory that went up and is not looked at any more, the older the less of it.
    past: [Kept; Class::ALL],
    /// What part of what is expected within the horizon comes, as 2^-32.
    keeps: [u64; Class::ALL],
    /// Spans of open orders: end by start.
    pub(super) busy: BTreeMap<u64, u64>,
    /// Where spans are, told but not taken in yet.
    reports: BTreeMap<Span, Vec<(NodeId, u64)>>,
    /// Pages that it had at the last census; `None` before the first.
    pub(super) census: Option<Pages>,
    /// None is asked for before: the last one had no answer.
    census_after: Picos,
    /// When the last window of samples or faults was closed.
    pub(super) folded: Picos,
    /// How often it was sampled.
    pub(super) samples: u64,
    /// When a hint fault came from a fast node: only then does silence about such
    /// nodes mean something.
    pub(super) fast_faults: Option<Picos>,
}

impl Tracked {
    fn new(delay: Picos, now: Picos) -> Self {
        let ms = u32::try_from(delay.0.div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        let scan = TaskScan { period_ms: ms, ..TaskScan::default() };
        Self {
            scan,
            node_since: now,
            grain: 1,
            folded: now,
            keeps: [ONE; Class::ALL],
            ..Self::default()
        }
    }

    /// Which of its pages were hit, and how unlike they are, where they are told apart.
    pub(super) fn apart(&self) -> Option<(&Pairs, u64)> {
        let shape = self.pairs.shape().filter(|_| self.along != Along::Together)?;
        Some((&self.pairs, shape))
    }

    /// How much of what was expected of memory that went up has come.
    ///
    /// * `per_page` – what moving a page takes.
    ///
    /// Source: specs/engine.md#kept.
    pub(super) fn learn_keeps(&mut self, now: Picos, horizon: Picos, per_page: u64) {
        let since = now.saturating_sub(self.folded);
        let less = |v: u128| {
            let v = u64::try_from(v).unwrap_or(u64::MAX);
            u128::from(decay(v, since, horizon))
        };
        let [ended, stays] = self.map.kept(now, horizon);
        for (i, past) in self.past.iter_mut().enumerate() {
            *past = Kept { expected: less(past.expected), came: less(past.came) };
            past.add(ended[i]);
            let mut all = stays[i];
            all.add(*past);
            let Kept { expected, came } = all;
            // As much as moves of two hundred and fifty-six pages there and back: less says little.
            let enough = expected >= u128::from(per_page) * 512;
            let part = (came.min(expected) << 32).checked_div(expected).unwrap_or(0);
            let part = u64::try_from(part).unwrap_or(ONE).max(LEAST_KEPT);
            self.keeps[i] = if enough { part } else { ONE };
        }
    }

    /// What of so much comes, as such moves have shown.
    pub(super) fn comes(&self, gains: u128, per_page: u64) -> u128 {
        (gains * u128::from(self.keeps[Class::of(gains, per_page).index()])) >> 32
    }

    /// Whether an open order names some of it.
    pub(super) fn is_busy(&self, span: Span) -> bool {
        overlaps(&self.busy, span)
    }

    /// The parts of a span that no open order names.
    pub(super) fn idle_parts(&self, span: Span) -> Vec<Span> {
        let before = self.busy.range(..=span.start).next_back().map_or(0, |(_, end)| *end);
        let mut parts = Vec::new();
        let mut at = span.start.max(before);
        for (&start, &end) in self.busy.range(span.start..span.end) {
            if start > at {
                parts.push(Span { start: at, end: start });
            }
            at = at.max(end);
        }
        if at < span.end {
            parts.push(Span { start: at, end: span.end });
        }
        parts
    }

    /// Of some pages of a chunk, those that no open order names.
    pub(super) fn idle_pages(&self, chunk: u64, set: &PageSet) -> PageSet {
        let all = Span { start: chunk * CHUNK, end: (chunk + 1).saturating_mul(CHUNK) };
        if !self.is_busy(all) {
            return *set;
        }
        let idle = self.idle_parts(all).into_iter().map(PageSet::of);
        set.and(&idle.fold(PageSet::default(), |sum, part| sum.or(&part)))
    }

    /// Of a part of a stretch, what holds no part of pages that move as one with others.
    pub(super) fn in_units(&self, part: Span, whole: Span) -> Option<Span> {
        let unit = self.along.unit();
        let start = if part.start == whole.start {
            part.start
        } else {
            part.start.div_ceil(unit).saturating_mul(unit)
        };
        let end = if part.end == whole.end { part.end } else { part.end / unit * unit };
        (start < end).then_some(Span { start, end })
    }

    /// Pages of spans on a node, as far as is known; an eighth less, since shares are rounded.
    fn on(&mut self, spans: &[Span], node: NodeId) -> u64 {
        let mut pages = 0u64;
        for &span in spans {
            self.map.visit(span, |start, c, set| {
                let on = c.place.as_ref().map_or(0, |p| match (set, &c.tally) {
                    (Some(set), Some(tally)) => {
                        tally.nr_on(set, PageSet::of(Span { start, end: c.end }), p, node)
                    }
                    _ => p.pages_on(node),
                });
                pages = pages.saturating_add(on);
            });
        }
        pages - pages / 8
    }

    /// Block of a look.
    pub(super) fn look_pages(&self) -> u64 {
        BLOCK_PAGES.max(self.grain).max(self.along.unit())
    }
}

impl Settings {
    pub(super) fn scales(&self) -> Scales {
        // A source that tells once in an interval may be late once.
        let hold = Picos(self.interval.0.saturating_mul(2));
        Scales { short: self.short, long: self.long, hold }
    }
}

impl Engine {
    /// Spans that each sampled process may tell apart.
    pub(super) fn limit(&self) -> usize {
        (self.settings.most_spans / self.nr_watched.max(1)).max(LEAST_SPANS)
    }

    /// Source: specs/engine.md#processes.
    pub(super) fn see_task(&mut self, who: Who, ran: Picos, node: Option<NodeId>, resident: Pages) {
        let Some(before) = self.living.see(who) else {
            self.ledger.unknown += 1;
            return;
        };
        if let Some(before) = before {
            self.forget(before);
        }
        let now = self.now;
        let delay = self.settings.start_delay;
        let limit = self.limit() as u64;
        let p = self.processes.entry(who).or_insert_with(|| Tracked::new(delay, now));
        let is_new = p.used.since.is_none();
        p.used.see(now, ran);
        if p.node != node {
            p.node = node;
            p.node_since = now;
        }
        // By more than a sixty-fourth since the last look at it, a tenth of a second ago.
        let before = p.resident.0;
        p.grows = !is_new && resident.0 > before.saturating_add(before / 64);
        p.resident = resident;
        // Half of the spans for samples, the other for what regions and looks cut.
        p.grain =
            resident.0.saturating_mul(2).div_ceil(limit).clamp(1, 1 << 40).next_power_of_two();
        if p.watched.is_some() {
            self.ask_census(who);
            return;
        }
        // The process is one task of the rule; its gate is open, as only processor time counts.
        let open = MmScan::new();
        // The rule asks for a period once sampling has begun; there is no next one.
        let outcome = tick(&mut p.scan, &open, SlowStart::Today, 0, ran.as_ns(), || {
            u32::try_from(delay.as_ms()).unwrap_or(u32::MAX)
        });
        if outcome == TickOutcome::QueueWork {
            p.watched = Some(now);
            p.folded = now;
            self.ledger.watched += 1;
            self.nr_watched += 1;
            self.period.begin(now, self.settings.long);
            let watch = Open::new(who, Reason::SlowStartOver);
            self.issue(Act::Watch { who }, Benefit::default(), watch);
            self.ask_census(who);
        } else if let Some(at) = p.used.reaches(now, ran, delay) {
            self.begins = Some(self.begins.map_or(at, |b| b.min(at)));
        }
    }

    /// Memory between two decisions is bounded too.
    fn bound(&mut self, who: Who) {
        let (most, all) = (self.settings.most_spans, self.nr_watched.max(1));
        let Some(p) = self.processes.get(&who) else { return };
        // More than twice the limit; without its division, as each observation comes here.
        let half = p.map.weight().saturating_sub(1) / 2;
        if half < LEAST_SPANS || most >= (half + 1).saturating_mul(all) {
            return;
        }
        let (limit, now, scales) = (self.limit(), self.now, self.settings.scales());
        let Some(p) = self.processes.get_mut(&who) else { return };
        if p.map.tidy(limit, now, &scales) {
            self.ledger.coarsened += 1;
        }
    }

    /// Counters of a process's loads were read.
    ///
    /// Source: specs/engine.md#waited.
    pub(super) fn see_loads(&mut self, who: Who, counted: &Offcore) {
        let (now, half, most) = (self.now, self.settings.short, self.settings.most_at_once);
        let Some(p) = sampled(&mut self.processes, &mut self.ledger, who) else { return };
        p.waited.see(counted, now, half, most);
    }

    pub(super) fn see_region(&mut self, who: Who, span: Span, told: Option<Told>) {
        let (now, scales) = (self.now, self.settings.scales());
        let Some(p) = sampled(&mut self.processes, &mut self.ledger, who) else { return };
        let Some(told) = told.filter(|_| span.start < span.end) else {
            self.ledger.unknown += 1;
            return;
        };
        let came = p.map.region(span, told, now, &scales);
        self.earn(came);
        self.silent = false;
        self.news += 1;
        self.bound(who);
    }

    pub(super) fn see_fault(
        &mut self,
        who: Who,
        vpn: u64,
        from: NodeId,
        on: NodeId,
        after: Option<Picos>,
    ) {
        let now = self.now;
        let settings = self.settings;
        let top = self.nodes.is_top(on);
        let Some(p) = sampled(&mut self.processes, &mut self.ledger, who) else { return };
        if top {
            p.fast_faults = Some(now);
        }
        // Without a time it was accessed once, at least, since the last window.
        let rate = after.map_or_else(
            || heat::count_rate(1000, 1, now.saturating_sub(p.folded).max(Picos::from_ms(1))),
            heat::fault_rate,
        );
        let Some(cell) = p.map.at_page(vpn, p.grain, now) else { return };
        cell.heard = now;
        cell.count(rate);
        // Of the accesses since it was marked only this one is sure.
        let came = cell.earned(1, 1000, now);
        cell.vote(from);
        if cell.end - vpn == 1 && p.grain == 1 {
            locate(vpn, cell, Place { at: now, on: OnNodes::one(on, 1) }, &settings);
        }
        self.earn(came);
        self.silent = false;
        self.news += 1;
        self.bound(who);
    }

    pub(super) fn see_sample(&mut self, who: Who, vpn: u64, from: NodeId, period: u64) {
        let (now, long, scales) = (self.now, self.settings.long, self.settings.scales());
        let (room, pays) = (self.affords_more(), self.savings_afford_more());
        let nodes = &self.nodes;
        let Some(p) = sampled(&mut self.processes, &mut self.ledger, who) else { return };
        p.samples = p.samples.saturating_add(1);
        // Of a chunk, as long as its pages are alike as far as is known.
        let Some((pages, cell)) = p.map.sampled(vpn, CHUNK.max(p.grain), now) else { return };
        let hit = match p.along {
            // Nobody asks any more how unlike its pages are.
            Along::Together => Hit::Alike,
            Along::Unknown { .. } | Along::Trying { .. } | Along::Alone => {
                p.pairs.hit(vpn, now, long)
            }
        };
        let begins = match hit {
            _ if pages == 1 || cell.tally.is_some() => false,
            Hit::Alike => false,
            Hit::First => {
                // On a fast node already, it could only stay there.
                let stays = |place: &Place| place.is_all_on(|node| nodes.is_top(node));
                room || pays && !cell.place.as_ref().is_some_and(stays)
            }
            Hit::Again => true,
        };
        let found = if begins { p.map.sampled(vpn, CHUNK, now) } else { Some((pages, cell)) };
        let Some((pages, cell)) = found else { return };
        let milli = period.saturating_mul(1000);
        cell.heard = now;
        cell.count(milli);
        cell.vote(from);
        let came = if begins || cell.tally.is_some() {
            cell.see_page(pages, vpn, u128::from(milli), now, &scales)
        } else {
            cell.pooled |= pages > 1;
            cell.earned(pages, u128::from(milli), now)
        };
        if begins {
            p.map.begin_tally();
            self.stretches += tally::STRETCHES as u64;
        }
        self.period.took(1);
        self.ledger.samples += 1;
        self.earn(came);
        self.silent = false;
        self.news += 1;
        self.bound(who);
    }

    pub(super) fn see_resident(&mut self, who: Who, span: Span, on: NodeId, pages: u64) {
        let Some(p) = sampled(&mut self.processes, &mut self.ledger, who) else { return };
        if span.start >= span.end {
            return;
        }
        let report = p.reports.entry(span).or_default();
        match report.iter_mut().find(|(n, _)| *n == on) {
            Some(r) => r.1 = pages,
            None => report.push((on, pages)),
        }
        self.reported.insert(who);
    }

    /// Takes in what was told about spans that no open look names.
    pub(super) fn locate_unasked(&mut self) {
        let now = self.now;
        let settings = self.settings;
        for who in std::mem::take(&mut self.reported) {
            let Some(p) = self.processes.get_mut(&who) else { continue };
            let reports = std::mem::take(&mut p.reports);
            for (span, on) in reports {
                if p.is_busy(span) {
                    p.reports.insert(span, on);
                } else {
                    spread(p, span, &on, now, &settings);
                }
            }
        }
    }

    fn ask_census(&mut self, who: Who) {
        let waits = self.plan.censuses.contains(&who);
        if !waits && self.processes.get(&who).is_some_and(|p| self.wants_census(p)) {
            self.plan.censuses.push_back(who);
        }
    }

    /// Whether its mappings are to be counted: they never were, or it has grown or shrunk by
    /// an eighth since; and it has stopped to grow.
    ///
    /// Source: specs/engine.md#census.
    fn wants_census(&self, p: &Tracked) -> bool {
        let new = |old: Pages| p.resident.0.abs_diff(old.0) > old.0 / 8;
        // Regions leave no memory out; where it is, is looked for as far as it matters.
        let finds = self.source.shows() != Shows::Regions;
        p.watched.is_some()
            && finds
            && !p.grows
            && self.now >= p.census_after
            && self.can_look()
            && !self.lack(Evidence::Heat)
            && p.census.is_none_or(new)
    }

    /// Whether it grows still, is new, and is going to be counted when it doesn't.
    ///
    /// Source: specs/engine.md#census.
    pub(super) fn is_settling(&self, p: &Tracked) -> bool {
        let young = p.watched.is_some_and(|at| self.now.saturating_sub(at) < self.settings.long);
        let counts = self.source.shows() != Shows::Regions;
        young && p.grows && p.census.is_none() && counts
    }

    /// What a finished order says about its spans.
    ///
    /// Source: specs/engine.md#failures.
    pub(super) fn settle(&mut self, open: &Open, tried: Pages, moved: Pages, fails: Fails) {
        let (now, settings, nodes) = (self.now, self.settings, &self.nodes);
        let per_page = self.per_page;
        let seen_cpu = !self.lacks.contains(&Evidence::Cpu);
        let Some(p) = self.processes.get_mut(&open.who) else { return };
        let waited = p.waited;
        let its_cpu = p.node.or_else(|| nodes.only_cpu());
        for span in &open.spans {
            p.busy.remove(&span.start);
        }
        let Some((from, to)) = open.between else {
            if open.why == Reason::MemoryUnknown {
                if tried.0 > 0 {
                    p.census = Some(p.resident);
                } else {
                    p.census_after = Picos(now.0.saturating_add(settings.look_again.0));
                }
            }
            for &span in &open.spans {
                let starts = [span.start, span.end].map(|start| Span { start, end: 0 });
                let told = p.reports.range(starts[0]..starts[1]).map(|(s, _)| *s);
                let told: Vec<Span> = told.filter(|s| s.end <= span.end).collect();
                let told = joined(&mut p.reports, told);
                if told.is_empty() {
                    // Asked and not answered: not to be asked at every turn.
                    let until = Picos(now.0.saturating_add(settings.backoff.0));
                    p.map.paint(span, now, |c| c.trouble.until = until);
                }
                for s in told {
                    if let Some(on) = p.reports.remove(&s) {
                        spread(p, s, &on, now, &settings);
                    }
                }
            }
            return;
        };
        let only = |n: Pages| n.0 > 0 && n == tried;
        let until = Picos(now.0.saturating_add(settings.horizon.0));
        // Those of the spans that were not there are known to be elsewhere.
        let whole =
            tried.0 > 0 && moved + fails.absent == tried && moved.0 >= p.on(&open.spans, from);
        let mut undone = [Kept::default(); Class::ALL];
        for &span in &open.spans {
            if tried.0 == 0 || only(fails.busy) {
                // All of them, so no look is needed to know which.
                p.map.change(span, |c| was_busy(c, now, &settings));
            } else if only(fails.no_room) {
                // They are where they were; the node is closed.
            } else if only(fails.forbidden) {
                p.map.change(span, |c| c.trouble.forbidden = true);
            } else if whole {
                p.map.visit(span, |start, c, set| {
                    let all = Span { start, end: c.end };
                    let named = set.map_or(all.pages().0, |set| set.len());
                    (c.trouble.busy, c.trouble.suspect) = (0, None);
                    let cpu = c.from.filter(|_| seen_cpu).map(|(n, _)| n).or(its_cpu);
                    let Some(place) = &mut c.place else { return };
                    let came = match (&c.tally, set) {
                        (Some(tally), Some(set)) => tally.nr_on(set, PageSet::of(all), place, from),
                        _ => place.pages_on(from),
                    };
                    // Of accesses to them, those to pages that came along.
                    let here = set.map_or_else(|| place.present(), |set| set.len());
                    let each = cpu.map_or(0, |cpu| waited.of_saved(nodes.saves(cpu, from, to)));
                    let each = i128::from(each) * i128::from(came) / i128::from(here).max(1);
                    let each = i64::try_from(each).unwrap_or(0);
                    let expected = open.gains * u128::from(named) / u128::from(open.named.max(1));
                    let kept = Kept { expected, came: 0 };
                    let class = Class::of(expected / u128::from(named.max(1)), per_page);
                    let earns = (each != 0).then_some(Earns { until, each, kept, class });
                    place.shift(from, to, came);
                    // What went up within the horizon, and no more comes of that.
                    if let (Some(tally), Some(set)) = (&mut c.tally, set) {
                        for (class, kept) in tally.earns(set, earns) {
                            undone[class.index()].add(kept);
                        }
                        tally.put(set, Some(to));
                    } else {
                        if let Some(e) = c.earns.as_ref().filter(|e| e.each > 0) {
                            undone[e.class.index()].add(e.kept);
                        }
                        c.earns = earns.map(Box::new);
                        // It earns from now on, and not since the last word about it.
                        c.heard = c.heard.max(now);
                    }
                });
            } else {
                let stuck = fails.busy.0 > 0 || fails.forbidden.0 > 0;
                if !stuck {
                    // There was no room for all. Which ones went isn't known, but how many.
                    p.map.visit(span, |_, c, set| {
                        c.trouble.suspect = None;
                        let known = (&mut c.tally, &mut c.place, set);
                        let (Some(tally), Some(place), Some(set)) = known else { return c.lose() };
                        let part = u128::from(moved.0) * u128::from(set.len());
                        let part = part / u128::from(tried.0.max(1));
                        place.shift(from, to, u64::try_from(part).unwrap_or(u64::MAX));
                        tally.put(set, None);
                    });
                    continue;
                }
                let suspect = Some((from, fails.busy.0 == 0));
                p.map.change(span, |c| {
                    c.lose();
                    c.trouble.suspect = suspect;
                });
            }
        }
        p.past.iter_mut().zip(undone).for_each(|(past, more)| past.add(more));
    }

    /// Whether silence about memory on a fast node means that it is cold.
    ///
    /// Source: specs/engine.md#silence.
    pub(super) fn silence_is_cold(&self, p: &Tracked, cell: &Cell, fast: bool) -> bool {
        if self.source.shows() != Shows::Faults || !fast {
            return true;
        }
        let long = self.settings.long;
        let window = Picos(long.0.saturating_mul(2));
        p.fast_faults.is_some_and(|at| self.now.saturating_sub(at) <= window)
            && self.now.saturating_sub(cell.born) >= long
    }

    /// Whether the machine can say where pages are.
    pub(super) fn can_look(&self) -> bool {
        !self.lack(Evidence::Place)
    }
}

/// The process, if it is sampled; news about others is counted.
fn sampled<'a>(
    processes: &'a mut BTreeMap<Who, Tracked>,
    ledger: &mut Ledger,
    who: Who,
) -> Option<&'a mut Tracked> {
    let p = processes.get_mut(&who).filter(|p| p.watched.is_some());
    if p.is_none() {
        ledger.unknown += 1;
    }
    p
}

/// Neighbours that are on one node wholly, as one report: blocks of a look are not kept apart.
fn joined(reports: &mut BTreeMap<Span, Vec<(NodeId, u64)>>, told: Vec<Span>) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    for span in told {
        let whole = |s: &Span| match reports.get(s).map(Vec::as_slice) {
            Some(&[(node, pages)]) if pages >= s.pages().0 => Some(node),
            _ => None,
        };
        let on = whole(&span);
        match out.last_mut().filter(|l| l.end == span.start && on.is_some() && whole(l) == on) {
            Some(last) => {
                let node = on.unwrap_or_default();
                reports.remove(last);
                reports.remove(&span);
                last.end = span.end;
                reports.insert(*last, vec![(node, last.pages().0)]);
            }
            None => out.push(span),
        }
    }
    out
}

fn was_busy(cell: &mut Cell, now: Picos, settings: &Settings) {
    let wait = settings.backoff.0.saturating_mul(1 << cell.trouble.busy.min(16));
    cell.trouble.busy = cell.trouble.busy.saturating_add(1);
    cell.trouble.until = Picos(now.0.saturating_add(wait));
    cell.trouble.suspect = None;
}

/// The cell's pages are there; what a failed order left behind shows now.
fn locate(start: u64, cell: &mut Cell, place: Place, settings: &Settings) {
    if let Some((from, forbidden)) = cell.trouble.suspect.take() {
        if place.pages_on(from) == 0 {
            cell.trouble.busy = 0;
        } else if forbidden {
            cell.trouble.forbidden = true;
        } else {
            was_busy(cell, place.at, settings);
        }
    }
    cell.locate(start, place);
}

/// A report about a span, spread over its cells: exactly where the span is one cell
/// or all on one node, else evenly, as nothing tells more. Of a long span with pages on
/// several nodes it is only known that it is memory, unless but an eighth of it is elsewhere.
fn spread(p: &mut Tracked, span: Span, on: &[(NodeId, u64)], now: Picos, settings: &Settings) {
    let whole = span.end - span.start;
    let born = p.watched.unwrap_or(now);
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let all = on.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    let most = on.iter().map(|(_, n)| *n).max().unwrap_or(0);
    let known = whole <= p.look_pages() || all - most <= all / 8;
    p.map.paint(span, now, |_| ());
    p.map.each(span, |c| parts.push((0, c.end)));
    let mut start = span.start;
    for part in &mut parts {
        part.0 = start;
        start = part.1;
    }
    let mut parts = parts.into_iter();
    p.map.each(span, |c| {
        let Some((from, to)) = parts.next() else { return };
        let mut place = Place { at: now, on: OnNodes::default() };
        for (node, pages) in on {
            let share = u128::from((*pages).min(whole)) * u128::from(to - from);
            let share = u64::try_from(share.div_ceil(u128::from(whole))).unwrap_or(u64::MAX);
            place.add(*node, share);
        }
        if c.short == 0 && c.long == 0 && c.place.is_none() && c.born == c.at {
            // Found by looking: the source has told nothing of it since sampling began.
            c.born = c.born.min(born);
        }
        if known {
            locate(from, c, place, settings);
        }
    });
}
