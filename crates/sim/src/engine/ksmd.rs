//! ksmd: a task of nice 5 that merges pages in batches and sleeps between them.

use super::{Event, Program, Run, SLICE, Simulation, Task};
use crate::load::LINE;
use homenode_core::costs::Cost;
use homenode_core::ksm::Step;

/// The fair scheduler's weights of nice 5, ksmd's, and of nice 0.
///
/// Source: specs/ksm.md#pass for the nice value; the weights are the kernel's table.
const WEIGHT: u64 = 335;
const WEIGHT_NICE_0: u64 = 1024;

/// Where ksmd is.
pub(super) struct Ksmd {
    task: usize,
    /// When its sleep between two batches ends; `None` while it works or waits for work.
    nap: Option<u64>,
    /// Lines that it has read since the last tick, by the last-level cache of its CPU.
    read: std::collections::BTreeMap<u32, u64>,
}

impl Simulation {
    /// ksmd begins; it waits for work.
    pub(crate) fn start_ksmd(&mut self) {
        let task = self.helper(Program::Ksmd);
        self.ksmd = Some(Ksmd { task, nap: None, read: Default::default() });
    }
    /// Processor time of ksmd in picoseconds.
    pub(crate) fn ksmd_ran(&self) -> u64 {
        self.ksmd.as_ref().map_or(0, |k| self.task(k.task).ran)
    }
    /// How long a task keeps a CPU that others wait for.
    pub(super) fn slice(&self, id: usize) -> u64 {
        if self.is_ksmd(id) { SLICE * WEIGHT / WEIGHT_NICE_0 } else { SLICE }
    }
    pub(super) fn is_ksmd(&self, id: usize) -> bool {
        self.ksmd.as_ref().is_some_and(|k| k.task == id)
    }

    /// Wakes ksmd where there is work for it, or its time to sleep has changed.
    pub(crate) fn heed_ksmd(&mut self) {
        if let Some(e) = self.kernel.merging.trouble.take() {
            self.memory_error.get_or_insert(e);
        }
        let wakes = std::mem::take(&mut self.kernel.merging.wakes);
        let Some(k) = &self.ksmd else { return };
        if k.nap.is_some() && wakes.sleep || k.nap.is_none() && wakes.work {
            self.wake_ksmd();
        }
    }
    /// The sleep that was to last until now is over.
    pub(super) fn ksmd_slept(&mut self, time: u64) {
        if self.ksmd.as_ref().is_some_and(|k| k.nap == Some(time)) {
            self.wake_ksmd();
        }
    }
    /// Puts ksmd on a CPU: where it ran last if that is idle, else the next idle one in
    /// turn, else the next in turn of those with the fewest tasks, which it then shares.
    fn wake_ksmd(&mut self) {
        let Some(k) = &mut self.ksmd else { return };
        k.nap = None;
        let id = k.task;
        if self.task(id).run != Run::Sleeping {
            return;
        }
        let (last, n) = (self.task(id).cpu, self.cpus.len());
        let busy = |i: usize| self.cpus[i].queue.len();
        let next = (0..n).map(|i| (last + i) % n).min_by_key(|&i| busy(i));
        self.task_mut(id).cpu = next.unwrap_or(last);
        self.enqueue(id, false);
    }

    /// ksmd's turn: pages until `end` or until its batch is done.
    pub(super) fn run_ksmd(&mut self, task: &mut Task, end: u64) {
        let latency = *self.latency_from(task.cpu);
        let mut ctx = self.ctx_of(usize::MAX, task);
        ctx.clock = task.clock;
        let began = task.clock;
        let mut nap = None;
        while ctx.clock < end {
            if !self.kernel.ksm().should_run() {
                self.kernel.merging.batch = None;
                task.run = Run::Sleeping;
                break;
            }
            let left = self.kernel.merging.batch;
            let left = left.unwrap_or_else(|| self.kernel.ksm().settings().pages_to_scan);
            if left > 0 {
                let ran = task.ran + (ctx.clock - began);
                let page = self.kernel.ksmd_step(&mut ctx, &latency, ran);
                let more = matches!(page, Step::Page(_)) && left > 1;
                self.kernel.merging.batch = more.then_some(left - 1);
                if more {
                    continue;
                }
            } else {
                ctx.clock += self.kernel.merging.empty_batch();
            }
            // The timer ends at a tick.
            let ticks = self.kernel.ksm().sleep_jiffies();
            if ticks > 0 {
                nap = Some((ctx.clock / super::TICK + ticks) * super::TICK);
                task.run = Run::Sleeping;
                break;
            }
        }
        task.clock = ctx.clock;
        if let Some(time) = nap {
            self.at(time, Event::Ksmd);
        }
        let llc = self.machine.cpus[task.cpu].llc;
        let lines = std::mem::take(&mut self.kernel.merging.read);
        if let Some(k) = &mut self.ksmd {
            k.nap = nap;
            *k.read.entry(llc).or_default() += lines;
        }
    }

    /// At a tick: what ksmd has displaced from a last-level cache since the last one, and
    /// somebody wants again, is read again by the tasks that run at this cache, each the
    /// same share, from their own node.
    ///
    /// Source: specs/ksm.md#cost.
    pub(super) fn charge_displaced(&mut self) {
        let Some(k) = &mut self.ksmd else { return };
        let share = self.machine.costs.get(Cost::KsmDisplaced);
        for (llc, lines) in std::mem::take(&mut k.read) {
            let runs = |(i, c): (usize, &super::Cpu)| {
                let id = *c.queue.front()?;
                let here = self.machine.cpus[i].llc == llc && self.task(id).space != usize::MAX;
                here.then_some((i, id))
            };
            let running: Vec<(usize, usize)> =
                self.cpus.iter().enumerate().filter_map(runs).collect();
            let each = lines * share / 1000 / running.len().max(1) as u64;
            for (cpu, id) in running {
                let node = self.cpus[cpu].node;
                let home = self.kernel.memory.nodes[node].zones.first().copied();
                let table = &self.latency[node];
                let nearest = (0..self.zones_used).map(|z| table[z * 2]).filter(|l| *l > 0).min();
                let line = home.map(|z| table[z * 2]).or(nearest).unwrap_or(0);
                self.kernel.loads[node].read += each * LINE;
                let time = each * line * 1000 / self.parallelism;
                let task = self.task_mut(id);
                task.clock += time;
                task.ran += time;
                let ran = task.ran;
                self.kernel.numa[id].ran_ns = ran / 1000;
            }
        }
    }
}
