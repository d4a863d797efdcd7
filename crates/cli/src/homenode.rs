//! The column homenode: the engine in place of the kernel's balancing, on a simulated
//! machine.

use anyhow::{Result, anyhow};
use homenode_core::engine::order::{Fails, Reason};
use homenode_core::engine::seen;
use homenode_core::engine::{Engine, Ledger, Settings, Verdict};
use homenode_core::kernel::KernelVersion;
use homenode_core::units::Picos;
use homenode_machine::{Machine as _, drive};
use homenode_report::{Better, Figure, Group, ReplayRun};
use homenode_sim::Simulation;
use homenode_sim::machine::{SimMachine, Spent};
use std::collections::BTreeSet;

/// What homenode sees of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// DAMON's regions: heat and age of stretches of memory
    Damon,
    /// The kernel's hint faults, seen as they happen
    HintFault,
    /// Every ten-thousandth access, by hardware counters
    Pmu,
}

impl Source {
    pub(crate) const fn of_core(self) -> seen::Source {
        match self {
            Self::Damon => seen::Source::Damon,
            Self::HintFault => seen::Source::HintFault,
            Self::Pmu => seen::Source::Pmu,
        }
    }
    /// A column's name, in two lines.
    pub(crate) fn column(self) -> String {
        format!("homenode-{}", self.of_core().name())
    }
    /// What it shows and lacks, for captions.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Damon => {
                "homenode sees DAMON's regions (5 ms, 100 ms, 10 to 1000 of them) and what /proc \
                 shows; DAMON tells neither CPU nor place, so the node of a process's CPUs comes \
                 from /proc, and places are looked up"
            }
            Self::HintFault => {
                "homenode sees hint faults with page, CPU's node and page's node, and what /proc \
                 shows; the scan is the kernel's, and it passes over what a process of one thread \
                 has on its own node, so that nothing is known to be cold there; promote_rate_limit 0 leaves promotion to homenode, \
                 but where a fast node has 1 GiB or a sixteenth free above its promo mark, the \
                 kernel's free-space shortcut still promotes"
            }
            Self::Pmu => {
                "homenode sees every 10007th access by count with page and CPU's node, and what \
                 /proc shows; where pages are is looked up"
            }
        }
    }
}

/// A simulation with or without homenode on it.
pub(crate) enum Runner {
    Alone(Box<Simulation>),
    With(Box<(SimMachine, Engine)>),
}

/// What homenode did and used in one run.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) ledger: Ledger,
    pub(crate) spent: Spent,
    time: u64,
}

impl Runner {
    pub(crate) fn new(
        sim: Simulation,
        source: Option<Source>,
        version: KernelVersion,
    ) -> Result<Self> {
        let Some(source) = source else { return Ok(Self::Alone(Box::new(sim))) };
        let machine = SimMachine::new(sim, source.of_core())?;
        let caps = machine.caps();
        let engine = Engine::new(
            Settings::default(),
            machine.topology(),
            version,
            caps.source,
            &caps.lacks,
            caps.most_pages,
        );
        Ok(Self::With(Box::new((machine, engine))))
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
                let (machine, engine) = &mut **both;
                drive(machine, engine, Picos(until)).map_err(|e| anyhow!("{e}"))?;
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
    for (&(why, ..), m) in own.iter().flat_map(|o| &o.ledger.moves) {
        match why {
            Reason::Hot => run.promoted += m.moved.0,
            Reason::MakeRoom => run.demoted += m.moved.0,
            _ => {}
        }
    }
}

/// What homenode did and used, by column; no group where no column has it.
pub(crate) fn group(columns: &[Vec<Option<Own>>]) -> Option<Group> {
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
    Some(Group { title: "homenode".into(), figures })
}

/// Sentences for the caption.
pub(crate) fn notes(source: Source) -> Vec<String> {
    let s = Settings::default();
    vec![
        source.about().to_owned(),
        format!(
            "homenode's budgets: {:.1} % of one CPU for its own work, {} MB/s moved, {} for an order; it samples a process after {} of its CPU time; its moves count as promoted and demoted pages, but not in pgpromote and pgdemote, which move_pages does not touch",
            f64::from(s.cpu_permille) / 10.0,
            s.moved_mbps.0,
            homenode_config::write_time(s.stall),
            homenode_config::write_time(s.start_delay),
        ),
    ]
}
