//! What a machine can tell the engine.
//!
//! Every variant is something that some live source can show; a simulated machine
//! shows no more than that. Times are the machine's clock in picoseconds since boot.

use super::order::{Fails, OrderId};
pub use super::source::{Shows, Source};
pub use super::span::{Span, Who};
use crate::offcore::Offcore;
use crate::tiering::watermarks::ZoneMarks;
use crate::units::{NodeId, Pages, Picos};

/// A zone of a node as `/proc/zoneinfo` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSeen {
    /// Free pages.
    pub free: Pages,
    /// Its marks.
    pub marks: ZoneMarks,
}

/// Something that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A process in reach of the engine, told once in each look at it.
    Task {
        /// Which.
        who: Who,
        /// Processor time of all its threads so far.
        ran: Picos,
        /// Node of the CPUs on which its threads ran last, if all are of one node;
        /// `None` where the source can't tell or they are spread.
        node: Option<NodeId>,
        /// Resident pages.
        resident: Pages,
    },
    /// The process exited, or its PID now means another one.
    Gone {
        /// Which.
        who: Who,
    },
    /// DAMON: a region with the same access frequency all over.
    Region {
        /// Whose.
        who: Who,
        /// Where.
        span: Span,
        /// Checks in which the region's sampled page had been accessed.
        accessed: u32,
        /// Checks made in the aggregation; 0 is none at all.
        checks: u32,
        /// Time between two checks.
        every: Picos,
        /// For how long it has been so.
        age: Picos,
    },
    /// A hint fault.
    Fault {
        /// Whose.
        who: Who,
        /// The page.
        vpn: u64,
        /// Node of the CPU.
        from: NodeId,
        /// Node of the page at the fault.
        on: NodeId,
        /// Time since the page had been made inaccessible, at most: a source whose clock is
        /// coarse adds its step. `None` where it isn't known.
        after: Option<Picos>,
    },
    /// One in `period` memory accesses.
    Sample {
        /// Whose.
        who: Who,
        /// The page.
        vpn: u64,
        /// Node of the CPU.
        from: NodeId,
        /// For how many accesses it stands.
        period: u64,
    },
    /// What the CPUs' counters showed of a process's loads since they were told last: of a policy
    /// that [asks for it](super::Policy::needs_overlap), on a machine whose CPUs have them.
    Loads {
        /// Whose: all threads together.
        who: Who,
        /// What was counted.
        counted: Offcore,
    },
    /// Where the pages of a span are: one report per node that has some, or one with
    /// no pages for a span without any.
    Resident {
        /// Whose.
        who: Who,
        /// The span that was looked at.
        span: Span,
        /// A node.
        on: NodeId,
        /// The span's pages there.
        pages: Pages,
    },
    /// Memory that huge pages of 2 MiB map, as a census finds it, told before its `Done`: a stretch
    /// of one or several. Of a policy that [asks for it](super::Policy::needs_huge), on a machine that
    /// can tell. `PAGEMAP_SCAN` shows it (`PAGE_IS_HUGE`, Linux 6.7).
    Huge {
        /// Whose.
        who: Who,
        /// Where; its borders are multiples of 512.
        span: Span,
    },
    /// A node's memory.
    Node {
        /// Which.
        node: NodeId,
        /// Its zones; none for a node without memory.
        zones: Vec<ZoneSeen>,
        /// Latency under load over the unloaded one, in thousandths; `None` where
        /// nothing measures it.
        load: Option<u32>,
        /// How many of its CPUs were idle lately, in thousandths of a CPU; `None` where it has
        /// none, or nothing tells it.
        idle: Option<u32>,
    },
    /// An order is finished, wholly or in part.
    Done {
        /// Which.
        order: OrderId,
        /// Pages that were tried; of [`super::order::Act::Affine`] threads, here and below.
        tried: Pages,
        /// Pages that are where they were ordered to; of [`super::order::Act::Split`] those that were
        /// of a huge page and are base pages now.
        moved: Pages,
        /// Why the others are not; they add up to `tried - moved`.
        fails: Fails,
        /// Processor time that carrying it out took.
        took: Picos,
    },
    /// Events that the source could not deliver.
    Lost {
        /// How many at least.
        events: u64,
    },
    /// The source has told nothing since then.
    Stale {
        /// Its last word.
        since: Picos,
    },
}
