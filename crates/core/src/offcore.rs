//! What counters of CPUs show of loads that memory answered, and what follows from it: how long
//! one is under way, how many are at once, and how long a program waits for each.
//!
//! Hooks of the kernel are told of all CPUs ([`crate::hooks::Hooks::counted`]), a policy of one
//! process ([`crate::policy::seen::Seen::Loads`]).
//!
//! Source: docs/decisions/0013-hooks.md, docs/decisions/0036-what-an-access-is-waited-for.md.

use crate::units::Picos;

/// What counters of CPUs show of loads that memory answered: of all CPUs together, or while one
/// process runs.
///
/// ```text
///  one CPU, four loads of 200 ns under way at once:   reads      4
///    ├──────── 200 ns ────────┤                       under way  800 ns
///    ├────────────────────────┤                       busy       200 ns
///    ├────────────────────────┤                       latency    800 / 4 = 200 ns
///    ├────────────────────────┤                       amortized  200 / 4 =  50 ns
///                                                   at once    800 / 200 = 4
/// ```
///
/// Source: docs/decisions/0013-hooks.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offcore {
    /// Loads: demand reads, without stores and without what a cache answers.
    pub reads: u64,
    /// Time in which at least one of them was under way, CPU by CPU.
    pub busy: Picos,
    /// How long each of them was under way, all of them together.
    pub under_way: Picos,
}

impl Offcore {
    /// Counts accesses of one CPU that took so long, computing included, where its loads among
    /// them were under way for so long together. No load is under way for longer than all took,
    /// and those that wait for one another are under way one at a time.
    pub fn add(&mut self, reads: u64, under_way: Picos, took: Picos) {
        self.reads += reads;
        self.under_way.0 += under_way.0;
        self.busy.0 += under_way.0.min(took.0);
    }
    /// Takes over what was counted apart.
    pub fn take_over(&mut self, other: &Self) {
        self.reads += other.reads;
        self.busy.0 += other.busy.0;
        self.under_way.0 += other.under_way.0;
    }
    /// What has come since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            busy: Picos(self.busy.0 - earlier.busy.0),
            under_way: Picos(self.under_way.0 - earlier.under_way.0),
        }
    }
    /// Mean time from a load to its line; `None` without loads.
    pub fn latency(&self) -> Option<Picos> {
        self.under_way.0.checked_div(self.reads).map(Picos)
    }
    /// Amortized offcore latency, which is that by the loads that were under way at once: what a
    /// load is waited for; `None` without loads.
    pub fn amortized(&self) -> Option<Picos> {
        self.busy.0.checked_div(self.reads).map(Picos)
    }
    /// How many loads were under way at once, in the mean over the time in which one was, in
    /// thousandths: 1000 and more; `None` where none was.
    pub fn at_once(&self) -> Option<u64> {
        let all = u128::from(self.under_way.0) * 1000;
        let mean = all.checked_div(u128::from(self.busy.0))?;
        Some(u64::try_from(mean).unwrap_or(u64::MAX).max(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/decisions/0013-hooks.md: the drawing at the type.
    #[test]
    fn loads_that_are_under_way_at_once_are_waited_for_together() {
        let ns = Picos::from_ns;
        let mut c = Offcore::default();
        assert_eq!((c.latency(), c.amortized(), c.at_once()), (None, None, None));
        c.add(4, ns(800), ns(200));
        assert_eq!((c.latency(), c.amortized()), (Some(ns(200)), Some(ns(50))));
        assert_eq!(c.at_once(), Some(4000));
        // Computing between loads that wait for one another is no time in which one is under way.
        let before = c;
        c.add(4, ns(800), ns(1000));
        let last = c.since(&before);
        assert_eq!(
            (last.reads, last.latency(), last.amortized()),
            (4, Some(ns(200)), Some(ns(200)))
        );
        assert_eq!(last.at_once(), Some(1000));
        // Stores alone are nothing.
        c.add(0, ns(0), ns(1000));
        assert_eq!(c.since(&before), last);
    }
}
