//! One guest from its start to its end.
//!
//! The guest writes JSON lines to its second serial line, which QEMU writes to a
//! file; the first is its console and goes to another:
//!
//! ```text
//! {"guest":"6.12.95+deb12-cloud-amd64"}             it came up
//! {"begin":"topology","limit_s":60}                 a test begins
//! {"test":"topology","verdict":"passed",...}        and ends
//! {"end":true}                                      all that was asked for
//! ```
//!
//! Each line says how long the next one may take. A guest that lets this time pass
//! hangs: it is ended, and its console is what is left to look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::kernels::Kernel;
use super::topology::Topology;
use crate::workspace::not_run;

pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// How long a guest may be silent where no test runs: it boots, or powers off.
pub(crate) const SILENCE: Duration = Duration::from_secs(240);
/// What a test's own limit, which the guest keeps, is given on top here.
const GRACE: Duration = Duration::from_secs(10);

/// A test's result, as the guest told it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) test: String,
    pub(crate) verdict: Verdict,
    /// What was seen, as the test put it.
    pub(crate) facts: Value,
    /// Wall-clock time in the guest; `None` where it told none.
    pub(crate) seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It did what it was asked for.
    Done,
    /// It was silent for too long, in this test if one had begun.
    Hung { during: Option<String> },
    /// QEMU ended before the guest said that it was done: a panic, or a wrong option.
    Died { during: Option<String> },
}

/// What a guest left.
pub(crate) struct Left {
    /// The kernel's release, if the guest came up.
    pub(crate) release: Option<String>,
    pub(crate) told: Vec<Told>,
    pub(crate) ending: Ending,
    pub(crate) took: Duration,
    /// Where its console is.
    pub(crate) console: PathBuf,
}

/// What is read so far.
#[derive(Default)]
struct Log {
    release: Option<String>,
    told: Vec<Told>,
    /// The test that has begun and its limit.
    running: Option<(String, Duration)>,
    ended: bool,
    lines: usize,
}

impl Log {
    /// From everything in the file; a last line without its end is still being written.
    fn of(text: &str) -> Self {
        let mut log = Log::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            log.lines += 1;
            // Whatever else a broken guest writes is no result.
            if let Ok(value) = serde_json::from_str::<Value>(line) {
                log.take(&value);
            }
        }
        log
    }

    fn take(&mut self, value: &Value) {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if value["guest"].is_string() {
            self.release = Some(text("guest"));
        } else if value["begin"].is_string() {
            let limit = Duration::from_secs(value["limit_s"].as_u64().unwrap_or(0));
            self.running = Some((text("begin"), limit));
        } else if value["test"].is_string() {
            self.running = None;
            let verdict = match value["verdict"].as_str() {
                Some("passed") => Verdict::Passed,
                Some("skipped") => Verdict::Skipped(text("why")),
                _ => Verdict::Failed(text("why")),
            };
            let seconds = Some(value["ms"].as_u64().unwrap_or(0) as f64 / 1000.0);
            let facts = value["facts"].clone();
            self.told.push(Told { test: text("test"), verdict, facts, seconds });
        } else if value["end"] == true {
            self.ended = true;
        }
    }

    fn patience(&self, grace: Duration) -> Duration {
        self.running.as_ref().map_or(SILENCE, |(_, limit)| *limit + grace)
    }

    fn during(&self) -> Option<String> {
        self.running.as_ref().map(|(test, _)| test.clone())
    }
}

/// QEMU with everything but where the console goes.
///
/// One thread for all CPUs of a guest: with several, kernels were seen to crash
/// where they switch code that runs (static keys), and guests side by side use this
/// machine's CPUs as well.
///
/// `boot` is which of several boots it is, that are not to be the same.
pub(crate) fn qemu(
    topology: &Topology,
    kernel: &Kernel,
    image: &Path,
    initramfs: &Path,
    boot: usize,
    append: &str,
) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(topology.clock_args(boot));
    command.args(topology.qemu_args());
    command.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
    // Stalls that a busy host causes are no news; a panic ends the guest. The check that the
    // timer ticks, which counts turns of a loop, takes a busy host for a broken chip and panics.
    let quiet = "console=ttyS0 panic=-1 loglevel=4 nowatchdog no_timer_check \
                 rcupdate.rcu_cpu_stall_suppress=1";
    // Memory that is plugged is to be used, for what can move away again.
    let plugged = "memhp_default_state=online_movable";
    // Files in a tmpfs would lie on the lists of anonymous pages, where a simulated kernel
    // has nothing but its programs' memory; those in a ramfs lie on none.
    let root = "rootfstype=ramfs";
    // With memory cgroups reclaim reads sizes of lists that are up to two seconds old.
    // kswapd then may see an inactive list as long that it has just emptied, and gives up.
    let cgroups = if topology.memory_cgroups { "" } else { "cgroup_disable=memory" };
    let own = topology.kernel_words();
    let its = kernel.words(topology.clock);
    let words = [quiet, plugged, root, cgroups, &own, its, append].map(str::trim);
    let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
    command.arg("-append").arg(words.join(" "));
    command
}

/// Runs a guest for these tests; `folder` gets its console and its results.
pub(crate) fn run(
    topology: &Topology,
    kernel: &Kernel,
    image: &Path,
    initramfs: &Path,
    boot: usize,
    tests: &[String],
    folder: &Path,
) -> Result<Left> {
    let console = folder.join("console.txt");
    let results = folder.join("results.jsonl");
    fs::write(&results, "").with_context(|| format!("can't write {}", results.display()))?;
    let words = format!("homenode.boot={boot} homenode.tests={}", tests.join(","));
    let mut command = qemu(topology, kernel, image, initramfs, boot, &words);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-serial").arg(format!("file:{}", results.display()));
    let words = fs::File::create(folder.join("qemu.txt"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|e| not_run(&command, e))?;
    let watched = watch(&mut child, &results, GRACE);
    if watched.is_err() {
        // It may be gone already, which is as well.
        let _ = child.kill();
        let _ = child.wait();
    }
    let (log, ending) = watched?;
    Ok(Left { release: log.release, told: log.told, ending, took: begun.elapsed(), console })
}

fn watch(child: &mut Child, results: &Path, grace: Duration) -> Result<(Log, Ending)> {
    let mut lines = 0;
    let mut heard = Instant::now();
    loop {
        // Before looking at the file: what was written before the end is then in it.
        let gone = child.try_wait().context("can't wait for QEMU")?.is_some();
        let bytes =
            fs::read(results).with_context(|| format!("can't read {}", results.display()))?;
        let log = Log::of(&String::from_utf8_lossy(&bytes));
        if gone {
            let during = log.during();
            let ending = if log.ended { Ending::Done } else { Ending::Died { during } };
            return Ok((log, ending));
        }
        if log.lines > lines {
            lines = log.lines;
            heard = Instant::now();
        }
        if heard.elapsed() > log.patience(grace) {
            child.kill().context("can't end QEMU")?;
            child.wait()?;
            let during = log.during();
            return Ok((log, Ending::Hung { during }));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_results_and_limits() {
        let text = r#"{"guest":"6.12"}
{"begin":"a","limit_s":5}
{"test":"a","verdict":"passed","facts":{"n":2},"ms":7}
noise
{"begin":"b","limit_s":9}
{"test":"b","verdict":"skipped","why":"one node"}
{"begin":"c","limit_s":30}
{"test":"c","verd"#;
        let log = Log::of(text);
        assert_eq!(log.release.as_deref(), Some("6.12"));
        assert_eq!(log.told.len(), 2);
        assert_eq!(log.told[0].facts["n"], 2);
        assert_eq!(log.told[1].verdict, Verdict::Skipped("one node".to_owned()));
        assert_eq!(log.during().as_deref(), Some("c"));
        assert_eq!(log.patience(GRACE), Duration::from_secs(30) + GRACE);
        let log = Log::of(&format!("{text}ict\":\"odd\",\"why\":\"no\"}}\n{{\"end\":true}}\n"));
        assert_eq!(log.told[2].verdict, Verdict::Failed("no".to_owned()));
        assert!(log.ended);
        assert_eq!(log.patience(GRACE), SILENCE);
    }

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn a_guest_that_is_silent_in_a_test_is_ended() {
        let results = std::env::temp_dir().join(format!("homenode-vm-{}", std::process::id()));
        fs::write(&results, "{\"begin\":\"stuck\",\"limit_s\":0}\n").unwrap();
        let mut child = shell("exec sleep 600");
        let grace = Duration::from_millis(300);
        let begun = Instant::now();
        let (_, ending) = watch(&mut child, &results, grace).unwrap();
        assert_eq!(ending, Ending::Hung { during: Some("stuck".to_owned()) });
        assert!(begun.elapsed() >= grace);
        assert!(child.try_wait().unwrap().is_some(), "it still runs");
        let (_, ending) = watch(&mut shell("exit 0"), &results, grace).unwrap();
        assert_eq!(ending, Ending::Died { during: Some("stuck".to_owned()) });
        fs::write(&results, "{\"end\":true}\n").unwrap();
        let (_, ending) = watch(&mut shell("exit 0"), &results, grace).unwrap();
        assert_eq!(ending, Ending::Done);
        fs::remove_file(&results).unwrap();
    }
}
