//! Semaphores and condition variables: words that some raise and others lower, and who comes
//! first has what was given.
//!
//! ```text
//! task 0   ... +1, wakes 1 ─┐          ... +1 ─┐
//! task 1   ... waits ───────┴ −1 ...           └ −1 ...
//! ```
//!
//! glibc's semaphore is a word that a post raises by one, before it wakes one who waits for that
//! word; who takes it lowers it by one, whether it has waited or not. A condition variable has two
//! such words side by side, one for each group of those who wait: a signal raises one of them by
//! two and wakes one, who lowers it by two. The lowest bit says that the group is over; then
//! the word begins anew at 0, without an atomic instruction.
//!
//! Where a group is over before a woken task has looked, the task leaves without lowering the
//! word; its wait has taken the signal all the same.
//!
//! In a replay such words are counts: a task that lowered one waits until there is something, and
//! takes it. Condition variables at which those who wait signal too stay in recorded order, since
//! so threads take turns.
//!
//! What a broadcast gives is for all who wait then ([`broadcasts`]).
//!
//! Each who takes has somebody who gave earlier, the first first. So in recorded order nobody
//! waits for ever.
//!
//! Source: specs/waits.md#counts

use super::*;

/// A count at which a replay's tasks wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What is there at first.
    pub first: u64,
    /// What is given is for who waits already: who comes later can't have it before, and who gives
    /// it can't have it at all. So it is at condition variables, and not at semaphores.
    pub handed: bool,
}

/// What of a recording's words are counts.
#[derive(Default)]
pub(super) struct Counts {
    /// By word.
    kinds: BTreeMap<Object, Kind>,
    /// Words of condition variables that count who has not left a group yet.
    leaving: BTreeSet<Object>,
    /// Wakes of a task that had raised the word just before.
    raised: BTreeSet<u32>,
    /// By wait after which the task lowers the word: where, and whether it is the last before that.
    waits: BTreeMap<u32, (u32, bool)>,
    /// Waits at condition variables that were over when their group was, without the word's being
    /// lowered: the count, and who gave what they were woken for; whether that was for them alone.
    left: BTreeMap<u32, (u32, u32, bool)>,
    /// Wakes behind a broadcast's change of the word.
    broadcast: BTreeMap<u32, Object>,
    /// Words that would be none of both without their broadcasts.
    by_broadcasts: BTreeSet<Object>,
    /// Waits that are over when something is taken.
    pub(super) ended: BTreeSet<u32>,
    /// By point that takes: who gave the last of it when it was recorded.
    pub(super) given_by: BTreeMap<u32, u32>,
    /// By number.
    pub(super) all: Vec<Count>,
}

/// Who gave what each has taken.
#[derive(Default)]
pub(super) struct Matched {
    pub(super) after: BTreeMap<u32, After>,
    /// See [`Counts`].
    pub(super) waits: BTreeMap<u32, (u32, bool)>,
    pub(super) left: BTreeMap<u32, (u32, u32, bool)>,
    given_by: BTreeMap<u32, u32>,
    all: Vec<Count>,
    /// What was given to all who waited then: each who has taken some.
    pub(super) shared: Vec<Shared>,
}

/// A task has taken of what a broadcast gave.
pub(super) struct Shared {
    /// The condition variable, and its count's number.
    pub(super) place: Object,
    pub(super) number: u32,
    /// Who gave.
    pub(super) by: u32,
    /// Where it lowered the word; or where it had waited, if the group was over then.
    pub(super) at: u32,
    /// Where it waited before it lowered the word.
    pub(super) own: Vec<u32>,
}

impl Matched {
    /// A task takes so much of a count, at a point before which it waited.
    pub(super) fn takes(
        &mut self,
        n: u32,
        (number, less): (u32, u32),
        by: Option<u32>,
        own: &[u32],
    ) {
        self.after.insert(n, After::Take(number, less));
        self.given_by.extend(by.map(|by| (n, by)));
        let latest = own.last().copied();
        self.waits.extend(own.iter().map(|&w| (w, (n, Some(w) == latest))));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Semaphore,
    Condition,
}

impl Kind {
    /// What a condition variable's word has beside its count: its group is over.
    const OVER: u32 = 1;
    /// So far before the two words of a condition variable lie those that count who has not left
    /// their groups yet (glibc 2.25 to 2.40).
    const LEAVING: u64 = 24;

    /// What is one object: a condition variable's two words are side by side.
    pub(super) fn place(self, word: Object) -> Object {
        match self {
            Self::Condition if word.1 & SHARED == 0 => (word.0, word.1 & !7),
            Self::Condition | Self::Semaphore => word,
        }
    }
    /// How much a change gives, or takes where it is below 0; whether what was there before is
    /// there no longer.
    fn change(self, before: u32, now: u32) -> (i64, bool) {
        match self {
            Self::Semaphore => (i64::from(now as i32) - i64::from(before as i32), false),
            Self::Condition => {
                let begins = before & Self::OVER != 0 && now & Self::OVER == 0;
                let (before, now) = (if begins { 0 } else { before >> 1 }, now >> 1);
                (i64::from(now) - i64::from(before), begins)
            }
        }
    }
}

/// Whether some of all are more than three of four.
fn mostly(some: u64, all: u64) -> bool {
    some > MOSTLY * (all - some)
}

/// What wakes of a word, and its falls, tell of what it is. A change from odd to even is a group's
/// beginning if the word is a condition variable's, and any change if it is a semaphore: so each
/// is counted as either would have it.
#[derive(Default)]
struct Habit {
    /// Wakes in all.
    wakes: u64,
    /// Those of one at most, behind a change up by one.
    posts: u64,
    /// Those of one at most, behind a change up by two, or from nothing to two.
    signals: u64,
    /// Those of more, behind a change up by two or more.
    broadcasts: u64,
    /// Times that it fell, and those of which it fell by one, or by two.
    falls: u64,
    by_one: u64,
    by_two: u64,
    /// Falls where a group began anew.
    begun: u64,
    /// It has been below 0.
    below: bool,
    /// By task: how often it raised the word, and how often it lowered it.
    by: BTreeMap<u32, (u64, u64)>,
}

impl Habit {
    fn kind(&self) -> Option<Kind> {
        if mostly(self.posts, self.wakes) && mostly(self.by_one, self.falls) && !self.below {
            Some(Kind::Semaphore)
        } else if (self.is_signalled() || self.is_broadcast())
            && mostly(self.by_two, self.falls - self.begun)
        {
            Some(Kind::Condition)
        } else {
            None
        }
    }
    fn is_signalled(&self) -> bool {
        mostly(self.signals, self.wakes - self.broadcasts)
    }
    fn is_broadcast(&self) -> bool {
        self.broadcasts > 0 && self.wakes == self.broadcasts
    }
    /// A task has changed the word; `begins`: if it is a condition variable's, a group begins.
    fn change(&mut self, task: u32, (before, now): (u32, u32), begins: bool) {
        self.below |= (now as i32) < 0;
        let more = i64::from(now as i32) - i64::from(before as i32);
        let by = self.by.entry(task).or_default();
        by.0 += u64::from(more > 0 || begins);
        by.1 += u64::from(more < 0 && !begins);
        self.falls += u64::from(more < 0);
        self.begun += u64::from(more < 0 && begins);
        self.by_one += u64::from(more == -1);
        self.by_two += u64::from(more == -2 && !begins);
    }
    /// A task has woken so many behind a change of the word: whether it may have given something,
    /// and whether to all.
    fn wake(&mut self, change: Change, woken: u64) -> (bool, bool) {
        let (post, signal) = (change.by == 1 && woken < 2, change.gives == 2 && woken < 2);
        let broadcast = change.gives >= 2 && change.gives % 2 == 0 && !signal;
        self.wakes += 1;
        self.posts += u64::from(post);
        self.signals += u64::from(signal);
        self.broadcasts += u64::from(broadcast);
        (post || signal, broadcast)
    }
}

/// A change of a word.
#[derive(Clone, Copy, Default)]
struct Change {
    by: i64,
    /// What there is more if it is a condition variable's.
    gives: i64,
}

/// What a word was before each of its changes.
#[derive(Default)]
struct Values(BTreeMap<Object, u32>);

impl Values {
    /// A process knows only its own changes of what it shares with others.
    fn before(&mut self, word: Object, arg: u64) -> u32 {
        let known = (arg >> 32) as u32;
        if word.1 & SHARED == 0 { known } else { self.0.insert(word, arg as u32).unwrap_or(known) }
    }
}

/// What a change has given.
struct Gift {
    /// Which it was; `None`: it was there at first.
    by: Option<u32>,
    all: u64,
    left: u64,
}

/// What has been given to a word and not been taken.
struct Given {
    left: VecDeque<Gift>,
    /// What was taken before anybody had given it: two changes have their numbers the wrong way
    /// round.
    owed: u64,
}

impl Given {
    /// Takes one of what is left at a condition variable, which another task has given: who, and
    /// whether that was for one alone.
    fn signal(&mut self, task: u32, points: &[Point]) -> Option<(u32, bool)> {
        let is_anothers = |gift: &Gift| {
            gift.left > 0 && gift.by.is_some_and(|by| points[by as usize].task != task)
        };
        let at = self.left.iter().position(is_anothers)?;
        let gift = &mut self.left[at];
        gift.left -= 1;
        let (by, single, left) = (gift.by?, gift.all == 1, gift.left);
        if left == 0 {
            self.left.remove(at);
        }
        Some((by, single))
    }
}

impl Resolver<'_> {
    /// Finds semaphores and condition variables among words, and who waits at them.
    pub(super) fn counts(&mut self, by_order: &[u32]) -> Counts {
        let mut counts = self.kinds_of_words(by_order);
        let mut matched = self.matched(by_order, &counts);
        let mut looks = self.looks(&matched.shared, &counts);
        let is_none = |word: &Object| !looks.has(Kind::Condition.place(*word));
        counts.by_broadcasts.retain(is_none);
        if !counts.by_broadcasts.is_empty() {
            for word in std::mem::take(&mut counts.by_broadcasts) {
                counts.kinds.remove(&word);
            }
            matched = self.matched(by_order, &counts);
            looks = self.looks(&matched.shared, &counts);
        }
        matched.share(&looks);
        let to_all = counts.broadcast.iter().filter(|w| looks.has(Kind::Condition.place(*w.1)));
        counts.raised.extend(to_all.map(|(&wake, _)| wake));
        for (n, after) in matched.after {
            self.after[n as usize] = after;
        }
        Counts {
            waits: matched.waits,
            left: matched.left,
            given_by: matched.given_by,
            all: matched.all,
            ..counts
        }
    }

    /// Finds who gave what each has taken.
    fn matched(&self, by_order: &[u32], counts: &Counts) -> Matched {
        let kinds = &counts.kinds;
        let mut found = Matched::default();
        let mut numbers: BTreeMap<Object, u32> = BTreeMap::new();
        let mut values = Values::default();
        let mut given: BTreeMap<Object, Given> = BTreeMap::new();
        // By task and word: waits since the task last changed it.
        let mut waits: BTreeMap<(u32, Object), Vec<u32>> = BTreeMap::new();
        // By task: its last wait at a condition variable, as long as it has done nothing else since.
        let mut latest: BTreeMap<u32, (Object, u32)> = BTreeMap::new();
        // By point that has given something: how much of that may be had by who comes first.
        let mut gives: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for &n in by_order {
            let Point { task, what, .. } = self.points[n as usize];
            // Before it looks, it says that it has left the group.
            let leaves = what.word().is_some_and(|word| counts.is_for_leaving(word));
            let before = if leaves { None } else { latest.remove(&task) };
            if let Some((word, wait)) = before.filter(|&(word, _)| what.word() != Some(word)) {
                let place = Kind::Condition.place(word);
                let by = given.get_mut(&word).and_then(|given| given.signal(task, self.points));
                let by = by.filter(|&(by, _)| self.order(by) < self.order(wait));
                match numbers.get(&place).zip(by) {
                    Some((&number, (by, true))) => {
                        found.left.insert(wait, (number, by, true));
                    }
                    Some((&number, (by, false))) => {
                        let own = Vec::new();
                        found.shared.push(Shared { place, number, by, at: wait, own });
                    }
                    None => {}
                }
            }
            let (word, arg) = match what {
                What::Block(Block::Futex, word, _) if kinds.contains_key(&word) => {
                    waits.entry((task, word)).or_default().push(n);
                    if kinds[&word] == Kind::Condition {
                        latest.insert(task, (word, n));
                    }
                    continue;
                }
                What::Release(Release::Word, word, arg) => (word, arg),
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => continue,
            };
            let Some(&kind) = kinds.get(&word) else { continue };
            let before = values.before(word, arg);
            let (more, begins) = kind.change(before, arg as u32);
            let number = *numbers.entry(kind.place(word)).or_insert(found.all.len() as u32);
            if number as usize == found.all.len() {
                found.all.push(Count { first: 0, handed: kind == Kind::Condition });
            }
            let given = given.entry(word).or_insert_with(|| {
                let first = match kind {
                    Kind::Semaphore => u64::from(before),
                    Kind::Condition => 0,
                };
                found.all[number as usize].first += first;
                Given { left: [Gift { by: None, all: first, left: first }].into(), owed: 0 }
            });
            if begins {
                given.left.clear();
                given.owed = 0;
            }
            let own = waits.remove(&(task, word)).unwrap_or_default();
            if more > 0 {
                let paid = (more as u64).min(given.owed);
                given.owed -= paid;
                let rest = more as u64 - paid;
                given.left.push_back(Gift { by: Some(n), all: more as u64, left: rest });
                if kind == Kind::Semaphore && rest > 0 {
                    gives.insert(n, (number, rest as u32));
                }
                continue;
            }
            let mut missing = more.unsigned_abs();
            if missing == 0 {
                continue;
            }
            let (mut last, mut free) = (None, 0);
            while missing > 0 {
                // A signal is for another.
                let is_own = |gift: &Gift| {
                    let by = gift.by.map(|by| self.points[by as usize].task);
                    kind == Kind::Condition && by == Some(task)
                };
                let other = given.left.iter().position(|gift| !is_own(gift));
                let at = other.unwrap_or(0);
                let Some(gift) = given.left.get_mut(at) else { break };
                let part = gift.left.min(missing);
                (gift.left, missing) = (gift.left - part, missing - part);
                if part > 0 && other.is_some() {
                    last = gift.by;
                    // A broadcast gives much at once, to those who wait then.
                    let single = kind == Kind::Semaphore || gift.all == 1;
                    free += if single { part as u32 } else { 0 };
                    if let (Kind::Condition, Some(by), true) = (kind, gift.by, single) {
                        gives.insert(by, (number, 1));
                    }
                }
                if gift.left == 0 {
                    given.left.remove(at);
                }
            }
            given.owed += missing;
            if free > 0 && missing == 0 {
                found.takes(n, (number, free), last, &own);
                continue;
            }
            let task_of = |n: u32| self.points[n as usize].task;
            let Some(by) = last.filter(|&by| task_of(by) != task) else { continue };
            found.after.insert(n, After::Turn(by));
            if kind == Kind::Condition && more == -1 && missing == 0 {
                found.shared.push(Shared { place: kind.place(word), number, by, at: n, own });
            }
        }
        for (n, (number, amount)) in gives {
            found.after.insert(n, After::Post(number, amount));
        }
        found
    }

    /// What words are, by what wakes there come behind.
    fn kinds_of_words(&self, by_order: &[u32]) -> Counts {
        let mut counts = Counts::default();
        let mut values = Values::default();
        let mut habits: BTreeMap<Object, Habit> = BTreeMap::new();
        // By task: what it has changed since its last point of another kind.
        let mut fresh: BTreeMap<u32, Vec<(Object, Change)>> = BTreeMap::new();
        for &n in by_order {
            let Point { task, what, .. } = self.points[n as usize];
            match what {
                What::Release(Release::Word, word, arg) => {
                    let (before, now) = (values.before(word, arg), arg as u32);
                    let begins = Kind::Condition.change(before, now).1;
                    habits.entry(word).or_default().change(task, (before, now), begins);
                    let by = i64::from(now as i32) - i64::from(before as i32);
                    let gives = if begins { i64::from(now) } else { by };
                    fresh.entry(task).or_default().push((word, Change { by, gives }));
                }
                What::Release(Release::Futex, word, woken) => {
                    let changes = fresh.remove(&task).unwrap_or_default();
                    let change = changes.iter().rfind(|c| c.0 == word).map(|c| c.1);
                    let habit = habits.entry(word).or_default();
                    let (gives, to_all) = habit.wake(change.unwrap_or_default(), woken);
                    counts.raised.extend(gives.then_some(n));
                    counts.broadcast.extend(to_all.then_some((n, word)));
                }
                What::Release(..) | What::Block(..) | What::Exec | What::Exit => {
                    fresh.remove(&task);
                }
            }
        }
        let kind = |(&word, habit): (&Object, &Habit)| Some((word, habit.kind()?));
        counts.kinds = habits.iter().filter_map(kind).collect();
        let conditions =
            counts.kinds.iter().filter(|k| *k.1 == Kind::Condition && k.0.1 & SHARED == 0);
        let leaving = |(&word, kind): (&Object, &Kind)| {
            let (space, first) = kind.place(word);
            let at = first.checked_sub(Kind::LEAVING)?;
            Some([(space, at), (space, at + 4)])
        };
        counts.leaving = conditions.filter_map(leaving).flatten().collect();
        // Where those who wait give as well, who gets it next is how they take turns.
        let mut by: BTreeMap<Object, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
        for (&word, kind) in counts.kinds.iter().filter(|k| *k.1 == Kind::Condition) {
            let all = by.entry(kind.place(word)).or_default();
            for (&task, &(rose, fell)) in &habits[&word].by {
                let one = all.entry(task).or_default();
                *one = (one.0 + rose, one.1 + fell);
            }
        }
        let in_turns = |place: Object| {
            let all = by.get(&place).into_iter().flat_map(BTreeMap::values);
            let (takers, both): (Vec<_>, Vec<_>) = all.partition(|by| by.0 == 0);
            let falls = |all: Vec<&(u64, u64)>| all.iter().map(|by| by.1).sum::<u64>();
            falls(takers) <= MOSTLY * falls(both)
        };
        counts.kinds.retain(|&word, kind| *kind != Kind::Condition || !in_turns(kind.place(word)));
        let by_broadcasts = counts
            .kinds
            .iter()
            .filter(|(word, kind)| **kind == Kind::Condition && !habits[word].is_signalled());
        counts.by_broadcasts = by_broadcasts.map(|(&word, _)| word).collect();
        counts
    }

    /// A wake has ended a wait: whether what the task waits for is to take something there.
    pub(super) fn is_for_count(&mut self, wait: u32, wake: u32) -> bool {
        let points = self.points;
        let order = |n: u32| points[n as usize].order;
        let counts = &mut self.for_counts;
        if !counts.raised.contains(&wake) {
            return false;
        }
        if let Some(&(number, by, alone)) = counts.left.get(&wait) {
            if alone {
                self.after[by as usize] = After::Post(number, 1);
            } else if let After::Broadcast(_, more) = &mut self.after[by as usize] {
                *more += 1;
            }
            self.after[wait as usize] = After::Take(number, 1);
            counts.given_by.insert(wait, by);
            counts.ended.insert(wait);
            return true;
        }
        let Some(&(change, latest)) = counts.waits.get(&wait) else { return false };
        self.after[wait as usize] = After::Nothing;
        counts.ended.insert(wait);
        // It waits where it did when it was recorded: there its time may be over.
        let by = counts.given_by.get(&change);
        if latest && by.is_none_or(|&by| order(by) < order(wait)) {
            self.after.swap(wait as usize, change as usize);
            if let Some(by) = counts.given_by.remove(&change) {
                counts.given_by.insert(wait, by);
            }
        }
        true
    }
}

impl Counts {
    /// Whether tasks that signal a condition variable wait at a word for those to leave who were
    /// woken. It is no wait of the program's own: those have only to look at the words once more,
    /// and in a replay other tasks may have been woken.
    pub(super) fn is_for_leaving(&self, word: Object) -> bool {
        self.leaving.contains(&word)
    }
    /// Whether a word is one.
    pub(super) fn is_count(&self, word: Object) -> bool {
        self.kinds.contains_key(&word)
    }
}
