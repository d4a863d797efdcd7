//! The devices of a scenario and the kernel's workers, as data.
//!
//! Source: specs/workloads.md#devices.

use homenode_core::scenario::Device;
use std::collections::{BTreeMap, VecDeque};

/// Something for a worker to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// In picoseconds at full speed.
    pub(crate) time: u64,
    /// Who waits for it.
    pub(crate) waiter: Option<usize>,
}

/// The devices of a scenario, and the workers of each CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) all: Vec<Device>,
    /// Of devices that gather: when the last request begins that anybody waits for, and when it ends.
    pub(crate) under_way: Vec<(u64, u64)>,
    /// By place of a CPU and whether their queue has priority: the worker's task.
    pub(crate) workers: BTreeMap<(usize, bool), usize>,
    /// By the worker's task: what it has to do.
    pub(crate) queues: BTreeMap<usize, VecDeque<Work>>,
}

impl Devices {
    /// The place of the device of a name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|d| d.name == name)
    }
    /// What a worker does next.
    pub(crate) fn take(&mut self, worker: usize) -> Option<Work> {
        self.queues.get_mut(&worker)?.pop_front()
    }
}
