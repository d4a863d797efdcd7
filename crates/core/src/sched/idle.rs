//! Idle states, and the menu governor that chooses one.
//!
//! A deeper state saves more and takes longer to leave; it pays from its *target residency* on. So
//! the governor predicts how long the CPU will be idle, and takes the deepest state that pays:
//!
//! * the time to the next timer, times how much of such times came true (a *factor* for each order of
//!   magnitude);
//! * or what the last eight idle periods had in common, if they had (the *typical interval*).
//!
//! Where it predicts less than a tick, the tick keeps running, so that a wrong guess ends with it.
//!
//! Worked example: eight periods of 50 µs, next timer in 3 ms. Typical is 50 µs, so of Haswell-EP's states
//! C1E (pays from 20 µs) is taken and not C3 (100 µs); the tick is kept.
//!
//! Times are in nanoseconds, but for intervals in microseconds, as in the kernel.
//!
//! Source: specs/idle.md (Linux 6.12).

use crate::kernel::TICK_NSEC;

#[cfg(test)]
mod tests;

/// A state that an idle CPU can be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// As `cpuidle` names it.
    pub name: String,
    /// The longest that leaving takes, with entry, in ns.
    pub exit_latency_ns: u64,
    /// How long a stay has to be to pay, in ns.
    pub target_residency_ns: u64,
    /// The CPU does not sleep: it looks for work all the time.
    pub polls: bool,
}

crate::named! {
    /// The states of CPU models, as Linux's tables and firmware have them.
    ///
    /// Source: specs/idle.md#states.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Table {
        /// Haswell-EP, such as E5-2670 v3 (intel_idle, without what servers don't list).
        HaswellEp => "haswell-ep",
        /// Ivy Bridge, such as i7-3770 (intel_idle).
        IvyBridge => "ivy-bridge",
        /// Skylake client and E3 v5, all states listed (intel_idle).
        SkylakeClient => "skylake",
        /// Skylake-SP (intel_idle).
        SkylakeSp => "skylake-sp",
        /// Skylake-SP whose firmware has package C6 off (intel_idle, 6.12).
        SkylakeSpNoPackageC6 => "skylake-sp-no-pc6",
        /// Ice Lake-SP (intel_idle).
        IceLakeSp => "ice-lake-sp",
        /// Sapphire Rapids (intel_idle, 6.12).
        SapphireRapids => "sapphire-rapids",
        /// Sapphire Rapids whose firmware has package C6 off (intel_idle, 6.12).
        SapphireRapidsNoPackageC6 => "sapphire-rapids-no-pc6",
        /// Zen, as firmware of Naples and Rome has it (ACPI; residency is twice the latency).
        Zen => "zen",
        /// Zen, as firmware of Milan has it.
        ZenMilan => "zen-milan",
        /// A guest, or a kernel without cpuidle: halt only.
        Halt => "halt",
    }
}

impl Table {
    /// The states, POLL first, each with its exit latency and target residency in µs.
    const fn microseconds(self) -> &'static [(&'static str, u64, u64)] {
        match self {
            Self::HaswellEp => &[("C1", 2, 2), ("C1E", 10, 20), ("C3", 33, 100), ("C6", 133, 400)],
            Self::IvyBridge => {
                &[("C1", 1, 1), ("C1E", 10, 20), ("C3", 59, 156), ("C6", 80, 300), ("C7", 87, 300)]
            }
            Self::SkylakeClient => &[
                ("C1", 2, 2),
                ("C1E", 10, 20),
                ("C3", 70, 100),
                ("C6", 85, 200),
                ("C7s", 124, 800),
                ("C8", 200, 800),
                ("C9", 480, 5000),
                ("C10", 890, 5000),
            ],
            Self::SkylakeSp => &[("C1", 2, 2), ("C1E", 10, 20), ("C6", 133, 600)],
            Self::SkylakeSpNoPackageC6 => &[("C1", 2, 2), ("C1E", 10, 20), ("C6", 92, 276)],
            Self::IceLakeSp => &[("C1", 1, 1), ("C1E", 4, 4), ("C6", 170, 600)],
            Self::SapphireRapids => &[("C1", 1, 1), ("C1E", 2, 4), ("C6", 290, 800)],
            Self::SapphireRapidsNoPackageC6 => &[("C1", 1, 1), ("C1E", 2, 4), ("C6", 190, 600)],
            Self::Zen => &[("C1", 1, 2), ("C2", 400, 800)],
            Self::ZenMilan => &[("C1", 1, 2), ("C2", 800, 1600)],
            Self::Halt => &[],
        }
    }

    /// The states from the shallowest on: POLL, then those that sleep. A table without any has one that
    /// halts and costs nothing.
    pub fn states(self) -> Vec<IdleState> {
        let state = |name: &str, exit, residency, polls| IdleState {
            name: name.to_string(),
            exit_latency_ns: exit * US,
            target_residency_ns: residency * US,
            polls,
        };
        match self.microseconds() {
            [] => vec![state("HLT", 0, 0, false)],
            sleeping => std::iter::once(state("POLL", 0, 0, true))
                .chain(sleeping.iter().map(|&(name, exit, stay)| state(name, exit, stay, false)))
                .collect(),
        }
    }
}

const US: u64 = 1000;
/// Below this, timers are not asked, in ns.
const RESIDENCY_THRESHOLD_NS: u64 = 15 * US;
/// Up to 4.16: whose next timer is not later polls, in ns.
const LEAST_POLL_NS: u64 = 20 * US;
/// Longer periods are as good as predicted, in ns.
const MAX_INTERESTING_NS: u64 = 50_000 * US;
const BUCKETS: usize = 6;
const INTERVALS: usize = 8;
const RESOLUTION: u64 = 1024;
const DECAY: u64 = 8;
/// No typical interval; an interval of which nothing is known. In µs.
const UNKNOWN_US: u32 = u32::MAX;
/// No timer, in ns: as far as the kernel's signed time reaches.
const NEVER_NS: u64 = i64::MAX as u64;

/// A state's switch and counters, as in `/sys/devices/system/cpu/cpuN/cpuidle/stateM/`.
///
/// Source: specs/idle.md#counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Switched off.
    pub disabled: bool,
    /// Stays.
    pub usage: u64,
    /// Time in it, in ns.
    pub time_ns: u64,
    /// Stays that were too short for it, while a shallower state was on.
    pub above: u64,
    /// Stays that the next deeper state would have paid for.
    pub below: u64,
}

/// Counts a stay of `residency_ns` in `state`.
///
/// Source: specs/idle.md#counters.
pub fn left(states: &[IdleState], usage: &mut [Usage], state: usize, residency_ns: u64) {
    let s = &states[state];
    usage[state].usage += 1;
    usage[state].time_ns += residency_ns;
    if residency_ns < s.target_residency_ns {
        if usage[..state].iter().any(|u| !u.disabled) {
            usage[state].above += 1;
        }
    } else if let Some(awake) = residency_ns.checked_sub(s.exit_latency_ns).filter(|&ns| ns > 0) {
        let deeper = (state + 1..states.len()).find(|&i| !usage[i].disabled);
        if deeper.is_some_and(|i| awake >= states[i].target_residency_ns) {
            usage[state].below += 1;
        }
    }
}

/// How long POLL polls at most, in ns: the target residency of the first state that is on and needs 10 µs at
/// least, no longer than a sixteenth of a tick.
///
/// Source: specs/idle.md#poll.
pub fn poll_limit_ns(states: &[IdleState], usage: &[Usage]) -> u64 {
    const MIN_NS: u64 = 10 * US;
    const MAX_NS: u64 = TICK_NSEC / 16;
    let long = |&(s, u): &(&IdleState, &Usage)| !u.disabled && s.target_residency_ns >= MIN_NS;
    let first = states.iter().zip(usage).skip(1).find(long);
    first.map_or(MAX_NS, |(s, _)| s.target_residency_ns.min(MAX_NS))
}

/// What the governor is told when a CPU goes idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Time to the next timer, the tick left out, in ns.
    pub sleep_length_ns: u64,
    /// Time to the next timer or tick, in ns.
    pub to_tick_ns: u64,
    /// The tick is stopped already.
    pub tick_stopped: bool,
    /// The longest exit latency that is accepted, in ns; `u64::MAX`: any.
    pub latency_limit_ns: u64,
    /// How many tasks that ran on the CPU last wait for I/O. Kernels up to 4.16 ask for it.
    pub iowaiters: u32,
}

/// What the governor chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The state.
    pub state: usize,
    /// The tick may be stopped. It is kept in any case where a timer is due within a tick.
    pub stop_tick: bool,
    /// How long the CPU is expected to be idle, in ns, as far as it mattered.
    pub predicted_ns: u64,
}

/// How a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// How long it was, exit included, in ns.
    pub residency_ns: u64,
    /// A tick, which was kept, ended it.
    pub by_tick: bool,
    /// POLL's limit ended it.
    pub poll_limit: bool,
}

/// The menu governor of one CPU.
///
/// Source: specs/idle.md#menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// The last stay, to be learnt from when the next one begins.
    last: Option<(usize, Stay)>,
    next_timer_ns: u64,
    bucket: u8,
    next_interval: u8,
    /// By order of magnitude of the time to the next timer: how much of it comes true, of 8192.
    factors: [u32; BUCKETS],
    /// The same while tasks wait for I/O, of kernels up to 4.16; and whether they did at the last choice.
    io_factors: [u32; BUCKETS],
    io: bool,
    intervals_us: [u32; INTERVALS],
}

impl Default for Menu {
    fn default() -> Self {
        Self::new()
    }
}

const fn bucket(ns: u64) -> u8 {
    match ns / US {
        0..10 => 0,
        10..100 => 1,
        100..1000 => 2,
        1000..10_000 => 3,
        10_000..100_000 => 4,
        _ => 5,
    }
}

impl Menu {
    /// One that knows nothing: it expects timers to come true.
    pub const fn new() -> Self {
        Self {
            last: None,
            next_timer_ns: 0,
            bucket: 0,
            next_interval: 0,
            factors: [(RESOLUTION * DECAY) as u32; BUCKETS],
            io_factors: [(RESOLUTION * DECAY) as u32; BUCKETS],
            io: false,
            intervals_us: [0; INTERVALS],
        }
    }

    /// How much of the time to the next timer comes true, of 8192, by order of magnitude: below 10 µs, 100 µs,
    /// 1 ms, 10 ms, 100 ms, and more.
    pub const fn factors(&self) -> &[u32; BUCKETS] {
        &self.factors
    }

    /// What the last intervals have in common, in µs; `None`: nothing.
    ///
    /// Source: specs/idle.md#typical.
    pub fn typical_interval_us(&self) -> Option<u32> {
        let mut threshold = i32::MAX as u32;
        loop {
            let values = || self.intervals_us.iter().copied().filter(|&v| v <= threshold);
            let n = values().count() as u64;
            let max = values().max().unwrap_or(0);
            if max == 0 {
                return None;
            }
            let average = values().map(u64::from).sum::<u64>() / n;
            let square = |v: u32| u64::from(v).abs_diff(average).pow(2);
            let variance = values().map(square).fold(0u64, u64::wrapping_add) / n;
            let close = variance <= u64::MAX / 36
                && (average * average > variance * 36 && 4 * n >= 3 * INTERVALS as u64
                    || variance <= 400);
            if close {
                return Some(average as u32);
            }
            if 4 * n <= 3 * INTERVALS as u64 {
                return None;
            }
            threshold = max - 1;
        }
    }

    /// Chooses a state, after it has learnt from the last stay.
    ///
    /// * `states` – from the shallowest on, at least one.
    /// * `usage` – as many.
    ///
    /// Source: specs/idle.md#select.
    pub fn select(&mut self, states: &[IdleState], usage: &[Usage], ask: &Ask) -> Chosen {
        if let Some((state, stay)) = self.last.take() {
            self.learn(&states[state], &stay);
        }
        let typical_ns = self.typical_interval_us().map_or(u64::from(UNKNOWN_US), u64::from) * US;
        let mut to_tick_ns = ask.to_tick_ns;
        let mut predicted_ns;
        if typical_ns > RESIDENCY_THRESHOLD_NS || ask.tick_stopped {
            self.next_timer_ns = ask.sleep_length_ns.min(NEVER_NS);
            self.bucket = bucket(self.next_timer_ns);
            predicted_ns = self.by_timer_ns().min(typical_ns);
            if ask.tick_stopped && predicted_ns < TICK_NSEC {
                // A wrong guess would keep the CPU in a shallow state for long.
                predicted_ns = self.next_timer_ns;
            }
        } else {
            self.next_timer_ns = NEVER_NS;
            self.bucket = bucket(NEVER_NS);
            to_tick_ns = TICK_NSEC / 2;
            predicted_ns = typical_ns;
        }
        let shallowest =
            |predicted_ns| Chosen { state: 0, stop_tick: !states[0].polls, predicted_ns };
        let Some(second) = states.get(1) else { return shallowest(predicted_ns) };
        let too_short = self.next_timer_ns < second.target_residency_ns
            || ask.latency_limit_ns < second.exit_latency_ns;
        if ask.latency_limit_ns == 0 || too_short && !usage[0].disabled {
            return shallowest(predicted_ns);
        }
        let mut chosen: Option<usize> = None;
        for (i, s) in states.iter().enumerate().filter(|&(i, _)| !usage[i].disabled) {
            let candidate = *chosen.get_or_insert(i);
            if s.exit_latency_ns > ask.latency_limit_ns {
                break;
            }
            if s.target_residency_ns <= predicted_ns {
                chosen = Some(i);
                continue;
            }
            let c = &states[candidate];
            if c.polls
                && s.target_residency_ns < RESIDENCY_THRESHOLD_NS
                && s.target_residency_ns <= self.next_timer_ns
                && s.exit_latency_ns <= predicted_ns
            {
                // Rather a state that sleeps and costs next to nothing.
                predicted_ns = s.target_residency_ns;
                chosen = Some(i);
                break;
            }
            if predicted_ns < TICK_NSEC {
                break;
            }
            if !ask.tick_stopped {
                // The candidate is shallow: the tick is kept, and the governor asked again after it.
                predicted_ns = c.target_residency_ns;
                break;
            }
            if c.target_residency_ns < TICK_NSEC && s.target_residency_ns <= to_tick_ns {
                chosen = Some(i);
            }
            return Chosen { state: chosen.unwrap_or(0), stop_tick: true, predicted_ns };
        }
        let mut state = chosen.unwrap_or(0);
        let keep = (states[state].polls || predicted_ns < TICK_NSEC) && !ask.tick_stopped;
        if keep && states[state].target_residency_ns > to_tick_ns {
            // The tick would end the stay too early.
            for i in (0..state).rev().filter(|&i| !usage[i].disabled) {
                state = i;
                if states[i].target_residency_ns <= to_tick_ns {
                    break;
                }
            }
        }
        Chosen { state, stop_tick: !keep, predicted_ns }
    }

    /// Chooses a state as kernels up to 4.16 do: the tick is stopped before they choose, wherever the next timer is more than
    /// a tick away, and the state has to be left within what is predicted.
    ///
    /// * `states`, `usage` – as for [`Menu::select`].
    ///
    /// Source: specs/idle.md#early.
    pub fn select_early(&mut self, states: &[IdleState], usage: &[Usage], ask: &Ask) -> Chosen {
        if let Some((state, stay)) = self.last.take() {
            self.learn(&states[state], &stay);
        }
        let stops = ask.tick_stopped || ask.sleep_length_ns > TICK_NSEC;
        let next_ns = if stops { ask.sleep_length_ns } else { ask.to_tick_ns };
        self.next_timer_ns = next_ns.min(NEVER_NS);
        self.bucket = bucket(self.next_timer_ns);
        self.io = ask.iowaiters > 0;
        let typical_ns = if self.intervals_us == [0; INTERVALS] {
            0
        } else {
            self.typical_interval_us().map_or(u64::from(UNKNOWN_US), u64::from) * US
        };
        let predicted_ns = self.by_timer_ns().min(typical_ns);
        let limit_ns = ask.latency_limit_ns;
        let chosen = |state| Chosen { state, stop_tick: true, predicted_ns };
        let sleeps = states.get(1).zip(usage.get(1)).is_some_and(|(s, u)| {
            let least = s.target_residency_ns.max(LEAST_POLL_NS);
            self.next_timer_ns > least && limit_ns > s.exit_latency_ns && !u.disabled
        });
        let first = usize::from(states[0].polls && sleeps);
        // Who waits for I/O is to go on soon.
        let limit_ns = limit_ns.min(predicted_ns / (1 + 10 * u64::from(ask.iowaiters)));
        let mut state = None;
        for (i, s) in states.iter().enumerate().skip(first).filter(|&(i, _)| !usage[i].disabled) {
            state.get_or_insert(i);
            if s.target_residency_ns > predicted_ns || s.exit_latency_ns > limit_ns {
                break;
            }
            state = Some(i);
        }
        chosen(state.unwrap_or(0))
    }

    /// The time to the next timer, as much of it as comes true, in whole µs.
    fn by_timer_ns(&self) -> u64 {
        let factors = if self.io { &self.io_factors } else { &self.factors };
        let factor = u64::from(factors[usize::from(self.bucket)]);
        let unit = RESOLUTION * DECAY * US;
        // Rounded. Centuries wrap, as they do in the kernel.
        let timer_us = (unit / 2).wrapping_add(self.next_timer_ns.wrapping_mul(factor)) / unit;
        u64::from(timer_us as u32) * US
    }

    /// A stay is over. It is learnt from when the next one begins.
    pub fn reflect(&mut self, state: usize, stay: Stay) {
        self.last = Some((state, stay));
    }

    /// The state was refused: the CPU has not been in it.
    pub fn refused(&mut self) {
        self.remember(UNKNOWN_US);
    }

    /// Source: specs/idle.md#learn.
    fn learn(&mut self, state: &IdleState, stay: &Stay) {
        let measured = if stay.by_tick && self.next_timer_ns > TICK_NSEC {
            // It could have been idle for long.
            9 * MAX_INTERESTING_NS / 10
        } else if state.polls && stay.poll_limit {
            self.next_timer_ns
        } else if stay.residency_ns > 2 * state.exit_latency_ns {
            stay.residency_ns - state.exit_latency_ns
        } else {
            stay.residency_ns / 2
        };
        let measured = measured.min(self.next_timer_ns);
        let factors = if self.io { &mut self.io_factors } else { &mut self.factors };
        let factor = &mut factors[usize::from(self.bucket)];
        let new = if self.next_timer_ns > 0 && measured < MAX_INTERESTING_NS {
            RESOLUTION * measured / self.next_timer_ns
        } else {
            RESOLUTION
        };
        *factor = *factor - *factor / DECAY as u32 + new as u32;
        self.remember((measured / US) as u32);
    }

    fn remember(&mut self, us: u32) {
        self.intervals_us[usize::from(self.next_interval)] = us;
        self.next_interval = (self.next_interval + 1) % INTERVALS as u8;
    }
}
