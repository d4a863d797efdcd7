//! The kernel as the engine: its balancing and demotion set up, watched, and put back.
//!
//! ```text
//! nodes, tiers ─▶ which bits ─▶ journal ─▶ numa_balancing, its limit, demotion_enabled
//!                                             │ each second: still ours?
//!                counters, each 10 s ─▶ ledger│ no: put back the others, and end
//! ```
//!
//! Source: specs/act.md#kernel.

use super::counted::Counted;
use super::moved::unix_ms;
use super::show::Shower;
use super::trial::{Trial, Window};
use super::{Args, Held, Ran, no_ledger};
use crate::failure::Lacks;
use crate::here::{one_node, own_time};
use crate::live::Found;
use crate::program::Stop;
use crate::tiers;
use anyhow::{Result, bail};
use homenode_config::ActFile;
use homenode_core::engine::Settings;
use homenode_core::units::{NodeId, Picos};
use homenode_live::acting::{self, Actor, BALANCING, DEMOTION, PROMOTE_LIMIT, PutBack};
use homenode_live::begins::Begins;
use homenode_live::ledger::Writer;
use homenode_live::notify::Notify;
use homenode_live::place::Place;
use homenode_report::{ActEnd, ActState, LedgerEntry, LedgerMover, TrialVerdict};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often signals, and the program's end, are looked for.
const SLICE: Duration = Duration::from_millis(50);
/// How often it is looked whether the knobs are still ours.
const WATCH: Duration = Duration::from_secs(1);
/// How often the counters are read.
const COUNT: Duration = Duration::from_secs(10);
/// Why it has ended.
const TIME_OVER: &str = "its time was over";

/// What the knobs are set to, in this order.
///
/// * `limit` – most that is moved up, in MB/s.
fn wanted(found: &Found, limit: u64) -> Result<Vec<(&'static str, String)>> {
    let machine = &found.machine;
    let with_memory = || machine.nodes.iter().filter(|n| n.managed().0 > 0).map(|n| n.id);
    let slow = with_memory().any(|n| !found.tiers.is_top(n));
    let with_cpus = with_memory().filter(|n| machine.has_cpu(*n)).count() > 1;
    let mode = u32::from(with_cpus) | if slow { 2 } else { 0 };
    let place = Place::at(&found.root);
    let has = |knob| acting::shown(&place, knob).is_some();
    if !has(BALANCING) {
        bail!(Lacks(format!(
            "this kernel has no {BALANCING}: boot one with CONFIG_NUMA_BALANCING. Nothing was changed"
        )));
    }
    let mut out = Vec::new();
    if slow {
        // The limit before what it limits; a kernel without it has no tiering either.
        if has(PROMOTE_LIMIT) {
            out.push((PROMOTE_LIMIT, limit.to_string()));
        }
        if has(DEMOTION) {
            out.push((DEMOTION, "true".to_owned()));
        }
    }
    out.push((BALANCING, mode.to_string()));
    Ok(out)
}

/// What has to be said for it on the command line.
pub(super) fn check(args: &Args) -> Result<()> {
    if !args.whom.all && args.whom.command.is_empty() {
        bail!(
            "the kernel can't be told whom to move for: --engine kernel takes --all, or -- CMD for \
             as long as that runs, and --yes"
        );
    }
    if args.record.is_some() {
        bail!(
            "--record keeps what homenode's engine is told, and the kernel's engine is told nothing"
        );
    }
    if !args.yes {
        bail!(
            "--engine kernel sets knobs of the whole machine: say --yes, if that is what you want"
        );
    }
    Ok(())
}

pub(super) fn run(args: &Args, config: &ActFile, trial: Option<&Trial>) -> Result<Ran> {
    if !config.limits.is_empty() {
        bail!(
            "the kernel knows no exclusions and no floors: leave them out of the file of --config, \
             or let homenode move"
        );
    }
    let mut found = args.means.look(args.machine.as_deref())?;
    if let Some(fast) = &config.fast {
        tiers::mend(&mut found, fast)?;
    }
    let begins = args.begin.map(|begin| begin.on(&found)).transpose()?;
    let mut stop = Stop::new();
    let Some(nothing) = one_node(&found.machine) else {
        let begins = begins.as_ref();
        return set_and_watch(args, &found, config.settings, begins, trial, &mut stop);
    };
    eprintln!("homenode: nothing was set: {nothing}");
    Notify::from_environment().ready("there is nowhere to move to");
    args.whom.targets(&mut stop, begins.as_ref())?;
    if let Some(program) = &mut stop.program {
        program.wait();
    }
    Ok(ran(&mut stop, 0))
}

/// How it has ended.
///
/// * `code` – without a program.
fn ran(stop: &mut Stop, code: u8) -> Ran {
    let asked = stop.was_asked();
    match &mut stop.program {
        None => Ran { code, took: None, asked },
        Some(program) => {
            let code = program.code().unwrap_or(0);
            Ran { code, took: program.took(), asked }
        }
    }
}

/// The knobs, and what is seen while they are set, and while they are not.
struct Knobs {
    place: Place,
    actor: Actor,
    ledger: Writer,
    counted: Counted,
    wanted: Vec<(&'static str, String)>,
    /// What they showed before the first was set.
    before: Vec<(&'static str, String)>,
    sums: BTreeMap<LedgerMover, u64>,
    counted_at: Instant,
    trouble: Option<anyhow::Error>,
    told: Told,
    notify: Notify,
}

/// What became of knobs that were put back.
#[derive(Default)]
struct Told {
    /// Sentences, each once.
    notes: Vec<String>,
    /// Whether some could not be put back.
    missing: bool,
}

impl Told {
    fn add(&mut self, back: &PutBack) {
        self.missing |= !back.failed.is_empty();
        let set = back.set.iter().map(|k| format!("put back {} to {}", k.path, k.old));
        for line in set.chain(back.sentences()) {
            if !self.notes.contains(&line) {
                self.notes.push(line);
            }
        }
    }
}

impl Knobs {
    fn set(&mut self, shower: &mut Shower) -> Result<()> {
        // What fails puts back what was set before, as the actor is dropped.
        for (path, value) in &self.wanted {
            let now = acting::shown(&self.place, path).unwrap_or_default();
            match self.actor.set(path, value)? {
                true => shower.say(&format!("{path}: {now} -> {value}"))?,
                false => shower.say(&format!("{path}: {value} already"))?,
            }
        }
        Ok(())
    }

    fn put_back(&mut self) -> Result<()> {
        let back = self.actor.rest()?;
        self.told.add(&back);
        Ok(())
    }

    /// Who else has set one, if somebody has.
    fn theirs(&self) -> Option<String> {
        let stepped_back = |path: &str, now: &str, ours: &str| {
            format!(
                "somebody else has set {path} to {now} where homenode had {ours}, and so it steps \
                 back"
            )
        };
        if self.actor.changed().is_empty() {
            let other = self.before.iter().find_map(|(path, was)| {
                let now = acting::shown(&self.place, path)?;
                (now != *was).then(|| stepped_back(path, &now, &format!("left {was}")))
            });
            return other;
        }
        let theirs = self.actor.theirs();
        theirs.first().map(|(k, now)| stepped_back(&k.path, now, &format!("set {}", k.new)))
    }

    /// Writes down what the kernel moved since the last time.
    fn count(&mut self) {
        self.counted_at = Instant::now();
        let rows = self.counted.rows(unix_ms(), 0);
        for row in &rows {
            *self.sums.entry(row.mover).or_default() += row.moved_bytes;
        }
        let lines: Vec<String> = rows.iter().map(LedgerEntry::to_json).collect();
        if let Err(e) = self.ledger.add(lines.iter().map(String::as_str)) {
            self.trouble.get_or_insert(no_ledger(&e));
        }
    }

    /// Looks on until that time; why it is to end before, if it is.
    fn watch(&mut self, stop: &mut Stop, until: Option<Instant>) -> Option<String> {
        let mut watched = Instant::now();
        loop {
            self.notify.alive();
            if stop.wanted() {
                return Some("it was to end".to_owned());
            }
            if until.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
            if watched.elapsed() >= WATCH {
                watched = Instant::now();
                if let Some(why) = self.theirs() {
                    return Some(why);
                }
            }
            if self.counted_at.elapsed() >= COUNT {
                self.count();
                if self.trouble.is_some() {
                    return Some("the ledger can't be written".to_owned());
                }
            }
            let left = until.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
            std::thread::sleep(SLICE.min(left));
        }
    }
}

fn set_and_watch(
    args: &Args,
    found: &Found,
    settings: Settings,
    begins: Option<&Begins>,
    trial: Option<&Trial>,
    stop: &mut Stop,
) -> Result<Ran> {
    let place = Place::at(&found.root);
    let wanted = wanted(found, settings.moved_mbps.0)?;
    let Held { actor, ledger } = Held::take(&place)?;
    let mut shower = Shower::new(args.json, !args.whom.command.is_empty());
    let fast = |node: NodeId| found.tiers.is_top(node);
    let before = wanted.iter().filter_map(|(path, _)| Some((*path, acting::shown(&place, path)?)));
    let mut knobs = Knobs {
        before: before.collect(),
        counted: Counted::of(&found.root, &found.machine, &fast),
        place,
        actor,
        ledger,
        wanted,
        sums: BTreeMap::new(),
        counted_at: Instant::now(),
        trouble: None,
        told: Told::default(),
        notify: Notify::from_environment(),
    };
    let own = own_time(&found.root);
    let begun = Instant::now();
    let end = |length: Option<Picos>| Some(Instant::now() + Duration::from_nanos(length?.as_ns()));
    let mut tried = None;
    let why = match trial {
        Some(trial) => {
            knobs.notify.ready("tries whether the kernel's moves pay");
            let (why, trouble) = try_out(trial, &mut knobs, &mut shower, stop)?;
            tried = trouble;
            match (why, args.length) {
                (None, Some(_)) => {
                    knobs.set(&mut shower)?;
                    knobs.watch(stop, end(args.length)).unwrap_or_else(|| TIME_OVER.to_owned())
                }
                (why, _) => why.unwrap_or_else(|| "the trial is over: it pays".to_owned()),
            }
        }
        None => {
            knobs.set(&mut shower)?;
            args.whom.targets(stop, begins)?;
            knobs.notify.ready("the kernel moves memory");
            knobs.watch(stop, end(args.length)).unwrap_or_else(|| TIME_OVER.to_owned())
        }
    };
    if knobs.trouble.is_none() {
        knobs.count();
    }
    knobs.notify.stopping();
    let Knobs { actor, sums, trouble, mut told, .. } = knobs;
    told.add(&actor.end());
    let Told { mut notes, missing } = told;
    if trial.is_none() {
        notes.push(
            "benefit not measurable here: no source of heat was asked, the kernel moved".into(),
        );
    }
    let (acted, spent) = (begun.elapsed().as_secs_f64(), own_time(&found.root).saturating_sub(own));
    let name = |mover| match mover {
        LedgerMover::KernelBalancing => "the kernel's balancing",
        LedgerMover::KernelDemotion => "the kernel's demotion",
        LedgerMover::Homenode | LedgerMover::Other => "others",
    };
    let end = ActEnd {
        acted_s: acted,
        why,
        moved_bytes: 0,
        kernel_bytes: sums.into_iter().map(|(m, bytes)| (name(m).to_owned(), bytes)).collect(),
        own_s: spent.as_secs_f64(),
        own_percent: spent.as_secs_f64() * 100.0 / acted.max(1e-9),
        notes,
    };
    shower.end(&ActState::default(), &end)?;
    if let Some(e) = trouble.or(tried) {
        return Err(e);
    }
    if stop.program.as_mut().is_some_and(|program| !program.is_over()) {
        eprintln!("homenode: the program goes on, the knobs are as they were");
    }
    Ok(ran(stop, if missing { 3 } else { 0 }))
}

/// Goes through the windows of a trial: the knobs as they are wanted, and as they were.
///
/// Returns why it does not go on, unless it was a gain; and what was wrong.
fn try_out(
    trial: &Trial,
    knobs: &mut Knobs,
    shower: &mut Shower,
    stop: &mut Stop,
) -> Result<(Option<String>, Option<anyhow::Error>)> {
    for line in trial.sentences() {
        shower.say(&line)?;
    }
    let mut why = None;
    let (report, trouble) = trial.run(|with| {
        if let Some(theirs) = knobs.theirs() {
            why = Some(theirs);
            return Ok(Window::Ended);
        }
        if with {
            knobs.set(shower)?;
        }
        let begun = trial.begin()?;
        let at = Instant::now();
        why = knobs.watch(stop, Some(at + Duration::from_nanos(trial.window.as_ns())));
        let value = match why {
            None => Some(trial.end(&begun, Some(at.elapsed()), None)?),
            Some(_) => None,
        };
        // Seen before they are put back, since what is put back can't be told from theirs.
        why = why.take().or_else(|| knobs.theirs());
        knobs.put_back()?;
        Ok(value.filter(|_| why.is_none()).map_or(Window::Ended, Window::Over))
    });
    shower.trial(&report)?;
    let why = why.or_else(|| match report.verdict() {
        TrialVerdict::Pays => None,
        TrialVerdict::Harms | TrialVerdict::Open | TrialVerdict::Unmeasurable => {
            Some(format!("the trial is over: {}", report.sentence()))
        }
    });
    Ok((why, trouble))
}
