//! Random streams with labels, and distributions by integer tables.
//!
//! Each stream is seeded from the run's seed and a label, so that one more draw
//! in one place shifts no other stream. Tables are built with the `libm` crate,
//! which gives the same bits on every machine; drawing uses integers only.

use rand_core::{Rng as _, SeedableRng};
use rand_pcg::Mcg128Xsl64;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use twox_hash::XxHash3_64;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Mcg128Xsl64);

impl Stream {
    /// The stream of that label in a run with that seed.
    pub fn new(seed: u64, label: &str) -> Self {
        let lo = XxHash3_64::oneshot_with_seed(seed, label.as_bytes());
        Self(Mcg128Xsl64::seed_from_u64(lo))
    }
    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A number below `n`, all alike (up to 2^-32 for `n` below 2^32).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

/// Cells of a table of quantiles.
const CELLS: usize = 1 << 16;

/// Quantiles of the standard normal distribution at k / 65536, in 2^-24.
fn normal() -> &'static [i64] {
    static TABLE: OnceLock<Vec<i64>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = vec![0i64; CELLS + 1];
        // Newton's method from the last quantile, from the middle outwards; the
        // other half by symmetry. The ends stand for a quarter of a cell's mass.
        let mut z = 0.0f64;
        for k in 1..=CELLS / 2 {
            let tail = if k == CELLS / 2 { 0.25 } else { (CELLS / 2 - k) as f64 } / CELLS as f64;
            for _ in 0..6 {
                let over = 0.5 * libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2) - tail;
                let density = libm::exp(-0.5 * z * z) * 0.398_942_280_401_432_7;
                z += over / density;
            }
            let fixed = libm::round(z * f64::from(1 << 24)) as i64;
            table[CELLS / 2 + k] = fixed;
            table[CELLS / 2 - k] = -fixed;
        }
        table
    })
}

#[inline]
fn interpolate(table: &[i64], r: u64) -> i64 {
    let cell = (r >> 48) as usize;
    let within = (r >> 16 & 0xffff) as i64;
    table[cell] + (((table[cell + 1] - table[cell]) * within) >> 16)
}

/// Normal around the middle of `0 .. n`, cut at both ends.
#[derive(Clone, Debug)]
pub struct Gauss {
    n: i64,
    /// Deviation in 2^-8 of one.
    sd: i64,
}

/// Normal around the middle of `0 .. n`; what lies outside goes to the middle.
/// pmbench's `normal`.
///
/// Source: specs/pmbench.md#patterns.
#[derive(Clone, Debug)]
pub struct Normal(Gauss);

impl Normal {
    /// `deviation` is in whole numbers.
    pub fn new(n: u64, deviation: u32) -> Self {
        Self(Gauss { n: n as i64, sd: i64::from(deviation) * 256 })
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        let x = self.0.place(from);
        let n = self.0.n;
        (if (0..n).contains(&x) { x } else { n / 2 }) as u64
    }
}

impl Gauss {
    /// `sd` is the deviation in thousandths of `n`.
    pub fn new(n: u64, sd: u32) -> Self {
        Self { n: n as i64, sd: (n as i64 * i64::from(sd) * 256) / 1000 }
    }
    /// The next number, which may lie outside.
    #[inline]
    fn place(&self, from: &mut Stream) -> i64 {
        let z = interpolate(normal(), from.bits());
        // z in 2^-24 times sd in 2^-8: 2^-32; sd is below 2^41.
        self.n / 2 + ((i128::from(z) * i128::from(self.sd)) >> 32) as i64
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        loop {
            let x = self.place(from);
            if (0..self.n).contains(&x) {
                return x as u64;
            }
        }
    }
}

/// Quantiles of a distribution whose tails are drawn from tables of their own, so
/// that what has a mass of 2^-32 still comes up as often as it should.
///
/// The first and the last of the main table's cells are each divided once more.
#[derive(Debug)]
struct Quantiles {
    main: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
}

impl Quantiles {
    /// `at(mass, from_above)`: where so much of the distribution lies below, or above.
    fn new(mut at: impl FnMut(f64, bool) -> i64) -> Self {
        let cell = 1.0 / CELLS as f64;
        let part = |k: usize, of: f64| k as f64 * of;
        let half = CELLS / 2;
        let main =
            (0..=CELLS)
                .map(|k| {
                    if k <= half {
                        at(part(k, cell), false)
                    } else {
                        at(part(CELLS - k, cell), true)
                    }
                })
                .collect();
        let low = (0..=CELLS).map(|k| at(part(k, cell * cell), false)).collect();
        let high = (0..=CELLS).map(|k| at(part(CELLS - k, cell * cell), true)).collect();
        Self { main, low, high }
    }
    #[inline]
    fn draw(&self, from: &mut Stream) -> i64 {
        let r = from.bits();
        match r >> 48 {
            0 => interpolate(&self.low, r << 16),
            0xffff => interpolate(&self.high, r << 16),
            _ => interpolate(&self.main, r),
        }
    }
}

/// Quantiles of the mean of twelve uniform numbers from 0 to 1, in 2^-32.
fn irwin_hall() -> &'static Quantiles {
    static TABLE: OnceLock<Quantiles> = OnceLock::new();
    TABLE.get_or_init(|| {
        // Sum of (-1)^k · C(12, k) · (x - k)^n over k below x, divided by n!: the
        // density of the sum at x for n = 11, what lies below x for n = 12.
        let up_to = |x: f64, n: u32| {
            let (mut sum, mut choose, mut k) = (0.0, 1.0, 0.0);
            while k < x {
                let power = (0..n).fold(1.0, |p, _| p * (x - k));
                sum += choose * power;
                choose *= -(12.0 - k) / (k + 1.0);
                k += 1.0;
            }
            (1..=n).fold(sum, |s, i| s / f64::from(i))
        };
        let mut last = 6.0f64;
        let mut below = |mass: f64| {
            if mass <= 0.0 {
                return 0.0;
            }
            // Newton's method from the last quantile, kept between 0 and the middle;
            // the density falls towards 0, so it comes from above without overshoot.
            for _ in 0..60 {
                let step = (up_to(last, 12) - mass) / up_to(last, 11);
                let next = (last - step).clamp(last / 2.0, 6.0);
                let done = (next - last).abs() < 1e-13 * last;
                last = next;
                if done {
                    break;
                }
            }
            last
        };
        Quantiles::new(|mass, from_above| {
            let x = libm::round(below(mass) / 12.0 * 4_294_967_296.0) as i64;
            if from_above { (1 << 32) - x } else { x }
        })
    })
}

/// pmbench's `normal_ih`: the mean of twelve uniform numbers below `12 · k`, moved so
/// that its middle is that of `0 .. n`, and drawn again where it lies outside.
///
/// Source: specs/pmbench.md#patterns.
#[derive(Clone, Debug)]
pub struct NormalIh {
    n: i64,
    /// Twelve times the deviation, in whole pages.
    span: i64,
    shift: i64,
}

impl NormalIh {
    /// On `0 .. n`; `n` from 1 to 2^31. Below 8 pmbench has no such pattern; here the
    /// span is 12 all the same.
    pub fn new(n: u64) -> Self {
        let n = n as i64;
        let span = ((n - 1 + 5) / 12).max(1) * 12;
        Self { n, span, shift: (n - 1 - span) >> 1 }
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        let table = irwin_hall();
        loop {
            let x = ((table.draw(from) * self.span) >> 32) + self.shift;
            if (0..self.n).contains(&x) {
                return x as u64;
            }
        }
    }
}

/// Tables of a distribution that a thread built last, by size and thousandths. Each task
/// of a scenario asks for its own, and again each time it comes round to the same step.
type Kept<T> = RefCell<Vec<((u64, u32), Arc<T>)>>;

/// How many a thread keeps; each takes 0.5 to 1.5 MiB.
const KEPT: usize = 4;

/// The table of `n` and `thousandths`, built only if it isn't kept.
fn kept<T>(tables: &Kept<T>, n: u64, thousandths: u32, build: impl FnOnce() -> T) -> Arc<T> {
    let of = (n, thousandths);
    let mut tables = tables.borrow_mut();
    let found = tables.iter().position(|(key, _)| *key == of).map(|at| tables.remove(at).1);
    let table = found.unwrap_or_else(|| Arc::new(build()));
    tables.insert(0, (of, table.clone()));
    tables.truncate(KEPT);
    table
}

/// Bounded Pareto on 1 to n + 1, rounded down, from 0: pmbench's `pareto`.
///
/// Source: specs/pmbench.md#patterns.
#[derive(Clone, Debug)]
pub struct Pareto {
    n: u64,
    /// Numbers from 0 in 2^-8.
    table: Arc<Quantiles>,
}

impl Pareto {
    /// On `0 .. n` with an index of `alpha` thousandths.
    pub fn new(n: u64, alpha: u32) -> Self {
        thread_local!(static TABLES: Kept<Quantiles> = const { RefCell::new(Vec::new()) });
        Self { n, table: TABLES.with(|tables| kept(tables, n, alpha, || Self::table(n, alpha))) }
    }
    fn table(n: u64, alpha: u32) -> Quantiles {
        let alpha = f64::from(alpha) / 1000.0;
        let bound = libm::pow(n as f64, -alpha);
        Quantiles::new(|mass, from_above| {
            // What lies above x is (x^-alpha - bound) / (1 - bound).
            let above = if from_above { mass } else { 1.0 - mass };
            let x = libm::pow(above * (1.0 - bound) + bound, -1.0 / alpha);
            libm::floor((x - 1.0).clamp(0.0, n as f64) * 256.0) as i64
        })
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        ((self.table.draw(from) >> 8) as u64).min(self.n - 1)
    }
}

/// Rank-frequency: rank `k` (from 1) has a mass proportional to `k^-theta`.
///
/// Drawn from a table of 65,536 quantiles, linear within a cell: masses are exact
/// to 1/65536 of the whole. Ranks are spread over `0 .. n` by a fixed step, so
/// that hot pages are not neighbours.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    step: u64,
    /// Ranks from 0 in 2^-8.
    table: Arc<Vec<i64>>,
}

impl Zipf {
    /// `theta` in thousandths.
    pub fn new(n: u64, theta: u32) -> Self {
        thread_local!(static TABLES: Kept<Vec<i64>> = const { RefCell::new(Vec::new()) });
        let table = TABLES.with(|tables| kept(tables, n, theta, || Self::table(n, theta)));
        Self { n, step: coprime_step(n), table }
    }
    fn table(n: u64, theta: u32) -> Vec<i64> {
        let theta = f64::from(theta) / 1000.0;
        // Masses of the first ranks one by one, of the others by the integral.
        let exact = n.min(1 << 16);
        let mut cumulative = Vec::with_capacity(exact as usize + 1);
        let mut sum = 0.0;
        cumulative.push(0.0);
        for k in 1..=exact {
            sum += libm::pow(k as f64, -theta);
            cumulative.push(sum);
        }
        let from = exact as f64 + 0.5;
        let part = |x: f64| {
            if (theta - 1.0).abs() < 1e-9 {
                libm::log(x / from)
            } else {
                (libm::pow(x, 1.0 - theta) - libm::pow(from, 1.0 - theta)) / (1.0 - theta)
            }
        };
        let total = sum + if n > exact { part(n as f64 + 0.5) } else { 0.0 };
        let mut k = 0usize;
        (0..=CELLS)
            .map(|cell| {
                let mass = total * cell as f64 / CELLS as f64;
                while k + 1 < cumulative.len() && cumulative[k + 1] <= mass {
                    k += 1;
                }
                let rank = if k + 1 < cumulative.len() {
                    k as f64 + (mass - cumulative[k]) / (cumulative[k + 1] - cumulative[k])
                } else if n > exact {
                    let more = mass - sum;
                    if (theta - 1.0).abs() < 1e-9 {
                        from * libm::exp(more) - 0.5
                    } else {
                        let y = libm::pow(from, 1.0 - theta) + more * (1.0 - theta);
                        libm::pow(y, 1.0 / (1.0 - theta)) - 0.5
                    }
                } else {
                    n as f64
                };
                libm::floor(rank.clamp(0.0, n as f64) * 256.0) as i64
            })
            .collect()
    }
    /// The next number's rank, from 0.
    #[inline]
    pub fn rank(&self, from: &mut Stream) -> u64 {
        let rank = (interpolate(&self.table, from.bits()) >> 8) as u64;
        rank.min(self.n - 1)
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        (u128::from(self.rank(from)) * u128::from(self.step) % u128::from(self.n)) as u64
    }
}

/// A step near the golden section of `n` that reaches every number below it.
pub(crate) fn coprime_step(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (u128::from(n) * 618_034 / 1_000_000) as u64;
    (start.max(1)..).find(|&s| gcd(s, n) == 1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_are_the_published_ones() {
        // Φ⁻¹(0.75) = 0.674490, Φ⁻¹(0.975) = 1.959964 (49152 and 63897.6 of 65536)
        let z = |k: usize| normal()[k] as f64 / f64::from(1 << 24);
        assert!((z(49152) - 0.674_490).abs() < 1e-5, "{}", z(49152));
        assert!((z(63898) - 1.959_964).abs() < 2e-4, "{}", z(63898));
        assert_eq!(z(32768), 0.0);
        assert!(normal().windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn gauss_has_the_asked_deviation() {
        let g = Gauss::new(1 << 20, 83);
        let mut s = Stream::new(7, "gauss");
        let n = 200_000;
        let d: Vec<f64> = (0..n).map(|_| g.draw(&mut s) as f64 - f64::from(1u32 << 19)).collect();
        let sd = (d.iter().map(|x| x * x).sum::<f64>() / f64::from(n)).sqrt();
        let want = 0.083 * f64::from(1u32 << 20);
        assert!((sd / want - 1.0).abs() < 0.01, "{sd} instead of {want}");
    }

    /// Pearson's statistic of draws against exact shares, and how many bins it has.
    fn chi_square(counts: &[u64], shares: &[f64]) -> (f64, usize) {
        let total = counts.iter().sum::<u64>() as f64;
        let (mut sum, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
        for (&c, &p) in counts.iter().zip(shares) {
            // Bins with few expected draws are put together.
            rest = (rest.0 + c as f64, rest.1 + p * total);
            if rest.1 >= 20.0 {
                sum += (rest.0 - rest.1) * (rest.0 - rest.1) / rest.1;
                bins += 1;
                rest = (0.0, 0.0);
            }
        }
        (sum, bins)
    }
    /// Fails where the statistic lies beyond what one in about 10^5 seeds would give.
    fn fits(what: &str, counts: &[u64], shares: &[f64]) {
        let (sum, bins) = chi_square(counts, shares);
        let df = bins as f64 - 1.0;
        let bound = df + 4.3 * (2.0 * df).sqrt() + 10.0;
        assert!(sum < bound, "{what}: {sum} over {bins} bins");
        assert!(bins >= 4, "{what}: {bins} bins say nothing");
    }

    /// Shares of pmbench's sampler by counting: all sums of twelve whole numbers below
    /// the span, divided by twelve, moved, and cut.
    fn normal_ih_exactly(n: usize) -> Vec<f64> {
        let span = ((n - 1 + 5) / 12) * 12;
        let mut sums = vec![1.0];
        for _ in 0..12 {
            let mut next = vec![0.0; sums.len() + span - 1];
            let mut window = 0.0;
            for (i, n) in next.iter_mut().enumerate() {
                window += sums.get(i).unwrap_or(&0.0);
                window -= if i >= span { sums[i - span] } else { 0.0 };
                *n = window / span as f64;
            }
            sums = next;
        }
        let shift = (n as i64 - 1 - span as i64).div_euclid(2);
        let mut shares = vec![0.0; n];
        for (sum, p) in sums.iter().enumerate() {
            let at = (sum / 12) as i64 + shift;
            if (0..n as i64).contains(&at) {
                shares[at as usize] += p;
            }
        }
        let all: f64 = shares.iter().sum();
        shares.iter().map(|p| p / all).collect()
    }

    #[test]
    fn normal_ih_is_pmbenchs_sampler() {
        for n in [12usize, 100, 256, 1005] {
            let exact = normal_ih_exactly(n);
            let g = NormalIh::new(n as u64);
            let mut s = Stream::new(11, "ih");
            let mut counts = vec![0u64; n];
            for _ in 0..400_000 {
                counts[g.draw(&mut s) as usize] += 1;
            }
            // The table is continuous, the sampler's numbers are whole: its middle lies
            // half a page further up, less 11 of 24.
            let moment = |k: &dyn Fn(f64) -> f64, shares: &[f64]| -> f64 {
                shares.iter().enumerate().map(|(i, p)| k(i as f64) * p).sum()
            };
            let drawn: Vec<f64> = counts.iter().map(|&c| c as f64 / 400_000.0).collect();
            let (want, got) = (moment(&|x| x, &exact), moment(&|x| x, &drawn));
            assert!((want - got).abs() < 0.55 + n as f64 / 12.0 / 100.0, "{n}: {got} for {want}");
            let var = |m: f64, s: &[f64]| moment(&|x| (x - m) * (x - m), s).sqrt();
            let (want, got) = (var(want, &exact), var(got, &drawn));
            assert!((got / want - 1.0).abs() < 0.02 + 0.5 / n as f64, "{n}: {got} for {want}");
        }
    }

    #[test]
    fn normal_ih_fits_its_exact_shares_tails_included() {
        // 60,000 pages, in 240 bins; a page is too little to tell whole numbers from
        // continuous ones. Bins of a share down to 10^-5 each count.
        let (n, bins) = (60_000usize, 240);
        let per = n / bins;
        let exact: Vec<f64> = normal_ih_exactly(n).chunks(per).map(|c| c.iter().sum()).collect();
        let g = NormalIh::new(n as u64);
        let mut s = Stream::new(5, "tails");
        let mut counts = vec![0u64; bins];
        for _ in 0..2_000_000 {
            counts[g.draw(&mut s) as usize * bins / n] += 1;
        }
        fits("normal_ih", &counts, &exact);
        // A normal distribution of the same deviation does not: its tails are heavier.
        let normal = Gauss { n: n as i64, sd: n as i64 * 256 / 12 };
        let mut counts = vec![0u64; bins];
        for _ in 0..2_000_000 {
            counts[normal.draw(&mut s) as usize * bins / n] += 1;
        }
        let (sum, bins) = chi_square(&counts, &exact);
        assert!(sum > 3.0 * bins as f64, "{sum} over {bins}");
    }

    #[test]
    fn normal_ih_quantiles_are_the_exact_ones_far_out() {
        // Below x ≤ 1 the sum of twelve has the mass x^12 / 12!, so 2^-32 lies at
        // (12! / 2^32)^(1/12) = 0.8291..., a twelfth of it 0.0691.
        let t = irwin_hall();
        let q = |v: i64| v as f64 / 4_294_967_296.0;
        let want = libm::pow(479_001_600.0 / 4_294_967_296.0, 1.0 / 12.0) / 12.0;
        assert!((q(t.low[1]) - want).abs() < 1e-9, "{} {want}", q(t.low[1]));
        assert_eq!((t.main[0], t.main[CELLS / 2], t.main[CELLS]), (0, 1 << 31, 1 << 32));
        assert_eq!((t.low[CELLS], t.high[0]), (t.main[1], t.main[CELLS - 1]));
        for table in [&t.main, &t.low, &t.high] {
            assert!(table.windows(2).all(|w| w[0] < w[1]));
        }
    }

    #[test]
    fn normal_with_a_deviation_of_a_page_stays_on_a_few_pages() {
        // Φ(j + 1) - Φ(j) for j from -4 to 3, pages n/2 - 4 to n/2 + 3.
        let phi = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        let n = 1000u64;
        for deviation in [1u32, 3] {
            let g = Normal::new(n, deviation);
            let d = f64::from(deviation);
            let mut s = Stream::new(9, "normal");
            let mut counts = vec![0u64; n as usize];
            for _ in 0..400_000 {
                counts[g.draw(&mut s) as usize] += 1;
            }
            let at = |i: usize| (i as f64 - 500.0) / d;
            let exact: Vec<f64> = (0..n as usize).map(|i| phi(at(i + 1)) - phi(at(i))).collect();
            fits("normal", &counts, &exact);
        }
        // Far outside: everything that would be lost is in the middle.
        let g = Normal::new(8, 1_000_000);
        let mut s = Stream::new(9, "wide");
        let middle = (0..10_000).filter(|_| g.draw(&mut s) == 4).count();
        assert!(middle > 9_900, "{middle}");
    }

    #[test]
    fn pareto_follows_its_bounded_law() {
        for (n, alpha) in [(1_000u64, 1000u32), (100_000, 1161), (100_000, 300), (4, 2000)] {
            let p = Pareto::new(n, alpha);
            let a = f64::from(alpha) / 1000.0;
            let bound = libm::pow(n as f64, -a);
            // Mass of [x, x + 1) on 1 to n; the last number, n - 1, is x = n alone.
            let above = |x: f64| (libm::pow(x.min(n as f64), -a) - bound) / (1.0 - bound);
            let exact: Vec<f64> =
                (1..=n).map(|k| above(k as f64) - above(k as f64 + 1.0)).collect();
            let mut s = Stream::new(4, "pareto");
            let mut counts = vec![0u64; n as usize];
            for _ in 0..500_000 {
                counts[p.draw(&mut s) as usize] += 1;
            }
            if n > 4 {
                fits("pareto", &counts, &exact);
            } else {
                for (c, e) in counts.iter().zip(&exact) {
                    assert!((*c as f64 / 500_000.0 - e).abs() < 0.003, "{counts:?} {exact:?}");
                }
            }
        }
    }

    #[test]
    fn zipf_follows_rank_frequency() {
        for theta in [500, 990, 1000, 1500] {
            let n = 1_000_000u64;
            let z = Zipf::new(n, theta);
            let mut s = Stream::new(3, "zipf");
            let draws = 300_000;
            let mut first = 0u32;
            let mut second = 0u32;
            for _ in 0..draws {
                match z.draw(&mut s) {
                    0 => first += 1,
                    x if x == z.step => second += 1,
                    x => assert!(x < n),
                }
            }
            let t = f64::from(theta) / 1000.0;
            let total: f64 = (1..=n).map(|k| libm::pow(k as f64, -t)).sum();
            for (got, k) in [(first, 1.0f64), (second, 2.0)] {
                let share = f64::from(got) / f64::from(draws);
                let want = libm::pow(k, -t) / total;
                // Within five deviations of the draw and the table's resolution.
                let sd = (want / f64::from(draws)).sqrt();
                assert!((share - want).abs() < 5.0 * sd + 2.0 / 65536.0, "{theta}: {share} {want}");
            }
        }
    }

    #[test]
    fn streams_with_other_labels_differ_and_repeat() {
        let a: Vec<u64> = (0..4)
            .map({
                let mut s = Stream::new(1, "a");
                move |_| s.bits()
            })
            .collect();
        let b: Vec<u64> = (0..4)
            .map({
                let mut s = Stream::new(1, "b");
                move |_| s.bits()
            })
            .collect();
        let again: Vec<u64> = (0..4)
            .map({
                let mut s = Stream::new(1, "a");
                move |_| s.bits()
            })
            .collect();
        assert_ne!(a, b);
        assert_eq!(a, again);
    }
}
