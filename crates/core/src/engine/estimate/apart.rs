//! How hot pages are whose chunks hold hot and cold ones.
//!
//! Where few pages take most of the accesses and lie anywhere, as records of a store do, a page beside a
//! hot one is no hotter for it. What is known of a page then is how often it was observed itself, and how
//! unlike pages are at all: the *shape* that [`Pairs`] measures. With μ the mean of pages around it, o what one
//! observation is worth (both rates) and n its own observations, the heat of a page is
//!
//! ```text
//!      shape + n
//! μ · ───────────         μ = 41, o = 2000, shape = 0.03:   n = 0:   24    (three fifths of the mean)
//!     shape + μ/o                                           n = 1:  836    (n · o would be 2000)
//!                                                           n = 5: 4084    (                10000)
//! ```
//!
//! which is the mean of a gamma distribution after n observations of Poisson's. So pages are in the order of
//! what was observed of them, all that never were are alike, and the sum over all is what was told.
//!
//! μ differs from chunk to chunk where chunks are used unlike each other. It follows from how many
//! of a chunk's *pages* were hit, shared out over the tree of halves as heat is; not from how often, which one hot
//! page would decide. Then the short average, with the long one's heat as its mean and a shape of its
//! own: what was observed lately differs from what the long one lets expect by so much.
//!
//! Rates have eight bits more here than elsewhere, observations and shapes are 2^-32.
//!
//! Source: specs/engine.md#apart.

use super::super::fade::Scales;
use super::super::heat::{HeatMap, Rate, mean};
use super::super::page_set::PageSet;
use super::super::pairs::{CHUNK, Pairs};
use super::super::tally::Row;
use super::{Estimate, Leaf, ONE, RowHeat};
use crate::units::Picos;

/// Bits that a rate has more.
const FINE: u32 = 8;
/// Most observations of a page, and most that a mass may be, so that products fit.
const MOST_NR: u128 = 1 << 52;
const MOST_MASS: u128 = 1 << 70;
/// So many observations say by themselves what one of them is worth.
const ENOUGH: u128 = 64 << 32;
/// Shapes of the short average: it says nothing that the long one doesn't, or hardly anything else counts.
const NEVER: u128 = 1 << 50;
const LEAST: u128 = 1 << 16;

/// A stretch.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Which of the map's it is, and which of that one's rows.
    cell: u32,
    row: Option<u32>,
    /// Its pages in memory; 0 where nothing was told of it.
    pages: u64,
    /// Observations of each of its pages, short and long average.
    nr: [u128; 2],
    /// Sums of its pages' heat.
    long: u128,
    short: u128,
}

/// A part of a stretch that is in one leaf.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stretch: u32,
    leaf: u32,
    pages: u64,
}

/// What it is done in.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    rows: Vec<Row>,
    stretches: Vec<Stretch>,
    pieces: Vec<Piece>,
    /// Of each leaf, by all that the long average has, and by what the short one has not.
    gammas: Vec<[Gamma; 2]>,
}

/// Rate · pages and observations of all, by the short and the long average.
#[derive(Default)]
struct Sums {
    mass: [u128; 2],
    nr: [u128; 2],
    /// The same of those whose pages have counts, which fall like the averages.
    told: [(u128, u128); 2],
}

impl Sums {
    /// What one observation is worth.
    fn one(&self, which: usize) -> u128 {
        let (mass, nr) = match self.told[which] {
            (mass, nr) if nr >= ENOUGH => (mass, nr),
            _ => (self.mass[which], self.nr[which]),
        };
        ((mass << (32 + FINE)) / nr.max(1)).max(1)
    }
}

/// A quotient that many are multiplied by, as 2^-32: a division takes as long as ten products.
#[derive(Clone, Copy, Debug)]
struct Ratio(u128);

impl Ratio {
    fn new(a: u128, b: u128) -> Self {
        Self(((a.min(1 << 90) << 32) / b.max(1)).min(1 << 64))
    }
    fn of(self, v: u128) -> u128 {
        (v.min(1 << 62) * self.0) >> 32
    }
    /// So much of it.
    fn part(self, a: u128, b: u128) -> Self {
        Self((self.0 * (a << 32).checked_div(b).unwrap_or(0)) >> 32)
    }
}

/// How hot pages are around which a page has some mean.
#[derive(Clone, Copy, Debug)]
struct Gamma {
    shape: u128,
    /// What an observation, and as much of the shape, adds: 2^-48 of a rate for 2^-32 of it.
    each: u128,
}

impl Gamma {
    /// * `one` – by one observation's worth.
    fn new(mean: u128, shape: u128, one: Ratio) -> Self {
        let each = (mean.min(1 << 62) << 48) / (shape + one.of(mean)).max(1);
        Self { shape, each: each.min(1 << 75) }
    }
    /// The heat of a page of which `nr` observations were made.
    fn heat(self, nr: u128) -> u128 {
        (self.each * (self.shape + nr)) >> 48
    }
}

/// What a page has of a sum over so many; most stretches have one.
fn per_page(sum: u128, pages: u64) -> u128 {
    if pages <= 1 { sum } else { sum / u128::from(pages) }
}

impl Estimate {
    /// Each page by itself.
    ///
    /// * `shape` – what [`Pairs::shape`] has.
    pub(super) fn pages_apart(
        &mut self,
        map: &HeatMap,
        pairs: &Pairs,
        shape: u64,
        now: Picos,
        scales: &Scales,
    ) {
        let Buffers { mut rows, mut stretches, mut pieces, mut gammas } =
            std::mem::take(&mut self.apart);
        stretches.clear();
        pieces.clear();
        gammas.clear();
        let sums = self.chunks(map, pairs, now, scales, &mut rows, &mut stretches, &mut pieces);
        self.halve();
        let [even, mut hits] = [&mut self.even, &mut self.long].map(std::mem::take);
        self.spread_out(&even, 1, &mut hits);
        let all = hits.iter().sum::<u128>().max(1);
        let one = [0, 1].map(|i| Ratio::new(1 << 32, sums.one(i)));
        let mass = sums.mass.map(|m| m.min(MOST_MASS));
        // Of the long average's observations, those that the short one doesn't have.
        let [short, long] = sums.nr.map(|nr| nr.min(1 << 80));
        let past = one[1].part(long.saturating_sub(short), long);
        gammas.extend(self.leaves.iter().zip(&hits).map(|(leaf, hits)| {
            let mean = (mass[1] << FINE >> 12) * hits / (all >> 12).max(1);
            let mean = mean / u128::from(leaf.pages.max(1));
            [one[1], past].map(|one| Gamma::new(mean, u128::from(shape), one))
        }));
        for p in &pieces {
            let s = &mut stretches[p.stretch as usize];
            let ([all, past], pages) = (gammas[p.leaf as usize], u128::from(p.pages));
            s.long += all.heat(s.nr[1]) * pages;
            // What is expected of the short average must not know what that one has seen.
            s.short += past.heat(s.nr[1].saturating_sub(s.nr[0])) * pages;
        }
        let before = stretches.iter().map(|s| s.short).sum::<u128>();
        // In the short average's own measure: while little is known the long one is still small.
        let expected = Ratio::new(mass[0] >> 10, before >> 10 >> FINE);
        for s in &mut stretches {
            s.short = expected.of(per_page(s.short, s.pages));
        }
        let own = unlike(stretches.iter().map(|s| (s.pages, s.nr[0], s.short)), one[0]);
        // What chunks' sums and pages' shares do not agree in is shared out too.
        let mut told = [0u128; 2];
        for s in &mut stretches {
            s.short = Gamma::new(s.short, own, one[0]).heat(s.nr[0]) * u128::from(s.pages);
            told = [told[0] + s.short, told[1] + s.long];
        }
        let scale = [0, 1].map(|i| Ratio::new(mass[i] >> 10, told[i] >> 10 >> FINE));
        let rate = |sum: u128, i: usize, pages: u64| {
            let each = scale[i].of(per_page(sum, pages));
            u64::try_from(each >> FINE).unwrap_or(u64::MAX)
        };
        for s in stretches.iter().filter(|s| s.pages > 0) {
            let heat = mean([rate(s.short, 0, s.pages), rate(s.long, 1, s.pages)]);
            match s.row {
                Some(row) => self.rows[row as usize].heat = heat,
                None => self.heats[s.cell as usize] = heat,
            }
        }
        for rows in self.rows.chunk_by(|a, b| a.cell == b.cell) {
            let pages: u64 = rows.iter().map(|r| r.pages).sum();
            let all = rows.iter().map(|r| u128::from(r.heat) * u128::from(r.pages)).sum::<u128>();
            let heat = all.checked_div(u128::from(pages)).unwrap_or(0);
            self.heats[rows[0].cell as usize] = u64::try_from(heat).unwrap_or(u64::MAX);
        }
        (self.even, self.long) = (even, hits);
        self.apart = Buffers { rows, stretches, pieces, gammas };
    }

    /// One leaf for each chunk, and for what is not cut of several, with how many pages of it were hit.
    fn chunks(
        &mut self,
        map: &HeatMap,
        pairs: &Pairs,
        now: Picos,
        scales: &Scales,
        rows: &mut Vec<Row>,
        stretches: &mut Vec<Stretch>,
        pieces: &mut Vec<Piece>,
    ) -> Sums {
        self.leaves.clear();
        self.heats.clear();
        let mut sums = Sums::default();
        // The chunk that the last leaf is of, where it is of one.
        let mut open = None;
        for (span, cell) in map.iter() {
            let averages: [Rate; 2] = scales.averages(cell, now);
            let here = cell.place.as_ref().map_or(span.pages().0, |p| p.present());
            let (stretch, index) = (stretches.len() as u32, self.heats.len() as u32);
            let plain = Stretch { cell: index, row: None, pages: 0, nr: [0; 2], long: 0, short: 0 };
            self.heats.push(mean(averages));
            if !cell.told || here == 0 {
                stretches.push(plain);
                continue;
            }
            rows.clear();
            let mut nr = cell.observations(span.pages().0);
            let tally = cell.tally.as_ref().zip(cell.place.as_ref());
            if let Some((tally, _)) = tally {
                tally.rows(PageSet::of(span), now, scales, rows);
                let sums = tally.observations(now, scales);
                nr = [0, 1].map(|i| if sums[i] == 0 { nr[i] } else { u128::from(sums[i]) });
            }
            for (i, average) in averages.into_iter().enumerate() {
                if average == 0 {
                    nr[i] = 0;
                }
                let mass = u128::from(average) * u128::from(here);
                sums.mass[i] += mass;
                sums.nr[i] += nr[i];
                if tally.is_some() {
                    sums.told[i] = (sums.told[i].0 + mass, sums.told[i].1 + nr[i]);
                }
            }
            let of_page = |nr: u128| per_page(nr, here).min(MOST_NR);
            let nr = if cell.pooled { [0; 2] } else { nr.map(of_page) };
            match tally {
                None => stretches.push(Stretch { pages: here, nr, ..plain }),
                Some((tally, place)) => {
                    let (rest, nr) = tally.rest(PageSet::of(span), place);
                    let rest: u64 = rest.iter().map(|(_, pages)| *pages).sum();
                    for Row { set, on, nr: each } in rows.iter().copied() {
                        let pages = match on {
                            Some(_) => set.len(),
                            None => (set.len() * rest).div_ceil(nr.max(1)),
                        };
                        let row = Some(self.rows.len() as u32);
                        stretches.push(Stretch { row, pages, nr: each.map(u128::from), ..plain });
                        self.rows.push(RowHeat { cell: index, set, on, pages, heat: 0 });
                    }
                }
            }
            let mut at = span.start;
            while at < span.end {
                let chunk = at / CHUNK;
                let whole = at % CHUNK == 0 && span.end - at >= CHUNK;
                let last = if whole { span.end / CHUNK } else { chunk + 1 };
                let end = last.saturating_mul(CHUNK).min(span.end);
                let part = if here == span.pages().0 {
                    end - at
                } else {
                    let part = u128::from(here) * u128::from(end - at);
                    part.div_ceil(u128::from(span.pages().0)) as u64
                };
                if whole || open != Some(chunk) {
                    open = (!whole).then_some(chunk);
                    let nr = pairs.pages_hit(chunk..last);
                    let (index, weight) = (self.leaves.len() as u32, [ONE / nr.max(1); 2]);
                    let (start, heat) = (at, [nr; 2]);
                    // By pages hit nobody compared what it was taken together of.
                    let alike = Leaf::NEVER;
                    self.leaves.push(Leaf {
                        index,
                        start,
                        end,
                        whole: false,
                        alike,
                        pages: 0,
                        heat,
                        weight,
                    });
                }
                let leaf = self.leaves.len() as u32 - 1;
                self.leaves[leaf as usize].end = end;
                self.leaves[leaf as usize].pages += part;
                if tally.is_none() {
                    pieces.push(Piece { stretch, leaf, pages: part });
                }
                // They all lie in this chunk.
                let its =
                    (stretch..).zip(&stretches[stretch as usize..]).filter(|_| tally.is_some());
                pieces.extend(its.map(|(stretch, s)| Piece { stretch, leaf, pages: s.pages }));
                at = end;
            }
        }
        for leaf in &mut self.leaves {
            leaf.heat = leaf.heat.map(|nr| (nr << 20) / leaf.pages.max(1));
        }
        sums
    }
}

/// How unlike what was observed is to what was expected, as a shape: of each page, how often it was
/// observed, and its expected heat, of which one observation is worth `one`.
fn unlike(all: impl Iterator<Item = (u64, u128, u128)>, one: Ratio) -> u128 {
    let square = |v: u128| (v.min(MOST_NR) * v.min(MOST_NR)) >> 32;
    let (mut observed, mut expected) = (0u128, 0u128);
    for (pages, nr, mean) in all {
        // By chance alone the mean of n (n - 1) is the square of what is expected.
        observed += square(nr).saturating_sub(nr) * u128::from(pages);
        expected += square(one.of(mean)) * u128::from(pages);
    }
    match observed.saturating_sub(expected) >> 16 {
        0 => NEVER,
        more => ((expected << 16) / more).clamp(LEAST, NEVER),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::place::{OnNodes, Place};
    use super::*;
    use crate::policy::span::Span;
    use crate::splitmix::SplitMix;
    use crate::units::NodeId;

    const SCALES: Scales =
        Scales { short: Picos::from_secs(1), long: Picos::from_secs(8), hold: Picos::from_secs(2) };

    // The module's example.
    #[test]
    fn an_observation_says_less_than_it_stands_for() {
        let shape = (3 << 32) / 100;
        let gamma = Gamma::new(41 << FINE, shape, Ratio::new(1 << 32, 2000 << FINE));
        let after = |nr: u128| gamma.heat(nr << 32) >> FINE;
        assert_eq!([after(0), after(1), after(5)], [24, 836, 4083]);
    }

    /// Samples of one process of so many pages, as the engine counts them once pages are told apart, and
    /// the heat of each page.
    fn sampled(pages: u64, samples: &[u64]) -> (HeatMap, Vec<u64>) {
        let (mut map, mut pairs) = (HeatMap::default(), Pairs::default());
        let now = Picos::from_secs(1);
        for start in (0..pages).step_by(CHUNK as usize) {
            map.paint(Span { start, end: start + CHUNK }, Picos::ZERO, |c| {
                c.place = Some(Place { at: now, on: OnNodes::one(NodeId(0), CHUNK) });
            });
        }
        for (i, &vpn) in samples.iter().enumerate() {
            // No two within a visit.
            pairs.hit(vpn, Picos::from_ms(100 * i as u64), Picos(u64::MAX));
            let (pages, cell) = map.sampled(vpn, CHUNK, now).unwrap();
            cell.count(10_007_000);
            cell.see_page(pages, vpn, 10_007_000, now, &SCALES);
        }
        map.fold_samples(Picos::ZERO, Picos::ZERO, now, &SCALES);
        let shape = pairs.shape().expect("pages differ");
        let mut estimate = Estimate::default();
        let told = estimate.heats(&map, Some((&pairs, shape)), now, &SCALES);
        let starts: Vec<u64> = map.iter().map(|(s, _)| s.start).collect();
        let mut heats = vec![0; pages as usize];
        for row in told.rows {
            let pages = row.set.spans(starts[row.cell as usize] / CHUNK);
            pages.flat_map(|s| s.start..s.end).for_each(|p| heats[p as usize] = row.heat);
        }
        (map, heats)
    }

    // specs/engine.md#apart: one page in 64 takes half of all, the others are alike.
    #[test]
    fn a_page_beside_a_hot_one_is_no_hotter_for_it() {
        let mut chance = SplitMix::new(5);
        let pages = 1 << 14;
        let samples = (0..2000).map(|_| match chance.below(2) {
            0 => chance.below(pages) | 63,
            _ => chance.below(pages),
        });
        let samples: Vec<u64> = samples.collect();
        let (map, heats) = sampled(pages, &samples);
        let of = |nr: usize| {
            let hits = |p: u64| samples.iter().filter(|v| **v == p).count();
            (0..).zip(&heats).filter(move |(p, _)| hits(*p) == nr).map(|(_, h)| *h)
        };
        // Chunks are used alike, so what was never sampled is alike everywhere.
        let (least, most) = (of(0).min().unwrap(), of(0).max().unwrap());
        assert!(most - least <= most / 100, "{least} to {most}");
        let (once, often) = (of(1).max().unwrap(), of(4).min().unwrap());
        assert!(once > 4 * most && often > 2 * once, "{most}, {once}, {often}");
        // The sum over all is what was told: half of it in the short average, an eleventh in the long one.
        let all: u64 = heats.iter().sum();
        let raw: u64 =
            map.iter().map(|(s, c)| s.pages().0 * SCALES.heat(c, Picos::from_secs(1))).sum();
        assert!(all.abs_diff(raw) < raw / 100, "{all} of {raw}");
    }

    // specs/engine.md#apart: the lower half is used three times as much as the upper, by few pages of each.
    #[test]
    fn chunks_that_are_used_more_have_warmer_pages() {
        let mut chance = SplitMix::new(6);
        let pages = 1 << 15;
        let half = |c: &mut SplitMix| if c.below(4) == 0 { pages / 2 } else { 0 };
        let page = |c: &mut SplitMix| {
            let page = half(c) + c.below(pages / 2);
            if c.below(3) > 0 { page | 31 } else { page }
        };
        let samples: Vec<u64> = (0..6000).map(|_| page(&mut chance)).collect();
        let (_, heats) = sampled(pages, &samples);
        let hit: std::collections::BTreeSet<u64> = samples.iter().copied().collect();
        let rest = |from: u64| {
            let pages = (from..from + pages / 2).filter(|p| !hit.contains(p));
            let (sum, nr) = pages.fold((0, 0), |(s, n), p| (s + heats[p as usize], n + 1));
            sum / nr
        };
        // By less than three times: their few hot pages were all hit, here and there.
        assert!(rest(0) > rest(pages / 2) * 6 / 5, "{} and {}", rest(0), rest(pages / 2));
    }

    // specs/engine.md#apart: nothing told, everything as large as can be, and all of it beyond reach.
    #[test]
    fn odd_maps_have_some_heat() {
        let mut pairs = Pairs::default();
        for i in 0..4000 {
            pairs.hit(i % 4 * 997, Picos::from_ms(100 * i), Picos(u64::MAX));
        }
        let shape = pairs.shape().expect("four pages of so many");
        let mut estimate = Estimate::default();
        let now = Picos::from_secs(1);
        let mut map = HeatMap::default();
        assert!(estimate.heats(&map, Some((&pairs, shape)), now, &SCALES).cells.is_empty());
        map.paint(Span { start: 0, end: u64::MAX }, Picos::ZERO, |_| ());
        assert_eq!(estimate.heats(&map, Some((&pairs, shape)), now, &SCALES).cells, [0]);
        for vpn in [0, 997, u64::MAX - 1] {
            let cell = map.at_page(vpn, 1, now).unwrap();
            (cell.sum, cell.nr) = (u64::MAX, 1);
        }
        map.fold_samples(Picos::ZERO, Picos::ZERO, now, &SCALES);
        let nr = map.len();
        assert_eq!(estimate.heats(&map, Some((&pairs, shape)), now, &SCALES).cells.len(), nr);
    }
}
