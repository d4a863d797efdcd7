//! What a recording says about itself.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format that this version writes; it reads that of version 1 too.
pub const FORMAT_VERSION: u32 = 2;
/// The first version whose recordings say who waited for whom.
pub const FIRST_WITH_WAITS: u32 = 2;

/// One cache of the model that a recording went through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheModel {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Bytes.
    pub size: u64,
    /// Associativity.
    pub ways: u32,
    /// Bytes in a line.
    pub line: u32,
}

/// How the program ran without the recorder: the median of `runs` by CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// How often it was run.
    pub runs: u32,
    /// CPU time in user mode, with all children that were waited for, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, likewise.
    pub sys_ns: u64,
    /// Time on the clock of the shortest run, in nanoseconds.
    pub wall_ns: u64,
    /// Largest resident set of any of its processes, in bytes.
    pub max_rss_bytes: u64,
    /// How often a task blocked and left its CPU, with all children that were waited for; 0 in
    /// recordings of before.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// How long the first task of the shortest run was ready and had no CPU, since others had
    /// them, in nanoseconds; 0 where the system does not say, and in recordings of before.
    #[serde(default)]
    pub delayed_ns: u64,
    /// How far the runs lay apart in CPU time: half the distance between the quartiles, in nanoseconds. 0
    /// of a single run, and in recordings of before.
    #[serde(default)]
    pub spread_ns: u64,
}

/// Which part of the program's life has access rows, in instructions of all its
/// tasks together. Rows that change address spaces are always there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Instructions before the slice.
    pub skip_insns: u64,
    /// Instructions in the slice; `None`: to the end.
    pub for_insns: Option<u64>,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The program ended with that status.
    Exit(i32),
    /// A signal ended the program.
    Signal(i32),
    /// The slice was full, and the program was ended.
    SliceFull,
    /// Recording was interrupted, and the program was ended.
    Interrupted,
    /// Nobody said.
    #[default]
    Unknown,
}

/// Counts of a task, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Instructions.
    pub insns: u64,
    /// Loads and stores; one access that crosses a line counts once.
    pub accesses: u64,
    /// Lines not found in the first level.
    pub l1_misses: u64,
    /// Lines not found in the second level either.
    pub l2_misses: u64,
    /// Lines that loads fetched from memory.
    pub read_misses: u64,
    /// Lines that stores fetched from memory.
    pub write_misses: u64,
    /// Page translations not found in the TLB.
    pub tlb_misses: u64,
}

impl Totals {
    /// Adds the counts of `o`.
    pub fn add(&mut self, o: &Totals) {
        let mut other = *o;
        for (sum, count) in self.each().into_iter().zip(other.each()) {
            *sum += *count;
        }
    }
    /// All counts, in the order in which frames have them.
    pub(crate) fn each(&mut self) -> [&mut u64; 7] {
        [
            &mut self.insns,
            &mut self.accesses,
            &mut self.l1_misses,
            &mut self.l2_misses,
            &mut self.read_misses,
            &mut self.write_misses,
            &mut self.tlb_misses,
        ]
    }
    /// Lines that the second level answered.
    pub fn l2_hits(&self) -> u64 {
        self.l1_misses.saturating_sub(self.l2_misses)
    }
    /// Lines that the last level answered.
    pub fn llc_hits(&self) -> u64 {
        self.l2_misses.saturating_sub(self.read_misses + self.write_misses)
    }
}

/// A thread of the recorded program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process number while it was recorded.
    pub pid: u32,
    /// Thread number; equals `pid` for a process's first thread.
    pub tid: u32,
    /// The task that forked or started it: a place in [`Header::tasks`].
    pub parent: Option<u32>,
    /// Whether it lives in its parent's address space.
    pub thread: bool,
    /// The program that it ran last.
    pub name: String,
    /// What it did, in the whole run (also outside of the slice).
    pub totals: Totals,
    /// CPU time natively of each program that it ran, in nanoseconds, from a run of its own in
    /// which tasks were told apart. Empty where it was not there, or that is not known.
    #[serde(default)]
    pub native_ns: Vec<u64>,
    /// When it began and ended natively on the clock, in nanoseconds since the program did, from
    /// the same run. `None` as above.
    #[serde(default)]
    pub native_span_ns: Option<(u64, u64)>,
}

/// What a recording says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT_VERSION`] of the writer.
    pub version: u32,
    /// The recorded command, with its arguments.
    pub command: Vec<String>,
    /// Whether the program was recorded to its end, or the slice to its end, and no row is missing.
    pub complete: bool,
    /// How it ended.
    pub ended: Ended,
    /// How it ran natively; `None` where that was not measured.
    pub native: Option<Native>,
    /// Time on the clock of the recorded run, in nanoseconds.
    pub recorded_wall_ns: u64,
    /// The machine whose caches were modelled.
    pub machine: String,
    /// The caches of the model, in rising order of their levels.
    pub caches: Vec<CacheModel>,
    /// Entries of the modelled TLB.
    pub tlb_entries: u32,
    /// Instructions of a task in which every page that it touches has an access row.
    pub epoch_insns: u64,
    /// What part was recorded.
    pub slice: Slice,
    /// Counts of all tasks in the whole run.
    pub totals: Totals,
    /// Distinct pages in access rows, per address space.
    pub pages_touched: u64,
    /// Frames that the recorder sent and that did not arrive.
    pub lost_frames: u64,
    /// Programs that ran unrecorded (of another architecture, for instance).
    pub unrecorded_execs: u64,
    /// Tasks in order of their appearance.
    pub tasks: Vec<Task>,
}

/// A process of a recording in which more than one thread ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The program, without its folder.
    pub program: String,
    /// How many ran in its whole life, the first one among them; 2 or more.
    pub threads: u64,
}

impl Header {
    /// The process in which most threads ran; `None` where every process had one.
    ///
    /// A child counts as a process however it was made: by `fork`, or by `vfork` or
    /// `posix_spawn`, where it borrows its parent's address space until it runs a program.
    /// Threads count whether or not they ran within the slice.
    pub fn threads(&self) -> Option<Threads> {
        let mut by_process: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
        for t in self.tasks.iter().filter(|t| t.thread) {
            by_process.entry(t.pid).or_insert((1, &t.name)).0 += 1;
        }
        let (threads, name) = by_process.into_values().max_by_key(|p| p.0)?;
        let program = name.rsplit('/').next().unwrap_or(name).to_owned();
        Some(Threads { program, threads })
    }
}

impl Default for Header {
    fn default() -> Self {
        Self {
            version: FORMAT_VERSION,
            command: Vec::new(),
            complete: false,
            ended: Ended::Unknown,
            native: None,
            recorded_wall_ns: 0,
            machine: String::new(),
            caches: Vec::new(),
            tlb_entries: 0,
            epoch_insns: 0,
            slice: Slice::default(),
            totals: Totals::default(),
            pages_touched: 0,
            lost_frames: 0,
            unrecorded_execs: 0,
            tasks: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, tid: u32, thread: bool, name: &str) -> Task {
        Task { pid, tid, thread, name: name.to_owned(), ..Task::default() }
    }
    fn threads(tasks: &[Task]) -> Option<(String, u64)> {
        let header = Header { tasks: tasks.to_vec(), ..Header::default() };
        header.threads().map(|t| (t.program, t.threads))
    }

    #[test]
    fn children_are_no_threads() {
        assert_eq!(threads(&[]), None);
        let gcc = task(7, 7, false, "/usr/bin/gcc");
        let children = [8, 9].map(|n| task(n, n, false, "/usr/bin/as"));
        assert_eq!(threads(&[gcc.clone(), children[0].clone(), children[1].clone()]), None);
        // A child with a thread, and another with two.
        let mut all = vec![gcc, children[0].clone(), task(8, 10, true, "/usr/bin/lto")];
        assert_eq!(threads(&all), Some(("lto".to_owned(), 2)));
        all.extend([11, 12].map(|n| task(9, n, true, "xz")));
        assert_eq!(threads(&all), Some(("xz".to_owned(), 3)));
    }
}
