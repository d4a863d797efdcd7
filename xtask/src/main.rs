//! Every chore, in Rust: `cargo xtask` lists them.
//!
//! Exit codes are the project's: 0 done, 1 a check failed, 2 bad usage,
//! 3 the system lacks something.
#![forbid(unsafe_code)]

mod bench;
mod ci;
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
use workspace::{Profile, Workspace};

const USAGE: &str = "\
Usage: cargo xtask CHORE

  build                  the homenode command and its recorder, into target/release
  demo                   measure this machine, record sqlite3, replay it on a machine with a CXL node
  ci, prepush            what CI runs
  tidy                   the tree: stray paths, stubs, big files, citations, crate arrows,
                         licences
  bench [NAME...]        each benchmark beside its peer
        --json           ends each with {\"name\",\"ours\",\"peer\",\"unit\",\"ratio\",\"goal\",\"pass\"}
        --tiny           seconds instead of minutes; goals are not judged
";

/// How a chore ended, when nothing kept it from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Done,
    /// A check or a goal failed; it has been said which.
    Failed,
}

/// What an error says about itself beside its text: the system lacks something.
#[derive(Debug)]
struct Lacks(String);

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lacks {}

/// The same: what was asked for doesn't exist.
#[derive(Debug)]
struct Misused(String);

impl std::fmt::Display for Misused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misused {}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = match args.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("help", &args[..]),
    };
    let takes_arguments = matches!(chore, "bench" | "guide" | "vm");
    if !takes_arguments && !rest.is_empty() {
        return usage(&format!("`{chore}` takes no arguments, got `{}`", rest.join(" ")));
    }
    let ending = match chore {
        "help" | "--help" | "-h" => {
            println!("{USAGE}{}{}  help", guide::USAGE, vm::USAGE);
            return ExitCode::SUCCESS;
        }
        "build" => in_workspace(|ws| ws.build(Profile::Release).map(|()| Ending::Done)),
        "demo" => in_workspace(demo::run),
        "ci" | "prepush" => in_workspace(ci::run),
        "tidy" => in_workspace(tidy::run),
        "bench" => match bench::Options::parse(rest) {
            Ok(options) => in_workspace(|ws| bench::run(ws, &options)),
            Err(message) => return usage(&message),
        },
        "guide" => match guide::Options::parse(rest) {
            Ok(options) => in_workspace(|ws| guide::run(ws, &options)),
            Err(message) => return usage(&message),
        },
        "vm" => match vm::Options::parse(rest) {
            Ok(options) => in_workspace(|ws| vm::run(ws, &options)),
            Err(message) => return usage(&message),
        },
        other => return usage(&format!("there is no chore `{other}`")),
    };
    match ending {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask {chore}: {error:#}");
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

fn in_workspace(chore: impl FnOnce(&Workspace) -> Result<Ending>) -> Result<Ending> {
    chore(&Workspace::load()?)
}

fn usage(message: &str) -> ExitCode {
    eprintln!("xtask: {message}\n\n{USAGE}{}{}  help", guide::USAGE, vm::USAGE);
    ExitCode::from(2)
}
