//! Figures of several configurations side by side: what `homenode replay` and `homenode
//! sim` print, in mmtests' layout.
//!
//! The value is `%12.2f` or so, the percentage ` (%7.2f%%)`, and positive is always better.
//! Stars replace the brackets of a mean whose difference from the first column is
//! significant by mmtests' rule; the `Welch-p` row takes the number of samples into account.

use crate::cell::{Better, Grid, Line, gain, header};
use crate::stats;
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Columns are configurations (the first is the baseline), rows are figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparisonTable {
    /// Names of the configurations, split into two header rows at the first `-`.
    pub columns: Vec<String>,
    /// Figures under headings.
    pub groups: Vec<Section>,
}

/// Figures that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Section {
    /// A heading; none where it is empty.
    pub title: String,
    /// The figures.
    pub figures: Vec<Compared>,
}

/// What is said of a figure wherever it stands: declared once, and read by tables, their
/// JSON, comparisons and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name: the kernel's where it has one. `{}` stands for what it is told of.
    pub name: &'static str,
    /// Its unit; empty for counts.
    pub unit: &'static str,
    /// Which way is better; percentages are shown where one is.
    pub better: Better,
    /// Digits after the point.
    pub precision: usize,
    /// What it is, in a sentence.
    pub about: &'static str,
}

impl Figure {
    /// A figure.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
        precision: usize,
        about: &'static str,
    ) -> Self {
        Self { name, unit, better, precision, about }
    }
    /// A count, of which neither more nor less is better.
    pub const fn count(name: &'static str, about: &'static str) -> Self {
        Self::new(name, "", Better::Neither, 0, about)
    }
    /// Its samples by column.
    pub fn compared(&self, samples: Vec<Vec<f64>>) -> Compared {
        Compared { name: self.name.to_owned(), figure: *self, samples }
    }
    /// The same where its name says what it is told of.
    pub fn compared_of(&self, what: &str, samples: Vec<Vec<f64>>) -> Compared {
        Compared { name: self.name.replace("{}", what), figure: *self, samples }
    }
}

/// A figure of several configurations: a row of a table.
///
/// Its JSON form adds, by column: `mean`, `stddev`, `gain_percent` over the first
/// column (positive is better; `null` where no way is), `significant` by mmtests'
/// rule, and `welch_p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What it is called here.
    pub name: String,
    /// What is said of it.
    pub figure: Figure,
    /// One list of samples (one per seed) per column; empty where the figure doesn't
    /// apply.
    pub samples: Vec<Vec<f64>>,
}

impl Compared {
    /// Gain of column `i`'s mean over the first column's, whether it is significant by
    /// mmtests' rule, and Welch's p-value; the first column has neither of the latter.
    fn against_first(&self, i: usize) -> (Option<f64>, bool, Option<f64>) {
        let (base, x) = (&self.samples[0], &self.samples[i]);
        let gain = self.figure.better.gain(stats::mean(base), stats::mean(x));
        let gain = gain.filter(|_| !x.is_empty());
        if i == 0 {
            return (gain, false, None);
        }
        (gain, stats::mmtests_significant(base, x), stats::welch_p(base, x))
    }
}

impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: Vec<_> = (0..self.samples.len()).map(|i| self.against_first(i)).collect();
        let by = |f: fn(&[f64]) -> f64| self.samples.iter().map(|x| f(x)).collect::<Vec<f64>>();
        let mut out = serializer.serialize_struct("Compared", 9)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("unit", &self.figure.unit)?;
        out.serialize_field("better", &self.figure.better)?;
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
        for section in self.groups.iter().filter(|s| !s.figures.is_empty()) {
            if !section.title.is_empty() {
                rows.push(Line::Heading(section.title.clone()));
            }
            for row in &section.figures {
                let Figure { unit, better, precision, .. } = row.figure;
                let unit = if unit.is_empty() { String::new() } else { format!(" [{unit}]") };
                let all: Vec<_> = (0..row.samples.len()).map(|i| row.against_first(i)).collect();
                let none = gain(None, false);
                let mean = |(x, &(percent, star, _)): (&Vec<f64>, &(Option<f64>, bool, _))| {
                    if x.is_empty() {
                        return format!("{:>12}{none}", "-");
                    }
                    format!("{:12.precision$}{}", stats::mean(x), gain(percent, star))
                };
                let means = row.samples.iter().zip(&all).map(mean).collect();
                rows.push(Line::Cells(format!("{}{unit}", row.name), means));
                if better != Better::Neither && row.samples.iter().any(|x| x.len() > 1) {
                    let stddev = |x: &Vec<f64>| format!("{:12.precision$}{none}", stats::stddev(x));
                    let stddevs = row.samples.iter().map(stddev).collect();
                    rows.push(Line::Cells("  Stddev over seeds".into(), stddevs));
                    let shown = |p: Option<f64>| p.map_or("-".into(), |p| format!("{p:.4}"));
                    let welch = all.iter().map(|a| format!("{:>12}{none}", shown(a.2))).collect();
                    rows.push(Line::Cells("  Welch-p".into(), welch));
                }
            }
        }
        let headers = self.columns.iter().map(|c| header(c)).collect();
        Grid { headers, rows }.draw(width)
    }
}
