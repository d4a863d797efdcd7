//! How long a period is: its limits, and how faults tune it.
//!
//! The address space is thought of as windows of `scan_size_mb`; each is to be
//! scanned once in a period between `scan_period_min_ms` and `_max_ms`, so that a
//! large process has shorter ones.
//!
//! Worked example: 1 GiB resident, size 256 MB: 4 windows; 1000/4 = 250 ms to
//! 60000/4 = 15000 ms.

use crate::kernel::KernelVersion;
use crate::knobs::Knobs;
use crate::units::{NodeId, Pages};

/// At most this many MB are scanned a second.
pub const MAX_SCAN_MB_PER_S: u32 = 2560;

/// Windows of `size_mb` in `rss`. Rounds up where the size is a power of two,
/// else as the kernel's bit arithmetic does. 0 pages count as one window; so
/// does everything with `size_mb` 0, where the kernel divides by zero.
///
/// Source: specs/numa.md#periods.
#[inline]
pub const fn nr_windows(rss: Pages, size_mb: u32) -> u64 {
    if size_mb == 0 {
        return 1;
    }
    let s = (size_mb as u64) << 8;
    let p = if rss.0 == 0 { s } else { rss.0 };
    (((p - 1) | (s - 1)) + 1) / s
}

/// The sums of a NUMA group that scale periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupScale {
    /// Members.
    pub refs: u32,
    /// Its memory faults over all nodes, shared ones.
    pub shared: u64,
    /// Its memory faults over all nodes, private ones.
    pub private: u64,
}

impl GroupScale {
    /// `period_ms` scaled, never below itself.
    fn apply(self, period_ms: u64) -> u64 {
        let scaled = u128::from(period_ms) * u128::from(self.refs) * (u128::from(self.shared) + 1)
            / (u128::from(self.private) + u128::from(self.shared) + 1);
        period_ms.max(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// Limits of a task's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shortest, in ms.
    pub min_ms: u32,
    /// Longest, in ms; not below `min_ms`.
    pub max_ms: u32,
    /// With which sampling starts, in ms; not below `min_ms`.
    pub start_ms: u32,
}

impl Limits {
    /// The limits of a task with `rss` resident pages.
    ///
    /// Source: specs/numa.md#periods; 3.8 takes the knobs as they are, 4.5 knows no groups here.
    pub fn new(knobs: &Knobs, rss: Pages, group: Option<GroupScale>) -> Self {
        if knobs.version == KernelVersion::V3_8 {
            let min_ms = knobs.scan_period_min_ms;
            return Self { min_ms, max_ms: knobs.scan_period_max_ms.max(min_ms), start_ms: min_ms };
        }
        let windows = nr_windows(rss, knobs.scan_size_mb).max(1);
        let bursts = match knobs.scan_size_mb {
            0 => 1,
            size => (MAX_SCAN_MB_PER_S / size).max(1),
        };
        let floor = u64::from(1000 / bursts);
        let min = floor.max(u64::from(knobs.scan_period_min_ms) / windows);
        let group = group.filter(|_| knobs.version > KernelVersion::V4_5);
        let scale = |p: u64| group.map_or(p, |g| g.apply(p));
        let max = min.max(scale(u64::from(knobs.scan_period_max_ms) / windows));
        let narrow = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        Self { min_ms: narrow(min), max_ms: narrow(max), start_ms: narrow(scale(min)) }
    }
}

/// Fault pages since the last adaptation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// On the accessing CPU's node.
    pub local: u64,
    /// On another.
    pub remote: u64,
    /// Of migrations that failed.
    pub failed: u64,
    /// From the fault buffers: shared.
    pub shared: u64,
    /// From the fault buffers: private.
    pub private: u64,
}

/// A new period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapted {
    /// In ms.
    pub period_ms: u32,
    /// The gate of the address space moves to now + the new period.
    pub push_next_scan: bool,
    /// The locality counters start again at 0 (6.1: not when doubling).
    pub clear_locality: bool,
}

/// Adapts the period once a new scan sequence is seen.
///
/// Surprises of the kernel that are kept: purely private, purely remote traffic
/// doubles the period, and privacy is looked at before locality.
///
/// Source: specs/numa.md#adaptive-period.
pub fn adapt(period_ms: u32, limits: Limits, s: Since, version: KernelVersion) -> Adapted {
    if s.local + s.shared == 0 || s.failed != 0 {
        return Adapted {
            period_ms: limits.max_ms.min(period_ms.saturating_mul(2)),
            push_next_scan: true,
            clear_locality: version > KernelVersion::V6_1,
        };
    }
    let tenths = |part: u64, rest: u64| match part + rest {
        // The kernel would divide by zero; its own buffers never disagree so far.
        0 => 0,
        sum => (10 * part / sum) as i64,
    };
    let slot = i64::from(period_ms.div_ceil(10));
    let lr = tenths(s.local, s.remote);
    let ps = tenths(s.private, s.shared);
    let diff = if version == KernelVersion::V4_5 {
        // Locality alone; the more is shared, the less it helps to scan faster.
        match lr {
            7.. => (lr - 7).max(1) * slot,
            _ => {
                let private = (10 * s.private).div_ceil(s.private + s.shared + 1) as i64;
                -(7 - lr) * slot * private / 10
            }
        }
    } else if ps >= 7 {
        (ps - 7).max(1) * slot
    } else if lr >= 7 {
        (lr - 7).max(1) * slot
    } else {
        -(7 - lr.max(ps)) * slot
    };
    let next = (i64::from(period_ms) + diff)
        .clamp(i64::from(limits.min_ms), i64::from(limits.max_ms.max(limits.min_ms)));
    Adapted { period_ms: next as u32, push_next_scan: false, clear_locality: true }
}

/// Whether a task pulled from node `from` to `to` starts its period anew
/// ([`Limits::start_ms`]). Only for tasks with fault statistics while balancing
/// is on.
///
/// Source: specs/numa.md#adaptive-period.
#[inline]
pub fn restarts_after_move(seq: i32, from: NodeId, to: NodeId, preferred: Option<NodeId>) -> bool {
    if from == to {
        return false;
    }
    if seq == 0 {
        return true;
    }
    match preferred {
        Some(p) if p == to => false,
        Some(p) if p != from => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
