//! Whether moving pays: what moved memory saves, by the heat that it has now, against what
//! it cost. Not what was expected: that was before.
//!
//! ```text
//! |── 30 s ──|── 30 s ──|── 30 s ──|      from the first move on
//!   saved < cost   and again: stop
//! ```
//!
//! A page that made room costs what its accesses lose. What was moved twice counts twice,
//! from where it was to where it is.
//!
//! Source: specs/act.md#pays.

use homenode_core::policy::seen::{Span, Who};
use homenode_core::units::Picos;
use std::collections::VecDeque;

/// Horizons in a period: heat has to have lasted for longer than was assumed.
const HORIZONS: u64 = 3;
/// Periods in a row that have not paid.
const BAD: u32 = 2;
/// Orders that are remembered; the oldest go first.
const MOST: usize = 1 << 16;

/// Memory that was moved.
struct Piece {
    who: Who,
    spans: Vec<Span>,
    pages: u64,
    /// Picoseconds that an access takes less now; negative where it takes more.
    gain: i64,
}

/// The account.
pub(super) struct Pays {
    period: Picos,
    pieces: VecDeque<Piece>,
    /// End of the running period; `None` before the first move.
    next: Option<Picos>,
    /// Cost up to the beginning of it.
    cost: Picos,
    /// Cost at the last look before the first move.
    idle: Picos,
    bad: u32,
}

/// A period that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Period {
    /// Seconds that accesses took less in it.
    pub(super) saved: f64,
    /// Seconds that moving and deciding took.
    pub(super) cost: f64,
    /// Whether it is to end.
    pub(super) stop: bool,
}

impl Pays {
    pub(super) fn new(horizon: Picos) -> Self {
        let period = Picos(horizon.0.saturating_mul(HORIZONS).max(1));
        let cost = Picos::ZERO;
        Self { period, pieces: VecDeque::new(), next: None, cost, idle: cost, bad: 0 }
    }

    /// Pages were moved.
    ///
    /// * `gain` – picoseconds that an access takes less there.
    pub(super) fn moved(&mut self, now: Picos, who: Who, spans: Vec<Span>, pages: u64, gain: i64) {
        if self.next.is_none() {
            self.next = Some(now + self.period);
            self.cost = self.idle;
        }
        if self.pieces.len() >= MOST {
            self.pieces.pop_front();
        }
        self.pieces.push_back(Piece { who, spans, pages, gain });
    }
    /// The process is gone, and with it what it saved.
    pub(super) fn forget(&mut self, lives: &dyn Fn(Who) -> bool) {
        self.pieces.retain(|p| lives(p.who));
    }

    /// What the period came to, if one is over.
    ///
    /// * `cost` – all that moving, deciding and the source have taken so far.
    /// * `heat` – of some spans of a process, thousandths of accesses a page and second.
    pub(super) fn period(
        &mut self,
        now: Picos,
        cost: Picos,
        heat: &mut dyn FnMut(Who, &[Span]) -> u128,
    ) -> Option<Period> {
        let Some(next) = self.next else {
            self.idle = cost;
            return None;
        };
        if now < next {
            return None;
        }
        let took = now.saturating_sub(next) + self.period;
        // Thousandths of an access times picoseconds, each second.
        let mut rate: i128 = 0;
        for p in &self.pieces {
            let accesses = heat(p.who, &p.spans).saturating_mul(p.pages.into());
            let accesses = i128::try_from(accesses).unwrap_or(i128::MAX);
            rate = rate.saturating_add(accesses.saturating_mul(p.gain.into()));
        }
        let saved = rate as f64 / 1e15 * took.as_secs_f64();
        let spent = cost.saturating_sub(self.cost).as_secs_f64();
        self.cost = cost;
        self.next = Some(now + self.period);
        self.bad = if saved < spent { self.bad + 1 } else { 0 };
        Some(Period { saved, cost: spent, stop: self.bad >= BAD })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who { pid: 1, start: 1 };

    fn spans() -> Vec<Span> {
        vec![Span { start: 0, end: 1000 }]
    }

    #[test]
    fn it_stops_after_two_periods_that_have_not_paid() {
        let mut pays = Pays::new(Picos::from_secs(10));
        let at = Picos::from_secs;
        let hot = &mut |_: Who, _: &[Span]| 100_000;
        // Nothing was moved: there is nothing to judge, and what it cost until then is over.
        assert_eq!(pays.period(at(90), Picos::from_ms(900), hot), None);
        pays.moved(at(100), WHO, spans(), 1000, 200_000);
        assert_eq!(pays.period(at(129), at(1), hot), None);
        // A thousand pages, 100 accesses a second each, 200 ns: 20 ms a second.
        let p = pays.period(at(130), at(1), hot).unwrap();
        assert!((p.saved - 0.6).abs() < 1e-9 && (p.cost - 0.1).abs() < 1e-9 && !p.stop, "{p:?}");
        // It has gone cold. Once may be chance.
        let cold = &mut |_: Who, _: &[Span]| 0;
        assert!(!pays.period(at(160), at(2), cold).unwrap().stop);
        assert!(!pays.period(at(190), Picos::from_ms(2100), hot).unwrap().stop);
        assert!(!pays.period(at(220), at(3), cold).unwrap().stop);
        assert!(pays.period(at(250), at(4), cold).unwrap().stop);
    }

    #[test]
    fn what_made_room_and_who_is_gone_count() {
        let mut pays = Pays::new(Picos::from_secs(10));
        let at = Picos::from_secs;
        pays.moved(at(0), WHO, spans(), 1000, 200_000);
        pays.moved(at(0), Who { pid: 2, start: 1 }, spans(), 500, -200_000);
        let hot = &mut |_: Who, _: &[Span]| 100_000;
        let p = pays.period(at(30), Picos::ZERO, hot).unwrap();
        assert!((p.saved - 0.3).abs() < 1e-9, "{p:?}");
        pays.forget(&|who| who != WHO);
        let p = pays.period(at(60), Picos::ZERO, hot).unwrap();
        assert!((p.saved + 0.3).abs() < 1e-9, "{p:?}");
    }
}
