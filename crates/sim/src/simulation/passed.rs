//! How far the order of a recording has come in a round of its replay, as data.
//!
//! Source: specs/waits.md#replay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Points of this round that have been passed, who has which lock, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) done: BTreeSet<u32>,
    pub(crate) waiting: BTreeMap<u32, Vec<usize>>,
    pub(crate) locks: BTreeMap<u32, Lock>,
    /// Tasks that go on without the lock that they wait for.
    pub(crate) without: BTreeSet<usize>,
    /// By meeting: the points at which tasks have come to it, each with that task.
    pub(crate) met: BTreeMap<u32, BTreeMap<u32, usize>>,
    /// Tasks that wait with a deadline, at which they wake up and wait again.
    pub(crate) again: BTreeSet<usize>,
    /// Tasks of the recording that another has ended in this round, and that come to no row
    /// any more.
    pub(crate) dying: BTreeSet<usize>,
    pub(crate) waited: Waited,
    /// By task of the recording: when it began and ended in the first round.
    pub(crate) spans: BTreeMap<usize, (u64, u64)>,
}

impl Passed {
    /// Whether another has ended a task, which has not come to know it yet.
    #[inline]
    pub(crate) fn is_dying(&self, id: usize) -> bool {
        !self.dying.is_empty() && self.dying.contains(&id)
    }
}

/// A lock: who has it, until which point, and who waits for it, the first first.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    pub(crate) held: Option<(usize, u32)>,
    pub(crate) waiting: VecDeque<usize>,
}

/// How long tasks of a recording have stood in front of its points, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// For what could not have been otherwise.
    pub others: u64,
    /// For their turn, which is as recorded and could have been another.
    pub turns: u64,
    /// For locks.
    pub locks: u64,
    /// Times that a task went on without a lock, since who had it waited for this task.
    pub without: u64,
    /// Times that a task woke up in vain at its deadline, and waited again.
    pub in_vain: u64,
}
