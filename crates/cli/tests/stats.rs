//! `homenode stats` as its users meet it: files of real kernels, files with something wrong, and
//! its manual page.

#[path = "support/man.rs"]
mod man;

use expect_test::{Expect, expect};
use homenode_fixtures::Folder;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const REAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/schedstats");

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
          <FILE>

        Usage: homenode stats <FILE> [FILE2]

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
