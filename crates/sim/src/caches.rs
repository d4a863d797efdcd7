//! The caches that a task warms and leaves behind, as sizes and times.
//!
//! Source: specs/workloads.md#footprint.

use homenode_core::costs::Cost;
use homenode_core::topology::Hardware;

/// The caches that a task can leave behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caches {
    /// Bytes of the last level, its line, and what a line takes from there, in picoseconds.
    pub(crate) last: u64,
    line: u64,
    pub(crate) from_last: u64,
    /// Bytes of the level below it, which a core has for itself.
    pub(crate) own: u64,
    /// How many lines come at once, in thousandths.
    parallelism: u64,
}

impl Caches {
    pub(crate) fn of(machine: &Hardware) -> Self {
        let Some((last, below)) = machine.caches.split_last() else { return Self::default() };
        Self {
            last: last.size.0,
            line: u64::from(last.line),
            from_last: last.latency.value,
            own: below.last().map_or(0, |c| c.size.0),
            parallelism: machine.costs.get(Cost::MemoryParallelism).max(1000),
        }
    }
    /// Picoseconds until so many bytes are there again, at a latency for each line.
    pub(crate) fn fill(&self, bytes: u64, latency: u64) -> u64 {
        let lines = bytes.div_ceil(self.line.max(1));
        let time =
            u128::from(lines) * u128::from(latency) * 1000 / u128::from(self.parallelism.max(1000));
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

/// What a task uses over and over, and where it is warm.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Footprint {
    /// Bytes that it uses now; 0: none that count.
    pub(crate) bytes: u64,
    /// Place of the CPU that it computed on last, and of the node where its memory is.
    pub(crate) warm: Option<(usize, usize)>,
}
