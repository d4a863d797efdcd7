//! What merging asks of a machine: pages, their contents, and five changes.
//!
//! The rules never see bytes. A machine with real memory compares bytes; the
//! simulated kernel compares identities and versions. A [`Page`] is whatever
//! number the machine finds a page by; it may change when the page becomes a
//! merged one ([`Memory::freeze`]) or moves to another node
//! ([`super::Ksm::page_moved`]).

use crate::knobs::Errno;
use crate::units::NodeId;
use std::cmp::Ordering;

/// An address space that has been registered, as the machine numbers them: 20
/// bits. A number may be used again once [`super::Ksm::knows`] denies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MmId(pub u32);

/// A virtual page number: an address divided by the page size, 44 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vpn(pub u64);

/// The machine's number of a physical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// A stable node's number, which a merged page carries. Numbers of nodes that
/// are gone are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StableId(pub u32);

/// What follows at or behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A present anonymous page in a mergeable mapping.
    Page {
        /// Its address.
        vpn: Vpn,
        /// The page.
        page: Page,
    },
    /// None.
    End {
        /// Whether the address space has a mergeable mapping at all.
        mergeable: bool,
    },
}

/// Why a page could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It has references besides its mappings (direct I/O, VFIO).
    Pinned,
    /// Its content is no longer what it was compared as.
    Changed,
    /// The mapping or the page is no longer there.
    Gone,
    /// It is a merged page itself, whose address can't be looked up.
    Merged,
}

/// Why an address could not get its own copy back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakError {
    /// No memory for the copy.
    NoMemory,
    /// A signal for the task that asked.
    Signal,
}

impl BreakError {
    /// What a write of 2 to `run` answers.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoMemory => Errno::Enomem,
            Self::Signal => Errno::Eintr,
        }
    }
    /// What `madvise(MADV_UNMERGEABLE)` answers.
    ///
    /// Source: specs/ksm.md#registration.
    pub const fn madvise_errno(self) -> Errno {
        match self {
            Self::NoMemory => Errno::Eagain,
            Self::Signal => Errno::Eintr,
        }
    }
}

/// What there is to be seen of pages: all that a checker asks for. Looking changes nothing.
pub trait PageFacts {
    /// The anonymous page at an address of a mergeable mapping, if present.
    fn lookup(&self, mm: MmId, vpn: Vpn) -> Option<Page>;

    /// The order of two pages' contents, byte by byte.
    fn order(&self, a: Page, b: Page) -> Ordering;

    /// The node that the page is on.
    fn node(&self, page: Page) -> NodeId;

    /// The stable node that a merged page carries; `None` for other pages.
    fn stable(&self, page: Page) -> Option<StableId>;

    /// Whether `page` still is the merged page that carries `node`: false once
    /// it has been freed, also where its number is in use again.
    fn keeps(&self, page: Page, node: StableId) -> bool;

    /// How many addresses map the page.
    fn mapcount(&self, page: Page) -> u32;

    /// Whether the page is locked right now, as while it is being moved.
    fn is_locked(&self, _page: Page) -> bool {
        false
    }

    /// The huge page that it is part of.
    fn huge(&self, _page: Page) -> Option<u64> {
        None
    }
}

/// The machine below the rules: they look at its pages, and change them.
///
/// A page handle is good until the next call that changes its page. What the
/// machine does by itself: a write to a merged page copies it, even for its last
/// mapper (vmstat's `cow_ksm`), and needs no word to the rules; a page whose last
/// mapping goes is freed, and with it what it carries; fork maps merged pages
/// and pages of zeroes again.
pub trait Memory {
    /// Its pages.
    fn pages(&self) -> &dyn PageFacts;

    /// The first present anonymous page of a mergeable mapping at or behind
    /// `from`, base page by base page also within huge ones.
    fn next(&mut self, mm: MmId, from: Vpn) -> Next;

    /// [`PageFacts::order`] for the rules, which pay for it where looking at contents costs.
    fn compare(&self, a: Page, b: Page) -> Ordering {
        self.pages().order(a, b)
    }

    /// The checksum of a page's content. Linux 5.0 on: the low 32 bits of
    /// XXH64 with seed 0.
    fn checksum(&self, page: Page) -> u32;

    /// The checksum of a page of zeroes.
    fn zero_checksum(&self) -> u32;

    /// Split the huge page that `page` is part of, if that can be done.
    fn split(&mut self, _page: Page) {}

    /// Make the page at an address a merged page without a stable node: split
    /// it off a huge one, write-protect it.
    ///
    /// Returns the page's handle from now on.
    ///
    /// # Errors
    /// [`Refusal`]; the page is then an ordinary one, though perhaps split.
    fn freeze(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<Page, Refusal>;

    /// Let a merged page carry this stable node.
    fn set_stable(&mut self, page: Page, node: Option<StableId>);

    /// Map the merged page `with` where `page` is mapped now, write-protected,
    /// if they are still equal; `page` loses a mapping.
    ///
    /// # Errors
    /// [`Refusal`]; the address maps what it did.
    fn replace(&mut self, mm: MmId, vpn: Vpn, page: Page, with: Page) -> Result<(), Refusal>;

    /// Map the shared page of zeroes where `page` is mapped now, if it still
    /// holds nothing else.
    ///
    /// # Errors
    /// [`Refusal`]; the address maps what it did.
    fn map_zero(&mut self, mm: MmId, vpn: Vpn, page: Page) -> Result<(), Refusal>;

    /// Give an address that maps a merged page, or the page of zeroes by
    /// [`Memory::map_zero`], a copy of its own.
    ///
    /// # Errors
    /// [`BreakError`]; the address maps what it did.
    fn break_cow(&mut self, mm: MmId, vpn: Vpn) -> Result<(), BreakError>;

    /// The first address at or behind `from` that [`Memory::map_zero`] mapped.
    fn next_zero(&mut self, _mm: MmId, _from: Vpn) -> Option<Vpn> {
        None
    }

    /// A pass begins: pages that wait in per-CPU batches lose the reference by it.
    fn drain(&mut self) {}

    /// Memory for a pair of trees per node; asked at the first switch.
    fn grant_trees(&mut self, _nr_nodes: usize) -> bool {
        true
    }
}
