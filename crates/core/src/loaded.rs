//! How much later memory answers the nearer it is to its bandwidth: published curves, or those of a
//! machine's file.
//!
//! ```text
//! times  2.5 |                          /     share: of the bandwidth that it reaches at most
//!            |                         /      times: latency over the unloaded one
//!        1.5 |                   __--''
//!          1 |______.....------''
//!            +----------------------------
//!             0          0.5          1      share
//! ```
//!
//! Below the first point the curve is a line from 1 at no load; behind the last one it is flat. More than
//! its bandwidth nobody gets: what waits longer than the curve says is the machine's queue, not the curve.
//!
//! Source: specs/load.md#latency.

use crate::costs::Origin;
use crate::curve::Wrong;

crate::named! {
    /// What serves, or carries, lines of memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Path {
        /// Memory of the medium of that name.
        Dram => "dram",
        /// The same.
        Cxl => "cxl",
        /// The same.
        Pmem => "pmem",
        /// What joins two sockets.
        Socket => "socket",
    }
}

/// A load and the latency under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Share of the bandwidth, in thousandths.
    pub share: u32,
    /// Latency over the unloaded one, in thousandths.
    pub times: u32,
}

/// How latencies grow with load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Of what.
    pub path: Path,
    /// Whether reads and writes have a way each. Otherwise they share one, and their shares add up.
    pub duplex: bool,
    /// Where it is from, one sentence.
    pub method: String,
    /// How much it is to be trusted.
    pub origin: Origin,
    /// Shares in rising order, two at least.
    pub points: Vec<Point>,
}

/// Most points of such a curve.
pub const MAX_POINTS: usize = 256;
/// Smallest and largest share of a point, in thousandths.
pub const SHARE_BOUNDS: (u64, u64) = (1, 1000);
/// Smallest and largest growth, in thousandths.
pub const TIMES_BOUNDS: (u64, u64) = (1000, 100_000);

impl Loaded {
    /// What was published of such memory, or of such a link.
    ///
    /// Source: specs/load.md#latency, which names the files and says what was left out.
    pub fn published(path: Path) -> Self {
        type Points = &'static [(u32, u32)];
        let (duplex, method, points): (_, _, Points) = match path {
            Path::Dram => (
                false,
                "six channels of DDR4-2666 beside Skylake, 78 % of it reads, at most 101 GB/s: \
                 Mess, skylake-ddr4/bwlat_78",
                &[
                    (20, 1020),
                    (102, 1070),
                    (196, 1117),
                    (311, 1158),
                    (406, 1191),
                    (510, 1238),
                    (610, 1258),
                    (647, 1307),
                    (692, 1384),
                    (741, 1492),
                    (788, 1588),
                    (833, 1715),
                    (897, 1860),
                    (932, 1981),
                    (955, 2224),
                    (977, 2430),
                    (988, 2560),
                ],
            ),
            Path::Cxl => (
                true,
                "a CXL expander, 90 % of it reads, at most 29.5 GB/s, from its maker's model: \
                 Mess, cxl/bwlat_90",
                &[
                    (145, 1008),
                    (289, 1019),
                    (434, 1032),
                    (542, 1048),
                    (620, 1057),
                    (723, 1074),
                    (803, 1096),
                    (868, 1123),
                    (904, 1147),
                    (943, 1185),
                    (986, 1300),
                ],
            ),
            Path::Pmem => (
                false,
                "six Optane modules, at most 12 GB/s of lines in order: OptaneStudy, graphs/06; \
                 neighbours that fall taken as one",
                &[
                    (90, 1008),
                    (149, 1025),
                    (229, 1056),
                    (390, 1111),
                    (648, 1143),
                    (915, 1325),
                    (955, 1583),
                    (1000, 1615),
                ],
            ),
            Path::Socket => (
                true,
                "DDR4 behind Skylake's link of sockets, 98 % of it reads, at most 35 GB/s: Mess, \
                 Skylake-numa-ddr4/bwlat_98",
                &[
                    (103, 1016),
                    (257, 1040),
                    (339, 1056),
                    (498, 1088),
                    (550, 1108),
                    (609, 1136),
                    (684, 1177),
                    (783, 1253),
                    (842, 1317),
                    (967, 1709),
                    (990, 2124),
                ],
            ),
        };
        Self {
            path,
            duplex,
            method: method.to_owned(),
            origin: Origin::Quoted,
            points: points.iter().map(|&(share, times)| Point { share, times }).collect(),
        }
    }

    /// By how much latencies grow at a share of the bandwidth, both in parts of 2^16.
    pub fn growth(&self, share: u64) -> u64 {
        const ONE: u64 = 1 << 16;
        let at = |p: &Point| (u64::from(p.share), u64::from(p.times.saturating_sub(1000)));
        let scaled = share.min(ONE) * 1000;
        let behind = self.points.partition_point(|p| at(p).0 * ONE <= scaled);
        let (x, y) = behind.checked_sub(1).map_or((0, 0), |i| at(&self.points[i]));
        let Some((to, next)) = self.points.get(behind).map(at) else { return y * ONE / 1000 };
        y * ONE / 1000 + (scaled - x * ONE) * (next - y) / ((to - x) * 1000)
    }

    /// Whether such a curve can be.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), Wrong> {
        let name = self.path.name();
        let n = self.points.len();
        if !(2..=MAX_POINTS).contains(&n) {
            let what = format!(
                "the loaded latency of \"{name}\" has {n} points; 2 to {MAX_POINTS} are allowed"
            );
            return Err(Wrong { point: None, key: "points", what });
        }
        let within = |value: u32, (low, high): (u64, u64)| (low..=high).contains(&value.into());
        for (i, p) in self.points.iter().enumerate() {
            let wrong = |key, what| Err(Wrong { point: Some(i), key, what });
            if !within(p.share, SHARE_BOUNDS) {
                return wrong("share", "a share of the bandwidth is 0.001 to 1".to_owned());
            }
            if !within(p.times, TIMES_BOUNDS) {
                return wrong("times", "the latency over the unloaded one is 1 to 100".to_owned());
            }
            let Some(before) = self.points[..i].last() else { continue };
            if before.share >= p.share {
                return wrong(
                    "share",
                    "shares rise from point to point; this one does not".to_owned(),
                );
            }
            if before.times > p.times {
                let what = format!(
                    "the loaded latency of \"{name}\" falls from {} to {}; under more load an access takes as long at least",
                    ratio(before.times),
                    ratio(p.times)
                );
                return wrong("times", what);
            }
        }
        Ok(())
    }
}

fn ratio(thousandths: u32) -> crate::costs::Shown {
    crate::costs::Shown(thousandths.into(), crate::costs::Unit::Ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_curves_can_be_and_grow_as_they_were_published() {
        for path in Path::ALL {
            let curve = Loaded::published(path);
            assert_eq!((curve.check(), curve.path), (Ok(()), path));
            let all: Vec<u64> = (0..=1 << 16).map(|u| curve.growth(u)).collect();
            assert_eq!(all[0], 0);
            assert!(all.windows(2).all(|w| w[0] <= w[1]), "{path:?} falls");
            for p in &curve.points {
                let at = curve.growth(u64::from(p.share) * 65_536 / 1000);
                let told = u64::from(p.times - 1000) * 65_536 / 1000;
                assert!(told.abs_diff(at) <= told / 100 + 2, "{path:?} {p:?}: {at} for {told}");
            }
        }
        // specs/load.md#latency: half of the bandwidth, and nine tenths.
        let at = |path, share: u64| {
            (1000 + Loaded::published(path).growth(share * 65_536 / 1000) * 1000 / 65_536, path)
        };
        for (share, dram, cxl, pmem, socket) in
            [(500, 1233, 1041, 1124, 1088), (900, 1870, 1144, 1314, 1498)]
        {
            let told = Path::ALL.map(|p| at(p, share).0);
            assert_eq!(told, [dram, cxl, pmem, socket], "{share}");
        }
    }

    #[test]
    fn a_curve_that_falls_or_leaves_its_bounds_is_refused() {
        let curve = |points: &[(u32, u32)]| Loaded {
            points: points.iter().map(|&(share, times)| Point { share, times }).collect(),
            ..Loaded::published(Path::Cxl)
        };
        for (points, point, key, what) in [
            (
                &[(500, 2000)][..],
                None,
                "points",
                "the loaded latency of \"cxl\" has 1 points; 2 to 256 are allowed",
            ),
            (&[(0, 2000), (1, 3000)], Some(0), "share", "a share of the bandwidth is 0.001 to 1"),
            (
                &[(10, 2000), (1001, 3000)],
                Some(1),
                "share",
                "a share of the bandwidth is 0.001 to 1",
            ),
            (
                &[(10, 999), (1000, 3000)],
                Some(0),
                "times",
                "the latency over the unloaded one is 1 to 100",
            ),
            (
                &[(10, 2000), (10, 3000)],
                Some(1),
                "share",
                "shares rise from point to point; this one does not",
            ),
            (
                &[(10, 2000), (20, 1500)],
                Some(1),
                "times",
                "the loaded latency of \"cxl\" falls from 2 to 1.5; under more load an access takes as long at least",
            ),
        ] {
            let wrong = curve(points).check().expect_err("it was impossible");
            assert_eq!((wrong.point, wrong.key, wrong.to_string().as_str()), (point, key, what));
        }
    }
}
