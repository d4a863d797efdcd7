//! Which processes the source watches.
//!
//! All that were asked for. Where everybody was asked for, a source with room for few
//! watches those with most processor time; one that has none for a period gives way to one
//! that has.
//!
//! Source: specs/observe.md#sampled.

use homenode_core::policy::seen::{Seen, Who};
use homenode_core::units::Picos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Who is watched, and who could be.
#[derive(Debug)]
pub(super) struct Sampled {
    most: usize,
    watched: BTreeSet<Who>,
    /// Processor time at the last choice, and now.
    ran: BTreeMap<Who, (Picos, Picos)>,
    /// Whether somebody came or went since the last choice.
    changed: bool,
}

/// Somebody to be watched, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Watch(Who),
    Unwatch(Who),
}

impl Sampled {
    /// At most so many at a time.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, watched: BTreeSet::new(), ran: BTreeMap::new(), changed: false }
    }
    /// How many are watched.
    pub(super) fn len(&self) -> usize {
        self.watched.len()
    }
    /// Those that are watched.
    pub(super) fn watched(&self) -> impl Iterator<Item = Who> + '_ {
        self.watched.iter().copied()
    }
    pub(super) fn watches(&self, who: Who) -> bool {
        self.watched.contains(&who)
    }
    pub(super) fn see(&mut self, seen: &[Seen]) {
        for s in seen {
            match *s {
                Seen::Task { who, ran, .. } => {
                    let new = !self.ran.contains_key(&who);
                    self.changed |= new;
                    // What one had used before it was first seen counts in the first choice.
                    self.ran.entry(who).or_insert((Picos::ZERO, ran)).1 = ran;
                }
                Seen::Gone { who } => {
                    self.ran.remove(&who);
                    self.watched.remove(&who);
                    self.changed = true;
                }
                _ => {}
            }
        }
    }
    /// Fills what is free, if somebody came or went.
    pub(super) fn fill(&mut self) -> Vec<Change> {
        if !std::mem::take(&mut self.changed) || self.watched.len() >= self.most {
            return Vec::new();
        }
        let mut out = Vec::new();
        for who in self.others() {
            if self.watched.len() >= self.most {
                break;
            }
            self.watched.insert(who);
            out.push(Change::Watch(who));
        }
        out
    }
    /// It could not be watched: it is tried again, if it is still there.
    pub(super) fn failed(&mut self, who: Who) {
        self.watched.remove(&who);
        self.changed = true;
    }
    /// At the end of a period: who had no processor time gives way to who had.
    pub(super) fn exchange(&mut self) -> Vec<Change> {
        let idle: Vec<Who> =
            self.watched.iter().copied().filter(|who| self.recent(who).0 == 0).collect();
        let busy = self.others().into_iter().filter(|who| self.recent(who).0 > 0);
        let pairs: Vec<(Who, Who)> = idle.into_iter().zip(busy).collect();
        let mut out = Vec::new();
        for (old, new) in pairs {
            self.watched.remove(&old);
            self.watched.insert(new);
            out.extend([Change::Unwatch(old), Change::Watch(new)]);
        }
        self.ran.values_mut().for_each(|(before, now)| *before = *now);
        out
    }
    fn recent(&self, who: &Who) -> Picos {
        self.ran.get(who).map_or(Picos::ZERO, |(before, now)| now.saturating_sub(*before))
    }
    /// Those that are not watched, most processor time first.
    fn others(&self) -> Vec<Who> {
        let mut out: Vec<Who> =
            self.ran.keys().copied().filter(|who| !self.watched.contains(who)).collect();
        let total = |who: &Who| self.ran.get(who).map_or(Picos::ZERO, |(_, now)| *now);
        out.sort_by_key(|who| (Reverse(self.recent(who)), Reverse(total(who)), *who));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Change::{Unwatch, Watch};
    use homenode_core::units::Pages;

    fn who(pid: u32) -> Who {
        Who { pid, start: 0 }
    }
    fn tasks(all: &[(u32, u64)]) -> Vec<Seen> {
        let task = |&(pid, ms): &(u32, u64)| Seen::Task {
            who: who(pid),
            ran: Picos::from_ms(ms),
            node: None,
            resident: Pages(1),
        };
        all.iter().map(task).collect()
    }

    #[test]
    fn all_are_watched_where_there_is_room() {
        let mut s = Sampled::new(usize::MAX);
        s.see(&tasks(&[(1, 0), (2, 5)]));
        assert_eq!(s.fill(), [Watch(who(2)), Watch(who(1))]);
        assert_eq!(s.fill(), []);
        s.see(&tasks(&[(1, 0), (2, 5), (3, 0)]));
        assert_eq!(s.fill(), [Watch(who(3))]);
        assert_eq!((s.exchange(), s.len()), (vec![], 3));
    }

    // Room for two of four: those with most time; then 2 is idle and 4 busy; then 3 ends.
    #[test]
    fn few_are_those_that_run() {
        let mut s = Sampled::new(2);
        s.see(&tasks(&[(1, 10), (2, 500), (3, 400), (4, 0)]));
        assert_eq!(s.fill(), [Watch(who(2)), Watch(who(3))]);
        s.exchange();
        s.see(&tasks(&[(1, 10), (2, 500), (3, 401), (4, 9)]));
        assert_eq!(s.fill(), []);
        assert_eq!(s.exchange(), [Unwatch(who(2)), Watch(who(4))]);
        assert_eq!(s.exchange(), [], "nobody ran");
        s.see(&[Seen::Gone { who: who(3) }]);
        assert_eq!(s.fill(), [Watch(who(2))], "of those that did nothing lately, by all time");
        assert_eq!(s.len(), 2);
    }
}
