//! Hot sets on the slow node of a guest whose fast one is full of cold memory: how soon they are
//! fast, and what that takes, by homenode, by the kernel's mode 2 with demotion, by DAMOS
//! (`migrate_hot`, `migrate_cold`) and by memtierd, each alone, with a round of 100 ms and 100 MB a second.
//!
//! ```text
//! vm::seen("live-peers") ──▶ task, who moves: rounds, bytes, processor time ──▶ table, ratios
//! ```
//!
//! Emulation says nothing about speed, but all of them are emulated alike: only ratios count.
//! numad (0.5) moves processes between nodes with CPUs, of which this guest has one: it has nothing
//! to do here.
//!
//! Source: specs/act.md#peers.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::peers::Memtierd;
use super::{Setting, Verdict};
use crate::vm;

const OURS: &str = "homenode";
const PEERS: [&str; 3] = ["mode 2", "DAMOS", "memtierd"];
const TASKS: [&str; 3] = ["steady", "moving", "two"];

/// A figure of one of them in one task; `None` where it could not be run.
fn figure(table: &Value, task: &str, who: &str, name: &str) -> Option<f64> {
    table[task][who][name].as_f64()
}

/// Processor time in seconds from when it is set up: threads of its own, and what tasks spend in the
/// kernel beyond what they spend where nobody moves.
fn cpu(table: &Value, task: &str, who: &str) -> Option<f64> {
    let of = |who: &str, name: &str| figure(table, task, who, name);
    let alone = of("nobody", "system_s")? / of("nobody", "seconds")?;
    let beyond = of(who, "system_s")? - alone * of(who, "seconds")?;
    Some(of(who, "threads_s")? + beyond.max(0.0))
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let memtierd = Memtierd::build(setting.ws);
    if let Err(why) = &memtierd {
        println!("  memtierd is not run: {why:#}");
    }
    let beside: Vec<(&str, &Path)> =
        memtierd.iter().map(|m| ("/bin/memtierd", m.program())).collect();
    let table = vm::seen(setting.ws, "live-peers", "acting-full", &beside)?;
    println!("  task    who        rounds  given up     moved  of it in vain   own CPU  set up");
    for task in TASKS {
        for who in std::iter::once(OURS).chain(PEERS) {
            let one = |name| figure(&table, task, who, name);
            let (Some(rounds), Some(cpu)) = (one("rounds"), cpu(&table, task, who)) else {
                println!("  {task:<7} {who:<9}  {}", table[task][who]);
                continue;
            };
            let [missed, moved, vain] =
                ["given up", "moved_mib", "helped_not_mib"].map(|name| one(name).unwrap_or(0.0));
            println!(
                "  {task:<7} {who:<9} {rounds:>7.0} {missed:>9.0} {moved:>5.0} MiB {vain:>11.1} MiB \
                 {cpu:>7.2} s {:>5.1} s",
                one("set_up_s").unwrap_or(0.0),
            );
        }
    }
    println!("  numad has nothing to do with one node of CPUs");
    let sum = |who: &str, name: &str| -> Option<f64> {
        TASKS.iter().map(|task| figure(&table, task, who, name)).sum()
    };
    let best = |name: &str| PEERS.iter().filter_map(|who| sum(who, name)).reduce(f64::min);
    let told =
        |who: &str, name: &str| sum(who, name).with_context(|| format!("no {name} of {who}"));
    let (ours, vain) = (told(OURS, "rounds")?, told(OURS, "helped_not_mib")?);
    let peer = best("rounds").context("no peer could be run")?;
    let peers_vain = best("helped_not_mib").context("no peer could be run")?;
    for who in PEERS {
        let (Some(rounds), Some(moved)) = (sum(who, "rounds"), sum(who, "helped_not_mib")) else {
            continue;
        };
        println!(
            "  homenode beside {who}: rounds {:.2}, bytes in vain {:.2}",
            ours / rounds.max(1.0),
            vain / moved.max(0.1)
        );
    }
    Ok(Verdict {
        ours,
        peer,
        unit: "rounds",
        ratio: peer / ours.max(1.0),
        goal: "first in rounds and in bytes moved in vain",
        pass: ours <= peer && vain <= peers_vain,
    })
}
