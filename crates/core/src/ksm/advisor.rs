//! The advisor: `pages_to_scan` from how long a pass took.
//!
//! Terms: t, seconds of the pass; s, the target; c, percent of a CPU that ksmd
//! used in it. With 500 pages a batch, t = 20, s = 200 and 1 s of CPU time
//! (c = 5): the pass was ten times faster than asked, so factor = 1000 and 50
//! pages would do; the smoothed change is 30 % at first, so 15; but 5 % for 500
//! pages means 100 pages for a percent, and ksmd is to use ten percent at
//! least: 1000.

use super::Now;

/// Weight of the new value in the smoothed change, in percent.
const EWMA_WEIGHT: u64 = 30;
/// The least that ksmd is to use, in percent of a CPU.
const MIN_CPU: u64 = 10;

/// `advisor_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdvisorMode {
    /// `pages_to_scan` is as written.
    #[default]
    None,
    /// `pages_to_scan` follows the time of a pass.
    ScanTime,
}

/// The advisor's knobs and what it remembers from pass to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advisor {
    /// `advisor_mode`.
    pub mode: AdvisorMode,
    /// `advisor_max_cpu`, percent of a CPU.
    pub max_cpu: u32,
    /// `advisor_min_pages_to_scan`: where it starts, not a floor.
    pub min_pages_to_scan: u64,
    /// `advisor_max_pages_to_scan`.
    pub max_pages_to_scan: u64,
    /// `advisor_target_scan_time` in seconds, above 0.
    pub target_scan_time: u64,
    start_ns: u64,
    last_scan_s: u64,
    last_cpu_ns: u64,
    change: u64,
}

impl Default for Advisor {
    fn default() -> Self {
        Self {
            mode: AdvisorMode::None,
            max_cpu: 70,
            min_pages_to_scan: 500,
            max_pages_to_scan: 30_000,
            target_scan_time: 200,
            start_ns: 0,
            last_scan_s: 0,
            last_cpu_ns: 0,
            change: 0,
        }
    }
}

impl Advisor {
    /// Switch to `mode`; returns what `pages_to_scan` becomes, `None` where the
    /// mode is the present one.
    ///
    /// Everything learnt is forgotten, also when the running pass began: until
    /// the next one begins, time counts from boot.
    ///
    /// Source: specs/ksm.md#advisor.
    pub fn switch(&mut self, mode: AdvisorMode) -> Option<u32> {
        if self.mode == mode {
            return None;
        }
        self.mode = mode;
        (self.start_ns, self.last_scan_s, self.last_cpu_ns, self.change) = (0, 0, 0, 0);
        Some(match mode {
            AdvisorMode::None => super::PAGES_TO_SCAN,
            AdvisorMode::ScanTime => self.min_pages_to_scan as u32,
        })
    }

    /// A pass begins.
    pub fn pass_begins(&mut self, now: &Now) {
        if self.mode == AdvisorMode::ScanTime {
            self.start_ns = now.ns;
        }
    }

    /// A pass is over: the new `pages_to_scan`.
    ///
    /// * `pages` – the present `pages_to_scan`.
    ///
    /// Source: specs/ksm.md#advisor.
    pub fn pass_ends(&mut self, pages: u32, now: &Now) -> u32 {
        if self.mode == AdvisorMode::None {
            return pages;
        }
        let old = u64::from(pages);
        let t = (now.ns.saturating_sub(self.start_ns) / 1_000_000_000).max(1);
        let cpu_ms = now.ksmd_cpu_ns.saturating_sub(self.last_cpu_ns) / 1_000_000;
        let cpu_percent = (cpu_ms * 100 / (t * 1000)).max(1);
        let last = if self.last_scan_s == 0 { t } else { self.last_scan_s };
        let factor = (self.target_scan_time.saturating_mul(100) / t).max(1);
        let change = (t * 100 / last).max(1);
        let change = ((100 - EWMA_WEIGHT) * self.change + EWMA_WEIGHT * change) / 100;
        let wanted = (old * 100 / factor).saturating_mul(change) / 100;
        let unit = (old / cpu_percent).max(1);
        let new = wanted
            .min(unit.saturating_mul(u64::from(self.max_cpu)))
            .max(unit.saturating_mul(MIN_CPU))
            .min(self.max_pages_to_scan);
        (self.change, self.last_scan_s, self.last_cpu_ns) = (change, t, now.ksmd_cpu_ns);
        new as u32
    }
}

#[cfg(test)]
mod tests;
