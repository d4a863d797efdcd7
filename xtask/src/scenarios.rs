//! Every scenario twice, and once with another number of workers: the same bytes.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::{Profile, Workspace, files, text_of};

/// How a scenario is run here: several seeds, so that there is work to share.
const ARGS: &[&str] = &["--seeds", "2", "--json"];

/// The option that says how many seeds are run at once.
const WORKERS: &str = "--jobs";

/// Runs all scenarios; returns how many there are. An error names those whose
/// output differed.
pub(crate) fn check(ws: &Workspace, profile: Profile) -> Result<usize> {
    let files = files(&ws.root.join("scenarios"), "toml")?;
    let homenode = ws.homenode(profile)?;
    let mut differing = Vec::new();
    for file in &files {
        let run = |workers: &str| {
            text_of(
                Command::new(&homenode)
                    .current_dir(&ws.root)
                    .arg("sim")
                    .arg(file)
                    .args(ARGS)
                    .args([WORKERS, workers]),
            )
        };
        let first = run("1")?;
        if first.trim().is_empty() {
            bail!("{}: the simulation printed nothing", file.display());
        }
        for (what, again) in [("a second run", run("1")?), ("two workers", run("2")?)] {
            if again != first {
                differing.push(format!("{}: {what} printed something else", file.display()));
            }
        }
    }
    if !differing.is_empty() {
        bail!("{}", differing.join("\n"));
    }
    Ok(files.len())
}
