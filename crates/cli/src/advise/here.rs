//! Processes of this machine, looked at to be advised.

use super::wishes::{Listener, Wishes};
use super::{Args, Looked, facts};
use crate::drive;
use crate::here::{self, Doing, Done, Here, Task, names, work};
use crate::live::Found;
use anyhow::Result;
use homenode_core::engine::Engine;
use homenode_core::units::Picos;
use homenode_live::machine::LiveMachine;
use homenode_machine::{Advised, Limited, ObserveError, Refusals};

/// Writes down what the engine orders, and does nothing of it.
#[derive(Default)]
struct Saying(Wishes, Refusals);

impl Doing for Saying {
    const ACTS: bool = false;
    fn begin(&mut self, _: &Found, _: Option<&str>) -> Result<()> {
        Ok(())
    }
    fn go(
        &mut self,
        here: &Here,
        machine: LiveMachine,
        mut engine: Engine,
        length: Option<Picos>,
        stop: &mut dyn FnMut() -> bool,
    ) -> (LiveMachine, Result<(), ObserveError>) {
        let look = |m: &LiveMachine, all: &mut _| {
            names(m, all);
            here.goes_on(m)
        };
        let mut machine = Limited::new(Advised::new(machine), here.gate(&engine, false));
        let mut listener = Listener::new(&look);
        let (looked, result) = drive::run(&mut machine, &mut engine, length, &mut listener, stop);
        self.0 = listener.finish(&engine, looked);
        self.1 = machine.refusals().clone();
        (machine.into_inner().into_inner(), result)
    }
}

/// Looks at the processes that were named, and what to exit with.
pub(super) fn look(args: &Args) -> Result<(Looked, u8)> {
    let length = if args.whom.command.is_empty() { Some(args.span()) } else { args.length };
    let config = here::config(args.config.as_deref(), &args.means.root)?;
    let task = Task {
        whom: &args.whom,
        means: &args.means,
        file: args.machine.as_deref(),
        length,
        config: &config,
    };
    let mut saying = Saying::default();
    let Done { here, warnings, code, .. } = work(&task, &mut saying)?;
    let Here { found, source, source_notes, nothing, .. } = here;
    let Saying(wishes, refused) = saying;
    let mut facts = facts::live(&args.means.root, &found.probe, &found.machine, &found.tiers);
    facts.found = facts::found(&wishes);
    let alone = wishes.ledger.watched == 0 && !refused.excluded.is_empty();
    let nothing = nothing.or_else(|| {
        alone.then(|| "those who are there are left alone, as the file of --config says".to_owned())
    });
    let mut notes = here::refusals(&refused);
    notes.extend(source.sheet().beside.map(str::to_owned));
    let (machine, settings) = (found.machine, config.settings);
    let looked =
        Looked { machine, source, source_notes, wishes, facts, nothing, notes, warnings, settings };
    Ok((looked, code))
}
