//! The kernel's same-page merging on several nodes.
//!
//! Pages of equal contents, half of them on node 0 and half on node 1. Counters
//! are read as (shared, sharing, unshared, chains, dups):
//!
//! ```text
//! node 0    a a        per node:  a=a  a=a    2,2,0,0,0
//! node 1    a a        across:    a=a=a=a     1,3,0,0,0
//! ```
//!
//! Source: specs/ksm.md#migration, specs/ksm.md#files (Linux 6.12).

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::asked::Asked;
use crate::memory::{Memory, Whose};
use crate::offline::Blocks;
use crate::{TestResult, needs, skip};

/// What all pages hold.
const WORD: u64 = 0x6b73_6d00_6b73_6d00;

/// Passes after which nothing changes any more: two until pages merge, and for moved
/// ones one to leave their tree, one to find another.
const PASSES: u64 = 6;

/// How long passes may take; many times what they do.
const PATIENCE: Duration = Duration::from_secs(60);

fn path(name: &str) -> PathBuf {
    PathBuf::from("/sys/kernel/mm/ksm").join(name)
}

pub(crate) fn number(name: &str) -> Result<u64> {
    let text = fs::read_to_string(path(name)).with_context(|| format!("ksm/{name}"))?;
    text.trim().parse().with_context(|| format!("ksm/{name} holds {text:?}"))
}

pub(crate) fn set(name: &str, value: &str) -> Result<()> {
    fs::write(path(name), value).with_context(|| format!("ksm/{name} = {value}"))
}

/// The errno with which a write is refused; 0 if it isn't.
fn refusal(name: &str, value: &str) -> Result<i32> {
    match fs::write(path(name), value) {
        Ok(()) => Ok(0),
        Err(error) => {
            error.raw_os_error().with_context(|| format!("ksm/{name} = {value}: {error}"))
        }
    }
}

/// Nothing merged, ksmd stopped and quick, page balancing off.
pub(crate) fn begin(merge_across_nodes: u8) -> Result<()> {
    // It would move pages on its own account.
    fs::write("/proc/sys/kernel/numa_balancing", "0").context("numa_balancing = 0")?;
    set("run", "2")?;
    for (name, value) in [
        ("run", "0"),
        ("sleep_millisecs", "0"),
        ("pages_to_scan", "20000"),
        ("max_page_sharing", "256"),
        ("use_zero_pages", "0"),
        ("smart_scan", "0"),
    ] {
        // Linux 6.1 has no smart scan.
        if path(name).exists() {
            set(name, value)?;
        }
    }
    set("merge_across_nodes", &merge_across_nodes.to_string())
}

/// Lets ksmd do so many full passes, then stops it.
pub(crate) fn passes(n: u64) -> Result<()> {
    let from = number("full_scans")?;
    set("run", "1")?;
    let begun = Instant::now();
    // A pass may be under way: it doesn't count.
    while number("full_scans")? <= from + n {
        if begun.elapsed() > PATIENCE {
            bail!("{n} passes take ksmd longer than {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
    set("run", "0")
}

fn counters() -> Result<[u64; 5]> {
    let mut out = [0; 5];
    let names = [
        "pages_shared",
        "pages_sharing",
        "pages_unshared",
        "stable_node_chains",
        "stable_node_dups",
    ];
    for (value, name) in out.iter_mut().zip(names) {
        *value = number(name)?;
    }
    Ok(out)
}

/// Two pages on each of two nodes, merged.
struct Four([Memory; 2]);

impl Four {
    fn merged() -> Result<Self> {
        Self::merged_on([0, 1])
    }

    fn merged_on(nodes: [usize; 2]) -> Result<Self> {
        let four = Self([Memory::on(nodes[0], 2, |_| WORD)?, Memory::on(nodes[1], 2, |_| WORD)?]);
        for memory in &four.0 {
            memory.advise(libc::MADV_MERGEABLE).context("MADV_MERGEABLE")?;
        }
        passes(PASSES)?;
        Ok(four)
    }

    fn nodes(&self) -> Result<Vec<i32>> {
        Ok([self.0[0].nodes()?, self.0[1].nodes()?].concat())
    }

    /// Moves the merged page behind one half. It is mapped more than once, so the
    /// ordinary call has to refuse it.
    fn relocate(&self, half: usize, to: usize) -> Result<()> {
        let status = self.0[half].move_to(&[0], to, Whose::Own)?;
        ensure!(
            status == [-libc::EACCES],
            "a page mapped twice: {status:?} and not EACCES from a move of one's own"
        );
        // Somebody may hold the page for a moment.
        for _ in 0..50 {
            let status = self.0[half].move_to(&[0], to, Whose::All)?;
            if status == [to as i32] {
                return Ok(());
            }
            ensure!(
                [-libc::EAGAIN, -libc::EBUSY].contains(&status[0]),
                "a merged page to node {to}: {status:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
        bail!("a merged page stays busy")
    }

    fn intact(&self) -> bool {
        self.0.iter().all(|memory| memory.holds(0, WORD) && memory.holds(1, WORD))
    }
}

pub(crate) fn per_node(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: per node and across are the same")?;
    type Scene = (&'static str, u8, &'static [(usize, usize)], [u64; 5], [i32; 4]);
    // Name, merge_across_nodes, (half, to) moved, counters, nodes.
    let scenes: [Scene; 5] = [
        ("per node", 0, &[], [2, 2, 0, 0, 0], [0, 0, 1, 1]),
        ("per node, node 0's moved to 1", 0, &[(0, 1)], [2, 2, 0, 1, 2], [1, 1, 1, 1]),
        ("per node, both moved across", 0, &[(0, 1), (1, 0)], [2, 2, 0, 1, 1], [1, 1, 0, 0]),
        ("across", 1, &[], [1, 3, 0, 0, 0], [0, 0, 0, 0]),
        ("across, moved to 1", 1, &[(0, 1)], [1, 3, 0, 0, 0], [1, 1, 1, 1]),
    ];
    let mut facts = serde_json::Map::new();
    let mut wrong = Vec::new();
    for (name, across, moved, want, nodes) in scenes {
        begin(across)?;
        let four = Four::merged()?;
        // With all four merged the frame is the last scanned one's or another's: begin on 0.
        if across == 1 && four.nodes()?[0] != 0 {
            four.relocate(0, 0)?;
            passes(PASSES)?;
        }
        for &(half, to) in moved {
            four.relocate(half, to)?;
        }
        if !moved.is_empty() {
            passes(PASSES)?;
        }
        let (got, there) = (counters()?, four.nodes()?);
        facts.insert(name.to_owned(), json!({"counters": got, "nodes": there}));
        if got != want || there != nodes {
            wrong.push(format!(
                "{name}: {got:?} with pages on {there:?}, not {want:?} on {nodes:?}"
            ));
        }
        ensure!(four.intact(), "{name}: contents changed");
        set("run", "2")?;
        ensure!(four.intact(), "{name}: contents changed when sharing ended");
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(facts.into())
}

/// S4: the memory of a node goes that has a merged page, and comes back. The page goes to another
/// node, where it joins its like or stands alone; what is merged stays, and holds what it held.
pub(crate) fn offline(asked: &Asked) -> TestResult {
    let last = asked.nodes.len() - 1;
    needs(last > 0, "one node: it can't go")?;
    begin(0)?;
    let four = Four::merged_on([0, last])?;
    let there = four.nodes()?;
    ensure!(there == [0, 0, last as i32, last as i32], "merged per node, on {there:?}");
    ensure!(counters()? == [2, 2, 0, 0, 0], "before: {:?}", counters()?);
    let Some(mut blocks) = Blocks::offline(last)? else {
        set("run", "2")?;
        return Err(skip(format!("node {last} has memory that can't go")));
    };
    let gone = four.nodes()?;
    ensure!(gone[..2] == [0, 0] && gone[2] == gone[3], "while it is gone: {gone:?}");
    ensure!(gone[2] != last as i32, "a page is on a node that is gone: {gone:?}");
    ensure!(four.intact(), "contents changed as the node went");
    ensure!(counters()?[..2] == [2, 2], "as it went: {:?}", counters()?);
    passes(PASSES)?;
    // Beside its like on node 0 it is a second copy of a chain; on another node it is alone.
    let want = if gone[2] == 0 { [2, 2, 0, 1, 2] } else { [2, 2, 0, 0, 0] };
    ensure!(counters()? == want, "after passes: {:?}, not {want:?}, on {gone:?}", counters()?);
    ensure!(four.intact(), "contents changed as ksmd went over them");
    blocks.online()?;
    passes(PASSES)?;
    let back = four.nodes()?;
    ensure!(back == gone, "the node is back: {back:?}, and before {gone:?}");
    set("run", "2")?;
    ensure!(four.intact() && counters()?[..2] == [0, 0], "unmerged: {:?}", counters()?);
    Ok(json!({"merged on": there, "and gone": gone, "counters": want}))
}

pub(crate) fn switch(asked: &Asked) -> TestResult {
    needs(asked.nodes.len() >= 2, "one node: there is no merge_across_nodes")?;
    let knob = "merge_across_nodes";
    let expect = |value: &str, errno: i32, when: &str| -> Result<()> {
        let got = refusal(knob, value)?;
        ensure!(got == errno, "{knob} = {value:?} {when}: errno {got}, not {errno}");
        Ok(())
    };
    begin(1)?;
    let four = Four::merged()?;
    ensure!(counters()?[..2] == [1, 3], "across: {:?}", counters()?);
    // What it is already may be written at any time; what is no value at all is
    // noticed before anybody looks whether pages are shared.
    expect("1", 0, "while pages are shared, as it is")?;
    expect("0", libc::EBUSY, "while pages are shared")?;
    expect("2", libc::EINVAL, "while pages are shared")?;
    expect("x", libc::EINVAL, "while pages are shared")?;
    expect("99999999999999999999999", libc::ERANGE, "while pages are shared")?;
    ensure!(number(knob)? == 1, "a refused write changed it");
    set("run", "1")?;
    expect("0", libc::EBUSY, "while ksmd runs and pages are shared")?;
    set("run", "2")?;
    expect("0", 0, "after run = 2")?;
    ensure!(number(knob)? == 0, "it was taken but isn't shown");
    // The copies that ended sharing lie where they were made: begin anew.
    drop(four);
    let four = Four::merged()?;
    ensure!(counters()?[..2] == [2, 2], "per node after the switch: {:?}", counters()?);
    expect("1", libc::EBUSY, "while pages are shared per node")?;
    set("run", "2")?;
    // Running alone forbids nothing.
    drop(four);
    set("run", "1")?;
    expect("1", 0, "while ksmd runs and nothing is shared")?;
    set("run", "0")?;
    ensure!(number(knob)? == 1, "it was taken but isn't shown");
    Ok(json!({"refused_with": {"shared": "EBUSY", "2": "EINVAL", "huge": "ERANGE"}}))
}
