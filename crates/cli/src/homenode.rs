//! Columns in which a policy drives in place of the kernel's balancing: their runs, and
//! what tables say of them.

use crate::contender::{Contender, Drives};
use anyhow::{Result, anyhow};
use homenode_core::engine::order::{Fails, Reason};
use homenode_core::engine::seen::Source;
use homenode_core::engine::{Ledger, Settings, Verdict};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy;
use homenode_core::units::Picos;
use homenode_machine::{Machine as _, drive};
use homenode_report::{Better, Figure, Group, ReplayRun};
use homenode_sim::Simulation;
use homenode_sim::machine::{SimMachine, Spent};
use std::collections::BTreeSet;

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
    time: u64,
}

impl Own {
    /// Pages that it moved for a reason.
    pub(crate) fn moved(&self, why: Reason) -> u64 {
        let rows = self.ledger.moves.iter().filter(|((of, ..), _)| *of == why);
        rows.map(|(_, m)| m.moved.0).sum()
    }
}

impl Runner {
    pub(crate) fn new(
        sim: Simulation,
        contender: &Contender,
        version: KernelVersion,
    ) -> Result<Self> {
        let Some(Drives { source, make, .. }) = contender.drives else {
            return Ok(Self::Alone(Box::new(sim)));
        };
        let machine = SimMachine::new(sim, source)?;
        let policy = make(machine.topology(), version, machine.caps());
        Ok(Self::With(Box::new((machine, policy))))
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

/// homenode's moves are promotions and demotions too, though the kernel's counters of
/// these do not count `move_pages`.
pub(crate) fn add_moves(run: &mut ReplayRun, own: Option<&Own>) {
    run.promoted += own.map_or(0, |own| own.moved(Reason::Hot));
    run.demoted += own.map_or(0, |own| own.moved(Reason::MakeRoom));
}

/// What policies did and used, by column; no group where no column has one.
pub(crate) fn group(contenders: &[&Contender], columns: &[Vec<Option<Own>>]) -> Option<Group> {
    if columns.iter().flatten().all(Option::is_none) {
        return None;
    }
    let mut figures = Vec::new();
    let mut row = |name: &str, unit: &str, precision, get: &dyn Fn(&Own) -> f64| {
        let of = |runs: &Vec<Option<Own>>| runs.iter().flatten().map(get).collect();
        figures.push(Figure {
            name: name.into(),
            unit: unit.into(),
            better: Better::Neither,
            precision,
            samples: columns.iter().map(of).collect(),
        });
    };
    let s = |ps: u64| ps as f64 / 1e12;
    row("its own CPU time", "s", 4, &|o| s(o.spent.homenode));
    row("CPU time of DAMON's thread", "s", 4, &|o| s(o.spent.kdamond));
    row("programs' time for being sampled", "s", 4, &|o| s(o.spent.sampled));
    row("all of it, of one CPU", "%", 2, &|o| o.spent.all() as f64 * 100.0 / o.time.max(1) as f64);
    for why in [
        Reason::SlowStartOver,
        Reason::PlaceUnknown,
        Reason::Hot,
        Reason::MakeRoom,
        Reason::NearItsCpus,
    ] {
        if columns.iter().flatten().flatten().any(|o| o.ledger.orders(why).times > 0) {
            let name = format!("orders: {}", why.name());
            row(&name, "", 0, &|o| o.ledger.orders(why).times as f64);
        }
    }
    row("pages tried", "", 0, &|o| o.ledger.total().tried.0 as f64);
    row("pages moved", "", 0, &|o| o.ledger.total().moved.0 as f64);
    type Cause = (&'static str, fn(&Fails) -> u64);
    let causes: [Cause; 5] = [
        ("no room", |f| f.no_room.0),
        ("busy", |f| f.busy.0),
        ("absent or elsewhere", |f| f.absent.0),
        ("forbidden", |f| f.forbidden.0),
        ("process gone", |f| f.gone.0),
    ];
    for (name, get) in causes {
        row(&format!("not moved: {name}"), "", 0, &|o| get(&o.ledger.total().fails) as f64);
    }
    // What was left alone and why: a table without moves has to say what kept them.
    let judged: BTreeSet<Verdict> = columns
        .iter()
        .flatten()
        .flatten()
        .flat_map(|o| o.ledger.verdicts.keys().copied())
        .collect();
    for verdict in judged {
        let name = match verdict {
            Verdict::Move { .. } => continue,
            Verdict::Stay { why } => format!("left, a decision: {}", why.name()),
            Verdict::Unknown { lacks } => format!("left, a decision: unknown {}", lacks.name()),
        };
        row(&name, "pages", 0, &|o| {
            let pages = o.ledger.verdicts.get(&verdict).map_or(0, |t| t.pages);
            pages as f64 / o.ledger.decisions.max(1) as f64
        });
    }
    row("expected to save", "s", 4, &|o| o.ledger.saves.as_secs_f64());
    row("expected to cost", "s", 4, &|o| o.ledger.costs.as_secs_f64());
    row("events lost", "", 0, &|o| o.ledger.lost as f64);
    let mut who: Vec<&str> = contenders.iter().filter_map(|c| Some(c.drives?.name)).collect();
    who.dedup();
    Some(Group { title: who.join(", "), figures })
}

/// Sentences for the caption about a policy of this name.
pub(crate) fn notes(who: &str, source: Source) -> Vec<String> {
    let counted = "moves count as promoted and demoted pages, but not in pgpromote and pgdemote, \
                   which move_pages does not touch";
    let s = Settings::default();
    let second = if who == "homenode" {
        format!(
            "homenode's budgets: {:.1} % of one CPU for its own work, {} MB/s moved, {} for an order; it samples a process after {} of its CPU time; its {counted}",
            f64::from(s.cpu_permille) / 10.0,
            s.moved_mbps.0,
            homenode_config::write_time(s.stall),
            homenode_config::write_time(s.start_delay),
        )
    } else {
        format!("{who} is no part of homenode; its {counted}")
    };
    // Nobody but homenode says of itself what it sees; all see the same.
    vec![source.sheet().simulated.replace("homenode", who), second]
}
