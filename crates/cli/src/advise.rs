//! `homenode advise`: what homenode would do, and which knobs it would set. Does neither.
//!
//! ```text
//! processes ─▶ live machine ─┐               ┌─▶ moves, what stays, why
//!                            ├─▶ course ─▶ Wishes
//! what was seen ─▶ retold ───┤
//! recording ─▶ simulated one ┘      (Advised)└─▶ facts ─▶ core::advice ─▶ knobs
//!                                                              │
//! recording ─▶ replay under the knobs now and then ◀───────────┘
//! ```
//!
//! Source: specs/advise.md.

mod effect;
pub(crate) mod facts;
mod here;
mod recording;
mod seen;
mod wishes;

use crate::contender::{Contenders, budgets};
use crate::output;
use crate::replay::load;
use crate::replay::play::Mlp;
use crate::replay::recorded::Recorded;
use crate::replay::target::{Dram, parse_dram};
use crate::whom::{Means, Whom};
use anyhow::{Context as _, Result, bail};
use homenode_config::AddNode;
use homenode_core::advice::{self, Facts, Opinion, Suggestion};
use homenode_core::costs::{Cost, Origin, Shown, Unit};
use homenode_core::engine::Settings;
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::topology::Hardware;
use homenode_core::units::{PAGE_SIZE, Picos, count};
use homenode_report::{
    Advice, AdviceConstant, AdviceKnob, AdviceLeft, AdviceMove, AdviceRest, AdviceThreads, Report,
    verdict_text,
};
use std::path::PathBuf;
use std::sync::Arc;
use wishes::Wishes;

/// Links whose constants are printed; larger machines have them in their file.
const MOST_LINKS: usize = 16;

/// Say what homenode would move, why, and what it would save; and which knobs to set.
///
/// The engine looks at processes for a while and decides as if it acted, but nothing is
/// moved and no knob is written: it is told that its moves succeeded and goes on from there.
/// Printed are the moves with what they would save against what they cost, what would stay
/// where it is and why, and which of the kernel's own knobs one would set otherwise, each
/// with its reason, its risk, and lines for a shell to do and undo it. Looking disturbs what
/// the source of heat disturbs. Where no heat is known, nothing is said on a guess.
///
/// With recordings, each is replayed on the machine of --machine under the knobs as they
/// are, as suggested, and under homenode. Without processes that simulated machine is the
/// one that is advised.
///
/// With --record all that the engine is told is kept, and --seen tells it again, on any
/// machine: the same moves come again, or it is said where they differ, if the policy has
/// changed meanwhile. That makes a bug report that can be replayed. Names of processes, users
/// and cgroups are in it, contents of memory are not.
///
/// Exit codes: 0 done; 2 bad usage, or processes that are not there; 3 the system lacks
/// something; with CMD its own, or 128 and the signal that ended it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  homenode advise --pid 4711 --machine this.toml
  homenode advise --all --for 60s --json
  homenode advise --machine this.toml -- ./build-and-test
  homenode advise --pid 4711 --record db.seen
  homenode advise --seen db.seen
  homenode advise --recording sort.parquet --machine this.toml --add-node cxl:half")]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// How long it looks; 30s unless given, with CMD until that ends
    #[arg(long = "for", value_name = "TIME", value_parser = crate::replay::span("30s"), conflicts_with = "command")]
    length: Option<Picos>,
    #[command(flatten)]
    means: Means,
    /// This machine's file, by `homenode measure`; without it latencies are firmware's, or
    /// assumed
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Budgets, exclusions, floors and tiers, in TOML, as `homenode act` has them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the engine is told goes to this file too, so that --seen can tell it again
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Look at no machine, but at what was recorded with --record, here or by `homenode
    /// observe`: the same moves come again
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["who", "length", "recording", "record", "source"])]
    seen: Option<PathBuf>,
    /// Each move goes to this file, as a line of text
    #[arg(long, value_name = "FILE")]
    orders: Option<PathBuf>,
    /// A recording, by `homenode record mem`, on which the effect is simulated; may be given
    /// several times
    #[arg(long, value_name = "FILE", requires = "machine")]
    recording: Vec<PathBuf>,
    /// Replay the recordings with a published part beside the machine's first node with
    /// CPUs, as `homenode replay` does
    #[arg(long, value_name = "PART:SIZE", value_parser = crate::replay::add_node,
          requires = "recording")]
    add_node: Option<AddNode>,
    /// Replay the recordings with so much DRAM, as `homenode replay` does
    #[arg(long, value_name = "SIZE", value_parser = parse_dram, requires = "recording")]
    dram: Option<Dram>,
    /// In place of homenode's column of the simulated effect, as `homenode replay` has them:
    /// mode2@6.1, homenode:pmu
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "recording")]
    columns: Vec<String>,
    /// Replay recordings whose times are known to come out wrong too, as `homenode replay` does
    #[arg(long, alias = "threads-anyway", requires = "recording")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    fn span(&self) -> Picos {
        self.length.unwrap_or(Picos::from_secs(30))
    }
}

pub(crate) fn run(args: &Args, contenders: &Contenders) -> Result<u8> {
    let mut further = contenders.parse(&args.columns)?;
    if !args.whom.names_anybody() && args.recording.is_empty() && args.seen.is_none() {
        bail!(
            "name the processes to look at with --pid, --cgroup or --all, start a program with \
             -- CMD, give a --recording with the --machine that it is replayed on, or what was \
             --seen elsewhere"
        );
    }
    if let Some(path) = &args.orders {
        output::check_output(path)?;
    }
    // What can be told to be wrong is told before half a minute's work.
    let mut recorded = Vec::new();
    if let (Some(path), false) = (&args.machine, args.recording.is_empty()) {
        let this = homenode_config::read_machine(path)?;
        for file in &args.recording {
            load::check(file, args.force)?;
            let loaded = load::load(file, &mut |_, _| {})?;
            recorded.push(Recorded::new(
                Arc::new(loaded),
                &this,
                args.dram,
                args.add_node,
                &[],
                Mlp::Measured,
                args.force,
            )?);
        }
    }
    let (advised, code) = match &args.seen {
        Some(path) => (seen::look(args, path)?, 0),
        None if args.whom.names_anybody() => here::look(args)?,
        None => (recording::look(args, &recorded[0])?, 0),
    };
    if let Some(path) = &args.orders {
        let lines: String = advised.wishes.orders.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, lines)
            .with_context(|| format!("{}: can't be written", path.display()))?;
    }
    let suggestions = advice::advise(&advised.facts);
    let mut effects = Vec::new();
    // Simulated, homenode sees what it saw here, or DAMON where that was nothing.
    let source = match advised.source.shows() {
        Shows::Nothing => Source::HEAT[0],
        Shows::Regions | Shows::Faults | Shows::Samples => advised.source,
    };
    if further.is_empty() {
        further.push(contenders.one(&format!("homenode:{}", source.name()))?);
    }
    for r in &recorded {
        effects.push(effect::effect(r, &advised.facts, &suggestions, &further, args.span())?);
    }
    let advice = assemble(advised, effects);
    let (width, glyphs) = (output::width(), output::glyphs());
    let text = if args.json { advice.to_json() } else { advice.to_text(width, glyphs) };
    // The program's own output stays its own.
    if args.whom.command.is_empty() {
        output::print(&text)?;
    } else {
        eprintln!("{}", text.trim_end_matches('\n'));
    }
    Ok(code)
}

/// A machine that was looked at.
struct Looked {
    machine: Hardware,
    source: Source,
    source_notes: Vec<String>,
    wishes: Wishes,
    facts: Facts,
    /// Why nothing moves, where that is known beforehand.
    nothing: Option<String>,
    notes: Vec<String>,
    warnings: Vec<String>,
    settings: Settings,
}

fn assemble(l: Looked, effects: Vec<Report>) -> Advice {
    let settings = l.settings;
    let seconds = |ps: u128| ps as f64 / 1e12;
    let ledger = &l.wishes.ledger;
    let moves = l.wishes.moves.iter().map(|(&(who, from, to, why), s)| AdviceMove {
        pid: who.pid,
        name: l.wishes.names.get(&who).cloned().unwrap_or_default(),
        from: from.0,
        to: to.0,
        why: why.name().to_owned(),
        orders: s.orders,
        pages: s.pages,
        bytes: s.pages.saturating_mul(PAGE_SIZE),
        heat: s.heat as f64 / 1000.0 / s.pages.max(1) as f64,
        saves: seconds(s.saves),
        costs: seconds(s.costs),
    });
    let threads = l.wishes.threads.iter().map(|(&(who, to), s)| AdviceThreads {
        pid: who.pid,
        name: l.wishes.names.get(&who).cloned().unwrap_or_default(),
        to: to.0,
        orders: s.orders,
        saves: seconds(s.saves),
        costs: seconds(s.costs),
    });
    let rest = ledger.verdicts.iter().filter_map(|(&verdict, tally)| {
        let (name, text) = verdict_text(verdict)?;
        let bytes = l.wishes.mean(tally.pages).saturating_mul(PAGE_SIZE);
        Some(AdviceRest { verdict: name, bytes, text: text.to_owned() })
    });
    let (knobs, left): (Vec<_>, Vec<_>) =
        advice::consider(&l.facts).into_iter().partition(|o| matches!(o, Opinion::Set(_)));
    let mut warnings = assumed(&l.machine);
    warnings.extend(l.warnings);
    if ledger.lost > 0 {
        let lost = count(ledger.lost, "event of the source was", "events of the source were");
        warnings.push(format!("{lost} lost"));
    }
    if ledger.stale > 0 {
        warnings.push(format!("the source fell silent {}", count(ledger.stale, "time", "times")));
    }
    let one_node = l.machine.nodes.iter().filter(|n| n.managed().0 > 0).count() < 2;
    let mut notes = vec!["nothing was moved and no knob was set".to_owned()];
    if !one_node {
        notes.extend(caveats(l.source, &settings));
    }
    notes.extend(l.notes);
    let nothing = (l.wishes.moves.is_empty() && l.wishes.threads.is_empty())
        .then(|| l.nothing.clone().unwrap_or_else(|| nothing(&l.wishes, l.source, &settings)));
    let mut advice = Advice {
        machine: format!("{}: {}", l.machine.name, l.machine.about),
        source: l.source.name().to_owned(),
        source_notes: l.source_notes,
        looked_seconds: l.wishes.looked.as_secs_f64(),
        horizon_seconds: settings.horizon.as_secs_f64(),
        warnings,
        moves: moves.collect(),
        threads: threads.collect(),
        rest: rest.collect(),
        nothing,
        knobs: knobs.into_iter().filter_map(knob).collect(),
        left: left.into_iter().filter_map(stays).collect(),
        effects,
        constants: if one_node { Vec::new() } else { constants(&l.machine) },
        notes,
    };
    advice.sort();
    advice
}

/// What to keep in mind of the figures.
fn caveats(source: Source, settings: &Settings) -> Vec<String> {
    let mut out = vec![
        "pages that are busy, pinned or bound would stay, which shows only when it is tried".into(),
        format!(
            "what a move saves: accesses within {}, for which memory is taken to stay as hot as it \
             is, times the difference of unloaded latencies; less where misses overlap. A page \
             that makes room carries its share of what the pair saves",
            homenode_config::write_time(settings.horizon)
        ),
        budgets(settings),
    ];
    out.extend(source.sheet().caveat.map(str::to_owned));
    out
}

/// Why nothing would move.
fn nothing(wishes: &Wishes, source: Source, settings: &Settings) -> String {
    if wishes.names.is_empty() {
        return "nobody was there to be looked at".to_owned();
    }
    if source.shows() == Shows::Nothing {
        return format!(
            "residency only: where pages are is known, how often they are accessed is not, and \
             nothing is said on a guess; evidence that is missing: {}",
            wishes::missing(source)
        );
    }
    if wishes.ledger.watched == 0 {
        return format!(
            "no process has run for more than {} of CPU time, after which it is looked at",
            homenode_config::write_time(settings.start_delay)
        );
    }
    if !wishes.knows_heat() {
        return format!("{} has told nothing yet; look for longer", source.name());
    }
    "nothing that was seen in use would pay for a move".to_owned()
}

fn knob(opinion: Opinion) -> Option<AdviceKnob> {
    let Opinion::Set(s) = opinion else { return None };
    let (to_do, to_undo) = (s.to_do(), s.to_undo());
    let Suggestion { knob, now, then, why, when_not, .. } = s;
    let (knob, when_not) = (knob.to_owned(), when_not.to_owned());
    Some(AdviceKnob { knob, now, then, why, when_not, to_do, to_undo })
}

fn stays(opinion: Opinion) -> Option<AdviceLeft> {
    let Opinion::Leave(l) = opinion else { return None };
    Some(AdviceLeft { knob: l.knob.to_owned(), now: l.now, why: l.why })
}

/// What is said loudly: constants that nobody measured.
fn assumed(machine: &Hardware) -> Vec<String> {
    let all = machine.links.len();
    let n = machine.links.iter().filter(|l| l.read_latency.origin == Origin::Assumed).count();
    if n == 0 || machine.nodes.iter().filter(|n| n.managed().0 > 0).count() < 2 {
        return Vec::new();
    }
    let which = if n == all { "all".to_owned() } else { format!("{n} of {all}") };
    vec![format!(
        "ASSUMED, not measured: {which} latencies between nodes (see constants). Savings are as \
         good as they are, and their order may be wrong too; homenode measure makes a file of \
         this machine for --machine"
    )]
}

fn constants(machine: &Hardware) -> Vec<AdviceConstant> {
    let mut out: Vec<AdviceConstant> = Vec::new();
    for l in machine.links.iter().take(MOST_LINKS) {
        let shown = Shown(l.read_latency.value, Unit::Nanoseconds);
        out.push(AdviceConstant {
            name: format!("node {} to node {}", l.from, l.to),
            value: format!("{shown} ns, {} MB/s", l.read_bandwidth.value),
            origin: l.read_latency.origin.name().to_owned(),
            method: l.read_latency.method.clone(),
        });
    }
    let look = [Cost::PageFrame, Cost::PageQuery];
    for cost in [Cost::MigratePage, Cost::PageCopy].into_iter().chain(look) {
        let c = machine.costs.constant(cost);
        out.push(AdviceConstant {
            name: cost.name().to_owned(),
            value: format!("{} ns", Shown(c.value, Unit::Nanoseconds)),
            origin: c.origin.name().to_owned(),
            method: c.method,
        });
    }
    out
}
