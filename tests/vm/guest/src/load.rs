//! A program that the stage runs: this one, executed once more.
//!
//! ```text
//! homenode-guest --load PAGES NODE BUSY_MS [FILE]
//!   ──▶ number of its first page, once all of them are touched
//!   ◀── bind FIRST PAGES NODE     ──▶ done
//! ```
//!
//! It writes to all of its pages, over and over, until it has used that much processor
//! time, and then sleeps until its input ends. With a file it ends by itself, and leaves
//! there how many per cent of its pages are not on that node any more.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, ensure};
use homenode_core::units::Picos;

use crate::memory::{Forget, Memory};
use crate::process::cpu_time;

/// Runs until the input ends.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let number = |i: usize| -> Result<usize> {
        args.get(i).and_then(|text| text.parse().ok()).context("--load PAGES NODE BUSY_MS")
    };
    let (pages, node, busy) = (number(0)?, number(1)?, Picos::from_ms(number(2)? as u64));
    let memory = Memory::on(node, pages, |page| page as u64)?;
    if let Some(file) = args.get(3) {
        return leave(&memory, pages, node, busy, file);
    }
    println!("{}", memory.first());
    io::stdout().flush()?;
    let forget = Forget::new()?;
    let mut orders = io::stdin().lines();
    let until = cpu_time() + busy;
    loop {
        let working = cpu_time() < until;
        if working {
            (0..pages).for_each(|page| memory.touch(page));
            forget.all();
        }
        if working && !waits() {
            continue;
        }
        let Some(order) = orders.next() else { return Ok(()) };
        obey(&memory, &order?)?;
        println!("done");
        io::stdout().flush()?;
    }
}

/// Works, and leaves in a file what came of it.
fn leave(memory: &Memory, pages: usize, node: usize, busy: Picos, file: &str) -> Result<()> {
    let forget = Forget::new()?;
    let until = cpu_time() + busy;
    while cpu_time() < until {
        (0..pages).for_each(|page| memory.touch(page));
        forget.all();
    }
    let away = memory.nodes()?.into_iter().filter(|n| *n != node as i32).count();
    fs::write(file, format!("{:.1}\n", away as f64 * 100.0 / pages.max(1) as f64)).context("a file")
}

fn obey(memory: &Memory, order: &str) -> Result<()> {
    let words: Vec<&str> = order.split(' ').collect();
    let number = |i: usize| words.get(i).and_then(|word| word.parse::<u64>().ok());
    match (words[0], number(1), number(2), number(3)) {
        ("bind", Some(first), Some(pages), Some(node)) => {
            ensure!(first >= memory.first(), "not its memory: {order}");
            let first = (first - memory.first()) as usize;
            memory.bind(first..first + pages as usize, node as usize).context("mbind")
        }
        _ => anyhow::bail!("no such order: {order}"),
    }
}

/// Whether there is something to be read, or the input has ended.
pub(crate) fn waits() -> bool {
    let mut poll = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor in an array of one, which outlives the call.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}
