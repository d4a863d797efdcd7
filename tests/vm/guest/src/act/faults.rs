//! What may come in between while homenode acts.
//!
//! Source: specs/act.md#knobs, specs/act.md#ledger.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::limits::Group;
use super::{JOURNAL, LEDGER, Scene, TIMES, lines, signal, until};
use crate::TestResult;
use crate::asked::Asked;
use crate::observe::Busy;
use crate::process::{fork, wait};

/// A homenode at work, with what it says to come.
fn acts(args: &[&str]) -> Result<Child> {
    let mut command = Command::new("/bin/homenode");
    command.arg("act").args(args).arg("--json");
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// How it ended, and its words.
fn ended(child: Child) -> Result<(Option<i32>, String)> {
    let output = child.wait_with_output()?;
    let words = [output.stderr, output.stdout].map(|s| String::from_utf8_lossy(&s).into_owned());
    Ok((output.status.code(), words.concat()))
}

fn in_order(what: &str, scene: &Scene, (code, words): &(Option<i32>, String)) -> Result<()> {
    ensure!(*code == Some(0), "{what}: {code:?}: {words}");
    ensure!(!words.contains("panicked"), "{what}: {words}");
    scene.holds(what)
}

/// The wall clock, set forward or back.
fn step_clock(seconds: i64) -> Result<()> {
    let mut now = wall();
    now.tv_sec += seconds;
    // SAFETY: a time of our own.
    let r = unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const now) };
    ensure!(r == 0, "clock_settime: {}", std::io::Error::last_os_error());
    Ok(())
}

fn wall() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes into a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now
}

/// What may come in between while it acts: each time it goes on or ends in order.
pub(crate) fn faults(asked: &Asked) -> TestResult {
    const MANY: usize = 10_000;
    let scene = Scene::set(asked)?;
    let slow = scene.slow;
    let mut facts = serde_json::Map::new();

    // SIGTERM while pages are moved.
    let busy = Busy::on(slow)?;
    let pid = busy.pid().to_string();
    let rows = lines();
    let child = acts(&["--pid", &pid])?;
    until("a move", &|| lines() > rows)?;
    signal(&child, libc::SIGTERM);
    let told = ended(child)?;
    in_order("SIGTERM", &scene, &told)?;
    ensure!(told.1.contains("it was to end"), "SIGTERM: {}", told.1);
    drop(busy);

    // It stands still for some seconds, and the wall clock goes an hour on and two back.
    let busy = Busy::on(slow)?;
    let pid = busy.pid().to_string();
    let child = acts(&["--pid", &pid, "--for", "20s"])?;
    until("the journal", &|| Path::new(JOURNAL).exists())?;
    let begun = Instant::now();
    sleep(Duration::from_secs(3));
    signal(&child, libc::SIGSTOP);
    step_clock(3600)?;
    sleep(Duration::from_secs(4));
    signal(&child, libc::SIGCONT);
    sleep(Duration::from_secs(3));
    step_clock(-7200)?;
    let told = ended(child)?;
    let took = begun.elapsed().as_secs();
    step_clock(3600)?;
    in_order("SIGSTOP and a clock that jumps", &scene, &told)?;
    // By the clock that does not jump, whatever the other one says.
    ensure!((10..120).contains(&took), "20 s were {took} s: {}", told.1);
    drop(busy);

    // The disk is full under the ledger: what can't be written down is not moved.
    let folder = Path::new(LEDGER).parent().context("a folder")?;
    let aside = folder.with_extension("aside");
    if folder.exists() {
        fs::rename(folder, &aside).context("the ledger aside")?;
    }
    fs::create_dir_all(folder)?;
    std::os::unix::fs::symlink("/dev/full", LEDGER)?;
    let busy = Busy::on(slow)?;
    let pid = busy.pid().to_string();
    let hot = scene.there(busy.pid())?;
    let mut told = (None, String::new());
    for _ in 0..TIMES {
        told = ended(acts(&["--pid", &pid, "--for", "20s"])?)?;
        if told.0 != Some(0) {
            break;
        }
    }
    let left = scene.there(busy.pid())?;
    fs::remove_dir_all(folder)?;
    if aside.exists() {
        fs::rename(&aside, folder).context("the ledger back")?;
    }
    ensure!(told.0 == Some(3), "a full disk: {:?}: {}", told.0, told.1);
    ensure!(told.1.contains("nothing more was moved"), "a full disk: {}", told.1);
    ensure!(left > hot / 2, "of {hot} pages {left} stayed, though nothing could be written");
    scene.holds("a full disk")?;
    facts.insert("with a full disk stayed".into(), json!([left, hot]));
    drop(busy);

    // The cgroup that it acts for vanishes.
    let group = Group::with("/vanishes", std::process::id())?;
    let busy = Busy::on(slow);
    fs::write("/sys/fs/cgroup/cgroup.procs", std::process::id().to_string()).context("back")?;
    let busy = busy?;
    let rows = lines();
    let child = acts(&["--cgroup", "vanishes"])?;
    // By then it has looked the cgroup up, however busy this machine is.
    until("a move for the cgroup", &|| lines() > rows)?;
    drop((busy, group));
    let gone = !Path::new("/sys/fs/cgroup/vanishes").exists();
    sleep(Duration::from_secs(3));
    signal(&child, libc::SIGTERM);
    in_order("a cgroup that vanishes", &scene, &ended(child)?)?;
    facts.insert("the cgroup was gone".into(), json!(gone));

    // Ten thousand processes come and go.
    let child = acts(&["--all", "--yes", "--for", "60s"])?;
    until("the journal", &|| Path::new(JOURNAL).exists())?;
    let begun = Instant::now();
    let (mut came, mut most) = (0, None);
    while came < MANY && begun.elapsed() < Duration::from_secs(180) {
        // A hundred at a time, of which each is there for a moment.
        let some: Result<Vec<_>> =
            (0..100).map(|_| fork(|| sleep(Duration::from_millis(20)))).collect();
        some?.into_iter().for_each(wait);
        came += 100;
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let now = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        most = now.map(|v| v.trim().to_owned()).or(most);
    }
    in_order("many processes", &scene, &ended(child)?)?;
    ensure!(came == MANY, "only {came} processes came and went");
    facts.insert("came and went".into(), json!([came, most]));
    Ok(Value::Object(facts))
}
