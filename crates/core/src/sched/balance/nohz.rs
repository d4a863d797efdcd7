//! CPUs that sleep without a tick: a busy CPU's tick kicks one of them, which balances for all.

use super::super::domain::Domains;
use super::group::reduced;
use super::{Balance, Facts, IdleType, MINUTE, Queues};
use crate::kernel::msecs_to_jiffies;

/// Balance for those that are due.
const BALANCE: u8 = 1;
/// Age averages.
const STATS: u8 = 2;
/// Age averages before going idle oneself.
const NEWILB: u8 = 4;
/// Reckon anew when the next one is due.
const NEXT: u8 = 8;

/// Averages are aged after so long, in ms.
const LOAD_AVG_PERIOD_MS: u64 = 32;

/// What is known of CPUs without a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nohz {
    /// Which they are, by place. A CPU leaves it at its first tick with a task.
    idle_cpus: Vec<u64>,
    nr_cpus: u32,
    pub(super) has_blocked: bool,
    pub(super) needs_update: bool,
    pub(super) next_blocked: u64,
    pub(super) next_balance: u64,
}

impl Nohz {
    pub(super) fn new(nr_cpus: usize, now_j: u64) -> Self {
        Self {
            idle_cpus: vec![0; nr_cpus.div_ceil(64)],
            nr_cpus: 0,
            has_blocked: false,
            needs_update: false,
            next_blocked: now_j,
            next_balance: now_j,
        }
    }
    /// A bitmap of those that are taken to sleep without a tick.
    pub fn idle_cpus(&self) -> &[u64] {
        &self.idle_cpus
    }
    /// The tick from which one of them may have a level that is due.
    pub fn next_balance(&self) -> u64 {
        self.next_balance
    }
    pub(super) fn bytes(&self) -> usize {
        self.idle_cpus.capacity() * size_of::<u64>()
    }
    /// The first of them from `from` on, up to `to`.
    fn next(&self, from: usize, to: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut left = *self.idle_cpus.get(word)? & u64::MAX << (from % 64);
        loop {
            if left != 0 {
                let cpu = word * 64 + left.trailing_zeros() as usize;
                return (cpu < to).then_some(cpu);
            }
            word += 1;
            left = *self.idle_cpus.get(word)?;
            if word * 64 >= to {
                return None;
            }
        }
    }
}

impl Balance {
    /// A CPU goes idle without a tick.
    ///
    /// Source: specs/sched-balance.md#nohz.
    pub fn tick_stopped(&mut self, d: &Domains, cpu: usize) {
        let state = &mut self.cpus[cpu];
        state.has_blocked_load = true;
        if !state.tick_stopped {
            if d.levels(cpu) == 0 {
                return;
            }
            state.tick_stopped = true;
            self.nohz.idle_cpus[cpu / 64] |= 1 << (cpu % 64);
            self.nohz.nr_cpus += 1;
            if let Some(llc) = d.llc(cpu).filter(|_| !state.llc_idle) {
                state.llc_idle = true;
                self.llcs[llc].nr_busy -= 1;
            }
            self.nohz.needs_update = true;
        }
        self.nohz.has_blocked = true;
    }

    /// A CPU's tick found it busy, or the CPU goes offline: it no longer counts as sleeping.
    pub fn busy_tick(&mut self, d: &Domains, cpu: usize) {
        let state = &mut self.cpus[cpu];
        if !std::mem::take(&mut state.tick_stopped) {
            return;
        }
        self.nohz.idle_cpus[cpu / 64] &= !(1 << (cpu % 64));
        self.nohz.nr_cpus -= 1;
        if let Some(llc) = d.llc(cpu).filter(|_| state.llc_idle) {
            state.llc_idle = false;
            self.llcs[llc].nr_busy += 1;
        }
    }

    /// A tick's question whether CPUs that sleep are to balance. The CPU that gets an IPI for it,
    /// upon which it calls [`Self::kicked`].
    ///
    /// Source: specs/sched-balance.md#nohz.
    pub fn kick(&mut self, d: &Domains, f: &Facts<'_>, cpu: usize, now_j: u64) -> Option<usize> {
        if f.idle(cpu) || d.levels(cpu) == 0 {
            return None;
        }
        self.busy_tick(d, cpu);
        if self.nohz.nr_cpus == 0 {
            return None;
        }
        let mut flags = 0;
        if self.nohz.has_blocked && now_j > self.nohz.next_blocked {
            flags = STATS;
        }
        if now_j >= self.nohz.next_balance && self.wants_help(d, f, cpu) {
            flags = STATS | BALANCE;
        }
        if self.nohz.needs_update {
            flags |= NEXT;
        }
        if flags == 0 {
            return None;
        }
        if flags & BALANCE != 0 {
            self.nohz.next_balance = now_j + 1;
        }
        let nr = self.cpus.len();
        let mut from = 0;
        let ilb = loop {
            let found = self.nohz.next(from, nr)?;
            if found != cpu && f.idle(found) {
                break found;
            }
            from = found + 1;
        };
        let state = &mut self.cpus[ilb];
        let before = state.kick;
        state.kick |= flags;
        // An IPI is under way already.
        (before & (BALANCE | STATS | NEXT) == 0).then_some(ilb)
    }

    /// Whether a busy CPU has what a sleeping one could take.
    fn wants_help(&self, d: &Domains, f: &Facts<'_>, cpu: usize) -> bool {
        let c = &f.figures[cpu];
        if c.nr_running >= 2 {
            return true;
        }
        if c.h_nr_queued >= 1 && reduced(self, d, cpu, d.at(cpu, 0).imbalance_pct.into()) {
            return true;
        }
        if d.asym_level(cpu).is_some() {
            return f.misfit.get(cpu).is_some_and(|&load| load > 0);
        }
        d.llc(cpu).is_some_and(|llc| self.llcs[llc].nr_busy > 1)
    }

    /// The IPI of a kick: balances for all CPUs that sleep. `false`: nothing was to be done, so that what is
    /// due of the CPU itself waits for its tick.
    ///
    /// Source: specs/sched-balance.md#nohz.
    pub fn kicked(&mut self, d: &Domains, q: &mut impl Queues, cpu: usize, now_j: u64) -> bool {
        let flags = std::mem::take(&mut self.cpus[cpu].kick);
        if flags == 0 || !q.facts().idle(cpu) {
            return false;
        }
        self.balance_for_all(d, q, cpu, flags, now_j);
        true
    }

    /// Before a CPU enters idle: ages the averages of those that sleep, if its newly idle balancing has
    /// asked for it and no kick will do it.
    pub fn before_idle(&mut self, d: &Domains, q: &mut impl Queues, cpu: usize, now_j: u64) {
        let flags = self.cpus[cpu].kick;
        self.cpus[cpu].kick &= !NEWILB;
        if flags == NEWILB && !q.need_resched(cpu) {
            self.balance_for_all(d, q, cpu, STATS, now_j);
        }
    }

    /// A CPU goes idle for some time, and averages are old.
    pub(super) fn ask_for_aging(&mut self, cpu: usize, now_j: u64) {
        let cost = self.knobs.migration_cost_ns.max(0) as u64;
        let n = &self.nohz;
        if self.cpus[cpu].avg_idle >= cost && n.has_blocked && now_j >= n.next_blocked {
            self.cpus[cpu].kick |= NEWILB;
        }
    }

    fn balance_for_all(
        &mut self,
        d: &Domains,
        q: &mut impl Queues,
        this: usize,
        flags: u8,
        now_j: u64,
    ) {
        let wants = |flag| flags & flag != 0;
        if wants(STATS) {
            self.nohz.has_blocked = false;
        }
        if wants(NEXT) {
            self.nohz.needs_update = false;
        }
        let mut next_balance = now_j + MINUTE;
        let (mut update, mut blocked) = (false, false);
        // From the next CPU on, once round, itself last.
        for (mut from, to) in [(this + 1, self.cpus.len()), (0, this + 1)] {
            while let Some(cpu) = self.nohz.next(from, to) {
                from = cpu + 1;
                if !q.facts().idle(cpu) {
                    continue;
                }
                if !q.facts().idle(this) && q.need_resched(this) {
                    // It has got work: the next one to be kicked goes on.
                    self.nohz.has_blocked |= wants(STATS) || blocked;
                    self.nohz.needs_update |= wants(NEXT);
                    return;
                }
                if wants(STATS) {
                    blocked |= self.age_sleeper(q, cpu, now_j);
                }
                if now_j >= self.cpus[cpu].next_balance {
                    q.update(cpu);
                    if wants(BALANCE) {
                        self.rebalance(d, q, cpu, IdleType::Idle, now_j);
                    }
                }
                if next_balance > self.cpus[cpu].next_balance {
                    next_balance = self.cpus[cpu].next_balance;
                    update = true;
                }
            }
        }
        if update {
            self.nohz.next_balance = next_balance;
        }
        if wants(STATS) {
            self.nohz.next_blocked = now_j + msecs_to_jiffies(LOAD_AVG_PERIOD_MS);
        }
        self.nohz.has_blocked |= blocked;
    }

    /// Whether a sleeping CPU has averages that still age.
    fn age_sleeper(&mut self, q: &mut impl Queues, cpu: usize, now_j: u64) -> bool {
        let state = &self.cpus[cpu];
        if !state.has_blocked_load || !state.tick_stopped {
            return false;
        }
        if now_j > state.last_blocked_update {
            self.age(q, cpu, now_j);
        }
        self.cpus[cpu].has_blocked_load
    }
}
