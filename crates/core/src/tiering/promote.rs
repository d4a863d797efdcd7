//! What is hot: promotion from slow nodes.
//!
//! The scan writes its time into a slow page; the hint fault reads how long the
//! page took to be accessed again. Short is hot. Before that, a fast node with
//! plenty of room takes everything; after it, a rate limit holds promotion to
//! what the link can take. The threshold adapts so that the candidates just fill
//! the rate.
//!
//! Worked example, defaults: hot 1000 ms, step 2·1000/16 = 125 ms, range 125 to
//! 2000 ms; 65536 MB/s is never reached, so the threshold climbs to 2000 ms in
//! 8 steps of one `scan_period_max_ms` each.

use crate::kernel::KernelVersion;
use crate::knobs::Knobs;
use crate::numa::filter::{Verdict, Why};
use crate::units::{NodeId, PAGE_SIZE, Pages};

/// A time in ms in a page's 21 bits of last access; wraps after 2097 s.
///
/// Source: specs/tiering.md#access-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccessTime(u32);

impl AccessTime {
    /// Bits of the field.
    pub const BITS: u32 = crate::numa::faults::PID_BITS + crate::numa::faults::CPU_BITS;
    const MASK: u32 = (1 << Self::BITS) - 1;

    /// The field for this time.
    #[inline]
    pub const fn new(now_ms: u32) -> Self {
        Self(now_ms & Self::MASK)
    }
    /// From stored bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }
    /// The stored bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }
    /// From then until `now_ms`, modulo 2^21 ms: an old page may look new.
    #[inline]
    pub const fn latency_ms(self, now_ms: u32) -> u32 {
        now_ms.wrapping_sub(self.0) & Self::MASK
    }
}

/// The knobs of promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromoteKnobs {
    /// In ms.
    pub hot_threshold_ms: u32,
    /// In ms; how often the threshold adapts.
    pub scan_period_max_ms: u32,
    /// In 2^20 bytes a second.
    pub rate_limit_mbps: u32,
}

impl PromoteKnobs {
    /// The part of the table that promotion needs.
    pub const fn of(knobs: &Knobs) -> Self {
        Self {
            hot_threshold_ms: knobs.hot_threshold_ms,
            scan_period_max_ms: knobs.scan_period_max_ms,
            rate_limit_mbps: knobs.promote_rate_limit_mbps,
        }
    }
    /// Pages a second; wraps at 32 bits, as the kernel's shift does.
    #[inline]
    pub const fn rate_pages(self) -> u64 {
        self.rate_limit_mbps.wrapping_mul(1 << 8) as u64
    }
}

/// Promotion state of a destination node. Times are the kernel's 32-bit
/// milliseconds ([`crate::kernel::jiffies_to_msecs`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromoteNode {
    /// Adapted threshold in ms; 0: `hot_threshold_ms` holds.
    pub threshold_ms: u32,
    /// When the threshold was adapted last.
    pub threshold_start_ms: u32,
    /// Candidates counted by then.
    pub threshold_base: u64,
    /// When the rate's window began.
    pub rate_start_ms: u32,
    /// Candidates counted by then.
    pub rate_base: u64,
    /// `pgpromote_candidate`: hot pages, promoted or not.
    pub nr_candidates: u64,
    /// `pgpromote_candidate_nrl` (7.3 shows it): pages taken since there was room.
    pub nr_candidates_unlimited: u64,
}

impl PromoteNode {
    /// What switching tiering on does.
    ///
    /// Source: specs/tiering.md#bits.
    pub fn reset(&mut self, now_ms: u32) {
        self.threshold_ms = 0;
        self.threshold_base = self.nr_candidates;
        self.threshold_start_ms = now_ms;
    }

    /// The threshold in force, in ms.
    #[inline]
    pub const fn threshold(&self, knobs: PromoteKnobs) -> u32 {
        if self.threshold_ms == 0 { knobs.hot_threshold_ms } else { self.threshold_ms }
    }

    /// Whether a slow page at which a hint fault happened is promoted to `to`,
    /// the accessing CPU's node. `page` is its scan time, which becomes now
    /// unless the node has room.
    ///
    /// * `room` – what [`super::watermarks::has_plenty`] says of the node.
    ///
    /// Source: specs/tiering.md#promotion.
    #[inline]
    pub fn decide(
        &mut self,
        to: NodeId,
        now_ms: u32,
        room: bool,
        page: &mut AccessTime,
        nr_pages: Pages,
        knobs: PromoteKnobs,
    ) -> Verdict {
        if room {
            self.threshold_ms = 0;
            self.nr_candidates_unlimited += nr_pages.0;
            return Verdict::Move { to, why: Why::FastNodeHasRoom };
        }
        self.adjust(now_ms, knobs);
        let latency = page.latency_ms(now_ms);
        *page = AccessTime::new(now_ms);
        if latency >= self.threshold(knobs) {
            return Verdict::Stay { why: Why::Cold };
        }
        if self.is_limited(now_ms, nr_pages, knobs) {
            return Verdict::Stay { why: Why::RateLimited };
        }
        Verdict::Move { to, why: Why::Hot }
    }

    /// Adapts the threshold if its interval is over.
    ///
    /// Source: specs/tiering.md#threshold.
    #[inline]
    pub fn adjust(&mut self, now_ms: u32, knobs: PromoteKnobs) {
        if now_ms.wrapping_sub(self.threshold_start_ms) <= knobs.scan_period_max_ms {
            return;
        }
        self.threshold_start_ms = now_ms;
        let reference = knobs.rate_pages() * u64::from(knobs.scan_period_max_ms) / 1000;
        let seen = self.nr_candidates.wrapping_sub(self.threshold_base);
        let hot = knobs.hot_threshold_ms;
        let (top, unit) = (hot.saturating_mul(2), hot.saturating_mul(2) / 16);
        let th = self.threshold(knobs);
        self.threshold_ms = if seen > reference * 11 / 10 {
            th.saturating_sub(unit).max(unit)
        } else if seen < reference * 9 / 10 {
            th.saturating_add(unit).min(top)
        } else {
            th
        };
        self.threshold_base = self.nr_candidates;
    }

    /// Counts candidates and says whether the node's rate is used up. The first
    /// folio of a window is free, unless the rate is 0.
    ///
    /// Source: specs/tiering.md#rate.
    #[inline]
    pub fn is_limited(&mut self, now_ms: u32, nr_pages: Pages, knobs: PromoteKnobs) -> bool {
        self.nr_candidates = self.nr_candidates.wrapping_add(nr_pages.0);
        if now_ms.wrapping_sub(self.rate_start_ms) > 1000 {
            self.rate_start_ms = now_ms;
            self.rate_base = self.nr_candidates;
        }
        self.nr_candidates.wrapping_sub(self.rate_base) >= knobs.rate_pages()
    }
}

/// Whether a page that a hint fault moved counts in `pgpromote_success`.
///
/// * `promotion` – from a slow node to a fast one, while tiering is on.
/// * `upwards` – the same in 6.1's wider sense: between tiers, to a fast node.
///
/// Source: specs/tiering.md#promotion.
pub fn counts_as_promotion(version: KernelVersion, promotion: bool, upwards: bool) -> bool {
    promotion || (version == KernelVersion::V6_1 && upwards)
}

/// Free memory above the promo mark at which a node takes everything: 1 GiB or a
/// sixteenth of what is present.
///
/// Source: specs/tiering.md#promotion, step 1.
#[inline]
pub fn plenty(present: Pages) -> Pages {
    Pages(((1u64 << 30) / PAGE_SIZE).max(present.0 / 16))
}

#[cfg(test)]
mod tests;
