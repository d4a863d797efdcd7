//! A simulated kernel on which scripts of scheduling are played.
//!
//! Source: specs/end-to-end.md#script.

use crate::build::{Setup, SimError};
use crate::channel::Channels;
use crate::kernel::TICK;
use crate::program::{Crew, Scripted};
use crate::sched::Terms;
use crate::simulation::Simulation;
use crate::tasks::Kind;
use homenode_core::costs::{Constant, Costs};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::WriteAs;
use homenode_core::scenario::{Channel, ChannelKind, Rights};
use homenode_core::topology::{Cpu, Hardware, Link, Medium, Node, Zone, ZoneKind};
use homenode_core::units::{CpuId, NodeId, Pages, Picos};
use homenode_machine::conformance::Finding;
use homenode_machine::endtoend::sched::{
    Act, Name, Part, SWITCH, SchedStage, Script, Shape, Start, Task,
};
use std::sync::{Arc, OnceLock};

/// The script begins so long behind a tick, as in guests: in the midst of what boots there
/// have.
const BEHIND_TICK: Picos = Picos::from_us(900);
/// Before that tasks were made, and sleep.
const SETTLE: Picos = Picos::from_secs(1);
/// A step's outcome is looked at so late in it, in hundredths of the step.
const LOOK: u64 = 50;
/// Whoever looks, from CPU 0, is at it for so long.
const LOOKING: Picos = Picos::from_ms(5);
/// The task that looks. On a real machine it reads; here it is on its CPU meanwhile.
const LOOKER: Name = "the one who looks";
/// Each node's memory: nobody needs any.
const MEMORY: Pages = Pages(4096);

/// A simulated kernel on which scripts are played.
pub struct ScriptTwin {
    sim: Simulation,
    crew: Option<Arc<Crew>>,
    /// The next step.
    next: usize,
}

/// A machine of this shape: a node for each last-level cache.
fn machine(shape: &Shape) -> Hardware {
    let told = |value| Constant::assumed(value, "what memory costs plays no part in a script");
    let cpus: Vec<Cpu> = shape
        .places()
        .iter()
        .map(|p| Cpu {
            id: CpuId(p.cpu),
            node: NodeId(0),
            core: p.core,
            llc: p.llc,
            capacity: 1024,
            mhz: None,
        })
        .collect();
    let mut llcs: Vec<u32> = cpus.iter().map(|cpu| cpu.llc).collect();
    llcs.dedup();
    let of = |cpu: &Cpu| NodeId(llcs.iter().take_while(|llc| **llc != cpu.llc).count() as u16);
    let cpus = cpus.iter().map(|cpu| Cpu { node: of(cpu), ..*cpu }).collect();
    let ids: Vec<NodeId> = (0..llcs.len()).map(|i| NodeId(i as u16)).collect();
    let zones = vec![Zone { kind: ZoneKind::Normal, managed: MEMORY }];
    let node = |&id: &NodeId| Node { id, medium: Medium::Dram, zones: zones.clone() };
    let link = |from: NodeId, to: NodeId| Link {
        from,
        to,
        read_latency: told(100_000),
        write_latency: told(100_000),
        read_bandwidth: told(10_000),
        write_bandwidth: told(10_000),
    };
    let distance = |a: &NodeId, b: &NodeId| if a == b { 10 } else { 21 };
    Hardware {
        name: "script".to_owned(),
        about: String::new(),
        nodes: ids.iter().map(node).collect(),
        cpus,
        caches: Vec::new(),
        distances: ids.iter().map(|a| ids.iter().map(|b| distance(a, b)).collect()).collect(),
        links: ids.iter().flat_map(|&a| ids.iter().map(move |&b| link(a, b))).collect(),
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Costs::default(),
    }
}

impl ScriptTwin {
    /// Boots a machine of this shape.
    ///
    /// # Errors
    /// [`SimError`], if it can't be simulated.
    pub fn boot(shape: &Shape, version: KernelVersion) -> Result<Self, SimError> {
        // As on the real ones: no memory is sampled, and nobody rolls dice.
        let knobs = vec![("numa_balancing".to_owned(), "0".to_owned())];
        let setup = Setup { version, seed: 1, knobs, ..Setup::default() };
        let mut sim = Simulation::boot(&machine(shape), &setup, 0)?;
        sim.sched.balance.knobs.newidle_random = false;
        Ok(Self { sim, crew: None, next: 0 })
    }
    fn crew(&self) -> Result<&Arc<Crew>, Finding> {
        self.crew.as_ref().ok_or_else(|| "no script has begun".to_owned())
    }
    fn task(&self, who: Name) -> Option<usize> {
        self.crew.as_ref()?.task(who)
    }
    /// A process of one task of the script, which begins at once.
    fn start(&mut self, crew: &Arc<Crew>, task: &Task) -> Result<(), Finding> {
        let sim = &mut self.sim;
        let of = crew.place(task.name).ok_or_else(|| format!("no task {}", task.name))?;
        let process = sim.add_program(task.name);
        let space = sim.kernel.new_space();
        let places: Vec<usize> = task.cpus.iter().map(|&cpu| sim.cpus.place(CpuId(cpu))).collect();
        let terms = Terms { set: sim.sched.q.set(&places), ..Terms::default() };
        let program = Box::new(Scripted::new(crew.clone(), of, 0));
        let cpu = places.first().copied().unwrap_or(0);
        let id = sim.new_task(Kind::Thread, process, space, cpu, &terms, program);
        sim.kernel.space_mut(space).users = 1;
        let now = sim.now();
        sim.kernel.numa_born(id, None, 1, now);
        let first = crew.tasks[of].set(id);
        debug_assert!(first.is_ok(), "no task is made twice");
        sim.enqueue(id);
        Ok(())
    }
    /// Runs until a time.
    fn reach(&mut self, time: u64) -> Result<(), Finding> {
        self.sim.run_until(time);
        match &self.sim.deadlock {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

/// The script with the one who looks after each step.
fn looked_at(script: &Script) -> Script {
    let mut script = script.clone();
    script.tasks.push(Task { name: LOOKER, cpus: vec![0] });
    for step in &mut script.steps {
        let start = Start::At(Picos(step.lasts.0 / 100 * LOOK));
        step.parts.push(Part { who: LOOKER, start, acts: vec![Act::Run(LOOKING)] });
    }
    script
}

impl SchedStage for ScriptTwin {
    fn begin(&mut self, script: &Script) -> Result<(), Finding> {
        let script = looked_at(script);
        let names = script.names();
        let count = names.len() as u32;
        let channels = |name: &str, kind| Channel {
            name: name.to_owned(),
            kind,
            count,
            group: 1,
            nodelay: false,
        };
        let declared =
            [channels("pipes", ChannelKind::Pipe), channels("futexes", ChannelKind::Futex)];
        self.sim.channels = Channels::new(&declared, self.sim.kernel.knobs.version);
        let settled = self.sim.now() + SETTLE.0;
        let mut offset = 0;
        let mut offsets = Vec::new();
        for step in &script.steps {
            offsets.push(offset);
            offset += step.lasts.0;
        }
        let crew = Arc::new(Crew {
            begins: settled.next_multiple_of(TICK) + BEHIND_TICK.0,
            offsets,
            tasks: names.iter().map(|_| OnceLock::new()).collect(),
            names,
            pipes: 0,
            futexes: count,
            script,
        });
        for task in &crew.script.tasks {
            self.start(&crew, task)?;
            // One after the other, so that each finds the machine as the one before did.
            let pause = self.sim.now() + TICK;
            self.reach(pause)?;
        }
        (self.next, self.crew) = (0, Some(crew));
        Ok(())
    }
    fn step(&mut self) -> Result<(), Finding> {
        let crew = self.crew()?.clone();
        let step = crew.script.steps.get(self.next).ok_or("the script is over")?;
        let begins = crew.begins + crew.offsets[self.next];
        let look = begins + step.lasts.0 / 100 * LOOK + 2 * LOOKING.0;
        self.next += 1;
        self.reach(look)?;
        let awake = |(name, task): (&Name, &OnceLock<usize>)| {
            let task = &self.sim.tasks[*task.get()?];
            let awake = task.lives() && task.run == crate::tasks::Run::Runnable;
            awake.then(|| format!("{name} is still awake when the step should be over"))
        };
        crew.names.iter().zip(&crew.tasks).find_map(awake).map_or(Ok(()), Err)
    }
    fn pid(&mut self, who: Name) -> Option<u32> {
        Some(self.sim.kernel.numa[self.task(who)?].pid)
    }
    fn cpu(&mut self, who: Name) -> Result<u32, Finding> {
        let task = self.task(who).ok_or_else(|| format!("{who} is not there"))?;
        let place = self.sim.tasks[task].cpu;
        Ok(self.sim.cpus[place].number.0)
    }
    fn read(&mut self, path: &str) -> Result<String, Finding> {
        // Who has ended is not waited for, and can still be looked at.
        let pid = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/sched"));
        if let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) {
            let task = self.sim.kernel.numa.iter().position(|task| task.pid == pid);
            let ended = task.filter(|&task| !self.sim.tasks[task].lives());
            if let Some(task) = ended {
                return Ok(self.sim.sched_of_ended(task).to_text());
            }
        }
        self.sim.read_file(path).map_err(|e| e.to_string())
    }
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        let written = self.sim.write_file(path, text, Rights::Root);
        written.map(|_| ()).map_err(|e| format!("{}: {e}", e.errno.name()))
    }
    fn write_unprivileged(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        if path != SWITCH {
            return Err(format!("{path} is not written without CAP_SYS_ADMIN here"));
        }
        let who = WriteAs { offset: 0, cap_sys_admin: false };
        let now = self.sim.now();
        let written = self.sim.kernel.set_knob("sched_schedstats", text, who, now);
        written.map_err(|e| format!("{}: {path} = {text}; {}", e.errno.name(), e.allowed))
    }
    fn keeps_stamps(&self) -> bool {
        false
    }
    fn end(&mut self) {
        let Some(crew) = self.crew.take() else { return };
        for task in crew.tasks.iter().filter_map(OnceLock::get) {
            if self.sim.tasks[*task].lives() {
                self.sim.end_space(self.sim.tasks[*task].space, None);
            }
        }
    }
}
