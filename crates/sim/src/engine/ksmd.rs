//! ksmd: a task of nice 5 that merges pages in batches and sleeps between them.

use crate::kernel::TICK;
use crate::load::LINE;
use crate::simulation::{Cpu, Event, Run, Simulation, Task};
use homenode_core::costs::Cost;
use homenode_core::ksm::Step;

impl Simulation {
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
                nap = Some((ctx.clock / TICK + ticks) * TICK);
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
            let runs = |(i, c): (usize, &Cpu)| {
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
