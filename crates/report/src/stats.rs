//! Means, spread and significance of a few samples.
//!
//! Two tests stand side by side in every table. mmtests' own rule is what its
//! readers know, and takes no notice of the number of samples; Welch's test does.
//!
//! Example: 27.5, 21.0, 19.0, 23.6 against 27.1, 22.0, 20.8, 23.4: the means differ
//! by 0.55, the deviations are 3.7 and 2.7; mmtests' rule asks for a difference
//! above 1.96·(3.7 + 2.7) = 12.5, Welch's test gives p = 0.82: both say chance.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::checked_beta_reg;

/// Arithmetic mean; NaN of nothing.
pub fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Standard deviation of a sample (n − 1); 0 of fewer than two.
pub fn stddev(x: &[f64]) -> f64 {
    if x.len() < 2 {
        return 0.0;
    }
    let m = mean(x);
    (x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (x.len() - 1) as f64).sqrt()
}

/// Standard deviation of a whole population (n) in per cent of its mean; 0 of nothing
/// or where the mean is 0.
///
/// Example: 100 and 104 are 2 away from their mean of 102 each: 1.96 %.
pub fn population_percent(x: &[f64]) -> f64 {
    let m = mean(x);
    if x.is_empty() || m == 0.0 {
        return 0.0;
    }
    (x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / x.len() as f64).sqrt() / m * 100.0
}

/// mmtests' rule of today: a difference of means beyond 1.96·(sd1 + sd2),
/// whatever the number of samples. One sample has no deviation, so fewer than two
/// on either side are never significant here.
pub fn mmtests_significant(a: &[f64], b: &[f64]) -> bool {
    a.len() >= 2 && b.len() >= 2 && (mean(a) - mean(b)).abs() > 1.96 * (stddev(a) + stddev(b))
}

/// Two-sided p-value of Welch's test for equal means.
///
/// `None` for fewer than two samples on either side. Where neither side varies:
/// 1 if the means are equal and 0 if not.
pub fn welch_p(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let part = |x: &[f64]| stddev(x) * stddev(x) / x.len() as f64;
    let (va, vb) = (part(a), part(b));
    let difference = mean(a) - mean(b);
    if va + vb == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let t = difference / (va + vb).sqrt();
    let freedom =
        (va + vb) * (va + vb) / (va * va / (a.len() - 1) as f64 + vb * vb / (b.len() - 1) as f64);
    // Both tails; the distribution's own sum would lose what is smaller than 1e-16.
    let x = freedom / (freedom + t * t);
    Some(checked_beta_reg(freedom / 2.0, 0.5, x).unwrap_or(f64::NAN))
}

/// Mean of the differences `b - a` of pairs, and half the width of its 95 % interval (Student's
/// distribution); the half is infinite of fewer than two pairs.
///
/// Example: differences of 1, 2 and 3 have a mean of 2, a deviation of 1, and with two degrees of
/// freedom 4.303 / sqrt(3) = 2.48 on either side.
pub fn paired_interval(a: &[f64], b: &[f64]) -> (f64, f64) {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    let n = differences.len();
    if n < 2 {
        return (mean(&differences), f64::INFINITY);
    }
    (mean(&differences), student(n - 1) * stddev(&differences) / (n as f64).sqrt())
}

/// What 97.5 % of Student's distribution lie below, 1 degree of freedom at least.
fn student(freedom: usize) -> f64 {
    let of = StudentsT::new(0.0, 1.0, freedom.max(1) as f64);
    of.map_or(f64::INFINITY, |d| d.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn means_and_deviation() {
        near(mean(&[1.0, 2.0, 6.0]), 3.0);
        near(stddev(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), (32.0f64 / 7.0).sqrt());
        near(stddev(&[3.0]), 0.0);
        assert!(mean(&[]).is_nan());
    }

    #[test]
    fn welch_has_known_values() {
        // One degree of freedom is Cauchy's distribution: p = 1 - 2·atan(t)/pi. With
        // four samples of equal deviation and size there are 2n - 2 = 2 degrees, where
        // p = 1 - t/sqrt(2 + t²).
        let (a, b) = ([0.0, 2.0], [3.0, 5.0]);
        let t = 3.0 / 2f64.sqrt();
        near(welch_p(&a, &b).expect("two samples each"), 1.0 - t / (2.0 + t * t).sqrt());
        near(welch_p(&a, &a).expect("two samples each"), 1.0);
        assert_eq!(welch_p(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
        assert_eq!(welch_p(&[1.0, 1.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(welch_p(&[1.0], &[2.0, 3.0]), None);
        assert!(welch_p(&[1.0, f64::NAN], &[2.0, 3.0]).is_some_and(f64::is_nan));
        // The module's example.
        let (a, b) = ([27.5, 21.0, 19.0, 23.6], [27.1, 22.0, 20.8, 23.4]);
        assert_eq!(format!("{:.2}", welch_p(&a, &b).expect("four each")), "0.82");
    }

    #[test]
    fn paired_intervals_have_known_values() {
        let (middle, half) = paired_interval(&[0.0, 0.0, 0.0], &[1.0, 2.0, 3.0]);
        assert_eq!(format!("{middle:.3} {half:.3}"), "2.000 2.484");
        // With 30 pairs, 2.045 deviations of the mean.
        let b: Vec<f64> = (0..30).map(|i| f64::from(i % 2)).collect();
        let (middle, half) = paired_interval(&[0.0; 30], &b);
        near(middle, 0.5);
        assert_eq!(format!("{:.3}", half / (stddev(&b) / 30f64.sqrt())), "2.045");
        assert_eq!(paired_interval(&[1.0], &[2.0]), (1.0, f64::INFINITY));
    }

    #[test]
    fn mmtests_rule_ignores_the_number_of_samples() {
        let a: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        let b: Vec<f64> = a.iter().map(|v| v + 1.0).collect();
        assert!(!mmtests_significant(&a, &b));
        assert!(welch_p(&a, &b).expect("many samples") < 1e-12);
        assert!(mmtests_significant(&[1.0, 1.01], &[2.0, 2.01]));
        assert!(!mmtests_significant(&[1.0], &[2.0]));
    }
}
