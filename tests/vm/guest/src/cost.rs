//! What `homenode observe` takes with 100 processes, by each source of heat.
//!
//! ```text
//! 100 processes of 1 MiB, of which some write ◀── observe, every 5 s, by residency | damon | hints
//!                                      │
//!                    scheduler's time of homenode, of kdamonds ──▶ shares of a CPU
//! ```
//!
//! Emulation makes all of it slower: each source is to be read beside residency, which a real
//! machine has too. What hint faults cost the processes themselves is the kernel's balancing.
//!
//! Source: specs/observe.md#cost.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::asked::Asked;
use crate::damon::Module;
use crate::hints;
use crate::observe::{Busy, Still, offers};
use crate::process::{named_ran, ran};
use crate::{TestResult, needs};

/// Processes that are looked at.
const MANY: usize = 100;
/// Pages of each.
const PAGES: u64 = 256;
/// Of them so many write all the time, a third of a CPU each; the others sleep.
const WRITE: usize = 3;
/// Processor time of those that sleep afterwards.
const SLEEPS_MS: u64 = 5;
/// For how long each source is looked at, and without any.
const LOOKED: Duration = Duration::from_secs(30);
const PERIOD: &str = "5s";

/// A homenode that observes; ended when dropped.
struct Observing(Child);

impl Observing {
    /// Begins, and waits for its first row: reading all names is not what goes on.
    fn begin(herd: &[Busy], source: &str) -> Result<Self> {
        let mut command = Command::new("/bin/homenode");
        command.args(["observe", "--json", "--period", PERIOD, "--source", source, "--pid"]);
        command.args(herd.iter().map(|one| one.pid().to_string()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut observing = Self(child);
        let told = observing.0.stdout.take().context("its output")?;
        let mut told = BufReader::new(told);
        let mut line = String::new();
        told.read_line(&mut line)?;
        ensure!(!line.is_empty(), "observe by {source} told nothing");
        // What it goes on to tell must go somewhere.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        Ok(observing)
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        // It takes its kdamond down.
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

/// Shares of a CPU in percent, over a while: homenode's and kdamonds'.
fn spent(own: u32) -> [f64; 2] {
    let now = || [ran(own), named_ran(&["kdamond"])].map(|ns| ns as f64 / 1e9);
    let (before, begun) = (now(), Instant::now());
    sleep(LOOKED);
    let (after, took) = (now(), begun.elapsed().as_secs_f64());
    std::array::from_fn(|i| (after[i] - before[i]) * 100.0 / took)
}

pub(crate) fn observe(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: hint faults need two")?;
    let _module = Module::off()?;
    let _still = Still::now()?;
    let node = asked.nodes.len() - 1;
    let herd = (0..MANY)
        .map(|i| Busy::with(PAGES, node, if i < WRITE { 600_000 } else { SLEEPS_MS }))
        .collect::<Result<Vec<_>>>()?;
    sleep(Duration::from_secs(3));
    let mut told = Map::new();
    for source in ["residency", "damon", "hint-fault"] {
        if source == "hint-fault" {
            // Only where the kernel balances there are any; it does so whether homenode looks or not.
            hints::begin("1")?;
        }
        if source != "residency" && !offers(source)? {
            told.insert(source.to_owned(), Value::Null);
            continue;
        }
        let observing = Observing::begin(&herd, source)?;
        let [own, kdamond] = spent(observing.0.id());
        drop(observing);
        let row = json!({"homenode": own, "kdamond": kdamond});
        told.insert(source.to_owned(), row);
    }
    Ok(Value::Object(told))
}
