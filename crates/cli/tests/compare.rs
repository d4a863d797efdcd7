//! `homenode compare` as its users meet it: what it tells, what it keeps, what it refuses.

#[path = "support/recording.rs"]
mod recording;

use homenode_fixtures::Folder;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A hot set that begins below, small and short.
fn scenario(folder: &Folder) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the repository");
    let machine = root.join("machines/small-cxl.toml");
    let text = format!(
        r#"
name = "short"
about = "a hot set that begins below"
machine = "{}"
seed = 1

[[process]]
name = "table"
cpus = "0"
map = [{{ name = "idle", size = "240 MiB", huge = false }}, {{ name = "table", size = "64 MiB", huge = false }}]
step = [
    {{ do = "touch", map = "idle" }},
    {{ do = "touch", map = "table" }},
    {{ do = "access", map = "table", pattern = "zipf", theta = 900, time = "3s" }},
]
"#,
        machine.display()
    );
    folder.write("short.toml", &text);
}

fn run(folder: &Folder, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .arg("compare")
        .args(line.split_whitespace())
        .current_dir(&**folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("the command runs")
}

fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn contenders_stand_side_by_side_and_finished_runs_are_kept() {
    let folder = Folder::new();
    scenario(&folder);
    let line = "short.toml --columns off,mode2,arms --seeds 2 --out runs.jsonl --json";
    let first = json(&run(&folder, line));
    let w = &first["workloads"][0];
    assert_eq!(w["name"], "short");
    assert_eq!(w["seeds"], serde_json::json!([1, 2]));
    assert_eq!(w["optimum"]["how"], "bound");
    let of = |column: usize, figure: &str| {
        w["contenders"][column][figure].as_f64().unwrap_or_else(|| panic!("{figure}: {w}"))
    };
    let name = |column: usize| w["contenders"][column]["column"].as_str().expect("a name");
    assert_eq!([name(0), name(1), name(2)], ["off", "mode 2", "arms pmu"]);
    assert_eq!(of(0, "moved"), 0.0);
    assert!(of(1, "moved") > 1000.0);
    assert!(of(1, "fast_percent") > of(0, "fast_percent"));
    // Nobody needs less than the optimum, and who moves nothing needs more than it here.
    for column in 0..3 {
        assert!(of(column, "of_optimum_percent") <= 100.0, "{w}");
    }
    assert!(of(0, "of_optimum_percent") < 95.0);
    let ratio = &w["contenders"][1]["against_first"];
    assert!(ratio["low"].as_f64() <= ratio["ratio"].as_f64(), "{ratio}");
    let [base, mode2] = [0, 1].map(|column: usize| {
        let all = w["contenders"][column]["speeds"].as_array().expect("speeds");
        all.iter().map(|s| s.as_f64().expect("a number").ln()).sum::<f64>() / all.len() as f64
    });
    let told = ratio["ratio"].as_f64().expect("a ratio");
    assert!((told - (mode2 - base).exp()).abs() < 1e-9);

    // Six runs, a line each. One that is not whole, as after a crash, is run again.
    let kept = fs::read_to_string(folder.join("runs.jsonl")).expect("kept");
    assert_eq!(kept.lines().count(), 6);
    let cut = &kept[..kept.len() - 20];
    fs::write(folder.join("runs.jsonl"), cut).expect("written");
    let again = json(&run(&folder, line));
    assert_eq!(again["workloads"], first["workloads"]);
    let note = again["notes"].as_array().expect("notes").last().expect("one");
    assert!(note.as_str().is_some_and(|n| n.starts_with("5 runs were from")), "{note}");
    let kept = fs::read_to_string(folder.join("runs.jsonl")).expect("kept");
    assert_eq!(kept.lines().count(), 7, "five, the broken one, and that one anew");

    // What it knows of the machine concerns who drives: the kernel's own runs are those that were.
    let exact = format!("{line} --knowledge exact");
    let exact = json(&run(&folder, &exact));
    let rows = |all: &Value, column: usize| all["workloads"][0]["contenders"][column].clone();
    assert_eq!(rows(&exact, 1), rows(&first, 1));
    let kept = fs::read_to_string(folder.join("runs.jsonl")).expect("kept");
    assert_eq!(kept.lines().count(), 9, "two more of arms");
    let says = |all: &Value| all["notes"].to_string().contains("off by up to 30 % either way");
    assert!(says(&first) && !says(&exact));

    // Another setting is another run; the text form has bars.
    let out = run(&folder, "short.toml --columns off --seeds 1 --time 2s");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("short: a hot set that begins below"), "{text}");
    assert!(text.contains('█') && text.contains("geometric mean of speed over one workload"));
    assert!(!text.contains("were from"), "{text}");
    assert!(!text.contains("defaults"), "{text}");
    assert!(folder.join("cache/homenode/compare.jsonl").exists());
}

// A machine that was shipped says why its costs are homenode's own; one of the user's does not.
#[test]
fn costs_that_a_machine_leaves_out_are_told() {
    let folder = Folder::new();
    scenario(&folder);
    let text = fs::read_to_string(folder.join("short.toml")).expect("written");
    let machine = text.split('"').find(|w| w.ends_with("small-cxl.toml")).expect("a machine");
    let own = fs::read_to_string(machine).expect("it is shipped");
    let own: Vec<&str> = own.lines().filter(|l| !l.starts_with("defaults =")).collect();
    folder.write("own.toml", own.join("\n"));
    folder.write("short.toml", text.replace(machine, "own.toml"));
    let out = run(&folder, "short.toml --columns off --seeds 1 --time 2s");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let told = text.lines().find(|l| l.starts_with("machine small-cxl: ")).expect("a machine");
    assert!(told.contains("; defaults, not this machine's: "), "{told}");
}

#[test]
fn a_sweep_of_mode_2_is_kept_and_the_tuned_column_is_one_of_its_settings() {
    let folder = Folder::new();
    scenario(&folder);
    let out = run(&folder, "short.toml --sweep swept.json --out runs.jsonl");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    // One workload is no training set, and nothing is chosen by it.
    assert!(
        text.contains("hot_threshold_ms=250") && text.contains("no setting is chosen"),
        "{text}"
    );
    let swept = fs::read_to_string(folder.join("swept.json")).expect("kept");
    let swept: Value = serde_json::from_str(&swept).expect("JSON");
    let settings = swept["settings"].as_array().expect("settings").len();
    let speeds = swept["workloads"]["short"].as_array().expect("speeds");
    assert!(speeds.len() == settings && speeds.iter().all(|s| s.as_f64() > Some(0.0)), "{swept}");
    let different: std::collections::BTreeSet<String> =
        speeds.iter().map(Value::to_string).collect();
    assert!(different.len() > 1, "the knobs change something: {speeds:?}");

    // What comes with the command says which setting is tuned, for workloads of one's own too.
    let line = "short.toml --columns mode2,tuned --seeds 1 --out runs.jsonl --json";
    let all = json(&run(&folder, line));
    let names = |i: usize| all["workloads"][0]["contenders"][i]["column"].clone();
    assert_eq!([names(0), names(1)], ["mode 2", "mode 2 tuned"]);
    let notes = all["notes"].to_string();
    assert!(
        notes.contains("mode 2 tuned: ") && notes.contains("the best of 13 settings"),
        "{notes}"
    );
    assert!(
        notes.contains("runs were from") || notes.contains("run was from"),
        "its setting was swept a moment ago: {notes}"
    );
}

// The engine's settings are columns too; drawn workloads have a line each.
#[test]
fn settings_and_drawn_workloads_can_be_compared() {
    let folder = Folder::new();
    scenario(&folder);
    let line =
        "short.toml --columns off,homenode:pmu,homenode:pmu+start_delay=3000s --seeds 1 --json";
    let all = json(&run(&folder, line));
    let of = |i: usize| all["workloads"][0]["contenders"][i].clone();
    assert_eq!(of(2)["column"], "homenode pmu+start_delay=3000s");
    assert!(of(1)["moved"].as_f64() > Some(0.0), "{all}");
    assert_eq!(of(2)["moved"], 0.0, "a process that is never looked at: {all}");
    assert!(all["workloads"][0]["seconds"].as_f64() > Some(1.0), "{all}");

    let drawn = "drawn:a-text:3-4 --columns off --seeds 1 --lines --time 3s";
    let out = run(&folder, drawn);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("drawn-")).collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("drawn-3   1.000"),
        "a line each, with its speed: {text}"
    );
    let again = String::from_utf8_lossy(&run(&folder, drawn).stdout).into_owned();
    assert!(again.starts_with(text.trim_end()), "the same text draws the same: {again}");
}

/// A program of 32 MiB whose last eighth is hot and was touched last, so that it begins below.
///
/// Source: specs/compare.md#recorded.
#[test]
fn a_recorded_program_is_a_workload() {
    let folder = Folder::new();
    scenario(&folder);
    recording::recording(&folder.join("toy.parquet"), |h| h.command.truncate(1));
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let line = format!(
        "toy.parquet short.toml --machine {machines}/small.toml --time 4s --columns off,mode2,homenode:pmu --seeds 1 --out runs.jsonl"
    );
    let first = json(&run(&folder, &format!("{line} --json")));
    let w = &first["workloads"][0];
    assert_eq!((w["name"].as_str(), w["machine"].as_str()), (Some("toy"), Some("small+cxl")));
    let about = w["about"].as_str().expect("a sentence");
    assert!(
        about.starts_with("toy; 0.66 G instructions, 5.31 M lines from memory a round"),
        "{about}"
    );
    let of = |column: usize, figure: &str| {
        w["contenders"][column][figure].as_f64().unwrap_or_else(|| panic!("{figure}: {w}"))
    };
    assert_eq!(of(0, "moved"), 0.0);
    for column in 1..3 {
        assert!(of(column, "moved") > 500.0, "{w}");
        assert!(of(column, "fast_percent") > of(0, "fast_percent") + 20.0, "{w}");
        assert!(w["contenders"][column]["against_first"]["ratio"].as_f64() > Some(1.05), "{w}");
    }
    for column in 0..3 {
        assert!((50.0..=100.0).contains(&of(column, "of_optimum_percent")), "{w}");
    }
    assert!(of(2, "of_optimum_percent") > of(0, "of_optimum_percent"));
    let notes = first["notes"].to_string();
    assert!(notes.contains("toy, recorded: the program's memory: 32 MiB"), "{notes}");
    assert_eq!(first["workloads"][1]["name"], "short", "beside a scenario");

    // The same again is not run again; another recording of that name is.
    let again = json(&run(&folder, &format!("{line} --json")));
    assert_eq!(again["workloads"], first["workloads"]);
    assert!(again["notes"].to_string().contains("6 runs were from"), "{again}");
    recording::recording(&folder.join("toy.parquet"), |h| h.lost_frames = 3);
    let other = json(&run(&folder, &format!("{line} --json")));
    let notes = other["notes"].to_string();
    assert!(notes.contains("3 runs were from"), "{notes}");
    assert!(notes.contains("toy, recorded: warning: "), "what it lacks is said: {notes}");

    // What a user may get wrong.
    let good = fs::read(folder.join("toy.parquet")).expect("the recording");
    folder.write("cut.parquet", &good[..good.len() / 2]);
    let small = format!("--machine {machines}/small.toml --columns off --seeds 1");
    for (line, why) in [
        ("toy.parquet".to_owned(), "toy.parquet is a recording: name the machine"),
        ("toy.parquet --machine nowhere.toml".to_owned(), "nowhere.toml: cannot be read"),
        (format!("cut.parquet {small}"), "cut.parquet is not a whole recording"),
        (
            format!("toy.parquet {small} --time 1s"),
            "1 round is over after the first, and 4 have to be judged",
        ),
        (format!("toy.parquet {small} --add-node disk:half"), "disk"),
        (format!("toy.parquet {small} --dram 1TiB"), "--dram"),
        (format!("short.toml {small}"), "are for recordings, and none is named"),
        ("short.toml --dram half".to_owned(), "are for recordings, and none is named"),
    ] {
        let out = run(&folder, &line);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(why), "{line}: {said}");
    }
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = Folder::new();
    scenario(&folder);
    let flat = fs::read_to_string(folder.join("short.toml")).expect("text");
    folder.write("flat.toml", flat.replace("small-cxl.toml", "small.toml"));
    for (line, why) in [
        ("zpif", "there is no workload \"zpif\"; did you mean \"zipf\"?"),
        ("short.toml --columns of", "there is no contender \"of\"; did you mean \"off\"?"),
        ("drawn:some-text", "write drawn:TEXT:NUMBER or drawn:TEXT:FROM-TO"),
        ("drawn:some-text:7-3", "7-3 are no numbers from 1 to 10000, in order"),
        ("drawn:some-text:1 drawn:another:1", "two workloads are called drawn-1"),
        ("short.toml --lines --json", "cannot be used with"),
        (
            "short.toml --columns homenode:pmu+horizn=3s",
            "homenode's engine has no setting \"horizn\"; did you mean \"horizon\"?",
        ),
        ("short.toml --columns homenode:pmu+horizon=0s", "0s is not allowed; it is 10ms to 3600s"),
        ("short.toml --time 0s", "--time 0s: nothing would run"),
        ("short.toml --knowledge 95%", "write exact, or by how much"),
        ("short.toml short.toml", "two workloads are called short"),
        ("short.toml --columns off,hindsight", "nobody has swept mode 2's knobs over short"),
        ("short.toml --columns off,tuned,tuned", "--columns names mode 2 tuned twice"),
        ("short.toml --sweep swept.json --quick", "cannot be used with"),
        ("flat.toml", "the machine \"small\" has one tier"),
        ("short.toml --columns off --seeds 1 --time 30ms", "give it more --time"),
        ("short.toml --columns off --out nowhere/runs", "nowhere/runs: can't be"),
    ] {
        let out = run(&folder, line);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(why), "{line}: {said}");
        assert!(out.stdout.is_empty());
    }
}
