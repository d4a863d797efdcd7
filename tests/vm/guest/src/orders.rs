//! Moving what can't simply be moved: huge pages, shared ones, bound ones, and into a
//! node that is full.

use std::fs;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use homenode_core::policy::order::Fails;
use homenode_core::policy::seen::Span;
use homenode_core::units::{NodeId, Pages};
use homenode_live::machine::{Carried, Mover};
use homenode_live::mover::MovePages;
use serde_json::{Value, json};

use crate::TestResult;
use crate::asked::Asked;
use crate::memory::{Memory, nodes_of};
use crate::places::{counted, me, span};
use crate::process::{end, fork};
use crate::stage::{nodes, vmstat};

/// From where to where.
#[derive(Clone, Copy)]
struct Way {
    from: usize,
    to: usize,
}

impl Way {
    fn carry(self, span: Span) -> Result<Carried> {
        let (from, to) = (NodeId(self.from as u16), NodeId(self.to as u16));
        let on = |node: NodeId| {
            Ok::<_, anyhow::Error>(counted(span)?.get(&node).copied().unwrap_or_default())
        };
        let before = on(to)?;
        let got = MovePages::new("/", Duration::from_secs(1)).carry(me()?, &[span], from, to);
        let named = span.pages();
        ensure!(got.moved + got.fails.all() == named, "{named:?} named: {got:?}");
        let more = on(to)? - before;
        ensure!(more == got.moved, "{got:?}, but {more:?} came to node {to}");
        Ok(got)
    }
}

pub(crate) fn orders(asked: &Asked) -> TestResult {
    let (fast, slow) = nodes(asked)?;
    let balancing = "/proc/sys/kernel/numa_balancing";
    if fs::metadata(balancing).is_ok() {
        fs::write(balancing, "0").context(balancing)?;
    }
    let way = Way { from: slow, to: fast };
    Ok(json!({
        "huge": huge(way).context("a huge page")?,
        "shared": shared(way).context("pages that two processes map")?,
        "bound": bound(way).context("pages of a task that is bound")?,
        "cpuset": cpuset(way).context("a task in a cpuset")?,
        "full": full(way).context("into a full node")?,
    }))
}

fn only(kind: impl Fn(&mut Fails) -> &mut Pages, pages: u64) -> Carried {
    let mut fails = Fails::default();
    *kind(&mut fails) = Pages(pages);
    Carried { moved: Pages::ZERO, fails }
}

/// A part of a huge page is named: all of it moves, what was named is counted.
fn huge(way: Way) -> Result<Value> {
    let memory = Memory::advised(way.from, 1024, libc::MADV_HUGEPAGE, |page| page as u64)?;
    let got = way.carry(span(&memory, 100..200))?;
    ensure!(got.moved == Pages(100), "{got:?}");
    let first = memory.first();
    let there = nodes_of(0, first..first + 1024)?;
    let (moved, rest) = there.split_at(512);
    ensure!(moved.iter().all(|&n| n == way.to as i32), "a huge page was torn: {moved:?}");
    ensure!(rest.iter().all(|&n| n == way.from as i32), "its neighbour came along: {rest:?}");
    let got = way.carry(span(&memory, 0..1024))?;
    ensure!((got.moved, got.fails.absent) == (Pages(512), Pages(512)), "{got:?}");
    for page in 0..1024 {
        ensure!(memory.holds(page, page as u64), "page {page} lost its contents");
    }
    Ok(json!(got.moved.0))
}

/// A forked child has the same pages.
fn shared(way: Way) -> Result<Value> {
    let memory = Memory::on(way.from, 64, |page| page as u64)?;
    let child = fork(|| {
        loop {
            // SAFETY: nothing of the parent's is touched.
            unsafe { libc::pause() };
        }
    })?;
    let got = way.carry(span(&memory, 0..64));
    end(child);
    let (got, want) = (got?, only(|f| &mut f.forbidden, 64));
    ensure!(got == want, "{got:?}");
    let alone = way.carry(span(&memory, 0..64))?;
    ensure!(alone.moved == Pages(64), "alone again: {alone:?}");
    Ok(json!("forbidden"))
}

fn policy(mode: libc::c_int, node: usize) -> Result<()> {
    let mask = 1u64 << node;
    let (mask, bits) = if mode == 0 { (std::ptr::null(), 0) } else { (&raw const mask, 65) };
    // SAFETY: the mask, if any, outlives the call.
    let r = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    ensure!(r == 0, "set_mempolicy: {}", io::Error::last_os_error());
    Ok(())
}

/// The task's own `MPOL_BIND` holds for mappings that have no policy.
fn bound(way: Way) -> Result<Value> {
    let memory = Memory::on(way.from, 64, |page| page as u64)?;
    policy(libc::MPOL_BIND, way.from)?;
    let got = way.carry(span(&memory, 0..64));
    policy(libc::MPOL_DEFAULT, 0)?;
    let (got, want) = (got?, only(|f| &mut f.forbidden, 64));
    ensure!(got == want, "{got:?}");
    Ok(json!("forbidden"))
}

fn cpuset(way: Way) -> Result<Value> {
    const TOP: &str = "/sys/fs/cgroup";
    let own = format!("{TOP}/orders");
    if fs::write(format!("{TOP}/cgroup.subtree_control"), "+cpuset").is_err() {
        return Ok(json!("this kernel has no cpusets"));
    }
    let join = |group: &str| {
        let path = format!("{group}/cgroup.procs");
        fs::write(&path, std::process::id().to_string()).context(path)
    };
    fs::create_dir_all(&own)?;
    let memory = Memory::on(way.from, 64, |page| page as u64)?;
    fs::write(format!("{own}/cpuset.mems"), way.from.to_string()).context("cpuset.mems")?;
    join(&own)?;
    let got = way.carry(span(&memory, 0..64));
    join(TOP)?;
    fs::remove_dir(&own).context(own)?;
    let (got, want) = (got?, only(|f| &mut f.forbidden, 64));
    ensure!(got == want, "{got:?}");
    Ok(json!("forbidden"))
}

/// The target has a little left: allocation goes elsewhere with some 11,000 pages free, and
/// moving goes on below that, so that more is to be moved than is free. What has no room
/// stays, and the kernel keeps its mark.
fn full(way: Way) -> Result<Value> {
    const PAGES: u64 = 16_000;
    const LEFT: u64 = 3000;
    let memory = Memory::on(way.from, PAGES as usize, |page| page as u64)?;
    let free = || -> Result<u64> { free_of(way.to) };
    let fill = free()?.saturating_sub(LEFT);
    let filling = Memory::preferring(way.to, fill as usize)?;
    let before = free()?;
    let stalls = vmstat("allocstall_movable")?;
    let got = way.carry(span(&memory, 0..PAGES))?;
    ensure!(got.moved.0 > 0, "nothing moved with {before} pages free: {got:?}");
    ensure!(got.fails.no_room.0 > 0, "all found room, with {before} pages free: {got:?}");
    for page in 0..PAGES as usize {
        ensure!(memory.holds(page, page as u64), "page {page} lost its contents");
    }
    let told = json!({
        "free_before": before,
        "free_after": free()?,
        "moved": got.moved.0,
        "fails": format!("{:?}", got.fails),
        "direct_reclaims": vmstat("allocstall_movable")? - stalls,
    });
    drop(filling);
    Ok(told)
}

/// Free pages of a node.
fn free_of(node: usize) -> Result<u64> {
    let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"))?;
    let line = text.lines().find_map(|l| l.split_once("MemFree:"));
    let kib = line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("no MemFree")? / 4)
}
