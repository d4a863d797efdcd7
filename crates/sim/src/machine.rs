//! The simulated machine as one that homenode drives: it sees no more than a live
//! source would show, and pays for looking and acting with its own processor time.
//!
//! ```text
//!            wait, submit                    virtual time
//! engine ◀───────────────▶ SimMachine ──▶ homenode's task, DAMON's thread
//!   (outside of time)                      │ read /proc, sources; move pages
//!                                          ▼
//!                                        kernel, other programs
//! ```
//!
//! homenode is a task like kswapd: it wakes on the least loaded CPU and takes turns
//! with the programs there. What the engine decides takes no code inside the
//! simulation, but time: so much for each thing that it was told.
//!
//! Source: specs/sources.md.

use crate::build::SimError;
use crate::simulation::Simulation;
use crate::simulation::agent::Agent;
use crate::vmstat::Item;
use crate::watch::By;
use homenode_core::knobs::KnobError;
use homenode_core::policy::order::{Act, Order};
use homenode_core::policy::seen::{Seen, Shows, Source, Span, Who, ZoneSeen};
use homenode_core::scenario::{Mempolicy, Process};
use homenode_core::topology;
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::{ApplyError, Caps, KnobOp, Machine, ObserveError, sound};
use std::collections::BTreeMap;

/// Most pages that an order may name: 64 MiB, a quarter of a second of moving.
const MOST_PAGES: u64 = 16_384;
/// Orders that may wait.
const MOST_ORDERS: usize = 1024;

/// Processor time that homenode has used, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// By its own task: reading, thinking, carrying orders out; and by what it keeps busy
    /// ([`SimMachine::keep_busy`]).
    pub homenode: u64,
    /// By DAMON's thread, on its behalf.
    pub kdamond: u64,
    /// By the programs, for being sampled: probes at hint faults, interrupts of the
    /// performance-monitoring unit. (Hint faults themselves are the kernel's.)
    pub sampled: u64,
}

impl Spent {
    /// All of it.
    pub fn all(&self) -> u64 {
        self.homenode + self.kdamond + self.sampled
    }
}

/// A simulation with homenode on it.
pub struct SimMachine {
    sim: Simulation,
    caps: Caps,
    /// Where it stops, in picoseconds.
    limit: u64,
    ended: bool,
}

/// Knobs that a source needs, after those of the scenario: with them homenode alone
/// moves pages between nodes, as far as the source leaves it a choice.
pub fn knobs_for(source: Source) -> Vec<(String, String)> {
    source.sheet().knobs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
}

impl SimMachine {
    /// Starts homenode on a simulated machine.
    ///
    /// # Errors
    /// [`SimError::Scenario`], where the source can't show anything: hint faults with
    /// `numa_balancing` off.
    pub fn new(mut sim: Simulation, source: Source) -> Result<Self, SimError> {
        if source.shows() == Shows::Faults && !sim.kernel.knobs.numa_balancing.enabled() {
            return Err(SimError::Scenario(
                "numa_balancing is 0, and without the kernel's scan there are no hint faults to \
                 see; set numa_balancing=3"
                    .into(),
            ));
        }
        let (seed, limit) = (sim.seed, sim.duration.unwrap_or(u64::MAX));
        Agent::start(&mut sim, source, seed);
        let caps = Caps {
            source,
            lacks: source.sheet().lacks.to_vec(),
            moves: true,
            affinity: true,
            splits: true,
            knobs: true,
            most_pages: MOST_PAGES,
        };
        Ok(Self { sim, caps, limit, ended: false })
    }
    /// Tells from now on how much nodes are loaded, as counters of memory controllers would: for
    /// policies that are built on them. Reading them costs nothing. Without them it is told as far
    /// as the source of heat shows how late nodes answer.
    pub fn count_load(&mut self) {
        self.agent().has_counters = true;
    }
    /// What is told of loads is off, by whatever it was taken.
    ///
    /// * `share` – of what load adds to a node's latency so much is told, in thousandths.
    pub fn spoil_load(&mut self, share: impl Fn(NodeId) -> u32) {
        let shares = self.sim.machine.nodes.iter().map(|node| share(node.id)).collect();
        self.agent().load_shares = shares;
    }
    /// From now on so many threads of the policy are busy all the time, each a task of nice 0 that may
    /// run on any CPU. The first is the one that reads, thinks and moves: it looks for something to do
    /// in place of sleeping. Where no CPU is idle they take turns with the programs, as the scheduler
    /// has it, and what there is to do waits until it is that one's turn.
    ///
    /// Source: specs/compare.md#busy.
    pub fn keep_busy(&mut self, threads: u32) {
        if threads == 0 {
            return;
        }
        let agent = self.agent();
        agent.spins = true;
        let task = agent.task;
        self.sim.wake(task, By::Outside);
        for _ in 1..threads {
            let task = self.sim.start_busy();
            self.agent().busy.push(task);
        }
    }
    /// What is simulated.
    pub fn simulation(&self) -> &Simulation {
        &self.sim
    }
    /// The same, to be changed from outside: watched, or with other knobs.
    pub fn simulation_mut(&mut self) -> &mut Simulation {
        &mut self.sim
    }
    /// What homenode has used so far.
    pub fn spent(&self) -> Spent {
        let agent = self.sim.agent.as_ref().expect("started in new");
        Spent {
            homenode: self.sim.ran_until_now(agent.task)
                + agent.busy.iter().map(|&id| self.sim.ran_until_now(id)).sum::<u64>(),
            kdamond: agent.heat.thread().map_or(0, |k| self.sim.tasks[k].ran),
            sampled: self.sim.kernel.probe.as_ref().map_or(0, |p| p.spent)
                + self.sim.pmu.as_ref().map_or(0, |p| p.spent),
        }
    }
    /// One number for the run, and for what homenode has used in it.
    pub fn hash(&self) -> u64 {
        let s = self.spent();
        let mix = |h: u64, v: u64| (h ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        [s.homenode, s.kdamond, s.sampled].into_iter().fold(self.sim.hash(), mix)
    }

    // ── From outside, as a person at the machine would ─────────────────────────

    /// Starts a program now, under a PID of its own or a given one; where its mappings
    /// lie, in the order of `process.maps`.
    pub fn spawn(&mut self, process: Process, pid: Option<u32>) -> (Who, Vec<Span>) {
        let first = self.sim.spawn(process);
        if let Some(pid) = pid {
            self.sim.kernel.numa[first].pid = pid;
        }
        let space = self.sim.tasks[first].space;
        let vmas = &self.sim.kernel.space(space).vmas;
        let spans = vmas.iter().map(|v| Span { start: v.start, end: v.end }).collect();
        let procs = self.sim.procs();
        let who = procs.iter().find(|p| p.space == space).expect("just started").who;
        (who, spans)
    }
    /// Ends a program, as by a signal. False if it isn't there.
    pub fn end(&mut self, who: Who) -> bool {
        let Some(space) = self.space_of(who) else { return false };
        self.sim.end_space(space, None);
        true
    }
    /// Binds a stretch of a program's memory to a node, without moving it.
    pub fn bind(&mut self, who: Who, span: Span, to: NodeId) -> bool {
        let Some(space) = self.space_of(who) else { return false };
        let policy = Mempolicy::Bind { nodes: vec![to], balancing: false };
        let own = self.sim.policy_of(space);
        let mut ctx = crate::kernel::Ctx::nobody(0);
        self.sim.kernel.mbind(&mut ctx, space, span.start, span.end, &policy, &own);
        true
    }
    /// Pages of a stretch of a program's memory by node, as the page tables have them.
    pub fn placed(&self, who: Who, span: Span) -> BTreeMap<NodeId, Pages> {
        let Some(space) = self.space_of(who) else { return BTreeMap::new() };
        self.sim.placed(space, span)
    }
    /// Processor time of a program so far; `None` if it isn't there.
    pub fn ran(&self, who: Who) -> Option<Picos> {
        let procs = self.sim.procs();
        procs.iter().find(|p| p.who == who).map(|p| Picos(p.ran()))
    }
    /// Pages moved between nodes so far, by whomever: `pgmigrate_success`.
    pub fn moved(&self) -> Pages {
        Pages(self.sim.vmstat().get(Item::PgmigrateSuccess))
    }
    /// A node's zones with their marks; none if there is no such node.
    pub fn zones(&self, node: NodeId) -> Vec<ZoneSeen> {
        self.sim.machine.position(node).map(|p| self.sim.zones_seen(p)).unwrap_or_default()
    }
    fn space_of(&self, who: Who) -> Option<usize> {
        self.sim.procs().iter().find(|p| p.who == who).map(|p| p.space)
    }
    fn agent(&mut self) -> &mut Agent {
        self.sim.agent.as_mut().expect("started in new")
    }
    fn stop(&mut self, out: &mut Vec<Seen>) -> ObserveError {
        self.ended = true;
        self.sim.settle_all();
        let agent = self.agent();
        agent.finish();
        agent.deliver(out);
        self.sim.speaks = false;
        ObserveError::Ended
    }
    fn check(&self, order: &Order) -> Result<usize, ApplyError> {
        let who = match &order.act {
            Act::Affine { who, node } => {
                if !self.sim.machine.has_cpu(*node) {
                    return Err(ApplyError::NoNode);
                }
                who
            }
            Act::SetKnob { .. } => return Ok(usize::MAX),
            Act::Watch { who }
            | Act::Unwatch { who }
            | Act::Census { who }
            | Act::Look { who, .. }
            | Act::Move { who, .. }
            | Act::Split { who, .. } => who,
        };
        sound(&order.act, &self.sim.machine, self.caps.most_pages)?;
        self.space_of(*who).ok_or(ApplyError::NoProcess)
    }
}

impl Machine for SimMachine {
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn topology(&self) -> &topology::Hardware {
        &self.sim.machine
    }
    fn now(&self) -> Picos {
        Picos(self.sim.now())
    }
    /// Reading what there is to see takes time of its own: the machine's clock is
    /// somewhat beyond `until` afterwards.
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        if self.ended {
            return Err(ObserveError::Ended);
        }
        if until.0 <= self.sim.now() {
            self.sim.look_around();
        } else {
            let alarm = self.agent().alarm;
            self.sim.timeline.set(alarm, until.0);
        }
        let (task, busy) = (self.agent().task, !self.agent().is_idle());
        if busy {
            self.sim.wake(task, By::Outside);
        }
        while !self.sim.speaks {
            if self.sim.idle() || self.sim.now() >= self.limit {
                return Err(self.stop(out));
            }
            self.sim.run_until(self.limit);
        }
        self.sim.speaks = false;
        let alarm = self.agent().alarm;
        self.sim.timeline.clear(alarm);
        self.agent().deliver(out);
        Ok(())
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        if self.ended {
            return Err(ApplyError::NoProcess);
        }
        let space = self.check(order)?;
        if self.agent().waiting() >= MOST_ORDERS {
            return Err(ApplyError::Full);
        }
        let Simulation { agent, machine, .. } = &mut self.sim;
        agent.as_mut().expect("started in new").order(order.id, &order.act, space, machine);
        let task = self.agent().task;
        self.sim.wake(task, By::Outside);
        Ok(())
    }
    fn sample_every(&mut self, period: u64) {
        if let Some(pmu) = &mut self.sim.pmu {
            pmu.sample_every(period);
        }
    }
    /// Of those whom samples watch: other sources have no unit that counts.
    ///
    /// Source: specs/sources.md#loads.
    fn count_overlap(&mut self) {
        if let Some(pmu) = &mut self.sim.pmu {
            pmu.counts_loads = true;
        }
    }
    fn tell_huge(&mut self) {
        self.agent().tells_huge = true;
    }
    fn thinks(&mut self, time: Picos) {
        if !self.ended {
            self.agent().think(time);
        }
    }
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError> {
        let knob = match op {
            KnobOp::Read(knob) => knob,
            KnobOp::Write(knob, text) => {
                self.sim.set_knob(&knob.name(), text)?;
                knob
            }
        };
        self.sim.kernel.knobs.get(&knob.name())
    }
}

#[cfg(test)]
mod tests;
