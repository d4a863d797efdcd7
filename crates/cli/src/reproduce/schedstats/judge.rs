//! What follows from the gains: the bands of the plan.

use crate::reproduce::experiment::{Moved, conclusion, with_each};
use homenode_report::{Conclusion, stats};

/// Bounds of pipetest's gain, in per cent: the seed's mean by 2.5 and times 2.5.
pub(super) const PIPETEST: (f64, f64) = (0.764, 4.775);
/// What counts as a gain.
pub(super) const SOME: f64 = 0.005;
/// Most that tbench gains or loses with many clients, and most of what the seed found nothing in.
pub(super) const MANY: f64 = 3.0;
pub(super) const NOTHING: f64 = 2.0;
/// Up to so many clients tbench has to gain.
pub(super) const FEW: u32 = 4;
/// Up to this size netperf-tcp has to gain; up to this one messages are small; from this one on they are large.
pub(super) const GAINS: u32 = 4096;
pub(super) const SMALL: u32 = 256;
pub(super) const LARGE: u32 = 1024;

/// A gain in per cent, by what it is of: bytes, clients, groups.
pub(super) type Gain = (u32, f64);

/// Everything that is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) pipetest: f64,
    pub(super) tcp: Vec<Gain>,
    pub(super) tbench: Vec<Gain>,
    /// What there is of it on eight CPUs, and the seed's gain.
    pub(super) desktop: Vec<(Gain, f64)>,
    /// What the seed found nothing in, by name, and whether the gain is significant.
    pub(super) nothing: Vec<(String, f64, bool)>,
    pub(super) moved: Vec<Moved<Signs>>,
}

/// Gains whose signs have to survive moved constants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Signs {
    pub(super) pipetest: f64,
    /// Of 64 bytes.
    pub(super) tcp: f64,
    /// Of one client.
    pub(super) tbench: f64,
}

/// What is wrong at a point.
pub(super) fn wrong(s: &Signs) -> Vec<String> {
    let all =
        [("pipetest", s.pipetest), ("netperf-tcp 64", s.tcp), ("tbench with 1 client", s.tbench)];
    let loses = |&(_, gain): &(&str, f64)| gain.is_nan() || gain < SOME;
    all.into_iter().filter(loses).map(|(name, gain)| format!("{name} {gain:+.2} %")).collect()
}

/// Those outside of bounds, which are none where there is nothing.
fn outside(all: &[Gain], what: &str, low: f64, high: f64) -> Vec<String> {
    if all.is_empty() {
        return vec!["nothing was run".to_owned()];
    }
    let is = |g: f64| g.is_nan() || g < low || g > high;
    all.iter().filter(|(_, g)| is(*g)).map(|(n, g)| format!("{g:+.2} % at {n} {what}")).collect()
}

fn those(all: &[Gain], which: impl Fn(u32) -> bool) -> Vec<Gain> {
    all.iter().copied().filter(|(n, _)| which(*n)).collect()
}

fn mean(all: &[Gain]) -> f64 {
    stats::mean(&all.iter().map(|(_, g)| *g).collect::<Vec<_>>())
}

/// The conclusions.
pub(super) fn judge(found: &Findings) -> Vec<Conclusion> {
    let mut tcp = outside(&those(&found.tcp, |n| n <= GAINS), "bytes", SOME, f64::INFINITY);
    let small = mean(&those(&found.tcp, |n| n <= SMALL));
    let large = mean(&those(&found.tcp, |n| (LARGE..=GAINS).contains(&n)));
    if small.is_nan() || large.is_nan() || small <= large {
        tcp.push(format!("{small:+.2} % of small ones, {large:+.2} % of large ones"));
    }
    let (low, high) = PIPETEST;
    let pipetest = outside(&[(1, found.pipetest)], "pair", low, high);
    let few = outside(&those(&found.tbench, |n| n <= FEW), "clients", SOME, f64::INFINITY);
    let many = outside(&those(&found.tbench, |n| n > FEW), "clients", -MANY, MANY);
    let mut nothing = Vec::new();
    for (name, gain, significant) in &found.nothing {
        if gain.is_nan() || *significant && gain.abs() > NOTHING {
            nothing.push(format!("{gain:+.2} % of {name}"));
        }
    }
    let mut other: Vec<String> = found
        .desktop
        .iter()
        .filter(|((_, ours), seed)| ours.is_nan() || (*ours > 0.0) != (*seed > 0.0))
        .map(|((n, ours), _)| format!("{ours:+.2} % at {n} clients"))
        .collect();
    if 5 * other.len() <= found.desktop.len() {
        other.clear();
    }
    if found.desktop.is_empty() {
        other.push("nothing was run".to_owned());
    }
    let (constants, elsewhere) = with_each(&found.moved);
    vec![
        conclusion("1. pipetest gains, within a factor of 2.5 of the seed's 1.91 %", pipetest),
        conclusion("2. netperf-tcp gains at all sizes up to 4096, less the larger they are", tcp),
        conclusion("3. tbench gains with one, two and four clients", few),
        conclusion("4. With more of them it is within ±3 %", many),
        conclusion(
            "5. hackbench, UDP_STREAM and both RR are within ±2 %, or not significant",
            nothing,
        ),
        conclusion("6. On eight CPUs tbench's sign is the seed's at 80 % of the counts", other),
        conclusion(
            &format!(
                "7. The signs of pipetest, netperf-tcp 64 and tbench with one client are the same with each \
                 of {} constants moved by ±20 %",
                constants
            ),
            elsewhere,
        ),
    ]
}
