//! Scheduling as it was recorded: rows of what happened to tasks, in one Parquet file.
//!
//! ```text
//! kind   time_ns  cpu  task  other  arg
//! run          0    0     0      -    0   the program begins to run on CPU 0
//! fork     81200    0     0      1        it starts task 1
//! stop     90000    0     0      -  wait: futex
//! run      91300    1     1      -    8100  on a CPU that was idle for 8.1 us
//! wake    350000    1     0      1    0   task 1 wakes task 0, itself
//! stop    352000    1     1      -  preempted
//! ```
//!
//! What a reader may rely on:
//!
//! * Tasks are numbered from 0 on, one number for each, whatever its PID; [`Header::tasks`] has what
//!   they are. [`load`] gives rows in the order of their times. A file has them in the order in
//!   which they came, CPU by CPU nearly so.
//! * A `wake` row is written where the kernel decides to wake (`sched_waking`). The task may not
//!   have left its CPU yet: then it does not leave it. What follows from that, [`lives`] finds.
//! * [`Kind::Lost`] says that the kernel had events which did not fit: tasks before it and behind
//!   it may miss rows.
//!
//! `file` writes and reads, `perf` makes rows of `perf script`'s text, `lives` makes a
//! course of rows, `tally` counts where each task's time went.
//!
//! Source: specs/record-sched.md#file.

mod calls;
mod file;
mod lives;
mod perf;
mod tally;
#[cfg(test)]
mod tests;

pub use file::{Writer, is_one, load};
pub use lives::{Charged, Found, lives};
pub use perf::{FIELDS, PerfError, parse_perf};
pub use tally::{Counted, Span, Stage, Tally, spans, tally};

use crate::Ended;
use homenode_core::sched::course::{Blocked, Wait};
use serde::{Deserialize, Serialize};

/// The format that this version writes and reads.
pub const VERSION: u32 = 1;
/// In the place of a task: none that is recorded.
pub const NOBODY: u32 = u32::MAX;
/// The most CPUs whose numbers an `allow` row holds.
pub const ALLOW_CPUS: u32 = 64;

homenode_core::named! {
    /// What a row says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Kind {
        /// The task begins to run on `cpu`. `arg`: for how many nanoseconds that CPU had been idle; 0:
        /// it came from another task.
        Run = 0 => "run",
        /// The task runs no more. `arg`: a [`Stop`].
        Stop = 1 => "stop",
        /// The task is woken on CPU `cpu`, by `other` ([`NOBODY`]: by none that is recorded). `arg`: a [`Context`].
        Wake = 2 => "wake",
        /// The task starts the task `other`.
        Fork = 3 => "fork",
        /// The task runs another program.
        Exec = 4 => "exec",
        /// The task is about to end.
        Exit = 5 => "exit",
        /// The task has another nice value: `arg`, as a number with a sign.
        Nice = 6 => "nice",
        /// The task has another policy: `arg`, the kernel's number.
        Policy = 7 => "policy",
        /// The task may use these CPUs: bits of `arg`, up to CPU 63.
        Allow = 8 => "allow",
        /// `arg` events since the last such row, or the beginning, are missing.
        Lost = 9 => "lost",
        /// The task has given bytes to the pipe or socket `other`, a number that no task has to do with. `arg`: how
        /// many in the low 32 bits; above, for how many nanoseconds it was in the call.
        Put = 10 => "put",
        /// The task has taken bytes from it. `arg` likewise.
        Get = 11 => "get",
        /// The task has learned of the end of the task `other`. `arg` likewise, without bytes.
        Join = 12 => "join",
    }
}

homenode_core::named! {
    /// Where the kernel was when it woke a task.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Context {
        /// In a task: it woke by itself.
        Task = 0 => "task",
        /// In a softirq, which a task's own call or an interrupt had raised.
        Softirq = 1 => "softirq",
        /// In an interrupt.
        Interrupt = 2 => "interrupt",
    }
}

/// Something that happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What.
    pub kind: Kind,
    /// When, in nanoseconds since recording began.
    pub time_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// Whose.
    pub task: u32,
    /// Another task.
    pub other: u32,
    /// By kind.
    pub arg: u64,
}

/// Why a task does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another has its CPU; it would run on.
    Preempted,
    /// It waits.
    Waits(Wait),
    /// It has ended.
    Dead,
}

impl Stop {
    /// As an `arg`.
    pub fn to_arg(self) -> u64 {
        match self {
            Self::Preempted => 0,
            Self::Dead => 1,
            Self::Waits(w) => {
                2 | u64::from(w.uninterruptible) << 2
                    | u64::from(w.iowait) << 3
                    | (w.what as u64) << 8
            }
        }
    }
    /// Of an `arg`; `None` for what nobody writes.
    pub fn from_arg(arg: u64) -> Option<Self> {
        match arg & 3 {
            0 => Some(Self::Preempted),
            1 => Some(Self::Dead),
            2 => Some(Self::Waits(Wait {
                what: *Blocked::ALL.get((arg >> 8) as usize)?,
                uninterruptible: arg >> 2 & 1 != 0,
                iowait: arg >> 3 & 1 != 0,
            })),
            _ => None,
        }
    }
}

/// A task of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its number among threads, which another may have had before.
    pub tid: u32,
    /// Its process's.
    pub tgid: u32,
    /// Its last name.
    pub name: String,
    /// A thread of the kernel.
    pub kernel: bool,
}

/// What a recording of scheduling says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// `bpf` or `perf script`.
    pub source: String,
    /// The recorded command; empty where all tasks of the system were recorded.
    pub command: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that were online, by number.
    pub cpus: Vec<u32>,
    /// When recording began, in milliseconds since 1970; 0: nobody knows.
    pub began_unix_ms: u64,
    /// How long it lasted, in nanoseconds.
    pub span_ns: u64,
    /// Whether it was recorded to its end.
    pub complete: bool,
    /// How the command ended.
    pub ended: Ended,
    /// Events that the kernel had and that did not fit.
    pub lost: u64,
    /// Tasks that are not recorded, since the kernel's table of tasks was full.
    pub untold_tasks: u64,
    /// Whether it says where the kernel was when it woke a task. Without, a task that ran there woke it.
    pub contexts: bool,
    /// Whether it says what system calls moved.
    #[serde(default)]
    pub calls: bool,
    /// What recording itself took at a switch, at a wake-up and at the end of a call, by its own clock, in
    /// nanoseconds.
    #[serde(default)]
    pub own_ns: [u64; 3],
    /// Tasks by number.
    pub tasks: Vec<Task>,
}

impl Header {
    /// The program's name, or what was recorded.
    pub fn name(&self) -> &str {
        match self.command.first() {
            Some(path) => path.rsplit('/').next().unwrap_or(path),
            None => "system",
        }
    }
}
