//! Scheduler statistics: every counter of the kernel's, what updates it, and its three files.
//!
//! ```text
//!  what happens ─▶ rules (task, cpu) ─▶ TaskStats, CpuStats, DomainStats, SchedInfo
//!                     ▲                      │ write            ▲ parse
//!                   Switch                   ▼                  │
//!                                 /proc/schedstat, /proc/PID/schedstat, /proc/PID/sched
//!                                                               │ since
//!                                                               ▼
//!                                               Change: what was counted in between
//! ```
//!
//! Times are nanoseconds of the clock of the CPU where something happens, stamps too. A stamp of 0
//! means that there is none, as in the kernel: a clock that begins at 0 loses what is stamped then.
//!
//! What waits is counted twice. `wait_*` of a task ([`TaskStats`]) needs the switch and sees a
//! task whose dequeue is delayed as one that waits; `run_delay` ([`SchedInfo`]) is always live,
//! and does not. Example, in ms: a task is woken at 0, runs at 4, is preempted at 10, runs at 14
//! and sleeps at 20: `wait_sum` is 8 in 2 waits, and so is `run_delay`. If its dequeue is delayed
//! at 20 until it is picked and taken out at 26, `wait_sum` is 14 in 3 waits, the longest 6, and
//! `run_delay` is still 8.
//!
//! Off is one test of a flag: the rules of the switch don't look at it, whoever calls them asks
//! [`Switch::on`] first. Those of [`SchedInfo`] are always called.
//!
//! Source: specs/schedstats.md.

mod counter;
mod cpu;
mod line;
mod schedstat;
mod since;
mod switch;
mod task;
mod task_sched;

mod scan;

#[cfg(test)]
mod tests;

pub use counter::{Counter, Counters, Kind, Of, Unit};
pub use cpu::{CpuStats, DomainStats, IdleType, LbStats, Migration};
pub use line::{TaskLine, TaskStats};
pub use scan::StatsError;
pub use schedstat::{
    INITIAL_JIFFIES, Schedstat, SchedstatCpu, SchedstatDomain, TaskSchedstat, write_cpu,
    write_domain, write_header, write_task_schedstat,
};
pub use since::{Change, CpuChange, DomainChange, SchedstatChange, TaskChange};
pub use switch::{Switch, Switched};
pub use task::{Refused, SchedInfo, Sleep, Slept, Wakeup};
pub use task_sched::{NumaFaultsShown, NumaShown, TaskSched};

use crate::kernel::KernelVersion;

crate::named! {
    /// Version of `/proc/schedstat`, by which its columns are known.
    ///
    /// Source: specs/schedstats.md#schedstat.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Version {
        /// Linux 6.1: of a domain's three groups the idle one first.
        V15 => "15",
        /// Linux 6.12: the busy one first.
        V16 => "16",
        /// Linux 7.3: domains have names, and imbalances are told apart.
        V17 => "17",
    }
}

impl Version {
    /// The version that a kernel prints.
    pub const fn of(kernel: KernelVersion) -> Self {
        match kernel {
            KernelVersion::V3_8
            | KernelVersion::V4_5
            | KernelVersion::V4_15
            | KernelVersion::V5_18
            | KernelVersion::V6_1 => Self::V15,
            KernelVersion::V6_12 => Self::V16,
            KernelVersion::V7_3 => Self::V17,
        }
    }
}

/// A file of scheduler statistics, recognised by its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsFile {
    /// `/proc/schedstat`: by CPU and domain.
    Schedstat(Schedstat),
    /// `/proc/PID/sched`: a task.
    TaskSched(Box<TaskSched>),
    /// `/proc/PID/schedstat`: three numbers of a task.
    TaskSchedstat(TaskSchedstat),
}

impl StatsFile {
    /// Reads a text, whichever of the three it is.
    ///
    /// # Errors
    /// [`StatsError`] with the line, if it is none of them or not exactly as the kernel prints it.
    ///
    /// Source: specs/schedstats.md#strict.
    pub fn parse(text: &str) -> Result<Self, StatsError> {
        Self::parse_lines(text).map_err(|e| match scan::carriage_return(text) {
            // A name may have one, so it is the reason only where the text can't be read.
            Some(line) => StatsError::new(
                line,
                "this line ends in CR LF, as on Windows, where the kernel prints LF alone; the text \
                 was changed on its way (dos2unix undoes that)",
            ),
            None => e,
        })
    }

    fn parse_lines(text: &str) -> Result<Self, StatsError> {
        let first = text.split('\n').next().unwrap_or_default();
        // First of all, since a task may be named `version 16` or `1 2 3`.
        if first.contains(", #threads: ") || TaskSched::has_rule(text) {
            return TaskSched::parse(text).map(|t| Self::TaskSched(Box::new(t)));
        }
        if first.starts_with("version") {
            return Schedstat::parse(text).map(Self::Schedstat);
        }
        let digits = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        if !first.is_empty() && first.split(' ').all(digits) {
            return TaskSchedstat::parse(text).map(Self::TaskSchedstat);
        }
        if text.is_empty() {
            return Err(StatsError::new(1, "the text is empty"));
        }
        Err(StatsError::new(
            1,
            "neither /proc/schedstat, which begins with `version`, nor /proc/PID/sched, which begins \
             with the task's name, nor the three numbers of /proc/PID/schedstat",
        ))
    }
}
