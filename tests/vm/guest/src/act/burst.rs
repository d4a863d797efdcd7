//! S0 with homenode's policy: a burst that is younger than the start delay is left alone, not
//! even looked at; an older one comes home.
//!
//! ```text
//!   node 0                        node 1
//!   ┌──────────────────┐         ┌───────────────────────────┐
//!   │ young │ old      │  ──▶    │ both programs' only CPUs  │
//!   └──────────────────┘         └───────────────────────────┘
//! ```
//!
//! What is free to be looked at are `/proc/PID/stat` and the like. Who is sampled is one of
//! DAMON's targets, and whose places are asked for has `numa_maps` or `pagemap` opened: both
//! are watched from here.
//!
//! Source: specs/act.md#burst, specs/end-to-end.md#s0

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Scene, ledger, lines, until};
use crate::advise::by_node;
use crate::asked::Asked;
use crate::observe::Busy;
use crate::process::pin;
use crate::{TestResult, skip};

const PAGES: u64 = 4096;
/// Processor time of the burst; the start delay is 1 s.
const BURST_MS: u64 = 100;
const DELAY_NS: u64 = 1_000_000_000;
/// How long it may take to come home; many times what it does.
const PATIENCE: Duration = Duration::from_secs(150);
/// Files in which it is looked where a process has its memory.
const PLACES: [&str; 4] = ["numa_maps", "pagemap", "maps", "smaps"];

/// Tells whether somebody has opened such a file of a process.
struct Opened(OwnedFd);

impl Opened {
    fn of(pid: u32) -> Result<Self> {
        // SAFETY: it makes a descriptor.
        let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        ensure!(fd >= 0, "inotify: {}", io::Error::last_os_error());
        // SAFETY: it was made just now, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        for name in PLACES {
            let path = CString::new(format!("/proc/{pid}/{name}"))?;
            // SAFETY: a descriptor and a text, which outlive the call.
            let r =
                unsafe { libc::inotify_add_watch(fd.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
            ensure!(r >= 0, "inotify on {name}: {}", io::Error::last_os_error());
        }
        Ok(Self(fd))
    }
    /// Bytes of events since the last call; none where nobody has.
    fn take(&self) -> usize {
        let mut bytes = [0u8; 4096];
        // SAFETY: a buffer of the size that is told.
        let n = unsafe { libc::read(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        usize::try_from(n).unwrap_or(0)
    }
}

/// Processor time of a process's first thread, in nanoseconds.
fn ran(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split(' ').next().and_then(|n| n.parse().ok()).context("schedstat")
}

/// Adds whom DAMON looks at now.
fn targets(all: &mut BTreeSet<u32>) {
    const AT: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/targets";
    for target in fs::read_dir(AT).into_iter().flatten().flatten() {
        let text = fs::read_to_string(target.path().join("pid_target")).unwrap_or_default();
        all.extend(text.trim().parse::<u32>());
    }
}

pub(crate) fn burst(asked: &Asked) -> TestResult {
    let with_cpus: Vec<usize> =
        (0..asked.nodes.len()).filter(|&n| !asked.nodes[n].cpus.is_empty()).collect();
    let [memory, home, ..] = with_cpus[..] else {
        return Err(skip("one node with CPUs: none is the wrong one"));
    };
    let scene = Scene::set(asked)?;
    let all: Vec<u32> = asked.nodes.iter().flat_map(|n| n.cpus.clone()).collect();
    pin(0, &asked.nodes[home].cpus).context("its CPUs")?;
    let both = (Busy::with(PAGES, memory, 600_000), Busy::with(PAGES, memory, BURST_MS));
    pin(0, &all).context("all CPUs")?;
    let (old, young) = (both.0?, both.1?);
    until("the end of the burst", &|| {
        let before = ran(young.pid()).unwrap_or(0);
        sleep(Duration::from_millis(100));
        before > BURST_MS * 1_000_000 && ran(young.pid()).is_ok_and(|now| now == before)
    })?;
    let burst = ran(young.pid())?;
    if burst >= DELAY_NS {
        return Err(skip(format!("the burst took {burst} ns: this machine is too slow")));
    }
    let on = |pid: u32, node: usize| -> Result<u64> {
        Ok(by_node(pid)?.get(node).copied().unwrap_or(0))
    };
    let there = on(young.pid(), memory)?;
    let rows = lines();
    let (of_young, of_old) = (Opened::of(young.pid())?, Opened::of(old.pid())?);
    let mut command = Command::new("/bin/homenode");
    command.args(["act", "--json", "--pid", &young.pid().to_string()]);
    command.args(["--pid", &old.pid().to_string()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (begun, mut sampled, mut opened) = (Instant::now(), BTreeSet::new(), 0);
    let mut came = 0;
    while came < PAGES / 10 * 9 && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(500));
        targets(&mut sampled);
        opened += of_old.take();
        // Which this opens, too.
        came = on(old.pid(), home)?;
        of_old.take();
    }
    let took = begun.elapsed().as_secs();
    super::signal(&child, libc::SIGTERM);
    let output = child.wait_with_output()?;
    let words = [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
    ensure!(output.status.success(), "act: {}: {words:?}", output.status);
    let looked = of_young.take();
    let stays = on(young.pid(), memory)?;
    ensure!(came >= PAGES / 10 * 9, "of {PAGES} pages {came} came home in {took} s: {words:?}");
    ensure!(sampled.contains(&old.pid()), "the older one was not seen to be sampled: {sampled:?}");
    ensure!(opened > 0, "nobody was seen to look where the older one's pages are");
    ensure!(!sampled.contains(&young.pid()), "the burst was sampled");
    ensure!(looked == 0, "somebody has looked where the burst's pages are");
    ensure!(stays == there, "of {there} pages of the burst {stays} are on node {memory}");
    let rows = ledger(rows)?;
    let named = rows.iter().any(|row| row["pid"] == young.pid());
    ensure!(!named, "the ledger names the burst: {rows:?}");
    ensure!(ran(young.pid())? == burst, "the burst went on");
    scene.holds("a burst")?;
    Ok(json!({
        "burst": {"ms": burst / 1_000_000, "pages": [there, stays], "sampled": false},
        "older": {"of": PAGES, "came home": came, "seconds": took},
    }))
}
