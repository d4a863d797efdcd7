//! What tasks do that is about CPUs: computing, waiting for one another, handing work on.
//!
//! ```text
//!  copies of a sender ──write──▶ [[channel]] count = 20 ──read──▶ copies of a receiver
//!                                 group 0, group 1, …             each its own
//! ```
//!
//! Source: specs/workloads.md.

use crate::units::{Bytes, CpuId, Picos};

pub use crate::sched::fair::SchedPolicy;

/// Bytes of a read that takes what is left of a message, however much that is.
pub const REST: u32 = 0;

/// The lowest and the highest nice value.
pub const NICE: (i8, i8) = (-20, 19);

crate::named! {
    /// What tasks wait for one another with.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChannelKind {
        /// A pipe of 16 pages.
        Pipe => "pipe",
        /// A pair of stream sockets of this machine (`AF_UNIX`).
        Socket => "socket",
        /// One direction of a TCP connection over loopback.
        Tcp => "tcp",
        /// A UDP socket that is sent to over loopback: what doesn't fit is lost.
        Udp => "udp",
        /// A futex whose word counts: a wake that nobody waits for is not lost.
        Futex => "futex",
        /// A lock that one task at a time has; who waits for it sleeps.
        Mutex => "mutex",
    }
}

/// Things of one kind by which tasks wait for one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name in steps.
    pub name: String,
    /// What it is.
    pub kind: ChannelKind,
    /// How many of them there are, at least 1.
    pub count: u32,
    /// How many of them make a group, from 1 to `count`.
    pub group: u32,
    /// Of TCP: each message is sent at once (`TCP_NODELAY`), and is acknowledged by the reply. Without it
    /// small messages wait for each other (Nagle), and who has read all acknowledges it.
    pub nodelay: bool,
}

/// Which of the channels of one name a step is about.
///
/// The copies of a process have numbers from 0, and so have a process's threads. A task's own
/// number is copy × threads + thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The one of the task's own number, modulo how many there are.
    #[default]
    Own,
    /// All of the task's group, one after the other, the group's first first. A task's group
    /// has as many tasks as channels.
    Group,
    /// The one of that number.
    Number(u32),
}

/// A device that tasks wait for: a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name in steps.
    pub name: String,
    /// From the submission to the interrupt.
    pub time: DeviceTime,
    /// One request at a time: those that come meanwhile are taken on together when it is over. So the block layer
    /// does with requests that have the disk write its cache back.
    pub gathers: bool,
    /// The CPU that its interrupts go to; `None`: to the one that has submitted the request, as of devices with a
    /// queue for each CPU.
    pub interrupts: Option<CpuId>,
}

/// How long a device takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceTime {
    /// So long.
    Fixed(Picos),
    /// As long as these commands of the machine's disk, one after the other.
    Commands(Vec<Command>),
}

crate::named! {
    /// A command of a disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Command {
        /// Write: `disk_write` of the machine's file.
        Write => "write",
        /// Write the cache back: `disk_flush`.
        Flush => "flush",
    }
}

/// Who takes the end of a request on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The interrupt wakes the task.
    Interrupt,
    /// The interrupt hands it to a kernel worker of its CPU, which works so long and then wakes
    /// the task.
    Worker {
        /// How long, at full speed.
        time: Picos,
        /// Whether it is a queue of high priority (nice −20).
        high: bool,
    },
}

/// A step of a task that is about CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuStep {
    /// Compute: as long as this at full speed.
    Compute {
        /// How long.
        time: Picos,
        /// Where there are any: each time the next of these, and after the last the first, instead.
        times: Vec<Picos>,
        /// It varies by so many thousandths, evenly, to both sides.
        jitter: u32,
        /// What it uses over and over; 0: nothing that a cache keeps for it.
        footprint: Bytes,
    },
    /// Write to a channel: wait while it is full.
    Write {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        to: Which,
        /// Bytes of a message, at least 1.
        bytes: u32,
        /// Where there are any, a message has as many bytes as one of these, each as likely, instead.
        sizes: Vec<u32>,
    },
    /// Read from a channel: wait while it is empty.
    Read {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        from: Which,
        /// Bytes of a message, at least 1; [`REST`]: what is left of the first that is there.
        bytes: u32,
    },
    /// Wait for a futex to be woken, unless it has been already.
    FutexWait {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        which: Which,
    },
    /// Wake those that wait for a futex, so many at most; who comes later and finds it woken
    /// does not wait.
    FutexWake {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        which: Which,
        /// How many, at least 1.
        count: u32,
    },
    /// Take a lock: wait while another task has it.
    Lock {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        which: Which,
    },
    /// Give a lock back that the task has.
    Unlock {
        /// The channel's name.
        channel: String,
        /// Which of that name.
        which: Which,
    },
    /// Hand work to a kernel worker of the CPU that the task runs on (`queue_work` on a bound
    /// queue).
    Work {
        /// What it takes at full speed.
        time: Picos,
        /// Whether the task waits for it (`flush_work`).
        wait: bool,
        /// Whether it is a queue of high priority (nice −20).
        high: bool,
    },
    /// Read from or write to a device, and wait for it.
    Io {
        /// The device's name.
        device: String,
        /// Who takes its end on.
        completion: Completion,
        /// Whether the wait counts as one for I/O (`in_iowait`).
        iowait: bool,
    },
    /// `sched_yield`.
    Yield,
    /// `sched_setaffinity` of the calling task.
    Affinity {
        /// The CPUs that it may run on from now on.
        cpus: Vec<CpuId>,
    },
    /// `execve` of the task's program anew: balancing may move it first, then its mappings go. Of
    /// a process with one thread.
    Exec,
    /// `setpriority` of the calling task.
    Nice {
        /// From −20 to 19.
        nice: i8,
    },
}

impl CpuStep {
    /// The channel that it names, if it is about one, and which of that name.
    pub fn channel(&self) -> Option<(&str, Which)> {
        match self {
            Self::Write { channel, to: which, .. }
            | Self::Read { channel, from: which, .. }
            | Self::FutexWait { channel, which }
            | Self::FutexWake { channel, which, .. }
            | Self::Lock { channel, which }
            | Self::Unlock { channel, which } => Some((channel, *which)),
            Self::Compute { .. }
            | Self::Work { .. }
            | Self::Io { .. }
            | Self::Yield
            | Self::Exec
            | Self::Affinity { .. }
            | Self::Nice { .. } => None,
        }
    }
    /// The kinds of channel that it can be about; none where it is about none.
    pub const fn kinds(&self) -> &'static [ChannelKind] {
        match self {
            Self::Read { bytes: REST, .. } => &[ChannelKind::Tcp, ChannelKind::Udp],
            Self::Write { .. } | Self::Read { .. } => {
                &[ChannelKind::Pipe, ChannelKind::Socket, ChannelKind::Tcp, ChannelKind::Udp]
            }
            Self::FutexWait { .. } | Self::FutexWake { .. } => &[ChannelKind::Futex],
            Self::Lock { .. } | Self::Unlock { .. } => &[ChannelKind::Mutex],
            Self::Compute { .. }
            | Self::Work { .. }
            | Self::Io { .. }
            | Self::Yield
            | Self::Exec
            | Self::Affinity { .. }
            | Self::Nice { .. } => &[],
        }
    }
}
