//! Whom to look at, and by which source: what `observe` and `advise` are asked alike.
//!
//! ```text
//! --pid, --cgroup, --all, -- CMD ─▶ Whom ──▶ Targets; CMD is started
//! --source, --root ───────────────▶ Means ─▶ Found, and the source that is named
//! ```

use crate::live::{self, Found, SourceArg};
use crate::program::{Program, Stop};
use anyhow::Result;
use homenode_core::policy::choice::lacks;
use homenode_core::policy::seen::{Shows, Source};
use homenode_live::begins::Begins;
use homenode_live::people::Targets;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Processes, in one of four ways; a command that can't do without says so of the group.
#[derive(clap::Args)]
#[group(id = "who", multiple = false)]
pub(crate) struct Whom {
    /// Processes; may be given several times
    #[arg(long, value_name = "P", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// All processes of a cgroup and of those below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// All processes
    #[arg(long)]
    pub(crate) all: bool,
    /// The program to be looked at, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Whom {
    /// Whether anybody is named.
    pub(crate) fn names_anybody(&self) -> bool {
        !self.pid.is_empty() || self.cgroup.is_some() || self.all || !self.command.is_empty()
    }
    /// Whether it is over once nobody of them is left: a cgroup, or the machine, goes on,
    /// and a program ends by its own end, which comes after that of its memory.
    pub(crate) fn ends(&self) -> bool {
        !self.pid.is_empty()
    }
    /// Who they are. The program is started, and is then `stop`'s.
    ///
    /// * `begins` – where its memory goes first, if not where the kernel puts it.
    ///
    /// # Errors
    /// A program that can't be started.
    pub(crate) fn targets(&self, stop: &mut Stop, begins: Option<&Begins>) -> Result<Targets> {
        Ok(match (&self.cgroup, self.command.is_empty()) {
            _ if self.all => Targets::All,
            (Some(path), _) => Targets::Cgroup(path.clone()),
            (None, true) => Targets::Pids(self.pid.clone()),
            (None, false) => {
                let program = stop.program.insert(Program::timed(&self.command, begins)?);
                Targets::Tree(program.pid())
            }
        })
    }
}

/// Where heat comes from, and where the machine's files are.
#[derive(clap::Args)]
pub(crate) struct Means {
    /// Where heat comes from
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = SourceArg::parser())]
    pub(crate) source: SourceArg,
    /// A folder with another machine's proc and sys, in place of /
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub(crate) root: PathBuf,
}

impl Means {
    /// Looks at the machine.
    ///
    /// * `file` – a machine's file with its latencies.
    ///
    /// # Errors
    /// As [`live::look`].
    pub(crate) fn look(&self, file: Option<&Path>) -> Result<Found> {
        live::look(&self.root, file)
    }
    /// The source that is named, if one is.
    pub(crate) const fn named(&self) -> Option<Source> {
        self.source.0
    }
    /// How to get heat where there is none and nobody asked for that; a sentence a source.
    ///
    /// * `source` – the one in use.
    pub(crate) fn how_to_get(&self, found: &Found, source: Source) -> Vec<String> {
        if source.shows() != Shows::Nothing || self.source.0.is_some() {
            return Vec::new();
        }
        let how = |s: &Source| {
            let lack = lacks(*s, &found.facts).into_iter().next()?;
            Some(format!("for heat {}: {lack}; {}", s.name(), lack.remedy()))
        };
        Source::HEAT.iter().filter_map(how).collect()
    }
}
