//! `homenode reproduce` as its users meet it.

use expect_test::{Expect, expect};
use std::process::{Command, Output};

/// Where this checkout has its machines; `MACHINES` stands for it in lines and answers.
const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(line.split_whitespace().map(|w| w.replace("MACHINES", MACHINES)))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("the command runs")
}

fn refused(line: &str, expected: Expect) {
    let out = run(line);
    assert_eq!(out.status.code(), Some(2), "{line}");
    assert!(out.stdout.is_empty(), "{line}");
    let said = String::from_utf8_lossy(&out.stderr).replace(MACHINES, "MACHINES");
    expected.assert_eq(&said);
}

#[test]
fn bad_input_is_told_and_has_its_own_exit_code() {
    refused(
        "reproduce slow",
        expect![[r#"
            homenode: nothing named "slow" can be reproduced; there are tiering, ksm, schedstats, recent-cpu, slow-start and all
        "#]],
    );
    refused(
        "reproduce tiering --scale 5000",
        expect![[r#"
        homenode: --scale 5000: a fast node of so little memory means nothing; the largest factor is 4096
    "#]],
    );
    refused(
        "reproduce tiering --machine MACHINES/small.toml",
        expect![[r#"
            homenode: the machine small can't run the experiment: scenarios/reproduce/tiering.toml:60:8: process[0].cpus: CPU 4 is not in the machine; the machine "small" has CPUs 0-3
        "#]],
    );
    refused(
        "reproduce all --sensitivity",
        expect![[r#"
        homenode: --sensitivity moves the constants of one experiment; name it instead of all
    "#]],
    );
    refused(
        "reproduce ksm --machine MACHINES/small.toml",
        expect![[r#"
            homenode: --machine: ksm runs on machines of its own, with 2, 4 and 8 nodes
        "#]],
    );
    refused(
        "reproduce recent-cpu --scale 2",
        expect![[r#"
        homenode: --scale: there is nothing in recent-cpu that could be scaled down
    "#]],
    );
    refused(
        "reproduce recent-cpu --machine MACHINES/small.toml",
        expect![[r#"
        homenode: --machine: recent-cpu runs on a machine of its own, of eight CPUs
    "#]],
    );
    refused(
        "reproduce ksm --scale 5000",
        expect![[r#"
        homenode: --scale 5000: of guests that small no share can be merged that means anything; the largest factor is 4096
    "#]],
    );
    refused(
        "reproduce ksm --by-scale runs.jsonl",
        expect![[r#"
        homenode: --by-scale: only `reproduce tiering` is scaled so far down; name it
    "#]],
    );
    refused(
        "reproduce tiering --by-scale MACHINES/small.toml",
        expect![[r#"
        homenode: MACHINES/small.toml: line 1: this is no finished run
    "#]],
    );
    for line in ["reproduce tiering --scale 0", "reproduce tiering --seeds 0", "reproduce"] {
        assert_eq!(run(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn a_curve_is_taken_up_where_it_was_left() {
    let folder = homenode_fixtures::Folder::new();
    let path = folder.write("runs.jsonl", "");
    std::fs::remove_file(&path).expect("it is made by the first run");
    let line = format!("reproduce tiering --scale 1024 --seeds 1 --by-scale {}", path.display());
    let first = run(&line);
    assert_eq!(first.status.code(), Some(0), "{}", String::from_utf8_lossy(&first.stderr));
    let kept = std::fs::read_to_string(&path).expect("each run is kept");
    assert_eq!(kept.lines().count(), 2, "off and b: {kept}");
    // Cut off in the middle of the second: only that is run again.
    let half: String = kept.lines().take(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, half).expect("it can be written");
    assert_eq!(run(&line).status.code(), Some(0));
    let again = std::fs::read_to_string(&path).expect("each run is kept");
    assert_eq!(again.lines().next(), kept.lines().next());
    let score = |text: &str| {
        let json: serde_json::Value =
            serde_json::from_str(text.lines().nth(1).expect("two")).expect("a run");
        json["score"].as_f64()
    };
    assert!(score(&kept).is_some() && score(&again) == score(&kept), "the same run");
    let third = run(&line);
    assert!(String::from_utf8_lossy(&third.stdout).contains("| 1:1024 | 96 MiB | 1 | "));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), again);
}

#[test]
fn a_threshold_that_follows_the_limit_can_be_set_apart() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/tiering-gauss.toml");
    let limited = "mode2+promote_rate_limit_MBps=10";
    let line = format!(
        "sim {scenario} --json --columns {limited},{limited}+adjust_hot_threshold=true,\
         {limited}+adjust_hot_threshold=false"
    );
    let out = run(&line);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    let text = json.to_string();
    let row = text.split("pgpromote_candidate").nth(1).expect("it is counted");
    let numbers: Vec<&str> = row
        .split(|c: char| !c.is_ascii_digit())
        .filter(|number| number.len() > 3)
        .take(3)
        .collect();
    let [kernel, follows, stays] = numbers[..] else { panic!("three columns: {row}") };
    assert_eq!(kernel, follows, "Linux has it");
    assert_ne!(follows, stays, "without it other pages are candidates");
}

#[test]
fn exit_code_and_json_tell_whether_the_conclusions_hold() {
    // So small that the figures mean nothing: what is tested is that they are told.
    let out = run("reproduce tiering --quick --scale 4096 --seeds 1 --json");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["conclusions", "machine", "name", "pass", "rows"]);
    assert_eq!(json["name"], "tiering");
    assert_eq!(json["machine"], "cascade-lake-pmem");
    let conclusions = json["conclusions"].as_array().expect("a list");
    assert_eq!(conclusions.len(), 8);
    let amended: Vec<bool> = conclusions.iter().map(|c| c["amended"] == true).collect();
    assert_eq!(amended, [true, false, true, true, false, false, false, false]);
    let pass = json["pass"].as_bool().expect("yes or no");
    assert_eq!(out.status.code(), Some(if pass { 0 } else { 1 }));
    for row in json["rows"].as_array().expect("a list") {
        let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["high", "low", "ours", "pass", "row", "sd", "seed"]);
    }
}

#[test]
fn a_further_column_stands_beside_the_plans_and_decides_nothing() {
    let line = "reproduce tiering --quick --scale 4096 --seeds 1 --json";
    let of = |line: &str| -> serde_json::Value {
        serde_json::from_slice(&run(line).stdout).expect("one JSON object")
    };
    let (plain, more) = (of(line), of(&format!("{line} --columns mode2@7.3")));
    assert_eq!(more["conclusions"], plain["conclusions"]);
    let names = |json: &serde_json::Value| -> Vec<String> {
        let rows = json["rows"].as_array().expect("a list");
        rows.iter().map(|row| row["row"].as_str().expect("a name").to_owned()).collect()
    };
    let plain = names(&plain);
    let added: Vec<String> = names(&more).into_iter().filter(|row| !plain.contains(row)).collect();
    assert_eq!(
        added,
        ["2.00", "3.00", "8.00"]
            .iter()
            .map(|size| format!("gain of mode 2@7.3, map {size} x of DRAM [%]"))
            .collect::<Vec<_>>()
    );
    refused(
        "reproduce ksm --columns off",
        expect![[r#"
            homenode: --columns: only `reproduce tiering` compares placement; name it, without --sensitivity
        "#]],
    );
}
