//! Tasks that are woken by list: their CPU is called, and puts them on its queue when it is there.
//!
//! ```text
//!  wake ─by list─▶ called ─▶ it is idle: it comes out of its state ─┐
//!                     │                                            ├─▶ arrive: its list is on its queue
//!                     └───▶ it is busy: an interrupt comes ─────────┘
//! ```
//!
//! Source: specs/wake.md#list.

use crate::sched::Waiting;
use crate::simulation::{Out, Simulation};
use crate::tasks::Kind;
use homenode_core::costs::Cost;

impl Simulation {
    /// A CPU is called by another, for the first task on its list. If it is idle it hears of that so much later.
    ///
    /// * `off` – when it has switched away from that task, if it is still at it: it takes no interrupt before.
    pub(crate) fn call(&mut self, cpu: usize, by: usize, late: u64, off: u64) {
        if self.called.out(cpu).is_some() {
            // It is on its way already.
            return;
        }
        let now = self.now();
        let (at, out) = match self.cpus[cpu].current() {
            None => self.call_out(cpu, by, now + late),
            Some(_) => ((now + self.price(cpu, Cost::Ipi)).max(off), None),
        };
        self.arrive_at(cpu, at, out);
    }
    /// A CPU takes its list at a time, which may be now; one that is idle is on its way to it until then.
    fn arrive_at(&mut self, cpu: usize, at: u64, out: Option<Out>) {
        let now = self.now();
        if at <= now {
            return self.arrive(cpu, out);
        }
        self.set_called(cpu, at, out);
        if out.is_some() {
            if let Some(watch) = &mut self.kernel.watch {
                watch.comes_out(cpu, true, now);
            }
            self.count_wasted();
        }
    }
    /// An idle CPU that is called at a time begins to leave its state.
    fn call_out(&mut self, cpu: usize, by: usize, from: u64) -> (u64, Option<Out>) {
        // What was done there last may last beyond that.
        let from = from.max(self.cpus[cpu].clock());
        let (rest, booked, switch) = self.idle_exit(cpu, by, from);
        let at = from + rest;
        if self.sched.idle.is_modelled() {
            self.sched.idle.comes_out(cpu, at);
        }
        (at, Some(Out { at, booked, switch }))
    }
    /// A CPU that has been called is there.
    pub(crate) fn come(&mut self, cpu: usize) {
        let out = self.called.take_out(cpu);
        if out.is_some() || self.cpus[cpu].current().is_some() {
            return self.arrive(cpu, out);
        }
        // It has become idle since: the interrupt itself wakes it.
        let (at, out) = self.call_out(cpu, cpu, self.now());
        self.arrive_at(cpu, at, out);
    }
    /// A CPU takes its list, and whoever is on its queue then may run.
    fn arrive(&mut self, cpu: usize, out: Option<Out>) {
        match out {
            Some(out) => {
                let taken = self.put_on_queue(cpu);
                // Where no states are modelled it is part of what the wake-up takes in all.
                let modelled = self.sched.idle.is_modelled();
                let each = if modelled { self.price(cpu, Cost::WakeUp) } else { 0 };
                self.come_out(cpu, Out { switch: out.switch + taken * each, ..out });
            }
            // Somebody has made it take its list before.
            None if self.sched.q.lists.of(cpu).is_empty() => {}
            None => {
                let now = self.now();
                self.cut(cpu, now);
                self.settle(cpu);
                let taken = self.put_on_queue(cpu);
                self.sched.q.newly_marked = false;
                let owed = self.sched.q.counters.owed();
                let pays = |&id: &usize| self.tasks[id].kind != Kind::Replayed;
                if self.cpus[cpu].current().filter(pays).is_some() {
                    let takes = self.price(cpu, Cost::Ipi) + taken * self.price(cpu, Cost::WakeUp);
                    self.hold_up(cpu, takes + owed);
                }
            }
        }
    }
    /// The tasks on a CPU's list are on its queue from now on: how many they are.
    fn put_on_queue(&mut self, cpu: usize) -> u64 {
        let now = self.now();
        self.sched.at(now);
        let list = self.sched.take_list(cpu);
        for &id in &list {
            let id = id as usize;
            let iowait = self.sched.q.tasks[id].waiting == Waiting::Block { iowait: true };
            // Who enqueues on its own queue is heard.
            self.ask_for_boost(cpu, iowait);
            let task = &mut self.tasks[id];
            (task.on_queue, task.clock) = (true, task.clock.max(now));
            self.waits(id, true);
        }
        let taken = list.len() as u64;
        self.sched.q.lists.give_back(cpu, list);
        taken
    }
    /// A task is to be on a queue, because somebody wants to change where it may run, or its end has come: a CPU
    /// on whose list it is takes that at once.
    pub(crate) fn flush_list_of(&mut self, id: usize) {
        if self.sched.q.tasks[id].listed {
            let cpu = self.sched.cpu_of(id);
            self.put_on_queue(cpu);
            self.grown(cpu, cpu);
        }
    }
}
