//! MGLRU, the newer of Linux's two ways to find pages that can go: generations.
//!
//! A node has generations, numbered upwards. New and used pages are in the newest; reclaim
//! takes from the oldest. *Aging* begins a new generation: it walks page tables, clears
//! accessed bits and lifts pages that were used. *Eviction* looks at pages of the oldest
//! generation, and around each that was used after all.
//!
//! ```text
//!  min                                max
//!   │ oldest │ … │ second newest │ newest │      2 to 4 generations of each type
//!   └─▶ evicted        ▲              ▲
//!                      │              └── faults, and whatever reclaim kept
//!                      └── used pages, after aging has put max up by one; demoted ones
//! ```
//!
//! Anonymous pages and files' pages are types: each has an oldest generation of its own, the
//! newest they share. Pages of a type that come back after they went are *refaults*; they decide
//! which type goes first, and which *tier* of files' pages is spared.
//!
//! Worked example: generations 0 to 3, 8192 anonymous pages, all faulted in, so all in 3. Nothing
//! is in 0 and 1: min goes to 2. Two generations are left, so aging is wanted: max is 4, then 5
//! (generation 2 was empty too). Now 3 is the oldest and holds all of them: they can go.
//!
//! Whose: 6.12 and 7.3. Debian's 6.1 has it too, switched off; there the rules of 6.12 stand in.

use super::reclaim::{DEF_PRIORITY, Reference};
use crate::kernel::KernelVersion;
use crate::units::Pages;

mod bloom;

pub use bloom::{Bloom, Filters};

/// Generations that a type has at least; the two newest count as active.
pub const MIN_GENS: u64 = 2;
/// Generations that a type has at most; lists are numbered modulo this.
pub const MAX_GENS: usize = 4;
/// Pages that a batch wants isolated, and entries that are looked at around a used one.
pub const MIN_BATCH: u64 = 64;
/// Most folios that one batch sees, in 6.12.
pub const MAX_BATCH: u64 = 4096;
/// Tiers that pages of files have by how often they were asked for.
pub const TIERS: usize = 4;

/// What of it is switched on: the bits of `/sys/kernel/mm/lru_gen/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caps(u8);

impl Caps {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// All of it.
    pub const ALL: Self = Self(7);

    /// The bits that are known; others are ignored.
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & 7) as u8)
    }
    /// The bits.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// Generations, and not active and inactive lists.
    pub const fn core(self) -> bool {
        self.0 & 1 != 0
    }
    /// Aging walks page tables.
    pub const fn walks(self) -> bool {
        self.0 & 2 != 0
    }
    /// It passes over tables that were not used since it looked last.
    pub const fn clears_tables(self) -> bool {
        self.0 & 4 != 0
    }
    /// At boot, in Debian's kernels.
    ///
    /// Source: specs/mglru.md#files.
    pub fn at_boot(version: KernelVersion) -> Self {
        if version >= KernelVersion::V6_12 { Self::ALL } else { Self::NONE }
    }
}

/// Pages by generation (modulo [`MAX_GENS`]) and type: anonymous, files'.
pub type Sizes = [[u64; 2]; MAX_GENS];

/// How a page comes to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrives {
    /// By a fault: new, read back, or a copy that a write made.
    Fault,
    /// It came back so soon that its generation is still the oldest one.
    Refault,
    /// Moved by a hint fault; whether it was in one of the two newest generations.
    HintFault {
        /// It was.
        active: bool,
    },
    /// Moved by whom else; whether it was in one of the two newest generations.
    Moved {
        /// It was.
        active: bool,
    },
    /// Cold, and moved to a slower node.
    Demoted,
    /// Reclaim looked at it and kept it; [7.3] activated or not.
    Kept {
        /// It counts as activated.
        activated: bool,
    },
    /// Reclaim found it unused, but it could go nowhere.
    Stuck,
    /// MGLRU was switched on, and it was on that list.
    SwitchedOn {
        /// The active one.
        active: bool,
    },
}

/// The flags of a page that generations know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Used once. [7.3] The first look at a used page sets it.
    pub referenced: bool,
    /// It came back soon after it went. [7.3] Or it was used again.
    pub workingset: bool,
}

/// The generation and the flags with which a page enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the generation.
    pub seq: u64,
    /// Its flags.
    pub flags: Flags,
}

/// What becomes of a page that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// It belongs to the generation that was the newest when the walk began; flags are gone,
    /// but for `workingset` in 7.3.
    Lifted(Flags),
    /// [7.3] It only carries the flag now.
    Noted(Flags),
}

/// What a walk or a look-around makes of a page which it finds used.
///
/// * `executable` – a page of a file that may be executed: 7.3 lifts it at the first look.
///
/// Source: specs/mglru.md#walks.
#[inline]
pub fn used(flags: Flags, executable: bool, version: KernelVersion) -> Used {
    if version < KernelVersion::V7_3 {
        return Used::Lifted(Flags::default());
    }
    if !flags.referenced && !flags.workingset && !executable {
        return Used::Noted(Flags { referenced: true, workingset: false });
    }
    Used::Lifted(Flags { referenced: false, workingset: true })
}

/// Whether a walk or a look-around leaves the accessed bit of a page alone that is on no list:
/// one that a batch has isolated. 6.12 clears it.
///
/// Source: specs/mglru.md#walks, specs/mglru.md#around.
pub fn passes_over_isolated(version: KernelVersion) -> bool {
    version >= KernelVersion::V7_3
}

/// What the test of an isolated page is told: how many mappings used it, and whether it was
/// looked at before. To 7.3 one mapping is as good as two, and `workingset` says so too.
///
/// Source: specs/mglru.md#eviction.
pub fn looked_at(nr_accessed: u32, flags: Flags, version: KernelVersion) -> (u32, bool) {
    if version < KernelVersion::V7_3 {
        return (nr_accessed, flags.referenced);
    }
    (nr_accessed.min(1), flags.referenced || flags.workingset)
}

/// The flags of a page of the oldest generation that goes on to the next one.
///
/// Source: specs/mglru.md#eviction.
pub fn goes_on(flags: Flags, version: KernelVersion) -> Flags {
    let workingset = flags.workingset && version >= KernelVersion::V7_3;
    Flags { referenced: false, workingset }
}

/// Whether a spared page goes to the head of the next list (7.3) or to its tail.
///
/// Source: specs/mglru.md#eviction.
pub fn spared_to_head(version: KernelVersion) -> bool {
    version >= KernelVersion::V7_3
}

/// What a node's generations are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// 0 where anonymous pages can't go: see [`swappiness`].
    pub swappiness: u32,
    /// Priority of the pass.
    pub priority: u32,
    /// Whose rules.
    pub version: KernelVersion,
}

impl Facts {
    /// The first type that can go: files' alone, or both.
    const fn first_type(&self) -> usize {
        (self.swappiness == 0) as usize
    }
}

/// Swappiness as generations count it: 0, so that only files' pages go, where anonymous ones
/// can't.
///
/// Source: specs/mglru.md#passes.
pub const fn swappiness(knob: u32, demotes: bool, swap_free: Pages) -> u32 {
    if !demotes && swap_free.0 < MIN_BATCH {
        return 0;
    }
    knob
}

/// Whether a pass ages, and how many pages it may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Aging comes first; the pass is over then ([7.3]: after one more batch).
    Age,
    /// So many pages may be seen; 0: the pass is over.
    Evict(Pages),
}

/// What a batch takes: a type, and the last tier of it that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Pages of files.
    pub file: bool,
    /// Pages of higher tiers are spared.
    pub last_tier: usize,
}

/// What is done with a page at the tail of the oldest list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// A walk has lifted it: it goes to the head of its own generation's list.
    Lifted,
    /// Its tier is spared: it goes to the next generation's list ([`spared_to_head`]).
    Spared {
        /// Its tier.
        tier: usize,
    },
    /// It is taken; the flags that it keeps meanwhile.
    Taken(Flags),
}

/// What a page leaves behind when it goes to the device or is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The oldest generation of its type then, modulo 2^[`Shadow::SEQ_BITS`].
    pub seq: u32,
    /// It had the flag.
    pub workingset: bool,
}

impl Shadow {
    /// Bits of a number that are remembered.
    pub const SEQ_BITS: u32 = 19;
    const MASK: u64 = (1 << Self::SEQ_BITS) - 1;
}

/// What decides between types and tiers: refaults beside what was evicted or spared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Since min moved.
    refaulted: [u64; TIERS],
    evicted: [u64; TIERS],
    spared: [u64; TIERS],
    /// Decaying, of generations before.
    avg_refaulted: [u64; TIERS],
    avg_total: [u64; TIERS],
}

/// Refaults and the total that they are out of, with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

impl Position {
    /// Whether `other` may go: it refaulted hardly, or at no higher a rate.
    const fn allows(&self, other: &Self) -> bool {
        other.refaulted < MIN_BATCH
            || other.refaulted as u128 * (self.total + MIN_BATCH) as u128 * self.gain as u128
                <= (self.refaulted + 1) as u128 * other.total as u128 * other.gain as u128
    }
}

impl Tally {
    fn at(&self, tiers: std::ops::Range<usize>, gain: u64) -> Position {
        let refaulted = tiers.clone().map(|t| self.avg_refaulted[t] + self.refaulted[t]).sum();
        let total = tiers.map(|t| self.avg_total[t] + self.evicted[t] + self.spared[t]).sum();
        Position { refaulted, total, gain }
    }
    /// The oldest generation is another one: what was counted becomes a part of the averages.
    fn carry_over(&mut self) {
        for t in 0..TIERS {
            let total = self.avg_total[t] + self.evicted[t] + self.spared[t];
            self.avg_refaulted[t] = (self.avg_refaulted[t] + self.refaulted[t]) / 2;
            self.avg_total[t] = total / 2;
        }
        self.refaulted = [0; TIERS];
        self.evicted = [0; TIERS];
        self.spared = [0; TIERS];
    }
}

/// The generations of a node.
///
/// Source: specs/mglru.md#state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generations {
    /// The newest.
    pub max: u64,
    /// The oldest of each type.
    pub min: [u64; 2],
    /// When each began, in milliseconds.
    birth_ms: [u64; MAX_GENS],
    tally: [Tally; 2],
}

impl Default for Generations {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Generations {
    /// At boot.
    pub fn new(now_ms: u64) -> Self {
        Self {
            max: MIN_GENS + 1,
            min: [0; 2],
            birth_ms: [now_ms; MAX_GENS],
            tally: [Tally::default(); 2],
        }
    }
    /// The place of a generation among lists.
    pub const fn index(seq: u64) -> usize {
        (seq % MAX_GENS as u64) as usize
    }
    /// How many a type has.
    pub const fn count(&self, file: bool) -> u64 {
        self.max - self.min[file as usize] + 1
    }
    /// Whether pages of the list at that place count as active: of the two newest generations.
    pub const fn is_active(&self, index: usize) -> bool {
        index == Self::index(self.max) || index == Self::index(self.max - 1)
    }
    /// The number of a type's generation whose list is at that place, if it has one.
    pub fn seq_of(&self, file: bool, index: usize) -> Option<u64> {
        (self.min[usize::from(file)]..=self.max).find(|&seq| Self::index(seq) == index)
    }

    /// Where a page enters, and with which flags.
    ///
    /// * `flags` – those that it brings along.
    ///
    /// Source: specs/mglru.md#entry.
    pub fn entry(&self, file: bool, how: Arrives, flags: Flags, version: KernelVersion) -> Entry {
        if version >= KernelVersion::V7_3 {
            return self.entry_by_flags(file, how, flags);
        }
        let min = self.min[usize::from(file)];
        let inactive = match (file, min + MIN_GENS >= self.max) {
            (false, _) => self.max - 1,
            (true, true) => min,
            (true, false) => min + 1,
        };
        let none = Flags::default();
        let kept = Flags { referenced: false, ..flags };
        let (seq, flags) = match how {
            Arrives::Refault => (self.max, Flags { workingset: true, ..none }),
            Arrives::HintFault { .. } | Arrives::Moved { active: true } => (self.max, kept),
            Arrives::Moved { active: false }
            | Arrives::Demoted
            | Arrives::SwitchedOn { active: false } => (inactive, flags),
            Arrives::Fault
            | Arrives::Kept { .. }
            | Arrives::Stuck
            | Arrives::SwitchedOn { active: true } => (self.max, none),
        };
        Entry { seq, flags }
    }
    /// The same in 7.3, where flags decide.
    fn entry_by_flags(&self, file: bool, how: Arrives, flags: Flags) -> Entry {
        let at = |active: bool, flags: Flags| {
            let back = match (active, file) {
                (true, _) => MIN_GENS - u64::from(flags.workingset),
                (false, false) => MIN_GENS,
                (false, true) => MAX_GENS as u64 - u64::from(flags.workingset || flags.referenced),
            };
            Entry { seq: (self.max + 1 - back).max(self.min[usize::from(file)]), flags }
        };
        let workingset = Flags { workingset: true, referenced: false };
        let looked_at = Flags { referenced: true, ..flags };
        match how {
            Arrives::Fault => at(false, Flags { referenced: true, workingset: false }),
            Arrives::Refault => at(true, workingset),
            Arrives::HintFault { .. } if flags.workingset => at(true, flags),
            Arrives::HintFault { active } => at(active, looked_at),
            Arrives::Moved { active } | Arrives::SwitchedOn { active } => at(active, flags),
            Arrives::Demoted => at(false, flags),
            // The first look activates what was looked at before; an executable page at once.
            Arrives::Kept { activated: true } if flags.referenced && !flags.workingset => {
                Entry { flags: workingset, ..at(true, flags) }
            }
            Arrives::Kept { activated: true } => at(true, workingset),
            Arrives::Kept { activated: false } => {
                let entry = at(false, looked_at);
                // Nobody is kept in the oldest generation.
                if entry.seq == self.min[usize::from(file)] {
                    at(true, Flags { referenced: false, ..flags })
                } else {
                    entry
                }
            }
            Arrives::Stuck => at(true, flags),
        }
    }

    /// Sizes of all generations of types that can go.
    fn total(&self, sizes: &Sizes, f: &Facts) -> u64 {
        (f.first_type()..2)
            .flat_map(|t| (self.min[t]..=self.max).map(move |seq| sizes[Self::index(seq)][t]))
            .sum()
    }
    /// How many pages a pass may see.
    ///
    /// Source: specs/mglru.md#when.
    pub fn budget(&self, sizes: &Sizes, f: &Facts) -> Pages {
        Pages(self.total(sizes, f) >> f.priority)
    }
    /// The oldest generation of the types that can go.
    fn oldest(&self, f: &Facts) -> u64 {
        self.min[f.first_type()..].iter().copied().min().unwrap_or(0)
    }

    /// What a pass does next.
    ///
    /// Source: specs/mglru.md#when.
    pub fn step(&self, sizes: &Sizes, f: &Facts) -> Step {
        let types = f.first_type()..2;
        let total = self.total(sizes, f);
        let budget = Step::Evict(self.budget(sizes, f));
        let ages = f.priority < DEF_PRIORITY;
        if f.version >= KernelVersion::V7_3 {
            return match (self.oldest(f) + MIN_GENS).cmp(&self.max) {
                std::cmp::Ordering::Greater => Step::Age,
                std::cmp::Ordering::Equal if ages => Step::Age,
                _ => budget,
            };
        }
        // Files' oldest generation is never older than that of anonymous pages.
        let oldest = self.min[f.first_type()] + MIN_GENS;
        if oldest > self.max {
            // At the first priority nobody ages, and there is nothing that could go.
            return if ages { Step::Age } else { Step::Evict(Pages(0)) };
        }
        if oldest < self.max || !ages {
            return budget;
        }
        let of = |seq: u64| -> u64 {
            types.clone().filter(|&t| self.min[t] <= seq).map(|t| sizes[Self::index(seq)][t]).sum()
        };
        let (young, old) = (of(self.max), of(self.max - MIN_GENS));
        if young * MIN_GENS > total || old * (MIN_GENS + 2) < total { Step::Age } else { budget }
    }

    /// Types of which the oldest generation has to be emptied into the next before another
    /// begins: they have the most that there can be. Of anonymous pages that can't go only the
    /// number goes up, so that its list becomes the newest one's.
    ///
    /// Source: specs/mglru.md#aging.
    pub fn overfull(&self, swappiness: u32) -> [Option<Emptied>; 2] {
        [false, true].map(|file| {
            let full = self.count(file) == MAX_GENS as u64;
            full.then_some(if !file && swappiness == 0 {
                Emptied::Renumbered
            } else {
                Emptied::Moved
            })
        })
    }
    /// A new generation begins.
    ///
    /// Source: specs/mglru.md#aging.
    pub fn begin_next(&mut self, now_ms: u64) {
        self.max += 1;
        self.birth_ms[Self::index(self.max)] = now_ms;
    }
    /// The oldest generation of a type is empty, or given up.
    pub fn drop_oldest(&mut self, file: bool) {
        self.tally[usize::from(file)].carry_over();
        self.min[usize::from(file)] += 1;
    }
    /// Passes over oldest generations that are empty; whether it passed over any. While both
    /// types can go they advance together.
    ///
    /// * `empty` – whether the list at a place, of a type, has nobody on it.
    ///
    /// Source: specs/mglru.md#eviction.
    pub fn advance(
        &mut self,
        swappiness: u32,
        version: KernelVersion,
        empty: impl Fn(usize, bool) -> bool,
    ) -> bool {
        let first = usize::from(swappiness == 0);
        let mut min = self.min;
        for (t, oldest) in min.iter_mut().enumerate().skip(first) {
            while *oldest + MIN_GENS <= self.max && empty(Self::index(*oldest), t == 1) {
                *oldest += 1;
            }
        }
        if first == 0 {
            if version < KernelVersion::V7_3 {
                min[0] = min[0].min(min[1]);
                min[1] = min[0].max(self.min[1]);
            } else {
                // Neither is down to two generations while the other has four.
                let third = self.max - MIN_GENS;
                let [anon, file] = min;
                let held =
                    |mine: u64, other: u64| if other < third { mine.min(third) } else { mine };
                min = [held(anon, file).max(self.min[0]), held(file, anon).max(self.min[1])];
            }
        }
        let mut moved = false;
        for (t, oldest) in min.into_iter().enumerate().skip(first) {
            if oldest != self.min[t] {
                self.tally[t].carry_over();
                self.min[t] = oldest;
                moved = true;
            }
        }
        moved
    }
    /// What a batch counts as: the pages that it saw. In 6.12 also whether the oldest generation
    /// is another one now, and nothing where the pass has to end since so few are left.
    ///
    /// Source: specs/mglru.md#eviction.
    pub fn counted(&self, swappiness: u32, seen: u64, moved: bool, version: KernelVersion) -> u64 {
        if version >= KernelVersion::V7_3 {
            return seen;
        }
        if self.runs_dry(swappiness) { 0 } else { seen + u64::from(moved) }
    }
    const fn runs_dry(&self, swappiness: u32) -> bool {
        self.count(swappiness == 0) == MIN_GENS
    }
    /// Whether a type has generations enough to give pages.
    pub const fn gives(&self, file: bool) -> bool {
        self.count(file) > MIN_GENS
    }

    /// The type that a batch takes first.
    ///
    /// Source: specs/mglru.md#types.
    pub fn choose(&self, f: &Facts) -> Choice {
        let later = f.version >= KernelVersion::V7_3;
        let forced = match f.swappiness {
            0 => Some(true),
            _ if !later && self.min[0] < self.min[1] => Some(false),
            1 => Some(true),
            200 => Some(false),
            _ => None,
        };
        if let Some(file) = forced {
            return self.own_choice(file, f.version);
        }
        let gains = [u64::from(f.swappiness), u64::from(200u32.saturating_sub(f.swappiness))];
        let tiers = if later { 0..TIERS } else { 0..1 };
        let of = |t: usize| self.tally[t].at(tiers.clone(), gains[t]);
        let file = of(0).allows(&of(1));
        if later {
            return self.own_choice(file, f.version);
        }
        let (mine, other) = (usize::from(file), usize::from(!file));
        let point = self.tally[other].at(0..1, gains[other]);
        let above =
            (1..TIERS).take_while(|&t| point.allows(&self.tally[mine].at(t..t + 1, gains[mine])));
        Choice { file, last_tier: above.count() }
    }
    /// A type that nobody chose: its own first tier says how far its others go.
    pub fn own_choice(&self, file: bool, version: KernelVersion) -> Choice {
        let (first, others) = if version >= KernelVersion::V7_3 { (2, 3) } else { (1, 2) };
        let tally = &self.tally[usize::from(file)];
        let point = tally.at(0..1, first);
        let above = (1..TIERS).take_while(|&t| point.allows(&tally.at(t..t + 1, others)));
        Choice { file, last_tier: above.count() }
    }

    /// What is done with a page at the tail of the oldest list of its type.
    ///
    /// * `index` – the place of the generation that it belongs to.
    ///
    /// Source: specs/mglru.md#eviction.
    pub fn sort(
        &mut self,
        index: usize,
        flags: Flags,
        n: Pages,
        by: Choice,
        version: KernelVersion,
    ) -> Sorted {
        let t = usize::from(by.file);
        if index != Self::index(self.min[t]) {
            return Sorted::Lifted;
        }
        let tier = tier(flags, version);
        if tier > by.last_tier {
            self.tally[t].spared[tier] += n.0;
            return Sorted::Spared { tier };
        }
        let workingset = flags.workingset && (flags.referenced || version >= KernelVersion::V7_3);
        // 7.3 asks at eviction whether it was looked at before.
        let referenced = flags.referenced && version >= KernelVersion::V7_3;
        Sorted::Taken(Flags { referenced, workingset })
    }
    /// Aging moves a page on since its generation has to end. 7.3 counts it as spared.
    ///
    /// Source: specs/mglru.md#aging.
    pub fn moves_on(
        &mut self,
        file: bool,
        flags: Flags,
        n: Pages,
        version: KernelVersion,
    ) -> Flags {
        if version >= KernelVersion::V7_3 {
            self.tally[usize::from(file)].spared[tier(flags, version)] += n.0;
        }
        goes_on(flags, version)
    }
    /// A page goes to the device or is dropped: what it leaves behind.
    ///
    /// Source: specs/mglru.md#types.
    pub fn evicted(
        &mut self,
        file: bool,
        flags: Flags,
        n: Pages,
        version: KernelVersion,
    ) -> Shadow {
        let t = usize::from(file);
        self.tally[t].evicted[tier(flags, version)] += n.0;
        Shadow { seq: (self.min[t] & Shadow::MASK) as u32, workingset: flags.workingset }
    }
    /// It comes back to the node that it left; whether so soon that it counts.
    ///
    /// Source: specs/mglru.md#types.
    pub fn refaulted(&mut self, file: bool, shadow: Shadow, version: KernelVersion) -> bool {
        let t = usize::from(file);
        let (since, reach) = if version >= KernelVersion::V7_3 {
            (self.max.wrapping_sub(u64::from(shadow.seq)), MAX_GENS as u64)
        } else {
            (self.min[t].wrapping_sub(u64::from(shadow.seq)), 1)
        };
        if since & Shadow::MASK >= reach {
            return false;
        }
        let flags = Flags { workingset: shadow.workingset, referenced: false };
        self.tally[t].refaulted[tier(flags, version)] += 1;
        true
    }

    /// How a page arrives that comes back to the node that it left. In 7.3 one that had no
    /// `workingset` when it went is counted and arrives as by any fault.
    ///
    /// Source: specs/mglru.md#types.
    pub fn comes_back(&mut self, file: bool, shadow: Shadow, version: KernelVersion) -> Arrives {
        let counts = self.refaulted(file, shadow, version);
        if counts && (shadow.workingset || version < KernelVersion::V7_3) {
            Arrives::Refault
        } else {
            Arrives::Fault
        }
    }

    /// Whether a node may be reclaimed under `min_ttl_ms`: it has something of the size, and
    /// files' oldest generation ([7.3] the oldest that can go) is older than that. If not,
    /// somebody has to be killed.
    ///
    /// Source: specs/mglru.md#ttl.
    pub fn outlives(&self, sizes: &Sizes, f: &Facts, min_ttl_ms: u32, now_ms: u64) -> bool {
        let oldest = if f.version >= KernelVersion::V7_3 { self.oldest(f) } else { self.min[1] };
        let birth = self.birth_ms[Self::index(oldest)];
        self.budget(sizes, f).0 > 0 && now_ms > birth + u64::from(min_ttl_ms)
    }
}

/// How the oldest generation is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// Its pages go to the tail of the next one.
    Moved,
    /// They stay, and are in the newest from then on.
    Renumbered,
}

/// The tier of a page. Mapped accesses don't count: who came back soon is above the first.
///
/// Source: specs/mglru.md#types.
pub fn tier(flags: Flags, version: KernelVersion) -> usize {
    match flags.workingset {
        false => 0,
        true if version >= KernelVersion::V7_3 => TIERS - 1,
        true => 1,
    }
}

/// The priority at which a pass of kswapd begins: so that its first pass just about meets the
/// goal. Asked while the priority is still that of a round's beginning.
///
/// * `inactive` – pages of evictable types that are not in the two newest generations.
///
/// Source: specs/mglru.md#passes.
pub fn initial_priority(inactive: Pages, goal: Pages) -> u32 {
    if goal.0 < MIN_BATCH {
        return DEF_PRIORITY;
    }
    let fls = |v: u64| i64::from(u64::BITS - v.leading_zeros());
    let priority = fls(inactive.0) - 1 - fls(goal.0 - 1);
    priority.clamp(i64::from(DEF_PRIORITY / 2), i64::from(DEF_PRIORITY)) as u32
}

/// The pages that are looked at around a used one: those of `start .. end`, 64 where there are
/// more.
///
/// * `start`, `end` – its mapping and its page table, whichever is narrower.
///
/// Source: specs/mglru.md#around.
pub const fn window(page: u64, start: u64, end: u64) -> (u64, u64) {
    if end - start <= MIN_BATCH {
        (start, end)
    } else if page - start < MIN_BATCH / 2 {
        (start, start + MIN_BATCH)
    } else if end - page < MIN_BATCH / 2 {
        (end - MIN_BATCH, end)
    } else {
        (page - MIN_BATCH / 2, page + MIN_BATCH / 2)
    }
}

/// Whether a page table is worth reading again: a used entry in each cache line, on average.
///
/// Source: specs/mglru.md#walks.
pub const fn worth_reading(seen: u64, young: u64) -> bool {
    young * 8 >= seen
}

/// Whether a batch has looked at enough: 64 pages isolated, or so many folios seen.
///
/// * `left` – what the pass may still see; 6.12 does not ask.
///
/// Source: specs/mglru.md#eviction.
pub fn batch_is_full(isolated: Pages, folios: u64, left: Pages, version: KernelVersion) -> bool {
    let most = if version >= KernelVersion::V7_3 { MIN_BATCH.min(left.0) } else { MAX_BATCH };
    isolated.0 >= MIN_BATCH || folios >= most
}

/// Whether what a batch saw counts where it isolated nothing: in 6.12 only if it was full.
///
/// Source: specs/mglru.md#eviction.
pub fn counts_sorted(full: bool, version: KernelVersion) -> bool {
    full || version >= KernelVersion::V7_3
}

/// The type that a batch looks at once more, if at any, where it was not served by the first.
///
/// * `file` – the first type, of which `seen` pages counted as seen and `isolated` were taken.
///
/// Source: specs/mglru.md#types.
pub fn looks_again(
    file: bool,
    swappiness: u32,
    seen: u64,
    isolated: Pages,
    version: KernelVersion,
) -> Option<bool> {
    let unserved = if version >= KernelVersion::V7_3 { isolated.0 == 0 } else { seen == 0 };
    // 7.3 keeps to a type that had something to sort.
    (swappiness > 0 && unserved).then_some(if seen == 0 { !file } else { file })
}

/// Whether 7.3's batch passes over empty generations before it begins, and afterwards only if
/// it saw any page.
///
/// Source: specs/mglru.md#eviction.
pub fn advances_first(version: KernelVersion) -> bool {
    version >= KernelVersion::V7_3
}

/// What follows for a page that a batch has looked at.
///
/// * `flagged` – an earlier look-around of the same batch has found it used: 6.12.
///
/// Source: specs/mglru.md#eviction.
pub fn verdict(said: Reference, flagged: bool) -> Reference {
    if flagged { Reference::Keep } else { said }
}

/// Whether aging ends a pass at once; [7.3] one batch follows.
///
/// Source: specs/mglru.md#when.
pub fn aging_ends_pass(version: KernelVersion) -> bool {
    version < KernelVersion::V7_3
}
/// Whether the budget of a pass is set when it begins (7.3), or anew before each batch.
///
/// Source: specs/mglru.md#when.
pub fn budget_is_kept(version: KernelVersion) -> bool {
    version >= KernelVersion::V7_3
}

#[cfg(test)]
mod tests;
