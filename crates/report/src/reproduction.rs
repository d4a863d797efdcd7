//! A seed's table reproduced: our figures beside the seed's, and whether each
//! conclusion holds. What `homenode reproduce` prints.
//!
//! ```text
//!                                 seed      ours    Stddev   from   to
//! largest gain of mode 2/b [%]   95.90    101.20      0.31  50.00  150.00  holds
//! ```

use crate::cell::{Grid, Line};
use crate::{Caption, ComparisonTable};
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// One reproduced table.
///
/// Its JSON form has `name`, `machine`, `rows`, `conclusions` and `pass`, and nothing
/// else: this is stable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reproduction {
    /// What `homenode reproduce` calls it.
    pub name: String,
    /// The simulated machine's name.
    pub machine: String,
    /// Everything that was measured, under headings.
    pub tables: Vec<(String, ComparisonTable)>,
    /// What the result hangs on.
    pub surfaces: Vec<Surface>,
    /// Our figures beside the seed's.
    pub rows: Vec<Reproduced>,
    /// What follows from them.
    pub conclusions: Vec<Conclusion>,
    /// What was run on what, and what stays off.
    pub caption: Caption,
    /// Digits behind the point of the seed's figures and ours.
    pub digits: usize,
}

/// One figure beside the seed's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduced {
    /// What it is, with its unit.
    pub row: String,
    /// The seed's figure; `None` where the seed is silent.
    pub seed: Option<f64>,
    /// Our mean over the seeds of the random streams.
    pub ours: f64,
    /// Standard deviation over them.
    pub sd: f64,
    /// The band that ours has to lie in; a side without a bound is `None`.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// Whether it does; `None` where there is no band.
    pub pass: Option<bool>,
}

impl Reproduced {
    /// A figure from its samples, held against a band.
    ///
    /// * `low`, `high` – bounds, inclusive; a figure that is no number is outside.
    pub fn new(
        row: &str,
        seed: Option<f64>,
        samples: &[f64],
        low: Option<f64>,
        high: Option<f64>,
    ) -> Self {
        let ours = crate::stats::mean(samples);
        let inside = low.is_none_or(|l| ours >= l) && high.is_none_or(|h| ours <= h);
        Self {
            row: row.to_owned(),
            seed,
            ours,
            sd: crate::stats::stddev(samples),
            low,
            high,
            pass: (low.is_some() || high.is_some()).then_some(inside && !ours.is_nan()),
        }
    }
}

/// A sentence that holds or fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conclusion {
    /// The sentence, with the figures that decide.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether its criterion was changed after a first run.
    pub amended: bool,
}

impl Conclusion {
    /// What stands before the sentence.
    const fn verdict(&self) -> &'static str {
        match (self.holds, self.amended) {
            (false, _) => "FAILS",
            (true, false) => "holds",
            (true, true) => "as amended",
        }
    }
}

/// A figure over two parameters, with the seed's value marked where there is one: a cell
/// at or above it carries `*`.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// What is shown over what.
    pub title: String,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// One list per row, one figure per column.
    pub cells: Vec<Vec<f64>>,
    /// The seed's figure, where it has one to mark.
    pub seed: Option<f64>,
    /// Digits behind the point.
    pub digits: usize,
}

impl Surface {
    /// Columns and rows: between that row and the one before it lies the seed's figure.
    pub fn crossings(&self) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        let Some(seed) = self.seed else { return all };
        for column in 0..self.columns.len() {
            for row in 1..self.cells.len() {
                let (a, b) = (self.cells[row - 1][column], self.cells[row][column]);
                if (a < seed) != (b < seed) {
                    all.push((column, row));
                }
            }
        }
        all
    }

    /// The surface as text, with a sentence on where the seed's figure lies.
    pub fn to_text(&self, width: usize) -> String {
        let headers = self.columns.iter().map(|c| (c.clone(), String::new())).collect();
        let cell = |v: &f64| {
            let star = self.seed.is_some_and(|seed| *v >= seed);
            format!("{v:8.*}{}", self.digits, if star { "*" } else { " " })
        };
        let rows = self.rows.iter().zip(&self.cells);
        let row = |(name, cells): (&String, &Vec<f64>)| {
            Line::Cells(name.clone(), cells.iter().map(cell).collect())
        };
        let rows = rows.map(row).collect();
        let mut out = format!("{}\n", self.title);
        out.push_str(&Grid { headers, rows }.draw(width));
        let Some(seed) = self.seed else { return out };
        out.push_str(&format!("* {seed:.1} and above."));
        let place = |(column, row): (usize, usize)| {
            let (before, here) = (&self.rows[row - 1], &self.rows[row]);
            format!("between {before} and {here} ({})", self.columns[column])
        };
        let places: Vec<String> = self.crossings().into_iter().map(place).collect();
        if places.is_empty() {
            out.push_str(" It lies between no two rows.\n");
        } else {
            out.push_str(&format!(" It lies {}.\n", places.join(", ")));
        }
        out
    }
}

impl Reproduction {
    /// Whether every conclusion holds and every figure lies in its band.
    pub fn pass(&self) -> bool {
        self.conclusions.iter().all(|c| c.holds) && self.rows.iter().all(|r| r.pass != Some(false))
    }

    /// The stable JSON form, on one line. Figures that are no number become `null`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }

    /// Tables, surfaces, our figures beside the seed's, conclusions, caption.
    ///
    /// * `width` – columns of the terminal; the caption takes 100 at most.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        for (title, table) in &self.tables {
            out.push_str(&format!("{title}\n{}\n", table.to_text(width)));
        }
        for surface in &self.surfaces {
            out.push_str(&surface.to_text(width));
            out.push('\n');
        }
        out.push_str(&self.beside(width));
        out.push('\n');
        let widest = self.conclusions.iter().map(|c| c.verdict().len()).max().unwrap_or(0);
        for c in &self.conclusions {
            out.push_str(&format!("{:widest$}  {}\n", c.verdict(), c.text));
        }
        out.push('\n');
        out.push_str(&self.caption.to_text(width.min(100)));
        out
    }

    fn beside(&self, width: usize) -> String {
        let number = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.*}", self.digits));
        let row = |r: &Reproduced| {
            let verdict = match r.pass {
                None => "",
                Some(true) => "holds",
                Some(false) => "FAILS",
            };
            let numbers = [r.seed, Some(r.ours), Some(r.sd), r.low, r.high].map(number);
            let cells = numbers.into_iter().chain([verdict.to_owned()]);
            Line::Cells(r.row.clone(), cells.collect())
        };
        let rows = self.rows.iter().map(row).collect();
        let headers = ["seed", "ours", "Stddev", "from", "to", ""]
            .map(|h| (h.to_owned(), String::new()))
            .to_vec();
        Grid { headers, rows }.draw(width)
    }
}

impl Serialize for Reproduction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Reproduction", 5)?;
        out.serialize_field("name", &self.name)?;
        out.serialize_field("machine", &self.machine)?;
        out.serialize_field("rows", &self.rows)?;
        out.serialize_field("conclusions", &self.conclusions)?;
        out.serialize_field("pass", &self.pass())?;
        out.end()
    }
}
