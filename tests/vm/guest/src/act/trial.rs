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
    let metric = format!(
        "tr ' ' '\\n' < /proc/{pid}/numa_maps | sed -n 's/^N{slow}=//p' | \
         awk '{{ sum += $1 }} END {{ print sum + 0 }}'"
    );
    // By what it grows in each window: orders that were on their way are carried out between two.
    let ask = ["--pid", &pid, "--metric", &metric, "--counter", "--better", "lower"];
    let more = ["--window", "8s", "--windows", "8", "--seed", "3"];
    let (told, words) = trial(&[&ask[..], &more].concat())?;
    let windows = told["windows"].as_array().context("windows")?;
    for (i, window) in windows.iter().enumerate() {
        let a_second = window["value"].as_f64().context("a value")?;
        // A page of its stack may come or go.
        ensure!(
            window["with"] == true || a_second.abs() <= 1.0,
            "window {i} is one without, and {a_second} pages moved a second: {told}"
        );
    }
    let last = scene.there(busy.pid())? as f64;
    ensure!(last < there / 2.0, "of {there} pages {last} are still on node {slow}: {told} {words}");
    let all: Vec<_> = windows.iter().map(|w| json!([w["with"], w["value"]])).collect();
    Ok(json!({"pages on the slow node": there, "windows": all, "verdict": told["verdict"]}))
}
