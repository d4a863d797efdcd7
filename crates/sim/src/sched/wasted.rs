//! Time that CPUs idle beside tasks that wait and may run on them.
//!
//! ```text
//! CPU 0   a a a a b b b b          b waits for 4 ms
//! CPU 1   c c . . . . d d          of which CPU 1 is idle for 2 ms: wasted
//! ```
//!
//! A CPU counts once, however many wait for it. Tasks whose group has a quota don't count: they may
//! have used it up. What it takes a CPU to leave its idle state is
//! not counted: it is on its way to the task then.

use super::CpuSet;

const ALL: usize = super::ALL as usize;

const NONE: u32 = u32::MAX;
/// It may run on several CPUs of its set.
const WIDE: u32 = 1 << 31;

/// The time so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wasted {
    /// By task: the number of the set of CPUs that it waits for; `NONE`: it doesn't wait.
    tasks: Vec<u32>,
    /// Tasks that wait, by that number.
    waiting: Vec<u32>,
    /// How many of them may run on another CPU than the one whose queue they are on.
    wide: u32,
    /// CPUs of the machine.
    cpus: usize,
    /// So many CPUs are idle beside them, since when (picoseconds).
    rate: u64,
    since: u64,
    /// CPU time in picoseconds.
    ps: u64,
}

impl Wasted {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { cpus, ..Self::default() }
    }
    /// A task waits from now on, or not.
    #[inline]
    pub(crate) fn waits(&mut self, task: usize, set: Option<u32>, sets: &[CpuSet]) {
        let wide = |set: u32| if sets[set as usize].count > 1 { WIDE } else { 0 };
        let waits = set.map_or(NONE, |set| set | wide(set));
        let before = match self.tasks.get_mut(task) {
            Some(before) => std::mem::replace(before, waits),
            None => self.first_time(task, waits),
        };
        if before == waits {
            return;
        }
        if before != NONE {
            self.waiting[(before & !WIDE) as usize] -= 1;
            self.wide -= before / WIDE;
        }
        if waits != NONE {
            if sets.len() > self.waiting.len() {
                self.waiting.resize(sets.len(), 0);
            }
            self.waiting[(waits & !WIDE) as usize] += 1;
            self.wide += waits / WIDE;
        }
    }
    /// The same of a task of which nothing was told before.
    #[cold]
    fn first_time(&mut self, task: usize, waits: u32) -> u32 {
        self.tasks.resize(task + 1, NONE);
        self.tasks[task] = waits;
        NONE
    }
    /// What has been told holds from now on.
    ///
    /// * `busy` – the CPUs that are not idle, a bit for each; the same of those that are on their way out of it.
    /// * `nr_idle` – how many are idle and stay so.
    #[inline]
    pub(crate) fn from(&mut self, now: u64, sets: &[CpuSet], busy: (&[u64], &[u64]), nr_idle: u64) {
        self.ps += self.rate * now.saturating_sub(self.since);
        self.since = now;
        self.rate = match (self.wide, nr_idle) {
            (0, _) | (_, 0) => 0,
            // Somebody waits who may run on any of them, and all are online.
            _ if self.waiting[ALL] > 0 && sets[ALL].count as usize == self.cpus => nr_idle,
            _ => self.wanted(sets, busy),
        };
    }
    /// How many idle CPUs there are that one of those who wait may run on.
    fn wanted(&self, sets: &[CpuSet], (busy, out): (&[u64], &[u64])) -> u64 {
        let of = |(word, (busy, out)): (usize, (&u64, &u64))| {
            let wait = self.waiting.iter().zip(sets).filter(|(n, _)| **n > 0);
            let wanted = wait.fold(0, |all, (_, set)| all | set.words[word]);
            u64::from((wanted & !busy & !out).count_ones())
        };
        busy.iter().zip(out).enumerate().map(of).sum()
    }
    /// The CPU time wasted until now, in picoseconds.
    pub(crate) fn until(&self, now: u64) -> u64 {
        self.ps + self.rate * now.saturating_sub(self.since)
    }
}
