//! Machines as a test describes them, and what their CPUs do: sets and plain lists.

use super::random::Random;
use crate::{Cpus, DomainId, Flags, Layout, Rules, SharedId, Task, Version};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Set = BTreeSet<u32>;

/// A domain of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) span: Set,
    pub(super) flags: Flags,
    pub(super) pct: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) core: Vec<Set>,
    pub(super) node: Vec<u16>,
    /// From the smallest domain on.
    pub(super) levels: Vec<Vec<Level>>,
}

/// How a machine is put together; CPUs are numbered thread by thread, or core by core.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) smt: u32,
    pub(super) cores_per_cluster: u32,
    pub(super) clusters_per_llc: u32,
    pub(super) llcs_per_node: u32,
    pub(super) nodes: u32,
    /// Cores that aren't there at the end.
    pub(super) missing: u32,
    /// All first threads have the lowest numbers.
    pub(super) threads_last: bool,
    pub(super) clusters: bool,
    /// Tasks may be drawn across nodes.
    pub(super) near: bool,
    /// The top level balances at wake-ups.
    pub(super) balance_wake: bool,
    /// Capacity per core, cyclic.
    pub(super) capacities: Vec<u32>,
}

impl Plan {
    pub(super) fn llc(cores: u32, smt: u32) -> Self {
        Self {
            smt,
            cores_per_cluster: cores,
            clusters_per_llc: 1,
            llcs_per_node: 1,
            nodes: 1,
            missing: 0,
            threads_last: true,
            clusters: false,
            near: true,
            balance_wake: false,
            capacities: vec![1024],
        }
    }

    pub(super) fn random(r: &mut Random, cpus_max: u32) -> Self {
        loop {
            let uneven = r.one_in(4);
            let plan = Self {
                smt: *r.of(&[1, 1, 2, 2, 4]),
                cores_per_cluster: r.below(5) + 1,
                clusters_per_llc: r.below(5) + 1,
                llcs_per_node: r.below(4) + 1,
                nodes: r.below(3) + 1,
                missing: if r.one_in(3) { r.below(3) } else { 0 },
                threads_last: r.one_in(2),
                clusters: r.one_in(3),
                near: !r.one_in(4),
                balance_wake: r.one_in(16),
                capacities: if uneven { vec![1024, 446, 700] } else { vec![1024] },
            };
            let cores = plan.cores();
            if cores > plan.missing && cores * plan.smt <= cpus_max {
                return plan;
            }
        }
    }

    fn cores(&self) -> u32 {
        self.cores_per_cluster * self.clusters_per_llc * self.llcs_per_node * self.nodes
    }

    /// The machine and its CPUs' capacities.
    pub(super) fn build(&self) -> (Machine, Vec<u32>) {
        let cores = self.cores() - self.missing;
        let n = cores * self.smt;
        let core_of = |cpu: u32| if self.threads_last { cpu % cores } else { cpu / self.smt };
        let per_llc = self.cores_per_cluster * self.clusters_per_llc;
        let per_node = per_llc * self.llcs_per_node;
        let same = |cpu: u32, size: u32| -> Set {
            (0..n).filter(|other| core_of(*other) / size == core_of(cpu) / size).collect()
        };
        let capacity: Vec<u32> = (0..n)
            .map(|cpu| self.capacities[core_of(cpu) as usize % self.capacities.len()])
            .collect();
        let kinds: BTreeSet<u32> = capacity.iter().copied().collect();
        let mut machine = Machine { core: Vec::new(), node: Vec::new(), levels: Vec::new() };
        for cpu in 0..n {
            let (affine, llc) = (Flags::WAKE_AFFINE, Flags::SHARE_LLC);
            let mut stack = vec![
                (same(cpu, 1), affine | llc | Flags::SHARE_CPUCAPACITY, 110),
                (same(cpu, per_llc), affine | llc, 117),
                (same(cpu, per_node), affine, 117),
                ((0..n).collect(), Flags::NUMA | if self.near { affine } else { Flags::NONE }, 117),
            ];
            if self.clusters {
                let cluster = same(cpu, self.cores_per_cluster);
                stack.insert(1, (cluster, affine | llc | Flags::CLUSTER, 117));
            }
            let mut levels: Vec<Level> = Vec::new();
            for (span, flags, pct) in stack {
                let equal = levels.last().is_some_and(|below| below.span == span);
                if span.len() > 1 && !equal {
                    levels.push(Level { span, flags, pct });
                }
            }
            for level in &mut levels {
                let here: BTreeSet<u32> =
                    level.span.iter().map(|c| capacity[*c as usize]).collect();
                if kinds.len() > 1 && here == kinds {
                    level.flags = level.flags | Flags::ASYM_CPUCAPACITY_FULL;
                }
            }
            if let Some(top) = levels.last_mut().filter(|_| self.balance_wake) {
                top.flags = top.flags | Flags::BALANCE_WAKE;
            }
            machine.core.push(same(cpu, 1));
            machine.node.push((core_of(cpu) / per_node) as u16);
            machine.levels.push(levels);
        }
        (machine, capacity)
    }
}

pub(super) fn words(set: &Set, nr_words: usize) -> Vec<u64> {
    let mut words = vec![0; nr_words];
    for cpu in set {
        words[*cpu as usize / 64] |= 1_u64 << (cpu % 64);
    }
    words
}

impl Machine {
    pub(super) fn nr_cpus(&self) -> u32 {
        self.levels.len() as u32
    }

    pub(super) fn all(&self) -> Set {
        (0..self.nr_cpus()).collect()
    }

    /// As the face wants it.
    pub(super) fn layout(&self) -> Layout {
        let n = self.levels.len();
        let mut builder = Layout::builder(n);
        for (cpu, levels) in self.levels.iter().enumerate() {
            let ids: Vec<DomainId> = levels
                .iter()
                .map(|l| builder.domain(&words(&l.span, n.div_ceil(64)), l.flags, l.pct).unwrap())
                .collect();
            let core: Vec<u32> = self.core[cpu].iter().copied().collect();
            builder.cpu(cpu as u32, &core, self.node[cpu], &ids).unwrap();
        }
        builder.build().unwrap()
    }

    /// The highest domain with a shared cache.
    pub(super) fn llc(&self, cpu: u32) -> Option<&Level> {
        let levels = &self.levels[cpu as usize];
        levels.iter().rev().find(|l| l.flags.contains(Flags::SHARE_LLC))
    }

    /// The lowest one with all capacities.
    pub(super) fn asym(&self, cpu: u32) -> Option<&Level> {
        let levels = &self.levels[cpu as usize];
        levels.iter().find(|l| l.flags.contains(Flags::ASYM_CPUCAPACITY_FULL))
    }
}

/// What the CPUs do: told to the face and to the model alike.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) machine: Machine,
    pub(super) rules: Rules,
    pub(super) idle: Set,
    pub(super) sched_idle: Set,
    pub(super) active: Set,
    pub(super) nr_running: Vec<u32>,
    pub(super) nr_delayed: Vec<u32>,
    pub(super) load: Vec<u64>,
    pub(super) capacity: Vec<u32>,
    pub(super) capacity_orig: Vec<u32>,
    pub(super) avg_idle: Vec<u64>,
    pub(super) scan_cost: Vec<u64>,
    /// By the lowest CPU and the size of the domain.
    pub(super) nr_idle_scan: BTreeMap<(u32, usize), u32>,
    pub(super) has_idle_core: BTreeSet<(u32, usize)>,
}

/// What a shared thing is called in [`State`].
pub(super) fn name(level: &Level) -> (u32, usize) {
    (*level.span.first().unwrap(), level.span.len())
}

impl State {
    pub(super) fn new(machine: Machine, capacity: Vec<u32>, rules: Rules) -> Self {
        let n = machine.levels.len();
        Self {
            idle: machine.all(),
            active: machine.all(),
            machine,
            rules,
            sched_idle: Set::new(),
            nr_running: vec![0; n],
            nr_delayed: vec![0; n],
            load: vec![0; n],
            capacity_orig: capacity.clone(),
            capacity,
            avg_idle: vec![1_000_000; n],
            scan_cost: vec![0; n],
            nr_idle_scan: BTreeMap::new(),
            has_idle_core: BTreeSet::new(),
        }
    }

    /// The face, told all of it.
    pub(super) fn face(&self) -> Cpus {
        let mut cpus = Cpus::new(self.machine.layout(), self.rules);
        for cpu in 0..self.machine.nr_cpus() {
            self.tell(cpu, &mut cpus);
        }
        for cpu in 0..self.machine.nr_cpus() {
            for (level, id) in self.shared(cpu, &cpus) {
                cpus.set_nr_idle_scan(id, *self.nr_idle_scan.get(&name(level)).unwrap_or(&0));
            }
        }
        cpus
    }

    /// What a CPU shares, in both languages.
    pub(super) fn shared(&self, cpu: u32, cpus: &Cpus) -> Vec<(&Level, SharedId)> {
        let llc = self.machine.llc(cpu).zip(cpus.layout().llc(cpu));
        let asym = self.machine.asym(cpu).zip(cpus.layout().asym(cpu));
        llc.into_iter().chain(asym).collect()
    }

    pub(super) fn tell(&self, cpu: u32, cpus: &mut Cpus) {
        let at = cpu as usize;
        cpus.set_idle(cpu, self.idle.contains(&cpu));
        cpus.set_sched_idle(cpu, self.sched_idle.contains(&cpu));
        cpus.set_active(cpu, self.active.contains(&cpu));
        cpus.set_running(cpu, self.nr_running[at], self.nr_delayed[at]);
        cpus.set_load(cpu, self.load[at]);
        cpus.set_capacity(cpu, self.capacity[at]);
        cpus.set_capacity_orig(cpu, self.capacity_orig[at]);
        cpus.set_avg_idle(cpu, self.avg_idle[at]);
    }

    /// A CPU begins to do something else.
    pub(super) fn shuffle(&mut self, cpu: u32, busy_bp: u32, r: &mut Random, cpus: &mut Cpus) {
        let at = cpu as usize;
        self.idle.remove(&cpu);
        self.sched_idle.remove(&cpu);
        (self.nr_running[at], self.nr_delayed[at]) = (0, 0);
        if r.below(100) >= busy_bp {
            self.idle.insert(cpu);
        } else {
            self.nr_running[at] = 1 + r.below(3);
            self.nr_delayed[at] = r.below(self.nr_running[at]);
            if r.one_in(10) {
                self.sched_idle.insert(cpu);
            }
        }
        self.load[at] = if r.one_in(3) { 0 } else { u64::from(r.below(3000)) };
        self.avg_idle[at] = u64::from(r.below(*r.clone().of(&[2000, 1_000_000])));
        self.tell(cpu, cpus);
        if self.idle.contains(&cpu) && r.one_in(2) {
            super::model::enter_idle(self, cpu);
            cpus.enter_idle(cpu);
        }
    }
}

pub(super) const VERSIONS: [Version; 5] =
    [Version::V4_5, Version::V4_15, Version::V4_16, Version::V6_12, Version::V7_3];

/// Tasks that were just born, on CPU 0.
pub(super) fn tasks(n: usize) -> Vec<Task> {
    vec![Task::born(0, 0); n]
}
