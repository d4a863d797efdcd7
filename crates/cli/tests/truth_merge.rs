//! `homenode truth merge` on this machine's own KSM: all cases, once.
//!
//! It says 'skipped: no KSM' where there is none, no root, or others use it. The command
//! takes the lock that all tests of merging take.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

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

/// All knobs of this machine, by name.
fn knobs() -> Vec<(String, String)> {
    let folder = Path::new("/sys/kernel/mm/ksm");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let counts = name.starts_with("pages_") && name != "pages_to_scan"
            || ["full_scans", "general_profit", "ksm_zero_pages"].contains(&name.as_str())
            || name.starts_with("stable_node_") && !name.contains("prune");
        if !counts {
            found.push((name, std::fs::read_to_string(entry.path()).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

// One test: the knobs of one machine are looked at before and after.
#[test]
fn real_simulated_and_estimated_agree() {
    let before = knobs();
    let all = run(&["--json"]);
    if let Some(why) = skipped(&all) {
        return println!("skipped: no KSM to be had: {why}");
    }
    let json: Value = serde_json::from_slice(&all.stdout).expect("one JSON object");
    let cases = json["cases"].as_array().expect("a list");
    for case in cases {
        let (name, differences) = (&case["name"], &case["differences"]);
        assert_eq!(case["pass"], true, "{name}: {differences} {}", case["estimate"]);
    }
    assert!(cases.len() >= 20 && json["pass"] == true);
    assert_eq!(all.status.code(), Some(0));
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

#[test]
fn what_is_wrong_is_told_before_anything_is_touched() {
    for (args, told) in [
        (["--case", "no-such"], "it has copies, "),
        (["--kernel", "6.13"], "there are only 3.8, 5.18, 6.1, 6.12, 7.3"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(told), "{text}");
    }
}
