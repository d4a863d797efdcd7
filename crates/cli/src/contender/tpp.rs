//! TPP, the policy of Maruf and others (ASPLOS'23), by its patches on 5.13: hint faults ask
//! the lists, not the clock, and kswapd keeps more free than allocations need.
//!
//! The patches batch activations by 15 pages a CPU; here the second fault activates at once.
//! Files' pages start on the CPU's node, as without the paper's optional allocation by type.

use homenode_core::hooks::{Hooks, LinuxRules, SlowFault, SlowVerdict};
use homenode_core::kernel::KernelVersion;
use homenode_core::numa::filter::{Verdict, Why};
use homenode_core::scenario::Margin;
use homenode_core::tiering::watermarks::{WakeFacts, ZoneMarks};
use homenode_core::topology::Hardware;
use homenode_core::units::Pages;

/// `demote_scale_factor`, in hundredths of a zone, as the patches set it.
const DEMOTE_SCALE_FACTOR: u64 = 2;

pub(super) struct Tpp;

/// kswapd's aim on a node that demotes.
fn demote_mark(marks: &ZoneMarks) -> Pages {
    Pages((marks.managed.0 * DEMOTE_SCALE_FACTOR / 100).max(2 * marks.high.0))
}

impl Hooks for Tpp {
    fn hint_fault(&mut self, f: &mut SlowFault<'_>) -> SlowVerdict {
        let verdict = if f.active {
            Verdict::Move { to: f.to, why: Why::Hot }
        } else {
            Verdict::Stay { why: Why::Cold }
        };
        SlowVerdict { verdict, accessed: !f.active }
    }
    fn aim(&self, marks: &ZoneMarks, margin: Margin, wake: WakeFacts) -> Pages {
        if wake.can_demote { demote_mark(marks) } else { LinuxRules.aim(marks, margin, wake) }
    }
    fn wakes_kswapd(&mut self, free: Pages, marks: &ZoneMarks, can_demote: bool) -> bool {
        can_demote && !marks.is_above(free, demote_mark(marks))
    }
}

pub(super) fn rules(_: &Hardware, _: KernelVersion) -> Box<dyn Hooks> {
    Box::new(Tpp)
}
