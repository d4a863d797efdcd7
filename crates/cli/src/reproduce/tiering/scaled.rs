//! The experiment at a fraction of its size.
//!
//! A run at full size would need a month. What of the kernel is scaled and what isn't stands in
//! [`homenode_core::scale`], for scenarios on small machines too. Here the rest of the experiment
//! shrinks, which is written down at full size:
//!
//! | amount, divided by the factor          | rate or ratio, kept                        |
//! |----------------------------------------|--------------------------------------------|
//! | memory of every zone of every node     | latency, bandwidth, cost of each operation |
//! | the map                                | threads, compute per access                |
//! | the run's time                         |                                            |
//!
//! Worked example, factor 64: node 0 has 1.5 GiB instead of 96; 300 s become 4.69 s;
//! `min_free_kbytes` is 67584 kB / 64 = 1056 kB, not the 11585 kB that the kernel
//! would compute for so small a machine, which would keep ten times the share free.

use homenode_core::scenario::{Again, Process, Step, Until};
use homenode_core::topology::Hardware;
use homenode_core::units::{Bytes, PAGE_SIZE, Pages, Picos};

/// The machine with a fraction of the memory in every zone, at least a page.
pub(in crate::reproduce) fn machine(full: &Hardware, factor: u64) -> Hardware {
    let mut m = full.clone();
    for zone in m.nodes.iter_mut().flat_map(|n| &mut n.zones) {
        zone.managed = Pages((zone.managed.0 / factor).max(1));
    }
    m
}

/// A process that starts, sleeps and accesses for a fraction of the time, with maps
/// of a fraction of the size, in whole pages.
pub(super) fn process(full: &Process, factor: u64) -> Process {
    let mut p = full.clone();
    p.start = Picos(p.start.0 / factor);
    for map in &mut p.maps {
        map.size = Bytes(Pages((map.size.0 / PAGE_SIZE / factor).max(1)).bytes().0);
    }
    for step in &mut p.steps {
        match step {
            Step::Access { until: Until::Time(t), .. }
            | Step::Repeat { until: Again::Until(t), .. }
            | Step::Sleep(t) => t.0 = (t.0 / factor).max(1),
            _ => {}
        }
    }
    p
}
