//! When levels are balanced: at ticks, and when a CPU runs out of tasks.

use super::super::domain::{Domains, Flags};
use super::interval::{avg_idle, interval};
use super::{Balance, IdleType, MINUTE, Queues};
use crate::units::HZ;

/// What going idle came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewlyIdle {
    /// There is something to run: pulled, or enqueued meanwhile.
    pub pulled: bool,
    /// What it took, in ns.
    pub cost_ns: u64,
    /// Levels that were balanced.
    pub levels: u32,
}

impl Balance {
    /// Whether a tick raises the softirq that balances.
    ///
    /// Source: specs/sched-balance.md#periodic.
    #[inline]
    pub fn due(&self, d: &Domains, cpu: usize, now_j: u64) -> bool {
        d.levels(cpu) > 0 && now_j >= self.cpus[cpu].next_balance
    }

    /// The softirq of a CPU that was not kicked: ages its averages and balances the levels that are due.
    ///
    /// * `idle` – what the CPU was doing when the tick came: busy or idle.
    ///
    /// Source: specs/sched-balance.md#periodic.
    pub fn softirq(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        cpu: usize,
        idle: IdleType,
        now_j: u64,
    ) {
        self.age(q, cpu, now_j);
        self.rebalance(d, q, cpu, idle, now_j);
    }

    /// Ages a CPU's averages and notes it.
    pub(super) fn age(&mut self, q: &mut impl Queues, cpu: usize, now_j: u64) {
        let left = q.update_blocked(cpu);
        let state = &mut self.cpus[cpu];
        state.last_blocked_update = now_j;
        state.has_blocked_load &= left;
    }

    /// Balances the levels of a CPU that are due.
    ///
    /// Source: specs/sched-balance.md#periodic.
    pub(super) fn rebalance(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        cpu: usize,
        mut idle: IdleType,
        now_j: u64,
    ) {
        let is_busy = |q: &_, idle| idle != IdleType::Idle && !Queues::sched_idle(q, cpu);
        let mut busy = is_busy(&*q, idle);
        let online = d.nr_online();
        let mut next_balance = now_j + MINUTE;
        let (mut update, mut decayed, mut stopped) = (false, false, false);
        let mut max_cost = 0;
        for level in 0..d.levels(cpu) {
            let slot = d.slot(cpu, level);
            decayed = self.levels[slot].cost(0, 0, now_j);
            max_cost += self.levels[slot].max_newidle_lb_cost;
            if stopped {
                if decayed {
                    continue;
                }
                break;
            }
            let mut wait = interval(self.levels[slot].balance_interval, busy, online);
            let taken = d.at(cpu, level).flags.has(Flags::SERIALIZE) && self.serializing;
            if !taken && now_j >= self.levels[slot].last_balance + wait {
                let outcome = self.balance(d, q, cpu, level, idle, now_j);
                q.balanced(cpu, level, idle, &outcome);
                stopped = outcome.stop;
                if outcome.moved > 0 {
                    // They may have come to another CPU of the group.
                    idle = if q.facts().idle(cpu) { IdleType::Idle } else { IdleType::Busy };
                    busy = is_busy(&*q, idle);
                }
                self.levels[slot].last_balance = now_j;
                wait = interval(self.levels[slot].balance_interval, busy, online);
            }
            let due = self.levels[slot].last_balance + wait;
            if next_balance > due {
                next_balance = due;
                update = true;
            }
        }
        let state = &mut self.cpus[cpu];
        if decayed {
            state.max_idle_balance_cost = max_cost.max(self.knobs.migration_cost_ns.max(0) as u64);
        }
        if update {
            state.next_balance = next_balance;
        }
    }

    /// A CPU has run out of fair tasks, and looks for one before it goes idle.
    ///
    /// * `now` – its clock, in ns; not 0.
    ///
    /// Source: specs/sched-balance.md#newly-idle.
    pub fn newly_idle(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        cpu: usize,
        now: u64,
        now_j: u64,
    ) -> NewlyIdle {
        let mut result = NewlyIdle::default();
        if q.pending(cpu) {
            return result;
        }
        self.cpus[cpu].idle_stamp = now;
        let mut next_balance = now_j + HZ;
        let levels = d.levels(cpu);
        if levels > 0 {
            let lowest = d.slot(cpu, 0);
            if self.overloaded && self.cpus[cpu].avg_idle >= self.levels[lowest].max_newidle_lb_cost
            {
                self.look_for_one(d, q, cpu, now_j, &mut next_balance, &mut result);
            } else {
                self.bring_forward(d, cpu, 0, &mut next_balance);
            }
        }
        let state = &mut self.cpus[cpu];
        state.next_balance = state.next_balance.min(next_balance);
        if result.pulled {
            state.idle_stamp = 0;
        } else {
            self.ask_for_aging(cpu, now_j);
        }
        result
    }

    fn bring_forward(&self, d: &Domains, cpu: usize, level: usize, next_balance: &mut u64) {
        let state = &self.levels[d.slot(cpu, level)];
        let due = state.last_balance + interval(state.balance_interval, false, d.nr_online());
        *next_balance = (*next_balance).min(due);
    }

    fn look_for_one(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        cpu: usize,
        now_j: u64,
        next_balance: &mut u64,
        result: &mut NewlyIdle,
    ) {
        let mut before = q.clock(cpu, 0);
        self.age(q, cpu, now_j);
        for level in 0..d.levels(cpu) {
            let slot = d.slot(cpu, level);
            self.bring_forward(d, cpu, level, next_balance);
            let state = &mut self.levels[slot];
            if self.cpus[cpu].avg_idle < result.cost_ns + state.max_newidle_lb_cost {
                break;
            }
            if !d.at(cpu, level).flags.has(Flags::BALANCE_NEWIDLE) {
                continue;
            }
            let mut weight = 1;
            if self.knobs.newidle_random {
                match state.admits(q.roll(cpu)) {
                    Some(counts) => weight = counts,
                    None => {
                        state.newidle(0);
                        continue;
                    }
                }
            }
            let outcome = self.balance(d, q, cpu, level, IdleType::NewlyIdle, now_j);
            q.balanced(cpu, level, IdleType::NewlyIdle, &outcome);
            result.levels += 1;
            let after = q.clock(cpu, outcome.scanned);
            let cost = after.saturating_sub(before);
            before = after;
            result.cost_ns += cost;
            result.pulled = outcome.moved > 0;
            let success = if result.pulled { weight } else { 0 };
            self.levels[slot].cost(cost, success, now_j);
            if result.pulled || outcome.stop {
                break;
            }
        }
        let state = &mut self.cpus[cpu];
        state.max_idle_balance_cost = state.max_idle_balance_cost.max(result.cost_ns);
        result.pulled |= q.facts().figures[cpu].nr_running > 0;
    }

    /// A wake-up was enqueued on a CPU: if it had gone idle, its idle time is averaged in.
    ///
    /// * `now` – its clock, in ns.
    ///
    /// Source: specs/sched-balance.md#avg-idle.
    #[inline]
    pub fn woken(&mut self, cpu: usize, now: u64) {
        let state = &mut self.cpus[cpu];
        if state.idle_stamp != 0 {
            let idle = now.saturating_sub(state.idle_stamp);
            state.avg_idle = avg_idle(state.avg_idle, idle, state.max_idle_balance_cost);
            state.idle_stamp = 0;
        }
    }
}
