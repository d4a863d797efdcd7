//! Recording a real program: running it under the recorder and writing what it sends.
//!
//! ```text
//! record() ── runs CMD natively, for its times, and for how long it waits for what is outside
//!          ── runs qemu-x86_64 -plugin libhomenode_recorder.so CMD
//!                       │ frames, through one pipe for all its processes
//!          ◀────────────┘
//!          ── rows, row group by row group ──▶ FILE.partial ──▶ FILE
//! ```
//!
//! Data accesses go through the machine's L1, L2, last level and TLB: L1, L2 and TLB
//! are a thread's own, the last level a process's own. What the model leaves out
//! stands in the recorder's documentation, the file's format in `homenode_trace`.
//!
//! A slice is bounded in instructions of all tasks together or in native CPU time
//! ([`Mark`]). Before it the caches are kept warm and only changes of address spaces are
//! recorded; at its end the program is ended. Tasks look at the common count every
//! 2^18 instructions, so a slice's ends are that exact for each task.
//!
//! Where a signal ends a process, what its threads had not sent is taken from files that they
//! share with us. Who of them waits for whom is recorded (specs/waits.md); how long is not,
//! but for what is outside of the program: as long as natively.

mod child;
mod drain;
mod error;
mod native;
mod outside;
mod program;
mod run;
mod shares;

pub use error::RecordError;
pub use run::record;

use homenode_core::costs::Cost;
use homenode_core::topology::{Cache, Hardware};
use homenode_core::units::count;
use homenode_trace::model::Geometry;
use homenode_trace::{CacheModel, Ended, Header, Native};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A point in a program's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Instructions of all its tasks.
    Insns(u64),
    /// CPU time that it would have used natively, in nanoseconds. Its instructions
    /// are counted in a run of its own before, and taken to be spread evenly.
    NativeNs(u64),
}

impl Mark {
    /// Reads `2G`, `500M`, `10k` (instructions, powers of ten) or `10s`, `250ms`
    /// (native CPU time). Returns `None` for anything else, also for what is
    /// beyond 2^63.
    pub fn parse(s: &str) -> Option<Mark> {
        let digits = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
        let (number, unit) = s.split_at(digits);
        let scale: u64 = match unit {
            "" => 1,
            "k" | "K" => 1_000,
            "M" | "ms" => 1_000_000,
            "G" | "s" => 1_000_000_000,
            "T" => 1_000_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || part.contains('.') || (part.is_empty() && number.contains('.')) {
            return None;
        }
        let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
        let mut place = scale;
        for d in part.bytes() {
            place /= 10;
            value = value.checked_add(u64::from(d - b'0') * place)?;
        }
        let value = Some(value).filter(|v| *v < 1 << 63)?;
        Some(if unit.ends_with('s') { Mark::NativeNs(value) } else { Mark::Insns(value) })
    }
}

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments; the program is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// Where the recording goes.
    pub output: PathBuf,
    /// The machine whose caches are modelled.
    pub machine: Hardware,
    /// What the program reads as its standard input; `None`: nothing.
    pub stdin: Option<PathBuf>,
    /// How often to run it natively at most, 0 to 3: a second and third time only
    /// where one takes less than a second. Where it is run, and waits, or has several tasks, it
    /// is run by itself for these too. The program's effects happen each time.
    pub native_runs: u32,
    /// Whether what the recorded run prints is dropped.
    pub quiet: bool,
    /// Where the slice begins.
    pub skip: Option<Mark>,
    /// How long the slice is. The program is ended when it is full.
    pub length: Option<Mark>,
    /// The plugin; `None`: `$HOMENODE_RECORDER`, or beside the running executable.
    pub plugin: Option<PathBuf>,
}

impl Options {
    /// A whole recording of `command`, on `machine`, to `output`.
    pub fn new(command: Vec<OsString>, output: PathBuf, machine: Hardware) -> Self {
        Self {
            command,
            output,
            machine,
            stdin: None,
            native_runs: 3,
            quiet: false,
            skip: None,
            length: None,
            plugin: None,
        }
    }
}

/// What is going on, told several times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The program runs natively.
    Native {
        /// Which run, from 1.
        run: u32,
    },
    /// It runs by itself once more, with its tasks told apart.
    Shares,
    /// It runs by itself once more, and what it waits for is timed.
    Waits,
    /// Its instructions are counted, because a slice is given in time.
    Counting,
    /// It is being recorded.
    Recording {
        /// Time on the clock since it started.
        elapsed_ns: u64,
        /// Rows so far.
        rows: u64,
        /// Instructions so far.
        insns: u64,
        /// Bytes in the file so far.
        bytes: u64,
    },
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The recording.
    pub output: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
    /// What it says about itself.
    pub header: Header,
}

impl Summary {
    /// Recorded against native time on the clock; `None` where that is not known
    /// or only a slice was recorded.
    pub fn slowdown(&self) -> Option<f64> {
        let native = self.header.native.as_ref()?;
        if self.header.ended == Ended::SliceFull || native.wall_ns == 0 {
            return None;
        }
        Some(self.header.recorded_wall_ns as f64 / native.wall_ns as f64)
    }
}

/// Runs a program by itself, reading nothing and with what it prints thrown away; what it took.
///
/// # Errors
/// [`RecordError`] where it can't be started, or was interrupted.
pub fn natively(command: &[OsString]) -> Result<Native, RecordError> {
    let program::Resolved { path, args } = program::resolve(command)?;
    let mut command = Command::new(path);
    command.arg0(&args[0]).args(&args[1..]).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    native::once(&mut command)
}

/// How far runs lie apart in CPU time, as [`Native::spread_ns`] has it.
pub fn spread_ns(runs: &[Native]) -> u64 {
    native::spread_ns(runs)
}

/// The machine's caches as the model takes them: L1, L2 (size 0 where there is
/// none), last level.
fn model(machine: &Hardware) -> Result<[CacheModel; 3], RecordError> {
    let wrong = |what: String| RecordError::Machine { machine: machine.name.clone(), what };
    let cache =
        |c: &Cache| CacheModel { level: c.level, size: c.size.0, ways: c.ways, line: c.line };
    let caches: Vec<CacheModel> = machine.caches.iter().map(cache).collect();
    let (Some(first), Some(last)) = (caches.first(), caches.last()) else {
        return Err(wrong("has no caches, and the recorder models them".to_owned()));
    };
    if caches.len() < 2 {
        return Err(wrong("has one level of cache; the recorder needs two or more".to_owned()));
    }
    for &CacheModel { level, size, ways, line } in &caches {
        if line != 64 {
            let what = format!("has lines of {line} bytes in L{level}; the recorder models 64");
            return Err(wrong(what));
        }
        if ways == 0 || size < u64::from(ways) * 64 || size > 1 << 34 {
            let ways = count(u64::from(ways), "way", "ways");
            return Err(wrong(format!("has an L{level} of {size} bytes and {ways}")));
        }
    }
    // Where others share the last level, a program has a part of it only.
    let mut last = last.clone();
    if let Some(reach) = machine.costs.0.get(&Cost::LlcReach) {
        last.size = last.size.min(reach.value.max(u64::from(last.ways) * 64));
    }
    let none = CacheModel { level: 2, size: 0, ways: 1, line: 64 };
    let second = if caches.len() > 2 { caches[1].clone() } else { none };
    Ok([first.clone(), second, last])
}

/// What the model of a machine's caches is built from, in a recording and elsewhere.
///
/// # Errors
/// [`RecordError::Machine`] where the machine's caches can't be modelled.
pub fn geometry(machine: &Hardware) -> Result<Geometry, RecordError> {
    let [l1, l2, llc] = model(machine)?.map(|c| (c.size, c.ways));
    Ok(Geometry { l1, l2, llc, tlb: tlb_entries(machine) })
}

fn tlb_entries(machine: &Hardware) -> u32 {
    u32::try_from(machine.costs.get(Cost::TlbEntries)).unwrap_or(u32::MAX).clamp(1, 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_instructions_or_time() {
        for (text, want) in [
            ("2G", Some(Mark::Insns(2_000_000_000))),
            ("1.5M", Some(Mark::Insns(1_500_000))),
            ("77", Some(Mark::Insns(77))),
            ("10s", Some(Mark::NativeNs(10_000_000_000))),
            ("0.25s", Some(Mark::NativeNs(250_000_000))),
            ("250ms", Some(Mark::NativeNs(250_000_000))),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1..5G", None),
            ("1.", None),
            ("1.2.3M", None),
            ("9e9", None),
            ("99999999T", None),
            ("99999999999999999999999", None),
            ("10m", None),
        ] {
            assert_eq!(Mark::parse(text), want, "{text}");
        }
    }
}
