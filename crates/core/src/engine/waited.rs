//! What of an access's time a process waits for.
//!
//! ```text
//!  one load after the other   ├──── 275 ns ────┤├──── 275 ns ────┤   waited for: 275 ns each
//!  four at once               ├──── 275 ns ────┤                     waited for: 275 ns by four
//! ```
//!
//! So what a page saves on a faster node is what its accesses would take less there, divided by how
//! many loads of its process are under way at once. Where nothing tells that, it is one.
//!
//! Source: specs/engine.md#waited.

use super::fade::decay;
use crate::offcore::Offcore;
use crate::units::Picos;

/// Fewer loads than that say nothing.
const ENOUGH: u64 = 10_000;
/// One load under way, in thousandths.
const ONE: u64 = 1_000;

/// How many loads of a process are under way at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    /// What was counted, the older the less of it.
    counted: Offcore,
    /// When it was told last.
    at: Picos,
    /// Loads at once, in thousandths.
    at_once: u64,
}

impl Default for Waited {
    fn default() -> Self {
        Self { counted: Offcore::default(), at: Picos::ZERO, at_once: ONE }
    }
}

impl Waited {
    /// That much was counted since it was told last.
    ///
    /// * `most` – as how many at once it is taken at most.
    pub(super) fn see(&mut self, counted: &Offcore, now: Picos, half: Picos, most: u32) {
        let since = now.saturating_sub(self.at);
        let left = |n: u64| decay(n, since, half);
        let Offcore { reads, busy, under_way } = self.counted;
        // A machine's word is not believed beyond what a sum can hold.
        let sum = |old: u64, new: u64| left(old).saturating_add(new);
        self.counted = Offcore {
            reads: sum(reads, counted.reads),
            busy: Picos(sum(busy.0, counted.busy.0)),
            under_way: Picos(sum(under_way.0, counted.under_way.0)),
        };
        self.at = now;
        if self.counted.reads >= ENOUGH {
            if let Some(at_once) = self.counted.at_once() {
                self.at_once = at_once.clamp(ONE, ONE * u64::from(most.max(1)));
            }
        }
    }

    /// What is waited for of so much latency; of what has less than a picosecond left, one.
    pub(super) fn of(&self, latency: u64) -> u64 {
        if self.at_once == ONE {
            return latency;
        }
        let part = u128::from(latency) * u128::from(ONE) / u128::from(self.at_once);
        u64::try_from(part).unwrap_or(u64::MAX).max(u64::from(latency > 0))
    }

    /// The same of what moving saves, or loses.
    pub(super) fn of_saved(&self, saved: i64) -> i64 {
        let part = i64::try_from(self.of(saved.unsigned_abs())).unwrap_or(i64::MAX);
        if saved < 0 { -part } else { part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Picos = Picos::from_secs(1);

    fn counted(reads: u64, at_once: u64) -> Offcore {
        let busy = Picos::from_ns(200 * reads);
        Offcore { reads, busy, under_way: Picos(busy.0 * at_once) }
    }

    fn told(all: &[(u64, Offcore)]) -> Waited {
        let mut w = Waited::default();
        all.iter().for_each(|(ms, c)| w.see(c, Picos::from_ms(*ms), HALF, 64));
        w
    }

    // specs/engine.md#waited
    #[test]
    fn a_latency_is_shared_by_the_loads_that_are_under_way() {
        let of = |all: &[(u64, Offcore)]| told(all).of(185_000);
        assert_eq!(of(&[]), 185_000);
        assert_eq!(of(&[(100, counted(ENOUGH, 8))]), 23_125);
        // Few say nothing; nor do stores, of which nothing is counted.
        assert_eq!(of(&[(100, counted(ENOUGH - 1, 8))]), 185_000);
        assert_eq!(of(&[(100, Offcore { reads: ENOUGH, ..Offcore::default() })]), 185_000);
        // As many as are wanted; and none waits for less than one.
        assert_eq!(of(&[(100, counted(ENOUGH, 1000))]), 185_000 / 64);
        let less = Offcore { under_way: Picos(1), ..counted(ENOUGH, 1) };
        assert_eq!(of(&[(100, less)]), 185_000);
    }

    // specs/engine.md#waited: half of what was counted a half-life ago is counted still.
    #[test]
    fn what_was_counted_fades() {
        let busy = |all: &[(u64, Offcore)]| told(all).at_once;
        assert_eq!(busy(&[(0, counted(20_000, 8)), (1000, counted(10_000, 2))]), 5_000);
        assert_eq!(busy(&[(0, counted(20_000, 8)), (20_000, counted(10_000, 2))]), 2_000);
        // Of one that rests the last word stays.
        assert_eq!(busy(&[(0, counted(20_000, 8)), (20_000, counted(1, 1))]), 8_000);
    }

    // specs/engine.md#waited
    #[test]
    fn losses_are_shared_as_savings_are() {
        let w = told(&[(0, counted(ENOUGH, 4))]);
        assert_eq!([185_000, -185_000, 0].map(|v| w.of_saved(v)), [46_250, -46_250, 0]);
        assert_eq!([1, -1, i64::MAX].map(|v| w.of_saved(v)), [1, -1, i64::MAX / 4]);
        assert_eq!(w.of_saved(i64::MIN), i64::MIN / 4);
        assert_eq!(Waited::default().of_saved(i64::MIN), -i64::MAX);
    }
}
