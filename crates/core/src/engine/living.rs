//! Which process is meant by a PID: what the engine and the view know of who lives.

use crate::policy::span::Who;
use std::collections::BTreeMap;

/// Processes that have ended and whose late news is known to be late.
const MOST_DEAD: usize = 1 << 16;

/// The processes that live, by PID, and the last one of each PID that ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Living {
    alive: BTreeMap<u32, Who>,
    dead: BTreeMap<u32, u64>,
}

impl Living {
    /// How many live.
    pub(crate) fn len(&self) -> usize {
        self.alive.len()
    }
    /// Who lives with that PID.
    pub(crate) fn at(&self, pid: u32) -> Option<Who> {
        self.alive.get(&pid).copied()
    }
    /// A process is seen. `None` where that is old news: it has ended, or its PID is another
    /// one's by now. Else whom it follows, who has ended unseen.
    pub(crate) fn see(&mut self, who: Who) -> Option<Option<Who>> {
        let late = self.dead.get(&who.pid).is_some_and(|last| who.start <= *last);
        if late || self.at(who.pid).is_some_and(|now| now.start > who.start) {
            return None;
        }
        Some(self.alive.insert(who.pid, who).filter(|before| *before != who))
    }
    /// A process has ended.
    pub(crate) fn end(&mut self, who: Who) {
        if self.dead.len() >= MOST_DEAD {
            self.dead.pop_first();
        }
        let last = self.dead.entry(who.pid).or_insert(who.start);
        *last = (*last).max(who.start);
        if self.at(who.pid) == Some(who) {
            self.alive.remove(&who.pid);
        }
    }
}
