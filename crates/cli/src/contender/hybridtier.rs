//! HybridTier, by Song and others (ASPLOS'25), as its artifact has it: counts of pages are kept in
//! two counting Bloom filters, one of which remembers for long (*frequency*) and one for a short time
//! (*momentum*); who is hot in either goes up.
//!
//! ```text
//! 100,001 samples a second and CPU ─▶ a batch of 100,000, counted by page ─▶ both filters
//!    frequency ≥ 5 or momentum ≥ 3, on the slow tier ─────────────▶ up, as far as there is room
//!    fast tier's free memory ≤ 1.25 % ─▶ the walk goes on, up to 5 %: frequency < 5 and momentum < 1
//!                                        ─▶ down; only momentum < 1 ─▶ a second chance of 60 s
//! ```
//!
//! A page's count is the least of four counters of 4 bits that its number names in one line of 64
//! bytes; a sample adds one to each of them that is below 15.
//!
//! What belongs to a large machine's memory is divided by the scale ([`homenode_core::scale`]):
//! samples of a batch, samples between two halvings of momentum, the queue of second chances, pages that
//! are a plateau, and all its times (60 s, 1 s, 120 s). Filters and the halving of frequency follow the
//! fast tier's pages as they do there. Thresholds, rates, shares and numbers of batches stay.
//!
//! Left out: halving the rate of samples from the fast tier where most of them hit counters that are
//! full (one event has both tiers here, and its rate is half of what two would have); the status query
//! of all candidates before a move (places are known); the form for huge pages.
//!
//! Source: specs/compare.md#hybridtier.

use super::pages::{At, Pages, Sampled};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Seen;
use homenode_core::policy::{Ledger, Policy};
use homenode_core::scale::Scale;
use homenode_core::splitmix::mix;
use homenode_core::topology::Hardware;
use homenode_core::units::{PAGE_SIZE, Picos};
use homenode_machine::Caps;
use std::collections::BTreeMap;

/// Samples a second of a CPU.
const RATE: u64 = 100_001;
/// Period while it only watches the share of the fast tier, of which counters tell the code.
const WATCHING: u64 = 20_011;
/// Samples of a batch.
const BATCH: u64 = 100_000;
/// Frequency and momentum of who is hot; the least frequency that a plateau leads to.
const HOT: u8 = 5;
const MOMENTUM: u8 = 3;
const LEAST_HOT: u8 = 3;
/// Samples between two halvings: of frequency, a page of the fast tier; of momentum.
const HALVE: u64 = 160;
const HALVE_MOMENTUM: u64 = 1_100_000;
/// Free memory in ten thousandths of the fast tier: from where on it demotes, and up to where.
const DEMOTE: [u64; 2] = [125, 500];
/// Pages that wait for a second chance, and how long.
const CHANCES: u64 = 10_000;
const CHANCE: Picos = Picos::from_secs(60);
/// Demotion above this, and below that, in MB/s, begins and ends pauses of a second.
const FAST: u64 = 100;
const SLOW: u64 = 10;
const PAUSE: Picos = Picos::from_secs(1);
/// Batches before plateaus are looked for, and of a plateau; pages that are none.
const SETTLED: u64 = 500;
const PLATEAU: u64 = 20;
const RISES: u64 = 25_000;
/// Sleep before it watches, and between two looks; looks that make a slope, and the one that wakes it.
const SLEEP: Picos = Picos::from_secs(120);
const LOOK: Picos = Picos::from_secs(60);
const POINTS: usize = 5;
const SLOPE: f64 = -0.01;
/// How often samples are read.
const READ: Picos = Picos::from_ms(10);

/// Counters of 4 bits in a line.
const LINE: usize = 128;
const FULL: u8 = 15;

/// A counting Bloom filter whose counts fade.
struct Filter {
    counters: Vec<u8>,
    added: u64,
    halve_at: u64,
}

impl Filter {
    /// For so many items, of which one in a thousand is taken for another.
    fn new(items: u64, halve_at: u64) -> Self {
        // k·n / −ln(1 − p^(1/k)) with k = 4 and p = 0.001.
        let counters = (items as f64 * 20.43) as usize;
        let lines = counters.div_ceil(LINE).max(1);
        Self { counters: vec![0; lines * LINE], added: 0, halve_at: halve_at.max(1) }
    }
    fn places(&self, (who, vpn): At) -> [usize; 4] {
        let hash = mix(vpn ^ mix(u64::from(who.pid) << 40 ^ who.start));
        let lines = (self.counters.len() / LINE) as u64;
        let line = ((u128::from(hash) * u128::from(lines)) >> 64) as usize * LINE;
        let inside = mix(hash);
        [0, 16, 32, 48].map(|shift| line + (inside >> shift) as usize % LINE)
    }
    fn count(&self, at: At) -> u8 {
        self.places(at).into_iter().map(|p| self.counters[p]).min().unwrap_or(0)
    }
    /// Adds samples of a page; its count then.
    fn add(&mut self, at: At, samples: u64) -> u8 {
        for place in self.places(at) {
            let sum = u64::from(self.counters[place]) + samples;
            self.counters[place] = sum.min(u64::from(FULL)) as u8;
        }
        self.added += samples;
        if self.added >= self.halve_at {
            self.halve();
        }
        self.count(at)
    }
    fn halve(&mut self) {
        self.added = 0;
        self.counters.iter_mut().for_each(|c| *c /= 2);
    }
    /// About how many pages have that count or more.
    fn hot(&self, from: u8) -> u64 {
        self.counters.iter().filter(|&&c| c >= from).count() as u64 / 4
    }
}

/// What it does with what it sees.
enum Mode {
    Samples,
    /// Watches the share of accesses in the fast tier; the shares of the last looks.
    Watches {
        next: Picos,
        shares: Vec<f64>,
    },
}

struct HybridTier {
    pages: Pages<()>,
    scale: u64,
    frequency: Filter,
    momentum: Filter,
    hot_from: u8,
    mode: Mode,
    /// Samples of this batch by page.
    batch: BTreeMap<At, u64>,
    in_batch: u64,
    batches: u64,
    /// Pages that went up in the last batches.
    rose: u64,
    /// Pages with a second chance, with the frequency that they had, and when the last were judged.
    chances: Vec<(At, u8)>,
    judged: Picos,
    hand: Option<At>,
    /// Sweeps in a row that found too little.
    poor: u32,
    demoted: Picos,
    pauses: bool,
    /// It sleeps until then.
    until: Picos,
    /// Accesses and CPU time since the period was chosen, and the period.
    accesses: u64,
    ran: u64,
    period: Option<u64>,
    /// Samples by tier since the last look.
    tiers: [u64; 2],
    wake: Picos,
}

impl HybridTier {
    fn scaled(&self, amount: u64) -> u64 {
        (amount / self.scale).max(1)
    }
    fn share(&self, [of_fast, of_slow]: [u64; 2]) -> f64 {
        of_fast as f64 / (of_fast + of_slow).max(1) as f64
    }
    /// As many samples a second of a CPU as it wants.
    fn keep_rate(&mut self) {
        // 10 ms of the programs.
        if self.ran < Picos::from_ms(10).0 || self.accesses == 0 {
            return;
        }
        let rate = u128::from(self.accesses) * 1_000_000_000_000 / u128::from(self.ran);
        self.period = Some((rate as u64 / RATE).max(1));
        (self.accesses, self.ran) = (0, 0);
    }
    fn watch(&mut self, now: Picos) {
        let next = Picos(now.0 + self.scaled(SLEEP.0));
        self.mode = Mode::Watches { next, shares: Vec::new() };
        (self.in_batch, self.tiers, self.poor) = (0, [0; 2], 0);
        self.batch.clear();
    }
    /// A look at the share while it watches; a falling one wakes it.
    fn look(&mut self, now: Picos) {
        let share = self.share(self.tiers);
        let every = self.scaled(LOOK.0);
        let Mode::Watches { next, shares } = &mut self.mode else { return };
        if now < *next {
            return;
        }
        *next = Picos(now.0 + every);
        self.tiers = [0; 2];
        shares.push(share);
        if shares.len() <= POINTS {
            return;
        }
        shares.remove(0);
        if slope(shares) < SLOPE {
            self.mode = Mode::Samples;
            self.frequency.halve();
            self.momentum.halve();
            self.chances.clear();
            self.hot_from = HOT;
        }
    }
    fn batch(&mut self, now: Picos) {
        let mut up = Vec::new();
        for (at, samples) in std::mem::take(&mut self.batch) {
            let frequency = self.frequency.add(at, samples);
            let momentum = self.momentum.add(at, samples);
            let hot = frequency >= self.hot_from || momentum >= MOMENTUM;
            if hot && self.pages.get_mut(at).is_some_and(|p| p.is(false)) {
                up.push(at);
            }
        }
        self.in_batch = 0;
        // A move that finds no room ends there.
        up.truncate(self.pages.free.max(0) as usize);
        let room = self.pages.tiers.room;
        let free = self.pages.free - up.len() as i64;
        self.pages.shift(up, true);
        if free <= (room * DEMOTE[0] / 10_000) as i64 {
            let wanted = (room * DEMOTE[1] / 10_000) as i64 - free;
            if self.demote(now, wanted.max(0) as usize) {
                return self.watch(now);
            }
        }
        self.batches += 1;
        if self.batches % PLATEAU == PLATEAU - 1 {
            let rose = std::mem::take(&mut self.rose);
            if self.batches > SETTLED && rose <= self.scaled(RISES) {
                let much = self.frequency.hot(self.hot_from) >= room * 8 / 10;
                if much || self.hot_from == LEAST_HOT {
                    return self.watch(now);
                }
                self.hot_from -= 1;
            }
        }
    }
    /// Makes room; whether two sweeps in a row have found too little.
    fn demote(&mut self, now: Picos, wanted: usize) -> bool {
        let mut down = Vec::new();
        if !self.chances.is_empty() && now.0 - self.judged.0 > self.scaled(CHANCE.0) {
            self.judged = now;
            let frequency = &self.frequency;
            let lost = self.chances.drain(..).filter(|&(at, had)| frequency.count(at) == had);
            down.extend(lost.map(|(at, _)| at));
        }
        let before = down.len();
        let most = self.scaled(CHANCES) as usize;
        let (frequency, momentum, chances) = (&self.frequency, &self.momentum, &mut self.chances);
        let hot_from = self.hot_from;
        let mut hand = self.hand;
        let went = self.pages.around(&mut hand, |at, page| {
            if page.is(true) && momentum.count(at) < 1 {
                let has = frequency.count(at);
                if has < hot_from {
                    down.push(at);
                } else if chances.len() < most {
                    chances.push((at, has));
                }
            }
            down.len() - before >= wanted
        });
        self.pages.pay_walk(self.hand, went);
        self.hand = hand;
        let found = (down.len() - before) as u64;
        let enough = found >= wanted as u64;
        if !enough {
            self.hand = None;
        }
        self.poor = if enough { 0 } else { self.poor + 1 };
        // Bytes a microsecond are MB/s.
        let took = ((now.0 - self.demoted.0) / 1_000_000).max(1);
        let rate = found * PAGE_SIZE / took;
        self.pauses = if self.pauses { rate >= SLOW } else { rate > FAST };
        self.demoted = now;
        if self.pauses {
            self.until = Picos(now.0 + self.scaled(PAUSE.0));
        }
        self.pages.shift(down, false);
        self.poor >= 2
    }
}

/// Slope of the line of least squares.
fn slope(y: &[f64]) -> f64 {
    let n = y.len() as f64;
    let x = |i: usize| i as f64;
    let (sx, sy): (f64, f64) = ((0..y.len()).map(x).sum(), y.iter().sum());
    let sxy: f64 = y.iter().enumerate().map(|(i, y)| x(i) * y).sum();
    let sxx: f64 = (0..y.len()).map(|i| x(i) * x(i)).sum();
    (n * sxy - sx * sy) / (n * sxx - sx * sx)
}

impl Policy for HybridTier {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        let (batch, tiers, accesses) = (&mut self.batch, &mut self.tiers, &mut self.accesses);
        let counts = matches!(self.mode, Mode::Samples);
        let sampled = |s: Sampled<'_, ()>| {
            *accesses += s.period;
            if let Some(fast) = s.page.fast {
                tiers[usize::from(!fast)] += 1;
            }
            if counts {
                *batch.entry(s.at).or_default() += 1;
            }
        };
        let news = self.pages.take(seen, sampled, |_, _| {});
        self.in_batch += news.samples;
        self.ran += news.ran;
        self.rose += news.moved[0];
        self.keep_rate();
        // Moves are made by the thread that reads samples.
        let is_idle = now >= self.until && self.pages.moving() == 0 && self.pages.fresh;
        match self.mode {
            Mode::Samples if is_idle && self.in_batch >= self.scaled(BATCH) => self.batch(now),
            Mode::Samples => {}
            Mode::Watches { .. } => self.look(now),
        }
        self.wake = now + READ;
    }
    fn poll(&mut self) -> Option<Order> {
        self.pages.poll()
    }
    fn timeout(&self) -> Option<Picos> {
        Some(self.wake)
    }
    fn ledger(&self) -> &Ledger {
        self.pages.ledger()
    }
    fn stands_for(&mut self, scale: Scale) {
        self.scale = scale.factor();
        self.momentum.halve_at = self.scaled(HALVE_MOMENTUM);
    }
    fn period(&self) -> Option<u64> {
        match self.mode {
            Mode::Samples => self.period,
            Mode::Watches { .. } => Some(WATCHING),
        }
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, caps: &Caps) -> Box<dyn Policy> {
    let pages = Pages::new(machine, caps.most_pages);
    let room = pages.tiers.room;
    Box::new(HybridTier {
        pages,
        scale: 1,
        frequency: Filter::new(room, room * HALVE),
        momentum: Filter::new(room / 100, HALVE_MOMENTUM),
        hot_from: HOT,
        mode: Mode::Samples,
        batch: BTreeMap::new(),
        in_batch: 0,
        batches: 0,
        rose: 0,
        chances: Vec::new(),
        judged: Picos::ZERO,
        hand: None,
        poor: 0,
        demoted: Picos::ZERO,
        pauses: false,
        until: Picos::ZERO,
        accesses: 0,
        ran: 0,
        period: None,
        tiers: [0; 2],
        wake: Picos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::seen::Who;

    const WHO: Who = Who { pid: 9, start: 3 };

    #[test]
    fn a_filter_counts_up_to_fifteen_fades_by_halves_and_seldom_takes_one_for_another() {
        let mut f = Filter::new(1000, 20_000);
        assert_eq!((f.add((WHO, 5), 3), f.add((WHO, 5), 20)), (3, 15));
        for vpn in 1000..2000 {
            f.add((WHO, vpn), 6);
        }
        let taken = (5000..15_000).filter(|&vpn| f.count((WHO, vpn)) > 0).count();
        assert!((1..100).contains(&taken), "{taken} of 10000");
        assert!((900..1100).contains(&f.hot(5)), "{}", f.hot(5));
        f.halve();
        assert_eq!((f.count((WHO, 5)), f.count((WHO, 1500))), (7, 3));
        // By itself, after so many samples.
        (0..20_000).for_each(|_| {
            f.add((WHO, 7), 1);
        });
        assert!(f.count((WHO, 5)) <= 3);
    }

    #[test]
    fn a_share_that_falls_has_a_slope_below_the_one_that_wakes() {
        assert!((slope(&[0.9, 0.88, 0.86, 0.84, 0.82]) + 0.02).abs() < 1e-12);
        assert!(slope(&[0.9, 0.901, 0.899, 0.9, 0.9]).abs() < 0.001);
    }
}
