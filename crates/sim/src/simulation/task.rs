//! What a task is, how it begins and how it ends.

use super::{Event, Simulation};
use crate::hot::KINDS;
use crate::kernel::{Ctx, Fatal, Mapping, TaskNuma};
use crate::program::Steps;
use crate::space::{Holds, Kind};
use crate::vmstat::Item;
use homenode_core::scenario::{Map, Mempolicy, Process};
use homenode_core::units::{Pages, Picos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a task is.
pub(crate) enum Program {
    /// The steps of a scenario.
    Steps(Box<Steps>),
    /// Operations made beforehand on one mapping, over and over.
    Ids { ids: Arc<[u32]>, at: usize },
    /// What has a turn of its own: a recording's task.
    Turns(Box<dyn Turn>),
    /// A node's kswapd.
    Kswapd(usize),
    /// homenode, the daemon.
    Homenode,
    /// DAMON's thread, on homenode's behalf.
    Kdamond,
    /// The kernel's thread that merges pages.
    Ksmd,
    /// Whoever writes to files whose answer takes time: memory going offline.
    Writer,
    /// It has ended.
    Ended,
}

/// A program that does with its turn what it likes.
///
/// So the engine knows what a turn is, and not who comes with one of his own.
pub(crate) trait Turn: Send {
    /// Runs until the task's clock reaches `end` or it stops being runnable. The program
    /// is not in the task meanwhile.
    fn turn(&mut self, sim: &mut Simulation, id: usize, task: &mut Task, end: u64);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// On its CPU's queue.
    Runnable,
    /// Until a timer.
    Sleeping,
    /// Until all its children have ended.
    Waiting,
    /// Until the other threads come to the same step.
    Barrier,
    /// For good.
    Ended,
}

/// A task: a thread of a program, or a daemon.
pub(crate) struct Task {
    pub(crate) process: usize,
    pub(crate) space: usize,
    pub(crate) cpu: usize,
    pub(crate) clock: u64,
    /// Processor time in picoseconds.
    pub(crate) ran: u64,
    pub(crate) run: Run,
    pub(crate) program: Program,
    /// Operations being worked through, from `at`.
    pub(crate) ops: Vec<u32>,
    pub(crate) at: usize,
    /// Computing before each access, in picoseconds.
    pub(crate) compute: u64,
    pub(crate) deadline: u64,
    /// What it writes, if that is said.
    pub(crate) filling: Option<Filling>,
    pub(crate) parent: Option<usize>,
    pub(crate) children: usize,
    /// The task whose end this one waits for.
    pub(crate) waits_for: Option<usize>,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// Accesses by zone and direction.
    pub(crate) accesses: [u64; KINDS],
    pub(crate) killed: Option<Fatal>,
    /// What its steps that access memory did, by place of the step.
    pub(super) phases: BTreeMap<usize, Phase>,
    /// The step it is in, when it began, and the accesses before it.
    phase: Option<(usize, u64, [u64; KINDS])>,
}

/// A step that writes a content of its own choice.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    pub(crate) holds: Holds,
    /// The mapping's first page in the columns and its address.
    pub(crate) first: u32,
    pub(crate) vpn: u64,
}

/// What one task did in one of its steps.
#[derive(Clone, Copy, Default)]
pub(super) struct Phase {
    /// When it first began and last ended.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Time in it.
    pub(super) time: u64,
    pub(super) accesses: [u64; KINDS],
}

impl Task {
    /// The phase that the task is in, as it would be if it ended at `clock`.
    pub(super) fn phase_until(&self, clock: u64) -> Option<(usize, Phase)> {
        let (step, began, before) = self.phase?;
        let mut p =
            self.phases.get(&step).copied().unwrap_or(Phase { from: began, ..Phase::default() });
        p.to = clock;
        p.time += clock.saturating_sub(began);
        for (p, (now, before)) in p.accesses.iter_mut().zip(self.accesses.iter().zip(before)) {
            *p += now - before;
        }
        Some((step, p))
    }
    pub(crate) fn begin_phase(&mut self, step: usize) {
        self.phase = Some((step, self.clock, self.accesses));
    }
    pub(crate) fn end_phase(&mut self) {
        if let Some((step, p)) = self.phase_until(self.clock) {
            self.phases.insert(step, p);
            self.phase = None;
        }
    }
}

impl Simulation {
    pub(crate) fn new_task(
        &mut self,
        process: usize,
        space: usize,
        cpu: usize,
        program: Program,
        now: u64,
    ) -> usize {
        let id = self.tasks.len();
        // PIDs begin where a booted system's begin; the low bits matter
        // (specs/numa.md#cpupid).
        let pid = match program {
            Program::Homenode | Program::Kdamond | Program::Ksmd | Program::Writer => {
                self.helpers += 1;
                900 + self.helpers
            }
            _ => 1000 + id as u32 - self.helpers,
        };
        let node = self.cpus.get(cpu).map_or(0, |c| c.node);
        self.kernel.numa.push(TaskNuma::new(pid, space, node));
        self.tasks.push(Some(Box::new(Task {
            process,
            space,
            cpu,
            clock: now,
            ran: 0,
            run: Run::Runnable,
            program,
            ops: Vec::new(),
            at: 0,
            compute: 0,
            deadline: u64::MAX,
            filling: None,
            parent: None,
            children: 0,
            waits_for: None,
            started: now,
            ended: 0,
            accesses: [0; KINDS],
            killed: None,
            phases: BTreeMap::new(),
            phase: None,
        })));
        id
    }

    /// Takes a program in, without a task yet; its place among the processes.
    fn admit(&mut self, process: Process) -> usize {
        self.names.push(process.name.clone());
        self.processes.push(process);
        self.running_programs += 1;
        self.processes.len() - 1
    }
    /// Adds a program of a scenario.
    pub(crate) fn add_process(&mut self, process: Process) {
        let start = process.start.0;
        let number = self.admit(process);
        self.at(start, Event::Start(number));
    }
    /// Adds a program that isn't made of steps; its place among the processes.
    pub(crate) fn add_program(&mut self, name: &str) -> usize {
        self.admit(Process {
            name: name.to_owned(),
            cpus: Vec::new(),
            start: Picos::ZERO,
            policy: Mempolicy::Default,
            memory_merge: false,
            maps: Vec::new(),
            steps: Vec::new(),
        })
    }
    /// Starts a program now, beside those that run; its first task.
    pub(crate) fn spawn(&mut self, process: Process) -> usize {
        let number = self.admit(process);
        let first = self.tasks.len();
        self.start_process(number);
        first
    }
    pub(crate) fn start_process(&mut self, number: usize) {
        let mut p = self.processes[number].clone();
        // A policy of nodes without memory is refused: the program goes on without.
        p.policy = self.kernel.settable(&p.policy).unwrap_or_default();
        let space = self.kernel.new_space();
        let mut ids = Vec::new();
        for (i, &cpu) in p.cpus.iter().enumerate() {
            let cpu = self.cpu_place(cpu);
            let steps = Steps {
                steps: p.steps.clone().into(),
                at: 0,
                access: None,
                thread: i as u64,
                threads: p.cpus.len() as u64,
                label: format!("{}/{i}", p.name),
                rounds: BTreeMap::new(),
                returns: 0,
            };
            let id = self.new_task(number, space, cpu, Program::Steps(Box::new(steps)), self.now);
            self.kernel.numa[id].policy = p.policy.clone();
            ids.push(id);
        }
        self.kernel.space_mut(space).users = ids.len() as u32;
        self.born(&ids);
        let Some(&first) = ids.first() else {
            self.running_programs -= 1;
            return;
        };
        let mut ctx = self.ctx(first);
        if p.memory_merge {
            if let Err(e) = self.kernel.set_merge_any(space) {
                self.memory_error.get_or_insert(e);
            }
        }
        for m in &p.maps {
            self.map(&mut ctx, space, m, &p.policy);
        }
        self.task_mut(first).clock = ctx.clock;
        for id in ids {
            self.enqueue(id, false);
        }
    }
    /// Makes a mapping of a scenario, above all others.
    pub(crate) fn map(&mut self, ctx: &mut Ctx, space: usize, m: &Map, policy: &Mempolicy) {
        let start = self.kernel.space(space).above();
        let pages = Pages::holding(m.size).0;
        let mapping = Mapping {
            start,
            pages,
            kind: Kind {
                file: m.file,
                shared: m.shared,
                readable: true,
                writable: !m.read_only,
                executable: false,
                huge: m.huge,
                policy: self.kernel.settable(&m.policy).unwrap_or_default(),
                holds: self.kernel.holds(&m.content, start, pages),
                mergeable: m.mergeable,
            },
            name: m.name.clone(),
        };
        if let Err(e) = self.kernel.map(ctx, space, mapping, policy) {
            self.memory_error.get_or_insert(e);
        }
    }
    /// The balancing state of a new process: its first task as by fork and exec of
    /// a launcher, the others as threads of it.
    fn born(&mut self, ids: &[usize]) {
        let now = self.now;
        for (i, &id) in ids.iter().enumerate() {
            let of = if i == 0 { None } else { Some(ids[0]) };
            self.kernel.numa_born(id, of, i as u32 + 1, now);
        }
    }
    /// A thread in the space of a task whose turn it is, not yet enqueued.
    pub(crate) fn thread_task(&mut self, id: usize, task: &mut Task, program: Program) -> usize {
        let thread = self.new_task(task.process, task.space, task.cpu, program, task.clock);
        self.kernel.numa[thread].policy = self.kernel.numa[id].policy.clone();
        self.kernel.numa_thread(thread, id, task.clock);
        self.kernel.space_mut(task.space).users += 1;
        thread
    }
    /// A child task with a copy of the parent's space, not yet enqueued.
    pub(crate) fn fork_task(
        &mut self,
        id: usize,
        task: &mut Task,
        program: Program,
    ) -> Option<usize> {
        let mut ctx = self.ctx_of(id, task);
        ctx.clock = task.clock;
        // The hook of balancing runs before the child's space is made (specs/numa.md#fork).
        let numa = self.kernel.numa_fork(id, ctx.clock);
        let space = match self.kernel.fork_space(&mut ctx, task.space) {
            Ok(s) => s,
            Err(e) => {
                self.memory_error.get_or_insert(e);
                return None;
            }
        };
        self.kernel.space_mut(space).users = 1;
        task.clock = ctx.clock;
        let child = self.new_task(task.process, space, task.cpu, program, task.clock);
        let policy = self.kernel.numa[id].policy.clone();
        let n = &mut self.kernel.numa[child];
        n.scan = numa;
        n.policy = policy;
        self.task_mut(child).parent = Some(id);
        task.children += 1;
        self.running_programs += 1;
        Some(child)
    }

    /// A task whose turn it is dies. Its process dies with it once the turn is over.
    pub(crate) fn kill(&mut self, task: &mut Task, why: Fatal) {
        if why == Fatal::Oom {
            let node = self.cpus[task.cpu].node;
            self.kernel.stat.add(node, Item::OomKill, 1);
        }
        task.killed = Some(why);
        task.run = Run::Ended;
        task.program = Program::Ended;
    }
    /// Ends the threads of a space that have not ended: what killed one of them kills all;
    /// `None`: a signal from outside.
    pub(crate) fn end_space(&mut self, space: usize, why: Option<Fatal>) {
        for id in 0..self.tasks.len() {
            let t = self.task_mut(id);
            if t.space != space || t.run == Run::Ended {
                continue;
            }
            (t.run, t.killed, t.program) = (Run::Ended, why, Program::Ended);
            let cpu = t.cpu;
            self.cpus[cpu].queue.retain(|&q| q != id);
            self.task_ended(id);
        }
    }
    /// What a task's end means for its space, its parent and the run.
    pub(crate) fn task_ended(&mut self, id: usize) {
        let task = self.task(id);
        let (space, clock, parent) = (task.space, task.clock, task.parent);
        let mut ctx = self.ctx_of(id, task);
        self.kernel.numa_exit(id);
        let users = &mut self.kernel.space_mut(space).users;
        *users -= 1;
        let last = *users == 0;
        if last {
            self.kernel.drop_space(&mut ctx, space);
            self.running_programs -= 1;
        }
        let t = self.task_mut(id);
        t.ended = ctx.clock.max(clock);
        t.ops = Vec::new();
        t.program = Program::Ended;
        if let Some(parent) = parent.filter(|_| last) {
            self.child_ended(parent, clock);
        }
        let waiting = |t: &Task| t.run == Run::Waiting && t.waits_for == Some(id);
        let waiters: Vec<usize> = (0..self.tasks.len())
            .filter(|&w| self.tasks[w].as_deref().is_some_and(waiting))
            .collect();
        for w in waiters {
            let t = self.task_mut(w);
            t.waits_for = None;
            t.clock = t.clock.max(clock);
            self.enqueue(w, false);
        }
    }
    fn child_ended(&mut self, parent: usize, clock: u64) {
        // The parent may be the task whose turn it is.
        let Some(p) = self.tasks[parent].as_mut() else { return };
        p.children = p.children.saturating_sub(1);
        if p.run == Run::Waiting && p.children == 0 && p.waits_for.is_none() {
            p.clock = p.clock.max(clock);
            self.enqueue(parent, false);
        }
    }
}
