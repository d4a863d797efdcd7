//! What follows if one constant were 20 % smaller or larger, at the map where the gain
//! is largest, beside the neighbour.
//!
//! *Elasticity* of the gain g: (g(+20 %) − g(−20 %)) / (0.4 · g). A gain of 50 % that
//! becomes 45 and 55 has (55 − 45) / (0.4 · 50) = 0.5.

use super::judge::{self, Moved};
use super::run::{Bench, Kernel, Point};
use super::{Runs, base, each, times};
use crate::reproduce::Asked;
use crate::reproduce::vary::{Vary, What};
use anyhow::Result;
use homenode_report::Surface;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The constants on which the gain depends most by the published table
/// (docs/sensitivity-tiering.md), which `cargo xtask bench sensitivity-tiering` makes.
pub(super) const MOST_ELASTIC: [&str; 6] = [
    "cost: reclaim_page",
    "cost: pmem_line",
    "cost: migrate_page",
    "link 0 to 0: write_latency",
    "link 0 to 2: read_latency",
    "cost: pte_scan",
];

/// Figures with constants moved.
pub(super) struct Sensitivity {
    factor: u64,
    percent: u64,
    /// The gain with none moved, in per cent.
    nominal: f64,
    /// By constant, moved down and up.
    pub(super) moved: Vec<Moved>,
}

/// Those of the machine's constants that are the most elastic.
pub(super) fn most_elastic(bench: &Bench) -> Vec<What> {
    let mut all = What::all(&bench.machine);
    all.retain(|w| MOST_ELASTIC.contains(&w.name(&bench.machine).as_str()));
    all
}

/// Moves constants at a point.
pub(super) fn run(runs: &mut Runs<'_>, at: Point, constants: &[What]) -> Result<Sensitivity> {
    let varied = Vary::each(constants);
    let points: Vec<Point> = varied
        .iter()
        .map(|&v| Some(v))
        .chain([None])
        .flat_map(|vary| each(Point { vary, ..at }, &Kernel::MOVED, 1))
        .collect();
    runs.ensure("constants moved", &points)?;
    let moved = varied
        .iter()
        .map(|&vary| {
            let p = Point { vary: Some(vary), ..at };
            Moved {
                name: vary.what.name(&runs.bench.machine),
                percent: vary.percent,
                b: runs.gain(&Point { kernel: Kernel::B, ..p }),
                mode1: runs.gain(&Point { kernel: Kernel::Mode1, ..p }),
                neighbour: runs.neighbour(&p, 1),
            }
        })
        .collect();
    let nominal = runs.gain(&Point { kernel: Kernel::B, vary: None, ..at });
    Ok(Sensitivity { factor: at.factor, percent: at.percent, nominal, moved })
}

/// One constant: gain moved down and up, elasticity, what is wrong.
struct Row<'a> {
    name: &'a str,
    gains: [f64; 2],
    elasticity: f64,
    wrong: Vec<String>,
}

impl Sensitivity {
    /// By constant, the most elastic first.
    fn rows(&self) -> Vec<Row<'_>> {
        let mut by_name: BTreeMap<&str, Row<'_>> = BTreeMap::new();
        for m in &self.moved {
            let row = by_name.entry(&m.name).or_insert_with(|| Row {
                name: &m.name,
                gains: [f64::NAN; 2],
                elasticity: f64::NAN,
                wrong: Vec::new(),
            });
            row.gains[usize::from(m.percent > 0)] = m.b;
            let wrong = judge::order(m.b, m.mode1, &m.neighbour);
            row.wrong.extend(wrong.into_iter().map(|w| format!("{:+} %: {w}", m.percent)));
        }
        let mut rows: Vec<Row<'_>> = by_name.into_values().collect();
        for row in &mut rows {
            row.elasticity = (row.gains[1] - row.gains[0]) / (0.4 * self.nominal);
        }
        rows.sort_by(|x, y| y.elasticity.abs().total_cmp(&x.elasticity.abs()));
        rows
    }
    /// For the terminal.
    pub(super) fn surface(&self, best: u64) -> Surface {
        let rows = self.rows();
        Surface {
            title: format!(
                "the same with one constant moved, beside the neighbour ({:.1} with none moved); \
                 map {} of DRAM, 1:{}",
                self.nominal,
                times(best),
                self.factor
            ),
            rows: rows.iter().map(|r| r.name.to_owned()).collect(),
            columns: Vary::STEPS.map(|s| format!("{s:+} %")).to_vec(),
            cells: rows.iter().map(|r| r.gains.to_vec()).collect(),
            seed: None,
            digits: 1,
        }
    }
    /// As a page of the documentation.
    fn markdown(&self, bench: &Bench) -> String {
        let rows = self.rows();
        let mut out = format!(
            "# What the tiering result hangs on\n\n\
             Made by `homenode reproduce tiering --sensitivity --scale {}`; `cargo xtask bench \
             sensitivity-tiering` writes it anew. Each constant of the machine `{}` and of the \
             workload is moved by ±20 %, one at a time; what is shown is the gain of mode 2 with \
             choice *b* over balancing off, in per cent, with a map of {} DRAM beside the allocating \
             neighbour, one seed. With none moved it is {:.1} %.\n\n\
             *Elasticity* is (gain at +20 % − gain at −20 %) / (0.4 · gain with none moved). At small \
             scales a few points are chance: kswapd comes in few bursts, and any change shifts \
             them. *Signs and order*: mode 2/b gains; mode 1 gains less than a tenth of it; the \
             neighbour sees under b what it sees with balancing off, and more direct reclaim and a \
             longer p99 under a. Constants that this experiment doesn't use (other links, swap) \
             change nothing and stand at the end.\n\n\
             | constant | −20 % | +20 % | elasticity | signs and order |\n|---|--:|--:|--:|---|\n",
            self.factor,
            bench.machine.name,
            times(self.percent),
            self.nominal
        );
        for r in rows {
            let verdict = if r.wrong.is_empty() { "hold".to_owned() } else { r.wrong.join("; ") };
            out.push_str(&format!(
                "| {} | {:.1} | {:.1} | {:.2} | {verdict} |\n",
                r.name, r.gains[0], r.gains[1], r.elasticity
            ));
        }
        out
    }
    /// For the benchmark.
    fn json(&self, page: &str) -> Value {
        let rows = self.rows();
        let top: Vec<&str> = rows.iter().take(MOST_ELASTIC.len()).map(|r| r.name).collect();
        json!({
            "constants": rows.len(),
            "hold": rows.iter().filter(|r| r.wrong.is_empty()).count(),
            "gain": self.nominal,
            "least": rows.iter().flat_map(|r| r.gains).fold(f64::INFINITY, f64::min),
            "most": rows.iter().flat_map(|r| r.gains).fold(f64::NEG_INFINITY, f64::max),
            "most_elastic": top,
            "quick_moves": MOST_ELASTIC,
            "page": page,
        })
    }
}

/// The map at which constants are moved where no table says which gain is largest.
const PERCENT: u64 = 300;
/// And the scale.
const FACTOR: u64 = 256;

/// Moves all constants (`--quick`: the most elastic): JSON, and the page.
pub(in crate::reproduce) fn table(asked: &Asked<'_>) -> Result<(Value, String)> {
    let bench = Bench::new(asked.machine, asked.margin)?;
    let mut runs = Runs { bench: &bench, jobs: asked.jobs, done: BTreeMap::new() };
    let factor = asked.scale.unwrap_or(FACTOR);
    let at = Point { percent: PERCENT, neighbour: true, ..base(factor) };
    let constants = if asked.quick { most_elastic(&bench) } else { What::all(&bench.machine) };
    let s = run(&mut runs, at, &constants)?;
    let page = s.markdown(&bench);
    Ok((s.json(&page), page))
}
