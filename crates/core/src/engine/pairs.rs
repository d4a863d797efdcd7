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
//! Pages are told apart where at least half of the pairs are none of chance: then a page that makes
//! one is more likely hot than not. And where that is sure by three standard deviations.
//!
//! Source: specs/engine.md#pairs.

use crate::units::Picos;
use std::collections::BTreeMap;

/// Pages of a chunk, 2 MiB.
pub(super) const CHUNK: u64 = 512;
const WORDS: usize = (CHUNK / 64) as usize;

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

/// Pairs of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Pages that were hit since `begun`, a bit for each.
    hit: BTreeMap<u64, [u64; WORDS]>,
    begun: Picos,
    /// Second hits, and how many there would be by chance, times [`CHUNK`].
    pairs: u64,
    chance: u64,
}

impl Pairs {
    /// Another hit of a page that is not apart.
    ///
    /// * `over` – for so long hits are remembered.
    pub(super) fn hit(&mut self, vpn: u64, now: Picos, over: Picos) -> Hit {
        if now.saturating_sub(self.begun) >= over {
            // What was counted before counts half.
            (self.pairs, self.chance, self.begun) = (self.pairs / 2, self.chance / 2, now);
            self.hit.clear();
        }
        let words = self.hit.entry(vpn / CHUNK).or_default();
        let nr: u32 = words.iter().map(|w| w.count_ones()).sum();
        let (word, bit) = (&mut words[(vpn % CHUNK / 64) as usize], 1 << (vpn % 64));
        let again = *word & bit != 0;
        *word |= bit;
        self.pairs = self.pairs.saturating_add(u64::from(again));
        self.chance = self.chance.saturating_add(u64::from(nr));
        match again {
            _ if !self.are_skewed() => Hit::Alike,
            true => Hit::Again,
            false => Hit::First,
        }
    }

    /// Whether at least half of the pairs are none of chance, and surely.
    fn are_skewed(&self) -> bool {
        let (pairs, chance) = (u128::from(self.pairs) * u128::from(CHUNK), u128::from(self.chance));
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
        assert!(pairs.hit.len() as u64 <= pages / CHUNK, "a chunk's bits, and no more");
        (again, first)
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
}
