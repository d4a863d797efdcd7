//! The workloads that come with the command, those that files tell, and recorded programs.

use super::drawn;
use crate::contender::Contender;
use crate::homenode::Runner;
use crate::replay::load;
use crate::replay::play::{Mlp, stands_still};
use crate::replay::recorded::{self, Recorded};
use crate::replay::target::{self, Dram};
use anyhow::{Context, Result, anyhow, bail};
use homenode_config::{AddNode, parse_add_node};
use homenode_core::kernel::KernelVersion;
use homenode_core::scale::Scale;
use homenode_core::scenario::{Scenario, Step, Until};
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::Hardware;
use homenode_core::units::{PAGE_SIZE, Picos};
use homenode_sim::replay::Rounds;
use homenode_sim::{Setup, Simulation};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twox_hash::XxHash3_128;

macro_rules! shipped {
    ($first:literal $(, $name:literal)* $(,)?) => {
        /// What the command says about its arguments.
        pub(super) const HELP: &str = concat!(
            "Workloads: scenarios' TOML files, recordings by `homenode record mem`, or names of those that come \
             with it: ",
            $first, $(", ", $name,)* ". All of these unless given. drawn:TEXT:1-100 are a hundred that are \
             drawn at random and follow from a text"
        );
        shipped!(@texts $first $(, $name)*);
    };
    (@texts $($name:literal),*) => {
        /// Names and texts of the scenarios that come with the command.
        const SHIPPED: &[(&str, &str)] = &[$(
            ($name, include_str!(concat!("../../../../scenarios/compare/", $name, ".toml"))),
        )*];
    };
}

shipped!(
    "gauss",
    "zipf",
    "hot-spot",
    "phases",
    "scan-beside",
    "chain-stream",
    "gups",
    "two-programs",
    "uniform",
    "antagonist-0",
    "antagonist-1",
    "antagonist-2",
    "antagonist-3",
    "huge-skew",
    "priorities",
    "breadth-first",
    "kv-drift",
);

/// The machines of all of them, as their scenarios name them.
const MACHINES: &[(&str, &str)] = &[
    ("../../machines/middle-cxl.toml", include_str!("../../../../machines/middle-cxl.toml")),
    ("../../machines/narrow-cxl.toml", include_str!("../../../../machines/narrow-cxl.toml")),
];

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|&(name, _)| name)
}

/// How recorded programs are run.
#[derive(clap::Args, Default)]
pub(super) struct Recordings {
    /// The machine that programs were recorded on, by `homenode measure`; needed with recordings
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Of recordings: a published part beside the first node with CPUs, cxl:half (half of the
    /// program's memory, and DRAM shrunk to the other half), cxl:16GiB, pmem:64GiB [default: cxl:half]
    #[arg(long, value_name = "PART:SIZE", value_parser = crate::replay::add_node)]
    add_node: Option<AddNode>,
    /// Of recordings: how much DRAM the machine has: all, half (of the program's memory), or a
    /// size; half if the added node is half, else all
    #[arg(long, value_name = "SIZE", value_parser = target::parse_dram)]
    dram: Option<Dram>,
    /// Take recordings although their times are known to come out wrong
    #[arg(long)]
    force: bool,
}

impl Recordings {
    /// Whether anything is said of recordings.
    pub(super) fn is_said(&self) -> bool {
        let Self { machine, add_node, dram, force } = self;
        machine.is_some() || add_node.is_some() || dram.is_some() || *force
    }
}

/// The slow node that a recorded program has, where nobody names another.
const ADDED: &str = "cxl:half";
/// Virtual time that a recording is looped for, where nobody says another.
const LOOPED: Picos = Picos::from_secs(60);

/// Whether that is a recording's file.
pub(super) fn is_recording(name: &str) -> bool {
    homenode_trace::sched::is_one(Path::new(name))
}

/// What contenders are compared on.
pub(super) struct Workload {
    pub(super) name: String,
    /// A sentence.
    pub(super) about: String,
    pub(super) machine: Hardware,
    pub(super) scale: Scale,
    runs: Runs,
}

/// What runs there.
enum Runs {
    Scenario(Box<Scenario>),
    /// A recorded program, and the hash of its file.
    Recording(Box<Recorded>, u128),
}

impl Workload {
    /// One that comes with the command, that a file tells, or that was recorded.
    pub(super) fn read(name: &str, recordings: &Recordings) -> Result<Self> {
        if is_recording(name) {
            return Self::recorded(Path::new(name), recordings);
        }
        let (scenario, machine) = scenario(name)?;
        let Scenario { name, about, scale, .. } = &scenario;
        let (name, about, scale) = (name.clone(), about.clone(), *scale);
        Ok(Self { name, about, machine, scale, runs: Runs::Scenario(Box::new(scenario)) })
    }
    /// A recorded program on the machine of its recording, changed as asked.
    fn recorded(path: &Path, how: &Recordings) -> Result<Self> {
        let shown = path.display();
        let Some(machine) = &how.machine else {
            bail!(
                "{shown} is a recording: name the machine that it was recorded on with --machine"
            );
        };
        let this = homenode_config::read_machine(machine)?;
        load::check(path, how.force)?;
        let loaded = Arc::new(load::load(path, &mut |_, _| {})?);
        let about = loaded.workload();
        let add = how.add_node.map_or_else(|| parse_add_node(ADDED), Ok)?;
        let (add, mlp) = (Some(add), Mlp::Measured);
        let recorded = Recorded::new(loaded, &this, how.dram, add, &[], mlp, how.force)
            .with_context(|| format!("{shown}"))?;
        let stem = path.file_stem().ok_or_else(|| anyhow!("{shown} has no name"))?;
        Ok(Self {
            name: stem.to_string_lossy().into_owned(),
            about,
            machine: recorded.target.machine.clone(),
            scale: Scale::default(),
            runs: Runs::Recording(Box::new(recorded), hash(path)?),
        })
    }
    /// The setting that all contenders share.
    pub(super) fn setup(&self) -> Setup {
        match &self.runs {
            Runs::Scenario(scenario) => Setup::of(scenario),
            Runs::Recording(..) => recorded::setup(&[]),
        }
    }
    /// All that decides what runs.
    pub(super) fn key(&self) -> String {
        let Self { machine, runs, .. } = self;
        match runs {
            Runs::Scenario(scenario) => format!("{scenario:?} {machine:?}"),
            // What was calibrated follows from the file, the machine, and the program.
            Runs::Recording(recorded, hash) => {
                format!("{hash:032x} {machine:?} {}", recorded.calibrated.rates.all)
            }
        }
    }
    /// The run of a contender, before it begins.
    pub(super) fn simulation(&self, contender: &Contender, setup: &Setup) -> Result<Simulation> {
        Ok(match &self.runs {
            Runs::Scenario(scenario) => {
                Simulation::new(&self.machine, &contender.scenario(scenario), setup)?
            }
            Runs::Recording(recorded, _) => {
                let rounds = Rounds::Until(self.lasts(setup).0);
                let charge = recorded.charge(rounds, contender.mempolicy.clone());
                // It ends with a round.
                let setup = Setup { duration: None, ..setup.clone() };
                let (recording, name) = (&recorded.loaded.recording, recorded.name());
                Simulation::replay(&self.machine, &setup, recording, name, &charge)?
            }
        })
    }
    /// Runs it to its end.
    pub(super) fn run(&self, runner: &mut Runner) -> Result<()> {
        let Runs::Recording(recorded, _) = &self.runs else { return runner.run() };
        while !runner.sim().idle() {
            runner.run_until(runner.sim().now() + recorded.calibrated.round.max(LOOK))?;
            if let Some(why) = stands_still(runner.sim(), &recorded.loaded) {
                bail!("{why}");
            }
        }
        Ok(())
    }
    /// Lines that a round fetches, of a recorded program.
    pub(super) fn round(&self) -> Option<u64> {
        match &self.runs {
            Runs::Scenario(_) => None,
            Runs::Recording(recorded, _) => Some(recorded.loaded.recording.misses()),
        }
    }
    /// Pages that its programs use.
    pub(super) fn pages(&self) -> u64 {
        match &self.runs {
            Runs::Scenario(scenario) => {
                let maps = scenario.processes.iter().flat_map(|p| p.maps.iter());
                maps.map(|m| m.size.0.div_ceil(PAGE_SIZE)).sum()
            }
            Runs::Recording(recorded, _) => recorded.calibrated.peak.0,
        }
    }
    /// Whether memory is of two tiers.
    pub(super) fn has_two_tiers(&self, version: KernelVersion) -> bool {
        Tiers::new(&self.machine, Firmware::Hmat, version).iter().count() > 1
    }
    /// About how long a run takes: of all programs the longest time of steps, unless the
    /// setting ends it before.
    pub(super) fn lasts(&self, setup: &Setup) -> Picos {
        let asked = setup.duration.unwrap_or(u64::MAX);
        match &self.runs {
            Runs::Scenario(scenario) => Picos(takes(scenario).0.min(asked)),
            Runs::Recording(..) => Picos(setup.duration.unwrap_or(LOOPED.0)),
        }
    }
    /// What is to be said of it below the table; of a scenario its machine says all.
    pub(super) fn note(&self) -> Option<String> {
        let Runs::Recording(recorded, _) = &self.runs else { return None };
        let (target, calibrated) = (&recorded.target, &recorded.calibrated);
        let wrong = recorded.loaded.wrong().map(|why| format!("WRONG: {why}"));
        let warned = target.warnings.iter().chain(&calibrated.warnings).cloned();
        let warned = warned.chain(recorded.loaded.warnings()).map(|why| format!("warning: {why}"));
        let told = target.notes.iter().chain(&calibrated.notes).cloned();
        let all: Vec<String> = wrong.into_iter().chain(warned).chain(told).collect();
        Some(format!("{}, recorded: {}", self.name, all.join("; ")))
    }
}

/// Time between two looks at whether a replay goes on, at least, in picoseconds.
const LOOK: u64 = 1_000_000_000;

/// The hash of a file's bytes.
fn hash(path: &Path) -> Result<u128> {
    let read = || -> std::io::Result<u128> {
        let (mut file, mut hash) = (File::open(path)?, XxHash3_128::new());
        let mut part = vec![0; 1 << 20];
        loop {
            match file.read(&mut part)? {
                0 => return Ok(hash.finish_128()),
                n => hash.write(&part[..n]),
            }
        }
    };
    read().with_context(|| path.display().to_string())
}

/// A scenario on its machine.
fn scenario(name: &str) -> Result<(Scenario, Hardware)> {
    let drawn = drawn::toml(name)?;
    let shipped = SHIPPED.iter().find(|(own, _)| *own == name).map(|(_, text)| *text);
    if let Some(text) = drawn.as_deref().or(shipped) {
        let path = match drawn {
            Some(_) => name.to_owned(),
            None => format!("scenarios/compare/{name}.toml"),
        };
        let file = homenode_config::parse_scenario(&path, text)?;
        let machine = &file.scenario.machine;
        let Some((_, text)) = MACHINES.iter().find(|(path, _)| path == machine) else {
            bail!("{path}: its machine {machine} does not come with the command");
        };
        let machine = homenode_config::parse_machine(machine.trim_start_matches("../"), text)?;
        file.check_on_its_own(&machine)?;
        return Ok((file.scenario, machine));
    }
    if !name.contains(['/', '.']) && !Path::new(name).exists() {
        let names: Vec<&str> = names().collect();
        bail!(
            "there is no workload {name:?}{}, and no file of that name; there are {}",
            homenode_config::suggestion(name, &names),
            names.join(", ")
        );
    }
    Ok(homenode_config::read_scenario_and_machine(Path::new(name))?)
}

/// About how long a scenario takes.
fn takes(scenario: &Scenario) -> Picos {
    let time = |step: &Step| match step {
        Step::Access { until: Until::Time(time), .. }
        | Step::Stream { time, .. }
        | Step::Sleep(time) => time.0,
        _ => 0,
    };
    let all = scenario.processes.iter();
    let all = all.map(|p| p.start.0 + p.steps.iter().map(time).sum::<u64>());
    Picos(all.max().unwrap_or(0).max(1_000_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Result<Workload> {
        Workload::read(name, &Recordings::default())
    }

    #[test]
    fn what_comes_with_the_command_can_be_read_and_is_named_in_the_help() {
        for name in names() {
            let w = read(name).unwrap_or_else(|e| panic!("{e:#}"));
            assert_eq!(w.name, name);
            assert!(w.has_two_tiers(w.setup().version));
            assert!(HELP.contains(name), "{name}");
            assert!(w.lasts(&w.setup()) >= Picos::from_secs(60), "{name}");
            // Nothing in a workload knows the contender.
            assert!(w.setup().knobs.is_empty(), "{name}");
        }
        let lasts = |n: &&str| {
            let w = read(n).expect("read");
            w.lasts(&w.setup())
        };
        let long = names().filter(|n| lasts(n) >= Picos::from_secs(240));
        assert_eq!(long.count(), 4, "four workloads give slow policies their time");
    }

    #[test]
    fn a_name_that_is_none_is_told_which_there_are() {
        let error = read("zpif").map(|_| ()).expect_err("no such name");
        assert!(error.to_string().contains("did you mean \"zipf\"?"), "{error}");
    }
}
