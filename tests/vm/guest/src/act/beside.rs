//! Programs beside which homenode acts: this one, executed once more.
//!
//! ```text
//! homenode-guest --beside wanders PAGES SETS NODE      ──▶ number of its first page
//!   ◀── number of a set     ──▶ number of rounds so far      writes that set every few ms
//! homenode-guest --beside neighbour KEPT TAKEN NODE    ──▶ number of the first page that it keeps
//!   ◀── any number          ──▶ number of rounds so far      takes and gives back all the time
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Lines, StdinLock, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use homenode_core::units::NodeId;
use homenode_machine::endtoend::{ZoneNow, zones};

use crate::load::waits;
use crate::memory::{Forget, Memory};
use crate::process::pin;

/// Between taking and giving back.
const BREATH: Duration = Duration::from_millis(20);
/// Between two walks through a hot set: less than DAMON's 5 ms, and a guest's CPUs share one
/// of the host's, which others need too.
const PAUSE: Duration = Duration::from_millis(2);

/// Processor time of who is cold afterwards: above the start delay, so that homenode knows it.
pub(super) const BEGINS_MS: u64 = 1500;
/// What programs take beside their memory (page tables, stacks), and by which counts may differ.
pub(super) const SPARE: u64 = 256;

/// One of them; killed when dropped.
pub(super) struct Beside {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The number of its first page.
    pub(super) first: u64,
}

impl Beside {
    /// Writes one of `sets` stretches of so many pages, which lie one behind the other.
    pub(super) fn wanders(pages: u64, sets: u64, node: usize, cpus: &[u32]) -> Result<Self> {
        Self::start("wanders", [pages, sets, node as u64], cpus)
    }
    /// Keeps some pages of a node, and takes more of it and gives them back all the time;
    /// all of them are bound there.
    pub(super) fn neighbour(kept: u64, taken: u64, node: usize, cpus: &[u32]) -> Result<Self> {
        Self::start("neighbour", [kept, taken, node as u64], cpus)
    }

    fn start(what: &str, numbers: [u64; 3], cpus: &[u32]) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--beside", what]).args(numbers.map(|n| n.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| what.to_owned())?;
        let orders = child.stdin.take().context("no pipe")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut one = Self { child, orders, answers, first: 0 };
        one.first = one.answer().context(what.to_owned())?;
        pin(one.pid(), cpus).context("its CPUs")?;
        Ok(one)
    }

    fn answer(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("it told {line:?}"))
    }

    /// Tells it a number; the rounds that it has made so far.
    pub(super) fn tell(&mut self, number: u64) -> Result<u64> {
        writeln!(self.orders, "{number}").context("it has ended")?;
        self.answer()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs until the input ends.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let number = |i: usize| -> Result<usize> {
        args.get(i).and_then(|text| text.parse().ok()).context("--beside WHAT and three numbers")
    };
    let (a, b, node) = (number(1)?, number(2)?, number(3)?);
    let mut orders = io::stdin().lines();
    match args[0] {
        "wanders" => wanders(a, b, node, &mut orders),
        "neighbour" => neighbour(a, b, node, &mut orders),
        other => bail!("there is no {other}"),
    }
}

fn say(number: u64) -> Result<()> {
    println!("{number}");
    Ok(io::stdout().flush()?)
}

/// An order, where there is one; `None` at the end of the input.
fn order(orders: &mut Lines<StdinLock<'static>>, rounds: u64) -> Result<Option<Option<usize>>> {
    if !waits() {
        return Ok(Some(None));
    }
    let Some(line) = orders.next() else { return Ok(None) };
    let number = line?.trim().parse().context("a number")?;
    say(rounds)?;
    Ok(Some(Some(number)))
}

fn wanders(
    pages: usize,
    sets: usize,
    node: usize,
    orders: &mut Lines<StdinLock<'static>>,
) -> Result<()> {
    let memory = Memory::on(node, pages * sets, |page| page as u64)?;
    let forget = Forget::new()?;
    say(memory.first())?;
    let (mut set, mut rounds) = (0, 0);
    loop {
        (set * pages..(set + 1) * pages).for_each(|page| memory.touch(page));
        forget.all();
        sleep(PAUSE);
        rounds += 1;
        let Some(told) = order(orders, rounds)? else { return Ok(()) };
        set = told.unwrap_or(set);
        ensure!(set < sets, "there is no set {set}");
    }
}

fn neighbour(
    kept: usize,
    taken: usize,
    node: usize,
    orders: &mut Lines<StdinLock<'static>>,
) -> Result<()> {
    let bound = |pages: usize| -> Result<Memory> {
        let memory = Memory::reserve(pages).context("no memory")?;
        memory.advise(libc::MADV_NOHUGEPAGE).context("MADV_NOHUGEPAGE")?;
        memory.bind(0..pages, node).context("mbind")?;
        (0..pages).for_each(|page| memory.touch(page));
        Ok(memory)
    };
    let kept = bound(kept)?;
    say(kept.first())?;
    let mut rounds = 0;
    loop {
        let some = bound(taken)?;
        sleep(BREATH);
        drop(some);
        sleep(BREATH);
        rounds += 1;
        if order(orders, rounds)?.is_none() {
            return Ok(());
        }
    }
}

/// The zones of a node as they are now.
pub(super) fn zones_of(node: usize) -> Result<Vec<ZoneNow>> {
    // What CPUs have counted for themselves joins the sums: reading this does it.
    let _ = fs::read_to_string("/proc/sys/vm/stat_refresh");
    let text = fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?;
    let mut all = zones(&text);
    all.retain(|zone| zone.node == NodeId(node as u16));
    ensure!(!all.is_empty(), "node {node} has no zone with memory");
    Ok(all)
}

/// Reclaim on behalf of those who allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalls {
    /// Allocations that had to: `allocstall*`.
    pub(super) stalls: u64,
    /// Pages that were scanned for that.
    pub(super) scanned: u64,
}

impl Stalls {
    pub(super) fn now() -> Result<Self> {
        let _ = fs::read_to_string("/proc/sys/vm/stat_refresh");
        let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
        let sum = |fits: fn(&str) -> bool| -> u64 {
            let counters = text.lines().filter_map(|line| line.split_once(' '));
            let some = counters.filter(|(name, _)| fits(name));
            some.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum()
        };
        let stalls = sum(|name| name.starts_with("allocstall"));
        Ok(Self { stalls, scanned: sum(|name| name == "pgscan_direct") })
    }
    pub(super) fn since(self, before: Self) -> Self {
        Self { stalls: self.stalls - before.stalls, scanned: self.scanned - before.scanned }
    }
}

/// A knob that shows something else until this is dropped.
pub(super) struct Knob {
    path: &'static str,
    before: Option<String>,
}

impl Knob {
    /// A kernel that has no such knob is left as it is.
    pub(super) fn set(path: &'static str, text: &str) -> Result<Self> {
        let Ok(before) = fs::read_to_string(path) else { return Ok(Self { path, before: None }) };
        fs::write(path, text).with_context(|| format!("{path} = {text}"))?;
        Ok(Self { path, before: Some(before.trim().to_owned()) })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.before.as_ref().map(|before| fs::write(self.path, before)) {
            eprintln!("{} can't be set back: {e}", self.path);
        }
    }
}
