//! What merging saves: figures of an estimate, for whoever makes it and whoever shows it.

use std::ops::AddAssign;

/// What ksmd's counters would reach, and what it would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saving {
    /// KSM pages.
    pub pages_shared: u64,
    /// Mappings of them beyond the first of each.
    pub pages_sharing: u64,
    /// Frames that would become free, in bytes, beyond what is merged or shared
    /// by forks already.
    pub saved_bytes: u64,
}

impl AddAssign for Saving {
    fn add_assign(&mut self, o: Self) {
        self.pages_shared += o.pages_shared;
        self.pages_sharing += o.pages_sharing;
        self.saved_bytes += o.saved_bytes;
    }
}

/// A node's part, with a tree of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSaving {
    /// The node.
    pub node: u16,
    /// Mappings of its frames, volatile ones left out.
    pub pages_scanned: u64,
    /// What merging on this node alone would save.
    pub saving: Saving,
}

/// How a process ended in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited.
    Exited,
    /// It may not be read any longer: an exec made it another user's.
    Refused,
}

/// A process' part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSaving {
    /// Its number.
    pub pid: u32,
    /// A guest's domain, or the command's name.
    pub name: String,
    /// Anonymous pages in memory.
    pub pages_scanned: u64,
    /// Pages of zeros.
    pub zero: u64,
    /// Pages that changed between the looks.
    pub volatile: u64,
    /// Pages that would become or are KSM pages, or the page of zeros.
    pub mergeable: u64,
    /// Its part of what merging across nodes saves: of each content as large a
    /// part as it has of the mappings. Parts add up to the whole.
    pub saved_bytes: u64,
    /// Set where it could not be read to its end.
    pub ended: Option<Ended>,
}
