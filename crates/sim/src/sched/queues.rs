//! The run queues of all CPUs, with what is known of each task and counted of it.
//!
//! Everything that changes a queue is here, and keeps what others look at in step with it: the
//! bitmaps of idle CPUs, the figures that balancing sums up, the counters.

use super::counters::Counters;
use super::groups::Groups;
use super::homes::Homes;
use super::tracks::Tracks;
use super::wakelist::WakeLists;
use super::{BOOT, Ns, Terms, Waiting};
use crate::kernel::TICK;
use crate::latency::Latencies;
use crate::random::Stream;
use crate::table::{prefetch_at, prefetch_value};
use homenode_core::scenario::SchedPolicy;
use homenode_core::sched::balance::{
    self, Blocks, Candidate, Facts, Figures, IdleType, Outcome, Refusal,
};
use homenode_core::sched::domain::Domains;
use homenode_core::sched::fair::{Dequeue, Dequeued, Enqueue, Fair, Pick};
use homenode_core::sched::stats;
use homenode_wake as wake;
use std::collections::BTreeMap;

/// CPUs that a task may run on: a set of places, kept once for all tasks that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuSet {
    pub(crate) words: Box<[u64]>,
    pub(crate) count: u32,
}

impl CpuSet {
    pub(crate) fn of(cpus: usize, places: impl IntoIterator<Item = usize>) -> Self {
        let mut words = vec![0u64; cpus.div_ceil(64)].into_boxed_slice();
        for place in places {
            words[place / 64] |= 1 << (place % 64);
        }
        Self::of_words(words.into_vec())
    }
    pub(crate) fn of_words(words: Vec<u64>) -> Self {
        let count = words.iter().map(|w| w.count_ones()).sum();
        Self { words: words.into_boxed_slice(), count }
    }
    #[inline]
    pub(crate) fn has(&self, place: usize) -> bool {
        self.words[place / 64] >> (place % 64) & 1 != 0
    }
    /// The first that is in another set too.
    pub(crate) fn first_in(&self, other: &Self) -> Option<usize> {
        let both = |w: usize| self.words[w] & other.words[w];
        let word = (0..self.words.len()).find(|&w| both(w) != 0)?;
        Some(word * 64 + both(word).trailing_zeros() as usize)
    }
    /// The first of it.
    pub(crate) fn first(&self) -> usize {
        let word = self.words.iter().position(|&w| w != 0).unwrap_or(0);
        word * 64 + self.words[word].trailing_zeros() as usize % 64
    }
}

/// Latencies that are kept before they are written to the tasks' figures.
const MOST_RUN_AFTER: usize = 1024;

/// From so many CPUs on a fork asks for sums of blocks.
const MANY: usize = 128;

/// The number of the set of all CPUs that are online.
pub(crate) const ALL: u32 = 0;

/// What is known of a task beside its place in a queue. What comes and goes with it is the first line of the host's
/// cache, what it is counted by the second.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Sched {
    /// What it waits for, if it sleeps, and since when.
    pub(crate) since: Ns,
    /// When it was woken and has not run since; `Ns::MAX`: it has.
    pub(crate) woken: Ns,
    /// When it was last put on a queue without running.
    pub(crate) queued: Ns,
    pub(crate) waiting: Waiting,
    /// It has been woken and is on its CPU's list, and on no queue yet.
    pub(crate) listed: bool,
    /// The place of its track, if it is followed.
    pub(crate) track: Option<u8>,
    /// Where it may run: a number of [`Queues::sets`]. It is empty if none of these CPUs is online.
    pub(crate) set: u32,
    /// How it was born.
    pub(crate) terms: Terms,
    pub(crate) figures: TaskFigures,
    /// Where it asked to run, which its group and the CPUs that are online may restrict.
    pub(crate) asked: u32,
}

const _: () = assert!(std::mem::offset_of!(Sched, figures) <= 64, "the first line");

impl Sched {
    pub(crate) fn new(terms: &Terms, now: Ns, track: Option<u8>) -> Self {
        Self {
            set: terms.set,
            asked: terms.set,
            terms: *terms,
            waiting: Waiting::Sleep,
            since: now,
            woken: Ns::MAX,
            queued: now,
            listed: false,
            track,
            figures: TaskFigures::default(),
        }
    }
}

/// Where a task's time has gone, and how often it was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TaskFigures {
    /// Nanoseconds on a queue without running.
    pub wait_ns: u64,
    /// Nanoseconds in interruptible sleep.
    pub sleep_ns: u64,
    /// Nanoseconds in uninterruptible sleep.
    pub block_ns: u64,
    /// How often it was woken.
    pub wakeups: u64,
    /// How often it went to another CPU.
    pub migrations: u64,
    /// How often it left a CPU by itself, and how often it did not.
    pub voluntary: u64,
    /// See `voluntary`.
    pub involuntary: u64,
    /// From a wake-up until it ran.
    pub latency: Latencies,
}

impl TaskFigures {
    /// The same of another task as well.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self {
            wait_ns,
            sleep_ns,
            block_ns,
            wakeups,
            migrations,
            voluntary,
            involuntary,
            latency,
        } = other;
        self.wait_ns += wait_ns;
        self.sleep_ns += sleep_ns;
        self.block_ns += block_ns;
        self.wakeups += wakeups;
        self.migrations += migrations;
        self.voluntary += voluntary;
        self.involuntary += involuntary;
        self.latency.merge(latency);
    }
}

/// All run queues.
pub(crate) struct Queues {
    pub(crate) fair: Fair,
    pub(crate) wake: wake::Cpus,
    /// What wake-ups know of tasks: first the idle tasks by CPU, then all others by number.
    pub(crate) wakers: Vec<wake::Task>,
    pub(crate) tasks: Vec<Sched>,
    pub(crate) sets: Vec<CpuSet>,
    /// All sets but the first by their words: who is born asks.
    known: BTreeMap<Box<[u64]>, u32>,
    pub(crate) groups: Groups,
    pub(crate) counters: Counters,
    pub(crate) tracks: Tracks,
    pub(crate) homes: Homes,
    pub(crate) lists: WakeLists,
    pub(super) figures: Vec<Figures>,
    /// The figures, summed up by blocks of CPUs.
    pub(super) blocks: Blocks,
    /// By CPU: where the last task was sent that it has taken a CPU from.
    distributed: Vec<usize>,
    idle: Vec<u64>,
    /// CPUs that have tasks, all of policy IDLE.
    idle_only: Vec<u64>,
    /// From a wake-up until the task ran: a task's histogram is large and in none of the host's caches, so
    /// many are written at once.
    run_after: Vec<(u32, Ns)>,
    /// Random numbers of newly idle balancing.
    dice: Stream,
    /// What looking at a CPU costs, and moving a task.
    pub(crate) look: Ns,
    carry: Ns,
    /// What both have cost so far in this balancing.
    pub(crate) looked: Ns,
    /// A queue has come to hold two tasks or more since somebody asked.
    pub(crate) crowded: bool,
    /// Time of the rules.
    pub(crate) now: Ns,
    /// Tasks that balancing has moved, whither: the executive takes note of it.
    pub(crate) moved: Vec<(u32, usize)>,
    /// CPUs whose running task is to be pushed away.
    pub(crate) pushes: Vec<usize>,
    /// A CPU has been marked for whom nobody has sent for yet.
    pub(crate) newly_marked: bool,
    /// CPUs that balancing has charged and that may have been marked by that.
    pub(crate) charged: Vec<usize>,
}

impl Queues {
    pub(crate) fn new(
        fair: Fair,
        wake: wake::Cpus,
        counters: Counters,
        homes: Homes,
        lists: WakeLists,
        dice: Stream,
        (look, carry): (Ns, Ns),
    ) -> Self {
        let cpus = homes.nr_cpus();
        let mut idle = vec![u64::MAX; cpus.div_ceil(64)];
        if cpus % 64 != 0 {
            idle[cpus / 64] = (1 << (cpus % 64)) - 1;
        }
        Self {
            fair,
            wake,
            wakers: (0..cpus).map(|cpu| wake::Task::born(cpu as u32, 0)).collect(),
            tasks: Vec::new(),
            sets: vec![CpuSet::of(cpus, 0..cpus)],
            known: BTreeMap::new(),
            groups: Groups::default(),
            counters,
            tracks: Tracks::default(),
            homes,
            lists,
            figures: vec![Figures::default(); cpus],
            blocks: Blocks::new(cpus),
            distributed: vec![0; cpus],
            idle_only: vec![0; idle.len()],
            idle,
            run_after: Vec::with_capacity(MOST_RUN_AFTER),
            dice,
            look,
            carry,
            looked: 0,
            crowded: false,
            now: BOOT,
            moved: Vec::new(),
            pushes: Vec::new(),
            newly_marked: false,
            charged: Vec::new(),
        }
    }
    /// The tick that the rules' time is in.
    #[inline]
    pub(crate) fn jiffies(&self) -> u64 {
        (self.now - BOOT) * 1000 / TICK
    }
    pub(crate) fn cpus(&self) -> usize {
        self.figures.len()
    }
    /// The number of the set of these CPUs; without any, of all that are online.
    pub(crate) fn set(&mut self, places: &[usize]) -> u32 {
        if places.is_empty() {
            return ALL;
        }
        let set = CpuSet::of(self.cpus(), places.iter().copied());
        self.other_set(set.words)
    }
    /// The number of a set, but for [`ALL`]: those that are online are others later.
    pub(super) fn other_set(&mut self, words: Box<[u64]>) -> u32 {
        if let Some(&number) = self.known.get(&words) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(CpuSet::of_words(words.to_vec()));
        self.known.insert(words, number);
        number
    }
    #[inline]
    pub(crate) fn may_run(&self, task: usize, cpu: usize) -> bool {
        let set = self.tasks[task].set;
        self.sets[set as usize].has(cpu)
    }
    /// Whether none of the CPUs that a task may run on is online.
    #[inline]
    pub(crate) fn is_nowhere(&self, task: usize) -> bool {
        self.sets[self.tasks[task].set as usize].count == 0
    }
    /// Whether a CPU's idle task runs, nothing is queued there, and nobody is on its way there.
    #[inline]
    pub(crate) fn is_idle(&self, cpu: usize) -> bool {
        self.idle[cpu / 64] >> (cpu % 64) & 1 != 0
    }
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts { figures: &self.figures, idle: &self.idle, misfit: &[] }
    }
    /// What others look at follows a CPU's queue.
    #[inline]
    pub(crate) fn follow(&mut self, cpu: usize) {
        let nr = self.fair.nr_running(cpu);
        self.blocks.change(cpu);
        let f = &mut self.figures[cpu];
        self.crowded |= nr >= 2 && f.nr_running < 2;
        f.load = self.fair.load_avg(cpu);
        f.util = self.fair.cpu_util(cpu) as u32;
        f.runnable = self.fair.runnable_avg(cpu) as u32;
        f.nr_running = nr;
        f.h_nr_queued = nr;
        self.set_idle(cpu, nr == 0);
        let (word, bit) = (cpu / 64, 1 << (cpu % 64));
        let only = self.fair.idle_only(cpu);
        if (self.idle_only[word] & bit != 0) != only {
            self.idle_only[word] ^= bit;
            self.wake.set_sched_idle(cpu as u32, only);
        }
        if self.counters.on() {
            // Whatever happens to a queue has its running task charged.
            if let Some(task) = self.fair.current(cpu) {
                self.charge(task as usize);
            }
        }
    }
    /// A CPU's queue is empty or not: it is idle if its list is empty too.
    #[inline]
    fn set_idle(&mut self, cpu: usize, empty: bool) {
        let (word, bit) = (cpu / 64, 1 << (cpu % 64));
        let (was, is) = (self.idle[word] & bit != 0, empty && !self.lists.pending(cpu));
        if was != is {
            self.idle[word] ^= bit;
            self.wake.set_idle(cpu as u32, is);
        }
    }
    /// Whether others see a CPU as idle follows its list.
    fn follow_idle(&mut self, cpu: usize) {
        self.blocks.change(cpu);
        self.set_idle(cpu, self.figures[cpu].nr_running == 0);
    }
    /// A bitmap: CPUs that have tasks, all of policy IDLE.
    pub(crate) fn idle_only(&self) -> &[u64] {
        &self.idle_only
    }

    /// Sums the blocks of CPUs up anew whose figures have changed.
    fn sum_up(&mut self) {
        let facts = Facts { figures: &self.figures, idle: &self.idle, misfit: &[] };
        self.blocks.sum_up(&facts);
    }
    /// Has what forks look at brought up to date: the sums of blocks, on a machine of so many CPUs that they are of use.
    pub(super) fn sum_up_for_fork(&mut self) {
        if self.cpus() >= MANY {
            self.sum_up();
        }
    }
    /// The sums of blocks as [`Self::sum_up_for_fork`] left them; none on a smaller machine.
    pub(super) fn blocks(&self) -> Option<&Blocks> {
        (self.cpus() >= MANY).then_some(&self.blocks)
    }

    // ── What happens to a task ─────────────────────────────────────────────────

    /// Has what is known of a task fetched.
    #[inline]
    pub(crate) fn fetch(&self, task: usize) {
        prefetch_value((&raw const self.tasks[task]).addr(), 2 * 64);
        self.counters.fetch(task);
        prefetch_at(&raw const self.wakers[self.cpus() + task]);
        self.fetch_entity(task);
    }
    /// Has fetched what others see of a CPU.
    #[inline]
    pub(crate) fn fetch_figures(&self, cpu: usize) {
        prefetch_at(&raw const self.figures[cpu]);
        if self.cpus() >= MANY {
            prefetch_at(self.blocks.address(cpu) as *const u8);
        }
    }
    /// Has fetched what a choice of a CPU begins with: where this one is, and its idle task, which wakes for its
    /// interrupts.
    #[inline]
    pub(crate) fn fetch_place(&self, cpu: usize) {
        prefetch_at(self.wake.layout().address(cpu as u32) as *const u8);
        prefetch_at(&raw const self.wakers[cpu]);
    }
    /// Has fetched what is changed of a task that runs, when another comes onto its queue.
    #[inline]
    pub(crate) fn fetch_running(&self, task: usize) {
        self.fetch_entity(task);
        self.counters.fetch_running(task);
    }
    #[inline]
    fn fetch_entity(&self, task: usize) {
        let (address, bytes) = self.fair.address(task as u32);
        prefetch_value(address, bytes);
    }
    /// A new task is known from now on; tasks come in the order of their numbers.
    pub(super) fn know(&mut self, task: Sched) {
        self.tasks.push(task);
    }
    /// A task that is nowhere is put on a CPU's queue.
    pub(crate) fn enqueue(&mut self, task: usize, cpu: usize, how: Enqueue) {
        let now = self.now;
        if self.fair.cpu_of(task as u32) != cpu {
            self.fair.migrate(task as u32, cpu, now);
        }
        self.fair.enqueue(cpu, task as u32, now, how);
        self.tasks[task].queued = now;
        self.counters.queued(task, now);
        self.count_home(task);
        self.follow(cpu);
    }
    /// A task that has been taken off a queue goes on another.
    pub(crate) fn arrive(&mut self, task: usize, cpu: usize) {
        self.tasks[task].figures.migrations += 1;
        self.enqueue(task, cpu, Enqueue::Migrated);
        self.preempts(task, cpu);
    }
    /// Marks a CPU if a task that has come onto its queue runs before the one that does.
    pub(crate) fn preempts(&mut self, task: usize, cpu: usize) {
        if self.fair.current(cpu).is_some() {
            let before = self.fair.need_resched(cpu);
            self.fair.wakeup_preempts(cpu, task as u32, self.now);
            self.newly_marked |= !before && self.fair.need_resched(cpu);
        }
    }
    /// A task that is woken is put on a CPU's queue, or stays on the one that it has not left.
    pub(crate) fn woken(&mut self, task: usize, cpu: usize) {
        let now = self.now;
        let t = &mut self.tasks[task];
        let slept = now.saturating_sub(t.since);
        match t.waiting {
            Waiting::Sleep => t.figures.sleep_ns += slept,
            Waiting::Block { .. } => t.figures.block_ns += slept,
        }
        // Who comes from a list was counted when it was put on that.
        if !std::mem::take(&mut t.listed) {
            t.figures.wakeups += 1;
            t.woken = now;
        }
        t.queued = now;
        let waited = t.waiting;
        let delayed = self.fair.is_delayed(task as u32);
        if self.fair.cpu_of(task as u32) != cpu {
            t.figures.migrations += 1;
            self.fair.migrate(task as u32, cpu, now);
        }
        self.fair.enqueue(cpu, task as u32, now, Enqueue::Wakeup);
        if delayed {
            self.counters.woken_delayed(task, now);
        } else {
            self.counters.woken(task, cpu, now, waited);
        }
        self.count_home(task);
        self.follow(cpu);
    }
    /// A task that slept is put on a CPU's list. True: it is the first there, and the CPU is to be called.
    pub(crate) fn list(&mut self, task: usize, cpu: usize) -> bool {
        let t = &mut self.tasks[task];
        t.figures.wakeups += 1;
        (t.woken, t.listed) = (self.now, true);
        if self.fair.cpu_of(task as u32) != cpu {
            t.figures.migrations += 1;
            // Its averages leave the old queue now, and join the other when it comes there.
            self.fair.migrate(task as u32, cpu, self.now);
        }
        let first = self.lists.put(task, cpu);
        self.follow_idle(cpu);
        first
    }
    /// A CPU's current task stops running, for that reason.
    pub(crate) fn stop(&mut self, task: usize, cpu: usize, why: Stop) {
        let now = self.now;
        let gone = match why {
            Stop::Waits(waiting) => {
                let t = &mut self.tasks[task];
                (t.waiting, t.since) = (waiting, now);
                t.figures.voluntary += 1;
                self.fair.dequeue(task as u32, now, Dequeue::Sleep { special: false })
            }
            Stop::Ends => {
                self.tasks[task].figures.voluntary += 1;
                self.fair.dequeue(task as u32, now, Dequeue::End)
            }
        };
        self.charge(task);
        self.departs(task, cpu, false);
        match gone {
            Dequeued::Gone => {
                self.counters.leaves(task, cpu, now, self.tasks[task].waiting, why == Stop::Ends);
            }
            // Whether it waits hangs on who is picked: see [`Self::pick`].
            Dequeued::Delayed => {}
        }
        self.count_home(task);
        self.follow(cpu);
    }
    /// A task that sleeps and has not left its queue leaves it.
    pub(crate) fn leave_delayed(&mut self, task: usize) {
        if self.fair.is_delayed(task as u32) {
            let (now, cpu) = (self.now, self.fair.cpu_of(task as u32));
            self.fair.dequeue(task as u32, now, Dequeue::Sleep { special: true });
            self.counters.leaves(task, cpu, now, self.tasks[task].waiting, false);
            self.count_home(task);
            self.follow(cpu);
        }
    }
    /// A task that is on a queue and doesn't run is taken off, to be put on another or to end.
    pub(crate) fn take(&mut self, task: usize, how: Dequeue) {
        let (now, cpu) = (self.now, self.fair.cpu_of(task as u32));
        self.fair.dequeue(task as u32, now, how);
        self.counters.taken(task, cpu, now);
        self.count_home(task);
        self.follow(cpu);
    }
    /// A task that is on a queue is taken off and put back at once, since its group or its CPUs
    /// are others from now on: whether it runs or not, a wait ends.
    ///
    /// Source: specs/schedstats.md#wait.
    pub(crate) fn requeued(&mut self, task: usize) {
        let cpu = self.fair.cpu_of(task as u32);
        let runs = self.fair.current(cpu) == Some(task as u32);
        self.fair.set_policy(task as u32, self.tasks[task].terms.policy, self.now);
        self.counters.requeued(task, cpu, self.now, runs);
    }
    /// The CPU of a set where who may not stay is to go, as one CPU after the other asks for
    /// it: the next in turn.
    ///
    /// Source: specs/end-to-end.md#affinity.
    pub(crate) fn distribute(&mut self, asks: usize, set: u32) -> usize {
        let set = &self.sets[set as usize];
        let (last, cpus) = (self.distributed[asks], self.figures.len());
        let mut turn = (1..=cpus).map(|i| (last + i) % cpus);
        let next = turn.find(|&cpu| set.has(cpu)).unwrap_or(last);
        self.distributed[asks] = next;
        next
    }
    /// Who runs next on a CPU, of those on its queue.
    ///
    /// Who has gone to sleep and is still on the queue waits from when another is picked, and not
    /// where it leaves in this very search (specs/schedstats.md#delayed).
    pub(crate) fn pick(&mut self, cpu: usize) -> Option<usize> {
        let before = self.fair.current(cpu);
        loop {
            match self.fair.pick(cpu, self.now) {
                Pick::Task(task) => {
                    if let Some(sleeper) = before.filter(|&t| self.fair.is_delayed(t)) {
                        self.counters.waits(sleeper as usize, self.now);
                    }
                    self.follow(cpu);
                    return Some(task as usize);
                }
                Pick::LeftDelayed(task) => {
                    let task = task as usize;
                    self.counters.leaves(task, cpu, self.now, self.tasks[task].waiting, false);
                    self.count_home(task);
                }
                Pick::Idle => {
                    self.follow(cpu);
                    return None;
                }
            }
        }
    }
    /// A task that ran goes back to its queue, since another runs now.
    pub(crate) fn put_back(&mut self, task: usize, cpu: usize) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.queued = now;
        t.figures.involuntary += 1;
        self.charge(task);
        self.departs(task, cpu, true);
        self.counters.waits(task, now);
    }
    /// The same for the stopper, which takes a task to another CPU: nobody of this class runs then.
    pub(crate) fn stopped(&mut self, task: usize, cpu: usize) {
        self.fair.put_prev(cpu, self.now);
        self.put_back(task, cpu);
    }
    /// What a task ran since the counters saw it last.
    pub(crate) fn charge(&mut self, task: usize) {
        if self.counters.on() {
            let ran = self.fair.sum_exec_runtime(task as u32);
            self.counters.charged(task, ran, &self.fair);
        }
    }
    fn departs(&mut self, task: usize, cpu: usize, runnable: bool) {
        self.counters.departs(task, cpu, self.now, runnable);
        if let Some(track) = self.tasks[task].track {
            self.tracks.stops(track, self.now);
        }
    }
    /// Adds what has been kept of latencies to the tasks' figures.
    #[cold]
    #[inline(never)]
    fn note_latencies(&mut self) {
        for (place, &(task, ns)) in self.run_after.iter().enumerate() {
            if let Some(&(soon, _)) = self.run_after.get(place + 8) {
                self.tasks[soon as usize].figures.latency.fetch();
            }
            self.tasks[task as usize].figures.latency.add(ns * 1000);
        }
        self.run_after.clear();
    }
    /// Latencies that are not in the tasks' figures yet: the task, and nanoseconds.
    pub(crate) fn latencies(&self) -> &[(u32, Ns)] {
        &self.run_after
    }
    /// A task begins to run.
    pub(crate) fn begins(&mut self, task: usize, cpu: usize) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.figures.wait_ns += now.saturating_sub(t.queued);
        let woken = std::mem::replace(&mut t.woken, Ns::MAX);
        if let Some(track) = t.track {
            self.tracks.begins(track, cpu, now);
        }
        if woken != Ns::MAX {
            self.run_after.push((task as u32, now.saturating_sub(woken)));
            if self.run_after.len() == MOST_RUN_AFTER {
                self.note_latencies();
            }
        }
        self.counters.arrives(task, cpu, now, &self.fair);
    }
}

/// Why a task stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Waits(Waiting),
    Ends,
}

/// What balancing sees of the queues, with the domains that its counters belong to.
pub(crate) struct Seen<'a> {
    pub(crate) queues: &'a mut Queues,
    pub(crate) domains: &'a Domains,
    /// The CPU that pulls was idle before.
    pub(crate) idle: bool,
}

impl balance::Queues for Seen<'_> {
    fn facts(&self) -> Facts<'_> {
        self.queues.facts()
    }
    fn sum_up(&mut self) {
        self.queues.sum_up();
    }
    fn blocks(&self) -> Option<&Blocks> {
        Some(&self.queues.blocks)
    }
    fn update(&mut self, cpu: usize) {
        self.queues.fair.update(cpu, self.queues.now);
        self.queues.follow(cpu);
        self.queues.charged.push(cpu);
    }
    fn update_blocked(&mut self, cpu: usize) -> bool {
        let left = self.queues.fair.update_blocked(cpu, self.queues.now);
        self.queues.follow(cpu);
        left
    }
    fn capacity_left(&self, cpu: usize) -> u32 {
        self.domains.original(cpu)
    }
    fn coldest(&self, cpu: usize) -> Option<u32> {
        self.queues.fair.coldest(cpu)
    }
    fn warmer(&self, _cpu: usize, task: u32) -> Option<u32> {
        self.queues.fair.warmer(task)
    }
    fn clock(&mut self, _cpu: usize, scanned: u32) -> u64 {
        let q = &mut *self.queues;
        q.looked += Ns::from(scanned) * q.look;
        q.now + q.looked
    }
    fn roll(&mut self, _cpu: usize) -> u32 {
        self.queues.dice.below(1024) as u32
    }
    fn to_hot_end(&mut self, _cpu: usize, task: u32) {
        self.queues.fair.to_front(task);
    }
    fn candidate(&mut self, task: u32, from: usize, to: usize, numa: bool) -> Candidate {
        let jiffies = self.queues.jiffies();
        // What its CPU would lose with it: a group's task weighs what its group does there.
        let load = self.queues.fair.task_h_load(task, jiffies);
        let q = &*self.queues;
        let t = &q.tasks[task as usize];
        Candidate {
            throttled: q.fair.is_throttled(task) || q.fair.is_throttled_on(task, to),
            per_cpu_kthread: t.terms.per_cpu,
            allowed: q.may_run(task as usize, to),
            running: q.fair.current(from) == Some(task),
            idle_policy: t.terms.policy == SchedPolicy::Idle,
            next_buddy: q.fair.is_next_buddy(task),
            ran_ago_ns: q.now as i64 - q.fair.exec_start(task) as i64,
            load,
            util: q.fair.task_util_est(task),
            fits: true,
            locality: match numa {
                true => q.locality(self.domains, task, from, to, self.idle),
                false => balance::Locality::Any,
            },
        }
    }
    fn allowed(&self, task: u32, cpu: usize) -> bool {
        self.queues.may_run(task as usize, cpu)
    }
    fn current_allowed(&self, cpu: usize, to: usize) -> bool {
        self.queues.fair.current(cpu).is_none_or(|t| self.queues.may_run(t as usize, to))
    }
    fn detach(&mut self, task: u32, from: usize, _to: usize) {
        self.queues.take(task as usize, Dequeue::Move);
        self.queues.charged.push(from);
    }
    fn attach(&mut self, task: u32, to: usize) {
        self.queues.arrive(task as usize, to);
        self.queues.looked += self.queues.carry;
        self.queues.moved.push((task, to));
    }
    fn refused(&mut self, task: u32, why: Refusal) {
        let why = match why {
            Refusal::Affine => stats::Refused::Affine,
            Refusal::Running => stats::Refused::Running,
            Refusal::Hot | Refusal::TooMuchAndHot => stats::Refused::Hot,
            Refusal::Throttled | Refusal::PerCpuKthread | Refusal::TooMuch => return,
        };
        self.queues.counters.refused(task as usize, why);
    }
    fn forced(&mut self, task: u32) {
        self.queues.counters.forced(task as usize);
    }
    fn pending(&self, cpu: usize) -> bool {
        self.queues.lists.pending(cpu)
    }
    fn sched_idle(&self, cpu: usize) -> bool {
        self.queues.fair.idle_only(cpu)
    }
    fn need_resched(&self, cpu: usize) -> bool {
        self.queues.fair.need_resched(cpu)
    }
    fn balanced(&mut self, cpu: usize, level: usize, idle: IdleType, o: &Outcome) {
        let slot = self.domains.slot(cpu, level);
        self.queues.counters.balanced(slot, idle, o);
        let wake = &mut self.queues.wake;
        if let (Some(most), Some(shared)) = (o.idle_scan, wake.layout().llc(cpu as u32)) {
            wake.set_nr_idle_scan(shared, most);
        }
    }
    fn push(&mut self, from: usize, _to: usize) {
        self.queues.pushes.push(from);
    }
}
