//! The scheduler of the simulated kernel: what happens to run queues when a task wakes, waits,
//! is born, when a CPU has a tick or nothing to do.
//!
//! ```text
//!  executive ──wake, stop, pick, tick──▶ Scheduler ──asks──▶ homenode_wake: which CPU
//!      ▲                                   │  ├──────────▶ core: fair class, domains, balancing
//!      └──── who runs, who was moved ──────┘  └──────────▶ counters
//! ```
//!
//! It knows tasks and CPUs by number, and neither what a task runs nor whose turn it is. Time is
//! that of the rules: nanoseconds, from [`BOOT`] on.
//!
//! Source: docs/decisions/0016-cpus.md.

mod allowed;
mod counters;
mod groups;
mod homes;
mod idle;
mod locality;
mod paid;
mod queues;
mod quotas;
mod tracks;
mod wakelist;
mod wasted;

pub(crate) use counters::Counters;
use homes::Homes;
use idle::Idling;
use paid::Paid;
pub use queues::TaskFigures;
pub(crate) use queues::{ALL, CpuSet, Queues, Stop};
pub use tracks::Track;
use wasted::Wasted;

use crate::kernel::{Kernel, TICK};
use crate::random::Stream;
use crate::table::{prefetch_at, prefetch_value};
use homenode_core::costs::Cost;
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Model, RecentCpu, SchedPolicy, Wakeups};
use homenode_core::sched::balance::place::{IdleFacts, Placed, Without};
use homenode_core::sched::balance::{self, Balance, IdleType};
use homenode_core::sched::domain::{Domains, Flags, Layout};
use homenode_core::sched::fair::{Attr, Cfs, Dequeue, Enqueue, Fair, Knobs, Rules};
use homenode_core::sched::stats::{Switched, Wakeup};
use homenode_core::sched::wakelist::{Target, by_list};
use homenode_core::sched::weight;
use homenode_core::topology::Hardware;
use homenode_wake as wake;
use queues::Seen;
use wakelist::WakeLists;

/// Time of the rules, in nanoseconds.
pub(crate) type Ns = u64;

/// Their time when virtual time begins: the kernel has been up for a second, so that no stamp
/// is 0, which means none.
pub(crate) const BOOT: Ns = 1_000_000_000;

/// The rules' time at a virtual time in picoseconds.
#[inline]
pub(crate) fn ns(ps: u64) -> Ns {
    BOOT + ps / 1000
}

/// How a task waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// `TASK_INTERRUPTIBLE`.
    #[default]
    Sleep,
    /// `TASK_UNINTERRUPTIBLE`.
    Block {
        /// For I/O.
        iowait: bool,
    },
}

/// Who wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waker {
    /// The CPU that does it.
    pub(crate) cpu: usize,
    /// The task that runs there; `None`: its idle task.
    pub(crate) task: Option<usize>,
    /// It says that it is going to wait now (`WF_SYNC`).
    pub(crate) sync: bool,
    /// It is the task itself that wakes, and not an interrupt that came in while it ran.
    pub(crate) in_task: bool,
}

/// Where a task is that has been woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// On the CPU's queue.
    Queued,
    /// On the CPU's list, alone: the CPU is to be called.
    Calls,
    /// On the CPU's list, behind another for whom it has been called.
    Listed,
}

/// How the fair class is to treat a new task, and where it may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) nice: i8,
    pub(crate) policy: SchedPolicy,
    /// Its own slice, ns; `None`: the base slice.
    pub(crate) slice_ns: Option<u32>,
    /// Where it asks to run: a number of [`Queues::sets`].
    pub(crate) set: u32,
    /// The number of its group; 0 is the root.
    pub(crate) group: u32,
    /// A thread of the kernel that is bound to its CPU.
    pub(crate) per_cpu: bool,
    /// Where it runs over time is to be told.
    pub(crate) followed: bool,
}

impl Default for Terms {
    fn default() -> Self {
        let policy = SchedPolicy::Normal;
        let (set, slice_ns) = (ALL, None);
        Self { nice: 0, policy, slice_ns, set, group: 0, per_cpu: false, followed: false }
    }
}

/// The scheduler of a machine.
pub(crate) struct Scheduler {
    /// By how many CPUs online the base slice is scaled.
    scale: usize,
    pub(crate) domains: Domains,
    pub(crate) balance: Balance,
    pub(crate) q: Queues,
    /// Time that CPUs idled beside tasks that waited for them.
    pub(crate) wasted: Wasted,
    /// How often a CPU went offline or came back.
    pub(crate) rebuilds: u64,
    /// What CPUs without a task do.
    pub(crate) idle: Idling,
    /// Those of them whose tick goes on: a bit for each, by place. Some have a task by now.
    ticking: Vec<u64>,
}

impl Scheduler {
    pub(crate) fn new(machine: &Hardware, kernel: &Kernel, seed: u64) -> Self {
        let (version, prices, model) = (kernel.knobs.version, &kernel.prices, &kernel.model);
        let cpus = machine.cpus.len();
        let layout = Layout::of(machine);
        let online = CpuSet::of(cpus, 0..cpus).words;
        let domains = Domains::new(&layout, &online);
        let knobs = Knobs {
            base_slice_ns: weight::base_slice_ns(cpus, weight::Scaling::Log),
            cfs: Cfs::scaled(cpus, weight::Scaling::Log),
            tick_ns: TICK / 1000,
            features: model.features.in_version(version),
            rules: Rules::of(version),
            ..Knobs::default()
        };
        let mut fair = Fair::new(cpus, knobs);
        let mut wakes =
            wake::Cpus::new(wake::Layout::of_domains(&domains), wake_rules(version, model));
        for (place, cpu) in machine.cpus.iter().enumerate() {
            fair.set_speed(place, BOOT, cpu.capacity, 1024);
            wakes.set_capacity(place as u32, cpu.capacity);
            wakes.set_capacity_orig(place as u32, cpu.capacity);
        }
        // Random numbers of newly idle balancing.
        let dice = Stream::new(seed, "newly-idle");
        let balancing = (prices[Cost::BalanceCpu] / 1000, prices[Cost::BalanceTask] / 1000);
        let counters = Counters::new(cpus, &domains, Paid::new(machine, prices));
        let mut balance = Balance::new(&domains, balance::Knobs::default(), 0);
        // All are idle to begin with.
        for cpu in 0..cpus {
            balance.cpus[cpu].idle_stamp = BOOT;
            balance.tick_stopped(&domains, cpu);
        }
        Self {
            scale: cpus,
            balance,
            q: Queues::new(
                fair,
                wakes,
                counters,
                Homes::new(machine),
                WakeLists::new(cpus, version),
                dice,
                balancing,
            ),
            domains,
            wasted: Wasted::new(cpus),
            rebuilds: 0,
            idle: Idling::new(&machine.idle_states, cpus, version <= KernelVersion::V4_15),
            ticking: vec![0; cpus.div_ceil(64)],
        }
    }
    /// The kernel's knobs are these from now on.
    pub(crate) fn set_knobs(&mut self, knobs: &homenode_core::knobs::Knobs) {
        let slice = weight::base_slice_ns(self.scale, weight::Scaling::Log);
        let base_slice_ns = knobs.base_slice_ns.unwrap_or(slice);
        let cfs = Cfs::scaled(self.scale, weight::Scaling::Log);
        self.q.fair.set_knobs(Knobs { base_slice_ns, cfs, ..*self.q.fair.knobs() });
        self.balance.knobs.migration_cost_ns = i64::from(knobs.migration_cost_ns as i32);
        self.balance.knobs.nr_migrate = knobs.nr_migrate;
        self.q.homes.on = knobs.numa_balancing.enabled();
        match self.q.counters.switch.set(knobs.sched_schedstats) {
            Switched::On => self.q.counters.clear_stamps(),
            Switched::Off | Switched::Same => {}
        }
    }
    /// A CPU goes offline or comes online: domains, and what wake-ups know of them, are made anew, with
    /// their counters. What is on its queue is not moved by that.
    ///
    /// Source: specs/sched-groups.md#hotplug.
    pub(crate) fn set_online(&mut self, machine: &Hardware, cpu: usize, online: bool) {
        // The base slice is scaled while the CPU that goes still counts.
        let before = weight::base_slice_ns(self.scale, weight::Scaling::Log);
        self.scale = self.q.online().count as usize + usize::from(online);
        let cfs = Cfs::scaled(self.scale, weight::Scaling::Log);
        let knobs = Knobs { cfs, ..*self.q.fair.knobs() };
        if knobs.base_slice_ns == before {
            let base_slice_ns = weight::base_slice_ns(self.scale, weight::Scaling::Log);
            self.q.fair.set_knobs(Knobs { base_slice_ns, ..knobs });
        } else {
            self.q.fair.set_knobs(knobs);
        }
        if !online {
            self.balance.busy_tick(&self.domains, cpu);
        }
        self.q.set_online(cpu, online);
        self.rebuilds += 1;
        self.q.wake.set_active(cpu as u32, online);
        let layout = Layout::of(machine);
        self.domains = Domains::new(&layout, &self.q.online().words);
        let jiffies = self.q.jiffies();
        self.balance.rebuilt(&self.domains, jiffies);
        self.q.counters.rebuilt(&self.domains);
        let rebuilt = self.q.wake.rebuild(wake::Layout::of_domains(&self.domains));
        debug_assert!(rebuilt.is_ok(), "CPUs are as many as before");
        if online && self.q.is_idle(cpu) {
            self.balance.cpus[cpu].idle_stamp = self.q.now;
            self.balance.tick_stopped(&self.domains, cpu);
        }
    }
    /// `base_slice_ns` as it is now.
    pub(crate) fn base_slice_ns(&self) -> u32 {
        self.q.fair.knobs().base_slice_ns
    }
    /// Time has come so far.
    #[inline]
    pub(crate) fn at(&mut self, ps: u64) {
        self.q.now = ns(ps);
    }

    // ── Tasks ──────────────────────────────────────────────────────────────────

    /// A task is born on a CPU; it is on no queue yet. Tasks are born in the order of their
    /// numbers.
    pub(crate) fn born(&mut self, cpu: usize, terms: &Terms) {
        let task = self.q.tasks.len();
        let group = self.q.groups.id(terms.group);
        let Terms { nice, policy, slice_ns, .. } = *terms;
        let attr = Attr { nice, policy, group, slice_ns };
        self.q.fair.add_task(task as u32, cpu, &attr);
        let jiffies = self.q.jiffies();
        self.q.wakers.push(wake::Task::born(cpu as u32, jiffies));
        self.q.counters.born();
        let track = if terms.followed { self.q.tracks.follow(task) } else { None };
        self.q.know(queues::Sched::new(terms, self.q.now, track));
        self.q.refit(task);
    }
    /// A new task begins with the partners of the one that made it.
    ///
    /// Source: specs/wake.md#fork.
    pub(crate) fn inherits(&mut self, task: usize, parent: usize) {
        let (cpus, cpu) = (self.q.cpus(), self.cpu_of(parent));
        self.q.wakers[cpus + task] = self.q.wakers[cpus + parent].fork(cpu as u32);
        self.q.fair.forked(task as u32, parent as u32, self.q.now);
    }
    /// The CPU on which a new task begins, by fork balancing from its parent's.
    pub(crate) fn place_new(&mut self, task: usize, parent: usize) -> usize {
        let set = &self.q.sets[self.q.tasks[task].set as usize];
        if set.count <= 1 {
            return set.first();
        }
        let from = if set.has(parent) { parent } else { set.first() };
        self.q.sum_up_for_fork();
        let set = &self.q.sets[self.q.tasks[task].set as usize];
        self.idle.lapse_all((self.q.now - BOOT) * 1000);
        self.balance.find_dst_cpu(
            &self.domains,
            &self.q.facts(),
            &IdleFacts {
                exit_latency: self.idle.exits(),
                sched_idle: self.q.idle_only(),
                blocks: self.q.blocks(),
            },
            &Placed {
                flag: Flags::BALANCE_FORK,
                cpu: from,
                prev: from,
                allowed: &set.words,
                preferred: None,
                util: 0,
                without: None,
            },
        )
    }
    /// The CPU that balancing wants a task on that execs, and runs on a CPU: the moment at which it
    /// is cheapest to move.
    pub(crate) fn place_exec(&mut self, task: usize, cpu: usize) -> usize {
        let set = self.q.tasks[task].set;
        if self.q.sets[set as usize].count <= 1 {
            return cpu;
        }
        self.idle.lapse_all((self.q.now - BOOT) * 1000);
        let (jiffies, t) = (self.q.jiffies(), task as u32);
        self.q.fair.update(cpu, self.q.now);
        self.q.follow(cpu);
        self.q.sum_up_for_fork();
        let fair = &mut self.q.fair;
        let util = fair.task_util(t).max(fair.task_util_est(t));
        let without = Without {
            cpu,
            load: fair.load_avg(cpu).saturating_sub(fair.task_h_load(t, jiffies)),
            util: fair.cpu_util_without(cpu, t) as u32,
            runnable: fair.runnable_avg(cpu).saturating_sub(fair.task_runnable(t)) as u32,
            idle: fair.nr_running(cpu) == 1,
        };
        self.balance.find_dst_cpu(
            &self.domains,
            &self.q.facts(),
            &IdleFacts {
                exit_latency: self.idle.exits(),
                sched_idle: self.q.idle_only(),
                blocks: self.q.blocks(),
            },
            &Placed {
                flag: Flags::BALANCE_EXEC,
                cpu,
                prev: cpu,
                allowed: &self.q.sets[set as usize].words,
                preferred: self.q.preferred_place(task),
                util,
                without: Some(without),
            },
        )
    }
    /// A task has ended, and has left its CPU.
    pub(crate) fn ended(&mut self, task: usize) {
        if self.q.fair.is_queued(task as u32) {
            self.q.take(task, Dequeue::End);
        }
        self.q.fair.remove_task(task as u32, self.q.now);
    }
    /// A new task goes on a CPU's queue.
    pub(crate) fn begin(&mut self, task: usize, cpu: usize) {
        self.q.enqueue(task, cpu, Enqueue::Fork);
        self.q.preempts(task, cpu);
    }
    /// The CPU that a task is on, or was on last.
    #[inline]
    pub(crate) fn cpu_of(&self, task: usize) -> usize {
        self.q.fair.cpu_of(task as u32)
    }
    /// Has fetched what a CPU needs that is about to have a task more or less: where there are thousands of them,
    /// nothing of one is in the host's near caches. Nothing is asked for that, which would have to be waited for.
    #[inline]
    pub(crate) fn fetch_cpu(&self, cpu: usize) {
        for (address, bytes) in self.q.fair.queue_addresses(cpu) {
            prefetch_value(address, bytes);
        }
        self.idle.fetch(cpu);
        self.q.fetch_place(cpu);
        self.q.fetch_figures(cpu);
        prefetch_value((&raw const self.balance.cpus[cpu]).addr(), size_of::<balance::CpuState>());
        self.q.counters.fetch_cpu(cpu);
        // Who runs out of tasks looks for one level by level, from the lowest.
        let levels = self.domains.levels(cpu);
        if levels > 0 {
            let lowest = self.domains.slot(cpu, 0);
            for address in self.domains.addresses(cpu, lowest) {
                prefetch_at(address as *const u8);
            }
            // They begin anywhere in a line.
            let bytes = levels * size_of::<balance::Level>() + 63;
            prefetch_value((&raw const self.balance.levels[lowest]).addr(), bytes);
            (lowest..lowest + levels).for_each(|slot| self.q.counters.fetch_level(slot));
        }
    }
    /// Whether a CPU is to look for who runs next.
    #[inline]
    pub(crate) fn marked(&self, cpu: usize) -> bool {
        self.q.fair.need_resched(cpu)
    }

    // ── Waking ─────────────────────────────────────────────────────────────────

    /// Wakes a task that sleeps; the CPU where it is now, on the queue or on the list.
    ///
    /// * `on_cpu` – its CPU has not switched to another yet.
    pub(crate) fn wake(&mut self, task: usize, w: &Waker, on_cpu: bool) -> (usize, Woken) {
        let before = self.cpu_of(task);
        let delayed = self.q.fair.is_delayed(task as u32);
        let (cpu, listed) = if delayed {
            // Who has not left its queue yet stays there.
            (before, false)
        } else if on_cpu && self.lists(task, w.cpu, before, true) {
            (before, true)
        } else {
            let cpu = self.choose(task, w);
            (cpu, self.lists(task, w.cpu, cpu, false))
        };
        if self.q.counters.on() {
            let wakeup = Wakeup { local: cpu == w.cpu, sync: w.sync, migrated: cpu != before };
            let common = (cpu != w.cpu)
                .then(|| self.domains.common(w.cpu, cpu))
                .flatten()
                .map(|level| self.domains.slot(w.cpu, level));
            self.q.counters.wakeup(task, w.cpu, wakeup, common);
        }
        if listed {
            return (cpu, if self.q.list(task, cpu) { Woken::Calls } else { Woken::Listed });
        }
        self.q.counters.wakes(Some(w.cpu));
        if !delayed {
            // Also where a task has come to it otherwise meanwhile: its idle time ends here.
            self.balance.woken(cpu, self.q.now);
        }
        self.q.woken(task, cpu);
        self.q.preempts(task, cpu);
        self.q.counters.wakes(None);
        (cpu, Woken::Queued)
    }
    /// Whether a waker on a CPU leaves it to another to put a task on its queue.
    ///
    /// Source: specs/wake.md#list.
    fn lists(&self, task: usize, waker: usize, cpu: usize, on_cpu: bool) -> bool {
        let q = &self.q;
        let to = Target {
            own: cpu == waker,
            shares_cache: q.wake.layout().share_cache(waker as u32, cpu as u32),
            nr_running: q.fair.nr_running(cpu),
            allowed: q.is_online(cpu) && q.may_run(task, cpu),
            on_cpu,
        };
        q.fair.knobs().features.ttwu_queue && by_list(q.lists.version, to)
    }
    /// A CPU puts the tasks on its list on its queue: who they were. The list is to be given back.
    pub(crate) fn take_list(&mut self, cpu: usize) -> Vec<u32> {
        let list = self.q.lists.take(cpu);
        for &task in &list {
            self.balance.woken(cpu, self.q.now);
            self.q.woken(task as usize, cpu);
            self.q.preempts(task as usize, cpu);
        }
        list
    }
    /// The CPU for a task that is woken.
    fn choose(&mut self, task: usize, w: &Waker) -> usize {
        let cpus = self.q.cpus();
        let q = &mut self.q;
        let prev = q.fair.cpu_of(task as u32);
        let set = q.tasks[task].set;
        let count = q.sets[set as usize].count;
        if count == 1 {
            return q.sets[set as usize].first();
        }
        // What it may look at of the two CPUs follows their queues only now.
        for cpu in [w.cpu, prev] {
            let (nr, delayed) = (q.fair.nr_running(cpu), q.fair.h_nr_delayed(cpu));
            q.wake.set_running(cpu as u32, nr, delayed);
            q.wake.set_load(cpu as u32, q.fair.wake_load(cpu));
        }
        // For how long kernels up to 4.16 look for an idle CPU.
        q.wake.set_avg_idle(w.cpu as u32, self.balance.cpus[w.cpu].avg_idle);
        let jiffies = q.jiffies();
        let waker_load = match w.task {
            Some(waker) if w.sync => q.fair.task_h_load(waker as u32, jiffies),
            _ => 0,
        };
        let wakeup = wake::Wakeup {
            waker_cpu: w.cpu as u32,
            prev: prev as u32,
            task_cpu: prev as u32,
            wakee: (cpus + task) as u32,
            allowed: if set == ALL {
                wake::Allowed::All
            } else {
                wake::Allowed::Words(&q.sets[set as usize].words)
            },
            nr_allowed: count,
            sync: w.sync,
            current_cpu: false,
            waker_per_cpu_kthread: w.in_task && w.task.is_some_and(|t| q.tasks[t].terms.per_cpu),
            wakee_idle_policy: q.tasks[task].terms.policy == SchedPolicy::Idle,
            jiffies,
            waker_load,
            wakee_load: q.fair.task_h_load(task as u32, jiffies),
            wakee_util: q.fair.task_util(task as u32).max(q.fair.task_util_est(task as u32)),
        };
        let waker = w.task.map_or(w.cpu, |t| cpus + t);
        let choice = q
            .wake
            .choose_in(&mut q.wakers, waker as u32, &wakeup)
            .expect("a task's CPUs are the machine's");
        if let Some(level) = choice.level {
            let slot = choice.affine.then(|| self.domains.slot(w.cpu, level.into()));
            q.counters.affine(task, w.cpu, slot);
        }
        if choice.scan_timed {
            q.wake.note_scan_cost(w.cpu as u32, u64::from(choice.scanned) * q.look);
        }
        let cpu = choice.cpu as usize;
        // Where it was has gone offline, or is not for it any more.
        if q.may_run(task, cpu) { cpu } else { q.sets[set as usize].first() }
    }

    // ── Running ────────────────────────────────────────────────────────────────

    /// Who runs next on a CPU, and what balancing took, in nanoseconds, where it had to look
    /// elsewhere. Whom it took over is in [`Queues::moved`].
    pub(crate) fn next(&mut self, cpu: usize) -> (Option<usize>, Ns) {
        self.q.counters.schedules(cpu);
        if let Some(task) = self.q.pick(cpu) {
            return (Some(task), 0);
        }
        let (now, jiffies) = (self.q.now, self.q.jiffies());
        self.balance.overloaded |= std::mem::take(&mut self.q.crowded);
        self.q.looked = 0;
        let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: false };
        let found = self.balance.newly_idle(&self.domains, &mut seen, cpu, now, jiffies);
        let took = self.q.looked;
        if found.pulled {
            return (self.q.pick(cpu), took);
        }
        (None, took)
    }
    /// The task that runs on a CPU has called `sched_yield`.
    pub(crate) fn yields(&mut self, cpu: usize) {
        self.q.counters.yields(cpu);
        self.q.fair.yield_(cpu, self.q.now);
        self.q.fair.set_need_resched(cpu);
    }
    /// A CPU has nothing to do from now on.
    pub(crate) fn goes_idle(&mut self, cpu: usize) {
        self.q.counters.goes_idle(cpu);
        self.q.fair.go_idle(cpu, self.q.now);
        self.q.follow(cpu);
        self.q.wake.enter_idle(cpu as u32);
        let jiffies = self.q.jiffies();
        let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: false };
        self.balance.before_idle(&self.domains, &mut seen, cpu, jiffies);
    }
    /// An idle CPU stops its tick, or lets the next one come: without a governor it stops it only in a
    /// tick. Only without a tick others balance for it.
    ///
    /// Source: specs/sched-balance.md#idle-tick.
    pub(crate) fn stop_tick(&mut self, cpu: usize, in_tick: bool) {
        // Among one state there is nothing to choose.
        let keeps = match self.idle.states().len() {
            0 | 1 => !in_tick,
            _ => self.idle.keeps_tick(cpu),
        };
        match keeps {
            true => self.ticking[cpu / 64] |= 1 << (cpu % 64),
            false => self.balance.tick_stopped(&self.domains, cpu),
        }
    }
    /// The next of the idle CPUs whose tick goes on, from a place on.
    #[inline]
    pub(crate) fn next_ticking(&self, from: usize) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for word in from / 64..self.ticking.len() {
            let left = self.ticking[word] & mask;
            if left != 0 {
                return Some(word * 64 + left.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
    /// The tick of a CPU that was idle when it had its last: whether it still is. Then it balances what is due.
    pub(crate) fn idle_tick(&mut self, cpu: usize) -> bool {
        self.ticking[cpu / 64] &= !(1 << (cpu % 64));
        if !self.q.is_idle(cpu) {
            return false;
        }
        let jiffies = self.q.jiffies();
        if self.balance.due(&self.domains, cpu, jiffies) {
            let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: true };
            self.balance.softirq(&self.domains, &mut seen, cpu, IdleType::Idle, jiffies);
        }
        true
    }
    /// The tick of a busy CPU; the idle CPU that is to be woken to balance for all idle ones, and
    /// what balancing took, in nanoseconds.
    pub(crate) fn tick(&mut self, cpu: usize) -> (Option<usize>, Ns) {
        let jiffies = self.q.jiffies();
        self.q.looked = 0;
        self.q.fair.tick(cpu, self.q.now);
        if let Some(task) = self.q.fair.current(cpu) {
            self.q.charge(task as usize);
        }
        self.q.follow(cpu);
        self.balance.busy_tick(&self.domains, cpu);
        let due = self.balance.due(&self.domains, cpu, jiffies);
        let kick = self.balance.kick(&self.domains, &self.q.facts(), cpu, jiffies);
        // The softirq comes when the interrupt is over.
        if due {
            let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: false };
            self.balance.softirq(&self.domains, &mut seen, cpu, IdleType::Busy, jiffies);
        }
        (kick, self.q.looked)
    }
    /// An idle CPU has been woken to balance for all idle ones.
    pub(crate) fn kicked(&mut self, cpu: usize) {
        let jiffies = self.q.jiffies();
        let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: true };
        self.balance.kicked(&self.domains, &mut seen, cpu, jiffies);
    }
    /// A CPU's running task has been put back to be pushed away to another CPU: what that took,
    /// in nanoseconds.
    pub(crate) fn push(&mut self, from: usize) -> Ns {
        self.q.looked = 0;
        let mut seen = Seen { queues: &mut self.q, domains: &self.domains, idle: true };
        if let Some(pushed) = self.balance.active_push(&self.domains, &mut seen, from) {
            self.q.counters.pushed(&self.domains, &pushed);
        }
        self.q.looked
    }
}

/// By whose rules woken tasks get a CPU: the kernel's, unless the model says otherwise. 3.8 has 4.5's
/// as a stand-in; 5.18 and 6.1 search as 6.12 does, and so does 7.3 but for machines of unequal CPUs.
///
/// Source: specs/wake.md#versions.
fn wake_rules(version: KernelVersion, model: &Model) -> wake::Rules {
    let version = match (model.wakeups, version) {
        (Wakeups::Seed, _) => wake::Version::V4_16,
        (Wakeups::Kernel, KernelVersion::V3_8 | KernelVersion::V4_5) => wake::Version::V4_5,
        (Wakeups::Kernel, KernelVersion::V4_15) => wake::Version::V4_15,
        (
            Wakeups::Kernel,
            KernelVersion::V5_18 | KernelVersion::V6_1 | KernelVersion::V6_12 | KernelVersion::V7_3,
        )
        | (Wakeups::Today, _) => wake::Version::V6_12,
    };
    let rules = wake::Rules::of(version);
    let recent = match model.recent_cpu {
        RecentCpu::Kernel => rules.recent,
        RecentCpu::None => wake::Recent::None,
        RecentCpu::Seed => wake::Recent::Waker,
        RecentCpu::Today => wake::Recent::Wakee,
    };
    wake::Rules { recent, ..rules }
}
