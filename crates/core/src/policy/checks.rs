//! How often DAMON checks.
//!
//! ```text
//!              moves of the last two seconds?
//!               │ yes                  │ no
//!               ▼                      ▼
//!      every 5 ms: what moved is   as often as its thread stays within 1 % of a CPU,
//!      worth a close look          every 40 ms at the latest
//! ```
//!
//! A check costs the same whether something changes or not, so a machine at rest pays for
//! what it does not use. Moves are ordered only where they save more than they cost, and are
//! what a close look is good for: hot memory is told apart from warm sooner.
//!
//! Worked example: 1000 regions, 0.3 µs a check. Every 5 ms that is 6 % of a CPU; without a
//! move, two seconds later, 40 ms and 0.75 %. The first move brings 5 ms back.
//!
//! Source: specs/sources.md#interval.

use crate::units::Picos;

/// Checks of an aggregation: the longest is 0.8 s then.
pub const CHECKS: u32 = 20;
/// How long an aggregation takes.
pub const fn aggregation(every: Picos) -> Picos {
    Picos(every.0 * CHECKS as u64)
}
/// Shortest time between two checks, and the one to begin with: the kernel's default.
pub const SHORTEST: Picos = Picos::from_ms(5);
/// Longest: what is no longer true is noticed within a second.
pub const LONGEST: Picos = Picos::from_ms(40);
/// The intervals that there are, shortest first.
pub const INTERVALS: [Picos; 4] = [SHORTEST, Picos::from_ms(10), Picos::from_ms(20), LONGEST];
/// Most of one CPU's time that DAMON's thread takes where nothing moves, in thousandths.
pub const PERMILLE: u64 = 10;
/// Over this time the thread's share is measured, and for so long a move counts.
pub const WINDOW: Picos = Picos::from_secs(2);

/// The interval, decided anew from what its thread takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckInterval {
    /// Which of [`INTERVALS`].
    at: usize,
    /// Begin of the window, and what the thread had taken by then.
    since: Option<(Picos, Picos)>,
    moved: Option<Picos>,
    /// Whether it follows what the thread takes.
    paced: bool,
}

impl Default for CheckInterval {
    fn default() -> Self {
        Self::new()
    }
}

impl CheckInterval {
    /// At the shortest.
    pub const fn new() -> Self {
        Self { at: 0, since: None, moved: None, paced: true }
    }
    /// At the shortest for good.
    pub const fn shortest() -> Self {
        Self { paced: false, ..Self::new() }
    }
    /// The present one.
    pub const fn every(&self) -> Picos {
        INTERVALS[self.at]
    }
    /// homenode has moved memory.
    pub const fn moved(&mut self, now: Picos) {
        self.moved = Some(now);
    }
    /// Decides; true if it is another now.
    ///
    /// * `spent` – processor time of DAMON's thread so far.
    pub fn judge(&mut self, now: Picos, spent: Picos) -> bool {
        if !self.paced {
            return false;
        }
        if self.moved.is_some_and(|at| now.saturating_sub(at) < WINDOW) {
            self.since = Some((now, spent));
            return self.set(0);
        }
        let Some((begun, before)) = self.since else {
            self.since = Some((now, spent));
            return false;
        };
        let over = now.saturating_sub(begun);
        if over < WINDOW {
            return false;
        }
        self.since = Some((now, spent));
        let took = u128::from(spent.saturating_sub(before).0);
        let fits = |at: usize, permille: u64| {
            let (then, every) = (u128::from(self.every().0), u128::from(INTERVALS[at].0));
            took * then * 1000 <= u128::from(over.0) * u128::from(permille) * every
        };
        // Shorter only where it fits with a fifth to spare: else it goes to and fro.
        let next = (0..INTERVALS.len())
            .find(|&at| fits(at, if at < self.at { PERMILLE * 4 / 5 } else { PERMILLE }))
            .unwrap_or(INTERVALS.len() - 1);
        self.set(next)
    }
    fn set(&mut self, at: usize) -> bool {
        std::mem::replace(&mut self.at, at) != at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Picos {
        Picos::from_ms(n)
    }

    /// What a thread of 1000 regions takes in two seconds, at so many nanoseconds a check.
    fn taken(every: Picos, check_ns: u64) -> Picos {
        Picos::from_ns(2_000_000_000_000 / every.0 * 1_000_000_000 / 1_000_000 * check_ns)
    }

    // specs/sources.md#interval
    #[test]
    fn a_thread_at_rest_stays_within_its_share_and_moves_bring_the_close_look_back() {
        let mut interval = CheckInterval::new();
        let (mut now, mut spent) = (ms(0), Picos::ZERO);
        assert!(!interval.judge(now, spent), "nothing is known yet");
        let mut seen = Vec::new();
        for second in 1..=12 {
            now = ms(2000 * second);
            spent += taken(interval.every(), 300);
            if second == 5 || second == 6 {
                interval.moved(now);
            }
            interval.judge(now, spent);
            seen.push(interval.every().0 / 1_000_000_000);
        }
        // 6 % at 5 ms: 40 ms. The moves at 10 and 12 s: 5 ms until nothing has moved for 2 s.
        assert_eq!(seen, [40, 40, 40, 40, 5, 5, 40, 40, 40, 40, 40, 40]);
    }

    #[test]
    fn cheap_checks_are_never_slowed_and_dear_ones_come_back_with_room_to_spare() {
        let mut interval = CheckInterval::new();
        let (mut now, mut spent) = (ms(0), Picos::ZERO);
        let mut step = |interval: &mut CheckInterval, check_ns| {
            interval.judge(now, spent);
            now = Picos(now.0 + WINDOW.0);
            spent += taken(interval.every(), check_ns);
            interval.judge(now, spent);
            interval.every()
        };
        // 0.8 % of a CPU.
        assert_eq!(step(&mut interval, 40), SHORTEST);
        // 1.2 %: the next.
        assert_eq!(step(&mut interval, 60), ms(10));
        // 0.9 % at the shortest would fit, but only just.
        assert_eq!(step(&mut interval, 45), ms(10));
        assert_eq!(step(&mut interval, 39), SHORTEST);
        // Nothing fits: the longest.
        assert_eq!(step(&mut interval, 9000), LONGEST);
    }

    #[test]
    fn before_a_window_has_passed_nothing_is_decided() {
        let mut interval = CheckInterval::new();
        assert!(!interval.judge(ms(0), Picos::ZERO));
        assert!(!interval.judge(ms(1999), Picos::from_secs(1)));
        let mut always = CheckInterval::shortest();
        always.judge(ms(0), Picos::ZERO);
        assert!(!always.judge(ms(9000), Picos::from_secs(9)));
        assert!(interval.judge(ms(2000), Picos::from_secs(1)));
        // A move counts at once.
        interval.moved(ms(2100));
        assert!(interval.judge(ms(2100), Picos::from_secs(1)));
        assert_eq!(interval.every(), SHORTEST);
    }
}
