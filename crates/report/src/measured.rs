//! Tables of repeated measurements in mmtests' layout.
//!
//! ```text
//!                                 6.12                     6.12
//!                                  off               slow-start
//! Amean    time-1        0.4489 (   0.00%)        0.4239 *   5.55%*
//! ```
//!
//! The value is `%12.2f` or `%12.4f`, the percentage ` (%7.2f%%)`, and positive is
//! always better. Stars replace the brackets of a mean whose difference from the
//! first column is significant by mmtests' rule; the `Welch-p` row beside it takes
//! the number of samples into account.

use crate::cell::{Better, Grid, Line, gain, header};
use crate::stats;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::fmt;

/// The mean that a benchmark is summed up by; it says which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mean {
    /// Arithmetic, of times: lower is better (hackbench, kernbench).
    Amean,
    /// Harmonic, of throughputs: higher is better (tbench, dbench, netperf).
    Hmean,
}

impl Mean {
    const fn better(self) -> Better {
        match self {
            Self::Amean => Better::Lower,
            Self::Hmean => Better::Higher,
        }
    }
    fn of(self, x: &[f64]) -> f64 {
        match self {
            Self::Amean => stats::mean(x),
            Self::Hmean => stats::harmonic_mean(x),
        }
    }
}

/// One benchmark under several kernels or settings.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredTable {
    /// Benchmark's name, such as `hackbench`.
    pub name: String,
    /// Unit of the samples.
    pub unit: String,
    /// How it is summed up.
    pub mean: Mean,
    /// Digits after the point: mmtests takes 4 for hackbench, tbench, dbench and
    /// perfpipe, else 2.
    pub precision: usize,
    /// Names of the columns, split into two header rows at the first `-`; the first
    /// is the baseline.
    pub columns: Vec<String>,
    /// What was measured, such as `time-1`, `time-4`.
    pub series: Vec<Series>,
}

/// Samples of one thing, by column.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// One list of samples per column.
    pub samples: Vec<Vec<f64>>,
}

/// What one cell of a table comes from; field names of the JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesStats {
    /// Number of samples.
    pub n: usize,
    /// Smallest sample.
    pub min: f64,
    /// Amean or Hmean.
    pub mean: f64,
    /// Standard deviation of the sample.
    pub stddev: f64,
    /// Deviation in percent of the arithmetic mean.
    pub coeffvar: f64,
    /// Largest sample.
    pub max: f64,
    /// The same mean of the best 95 % of the samples.
    pub bmean95: f64,
    /// Gain of the mean over the first column in percent; positive is better.
    pub gain_percent: f64,
    /// By mmtests' rule.
    pub significant: bool,
    /// Welch's test against the first column; `null` with fewer than two samples.
    pub welch_p: Option<f64>,
}

impl MeasuredTable {
    /// mmtests' mean and precision for a benchmark that it knows: `None` for others.
    pub fn style_of(bench: &str) -> Option<(Mean, usize)> {
        Some(match bench {
            "hackbench" | "perfpipe" => (Mean::Amean, 4),
            "kernbench" => (Mean::Amean, 2),
            "tbench" | "dbench" => (Mean::Hmean, 4),
            "netperf" => (Mean::Hmean, 2),
            _ => return None,
        })
    }

    /// Figures of a series, by column.
    pub fn stats(&self, series: &Series) -> Vec<SeriesStats> {
        let none = Vec::new();
        let base = series.samples.first().unwrap_or(&none);
        series
            .samples
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let mean = self.mean.of(x);
                let best = if x.is_empty() {
                    f64::NAN
                } else {
                    self.mean.of(&stats::best(x, 95, self.mean == Mean::Amean))
                };
                let stddev = stats::stddev(x);
                SeriesStats {
                    n: x.len(),
                    min: x.iter().copied().fold(f64::NAN, f64::min),
                    mean,
                    stddev,
                    coeffvar: stddev / stats::mean(x) * 100.0,
                    max: x.iter().copied().fold(f64::NAN, f64::max),
                    bmean95: best,
                    gain_percent: self
                        .mean
                        .better()
                        .gain(self.mean.of(base), mean)
                        .unwrap_or(f64::NAN),
                    significant: i > 0 && stats::mmtests_significant(base, x),
                    welch_p: if i > 0 { stats::welch_p(base, x) } else { None },
                }
            })
            .collect()
    }
}

impl fmt::Display for MeasuredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = self.precision;
        let mut rows = Vec::new();
        for series in &self.series {
            let all = self.stats(series);
            let Some(base) = all.first() else { continue };
            let mut row = |op: &str, better: Better, get: &dyn Fn(&SeriesStats) -> f64, star| {
                let cells = all
                    .iter()
                    .map(|s| {
                        let percent = better.gain(get(base), get(s));
                        format!("{:12.precision$}{}", get(s), gain(percent, star && s.significant))
                    })
                    .collect();
                rows.push(Line::Cells(op.to_owned(), series.name.clone(), cells));
            };
            let better = self.mean.better();
            let (mean, best) = match self.mean {
                Mean::Amean => ("Amean", "BAmean-95"),
                Mean::Hmean => ("Hmean", "BHmean-95"),
            };
            row("Min", better, &|s| s.min, false);
            row(mean, better, &|s| s.mean, true);
            row("Stddev", Better::Lower, &|s| s.stddev, false);
            row("CoeffVar", Better::Lower, &|s| s.coeffvar, false);
            row("Max", better, &|s| s.max, false);
            row(best, better, &|s| s.bmean95, false);
            let p = all
                .iter()
                .map(|s| {
                    let p = s.welch_p.map_or("-".into(), |p| format!("{p:.4}"));
                    format!("{p:>12}{}", gain(None, false))
                })
                .collect();
            rows.push(Line::Cells("Welch-p".into(), series.name.clone(), p));
        }
        let headers = self.columns.iter().map(|c| header(c)).collect();
        f.write_str(&Grid { headers, rows }.draw(usize::MAX))
    }
}

impl Serialize for MeasuredTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'a> {
            name: &'a str,
            samples: &'a [Vec<f64>],
            stats: Vec<SeriesStats>,
        }
        let rows: Vec<Row<'_>> = self
            .series
            .iter()
            .map(|s| Row { name: &s.name, samples: &s.samples, stats: self.stats(s) })
            .collect();
        let mut out = serializer.serialize_struct("MeasuredTable", 6)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("unit", &self.unit)?;
        out.serialize_field("mean", &self.mean)?;
        out.serialize_field("better", &self.mean.better())?;
        out.serialize_field("columns", &self.columns)?;
        out.serialize_field("rows", &rows)?;
        out.end()
    }
}
