//! Counts of a replay: semaphores and condition variables, whose posts and signals go to who
//! comes first; and circles of tasks that wait for one another.
//!
//! Source: specs/waits.md#counts, specs/waits.md#replay

use super::{After, Player, Recording, spins};
use crate::simulation::{Counted, Simulation, Wants};
use crate::tasks::{On, Run};
use crate::watch::By;
use std::collections::BTreeMap;

/// A count at which tasks wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What is there at first.
    pub first: u64,
    /// What is given goes to who waits already, the first first: who comes later can't have it
    /// before, and who gives it can't have it at all. Else who runs first has it.
    pub handed: bool,
}

/// The counts of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// By number.
    all: Vec<Count>,
    /// By number: what is there when a later round begins.
    again: Vec<i64>,
    /// By number: who gives some, and the point where it does so last.
    last: BTreeMap<u32, BTreeMap<u32, u32>>,
}

impl Counts {
    pub(super) fn set(&mut self, all: Vec<Count>) {
        self.all = all;
    }
    /// Takes what the points say.
    ///
    /// * `tasks` – whose each point is.
    /// * `once` – points that only the first round has.
    pub(super) fn order(
        &mut self,
        after: &[After],
        tasks: impl Iterator<Item = Option<u32>>,
        once: &[u32],
    ) {
        self.last = BTreeMap::new();
        for ((n, after), task) in (0..).zip(after).zip(tasks) {
            // What gives nothing can't be waited for.
            let (After::Post(count, 1..) | After::Broadcast(count, 1..)) = *after else { continue };
            if let Some(task) = task {
                self.last.entry(count).or_default().insert(task, n);
            }
        }
        self.again = self.all.iter().map(|c| first(*c)).collect();
        for &n in once {
            let (count, more) = match after.get(n as usize) {
                Some(&(After::Post(count, more) | After::Broadcast(count, more))) => {
                    (count, i64::from(more))
                }
                Some(&After::Take(count, less)) => (count, -i64::from(less)),
                _ => continue,
            };
            if let Some(there) = self.again.get_mut(count as usize) {
                *there = there.saturating_add(more);
            }
        }
    }
    /// What is there when a round begins.
    fn at_first(&self, number: u32, is_first_round: bool) -> i64 {
        let i = number as usize;
        if is_first_round {
            self.all.get(i).map_or(0, |c| first(*c))
        } else {
            self.again.get(i).copied().unwrap_or(0)
        }
    }
    fn is_handed(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|c| c.handed)
    }
}

fn first(count: Count) -> i64 {
    i64::try_from(count.first).unwrap_or(i64::MAX)
}

impl Recording {
    /// Says what the counts are that [`After::Post`] and [`After::Take`] name, by number. To be
    /// said before [`Recording::order`]; one that is not in it is empty at first.
    pub fn counts(&mut self, counts: Vec<Count>) {
        self.counts.set(counts);
    }
}

impl Player {
    /// A count as it is in this round.
    fn count<'a>(&self, sim: &'a mut Simulation, number: u32) -> &'a mut Counted {
        let is_first_round = sim.round_ends.is_empty();
        sim.passed.counts.entry(number).or_insert_with(|| {
            let there = self.recording.counts.at_first(number, is_first_round);
            Counted { there, ..Counted::default() }
        })
    }
    /// Takes so much from a count, if it is there or this task goes on without; whether it has.
    pub(super) fn take(&self, sim: &mut Simulation, id: usize, number: u32, less: u32) -> bool {
        let without = sim.passed.without.remove(&id);
        let granted = sim.passed.granted.remove(&id).is_some();
        let count = self.count(sim, number);
        let one = Wants { id, track: self.track, less: i64::from(less) };
        if !granted && !without && !count.has(&one) {
            if count.waiting.iter().all(|w| w.id != id) {
                count.waiting.push_back(one);
            }
            return false;
        }
        count.waiting.retain(|w| w.id != id);
        if !granted {
            count.give(&one);
        }
        sim.passed.waited.without += u64::from(without);
        self.look_again(sim, id, number);
        true
    }
    /// So much more is there in a count. Whether that is handed to those who wait.
    fn add(&self, sim: &mut Simulation, number: u32, more: u32) -> bool {
        let handed = self.recording.counts.is_handed(number);
        let count = self.count(sim, number);
        count.there = count.there.saturating_add(i64::from(more));
        if handed {
            // What somebody took without its being there is not there now either.
            let more = i64::from(more).min(count.there.max(0));
            count.given.extend((more > 0).then_some((self.track, more)));
        }
        handed
    }
    /// Gives so much to a count, 0 where only what is there is to be looked at: who waits for it
    /// goes on.
    pub(super) fn post(&self, sim: &mut Simulation, id: usize, number: u32, more: u32) {
        let handed = self.add(sim, number, more);
        let mut count = std::mem::take(self.count(sim, number));
        // Some that waited have been ended since, or are on their way for their deadline: these come
        // to their row again.
        count.waiting.retain(|w| sim.tasks[w.id].run == Run::Blocked(On::Count(number)));
        let (mut woken, mut left) = (Vec::new(), count.there);
        if handed {
            while let Some(at) = count.waiting.iter().position(|w| count.has(w)) {
                let Some(next) = count.waiting.remove(at) else { break };
                count.give(&next);
                sim.passed.granted.insert(next.id, (number, next.less as u32));
                woken.push(next.id);
            }
        } else {
            while let Some(next) = count.waiting.front().filter(|w| w.less <= left) {
                left -= next.less;
                woken.push(next.id);
                count.waiting.pop_front();
            }
        }
        *self.count(sim, number) = count;
        for next in woken {
            sim.wake(next, By::Task(id));
        }
        self.look_again(sim, id, number);
    }
    /// Gives so much to a count, and all who wait there run to look whether they get it: who runs
    /// first has it, and the others wait anew.
    pub(super) fn broadcast(&self, sim: &mut Simulation, id: usize, number: u32, more: u32) {
        self.add(sim, number, more);
        let count = self.count(sim, number);
        for Wants { id: next, .. } in std::mem::take(&mut count.waiting) {
            // Some that waited have been ended since, or are on their way for their deadline.
            if sim.tasks[next].run == Run::Blocked(On::Count(number)) {
                sim.wake(next, By::Task(id));
            }
        }
    }
    /// What another took may have been the last that those who still wait there could wait for.
    fn look_again(&self, sim: &mut Simulation, by: usize, number: u32) {
        let Some(count) = sim.passed.counts.get(&number) else { return };
        let left: Vec<usize> = count.waiting.iter().map(|w| w.id).collect();
        for id in left {
            self.open_from(sim, id, by);
        }
    }

    /// Lets one that waits for a lock or a count go on without it, where this task's waiting has
    /// closed a circle of tasks that wait for one another. For where locks and counts go to others
    /// than when it was recorded, the program might have done something else.
    ///
    /// A task that waits at a count waits for any that will still give some: so it stands for
    /// ever where all that it may wait for, be it through others, do.
    pub(super) fn open_circle(&self, sim: &mut Simulation, id: usize) {
        self.open_from(sim, id, id);
    }
    /// The same for a task that waits already; `by` runs.
    fn open_from(&self, sim: &mut Simulation, id: usize, by: usize) {
        let (mut seen, mut at) = (vec![id], 0);
        let mut opens = None;
        while let Some(&task) = seen.get(at) {
            at += 1;
            // What it waits for ends by itself, where none of the two is there.
            let again = sim.passed.again.contains(&task);
            let waits = !sim.tasks[task].timer_wakes || again;
            let next = match spins::waits_on(sim, task) {
                Some(On::Lock(lock)) => {
                    opens = opens.or(Some(task));
                    sim.passed.locks.get(&lock).and_then(|l| l.held).map(|held| held.0)
                }
                Some(On::Point(p)) => {
                    self.recording.task_of(p).filter(|_| waits).and_then(|t| self.alive(sim, t))
                }
                Some(On::Task(other)) => Some(other),
                Some(On::Count(number)) if waits => {
                    // What is there is for one that has been woken, and may be left.
                    let is_there = |c: &Counted| c.waiting.iter().any(|w| w.id == task && c.has(w));
                    let on_its_way = sim.passed.granted.values().any(|g| g.0 == number);
                    if on_its_way || sim.passed.counts.get(&number).is_some_and(is_there) {
                        return;
                    }
                    opens = opens.or(Some(task));
                    for (&by, last) in self.recording.counts.last.get(&number).into_iter().flatten()
                    {
                        let left = !sim.passed.done.contains(last);
                        let by = Some(by).filter(|_| left).and_then(|t| self.alive(sim, t));
                        seen.extend(by.filter(|by| !seen.contains(by)));
                    }
                    continue;
                }
                Some(
                    On::Sleep
                    | On::Children
                    | On::Child
                    | On::Barrier
                    | On::Count(_)
                    | On::Channel(_)
                    | On::Work
                    | On::Device { .. },
                )
                | None => None,
            };
            match next {
                Some(next) if seen.contains(&next) => {}
                Some(next) => seen.push(next),
                None => return,
            }
        }
        let Some(waits) = opens else { return };
        sim.passed.without.insert(waits);
        match sim.tasks[waits].run {
            Run::Blocked(On::Lock(lock)) => {
                if let Some(lock) = sim.passed.locks.get_mut(&lock) {
                    lock.waiting.retain(|&w| w != waits);
                }
            }
            Run::Blocked(On::Count(number)) => {
                if let Some(count) = sim.passed.counts.get_mut(&number) {
                    count.waiting.retain(|w| w.id != waits);
                }
            }
            Run::Runnable => return spins::look_again(sim, by, waits),
            Run::Blocked(_) | Run::Ended => {}
        }
        sim.wake(waits, By::Task(by));
    }
}
