//! Random streams with labels, and distributions by integer tables.
//!
//! Each stream is seeded from the run's seed and a label, so that one more draw
//! in one place shifts no other stream. Tables are built with the `libm` crate,
//! which gives the same bits on every machine; drawing uses integers only.

use rand_core::{Rng as _, SeedableRng};
use rand_pcg::Mcg128Xsl64;
use std::sync::OnceLock;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Mcg128Xsl64);

impl Stream {
    /// The stream of that label in a run with that seed.
    pub fn new(seed: u64, label: &str) -> Self {
        let lo = xxhash_rust::xxh3::xxh3_64_with_seed(label.as_bytes(), seed);
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

impl Gauss {
    /// `sd` is the deviation in thousandths of `n`.
    pub fn new(n: u64, sd: u32) -> Self {
        Self { n: n as i64, sd: (n as i64 * i64::from(sd) * 256) / 1000 }
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        let table = normal();
        loop {
            let z = interpolate(table, from.bits());
            // z in 2^-24 times sd in 2^-8: 2^-32; sd is below 2^41.
            let x = self.n / 2 + ((i128::from(z) * i128::from(self.sd)) >> 32) as i64;
            if (0..self.n).contains(&x) {
                return x as u64;
            }
        }
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
    table: Vec<i64>,
}

impl Zipf {
    /// `theta` in thousandths.
    pub fn new(n: u64, theta: u32) -> Self {
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
        let table = (0..=CELLS)
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
            .collect();
        Self { n, step: coprime_step(n), table }
    }
    /// The next number.
    #[inline]
    pub fn draw(&self, from: &mut Stream) -> u64 {
        let rank = (interpolate(&self.table, from.bits()) >> 8) as u64;
        (u128::from(rank.min(self.n - 1)) * u128::from(self.step) % u128::from(self.n)) as u64
    }
}

/// A step near the golden section of `n` that reaches every number below it.
fn coprime_step(n: u64) -> u64 {
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
