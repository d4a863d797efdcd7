//! Virtual time: whose turn it is, and what happens when.
//!
//! A run advances in quanta. In each, every CPU in rising number lets its current
//! task run until the task's clock reaches the end of the quantum; then what is
//! due happens: ticks, timers, load windows, kswapd's wake-ups. A quantum ends
//! early at the next known event (docs/decisions/0003-time-and-batches.md).
//!
//! ```text
//! now        +10 µs      +20 µs   tick
//!  │ CPU 0 ────┤ CPU 0 ────┤ CPU 0 ─┤
//!  │ CPU 1 ────┤ CPU 1 ────┤ CPU 1 ─┤   CPU 1's task may overrun the end
//!  │           ▼ events    ▼        ▼   with a fault; it starts later then
//! ```
//!
//! What there is at any moment is the [`Simulation`]; here it runs. `steps` is the turn of
//! a task that is made of operations, `daemons` those of the kernel's and homenode's, `ksmd`
//! that of the one that merges pages. Other turns come as a [`Turn`](crate::simulation::Turn).

mod daemons;
mod ksmd;
mod steps;

use crate::kernel::TICK;
use crate::load::WINDOW;
use crate::simulation::{Event, Program, Run, Simulation, Task};
use homenode_core::scenario::Order;
use std::cmp::Reverse;

impl Simulation {
    /// Runs until all programs have ended or the duration is over.
    pub fn run(&mut self) {
        self.run_until(self.duration.unwrap_or(u64::MAX));
    }

    /// Runs until all programs have ended or virtual time has reached `stop`.
    pub fn run_until(&mut self, stop: u64) {
        while !self.idle() && self.now < stop && !self.speaks {
            self.due();
            let next_event = self.events.peek().map_or(u64::MAX, |Reverse((t, ..))| *t);
            let limit = next_event.min(stop);
            match self.order {
                Order::Quantum(q) => {
                    if self.cpus.iter().all(|c| c.queue.is_empty()) {
                        self.now = limit;
                        continue;
                    }
                    let mut busy =
                        self.cpus.iter().enumerate().filter(|(_, c)| !c.queue.is_empty());
                    let first = busy.next().map(|(i, _)| i);
                    match (first, busy.next()) {
                        // Nobody to take turns with: on to the next event.
                        (Some(cpu), None) if self.cpus[cpu].queue.len() == 1 => {
                            self.alone(cpu, limit);
                        }
                        _ => {
                            let end = limit.min(self.now + q.0.max(1));
                            self.now = self.quantum(end);
                        }
                    }
                }
                Order::Strict => {
                    let behind = self.behind();
                    match behind {
                        Some((clock, cpu)) if clock < limit => {
                            self.now = self.now.max(clock);
                            self.turn(cpu, self.now, clock + 1);
                        }
                        _ => self.now = limit,
                    }
                }
            }
            self.wake_daemons();
            if let Some(watch) = &mut self.kernel.watch {
                watch.time(self.now);
            }
        }
        self.due();
    }
    /// The only task runs until `end`, or until it wakes somebody, starts somebody
    /// or stops.
    fn alone(&mut self, cpu: usize, end: u64) {
        let left = self.turn(cpu, self.now, end);
        let others = self.cpus.iter().map(|c| c.queue.len()).sum::<usize>() > 1;
        self.now = if left.is_some() || others || !self.kernel.woken.is_empty() {
            let id = self.cpus[cpu].queue.front();
            let clock = left.or(id.map(|&id| self.task(id).clock)).unwrap_or(end);
            clock.clamp(self.now, end)
        } else {
            end
        };
    }
    /// Every CPU's current task runs until `end`, or until one wakes somebody; when
    /// the quantum ended.
    fn quantum(&mut self, mut end: u64) -> u64 {
        for cpu in 0..self.cpus.len() {
            // A task that ends or sleeps leaves the rest of the quantum to the next.
            let mut from = self.now;
            while from < end {
                let before = self.kernel.woken.len();
                let left = self.turn(cpu, from, end);
                if self.kernel.woken.len() > before {
                    let id = self.cpus[cpu].queue.front();
                    let clock = left.or(id.map(|&id| self.task(id).clock)).unwrap_or(end);
                    end = clock.clamp(self.now + 1, end);
                }
                let Some(left_at) = left else { break };
                from = left_at;
            }
        }
        end
    }
    /// The CPU whose task is furthest behind, and that task's clock.
    fn behind(&self) -> Option<(u64, usize)> {
        self.cpus
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((self.task(*c.queue.front()?).clock.max(self.now), i)))
            .min()
    }
    /// Lets the current task of a CPU run from `from` until `end`. Returns the time
    /// at which it left the CPU to another, if it did.
    fn turn(&mut self, cpu: usize, from: u64, end: u64) -> Option<u64> {
        let id = *self.cpus[cpu].queue.front()?;
        let mut task = self.tasks[id].take().expect("one CPU runs a task");
        task.clock = task.clock.max(from);
        let before = task.clock;
        let number = self.machine.cpus[cpu].id.index();
        self.kernel.running[number] = Some((id, self.kernel.numa[id].pid));
        self.run_task(id, &mut task, end);
        task.ran += task.clock - before;
        self.kernel.numa[id].ran_ns = task.ran / 1000;
        let (clock, run) = (task.clock, task.run);
        self.tasks[id] = Some(task);
        if run != Run::Runnable {
            self.cpus[cpu].queue.retain(|&t| t != id);
            self.begin_slice(cpu, clock);
            if run == Run::Ended {
                if let Some(why) = self.task(id).killed {
                    self.end_space(self.task(id).space, Some(why));
                }
                self.task_ended(id);
            }
            return Some(clock);
        }
        if self.cpus[cpu].queue.len() > 1 && clock >= self.cpus[cpu].slice_end {
            let queue = &mut self.cpus[cpu].queue;
            // A daemon may have been put before it meanwhile: rotate the one that ran.
            if let Some(at) = queue.iter().position(|&t| t == id) {
                queue.remove(at);
                queue.push_back(id);
            }
            self.begin_slice(cpu, clock);
            return Some(clock);
        }
        None
    }

    /// Runs a task until its clock reaches `end` or it stops being runnable.
    fn run_task(&mut self, id: usize, task: &mut Task, end: u64) {
        match &task.program {
            Program::Steps(_) | Program::Ids { .. } => self.run_ops(id, task, end),
            Program::Turns(_) => self.run_turns(id, task, end),
            Program::Kswapd(node) => self.run_kswapd(*node, task, end),
            Program::Homenode | Program::Kdamond => self.run_helper(task, end),
            Program::Ksmd => self.run_ksmd(task, end),
            Program::Writer => self.run_writer(task, end),
            Program::Ended => {}
        }
    }
    /// The task's own code has its turn; meanwhile the task is without it.
    fn run_turns(&mut self, id: usize, task: &mut Task, end: u64) {
        let program = std::mem::replace(&mut task.program, Program::Ended);
        let Program::Turns(mut turns) = program else { return };
        turns.turn(self, id, task, end);
        if task.run != Run::Ended {
            task.program = Program::Turns(turns);
        }
    }

    // ── Events ─────────────────────────────────────────────────────────────────

    /// Handles everything that is due now.
    fn due(&mut self) {
        while let Some(&Reverse((time, _, event))) = self.events.peek() {
            if time > self.now {
                return;
            }
            self.events.pop();
            match event {
                Event::Tick => {
                    self.tick();
                    self.at(time + TICK, Event::Tick);
                }
                Event::Window => {
                    self.window();
                    self.at(time + WINDOW, Event::Window);
                }
                Event::Start(p) => self.start_process(p),
                Event::Wake(id) => {
                    if self.task(id).run == Run::Sleeping {
                        self.enqueue(id, false);
                    }
                }
                Event::Recheck(node) => self.kernel.kswapd_recheck(node),
                Event::File(action) => self.act(action),
                Event::LookAround => self.look_around(time),
                Event::Damon => self.wake_damon(),
                Event::Ksmd => self.ksmd_slept(time),
            }
        }
    }
    /// The tick of every CPU, for the task that runs there.
    fn tick(&mut self) {
        self.charge_displaced();
        if self.without_balancing {
            return;
        }
        for cpu in 0..self.cpus.len() {
            let Some(&id) = self.cpus[cpu].queue.front() else { continue };
            if self.task(id).space == usize::MAX {
                continue;
            }
            let mut ctx = self.ctx(id);
            let before = ctx.clock;
            self.kernel.numa_tick(&mut ctx, id);
            let task = self.task_mut(id);
            task.clock = ctx.clock;
            task.ran += ctx.clock - before;
            let ran = task.ran;
            self.kernel.numa[id].ran_ns = ran / 1000;
        }
    }
}
