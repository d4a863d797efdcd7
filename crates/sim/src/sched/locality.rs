//! What balancing is told of tasks and their memory: each CPU counts its tasks that have a preferred node, and
//! those that are there; and whether a task comes nearer to its memory by a move.
//!
//! Source: specs/sched-balance.md#hot, specs/sched-balance.md#busiest-queue.

use super::homes::Home;
use super::queues::Queues;
use homenode_core::numa::faults::{GroupFaults, TaskFaults};
use homenode_core::sched::balance::pull::{NumaFacts, locality};
use homenode_core::sched::balance::{Figures, Locality};
use homenode_core::sched::domain::Domains;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;

impl Queues {
    /// A task has been placed, has joined a group or left one.
    ///
    /// * `groups` – all groups, `group` – the one that it is in, if any.
    pub(crate) fn set_home(
        &mut self,
        task: usize,
        faults: &TaskFaults,
        groups: &BTreeMap<u32, GroupFaults>,
        group: Option<u32>,
    ) {
        let homes = &mut self.homes;
        if homes.tasks.len() <= task {
            homes.tasks.resize_with(task + 1, Home::default);
        }
        let home = &mut homes.tasks[task];
        home.faults.clone_from(faults);
        let before = std::mem::replace(&mut home.group, group);
        if let Some(left) = before.filter(|_| before != group) {
            homes.set_group(left, groups.get(&left));
        }
        if let Some(id) = group {
            homes.set_group(id, groups.get(&id));
        }
        self.count_home(task);
    }
    /// A task has ended.
    pub(crate) fn end_home(&mut self, task: usize, groups: &BTreeMap<u32, GroupFaults>) {
        let Some(home) = self.homes.tasks.get_mut(task) else { return };
        let group = std::mem::take(home).group;
        if let Some(id) = group {
            self.homes.set_group(id, groups.get(&id));
        }
    }
    /// Its CPU counts a task that has come onto its queue, or left it, or prefers another node.
    #[inline]
    pub(crate) fn count_home(&mut self, task: usize) {
        if task < self.homes.tasks.len() {
            self.recount_home(task);
        }
    }
    #[inline(never)]
    fn recount_home(&mut self, task: usize) {
        let home = &self.homes.tasks[task];
        let cpu = self.fair.cpu_of(task as u32);
        let preferred = home.faults.preferred.filter(|_| self.fair.is_queued(task as u32));
        let counts = preferred.map(|node| (cpu, self.homes.of_cpu[cpu] == node));
        let before = std::mem::replace(&mut self.homes.tasks[task].counted, counts);
        if before == counts {
            return;
        }
        if let Some((cpu, at_home)) = before {
            let f = self.changing(cpu);
            f.nr_numa -= 1;
            f.nr_preferred -= u32::from(at_home);
        }
        if let Some((cpu, at_home)) = counts {
            let f = self.changing(cpu);
            f.nr_numa += 1;
            f.nr_preferred += u32::from(at_home);
        }
    }
    fn changing(&mut self, cpu: usize) -> &mut Figures {
        self.blocks.change(cpu);
        &mut self.figures[cpu]
    }
    /// The node that a task prefers, as balancing knows it.
    pub(crate) fn preferred(&self, task: usize) -> Option<NodeId> {
        self.homes.tasks.get(task)?.faults.preferred
    }
    /// The same, by place.
    pub(crate) fn preferred_place(&self, task: usize) -> Option<u16> {
        self.preferred(task).map(|node| self.homes.place(node))
    }
    /// What memory says of a task's move between CPUs of a level that spans nodes.
    ///
    /// * `idle` – the CPU that pulls was idle before.
    pub(super) fn locality(
        &self,
        d: &Domains,
        task: u32,
        from: usize,
        to: usize,
        idle: bool,
    ) -> Locality {
        let homes = &self.homes;
        let Some(home) = homes.tasks.get(task as usize).filter(|h| !h.faults.nodes.is_empty())
        else {
            return Locality::Any;
        };
        if !homes.on {
            return Locality::Any;
        }
        let (src, dst) = (homes.of_cpu[from], homes.of_cpu[to]);
        let limit = homes.distances.between(src, dst);
        let weight = |node| match home.group {
            Some(id) => homes.distances.group_weight(homes.groups.get(&id), node, limit) as u64,
            None => homes.distances.task_weight(&home.faults, node, limit) as u64,
        };
        let f = &self.figures[from];
        let facts = NumaFacts {
            src: d.node(from),
            dst: d.node(to),
            preferred: home.faults.preferred.map(|n| homes.place(n)),
            others_away: f.nr_running > f.nr_preferred,
            weights: (weight(src), weight(dst)),
        };
        locality(&facts, idle)
    }
}
