//! What kernels do in the script of scheduling, written down: `tests/vm/sched/KERNEL.TOPOLOGY.txt`.
//!
//! ```text
//! nine boots ──▶ nine texts ──▶ one: lines that all have, and behind `?` those that differ
//! ```
//!
//! Time in these guests is counted in instructions, so that a boot can be repeated exactly;
//! the nine are made to differ, in QEMU's random numbers and in where the script begins
//! between two ticks. A step in which they come to the same does not hang on that.
//!
//! Source: specs/end-to-end.md#judged

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::guest::{self, Verdict};
use super::kernels::{self, Kernel};
use super::topology::{Clock, Topology};
use super::{All, base, busybox, initramfs, tail};
use crate::workspace::{Workspace, made};
use crate::{Ending, abreast};

/// Boots of each kernel on each machine.
const BOOTS: usize = 9;
/// The test whose facts have the text.
const TEST: &str = "sched-script";
/// Of a script's steps so many in a hundred have to be the same in all boots.
const SAME_MIN: usize = 80;

#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Only this kernel
    #[arg(long)]
    kernel: Option<String>,
    /// Only this machine
    #[arg(long)]
    topology: Option<String>,
    /// Guests side by side; one for each CPU unless told
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

fn path(root: &Path, kernel: &Kernel, topology: &Topology) -> PathBuf {
    root.join(format!("tests/vm/sched/{}.{}.txt", kernel.name, topology.name))
}

/// What was recorded of a kernel on a machine, if it was.
pub(super) fn recorded(
    root: &Path,
    kernel: &Kernel,
    topology: &Topology,
) -> Result<Option<String>> {
    let path = path(root, kernel, topology);
    if !path.is_file() {
        return Ok(None);
    }
    fs::read_to_string(&path).map(Some).with_context(|| format!("can't read {}", path.display()))
}

pub(super) fn run(ws: &Workspace, all: &All, options: &Options) -> Result<Ending> {
    let topologies: Vec<&Topology> = match &options.topology {
        Some(name) => vec![all.topology(name)?],
        None => all.topologies.iter().collect(),
    };
    let kernels: Vec<&Kernel> = match &options.kernel {
        Some(name) => vec![all.kernel(name)?],
        None => all.kernels.iter().collect(),
    };
    let base = base(ws, &busybox()?)?;
    let folder = ws.folder("vm")?;
    let jobs = options.jobs.map_or_else(abreast::cpus, NonZeroUsize::get);
    let mut ending = Ending::Done;
    for kernel in kernels {
        let image = kernels::have(&all.cache, kernel)?.image;
        let counted = |topology: &&&Topology| topology.clock == Clock::Instructions;
        for topology in topologies.iter().filter(counted) {
            let boot = |boot: &usize| one(kernel, topology, &image, &base, &folder, *boot);
            let boots: Vec<usize> = (0..BOOTS).collect();
            let texts: Vec<(String, String)> =
                abreast::each(jobs, &boots, boot).into_iter().collect::<Result<_>>()?;
            let release = &texts[0].0;
            let found: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
            let merged = merge(&found)?;
            let (same, steps) = (merged.steps - merged.different, merged.steps);
            let head = format!(
                "What a real kernel does in the script of scheduling (specs/end-to-end.md#script), \
                 {BOOTS} boots.\n`cargo xtask vm record` writes it.\n\
                 kernel {release}\nmachine {}\n{same} of {steps} steps were the same in all boots\n\n",
                topology.name
            );
            let path = path(&ws.root, kernel, topology);
            made(path.parent().context("a file without a folder")?.to_path_buf())?;
            fs::write(&path, head + &merged.text)
                .with_context(|| format!("can't write {}", path.display()))?;
            println!("{} ({release}), {}: {same} of {steps} steps", kernel.name, topology.name);
            if same * 100 < steps * SAME_MIN {
                println!("  that is less than {SAME_MIN} in a hundred");
                ending = Ending::Failed;
            }
        }
    }
    Ok(ending)
}

/// One boot: the kernel's release and the script's text.
fn one(
    kernel: &Kernel,
    topology: &Topology,
    image: &Path,
    base: &[u8],
    folder: &Path,
    boot: usize,
) -> Result<(String, String)> {
    let folder = made(folder.join(format!("record.{}.{}.{boot}", kernel.name, topology.name)))?;
    let initramfs = initramfs(base, topology, &[], None, &folder)?;
    let left = guest::run(topology, kernel, image, &initramfs, boot, &[TEST.to_owned()], &folder)?;
    let what = format!("{}, {}, boot {boot}", kernel.name, topology.name);
    let Some(told) = left.told.first() else {
        eprint!("{}", tail(&left.console));
        bail!("{what}: the guest told nothing: {:?}", left.ending);
    };
    match &told.verdict {
        Verdict::Passed => {}
        Verdict::Failed(why) | Verdict::Skipped(why) => {
            eprint!("{}", tail(&left.console));
            bail!("{what}: {why}");
        }
    }
    let text = told.facts["text"].as_str().with_context(|| format!("{what}: no text"))?;
    let release = left.release.with_context(|| format!("{what}: no release"))?;
    Ok((release, text.to_owned()))
}

/// Several boots in one text.
#[derive(Debug, PartialEq, Eq)]
struct Merged {
    text: String,
    steps: usize,
    /// Steps in which a task's line was not the same in all of them.
    different: usize,
}

/// Sections: head, and lines behind it.
fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("## "), all.last_mut()) {
            (Some(head), _) => all.push((head, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    all
}

/// Lines of tasks have to be the same in all texts; of lines of CPUs, which begin with `-`,
/// those are kept that are.
fn merge(texts: &[&str]) -> Result<Merged> {
    let boots: Vec<_> = texts.iter().map(|text| sections(text)).collect();
    let steps = boots.first().map_or(0, Vec::len);
    ensure!(boots.iter().all(|boot| boot.len() == steps), "boots have different steps");
    let mut merged = Merged { text: String::new(), steps, different: 0 };
    for k in 0..steps {
        let head = boots[0][k].0;
        ensure!(boots.iter().all(|boot| boot[k].0 == head), "boots have different steps {k}");
        let _ = writeln!(merged.text, "## {head}");
        let lines = |boot: usize| boots[boot][k].1.iter().copied();
        let of_tasks = |boot: usize| lines(boot).filter(|line| !line.starts_with("- "));
        let same = (1..boots.len()).all(|boot| of_tasks(boot).eq(of_tasks(0)));
        merged.different += usize::from(!same);
        let mut seen: Vec<&str> = Vec::new();
        for line in (0..boots.len()).flat_map(lines) {
            if seen.contains(&line) {
                continue;
            }
            seen.push(line);
            let had = (0..boots.len()).filter(|boot| lines(*boot).any(|other| other == line));
            let had = had.count();
            let cpu = line.starts_with("- ");
            if (same && !cpu) || (cpu && had == boots.len()) {
                let _ = writeln!(merged.text, "{line}");
            } else if !cpu {
                let _ = writeln!(merged.text, "? {had} of {}: {line}", boots.len());
            }
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_boots_have_in_common_is_kept_and_the_rest_is_listed() {
        let one = "## 0 x\na cpu 1 nr_wakeups 1\n- cpu0 ttwu_count 1\n- cpu1 ttwu_count 2\n\
                   ## 1 y\na cpu 1\nb cpu 2\n";
        let two = "## 0 x\na cpu 1 nr_wakeups 1\n- cpu0 ttwu_count 4\n- cpu1 ttwu_count 2\n\
                   ## 1 y\na cpu 3\nb cpu 2\n";
        let merged = merge(&[one, two, one]).unwrap();
        let want = "## 0 x\na cpu 1 nr_wakeups 1\n- cpu1 ttwu_count 2\n\
                    ## 1 y\n? 2 of 3: a cpu 1\n? 3 of 3: b cpu 2\n? 1 of 3: a cpu 3\n";
        assert_eq!(merged, Merged { text: want.to_owned(), steps: 2, different: 1 });
        assert!(merge(&[one, "## 0 x\n"]).is_err());
        assert!(merge(&[one, &one.replace("1 y", "1 z")]).is_err());
    }
}
