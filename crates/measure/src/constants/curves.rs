//! Curves: what an access takes over more and more bytes, as `core::curve` has them.
//!
//! A sample is the mean over a slot of CPU time, as a program sees it that runs so long. Each round
//! takes each footprint once, at another place of the buffer, so that which physical pages it got is in
//! the spread, and seconds apart, so that what others do with a shared last level is.
//!
//! Between rounds nothing orders the medians of neighbours. Where they fall, as noise makes them, the
//! neighbours that fall are taken as one: the rising curve that is nearest to them in squares.

use super::stats::Series;
use homenode_core::curve::{Curve, Point, TIME_BOUNDS, Walk};
use homenode_core::units::Bytes;
use homenode_live::sysfs::CacheShape;
use std::collections::{BTreeMap, BTreeSet};

const MIB: usize = 1 << 20;
/// What streams and updates go over at least: less than a stream looks at the clock for has none.
const LEAST: usize = MIB / 4;

/// Samples by footprint in bytes, in picoseconds.
pub(super) type Sizes = BTreeMap<usize, Series>;

/// Footprints of streams and updates: two an octave up to twice the last level, three and four times that,
/// and the whole buffers.
pub(super) fn footprints(caches: &[CacheShape], largest: usize, coarse: bool) -> BTreeSet<usize> {
    let last = caches.iter().map(|c| c.size.0 as usize).max().unwrap_or(16 * MIB);
    let mut all = BTreeSet::new();
    let mut octave = LEAST;
    while octave <= 2 * last {
        all.insert(octave);
        if !coarse {
            all.insert(octave / 2 * 3);
        }
        octave *= 2;
    }
    all.extend(beyond(caches));
    all.insert(largest / LEAST * LEAST);
    all.retain(|&s| (LEAST..=largest).contains(&s));
    all
}

/// Footprints of all walks beyond twice the last level.
pub(super) fn beyond(caches: &[CacheShape]) -> [usize; 2] {
    let last = caches.iter().map(|c| c.size.0 as usize).max().unwrap_or(16 * MIB);
    [3, 4].map(|n| (n * last).next_multiple_of(LEAST))
}

/// A curve of samples; `None` where fewer than two footprints were taken twice.
pub(super) fn curve(walk: Walk, sizes: &Sizes) -> Option<Curve> {
    let taken: Vec<(usize, &Series)> =
        sizes.iter().map(|(&s, t)| (s, t)).filter(|(_, t)| t.len() > 1).collect();
    let rounds = taken.iter().map(|(_, t)| t.len()).max()?;
    let column = |q: f64| -> Option<Vec<f64>> {
        Some(rising(&taken.iter().map(|(_, t)| t.quantile(q)).collect::<Option<Vec<f64>>>()?))
    };
    let [low, time, high] = [column(0.1)?, column(0.5)?, column(0.9)?];
    let (least, most) = TIME_BOUNDS;
    let whole = |ps: f64| (ps.round() as u64).clamp(least, most);
    let points: Vec<Point> = (0..taken.len())
        .map(|i| Point {
            size: Bytes(taken[i].0 as u64),
            low: whole(low[i]),
            time: whole(time[i]),
            high: whole(high[i]),
        })
        .collect();
    let what = match walk {
        Walk::Chase => "dependent loads of lines in a random circle",
        Walk::Stream => "one core reads in order, by line of 64 bytes",
        Walk::Update => "independent updates of random words",
    };
    let method = format!(
        "{what}, in huge pages; CPU time, {rounds} rounds, each at another place; neighbours that would fall are taken as one"
    );
    (points.len() > 1).then_some(Curve { walk, method, points })
}

/// The rising sequence that is nearest to `values` in squares: neighbours that fall are pooled.
fn rising(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &v in values {
        pools.push((v, 1));
        while let [.., (a, n), (b, m)] = pools[..] {
            if a <= b {
                break;
            }
            pools.truncate(pools.len() - 2);
            pools.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    pools.iter().flat_map(|&(v, n)| std::iter::repeat_n(v, n)).collect()
}

/// The samples whose footprint is nearest to `size`, by their quotient.
pub(super) fn nearest(sizes: &Sizes, size: usize) -> Option<(usize, &Series)> {
    let off = |s: usize| (s as f64 / size.max(1) as f64).ln().abs();
    let all = sizes.iter().filter(|(_, t)| !t.is_empty());
    all.map(|(&s, t)| (s, t)).min_by(|a, b| off(a.0).total_cmp(&off(b.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_fall_are_one() {
        assert_eq!(rising(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(rising(&[1.0, 4.0, 2.0, 5.0]), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(rising(&[6.0, 3.0, 0.0, 5.0]), [3.0, 3.0, 3.0, 5.0]);
        assert_eq!(rising(&[]), [0.0; 0]);
    }

    #[test]
    fn a_curve_of_noise_is_one_that_may_be() {
        let mut random = homenode_core::splitmix::SplitMix::new(1);
        let mut sizes = Sizes::new();
        for i in 0..40usize {
            let mut noise = || 1000.0 + 30.0 * i as f64 + random.below(900) as f64;
            sizes.insert((4096 << (i / 3)) | (i % 3 * 64), (0..9).map(|_| noise()).collect());
        }
        let c = curve(Walk::Update, &sizes).unwrap();
        assert_eq!((c.check(), c.points.len()), (Ok(()), 40));
        assert!(c.points.iter().any(|p| p.low < p.time && p.time < p.high));
        // What was taken once has no spread.
        sizes.insert(1 << 30, [5.0].into_iter().collect());
        assert_eq!(curve(Walk::Update, &sizes).unwrap().points.len(), 40);
        assert_eq!(curve(Walk::Update, &Sizes::new()), None);
    }

    #[test]
    fn footprints_are_whole_and_reach_the_buffers_end() {
        let shape = |level, kib: u64| CacheShape {
            level,
            size: Bytes(kib << 10),
            ways: 16,
            line: 64,
            shared_by: 1,
        };
        let all = footprints(&[shape(1, 32), shape(2, 1024), shape(3, 32 << 10)], 768 * MIB, false);
        assert!(all.iter().all(|s| s % LEAST == 0 || s % (LEAST / 2) == 0));
        assert_eq!((all.first(), all.last()), (Some(&LEAST), Some(&(768 * MIB))));
        assert!(all.contains(&(96 * MIB)) && all.contains(&(128 * MIB)) && all.len() > 15);
        assert!(footprints(&[], 4 * MIB, true).iter().all(|&s| s <= 4 * MIB));
    }
}
