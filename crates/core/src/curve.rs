//! What an access takes over so many bytes: curves that `measure` takes, as they stand in a machine's file.
//!
//! Three caches with a size and a latency each say that a walk over a bit more than one of them is a walk
//! in the next. Real ones replace lines in other orders than strictly by use, share their last level with
//! others, and translate addresses; a curve has all of that in it, at the footprints where it was taken:
//!
//! ```text
//! ns  150 |                                 _____----   memory
//!         |                             .-'
//!      16 |            ______________.-'                last level, what others leave of it
//!       4 |  ________-'                                 second cache
//!         +---------------------------------------- footprint
//! ```
//!
//! Each point has the median over the rounds of measuring, and the tenth and ninetieth percentile beside
//! it. A curve never falls: more bytes are never nearer. `measure` sees to that by taking neighbours that
//! would fall as one, and so a file whose curve falls was spoilt.

use crate::units::Bytes;
use std::fmt;

crate::named! {
    /// How the footprint is gone over.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Walk {
        /// Loads of lines in a random circle, each of which waits for the one before: every line comes
        /// again when all others were there.
        Chase => "chase",
        /// Lines in order, over and over.
        Stream => "stream",
        /// Loads and stores of random words, none of which waits for another.
        Update => "update",
    }
}

/// A footprint, and what an access takes there, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Bytes that are gone over.
    pub size: Bytes,
    /// The tenth percentile over rounds.
    pub low: u64,
    /// The median.
    pub time: u64,
    /// The ninetieth percentile.
    pub high: u64,
}

/// What an access takes, by footprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// How it is gone over.
    pub walk: Walk,
    /// How it was measured, one sentence.
    pub method: String,
    /// Footprints in rising order, two at least.
    pub points: Vec<Point>,
}

/// Most points of a curve.
pub const MAX_POINTS: usize = 256;
/// Smallest and largest time of a point, in picoseconds: up to a millisecond.
pub const TIME_BOUNDS: (u64, u64) = (1, 1_000_000_000);

/// What is wrong with a curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which point; `None`: the curve as a whole.
    pub point: Option<usize>,
    /// The key of the point in the machine's file.
    pub key: &'static str,
    /// What is wrong, and what is right.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Curve {
    /// Whether such a curve can be.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), Wrong> {
        let name = self.walk.name();
        let n = self.points.len();
        if !(2..=MAX_POINTS).contains(&n) {
            let what =
                format!("the curve \"{name}\" has {n} points; 2 to {MAX_POINTS} are allowed");
            return Err(Wrong { point: None, key: "points", what });
        }
        for (i, p) in self.points.iter().enumerate() {
            let wrong = |key, what| Err(Wrong { point: Some(i), key, what });
            let (least, most) = TIME_BOUNDS;
            if p.low < least {
                return wrong("low", "a time of 0; an access takes 0.001 ns at least".to_owned());
            }
            if p.high > most {
                return wrong("high", "beyond 1000000 ns, a millisecond".to_owned());
            }
            if p.low > p.time {
                let what = format!(
                    "low is {}, more than time, {}; it is the tenth percentile of what time is the median of",
                    ns(p.low),
                    ns(p.time)
                );
                return wrong("low", what);
            }
            if p.high < p.time {
                let what = format!(
                    "high is {}, less than time, {}; it is the ninetieth percentile of what time is the median of",
                    ns(p.high),
                    ns(p.time)
                );
                return wrong("high", what);
            }
            let Some(before) = self.points[..i].last() else { continue };
            if before.size.0 >= p.size.0 {
                return wrong(
                    "size",
                    "sizes rise from point to point; this one does not".to_owned(),
                );
            }
            for (key, was, is) in [
                ("low", before.low, p.low),
                ("time", before.time, p.time),
                ("high", before.high, p.high),
            ] {
                if is < was {
                    let what = format!(
                        "the curve \"{name}\" falls from {} to {}; over more bytes an access takes as long at least",
                        ns(was),
                        ns(is)
                    );
                    return wrong(key, what);
                }
            }
        }
        Ok(())
    }
}

fn ns(ps: u64) -> String {
    format!("{} ns", crate::costs::Shown(ps, crate::costs::Unit::Nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[[u64; 4]]) -> Curve {
        let point =
            |&[size, low, time, high]: &[u64; 4]| Point { size: Bytes(size), low, time, high };
        let points = points.iter().map(point).collect();
        Curve { walk: Walk::Chase, method: "walks".into(), points }
    }

    #[test]
    fn a_curve_rises_and_has_its_spread() {
        assert_eq!(curve(&[[64, 1, 2, 3], [128, 1, 2, 3], [4096, 9, 9, 9]]).check(), Ok(()));
        for (points, point, key, what) in [
            (
                &[[64, 1, 2, 3]][..],
                None,
                "points",
                "the curve \"chase\" has 1 points; 2 to 256 are allowed",
            ),
            (
                &[[64, 0, 2, 3], [128, 1, 2, 3]],
                Some(0),
                "low",
                "a time of 0; an access takes 0.001 ns at least",
            ),
            (
                &[[64, 1, 2, 3], [64, 1, 2, 3]],
                Some(1),
                "size",
                "sizes rise from point to point; this one does not",
            ),
            (
                &[[64, 5, 4, 6], [128, 5, 5, 6]],
                Some(0),
                "low",
                "low is 0.005 ns, more than time, 0.004 ns; it is the tenth percentile of what time is the median of",
            ),
            (
                &[[64, 1, 4, 3], [128, 1, 4, 6]],
                Some(0),
                "high",
                "high is 0.003 ns, less than time, 0.004 ns; it is the ninetieth percentile of what time is the median of",
            ),
            (
                &[[64, 1, 2, 3], [128, 1, 2, u64::MAX]],
                Some(1),
                "high",
                "beyond 1000000 ns, a millisecond",
            ),
            (
                &[[64, 1000, 2000, 3000], [128, 1000, 1500, 3000]],
                Some(1),
                "time",
                "the curve \"chase\" falls from 2 ns to 1.5 ns; over more bytes an access takes as long at least",
            ),
        ] {
            let wrong = curve(points).check().expect_err("it was impossible");
            assert_eq!((wrong.point, wrong.key, wrong.to_string().as_str()), (point, key, what));
        }
    }
}
