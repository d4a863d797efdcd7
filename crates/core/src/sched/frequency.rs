//! Which clock a CPU asks for: Linux's governors, and two rules of our own in place of hardware's.
//!
//! ```text
//!  busy share of a window ──rule──▶ request of a CPU ──highest of a domain──▶ clock
//!                                                      └ not above turbo of so many active cores
//! ```
//!
//! Clocks are in MHz, times in any one unit. What hardware does by itself (HWP) nobody has published: the two
//! rules for it are ours, and are called so.
//!
//! Worked example: turbo 3900, window 20 % busy. The load of intel_pstate and the proportional rule ask for
//! 1.25 × 0.2 × 3900 = 975; the threshold rule, which looks whether half of it was busy, for less than before.
//!
//! Source: specs/frequency.md.

use crate::costs::{Cost, Costs};
use crate::units::Picos;

crate::named! {
    /// Who chooses the clocks.
    ///
    /// Source: specs/frequency.md#rules.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Governor {
        /// Nobody: each CPU has its nominal clock at any time.
        #[default]
        Nominal => "nominal",
        /// The highest at any time.
        Performance => "performance",
        /// intel_pstate of 4.15 and later, active, without HWP: by load, looked at every 10 ms.
        Pstate => "intel_pstate",
        /// intel_pstate of 4.5: a controller that goes up while a CPU has the clock that it has asked for.
        PstatePid => "intel_pstate-4.5",
        /// In place of HWP, our rule: in proportion to the share that a CPU is busy.
        HwpProportional => "hwp-proportional",
        /// In place of HWP, our rule: upwards while a CPU is busy for half of the time.
        HwpThreshold => "hwp-threshold",
        /// schedutil: by the load that the scheduler tracks.
        Schedutil => "schedutil",
    }
}

/// Windows of full load in which the rules in place of HWP get from the lowest clock to the highest.
pub const HWP_WINDOWS: u32 = 7;
/// Share of a window from which on the threshold rule goes up, in thousandths.
pub const HWP_THRESHOLD: u32 = 500;

/// What the controller of 4.5 wants: the clock that a CPU had, of the one that it asked for, in per cent.
const SETPOINT: i64 = 97;
/// The part of what is missing by which it goes, of 256: 20 %.
const P_GAIN: i64 = 51;
/// What is more than so many windows ago is scaled down.
const LONG_WINDOWS: u64 = 3;

impl Governor {
    /// Whether who has done nothing since its last look is not looked at: such a CPU keeps what it has asked for, and
    /// nobody else has to heed that.
    ///
    /// Source: specs/frequency.md#pid.
    pub const fn passes_idle(self) -> bool {
        match self {
            Self::PstatePid => true,
            Self::Nominal
            | Self::Performance
            | Self::Pstate
            | Self::HwpProportional
            | Self::HwpThreshold
            | Self::Schedutil => false,
        }
    }
    /// How often it looks; `None`: never.
    ///
    /// Source: specs/frequency.md#rules.
    pub const fn window(self) -> Option<Picos> {
        match self {
            Self::Nominal => None,
            Self::Performance | Self::Pstate | Self::PstatePid | Self::Schedutil => {
                Some(Picos::from_ms(10))
            }
            Self::HwpProportional | Self::HwpThreshold => Some(Picos::from_ms(5)),
        }
    }
}

/// Clocks that a machine's CPUs can have, in MHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The lowest.
    pub min: u32,
    /// The highest with one, two, three, four active cores, and with more.
    pub turbo: [u32; 5],
}

impl Clocks {
    /// Those of a machine's file, whose nominal clock is given; `None`: it has none but that.
    ///
    /// Source: specs/frequency.md#machine.
    pub fn of(costs: &Costs, nominal: u32) -> Option<Self> {
        let min = costs.get(Cost::ClockMin) as u32;
        let mut last = nominal;
        let turbo = [
            Cost::ClockTurbo1,
            Cost::ClockTurbo2,
            Cost::ClockTurbo3,
            Cost::ClockTurbo4,
            Cost::ClockTurboAll,
        ];
        let turbo = turbo.map(|key| {
            last = match costs.get(key) {
                0 => last,
                mhz => mhz as u32,
            };
            last.max(min)
        });
        (min > 0).then_some(Self { min, turbo })
    }
    /// The highest with so many active cores; with none as with one.
    pub const fn most(&self, active: usize) -> u32 {
        let place = if active > self.turbo.len() { self.turbo.len() } else { active };
        self.turbo[place.saturating_sub(1)]
    }
    /// Between the lowest and the highest of all.
    fn within(&self, mhz: u64) -> u32 {
        mhz.clamp(self.min.into(), self.most(1).max(self.min).into()) as u32
    }
}

/// What a CPU did since its last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How long it was busy, and how long ago the last look is.
    pub busy: u64,
    /// See `busy`.
    pub time: u64,
    /// How often the governor looks, in the same unit.
    pub window: u64,
    /// The clock that it had.
    pub mhz: u32,
    /// The load that the scheduler tracks, of 1024.
    pub util: u64,
    /// That load grows with the clock (6.12), so that it says what part of the highest one is needed.
    pub invariant: bool,
    /// It has the lower clock from now on only if it has been idle.
    pub was_idle: bool,
}

impl Look {
    /// The share of the time that it was busy, times `of`.
    fn share(&self, of: u64) -> u64 {
        let busy = u128::from(self.busy.min(self.time));
        (u128::from(of) * busy / u128::from(self.time.max(1))) as u64
    }
}

/// What a CPU asks for from a look on, that has asked for `now`.
///
/// * `threshold` – of the threshold rule, in thousandths.
///
/// Source: specs/frequency.md#rules.
pub fn request(governor: Governor, clocks: &Clocks, now: u32, look: &Look, threshold: u32) -> u32 {
    let turbo = u64::from(clocks.most(1));
    let step = (clocks.most(1).saturating_sub(clocks.min)).div_ceil(HWP_WINDOWS);
    match governor {
        Governor::Nominal => now,
        Governor::Performance => clocks.most(1),
        Governor::Pstate => {
            // In steps of 100 MHz, as the processor has them.
            let state = |mhz: u64| mhz / 100;
            let most = state(turbo);
            let target = look.share(most + most / 4).max(state(clocks.min.into()));
            let mean = state(now.into());
            let halfway = if mean > target { (mean - target) / 2 } else { 0 };
            clocks.within((target + halfway) * 100)
        }
        Governor::PstatePid => clocks.within(by_controller(now, look).max(0) as u64 * 100),
        Governor::HwpProportional => {
            let target = clocks.within(look.share(turbo + turbo / 4));
            target.clamp(now.saturating_sub(step), now.saturating_add(step))
        }
        Governor::HwpThreshold => {
            let next = match look.share(1000) >= threshold.into() {
                true => now.saturating_add(step),
                false => now.saturating_sub(step),
            };
            clocks.within(next.into())
        }
        Governor::Schedutil => {
            let of = if look.invariant { turbo } else { now.into() };
            let next = clocks.within((of + of / 4) * look.util / 1024);
            if look.was_idle { next } else { next.max(now) }
        }
    }
}

/// What the controller of 4.5 asks for, in steps of 100 MHz: less by a fifth of what the clock that a CPU had misses
/// of the setpoint, in per cent of the one that it asked for.
///
/// Source: specs/frequency.md#pid.
fn by_controller(now: u32, look: &Look) -> i64 {
    let asked = i64::from((now / 100).max(1));
    // In 256ths of a per cent.
    let mut had = i64::from(look.mhz) * 256 / asked;
    if look.time > LONG_WINDOWS * look.window {
        let scaled = i128::from(had) * i128::from(look.window) / i128::from(look.time);
        had = i64::try_from(scaled).unwrap_or(i64::MAX);
    } else if u128::from(look.busy) * 100 < u128::from(look.time) {
        had = 0;
    }
    let missing = SETPOINT * 256 - had;
    asked - ((P_GAIN * missing + (1 << 15)) >> 16)
}

/// What schedutil adds for a task that waits for I/O again and again, as a load of 1024.
///
/// Source: specs/frequency.md#iowait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IowaitBoost {
    boost: u32,
    pending: bool,
    last: u64,
}

/// The least boost.
const BOOST_MIN: u32 = 128;

impl IowaitBoost {
    /// A task was enqueued on the CPU at a time; whether it had waited for I/O. `tick` is in the same unit.
    pub const fn enqueued(&mut self, now: u64, iowait: bool, tick: u64) {
        if self.boost > 0 && now.saturating_sub(self.last) > tick {
            (self.boost, self.pending) = (if iowait { BOOST_MIN } else { 0 }, iowait);
        } else if iowait && !self.pending {
            self.pending = true;
            let more = self.boost * 2;
            self.boost = match self.boost {
                0 => BOOST_MIN,
                _ if more > 1024 => 1024,
                _ => more,
            };
        }
        self.last = now;
    }
    /// The load that counts at a look, of 1024, where `util` was tracked. Without a request since the last look it
    /// is halved, and gone below the least.
    pub const fn apply(&mut self, util: u64) -> u64 {
        if self.boost == 0 {
            return util;
        }
        if !self.pending {
            self.boost /= 2;
            if self.boost < BOOST_MIN {
                self.boost = 0;
                return util;
            }
        }
        self.pending = false;
        if self.boost as u64 > util { self.boost as u64 } else { util }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Clocks = Clocks { min: 1200, turbo: [3100, 3100, 2900, 2800, 2600] };
    const DESKTOP: Clocks = Clocks { min: 800, turbo: [3900, 3900, 3800, 3700, 3700] };

    fn busy(percent: u64) -> Look {
        Look { busy: percent, time: 100, ..Look::default() }
    }
    fn asks(governor: Governor, clocks: &Clocks, now: u32, percent: u64) -> u32 {
        request(governor, clocks, now, &busy(percent), HWP_THRESHOLD)
    }

    #[test]
    fn turbo_falls_with_the_active_cores() {
        let of = |n| SERVER.most(n);
        assert_eq!(
            [of(0), of(1), of(2), of(3), of(4), of(5), of(12)],
            [3100, 3100, 3100, 2900, 2800, 2600, 2600]
        );
    }

    #[test]
    fn a_file_that_says_less_has_the_clock_before() {
        let mut costs = Costs::default();
        assert_eq!(Clocks::of(&costs, 3500), None);
        let mut set =
            |key, mhz| costs.0.insert(key, crate::costs::Constant::assumed(mhz, "a test"));
        set(Cost::ClockMin, 800);
        set(Cost::ClockTurbo2, 3900);
        set(Cost::ClockTurbo4, 3700);
        let turbo = [3500, 3900, 3900, 3700, 3700];
        assert_eq!(Clocks::of(&costs, 3500), Some(Clocks { min: 800, turbo }));
    }

    #[test]
    fn intel_pstate_goes_by_load_and_falls_slowly() {
        let of = |percent| asks(Governor::Pstate, &SERVER, 1200, percent);
        assert_eq!([30, 40, 50, 70, 80].map(of), [1200, 1500, 1900, 2600, 3000]);
        let course = |clocks: &Clocks| {
            let next = |now: &u32| Some(asks(Governor::Pstate, clocks, *now, 20));
            std::iter::successors(Some(clocks.most(1)), next).skip(1).take(5).collect::<Vec<_>>()
        };
        assert_eq!(course(&SERVER), [2100, 1600, 1400, 1300, 1200]);
        assert_eq!(course(&DESKTOP), [2400, 1600, 1200, 1000, 900]);
    }

    #[test]
    fn the_controller_of_4_5_goes_up_by_a_step_while_a_cpu_has_what_it_asks_for() {
        let look = |mhz, busy, time| Look { mhz, busy, time, window: 10, ..Look::default() };
        let of = |now, look: Look| request(Governor::PstatePid, &SERVER, now, &look, 0);
        // However little it has to do: 19 windows from the lowest clock to the highest.
        let course: Vec<u32> = std::iter::successors(Some(1200), |&now| {
            let next = of(now, look(now, 1, 10));
            (next != now).then_some(next)
        })
        .collect();
        assert_eq!(course, (12..=31).map(|step| step * 100).collect::<Vec<u32>>());
        // All cores are active: turbo gives 2600, and what it asks for comes near that.
        let course: Vec<u32> =
            std::iter::successors(Some(3100), |&now| Some(of(now, look(2600, 10, 10))))
                .take(5)
                .collect();
        assert_eq!(course, [3100, 2800, 2700, 2700, 2700]);
        // A sibling has asked for more.
        assert_eq!(of(1200, look(2400, 10, 10)), 3100, "103 % too much are 20 steps and a half");
        assert_eq!(of(1200, look(1800, 10, 10)), 2300, "53 % too much are 10.6");
        // Who was away for 30 ms goes on as it was, for 40 ms as if it had had a quarter.
        assert_eq!([30, 40, 100].map(|time| of(3100, look(3100, 5, time))), [3100, 1700, 1400]);
        assert_eq!(of(3100, look(3100, 1, 200)), 1300);
        // Less than a hundredth of the time.
        assert_eq!(
            [99, 100].map(|t| of(3100, Look { window: 50, ..look(3100, 1, t) })),
            [3100, 3100]
        );
        assert_eq!(of(3100, Look { window: 50, ..look(3100, 1, 101) }), 1200);
    }

    #[test]
    fn a_load_that_is_a_part_of_the_highest_clock_settles_near_its_root() {
        // turbo × √(1.25 × w), to a step.
        for (w, settled) in [(10, 1300u32), (20, 1900), (30, 2300), (50, 3000)] {
            let mut now = 3900;
            for _ in 0..20 {
                now = asks(Governor::Pstate, &DESKTOP, now, (w * 3900 / u64::from(now)).min(100));
            }
            assert!(now.abs_diff(settled) <= 200, "{w}: {now}");
        }
    }

    #[test]
    fn rules_of_our_own_take_35_ms_of_full_load_to_the_highest_clock() {
        for governor in [Governor::HwpProportional, Governor::HwpThreshold] {
            let mut now = DESKTOP.min;
            let windows = (1..).find(|_| {
                now = asks(governor, &DESKTOP, now, 100);
                now == DESKTOP.most(1)
            });
            assert_eq!(windows, Some(7));
            assert_eq!(governor.window(), Some(Picos::from_ms(5)));
        }
        // One stays where 1.25 times the load is, the other goes to an end.
        assert_eq!(asks(Governor::HwpProportional, &DESKTOP, 1900, 40), 1950);
        assert_eq!(asks(Governor::HwpThreshold, &DESKTOP, 1900, 50), 2343);
        assert_eq!(asks(Governor::HwpThreshold, &DESKTOP, 1900, 49), 1457);
        assert_eq!(asks(Governor::HwpThreshold, &DESKTOP, 1000, 0), 800);
    }

    #[test]
    fn schedutil_leaves_a_quarter_and_lowers_who_was_idle() {
        let look = Look { util: 256, invariant: true, was_idle: true, ..Look::default() };
        let of = |look: &Look, now| request(Governor::Schedutil, &DESKTOP, now, look, 0);
        assert_eq!(of(&look, 3900), 1218, "0.31 of the highest");
        assert_eq!(of(&Look { was_idle: false, ..look }, 3900), 3900);
        // Without invariance a fifth of the lowest clock stays there.
        assert_eq!(of(&Look { util: 205, invariant: false, ..look }, 800), 800);
        assert_eq!(of(&Look { util: 1024, invariant: false, ..look }, 800), 1000);
    }

    #[test]
    fn the_boost_doubles_with_each_request_and_halves_without() {
        let mut b = IowaitBoost::default();
        let seen: Vec<u64> = (1..=5)
            .map(|n| {
                b.enqueued(n, true, 4000);
                b.enqueued(n, true, 4000);
                b.apply(50)
            })
            .collect();
        assert_eq!(seen, [128, 256, 512, 1024, 1024]);
        assert_eq!([0; 5].map(|_| b.apply(50)), [512, 256, 128, 50, 50]);
        b.enqueued(10, true, 4000);
        assert_eq!(b.apply(200), 200, "the load is more");
        b.enqueued(11, true, 4000);
        b.enqueued(9000, false, 4000);
        assert_eq!(b.apply(50), 50, "a tick has passed");
    }

    #[test]
    fn others_have_the_highest_clock_or_leave_it() {
        assert_eq!(asks(Governor::Performance, &SERVER, 1200, 0), 3100);
        assert_eq!(asks(Governor::Nominal, &SERVER, 2300, 0), 2300);
        assert_eq!(Governor::Nominal.window(), None);
    }
}
