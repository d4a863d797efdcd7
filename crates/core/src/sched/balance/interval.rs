//! How often levels are balanced, and what is learnt from going idle.

use super::super::domain::BUSY_FACTOR;
use super::{Level, Llc};
use crate::units::HZ;

/// Milliseconds as ticks, rounded up.
#[inline]
pub const fn jiffies(ms: u32) -> u64 {
    (ms as u64 * HZ).div_ceil(1000)
}

/// The longest time between balancings, in ticks: a tenth of a second for each CPU that is online.
///
/// Source: specs/sched-balance.md#intervals.
#[inline]
pub const fn max_interval(nr_online: u32) -> u64 {
    let most = HZ * nr_online as u64 / 10;
    if most == 0 { 1 } else { most }
}

/// Ticks between two balancings of a level whose interval is `ms`. A busy CPU waits sixteen times as
/// long, less a tick, so that levels don't fall due together.
///
/// Source: specs/sched-balance.md#intervals.
#[inline]
pub const fn interval(ms: u32, busy: bool, nr_online: u32) -> u64 {
    let j =
        if busy { jiffies(ms.saturating_mul(BUSY_FACTOR)).saturating_sub(1) } else { jiffies(ms) };
    let max = max_interval(nr_online);
    if j < 1 {
        1
    } else if j > max {
        max
    } else {
        j
    }
}

impl Level {
    /// Counts a time of going idle. `success`: 0, or the weight of one that brought a task.
    ///
    /// Source: specs/sched-balance.md#dice.
    #[inline]
    pub fn newidle(&mut self, success: u32) {
        self.newidle_call += 1;
        self.newidle_success = self.newidle_success.saturating_add(success);
        if self.newidle_call >= 1024 {
            self.newidle_ratio = self.newidle_success;
            self.newidle_call /= 2;
            self.newidle_success /= 2;
        }
    }

    /// Whether a random number below 1024 lets a CPU that goes idle balance, and how much a success then
    /// counts: the less often it is let, the more.
    ///
    /// Source: specs/sched-balance.md#dice.
    #[inline]
    pub const fn admits(&self, roll: u32) -> Option<u32> {
        let weight = 1 + self.newidle_ratio;
        if roll > weight { None } else { Some((1024 + weight / 2) / weight) }
    }

    /// What balancing on going idle has cost, in ns; 0 at a periodic visit, which only lets the cost decay.
    /// Whether it decayed.
    ///
    /// Source: specs/sched-balance.md#cost.
    pub fn cost(&mut self, ns: u64, success: u32, now_j: u64) -> bool {
        if ns > 0 {
            self.newidle(success);
        }
        if ns > self.max_newidle_lb_cost {
            self.max_newidle_lb_cost = ns;
            self.last_decay_max_lb_cost = now_j;
        } else if now_j > self.last_decay_max_lb_cost + HZ {
            self.max_newidle_lb_cost = self.max_newidle_lb_cost * 253 / 256;
            self.last_decay_max_lb_cost = now_j;
            return true;
        }
        false
    }
}

/// The average idle time after an idle period, both in ns: an eighth of the difference, at most twice
/// what balancing on going idle has cost.
///
/// Source: specs/sched-balance.md#avg-idle.
#[inline]
pub const fn avg_idle(avg: u64, idle: u64, max_idle_balance_cost: u64) -> u64 {
    let difference = idle as i64 - avg as i64;
    let new = (avg as i64 + difference / 8) as u64;
    let most = 2 * max_idle_balance_cost;
    if new > most { most } else { new }
}

/// How many CPUs of an LLC a wake-up may look at, given the sum of their utilisations: all of them where
/// they are idle, none from about 1/`pct` on.
///
/// * `weight` – CPUs of the LLC, not 0.
/// * `pct` – the level's `imbalance_pct`.
///
/// Source: specs/sched-balance.md#idle-scan.
#[inline]
pub const fn nr_idle_scan(sum_util: u64, weight: u32, pct: u32) -> u32 {
    let x = sum_util / weight as u64;
    let pct = pct as u64;
    let used = x.saturating_mul(x).saturating_mul(pct * pct) / (10_000 * 1024);
    let left = 1024 - if used > 1024 { 1024 } else { used };
    (left * weight as u64 / 1024) as u32
}

impl Llc {
    pub(super) fn utilised(&mut self, sum_util: u64, weight: u32, pct: u32) {
        self.nr_idle_scan = nr_idle_scan(sum_util, weight, pct);
    }
}
