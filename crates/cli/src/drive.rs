//! An engine at work on a machine, step by step: what `advise` and `act` have in common.
//!
//! ```text
//! machine ◀─▶ engine        Advised: nothing is moved     Acting: it is
//!    │ deeds, each half second
//!    └─▶ onlooker           sums                          ledger, table
//! ```
//!
//! It knows no machine: the simulated one is advised by the same code.

use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::seen::Span;
use homenode_core::units::Picos;
use homenode_machine::{Deed, Deeds, Machine, ObserveError, drive};

/// Whoever wants to stop is asked so often.
const STEP: Picos = Picos::from_ms(500);

/// Who is shown what becomes of the engine's orders.
pub(crate) trait Onlooker<M> {
    /// A step is over. Returns whether to go on.
    ///
    /// * `deeds` – what became of moves in it.
    fn step(&mut self, machine: &M, engine: &Engine, deeds: Vec<Deed>) -> bool;
}

/// An engine for a machine.
pub(crate) fn engine(machine: &impl Machine, settings: Settings, version: KernelVersion) -> Engine {
    let caps = machine.caps();
    Engine::new(settings, machine.topology(), version, caps.source, &caps.lacks, caps.most_pages)
        .bringing_threads(caps.affinity)
}

/// Lets an engine drive a machine for some time.
///
/// * `length` – how long; without it until somebody wants to stop, or the machine does.
/// * `stop` – whether somebody wants to stop.
///
/// Returns for how long it was.
///
/// # Errors
/// The source broke. What was done until then the onlooker has seen.
pub(crate) fn run<M: Deeds>(
    machine: &mut M,
    engine: &mut Engine,
    length: Option<Picos>,
    onlooker: &mut dyn Onlooker<M>,
    stop: &mut dyn FnMut() -> bool,
) -> (Picos, Result<(), ObserveError>) {
    let begun = machine.now();
    let end = length.map_or(Picos(u64::MAX), |l| Picos(begun.0.saturating_add(l.0)));
    let mut result = Ok(());
    while machine.now() < end && !stop() {
        let before = machine.now();
        result = drive(machine, engine, end.min(before + STEP));
        let deeds = machine.take_deeds();
        let more = onlooker.step(machine, engine, deeds);
        // A machine that stands still has stopped.
        if result.is_err() || !more || machine.now() == before {
            break;
        }
    }
    (machine.now().saturating_sub(begun), result)
}

/// Mean heat of some spans: thousandths of accesses a page and second.
///
/// * `known` – stretches with their heat, by rising addresses.
pub(crate) fn mean_heat(known: &[(Span, u64)], spans: &[Span]) -> u128 {
    let (mut all, mut pages) = (0u128, 0u128);
    for s in spans {
        let first = known.partition_point(|(k, _)| k.end <= s.start);
        for (k, heat) in known[first..].iter().take_while(|(k, _)| k.start < s.end) {
            let n = u128::from(k.end.min(s.end) - k.start.max(s.start));
            all += n * u128::from(*heat);
            pages += n;
        }
    }
    all / pages.max(1)
}
