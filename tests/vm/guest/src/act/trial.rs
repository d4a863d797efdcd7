//! `homenode act --trial` where pages really move.
//!
//! Source: specs/act.md#trial.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Scene;
use crate::TestResult;
use crate::asked::Asked;
use crate::observe::Busy;

/// Of the lines that homenode printed, on either stream: that of the trial.
fn trial(args: &[&str]) -> Result<(Value, String)> {
    let output =
        Command::new("/bin/homenode").args(["act", "--trial", "--json"]).args(args).output()?;
    let mut words = String::from_utf8_lossy(&output.stderr).into_owned();
    words += &String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "act --trial: {}: {words}", output.status);
    let line = words.lines().find(|l| l.contains(r#""what":"trial""#));
    let told = line.with_context(|| format!("no word of the trial: {words}"))?;
    Ok((serde_json::from_str(told).context("JSON lines")?, words))
}

/// Values of windows, with or without.
fn values(told: &Value, with: bool) -> Result<Vec<f64>> {
    let windows = told["windows"].as_array().context("windows")?;
    let some = windows.iter().filter(|w| w["with"] == with);
    some.map(|w| w["value"].as_f64().context("a value")).collect()
}

/// A program whose memory begins on the slow node each time, and how much of it is on fast
/// ones at its end: time means little in an emulated guest.
pub(crate) fn trial_pays(asked: &Asked) -> TestResult {
    let scene = Scene::set(asked)?;
    let own = std::env::current_exe().context("our own file")?.display().to_string();
    let node = scene.slow.to_string();
    let program = ["--metric", "cat /tmp/share", "--windows", "10", "--", &own, "--load", "4096"];
    let (told, words) = trial(&[&program[..], &[&node, "15000", "/tmp/share"]].concat())?;
    let (with, without) = (values(&told, true)?, values(&told, false)?);
    ensure!(without == [0.0; 5], "something moved in windows without: {told}");
    let moved = with.iter().filter(|share| **share >= 50.0).count();
    // DAMON sees nothing at times in a guest.
    ensure!(moved >= 3, "of five windows it moved in {moved}: {told}");
    ensure!(told["verdict"] != "harms", "{told}");
    ensure!(moved < 4 || told["verdict"] == "pays", "{told}");
    ensure!(words.contains("in this order (seed 1): "), "the order was not said: {words}");
    scene.holds("a trial")?;
    Ok(json!({"with": with, "without": without, "test": told["test"], "verdict": told["verdict"]}))
}

/// A process that goes on: in windows without nothing is moved, and looking goes on.
pub(crate) fn trial_holds(asked: &Asked) -> TestResult {
    let scene = Scene::set(asked)?;
    let slow = scene.slow;
    let busy = Busy::on(slow)?;
    let pid = busy.pid().to_string();
    let there = scene.there(busy.pid())? as f64;
    // Without a metric there is nothing to judge by: DAMON samples no accesses.
    let output = Command::new("/bin/homenode").args(["act", "--trial", "--pid", &pid]).output()?;
    let refused = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(3), "without a metric: {}: {refused}", output.status);
    ensure!(refused.contains("benefit not measurable here"), "{refused}");
    // A window begins with a count and ends with one, each of which is kept.
    let kept = "/tmp/pages-there";
    let metric = format!(
        "tr ' ' '\\n' < /proc/{pid}/numa_maps | sed -n 's/^N{slow}=//p' | \
         awk '{{ sum += $1 }} END {{ print sum + 0 }}' | tee -a {kept}"
    );
    let ask = ["--pid", &pid, "--metric", &metric, "--better", "lower"];
    let more = ["--window", "8s", "--windows", "8", "--seed", "3"];
    let (told, words) = trial(&[&ask[..], &more].concat())?;
    let windows = told["windows"].as_array().context("windows")?;
    let text = std::fs::read_to_string(kept)?;
    let counts: Vec<f64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    // The first was a try.
    let ends: Vec<&[f64]> = counts.get(1..).unwrap_or_default().chunks_exact(2).collect();
    ensure!(ends.len() == 8 && windows.len() == 8, "eight windows: {counts:?}, {told}");
    // A page of its stack may come or go. What is on its way when a window with ends comes before the
    // next one begins, so between two windows it may be more, unless both are without.
    let alike = |a: f64, b: f64| (a - b).abs() <= 8.0;
    let without: Vec<bool> = windows.iter().map(|w| w["with"] == false).collect();
    for (i, window) in ends.iter().enumerate().filter(|(i, _)| without[*i]) {
        let (begin, end) = (window[0], window[1]);
        ensure!(alike(begin, end), "window {i} is without, and pages moved: {counts:?}, {told}");
        if i > 0 && without[i - 1] {
            let before = ends[i - 1][1];
            ensure!(alike(before, begin), "between {} and {i}: {counts:?}, {told}", i - 1);
        }
    }
    let last = scene.there(busy.pid())? as f64;
    ensure!(last < there / 2.0, "of {there} pages {last} are still on node {slow}: {told} {words}");
    let all: Vec<_> = windows.iter().map(|w| json!([w["with"], w["value"]])).collect();
    Ok(json!({"pages on the slow node": there, "windows": all, "counts": counts,
        "verdict": told["verdict"]}))
}
