//! Figures of many CPUs, kept as sums of blocks, so that a level of many CPUs is not looked at one by one.
//!
//! ```text
//! CPUs    0 … 15   16 … 31   …   240 … 255  256 …
//! blocks  ╰─ 16 ─╯ ╰─ 16 ─╯      ╰── 16 ──╯
//! wide    ╰──────────── 256 ──────────────╯
//! ```
//!
//! A CPU that has changed counts in both with what it is now, less what it was when it was looked at last: so what
//! it takes to be up to date grows with the CPUs that have changed, and not with those that lie beside them.
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
    /// That of one CPU.
    #[inline]
    fn of_cpu(f: &Facts<'_>, cpu: usize) -> Self {
        let mut one = Self::default();
        one.add_cpu(f, cpu);
        one
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
    /// By CPU: what the sums have of it.
    counted: Vec<Sum>,
    /// CPUs that have changed since they were counted, and a bit for each of them.
    changed: Vec<u32>,
    is_changed: Vec<u64>,
}

impl Blocks {
    /// Those of so many CPUs, which are all to be looked at yet.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        let blocks = cpus.div_ceil(BLOCK);
        let mut all = Self {
            blocks: vec![Sum::default(); blocks],
            wide: vec![Sum::default(); blocks.div_ceil(IN_WIDE)],
            counted: vec![Sum::default(); cpus],
            changed: Vec::with_capacity(cpus),
            is_changed: vec![0; cpus.div_ceil(64)],
        };
        (0..cpus).for_each(|cpu| all.change(cpu));
        all
    }
    /// Figures of a CPU change, or whether it is idle.
    #[inline]
    pub fn change(&mut self, cpu: usize) {
        let (word, bit) = (&mut self.is_changed[cpu / 64], 1 << (cpu % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.changed.push(cpu as u32);
        }
    }
    /// The address of what the sums have of a CPU, for who has it fetched before it changes.
    #[inline]
    pub fn address(&self, cpu: usize) -> usize {
        (&raw const self.counted[cpu]).addr()
    }
    /// Counts what has changed.
    pub fn sum_up(&mut self, f: &Facts<'_>) {
        for &cpu in &self.changed {
            let cpu = cpu as usize;
            self.is_changed[cpu / 64] &= !(1 << (cpu % 64));
            let now = Sum::of_cpu(f, cpu);
            let before = std::mem::replace(&mut self.counted[cpu], now);
            for sum in [&mut self.blocks[cpu / BLOCK], &mut self.wide[cpu / (BLOCK * IN_WIDE)]] {
                sum.add(&now);
                sum.take_off(&before);
            }
        }
        self.changed.clear();
    }
    /// The sum of a block.
    #[inline]
    pub(super) fn get(&self, block: usize) -> Option<&Sum> {
        self.blocks.get(block)
    }
    /// The sum of the block that a rising list of CPUs begins with, if all of it is in there.
    #[inline]
    pub(super) fn whole(&self, cpus: &[u16]) -> Option<&Sum> {
        let first = usize::from(*cpus.first()?);
        // They rise: so many from the first to the last are all of them.
        let whole = first % BLOCK == 0 && usize::from(*cpus.get(BLOCK - 1)?) == first + BLOCK - 1;
        whole.then(|| &self.blocks[first / BLOCK])
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
