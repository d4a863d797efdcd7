//! What homenode's mover takes beside a bare loop of the `move_pages` calls that it makes.
//!
//! ```text
//! 64 MiB on the slow node ── orders of n pages ──▶ MovePages::carry ─┐   and down again
//!                        └── calls of as many   ──▶ move_pages ──────┴▶ calls and pages, as
//!                                                                      the kernel traces them
//! ```
//!
//! Calls and pages handed in come from a tracepoint (`syscalls/sys_enter_move_pages`), moved
//! pages from `/proc/vmstat`: neither is homenode's word. Time is told beside; both loops are
//! emulated alike.
//!
//! Source: specs/act.md#throughput.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homenode_core::units::NodeId;
use homenode_live::machine::Mover as _;
use homenode_live::mover::MovePages;
use serde_json::{Value, json};

use super::full::fast_node;
use super::peers::moved;
use crate::TestResult;
use crate::asked::Asked;
use crate::memory::{Memory, Whose};
use crate::observe::Still;
use crate::places::{me, span};
use crate::skip;

/// Pages that go up and down.
const PAGES: usize = 16_384;
/// How often they go up, and down.
const TIMES: usize = 3;
/// Pages of an order: what an engine names at once by the default stall budget (1 ms, 2.7 µs a
/// page), and what it names where a longer one is allowed.
const ORDERS: [usize; 2] = [370, 4096];
/// Long enough that the budget bounds no call: the mover's own work is looked at.
const STALL: Duration = Duration::from_secs(10);

/// Counts the calls that move pages, and those that ask, until it is dropped.
struct Traced(PathBuf);

impl Traced {
    const EVENT: &str = "/sys/kernel/tracing/events/syscalls/sys_enter_move_pages";
    const KEYS: &str = "hist:keys=common_pid:vals=nr_pages if nodes";

    fn start(asks: bool) -> Result<Self> {
        let trigger = PathBuf::from(Self::EVENT).join("trigger");
        let text = format!("{} {} 0", Self::KEYS, if asks { "==" } else { "!=" });
        fs::write(&trigger, &text).map_err(|e| skip(format!("{}: {e}", trigger.display())))?;
        Ok(Self(trigger))
    }
    /// Calls and pages of this process so far.
    fn told(&self) -> Result<(u64, u64)> {
        let text = fs::read_to_string(self.0.with_file_name("hist"))?;
        let own = std::process::id().to_string();
        let of = |line: &str| -> Option<(u64, u64)> {
            // { common_pid:        123 } hitcount:          4  nr_pages:       4096
            let (keys, values) = line.split_once('}')?;
            (keys.split_whitespace().next_back()? == own).then_some(())?;
            let words: Vec<&str> = values.split_whitespace().collect();
            let after = |name: &str| {
                let at = words.iter().position(|w| *w == name)?;
                words.get(at + 1)?.parse().ok()
            };
            Some((after("hitcount:")?, after("nr_pages:")?))
        };
        Ok(text.lines().find_map(of).unwrap_or_default())
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        for set in text.lines().filter(|line| line.starts_with("hist:")) {
            let _ = fs::write(&self.0, format!("!{set}"));
        }
    }
}

/// What moved all pages up and down again took.
#[derive(Default)]
struct Took {
    seconds: f64,
    moved: u64,
}

impl Took {
    fn add(&mut self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let (before, begun) = (moved()?, Instant::now());
        run()?;
        self.seconds += begun.elapsed().as_secs_f64();
        self.moved += moved()?.saturating_sub(before);
        Ok(())
    }
}

/// Orders of so many pages, beside the calls that a bare loop makes for them.
fn orders_of(pages: usize, memory: &Memory, ways: [(usize, usize); 2]) -> Result<Value> {
    let who = me()?;
    let mut mover = MovePages::new("/", STALL);
    let mut ours = |from: usize, to: usize| -> Result<()> {
        let (from, to) = (NodeId(from as u16), NodeId(to as u16));
        for first in (0..PAGES).step_by(pages) {
            let last = PAGES.min(first + pages);
            let part = span(memory, first as u64..last as u64);
            let got = mover.carry(who, &[part], from, to);
            ensure!(got.moved == part.pages(), "{part:?}: {got:?}");
        }
        Ok(())
    };
    let bare = |to: usize, size: usize| -> Result<()> {
        let all: Vec<usize> = (0..PAGES).collect();
        for part in all.chunks(size) {
            let there = memory.move_to(part, to, Whose::Own)?;
            ensure!(there.iter().all(|&n| n == to as i32), "not all are on node {to}");
        }
        Ok(())
    };
    // How many calls, and how many pages each: of our own run, then the bare loop makes as large ones.
    let count = |asks: bool, run: &mut dyn FnMut() -> Result<()>| -> Result<(u64, u64)> {
        let traced = Traced::start(asks)?;
        run()?;
        traced.told()
    };
    let mut up_and_down = || ways.iter().try_for_each(|&(from, to)| ours(from, to));
    let (calls, handed) = count(false, &mut up_and_down)?;
    let (asks, asked) = count(true, &mut up_and_down)?;
    ensure!(calls > 0 && handed > 0, "the tracepoint told nothing");
    let size = (handed.div_ceil(calls) as usize).min(pages);
    let (peer_calls, peer_handed) =
        count(false, &mut || ways.iter().try_for_each(|&(_, to)| bare(to, size)))?;
    let (mut our, mut peer) = (Took::default(), Took::default());
    for _ in 0..TIMES {
        for &(from, to) in &ways {
            our.add(|| ours(from, to))?;
        }
        for &(_, to) in &ways {
            peer.add(|| bare(to, size))?;
        }
    }
    Ok(json!({
        "pages": pages,
        "ours": {
            "calls": calls, "handed": handed, "asks": asks, "asked": asked,
            "moved": our.moved, "seconds": our.seconds,
        },
        "bare": {
            "calls": peer_calls, "handed": peer_handed,
            "moved": peer.moved, "seconds": peer.seconds,
        },
    }))
}

pub(crate) fn throughput(asked: &Asked) -> TestResult {
    let (fast, _) = fast_node(asked)?;
    let slow = 1 - fast;
    let _still = Still::now()?;
    let memory = Memory::on(slow, PAGES, |page| page as u64)?;
    let ways = [(slow, fast), (fast, slow)];
    let told = ORDERS.iter().map(|&pages| orders_of(pages, &memory, ways).context("orders"));
    let told = told.collect::<Result<Vec<_>>>()?;
    ensure!((0..PAGES).all(|page| memory.holds(page, page as u64)), "a page lost its contents");
    Ok(Value::from(told))
}
