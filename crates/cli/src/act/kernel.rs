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
use super::{Args, Held, no_ledger};
use crate::failure::Lacks;
use crate::here::{one_node, own_time};
use crate::live::Found;
use crate::program::Stop;
use anyhow::{Result, bail};
use homenode_core::engine::Settings;
use homenode_core::units::NodeId;
use homenode_live::acting::{self, BALANCING, DEMOTION, PROMOTE_LIMIT};
use homenode_live::place::Place;
use homenode_report::{ActEnd, ActState, LedgerEntry, LedgerMover};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often signals, and the program's end, are looked for.
const SLICE: Duration = Duration::from_millis(50);
/// How often it is looked whether the knobs are still ours.
const WATCH: Duration = Duration::from_secs(1);
/// How often the counters are read.
const COUNT: Duration = Duration::from_secs(10);

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

pub(super) fn run(args: &Args, settings: Settings) -> Result<u8> {
    if !args.whom.all && args.whom.command.is_empty() {
        bail!(
            "the kernel can't be told whom to move for: --engine kernel takes --all, or -- CMD for \
             as long as that runs, and --yes"
        );
    }
    if !args.yes {
        bail!(
            "--engine kernel sets knobs of the whole machine: say --yes, if that is what you want"
        );
    }
    let found = args.means.look(args.machine.as_deref())?;
    let mut stop = Stop::new();
    let Some(nothing) = one_node(&found.machine) else {
        return set_and_watch(args, &found, settings, &mut stop);
    };
    eprintln!("homenode: nothing was set: {nothing}");
    args.whom.targets(&mut stop)?;
    if let Some(program) = &mut stop.program {
        program.wait();
    }
    Ok(stop.program.and_then(|p| p.code()).unwrap_or(0))
}

fn set_and_watch(args: &Args, found: &Found, settings: Settings, stop: &mut Stop) -> Result<u8> {
    let place = Place::at(&found.root);
    let wanted = wanted(found, settings.moved_mbps.0)?;
    let Held { mut actor, mut ledger } = Held::take(&place)?;
    let mut shower = Shower::new(args.json, !args.whom.command.is_empty());
    let fast = |node: NodeId| found.tiers.is_top(node);
    let mut counted = Counted::of(&found.root, &found.machine, &fast);
    // What fails puts back what was set before, as the actor is dropped.
    for (path, value) in &wanted {
        let now = acting::shown(&place, path).unwrap_or_default();
        match actor.set(path, value)? {
            true => shower.say(&format!("{path}: {now} -> {value}"))?,
            false => shower.say(&format!("{path}: {value} already"))?,
        }
    }
    args.whom.targets(stop)?;
    let own = own_time(&found.root);
    let begun = Instant::now();
    let length = args.length.map(|l| Duration::from_nanos(l.as_ns()));
    let (mut watched, mut looked) = (begun, begun);
    let mut sums: BTreeMap<LedgerMover, u64> = BTreeMap::new();
    let (mut trouble, mut notes) = (None, Vec::new());
    let why = loop {
        if stop.wanted() {
            break "it was to end".to_owned();
        }
        if length.is_some_and(|l| begun.elapsed() >= l) {
            break "its time was over".to_owned();
        }
        if watched.elapsed() >= WATCH {
            watched = Instant::now();
            let theirs = actor.theirs();
            if let Some((knob, now)) = theirs.first() {
                break format!(
                    "somebody else has set {} to {now} where homenode had set {}, and so it steps back",
                    knob.path, knob.new
                );
            }
        }
        if looked.elapsed() >= COUNT {
            looked = Instant::now();
            trouble = count(&mut counted, &mut ledger, &mut sums);
            if trouble.is_some() {
                break "the ledger can't be written".to_owned();
            }
        }
        std::thread::sleep(SLICE);
    };
    if trouble.is_none() {
        trouble = count(&mut counted, &mut ledger, &mut sums);
    }
    let back = actor.end();
    for k in &back.set {
        notes.push(format!("put back {} to {}", k.path, k.old));
    }
    let missing = !back.failed.is_empty();
    notes.extend(back.sentences());
    notes.push("benefit not measurable here: no source of heat was asked, the kernel moved".into());
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
    if let Some(e) = trouble {
        return Err(e);
    }
    match &mut stop.program {
        None => Ok(if missing { 3 } else { 0 }),
        Some(program) => {
            if !program.is_over() {
                eprintln!("homenode: the program goes on, the knobs are as they were");
            }
            Ok(program.code().unwrap_or(0))
        }
    }
}

/// Writes down what the kernel moved since the last time.
fn count(
    counted: &mut Counted,
    ledger: &mut homenode_live::ledger::Writer,
    sums: &mut BTreeMap<LedgerMover, u64>,
) -> Option<anyhow::Error> {
    let rows = counted.rows(unix_ms(), 0);
    for row in &rows {
        *sums.entry(row.mover).or_default() += row.moved_bytes;
    }
    let lines: Vec<String> = rows.iter().map(LedgerEntry::to_json).collect();
    ledger.add(lines.iter().map(String::as_str)).err().map(|e| no_ledger(&e))
}
