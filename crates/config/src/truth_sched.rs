//! Reading which programs `homenode truth sched` records, predicts and runs, registered before.

use crate::ConfigError;
use crate::tree::{Cur, Doc};

/// A registered check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedPlan {
    /// When it was registered, as the file says.
    pub registered: String,
    /// Native runs of each case.
    pub runs: u32,
    /// What was changed after a first run, and why; None: nothing.
    pub amended: Option<String>,
    /// More of them, in which waits are counted.
    pub counted_runs: u32,
    /// Largest error in percent of the elapsed time.
    pub elapsed_percent: u32,
    /// Largest error in percent of the tasks' wait, in the median.
    pub wait_percent: u32,
    /// A task that waited less is left out, in milliseconds.
    pub least_wait_ms: u32,
    /// What is run.
    pub programs: Vec<SchedProgram>,
}

/// A program of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedProgram {
    /// Its name.
    pub name: String,
    /// What is recorded.
    pub command: Vec<String>,
    /// The same with half of the groups.
    pub half: Vec<String>,
    /// Under what it is predicted and run.
    pub cases: Vec<SchedCase>,
}

homenode_core::named! {
    /// What is other than it was recorded.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SchedCase {
        /// On CPU 0 only.
        OneCpu => "one-cpu",
        /// At nice 10, beside a program that computes.
        Nice => "nice",
        /// With half of the groups.
        Half => "half",
    }
}

/// Reads a registered check; `name` is the file's name in errors.
///
/// # Errors
/// The first thing that is wrong, with file, line and key.
pub fn parse_truth_sched(name: &str, text: &str) -> Result<SchedPlan, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let top = doc.root().table(&[
        "registered",
        "runs",
        "amended",
        "counted_runs",
        "elapsed_percent",
        "wait_percent",
        "least_wait_ms",
        "program",
    ])?;
    let int = |key: &'static str| top.get(key)?.int(1, 1000).map(|n| n as u32);
    Ok(SchedPlan {
        registered: top.get("registered")?.text()?.to_owned(),
        runs: int("runs")?,
        amended: top.opt("amended").map(|c| c.text().map(str::to_owned)).transpose()?,
        counted_runs: int("counted_runs")?,
        elapsed_percent: int("elapsed_percent")?,
        wait_percent: int("wait_percent")?,
        least_wait_ms: int("least_wait_ms")?,
        programs: top.get("program")?.list()?.iter().map(program).collect::<Result<_, _>>()?,
    })
}

fn program(c: &Cur<'_>) -> Result<SchedProgram, ConfigError> {
    let t = c.table(&["name", "command", "half", "cases"])?;
    let words = |c: &Cur<'_>| -> Result<Vec<String>, ConfigError> {
        c.list()?.iter().map(|w| w.text().map(str::to_owned)).collect()
    };
    let half = t.opt("half").map(|c| words(&c)).transpose()?.unwrap_or_default();
    let named = SchedCase::ALL.map(|case| (case.name(), case));
    let cases = t.get("cases")?;
    let each = cases.list()?.iter().map(|c| c.word(&named)).collect::<Result<Vec<_>, _>>()?;
    if each.contains(&SchedCase::Half) && half.is_empty() {
        return Err(cases.error("the case half needs a command `half`"));
    }
    let command = t.get("command")?;
    let words_of = words(&command)?;
    if words_of.is_empty() {
        return Err(command.error("a command has a program at least"));
    }
    Ok(SchedProgram {
        name: t.get("name")?.text()?.to_owned(),
        command: words_of,
        half,
        cases: each,
    })
}
