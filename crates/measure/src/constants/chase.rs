//! Chains of dependent loads: each cache line holds the address of the next.
//!
//! A processor cannot start a load before it knows its address, so that a walk
//! takes one full latency a step; lines in random order defeat the prefetchers.

use super::cpus;
use super::region::Region;
use super::stats::{per_operation, shuffled, timed};
use homenode_core::splitmix::SplitMix;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of a line in a chain.
pub(super) const LINE: usize = 64;
/// Steps between two looks at the clock: enough to make the clock cheap, few
/// enough that most batches see no interrupt.
const BATCH: u64 = 4096;

/// A line of a chain. Only its first word is used.
#[repr(C, align(64))]
struct Line {
    next: AtomicUsize,
}

/// A random cycle through lines of a region, and where the walk stands.
pub(crate) struct Chain<'a> {
    region: PhantomData<&'a Region>,
    at: usize,
    lines: usize,
    /// Places along the walk, equally far apart.
    marks: [usize; MARKS],
}

/// Places from which interleaved walks begin: a multiple of each of [`WIDTHS`].
const MARKS: usize = 96;

/// Where the lines of a chain lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stride {
    /// One after the other.
    Dense,
    /// One in each base page, at places that differ from page to page, so that
    /// they do not fall into the same cache sets.
    Page,
}

impl Stride {
    fn offset(self, i: usize) -> usize {
        match self {
            Self::Dense => i * LINE,
            Self::Page => i * 4096 + (i.wrapping_mul(29) + i / 64) % 64 * LINE,
        }
    }
    /// How many lines fit into `len` bytes.
    fn room(self, len: usize) -> usize {
        match self {
            Self::Dense => len / LINE,
            Self::Page => len / 4096,
        }
    }
}

impl<'a> Chain<'a> {
    /// Links `lines` lines (at most what fits, at least 2) of `region` into one
    /// random cycle. `order` is scratch space.
    pub(crate) fn build(
        region: &'a Region,
        stride: Stride,
        lines: usize,
        random: &mut SplitMix,
        order: &mut Vec<u32>,
    ) -> Self {
        Self::build_at(region, 0, stride, lines, random, order)
    }

    /// As [`Chain::build`], from byte `from` of the region on: a multiple of a page, so far from its
    /// end that two lines fit.
    pub(crate) fn build_at(
        region: &'a Region,
        from: usize,
        stride: Stride,
        lines: usize,
        random: &mut SplitMix,
        order: &mut Vec<u32>,
    ) -> Self {
        let lines = lines.clamp(2, stride.room(region.len() - from));
        shuffled(lines, random, order);
        let address = |i: u32| region.at(from + stride.offset(i as usize));
        for pair in order.windows(2) {
            set_next(address(pair[0]), address(pair[1]));
        }
        set_next(address(order[lines - 1]), address(order[0]));
        let marks = std::array::from_fn(|k| address(order[k * lines / MARKS]) as usize);
        Self { region: PhantomData, at: address(order[0]) as usize, lines, marks }
    }

    /// Walks the whole cycle once, so that what fits into the caches is there.
    pub(crate) fn warm(&mut self) {
        self.at = walk(self.at, self.lines as u64);
    }

    /// Lines in the cycle.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Takes so many steps.
    pub(crate) fn walk(&mut self, steps: u64) {
        self.at = walk(self.at, steps);
    }

    /// Mean CPU time of one dependent load over a slot, in picoseconds.
    pub(super) fn mean_time(&mut self, slot: Duration) -> f64 {
        cpus::average(slot, BATCH, || self.walk(BATCH))
    }

    /// Time of one dependent load, in picoseconds.
    pub(crate) fn load_time(&mut self, slot: Duration) -> Option<f64> {
        per_operation(slot, || Some(timed(BATCH, || self.at = walk(self.at, BATCH))))
    }

    /// Time of one dependent atomic addition of 0, in picoseconds: it must own
    /// its line before the next address is known, as a store that misses must.
    pub(super) fn store_time(&mut self, slot: Duration) -> Option<f64> {
        per_operation(slot, || Some(timed(BATCH, || self.at = walk_owning(self.at, BATCH))))
    }

    /// Time of one load, in picoseconds, when `n` independent walks of the
    /// cycle are interleaved; `n` is one of [`WIDTHS`].
    pub(super) fn parallel_load_time(
        &self,
        n: usize,
        random: &mut SplitMix,
        slot: Duration,
    ) -> Option<f64> {
        match n {
            1 => self.interleaved::<1>(random, slot),
            2 => self.interleaved::<2>(random, slot),
            4 => self.interleaved::<4>(random, slot),
            6 => self.interleaved::<6>(random, slot),
            8 => self.interleaved::<8>(random, slot),
            12 => self.interleaved::<12>(random, slot),
            16 => self.interleaved::<16>(random, slot),
            24 => self.interleaved::<24>(random, slot),
            32 => self.interleaved::<32>(random, slot),
            48 => self.interleaved::<48>(random, slot),
            _ => None,
        }
    }

    /// Two places half a walk apart.
    pub(super) fn opposite(&self) -> [usize; 2] {
        [self.marks[0], self.marks[MARKS / 2]]
    }

    fn interleaved<const N: usize>(&self, random: &mut SplitMix, slot: Duration) -> Option<f64> {
        // Equally far apart, so that no walk soon follows in another's steps and
        // finds its lines in the cache.
        let first = random.below(MARKS as u64) as usize;
        let mut at: [usize; N] =
            std::array::from_fn(|k| self.marks[(first + k * MARKS / N) % MARKS]);
        let steps = (BATCH / N as u64).max(1);
        per_operation(slot, || Some(timed(steps * N as u64, || walk_many(&mut at, steps))))
    }
}

/// How many walks are tried side by side.
pub(super) const WIDTHS: [usize; 10] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 48];

/// Stores the address `next` in the line at `at`; both lie in one region.
fn set_next(at: *mut u8, next: *mut u8) {
    debug_assert_eq!(at as usize % LINE, 0);
    line(at as usize).next.store(next as usize, Ordering::Relaxed);
}

/// The line at an address that came from a chain.
fn line<'r>(address: usize) -> &'r Line {
    // SAFETY: addresses in a chain are multiples of 64 inside a region that the
    // `Chain` borrows, and every access to them is atomic.
    unsafe { &*(address as *const Line) }
}

/// Takes `steps` dependent loads from `at` and returns where it arrives.
#[inline(never)]
fn walk(mut at: usize, steps: u64) -> usize {
    let step = |a: usize| line(a).next.load(Ordering::Relaxed);
    for _ in 0..steps / 8 {
        at = step(step(step(step(step(step(step(step(at))))))));
    }
    for _ in 0..steps % 8 {
        at = step(at);
    }
    black_box(at)
}

/// As [`walk`], but each step owns its line.
#[inline(never)]
fn walk_owning(mut at: usize, steps: u64) -> usize {
    // The compiler turns an addition of a known 0 into a fence and a load.
    let nothing = black_box(0);
    for _ in 0..steps {
        at = line(at).next.fetch_add(nothing, Ordering::Relaxed);
    }
    black_box(at)
}

/// Takes `steps` steps of each of `N` walks, turn by turn.
#[inline(never)]
fn walk_many<const N: usize>(at: &mut [usize; N], steps: u64) {
    let mut here = *at;
    for _ in 0..steps {
        for a in &mut here {
            *a = line(*a).next.load(Ordering::Relaxed);
        }
    }
    *at = black_box(here);
}

#[cfg(test)]
mod tests {
    use super::super::region::PageKind;
    use super::*;
    use std::collections::BTreeSet;

    impl Chain<'_> {
        pub(in crate::constants) fn holds(&self, address: usize) -> bool {
            (0..self.lines)
                .scan(self.at, |at, _| {
                    *at = walk(*at, 1);
                    Some(*at)
                })
                .any(|a| a == address)
        }
    }

    fn cycle(stride: Stride, lines: usize) -> BTreeSet<usize> {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        let mut chain = Chain::build(&region, stride, lines, &mut SplitMix::new(7), &mut vec![]);
        let first = chain.at;
        let mut seen = BTreeSet::new();
        loop {
            seen.insert(chain.at - region.start() as usize);
            chain.at = walk(chain.at, 1);
            if chain.at == first {
                break;
            }
        }
        assert_eq!(walk(first, chain.lines as u64), first);
        assert_eq!(walk_owning(first, chain.lines as u64), first);
        assert_eq!(chain.lines, seen.len());
        seen
    }

    #[test]
    fn a_chain_is_one_cycle_through_all_lines() {
        let dense = cycle(Stride::Dense, 1000);
        assert_eq!(dense, (0..1000).map(|i| i * LINE).collect());
        let paged = cycle(Stride::Page, 300);
        assert_eq!(
            paged.iter().map(|o| o / 4096).collect::<Vec<_>>(),
            (0..300).collect::<Vec<_>>()
        );
        let places: BTreeSet<usize> = paged.iter().map(|o| o % 4096).collect();
        assert_eq!(places.len(), 64, "lines are spread over the cache's sets");
    }

    #[test]
    fn a_chain_never_leaves_its_region() {
        assert_eq!(cycle(Stride::Page, usize::MAX).len(), 512);
        assert_eq!(cycle(Stride::Dense, 0).len(), 2);
    }

    #[test]
    fn a_chain_that_begins_further_on_stays_there() {
        let region = Region::map(4 << 20, PageKind::Base, None, false).unwrap();
        let from = 2 << 20;
        let random = &mut SplitMix::new(7);
        let mut chain =
            Chain::build_at(&region, from, Stride::Dense, usize::MAX, random, &mut vec![]);
        assert_eq!(chain.lines(), (2 << 20) / LINE);
        let last = region.start() as usize + region.len() - LINE;
        assert!(chain.holds(region.start() as usize + from) && chain.holds(last));
        assert!(!chain.holds(region.start() as usize));
        assert!(chain.mean_time(Duration::ZERO) >= 0.0);
    }

    #[test]
    fn every_width_is_known() {
        let region = Region::map(2 << 20, PageKind::Base, None, false).unwrap();
        let chain = Chain::build(&region, Stride::Dense, 64, &mut SplitMix::new(7), &mut vec![]);
        for n in WIDTHS {
            assert_eq!(MARKS % n, 0);
            assert!(
                chain.parallel_load_time(n, &mut SplitMix::new(1), Duration::ZERO).is_some(),
                "{n}"
            );
        }
        assert!(chain.parallel_load_time(5, &mut SplitMix::new(1), Duration::ZERO).is_none());
    }
}
