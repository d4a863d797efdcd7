//! What a look at the scheduler has counted: of tasks, of CPUs, of wake-ups.
//!
//! A look begins and ends. In between every event of the tasks that are meant is counted where it
//! happens. Each task is always in one state, so its times add up to the look's:
//!
//! ```text
//!  task   run │ sleep        │ wait │ run   │ wait │ run │ block │ wait │ run
//!             ▲ begin        ▲ woken        ▲ preempted                       ▲ end
//! ```
//!
//! Example: of 100 ms a task sleeps 60, waits 5 in two waits and runs the rest: run 35.
//!
//! Source: specs/schedstats.md#live.

/// Buckets of a histogram.
pub const BUCKETS: usize = 128;
/// Times below this are one bucket.
const FIRST_NS: u64 = 64;
/// Nodes that wake-ups are told apart by; the last one has those of all above.
pub const NODES: usize = 16;

/// Times by length: four buckets for each doubling, from 64 ns to 137 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// The bucket of a time.
    pub const fn bucket_of(ns: u64) -> usize {
        if ns < FIRST_NS {
            return 0;
        }
        let log = (ns / FIRST_NS).ilog2();
        let at = 1 + 4 * log as usize + (ns >> (log + 4) & 3) as usize;
        if at < BUCKETS { at } else { BUCKETS - 1 }
    }
    /// The least time that is in a bucket.
    pub const fn least(bucket: usize) -> u64 {
        match bucket.checked_sub(1) {
            None => 0,
            Some(at) => (4 + at as u64 % 4) << (at / 4 + 4),
        }
    }
    /// The first time that is above it; `None` of the last bucket, which has all above.
    pub const fn above(bucket: usize) -> Option<u64> {
        if bucket + 1 < BUCKETS { Some(Self::least(bucket + 1)) } else { None }
    }
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }
    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }
    /// The time below which that share of all is, at most a quarter too long; `None` of nothing.
    ///
    /// * `permille` – 500 is the median.
    /// * `max` – the longest time there was, above which no percentile is.
    pub fn percentile(&self, permille: u64, max: u64) -> Option<u64> {
        let all = self.count();
        let wanted = (all * permille).div_ceil(1000).max(1);
        let mut so_far = 0;
        let found = self.0.iter().position(|n| {
            so_far += n;
            so_far >= wanted
        })?;
        Some(Self::above(found).map_or(max, |above| above.min(max)))
    }
}

/// How two counts of one kind become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They add up.
    Sum,
    /// The greater one stands.
    Max,
}

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$about])* pub $field: u64,)*
        }
        impl $name {
            /// Names and kinds, in the order of the fields.
            pub const FIELDS: &'static [(&'static str, Kind)] =
                &[$((stringify!($field), Kind::$kind)),*];
            /// From as many numbers, in the order of the fields.
            pub fn from_numbers(mut numbers: impl Iterator<Item = u64>) -> Self {
                Self { $($field: numbers.next().unwrap_or_default(),)* }
            }
            /// The numbers, in the order of the fields.
            pub fn numbers(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }
            /// Adds another one's.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = match Kind::$kind {
                    Kind::Sum => self.$field.saturating_add(other.$field),
                    Kind::Max => self.$field.max(other.$field),
                };)*
            }
        }
    };
}

counts! {
    /// What was counted of a task, or of several. Times are nanoseconds.
    TaskCounts {
        /// On a CPU.
        run_ns: Sum,
        /// The longest time between getting a CPU and leaving it.
        run_ns_max: Max,
        /// How often it got a CPU.
        timeslices: Sum,
        /// Runnable and not on a CPU.
        wait_ns: Sum,
        /// The longest wait.
        wait_ns_max: Max,
        /// Waits that ended.
        waits: Sum,
        /// Interruptible.
        sleep_ns: Sum,
        /// The longest sleep.
        sleep_ns_max: Max,
        /// Sleeps that ended.
        sleeps: Sum,
        /// Uninterruptible.
        block_ns: Sum,
        /// The longest block.
        block_ns_max: Max,
        /// Blocks that ended.
        blocks: Sum,
        /// Of the blocks, those for I/O.
        iowait_ns: Sum,
        /// How many of those ended.
        iowaits: Sum,
        /// Sleeps that began with a delayed dequeue: schedstats has some or all of it as a wait.
        delayed_ns: Sum,
        /// How many those were.
        delayed: Sum,
        /// Switches because it slept.
        nr_voluntary: Sum,
        /// Switches though it could have run on.
        nr_involuntary: Sum,
        /// Wake-ups, also of a task that was not asleep yet.
        nr_wakeups: Sum,
        /// To the CPU of the waker.
        nr_wakeups_local: Sum,
        /// To another one.
        nr_wakeups_remote: Sum,
        /// To another one than it was on.
        nr_wakeups_migrate: Sum,
        /// Of a task that was not asleep yet.
        nr_wakeups_queued: Sum,
        /// Changes of its CPU.
        nr_migrations: Sum,
        /// Of those, to another last-level cache.
        nr_migrations_llc: Sum,
        /// Of those, to another node.
        nr_migrations_node: Sum,
        /// From a wake-up to running.
        latency_ns: Sum,
        /// The longest.
        latency_ns_max: Max,
        /// How many.
        latencies: Sum,
        /// Of the waits, the one that had begun when the look did,
        before_wait_ns: Sum,
        /// of the sleeps,
        before_sleep_ns: Sum,
        /// and of the blocks; each from when the look began.
        before_block_ns: Sum,
    }
}

impl TaskCounts {
    /// All of its time: that of the look, if it was there all along.
    pub fn all_ns(&self) -> u64 {
        self.run_ns + self.wait_ns + self.sleep_ns + self.block_ns
    }
}

counts! {
    /// What was counted on a CPU, of the tasks that are looked at. Times are nanoseconds.
    CpuCounts {
        /// Run by tasks.
        run_ns: Sum,
        /// Waited by tasks that then ran here.
        wait_ns: Sum,
        /// How often a task got it.
        timeslices: Sum,
        /// Switches, of all tasks.
        nr_switches: Sum,
        /// Of those, to the idle task.
        nr_idle: Sum,
        /// Wake-ups whose waker ran here.
        nr_wakeups: Sum,
        /// Of those, to this CPU.
        nr_wakeups_local: Sum,
        /// To another one of the same last-level cache.
        nr_wakeups_llc: Sum,
        /// To another last-level cache of the node.
        nr_wakeups_node: Sum,
        /// To another node.
        nr_wakeups_far: Sum,
        /// From wake-ups to running here.
        latency_ns: Sum,
        /// The longest.
        latency_ns_max: Max,
        /// How many.
        latencies: Sum,
        /// Events seen, of all tasks: switches,
        events_switch: Sum,
        /// wake-ups, where the waker is,
        events_waking: Sum,
        /// wake-ups, where the task is queued,
        events_wakeup: Sum,
        /// changes of a task's CPU,
        events_migrate: Sum,
        /// forks and execs.
        events_other: Sum,
        /// Tasks for which there was no place.
        lost_tasks: Sum,
        /// Events of those.
        lost_events: Sum,
    }
}

impl CpuCounts {
    /// How often the programs ran.
    pub fn events(&self) -> u64 {
        self.events_switch
            + self.events_waking
            + self.events_wakeup
            + self.events_migrate
            + self.events_other
    }
}

crate::named! {
    /// Where the kernel put a task that was woken, and why, as far as what was seen tells.
    ///
    /// Source: specs/schedstats.md#why.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Reason {
        /// It was still queued: nothing was chosen.
        StillQueued => "still queued, nothing was chosen",
        /// It may run on this CPU alone.
        OnlyCpu => "the only CPU it may run on",
        /// Its previous CPU, where its waker runs too.
        PreviousAndWaker => "its previous CPU, which is its waker's",
        /// Its previous CPU, which was idle.
        PreviousIdle => "its previous CPU, idle",
        /// Its previous CPU, which was busy.
        PreviousBusy => "its previous CPU, busy",
        /// The CPU of its waker.
        Waker => "its waker's CPU",
        /// The CPU that it used recently, which was idle.
        Recent => "its recently used CPU, idle",
        /// Found by a search: a CPU whose whole core was idle.
        IdleCore => "found: an idle core",
        /// Found by a search: an idle CPU.
        IdleCpu => "found: an idle CPU",
        /// An idle CPU of a cache that is neither its own nor its waker's.
        IdleElsewhere => "an idle CPU elsewhere",
        /// A busy CPU that is neither its own nor its waker's.
        Busy => "another busy CPU",
    }
}

/// Wake-ups by where they went and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// In the order of [`Reason::ALL`].
    pub by: [u64; Reason::ALL.len()],
    /// By the node of the chosen CPU.
    pub node: [u64; NODES],
    /// To another last-level cache than that of the task's previous CPU.
    pub from_last_llc: u64,
    /// To another node than its previous one.
    pub from_last_node: u64,
    /// To another last-level cache than its waker's.
    pub from_waker_llc: u64,
    /// To another node than its waker's.
    pub from_waker_node: u64,
}

impl Reasons {
    /// All wake-ups.
    pub fn all(&self) -> u64 {
        self.by.iter().sum()
    }
    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        let Self { by, node, from_last_llc, from_last_node, from_waker_llc, from_waker_node } =
            other;
        self.by.iter_mut().zip(by).for_each(|(mine, n)| *mine += n);
        self.node.iter_mut().zip(node).for_each(|(mine, n)| *mine += n);
        self.from_last_llc += from_last_llc;
        self.from_last_node += from_last_node;
        self.from_waker_llc += from_waker_llc;
        self.from_waker_node += from_waker_node;
    }
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It is on a CPU.
    Runs,
    /// It is runnable.
    Waits,
    /// Interruptible.
    Sleeps,
    /// Uninterruptible.
    Blocks,
    /// Stopped, traced, or new.
    Otherwise,
    /// It is over.
    Ended,
}

/// A task, or those of one process and name that are over, as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// Its number; of several the first one's.
    pub pid: u32,
    /// Its process.
    pub tgid: u32,
    /// The process that has started it, as far as that lives; of a process's other threads the process itself.
    pub parent: u32,
    /// When it was started, in ns since boot.
    pub start_ns: u64,
    /// Its name.
    pub comm: String,
    /// Its cgroup: the number of its folder.
    pub cgroup: u64,
    /// How many tasks this is.
    pub tasks: u64,
    /// What it was doing at the end.
    pub doing: Doing,
    /// For how long already. It is in no sum yet.
    pub doing_ns: u64,
    /// What was counted.
    pub counts: TaskCounts,
    /// From wake-ups to running.
    pub latency: Histogram,
    /// Where wake-ups went, if that was asked.
    pub why: Option<Reasons>,
}

impl TaskLook {
    /// Adds what it was doing when the look ended to the sum of that.
    pub fn settle(&mut self) {
        let ns = std::mem::take(&mut self.doing_ns);
        let c = &mut self.counts;
        match self.doing {
            Doing::Runs => c.run_ns += ns,
            Doing::Waits => c.wait_ns += ns,
            Doing::Sleeps => c.sleep_ns += ns,
            Doing::Blocks => c.block_ns += ns,
            Doing::Otherwise | Doing::Ended => {}
        }
    }
    /// Adds another one's.
    pub fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.counts.add(&other.counts);
        self.latency.add(&other.latency);
        if let Some(theirs) = &other.why {
            self.why.get_or_insert_default().add(theirs);
        }
    }
}

/// A CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuLook {
    /// Its number.
    pub cpu: u32,
    /// The last-level cache, by the lowest CPU of it.
    pub llc: u32,
    /// The node.
    pub node: u32,
    /// Whether it came during the look: where it is was not known, and it is told as of a cache
    /// of its own.
    pub came: bool,
    /// Tasks that moved here.
    pub moved_in: u64,
    /// Of those, from another last-level cache.
    pub moved_in_llc: u64,
    /// Of those, from another node.
    pub moved_in_node: u64,
    /// What was counted.
    pub counts: CpuCounts,
    /// From wake-ups to running here.
    pub latency: Histogram,
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How long it took.
    pub ns: u64,
    /// Tasks that had an event, or ran or waited all along.
    pub tasks: Vec<TaskLook>,
    /// CPUs, rising.
    pub cpus: Vec<CpuLook>,
    /// Bytes of the kernel's memory that were taken for it.
    pub bytes: u64,
    /// Places for tasks.
    pub slots: u32,
}

impl Look {
    /// All CPUs' as one.
    pub fn all_cpus(&self) -> (CpuCounts, Histogram) {
        let (mut counts, mut latency) = (CpuCounts::default(), Histogram::default());
        for cpu in &self.cpus {
            counts.add(&cpu.counts);
            latency.add(&cpu.latency);
        }
        (counts, latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/schedstats.md#live
    #[test]
    fn a_time_is_in_the_bucket_that_has_it() {
        let mut before = 0;
        for shift in 0..45 {
            for ns in [1u64 << shift, (1 << shift) + 1, (1 << shift) * 3 / 2, (2 << shift) - 1] {
                let at = Histogram::bucket_of(ns);
                assert!(Histogram::least(at) <= ns, "{ns}");
                assert!(Histogram::above(at).is_none_or(|above| ns < above), "{ns}");
                assert!(at >= before);
                before = at;
            }
        }
        assert_eq!(before, BUCKETS - 1);
        // A bucket is at most a quarter as wide as what it begins with.
        for at in 1..BUCKETS - 1 {
            let (least, above) = (Histogram::least(at), Histogram::above(at).unwrap());
            assert!((above - least) * 4 <= least, "{least} to {above}");
        }
    }

    #[test]
    fn percentiles_are_of_what_there_is() {
        let mut h = Histogram::default();
        assert_eq!(h.percentile(500, 0), None);
        for ns in [100, 1_000, 10_000, 100_000] {
            h.0[Histogram::bucket_of(ns)] += 25;
        }
        assert_eq!(h.percentile(500, 100_000), Some(1_024));
        assert_eq!(h.percentile(250, 100_000), Some(112));
        assert_eq!(h.percentile(990, 100_000), Some(100_000));
    }

    #[test]
    fn sums_add_and_maxima_stand() {
        let mut a = TaskCounts { run_ns: 3, run_ns_max: 3, ..Default::default() };
        a.add(&TaskCounts { run_ns: 4, run_ns_max: 2, ..Default::default() });
        assert_eq!((a.run_ns, a.run_ns_max), (7, 3));
        let numbers = a.numbers();
        assert_eq!(numbers.len(), TaskCounts::FIELDS.len());
        assert_eq!(TaskCounts::from_numbers(numbers.into_iter()), a);
    }
}
