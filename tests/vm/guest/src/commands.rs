//! The `homenode` command on a machine of several nodes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::ksm;
use crate::memory::Memory;
use crate::{TestResult, needs};

/// Runs `homenode ARGS --json` and returns what it printed.
pub(crate) fn homenode(args: &[&str]) -> Result<Value> {
    let mut command = Command::new("/bin/homenode");
    let output = command.args(args).arg("--json").output().context("can't run homenode")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "homenode {}: {}: {words}", args.join(" "), output.status);
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("homenode {} printed no JSON", args.join(" ")))
}

/// Contents of the pages on nodes 0 and 1. What lies where, by page:
///
/// ```text
/// node 0    a × 300   c0 .. c39
/// node 1    a × 150   c0 .. c39   b × 80
/// ```
fn content(node: usize, page: usize) -> u64 {
    let (a, c) = (A[node], C);
    let kind = |kind: u64, n: usize| 0x686e_0000_0000_0000 | kind << 32 | n as u64;
    if page < a {
        kind(1, 0)
    } else if page < a + c {
        kind(3, page - a)
    } else {
        kind(2, 0)
    }
}

/// Pages of the content `a` by node.
const A: [usize; 2] = [300, 150];
/// Pages of the content `b`, on node 1.
const B: usize = 80;
/// Contents that are on both nodes once.
const C: usize = 40;

/// (pages_shared, pages_sharing), node by node.
const PER_NODE: [(u64, u64); 2] = [(1, A[0] as u64 - 1), (2, (A[1] + B) as u64 - 2)];
/// The same if nodes don't matter.
const ACROSS: (u64, u64) = (2 + C as u64, (A[0] + A[1] + B + 2 * C) as u64 - 2 - C as u64);

/// More than any content has pages: chains are another test's.
const MAX_PAGE_SHARING: &str = "1000";

pub(crate) fn merge_estimate(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: per node and across are the same")?;
    ksm::begin(0)?;
    ksm::set("max_page_sharing", MAX_PAGE_SHARING)?;
    // Nothing equal at first: what the process has otherwise is then known.
    let different = |node: usize, page: usize| 0x686e_ffff_0000_0000 | (node << 24 | page) as u64;
    let sizes = [A[0] + C, A[1] + C + B];
    let memory = [
        Memory::on(0, sizes[0], |page| different(0, page))?,
        Memory::on(1, sizes[1], |page| different(1, page))?,
    ];
    let before = estimate()?;
    for (node, memory) in memory.iter().enumerate() {
        for page in 0..sizes[node] {
            memory.write(page, content(node, page));
        }
    }
    let after = estimate()?;

    let pair = |value: &Value| -> Result<(u64, u64)> {
        let number = |key: &str| value[key].as_u64().with_context(|| format!("no {key}: {value}"));
        Ok((number("pages_shared")?, number("pages_sharing")?))
    };
    let node = |estimate: &Value, node: u64| -> Result<(u64, u64)> {
        let nodes = estimate["per_node"]["nodes"].as_array().context("no per_node.nodes")?;
        match nodes.iter().find(|n| n["node"] == node) {
            Some(found) => pair(found),
            // A node on which the process has nothing at all.
            None => Ok((0, 0)),
        }
    };
    let gained = |before: (u64, u64), after: (u64, u64)| {
        (after.0 as i64 - before.0 as i64, after.1 as i64 - before.1 as i64)
    };
    let near = |got: (i64, i64), want: (u64, u64)| {
        got.0.abs_diff(want.0 as i64) <= NOISE && got.1.abs_diff(want.1 as i64) <= NOISE
    };
    let mut told = Vec::new();
    for (id, want) in PER_NODE.into_iter().enumerate() {
        let got = gained(node(&before, id as u64)?, node(&after, id as u64)?);
        ensure!(
            near(got, want),
            "node {id}: homenode tells {got:?} more shared and sharing, {want:?} are there"
        );
        told.push(json!([got.0, got.1]));
    }
    let across = gained(pair(&before["across"])?, pair(&after["across"])?);
    ensure!(
        near(across, ACROSS),
        "across nodes: homenode tells {across:?} more shared and sharing, {ACROSS:?} are there"
    );

    // Only these two regions may be merged, so that ksmd's counters are theirs.
    for memory in &memory {
        memory.advise(libc::MADV_MERGEABLE).context("MADV_MERGEABLE")?;
    }
    let reached = || -> Result<(u64, u64)> {
        ksm::passes(6)?;
        Ok((ksm::number("pages_shared")?, ksm::number("pages_sharing")?))
    };
    let per_node = reached()?;
    let want = PER_NODE.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    ensure!(per_node == want, "ksmd reached {per_node:?} per node, {want:?} are there");
    ksm::set("run", "2")?;
    ksm::set("merge_across_nodes", "1")?;
    let all = reached()?;
    ensure!(all == ACROSS, "ksmd reached {all:?} across nodes, {ACROSS:?} are there");
    ksm::set("run", "2")?;
    Ok(json!({
        "homenode": {"per_node": told, "across": [across.0, across.1]},
        "ksmd": {"per_node": [per_node.0, per_node.1], "across": [all.0, all.1]},
    }))
}

/// Pages of the process itself, its stack and heap, may change between two looks.
const NOISE: u64 = 3;

fn estimate() -> Result<Value> {
    let pid = std::process::id().to_string();
    homenode(&["merge", "estimate", "--pid", &pid, "--max-page-sharing", MAX_PAGE_SHARING])
}

pub(crate) fn measure(asked: &Asked) -> TestResult {
    let file = "/tmp/machine.toml";
    let told = homenode(&["measure", "--tiny", "-o", file])?;
    let constants = told["constants"].as_array().context("no constants")?;
    let origin_of = |name: &str| -> Result<&Value> {
        constants
            .iter()
            .find(|constant| constant["name"] == name)
            .with_context(|| format!("no constant is called `{name}`"))
    };
    let mut pairs = 0;
    for (from, node) in asked.nodes.iter().enumerate() {
        if node.cpus.is_empty() {
            continue;
        }
        for to in 0..asked.nodes.len() {
            for what in ["read latency", "read bandwidth"] {
                let name = format!("{what}, node {from} to node {to}");
                let found = origin_of(&name)?;
                ensure!(
                    found["origin"] == "measured",
                    "{name} is {}: {}",
                    found["origin"],
                    found["method"]
                );
            }
            pairs += 1;
        }
    }
    let migrate = origin_of("migrate_page")?;
    let method = migrate["method"].as_str().unwrap_or_default();
    ensure!(
        migrate["origin"] == "measured"
            && (asked.nodes.len() == 1 || method.contains("between nodes")),
        "migrate_page is {}: {method}",
        migrate["origin"]
    );
    // What was written is a machine that the other commands take.
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {file}"))?;
    let nodes = text.lines().filter(|line| line.trim() == "[[node]]").count();
    ensure!(nodes == asked.nodes.len(), "{file} has {nodes} nodes, not {}", asked.nodes.len());
    Ok(json!({"pairs": pairs, "migrate_page": method}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The expectations follow from the contents, counted the slow way.
    #[test]
    fn what_is_expected_is_what_the_contents_say() {
        let sizes = [A[0] + C, A[1] + C + B];
        let reach = |pages: &mut dyn Iterator<Item = u64>| {
            let mut count: BTreeMap<u64, u64> = BTreeMap::new();
            pages.for_each(|page| *count.entry(page).or_default() += 1);
            let merged: Vec<u64> = count.into_values().filter(|&n| n > 1).collect();
            (merged.len() as u64, merged.iter().map(|n| n - 1).sum::<u64>())
        };
        for node in 0..2 {
            let got = reach(&mut (0..sizes[node]).map(|page| content(node, page)));
            assert_eq!(got, PER_NODE[node]);
        }
        let both = (0..2).flat_map(|node| (0..sizes[node]).map(move |page| content(node, page)));
        assert_eq!(reach(&mut { both }), ACROSS);
    }
}
