//! A budget: so much a second, with a reserve that is not saved up without end.

use crate::units::Picos;

/// Units of the level per unit of the budget: picoseconds in a second, so that
/// nothing is lost to rounding.
const SCALE: i128 = 1_000_000_000_000;

/// A token bucket. Over any time t it gives at most `rate * t + depth`.
///
/// Source: specs/engine.md#budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    level: i128,
    rate: u64,
    depth: u64,
    at: Picos,
}

impl Bucket {
    /// A full one of `rate` units a second.
    pub(super) const fn new(rate: u64, depth: u64) -> Self {
        Self { level: depth as i128 * SCALE, rate, depth, at: Picos::ZERO }
    }
    /// One of which so much is left.
    pub(super) const fn with(self, level: u64) -> Self {
        let level = if level < self.depth { level } else { self.depth };
        Self { level: level as i128 * SCALE, ..self }
    }
    /// Lets time pass.
    pub(super) fn advance(&mut self, now: Picos) {
        let dt = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let full = i128::from(self.depth) * SCALE;
        self.level = (self.level + i128::from(dt.0) * i128::from(self.rate)).min(full);
    }
    /// Whole units that can be had now.
    pub(super) fn has(&self) -> u64 {
        u64::try_from(self.level.max(0) / SCALE).unwrap_or(u64::MAX)
    }
    /// Takes some, into debt if need be; the debt ends at a second of the rate, so that a
    /// flood of observations does not silence the engine for long.
    pub(super) fn take(&mut self, n: u64) {
        let floor = -i128::from(self.depth.min(self.rate)) * SCALE;
        self.level = (self.level - i128::from(n) * SCALE).max(floor);
    }
    /// Gives back what was taken and not used.
    pub(super) fn give(&mut self, n: u64) {
        let full = i128::from(self.depth) * SCALE;
        self.level = (self.level + i128::from(n) * SCALE).min(full);
    }
    /// When `n` can be had; `None`: never.
    pub(super) fn when(&self, n: u64) -> Option<Picos> {
        let lacks = i128::from(n) * SCALE - self.level;
        if lacks <= 0 {
            return Some(self.at);
        }
        if self.rate == 0 || n > self.depth {
            return None;
        }
        let wait = (lacks - 1) / i128::from(self.rate) + 1;
        Some(Picos(self.at.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))))
    }
    /// Most that can ever be had at once.
    pub(super) const fn depth(&self) -> u64 {
        self.depth
    }
}

/// A bucket that savings fill as well, and losses empty again, but not further than savings have
/// filled it: what comes with time is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purse {
    bucket: Bucket,
    /// Savings that have not been spent.
    saved: u64,
}

impl Purse {
    pub(super) const fn new(bucket: Bucket) -> Self {
        Self { bucket, saved: 0 }
    }
    pub(super) fn advance(&mut self, now: Picos) {
        self.bucket.advance(now);
    }
    pub(super) fn has(&self) -> u64 {
        self.bucket.has()
    }
    pub(super) fn when(&self, n: u64) -> Option<Picos> {
        self.bucket.when(n)
    }
    pub(super) const fn depth(&self) -> u64 {
        self.bucket.depth()
    }
    /// Savings that have not been spent.
    pub(super) const fn saved(&self) -> u64 {
        self.saved
    }
    /// Takes some, savings first.
    pub(super) fn take(&mut self, n: u64) {
        self.bucket.take(n);
        self.saved = self.saved.saturating_sub(n);
    }
    /// Gives back what was taken and not used.
    pub(super) fn give(&mut self, n: u64) {
        self.bucket.give(n);
    }
    /// Something was saved.
    pub(super) fn earn(&mut self, n: u64) {
        self.bucket.give(n);
        self.saved = self.saved.saturating_add(n).min(self.bucket.has());
    }
    /// Something was lost.
    pub(super) fn lose(&mut self, n: u64) {
        let n = n.min(self.saved);
        self.bucket.take(n);
        self.saved -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/engine.md#budgets
    #[test]
    fn it_gives_its_rate_and_one_reserve() {
        let mut b = Bucket::new(100, 50);
        assert_eq!(b.has(), 50);
        b.take(50);
        assert_eq!((b.has(), b.when(25)), (0, Some(Picos::from_ms(250))));
        b.advance(Picos::from_ms(249));
        assert_eq!(b.has(), 24);
        b.advance(Picos::from_ms(250));
        assert_eq!(b.has(), 25);
        b.advance(Picos::from_secs(9));
        assert_eq!((b.has(), b.when(51)), (50, None));
        b.take(1000);
        assert_eq!(b.when(0), Some(Picos(9_500_000_000_000)));
        b.give(2000);
        assert_eq!(b.has(), 50);
        assert_eq!(Bucket::new(0, 0).when(1), None);
    }
    // specs/engine.md#budgets: memory that should not have gone down must be able to come back,
    // however much is lost until then.
    #[test]
    fn losses_take_back_savings_and_nothing_else() {
        let mut p = Purse::new(Bucket::new(100, 200).with(50));
        p.lose(1000);
        assert_eq!(p.has(), 50);
        p.earn(80);
        p.take(30);
        assert_eq!(p.has(), 100);
        p.lose(1000);
        assert_eq!(p.has(), 50, "fifty of the eighty were left");
        for ms in 1..=1000 {
            p.advance(Picos::from_ms(ms));
            p.lose(1000);
        }
        assert_eq!(p.has(), 150, "what comes with time does so");
    }
}
