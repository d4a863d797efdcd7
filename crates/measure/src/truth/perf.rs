//! A benchmark of `perf bench`, run natively under `perf stat`.

use crate::child;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What one run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// What the benchmark says that it took, in seconds.
    pub seconds: f64,
    /// Context switches of all its tasks.
    pub switches: u64,
    /// How often one of them went to another CPU.
    pub migrations: u64,
    /// Page faults of all its tasks.
    pub faults: u64,
    /// CPU time that all CPUs were busy meanwhile and not for it, and all CPU time there was.
    pub others: [Duration; 2],
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// There is no `perf`.
    #[error(
        "there is no `perf` in PATH, whose benchmarks are predicted; `apt install linux-perf` brings it"
    )]
    NoPerf,
    /// It could not be run.
    #[error("`{command}` can't be run")]
    Run {
        /// The whole command.
        command: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended otherwise than with figures.
    #[error("`{command}`: {said}")]
    Failed {
        /// The whole command.
        command: String,
        /// What it said, or what is missing.
        said: String,
    },
}

impl PerfError {
    /// Whether this system lacks something that others have.
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::NoPerf)
    }
}

/// Runs `perf bench -f simple ARGS` once; a file in `folder` is written for it.
///
/// # Errors
/// [`PerfError`].
pub fn bench(args: &[String], folder: &Path) -> Result<Run, PerfError> {
    let (run, said) = counted(args, folder)?;
    let seconds = seconds(&said).ok_or_else(|| PerfError::Failed {
        command: command_of(args),
        said: format!("it says no time: {said:?}"),
    })?;
    Ok(Run { seconds, ..run })
}

fn command_of(args: &[String]) -> String {
    format!("perf bench -f simple {}", args.join(" "))
}

/// The same but for the time, which may be too short for its three digits; and what it said.
fn counted(args: &[String], folder: &Path) -> Result<(Run, String), PerfError> {
    let counted = folder.join("perf.csv");
    let mut perf = Command::new("perf");
    // In plain English, whatever the user's language is.
    perf.env("LC_ALL", "C").args([
        "stat",
        "-x,",
        "-e",
        "context-switches,cpu-migrations,page-faults",
        "-o",
    ]);
    perf.arg(&counted).args(["--", "perf", "bench", "-f", "simple"]).args(args);
    let command = command_of(args);
    let failed = |said: String| PerfError::Failed { command: command.clone(), said };
    let beside = Beside::begin();
    let out = perf.stdin(Stdio::null()).output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => PerfError::NoPerf,
        _ => PerfError::Run { command: command.clone(), source },
    })?;
    let others = beside.end();
    let said = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        let error = String::from_utf8_lossy(&out.stderr);
        let last = error.lines().chain(said.lines()).rfind(|l| !l.trim().is_empty());
        return Err(failed(last.unwrap_or("it failed and said nothing").trim().to_owned()));
    }
    let text = fs::read_to_string(&counted)
        .map_err(|source| PerfError::Run { command: command.clone(), source })?;
    let count = |event| {
        counter(&text, event).ok_or_else(|| failed(format!("perf stat does not count {event}")))
    };
    let run = Run {
        seconds: 0.0,
        switches: count("context-switches")?,
        migrations: count("cpu-migrations")?,
        faults: count("page-faults")?,
        others,
    };
    Ok((run, said.into_owned()))
}

/// What a process is that `perf bench` forks. Nothing of it is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked {
    /// Mappings that it has.
    pub maps: u64,
    /// Pages that it takes a fault for, from the fork to its end.
    pub faults: u64,
}

/// Processes of one group of `messaging`.
const OF_GROUP: u64 = 40;
/// Round trips that last long enough to look at who makes them.
const LOOKED_AT: &str = "50000";

/// Counts what the kernel knows of processes that `perf bench` forks: the faults of a group of processes that send one message
/// each, less those of as many threads; and how many mappings `perf` has while it runs another benchmark.
///
/// # Errors
/// [`PerfError`].
pub fn forked(folder: &Path) -> Result<Forked, PerfError> {
    let group = |threads: &[&str]| {
        let words = ["sched", "messaging", "-g", "1", "-l", "1"].iter().chain(threads);
        counted(&words.map(|&w| w.to_owned()).collect::<Vec<_>>(), folder)
    };
    let (processes, threads) = (group(&[])?.0.faults, group(&["-t"])?.0.faults);
    let faults = processes.saturating_sub(threads) / OF_GROUP;
    let args = ["bench", "-f", "simple", "sched", "pipe", "-l", LOOKED_AT];
    let command = format!("perf {}", args.join(" "));
    let mut perf = Command::new("perf");
    perf.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = perf.spawn().and_then(|mut child| {
        // It is done loading when it has had the most of them.
        let (mut maps, file) = (0, format!("/proc/{}/maps", child.id()));
        while child.try_wait()?.is_none() {
            let now = fs::read_to_string(&file).map_or(0, |text| text.lines().count());
            maps = maps.max(now as u64);
            thread::sleep(Duration::from_millis(5));
        }
        Ok(maps)
    });
    match begun {
        Ok(0) => Err(PerfError::Failed { command, said: "it has no mappings".to_owned() }),
        Ok(maps) => Ok(Forked { maps, faults }),
        Err(source) => Err(PerfError::Run { command, source }),
    }
}

/// What others take of the CPUs while something of ours runs.
#[derive(Debug)]
pub struct Beside {
    busy: Option<Duration>,
    own: Duration,
    began: Instant,
}

impl Beside {
    /// From now on.
    pub fn begin() -> Self {
        Self { busy: busy(), own: children(), began: Instant::now() }
    }
    /// CPU time that all CPUs were busy since and not for our children that have ended, and all CPU time there was.
    pub fn end(self) -> [Duration; 2] {
        let took = self.began.elapsed();
        let own = children().saturating_sub(self.own);
        let of = |(after, before): (Duration, Duration)| {
            after.saturating_sub(before).saturating_sub(own)
        };
        [busy().zip(self.busy).map_or(Duration::ZERO, of), took * online_cpus()]
    }
}

/// The one number of the simple format.
fn seconds(said: &str) -> Option<f64> {
    said.lines().rev().find_map(|line| line.trim().parse().ok()).filter(|s: &f64| *s > 0.0)
}

/// A counter of `perf stat -x,`: its value stands first, the event third.
fn counter(text: &str, event: &str) -> Option<u64> {
    let of = |line: &str| {
        let mut fields = line.split(',');
        let value = fields.next()?.parse().ok()?;
        (fields.nth(1)?.split(':').next()? == event).then_some(value)
    };
    text.lines().find_map(of)
}

/// CPU time of all CPUs that was not idle, as `/proc/stat` counts it.
fn busy() -> Option<Duration> {
    busy_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn busy_of(stat: &str) -> Option<Duration> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().map_while(|t| t.parse().ok()).collect();
    // user, nice, system, then idle and waiting for I/O, then interrupts and softirqs; what
    // other virtual machines took is nobody's here.
    let ticks: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| times.get(i)).sum();
    (times.len() >= 7).then(|| Duration::from_millis(ticks * 10))
}

/// CPU time of all our children that have ended.
fn children() -> Duration {
    let usage = child::usage(libc::RUSAGE_CHILDREN);
    Duration::from_nanos(child::ns(usage.ru_utime) + child::ns(usage.ru_stime))
}

/// CPUs that are online.
fn online_cpus() -> u32 {
    // SAFETY: only asks.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(n).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_prints_is_read() {
        assert_eq!(seconds("0.763\n"), Some(0.763));
        assert_eq!(seconds("# Running 'sched/pipe' benchmark:\n\n1.5\n"), Some(1.5));
        for no in ["", "nothing", "0.0\n", "-1\n"] {
            assert_eq!(seconds(no), None, "{no:?}");
        }
        let text = "# started on Mon\n\n40003,,context-switches,153648000,100.00,,\n\
                    7,,cpu-migrations:u,153648000,100.00,,\n<not counted>,,faults,0,0.0,,\n";
        assert_eq!(counter(text, "context-switches"), Some(40_003));
        assert_eq!(counter(text, "cpu-migrations"), Some(7));
        assert_eq!(counter(text, "faults"), None);
        assert_eq!(counter(text, "context"), None);
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        let stat = "cpu  100 20 30 4000 500 6 7 800 9 10\ncpu0 1 1 1 1\n";
        assert_eq!(busy_of(stat), Some(Duration::from_millis(1630)));
        assert_eq!(busy_of("cpu  1 2 3 4\n"), None);
        assert_eq!(busy_of(""), None);
    }

    /// Each that is forked loads nothing anew, and still has pages of its own to write to.
    #[test]
    fn processes_that_perf_forks_have_mappings_and_take_faults() {
        let folder = std::env::temp_dir().join(format!("homenode-forked-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let found = forked(&folder);
        fs::remove_dir_all(&folder).expect("as it was");
        match found {
            Ok(Forked { maps, faults }) => {
                assert!(
                    (10..10_000).contains(&maps) && (10..10_000).contains(&faults),
                    "{found:?}"
                );
            }
            Err(why) => eprintln!("skipped: {why}"),
        }
    }

    #[test]
    fn a_benchmark_that_is_none_says_so() {
        let run = bench(&["sched".into(), "no-such-thing".into()], &std::env::temp_dir());
        match run {
            Err(PerfError::NoPerf) => eprintln!("skipped: there is no perf"),
            Err(PerfError::Failed { command, said }) => {
                assert!(command.contains("no-such-thing") && !said.is_empty(), "{said}");
            }
            other => panic!("{other:?}"),
        }
    }
}
