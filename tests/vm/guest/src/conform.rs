//! The conformance bodies of `homenode-machine` on this kernel: what they assert is what
//! they assert of the simulated one.

use std::rc::Rc;

use anyhow::{Result, ensure};
use homenode_live::machine::{Heat, NoHeat};
use homenode_machine::conformance::{
    Finding, counters_add_up, exits_and_replacements, moved_pages_are_there,
    partial_failures_add_up, promotion_stops_at_the_mark, slow_start,
};
use serde_json::json;

use crate::Outcome;
use crate::asked::Asked;
use crate::stage::{self, LiveStage};
use crate::told::{Spans, Told};

type Body = fn(&mut LiveStage) -> Result<(), Finding>;

/// The bodies about the machine alone.
pub(crate) fn machine(asked: &Asked) -> Result<Outcome> {
    let bodies: [(&str, Body); 3] = [
        ("moved_pages_are_there", moved_pages_are_there),
        ("partial_failures_add_up", partial_failures_add_up),
        ("exits_and_replacements", exits_and_replacements),
    ];
    all(asked, &bodies, |_| Box::new(NoHeat))
}

/// The bodies about the engine, on a machine with a slow node.
pub(crate) fn engine(asked: &Asked) -> Result<Outcome> {
    let bodies: [(&str, Body); 3] = [
        ("slow_start", slow_start),
        ("promotion_stops_at_the_mark", promotion_stops_at_the_mark),
        ("counters_add_up", counters_add_up),
    ];
    if asked.nodes.iter().all(|node| !node.cpus.is_empty()) {
        return Ok(Outcome::Skipped("no slow node: nothing is promoted".to_owned()));
    }
    // What the allocator takes from a zone it takes below the mark of a smaller one, and
    // the mark is held by one of them.
    if stage::nodes(asked).is_some_and(|(fast, _)| fast == 0) {
        return Ok(Outcome::Skipped("the fast node has several zones".to_owned()));
    }
    all(asked, &bodies, |spans| Box::new(Told::new(Rc::clone(spans))))
}

fn all(
    asked: &Asked,
    bodies: &[(&str, Body)],
    heat: impl Fn(&Spans) -> Box<dyn Heat>,
) -> Result<Outcome> {
    let Some((fast, slow)) = stage::nodes(asked) else {
        return Ok(Outcome::Skipped("one node: nowhere to move to".to_owned()));
    };
    for (name, body) in bodies {
        let mut stage = LiveStage::new(asked, &heat)?;
        let found = body(&mut stage);
        ensure!(found.is_ok(), "{name}: {}", found.err().unwrap_or_default());
    }
    let names: Vec<&str> = bodies.iter().map(|(name, _)| *name).collect();
    Ok(Outcome::Passed(json!({"bodies": names, "nodes": [fast, slow]})))
}
