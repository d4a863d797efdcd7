//! PELT, per-entity load tracking: how much somebody ran and waited lately.
//!
//! Time is cut into periods of 1.048576 ms. What happened `n` periods ago counts `y^n`, where
//! `y^32` is a half. A sum collects such time in units of 1.024 µs; divided by the greatest sum
//! there can be at this point of the period it is an average: of 1024 for a task that always
//! runs (`util_avg`), always runs or waits (`runnable_avg`), or of its weight (`load_avg`).
//!
//! Example: a task that ran for 1 s has `util_avg` 1023 or 1024; after 32 ms of sleep 528, after 64 ms 272.
//!
//! [`Avg`] is what an entity or a queue carries, [`Clock`] the time that it is updated with.
//!
//! Source: specs/sched-fair.md#pelt (Linux 6.12).

/// The greatest sum: `1024 * (1 + y + y^2 + ...)` as the kernel's table adds it up.
pub const MAX: u64 = 47742;

/// What an average divides by at the very beginning of a period.
pub const MIN_DIVIDER: u64 = MAX - 1024;

/// `y^n * 2^32` for n of 0..32, rounded down; the kernel's table is these values.
const Y: [u32; 32] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// `x * y^n`, rounded down twice.
///
/// Source: specs/sched-fair.md#pelt-sums.
#[inline]
pub fn decay(x: u64, n: u64) -> u64 {
    if n > 63 * 32 {
        return 0;
    }
    let x = x >> (n / 32);
    let y = u64::from(Y[(n % 32) as usize]);
    // Sums of tasks fit 32 bits: one multiplication then.
    match u32::try_from(x) {
        Ok(x) => (u64::from(x) * y) >> 32,
        Err(_) => ((u128::from(x) * u128::from(y)) >> 32) as u64,
    }
}

/// Running averages of an entity or of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Avg {
    /// When it was last updated, ns of the PELT clock, in whole units of 1024.
    pub last_update_time: u64,
    /// Time on the queue; of a queue: times weight.
    pub load_sum: u64,
    /// Time on the queue and not asleep, times 1024; of a queue or group: times how many.
    pub runnable_sum: u64,
    /// Time running, times 1024.
    pub util_sum: u64,
    /// [`Avg::load_sum`] as an average, times the weight.
    pub load_avg: u64,
    /// [`Avg::runnable_sum`] as an average: 1024 for each that always wants to run.
    pub runnable_avg: u32,
    /// [`Avg::util_sum`] as an average: 1024 for always running.
    pub util_avg: u32,
    /// Of a task: what it used in its recent activations; of a queue: sum of that over queued tasks.
    pub util_est: u32,
    /// How far the current period has come, units: 0..1024.
    pub period_contrib: u32,
}

impl Avg {
    /// What the averages are divided by at this point of the period.
    #[inline]
    pub fn divider(&self) -> u64 {
        MIN_DIVIDER + u64::from(self.period_contrib)
    }

    /// Brings the sums to `now`, ns of the PELT clock; true if a period has ended.
    ///
    /// * `load`, `runnable`, `running` – what was so since the last update. Nothing counts where `load` is 0.
    ///
    /// Time under a unit is left for the next update; a clock that went back is taken over.
    ///
    /// Source: specs/sched-fair.md#pelt-sums.
    #[inline(always)]
    pub fn accumulate(&mut self, now: u64, load: u64, runnable: u64, running: bool) -> bool {
        // Most updates follow another one at once.
        now.wrapping_sub(self.last_update_time) >= 1024
            && self.accumulate_units(now, load, runnable, running)
    }

    fn accumulate_units(&mut self, now: u64, load: u64, runnable: u64, running: bool) -> bool {
        let ns = now.wrapping_sub(self.last_update_time);
        if (ns as i64) < 0 {
            self.last_update_time = now;
            return false;
        }
        let units = ns >> 10;
        self.last_update_time += units << 10;
        let at = units + u64::from(self.period_contrib);
        if at < 1024 {
            // No period has ended: nothing decays.
            self.period_contrib = at as u32;
            self.add(units, load, runnable, running);
            return false;
        }
        let periods = at / 1024;
        let rest = at % 1024;
        self.load_sum = decay(self.load_sum, periods);
        self.runnable_sum = decay(self.runnable_sum, periods);
        self.util_sum = decay(self.util_sum, periods);
        if load != 0 {
            let first = decay(1024 - u64::from(self.period_contrib), periods);
            let whole = MAX - decay(MAX, periods) - 1024;
            self.add(first + whole + rest, load, runnable, running);
        }
        self.period_contrib = rest as u32;
        true
    }

    #[inline]
    fn add(&mut self, contribution: u64, load: u64, runnable: u64, running: bool) {
        if load == 0 {
            return;
        }
        self.load_sum += load * contribution;
        self.runnable_sum += (runnable * contribution) << 10;
        if running {
            self.util_sum += contribution << 10;
        }
    }

    /// Makes averages of the sums. `weight` is the task's or group's, 1 for a queue.
    ///
    /// Source: specs/sched-fair.md#pelt-sums.
    #[inline]
    pub fn average(&mut self, weight: u64) {
        let divider = self.divider();
        self.load_avg = div(weight * self.load_sum, divider);
        self.runnable_avg = div(self.runnable_sum, divider) as u32;
        self.util_avg = div(self.util_sum, divider) as u32;
    }

    /// Nothing of it is left: it need not be aged any more.
    pub fn is_decayed(&self) -> bool {
        self.load_sum == 0 && self.util_sum == 0 && self.runnable_sum == 0
    }
}

/// Division that is short where the number is: most sums fit 32 bits.
#[inline]
fn div(x: u64, by: u64) -> u64 {
    match u32::try_from(x) {
        Ok(x) => u64::from(x / by as u32),
        Err(_) => x / by,
    }
}

/// Subtracts, but not below 0.
#[inline]
pub fn sub_positive(from: &mut u64, what: u64) {
    *from = from.saturating_sub(what);
}

/// Keeps a queue's sum at or above what its average needs at least.
///
/// The kernel compares in 32 bits, so that a sum of more than `2^32` loses its upper part here: that of a
/// queue with some 90 tasks of nice 0.
///
/// Source: specs/sched-fair.md#pelt-narrow.
#[inline]
pub fn at_least(sum: u64, avg: u64) -> u64 {
    u64::from((sum as u32).max((avg * MIN_DIVIDER) as u32))
}

/// The clock of a CPU's averages.
///
/// It passes as the CPU works: at half capacity half as fast. When the CPU gets idle it jumps to the
/// task clock, unless the CPU was busy all the time: then the gap is time that was never idle.
///
/// Source: specs/sched-fair.md#pelt-clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Task clock, ns.
    pub task: u64,
    pelt: u64,
    lost_idle: u64,
    idle: bool,
    idle_at: u64,
    pelt_at_idle: u64,
    capacity: u16,
    frequency: u16,
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            task: 0,
            pelt: 0,
            lost_idle: 0,
            idle: true,
            idle_at: 0,
            pelt_at_idle: 0,
            capacity: 1024,
            frequency: 1024,
        }
    }
}

impl Clock {
    /// Time passes to `now`, ns; what lies behind changes nothing.
    #[inline]
    pub fn advance(&mut self, now: u64) {
        if now <= self.task {
            return;
        }
        let delta = now - self.task;
        self.task = now;
        if self.idle {
            self.sync();
        } else if self.capacity == 1024 && self.frequency == 1024 {
            self.pelt += delta;
        } else {
            let scaled = ((u128::from(delta) * u128::from(self.capacity)) >> 10) as u64;
            self.pelt += ((u128::from(scaled) * u128::from(self.frequency)) >> 10) as u64;
        }
    }

    fn sync(&mut self) {
        self.pelt = self.task;
        self.idle_at = self.task;
        self.pelt_at_idle = self.now();
    }

    /// The PELT clock, ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.pelt.wrapping_sub(self.lost_idle)
    }

    /// The CPU runs nobody from now on. `util_sum` is its queue's.
    pub fn go_idle(&mut self, util_sum: u64) {
        if util_sum >= (MIN_DIVIDER << 10) - MAX {
            self.lost_idle = self.lost_idle.wrapping_add(self.task.wrapping_sub(self.pelt));
        }
        self.idle = true;
        self.sync();
    }

    /// The CPU runs somebody from now on.
    #[inline]
    pub fn get_busy(&mut self) {
        self.idle = false;
    }

    /// Whether the CPU runs nobody.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// What the PELT clock will read at `now` on an idle CPU whose queue was last updated at
    /// `updated`; `stopped` is what throttling has taken from that queue's clock.
    pub fn idle_estimate(&self, now: u64, updated: u64, stopped: u64) -> u64 {
        let at = self.pelt_at_idle.wrapping_sub(stopped);
        if at < updated { updated } else { at + now.saturating_sub(self.idle_at) }
    }

    /// Sets how fast the CPU works: capacity among CPUs and frequency, each of 1024.
    pub fn set_speed(&mut self, capacity: u32, frequency: u32) {
        self.capacity = capacity.min(1024) as u16;
        self.frequency = frequency.min(1024) as u16;
    }

    /// The CPU's capacity, of 1024.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity.into()
    }
}

/// `util_avg` that a new task begins with on a queue.
///
/// * `capacity` – the CPU's, of 1024; `util_avg`, `load_avg` – its queue's; `w` – the task's weight.
///
/// Source: specs/sched-fair.md#pelt-new.
pub fn new_task_util(capacity: u32, util_avg: u32, load_avg: u64, w: u32) -> u32 {
    // Halved toward zero as a signed number.
    let cap = (i64::from(capacity) - i64::from(util_avg)) / 2;
    if cap <= 0 {
        return 0;
    }
    if util_avg == 0 {
        return cap as u32;
    }
    let share = u64::from(util_avg) * u64::from(w) / (load_avg + 1);
    share.min(cap as u64) as u32
}

/// What becomes of a task's `util_est` when it goes to sleep; `None` leaves it and asks again.
///
/// * `est` – so far; `util`, `runnable` – its averages now; `capacity` – its CPU's.
///
/// Source: specs/sched-fair.md#util-est.
pub fn util_est_next(est: u32, util: u32, runnable: u32, capacity: u32) -> Option<u32> {
    /// One percent of a CPU.
    const MARGIN: u32 = 10;
    if est <= util {
        return Some(util);
    }
    let over = est - util;
    if over < MARGIN {
        return Some(est);
    }
    if util > capacity {
        return None;
    }
    if util + MARGIN < runnable {
        return Some(est);
    }
    Some((4 * est - over) / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specs: specs/sched-fair.md#pelt-sums.
    #[test]
    fn decay_vectors() {
        let got = [(MAX, 1), (MAX, 32), (1024, 1), (1000, 64), (1000, 2016), (1000, 2017)]
            .map(|(x, n)| decay(x, n));
        assert_eq!(got, [46718, 23870, 1002, 249, 0, 0]);
        // Each entry is the root that it claims to be: y[n]^32 * 2^n within rounding of 1.
        for (n, &y) in Y.iter().enumerate() {
            let mut p = 1_u128 << 64;
            for _ in 0..32 {
                p = (p * u128::from(y)) >> 32;
            }
            let error = (p << n).abs_diff(1_u128 << 64);
            assert!(error < 1 << 39, "entry {n} is off: {error}");
        }
    }

    /// A task that runs, or sleeps, for `ns`.
    fn pass(avg: &mut Avg, from_ns: &mut u64, ns: u64, running: bool) {
        *from_ns += ns;
        let on = u64::from(running);
        if avg.accumulate(*from_ns, on, on, running) {
            avg.average(1024);
        }
    }

    /// Specs: specs/sched-fair.md#pelt-curves.
    #[test]
    fn utilisation_rises_and_falls() {
        let mut rising = Vec::new();
        for ms in [4, 8, 16, 32, 64, 100, 345] {
            let (mut avg, mut t) = (Avg::default(), 0);
            for _ in 0..ms {
                pass(&mut avg, &mut t, 1_000_000, true);
            }
            rising.push(avg.util_avg);
        }
        assert_eq!(rising, [81, 156, 288, 495, 751, 894, 1023]);

        let mut falling = Vec::new();
        for ms in [4, 32, 64, 100] {
            let (mut avg, mut t) = (Avg::default(), 0);
            // Updated at ticks: each update rounds.
            for _ in 0..250 {
                pass(&mut avg, &mut t, 4_000_000, true);
            }
            pass(&mut avg, &mut t, ms * 1_000_000, false);
            falling.push(avg.util_avg);
        }
        assert_eq!(falling, [942, 528, 272, 129]);

        let (mut avg, mut t) = (Avg::default(), 0);
        for _ in 0..500 {
            pass(&mut avg, &mut t, 4_000_000, true);
            pass(&mut avg, &mut t, 4_000_000, false);
        }
        let low = avg.util_avg;
        pass(&mut avg, &mut t, 4_000_000, true);
        assert_eq!((avg.util_avg, low), (533, 490));
    }

    /// How an update is cut into pieces changes little, and under one unit nothing.
    #[test]
    fn updates_may_be_cut() {
        let mut avg = Avg::default();
        assert!(!avg.accumulate(1023, 1, 1, true));
        assert_eq!(avg, Avg::default());
        assert!(!avg.accumulate(1024, 1, 1, true));
        assert_eq!((avg.load_sum, avg.util_sum, avg.period_contrib), (1, 1024, 1));
    }

    /// Nothing counts of who has no load; who is runnable several times counts as often; a clock that went back
    /// is taken over.
    ///
    /// Specs: specs/sched-fair.md#pelt-sums.
    #[test]
    fn what_is_added() {
        let sums = |load, runnable, running, units: u64| {
            let mut avg = Avg::default();
            avg.accumulate(units << 10, load, runnable, running);
            (avg.load_sum, avg.runnable_sum, avg.util_sum)
        };
        assert_eq!(sums(0, 3, true, 10), (0, 0, 0));
        assert_eq!(sums(0, 3, true, 5000), (0, 0, 0));
        assert_eq!(sums(2, 3, false, 10), (20, 30 << 10, 0));
        // One period and 476 units: the whole one has decayed by one step.
        assert_eq!(sums(1, 1, true, 1500), (1478, 1478 << 10, 1478 << 10));
        let mut avg = Avg { last_update_time: 9 << 10, ..Avg::default() };
        assert!(!avg.accumulate(5 << 10, 1, 1, true));
        assert_eq!((avg.last_update_time, avg.load_sum), (5 << 10, 0));
        avg.accumulate(6 << 10, 1, 1, true);
        assert_eq!(avg.load_sum, 1);
    }

    /// Specs: specs/sched-fair.md#pelt-narrow.
    #[test]
    fn sums_are_compared_in_32_bits() {
        assert_eq!(at_least(100, 0), 100);
        assert_eq!(at_least(100, 1), 46718);
        assert_eq!(at_least((1 << 32) + 5, 0), 5);
        // 89 tasks of nice 0 are within 32 bits, 90 are not.
        let of = |tasks: u64| at_least(tasks * 1024 * 46718, tasks * 1024);
        assert_eq!(of(89), 89 * 1024 * 46718);
        assert_eq!(of(90), 90 * 1024 * 46718 - (1 << 32));
    }

    /// Specs: specs/sched-fair.md#pelt-new.
    #[test]
    fn new_tasks() {
        // Never more than the half of what is left.
        assert_eq!(new_task_util(1024, 800, 100, 1024), 112);
        let got = [(0, 0, 1024), (512, 1024, 1024), (512, 1024, 335), (300, 600, 1024)]
            .map(|(u, load, w)| new_task_util(1024, u, load, w));
        assert_eq!(got, [512, 256, 167, 362]);
        assert_eq!(new_task_util(512, 600, 10, 1024), 0);
        assert_eq!(new_task_util(512, 511, 10, 1024), 0);
    }

    /// Specs: specs/sched-fair.md#util-est.
    #[test]
    fn util_est_vectors() {
        let got = [(400, 200, 200), (400, 395, 395), (200, 400, 400), (400, 200, 300)]
            .map(|(e, x, r)| util_est_next(e, x, r, 1024));
        assert_eq!(got, [Some(350), Some(400), Some(400), Some(400)]);
        assert_eq!(util_est_next(900, 700, 700, 512), None);
        // The edges: under 10 apart it stays; runnable by more than 10 above it stays; a CPU's whole capacity.
        assert_eq!(util_est_next(409, 400, 400, 1024), Some(409));
        assert_eq!(util_est_next(410, 400, 400, 1024), Some(407));
        assert_eq!(util_est_next(500, 400, 410, 1024), Some(475));
        assert_eq!(util_est_next(500, 400, 411, 1024), Some(500));
        assert_eq!(util_est_next(500, 400, 400, 400), Some(475));
        assert_eq!(util_est_next(500, 400, 400, 399), None);
    }

    /// Specs: specs/sched-fair.md#pelt-clock.
    #[test]
    fn the_clock_follows_the_work() {
        let mut c = Clock::default();
        c.advance(1_000_000);
        assert_eq!(c.now(), 1_000_000);
        c.get_busy();
        c.set_speed(512, 1024);
        c.advance(5_000_000);
        assert_eq!(c.now(), 3_000_000, "4 ms at half capacity");
        c.go_idle(0);
        assert_eq!(c.now(), 5_000_000, "the rest was idle time that it has taken");
        c.get_busy();
        c.advance(9_000_000);
        c.go_idle((MIN_DIVIDER << 10) - MAX);
        assert_eq!(c.now(), 7_000_000, "fully busy: 2 ms are lost");
        c.advance(8_000_000);
        assert_eq!(c.now(), 7_000_000, "a clock does not go back");
        c.advance(10_000_000);
        assert_eq!(c.now(), 8_000_000);
        assert_eq!(c.idle_estimate(12_000_000, 0, 0), 10_000_000);
        assert_eq!(c.idle_estimate(12_000_000, 9_000_000, 0), 9_000_000, "updated since");
        assert_eq!(c.idle_estimate(12_000_000, 0, 500_000), 9_500_000, "less what it stood");
        // Frequency comes on top of capacity.
        let mut c = Clock::default();
        c.get_busy();
        c.set_speed(512, 256);
        c.advance(8_000_000);
        assert_eq!(c.now(), 1_000_000);
    }
}
