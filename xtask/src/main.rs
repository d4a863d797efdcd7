//! Every chore, in Rust: `cargo xtask` lists them.
//!
//! Exit codes are the project's: 0 done, 1 a check failed, 2 bad usage,
//! 3 the system lacks something.
#![forbid(unsafe_code)]

mod abreast;
mod bench;
mod ci;
mod circles;
mod citations;
mod demo;
mod guide;
mod markdown;
mod scenarios;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use workspace::{Profile, Workspace};

/// Every chore of the homenode workspace.
#[derive(Debug, clap::Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, clap::Subcommand)]
enum Chore {
    /// The homenode command and its recorder, into target/release
    Build,
    /// Measure this machine, record sqlite3, replay it on a machine with a CXL node
    Demo(demo::Options),
    /// What CI runs
    #[command(alias = "prepush")]
    Ci,
    /// The tree: stray paths, stubs, big files, citations, crate arrows, licences
    Tidy,
    /// Each benchmark beside its peer
    Bench(bench::Options),
    /// Write README.md and docs/guide anew where commands print something else
    Guide(guide::Options),
    /// Real kernels on emulated machines of several nodes
    #[command(subcommand)]
    Vm(vm::Options),
}

/// How a chore ended, when nothing kept it from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    /// A check or a goal failed; it has been said which.
    Failed,
}

/// What an error says about itself beside its text: the system lacks something.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lacks(String);

/// The same: what was asked for doesn't exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misused(String);

fn main() -> ExitCode {
    match Args::parse().chore.run() {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            if error.is::<Misused>() {
                ExitCode::from(2)
            } else if error.is::<Lacks>() {
                ExitCode::from(3)
            } else {
                ExitCode::from(1)
            }
        }
    }
}

impl Chore {
    fn run(&self) -> Result<Ending> {
        let ws = Workspace::load()?;
        match self {
            Self::Build => ws.build(Profile::Release).map(|()| Ending::Done),
            Self::Demo(options) => demo::run(&ws, options),
            Self::Ci => ci::run(&ws),
            Self::Tidy => tidy::run(&ws),
            Self::Bench(options) => bench::run(&ws, options, Profile::Release),
            Self::Guide(options) => guide::run(&ws, options),
            Self::Vm(options) => vm::run(&ws, options),
        }
    }
}
