//! `homenode observe` as its users meet it, on this machine: processes of ours, where their
//! memory is. Heat is a matter of guests and of the simulated machine.
//!
//! Source: specs/observe.md.

#[path = "support/man.rs"]
mod man;
use homenode_fixtures::{Folder, Leashed, program, until};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HOMENODE: &str = env!("CARGO_BIN_EXE_homenode");

fn run(line: &str) -> Output {
    Command::new(HOMENODE)
        .arg("observe")
        .args(line.split_whitespace())
        .output()
        .expect("the command runs")
}
fn err(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}
fn rows(out: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().map(|l| serde_json::from_str(l).expect("an object a line")).collect()
}
fn kill(pid: u32, signal: i32) {
    // SAFETY: a signal to a child of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// A process that does nothing, and ends with the test.
struct Idle(Leashed);

impl Idle {
    fn start() -> Self {
        let idle = Self(Leashed::start(Command::new("sleep").arg("100")));
        idle.named("sleep");
        idle
    }
    /// Waits until it is the program that it is to be.
    fn named(&self, comm: &str) {
        let path = format!("/proc/{}/comm", self.0.id());
        let is = || fs::read_to_string(&path).is_ok_and(|c| c.trim() == comm);
        until(&format!("exec of {comm}"), || is().then_some(()));
    }
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

#[test]
fn what_is_observed_can_be_advised_later() {
    let at = Folder::new();
    let idle = Idle::start();
    let path = at.join("idle.seen");
    let file = path.to_str().expect("UTF-8");
    let out = run(&format!("--pid {} --period 1s --for 2s --json --record {file}", idle.pid()));
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    assert!(err(&out).contains("idle.seen: "), "{}", err(&out));
    let out = Command::new(HOMENODE).args(["advise", "--seen", file, "--json"]).output();
    let out = out.expect("the command runs");
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    let advice: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert!(advice["nothing"].is_string() && advice["warnings"] == Value::from(Vec::<u8>::new()));
    assert!(advice["looked_seconds"].as_f64().is_some_and(|s| s >= 1.0), "{advice}");
    let out = run("--all --for 1s --record no/such/folder.seen");
    assert_eq!(out.status.code(), Some(2), "{}", err(&out));
}

/// Rows of a Parquet file, and how many groups they are in.
fn parquet(path: &Path) -> (Vec<String>, usize) {
    let file = SerializedFileReader::new(File::open(path).expect("it is there")).expect("whole");
    let rows = file.get_row_iter(None).expect("rows").map(|r| r.expect("a row").to_string());
    (rows.collect(), file.metadata().num_row_groups())
}

// specs/observe.md#observe
#[test]
fn a_process_has_a_row_a_period() {
    let idle = Idle::start();
    let line = format!("--pid {} --source residency --period 200ms --for 700ms --json", idle.pid());
    let out = run(&line);
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    let rows = rows(&out);
    assert!(rows.len() >= 2, "{rows:?}");
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["period"], i + 1);
        assert_eq!(row["pid"], idle.pid());
        assert_eq!(row["name"], "sleep");
        assert_eq!(row["gone"], false);
        assert_eq!((&row["source"], &row["heat"]), (&"residency".into(), &Value::Null));
        let resident = row["resident_bytes"].as_u64().expect("a size");
        assert!(resident >= 4096);
        let by_node = row["resident_bytes_by_node"].as_object().expect("our own may be asked");
        let sum: u64 = by_node.values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, resident);
        // Of the last one, which is cut short, there may be one word only.
        assert!(row["cpu_percent"].as_f64().is_none_or(|c| c < 50.0), "it sleeps: {row}");
    }
    let text = err(&out);
    assert!(text.contains("residency only: it was asked for"), "{text}");
    assert!(text.contains("disturbs nothing: page tables are read"), "{text}");
    assert!(text.contains(" % of one CPU ("), "what it cost: {text}");
}

#[test]
fn a_program_is_observed_with_its_children_until_it_ends() {
    let out = Command::new(HOMENODE)
        .args(["observe", "--json", "--source", "residency", "--period", "200ms", "--"])
        .args(["sh", "-c", "sleep 0.9; echo its own; exit 7"])
        .output()
        .expect("the command runs");
    assert_eq!(out.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "its own\n", "nothing else is in between");
    let text = err(&out);
    let names: BTreeSet<String> = text
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .filter_map(|r| r["name"].as_str().map(str::to_owned))
        .collect();
    assert!(names.contains("sh") && names.contains("sleep"), "{names:?} in {text}");
}

// The end may be noticed in the period after the one in which the last process went.
#[test]
fn no_table_is_empty_at_the_end() {
    for length in ["0.31", "0.4", "0.49"] {
        let out = Command::new(HOMENODE)
            .args(["observe", "--source", "residency", "--period", "100ms", "--"])
            .args(["sleep", length])
            .output()
            .expect("the command runs");
        let text = err(&out);
        let tables: Vec<&str> = text.split("period ").skip(1).collect();
        assert!(!tables.is_empty(), "{text}");
        let last = tables[tables.len() - 1].split("\nobserved").next().unwrap_or_default();
        assert!(last.lines().filter(|l| l.contains("sleep")).count() == 1, "{text}");
        assert!(text.contains(&format!("in {} periods", tables.len())), "{text}");
    }
}

#[test]
fn a_program_that_a_signal_ends_or_that_is_over_at_once_has_its_code() {
    for (program, code) in [("kill -9 $$", 137), ("exit 0", 0), ("exit 255", 255)] {
        let out = Command::new(HOMENODE)
            .args(["observe", "--source", "residency", "--", "sh", "-c", program])
            .output()
            .expect("the command runs");
        assert_eq!(out.status.code(), Some(code), "{program}: {}", err(&out));
    }
}

#[test]
fn it_ends_with_the_last_of_the_named() {
    let mut short = Command::new("sleep").arg("4").spawn().expect("something of ours");
    let line = format!("--pid {} --source residency --period 200ms", short.id());
    let out = run(&line);
    short.wait().expect("it has ended");
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("all of these processes have ended"), "{text}");
    assert!(text.contains("sleep (ended)") || text.contains("sh (ended)"), "{text}");
    assert!(text.contains("1 process, 1 ended"), "{text}");
}

#[test]
fn all_of_them_and_more_than_fit() {
    let _one = (Idle::start(), Idle::start());
    let out = run("--all --source residency --period 300ms --for 300ms --top 1");
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    assert!(text.contains(" more process"), "{text}");
    // This command is not among them.
    let command = Command::new(HOMENODE)
        .args(["observe", "--all", "--source", "residency", "--for", "300ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    let own = command.id();
    let rows = rows(&command.wait_with_output().expect("it ends"));
    assert!(rows.len() > 1 && rows.iter().all(|r| r["pid"] != own), "{own} in {rows:?}");
}

// A guest of libvirt: by its domain's name. Here a shell by another name, with a guest's
// arguments for a script that ignores them.
#[test]
fn a_guest_goes_by_its_domain() {
    let folder = Folder::new();
    let (qemu, script) = (folder.join("qemu-system-x86_64"), folder.join("script"));
    program::copied(Path::new("/bin/sh"), &qemu);
    fs::write(&script, "sleep 100 & wait\n").expect("a script");
    let mut command = Command::new(&qemu);
    // A group of its own, so that the sleep behind it ends with it.
    command.arg(&script).args(["-name", "guest=web,debug-threads=on"]).process_group(0);
    let guest = Idle(Leashed::start(&mut command));
    guest.named("qemu-system-x86");
    let line =
        format!("--pid {} --source residency --period 200ms --for 200ms --json", guest.pid());
    let out = run(&line);
    // SAFETY: a signal to a group that we made.
    unsafe { libc::kill(-(guest.pid() as i32), libc::SIGKILL) };
    let rows = rows(&out);
    assert_eq!(rows.first().map(|r| &r["name"]), Some(&"web".into()), "{rows:?} {}", err(&out));
}

// specs/observe.md#parquet
#[test]
fn a_file_is_whole_after_a_signal_and_after_a_crash() {
    let folder = Folder::new();
    let idle = Idle::start();
    for (signal, code) in [(libc::SIGINT, Some(0)), (libc::SIGTERM, Some(0)), (libc::SIGKILL, None)]
    {
        let path = folder.join(format!("{signal}.parquet"));
        let mut child = Command::new(HOMENODE)
            .args(["observe", "--source", "residency", "--period", "200ms", "--json"])
            .args(["--pid", &idle.pid().to_string(), "-o"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // When the third row is told, the file has been there since the first.
        assert_eq!(lines.by_ref().take(3).filter(|l| l.is_ok()).count(), 3);
        kill(child.id(), signal);
        let told = 3 + lines.count();
        assert_eq!(child.wait().expect("it ends").code(), code);
        let (rows, groups) = parquet(&path);
        assert!(rows[0].contains("name: \"sleep\""), "{rows:?}");
        match signal {
            libc::SIGKILL => assert_eq!((rows.len(), groups), (1, 1), "what was kept"),
            _ => assert_eq!((rows.len(), groups), (told, 2), "all of it"),
        }
    }
}

#[test]
fn what_is_not_there_is_said_before_anything_is_done() {
    let idle = Idle::start();
    let pid = idle.pid();
    let cases = [
        (String::new(), 2, "required arguments were not provided"),
        (format!("--pid {pid} --all"), 2, "cannot be used with"),
        (format!("--cgroup x --pid {pid}"), 2, "cannot be used with"),
        (format!("--pid {pid} -- true"), 2, "cannot be used with"),
        ("--for 1s -- true".to_owned(), 2, "cannot be used with"),
        ("--pid 0".to_owned(), 2, "0 is not in 1.."),
        ("--pid 1073741824".to_owned(), 2, "there is no process 1073741824"),
        ("--cgroup no/such".to_owned(), 2, "no/such: no cgroup"),
        (format!("--pid {pid} --period 99ms"), 2, "a period is 100ms at least"),
        (format!("--pid {pid} --period 5"), 2, "\"5\" is no time"),
        (format!("--pid {pid} --period 86401s"), 2, "a period is a day at most"),
        (format!("--pid {pid} --top 0"), 2, "0 is not in 1.."),
        (format!("--pid {pid} -o no/such/folder/o.parquet"), 2, "no/such/folder can't be used"),
        (format!("--pid {pid} -o /"), 2, "this is a folder"),
        (format!("--pid {pid} --machine nowhere.toml"), 2, "nowhere.toml: cannot be read"),
        ("-- ./no-such-program".to_owned(), 2, "./no-such-program: can't be started"),
        ("--all --root /no/such/root".to_owned(), 3, "/no/such/root"),
    ];
    let others = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small-two-sockets.toml");
    let another = (!Path::new("/sys/devices/system/node/node1").exists())
        .then(|| (format!("--pid {pid} --machine {others}"), 2, "the file of another machine"));
    for (line, code, says) in cases.into_iter().chain(another) {
        let out = run(&line);
        let text = err(&out);
        assert_eq!(out.status.code(), Some(code), "{line}: {text}");
        assert!(text.contains(says), "{line}: {text}");
        assert!(out.stdout.is_empty(), "{line}");
    }
}

// A source that is named and lacks something: exit code 3, with what to do. One that is
// offered here is not tried: it would disturb others.
#[test]
fn a_named_source_says_what_it_lacks() {
    let found = Command::new(HOMENODE).args(["doctor", "--json"]).output().expect("it looks");
    let found: Value = serde_json::from_slice(&found.stdout).expect("one object");
    for source in ["damon", "hint-fault", "pmu"] {
        let text = found.to_string();
        let offered = found["sources"]
            .as_array()
            .and_then(|all| all.iter().find(|s| s["source"] == source))
            .and_then(|s| s["offered"].as_bool());
        match offered {
            Some(false) => {
                let out = run(&format!("--pid {} --source {source}", std::process::id()));
                assert_eq!(out.status.code(), Some(3), "{}", err(&out));
                let says = format!("homenode: {source} can't be used here, nothing was changed. ");
                assert!(err(&out).starts_with(&says), "{}", err(&out));
            }
            Some(true) => println!("skipped: {source} is offered here, and would disturb others"),
            None => panic!("doctor says nothing of {source}: {text}"),
        }
    }
}

#[test]
fn without_privilege_own_processes_are_seen_and_others_said() {
    let mut command = Command::new(HOMENODE);
    command.args(["observe", "--source", "residency", "--period", "200ms", "--json"]);
    command.args(["--", "sleep", "0.5"]).current_dir("/");
    if fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0) {
        // Nobody, by convention.
        command.uid(65534).gid(65534);
    }
    let Ok(out) = command.output() else {
        println!("skipped: another user can't run the command from its folder");
        return;
    };
    assert_eq!(out.status.code(), Some(0), "{}", err(&out));
    let text = err(&out);
    let row = text.lines().find_map(|l| serde_json::from_str::<Value>(l).ok()).expect("a row");
    assert_eq!(row["name"], "sleep");
    assert!(row["resident_bytes"].as_u64() > Some(0), "{row}");
}

// What it looks like was looked at; here only that it is redrawn in place, and that no line
// is wider than the terminal.
#[test]
fn on_a_terminal_the_table_is_redrawn_in_place() {
    let idle = Idle::start();
    let line = format!(
        "stty cols 60 rows 10; {HOMENODE} observe --pid {} --source residency --period 200ms --for 900ms",
        idle.pid()
    );
    let Ok(out) = Command::new("script").args(["-qec", &line, "/dev/null"]).output() else {
        println!("skipped: there is no script(1) to make a terminal");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.matches("period ").count() >= 3, "{text}");
    assert!(text.contains("\u{1b}["), "the cursor goes up: {text}");
    let table = text.lines().filter(|l| l.contains("sleep") || l.contains("PID"));
    for line in table {
        let shown = line.rsplit("\u{1b}[").next().unwrap_or(line);
        assert!(shown.trim_end().chars().count() <= 61, "{line:?}");
    }
}

#[test]
fn the_manual_page_has_every_option() {
    let page = man::page("homenode-observe.1");
    let out = run("--help");
    let mut real = man::options(&String::from_utf8_lossy(&out.stdout), " --");
    real.remove("help");
    assert_eq!(real, man::options(&page, "Fl -"));
}
