//! Every scenario twice, with one worker and with two: the same bytes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::abreast;
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
    let run = |(file, workers): &(&PathBuf, &str)| {
        let mut command = Command::new(&homenode);
        command.current_dir(&ws.root).arg("sim").arg(file).args(ARGS).args([WORKERS, workers]);
        text_of(&mut command)
    };
    let runs: Vec<_> = files.iter().flat_map(|f| ["1", "2"].map(|n| (f, n))).collect();
    let printed: Vec<String> =
        abreast::each(abreast::cpus(), &runs, run).into_iter().collect::<Result<_>>()?;
    let mut differing = Vec::new();
    for (file, printed) in files.iter().zip(printed.chunks(2)) {
        let [first, two] = printed else { bail!("a scenario runs twice") };
        if first.trim().is_empty() {
            bail!("{}: the simulation printed nothing", file.display());
        }
        if two != first {
            let again = run(&(file, "1"))?;
            let what = if again == *first { "two workers" } else { "a second run" };
            differing.push(format!("{}: {what} printed something else", file.display()));
        }
    }
    if !differing.is_empty() {
        bail!("{}", differing.join("\n"));
    }
    Ok(files.len())
}
