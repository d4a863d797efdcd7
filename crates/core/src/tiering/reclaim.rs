//! kswapd and the classic lists: how hard, which list, which page.
//!
//! Whose: 6.12 with MGLRU off (6.1 alike where not said otherwise). A round goes
//! from priority 12 down to 1; at each it looks at `size >> priority` pages of a
//! list, weighted between anonymous and file pages by what reclaiming them has
//! cost.

use crate::kernel::KernelVersion;
use crate::units::Pages;

/// Priority at which a round begins.
pub const DEF_PRIORITY: u32 = 12;
/// Pages in a batch of scanning.
pub const SWAP_CLUSTER_MAX: u64 = 32;
/// Rounds without progress after which kswapd gives up.
pub const MAX_RECLAIM_RETRIES: u32 = 16;
/// How long kswapd sleeps before it looks again whether the node is balanced, in ms.
pub const RECHECK_MS: u64 = 100;

/// Pages that kswapd wants to scan in a pass: of each zone high, but at least a batch.
///
/// Source: specs/tiering.md#rounds (SPEC §B.7).
pub fn scan_goal(highs: impl IntoIterator<Item = Pages>) -> Pages {
    highs.into_iter().map(|h| Pages(h.0.max(SWAP_CLUSTER_MAX))).sum()
}

/// One round of kswapd over a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Priority of the present pass, 12 down to 1; 0: the round is over.
    pub priority: u32,
    /// Pages reclaimed (demoted ones count) since the round began.
    pub nr_reclaimed: Pages,
}

impl Default for Round {
    fn default() -> Self {
        Self { priority: DEF_PRIORITY, nr_reclaimed: Pages(0) }
    }
}

impl Round {
    /// Takes the result of a pass and says whether another follows. Priority
    /// falls if the pass scanned less than its goal or reclaimed nothing.
    ///
    /// Source: specs/tiering.md#rounds (SPEC §B.7).
    pub fn pass_done(
        &mut self,
        goal: Pages,
        nr_scanned: Pages,
        nr_reclaimed: Pages,
        balanced: bool,
    ) -> bool {
        self.nr_reclaimed += nr_reclaimed;
        if balanced {
            return false;
        }
        if nr_scanned < goal || nr_reclaimed.0 == 0 {
            self.priority = self.priority.saturating_sub(1);
        }
        self.priority >= 1
    }
}

/// What a kswapd remembers between rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kswapd {
    /// A round is running.
    pub running: bool,
    /// Rounds in a row without progress.
    pub failures: u32,
}

impl Kswapd {
    /// Whether it has given up until somebody makes progress.
    pub const fn is_hopeless(&self) -> bool {
        self.failures >= MAX_RECLAIM_RETRIES
    }
    /// Whether a wake-up is heeded: not while running, nor balanced, nor hopeless.
    ///
    /// Source: specs/tiering.md#kswapd (SPEC §B.5).
    pub const fn heeds_wakeup(&self, balanced: bool) -> bool {
        !self.running && !balanced && !self.is_hopeless()
    }
    /// A round is over.
    pub fn round_done(&mut self, round: &Round) {
        self.failures = if round.nr_reclaimed.0 == 0 { self.failures + 1 } else { 0 };
    }
    /// Direct reclaim made progress, or (7.3) demotion was switched on.
    pub fn note_progress(&mut self) {
        self.failures = 0;
    }
}

/// Whether an inactive list is short of its active one: then the active list shrinks.
///
/// Source: specs/tiering.md#lists (SPEC §B.7).
#[inline]
pub const fn inactive_is_low(inactive: Pages, active: Pages) -> bool {
    let gib = (inactive.0 + active.0) >> (30 - 12);
    let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
    inactive.0 * ratio < active.0
}

/// What becomes of a page at the tail of an inactive list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// To the active list.
    Activate,
    /// Stays inactive, now with the referenced flag.
    Keep,
    /// Demoted, or reclaimed in the ordinary way.
    Cold,
}

/// The reference test of an inactive page. The accessed bits are cleared by
/// looking at them.
///
/// * `nr_accessed` – mappings whose accessed bit was set.
/// * `referenced` – the page's flag, which [`Reference::Keep`] sets.
///
/// Source: specs/tiering.md#references (SPEC §B.7).
#[inline]
pub const fn check_references(
    nr_accessed: u32,
    referenced: bool,
    executable_file: bool,
) -> Reference {
    if nr_accessed == 0 {
        Reference::Cold
    } else if referenced || nr_accessed > 1 || executable_file {
        Reference::Activate
    } else {
        Reference::Keep
    }
}

/// Whether a page of the active list stays there when the list shrinks: only
/// executable pages of files that were accessed do.
///
/// Source: specs/tiering.md#lists (SPEC §B.7).
#[inline]
pub const fn stays_active(nr_accessed: u32, executable_file: bool) -> bool {
    nr_accessed > 0 && executable_file
}

/// What reclaiming each kind has cost, decaying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruCosts {
    /// Of anonymous pages.
    pub anon: u64,
    /// Of file pages.
    pub file: u64,
}

impl LruCosts {
    /// Notes costs: `nr_io` pages written or refaulted, `nr_rotated` scanned but
    /// not reclaimed. `all_lists` are the pages of all four lists; both costs are
    /// halved once they exceed a quarter of it.
    ///
    /// Source: specs/tiering.md#shares (SPEC §B.7); 6.1 charges 1 a page of I/O and no rotation.
    pub fn note(
        &mut self,
        file: bool,
        nr_io: u64,
        nr_rotated: u64,
        all_lists: Pages,
        version: KernelVersion,
    ) {
        let cost = if version <= KernelVersion::V6_1 {
            nr_io
        } else {
            nr_io * SWAP_CLUSTER_MAX + nr_rotated
        };
        *(if file { &mut self.file } else { &mut self.anon }) += cost;
        if self.anon + self.file > all_lists.0 / 4 {
            self.anon /= 2;
            self.file /= 2;
        }
    }
}

/// The lists of a node as the shares need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFacts {
    /// Anonymous pages can go: there is swap with room, or demotion.
    pub can_reclaim_anon: bool,
    /// Inactive anonymous pages.
    pub inactive_anon: Pages,
    /// Active anonymous pages.
    pub active_anon: Pages,
    /// Inactive file pages.
    pub inactive_file: Pages,
    /// Active file pages.
    pub active_file: Pages,
    /// Free pages of the node.
    pub free: Pages,
    /// Sum of the high marks of the node's zones.
    pub sum_high: Pages,
    /// Refaults ask for the active file list to shrink too.
    pub file_refaults: bool,
    /// `swappiness`.
    pub swappiness: u32,
    /// Costs so far.
    pub costs: LruCosts,
}

/// How scanning is shared: `anon / of` and `file / of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Numerator for anonymous lists.
    pub anon: u64,
    /// Numerator for file lists.
    pub file: u64,
    /// The denominator, above 0.
    pub of: u64,
}

impl Shares {
    /// File lists alone.
    pub const FILE_ONLY: Self = Self { anon: 0, file: 1, of: 1 };
    /// Anonymous lists alone.
    pub const ANON_ONLY: Self = Self { anon: 1, file: 0, of: 1 };
    /// Both kinds of lists, whole: shares would leave pages unseen, and the next step
    /// is to kill.
    pub const EQUAL: Self = Self { anon: 1, file: 1, of: 1 };

    /// How many pages of a list of `size` are scanned at `priority`.
    ///
    /// Source: specs/tiering.md#rounds (SPEC §B.7).
    #[inline]
    pub const fn target(&self, file: bool, size: Pages, priority: u32) -> Pages {
        let part = if file { self.file } else { self.anon };
        Pages(((size.0 >> priority) as u128 * part as u128 / self.of as u128) as u64)
    }
}

/// What a pass of kswapd still scans once it has reclaimed its goal: nothing if one kind
/// of lists is through; else the kind with less left stops, and the other is cut to the
/// share of its target that the smaller one has had. Lists are in the order inactive
/// anonymous, active anonymous, inactive file, active file.
///
/// Asked again it says nothing, as one kind is through then: so a pass ends soon after
/// its goal.
///
/// * `targets` – what the pass was to scan of each list.
/// * `left` – what it has not scanned of it yet.
///
/// Source: specs/tiering.md#rounds.
pub fn after_goal(targets: [Pages; 4], left: [Pages; 4]) -> [Pages; 4] {
    let (anon, file) = (left[0] + left[1], left[2] + left[3]);
    if anon.0 == 0 || file.0 == 0 {
        return [Pages(0); 4];
    }
    let (small, large, smaller) = if file > anon { (0, 2, anon) } else { (2, 0, file) };
    let percent = (smaller.0 * 100 / (targets[small] + targets[small + 1]).0.max(1)).min(100);
    let mut cut = [Pages(0); 4];
    for list in large..large + 2 {
        let scanned = targets[list].0.saturating_sub(left[list].0);
        cut[list] = Pages((targets[list].0 * (100 - percent) / 100).saturating_sub(scanned));
    }
    cut
}

/// How scanning is shared between anonymous and file pages at `priority`.
///
/// Source: specs/tiering.md#shares (SPEC §B.7).
pub fn shares(l: &ListFacts, priority: u32) -> Shares {
    if !l.can_reclaim_anon {
        return Shares::FILE_ONLY;
    }
    if priority == 0 && l.swappiness > 0 {
        return Shares::EQUAL;
    }
    // "Plentiful" is: enough for this priority, and the active list need not shrink.
    let anon_plentiful =
        l.inactive_anon.0 >> priority > 0 && !inactive_is_low(l.inactive_anon, l.active_anon);
    let file_plentiful = l.inactive_file.0 >> priority > 0
        && !inactive_is_low(l.inactive_file, l.active_file)
        && !l.file_refaults;
    let file = l.inactive_file + l.active_file;
    if file + l.free <= l.sum_high && anon_plentiful {
        return Shares::ANON_ONLY;
    }
    if file_plentiful {
        return Shares::FILE_ONLY;
    }
    let total = l.costs.anon + l.costs.file;
    let swappiness = u64::from(l.swappiness.min(200));
    let part = |weight: u64, cost: u64| weight * (3 * total + 1) / (total + cost + 1);
    let anon = part(swappiness, l.costs.anon);
    let file = part(200 - swappiness, l.costs.file);
    Shares { anon, file, of: anon + file }
}

#[cfg(test)]
mod tests;
