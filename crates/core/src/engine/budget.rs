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
}
