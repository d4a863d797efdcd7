//! Devices, their interrupts, and the kernel workers that take work on.
//!
//! ```text
//!  task ─submits─▶ device ──time──▶ interrupt on its CPU ──▶ wakes the task
//!                                        └─▶ worker of that CPU ─▶ wakes the task
//!  task ─queue_work─▶ worker of its CPU ─▶ wakes the task, if that waits
//! ```
//!
//! A device serves any number of requests at once, each in the same time, unless it gathers them.
//!
//! Source: specs/workloads.md#devices.

use crate::program::{Program, Worker};
use crate::sched::{Terms, Waker};
use crate::simulation::{Simulation, Work};
use crate::tasks::{Kind, On, Run};
use crate::watch::By;
use homenode_core::costs::Cost;
use homenode_core::scenario::{Command, Completion, Device, DeviceTime, NICE};

impl Simulation {
    /// The devices of a scenario.
    pub(crate) fn add_devices(&mut self, devices: &[Device]) {
        self.devices.all = devices.to_vec();
        self.devices.under_way = vec![(0, 0); devices.len()];
    }
    /// When a device has done a request that it gets at a time.
    ///
    /// Source: specs/workloads.md#devices.
    pub(crate) fn device_end(&mut self, device: usize, now: u64) -> u64 {
        let price = |command: &Command| match command {
            Command::Write => self.kernel.prices[Cost::DiskWrite],
            Command::Flush => self.kernel.prices[Cost::DiskFlush],
        };
        let it = &self.devices.all[device];
        let takes = match &it.time {
            DeviceTime::Fixed(time) => time.0,
            DeviceTime::Commands(all) => all.iter().map(price).sum(),
        };
        if !it.gathers {
            return now + takes;
        }
        let (begins, ends) = self.devices.under_way[device];
        if begins > now {
            // It waits for the one that is under way, with others: all of them are one.
            return ends;
        }
        let begins = ends.max(now);
        self.devices.under_way[device] = (begins, begins + takes);
        begins + takes
    }
    /// How long the CPU of a device's interrupts takes until it sees to one: it may be in an idle
    /// state.
    pub(crate) fn device_late(&mut self, id: usize, device: usize) -> u64 {
        let cpu = self.interrupted(id, device);
        self.disturb(cpu)
    }
    /// The CPU to which the interrupt comes of what a task has asked of a device: it sleeps where it has asked.
    fn interrupted(&self, id: usize, device: usize) -> usize {
        let fixed = self.devices.all[device].interrupts;
        fixed.map_or(self.tasks[id].cpu, |cpu| self.cpus.place(cpu))
    }
    /// A device has done what a task asked of it.
    pub(crate) fn device_done(&mut self, id: usize, device: usize, completion: Completion) {
        // Interrupts of a CPU that is offline go elsewhere.
        let cpu = self.interrupted(id, device);
        let cpu = self.sched.q.online_or_first(cpu);
        self.pays_as(cpu);
        self.interrupt(cpu, self.price(cpu, Cost::Interrupt));
        let waker = Waker { cpu, task: self.cpus[cpu].current(), sync: false, in_task: false };
        match completion {
            Completion::Interrupt => self.wake_from(id, By::Kernel, waker),
            Completion::Worker { time, high } => {
                self.queue_work(cpu, high, Work { time: time.0, waiter: Some(id) }, waker);
            }
        }
    }
    /// Hands work to the worker of a CPU, and wakes that if it sleeps.
    pub(crate) fn queue_work(&mut self, cpu: usize, high: bool, work: Work, waker: Waker) {
        let worker = match self.devices.workers.get(&(cpu, high)) {
            Some(&worker) => worker,
            None => self.hire(cpu, high),
        };
        self.devices.queues.entry(worker).or_default().push_back(work);
        if self.tasks[worker].run == Run::Blocked(On::Sleep) {
            let by = waker.task.filter(|_| waker.in_task).map_or(By::Kernel, By::Task);
            self.wake_from(worker, by, waker);
        }
    }
    /// A worker of a CPU, which sleeps until there is work.
    fn hire(&mut self, cpu: usize, high: bool) -> usize {
        let set = self.sched.q.set(&[cpu]);
        let nice = if high { NICE.0 } else { 0 };
        let terms = Terms { nice, set, per_cpu: true, ..Terms::default() };
        let program: Box<dyn Program> = Box::new(Worker::default());
        let id = self.new_task(Kind::Worker, usize::MAX, usize::MAX, cpu, &terms, program);
        self.block(id, On::Sleep);
        self.devices.workers.insert((cpu, high), id);
        id
    }
}
