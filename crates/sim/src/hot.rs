//! The hot loop: accesses that raise no event.
//!
//! An operation is a page number with the direction in the top bit. The loop
//! loads the page's word, tests state, sharing and (for a write) the write bit in
//! one comparison, sets `young` where it is clear, and adds the cost of the
//! page's zone and direction from a table of 32 entries. Everything else is an
//! event and ends the batch: a first touch, a hint fault, a write to a read-only
//! page, a shared frame, the end of the quantum.

use crate::page::{PRESENT, SHARED, STATE, WRITE_SHIFT, YOUNG, ZONE, ZONE_SHIFT, ZONES_MAX};
use crate::table::prefetch;

/// The direction in an operation: set for a write.
pub const OP_WRITE: u32 = 1 << 31;
/// The page number in an operation.
pub const OP_PAGE: u32 = OP_WRITE - 1;

/// Zone and direction: `zone * 2 + write`.
pub(crate) const KINDS: usize = ZONES_MAX * 2;

/// What an access of each kind costs a task at this moment, in picoseconds, with
/// the computing between two accesses.
pub(crate) type CostTable = [u64; KINDS];

/// Counts of accesses by kind. Four copies that take turns: one counter in a
/// row of accesses to one zone would wait for its own last store.
#[derive(Clone, Default)]
pub(crate) struct Counts([[u32; KINDS]; 4]);

impl Counts {
    /// Adds the sums to `total` and begins anew.
    pub(crate) fn drain_into(&mut self, total: &mut [u64; KINDS]) {
        for k in 0..KINDS {
            total[k] += self.0.iter().map(|c| u64::from(c[k])).sum::<u64>();
        }
        *self = Self::default();
    }
    /// Counts one access beside the loop.
    pub(crate) fn add(&mut self, kind: usize) {
        self.0[0][kind] += 1;
    }
}

/// How far ahead of the access its word is fetched. Beyond 16 nothing is gained
/// at 1 GiB to 1 TiB; below 8 the largest tables lose.
const AHEAD: usize = 24;

/// Runs operations from `ops` until one raises an event or `*clock` reaches `end`.
/// Returns how many were done; the one that raised the event is not among them.
#[inline]
pub(crate) fn run(
    ops: &[u32],
    words: &mut [u32],
    cost: &CostTable,
    counts: &mut Counts,
    clock: &mut u64,
    end: u64,
) -> usize {
    let mut t = *clock;
    let mut done = 0;
    while done < ops.len() && t < end {
        let op = ops[done];
        if let Some(&next) = ops.get(done + AHEAD) {
            prefetch(words, (next & OP_PAGE) as usize);
        }
        let write = op >> 31;
        let word = &mut words[(op & OP_PAGE) as usize];
        let w = *word;
        // Present, not shared, and for a write writable: all in one test.
        let must = (STATE | SHARED) | write << WRITE_SHIFT;
        if (w ^ (PRESENT | 1 << WRITE_SHIFT)) & must != 0 {
            break;
        }
        // A branch, not a store each time: clean lines need no write-back.
        if w & YOUNG == 0 {
            *word = w | YOUNG;
        }
        let kind = (((w & ZONE) >> (ZONE_SHIFT - 1)) | write) as usize;
        t += cost[kind];
        counts.0[done & 3][kind] += 1;
        done += 1;
    }
    *clock = t;
    done
}
