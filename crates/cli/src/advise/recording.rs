//! A recorded program on a simulated machine, advised as a live one is.

use super::wishes::Listener;
use super::{Args, Looked, facts};
use crate::drive;
use crate::here::one_node;
use crate::replay::recorded::{Recorded, setup};
use anyhow::{Result, anyhow};
use homenode_core::knobs::Knobs;
use homenode_core::policy::seen::Source;
use homenode_core::scenario::Mempolicy;
use homenode_core::tiering::tiers::{Firmware, Tiers};
use homenode_machine::Advised;
use homenode_sim::Simulation;
use homenode_sim::machine::{SimMachine, knobs_for};
use homenode_sim::replay::Rounds;

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
    // Every process in it is the program's.
    let config = crate::here::config(args.config.as_deref(), &args.means.root)?;
    let mut engine = drive::engine(&sim, config.settings, setup.version);
    let mut listener = Listener::new(&|_, _| true);
    let mut sim = Advised::new(sim);
    let (looked, result) =
        drive::run(&mut sim, &mut engine, Some(args.span()), &mut listener, &mut || false);
    result.map_err(|e| anyhow!("{e}"))?;
    let (sim, mut wishes) = (sim.into_inner(), listener.finish(&engine, looked));
    if let Some(e) = sim.simulation().error() {
        return Err(anyhow!("{e}"));
    }
    let all: Vec<_> = wishes.moves.keys().map(|way| way.0).collect();
    wishes.names.extend(all.into_iter().map(|who| (who, name.clone())));
    if wishes.names.is_empty() {
        // Nobody's pages move, but somebody was there.
        let nobody = homenode_core::policy::seen::Who { pid: 0, start: 0 };
        wishes.names.insert(nobody, name);
    }
    let tiers = Tiers::new(machine, Firmware::Hmat, setup.version);
    let mut facts = facts::booted(machine, &tiers, &Knobs::new(setup.version));
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
        source_notes: vec!["of a simulated machine, as --recording without processes asks".into()],
        nothing: one_node(machine),
        wishes,
        facts,
        notes,
        warnings: recorded.calibrated.warnings.clone(),
        settings: config.settings,
    })
}
