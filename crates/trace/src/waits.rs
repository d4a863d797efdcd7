//! Who ended which wait: found from a recording's rows alone.
//!
//! ```text
//! task 0   ... Release futex 0x7f10, wakes 1, order 12 ...
//! task 1   ... Block   futex 0x7f10, entered 9, order 14 ...   ◀── ended by task 0's release
//! ```
//!
//! What a wait depends on always has a smaller number of order than the wait: so there is no
//! circle among them. Only the other end of a wait in vain may be later.
//!
//! Source: specs/waits.md#who-ends-what

mod barriers;
mod broadcasts;
mod counts;
mod deadlines;
mod files;
mod moved;
mod polls;
mod signals;
mod sockets;
mod spins;

pub use counts::Count;
pub use files::FileLock;
pub use spins::Spins;

use sockets::Sockets;

use crate::{Header, Kind, Row, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

homenode_core::named! {
    /// What a [`Kind::Release`] row tells.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u16)]
    pub enum Release {
        /// `arg` waits on a futex's word were woken.
        Futex => "futex",
        /// Waits on a futex's word now are waits on another: `arg` has how many in the high
        /// 16 bits, and that word in the low 48.
        Requeue => "requeue",
        /// `arg` bytes were written (of an event counter: 1).
        Bytes => "bytes",
        /// A descriptor was closed: of a pipe, a socket, or a file that may be locked. `arg`:
        /// [`READS_ONLY`] where nothing could be written to it.
        Close => "close",
        /// Two sockets are a pair: what is written to one is read from `arg`, and likewise
        /// the other way.
        Pair => "pair",
        /// When thread `arg` ends, the kernel wakes who waits on the futex's word.
        ClearTid => "clear-tid",
        /// A futex's word was changed atomically: a lock taken or given back, a semaphore
        /// counted up or down. The low 32 bits of `arg` are what it is now; the high ones what
        /// this process knew of it before. Where it takes what another has given, it waits too.
        Word => "word",
        /// A signal was sent to the task that stands in the object's place, or to
        /// [`EVERYBODY`]. `arg`: the signal, and [`ONE_THREAD`] where it is meant for this task
        /// alone, else for its process.
        Signal => "signal",
        /// A timer was set to `arg` nanoseconds from now; 0: it was stopped.
        Timer => "timer",
        /// A lock of a file was given back: `arg` is a [`FileLock`].
        Unlock => "unlock",
        /// A socket was connected. `arg`: a name that the one accepted from it may have too.
        Connect => "connect",
        /// A socket that was accepted has the name `arg`: the first that was connected by it, and
        /// is nobody's peer yet, is its.
        Named => "named",
        /// A socket was accepted from the socket `arg`.
        Accepted => "accepted",
        /// What the task waits for next has a deadline: `arg` nanoseconds after it looked at the
        /// clock. That was so many of its instructions ago as stand in the object's place.
        Deadline => "deadline",
        /// Bytes were moved here from the object that the task's row before waits for: so they
        /// came when that had them. The low 32 bits of `arg`: how many. The high ones: how many
        /// numbers of order ago the call began.
        Moved => "moved",
        /// A local socket can be connected to; `arg` of those who do may wait to be accepted,
        /// and one more.
        Listen => "listen",
        /// The wait or the wake of a futex's word that the task's next row for it tells has these
        /// bits, the low 32 of `arg`: a wake reaches those waits only with which it shares one.
        /// Where there is no such row, it has all of them.
        Bits => "bits",
    }
}

homenode_core::named! {
    /// What a [`Kind::Block`] row may have waited for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u16)]
    pub enum Block {
        /// A wake of a futex's word. `arg`: the number of order when the wait began.
        Futex => "futex",
        /// Bytes: the low 32 bits of `arg`. The high ones: microseconds that it took.
        Bytes => "bytes",
        /// The end of what comes through a pipe or a socket. The high 32 bits of `arg`:
        /// microseconds that it took.
        End => "end",
        /// That there is something to read. The high 32 bits of `arg`: microseconds that it took,
        /// if it was this that ended the wait.
        Ready => "ready",
        /// Everything that an event counter has.
        All => "all",
        /// Room for what this task wrote last. `arg`: bytes that the pipe holds.
        Room => "room",
        /// Nothing but time: `arg` nanoseconds.
        Time => "time",
        /// A wake of a futex's word, for `arg` nanoseconds, and none came.
        FutexTimeout => "futex-timeout",
        /// Something to read, for `arg` nanoseconds, and there was nothing.
        ReadyTimeout => "ready-timeout",
        /// A child that has its parent's memory until it runs a program or ends: task `arg`.
        Child => "child",
        /// Something outside of the program, for `arg` nanoseconds: a device, the [`DISK`], or the
        /// [`NETWORK`]. The lowest bit of a device's number is [`LOOKED`].
        Outside => "outside",
        /// The end of the thread that clears the word, which has been before.
        Cleared => "cleared",
        /// One of some signals, which stand in the object's place, the first as bit 0. The low
        /// 32 bits of `arg`: how many numbers of order ago the wait began. The high ones:
        /// microseconds that it took.
        Signal => "signal",
        /// The end of a timer, which ran for `arg` nanoseconds since it was set or ended last.
        Alarm => "alarm",
        /// A lock of a file, a [`FileLock`], which is taken now, be it at once.
        Lock => "lock",
        /// The connect of the peer of a socket that is accepted. `arg`: microseconds that it took.
        Accept => "accept",
        /// Nothing: a lock of a file, a [`FileLock`], that another has, and the task goes on
        /// without.
        Refused => "refused",
        /// A handler runs while the task computes, for one of some signals, which stand in the
        /// object's place, the first as bit 0. The task has not waited for it.
        Handled => "handled",
        /// Room in a socket, or in a pipe where a task looked for some. `arg`: how many numbers of
        /// order ago there was too little.
        Writable => "writable",
        /// Room among those who want to be accepted by the socket that this one was connected to.
        Queue => "queue",
        /// That a word in memory is another than it was: the task has looked at it again and again.
        /// `arg` is a [`Spin`].
        Spin => "spin",
    }
}

/// How a task has spun: [`Block::Spin`]'s `arg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spin {
    /// Instructions that it took, of the row's own; at most 2^40 − 1.
    pub insns: u64,
    /// How many numbers of order ago it began, at most 2^23 − 1.
    pub ago: u64,
    /// It has given its CPU to others meanwhile (`sched_yield`).
    pub yields: bool,
}

impl Spin {
    const INSNS: u32 = 40;
    const AGO: u32 = 23;

    /// As a number.
    pub fn arg(self) -> u64 {
        let insns = self.insns.min((1 << Self::INSNS) - 1);
        let ago = self.ago.min((1 << Self::AGO) - 1);
        insns | ago << Self::INSNS | u64::from(self.yields) << 63
    }
}

impl From<u64> for Spin {
    fn from(arg: u64) -> Self {
        Self {
            insns: arg & ((1 << Self::INSNS) - 1),
            ago: arg >> Self::INSNS & ((1 << Self::AGO) - 1),
            yields: arg >> 63 == 1,
        }
    }
}

/// In [`Release::Close`]'s `arg`: it does not end what comes through.
pub const READS_ONLY: u64 = 1;
/// In [`Block::Outside`]'s object: nothing was read, it was only said that something is there.
pub const LOOKED: u64 = 1;
/// Numbers of order lie so far apart, so that what has none finds a place between two.
const SPREAD: u64 = 16;
/// The object of [`Block::Outside`] where a task waits until all is written.
pub const DISK: u64 = SHARED;
/// The same where a task connects to an address of the internet.
pub const NETWORK: u64 = SHARED | 2;
/// An object's number says that other address spaces know it by the same.
pub const SHARED: u64 = 1 << 63;
/// Low bits of [`Release::Requeue`]'s `arg` that are an address.
pub const ADDRESS_BITS: u32 = 48;
/// In the place of a task that a [`Release::Signal`] is for: whoever gets it.
pub const EVERYBODY: u64 = u64::MAX;
/// Bit of [`Release::Signal`]'s `arg`.
pub const ONE_THREAD: u64 = 1 << 8;
/// The signal that a process gets when its child has ended.
pub const CHILD_ENDED: u32 = 17;

/// What a point of a recording's order waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// That point.
    Point(u32),
    /// So many nanoseconds.
    Time(u64),
    /// That point, but for so many nanoseconds at most. The point may come later than this one.
    Until(u32, u64),
    /// That point, where one of several got what they waited for: whose turn it was could have
    /// been decided otherwise.
    Turn(u32),
    /// That a lock is free. The task has it then until it comes to that point.
    Lock(u32, u32),
    /// That all come to a meeting, of that number: at a barrier who comes last lets the others go
    /// on, be it another than when it was recorded.
    Meet(u32),
    /// Nothing, but it gives a count, of that number ([`Points::counts`]), so much.
    Post(u32, u32),
    /// The same, and all who wait there look whether it is for them, be it nothing: a condition
    /// variable's broadcast.
    Broadcast(u32, u32),
    /// That a count, of that number, has so much, which the task takes then.
    Take(u32, u32),
    /// Nothing, but the task's next point has a deadline: so many nanoseconds after the task
    /// passed that point, or after its beginning ([`START`]). What that one says of time is
    /// meant so then; where it says nothing of it, the task wakes up at its deadline in vain,
    /// and waits again for as long.
    Due(u32, u64),
}

/// In the place of a point: a task's beginning.
pub const START: u32 = u32::MAX;

/// How waits ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Waits in all.
    pub waits: u64,
    /// Of them, those that another task's act ended.
    pub by_tasks: u64,
    /// Of them, those at barriers.
    pub at_barriers: u64,
    /// Of them, those at semaphores and condition variables that are counts.
    pub at_counts: u64,
    /// Times that a task took what another had given, by a lock, a semaphore or the like,
    /// without waiting for it when it was recorded; of locks of files also where it waited.
    pub taken: u64,
    /// Waits, of those by tasks, for a lock that the task then took.
    pub for_locks: u64,
    /// Times that a lock was taken and given back by the same task.
    pub locked: u64,
    /// Those of which nobody knows what ended them.
    pub unknown: u64,
    /// Those for something outside of the program, and what they took in the recorded run,
    /// in nanoseconds.
    pub outside: (u64, u64),
}

/// Where a futex's word is, or another object: the address space, unless all know it.
type Object = (u32, u64);

#[derive(Clone, Copy)]
struct Point {
    task: u32,
    /// The number of order, times [`SPREAD`].
    order: u64,
    /// Instructions of the task up to here.
    insns: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Release(Release, Object, u64),
    Block(Block, Object, u64),
    /// The task runs another program.
    Exec,
    /// The task ends.
    Exit,
}

impl What {
    /// The word that a futex call or a change names.
    fn word(self) -> Option<Object> {
        match self {
            Self::Block(Block::Futex | Block::FutexTimeout, word, _)
            | Self::Release(Release::Word | Release::Futex, word, _) => Some(word),
            Self::Release(..) | Self::Block(..) | Self::Exec | Self::Exit => None,
        }
    }
}

/// The points of a recording, as its rows come.
#[derive(Default)]
pub struct Points {
    spaces: Vec<u32>,
    /// By task: the process that made it as a process.
    parents: Vec<Option<u32>>,
    /// By task: the task that made it.
    makers: Vec<Option<u32>>,
    all: Vec<Point>,
    /// By task: the largest number of order so far.
    latest: Vec<u64>,
    /// By task: its instructions so far.
    insns: Vec<u64>,
    /// Ends of tasks by a signal, which is that.
    killed: Vec<(u32, u32)>,
    /// Native processor time of all tasks, in nanoseconds, and their instructions.
    speed: (u64, u64),
    /// How long the program ran natively on the clock, in nanoseconds, if that is known.
    wall: Option<u64>,
    /// By number: the counts that were found.
    counts: Vec<Count>,
    spins: Spins,
}

impl Points {
    /// Of a recording.
    pub fn new(header: &Header) -> Self {
        let spaces: Vec<u32> = header.tasks.iter().map(|t| t.pid).collect();
        let parent =
            |t: &Task| t.parent.filter(|_| !t.thread).and_then(|p| spaces.get(p as usize)).copied();
        let native = header.native.as_ref().map_or(0, |n| n.user_ns.saturating_add(n.sys_ns));
        Self {
            parents: header.tasks.iter().map(parent).collect(),
            makers: header.tasks.iter().map(|t| t.parent).collect(),
            latest: vec![0; spaces.len()],
            insns: vec![0; spaces.len()],
            speed: (native, header.totals.insns),
            wall: header.native.as_ref().map(|n| n.wall_ns).filter(|&ns| ns > 0),
            spaces,
            all: Vec::new(),
            killed: Vec::new(),
            counts: Vec::new(),
            spins: Spins::default(),
        }
    }

    /// Takes a row; its number among the points, if it is one. Rows come in the file's order.
    ///
    /// # Errors
    /// What of it can't be.
    pub fn row(&mut self, row: &Row) -> Result<Option<u32>, String> {
        let task = row.task;
        let insns = self.insns.get_mut(task as usize).ok_or("a row of no task")?;
        *insns = insns.saturating_add(row.insns);
        let insns = *insns;
        let space = self.spaces.get(task as usize).copied().unwrap_or_default();
        let object = (if row.pages & SHARED == 0 { space } else { 0 }, row.pages);
        let what = match row.kind {
            Kind::Release => {
                let of = Release::ALL.get(row.reads as usize).copied();
                let of = of.ok_or_else(|| format!("there is no release {}", row.reads))?;
                What::Release(of, object, row.arg)
            }
            Kind::Block => {
                let of = Block::ALL.get(row.reads as usize).copied();
                let of = of.ok_or_else(|| format!("there is no wait {}", row.reads))?;
                What::Block(of, object, row.arg)
            }
            Kind::Exec => What::Exec,
            Kind::Exit => What::Exit,
            Kind::Access
            | Kind::Map
            | Kind::Unmap
            | Kind::Protect
            | Kind::Remap
            | Kind::Discard
            | Kind::Fork
            | Kind::Thread
            | Kind::Wait => return Ok(None),
        };
        let latest = &mut self.latest[task as usize];
        // What the recorder did not see has no number of its own: it comes after the rest.
        let order = if row.page == 0 { *latest } else { row.page };
        if order < *latest {
            return Err(format!("task {task}'s order goes back from {latest} to {order}"));
        }
        *latest = order;
        let spread = order.checked_mul(SPREAD);
        let spread = spread.ok_or_else(|| format!("there is no order {order}"))?;
        let number = u32::try_from(self.all.len());
        let number = number.map_err(|_| "it has more than 4 G points of order".to_owned())?;
        if let (What::Exit, 0, Some(signal @ 1..=64)) = (what, row.page, row.arg.checked_sub(256)) {
            self.killed.push((number, signal as u32));
        }
        self.all.push(Point { task, order: spread, insns, what });
        Ok(Some(number))
    }

    /// The counts that [`After::Post`] and [`After::Take`] name, by number; none before
    /// [`Self::resolve`].
    pub fn counts(&self) -> &[Count] {
        &self.counts
    }

    /// What of the points is spinning; nothing before [`Self::resolve`].
    pub fn spins(&self) -> &Spins {
        &self.spins
    }

    /// What each waits for, by number.
    pub fn resolve(&mut self) -> (Vec<After>, Found) {
        let killed = self.place_killed();
        let mut by_order: Vec<u32> = (0..self.all.len() as u32).collect();
        by_order.sort_by_key(|&n| self.all[n as usize].order);
        let sockets = Sockets::new(&self.all, &by_order);
        if self.place_moved(&by_order, &sockets) {
            by_order.sort_by_key(|&n| self.all[n as usize].order);
        }
        let mut r = Resolver {
            points: &self.all,
            after: vec![After::Nothing; self.all.len()],
            known: vec![false; self.all.len()],
            exits: BTreeMap::new(),
            execs: BTreeMap::new(),
            for_locks: BTreeSet::new(),
            for_counts: counts::Counts::default(),
            wall: self.wall,
        };
        for (n, point) in (0..).zip(&self.all) {
            match point.what {
                What::Exit => drop(r.exits.insert(point.task, n)),
                What::Exec => r.execs.entry(point.task).or_default().push(n),
                What::Release(..) | What::Block(..) => {}
            }
        }
        r.for_counts = r.counts(&by_order);
        let held = r.words(&by_order);
        let spins = r.spins(&by_order, &held);
        let calls = r.futexes(&by_order, &held);
        r.barriers(&calls);
        r.streams(&by_order, &sockets);
        r.accepts(&sockets);
        for (exit, by) in killed {
            r.ends(exit, Some(by));
        }
        r.signals(&by_order, self);
        r.files(&by_order, self);
        let found = r.rest(self);
        let (after, all) = (r.after, r.for_counts.all);
        self.counts = all;
        self.spins = spins;
        (after, found)
    }
}

struct Resolver<'a> {
    points: &'a [Point],
    after: Vec<After>,
    /// What ended them is known, be it the task itself.
    known: Vec<bool>,
    /// By task: its end.
    exits: BTreeMap<u32, u32>,
    /// By task: where it runs other programs.
    execs: BTreeMap<u32, Vec<u32>>,
    /// Waits that are over when a lock is taken.
    for_locks: BTreeSet<u32>,
    /// Semaphores and condition variables.
    for_counts: counts::Counts,
    wall: Option<u64>,
}

/// Bytes that have come through an object so far.
#[derive(Default)]
struct Stream {
    /// Writes: how much there was when each was through, and which it is.
    written: Vec<(u64, u32)>,
    closed: Option<u32>,
    writers: BTreeSet<u32>,
    /// Reads, likewise.
    read: Vec<(u64, u32)>,
}

impl Stream {
    fn so_far(all: &[(u64, u32)]) -> u64 {
        all.last().map_or(0, |w| w.0)
    }
    /// The first that brought more than so much.
    fn beyond(all: &[(u64, u32)], amount: u64) -> Option<u32> {
        all.get(all.partition_point(|w| w.0 <= amount)).map(|w| w.1)
    }
}

/// Of a wait that is of a kind which there is in vain too: whether it is of a futex.
fn in_vain_of_futex(of: Block) -> Option<bool> {
    match of {
        Block::Futex | Block::FutexTimeout => Some(true),
        Block::Bytes
        | Block::End
        | Block::Ready
        | Block::All
        | Block::ReadyTimeout
        | Block::Signal
        | Block::Accept => Some(false),
        Block::Room
        | Block::Time
        | Block::Child
        | Block::Outside
        | Block::Cleared
        | Block::Alarm
        | Block::Lock
        | Block::Refused
        | Block::Handled
        | Block::Writable
        | Block::Queue
        | Block::Spin => None,
    }
}

/// Whether a wait that lasts for a time was for something outside.
fn is_outside(of: Block) -> bool {
    match of {
        Block::Bytes
        | Block::End
        | Block::Ready
        | Block::Outside
        | Block::Signal
        | Block::Accept => true,
        Block::Futex
        | Block::All
        | Block::Room
        | Block::Time
        | Block::FutexTimeout
        | Block::ReadyTimeout
        | Block::Child
        | Block::Cleared
        | Block::Alarm
        | Block::Lock
        | Block::Refused
        | Block::Handled
        | Block::Writable
        | Block::Queue
        | Block::Spin => false,
    }
}

/// How many times more often a lock is given back by who has taken it than by another. That
/// happens where two changes come so close that their numbers are the wrong way round.
const MOSTLY: u64 = 3;

/// Who takes a word from 0 and who brings it back.
#[derive(Default)]
struct Habit {
    value: u32,
    by: Option<u32>,
    /// Times that the task which took it gave it back, and that another did.
    own: u64,
    others: u64,
    /// It has been below 0.
    below: bool,
}

impl Habit {
    /// Whether it is used as a lock is.
    fn is_lock(&self) -> bool {
        self.own > MOSTLY * self.others
    }
    fn change(&mut self, task: u32, value: u32) {
        self.below |= (value as i32) < 0;
        match (std::mem::replace(&mut self.value, value), value) {
            (0, 1..) => self.by = Some(task),
            (1.., 0) => match self.by {
                Some(by) if by == task => self.own += 1,
                Some(_) => self.others += 1,
                // It was taken before anybody looked.
                None => {}
            },
            (0, 0) | (1.., 1..) => {}
        }
    }
}

/// What has been given to a count and not been taken.
struct Turns {
    value: i32,
    /// Who gave how much, the first first; `None`: what was there before.
    given: VecDeque<(Option<u32>, i64)>,
}

impl Turns {
    fn new(value: u32) -> Self {
        let value = value as i32;
        Self { value, given: [(None, i64::from(value.max(0)))].into() }
    }
    /// The count is another: whose gift was taken last, if some was.
    fn change(&mut self, n: u32, value: u32) -> Option<u32> {
        // A count below 0 says how many wait; there is nothing to take.
        let value = value as i32;
        let more = i64::from(value) - i64::from(std::mem::replace(&mut self.value, value));
        if more > 0 {
            self.given.push_back((Some(n), more));
        }
        let taken = self.take(-more);
        // What went unseen can't be taken any more.
        let all: i64 = self.given.iter().map(|g| g.1).sum();
        self.take(all - i64::from(value.max(0)));
        taken
    }
    /// Takes the first of what was given; who gave the last of it.
    fn take(&mut self, mut amount: i64) -> Option<u32> {
        let mut last = None;
        while let Some(first) = self.given.front_mut().filter(|_| amount > 0) {
            let part = first.1.min(amount);
            (first.1, amount, last) = (first.1 - part, amount - part, first.0);
            if first.1 == 0 {
                self.given.pop_front();
            }
        }
        last
    }
}

/// What each task did with each lock: where it took it, for long enough to give it back, and
/// where it gave it back.
type Held = BTreeMap<(Object, u32), Vec<(u32, bool)>>;

/// Who has a lock, as far as its changes tell.
struct Lock {
    number: u32,
    value: u32,
    by: Option<(u32, u32)>,
}

impl Resolver<'_> {
    fn order(&self, n: u32) -> u64 {
        self.points[n as usize].order
    }
    /// A wait was ended by a point, unless that came later: then it is another's.
    fn ends(&mut self, wait: u32, by: Option<u32>) {
        let Some(by) = by.filter(|&by| self.order(by) < self.order(wait)) else { return };
        self.known[wait as usize] = true;
        if self.points[by as usize].task != self.points[wait as usize].task {
            self.after[wait as usize] = After::Point(by);
        }
    }

    /// Locks, and what was taken of counts that others had raised.
    ///
    /// A word that mostly goes back to 0 by the task that took it from there is a lock: it is
    /// taken by who comes first. Where tasks spin, so is one that goes back to 1. Any other is a count, as of a semaphore: what lowers it takes
    /// of what raised it, the first first. What is known as a count is none of both.
    fn words(&mut self, by_order: &[u32]) -> Held {
        let mut habits: BTreeMap<Object, Habit> = BTreeMap::new();
        let changes = |points: &[Point], n: u32| match points[n as usize] {
            Point { task, what: What::Release(Release::Word, word, value), .. } => {
                Some((task, word, value as u32, (value >> 32) as u32))
            }
            _ => None,
        };
        let words = by_order.iter().copied().filter(|&n| match self.points[n as usize].what {
            What::Release(Release::Word, word, _) => {
                !self.for_counts.is_count(word) && !self.for_counts.is_for_leaving(word)
            }
            What::Release(..) | What::Block(..) | What::Exec | What::Exit => false,
        });
        let words: Vec<u32> = words.collect();
        // Of words that tasks have spun at: as if they were 1 while nobody has them.
        let spun = self.spun_words();
        let mut turned: BTreeMap<Object, Habit> = BTreeMap::new();
        for &n in &words {
            let Some((task, word, now, before)) = changes(self.points, n) else { continue };
            let new = |value| move || Habit { value, ..Habit::default() };
            habits.entry(word).or_insert_with(new(before)).change(task, now);
            if spun.contains(&word) {
                let (before, now) = (spins::turned(before), spins::turned(now));
                turned.entry(word).or_insert_with(new(before)).change(task, now);
            }
        }
        turned.retain(|word, habit| habit.is_lock() && spins::is_turned(&habits[word], habit));
        let mut held = Held::new();
        let mut locks: BTreeMap<Object, Lock> = BTreeMap::new();
        let mut counts: BTreeMap<Object, Turns> = BTreeMap::new();
        for &n in &words {
            let Some((task, word, mut now, mut before)) = changes(self.points, n) else { continue };
            if turned.contains_key(&word) {
                (before, now) = (spins::turned(before), spins::turned(now));
            } else if !habits[&word].is_lock() {
                let count = counts.entry(word).or_insert_with(|| Turns::new(before));
                let by = count.change(n, now);
                self.takes(n, by);
                continue;
            }
            let number = locks.len() as u32;
            let lock = locks.entry(word).or_insert(Lock { number, value: before, by: None });
            match (std::mem::replace(&mut lock.value, now), now) {
                (0, 1..) => lock.by = Some((task, n)),
                // Where another gives it back, numbers are the wrong way round, or it is a
                // lock of another kind: then nobody is held up by it.
                (_, 0) => {
                    if let Some((_, taken)) = lock.by.take().filter(|by| by.0 == task) {
                        self.after[taken as usize] = After::Lock(lock.number, n);
                        let own = held.entry((word, task)).or_default();
                        own.extend([(taken, true), (n, false)]);
                    }
                }
                // Somebody waits for it from now on.
                (1.., 1..) => {}
            }
        }
        held
    }
    /// A task takes what a point has given.
    fn takes(&mut self, n: u32, by: Option<u32>) {
        let task = |n: u32| self.points[n as usize].task;
        if let Some(by) = by.filter(|&by| task(by) != task(n)) {
            self.after[n as usize] = After::Turn(by);
        }
    }
    /// A wait on a lock's word after which the task took the lock: it is to wait there, where
    /// it takes it.
    fn is_for_lock(&self, wait: u32, word: Object, held: &Held) -> bool {
        let own = held.get(&(word, self.points[wait as usize].task)).map_or(&[][..], |own| own);
        own.get(own.partition_point(|&(n, _)| n < wait)).is_some_and(|&(_, taken)| taken)
    }

    /// Which bits waits and wakes of words have, of those that have not all of them.
    fn bits(&self) -> BTreeMap<u32, u32> {
        let mut bits = BTreeMap::new();
        // By task: what its last point but for a deadline says of the next.
        let mut last: BTreeMap<u32, (Object, u32)> = BTreeMap::new();
        for (n, point) in (0..).zip(self.points) {
            let (of, said) = match point.what {
                What::Release(Release::Bits, word, arg) => {
                    last.insert(point.task, (word, arg as u32));
                    continue;
                }
                What::Release(Release::Deadline, ..) => continue,
                of => (of, last.remove(&point.task)),
            };
            let is_its = |&(word, _): &(Object, u32)| match of {
                What::Block(Block::Futex, at, _) | What::Release(Release::Futex, at, _) => {
                    at == word
                }
                What::Block(..) | What::Release(..) | What::Exec | What::Exit => false,
            };
            bits.extend(said.filter(is_its).map(|(_, bits)| (n, bits)));
        }
        bits
    }

    /// Wakes and waits of words.
    ///
    /// * `held` – when locks were taken and given back.
    fn futexes(&mut self, by_order: &[u32], held: &Held) -> barriers::Calls {
        let mut calls = barriers::Calls::new();
        // By word: waits that nothing has ended yet, in the order in which they began.
        let mut waiting: BTreeMap<Object, VecDeque<(u64, u32)>> = BTreeMap::new();
        let mut clears: BTreeMap<Object, Vec<(u64, u32)>> = BTreeMap::new();
        let mut cleared: Vec<(Object, u32)> = Vec::new();
        let bits = self.bits();
        let bits_of = |n: u32| bits.get(&n).copied().unwrap_or(u32::MAX);
        for (n, point) in (0..).zip(self.points) {
            match point.what {
                What::Block(Block::Futex, word, began) => {
                    waiting.entry(word).or_default().push_back((began, n))
                }
                What::Block(Block::Cleared, word, _) => {
                    // Nobody wakes it: it has not waited.
                    cleared.push((word, n));
                }
                What::Release(Release::ClearTid, word, thread) => {
                    clears.entry(word).or_default().push((point.order, thread as u32));
                }
                _ => {}
            }
        }
        for queue in waiting.values_mut() {
            queue.make_contiguous().sort_unstable();
        }
        for &n in by_order {
            let Point { order, what, .. } = self.points[n as usize];
            let (word, to, count) = match what {
                What::Release(Release::Futex, word, count) => (word, None, count),
                What::Release(Release::Requeue, word, arg) => {
                    let to = (word.0, arg & ((1 << ADDRESS_BITS) - 1));
                    (word, Some(to), arg >> ADDRESS_BITS)
                }
                _ => continue,
            };
            let wakes = bits_of(n);
            let is_meant = |wait: u32| bits_of(wait) & wakes != 0;
            let mut woken = Vec::new();
            for _ in 0..count {
                // Those that returned before were not woken by this.
                let queue = waiting.entry(word).or_default();
                let reached = |&(_, wait): &(u64, u32)| self.order(wait) > order && is_meant(wait);
                let at = queue.iter().position(reached);
                let Some((began, wait)) = at.and_then(|at| queue.remove(at)) else { break };
                match to {
                    Some(to) => {
                        let queue = waiting.entry(to).or_default();
                        let at = queue.partition_point(|q| *q < (began, wait));
                        queue.insert(at, (began, wait));
                    }
                    None => woken.push(wait),
                }
            }
            if to.is_none() {
                calls.entry(word).or_default().push((n, woken.clone()));
            }
            let waits = |q: &(u64, u32)| {
                q.0.saturating_mul(SPREAD) < order && self.order(q.1) > order && is_meant(q.1)
            };
            let others = waiting.get(&word).is_some_and(|queue| queue.iter().any(waits));
            for wait in woken {
                self.ends(wait, Some(n));
                let at = wait as usize;
                let ended = self.after[at];
                match ended {
                    After::Point(_) if self.is_for_lock(wait, word, held) => {
                        self.after[at] = After::Nothing;
                        self.for_locks.insert(wait);
                    }
                    After::Point(_) if self.for_counts.is_for_leaving(word) => {
                        self.after[at] = After::Nothing;
                    }
                    After::Point(_) if self.is_for_count(wait, n) => {}
                    After::Point(by) if others => self.after[at] = After::Turn(by),
                    // The task's own wake; what else could be was not one.
                    After::Point(_)
                    | After::Nothing
                    | After::Time(_)
                    | After::Until(..)
                    | After::Turn(_)
                    | After::Lock(..)
                    | After::Meet(_)
                    | After::Post(..)
                    | After::Broadcast(..)
                    | After::Take(..)
                    | After::Due(..) => {}
                }
            }
        }
        // The rest was woken by a thread's end, or for no reason.
        let rest = waiting
            .into_iter()
            .flat_map(|(word, queue)| queue.into_iter().map(move |(_, wait)| (word, wait)));
        for (word, wait) in rest.chain(cleared) {
            if let Some(clears) = clears.get(&word) {
                let before = clears.iter().rfind(|c| c.0 < self.order(wait));
                let exit = before.and_then(|c| self.exits.get(&c.1).copied());
                self.ends(wait, exit);
            }
        }
        calls
    }

    /// What goes through pipes, socket pairs and event counters.
    fn streams(&mut self, by_order: &[u32], sockets: &Sockets) {
        let mut streams: BTreeMap<u64, Stream> = BTreeMap::new();
        let comes = self.what_comes();
        // Where that is read which is written to an object.
        let other_end = |o| sockets.peers.get(&o).copied().unwrap_or(o);
        for &n in by_order {
            let Point { task, what, .. } = self.points[n as usize];
            match what {
                What::Release(of @ (Release::Bytes | Release::Moved), (_, object), arg) => {
                    let bytes = if of == Release::Moved { arg & u64::from(u32::MAX) } else { arg };
                    let s = streams.entry(other_end(object)).or_default();
                    let all = Stream::so_far(&s.written).saturating_add(bytes);
                    s.written.push((all, n));
                    s.writers.insert(task);
                }
                What::Release(Release::Close, _, READS_ONLY) => {}
                What::Release(Release::Close, (_, object), _) => {
                    streams.entry(other_end(object)).or_default().closed = Some(n);
                }
                What::Block(Block::Bytes, (_, object), arg) => {
                    let s = streams.entry(object).or_default();
                    let (bytes, us) = (arg & u64::from(u32::MAX), arg >> 32);
                    let all = Stream::so_far(&s.read).saturating_add(bytes);
                    s.read.push((all, n));
                    // The rest of what was read may have come from writes that are not known.
                    let last = Stream::beyond(&s.written, all.saturating_sub(1));
                    let by = last.or(s.written.last().map(|w| w.1));
                    match by {
                        Some(by) => self.ends(n, Some(by)),
                        None => self.after[n as usize] = After::Time(us * 1000),
                    }
                }
                What::Block(Block::Ready, (_, object), arg) => {
                    let s = streams.entry(object).or_default();
                    let by = Stream::beyond(&s.written, Stream::so_far(&s.read));
                    self.ends(n, by);
                    // Of the end of what tasks here may write, its read says who brought it about.
                    let outside = s.closed.is_none() || comes.contains(&n);
                    if s.written.is_empty() && outside && !sockets.is_listener(object) {
                        self.lasts(n, arg >> 32);
                    }
                }
                What::Block(Block::All, (_, object), _) => {
                    let s = streams.entry(object).or_default();
                    let by = Stream::beyond(&s.written, Stream::so_far(&s.read));
                    s.read.push((Stream::so_far(&s.written), n));
                    self.ends(n, by);
                }
                What::Block(Block::End, (_, object), arg) => {
                    let s = streams.entry(object).or_default();
                    if s.written.is_empty() && s.closed.is_none() {
                        self.lasts(n, arg >> 32);
                    }
                    let ends = s.writers.iter().filter_map(|w| self.exits.get(w).copied());
                    let ends = ends.chain(s.closed).chain(s.written.last().map(|w| w.1));
                    let before = ends.filter(|&e| self.order(e) < self.order(n));
                    let last = before.max_by_key(|&e| self.order(e));
                    self.ends(n, last);
                }
                What::Block(Block::Room, (_, object), holds) => {
                    let s = streams.entry(other_end(object)).or_default();
                    let mine = |w: &&(u64, u32)| self.points[w.1 as usize].task == task;
                    let all = s.written.iter().rev().find(mine).map_or(0, |w| w.0);
                    let by = all.checked_sub(holds).filter(|&over| over > 0);
                    let by = by.and_then(|over| Stream::beyond(&s.read, over - 1));
                    // Where nobody had to make room, there was some.
                    self.known[n as usize] = true;
                    self.ends(n, by);
                }
                What::Block(Block::Writable, (_, object), ago) => {
                    let s = streams.entry(other_end(object)).or_default();
                    let began = self.order(n).saturating_sub(ago.saturating_mul(SPREAD));
                    let meanwhile = s.read.iter().rev().map(|r| r.1);
                    let mut meanwhile = meanwhile.take_while(|&r| self.order(r) > began);
                    let by = meanwhile.find(|&r| self.points[r as usize].task != task);
                    // Where nobody has read meanwhile, there was some.
                    self.known[n as usize] = true;
                    self.ends(n, by);
                }
                What::Release(
                    Release::Futex
                    | Release::Bits
                    | Release::Listen
                    | Release::Requeue
                    | Release::ClearTid
                    | Release::Word
                    | Release::Signal
                    | Release::Timer
                    | Release::Unlock
                    | Release::Pair
                    | Release::Connect
                    | Release::Named
                    | Release::Accepted
                    | Release::Deadline,
                    ..,
                )
                | What::Block(
                    Block::Futex
                    | Block::Cleared
                    | Block::Time
                    | Block::FutexTimeout
                    | Block::ReadyTimeout
                    | Block::Child
                    | Block::Outside
                    | Block::Signal
                    | Block::Alarm
                    | Block::Lock
                    | Block::Accept
                    | Block::Refused
                    | Block::Handled
                    | Block::Queue
                    | Block::Spin,
                    ..,
                )
                | What::Exec
                | What::Exit => {}
            }
        }
    }

    /// Looks for something to read after which the task reads some from the same object.
    fn what_comes(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        // By task and object: whether what it reads next is something.
        let mut next: BTreeMap<(u32, Object), bool> = BTreeMap::new();
        for (n, point) in self.points.iter().enumerate().rev() {
            let What::Block(of, object, _) = point.what else { continue };
            match of {
                Block::Bytes => drop(next.insert((point.task, object), true)),
                Block::End => drop(next.insert((point.task, object), false)),
                Block::Ready if next.get(&(point.task, object)) == Some(&true) => {
                    found.insert(n as u32);
                }
                Block::Ready
                | Block::Futex
                | Block::All
                | Block::Room
                | Block::Time
                | Block::FutexTimeout
                | Block::ReadyTimeout
                | Block::Child
                | Block::Outside
                | Block::Cleared
                | Block::Signal
                | Block::Alarm
                | Block::Lock
                | Block::Accept
                | Block::Refused
                | Block::Handled
                | Block::Writable
                | Block::Queue
                | Block::Spin => {}
            }
        }
        found
    }
    /// A wait is for what nobody in the recording has done: so many microseconds, if that is known.
    fn lasts(&mut self, wait: u32, us: u64) {
        if us > 0 {
            self.known[wait as usize] = true;
            self.after[wait as usize] = After::Time(us * 1000);
        }
    }

    /// Times and children; how all of them ended.
    fn rest(&mut self, of: &Points) -> Found {
        let for_locks = self.for_locks.len() as u64;
        let mut found = Found { for_locks, by_tasks: for_locks, ..Found::default() };
        for (n, point) in (0..).zip(self.points) {
            let What::Block(of, _, arg) = point.what else { continue };
            match of {
                Block::Time | Block::Outside => {
                    // Sleeps between tries are known already.
                    if self.after[n as usize] == After::Nothing {
                        self.after[n as usize] = After::Time(arg);
                    }
                }
                Block::Child => {
                    let child = arg as u32;
                    let execs = self.execs.get(&child).into_iter().flatten();
                    let first = execs.copied().chain(self.exits.get(&child).copied()).min();
                    self.ends(n, first);
                }
                Block::Futex
                | Block::Cleared
                | Block::FutexTimeout
                | Block::ReadyTimeout
                | Block::Bytes
                | Block::End
                | Block::Ready
                | Block::All
                | Block::Room
                | Block::Signal
                | Block::Alarm
                | Block::Lock
                | Block::Accept
                | Block::Refused
                | Block::Handled
                | Block::Writable
                | Block::Queue
                | Block::Spin => {}
            }
        }
        let due = deadlines::Deadlines::new(self.points);
        self.timeouts(&due);
        self.deadlines(&due, of.speed);
        for (n, point) in self.points.iter().enumerate() {
            let of = match point.what {
                // What is a lock's has been counted; of the rest nobody knows that it waited.
                What::Block(Block::Spin, ..) if self.after[n] == After::Nothing => {
                    found.waits += u64::from(self.for_locks.contains(&(n as u32)));
                    continue;
                }
                What::Block(Block::Cleared | Block::Lock | Block::Refused | Block::Handled, ..)
                | What::Release(Release::Word, ..) => {
                    match self.after[n] {
                        After::Lock(..) => found.locked += 1,
                        After::Nothing | After::Post(..) | After::Broadcast(..) => {}
                        After::Point(_)
                        | After::Turn(_)
                        | After::Take(..)
                        | After::Time(_)
                        | After::Until(..)
                        | After::Meet(_)
                        | After::Due(..) => found.taken += 1,
                    }
                    continue;
                }
                What::Block(of, ..) => of,
                What::Release(..) | What::Exec | What::Exit => continue,
            };
            found.waits += 1;
            match self.after[n] {
                After::Point(_) | After::Turn(_) => found.by_tasks += 1,
                After::Meet(_) => {
                    found.by_tasks += 1;
                    found.at_barriers += 1;
                }
                After::Nothing | After::Take(..) if self.for_counts.ended.contains(&(n as u32)) => {
                    found.by_tasks += 1;
                    found.at_counts += 1;
                }
                After::Nothing => found.unknown += u64::from(!self.known[n]),
                After::Time(ns) if is_outside(of) => {
                    found.outside = (found.outside.0 + 1, found.outside.1.saturating_add(ns));
                }
                After::Time(_)
                | After::Until(..)
                | After::Lock(..)
                | After::Post(..)
                | After::Broadcast(..)
                | After::Take(..)
                | After::Due(..) => {}
            }
        }
        found
    }

    /// Waits that were in vain: whether they are again depends on what came next.
    fn timeouts(&mut self, due: &deadlines::Deadlines) {
        let polls = polls::polls(self.points, due);
        // By task, of futexes and of other things: what ended the next wait.
        let mut next: BTreeMap<(u32, bool), u32> = BTreeMap::new();
        // By task: what it depends on next, in whatever way.
        let mut nearest: BTreeMap<u32, u32> = BTreeMap::new();
        for (n, point) in self.points.iter().enumerate().rev() {
            let by = match self.after[n] {
                After::Point(p) | After::Turn(p) => Some(p),
                // Who gave it when it was recorded.
                After::Take(..) => self.for_counts.given_by.get(&(n as u32)).copied(),
                After::Nothing
                | After::Time(_)
                | After::Until(..)
                | After::Lock(..)
                | After::Meet(_)
                | After::Post(..)
                | After::Broadcast(..)
                | After::Due(..) => None,
            };
            if let Some(p) = by {
                nearest.insert(point.task, p);
            }
            let What::Block(of, _, arg) = point.what else { continue };
            let arg = due.span(n as u32, arg);
            let Some(of_futex) = in_vain_of_futex(of) else { continue };
            let key = (point.task, of_futex);
            let ended = self.for_counts.ended.contains(&(n as u32));
            if self.for_locks.contains(&(n as u32)) || ended && by.is_none() {
                // It says nothing of what the task waited for before.
                continue;
            }
            if matches!(of, Block::FutexTimeout | Block::ReadyTimeout) {
                let meanwhile = || {
                    let began = *polls.get(&(n as u32))?;
                    nearest.get(&point.task).filter(|&&p| self.order(p) > began)
                };
                let ends = next.get(&key).or_else(meanwhile);
                // The program ran no longer natively: there it did not wait for so long.
                let passed = self.wall.is_none_or(|wall| arg < wall);
                let alone = if passed { After::Time(arg) } else { After::Nothing };
                self.after[n] = ends.map_or(alone, |&p| After::Until(p, arg));
            } else if let Some(p) = by {
                next.insert(key, p);
            } else {
                next.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
