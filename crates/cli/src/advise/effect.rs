//! The simulated effect: a recording under the knobs as they are, as suggested, and under
//! homenode.
//!
//! Source: specs/advise.md#effect.

use crate::contender::Contender;
use crate::figures::Choice;
use crate::knobs::Setting;
use crate::replay::play::Played;
use crate::replay::recorded::Recorded;
use anyhow::Result;
use homenode_core::advice::{Facts, Suggestion};
use homenode_core::scenario::Mempolicy;
use homenode_core::units::{NodeId, Picos};
use homenode_report::Report;
use homenode_sim::replay::Rounds;

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
    let columns = recorded.columns(columns(facts, all, further))?;
    let mut played: Vec<Played> = Vec::new();
    for c in &columns {
        let rounds = match played.first() {
            None => Rounds::Until(span.0),
            Some(first) => Rounds::Count(first.rounds().len() as u64),
        };
        played.push(recorded.play(c, &[], rounds, &|_, _| {})?);
    }
    let choice = Choice::parse(&SHOWN.map(str::to_owned))?;
    let mut notes = recorded.target.notes.clone();
    notes.extend(columns.iter().map(|c| format!("{}: {}", c.title(), c.settings())));
    notes.push(format!(
        "the recording is looped to {} of virtual time at least in the first column, and as often \
         in the others; homenode replay shows more of it",
        homenode_config::write_time(span)
    ));
    notes.extend(columns.iter().flat_map(Contender::notes));
    Ok(recorded.report(&columns, &played, &choice, notes, Vec::new()))
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
