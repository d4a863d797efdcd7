//! Predictions with an interval, from a machine's curves.
//!
//! An 80 % interval is put together of what was measured, by squares of logarithms:
//!
//! | part | from |
//! |---|---|
//! | rounds | the curve's tenth and ninetieth percentile: layout of pages, neighbours within half a minute |
//! | between footprints | by how much the nearer points would be missed, were they predicted from their neighbours: half of that in the middle between two points, nothing at one |
//! | between runs | by how much footprints *of the curve*, run now, differ from it |
//!
//! Worked example: 10 ns, 9.8 to 10.4 over the rounds, a neighbour missed by 8 % and the size in the middle,
//! footprints run now 3 % off: upwards √(3.9² + 4² + (1.28 · 3)²) = 6.8 %, so up to 10.7 ns.
//!
//! None of the sizes that the check registers is looked at for any of these.

use crate::spread::{Predicted, Z80};
use homenode_core::curve::{Curve, Point};

/// A curve between its points: straight in the logarithms of size and time, level beyond its ends.
fn between(points: &[Point], bytes: u64, of: fn(&Point) -> u64) -> f64 {
    let at = points.partition_point(|p| p.size.0 < bytes);
    let log = |p: &Point| (of(p) as f64).ln();
    match (at.checked_sub(1).and_then(|i| points.get(i)), points.get(at)) {
        (Some(a), Some(b)) => log(a) + (log(b) - log(a)) * share(a, b, bytes),
        (Some(end), None) | (None, Some(end)) => log(end),
        (None, None) => 0.0,
    }
}

/// How far a size lies on the way from one point to another, in logarithms.
fn share(a: &Point, b: &Point, bytes: u64) -> f64 {
    let ln = |n: u64| (n as f64).ln();
    (ln(bytes) - ln(a.size.0)) / (ln(b.size.0) - ln(a.size.0))
}

/// By how much a point would be missed, were it predicted from its neighbours; of the first and the last
/// nobody knows.
fn missed(points: &[Point], i: usize) -> f64 {
    let Some([a, here, b]) = i.checked_sub(1).and_then(|before| points.get(before..=i + 1)) else {
        return 0.0;
    };
    let [a, b] = [a, b].map(|p| *p);
    ((here.time as f64).ln() - between(&[a, b], here.size.0, |p| p.time)).abs()
}

/// What an access over so many bytes takes by the curve, in picoseconds.
///
/// * `near` – what a core needs where its first cache answers, with its spread: never less than that.
/// * `between_runs` – by how much runs differ from the curve, as a logarithm: one standard deviation.
pub(super) fn by_curve(curve: &Curve, bytes: u64, near: Predicted, between_runs: f64) -> Predicted {
    let points = &curve.points[..];
    let of = |of: fn(&Point) -> u64, near: f64| between(points, bytes, of).exp().max(near);
    let (low, time, high) =
        (of(|p| p.low, near.low), of(|p| p.time, near.time), of(|p| p.high, near.high));
    let at = points.partition_point(|p| p.size.0 < bytes);
    let inside = at.checked_sub(1).and_then(|a| Some((a, points.get(a)?, points.get(at)?)));
    let off = inside.map_or(0.0, |(a, from, to)| {
        let u = share(from, to, bytes);
        // Half of it in the middle, nothing at the ends.
        missed(points, a).max(missed(points, at)) / 2.0 * 4.0 * u * (1.0 - u)
    });
    let runs = Z80 * between_runs;
    Predicted::of(time, &[((time / low).ln(), (high / time).ln()), (off, off), (runs, runs)])
}

/// Footprints of a curve that are run again before anything is predicted: so many, spread over its points.
pub(super) fn again(curve: &Curve, least: u64, most: u64, number: usize) -> Vec<u64> {
    let sizes = curve.points.iter().map(|p| p.size.0);
    let all: Vec<u64> = sizes.filter(|s| (least..=most).contains(s)).collect();
    let last = all.len().saturating_sub(1);
    let number = number.min(all.len());
    (0..number).map(|i| all[i * last / (number - 1).max(1)]).collect()
}

/// The standard deviation of logarithms about 0: what was measured now over what the curve says.
pub(super) fn between_runs(quotients: &[f64]) -> f64 {
    let squares = quotients.iter().map(|q| q.ln() * q.ln()).sum::<f64>();
    (squares / quotients.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::curve::Walk;
    use homenode_core::units::Bytes;

    /// 4 ns up to 1 MiB, then 16 ns, 100 ns; five per cent of spread.
    fn curve() -> Curve {
        let point = |(mib, ns): (u64, u64)| Point {
            size: Bytes(mib << 20),
            low: ns * 950,
            time: ns * 1000,
            high: ns * 1050,
        };
        let points = [(1, 4), (4, 16), (16, 16), (64, 100)].map(point).to_vec();
        Curve { walk: Walk::Chase, method: "m".into(), points }
    }
    fn at(kib: u64, near: f64, runs: f64) -> Predicted {
        let near = Predicted { low: near * 0.99, time: near, high: near * 1.02 };
        by_curve(&curve(), kib << 10, near, runs)
    }
    fn close(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
    }

    #[test]
    fn a_curve_is_straight_between_its_points_in_logarithms() {
        close(at(1 << 10, 0.0, 0.0).time, 4_000.0);
        close(at(2 << 10, 0.0, 0.0).time, 8_000.0);
        close(at(8 << 10, 0.0, 0.0).time, 16_000.0);
        close(at(32 << 10, 0.0, 0.0).time, 40_000.0);
        // Level beyond its ends.
        close(at(16, 0.0, 0.0).time, 4_000.0);
        close(at(1 << 20, 0.0, 0.0).time, 100_000.0);
        // What the first cache takes is the least.
        close(at(16, 5_000.0, 0.0).time, 5_000.0);
    }

    #[test]
    fn an_interval_has_the_spread_the_bend_and_other_runs_in_it() {
        let p = at(1 << 10, 0.0, 0.0);
        close(p.low, 3_800.0);
        close(p.high, 4_200.0);
        // Footprints run now were 10 % off.
        let wider = at(1 << 10, 0.0, 0.1);
        assert!(wider.low < 3_520.0 && wider.high > 4_540.0, "{wider:?}");
        // Between two points of a bend more than at one.
        let middle = at(8 << 10, 0.0, 0.0);
        assert!(middle.high / middle.time > 1.5 && at(4 << 10, 0.0, 0.0).high < 16_900.0);
        // Where the first cache's time is the least, its spread is what counts.
        let least = at(16, 5_000.0, 0.0);
        close(least.low, 4_950.0);
        close(least.high, 5_100.0);
    }

    #[test]
    fn footprints_that_are_run_again_are_the_curves() {
        let mib = |sizes: Vec<u64>| sizes.iter().map(|s| s >> 20).collect::<Vec<_>>();
        assert_eq!(mib(again(&curve(), 0, u64::MAX, 2)), [1, 64]);
        assert_eq!(mib(again(&curve(), 2 << 20, 64 << 20, 9)), [4, 16, 64]);
        assert_eq!(mib(again(&curve(), 0, 1 << 20, 3)), [1]);
        assert!(again(&curve(), 0, 1, 3).is_empty());
        close(between_runs(&[1.1, 1.1, 1.0 / 1.1]), 1.1f64.ln());
        assert_eq!(between_runs(&[]), 0.0);
    }
}
