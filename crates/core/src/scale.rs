//! A small machine that stands for a large one.
//!
//! One idea: *rates* stay as they are, *amounts* shrink by the factor. With fewer pages and the
//! same accesses, faults, scans and moves a second, each page meets its next scan earlier by the
//! factor: a machine 64 times smaller lives 64 times faster. So times that the kernel waits *for*
//! something to happen to memory shrink with it. A page then sees as many accesses between two
//! scans as on the large machine.
//!
//! | amount of the kernel's, divided          | rate or ratio, kept                        |
//! |------------------------------------------|--------------------------------------------|
//! | `min_free_kbytes` of the large machine,  | `watermark_scale_factor`, `swappiness`     |
//! | with what huge pages raise it to         |                                            |
//! | the scan's delay and periods, the hot    | bytes scanned a second (2560 MB/s, which   |
//! | threshold                                | is the kernel's most), the limit of        |
//! |                                          | promotion in MB/s                          |
//! |                                          | latency, bandwidth, the cost of each       |
//! |                                          | access, fault and move; khugepaged's pages |
//! |                                          | a second                                   |
//!
//! The scan's amount per period is 256 MB every 100 ms at full size; in one tick as many bytes a
//! second are 10 MB, so that is what a scan takes: a larger one would mark a good part of a small
//! map at once, which no large machine sees.
//!
//! What can't be scaled: a huge page (2 MiB), the tick of 4 ms, kswapd's nap of 100 ms, its
//! batches of 32 pages, what a movable zone keeps as its least (32 to 128 pages), the 64 pages of
//! MGLRU's early end, the 1 GiB of free memory at which a node takes everything, the window of
//! 0.1 ms in which load is measured. A policy outside the kernel has its own periods.
//!
//! Worked example, factor 64: nodes of 256 MiB stand for nodes of 16 GiB. One of them keeps 22528 kB
//! there (huge pages raise it to that), 352 kB here; the kernel would compute 13104 kB for so
//! small a machine, which is 37 times the share.
//!
//! Source: docs/decisions/0028-small-machines.md.

/// How many times larger than the simulated machine the one is that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(u64);

impl Default for Scale {
    fn default() -> Self {
        Self::AS_IS
    }
}

impl Scale {
    /// It stands for itself.
    pub const AS_IS: Self = Self(1);
    /// The largest factor: beyond it a fast node has so little memory that it means nothing.
    pub const MOST: u64 = 4096;
    /// Megabytes that a scan takes in one tick for the kernel's 2560 MB a second.
    pub(crate) const SCAN_SIZE_MB: u32 = 10;

    /// 1 to [`Scale::MOST`].
    pub const fn new(factor: u64) -> Option<Self> {
        if factor >= 1 && factor <= Self::MOST { Some(Self(factor)) } else { None }
    }
    /// The factor, at least 1.
    pub const fn factor(self) -> u64 {
        self.0
    }
    /// Whether the machine stands for itself.
    pub const fn is_as_is(self) -> bool {
        self.0 == 1
    }
    /// What is left of an amount of the large machine, at least 1.
    pub const fn part(self, amount: u64) -> u64 {
        let part = amount / self.0;
        if part == 0 { 1 } else { part }
    }
    /// The amount of the large machine.
    pub const fn whole(self, part: u64) -> u64 {
        part.saturating_mul(self.0)
    }
}
