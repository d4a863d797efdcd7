//! What the engine was told on a machine of several nodes is told again: the same orders, byte
//! for byte. What an observation has recorded is advised too. Where homenode acted, as many bytes go
//! the same ways as stand in the ledger.
//!
//! Source: specs/advise.md#seen.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::damon::Module;
use crate::observe::{Busy, Still, offers};
use crate::{TestResult, needs, skip};

/// A guest's CPU may keep accessed bits to itself, so that DAMON sees nothing: it is looked so
/// often.
const LOOKS: usize = 4;
/// A folder without a machine: what is told again needs none.
const NOWHERE: &str = "/nowhere";

/// What a command prints, byte by byte.
fn printed(args: &[&str]) -> Result<String> {
    let output = Command::new("/bin/homenode").args(args).output().context("can't run homenode")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "homenode {}: {}: {words}", args.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// What is advised of a recording, and the orders.
fn again(file: &str, orders: &str) -> Result<(String, String)> {
    let told =
        printed(&["advise", "--seen", file, "--root", NOWHERE, "--json", "--orders", orders])?;
    Ok((told, fs::read_to_string(orders).context("orders")?))
}

/// Bytes that went from one node to another, by rows of that process.
fn by_way(rows: &[Value], pid: &str, bytes: &str) -> BTreeMap<(u64, u64), u64> {
    let mut out = BTreeMap::new();
    let pid: Option<u64> = pid.parse().ok();
    for row in rows.iter().filter(|row| row["pid"].as_u64() == pid) {
        let way = row["from"].as_u64().zip(row["to"].as_u64());
        if let (Some(way), Some(n @ 1..)) = (way, row[bytes].as_u64()) {
            *out.entry(way).or_default() += n;
        }
    }
    out
}

/// Lets homenode act and be recorded; what it moved is in the ledger, and is told again.
fn acted(pid: &str) -> Result<Value> {
    let mut told = (BTreeMap::new(), String::new());
    for _ in 0..LOOKS {
        // What stands in the ledger already is of those before.
        let ledger = || -> Result<Vec<Value>> {
            let text = printed(&["ledger", "--json"])?;
            text.lines().map(|line| serde_json::from_str(line).context("a row")).collect()
        };
        let before = ledger().map_or(0, |rows| rows.len());
        printed(&["act", "--pid", pid, "--for", "12s", "--json", "--record", "/c.seen"])?;
        let rows = ledger()?;
        let moved = by_way(&rows[before.min(rows.len())..], pid, "moved_bytes");
        let (again, _) = again("/c.seen", "/acted")?;
        let now: Value = serde_json::from_str(&again).context("JSON")?;
        let moves = now["moves"].as_array().context("moves")?;
        ensure!(by_way(moves, pid, "bytes") == moved, "the ledger has {moved:?}: {again}");
        ensure!(!again.contains("decides otherwise"), "{again}");
        told = (moved, again);
        if !told.0.is_empty() {
            break;
        }
    }
    ensure!(!told.0.is_empty(), "homenode moved nothing: {}", told.1);
    let ways = told.0.iter().map(|((from, to), bytes)| json!([from, to, bytes]));
    Ok(ways.collect())
}

pub(crate) fn told_again(asked: &Asked) -> TestResult {
    let slow = asked.nodes.iter().position(|node| node.cpus.is_empty());
    let slow = slow.ok_or_else(|| skip("no slow node: heat alone moves nothing"))?;
    let _still = Still::now()?;
    let _module = Module::off()?;
    needs(offers("damon")?, "this kernel's DAMON knows no addresses of processes")?;
    let busy = Busy::on(slow)?;
    let pid = busy.pid().to_string();
    let (mut then, mut orders) = (String::new(), String::new());
    for _ in 0..LOOKS {
        let ask = ["advise", "--pid", &pid, "--for", "8s", "--json"];
        let record = ["--record", "/a.seen", "--orders", "/then"];
        then = printed(&[&ask[..], &record[..]].concat())?;
        orders = fs::read_to_string("/then").context("orders")?;
        if !orders.is_empty() {
            break;
        }
    }
    ensure!(!orders.is_empty(), "nothing would be moved: {then}");
    let (now, again_orders) = again("/a.seen", "/now")?;
    ensure!(orders == again_orders, "orders were {orders}, and now they are {again_orders}");
    ensure!(then == now, "it was said {then}, and now {now}");

    // An observation has no policy; what it was told is enough for one all the same.
    let mut moves = Value::Null;
    let (mut first, mut lines) = (String::new(), String::new());
    for _ in 0..LOOKS {
        let ask = ["observe", "--pid", &pid, "--period", "2s", "--for", "8s", "--json"];
        printed(&[&ask[..], &["--record", "/b.seen"]].concat())?;
        (first, lines) = again("/b.seen", "/observed")?;
        let told: Value = serde_json::from_str(&first).context("JSON")?;
        moves = told["moves"].clone();
        if !lines.is_empty() {
            break;
        }
    }
    let ways = moves.as_array().context("moves")?;
    ensure!(ways.iter().any(|way| way["from"] == slow), "none from node {slow}: {first}");
    ensure!(again("/b.seen", "/twice")? == (first, lines), "it does not repeat");
    let acted = acted(&pid)?;
    let size = |file: &str| fs::metadata(file).map(|m| m.len()).unwrap_or(0);
    Ok(json!({
        "orders": orders.lines().count(),
        "first": orders.lines().next(),
        "bytes": size("/a.seen"),
        "of an observation": size("/b.seen"),
        "ways": ways.len(),
        "acted": acted,
    }))
}
