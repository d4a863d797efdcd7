//! A cgroup's floor while the fast node is full and somebody else wants its memory.
//!
//! ```text
//!   fast node                                  slow node
//!   ┌────────────────────────────────┐        ┌───────────────────────────┐
//!   │ /keeps: 80 MiB, cold; 64 stay  │  ──▶   │ hot: 80 MiB, written      │
//!   │ rest: nobody's affair          │  ◀──   │ all the time              │
//!   └────────────────────────────────┘        └───────────────────────────┘
//! ```
//!
//! Source: specs/act.md#limits.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Scene;
use super::beside::{BEGINS_MS, Beside, Knob, SPARE};
use super::full::{above_low, fast_node};
use super::limits::Group;
use crate::TestResult;
use crate::asked::Asked;
use crate::observe::Busy;

/// Pages of the group, those that it keeps, and those that somebody else wants.
const HAS: u64 = 20_480;
const FLOOR: u64 = 16_384;
const WANTED: u64 = 20_480;
/// Nothing goes any more once nothing has gone for so long: by the floor, and above it, where a slow
/// machine's orders may be far apart.
const RESTS: Duration = Duration::from_secs(6);
const RESTS_ABOVE: Duration = Duration::from_secs(40);
/// How long it may take; many times what it does.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pages of the group on a node, as the kernel counts them.
fn has(node: usize) -> Result<u64> {
    let text = fs::read_to_string("/sys/fs/cgroup/keeps/memory.numa_stat")?;
    let lines = text.lines().filter(|l| l.starts_with("anon ") || l.starts_with("file "));
    let on = format!("N{node}=");
    let bytes = lines.flat_map(str::split_whitespace).filter_map(|w| w.strip_prefix(&on));
    Ok(bytes.filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() / 4096)
}

pub(crate) fn floor(asked: &Asked) -> TestResult {
    let (fast, cpus) = fast_node(asked)?;
    let scene = Scene::set(asked)?;
    let _lists = Knob::set("/proc/sys/vm/percpu_pagelist_high_fraction", "2000")?;
    let group = Group::with("/keeps", std::process::id())?;
    // A process is counted for where its memory came to be.
    let keeps = Busy::with(HAS, fast, BEGINS_MS);
    fs::write("/sys/fs/cgroup/cgroup.procs", std::process::id().to_string()).context("back")?;
    let keeps = keeps?;
    let hot = Beside::wanders(WANTED, 1, scene.slow, &cpus[..1])?;
    let above = above_low(fast)?;
    let fill = above.saturating_sub(above / 512 + SPARE);
    let _rest = Busy::with(fill, fast, 0)?;
    sleep(Duration::from_millis(BEGINS_MS));
    let begins = has(fast)?;
    ensure!(begins.abs_diff(HAS) <= HAS / 50, "{HAS} pages are there, {begins} counted");

    let (config, whom) = ("/tmp/floor.toml", [hot.pid(), keeps.pid()].map(|pid| pid.to_string()));
    let text = "[[cgroup]]\npath = \"/keeps\"\nfloor = \"64 MiB\"\n";
    fs::write(config, text).context(config)?;
    // The least that the group has had, until it is enough; and homenode's words.
    let run = |more: &[&str], enough: &dyn Fn(u64, Duration) -> bool| -> Result<(u64, String)> {
        let mut command = Command::new("/bin/homenode");
        command.args(["act", "--pid", &whom[0], "--pid", &whom[1]]).args(more).arg("--json");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (begun, mut least, mut since) = (Instant::now(), u64::MAX, Instant::now());
        while begun.elapsed() < PATIENCE && !enough(least, since.elapsed()) {
            sleep(Duration::from_millis(200));
            let now = has(fast)?;
            if now < least {
                (least, since) = (now, Instant::now());
            }
        }
        super::signal(&child, libc::SIGTERM);
        let output = child.wait_with_output()?;
        let words =
            [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
        ensure!(output.status.success(), "act: {}", words[0]);
        Ok((least.min(has(fast)?), words.concat()))
    };
    // Until something has gone, and then nothing more for some time.
    let rests = |least: u64, still: Duration| {
        let enough = if least <= FLOOR + 4 * SPARE { RESTS } else { RESTS_ABOVE };
        least < begins - SPARE && still >= enough
    };
    let (least, words) = run(&["--config", config], &rests)?;
    // The kernel adds up every two seconds.
    sleep(Duration::from_secs(3));
    let kept = has(fast)?;
    ensure!(least.min(kept) >= FLOOR, "of {FLOOR} pages {least} were left, then {kept}: {words}");
    ensure!(words.contains("by the floor of /keeps"), "nobody wanted the floor: {words}");
    // Without the floor the same one goes on below it.
    let (without, words) = run(&[], &|least, _| least < FLOOR - SPARE)?;
    ensure!(without < FLOOR, "without a floor {without} pages are left, {kept} before: {words}");
    scene.holds("a floor")?;
    drop((keeps, hot, group));
    Ok(json!({"had": begins, "floor": FLOOR, "least": least, "kept": kept, "without": without}))
}
