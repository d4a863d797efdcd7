//! A chunk whose pages are told apart: how often each was observed, and where it is.
//!
//! A page that is told apart from its chunk would be two stretches more, itself and the rest, and
//! stretches cost memory and time for every decision. So pages of a chunk have a table instead, with
//! two bytes for each: observations, halved once per short and per long half-life, in eighths. The few that have
//! more than a byte holds are told beside it.
//!
//! ```text
//! page      0   1   2   3 …  511
//! short     0   8   0  13      0     a sample now adds 8, one half a half-life after a halving 11
//! long      0   9   0  40      8
//! on 0      .   1   .   1      .     in none: somewhere, as the counts of the chunk's place have it
//! on 1      1   .   1   .      1
//! ```
//!
//! Pages that were observed about as often and are on the same node are judged together, as a *row*:
//! a chunk has a handful of them.
//!
//! Source: specs/engine.md#tally.

use super::earns::{Class, Earns, Kept};
use super::fade::{Scales, decay};
use super::page_set::PageSet;
use super::pairs::CHUNK;
use super::place::Place;
use crate::policy::span::Span;
use crate::units::{NodeId, Picos};

const PAGES: usize = CHUNK as usize;
/// What an observation adds right after a halving.
const SEEN: u64 = 8;
/// From an eighth of an observation to 2^-32 of it.
const FINE: u32 = 29;
/// What is carried from a byte that would overflow.
const CARRY: u16 = 128;
/// Levels of a count: none, and one for each power of two, of which the last is all above.
const LEVELS: usize = 24;
/// As many stretches take as much memory, and as much time for a decision.
pub(super) const STRETCHES: usize = 8;

/// Pages of a chunk that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) set: PageSet,
    /// Where they are, if that is known of each.
    pub(super) on: Option<NodeId>,
    /// Observations of each in the short and in the long average, as 2^-32.
    pub(super) nr: [u64; 2],
}

/// Pages that were moved, and what that earns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moved {
    set: PageSet,
    earns: Earns,
}

/// A page that was observed more often than its bytes can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried {
    /// Its number in the chunk.
    page: u16,
    /// What has to be added to its bytes.
    more: [u32; 2],
}

/// What is known of a chunk's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Observations of each page in the short and in the long average, in eighths.
    seen: [[u8; PAGES]; 2],
    /// Few pages have more; by rising numbers.
    carried: Vec<Carried>,
    /// The same of those before its pages were told apart: of which page they were, nobody knows.
    before: [u64; 2],
    /// When both were halved last.
    since: [Picos; 2],
    /// Where pages are; of those in none it isn't known. No page is in two.
    on: Vec<(NodeId, PageSet)>,
    moved: Vec<Moved>,
}

impl Tally {
    /// Of pages that were alike so far.
    ///
    /// * `before` – observations of any of them until now, by the short and the long average, as 2^-32.
    pub(super) fn new(
        pages: Span,
        place: Option<&Place>,
        earns: Option<&Earns>,
        before: [u128; 2],
        now: Picos,
    ) -> Self {
        let all = PageSet::of(pages);
        let moved = earns.map(|e| Moved { set: all, earns: *e }).into_iter().collect();
        let before = before.map(|nr| u64::try_from(nr >> FINE).unwrap_or(u64::MAX));
        let (seen, since) = ([[0; PAGES]; 2], [now; 2]);
        let mut tally = Self { seen, carried: Vec::new(), before, since, on: Vec::new(), moved };
        if let Some(place) = place {
            tally.heed(place, all);
        }
        tally
    }

    /// Halves counts as often as is due.
    fn age(&mut self, now: Picos, scales: &Scales) {
        for i in 0..2 {
            let half = scales.half(i).0.max(1);
            let past = now.saturating_sub(self.since[i]).0;
            if past < half {
                continue;
            }
            let times = u32::try_from(past / half).unwrap_or(u32::MAX);
            self.since[i] = Picos(now.0 - past % half);
            self.before[i] = self.before[i].checked_shr(times).unwrap_or(0);
            for n in &mut self.seen[i] {
                *n = n.checked_shr(times).unwrap_or(0);
            }
            for c in &mut self.carried {
                c.more[i] = c.more[i].checked_shr(times).unwrap_or(0);
            }
            self.carried.retain(|c| c.more != [0; 2]);
        }
    }

    /// A page's count rises.
    fn add(&mut self, which: usize, page: u16, adds: u32) {
        let n = &mut self.seen[which][usize::from(page)];
        let all = u32::from(*n) + adds;
        if let Ok(all) = u8::try_from(all) {
            *n = all;
            return;
        }
        let carry = all - all % u32::from(CARRY);
        *n = (all - carry) as u8;
        let at = self.carried.binary_search_by_key(&page, |c| c.page).unwrap_or_else(|at| {
            self.carried.insert(at, Carried { page, more: [0; 2] });
            at
        });
        let more = &mut self.carried[at].more[which];
        *more = more.saturating_add(carry);
    }

    /// What a page has beyond its bytes.
    fn more(&self, page: u64) -> [u32; 2] {
        let at = self.carried.binary_search_by_key(&page, |c| u64::from(c.page));
        at.map_or([0; 2], |at| self.carried[at].more)
    }

    /// A page was observed. Returns what that access earned.
    pub(super) fn see(&mut self, vpn: u64, milli: u128, now: Picos, scales: &Scales) -> i128 {
        self.age(now, scales);
        for i in 0..2 {
            // What will be left of it by the next halving is what is left of all others.
            let half = u128::from(scales.half(i).0.max(1));
            let past = u128::from(now.saturating_sub(self.since[i]).0);
            let adds = u128::from(2 * SEEN) * half / (2 * half).saturating_sub(past).max(1);
            self.add(i, (vpn % CHUNK) as u16, adds as u32);
        }
        let its = self.moved.iter_mut().filter(|m| m.set.holds(vpn));
        its.map(|m| m.earns.came(milli, now)).fold(0, i128::saturating_add)
    }

    /// Its pages, of so many, were accessed alike. Returns what that earned.
    pub(super) fn earned(&mut self, milli: u128, pages: u64, now: Picos) -> i128 {
        let its = self.moved.iter_mut().map(|m| {
            let part = milli * u128::from(m.set.len()) / u128::from(pages.max(1));
            m.earns.came(part, now)
        });
        its.fold(0, i128::saturating_add)
    }

    /// Tells what moves earn; what need not be told again is dropped.
    pub(super) fn kept(&mut self, f: &mut impl FnMut(&Earns) -> bool) {
        self.moved.retain(|m| f(&m.earns));
    }

    /// Pages that are told apart by now: rows of those that were observed about as often.
    ///
    /// * `pages` – which there are of the chunk.
    pub(super) fn rows(&self, pages: PageSet, now: Picos, scales: &Scales, out: &mut Vec<Row>) {
        const NONE: u16 = u16::MAX;
        let mut index = [NONE; LEVELS * LEVELS];
        let mut kinds: Vec<(PageSet, [u64; 2])> = Vec::with_capacity(16);
        let [short, long] = &self.seen;
        let mut observed = PageSet::default();
        let mut big = PageSet::default();
        self.carried.iter().for_each(|c| big.insert(u64::from(c.page)));
        let any_big = |first: u64| (first..first + 8).any(|page| big.holds(page));
        let words = short.chunks_exact(8).zip(long.chunks_exact(8));
        for (first, (a, b)) in (0u64..).step_by(8).zip(words) {
            // Most pages were not.
            if a == [0; 8] && b == [0; 8] && (big.is_empty() || !any_big(first)) {
                continue;
            }
            for (at, (&a, &b)) in (first..).zip(a.iter().zip(b)) {
                if (a, b) == (0, 0) && !big.holds(at) {
                    continue;
                }
                let more = if big.holds(at) { self.more(at) } else { [0; 2] };
                let (a, b) = (u32::from(a) + more[0], u32::from(b) + more[1]);
                let level =
                    |n: u32| n.checked_ilog2().map_or(0, |l| (l as usize + 1).min(LEVELS - 1));
                let kind = &mut index[level(a) * LEVELS + level(b)];
                if *kind == NONE {
                    *kind = kinds.len() as u16;
                    kinds.push((PageSet::default(), [0; 2]));
                }
                let (set, sums) = &mut kinds[usize::from(*kind)];
                set.insert(at);
                observed.insert(at);
                *sums = [sums[0] + u64::from(a), sums[1] + u64::from(b)];
            }
        }
        kinds.push((pages.without(&observed), [0; 2]));
        for (all, sums) in kinds {
            let nr = [0, 1].map(|i| {
                let past = now.saturating_sub(self.since[i]);
                decay(sums[i] << FINE, past, scales.half(i)) / all.len().max(1)
            });
            let mut rest = all.and(&pages);
            for (node, there) in &self.on {
                let set = rest.and(there);
                rest = rest.without(there);
                if !set.is_empty() {
                    out.push(Row { set, on: Some(*node), nr });
                }
            }
            if !rest.is_empty() {
                out.push(Row { set: rest, on: None, nr });
            }
        }
    }

    /// Pages of which it isn't known where they are.
    fn unknown(&self, pages: PageSet) -> PageSet {
        self.on.iter().fold(pages, |rest, (_, there)| rest.without(there))
    }

    /// Where those are of which it isn't known by page, and how many pages they share.
    pub(super) fn rest(&self, pages: PageSet, place: &Place) -> (Vec<(NodeId, u64)>, u64) {
        let known = |node| self.on.iter().find(|(n, _)| *n == node).map_or(0, |(_, s)| s.len());
        let left = place.on.iter().map(|&(n, all)| (n, all.saturating_sub(known(n))));
        (left.filter(|(_, n)| *n > 0).collect(), self.unknown(pages).len())
    }

    /// It has been told how many of its pages are where. What is known by page stays, where but an
    /// eighth of it is contradicted.
    pub(super) fn heed(&mut self, place: &Place, pages: PageSet) {
        if let [(node, nr)] = place.on[..] {
            if nr >= pages.len() {
                self.on = vec![(node, pages)];
                return;
            }
        }
        let wrong =
            |(node, set): &(NodeId, PageSet)| set.len().saturating_sub(place.pages_on(*node));
        if self.on.iter().map(wrong).sum::<u64>() > place.present() / 8 {
            self.on.clear();
        }
    }

    /// Those pages are there, or nobody knows where.
    pub(super) fn put(&mut self, set: PageSet, node: Option<NodeId>) {
        for (_, there) in &mut self.on {
            *there = there.without(&set);
        }
        if let Some(node) = node {
            match self.on.iter_mut().find(|(n, _)| *n == node) {
                Some((_, there)) => *there = there.or(&set),
                None => self.on.push((node, set)),
            }
        }
        self.on.retain(|(_, there)| !there.is_empty());
    }

    /// How many of some pages are on a node, as far as is known.
    pub(super) fn nr_on(&self, set: PageSet, pages: PageSet, place: &Place, node: NodeId) -> u64 {
        let known = self.on.iter().find(|(n, _)| *n == node).map_or(0, |(_, s)| s.and(&set).len());
        let (rest, nr) = self.rest(pages, place);
        let there = rest.iter().find(|(n, _)| *n == node).map_or(0, |(_, all)| *all);
        known + self.unknown(pages).and(&set).len() * there / nr.max(1)
    }

    /// They were moved, and earn that from now on. Returns what is over for moves of them before.
    pub(super) fn earns(&mut self, set: PageSet, earns: Option<Earns>) -> Vec<(Class, Kept)> {
        let mut over = Vec::new();
        for m in &mut self.moved {
            let again = m.set.and(&set).len();
            if again > 0 {
                let all = m.set.len();
                if m.earns.each > 0 {
                    over.push((m.earns.class, m.earns.kept.part(again, all)));
                }
                m.set = m.set.without(&set);
                m.earns.kept = m.earns.kept.part(all - again, all);
            }
        }
        self.moved.retain(|m| !m.set.is_empty());
        if let Some(earns) = earns {
            // Moves of one direction and about as worthwhile are taken together.
            let same = |m: &&mut Moved| {
                m.earns.class == earns.class && (m.earns.each > 0) == (earns.each > 0)
            };
            match self.moved.iter_mut().find(same) {
                Some(m) => {
                    m.earns.join(m.set.len(), &earns, set.len());
                    m.set = m.set.or(&set);
                }
                None => self.moved.push(Moved { set, earns }),
            }
        }
        over
    }

    /// The same of some of its pages.
    ///
    /// * `pages` – how many there were.
    pub(super) fn keep(&mut self, set: PageSet, pages: u64) {
        self.before = self.before.map(|nr| nr * set.len() / pages.max(1));
        self.carried.retain(|c| set.holds(u64::from(c.page)));
        for (at, page) in (0..CHUNK).zip(0..PAGES) {
            if !set.holds(at) {
                self.seen.iter_mut().for_each(|seen| seen[page] = 0);
            }
        }
        self.on.iter_mut().for_each(|(_, there)| *there = there.and(&set));
        self.on.retain(|(_, there)| !there.is_empty());
        for m in &mut self.moved {
            let all = m.set.len();
            m.set = m.set.and(&set);
            m.earns.kept = m.earns.kept.part(m.set.len(), all);
        }
        self.moved.retain(|m| !m.set.is_empty());
    }

    /// Another one's pages of the same chunk come in; neither has what the other has.
    pub(super) fn join(&mut self, mut other: Self, scales: &Scales) {
        let now = [0, 1].map(|i| self.since[i].max(other.since[i]));
        for (i, now) in now.into_iter().enumerate() {
            for tally in [&mut *self, &mut other] {
                let (past, half) = (now.saturating_sub(tally.since[i]), scales.half(i));
                let left = |n: u64| decay(n, past, half);
                tally.before[i] = left(tally.before[i]);
                if past.0 > 0 {
                    tally.seen[i].iter_mut().for_each(|n| *n = left(u64::from(*n)) as u8);
                    let carried = tally.carried.iter_mut();
                    carried.for_each(|c| c.more[i] = left(u64::from(c.more[i])) as u32);
                }
            }
            self.before[i] = self.before[i].saturating_add(other.before[i]);
            for (page, n) in (0u16..).zip(other.seen[i]) {
                self.add(i, page, u32::from(n) + other.more(u64::from(page))[i]);
            }
        }
        self.since = now;
        for (node, set) in other.on {
            self.put(set, Some(node));
        }
        for m in other.moved {
            self.earns(m.set, Some(m.earns));
        }
    }

    /// Each of those pages was observed so often, in 2^-32.
    pub(super) fn count(&mut self, set: PageSet, nr: [u128; 2]) {
        for (i, nr) in nr.into_iter().enumerate() {
            let nr = u32::try_from(nr >> FINE).unwrap_or(u32::MAX / 2);
            (0..CHUNK).filter(|at| set.holds(*at)).for_each(|at| self.add(i, at as u16, nr));
        }
    }

    /// What all of its pages, of so many, earn.
    pub(super) fn all_earn(&self, pages: u64) -> Option<Box<Earns>> {
        let mut all: Option<Box<Earns>> = None;
        let mut nr = 0;
        for m in &self.moved {
            let more = m.set.len();
            all = Earns::together(all, nr, Some(Box::new(m.earns)), more);
            nr += more;
        }
        Earns::together(all, nr, None, pages.saturating_sub(nr))
    }

    /// Observations of all pages, also from before they were told apart, as 2^-32.
    pub(super) fn observations(&self, now: Picos, scales: &Scales) -> [u64; 2] {
        [0, 1].map(|i| {
            let more = self.carried.iter().map(|c| u64::from(c.more[i])).sum::<u64>();
            let seen = self.seen[i].iter().map(|n| u64::from(*n)).sum::<u64>();
            let sum = seen + more + self.before[i];
            decay(sum.min(1 << 34) << FINE, now.saturating_sub(self.since[i]), scales.half(i))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::place::OnNodes;
    use crate::splitmix::SplitMix;

    const SCALES: Scales =
        Scales { short: Picos::from_secs(1), long: Picos::from_secs(8), hold: Picos::from_secs(2) };
    const ALL: Span = Span { start: 512, end: 1024 };

    fn rows(tally: &Tally, pages: PageSet, now: Picos) -> Vec<Row> {
        let mut rows = Vec::new();
        tally.rows(pages, now, &SCALES, &mut rows);
        rows
    }

    fn fresh(now: Picos) -> Tally {
        Tally::new(ALL, None, None, [0; 2], now)
    }

    /// What an observation at one time counts for at another: linear between halvings, as heat is.
    fn worth(at: Picos, now: Picos, begun: Picos, half: Picos) -> f64 {
        let phase = |t: Picos| (t.0 - begun.0) % half.0;
        let halvings = (now.0 - begun.0) / half.0 - (at.0 - begun.0) / half.0;
        let left = |t: Picos| 1.0 - phase(t) as f64 / half.0 as f64 / 2.0;
        (0..halvings).fold(left(now) / left(at), |v, _| v / 2.0)
    }

    // specs/engine.md#tally: beside all observations, each with its time.
    #[test]
    fn counts_fall_like_averages() {
        let mut chance = SplitMix::new(8);
        for _ in 0..20 {
            let begun = Picos::from_ms(chance.below(5000));
            let mut tally = fresh(begun);
            let mut seen: Vec<(u64, Picos)> = Vec::new();
            let mut now = begun;
            for _ in 0..3000 {
                now = Picos(now.0 + chance.below(20_000_000_000));
                // One page takes half of all, more than its byte holds.
                let page = if chance.below(2) == 0 { 700 } else { 512 + chance.below(512) };
                tally.see(page, 0, now, &SCALES);
                seen.push((page, now));
            }
            tally.age(now, &SCALES);
            for row in rows(&tally, PageSet::ALL, now) {
                for i in 0..2 {
                    let of = |page: u64| -> f64 {
                        let its = seen.iter().filter(|(p, _)| *p == page);
                        its.map(|(_, at)| worth(*at, now, begun, SCALES.half(i))).sum()
                    };
                    let pages = row.set.spans(1).flat_map(|s| s.start..s.end).map(of);
                    let real = pages.sum::<f64>() / row.set.len() as f64;
                    let told = row.nr[i] as f64 / (1u64 << 32) as f64;
                    // Each halving rounds down to eighths, and so does what is added.
                    let least = real * 0.85 - 0.3;
                    assert!(told <= real + 1e-6 && told >= least, "{told} for {real}");
                }
            }
        }
    }

    // specs/engine.md#tally: whatever is cut, joined, moved and told, each page is in one row, and on one node.
    #[test]
    fn rows_hold_each_page_once() {
        let mut chance = SplitMix::new(9);
        for _ in 0..100 {
            let (mut tally, mut now) = (fresh(Picos::ZERO), Picos::ZERO);
            for _ in 0..60 {
                now = Picos(now.0 + chance.below(1_000_000_000_000));
                let from = 512 + chance.below(500);
                let set = PageSet::of(Span { start: from, end: from + 1 + chance.below(300) });
                let node = NodeId(chance.below(3) as u16);
                match chance.below(5) {
                    0 => drop(tally.see(from, 0, now, &SCALES)),
                    1 => {
                        let until = Picos(now.0 + 1);
                        let kept = Kept { expected: u128::from(set.len()) << 40, came: 0 };
                        let earn = Earns { until, each: 5, kept, class: Class::default() };
                        let again: u64 = tally.moved.iter().map(|m| m.set.and(&set).len()).sum();
                        let over = tally.earns(set, Some(earn));
                        let over = over.iter().map(|(_, k)| k.expected >> 40).sum::<u128>();
                        assert!(over.abs_diff(u128::from(again)) <= 8, "{over} over of {again}");
                        tally.put(set, Some(node));
                    }
                    2 => tally.put(set, None),
                    3 => {
                        let pages = 512 - chance.below(2) * 100;
                        let place = Place { at: now, on: OnNodes::one(node, pages) };
                        tally.heed(&place, PageSet::ALL);
                    }
                    _ => {
                        let mut other = tally.clone();
                        other.keep(set, CHUNK);
                        tally.keep(PageSet::ALL.without(&set), CHUNK);
                        tally.join(other, &SCALES);
                    }
                }
                let rows = rows(&tally, PageSet::ALL, now);
                let all = rows.iter().fold(PageSet::default(), |all, r| all.or(&r.set));
                assert_eq!(
                    (all, rows.iter().map(|r| r.set.len()).sum::<u64>()),
                    (PageSet::ALL, CHUNK)
                );
                for (i, (_, set)) in tally.on.iter().enumerate() {
                    assert!(tally.on[..i].iter().all(|(_, other)| other.and(set).is_empty()));
                }
                let moved = tally.moved.iter().map(|m| m.earns.kept.expected >> 40).sum::<u128>();
                let pages = tally.moved.iter().map(|m| u128::from(m.set.len())).sum::<u128>();
                assert!(moved.abs_diff(pages) <= 64, "{moved} expected of {pages} pages");
            }
        }
    }

    // specs/engine.md#tally: a look says how many are where, but not which.
    #[test]
    fn what_is_known_by_page_stays_unless_it_is_contradicted() {
        let mut tally = fresh(Picos::ZERO);
        let slow = Place { at: Picos(1), on: OnNodes::one(NodeId(1), 512) };
        tally.heed(&slow, PageSet::ALL);
        let first = PageSet::of(Span { start: 512, end: 612 });
        tally.put(first, Some(NodeId(0)));
        let mut place = slow;
        place.shift(NodeId(1), NodeId(0), 100);
        let on = |t: &Tally, n: u16, p: &Place| t.nr_on(first, PageSet::ALL, p, NodeId(n));
        assert_eq!((on(&tally, 0, &place), on(&tally, 1, &place)), (100, 0));
        // Ten went down behind its back: an eighth is 64.
        place.shift(NodeId(0), NodeId(1), 10);
        tally.heed(&place, PageSet::ALL);
        assert_eq!(on(&tally, 0, &place), 100);
        place.shift(NodeId(0), NodeId(1), 60);
        tally.heed(&place, PageSet::ALL);
        assert_eq!(on(&tally, 0, &place), 5, "of 30 pages anywhere, as many as of all");
    }
}
