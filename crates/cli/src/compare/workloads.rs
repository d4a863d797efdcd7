//! The workloads that come with the command, and those that files tell.

use super::drawn;
use anyhow::{Result, bail};
use homenode_core::kernel::KernelVersion;
use homenode_core::scenario::{Scenario, Step, Until};
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use std::path::Path;

macro_rules! shipped {
    ($first:literal $(, $name:literal)* $(,)?) => {
        /// What the command says about its arguments.
        pub(super) const HELP: &str = concat!(
            "Workloads: scenarios' TOML files, or names of those that come with it: ",
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

/// A scenario on its machine.
pub(super) struct Workload {
    pub(super) scenario: Scenario,
    pub(super) machine: Hardware,
}

impl Workload {
    /// One that comes with the command, or that a file tells.
    pub(super) fn read(name: &str) -> Result<Self> {
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
            return Ok(Self { scenario: file.scenario, machine });
        }
        if !name.contains(['/', '.']) && !Path::new(name).exists() {
            let names: Vec<&str> = names().collect();
            bail!(
                "there is no workload {name:?}{}, and no file of that name; there are {}",
                homenode_config::suggestion(name, &names),
                names.join(", ")
            );
        }
        let (scenario, machine) = homenode_config::read_scenario_and_machine(Path::new(name))?;
        Ok(Self { scenario, machine })
    }
    /// Whether memory is of two tiers.
    pub(super) fn has_two_tiers(&self, version: KernelVersion) -> bool {
        Tiers::new(&self.machine, Firmware::Hmat, version).iter().count() > 1
    }
    /// About how long it takes: of all programs the longest time of steps.
    pub(super) fn takes(&self) -> Picos {
        let time = |step: &Step| match step {
            Step::Access { until: Until::Time(time), .. }
            | Step::Stream { time, .. }
            | Step::Sleep(time) => time.0,
            _ => 0,
        };
        let programs = self.scenario.processes.iter();
        let all = programs.map(|p| p.start.0 + p.steps.iter().map(time).sum::<u64>());
        Picos(all.max().unwrap_or(0).max(1_000_000_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_with_the_command_can_be_read_and_is_named_in_the_help() {
        for name in names() {
            let w = Workload::read(name).unwrap_or_else(|e| panic!("{e:#}"));
            assert_eq!(w.scenario.name, name);
            assert!(w.has_two_tiers(w.scenario.kernel));
            assert!(HELP.contains(name), "{name}");
            assert!(w.takes() >= Picos::from_secs(60), "{name}");
            // Nothing in a workload knows the contender.
            assert!(w.scenario.knobs.is_empty(), "{name}");
        }
        let long =
            names().filter(|n| Workload::read(n).expect("read").takes().0 >= 240_000_000_000_000);
        assert_eq!(long.count(), 4, "four workloads give slow policies their time");
    }

    #[test]
    fn a_name_that_is_none_is_told_which_there_are() {
        let error = Workload::read("zpif").map(|_| ()).expect_err("no such name");
        assert!(error.to_string().contains("did you mean \"zipf\"?"), "{error}");
    }
}
