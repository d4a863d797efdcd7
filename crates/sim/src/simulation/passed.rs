//! How far the order of a recording has come in a round of its replay, as data.
//!
//! Source: specs/waits.md#replay.

use crate::tasks::On;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Points of this round that have been passed, who has which lock, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) done: BTreeSet<u32>,
    pub(crate) waiting: BTreeMap<u32, Vec<usize>>,
    pub(crate) locks: BTreeMap<u32, Lock>,
    pub(crate) counts: BTreeMap<u32, Counted>,
    /// Tasks that were given what they wait for at a count: its number, and how much.
    pub(crate) granted: BTreeMap<usize, (u32, u32)>,
    /// Tasks that go on without the lock or the count that they wait for.
    pub(crate) without: BTreeSet<usize>,
    /// By meeting: the points at which tasks have come to it, each with that task.
    pub(crate) met: BTreeMap<u32, BTreeMap<u32, usize>>,
    /// Tasks that wait with a deadline, at which they wake up and wait again.
    pub(crate) again: BTreeSet<usize>,
    /// Tasks that compute for as long as they wait, and what for.
    pub(crate) spinning: BTreeMap<usize, On>,
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

/// A count: what is there, and who waits for how much, the first first. It is below 0 where
/// somebody went on without.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) there: i64,
    /// Of that, how much a task of the recording has given, where nobody can have what is his own.
    pub(crate) given: VecDeque<(usize, i64)>,
    pub(crate) waiting: VecDeque<Wants>,
}

/// A task that wants something of a count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) id: usize,
    /// Which of the recording it is.
    pub(crate) track: usize,
    pub(crate) less: i64,
}

impl Counted {
    /// Whether there is what it wants.
    pub(crate) fn has(&self, one: &Wants) -> bool {
        let own = self.given.iter().filter(|g| g.0 == one.track).map(|g| g.1).sum::<i64>();
        self.there - own >= one.less
    }
    /// It takes what it wants: of what others have given, the first first.
    pub(crate) fn give(&mut self, one: &Wants) {
        self.there -= one.less;
        let mut less = one.less;
        for (by, left) in &mut self.given {
            let part = if *by == one.track { 0 } else { less.min(*left) };
            (*left, less) = (*left - part, less - part);
        }
        self.given.retain(|g| g.1 > 0);
    }
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
    /// At semaphores and condition variables, for what goes to who comes first.
    pub counts: u64,
    /// Times that a task went on without a lock or a count, since who had it waited for this
    /// task.
    pub without: u64,
    /// Times that a task woke up in vain at its deadline, and waited again.
    pub in_vain: u64,
    /// Of all that, the time for which tasks computed meanwhile, be it that they had no CPU.
    pub spun: u64,
}
