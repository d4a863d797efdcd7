//! How fast the kernel's own ksmd is to go: as fast as a budget of CPU time
//! allows while it pays, slower when nothing new comes of it.
//!
//! Terms. A *visit* is a page that ksmd looks at; its *cost* is ksmd's CPU time
//! by visit. *Saved* is what `pages_sharing` and `ksm_zero_pages` stand for. The
//! *benefit* is what was newly saved by CPU time, over whole passes, since the
//! pages of a pass are not alike.
//!
//! Example: a visit costs 2 µs, ksmd may use 5 % of a CPU and sleeps 20 ms
//! between batches. A batch may take 20 · 5 / 95 = 1.05 ms: 526 pages. Three
//! passes later it saves nothing new: 263, then 131, 65, 32 at the least, which
//! is a sixteenth of the budget. New memory or a page in five hundred that
//! merges (4 MiB a second of CPU time at 2 µs) brings it back to 526.
//!
//! Pure: readings in, orders out; no clock. Live readings come from files, those
//! of a simulated machine from [`super::Ksm`].
//!
//! Source: specs/merge-drive.md#speed.

use super::ITEM_BYTES;
use super::files::File;
use crate::units::PAGE_SIZE;

/// Between batches, in ms; the kernel's own value. A shorter sleep wakes ksmd
/// more often for the same share of a CPU, a longer one makes batches during
/// which it holds a CPU for longer.
pub const SLEEP_MILLISECS: u64 = 20;
/// Pages of a batch at most: half a second at 0.5 µs a visit.
pub const PAGES_MAX: u64 = 1_000_000;
/// What a visit is taken to cost until it has been measured: 0.2 M visits a
/// second, the slowest that we have met, so that the first interval keeps the
/// budget too.
pub const COST_NS: u64 = 5_000;
/// Newly saved bytes by second of CPU time below which it does not pay.
pub const LEAST_BENEFIT: u64 = 4 << 20;
/// Passes before silence means anything: pages are met in the first, merge in
/// the second, and a chain or a lock may take a third.
pub const PASSES_OF_GRACE: u64 = 3;
/// Halvings of the speed at most.
pub const SLOWEST: u32 = 4;
/// Seconds of a pass that the kernel's advisor aims at while it pays.
pub const ADVISOR_TARGET: u64 = 20;
/// The advisor lets ksmd use so many percent of a CPU at least, whatever
/// `advisor_max_cpu` says (specs/ksm.md#advisor).
pub const ADVISOR_CPU_LEAST: u32 = 10;
/// CPU time that a cost is measured over, at least: ten ticks of the coarsest
/// clock that /proc has would be better, three are what a small budget gives
/// within a few seconds.
const MEASURED_NS: u64 = 30_000_000;

/// What was seen at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When, in ns on a clock that never goes back.
    pub at_ns: u64,
    /// CPU time that ksmd has used, in ns.
    pub ksmd_cpu_ns: u64,
    /// `pages_shared`.
    pub pages_shared: u64,
    /// `pages_sharing`.
    pub pages_sharing: u64,
    /// `pages_unshared`.
    pub pages_unshared: u64,
    /// `pages_volatile`.
    pub pages_volatile: u64,
    /// `ksm_zero_pages`; 0 where the kernel has none, below 0 never.
    pub ksm_zero_pages: u64,
    /// `full_scans`.
    pub full_scans: u64,
    /// `pages_scanned`, where the kernel has it.
    pub pages_scanned: Option<u64>,
    /// `general_profit` in bytes, where the kernel has it.
    pub general_profit: Option<i64>,
    /// Anonymous pages in memory of the processes that were registered, where
    /// known, else 0.
    pub offered_pages: u64,
}

impl Reading {
    /// Items: pages that ksmd knows.
    pub const fn items(&self) -> u64 {
        self.pages_shared + self.pages_sharing + self.pages_unshared + self.pages_volatile
    }
    /// Bytes that merging saves now.
    pub const fn saved_bytes(&self) -> u64 {
        (self.pages_sharing + self.ksm_zero_pages) * PAGE_SIZE
    }
    /// `general_profit`, or the same from the counters: saved bytes less those
    /// of items. May be negative.
    ///
    /// Source: specs/ksm.md#counters.
    pub fn profit(&self) -> i64 {
        self.general_profit.unwrap_or(self.saved_bytes() as i64 - self.items() as i64 * ITEM_BYTES)
    }
    /// What ksmd has cost by visit since boot, in ns, if it has visited enough.
    pub fn cost_since_boot(&self) -> Option<u64> {
        let visits = self.pages_scanned.filter(|n| *n >= 100_000)?;
        Some((self.ksmd_cpu_ns / visits).max(1))
    }
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Time, in ns.
    pub wall_ns: u64,
    /// CPU time of ksmd, in ns.
    pub cpu_ns: u64,
    /// Visits: `pages_scanned`, or where there is no such counter what whole
    /// passes over the present items take.
    pub visits: u64,
    /// Whole passes that ended.
    pub passes: u64,
    /// What is saved now and was not before, in bytes; negative where merging
    /// was undone.
    pub saved_bytes: i64,
}

impl Interval {
    /// From an earlier reading to a later one. A counter that went back, as
    /// `full_scans` does when everything is unmerged, counts as standing still.
    pub fn between(before: &Reading, now: &Reading) -> Self {
        let passes = now.full_scans.saturating_sub(before.full_scans);
        Self {
            wall_ns: now.at_ns.saturating_sub(before.at_ns),
            cpu_ns: now.ksmd_cpu_ns.saturating_sub(before.ksmd_cpu_ns),
            visits: match (before.pages_scanned, now.pages_scanned) {
                (Some(before), Some(now)) => now.saturating_sub(before),
                _ => passes.saturating_mul(now.items()),
            },
            passes,
            saved_bytes: now.saved_bytes() as i64 - before.saved_bytes() as i64,
        }
    }
    /// ksmd's share of a CPU, in thousandths.
    pub const fn cpu_permille(&self) -> u64 {
        ratio(self.cpu_ns, 1000, self.wall_ns)
    }
    /// Visits a second.
    pub const fn visits_per_second(&self) -> u64 {
        ratio(self.visits, 1_000_000_000, self.wall_ns)
    }
    /// Bytes newly saved by second of ksmd's CPU time; `None` where it used none.
    pub fn benefit(&self) -> Option<i64> {
        if self.cpu_ns == 0 {
            return None;
        }
        let value = i128::from(self.saved_bytes) * 1_000_000_000 / i128::from(self.cpu_ns);
        Some(value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }
}

const fn ratio(a: u64, factor: u64, b: u64) -> u64 {
    if b == 0 {
        return 0;
    }
    let value = a as u128 * factor as u128 / b as u128;
    if value > u64::MAX as u128 { u64::MAX } else { value as u64 }
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// CPU time of ksmd at most, in percent of one CPU, 1 to 100.
    pub cpu_percent: u32,
    /// Newly saved bytes by second of CPU time below which it does not pay.
    pub least_benefit: u64,
    /// Whether the kernel's advisor chooses `pages_to_scan`.
    pub advisor: bool,
}

impl Default for Goal {
    /// 5 % of a CPU, 4 MiB a second of it, `pages_to_scan` chosen here.
    fn default() -> Self {
        Self { cpu_percent: 5, least_benefit: LEAST_BENEFIT, advisor: false }
    }
}

crate::named! {
    /// Why a speed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Why {
        /// It begins: the whole budget.
        Start => "start",
        /// A visit costs more or less than was thought, or there is more or less memory.
        Budget => "budget",
        /// It pays.
        Pays => "pays",
        /// There is memory that was not there.
        NewMemory => "new_memory",
        /// Whole passes saved too little for their CPU time.
        NothingNew => "nothing_new",
    }
}

/// A knob to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobWrite {
    /// Which.
    pub file: File,
    /// To what; `advisor_mode` is 0 (none) or 1 (scan-time).
    pub value: u64,
    /// Why.
    pub why: Why,
}

/// Pages of a batch such that ksmd uses so much of a CPU.
///
/// * `cpu_percent` – 1 to 100; 100 counts as 99, since the sleep stays.
/// * `cost_ns` – CPU time by visit, in ns; 0 counts as 1.
/// * `sleep_millisecs` – between batches.
///
/// Returns 1 to [`PAGES_MAX`].
///
/// Source: specs/merge-drive.md#speed.
pub fn pages_for(cpu_percent: u32, cost_ns: u64, sleep_millisecs: u64) -> u64 {
    let percent = u64::from(cpu_percent.clamp(1, 99));
    let batch_ns =
        sleep_millisecs.saturating_mul(1_000_000).saturating_mul(percent) / (100 - percent);
    (batch_ns / cost_ns.max(1)).clamp(1, PAGES_MAX)
}

/// CPU time of ksmd until memory is merged for the first time, in ns: two passes over it.
///
/// * `pages` – pages that ksmd would visit in a pass.
/// * `cost_ns` – CPU time by visit.
///
/// Source: specs/merge-drive.md#speed.
pub const fn first_merge_ns(pages: u64, cost_ns: u64) -> u64 {
    pages.saturating_mul(2).saturating_mul(cost_ns)
}

/// The speed of ksmd as time goes by.
#[derive(Clone, Debug)]
pub struct Pace {
    goal: Goal,
    /// CPU time by visit, in ns.
    cost_ns: u64,
    cost_measured: bool,
    /// Halvings.
    slow: u32,
    /// What `pages_to_scan` was last ordered to be.
    pages: u64,
    /// Since when passes and what they saved are added up.
    mark: Reading,
    /// Since when the cost is measured.
    cost_mark: Reading,
    /// Whole passes since something was new.
    silent: u64,
    /// The larger of items and offered pages when last something was new.
    known_pages: u64,
    benefit: Option<i64>,
}

impl Pace {
    /// Before ksmd runs for us.
    pub fn new(goal: Goal, now: &Reading) -> Self {
        let since_boot = now.cost_since_boot();
        Self {
            goal,
            cost_ns: since_boot.unwrap_or(COST_NS),
            cost_measured: since_boot.is_some(),
            slow: 0,
            pages: 0,
            mark: *now,
            cost_mark: *now,
            silent: 0,
            known_pages: extent(now),
            benefit: None,
        }
    }

    /// What a visit costs in CPU time, in ns, and whether that was measured.
    pub const fn cost(&self) -> (u64, bool) {
        (self.cost_ns, self.cost_measured)
    }
    /// Bytes newly saved by second of CPU time, over the last whole passes.
    pub const fn benefit(&self) -> Option<i64> {
        self.benefit
    }
    /// By how much it is slower than the budget allows: 0 to [`SLOWEST`] halvings.
    pub const fn slow(&self) -> u32 {
        self.slow
    }

    /// What to set at first, in this order; `run` comes last.
    pub fn start(&mut self, now: &Reading) -> Vec<KnobWrite> {
        let why = Why::Start;
        let mut orders =
            vec![KnobWrite { file: File::SleepMillisecs, value: SLEEP_MILLISECS, why }];
        if self.goal.advisor {
            let max_cpu = u64::from(self.goal.cpu_percent);
            orders.push(KnobWrite { file: File::AdvisorMaxCpu, value: max_cpu, why });
            orders.push(self.target(why));
            orders.push(KnobWrite { file: File::AdvisorMode, value: 1, why });
        } else {
            self.pages = self.wanted(now);
            orders.push(KnobWrite { file: File::PagesToScan, value: self.pages, why });
        }
        orders.push(KnobWrite { file: File::Run, value: 1, why });
        orders
    }

    /// What to change, now that this was seen.
    pub fn poll(&mut self, now: &Reading) -> Option<KnobWrite> {
        self.measure(now);
        let slow = self.slow;
        let why = self.judge(now);
        if self.goal.advisor {
            return (self.slow != slow).then(|| self.target(why));
        }
        let wanted = self.wanted(now);
        // An eighth more or less is what measuring the cost gives by itself.
        let far = wanted.abs_diff(self.pages) * 8 > self.pages;
        if self.slow == slow && !far {
            return None;
        }
        self.pages = wanted;
        let why = if self.slow == slow { Why::Budget } else { why };
        Some(KnobWrite { file: File::PagesToScan, value: wanted, why })
    }

    fn target(&self, why: Why) -> KnobWrite {
        KnobWrite { file: File::AdvisorTargetScanTime, value: ADVISOR_TARGET << self.slow, why }
    }

    fn wanted(&self, now: &Reading) -> u64 {
        let full = pages_for(self.goal.cpu_percent, self.cost_ns, SLEEP_MILLISECS) >> self.slow;
        // A batch ends with its pass: more pages than a pass has change nothing
        // today, and break the budget on the day when memory grows.
        full.min(extent(now).max(1000) + 1).max(1)
    }

    fn measure(&mut self, now: &Reading) {
        let since = Interval::between(&self.cost_mark, now);
        if since.cpu_ns < MEASURED_NS {
            return;
        }
        self.cost_mark = *now;
        if since.visits < 1000 {
            return;
        }
        let seen = (since.cpu_ns / since.visits).max(1);
        // The first measurement stands for itself, later ones weigh a half.
        self.cost_ns = if self.cost_measured { (self.cost_ns + seen).div_ceil(2) } else { seen };
        self.cost_measured = true;
    }

    /// Sets the number of halvings; why, where it has changed.
    fn judge(&mut self, now: &Reading) -> Why {
        let pages = extent(now);
        if pages > self.known_pages + self.known_pages / 8 + 256 {
            (self.known_pages, self.silent, self.slow, self.mark) = (pages, 0, 0, *now);
            return Why::NewMemory;
        }
        self.known_pages = self.known_pages.min(pages.max(1));
        if now.full_scans < self.mark.full_scans {
            self.mark = *now;
        }
        let since = Interval::between(&self.mark, now);
        if since.passes == 0 {
            return Why::Budget;
        }
        self.mark = *now;
        self.benefit = since.benefit();
        let enough = match self.benefit {
            Some(benefit) => benefit >= 0 && benefit.unsigned_abs() >= self.goal.least_benefit,
            // No tick of the clock was used: what came of it came for nothing.
            None => since.saved_bytes > 0,
        };
        if enough && since.saved_bytes > 0 {
            (self.silent, self.slow) = (0, 0);
            return Why::Pays;
        }
        self.silent += since.passes;
        if self.silent >= PASSES_OF_GRACE {
            self.slow = (self.slow + 1).min(SLOWEST);
        }
        Why::NothingNew
    }
}

/// How many pages a pass may have.
fn extent(r: &Reading) -> u64 {
    r.items().max(r.offered_pages)
}

#[cfg(test)]
mod tests;
