//! Scheduler statistics: `/proc/schedstat`, `/proc/PID/schedstat`, `/proc/PID/sched`.
//!
//! Source: specs/schedstats.md.

use super::process::Id;
use crate::kernel::TICK;
use crate::simulation::Simulation;
use homenode_core::numa::faults::{NodeFaults, PRIVATE, SHARED};
use homenode_core::scenario::SchedPolicy;
use homenode_core::sched::stats::{
    INITIAL_JIFFIES, NumaFaultsShown, NumaShown, Schedstat, SchedstatCpu, SchedstatDomain,
    TaskLine, TaskSched, TaskSchedstat, Version,
};
use homenode_core::sched::weight;

/// The priority of nice 0.
const DEFAULT_PRIO: i64 = 120;

impl Simulation {
    fn schedstat_version(&self) -> Version {
        Version::of(self.kernel.knobs.version)
    }
    /// What the kernel has counted of CPUs and domains.
    pub fn schedstat(&self) -> Schedstat {
        let version = self.schedstat_version();
        let domains = &self.sched.domains;
        let counters = &self.sched.q.counters;
        let highest = self.machine.cpus.last().map_or(0, |c| c.id.0);
        // Places have no gaps, numbers of CPUs may.
        let words = highest as usize / 64 + 1;
        let number = |place: usize| self.cpus[place].number.0;
        let span = |cpu: usize, level: usize| {
            let mut mask = vec![0u64; words];
            for place in domains.span(domains.at(cpu, level)).iter() {
                let number = number(place) as usize;
                mask[number / 64] |= 1 << (number % 64);
            }
            mask
        };
        let domain = |cpu: usize, level: usize| SchedstatDomain {
            name: match version {
                Version::V17 => domains.at(cpu, level).kind.name().to_owned(),
                Version::V15 | Version::V16 => String::new(),
            },
            span: span(cpu, level),
            stats: counters.domains[domains.slot(cpu, level)],
        };
        let cpu = |place: usize| SchedstatCpu {
            cpu: number(place),
            stats: counters.cpus[place],
            domains: (0..domains.levels(place)).map(|level| domain(place, level)).collect(),
        };
        let online = (0..self.cpus.len()).filter(|&place| self.sched.q.is_online(place));
        let cpus: Vec<SchedstatCpu> = online.map(cpu).collect();
        let has_domains = cpus.iter().any(|c| !c.domains.is_empty());
        Schedstat {
            version,
            timestamp: INITIAL_JIFFIES + self.now() / TICK,
            mask_bits: if has_domains { (highest + 1).next_multiple_of(4) } else { 0 },
            cpus,
        }
    }
    /// The first task behind a file of a process.
    fn task_behind(&self, id: Id) -> Option<usize> {
        match id {
            Id::Kswapd(node) => Some(node),
            Id::Helper(number) => Some(number),
            Id::Space(space) => self.tasks.iter().position(|t| t.space == space),
        }
    }
    pub(super) fn task_schedstat_text(&self, id: Id) -> String {
        self.task_behind(id).map_or_else(String::new, |task| {
            let info = self.sched.q.counters.info(task);
            let run_ns = self.sched.q.fair.sum_exec_runtime(task as u32);
            TaskSchedstat { run_ns, wait_ns: info.run_delay, slices: info.pcount }.to_text()
        })
    }
    /// What the kernel has counted of the first task of a process.
    ///
    /// # Errors
    /// In words: there is no process of that name, it has not started yet, or it has ended.
    pub fn task_sched_of(&self, name: &str) -> Result<TaskSched, String> {
        if !self.names.iter().any(|n| n == name) {
            return Err(format!("there is no such process; there are {}", self.names.join(", ")));
        }
        let Some(pid) = self.pid_of(name) else {
            return Err("it has not started by the end of the run".to_owned());
        };
        let found = self.pids().get(&pid).and_then(|id| self.task_sched(*id));
        found.ok_or_else(|| {
            "it has ended, and its files with it; a scenario with a duration stops before"
                .to_owned()
        })
    }
    pub(super) fn task_sched(&self, id: Id) -> Option<TaskSched> {
        let task = self.task_behind(id)?;
        let (version, number) = (self.schedstat_version(), task as u32);
        let (fair, of) = (&self.sched.q.fair, &self.sched.q.tasks[task]);
        let threads = match id {
            Id::Space(space) => self.tasks.living_in(space).len() as u32,
            Id::Kswapd(_) | Id::Helper(_) => 1,
        };
        let pid = self.kernel.numa[task].pid;
        let mut shown = TaskSched::new(&self.comm(id, task), pid, threads);
        let mut set = |line: TaskLine, value: u64| {
            if line.printed(version) {
                shown.set(line, value as i64);
            }
        };
        let figures = &of.figures;
        let avg = fair.task_avg(number);
        set(TaskLine::ExecStart, fair.exec_start(number));
        set(TaskLine::Vruntime, fair.virtual_times(number).0 as u64);
        set(TaskLine::SumExecRuntime, fair.sum_exec_runtime(number));
        set(TaskLine::NrMigrations, figures.migrations);
        set(TaskLine::NrSwitches, figures.voluntary + figures.involuntary);
        set(TaskLine::NrVoluntarySwitches, figures.voluntary);
        set(TaskLine::NrInvoluntarySwitches, figures.involuntary);
        set(TaskLine::LoadWeight, u64::from(fair.task_weight(number)) * u64::from(weight::SCALE));
        set(TaskLine::LoadSum, avg.load_sum);
        set(TaskLine::RunnableSum, avg.runnable_sum);
        set(TaskLine::UtilSum, avg.util_sum);
        set(TaskLine::LoadAvg, avg.load_avg);
        set(TaskLine::RunnableAvg, avg.runnable_avg.into());
        set(TaskLine::UtilAvg, avg.util_avg.into());
        set(TaskLine::LastUpdateTime, avg.last_update_time);
        set(TaskLine::UtilEstEwma, avg.util_est.into());
        set(TaskLine::UtilEstEnqueued, avg.util_est.into());
        set(TaskLine::UtilEst, avg.util_est.into());
        set(TaskLine::UclampMin, 0);
        set(TaskLine::UclampMax, 1024);
        set(TaskLine::EffectiveUclampMin, 0);
        set(TaskLine::EffectiveUclampMax, 1024);
        let policy = match of.terms.policy {
            SchedPolicy::Normal => 0,
            SchedPolicy::Batch => 3,
            SchedPolicy::Idle => 5,
        };
        set(TaskLine::Policy, policy);
        set(TaskLine::Prio, (DEFAULT_PRIO + i64::from(fair.nice(number))) as u64);
        set(TaskLine::Slice, self.sched.base_slice_ns().into());
        set(TaskLine::ExtEnabled, 0);
        set(TaskLine::ClockDelta, 0);
        if self.sched.q.counters.switch.on() {
            shown.set_stats(version, &self.sched.q.counters.tasks[task]);
        }
        self.show_numa(task, &mut shown);
        Some(shown)
    }
    /// What memory balancing knows of a task.
    fn show_numa(&self, task: usize, shown: &mut TaskSched) {
        let numa = &self.kernel.numa[task];
        if let Some(space) = self.kernel.spaces.get(numa.space).and_then(Option::as_ref) {
            shown.set(TaskLine::NumaScanSeq, space.scan.seq.into());
        }
        let preferred = numa.faults.preferred.map_or(-1, |node| i64::from(node.0));
        shown.set(TaskLine::NumaPagesMigrated, numa.faults.nr_migrated as i64);
        shown.set(TaskLine::NumaPreferredNid, preferred);
        shown.set(TaskLine::TotalNumaFaults, numa.faults.total as i64);
        let group = numa.group.and_then(|g| self.kernel.groups.get(&g));
        let on = |nodes: Option<&Vec<NodeFaults>>, node: u16| {
            nodes.and_then(|n| n.get(usize::from(node))).map_or([0, 0], |n| n.mem)
        };
        let faults = self.machine.nodes.iter().map(|node| {
            let task = on(Some(&numa.faults.nodes), node.id.0);
            let group = on(group.map(|g| &g.nodes), node.id.0);
            NumaFaultsShown {
                node: node.id.0.into(),
                task_private: task[PRIVATE],
                task_shared: task[SHARED],
                group_private: group[PRIVATE],
                group_shared: group[SHARED],
            }
        });
        shown.numa = Some(NumaShown {
            current_node: self.kernel.memory.node_id(numa.node).0.into(),
            numa_group_id: group.map_or(0, |g| g.id as i32),
            faults: faults.collect(),
        });
    }
    /// What was counted of a task that has ended: what the scheduler counts itself and what
    /// the switch has. Where it is on queues nobody knows any more.
    pub(crate) fn sched_of_ended(&self, task: usize) -> TaskSched {
        let version = self.schedstat_version();
        let pid = self.kernel.numa[task].pid;
        let mut shown = TaskSched::new(&self.comm(Id::Space(self.tasks[task].space), task), pid, 1);
        let figures = &self.sched.q.tasks[task].figures;
        shown.set(TaskLine::NrMigrations, figures.migrations as i64);
        shown.set(TaskLine::NrSwitches, (figures.voluntary + figures.involuntary) as i64);
        shown.set(TaskLine::NrVoluntarySwitches, figures.voluntary as i64);
        shown.set(TaskLine::NrInvoluntarySwitches, figures.involuntary as i64);
        if self.sched.q.counters.switch.on() {
            shown.set_stats(version, &self.sched.q.counters.tasks[task]);
        }
        shown
    }
    /// A write to `/proc/PID/sched`.
    pub(super) fn clear_task_sched(&mut self, id: Id) {
        if let Some(task) = self.task_behind(id) {
            self.sched.q.counters.tasks[task].reset();
        }
    }
}
