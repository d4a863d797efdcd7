//! NUMA hint faults, as homenode's BPF program sees them.
//!
//! ```text
//! node 0   CPUs: the watched process and another one, which touch their pages
//! node 1   their pages at first; the kernel brings them to node 0
//! ```
//!
//! Source: specs/live.md#hint-fault.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::json;

use homenode_core::policy::seen::{Seen, Who};
use homenode_core::units::{NodeId, Picos};
use homenode_live::heat::hints::Hints;
use homenode_live::machine::Heat;

use crate::asked::Asked;
use crate::memory::{Memory, PAGE};
use crate::process::{end, fork, pin, started, wait};
use crate::stage::vmstat;
use crate::{TestResult, needs, skip};

const MODE: &str = "/proc/sys/kernel/numa_balancing";
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// How the kernel scans, and what makes a test of seconds rather than minutes of it.
const QUICK: [(&str, &str); 3] =
    [("scan_delay_ms", "100"), ("scan_period_min_ms", "200"), ("scan_period_max_ms", "500")];

/// How long something may take; many times what it does.
const PATIENCE: Duration = Duration::from_secs(150);

fn write(path: impl AsRef<Path>, value: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, value).with_context(|| format!("{} = {value}", path.display()))
}

/// Balancing in that mode, with scans in quick succession.
pub(crate) fn begin(mode: &str) -> Result<()> {
    for (name, value) in QUICK {
        write(Path::new("/sys/kernel/debug/sched/numa_balancing").join(name), value)?;
    }
    write(MODE, mode)
}

/// A process that touches pages of its own until it is ended.
pub(crate) struct Toucher {
    who: Who,
    /// Its pages.
    pages: std::ops::Range<u64>,
}

impl Toucher {
    /// `count` pages on node `on`, touched by one thread on each of the nodes `from`.
    pub(crate) fn new(asked: &Asked, from: &[usize], on: usize, count: usize) -> Result<Self> {
        Self::with(asked, from, on, count, libc::MADV_NOHUGEPAGE)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.who.pid
    }

    fn with(asked: &Asked, from: &[usize], on: usize, count: usize, advice: i32) -> Result<Self> {
        let cpus = from.iter().map(|&node| asked.nodes[node].cpus.clone()).collect::<Vec<_>>();
        ensure!(cpus.iter().all(|cpus| !cpus.is_empty()), "a node without CPUs: {from:?}");
        // The child has the same room at the same place, and fills it.
        let memory = Memory::reserve(count)?;
        memory.advise(advice).context("madvise")?;
        let first = memory.address(0) as u64 / PAGE as u64;
        let pid = fork(|| touch(&memory, on, &cpus, count))? as u32;
        Ok(Self { who: Who { pid, start: started(pid)? }, pages: first..first + count as u64 })
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.who.pid as i32, signal) };
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        end(self.who.pid as i32);
    }
}

/// What the child does. Returns only where it can't be where it is to be.
fn touch(memory: &Memory, on: usize, cpus: &[Vec<u32>], count: usize) {
    // SAFETY: it takes numbers only. The child is to end if its parent is ended.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // The thread that waits faults too, on its stack.
    let own =
        pin(0, &cpus[0]).is_ok() && memory.bound(on, |page| memory.write_one(page, 1)).is_ok();
    thread::scope(|scope| {
        for cpus in cpus {
            scope.spawn(move || {
                if own && pin(0, cpus).is_ok() {
                    loop {
                        for page in 0..count {
                            memory.write_one(page, page as u64);
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
    });
}

/// Programs that are loaded into the kernel.
fn programs() -> Result<usize> {
    const BPF_PROG_GET_NEXT_ID: libc::c_long = 11;
    let (mut id, mut count) = (0_u32, 0);
    loop {
        let mut attr = [id, 0, 0];
        // SAFETY: the kernel reads and writes the first two words of a local of that size.
        let r = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_GET_NEXT_ID,
                attr.as_mut_ptr(),
                size_of::<[u32; 3]>(),
            )
        };
        if r < 0 {
            let error = std::io::Error::last_os_error();
            ensure!(error.raw_os_error() == Some(libc::ENOENT), "BPF_PROG_GET_NEXT_ID: {error}");
            return Ok(count);
        }
        (id, count) = (attr[1], count + 1);
    }
}

/// Whether the descriptor can be read within that time.
fn readable(fd: i32, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor in an array of one, which outlives the call.
    unsafe { libc::poll(&mut poll, 1, within.as_millis() as i32) == 1 }
}

fn take(hints: &mut Hints, out: &mut Vec<Seen>) -> Result<()> {
    hints.take(Picos::ZERO, out).map_err(|e| anyhow!(e))
}

pub(crate) fn faults(asked: &Asked) -> TestResult {
    let with_cpus = asked.nodes.iter().filter(|n| !n.cpus.is_empty()).count();
    needs(with_cpus >= 2, "one node with CPUs: all faults are its own")?;
    begin("1")?;
    write(STATS, "1")?;
    let before = programs()?;
    let mut hints = Hints::open().map_err(anyhow::Error::from)?;
    ensure!(programs()? == before + 1, "{} programs, not one more", programs()?);
    let (seen, other) = right(&mut hints, asked)?;
    let (told, lost) = overrun(&mut hints, asked)?;
    let huge = huge(&mut hints, asked)?;
    switched_off(&mut hints)?;
    let spent = hints.spent().context("no time spent, though the kernel counts it")?;
    ensure!(spent > Picos::ZERO, "the program has taken no time");
    drop(hints);
    gone(before)?;
    killed(before)?;
    let refused = [refused(inside_a_namespace)?, refused(as_nobody)?];
    gone(before)?;
    write(STATS, "0")?;
    write(MODE, "0")?;
    let closed = Hints::open().err().context("it opens although balancing is off")?;
    Ok(json!({
        "pages": seen, "vmstat_of_all": other, "told_at_once": told, "lost": lost,
        "huge_pages": huge, "refused": refused, "when_off": closed.to_string(),
    }))
}

/// Each page of the watched process is seen, first on node 1 and from node 0; the other
/// process is not.
fn right(hints: &mut Hints, asked: &Asked) -> Result<(usize, u64)> {
    const PAGES: usize = 2000;
    let hint_faults = vmstat("numa_hint_faults")?;
    let all = || anyhow::Ok(vmstat("numa_hint_faults")? - hint_faults);
    let watched = Toucher::new(asked, &[0], 1, PAGES)?;
    let _other = Toucher::new(asked, &[0], 1, PAGES)?;
    // A PID that was another's before.
    hints.watch(Who { pid: watched.who.pid, start: watched.who.start - 1 });
    hints.watch(watched.who);
    // Forgotten again: the PID is somebody else's by then.
    hints.unwatch(Who { pid: watched.who.pid, start: watched.who.start - 1 });
    let begun = Instant::now();
    let mut first = BTreeMap::new();
    // The scan passes over what it has seen of late: not each page comes in a test's time.
    // And the other process has to have had its faults too.
    while first.len() < PAGES * 9 / 10 || all()? < 3 * PAGES as u64 / 2 {
        let (n, all) = (first.len(), all()?);
        ensure!(begun.elapsed() < PATIENCE, "{n} of {PAGES} pages were seen, {all} hint faults");
        thread::sleep(Duration::from_millis(50));
        let mut seen = Vec::new();
        take(hints, &mut seen)?;
        for one in seen {
            let Seen::Fault { who, vpn, from, on, after } = one else { bail!("{one:?}") };
            ensure!(who == watched.who, "{who} is not watched, {} is", watched.who);
            // Its stack it may have used before it was pinned.
            let own = watched.pages.contains(&vpn);
            ensure!(from == NodeId(0) || !own, "a fault from {from:?}, where its CPUs are not");
            ensure!(after.is_none(), "a time without tiering: {after:?}");
            if own {
                first.entry(vpn).or_insert(on);
            }
        }
    }
    let wrong = first.values().filter(|on| **on != NodeId(1)).count();
    ensure!(wrong == 0, "{wrong} pages were not on node 1 at their first fault");
    Ok((first.len(), all()?))
}

/// Nobody reads: the descriptor wakes, the ring overflows, and what did not fit is counted.
fn overrun(hints: &mut Hints, asked: &Asked) -> Result<(usize, u64)> {
    // Of 16384 records the ring leaves one free, to tell full from empty.
    const RING: usize = 16_383;
    let mut rest = Vec::new();
    take(hints, &mut rest)?;
    // Two threads on two nodes: no page is passed over.
    let toucher = Toucher::new(asked, &[0, 1], 1, RING.div_ceil(2))?;
    let fd = hints.wakes().context("nothing wakes")?;
    ensure!(!readable(fd, Duration::ZERO), "it wakes although nothing happened");
    hints.watch(toucher.who);
    ensure!(readable(fd, PATIENCE), "half a ring of faults woke nobody");
    let enough = vmstat("numa_hint_faults")? + RING as u64;
    let begun = Instant::now();
    while vmstat("numa_hint_faults")? < enough {
        ensure!(begun.elapsed() < PATIENCE, "{} hint faults", vmstat("numa_hint_faults")?);
        thread::sleep(Duration::from_millis(20));
    }
    toucher.signal(libc::SIGSTOP);
    // Both threads have to have stopped.
    thread::sleep(Duration::from_millis(500));
    let mut seen = Vec::new();
    take(hints, &mut seen)?;
    let faults = seen.iter().filter(|s| matches!(s, Seen::Fault { .. })).count();
    let Some(Seen::Lost { events }) = seen.last() else { bail!("no loss after {faults} faults") };
    ensure!(faults == RING, "{faults} faults were told, the ring holds {RING}");
    ensure!(*events > 0, "an overrun of nothing");
    ensure!(!readable(fd, Duration::ZERO), "it wakes although all was taken");
    let from: std::collections::BTreeSet<u16> = seen
        .iter()
        .filter_map(|s| if let Seen::Fault { from, .. } = s { Some(from.0) } else { None })
        .collect();
    ensure!(from == [0, 1].into(), "two threads on two nodes, but faults from {from:?}");
    let mut more = Vec::new();
    take(hints, &mut more)?;
    ensure!(more.is_empty(), "{} more, though it is stopped: {:?}", more.len(), more.first());
    Ok((faults, *events))
}

/// A huge page's fault is told once, as its first page.
fn huge(hints: &mut Hints, asked: &Asked) -> Result<usize> {
    const HUGE: u64 = 512;
    const PAGES: usize = 16;
    let many = PAGES * HUGE as usize;
    let toucher = Toucher::with(asked, &[0], 1, many, libc::MADV_HUGEPAGE)?;
    hints.watch(toucher.who);
    let begun = Instant::now();
    let mut first = BTreeMap::new();
    while first.len() < PAGES / 2 {
        ensure!(begun.elapsed() < PATIENCE, "{} of {PAGES} huge pages were seen", first.len());
        thread::sleep(Duration::from_millis(50));
        let mut seen = Vec::new();
        take(hints, &mut seen)?;
        for one in seen {
            let Seen::Fault { vpn, on, .. } = one else { bail!("{one:?}") };
            if toucher.pages.contains(&vpn) {
                ensure!(vpn % HUGE == 0, "page {vpn:#x} is within a huge page");
                first.entry(vpn).or_insert(on);
            }
        }
    }
    ensure!(first.values().all(|on| *on == NodeId(1)), "not on node 1 at first: {first:?}");
    Ok(first.len())
}

/// Somebody switches balancing off: silence is told once, and not any more when it is on.
fn switched_off(hints: &mut Hints) -> Result<()> {
    let mut at = |mode: &str, ms: u64| -> Result<Vec<Seen>> {
        write(MODE, mode)?;
        let mut seen = Vec::new();
        hints.take(Picos::from_ms(ms), &mut seen).map_err(|e| anyhow!(e))?;
        seen.retain(|s| !matches!(s, Seen::Fault { .. }));
        Ok(seen)
    };
    let told = [at("1", 10)?, at("0", 20)?, at("0", 30)?, at("1", 40)?];
    let silence = vec![Seen::Stale { since: Picos::from_ms(10) }];
    ensure!(told == [vec![], silence, vec![], vec![]], "on, off, off, on: {told:?}");
    Ok(())
}

/// What is said to a process that has been through `first`, before anything is loaded.
fn refused(first: fn() -> bool) -> Result<String> {
    let (mut read, mut write) = UnixStream::pair().context("socketpair")?;
    let pid = fork(|| {
        let said = match (first(), Hints::open()) {
            (true, Err(error)) => error.to_string(),
            (true, Ok(_)) => "it opens".to_owned(),
            (false, _) => "that can't be tried".to_owned(),
        };
        let _ = write.write_all(said.as_bytes());
    })?;
    drop(write);
    let mut said = String::new();
    read.read_to_string(&mut said).context("the child said nothing")?;
    wait(pid);
    let expected = ["namespace", "CAP_BPF"].iter().any(|word| said.contains(word));
    ensure!(expected, "{said}");
    Ok(said)
}

/// Goes on as a child in a PID namespace of its own.
fn inside_a_namespace() -> bool {
    // SAFETY: it takes numbers only; the next child is in the new namespace.
    let pid = unsafe {
        if libc::unshare(libc::CLONE_NEWPID) != 0 {
            return false;
        }
        libc::fork()
    };
    if pid > 0 {
        let mut status = 0;
        // SAFETY: our own child; the kernel writes one number into a local.
        unsafe {
            libc::waitpid(pid, &mut status, 0);
            libc::_exit(0)
        }
    }
    pid == 0
}

fn as_nobody() -> bool {
    // SAFETY: it takes numbers only.
    unsafe { libc::setresuid(65534, 65534, 65534) == 0 }
}

/// The kernel takes programs away some time after the last descriptor is closed.
fn gone(before: usize) -> Result<()> {
    let begun = Instant::now();
    while programs()? != before {
        ensure!(begun.elapsed() < PATIENCE, "{} programs stay, not {before}", programs()?);
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A process that is killed leaves nothing.
fn killed(before: usize) -> Result<()> {
    let pid = fork(|| {
        let _hints = Hints::open();
        loop {
            thread::sleep(Duration::from_secs(1));
        }
    })?;
    let begun = Instant::now();
    while programs()? != before + 1 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    let there = programs()?;
    end(pid);
    ensure!(there == before + 1, "{there} programs while the child watches, {before} before");
    gone(before)
}

/// Under tiering a slow page's fault tells how long ago it was marked.
pub(crate) fn ages(asked: &Asked) -> TestResult {
    let slow = asked.tiers.get(1).and_then(|tier| tier.first().copied());
    let slow = slow.ok_or_else(|| skip("no slow tier was asked for"))?;
    let tiers = fs::read_dir("/sys/devices/virtual/memory_tiering").context("tiers")?;
    let tiers =
        tiers.flatten().filter(|t| t.file_name().to_string_lossy().starts_with("memory_tier"));
    needs(tiers.count() >= 2, "this kernel has all nodes in one tier")?;
    const PAGES: usize = 2000;
    begin("2")?;
    let begun = Instant::now();
    let mut hints = Hints::open().map_err(anyhow::Error::from)?;
    let watched = Toucher::new(asked, &[0], slow as usize, PAGES)?;
    hints.watch(watched.who);
    let (mut aged, mut most, mut others) = (0, 0, 0);
    while aged < PAGES / 2 {
        ensure!(
            begun.elapsed() < PATIENCE,
            "{aged} pages of {PAGES} had an age, {others} had none"
        );
        thread::sleep(Duration::from_millis(50));
        let mut seen = Vec::new();
        take(&mut hints, &mut seen)?;
        // A page can't have been marked before its process began.
        let elapsed = begun.elapsed().as_millis() as u64 + 1000;
        for one in seen {
            let Seen::Fault { vpn, from, on, after, .. } = one else { bail!("{one:?}") };
            let own = watched.pages.contains(&vpn);
            ensure!(from == NodeId(0) || !own, "a fault from {from:?}, where its CPUs are not");
            match after {
                Some(after) => {
                    ensure!(on == NodeId(slow as u16), "an age on the fast node {on:?}");
                    ensure!(after.as_ms() <= elapsed, "{} ms, of {elapsed}", after.as_ms());
                    ensure!(after > Picos::ZERO, "a tick was not added");
                    (aged, most) = (aged + 1, after.as_ms().max(most));
                }
                None => others += 1,
            }
        }
    }
    write(MODE, "0")?;
    Ok(json!({"aged": aged, "without": others, "ms_max": most}))
}
