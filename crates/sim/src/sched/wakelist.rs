//! Woken tasks that are on no queue yet: each CPU has a list of those that it is to put on its own when it is
//! called (`TTWU_QUEUE`).
//!
//! Source: specs/wake.md#list.

use homenode_core::kernel::KernelVersion;
use homenode_core::sched::wakelist::newest_first;

/// The lists of all CPUs.
pub(crate) struct WakeLists {
    pub(super) version: KernelVersion,
    /// By CPU: the numbers of the tasks.
    lists: Vec<Vec<u32>>,
    /// A bit for each CPU whose list is not empty.
    pending: Vec<u64>,
}

impl WakeLists {
    pub(super) fn new(cpus: usize, version: KernelVersion) -> Self {
        Self { version, lists: vec![Vec::new(); cpus], pending: vec![0; cpus.div_ceil(64)] }
    }
    /// Whether somebody is on a CPU's list (`ttwu_pending`): nobody takes such a CPU for idle.
    #[inline]
    pub(crate) fn pending(&self, cpu: usize) -> bool {
        self.pending[cpu / 64] >> (cpu % 64) & 1 != 0
    }
    /// The tasks on a CPU's list, as they came.
    pub(crate) fn of(&self, cpu: usize) -> &[u32] {
        &self.lists[cpu]
    }
    /// A task is put on a CPU's list. True: it is the first there, and the CPU is to be called.
    pub(super) fn put(&mut self, task: usize, cpu: usize) -> bool {
        self.lists[cpu].push(task as u32);
        self.pending[cpu / 64] |= 1 << (cpu % 64);
        self.lists[cpu].len() == 1
    }
    /// A CPU takes what is on its list, in its order, and has none any more.
    pub(super) fn take(&mut self, cpu: usize) -> Vec<u32> {
        self.pending[cpu / 64] &= !(1 << (cpu % 64));
        let mut list = std::mem::take(&mut self.lists[cpu]);
        if newest_first(self.version) {
            list.reverse();
        }
        list
    }
    /// Room for the next list, in the place of one that has been taken.
    pub(crate) fn give_back(&mut self, cpu: usize, mut list: Vec<u32>) {
        debug_assert!(self.lists[cpu].is_empty(), "nobody was woken meanwhile");
        list.clear();
        self.lists[cpu] = list;
    }
}
