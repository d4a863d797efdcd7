//! The simulated effect: a recording under the knobs as they are, as suggested, and under
//! homenode.
//!
//! Source: specs/advise.md#effect.

use crate::contender::Contender;
use crate::figures::{self, Choice};
use crate::knobs::Setting;
use crate::nodes;
use crate::replay::load::{self, Loaded};
use crate::replay::play::{self, Calibration, Played};
use crate::replay::target::{self, Dram, Target};
use anyhow::{Result, anyhow};
use homenode_config::{AddNode, Size};
use homenode_core::advice::{Facts, Suggestion};
use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Knobs;
use homenode_core::scenario::Mempolicy;
use homenode_core::topology::Machine;
use homenode_core::units::{NodeId, Picos};
use homenode_report::{Caption, Report};
use homenode_sim::Setup;
use homenode_sim::replay::{Charge, Rounds};
use std::path::Path;

/// A recording, what its instructions cost, and the machine that it is replayed on.
pub(super) struct Recorded {
    pub(super) loaded: Loaded,
    pub(super) calibrated: Calibration,
    pub(super) target: Target,
    pub(super) version: KernelVersion,
}

impl Recorded {
    /// Reads a recording and calibrates it on the machine of the file; then that machine
    /// is changed as asked.
    pub(super) fn read(
        path: &Path,
        threads_anyway: bool,
        this: &Machine,
        dram: Option<Dram>,
        add: Option<AddNode>,
    ) -> Result<Self> {
        let setup = setup(&[("numa_balancing".into(), "0".into())]);
        load::check(path, threads_anyway)?;
        let loaded = load::load(path, &mut |_, _| {})?;
        let shelves = nodes::shelves(this, setup.version);
        let calibrated = play::calibrate(this, &setup, &loaded, &shelves)?;
        let half = add.is_some_and(|a| a.size == Size::Half);
        let dram = dram.unwrap_or(if half { Dram::Half } else { Dram::All });
        let knobs = Knobs::new(setup.version);
        let margin = setup.model.margin;
        let target = target::build(this, calibrated.peak, dram, add, &knobs, margin)?;
        Ok(Self { loaded, calibrated, target, version: setup.version })
    }
    /// What the program is charged, for so much virtual time or so many rounds.
    pub(super) fn charge(&self, rounds: Rounds, policy: Mempolicy) -> Charge {
        let overlap = play::overlap(&self.target.machine);
        Charge { as_per_insn: self.calibrated.as_per_insn, rounds, policy, overlap }
    }
    /// Its program's name.
    pub(super) fn name(&self) -> &str {
        self.loaded.header.command.first().map_or("program", String::as_str)
    }
}

/// One run with these knobs.
pub(super) fn setup(knobs: &[Setting]) -> Setup {
    Setup { seed: 1, knobs: knobs.to_vec(), ..Setup::default() }
}

/// Knobs that the simulated kernel has, as they are.
fn present(facts: &Facts) -> Vec<Setting> {
    let mut out: Vec<Setting> = Vec::new();
    let mut set = |name: &str, value: Option<String>| {
        out.extend(value.map(|v| (name.to_owned(), v)));
    };
    set("numa_balancing", facts.balancing.map(|m| (m & 3).to_string()));
    set("demotion_enabled", facts.demotion.map(|d| d.to_string()));
    let limit = facts.promote_limit.map(|l| l.to_string());
    set("numa_balancing_promote_rate_limit_MBps", limit);
    out
}

/// The same with what is suggested.
fn suggested(facts: &Facts, all: &[Suggestion]) -> Vec<Setting> {
    let mut out = present(facts);
    for s in all {
        let name = s.knob.strip_prefix("kernel.").unwrap_or(s.knob);
        if let Some(knob) = out.iter_mut().find(|(k, _)| k == name) {
            knob.1.clone_from(&s.then);
        }
    }
    out
}

/// Interleaving as suggested, for a program that asks for it.
fn interleaved(all: &[Suggestion]) -> Option<Mempolicy> {
    let s = all.iter().find(|s| s.knob == "weighted_interleave")?;
    let weight = |w: &homenode_core::advice::Write| {
        let node = w.file.rsplit_once("/node")?.1.parse().ok()?;
        Some((NodeId(node), w.then.parse().ok()?))
    };
    Some(Mempolicy::WeightedInterleave(s.writes.iter().filter_map(weight).collect()))
}

fn columns(facts: &Facts, all: &[Suggestion], further: &[Contender]) -> Vec<Contender> {
    let now = present(facts);
    let then = suggested(facts, all);
    let mut out = vec![Contender::kernel("present-knobs", now.clone())];
    if then != now {
        out.push(Contender::kernel("suggested-knobs", then.clone()));
    }
    if let Some(mempolicy) = interleaved(all) {
        let under = Contender::kernel("weighted-interleave", then);
        out.push(Contender { mempolicy, ..under });
    }
    out.extend_from_slice(further);
    out
}

/// Replays a recording under each, as often as the first one manages in `span`.
pub(super) fn effect(
    recorded: &Recorded,
    facts: &Facts,
    all: &[Suggestion],
    further: &[Contender],
    span: Picos,
) -> Result<Report> {
    let machine = &recorded.target.machine;
    let columns: Vec<Contender> =
        columns(facts, all, further).into_iter().map(|c| c.on(machine)).collect::<Result<_>>()?;
    let shelves = nodes::shelves(machine, recorded.version);
    let look = (recorded.calibrated.round / 16).max(1_000_000_000);
    let mut played: Vec<Played> = Vec::new();
    for c in &columns {
        let rounds = match played.first() {
            None => Rounds::Until(span.0),
            Some(first) => Rounds::Count(first.rounds().len() as u64),
        };
        let charge = recorded.charge(rounds, c.mempolicy.clone());
        let (setup, loaded) = (c.setup(&setup(&[]), &[])?, &recorded.loaded);
        let one = play::play(machine, &setup, loaded, &charge, &shelves, c, look, &|_, _| {});
        played.push(one.map_err(|e| anyhow!("column {}: {e:#}", c.name))?);
    }
    report(recorded, &columns, &played, span)
}

/// What is told of the effect; homenode replay shows more of it.
const SHOWN: [&str; 8] = [
    "time",
    "time of a round, mean",
    "accesses",
    "accesses in",
    "pages promoted",
    "pages demoted",
    "moved",
    "spent on moving",
];

fn report(
    recorded: &Recorded,
    columns: &[Contender],
    played: &[Played],
    span: Picos,
) -> Result<Report> {
    let shelves = nodes::shelves(&recorded.target.machine, recorded.version);
    let contenders: Vec<&Contender> = columns.iter().collect();
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let runs: Vec<Vec<_>> = played.iter().map(|p| vec![&p.figures]).collect();
    let choice = Choice::parse(&SHOWN.map(str::to_owned))?;
    let table =
        figures::table(&contenders, &names, &runs, &shelves, recorded.version, None, &choice);
    let mut notes = recorded.target.notes.clone();
    for c in columns {
        notes.push(format!("{}: {}", c.title(), c.settings()));
    }
    notes.push(format!(
        "the recording is looped to {} of virtual time at least in the first column, and as often \
         in the others; homenode replay shows more of it",
        homenode_config::write_time(span)
    ));
    notes.extend(columns.iter().flat_map(Contender::notes));
    let mut warnings = recorded.calibrated.warnings.clone();
    warnings.extend(recorded.target.warnings.iter().cloned());
    let machine = &recorded.target.machine;
    let caption = Caption {
        wrong: recorded.loaded.wrong(),
        machine: format!("{}: {}", machine.name, machine.about),
        workload: recorded.loaded.workload(),
        kernel: format!("Linux {}'s rules; {}", recorded.version, crate::sim::KERNEL),
        scales: Vec::new(),
        loops: played.first().map_or(0, |p| p.rounds().len() as u64),
        seeds: vec![1],
        notes,
        warnings,
    };
    Ok(Report { caption, table, picture: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::advice::{Found, NodeFacts, advise};
    use homenode_core::units::Pages;

    #[test]
    fn columns_are_the_knobs_as_they_are_as_suggested_and_further_ones() {
        let node = |id, slow: bool, mbps| NodeFacts {
            id: NodeId(id),
            cpus: !slow,
            memory: true,
            slow,
            bandwidth: Some(mbps),
            write_bandwidth: Some(mbps),
            weight: Some(1),
        };
        let found = Found { heat: true, up: Pages(9), room: Pages(9), ..Found::default() };
        let facts = Facts {
            nodes: vec![node(0, false, 100_000), node(1, true, 30_000)],
            balancing: Some(1),
            demotion: Some(false),
            promote_limit: Some(65_536),
            found,
            ..Facts::default()
        };
        let all = columns(&facts, &advise(&facts), &[Contender::kernel("off", Vec::new())]);
        let shown: Vec<String> = all
            .iter()
            .map(|c| {
                let set: Vec<String> = c.knobs.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("{}: {}", c.name, set.join(" "))
            })
            .collect();
        let limit = "numa_balancing_promote_rate_limit_MBps";
        assert_eq!(
            shown,
            [
                format!("present-knobs: numa_balancing=1 demotion_enabled=false {limit}=65536"),
                format!("suggested-knobs: numa_balancing=3 demotion_enabled=true {limit}=3000"),
                format!("weighted-interleave: numa_balancing=3 demotion_enabled=true {limit}=3000"),
                "off: ".to_owned(),
            ]
        );
        let weights = vec![(NodeId(0), 7), (NodeId(1), 2)];
        assert_eq!(all[2].mempolicy, Mempolicy::WeightedInterleave(weights));
        assert_eq!(columns(&facts, &[], &[]).len(), 1);
    }
}
