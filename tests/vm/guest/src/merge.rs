//! `homenode merge drive --act` on a machine of several nodes, with pages of others merged on
//! them when it comes and when it goes.
//!
//! ```text
//! test      a a | a a | a a | a a     merged across nodes: 1 page, 7 more map it
//! drive     --across-nodes 0          unmerges all of it (run = 2), switches
//! program   32 a on each node         merged within nodes, where they were
//! drive     at its end                unmerges what is merged on every node, switches back
//! test      a a | a a | a a | a a     intact, and merged across nodes again
//! ```
//!
//! Source: specs/merge-drive.md#switch, specs/merge-drive.md#undo.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::asked::Asked;
use crate::ksm::{begin, number, passes};
use crate::memory::Memory;
use crate::{TestResult, needs};

/// What all pages hold.
const WORD: u64 = 0x6d65_7267_6500_0001;
/// Pages of the program, and of the test, on each node.
const PAGES: usize = 32;
const OWN: usize = 2;
/// Two passes until pages merge, and some more.
const PASSES: u64 = 6;
/// How long merging may take; many times what it does.
const PATIENCE: Duration = Duration::from_secs(120);

fn on_each(nodes: usize, pages: usize) -> Result<Vec<Memory>> {
    (0..nodes).map(|node| Memory::on(node, pages, |_| WORD)).collect()
}

fn intact(memory: &[Memory], pages: usize) -> bool {
    memory.iter().all(|m| (0..pages).all(|page| m.holds(page, WORD)))
}

/// The program that is merged: how its pages come to lie, once they are merged.
pub(crate) fn program(args: &[&str]) -> Result<()> {
    let nodes: usize = args.first().context("nodes")?.parse()?;
    let memory = on_each(nodes, PAGES)?;
    let begun = Instant::now();
    // All pages of a node are one; those of the test come on top.
    let enough = (nodes * (PAGES - 1)) as u64;
    loop {
        let (across, sharing) = (number("merge_across_nodes")?, number("pages_sharing")?);
        if across == 0 && sharing >= enough {
            break;
        }
        if begun.elapsed() > PATIENCE {
            bail!("merge_across_nodes {across}, {sharing} pages share, not {enough}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    for (node, memory) in memory.iter().enumerate() {
        let there = memory.nodes()?;
        ensure!(there.iter().all(|n| *n == node as i32), "pages of node {node} are on {there:?}");
    }
    ensure!(intact(&memory, PAGES), "contents changed");
    Ok(())
}

pub(crate) fn drives(asked: &Asked) -> TestResult {
    let nodes = asked.nodes.len();
    needs(nodes == 4, "looked at where there are four nodes")?;
    begin(1)?;
    let memory = on_each(nodes, OWN)?;
    for memory in &memory {
        memory.advise(libc::MADV_MERGEABLE).context("MADV_MERGEABLE")?;
    }
    let merged = || -> Result<(u64, u64)> {
        passes(PASSES)?;
        Ok((number("pages_shared")?, number("pages_sharing")?))
    };
    let across = (1, (nodes * OWN - 1) as u64);
    let before = merged()?;
    ensure!(before == across, "{before:?} at first, not {across:?}");
    let own = std::env::current_exe().context("our own file")?;
    let output = Command::new("/bin/homenode")
        .args(["merge", "drive", "--act", "--across-nodes", "0", "--cpu-budget", "100", "--"])
        .arg(own)
        .args(["--merged", &nodes.to_string()])
        .output()
        .context("can't run homenode")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "merge drive: {}: {words}", output.status);
    ensure!(intact(&memory, OWN), "contents changed: {words}");
    let knobs = (number("merge_across_nodes")?, number("run")?);
    ensure!(knobs == (1, 0), "merge_across_nodes and run are {knobs:?}: {words}");
    let after = merged()?;
    ensure!(after == across, "{after:?} at the end, not {across:?}: {words}");
    begin(1)?;
    Ok(json!({"before": before, "after": after, "said": words.lines().last()}))
}
