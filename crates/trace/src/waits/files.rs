//! Locks of files: who takes one comes after who gave it back.
//!
//! ```text
//! task 0   lock bytes 0..9, order 3    unlock, order 7
//! task 1                                               lock bytes 5..6, order 9  ◀── after 7
//! ```
//!
//! Also where nobody waited. A lock that nobody has given back has ended with a descriptor or
//! with a task: a process's own with that process; an open file's with the last of those who
//! may have it, which are the task, those above and below it, and those of the same parent.
//!
//! Source: specs/waits.md#files

use super::*;

/// A lock of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// Nobody else may have one there. Of what is given back: only what this process took, since
    /// it asks for another at once.
    pub exclusive: bool,
    /// It belongs to the open file, not to the process.
    pub of_open_file: bool,
    /// First byte.
    pub from: u64,
    /// Byte behind the last.
    pub to: u64,
}

/// Bits of a first byte, and of a length; the largest of both mean so much and more.
const PLACE_BITS: u32 = 31;
const MOST: u64 = (1 << PLACE_BITS) - 1;

impl FileLock {
    /// As an `arg`.
    pub fn pack(self) -> u64 {
        let from = self.from.min(MOST);
        let bytes = self.to.saturating_sub(self.from).min(MOST);
        let flags = u64::from(self.exclusive) | u64::from(self.of_open_file) << 1;
        bytes << (PLACE_BITS + 2) | from << 2 | flags
    }
    /// From an `arg`.
    pub fn unpack(arg: u64) -> Self {
        let (from, bytes) = (arg >> 2 & MOST, arg >> (PLACE_BITS + 2));
        let to = if from == MOST || bytes == MOST { u64::MAX } else { from + bytes };
        Self { exclusive: arg & 1 != 0, of_open_file: arg & 2 != 0, from, to }
    }
    fn meets(&self, other: &Self) -> bool {
        self.from < other.to && other.from < self.to
    }
    fn excludes(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.meets(other)
    }
    /// What is left of it without another's bytes.
    fn without(self, other: &Self) -> impl Iterator<Item = Self> {
        let parts = [
            Self { to: self.to.min(other.from), ..self },
            Self { from: self.from.max(other.to), ..self },
        ];
        parts.into_iter().filter(|part| part.from < part.to)
    }
}

/// One that is held.
#[derive(Clone, Copy)]
struct Held {
    lock: FileLock,
    /// Who took it, and in the order when.
    task: u32,
    order: u64,
    /// The last close that may have ended it.
    closed: Option<u32>,
    /// It is part of a try that comes to nothing: had the task come at another time, it would
    /// not have had it, so nobody waits for its end.
    in_vain: bool,
}

/// One that was given back: in the order when, by which point, whose it was.
#[derive(Clone, Copy)]
struct Given {
    order: u64,
    by: u32,
    space: u32,
}

/// A task's tries at a lock that another has.
struct Tries {
    object: u64,
    lock: FileLock,
    /// Sleeps, each after a try.
    sleeps: Vec<(u32, u64)>,
    /// The last that it did was a try.
    tried: bool,
}

#[derive(Default)]
struct File {
    held: Vec<Held>,
    /// By bytes and whether it was exclusive: the last, and the last of another process.
    given: BTreeMap<(u64, u64, bool), Vec<Given>>,
}

impl File {
    fn gives(&mut self, held: &Held, new: Given) {
        if held.in_vain {
            return;
        }
        let lock = held.lock;
        let all = self.given.entry((lock.from, lock.to, lock.exclusive)).or_default();
        all.retain(|g| g.space != new.space);
        all.push(new);
        all.sort_by_key(|g| std::cmp::Reverse(g.order));
        all.truncate(2);
    }
}

impl Resolver<'_> {
    /// Locks of files.
    pub(super) fn files(&mut self, by_order: &[u32], of: &Points) {
        let mut files: BTreeMap<u64, File> = BTreeMap::new();
        // Ends so far, in their order.
        let mut exits: Vec<u32> = Vec::new();
        let mut tries: BTreeMap<u32, Tries> = BTreeMap::new();
        for &n in by_order {
            let Point { task, order, what, .. } = self.points[n as usize];
            let space = of.spaces[task as usize];
            match what {
                What::Exit => exits.push(n),
                What::Block(Block::Lock, (_, object), arg) => {
                    let new = FileLock::unpack(arg);
                    let file = files.entry(object).or_default();
                    // What another has still has ended unseen, if it excludes this one.
                    let is_other = |h: &Held| of.spaces[h.task as usize] != space;
                    for held in std::mem::take(&mut file.held) {
                        let end = (is_other(&held) && held.lock.excludes(&new))
                            .then(|| self.unseen_end(&held, &exits, of));
                        match end {
                            None => file.held.push(held),
                            Some(None) => {}
                            Some(Some(by)) => {
                                let space = of.spaces[held.task as usize];
                                let order = self.order(by);
                                file.gives(&held, Given { order, by, space });
                            }
                        }
                    }
                    let conflicts = |(from, to, exclusive): (u64, u64, bool)| {
                        FileLock { from, to, exclusive, ..new }.excludes(&new)
                    };
                    let given = file.given.iter().filter(|(key, _)| conflicts(**key));
                    let others = given.flat_map(|(_, all)| all).filter(|g| g.space != space);
                    let last = others.max_by_key(|g| g.order).map(|g| g.by);
                    self.takes(n, last);
                    let got = |t: &Tries| {
                        let same = t.lock.exclusive == new.exclusive && t.lock.meets(&new);
                        t.object == object && same
                    };
                    if tries.get(&task).is_some_and(got) {
                        let sleeps = tries.remove(&task).map_or(Vec::new(), |t| t.sleeps);
                        if let After::Turn(by) = self.after[n as usize] {
                            for (sleep, ns) in sleeps {
                                self.after[sleep as usize] = After::Until(by, ns);
                            }
                        }
                        let own = file.held.iter_mut().filter(|h| h.task == task);
                        own.for_each(|h| h.in_vain = false);
                    }
                    let in_vain = tries.contains_key(&task);
                    file.takes_from(space, &new, of);
                    file.held.push(Held { lock: new, task, order, closed: None, in_vain });
                }
                What::Release(Release::Unlock, (_, object), arg) => {
                    let bytes = FileLock::unpack(arg);
                    let file = files.entry(object).or_default();
                    let is_own = |h: &Held| of.spaces[h.task as usize] == space;
                    let is_meant = |h: &Held| {
                        h.lock.of_open_file == bytes.of_open_file && h.lock.meets(&bytes)
                    };
                    let own = file.held.iter().any(|h| is_own(h) && is_meant(h));
                    // Another may give back what belongs to an open file.
                    let others = !own && !bytes.exclusive && bytes.of_open_file;
                    for held in std::mem::take(&mut file.held) {
                        let may = is_own(&held) || others && of.are_near(task, held.task);
                        if !may || !is_meant(&held) {
                            file.held.push(held);
                            continue;
                        }
                        let space = of.spaces[held.task as usize];
                        file.gives(&held, Given { order, by: n, space });
                        let rest = held.lock.without(&bytes);
                        file.held.extend(rest.map(|lock| Held { lock, ..held }));
                    }
                }
                What::Release(Release::Close, (_, object), _) => {
                    let Some(file) = files.get_mut(&object) else { continue };
                    for mut held in std::mem::take(&mut file.held) {
                        let is_own = of.spaces[held.task as usize] == space;
                        if is_own && !held.lock.of_open_file {
                            file.gives(&held, Given { order, by: n, space });
                            continue;
                        }
                        if held.lock.of_open_file && of.are_near(task, held.task) {
                            held.closed = Some(n);
                        }
                        file.held.push(held);
                    }
                }
                What::Block(Block::Refused, (_, object), arg) => {
                    let lock = FileLock::unpack(arg);
                    // It is the same try where another of its locks is refused now.
                    let sleeps = tries.remove(&task).map_or(Vec::new(), |t| t.sleeps);
                    let held = files.get_mut(&object).into_iter().flat_map(|f| &mut f.held);
                    held.filter(|h| h.task == task).for_each(|h| h.in_vain = true);
                    tries.insert(task, Tries { object, lock, sleeps, tried: true });
                }
                What::Block(of, _, arg) => {
                    if let Some(t) = tries.get_mut(&task) {
                        if of == Block::Time && t.tried {
                            t.sleeps.push((n, arg));
                        }
                        t.tried = false;
                    }
                }
                What::Release(..) | What::Exec => {}
            }
        }
    }

    /// The last end of a task, or close, that may have ended a lock that nobody gave back.
    fn unseen_end(&self, held: &Held, exits: &[u32], of: &Points) -> Option<u32> {
        let since = exits.iter().rev().take_while(|&&e| self.order(e) > held.order);
        let may_have = |task: u32| {
            if held.lock.of_open_file {
                of.are_near(task, held.task)
            } else {
                of.spaces[task as usize] == of.spaces[held.task as usize]
            }
        };
        let mut ends = since.copied().filter(|&e| may_have(self.points[e as usize].task));
        ends.next().into_iter().chain(held.closed).max_by_key(|&n| self.order(n))
    }
}

impl File {
    /// A process takes a lock: what it had of the same bytes is now this.
    fn takes_from(&mut self, space: u32, new: &FileLock, of: &Points) {
        for held in std::mem::take(&mut self.held) {
            let is_own = of.spaces[held.task as usize] == space
                && held.lock.of_open_file == new.of_open_file;
            if is_own && held.lock.meets(new) {
                let rest = held.lock.without(new);
                self.held.extend(rest.map(|lock| Held { lock, ..held }));
            } else {
                self.held.push(held);
            }
        }
    }
}

impl Points {
    /// Whether two tasks may have an open file in common: one is above the other, or both have
    /// one parent.
    fn are_near(&self, one: u32, other: u32) -> bool {
        let above = |mut at: u32, end: u32| loop {
            if self.spaces[at as usize] == self.spaces[end as usize] {
                return true;
            }
            // Whatever a file says, who makes a task is before it.
            match self.makers[at as usize].filter(|&maker| maker < at) {
                Some(maker) => at = maker,
                None => return false,
            }
        };
        let of_process = |task: u32| self.parents[task as usize];
        above(one, other)
            || above(other, one)
            || of_process(one).is_some_and(|p| of_process(other) == Some(p))
    }
}
