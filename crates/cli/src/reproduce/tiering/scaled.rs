//! The experiment at a fraction of its size.
//!
//! A run at full size would need a month. What is scaled and what isn't follows from
//! one idea: *rates* stay as they are, *amounts* shrink by the factor.
//!
//! | amount, divided by the factor          | rate or ratio, kept                        |
//! |----------------------------------------|--------------------------------------------|
//! | memory of every zone of every node     | latency, bandwidth, cost of each operation |
//! | the map                                | threads, compute per access                |
//! | `min_free_kbytes` of the full machine  | `watermark_scale_factor`                   |
//! | the run's time; the scan's delay and   | bytes scanned a second (2560 MB/s, which   |
//! | periods; the hot threshold             | is the kernel's most)                      |
//!
//! With fewer pages and the same accesses, faults, scans and migrations a second,
//! each page meets its next scan, and a map its last page, earlier by the factor: a
//! machine 64 times smaller lives 64 times faster. So times that are waited *for*
//! something to happen to the map shrink with it: then a page sees as many accesses
//! between two scans, and a run as many passes over the map, as at full size.
//!
//! What can't be scaled: the tick of 4 ms, kswapd's nap of 100 ms, its batches of 32
//! pages, the window of 0.1 ms in which load is measured. The scan's amount per
//! period is 256 MB every 100 ms at full size; in one tick as many bytes a second
//! are 10 MB, so that is what a scan takes here: a larger one would mark a good
//! part of a small map at once, which no full-size map sees.
//!
//! Worked example, factor 64: node 0 has 1.5 GiB instead of 96; 300 s become 4.69 s;
//! `min_free_kbytes` is 67584 kB / 64 = 1056 kB, not the 11585 kB that the kernel
//! would compute for so small a machine, which would keep ten times the share free.

use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::Knobs;
use homenode_core::scenario::{Again, Margin, Process, Step, Until};
use homenode_core::tiering::watermarks::MarkKnobs;
use homenode_core::topology::{Hardware, Zone};
use homenode_core::units::{Bytes, PAGE_SIZE, Pages, Picos};

/// Megabytes that a scan takes in one tick for the kernel's 2560 MB a second.
const SCAN_SIZE_MB: u64 = 10;

/// The machine with a fraction of the memory in every zone, at least a page.
pub(in crate::reproduce) fn machine(full: &Hardware, factor: u64) -> Hardware {
    let mut m = full.clone();
    for zone in m.nodes.iter_mut().flat_map(|n| &mut n.zones) {
        zone.managed = Pages((zone.managed.0 / factor).max(1));
    }
    m
}

/// Knobs that make amounts smaller: names and values, in the order of writing.
///
/// A factor of 1 leaves the kernel's own.
pub(super) fn knobs(
    full: &Hardware,
    factor: u64,
    version: KernelVersion,
    margin: Margin,
) -> Vec<(String, String)> {
    if factor == 1 {
        return Vec::new();
    }
    let zones: Vec<Zone> = full.nodes.iter().flat_map(|n| n.zones.iter().copied()).collect();
    let own = Knobs::new(version);
    let reserve = MarkKnobs::new(&own, margin, &zones).min_free_kbytes;
    let part = |value: u64| (value / factor).max(1);
    let mut all = vec![
        ("min_free_kbytes", part(reserve)),
        ("scan_size_mb", SCAN_SIZE_MB),
        ("scan_delay_ms", part(own.scan_delay_ms.into())),
        ("scan_period_min_ms", part(own.scan_period_min_ms.into())),
        ("scan_period_max_ms", part(own.scan_period_max_ms.into())),
    ];
    if version >= KernelVersion::V6_1 {
        all.push(("hot_threshold_ms", part(own.hot_threshold_ms.into())));
    }
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
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
