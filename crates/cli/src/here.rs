//! Processes of this machine under the engine: looked at and set up for `advise` and `act`
//! by the same lines, which differ in one argument.
//!
//! ```text
//! find ─▶ choose a source ─▶ Doing::begin ─▶ set up ─▶ start CMD ─▶ open ─▶ Doing::go
//!                            refuses, or takes                             drive::run
//!                            what it needs
//! ```
//!
//! Source: specs/act.md#course.

use crate::drive;
use crate::failure::{Lacks, Unseen};
use crate::live::{self, Ask, Chosen, Found};
use crate::program::{Program, Stop};
use crate::tiers;
use crate::whom::{Means, Whom};
use anyhow::{Result, bail};
use homenode_config::ActFile;
use homenode_core::costs::Cost;
use homenode_core::engine::{Engine, Settings};
use homenode_core::limits::Limits;
use homenode_core::policy::seen::{Shows, Source, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{Picos, count};
use homenode_live::begins::{Begins, Way};
use homenode_live::belongs::{self, Belongs};
use homenode_live::links::links;
use homenode_live::machine::{LiveMachine, Pace};
use homenode_live::people::PeopleError;
use homenode_live::places::sees_frames;
use homenode_machine::{Gate, ObserveError, Refusals};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Most of one CPU's time for looking at processes, in thousandths: within the engine's
/// own budget.
const PERMILLE: u32 = 5;

/// What is asked for.
pub(crate) struct Task<'a> {
    pub(crate) whom: &'a Whom,
    pub(crate) means: &'a Means,
    /// A machine's file.
    pub(crate) file: Option<&'a Path>,
    /// How long; without it until the program ends, or somebody wants to stop.
    pub(crate) length: Option<Picos>,
    /// Budgets, limits, tiers.
    pub(crate) config: &'a ActFile,
    /// Where the program's memory goes first, if not where the kernel puts it.
    pub(crate) begin: Option<Begin>,
}

/// Where a program's memory goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Begin {
    /// To the fast nodes, as long as they have room
    Fast,
    /// To the slow nodes: what turns out to be hot comes up
    Slow,
    /// To all nodes with memory in turns, by the kernel's weights where it has such
    Interleave,
}

impl Begin {
    /// The memory policy on a machine.
    ///
    /// # Errors
    /// It has no such nodes.
    pub(crate) fn on(self, found: &Found) -> Result<Begins> {
        let memory = found.machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id);
        let (way, nodes, none): (_, BTreeSet<_>, _) = match self {
            Self::Fast => {
                (Way::Prefer, memory.filter(|n| found.tiers.is_top(*n)).collect(), "fast")
            }
            Self::Slow => {
                (Way::Prefer, memory.filter(|n| !found.tiers.is_top(*n)).collect(), "slow")
            }
            Self::Interleave => (Way::Interleave, memory.collect(), "several"),
        };
        if nodes.is_empty() {
            bail!(Lacks(format!(
                "--begin {none}: this machine has no {none} node with memory; `homenode topo` shows \
                 its tiers. Nothing was started"
            )));
        }
        Ok(Begins { way, nodes })
    }
}

/// The file of `--config`, or what holds without one.
///
/// * `root` – where `/etc/passwd` is.
///
/// # Errors
/// What is wrong with it: file, line, key.
pub(crate) fn config(path: Option<&Path>, root: &Path) -> Result<ActFile> {
    Ok(Config::read(path, root)?.file)
}

/// The file of `--config`, with what it takes to read it again elsewhere.
#[derive(Default)]
pub(crate) struct Config {
    pub(crate) file: ActFile,
    /// Its name and text.
    pub(crate) text: Option<(String, String)>,
    /// Users that it names, with their numbers.
    pub(crate) users: BTreeMap<String, u32>,
}

impl Config {
    /// As [`config`].
    pub(crate) fn read(path: Option<&Path>, root: &Path) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let users = RefCell::new(BTreeMap::new());
        let number = |name: &str| {
            let number = belongs::user(root, name)?;
            users.borrow_mut().insert(name.to_owned(), number);
            Some(number)
        };
        let (file, text) = homenode_config::read_act(path, &number)?;
        let text = Some((path.display().to_string(), text));
        Ok(Self { file, text, users: users.into_inner() })
    }
}

/// A machine that was found, and what is used of it.
pub(crate) struct Here {
    pub(crate) found: Found,
    pub(crate) source: Source,
    /// Why that one, and what it disturbs.
    pub(crate) source_notes: Vec<String>,
    /// Why nothing can move, where that is known beforehand.
    pub(crate) nothing: Option<String>,
    /// What the operator allows.
    limits: Limits,
    /// Whether it is over once nobody of them is left.
    ends: bool,
}

impl Here {
    /// What stands between an engine and the machine.
    ///
    /// * `acts` – whether moves are carried out.
    pub(crate) fn gate(&self, engine: &Engine, acts: bool) -> Gate {
        let nodes = self.found.machine.nodes.iter().map(|n| n.id);
        Gate {
            limits: self.limits.clone(),
            belongings: Box::new(Belongs::at(&self.found.root)),
            fast: nodes.filter(|n| engine.is_fast(*n)).collect(),
            settles: acts.then_some(belongs::SETTLES),
        }
    }
    /// Whether somebody is there, or may come.
    pub(crate) fn goes_on(&self, machine: &LiveMachine) -> bool {
        !self.ends || machine.people().next().is_some()
    }
}

/// What is done with the engine's orders.
pub(crate) trait Doing {
    /// Whether orders are carried out.
    const ACTS: bool;
    /// Before anything is set up or started: refuses, or takes what it needs.
    ///
    /// * `nothing` – why nothing can move, where that is known.
    fn begin(&mut self, found: &Found, nothing: Option<&str>) -> Result<()>;
    /// Lets the engine drive the machine, until it is over.
    fn go(
        &mut self,
        here: &Here,
        machine: LiveMachine,
        engine: Engine,
        length: Option<Picos>,
        stop: &mut dyn FnMut() -> bool,
    ) -> (LiveMachine, Result<(), ObserveError>);
}

/// How it was.
pub(crate) struct Done {
    pub(crate) here: Here,
    /// Sentences on what may mislead.
    pub(crate) warnings: Vec<String>,
    /// What to exit with.
    pub(crate) code: u8,
    /// What the program took, where it is over.
    pub(crate) took: Option<Duration>,
    /// Whether somebody wanted it to end.
    pub(crate) asked: bool,
}

/// Sentences on what the limits have kept from being moved.
pub(crate) fn refusals(all: &Refusals) -> Vec<String> {
    let mut out = Vec::new();
    for (rule, n) in &all.excluded {
        out.push(format!("{} left alone: {rule}", count(*n, "process", "processes")));
    }
    for (path, n) in &all.floor {
        out.push(format!("{} kept back by the floor of {path}", count(*n, "move", "moves")));
    }
    for (path, n) in &all.priority {
        let moves = count(*n, "move", "moves");
        out.push(format!("{moves} kept back, since {path} gives way first"));
    }
    out
}

/// What is said where there is but one node with memory.
pub(crate) fn one_node(machine: &Hardware) -> Option<String> {
    (machine.nodes.iter().filter(|n| n.managed().0 > 0).count() < 2)
        .then(|| "one node has memory: there is nowhere to move to".to_owned())
}

/// Everybody who is there now, by name.
pub(crate) fn names(machine: &LiveMachine, all: &mut BTreeMap<Who, String>) {
    all.extend(machine.people().map(|p| (p.who, p.name.clone())));
}

/// Looks at the processes that were named, and does it.
///
/// # Errors
/// What the machine lacks, what the doing refuses, processes that are not there. Nothing
/// was changed, or it was put back.
pub(crate) fn work<D: Doing>(task: &Task<'_>, doing: &mut D) -> Result<Done> {
    let mut found = task.means.look(task.file)?;
    link(&mut found);
    if let Some(fast) = &task.config.fast {
        tiers::mend(&mut found, fast)?;
    }
    let limits = task.config.limits.clone();
    let absent = Belongs::at(&found.root)
        .check(&limits)
        .map_err(|why| Lacks(format!("limits could not be held, so nothing was changed: {why}")))?;
    let named = task.means.named();
    let mut chosen = live::choose(&found, named)?;
    let nothing = one_node(&found.machine);
    if nothing.is_some() {
        // No source is set up for what can't be used.
        let why = format!("not set up ({}): one node has memory", chosen.source.name());
        chosen = Chosen { source: Source::Residency, why };
    }
    let acts = D::ACTS && nothing.is_none();
    let blind = |source: Source, why: &str| -> Result<()> {
        if !acts || shows_heat(source) {
            return Ok(());
        }
        let mut all = vec![why.to_owned()];
        all.extend(task.means.how_to_get(&found, source));
        bail!(Lacks(format!(
            "nothing is moved on a guess, and nothing was changed: {}",
            all.join(". ")
        )))
    };
    blind(chosen.source, &chosen.why)?;
    let begins = task.begin.map(|begin| begin.on(&found)).transpose()?;
    doing.begin(&found, nothing.as_deref())?;
    // Caught before anything is set up: from here on there is something to take down.
    let mut stop = Stop::new();
    let ready = live::set_up(&found, chosen, named.is_some())?;
    let source = ready.source;
    blind(source, &ready.why)?;
    let mut source_notes =
        vec![ready.why.clone(), format!("disturbs: {}", source.sheet().disturbs)];
    if nothing.is_none() {
        source_notes.extend(task.means.how_to_get(&found, source));
    }
    let settings = priced(task.config.settings, &found);
    source_notes.extend(absent);
    source_notes.extend(begins.as_ref().map(|begins| format!("memory of the program {begins}")));
    let here = Here { found, source, source_notes, nothing, limits, ends: task.whom.ends() };
    let targets = task.whom.targets(&mut stop, begins.as_ref())?;
    let moves = acts.then_some(task.config.settings.stall);
    let ask = Ask { targets, census: false, pace: Pace::at_most(PERMILLE), moves, closely: !acts };
    let opened = match ready.open(&here.found, ask) {
        Ok(opened) => opened,
        Err(e) => return Err(not_opened(e, &mut stop)),
    };
    let engine = drive::engine(&opened.machine, settings, here.found.version);
    // With one node a look shows who is there; more of them would show nothing else.
    let one = here.nothing.is_some() && task.whom.command.is_empty();
    let mut looks = 0;
    let (machine, result) = doing.go(&here, opened.machine, engine, task.length, &mut || {
        looks += 1;
        stop.wanted() || one && looks > 1
    });
    let closed = machine.close();
    if let Err(e) = result {
        bail!(Lacks(format!("{} broke: {e}", source.name())));
    }
    if let Err(why) = closed {
        bail!(Lacks(why));
    }
    let refused = (opened.refused)();
    let mut warnings = Vec::new();
    if refused > 0 {
        warnings.push(format!(
            "where pages are could not be asked {}, of other users' processes: run it as root or \
             with CAP_SYS_PTRACE",
            count(refused, "time", "times")
        ));
    }
    let code = match &mut stop.program {
        None => 0,
        Some(program) => match (program.is_over(), program.code()) {
            (_, Some(code)) => code,
            (_, None) => {
                eprintln!("homenode: the program goes on without homenode");
                0
            }
        },
    };
    let took = stop.program.as_mut().and_then(Program::took);
    Ok(Done { here, warnings, code, took, asked: stop.was_asked() })
}

/// Latencies as firmware tells them, where no file does.
pub(crate) fn link(found: &mut Found) {
    if found.machine.links.is_empty() {
        found.machine.links = links(&found.root, &found.machine);
    }
}

/// Settings with what looks take on this machine: frames, or questions where none are shown.
pub(crate) fn priced(settings: Settings, found: &Found) -> Settings {
    let (look, count) = if sees_frames(&found.root) {
        (Cost::PageFrame, Cost::PageFrame)
    } else {
        (Cost::PageQuery, Cost::PageCount)
    };
    let price = |cost| Picos(found.machine.costs.get(cost));
    Settings { look_page: price(look), count_page: price(count), ..settings }
}

/// Whether a source tells how hot memory is.
pub(crate) fn shows_heat(source: Source) -> bool {
    match source.shows() {
        Shows::Nothing => false,
        Shows::Regions | Shows::Faults | Shows::Samples => true,
    }
}

/// A program may be over before anybody could look.
fn not_opened(error: anyhow::Error, stop: &mut Stop) -> anyhow::Error {
    let Some(program) = &mut stop.program else { return error };
    let gone =
        |e: &PeopleError| matches!(e, PeopleError::NoProcess { .. } | PeopleError::NoMemory { .. });
    if error.downcast_ref::<PeopleError>().is_some_and(gone) {
        program.wait();
        return Unseen(program.code().unwrap_or(0)).into();
    }
    eprintln!("homenode: the program goes on, not looked at");
    error
}

/// Our own processor time so far.
pub(crate) fn own_time(root: &Path) -> Picos {
    // Nanoseconds of the main thread, which does everything here.
    let text = std::fs::read_to_string(root.join("proc/self/schedstat")).unwrap_or_default();
    let ns = text.split_ascii_whitespace().next().and_then(|v| v.parse().ok());
    Picos(ns.unwrap_or(0u64).saturating_mul(1000))
}
