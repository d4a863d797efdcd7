use super::*;
use crate::TraceError;
use expect_test::{Expect, expect};
use homenode_core::sched::course::Step;
use homenode_fixtures::Folder;
use std::fmt::Write as _;

/// Rows of text, a line each: `TIME CPU TASK WHAT`, times in microseconds. WHAT is `run [IDLE]`, `stop KIND`,
/// `preempted`, `dead`, `woken [BY [CONTEXT]]`, `fork CHILD`, `nice N`, `allow BITS`, `lost N`.
fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let w: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| w.get(i).and_then(|t| t.parse::<u64>().ok());
        let us = number(4).unwrap_or(0) * 1000;
        let wait = |what: &str| {
            let what =
                Blocked::ALL.into_iter().find(|b| b.name() == what).expect("a kind of waiting");
            let disk = what == Blocked::Disk;
            Stop::Waits(Wait { what, uninterruptible: disk, iowait: disk }).to_arg()
        };
        let (kind, other, arg) = match w[3] {
            "run" => (Kind::Run, NOBODY, us),
            "stop" => (Kind::Stop, NOBODY, wait(w[4])),
            "preempted" => (Kind::Stop, NOBODY, Stop::Preempted.to_arg()),
            "dead" => (Kind::Stop, NOBODY, Stop::Dead.to_arg()),
            "woken" => (Kind::Wake, number(4).map_or(NOBODY, |n| n as u32), number(5).unwrap_or(0)),
            "fork" => (Kind::Fork, number(4).expect("a child") as u32, 0),
            "exec" => (Kind::Exec, NOBODY, 0),
            "exit" => (Kind::Exit, NOBODY, 0),
            "nice" => (Kind::Nice, NOBODY, w[4].parse::<i64>().expect("a value") as u64),
            "allow" => (Kind::Allow, NOBODY, number(4).expect("bits")),
            "lost" => (Kind::Lost, NOBODY, number(4).expect("a number")),
            // `put OBJECT BYTES LASTED`, and so for `get`; `join CHILD LASTED`.
            "put" | "get" => {
                let kind = if w[3] == "put" { Kind::Put } else { Kind::Get };
                let lasted = number(6).expect("how long") * 1000;
                let object = number(4).expect("an object") as u32;
                (kind, object, number(5).expect("bytes") | lasted << 32)
            }
            "join" => {
                let lasted = number(5).expect("how long") * 1000;
                (Kind::Join, number(4).expect("a child") as u32, lasted << 32)
            }
            other => panic!("no row {other}"),
        };
        let [time_ns, cpu, task] = [0, 1, 2].map(|i| number(i).expect("a number"));
        let (time_ns, cpu, task) = (time_ns * 1000, cpu as u32, task as u32);
        Row { kind, time_ns, cpu, task, other, arg }
    };
    text.lines().map(str::trim).filter(|l| !l.is_empty()).map(row).collect()
}

fn header(rows: &[Row]) -> Header {
    let most = rows
        .iter()
        .map(|r| {
            r.task.max(if r.other == NOBODY || matches!(r.kind, Kind::Put | Kind::Get) {
                0
            } else {
                r.other
            })
        })
        .max();
    let task = |n: u32| Task { tid: 100 + n, tgid: 100, name: format!("t{n}"), kernel: false };
    Header {
        version: VERSION,
        source: "bpf".into(),
        command: vec!["./t".into()],
        cpus: vec![0, 1],
        span_ns: rows.iter().map(|r| r.time_ns).max().unwrap_or(0),
        complete: true,
        contexts: true,
        tasks: (0..=most.unwrap_or(0)).map(task).collect(),
        ..Header::default()
    }
}

/// What tasks did, a line each.
fn told(text: &str, charged: &Charged) -> String {
    let rows = rows(text);
    let (course, found) = lives(&header(&rows), &rows, charged);
    let mut out = String::new();
    for (n, life) in course.lives.iter().enumerate() {
        write!(out, "{n}").unwrap();
        if let Some(by) = life.starter {
            write!(out, " by {by}").unwrap();
        }
        if life.nice != 0 {
            write!(out, " nice {}", life.nice).unwrap();
        }
        for step in &life.steps {
            let us = |ns: u64| ns as f64 / 1000.0;
            match step {
                Step::Run(ns) => write!(out, " · run {}", us(*ns)),
                Step::Await { wake, on } => write!(out, " · await {wake} ({})", on.what.name()),
                Step::Rest { ns, on } => write!(out, " · rest {} ({})", us(*ns), on.what.name()),
                Step::Wake { wake, sync } => {
                    write!(out, " · wake {wake}{}", if *sync { " sync" } else { "" })
                }
                Step::Put { object, bytes } => write!(out, " · put {object}: {bytes}"),
                Step::Get { object, bytes, by } => {
                    write!(out, " · get {object}: {bytes} of {by}")
                }
                Step::Join(child) => write!(out, " · join {child}"),
                Step::Fork(child) => write!(out, " · fork {child}"),
                Step::Exec => write!(out, " · exec"),
                Step::Nice(nice) => write!(out, " · nice {nice}"),
                Step::Allow(cpus) => write!(out, " · allow {cpus:?}"),
            }
            .unwrap();
        }
        out.push('\n');
    }
    let Found { causal, early, by_bytes, outside, unexplained, other_class } = found;
    if by_bytes > 0 {
        writeln!(out, "by bytes {by_bytes}").unwrap();
    }
    writeln!(out, "causal {causal}, early {early}, outside {outside}, unexplained {unexplained}, other class {other_class}").unwrap();
    out
}

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(&told(text, &Charged::default()));
}

#[test]
fn who_is_woken_by_a_task_waits_until_it_has_come_so_far() {
    check(
        "0 0 0 run
         10 0 0 fork 1
         11 1 1 run 5
         20 0 0 stop pipe
         30 1 1 woken 0
         31 1 0 woken 1
         32 0 0 run 12
         40 1 1 stop timer
         50 1 1 woken
         52 1 1 run 10
         60 1 1 dead
         70 0 0 dead",
        &expect![[r#"
            0 · run 10 · fork 1 · run 10 · await 0 (pipe) · run 38
            1 by 0 · run 20 · wake 0 sync · run 9 · rest 10 (timer) · run 8
            causal 1, early 0, outside 2, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn who_had_not_left_its_cpu_would_have_waited() {
    check(
        "0 0 0 run
         0 1 1 run
         20 1 0 woken 1
         25 0 0 preempted
         26 0 0 run
         30 1 1 dead
         40 0 0 dead",
        &expect![[r#"
            0 · run 20 · await 0 (other) · run 19
            1 · run 20 · wake 0 · run 10
            causal 1, early 1, outside 0, unexplained 0, other class 0
        "#]],
    );
    // The kernel has told of the wake-up a moment before the switch of who went to sleep.
    check(
        "0 0 0 run
         0 1 1 run
         20 1 0 woken 1
         21 0 0 stop futex
         24 0 0 run 3
         30 1 1 dead
         40 0 0 dead",
        &expect![[r#"
            0 · run 20 · await 0 (other) · run 17
            1 · run 20 · wake 0 · run 10
            causal 1, early 1, outside 0, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn an_interrupt_is_nobodys_wake_up_but_over_loopback() {
    check(
        "0 0 0 run
         5 0 0 stop disk
         5 0 1 run
         9 0 0 woken 1 2
         10 0 1 preempted
         10 0 0 run
         15 0 0 stop socket
         15 0 1 run
         18 0 0 woken 1 1
         20 0 1 dead
         20 0 0 run
         30 0 0 dead",
        &expect![[r#"
            0 · run 5 · rest 4 (disk) · run 5 · await 0 (socket) · run 10
            1 · rest 5 (other) · run 8 · wake 0 sync · run 2
            causal 1, early 0, outside 1, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn bytes_tell_who_depends_on_whom_where_nobody_sleeps() {
    // On one CPU: 0 writes and wakes 1, which takes the CPU, reads and writes back; 0 finds that there.
    check(
        "0 0 0 run
         1 0 0 fork 1
         2 0 0 stop timer
         2 0 1 run
         5 0 1 stop pipe
         6 0 0 woken
         7 0 0 run 2
         12 0 1 woken 0
         13 0 0 preempted
         13 0 1 run
         15 0 1 get 0 4 11
         19 0 1 put 1 8 2
         22 0 1 stop pipe
         22 0 0 run
         23 0 0 put 0 4 13
         27 0 0 get 1 8 2
         30 0 0 get 1 5 1
         33 0 0 woken 1
         35 0 0 dead",
        &expect![[r#"
            0 · run 1 · fork 1 · run 1 · rest 4 (timer) · run 5 · put 0: 4 · run 4 · get 1: 8 of 1 · run 10
            1 by 0 · run 2 · get 0: 4 of 0 · run 5 · put 1: 8 · run 5
            by bytes 1
            causal 1, early 0, outside 2, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn who_finds_a_child_that_has_ended_depends_on_it() {
    check(
        "0 0 0 run
         1 0 0 fork 1
         2 1 1 run 1
         6 1 1 dead
         9 0 0 join 1 2
         20 0 0 dead",
        &expect![[r#"
            0 · run 1 · fork 1 · run 6 · join 1 · run 13
            1 by 0 · run 4
            causal 0, early 0, outside 0, unexplained 0, other class 0
        "#]],
    );
}

// specs/record-sched.md#lives
#[test]
fn who_runs_another_program_is_looked_at_there() {
    check(
        "0 0 0 run
         1 0 0 fork 1
         2 1 1 run 1
         5 1 1 exec
         8 1 1 dead
         20 0 0 dead",
        &expect![[r#"
            0 · run 1 · fork 1 · run 19
            1 by 0 · run 3 · exec · run 3
            causal 0, early 0, outside 0, unexplained 0, other class 0
        "#]],
    );
}
#[test]
fn in_one_call_nobody_else_gets_the_cpu() {
    // A parent that lends its memory runs to its wait before the child does, and who ends is gone when its parent wakes.
    let text = "0 0 0 run
                10 0 0 fork 1
                16 0 0 stop child
                16 0 1 run
                20 0 0 woken 1
                30 0 1 preempted
                30 0 0 run
                40 0 0 stop child
                40 0 1 run
                50 0 1 exec
                90 0 1 exit
                95 0 0 woken 1
                99 0 1 dead
                99 0 0 run
                120 0 0 exit
                120 0 0 dead";
    check(
        text,
        &expect![[r#"
            0 · run 16 · fork 1 · await 0 (child) · run 10 · await 1 (child) · run 21
            1 by 0 · run 4 · wake 0 · run 20 · exec · run 49 · wake 1
            causal 2, early 0, outside 0, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn what_the_kernel_took_is_taken_off() {
    let charged = Charged {
        switch: 1000,
        from_idle: 3000,
        from_deep: 5000,
        deep_after: 100_000,
        wake: 500,
        wake_idle: 2000,
    };
    let text = "0 0 0 run
         0 1 1 run
         10 1 1 stop futex
         30 0 1 woken 0
         31 1 1 run 20
         50 0 0 preempted
         50 1 1 stop timer
         51 0 0 run
         60 0 0 dead
         250 1 1 woken
         252 1 1 run 201
         254 1 1 dead";
    expect![[r#"
        0 · run 29 · wake 0 · run 26
        1 · run 9 · await 0 (futex) · run 16 · rest 200 (timer)
        causal 1, early 0, outside 1, unexplained 0, other class 0
    "#]]
    .assert_eq(&told(text, &charged));
}

#[test]
fn who_was_there_before_and_stays_behind() {
    check(
        "10 0 0 woken
         12 0 0 run
         15 0 2 nice 5
         20 0 0 stop other
         20 0 2 run
         30 0 2 nice 10
         40 0 2 preempted
         45 0 1 preempted",
        &expect![[r#"
            0 · rest 10 (other) · run 8
            1 · run 45
            2 nice 5 · rest 20 (other) · run 10 · nice 10 · run 10
            causal 0, early 0, outside 1, unexplained 0, other class 0
        "#]],
    );
}

#[test]
fn where_rows_are_missing_nothing_is_made_up() {
    // The wake-up, a stop and a run are lost; a waker that was not seen running woke nobody.
    check(
        "0 0 0 run
         10 0 0 stop pipe
         12 0 0 lost 3
         30 0 0 run
         40 1 1 run
         50 1 1 run
         60 0 1 stop pipe
         70 1 1 woken 2
         80 0 1 run",
        &expect![[r#"
            0 · run 10 · rest 20 (pipe) · run 50
            1 · rest 40 (other) · run 20 · rest 10 (pipe)
            2
            causal 0, early 0, outside 1, unexplained 2, other class 0
        "#]],
    );
}

#[test]
fn time_is_counted_by_what_a_task_is_at() {
    let rows = rows(
        "0 0 0 run
         10 0 0 fork 1
         14 1 1 run 5
         20 0 0 stop pipe
         30 1 0 woken 1
         33 0 0 run 13
         40 1 1 preempted
         45 0 0 preempted
         45 0 1 run
         60 0 1 stop disk
         60 0 0 run
         64 0 1 woken
         70 0 0 dead
         70 0 1 run
         75 0 1 dead",
    );
    let tally = tally(&header(&rows), &rows);
    let mut out = format!("{} us, busy {:?}\n", tally.elapsed_ns() / 1000, tally.busy_ns);
    for t in &tally.tasks {
        let of = [t.elapsed_ns(), t.run_ns, t.wait_ns, t.sleep_ns, t.block_ns].map(|ns| ns / 1000);
        let n = (t.wakeups, t.migrations, t.voluntary, t.involuntary);
        writeln!(out, "{of:?} {n:?} {:?} {}", t.latencies, t.latency_ns(990)).unwrap();
        assert_eq!(of[0], of[1..].iter().sum::<u64>(), "each moment counts once");
    }
    expect![[r#"
        75 us, busy [62000, 26000]
        [70, 42, 18, 10, 0] (1, 0, 1, 1) [3000] 3000
        [65, 46, 15, 0, 4] (1, 1, 1, 1) [4000, 6000] 4000
    "#]]
    .assert_eq(&out);
}

// ── Files ──────────────────────────────────────────────────────────────────────

fn written(folder: &Folder, n: u64) -> std::path::PathBuf {
    let path = folder.join("a.parquet");
    let mut w = Writer::create(&path).expect("a file");
    let row = |i: u64| Row {
        kind: Kind::ALL[(i % 3) as usize],
        // Not in order, as from several CPUs.
        time_ns: i ^ 1,
        cpu: (i % 2) as u32,
        task: (i % 7) as u32,
        other: NOBODY,
        arg: i << 30,
    };
    for i in 0..n {
        w.push(row(i)).unwrap();
    }
    let tasks = vec![Task { name: "x".into(), ..Task::default() }; 7];
    let header = Header { version: VERSION, tasks, complete: true, ..Header::default() };
    w.finish(&header).unwrap();
    path
}

#[test]
fn a_file_has_its_rows_by_time() {
    let folder = Folder::new();
    let (header, rows) = load(written(&folder, 300_000)).expect("a whole file");
    assert_eq!((header.tasks.len(), rows.len()), (7, 300_000));
    assert!(rows.is_sorted_by_key(|r| r.time_ns));
    assert_eq!(rows[0].arg, 1 << 30);
}

#[test]
fn a_file_is_whole_at_any_moment() {
    let folder = Folder::new();
    let path = folder.join("a.parquet");
    let mut w = Writer::create(&path).unwrap();
    let row = rows("0 0 0 run")[0];
    w.push(row).unwrap();
    assert!(!path.exists(), "nothing is kept yet");
    let header = |complete| Header {
        version: VERSION,
        tasks: vec![Task::default()],
        complete,
        ..Header::default()
    };
    w.keep(&header(false)).unwrap();
    w.push(row).unwrap();
    let (kept, some) = load(&path).expect("what was kept is whole");
    assert_eq!((kept.complete, some.len()), (false, 1));
    w.finish(&header(true)).unwrap();
    assert_eq!(load(&path).unwrap().1.len(), 2);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn what_is_cut_or_damaged_or_another_is_an_error() {
    let folder = Folder::new();
    let path = written(&folder, 5000);
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let e = load(&path).unwrap_err();
        assert!(matches!(e, TraceError::NotARecording { .. }), "{cut} bytes: {e}");
    }
    let mut silent = 0;
    for at in (0..whole.len()).step_by(61) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        // What is in no checksum is words of the file's own: then all rows are as they were.
        if let Ok((_, rows)) = load(&path) {
            silent += 1;
            assert_eq!(rows.len(), 5000);
            assert_eq!(rows[1].arg, 0);
        }
    }
    assert!(silent * 61 * 20 < whole.len() * 3, "{silent} of {} passed", whole.len() / 61);
    let none = load(folder.join("none")).unwrap_err();
    assert!(matches!(none, TraceError::Open { .. }));
    // A recording of memory is another kind.
    let other = folder.join("other.parquet");
    let w = crate::Writer::create(&other).unwrap();
    drop(w);
    let odd = Header { version: 9, ..Header::default() };
    Writer::create(&other).unwrap().finish(&odd).unwrap();
    assert!(matches!(load(&other).unwrap_err(), TraceError::Version { found: 9, .. }));
    let mut w = Writer::create(&other).unwrap();
    w.push(rows("0 0 5 run")[0]).unwrap();
    w.finish(&Header { version: VERSION, ..Header::default() }).unwrap();
    assert!(load(&other).unwrap_err().to_string().contains("a row names task 5"));
}

// ── perf ───────────────────────────────────────────────────────────────────────

fn perf(text: &str) -> String {
    match parse_perf(text) {
        Err(e) => format!("{e}\n"),
        Ok((header, rows)) => {
            let mut out = String::new();
            for r in rows {
                let name = |t: u32| header.tasks.get(t as usize).map_or("-", |t| t.name.as_str());
                let (kind, ns) = (r.kind.name(), r.time_ns);
                let (task, other) = (name(r.task), name(r.other));
                writeln!(out, "{ns} {} {kind} {task} {other} {}", r.cpu, r.arg).unwrap();
            }
            out
        }
    }
}

#[test]
fn perfs_words_are_read_with_plugin_and_without() {
    let text = "# a comment
            make   811 [000]    55.100000000:       sched:sched_switch: prev_comm=make prev_pid=811 prev_prio=120 prev_state=S ==> next_comm=tmux: server next_pid=7 next_prio=120
    tmux: server     7 [000]    55.100050000: sched:sched_waking: comm=make pid=811 prio=120 target_cpu=001
    tmux: server     7 [000]    55.100051000: sched:sched_wakeup: comm=make pid=811 prio=120 target_cpu=001
         swapper     0 [001]    55.100060: sched:sched_switch: swapper/1:0 [120] R ==> make:811 [120]
            make   811 [001]    55.100070: sched:sched_process_fork: comm=make pid=811 child_comm=make child_pid=812
             :-1    -1 [001]    55.100072: sched:sched_stat_runtime: comm=make pid=9 runtime=1 [ns]
            make   811 [001]    55.100075: sched:sched_stat_runtime: comm=make pid=811 runtime=1 [ns]
            make   811 [001]    55.100080: sched:sched_switch: make:811 [120] D ==> kworker/0:1-x [y]:812 [120]

kworker/0:1-x [y]   812 [001]    55.100090: PERF_RECORD_LOST lost 12
kworker/0:1-x [y]   812 [001]    55.100095: sched:sched_process_exit: comm=kworker/0:1-x [y] pid=812 prio=120
kworker/0:1-x [y]   812 [001]    55.100099: sched:sched_switch: kworker/0:1-x [y]:812 [120] X ==> swapper/1:0 [120]
            make   811 [000]    55.100199: sched:sched_process_fork: comm=make pid=811 child_comm=make child_pid=812
";
    expect![[r#"
        0 0 stop make - 2
        0 0 run tmux: server - 0
        50000 0 wake make tmux: server 0
        60000 1 run make - 0
        70000 1 fork make kworker/0:1-x [y] 0
        80000 1 stop make - 6
        80000 1 run kworker/0:1-x [y] - 0
        90000 1 lost - - 12
        95000 1 exit kworker/0:1-x [y] - 0
        99000 1 stop kworker/0:1-x [y] - 1
        199000 0 fork make make 0
    "#]]
    .assert_eq(&perf(text));
}

#[test]
fn odd_text_of_perf_names_its_line() {
    for (text, expected) in [
        (
            "what is this\n",
            expect![[r#"
                line 1 of what perf script printed: it has no task, CPU, time and event: "what is this"
            "#]],
        ),
        (
            "\n sh 1 [000] 5.5: sched:sched_switch: sh:1 [120] S ==>\n",
            expect![[r#"
                line 2 of what perf script printed: a switch from whom to whom is not told: " sh 1 [000] 5.5: sched:sched_switch: sh:1 [120] S ==>"
            "#]],
        ),
        (
            " sh 1 [000] 5.5: sched:sched_switch: sh:1 [120] ? ==> a:2 [120]\n",
            expect![[r#"
                line 1 of what perf script printed: a switch without the state of who leaves: " sh 1 [000] 5.5: sched:sched_switch: sh:1 [120] ? ==> a:2 [120]"
            "#]],
        ),
        (
            " sh 1 [000] 5.x: sched:sched_switch: sh:1 [120] S ==> a:2 [120]\n",
            expect![[r#"
                line 1 of what perf script printed: it has no task, CPU, time and event: " sh 1 [000] 5.x: sched:sched_switch: sh:1 [120] S ==> a:2 [120]"
            "#]],
        ),
        (
            "",
            expect![[r#"
                line 1 of what perf script printed: there is no switch of a task in all of it: ""
            "#]],
        ),
    ] {
        expected.assert_eq(&perf(text));
    }
}

proptest::proptest! {
    /// Whatever rows say, lives are made of them, and each wake-up is awaited and given once.
    #[test]
    fn any_rows_make_lives(
        raw in proptest::collection::vec((0u8..13, 0u64..50, 0u32..3, 0u32..5, 0u32..6, 0u64..0x403), 0..200)
    ) {
        let mut all: Vec<Row> = raw
            .into_iter()
            .map(|(kind, t, cpu, task, other, arg)| Row {
                kind: Kind::ALL[usize::from(kind)],
                time_ns: t * 1000,
                cpu,
                task,
                other: if other == 5 { NOBODY } else { other },
                arg,
            })
            .collect();
        all.sort_by_key(|r| r.time_ns);
        let header = Header { tasks: vec![Task::default(); 5], span_ns: 50_000, cpus: vec![0, 1, 2], contexts: true, ..Header::default() };
        let charged = Charged { switch: 300, wake: 200, wake_idle: 900, ..Charged::default() };
        let (course, _) = lives(&header, &all, &charged);
        let mut given = vec![0; course.wakes as usize];
        let mut awaited = given.clone();
        let mut forked = [0; 5];
        let (mut there, mut taken) = ([0u64; 6], [0u64; 6]);
        for step in course.lives.iter().flat_map(|l| &l.steps) {
            match step {
                Step::Wake { wake, .. } => given[*wake as usize] += 1,
                Step::Await { wake, .. } => awaited[*wake as usize] += 1,
                Step::Fork(child) => forked[*child as usize] += 1,
                Step::Run(ns) => proptest::prop_assert!((1..=50_000).contains(ns)),
                Step::Rest { ns, .. } => proptest::prop_assert!(*ns <= 50_000),
                Step::Get { object, bytes, .. } => taken[*object as usize] += u64::from(*bytes),
                Step::Put { object, bytes } => there[*object as usize] += u64::from(*bytes),
                Step::Join(_) | Step::Exec | Step::Nice(_) | Step::Allow(_) => {}
            }
        }
        // What comes after a task's end is none of its life.
        let dead = |r: &Row| r.kind == Kind::Stop && r.arg & 3 == Stop::Dead.to_arg();
        let ends = all.iter().any(dead);
        proptest::prop_assert!(ends || there.iter().zip(&taken).all(|(there, taken)| there >= taken));
        proptest::prop_assert!(given.iter().chain(&awaited).all(|&n| n == 1));
        for (life, n) in course.lives.iter().zip(forked) {
            proptest::prop_assert_eq!(usize::from(life.starter.is_some()), n);
        }
        let tally = tally(&header, &all);
        proptest::prop_assert!(tally.tasks.iter().all(|t| t.run_ns + t.wait_ns + t.sleep_ns + t.block_ns <= 50_000));
    }
}
