//! The conformance bodies of `homenode-machine` on this kernel: what they assert is what
//! they assert of the simulated one.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use homenode_live::heat::damon::Damon;
use homenode_live::machine::{Heat, NoHeat};
use homenode_live::place::Place;
use homenode_machine::conformance::{
    Finding, counters_add_up, exits_and_replacements, moved_pages_are_there,
    partial_failures_add_up, promotion_stops_at_the_mark, slow_start,
};
use serde_json::json;

use crate::asked::Asked;
use crate::damon;
use crate::stage::{self, LiveStage};
use crate::told::{Spans, Told};
use crate::{TestResult, needs};

type Body = fn(&mut LiveStage) -> Result<(), Finding>;

/// The bodies about the machine alone.
pub(crate) fn machine(asked: &Asked) -> TestResult {
    let bodies: [(&str, Body); 3] = [
        ("moved_pages_are_there", moved_pages_are_there),
        ("partial_failures_add_up", partial_failures_add_up),
        ("exits_and_replacements", exits_and_replacements),
    ];
    all(asked, &bodies, |_| Ok(Box::new(NoHeat)))
}

/// The bodies about the engine.
const OF_THE_ENGINE: [(&str, Body); 3] = [
    ("slow_start", slow_start),
    ("promotion_stops_at_the_mark", promotion_stops_at_the_mark),
    ("counters_add_up", counters_add_up),
];

/// The bodies about the engine have a stage here.
fn needs_a_stage(asked: &Asked) -> Result<()> {
    let slow = asked.nodes.iter().any(|node| node.cpus.is_empty());
    needs(slow, "no slow node: nothing is promoted")?;
    // What the allocator takes from a zone it takes below the mark of a smaller one, and
    // the mark is held by one of them.
    let several = stage::nodes(asked).is_ok_and(|(fast, _)| fast == 0);
    needs(!several, "the fast node has several zones")
}

/// With heat that is the truth.
pub(crate) fn engine(asked: &Asked) -> TestResult {
    needs_a_stage(asked)?;
    all(asked, &OF_THE_ENGINE, |spans| Ok(Box::new(Told::new(Rc::clone(spans)))))
}

/// With this kernel's DAMON.
pub(crate) fn by_damon(asked: &Asked) -> TestResult {
    let _off = damon::Module::off()?;
    needs_a_stage(asked)?;
    damon::needs_it()?;
    all(asked, &OF_THE_ENGINE, |_| Ok(Box::new(Damon::open(&Place::here())?)))
}

fn all(
    asked: &Asked,
    bodies: &[(&str, Body)],
    heat: impl Fn(&Spans) -> Result<Box<dyn Heat>>,
) -> TestResult {
    let (fast, slow) = stage::nodes(asked)?;
    let mut took = Vec::new();
    for (name, body) in bodies {
        let begun = Instant::now();
        let mut stage = LiveStage::new(asked, &heat)?;
        let found = body(&mut stage);
        ensure!(found.is_ok(), "{name}: {}", found.err().unwrap_or_default());
        took.push(json!([name, begun.elapsed().as_millis() as u64]));
    }
    Ok(json!({"bodies_ms": took, "nodes": [fast, slow]}))
}
