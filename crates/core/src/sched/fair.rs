//! The fair class: which task of a queue runs, for how long, and what sleeping means for it (EEVDF).
//!
//! Each task has a virtual run time `v`, which passes the slower the heavier it weighs
//! ([`super::weight`]). The weighted mean of all on a queue is `V`; who has `v <= V` has had no more than
//! its share and is *eligible*; `V - v` is its *lag*. A task asks for a slice at a time, and its
//! virtual deadline is where it will be when it has run that long. Of all that are eligible, the one with the
//! earliest deadline runs, and then for its slice.
//!
//! Example, two tasks A and B of nice 0, slices of 2.8 ms, a tick each 4 ms. A runs first. At 4 ms
//! A's `v` is 4, its deadline 2.8 has passed: the CPU is marked, A's next deadline is 6.8. `V` is 2: A is
//! ahead, B runs from 0 to 4. Then `V` is 4, both are eligible, deadlines are 6.8 for both: A waits longer and runs.
//! And so on, 4 ms each.
//!
//! A group is, on each CPU, an entity like a task with a queue of its own below, so each
//! level is picked from alike. Who goes to sleep while it is ahead stays on the queue until it has fallen
//! back ("delayed"), so that sleeping is no way to get rid of it.
//!
//! [`Fair`] holds this for all CPUs of a machine and tells what happened. It has no clock: each call
//! brings `now`, ns of the CPU's task clock. It draws up no statistics: its caller counts. In
//! reading order: `parts` (what there is, virtual time of one queue), `timeline` (the order of those who
//! wait), `run` (charging, picking, preemption), `queueing` (coming and going), `cfs` (what is otherwise in kernels
//! before 6.6), `load` (averages), `bandwidth` (`cpu.max`).
//!
//! [`Rules`] says which kernel's: of those before EEVDF the order, placement, ticks and preemption are CFS's
//! (docs/decisions/0017-cfs.md), everything else is shared.
//!
//! Source: specs/sched-fair.md (Linux 6.12), specs/sched-cfs.md (4.5, 4.15, 6.1).

mod parts;

mod timeline;

mod run;

mod queueing;

mod cfs;

mod load;

mod bandwidth;

#[cfg(test)]
mod tests;

pub use bandwidth::CpuStat;
pub use cfs::Cfs;

use bandwidth::Bandwidth;
use parts::{Arena, Entity, Group, Queue, RunQueue};
use timeline::{NONE, Node};

use super::pelt::{Avg, Clock};
use super::weight::{self, Load};
use crate::kernel::KernelVersion;

crate::named! {
    /// Which kernel's fair class.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rules {
        /// CFS as 4.5 has it.
        Cfs4_5 => "CFS of Linux 4.5",
        /// CFS as 4.15 has it.
        Cfs4_15 => "CFS of Linux 4.15",
        /// CFS as 6.1 has it.
        Cfs6_1 => "CFS of Linux 6.1",
        /// Earliest eligible virtual deadline first, as 6.12 has it.
        #[default]
        Eevdf => "EEVDF of Linux 6.12",
    }
}

impl Rules {
    /// Those of a release. 3.8, whose own class is not built, has 4.5's as a stand-in; 5.18 has 6.1's.
    ///
    /// Source: specs/sched-cfs.md#versions.
    pub const fn of(version: KernelVersion) -> Self {
        match version {
            KernelVersion::V3_8 | KernelVersion::V4_5 => Self::Cfs4_5,
            KernelVersion::V4_15 => Self::Cfs4_15,
            KernelVersion::V5_18 | KernelVersion::V6_1 => Self::Cfs6_1,
            KernelVersion::V6_12 | KernelVersion::V7_3 => Self::Eevdf,
        }
    }

    /// Whether who is behind the most runs, and nobody has a deadline.
    #[inline]
    pub const fn is_cfs(self) -> bool {
        !matches!(self, Self::Eevdf)
    }

    /// Whether wake-ups compare the load of those who are queued, without sleepers.
    #[inline]
    pub(crate) const fn keeps_runnable_load(self) -> bool {
        matches!(self, Self::Cfs4_5 | Self::Cfs4_15)
    }
}

/// The switches of `/sys/kernel/debug/sched/features` that the fair class and wake-ups ask.
///
/// Source: specs/sched-fair.md#features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Who has become the running one keeps the CPU until its slice is over.
    pub run_to_parity: bool,
    /// A shorter slice breaks that.
    pub preempt_short: bool,
    /// Lag is kept over sleep.
    pub place_lag: bool,
    /// A new task's first slice is half a one.
    pub place_deadline_initial: bool,
    /// Who changes CPU keeps its way to the deadline.
    pub place_rel_deadline: bool,
    /// Who sleeps while it is ahead stays queued.
    pub delay_dequeue: bool,
    /// Who stayed gains no lag by that.
    pub delay_zero: bool,
    /// A wake-up may preempt.
    pub wakeup_preemption: bool,
    /// Who was woken last runs next.
    pub next_buddy: bool,
    /// Who was wished for next is picked.
    pub pick_buddy: bool,
    /// Utilisation is estimated.
    pub util_est: bool,
    /// CFS: sleep gives a credit of half a latency, not of a whole one.
    pub gentle_fair_sleepers: bool,
    /// CFS: a new task begins a slice behind.
    pub start_debit: bool,
    /// CFS: who was preempted runs next after who preempted it.
    pub last_buddy: bool,
    /// Tasks are woken by list: [`wakelist`](super::wakelist).
    pub ttwu_queue: bool,
}

impl Features {
    /// Those of them that a release has: utilisation is not estimated before 4.17.
    #[must_use]
    pub fn in_version(self, version: KernelVersion) -> Self {
        let none = matches!(Rules::of(version), Rules::Cfs4_5 | Rules::Cfs4_15);
        Self { util_est: self.util_est && !none, ..self }
    }

    /// A switch by the kernel's name.
    fn of(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "RUN_TO_PARITY" => &mut self.run_to_parity,
            "PREEMPT_SHORT" => &mut self.preempt_short,
            "PLACE_LAG" => &mut self.place_lag,
            "PLACE_DEADLINE_INITIAL" => &mut self.place_deadline_initial,
            "PLACE_REL_DEADLINE" => &mut self.place_rel_deadline,
            "DELAY_DEQUEUE" => &mut self.delay_dequeue,
            "DELAY_ZERO" => &mut self.delay_zero,
            "WAKEUP_PREEMPTION" => &mut self.wakeup_preemption,
            "NEXT_BUDDY" => &mut self.next_buddy,
            "PICK_BUDDY" => &mut self.pick_buddy,
            "UTIL_EST" => &mut self.util_est,
            "GENTLE_FAIR_SLEEPERS" => &mut self.gentle_fair_sleepers,
            "START_DEBIT" => &mut self.start_debit,
            "LAST_BUDDY" => &mut self.last_buddy,
            "TTWU_QUEUE" => &mut self.ttwu_queue,
            _ => return None,
        })
    }
    /// The kernel's names of the switches, in the order of its list; at the end those that only CFS has. One that
    /// a kernel's fair class doesn't have changes nothing there.
    pub const NAMES: [&'static str; 15] = [
        "PLACE_LAG",
        "PLACE_DEADLINE_INITIAL",
        "PLACE_REL_DEADLINE",
        "RUN_TO_PARITY",
        "PREEMPT_SHORT",
        "NEXT_BUDDY",
        "PICK_BUDDY",
        "DELAY_DEQUEUE",
        "DELAY_ZERO",
        "WAKEUP_PREEMPTION",
        "TTWU_QUEUE",
        "UTIL_EST",
        "GENTLE_FAIR_SLEEPERS",
        "START_DEBIT",
        "LAST_BUDDY",
    ];
    /// The defaults, changed by words such as `NO_DELAY_DEQUEUE` and `NEXT_BUDDY`, with commas or blanks
    /// between them.
    ///
    /// # Errors
    /// A word that is none.
    ///
    /// ```
    /// use homenode_core::sched::fair::Features;
    /// assert!(!Features::parse("NO_DELAY_DEQUEUE,NEXT_BUDDY")?.delay_dequeue);
    /// assert!(Features::parse("NO_DELAY").unwrap_err().contains("NO_DELAY"));
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse(words: &str) -> Result<Self, String> {
        let mut all = Self::default();
        for word in words.split([',', ' ']).filter(|w| !w.is_empty()) {
            let (name, on) = word.strip_prefix("NO_").map_or((word, true), |name| (name, false));
            match all.of(name) {
                Some(feature) => *feature = on,
                None => {
                    let names = Self::NAMES.join(", ");
                    return Err(format!(
                        "there is no feature {word}; there are {names}, each also with NO_ before it"
                    ));
                }
            }
        }
        Ok(all)
    }
}

impl Default for Features {
    fn default() -> Self {
        Features {
            run_to_parity: true,
            preempt_short: true,
            place_lag: true,
            place_deadline_initial: true,
            place_rel_deadline: true,
            delay_dequeue: true,
            delay_zero: true,
            wakeup_preemption: true,
            next_buddy: false,
            pick_buddy: true,
            util_est: true,
            gentle_fair_sleepers: true,
            start_debit: true,
            last_buddy: true,
            ttwu_queue: true,
        }
    }
}

/// What may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// `base_slice_ns`, the slice of a task that asks for none; [`weight::base_slice_ns`] has the default.
    pub base_slice_ns: u32,
    /// Length of a tick, ns: lag is limited to at least that.
    pub tick_ns: u64,
    /// The same for CFS.
    pub cfs: Cfs,
    /// What a queue takes from its group's quota at a time, ns.
    pub bandwidth_slice_ns: u64,
    /// Features.
    pub features: Features,
    /// Which kernel's.
    pub rules: Rules,
}

impl Default for Knobs {
    /// Of a machine with 8 CPUs or more, with ticks of 4 ms.
    fn default() -> Self {
        Knobs {
            base_slice_ns: weight::base_slice_ns(8, weight::Scaling::Log),
            tick_ns: 4_000_000,
            cfs: Cfs::scaled(8, weight::Scaling::Log),
            bandwidth_slice_ns: 5_000_000,
            features: Features::default(),
            rules: Rules::default(),
        }
    }
}

/// A group of tasks. Groups are numbered as they come; a number is not given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group above all, which has no weight.
    pub const ROOT: GroupId = GroupId(0);
}

/// `cpu.max` and `cpu.max.burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Run time in a period on all CPUs together, ns.
    pub quota_ns: u64,
    /// Length of a period, ns.
    pub period_ns: u64,
    /// How much of what was left over may be used later, ns.
    pub burst_ns: u64,
}

crate::named! {
    /// Policies of the fair class, by the kernel's names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SchedPolicy {
        /// `SCHED_NORMAL`.
        #[default]
        Normal => "normal",
        /// `SCHED_BATCH`: it preempts nobody when it wakes.
        Batch => "batch",
        /// `SCHED_IDLE`: it weighs 3, and gives way to everybody.
        Idle => "idle",
    }
}

/// What somebody may set of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// -20..=19; beyond that it is cut.
    pub nice: i8,
    /// Policy.
    pub policy: SchedPolicy,
    /// A slice of its own, ns, cut to 0.1..100 ms; a fork inherits it.
    pub slice_ns: Option<u32>,
    /// Group.
    pub group: GroupId,
}

impl Default for Attr {
    fn default() -> Self {
        Attr { nice: 0, policy: SchedPolicy::Normal, slice_ns: None, group: GroupId::ROOT }
    }
}

/// Why a task comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was woken.
    Wakeup,
    /// It is new.
    Fork,
    /// It was taken from another queue by [`Dequeue::Move`].
    Migrated,
    /// It was taken from here by [`Dequeue::Change`].
    Changed,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It was on no queue.
    New,
    /// It slept, but was still queued, and stays where it is.
    RequeuedKept,
    /// It slept, but was still queued, and had fallen back: it is placed with lag 0 and a new slice.
    RequeuedPlaced,
}

/// Why a task leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// It goes to sleep.
    Sleep {
        /// Stopped, traced, parked or frozen: such a sleep is never delayed.
        special: bool,
    },
    /// It goes to another CPU.
    Move,
    /// It comes back at once, changed.
    Change,
    /// It is dead; [`Fair::remove_task`] follows after the switch.
    End,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued {
    /// It is on no queue.
    Gone,
    /// It sleeps, but is still queued.
    Delayed,
}

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// This task, which may be the one that runs already.
    Task(u32),
    /// This task slept and was still queued; its turn has come and it has left. Nobody is picked yet.
    LeftDelayed(u32),
    /// Nobody is queued.
    Idle,
}

/// The fair class of all CPUs of a machine.
///
/// Tasks are numbers that the caller gives, dense from 0; CPUs are places. A number that was not
/// added, or a place that there is not, is the caller's mistake and panics.
///
/// After the first use of a task, group or queue nothing is allocated, but for queues that grow longer.
#[derive(Debug)]
pub struct Fair {
    knobs: Knobs,
    entities: Arena<Entity>,
    /// By entity: the task that it is, for who asks before the entity itself is near.
    names: Vec<u32>,
    /// Entities' places in long timelines.
    nodes: Vec<Node>,
    free: Vec<u32>,
    free_queues: Vec<u32>,
    /// Entity of a task.
    tasks: Vec<u32>,
    /// The first are the CPUs' root queues.
    queues: Arena<Queue>,
    groups: Arena<Group>,
    rqs: Arena<RunQueue>,
    timer: Option<(u64, GroupId)>,
}

impl Fair {
    /// A machine with `cpus` CPUs, all idle at time 0, and no task.
    pub fn new(cpus: usize, knobs: Knobs) -> Fair {
        let all = 0..cpus as u32;
        Fair {
            knobs,
            entities: Arena(Vec::new()),
            names: Vec::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            free_queues: Vec::new(),
            tasks: Vec::new(),
            queues: Arena(all.clone().map(|cpu| Queue::new(cpu, 0, 0, NONE)).collect()),
            groups: Arena(vec![Group {
                parent: NONE,
                children: Vec::new(),
                depth: 0,
                tasks: 0,
                gone: false,
                idle: false,
                shares: weight::NICE_0 * weight::SCALE,
                load_avg: 0,
                queues: all.clone().collect(),
                bandwidth: None,
                lifted: (0, 0),
                stat: CpuStat::default(),
            }]),
            rqs: Arena(
                all.map(|_| RunQueue {
                    clock: Clock::default(),
                    resched: false,
                    curr: NONE,
                    newest: NONE,
                    oldest: NONE,
                    leaves: Vec::new(),
                })
                .collect(),
            ),
            timer: None,
        }
    }

    /// The knobs.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Sets the knobs; slices change at the next deadline or placement.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// From `now` on `cpu` works at so much of the fastest CPU's speed: its capacity and its frequency, each of 1024.
    ///
    /// Source: specs/sched-fair.md#pelt-clock.
    pub fn set_speed(&mut self, cpu: usize, now: u64, capacity: u32, frequency: u32) {
        let clock = &mut self.rqs[cpu as u32].clock;
        clock.advance(now);
        clock.set_speed(capacity, frequency);
    }

    // Groups.

    /// A new group below `parent`, of that `cpu.weight` (1..=10000; 100 is a nice 0 task's).
    ///
    /// An autogroup is one of weight 100 below the root.
    ///
    /// Source: specs/sched-fair.md#groups.
    pub fn add_group(&mut self, parent: GroupId, cpu_weight: u32) -> GroupId {
        let id = self.groups.0.len() as u32;
        let above = &mut self.groups[parent.0];
        above.children.push(id);
        let depth = above.depth + 1;
        self.groups.0.push(Group {
            parent: parent.0,
            children: Vec::new(),
            depth,
            tasks: 0,
            gone: false,
            idle: false,
            shares: weight::of_cpu_weight(cpu_weight) * weight::SCALE,
            load_avg: 0,
            queues: vec![NONE; self.rqs.0.len()],
            bandwidth: None,
            lifted: (0, 0),
            stat: CpuStat::default(),
        });
        GroupId(id)
    }

    /// Changes a group's `cpu.weight`; the root's cannot be changed, and one that is idle keeps its own.
    pub fn set_group_weight(&mut self, group: GroupId, cpu_weight: u32, now: u64) {
        self.set_shares(group, weight::of_cpu_weight(cpu_weight), now);
    }

    /// The same as a nice level (`cpu.weight.nice`), -20..=19.
    pub fn set_group_nice(&mut self, group: GroupId, nice: i8, now: u64) {
        self.set_shares(group, weight::of_nice(nice), now);
    }

    fn set_shares(&mut self, group: GroupId, w: u32, now: u64) {
        if group != GroupId::ROOT && !self.groups[group.0].idle {
            self.reshare(group, w, now);
        }
    }

    fn reshare(&mut self, group: GroupId, w: u32, now: u64) {
        let shares = w * weight::SCALE;
        if self.groups[group.0].shares == shares {
            return;
        }
        self.groups[group.0].shares = shares;
        for cpu in 0..self.rqs.0.len() {
            let q = self.groups[group.0].queues[cpu];
            if q == NONE {
                continue;
            }
            self.rqs[cpu as u32].clock.advance(now);
            let mut e = self.queues[q].owner;
            while e != NONE {
                let q = self.entities[e].queue;
                self.update_load_avg(q, e, load::GROUP);
                self.update_group_weight(e);
                e = self.queues[q].owner;
            }
        }
    }

    /// Changes a group's `cpu.idle`: to those beside it all in it is as of policy idle, and it weighs 3. Back
    /// again it weighs what a nice 0 task does, whatever it weighed before. The root cannot be idle.
    ///
    /// Source: specs/sched-fair.md#groups.
    pub fn set_group_idle(&mut self, group: GroupId, idle: bool, now: u64) {
        if group == GroupId::ROOT || self.groups[group.0].idle == idle {
            return;
        }
        self.groups[group.0].idle = idle;
        for cpu in 0..self.rqs.0.len() {
            let q = self.groups[group.0].queues[cpu];
            if q == NONE {
                continue;
            }
            let queue = &mut self.queues[q];
            queue.idle = idle;
            // To those above: the tasks below that were not idle before, or are not any more.
            let others = queue.h_nr - queue.idle_h_nr;
            let mut e = queue.owner;
            while e != NONE && self.entities[e].on_rq {
                let above = &mut self.queues[self.entities[e].queue];
                if idle {
                    above.idle_h_nr += others;
                } else {
                    above.idle_h_nr -= others;
                }
                if above.idle {
                    break;
                }
                e = above.owner;
            }
        }
        self.reshare(group, if idle { weight::IDLE } else { weight::NICE_0 }, now);
    }

    /// What a group weighs among its siblings, 1024 at nice 0.
    pub fn group_weight(&self, group: GroupId) -> u32 {
        self.groups[group.0].shares / weight::SCALE
    }

    /// Whether a group is idle.
    pub fn group_is_idle(&self, group: GroupId) -> bool {
        self.groups[group.0].idle
    }

    /// Removes a group; false, and nothing done, if it is the root or has tasks or groups in it.
    pub fn remove_group(&mut self, group: GroupId, now: u64) -> bool {
        let g = &self.groups[group.0];
        if group == GroupId::ROOT || g.tasks > 0 || !g.children.is_empty() || g.gone {
            return false;
        }
        self.set_quota(group, None, now);
        for cpu in 0..self.rqs.0.len() {
            let q = self.groups[group.0].queues[cpu];
            if q == NONE {
                continue;
            }
            let e = self.queues[q].owner;
            self.rqs[cpu as u32].clock.advance(now);
            if self.entities[e].delayed {
                self.leave_delayed(e);
            }
            // Who slept last in it may still be the queue's running one until the next pick.
            let above = self.entities[e].queue;
            if self.queues[above].curr == e {
                self.put_prev_task(cpu as u32);
            }
            self.unlist_leaf(q);
            self.remove_load(e);
            self.free.push(e);
            self.free_queues.push(q);
        }
        self.groups[group.0].queues = Vec::new();
        let parent = self.groups[group.0].parent;
        self.groups[parent].children.retain(|&c| c != group.0);
        self.groups[group.0].gone = true;
        true
    }

    /// A group's queue on a CPU; made, with those above it, if there is none yet.
    fn queue_of(&mut self, group: u32, cpu: u32) -> u32 {
        let q = self.groups[group].queues[cpu as usize];
        if q != NONE { q } else { self.make_queue(group, cpu) }
    }

    #[cold]
    fn make_queue(&mut self, group: u32, cpu: u32) -> u32 {
        let above = self.queue_of(self.groups[group].parent, cpu);
        let q = self.free_queues.pop().unwrap_or(self.queues.0.len() as u32);
        let mut owner = Fair::blank(NONE, cpu, above);
        owner.my_q = q;
        owner.group = group;
        owner.load = Load::of_scaled(weight::NICE_0 * weight::SCALE);
        let e = self.add_entity(owner);
        let mut queue = Queue::new(cpu, group, self.groups[group].depth, e);
        queue.idle = self.groups[group].idle;
        queue.limited.enabled = self.groups[group].bandwidth.is_some();
        queue.limited.remaining = i64::from(queue.limited.enabled);
        queue.limited.count = self.queues[above].limited.count;
        queue.limited.pelt_at = self.rqs[cpu].clock.now();
        if q as usize == self.queues.0.len() {
            self.queues.0.push(queue);
        } else {
            self.queues[q] = queue;
        }
        self.groups[group].queues[cpu as usize] = q;
        self.update_load_avg(above, e, load::PLAIN);
        self.attach_load(above, e);
        q
    }

    fn blank(task: u32, cpu: u32, queue: u32) -> Entity {
        Entity {
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            load: Load::of_task(0, false),
            slice: 0,
            queue,
            my_q: NONE,
            on_rq: false,
            delayed: false,
            rel_deadline: false,
            relative: false,
            custom_slice: false,
            attached: false,
            moving: false,
            migrated: false,
            util_changed: true,
            policy: SchedPolicy::Normal,
            nice: 0,
            exec_start: 0,
            sum_exec: 0,
            prev_sum_exec: 0,
            last_run: 0,
            avg: Avg::default(),
            runnable: 0,
            task,
            cpu,
            group: 0,
            newer: NONE,
            older: NONE,
        }
    }

    fn add_entity(&mut self, entity: Entity) -> u32 {
        if let Some(e) = self.free.pop() {
            self.names[e as usize] = entity.task;
            self.entities[e] = entity;
            return e;
        }
        self.names.push(entity.task);
        self.entities.0.push(entity);
        self.nodes.push(Node::default());
        (self.entities.0.len() - 1) as u32
    }

    // Tasks.

    #[inline]
    fn entity_of(&self, task: u32) -> u32 {
        self.tasks[task as usize]
    }

    /// A new task, which belongs to `cpu` and is on no queue; [`Enqueue::Fork`] begins its life.
    ///
    /// The number must be free.
    pub fn add_task(&mut self, task: u32, cpu: usize, attr: &Attr) {
        let cpu = cpu as u32;
        let queue = self.queue_of(attr.group.0, cpu);
        let mut entity = Fair::blank(task, cpu, queue);
        entity.nice = attr.nice.clamp(-20, 19);
        entity.policy = attr.policy;
        entity.group = attr.group.0;
        entity.load = Load::of_task(entity.nice, entity.policy == SchedPolicy::Idle);
        entity.avg.load_avg = u64::from(entity.load.w);
        entity.slice = attr.slice_ns.map_or(self.knobs.base_slice_ns, cut_slice);
        entity.custom_slice = attr.slice_ns.is_some();
        let e = self.add_entity(entity);
        if self.tasks.len() <= task as usize {
            self.tasks.resize(task as usize + 1, NONE);
        }
        debug_assert_eq!(self.tasks[task as usize], NONE, "task {task} exists");
        self.tasks[task as usize] = e;
        self.groups[attr.group.0].tasks += 1;
    }

    /// A task is no more; its number is free. One that is still queued leaves first.
    pub fn remove_task(&mut self, task: u32, now: u64) {
        let e = self.entity_of(task);
        self.dequeue(task, now, Dequeue::End);
        let (cpu, group) = (self.entities[e].cpu, self.entities[e].group);
        if self.rqs[cpu].curr == e {
            self.put_prev_task(cpu);
        }
        if self.entities[e].attached && !self.entities[e].moving {
            self.remove_load(e);
        }
        self.groups[group].tasks -= 1;
        self.tasks[task as usize] = NONE;
        self.free.push(e);
    }

    /// Changes a task while it is on no queue, and puts it back where it was.
    fn change(&mut self, e: u32, now: u64, change: impl FnOnce(&mut Fair)) {
        let cpu = self.entities[e].cpu;
        let task = self.entities[e].task;
        self.rqs[cpu].clock.advance(now);
        let (queued, running) = (self.entities[e].on_rq, self.rqs[cpu].curr == e);
        if queued {
            self.dequeue(task, now, Dequeue::Change);
        }
        if running {
            self.put_prev_task(cpu);
        }
        change(self);
        if queued {
            self.enqueue(cpu as usize, task, now, Enqueue::Changed);
        }
        if running {
            self.set_next_task(cpu, e);
        }
    }

    fn set_load(&mut self, e: u32) {
        let entity = &mut self.entities[e];
        let load = Load::of_task(entity.nice, entity.policy == SchedPolicy::Idle);
        let (q, attached) = (entity.queue, entity.attached);
        self.reweight(q, e, load);
        if !attached {
            let entity = &mut self.entities[e];
            let avg = &mut entity.avg;
            let sum = if avg.load_sum == 0 { avg.divider() } else { avg.load_sum };
            avg.load_avg = u64::from(load.w) * sum / avg.divider();
        }
    }

    /// After a task has got another nice level: whether its CPU is marked for reschedule by that.
    fn nice_changed(&mut self, e: u32, old: i8, now: u64) -> bool {
        let entity = &self.entities[e];
        let cpu = entity.cpu;
        if !entity.on_rq || self.queues[cpu].nr == 1 {
            return false;
        }
        if self.rqs[cpu].curr == e {
            let marks = entity.nice > old;
            self.rqs[cpu].resched |= marks;
            return marks;
        }
        self.wakeup_preempts(cpu as usize, entity.task, now)
    }

    /// Changes a task's nice level. Returns whether its CPU is marked for reschedule by that.
    ///
    /// Source: specs/sched-fair.md#changes.
    pub fn set_nice(&mut self, task: u32, nice: i8, now: u64) -> bool {
        let e = self.entity_of(task);
        let (old, nice) = (self.entities[e].nice, nice.clamp(-20, 19));
        if old == nice {
            return false;
        }
        self.change(e, now, |fair| {
            fair.entities[e].nice = nice;
            fair.set_load(e);
        });
        self.nice_changed(e, old, now)
    }

    /// Changes a task's policy, at the same nice level.
    ///
    /// Source: specs/sched-fair.md#changes.
    pub fn set_policy(&mut self, task: u32, policy: SchedPolicy, now: u64) {
        let e = self.entity_of(task);
        self.change(e, now, |fair| {
            fair.entities[e].policy = policy;
            fair.set_load(e);
        });
    }

    /// Gives a task a slice of its own, ns, cut to 0.1..100 ms, or takes it away.
    ///
    /// Source: specs/sched-fair.md#slices.
    pub fn set_slice(&mut self, task: u32, slice_ns: Option<u32>, now: u64) {
        let e = self.entity_of(task);
        self.change(e, now, |fair| {
            let base = fair.knobs.base_slice_ns;
            let entity = &mut fair.entities[e];
            entity.custom_slice = slice_ns.is_some();
            entity.slice = slice_ns.map_or(base, cut_slice);
        });
    }

    /// Moves a task to another group. Returns whether its CPU is marked for reschedule by that.
    ///
    /// Source: specs/sched-fair.md#changes.
    pub fn set_group(&mut self, task: u32, group: GroupId, now: u64) -> bool {
        let e = self.entity_of(task);
        let (cpu, old) = (self.entities[e].cpu, self.entities[e].group);
        let running = self.rqs[cpu].curr == e;
        self.groups[old].tasks -= 1;
        self.groups[group.0].tasks += 1;
        let to = self.queue_of(group.0, cpu);
        self.change(e, now, |fair| {
            let entity = &fair.entities[e];
            let (from, attached) = (entity.queue, entity.attached);
            // One that is queued has left with its distance to the floor; one that sleeps gets no more for it
            // than it would here.
            let asleep = fair.knobs.rules.is_cfs() && attached && !entity.relative;
            if asleep {
                fair.place_cfs(from, e, false);
                fair.unbase(from, e);
            }
            if attached {
                fair.update_load_avg(from, e, load::PLAIN);
                fair.detach_load(from, e);
                fair.update_group_load(from);
                fair.propagate_up(from);
            }
            let entity = &mut fair.entities[e];
            entity.attached = false;
            entity.group = group.0;
            entity.queue = to;
            if attached {
                fair.update_load_avg(to, e, load::PLAIN);
                fair.attach_load(to, e);
                fair.update_group_load(to);
                fair.propagate_up(to);
            }
            if asleep {
                fair.rebase(to, e);
            }
        });
        self.rqs[cpu].resched |= running;
        running
    }

    // What there is to see.

    /// The task that `cpu` runs. One that went to sleep stays that until another is picked.
    #[inline]
    pub fn current(&self, cpu: usize) -> Option<u32> {
        let e = self.rqs[cpu as u32].curr;
        (e != NONE).then(|| self.entities[e].task)
    }

    /// Whether `cpu` runs nobody, of whatever class.
    pub fn is_idle(&self, cpu: usize) -> bool {
        self.rqs[cpu as u32].clock.is_idle()
    }

    /// Whether `cpu` is marked for reschedule. [`Fair::pick`] clears the mark.
    #[inline]
    pub fn need_resched(&self, cpu: usize) -> bool {
        self.rqs[cpu as u32].resched
    }

    /// Marks `cpu` for reschedule, for a reason that this class does not know.
    pub fn set_need_resched(&mut self, cpu: usize) {
        self.rqs[cpu as u32].resched = true;
    }

    /// Tasks queued on `cpu` that are not in a throttled group; delayed ones count.
    #[inline]
    pub fn nr_running(&self, cpu: usize) -> u32 {
        self.queues[cpu as u32].h_nr
    }

    /// Of those: asleep, but still queued.
    #[inline]
    pub fn h_nr_delayed(&self, cpu: usize) -> u32 {
        self.queues[cpu as u32].h_nr_delayed
    }

    /// The others.
    #[inline]
    pub fn nr_runnable(&self, cpu: usize) -> u32 {
        self.queues[cpu as u32].h_nr_runnable()
    }

    /// Whether only tasks of policy idle are queued on `cpu`, and at least one.
    #[inline]
    pub fn idle_only(&self, cpu: usize) -> bool {
        let queue = &self.queues[cpu as u32];
        queue.h_nr > 0 && queue.h_nr == queue.idle_h_nr
    }

    /// Load of `cpu` as wake-ups compare it, as it was last updated: of those asleep too, or under rules up to
    /// 4.16 of those who are queued.
    #[inline]
    pub fn wake_load(&self, cpu: usize) -> u64 {
        if self.knobs.rules.keeps_runnable_load() {
            self.runnable_load_avg(cpu)
        } else {
            self.load_avg(cpu)
        }
    }

    /// Load of `cpu`, of those asleep too, as it was last updated.
    #[inline]
    pub fn load_avg(&self, cpu: usize) -> u64 {
        self.queues[cpu as u32].avg.load_avg
    }

    /// Utilisation of `cpu`, of 1024, as it was last updated.
    #[inline]
    pub fn util_avg(&self, cpu: usize) -> u64 {
        u64::from(self.queues[cpu as u32].avg.util_avg)
    }

    /// How many tasks wanted to run on `cpu`, times 1024, as it was last updated.
    #[inline]
    pub fn runnable_avg(&self, cpu: usize) -> u64 {
        u64::from(self.queues[cpu as u32].avg.runnable_avg)
    }

    /// Sum of the estimates of those who are awake on `cpu`.
    #[inline]
    pub fn util_est(&self, cpu: usize) -> u64 {
        u64::from(self.queues[cpu as u32].avg.util_est)
    }

    /// Utilisation of `cpu` as balancing and wake-ups use it: the larger of average and estimate, at most the capacity.
    ///
    /// Source: specs/sched-fair.md#util-est.
    #[inline]
    pub fn cpu_util(&self, cpu: usize) -> u64 {
        let capacity = u64::from(self.rqs[cpu as u32].clock.capacity());
        self.util_avg(cpu).max(self.util_est(cpu)).min(capacity)
    }

    /// The same as it would be without a task that runs there: the task is taken off the average and off the
    /// estimate before the larger of the two is taken.
    ///
    /// Source: specs/sched-fair.md#util-est.
    pub fn cpu_util_without(&self, cpu: usize, task: u32) -> u64 {
        let capacity = u64::from(self.rqs[cpu as u32].clock.capacity());
        let of = self.task_avg(task);
        let average = self.util_avg(cpu).saturating_sub(u64::from(of.util_avg));
        let estimate = self.util_est(cpu).saturating_sub(u64::from(of.util_est));
        average.max(estimate).min(capacity)
    }

    /// The address of what is kept of a task, and its bytes, for who has it fetched before its turn; 0 where
    /// there is no such task.
    #[inline]
    pub fn address(&self, task: u32) -> (usize, usize) {
        let entity = self.tasks.get(task as usize).and_then(|&e| self.entities.0.get(e as usize));
        (entity.map_or(0, |e| std::ptr::from_ref(e).addr()), size_of::<Entity>())
    }

    /// The task that is first in order of those who wait on `cpu`'s own queue, for the same; nothing but that queue is
    /// looked at. `None` also where that is a group, or one of very many.
    #[inline]
    pub fn waits_first(&self, cpu: usize) -> Option<u32> {
        let entity = self.queues[cpu as u32].line.near()?;
        Some(self.names[entity as usize]).filter(|&task| task != NONE)
    }

    /// Where the two halves of `cpu`'s queue lie, and how many bytes of each matter when a task comes or goes, for
    /// the same.
    #[inline]
    pub fn queue_addresses(&self, cpu: usize) -> [(usize, usize); 2] {
        let (rq, queue) = (&self.rqs[cpu as u32], &self.queues[cpu as u32]);
        let (rq, queue) = (std::ptr::from_ref(rq).addr(), std::ptr::from_ref(queue).addr());
        [(rq, size_of::<RunQueue>()), (queue, Queue::HOT)]
    }

    /// The address of `cpu`'s mark for reschedule, for the same.
    #[inline]
    pub fn mark_address(&self, cpu: usize) -> usize {
        (&raw const self.rqs[cpu as u32].resched).addr()
    }

    /// Averages of a task, as they were last updated.
    #[inline]
    pub fn task_avg(&self, task: u32) -> &Avg {
        &self.entities[self.entity_of(task)].avg
    }

    /// `load_avg` of a task, as it was last updated.
    #[inline]
    pub fn task_load_avg(&self, task: u32) -> u64 {
        self.task_avg(task).load_avg
    }

    /// `util_avg` of a task, as it was last updated.
    #[inline]
    pub fn task_util(&self, task: u32) -> u64 {
        u64::from(self.task_avg(task).util_avg)
    }

    /// `runnable_avg` of a task, as it was last updated.
    #[inline]
    pub fn task_runnable(&self, task: u32) -> u64 {
        u64::from(self.task_avg(task).runnable_avg)
    }

    /// The larger of a task's utilisation and what it used in its recent activations.
    #[inline]
    pub fn task_util_est(&self, task: u32) -> u64 {
        let avg = self.task_avg(task);
        u64::from(avg.util_avg.max(avg.util_est))
    }

    /// Run time of a task so far, ns, up to when it was last charged.
    #[inline]
    pub fn sum_exec_runtime(&self, task: u32) -> u64 {
        self.entities[self.entity_of(task)].sum_exec
    }

    /// How long a task ran from one pick to the next, the last time that it had the CPU before now, ns.
    ///
    /// Asked right after a pick it is the sample of `slice_max`, if [`Fair::is_light`].
    pub fn last_run_ns(&self, task: u32) -> u64 {
        self.entities[self.entity_of(task)].last_run
    }

    /// Whether the task weighs at most half of what its CPU's root queue does.
    pub fn is_light(&self, task: u32) -> bool {
        let entity = &self.entities[self.entity_of(task)];
        self.queues[entity.cpu].weight >= 2 * u64::from(entity.load.scaled)
    }

    /// When a task was last charged or began to run, ns of its CPU; 0 since it changed CPU.
    #[inline]
    pub fn exec_start(&self, task: u32) -> u64 {
        self.entities[self.entity_of(task)].exec_start
    }

    /// What is left of the current slice of who runs on `cpu`, ns of run time, as of when it was picked: for a
    /// timer that ends slices (`HRTICK`). `None` where one or nobody is queued.
    pub fn slice_left(&self, cpu: usize) -> Option<u64> {
        let e = self.rqs[cpu as u32].curr;
        if e == NONE || self.queues[cpu as u32].h_nr < 2 {
            return None;
        }
        let entity = &self.entities[e];
        let ran = entity.sum_exec - entity.prev_sum_exec;
        let slice = match self.knobs.rules {
            Rules::Eevdf => u64::from(entity.slice),
            Rules::Cfs4_5 | Rules::Cfs4_15 | Rules::Cfs6_1 => self.sched_slice(entity.queue, e),
        };
        Some(slice.saturating_sub(ran))
    }

    /// The task's weight, 1024 at nice 0.
    #[inline]
    pub fn task_weight(&self, task: u32) -> u32 {
        self.entities[self.entity_of(task)].load.w
    }

    /// The task's policy.
    #[inline]
    pub fn policy(&self, task: u32) -> SchedPolicy {
        self.entities[self.entity_of(task)].policy
    }

    /// The task's nice level.
    #[inline]
    pub fn nice(&self, task: u32) -> i8 {
        self.entities[self.entity_of(task)].nice
    }

    /// The task's group.
    #[inline]
    pub fn group_of(&self, task: u32) -> GroupId {
        GroupId(self.entities[self.entity_of(task)].group)
    }

    /// The CPU that the task belongs to.
    #[inline]
    pub fn cpu_of(&self, task: u32) -> usize {
        self.entities[self.entity_of(task)].cpu as usize
    }

    /// Whether the task is on a queue; a delayed one is.
    #[inline]
    pub fn is_queued(&self, task: u32) -> bool {
        self.entities[self.entity_of(task)].on_rq
    }

    /// Whether the task sleeps, but is still queued.
    #[inline]
    pub fn is_delayed(&self, task: u32) -> bool {
        self.entities[self.entity_of(task)].delayed
    }

    /// Whether the task's group, or one above, has used up its quota where the task is.
    #[inline]
    pub fn is_throttled(&self, task: u32) -> bool {
        let entity = &self.entities[self.entity_of(task)];
        self.queues[entity.queue].limited.count > 0
    }

    /// Whether the task's group, or one above, has used up its quota on `cpu`.
    pub fn is_throttled_on(&self, task: u32, cpu: usize) -> bool {
        let mut g = self.entities[self.entity_of(task)].group;
        // Without a queue there a group is throttled as the one above it.
        while self.groups[g].queues[cpu] == NONE {
            g = self.groups[g].parent;
        }
        self.queues[self.groups[g].queues[cpu]].limited.count > 0
    }

    /// Whether the task is the one that is wished for next in its queue, or under CFS was preempted last.
    #[inline]
    pub fn is_next_buddy(&self, task: u32) -> bool {
        let e = self.entity_of(task);
        let queue = &self.queues[self.entities[e].queue];
        queue.next == e || queue.last == e
    }

    /// Virtual run time and deadline of a task (under CFS, where it stood in the order last); meaningful against others of its queue, while it is on it.
    pub fn virtual_times(&self, task: u32) -> (i64, i64) {
        let entity = &self.entities[self.entity_of(task)];
        (entity.vruntime, entity.deadline)
    }

    /// How much a task that is on no queue was behind (ahead: negative), virtual ns.
    pub fn vlag(&self, task: u32) -> i64 {
        self.entities[self.entity_of(task)].vlag
    }

    // The balancer's list.

    /// The task queued on `cpu` that has run longest ago: where detaching begins. Throttled and running ones are in the list too.
    ///
    /// Source: specs/sched-fair.md#order.
    #[inline]
    pub fn coldest(&self, cpu: usize) -> Option<u32> {
        let e = self.rqs[cpu as u32].oldest;
        (e != NONE).then(|| self.entities[e].task)
    }

    /// The next one toward those that ran most recently.
    #[inline]
    pub fn warmer(&self, task: u32) -> Option<u32> {
        let e = self.entities[self.entity_of(task)].newer;
        (e != NONE).then(|| self.entities[e].task)
    }

    /// Puts a queued task to the front, as one that was looked at and not taken.
    pub fn to_front(&mut self, task: u32) {
        let e = self.entity_of(task);
        if self.entities[e].on_rq {
            self.touch_list(e);
        }
    }
}

/// The shortest and the longest slice that a task has of its own, ns.
///
/// Source: specs/sched-fair.md#slices.
pub const SLICE_NS: (u32, u32) = (100_000, 100_000_000);

/// A slice that somebody asked for, ns.
fn cut_slice(ns: u32) -> u32 {
    ns.clamp(SLICE_NS.0, SLICE_NS.1)
}
