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

/// The lists of a node, in the order in which a pass takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lru {
    /// Anonymous pages, to be looked at first.
    InactiveAnon,
    /// Anonymous pages in use.
    ActiveAnon,
    /// Pages of files, to be looked at first.
    InactiveFile,
    /// Pages of files in use.
    ActiveFile,
}

impl Lru {
    /// All lists in their order.
    pub const ALL: [Self; 4] =
        [Self::InactiveAnon, Self::ActiveAnon, Self::InactiveFile, Self::ActiveFile];

    /// The list of a kind of pages.
    pub const fn of(file: bool, active: bool) -> Self {
        match (file, active) {
            (false, false) => Self::InactiveAnon,
            (false, true) => Self::ActiveAnon,
            (true, false) => Self::InactiveFile,
            (true, true) => Self::ActiveFile,
        }
    }
    /// Whether it is an active list.
    pub const fn active(self) -> bool {
        matches!(self, Self::ActiveAnon | Self::ActiveFile)
    }
    /// Whether it is a list of files' pages.
    pub const fn file(self) -> bool {
        matches!(self, Self::InactiveFile | Self::ActiveFile)
    }
}

/// Pages that kswapd wants to scan in a pass: of each zone high, but at least a batch.
///
/// Source: specs/tiering.md#rounds.
pub fn scan_goal(highs: impl IntoIterator<Item = Pages>) -> Pages {
    highs.into_iter().map(|h| Pages(h.0.max(SWAP_CLUSTER_MAX))).sum()
}

/// One round of kswapd over a node: passes at falling priority until it is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Priority of the present pass, 12 down to 1; 0: the round is over.
    pub priority: u32,
    /// Pages reclaimed (demoted ones count) since the round began.
    pub nr_reclaimed: Pages,
    /// Pages that whoever woke it wants at once, at least 1: it aims so much higher. 1 once twice as
    /// many have been reclaimed.
    pub wants: Pages,
    /// The same as at the beginning.
    asked: Pages,
    /// Plentiful inactive file pages no longer spare the anonymous ones: a run over all
    /// priorities that went for files alone has found nothing.
    pub no_cache_trim: bool,
    /// A pass that went for files alone has found nothing.
    cache_trim_failed: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self {
            priority: DEF_PRIORITY,
            nr_reclaimed: Pages(0),
            wants: Pages(1),
            asked: Pages(1),
            no_cache_trim: false,
            cache_trim_failed: false,
        }
    }
}

impl Round {
    /// One for those who want so many pages at once.
    pub fn asked_for(pages: Pages) -> Self {
        Self { wants: pages, asked: pages, ..Self::default() }
    }
    /// Whether it no longer goes for what it was asked for.
    ///
    /// Source: specs/tiering.md#kswapd.
    pub const fn has_given_in(&self) -> bool {
        self.wants.0 < self.asked.0
    }
    /// At how many reclaimed pages a pass of generations may end, whatever its goal.
    ///
    /// Source: specs/tiering.md#kswapd.
    pub const fn gap(&self) -> Pages {
        Pages(2 * self.wants.0)
    }
    /// Takes the result of a pass and says whether another may follow (if the node is not
    /// balanced, which is asked before each). Priority falls if the pass scanned less than
    /// its goal or reclaimed nothing. A round in which nothing at all was reclaimed begins
    /// once more without sparing anonymous pages, if that was tried ([6.1] not).
    ///
    /// * `cache_trim` – the pass went for files alone, since they were plentiful.
    ///
    /// Source: specs/tiering.md#rounds.
    pub fn pass_done(
        &mut self,
        goal: Pages,
        nr_scanned: Pages,
        nr_reclaimed: Pages,
        cache_trim: bool,
        version: KernelVersion,
    ) -> bool {
        self.nr_reclaimed += nr_reclaimed;
        if self.nr_reclaimed >= self.gap() {
            self.wants = Pages(1);
        }
        self.cache_trim_failed |= nr_reclaimed.0 == 0 && cache_trim;
        if nr_scanned < goal || nr_reclaimed.0 == 0 {
            self.priority = self.priority.saturating_sub(1);
        }
        let again = self.nr_reclaimed.0 == 0
            && self.cache_trim_failed
            && !self.no_cache_trim
            && version >= KernelVersion::V6_12;
        if self.priority == 0 && again {
            self.priority = DEF_PRIORITY;
            self.no_cache_trim = true;
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
    /// Source: specs/tiering.md#kswapd.
    pub const fn heeds_wakeup(&self, balanced: bool) -> bool {
        !self.running && !balanced && !self.is_hopeless()
    }
    /// A round went through all priorities.
    pub fn round_done(&mut self, round: &Round) {
        if round.nr_reclaimed.0 == 0 {
            self.failures += 1;
        }
    }
    /// A pass, also of direct reclaim, made progress.
    pub fn note_progress(&mut self) {
        self.failures = 0;
    }
    /// Demotion was switched on: from 7.3 on, what was hopeless without it is tried again.
    ///
    /// Source: specs/tiering.md#kswapd.
    pub fn demotion_begins(&mut self, version: KernelVersion) {
        if version >= KernelVersion::V7_3 {
            self.note_progress();
        }
    }
    /// Whether an allocation leaves the node alone at first, since it is being reclaimed: 7.3.
    ///
    /// Source: specs/tiering.md#allocation.
    pub fn is_passed_over(&self, version: KernelVersion) -> bool {
        self.running && version >= KernelVersion::V7_3
    }
}

/// Whether an inactive list is short of its active one: then the active list shrinks.
///
/// Source: specs/tiering.md#lists.
#[inline]
pub const fn inactive_is_low(inactive: Pages, active: Pages) -> bool {
    let gib = (inactive.0 + active.0) >> (30 - 12);
    let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
    inactive.0 * ratio < active.0
}

/// What becomes of a page at the tail of an inactive list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// To the active list, with the referenced flag. It survives deactivation, so a page
    /// that is used again after that comes back after one look.
    Activate,
    /// Stays inactive, with the referenced flag.
    Keep,
    /// Demoted, or reclaimed in the ordinary way; the referenced flag is gone.
    Cold,
    /// Reclaimed in the ordinary way without being demoted. Linux has no such verdict.
    Drop,
}

/// The reference test of an inactive page. The accessed bits are cleared by
/// looking at them.
///
/// * `nr_accessed` – mappings whose accessed bit was set.
/// * `referenced` – the page's flag before the test.
///
/// Source: specs/tiering.md#references.
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
/// executable pages of files that were accessed do. The accessed bits of every page that
/// is looked at are cleared, of anonymous ones too; the referenced flag stays as it is.
///
/// Source: specs/tiering.md#lists.
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
    /// Source: specs/tiering.md#shares; 6.1 charges 1 a page of I/O and no rotation.
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
    /// Anonymous pages are aged: there is swap, full or not, or demotion.
    pub can_age_anon: bool,
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
    /// Anonymous pages have come back from swap since the last round.
    pub anon_refaults: bool,
    /// Pages of files have come back since the last round.
    pub file_refaults: bool,
    /// `swappiness`.
    pub swappiness: u32,
    /// Costs so far.
    pub costs: LruCosts,
}

impl ListFacts {
    /// Whether inactive anonymous pages are few and may be filled up from the active ones.
    ///
    /// Source: specs/tiering.md#lists.
    pub const fn ages_anon(&self) -> bool {
        self.can_age_anon && inactive_is_low(self.inactive_anon, self.active_anon)
    }
}

/// Which active lists a pass may shrink. Decided once, when the pass begins; a list that
/// may not is *frozen*: its budget is spent without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayDeactivate {
    /// The anonymous one.
    pub anon: bool,
    /// The files' one.
    pub file: bool,
}

impl MayDeactivate {
    /// Both, in the last run of direct reclaim.
    pub const FORCED: Self = Self { anon: true, file: true };

    /// By refaults since the last round, or where the inactive list is low.
    ///
    /// Source: specs/tiering.md#lists.
    pub const fn new(l: &ListFacts) -> Self {
        Self {
            anon: l.anon_refaults || inactive_is_low(l.inactive_anon, l.active_anon),
            file: l.file_refaults || inactive_is_low(l.inactive_file, l.active_file),
        }
    }
    /// Whether a list may shrink.
    pub const fn of(self, lru: Lru) -> bool {
        if lru.file() { self.file } else { self.anon }
    }
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
    /// Source: specs/tiering.md#rounds.
    #[inline]
    pub const fn target(&self, file: bool, size: Pages, priority: u32) -> Pages {
        let part = if file { self.file } else { self.anon };
        Pages(((size.0 >> priority) as u128 * part as u128 / self.of as u128) as u64)
    }
}

/// The budget of one pass, in pages, by list in the order of [`Lru::ALL`].
///
/// Lists take turns: up to 32 pages of each that has something left, in their order, until
/// nothing is left of the inactive lists and of the active files' (anonymous active pages
/// don't run on alone). Between turns, once the goal is reached, a pass that is not
/// `proportional` ends if one kind of lists is through; else the kind with less left
/// stops, the other is cut to the share of its target that the smaller one has had (the
/// *nudge*), and after one more turn the pass ends.
///
/// Worked example: targets 1000 of inactive anonymous and 4000 of inactive file pages, 480
/// of each done. 520 of the smaller kind are left, 51 % of its target: it stops, and the
/// other gets 4000·49/100 − 480 = 1480 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    targets: [Pages; 4],
    left: [Pages; 4],
    goal: Pages,
    /// The goal ends nothing: direct reclaim at its first priority.
    proportional: bool,
    /// Before 6.1 the nudge was the last word: what it left was scanned.
    nudged_for_good: bool,
    /// The list whose turn it is.
    turn: usize,
}

impl Budget {
    /// A pass over a node that may scan `targets`.
    ///
    /// * `goal` – pages that it wants to reclaim: [`scan_goal`] for kswapd, a batch for
    ///   direct reclaim.
    pub fn new(
        targets: [Pages; 4],
        goal: Pages,
        kswapd: bool,
        priority: u32,
        version: KernelVersion,
    ) -> Self {
        Self {
            targets,
            left: targets,
            goal,
            proportional: !kswapd && priority == DEF_PRIORITY,
            nudged_for_good: version < KernelVersion::V6_1,
            turn: 0,
        }
    }

    /// The list that is next, and how many pages are taken off its budget; `None` when the
    /// pass is over.
    ///
    /// * `nr_reclaimed` – pages that the pass has reclaimed so far.
    ///
    /// Source: specs/tiering.md#turns.
    pub fn next(&mut self, nr_reclaimed: Pages) -> Option<(Lru, Pages)> {
        loop {
            if self.turn == Lru::ALL.len() {
                self.turn = 0;
                if nr_reclaimed >= self.goal && !self.proportional && !self.nudge() {
                    return None;
                }
            }
            let [anon, _, file, active_file] = self.left;
            if self.turn == 0 && (anon + file + active_file).0 == 0 {
                return None;
            }
            let lru = Lru::ALL[self.turn];
            let left = &mut self.left[self.turn];
            self.turn += 1;
            if left.0 > 0 {
                let batch = Pages(left.0.min(SWAP_CLUSTER_MAX));
                *left -= batch;
                return Some((lru, batch));
            }
        }
    }
    /// The goal is reached. Whether the pass goes on.
    fn nudge(&mut self) -> bool {
        let left = |i: usize| self.left[i] + self.left[i + 1];
        let (anon, file) = (left(0), left(2));
        if anon.0 == 0 || file.0 == 0 {
            return false;
        }
        let (small, large, least) = if file > anon { (0, 2, anon) } else { (2, 0, file) };
        let target = self.targets[small] + self.targets[small + 1];
        let percent = least.0 * 100 / (target.0 + 1);
        for i in small..small + 2 {
            self.left[i] = Pages(0);
        }
        for i in large..large + 2 {
            let scanned = self.targets[i].0 - self.left[i].0;
            let wanted = self.targets[i].0 * (100 - percent) / 100;
            self.left[i] = Pages(wanted.saturating_sub(scanned));
        }
        self.proportional |= self.nudged_for_good;
        true
    }
}

/// Whether a pass goes for files alone since their inactive pages are plentiful: enough for
/// this priority, and their active list need not shrink.
///
/// * `spares_anon` – not once kswapd has found nothing that way ([`Round::no_cache_trim`]).
///
/// Source: specs/tiering.md#shares.
pub const fn trims_cache(
    l: &ListFacts,
    priority: u32,
    may: MayDeactivate,
    spares_anon: bool,
) -> bool {
    l.inactive_file.0 >> priority > 0 && !may.file && spares_anon
}

/// How scanning is shared between anonymous and file pages at `priority`.
///
/// * `may` – which active lists the pass may shrink.
/// * `cache_trim` – what [`trims_cache`] says.
///
/// Source: specs/tiering.md#shares.
pub fn shares(l: &ListFacts, priority: u32, may: MayDeactivate, cache_trim: bool) -> Shares {
    if !l.can_reclaim_anon {
        return Shares::FILE_ONLY;
    }
    if priority == 0 && l.swappiness > 0 {
        return Shares::EQUAL;
    }
    let file = l.inactive_file + l.active_file;
    let anon_plentiful = l.inactive_anon.0 >> priority > 0 && !may.anon;
    if file + l.free <= l.sum_high && anon_plentiful {
        return Shares::ANON_ONLY;
    }
    if cache_trim {
        return Shares::FILE_ONLY;
    }
    let total = l.costs.anon + l.costs.file;
    let swappiness = u64::from(l.swappiness.min(200));
    let part = |weight: u64, cost: u64| weight * (3 * total + 1) / (total + cost + 1);
    let anon = part(swappiness, l.costs.anon);
    let file = part(200 - swappiness, l.costs.file);
    Shares { anon, file, of: anon + file }
}

/// The runs of direct reclaim through all priorities: as it is; where nothing at all was
/// reclaimed, once more as it is (a whole walk through the cgroups' tree, [6.1] not); and
/// where that found an active list frozen, once more with deactivation forced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectRuns {
    repeated: bool,
    /// Deactivation is forced in this run.
    pub forced: bool,
}

impl DirectRuns {
    /// A run has reclaimed nothing. Whether another follows.
    ///
    /// * `found_frozen` – a run since the last forced one had budget for a frozen list.
    ///
    /// Source: specs/tiering.md#direct.
    pub fn again(&mut self, found_frozen: bool, version: KernelVersion) -> bool {
        if !self.repeated && version >= KernelVersion::V6_12 {
            self.repeated = true;
            return true;
        }
        let forced = std::mem::replace(&mut self.forced, true);
        !forced && found_frozen
    }
}

#[cfg(test)]
mod tests;
