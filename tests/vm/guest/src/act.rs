//! `homenode act`, `ledger` and `restore` on a machine of several nodes.
//!
//! Source: specs/act.md.

mod begin;
mod beside;
mod burst;
mod faults;
mod floor;
mod full;
mod limits;
mod peers;
mod rights;
mod service;
mod story;
mod threads;
mod throughput;
mod trial;

pub(crate) use begin::begin;
pub(crate) use beside::run as beside;
pub(crate) use burst::burst;
pub(crate) use faults::faults;
pub(crate) use floor::floor;
pub(crate) use full::full;
pub(crate) use limits::limits;
pub(crate) use peers::peers;
pub(crate) use rights::least;
pub(crate) use service::{become_systemd, is_first, service};
pub(crate) use story::story;
pub(crate) use threads::threads;
pub(crate) use throughput::throughput;
pub(crate) use trial::{trial_holds, trial_pays};

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use homenode_core::splitmix::SplitMix;
use serde_json::{Value, json};

use crate::advise::{by_node, knobs};
use crate::asked::Asked;
use crate::commands::homenode;
use crate::damon::Module;
use crate::observe::{Busy, Still, offers};
use crate::stage::vmstat;
use crate::topology::release;
use crate::{TestResult, needs, skip};

const JOURNAL: &str = "/run/homenode/act.journal";
const LEDGER: &str = "/var/lib/homenode/ledger.jsonl";
/// A guest's CPU may keep translations and with them accessed bits to itself, so that DAMON
/// sees nothing: it is acted so often.
const TIMES: usize = 4;
/// Pages that are touched for less than the start delay.
const BURST: u64 = 256;

/// The last line that `homenode act` prints, and its words.
fn act(args: &[&str]) -> Result<(Value, String)> {
    let output = Command::new("/bin/homenode").arg("act").args(args).output()?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "act {}: {}: {words}", args.join(" "), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().with_context(|| format!("act printed nothing: {words}"))?;
    let end: Value = serde_json::from_str(last).context("JSON lines")?;
    ensure!(end["what"] == "end", "the last line is no end: {end}");
    Ok((end, text.into_owned()))
}

/// Rows of the ledger that were written since it had so many lines.
fn ledger(before: usize) -> Result<Vec<Value>> {
    let output = Command::new("/bin/homenode").args(["ledger", "--json"]).output()?;
    ensure!(output.status.success(), "ledger: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().skip(before).map(serde_json::from_str);
    Ok(rows.collect::<Result<_, _>>()?)
}

fn lines() -> usize {
    fs::read_to_string(LEDGER).map_or(0, |text| text.lines().count())
}

/// A guest in which what is hot comes up, and nobody but homenode sees to that.
struct Scene {
    slow: usize,
    /// As they were.
    knobs: Vec<Option<String>>,
    _still: Still,
    _module: Module,
}

impl Scene {
    fn set(asked: &Asked) -> Result<Self> {
        let slow = slow_node(asked)?;
        let (still, module) = (Still::now()?, Module::off()?);
        needs(offers("damon")?, "no source of heat: nothing is moved")?;
        Ok(Self { slow, knobs: knobs(), _still: still, _module: module })
    }
    /// Pages of a process that are on the slow node.
    fn there(&self, pid: u32) -> Result<u64> {
        Ok(by_node(pid)?.get(self.slow).copied().unwrap_or(0))
    }
    /// Whether nothing is left behind but pages.
    fn holds(&self, what: &str) -> Result<()> {
        ensure!(knobs() == self.knobs, "{what}: {:?}, before: {:?}", knobs(), self.knobs);
        ensure!(!Path::new(JOURNAL).exists(), "{what}: a journal is left");
        Ok(())
    }
}

fn slow_node(asked: &Asked) -> Result<usize> {
    let slow = asked.nodes.iter().position(|node| node.cpus.is_empty());
    slow.ok_or_else(|| skip("no slow node: heat alone moves nothing"))
}

pub(crate) fn hot_set_comes_up(asked: &Asked) -> TestResult {
    let slow = slow_node(asked)?;
    let _still = Still::now()?;
    let module = Module::off()?;
    if !offers("damon")? {
        let busy = Busy::on(slow)?;
        let output = Command::new("/bin/homenode")
            .args(["act", "--pid", &busy.pid().to_string(), "--for", "2s"])
            .output()?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(3), "without heat: {}: {words}", output.status);
        ensure!(words.contains("nothing is moved on a guess"), "{words}");
        ensure!(!Path::new(JOURNAL).exists(), "there is a journal of nothing");
        return Ok(json!({"without heat": "refused"}));
    }
    let (busy, burst) = (Busy::on(slow)?, Busy::with(BURST, slow, 50)?);
    let there = |pid: u32| -> Result<u64> { Ok(by_node(pid)?.get(slow).copied().unwrap_or(0)) };
    let (hot, young) = (there(busy.pid())?, there(burst.pid())?);
    let (pid, other) = (busy.pid().to_string(), burst.pid().to_string());
    let (before, knobs_before, lines) = (vmstat("pgmigrate_success")?, knobs(), lines());
    let (mut ours, mut shares) = (0, json!(null));
    for _ in 0..TIMES {
        let (end, text) = act(&["--pid", &pid, "--pid", &other, "--for", "20s", "--json"])?;
        ours += end["moved_bytes"].as_u64().context("moved_bytes")? / 4096;
        for line in text.lines() {
            let row: Value = serde_json::from_str(line)?;
            if row["what"] == "process" && row["pid"] == busy.pid() {
                shares = json!([row["fast_before_percent"], row["fast_now_percent"]]);
            }
        }
        if there(busy.pid())? < hot / 4 {
            break;
        }
    }
    let (hot_now, young_now) = (there(busy.pid())?, there(burst.pid())?);
    ensure!(hot_now < hot / 4, "of {hot} hot pages {hot_now} are still on node {slow}");
    ensure!(young_now == young, "of {young} pages of a burst {young_now} are on node {slow}");
    ensure!(knobs() == knobs_before, "knobs: {knobs_before:?}, then {:?}", knobs());
    ensure!(!Path::new(JOURNAL).exists(), "a journal is left");
    // Each move is in the ledger, and all of it is what the kernel has counted.
    let grown = vmstat("pgmigrate_success")?.saturating_sub(before);
    let mut by_mover = BTreeMap::<String, u64>::new();
    for row in ledger(lines)? {
        let mover = row["mover"].as_str().context("mover")?.to_owned();
        *by_mover.entry(mover).or_default() += row["moved_bytes"].as_u64().context("bytes")? / 4096;
        ensure!(row["pid"] != burst.pid(), "the burst was touched: {row}");
        ensure!(row["mover"] != "homenode" || row["pid"] == busy.pid(), "somebody else: {row}");
    }
    let told: u64 = by_mover.values().sum();
    ensure!(by_mover.get("homenode") == Some(&ours), "{ours} pages by homenode: {by_mover:?}");
    ensure!(ours >= hot - hot_now, "{} pages have gone, {ours} are told", hot - hot_now);
    ensure!(told <= grown && told >= ours, "{grown} pages counted, told: {by_mover:?}");
    let (was, is) = (shares[0].as_f64(), shares[1].as_f64());
    if let (Some(was), Some(is)) = (was, is) {
        ensure!(is > was, "less on fast nodes than before: {shares}");
    }
    drop(module);
    Ok(
        json!({"hot": [hot, hot_now], "burst": young_now, "moved": by_mover, "counted": grown, "fast_percent": shares}),
    )
}

/// A homenode that has set the kernel's knobs.
fn setter() -> Result<Child> {
    let mut command = Command::new("/bin/homenode");
    command.args(["act", "--engine", "kernel", "--all", "--yes", "--json"]);
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn until(what: &str, holds: &dyn Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(60) {
            bail!("{what} did not come about");
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// On this kernel homenode is killed fifty times in all, on others fifteen times: each takes seconds.
const THOROUGH: (u32, u32) = (6, 12);

pub(crate) fn kernel(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: nowhere to move to")?;
    let _still = Still::now()?;
    let before = knobs();
    let mut child = setter()?;
    until("knobs that are set", &|| knobs() != before)?;
    sleep(Duration::from_millis(300));
    let set = knobs();
    signal(&child, libc::SIGTERM);
    ensure!(child.wait()?.success(), "it failed");
    ensure!(knobs() == before, "put back: {:?}, before: {before:?}", knobs());
    // SIGKILL, somewhere between its start and the watching.
    let mut random = SplitMix::new(21);
    let mut left = 0;
    let kills = if release()? == THOROUGH { 40 } else { 10 };
    for i in 0..kills {
        let mut child = setter()?;
        if i % 2 == 0 {
            until("knobs that are set", &|| knobs() != before)?;
        }
        sleep(Duration::from_millis(random.next() % 200));
        child.kill()?;
        child.wait()?;
        left += u32::from(knobs() != before);
        homenode(&["restore"])?;
        ensure!(knobs() == before, "kill {i}: {:?}, before: {before:?}", knobs());
        ensure!(!Path::new(JOURNAL).exists(), "kill {i}: a journal is left");
    }
    ensure!(left >= kills / 2, "of {kills} kills only {left} found knobs of ours");
    Ok(json!({"set": set, "killed with knobs set": left, "of": kills}))
}

pub(crate) fn killed(asked: &Asked) -> TestResult {
    let scene = Scene::set(asked)?;
    let mut random = SplitMix::new(4);
    let mut moving = 0;
    let kills = if release()? == THOROUGH { 10 } else { 5 };
    for i in 0..kills {
        let mut busy = Busy::on(scene.slow)?;
        let pid = busy.pid().to_string();
        let lines = lines();
        let mut child = Command::new("/bin/homenode")
            .args(["act", "--pid", &pid, "--json"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Most of them until something was moved.
        let begun = Instant::now();
        while i > 0 && self::lines() == lines && begun.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(20));
        }
        sleep(Duration::from_millis(random.next() % 1000));
        child.kill()?;
        child.wait()?;
        moving += u32::from(self::lines() > lines);
        ensure!(busy.lives()?, "kill {i}: the process ended with it");
        homenode(&["restore"])?;
        scene.holds(&format!("kill {i}"))?;
    }
    drop(scene);
    ensure!(moving >= kills / 2, "of {kills} kills only {moving} came after a move");
    // What was written before the kill can be read.
    let rows = ledger(0)?.len();
    Ok(json!({"killed while moving": moving, "of": kills, "rows": rows}))
}
