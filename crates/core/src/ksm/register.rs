//! Which memory may be merged: registration, fork and exec.

use crate::kernel::KernelVersion;

/// What a mapping is, as far as merging minds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// `MAP_SHARED`, also where it may only become so.
    pub shared: bool,
    /// Of page frames without management, or of a device's I/O memory.
    pub pfn_or_io: bool,
    /// May not grow by `mremap`.
    pub dont_expand: bool,
    /// Of hugetlbfs.
    pub hugetlb: bool,
    /// Holds managed pages and bare frames.
    pub mixed: bool,
    /// `MAP_DROPPABLE`.
    pub droppable: bool,
    /// Of persistent memory without page cache.
    pub dax: bool,
}

impl Mapping {
    /// Whether `MADV_MERGEABLE` (or `PR_SET_MEMORY_MERGE`) has an effect. Where
    /// it has none, the call succeeds all the same.
    ///
    /// Source: specs/ksm.md#registration.
    pub const fn may_merge(&self) -> bool {
        !(self.shared
            || self.pfn_or_io
            || self.dont_expand
            || self.hugetlb
            || self.mixed
            || self.droppable
            || self.dax)
    }
}

/// Whether the copy that unmerging makes may be written to at once: 6.12 asks for a copy
/// that is not written to; earlier kernels write.
///
/// Source: specs/ksm.md#unmerge.
pub fn unmerged_writable(mapping_writable: bool, version: KernelVersion) -> bool {
    mapping_writable && version < KernelVersion::V6_12
}

/// Whether `prctl(PR_SET_MEMORY_MERGE)` exists.
///
/// Source: specs/ksm.md#registration.
pub fn has_merge_any(version: KernelVersion) -> bool {
    version >= KernelVersion::V6_12
}
