//! What homenode and the kernel have counted of the same tasks, side by side.
//!
//! ```text
//!  the kernel's files   ▲ read   ▲ read                          ▲ read   ▲ read
//!  homenode                 ▲ begins                                 ▲ ends
//! ```
//!
//! Nothing can be read at the moment at which homenode begins or ends. So each figure of the
//! kernel's is two: at least third less second, at most fourth less first. Where nothing happened
//! between two readings the two are equal, and so must homenode's be.
//!
//! Example: 100, 100 wake-ups before and 140, 141 after: the kernel has 40 or 41. homenode's 40
//! differs by 0, its 43 by 2.
//!
//! Source: specs/schedstats.md#beside.

use super::look::{CpuCounts, Doing, Look, TaskLook};
use super::stats::{CpuStats, Schedstat, TaskLine, TaskSched, Version};
use std::collections::BTreeMap;

/// The kernel's counters at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Of CPUs.
    pub cpus: Schedstat,
    /// Of tasks, by their numbers.
    pub tasks: BTreeMap<u32, TaskSched>,
}

/// Readings around a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// Just before and just after it began.
    pub before: [Reading; 2],
    /// Just before and just after it ended.
    pub after: [Reading; 2],
    /// When the first was read, in ns since boot, with time suspended: who began later had 0.
    pub begun_ns: u64,
}

/// In what a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// How often.
    Count,
}

/// A figure of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The kernel's: at least, at most.
    pub kernel: [u64; 2],
    /// homenode's.
    pub own: u64,
}

impl Pair {
    /// From counters; `None` if one went back, as when somebody sets it to 0.
    fn new(before: [u64; 2], after: [u64; 2], own: u64) -> Option<Self> {
        let least = after[0].checked_sub(before[1])?;
        let most = after[1].checked_sub(before[0])?;
        Some(Self { kernel: [least, most], own })
    }
    /// By how much homenode has more than the kernel at most, or less than it at least.
    pub fn difference(&self) -> i64 {
        let [least, most] = self.kernel;
        let near = self.own.clamp(least.min(most), most);
        self.own.wrapping_sub(near) as i64
    }
    fn add(&mut self, other: &Self) {
        self.kernel[0] += other.kernel[0];
        self.kernel[1] += other.kernel[1];
        self.own += other.own;
    }
}

crate::named! {
    /// What both count of a task.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum TaskFigure {
        /// On a CPU.
        Run => "run_ns",
        /// Runnable and not on a CPU, of waits that ended.
        Wait => "wait_ns",
        /// How many ended.
        Waits => "waits",
        /// Interruptible, of sleeps that ended.
        Sleep => "sleep_ns",
        /// Uninterruptible, of blocks that ended.
        Block => "block_ns",
        /// Of these for I/O.
        Iowait => "iowait_ns",
        /// Wake-ups.
        Wakeups => "nr_wakeups",
        /// To the CPU of the waker.
        WakeupsLocal => "nr_wakeups_local",
        /// To another one.
        WakeupsRemote => "nr_wakeups_remote",
        /// To another one than it was on.
        WakeupsMigrate => "nr_wakeups_migrate",
        /// Changes of its CPU.
        Migrations => "nr_migrations",
        /// Switches because it slept.
        Voluntary => "nr_voluntary",
        /// Switches though it could have run on.
        Involuntary => "nr_involuntary",
    }
}

impl TaskFigure {
    /// In what it is.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Run | Self::Wait | Self::Sleep | Self::Block | Self::Iowait => Unit::Ns,
            Self::Waits
            | Self::Wakeups
            | Self::WakeupsLocal
            | Self::WakeupsRemote
            | Self::WakeupsMigrate
            | Self::Migrations
            | Self::Voluntary
            | Self::Involuntary => Unit::Count,
        }
    }

    fn kernel(self, of: &TaskSched) -> Option<u64> {
        let line = |line| u64::try_from(of.get(line)?).ok();
        match self {
            Self::Run => line(TaskLine::SumExecRuntime),
            Self::Wait => line(TaskLine::WaitSum),
            Self::Waits => line(TaskLine::WaitCount),
            Self::Sleep => {
                line(TaskLine::SumSleepRuntime)?.checked_sub(line(TaskLine::SumBlockRuntime)?)
            }
            Self::Block => line(TaskLine::SumBlockRuntime),
            Self::Iowait => line(TaskLine::IowaitSum),
            Self::Wakeups => line(TaskLine::NrWakeups),
            Self::WakeupsLocal => line(TaskLine::NrWakeupsLocal),
            Self::WakeupsRemote => line(TaskLine::NrWakeupsRemote),
            Self::WakeupsMigrate => line(TaskLine::NrWakeupsMigrate),
            Self::Migrations => line(TaskLine::NrMigrations),
            Self::Voluntary => line(TaskLine::NrVoluntarySwitches),
            Self::Involuntary => line(TaskLine::NrInvoluntarySwitches),
        }
    }

    /// What had begun before the look is left out: the kernel has all of it, or none, since its
    /// switch was off then.
    fn own(self, of: &TaskLook) -> u64 {
        let c = &of.counts;
        match self {
            Self::Run => c.run_ns + if of.doing == Doing::Runs { of.doing_ns } else { 0 },
            Self::Wait => c.wait_ns.saturating_sub(c.before_wait_ns),
            Self::Waits => c.waits.saturating_sub(u64::from(c.before_wait_ns > 0)),
            Self::Sleep => c.sleep_ns.saturating_sub(c.before_sleep_ns),
            Self::Block => c.block_ns.saturating_sub(c.before_block_ns),
            Self::Iowait => c.iowait_ns,
            Self::Wakeups => c.nr_wakeups,
            Self::WakeupsLocal => c.nr_wakeups_local,
            Self::WakeupsRemote => c.nr_wakeups_remote,
            Self::WakeupsMigrate => c.nr_wakeups_migrate,
            Self::Migrations => c.nr_migrations,
            Self::Voluntary => c.nr_voluntary,
            Self::Involuntary => c.nr_involuntary,
        }
    }

    /// The stamps that say of a task, when the look begins, that it is at what this figure is
    /// made of: the kernel will then count from before the look on.
    fn stamps(self) -> &'static [TaskLine] {
        match self {
            Self::Wait | Self::Waits => &[TaskLine::WaitStart],
            Self::Sleep | Self::Block | Self::Iowait => {
                &[TaskLine::SleepStart, TaskLine::BlockStart]
            }
            Self::Run
            | Self::Wakeups
            | Self::WakeupsLocal
            | Self::WakeupsRemote
            | Self::WakeupsMigrate
            | Self::Migrations
            | Self::Voluntary
            | Self::Involuntary => &[],
        }
    }
}

crate::named! {
    /// What both count of a CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum CpuFigure {
        /// Run by tasks.
        Run => "run_ns",
        /// Waited by tasks.
        Wait => "wait_ns",
        /// How often a task got it.
        Timeslices => "timeslices",
        /// Switches to the idle task.
        Idle => "nr_idle",
        /// Wake-ups whose waker ran here.
        Wakeups => "nr_wakeups",
        /// Of those, to this CPU.
        WakeupsLocal => "nr_wakeups_local",
    }
}

impl CpuFigure {
    /// In what it is.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Run | Self::Wait => Unit::Ns,
            Self::Timeslices | Self::Idle | Self::Wakeups | Self::WakeupsLocal => Unit::Count,
        }
    }
    const fn kernel(self, of: &CpuStats) -> u64 {
        match self {
            Self::Run => of.rq_cpu_time,
            Self::Wait => of.run_delay,
            Self::Timeslices => of.pcount,
            Self::Idle => of.sched_goidle,
            Self::Wakeups => of.ttwu_count,
            Self::WakeupsLocal => of.ttwu_local,
        }
    }
    const fn own(self, of: &CpuCounts) -> u64 {
        match self {
            Self::Run => of.run_ns,
            Self::Wait => of.wait_ns,
            Self::Timeslices => of.timeslices,
            Self::Idle => of.nr_idle,
            Self::Wakeups => of.nr_wakeups,
            Self::WakeupsLocal => of.nr_wakeups_local,
        }
    }
}

/// Figures of a task, each as far as both have it.
pub type TaskPairs = [Option<Pair>; TaskFigure::ALL.len()];
/// Figures of a CPU.
pub type CpuPairs = [Option<Pair>; CpuFigure::ALL.len()];

/// A task of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCompared {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// In the order of [`TaskFigure::ALL`]; `None`: the kernel's went back, or has in it what was
    /// before the look.
    pub pairs: TaskPairs,
    /// Slept after a delayed dequeue: the kernel has some or all of it as a wait.
    pub delayed_ns: u64,
    /// How often.
    pub delayed: u64,
}

/// A CPU of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCompared {
    /// Its number.
    pub cpu: u32,
    /// In the order of [`CpuFigure::ALL`]; `None`: the kernel's went back.
    pub pairs: CpuPairs,
}

/// Both sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Of the kernel's files.
    pub version: Version,
    /// Tasks of both, as homenode has them.
    pub tasks: Vec<TaskCompared>,
    /// CPUs, where everybody is looked at.
    pub cpus: Vec<CpuCompared>,
    /// Tasks that are over: what the kernel counted went with them.
    pub over: u64,
    /// Tasks of which the kernel was not read before they were looked at.
    pub late: u64,
}

/// The sum of each figure, of those that have it.
fn sum<const N: usize>(all: impl Iterator<Item = [Option<Pair>; N]>) -> [Option<Pair>; N] {
    let mut out = [None; N];
    for pairs in all {
        for (sum, pair) in out.iter_mut().zip(pairs) {
            if let Some(pair) = pair {
                sum.get_or_insert(Pair::default()).add(&pair);
            }
        }
    }
    out
}

impl Compared {
    /// Puts the two beside each other.
    ///
    /// * `look` – with what tasks were doing at its end not in the sums yet.
    /// * `everybody` – whether all tasks were looked at: else CPUs count others' too.
    pub fn of(look: &Look, readings: &Readings, everybody: bool) -> Self {
        let version = readings.after[1].cpus.version;
        let mut out = Self { version, tasks: Vec::new(), cpus: Vec::new(), over: 0, late: 0 };
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        look.tasks.iter().for_each(|t| *numbers.entry(t.pid).or_default() += 1);
        for task in &look.tasks {
            let read = |reading: &Reading| reading.tasks.contains_key(&task.pid);
            // What was read under its number may be of who has it now.
            let is_other = task.doing == Doing::Ended && numbers[&task.pid] > 1;
            if task.tasks > 1 || is_other || !readings.after.iter().all(read) {
                out.over += task.tasks;
                continue;
            }
            let is_new = task.start_ns >= readings.begun_ns;
            if !is_new && !readings.before.iter().all(read) {
                out.late += 1;
                continue;
            }
            let pairs = TaskFigure::ALL.map(|figure| task_pair(task, readings, figure, is_new));
            out.tasks.push(TaskCompared {
                pid: task.pid,
                comm: task.comm.clone(),
                pairs,
                delayed_ns: task.counts.delayed_ns,
                delayed: task.counts.delayed,
            });
        }
        if everybody {
            let of = |cpu: u32, reading: &Reading| {
                reading.cpus.cpus.iter().find(|c| c.cpu == cpu).map(|c| c.stats)
            };
            for cpu in &look.cpus {
                let read =
                    |two: &[Reading; 2]| Some([of(cpu.cpu, &two[0])?, of(cpu.cpu, &two[1])?]);
                let both = read(&readings.before).zip(read(&readings.after));
                let pairs = CpuFigure::ALL.map(|figure| {
                    let (before, after) = both?;
                    let values = |two: [CpuStats; 2]| two.map(|s| figure.kernel(&s));
                    Pair::new(values(before), values(after), figure.own(&cpu.counts))
                });
                out.cpus.push(CpuCompared { cpu: cpu.cpu, pairs });
            }
        }
        out
    }

    /// All tasks' figures, of those that have each.
    pub fn all_tasks(&self) -> TaskPairs {
        sum(self.tasks.iter().map(|t| t.pairs))
    }

    /// All CPUs' figures.
    pub fn all_cpus(&self) -> CpuPairs {
        sum(self.cpus.iter().map(|c| c.pairs))
    }

    /// How many of the tasks lack one figure at least.
    pub fn incomplete(&self) -> u64 {
        self.tasks.iter().filter(|t| t.pairs.iter().any(Option::is_none)).count() as u64
    }
}

fn task_pair(
    task: &TaskLook,
    readings: &Readings,
    figure: TaskFigure,
    is_new: bool,
) -> Option<Pair> {
    let count = |reading: &Reading| figure.kernel(reading.tasks.get(&task.pid)?);
    let [before, after] = [&readings.before, &readings.after];
    // Its number may have been another's when it was read before.
    let began = if is_new { [0, 0] } else { [count(&before[0])?, count(&before[1])?] };
    let goes_on = |reading: &Reading| {
        let of = reading.tasks.get(&task.pid);
        let stamp = |line| of.and_then(|t| t.get(line)).is_some_and(|s| s != 0);
        figure.stamps().iter().any(|line| stamp(*line))
    };
    if !is_new && before.iter().any(goes_on) {
        return None;
    }
    Pair::new(began, [count(&after[0])?, count(&after[1])?], figure.own(task))
}

#[cfg(test)]
mod tests;
