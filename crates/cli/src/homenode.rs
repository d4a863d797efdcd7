//! Columns in which a policy drives in place of the kernel's balancing: their runs, and
//! what captions say of them.

use crate::contender::{Contender, Drives, Knowledge};
use anyhow::{Result, anyhow, bail};
use homenode_core::policy::{Ledger, Policy};
use homenode_core::units::Picos;
use homenode_machine::{Machine as _, drive};
use homenode_sim::machine::{SimMachine, Spent};
use homenode_sim::{Setup, Simulation};

/// A simulation with or without a policy that drives it.
pub(crate) enum Runner {
    Alone(Box<Simulation>),
    With(Box<(SimMachine, Box<dyn Policy>)>),
}

/// What a policy did and used in one run.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) ledger: Ledger,
    pub(crate) spent: Spent,
    pub(crate) time: u64,
}

impl Runner {
    pub(crate) fn new(sim: Simulation, contender: &Contender, setup: &Setup) -> Result<Self> {
        Self::knowing(sim, contender, setup, Knowledge::Exact)
    }
    /// The same with a policy that knows the machine no better than that.
    pub(crate) fn knowing(
        sim: Simulation,
        contender: &Contender,
        setup: &Setup,
        knowledge: Knowledge,
    ) -> Result<Self> {
        let Some(Drives { source, make, .. }) = contender.drives else {
            return Ok(Self::Alone(Box::new(sim)));
        };
        let mut machine = SimMachine::new(sim, source)?;
        let told = knowledge.told(machine.topology(), setup.seed);
        let mut policy = make.make(&told, setup.version, machine.caps());
        policy.stands_for(setup.scale);
        machine.spoil_load(|node| knowledge.load(node, setup.seed));
        if policy.needs_load() {
            machine.count_load();
        }
        machine.keep_busy(contender.busy.map_or(0, |busy| busy.threads(policy.as_ref())));
        Ok(Self::With(Box::new((machine, policy))))
    }
    /// The simulation, of a run that is over and came to its end.
    ///
    /// # Errors
    /// The simulation's own; a deadlock.
    pub(crate) fn ended(&self) -> Result<&Simulation> {
        let sim = self.sim();
        if let Some(e) = sim.error() {
            bail!("{e}");
        }
        if let Some(why) = sim.deadlock() {
            bail!("at {}: {why}", homenode_config::write_time(Picos(sim.now())));
        }
        Ok(sim)
    }
    pub(crate) fn sim(&self) -> &Simulation {
        match self {
            Self::Alone(sim) => sim,
            Self::With(both) => both.0.simulation(),
        }
    }
    /// Runs until virtual time reaches this (picoseconds) or everything has ended.
    pub(crate) fn run_until(&mut self, until: u64) -> Result<()> {
        match self {
            Self::Alone(sim) => sim.run_until(until),
            Self::With(both) => {
                let (machine, policy) = &mut **both;
                drive(machine, policy.as_mut(), Picos(until)).map_err(|e| anyhow!("{e}"))?;
            }
        }
        Ok(())
    }
    /// Runs until everything has ended or the run's time is over.
    pub(crate) fn run(&mut self) -> Result<()> {
        match self {
            Self::Alone(sim) => {
                sim.run();
                Ok(())
            }
            Self::With(_) => self.run_until(u64::MAX),
        }
    }
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Alone(sim) => sim.hash(),
            Self::With(both) => both.0.hash(),
        }
    }
    pub(crate) fn own(&self) -> Option<Own> {
        match self {
            Self::Alone(_) => None,
            Self::With(both) => Some(Own {
                ledger: both.1.ledger().clone(),
                spent: both.0.spent(),
                time: both.0.simulation().now(),
            }),
        }
    }
}
