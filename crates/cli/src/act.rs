//! `homenode act`: what `advise` says, done, within budgets; and every move written down.
//!
//! ```text
//! processes ─▶ here::work ─▶ live machine with a mover ◀─▶ engine
//!                                │ deeds
//!                                └─▶ moved: ledger, sums ─▶ show: table, JSON lines
//! --engine kernel ─▶ kernel: three knobs, journaled ─▶ the kernel's counters ─▶ ledger
//! ```
//!
//! Source: specs/act.md.

mod came;
mod counted;
mod kernel;
mod moved;
mod pays;
mod show;

use crate::drive;
use crate::failure::Lacks;
use crate::here::{Doing, Done, Here, Task, own_time, work};
use crate::live::Found;
use crate::whom::{Means, Whom};
use anyhow::{Result, bail};
use counted::Counted;
use homenode_core::engine::{Engine, Settings};
use homenode_core::units::Picos;
use homenode_live::acting::{ACTING, Actor};
use homenode_live::ledger::{LARGE, Writer};
use homenode_live::machine::LiveMachine;
use homenode_live::place::Place;
use homenode_machine::{Acting, Around as _, Deed, Machine as _, ObserveError};
use moved::Moved;
use show::Shower;
use std::path::{Path, PathBuf};

/// Move memory to where it is used, within budgets, and write every move down.
///
/// The same rules as those of `homenode advise` decide for the processes that are named,
/// and their moves are carried out: at most 1 % of one CPU, 100 MB moved a second, and 1 ms
/// for which a call may hold a process up. Bound, pinned, shared and huge pages of hugetlb
/// stay where they are. On a terminal a table is redrawn in place; else there is a JSON
/// object a line, beside CMD on standard error. Each move is in the ledger, which
/// `homenode ledger` shows. Pages stay where they were moved to; settings are put back at
/// the end, and after a crash by `homenode restore`. One homenode acts at a time.
///
/// With --engine kernel the kernel's own balancing and demotion are set up instead, watched,
/// and put back. They are for the whole machine.
///
/// Where moves cost more than they save, as far as the source of heat shows it, it stops by
/// itself and says so.
///
/// Exit codes: 0 done, also where there is nowhere to move; 2 bad usage, or processes that
/// are not there; 3 the system lacks something, or another homenode acts; with CMD its own,
/// or 128 and the signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode act --pid 4711 --for 10m
  homenode act --cgroup system.slice/db.service --config act.toml
  homenode act -- ./build-and-test
  homenode act --engine kernel --all --yes --for 60s")]
#[command(mut_group("who", |who| who.required(true)))]
#[command(mut_arg("command", |c| c.help("The program to be acted for, with its arguments")))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Act for whom this concerns beyond what is named one by one: --all, --engine kernel
    #[arg(long)]
    yes: bool,
    /// How long; without it until Ctrl-C, or until nobody is left
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    length: Option<Picos>,
    /// Budgets, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who moves
    #[arg(long, value_name = "ENGINE", default_value = "homenode")]
    engine: EngineArg,
    #[command(flatten)]
    means: Means,
    /// This machine's file, by `homenode measure`; without it latencies are firmware's, or
    /// assumed
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Print a JSON object a line on a terminal too
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineArg {
    /// homenode's own rules, for the processes that are named
    Homenode,
    /// The kernel's balancing and demotion, for the whole machine
    Kernel,
}

/// A time; `10m` and `2h` too.
pub(crate) fn span(text: &str) -> Result<Picos, String> {
    let long = |unit: char, seconds: u64| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(format!("{} s", number.checked_mul(seconds)?))
    };
    let plain = long('m', 60).or_else(|| long('h', 3600));
    crate::replay::span("60s")(plain.as_deref().unwrap_or(text))
}

pub(crate) fn run(args: &Args) -> Result<u8> {
    if !args.yes && args.whom.all {
        bail!("--all moves memory of every process: say --yes too, if that is what you want");
    }
    let settings = match &args.config {
        Some(path) => homenode_config::read_act(path)?.settings,
        None => Settings::default(),
    };
    if args.engine == EngineArg::Kernel {
        return kernel::run(args, settings);
    }
    if args.means.root != Path::new("/") {
        bail!("--root is another machine's files: pages can't be moved there");
    }
    let task = Task {
        whom: &args.whom,
        means: &args.means,
        file: args.machine.as_deref(),
        length: args.length,
        settings,
    };
    let mut acts = Acts { args, settings, held: None, trouble: None };
    let done = work(&task, &mut acts);
    let Done { here, warnings, code } = done?;
    for warning in &warnings {
        eprintln!("homenode: {warning}");
    }
    if let Some(nothing) = &here.nothing {
        eprintln!("homenode: nothing was moved: {nothing}");
    }
    match acts.trouble {
        Some(why) => Err(why),
        None => Ok(code),
    }
}

/// Says that this process acts, and where moves are written down.
struct Held {
    actor: Actor,
    ledger: Writer,
}

impl Held {
    /// # Errors
    /// Somebody else acts, or has ended without putting knobs back; or nothing can be
    /// written down. Nothing was changed.
    fn take(place: &Place) -> Result<Self> {
        let (actor, note) = Actor::begin(&ACTING, place)?;
        if let Some(note) = note {
            eprintln!("homenode: {note}");
        }
        Ok(Self { ledger: Writer::open(place, LARGE)?, actor })
    }
}

/// Carries out what the engine orders.
struct Acts<'a> {
    args: &'a Args,
    settings: Settings,
    held: Option<Held>,
    /// What ended it, where that is an error.
    trouble: Option<anyhow::Error>,
}

impl Doing for Acts<'_> {
    const ACTS: bool = true;
    fn begin(&mut self, _: &Found, nothing: Option<&str>) -> Result<()> {
        if nothing.is_none() {
            self.held = Some(Held::take(&Place::at(&self.args.means.root))?);
        }
        Ok(())
    }
    fn go(
        &mut self,
        here: &Here,
        machine: LiveMachine,
        mut engine: Engine,
        length: Option<Picos>,
        stop: &mut dyn FnMut() -> bool,
    ) -> (LiveMachine, Result<(), ObserveError>) {
        let root = &self.args.means.root;
        let own = own_time(root);
        let beside = !self.args.whom.command.is_empty();
        let shower = Shower::new(self.args.json, beside);
        let counted = Counted::begin(root, &here.found.machine, &engine);
        let mut machine = Acting::new(machine);
        let Some(held) = self.held.take() else {
            // There is nowhere to move to: it is only seen who is there.
            let mut nobody = Nobody;
            let (_, result) = drive::run(&mut machine, &mut engine, length, &mut nobody, stop);
            return (machine.into_inner(), result);
        };
        let Held { actor, ledger } = held;
        let mut moved = Moved::new(here, self.settings.horizon, ledger, shower, counted, own);
        for line in &here.source_notes {
            moved.say(line);
        }
        let mut asked = false;
        let (_, result) = drive::run(&mut machine, &mut engine, length, &mut moved, &mut || {
            asked = stop();
            asked
        });
        let (cost, kernel) = (own_time(root).saturating_sub(own), machine.inside().source_spent());
        let why = if asked { "it was to end" } else { "its time was over" };
        let back = actor.end();
        let now = machine.now();
        self.trouble = moved.finish(now, cost, kernel, why, back.sentences());
        (machine.into_inner(), result)
    }
}

/// Looks on where nothing can be done.
struct Nobody;

impl<M> drive::Onlooker<M> for Nobody {
    fn step(&mut self, _: &M, _: &Engine, _: Vec<Deed>) -> bool {
        true
    }
}

/// That nothing more can be written down, and so nothing more is moved.
fn no_ledger(error: &homenode_live::ledger::LedgerError) -> anyhow::Error {
    anyhow::Error::new(Lacks(format!(
        "{}: nothing more was moved, since every move is to be in the ledger",
        homenode_live::sentence(error)
    )))
}
