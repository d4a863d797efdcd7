//! How many pages are handed to the kernel at once: as many as it moves within the stall
//! budget, by what calls took before.
//!
//! A page can't be used while it is moved. The kernel makes some hundred pages of a call
//! unusable together, so that what the pages of a call take bounds what a process waits at
//! one of them. What each call takes for itself comes before: it empties the lists of all CPUs
//! (`lru_cache_disable`), during which nobody waits for a page. That is measured by calls
//! with nothing to move, and taken off. Where it counted as the pages' own time, calls got so
//! small that they did hardly anything else.

use std::time::Duration;

/// Most pages of a call.
pub(super) const MOST: u64 = 4096;
/// Fewest: what a call takes for itself would be nearly all of it otherwise.
pub(super) const LEAST: u64 = 16;
/// Pages of the first call.
const FIRST: u64 = 128;
/// A call that takes so many budgets found the kernel at something else.
const STUCK: u32 = 100;
/// After so many calls it is measured again what a call takes for itself.
const AGAIN: u32 = 64;

/// The size of the next call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    budget: Duration,
    pages: u64,
    /// What a call takes for itself, and how many calls ago that was measured; `None`: never.
    empty: Option<(Duration, u32)>,
}

impl Stall {
    /// * `budget` – longest time of a call.
    pub(super) fn new(budget: Duration) -> Self {
        Self { budget, pages: FIRST, empty: None }
    }
    /// Whether it is time to measure what a call takes that moves nothing.
    pub(super) fn asks(&self) -> bool {
        self.empty.is_none_or(|(_, calls)| calls >= AGAIN)
    }
    /// Notes what calls took that moved nothing: the least counts, since others may have come between.
    pub(super) fn took_empty(&mut self, times: impl IntoIterator<Item = Duration>) {
        self.empty = Some((times.into_iter().min().unwrap_or_default(), 0));
    }
    /// Pages of the next call.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
    /// Notes what a call took in all. Returns whether to leave off: the kernel is stuck.
    pub(super) fn took(&mut self, pages: u64, all: Duration) -> bool {
        let mut time = all;
        if let Some((empty, calls)) = &mut self.empty {
            *calls += 1;
            time = time.saturating_sub(*empty);
        }
        if time > self.budget {
            // What would have fit, and no less than a quarter: one call may have been
            // interrupted.
            let fit = u128::from(pages) * self.budget.as_nanos() / time.as_nanos().max(1);
            let fit = u64::try_from(fit).unwrap_or(MOST);
            self.pages = fit.max(self.pages / 4).clamp(LEAST, self.pages.max(LEAST));
        } else if pages >= self.pages && time * 2 < self.budget {
            self.pages = (self.pages + self.pages / 4 + 1).min(MOST);
        }
        all > self.budget.saturating_mul(STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size that it comes to where a call takes so long, and a page.
    fn settled(call_us: u64, page_ns: u64) -> (u64, Duration) {
        let mut stall = Stall::new(Duration::from_millis(1));
        let time = |n: u64| Duration::from_nanos(call_us * 1000 + n * page_ns);
        for _ in 0..100 {
            let n = stall.pages();
            assert!(!stall.took(n, time(n)));
        }
        (stall.pages(), time(stall.pages()))
    }

    #[test]
    fn calls_are_as_large_as_the_budget_allows() {
        let (pages, time) = settled(100, 1000);
        assert!((300..=900).contains(&pages) && time <= Duration::from_millis(1), "{pages}");
        let (pages, time) = settled(100, 10_000);
        assert!((30..=90).contains(&pages) && time <= Duration::from_millis(1), "{pages}");
        // Nothing fits: the least there is. Everything does: the most.
        assert_eq!(settled(2000, 1000).0, LEAST);
        assert_eq!(settled(0, 1).0, MOST);
    }

    /// What calls take for themselves stalls nobody: it does not make them small.
    #[test]
    fn only_the_pages_own_time_counts() {
        let mut stall = Stall::new(Duration::from_millis(1));
        let empty = Duration::from_millis(2);
        let mut measured = 0;
        for _ in 0..200 {
            if stall.asks() {
                stall.took_empty([empty, empty * 3]);
                measured += 1;
            }
            let n = stall.pages();
            assert!(!stall.took(n, empty + Duration::from_micros(n)));
        }
        assert!((300..=1000).contains(&stall.pages()), "{}", stall.pages());
        assert_eq!(measured, 4);
    }

    #[test]
    fn a_call_that_hangs_ends_the_order() {
        let mut stall = Stall::new(Duration::from_millis(1));
        assert!(!stall.took(128, Duration::from_millis(90)));
        assert!(stall.took(128, Duration::from_millis(101)));
        assert!((LEAST..128).contains(&stall.pages()));
    }
}
