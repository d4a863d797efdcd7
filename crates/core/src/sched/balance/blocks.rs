//! Figures of many CPUs, kept as sums of blocks, so that a level of many CPUs is not looked at one by one.
//!
//! ```text
//! CPUs    0 … 15   16 … 31   …   240 … 255  256 …
//! blocks  ╰─ 16 ─╯ ╰─ 16 ─╯      ╰── 16 ──╯          summed up anew where a CPU has changed
//! wide    ╰──────────── 256 ──────────────╯          its blocks' sums, less what one was, with what it is
//! ```
//!
//! Source: specs/sched-balance.md#busiest: they are the sums that it asks for.

use super::{Facts, GroupStats};
use crate::sched::domain::Span;

/// CPUs side by side whose figures are summed up together: those of places `n * BLOCK` and on.
pub(super) const BLOCK: usize = 16;

/// Words of a bitmap of CPUs that a wide sum is of.
const WIDE: usize = 4;
/// Blocks of a word, and of a wide sum.
const IN_WORD: usize = u64::BITS as usize / BLOCK;
const IN_WIDE: usize = WIDE * IN_WORD;

/// Figures of several CPUs, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) load: u64,
    pub(super) util: u64,
    pub(super) runnable: u64,
    pub(super) nr_running: u32,
    pub(super) h_nr_queued: u32,
    pub(super) nr_numa: u32,
    pub(super) nr_preferred: u32,
    /// CPUs without a task whose idle task is current.
    pub(super) idle_cpus: u32,
    /// CPUs that have more than one task.
    pub(super) crowded: u32,
}

impl Sum {
    /// That of a whole block.
    fn of_block(f: &Facts<'_>, block: usize) -> Self {
        let mut all = Self::default();
        let end = f.figures.len().min((block + 1) * BLOCK);
        (block * BLOCK..end).for_each(|cpu| all.add_cpu(f, cpu));
        all
    }
    /// One CPU more.
    #[inline(always)]
    pub(super) fn add_cpu(&mut self, f: &Facts<'_>, cpu: usize) {
        let c = &f.figures[cpu];
        self.load += c.load;
        self.util += u64::from(c.util);
        self.runnable += u64::from(c.runnable);
        self.nr_running += c.nr_running;
        self.h_nr_queued += c.h_nr_queued;
        self.nr_numa += c.nr_numa;
        self.nr_preferred += c.nr_preferred;
        if c.nr_running == 0 {
            self.idle_cpus += u32::from(f.idle(cpu));
        }
        self.crowded += u32::from(c.nr_running > 1);
    }
    /// As a group of these CPUs, of no capacity yet.
    pub(super) fn group_stats(&self) -> GroupStats {
        GroupStats {
            load: self.load,
            util: self.util,
            runnable: self.runnable,
            nr_running: self.nr_running,
            h_nr_queued: self.h_nr_queued,
            idle_cpus: self.idle_cpus,
            ..GroupStats::default()
        }
    }
    /// Others more, or less.
    #[inline]
    fn change(
        &mut self,
        other: &Self,
        long: impl Fn(u64, u64) -> u64,
        short: impl Fn(u32, u32) -> u32,
    ) {
        self.load = long(self.load, other.load);
        self.util = long(self.util, other.util);
        self.runnable = long(self.runnable, other.runnable);
        self.nr_running = short(self.nr_running, other.nr_running);
        self.h_nr_queued = short(self.h_nr_queued, other.h_nr_queued);
        self.nr_numa = short(self.nr_numa, other.nr_numa);
        self.nr_preferred = short(self.nr_preferred, other.nr_preferred);
        self.idle_cpus = short(self.idle_cpus, other.idle_cpus);
        self.crowded = short(self.crowded, other.crowded);
    }
    #[inline]
    fn add(&mut self, other: &Self) {
        self.change(other, |a, b| a + b, |a, b| a + b);
    }
    #[inline]
    fn take_off(&mut self, other: &Self) {
        self.change(other, |a, b| a - b, |a, b| a - b);
    }
}

/// The sums of all blocks of a machine.
#[derive(Clone, Debug)]
pub struct Blocks {
    blocks: Vec<Sum>,
    wide: Vec<Sum>,
    /// A bit for each block of which a CPU has changed since it was summed up.
    stale: Vec<u64>,
}

impl Blocks {
    /// Those of so many CPUs, which are all to be looked at yet.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        let blocks = cpus.div_ceil(BLOCK);
        let mut stale = vec![u64::MAX; blocks.div_ceil(64)];
        if let (Some(last), 1..) = (stale.last_mut(), blocks % 64) {
            *last = (1 << (blocks % 64)) - 1;
        }
        Self {
            blocks: vec![Sum::default(); blocks],
            wide: vec![Sum::default(); blocks.div_ceil(IN_WIDE)],
            stale,
        }
    }
    /// Figures of a CPU change, or whether it is idle.
    #[inline]
    pub fn change(&mut self, cpu: usize) {
        self.stale[cpu / (64 * BLOCK)] |= 1 << (cpu / BLOCK % 64);
    }
    /// Sums up what has changed.
    pub fn sum_up(&mut self, f: &Facts<'_>) {
        for (word, stale) in self.stale.iter_mut().enumerate() {
            while *stale != 0 {
                let block = word * 64 + stale.trailing_zeros() as usize;
                *stale &= *stale - 1;
                let sum = Sum::of_block(f, block);
                let before = std::mem::replace(&mut self.blocks[block], sum);
                let wide = &mut self.wide[block / IN_WIDE];
                wide.add(&sum);
                wide.take_off(&before);
            }
        }
    }
    /// The sum of a block.
    #[inline]
    pub(super) fn get(&self, block: usize) -> Option<&Sum> {
        self.blocks.get(block)
    }
    /// Adds up a set of CPUs.
    pub(super) fn sum_of_span(&self, span: Span<'_>, f: &Facts<'_>, all: &mut Sum) {
        self.sum_of_words(span.first_word(), span.words().iter().copied(), f, all);
    }
    /// The same of a bitmap from a word on: whole sums where all their CPUs are in it, others one by one.
    #[inline]
    pub(super) fn sum_of_words(
        &self,
        first: usize,
        words: impl Iterator<Item = u64>,
        f: &Facts<'_>,
        all: &mut Sum,
    ) {
        // Words right before this one, from the beginning of a wide sum on, of which all CPUs are in it.
        let mut full = 0;
        let mut end = first;
        for (word, cpus) in (first..).zip(words) {
            end = word + 1;
            if cpus == u64::MAX && full == word % WIDE {
                full += 1;
                if full == WIDE {
                    all.add(&self.wide[word / WIDE]);
                    full = 0;
                }
                continue;
            }
            (word - full..word).for_each(|before| self.sum_of_word(before, u64::MAX, f, all));
            full = 0;
            self.sum_of_word(word, cpus, f, all);
        }
        (end - full..end).for_each(|before| self.sum_of_word(before, u64::MAX, f, all));
    }
    #[inline]
    fn sum_of_word(&self, word: usize, cpus: u64, f: &Facts<'_>, all: &mut Sum) {
        for part in 0..IN_WORD {
            let block = word * IN_WORD + part;
            let mut left = (cpus >> (part * BLOCK)) as u16;
            if left == u16::MAX {
                all.add(&self.blocks[block]);
                continue;
            }
            while left != 0 {
                all.add_cpu(f, block * BLOCK + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}
