//! The words by which both sides name memory: whose it is, and which stretch of it.
//!
//! ```text
//! Who    7@100      the process of PID 7 that started 100 ticks after boot
//! Span   [16,20)    its pages 16 to 19, mapped or not
//! ```
//!
//! What is seen and what is ordered are told in these words; neither has to know the
//! other for them.

use crate::units::Pages;
use std::collections::BTreeMap;
use std::fmt;

/// A process: its PID and when it started, so that a reused PID is another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// The PID (of the thread group).
    pub pid: u32,
    /// Its start after boot in clock ticks of 10 ms, as field 22 of `/proc/PID/stat`.
    pub start: u64,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.start)
    }
}

/// A stretch of an address space in page numbers: `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First page number.
    pub start: u64,
    /// One past the last page number; above `start`.
    pub end: u64,
}

impl Span {
    /// A whole address space: what [`super::seen::Seen::Resident`] of a census names.
    pub const WHOLE: Self = Self { start: 0, end: 1 << 52 };
    /// Its pages, mapped or not.
    pub const fn pages(self) -> Pages {
        Pages(self.end.saturating_sub(self.start))
    }
    /// Whether the page is in it.
    pub const fn holds(self, vpn: u64) -> bool {
        self.start <= vpn && vpn < self.end
    }
}

/// Whether a span overlaps one of those, kept as end by start.
pub(crate) fn overlaps(spans: &BTreeMap<u64, u64>, span: Span) -> bool {
    spans.range(..span.end).next_back().is_some_and(|(_, end)| *end > span.start)
}
