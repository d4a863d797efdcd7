//! What experiments have in common: scales, points that are run once each, and constants that
//! are moved one at a time, to see what signs and order hang on.
//!
//! *Elasticity* of a figure g: (g(+20 %) − g(−20 %)) / (0.4 · g). A gain of 50 % that
//! becomes 45 and 55 has (55 − 45) / (0.4 · 50) = 0.5.

use super::Asked;
use super::vary::{Vary, What};
use crate::parallel;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use homenode_core::scale::Scale;
use homenode_core::topology::Hardware;
use homenode_core::units::count;
use homenode_report::{Conclusion, Surface};
use homenode_sim::{ProcessFigures, Simulation};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// At which scales an experiment is run, and how often.
pub(super) struct Scales {
    /// The table's scale, and the one at which signs and order are checked again.
    pub(super) factors: [u64; 2],
    /// Seeds at each of them.
    pub(super) seeds: [u64; 2],
    /// Scale of what is run beside the table: surfaces and moved constants.
    pub(super) moved: u64,
}

impl Scales {
    /// As they are asked for.
    ///
    /// * `down` – from this scale on the other one is the larger experiment.
    /// * `little` – what is said of a scale beyond the largest.
    pub(super) fn asked(mut self, asked: &Asked<'_>, down: u64, little: &str) -> Result<Self> {
        if let Some(scale) = asked.scale {
            if scale > Scale::MOST {
                bail!("--scale {scale}: {little}; the largest factor is {}", Scale::MOST);
            }
            self.factors = [scale, if scale >= down { scale / 2 } else { scale * 4 }];
            // What is run at a smaller scale stays there.
            self.moved = self.moved.max(scale);
        }
        if let Some(seeds) = asked.seeds {
            self.seeds = [seeds; 2];
        }
        Ok(self)
    }
}

/// The processes of a simulation in which nothing has gone wrong.
///
/// # Errors
/// A deadlock; the simulation's own; a process that was killed.
pub(crate) fn processes(sim: &Simulation) -> Result<Vec<ProcessFigures>> {
    if let Some(why) = sim.deadlock() {
        bail!("{why}");
    }
    if let Some(e) = sim.error() {
        bail!("{e}");
    }
    let all = sim.processes();
    if let Some((process, why)) = all.iter().find_map(|p| Some((p, p.killed.as_ref()?))) {
        bail!("{} was killed: {why}", process.name);
    }
    Ok(all)
}

/// What all runs of an experiment have in common.
pub(super) trait Bench: Sync {
    /// As the experiment is called on the command line.
    const NAME: &'static str;
    /// Which run.
    type Point: Copy + Ord + Sync;
    /// What it gave.
    type Answer: Send;
    /// By which the longest run comes first, so that no thread begins one while the others
    /// are done.
    fn length(p: &Self::Point) -> (u64, u64);
    /// What an error of a point begins with.
    fn label(p: &Self::Point) -> String;
    /// Runs a point.
    fn run(&self, p: &Self::Point) -> Result<Self::Answer>;
}

/// Results of points, each run once.
pub(super) struct Runs<'a, B: Bench> {
    pub(super) bench: &'a B,
    jobs: usize,
    pub(super) done: BTreeMap<B::Point, B::Answer>,
}

impl<'a, B: Bench> Runs<'a, B> {
    pub(super) fn new(bench: &'a B, jobs: usize) -> Self {
        Self { bench, jobs, done: BTreeMap::new() }
    }

    /// Runs those of the points that haven't been.
    ///
    /// * `what` – what is said meanwhile.
    pub(super) fn ensure(
        &mut self,
        what: &str,
        points: impl IntoIterator<Item = B::Point>,
    ) -> Result<()> {
        let new: BTreeSet<B::Point> =
            points.into_iter().filter(|p| !self.done.contains_key(p)).collect();
        let mut new: Vec<B::Point> = new.into_iter().collect();
        new.sort_by_key(B::length);
        let progress = Progress::new(new.len() as u64);
        let runs = count(new.len() as u64, "run", "runs");
        progress.say(&format!("{}, {what}: {runs}", B::NAME));
        let results = parallel::map(self.jobs, &new, |p| {
            let result = self.bench.run(p);
            progress.advance(1);
            result
        });
        for (p, result) in new.into_iter().zip(results) {
            self.done.insert(p, result.with_context(|| format!("{what}, {}", B::label(&p)))?);
        }
        Ok(())
    }

    /// Moves each of the constants down and up, and none.
    ///
    /// * `points` – what is run, `figures` – what is then looked at.
    pub(super) fn move_each<F: Figures>(
        &mut self,
        constants: &[What],
        machine: &Hardware,
        points: impl Fn(Option<Vary>) -> Vec<B::Point>,
        figures: impl Fn(&Self, Option<Vary>) -> F,
    ) -> Result<Sensitivity<F>> {
        let all = Vary::each(constants);
        let varied = all.iter().copied().map(Some).chain([None]);
        self.ensure("constants moved", varied.flat_map(points))?;
        let moved = all.into_iter().map(|vary| Moved {
            name: vary.what.name(machine),
            percent: vary.percent,
            figures: figures(self, Some(vary)),
        });
        Ok(Sensitivity { nominal: figures(self, None), moved: moved.collect() })
    }
}

/// What is looked at while constants are moved.
pub(super) trait Figures {
    /// Decimals of the figures.
    const DIGITS: usize;
    /// What [`Self::most`] is called.
    const MOST: Option<&'static str>;
    /// By whose elasticity constants are ranked.
    fn figure(&self) -> f64;
    /// A second figure, of which the larger one is shown.
    fn most(&self) -> f64 {
        0.0
    }
    /// What is wrong with signs and order.
    fn wrong(&self) -> Vec<String>;
}

/// Figures with one constant moved.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moved<F> {
    pub(super) name: String,
    pub(super) percent: i32,
    pub(super) figures: F,
}

impl<F: Figures> Moved<F> {
    /// What is wrong with signs and order then.
    fn wrong(&self) -> impl Iterator<Item = String> {
        self.figures.wrong().into_iter().map(|w| format!("{:+} %: {w}", self.percent))
    }
}

/// The conclusion that something is so at all scales and with each of the constants moved.
///
/// * `at_scales` – what is wrong, by scale.
pub(super) fn everywhere<F: Figures>(
    what: &str,
    at_scales: impl Iterator<Item = (u64, Vec<String>)>,
    moved: &[Moved<F>],
) -> Conclusion {
    let (mut wrong, mut scales) = (Vec::new(), Vec::new());
    for (factor, found) in at_scales {
        wrong.extend(found.into_iter().map(|w| format!("at 1:{factor}: {w}")));
        scales.push(format!("1:{factor}"));
    }
    let (constants, elsewhere) = with_each(moved);
    wrong.extend(elsewhere);
    let text = format!(
        "{what} at two scales ({}) and with each of {constants} constants moved by ±20 %",
        scales.join(", ")
    );
    conclusion(&text, wrong)
}

/// How many constants were moved, and what is wrong with one of them moved.
pub(super) fn with_each<F: Figures>(moved: &[Moved<F>]) -> (usize, Vec<String>) {
    let constants: BTreeSet<&str> = moved.iter().map(|m| m.name.as_str()).collect();
    let of = |m: &Moved<F>| m.wrong().map(|w| format!("{} {w}", m.name)).collect::<Vec<_>>();
    (constants.len(), moved.iter().flat_map(of).collect())
}

/// A conclusion that holds where nothing is wrong.
pub(super) fn conclusion(text: &str, wrong: Vec<String>) -> Conclusion {
    let holds = wrong.is_empty();
    Conclusion { text: format!("{text}{}.", because(wrong)), holds, amended: false }
}

/// The first few of what is wrong, behind a colon.
fn because(mut wrong: Vec<String>) -> String {
    if wrong.is_empty() {
        return String::new();
    }
    let more = wrong.len().saturating_sub(4);
    wrong.truncate(4);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!(": {}{more}", wrong.join("; "))
}

/// The names of constants of a machine.
pub(super) fn names(all: &[What], machine: &Hardware) -> Vec<String> {
    all.iter().map(|w| w.name(machine)).collect()
}

/// Figures with constants moved.
pub(super) struct Sensitivity<F> {
    /// With none moved.
    pub(super) nominal: F,
    /// By constant, moved down and then up.
    pub(super) moved: Vec<Moved<F>>,
}

/// One constant: figures moved down and up, elasticity, the second figure, what is wrong.
struct Line<'a> {
    name: &'a str,
    figures: [f64; 2],
    elasticity: f64,
    most: f64,
    wrong: Vec<String>,
}

impl<F: Figures> Sensitivity<F> {
    /// By constant, the most elastic first.
    fn lines<'s>(&'s self) -> Vec<Line<'s>> {
        let line = |both: &'s [Moved<F>]| {
            let [down, up] = [0, 1].map(|i| both[i].figures.figure());
            Line {
                name: &both[0].name,
                figures: [down, up],
                elasticity: (up - down) / (0.4 * self.nominal.figure()),
                most: both.iter().map(|m| m.figures.most()).fold(0.0, f64::max),
                wrong: both.iter().flat_map(Moved::wrong).collect(),
            }
        };
        let mut lines: Vec<Line<'_>> = self.moved.chunks_exact(2).map(line).collect();
        lines.sort_by_key(|l| l.name);
        lines.sort_by(|x, y| y.elasticity.abs().total_cmp(&x.elasticity.abs()));
        lines
    }

    /// For the terminal.
    pub(super) fn surface(&self, title: String) -> Surface {
        let lines = self.lines();
        let steps = Vary::STEPS.map(|s| format!("{s:+} %"));
        let most = |l: &Line<'_>| F::MOST.map(|_| l.most);
        Surface {
            title,
            rows: lines.iter().map(|l| l.name.to_owned()).collect(),
            columns: steps.into_iter().chain(F::MOST.map(str::to_owned)).collect(),
            cells: lines.iter().map(|l| l.figures.into_iter().chain(most(l)).collect()).collect(),
            seed: None,
            digits: F::DIGITS,
        }
    }

    /// As a page of the documentation, and with it what the benchmark is told.
    ///
    /// * `head` – the page above the table, `down` – heading of the first figure,
    ///   `nominal` – key of the figure with none moved, `quick` – what `--quick` moves.
    pub(super) fn told(
        &self,
        mut page: String,
        down: &str,
        nominal: &str,
        quick: &[impl AsRef<str>],
    ) -> (Value, String) {
        let lines = self.lines();
        let digits = F::DIGITS;
        let (title, rule) = match F::MOST {
            Some(most) => (format!(" {most} |"), "--:|"),
            None => (String::new(), ""),
        };
        page.push_str(&format!(
            "| constant | {down} | +20 % | elasticity |{title} signs and order |\n\
             |---|--:|--:|--:|{rule}---|\n"
        ));
        for l in &lines {
            let verdict = if l.wrong.is_empty() { "hold".to_owned() } else { l.wrong.join("; ") };
            let most = F::MOST.map_or(String::new(), |_| format!(" {:.digits$} |", l.most));
            page.push_str(&format!(
                "| {} | {:.digits$} | {:.digits$} | {:.2} |{most} {verdict} |\n",
                l.name, l.figures[0], l.figures[1], l.elasticity
            ));
        }
        let quick: Vec<&str> = quick.iter().map(AsRef::as_ref).collect();
        let top: Vec<&str> = lines.iter().take(quick.len()).map(|l| l.name).collect();
        let all = || lines.iter().flat_map(|l| l.figures);
        let told = json!({
            "constants": lines.len(),
            "hold": lines.iter().filter(|l| l.wrong.is_empty()).count(),
            (nominal): self.nominal.figure(),
            "least": all().fold(f64::INFINITY, f64::min),
            "most": all().fold(f64::NEG_INFINITY, f64::max),
            "most_elastic": top,
            "quick_moves": quick,
            "page": page,
        });
        (told, page)
    }
}
