//! Loaded latency: a node that nears its bandwidth answers later.
//!
//! Once per window the bytes that a node served are held against what it could
//! have served; the latency of the next window is the unloaded one times
//!
//! ```text
//!               u                    u: share of the bandwidth used, smoothed
//! 1 + ──────────────────             over four windows, at most 0.95
//!      2 · (1 − u)
//! ```
//!
//! which is the mean time in an M/D/1 queue (one server, constant service time;
//! any textbook on queues). Half load gives 1.5, 0.8 gives 3, 0.95 gives 10.5,
//! which is also about where published latency curves of DRAM and expanders turn
//! up. Nothing here is fitted to a table that homenode reproduces.
//!
//! Source: specs/load.md#latency.

/// How long a window is, in picoseconds.
pub(crate) const WINDOW: u64 = 100_000_000;
/// Bytes of a line, the unit of what an access moves.
pub(crate) const LINE: u64 = 64;
/// Such lines in a page.
pub(crate) const PAGE_LINES: u64 = homenode_core::units::PAGE_SIZE / LINE;

/// The load of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Bandwidth in MB/s.
    read_mbps: u64,
    write_mbps: u64,
    /// Bytes that the medium reads or writes at once.
    grain: u64,
    /// Bytes in this window.
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Smoothed use in 2^-16.
    used: u64,
    /// What follows from it: see [`Load::factor`].
    over: u64,
    /// Bytes over all time.
    pub(crate) read_total: u64,
    pub(crate) written_total: u64,
}

const ONE: u64 = 1 << 16;
const MOST: u64 = ONE * 95 / 100;

/// The share of a bandwidth that so many bytes in `span` picoseconds are, in 2^-16.
fn share(bytes: u64, mbps: u64, span: u64) -> u64 {
    // MB/s × ps = 10^-6 bytes: a node could have moved mbps × span / 10^6 bytes.
    let served = bytes.checked_mul(ONE * 1_000_000);
    match (served, mbps.checked_mul(span.max(1))) {
        // As it nearly always is; wide division costs ten times as much.
        (Some(served), Some(could)) => served / could,
        _ => {
            (u128::from(bytes) * u128::from(ONE) * 1_000_000
                / (u128::from(mbps) * u128::from(span.max(1)))) as u64
        }
    }
}

/// By how much latencies grow at a use of `u`, in 2^-16 of themselves.
fn over(u: u64) -> u64 {
    let u = u.min(MOST);
    u * ONE / (2 * (ONE - u))
}

impl Load {
    /// * `grain` – bytes that the medium reads or writes at once.
    pub(crate) fn new(read_mbps: u64, write_mbps: u64, grain: u64) -> Self {
        Self {
            read_mbps: read_mbps.max(1),
            write_mbps: write_mbps.max(1),
            grain: grain.max(LINE),
            ..Self::default()
        }
    }
    /// Grains in a page: as many accesses to one page, close in time, reach all of it.
    pub(crate) fn grains_in_page(&self) -> u64 {
        (PAGE_LINES * LINE).div_ceil(self.grain)
    }
    /// Grains that were read and written for the cores. What is written was read first,
    /// into a cache, and goes back later; where that is only a `part` of a grain, the
    /// medium reads once more what it puts the line into.
    ///
    /// Source: specs/load.md#granularity.
    #[inline]
    pub(crate) fn access(&mut self, reads: u64, writes: u64, part: u64) {
        let again = if self.grain > LINE { part } else { 0 };
        self.read += (reads + writes + again) * self.grain;
        self.written += writes * self.grain;
    }
    /// Ends a window that was `span` picoseconds long.
    pub(crate) fn close(&mut self, span: u64) {
        let now =
            share(self.read, self.read_mbps, span) + share(self.written, self.write_mbps, span);
        self.used = (3 * self.used + now.min(4 * ONE)) / 4;
        self.over = over(self.used);
        self.read_total += self.read;
        self.written_total += self.written;
        self.read = 0;
        self.written = 0;
    }
    /// The factor that a task alone would put on latencies with one line each `ps`
    /// picoseconds, written back or only read; lines in no order move whole grains.
    pub(crate) fn alone(&self, ps: u64, write: bool, random: bool) -> u64 {
        let mut task = Self::new(self.read_mbps, self.write_mbps, LINE);
        if random {
            task.grain = self.grain;
        }
        let write = u64::from(write);
        task.access(1 - write, write, write);
        let read = share(task.read, task.read_mbps, ps);
        ONE + over(read + share(task.written, task.write_mbps, ps))
    }
    /// The factor on the unloaded latency, in 2^-16.
    #[inline]
    pub(crate) fn factor(&self) -> u64 {
        ONE + self.over
    }
    /// The same in thousandths.
    pub(crate) fn permille(&self) -> u32 {
        ((self.factor() * 1000) >> 16) as u32
    }
    /// Picoseconds under load of what takes `ps` unloaded.
    pub(crate) fn apply(&self, ps: u64) -> u64 {
        let factor = self.factor();
        match ps.checked_mul(factor) {
            Some(loaded) => loaded >> 16,
            None => ((u128::from(ps) * u128::from(factor)) >> 16) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_costs_the_mediums_grain() {
        // The example of specs/load.md#granularity.
        for (grain, read, written) in [(64, 640, 128), (256, 3072, 512), (100, 1200, 200)] {
            let mut l = Load::new(1, 1, grain);
            l.access(8, 2, 2);
            assert_eq!((l.read, l.written), (read, written), "{grain}");
        }
        // Whole grains need no second reading: a page of 16, streamed.
        let mut l = Load::new(1, 1, 256);
        l.access(0, 16, 0);
        assert_eq!((l.read, l.written), (4096, 4096));
        let grains = |grain| Load::new(1, 1, grain).grains_in_page();
        assert_eq!((grains(64), grains(256), grains(4096), grains(300)), (64, 16, 1, 14));
    }

    #[test]
    fn half_load_takes_half_longer_and_full_load_stays_finite() {
        let mut l = Load::new(10_000, 10_000, LINE);
        for _ in 0..64 {
            l.read = 500_000; // 5 GB/s for 100 µs
            l.close(WINDOW);
        }
        let half = l.apply(100_000);
        assert!((149_000..=150_100).contains(&half), "{half}");
        for _ in 0..64 {
            l.read = 5_000_000;
            l.close(WINDOW);
        }
        assert!((1_040_000..=1_060_000).contains(&l.apply(100_000)));
        for _ in 0..64 {
            l.close(WINDOW);
        }
        assert_eq!(l.apply(100_000), 100_000);
    }
}
