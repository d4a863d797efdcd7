//! The kernel's and homenode's own tasks: how they begin, who wakes them, and where.

use super::agent::Job;
use super::{Event, Program, Run, SLICE, Simulation};
use std::collections::BTreeMap;

/// The fair scheduler's weights of nice 5, ksmd's, and of nice 0.
///
/// Source: specs/ksm.md#pass for the nice value; the weights are the kernel's table.
const WEIGHT: u64 = 335;
const WEIGHT_NICE_0: u64 = 1024;

/// Where ksmd is.
pub(crate) struct Ksmd {
    task: usize,
    /// When its sleep between two batches ends; `None` while it works or waits for work.
    pub(crate) nap: Option<u64>,
    /// Lines that it has read since the last tick, by the last-level cache of its CPU.
    pub(crate) read: BTreeMap<u32, u64>,
}

impl Simulation {
    /// The CPU that a daemon of a node runs on: an idle one of the node, else the
    /// one with the fewest tasks; a node without CPUs borrows from all.
    pub(crate) fn daemon_cpu(&self, node: usize) -> usize {
        let own = self.least_loaded(|c| c.node == node);
        own.or_else(|| self.least_loaded(|_| true)).unwrap_or(0)
    }
    /// Homenode's task or DAMON's begins; it sleeps at first.
    pub(crate) fn helper(&mut self, program: Program) -> usize {
        let id = self.new_task(usize::MAX, usize::MAX, 0, program, self.now);
        self.task_mut(id).run = Run::Sleeping;
        id
    }
    /// Processor time of a task, in picoseconds.
    pub(crate) fn ran_of(&self, task: usize) -> u64 {
        self.tasks[task].as_ref().map_or(0, |t| t.ran)
    }
    /// Wakes a helper on the least loaded CPU, unless it is awake.
    pub(crate) fn wake_helper(&mut self, id: usize) {
        if self.task(id).run == Run::Sleeping {
            self.spread(id, true);
        }
    }
    /// Sets homenode's timer; whether it still means that time is asked when it has come.
    pub(crate) fn at_look_around(&mut self, time: u64) {
        self.at(time, Event::LookAround);
    }

    // ── homenode ───────────────────────────────────────────────────────────────

    /// A ring that is half full wakes its reader, once until it has read.
    pub(crate) fn heed_rings(&mut self) {
        let half = self.kernel.probe.as_ref().is_some_and(|p| p.ring.is_half_full())
            || self.pmu.as_ref().is_some_and(|p| p.ring.is_half_full());
        let Some(agent) = self.agent.as_mut().filter(|_| half) else { return };
        if agent.jobs.iter().any(|j| matches!(j, Job::LookAround)) {
            return;
        }
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake_helper(task);
    }
    /// homenode's timer has fired.
    pub(crate) fn look_around(&mut self, time: u64) {
        let Some(agent) = self.agent.as_mut().filter(|a| a.look_at == Some(time)) else { return };
        agent.look_at = None;
        agent.jobs.push_back(Job::LookAround);
        let task = agent.task;
        self.wake_helper(task);
    }
    /// DAMON's timer has fired.
    pub(crate) fn wake_damon(&mut self) {
        if let Some(kdamond) = self.agent.as_ref().and_then(|a| a.heat.thread()) {
            self.wake_helper(kdamond);
        }
    }
    /// Lets homenode look around now.
    pub(crate) fn look_now(&mut self) {
        let now = self.now;
        if let Some(agent) = &mut self.agent {
            agent.look_at = Some(now);
        }
        self.look_around(now);
    }

    // ── ksmd ───────────────────────────────────────────────────────────────────

    /// ksmd begins; it waits for work.
    pub(crate) fn start_ksmd(&mut self) {
        let task = self.helper(Program::Ksmd);
        self.ksmd = Some(Ksmd { task, nap: None, read: BTreeMap::new() });
    }
    /// Processor time of ksmd in picoseconds.
    pub(crate) fn ksmd_ran(&self) -> u64 {
        self.ksmd.as_ref().map_or(0, |k| self.task(k.task).ran)
    }
    /// How long a task keeps a CPU that others wait for.
    pub(crate) fn slice(&self, id: usize) -> u64 {
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
    pub(crate) fn ksmd_slept(&mut self, time: u64) {
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
}
