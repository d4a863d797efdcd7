//! The lines of `/proc/PID/sched`, each declared once; those of the switch are what a task has in
//! [`TaskStats`].

use super::Version;
use super::counter::{
    ALWAYS, Counter, Counters, FROM_16, FROM_17, Kind, NEVER, ONLY_15, Of, TO_16, Unit,
};

/// Lines that are there together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Always there.
    Must,
    /// There while the switch is on.
    Stats,
    /// There while the switch is on, up to 6.12.
    Unused,
    /// There while the switch is on, in kernels with core scheduling.
    Core,
    /// Averages of a kernel for several CPUs.
    Smp,
    /// The estimate of utilisation, in two parts.
    TwoEstimates,
    /// The estimate of utilisation, in one.
    OneEstimate,
    /// Kernels with utilisation clamping.
    Uclamp,
    /// Tasks of the deadline class.
    Deadline,
    /// Tasks of the fair class.
    Fair,
    /// Kernels with `sched_ext`.
    Ext,
    /// Tasks with an address space, in kernels that balance memory.
    Mm,
    /// Kernels that balance memory.
    Numa,
}

impl Group {
    /// Whether lines of it are printed only while the switch is on.
    pub(super) const fn is_of_switch(self) -> bool {
        matches!(self, Self::Stats | Self::Unused | Self::Core)
    }
}

/// Declares the lines in their order: the struct of those that the switch has, and the enum of all.
///
/// A row is `Variant "printed name": kind unit group versions`, and with a field's name for those
/// of the switch, below the sentences of what it says.
macro_rules! lines {
    (
        before { $($(#[doc = $doc0:literal])* $Line0:ident $name0:literal: $kind0:ident $unit0:ident $group0:ident $printed0:ident,)* }
        stats { $($(#[doc = $doc1:literal])* $Line1:ident $field:ident: $kind1:ident $unit1:ident $group1:ident $printed1:ident,)* }
        after { $($(#[doc = $doc2:literal])* $Line2:ident $name2:literal: $kind2:ident $unit2:ident $group2:ident $printed2:ident,)* }
    ) => {
        /// What is counted of a task while the switch is on; of a group of tasks the waits,
        /// `exec_max` and `slice_max`.
        ///
        /// The fields are in the order in which `/proc/PID/sched` prints them.
        ///
        /// Source: specs/schedstats.md#task.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TaskStats {
            $($(#[doc = $doc1])* pub $field: u64,)*
        }

        /// A line of `/proc/PID/sched` with a name and a number, in the order of printing.
        ///
        /// Source: specs/schedstats.md#sched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum TaskLine {
            $($(#[doc = $doc0])* $Line0,)*
            $($(#[doc = $doc1])* $Line1,)*
            $($(#[doc = $doc2])* $Line2,)*
        }

        impl TaskLine {
            /// All lines, in the order of printing.
            pub const ALL: [Self; LINES.len()] = [$(Self::$Line0,)* $(Self::$Line1,)* $(Self::$Line2,)*];
        }

        const LINES: [(Counter, Group); [$($name0,)* $(stringify!($field),)* $($name2,)*].len()] = [
            $(row($name0, Kind::$kind0, Unit::$unit0, $printed0, concat!($($doc0),*), Group::$group0),)*
            $(row(stringify!($field), Kind::$kind1, Unit::$unit1, $printed1, concat!($($doc1),*), Group::$group1),)*
            $(row($name2, Kind::$kind2, Unit::$unit2, $printed2, concat!($($doc2),*), Group::$group2),)*
        ];

        impl TaskStats {
            /// The line that prints each of them, in their order.
            pub const LINES: [TaskLine; [$(stringify!($field)),*].len()] = [$(TaskLine::$Line1),*];
            /// The values in the order of [`TaskStats::LINES`].
            pub fn values(&self) -> [u64; Self::LINES.len()] {
                [$(self.$field),*]
            }
            /// Sets the values, in the order of [`TaskStats::LINES`].
            pub fn set_values(&mut self, values: [u64; Self::LINES.len()]) {
                [$(self.$field),*] = values;
            }
        }
    };
}

const fn row(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    printed: &'static [Version],
    about: &'static str,
    group: Group,
) -> (Counter, Group) {
    (
        Counter { name, of: Of::Task, unit, kind, bits: 64, printed, about: about.trim_ascii() },
        group,
    )
}

impl TaskLine {
    /// What is known of it.
    pub const fn counter(self) -> &'static Counter {
        &LINES[self as usize].0
    }
    /// Its name, as printed.
    pub const fn name(self) -> &'static str {
        self.counter().name
    }
    /// Whether the kernels of this version have the line, as Debian builds them: utilisation
    /// clamping and `sched_ext` are in 7.3, core scheduling in none.
    pub fn printed(self, version: Version) -> bool {
        self.counter().printed_in(version)
    }
    pub(super) const fn group(self) -> Group {
        LINES[self as usize].1
    }
}

impl Counters for TaskStats {
    fn counters() -> Vec<Counter> {
        Self::LINES.map(|l| *l.counter()).to_vec()
    }
    fn each(&self) -> Vec<u64> {
        self.values().to_vec()
    }
    fn set_each(&mut self, values: &[u64]) {
        if let Ok(values) = values.try_into() {
            self.set_values(values);
        }
    }
}

lines! {
    before {
        /// The task clock when its runtime was last accounted, or it was picked; 0 after a move to
        /// another CPU.
        ExecStart "se.exec_start": Now Ns Must ALWAYS,
        /// Virtual runtime of the fair class.
        Vruntime "se.vruntime": Now Ns Must ALWAYS,
        /// Time that it ran.
        SumExecRuntime "se.sum_exec_runtime": Sum Ns Must ALWAYS,
        /// How often its CPU changed.
        NrMigrations "se.nr_migrations": Sum Count Must ALWAYS,
    }
    stats {
        /// Time asleep, interruptible or not: added at each wake-up.
        SumSleepRuntime sum_sleep_runtime: Sum Ns Stats ALWAYS,
        /// Time asleep uninterruptibly (blocked): added at each wake-up.
        SumBlockRuntime sum_block_runtime: Sum Ns Stats ALWAYS,
        /// When it began to wait; while it is moved to another CPU the time waited so far; 0 while it
        /// doesn't wait.
        WaitStart wait_start: Now Ns Stats ALWAYS,
        /// When it was taken from the queue to sleep interruptibly; 0 while it doesn't.
        SleepStart sleep_start: Now Ns Stats ALWAYS,
        /// When it was taken from the queue to sleep uninterruptibly; 0 while it doesn't.
        BlockStart block_start: Now Ns Stats ALWAYS,
        /// The longest sleep, interruptible.
        SleepMax sleep_max: Max Ns Stats ALWAYS,
        /// The longest sleep, uninterruptible.
        BlockMax block_max: Max Ns Stats ALWAYS,
        /// The longest stretch of runtime accounted at once: at ticks, switches, wake-ups.
        ExecMax exec_max: Max Ns Stats ALWAYS,
        /// The longest run before it was picked again, seen when the queue's weight is at least
        /// twice its own.
        SliceMax slice_max: Max Ns Stats ALWAYS,
        /// The longest wait.
        WaitMax wait_max: Max Ns Stats ALWAYS,
        /// Time waited: added when it is picked, or leaves the queue while it waits.
        WaitSum wait_sum: Sum Ns Stats ALWAYS,
        /// Number of waits.
        WaitCount wait_count: Sum Count Stats ALWAYS,
        /// Time blocked for I/O: added at a wake-up from block with `in_iowait`.
        IowaitSum iowait_sum: Sum Ns Stats ALWAYS,
        /// Number of blocks for I/O.
        IowaitCount iowait_count: Sum Count Stats ALWAYS,
        /// Nothing updates it.
        NrMigrationsCold nr_migrations_cold: Sum Count Unused TO_16,
        /// Times that balancing left it since it may not run on the CPU that pulls.
        NrFailedMigrationsAffine nr_failed_migrations_affine: Sum Count Stats ALWAYS,
        /// Times that balancing left it since it was running.
        NrFailedMigrationsRunning nr_failed_migrations_running: Sum Count Stats ALWAYS,
        /// Times that balancing left it since it was cache-hot; also where it would have been taken
        /// in spite of that and was too large.
        NrFailedMigrationsHot nr_failed_migrations_hot: Sum Count Stats ALWAYS,
        /// Times that balancing took it though it was cache-hot.
        NrForcedMigrations nr_forced_migrations: Sum Count Stats ALWAYS,
        /// Wake-ups.
        NrWakeups nr_wakeups: Sum Count Stats ALWAYS,
        /// Those whose waker said that it is about to sleep (sync).
        NrWakeupsSync nr_wakeups_sync: Sum Count Stats ALWAYS,
        /// Those that changed its CPU.
        NrWakeupsMigrate nr_wakeups_migrate: Sum Count Stats ALWAYS,
        /// Those that put it on the waker's CPU.
        NrWakeupsLocal nr_wakeups_local: Sum Count Stats ALWAYS,
        /// Those that put it on another CPU than the waker's.
        NrWakeupsRemote nr_wakeups_remote: Sum Count Stats ALWAYS,
        /// Evaluations of `wake_affine` that chose the waker's CPU.
        NrWakeupsAffine nr_wakeups_affine: Sum Count Stats ALWAYS,
        /// Evaluations of `wake_affine`.
        NrWakeupsAffineAttempts nr_wakeups_affine_attempts: Sum Count Stats ALWAYS,
        /// Nothing updates it.
        NrWakeupsPassive nr_wakeups_passive: Sum Count Unused TO_16,
        /// Nothing updates it.
        NrWakeupsIdle nr_wakeups_idle: Sum Count Unused TO_16,
    }
    after {
        /// Runtime by switch; −1, printed as 0.000001, if there was none. Only with the
        /// switch.
        AvgAtom "avg_atom": Now Ns Stats ALWAYS,
        /// Runtime by change of CPU; −1, printed as 0.000001, if there was none. Only with
        /// the switch.
        AvgPerCpu "avg_per_cpu": Now Ns Stats ALWAYS,
        /// Time that siblings were kept idle for it, by core scheduling. Only with the switch.
        CoreForceidleSum "core_forceidle_sum": Sum Ns Core NEVER,
        /// Times that it left a CPU.
        NrSwitches "nr_switches": Sum Count Must ALWAYS,
        /// Those where it went to sleep.
        NrVoluntarySwitches "nr_voluntary_switches": Sum Count Must ALWAYS,
        /// Those where another one took its place.
        NrInvoluntarySwitches "nr_involuntary_switches": Sum Count Must ALWAYS,
        /// Its weight, scaled by 1024.
        LoadWeight "se.load.weight": Now Count Must ALWAYS,
        /// Sum of its load (PELT).
        LoadSum "se.avg.load_sum": Now Count Smp ALWAYS,
        /// Sum of the time that it was runnable (PELT).
        RunnableSum "se.avg.runnable_sum": Now Count Smp ALWAYS,
        /// Sum of the time that it ran (PELT).
        UtilSum "se.avg.util_sum": Now Count Smp ALWAYS,
        /// Average load (PELT).
        LoadAvg "se.avg.load_avg": Now Count Smp ALWAYS,
        /// Average share of time runnable, of 1024 (PELT).
        RunnableAvg "se.avg.runnable_avg": Now Count Smp ALWAYS,
        /// Average share of time running, of 1024 (PELT).
        UtilAvg "se.avg.util_avg": Now Count Smp ALWAYS,
        /// When the averages were last updated, of their clock.
        LastUpdateTime "se.avg.last_update_time": Now NsWhole Smp ALWAYS,
        /// Estimated utilisation, moving average.
        UtilEstEwma "se.avg.util_est.ewma": Now Count TwoEstimates ONLY_15,
        /// Estimated utilisation at the last dequeue.
        UtilEstEnqueued "se.avg.util_est.enqueued": Now Count TwoEstimates ONLY_15,
        /// Estimated utilisation.
        UtilEst "se.avg.util_est": Now Count OneEstimate FROM_16,
        /// Requested lower clamp of utilisation.
        UclampMin "uclamp.min": Now Count Uclamp FROM_17,
        /// Requested upper clamp of utilisation.
        UclampMax "uclamp.max": Now Count Uclamp FROM_17,
        /// Lower clamp of utilisation that holds.
        EffectiveUclampMin "effective uclamp.min": Now Count Uclamp FROM_17,
        /// Upper clamp of utilisation that holds.
        EffectiveUclampMax "effective uclamp.max": Now Count Uclamp FROM_17,
        /// Scheduling policy by number: 0 normal, 1 FIFO, 2 round robin, 3 batch, 5 idle, 6 deadline.
        Policy "policy": Now Count Must ALWAYS,
        /// Priority: 120 and its nice value in the fair class, less in others.
        Prio "prio": Now Count Must ALWAYS,
        /// Runtime of a deadline task.
        DlRuntime "dl.runtime": Now NsWhole Deadline ALWAYS,
        /// Deadline of a deadline task.
        DlDeadline "dl.deadline": Now NsWhole Deadline ALWAYS,
        /// Slice of a fair task.
        Slice "se.slice": Now NsWhole Fair FROM_16,
        /// 1 for a task that a `sched_ext` scheduler has.
        ExtEnabled "ext.enabled": Now Count Ext FROM_17,
        /// What reading the clock takes.
        ClockDelta "clock-delta": Now NsWhole Must ALWAYS,
        /// Scans of its memory that were completed; not for tasks without an address space.
        NumaScanSeq "mm->numa_scan_seq": Now Count Mm ALWAYS,
        /// Pages that hint faults of it have moved.
        NumaPagesMigrated "numa_pages_migrated": Sum Count Numa ALWAYS,
        /// The node that it prefers; −1: none.
        NumaPreferredNid "numa_preferred_nid": Now Count Numa ALWAYS,
        /// Hint faults, decayed.
        TotalNumaFaults "total_numa_faults": Now Count Numa ALWAYS,
    }
}
