//! How programs and tasks begin and end.

use crate::caches::Footprint;
use crate::kernel::{Ctx, Fatal, Mapping, TaskNuma};
use crate::program::{Program, Steps};
use crate::sched::Terms;
use crate::simulation::{Loaded, Simulation, Tally};
use crate::space::Kind as MapKind;
use crate::tasks::{Kind, On, Run, Task, Why};
use crate::timeline::Event;
use crate::vmstat::Item;
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::scenario::{Map, Mempolicy, Process};
use homenode_core::units::Pages;
use std::sync::Arc;

impl Simulation {
    /// A task at its beginning, on no queue yet.
    pub(crate) fn new_task(
        &mut self,
        kind: Kind,
        process: usize,
        space: usize,
        cpu: usize,
        terms: &Terms,
        program: Box<dyn Program>,
    ) -> usize {
        let now = self.now();
        self.sched.at(now);
        self.sched.born(cpu, terms);
        // PIDs begin where a booted system's begin; the low bits matter
        // (specs/numa.md#cpupid).
        self.helpers += u32::from(kind.is_helper());
        let pid = match kind.is_helper() {
            true => 900 + self.helpers,
            false => 1000 + self.tasks.len() as u32 - self.helpers,
        };
        self.kernel.numa.push(TaskNuma::new(pid, space, self.cpus[cpu].node));
        let timer = self.timeline.slot(Event::Timer(self.tasks.len()));
        self.programs.push(Some(program));
        self.tallies.push(Tally::default());
        self.tasks.push(Task {
            kind,
            process,
            space,
            cpu,
            clock: now,
            ran: 0,
            system: 0,
            run: Run::Runnable,
            on_queue: false,
            off_cpu: 0,
            leaves_to: None,
            leaves_for: None,
            timer,
            timer_wakes: false,
            parent: None,
            children: 0,
            waiters: Vec::new(),
            started: now,
            ended: 0,
            killed: None,
            footprint: Footprint::default(),
        })
    }

    /// Takes a program in, without a task yet; its place among the processes.
    fn admit(&mut self, process: Process, copy: u64) -> usize {
        self.names.push(process.name.clone());
        self.copies.push(copy);
        self.processes.push(process);
        self.running_programs += 1;
        self.processes.len() - 1
    }
    /// Adds a program of a scenario, all its copies.
    pub(crate) fn add_process(&mut self, process: Process) {
        for copy in 0..process.copy_count() {
            let mut one = process.clone();
            if process.copy_count() > 1 {
                one.name = format!("{}-{copy}", process.name);
            }
            if process.guest {
                one.group = Some(self.guest_group(&one));
            }
            let start = process.start.0;
            let spawned = one.spawned;
            let number = self.admit(one, copy.into());
            if spawned {
                self.running_programs -= 1;
                continue;
            }
            let slot = self.timeline.slot(Event::Start(number));
            self.timeline.set(slot, start);
            self.unstarted += 1;
        }
    }
    /// Adds a program that isn't made of steps; its place among the processes.
    pub(crate) fn add_program(&mut self, name: &str) -> usize {
        self.admit(Process { name: name.to_owned(), ..Process::default() }, 0)
    }
    /// Starts a program now, beside those that run; its first task.
    pub(crate) fn spawn(&mut self, process: Process) -> usize {
        let number = self.admit(process, 0);
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
        // Copies do the same: the one before has it already.
        let before = number.checked_sub(1).filter(|_| self.copies[number] > 0);
        let loaded = match before.and_then(|n| self.loaded.get(n)?.clone()) {
            Some(loaded) => loaded,
            None => Loaded::new(&p, &self.channels, &self.devices),
        };
        self.loaded.resize(self.loaded.len().max(number + 1), None);
        self.loaded[number] = Some(loaded.clone());
        let terms = self.terms(&p);
        let (copy, threads) = (self.copies[number], p.thread_count() as u64);
        for i in 0..threads {
            let program = Box::new(Steps::new(loaded.clone(), &p.name, i, copy * threads + i));
            let mut terms = terms;
            let cpu = match p.threads {
                // One on each CPU, pinned.
                0 => {
                    let cpu = self.cpus.place(p.cpus[i as usize]);
                    terms.set = self.sched.q.set(&[cpu]);
                    cpu
                }
                // Whoever starts it does so from the first CPU that it may use.
                _ => {
                    let set = self.sched.q.allowed(terms.set, terms.group);
                    self.sched.q.sets[set as usize].first()
                }
            };
            let id = self.new_task(Kind::Thread, number, space, cpu, &terms, program);
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
            let done = self.kernel.set_merge_any(space);
            self.modelled(done);
        }
        for m in &p.maps {
            self.map(&mut ctx, space, (p.map_number(&m.name), m), &p.policy);
        }
        // Whoever started it has made the mappings: the time until it runs.
        self.tasks[first].clock = ctx.clock;
        for id in ids {
            self.enqueue(id);
        }
    }
    /// How the scheduler is to treat the threads of a program.
    ///
    /// Source: specs/workloads.md#tasks.
    fn terms(&mut self, p: &Process) -> Terms {
        // Without `threads` each is pinned to a CPU of its own, by whoever makes it.
        let cpus = if p.threads > 0 { p.cpus.as_slice() } else { &[] };
        let places: Vec<usize> = cpus.iter().map(|&c| self.cpus.place(c)).collect();
        let set = self.sched.q.set(&places);
        let policy = p.sched_policy;
        let group = p.group.as_ref().and_then(|name| self.sched.q.groups.number(name));
        let group = group.unwrap_or(0);
        let (nice, followed) = (p.nice, p.threads > 0);
        // At most 100 ms (specs/sched-fair.md#slices), which fits.
        let slice_ns = p.sched_runtime.map(|slice| (slice.0 / 1000) as u32);
        Terms { nice, policy, slice_ns, set, group, followed, ..Terms::default() }
    }
    /// What a new task has of the one that made it.
    fn inherited(&self, id: usize) -> Terms {
        Terms { set: self.sched.q.tasks[id].asked, ..self.sched.q.tasks[id].terms }
    }
    /// Makes a mapping of a scenario, above all others.
    ///
    /// * `number` – its place among its process's mappings.
    pub(crate) fn map(
        &mut self,
        ctx: &mut Ctx,
        space: usize,
        (number, m): (Option<usize>, &Map),
        policy: &Mempolicy,
    ) {
        let start = self.kernel.space(space).above();
        let pages = Pages::holding(m.size).0;
        let mapping = Mapping {
            start,
            pages,
            kind: MapKind {
                file: m.file,
                shared: m.shared,
                readable: true,
                writable: !m.read_only,
                huge: m.huge,
                policy: self.kernel.settable(&m.policy).unwrap_or_default(),
                holds: self.kernel.holds(&m.content, start, pages),
                mergeable: m.mergeable,
                map: number,
                ..MapKind::default()
            },
            name: m.name.clone(),
        };
        let done = self.kernel.map(ctx, space, mapping, policy);
        self.modelled(done);
    }
    /// The balancing state of a new process: its first task as by fork and exec of
    /// a launcher, the others as threads of it.
    fn born(&mut self, ids: &[usize]) {
        let now = self.now();
        for (i, &id) in ids.iter().enumerate() {
            let of = if i == 0 { None } else { Some(ids[0]) };
            self.kernel.numa_born(id, of, i as u32 + 1, now);
        }
    }
    /// A thread in the space of a task whose turn it is, not yet on a queue.
    pub(crate) fn thread_task(&mut self, id: usize, program: Box<dyn Program>) -> usize {
        let task = &self.tasks[id];
        let (process, space, cpu, clock) = (task.process, task.space, task.cpu, task.clock);
        let terms = self.inherited(id);
        let thread = self.new_task(self.tasks[id].kind, process, space, cpu, &terms, program);
        self.sched.inherits(thread, id);
        self.kernel.numa[thread].policy = self.kernel.numa[id].policy.clone();
        self.kernel.numa_thread(thread, id, clock);
        self.kernel.space_mut(space).users += 1;
        thread
    }
    /// A child task with a copy of the parent's space, not yet on a queue. The parent pays
    /// for the copy, and the child begins after it.
    pub(crate) fn fork_task(
        &mut self,
        ctx: &mut Ctx,
        id: usize,
        program: Box<dyn Program>,
    ) -> Option<usize> {
        let task = &self.tasks[id];
        let (process, parent_space, cpu) = (task.process, task.space, task.cpu);
        // The hook of balancing runs before the child's space is made (specs/numa.md#fork).
        let numa = self.kernel.numa_fork(id, ctx.clock);
        let space = self.kernel.fork_space(ctx, parent_space);
        let space = self.modelled(space)?;
        self.kernel.space_mut(space).users = 1;
        let terms = self.inherited(id);
        let child = self.new_task(self.tasks[id].kind, process, space, cpu, &terms, program);
        self.sched.inherits(child, id);
        let policy = self.kernel.numa[id].policy.clone();
        let n = &mut self.kernel.numa[child];
        n.scan = numa;
        n.policy = policy;
        let t = &mut self.tasks[child];
        (t.parent, t.clock, t.started) = (Some(id), ctx.clock, ctx.clock);
        self.tasks[id].children += 1;
        self.running_programs += 1;
        Some(child)
    }

    /// A child that is going to run another program, not yet on a queue. The parent pays as for a fork.
    pub(crate) fn spawn_task(
        &mut self,
        ctx: &mut Ctx,
        id: usize,
        program: usize,
        number: u64,
    ) -> Option<usize> {
        let loaded = self.loaded_program(program);
        let name = self.names[program].clone();
        let steps = Steps::spawned(loaded, &name, number);
        let child = self.fork_task(ctx, id, Box::new(steps))?;
        self.tasks[child].process = program;
        Some(child)
    }
    /// A program that steps run, loaded.
    fn loaded_program(&mut self, number: usize) -> Arc<Loaded> {
        self.loaded.resize(self.loaded.len().max(number + 1), None);
        if let Some(loaded) = &self.loaded[number] {
            return loaded.clone();
        }
        let loaded = Loaded::new(&self.processes[number], &self.channels, &self.devices);
        self.loaded[number] = Some(loaded.clone());
        loaded
    }
    /// A task begins with the program that it is to run: its mappings are made.
    ///
    /// Source: specs/workloads.md#spawn.
    pub(crate) fn begin_program(&mut self, id: usize) {
        let process = self.tasks[id].process;
        let (maps, merge) = {
            let p = &self.processes[process];
            (p.maps.clone(), p.memory_merge)
        };
        let mut ctx = self.ctx(id);
        let (clock, space) = (ctx.clock, self.tasks[id].space);
        if merge {
            let done = self.kernel.set_merge_any(space);
            self.modelled(done);
        }
        let policy = self.kernel.settable(&self.processes[process].policy).unwrap_or_default();
        for (number, m) in maps.iter().enumerate() {
            self.map(&mut ctx, space, (Some(number), m), &policy);
        }
        self.kernel.numa[id].policy = policy;
        self.charge(id, ctx.clock - clock, Why::System);
    }
    /// The end of a process that a parent waits for takes time of its own, before it is one: it frees what
    /// it has.
    ///
    /// Source: specs/workloads.md#spawn.
    pub(crate) fn exit(&mut self, id: usize) {
        if self.tasks[id].parent.is_none() && !self.processes[self.tasks[id].process].exits {
            return;
        }
        let mut ctx = self.ctx(id);
        let (clock, space) = (ctx.clock, self.tasks[id].space);
        let mut maps = 0;
        if self.kernel.space(space).users == 1 {
            maps = self.kernel.space(space).vmas.len() as u64;
            let end = self.kernel.space(space).above();
            self.kernel.unmap(&mut ctx, space, 0, end);
        }
        let prices = &self.kernel.prices;
        let exit = prices[Cost::Exit] + maps * prices[Cost::ExitMap];
        self.charge(id, ctx.clock - clock + exit, Why::System);
    }

    /// A task whose turn it is dies. Its process dies with it once the turn is over.
    pub(crate) fn kill(&mut self, id: usize, why: Fatal) {
        if why == Fatal::Oom {
            let node = self.cpus[self.tasks[id].cpu].node;
            self.kernel.stat.add(node, Item::OomKill, 1);
        }
        self.tasks[id].killed = Some(why);
        self.tasks[id].run = Run::Ended;
    }
    /// kswapd of the node at that place has found no generation old enough: who holds most goes.
    ///
    /// Source: specs/mglru.md#ttl.
    pub(crate) fn kill_doomed(&mut self, node: usize) {
        if let Some(space) = self.kernel.doomed.take() {
            self.kernel.stat.add(node, Item::OomKill, 1);
            self.end_space(space, Some(Fatal::Oom));
        }
    }
    /// Ends the threads of a space that have not ended: what killed one of them kills all;
    /// `None`: a signal from outside.
    pub(crate) fn end_space(&mut self, space: usize, why: Option<Fatal>) {
        for id in self.tasks.living_in(space).to_vec() {
            // Who has stopped by itself leaves its CPU when its time has come.
            if self.tasks[id].run == Run::Ended {
                continue;
            }
            self.flush_list_of(id);
            if self.tasks[id].on_queue {
                self.off_queue(self.tasks[id].cpu, id);
            }
            if let Run::Blocked(On::Channel(channel)) = self.tasks[id].run {
                self.channels.forget(channel, id);
            }
            let task = &mut self.tasks[id];
            (task.run, task.killed) = (Run::Ended, why);
            self.task_ended(id);
        }
    }
    /// What a task's end means for its space, its parent and the run.
    pub(crate) fn task_ended(&mut self, id: usize) {
        let task = &self.tasks[id];
        let (space, clock, parent) = (task.space, task.clock, task.parent);
        let mut ctx = self.ctx(id);
        self.timeline.clear(task.timer);
        self.sched.at(self.now());
        self.sched.ended(id);
        self.tasks.bury(id);
        self.programs[id] = None;
        self.kernel.leave_group(id);
        self.sched.q.end_home(id, &self.kernel.groups);
        let users = &mut self.kernel.space_mut(space).users;
        *users -= 1;
        let last = *users == 0;
        if last {
            self.kernel.drop_space(&mut ctx, space);
            self.running_programs -= 1;
        }
        let t = &mut self.tasks[id];
        t.ended = ctx.clock.max(clock);
        let waiters = std::mem::take(&mut t.waiters);
        if let Some(parent) = parent.filter(|_| last) {
            let p = &mut self.tasks[parent];
            p.children = p.children.saturating_sub(1);
            let all = p.children == 0 && p.run == Run::Blocked(On::Children);
            if all || p.run == Run::Blocked(On::Child) {
                self.wake(parent, By::Task(id));
            }
        }
        for waiter in waiters {
            if self.tasks[waiter].waits_for() == Some(id) {
                self.wake(waiter, By::Task(id));
            }
        }
    }
    /// A task waits for another's end.
    pub(crate) fn wait_for(&mut self, id: usize, other: usize) {
        self.tasks[other].waiters.push(id);
        self.block(id, On::Task(other));
    }
    /// A task sleeps until a time, or until somebody wakes it.
    pub(crate) fn sleep_until(&mut self, id: usize, time: u64) {
        self.block(id, On::Sleep);
        self.set_cpu_timer(id, time);
    }
}
