//! How hot memory is, and where it is, as far as it was told.
//!
//! One unit for all sources: **accesses per page and second, in thousandths**.
//!
//! | source     | an observation gives                         | worked example                     |
//! |------------|----------------------------------------------|------------------------------------|
//! | DAMON      | accessed / (checks · every), a lower bound   | 20 of 20 checks of 5 ms: ≥ 200/s   |
//! | hint fault | 1 / after                                    | after 4 ms: 250/s                  |
//! | PMU        | samples · period / time / pages              | 3 · 1000 in 1 s on 1 page: 3000/s  |
//!
//! A map holds stretches that don't overlap. A region cuts them at its ends; a fault
//! cuts out a block of the map's grain, a sample its chunk, which has a [`Tally`] of its pages
//! where they differ; neighbours that look alike grow together again. So the map follows
//! regions that split and merge, and stays within its limit.

use super::earns::{Class, Earns, Kept};
use super::fade::{Scales, decay, narrow};
use super::page_set::PageSet;
use super::pairs::CHUNK;
use super::place::Place;
use super::tally::{self, Tally};
use crate::policy::span::Span;
use crate::units::{NodeId, Picos};
use std::collections::BTreeMap;

/// Thousandths of an access per page and second.
pub(crate) type Rate = u64;

const SECOND: u128 = 1_000_000_000_000;
/// No memory is accessed more often than this: a line takes a nanosecond, a page has 64.
const MOST_RATE: u64 = 64_000_000_000_000;

/// What is left of several values after the same time: [`decay`], with one division for all.
#[derive(Clone, Copy)]
struct Fall {
    /// Times that a value has been halved.
    halved: u32,
    /// The part of a half-life since, and two half-lives.
    part: u64,
    two: u128,
    /// `part` of `two`, as 2^-64, rounded down.
    share: u64,
}

impl Fall {
    fn new(dt: Picos, half: Picos) -> Self {
        let half = half.0.max(1);
        let (part, two) = (dt.0 % half, 2 * u128::from(half));
        let halved = u32::try_from(dt.0 / half).unwrap_or(u32::MAX);
        Self { halved, part, two, share: narrow((u128::from(part) << 64) / two) }
    }
    fn left(&self, v: u64) -> u64 {
        let Some(v) = v.checked_shr(self.halved) else { return 0 };
        // Less than 1 too small, and so its whole part by 1 at most.
        let near = (u128::from(v) * u128::from(self.share)) >> 64;
        let rest = u128::from(v) * u128::from(self.part) - near * self.two;
        v - narrow(near + u128::from(rest >= self.two))
    }
}

/// How much is left of a short and of a long average: most stretches of a map were told about
/// at the same times, and so share what has to be divided for that.
#[derive(Clone, Copy, Default)]
struct Falls {
    /// Of this time.
    last: Option<(Picos, [Fall; 2])>,
}

impl Falls {
    fn after(&mut self, dt: Picos, scales: &Scales) -> [Fall; 2] {
        match self.last {
            Some((of, falls)) if of == dt => falls,
            _ => {
                let falls = [scales.short, scales.long].map(|half| Fall::new(dt, half));
                self.last = Some((dt, falls));
                falls
            }
        }
    }
}

/// The average that was `old` when `x` held since.
fn mix(old: u64, x: u64, fall: &Fall) -> u64 {
    if x >= old { x - fall.left(x - old) } else { x + fall.left(old - x) }
}

/// The average, and what one observation counts for in it, when `x` held since.
fn blend(old: (u64, u64), x: (u64, u64), fall: &Fall) -> (u64, u64) {
    // Silence is what most stretches have, and both fall then.
    if x == (0, 0) {
        let left = fall.left(old.0);
        return (left, if left == 0 { 0 } else { fall.left(old.1) });
    }
    let new = mix(old.0, x.0, fall);
    let left = fall.left(old.0).min(new);
    let (from_old, from_x) = (fall.left(old.1), x.1 - fall.left(x.1));
    (new, weighted((from_old, left), (from_x, new - left)))
}

/// The mean of two values, each with its weight; 0 without any.
fn weighted(a: (u64, u64), b: (u64, u64)) -> u64 {
    let all = u128::from(a.1) + u128::from(b.1);
    let sum = (u128::from(a.0) * u128::from(a.1)).saturating_add(u128::from(b.0) * u128::from(b.1));
    narrow(sum.checked_div(all).unwrap_or(0))
}

/// The mean of a short and a long average.
pub(super) fn mean([a, b]: [Rate; 2]) -> Rate {
    a / 2 + b / 2 + (a % 2 + b % 2) / 2
}

/// Rate of a DAMON region. Saturates at one access per check, so it is a lower
/// bound; `None` without checks.
///
/// Source: specs/engine.md#heat.
pub(crate) fn region_rate(accessed: u32, checks: u32, every: Picos) -> Option<Rate> {
    let time = u128::from(checks) * u128::from(every.0);
    (time > 0)
        .then(|| narrow(u128::from(accessed.min(checks)) * 1000 * SECOND / time).min(MOST_RATE))
}

/// Rate of a page that was accessed `after` it had been made inaccessible. Below
/// a microsecond nothing is told apart: the fault itself takes as long.
///
/// Source: specs/engine.md#heat.
pub(crate) fn fault_rate(after: Picos) -> Rate {
    narrow(1000 * SECOND / u128::from(after.0.max(1_000_000)))
}

/// Rate of `milli` thousandths of accesses to `pages` pages in `time`.
///
/// Source: specs/engine.md#heat.
pub(crate) fn count_rate(milli: u64, pages: u64, time: Picos) -> Rate {
    if milli == 0 {
        return 0;
    }
    let over = u128::from(pages.max(1)) * u128::from(time.0.max(1));
    narrow(u128::from(milli) * SECOND / over).min(MOST_RATE)
}

/// What past orders taught about a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Must not be moved.
    pub(super) forbidden: bool,
    /// How often it was busy in a row.
    pub(super) busy: u32,
    /// Not to be tried before.
    pub(super) until: Picos,
    /// An order failed in part; the next look says whether here. From where, and
    /// whether all that failed was forbidden.
    pub(super) suspect: Option<(NodeId, bool)>,
}

/// A stretch of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// One past its last page.
    pub(super) end: u64,
    /// Short average.
    pub(super) short: Rate,
    /// Long average.
    pub(super) long: Rate,
    /// When the averages were brought up to date.
    pub(super) at: Picos,
    /// Since when the source would have told of accesses.
    pub(super) born: Picos,
    /// Whether the source has told anything, be it silence that means something.
    pub(super) told: bool,
    /// When it was observed last.
    pub(super) heard: Picos,
    /// The last word about it, where that is of the stretch as one: of a region.
    pub(super) last: Option<Rate>,
    /// Whether it was told as one: no part of it was observed more than another.
    pub(super) whole: bool,
    /// It was taken together of unlike stretches.
    pub(super) unlike: bool,
    /// Samples were counted of it as of one, so that nobody knows which of its pages they named.
    pub(super) pooled: bool,
    /// What one observation counts for in the short and in the long average, as rate times
    /// pages: the mean over all that are in it, each as much as it is still worth.
    pub(super) one: [u64; 2],
    /// What came since the last fold: accesses in thousandths (samples), or the sum
    /// of rates (faults).
    pub(super) sum: u64,
    /// From how many observations.
    pub(super) nr: u32,
    /// The sum of their squares: what one of them counts for differs where a period changes.
    pub(super) squares: u128,
    /// Whose CPUs access it: the node that leads, and by how much.
    pub(super) from: Option<(NodeId, u32)>,
    /// Where it is.
    pub(super) place: Option<Place>,
    /// What is known of each of its pages, where they are told apart: it lies in one chunk then.
    pub(super) tally: Option<Box<Tally>>,
    /// What it earns since it was moved; few were. Where pages are told apart, the tally has it.
    pub(super) earns: Option<Box<Earns>>,
    /// What went wrong with it.
    pub(super) trouble: Trouble,
}

impl Cell {
    fn new(end: u64, now: Picos) -> Self {
        Self { end, at: now, born: now, ..Self::default() }
    }

    /// Another observation, of so much.
    pub(super) fn count(&mut self, what: u64) {
        self.sum = self.sum.saturating_add(what);
        self.nr = self.nr.saturating_add(1);
        self.squares = self.squares.saturating_add(u128::from(what) * u128::from(what));
    }
    /// A window begins.
    fn begin(&mut self) {
        (self.sum, self.nr, self.squares) = (0, 0, 0);
    }

    /// The same, of `part` of its `whole` pages.
    pub(super) fn part(&self, part: u64, whole: u64) -> Self {
        let earns = Earns::part(self.earns.as_deref(), part, whole);
        Self { place: self.place.as_ref().map(|p| p.share(part, whole)), earns, ..self.clone() }
    }

    /// What part of the short and the long average of its `pages` one observation is,
    /// as 2^-32.
    pub(super) fn weights(&self, pages: u64) -> [u64; 2] {
        let weight = |one: u64, avg: Rate| {
            let all = u128::from(avg) * u128::from(pages);
            let part = (u128::from(one) << 32).checked_div(all);
            narrow(part.unwrap_or(1 << 32).min(1 << 32))
        };
        [weight(self.one[0], self.short), weight(self.one[1], self.long)]
    }

    /// How many observations of its `pages` the short and the long average are worth, as 2^-32.
    pub(super) fn observations(&self, pages: u64) -> [u128; 2] {
        let nr = |one: u64, avg: Rate| match u128::from(avg) * u128::from(pages) {
            0 => 1 << 32,
            all => {
                let (all, one) = (all.min(1 << 94) << 32, one.max(1));
                let nr = u64::try_from(all)
                    .map_or_else(|_| all / u128::from(one), |all| u128::from(all / one));
                nr.clamp(1 << 32, 1 << 64)
            }
        };
        [nr(self.one[0], self.short), nr(self.one[1], self.long)]
    }

    /// The same; none where nothing was observed.
    fn seen_so_far(&self, pages: u64) -> [u128; 2] {
        let nr = self.observations(pages);
        [(nr[0], self.short), (nr[1], self.long)].map(|(nr, avg)| if avg == 0 { 0 } else { nr })
    }

    /// By what part of the observations of its `pages` the node that leads is ahead, as
    /// 2^-32; `None` where it is by less than two standard deviations of chance.
    pub(super) fn lead(&self, pages: u64) -> Option<u64> {
        let ahead = u128::from(self.from?.1);
        let weight = u128::from(self.weights(pages)[1]);
        (ahead * ahead * weight >= 4 << 32).then(|| narrow((ahead * weight).min(1 << 32)))
    }

    /// What so many thousandths of an access to any of its `pages` earn, in picoseconds.
    pub(super) fn earned(&mut self, pages: u64, milli: u128, now: Picos) -> i128 {
        match (&mut self.tally, &mut self.earns) {
            (Some(tally), _) => tally.earned(milli, pages, now),
            (None, Some(earns)) => earns.came(milli, now),
            (None, None) => 0,
        }
    }

    /// One of its `pages` was observed; they are told apart from now on. Returns what that access earned.
    pub(super) fn see_page(
        &mut self,
        pages: u64,
        vpn: u64,
        milli: u128,
        now: Picos,
        t: &Scales,
    ) -> i128 {
        let pages = Span { start: self.end - pages, end: self.end };
        if self.tally.is_none() {
            // This one is in the window already.
            let window = u128::from(self.nr.saturating_sub(1)) << 32;
            let before = self.seen_so_far(pages.pages().0).map(|nr| nr + window);
            let (place, earns) = (self.place.as_ref(), self.earns.take());
            let tally = Tally::new(pages, place, earns.as_deref(), before, now);
            self.tally = Some(Box::new(tally));
        }
        self.tally.as_mut().map_or(0, |tally| tally.see(vpn, milli, now, t))
    }

    /// Its pages are told apart no more.
    fn take_together(&mut self, start: u64) {
        if let Some(tally) = self.tally.take() {
            self.earns = tally.all_earn(self.end - start);
            self.pooled = true;
        }
    }

    /// It is where that says.
    pub(super) fn locate(&mut self, start: u64, place: Place) {
        if let Some(tally) = &mut self.tally {
            tally.heed(&place, PageSet::of(Span { start, end: self.end }));
        }
        self.place = Some(place);
    }

    /// Nobody knows where it is.
    pub(super) fn lose(&mut self) {
        if let Some(tally) = &mut self.tally {
            tally.put(PageSet::ALL, None);
        }
        self.place = None;
    }

    /// Its heat as far as the last word bears it out: what is to go up saves no more than that,
    /// and what is to go down loses no less than the second.
    ///
    /// Source: specs/engine.md#last-word.
    pub(super) fn borne_out(&self, heat: Rate) -> (Rate, Rate) {
        self.last.map_or((heat, heat), |last| (heat.min(last), heat.max(last)))
    }

    /// Another vote for a node; the one that is ahead in the end has most of them,
    /// if one has.
    pub(super) fn vote(&mut self, node: NodeId) {
        self.from = match self.from {
            Some((n, c)) if n == node => Some((n, c.saturating_add(1).min(1000))),
            Some((n, c)) if c > 1 => Some((n, c - 1)),
            _ => Some((node, 1)),
        };
    }
}

/// What is told of a stretch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) rate: Rate,
    /// What one observation counts for, as rate times pages.
    pub(super) one: u64,
    /// For how long was counted.
    pub(super) over: Picos,
    /// For how long it has been so.
    pub(super) age: Picos,
}

impl Scales {
    /// Heat of a cell now: the mean of both averages, falling where nothing was told.
    ///
    /// Source: specs/engine.md#averages.
    pub(super) fn heat(&self, cell: &Cell, now: Picos) -> Rate {
        mean(self.averages(cell, now))
    }

    /// The short and the long average now.
    pub(super) fn averages(&self, cell: &Cell, now: Picos) -> [Rate; 2] {
        let silent = now.saturating_sub(cell.at).saturating_sub(self.hold);
        [decay(cell.short, silent, self.short), decay(cell.long, silent, self.long)]
    }

    fn update(&self, cell: &mut Cell, told: Told, now: Picos, least: Picos, falls: &mut Falls) {
        let Told { rate: x, one, over, age } = told;
        cell.told = true;
        if cell.short == 0 && cell.long == 0 && cell.born == cell.at {
            // The first word: as if it had been so for its age.
            let known = u128::from(age.0.min(self.long.0));
            cell.short = x;
            let long = |v: u64| narrow(u128::from(v) * known / u128::from(self.long.0.max(1)));
            cell.long = long(x);
            // As many words like this one as fit into its age, or what an average remembers.
            let each = |half: Picos| {
                let words = age.0.min(half.0.saturating_mul(2)) / over.0.max(1);
                one / words.max(1)
            };
            cell.one = [each(self.short), long(each(self.long))];
            cell.born = cell.born.min(now.saturating_sub(age));
        } else {
            let dt = now.saturating_sub(cell.at).max(least);
            let [short, long] = cell.one;
            let falls = falls.after(dt, self);
            (cell.short, cell.one[0]) = blend((cell.short, short), (x, one), &falls[0]);
            (cell.long, cell.one[1]) = blend((cell.long, long), (x, one), &falls[1]);
        }
        cell.at = now;
    }
}

/// What one of a window's observations counts for, of which `pages` pages have the rate `x`: each as often
/// as it counts itself, so that chance is that of the few that count most.
fn one_of(x: Rate, pages: u64, cell: &Cell) -> u64 {
    if x == 0 {
        return 0;
    }
    // Squares of the sum over squares: how many alike ones tell as much.
    let sum = u128::from(cell.sum);
    let all = u128::from(x) * u128::from(pages);
    let one = cell.squares.checked_div(sum).unwrap_or(0).clamp(1, sum.max(1));
    // What does not fit is no rate that memory has.
    let product = all.checked_mul(one).map(|p| p / sum.max(1));
    narrow(product.unwrap_or(all / (sum / one).max(1)))
}

/// The memory of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct HeatMap {
    cells: BTreeMap<u64, Cell>,
    /// The largest blocks in which observations cut stretches out, in pages; 0 where none did.
    grain: u64,
    /// Chunks whose pages are told apart.
    tallies: usize,
}

impl HeatMap {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }
    /// In as many stretches as take the same memory and time, those whose pages are told apart being several.
    pub(super) fn weight(&self) -> usize {
        self.cells.len() + self.tallies * (tally::STRETCHES - 1)
    }
    /// Blocks of so many pages were compared with each other, as a power of two; `None` where none were.
    pub(super) fn unit(&self) -> Option<u32> {
        self.grain.checked_ilog2()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (Span, &Cell)> {
        self.cells.iter().map(|(s, c)| (Span { start: *s, end: c.end }, c))
    }

    /// A border at `at`.
    fn cut(&mut self, at: u64) {
        let Some((&start, cell)) = self.cells.range_mut(..at).next_back() else { return };
        if cell.end <= at {
            return;
        }
        let whole = cell.end - start;
        let left = at - start;
        let mut right = cell.part(whole - left, whole);
        let right_end = right.end;
        cell.place = cell.place.as_ref().map(|p| p.share(left, whole));
        cell.earns = Earns::part(cell.earns.as_deref(), left, whole);
        let part = narrow(u128::from(cell.sum) * u128::from(left) / u128::from(whole));
        right.sum = cell.sum - part;
        cell.sum = part;
        let part =
            (u128::from(cell.nr) * u128::from(left) + u128::from(whole / 2)) / u128::from(whole);
        let part = u32::try_from(part).unwrap_or(cell.nr).min(cell.nr);
        right.nr = cell.nr - part;
        cell.nr = part;
        let part = cell.squares / u128::from(whole) * u128::from(left);
        right.squares = cell.squares - part;
        cell.squares = part;
        cell.end = at;
        if let (Some(left), Some(right)) = (&mut cell.tally, &mut right.tally) {
            left.keep(PageSet::of(Span { start, end: at }), whole);
            right.keep(PageSet::of(Span { start: at, end: right_end }), whole);
            self.tallies += 1;
        }
        self.cells.insert(at, right);
    }

    /// Fills the gaps of a span with cells, cuts at its ends, and changes all in it.
    pub(super) fn paint(&mut self, span: Span, now: Picos, f: impl FnMut(&mut Cell)) {
        if span.start >= span.end {
            return;
        }
        let mut f = f;
        // What is told again has its borders already.
        if let Some(c) = self.cells.get_mut(&span.start).filter(|c| c.end == span.end) {
            return f(c);
        }
        self.cut(span.start);
        self.cut(span.end);
        let mut gaps = Vec::new();
        let mut at = span.start;
        for (&s, c) in self.cells.range(span.start..span.end) {
            if s > at {
                gaps.push((at, s));
            }
            at = c.end;
        }
        if at < span.end {
            gaps.push((at, span.end));
        }
        for (s, e) in gaps {
            self.cells.insert(s, Cell::new(e, now));
        }
        self.each(span, f);
    }

    /// Changes what is there of a span, without cutting or filling.
    pub(super) fn each(&mut self, span: Span, mut f: impl FnMut(&mut Cell)) {
        if span.start < span.end {
            self.cells.range_mut(span.start..span.end).for_each(|(_, c)| f(c));
        }
    }

    /// Cuts at the ends of a span, then changes what is there of it.
    pub(super) fn change(&mut self, span: Span, f: impl FnMut(&mut Cell)) {
        self.cut(span.start);
        self.cut(span.end);
        self.each(span, f);
    }

    /// A region of one heat. Returns what its accesses earned, of memory that was moved.
    pub(super) fn region(&mut self, span: Span, told: Told, now: Picos, t: &Scales) -> i128 {
        let (mut start, mut came) = (span.start, 0i128);
        let mut falls = Falls::default();
        self.paint(span, now, |c| {
            let pages = c.end - start;
            // Of the aggregations since the last word this one was told, for all of them.
            let since = now.saturating_sub(c.heard).min(t.hold).max(told.over);
            let accesses = u128::from(told.rate) * u128::from(pages);
            let milli = accesses.saturating_mul(u128::from(since.0)) / SECOND;
            came = came.saturating_add(c.earned(pages, milli, now));
            start = c.end;
            (c.whole, c.heard, c.last) = (true, now, Some(told.rate));
            t.update(c, told, now, Picos::ZERO, &mut falls);
        });
        came
    }

    /// The cell of a page, cut out in blocks of `grain`, a power of two.
    pub(super) fn at_page(&mut self, vpn: u64, grain: u64, now: Picos) -> Option<&mut Cell> {
        self.sampled(vpn, grain, now).map(|(_, cell)| cell)
    }

    /// The same, with its pages.
    pub(super) fn sampled(&mut self, vpn: u64, grain: u64, now: Picos) -> Option<(u64, &mut Cell)> {
        let start = vpn & !(grain - 1);
        let end = start.checked_add(grain)?;
        self.grain = self.grain.max(grain);
        let before = self.cells.range(..=vpn).next_back().map(|(&s, c)| (s, c.end));
        let Some((s, e)) = before.filter(|(_, e)| *e > vpn) else {
            let from = start.max(before.map_or(0, |(_, e)| e));
            let to = self.cells.range(vpn..).next().map_or(end, |(s, _)| end.min(*s));
            let cell = self.cells.entry(from).or_insert_with(|| Cell::new(to, now));
            return Some((cell.end - from, cell));
        };
        let mut from = s;
        if e - s > grain {
            if s < start {
                self.cut(start);
                from = start;
            }
            if end < e {
                self.cut(end);
            }
        }
        let cell = self.cells.get_mut(&from)?;
        Some((cell.end - from, cell))
    }

    /// What is there of a span. Of a chunk whose pages are told apart, and that is named in part, it is told
    /// which pages; others are cut at the ends.
    pub(super) fn visit(&mut self, span: Span, mut f: impl FnMut(u64, &mut Cell, Option<PageSet>)) {
        for at in [span.start, span.end] {
            let inside = self.cells.range(..at).next_back().filter(|(_, c)| c.end > at);
            if inside.is_some_and(|(_, c)| c.tally.is_none()) {
                self.cut(at);
            }
        }
        let before = self.cells.range(..=span.start).next_back();
        let first = before.map_or(span.start, |(&start, _)| start);
        for (&start, c) in self.cells.range_mut(first..span.end) {
            let named = Span { start: start.max(span.start), end: c.end.min(span.end) };
            if named.start < named.end {
                let pages = c.tally.is_some().then(|| PageSet::of(named));
                f(start, c, pages);
            }
        }
    }

    /// A chunk's pages are told apart from now on.
    pub(super) fn begin_tally(&mut self) {
        self.tallies += 1;
    }

    /// Pages are told apart no more.
    fn take_together(&mut self, mut which: impl FnMut(u64, &Cell) -> bool) {
        self.tallies = 0;
        for (&start, c) in &mut self.cells {
            if c.tally.is_some() && which(start, c) {
                c.take_together(start);
            }
            self.tallies += usize::from(c.tally.is_some());
        }
    }

    /// Closes a window of samples, which began at `since`: silence counts as no access, and
    /// of what is new it has been heard since `watched`.
    pub(super) fn fold_samples(&mut self, since: Picos, watched: Picos, now: Picos, t: &Scales) {
        let window = now.saturating_sub(since);
        let mut falls = Falls::default();
        for (start, c) in &mut self.cells {
            let pages = c.end - start;
            let x = count_rate(c.sum, pages, window);
            if !c.told {
                (c.born, c.at) = (c.born.min(watched), since);
            }
            let told = Told { rate: x, one: one_of(x, pages, c), over: window, age: window };
            t.update(c, told, now, Picos::ZERO, &mut falls);
            c.begin();
        }
    }

    /// Fills the gaps between what was told with memory of which nothing was, the shortest
    /// first: a process has so many pages, and those that are not known must be somewhere.
    ///
    /// Source: specs/engine.md#memory.
    pub(super) fn fill(&mut self, resident: u64, now: Picos) {
        let mut known = 0u64;
        let mut gaps = Vec::new();
        let mut end = None;
        for (&start, c) in &self.cells {
            let pages = c.place.as_ref().map_or(c.end - start, Place::present);
            known = known.saturating_add(pages);
            if let Some(e) = end.filter(|e| *e < start) {
                gaps.push((start - e, e));
            }
            end = Some(c.end);
        }
        gaps.sort_unstable();
        for (pages, start) in gaps {
            known = known.saturating_add(pages);
            if known > resident {
                return;
            }
            self.cells.insert(start, Cell::new(start + pages, now));
        }
    }

    /// Closes a window of faults: silence says nothing, as the scan may not have
    /// come by.
    pub(super) fn fold_faults(&mut self, now: Picos, least: Picos, t: &Scales) {
        let mut falls = Falls::default();
        for (start, c) in &mut self.cells {
            if c.nr > 0 {
                let x = c.sum / (c.end - start).max(u64::from(c.nr));
                let one = one_of(x, c.end - start, c);
                let told = Told { rate: x, one, over: least, age: least };
                t.update(c, told, now, least, &mut falls);
                c.begin();
            }
        }
    }

    /// What was expected of memory that went up within the horizon, as far as it is over, and what came.
    /// Of what has been up for a horizon no more is looked for; that is the first of both sums.
    ///
    /// Source: specs/engine.md#kept.
    pub(super) fn kept(&mut self, now: Picos, horizon: Picos) -> [[Kept; Class::ALL]; 2] {
        let [mut ended, mut stays] = [[Kept::default(); Class::ALL]; 2];
        let mut note = |e: &Earns| {
            if now > e.until {
                if e.each > 0 {
                    ended[e.class.index()].add(e.kept);
                }
                return false;
            }
            if e.each > 0 {
                let left = e.until.saturating_sub(now).0.min(horizon.0);
                let part = Kept { came: 0, ..e.kept }.part(horizon.0 - left, horizon.0);
                stays[e.class.index()].add(Kept { came: e.kept.came, ..part });
            }
            true
        };
        for c in self.cells.values_mut() {
            if let Some(tally) = &mut c.tally {
                tally.kept(&mut note);
            }
            if c.earns.as_deref().is_some_and(|e| !note(e)) {
                c.earns = None;
            }
        }
        [ended, stays]
    }

    /// Takes neighbours together that look alike, then ever more unlike ones until
    /// there are at most `limit`. Says whether unlike ones were taken together.
    ///
    /// Source: specs/engine.md#memory.
    pub(super) fn tidy(&mut self, limit: usize, now: Picos, t: &Scales) -> bool {
        let old = t.long.0.saturating_mul(10);
        // What was observed before that counts a quarter: where it was is not kept apart.
        let quiet = Picos(now.0.saturating_sub(t.long.0.saturating_mul(2)));
        if self.tallies > 0 {
            let on_one = |c: &Cell| c.place.as_ref().is_none_or(|p| p.on.len() <= 1);
            self.take_together(|_, c| c.heard < quiet && on_one(c));
        }
        self.merge(3, false, quiet, t, |c| {
            let silent = now.saturating_sub(c.at);
            c.trouble != Trouble::default() || c.place.is_some() || silent.0 < old
        });
        if self.weight() > limit && self.tallies > 0 {
            self.keep_hottest_apart(limit, now, t);
        }
        // An eighth, a quarter, a half of the hotter one; then anything, in pairs.
        for tolerance in [2, 1] {
            if self.weight() <= limit {
                return false;
            }
            self.merge(tolerance, false, quiet, t, |_| true);
        }
        let coarse = self.weight() > limit;
        while self.weight() > limit.max(1) {
            let before = self.cells.len();
            self.merge(0, true, quiet, t, |_| true);
            if self.cells.len() == before {
                self.drop_coldest(limit, now, t);
                break;
            }
        }
        coarse
    }

    /// Of chunks whose pages are told apart, no more stay so than the limit allows: the hottest.
    fn keep_hottest_apart(&mut self, limit: usize, now: Picos, t: &Scales) {
        let apart = self.cells.iter().filter(|(_, c)| c.tally.is_some());
        let mut by_heat: Vec<(Rate, u64)> = apart.map(|(s, c)| (t.heat(c, now), *s)).collect();
        by_heat.sort_unstable_by(|a, b| b.cmp(a));
        let most = limit.saturating_sub(self.cells.len()) / (tally::STRETCHES - 1);
        let Some(&last) = most.checked_sub(1).and_then(|i| by_heat.get(i)) else {
            return self.take_together(|_, _| true);
        };
        self.take_together(|start, c| (t.heat(c, now), start) < last);
    }

    /// Takes together what is in one chunk: no stretch has a border inside of one but where memory ends.
    pub(super) fn join_chunks(&mut self, t: &Scales) {
        self.take_together(|_, _| true);
        let borders = self.cells.iter().flat_map(|(&start, c)| {
            [start.div_ceil(CHUNK).saturating_mul(CHUNK), c.end / CHUNK * CHUNK]
                .into_iter()
                .filter(move |at| (start + 1..c.end).contains(at))
        });
        for at in borders.collect::<Vec<_>>() {
            self.cut(at);
        }
        let mut last: Option<(u64, &mut Cell)> = None;
        for (&start, cell) in &mut self.cells {
            match &mut last {
                // Neither goes beyond it.
                Some((s, before))
                    if before.end == start && *s / CHUNK == (cell.end - 1) / CHUNK =>
                {
                    absorb(*s, before, start, std::mem::take(cell), t);
                }
                _ => last = Some((start, cell)),
            }
        }
        self.cells.retain(|_, c| c.end > 0);
    }

    /// Stretches that touch nobody can't be merged: the coldest are forgotten.
    fn drop_coldest(&mut self, limit: usize, now: Picos, t: &Scales) {
        let mut by_heat: Vec<(Rate, u64)> =
            self.cells.iter().map(|(s, c)| (t.heat(c, now), *s)).collect();
        by_heat.sort_unstable();
        let drop = by_heat.len().saturating_sub(limit.max(1));
        for (_, start) in &by_heat[..drop] {
            self.cells.remove(start);
        }
    }

    /// One pass over neighbours whose heat differs by at most a 2^`shift`-th, or which were not
    /// observed since `quiet`; those that are not worth keeping are forgotten on the way.
    fn merge(
        &mut self,
        shift: u32,
        pairs: bool,
        quiet: Picos,
        t: &Scales,
        mut keep: impl FnMut(&mut Cell) -> bool,
    ) {
        let mut last: Option<(u64, &mut Cell)> = None;
        let (mut free, mut gone, mut fewer) = (true, 0, 0);
        for (&start, cell) in &mut self.cells {
            // A cell that was taken out ends at 0, where none can end.
            if !keep(cell) {
                *cell = Cell::default();
                gone += 1;
                continue;
            }
            match &mut last {
                Some((s, before))
                    if before.end == start
                        && free
                        && match before.tally.is_some() || cell.tally.is_some() {
                            true => belong(*s, before, cell),
                            false => pairs || alike(before, cell, shift, quiet),
                        } =>
                {
                    let unlike =
                        !near(before.short, cell.short, 3) || !near(before.long, cell.long, 3);
                    let tallies = usize::from(before.tally.is_some() && cell.tally.is_some());
                    absorb(*s, before, start, std::mem::take(cell), t);
                    fewer += tallies;
                    before.unlike |= unlike;
                    free = !pairs;
                    gone += 1;
                }
                _ => {
                    free = true;
                    last = Some((start, cell));
                }
            }
        }
        self.tallies -= fewer.min(self.tallies);
        // One by one where few go; else the map is built anew, without comparing again.
        if gone > self.cells.len() / 4 {
            let all = std::mem::take(&mut self.cells);
            self.cells = all.into_iter().filter(|(_, c)| c.end > 0).collect();
        } else if gone > 0 {
            self.cells.retain(|_, c| c.end > 0);
        }
    }
}

/// They differ by at most a 2^`shift`-th of the larger one.
fn near(x: u64, y: u64, shift: u32) -> bool {
    x.abs_diff(y) <= x.max(y) >> shift
}

fn alike(a: &Cell, b: &Cell, shift: u32, quiet: Picos) -> bool {
    let place = match (&a.place, &b.place) {
        (None, None) => true,
        (Some(p), Some(q)) => p.alike(q),
        _ => false,
    };
    let heat = near(a.short, b.short, shift)
        && near(a.long, b.long, shift)
        && a.from.map(|f| f.0) == b.from.map(|f| f.0);
    place
        && (heat || a.heard.max(b.heard) < quiet)
        && a.trouble == b.trouble
        && a.earns.as_ref().map(|e| e.each) == b.earns.as_ref().map(|e| e.each)
}

/// Of pages that are told apart, what was cut out of their chunk for a while belongs together.
fn belong(start: u64, a: &Cell, b: &Cell) -> bool {
    start / CHUNK == b.end.saturating_sub(1) / CHUNK
        && a.place.is_some() == b.place.is_some()
        && a.trouble == b.trouble
}

/// What is known of a stretch's pages: of one whose pages are alike, each as the others.
fn tally_of(start: u64, cell: &Cell) -> Tally {
    if let Some(tally) = &cell.tally {
        return (**tally).clone();
    }
    let span = Span { start, end: cell.end };
    let pages = span.pages().0;
    let nr = cell.seen_so_far(pages);
    let (place, earns) = (cell.place.as_ref(), cell.earns.as_deref());
    if cell.pooled {
        return Tally::new(span, place, earns, nr, cell.at);
    }
    let mut tally = Tally::new(span, place, earns, [0; 2], cell.at);
    tally.count(PageSet::of(span), nr.map(|n| n / u128::from(pages)));
    tally
}

/// `b` begins where `a` ends and becomes part of it.
fn absorb(a_start: u64, a: &mut Cell, b_start: u64, mut b: Cell, t: &Scales) {
    let (na, nb) = (a.end - a_start, b.end - b_start);
    if a.tally.is_some() || b.tally.is_some() {
        let mut all = tally_of(a_start, a);
        all.join(tally_of(b_start, &b), t);
        a.tally = Some(Box::new(all));
        (a.earns, b.earns) = (None, None);
    }
    let share = |avg: Rate, pages: u64| narrow(u128::from(avg) * u128::from(pages));
    a.one = [
        weighted((a.one[0], share(a.short, na)), (b.one[0], share(b.short, nb))),
        weighted((a.one[1], share(a.long, na)), (b.one[1], share(b.long, nb))),
    ];
    a.told |= b.told;
    a.whole |= b.whole;
    a.pooled |= b.pooled;
    // What was cut out of such a stretch is none.
    a.unlike = (a.unlike && na > CHUNK) || (b.unlike && nb > CHUNK);
    let mean = |x: u64, y: u64| weighted((x, na), (y, nb));
    a.earns = Earns::together(a.earns.take(), na, b.earns, nb);
    a.end = b.end;
    a.short = mean(a.short, b.short);
    a.long = mean(a.long, b.long);
    a.at = a.at.max(b.at);
    a.heard = a.heard.max(b.heard);
    a.last = match (a.last, b.last) {
        (Some(x), Some(y)) => Some(mean(x, y)),
        (x, y) => x.or(y),
    };
    a.born = a.born.min(b.born);
    a.sum = a.sum.saturating_add(b.sum);
    a.nr = a.nr.saturating_add(b.nr);
    a.squares = a.squares.saturating_add(b.squares);
    if b.from.map(|f| f.1) > a.from.map(|f| f.1) {
        a.from = b.from;
    }
    // Known in part is not known.
    a.place = match (a.place.take(), b.place) {
        (Some(mut p), Some(q)) => {
            p.at = p.at.min(q.at);
            q.on.iter().for_each(|(n, pages)| p.add(*n, *pages));
            Some(p)
        }
        _ => None,
    };
    // What must not be moved stays so, also together with what may.
    a.trouble.forbidden |= b.trouble.forbidden;
    a.trouble.busy = a.trouble.busy.max(b.trouble.busy);
    a.trouble.until = a.trouble.until.max(b.trouble.until);
    a.trouble.suspect = a.trouble.suspect.or(b.trouble.suspect);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::place::OnNodes;
    use crate::splitmix::SplitMix;

    const SCALES: Scales =
        Scales { short: Picos::from_secs(1), long: Picos::from_secs(8), hold: Picos::from_secs(2) };

    fn show(map: &HeatMap, now: Picos) -> String {
        let part = |(s, c): (Span, &Cell)| {
            let on = c.place.iter().flat_map(|p| p.on.iter()).map(|(n, p)| format!(" {p} on {n}"));
            format!(
                "{}-{} {}{}",
                s.start,
                s.end,
                SCALES.heat(c, now) / 1000,
                on.collect::<String>()
            )
        };
        map.iter().map(part).collect::<Vec<_>>().join(" | ")
    }

    fn at(s: u64) -> Picos {
        Picos::from_secs(s)
    }

    fn region(map: &mut HeatMap, start: u64, end: u64, rate: u64, now: u64) {
        let over = Picos::from_ms(100);
        let told = Told { rate: rate * 1000, one: 10_000 * (end - start), over, age: at(100) };
        map.region(Span { start, end }, told, at(now), &SCALES);
    }

    // specs/engine.md#heat: the table above.
    #[test]
    fn one_unit_for_all_sources() {
        let every = Picos::from_ms(5);
        assert_eq!(region_rate(20, 20, every), Some(200_000));
        assert_eq!(region_rate(30, 20, every), Some(200_000));
        assert_eq!(region_rate(1, 20, every), Some(10_000));
        assert_eq!(region_rate(0, 20, every), Some(0));
        assert_eq!(region_rate(1, 0, every), None);
        assert_eq!(region_rate(1, 1, Picos(0)), None);
        assert_eq!(fault_rate(Picos::from_ms(4)), 250_000);
        assert_eq!(fault_rate(Picos(0)), 1_000_000_000);
        assert_eq!(count_rate(3_000_000, 1, at(1)), 3_000_000);
        assert_eq!(count_rate(3_000_000, 512, at(2)), 2_929);
        assert_eq!(count_rate(u64::MAX, 1, Picos(1)), MOST_RATE);
    }

    // specs/engine.md#averages
    #[test]
    fn heat_halves_with_its_half_life() {
        assert_eq!(decay(1000, at(0), at(1)), 1000);
        assert_eq!(decay(1000, Picos::from_ms(500), at(1)), 750);
        assert_eq!(decay(1000, at(3), at(1)), 125);
        assert_eq!(decay(u64::MAX, Picos(u64::MAX), Picos(1)), 0);
        let fall = |s| Fall::new(at(s), at(1));
        assert_eq!(mix(0, 800, &fall(1)), 400);
        assert_eq!(mix(800, 0, &fall(2)), 200);
        let mut map = HeatMap::default();
        region(&mut map, 0, 10, 200, 10);
        let heat = |s| show(&map, at(s));
        assert_eq!(heat(12), "0-10 200", "two seconds of silence are no coldness");
        assert_eq!(heat(13), "0-10 143", "one more: (100 + 187) / 2");
        assert_eq!(heat(28), "0-10 25", "16 half-lives of the one, two of the other");
    }

    // The same with one division for several values, to the last digit.
    #[test]
    fn several_values_fall_as_each_does() {
        let mut chance = SplitMix::new(3);
        for _ in 0..100_000 {
            // Numbers of all sizes.
            let [v, dt, half] = [0; 3].map(|_| chance.next() >> chance.below(64));
            let (dt, half) = (Picos(dt), Picos(half));
            assert_eq!(Fall::new(dt, half).left(v), decay(v, dt, half), "{v} {dt:?} {half:?}");
        }
    }

    // specs/engine.md#last-word
    #[test]
    fn the_last_word_of_a_region_bounds_its_heat() {
        let mut map = HeatMap::default();
        region(&mut map, 0, 10, 200, 10);
        region(&mut map, 0, 10, 20, 11);
        let cell = map.iter().next().unwrap().1.clone();
        assert_eq!(cell.borne_out(110_000), (20_000, 110_000), "it has cooled");
        assert_eq!(cell.borne_out(10_000), (10_000, 20_000), "it has become hot");
        let sampled = map.at_page(20, 1, at(11)).unwrap();
        assert_eq!(sampled.borne_out(7), (7, 7), "one sample is no word about a rate");
    }

    // specs/engine.md#memory: old, new, expected.
    //   |----- 50 -----|                 0-100
    //         |-------- 200 --------|    60-160
    //   |- 50 -|--------- 200 ------|
    #[test]
    fn regions_cut_and_neighbours_grow_together() {
        let mut map = HeatMap::default();
        region(&mut map, 0, 100, 50, 1);
        region(&mut map, 60, 160, 200, 1);
        assert_eq!(show(&map, at(1)), "0-60 50 | 60-100 50 | 100-160 200", "the same moment");
        region(&mut map, 0, 60, 50, 60);
        region(&mut map, 60, 160, 200, 60);
        assert_eq!(show(&map, at(60)), "0-60 50 | 60-100 199 | 100-160 200");
        assert!(!map.tidy(100, at(60), &SCALES));
        assert_eq!(show(&map, at(60)), "0-60 50 | 60-160 199");
        assert!(map.tidy(1, at(60), &SCALES), "beyond the limit unlike ones too");
        assert_eq!(show(&map, at(60)), "0-160 143");
    }

    // specs/engine.md#memory: shares of places follow the cuts; the sum stays.
    #[test]
    fn places_are_shared_out() {
        let mut map = HeatMap::default();
        let both = Span { start: 0, end: 100 };
        map.paint(both, at(1), |c| {
            c.place = Some(Place { at: at(1), on: OnNodes::one(NodeId(0), 100) });
        });
        map.change(Span { start: 0, end: 30 }, |c| {
            c.place.as_mut().unwrap().shift(NodeId(0), NodeId(2), 100);
        });
        assert_eq!(show(&map, at(1)), "0-30 0 30 on 2 | 30-100 0 70 on 0");
        map.tidy(2, at(1), &SCALES);
        assert_eq!(map.len(), 2, "on different nodes: not alike");
    }

    // specs/engine.md#memory: blocks of the grain, within what is there.
    #[test]
    fn a_sample_cuts_out_its_block() {
        let mut map = HeatMap::default();
        region(&mut map, 0, 100, 50, 1);
        let cell = map.at_page(37, 8, at(1)).unwrap();
        assert_eq!(cell.end, 40);
        map.at_page(99, 8, at(1)).unwrap();
        map.at_page(101, 8, at(1)).unwrap();
        assert!(map.at_page(u64::MAX, 8, at(1)).is_none(), "beyond the last block");
        let spans: Vec<_> = map.iter().map(|(s, _)| (s.start, s.end)).collect();
        assert_eq!(spans, [(0, 32), (32, 40), (40, 96), (96, 100), (100, 104)]);
    }

    // specs/engine.md#kept: 100 pages went up a quarter of a horizon ago and were to save 800 in it.
    #[test]
    fn what_comes_is_held_against_what_was_expected_so_far() {
        let mut map = HeatMap::default();
        let all = Span { start: 0, end: 100 };
        let (until, horizon) = (at(8), at(8));
        let kept = Kept { expected: 800, came: 0 };
        let earns = Earns { until, each: 5, kept, class: Class::of(4, 1) };
        map.paint(all, at(0), |c| c.earns = Some(Box::new(earns)));
        let hit = map.at_page(30, 1, at(1)).unwrap();
        assert_eq!(hit.earned(1, 3000, at(1)), 15, "three accesses of 5");
        let of = |sums: [[Kept; Class::ALL]; 2]| sums.map(|s| (s[2].expected, s[2].came));
        assert_eq!(of(map.kept(at(2), horizon)), [(0, 0), (200, 15)]);
        map.tidy(1, at(2), &SCALES);
        assert_eq!((map.len(), of(map.kept(at(4), horizon))), (1, [(0, 0), (400, 15)]), "as one");
        assert_eq!(of(map.kept(at(9), horizon)), [(800, 15), (0, 0)], "no more comes");
        assert_eq!(of(map.kept(at(9), horizon)), [(0, 0), (0, 0)], "said once");
    }

    // specs/engine.md#memory: far apart, so that none can be taken together.
    #[test]
    fn memory_is_bounded_where_nothing_touches() {
        let mut map = HeatMap::default();
        for i in 0..100 {
            region(&mut map, i * 10, i * 10 + 1, i, 1);
        }
        assert!(map.tidy(3, at(1), &SCALES));
        assert_eq!(show(&map, at(1)), "970-971 97 | 980-981 98 | 990-991 99", "the hottest stay");
    }
}
