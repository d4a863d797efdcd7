//! The kernel's and homenode's own tasks. Everything that they do is an act: others see it.

use super::actor::AT_ONCE;
use super::compute::Computing;
use super::{Ahead, Hog, Program};
use crate::cpus::parts;
use crate::kernel::khugepaged::Rest;
use crate::kernel::{Ctx, TICK};
use crate::load::LINE;
use crate::sched::Terms;
use crate::simulation::{KsmdState, Simulation};
use crate::tasks::{Kind, On, Run, Why};
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::kernel::msecs_to_jiffies;
use homenode_core::ksm::Step;
use std::collections::BTreeMap;

/// ksmd's nice value.
///
/// Source: specs/ksm.md#pass.
const KSMD_NICE: i8 = 5;
/// khugepaged's nice value.
///
/// Source: specs/huge-pages.md#khugepaged.
const KHUGEPAGED_NICE: i8 = 19;
/// How long kswapd naps before it looks again and then sleeps until it is woken.
const RECHECK: u64 = 100_000_000_000;

/// A node's kswapd, by the node's place.
pub(crate) struct Kswapd(pub(crate) usize);

impl Program for Kswapd {
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64) {
        let mut ctx = sim.daemon_ctx(id);
        let began = ctx.clock;
        let sleeps = sim.kernel.kswapd_run(&mut ctx, self.0, until);
        sim.charge(id, ctx.clock - began, Why::System);
        sim.kill_doomed(self.0);
        if sleeps {
            sim.sleep_until(id, ctx.clock + RECHECK);
        }
    }
    fn timer(&mut self, sim: &mut Simulation, _id: usize) {
        // The nap is over: on with it if the node is out of balance again.
        sim.kernel.wake_kswapd(self.0);
    }
}

/// homenode, the daemon: what it has to do is in the simulation's agent. Where it is kept busy it
/// looks for something to do while there is nothing, in place of sleeping.
#[derive(Default)]
pub(crate) struct Homenode(Computing);

impl Program for Homenode {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, _until: u64) -> Ahead {
        if sim.agent.as_ref().is_none_or(|agent| !agent.is_idle()) {
            // It has found something.
            self.0.begin(0);
        }
        if self.0.is_done() {
            return Ahead { clock: sim.tasks[id].clock, act: true, far: false };
        }
        self.0.ahead(sim, id)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        self.0.back(sim, id, to)
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        self.0.settle(sim, id);
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64) {
        let Some(mut agent) = sim.agent.take() else { return sim.block(id, On::Sleep) };
        let mut ctx = sim.daemon_ctx(id);
        let began = ctx.clock;
        if agent.work(sim, &mut ctx, until) {
            match agent.spins && sim.tasks[id].run == Run::Runnable {
                true => self.0.begin(parts(AT_ONCE * 1000)),
                false => sim.block(id, On::Sleep),
            }
        }
        sim.charge(id, ctx.clock - began, Why::User);
        sim.speaks |= agent.has_word();
        sim.agent = Some(agent);
    }
}

/// DAMON's thread, on homenode's behalf.
pub(crate) struct Kdamond;

impl Program for Kdamond {
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        let Some(mut agent) = sim.agent.take() else { return sim.block(id, On::Sleep) };
        let mut ctx = sim.daemon_ctx(id);
        let began = ctx.clock;
        match agent.heat.turn(&mut sim.kernel, &mut ctx) {
            Some(next) => sim.sleep_until(id, next),
            None => sim.block(id, On::Sleep),
        }
        sim.charge(id, ctx.clock - began, Why::System);
        sim.speaks |= agent.has_word();
        sim.agent = Some(agent);
    }
}

/// Whoever writes to files whose answer takes time: memory going offline.
pub(crate) struct Writer;

impl Program for Writer {
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64) {
        let mut ctx = sim.daemon_ctx(id);
        let began = ctx.clock;
        if sim.write_on(&mut ctx, until) {
            sim.block(id, On::Sleep);
        }
        sim.charge(id, ctx.clock - began, Why::System);
    }
}

/// ksmd: a task of nice 5 that merges pages in batches and sleeps between them.
pub(crate) struct Ksmd;

impl Program for Ksmd {
    /// Pages until `until` or until its batch is done.
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64) {
        let cpu = sim.tasks[id].cpu;
        let latency = *sim.latency_from(cpu);
        let mut ctx = sim.daemon_ctx(id);
        let (began, ran) = (ctx.clock, sim.tasks[id].ran);
        let mut nap = None;
        while ctx.clock < until {
            if !sim.kernel.ksm().should_run() {
                sim.kernel.merging.batch = None;
                sim.block(id, On::Sleep);
                break;
            }
            let left = sim.kernel.merging.batch;
            let left = left.unwrap_or_else(|| sim.kernel.ksm().settings().pages_to_scan);
            if left > 0 {
                let so_far = ran + (ctx.clock - began);
                let page = sim.kernel.ksmd_step(&mut ctx, &latency, so_far);
                let more = matches!(page, Step::Page(_)) && left > 1;
                sim.kernel.merging.batch = more.then_some(left - 1);
                if more {
                    continue;
                }
            } else {
                // Not nothing: with no sleep either, time would stand still.
                ctx.clock += sim.kernel.prices[Cost::KsmVisit].max(1000);
            }
            // The timer ends at a tick.
            let ticks = sim.kernel.ksm().sleep_jiffies();
            if ticks > 0 {
                nap = Some((ctx.clock / TICK + ticks) * TICK);
                break;
            }
        }
        sim.charge(id, ctx.clock - began, Why::System);
        if let Some(time) = nap {
            sim.sleep_until(id, time);
        }
        let llc = sim.cpus[cpu].llc;
        let lines = std::mem::take(&mut sim.kernel.merging.read);
        if let Some(k) = &mut sim.ksmd {
            k.naps = nap.is_some();
            *k.read.entry(llc).or_default() += lines;
        }
    }
}

/// khugepaged: a task of nice 19 that looks at some pages and sleeps.
struct Khugepaged;

impl Program for Khugepaged {
    fn act(&mut self, sim: &mut Simulation, id: usize, until: u64) {
        let mut ctx = sim.daemon_ctx(id);
        let began = ctx.clock;
        let rest = sim.kernel.khugepaged_run(&mut ctx, until);
        sim.kernel.khugepaged.rest = rest;
        sim.charge(id, ctx.clock - began, Why::System);
        match rest {
            Rest::Runs => {}
            Rest::Idle => sim.block(id, On::Sleep),
            // The timer ends at a tick.
            Rest::Naps(ms) => {
                let ticks = msecs_to_jiffies(ms.into());
                sim.sleep_until(id, (ctx.clock / TICK + ticks) * TICK);
            }
        }
    }
}

impl Simulation {
    /// Wakes khugepaged where there is work for it, or its time to sleep has changed. It begins
    /// with the first work: a run in which nothing may be huge has no such task.
    pub(crate) fn heed_khugepaged(&mut self, when: u64) {
        let called = std::mem::take(&mut self.kernel.khugepaged.called);
        let wakes = match self.kernel.khugepaged.rest {
            Rest::Idle => called.work,
            Rest::Naps(_) => called.sleep,
            Rest::Runs => false,
        };
        if !wakes {
            return;
        }
        let task = match self.khugepaged {
            Some(task) => task,
            None => self.start_daemon(Kind::Khugepaged, Box::new(Khugepaged)),
        };
        self.khugepaged = Some(task);
        self.kernel.khugepaged.rest = Rest::Runs;
        self.wake_at(task, when, By::Kernel);
    }
    /// A daemon begins; it sleeps at first.
    pub(crate) fn start_daemon(&mut self, kind: Kind, program: Box<dyn Program>) -> usize {
        let places = match kind {
            // A node without CPUs has its kswapd anywhere.
            Kind::Kswapd(node) => {
                (0..self.cpus.len()).filter(|&c| self.cpus[c].node == node).collect()
            }
            Kind::Thread
            | Kind::Replayed
            | Kind::Ksmd
            | Kind::Khugepaged
            | Kind::Kdamond
            | Kind::Homenode
            | Kind::Busy
            | Kind::Writer
            | Kind::Worker => Vec::new(),
        };
        let set = self.sched.q.set(&places);
        let nice = match kind {
            Kind::Ksmd => KSMD_NICE,
            Kind::Khugepaged => KHUGEPAGED_NICE,
            Kind::Kswapd(_)
            | Kind::Thread
            | Kind::Replayed
            | Kind::Kdamond
            | Kind::Homenode
            | Kind::Busy
            | Kind::Writer
            | Kind::Worker => 0,
        };
        let terms = Terms { nice, set, ..Terms::default() };
        let cpu = self.sched.q.sets[set as usize].first();
        let id = self.new_task(kind, usize::MAX, usize::MAX, cpu, &terms, program);
        self.block(id, On::Sleep);
        id
    }
    /// A thread of nice 0 begins that computes all the time, on any CPU: it asks again and again
    /// whether there is something to do, and never waits for it. Nobody waits for its end.
    ///
    /// Source: specs/compare.md#busy.
    pub(crate) fn start_busy(&mut self) -> usize {
        let id = self.start_daemon(Kind::Busy, Box::new(Hog::default()));
        self.tasks[id].run = Run::Runnable;
        self.enqueue(id);
        id
    }
    /// The context of a daemon's work: it is nobody's task.
    fn daemon_ctx(&self, id: usize) -> Ctx {
        Ctx { task: usize::MAX, ..self.ctx(id) }
    }
    /// ksmd begins; it waits for work.
    pub(crate) fn start_ksmd(&mut self) {
        let task = self.start_daemon(Kind::Ksmd, Box::new(Ksmd));
        self.ksmd = Some(KsmdState { task, naps: false, read: BTreeMap::new() });
    }
    /// Processor time of ksmd in picoseconds.
    pub(crate) fn ksmd_ran(&self) -> u64 {
        self.ksmd.as_ref().map_or(0, |k| self.tasks[k.task].ran)
    }
    /// Wakes ksmd where there is work for it, or its time to sleep has changed.
    pub(crate) fn heed_ksmd(&mut self, when: u64) {
        if let Some(e) = self.kernel.merging.trouble.take() {
            self.memory_error.get_or_insert(e);
        }
        let wakes = std::mem::take(&mut self.kernel.merging.wakes);
        let Some(k) = &self.ksmd else { return };
        if k.naps && wakes.sleep || !k.naps && wakes.work {
            self.wake_at(k.task, when, By::Kernel);
        }
    }

    /// At a tick: what ksmd has displaced from a last-level cache since the last one, and
    /// somebody wants again, is read again by the tasks that run at this cache, each the
    /// same share, from their own node.
    ///
    /// Source: specs/ksm.md#cost.
    pub(crate) fn charge_displaced(&mut self) {
        let Some(k) = &mut self.ksmd else { return };
        let share = self.kernel.prices[Cost::KsmDisplaced];
        for (llc, lines) in std::mem::take(&mut k.read) {
            let programs = |cpu: &usize| {
                let id = self.cpus[*cpu].current();
                id.is_some_and(|id| self.tasks[id].space != usize::MAX)
            };
            let here = |cpu: &usize| self.cpus[*cpu].llc == llc;
            let running: Vec<usize> = self.cpus.busy().filter(programs).filter(here).collect();
            let each = lines * share / 1000 / running.len().max(1) as u64;
            for cpu in running {
                let node = self.cpus[cpu].node;
                let home = self.kernel.memory.nodes[node].zones.first().copied();
                let table = &self.latency[node];
                let nearest = (0..self.zones_used).map(|z| table[z * 2]).filter(|l| *l > 0).min();
                let line = home.map(|z| table[z * 2]).or(nearest).unwrap_or(0);
                self.kernel.loads.nodes[node].read += each * LINE;
                self.hold_up(cpu, each * line * 1000 / self.parallelism);
            }
        }
    }
}
