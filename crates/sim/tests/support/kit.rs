//! What swarms share: draws from a seed, and a run of many seeds.
//!
//! `HOMENODE_SWARM_SEEDS=from..to cargo test -p homenode-sim --test swarm` runs others
//! and as many as wanted. A failure names the seed.
#![allow(unreachable_pub, reason = "a module of tests")]

use homenode_sim::random::Stream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a seed decides.
pub struct Draw(pub Stream);

impl Draw {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

pub fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("HOMENODE_SWARM_SEEDS") else { return default };
    let parse = |t: &str| t.trim().parse::<u64>().ok();
    text.split_once("..")
        .and_then(|(a, b)| Some(parse(a)?..parse(b)?))
        .unwrap_or_else(|| panic!("HOMENODE_SWARM_SEEDS: '{text}' is not from..to, as in 0..1000"))
}

/// The commit, where git knows it: with the seed it repeats the run.
fn commit() -> String {
    let git = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let out = git.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    out.unwrap_or_else(|_| "unknown".into())
}

/// What a panic said.
pub fn said(p: &(dyn std::any::Any + Send)) -> String {
    let text = p.downcast_ref::<String>().map(String::as_str);
    format!("panic: {}", text.or(p.downcast_ref::<&str>().copied()).unwrap_or("?"))
}

/// Runs every seed, several at once, and sums up what the runs return; fails with
/// the seeds that fail. What comes out does not depend on how many run at once.
pub fn swarm<T: Send>(
    what: &str,
    seeds: std::ops::Range<u64>,
    run: impl Fn(u64) -> Result<T, String> + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new((Vec::new(), Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
                    let mut done = done.lock().expect("nobody panics with the lock");
                    match ran.unwrap_or_else(|p| Err(said(&*p))) {
                        Ok(t) => done.0.push(t),
                        Err(why) => done.1.push((seed, why)),
                    }
                }
            });
        }
    });
    let (good, mut failures) = done.into_inner().expect("nobody panics with the lock");
    failures.sort();
    let n = failures.len();
    let mut lines: Vec<_> =
        failures.iter().take(8).map(|(s, why)| format!("seed {s}: {why}")).collect();
    // Of the others one line each.
    lines.extend(failures.iter().skip(8).map(|(s, why)| {
        let first: Vec<&str> = why.lines().take(2).map(str::trim).collect();
        format!("seed {s}: {}", first.join(" "))
    }));
    assert!(n == 0, "commit {}: {n} {what} fail\n{}", commit(), lines.join("\n"));
    good
}
