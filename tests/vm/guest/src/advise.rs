//! `homenode advise` on a machine of several nodes: a process whose memory is on the slow
//! node, written all the time. What would be moved is said, and nothing is.
//!
//! Source: specs/advise.md.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::commands::homenode;
use crate::damon::Module;
use crate::observe::{Busy, Still, offers};
use crate::{TestResult, skip};

/// Files that advice is about, where there are such files.
const KNOBS: &[&str] = &[
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
];
/// A guest's CPU may keep translations and with them accessed bits to itself, so that DAMON
/// sees nothing: it is looked so often.
const LOOKS: usize = 4;

pub(crate) fn knobs() -> Vec<Option<String>> {
    KNOBS.iter().map(|path| fs::read_to_string(path).ok()).collect()
}

/// Pages of a process by node, as numa_maps has them.
pub(crate) fn by_node(pid: u32) -> Result<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/numa_maps")).context("numa_maps")?;
    let mut pages = Vec::new();
    for word in text.split_whitespace() {
        let Some((node, n)) = word.strip_prefix('N').and_then(|w| w.split_once('=')) else {
            continue;
        };
        let (Ok(node), Ok(n)) = (node.parse::<usize>(), n.parse::<u64>()) else { continue };
        if pages.len() <= node {
            pages.resize(node + 1, 0);
        }
        pages[node] += n;
    }
    Ok(pages)
}

pub(crate) fn nothing_is_moved(asked: &Asked) -> TestResult {
    let slow = asked.nodes.iter().position(|node| node.cpus.is_empty());
    let slow = slow.ok_or_else(|| skip("no slow node: heat alone moves nothing"))?;
    let _still = Still::now()?;
    let module = Module::off()?;
    let heat = offers("damon")?;
    let busy = Busy::on(slow)?;
    let (pid, before) = (busy.pid().to_string(), (by_node(busy.pid())?, knobs()));
    let ask = ["advise", "--pid", &pid, "--for", "15s"];
    let mut told = homenode(&ask)?;
    let wished = |told: &Value| told["sum"]["pages"].as_u64().unwrap_or(0);
    for _ in 1..LOOKS {
        if !heat || wished(&told) > 0 {
            break;
        }
        told = homenode(&ask)?;
    }
    let after = (by_node(busy.pid())?, knobs());
    ensure!(after.1 == before.1, "knobs were changed: {before:?}, then {after:?}");
    // On the other nodes are libraries, which reclaim may take; and where those are full a
    // page of its stack may come to the slow one.
    let there = |on: &[u64]| on.get(slow).copied().unwrap_or(0);
    ensure!(there(&after.0) >= there(&before.0), "pages went: {before:?}, then {after:?}");
    drop(module);
    if !heat {
        ensure!(told["source"] == "residency" && wished(&told) == 0, "without heat: {told}");
        return Ok(json!({"source": told["source"], "why": told["nothing"]}));
    }
    ensure!(wished(&told) > 0, "nothing would be moved: {told}");
    let moves = told["moves"].as_array().context("moves")?;
    // A page or two may follow the thread from one fast node to the other.
    ensure!(moves.iter().any(|way| way["from"] == slow), "none from node {slow}: {moves:?}");
    for way in moves {
        ensure!(way["to"] != slow, "wrong way: {way}");
        ensure!(way["saves"].as_f64() > way["costs"].as_f64(), "not worth it: {way}");
    }
    // What the engine would do the kernel could do itself, where it has a slow tier.
    let knobs = told["knobs"].as_array().context("knobs")?;
    let named = |knob: &Value| knob["knob"].as_str().is_some_and(|k| k.ends_with("balancing"));
    let then = knobs.iter().find(|knob| named(knob)).map(|knob| &knob["then"]);
    ensure!(then.is_some() || asked.tiers.len() < 2, "no word of numa_balancing: {knobs:?}");
    Ok(json!({"would_move": told["sum"], "numa_balancing": then}))
}
