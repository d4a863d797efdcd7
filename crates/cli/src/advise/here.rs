//! Processes of this machine, looked at to be advised.

use super::{Args, Looked, course, facts};
use crate::failure::Lacks;
use crate::live::{self, Ask, Chosen, Found, SourceArg};
use crate::observe::program::{Program, Stop};
use anyhow::{Result, bail};
use homenode_core::engine::Settings;
use homenode_core::engine::choice::lacks;
use homenode_core::engine::seen::{Source, Who};
use homenode_live::links::links;
use homenode_live::machine::{LiveMachine, Pace};
use homenode_live::people::{PeopleError, Targets};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Most of one CPU's time for looking at processes, in thousandths: within the engine's
/// own budget.
const PERMILLE: u32 = 5;

/// Looks at the processes that were named, and what to exit with.
pub(super) fn look(args: &Args) -> Result<(Looked, u8)> {
    let mut found = live::look(&args.root, args.machine.as_deref())?;
    if found.machine.links.is_empty() {
        found.machine.links = links(&args.root, &found.machine);
    }
    let named = args.source.named();
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
    let targets = if args.all {
        Targets::All
    } else if let Some(path) = &args.cgroup {
        Targets::Cgroup(path.clone())
    } else if args.command.is_empty() {
        Targets::Pids(args.pid.clone())
    } else {
        let program = stop.program.insert(Program::start(&args.command)?);
        Targets::Tree(program.pid())
    };
    let pace = Pace::at_most(PERMILLE);
    let opened = match ready.open(&found, Ask { targets, census: false, pace }) {
        Ok(opened) => opened,
        Err(e) => return Err(not_opened(e, &mut stop)),
    };
    let (source, why) = (opened.source, opened.why);
    let mut source_notes = vec![why, format!("disturbs: {}", live::disturbs(source))];
    source_notes.extend(how_to_get(args, &found, source, nothing.is_some()));

    // Whoever was named may end; a cgroup, or the machine, goes on.
    let ends = !args.all && args.cgroup.is_none() && args.command.is_empty();
    let left = Cell::new(true);
    let names = |m: &LiveMachine, all: &mut BTreeMap<Who, String>| {
        all.extend(m.people().map(|p| (p.who, p.name.clone())));
        left.set(m.people().next().is_some());
    };
    let length = if args.command.is_empty() { Some(args.span()) } else { args.length };
    let one = nothing.is_some() && args.command.is_empty();
    let mut looks = 0;
    let (machine, outcome, result) = course::run(
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
            "where pages are could not be asked {refused} times, of other users' processes: run \
             it as root or with CAP_SYS_PTRACE"
        ));
    }
    let mut facts = facts::live(&args.root, &found.probe, &found.machine, &found.tiers);
    facts.found = facts::found(&outcome);
    let mut notes = Vec::new();
    if source == Source::HintFault {
        notes.push(
            "hint faults come from the kernel's own scan, and the kernel moves pages at them too: \
             part of what is shown it may have done itself"
                .to_owned(),
        );
    }
    let code = match &stop.program {
        None => 0,
        Some(program) => program.code().unwrap_or_else(|| {
            eprintln!("homenode: the program goes on, not looked at any more");
            0
        }),
    };
    let machine = found.machine.clone();
    let looked = Looked { machine, source, source_notes, outcome, facts, nothing, notes, warnings };
    Ok((looked, code))
}

/// Where there is no heat, how to get some.
fn how_to_get(args: &Args, found: &Found, source: Source, one_node: bool) -> Vec<String> {
    if source != Source::Residency || args.source != SourceArg::Auto || one_node {
        return Vec::new();
    }
    [Source::Damon, Source::HintFault, Source::Pmu]
        .into_iter()
        .filter_map(|s| {
            let lack = lacks(s, &found.facts).into_iter().next()?;
            Some(format!("for heat {}: {lack}; {}", s.name(), lack.remedy()))
        })
        .collect()
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
