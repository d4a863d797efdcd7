//! The fields of the matrix of sources: what is decided, and how well a source answers.
//!
//! Source: specs/sources.md#choice.

use std::fmt;

crate::named! {
    /// Something that the engine decides, or has to know for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Decision {
        /// Begin to sample a process.
        Sample => "sample",
        /// How hot memory is.
        Heat => "heat",
        /// What is cold on a fast node.
        Cold => "cold",
        /// Which node accesses it.
        Accessor => "accessor",
        /// Where it is.
        Place => "place",
        /// Whether a node has room.
        Room => "room",
        /// Benefit against cost.
        Benefit => "benefit",
    }
}

impl Decision {
    /// For people, without marks of any text format.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sample => "begin to sample a process (its CPU time, /proc)",
            Self::Heat => "how hot memory is",
            Self::Cold => "what is cold on a fast node",
            Self::Accessor => "which node accesses it",
            Self::Place => "where it is (move_pages asked, Look)",
            Self::Room => "whether a node has room (/proc/zoneinfo)",
            Self::Benefit => "benefit against cost",
        }
    }
}

crate::named! {
    /// How well a source answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Quality {
        /// Not at all: the verdict is `Unknown`.
        Unavailable => "unavailable",
        /// With a known weakness.
        Degraded => "degraded",
        /// As the kernel itself knows it.
        Exact => "exact",
    }
}

/// One field of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// How well.
    pub quality: Quality,
    /// What to know about it; may be empty.
    pub note: &'static str,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.quality, self.note) {
            (q, "") => f.write_str(q.name()),
            (Quality::Exact, note) => write!(f, "exact {note}"),
            (q, note) => write!(f, "{}: {note}", q.name()),
        }
    }
}

pub(super) const fn exact(note: &'static str) -> Cell {
    Cell { quality: Quality::Exact, note }
}
pub(super) const fn degraded(note: &'static str) -> Cell {
    Cell { quality: Quality::Degraded, note }
}
