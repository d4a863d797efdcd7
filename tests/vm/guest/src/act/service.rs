//! `homenode.service` under systemd itself, which is the guest's first program then: in a namespace of
//! processes DAMON would look for them by other numbers.
//!
//! ```text
//! init ─▶ fork ──▶ the test ── systemctl: its state, kill, stop
//!           └▶ systemd ─▶ homenode.service, unchanged
//!                 └─────▶ busy.service: hot memory on the slow node
//! ```
//!
//! Source: specs/act.md#service.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::{JOURNAL, Scene, ledger, lines};
use crate::asked::Asked;
use crate::{TestResult, needs};

const UNIT: &str = include_str!("../../../../../packaging/homenode.service");
const TEST: &str = "act-service";
const SYSTEMD: &str = "/lib/systemd/systemd";
const UNITS: &str = "/etc/systemd/system";
/// What homenode itself says.
const WORDS: &str = "/homenode.err";
/// What it tells of its moves.
const ROWS: &str = "/homenode.out";
/// What Debian's kernels have by default lets `CAP_PERFMON` open nothing.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// An emulated CPU is slow, and DAMON may see nothing for a while.
const PATIENCE: Duration = Duration::from_secs(150);
/// Pages of the busy process.
const PAGES: u64 = 8192;

/// A file of the guest, with the folders that it is in.
fn put(path: &str, text: &str) -> Result<()> {
    let path = Path::new(path);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Whether systemd is to be the first program, for tests of these names.
pub(crate) fn is_first(names: &str) -> bool {
    names.split(',').any(|name| name == TEST) && Path::new(SYSTEMD).exists()
}

/// Becomes systemd, which finds next to nothing to be started.
///
/// # Errors
/// Why it could not; else it does not return.
pub(crate) fn become_systemd() -> Result<()> {
    for target in ["sysinit", "basic", "shutdown", "default", "rescue"] {
        let text = format!("[Unit]\nDescription={target}\nDefaultDependencies=no\n");
        put(&format!("{UNITS}/{target}.target"), &text)?;
    }
    put("/etc/machine-id", "686f6d656e6f64652e7465737473000a\n")?;
    for folder in ["/var/tmp", "/usr/bin", "/root", "/home"] {
        fs::create_dir_all(folder)?;
    }
    std::os::unix::fs::symlink("/bin/homenode", "/usr/bin/homenode")?;
    let why = Command::new(SYSTEMD)
        .args(["--log-target=console", "--show-status=no"])
        .env_clear()
        .env("PATH", "/bin:/usr/bin")
        .exec();
    Err(why).context(SYSTEMD)
}

/// What systemd has started for the test, until this is dropped.
struct Services;

impl Services {
    fn start(slow: usize) -> Result<Self> {
        // It ends with its input.
        let load = format!("sleep 100000 | /bin/homenode-guest --load {PAGES} {slow} 600000");
        let busy = format!("[Service]\nExecStart=/bin/sh -c '{load}'\nStandardOutput=null\n");
        put(&format!("{UNITS}/busy.service"), &busy)?;
        put(&format!("{UNITS}/homenode.service"), UNIT)?;
        // A test waits for neither two minutes nor half of one, and here is no journal to write to.
        let soon = format!(
            "[Service]\nWatchdogSec=8s\nRestartSec=1s\nStandardOutput=append:{ROWS}\n\
             StandardError=append:{WORDS}\n"
        );
        put(&format!("{UNITS}/homenode.service.d/soon.conf"), &soon)?;
        put("/etc/homenode/act.toml", "[budget]\nmoved_mbps = 100\n")?;
        // systemd may still be on its way.
        super::until("systemd", &|| ctl(&["daemon-reload"]).is_ok())?;
        let services = Self;
        ctl(&["start", "busy.service"])?;
        Ok(services)
    }

    /// The process with the hot memory.
    fn busy(&self) -> Result<u32> {
        let all = fs::read_dir("/proc")?.flatten();
        let mut pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        let is = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"/bin/homenode-guest\0--load\0")
        };
        pids.find(is).context("the busy process is not there")
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        let _ = ctl(&["stop", "homenode.service", "busy.service"]);
    }
}

fn ctl(args: &[&str]) -> Result<String> {
    let output = Command::new("/bin/systemctl").args(args).output().context("systemctl")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "systemctl {}: {words} {}", args.join(" "), said());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What systemd says of homenode's service, by name.
type State = BTreeMap<String, String>;

/// Waits until it says so.
fn until(what: &str, holds: &dyn Fn(&State) -> bool) -> Result<State> {
    const OF: &str = "ActiveState,StatusText,Result,MainPID,NRestarts";
    let (begun, mut told) = (Instant::now(), State::new());
    while begun.elapsed() < PATIENCE {
        let text = ctl(&["show", "homenode.service", "-p", OF])?;
        let pair = |l: &str| l.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        told = text.lines().filter_map(pair).collect();
        if holds(&told) {
            return Ok(told);
        }
        sleep(Duration::from_millis(300));
    }
    bail!("{what} did not come about: {told:?}: {}", said())
}

/// The last that homenode said, and told of its moves.
fn said() -> String {
    let text = [WORDS, ROWS].map(|path| fs::read_to_string(path).unwrap_or_default());
    let last = text.iter().map(|text| {
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(6)..].join(" | ")
    });
    last.collect::<Vec<_>>().join(" || ")
}

/// A setting of the kernel, as it was when this is dropped.
struct AsWas(String);

impl AsWas {
    fn then(text: &str) -> io::Result<Self> {
        let before = fs::read_to_string(PARANOID)?;
        fs::write(PARANOID, text)?;
        Ok(Self(before))
    }
}

impl Drop for AsWas {
    fn drop(&mut self) {
        let _ = fs::write(PARANOID, self.0.trim());
    }
}

pub(crate) fn service(asked: &Asked) -> TestResult {
    needs(Path::new(SYSTEMD).exists(), "systemd is not on the machine that made this guest")?;
    let scene = Scene::set(asked)?;
    let _paranoid = AsWas::then("2").context(PARANOID)?;
    let services = Services::start(scene.slow)?;
    let found = || services.busy().and_then(|pid| Ok((pid, scene.there(pid)?)));
    super::until("memory on the slow node", &|| found().is_ok_and(|(_, pages)| pages >= PAGES))?;
    let (busy, hot) = found()?;
    let before = lines();
    ctl(&["start", "homenode.service"])?;
    // Type=notify: it is active once homenode has said so, with what it said.
    let told = until("a service that is active", &|t| t["ActiveState"] == "active")?;
    let status = told["StatusText"].clone();
    ensure!(status.starts_with("moves memory by "), "its status is {status:?}: {}", said());
    ensure!(Path::new(JOURNAL).exists(), "it has no journal");
    let begun = Instant::now();
    while scene.there(busy)? > hot / 2 && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(500));
    }
    let now = scene.there(busy)?;
    if now > hot / 2 {
        // What it says at its end tells why.
        let _ = ctl(&["stop", "homenode.service"]);
        bail!("of {hot} pages {now} are still below: {}", said());
    }
    // A row is written when its move is reported, up to half a second later.
    let moved = || -> Result<u64> {
        Ok(ledger(before)?.iter().filter_map(|row| row["moved_bytes"].as_u64()).sum())
    };
    super::until("all moves in the ledger", &|| moved().is_ok_and(|m| m / 4096 >= hot - now))?;
    let moved = moved()?;
    // A loop that hangs is ended by the watchdog; what is set is put back, and it begins again.
    let main = |t: &State| t["MainPID"].clone();
    let first = main(&told);
    let again = |t: &State, n: u32| t["NRestarts"].parse() == Ok(n) && t["ActiveState"] == "active";
    ctl(&["kill", "-s", "STOP", "--kill-who=main", "homenode.service"])?;
    let told = until("a restart after a loop that hangs", &|t| again(t, 1))?;
    ensure!(main(&told) != first, "it is the same process: {told:?}");
    // The same after a crash: nothing is left in the way of the next one.
    ctl(&["kill", "-s", "KILL", "--kill-who=main", "homenode.service"])?;
    until("a restart after a crash", &|t| again(t, 2))?;
    ctl(&["stop", "homenode.service"])?;
    let told = until("a service that has ended", &|t| t["ActiveState"] == "inactive")?;
    ensure!(told["Result"] == "success", "{told:?}: {}", said());
    drop(services);
    scene.holds("after the service")?;
    Ok(json!({"status": status, "hot": [hot, now], "moved_bytes": moved}))
}
