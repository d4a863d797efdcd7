//! What a run is judged by: who was served by which tier when, and which moves were in vain.
//!
//! ```text
//! slice        0      1      2     …          accesses served by the fast and the slow tier
//! page 7     gained 0 ──▶ 41 ──▶ 90 µs        what its accesses would save in the fast tier
//!                  up ▲         ▼ down        90 − 41 µs < cost of both moves: in vain
//! ```
//!
//! It is written down beside the run and changes nothing of it. Of each group of pages side by
//! side one is followed, whichever a hash says; its moves and gains stand for the group's.
//!
//! Worked example: an access takes 109 ns in the fast tier and 275 in the slow one, so each gains
//! 166 ns. A move takes 2.7 µs, both 5.4: a page that comes down again after 32 accesses was moved
//! in vain, and one that comes down after 33 was not.
//!
//! Source: specs/compare.md#score.

use homenode_core::units::Picos;

/// Accesses of a slice of time, by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Served by the top tier.
    pub fast: u64,
    /// Served by any other.
    pub slow: u64,
    /// Time that all of them would take unloaded in the fast tier, in picoseconds.
    pub least_ps: u64,
}

/// What CPUs did from the start of a run up to the end of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Picoseconds in which CPUs were busy, all of them together.
    pub busy_ps: u64,
    /// The part of it in which programs ran without the kernel.
    pub user_ps: u64,
}

/// A page that was followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageCourse {
    /// Whether it is in the fast tier at the end.
    pub fast: bool,
    /// By slice: nanoseconds that its accesses save in the fast tier.
    pub gains: Vec<u32>,
}

/// No promotion is open.
const NONE: u64 = u64::MAX;

/// What is written down.
#[derive(Clone, Debug)]
pub struct Score {
    every: u64,
    /// The binary logarithm of the pages in a group.
    group: u32,
    slices: Vec<Slice>,
    /// By slice that is over.
    used: Vec<Used>,
    /// By group: picoseconds gained so far by its page.
    gained: Vec<u64>,
    /// By group: what was gained when its page went up; [`NONE`]: it did not, or came down.
    up_at: Vec<u64>,
    /// By group: whether the fast tier served its page last, where that was told.
    fast: Vec<bool>,
    /// By slice and group, where pages are kept: nanoseconds gained in it.
    courses: Option<Vec<Vec<u32>>>,
    /// Pages followed that went up or down, and up and down again in vain.
    moves: u64,
    undone: u64,
}

/// Which page of its group is followed.
#[inline]
fn chosen(page: u32, group: u32) -> bool {
    let number = page >> group;
    let hash = number.wrapping_mul(0x9e37_79b9).rotate_left(13);
    hash & ((1 << group) - 1) == page & ((1 << group) - 1)
}

impl Score {
    /// * `every` – how long a slice is.
    /// * `group` – of `2^group` pages one is followed.
    /// * `pages` – whether the course of each page is kept, for [`crate::Simulation::courses`].
    pub fn new(every: Picos, group: u32, pages: bool) -> Self {
        Self {
            every: every.0.max(1),
            group: group.min(9),
            slices: Vec::new(),
            used: Vec::new(),
            gained: Vec::new(),
            up_at: Vec::new(),
            fast: Vec::new(),
            courses: pages.then(Vec::new),
            moves: 0,
            undone: 0,
        }
    }
    /// How long a slice is.
    pub fn every(&self) -> Picos {
        Picos(self.every)
    }
    /// Pages for which one stands.
    pub fn stands_for(&self) -> u64 {
        1 << self.group
    }
    /// Slices so far.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }
    /// What CPUs did, by slice that is over.
    pub fn used(&self) -> &[Used] {
        &self.used
    }
    /// Whether a slice is over at that time whose end is not written down yet.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        (self.used.len() as u64 + 1) * self.every <= now
    }
    /// What CPUs did up to the end of the next slice.
    pub(crate) fn note_used(&mut self, used: Used) {
        self.used.push(used);
    }
    /// Of each page that was followed and gained anything: its number, and its gains by slice.
    /// Nothing where that was not kept.
    pub(crate) fn followed(&self) -> Vec<(u32, Vec<u32>)> {
        let Some(courses) = &self.courses else { return Vec::new() };
        let page_of = |at: usize| {
            let group = (at as u32) << self.group;
            let mut pages = group..group + (1 << self.group);
            pages.find(|&p| chosen(p, self.group)).unwrap_or(group)
        };
        let all = (0..self.gained.len()).filter(|&at| self.gained[at] > 0);
        all.map(|at| {
            let gains = courses.iter().map(|c| c.get(at).copied().unwrap_or(0)).collect();
            (page_of(at), gains)
        })
        .collect()
    }
    /// Moves of pages that were followed, and how many of them were in vain: up, and down again
    /// before the page had gained what both moves cost.
    pub fn moves(&self) -> (u64, u64) {
        (self.moves, 2 * self.undone)
    }
    fn slice(&mut self, at: u64) -> &mut Slice {
        let i = (at / self.every) as usize;
        if i >= self.slices.len() {
            self.slices.resize(i + 1, Slice::default());
        }
        &mut self.slices[i]
    }
    fn room(&mut self, group: usize) {
        if group >= self.gained.len() {
            self.gained.resize(group + 1, 0);
            self.up_at.resize(group + 1, NONE);
        }
    }
    /// Accesses at a time, by whether the top tier served them.
    pub(crate) fn served(&mut self, at: u64, fast: bool, n: u64) {
        let slice = self.slice(at);
        *if fast { &mut slice.fast } else { &mut slice.slow } += n;
    }
    /// Computing without an access takes so long in any tier.
    pub(crate) fn computed(&mut self, at: u64, ps: u64) {
        self.slice(at).least_ps += ps;
    }
    /// Accesses to these pages, each of which takes so long in the fast tier and gains so much
    /// by being there.
    pub(crate) fn accesses(
        &mut self,
        at: u64,
        pages: impl ExactSizeIterator<Item = u32>,
        [least, gain]: [u64; 2],
    ) {
        self.slice(at).least_ps += least * pages.len() as u64;
        let slice = (at / self.every) as usize;
        let group = self.group;
        if let Some(courses) = &mut self.courses {
            if slice >= courses.len() {
                courses.resize(slice + 1, Vec::new());
            }
        }
        for page in pages {
            if !chosen(page, group) {
                continue;
            }
            let at = (page >> group) as usize;
            self.room(at);
            self.gained[at] += gain;
            if let Some(courses) = &mut self.courses {
                let course = &mut courses[slice];
                if at >= course.len() {
                    course.resize(at + 1, 0);
                }
                course[at] = course[at].saturating_add((gain / 1000) as u32);
            }
        }
    }
    /// Which tier served the last access to a page.
    pub(crate) fn served_by(&mut self, page: u32, fast: bool) {
        if !chosen(page, self.group) {
            return;
        }
        let at = (page >> self.group) as usize;
        if at >= self.fast.len() {
            self.fast.resize(at + 1, false);
        }
        self.fast[at] = fast;
    }
    /// Whether that was the fast one, of a page that was followed.
    pub(crate) fn was_served_fast(&self, page: u32) -> bool {
        self.fast.get((page >> self.group) as usize).copied().unwrap_or(false)
    }
    /// Pages from `first` on went up, or down; both moves of one of them cost so much.
    pub(crate) fn moved(&mut self, first: u32, n: u64, up: bool, both: u64) {
        for page in first..first + n as u32 {
            if !chosen(page, self.group) {
                continue;
            }
            let at = (page >> self.group) as usize;
            self.room(at);
            self.moves += 1;
            if up {
                self.up_at[at] = self.gained[at];
                continue;
            }
            let before = std::mem::replace(&mut self.up_at[at], NONE);
            self.undone += u64::from(before != NONE && self.gained[at] - before < both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_of_each_group_is_followed() {
        for group in [0, 3, 9] {
            for number in 0..1000u32 {
                let pages = (number << group)..((number + 1) << group);
                assert_eq!(pages.filter(|&p| chosen(p, group)).count(), 1);
            }
        }
    }

    /// The module's example.
    #[test]
    fn a_page_that_came_down_before_it_paid_was_moved_in_vain() {
        let undone = |accesses: usize| {
            let mut score = Score::new(Picos(1000), 0, false);
            score.accesses(0, [7u32; 50].into_iter(), [109_000, 166_000]);
            score.moved(7, 1, true, 5_400_000);
            score.accesses(2500, vec![7u32; accesses].into_iter(), [109_000, 166_000]);
            score.moved(7, 1, false, 5_400_000);
            // It is down: what happens there says nothing of the move.
            score.moved(7, 1, false, 5_400_000);
            assert_eq!(score.slices().len(), 3);
            assert_eq!(score.slices()[2].least_ps, accesses as u64 * 109_000);
            score.moves()
        };
        assert_eq!(undone(32), (3, 2));
        assert_eq!(undone(33), (3, 0));
    }
}
