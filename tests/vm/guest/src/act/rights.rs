//! With the rights of `homenode.service`, and no others.
//!
//! Source: specs/act.md#service.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Scene, TIMES};
use crate::TestResult;
use crate::asked::Asked;
use crate::observe::Busy;

const UNIT: &str = include_str!("../../../../../packaging/homenode.service");
/// Numbers of capabilities, as `linux/capability.h` has them.
const NUMBERS: &[(&str, u64)] = &[
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_NICE", 23),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];
/// The last capability that there may be; asking for one that is not there fails.
const LAST: u64 = 63;

/// What the unit leaves.
fn left() -> Result<Vec<u64>> {
    let line = UNIT.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet="));
    let names = line.context("the unit has a bounding set")?.split_whitespace();
    names
        .map(|name| {
            let known = NUMBERS.iter().find(|(known, _)| *known == name);
            known.map(|k| k.1).with_context(|| format!("{name} is new here"))
        })
        .collect()
}

/// Takes all other capabilities from a process that is about to run a program: root gets
/// those of the bounding set then.
fn drop_others(left: &[u64]) -> io::Result<()> {
    for number in (0..=LAST).filter(|n| !left.contains(n)) {
        // SAFETY: it takes a number, and touches no memory.
        let r = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        // Beyond the kernel's last one.
        if r != 0 && number <= 40 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the same.
    let r = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What Debian's kernels have by default: perf is for `CAP_SYS_ADMIN` then.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Memory of another user's process comes up, and all that was looked at is seen.
pub(crate) fn least(asked: &Asked) -> TestResult {
    let left = left()?;
    let scene = Scene::set(asked)?;
    let slow = scene.slow;
    let busy = Busy::as_user(slow, 65_534)?;
    let pid = busy.pid().to_string();
    let hot = scene.there(busy.pid())?;
    let act = |time: &str| -> Result<(Option<i32>, String)> {
        let mut command = Command::new("/bin/homenode");
        command.args(["act", "--pid", &pid, "--for", time, "--json"]);
        let rights = left.clone();
        // SAFETY: system calls only, in a process that has one thread.
        unsafe { command.pre_exec(move || drop_others(&rights)) };
        let output = command.output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let paranoid = fs::read_to_string(PARANOID).context(PARANOID)?;
    if paranoid.trim() == "3" {
        let (code, words) = act("2s")?;
        ensure!(code == Some(3), "{PARANOID} is 3: {code:?}: {words}");
        ensure!(words.contains("nothing was changed"), "{words}");
        scene.holds("without perf")?;
        fs::write(PARANOID, "2").context(PARANOID)?;
    }
    let (mut now, mut last) = (hot, (None, String::new()));
    for _ in 0..TIMES {
        last = act("20s")?;
        now = scene.there(busy.pid())?;
        if last.0 != Some(0) || now < hot / 2 {
            break;
        }
    }
    fs::write(PARANOID, &paranoid).context(PARANOID)?;
    let (code, words) = last;
    ensure!(code == Some(0), "act: {code:?}: {words}");
    ensure!(!words.contains("could not be asked"), "{words}");
    ensure!(now < hot / 2, "of {hot} pages {now} are still on node {slow}: {words}");
    scene.holds("with least rights")?;
    Ok(json!({"hot": [hot, now], "perf_event_paranoid": paranoid.trim()}))
}
