//! How much is scanned, and what is skipped.
//!
//! One scan may spend `scan_size_mb` on ranges in which it marked something and
//! eight times that on ranges in all. It goes over the VMAs from where the last
//! one stopped:
//!
//! ```text
//!  VMAs      [ heap ........ ][ text ][ file ro ][ data ............ ]
//!  offset         ^
//!  this scan      [ marked   ]  skip     skip     [ marked ]^ next offset
//! ```
//!
//! [`ScanWork`] is driven by the machine: it says what to scan, is told how many
//! entries changed, and says what to do next.

use super::scan::MmScan;
use crate::kernel::{KernelVersion, msecs_to_jiffies};
use crate::knobs::Knobs;
use crate::tiering::mode::Mode;
use crate::units::{HUGE_PAGES, NodeId};

crate::named! {
    /// Why a VMA is passed over; [`SkipReason::name`] is the word that the
    /// tracepoint `sched_skip_vma_numa` prints.
    ///
    /// Source: specs/numa.md#skip-order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum SkipReason {
        /// Can't migrate, or its policy forbids it.
        Unsuitable => "unsuitable",
        /// A file mapped for reading only.
        SharedRo => "shared_ro",
        /// `PROT_NONE`.
        Inaccessible => "inaccessible",
        /// Its own slow start.
        ScanDelay => "scan_delay",
        /// Done in this sequence.
        SeqCompleted => "seq_completed",
        /// The scanning task has not used it lately.
        PidInactive => "pid_inactive",
        /// 3.8: smaller than 2 MiB. No kernel prints this.
        TooSmall => "too_small",
    }
}

/// What the scan needs to know about a VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmaFacts {
    /// First page.
    pub start_vpn: u64,
    /// One past the last page.
    pub end_vpn: u64,
    /// Not an I/O, PFN, DAX, hugetlb or mixed mapping, and its zone can migrate.
    pub migratable: bool,
    /// What [`policy_migrates`] says of its policy, else of the task's.
    pub policy_migrates: bool,
    /// Backed by a file.
    pub file: bool,
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `PROT_EXEC`.
    pub exec: bool,
}

/// Whether a policy lets hint faults move pages: the default does, no explicit
/// one does, unless it was set with the balancing flag, which only bind and
/// (after 6.1) preferred-many accept.
///
/// Source: specs/numa.md#skip-order.
pub fn policy_migrates(policy: PolicyKind, version: KernelVersion) -> bool {
    if version == KernelVersion::V3_8 {
        // Its scan does not look at policies.
        return true;
    }
    match policy {
        PolicyKind::Default | PolicyKind::BindBalancing => true,
        PolicyKind::PreferredManyBalancing => version >= KernelVersion::V6_12,
        PolicyKind::Explicit => false,
    }
}

/// Memory policies as far as balancing tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Neither the VMA nor the task has one.
    Default,
    /// `MPOL_BIND | MPOL_F_NUMA_BALANCING`.
    BindBalancing,
    /// `MPOL_PREFERRED_MANY | MPOL_F_NUMA_BALANCING`.
    PreferredManyBalancing,
    /// Any other one, also local, preferred and interleaving.
    Explicit,
}

/// Scan state of a VMA (6.12 and later). A VMA copied by fork or made by a
/// split starts without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmaScan {
    /// Sequence at which the state was made.
    pub start_seq: i32,
    /// Tick from which it may be scanned, once the sequence is not 0.
    pub next_scan_jiffies: u64,
    /// Tick at which the windows of PIDs shift.
    pub pids_reset_jiffies: u64,
    /// Sequence in which it was completed last.
    pub prev_seq: i32,
    /// Hashes of PIDs that faulted in it: the old window and the current one.
    pub pids: [u64; 2],
}

impl VmaScan {
    /// The state of a VMA that a scan meets for the first time.
    pub fn new(seq: i32, now_jiffies: u64, scan_delay_ms: u32) -> Self {
        let delay = msecs_to_jiffies(u64::from(scan_delay_ms));
        let next = now_jiffies + delay;
        Self {
            start_seq: seq,
            next_scan_jiffies: next,
            pids_reset_jiffies: next + pid_window(scan_delay_ms),
            prev_seq: seq.wrapping_sub(1),
            pids: [0, 0],
        }
    }

    /// A hint fault of `pid` in this VMA.
    #[inline]
    pub fn note_fault(&mut self, pid: u32) {
        self.pids[1] |= pid_bit(pid);
    }

    /// Whether this task counts as a user of the VMA.
    ///
    /// * `start_vpn` – the VMA's first page. * `nr_threads` – of the process.
    ///
    /// Source: specs/numa.md#accessed.
    #[inline]
    pub fn accessed(&self, mm: &MmScan, start_vpn: u64, pid: u32, nr_threads: u32) -> bool {
        mm.seq.wrapping_sub(self.start_seq) < 2
            || (self.pids[0] | self.pids[1]) & pid_bit(pid) != 0
            || mm.offset_vpn > start_vpn
            || mm.seq > self.prev_seq.wrapping_add(nr_threads as i32)
    }
}

fn pid_window(scan_delay_ms: u32) -> u64 {
    msecs_to_jiffies(4 * u64::from(scan_delay_ms))
}

/// The 6-bit hash of a PID in the windows of a VMA.
///
/// Source: specs/numa.md#accessed.
#[inline]
pub const fn pid_hash(pid: u32) -> u32 {
    pid.wrapping_mul(0x61C8_8647) >> 26
}

#[inline]
const fn pid_bit(pid: u32) -> u64 {
    1 << pid_hash(pid)
}

/// A VMA as the machine keeps it.
pub trait ScannedVma {
    /// Its facts now.
    fn facts(&self) -> VmaFacts;
    /// Its scan state, which the scan fills.
    fn scan_state(&mut self) -> &mut Option<VmaScan>;
}

/// What the machine is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Nothing in the VMA at this place of the list; reported for counters and traces.
    Skip {
        /// Its place in the list.
        vma: usize,
        /// Why.
        reason: SkipReason,
    },
    /// Mark eligible entries, then say how many changed ([`ScanWork::scanned`]).
    Scan {
        /// Place of the VMA in the list.
        vma: usize,
        /// First page.
        start_vpn: u64,
        /// One past the last page.
        end_vpn: u64,
    },
    /// The work is over; [`MmScan`] has its new offset and sequence.
    Done,
}

/// Who scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    /// Its PID.
    pub pid: u32,
    /// Threads in its process.
    pub nr_threads: u32,
    /// The tick now.
    pub now_jiffies: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// At the beginning of a pass, also of the forced one.
    Start,
    /// At this VMA, which has not been tested yet.
    Test(usize),
    /// In the middle of this VMA.
    Inside(usize),
    /// A range was given out; its result is awaited.
    Await {
        vma: usize,
        start_vpn: u64,
        end_vpn: u64,
    },
    Done,
}

/// One run of scan work over an address space.
///
/// ```text
///   new ─▶ next ─▶ Skip ─┐      next ─▶ Scan ─▶ scanned ─┐     next ─▶ Done
///            ▲───────────┘        ▲──────────────────────┘
/// ```
///
/// Source: specs/numa.md#scan-work, steps 4 to 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanWork {
    version: KernelVersion,
    scan_delay_ms: u32,
    who: Scanner,
    /// Pages left to spend on ranges with changes; may end below 0 by less than 2 MiB.
    pages: i64,
    /// Pages left to look at; may end below 0 by less than 2 MiB. Not used by 3.8.
    virt_pages: i64,
    cursor_vpn: u64,
    at: At,
    pid_skipped: bool,
    /// Whether this is the second pass, which ignores inactivity.
    forced: bool,
}

impl ScanWork {
    /// Begins a run after [`super::scan::begin_work`] said [`super::scan::WorkStart::Scan`].
    pub fn new(knobs: &Knobs, who: Scanner) -> Self {
        let pages = i64::from(knobs.scan_size_mb) << 8;
        Self {
            version: knobs.version,
            scan_delay_ms: knobs.scan_delay_ms,
            who,
            pages,
            virt_pages: 8 * pages,
            cursor_vpn: 0,
            at: if pages == 0 { At::Done } else { At::Start },
            pid_skipped: false,
            forced: false,
        }
    }

    /// The next thing to do. `vmas` are all VMAs of the address space in rising
    /// order, the same list at each call of one run.
    ///
    /// # Panics
    /// If the result of the last [`ScanStep::Scan`] was not told: the caller's bug.
    pub fn next<V: ScannedVma>(&mut self, mm: &mut MmScan, vmas: &mut [V]) -> ScanStep {
        loop {
            match self.at {
                At::Done => return ScanStep::Done,
                At::Await { .. } => panic!("ScanWork::next before ScanWork::scanned"),
                At::Start => {
                    self.cursor_vpn = mm.offset_vpn;
                    let first = vmas.partition_point(|v| v.facts().end_vpn <= self.cursor_vpn);
                    if first == vmas.len() {
                        finish_sequence(mm);
                        self.cursor_vpn = 0;
                        self.at = At::Test(0);
                    } else {
                        self.at = At::Test(first);
                    }
                }
                At::Test(i) if i >= vmas.len() => {
                    if self.pid_skipped && !self.forced {
                        self.forced = true;
                        self.at = At::Start;
                    } else {
                        finish_sequence(mm);
                        self.at = At::Done;
                    }
                }
                At::Test(i) => match self.skip(mm, &mut vmas[i]) {
                    Some(reason) => {
                        self.at = At::Test(i + 1);
                        return ScanStep::Skip { vma: i, reason };
                    }
                    None => self.at = At::Inside(i),
                },
                At::Inside(i) => {
                    let f = vmas[i].facts();
                    let start_vpn = self.cursor_vpn.max(f.start_vpn);
                    // The budget is above 0 here, so the range is not empty.
                    let reach = (start_vpn + self.pages as u64).next_multiple_of(HUGE_PAGES);
                    let end_vpn = reach.min(f.end_vpn);
                    self.at = At::Await { vma: i, start_vpn, end_vpn };
                    return ScanStep::Scan { vma: i, start_vpn, end_vpn };
                }
            }
        }
    }

    /// Tells how many entries of the last range changed.
    ///
    /// # Panics
    /// If no range is awaited: the caller's bug.
    pub fn scanned<V: ScannedVma>(&mut self, mm: &mut MmScan, vmas: &mut [V], nr_updates: u64) {
        let At::Await { vma, start_vpn, end_vpn } = self.at else {
            panic!("ScanWork::scanned without a range")
        };
        let range = (end_vpn - start_vpn) as i64;
        self.cursor_vpn = end_vpn;
        let spent = if self.version == KernelVersion::V3_8 {
            self.pages -= nr_updates as i64;
            self.pages <= 0
        } else {
            if nr_updates > 0 {
                self.pages -= range;
            }
            self.virt_pages -= range;
            self.pages <= 0 || self.virt_pages <= 0
        };
        if spent {
            mm.offset_vpn = end_vpn;
            self.at = At::Done;
            return;
        }
        if end_vpn < vmas[vma].facts().end_vpn {
            self.at = At::Inside(vma);
            return;
        }
        if let Some(state) = vmas[vma].scan_state() {
            state.prev_seq = mm.seq;
        }
        if self.forced {
            mm.offset_vpn = end_vpn;
            self.at = At::Done;
        } else {
            self.at = At::Test(vma + 1);
        }
    }

    fn skip<V: ScannedVma>(&mut self, mm: &mut MmScan, vma: &mut V) -> Option<SkipReason> {
        let f = vma.facts();
        if !f.migratable || !f.policy_migrates {
            return Some(SkipReason::Unsuitable);
        }
        if self.version == KernelVersion::V3_8 {
            return (f.end_vpn - f.start_vpn < HUGE_PAGES).then_some(SkipReason::TooSmall);
        }
        if f.file && f.read && !f.write {
            return Some(SkipReason::SharedRo);
        }
        if !(f.read || f.write || f.exec) {
            return Some(SkipReason::Inaccessible);
        }
        if self.version < KernelVersion::V6_12 {
            return None;
        }
        let now = self.who.now_jiffies;
        let state =
            vma.scan_state().get_or_insert_with(|| VmaScan::new(mm.seq, now, self.scan_delay_ms));
        if mm.seq != 0 {
            if now < state.next_scan_jiffies {
                return Some(SkipReason::ScanDelay);
            }
            if now > state.pids_reset_jiffies {
                state.pids_reset_jiffies += pid_window(self.scan_delay_ms);
                state.pids = [state.pids[1], 0];
            }
        }
        if state.prev_seq == mm.seq {
            mm.offset_vpn = f.end_vpn;
            return Some(SkipReason::SeqCompleted);
        }
        if !self.forced && !state.accessed(mm, f.start_vpn, self.who.pid, self.who.nr_threads) {
            self.pid_skipped = true;
            return Some(SkipReason::PidInactive);
        }
        None
    }
}

fn finish_sequence(mm: &mut MmScan) {
    mm.seq = mm.seq.wrapping_add(1);
    mm.offset_vpn = 0;
}

/// What the scan needs to know about a page-table entry and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PteFacts {
    /// There is a page.
    pub present: bool,
    /// Already marked.
    pub protnone: bool,
    /// A page of a device.
    pub zone_device: bool,
    /// A page merged by KSM.
    pub ksm: bool,
    /// Mapped by more than one entry.
    pub mapped_shared: bool,
    /// Pinned, for example by direct I/O.
    pub pinned: bool,
    /// Its reference count, which 6.1 looks at instead of the two above.
    pub refcount: u32,
    /// A page of a file that is dirty.
    pub dirty_file: bool,
    /// The page's node.
    pub node: NodeId,
    /// Whether that node is top tier.
    pub top_tier: bool,
}

/// What a scan knows before it looks at entries: the same for a whole range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFacts {
    /// Whose rules.
    pub version: KernelVersion,
    /// The bit field.
    pub mode: Mode,
    /// A private mapping: its pages are copied on write.
    pub cow: bool,
    /// Node of the scanning CPU, if the mapping is private and the address space
    /// has one user; else `None`.
    pub skip_node: Option<NodeId>,
}

/// Whether an entry is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PteVerdict {
    /// Mark it; `stamp_time`: write the scan time into the page's last-access field.
    Mark {
        /// The page's heat is measured by time (slow tier under tiering).
        stamp_time: bool,
    },
    /// Leave it.
    Leave(PteReason),
}

/// Why an entry is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PteReason {
    /// No page.
    NotPresent,
    /// Marked already.
    Protnone,
    /// A device's page.
    ZoneDevice,
    /// A merged page.
    Ksm,
    /// Copied on write and in use elsewhere, or pinned.
    SharedOrPinned,
    /// A dirty page of a file.
    DirtyFile,
    /// Already on the scanning CPU's node.
    AlreadyLocal,
    /// Top tier while only tiers are balanced.
    TopTier,
}

/// Whether a page's heat is measured by time: tiering is on and its node is slow.
/// Kernels before 6.1 have no such measure.
///
/// Source: specs/tiering.md#access-time.
#[inline]
pub fn uses_access_time(mode: Mode, top_tier: bool, version: KernelVersion) -> bool {
    mode.tiering() && !top_tier && version >= KernelVersion::V6_1
}

/// Whether an entry of a base page is marked.
///
/// Source: specs/numa.md#pte.
#[inline]
pub fn pte_eligible(p: &PteFacts, r: &RangeFacts) -> PteVerdict {
    use PteReason as R;
    if !p.present {
        return PteVerdict::Leave(R::NotPresent);
    }
    if p.protnone {
        return PteVerdict::Leave(R::Protnone);
    }
    if p.zone_device {
        return PteVerdict::Leave(R::ZoneDevice);
    }
    if p.ksm {
        return PteVerdict::Leave(R::Ksm);
    }
    let held = if r.version <= KernelVersion::V6_1 {
        r.cow && p.refcount != 1
    } else if r.version >= KernelVersion::V7_3 {
        p.pinned || (r.cow && p.mapped_shared)
    } else {
        r.cow && (p.mapped_shared || p.pinned)
    };
    if held {
        return PteVerdict::Leave(R::SharedOrPinned);
    }
    if p.dirty_file {
        return PteVerdict::Leave(R::DirtyFile);
    }
    // 3.8 marks what is near as well: its faults tell it that a page is used, not only that it is far.
    if r.version > KernelVersion::V3_8 && r.skip_node == Some(p.node) {
        return PteVerdict::Leave(R::AlreadyLocal);
    }
    tier_test(p, r)
}

/// Whether an entry of a huge page is marked. `zero_page`: it maps the huge zero page.
///
/// Source: specs/numa.md#pte: up to 6.12 fewer tests than for base pages.
#[inline]
pub fn pmd_eligible(p: &PteFacts, zero_page: bool, r: &RangeFacts) -> PteVerdict {
    if !p.present || zero_page {
        return PteVerdict::Leave(PteReason::NotPresent);
    }
    if p.protnone {
        return PteVerdict::Leave(PteReason::Protnone);
    }
    if r.version >= KernelVersion::V7_3 {
        return pte_eligible(p, r);
    }
    tier_test(p, r)
}

#[inline]
fn tier_test(p: &PteFacts, r: &RangeFacts) -> PteVerdict {
    // Kernels without tiering know no top tier.
    if p.top_tier && !r.mode.normal() && r.version >= KernelVersion::V5_18 {
        return PteVerdict::Leave(PteReason::TopTier);
    }
    PteVerdict::Mark { stamp_time: uses_access_time(r.mode, p.top_tier, r.version) }
}

#[cfg(test)]
mod tests;
