//! The gain by scale: what a machine of full size would come to.
//!
//! Memory and time shrink alike, but a tick, kswapd's nap and its batches don't, so a run at 1:64 says
//! less than one at 1:16, and none says what 1:1 would. So the gain is taken at each scale and read as a
//! curve. A run takes longer the larger it is: each is written down as it ends, and what a file has
//! already is not run again.

use super::run::{Bench, Kernel, Point, Scored};
use super::{base, times};
use crate::reproduce::Asked;
use crate::reproduce::experiment::Bench as _;
use anyhow::{Context, Result, bail};
use homenode_report::stats;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Scales by falling factor.
const FACTORS: [u64; 9] = [1024, 512, 256, 128, 64, 32, 16, 8, 4];
/// The last one that is registered; what is beyond it is run where `--scale` says so.
const LAST: u64 = 16;
/// The map at which the gain is largest at 1:64.
pub(super) const PERCENT: u64 = 300;
/// Balancing off, and the seed's kernel.
const KERNELS: [Kernel; 2] = [Kernel::Off, Kernel::B];

/// Seeds at a scale: chance matters less the more pages there are, and runs take longer.
const fn seeds(factor: u64) -> u64 {
    match factor {
        256.. => 5,
        64.. => 3,
        _ => 1,
    }
}

/// The finished runs that docs/tiering-by-scale.md shows.
const KEPT: &str = include_str!("../../../../../docs/tiering-by-scale.jsonl");

/// A gain is that of the curve at its scale within so many points; beyond it the curve is of other rules.
const SAME: f64 = 15.0;
/// Steps of the curve are one level within so many points.
const LEVEL: f64 = 5.0;

/// The mean gain by scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve(pub(super) Vec<(u64, f64)>);

impl Curve {
    /// The kept one.
    ///
    /// # Errors
    /// The file has something else.
    pub(super) fn kept(bench: &Bench) -> Result<Self> {
        let runs = parse(KEPT).context("docs/tiering-by-scale.jsonl")?;
        let mean = |s: &Step| (s.scale, stats::mean(&s.gains));
        Ok(Self(steps(bench, &runs).iter().map(mean).collect()))
    }
    fn at(&self, scale: u64) -> Option<f64> {
        self.0.iter().find(|s| s.0 == scale).map(|s| s.1)
    }
    /// What the gain comes to at full size, as the plan takes it from the last three scales.
    pub(super) fn limit(&self) -> Option<f64> {
        let (g64, g32, g16) = (self.at(64)?, self.at(32)?, self.at(16)?);
        let (before, last) = (g32 - g64, g16 - g32);
        if before.abs() <= LEVEL && last.abs() <= LEVEL {
            return Some((g64 + g32 + g16) / 3.0);
        }
        let r = last / before;
        (r > 0.0 && r < 1.0).then(|| g16 + last * r / (1.0 - r))
    }
    /// Whether a gain at the map of the curve is the curve's; true where it has no such scale.
    pub(super) fn agrees(&self, scale: u64, gain: f64) -> bool {
        self.at(scale).is_none_or(|here| (here - gain).abs() <= SAME)
    }
    /// The scales of the limit, for a sentence.
    pub(super) fn told(&self) -> String {
        let those = [64, 32, 16].into_iter().filter_map(|scale| Some((scale, self.at(scale)?)));
        those
            .map(|(scale, gain)| format!("{gain:+.1} % at 1:{scale}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) scale: u64,
    /// The column.
    pub(super) kernel: String,
    pub(super) seed: u64,
    /// Accesses a second, of the whole main part and of its last third.
    pub(super) score: f64,
    pub(super) late: f64,
    /// Share of accesses in DRAM, in per cent.
    pub(super) fast: f64,
    /// Share of the run until the score is 95 % of its last third's, in per cent.
    pub(super) ramp: f64,
    /// What was promoted, as a multiple of the fast node.
    pub(super) promoted: f64,
    /// What the run took here.
    pub(super) seconds: f64,
}

impl Run {
    fn to_json(&self) -> Value {
        json!({
            "scale": self.scale, "kernel": self.kernel, "seed": self.seed, "score": self.score,
            "late": self.late, "fast": self.fast, "ramp": self.ramp, "promoted": self.promoted,
            "seconds": self.seconds,
        })
    }
    fn of(json: &Value) -> Option<Self> {
        let number = |key: &str| json[key].as_f64();
        Some(Self {
            scale: json["scale"].as_u64()?,
            kernel: json["kernel"].as_str()?.to_owned(),
            seed: json["seed"].as_u64()?,
            score: number("score")?,
            late: number("late")?,
            fast: number("fast")?,
            ramp: number("ramp")?,
            promoted: number("promoted")?,
            seconds: number("seconds")?,
        })
    }
}

/// Finished runs, one on a line.
pub(super) fn parse(text: &str) -> Result<Vec<Run>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let run = |(n, line): (usize, &str)| {
        let json = serde_json::from_str(line).ok();
        let found = json.as_ref().and_then(Run::of);
        found.with_context(|| format!("line {}: this is no finished run", n + 1))
    };
    lines.map(run).collect()
}

/// What a file has; nothing where there is none.
fn finished(path: &Path) -> Result<Vec<Run>> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).with_context(|| path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| format!("can't read {}", path.display())),
    }
}

/// One scale: means over its seeds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) scale: u64,
    /// Gains by seed, in per cent.
    pub(super) gains: Vec<f64>,
    /// The gain of the last third of the run.
    pub(super) late: f64,
    /// Under balancing off and under b.
    pub(super) fast: [f64; 2],
    pub(super) ramp: f64,
    pub(super) promoted: f64,
    pub(super) seconds: f64,
}

/// The curve, by falling factor; a seed counts once both of its runs are there.
pub(super) fn steps(bench: &Bench, runs: &[Run]) -> Vec<Step> {
    let of = |scale: u64, kernel: Kernel, seed: u64| {
        let column = bench.column(kernel);
        runs.iter().find(|r| r.scale == scale && r.kernel == column && r.seed == seed)
    };
    let step = |&scale: &u64| {
        let seed = |seed| Some([of(scale, Kernel::Off, seed)?, of(scale, Kernel::B, seed)?]);
        let most = runs.iter().map(|r| r.seed).max().unwrap_or(0);
        let pairs: Vec<[&Run; 2]> = (1..=most).filter_map(seed).collect();
        let mean = |get: &dyn Fn(&[&Run; 2]) -> f64| {
            stats::mean(&pairs.iter().map(get).collect::<Vec<_>>())
        };
        (!pairs.is_empty()).then(|| Step {
            scale,
            gains: pairs.iter().map(|[off, b]| (b.score / off.score - 1.0) * 100.0).collect(),
            late: mean(&|[off, b]| (b.late / off.late - 1.0) * 100.0),
            fast: [mean(&|p| p[0].fast), mean(&|p| p[1].fast)],
            ramp: mean(&|p| p[1].ramp),
            promoted: mean(&|p| p[1].promoted),
            seconds: mean(&|p| p[1].seconds),
        })
    };
    let mut scales: Vec<u64> = runs.iter().map(|r| r.scale).collect();
    scales.sort_unstable_by(|x, y| y.cmp(x));
    scales.dedup();
    scales.iter().filter_map(step).collect()
}

/// Runs what the file lacks and prints the curve as a page.
///
/// # Errors
/// A file that has something else, or can't be written; a run's own.
pub(in crate::reproduce) fn page(asked: &Asked<'_>, path: &Path) -> Result<String> {
    if asked.machine.is_some() {
        bail!("--by-scale: the curve is that of the registered machine; leave --machine out");
    }
    let bench = Bench::new(None, asked.margin, &[])?;
    let mut runs = finished(path)?;
    let last = asked.scale.unwrap_or(LAST);
    let mut file: Option<File> = None;
    for factor in FACTORS.into_iter().filter(|&f| f >= last) {
        for seed in 1..=asked.seeds.unwrap_or(seeds(factor)) {
            for kernel in KERNELS {
                let column = bench.column(kernel);
                let there = |r: &Run| r.scale == factor && r.kernel == column && r.seed == seed;
                if runs.iter().any(there) {
                    continue;
                }
                let run = one(&bench, Point { kernel, percent: PERCENT, seed, ..base(factor) })?;
                let file = match &mut file {
                    Some(file) => file,
                    none => none.insert(
                        OpenOptions::new()
                            .create(true)
                            .append(true)
                            .open(path)
                            .with_context(|| format!("can't write {}", path.display()))?,
                    ),
                };
                writeln!(file, "{}", run.to_json())
                    .with_context(|| format!("can't write {}", path.display()))?;
                runs.push(run);
            }
        }
    }
    Ok(table(&bench, &steps(&bench, &runs)))
}

fn one(bench: &Bench, p: Point) -> Result<Run> {
    let begun = Instant::now();
    let got: Scored = bench.run(&p).with_context(|| format!("1:{}, seed {}", p.factor, p.seed))?;
    Ok(Run {
        scale: p.factor,
        kernel: bench.column(p.kernel),
        seed: p.seed,
        score: got.score,
        late: got.late,
        fast: got.fast * 100.0,
        ramp: got.ramp * 100.0,
        promoted: got.promoted as f64 * homenode_core::units::PAGE_SIZE as f64
            / bench.dram(p.factor).0 as f64,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// As a table of Markdown.
fn table(bench: &Bench, steps: &[Step]) -> String {
    let mut out = format!(
        "Gain of mode 2/b over balancing off, map {} of DRAM, machine {}.\n\n\
         | scale | DRAM | seeds | gain [%] | Stddev | gain, last third [%] | in DRAM, off [%] | in DRAM, b [%] | \
         ramp [% of the run] | promoted [times DRAM] | one run [s] |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        times(PERCENT),
        bench.machine.name
    );
    for s in steps {
        out.push_str(&format!(
            "| 1:{} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.2} | {:.0} |\n",
            s.scale,
            crate::nodes::size(bench.dram(s.scale)),
            s.gains.len(),
            stats::mean(&s.gains),
            stats::stddev(&s.gains),
            s.late,
            s.fast[0],
            s.fast[1],
            s.ramp,
            s.promoted,
            s.seconds
        ));
    }
    out
}

#[cfg(test)]
mod tests;
