//! A course of recorded lives on a simulated machine.
//!
//! ```text
//! Course, machine, knobs ─▶ Play ─▶ run ─▶ rows by who looks on (watch), figures
//! ```
//!
//! Source: specs/record-sched.md#replay.

use crate::build::{Setup, SimError};
use crate::program::{Cast, Hog};
use crate::sched::Terms;
use crate::simulation::Simulation;
use crate::tasks::{Kind, Run};
use homenode_core::sched::course::Course;
use homenode_core::topology::Hardware;
use homenode_core::units::CpuId;
use std::sync::Arc;

/// How often it is looked whether all have ended, in picoseconds.
const LOOK: u64 = 10_000_000_000;

/// What is other than it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acting {
    /// The CPUs that the tasks, and the hogs, may use; none: all.
    pub cpus: Vec<CpuId>,
    /// The nice value of all tasks, in place of their own.
    pub nice: Option<i8>,
    /// So many programs beside them that compute all the time, at nice 0.
    pub hogs: u32,
}

/// A course on a machine.
pub struct Play {
    sim: Simulation,
    cast: Arc<Cast>,
}

impl Play {
    /// Puts the lives that are there from the beginning on a machine.
    ///
    /// # Errors
    /// [`SimError`], if a knob is refused or the machine can't be simulated.
    pub fn new(
        machine: &Hardware,
        setup: &Setup,
        course: &Arc<Course>,
        acting: &Acting,
    ) -> Result<Self, SimError> {
        let sim = Simulation::boot(machine, setup, 0)?;
        let place = |cpu: &CpuId| sim.cpus.place(*cpu);
        let cpus: Vec<usize> = acting.cpus.iter().map(place).collect();
        let cast = Arc::new(Cast::new(course.clone(), cpus.clone(), acting.nice));
        let mut it = Self { sim, cast };
        for number in 0..acting.hogs {
            it.start_hog(number, &cpus);
        }
        Ok(it)
    }
    fn start_hog(&mut self, number: u32, cpus: &[usize]) {
        let sim = &mut self.sim;
        let process = sim.add_program(&format!("hog-{number}"));
        let space = sim.kernel.new_space();
        let terms = Terms { set: sim.sched.q.set(cpus), ..Terms::default() };
        let cpu = cpus.first().copied().unwrap_or(0);
        let hog = Box::new(Hog::default());
        let id = sim.new_task(Kind::Thread, process, space, cpu, &terms, hog);
        sim.kernel.space_mut(space).users = 1;
        let now = sim.now();
        sim.kernel.numa_born(id, None, 1, now);
        sim.enqueue(id);
    }
    /// What is simulated.
    pub fn simulation(&self) -> &Simulation {
        &self.sim
    }
    /// The same, to let somebody look on.
    pub fn simulation_mut(&mut self) -> &mut Simulation {
        &mut self.sim
    }
    /// The simulation's task of a life, once it has begun.
    pub fn task(&self, life: usize) -> Option<usize> {
        self.cast.task(life)
    }
    /// Runs until all lives have ended.
    ///
    /// * `limit` – virtual time at most, in picoseconds.
    /// * `told` – is given the virtual time now and then.
    ///
    /// # Errors
    /// Who waits for what never comes, or that the time is over: a sentence.
    pub fn run(&mut self, limit: u64, told: &mut dyn FnMut(u64)) -> Result<(), String> {
        let lives = &self.cast.course.lives;
        let cpu = self.cast.task(0).map_or(0, |id| self.sim.tasks[id].cpu);
        for (life, _) in (0..).zip(lives).filter(|(_, l)| l.starter.is_none()) {
            let id = self.cast.begin(&mut self.sim, life, cpu);
            self.sim.enqueue(id);
        }
        loop {
            let until = self.sim.now() + LOOK;
            self.sim.run_until(until);
            told(self.sim.now());
            if let Some(e) = self.sim.error() {
                return Err(e.to_string());
            }
            if self.cast.is_over() {
                return Ok(());
            }
            if self.is_stuck() && !self.cast.open(&mut self.sim) {
                return Err(format!("{} what never comes", self.waiting()));
            }
            if self.sim.now() > limit {
                let s = self.sim.now() as f64 / 1e12;
                return Err(format!("after {s:.0} s of virtual time {} more", self.waiting()));
            }
        }
    }
    /// How often a task went on without what it waited for, since nobody could go on: a recording that
    /// lacks events.
    pub fn opened(&self) -> usize {
        self.cast.opened()
    }
    fn living(&self) -> impl Iterator<Item = usize> {
        let tasks = (0..self.cast.course.lives.len()).filter_map(|life| self.cast.task(life));
        tasks.filter(|&id| self.sim.tasks[id].lives())
    }
    /// Whether nobody runs and nobody has a timer.
    fn is_stuck(&self) -> bool {
        self.living().all(|id| {
            let task = &self.sim.tasks[id];
            let sleeps = matches!(task.run, Run::Blocked(_)) && !task.on_queue;
            sleeps && self.sim.timeline.time_of(task.timer).is_none()
        })
    }
    fn waiting(&self) -> String {
        let names: Vec<String> = self.living().take(4).map(|id| self.sim.told(id)).collect();
        let more = self.living().count().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} others") } else { String::new() };
        format!("{}{more} wait for", names.join(", "))
    }
}
