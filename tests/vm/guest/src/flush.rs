//! Remote flushes: how often moves interrupt a CPU that runs the process.
//!
//! ```text
//! CPU 0   moves pages           TLB of CPU 1 in /proc/interrupts, before and after
//! CPU 1   a thread that spins
//! ```
//!
//! Source: specs/remote-flush.md#moves.

use std::fs;
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::memory::{Memory, Whose};
use crate::process::pin;
use crate::{TestResult, needs};

/// Flushes that the second CPU was asked for so far.
fn received() -> Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix("TLB:"));
    let of_second = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok());
    of_second.context("/proc/interrupts has no flushes of a second CPU")
}

/// How many come to the second CPU by an act. Others may come beside them: the fewest of three times.
fn by(mut act: impl FnMut(usize) -> Result<()>) -> Result<u64> {
    let mut fewest = u64::MAX;
    for turn in 0..3 {
        let before = received()?;
        act(turn)?;
        fewest = fewest.min(received()? - before);
    }
    Ok(fewest)
}

/// Moves of base pages and of huge ones, to and fro, while a thread runs on the second CPU.
fn moves() -> Result<Value> {
    const BASE: usize = 1100;
    const HUGE: usize = 3;
    let base = Memory::on(0, BASE, |page| page as u64)?;
    let huge = Memory::advised(0, HUGE * 512, libc::MADV_HUGEPAGE, |page| page as u64)?;
    let to_and_fro = |memory: &Memory, pages: &[usize], turn: usize| {
        let to = 1 - turn % 2;
        let there = memory.move_to(pages, to, Whose::Own)?;
        ensure!(there.iter().all(|&n| n == to as i32), "to node {to}: {there:?}");
        Ok(())
    };
    let all: Vec<usize> = (0..BASE).collect();
    let heads: Vec<usize> = (0..HUGE).map(|i| i * 512).collect();
    let none = by(|_| {
        base.touch(0);
        Ok(())
    })?;
    let of_base = by(|turn| to_and_fro(&base, &all, turn))?;
    let of_huge = by(|turn| to_and_fro(&huge, &heads, turn))?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let told = json!({"base": of_base, "huge": of_huge, "kernel": release.trim()});
    // Before 6.3 there were no batches.
    let expected = if release.starts_with("6.1.") { BASE } else { BASE.div_ceil(512) } as u64;
    ensure!(none == 0, "{none} flushes without a move");
    ensure!(of_base == expected, "{expected} flushes for {BASE} base pages: {told}");
    ensure!(of_huge == HUGE as u64, "one for each huge page: {told}");
    Ok(told)
}

pub(crate) fn remote(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: nowhere to move to")?;
    pin(0, &[0])?;
    let (runs, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let spins = || {
            let pinned = pin(0, &[1]);
            runs.store(true, Ordering::Release);
            while pinned.is_ok() && !over.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            pinned
        };
        let spinner = scope.spawn(spins);
        while !runs.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let told = moves();
        over.store(true, Ordering::Relaxed);
        let pinned = spinner.join().expect("it does not panic");
        needs(pinned.is_ok(), "no second CPU")?;
        told
    })
}
