//! `homenode truth merge` on this machine's own KSM: all cases, once.
//!
//! It says 'skipped: no KSM' where there is none, no root, or others use it.

// Its other half holds the knobs, which the command does here.
use homenode_fixtures::ksm::{Turn, knobs};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(["truth", "merge"]).args(args);
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("it runs")
}

/// Why nothing was run, if nothing was.
fn skipped(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code() == Some(3)).then_some(text)
}

// One test: the knobs of one machine are looked at before and after.
#[test]
fn real_simulated_and_estimated_agree() {
    let _turn = match Turn::take() {
        Ok(turn) => turn,
        Err(why) => return println!("skipped: {why}"),
    };
    let before = knobs();
    let all = run(&["--json"]);
    if let Some(why) = skipped(&all) {
        return println!("skipped: no KSM to be had: {why}");
    }
    let json: Value = serde_json::from_slice(&all.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&all.stderr)));
    let cases = json["cases"].as_array().expect("a list");
    assert!(cases.len() >= 20);
    for case in cases.iter().filter(|c| c["pass"] != true) {
        // Whoever reads a process' memory at the moment in which ksmd merges it (by
        // process_vm_readv, as our own estimate of all processes does) takes a page apart
        // again: seen once, as one cow_ksm. A defect of ours differs each time.
        let name = case["name"].as_str().expect("a name");
        println!("{name} differed: {} {}", case["differences"], case["estimate"]);
        let again = run(&["--json", "--case", name]);
        let text = String::from_utf8_lossy(&again.stdout);
        assert_eq!(again.status.code(), Some(0), "{name}: {text}");
    }
    let differed = json["pass"] != true;
    assert_eq!(all.status.code(), Some(i32::from(differed)));
    assert_eq!(knobs(), before);

    // Two releases that differ can't both be this kernel.
    let codes = ["6.12", "7.3"].map(|version| {
        let output = run(&["--case", "restored", "--kernel", version]);
        output.status.code()
    });
    assert!(codes.contains(&Some(1)), "{codes:?}");

    // Interrupted it puts the knobs back, too.
    let mut child = command(&[])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it runs");
    std::thread::sleep(Duration::from_millis(400));
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().expect("kill is there");
    let code = child.wait().expect("it ends").code();
    assert_eq!(knobs(), before);
    assert!(!sent.success() || code == Some(2) || code == Some(0), "{code:?}");
}

/// Runs a check until it has changed what ksmd does, then `meanwhile`; ends it by SIGKILL.
fn killed(before: &[(String, String)], meanwhile: impl FnOnce(u32)) {
    let start = || {
        command(&["--case", "crowd"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it runs")
    };
    let mut child = start();
    let began = Instant::now();
    let run = || std::fs::read_to_string("/sys/kernel/mm/ksm/run").unwrap_or_default();
    let speed = || knobs().into_iter().find(|(name, _)| name == "pages_to_scan");
    let was = before.iter().find(|(name, _)| name == "pages_to_scan").cloned();
    // Looked at often: a pass is over in milliseconds.
    while run().trim() != "1" || speed() == was {
        assert!(began.elapsed() < Duration::from_secs(60), "ksmd was never asked to work");
        // Where others' tests register memory for a moment it refuses.
        if child.try_wait().expect("our child").is_some() {
            child = start();
        }
    }
    // Stopped, so that it does not end meanwhile.
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
    meanwhile(child.id());
    child.kill().expect("our child");
    child.wait().expect("it ends");
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn killed_it_leaves_what_restore_needs() {
    let _turn = match Turn::take() {
        Ok(turn) => turn,
        Err(why) => return println!("skipped: {why}"),
    };
    let homenode = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        told(&command.args(args).output().expect("it runs"))
    };
    let before = knobs();
    killed(&before, |pid| {
        // It is the only one: neither a driver nor a second check comes in between.
        let sentence = format!("process {pid} is driving the kernel's merging already");
        for args in [
            &["merge", "drive", "--act", "--across-users", "--", "true"][..],
            &["truth", "merge"],
            &["restore"],
        ] {
            let (code, text) = homenode(args);
            assert_eq!((code, text.contains(&sentence)), (Some(3), true), "{args:?}: {text}");
        }
    });
    assert_ne!(knobs(), before);
    for args in
        [&["merge", "drive", "--act", "--across-users", "--", "true"][..], &["truth", "merge"]]
    {
        let (code, text) = homenode(args);
        assert!(text.contains("`homenode restore` does that") && code == Some(3), "{text}");
    }
    let (code, text) = homenode(&["restore"]);
    assert!(
        text.starts_with("put back: ") && text.contains("pages_to_scan") && code == Some(0),
        "{text}"
    );
    assert_eq!(knobs(), before);
    let (code, text) = homenode(&["restore"]);
    assert!(text.starts_with("nothing to restore") && code == Some(0), "{text}");
    // Pages of the dead that are still merged are in nobody's way, once all have ended.
    let began = Instant::now();
    let again = loop {
        let again = homenode(&["truth", "merge", "--case", "copies"]);
        let waits = again.1.contains("registered memory") && began.elapsed().as_secs() < 60;
        if !waits {
            break again;
        }
    };
    assert_eq!(again.0, Some(0), "{}", again.1);
    assert_eq!(knobs(), before);
}

#[test]
fn what_is_wrong_is_told_before_anything_is_touched() {
    for (args, told) in [
        (["--case", "no-such"], "it has copies, "),
        (["--kernel", "6.13"], "there are only 3.8, 4.5, 4.15, 5.18, 6.1, 6.12, 7.3"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(told), "{text}");
    }
}
