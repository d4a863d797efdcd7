//! `homenode stats` as its users meet it: files of real kernels, files with something wrong, and
//! its manual page.

#[path = "support/attached.rs"]
mod attached;
#[path = "support/man.rs"]
mod man;

use attached::{may_look, programs_of};
use expect_test::{Expect, expect};
use homenode_fixtures::{Folder, Leashed, until};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const REAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/schedstats");
const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small.toml");

fn run_with(line: &str, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .arg("stats")
        .args(line.split_whitespace().map(|w| w.replace("REAL", REAL)))
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its arguments reads nothing.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn run(line: &str) -> Output {
    run_with(line, b"")
}

fn told(out: &Output) -> String {
    let both = [&out.stdout[..], &out.stderr[..]].concat();
    let code = out.status.code().expect("no signal");
    format!("exit {code}\n{}", String::from_utf8_lossy(&both)).replace(REAL, "REAL")
}

fn check(line: &str, expected: Expect) {
    expected.assert_eq(&told(&run(line)));
}

fn json(line: &str) -> serde_json::Value {
    let out = run(line);
    assert!(out.status.success(), "{}", told(&out));
    serde_json::from_slice(&out.stdout).expect("one JSON object")
}

// specs/schedstats.md#views
#[test]
fn cpus_and_domains_between_two_readings() {
    check(
        "REAL/7.3.schedstat.idle REAL/7.3.schedstat.busy",
        expect![[r#"
        exit 0
        /proc/schedstat, version 17; between two readings, 2047 ticks apart

              schedule  switches  woken      woken        run      wait  timeslices     wait by
                 calls   to idle   here  elsewhere       [ms]      [ms]              slice [us]
        cpu0       981         0    233         74   8178.303  7784.333         844      9223.1
        cpu1       734       345    172         24   1969.484   174.460         379       460.3
        cpu2        48         0     17        107   8106.086   111.301          33      3372.8
        cpu3       890       400    225         30    840.899   306.529         466       657.8
        cpu4        42         1     13         53   7848.027    39.341          28      1405.0
        cpu5       272       111     47         38    843.387   186.335         132      1411.6
        cpu6       693       186    157        128   3466.804   752.426         350      2149.8
        cpu7        28         0      9         28   7766.391    14.588          19       767.8
        all       3688      1043    873        482  39019.382  9369.312        2251      4162.3

                                     pulls       balanced        failed        tasks    of them
                                     tried                                    gained  cache-hot
        domain0 SMT 0-1 busy           126  126 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 0-1 idle            26   26 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 0-1 newly idle      92   91 ( 98.9 %)   1 (  1.1 %)  0 (  0.0 %)          0
        domain0 SMT 2-3 busy           129  129 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 2-3 idle           322  322 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 2-3 newly idle     137  137 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 4-5 busy           130  130 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 4-5 idle           469  468 ( 99.8 %)   1 (  0.2 %)  0 (  0.0 %)          0
        domain0 SMT 4-5 newly idle      42   42 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 6-7 busy           179  179 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain0 SMT 6-7 idle           216  215 ( 99.5 %)   1 (  0.5 %)  0 (  0.0 %)          0
        domain0 SMT 6-7 newly idle      73   73 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain1 MC 0-3 busy            104  103 ( 99.0 %)   1 (  1.0 %)  0 (  0.0 %)          0
        domain1 MC 0-3 idle            340  336 ( 98.8 %)   4 (  1.2 %)  0 (  0.0 %)          0
        domain1 MC 0-3 newly idle      213  201 ( 94.4 %)  10 (  4.7 %)  2 (  0.9 %)          0
        domain1 MC 4-7 busy            144  144 (100.0 %)   0 (  0.0 %)  0 (  0.0 %)          0
        domain1 MC 4-7 idle            647  637 ( 98.5 %)   8 (  1.2 %)  2 (  0.3 %)          0
        domain1 MC 4-7 newly idle      104  103 ( 99.0 %)   1 (  1.0 %)  0 (  0.0 %)          0
        domain2 NUMA 0-7 busy          152  151 ( 99.3 %)   1 (  0.7 %)  0 (  0.0 %)          0
        domain2 NUMA 0-7 idle          612  557 ( 91.0 %)  55 (  9.0 %)  0 (  0.0 %)          0
        domain2 NUMA 0-7 newly idle    358  330 ( 92.2 %)  28 (  7.8 %)  0 (  0.0 %)          0

                            active       failed        tasks   woken   moved
                          balances                    pushed  remote  affine
        domain0 SMT 0-1          0  0            0                66       0
        domain0 SMT 2-3          0  0            0                90       5
        domain0 SMT 4-5          0  0            0                39       2
        domain0 SMT 6-7          0  0            0                 1       0
        domain1 MC 0-3           0  0            0                76       1
        domain1 MC 4-7           0  0            0                21       0
        domain2 NUMA 0-7         0  0            0               189       0
    "#]],
    );
    let one = json("REAL/7.3.schedstat.busy --json");
    assert_eq!((&one["version"], &one["ticks"]), (&17.into(), &serde_json::Value::Null));
    let cpu0 = &one["cpus"][0];
    assert_eq!(cpu0["sched_count"], 988);
    let smt = &cpu0["domains"][0];
    assert_eq!((&smt["name"], &smt["cpus"]), (&"SMT".into(), &serde_json::json!([0, 1])));
    assert_eq!(smt["busy"]["lb_count"], 127);
    assert_eq!(smt["ttwu_wake_remote"], 66);
    assert!(
        smt["busy"].get("lb_imbalance").is_none() && !smt["busy"]["lb_imbalance_load"].is_null()
    );
    // The same counter of the older version stands in another place.
    let old = json("REAL/6.1.schedstat.busy --json");
    let domain = &old["cpus"][0]["domains"][0];
    assert!(domain.get("name").is_none() && !domain["idle"]["lb_imbalance"].is_null());
}

// specs/schedstats.md#views
#[test]
fn tasks() {
    check(
        "REAL/6.12.sched.on",
        expect![[r#"
        exit 0
        sh (213), 1 thread in its process

                      sum [ms]  count  mean [ms]  max [ms]
        run            778.664    117      6.655    25.896
        wait          1075.415    120      8.962    55.922
        sleep         6943.517      -          -   217.584
        block            0.000      -          -     0.000
        of it iowait     0.000      0          -         -

        switches                         117
          voluntary                       79 ( 67.5 %)
          involuntary                     38 ( 32.5 %)
        wake-ups                          78
          sync                             0 (  0.0 %)
          on the waker's CPU              78 (100.0 %)
          on another CPU                   0 (  0.0 %)
          changed its CPU                  0 (  0.0 %)
        asked for wake_affine              0
          chose the waker's CPU            0
        migrations                         1
          though cache-hot                 0
        not pulled: not allowed           74
        not pulled: running                0
        not pulled: cache-hot              0
    "#]],
    );
    check(
        "REAL/6.12.sched.off",
        expect![[r#"
            exit 0
            sleep (201), 1 thread in its process

                 sum [ms]  count  mean [ms]  max [ms]
            run    30.203      1     30.203         -

            switches                           1
              voluntary                        1 (100.0 %)
              involuntary                      0 (  0.0 %)
            migrations                         0

            note: the switch is off, so waits, sleeps and wake-ups are not counted; as root: sysctl
              kernel.sched_schedstats=1
        "#]],
    );
    check(
        "REAL/6.12.sched.on REAL/6.12.sched.again",
        expect![[r#"
        exit 0
        sh (213), 1 thread in its process

                      sum [ms]  count  mean [ms]  max [ms]
        run            393.461    124      3.173    25.896
        wait           149.960     22      6.816    55.922
        sleep         8856.802      -          -  7652.784
        block            0.000      -          -     0.000
        of it iowait     0.000      0          -         -

        switches                         124
          voluntary                      110 ( 88.7 %)
          involuntary                     14 ( 11.3 %)
        wake-ups                          18
          sync                             0 (  0.0 %)
          on the waker's CPU              18 (100.0 %)
          on another CPU                   0 (  0.0 %)
          changed its CPU                  0 (  0.0 %)
        asked for wake_affine              0
          chose the waker's CPU            0
        migrations                         0
          though cache-hot                 0
        not pulled: not allowed            7
        not pulled: running                0
        not pulled: cache-hot              0
    "#]],
    );
    check(
        "REAL/6.12.task",
        expect![[r#"
        exit 0
        run [ms]                      5044.789
        wait [ms]                     3767.956
        timeslices                         261
        wait by timeslice [us]         14436.6
    "#]],
    );
    let one = json("REAL/6.12.sched.on REAL/6.12.sched.again --json");
    assert_eq!((&one["file"], &one["switch_on"]), (&"sched".into(), &true.into()));
    assert_eq!(one["lines"]["sleep_max"], 7_652_784_214u64);
    assert_eq!(one["lines"]["wait_sum"], 1_225_375_544u64 - 1_075_415_262);
}

// specs/schedstats.md#views
#[test]
fn counters_that_went_back_and_a_switch_that_was_off() {
    let at = Folder::new();
    let text = |n: &str, time: &str, rest: &str| {
        format!("version 16\ntimestamp {time}\ncpu0 0 0 {n} 0 0 0 {rest}\n")
    };
    at.write("a", text("50", "1000", "1000000 2000000 4"));
    at.write("b", text("20", "1250", "5000000 4000000 8"));
    at.write("c", text("20", "1500", "9000000 4000000 9"));
    let line = |line: &str| line.replace("AT", &at.display().to_string());
    check(
        &line("AT/a AT/b"),
        expect![[r#"
        exit 0
        /proc/schedstat, version 16; between two readings, 250 ticks apart

              schedule  switches  woken      woken    run   wait  timeslices     wait by
                 calls   to idle   here  elsewhere   [ms]   [ms]              slice [us]
        cpu0         -         0      0          0  4.000  2.000           4       500.0
        all          -         0      0          0  4.000  2.000           4       500.0

        note: cpu0: went back, so its difference is not known: sched_count
    "#]],
    );
    check(
        &line("AT/b AT/c"),
        expect![[r#"
            exit 0
            /proc/schedstat, version 16; between two readings, 250 ticks apart

                  schedule  switches  woken      woken    run   wait  timeslices     wait by
                     calls   to idle   here  elsewhere   [ms]   [ms]              slice [us]
            cpu0         0         0      0          0  4.000  0.000           1         0.0
            all          0         0      0          0  4.000  0.000           1         0.0

            note: timeslices began without a call of schedule: the switch kernel.sched_schedstats was off, and
              only run, wait and timeslices count
        "#]],
    );
    let back = json(&line("AT/a AT/b --json"));
    assert!(back["cpus"][0]["sched_count"].is_null());
    assert_eq!(back["cpus"][0]["pcount"], 4);
    let out = run(&line("AT/b AT/a"));
    assert_eq!(out.status.code(), Some(2));
    assert!(told(&out).contains("the order is the earlier file first"), "{}", told(&out));
}

#[test]
fn standard_input_is_a_file() {
    let text = fs::read(format!("{REAL}/6.1.schedstat.busy")).expect("a file");
    let piped = run_with("-", &text);
    assert_eq!(piped.stdout, run("REAL/6.1.schedstat.busy").stdout);
    assert!(piped.status.success() && !piped.stdout.is_empty());
    let two = run_with("REAL/6.1.schedstat.idle -", &text);
    assert_eq!(two.stdout, run("REAL/6.1.schedstat.idle REAL/6.1.schedstat.busy").stdout);
    let out = told(&run_with("- -", &text));
    assert_eq!(out, "exit 2\nhomenode: standard input can be only one of the two files\n");
    // Cut anywhere it is refused, and the place is said.
    for cut in [1, 9, 60, text.len() / 2, text.len() - 1] {
        let out = run_with("-", &text[..cut]);
        assert_eq!(out.status.code(), Some(2), "cut at {cut}");
        assert!(told(&out).contains("homenode: standard input:"), "{}", told(&out));
    }
    // A name that is no text.
    let mut task = fs::read(format!("{REAL}/7.3.sched.on")).expect("a file");
    task[0] = 0xff;
    assert!(run_with("-", &task).status.success());
}

#[test]
fn bad_input_is_told_with_its_line() {
    check(
        "nowhere",
        expect![[r#"
        exit 2
        homenode: nowhere: cannot be read: No such file or directory (os error 2)
    "#]],
    );
    check(
        "",
        expect![[r#"
            exit 2
            error: the following required arguments were not provided:
              <FILE|--sim <SCENARIO.toml>|--pid <P>...|--cgroup <PATH>|--system|CMD>

            Usage: homenode stats <FILE|--sim <SCENARIO.toml>|--pid <P>...|--cgroup <PATH>|--system|CMD> [FILE2]

            For more information, try '--help'.
        "#]],
    );
    check(
        "REAL",
        expect![[r#"
        exit 2
        homenode: REAL: cannot be read: Is a directory (os error 21)
    "#]],
    );
    check(
        "REAL/6.12.sched.on REAL/6.12.task",
        expect![[r#"
        exit 2
        homenode: REAL/6.12.task: this is /proc/PID/schedstat, the other is /proc/PID/sched: two readings of one file have a difference
    "#]],
    );
    check(
        "REAL/6.12.schedstat.idle REAL/7.3.schedstat.busy",
        expect![[r#"
        exit 2
        homenode: REAL/7.3.schedstat.busy: version 17 can't be compared with version 16: these are two kernels
    "#]],
    );
    check(
        "REAL/6.12.sched.on REAL/6.12.sched.off",
        expect![[r#"
        exit 2
        homenode: REAL/6.12.sched.off: this is of PID 201, the other of PID 213: two tasks have no difference
    "#]],
    );
    let at = Folder::new();
    let good = fs::read_to_string(format!("{REAL}/6.12.schedstat.busy")).expect("a file");
    at.write("bad", good.replacen("domain1 0f", "domain1 1ff", 1));
    let out = told(&run(&format!("{}/bad", at.display())));
    let out = out.replace(&at.display().to_string(), "AT");
    expect![[r#"
        exit 2
        homenode: AT/bad:5: a mask for 12 CPUs, where those before are for 8
    "#]]
    .assert_eq(&out);
}

/// A run that may not take long, nor more than a GiB of address space.
fn run_bounded(line: &str) -> String {
    let child = Command::new("timeout")
        .args(["60", "prlimit", "--as=1073741824", env!("CARGO_BIN_EXE_homenode"), "stats"])
        .args(line.split_whitespace())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output();
    told(&child.expect("timeout and prlimit run"))
}

// specs/schedstats.md#strict
#[test]
fn the_oddest_files_are_refused_with_their_line_in_bounded_memory() {
    let at = Folder::new();
    let good = fs::read_to_string(format!("{REAL}/7.3.schedstat.busy")).expect("a file");
    let task = fs::read_to_string(format!("{REAL}/6.12.sched.on")).expect("a file");
    let from = |mark: &str| good.find(mark).expect("it is there");
    let behind = 1 + good[from("cpu3 ")..].find('\n').expect("a line");
    let cases: &[(&str, Vec<u8>)] = &[
        ("empty", Vec::new()),
        ("newline", b"\n".to_vec()),
        ("crlf", good.replace('\n', "\r\n").into()),
        ("crlf-of-a-task", task.replace('\n', "\r\n").into()),
        ("crlf-in-one-line", good.replacen("\ncpu3", "\r\ncpu3", 1).into()),
        ("binary", (1..=255).rev().cycle().take(5000).collect()),
        ("nul", good.replacen("cpu5 ", "cpu5\0", 1).into()),
        ("utf-16", good.bytes().flat_map(|b| [b, 0]).collect()),
        ("cut-in-a-cpu", good[..from("cpu3 ") + 12].into()),
        ("cut-behind-a-cpu", good[..from("cpu3 ") + behind].into()),
        ("cut-before-a-cpu", good[..from("cpu3 ")].into()),
        ("cpu-that-is-not-there", good.replacen("domain2 NUMA ff", "domain2 NUMA 1ff", 1).into()),
        ("cpu-twice", good.replacen("\ncpu4 ", "\ncpu3 ", 1).into()),
        ("domain-that-is-not-there", good.replacen("domain2 ", "domain7 ", 1).into()),
        ("domain-twice", good.replacen("domain1 ", "domain0 ", 1).into()),
        ("version-14", good.replacen("version 17", "version 14", 1).into()),
        ("version-18", good.replacen("version 17", "version 18", 1).into()),
        ("version-word", good.replacen("version 17", "version seventeen", 1).into()),
    ];
    let mut out = String::new();
    for (name, bytes) in cases {
        let path = at.join(name);
        fs::write(&path, bytes).expect("a file");
        out += &run_bounded(&path.display().to_string());
    }
    // A line of 1 GB, which takes no room on the disk; numbers without an end, and as many lines.
    let spaces = fs::File::create(at.join("one-line-of-1-gb")).expect("a file");
    (&spaces).write_all(good.as_bytes()).expect("room");
    let ones = vec![b'1'; 1 << 20];
    for _ in 0..3 {
        (&spaces).write_all(&ones).expect("room");
    }
    spaces.set_len(1_000_000_000).expect("room");
    let path = |name: &str| at.join(name).display().to_string();
    out += &run_bounded(&path("one-line-of-1-gb"));
    at.write("lines-without-an-end", "7\n".repeat(1 << 20));
    out += &run_bounded(&path("lines-without-an-end"));
    at.write("version-and-lines", format!("version 16\n{}", "7\n".repeat(8 << 20)));
    out += &run_bounded(&path("version-and-lines"));
    out += &run_bounded("/dev/zero");
    out += &run_bounded("/dev/null");
    fs::create_dir(at.join("folder")).expect("a folder");
    out += &run_bounded(&path("folder"));
    let out = out.replace(&at.display().to_string(), "AT");
    expect![[r#"
        exit 2
        homenode: AT/empty:1: the text is empty
        exit 2
        homenode: AT/newline:1: neither /proc/schedstat, which begins with `version`, nor /proc/PID/sched, which begins with the task's name, nor the three numbers of /proc/PID/schedstat
        exit 2
        homenode: AT/crlf:1: this line ends in CR LF, as on Windows, where the kernel prints LF alone; the text was changed on its way (dos2unix undoes that)
        exit 2
        homenode: AT/crlf-of-a-task:1: this line ends in CR LF, as on Windows, where the kernel prints LF alone; the text was changed on its way (dos2unix undoes that)
        exit 2
        homenode: AT/crlf-in-one-line:14: this line ends in CR LF, as on Windows, where the kernel prints LF alone; the text was changed on its way (dos2unix undoes that)
        exit 2
        homenode: AT/binary:1: neither /proc/schedstat, which begins with `version`, nor /proc/PID/sched, which begins with the task's name, nor the three numbers of /proc/PID/schedstat
        exit 2
        homenode: AT/nul:23: a NUL byte, which no text has (one of 16 bits a character has many); the kernel's files are ASCII
        exit 2
        homenode: AT/utf-16:1: a NUL byte, which no text has (one of 16 bits a character has many); the kernel's files are ASCII
        exit 2
        homenode: AT/cut-in-a-cpu:15: the text ends without a newline, so it is cut off here
        exit 2
        homenode: AT/cut-behind-a-cpu:5: domain1 of cpu0 reaches CPU 3, whose own domains don't reach back; the text is cut off, or CPUs came or went while it was read
        exit 2
        homenode: AT/cut-before-a-cpu:5: the mask of domain1 has CPU 3, and there is no line cpu3; the text is cut off, or CPUs came or went while it was read
        exit 2
        homenode: AT/cpu-that-is-not-there:6: a mask for 12 CPUs, where those before are for 8
        exit 2
        homenode: AT/cpu-twice:19: cpu3 comes behind cpu3
        exit 2
        homenode: AT/domain-that-is-not-there:6: domain7 of cpu0 is in the place of domain2
        exit 2
        homenode: AT/domain-twice:5: domain0 of cpu0 is in the place of domain1
        exit 2
        homenode: AT/version-14:1: version "14" is not known; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
        exit 2
        homenode: AT/version-18:1: version "18" is not known; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
        exit 2
        homenode: AT/version-word:1: version "seventeen" is not known; homenode reads 15 (Linux 6.1), 16 (6.12) and 17 (7.3)
        exit 2
        homenode: AT/one-line-of-1-gb:35: longer than 16384 bytes, which no line of the kernel's is
        exit 2
        homenode: AT/lines-without-an-end:557057: longer than 1 MiB, so it is not a task's file, and it doesn't begin with `version` as /proc/schedstat does
        exit 2
        homenode: AT/version-and-lines:2: "7" is not `timestamp N`
        exit 2
        homenode: /dev/zero:1: a NUL byte, which no text has (one of 16 bits a character has many); the kernel's files are ASCII
        exit 2
        homenode: /dev/null:1: the text is empty
        exit 2
        homenode: AT/folder: cannot be read: Is a directory (os error 21)
    "#]].assert_eq(&out);
}

// specs/schedstats.md#strict
#[test]
fn numbers_at_their_limits_are_shown() {
    let at = Folder::new();
    let most = u64::MAX;
    let cpu = |n: u32| format!("cpu{n} {0} 0 {0} {0} {0} {0} {most} {most} {most}\n", u32::MAX);
    at.write("most", format!("version 16\ntimestamp {most}\n{}{}", cpu(0), cpu(1)));
    let out = run(&format!("{}/most", at.display()));
    expect![[r#"
        exit 0
        /proc/schedstat, version 16; since boot

                schedule    switches       woken      woken                 run                wait            timeslices     wait by
                   calls     to idle        here  elsewhere                [ms]                [ms]                        slice [us]
        cpu0  4294967295  4294967295  4294967295          0  18446744073709.551  18446744073709.551  18446744073709551615         0.0
        cpu1  4294967295  4294967295  4294967295          0  18446744073709.551  18446744073709.551  18446744073709551615         0.0
        all   8589934590  8589934590  8589934590          0  18446744073709.551  18446744073709.551  18446744073709551615         0.0
    "#]].assert_eq(&told(&out));
}

#[test]
fn a_task_may_have_any_name() {
    let task = fs::read_to_string(format!("{REAL}/6.12.sched.on")).expect("a file");
    let shown = |name: &[u8]| {
        let rest = task.split_once(" (").expect("a PID").1;
        let out = run_with("-", &[name, b" (", rest.as_bytes()].concat());
        told(&out).lines().take(2).collect::<Vec<_>>().join(" / ")
    };
    let names: &[&[u8]] =
        &[b"version 16", b"1 2 3", b"a\nb", b"a\r\nb", b"\xff\xfe", b"", b"x (7, #threads: 9)"];
    let out: String = names.iter().map(|n| shown(n) + "\n").collect();
    expect![[r#"
        exit 0 / version 16 (213), 1 thread in its process
        exit 0 / 1 2 3 (213), 1 thread in its process
        exit 0 / a?b (213), 1 thread in its process
        exit 0 / a??b (213), 1 thread in its process
        exit 0 / �� (213), 1 thread in its process
        exit 0 /  (213), 1 thread in its process
        exit 0 / x (7, #threads: 9) (213), 1 thread in its process
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_file_that_may_not_be_read() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let at = Folder::new();
    at.write("secret", "1 2 3\n");
    let path = at.join("secret");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("it is ours");
    // Root may read everything, so somebody else has to run it, who may not see the build's folder.
    let root = fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
    let mut program = std::path::PathBuf::from(env!("CARGO_BIN_EXE_homenode"));
    if root {
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let copy = at.join("homenode");
        fs::copy(&program, &copy).expect("room");
        program = copy;
    }
    let mut command = Command::new(program);
    command.arg("stats").arg(&path).stdin(Stdio::null());
    if root {
        command.uid(65_534);
    }
    let out = told(&command.output().expect("it runs"));
    let out = out.replace(&at.display().to_string(), "AT");
    expect![[r#"
        exit 2
        homenode: AT/secret: cannot be read: Permission denied (os error 13)
    "#]]
    .assert_eq(&out);
}

/// Who waits for a pipe says so, and goes on as soon as somebody writes.
#[test]
fn a_fifo_that_nobody_writes() {
    use std::io::{BufRead, BufReader, Read};
    let at = Folder::new();
    let path = at.join("fifo");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    let fifo = path.display().to_string();
    for args in [vec!["stats", &fifo], vec!["stats", "--sim", &fifo]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        err.read_line(&mut said).expect("a line");
        assert_eq!(
            said.replace(&fifo, "FIFO"),
            "homenode: FIFO: waiting for somebody who writes into this FIFO and closes it; Ctrl-C \
             ends\n"
        );
        fs::write(&path, "1 2\n").expect("somebody reads");
        let mut rest = String::new();
        err.read_to_string(&mut rest).expect("its end");
        assert_eq!(child.wait().expect("it ends").code(), Some(2));
        let wrong = if args.len() == 2 { "2 numbers in place of 3" } else { "not TOML" };
        assert!(rest.starts_with(&format!("homenode: {fifo}:1")) && rest.contains(wrong), "{rest}");
    }
    // As a shell's <(…) has it: bytes are there at once, so there is nothing to say.
    let writer = std::thread::spawn({
        let path = path.clone();
        move || fs::write(path, "5 6 7\n")
    });
    let out = told(&run(&fifo));
    writer.join().expect("no panic").expect("somebody read");
    assert!(out.starts_with("exit 0\nrun [ms]"), "{out}");
}

#[test]
fn a_scenario_with_something_wrong() {
    let at = Folder::new();
    at.write("box.toml", fs::read(SMALL).expect("a machine"));
    let head = "name = \"x\"\nabout = \"y\"\nmachine = \"box.toml\"\nduration = \"10ms\"\n";
    let one = |process: &str| format!("{head}[[process]]\nname = \"a\"\n{process}\n");
    let cases = [
        ("empty", String::new()),
        ("no-toml", "version 17\ntimestamp 4294892546\n".into()),
        ("unknown-key", one("threads = 1\nstepp = []\nstep = []")),
        ("no-machine", one("threads = 1\nstep = [{ do = \"barrier\" }]").replace("box.", "boxes.")),
        (
            "deadlock",
            format!(
                "{head}[[channel]]\nname = \"l\"\nkind = \"mutex\"\n[[process]]\nname = \"a\"\nthreads = 1\n\
             step = [{{ do = \"lock\", channel = \"l\" }}, {{ do = \"lock\", channel = \"l\" }},\
                 {{ do = \"unlock\", channel = \"l\" }}]\n"
            ),
        ),
    ];
    let mut out = String::new();
    for (name, text) in &cases {
        at.write(name, text);
        out += &run_bounded(&format!("--sim {}/{name}", at.display()));
    }
    for args in [
        "--sim /dev/zero",
        "--sim AT",
        "--sim AT/nowhere",
        "--sim AT/empty --task a",
        "--sim AT/empty AT/empty",
        "--task a AT/empty",
    ] {
        out += &run_bounded(&args.replace("AT", &at.display().to_string()));
    }
    let good = one("threads = 1\nstep = [{ do = \"compute\", time = \"1ms\" }]");
    at.write("good", good);
    out += &run_bounded(&format!("--sim {}/good --task b", at.display()));
    let out = out.replace(&at.display().to_string(), "AT");
    expect![[r#"
        exit 2
        homenode: AT/empty:1:1: the key "process" is missing
        exit 2
        homenode: AT/no-toml:1:9: not TOML: expected `.`, `=`
        exit 2
        homenode: AT/unknown-key:8:1: process[0].stepp: unknown key; did you mean "step"?
        exit 2
        homenode: AT/boxes.toml: cannot be read: No such file or directory (os error 2)
        exit 2
        homenode: AT/deadlock: all tasks wait for one another, and nobody can go on:
          in a ring: a (PID 1001) for a (PID 1001)
          a (PID 1001) waits for the mutex "l", which a (PID 1001) has
        exit 2
        homenode: /dev/zero: longer than 64 MiB; machines and scenarios are TOML files of a few KiB
        exit 2
        homenode: AT: cannot be read: Is a directory (os error 21)
        exit 2
        homenode: AT/nowhere: cannot be read: No such file or directory (os error 2)
        exit 2
        homenode: AT/empty:1:1: the key "process" is missing
        exit 2
        error: the argument '--sim <SCENARIO.toml>' cannot be used with '[FILE]'

        Usage: homenode stats <FILE|--sim <SCENARIO.toml>|--pid <P>...|--cgroup <PATH>|--system|CMD> [FILE2]

        For more information, try '--help'.
        exit 2
        homenode: AT/empty:1: the text is empty
        exit 2
        homenode: AT/good: --task b: there is no such process; there are a
    "#]]
    .assert_eq(&out);
}

#[test]
fn the_manual_page_has_every_option() {
    let page = man::page("homenode-stats.1");
    let out = run("--help");
    let help = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(help.contains("Example:\n  homenode stats"), "{help}");
    let begins: String = help
        .lines()
        .filter(|l| l.trim_start().starts_with('-'))
        .map(|l| format!(" {}\n", l.trim_start().trim_start_matches("-h, ")))
        .collect();
    let mut real = man::options(&begins, " --");
    real.remove("help");
    assert_eq!(real, man::options(&page, "Fl -"));
    for example in help.lines().skip_while(|l| *l != "Example:").skip(1) {
        assert!(page.contains(&format!(".Dl {}", example.trim())), "{example}");
    }
}

// ── Live ───────────────────────────────────────────────────────────────────────

/// `homenode stats` with these arguments; what it told of its look as JSON.
fn look(args: &[&str]) -> serde_json::Value {
    let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["stats", "--json"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    assert!(out.status.success(), "{}", told(&out));
    let both = [&out.stdout[..], &out.stderr[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    let line = text.lines().find(|l| l.starts_with('{')).expect("one JSON object");
    serde_json::from_str(line).expect("JSON")
}

/// The sum of a count over all tasks of a name.
fn count_of(look: &serde_json::Value, comm: &str, name: &str) -> u64 {
    let tasks = look["tasks"].as_array().expect("tasks");
    tasks.iter().filter(|t| t["comm"] == comm).filter_map(|t| t[name].as_u64()).sum()
}

// specs/schedstats.md#live
#[test]
fn a_program_is_looked_at_from_its_first_moment_to_its_last() {
    if !may_look() {
        return;
    }
    let look = look(&["--why", "--", "sleep", "0.3"]);
    let (slept, run) = (count_of(&look, "sleep", "sleep_ns"), count_of(&look, "sleep", "run_ns"));
    assert!(slept >= 300_000_000, "{look}");
    assert!(run > 0 && run < slept, "{look}");
    assert_eq!(look["lost_tasks"], 0);
    let why = &look["tasks"][0]["why"]["by_reason"];
    let reasons: u64 = why.as_object().expect("reasons").values().filter_map(|v| v.as_u64()).sum();
    assert_eq!(reasons, count_of(&look, "sleep", "nr_wakeups"));
}

// specs/schedstats.md#live
#[test]
fn time_run_is_what_the_kernel_says() {
    if !may_look() {
        return;
    }
    // A shell that computes, and says at its end what it took by the kernel's own account.
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat /proc/$$/stat >&1";
    let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["stats", "--json", "--", "sh", "-c", script])
        .output()
        .expect("the command runs");
    assert!(out.status.success(), "{}", told(&out));
    let stat = String::from_utf8_lossy(&out.stdout).into_owned();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = [12, 13].iter().map(|i| fields[*i].parse::<u64>().expect("ticks")).sum();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let line = text.lines().find(|l| l.starts_with('{')).expect("one JSON object");
    let look: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let run = count_of(&look, "sh", "run_ns");
    // A tick is 10 ms, and both its ends may be cut off.
    let kernel = ticks * 10_000_000;
    assert!(run.abs_diff(kernel) <= 30_000_000 + kernel / 10, "{run} against {kernel}: {look}");
}

// specs/schedstats.md#live
#[test]
fn more_tasks_than_places_are_counted_as_lost_and_said() {
    if !may_look() {
        return;
    }
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait";
    let look = look(&["--tasks", "4", "--", "sh", "-c", script]);
    assert!(look["lost_tasks"].as_u64() > Some(0), "{look}");
    assert!(look["lost_events"].as_u64() > Some(0), "{look}");
    assert!(look["tasks"].as_array().is_some_and(|t| t.len() <= 4), "{look}");
    assert!(look["notes"].to_string().contains("there was no place"), "{look}");
}

/// Whether the kernel has a program of that number, whoever holds it.
fn is_loaded(id: u32) -> bool {
    const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
    // The number, the next one, flags (bpf(2)).
    let attr = [id, 0, 0];
    // SAFETY: the structure outlives the call; a descriptor that comes is closed.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, &raw const attr, 12);
        fd >= 0 && libc::close(fd as libc::c_int) == 0
    }
}

// specs/schedstats.md#live
#[test]
fn nothing_stays_attached_after_sigkill() {
    if !may_look() {
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["stats", "--system"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the command runs");
    let mut waited = 0;
    while programs_of(child.id()).len() < 6 {
        assert!(waited < 600 && child.try_wait().expect("a child").is_none(), "it never attached");
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    let ids = programs_of(child.id());
    assert!(ids.len() >= 6 && ids.iter().all(|&id| is_loaded(id)), "{ids:?}");
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    // The kernel lets go of a program a moment after its last descriptor was closed.
    let mut left = ids;
    for _ in 0..200 {
        left.retain(|&id| is_loaded(id));
        if left.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(left, [0; 0], "programs that nobody holds any more are still loaded");
    assert_eq!(look(&["--", "true"])["lost_tasks"], 0);
}

// specs/schedstats.md#live
#[test]
fn what_is_missing_is_said_with_its_own_code() {
    if !may_look() {
        return;
    }
    let sh = |script: &str| {
        let script = script.replace("HOMENODE", env!("CARGO_BIN_EXE_homenode"));
        Command::new("sh").args(["-c", &script]).output().expect("a shell")
    };
    // Rights.
    let out = sh("setpriv --bounding-set=-all --inh-caps=-all --reuid=65534 --clear-groups \
                  HOMENODE stats --system --for 1s");
    assert!(told(&out).starts_with("exit 3\n") && told(&out).contains("CAP_BPF"), "{}", told(&out));
    // A PID namespace of its own.
    let out = sh("unshare --pid --fork --mount-proc HOMENODE stats --system --for 1s");
    assert!(told(&out).starts_with("exit 3\n"), "{}", told(&out));
    assert!(told(&out).contains("PID namespace"), "{}", told(&out));
    // Memory that may be locked says nothing of BPF's.
    let out = sh("ulimit -l 64; HOMENODE stats -- true");
    assert!(told(&out).starts_with("exit 0\n"), "{}", told(&out));
    // The kernel's own statistics, where it has none.
    if fs::metadata("/proc/sys/kernel/sched_schedstats").is_err() {
        let out = sh("HOMENODE stats --kernel --system --for 1s");
        assert!(told(&out).starts_with("exit 3\n"), "{}", told(&out));
        assert!(told(&out).contains("CONFIG_SCHEDSTATS"), "{}", told(&out));
    }
    // Who isn't there is no lack.
    let out = sh("HOMENODE stats --pid 4194304 --for 1s");
    assert_eq!(told(&out), "exit 2\nhomenode: no process 4194304\n");
    let out = sh("HOMENODE stats --cgroup nowhere --for 1s");
    assert!(told(&out).starts_with("exit 2\nhomenode: nowhere: no such cgroup"), "{}", told(&out));
}

/// The number on this machine of a process whose name is known, and its number in the namespace that it is in.
fn numbers_of(comm: &str) -> Option<(u32, u32)> {
    let files = fs::read_dir("/proc").ok()?.flatten();
    let texts = files.filter_map(|f| fs::read_to_string(f.path().join("status")).ok());
    let mut found = texts.filter(|t| t.lines().next() == Some(&format!("Name:\t{comm}")));
    let text = found.next()?;
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    let numbers: Vec<u32> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    Some((*numbers.first()?, *numbers.last()?))
}

/// Tasks of another PID namespace are told by the numbers that they have on the machine.
// specs/schedstats.md#live
#[test]
fn tasks_of_another_pid_namespace_are_seen() {
    if !may_look() {
        return;
    }
    let one = look(&["--", "unshare", "--pid", "--fork", "sleep", "0.1"]);
    assert!(count_of(&one, "sleep", "sleep_ns") >= 100_000_000, "{one}");
    // A process that is number 1 of its namespace, under a name that nobody else has.
    let at = Folder::new();
    let comm = format!("hn-ns{}", std::process::id());
    fs::copy("/bin/sleep", at.join(&comm)).expect("a copy");
    let script = format!("while :; do ./{comm} 0.01; done");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "sh", "-c", &script]).current_dir(&at);
    let outer = Leashed::start(&mut command);
    let (sleeper, _) = until("a process in the namespace", || numbers_of(&comm));
    let stat = until("its parent", || {
        // Each lives for 10 ms.
        let (sleeper, _) = numbers_of(&comm)?;
        fs::read_to_string(format!("/proc/{sleeper}/stat")).ok()
    });
    let shell = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let shell: u32 = shell.expect("its parent's number");
    assert!(sleeper > 1 && shell > 1);
    let seen = fs::read_to_string(format!("/proc/{shell}/status")).expect("it lives");
    assert!(seen.contains(&format!("NSpid:\t{shell}\t1\n")), "it is number 1 there: {seen}");
    // By its number on the machine it is found, and nobody else.
    let by_number = look(&["--pid", &shell.to_string(), "--for", "0.3s"]);
    let tasks = by_number["tasks"].as_array().expect("tasks");
    assert!(!tasks.is_empty() && tasks.iter().all(|t| t["tgid"] == shell), "{by_number}");
    assert!(count_of(&by_number, "sh", "nr_wakeups") > 5, "{by_number}");
    // By its number in the namespace the machine's first process is meant, which it isn't.
    let first = look(&["--pid", "1", "--for", "0.3s"]);
    let tasks = first["tasks"].as_array().expect("tasks");
    assert!(tasks.iter().all(|t| t["tgid"] == 1 && t["comm"] != "sh"), "{first}");
    // Of all that runs, its children come under their own numbers, and under no small one.
    let all = look(&["--system", "--for", "0.3s"]);
    let of = |comm: &str| -> Vec<u64> {
        let tasks = all["tasks"].as_array().expect("tasks").iter();
        tasks.filter(|t| t["comm"] == comm).filter_map(|t| t["pid"].as_u64()).collect()
    };
    assert!(of("sh").contains(&u64::from(shell)), "{all}");
    assert!(!of(&comm).is_empty() && of(&comm).iter().all(|pid| *pid > 100), "{all}");
    drop(outer);
}

// specs/schedstats.md#live
#[test]
fn what_looking_costs_is_told_with_its_interval() {
    if !may_look() {
        return;
    }
    let cost = look(&["--measure-cost", "--rounds", "2", "--", "sleep", "0.05"]);
    assert_eq!(cost["seconds_on"].as_array().map(Vec::len), Some(2));
    assert_eq!(cost["seconds_off_again"].as_array().map(Vec::len), Some(2));
    assert!(cost["on_percent"]["half_of_95_percent_interval"].is_number(), "{cost}");
    assert!(cost["ns_per_event"].as_f64() > Some(0.0), "{cost}");
}
