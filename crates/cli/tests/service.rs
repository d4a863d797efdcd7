//! `homenode.service`: what it may do on a machine, and what homenode says to who starts it.

#[path = "support/two_nodes.rs"]
mod two_nodes;

use homenode_fixtures::{Folder, Leashed, until};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use two_nodes::two_nodes;

/// In tenths, as `systemd-analyze` takes it: 2.0.
const MOST_EXPOSED: &str = "20";

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/homenode.service")
}

#[test]
fn the_unit_exposes_little() {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager"]);
    command.arg(format!("--threshold={MOST_EXPOSED}")).arg(unit());
    let out = match command.output() {
        Err(e) => {
            println!("skipped: systemd-analyze can't be run ({e}): apt has it in systemd");
            return;
        }
        Ok(out) => out,
    };
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    if text.contains("unrecognized option") {
        println!("skipped: this systemd is older than 250, and knows no --offline");
        return;
    }
    let score = text.lines().find(|l| l.contains("Overall exposure level"));
    println!("{}", score.unwrap_or(&text));
    assert!(out.status.success() && score.is_some(), "{text}");
}

/// The unit runs a command that there is, with a file as the guide has it.
#[test]
fn the_unit_runs_what_there_is() {
    let unit = fs::read_to_string(unit()).expect("the unit");
    let line = |key: &str| {
        let line = unit.lines().find_map(|l| l.strip_prefix(key)).expect(key);
        line.strip_prefix("/usr/bin/homenode ").expect("our command").to_owned()
    };
    let at = Folder::new();
    fs::write(at.join("act.toml"), "[budget]\nmoved_mbps = 100\n").expect("a file");
    for (key, more) in [("ExecStart=", "--for 100ms --engine kernel"), ("ExecStopPost=", "")] {
        two_nodes(&at, std::process::id());
        let line = format!("{} {more} --root {}", line(key), at.display());
        let line =
            line.replace("/etc/homenode/act.toml", &at.join("act.toml").display().to_string());
        let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(line.split_whitespace())
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{line}: {said}");
    }
}

#[test]
fn who_starts_it_hears_that_it_is_ready_alive_and_about_to_end() {
    let at = Folder::new();
    two_nodes(&at, std::process::id());
    let ear = UnixDatagram::bind(at.join("notify")).expect("a socket");
    ear.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let hear = || {
        let mut bytes = [0u8; 256];
        let n = ear.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command
        .args(["act", "--engine", "kernel", "--all", "--yes", "--root"])
        .arg(at.as_ref() as &Path)
        .env("NOTIFY_SOCKET", at.join("notify"))
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = Leashed::start(&mut command);
    assert_eq!(hear(), "READY=1\nSTATUS=the kernel moves memory");
    // By then the knobs are set.
    let knob = at.join("proc/sys/kernel/numa_balancing");
    assert!(fs::read_to_string(&knob).expect("a knob").starts_with('2'));
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    // What doesn't run says nothing, and so the watchdog would end it.
    let pid = i32::try_from(child.id()).expect("a number");
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    until("it stands still", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.trim_start().starts_with('T').then_some(())
    });
    ear.set_nonblocking(true).expect("a mode");
    let mut bytes = [0u8; 256];
    while ear.recv(&mut bytes).is_ok() {}
    std::thread::sleep(Duration::from_millis(600));
    assert!(ear.recv(&mut bytes).is_err(), "it speaks while it stands still");
    ear.set_nonblocking(false).expect("a mode");
    // SAFETY: the same.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    assert_eq!(hear(), "WATCHDOG=1");
    // SAFETY: the same.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let last = std::iter::repeat_with(hear).find(|word| word != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(child.wait().expect("it is ours").success());
    assert!(fs::read_to_string(&knob).expect("a knob").starts_with('1'));
}
