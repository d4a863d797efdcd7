//! Named figures of several configurations side by side: what `homenode replay`
//! and `homenode sim` print.

use crate::cell::{Better, Grid, Line, gain, header};
use crate::stats;
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::collections::BTreeSet;
use std::fmt;

/// Columns are configurations (the first is the baseline), rows are figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparisonTable {
    /// Names of the configurations, split into two header rows at the first `-`.
    pub columns: Vec<String>,
    /// Figures under headings.
    pub groups: Vec<Group>,
}

/// Figures that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// A heading; none where it is empty.
    pub title: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// One figure.
///
/// Its JSON form adds, by column: `mean`, `stddev`, `gain_percent` over the first
/// column (positive is better; `null` where no way is), `significant` by mmtests'
/// rule, and `welch_p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name: the kernel's where it has one.
    pub name: String,
    /// Its unit; empty for counts.
    pub unit: String,
    /// Which way is better; percentages are shown where one is.
    pub better: Better,
    /// Digits after the point.
    pub precision: usize,
    /// One list of samples (one per seed) per column; empty where the figure doesn't
    /// apply.
    pub samples: Vec<Vec<f64>>,
}

/// What one run of one configuration gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayRun {
    /// Virtual time in nanoseconds.
    pub time_ns: u64,
    /// Accesses by tier, in the order of the names given to
    /// [`ComparisonTable::replay`], fastest first.
    pub accesses: Vec<u64>,
    /// Pages promoted.
    pub promoted: u64,
    /// Pages demoted.
    pub demoted: u64,
    /// Bytes moved between nodes, in either direction.
    pub moved_bytes: u64,
    /// Counters with vmstat's names, in the order in which they are to be shown.
    pub vmstat: Vec<(String, u64)>,
}

impl ComparisonTable {
    /// The table of `homenode replay`.
    ///
    /// * `tiers` – names of the tiers, fastest first.
    /// * `runs` – each configuration's name and its runs, one per seed; the first
    ///   configuration is the baseline.
    ///
    /// Counters that are 0 in all runs are left out. A share of no accesses, or of a
    /// tier that a run doesn't list, is 0.
    pub fn replay(tiers: &[&str], runs: &[(&str, Vec<ReplayRun>)]) -> Self {
        let figure =
            |name: &str, unit: &str, better, precision, get: &dyn Fn(&ReplayRun) -> f64| {
                let samples = runs.iter().map(|(_, r)| r.iter().map(get).collect()).collect();
                Figure { name: name.into(), unit: unit.into(), better, precision, samples }
            };
        let count = |n: u64| n as f64;
        let mut main = vec![figure("time", "s", Better::Lower, 4, &|r| count(r.time_ns) / 1e9)];
        // The score of what runs for a time instead of for an amount of work.
        main.push(figure("accesses", "M/s", Better::Higher, 3, &|r| {
            count(r.accesses.iter().sum()) * 1e3 / count(r.time_ns.max(1))
        }));
        for (i, tier) in tiers.iter().enumerate() {
            let better = if i == 0 { Better::Higher } else { Better::Neither };
            main.push(figure(&format!("accesses in {tier}"), "%", better, 2, &|r| {
                let all: u64 = r.accesses.iter().sum();
                count(r.accesses.get(i).copied().unwrap_or(0)) * 100.0 / count(all.max(1))
            }));
        }
        let neither = Better::Neither;
        main.push(figure("pages promoted", "", neither, 0, &|r| count(r.promoted)));
        main.push(figure("pages demoted", "", neither, 0, &|r| count(r.demoted)));
        main.push(figure("moved", "MB", neither, 1, &|r| count(r.moved_bytes) / 1e6));
        main.push(figure("spent on moving", "MB/s", neither, 1, &|r| {
            count(r.moved_bytes) * 1e3 / count(r.time_ns.max(1))
        }));

        let all = || runs.iter().flat_map(|(_, r)| r).flat_map(|r| &r.vmstat);
        let mut seen = BTreeSet::new();
        let vmstat = all()
            .filter(|(_, value)| *value != 0)
            .map(|(name, _)| name.as_str())
            .collect::<BTreeSet<&str>>();
        let figures = all()
            .map(|(name, _)| name.as_str())
            .filter(|name| vmstat.contains(name) && seen.insert(*name))
            .map(|name| {
                figure(name, "", neither, 0, &|r| {
                    count(r.vmstat.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v))
                })
            })
            .collect();
        Self {
            columns: runs.iter().map(|(name, _)| (*name).to_owned()).collect(),
            groups: vec![
                Group { title: String::new(), figures: main },
                Group { title: "vmstat".into(), figures },
            ],
        }
    }
}

impl Figure {
    /// Gain of column `i`'s mean over the first column's, whether it is significant by
    /// mmtests' rule, and Welch's p-value; the first column has neither of the latter.
    fn against_first(&self, i: usize) -> (Option<f64>, bool, Option<f64>) {
        let (base, x) = (&self.samples[0], &self.samples[i]);
        let gain =
            if x.is_empty() { None } else { self.better.gain(stats::mean(base), stats::mean(x)) };
        if i == 0 {
            return (gain, false, None);
        }
        (gain, stats::mmtests_significant(base, x), stats::welch_p(base, x))
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<_> = (0..self.samples.len()).map(|i| self.against_first(i)).collect();
        let by = |f: fn(&[f64]) -> f64| self.samples.iter().map(|x| f(x)).collect::<Vec<f64>>();
        let mut out = serializer.serialize_struct("Figure", 9)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("unit", &self.unit)?;
        out.serialize_field("better", &self.better)?;
        out.serialize_field("samples", &self.samples)?;
        out.serialize_field("mean", &by(stats::mean))?;
        out.serialize_field("stddev", &by(stats::stddev))?;
        out.serialize_field("gain_percent", &all.iter().map(|a| a.0).collect::<Vec<_>>())?;
        out.serialize_field("significant", &all.iter().map(|a| a.1).collect::<Vec<_>>())?;
        out.serialize_field("welch_p", &all.iter().map(|a| a.2).collect::<Vec<_>>())?;
        out.end()
    }
}

impl ComparisonTable {
    /// The table in blocks of as many configurations as fit into `width` columns, one
    /// at least; percentages are against the first configuration in all of them.
    pub fn to_text(&self, width: usize) -> String {
        let mut rows = Vec::new();
        for group in self.groups.iter().filter(|g| !g.figures.is_empty()) {
            if !group.title.is_empty() {
                rows.push(Line::Heading(group.title.clone()));
            }
            for figure in &group.figures {
                let unit = if figure.unit.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", figure.unit)
                };
                let precision = figure.precision;
                let all: Vec<_> =
                    (0..figure.samples.len()).map(|i| figure.against_first(i)).collect();
                let cells = figure
                    .samples
                    .iter()
                    .zip(&all)
                    .map(|(x, &(percent, star, _))| {
                        if x.is_empty() {
                            return format!("{:>12}{}", "-", gain(None, false));
                        }
                        let value = stats::mean(x);
                        format!("{value:12.precision$}{}", gain(percent, star))
                    })
                    .collect();
                rows.push(Line::Cells(String::new(), format!("{}{unit}", figure.name), cells));
                if figure.better != Better::Neither && figure.samples.iter().any(|x| x.len() > 1) {
                    let cells = figure
                        .samples
                        .iter()
                        .map(|x| {
                            let sd = stats::stddev(x);
                            format!("{sd:12.precision$}{}", gain(None, false))
                        })
                        .collect();
                    rows.push(Line::Cells(String::new(), "  Stddev over seeds".into(), cells));
                    let cells = all
                        .iter()
                        .map(|(_, _, p)| {
                            let p = p.map_or("-".into(), |p| format!("{p:.4}"));
                            format!("{p:>12}{}", gain(None, false))
                        })
                        .collect();
                    rows.push(Line::Cells(String::new(), "  Welch-p".into(), cells));
                }
            }
        }
        let headers = self.columns.iter().map(|c| header(c)).collect();
        Grid { headers, rows }.draw(width)
    }
}

/// In one block, however wide.
impl fmt::Display for ComparisonTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(usize::MAX))
    }
}
