//! Places inside the kernel where a policy of one's own may decide.
//!
//! ```text
//!                       facts ▶            ◀ verdict
//!  hint fault ── slow page, its list, its heat ── promote or not ──▶ admit ── room?
//!  allocation ── kind, node of the CPU ── which node first; wake kswapd?
//!  kswapd ────── marks of the zones ── how much to make free
//!                inactive page, its bits ── activate, keep, demote, drop
//!  samples ───── page ── which huge page to split
//!  counters ──── loads that went to memory, how long they took
//! ```
//!
//! Each method's default is Linux's rule, so that a policy writes down only where it
//! differs. The simulated kernel asks; no running kernel has these hooks.
//!
//! Worked example: a kernel that promotes each slow page at its first hint fault, as 5.18
//! does with cold pages too, overrides [`Hooks::hint_fault`] with a `Verdict::Move` and
//! leaves the rest as it is.
//!
//! Source: docs/decisions/0013-hooks.md.

use crate::kernel::KernelVersion;
use crate::numa::filter::Verdict;
use crate::offcore::Offcore;
use crate::scenario::{AdmissionChoice, Margin};
use crate::tiering::promote::{AccessTime, PromoteKnobs, PromoteNode};
use crate::tiering::reclaim::{Reference, check_references};
use crate::tiering::watermarks::{self, Admission, WakeFacts, ZoneMarks};
use crate::topology::Hardware;
use crate::units::{NodeId, Pages};

/// A page by its place in an address space: it stays the same while the page moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAt {
    /// Number of the address space; never used again for another one.
    pub space: u32,
    /// Virtual page number; of a huge page any of its 512.
    pub vpn: u64,
}

/// A hint fault on a page of a slow node, while tiering is on.
#[derive(Debug)]
pub struct SlowFault<'a> {
    /// The page.
    pub page: PageAt,
    /// Its size.
    pub nr_pages: Pages,
    /// Whether it is on an active list.
    pub active: bool,
    /// The accessing CPU's node.
    pub to: NodeId,
    /// The kernel's milliseconds.
    pub now_ms: u32,
    /// What the page's field holds: the time of the scan. A rule may change it; it is kept.
    pub field: AccessTime,
    /// Whether `to` has so much room that Linux takes everything.
    pub plenty: bool,
    /// The knobs of promotion.
    pub knobs: PromoteKnobs,
    /// What promotion keeps of `to`.
    pub node: &'a mut PromoteNode,
}

/// What becomes of a slow page at which a hint fault happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowVerdict {
    /// Whether it moves.
    pub verdict: Verdict,
    /// Whether the lists count the fault as an access: the first sets the referenced flag,
    /// a further one puts the page on the active list.
    pub accessed: bool,
}

/// A page that a hint fault wants moved, before its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its size.
    pub nr_pages: Pages,
    /// From a slow node to a fast one, while tiering is on.
    pub promotion: bool,
    /// How far kswapd aims above high.
    pub margin: Margin,
    /// Whether a refusal may wake kswapd.
    pub wake: WakeFacts,
}

/// A new page for which no memory policy names a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPage {
    /// Where it will be.
    pub page: PageAt,
    /// Of a file.
    pub file: bool,
    /// Its size.
    pub nr_pages: Pages,
    /// The CPU's node.
    pub local: NodeId,
    /// Where pages of that node are demoted to first; none if it is of the last tier.
    pub below: Option<NodeId>,
}

/// A page at the tail of an inactive list. Looking has cleared its accessed bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InactivePage {
    /// The page; of one that several map, the first mapping.
    pub page: PageAt,
    /// Of a file.
    pub file: bool,
    /// Its size.
    pub nr_pages: Pages,
    /// Mappings whose accessed bit was set.
    pub nr_accessed: u32,
    /// Its flag before that.
    pub referenced: bool,
    /// An accessed page of an executable mapping of a file.
    pub executable_file: bool,
}

/// An access that the processor sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledAccess {
    /// The base page.
    pub page: PageAt,
    /// Whether it is part of a huge page.
    pub huge: bool,
    /// The page's node.
    pub on: NodeId,
    /// The kernel's milliseconds when the kernel looked at the samples, once a tick.
    pub now_ms: u32,
}

/// Zones of a node with their free pages.
pub type Zones<'a> = &'a mut dyn Iterator<Item = (Pages, ZoneMarks)>;

/// What decides inside the kernel.
pub trait Hooks: Send {
    /// A hint fault on a slow page: promoted or not. Asked where Linux reads the time of
    /// the scan: 6.1 and later, tiering on, target not the page's own node.
    ///
    /// Source: specs/tiering.md#promotion.
    fn hint_fault(&mut self, f: &mut SlowFault<'_>) -> SlowVerdict {
        let verdict = f.node.decide(f.to, f.now_ms, f.plenty, &mut f.field, f.nr_pages, f.knobs);
        SlowVerdict { verdict, accessed: false }
    }

    /// Whether a page that a hint fault wants moved may enter its target, and by which of
    /// its zones.
    ///
    /// Source: specs/tiering.md#admission.
    fn admit(&mut self, zones: Zones<'_>, e: &Arrival) -> Admission {
        watermarks::admit_node(zones, e.nr_pages, AdmissionChoice::B, e.margin, e.wake)
    }

    /// Free pages above which kswapd finds a zone balanced. One zone of a node is enough.
    ///
    /// Source: specs/tiering.md#kswapd.
    fn aim(&self, marks: &ZoneMarks, margin: Margin, wake: WakeFacts) -> Pages {
        watermarks::balance_mark(marks, margin, wake)
    }

    /// Whether a page that was just allocated wakes the node's kswapd.
    ///
    /// * `free` – pages of its zone that are free now.
    /// * `can_demote` – whether its node can demote.
    fn wakes_kswapd(&mut self, free: Pages, marks: &ZoneMarks, can_demote: bool) -> bool {
        let _ = (free, marks, can_demote);
        false
    }

    /// The node that a new page is asked of first; the others follow by distance from it.
    ///
    /// Source: specs/tiering.md#allocation.
    fn new_page(&mut self, p: &NewPage) -> NodeId {
        p.local
    }

    /// What becomes of a page at the tail of an inactive list.
    ///
    /// Source: specs/tiering.md#references.
    fn inactive(&mut self, p: &InactivePage) -> Reference {
        check_references(p.nr_accessed, p.referenced, p.executable_file)
    }

    /// Whether accesses are sampled, which each sampled program pays for. Asked once.
    fn samples(&self) -> bool {
        false
    }

    /// An access that was sampled.
    fn sampled(&mut self, s: &SampledAccess) {
        let _ = s;
    }

    /// Whether the CPUs' counters of loads are read. Asked once.
    fn counts(&self) -> bool {
        false
    }

    /// What the counters show at a tick of a running task, before [`Hooks::sampled`].
    ///
    /// * `now_ms` – the kernel's milliseconds.
    fn counted(&mut self, c: &Offcore, now_ms: u32) {
        let _ = (c, now_ms);
    }

    /// The next huge page that is to be split into base pages; asked once a tick until
    /// there is nothing more. Of a page that is not huge (any more) nothing comes.
    fn next_split(&mut self) -> Option<PageAt> {
        None
    }
}

/// Makes a contender's hooks for a machine under a version's rules.
pub type MakeHooks = fn(&Hardware, KernelVersion) -> Box<dyn Hooks>;

/// Linux's rules in all places.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxRules;

impl Hooks for LinuxRules {}

/// The seed's choice *a*: promotions ignore the marks down to min. All else as Linux.
///
/// Source: specs/seeds.md#s1.
#[derive(Clone, Copy, Debug, Default)]
pub struct DownToMin;

impl Hooks for DownToMin {
    fn admit(&mut self, zones: Zones<'_>, e: &Arrival) -> Admission {
        if !e.promotion {
            return LinuxRules.admit(zones, e);
        }
        watermarks::admit_node(zones, e.nr_pages, AdmissionChoice::A, e.margin, e.wake)
    }
}

impl AdmissionChoice {
    /// The rules with this admission.
    pub fn hooks(self) -> Box<dyn Hooks> {
        match self {
            Self::A => Box::new(DownToMin),
            Self::B => Box::new(LinuxRules),
        }
    }
}

#[cfg(test)]
mod tests;
