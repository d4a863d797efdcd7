//! `homenode stats`, `record sched` and `replay sched` on this kernel: a load whose pattern is
//! known, the kernel's own statistics beside, and what can go wrong.
//!
//! ```text
//!  load: two numbers ─▶ homenode attached ─▶ go ─▶ done ─▶ SIGINT ─▶ JSON
//! ```
//!
//! Bounds: tests/vm/stats.toml. Source: specs/schedstats.md#beside.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::bounds;
use crate::commands::homenode;
use crate::process::{fork, wait};
use crate::{TestResult, needs};

const BOUNDS: &str = include_str!("../../stats.toml");
const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";
const JOURNAL: &str = "/run/homenode/stats.journal";
const GUEST: &str = "/bin/homenode-guest";
/// Programs that a look attaches, at least.
const PROGRAMS: usize = 6;

fn bound(name: &str) -> Result<u64> {
    bounds::of(BOUNDS, name)
}

fn number(of: &Value, key: &str) -> Result<u64> {
    of[key].as_u64().with_context(|| format!("no {key} in {of}"))
}

fn three_cpus(asked: &Asked) -> Result<()> {
    needs(Path::new("/sys/kernel/btf/vmlinux").exists(), "this kernel shows no BTF")?;
    let cpus: usize = asked.nodes.iter().map(|node| node.cpus.len()).sum();
    needs(cpus >= 3, "fewer than three CPUs: the load's tasks need one each")
}

/// A crowd that begins when it is told, and stays until it is dropped.
struct Load {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What it says first.
    first: Vec<u32>,
}

impl Load {
    fn start(kind: &str, n: u64) -> Result<Self> {
        let mut command = Command::new(GUEST);
        let command = command.args(["--crowd", kind, &n.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut own = Self { child, input, output, first: Vec::new() };
        let line = own.line()?;
        own.first = line.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
        Ok(own)
    }
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the load ended");
        Ok(line.trim().to_owned())
    }
    fn go(&mut self) -> Result<()> {
        self.input.as_mut().context("its input")?.write_all(b"g")?;
        let line = self.line()?;
        ensure!(line == "done", "the load says {line}");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The kernel's numbers of the programs of which a process holds a link.
fn programs_of(pid: u32) -> Vec<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let links = texts.filter(|text| text.lines().any(|line| line.starts_with("link_type:")));
    let id = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        line.and_then(|id| id.trim().parse().ok())
    };
    links.filter_map(id).collect()
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

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !holds() {
        ensure!(begun.elapsed() < Duration::from_secs(60), "{what} did not come about");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A homenode that looks; it is ended when this is dropped.
struct Looker(Child);

impl Looker {
    /// Attached, and counting.
    fn start(args: &[&str]) -> Result<Self> {
        let mut command = Command::new("/bin/homenode");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut own = Self(command.spawn()?);
        let mut over = false;
        until("programs that are attached", || {
            over = own.0.try_wait().is_ok_and(|ended| ended.is_some());
            over || programs_of(own.0.id()).len() >= PROGRAMS
        })?;
        ensure!(!over, "homenode ended: {}", own.words());
        // From attached to counting is a moment.
        sleep(Duration::from_millis(500));
        Ok(own)
    }
    fn words(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut err) = self.0.stderr.take() {
            let _ = err.read_to_string(&mut text);
        }
        text
    }
    /// Ends it as Ctrl-C does; what it prints.
    fn end(mut self) -> Result<Value> {
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let mut text = String::new();
        self.0.stdout.take().context("a pipe")?.read_to_string(&mut text)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "homenode: {status}: {}", self.words());
        let line = text.lines().rfind(|line| line.starts_with('{')).context("no JSON")?;
        serde_json::from_str(line).context("JSON")
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn task(of: &Value, pid: u32) -> Result<&Value> {
    let all = of["tasks"].as_array().context("no tasks")?;
    all.iter().find(|task| task["pid"] == pid).with_context(|| format!("no task {pid} in {of}"))
}

/// The load's two tasks while they are looked at.
fn looked(more: &[&str], system: bool) -> Result<(Value, Vec<u32>)> {
    let mut load = Load::start("turns", bound("rounds")?)?;
    let pids: Vec<String> = load.first.iter().map(u32::to_string).collect();
    let mut args = vec!["stats", "--json"];
    args.extend(more);
    match system {
        true => args.push("--system"),
        false => pids.iter().for_each(|pid| args.extend(["--pid", pid])),
    }
    let looker = Looker::start(&args)?;
    load.go()?;
    sleep(Duration::from_millis(300));
    let look = looker.end()?;
    Ok((look, load.first.clone()))
}

pub(crate) fn pattern(asked: &Asked) -> TestResult {
    three_cpus(asked)?;
    let (look, pids) = looked(&["--why"], false)?;
    let (rounds, more) = (bound("rounds")?, bound("more_max")?);
    let all_ns = number(&look, "ns")?;
    let mut facts = Vec::new();
    for pid in pids {
        let task = task(&look, pid)?;
        for key in ["nr_wakeups", "sleeps", "nr_wakeups_remote"] {
            let n = number(task, key)?;
            ensure!((rounds..=rounds + more).contains(&n), "{n} {key} of {rounds}: {task}");
        }
        let times = ["run_ns", "wait_ns", "sleep_ns", "block_ns"];
        let ns = times.map(|key| number(task, key)).into_iter().collect::<Result<Vec<_>>>()?;
        let sum: u64 = ns.iter().sum();
        let off = sum.abs_diff(all_ns) * 1000 / all_ns;
        ensure!(off <= bound("sum_off_permille_max")?, "{sum} ns of {all_ns}: {task}");
        let reasons = task["why"]["by_reason"].as_object().context("no reasons")?;
        let told: u64 = reasons.values().filter_map(Value::as_u64).sum();
        ensure!(told == number(task, "nr_wakeups")?, "{told} reasons: {task}");
        facts.push(json!({"wakeups": task["nr_wakeups"], "ms": ns.iter().map(|n| n / 1_000_000).collect::<Vec<_>>(), "off_permille": off}));
    }
    ensure!(look["lost_events"] == 0, "events were lost: {look}");
    Ok(json!({"rounds": rounds, "tasks": facts}))
}

// ── The kernel's own ───────────────────────────────────────────────────────────

fn switch() -> String {
    fs::read_to_string(SWITCH).unwrap_or_default().trim().to_owned()
}

fn more_by(of: &Value, figure: &str) -> Result<i64> {
    of[figure]["more_by"].as_i64().with_context(|| format!("no {figure} of both in {of}"))
}

const COUNTS: [&str; 7] = [
    "nr_wakeups",
    "nr_wakeups_local",
    "nr_wakeups_remote",
    "nr_wakeups_migrate",
    "nr_migrations",
    "nr_voluntary",
    "nr_involuntary",
];

/// Whether a task is near enough; by how much each figure is off.
fn near(task: &Value) -> Result<Value> {
    for count in COUNTS {
        let off = more_by(task, count)?.unsigned_abs();
        ensure!(off <= bound("counts_off_max")?, "{count} is off by {off}: {task}");
    }
    let (delayed, delayed_ns) = (number(task, "delayed")?, number(task, "delayed_ns")?);
    let waits = more_by(task, "waits")?.unsigned_abs();
    ensure!(waits <= delayed + bound("waits_off_max")?, "waits are off by {waits}: {task}");
    let own = |figure: &str| number(&task[figure], "homenode");
    let events = own("nr_wakeups")? + own("nr_voluntary")? + own("nr_involuntary")? + 1;
    let slack = events * bound("time_off_ns_max")?;
    let mut off = serde_json::Map::new();
    for (time, more) in
        [("run_ns", 0), ("wait_ns", delayed_ns), ("sleep_ns", delayed_ns), ("block_ns", 0)]
    {
        let by = more_by(task, time)?;
        ensure!(by.unsigned_abs() <= slack + more, "{time} is off by {by} ns: {task}");
        off.insert(time.to_owned(), json!([task[time]["homenode"], by]));
    }
    off.insert("delayed".to_owned(), json!(delayed));
    off.insert("events".to_owned(), json!(events));
    Ok(off.into())
}

pub(crate) fn kernel(asked: &Asked) -> TestResult {
    three_cpus(asked)?;
    needs(Path::new(SWITCH).exists(), "this kernel has no CONFIG_SCHEDSTATS")?;
    let before = switch();
    let done = beside();
    fs::write(SWITCH, before)?;
    done
}

fn beside() -> TestResult {
    fs::write(SWITCH, "0")?;
    let (look, pids) = looked(&["--kernel"], false)?;
    ensure!(switch() == "0" && !Path::new(JOURNAL).exists(), "the switch is {}", switch());
    let both = &look["compared"];
    let mut facts = Vec::new();
    for pid in pids {
        facts.push(near(task(both, pid)?)?);
    }
    // The switch is on already, and everybody is looked at.
    fs::write(SWITCH, "1")?;
    let (look, _) = looked(&["--kernel"], true)?;
    ensure!(switch() == "1", "a switch that was on is {}", switch());
    let cpus = &look["compared"]["all_cpus"];
    for count in ["timeslices", "nr_wakeups", "nr_wakeups_local"] {
        let kernel = cpus[count]["kernel"][1].as_u64().context("the kernel's")?;
        let most = kernel * bound("cpus_off_permille_max")? / 1000 + bound("cpus_off_more_max")?;
        let off = more_by(cpus, count)?.unsigned_abs();
        ensure!(off <= most, "{count} of all CPUs is off by {off} of {kernel}: {cpus}");
    }
    let slack = number(&cpus["timeslices"], "homenode")? * bound("time_off_ns_max")?;
    for time in ["run_ns", "wait_ns"] {
        let off = more_by(cpus, time)?.unsigned_abs();
        ensure!(off <= slack, "{time} of all CPUs is off by {off} ns: {cpus}");
    }
    // A program that is over can still be read while nobody has waited for it.
    fs::write(SWITCH, "0")?;
    let told = Command::new("/bin/homenode")
        .args(["stats", "--kernel", "--json", "--", "/bin/busybox", "sleep", "0.3"])
        .output()?;
    let words = String::from_utf8_lossy(&told.stderr).into_owned();
    ensure!(told.status.success(), "a program: {}: {words}", told.status);
    let line = words.lines().find(|line| line.starts_with('{')).context("no JSON")?;
    let look: Value = serde_json::from_str(line)?;
    let program = &look["compared"]["tasks"][0];
    near(program).with_context(|| format!("a program: {look}"))?;
    killed()?;
    Ok(json!({"tasks": facts, "version": both["version"], "all_cpus": cpus}))
}

/// After SIGKILL the switch is on, which the next one says, and `restore` puts it back.
fn killed() -> Result<()> {
    let mut looker = Looker::start(&["stats", "--kernel", "--system"])?;
    until("a switch that is on", || switch() == "1")?;
    let programs = programs_of(looker.0.id());
    looker.0.kill()?;
    looker.0.wait()?;
    until("programs that are gone", || !programs.iter().any(|id| is_loaded(*id)))?;
    ensure!(Path::new(JOURNAL).exists(), "there is no journal");
    let args = ["stats", "--kernel", "--system", "--for", "1s"];
    let refused = Command::new("/bin/homenode").args(args).output()?;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(3), "{}: {words}", refused.status);
    ensure!(words.contains("`homenode restore` does that"), "{words}");
    let back = homenode(&["restore"])?;
    ensure!(back["stats"]["restored"][0]["knob"] == SWITCH, "{back}");
    ensure!(switch() == "0" && !Path::new(JOURNAL).exists(), "the switch is {}", switch());
    Ok(())
}

// ── Recorded and replayed ──────────────────────────────────────────────────────

pub(crate) fn recorded(asked: &Asked) -> TestResult {
    three_cpus(asked)?;
    let (file, machine) = ("/tmp/turns.parquet", "/tmp/turns.toml");
    let (rounds, more) = (bound("rounds")?, bound("more_max")?);
    // Told to begin, and at its end, before it has started.
    let mut command = Command::new("/bin/homenode");
    command.args(["record", "sched", "-o", file, "--json", "--", GUEST, "--crowd", "turns"]);
    let mut child = command
        .arg(rounds.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(b"g")?;
    let output = child.wait_with_output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "record: {}: {words}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no JSON")?;
    let told: Value = serde_json::from_str(line)?;
    ensure!(told["lost"] == 0 && told["complete"] == true, "the recording: {told}");
    let wakeups = |tasks: &Value| -> Result<Vec<u64>> {
        let tasks = tasks.as_array().context("no tasks")?;
        tasks.iter().map(|task| number(task, "wakeups")).collect()
    };
    let seen = wakeups(&told["tasks"])?;
    let fits = |n: &u64| (rounds..=rounds + more).contains(n);
    ensure!(seen.len() == 2 && seen.iter().all(fits), "{seen:?} wake-ups of {rounds}: {told}");
    homenode(&["measure", "--tiny", "-o", machine])?;
    let replayed =
        homenode(&["replay", "sched", file, "--machine", machine, "--cpus", "1", "--force"])?;
    let runs = replayed["runs"].as_array().context("no runs")?;
    let names: Vec<&str> = runs.iter().filter_map(|run| run["column"].as_str()).collect();
    ensure!(names.len() == 3 && names[0] == "recorded", "columns: {names:?}");
    ensure!(wakeups(&runs[0]["tasks"])? == seen, "the file is read otherwise: {replayed}");
    let again = wakeups(&runs[1]["tasks"])?;
    // Who begins at the recording's beginning is there, and needs no wake-up.
    let near = again.iter().all(|n| (rounds - more..=rounds + more).contains(n));
    ensure!(near, "replayed {again:?} wake-ups: {replayed}");
    let migrations = |run: &Value| -> Result<u64> {
        let tasks = run["tasks"].as_array().context("no tasks")?;
        tasks.iter().map(|task| number(task, "migrations")).sum()
    };
    ensure!(migrations(&runs[2])? == 0, "on one CPU tasks migrate: {replayed}");
    Ok(json!({"wakeups": seen, "replayed": again, "on one CPU": wakeups(&runs[2]["tasks"])?}))
}

// ── What can go wrong ──────────────────────────────────────────────────────────

/// More threads than a guest of this size should have to bear.
const HERD: u64 = 5000;

pub(crate) fn faults(asked: &Asked) -> TestResult {
    three_cpus(asked)?;
    let many = many()?;
    let reused = reused()?;
    let plugged = plugged(asked)?;
    let recorded = plugged_recorder(asked)?;
    let killed = killed_recorder()?;
    Ok(json!({
        "many": many, "number used again": reused, "CPU plugged": plugged, "recorded": recorded,
        "killed": killed,
    }))
}

/// Tasks beyond the places that were asked for are counted, and all told where there is room.
fn many() -> TestResult {
    // The kernel's own bound would be all of them, and leave none for who looks.
    fs::write("/proc/sys/kernel/threads-max", (4 * HERD).to_string())?;
    let herd = Load::start("herd", HERD)?;
    let made = u64::from(herd.first[0]);
    ensure!(made >= 500, "only {made} threads");
    let pid = herd.child.id();
    let mut told = Vec::new();
    for places in ["256", "16384"] {
        let looker =
            Looker::start(&["stats", "--pid", &pid.to_string(), "--tasks", places, "--json"])?;
        // Each has an event: a stop and its end.
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: signals a child that was not waited for.
            unsafe { libc::kill(pid as i32, signal) };
            sleep(Duration::from_secs(2));
        }
        let look = looker.end()?;
        let n = look["tasks"].as_array().context("tasks")?.len() as u64;
        let (lost, events) = (number(&look, "lost_tasks")?, number(&look, "lost_events")?);
        match places {
            "256" => {
                ensure!(n <= 256 && n + lost > made, "{n} told, {lost} lost of {made}");
                ensure!(
                    events >= lost && look["notes"].to_string().contains("no place"),
                    "{events} events"
                );
            }
            _ => ensure!(n > made && lost == 0, "{n} told, {lost} lost of {made}"),
        }
        told.push(json!({"places": look["places"], "told": n, "lost": lost, "kernel_kib": number(&look, "kernel_bytes")? / 1024}));
    }
    Ok(json!({"threads": made, "looks": told}))
}

/// Sleeps so often, and ends.
fn sleeper(times: u32) -> Result<i32> {
    fork(|| (0..times).for_each(|_| sleep(Duration::from_millis(1))))
}

/// A number that is another task's now has two rows.
fn reused() -> TestResult {
    let looker = Looker::start(&["stats", "--system", "--json"])?;
    let first = sleeper(40)?;
    wait(first);
    // All that may come between is a kernel thread.
    let mut second = 0;
    for _ in 0..10 {
        fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string())?;
        second = fork(|| {
            (0..7).for_each(|_| sleep(Duration::from_millis(1)));
            sleep(Duration::from_secs(600));
        })?;
        if second == first {
            break;
        }
        crate::process::end(second);
    }
    ensure!(second == first, "the number {first} is not given again");
    sleep(Duration::from_millis(300));
    let look = looker.end();
    crate::process::end(second);
    let look = look?;
    let tasks = look["tasks"].as_array().context("tasks")?;
    let mut wakeups: Vec<u64> = tasks
        .iter()
        .filter(|task| task["pid"] == first)
        .map(|task| number(task, "nr_wakeups"))
        .collect::<Result<_>>()?;
    wakeups.sort_unstable();
    ensure!(
        wakeups.len() == 2 && (7..20).contains(&wakeups[0]) && wakeups[1] >= 40,
        "wake-ups under the number {first}: {wakeups:?}"
    );
    Ok(json!(wakeups))
}

/// The guest's last CPU, which goes and comes.
struct LastCpu(u32);

impl LastCpu {
    fn of(asked: &Asked) -> Result<Self> {
        let all = asked.nodes.iter().flat_map(|node| &node.cpus);
        Ok(Self(*all.max().context("no CPU")?))
    }
    fn plug(&self, there: bool) -> Result<()> {
        let online = format!("/sys/devices/system/cpu/cpu{}/online", self.0);
        let value = if there { "1" } else { "0" };
        fs::write(&online, value).with_context(|| format!("{online} = {value}"))
    }
    /// A task that is woken 20 times there; its number. It has ended.
    fn works(&self) -> Result<i32> {
        let task = fork(|| {
            let _ = crate::process::pin(0, &[self.0]);
            (0..20).for_each(|_| sleep(Duration::from_millis(1)));
        })?;
        wait(task);
        Ok(task)
    }
}

/// A CPU goes, comes, goes while it is looked at; and one that was not there at the beginning.
fn plugged(asked: &Asked) -> TestResult {
    let last = LastCpu::of(asked)?;
    let busy = |looker: Looker| -> TestResult {
        last.works()?;
        looker.end()
    };
    let row = |look: &Value| -> Result<Value> {
        let cpus = look["cpus"].as_array().context("cpus")?;
        let found = cpus.iter().find(|cpu| cpu["cpu"] == last.0);
        Ok(found.with_context(|| format!("no row of CPU {}: {look}", last.0))?.clone())
    };
    let looker = Looker::start(&["stats", "--system", "--why", "--json"])?;
    last.plug(false)?;
    sleep(Duration::from_millis(200));
    last.plug(true)?;
    let there = busy(looker)?;
    last.plug(false)?;
    let looker = Looker::start(&["stats", "--system", "--why", "--json"]);
    last.plug(true)?;
    let later = busy(looker?)?;
    let switches = |look: &Value| number(&row(look)?, "nr_switches");
    let both = [switches(&there)?, switches(&later)?];
    ensure!(both.iter().all(|n| *n >= 20), "switches on CPU {}: {both:?}", last.0);
    ensure!(later["notes"].to_string().contains("came during the look"), "{}", later["notes"]);
    Ok(json!(both))
}

/// While CPUs go and come a recording has all that ran, where it ran. It first tries for a while what recording takes by
/// itself, and nothing tells when it is done with that: so CPUs go and come until it has ended.
fn plugged_recorder(asked: &Asked) -> Result<Value> {
    let last = LastCpu::of(asked)?;
    let mut command = Command::new("/bin/homenode");
    command.args(["record", "sched", "--system", "--for", "4s", "-o", "/tmp/plugged.parquet"]);
    command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = Looker(command.spawn()?);
    let mut ran = Vec::new();
    while recorder.0.try_wait()?.is_none() {
        last.plug(false)?;
        sleep(Duration::from_millis(100));
        last.plug(true)?;
        ran.push(last.works()?);
    }
    let told = recorder.end()?;
    ensure!(told["lost"] == 0, "{} events are lost", told["lost"]);
    let tasks = told["tasks"].as_array().context("tasks")?;
    let whole = |task: &&Value| task["wakeups"].as_u64() >= Some(20);
    let of_ours = |task: &&Value| ran.iter().any(|&pid| task["tid"] == pid);
    let whole = tasks.iter().filter(of_ours).filter(whole).count();
    // The first and the last may be there in part, and some ran before it began.
    ensure!(whole >= 3, "of {} tasks {whole} are there whole", ran.len());
    Ok(json!({"ran": ran.len(), "whole": whole, "rows": told["rows"]}))
}

fn killed_recorder() -> TestResult {
    let args = ["record", "sched", "--system", "--for", "600s", "-o", "/tmp/killed.parquet"];
    let mut recorder = Looker::start(&args)?;
    let programs = programs_of(recorder.0.id());
    recorder.0.kill()?;
    recorder.0.wait()?;
    until("programs that are gone", || !programs.iter().any(|id| is_loaded(*id)))?;
    Ok(json!(programs.len()))
}
