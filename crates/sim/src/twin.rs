//! A simulated kernel that stands beside a real one: the same nodes, zones and version,
//! the same memory in use, and the programs that a body of
//! [`homenode_machine::endtoend`] starts.
//!
//! ```text
//! zones of a machine, pages in use ──▶ Twin ◀── knobs by path, programs
//!                                       │
//!                                       └──▶ /proc/vmstat, zoneinfo, numa_maps
//! ```
//!
//! Source: specs/end-to-end.md#twin

mod scripts;

pub use scripts::ScriptTwin;

use crate::build::{Setup, SimError};
use crate::simulation::Simulation;
use crate::watch::By;
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{
    CpuStep, Map, Mempolicy, Model, Pattern, Process, Rights, Step, Until,
};
use homenode_core::topology::{Hardware, ZoneKind};
use homenode_core::units::{CpuId, HUGE_PAGES, NodeId, PAGE_SIZE, Pages, Picos};
use homenode_machine::conformance::ALWAYS;
use homenode_machine::endtoend::{At, Finding, KernelStage, Program, Reads, Runs, Started};

/// Computing between two reads: as little as lets pages be read many times between two
/// scans.
const COMPUTE: Picos = Picos::from_us(2);
/// Virtual time that passes at a time: a tick.
const PASS: Picos = Picos::from_ms(4);
/// Programs begin so long after a tick, not on it: else what is due after a whole number
/// of ticks would hang on the last access before one.
const BESIDE: Picos = Picos::from_us(1700);
/// Passes within which a program has touched all of its memory.
const TOUCHES: u32 = 10_000;

/// A simulated kernel with programs on it.
pub struct Twin {
    sim: Simulation,
    version: KernelVersion,
    running: Vec<u32>,
}

impl Twin {
    /// Boots a machine on which some pages are in use from the start, as the kernel's
    /// own: they are on no list, and nobody moves them.
    ///
    /// # Errors
    /// [`SimError`], if the machine can't be simulated.
    pub fn boot(
        machine: &Hardware,
        version: KernelVersion,
        model: Model,
        used: &[(NodeId, ZoneKind, Pages)],
    ) -> Result<Self, SimError> {
        let all: Pages = machine.nodes.iter().map(|n| n.managed()).sum();
        // Address space is given back when programs end, but holes need not fit.
        let setup = Setup { version, model, seed: 1, room: all.0 * 2, ..Setup::default() };
        let mut sim = Simulation::boot(machine, &setup, 0)?;
        for &(node, kind, pages) in used {
            sim.kernel.take_for_good(node, kind, pages);
        }
        let cpu = machine.cpus.last().map_or(CpuId(0), |c| c.id);
        // A machine without any program has stopped; this one sleeps through it all.
        let rest = Process::new("rest", vec![cpu], Vec::new(), vec![Step::Sleep(ALWAYS)]);
        sim.spawn(rest);
        sim.run_until(BESIDE.0);
        Ok(Self { sim, version, running: Vec::new() })
    }
    /// What is simulated.
    pub fn simulation(&self) -> &Simulation {
        &self.sim
    }
    fn space_of(&self, pid: u32) -> Option<usize> {
        self.sim.procs().iter().find(|p| p.who.pid == pid).map(|p| p.space)
    }
    /// A program gives back all but so many pages of each 2 MiB and asks for huge pages.
    fn ask_for_huge(&mut self, space: usize, kept: u64) {
        let mut ctx = self.sim.outside();
        let kernel = &mut self.sim.kernel;
        let parts: Vec<(u64, u64)> =
            kernel.space(space).vmas.iter().map(|v| (v.start, v.end)).collect();
        for (start, end) in parts {
            for first in (start..end).step_by(HUGE_PAGES as usize) {
                let (from, to) = (first + kept, (first + HUGE_PAGES).min(end));
                if from < to {
                    kernel.discard(&mut ctx, space, from, to);
                }
            }
            kernel.advise_huge(space, start, true);
        }
    }
    fn run(&mut self) -> Result<(), Finding> {
        let until = self.sim.now() + PASS.0;
        self.sim.run_until(until);
        if self.sim.idle() { Err("the simulated machine has stopped".to_owned()) } else { Ok(()) }
    }
}

impl KernelStage for Twin {
    fn version(&self) -> KernelVersion {
        self.version
    }
    fn read(&mut self, path: &str) -> Result<String, Finding> {
        self.sim.read_file(path).map_err(|e| e.to_string())
    }
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        self.sim.write_file(path, text, Rights::Root).map_err(|e| e.to_string())
    }
    fn list(&mut self, folder: &str) -> Result<Vec<String>, Finding> {
        // What a kernel doesn't have holds nothing.
        Ok(self.sim.list(folder).unwrap_or_default())
    }
    fn start(&mut self, program: &Program) -> Result<Started, Finding> {
        let Program { name, hot, cold, on, huge, later, runs, reads } = *program;
        let (Runs::Pinned(node) | Runs::From(node)) = runs;
        let cpu = self.sim.machine.cpus_of(node).next();
        let cpu = cpu.ok_or_else(|| format!("node {node} has no CPU"))?;
        let policy = match on {
            At::Anywhere => Mempolicy::Default,
            At::First(to) | At::Bound(to) => Mempolicy::Bind { nodes: vec![to], balancing: false },
            At::Tied(to) => Mempolicy::Bind { nodes: vec![to], balancing: true },
        };
        let stretches: Vec<(&str, u64)> =
            [("hot", hot), ("cold", cold)].into_iter().filter(|s| s.1 > 0).collect();
        let map = |&(name, pages): &(&str, u64)| Map {
            huge,
            policy: policy.clone(),
            ..Map::anonymous(name, Pages(pages).bytes())
        };
        let maps = stretches.iter().map(map).collect();
        let touch = |s: &(&str, u64)| Step::Touch { map: s.0.to_owned() };
        let mut steps: Vec<Step> = stretches.iter().map(touch).collect();
        if let At::First(_) = on {
            let free =
                |s: &(&str, u64)| Step::Mbind { map: s.0.to_owned(), policy: Mempolicy::Default };
            steps.extend(stretches.iter().map(free));
        }
        if let Runs::From(_) = runs {
            let cpus = self.sim.machine.cpus.iter().map(|c| c.id).collect();
            steps.push(Step::Cpu(CpuStep::Affinity { cpus }));
        }
        let read = |until| Step::Access {
            map: "hot".to_owned(),
            pattern: Pattern::Sequential,
            write: 0,
            compute: COMPUTE,
            mlp: 1,
            until,
        };
        match reads {
            Reads::For(busy) if hot > 0 && busy > Picos::ZERO => {
                steps.push(read(Until::Time(busy)));
            }
            Reads::For(_) => {}
            Reads::Walks(times) => {
                let walk = [Step::Sleep(ALWAYS), read(Until::Accesses(hot))];
                steps.extend((0..times).flat_map(|_| walk.clone()));
            }
        }
        steps.push(Step::Sleep(ALWAYS));
        let first = self.sim.spawn(Process::new(name, vec![cpu], maps, steps));
        let pid = self.sim.kernel.numa[first].pid;
        self.running.push(pid);
        let gone = || format!("{name} has ended by itself");
        let space = self.space_of(pid).ok_or_else(gone)?;
        let starts: Vec<u64> =
            self.sim.kernel.space(space).vmas.iter().map(|v| v.start * PAGE_SIZE).collect();
        let at = |which: &str| starts.get(stretches.iter().position(|s| s.0 == which)?).copied();
        let started = Started { pid, hot: at("hot"), cold: at("cold") };
        for _ in 0..TOUCHES {
            let space = self.space_of(pid).ok_or_else(gone)?;
            if self.sim.kernel.space(space).rss == hot + cold {
                if let Some(kept) = later {
                    self.ask_for_huge(space, kept);
                }
                return Ok(started);
            }
            self.run()?;
        }
        Err(format!("{name} does not touch its memory"))
    }
    fn walk(&mut self, who: &Started) -> Result<(), Finding> {
        // A process's first task has its number.
        let task = self.sim.kernel.numa.iter().position(|n| n.pid == who.pid);
        let id = task.ok_or_else(|| format!("process {} is not there", who.pid))?;
        let asleep = |sim: &Simulation| sim.tasks[id].sleeps();
        if !asleep(&self.sim) {
            return Err(format!("process {} does not wait to be asked", who.pid));
        }
        self.sim.wake(id, By::Outside);
        for _ in 0..TOUCHES {
            self.run()?;
            if asleep(&self.sim) {
                return Ok(());
            }
        }
        Err(format!("process {} does not come to the end of its walk", who.pid))
    }
    fn ran(&mut self, who: &Started) -> Result<Picos, Finding> {
        let procs = self.sim.procs();
        let found = procs.iter().find(|p| p.who.pid == who.pid);
        found.map(|p| Picos(p.ran())).ok_or_else(|| format!("process {} is not there", who.pid))
    }
    fn cpu_node(&mut self, who: &Started) -> Result<NodeId, Finding> {
        let procs = self.sim.procs();
        let found = procs.iter().find(|p| p.who.pid == who.pid).and_then(|p| p.node);
        found.ok_or_else(|| format!("process {} is not there", who.pid))
    }
    fn pass(&mut self) -> Result<(), Finding> {
        self.run()
    }
    fn end_all(&mut self) {
        for pid in std::mem::take(&mut self.running) {
            if let Some(space) = self.space_of(pid) {
                self.sim.end_space(space, None);
            }
        }
        // The machine rests, so it goes on.
        let until = self.sim.now() + PASS.0;
        self.sim.run_until(until);
    }
}
