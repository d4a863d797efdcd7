//! S1 with homenode's policy: a hot set on the slow node, the fast one full of somebody
//! else's cold pages, and a neighbour that is bound there and comes and goes.
//!
//! ```text
//!   fast node                                       slow node
//!   ┌────────────────────────────────────────┐     ┌──────────────────────────┐
//!   │ cold: written for 1.5 s, then asleep   │ ──▶ │ set 0 │ set 1 │ set 2    │
//!   │ rest: nobody's affair                  │     │  ▲ written all the time, │
//!   │ neighbour, bound: + n pages, - n, + n  │ ◀── │  │ from the fast node    │
//!   │ free: about `low`                      │     └──────────────────────────┘
//!   └────────────────────────────────────────┘
//! ```
//!
//! The kernel neither balances nor demotes: all that moves is homenode's.
//!
//! Source: specs/act.md#full.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homenode_machine::endtoend::ZoneNow;
use serde_json::{Value, json};

use super::beside::{BEGINS_MS, Beside, Knob, SPARE, Stalls, zones_of};
use super::{Scene, ledger, lines};
use crate::TestResult;
use crate::asked::Asked;
use crate::memory::{Memory, Whose, nodes_of};
use crate::observe::Busy;
use crate::{needs, skip};

/// Pages of a hot set, as in the kernel's own scene.
const HOT: u64 = 2048;
/// Stretches that are hot one after the other.
const SETS: u64 = 3;
/// For how long a later one is hot, at least.
const PERIOD: Duration = Duration::from_secs(10);
/// How long the first one may take to come up; many times what it does.
const PATIENCE: Duration = Duration::from_secs(150);
/// Between two looks at where its pages are.
const LOOK: Duration = Duration::from_millis(300);
/// Pages that the neighbour keeps.
const KEPT: u64 = 64;
/// How long it is looked on without homenode.
const WITHOUT: Duration = Duration::from_secs(6);
/// Fewest rounds of the neighbour for which it counts as one that comes and goes.
const ROUNDS: u64 = 20;

/// The scene.
struct Full {
    hot: Beside,
    cold: Busy,
    neighbour: Beside,
    /// Has what is left of the fast node.
    _rest: Busy,
    fast: usize,
    /// Pages that the neighbour takes and gives back.
    taken: u64,
    _lists: Knob,
    scene: Scene,
}

/// Sums over the zones of a node.
fn sum(node: usize, of: impl Fn(&ZoneNow) -> u64) -> Result<u64> {
    Ok(zones_of(node)?.iter().map(of).sum())
}

/// Pages that a node could take before kswapd is woken.
pub(super) fn above_low(node: usize) -> Result<u64> {
    sum(node, |zone| zone.above(zone.low))
}

/// The only fast node, and its CPUs.
pub(super) fn fast_node(asked: &Asked) -> Result<(usize, Vec<u32>)> {
    let fast: Vec<usize> =
        (0..asked.nodes.len()).filter(|&n| !asked.nodes[n].cpus.is_empty()).collect();
    let [fast] = fast[..] else { return Err(skip("several fast nodes: none has to be full")) };
    needs(asked.nodes.len() == 2 && asked.tiers.len() == 2, "no slow node beside it")?;
    Ok((fast, asked.nodes[fast].cpus.clone()))
}

impl Full {
    fn set(asked: &Asked) -> Result<Self> {
        let (fast, cpus) = fast_node(asked)?;
        let scene = Scene::set(asked)?;
        // Free pages that CPUs keep for themselves count as used.
        let lists = Knob::set("/proc/sys/vm/percpu_pagelist_high_fraction", "2000")?;
        let hot = Beside::wanders(HOT, SETS, scene.slow, &cpus[..1])?;
        // Half of what lies between kswapd's mark and that of reclaim by who allocates.
        let gap = sum(fast, |zone| zone.low.saturating_sub(zone.min))?;
        let taken = gap / 2;
        let fill = above_low(fast)?;
        ensure!(fill > 4 * HOT, "node {fast} has no room to be filled: {fill} pages");
        let fill = fill - fill / 512 - KEPT - SPARE;
        let cold = Busy::with(fill, fast, BEGINS_MS)?;
        let neighbour = Beside::neighbour(KEPT, taken, fast, &cpus)?;
        // While the neighbour has what it takes.
        let left = above_low(fast)?.saturating_sub(SPARE).max(1);
        let rest = Busy::with(left, fast, 0)?;
        sleep(Duration::from_millis(BEGINS_MS));
        let full = Self { hot, cold, neighbour, _rest: rest, fast, taken, _lists: lists, scene };
        for _ in 0..20 {
            let room = sum(fast, |zone| zone.above(zone.high))?;
            // The kernel finds some pages of its own to spare.
            ensure!(room < HOT / 8, "node {fast} is not full: {room} pages above its high marks");
            sleep(Duration::from_millis(10));
        }
        Ok(full)
    }

    /// Pages of a set that are on the fast node.
    fn up(&self, set: u64) -> Result<u64> {
        let first = self.hot.first + set * HOT;
        let nodes = nodes_of(self.hot.pid(), first..first + HOT)?;
        Ok(nodes.into_iter().filter(|&n| n == self.fast as i32).count() as u64)
    }
}

/// Pages that rows of the ledger have moved for a process; all, or those to a node.
fn moved(rows: &[Value], pid: u32, to: Option<usize>) -> u64 {
    let fits = |row: &&Value| row["pid"] == pid && to.is_none_or(|to| row["to"] == to);
    rows.iter().filter(fits).filter_map(|row| row["moved_bytes"].as_u64()).sum::<u64>() / 4096
}

/// Where the pages of all sets are, look by look.
struct Track {
    pid: u32,
    first: u64,
    on: Vec<i32>,
    /// How often each has moved in this period.
    times: Vec<u32>,
    /// Moves that were seen, and pages that moved twice within a period.
    seen: u64,
    twice: u64,
}

impl Track {
    fn new(pid: u32, first: u64, pages: u64) -> Result<Self> {
        let on = nodes_of(pid, first..first + pages)?;
        let times = vec![0; on.len()];
        Ok(Self { pid, first, on, times, seen: 0, twice: 0 })
    }
    fn look(&mut self) -> Result<()> {
        let now = nodes_of(self.pid, self.first..self.first + self.on.len() as u64)?;
        for ((was, is), times) in self.on.iter_mut().zip(now).zip(&mut self.times) {
            // A page on its way has no node.
            if is >= 0 && is != *was {
                *times += 1;
                self.seen += 1;
                self.twice += u64::from(*times == 2);
                *was = is;
            }
        }
        Ok(())
    }
    fn next_period(&mut self) {
        self.times.fill(0);
    }
}

/// The hot set comes up, what is cold makes room, and nobody has to reclaim for that; then it
/// goes elsewhere twice, and hardly a page is moved twice meanwhile.
pub(crate) fn full(asked: &Asked) -> TestResult {
    let mut full = Full::set(asked)?;
    let (fast, slow) = (full.fast, full.scene.slow);
    let (hot, cold, neighbour) = (full.hot.pid(), full.cold.pid(), full.neighbour.pid());

    let (before, rounds) = (Stalls::now()?, full.neighbour.tell(0)?);
    sleep(WITHOUT);
    let without = Stalls::now()?.since(before);
    let rounds = full.neighbour.tell(0)? - rounds;
    ensure!(rounds >= ROUNDS, "without homenode the neighbour came {rounds} times");
    ensure!(full.up(0)? == 0, "{} pages came up without homenode", full.up(0)?);

    let rows = lines();
    let mut track = Track::new(hot, full.hot.first, SETS * HOT)?;
    let (before, came) = (Stalls::now()?, full.neighbour.tell(0)?);
    let mut command = Command::new("/bin/homenode");
    // The neighbour too, though its pages have to stay.
    command.args(["act", "--json"]);
    command
        .args([hot, cold, neighbour].iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (begun, mut first) = (Instant::now(), None);
    while full.up(0)? < HOT / 4 * 3 && begun.elapsed() < PATIENCE {
        sleep(LOOK);
        track.look()?;
        first = first.or((lines() > rows).then(|| begun.elapsed().as_secs()));
    }
    let (took, mut up) = (begun.elapsed().as_secs(), vec![full.up(0)?]);
    for set in 1..SETS {
        full.hot.tell(set)?;
        track.next_period();
        let begun = Instant::now();
        // On a busy host it takes longer to come up.
        while begun.elapsed() < PERIOD || full.up(set)? < HOT / 2 && begun.elapsed() < PERIOD * 6 {
            sleep(LOOK);
            track.look()?;
        }
        up.push(full.up(set)?);
    }
    super::signal(&child, libc::SIGTERM);
    let output = child.wait_with_output()?;
    let words = [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
    ensure!(output.status.success(), "act: {}: {words:?}", output.status);
    track.look()?;
    let with = Stalls::now()?.since(before);
    let came = full.neighbour.tell(0)? - came;
    full.scene.holds("a full node")?;

    let rows = ledger(rows)?;
    let down = moved(&rows, cold, Some(slow));
    let kept = nodes_of(neighbour, full.neighbour.first..full.neighbour.first + KEPT)?;
    ensure!(came >= ROUNDS, "beside homenode the neighbour came {came} times");
    ensure!(up[0] >= HOT / 4 * 3, "of {HOT} hot pages {up:?} came up in {took} s: {words:?}");
    ensure!(down >= up[0] / 2, "{up:?} pages came up to a full node, {down} cold ones went down");
    ensure!(kept.iter().all(|&n| n == fast as i32), "bound to node {fast}, and moved: {kept:?}");
    ensure!(
        with.stalls <= without.stalls && with.scanned <= without.scanned,
        "direct reclaim: {without:?} in {WITHOUT:?} without homenode, {with:?} with it"
    );

    // Moves that were not seen went to and fro between two looks.
    let told = moved(&rows, hot, None);
    let hidden = told.checked_sub(track.seen).context("more moves were seen than are told")?;
    let twice = track.twice + hidden.div_ceil(2);
    let back = moved(&rows, cold, None) - down;
    ensure!(
        (twice + back) * 100 <= told,
        "of {told} moves {} were seen; {} pages twice in a period, {back} cold ones up: {up:?}",
        track.seen,
        track.twice
    );
    ensure!(up[1..].iter().any(|&n| n >= HOT / 2), "no later set came up: {up:?}: {words:?}");

    // That the counters would tell: who moves as much without asking for room reclaims.
    let more = sum(fast, |zone| zone.above(zone.min))? + HOT;
    let own = Memory::on(slow, more as usize, |page| page as u64)?;
    let all: Vec<usize> = (0..more as usize).collect();
    let before = Stalls::now()?;
    for some in all.chunks(HOT as usize / 4) {
        // How far it comes is left open.
        let _ = own.move_to(some, fast, Whose::Own);
    }
    let blind = Stalls::now()?.since(before);
    ensure!(blind.stalls > 0, "{more} pages were moved to a full node, and nothing reclaimed");
    Ok(json!({
        "came up": up,
        "of": HOT,
        "seconds": {"to the first move": first, "to three quarters of the first": took},
        "cold that went down": down,
        "neighbour": {"pages": full.taken, "rounds": [rounds, came]},
        "stalls": {"without": without.stalls, "with": with.stalls, "moved blindly": blind.stalls},
        "scanned": {"without": without.scanned, "with": with.scanned},
        "moves of the hot ones": told,
        "twice in a period": twice,
        "cold ones that came up": back,
    }))
}
