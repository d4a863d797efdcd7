//! A recorded program on a simulated machine, advised as a live one is.

use super::here::{Said, say};
use super::wishes::Listener;
use super::{Args, Looked, facts};
use crate::drive;
use crate::here::one_node;
use crate::replay::recorded::{Recorded, setup};
use crate::seen::{self, Above, BY_ADVISE, Recording as Kept};
use anyhow::{Result, anyhow};
use homenode_core::knobs::Knobs;
use homenode_core::limits::{Limits, Whose};
use homenode_core::policy::seen::{Source, Who};
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_core::units::{NodeId, Pages};
use homenode_machine::{self as machines, Belongings, Gate};
use homenode_sim::Simulation;
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::replay::Rounds;
use std::collections::{BTreeMap, BTreeSet};

/// Whose a simulated process is nobody knows, and nobody asks.
struct Nobody;

impl Belongings for Nobody {
    fn whose(&mut self, _: Who) -> Option<Whose> {
        None
    }
    fn pages(&mut self, _: &str, _: &BTreeSet<NodeId>) -> Option<Pages> {
        None
    }
}

/// Lets the engine look at the recorded program.
pub(super) fn look(args: &Args, recorded: &Recorded) -> Result<Looked> {
    let source = args.means.named().unwrap_or(Source::HEAT[0]);
    let machine = &recorded.target.machine;
    let charge = recorded.charge(Rounds::Until(args.span().0), Mempolicy::Default);
    let setup = setup(&knobs_for(source));
    let loaded = &recorded.loaded.recording;
    let sim = Simulation::replay(machine, &setup, loaded, recorded.name(), &charge)?;
    let sim = SimMachine::new(sim, source)?;
    let name = recorded.name().to_owned();
    let nothing = one_node(machine);
    let source_notes =
        vec!["of a simulated machine, as --recording without processes asks".to_owned()];
    let tiers = Tiers::new(machine, Firmware::Hmat, setup.version);
    let mut facts = facts::booted(machine, &tiers, &Knobs::new(setup.version));
    // Every process in it is the program's: nobody is left alone, and no limits are recorded.
    let config = crate::here::config(args.config.as_deref(), &args.means.root)?;
    let kept = args.record.as_deref().map(Kept::create).transpose()?;
    let began = match &kept {
        None => None,
        Some(kept) => {
            let above = Above {
                by: BY_ADVISE,
                kernel: None,
                version: setup.version,
                source,
                source_notes: &source_notes,
                nothing: nothing.as_deref(),
                length: Some(args.span()),
                config: None,
                users: BTreeMap::new(),
                settings: config.settings,
                facts: &facts,
            };
            Some(kept.begin(&seen::about(above, &sim)?))
        }
    };
    let notes = began.as_ref().map(|(notes, _)| notes.clone());
    let engine = drive::engine(&sim, config.settings, setup.version);
    let note = seen::noting(notes.clone());
    let look = |_: &machines::Recorded<SimMachine>, _: &mut _| {
        if let Some(kept) = &kept {
            kept.keep();
        }
        true
    };
    let listener = Listener::new(&look, &note, args.orders.is_some());
    let gate = Gate {
        limits: Limits::default(),
        belongings: Box::new(Nobody),
        fast: BTreeSet::new(),
        settles: None,
    };
    let sim = machines::Advised::new(machines::Recorded::new(sim, began));
    let length = Some(args.span());
    let (sim, Said { mut wishes, .. }, result) =
        say(sim, engine, gate, listener, length, &mut || false);
    result.map_err(|e| anyhow!("{e}"))?;
    if let Some(e) = sim.into_inner().into_inner().simulation().error() {
        return Err(anyhow!("{e}"));
    }
    let all: Vec<_> = wishes.moves.keys().map(|way| way.0).collect();
    wishes.names.extend(all.into_iter().map(|who| (who, name.clone())));
    if wishes.names.is_empty() {
        // Nobody's pages move, but somebody was there.
        wishes.names.insert(Who::default(), name);
    }
    if let (Some(kept), Some(notes)) = (&kept, &notes) {
        wishes.names.iter().for_each(|(who, name)| notes.name(*who, name));
        eprintln!("homenode: {}", kept.finish(&[])?);
    }
    facts.found = facts::found(&wishes);
    // The rest of what there is to say of the machine stands below the effect.
    let notes = vec![format!(
        "simulated: {} looped for {:.1} s of virtual time under Linux {}'s rules, knobs as at \
         boot; while homenode looks, balancing is as its source needs it",
        recorded.name(),
        wishes.looked.as_secs_f64(),
        setup.version
    )];
    Ok(Looked {
        machine: machine.clone(),
        source,
        source_notes,
        nothing,
        wishes,
        facts,
        notes,
        warnings: recorded.calibrated.warnings.clone(),
        settings: config.settings,
    })
}
