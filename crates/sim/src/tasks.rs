//! Tasks as the scheduler knows them: where they are, how long they ran, what they wait
//! for. What they run is a [`Program`](crate::program::Program), which is kept apart, so
//! that anybody may look at a task at any time, also while it has its turn.

use crate::sched::Waiting;

use crate::caches::Footprint;
use crate::kernel::Fatal;

/// What kind of task it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread of a program.
    Thread,
    /// A thread of a recorded program. What the scheduler costs it is in its processor time, but
    /// for calls that wake others, who may be elsewhere in a replay.
    Replayed,
    /// A node's kswapd, by the node's place.
    Kswapd(usize),
    /// The kernel's thread that merges pages.
    Ksmd,
    /// The kernel's thread that makes huge pages of base pages.
    Khugepaged,
    /// DAMON's thread, on homenode's behalf.
    Kdamond,
    /// homenode, the daemon.
    Homenode,
    /// A thread that a policy keeps busy, whatever there is to do.
    Busy,
    /// Whoever writes to files whose answer takes time: memory going offline.
    Writer,
    /// A kernel worker that is bound to a CPU.
    Worker,
}

impl Kind {
    /// Whether it helps others to observe, to merge, to work: PIDs of programs don't depend on it.
    pub(crate) const fn is_helper(self) -> bool {
        match self {
            Self::Ksmd
            | Self::Khugepaged
            | Self::Kdamond
            | Self::Homenode
            | Self::Busy
            | Self::Writer
            | Self::Worker => true,
            Self::Thread | Self::Replayed | Self::Kswapd(_) => false,
        }
    }
}

/// What a task that doesn't run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Its timer, or work: a sleep, a daemon's rest.
    Sleep,
    /// All its children's ends.
    Children,
    /// The end of any child.
    Child,
    /// The end of one task.
    Task(usize),
    /// A point of a recording's order.
    Point(u32),
    /// A lock of a recording.
    Lock(u32),
    /// A count of a recording: a semaphore, a condition variable.
    Count(u32),
    /// The other threads coming to the same step.
    Barrier,
    /// A channel of the scenario.
    Channel(u32),
    /// Work that a kernel worker does for it.
    Work,
    /// A device, or whoever takes its end on.
    Device {
        /// It counts as waiting for I/O.
        iowait: bool,
    },
}

impl On {
    /// How the kernel would call the wait.
    pub(crate) const fn waiting(self) -> Waiting {
        match self {
            Self::Sleep
            | Self::Children
            | Self::Child
            | Self::Task(_)
            | Self::Point(_)
            | Self::Lock(_)
            | Self::Count(_)
            | Self::Barrier
            | Self::Channel(_) => Waiting::Sleep,
            Self::Work => Waiting::Block { iowait: false },
            Self::Device { iowait } => Waiting::Block { iowait },
        }
    }
    /// Whether only another task can end it.
    pub(crate) const fn by_others(self) -> bool {
        match self {
            Self::Children | Self::Child | Self::Task(_) | Self::Barrier | Self::Channel(_) => true,
            Self::Sleep
            | Self::Point(_)
            | Self::Lock(_)
            | Self::Count(_)
            | Self::Work
            | Self::Device { .. } => false,
        }
    }
}

/// Whether a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// On its CPU's queue.
    Runnable,
    /// Until that has come.
    Blocked(On),
    /// For good.
    Ended,
}

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Accesses and computing: user time.
    User,
    /// Faults, system calls, the tick, a daemon's work: system time.
    System,
}

/// A task: a thread of a program, or a daemon. What each turn looks at comes first, in one line of the host's cache;
/// what waking and leaving look at is the second.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Task {
    /// How far it has come, without what it has run ahead.
    pub(crate) clock: u64,
    /// Processor time in picoseconds, and how much of it is system time.
    pub(crate) ran: u64,
    pub(crate) system: u64,
    /// Place of the CPU where it runs or ran last.
    pub(crate) cpu: usize,
    pub(crate) run: Run,
    /// It may not run where it is any more, and goes there.
    pub(crate) leaves_to: Option<usize>,
    pub(crate) kind: Kind,
    /// Who has seen to that it leaves its CPU, and waits until it has gone.
    pub(crate) leaves_for: Option<usize>,
    /// Its address space; `usize::MAX` for daemons, as is `process`.
    pub(crate) space: usize,
    /// When its CPU has switched to another, the last time that it went to sleep.
    pub(crate) off_cpu: u64,
    /// The slot of its timer.
    pub(crate) timer: u32,
    /// The timer wakes it, instead of asking its program.
    pub(crate) timer_wakes: bool,
    /// Whether it is on its CPU's queue: what stops stays there until its clock.
    pub(crate) on_queue: bool,
    /// What its computing uses: how much, with which the second line ends, and where that is.
    pub(crate) footprint: Footprint,
    /// The program that it belongs to.
    pub(crate) process: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) children: usize,
    /// Tasks that wait for this one's end.
    pub(crate) waiters: Vec<usize>,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) killed: Option<Fatal>,
}

const _: () = assert!(std::mem::offset_of!(Task, footprint) == 2 * 64 - 8, "two lines");

impl Task {
    /// The task whose end this one waits for.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        match self.run {
            Run::Blocked(On::Task(other)) => Some(other),
            Run::Runnable
            | Run::Blocked(
                On::Sleep
                | On::Children
                | On::Child
                | On::Barrier
                | On::Point(_)
                | On::Lock(_)
                | On::Count(_)
                | On::Channel(_)
                | On::Work
                | On::Device { .. },
            )
            | Run::Ended => None,
        }
    }
    /// Whether it has not ended: one that dies at the end of a long act lives until then.
    pub(crate) fn lives(&self) -> bool {
        self.run != Run::Ended || self.on_queue
    }
    /// Whether it rests until its timer or until there is work.
    pub(crate) fn sleeps(&self) -> bool {
        self.run == Run::Blocked(On::Sleep)
    }
}

/// All tasks that ever were, by number.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    all: Vec<Task>,
    /// By address space: its tasks that have not ended, in rising order.
    living: Vec<Vec<usize>>,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Task> {
        self.all.iter()
    }
    pub(crate) fn push(&mut self, task: Task) -> usize {
        let id = self.all.len();
        if task.space != usize::MAX {
            if task.space >= self.living.len() {
                self.living.resize_with(task.space + 1, Vec::new);
            }
            self.living[task.space].push(id);
        }
        self.all.push(task);
        id
    }
    /// The tasks of a space that have not ended.
    pub(crate) fn living_in(&self, space: usize) -> &[usize] {
        self.living.get(space).map_or(&[], Vec::as_slice)
    }
    /// A task is not among the living any more.
    pub(crate) fn bury(&mut self, id: usize) {
        if let Some(living) = self.living.get_mut(self.all[id].space) {
            living.retain(|&t| t != id);
        }
    }
}

impl std::ops::Index<usize> for Tasks {
    type Output = Task;
    #[inline]
    fn index(&self, id: usize) -> &Task {
        &self.all[id]
    }
}

impl std::ops::IndexMut<usize> for Tasks {
    #[inline]
    fn index_mut(&mut self, id: usize) -> &mut Task {
        &mut self.all[id]
    }
}
