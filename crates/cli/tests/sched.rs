//! `homenode record sched` and `replay sched` as their users meet them: real programs recorded by BPF, skipped with
//! the reason printed where that can't be loaded, and recordings made by hand.

use expect_test::expect;
use homenode_core::sched::course::{Blocked, Wait};
use homenode_fixtures::{Folder, program};
use homenode_trace::sched::{Header, Kind, NOBODY, Row, Stop, Task, VERSION, Writer, load, tally};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");

fn homenode(folder: &Folder, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.current_dir(folder).args(line).output().expect("homenode runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records a shell's script as JSON; `None`, with the reason printed, where that can't be.
fn recorded(folder: &Folder, script: &str, code: i32) -> Option<(Value, Header, Vec<Row>)> {
    let out = homenode(
        folder,
        &["record", "sched", "--json", "-o", "a.parquet", "--", "sh", "-c", script],
    );
    if out.status.code() == Some(3) && code != 3 {
        println!("skipped: {}", text(&out.stderr));
        return None;
    }
    assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    // What the program prints comes first.
    let stdout = text(&out.stdout);
    let json = serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON");
    let (header, rows) = load(folder.join("a.parquet")).expect("a whole recording");
    Some((json, header, rows))
}

#[test]
fn a_program_is_recorded_with_all_that_it_starts_and_nobody_else() {
    let folder = Folder::new();
    // `cat` ends after a tenth of a second too: the shell waits for it by then.
    let script = "sleep 0.1 & sleep 0.1 | cat >/dev/null; wait; exit 5";
    let Some((json, header, rows)) = recorded(&folder, script, 5) else { return };
    let mut names: Vec<&str> = header.tasks.iter().map(|t| t.name.as_str()).collect();
    names.sort_unstable();
    // Which of them the shell is itself hangs on the shell.
    assert!(
        names.contains(&"sleep") && names.contains(&"cat") && names.contains(&"sh"),
        "{names:?}"
    );
    assert!(names.len() <= 5, "{names:?}");
    assert_eq!((json["lost"].as_u64(), json["complete"].as_bool()), (Some(0), Some(true)));
    assert!(header.tasks.iter().all(|t| t.tid > 0 && !t.kernel));
    let tally = tally(&header, &rows);
    let place = |name: &str| header.tasks.iter().position(|t| t.name == name).expect("it is there");
    let sleeper = &tally.tasks[place("sleep")];
    let asleep = sleeper.waited_ns[Blocked::Timer as usize];
    assert!((95_000_000..400_000_000).contains(&asleep), "{asleep} ns");
    // It waits for its child or, as dash does, for the signal of its end.
    let waited = &tally.tasks[0].waited_ns;
    let shell = waited[Blocked::Child as usize] + waited[Blocked::Signal as usize];
    assert!(shell > 50_000_000, "the shell waits for it: {waited:?}");
    assert!(rows.iter().any(|r| r.kind == Kind::Fork) && rows.iter().any(|r| r.kind == Kind::Exec));
    let by_tasks = rows.iter().filter(|r| r.kind == Kind::Wake && r.other != NOBODY).count();
    assert!(by_tasks >= 2, "who ends wakes who waits for it: {by_tasks}");
    let left = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 1, "nothing is left beside the recording");
}

#[test]
fn a_program_that_is_killed_ends_the_recording() {
    let folder = Folder::new();
    let Some((json, header, _)) = recorded(&folder, "sleep 0.02; kill -9 $$", 137) else { return };
    assert_eq!(json["ended"], "was ended by signal 9");
    assert!(header.complete);
}

#[test]
fn a_number_that_is_used_again_is_another_task() {
    let folder = Folder::new();
    if !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        return println!("skipped: this kernel lets nobody choose a PID");
    }
    let script = "n=0; while [ $n -lt 50 ]; do ( exit 0 ) & a=$!; wait $a
        echo $((a-1)) > /proc/sys/kernel/ns_last_pid || exit 7
        ( exit 1 ) & [ $! = $a ] && wait $a && exit 8; [ $! = $a ] && exit 0
        wait; n=$((n+1)); done; exit 9";
    let out = homenode(&folder, &["record", "sched", "-o", "a.parquet", "--", "sh", "-c", script]);
    if out.status.code() != Some(0) {
        return println!("skipped: {}", text(&out.stderr));
    }
    let (header, rows) = load(folder.join("a.parquet")).unwrap();
    let mut twice: Vec<u32> = header.tasks.iter().map(|t| t.tid).collect();
    twice.sort_unstable();
    let twice: Vec<u32> = twice.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
    assert!(!twice.is_empty(), "a number came twice");
    for tid in twice {
        let both = (0..).zip(&header.tasks).filter(|(_, t)| t.tid == tid).map(|(n, _)| n);
        for task in both {
            let dead =
                |r: &&Row| r.task == task && r.kind == Kind::Stop && r.arg == Stop::Dead.to_arg();
            assert_eq!(rows.iter().filter(dead).count(), 1, "each of them ends once");
        }
    }
}

/// Numbers are the machine's; who waits for a child in another PID namespace is told another number, which may
/// be somebody else's on the machine.
#[test]
fn who_waits_for_whom_in_another_pid_namespace() {
    let folder = Folder::new();
    // A child in the namespace gets the number that the outermost shell has on the machine.
    let inner = "echo $(($0 - 1)) > /proc/sys/kernel/ns_last_pid || exit 7
        sleep 0.05 & [ $! = $0 ] || exit 8
        wait $!; sleep 0.01; exit 3";
    folder.write("inner", inner);
    let script = "unshare --pid --fork sh -c \"$(cat inner)\" $$; echo $?";
    let Some((_, header, rows)) = recorded(&folder, script, 0) else { return };
    let printed =
        homenode(&folder, &["record", "sched", "-o", "b.parquet", "--", "sh", "-c", script]);
    let status = text(&printed.stdout);
    let status = status.lines().next().unwrap_or_default();
    if matches!(status, "1" | "7" | "8") {
        return println!("skipped: this kernel lets nobody choose a PID in a namespace: {status}");
    }
    assert_eq!(status, "3", "{}", text(&printed.stdout));
    // Each number is the machine's, so no two are the same and none is that of its first process.
    let mut tids: Vec<u32> = header.tasks.iter().map(|t| t.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(tids.len() == header.tasks.len() && tids[0] > 1, "{tids:?}");
    // Whoever has learned of an end has started that task.
    let of = |kind: Kind| rows.iter().filter(move |r| r.kind == kind).map(|r| (r.task, r.other));
    let started: Vec<(u32, u32)> = of(Kind::Fork).collect();
    let joined: Vec<(u32, u32)> = of(Kind::Join).collect();
    assert!(joined.iter().all(|pair| started.contains(pair)), "{joined:?} of {started:?}");
    // The outer shell, unshare, and the inner shell twice.
    assert!(joined.len() >= 4, "{joined:?} of {started:?}");
}

#[test]
fn ten_thousand_tasks_are_recorded_and_replayed() {
    let folder = Folder::new();
    let script = "n=0; while [ $n -lt 10000 ]; do : & n=$((n+1)); \
        [ $((n % 100)) = 0 ] && wait; done; wait";
    let Some((json, header, _)) = recorded(&folder, script, 0) else { return };
    assert!(header.tasks.len() > 10_000, "{}", header.tasks.len());
    assert_eq!(json["untold_tasks"], 0);
    let out = homenode(
        &folder,
        &["replay", "sched", "a.parquet", "--machine", SMALL, "--cpus", "0", "--force", "--json"],
    );
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let all: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let columns = all["table"]["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 3);
    let elapsed: Vec<f64> = (0..3)
        .map(|c| all["table"]["groups"][0]["figures"][0]["mean"][c].as_f64().unwrap())
        .collect();
    assert!(elapsed.iter().all(|ms| *ms > 1.0), "{elapsed:?}");
}

#[test]
fn without_rights_it_says_what_is_needed() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.current_dir(std::env::temp_dir());
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    let file = std::env::temp_dir().join(format!("homenode-unprivileged-{}", std::process::id()));
    let out = command.args(["record", "sched", "-o"]).arg(&file).args(["--", "true"]).output();
    let out = match out {
        Ok(out) => out,
        Err(e) => return println!("skipped: nobody may run it here: {e}"),
    };
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("needs root, or CAP_BPF and CAP_PERFMON"), "{said}");
    assert!(!file.exists() && !file.with_extension("partial").exists(), "nothing is left");
    drop(folder);
}

/// Memory that may be locked says nothing of what BPF may have.
#[test]
fn little_memory_that_may_be_locked_is_enough() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_homenode");
    let script = format!("ulimit -l 64; exec {program} record sched -o a.parquet -- true");
    let out = Command::new("sh").current_dir(&folder).args(["-c", &script]).output();
    let out = out.expect("a shell");
    let said = text(&out.stderr);
    if out.status.code() == Some(3) && said.contains("needs root") {
        return println!("skipped: {said}");
    }
    assert_eq!(out.status.code(), Some(0), "{said}");
}

/// A kernel without sched_ext is a lack, with what would be needed.
#[test]
fn a_kernel_without_sched_ext_is_told_what_it_lacks() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        return println!("skipped: this kernel has sched_ext");
    }
    let folder = Folder::new();
    for line in [&["sched", "--", "true"][..], &["sched", "--openmetrics", "a.prom", "--system"]] {
        let out = homenode(&folder, line);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{line:?}: {said}");
        let needed =
            "has no sched_ext: boot Linux 6.13 or newer that is built with CONFIG_SCHED_CLASS_EXT";
        assert!(said.contains(needed), "{line:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is written");
    let out = homenode(&folder, &["sched", "--openmetrics", "no/a.prom", "--", "true"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("its folder no can't be used"), "{}", text(&out.stderr));
}

#[test]
fn usage_that_makes_no_sense_is_said() {
    let folder = Folder::new();
    for (line, said) in [
        (&["record", "sched"][..], "what to record is missing"),
        (&["record", "sched", "--system"], "--system needs --for"),
        (&["record", "sched", "-o", ".", "--", "true"], "this is a folder"),
        (&["record", "sched", "--from-perf", "none"], "there is no such file"),
        (&["record", "sched", "--", "/nonexistent/x"], "/nonexistent/x can't be run"),
        (&["replay", "sched", "none", "--machine", SMALL], "none"),
        (&["replay", "sched", SMALL, "--machine", SMALL], "is not a whole recording"),
        (&["replay", "--machine", SMALL], "required"),
    ] {
        let out = homenode(&folder, line);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line:?}: {err}");
        assert!(err.contains(said), "{line:?}: {err}");
    }
}

// ── perf ───────────────────────────────────────────────────────────────────────

/// Runs `record sched --from-perf` with a perf that prints a text.
fn from_perf(folder: &Folder, printed: &str) -> Output {
    folder.write("printed", printed);
    folder.write("perf.data", "PERFILE2");
    program::script("#!/bin/sh\ncat printed\n", &folder.join("perf"));
    let path = format!("{}:/usr/bin:/bin", folder.join("").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.current_dir(folder).env("PATH", path);
    let line = ["record", "sched", "--from-perf", "perf.data", "-o", "a.parquet"];
    command.args(line).output().expect("homenode runs")
}

#[test]
fn what_perf_printed_becomes_a_recording_or_an_error_with_its_line() {
    let folder = Folder::new();
    let good = "\
    swapper 0 [000] 10.000000000: sched:sched_switch: swapper/0:0 [120] R ==> a:11 [120]
          a 11 [000] 10.001000000: sched:sched_switch: a:11 [120] S ==> b:12 [120]
          b 12 [000] 10.002000000: sched:sched_waking: a:11 [120] CPU:000
          b 12 [000] 10.003000000: sched:sched_switch: b:12 [120] X ==> a:11 [120]
          a 11 [000] 10.005000000: sched:sched_switch: a:11 [120] X ==> swapper/0:0 [120]
";
    let out = from_perf(&folder, good);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    expect![[r#"
        a.parquet: 0.0 MB, 7 rows of 2 tasks in 0.005 s
        task                         run ms    wait ms   sleep ms   block ms wake-ups  migr. switches    p50 us    p99 us
        a 11                          3.000      1.000      1.000      0.000        1      0        1    1000.0    1000.0
        b 12                          2.000      0.000      0.000      0.000        0      0        0       0.0       0.0
        all of them                   5.000      1.000      1.000      0.000        1      0        1    1000.0    1000.0
        asleep for: other 1.000 ms
    "#]]
    .assert_eq(&text(&out.stdout));
    let odd = good.replace("b:12 [120] X ==>", "b:12 [120] X =>");
    let out = from_perf(&folder, &odd);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert!(err.contains("perf.data: line 4 of what perf script printed"), "{err}");
    let (_, rows) = load(folder.join("a.parquet")).expect("what was there stays");
    assert_eq!(rows.len(), 7);
}

#[test]
fn real_data_of_perf_are_read() {
    let folder = Folder::new();
    let line = ["sched", "record", "-o", "perf.data", "--", "sh", "-c", "sleep 0.05 | cat"];
    let perf = Command::new("perf").current_dir(&folder).args(line).output();
    match perf {
        Ok(out) if out.status.success() => {}
        Ok(out) => return println!("skipped: perf sched record: {}", text(&out.stderr)),
        Err(e) => return println!("skipped: perf: {e}"),
    }
    let out =
        homenode(&folder, &["record", "sched", "--from-perf", "perf.data", "-o", "a.parquet"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let (header, _) = load(folder.join("a.parquet")).unwrap();
    assert!(header.tasks.iter().any(|t| t.name == "cat"), "{:?}", header.tasks);
}

// ── Replays ────────────────────────────────────────────────────────────────────

/// Rows with times in microseconds: time, CPU, task, kind, other, arg.
type Made = (u64, u32, u32, Kind, u32, u64);

const SLEEPS: Stop =
    Stop::Waits(Wait { what: Blocked::Pipe, uninterruptible: false, iowait: false });

fn write(folder: &Folder, rows: &[Made], change: impl FnOnce(&mut Header)) -> PathBuf {
    let path = folder.join("made.parquet");
    let mut w = Writer::create(&path).unwrap();
    for &(us, cpu, task, kind, other, arg) in rows {
        w.push(Row { kind, time_ns: us * 1000, cpu, task, other, arg }).unwrap();
    }
    let task = |n: u32| Task { tid: 10 + n, tgid: 10, name: format!("t{n}"), kernel: false };
    let mut header = Header {
        version: VERSION,
        source: "bpf".into(),
        command: vec!["made".into()],
        cpus: vec![0, 1],
        span_ns: rows.last().map_or(0, |r| r.0 * 1000),
        complete: true,
        contexts: true,
        calls: true,
        tasks: (0..2).map(task).collect(),
        ..Header::default()
    };
    change(&mut header);
    w.finish(&header).unwrap();
    path
}

/// Two tasks that hand something to and fro, each for 1 ms at a time, on a CPU each; then both compute for 50 ms.
fn ping_pong() -> Vec<Made> {
    let (stop, dead) = (SLEEPS.to_arg(), Stop::Dead.to_arg());
    let mut rows: Vec<Made> = vec![
        (0, 0, 0, Kind::Run, NOBODY, 0),
        (10, 0, 0, Kind::Fork, 1, 0),
        (20, 1, 1, Kind::Run, NOBODY, 20),
        (30, 1, 1, Kind::Stop, NOBODY, stop),
    ];
    for round in 0..20 {
        let t = 1000 + round * 2000;
        rows.extend([
            (t, 0, 1, Kind::Wake, 0, 0),
            (t + 5, 0, 0, Kind::Stop, NOBODY, stop),
            (t + 10, 1, 1, Kind::Run, NOBODY, 900),
            (t + 1000, 1, 0, Kind::Wake, 1, 0),
            (t + 1005, 1, 1, Kind::Stop, NOBODY, stop),
            (t + 1010, 0, 0, Kind::Run, NOBODY, 900),
        ]);
    }
    rows.extend([
        (41_500, 0, 1, Kind::Wake, 0, 0),
        (41_510, 1, 1, Kind::Run, NOBODY, 500),
        (91_500, 0, 0, Kind::Stop, NOBODY, dead),
        (91_510, 1, 1, Kind::Stop, NOBODY, dead),
    ]);
    rows
}

/// Figures of a replay by name, by column.
fn figures(folder: &Folder, more: &[&str]) -> Value {
    let mut line = vec!["replay", "sched", "made.parquet", "--machine", SMALL, "--json"];
    line.extend(more);
    let out = homenode(folder, &line);
    assert_eq!(out.status.code(), Some(0), "{more:?}: {}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn figure(all: &Value, name: &str) -> Vec<f64> {
    let figures = all["table"]["groups"][0]["figures"].as_array().unwrap();
    let row = figures.iter().find(|f| f["name"] == name).expect("a figure of that name");
    row["mean"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn on_the_machine_as_it_was_tasks_do_what_they_did() {
    let folder = Folder::new();
    write(&folder, &ping_pong(), |_| {});
    let all = figures(&folder, &[]);
    let columns = &all["table"]["columns"];
    assert_eq!(*columns, serde_json::json!(["recorded", "unmodified"]));
    let [elapsed, wakeups] = ["elapsed", "wake-ups"].map(|name| figure(&all, name));
    assert!((elapsed[0] - 91.51).abs() < 0.001, "{elapsed:?}");
    assert!((elapsed[1] / elapsed[0] - 1.0).abs() < 0.02, "{elapsed:?}");
    // Who is there from the beginning has been woken by somebody, which the rows don't say.
    assert_eq!(wakeups[0] + 1.0, wakeups[1]);
    assert_eq!(all["caption"]["warnings"], serde_json::json!([]));
    // The same again is the same to the last digit.
    assert_eq!(all, figures(&folder, &["--jobs", "2"]));
}

#[test]
fn on_one_cpu_what_went_side_by_side_comes_one_after_the_other() {
    let folder = Folder::new();
    write(&folder, &ping_pong(), |_| {});
    let all = figures(&folder, &["--cpus", "1"]);
    let [elapsed, run, wait] = ["elapsed", "run", "wait"].map(|name| figure(&all, name));
    // 41.5 ms by turns as before, then twice 50 ms.
    assert!((elapsed[2] - 141.5).abs() < 2.0, "{elapsed:?}");
    assert!((run[2] / run[1] - 1.0).abs() < 0.02, "{run:?}");
    assert!(wait[2] > 45.0 && wait[1] < 5.0, "{wait:?}");
    // Beside a hog on the same CPU each has half of it, or less at a worse nice value.
    let hog = figure(&figures(&folder, &["--cpus", "0", "--hogs", "1"]), "elapsed")[2];
    assert!(hog > 170.0, "{hog}");
    let nice = ["--cpus", "0", "--hogs", "1", "--nice", "10"];
    let nicer = figure(&figures(&folder, &nice), "elapsed")[2];
    assert!(nicer > hog * 1.5, "{hog} {nicer}");
}

#[test]
fn columns_and_settings_are_those_of_other_commands() {
    let folder = Folder::new();
    write(&folder, &ping_pong(), |_| {});
    let columns = "scenario,scenario@4.15,scenario+recent_cpu=none";
    let all = figures(&folder, &["--columns", columns, "--perfetto", "p.json"]);
    assert_eq!(
        all["table"]["columns"],
        serde_json::json!([
            "recorded",
            "unmodified",
            "asked",
            "asked@4.15",
            "asked+recent_cpu=none"
        ])
    );
    let trace: Value = serde_json::from_str(&folder.read("p.json")).expect("JSON");
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|e| e["ph"] == "X" && e["name"] == "t1 11"), "the tasks' names");
    for (more, said) in [
        (&["--columns", "homenode"][..], "it is about memory"),
        (&["--set", "no_such_knob=1"], "no_such_knob"),
        (&["--cpus", "99"], "has no CPU 99"),
        (&["--keep-groups", "1/2"], "--keep-groups: the recording has 1 group"),
        (&["--nice", "30"], "30"),
    ] {
        let mut line = vec!["replay", "sched", "made.parquet", "--machine", SMALL];
        line.extend(more);
        let out = homenode(&folder, &line);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{more:?}: {err}");
        assert!(err.contains(said), "{more:?}: {err}");
    }
}

#[test]
fn what_cannot_have_been_so_ends_with_1() {
    let folder = Folder::new();
    // It was ready for a second, and nobody who is recorded had the CPU.
    let rows = [
        (0, 0, 0, Kind::Run, NOBODY, 0),
        (1000, 0, 0, Kind::Stop, NOBODY, Stop::Preempted.to_arg()),
        (1_001_000, 0, 0, Kind::Run, NOBODY, 0),
        (1_002_000, 0, 0, Kind::Stop, NOBODY, Stop::Dead.to_arg()),
    ];
    write(&folder, &rows, |_| {});
    let line = ["replay", "sched", "made.parquet", "--machine", SMALL];
    let out = homenode(&folder, &line);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("can't replay it as it ran") && err.contains("--force"), "{err}");
    let out = homenode(&folder, &[&line[..], &["--force"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("the replay takes"), "{}", text(&out.stdout));
}

#[test]
fn lost_events_and_cut_files_are_said() {
    let folder = Folder::new();
    let mut rows = ping_pong();
    // A wake-up and the run behind it are missing.
    rows.drain(60..62);
    rows.insert(60, (rows[60].0, 0, NOBODY, Kind::Lost, NOBODY, 2));
    let path = write(&folder, &rows, |h| {
        h.lost = 2;
        h.complete = false;
    });
    let all = figures(&folder, &["--force"]);
    let warnings = all["caption"]["warnings"].to_string();
    assert!(warnings.contains("2 events were lost"), "{warnings}");
    assert!(warnings.contains("rows in between are missing"), "{warnings}");
    assert!(warnings.contains("the recording is not complete"), "{warnings}");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let out = homenode(&folder, &["replay", "sched", "made.parquet", "--machine", SMALL]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("is not a whole recording"), "{}", text(&out.stderr));
    let mut bad = whole.clone();
    bad[60] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let out = homenode(&folder, &["replay", "sched", "made.parquet", "--machine", SMALL]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}

#[test]
fn a_simulated_run_is_a_trace_too() {
    let folder = Folder::new();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/server.toml");
    let out = homenode(&folder, &["sim", scenario, "--perfetto", "p.json", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let trace: Value = serde_json::from_str(&folder.read("p.json")).expect("JSON");
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &str| events.iter().filter(|e| e["cat"] == *cat).count();
    assert!(of("cpu") > 10 && of("task") > of("cpu"), "{} {}", of("cpu"), of("task"));
    assert!(of("wake") > 0, "somebody wakes somebody");
}
