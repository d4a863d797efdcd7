//! `homenode observe` on a machine of several nodes: a process whose memory is on the last
//! one, written all the time.
//!
//! Source: specs/observe.md.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::commands::homenode;
use crate::damon::Module;
use crate::hints::{self, Toucher};
use crate::{TestResult, needs, skip};

/// Pages of the process.
const PAGES: u64 = 8192;

/// The process; killed when dropped.
pub(crate) struct Busy(Child);

impl Busy {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn on(node: usize) -> Result<Self> {
        // More processor time than is observed; it ends with its input.
        Self::with(PAGES, node, 600_000)
    }

    /// Whether it runs.
    pub(crate) fn lives(&mut self) -> Result<bool> {
        Ok(self.0.try_wait().context("its state")?.is_none())
    }

    /// Another user's.
    pub(crate) fn as_user(node: usize, user: u32) -> Result<Self> {
        Self::start(PAGES, node, 600_000, Some(user))
    }

    /// * `busy_ms` – processor time after which it sleeps.
    pub(crate) fn with(pages: u64, node: usize, busy_ms: u64) -> Result<Self> {
        Self::start(pages, node, busy_ms, None)
    }

    fn start(pages: u64, node: usize, busy_ms: u64, user: Option<u32>) -> Result<Self> {
        let own = std::env::current_exe().context("our own file")?;
        let args = ["--load".to_owned()].into_iter();
        let args = args.chain([pages, node as u64, busy_ms].map(|n| n.to_string()));
        let mut command = Command::new(own);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut busy = Self(command.spawn().context("a process with memory")?);
        let told = busy.0.stdout.take().context("its output")?;
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line)?;
        ensure!(!line.is_empty(), "it ended before all of its memory was there");
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows of a process that is observed for some periods of two seconds.
fn rows(pid: u32, source: &str) -> Result<Vec<Value>> {
    let pid = pid.to_string();
    let output = Command::new("/bin/homenode")
        .args(["observe", "--pid", &pid, "--source", source])
        .args(["--period", "2s", "--for", "8s", "--json"])
        .output()
        .context("can't run homenode")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "observe by {source}: {}: {words}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> =
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("JSON lines")?;
    ensure!(!rows.is_empty(), "observe by {source} told nothing: {words}");
    Ok(rows)
}

/// Times that it is observed: on a busy host the guest's kernel may not come to look at the
/// process within one.
const LOOKS: usize = 5;

/// The row that has most of something, looked for until it has enough.
fn most(pid: u32, source: &str, of: &str, enough: u64) -> Result<Value> {
    let bytes = |row: &Value| row["heat"][of].as_u64().unwrap_or(0);
    let mut found = Value::Null;
    for _ in 0..LOOKS {
        let told = rows(pid, source)?;
        found = told.into_iter().chain([found]).max_by_key(bytes).unwrap_or_default();
        if bytes(&found) >= enough {
            return Ok(found);
        }
    }
    bail!("{of} of {enough} bytes were not told by {source}, at most: {found}")
}

/// Whether doctor offers a source.
pub(crate) fn offers(source: &str) -> Result<bool> {
    let found = homenode(&["doctor"])?;
    let all = found["sources"].as_array().context("doctor's sources")?;
    Ok(all.iter().any(|s| s["source"] == source && s["offered"] == true))
}

/// The kernel's balancing, off until this is dropped: it would move the memory to where the
/// process runs, within seconds.
pub(crate) struct Still(Option<String>);

impl Still {
    pub(crate) const KNOB: &'static str = "/proc/sys/kernel/numa_balancing";

    pub(crate) fn now() -> Result<Self> {
        let Ok(before) = fs::read_to_string(Self::KNOB) else { return Ok(Self(None)) };
        fs::write(Self::KNOB, "0").context("numa_balancing off")?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.0.as_ref().map(|before| fs::write(Self::KNOB, before.trim())) {
            eprintln!("numa_balancing can't be set back: {e}");
        }
    }
}

pub(crate) fn observe(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: all memory is there")?;
    let node = asked.nodes.len() - 1;
    let _still = Still::now()?;
    let busy = Busy::on(node)?;
    let pid = busy.pid();
    for row in rows(pid, "residency")? {
        let resident = row["resident_bytes"].as_u64().context("resident_bytes")?;
        let by_node = row["resident_bytes_by_node"].as_object().context("by node")?;
        let on = |n: &str| by_node.get(n).and_then(Value::as_u64).unwrap_or(0);
        let sum: u64 = by_node.values().filter_map(Value::as_u64).sum();
        ensure!(sum == resident, "nodes hold {sum} of {resident}: {row}");
        ensure!(on(&node.to_string()) >= PAGES * 4096, "its memory is on node {node}: {row}");
        ensure!(row["heat"].is_null(), "residency has no heat: {row}");
        let Some(at) = row["cpu_node"].as_u64() else { continue };
        let local = row["local_percent"].as_f64().context("local_percent")?;
        let here = on(&at.to_string()) as f64 * 100.0 / resident as f64;
        ensure!((local - here).abs() < 0.2, "{here} % are on node {at}: {row}");
    }
    // New kernels have DAMON for a module of their own from the boot on.
    let module = Module::off()?;
    if !offers("damon")? {
        return Ok(json!({"damon": "not offered"}));
    }
    // Nearly all of it is hot.
    let hottest = most(pid, "damon", "hot_bytes", PAGES * 4096 / 2)?;
    let heat = &hottest["heat"];
    ensure!(heat["accesses_per_second"].is_f64(), "no rate: {hottest}");
    // DAMON tells addresses: where they are was asked for.
    for name in ["touched", "hot"] {
        let by_node = sums(&heat[format!("{name}_bytes_by_node")]);
        let all = heat[format!("{name}_bytes")].as_u64().context("bytes")?;
        ensure!(by_node.values().sum::<u64>() == all, "{name}: {by_node:?} of {all}: {hottest}");
        let there = by_node.get(&node.to_string()).copied().unwrap_or(0);
        ensure!(there >= all / 4 * 3, "{name}: node {node} has it: {hottest}");
    }
    let slots = fs::read_to_string("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")?;
    ensure!(slots.trim() == "0", "{slots} slots are left");
    drop(module);
    Ok(json!({"damon": heat}))
}

/// Bytes by node, or nothing where they are not known.
fn sums(by_node: &Value) -> BTreeMap<String, u64> {
    let all = by_node.as_object().into_iter().flatten();
    all.filter_map(|(node, bytes)| Some((node.clone(), bytes.as_u64()?))).collect()
}

/// The same by the kernel's hint faults, while it balances: they tell the page's node. Two
/// threads touch the same pages from two nodes, so that there are faults all the time.
pub(crate) fn by_hint_faults(asked: &Asked) -> TestResult {
    let with_cpus = asked.nodes.iter().enumerate().filter(|(_, n)| !n.cpus.is_empty());
    let [one, other, ..] = with_cpus.map(|(node, _)| node).collect::<Vec<_>>()[..] else {
        return Err(skip("one node with CPUs: memory that is there stays"));
    };
    hints::begin("1")?;
    let told = (|| {
        ensure!(offers("hint-fault")?, "doctor does not offer hint faults");
        let toucher = Toucher::new(asked, &[one, other], one, 2000)?;
        most(toucher.pid(), "hint-fault", "touched_bytes", 4096)
    })();
    fs::write(Still::KNOB, "0").context("numa_balancing off")?;
    let most = told?;
    let heat = &most["heat"];
    let (all, by_node) = (heat["touched_bytes"].as_u64(), sums(&heat["touched_bytes_by_node"]));
    ensure!(Some(by_node.values().sum::<u64>()) == all, "{by_node:?} of {all:?}: {most}");
    ensure!(heat["at_least"] == true && heat["local_percent"].is_f64(), "{most}");
    Ok(json!({"most": heat}))
}
