//! What the engine wants done, why, and what it expects from it.

use super::span::{Span, Who};
use crate::knobs::Knob;
use crate::units::{NodeId, Pages, Picos};
use std::fmt;

/// Number of an order, rising from 1 in each engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number; [`super::seen::Seen::Done`] names it.
    pub id: OrderId,
    /// What.
    pub act: Act,
    /// What it is expected to bring and to cost.
    pub expect: Benefit,
    /// The reason.
    pub why: Reason,
}

/// What can be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Begin to sample a process. Changes no placement.
    Watch {
        /// Which.
        who: Who,
    },
    /// Stop sampling it.
    Unwatch {
        /// Which.
        who: Who,
    },
    /// Look what memory it has, and where that is; answered by
    /// [`super::seen::Seen::Resident`] before `Done`, by rising addresses: of each extent
    /// ([`super::extents`]) where the machine can tell pages apart, else of each mapping.
    /// Changes no placement.
    Census {
        /// Whose.
        who: Who,
    },
    /// Look where the pages of some spans are; answered by
    /// [`super::seen::Seen::Resident`] before `Done`. Changes no placement.
    Look {
        /// Whose.
        who: Who,
        /// Where; not empty, rising, not overlapping.
        spans: Vec<Span>,
    },
    /// Move the pages of some spans that are on `from` to `to`.
    Move {
        /// Whose.
        who: Who,
        /// Where; not empty, rising, not overlapping.
        spans: Vec<Span>,
        /// Only pages that are here.
        from: NodeId,
        /// Destination.
        to: NodeId,
    },
    /// Split the huge pages of some spans into base pages, which can then move one by one; one that
    /// is named in part is split as a whole. Changes no placement. Answered by
    /// [`super::seen::Seen::Done`]: tried are all pages named, moved those that were of a huge page
    /// that is split now, absent those that were of none.
    Split {
        /// Whose.
        who: Who,
        /// Where; not empty, rising, not overlapping.
        spans: Vec<Span>,
    },
    /// Bring its threads to a node's CPUs: for [`Self::AFFINE_FOR`] they may run nowhere else, then
    /// where they might before. Whoever is bound elsewhere stays.
    Affine {
        /// Which.
        who: Who,
        /// Where.
        node: NodeId,
    },
    /// Write a knob.
    SetKnob {
        /// Which.
        knob: Knob,
        /// The text.
        value: String,
    },
}

impl Act {
    /// For how long threads are kept on a node's CPUs that are brought there: long enough that
    /// those that sleep wake up there.
    pub const AFFINE_FOR: Picos = Picos::from_secs(1);

    /// The process that it is about, if it is about one.
    pub const fn who(&self) -> Option<Who> {
        match self {
            Self::Watch { who }
            | Self::Unwatch { who }
            | Self::Census { who }
            | Self::Look { who, .. }
            | Self::Move { who, .. }
            | Self::Split { who, .. }
            | Self::Affine { who, .. } => Some(*who),
            Self::SetKnob { .. } => None,
        }
    }
    /// The spans that it names; none where it names none.
    pub fn spans(&self) -> &[Span] {
        match self {
            Self::Look { spans, .. } | Self::Move { spans, .. } | Self::Split { spans, .. } => {
                spans
            }
            Self::Watch { .. }
            | Self::Unwatch { .. }
            | Self::Census { .. }
            | Self::Affine { .. }
            | Self::SetKnob { .. } => &[],
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, spans: &[Span]| {
            spans.iter().try_for_each(|s| write!(f, " [{},{})", s.start, s.end))
        };
        match self {
            Self::Watch { who } => write!(f, "watch {who}"),
            Self::Unwatch { who } => write!(f, "unwatch {who}"),
            Self::Census { who } => write!(f, "census {who}"),
            Self::Look { who, spans } => {
                write!(f, "look {who}")?;
                list(f, spans)
            }
            Self::Move { who, spans, from, to } => {
                write!(f, "move {who} {from}->{to}")?;
                list(f, spans)
            }
            Self::Split { who, spans } => {
                write!(f, "split {who}")?;
                list(f, spans)
            }
            Self::Affine { who, node } => write!(f, "affine {who} {node}"),
            Self::SetKnob { knob, value } => write!(f, "set {} {value}", knob.name()),
        }
    }
}

/// Its number, what, and why: one line of a log.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} ({})", self.id.0, self.act, self.why.name())
    }
}

/// Expected effect of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Benefit {
    /// Time that the process's accesses are expected to save within `over`.
    pub saves: Picos,
    /// Processor time that the order itself is expected to take.
    pub costs: Picos,
    /// For how long the pages are expected to stay as hot as they are.
    pub over: Picos,
}

crate::named! {
    /// Why something is ordered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Reason {
        /// The process has run for longer than the start delay.
        SlowStartOver => "slow_start_over",
        /// Its mappings are not known, or have changed.
        MemoryUnknown => "memory_unknown",
        /// Heat is known, placement is not.
        PlaceUnknown => "place_unknown",
        /// Hot on a slow node, and the fast one has room.
        Hot => "hot",
        /// Cold on a fast node that has to make room.
        MakeRoom => "make_room",
        /// Hot on a fast node that answers later, under its load, than the one below.
        SlowUnderLoad => "slow_under_load",
        /// Its threads run elsewhere.
        NearItsCpus => "near_its_cpus",
        /// Its memory is elsewhere.
        NearItsMemory => "near_its_memory",
        /// What a source needs.
        SourceNeeds => "source_needs",
        /// Few pages of a huge page are hot, so that it can't be placed as a whole.
        HeatInside => "heat_inside",
    }
}

crate::named! {
    /// What a decision would need to know and a source may lack.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Evidence {
        /// How often memory is accessed.
        Heat => "heat",
        /// The CPU, or its node, that accesses it.
        Cpu => "cpu",
        /// On which node it is.
        Place => "place",
        /// Free memory and marks of a node.
        Marks => "marks",
    }
}

/// Pages of an order that did not move, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fails {
    /// No room at the destination (`ENOMEM`).
    pub no_room: Pages,
    /// The page can't move now (`EBUSY`, `EAGAIN`).
    pub busy: Pages,
    /// Not there any more, or somewhere else than the order says (`ENOENT`).
    pub absent: Pages,
    /// Mapped by several processes, or forbidden (`EACCES`, `EPERM`).
    pub forbidden: Pages,
    /// The process is gone (`ESRCH`).
    pub gone: Pages,
}

impl Fails {
    /// All of them.
    pub fn all(&self) -> Pages {
        self.no_room + self.busy + self.absent + self.forbidden + self.gone
    }
}
