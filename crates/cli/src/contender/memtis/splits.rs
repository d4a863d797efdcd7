//! Which huge pages MEMTIS splits, and how many.
//!
//! ```text
//! cooling ─▶ huge page's pages: sum of squares / hot ones² ─▶ skew ─▶ 21 bins
//! sample ──▶ was it in the fast tier? would its page be there, if all were base pages? ─▶ shares
//! adaptation after a cooling ─▶ how many: by the difference of the shares ─▶ the most skewed bins
//! sample on a huge page of these bins ─▶ it is split, until as many are
//! ```
//!
//! Worked example: 10 huge pages of which eight are in bin 9 and two in bin 12, and six are to be
//! split: from bin 12 on both, of bin 9 the first four that are sampled.
//!
//! Source: specs/compare.md#memtis.

use homenode_core::units::{HUGE_PAGES, Picos};

/// Bins of skew.
const BINS: usize = 21;
/// What the kernel divides a sum of squares by, so that its bins are of use.
const SCALE: u64 = 11;
/// Of the share of hits that could be, in hundredths, so much is taken for granted.
const ESTIMATE: u64 = 95;
/// Of the huge pages that would pay, in tenths, so many are split.
const GAMMA: u64 = 4;
/// Splitting ends for good where hits are less than this, in hundredths of what they were.
const GAINS: u64 = 103;
/// Samples since the last decision, of which there have to be more than one for so many pages.
const ENOUGH: u64 = 4;

/// The bin of a skew: 0 and bits up to ten below 1024, then one for each 1024 up to ten of them.
fn bin(skew: u64) -> usize {
    if skew < 1024 {
        return (u64::BITS - skew.leading_zeros()) as usize;
    }
    11 + ((skew - 1) / 1024).min(9) as usize
}

/// A huge page's pages at a cooling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inside {
    squares: u64,
    hot: u64,
    counts: u64,
}

impl Inside {
    /// One of them.
    ///
    /// * `count` – its count before the cooling.
    pub(super) fn add(&mut self, count: u32, hot: bool) {
        let count = u64::from(count);
        self.squares = self.squares.saturating_add(count * count);
        if hot {
            self.hot += 1;
            self.counts += count;
        }
    }
    /// The bin of its skew; 0 where nothing in it is hot, and it is never split.
    pub(super) fn skew(&self) -> usize {
        (self.squares / SCALE).checked_div(self.hot * self.hot).map_or(0, bin)
    }
}

/// Hits since the last cooling, and before: what was before counts half.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    since: u64,
    average: u64,
}

impl Hits {
    /// A cooling; the average before it.
    fn cool(&mut self) -> u64 {
        let before = self.average;
        self.average = before / 2 + std::mem::take(&mut self.since);
        before
    }
}

/// What is known of skew, and what is to be split.
#[derive(Clone, Debug)]
pub(super) struct Splits {
    on: bool,
    /// Samples on pages of the fast tier, and on pages that would be there as base pages.
    fast: Hits,
    could: Hits,
    /// Samples since the last decision.
    samples: u64,
    /// Something was split since then.
    happened: bool,
    /// A decision is to be made at the next adaptation.
    due: bool,
    /// Huge pages by skew; counts of their hot pages, and how many have some.
    huge: [u64; BINS],
    counts: u64,
    with_hot: u64,
    /// All of these bins are split, and of the one below as many as `rest` allows.
    from: usize,
    /// Pages that are still to be split, in these bins and in the one below.
    left: u64,
    rest: u64,
}

impl Splits {
    /// * `on` – whether anything is split at all.
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            fast: Hits::default(),
            could: Hits::default(),
            samples: 0,
            happened: false,
            due: false,
            huge: [0; BINS],
            counts: 0,
            with_hot: 0,
            from: BINS,
            left: 0,
            rest: 0,
        }
    }
    /// Whether it goes on.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }
    /// Whether something was split lately, so that the histogram is another one.
    pub(super) fn has_split(&self) -> bool {
        self.on && self.happened
    }
    /// A huge page was split.
    pub(super) fn split(&mut self) {
        self.happened = true;
    }
    /// A sample on a known page.
    ///
    /// * `could` – whether the page was hot enough for the fast tier, if all were base pages.
    pub(super) fn sampled(&mut self, fast: bool, could: bool) {
        self.samples += 1;
        self.fast.since += u64::from(fast);
        self.could.since += u64::from(could);
    }
    /// A cooling begins: skews are told anew.
    pub(super) fn clear(&mut self) {
        self.huge = [0; BINS];
        (self.counts, self.with_hot) = (0, 0);
    }
    /// A huge page at a cooling.
    ///
    /// * `skew` – its bin.
    pub(super) fn add(&mut self, skew: usize, inside: &Inside) {
        self.huge[skew] += 1;
        if inside.hot > 0 {
            self.counts += inside.counts / HUGE_PAGES;
            self.with_hot += 1;
        }
    }
    /// A cooling is over.
    ///
    /// * `used` – pages in memory; `room` – those of the fast tier.
    pub(super) fn cooled(&mut self, used: u64, room: u64) {
        let before = self.fast.cool();
        self.could.cool();
        if self.due || !self.on {
            return;
        }
        if self.samples <= (used / ENOUGH).max(room) {
            // Skews are others now.
            self.left += std::mem::take(&mut self.rest);
            self.choose();
            return;
        }
        if self.happened && self.fast.average < before * GAINS / 100 {
            self.on = false;
            return;
        }
        (self.happened, self.due) = (false, true);
    }
    /// The first adaptation after a cooling: how many are to be split, if that is due.
    ///
    /// * `records` – samples that the averages stand for.
    /// * `latency` – of the fast and the slow tier.
    pub(super) fn decide(&mut self, records: u64, latency: [Picos; 2]) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        (self.samples, self.left, self.rest) = (0, 0, 0);
        let lost = (self.could.average * ESTIMATE / 100).saturating_sub(self.fast.average);
        let each = self.counts.checked_div(self.with_hot).unwrap_or(0);
        let [fast, slow] = latency.map(|l| l.0);
        if each > 0 && fast > 0 && records > 0 {
            let huge = lost * self.counts / records / each;
            let pays = u128::from(huge) * u128::from(slow.saturating_sub(fast)) / u128::from(fast);
            let pages = pays * u128::from(HUGE_PAGES * GAMMA) / 10;
            self.left = u64::try_from(pages).unwrap_or(u64::MAX);
        }
        self.choose();
    }
    /// From which bin on huge pages are split.
    fn choose(&mut self) {
        self.from = BINS;
        let mut left = self.left;
        if left == 0 {
            return;
        }
        for bin in (1..BINS).rev() {
            let pages = self.huge[bin] * HUGE_PAGES;
            self.from = bin + 1;
            if left < pages {
                (self.left, self.rest) = (self.left - left, left);
                return;
            }
            left -= pages;
        }
        self.from = 1;
    }
    /// Whether a huge page that was sampled is to be split; if so it counts as one of those.
    pub(super) fn takes(&mut self, skew: usize) -> bool {
        if !self.on || skew == 0 || skew + 1 < self.from {
            return false;
        }
        let of =
            if skew + 1 == self.from || self.left == 0 { &mut self.rest } else { &mut self.left };
        if *of == 0 {
            return false;
        }
        *of = of.saturating_sub(HUGE_PAGES);
        self.huge[skew] = self.huge[skew].saturating_sub(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// specs/compare.md#memtis: bits below 1024, then steps of 1024.
    #[test]
    fn bins_of_skew_are_bits_and_then_steps() {
        assert_eq!([0, 1, 3, 4, 1023].map(bin), [0, 1, 2, 3, 10]);
        assert_eq!([1024, 1025, 2049, 10_240, 1 << 40].map(bin), [11, 12, 13, 20, 20]);
    }

    /// specs/compare.md#memtis: as many samples on 4 pages of 512 as on all of them. What is hot
    /// all over has next to no skew.
    #[test]
    fn who_has_few_hot_pages_is_more_skewed() {
        let inside = |hot: u64, count: u32| {
            let mut inside = Inside::default();
            (0..512).for_each(|n| inside.add(if n < hot { count } else { 0 }, n < hot));
            inside.skew()
        };
        let [few, some, all] = [inside(4, 512 * 16), inside(64, 512), inside(512, 512)];
        assert!(few > some && some > all, "{few} {some} {all}");
        assert_eq!(inside(0, 0), 0);
    }

    /// The module's example, and that pages are split only once they are sampled.
    #[test]
    fn the_most_skewed_are_split_and_of_the_last_bin_the_first_that_are_sampled() {
        let mut s = Splits::new(true);
        (s.huge[9], s.huge[12], s.left) = (8, 2, 6 * HUGE_PAGES);
        s.choose();
        assert_eq!((s.from, s.left, s.rest), (10, 2 * HUGE_PAGES, 4 * HUGE_PAGES));
        assert!(!s.takes(8) && s.takes(12));
        let of_nine = (0..8).filter(|_| s.takes(9)).count();
        assert_eq!(of_nine, 4);
        assert!(s.takes(12) && !s.takes(12), "no more than were asked for");
    }

    /// specs/compare.md#memtis: as base pages 900 of 1000 samples would be fast, and 400 are. Of ten
    /// huge pages of 100 hot samples each: (855 − 400) · 10 · 100 / 1000 / 100 = 4, times a slow tier
    /// of thrice the latency is 8, and four tenths of these are 3.2.
    #[test]
    fn how_many_follows_from_the_hits_that_are_missed() {
        let mut s = Splits::new(true);
        s.huge[9] = 10;
        (s.counts, s.with_hot) = (1000, 10);
        for n in 0..1000 {
            s.sampled(n < 400, n < 900);
        }
        s.cooled(2000, 900);
        assert!(s.due, "1000 samples are more than 900 pages");
        s.decide(1000, [100, 300].map(Picos));
        assert_eq!(s.left + s.rest, 8 * HUGE_PAGES * 4 / 10);
        // Nothing of it helped: it ends for good.
        s.split();
        for n in 0..1000 {
            s.sampled(n < 200, n < 900);
        }
        s.cooled(2000, 900);
        assert!(!s.is_on() && !s.takes(20));
    }
}
