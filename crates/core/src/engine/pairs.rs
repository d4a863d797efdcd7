//! Whether samples fall on the same pages again more often than chance would have it.
//!
//! A sample belongs to a chunk of 2 MiB, and that is all that most samples can tell: where
//! the pages of a chunk are used alike, two hits of one page are chance, and a page that is
//! judged by itself then is judged by chance. So pages that were hit are remembered as bits,
//! and a second hit is a *pair*. How many there would be by chance is known: a hit finds a
//! bit set as often as bits of its chunk are.
//!
//! ```text
//!  chunk 7: ..1....1...1....   3 of 512 set     another hit here: 3/512 by chance
//!                  ▲ hit: a pair
//!  all chunks: 900 pairs, 140 by chance    ─▶ pages are told apart
//!  all chunks: 150 pairs, 140 by chance    ─▶ chunks are, no more
//! ```
//!
//! Hits of one page within a tenth of a second are one: threads that walk over memory together hit the
//! same pages, and so does one that walks line by line, and soon none of them is there any more.
//!
//! Pages are told apart where at least half of the pairs are none of chance: then a page that makes
//! one is more likely hot than not. And where that is sure by three standard deviations.
//!
//! How unlike pages are follows from the same counts. A page that was not hit yet is hit as often as
//! others of its chunk where all are alike, and less often the more they differ; how much less is
//! what hits say that found no bit set.
//!
//! Source: specs/engine.md#pairs, specs/engine.md#apart.

use crate::splitmix::mix;
use crate::units::Picos;
use std::collections::BTreeMap;

/// Hits of one page within this time are one.
const ONE_VISIT: Picos = Picos::from_ms(100);
/// Pages of a chunk, 2 MiB.
pub(super) const CHUNK: u64 = 512;
const WORDS: usize = (CHUNK / 64) as usize;
/// Chunks that are remembered side by side: a block of them is found in a map sixteen times as small.
const BLOCK: u64 = 16;
/// Shapes that count as such: one page in 65,536 has it all; pages differ by a sixteenth.
const SHAPES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 40;

/// What a hit of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// Pages of a chunk are alike, as far as is known.
    Alike,
    /// They differ, and this one was not hit before.
    First,
    /// They differ, and it was.
    Again,
}

/// What was hit of a chunk.
#[derive(Clone, Debug, Default)]
struct Hits {
    /// Pages that were hit since `begun`, a bit for each, and how many there are.
    words: [u64; WORDS],
    pages: u16,
    /// Pages that were hit in the time before that.
    old: u16,
    /// All hits since then.
    nr: u32,
}

type Block = Box<[Hits; BLOCK as usize]>;

/// Pairs of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Chunks by [`BLOCK`]s.
    blocks: BTreeMap<u64, Block>,
    begun: Picos,
    /// All hits, and the sum of how many their chunks had before.
    hits: u64,
    before: u64,
    /// Second hits, and how many there would be by chance, times [`CHUNK`].
    pairs: u64,
    chance: u64,
    /// The same with all hits of a visit as one.
    visits: Visits,
}

/// Second hits, each visit of a page being one.
#[derive(Clone, Debug, Default)]
struct Visits {
    /// Pages that were hit since.
    since: Picos,
    pages: Pages,
    pairs: u64,
    chance: u64,
}

/// Pages of the present visit, and of none before: a table in which a page is looked for from where
/// its number puts it. A visit is over with the next stamp, and nothing has to be cleared.
#[derive(Clone, Debug)]
struct Pages {
    /// A page with the stamp of its visit; a power of two of them, at most half of which are of
    /// the present one.
    slots: Vec<u64>,
    nr: usize,
    /// From 1 on.
    stamp: u64,
}

/// Bits of a stamp; the others are a page's, of addresses of 57 bits at most.
const STAMP: u32 = 19;

impl Default for Pages {
    fn default() -> Self {
        Self { slots: Vec::new(), nr: 0, stamp: 1 }
    }
}

impl Pages {
    /// A visit begins.
    fn clear(&mut self) {
        self.nr = 0;
        self.stamp += 1;
        if self.stamp >> STAMP != 0 {
            self.slots.clear();
            self.stamp = 1;
        }
    }
    /// Whether it is new in this visit.
    fn insert(&mut self, page: u64) -> bool {
        if self.nr * 2 >= self.slots.len() {
            let more = (self.slots.len() * 2).max(64);
            let all = std::mem::replace(&mut self.slots, vec![0; more]);
            let stamp = self.stamp;
            all.into_iter().filter(|slot| slot % (1 << STAMP) == stamp).for_each(|slot| {
                self.put(slot);
            });
        }
        let new = self.put(page << STAMP | self.stamp);
        self.nr += usize::from(new);
        new
    }
    /// Puts a page with its stamp where one of an earlier visit is; not where it is already.
    fn put(&mut self, slot: u64) -> bool {
        let last = self.slots.len() - 1;
        let mut at = mix(slot >> STAMP) as usize & last;
        loop {
            match self.slots[at] {
                same if same == slot => return false,
                other if other % (1 << STAMP) == self.stamp => at = (at + 1) & last,
                _ => {
                    self.slots[at] = slot;
                    return true;
                }
            }
        }
    }
}

impl Pairs {
    /// Another hit of a page.
    ///
    /// * `over` – for so long hits are remembered.
    pub(super) fn hit(&mut self, vpn: u64, now: Picos, over: Picos) -> Hit {
        if now.saturating_sub(self.begun) >= over {
            self.begin(now);
        }
        let (chunk, block) = (vpn / CHUNK % BLOCK, vpn / CHUNK / BLOCK);
        let chunk = &mut self.blocks.entry(block).or_default()[chunk as usize];
        let (word, bit) = (&mut chunk.words[(vpn % CHUNK / 64) as usize], 1 << (vpn % 64));
        let again = *word & bit != 0;
        *word |= bit;
        self.hits = self.hits.saturating_add(1);
        self.before = self.before.saturating_add(u64::from(chunk.nr));
        chunk.nr = chunk.nr.saturating_add(1);
        self.pairs = self.pairs.saturating_add(u64::from(again));
        self.chance = self.chance.saturating_add(u64::from(chunk.pages));
        let visits = &mut self.visits;
        if now.saturating_sub(visits.since) >= ONE_VISIT {
            visits.since = now;
            visits.pages.clear();
        }
        if visits.pages.insert(vpn) {
            visits.pairs = visits.pairs.saturating_add(u64::from(again));
            visits.chance = visits.chance.saturating_add(u64::from(chunk.pages));
        }
        chunk.pages += u16::from(!again);
        match again {
            _ if !self.are_skewed() => Hit::Alike,
            true => Hit::Again,
            false => Hit::First,
        }
    }

    /// All is remembered anew; what was counted before counts half.
    fn begin(&mut self, now: Picos) {
        self.begun = now;
        let Visits { pairs, chance, .. } = &mut self.visits;
        let sums = [&mut self.hits, &mut self.before, &mut self.pairs, &mut self.chance];
        for sum in sums.into_iter().chain([pairs, chance]) {
            *sum /= 2;
        }
        self.blocks.retain(|_, block| {
            for hits in block.iter_mut() {
                *hits = Hits { old: hits.pages, ..Hits::default() };
            }
            block.iter().any(|hits| hits.old > 0)
        });
    }

    /// How many pages of chunks were hit, in the present time and in the one before.
    pub(super) fn pages_hit(&self, chunks: std::ops::Range<u64>) -> u64 {
        let blocks = self.blocks.range(chunks.start / BLOCK..chunks.end.div_ceil(BLOCK));
        let in_block = blocks.map(|(at, block)| {
            let first = at * BLOCK;
            let from = chunks.start.saturating_sub(first).min(BLOCK) as usize;
            let to = chunks.end.saturating_sub(first).min(BLOCK) as usize;
            block[from..to].iter().map(|h| u64::from(h.pages) + u64::from(h.old)).sum::<u64>()
        });
        in_block.sum()
    }

    /// How unlike pages of a chunk are: the shape of a gamma distribution, as 2^-32; the smaller, the
    /// more of all accesses go to few of them. `None` where they are alike as far as is known.
    ///
    /// With m hits a page so far, one that has none has shape / (shape + m) of the mean. That is
    /// measured: as many times fewer hits find a page without any than would by chance.
    ///
    /// Source: specs/engine.md#apart.
    pub(super) fn shape(&self) -> Option<u64> {
        if !self.are_skewed() {
            return None;
        }
        let all = u128::from(self.hits) * u128::from(CHUNK);
        let found = all.saturating_sub(u128::from(self.pairs) * u128::from(CHUNK));
        let by_chance = all.saturating_sub(u128::from(self.chance));
        let mean = (u128::from(self.before) << 32) / all.max(1);
        let shape = mean * found / by_chance.saturating_sub(found).max(1);
        let shape = u64::try_from(shape).unwrap_or(u64::MAX);
        Some(shape.clamp(*SHAPES.start(), *SHAPES.end()))
    }

    /// Whether at least half of the pairs are none of chance, and surely.
    fn are_skewed(&self) -> bool {
        let Visits { pairs, chance, .. } = self.visits;
        let (pairs, chance) = (u128::from(pairs) * u128::from(CHUNK), u128::from(chance));
        // Chance's variance is its mean, about. Of few it makes a large number more often than
        // a bell curve has it: (3² - 1) / 6 of the skewness more, which is four thirds of a pair.
        let beyond = (pairs * 3).saturating_sub(chance * 3 + 4 * u128::from(CHUNK));
        pairs >= chance * 2 && beyond * beyond > 81 * chance * u128::from(CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::SplitMix;

    const OVER: Picos = Picos::from_secs(8);

    /// A thousand samples a second; how many found a pair, how many a first hit, where pages differ.
    fn apart(pages: u64, seconds: u64, of: impl Fn(&mut SplitMix) -> u64) -> (u64, u64) {
        let (mut chance, mut pairs) = (SplitMix::new(7), Pairs::default());
        let (mut again, mut first) = (0, 0);
        for ms in 0..seconds * 1000 {
            let vpn = of(&mut chance) % pages;
            match pairs.hit(vpn, Picos::from_ms(ms), OVER) {
                Hit::Alike => {}
                Hit::First => first += 1,
                Hit::Again => again += 1,
            }
        }
        assert!(pairs.blocks.len() as u64 <= pages / CHUNK / BLOCK, "a chunk's bits, and no more");
        (again, first)
    }

    // specs/engine.md#pairs: three threads walk over all pages together, again and again, and are sampled
    // at the same places: three hits of a page within a millisecond, and then none for long.
    #[test]
    fn who_walks_together_does_not_make_pages_unlike() {
        let mut pairs = Pairs::default();
        for i in 0..20_000 {
            let (at, vpn) = (Picos::from_ms(i), i * 1259 % (1 << 18));
            for _ in 0..3 {
                assert_eq!(pairs.hit(vpn, at, OVER), Hit::Alike, "page {vpn}");
            }
        }
        assert_eq!(pairs.shape(), None);
    }

    // The same as a set that is cleared, also when stamps begin anew.
    #[test]
    fn pages_of_a_visit_are_those_and_no_others() {
        let (mut chance, mut pages) = (SplitMix::new(5), Pages::default());
        for visit in 0..300 {
            pages.clear();
            if visit == 100 {
                pages.stamp = (1 << STAMP) - 50;
            }
            let mut set = std::collections::BTreeSet::new();
            // All numbers that an address of 57 bits can have.
            let (nr, among) = (chance.below(400), 1 << chance.below(46));
            for _ in 0..nr {
                let page = chance.below(among);
                assert_eq!(pages.insert(page), set.insert(page), "visit {visit}, page {page}");
            }
            assert_eq!(pages.nr, set.len());
        }
        assert_eq!(pages.stamp, 300 - 100 - 50, "stamps came to their end once");
        assert!(pages.slots.len() <= 1024, "{}", pages.slots.len());
    }

    // specs/engine.md#pairs: one chunk in eight takes nearly all, and its pages alike.
    #[test]
    fn pages_that_are_alike_stay_together_however_often_they_are_hit() {
        assert_eq!(apart(1 << 14, 20, SplitMix::next), (0, 0), "all alike");
        assert_eq!(apart(1 << 14, 20, |c| c.below(1 << 11)), (0, 0), "a hot spot");
    }

    // specs/engine.md#pairs: one page in 64, anywhere, takes half of all.
    #[test]
    fn pages_that_are_hit_again_and_again_are_told_apart() {
        let hot = |c: &mut SplitMix| {
            let page = c.below(1 << 14);
            if c.below(2) == 0 { page | 63 } else { page }
        };
        let (again, first) = apart(1 << 14, 4, hot);
        assert!(again > 1000 && first > 1000, "{again}, {first}");
    }

    // specs/engine.md#pairs: two hits of a page that are the first of all are no pattern.
    #[test]
    fn a_single_pair_in_a_crowd_proves_nothing() {
        let mut pairs = Pairs::default();
        for vpn in 0..200 {
            assert_eq!(pairs.hit(vpn, Picos::ZERO, OVER), Hit::Alike);
        }
        assert_eq!(pairs.hit(100, Picos::ZERO, OVER), Hit::Alike);
    }

    // specs/engine.md#apart: pages whose heat is gamma distributed, drawn as sums of squares of normal
    // numbers, which are sums of twelve even ones: one square is a shape of a half.
    #[test]
    fn how_unlike_pages_are_is_measured() {
        let mut chance = SplitMix::new(11);
        let pages = 1u64 << 14;
        for (squares, shape) in [(1, 0.5), (4, 2.0)] {
            let mut normal = || {
                let even = (0..12).map(|_| chance.below(1 << 20) as f64 / f64::from(1 << 20));
                even.sum::<f64>() - 6.0
            };
            let mut square = || {
                let n = normal();
                n * n
            };
            let mut heat = || (0..squares).map(|_| square()).sum::<f64>();
            let mut upto = Vec::new();
            let mut sum = 0.0;
            for _ in 0..pages {
                sum += heat();
                upto.push(sum);
            }
            let mut pairs = Pairs::default();
            for i in 0..pages / 2 {
                let at = chance.below(1 << 40) as f64 / (1u64 << 40) as f64 * sum;
                // No two within a visit.
                let now = Picos::from_ms(100 * i);
                pairs.hit(upto.partition_point(|u| *u < at) as u64, now, Picos(u64::MAX));
            }
            // With four squares they differ too little to be told apart.
            let told = pairs.shape().map(|s| s as f64 / (1u64 << 32) as f64);
            if shape < 1.0 {
                let told = told.expect("they differ");
                assert!((told / shape - 1.0).abs() < 0.3, "{told} for {shape}");
            } else {
                assert_eq!(told, None);
            }
        }
    }
}
