//! A task of a course: it does what the task did, in its order, as far as the scheduler is concerned.
//!
//! A wake-up is a state: who comes to a wait that is over goes on. Source: specs/record-sched.md#replay.

use super::compute::Computing;
use super::{Ahead, Program};
use crate::cpus::parts;
use crate::sched::{Terms, Waker};
use crate::simulation::Simulation;
use crate::tasks::{Kind, On, Run};
use crate::watch::By;
use homenode_core::sched::course::{Course, Step, Wait};
use homenode_core::units::CpuId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A wake-up that has not happened, and one that has; beyond that: the number of the task that
/// waits for it, and [`WAITS`].
const NOT_YET: u32 = 0;
const HAPPENED: u32 = 1;
const WAITS: u32 = 2;
/// Work that is begun at once, in nanoseconds: what is counted in parts of a picosecond has to fit.
pub(super) const AT_ONCE: u64 = 1_000_000_000_000;

/// Bytes that are there, and who waits for how many.
#[derive(Debug, Default)]
struct Object {
    bytes: u64,
    takers: VecDeque<(usize, u64)>,
}

/// What all tasks of a course know.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) course: Arc<Course>,
    /// The CPUs that tasks may use, by place; none: all.
    cpus: Vec<usize>,
    /// The nice value of all of them, in place of their own.
    nice: Option<i8>,
    /// By number of a wake-up.
    wakes: Vec<AtomicU32>,
    /// By number of a pipe or socket.
    objects: Vec<Mutex<Object>>,
    /// By place among the lives: whether it has ended, and who waits for that.
    joins: Vec<Mutex<(bool, Vec<usize>)>>,
    /// Waits for bytes or an end that were opened, since nobody could go on.
    opened: AtomicUsize,
    /// By place among the lives: the task's number and one; 0: it has not begun.
    tasks: Vec<AtomicUsize>,
    /// Tasks that have begun, and that have ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Cast {
    pub(crate) fn new(course: Arc<Course>, cpus: Vec<usize>, nice: Option<i8>) -> Self {
        Self {
            wakes: (0..course.wakes).map(|_| AtomicU32::new(NOT_YET)).collect(),
            tasks: course.lives.iter().map(|_| AtomicUsize::new(0)).collect(),
            objects: (0..course.objects).map(|_| Mutex::default()).collect(),
            joins: course.lives.iter().map(|_| Mutex::default()).collect(),
            opened: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            course,
            cpus,
            nice,
        }
    }
    /// The task of a life, once it has begun.
    pub(crate) fn task(&self, life: usize) -> Option<usize> {
        self.tasks.get(life)?.load(Relaxed).checked_sub(1)
    }
    /// Whether all that have begun have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.begun.load(Relaxed) == self.ended.load(Relaxed)
    }
    fn object(&self, number: u32) -> MutexGuard<'_, Object> {
        self.objects[number as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn join(&self, life: usize) -> MutexGuard<'_, (bool, Vec<usize>)> {
        self.joins[life].lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Nobody can go on: one who waits for bytes or for an end does so all the same. Whether there was one.
    pub(crate) fn open(&self, sim: &mut Simulation) -> bool {
        let objects =
            (0..self.objects.len() as u32).find_map(|n| self.object(n).takers.pop_front());
        let joins = || (0..self.joins.len()).find_map(|n| self.join(n).1.pop());
        let Some(id) = objects.map(|(id, _)| id).or_else(joins) else { return false };
        self.opened.fetch_add(1, Relaxed);
        sim.wake(id, By::Outside);
        true
    }
    /// How often that was so.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Relaxed)
    }
    /// Where a task may run that may run on these CPUs, by place; none: anywhere.
    fn places(&self, sim: &Simulation, allowed: &[CpuId]) -> Vec<usize> {
        let there = |cpu: &CpuId| sim.cpus.find(*cpu);
        let own: Vec<usize> = allowed.iter().filter_map(there).collect();
        if self.cpus.is_empty() {
            return if own.len() == sim.cpus.len() { Vec::new() } else { own };
        }
        let both: Vec<usize> = own.iter().copied().filter(|p| self.cpus.contains(p)).collect();
        // Who could run nowhere runs where the others do.
        if both.is_empty() { self.cpus.clone() } else { both }
    }
    /// Begins a life, on the CPU of who starts it; the task is on no queue yet.
    pub(crate) fn begin(self: &Arc<Self>, sim: &mut Simulation, life: u32, cpu: usize) -> usize {
        let it = &self.course.lives[life as usize];
        let places = self.places(sim, &it.allowed);
        let terms = Terms {
            nice: self.nice.unwrap_or(it.nice),
            policy: it.policy,
            set: sim.sched.q.set(&places),
            followed: true,
            ..Terms::default()
        };
        let process = sim.add_program(&it.name);
        let space = sim.kernel.new_space();
        let program = Box::new(Actor::new(self.clone(), life));
        let id = sim.new_task(Kind::Thread, process, space, cpu, &terms, program);
        sim.kernel.space_mut(space).users = 1;
        let now = sim.now();
        sim.kernel.numa_born(id, None, 1, now);
        self.tasks[life as usize].store(id + 1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        id
    }
}

/// A task of a course.
pub(crate) struct Actor {
    cast: Arc<Cast>,
    life: u32,
    /// The next step, and what of it has been done: nanoseconds that it ran.
    at: usize,
    ran: u64,
    computing: Computing,
}

impl Actor {
    fn new(cast: Arc<Cast>, life: u32) -> Self {
        Self { cast, life, at: 0, ran: 0, computing: Computing::default() }
    }
    /// How the kernel would call a wait.
    const fn on(wait: Wait) -> On {
        match (wait.iowait, wait.uninterruptible) {
            (true, _) => On::Device { iowait: true },
            (false, true) => On::Device { iowait: false },
            (false, false) => On::Sleep,
        }
    }
    /// Does a step; whether it is done.
    fn step(&mut self, sim: &mut Simulation, id: usize, step: &Step) -> bool {
        match step {
            Step::Run(ns) => {
                let left = ns - self.ran;
                let now = left.min(AT_ONCE);
                self.computing.begin(parts(now * 1000));
                self.ran += now;
                if self.ran < *ns {
                    return false;
                }
                self.ran = 0;
            }
            Step::Await { wake, on } => {
                let mark = &self.cast.wakes[*wake as usize];
                if mark.load(Relaxed) != HAPPENED {
                    mark.store(id as u32 + WAITS, Relaxed);
                    sim.block(id, Self::on(*on));
                }
            }
            Step::Rest { ns, on } => {
                let until = sim.tasks[id].clock.saturating_add(ns.saturating_mul(1000));
                sim.block(id, Self::on(*on));
                sim.set_cpu_timer(id, until);
            }
            Step::Wake { wake, sync } => {
                let before = self.cast.wakes[*wake as usize].swap(HAPPENED, Relaxed);
                if let Some(other) = before.checked_sub(WAITS) {
                    let cpu = sim.tasks[id].cpu;
                    let waker = Waker { cpu, task: Some(id), sync: *sync, in_task: true };
                    sim.wake_from(other as usize, By::Task(id), waker);
                }
            }
            Step::Put { object, bytes } => {
                let mut woken = Vec::new();
                {
                    let mut it = self.cast.object(*object);
                    it.bytes += u64::from(*bytes);
                    let next = |it: &Object| {
                        it.takers.front().copied().filter(|(_, wanted)| *wanted <= it.bytes)
                    };
                    while let Some((other, wanted)) = next(&it) {
                        it.bytes -= wanted;
                        it.takers.pop_front();
                        woken.push(other);
                    }
                }
                let waker =
                    Waker { cpu: sim.tasks[id].cpu, task: Some(id), sync: true, in_task: true };
                for other in woken {
                    sim.wake_from(other, By::Task(id), waker);
                }
            }
            Step::Get { object, bytes, .. } => {
                let (mut it, bytes) = (self.cast.object(*object), u64::from(*bytes));
                if it.takers.is_empty() && it.bytes >= bytes {
                    it.bytes -= bytes;
                } else {
                    it.takers.push_back((id, bytes));
                    sim.block(id, On::Sleep);
                }
            }
            Step::Join(other) => {
                let mut it = self.cast.join(*other as usize);
                if !it.0 {
                    it.1.push(id);
                    sim.block(id, On::Sleep);
                }
            }
            Step::Fork(child) => {
                let cast = self.cast.clone();
                let child = cast.begin(sim, *child, sim.tasks[id].cpu);
                let clock = sim.tasks[id].clock;
                let t = &mut sim.tasks[child];
                (t.clock, t.started) = (clock, clock);
                sim.sched.inherits(child, id);
                sim.enqueue(child);
            }
            Step::Exec => sim.balance_exec(id),
            Step::Nice(nice) => {
                if self.cast.nice.is_none() {
                    sim.set_nice(id, *nice);
                }
            }
            Step::Allow(cpus) => {
                let mut places = self.cast.places(sim, cpus);
                if places.is_empty() {
                    places = (0..sim.cpus.len()).collect();
                }
                sim.set_affinity(id, id, &places);
            }
        }
        true
    }
    /// It is over. Nobody gets the CPU between this and its last switch, as in a kernel that is not preempted.
    fn end(&self, sim: &mut Simulation, id: usize) {
        sim.leaves_group(id);
        let waits = {
            let mut it = self.cast.join(self.life as usize);
            it.0 = true;
            std::mem::take(&mut it.1)
        };
        for other in waits {
            sim.wake(other, By::Task(id));
        }
        sim.tasks[id].run = Run::Ended;
        self.cast.ended.fetch_add(1, Relaxed);
    }
}

impl Program for Actor {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, _until: u64) -> Ahead {
        self.computing.ahead(sim, id)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        self.computing.back(sim, id, to)
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        self.computing.settle(sim, id);
    }
    fn act(&mut self, sim: &mut Simulation, id: usize, _until: u64) {
        if !self.computing.is_done() {
            return;
        }
        let cast = self.cast.clone();
        let steps = &cast.course.lives[self.life as usize].steps;
        let Some(step) = steps.get(self.at) else { return self.end(sim, id) };
        self.at += usize::from(self.step(sim, id, step));
        // Both are one call, and nobody has the CPU in between: who ends wakes its parent last, and who forks waits at
        // once where the child has its memory.
        let next = steps.get(self.at);
        if matches!(step, Step::Wake { .. }) && next.is_none() {
            self.end(sim, id);
        } else if let (Step::Fork(_), Some(next @ Step::Await { .. })) = (step, next) {
            self.at += usize::from(self.step(sim, id, next));
        }
    }
}

/// A task that computes all the time: what another program does that has a CPU's worth of work.
#[derive(Default)]
pub(crate) struct Hog(Computing);

impl Program for Hog {
    fn ahead(&mut self, sim: &mut Simulation, id: usize, _until: u64) -> Ahead {
        self.0.ahead(sim, id)
    }
    fn back(&mut self, sim: &mut Simulation, id: usize, to: u64) -> u64 {
        self.0.back(sim, id, to)
    }
    fn settle(&mut self, sim: &mut Simulation, id: usize) {
        self.0.settle(sim, id);
    }
    fn act(&mut self, _sim: &mut Simulation, _id: usize, _until: u64) {
        if self.0.is_done() {
            self.0.begin(parts(AT_ONCE * 1000));
        }
    }
}
