//! Processes of this machine, looked at to be advised.

use super::wishes::{Listener, Wishes};
use super::{Args, Looked, facts};
use crate::drive;
use crate::here::{self, Config, Doing, Done, Here, Task, names, work};
use crate::live::Found;
use crate::seen::{self, BY_ADVISE, Recording};
use anyhow::Result;
use homenode_core::advice::Facts;
use homenode_core::engine::{Engine, Settings};
use homenode_core::policy::seen::Source;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_live::machine::LiveMachine;
use homenode_machine::{Advised, Around, Deeds, Gate, Limited, ObserveError, Recorded, Refusals};

/// What an engine wished, and what was kept from it.
#[derive(Default)]
pub(super) struct Said {
    pub(super) wishes: Wishes,
    pub(super) refused: Refusals,
}

/// Lets an engine look at a machine, and writes down what becomes of its moves.
///
/// * `gate` – what stands between the two.
/// * `listener` – who is told what it wishes.
/// * `length`, `stop` – as [`drive::run`] has them.
pub(super) fn say<M: Around<Inner: Sized> + Deeds>(
    machine: M,
    mut engine: Engine,
    gate: Gate,
    mut listener: Listener<'_, M::Inner>,
    length: Option<Picos>,
    stop: &mut dyn FnMut() -> bool,
) -> (M, Said, Result<(), ObserveError>) {
    let mut machine = Limited::new(machine, gate);
    let (looked, result) = drive::run(&mut machine, &mut engine, length, &mut listener, stop);
    let wishes = listener.finish(&engine, looked);
    let said = Said { wishes, refused: machine.refusals().clone() };
    (machine.into_inner(), said, result)
}

/// Writes down what the engine orders, and does nothing of it.
struct Saying<'a> {
    said: Said,
    recorded: Option<(Recording, &'a Config)>,
    orders: bool,
    length: Option<Picos>,
    facts: Option<Facts>,
    failed: Option<anyhow::Error>,
}

impl Doing for Saying<'_> {
    const ACTS: bool = false;
    fn begin(&mut self, _: &Found, _: Option<&str>) -> Result<()> {
        Ok(())
    }
    fn go(
        &mut self,
        here: &Here,
        machine: LiveMachine,
        engine: Engine,
        length: Option<Picos>,
        stop: &mut dyn FnMut() -> bool,
    ) -> (LiveMachine, Result<(), ObserveError>) {
        let found = &here.found;
        let facts = facts::live(&found.root, &found.probe, &found.machine, &found.tiers);
        let begun = self.recorded.as_ref().map(|(recording, config)| {
            recording.of(BY_ADVISE, here, config, self.length, &machine, &facts)
        });
        let machine = match begun.transpose() {
            Ok(notes) => Recorded::new(machine, notes),
            Err(e) => {
                self.failed = Some(e);
                return (machine, Ok(()));
            }
        };
        self.facts = Some(facts);
        let notes = machine.notes().cloned();
        let mut gate = here.gate(&engine, false);
        if let Some(notes) = &notes {
            gate.belongings = notes.asking(gate.belongings);
        }
        let look = |m: &Recorded<LiveMachine>, all: &mut _| {
            names(m.inside(), all);
            if let (Some(notes), Some((recording, _))) = (&notes, &self.recorded) {
                m.inside().people().for_each(|p| notes.name(p.who, &p.name));
                recording.keep();
            }
            here.goes_on(m.inside())
        };
        let note = seen::noting(notes.clone());
        let listener = Listener::new(&look, &note, self.orders);
        let machine = Advised::new(machine);
        let (machine, said, result) = say(machine, engine, gate, listener, length, stop);
        self.said = said;
        (machine.into_inner().into_inner(), result)
    }
}

/// What was looked at, however that was.
pub(super) struct Sight {
    pub(super) machine: Hardware,
    pub(super) settings: Settings,
    pub(super) source: Source,
    pub(super) source_notes: Vec<String>,
    /// Why nothing can move, where that was known beforehand.
    pub(super) nothing: Option<String>,
    pub(super) facts: Facts,
    pub(super) warnings: Vec<String>,
}

/// What there is to say of it.
pub(super) fn looked(sight: Sight, said: Said) -> Looked {
    let Sight { machine, settings, source, source_notes, nothing, mut facts, warnings } = sight;
    let Said { wishes, refused } = said;
    facts.found = facts::found(&wishes);
    let alone = wishes.ledger.watched == 0 && !refused.excluded.is_empty();
    let nothing = nothing.or_else(|| {
        alone.then(|| "those who are there are left alone, as the file of --config says".to_owned())
    });
    let mut notes = here::refusals(&refused);
    notes.extend(source.sheet().beside.map(str::to_owned));
    Looked { machine, source, source_notes, wishes, facts, nothing, notes, warnings, settings }
}

/// Looks at the processes that were named, and what to exit with.
pub(super) fn look(args: &Args) -> Result<(Looked, u8)> {
    let length = if args.whom.command.is_empty() { Some(args.span()) } else { args.length };
    let config = Config::read(args.config.as_deref(), &args.means.root)?;
    let task = Task {
        whom: &args.whom,
        means: &args.means,
        file: args.machine.as_deref(),
        length,
        config: &config.file,
        begin: None,
    };
    let recording = args.record.as_deref().map(Recording::create).transpose()?;
    let mut saying = Saying {
        said: Said::default(),
        recorded: recording.map(|r| (r, &config)),
        orders: args.orders.is_some(),
        length,
        facts: None,
        failed: None,
    };
    let Done { here, warnings, code, .. } = work(&task, &mut saying)?;
    if let Some(e) = saying.failed {
        return Err(e);
    }
    if let Some((recording, _)) = &saying.recorded {
        eprintln!("homenode: {}", recording.finish(&warnings)?);
    }
    let facts = saying.facts.unwrap_or_default();
    let Here { found, source, source_notes, nothing, .. } = here;
    let (machine, settings) = (found.machine, config.file.settings);
    let sight = Sight { machine, settings, source, source_notes, nothing, facts, warnings };
    Ok((looked(sight, saying.said), code))
}
