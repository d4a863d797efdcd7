//! What CPUs without a task do: which idle state each is in, and how long it stays.
//!
//! ```text
//!  busy ──enter──▶ stay in C1E ──tick, POLL's limit──▶ stay in C6 ──leave──▶ busy
//!                  │ the governor chose it            │ and this      └ takes the state's time
//!                  └ and keeps the tick               └ the tick is stopped
//! ```
//!
//! A stay that ends by itself (by a tick that was kept, or as POLL's limit is reached) ends when
//! somebody looks: at a wake-up, at a fork, in the tick that was kept, when a file is read. Nobody
//! can tell, and an idle CPU without a tick costs nothing until then.
//!
//! Times are virtual time in picoseconds. Without idle states in the machine's file nothing of
//! this happens: see [`Idling::is_modelled`].
//!
//! Source: specs/idle.md.

use crate::kernel::TICK;
use crate::table::{prefetch_at, prefetch_value};
use homenode_core::sched::idle::{self, Ask, IdleState, Menu, Stay, Usage};
use homenode_core::topology::{IdleCosts, WokenBy};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No stay ends at this time.
const NEVER: u64 = u64::MAX;
/// The watchdog of each CPU has a timer so often: no CPU expects to be idle for longer.
///
/// Source: specs/idle.md#timers.
const WATCHDOG: u64 = 4_000_000_000_000;

/// A CPU that may be idle.
#[derive(Clone, Debug)]
struct CpuIdle {
    menu: Menu,
    /// It is idle.
    idle: bool,
    /// The state that it is in, and the one before.
    state: usize,
    before: usize,
    /// Since when it is in it. Not yet come: it is on its way out of the state before, or, if this
    /// is the first state of an idle time, still at what it did last.
    since: u64,
    first: bool,
    /// When the stay ends by itself, and whether that is a tick.
    ends: u64,
    by_tick: bool,
    /// The tick has been stopped in this idle time.
    tick_stopped: bool,
    /// Its next timer, the tick left out.
    next_timer: u64,
    /// Times of its timers and what each was set for. Some are out of date.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    /// How many tasks wait for I/O that ran there last.
    iowaiters: u32,
    /// It has been called and is on its way out of its state until then.
    out: u64,
}

/// What CPUs without a task do, on a machine whose file has idle states.
#[derive(Clone, Debug, Default)]
pub(crate) struct Idling {
    states: Vec<IdleState>,
    /// The governor is that of kernels up to 4.16, and POLL has no limit.
    early: bool,
    /// By state: what leaving takes, and what wakes a CPU from it.
    leaving: Vec<u64>,
    woken_by: Vec<WokenBy>,
    cpus: Vec<CpuIdle>,
    /// By CPU and state: switches and counters, and time in it in picoseconds.
    usage: Vec<Usage>,
    time: Vec<u64>,
    /// By CPU: the exit latency of its state in ns, as forks see it; `u32::MAX`: it is in none.
    exit: Vec<u32>,
    /// By so many CPUs side by side: no stay of theirs ends by itself before.
    soonest: Vec<u64>,
}

/// CPUs of which one number says when the first stay ends by itself.
const SIDE_BY_SIDE: usize = 32;

impl Idling {
    /// All CPUs are idle to begin with.
    pub(crate) fn new(states: &[IdleCosts], cpus: usize, early: bool) -> Self {
        if states.is_empty() {
            return Self::default();
        }
        let cpu = CpuIdle {
            menu: Menu::new(),
            idle: false,
            state: 0,
            before: 0,
            since: 0,
            first: true,
            ends: NEVER,
            by_tick: false,
            tick_stopped: false,
            next_timer: NEVER,
            timers: BinaryHeap::new(),
            iowaiters: 0,
            out: 0,
        };
        let mut it = Self {
            states: states.iter().map(IdleCosts::state).collect(),
            early,
            leaving: states.iter().map(IdleCosts::leaving).collect(),
            woken_by: states.iter().map(|s| s.woken_by).collect(),
            cpus: vec![cpu; cpus],
            usage: vec![Usage::default(); cpus * states.len()],
            time: vec![0; cpus * states.len()],
            exit: vec![u32::MAX; cpus],
            soonest: vec![NEVER; cpus.div_ceil(SIDE_BY_SIDE)],
        };
        (0..cpus).for_each(|cpu| it.enter(cpu, 0, NEVER));
        it
    }
    /// Whether the machine's file has idle states. Without, nothing here may be asked for.
    #[inline]
    pub(crate) fn is_modelled(&self) -> bool {
        !self.states.is_empty()
    }
    pub(crate) fn states(&self) -> &[IdleState] {
        &self.states
    }
    /// Exit latencies as forks see them; none where none are modelled.
    ///
    /// Source: specs/idle.md#seen.
    pub(crate) fn exits(&self) -> &[u32] {
        &self.exit
    }

    /// Has what is known of a CPU fetched.
    #[inline]
    pub(crate) fn fetch(&self, cpu: usize) {
        let Some(it) = self.cpus.get(cpu) else { return };
        let n = self.states.len();
        prefetch_value(std::ptr::from_ref(it).addr(), size_of::<CpuIdle>());
        prefetch_value((&raw const self.usage[cpu * n]).addr(), n * size_of::<Usage>());
        prefetch_at(&raw const self.time[cpu * n]);
    }

    /// The same of what that says where it is, when it has come.
    #[inline]
    pub(crate) fn fetch_further(&self, cpu: usize) {
        let Some(it) = self.cpus.get(cpu) else { return };
        prefetch_at(it.timers.as_slice().as_ptr());
    }

    // ── Timers ─────────────────────────────────────────────────────────────────

    /// A timer is set on a CPU, for something of that number.
    pub(crate) fn set_timer(&mut self, cpu: usize, time: u64, now: u64, what: usize) {
        let it = &mut self.cpus[cpu];
        // What has passed is of no use to anybody.
        while it.timers.peek().is_some_and(|Reverse((time, _))| *time <= now) {
            it.timers.pop();
        }
        it.timers.push(Reverse((time, what)));
        it.next_timer = it.next_timer.min(time);
    }
    /// A CPU's next timer after a time. `holds`: whether something's timer is still set for then.
    pub(crate) fn next_timer(
        &mut self,
        cpu: usize,
        now: u64,
        holds: impl Fn(usize, u64) -> bool,
    ) -> u64 {
        let timers = &mut self.cpus[cpu].timers;
        while let Some(&Reverse((time, what))) = timers.peek() {
            if time > now && holds(what, time) {
                return time;
            }
            timers.pop();
        }
        NEVER
    }

    /// A task that ran on a CPU last waits for I/O from now on, or no more.
    pub(crate) fn waits_for_io(&mut self, cpu: usize, is: bool) {
        let Some(it) = self.cpus.get_mut(cpu) else { return };
        it.iowaiters = if is { it.iowaiters + 1 } else { it.iowaiters.saturating_sub(1) };
    }

    // ── Stays ──────────────────────────────────────────────────────────────────

    /// A CPU has nothing to do from a time on.
    pub(crate) fn enter(&mut self, cpu: usize, now: u64, next_timer: u64) {
        let it = &mut self.cpus[cpu];
        (it.idle, it.tick_stopped, it.next_timer) = (true, false, next_timer);
        (it.first, it.out) = (true, 0);
        self.choose(cpu, now);
    }
    /// The governor chooses the state that a CPU is in from a time on.
    ///
    /// Source: specs/idle.md#entry.
    fn choose(&mut self, cpu: usize, now: u64) {
        let n = self.states.len();
        let it = &mut self.cpus[cpu];
        let usage = &self.usage[cpu * n..(cpu + 1) * n];
        if it.next_timer <= now {
            it.next_timer = NEVER;
        }
        let sleep = (it.next_timer - now).min(WATCHDOG);
        let tick = (now / TICK + 1) * TICK;
        let to_tick = if it.tick_stopped { sleep } else { sleep.min(tick - now) };
        let ask = Ask {
            sleep_length_ns: sleep / 1000,
            to_tick_ns: to_tick / 1000,
            tick_stopped: it.tick_stopped,
            latency_limit_ns: u64::MAX,
            iowaiters: it.iowaiters,
        };
        let chosen = match self.early {
            true => it.menu.select_early(&self.states, usage, &ask),
            false => it.menu.select(&self.states, usage, &ask),
        };
        it.tick_stopped |= chosen.stop_tick && sleep > TICK;
        (it.state, it.since) = (chosen.state, now);
        (it.ends, it.by_tick) = (NEVER, false);
        if !it.tick_stopped {
            (it.ends, it.by_tick) = (tick, true);
        }
        if self.states[chosen.state].polls && !self.early {
            let limit = now + idle::poll_limit_ns(&self.states, usage) * 1000;
            if limit < it.ends {
                (it.ends, it.by_tick) = (limit, false);
            }
        }
        let soonest = &mut self.soonest[cpu / SIDE_BY_SIDE];
        *soonest = it.ends.min(*soonest);
        let exit = self.states[chosen.state].exit_latency_ns;
        self.exit[cpu] = u32::try_from(exit).unwrap_or(u32::MAX - 1);
    }
    /// A stay is over at a time, which may still come.
    fn end(&mut self, cpu: usize, at: u64, by_tick: bool, poll_limit: bool) {
        let n = self.states.len();
        let it = &mut self.cpus[cpu];
        let (state, stay) = (it.state, at - it.since);
        let usage = &mut self.usage[cpu * n..(cpu + 1) * n];
        idle::left(&self.states, usage, state, stay / 1000);
        self.time[cpu * n + state] += stay;
        it.menu.reflect(state, Stay { residency_ns: stay / 1000, by_tick, poll_limit });
        (it.before, it.first) = (state, false);
    }
    /// Whether an idle CPU has left its tick on, since it expects to be called before.
    pub(crate) fn keeps_tick(&self, cpu: usize) -> bool {
        !self.cpus[cpu].tick_stopped
    }
    /// Ends what has ended by itself before a time.
    pub(crate) fn lapse(&mut self, cpu: usize, now: u64) {
        while self.cpus[cpu].idle && self.cpus[cpu].ends < now {
            let it = &self.cpus[cpu];
            let (ends, by_tick) = (it.ends, it.by_tick);
            // A tick has to wait until the CPU is out of its state, as any interrupt.
            let out = ends + if by_tick { self.leaving[it.state] } else { 0 };
            self.end(cpu, out, by_tick, !by_tick);
            self.choose(cpu, out);
        }
    }
    /// The same for all CPUs.
    pub(crate) fn lapse_all(&mut self, now: u64) {
        for some in 0..self.soonest.len() {
            if self.soonest[some] >= now {
                continue;
            }
            let first = some * SIDE_BY_SIDE;
            let end = self.cpus.len().min(first + SIDE_BY_SIDE);
            (first..end).for_each(|cpu| self.lapse(cpu, now));
            let ends = self.cpus[first..end].iter().filter(|it| it.idle).map(|it| it.ends);
            self.soonest[some] = ends.min().unwrap_or(NEVER);
        }
    }
    /// A CPU leaves its idle state for a task, called by an interrupt that takes so long if it
    /// needs one: how long that takes. A CPU that became idle at this moment is in none.
    pub(crate) fn leave(&mut self, cpu: usize, now: u64, interrupt: u64) -> u64 {
        let takes = self.wakes(cpu, now, interrupt);
        self.cpus[cpu].idle = false;
        self.exit[cpu] = u32::MAX;
        takes
    }
    /// A CPU that leaves its idle state is there at that time, and runs nobody before.
    pub(crate) fn comes_out(&mut self, cpu: usize, at: u64) {
        let it = &mut self.cpus[cpu];
        // Where it has been in no state there is no way out of one.
        it.out = if it.first { 0 } else { at };
    }
    /// A CPU that has left its state has found nobody to run, and is idle again from a time on.
    pub(crate) fn stay_on(&mut self, cpu: usize, from: u64) {
        self.cpus[cpu].idle = true;
        self.choose(cpu, from);
    }
    /// An interrupt comes to an idle CPU, which is idle again after it: how long it takes until
    /// the CPU can see to it.
    pub(crate) fn disturb(&mut self, cpu: usize, now: u64) -> u64 {
        self.lapse(cpu, now);
        let since = self.cpus[cpu].since;
        if since >= now {
            return since - now;
        }
        let takes = self.wakes(cpu, now, 0);
        self.choose(cpu, now + takes);
        takes
    }
    /// A stay ends: how long that takes.
    fn wakes(&mut self, cpu: usize, now: u64, interrupt: u64) -> u64 {
        self.lapse(cpu, now);
        let (since, state) = (self.cpus[cpu].since, self.cpus[cpu].state);
        if since >= now {
            return since - now;
        }
        let called = match self.woken_by[state] {
            WokenBy::Store => 0,
            WokenBy::Interrupt => interrupt,
        };
        let takes = called + self.leaving[state];
        self.end(cpu, now + takes, false, false);
        takes
    }

    // ── What is told ───────────────────────────────────────────────────────────

    /// Picoseconds of a CPU in each state by a time: they and the time in which it was not idle
    /// make all time.
    pub(crate) fn times(&self, cpu: usize, now: u64) -> Vec<u64> {
        if !self.is_modelled() {
            return Vec::new();
        }
        let mut it = self.clone_of(cpu);
        it.lapse(0, now);
        let here = &it.cpus[0];
        match now.checked_sub(here.since) {
            // What has not come yet of its way out is no part of it.
            _ if !here.idle => {
                let out = &mut it.time[here.before];
                *out = out.saturating_sub(here.out.saturating_sub(now));
            }
            Some(stay) => it.time[here.state] += stay,
            None if here.first => {}
            // It is on its way out of a state: what has not come yet is no part of it.
            None => {
                let out = &mut it.time[here.before];
                *out = out.saturating_sub(here.since - now);
            }
        }
        it.time
    }
    /// A CPU's counters by a time, with the stay that it is in left out, as the kernel's files
    /// have them.
    pub(crate) fn usage(&self, cpu: usize, now: u64) -> Vec<Usage> {
        let mut it = self.clone_of(cpu);
        it.lapse(0, now);
        it.usage
    }
    /// Switches a state of a CPU off or on.
    pub(crate) fn disable(&mut self, cpu: usize, state: usize, off: bool) {
        self.usage[cpu * self.states.len() + state].disabled = off;
    }
    /// One CPU alone: who looks on ends no stay.
    fn clone_of(&self, cpu: usize) -> Self {
        let n = self.states.len();
        Self {
            states: self.states.clone(),
            early: self.early,
            leaving: self.leaving.clone(),
            woken_by: self.woken_by.clone(),
            cpus: vec![self.cpus[cpu].clone()],
            usage: self.usage[cpu * n..(cpu + 1) * n].to_vec(),
            time: self.time[cpu * n..(cpu + 1) * n].to_vec(),
            exit: vec![u32::MAX],
            soonest: vec![NEVER],
        }
    }
}

#[cfg(test)]
mod tests;
