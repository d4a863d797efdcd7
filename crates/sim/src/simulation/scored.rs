//! What a run is judged by, as the simulation writes it down and tells it.
//!
//! Source: specs/compare.md#score.

use super::Simulation;
use crate::score::{PageCourse, Score, Used};
use homenode_core::costs::Cost;
use homenode_core::units::Picos;

/// What a replaying task did, as far as it is judged.
#[derive(Clone, Default)]
pub(crate) struct ScoredRows {
    /// Rows that fetched lines.
    pub(crate) lines: Vec<ScoredLines>,
    /// Picoseconds of computing before other rows.
    pub(crate) elsewhere: u64,
}

/// A row that fetched lines.
#[derive(Clone, Copy)]
pub(crate) struct ScoredLines {
    pub(crate) page: u32,
    /// The zone that served them.
    pub(crate) zone: usize,
    /// Picoseconds that they take in the fast tier, with the computing before them.
    pub(crate) least: u64,
    /// Those that they save by being there.
    pub(crate) gain: u64,
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
        if !self.kernel.score.as_ref().is_some_and(|score| score.is_due(now)) {
            return;
        }
        let busy_ps = self.cpu_figures().iter().map(|c| c.busy_ps).sum();
        let programs = self.tasks.iter().filter(|t| t.process != usize::MAX);
        let user_ps = programs.map(|t| t.ran.saturating_sub(t.system)).sum();
        if let Some(score) = &mut self.kernel.score {
            while score.is_due(now) {
                score.note_used(Used { busy_ps, user_ps });
            }
        }
    }
    /// The least unloaded latency of a load from a CPU, and that of a store there: in the fast
    /// tier, and in the nearest one below. `None` where there is no other tier.
    pub(crate) fn tiers_from(&self, cpu: usize) -> Option<[[u64; 2]; 2]> {
        let table = self.unloaded_from(cpu);
        let of = |top: bool| {
            let zones = self.kernel.memory.zones.iter().enumerate();
            let here = zones.filter(move |(_, z)| self.kernel.top[z.node] == top);
            let both = here.map(|(z, _)| [table[z * 2], table[z * 2 + 1]]);
            both.filter(|l| l[0] > 0).min_by_key(|l| l[0])
        };
        Some([of(true)?, of(false)?])
    }
    /// What a task has done that was recorded.
    pub(crate) fn score_rows(&mut self, id: usize, rows: &ScoredRows) {
        let at = self.tasks[id].clock;
        let Some(score) = &mut self.kernel.score else { return };
        score.computed(at, rows.elsewhere);
        for &ScoredLines { page, zone, least, gain } in &rows.lines {
            score.accesses(at, std::iter::once(page), [least, gain]);
            score.served_by(page, self.kernel.top[self.kernel.memory.zones[zone].node]);
        }
    }
    /// Accesses that a task has made: those of `ops` to pages.
    ///
    /// * `takes` – how long an access takes at a latency.
    pub(crate) fn score_accesses(&mut self, id: usize, ops: &[u32], takes: impl Fn(u64) -> u64) {
        let (at, cpu) = (self.tasks[id].clock, self.tasks[id].cpu);
        let [least, gain] = match self.tiers_from(cpu) {
            Some([[fast, _], [slow, _]]) => [takes(fast), takes(slow).saturating_sub(takes(fast))],
            None => [0, 0],
        };
        let Some(score) = &mut self.kernel.score else { return };
        score.accesses(at, ops.iter().map(|op| op & crate::hot::OP_PAGE), [least, gain]);
    }
    /// The course of each page that was followed and accessed, by its place; nothing where that was
    /// not kept.
    pub fn courses(&self) -> Vec<PageCourse> {
        let Some(score) = &self.kernel.score else { return Vec::new() };
        let is_fast = |page: u32| {
            let memory = &self.kernel.memory;
            let word = crate::page::Word(memory.words[page as usize]);
            // A recorded program has given its memory back when its last round is over.
            if !word.resident() {
                return score.was_served_fast(page);
            }
            let item = memory.item_of(page);
            self.kernel.top[memory.node_of(memory.word(item).zone())]
        };
        let one = |(page, gains)| PageCourse { fast: is_fast(page), gains };
        score.followed().into_iter().map(one).collect()
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
