//! Signals: who waited for which, whom they ended, and timers that send them.
//!
//! A wait that a signal ended says which signals it can have been. It is the first of them that
//! was sent during the wait; where none was, one from before that was held back.
//!
//! ```text
//! task 0   ... kill(task 1, 10), order 12 ...
//! task 1   ... pause began at 9, returned at 14 ...   ◀── ended by task 0's kill
//! ```
//!
//! Source: specs/waits.md#signals

use super::*;

/// Whom a signal is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Task(u32),
    Process(u32),
    Everybody,
}

/// What was sent of one signal to somebody.
#[derive(Default)]
struct Sent {
    /// Order and point.
    all: Vec<(u64, u32)>,
    /// How many of the first have ended a wait, or were taken with one that did.
    taken: usize,
}

/// A signal that may have ended a wait.
#[derive(Clone, Copy)]
struct Choice {
    order: u64,
    by: u32,
    of: (To, u32),
    /// Its place in [`Sent::all`].
    place: usize,
}

/// A wait for a signal that took longer than that was not for one that has been taken.
const AT_ONCE_US: u64 = 1000;

/// The timer of `alarm`, and its signal.
const REAL: u64 = 0;
const ALARM: u32 = 14;

impl Points {
    /// Gives the ends of tasks that another task's signal ended a place in the order, behind the
    /// signal. Those ends, each with its signal.
    pub(super) fn place_killed(&mut self) -> Vec<(u32, u32)> {
        let mut sent: BTreeMap<(u32, u32), Vec<(u64, u32)>> = BTreeMap::new();
        for (n, point) in (0..).zip(&self.all).filter(|_| !self.killed.is_empty()) {
            let What::Release(Release::Signal, (_, to), arg) = point.what else { continue };
            let Ok(to) = usize::try_from(to) else { continue };
            if let Some(&space) = self.spaces.get(to) {
                let signal = (arg & (ONE_THREAD - 1)) as u32;
                sent.entry((space, signal)).or_default().push((point.order, n));
            }
        }
        for all in sent.values_mut() {
            all.sort_unstable();
        }
        let mut ends = Vec::new();
        for &(exit, signal) in &self.killed {
            let end = self.all[exit as usize];
            let Some(all) = sent.get(&(self.spaces[end.task as usize], signal)) else { continue };
            // The first after all that the task did; else the last, which it did not survive.
            let first = all.partition_point(|s| s.0 < end.order);
            let Some(&(order, by)) = all.get(first).or(all.last()) else { continue };
            self.all[exit as usize].order = end.order.max(order + 1);
            ends.push((exit, by));
        }
        ends
    }
}

impl Resolver<'_> {
    /// Waits for signals, and for timers.
    pub(super) fn signals(&mut self, by_order: &[u32], of: &Points) {
        let mut sent: BTreeMap<(To, u32), Sent> = BTreeMap::new();
        let mut timers = Timers::default();
        for &n in by_order {
            let Point { task, order, what, insns } = self.points[n as usize];
            let space = of.spaces[task as usize];
            match what {
                What::Release(Release::Signal, (_, to), arg) => {
                    let signal = (arg & (ONE_THREAD - 1)) as u32;
                    let target = u32::try_from(to).ok();
                    let process = target.and_then(|t| of.spaces.get(t as usize));
                    let to = match (target, process) {
                        _ if to == EVERYBODY => To::Everybody,
                        (Some(t), Some(_)) if arg & ONE_THREAD != 0 => To::Task(t),
                        (_, Some(&process)) => To::Process(process),
                        // A task that the recording does not have.
                        (_, None) => continue,
                    };
                    sent.entry((to, signal)).or_default().all.push((order, n));
                }
                What::Exit => {
                    if let Some(parent) = of.parents[task as usize] {
                        let key = (To::Process(parent), CHILD_ENDED);
                        sent.entry(key).or_default().all.push((order, n));
                    }
                    let is_alarm = of.killed.binary_search(&(n, ALARM)).is_ok();
                    if is_alarm && self.after[n as usize] == After::Nothing {
                        let ran = timers.left((space, REAL), task, insns, of, None);
                        self.after[n as usize] = ran.map_or(After::Nothing, After::Time);
                    }
                }
                What::Block(Block::Signal, (_, mask), arg) => {
                    let (ago, us) = (arg & u64::from(u32::MAX), arg >> 32);
                    let began = order.saturating_sub(SPREAD * ago);
                    let whose = [To::Task(task), To::Process(space), To::Everybody];
                    match choose(&sent, whose, mask, began, us) {
                        Some(choice) => {
                            if let Some(sent) = sent.get_mut(&choice.of) {
                                sent.taken = sent.taken.max(choice.place + 1);
                            }
                            self.ends(n, Some(choice.by));
                        }
                        None => self.after[n as usize] = After::Time(us * 1000),
                    }
                }
                What::Block(Block::Handled, (_, mask), _) => {
                    let whose = [To::Task(task), To::Process(space), To::Everybody];
                    // What has been handled is not handled again.
                    let choice = choose(&sent, whose, mask, 0, u64::MAX);
                    if let Some(choice) = choice.filter(|c| c.order < order) {
                        if let Some(sent) = sent.get_mut(&choice.of) {
                            sent.taken = choice.place + 1;
                        }
                        self.ends(n, Some(choice.by));
                    }
                }
                What::Release(Release::Timer, timer, value) => {
                    timers.begin(timer, Begun { task, insns, slept: 0, value });
                }
                What::Block(Block::Alarm, timer, ns) => {
                    let left = timers.left(timer, task, insns, of, Some(ns)).unwrap_or(ns);
                    timers.sleeps(task, left);
                    timers.begin(timer, Begun { task, insns, slept: 0, value: ns });
                    self.after[n as usize] = After::Time(left);
                }
                What::Block(Block::Time, _, ns) => timers.sleeps(task, ns),
                What::Release(..) | What::Block(..) | What::Exec => {}
            }
        }
    }
}

/// What ended a wait for one of some signals, which began at a place in the order and took so
/// many microseconds.
fn choose(
    sent: &BTreeMap<(To, u32), Sent>,
    whose: [To; 3],
    mask: u64,
    began: u64,
    us: u64,
) -> Option<Choice> {
    let (mut during, mut before): (Option<Choice>, Option<Choice>) = (None, None);
    for of in (1..=64).filter(|s| mask >> (s - 1) & 1 == 1).flat_map(|s| whose.map(|to| (to, s))) {
        let Some(Sent { all, taken }) = sent.get(&of) else { continue };
        let place = all.partition_point(|s| s.0 < began).max(*taken);
        let choice =
            |place: usize| all.get(place).map(|&(order, by)| Choice { order, by, of, place });
        if let Some(new) = choice(place) {
            if during.is_none_or(|old| new.order < old.order) {
                during = Some(new);
            }
        } else if let Some(new) = place.checked_sub(1).and_then(choice) {
            // What was taken before can only have been looked at once more.
            let is_possible = new.place >= *taken || us < AT_ONCE_US;
            if is_possible && before.is_none_or(|old| new.order > old.order) {
                before = Some(new);
            }
        }
    }
    during.or(before)
}

/// When a timer was set, or ended last.
#[derive(Clone, Copy)]
struct Begun {
    task: u32,
    /// The task's instructions then, and its sleeps, in nanoseconds.
    insns: u64,
    slept: u64,
    /// What it was set to.
    value: u64,
}

#[derive(Default)]
struct Timers {
    begun: BTreeMap<Object, Begun>,
    /// By task: how long it has slept.
    slept: BTreeMap<u32, u64>,
}

impl Timers {
    fn begin(&mut self, timer: Object, begun: Begun) {
        let slept = self.slept(begun.task);
        self.begun.insert(timer, Begun { slept, ..begun });
    }
    fn slept(&self, task: u32) -> u64 {
        self.slept.get(&task).copied().unwrap_or(0)
    }
    fn sleeps(&mut self, task: u32, ns: u64) {
        let slept = self.slept.entry(task).or_default();
        *slept = slept.saturating_add(ns);
    }
    /// What is left of a timer where a task begins to wait for it: without what the same task
    /// has computed and slept since it was set. None where nobody has set it.
    ///
    /// * `runs` – how long it runs; `None`: what it was set to.
    fn left(
        &self,
        timer: Object,
        task: u32,
        insns: u64,
        of: &Points,
        runs: Option<u64>,
    ) -> Option<u64> {
        let begun = self.begun.get(&timer)?;
        let value = runs.unwrap_or(begun.value);
        if value == 0 {
            return None;
        }
        if begun.task != task {
            return Some(value);
        }
        let (time, all) = of.speed;
        let computed = u128::from(insns - begun.insns) * u128::from(time) / u128::from(all.max(1));
        let computed = u64::try_from(computed).unwrap_or(u64::MAX);
        let slept = self.slept(task) - begun.slept;
        Some(value.saturating_sub(computed).saturating_sub(slept))
    }
}
