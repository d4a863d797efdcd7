//! Signs and order with every constant moved by ±20 %, one at a time.

use super::judge::{self, Moved};
use super::run::{Bench, Point};
use super::{Plan, Runs, base, each, percent};
use crate::reproduce::Asked;
use crate::reproduce::vary::{Vary, What};
use anyhow::Result;
use homenode_report::Surface;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Those that move the deviation across 2 nodes the most, in the table's order; the
/// page of the sensitivity run says which they are.
pub(super) const MOST_ELASTIC: [&str; 4] = [
    "links of one hop: read_latency",
    "local links: read_latency",
    "local links: read_bandwidth",
    "cost: ksm_displaced",
];

/// The share at which constants are moved where no surface says which is the table's.
const SHARE: u64 = 67;
/// And the scale.
const FACTOR: u64 = 1024;

/// Figures with constants moved.
pub(super) struct Sensitivity {
    factor: u64,
    share: u64,
    /// With none moved.
    nominal: judge::Row,
    /// By constant, moved down and up.
    pub(super) moved: Vec<Moved>,
}

/// Those of the constants that matter most.
pub(super) fn most_elastic(bench: &Bench) -> Vec<What> {
    let machine = bench.largest();
    let mut all = What::by_kind(machine);
    all.retain(|w| MOST_ELASTIC.contains(&w.name(machine).as_str()));
    all
}

/// Moves constants at a point.
pub(super) fn run(runs: &mut Runs<'_>, at: Point, constants: &[What]) -> Result<Sensitivity> {
    let at = Point { vary: None, seed: 1, ..at };
    let varied = Vary::each(constants);
    let points: Vec<Point> = varied
        .iter()
        .map(|&v| Some(v))
        .chain([None])
        .flat_map(|vary| each(runs.bench, Point { vary, ..at }, 1))
        .collect();
    runs.ensure("constants moved", &points)?;
    let machine = runs.bench.largest();
    let moved = varied
        .iter()
        .map(|&vary| Moved {
            name: vary.what.name(machine),
            percent: vary.percent,
            row: runs.row(&Point { vary: Some(vary), ..at }, 1),
        })
        .collect();
    Ok(Sensitivity { factor: at.factor, share: at.share, nominal: runs.row(&at, 1), moved })
}

/// One constant: deviation across 2 nodes moved down and up, elasticity, the largest
/// deviation within nodes, what is wrong.
struct Line<'a> {
    name: &'a str,
    across: [f64; 2],
    within: f64,
    elasticity: f64,
    wrong: Vec<String>,
}

fn across(row: &judge::Row) -> f64 {
    row.pairs.first().map_or(f64::NAN, |p| p.across.deviation)
}

fn within(row: &judge::Row) -> f64 {
    row.pairs.iter().map(|p| p.within.deviation).fold(0.0, f64::max)
}

impl Sensitivity {
    /// By constant, the most elastic first.
    fn lines(&self) -> Vec<Line<'_>> {
        let mut by_name: BTreeMap<&str, Line<'_>> = BTreeMap::new();
        for m in &self.moved {
            let line = by_name.entry(&m.name).or_insert_with(|| Line {
                name: &m.name,
                across: [f64::NAN; 2],
                within: 0.0,
                elasticity: f64::NAN,
                wrong: Vec::new(),
            });
            line.across[usize::from(m.percent > 0)] = across(&m.row);
            line.within = line.within.max(within(&m.row));
            let wrong = judge::signs(&m.row);
            line.wrong.extend(wrong.into_iter().map(|w| format!("{:+} %: {w}", m.percent)));
        }
        let mut lines: Vec<Line<'_>> = by_name.into_values().collect();
        for line in &mut lines {
            line.elasticity = (line.across[1] - line.across[0]) / (0.4 * across(&self.nominal));
        }
        lines.sort_by(|x, y| y.elasticity.abs().total_cmp(&x.elasticity.abs()));
        lines
    }
    /// For the terminal.
    pub(super) fn surface(&self) -> Surface {
        let lines = self.lines();
        let mut columns = Vary::STEPS.map(|s| format!("{s:+} %")).to_vec();
        columns.push("within, most".into());
        Surface {
            title: format!(
                "deviation across 2 nodes [%] with one constant moved ({:.3} with none), and the \
                 largest within nodes; share {}, 1:{}",
                across(&self.nominal),
                percent(self.share),
                self.factor
            ),
            rows: lines.iter().map(|l| l.name.to_owned()).collect(),
            columns,
            cells: lines.iter().map(|l| vec![l.across[0], l.across[1], l.within]).collect(),
            seed: None,
            digits: 3,
        }
    }
    /// As a page of the documentation.
    fn markdown(&self) -> String {
        let mut out = format!(
            "# What the merging result hangs on\n\n\
             Made by `homenode reproduce ksm --sensitivity --scale {}`; `cargo xtask bench \
             sensitivity-ksm` writes it anew. Each constant of the machines `xeon-e7-2`, \
             `xeon-e7-4` and `xeon-e7-8` is moved by ±20 %, one at a time: those of links for all \
             links of one kind at once (local, one hop, two hops), as the publications give one \
             figure for each. {} of each guest's pages are of the common image; one seed.\n\n\
             Shown is the population standard deviation of the guests' access times in per cent of \
             their average: across 2 nodes ({:.3} % with none moved), and the largest of the three \
             machines' with a tree per node ({:.3} %). *Elasticity* is (deviation at +20 % − \
             deviation at −20 %) / (0.4 · deviation with none moved). *Signs and order*: within \
             nodes at most that across at 2 nodes, a quarter at 4, a tenth at 8, not growing with \
             the nodes; less memory saved, fewer comparisons a search. Constants that this \
             experiment doesn't use change nothing and stand at the end.\n\n\
             | constant | across 2, −20 % | +20 % | elasticity | within, most | signs and order |\n\
             |---|--:|--:|--:|--:|---|\n",
            self.factor,
            percent(self.share),
            across(&self.nominal),
            within(&self.nominal),
        );
        for l in self.lines() {
            let verdict = if l.wrong.is_empty() { "hold".to_owned() } else { l.wrong.join("; ") };
            out.push_str(&format!(
                "| {} | {:.3} | {:.3} | {:.2} | {:.3} | {verdict} |\n",
                l.name, l.across[0], l.across[1], l.elasticity, l.within
            ));
        }
        out
    }
    /// For the benchmark.
    fn json(&self, page: &str) -> Value {
        let lines = self.lines();
        let top: Vec<&str> = lines.iter().take(MOST_ELASTIC.len()).map(|l| l.name).collect();
        let all = || lines.iter().flat_map(|l| l.across);
        json!({
            "constants": lines.len(),
            "hold": lines.iter().filter(|l| l.wrong.is_empty()).count(),
            "nominal": across(&self.nominal),
            "least": all().fold(f64::INFINITY, f64::min),
            "most": all().fold(f64::NEG_INFINITY, f64::max),
            "most_elastic": top,
            "quick_moves": MOST_ELASTIC,
            "page": page,
        })
    }
}

/// Moves all constants (`--quick`: those that matter most): JSON, and the page.
pub(in crate::reproduce) fn table(asked: &Asked<'_>) -> Result<(Value, String)> {
    // For what it refuses.
    Plan::new(asked)?;
    let bench = Bench::new()?;
    let mut runs = Runs { bench: &bench, jobs: asked.jobs, done: BTreeMap::new() };
    let at = Point { share: SHARE, ..base(asked.scale.unwrap_or(FACTOR)) };
    let constants = if asked.quick { most_elastic(&bench) } else { What::by_kind(bench.largest()) };
    let s = run(&mut runs, at, &constants)?;
    let page = s.markdown();
    Ok((s.json(&page), page))
}
