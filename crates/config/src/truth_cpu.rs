//! Reading which benchmarks of scheduling `homenode truth cpu` predicts and runs, registered before.

use crate::ConfigError;
use crate::tree::{Cur, Doc};

/// A registered check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// When it was registered, as the file says.
    pub registered: String,
    /// Native runs of each case.
    pub runs: u32,
    /// Largest error in percent of the context switches.
    pub switches_percent: u32,
    /// The same of the migrations.
    pub migrations_percent: u32,
    /// What is run.
    pub cases: Vec<CpuCase>,
}

/// A benchmark of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCase {
    /// Its name.
    pub name: String,
    /// Threads of one process, in place of processes.
    pub threads: bool,
    /// How often.
    pub loops: u32,
    /// What.
    pub bench: CpuBench,
    /// Largest error of its time in percent that meets the check.
    pub bound_percent: u32,
}

/// What of `perf bench sched` a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuBench {
    /// Two tasks, two pipes.
    Pipe,
    /// Groups of 20 senders and 20 receivers.
    Messaging {
        /// How many groups.
        groups: u32,
    },
}

/// Reads a registered check; `name` is the file's name in errors.
///
/// # Errors
/// The first thing that is wrong, with file, line and key.
pub fn parse_truth_cpu(name: &str, text: &str) -> Result<CpuPlan, ConfigError> {
    let doc = Doc::parse(name, text)?;
    let top = doc.root().table(&[
        "registered",
        "runs",
        "switches_percent",
        "migrations_percent",
        "case",
    ])?;
    let int = |key: &'static str| top.get(key)?.int(1, 100).map(|n| n as u32);
    Ok(CpuPlan {
        registered: top.get("registered")?.text()?.to_owned(),
        runs: int("runs")?,
        switches_percent: int("switches_percent")?,
        migrations_percent: int("migrations_percent")?,
        cases: top.get("case")?.list()?.iter().map(case).collect::<Result<_, _>>()?,
    })
}

fn case(c: &Cur<'_>) -> Result<CpuCase, ConfigError> {
    let t = c.table(&["name", "bench", "threads", "groups", "loops", "bound_percent"])?;
    let bench = t.get("bench")?;
    let bench = match bench.text()? {
        "pipe" => match t.opt("groups") {
            None => CpuBench::Pipe,
            Some(groups) => return Err(groups.error("`pipe` has no groups")),
        },
        "messaging" => CpuBench::Messaging { groups: t.get("groups")?.int(1, 1000)? as u32 },
        other => {
            return Err(bench.error(format!("no benchmark {other:?}; there are pipe, messaging")));
        }
    };
    Ok(CpuCase {
        name: t.get("name")?.text()?.to_owned(),
        threads: t.get("threads")?.bool()?,
        loops: t.get("loops")?.int(1, 10_000_000)? as u32,
        bench,
        bound_percent: t.get("bound_percent")?.int(1, 100)? as u32,
    })
}
