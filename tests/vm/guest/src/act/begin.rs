//! Where the memory of a program begins that homenode starts.
//!
//! Source: specs/act.md#begins.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::slow_node;
use crate::TestResult;
use crate::asked::Asked;
use crate::observe::{Still, offers};
use crate::skip;

/// What a program sees of its own memory, which a shell has started that homenode has started: the
/// policies that it names, and its anonymous pages by node.
fn seen(begin: &str) -> Result<(Vec<String>, Vec<u64>)> {
    let line = ["act", "--begin", begin, "--", "/bin/sh", "-c", "cat /proc/self/numa_maps; true"];
    let output = Command::new("/bin/homenode").args(line).output().context("homenode")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "act --begin {begin}: {words}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut policies, mut pages) = (Vec::new(), Vec::new());
    // What is of a file was in memory before.
    for line in text.lines().filter(|l| l.contains(" anon=") && !l.contains(" file=")) {
        let words: Vec<&str> = line.split(' ').collect();
        let end = words.iter().position(|w| w.contains('=')).unwrap_or(words.len());
        let policy = words[1..end].iter().filter(|w| !["heap", "stack"].contains(w));
        policies.push(policy.copied().collect::<Vec<_>>().join(" "));
        for (node, n) in words.iter().filter_map(|w| w.strip_prefix('N')?.split_once('=')) {
            let (node, n): (usize, u64) = (node.parse()?, n.parse()?);
            pages.resize(pages.len().max(node + 1), 0);
            pages[node] += n;
        }
    }
    ensure!(!policies.is_empty(), "it told of no memory: {text}");
    Ok((policies, pages))
}

pub(crate) fn begin(asked: &Asked) -> TestResult {
    let slow = slow_node(asked)?;
    let _still = Still::now()?;
    if !offers("damon")? {
        return Err(skip("no source of heat: homenode starts nothing to be acted for"));
    }
    let mut told = Vec::new();
    for (begin, word) in
        [("slow", "prefer (many)"), ("fast", "prefer (many)"), ("interleave", "interleave")]
    {
        let (policies, pages) = seen(begin)?;
        ensure!(policies.iter().all(|p| p.contains(word)), "--begin {begin}: {policies:?}");
        let on = |node: usize| pages.get(node).copied().unwrap_or(0);
        let (down, all) = (on(slow), pages.iter().sum::<u64>());
        let fits = match begin {
            "slow" => down == all,
            "fast" => down == 0,
            _ => down > 0 && down < all,
        };
        ensure!(fits, "--begin {begin}: of {all} pages {down} are on node {slow}");
        told.push(json!([begin, policies[0], pages]));
    }
    Ok(Value::from(told))
}
