//! What was recorded elsewhere, told to the engine again.
//!
//! Source: specs/advise.md#seen.

use super::here::{Sight, looked, say};
use super::wishes::Listener;
use super::{Args, Looked};
use crate::drive;
use crate::live::fit;
use crate::seen::{BY_ACT, BY_OBSERVE};
use anyhow::{Result, anyhow, bail};
use homenode_config::ActFile;
use homenode_core::advice::Facts;
use homenode_core::engine::Settings;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::seen::Source;
use homenode_core::units::{NodeId, Picos, count};
use homenode_live::belongs::SETTLES;
use homenode_live::sentence;
use homenode_machine::{
    Acting, Advised, Asked, Caps, Deed, Gate, Log, Machine as _, ObserveError, Retold,
};
use homenode_trace::seen::{About, Ending, Reader};
use std::collections::BTreeSet;
use std::path::Path;

/// Tells the engine what is in a file.
pub(super) fn look(args: &Args, path: &Path) -> Result<Looked> {
    let (reader, about) = Reader::open(path)?;
    let wrong = |what: String| anyhow!("{}, line 1: {what}", path.display());
    let mut machine = homenode_config::parse_machine("its machine", &about.machine)
        .map_err(|e| wrong(sentence(&e)))?;
    if let Some(file) = &args.machine {
        let told = homenode_config::read_machine(file)?;
        fit(&mut machine, told, "this recording's machine has")
            .map_err(|why| anyhow!("{}: {why}", file.display()))?;
    }
    let version = KernelVersion::parse(&about.rules)
        .ok_or_else(|| wrong(format!("no rules of a Linux {} are known", about.rules)))?;
    let source = Source::ALL.into_iter().find(|s| s.name() == about.source);
    let source = source.ok_or_else(|| wrong(format!("there is no source {}", about.source)))?;
    let config = config(args, &about)?;
    let (look_page, count_page) = (Picos(about.look_page), Picos(about.count_page));
    let settings = Settings { look_page, count_page, ..config.settings };
    let acted = about.by == BY_ACT;
    let asked = if about.by == BY_OBSERVE { Asked::ByObserver } else { Asked::ByPolicy };
    let ended = reader.ended();
    let log = Log::new(reader.map(|line| line.map_err(|e| sentence(&e))), asked);
    let caps = Caps {
        source,
        lacks: source.sheet().lacks.to_vec(),
        moves: acted,
        // A recording of a homenode that did not bring threads tells no idle CPUs, and none is.
        affinity: true,
        splits: false,
        knobs: false,
        most_pages: about.most_pages,
    };
    let retold = Retold::new(caps, machine.clone(), Picos(about.began), log.clone());
    let engine = drive::engine(&retold, settings, version);
    let fast: BTreeSet<NodeId> =
        machine.nodes.iter().map(|n| n.id).filter(|n| engine.is_fast(*n)).collect();
    let (limits, belongings) = (config.limits.clone(), log.belongings());
    let gate = Gate { limits, belongings, fast, settles: acted.then_some(SETTLES) };
    let names = |_: &Retold, all: &mut _| {
        *all = log.names();
        true
    };
    // A move that was made is an order that the machine took, and is compared as one.
    let note = |deed: &Deed| {
        if !acted {
            log.moved(&deed.order);
        }
    };
    let listener = Listener::new(&names, &note, args.orders.is_some());
    let length = about.length.map(Picos);
    let mut over = || log.is_over();
    let (retold, mut said, result) = if acted {
        let acting = Acting::new(retold);
        let (acting, said, result) = say(acting, engine, gate, listener, length, &mut over);
        (acting.into_inner(), said, result)
    } else {
        let advised = Advised::new(retold);
        let (advised, said, result) = say(advised, engine, gate, listener, length, &mut over);
        (advised.into_inner(), said, result)
    };
    match result {
        Ok(()) | Err(ObserveError::Ended) => {}
        Err(ObserveError::Source(why)) => bail!(why),
    }
    // Names may stand behind the last wait, and how it ends does.
    log.is_over();
    if let Some(why) = log.broke() {
        bail!(why);
    }
    said.wishes.names = log.names();
    let mut warnings = Vec::new();
    match ended.get() {
        Some(Ending::Whole(of)) => warnings.extend(of),
        Some(Ending::Cut(lines)) => warnings.push(format!(
            "{} was cut off behind {}, by a crash for example: this is what was told in its first \
             {:.1} s",
            path.display(),
            count(lines, "line", "lines"),
            retold.now().saturating_sub(Picos(about.began)).as_secs_f64()
        )),
        None => {}
    }
    if let Some(differs) = log.differs() {
        warnings.push(format!(
            "the policy now decides otherwise than the one that was recorded (homenode {}): \
             {differs}. From there on places are as they were last told",
            about.homenode
        ));
    }
    let (source_notes, nothing) = (about.source_notes, about.nothing);
    let (facts, settings) = (Facts::from(about.knobs), config.settings);
    let sight = Sight { machine, settings, source, source_notes, nothing, facts, warnings };
    Ok(looked(sight, said))
}

/// The limits and budgets that were recorded, or those of `--config`.
fn config(args: &Args, about: &About) -> Result<ActFile> {
    let Some(path) = &args.config else {
        let Some((name, text)) = &about.config else { return Ok(ActFile::default()) };
        let users = |user: &str| about.users.get(user).copied();
        return Ok(homenode_config::parse_act(name, text, &users)?);
    };
    let config = crate::here::config(Some(path), &args.means.root)?;
    if let Some(fast) = &config.fast {
        bail!(fast.error("tiers are those that were recorded; --machine changes latencies"));
    }
    Ok(config)
}
