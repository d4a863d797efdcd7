//! `homenode merge drive` and `homenode restore` as their users meet them: against
//! a folder in place of the kernel's files, where anything can be made to happen, and
//! against this machine's own ksmd.
//!
//! Tests that let ksmd run take a lock that is one for the machine, see every knob
//! restored, and say 'skipped: no KSM' where there is none or no root.

#[path = "support/man.rs"]
mod man;

use expect_test::{Expect, expect};
use homenode_fixtures::ksm::Turn;
use homenode_fixtures::{Folder, held, program, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Not a test of its own: what the processes below run as.
#[test]
fn hold() {
    held::hold_if_asked();
}

/// Whether this kernel can merge a program as a whole.
fn can_launch() -> bool {
    // SAFETY: asks about this process; takes no pointer.
    let can = unsafe { libc::prctl(68, 0, 0, 0, 0) } >= 0;
    if !can {
        println!("skipped: no KSM for processes as a whole (Linux 6.4 has it)");
    }
    can
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(pid as i32, signal) };
}

// ── A folder in place of the kernel's ──────────────────────────────────────────

/// A machine in a folder: files of merging as plain files, a ksmd, memory, a boot.
struct Machine(Folder);

impl Machine {
    fn new() -> Self {
        let machine = Self(Folder::new());
        let knobs = [
            ("run", "0"),
            ("pages_to_scan", "100"),
            ("sleep_millisecs", "50"),
            ("merge_across_nodes", "1"),
            ("max_page_sharing", "256"),
            ("use_zero_pages", "0"),
            ("stable_node_chains_prune_millisecs", "2000"),
            ("pages_shared", "0"),
            ("pages_sharing", "0"),
            ("pages_unshared", "0"),
            ("pages_volatile", "0"),
            ("full_scans", "0"),
        ];
        knobs.iter().for_each(|(name, value)| machine.set(name, value));
        machine.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
        machine.write("proc/sys/kernel/random/boot_id", "4c1f7a52-5f5d-4a8e-9a5e-0d6f0c1b2a39\n");
        let zeros = "0 ".repeat(40);
        machine.write("proc/37/stat", &format!("37 (ksmd) S 2 0 0 0 -1 2097216 {zeros}\n"));
        machine
    }
    fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }
    fn set(&self, name: &str, value: &str) {
        self.write(&format!("sys/kernel/mm/ksm/{name}"), &format!("{value}\n"));
    }
    fn get(&self, name: &str) -> String {
        let path = self.0.join("sys/kernel/mm/ksm").join(name);
        fs::read_to_string(path).expect("it is there").trim().to_owned()
    }
    /// A registered process of this user.
    fn process(&self, pid: u32, user: u32) {
        let folder = format!("proc/{pid}");
        let zeros = "0 ".repeat(40);
        self.write(&format!("{folder}/stat"), &format!("{pid} (guest) S 1 {zeros}\n"));
        self.write(&format!("{folder}/comm"), "guest\n");
        let status =
            format!("Name: guest\nUid:\t{user}\t{user}\t{user}\t{user}\nRssAnon: 4096 kB\n");
        self.write(&format!("{folder}/status"), &status);
        let stat = "ksm_rmap_items 1000\nksm_zero_pages 0\nksm_merging_pages 400\nksm_process_profit 1574400\n";
        self.write(&format!("{folder}/ksm_stat"), stat);
    }
    /// All knobs, to see that none has changed.
    fn knobs(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = fs::read_dir(self.0.join("sys/kernel/mm/ksm"))
            .expect("it is there")
            .map(|e| e.expect("it is there").file_name().to_string_lossy().into_owned())
            .map(|name| (name.clone(), self.get(&name)))
            .collect();
        all.sort();
        all
    }
    fn journal(&self) -> PathBuf {
        self.0.join("run/homenode/ksm.journal")
    }
    fn command(&self, line: &str) -> Command {
        let (before, after) = line.split_once(" -- ").unwrap_or((line, ""));
        let mut words: Vec<String> = before.split_whitespace().map(str::to_owned).collect();
        words.extend(["--root".to_owned(), self.0.display().to_string()]);
        if !after.is_empty() {
            words.push("--".to_owned());
            words.extend(after.split_whitespace().map(str::to_owned));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.args(words).current_dir(&*self.0).stdin(Stdio::null());
        command
    }
    fn run(&self, line: &str) -> Output {
        self.command(line).output().expect("the command runs")
    }
    /// Exit code and everything that it prints.
    fn check(&self, line: &str, expected: Expect) {
        let out = self.run(line);
        let text = format!(
            "exit {}\n{}{}",
            out.status.code().expect("no signal"),
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        expected.assert_eq(&text.replace(&self.0.display().to_string(), "DIR"));
    }
    /// Starts driving a program that sleeps, and waits until ksmd would run.
    fn start(&self, more: &str) -> (Child, u32) {
        let line = format!("merge drive --act {more} -- sh program");
        self.write("program", "echo $$ > started\nexec sleep 100\n");
        let mut command = self.command(&line);
        let child = command.stderr(Stdio::null()).spawn().expect("the command runs");
        let started = self.0.join("started");
        let pid = || fs::read_to_string(&started).ok()?.trim().parse::<u32>().ok();
        (child, until("the program's start", pid))
    }
}

#[test]
fn what_does_not_go_together_is_said() {
    let m = Machine::new();
    let check = |line: &str, expected| m.check(line, expected);
    check(
        "merge drive --act",
        expect![[r#"
        exit 2
        homenode: --act needs the program to be merged, as in `homenode merge drive --act -- CMD`, or --registered for processes that are registered already
    "#]],
    );
    check(
        "merge drive --observe -- true",
        expect![[r#"
        exit 2
        homenode: only --act launches a program; leave `-- CMD` out, or name processes by --pid
    "#]],
    );
    check(
        "merge drive --observe --across-nodes 0",
        expect![[r#"
        exit 2
        homenode: --observe changes nothing; --across-nodes belongs to --act
    "#]],
    );
    let out = m.run(&format!("merge drive --act --pid {}", std::process::id()));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("--act has only that merged which it launches"), "{text}");
    assert_eq!(out.status.code(), Some(2));
    let out = m.run("merge drive --observe --act");
    assert_eq!(out.status.code(), Some(2));
    fs::remove_dir_all(m.0.join("sys")).expect("it is there");
    check(
        "merge drive --observe",
        expect![[r#"
        exit 3
        homenode: this kernel has no same-page merging: DIR/sys/kernel/mm/ksm/ is not there (it needs CONFIG_KSM)
    "#]],
    );
    check(
        "restore",
        expect![[r#"
        exit 0
        nothing to restore: there is no journal in DIR/run/homenode
    "#]],
    );
}

#[test]
fn an_old_kernel_is_observed_and_its_profit_computed() {
    let m = Machine::new();
    m.process(4711, 1000);
    m.set("pages_shared", "10");
    m.set("pages_sharing", "390");
    m.set("pages_unshared", "600");
    let before = m.knobs();
    m.check("merge drive --observe --for 100ms --interval 100ms", expect![[r#"
        exit 0
          time [s] run   shared  sharing unshared volatile     zero saved [MiB] profit [MiB]  visits/s ksmd [%] MiB/CPU s pages_to_scan
               0.0   0       10      390      600        0        0         1.5          1.5         -        -         -           100
               0.1   0       10      390      600        0        0         1.5          1.5         0      0.0         -           100

               PID  user  merging     zero    items profit [MiB] name
              4711  1000      400        0     1000          1.5 guest
    "#]]);
    let out = m.run("merge drive --observe --for 100ms --interval 100ms --json");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("an object")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[1]["general_profit"], 390 * 4096 - 1000 * 64);
    assert_eq!(lines[1]["general_profit_computed"], true);
    assert_eq!(lines[1]["ksm_zero_pages"], Value::Null);
    assert_eq!(lines[1]["processes"][0]["ksm_merging_pages"], 400);
    assert_eq!((m.knobs(), m.journal().exists()), (before, false));
}

#[test]
fn what_is_refused_changes_nothing() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    let before = m.knobs();
    m.check(
        "merge drive --act -- no-such-program-anywhere",
        expect![[r#"
        exit 2
        homenode: there is no program `no-such-program-anywhere` in PATH; nothing was changed
    "#]],
    );
    m.check("merge drive --act --registered", expect![[r#"
        exit 2
        homenode: no process is registered for merging, so there is nothing to drive; nothing was changed. Launch one: homenode merge drive --act -- CMD
    "#]]);
    m.check(
        "merge drive --act --advisor -- true",
        expect![[r#"
        exit 3
        homenode: this kernel has no advisor (Linux 6.8 has it); leave --advisor out
    "#]],
    );
    m.process(4711, 64055);
    m.process(4712, 64056);
    m.check("merge drive --act --registered", expect![[r#"
        exit 2
        homenode: ksmd merges all registered processes with each other, and they belong to different users (64055, 64056): each could find out by timing which pages the others have. Nothing was changed. --across-users takes that risk (homenode-merge(1), WHAT MERGING LEAKS)
    "#]]);
    assert_eq!((m.knobs(), m.journal().exists()), (before, false));
    m.set("run", "5");
    m.check("merge drive --act --across-users -- true", expect![[r#"
        exit 3
        homenode: memory is going offline (run has bit 2): a write to run would block until that is over; nothing was changed, try again later
    "#]]);
    m.set("run", "1");
    m.set("pages_shared", "5");
    m.set("pages_sharing", "1048576");
    let before = m.knobs();
    m.check("merge drive --act --across-users --across-nodes 0 -- true", expect![[r#"
        exit 3
        homenode: switching merge_across_nodes unmerges everything: 4096.0 MiB come back, and 512.0 MiB are to stay in reserve, but only 4096.0 MiB are available; nothing was changed
    "#]]);
    fs::remove_dir_all(m.0.join("proc/37")).expect("it is there");
    let out = m.run("merge drive --act --across-users -- true");
    assert!(String::from_utf8_lossy(&out.stderr).contains("no budget could be kept"));
    assert_eq!((m.knobs(), m.journal().exists()), (before, false));
}

#[test]
fn the_programs_code_is_passed_on_and_knobs_are_back() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    let before = m.knobs();
    m.write("seven", "cat sys/kernel/mm/ksm/run sys/kernel/mm/ksm/pages_to_scan; exit 7\n");
    let out = m.run("merge drive --act --cpu-budget 10 -- sh seven");
    assert_eq!(out.status.code(), Some(7), "{}", String::from_utf8_lossy(&out.stderr));
    // The files hold what was written, without a newline: 1 and 444.
    assert_eq!(String::from_utf8_lossy(&out.stdout), "1444");
    m.write("killed", "kill -9 $$\n");
    assert_eq!(m.run("merge drive --act -- sh killed").status.code(), Some(137));
    assert_eq!((m.knobs(), m.journal().exists()), (before.clone(), false));
    // An interpreter that is not there is found out late, and all is put back.
    program::script("#!/no/such/interpreter\n", &m.0.join("rubbish"));
    let out = m.run("merge drive --act -- ./rubbish");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        text.contains("`./rubbish` could not be started; the knobs are as they were"),
        "{text}"
    );
    assert_eq!((out.status.code(), m.knobs(), m.journal().exists()), (Some(2), before, false));
}

#[test]
fn what_is_registered_is_driven_for_a_time() {
    let m = Machine::new();
    m.process(4711, 64055);
    m.set("run", "1");
    let before = m.knobs();
    let out = m.run("merge drive --act --registered --for 200ms --interval 100ms --json");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines: Vec<Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("an object")).collect();
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert_eq!(lines[0]["pages_to_scan"], 210);
    assert_eq!(lines[0]["processes"][0]["user"], 64055);
    let end = lines.last().expect("it ends");
    assert_eq!(end["end"]["restored"].as_array().map(Vec::len), Some(2), "{text}");
    assert_eq!((m.knobs(), m.journal().exists()), (before, false));
}

#[test]
fn a_signal_goes_to_the_program_and_knobs_are_back() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    let before = m.knobs();
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGHUP, 129)] {
        let _ = fs::remove_file(m.0.join("started"));
        let (mut driver, _) = m.start("");
        assert_ne!(m.knobs(), before);
        kill(driver.id(), signal);
        assert_eq!(driver.wait().expect("it ends").code(), Some(code));
        assert_eq!((m.knobs(), m.journal().exists()), (before.clone(), false));
    }
}

#[test]
fn after_sigkill_restore_puts_all_back() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    let before = m.knobs();
    let (mut driver, program) = m.start("");
    let out = m.run("restore");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let sentence = format!("process {} is driving the kernel's merging already", driver.id());
    assert!(text.contains(&sentence) && out.status.code() == Some(3), "{text}");
    let out = m.run("merge drive --act -- true");
    assert_eq!(out.status.code(), Some(3), "another driver is at work");
    kill(driver.id(), libc::SIGKILL);
    driver.wait().expect("it ends");
    // The program lives on.
    assert!(Path::new(&format!("/proc/{program}")).exists());
    kill(program, libc::SIGKILL);
    assert_eq!((m.get("run").as_str(), m.journal().exists()), ("1", true));
    let out = m.run("merge drive --act -- true");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("`homenode restore` does that"), "{text}");
    // Somebody has set another sleep meanwhile.
    m.set("sleep_millisecs", "33");
    m.check(
        "restore",
        expect![[r#"
        exit 0
        put back: run 0, pages_to_scan 100
        sleep_millisecs is 33 now, which we did not write: left
    "#]],
    );
    m.set("sleep_millisecs", "50");
    assert_eq!(m.knobs(), before);
    m.check(
        "restore",
        expect![[r#"
        exit 0
        nothing to restore: there is no journal in DIR/run/homenode
    "#]],
    );
}

#[test]
fn another_user_who_joins_ends_the_driving_but_not_the_program() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    let before = m.knobs();
    let (mut driver, program) = m.start("--interval 100ms");
    assert_ne!(m.knobs(), before);
    // SAFETY: no arguments.
    m.process(4711, unsafe { libc::geteuid() } + 1);
    until("putting back", || (!m.journal().exists()).then_some(()));
    assert_eq!(m.knobs(), before);
    assert!(Path::new(&format!("/proc/{program}")).exists());
    kill(driver.id(), libc::SIGTERM);
    assert_eq!(driver.wait().expect("it ends").code(), Some(143));
}

#[test]
fn a_damaged_journal_says_what_to_do() {
    let m = Machine::new();
    m.write("run/homenode/ksm.journal", "homenode ksm 1\nboot x\nowner 1");
    let out = m.run("restore");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(3));
    assert!(text.contains("ksm.journal:3: it ends too early: this journal is damaged"), "{text}");
    assert!(m.journal().exists());
}

#[test]
fn an_advisor_is_switched_off_meanwhile() {
    if !can_launch() {
        return;
    }
    let m = Machine::new();
    m.set("advisor_mode", "none [scan-time]");
    m.set("advisor_max_cpu", "70");
    m.set("advisor_target_scan_time", "200");
    m.write("show", "cat sys/kernel/mm/ksm/advisor_mode\n");
    let out = m.run("merge drive --act -- sh show");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "none");
    assert!(String::from_utf8_lossy(&out.stderr).contains("advisor was on"), "{out:?}");
    assert_eq!(m.get("advisor_mode"), "scan-time");
    let out = m.run("merge drive --act --advisor --cpu-budget 5 -- sh show");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("10 % of a CPU at least") && out.status.code() == Some(2), "{text}");
}

// ── The manual page ────────────────────────────────────────────────────────────

#[test]
fn the_manual_page_has_every_option() {
    let page = man::page("homenode-merge.1");
    let mut real = BTreeSet::new();
    for line in ["merge drive --help", "merge estimate --help", "restore --help"] {
        let out = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(line.split(' '))
            .output()
            .expect("the command runs");
        real.extend(man::options(&String::from_utf8_lossy(&out.stdout), " --"));
    }
    real.remove("help");
    let told = man::options(&page, "Fl -");
    assert_eq!(real, told);
    assert!(page.contains(".Sh WHAT MERGING LEAKS"));
}

// ── This machine's ksmd ────────────────────────────────────────────────────────

/// `homenode merge drive --act` with this program as the one that is merged.
struct Driven {
    driver: Child,
    program: u32,
}

impl Driven {
    /// Waits until the program's memory is there.
    fn start(more: &[&str], plan: &str) -> Self {
        let own = std::env::current_exe().expect("our own path");
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.args(["merge", "drive", "--act", "--across-users", "--interval", "100ms"]);
        command.args(more).arg("--").arg(own);
        command.args(["--exact", "hold", "--nocapture", "--test-threads=1"]);
        command.env(held::PLAN, plan).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut driver = command.stderr(Stdio::null()).spawn().expect("the command runs");
        let mut lines = BufReader::new(driver.stdout.take().expect("it is piped")).lines();
        let ready = lines
            .find_map(|line| line.expect("it answers").strip_prefix("ready ").map(str::to_owned));
        let program = ready.and_then(|pid| pid.parse().ok()).expect("it says its number");
        Self { driver, program }
    }
    /// Ends the program's input, so that it ends, and the driver after it.
    fn finish(mut self) -> Option<i32> {
        drop(self.driver.stdin.take());
        self.driver.wait().expect("it ends").code()
    }
}

fn merging(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/ksm_stat")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("ksm_merging_pages "));
    line.and_then(|v| v.trim().parse().ok()).unwrap_or(0)
}

/// Knobs that driving touches.
fn knobs() -> Vec<String> {
    ["run", "pages_to_scan", "sleep_millisecs", "merge_across_nodes", "advisor_mode"]
        .iter()
        .map(|n| fs::read_to_string(format!("/sys/kernel/mm/ksm/{n}")).unwrap_or_default())
        .collect()
}

#[test]
fn ksmd_merges_what_is_launched_and_is_put_back_after_a_crash() {
    if !can_launch() {
        return;
    }
    let _turn = match Turn::take() {
        Ok(turn) => turn,
        Err(why) => return println!("skipped: {why}"),
    };
    let knob = |name: &str| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/ksm/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let before = knobs();
    let folder = Machine::new();
    let lines = folder.0.join("lines");
    let lines = lines.to_str().expect("a plain path");
    let budget = ["--cpu-budget", "90"];
    let more = [&budget[..], &["--json", "-o", lines, "--across-nodes", "0"]].concat();

    let driven = Driven::start(&more, "copies=3000/30");
    let pid = driven.program;
    let line = |text: &str| serde_json::from_str::<Value>(text).expect("an object");
    let told = || {
        let text = fs::read_to_string(lines).unwrap_or_default();
        // The last line may not be there as a whole.
        let whole = &text[..text.rfind('\n').unwrap_or(0)];
        whole.lines().map(line).filter_map(|l| l["pages_sharing"].as_u64()).max()
    };
    until("merging", || (merging(pid) >= 2500 && told() >= Some(2000)).then_some(()));
    assert_eq!(knob("merge_across_nodes"), "0");
    // Its input ends, so it does, and so does the driver.
    assert_eq!(driven.finish(), Some(0));
    assert_eq!(knobs(), before);
    let text = fs::read_to_string(lines).expect("lines were written");
    let lines: Vec<Value> = text.lines().map(line).collect();
    assert!(lines.iter().any(|l| l["end"]["failed"] == serde_json::json!([])), "{text}");

    // The same, but the driver is killed while pages are merged.
    let mut driven = Driven::start(&budget, "copies=3000/30");
    let pid = driven.program;
    until("merging", || (merging(pid) >= 2500).then_some(()));
    assert_ne!(knobs(), before);
    kill(driven.driver.id(), libc::SIGKILL);
    driven.driver.wait().expect("it ends");
    let there = || Path::new(&format!("/proc/{pid}")).exists();
    until("the program's end", || (!there()).then_some(()));
    assert_eq!(knob("run"), "1");
    let restore = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command.arg("restore").output().expect("the command runs")
    };
    let out = restore();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(knobs(), before);
    let again = String::from_utf8_lossy(&restore().stdout).into_owned();
    assert!(again.starts_with("nothing to restore"), "{again}");
}
