//! Reading which programs `homenode truth replay` records and replays, registered before.

use crate::ConfigError;
use crate::tree::{Cur, Doc};

/// A registered check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPlan {
    /// When it was registered, as the file says.
    pub registered: String,
    /// Native runs of each program.
    pub runs: u32,
    /// Largest error in percent that meets the check, on all CPUs.
    pub bound_percent: u32,
    /// The same on one CPU.
    pub one_cpu_bound_percent: u32,
    /// Largest error in percent of the voluntary switches of deterministic programs, on all CPUs.
    pub switches_percent: u32,
    /// Programs.
    pub programs: Vec<ReplayProgram>,
}

/// A program of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayProgram {
    /// Its name.
    pub name: String,
    /// What is run; `{dir}` stands for the folder of its files.
    pub command: Vec<String>,
    /// C, where it is compiled first.
    pub source: Option<String>,
    /// Whether how often its tasks sleep follows from its source alone.
    pub deterministic: bool,
    /// Whether the bounds are for it; else it is only told how far off it is.
    pub bounded: bool,
}

/// Reads a registered check; `name` is the file's name in errors.
///
/// # Errors
/// The first thing that is wrong, with file, line and key.
pub fn parse_truth_replay(name: &str, text: &str) -> Result<ReplayPlan, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let keys = [
        "registered",
        "runs",
        "bound_percent",
        "one_cpu_bound_percent",
        "switches_percent",
        "program",
    ];
    let top = doc.root().table(&keys)?;
    let int = |key: &'static str| top.get(key)?.int(1, 100).map(|n| n as u32);
    Ok(ReplayPlan {
        registered: top.get("registered")?.text()?.to_owned(),
        runs: int("runs")?,
        bound_percent: int("bound_percent")?,
        one_cpu_bound_percent: int("one_cpu_bound_percent")?,
        switches_percent: int("switches_percent")?,
        programs: top.get("program")?.list()?.iter().map(program).collect::<Result<_, _>>()?,
    })
}

fn program(c: &Cur<'_>) -> Result<ReplayProgram, ConfigError> {
    let t = c.table(&["name", "command", "source", "deterministic", "bounded"])?;
    let command = t.get("command")?;
    let words = command.list()?;
    if words.is_empty() {
        return Err(command.error("a command has a program at least"));
    }
    Ok(ReplayProgram {
        name: t.get("name")?.text()?.to_owned(),
        command: words.iter().map(|w| w.text().map(str::to_owned)).collect::<Result<_, _>>()?,
        source: t.opt("source").map(|s| s.text().map(str::to_owned)).transpose()?,
        deterministic: t.opt("deterministic").map_or(Ok(false), |d| d.bool())?,
        bounded: t.opt("bounded").map_or(Ok(true), |b| b.bool())?,
    })
}
