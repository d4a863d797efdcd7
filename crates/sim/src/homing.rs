//! Tasks that follow their memory: a hint fault has placed a task that runs away from its preferred node, and
//! its CPU's stopper takes it there, or two stoppers exchange two tasks.
//!
//! ```text
//!  hint fault ─places─▶ heed_placed ─▶ the fault is over ─▶ go_home ─▶ core: which CPU, which partner
//!                                                            ├▶ stays      │
//!                                                            ├▶ move ◀─────┤
//!                                                            └▶ swap ◀─────┘
//! ```
//!
//! Source: specs/numa.md#homing.

use crate::simulation::Simulation;
use crate::tasks::Run;
use homenode_core::costs::Cost;
use homenode_core::numa::homing::{CpuFigures, Homing, Mover, Partner, Seen, Way, choose};
use homenode_core::units::NodeId;

/// Where a task goes that is to go wherever its memory is, as it turns out then.
pub(crate) const HOME: usize = usize::MAX;

/// The machine as the choice looks at it, for one task.
struct View<'a> {
    sim: &'a Simulation,
    task: usize,
    cpu: usize,
    /// CPUs that are online, by number of a node.
    nodes: Vec<Vec<u16>>,
    /// By CPU: the share of its task in its load.
    h_loads: Vec<u64>,
}

impl Seen for View<'_> {
    fn cpus(&self, node: NodeId) -> &[u16] {
        self.nodes.get(node.index()).map_or(&[], Vec::as_slice)
    }
    fn figures(&self, cpu: u16) -> CpuFigures {
        let (cpu, fair) = (usize::from(cpu), &self.sim.sched.q.fair);
        CpuFigures {
            load: fair.wake_load(cpu),
            runnable: fair.runnable_avg(cpu),
            util: fair.cpu_util(cpu),
            nr_queued: fair.nr_running(cpu),
            nr_delayed: fair.h_nr_delayed(cpu),
            capacity: self.sim.sched.balance.cpus[cpu].capacity,
        }
    }
    fn is_idle(&self, cpu: u16) -> bool {
        self.sim.sched.q.is_idle(usize::from(cpu))
    }
    fn is_core_idle(&self, cpu: u16) -> bool {
        let domains = &self.sim.sched.domains;
        domains.smt_active()
            && domains.siblings(usize::from(cpu)).iter().all(|&sibling| self.is_idle(sibling))
    }
    fn is_claimed(&self, _cpu: u16) -> bool {
        // Choice and move are one moment.
        false
    }
    fn may_run(&self, cpu: u16) -> bool {
        self.sim.sched.q.may_run(self.task, usize::from(cpu))
    }
    fn current(&self, cpu: u16) -> Option<Partner<'_>> {
        let (cpu, sim) = (usize::from(cpu), self.sim);
        let task = sim.cpus[cpu].current().filter(|&t| sim.tasks[t].run != Run::Ended)?;
        let numa = &sim.kernel.numa[task];
        Some(Partner {
            task: task as u32,
            may_come: sim.sched.q.may_run(task, self.cpu),
            of_program: sim.tasks[task].space != usize::MAX,
            faults: &numa.faults,
            group: numa.group.and_then(|g| sim.kernel.groups.get(&g)),
            h_load: self.h_loads[cpu],
        })
    }
    fn idle_near(&self, cpu: u16) -> u16 {
        let domains = &self.sim.sched.domains;
        if self.is_idle(cpu) {
            return cpu;
        }
        let Some(llc) = domains.llc(usize::from(cpu)) else { return cpu };
        let mut near = domains.llc_span(llc).iter().map(|c| c as u16);
        near.find(|&c| self.is_idle(c) && self.may_run(c)).unwrap_or(cpu)
    }
}

impl Simulation {
    /// Tasks were placed by their faults: the scheduler hears of it, and who is away from home looks for a place
    /// there as soon as the fault is over.
    #[cold]
    pub(crate) fn heed_placed(&mut self) {
        while let Some(id) = self.kernel.regrouped.pop() {
            self.tell_home(id);
        }
        while let Some(id) = self.kernel.placed.pop() {
            self.tell_home(id);
            if !self.is_away(id) || self.tasks[id].leaves_to.is_some() {
                continue;
            }
            if self.is_bound(id) {
                // There is nowhere to go. A group's task takes its own node for its home then.
                self.choose_home(id);
            } else {
                self.tasks[id].leaves_to = Some(HOME);
            }
        }
    }
    fn is_away(&self, id: usize) -> bool {
        self.kernel.tasks_follow() && self.kernel.numa[id].is_away(&self.kernel.memory)
    }
    /// It may run on one CPU only.
    fn is_bound(&self, id: usize) -> bool {
        let q = &self.sched.q;
        q.sets[q.tasks[id].set as usize].count <= 1
    }
    /// The scheduler knows where a task is at home.
    pub(crate) fn tell_home(&mut self, id: usize) {
        if self.kernel.tasks_follow() && !self.kernel.numa[id].faults.nodes.is_empty() {
            let n = &self.kernel.numa[id];
            self.sched.q.set_home(id, &n.faults, &self.kernel.groups, n.group);
        }
    }
    /// Where a task is to go that runs away from its preferred node.
    fn choose_home(&mut self, id: usize) -> Homing {
        let now = self.now();
        self.sched.at(now);
        let (cpu, jiffies) = (self.tasks[id].cpu, self.sched.q.jiffies());
        let mut nodes: Vec<Vec<u16>> = Vec::new();
        let mut h_loads = vec![0; self.cpus.len()];
        let looks = if self.is_bound(id) { 0 } else { self.cpus.len() };
        for (place, h_load) in h_loads.iter_mut().enumerate().take(looks) {
            if !self.sched.q.is_online(place) {
                continue;
            }
            let node = self.sched.q.homes.node_of(place).index();
            nodes.resize_with(nodes.len().max(node + 1), Vec::new);
            nodes[node].push(place as u16);
            if let Some(task) = self.cpus[place].current() {
                *h_load = self.sched.q.fair.task_h_load(task as u32, jiffies);
            }
        }
        let domains = &self.sched.domains;
        let level = domains.numa_level(cpu).map(|l| domains.at(cpu, l));
        let n = &self.kernel.numa[id];
        let mover = Mover {
            task: id as u32,
            cpu: cpu as u16,
            node: self.sched.q.homes.node_of(cpu),
            faults: &n.faults,
            group: n.group.and_then(|g| self.kernel.groups.get(&g)),
            h_load: h_loads.get(cpu).copied().unwrap_or(0),
            level: level.map(|d| (d.imbalance_pct, d.imb_numa_nr)),
        };
        let view = View { sim: self, task: id, cpu, nodes, h_loads };
        let version = self.kernel.knobs.version;
        let found = choose(&self.sched.q.homes.distances, &view, &mover, version);
        self.kernel.numa_chosen(id, &found);
        self.tell_home(id);
        found
    }
    /// A task's fault is over that found it away from home; false if it stays where it is.
    pub(crate) fn go_home(&mut self, cpu: usize, id: usize) -> bool {
        if !self.is_away(id) {
            return false;
        }
        match self.choose_home(id).way {
            Way::Stay => {
                self.kernel.homing.stays += 1;
                return false;
            }
            Way::Move { cpu: to } => {
                self.kernel.homing.moves += 1;
                let took = self.kernel.prices[Cost::BalanceTask];
                self.carry_over(cpu, id, to.into(), took);
            }
            Way::Swap { cpu: to, with } => {
                self.kernel.homing.swaps += 1;
                self.swap(cpu, id, to.into(), with as usize);
            }
        }
        true
    }
    /// Two tasks that run change places. Who is in the middle of something follows when that is over.
    fn swap(&mut self, cpu: usize, id: usize, to: usize, other: usize) {
        let now = self.now();
        self.cut(to, now);
        self.settle(to);
        let took = self.kernel.prices[Cost::BalanceTask];
        let busy = self.tasks[other].clock > now || self.tasks[other].run != Run::Runnable;
        if busy || self.cpus[to].current() != Some(other) {
            let partner = &mut self.tasks[other];
            let free = partner.leaves_to.is_none_or(|to| to == HOME);
            if partner.run == Run::Runnable && free {
                partner.leaves_to = Some(cpu);
            }
            return self.carry_over(cpu, id, to, took);
        }
        self.catch_up(other);
        self.exchange((cpu, id), (to, other), took);
    }
}
