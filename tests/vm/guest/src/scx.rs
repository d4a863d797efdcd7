//! `homenode sched` on a kernel with sched_ext. Judged by counters and CPUs, never by time.
//!
//! Source: specs/wake.md#scx.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::crowd::LOADS;
use crate::process::fork;
use crate::{TestResult, needs};

const STATE: &str = "/sys/kernel/sched_ext/state";
const GUEST: &str = "/bin/homenode-guest";
const METRICS: &str = "/tmp/sched.prom";
/// Of every load there are so many choices at least, a task's first: pipe makes one task, which then
/// hands a byte to and fro 1500 times.
const TASKS_MIN: u64 = 16;

/// The kernel's word for whether a scheduler is loaded.
fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_owned()
}

fn there() -> Result<()> {
    needs(Path::new(STATE).exists(), "this kernel has no sched_ext")?;
    // A scheduler before may still be leaving.
    becomes("disabled")
}

fn becomes(what: &str) -> Result<()> {
    let begun = Instant::now();
    while state() != what {
        ensure!(begun.elapsed() < Duration::from_secs(30), "sched_ext stays {}", state());
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn homenode(args: &[&str]) -> Command {
    let mut command = Command::new("/bin/homenode");
    command.arg("sched").args(args).stdin(Stdio::null());
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line of what was printed, which is the object at the end.
fn told(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("homenode told nothing: {}", words(output)))?;
    serde_json::from_str(line).context("homenode printed no JSON")
}

fn number(of: &Value, key: &str) -> Result<u64> {
    of[key].as_u64().with_context(|| format!("no {key} in {of}"))
}

/// A scheduler in the background; it is ended when this is dropped.
struct Background(Child);

impl Background {
    fn start(args: &[&str]) -> Result<Self> {
        let child = homenode(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut own = Self(child);
        let begun = Instant::now();
        while state() != "enabled" {
            if own.0.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(60) {
                let _ = own.0.kill();
                anyhow::bail!("no scheduler came up: {}", own.words()?);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(own)
    }
    fn words(&mut self) -> Result<String> {
        let mut text = String::new();
        if let Some(mut err) = self.0.stderr.take() {
            std::io::Read::read_to_string(&mut err, &mut text)?;
        }
        Ok(text)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn two_tasks(_: &Asked) -> TestResult {
    there()?;
    const TURNS: &str = "60";
    let mut facts = serde_json::Map::new();
    for which in ["today", "seed", "off"] {
        let args = ["--recent-cpu", which, "--json", "--openmetrics", METRICS];
        let args = [&args[..], &["--", GUEST, "--crowd", "walk", TURNS]].concat();
        let output = homenode(&args).output()?;
        ensure!(output.status.success(), "{which}: {}: {}", output.status, words(&output));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(',') && !line.starts_with('{'));
        let line = line.with_context(|| format!("{which}: no CPUs in {text}"))?;
        let cpus: Vec<usize> =
            line.split(',').map(str::parse).collect::<Result<_, _>>().context("CPUs")?;
        let value = told(&output)?;
        // The first ones come from where it was started. Now and then a kernel thread has a CPU.
        let cpus = &cpus[8..];
        let steps = cpus.len() - 2;
        let by_turns = cpus.windows(3).filter(|w| w[0] == w[2] && w[0] != w[1]).count();
        let on = cpus.windows(3).filter(|w| w[2] == (w[1] + 1) % 4).count();
        let shown: Vec<String> = cpus.iter().take(12).map(usize::to_string).collect();
        facts.insert(
            which.to_owned(),
            json!({
                "cpus": shown.join(","), "by_turns": by_turns, "to_the_next": on, "of": steps,
                "recent": value["reasons"]["recent"], "idle_cpu": value["reasons"]["idle_cpu"],
            }),
        );
        let most = |n: usize| n * 100 >= steps * 80;
        let well = if which == "off" { most(on) } else { most(by_turns) };
        ensure!(
            well,
            "{which}: of {steps} steps {by_turns} are by turns, {on} to the next: {line}"
        );
        ensure!(value["end"]["by"] == "unregistered", "{which}: {}", value["end"]);
        // The file of metrics says at the end what the object says.
        let metrics = fs::read_to_string(METRICS)?;
        for (name, n) in [
            ("choices_total{reason=\"recent\"}", &value["reasons"]["recent"]),
            ("claimed_total", &value["claimed"]),
            ("up", &json!(0)),
        ] {
            let line = format!("homenode_sched_{name} {}\n", n.as_u64().unwrap_or(0));
            ensure!(metrics.contains(&line), "{which}: no {line} in {metrics}");
        }
        ensure!(metrics.ends_with("\n# EOF\n"), "{which}: {metrics}");
    }
    Ok(Value::Object(facts))
}

pub(crate) fn loads(_: &Asked) -> TestResult {
    there()?;
    let mut facts = serde_json::Map::new();
    for (kind, n) in LOADS {
        let output = homenode(&["--json", "--", GUEST, "--crowd", kind, n]).output()?;
        ensure!(output.status.success(), "{kind}: {}: {}", output.status, words(&output));
        let value = told(&output)?;
        let choices = number(&value, "choices")?;
        let (claimed, lost) = (number(&value, "claimed")?, number(&value, "lost")?);
        // Each task is chosen for when it is made. How often receivers sleep afterwards is the
        // emulator's affair.
        ensure!(choices >= TASKS_MIN, "{kind}: {choices} choices");
        ensure!(claimed + lost <= choices, "{kind}: {claimed} and {lost} of {choices}");
        ensure!(number(&value, "no_choice")? == 0, "{kind}: {value}");
        let sum: u64 = value["reasons"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, n)| n.as_u64())
            .sum();
        ensure!(sum == choices, "{kind}: reasons come to {sum} of {choices}");
        ensure!(value["end"]["by"] == "unregistered", "{kind}: {}", value["end"]);
        becomes("disabled")?;
        facts.insert(kind.to_owned(), json!({"choices": choices, "reasons": value["reasons"]}));
    }
    // The same for all tasks of the system.
    let (kind, n) = LOADS[0];
    let args = ["--system", "--json", "--", GUEST, "--crowd", kind, n];
    let output = homenode(&args).output()?;
    ensure!(output.status.success(), "system: {}: {}", output.status, words(&output));
    let value = told(&output)?;
    ensure!(value["tasks"] == "all" && value["end"]["by"] == "unregistered", "system: {value}");
    facts.insert("system".to_owned(), json!({"choices": value["choices"]}));
    Ok(Value::Object(facts))
}

/// A process's policy: field 41 of /proc/PID/stat.
fn policy(pid: i32) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit(')').next().context("a stat without a name")?;
    Ok(rest.split_whitespace().nth(38).context("a short stat")?.to_owned())
}

pub(crate) fn cgroup(_: &Asked) -> TestResult {
    there()?;
    let folder = Path::new("/sys/fs/cgroup/homenode-test");
    fs::create_dir_all(folder).context("a cgroup")?;
    let task = fork(|| {
        loop {
            sleep(Duration::from_millis(5));
        }
    })?;
    let test = || -> TestResult {
        fs::write(folder.join("cgroup.procs"), task.to_string())?;
        let args = ["--cgroup", "/homenode-test", "--for", "3s", "--json"];
        let mut child = homenode(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let begun = Instant::now();
        let mut under = false;
        while child.try_wait()?.is_none() && begun.elapsed() < Duration::from_secs(60) {
            under |= policy(task)? == "7";
            sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}: {}", output.status, words(&output));
        let value = told(&output)?;
        ensure!(under, "the task never was under sched_ext");
        ensure!(policy(task)? == "0", "its policy is {} afterwards", policy(task)?);
        ensure!(number(&value, "choices")? > 20, "{value}");
        becomes("disabled")?;
        Ok(json!({"choices": value["choices"]}))
    };
    let done = test();
    crate::process::end(task);
    fs::remove_dir(folder).context("the cgroup stays")?;
    done
}

pub(crate) fn watchdog(_: &Asked) -> TestResult {
    there()?;
    let (kind, n) = LOADS[0];
    let args = ["--drill", "--timeout", "2s", "--json", "--", GUEST, "--crowd", kind, n];
    let output = homenode(&args).output()?;
    let value = told(&output)?;
    ensure!(output.status.code() == Some(1), "{}: {}", output.status, words(&output));
    ensure!(value["end"]["by"] == "watchdog", "it ended so: {}", value["end"]);
    becomes("disabled")?;
    // The program has come to its end all the same, or the command would not have.
    Ok(json!({"reason": value["end"]["reason"], "message": value["end"]["message"]}))
}

pub(crate) fn ends(_: &Asked) -> TestResult {
    there()?;
    // Another scheduler is loaded.
    let mut first = Background::start(&["--json"])?;
    let output = homenode(&["--", GUEST, "--list"]).output()?;
    let refusal = words(&output);
    ensure!(output.status.code() == Some(3), "a second one: {}: {refusal}", output.status);
    ensure!(refusal.contains("another scheduler is loaded (homenode"), "it says: {refusal}");
    // SIGTERM: told and well.
    // SAFETY: signals a child that was not waited for.
    unsafe { libc::kill(first.0.id() as i32, libc::SIGTERM) };
    let status = first.0.wait()?;
    ensure!(status.success(), "after SIGTERM: {status}");
    becomes("disabled")?;
    // SIGKILL: nothing of it stays, and tasks go on.
    let mut second = Background::start(&["--json"])?;
    second.0.kill()?;
    second.0.wait()?;
    becomes("disabled")?;
    let (kind, n) = LOADS[1];
    let status = Command::new(GUEST).args(["--crowd", kind, n]).status()?;
    ensure!(status.success(), "a load afterwards: {status}");
    // A program's own code.
    let output = homenode(&["--json", "--", "/bin/busybox", "sh", "-c", "exit 7"]).output()?;
    ensure!(output.status.code() == Some(7), "{}: {}", output.status, words(&output));
    // One that isn't there: nothing stays.
    let output = homenode(&["--", "/no/such/program"]).output()?;
    ensure!(output.status.code() == Some(2), "{}: {}", output.status, words(&output));
    becomes("disabled")?;
    let end = plugged()?;
    Ok(json!({"refusal": refusal.trim(), "CPU gone": end}))
}

/// A CPU goes: the kernel ends it and says so, and tasks go on, also when the CPU comes back.
fn plugged() -> TestResult {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu3/online";
    let mut scheduler = Background::start(&["--json"])?;
    fs::write(ONLINE, "0").context(ONLINE)?;
    let ended = becomes("disabled");
    let status = scheduler.0.wait()?;
    fs::write(ONLINE, "1").context(ONLINE)?;
    ended?;
    ensure!(status.code() == Some(1), "a CPU goes: {status}: {}", scheduler.words()?);
    let mut text = String::new();
    let mut out = scheduler.0.stdout.take().context("a pipe")?;
    std::io::Read::read_to_string(&mut out, &mut text)?;
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no JSON")?;
    let value: Value = serde_json::from_str(line)?;
    ensure!(value["end"]["by"] == "kernel", "a CPU goes: {}", value["end"]);
    // The next one has all of them again.
    let (kind, n) = LOADS[1];
    let output = homenode(&["--json", "--", GUEST, "--crowd", kind, n]).output()?;
    ensure!(output.status.success(), "afterwards: {}: {}", output.status, words(&output));
    becomes("disabled")?;
    Ok(value["end"].clone())
}
