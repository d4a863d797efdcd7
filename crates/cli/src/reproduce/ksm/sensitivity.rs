//! Signs and order with every constant moved by ±20 %, one at a time.

use super::judge::{self, ByNodes};
use super::run::{Bench, Bursts, Point};
use super::{Plan, Runs, base, each, percent};
use crate::reproduce::Asked;
use crate::reproduce::elastic;
use crate::reproduce::experiment::{Figures, Sensitivity};
use crate::reproduce::vary::What;
use anyhow::Result;
use homenode_report::Surface;
use serde_json::Value;

/// The share at which constants are moved where no surface says which is the table's.
const SHARE: u64 = 67;
/// And the scale.
const FACTOR: u64 = 1024;

impl Figures for ByNodes {
    const DIGITS: usize = 3;
    const MOST: Option<&'static str> = Some("within, most");
    /// The deviation across 2 nodes.
    fn figure(&self) -> f64 {
        self.pairs.first().map_or(f64::NAN, |p| p.across.deviation)
    }
    /// The largest within nodes.
    fn most(&self) -> f64 {
        self.pairs.iter().map(|p| p.within.deviation).fold(0.0, f64::max)
    }
    fn wrong(&self) -> Vec<String> {
        judge::signs(self)
    }
}

/// Those of the constants that matter most.
pub(super) fn most_elastic(bench: &Bench) -> Vec<What> {
    elastic::most("ksm", What::by_kind(bench.largest()), bench.largest())
}

/// Moves constants at a point.
pub(super) fn run(
    runs: &mut Runs<'_, Bench>,
    at: Point,
    constants: &[What],
) -> Result<Sensitivity<ByNodes>> {
    let at = Point { seed: 1, ..at };
    let bench = runs.bench;
    let of = |vary| each(bench, Point { vary, ..at }, 1);
    let row = |runs: &Runs<'_, Bench>, vary| runs.row(&Point { vary, ..at }, 1);
    runs.move_each(constants, bench.largest(), of, row)
}

/// For the terminal.
pub(super) fn surface(s: &Sensitivity<ByNodes>, at: Point) -> Surface {
    s.surface(format!(
        "deviation across 2 nodes [%] with one constant moved ({:.3} with none), and the largest \
         within nodes; share {}, 1:{}",
        s.nominal.figure(),
        percent(at.share),
        at.factor
    ))
}

/// Moves all constants (`--quick`: those that matter most): JSON, and the page.
pub(in crate::reproduce) fn table(asked: &Asked<'_>) -> Result<(Value, String)> {
    // For what it refuses.
    Plan::new(asked)?;
    // Almost all of a run's time are its bursts. A few of them give the same signs.
    let bench = Bench::new(if asked.quick { Bursts::Few(4) } else { Bursts::Registered })?;
    let at = Point { share: SHARE, ..base(asked.scale.unwrap_or(FACTOR)) };
    let constants = if asked.quick { most_elastic(&bench) } else { What::by_kind(bench.largest()) };
    let s = run(&mut Runs::new(&bench, asked.jobs), at, &constants)?;
    let head = format!(
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
         experiment doesn't use change nothing and stand at the end.\n\n",
        at.factor,
        percent(at.share),
        s.nominal.figure(),
        s.nominal.most(),
    );
    Ok(s.told(head, "across 2, −20 %", "nominal", elastic::names("ksm")))
}
