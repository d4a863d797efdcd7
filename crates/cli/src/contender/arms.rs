//! ARMS, by Yadalam and others (arXiv 2508.04417), as its authors' code has it: no threshold of
//! heat; the hottest pages that fit, each pair of moves only where it gains more than it costs.
//!
//! Every 500 ms each 2 MiB page has a short and a long average of samples, and a score of both. Who
//! is among the as many hottest as the fast tier holds for more than one interval, and whose score
//! does not fall, goes up, the hottest against the coldest page of the fast tier, if
//!
//! ```text
//! difference of scores × intervals hot × period × (latency slow − fast) > 1.5 × cost of both moves
//! ```
//!
//! Costs are measured at each move. A one-sided sum (CUSUM) of the slow tier's accesses tells that the
//! pattern has changed; then the short average weighs more for a while.
//!
//! Left out: stores weigh as much as loads (so in the code, except on Optane); latency under load
//! (unloaded here); the shorter period while the pattern changes; several moving threads. The thread
//! that asks for samples without pause runs where a column asks for it (`arms+busy=y`).
//!
//! Source: specs/compare.md#arms.

use super::chunks::{CHUNK, Chunks, Key};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Seen;
use homenode_core::policy::{Ledger, Policy};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::Caps;
use std::collections::BTreeSet;

/// Time between two decisions.
const INTERVAL: Picos = Picos::from_ms(500);
/// Weight of a second in the short and in the long average.
const SHORT: f64 = 0.667;
const LONG: f64 = 0.095;
/// Weights of both in the score, while the pattern stays and after it changed.
const HISTORY: [f64; 2] = [0.4, 0.6];
const RECENCY: [f64; 2] = [0.731, 0.269];
/// What a pair has to gain, in costs of its moves.
const MARGIN: f64 = 1.5;
/// Weight of a move in the averages of costs.
const COST: f64 = 2.0 / 21.0;
/// Drift and alarm of the change detector, in deviations, and how long recency lasts.
const DRIFT: f64 = 0.5;
const ALARM: f64 = 6.0;
const LASTS: u32 = 20;
/// Accesses a second on the slow tier below which nothing is said: 0.3 GB/s.
const QUIET: f64 = 0.3e9 / 64.0;
/// Threads that never sleep: the one that asks the rings of samples. The policy sleeps between its
/// intervals. (The workers that move pages wait for work in some of the published versions; in others
/// all of them ask for it without pause.)
///
/// Source: SujayYadalam94/tiering_solutions, `pebs_scan_thread.cpp`, `policy_thread.cpp`,
/// `migration_worker.cpp`.
const BUSY: u32 = 1;

/// What is known of a page's heat.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    samples: u32,
    short: f64,
    long: f64,
    score: f64,
    rises: bool,
    /// Intervals for which it is among the hottest.
    hot: u32,
}

/// Tells when a figure has risen for good.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    mean: f64,
    spread: f64,
    sum: f64,
    seen: u32,
}

impl Change {
    /// The next value; whether it is an alarm.
    fn next(&mut self, x: f64) -> bool {
        let weight = if self.seen == 0 { 1.0 } else { 0.2 };
        let off = x - self.mean;
        // Before anything is known, everything is ordinary.
        if self.seen >= 4 {
            // Of a normal distribution the mean distance from the mean is four fifths of that.
            let deviation = (self.spread * 1.25).max(self.mean * 0.01).max(1.0);
            self.sum = (self.sum + off / deviation - DRIFT).max(0.0);
        }
        self.seen += 1;
        if self.sum > ALARM {
            *self = Self::default();
            return true;
        }
        self.spread += (off.abs() - self.spread) * if self.seen <= 1 { 0.0 } else { weight };
        self.mean += off * weight;
        false
    }
}

struct Arms {
    chunks: Chunks<Heat>,
    /// Costs of a move up and down, in picoseconds.
    costs: [f64; 2],
    slow: u64,
    change: Change,
    /// Intervals of recency left.
    recent: u32,
    period: u64,
    odd: bool,
    next: Picos,
}

impl Arms {
    fn interval(&mut self) {
        // The detector has an interval of a second.
        self.odd = !self.odd;
        if self.odd {
            let rate = std::mem::take(&mut self.slow) as f64;
            if rate > QUIET && self.change.next(rate) {
                self.recent = LASTS;
            }
        }
        self.recent = self.recent.saturating_sub(1);
        let [short, long] = if self.recent > 0 { RECENCY } else { HISTORY };
        for chunk in self.chunks.all.values_mut() {
            let h = &mut chunk.own;
            // Samples a second; two intervals are a second, so each has half of its weight.
            let rate = f64::from(std::mem::take(&mut h.samples)) * 2.0;
            h.short += (rate - h.short) * (1.0 - (1.0 - SHORT).sqrt());
            h.long += (rate - h.long) * (1.0 - (1.0 - LONG).sqrt());
            let score = short * h.short + long * h.long;
            h.rises = score >= h.score;
            h.score = score;
        }
        let mut order: Vec<(f64, Key)> =
            self.chunks.all.iter().map(|(k, c)| (c.own.score, *k)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let fits = (self.chunks.tiers.room / CHUNK) as usize;
        let top: BTreeSet<Key> = order.iter().take(fits).map(|o| o.1).collect();
        for (key, chunk) in &mut self.chunks.all {
            chunk.own.hot = if top.contains(key) { chunk.own.hot + 1 } else { 0 };
        }
        if self.chunks.moving() > 0 {
            return;
        }
        let is = |key: &Key, fast: bool| {
            let chunk = &self.chunks.all[key];
            chunk.fast() == Some(fast) && !chunk.on_its_way
        };
        let rising: Vec<Key> = order
            .iter()
            .map(|o| o.1)
            .filter(|k| top.contains(k) && is(k, false))
            .filter(|k| self.chunks.all[k].own.hot > 1 && self.chunks.all[k].own.rises)
            .collect();
        let mut cold =
            order.iter().rev().map(|o| o.1).filter(|k| is(k, true)).collect::<Vec<_>>().into_iter();
        let both = self.costs[0] + self.costs[1];
        let [fast, slow] = self.chunks.tiers.latency;
        let gain = slow.saturating_sub(fast).0 as f64;
        let mut left = (INTERVAL.0 as f64 / both.max(1.0)) as u64;
        for up in rising {
            if left == 0 {
                break;
            }
            let hot = self.chunks.all[&up].own;
            let (down, other, costs) = if self.chunks.free >= CHUNK as i64 {
                (None, Heat::default(), self.costs[0])
            } else if let Some(key) = cold.next() {
                (Some(key), self.chunks.all[&key].own, both)
            } else {
                break;
            };
            if hot.short.min(hot.long) < other.short.max(other.long) {
                continue;
            }
            // Scores are samples a second; an interval has half of them.
            let each = (hot.score - other.score) / 2.0 * self.period as f64 * gain;
            if each * f64::from(hot.hot) <= MARGIN * costs {
                continue;
            }
            if let Some(key) = down {
                self.chunks.shift(key, false);
            }
            self.chunks.shift(up, true);
            left -= 1;
        }
    }
}

impl Policy for Arms {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        let (slow, every) = (&mut self.slow, &mut self.period);
        let landed = self.chunks.take(seen, |_, chunk, period| {
            chunk.own.samples += 1;
            *every = period;
            if chunk.fast() == Some(false) {
                *slow += period;
            }
        });
        for one in landed.iter().filter(|l| l.moved.0 > 0) {
            let cost = &mut self.costs[usize::from(!one.up)];
            let took = one.took.0 as f64 * CHUNK as f64 / one.moved.0 as f64;
            *cost += (took - *cost) * COST;
        }
        if now >= self.next {
            self.next = now + INTERVAL;
            self.interval();
        }
    }
    fn poll(&mut self) -> Option<Order> {
        self.chunks.poll()
    }
    fn timeout(&self) -> Option<Picos> {
        Some(self.next)
    }
    fn ledger(&self) -> &Ledger {
        self.chunks.ledger()
    }
    fn busy_threads(&self) -> u32 {
        BUSY
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, _: &Caps) -> Box<dyn Policy> {
    Box::new(Arms {
        chunks: Chunks::new(machine),
        // The code's floor of a move.
        costs: [500e6; 2],
        slow: 0,
        change: Change::default(),
        recent: 0,
        period: 0,
        odd: false,
        next: Picos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::splitmix::SplitMix;

    #[test]
    fn a_rise_for_good_is_an_alarm_and_noise_is_not() {
        let mut change = Change::default();
        let mut random = SplitMix::new(1);
        let mut noise = || 1000.0 + random.below(40) as f64;
        assert!((0..100).all(|_| !change.next(noise())));
        let at = (0..10).position(|_| change.next(noise() + 200.0));
        assert!(at.is_some_and(|n| n < 4), "{at:?}");
    }
}
