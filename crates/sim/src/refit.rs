//! Tasks that may run elsewhere than before: `sched_setaffinity`, another `cpuset.cpus`, CPUs that have gone.
//!
//! ```text
//!  what it may use ─changes─▶ refit ─▶ it sleeps: chosen when it wakes
//!                                   ├▶ it waits: it goes at once
//!                                   └▶ it runs: it goes when what it does is over
//! ```
//!
//! Source: specs/sched-groups.md#cpuset.

use crate::homing::HOME;
use crate::sched::CpuSet;
use crate::simulation::Simulation;
use crate::tasks::{On, Run, Why};
use homenode_core::costs::Cost;
use homenode_core::sched::fair::Dequeue;

impl Simulation {
    /// A task whose turn it is allows one, itself maybe, these CPUs and no others. Who sleeps stays
    /// where it is, who waits for its CPU is moved, who runs goes when its turn is over: its CPU's
    /// stopper moves it, and whoever asked waits for that, unless it was itself. Where none of
    /// them is there for it nothing changes, and the call fails.
    ///
    /// Source: specs/end-to-end.md#affinity.
    pub(crate) fn set_affinity(&mut self, by: usize, id: usize, places: &[usize]) {
        let asked = self.sched.q.set(places);
        let set = self.sched.q.allowed(asked, self.sched.q.tasks[id].terms.group);
        if self.sched.q.sets[set as usize].count == 0 {
            let words = &self.sched.q.sets[asked as usize].words;
            let (who, cpus) = (self.told(id), self.words_list(words));
            return self.say(format!(
                "{who}: sched_setaffinity: EINVAL: of CPUs {cpus} none is online and allowed"
            ));
        }
        if self.reallow(by, id, asked, set) && by != id {
            self.tasks[id].leaves_for = Some(by);
            self.block(by, On::Work);
            let now = self.now();
            self.cut(self.tasks[id].cpu, now);
        }
    }
    /// A task may use other CPUs from now on; whether it runs on one that it may not use, which it
    /// leaves when its turn is over.
    ///
    /// * `by` – who says so.
    /// * `asked`, `set` – what is asked for, and what of that is online and allowed.
    fn reallow(&mut self, by: usize, id: usize, asked: u32, set: u32) -> bool {
        let t = &mut self.sched.q.tasks[id];
        t.asked = asked;
        if std::mem::replace(&mut t.set, set) == set {
            return false;
        }
        let to = self.sched.q.distribute(self.tasks[by].cpu, set);
        self.flush_list_of(id);
        if !self.tasks[id].on_queue {
            return false;
        }
        let now = self.now();
        self.sched.at(now);
        self.sched.q.requeued(id);
        let cpu = self.tasks[id].cpu;
        if self.sched.q.may_run(id, cpu) {
            return false;
        }
        if self.cpus[cpu].current() != Some(id) {
            self.sched.q.take(id, Dequeue::Move);
            self.sched.q.arrive(id, to);
            self.note_cpu(id, to);
            self.grown(to, self.tasks[by].cpu);
            return false;
        }
        self.tasks[id].leaves_to = Some(to);
        true
    }
    /// Of the CPUs that a task may use, it may use those of a node only; the set that it asked for
    /// before. `None`: it may use none of them, and nothing changes. Whoever says so does not wait.
    pub(crate) fn confine(&mut self, by: usize, id: usize, place: usize) -> Option<u32> {
        let before = self.sched.q.tasks[id].asked;
        let set = self.sched.q.tasks[id].set;
        let places: Vec<usize> = (0..self.cpus.len())
            .filter(|&c| self.cpus[c].node == place && self.sched.q.may_run(id, c))
            .collect();
        if places.is_empty() {
            return None;
        }
        let asked = self.sched.q.set(&places);
        let narrowed = self.sched.q.allowed(asked, self.sched.q.tasks[id].terms.group);
        if self.sched.q.sets[narrowed as usize].count == 0 {
            return None;
        }
        if narrowed != set && self.reallow(by, id, asked, narrowed) {
            let now = self.now();
            self.cut(self.tasks[id].cpu, now);
        }
        Some(before)
    }
    /// A task may use again what it asked for before.
    pub(crate) fn unconfine(&mut self, by: usize, id: usize, asked: u32) {
        let set = self.sched.q.allowed(asked, self.sched.q.tasks[id].terms.group);
        if self.sched.q.sets[set as usize].count > 0 && self.reallow(by, id, asked, set) {
            let now = self.now();
            self.cut(self.tasks[id].cpu, now);
        }
    }
    /// The CPUs of the node of a CPU.
    fn near(&self, cpu: usize) -> CpuSet {
        let node = self.cpus[cpu].node;
        let count = self.cpus.len();
        CpuSet::of(count, (0..count).filter(|&c| self.cpus[c].node == node))
    }
    /// A CPU for a task that may not be where it is, or was last.
    pub(crate) fn refuge(&mut self, id: usize) -> usize {
        let from = self.sched.cpu_of(id);
        let near = self.near(from);
        let (to, broken) = self.sched.q.fallback(id, &near);
        if broken && self.tasks[id].space != usize::MAX {
            let pid = self.kernel.numa[id].pid;
            let (name, number) = (self.name_of(id), self.cpus[from].number);
            self.say(format!("process {pid} ({name}) no longer affine to cpu{number}"));
        }
        to
    }
    /// What a task may use has changed: it leaves a CPU that it may not use any more.
    pub(crate) fn refit(&mut self, id: usize) {
        self.sched.q.refit(id);
        self.waits_elsewhere(id);
        let cpu = self.sched.cpu_of(id);
        if self.tasks[id].run == Run::Ended || self.sched.q.may_run(id, cpu) {
            return;
        }
        self.flush_list_of(id);
        let now = self.now();
        self.sched.at(now);
        if self.cpus[cpu].current() == Some(id) {
            self.cut(cpu, now);
            self.settle(cpu);
            if self.cpus[cpu].current() != Some(id) {
                return;
            }
            let to = self.refuge(id);
            if self.tasks[id].clock > now || self.tasks[id].run != Run::Runnable {
                // It is in the middle of something.
                self.tasks[id].leaves_to = Some(to);
            } else {
                self.move_over(cpu, id, to);
            }
        } else if self.tasks[id].on_queue {
            let to = self.refuge(id);
            self.sched.q.take(id, Dequeue::Move);
            self.sched.q.arrive(id, to);
            self.note_cpu(id, to);
            self.grown(to, cpu);
        } else {
            // One that has not left its queue yet leaves it, and is chosen a CPU for when it wakes.
            self.sched.q.leave_delayed(id);
        }
    }
    /// A task calls exec: balancing chooses where it goes, as soon as this is done.
    ///
    /// Source: specs/workloads.md#exec.
    pub(crate) fn balance_exec(&mut self, id: usize) {
        let cpu = self.tasks[id].cpu;
        self.sched.at(self.now());
        let to = self.sched.place_exec(id, cpu);
        self.tasks[id].leaves_to = (to != cpu).then_some(to);
    }
    /// It is where balancing wants it, and its mappings go.
    pub(crate) fn exec(&mut self, id: usize) {
        let mut ctx = self.ctx(id);
        let clock = ctx.clock;
        let space = self.tasks[id].space;
        let done = self.kernel.exec_space(&mut ctx, space);
        self.modelled(done);
        self.kernel.numa_exec(id);
        self.tell_home(id);
        let exec = self.kernel.prices[Cost::Exec];
        self.charge(id, ctx.clock - clock + exec, Why::System);
    }
    /// A task that was to go elsewhere has come to a place where it can; false if it need not.
    pub(crate) fn go_over(&mut self, cpu: usize, id: usize, to: usize) -> bool {
        if to == HOME {
            return self.go_home(cpu, id);
        }
        let stays = self.sched.q.may_run(id, cpu) && !self.sched.q.may_run(id, to);
        if stays || to == cpu {
            return false;
        }
        let to = if self.sched.q.may_run(id, to) { to } else { self.refuge(id) };
        self.move_over(cpu, id, to);
        true
    }
}
