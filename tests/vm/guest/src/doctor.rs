//! What `homenode doctor` says of this kernel, against what happens if one tries.
//!
//! DAMON is offered exactly if a kdamond for virtual addresses then starts; hint faults
//! exactly if the kernel counts some once balancing is on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::TestResult;
use crate::asked::Asked;
use crate::commands::homenode;

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const DAMON_STAT: &str = "/sys/module/damon_stat/parameters/enabled";

fn read(path: &str) -> Result<String> {
    Ok(fs::read_to_string(path).with_context(|| format!("can't read {path}"))?.trim().to_owned())
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {text} into {path}"))
}

fn source<'a>(told: &'a Value, name: &str) -> Result<&'a Value> {
    let sources = told["sources"].as_array().context("no sources")?;
    sources.iter().find(|s| s["source"] == name).with_context(|| format!("no source `{name}`"))
}

fn offered(told: &Value, name: &str) -> Result<bool> {
    source(told, name)?["offered"].as_bool().with_context(|| format!("{name}: offered?"))
}

/// Whether a kdamond for the address space of this process really starts.
fn damon_starts() -> Result<bool> {
    if !Path::new(KDAMONDS).exists() {
        return Ok(false);
    }
    let begun = Instant::now();
    // The lock of these files may be taken for a moment, and the kernel's thread ends a moment
    // later than it is told to.
    let at_last = |name: &str, value: &str| -> Result<()> {
        while fs::write(format!("{KDAMONDS}/{name}"), value).is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "{value} into {name} is refused");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    let try_it = || -> Result<bool> {
        write(&format!("{KDAMONDS}/nr_kdamonds"), "1")?;
        let slot = format!("{KDAMONDS}/0");
        write(&format!("{slot}/contexts/nr_contexts"), "1")?;
        let context = format!("{slot}/contexts/0");
        if fs::write(format!("{context}/operations"), "vaddr").is_err() {
            return Ok(false);
        }
        write(&format!("{context}/targets/nr_targets"), "1")?;
        write(&format!("{context}/targets/0/pid_target"), &std::process::id().to_string())?;
        let on = fs::write(format!("{slot}/state"), "on").is_ok();
        if on {
            at_last("0/state", "off")?;
        }
        Ok(on)
    };
    let found = try_it();
    at_last("nr_kdamonds", "0")?;
    found
}

pub(crate) fn told_as_tried(asked: &Asked) -> TestResult {
    let before = read(BALANCING)?;
    let found = tried(asked);
    write(BALANCING, &before)?;
    found
}

fn tried(asked: &Asked) -> TestResult {
    write(BALANCING, "0")?;
    let off = homenode(&["doctor"])?;
    let nodes = off["nodes"]["list"].as_array().context("no nodes")?;
    ensure!(nodes.len() == asked.nodes.len(), "{} nodes, not {}", nodes.len(), asked.nodes.len());
    for (told, node) in nodes.iter().zip(&asked.nodes) {
        ensure!(told["cpus"] == json!(node.cpus), "{told}: its CPUs should be {:?}", node.cpus);
    }
    ensure!(!offered(&off, "hint-fault")?, "hint faults are offered with numa_balancing 0");
    ensure!(!offered(&off, "pmu")?, "an emulated machine has no PMU: {}", source(&off, "pmu")?);
    write(BALANCING, "1")?;
    let on = homenode(&["doctor"])?;
    let several = asked.nodes.len() > 1;
    ensure!(offered(&on, "hint-fault")? == several, "with it on: {}", source(&on, "hint-fault")?);

    let mut choices = vec![on["choice"]["source"].clone()];
    let starts = damon_starts()?;
    ensure!(offered(&on, "damon")? == starts, "DAMON starts: {starts}; {}", source(&on, "damon")?);
    // The remedy that doctor gives for a module that has DAMON for itself.
    if on["damon"]["modules"].as_array().is_some_and(|m| !m.is_empty()) {
        let was = read(DAMON_STAT)?;
        write(DAMON_STAT, "N")?;
        let freed = homenode(&["doctor"]);
        let starts = damon_starts();
        write(DAMON_STAT, &was)?;
        let (freed, starts) = (freed?, starts?);
        let told = source(&freed, "damon")?;
        ensure!(offered(&freed, "damon")? == starts, "without its module: {starts}; {told}");
        ensure!(starts, "DAMON does not start though its module is off: {told}");
        choices.push(freed["choice"]["source"].clone());
    }
    // Without a slow node who accesses memory is what matters, and DAMON doesn't tell.
    let slow = asked.nodes.iter().any(|node| node.cpus.is_empty());
    let best = match (starts && slow, several) {
        (true, _) => "damon",
        (false, true) => "hint-fault",
        (false, false) => "residency",
    };
    ensure!(choices[0] == best, "chosen is {}, not {best}", choices[0]);
    Ok(json!({"chosen": choices}))
}
