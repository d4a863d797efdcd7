//! What tasks did, as far as a scheduler is concerned: how long each ran, what it waited for, whom
//! it woke, started, and when it ended. Times are what the tasks took themselves, without waiting
//! for a CPU, so that another scheduler may order them otherwise.
//!
//! ```text
//!  task 0   run 2 ms · fork 1 · wait for wake 0 ───────────┐ run 1 ms · exit
//!  task 1              run 5 ms · sleep 1 ms · run 1 ms · wake 0 · exit
//! ```
//!
//! Source: specs/record-sched.md#lives.

use super::fair::SchedPolicy;
use crate::units::CpuId;

crate::named! {
    /// What a task that doesn't run waits for, by what it was doing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Blocked {
        /// Nobody knows.
        #[default]
        Other = 0 => "other",
        /// A sleep, a timer.
        Timer = 1 => "timer",
        /// A futex: a lock, a condition variable, a join.
        Futex = 2 => "futex",
        /// A pipe.
        Pipe = 3 => "pipe",
        /// A socket.
        Socket = 4 => "socket",
        /// One of several files: poll, select, epoll.
        Poll = 5 => "poll",
        /// A child.
        Child = 6 => "child",
        /// A signal.
        Signal = 7 => "signal",
        /// A disk, or what is counted as waiting for one.
        Disk = 8 => "disk",
        /// Memory, in a page fault.
        Fault = 9 => "fault",
    }
}

impl Blocked {
    /// Whether who wakes is about to wait itself, so that the kernel's wake-up is a synchronous
    /// one (`WF_SYNC`): the calls of pipes and sockets.
    pub const fn is_sync(self) -> bool {
        match self {
            Self::Pipe | Self::Socket => true,
            Self::Other
            | Self::Timer
            | Self::Futex
            | Self::Poll
            | Self::Child
            | Self::Signal
            | Self::Disk
            | Self::Fault => false,
        }
    }
}

/// A way of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// What for.
    pub what: Blocked,
    /// In uninterruptible sleep.
    pub uninterruptible: bool,
    /// It counts as waiting for I/O.
    pub iowait: bool,
}

/// Something that a task did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It ran for so long, in nanoseconds on a CPU of full capacity.
    Run(u64),
    /// It waited until that wake-up had happened; if it has already, it goes on.
    Await {
        /// The wake-up's number.
        wake: u32,
        /// How.
        on: Wait,
    },
    /// It waited for so long, in nanoseconds, for what no other task here did.
    Rest {
        /// How long.
        ns: u64,
        /// How.
        on: Wait,
    },
    /// It woke another: that wake-up has happened.
    Wake {
        /// The wake-up's number.
        wake: u32,
        /// The kernel was told that the waker is about to wait.
        sync: bool,
    },
    /// It gave bytes to a pipe or socket.
    Put {
        /// Which, by number.
        object: u32,
        /// How many.
        bytes: u32,
    },
    /// It took bytes, which have to be there.
    Get {
        /// Which, by number.
        object: u32,
        /// How many.
        bytes: u32,
        /// Who had given the last of them: a place among the lives.
        by: u32,
    },
    /// It learned of another's end, which has to have come.
    Join(u32),
    /// It started another: its place among the lives.
    Fork(u32),
    /// It runs another program: the kernel looks for a CPU that is idler.
    Exec,
    /// It has that nice value from now on.
    Nice(i8),
    /// It may run on these CPUs only, from now on.
    Allow(Vec<CpuId>),
}

/// What one task did, from its beginning to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its name.
    pub name: String,
    /// Its thread number while it was recorded.
    pub tid: u32,
    /// Its process's number then.
    pub tgid: u32,
    /// Its nice value at its beginning.
    pub nice: i8,
    /// Its policy.
    pub policy: SchedPolicy,
    /// The CPUs that it may use at its beginning; none: all.
    pub allowed: Vec<CpuId>,
    /// Who starts it: a place among the lives; `None`: it is there when the course begins.
    pub starter: Option<u32>,
    /// What it did, in its order.
    pub steps: Vec<Step>,
}

/// What some tasks did together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// By task.
    pub lives: Vec<Life>,
    /// How many wake-ups there are: their numbers are below that.
    pub wakes: u32,
    /// How many pipes and sockets there are: their numbers are below that.
    pub objects: u32,
}
