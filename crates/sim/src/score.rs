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

use crate::kernel::Kernel;
use crate::memory::FRAME_ITEM;
use crate::simulation::Simulation;
use homenode_core::costs::Cost;
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
    /// * `pages` – whether the course of each page is kept, for [`Simulation::courses`].
    pub fn new(every: Picos, group: u32, pages: bool) -> Self {
        Self {
            every: every.0.max(1),
            group: group.min(9),
            slices: Vec::new(),
            used: Vec::new(),
            gained: Vec::new(),
            up_at: Vec::new(),
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
    /// Accesses to these pages, each of which takes so long in the fast tier and gains so much
    /// by being there.
    fn accesses(
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

impl Kernel {
    /// Writes down that an item has moved between two nodes.
    pub(crate) fn score_move(&mut self, item: u32, n: u64, src: usize, dst: usize, copies: u64) {
        let (up, down) = (self.top[dst] && !self.top[src], self.top[src] && !self.top[dst]);
        let both = 2 * self.prices[Cost::MigratePage] / n + copies;
        let Some(score) = &mut self.score else { return };
        if item & FRAME_ITEM == 0 && (up || down) {
            score.moved(item, n, up, both);
        }
    }
}

impl Simulation {
    /// Writes down from now on what the run is judged by.
    pub fn keep_score(&mut self, score: Score) {
        self.kernel.score = Some(Box::new(score));
    }
    /// What was written down.
    pub fn score(&self) -> Option<&Score> {
        self.kernel.score.as_deref()
    }
    /// It is that late: writes down what CPUs did where a slice ends.
    pub(crate) fn score_time(&mut self, now: u64) {
        let over = |score: &Score| (score.used.len() as u64 + 1) * score.every <= now;
        if !self.kernel.score.as_deref().is_some_and(over) {
            return;
        }
        let busy_ps = self.cpu_figures().iter().map(|c| c.busy_ps).sum();
        let programs = self.tasks.iter().filter(|t| t.process != usize::MAX);
        let user_ps = programs.map(|t| t.ran.saturating_sub(t.system)).sum();
        if let Some(score) = &mut self.kernel.score {
            while over(score) {
                score.used.push(Used { busy_ps, user_ps });
            }
        }
    }
    /// The least unloaded latency of a load from a CPU: in the fast tier, and in
    /// the nearest one below. `None` where there is no other tier.
    fn tiers_from(&self, cpu: usize) -> Option<[u64; 2]> {
        let table = self.unloaded_from(cpu);
        let of = |top: bool| {
            let zones = self.kernel.memory.zones.iter().enumerate();
            let here = zones.filter(move |(_, z)| self.kernel.top[z.node] == top);
            here.map(|(z, _)| table[z * 2]).filter(|&l| l > 0).min()
        };
        Some([of(true)?, of(false)?])
    }
    /// Accesses that a task has made: those of `ops` to pages.
    ///
    /// * `takes` – how long an access takes at a latency.
    pub(crate) fn score_accesses(&mut self, id: usize, ops: &[u32], takes: impl Fn(u64) -> u64) {
        let (at, cpu) = (self.tasks[id].clock, self.tasks[id].cpu);
        let [least, gain] = match self.tiers_from(cpu) {
            Some([fast, slow]) => [takes(fast), takes(slow).saturating_sub(takes(fast))],
            None => [0, 0],
        };
        let Some(score) = &mut self.kernel.score else { return };
        score.accesses(at, ops.iter().map(|op| op & crate::hot::OP_PAGE), [least, gain]);
    }
    /// The course of each page that was followed and accessed, by its place; nothing where that was
    /// not kept.
    pub fn courses(&self) -> Vec<PageCourse> {
        let Some(score) = &self.kernel.score else { return Vec::new() };
        let Some(courses) = &score.courses else { return Vec::new() };
        let page_of = |at: usize| {
            let group = (at as u32) << score.group;
            (group..group + (1 << score.group)).find(|&p| chosen(p, score.group)).unwrap_or(group)
        };
        let is_fast = |page: u32| {
            let memory = &self.kernel.memory;
            let word = crate::page::Word(memory.words[page as usize]);
            word.resident() && {
                let item = memory.item_of(page);
                self.kernel.top[memory.node_of(memory.word(item).zone())]
            }
        };
        let one = |at: usize| PageCourse {
            fast: is_fast(page_of(at)),
            gains: courses.iter().map(|c| c.get(at).copied().unwrap_or(0)).collect(),
        };
        let all = (0..score.gained.len()).filter(|&at| score.gained[at] > 0);
        all.map(one).collect()
    }
    /// What both moves of one page between the fast and the slow tier cost unloaded: up, down. 0
    /// where there are no two tiers.
    pub fn move_costs(&self) -> [Picos; 2] {
        let place = |top: bool| self.kernel.top.iter().position(|&t| t == top);
        let (Some(fast), Some(slow)) = (place(true), place(false)) else {
            return [Picos::ZERO; 2];
        };
        let each = self.kernel.prices[Cost::MigratePage];
        [(slow, fast), (fast, slow)].map(|(a, b)| Picos(each + self.kernel.copy_time(a, b)))
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
