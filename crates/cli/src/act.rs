//! `homenode act`: what `advise` says, done, within budgets; and every move written down.
//!
//! ```text
//! processes ─▶ here::work ─▶ live machine with a mover ◀─▶ engine
//!                                │ deeds
//!                                └─▶ moved: ledger, sums ─▶ show: table, JSON lines
//! --engine kernel ─▶ kernel: three knobs, journaled ─▶ the kernel's counters ─▶ ledger
//! --trial ─▶ trial: windows with it and without ─▶ whether it goes on
//! ```
//!
//! Source: specs/act.md.

mod came;
mod counted;
mod kernel;
mod moved;
mod pays;
mod show;
mod trial;

use crate::advise::facts;
use crate::drive;
use crate::failure::Lacks;
use crate::here::{self, Begin, Config, Doing, Done, Here, Task, one_node, own_time, work};
use crate::live::Found;
use crate::program::{Program, Stop};
use crate::seen::{BY_ACT, Recording};
use crate::whom::{Means, Whom};
use anyhow::{Result, bail};
use counted::Counted;
use homenode_core::engine::Engine;
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::units::Picos;
use homenode_live::acting::{ACTING, Actor};
use homenode_live::ledger::{LARGE, Writer};
use homenode_live::machine::LiveMachine;
use homenode_live::notify::Notify;
use homenode_live::place::Place;
use homenode_machine::{Acting, Deed, Limited, Machine as _, Notes, ObserveError, Recorded};
use homenode_report::TrialVerdict;
use moved::Moved;
use show::Shower;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trial::{Trial, TrialArgs, Window};

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
/// itself and says so. With --trial it is measured whether it helps.
///
/// Exit codes: 0 done, also where there is nowhere to move; 1 a trial's metric failed; 2 bad
/// usage, or processes that are not there; 3 the system lacks something, or another homenode
/// acts; with CMD its own, or 128 and the signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode act --pid 4711 --for 10m
  homenode act --cgroup system.slice/db.service --config act.toml
  homenode act -- ./build-and-test
  homenode act --begin slow -- ./nightly-report
  homenode act --pid 4711 --trial --metric './requests-served' --counter --for 2h
  homenode act --trial -- ./build-and-test
  homenode act --pid 4711 --for 10m --record db.seen
  homenode act --engine kernel --all --yes --for 60s")]
#[command(mut_group("who", |who| who.required(true)))]
#[command(mut_arg("command", |c| c.help("The program to be acted for, with its arguments")))]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Act for whom this concerns beyond what is named one by one: --all, --engine kernel
    #[arg(long)]
    yes: bool,
    /// How long; without it until Ctrl-C, or until nobody is left. With --trial: afterwards,
    /// where that was a gain
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    length: Option<Picos>,
    /// Budgets, exclusions, floors and tiers, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who moves
    #[arg(long, value_name = "ENGINE", default_value = "homenode")]
    engine: EngineArg,
    /// Where the memory of CMD, and of what it starts, goes first; else where the kernel puts it.
    /// It binds nobody: a full node is passed over, and pages are moved as ever
    #[arg(long, value_name = "NODES")]
    begin: Option<Begin>,
    #[command(flatten)]
    trial: TrialArgs,
    #[command(flatten)]
    means: Means,
    /// This machine's file, by `homenode measure`; without it latencies are firmware's, or
    /// assumed
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// What the engine is told goes to this file too, for `homenode advise --seen`, which then
    /// shows the same moves; names of processes are in it, contents of memory are not
    #[arg(long, value_name = "FILE", conflicts_with = "trial")]
    record: Option<PathBuf>,
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
    if args.begin.is_some() && args.whom.command.is_empty() {
        bail!("--begin is about a program that is started: give it with -- CMD");
    }
    let kernel = args.engine == EngineArg::Kernel;
    if kernel {
        kernel::check(args)?;
    } else if args.means.root != Path::new("/") {
        bail!("--root is another machine's files: pages can't be moved there");
    }
    let config = Config::read(args.config.as_deref(), &args.means.root)?;
    let program = !args.whom.command.is_empty();
    let trial = Trial::of(&args.trial, program)?;
    if kernel && trial.as_ref().is_some_and(Trial::is_by_share) {
        bail!(Lacks(UNMEASURABLE.to_owned()));
    }
    match trial {
        Some(trial) if program => runs(args, &config, &trial),
        trial => Ok(once(args, &config, trial.as_ref())?.code),
    }
}

/// That a trial has nothing to be judged by.
const UNMEASURABLE: &str = "benefit not measurable here, so nothing was tried and there is no \
     verdict: there are no samples of accesses (`homenode doctor` says what that takes). Give a \
     --metric, or try it with -- CMD";

/// How acting once has ended.
struct Ran {
    code: u8,
    /// What the program took.
    took: Option<Duration>,
    /// Whether somebody wanted it to end.
    asked: bool,
}

/// Acts: for as long as is asked for, or through the windows of a trial.
fn once(args: &Args, config: &Config, trial: Option<&Trial>) -> Result<Ran> {
    if args.engine == EngineArg::Kernel {
        return kernel::run(args, &config.file, trial);
    }
    let task = Task {
        whom: &args.whom,
        means: &args.means,
        file: args.machine.as_deref(),
        length: args.length,
        config: &config.file,
        begin: args.begin,
    };
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    let mut acts = Acts { args, config, trial, recording, held: None, trouble: None };
    let done = work(&task, &mut acts);
    let Done { here, warnings, code, took, asked } = done?;
    for warning in &warnings {
        eprintln!("homenode: {warning}");
    }
    if let Some(nothing) = &here.nothing {
        eprintln!("homenode: nothing was moved: {nothing}");
    }
    if let Some(recording) = &acts.recording {
        eprintln!("homenode: {}", recording.finish(&warnings)?);
    }
    match acts.trouble {
        Some(why) => Err(why),
        None => Ok(Ran { code, took, asked }),
    }
}

/// A trial each window of which is a run of the program.
fn runs(args: &Args, config: &Config, trial: &Trial) -> Result<u8> {
    let found = args.means.look(args.machine.as_deref())?;
    if let Some(nothing) = one_node(&found.machine) {
        eprintln!("homenode: nothing was tried: {nothing}");
        return Ok(without(args)?.code);
    }
    let mut shower = Shower::new(args.json, true);
    for line in trial.sentences() {
        shower.say(&line)?;
    }
    let mut code = 0;
    let (report, trouble) = trial.run(|with| {
        let begun = trial.begin()?;
        let ran = if with { once(args, config, None)? } else { without(args)? };
        code = ran.code;
        if ran.asked || code != 0 {
            return Ok(Window::Ended);
        }
        Ok(Window::Over(trial.end(&begun, ran.took, None)?))
    });
    shower.trial(&report)?;
    if code != 0 {
        shower.say(&format!("the program ended with {code}, and with it the trial"))?;
    }
    trouble.map_or(Ok(code), Err)
}

/// Runs the program with nothing beside it.
fn without(args: &Args) -> Result<Ran> {
    let mut stop = Stop::new();
    stop.program = Some(Program::timed(&args.whom.command, None)?);
    while !stop.wanted() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, took) = match &mut stop.program {
        Some(program) => (program.code(), program.took()),
        None => (None, None),
    };
    Ok(Ran { code: code.unwrap_or(0), took, asked: stop.was_asked() })
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
    config: &'a Config,
    trial: Option<&'a Trial>,
    recording: Option<Recording>,
    held: Option<Held>,
    /// What ended it, where that is an error.
    trouble: Option<anyhow::Error>,
}

/// The machine that acts: what passes at its inside can be written down.
type Actual = Limited<Acting<Recorded<LiveMachine>>>;

impl Acts<'_> {
    /// Begins to write down what is told, if it is to be.
    fn began(
        &self,
        here: &Here,
        machine: &LiveMachine,
        length: Option<Picos>,
    ) -> Result<Option<(Notes, Picos)>> {
        let Some(recording) = &self.recording else { return Ok(None) };
        let found = &here.found;
        let facts = facts::live(&found.root, &found.probe, &found.machine, &found.tiers);
        recording.of(BY_ACT, here, self.config, length, machine, &facts).map(Some)
    }
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
        let began = match self.began(here, &machine, length) {
            Ok(began) => began,
            Err(e) => {
                self.trouble = Some(e);
                return (machine, Ok(()));
            }
        };
        let mut gate = here.gate(&engine, true);
        if let Some((notes, _)) = &began {
            gate.belongings = notes.asking(gate.belongings);
        }
        let mut machine = Limited::new(Acting::new(Recorded::new(machine, began)), gate);
        let end = |m: Actual| m.into_inner().into_inner().into_inner();
        let Some(held) = self.held.take() else {
            // There is nowhere to move to: it is only seen who is there.
            Notify::from_environment().ready("there is nowhere to move to");
            let mut nobody = Nobody;
            let (_, result) = drive::run(&mut machine, &mut engine, length, &mut nobody, stop);
            return (end(machine), result);
        };
        let Held { actor, ledger } = held;
        let horizon = self.config.file.settings.horizon;
        let mut moved = Moved::new(here, horizon, ledger, shower, counted, own);
        if let Some(recording) = &self.recording {
            moved.keep_with(recording.clone());
        }
        for line in &here.source_notes {
            moved.say(line);
        }
        let mut notify = Notify::from_environment();
        notify.ready(&format!("moves memory by {}", here.source.name()));
        let mut asked = false;
        let mut stop = || {
            notify.alive();
            asked = stop();
            asked
        };
        let result = match self.trial {
            None => drive::run(&mut machine, &mut engine, length, &mut moved, &mut stop).1,
            Some(trial) if trial.is_by_share() && !shows_samples(here.source) => {
                self.trouble = Some(anyhow::Error::new(Lacks(UNMEASURABLE.to_owned())));
                Ok(())
            }
            Some(trial) => {
                let (result, trouble) =
                    try_out(trial, &mut machine, &mut engine, &mut moved, length, &mut stop);
                self.trouble = trouble;
                result
            }
        };
        notify.stopping();
        let refused = here::refusals(machine.refusals());
        let machine = end(machine);
        let (cost, kernel) = (own_time(root).saturating_sub(own), machine.source_spent());
        let why = if asked { "it was to end" } else { "its time was over" };
        let mut more = actor.end().sentences();
        more.extend(refused);
        let trouble = moved.finish(machine.now(), cost, kernel, why, more);
        self.trouble = self.trouble.take().or(trouble);
        (machine, result)
    }
}

/// Time between two windows of a trial.
const SETTLES: Picos = Picos::from_ms(100);

/// Whether a source samples accesses, so that their share is one of accesses.
fn shows_samples(source: Source) -> bool {
    match source.shows() {
        Shows::Samples => true,
        Shows::Nothing | Shows::Regions | Shows::Faults => false,
    }
}

/// Goes through the windows of a trial, and on where it was a gain.
fn try_out(
    trial: &Trial,
    machine: &mut Actual,
    engine: &mut Engine,
    moved: &mut Moved<'_>,
    length: Option<Picos>,
    stop: &mut dyn FnMut() -> bool,
) -> (Result<(), ObserveError>, Option<anyhow::Error>) {
    for line in trial.sentences() {
        moved.say(&line);
    }
    moved.judge(false);
    let mut result = Ok(());
    let (report, trouble) = trial.run(|with| {
        machine.hold(!with);
        // Orders that the machine has taken before are carried out before the window begins.
        loop {
            let (looked, went) = drive::run(machine, engine, Some(SETTLES), moved, stop);
            result = went;
            if result.is_err() || looked < SETTLES {
                return Ok(Window::Ended);
            }
            if with || !engine.open().any(|(_, moves)| moves) {
                break;
            }
        }
        let begun = trial.begin()?;
        let (looked, went) = drive::run(machine, engine, Some(trial.window), moved, stop);
        let ended = went.is_err() || looked < trial.window;
        result = went;
        if ended {
            return Ok(Window::Ended);
        }
        let share = moved.fast_share(engine);
        Ok(Window::Over(trial.end(&begun, Some(Duration::from_nanos(looked.as_ns())), share)?))
    });
    machine.hold(false);
    moved.judge(true);
    moved.tell(&report);
    match (report.verdict(), length) {
        (TrialVerdict::Pays, Some(length)) if result.is_ok() => {
            moved.say("the trial was a gain: homenode goes on");
            result = drive::run(machine, engine, Some(length), moved, stop).1;
        }
        (TrialVerdict::Pays, _) => moved.ends("the trial is over"),
        (TrialVerdict::Harms | TrialVerdict::Open | TrialVerdict::Unmeasurable, _) => {
            moved.ends(&format!("the trial is over: {}", report.sentence()));
        }
    }
    (result, trouble)
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
