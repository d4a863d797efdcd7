//! Barriers: words at which the same tasks meet over and over, and who comes last wakes the others.
//!
//! ```text
//! task 0   ... waits ──────────────────────────────┐           waits ──┐
//! task 1   ... waits ────────────────────────┐     │   ... +3, wakes 2 ─┤
//! task 2   ...                 ... +3, wakes 2 ────┘           waits ──┘
//! ```
//!
//! Who waits has a row for that, who comes last one for the wake. In a replay each of these is
//! where its task comes to the meeting. Turns by a condition variable look alike. But the word
//! of glibc's barrier is the number of those who have come to all rounds that are over: who comes
//! last raises it by as many as meet there, and nobody lowers it.
//!
//! Every point of a meeting takes place when its wake does. So a task's point before one of them
//! has to be earlier than that wake; else meetings of a damaged file could make a circle.
//!
//! Source: specs/waits.md#barriers

use super::*;

/// By word: the calls that wake, each with the waits that it woke.
pub(super) type Calls = BTreeMap<Object, Vec<(u32, Vec<u32>)>>;

impl Resolver<'_> {
    /// Finds barriers among words, and makes meetings of the waits there.
    pub(super) fn barriers(&mut self, calls: &Calls) {
        // By point: the point of its task before.
        let mut before = vec![None; self.points.len()];
        let mut latest: BTreeMap<u32, u32> = BTreeMap::new();
        // Words that somebody has lowered.
        let mut lowered: BTreeSet<Object> = BTreeSet::new();
        for (n, point) in (0..).zip(self.points) {
            before[n as usize] = latest.insert(point.task, n);
            if let What::Release(Release::Word, word, value) = point.what {
                if risen(value).is_none() {
                    lowered.insert(word);
                }
            }
        }
        let mut number = 0;
        for (&word, calls) in calls.iter().filter(|(word, _)| !lowered.contains(word)) {
            for (n, woken) in calls {
                let raise = before[*n as usize].map(|b| self.points[b as usize].what);
                let raised = match raise {
                    Some(What::Release(Release::Word, at, value)) if at == word => risen(value),
                    _ => None,
                };
                // Those that came when it was over have no row: then it is no whole meeting.
                let own = [self.points[*n as usize].task];
                let tasks = woken.iter().map(|&wait| self.points[wait as usize].task);
                let all: BTreeSet<u32> = tasks.chain(own).collect();
                let whole = raised == Some(woken.len() as u32 + 1) && all.len() == woken.len() + 1;
                let earlier = |&wait: &u32| {
                    let first =
                        before[wait as usize].is_none_or(|b| self.order(b) < self.order(*n));
                    first
                        && matches!(self.after[wait as usize], After::Point(p) | After::Turn(p) if p == *n)
                };
                let first = before[*n as usize].is_none_or(|b| self.order(b) < self.order(*n));
                let free = self.after[*n as usize] == After::Nothing;
                if !woken.is_empty() && whole && first && free && woken.iter().all(earlier) {
                    for &point in woken.iter().chain([n]) {
                        self.after[point as usize] = After::Meet(number);
                    }
                    number += 1;
                }
            }
        }
    }
}

/// By how much a word has risen, from a change's `arg`; `None`: it has not.
fn risen(value: u64) -> Option<u32> {
    let (now, before) = (value as u32, (value >> 32) as u32);
    // It may begin anew at 0 after the largest number.
    Some(now.wrapping_sub(before)).filter(|&by| by > 0 && by < 1 << 31)
}
