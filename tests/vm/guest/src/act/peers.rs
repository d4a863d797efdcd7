//! homenode beside the kernel's own tiering, DAMON's schemes and memtierd, on the same hot sets.
//!
//! ```text
//! tasks: steady, moving, two ─┐                       ┌─ rounds until 90 % is fast
//! who moves: nobody,          ├─▶ full fast node ─▶ ──┼─ bytes moved that did not help
//!   homenode, mode 2, DAMOS,  │    anew each time     └─ its processor time
//!   memtierd ─────────────────┘
//! ```
//!
//! All look every 100 ms and move 100 MB a second at most. What is measured is the kernel's
//! count of pages, where pages are, and the scheduler's count of time: not what homenode says.
//!
//! Source: specs/act.md#peers.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::Scene;
use super::beside::{BEGINS_MS, Beside, Knob, SPARE};
use super::full::{above_low, fast_node};
use crate::asked::Asked;
use crate::memory::nodes_of;
use crate::observe::{Busy, Still};
use crate::process::{named_ran, ran, system};
use crate::stage::vmstat;
use crate::{TestResult, needs};

/// Pages of a hot set.
const HOT: u64 = 4096;
/// Stretches that one goes through that moves.
const SETS: u64 = 3;
/// A round: between two looks at what is accessed, the same for all.
const ROUND_MS: u64 = 100;
/// Bytes that may be moved in a round: 100 MB a second.
const ROUND_BYTES: u64 = 10_000_000;
/// After so long a hot set that has not come up is given up.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long it is looked on where nobody moves.
const NOBODY: Duration = Duration::from_secs(6);
/// Between two looks of this test.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Steady,
    Moving,
    Two,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Nobody,
    Homenode,
    Mode2,
    Damos,
    Memtierd,
}

impl Who {
    const ALL: [Self; 5] = [Self::Mode2, Self::Nobody, Self::Homenode, Self::Damos, Self::Memtierd];
    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Homenode => "homenode",
            Self::Mode2 => "mode 2",
            Self::Damos => "DAMOS",
            Self::Memtierd => "memtierd",
        }
    }
}

/// A file that goes when this does.
struct Gone(&'static str);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// Where homenode says that it is set up.
const READY: &str = "/tmp/peers.ready";

/// What moves, until it is dropped.
enum Mover {
    Nobody,
    Homenode(Child),
    /// Knobs, put back from the last to the first.
    Mode2(Vec<Knob>),
    Damos(Schemes),
    Memtierd(Child),
}

impl Mover {
    /// The program that it is, if it is one.
    fn program(&self) -> Option<u32> {
        match self {
            Self::Homenode(child) | Self::Memtierd(child) => Some(child.id()),
            Self::Nobody | Self::Mode2(_) | Self::Damos(_) => None,
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        match self {
            Self::Nobody | Self::Damos(_) => {}
            // memtierd has nothing to put back, and takes no notice of the end of its input.
            Self::Homenode(child) | Self::Memtierd(child) => {
                super::signal(child, libc::SIGTERM);
                let _ = child.wait();
            }
            Self::Mode2(knobs) => while knobs.pop().is_some() {},
        }
    }
}

/// Where memtierd is, if it could be built.
const MEMTIERD: &str = "/bin/memtierd";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Two kdamonds over memory as it lies: what is accessed on the slow node goes up, what is
/// not on the fast one goes down.
struct Schemes;

impl Schemes {
    fn set(path: &str, text: &str) -> Result<()> {
        let path = format!("{KDAMONDS}/{path}");
        fs::write(&path, text).with_context(|| format!("{path} = {text}"))
    }
    fn start(fast: usize, slow: usize) -> Result<Self> {
        Self::set("nr_kdamonds", "2")?;
        let schemes = Self;
        for (i, action, on, to) in [(0, "migrate_hot", slow, fast), (1, "migrate_cold", fast, slow)]
        {
            let (start, end) = range(on)?;
            // So many of the 20 checks of a round have to see an access; cold is what none
            // has seen for a second.
            let (least, most, age) = if i == 0 { (1, 20, 0) } else { (0, 0, 10) };
            let context = format!("{i}/contexts/0");
            let scheme = format!("{context}/schemes/0");
            Self::set(&format!("{i}/contexts/nr_contexts"), "1")?;
            for (path, text) in [
                ("operations", "paddr".to_owned()),
                ("monitoring_attrs/intervals/sample_us", (ROUND_MS * 50).to_string()),
                ("monitoring_attrs/intervals/aggr_us", (ROUND_MS * 1000).to_string()),
                ("monitoring_attrs/nr_regions/min", "10".to_owned()),
                ("monitoring_attrs/nr_regions/max", "1000".to_owned()),
                ("targets/nr_targets", "1".to_owned()),
                ("targets/0/regions/nr_regions", "1".to_owned()),
                ("targets/0/regions/0/start", start.to_string()),
                ("targets/0/regions/0/end", end.to_string()),
                ("schemes/nr_schemes", "1".to_owned()),
            ] {
                Self::set(&format!("{context}/{path}"), &text)?;
            }
            for (path, text) in [
                ("action", action.to_owned()),
                ("target_nid", to.to_string()),
                ("access_pattern/sz/min", "4096".to_owned()),
                ("access_pattern/sz/max", u64::MAX.to_string()),
                ("access_pattern/nr_accesses/min", least.to_string()),
                ("access_pattern/nr_accesses/max", most.to_string()),
                ("access_pattern/age/min", age.to_string()),
                ("access_pattern/age/max", u32::MAX.to_string()),
                ("quotas/bytes", ROUND_BYTES.to_string()),
                ("quotas/reset_interval_ms", ROUND_MS.to_string()),
            ] {
                Self::set(&format!("{scheme}/{path}"), &text)?;
            }
            Self::set(&format!("{i}/state"), "on")?;
        }
        Ok(schemes)
    }
}

impl Drop for Schemes {
    fn drop(&mut self) {
        for i in 0..2 {
            let _ = Self::set(&format!("{i}/state"), "off");
        }
        // Its thread may hold it for a moment.
        for _ in 0..50 {
            if Self::set("nr_kdamonds", "0").is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        eprintln!("{KDAMONDS}: kdamonds are left");
    }
}

/// Physical addresses of a node's memory.
fn range(node: usize) -> Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?;
    let (mut here, mut spanned) = (false, 0u64);
    let mut all: Option<(u64, u64)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            here = rest.split(',').next() == Some(&node.to_string());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["spanned", n] => spanned = n.parse().unwrap_or(0),
            ["start_pfn:", n] if here && spanned > 0 => {
                let first: u64 = n.parse().context("start_pfn")?;
                let (start, end) = (first * 4096, (first + spanned) * 4096);
                all = Some(all.map_or((start, end), |(s, e)| (s.min(start), e.max(end))));
            }
            _ => {}
        }
    }
    all.with_context(|| format!("node {node} has no memory"))
}

/// Pages that were moved since the boot, whoever moved them.
pub(super) fn moved() -> Result<u64> {
    // What CPUs have counted for themselves joins the sums.
    let _ = fs::read_to_string("/proc/sys/vm/stat_refresh");
    vmstat("pgmigrate_success")
}

/// Nanoseconds that threads of the kernel have run for reclaim and for DAMON.
fn kernel_ran() -> u64 {
    named_ran(&["kswapd", "kdamond"])
}

/// A full fast node, and hot sets on the slow one.
struct Stage {
    hot: Vec<Beside>,
    cold: Busy,
    _rest: Busy,
    fast: usize,
}

impl Stage {
    fn set(task: Task, (fast, slow): (usize, usize), cpus: &[u32]) -> Result<Self> {
        let sets = if task == Task::Moving { SETS } else { 1 };
        let many = if task == Task::Two { 2 } else { 1 };
        let hot = (0..many).map(|i| {
            let at = cpus.len().min(i + 1);
            Beside::wanders(HOT, sets, slow, &cpus[at - 1..at])
        });
        let hot = hot.collect::<Result<Vec<_>>>()?;
        let fill = above_low(fast)?;
        ensure!(fill > 4 * HOT, "node {fast} has no room to be filled: {fill} pages");
        let cold = Busy::with(fill - fill / 512 - SPARE, fast, BEGINS_MS)?;
        let left = above_low(fast)?.saturating_sub(SPARE).max(1);
        let rest = Busy::with(left, fast, 0)?;
        sleep(Duration::from_millis(2 * BEGINS_MS));
        Ok(Self { hot, cold, _rest: rest, fast })
    }
    /// Pages of the sets that are hot now which are on the fast node.
    fn up(&self, set: u64) -> Result<u64> {
        let mut up = 0;
        for one in &self.hot {
            let first = one.first + set * HOT;
            let nodes = nodes_of(one.pid(), first..first + HOT)?;
            up += nodes.into_iter().filter(|&n| n == self.fast as i32).count() as u64;
        }
        Ok(up)
    }
    fn system(&self) -> f64 {
        self.hot.iter().map(|one| system(one.pid())).sum()
    }
}

/// memtierd's own policy by age: what a round has seen written in each of two rounds goes up, what
/// none has for ten goes down. Its tracker and its mover have their defaults but for how often, and
/// how much. It is ready when it asks for a command.
fn memtierd(stage: &Stage, (fast, slow): (usize, usize)) -> Result<Child> {
    let config = "/tmp/memtierd.yaml";
    let pids = stage.hot.iter().map(Beside::pid).chain([stage.cold.pid()]);
    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
    let text = format!(
        "policy:\n  name: age\n  config: |\n    intervalms: {ROUND_MS}\n    \
         activedurationms: {}\n    activenumas: [{fast}]\n    idledurationms: {}\n    \
         idlenumas: [{slow}]\n    pidwatcher:\n      name: pidlist\n      config: |\n        \
         pids: [{}]\n    tracker:\n      name: softdirty\n      config: |\n        \
         pagesinregion: 512\n        maxcountperregion: 1\n        \
         scanintervalms: {ROUND_MS}\n        regionsupdatems: 10000\n    mover:\n      \
         intervalms: 10\n      bandwidth: {}\n",
        2 * ROUND_MS,
        10 * ROUND_MS,
        pids.join(", "),
        ROUND_BYTES * 1000 / ROUND_MS / 1_000_000,
    );
    fs::write(config, text).context(config)?;
    let mut command = Command::new(MEMTIERD);
    command.args(["-config", config, "-prompt"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context(MEMTIERD)?;
    let (mut out, mut asks) = (child.stdout.take().context("its output")?, Vec::new());
    while !asks.ends_with(b"> ") {
        let mut byte = [0];
        if out.read(&mut byte).context("memtierd")? == 0 {
            let code = child.wait()?;
            bail!("memtierd ended: {code}: {}", String::from_utf8_lossy(&asks));
        }
        asks.push(byte[0]);
    }
    Ok(child)
}

fn mover(who: Who, stage: &Stage, (fast, slow): (usize, usize)) -> Result<Mover> {
    Ok(match who {
        Who::Nobody => Mover::Nobody,
        Who::Homenode => {
            // As the others: a round, a bound of bytes for all moves, and none of time: an emulated CPU
            // takes fifty times as long for a move, but not for an access, as it believes.
            let config = "/tmp/peers.toml";
            let text = format!(
                "[budget]\ncpu_permille = 1000\nmoved_mbps = 100\nstart_delay = \"{ROUND_MS}ms\"\n\
                 interval = \"{ROUND_MS}ms\"\nstall = \"50ms\"\n"
            );
            fs::write(config, text).context(config)?;
            let mut command = Command::new("/bin/homenode");
            command.args(["act", "--json", "--config", config]);
            command.args(["--pid", &stage.cold.pid().to_string()]);
            for one in &stage.hot {
                command.args(["--pid", &one.pid().to_string()]);
            }
            let socket = UnixDatagram::bind(READY).context(READY)?;
            let _gone = Gone(READY);
            socket.set_read_timeout(Some(PATIENCE))?;
            command.env("NOTIFY_SOCKET", READY).stdout(Stdio::null()).stderr(Stdio::null());
            let mover = Mover::Homenode(command.spawn()?);
            // The others are set up at once: who has to be loaded first gets the time.
            let mut told = [0; 64];
            let n = socket.recv(&mut told).context("homenode act does not get ready")?;
            ensure!(told[..n].starts_with(b"READY=1"), "it says {:?}", &told[..n]);
            mover
        }
        Who::Mode2 => {
            let round = ROUND_MS.to_string();
            let mut knobs = Vec::new();
            for (path, text) in [
                ("/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", &*round),
                ("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", &round),
                ("/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms", &round),
                ("/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "100"),
                (Still::KNOB, "2"),
            ] {
                knobs.push(Knob::set(path, text)?);
            }
            Mover::Mode2(knobs)
        }
        Who::Damos => Mover::Damos(Schemes::start(fast, slow)?),
        Who::Memtierd => Mover::Memtierd(memtierd(stage, (fast, slow))?),
    })
}

/// What one of them did in one task.
fn cell(task: Task, who: Who, nodes: (usize, usize), cpus: &[u32]) -> Result<Value> {
    let mut stage = Stage::set(task, nodes, cpus)?;
    let all = HOT * stage.hot.len() as u64;
    let before = moved()?;
    let (kernel, system, begun) = (kernel_ran(), stage.system(), Instant::now());
    let mover = mover(who, &stage, nodes)?;
    let own = mover.program().map_or(0, ran);
    let set_up = begun.elapsed().as_secs_f64();
    let (mut rounds, mut shares, mut gained, mut missed) = (0.0, Vec::new(), 0, 0);
    let sets = if task == Task::Moving && who != Who::Nobody { SETS } else { 1 };
    for set in 0..sets {
        for one in &mut stage.hot {
            one.tell(set)?;
        }
        let (first, begun) = (stage.up(set)?, Instant::now());
        let patience = if who == Who::Nobody { NOBODY } else { PATIENCE };
        let mut up = first;
        while up < all / 10 * 9 && begun.elapsed() < patience {
            sleep(LOOK);
            up = stage.up(set)?;
        }
        missed += u64::from(up < all / 10 * 9);
        rounds += begun.elapsed().as_secs_f64() * 1000.0 / ROUND_MS as f64;
        shares.push((up * 100) as f64 / all as f64);
        gained += up.saturating_sub(first);
    }
    let took = begun.elapsed().as_secs_f64() - set_up;
    let system = stage.system() - system;
    let mut ran_ns = kernel_ran().saturating_sub(kernel);
    if let Some(pid) = mover.program() {
        ran_ns += ran(pid).saturating_sub(own);
    }
    let own = ran_ns as f64 / 1e9;
    drop(mover);
    let moved = moved()?.saturating_sub(before);
    // Who comes up to a full node needs one that goes down.
    let helped = moved.min(2 * gained);
    let mib = |pages: u64| (pages as f64 / 25.6).round() / 10.0;
    Ok(json!({
        "rounds": (rounds / sets as f64).round(),
        "given up": missed,
        "up_percent": shares,
        "moved_mib": mib(moved),
        "helped_not_mib": mib(moved - helped),
        "seconds": took,
        "threads_s": own,
        "system_s": system,
        "set_up_s": set_up,
    }))
}

/// All of them in all tasks.
pub(crate) fn peers(asked: &Asked) -> TestResult {
    let (fast, cpus) = fast_node(asked)?;
    let scene = Scene::set(asked)?;
    let paddr = {
        Schemes::set("nr_kdamonds", "1")?;
        let schemes = Schemes;
        Schemes::set("0/contexts/nr_contexts", "1")?;
        let path = format!("{KDAMONDS}/0/contexts/0/avail_operations");
        let told = fs::read_to_string(path).unwrap_or_default();
        drop(schemes);
        told.contains("paddr")
    };
    needs(Path::new(DEMOTION).exists(), "no demotion")?;
    let _lists = Knob::set("/proc/sys/vm/percpu_pagelist_high_fraction", "2000")?;
    const TASKS: [(Task, &str); 3] =
        [(Task::Steady, "steady"), (Task::Moving, "moving"), (Task::Two, "two")];
    let mut table: Map<String, Value> =
        TASKS.iter().map(|(_, name)| ((*name).to_owned(), json!({}))).collect();
    for who in Who::ALL {
        // Before the first node is filled: a kswapd that may not demote fails, and one that has
        // failed 16 times leaves its node alone from then on.
        let _demotion = match who {
            Who::Mode2 => Some(Knob::set(DEMOTION, "true")?),
            Who::Nobody | Who::Homenode | Who::Damos | Who::Memtierd => None,
        };
        for (task, name) in TASKS {
            let told = match who {
                Who::Damos if !paddr => json!("this kernel's DAMON has no paddr"),
                Who::Memtierd if !Path::new(MEMTIERD).exists() => json!("it could not be built"),
                _ => cell(task, who, (fast, scene.slow), &cpus)
                    .with_context(|| format!("{name}, {}", who.name()))?,
            };
            table[name][who.name()] = told;
        }
    }
    scene.holds("the peers")?;
    Ok(Value::Object(table))
}
