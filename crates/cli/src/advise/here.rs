//! Processes of this machine, looked at to be advised.

use super::{Args, Looked, course, facts};
use crate::failure::Lacks;
use crate::live::{self, Ask, Chosen};
use crate::program::Stop;
use anyhow::{Result, bail};
use homenode_core::engine::Settings;
use homenode_core::policy::seen::{Source, Who};
use homenode_core::units::count;
use homenode_live::links::links;
use homenode_live::machine::{LiveMachine, Pace};
use homenode_live::people::PeopleError;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Most of one CPU's time for looking at processes, in thousandths: within the engine's
/// own budget.
const PERMILLE: u32 = 5;

/// Looks at the processes that were named, and what to exit with.
pub(super) fn look(args: &Args) -> Result<(Looked, u8)> {
    let mut found = args.means.look(args.machine.as_deref())?;
    if found.machine.links.is_empty() {
        found.machine.links = links(&args.means.root, &found.machine);
    }
    let named = args.means.named();
    let mut chosen = live::choose(&found, named)?;
    let nothing = super::recording::one_node(&found.machine);
    if nothing.is_some() {
        // No source is set up for what can't be used.
        let why = format!("not set up ({}): one node has memory", chosen.source.name());
        chosen = Chosen { source: Source::Residency, why };
    }
    // Caught before anything is set up: from here on there is something to take down.
    let mut stop = Stop::new();
    let ready = live::set_up(&found, chosen, named.is_some())?;
    let targets = args.whom.targets(&mut stop)?;
    let pace = Pace::at_most(PERMILLE);
    let opened = match ready.open(&found, Ask { targets, census: false, pace }) {
        Ok(opened) => opened,
        Err(e) => return Err(not_opened(e, &mut stop)),
    };
    let (source, why) = (opened.source, opened.why);
    let mut source_notes = vec![why, format!("disturbs: {}", source.sheet().disturbs)];
    if nothing.is_none() {
        source_notes.extend(args.means.how_to_get(&found, source));
    }

    let ends = args.whom.ends();
    let left = Cell::new(true);
    let names = |m: &LiveMachine, all: &mut BTreeMap<Who, String>| {
        all.extend(m.people().map(|p| (p.who, p.name.clone())));
        left.set(m.people().next().is_some());
    };
    let length = if args.whom.command.is_empty() { Some(args.span()) } else { args.length };
    let one = nothing.is_some() && args.whom.command.is_empty();
    let mut looks = 0;
    let (machine, wishes, result) = course::run(
        opened.machine,
        Settings::default(),
        found.version,
        length,
        &names,
        &mut || {
            // One look shows who is there; more of them would show nothing else.
            looks += 1;
            stop.wanted() || ends && !left.get() || one && looks > 1
        },
    );
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
    let mut facts = facts::live(&args.means.root, &found.probe, &found.machine, &found.tiers);
    facts.found = facts::found(&wishes);
    let notes = source.sheet().beside.map(str::to_owned).into_iter().collect();
    let code = match &stop.program {
        None => 0,
        Some(program) => program.code().unwrap_or_else(|| {
            eprintln!("homenode: the program goes on, not looked at any more");
            0
        }),
    };
    let machine = found.machine.clone();
    let looked = Looked { machine, source, source_notes, wishes, facts, nothing, notes, warnings };
    Ok((looked, code))
}

/// A program may be over before anybody could look.
fn not_opened(error: anyhow::Error, stop: &mut Stop) -> anyhow::Error {
    let Some(program) = &mut stop.program else { return error };
    let gone =
        |e: &PeopleError| matches!(e, PeopleError::NoProcess { .. } | PeopleError::NoMemory { .. });
    if error.downcast_ref::<PeopleError>().is_some_and(gone) {
        program.wait();
        return error.context("the program ended before it could be looked at");
    }
    eprintln!("homenode: the program goes on, not looked at");
    error
}
