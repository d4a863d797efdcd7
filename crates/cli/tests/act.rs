//! `homenode act`, `ledger` and `restore` as their users meet them: where there is one node,
//! and over a machine of two that is files only, whose knobs can be set and killed at.

#[path = "support/man.rs"]
mod man;
#[path = "support/two_nodes.rs"]
mod two_nodes;

use homenode_fixtures::{Folder, Leashed, until};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use two_nodes::two_nodes;

/// As they are at first. The kernel's files are not cut when they are written, and neither
/// are these: the values have the same length, or end with a line more.
const KNOBS: [(&str, &str); 3] = [
    ("proc/sys/kernel/numa_balancing", "1"),
    ("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "250"),
    ("sys/kernel/mm/numa/demotion_enabled", "false"),
];
/// What `--engine kernel` makes of them: node 1 is slow and without CPUs.
const SET: [&str; 3] = ["2", "100", "true"];

fn command(at: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command
        .args(line.split_whitespace().map(|w| w.replace("ROOT", &at.display().to_string())))
        .current_dir(at)
        .env("LC_ALL", "C.UTF-8")
        .env("XDG_RUNTIME_DIR", at.join("run"))
        .env("XDG_STATE_HOME", at.join("state"));
    command
}
fn run(at: &Path, line: &str) -> Output {
    command(at, line).output().expect("the command runs")
}
fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
/// A homenode that sets knobs until it is ended.
fn start(at: &Path) -> Leashed {
    let mut command = command(at, "act --engine kernel --all --yes --root ROOT");
    Leashed::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}
fn knobs(at: &Path) -> [String; 3] {
    KNOBS.map(|(path, _)| fs::read_to_string(at.join(path)).unwrap_or_default().trim().to_owned())
}
/// The machine, with knobs as they were.
fn machine() -> Folder {
    let at = Folder::new();
    two_nodes(&at, std::process::id());
    for (path, text) in KNOBS {
        fs::create_dir_all(at.join(path).parent().expect("it has one")).expect("a folder");
        fs::write(at.join(path), format!("{text}\n")).expect("a file");
    }
    at
}
/// As the kernel shows it while that process lives.
fn lives(at: &Path, pid: u32) {
    let folder = at.join(format!("proc/{pid}"));
    fs::create_dir_all(&folder).expect("a folder");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    fs::write(folder.join("stat"), stat).expect("a file");
}
fn signal(child: &Child, signal: i32) {
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}
fn end(child: Leashed) -> Output {
    signal(&child, libc::SIGTERM);
    child.output()
}
fn as_before() -> [String; 3] {
    KNOBS.map(|(_, value)| value.to_owned())
}
fn as_set() -> [String; 3] {
    SET.map(str::to_owned)
}

#[test]
fn bad_input_is_told_before_anything_is_changed() {
    let at = machine();
    for (name, text) in [
        ("bad.toml", "[budget]\nstal = \"1ms\"\n"),
        ("limits.toml", "[exclude]\nuser = [0]\n"),
        ("user.toml", "[exclude]\nuser = [\"nobody-of-ours\"]\n"),
        ("tiers.toml", "[tiers]\nfast = \"0,7\"\n"),
    ] {
        fs::write(at.join(name), text).expect("a file");
    }
    let cases = [
        ("act", 2, "--pid"),
        ("act --all", 2, "--yes"),
        ("act --pid 0", 2, "invalid value"),
        ("act --pid 4194304", 2, "4194304"),
        ("act --pid 1 --for 0s", 2, "no span of time"),
        ("act --pid 1 --config bad.toml", 2, "bad.toml:2:1: budget.stal: unknown key"),
        ("act --pid 1 --config none.toml", 2, "none.toml"),
        ("act --pid 1 --engine kernel --yes", 2, "can't be told whom to move for"),
        ("act --engine kernel --all", 2, "--yes"),
        ("act --all --yes --root ROOT", 2, "another machine's files"),
        ("act -- no-such-program-of-ours", 2, "no-such-program-of-ours"),
        ("act --pid 1 --metric true", 2, "--trial"),
        ("act --pid 1 --trial --record a.seen", 2, "--record"),
        ("act --pid 1 --record no/such/folder.seen", 2, "no/such"),
        ("act --engine kernel --all --yes --record a.seen", 2, "told nothing"),
        ("act --pid 1 --begin slow", 2, "CMD"),
        ("act --begin upside-down -- true", 2, "interleave"),
        ("act --pid 1 --trial --windows 9", 2, "an even number of windows from 8 to 20"),
        ("act --pid 1 --trial --metric false", 1, "the metric `false` failed: exit status: 1"),
        ("act --engine kernel --all --yes --trial --root ROOT", 3, "benefit not measurable here"),
        ("act --engine kernel --all --yes --root ROOT --config limits.toml", 2, "no floors"),
        ("act --pid 1 --config user.toml", 2, "user.toml:2:9: exclude.user[0]: there is no user"),
        (
            "act --engine kernel --all --yes --root ROOT --config tiers.toml",
            2,
            "tiers.toml:2:8: tiers.fast: there is no node 7 with memory here",
        ),
        ("ledger --since soon", 2, "soon"),
    ];
    for (line, code, part) in cases {
        let out = run(&at, line);
        let text = text(&out);
        assert_eq!(out.status.code(), Some(code), "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
        assert!(!text.contains("panicked"), "{line}: {text}");
    }
    assert_eq!(knobs(&at), as_before());
}

#[test]
fn with_one_node_there_is_nowhere_to_move_to_and_a_program_runs_all_the_same() {
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.trim().contains(['-', ',']) {
        println!("skipped: this machine has several nodes with memory");
        return;
    }
    let at = Folder::new();
    fs::write(at.join("end"), "echo its own words; exit 7\n").expect("a script");
    let out = run(&at, "act -- sh end");
    assert_eq!(
        (out.status.code(), String::from_utf8_lossy(&out.stdout).as_ref()),
        (Some(7), "its own words\n"),
        "{}",
        text(&out)
    );
    let out = run(&at, "act --trial -- sh end");
    assert_eq!(out.status.code(), Some(7), "{}", text(&out));
    assert!(text(&out).contains("nothing was tried: one node has memory"), "{}", text(&out));
    let out = run(&at, &format!("act --pid {} --for 1s", std::process::id()));
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(
        said.contains("nothing was moved: one node has memory: there is nowhere to move to"),
        "{said}"
    );
    // Nothing was written anywhere.
    assert!(!at.join("run").exists() && !at.join("state").exists());
    let out = run(&at, "ledger --root ROOT");
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out).contains("nothing was moved yet"), "{}", text(&out));
}

#[test]
fn the_kernels_knobs_are_set_and_put_back_and_what_it_moved_is_in_the_ledger() {
    let at = machine();
    let vmstat = |up: u64| {
        fs::write(
            at.join("proc/vmstat"),
            format!("pgmigrate_success {}\nnuma_pages_migrated {up}\n", up + 5),
        )
        .expect("a file");
        let node = at.join("sys/devices/system/node/node0/vmstat");
        fs::write(node, format!("pgpromote_success {up}\npgdemote_kswapd 0\n")).expect("a file");
    };
    vmstat(100);
    let child = start(&at);
    until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
    vmstat(356);
    let out = end(child);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(knobs(&at), as_before(), "{said}");
    let last = String::from_utf8_lossy(&out.stdout);
    let told: serde_json::Value = serde_json::from_str(last.trim()).expect("one JSON object");
    assert_eq!((&told["what"], &told["why"]), (&"end".into(), &"it was to end".into()), "{told}");
    assert_eq!(told["kernel_bytes"]["the kernel's balancing"], 256 * 4096, "{told}");
    assert!(!at.join("run/homenode/act.journal").exists());
    let out = run(&at, "ledger --root ROOT --json");
    let rows: Vec<serde_json::Value> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
        .collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (&rows[0]["mover"], &rows[0]["from"], &rows[0]["to"], &rows[0]["pid"]),
        (&"kernel-balancing".into(), &1.into(), &0.into(), &serde_json::Value::Null)
    );
    let table = text(&run(&at, "ledger --root ROOT"));
    assert!(table.contains("kernel balancing"), "{table}");
}

/// The metric is what the knob says: 1 as it was, 2 as homenode sets it.
#[test]
fn a_trial_sets_knobs_in_turns_and_says_what_came_of_it() {
    let at = machine();
    let metric = format!("cut -c1 {}", at.join(KNOBS[0].0).display());
    fs::write(at.join("metric"), metric).expect("a script");
    let line = "act --engine kernel --all --yes --root ROOT --trial --windows 8 --window 50ms \
                --seed 7 --json --metric";
    let words: Vec<String> =
        line.split_whitespace().map(|w| w.replace("ROOT", &at.display().to_string())).collect();
    let with = |more: &[&str]| {
        let mut command = command(&at, "");
        command.args(&words).arg("sh metric").args(more);
        let out = command.output().expect("the command runs");
        let rows: Vec<serde_json::Value> = String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(|l| serde_json::from_str(l).expect("a JSON object a line"))
            .collect();
        (rows, text(&out), out.status.code())
    };
    let (rows, said, code) = with(&[]);
    assert_eq!((rows.len(), code), (2, Some(0)), "{said}");
    let told = &rows[0];
    assert_eq!((&told["what"], &told["verdict"]), (&"trial".into(), &"pays".into()), "{said}");
    assert_eq!((&told["with_mean"], &told["without_mean"]), (&2.0.into(), &1.0.into()));
    assert_eq!(told["test"]["orders"], 70);
    let windows = told["windows"].as_array().expect("windows");
    assert!(windows.iter().all(|w| (w["value"] == 2.0) == (w["with"] == true)), "{told}");
    // The order was said before.
    let order: Vec<&str> =
        windows.iter().map(|w| if w["with"] == true { "+" } else { "-" }).collect();
    let plan = format!("in this order (seed 7): {}", order.join(" "));
    assert!(said.contains(&plan), "{plan}: {said}");
    assert_eq!(rows[1]["why"], "the trial is over: it pays");
    assert_eq!(knobs(&at), as_before(), "{said}");
    assert!(!at.join("run/homenode/act.journal").exists());
    // The other way round it is a loss, and it does not go on though that was asked for.
    let (rows, said, code) = with(&["--better", "lower", "--for", "1h"]);
    assert_eq!((rows[0]["verdict"].as_str(), code), (Some("harms"), Some(0)), "{said}");
    assert_eq!(rows[1]["why"], "the trial is over: it does not pay: it is worse with it", "{said}");
    // A gain goes on.
    let (rows, said, _) = with(&["--for", "100ms"]);
    assert_eq!(rows[1]["why"], "its time was over", "{said}");
    // No difference is no gain.
    fs::write(at.join("metric"), "echo 1").expect("a script");
    let (rows, said, _) = with(&["--for", "1h"]);
    assert_eq!(rows[0]["verdict"], "open", "{said}");
    assert_eq!(rows[1]["why"], "the trial is over: it was not shown to pay", "{said}");
    assert_eq!(knobs(&at), as_before());
    // A metric that breaks in the middle ends it, without a verdict.
    let broken =
        format!("test $(wc -c < {0}) -lt 9 && echo 1 | tee -a {0}", at.join("n").display());
    fs::write(at.join("metric"), broken).expect("a script");
    fs::write(at.join("n"), "").expect("a file");
    let (rows, said, code) = with(&[]);
    assert_eq!((rows[0]["verdict"].as_str(), code), (Some("unmeasurable"), Some(1)), "{said}");
    assert!(said.contains("the trial broke off in window 3 of 8"), "{said}");
    assert_eq!(knobs(&at), as_before());
}

/// The program is quick while the knob is set.
#[test]
fn a_trial_beside_a_program_is_runs_of_it() {
    let at = machine();
    let script = format!(
        "if grep -q 2 {}; then sleep 0.05; else sleep 0.6; fi",
        at.join(KNOBS[0].0).display()
    );
    fs::write(at.join("work"), script).expect("a script");
    let line = "act --engine kernel --yes --root ROOT --trial --windows 8 --json -- sh work";
    let out = run(&at, line);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    let told = said.lines().find(|l| l.contains(r#""what":"trial""#)).expect("a trial");
    let told: serde_json::Value = serde_json::from_str(told).expect("JSON");
    assert_eq!(told["verdict"], "pays", "{said}");
    assert!(told["test"]["high"].as_f64().is_some_and(|high| high < 0.0), "{told}");
    assert_eq!(knobs(&at), as_before());
    // A program that fails ends it.
    fs::write(at.join("work"), "exit 7").expect("a script");
    let out = run(&at, line);
    assert_eq!(out.status.code(), Some(7), "{}", text(&out));
    assert!(text(&out).contains("the program ended with 7, and with it the trial"));
}

#[test]
fn who_sets_a_knob_between_windows_ends_the_trial() {
    let at = machine();
    // What the metric does, somebody else does meanwhile: in the third window.
    let script = format!(
        "echo x >> {0}; test $(wc -l < {0}) -eq 4 && echo 3 > {1}; echo 1",
        at.join("n").display(),
        at.join(KNOBS[0].0).display()
    );
    fs::write(at.join("metric"), script).expect("a script");
    let mut command = command(&at, "act --engine kernel --all --yes --root ROOT --trial --json");
    command.args(["--window", "20ms", "--metric", "sh metric"]);
    let out = command.output().expect("the command runs");
    let said = text(&out);
    assert!(said.contains("somebody else has set /proc/sys/kernel/numa_balancing to 3"), "{said}");
    assert!(said.contains(r#""verdict":"unmeasurable""#), "{said}");
    assert_eq!(knobs(&at), ["3", "250", "false"].map(str::to_owned), "{said}");
}

#[test]
fn tiers_that_firmware_tells_wrong_are_mended() {
    let at = machine();
    // As firmware without any word of node 1 being slow.
    fs::remove_dir_all(at.join("sys/devices/virtual/memory_tiering")).expect("tiers");
    let tiers = "sys/devices/virtual/memory_tiering/memory_tier4";
    fs::create_dir_all(at.join(tiers)).expect("a folder");
    fs::write(at.join(tiers).join("nodelist"), "0-1\n").expect("a file");
    let set = |line: &str| {
        let out =
            run(&at, &format!("act --engine kernel --all --yes --root ROOT --for 50ms {line}"));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        text(&out).contains("numa_balancing: 1 -> 2")
    };
    assert!(!set(""), "one tier: nothing is slow");
    fs::write(at.join("tiers.toml"), "[tiers]\nfast = \"0\"\n").expect("a file");
    assert!(set("--config tiers.toml"));
    assert_eq!(knobs(&at), as_before());
    fs::write(at.join("tiers.toml"), "[tiers]\nfast = \"1\"\n").expect("a file");
    let out = run(&at, "act --engine kernel --all --yes --root ROOT --config tiers.toml");
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out).contains("tiers.toml:2:8: tiers.fast: node 0 has CPUs"), "{}", text(&out));
}

#[test]
fn one_acts_at_a_time_and_the_second_is_told_who() {
    let at = machine();
    let child = start(&at);
    until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
    lives(&at, child.id());
    let out = run(&at, "act --engine kernel --all --yes --root ROOT");
    let due = format!("homenode, process {}, acts on this machine already", child.id());
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    assert!(text(&out).contains(&due), "{}", text(&out));
    let out = run(&at, "restore --root ROOT");
    assert!(text(&out).contains(&due) && out.status.code() == Some(3), "{}", text(&out));
    assert_eq!(knobs(&at), as_set(), "nobody else has touched them");
    end(child);
    assert_eq!(knobs(&at), as_before());
}

#[test]
fn who_sets_a_knob_meanwhile_keeps_it() {
    let at = machine();
    let child = start(&at);
    until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
    fs::write(at.join(KNOBS[0].0), "3\n").expect("a knob");
    // It ends by itself.
    let out = child.output();
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("somebody else has set /proc/sys/kernel/numa_balancing to 3"), "{said}");
    assert_eq!(knobs(&at), ["3", "250", "false"].map(str::to_owned), "{said}");
}

#[test]
fn a_stopped_one_goes_on_and_puts_back() {
    let at = machine();
    let child = start(&at);
    until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
    signal(&child, libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, libc::SIGCONT);
    assert_eq!(end(child).status.code(), Some(0));
    assert_eq!(knobs(&at), as_before());
}

#[test]
fn a_full_disk_is_no_journal_and_so_no_change() {
    let at = machine();
    fs::create_dir_all(at.join("run/homenode")).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", at.join("run/homenode/act.new")).expect("a link");
    let out = run(&at, "act --engine kernel --all --yes --root ROOT");
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    assert!(text(&out).contains("can't write the journal"), "{}", text(&out));
    assert_eq!(knobs(&at), as_before());
}

/// What was moved can't be written down: the knobs come back all the same, and it is told.
#[test]
fn a_full_disk_under_the_ledger_ends_it_and_the_knobs_come_back() {
    let at = machine();
    let vmstat = |moved: u64| {
        fs::write(at.join("proc/vmstat"), format!("pgmigrate_success {moved}\n")).expect("a file");
    };
    vmstat(100);
    fs::create_dir_all(at.join("var/lib/homenode")).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", at.join("var/lib/homenode/ledger.jsonl"))
        .expect("a link");
    let child = start(&at);
    until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
    vmstat(356);
    let out = end(child);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("No space left on device") && said.contains("nothing more"), "{said}");
    assert_eq!(knobs(&at), as_before(), "{said}");
    assert!(!at.join("run/homenode/act.journal").exists());
}

/// SIGKILL at any moment of it: while the lock is taken, the journal written, the knobs set,
/// watched, and put back. After `restore` every knob is as before, each time.
#[test]
fn killed_at_any_moment_restore_puts_everything_back() {
    // Two at a time, each beside a machine of its own.
    const TIMES: u64 = 1000;
    let of = |seed: u64| {
        let at = machine();
        let mut random = homenode_core::splitmix::SplitMix::new(seed);
        let (mut set, mut left) = (0, 0);
        for i in 0..TIMES / 2 {
            let mut child = start(&at);
            // Half of them on the way up, the others on the way down.
            if i % 2 == 1 {
                until("knobs that are set", || (knobs(&at) == as_set()).then_some(()));
                signal(&child, libc::SIGTERM);
            }
            std::thread::sleep(Duration::from_micros(random.next() % 60_000));
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            set += u64::from(knobs(&at) != as_before());
            left += u64::from(at.join("run/homenode/act.journal").exists());
            let out = run(&at, "restore --root ROOT --json");
            assert_eq!(out.status.code(), Some(0), "{i}: {}", text(&out));
            assert_eq!(knobs(&at), as_before(), "{i}: {}", text(&out));
            assert!(!at.join("run/homenode/act.journal").exists(), "{i}");
        }
        (at, set, left)
    };
    let [(at, set, left), (_, other_set, other_left)] = std::thread::scope(|s| {
        let runs = [21, 22].map(|seed| s.spawn(move || of(seed)));
        runs.map(|run| run.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
    });
    let (set, left): (u64, u64) = (set + other_set, left + other_left);
    println!("{TIMES} kills: {left} left a journal, {set} a changed knob");
    // Each changed knob has its journal; a kill may hit nothing but such moments.
    assert!(set > 0 && left >= set, "{set} changed knobs, {left} journals of {TIMES}");
    // A second one does nothing.
    assert!(text(&run(&at, "restore --root ROOT")).contains("nothing to restore"));
}

#[test]
fn the_manual_pages_have_every_option() {
    for name in ["act", "ledger"] {
        let page = man::page(&format!("homenode-{name}.1"));
        let out = run(&Folder::new(), &format!("{name} --help"));
        let help = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(help.contains(&format!("Example:\n  homenode {name}")), "{help}");
        // Options begin a line of their own; the text speaks of others' options too.
        let begins: String = help
            .lines()
            .filter(|l| l.trim_start().starts_with('-'))
            .map(|l| format!(" {}\n", l.trim_start().trim_start_matches("-h, ")))
            .collect();
        let mut real = man::options(&begins, " --");
        real.remove("help");
        assert_eq!(real, man::options(&page, "Fl -"), "{name}");
    }
}
