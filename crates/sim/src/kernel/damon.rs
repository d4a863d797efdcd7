//! DAMON on address spaces: regions that are sampled, merged and split.
//!
//! One page of each region stands for all: every 5 to 40 ms its accessed bit is looked at
//! and another page's bit is cleared. After 20 looks the counts are told,
//! neighbours of like count become one region, and each region is cut in two at
//! random, so that a border inside it can be found.
//!
//! ```text
//! count   3        18   17      0          merged: 18 and 17 differ by ≤ a tenth
//!      ├───────┼───────┼────┼──────────┤   of the largest count
//!      ├───────┼────────────┼──────────┤   told
//!      ├──┼────┼────┼───────┼───────┼──┤   split
//! ```
//!
//! A cleared bit is kept for reclaim ([`crate::memory::Memory::make_old`]), as the
//! kernel does with a flag of the folio: DAMON does not make pages look cold there.
//!
//! Source: specs/sources.md#damon.

use super::{Ctx, Kernel};
use crate::random::Stream;
use crate::space::Space;
use homenode_core::policy::checks::{CHECKS, CheckInterval, aggregation};
use homenode_core::units::Picos;
use std::collections::BTreeMap;

/// Time after which the regions follow the mappings.
const UPDATE: Picos = Picos::from_secs(1);
/// Fewest and most regions of all processes together.
pub(crate) const REGIONS: (u64, u64) = (10, 1000);

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Looks at which its page had been accessed, in this aggregation.
    pub(crate) accessed: u32,
    /// In the last one.
    last: u32,
    /// Aggregations for which it has been so.
    pub(crate) age: u32,
    /// The page whose bit was cleared, in the columns; none if it is not in memory.
    sampled: Option<u32>,
}

impl Region {
    fn new(start: u64, end: u64) -> Self {
        Self { start, end, accessed: 0, last: 0, age: 0, sampled: None }
    }
    fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// DAMON's thread with its targets.
#[derive(Clone, Debug)]
pub(crate) struct Damon {
    /// By address space.
    targets: BTreeMap<usize, Vec<Region>>,
    looks: u32,
    interval: CheckInterval,
    /// Since the regions were fitted.
    since_fit: Picos,
    /// Processor time of its thread so far.
    spent: Picos,
    /// Regions after the last split, before this aggregation's.
    before: usize,
    random: Stream,
    /// What one page costs, in picoseconds.
    each: u64,
    /// The last aggregation, until somebody takes it.
    told: BTreeMap<usize, Vec<Region>>,
    /// Time between two of its looks.
    told_every: Picos,
}

impl Damon {
    pub(crate) fn new(seed: u64, each: u64) -> Self {
        Self {
            targets: BTreeMap::new(),
            looks: 0,
            interval: CheckInterval::new(),
            since_fit: Picos::ZERO,
            spent: Picos::ZERO,
            before: 0,
            random: Stream::new(seed, "damon"),
            each,
            told: BTreeMap::new(),
            told_every: CheckInterval::new().every(),
        }
    }
    /// One more process.
    pub(crate) fn add(&mut self, k: &Kernel, space: usize) {
        let ranges = k.spaces[space].as_ref().map(three_ranges).unwrap_or_default();
        let all: u64 = ranges.iter().map(|(a, b)| b - a).sum();
        let piece = (all / REGIONS.0).max(1);
        let mut regions = Vec::new();
        for (start, end) in ranges {
            let n = ((end - start) / piece).max(1);
            for i in 0..n {
                let cut = |i: u64| start + (end - start) * i / n;
                regions.push(Region::new(cut(i), cut(i + 1)));
            }
        }
        self.targets.insert(space, regions);
    }
    /// One process less.
    pub(crate) fn remove(&mut self, space: usize) {
        self.targets.remove(&space);
        self.told.remove(&space);
    }
    /// Whether there is nothing to do.
    pub(crate) fn idle(&self) -> bool {
        self.targets.is_empty()
    }
    /// The last aggregation, if it wasn't taken before, by address space, and the time between
    /// its looks.
    pub(crate) fn take(&mut self) -> (BTreeMap<usize, Vec<Region>>, Picos) {
        (std::mem::take(&mut self.told), self.told_every)
    }
    /// Time until the next look.
    pub(crate) const fn every(&self) -> Picos {
        self.interval.every()
    }
    /// homenode has moved memory.
    pub(crate) const fn moved(&mut self, now: Picos) {
        self.interval.moved(now);
    }

    /// One look at all regions, and what is due with it. Charges `ctx`.
    pub(crate) fn look(&mut self, k: &mut Kernel, ctx: &mut Ctx) {
        let begun = ctx.clock;
        self.check(k);
        self.looks += 1;
        if self.looks >= CHECKS {
            self.looks = 0;
            self.aggregate();
            self.since_fit += aggregation(self.told_every);
            if self.since_fit >= UPDATE {
                self.since_fit = Picos::ZERO;
                for (&space, regions) in &mut self.targets {
                    let ranges = three_ranges(k.spaces[space].as_ref().expect("kept by check"));
                    fit(regions, &ranges);
                }
            }
            // Between two aggregations, so that no count is of two intervals.
            if self.interval.judge(Picos(begun), self.spent) {
                self.convert_ages();
            }
        }
        self.choose(k, ctx);
        self.spent += Picos(ctx.clock - begun);
    }
    /// Who was accessed since the last look.
    fn check(&mut self, k: &mut Kernel) {
        self.targets.retain(|&space, _| k.spaces[space].is_some());
        for (&space, regions) in &mut self.targets {
            for r in regions {
                // The page may have gone, and another process's be in its place.
                let mine = |page: u32| {
                    k.memory.blocks[(page / crate::memory::BLOCK) as usize].space as usize
                        == space + 1
                };
                if let Some(page) = r.sampled.take().filter(|&p| mine(p)) {
                    r.accessed += u32::from(k.memory.is_young(page));
                }
            }
        }
    }
    /// Another page of each region, whose bit is cleared.
    fn choose(&mut self, k: &mut Kernel, ctx: &mut Ctx) {
        for (&space, regions) in &mut self.targets {
            for r in regions {
                ctx.clock += self.each;
                let vpn = r.start + self.random.below(r.pages());
                let s = k.spaces[space].as_ref().expect("kept by check");
                let Some(vma) = s.find(vpn) else { continue };
                let Some(page) = s.place(vpn, s.vmas[vma].kind.file) else { continue };
                if crate::page::Word(k.memory.words[page as usize]).resident() {
                    k.memory.make_old(page);
                    r.sampled = Some(page);
                }
            }
        }
    }

    /// Ages stay what they are in time when an aggregation takes longer or less.
    fn convert_ages(&mut self) {
        let (before, now) = (self.told_every.0, self.every().0);
        for r in self.targets.values_mut().flatten() {
            r.age = u32::try_from(u64::from(r.age) * before / now).unwrap_or(u32::MAX);
        }
    }
    fn count(&self) -> usize {
        self.targets.values().map(Vec::len).sum()
    }
    /// Ends an aggregation: age, merge, tell, begin anew, split.
    fn aggregate(&mut self) {
        let most = self.targets.values().flatten().map(|r| r.accessed).max().unwrap_or(0);
        let mut like = most / 10;
        for r in self.targets.values_mut().flatten() {
            let changed = r.accessed.abs_diff(r.last) > like || (r.accessed == 0) != (r.last == 0);
            r.age = if changed { 0 } else { r.age + 1 };
        }
        let all: u64 = self.targets.values().flatten().map(Region::pages).sum();
        let largest = (all / REGIONS.0).max(1);
        loop {
            for regions in self.targets.values_mut() {
                merge(regions, like, largest);
            }
            if self.count() as u64 <= REGIONS.1 || like > most {
                break;
            }
            like = (like * 2).max(1);
        }
        self.told.clone_from(&self.targets);
        self.told_every = self.every();
        for r in self.targets.values_mut().flatten() {
            r.last = r.accessed;
            r.accessed = 0;
        }
        self.split();
    }
    fn split(&mut self) {
        let n = self.count();
        if n as u64 > REGIONS.1 / 2 {
            self.before = n;
            return;
        }
        // Nothing has changed and there is plenty of room: look closer.
        let parts = if n == self.before && (n as u64) < REGIONS.1 / 3 { 3 } else { 2 };
        self.before = n;
        for regions in self.targets.values_mut() {
            let mut cut = Vec::with_capacity(regions.len() * parts);
            for r in regions.drain(..) {
                let mut rest = r;
                for _ in 1..parts {
                    // Between one and nine tenths of what is left.
                    let first = (rest.pages() * (1 + self.random.below(9)) / 10).max(1);
                    if first >= rest.pages() {
                        break;
                    }
                    cut.push(Region { end: rest.start + first, ..rest });
                    rest.start += first;
                }
                cut.push(rest);
            }
            *regions = cut;
        }
    }
}

/// Joins neighbours whose counts differ by at most `like`, up to `largest` pages.
fn merge(regions: &mut Vec<Region>, like: u32, largest: u64) {
    let mut joined: Vec<Region> = Vec::with_capacity(regions.len());
    for r in regions.drain(..) {
        match joined.last_mut() {
            Some(p)
                if p.end == r.start
                    && p.accessed.abs_diff(r.accessed) <= like
                    && p.pages() + r.pages() <= largest =>
            {
                let (a, b) = (p.pages(), r.pages());
                let mean =
                    |x: u32, y: u32| ((u64::from(x) * a + u64::from(y) * b) / (a + b)) as u32;
                p.accessed = mean(p.accessed, r.accessed);
                p.last = mean(p.last, r.last);
                p.age = mean(p.age, r.age);
                p.end = r.end;
            }
            _ => joined.push(r),
        }
    }
    *regions = joined;
}

/// The mapped space as three ranges: cut at the two largest gaps, between heap and
/// mapped files, and between those and the stack on a usual system.
fn three_ranges(s: &Space) -> Vec<(u64, u64)> {
    let gaps = s.vmas.windows(2).map(|w| (w[1].start - w[0].end, w[0].end, w[1].start));
    let mut gaps: Vec<(u64, u64, u64)> = gaps.filter(|g| g.0 > 0).collect();
    gaps.sort_unstable_by_key(|g| (std::cmp::Reverse(g.0), g.1));
    gaps.truncate(2);
    gaps.sort_unstable_by_key(|g| g.1);
    let (Some(first), Some(last)) = (s.vmas.first(), s.vmas.last()) else { return Vec::new() };
    let mut ranges = Vec::new();
    let mut start = first.start;
    for (_, end, next) in gaps {
        ranges.push((start, end));
        start = next;
    }
    ranges.push((start, last.end));
    ranges
}

/// Lets regions follow changed ranges: what lies outside goes, the outermost of each
/// range reach to its ends, and a range without any gets one.
fn fit(regions: &mut Vec<Region>, ranges: &[(u64, u64)]) {
    let mut fitted = Vec::with_capacity(regions.len());
    for &(start, end) in ranges {
        let inside = regions.iter().filter(|r| r.start < end && r.end > start);
        let mut mine: Vec<Region> = inside
            .map(|r| Region { start: r.start.max(start), end: r.end.min(end), ..*r })
            .collect();
        // Between two ranges that have become one there may be a hole: it is filled.
        for i in 1..mine.len() {
            mine[i].start = mine[i - 1].end;
        }
        match mine.len() {
            0 => mine.push(Region::new(start, end)),
            n => {
                mine[0].start = start;
                mine[n - 1].end = end;
            }
        }
        fitted.extend(mine);
    }
    *regions = fitted;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, accessed: u32) -> Region {
        Region { accessed, ..Region::new(start, end) }
    }
    fn shown(regions: &[Region]) -> String {
        let all = regions.iter().map(|r| format!("{}-{}:{}", r.start, r.end, r.accessed));
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn neighbours_of_like_count_become_one() {
        let mut r =
            vec![region(0, 10, 3), region(10, 20, 18), region(20, 30, 16), region(30, 90, 0)];
        merge(&mut r, 2, 1000);
        assert_eq!(shown(&r), "0-10:3 10-30:17 30-90:0");
        // Weighted by size, not across a hole, and not beyond the largest size.
        let mut r = vec![region(0, 30, 4), region(30, 40, 0), region(41, 50, 0), region(50, 99, 0)];
        merge(&mut r, 4, 50);
        assert_eq!(shown(&r), "0-40:3 41-50:0 50-99:0");
    }

    #[test]
    fn regions_follow_the_mappings() {
        let mut r = vec![region(0, 10, 1), region(10, 20, 2), region(50, 60, 3)];
        fit(&mut r, &[(5, 18), (30, 40), (50, 80)]);
        assert_eq!(shown(&r), "5-10:1 10-18:2 30-40:0 50-80:3");
    }

    #[test]
    fn a_split_keeps_the_space_and_the_bound() {
        let mut d = Damon::new(1, 0);
        d.targets.insert(0, vec![Region::new(0, 1), Region::new(1, 10_000)]);
        for _ in 0..40 {
            d.split();
            let r = &d.targets[&0];
            assert!(r.len() as u64 <= REGIONS.1, "{}", r.len());
            assert_eq!((r[0].start, r[r.len() - 1].end), (0, 10_000));
            assert!(r.windows(2).all(|w| w[0].end == w[1].start));
            assert!(r.iter().all(|r| r.pages() > 0));
        }
        assert!(d.count() as u64 > REGIONS.1 / 4, "{}", d.count());
    }
}
