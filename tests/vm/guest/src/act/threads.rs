//! S0's other half: a thread whose memory is on another node, and too much to be moved after it,
//! comes home.
//!
//! ```text
//!   node 0                          node 1
//!   ┌──────────────────────┐       ┌──────────────────────────┐
//!   │ 160 MiB, in use      │  ◀──  │ the thread that uses it  │
//!   └──────────────────────┘       └──────────────────────────┘
//! ```
//!
//! It may run on all CPUs before and afterwards; who has bound itself to its node stays there.
//! The kernel does not balance: where a thread runs that never sleeps is homenode's doing.
//!
//! Source: specs/act.md#threads, specs/end-to-end.md#s0

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{JOURNAL, ledger, lines};
use crate::advise::by_node;
use crate::asked::Asked;
use crate::damon::Module;
use crate::observe::{Busy, Still, offers};
use crate::process::pin;
use crate::{TestResult, needs, skip};

/// Moving them takes ten times as long as filling a last level of 16 MiB anew.
const PAGES: u64 = 40_960;
/// Pages of a thread that is bound: too few, had it been free, to be worth anything.
const FEW: u64 = 256;
/// How long it may take to come home; many times what it does.
const PATIENCE: Duration = Duration::from_secs(150);
/// For how long it must stay there afterwards, with its own CPUs again.
const STAYS: Duration = Duration::from_secs(3);
const THREADS: &str = "/run/homenode/threads.journal";

/// The CPU that a process's first thread ran on last: field 39 of its stat.
fn cpu(pid: u32) -> Result<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit(')').next().context("a stat without a name")?;
    rest.split_whitespace().nth(36).and_then(|word| word.parse().ok()).context("a short stat")
}

/// CPUs that it may use.
fn allowed(pid: u32) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    Ok(line.context("Cpus_allowed_list")?.trim().to_owned())
}

pub(crate) fn threads(asked: &Asked) -> TestResult {
    let with_cpus: Vec<usize> =
        (0..asked.nodes.len()).filter(|&n| asked.nodes[n].cpus.len() >= 2).collect();
    let [home, away, ..] = with_cpus[..] else {
        return Err(skip("no two nodes with two CPUs each: a CPU must be idle beside this test"));
    };
    let (_still, _module) = (Still::now()?, Module::off()?);
    needs(offers("damon")?, "no source of heat: nothing is moved")?;
    let all: Vec<u32> = asked.nodes.iter().flat_map(|n| n.cpus.clone()).collect();
    pin(0, &asked.nodes[away].cpus).context("its CPUs")?;
    let both = (Busy::with(PAGES, home, 600_000), Busy::with(FEW, home, 600_000));
    pin(0, &all).context("all CPUs")?;
    let (free, bound) = (both.0?, both.1?);
    pin(free.pid(), &all).context("all CPUs for one of them")?;
    let (before, bound_before) = (allowed(free.pid())?, allowed(bound.pid())?);
    let is_home = |pid: u32| Ok::<_, anyhow::Error>(asked.nodes[home].cpus.contains(&cpu(pid)?));
    ensure!(!is_home(free.pid())?, "it is at home already");
    let there = by_node(free.pid())?[home];
    let rows = lines();
    let mut command = Command::new("/bin/homenode");
    command.args(["act", "--json", "--pid", &free.pid().to_string()]);
    command.args(["--pid", &bound.pid().to_string()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    while !is_home(free.pid())? && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(200));
    }
    let (took, came) = (begun.elapsed().as_secs(), is_home(free.pid())?);
    // While it is kept there that is on disk; then not any more.
    sleep(STAYS);
    let stays = is_home(free.pid())?;
    super::signal(&child, libc::SIGTERM);
    let output = child.wait_with_output()?;
    let words = [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
    ensure!(output.status.success(), "act: {}: {words:?}", output.status);
    ensure!(came, "it did not come home in {took} s: {words:?}");
    ensure!(stays, "it went away again: {words:?}");
    ensure!(allowed(free.pid())? == before, "it may use {}", allowed(free.pid())?);
    ensure!(allowed(bound.pid())? == bound_before, "the other: {}", allowed(bound.pid())?);
    ensure!(!is_home(bound.pid())?, "who was bound elsewhere was brought");
    let now = by_node(free.pid())?[home];
    ensure!(now >= there / 10 * 9, "of {there} pages {now} are still there");
    let rows = ledger(rows)?;
    let told: Vec<_> = rows
        .iter()
        .filter(|row| row["cause"] == "near_its_memory" && row["pid"] == free.pid())
        .collect();
    ensure!(told.iter().any(|row| row["threads"] == 1 && row["to"] == home), "{rows:?}");
    for journal in [JOURNAL, THREADS] {
        ensure!(!Path::new(journal).exists(), "{journal} is left");
    }
    Ok(json!({"seconds": took, "pages": [there, now], "orders": told.len(), "may use": before}))
}
