//! One in how many accesses is sampled.
//!
//! ```text
//!   memory that is new, or moves of the last two seconds that pay for it?
//!               │ yes                     │ no
//!               ▼                         ▼
//!      20,000 samples a second       1,000 at most: what is no longer true
//!      at most: who is hot is        is noticed still
//!      told apart from chance
//! ```
//!
//! What a sample tells and costs follows from how many there are a second, on all CPUs
//! together; what a period makes of it follows from the programs. So the rate is measured and
//! the period follows, as a rung of a ladder.
//!
//! A close look at memory that is known has to pay. What moves are expected to save beyond what
//! they cost is its purse; samples beyond those at rest are paid from it. So few pages that gain
//! little, as there are always some, don't keep it going.
//!
//! Worked example: one in 20,021 gives 1,000 a second. While pages move it is one in 1,259,
//! 16,000 a second; when nothing has moved for two seconds 20,021 again. Moves that save 15 ms
//! pay for one second of that, as 15,000 samples more than at rest take 1 µs each.
//!
//! Source: specs/sources.md#period.

use crate::units::Picos;

/// The periods that there are: primes, so that no loop of the usual lengths shows the same
/// pages again and again, about 2^(1/2) apart, so that of the most that may be taken seven
/// tenths are. From where sampling costs a few hundredths of what accesses to memory
/// take, to ten million, which a machine of hundreds of CPUs needs that counts hits of
/// caches as well.
pub const PERIODS: [u64; 31] = [
    313, 443, 631, 887, 1_259, 1_777, 2_503, 3_539, 5_009, 7_079, 10_007, 14_153, 20_021, 28_307,
    40_031, 56_611, 80_071, 113_227, 160_117, 226_433, 320_237, 452_869, 640_457, 905_759,
    1_280_921, 1_811_473, 2_561_807, 3_622_951, 5_123_603, 7_245_863, 10_247_191,
];
/// The one to begin with.
const FIRST: usize = 10;
/// Most samples a second while they are worth a close look: 1 µs each, 2 % of a CPU.
pub const MOST: u64 = 20_000;
/// Most at rest, where they only have to show that something has changed: 0.1 % of a CPU.
pub const AT_REST: u64 = 1_000;
/// For so long a move counts, and rates are measured over it at the longest.
pub const WINDOW: Picos = Picos::from_secs(2);
/// What the purse of a close look holds, of the samples of a window, and how much it has to hold
/// before one begins: of a look that is shorter than half a second little is learned.
const PURSE: u64 = MOST * WINDOW.as_ms() / 1000;
const BEGINS_WITH: u64 = PURSE / 4;
/// The shortest time to measure over, and how many samples then: known to a tenth.
const LEAST: (Picos, u64) = (Picos::from_ms(100), 100);

/// The period, decided anew from how many samples there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePeriod {
    /// Which of [`PERIODS`].
    at: usize,
    /// Begin of the window, and samples in it.
    since: Picos,
    samples: u64,
    /// What a sample costs, in picoseconds.
    each: u64,
    /// Until when memory is new.
    young: Picos,
    /// Until when the last move counts.
    busy: Picos,
    /// What is left of what moves have paid for a close look, in picoseconds, and whether there is
    /// one.
    purse: u64,
    close: bool,
}

impl SamplePeriod {
    /// At 10,007.
    ///
    /// * `each` – what a sample costs, with its reading.
    pub const fn new(each: Picos) -> Self {
        let (since, young, busy) = (Picos::ZERO, Picos::ZERO, Picos::ZERO);
        Self { at: FIRST, since, samples: 0, each: each.0, young, busy, purse: 0, close: false }
    }
    /// The present one.
    pub const fn every(&self) -> u64 {
        PERIODS[self.at]
    }
    /// Samples were taken.
    pub const fn took(&mut self, samples: u64) {
        self.samples = self.samples.saturating_add(samples);
    }
    /// Samples of another process begin: what is known of it is young for so long. What there
    /// was before says nothing about the rate from now on.
    pub fn begin(&mut self, now: Picos, young: Picos) {
        (self.since, self.samples) = (now, 0);
        self.young = self.young.max(Picos(now.0.saturating_add(young.0)));
    }
    /// Pages have moved: what that is expected to save beyond what it costs.
    pub fn moved(&mut self, now: Picos, saves: Picos) {
        self.busy = self.busy.max(Picos(now.0.saturating_add(WINDOW.0)));
        self.purse = self.purse.saturating_add(saves.0).min(self.each.saturating_mul(PURSE));
    }
    /// Pays for the samples of the last window; whether the next one is a close look.
    fn is_close(&mut self, now: Picos, over: Picos) -> bool {
        if now < self.young {
            return true;
        }
        if self.close {
            let at_rest = u128::from(over.0) * u128::from(AT_REST) / 1_000_000_000_000;
            let at_rest = u64::try_from(at_rest).unwrap_or(u64::MAX);
            let more = self.samples.saturating_sub(at_rest);
            self.purse = self.purse.saturating_sub(more.saturating_mul(self.each));
        }
        let begins = self.purse >= self.each.saturating_mul(BEGINS_WITH);
        self.close = now < self.busy && (begins || self.close && self.purse > 0);
        self.close
    }
    /// Decides; true if it is another now.
    pub fn judge(&mut self, now: Picos) -> bool {
        let over = now.saturating_sub(self.since);
        if over < LEAST.0 || over < WINDOW && self.samples < LEAST.1 {
            return false;
        }
        let most = if self.is_close(now, over) { MOST } else { AT_REST };
        let took = u128::from(self.samples) * 1_000_000_000_000 * u128::from(self.every());
        (self.since, self.samples) = (now, 0);
        if took == 0 {
            return false;
        }
        let fits = |at: usize| {
            // Shorter only where it fits with a fifth to spare: else it goes to and fro.
            let most = if at < self.at { most * 4 / 5 } else { most };
            took <= u128::from(over.0) * u128::from(most) * u128::from(PERIODS[at])
        };
        let next = (0..PERIODS.len()).find(|&at| fits(at)).unwrap_or(PERIODS.len() - 1);
        std::mem::replace(&mut self.at, next) != next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: Picos = Picos::from_us(1);

    fn ms(n: u64) -> Picos {
        Picos::from_ms(n)
    }

    /// So many accesses a second, judged ten times a second; each period with its samples a second.
    fn run(p: &mut SamplePeriod, accesses: u64, from: u64, to: u64) -> (u64, u64) {
        let mut seen = (0, 0);
        for tenth in from / 100..to / 100 {
            let samples = accesses / 10 / p.every();
            p.took(samples);
            p.judge(ms((tenth + 1) * 100));
            seen = (p.every(), accesses / p.every());
        }
        seen
    }

    // specs/sources.md#period
    #[test]
    fn new_memory_and_moves_are_looked_at_closely_and_rest_is_cheap() {
        let mut p = SamplePeriod::new(EACH);
        // Long before anybody is sampled.
        assert!(!p.judge(ms(5000)));
        p.begin(ms(5000), ms(8000));
        let step = |p: &mut SamplePeriod, from, to| run(p, 20_000_000, from, to);
        assert_eq!(step(&mut p, 5000, 5100), (1_259, 15_885), "a tenth of a second, 200 samples");
        assert_eq!(step(&mut p, 5100, 12_900), (1_259, 15_885), "young");
        assert_eq!(step(&mut p, 12_900, 13_100), (20_021, 998), "at rest");
        p.moved(ms(20_000), ms(1000));
        assert_eq!(step(&mut p, 20_000, 21_900), (1_259, 15_885), "pages have moved");
        assert_eq!(step(&mut p, 21_900, 23_000), (20_021, 998), "two seconds ago");
    }

    // specs/sources.md#period: 14,885 samples a second more than at rest take 14.9 ms.
    #[test]
    fn moves_pay_for_a_close_look() {
        let mut p = SamplePeriod::new(EACH);
        p.begin(ms(0), ms(0));
        let step = |p: &mut SamplePeriod, from, to| run(p, 20_000_000, from, to).0;
        assert_eq!(step(&mut p, 0, 1000), 20_021);
        // Seven pages ten times a second, each of which saves 3 us: 0.2 ms a second.
        for tenth in 10..60 {
            p.moved(ms(tenth * 100), Picos::from_us(21));
            assert_eq!(step(&mut p, tenth * 100, tenth * 100 + 100), 20_021, "they don't pay");
        }
        // With these 1.05 ms there are 16, enough to begin with, and for 1.1 s.
        p.moved(ms(6000), ms(15));
        assert_eq!(step(&mut p, 6000, 6100), 1_259);
        assert_eq!(step(&mut p, 6100, 7000), 1_259);
        assert_eq!(step(&mut p, 7000, 8000), 20_021, "all is spent");
        // Whatever they save, 40 ms are kept at most.
        p.moved(ms(8000), Picos::from_secs(1000));
        assert_eq!(step(&mut p, 8000, 9000), 1_259);
        p.moved(ms(9000), Picos::ZERO);
        p.moved(ms(10_000), Picos::ZERO);
        assert_eq!(step(&mut p, 9000, 10_700), 1_259, "40 ms are for 2.7 s");
        assert_eq!(step(&mut p, 10_700, 11_000), 20_021);
        // Samples that cost nothing need not be paid for.
        let mut p = SamplePeriod::new(Picos::ZERO);
        p.begin(ms(0), ms(0));
        p.moved(ms(1000), Picos::ZERO);
        assert_eq!(step(&mut p, 1000, 2900), 1_259);
    }

    // specs/sources.md#period: from a core that idles to a machine of hundreds that count cache hits.
    #[test]
    fn whatever_programs_do_the_rate_is_within_its_bounds() {
        for accesses in [5_000_000, 40_000_000, 700_000_000, 9_000_000_000, 90_000_000_000] {
            let mut p = SamplePeriod::new(EACH);
            p.begin(ms(0), ms(8000));
            let (_, busy) = run(&mut p, accesses, 0, 7000);
            assert!((11_000..=MOST).contains(&busy), "{accesses}: {busy}");
            let (_, rest) = run(&mut p, accesses, 8000, 16_000);
            assert!((550..=9_000).contains(&rest), "{accesses}: {rest}");
            assert!(
                rest <= AT_REST || p.every() == PERIODS[PERIODS.len() - 1],
                "{accesses}: {rest}"
            );
        }
    }

    #[test]
    fn few_accesses_are_sampled_as_closely_as_can_be_and_none_change_nothing() {
        let mut p = SamplePeriod::new(EACH);
        p.begin(ms(0), ms(60_000));
        assert!(!p.judge(ms(2000)), "nothing was sampled");
        assert_eq!(run(&mut p, 1_000_000, 2000, 30_000), (PERIODS[0], 1_000_000 / 313));
    }

    // A program that is 15 % faster now and then.
    #[test]
    fn a_rate_that_wavers_does_not_change_the_period_each_time() {
        let mut p = SamplePeriod::new(EACH);
        p.begin(ms(0), ms(60_000));
        run(&mut p, 20_000_000, 0, 1000);
        let mut changes = 0;
        for second in 1..50 {
            let before = p.every();
            let accesses = if second % 2 == 0 { 20_000_000 } else { 23_000_000 };
            run(&mut p, accesses, second * 1000, second * 1000 + 1000);
            changes += u64::from(p.every() != before);
        }
        assert!(changes <= 1, "{changes}");
    }

    #[test]
    fn periods_are_primes_and_rise() {
        let prime = |n: u64| (2..).take_while(|d| d * d <= n).all(|d| n % d != 0);
        assert!(PERIODS.iter().all(|&p| prime(p)));
        assert!(PERIODS.windows(2).all(|p| p[0] * 7 / 5 < p[1] && p[1] < p[0] * 3 / 2));
    }
}
