//! The policy is a column like any other, and a run is the same each time.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `tiering-gauss`, but for three seconds only.
fn scenario() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the repository");
    let text = std::fs::read_to_string(root.join("scenarios/tiering-gauss.toml")).expect("text");
    let machines = root.join("machines");
    let text = text.replace("../machines", machines.to_str().expect("a plain path"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-policy.toml");
    std::fs::write(&file, text.replace("time = \"12s\"", "time = \"3s\"")).expect("written");
    file
}

#[test]
fn it_stands_beside_the_kernel_and_moves_what_is_hot() {
    let file = scenario();
    let run = || -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-policy"));
        command.arg("sim").arg(&file).args(["--columns", "off,thresholds", "--json"]);
        let out = command.output().expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).expect("JSON")
    };
    let json = run();
    assert_eq!(json["table"]["columns"], serde_json::json!(["off", "thresholds-damon"]));
    let figure = |name: &str, column: usize| -> f64 {
        let groups = json["table"]["groups"].as_array().expect("groups");
        let all = groups.iter().flat_map(|g| g["figures"].as_array().expect("figures"));
        let found = all.into_iter().find(|f| f["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no figure {name}"));
        found["mean"][column].as_f64().unwrap_or(0.0)
    };
    assert_eq!(figure("pages promoted", 0), 0.0, "the baseline moves nothing");
    assert!(figure("pages promoted", 1) > 1000.0 && figure("pages demoted", 1) > 1000.0);
    assert!(figure("accesses in node 0 (dram)", 1) > figure("accesses in node 0 (dram)", 0));
    // What came back of its orders is what it tried.
    let missed = [
        "not moved: no room",
        "not moved: busy",
        "not moved: absent or elsewhere",
        "not moved: forbidden",
        "not moved: process gone",
    ];
    let missed: f64 = missed.iter().map(|name| figure(name, 1)).sum();
    assert_eq!(figure("pages tried", 1), figure("pages moved", 1) + missed);
    assert_eq!(run()["runs"], json["runs"], "a second run is the same");
}

#[test]
fn its_name_is_listed_with_the_others() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-policy"));
    command.arg("sim").arg(scenario()).args(["--columns", "treshold"]);
    let out = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(text.contains("did you mean \"thresholds\"?"), "{text}");
    assert!(text.contains("thresholds  hot regions up, idle ones down, once a second"), "{text}");
}
