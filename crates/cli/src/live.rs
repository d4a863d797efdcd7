//! This machine, opened to be observed, advised or acted on: the one place where its parts are put
//! together.
//!
//! ```text
//! look ──▶ Found: nodes, tiers, what the kernel offers     changes nothing
//!   │
//! choose ─▶ Chosen: which source, why; or what it lacks    changes nothing
//!   │
//! set_up ─▶ Ready: the source, watching nobody
//!   │
//! open ──▶ Opened: a LiveMachine
//! ```
//!
//! Between the last two the program to be looked at may be started: what can't be had is
//! known by then, and opening takes a moment only.

use crate::failure::Lacks;
use crate::topo::this_machine;
use anyhow::{Result, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::choice::{choose as choose_source, lacks};
use homenode_core::policy::facts::{Facts, Lack};
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Picos};
use homenode_live::cpus::Stat;
use homenode_live::heat::damon::Damon;
use homenode_live::heat::hints::Hints;
use homenode_live::heat::samples::Samples;
use homenode_live::loads::PerfLoads;
use homenode_live::machine::{
    BootClock, Cpus, Heat, LiveMachine, Loads, Mover, NoHeat, Pace, Parts, Threads,
};
use homenode_live::memory::Zoneinfo;
use homenode_live::mover::MovePages;
use homenode_live::people::{Proc, Targets};
use homenode_live::place::Place;
use homenode_live::places::ThisKernel;
use homenode_live::probe::{self, FilesOnly, Probe};
use homenode_live::sentence;
use homenode_live::threads::Affinity;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which source of heat is wanted; none: the one that decides most here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceArg(pub(crate) Option<Source>);

impl SourceArg {
    /// Reads one on the command line.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        let about = "The one that decides most here, as `homenode doctor` says";
        let named = Source::ALL.map(|s| PossibleValue::new(s.name()).help(s.sheet().about));
        let all = [PossibleValue::new("auto").help(about)].into_iter().chain(named);
        let source = |name: String| Source::ALL.into_iter().find(|s| s.name() == name);
        PossibleValuesParser::new(all).map(move |name| Self(source(name)))
    }
}

/// What is there, before anything is set up.
pub(crate) struct Found {
    /// The folder that holds `proc` and `sys`.
    pub(crate) root: PathBuf,
    /// What this kernel offers.
    pub(crate) probe: Probe,
    /// The part of it that matters for the choice.
    pub(crate) facts: Facts,
    /// Nodes and CPUs as sysfs shows them; links and costs of the machine's file, if one
    /// was given.
    pub(crate) machine: Hardware,
    /// Tiers as the kernel shows them, else as the file's latencies make them.
    pub(crate) tiers: Tiers,
    /// Whose rules apply.
    pub(crate) version: KernelVersion,
}

/// A source, and why it is used.
pub(crate) struct Chosen {
    pub(crate) source: Source,
    /// A sentence.
    pub(crate) why: String,
}

/// Whose memory is looked at, and how.
pub(crate) struct Ask {
    pub(crate) targets: Targets,
    /// Whether each look also tells where all pages are.
    pub(crate) census: bool,
    /// How often processes are looked at.
    pub(crate) pace: Pace,
    /// Longest time for which a call that moves pages may hold a process up; without it
    /// nothing can be moved.
    pub(crate) moves: Option<Picos>,
    /// Whether the source looks as closely as it can, whatever that takes: for advice, whose
    /// moves nobody carries out.
    pub(crate) closely: bool,
}

/// A machine that is being looked at. Ends with [`LiveMachine::close`].
pub(crate) struct Opened {
    pub(crate) machine: LiveMachine,
    /// The source in use.
    pub(crate) source: Source,
    /// Why; a sentence.
    pub(crate) why: String,
    /// Processes of other users that could not be asked where their pages are.
    pub(crate) refused: Box<dyn Fn() -> u64>,
}

/// Looks at a machine.
///
/// * `root` – `/`, or a folder with another machine's files.
/// * `file` – a machine's file with its latencies.
///
/// # Errors
/// Nodes that can't be read; a file that is wrong or of another machine.
pub(crate) fn look(root: &Path, file: Option<&Path>) -> Result<Found> {
    let here = root == Path::new("/");
    let probe =
        if here { probe::look(root, &probe::ThisKernel) } else { probe::look(root, &FilesOnly) };
    let mut machine = this_machine(root)?;
    if let Some(path) = file {
        let told = homenode_config::read_machine(path)?;
        fit(&mut machine, told, "here there are")
            .map_err(|why| anyhow!("{}: {why}", path.display()))?;
    }
    let version = version(probe.kernel.as_deref());
    let tiers = match probe.tiers.is_empty() {
        false => Tiers::shown(&machine, &probe.tiers, version),
        true if file.is_some() => Tiers::new(&machine, Firmware::Hmat, version),
        true => Tiers::new(&machine, Firmware::Silent, version),
    };
    Ok(Found { facts: probe.facts(), root: root.to_owned(), probe, machine, tiers, version })
}

/// Latencies and costs of a file for the machine at hand.
///
/// * `there_are` – how the nodes of that one are told.
pub(crate) fn fit(machine: &mut Hardware, told: Hardware, there_are: &str) -> Result<(), String> {
    let nodes = |m: &Hardware| -> BTreeSet<NodeId> { m.nodes.iter().map(|n| n.id).collect() };
    let (here, there) = (nodes(machine), nodes(&told));
    if here != there {
        let list = |ids: &BTreeSet<NodeId>| {
            ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        return Err(format!(
            "this is the file of another machine, with nodes {}; {there_are} {}: measure that \
             one with `homenode measure`",
            list(&there),
            list(&here)
        ));
    }
    machine.name = told.name;
    machine.caches = told.caches;
    machine.links = told.links;
    machine.costs = told.costs;
    for node in &mut machine.nodes {
        if let Some(n) = told.nodes.iter().find(|n| n.id == node.id) {
            node.medium = n.medium;
        }
    }
    Ok(())
}

/// The newest version of the rules that is not newer than the kernel.
pub(crate) fn version(release: Option<&str>) -> KernelVersion {
    let number = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let Some(ours) = release.and_then(number) else { return KernelVersion::default() };
    let known = |v: &KernelVersion| number(v.name()).is_some_and(|n| n <= ours);
    KernelVersion::ALL.into_iter().rev().find(known).unwrap_or(KernelVersion::V3_8)
}

/// Which source is used. One that is named must lack nothing.
///
/// # Errors
/// What a named one lacks, and how to get it: exit code 3.
pub(crate) fn choose(found: &Found, named: Option<Source>) -> Result<Chosen> {
    let Some(source) = named else {
        let choice = choose_source(&found.facts);
        return Ok(Chosen { source: choice.source, why: choice.to_string() });
    };
    let missing = lacks(source, &found.facts);
    if missing.is_empty() {
        let why = match source.shows() {
            Shows::Nothing => "residency only: it was asked for".to_owned(),
            Shows::Regions | Shows::Faults | Shows::Samples => {
                format!("{}: it was asked for", source.name())
            }
        };
        return Ok(Chosen { source, why });
    }
    let all: Vec<String> =
        missing.iter().map(|lack: &Lack| format!("{lack}: {}", lack.remedy())).collect();
    bail!(Lacks(format!(
        "{} can't be used here, nothing was changed. {}",
        source.name(),
        all.join(". ")
    )))
}

/// A source that is set up and watches nobody yet.
pub(crate) struct Ready {
    heat: Box<dyn Heat>,
    /// [`Source::Residency`] also where the chosen one could not be had.
    pub(crate) source: Source,
    /// Why; a sentence.
    pub(crate) why: String,
}

/// Sets up the source. Where it was homenode's own choice and can't be had after all, it is
/// residency only, and says so. What was set up goes with what comes back.
///
/// * `named` – whether the user named the source.
///
/// # Errors
/// A named source that can't be had: exit code 3.
pub(crate) fn set_up(found: &Found, chosen: Chosen, named: bool) -> Result<Ready> {
    let Chosen { source, why } = chosen;
    match heat(found, source) {
        Ok(heat) => Ok(Ready { heat, source, why }),
        Err(why) if named => bail!(Lacks(format!("{} can't be used: {why}", source.name()))),
        Err(why) => {
            let why = format!("residency only: {} was chosen, but {why}", source.name());
            Ok(Ready { heat: Box::new(NoHeat), source: Source::Residency, why })
        }
    }
}

impl Ready {
    /// Opens the machine.
    ///
    /// # Errors
    /// Processes that are not there.
    pub(crate) fn open(mut self, found: &Found, ask: Ask) -> Result<Opened> {
        if ask.closely {
            self.heat.closely();
        }
        let people = Proc::new(&found.root, &ask.targets, &found.machine.cpus)?;
        let places = ThisKernel::new(&found.root);
        let refused = places.refused();
        let cpus = &found.machine.cpus;
        let several = cpus.iter().any(|cpu| cpu.node != cpus[0].node);
        let threads = match several && ask.moves.is_some() {
            true => {
                Some(Box::new(Affinity::open(&Place::at(&found.root), cpus)?) as Box<dyn Threads>)
            }
            false => None,
        };
        // Where the source is one of the CPU's own units, its counters are read too.
        let pmu = Some(&found.probe.pmu).filter(|_| self.source == Source::Pmu);
        let loads = pmu.and_then(PerfLoads::open);
        let machine = LiveMachine::new(Parts {
            topology: found.machine.clone(),
            version: found.version,
            root: found.root.clone(),
            clock: Box::new(BootClock::start()),
            people: Box::new(people),
            memory: Box::new(Zoneinfo::new(&found.root)),
            places: Box::new(places),
            heat: self.heat,
            loads: loads.map(|loads| -> Box<dyn Loads> { Box::new(loads) }),
            cpus: several.then(|| -> Box<dyn Cpus> {
                Box::new(Stat::new(&found.root, &found.machine.cpus))
            }),
            threads,
            mover: ask.moves.map(|stall| -> Box<dyn Mover> {
                Box::new(MovePages::new(&found.root, Duration::from_nanos(stall.as_ns())))
            }),
            census: ask.census,
            pace: ask.pace,
        });
        let refused = Box::new(move || refused.load(std::sync::atomic::Ordering::Relaxed));
        Ok(Opened { machine, source: self.source, why: self.why, refused })
    }
}

fn opened<H: Heat + 'static>(heat: Result<H, impl Error>) -> Result<Box<dyn Heat>, String> {
    match heat {
        Ok(heat) => Ok(Box::new(heat)),
        Err(e) => Err(sentence(&e)),
    }
}

/// A source, set up; or a sentence why it can't be had.
fn heat(found: &Found, source: Source) -> Result<Box<dyn Heat>, String> {
    match source {
        Source::Residency => Ok(Box::new(NoHeat)),
        Source::Damon => opened(Damon::open(&Place::at(&found.root))),
        Source::Pmu => opened(Samples::open(&found.probe.pmu, &found.machine)),
        Source::HintFault => opened(Hints::open()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_never_newer_than_the_kernel() {
        for (release, rules) in [
            ("6.1.0-44-amd64", KernelVersion::V6_1),
            ("6.18.44", KernelVersion::V6_12),
            ("6.12.9+deb13-cloud", KernelVersion::V6_12),
            ("7.10.0", KernelVersion::V7_3),
            ("2.6.32", KernelVersion::V3_8),
            ("next", KernelVersion::default()),
            ("", KernelVersion::default()),
        ] {
            assert_eq!(version(Some(release)), rules, "{release}");
        }
        assert_eq!(version(None), KernelVersion::default());
    }
}
