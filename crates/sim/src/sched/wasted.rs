//! Time that CPUs idle beside tasks that wait and may run on them.
//!
//! ```text
//! CPU 0   a a a a b b b b          b waits for 4 ms
//! CPU 1   c c . . . . d d          of which CPU 1 is idle for 2 ms: wasted
//! ```
//!
//! A CPU counts once, however many wait for it. What it takes a CPU to leave its idle state is
//! not counted: it is on its way to the task then.

use super::CpuSet;

const NONE: u32 = u32::MAX;

/// The time so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wasted {
    /// By task: the number of the set of CPUs that it waits for; `NONE`: it doesn't wait.
    tasks: Vec<u32>,
    /// Tasks that wait, by that number.
    waiting: Vec<u32>,
    /// How many of them may run on another CPU than the one whose queue they are on.
    wide: u32,
    /// So many CPUs are idle beside them, since when (picoseconds).
    rate: u64,
    since: u64,
    /// CPU time in picoseconds.
    ps: u64,
}

impl Wasted {
    /// A task waits from now on, or not.
    pub(crate) fn waits(&mut self, task: usize, set: Option<u32>, sets: &[CpuSet]) {
        if task >= self.tasks.len() {
            self.tasks.resize(task + 1, NONE);
        }
        if sets.len() > self.waiting.len() {
            self.waiting.resize(sets.len(), 0);
        }
        let before = std::mem::replace(&mut self.tasks[task], set.unwrap_or(NONE));
        if before != NONE {
            self.waiting[before as usize] -= 1;
            self.wide -= u32::from(sets[before as usize].count > 1);
        }
        if let Some(set) = set {
            self.waiting[set as usize] += 1;
            self.wide += u32::from(sets[set as usize].count > 1);
        }
    }
    /// What has been told holds from now on.
    ///
    /// * `busy` – the CPUs that are not idle, a bit for each.
    /// * `nr_idle` – how many are idle.
    #[inline]
    pub(crate) fn from(&mut self, now: u64, sets: &[CpuSet], busy: &[u64], nr_idle: u64) {
        self.ps += self.rate * now.saturating_sub(self.since);
        self.since = now;
        self.rate = match (self.wide, nr_idle) {
            (0, _) | (_, 0) => 0,
            // Somebody waits who may run on any of them.
            _ if self.waiting[super::ALL as usize] > 0 => nr_idle,
            _ => self.wanted(sets, busy),
        };
    }
    /// How many idle CPUs there are that one of those who wait may run on.
    fn wanted(&self, sets: &[CpuSet], busy: &[u64]) -> u64 {
        let of = |(word, busy): (usize, &u64)| {
            let wait = self.waiting.iter().zip(sets).filter(|(n, _)| **n > 0);
            let wanted = wait.fold(0, |all, (_, set)| all | set.words[word]);
            u64::from((wanted & !busy).count_ones())
        };
        busy.iter().enumerate().map(of).sum()
    }
    /// The CPU time wasted until now, in picoseconds.
    pub(crate) fn until(&self, now: u64) -> u64 {
        self.ps + self.rate * now.saturating_sub(self.since)
    }
}
