//! Where a task may run: what it asked for, what its group allows, and which CPUs are online.
//!
//! ```text
//!  sched_setaffinity ─▶ asked ─┐
//!  cpuset.cpus of the group ───┼─▶ all three ─▶ set, which wake-ups and balancing look at
//!  online ─────────────────────┘        │
//!                                       └─ nothing left: the affinity is broken
//! ```
//!
//! Sets are kept once for all tasks that have them and known by number. The number of the set of all CPUs
//! that are online is [`ALL`], whatever they are at the moment.
//!
//! Source: specs/sched-groups.md#cpuset, specs/sched-groups.md#hotplug.

use super::queues::{ALL, CpuSet, Queues};

impl Queues {
    /// The CPUs that are online.
    pub(crate) fn online(&self) -> &CpuSet {
        &self.sets[ALL as usize]
    }
    /// Whether a CPU is online.
    pub(crate) fn is_online(&self, cpu: usize) -> bool {
        self.online().has(cpu)
    }
    /// This CPU, or if it is offline the first that is not.
    pub(crate) fn online_or_first(&self, cpu: usize) -> usize {
        if self.is_online(cpu) { cpu } else { self.online().first() }
    }
    /// All CPUs, online or not.
    pub(crate) fn everywhere(&self) -> CpuSet {
        CpuSet::of(self.cpus(), 0..self.cpus())
    }
    /// A CPU is online from now on, or is not any more. Sets of tasks are as they were.
    pub(crate) fn set_online(&mut self, cpu: usize, online: bool) {
        let set = &mut self.sets[ALL as usize];
        let bit = 1 << (cpu % 64);
        if online {
            set.words[cpu / 64] |= bit;
            set.count += 1;
        } else {
            set.words[cpu / 64] &= !bit;
            set.count -= 1;
        }
    }
    /// The number of a set.
    fn number(&mut self, words: Vec<u64>) -> u32 {
        if *self.online().words == *words {
            return ALL;
        }
        self.other_set(words.into_boxed_slice())
    }
    /// The set of the CPUs that are in two sets.
    fn both(&mut self, a: u32, b: u32) -> u32 {
        if a == ALL || a == b {
            return b;
        }
        let both = |(a, b): (&u64, &u64)| a & b;
        let words = self.sets[a as usize].words.iter().zip(&*self.sets[b as usize].words);
        let words = words.map(both).collect();
        self.number(words)
    }
    /// The CPUs of a set that are online, or all that are where none of them is, as cpusets have it.
    fn online_of(&mut self, set: u32, otherwise: u32) -> u32 {
        // Whatever is in no other set is found by its words: the set itself, where all are online.
        let words: Vec<u64> = self.sets[set as usize]
            .words
            .iter()
            .zip(&*self.online().words)
            .map(|(a, b)| a & b)
            .collect();
        if words.iter().all(|w| *w == 0) { otherwise } else { self.number(words) }
    }
    /// `cpuset.cpus.effective` of a group, as the number of a set.
    pub(crate) fn effective(&mut self, group: u32) -> u32 {
        if group == 0 {
            return ALL;
        }
        let (parent, cpus) = {
            let g = &self.groups.all[group as usize - 1];
            (g.parent, g.cpus)
        };
        let above = self.effective(parent);
        match cpus {
            None => above,
            Some(cpus) => {
                let mine = self.both(cpus, above);
                self.online_of(mine, above)
            }
        }
    }
    /// Where a task may run that asked for `asked` and is in a group: the number of a set, which is empty if
    /// none of these CPUs is online.
    pub(crate) fn allowed(&mut self, asked: u32, group: u32) -> u32 {
        let effective = self.effective(group);
        let both = self.both(asked, effective);
        let online = |(a, b): (&u64, &u64)| a & b;
        let words = self.sets[both as usize].words.iter().zip(&*self.online().words);
        let words = words.map(online).collect();
        self.number(words)
    }
    /// A task may run elsewhere than before: what it asked for, its group or the CPUs that are online have changed.
    pub(crate) fn refit(&mut self, task: usize) {
        let t = &self.tasks[task];
        let (asked, group) = (t.asked, t.terms.group);
        self.tasks[task].set = self.allowed(asked, group);
    }
    /// A task that can run nowhere, or not where it was, gets a CPU: the first that it may use of the old one's
    /// node, or else of all. Where there is none, what it asked for is forgotten; true if so.
    ///
    /// * `near` – CPUs of the node of the CPU where it was.
    ///
    /// Source: specs/sched-groups.md#fallback.
    pub(crate) fn fallback(&mut self, task: usize, near: &CpuSet) -> (usize, bool) {
        self.refit(task);
        let mut broken = false;
        if self.sets[self.tasks[task].set as usize].count == 0 {
            self.tasks[task].asked = ALL;
            self.refit(task);
            broken = true;
        }
        let set = &self.sets[self.tasks[task].set as usize];
        (set.first_in(near).unwrap_or_else(|| set.first()), broken)
    }
}
