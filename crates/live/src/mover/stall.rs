//! How many pages are handed to the kernel at once: as many as it moves within the stall
//! budget, by what calls took before.
//!
//! A page can't be used while it is moved. The kernel makes some hundred pages of a call
//! unusable together, so that the time of the call bounds what a process waits at one of
//! them. The time that each call takes for itself counts as that of its pages, which errs
//! on the safe side.

use std::time::Duration;

/// Most pages of a call. Each first empties the lists of all CPUs, which takes about as
/// long as moving a hundred pages.
pub(super) const MOST: u64 = 4096;
/// Fewest: what a call takes for itself would be nearly all of it otherwise.
pub(super) const LEAST: u64 = 16;
/// Pages of the first call.
const FIRST: u64 = 128;
/// A call that takes so many budgets found the kernel at something else.
const STUCK: u32 = 100;

/// The size of the next call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    budget: Duration,
    pages: u64,
}

impl Stall {
    /// * `budget` – longest time of a call.
    pub(super) fn new(budget: Duration) -> Self {
        Self { budget, pages: FIRST }
    }
    /// Pages of the next call.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
    /// Notes what a call took. Returns whether to leave off: the kernel is stuck.
    pub(super) fn took(&mut self, pages: u64, time: Duration) -> bool {
        if time > self.budget {
            // What would have fit, and no less than a quarter: one call may have been
            // interrupted.
            let fit = u128::from(pages) * self.budget.as_nanos() / time.as_nanos().max(1);
            let fit = u64::try_from(fit).unwrap_or(MOST);
            self.pages = fit.max(self.pages / 4).clamp(LEAST, self.pages.max(LEAST));
        } else if pages >= self.pages && time * 2 < self.budget {
            self.pages = (self.pages + self.pages / 4 + 1).min(MOST);
        }
        time > self.budget.saturating_mul(STUCK)
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

    #[test]
    fn a_call_that_hangs_ends_the_order() {
        let mut stall = Stall::new(Duration::from_millis(1));
        assert!(!stall.took(128, Duration::from_millis(90)));
        assert!(stall.took(128, Duration::from_millis(101)));
        assert!((LEAST..128).contains(&stall.pages()));
    }
}
