//! What follows if one constant were 20 % smaller or larger, at the map where the gain
//! is largest, beside the neighbour.

use super::judge::{self, Gained};
use super::run::{Bench, Kernel, Point};
use super::{Runs, base, each, times};
use crate::reproduce::Asked;
use crate::reproduce::elastic;
use crate::reproduce::experiment::{Figures, Sensitivity};
use crate::reproduce::vary::What;
use anyhow::Result;
use homenode_report::Surface;
use serde_json::Value;

/// The map at which constants are moved where no table says which gain is largest.
const PERCENT: u64 = 300;
/// And the scale.
const FACTOR: u64 = 256;

impl Figures for Gained {
    const DIGITS: usize = 1;
    const MOST: Option<&'static str> = None;
    /// The gain of mode 2/b, in per cent.
    fn figure(&self) -> f64 {
        self.b
    }
    fn wrong(&self) -> Vec<String> {
        judge::order(self.b, self.mode1, &self.neighbour)
    }
}

/// Those of the machine's constants that are the most elastic.
pub(super) fn most_elastic(bench: &Bench) -> Vec<What> {
    elastic::most("tiering", What::all(&bench.machine), &bench.machine)
}

/// Moves constants at a point.
pub(super) fn run(
    runs: &mut Runs<'_, Bench>,
    at: Point,
    constants: &[What],
) -> Result<Sensitivity<Gained>> {
    let of = |vary| each(Point { vary, ..at }, &Kernel::GAINS, 1);
    runs.move_each(constants, &runs.bench.machine, of, |runs, vary| {
        let p = Point { vary, ..at };
        let gain = |kernel| runs.gain(&Point { kernel, ..p });
        Gained { b: gain(Kernel::B), mode1: gain(Kernel::Mode1), neighbour: runs.neighbour(&p, 1) }
    })
}

/// For the terminal.
pub(super) fn surface(s: &Sensitivity<Gained>, at: Point) -> Surface {
    s.surface(format!(
        "the same with one constant moved, beside the neighbour ({:.1} with none moved); map {} of \
         DRAM, 1:{}",
        s.nominal.figure(),
        times(at.percent),
        at.factor
    ))
}

/// Moves all constants (`--quick`: the most elastic): JSON, and the page.
pub(in crate::reproduce) fn table(asked: &Asked<'_>) -> Result<(Value, String)> {
    let bench = Bench::new(asked.machine, asked.margin, &[])?;
    let factor = asked.scale.unwrap_or(FACTOR);
    let at = Point { percent: PERCENT, neighbour: true, ..base(factor) };
    let constants = if asked.quick { most_elastic(&bench) } else { What::all(&bench.machine) };
    let s = run(&mut Runs::new(&bench, asked.jobs), at, &constants)?;
    let head = format!(
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
         change nothing and stand at the end.\n\n",
        at.factor,
        bench.machine.name,
        times(at.percent),
        s.nominal.figure(),
    );
    Ok(s.told(head, "−20 %", "gain", elastic::names("tiering")))
}
