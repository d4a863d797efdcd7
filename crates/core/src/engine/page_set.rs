//! Some of a chunk's pages, a bit for each.

use super::pairs::CHUNK;
use crate::policy::span::Span;

const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (CHUNK / BITS) as usize;

/// Pages of one chunk, by their place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageSet([u64; WORDS]);

impl PageSet {
    /// The whole chunk.
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    /// Those of a span that lie in the chunk of its first page.
    pub(super) fn of(span: Span) -> Self {
        let first = span.start / CHUNK * CHUNK;
        let (from, to) = (span.start - first, span.end.saturating_sub(first).min(CHUNK));
        let below = |n: u64| if n >= BITS { u64::MAX } else { (1 << n) - 1 };
        let mut set = Self::default();
        for (word, at) in set.0.iter_mut().zip((0..).step_by(BITS as usize)) {
            *word = below(to.saturating_sub(at)) & !below(from.saturating_sub(at));
        }
        set
    }

    /// Takes a page in.
    pub(super) fn insert(&mut self, vpn: u64) {
        self.0[(vpn % CHUNK / BITS) as usize] |= 1 << (vpn % BITS);
    }
    pub(super) fn holds(&self, vpn: u64) -> bool {
        self.0[(vpn % CHUNK / BITS) as usize] & 1 << (vpn % BITS) != 0
    }
    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|w| u64::from(w.count_ones())).sum()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
    fn with(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let mut set = *self;
        set.0.iter_mut().zip(other.0).for_each(|(a, b)| *a = f(*a, b));
        set
    }
    /// Those that are in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & b)
    }
    /// Those that are in either.
    pub(super) fn or(&self, other: &Self) -> Self {
        self.with(other, |a, b| a | b)
    }
    /// Those that are not in the other.
    pub(super) fn without(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    /// Its first `n` by rising numbers.
    pub(super) fn first(&self, n: u64) -> Self {
        let (mut set, mut left) = (Self::default(), n);
        for (word, &all) in set.0.iter_mut().zip(&self.0) {
            let mut rest = all;
            if u64::from(all.count_ones()) <= left {
                (*word, left) = (all, left - u64::from(all.count_ones()));
                continue;
            }
            for _ in 0..left {
                rest &= rest - 1;
            }
            *word = all & !rest;
            break;
        }
        set
    }

    /// What it holds, as spans that don't touch, by rising numbers.
    ///
    /// * `chunk` – whose pages they are.
    pub(super) fn spans(self, chunk: u64) -> impl Iterator<Item = Span> {
        let first = chunk * CHUNK;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, false);
            let end = self.next(start, true);
            at = end;
            (start < CHUNK).then_some(Span { start: first + start, end: first + end })
        })
    }

    /// The first page from `at` on that it holds, or that it doesn't; [`CHUNK`] without one.
    fn next(&self, at: u64, absent: bool) -> u64 {
        let mut at = at;
        while at < CHUNK {
            let word = self.0[(at / BITS) as usize];
            let word = if absent { !word } else { word } >> (at % BITS);
            if word != 0 {
                return at + u64::from(word.trailing_zeros());
            }
            at = (at / BITS + 1) * BITS;
        }
        CHUNK
    }

    /// From its first to its last page; `None` of nothing.
    ///
    /// * `chunk` – whose pages they are.
    pub(super) fn hull(&self, chunk: u64) -> Option<Span> {
        let first = self.next(0, false);
        let last = self.0.iter().rposition(|w| *w != 0)?;
        let last = last as u64 * BITS + u64::from(self.0[last].ilog2());
        Some(Span { start: chunk * CHUNK + first, end: chunk * CHUNK + last + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::SplitMix;
    use std::collections::BTreeSet;

    // Beside a set of numbers, whatever is drawn.
    #[test]
    fn a_set_of_bits_is_a_set_of_pages() {
        let mut chance = SplitMix::new(3);
        for _ in 0..200 {
            let chunk = chance.below(1 << 30);
            let mut draw = || {
                let (mut set, mut pages) = (PageSet::default(), BTreeSet::new());
                for _ in 0..chance.below(5) {
                    let start = chance.below(CHUNK);
                    let end = start + 1 + chance.below(200);
                    let span = Span { start: chunk * CHUNK + start, end: chunk * CHUNK + end };
                    set = set.or(&PageSet::of(span));
                    pages.extend(start..end.min(CHUNK));
                }
                (set, pages)
            };
            let ((a, x), (b, y)) = (draw(), draw());
            let told = |s: PageSet| -> Vec<u64> {
                s.spans(chunk).flat_map(|s| s.start..s.end).map(|p| p - chunk * CHUNK).collect()
            };
            assert_eq!(told(a), x.iter().copied().collect::<Vec<_>>());
            assert_eq!(a.len(), x.len() as u64);
            assert_eq!(told(a.and(&b)), x.intersection(&y).copied().collect::<Vec<_>>());
            assert_eq!(told(a.or(&b)), x.union(&y).copied().collect::<Vec<_>>());
            assert_eq!(told(a.without(&b)), x.difference(&y).copied().collect::<Vec<_>>());
            let n = chance.below(CHUNK);
            assert_eq!(told(a.first(n)), x.iter().copied().take(n as usize).collect::<Vec<_>>());
            let hull = a.hull(chunk).map(|s| (s.start % CHUNK, (s.end - 1) % CHUNK));
            assert_eq!(hull, x.first().copied().zip(x.last().copied()));
            assert!((0..CHUNK).all(|p| a.holds(chunk * CHUNK + p) == x.contains(&p)));
            assert_eq!(a.is_empty(), x.is_empty());
        }
    }
}
