//! The loop between a policy and a machine.

use crate::{Machine, ObserveError};
use homenode_core::policy::Policy;
use homenode_core::policy::order::{Fails, Order};
use homenode_core::policy::seen::Seen;
use homenode_core::units::{Pages, Picos};

/// How long is waited where the policy names no time.
const PATIENCE: Picos = Picos::from_secs(1);

/// Lets a policy run a machine until its clock reaches `until` or it stops.
///
/// An order that the machine does not take is reported to the policy as done with
/// nothing tried, so that each order that it hands out has one report.
///
/// # Errors
/// [`ObserveError::Source`]: the source broke. A machine that stops is no error.
pub fn drive(
    machine: &mut (impl Machine + ?Sized),
    policy: &mut (impl Policy + ?Sized),
    until: Picos,
) -> Result<(), ObserveError> {
    let mut seen = Vec::new();
    let mut decided = policy.ledger().deciding;
    if policy.needs_overlap() {
        machine.count_overlap();
    }
    if policy.needs_huge() {
        machine.tell_huge();
    }
    while machine.now() < until {
        let next = policy.timeout().unwrap_or(machine.now() + PATIENCE).min(until);
        seen.clear();
        let waited = machine.wait(next, &mut seen);
        let now = machine.now();
        policy.handle(now, &seen);
        let before = std::mem::replace(&mut decided, policy.ledger().deciding);
        machine.thinks(decided.saturating_sub(before));
        match waited {
            Ok(()) => {}
            Err(ObserveError::Ended) => return Ok(()),
            Err(e) => return Err(e),
        }
        // Told after all of them: a policy that would try again at once finds the
        // machine as it was.
        let mut refused = Vec::new();
        while let Some(order) = policy.poll() {
            if machine.submit(&order).is_err() {
                refused.push(not_tried(&order));
            }
        }
        if !refused.is_empty() {
            policy.handle(now, &refused);
        }
        if let Some(period) = policy.period() {
            machine.sample_every(period);
        }
    }
    Ok(())
}

fn not_tried(order: &Order) -> Seen {
    Seen::Done {
        order: order.id,
        tried: Pages::ZERO,
        moved: Pages::ZERO,
        fails: Fails::default(),
        took: Picos::ZERO,
    }
}
