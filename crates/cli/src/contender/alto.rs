//! Alto, the gate of Liu and others (OSDI'25) in front of another policy's promotions, here TPP's:
//! where accesses overlap, a page that is used often is waited for little, and stays.
//!
//! ```text
//!  counters of the last second ──▶ cycles that a load is waited for ──▶ k
//!                                                                       ▼
//!  hint fault ──▶ TPP: on an active list? ──yes──▶ the first k of each ten go up
//! ```
//!
//! A share that is set stays until a second says otherwise; one in which loads come back within
//! 100 cycles says nothing. At first all go up.
//!
//! Departures: the authors watch one program, whose counters `perf stat` reads, and set a knob for
//! all; here nobody names the program, so the counters are those of all CPUs. They count to ten by
//! task, of which hooks aren't told; here all tasks count together. Cycles are those of the nominal
//! clock. The authors begin after two seconds, here after one; and reading costs nothing here.
//!
//! Source: specs/compare.md#alto.

use super::tpp::Tpp;
use homenode_core::hooks::{Hooks, SlowFault, SlowVerdict};
use homenode_core::kernel::KernelVersion;
use homenode_core::numa::filter::{Verdict, Why};
use homenode_core::offcore::Offcore;
use homenode_core::scenario::Margin;
use homenode_core::tiering::watermarks::{WakeFacts, ZoneMarks};
use homenode_core::topology::Hardware;
use homenode_core::units::{Pages, Picos};

/// How often the counters are read.
const SECOND_MS: u32 = 1000;
/// Mean cycles of a load up to which nothing is changed.
const NEAR: u64 = 100;
/// Cycles that a load is waited for, up to which so many of ten go up.
const SHARES: [(u64, u32); 4] = [(40, 0), (60, 1), (80, 3), (100, 5)];
const ALL: u32 = 10;
/// Clock of the Xeon Silver 4114, turbo off, for which the authors' marks are; for machines whose
/// file has none.
const MHZ: u32 = 2200;

struct Alto {
    tpp: Tpp,
    mhz: u32,
    /// How many of ten go up.
    share: u32,
    /// Of the present ten, how many have come and how many of them went up.
    come: u32,
    up: u32,
    /// The last look at the counters.
    last: Option<(u32, Offcore)>,
}

impl Alto {
    fn new(mhz: u32) -> Self {
        Self { tpp: Tpp, mhz, share: ALL, come: 0, up: 0, last: None }
    }
    /// Whether so much time of so many loads is at most so many cycles for each.
    fn is_within(&self, time: Picos, loads: u64, cycles: u64) -> bool {
        let have = u128::from(time.0) * u128::from(self.mhz);
        have <= u128::from(loads) * u128::from(cycles) * 1_000_000
    }
    /// The share that the counters of a second ask for; `None` where they say nothing.
    fn share(&self, c: &Offcore) -> Option<u32> {
        if self.is_within(c.under_way, c.reads, NEAR) {
            return None;
        }
        let first = SHARES.iter().find(|(cycles, _)| self.is_within(c.busy, c.reads, *cycles));
        Some(first.map_or(ALL, |(_, share)| *share))
    }
    /// Whether the next one goes up.
    fn lets_through(&mut self) -> bool {
        let goes = self.up < self.share;
        self.up += u32::from(goes);
        self.come += 1;
        if self.come == ALL {
            (self.come, self.up) = (0, 0);
        }
        goes
    }
}

impl Hooks for Alto {
    fn hint_fault(&mut self, f: &mut SlowFault<'_>) -> SlowVerdict {
        let said = self.tpp.hint_fault(f);
        let moves = matches!(said.verdict, Verdict::Move { .. });
        if !moves || self.lets_through() {
            return said;
        }
        SlowVerdict { verdict: Verdict::Stay { why: Why::RateLimited }, ..said }
    }
    fn aim(&self, marks: &ZoneMarks, margin: Margin, wake: WakeFacts) -> Pages {
        self.tpp.aim(marks, margin, wake)
    }
    fn wakes_kswapd(&mut self, free: Pages, marks: &ZoneMarks, can_demote: bool) -> bool {
        self.tpp.wakes_kswapd(free, marks, can_demote)
    }
    fn counts(&self) -> bool {
        true
    }
    fn counted(&mut self, c: &Offcore, now_ms: u32) {
        let (then, before) = *self.last.get_or_insert((now_ms, *c));
        if now_ms.wrapping_sub(then) >= SECOND_MS {
            self.share = self.share(&c.since(&before)).unwrap_or(self.share);
            self.last = Some((now_ms, *c));
        }
    }
}

pub(super) fn rules(machine: &Hardware, _: KernelVersion) -> Box<dyn Hooks> {
    let mhz = machine.cpus.iter().find_map(|c| c.mhz);
    Box::new(Alto::new(mhz.unwrap_or(MHZ)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many loads in a second that were under way for so many cycles each, so many at once.
    fn second(cycles: u64, at_once: u64) -> Offcore {
        // At 1 GHz a cycle is a nanosecond.
        let mut c = Offcore::default();
        c.add(1000, Picos::from_ns(cycles * at_once * 1000), Picos::from_ns(cycles * 1000));
        c
    }

    /// Source: specs/compare.md#alto.
    #[test]
    fn what_a_load_is_waited_for_says_how_many_of_ten_go_up() {
        let alto = Alto::new(1000);
        let share = |cycles, at_once| alto.share(&second(cycles, at_once));
        let shares = [30, 40, 41, 60, 61, 80, 81, 100, 101, 600].map(|cycles| share(cycles, 8));
        assert_eq!(shares, [0, 0, 1, 1, 3, 3, 5, 5, 10, 10].map(Some));
        // Latencies up to 100 cycles, and no load at all, leave the share as it is.
        assert_eq!((share(50, 2), share(51, 2)), (None, Some(1)));
        assert_eq!(alto.share(&Offcore::default()), None);
        // At twice the clock as many picoseconds are twice as many cycles.
        assert_eq!(Alto::new(2000).share(&second(41, 8)), Some(5));
    }

    #[test]
    fn the_first_of_each_ten_go_up() {
        let mut alto = Alto { share: 3, ..Alto::new(MHZ) };
        let mut next = |n| (0..n).filter(|_| alto.lets_through()).count();
        assert_eq!((next(3), next(7), next(10)), (3, 0, 3));
        alto.share = 0;
        assert!((0..20).all(|_| !alto.lets_through()));
        alto.share = ALL;
        assert!((0..20).all(|_| alto.lets_through()));
    }

    #[test]
    fn counters_are_read_once_a_second() {
        let mut alto = Alto::new(1000);
        let mut c = Offcore::default();
        let mut shares = Vec::new();
        for (now_ms, more) in [(4, 30), (500, 30), (1000, 30), (1004, 30), (2000, 600), (2004, 70)]
        {
            c.take_over(&second(more, 8));
            alto.counted(&c, now_ms);
            shares.push(alto.share);
        }
        // The last second has seen 600 cycles and 70, half of the loads each.
        assert_eq!(shares, [10, 10, 10, 0, 0, 10]);
    }
}
