//! How much stays free, and whether a promotion may take some of it.
//!
//! ```text
//!  free pages of a zone
//!  ───────────────────── promo: kswapd stops here while tiering is on
//!     band of promotions
//!  ───────────────────── high: promotions stop here; kswapd stops here otherwise
//!  ───────────────────── low: ordinary allocation wakes kswapd
//!  ───────────────────── min: direct reclaim
//! ```
//!
//! Worked example, one zone of 1048576 pages, `min_free_kbytes` 8192: min 2048,
//! d = max(2048/4, 1048) = 1048, low 3096, high 4144, promo 5192.

use crate::scenario::{AdmissionChoice, Margin};
use crate::topology::{Zone, ZoneKind};
use crate::units::{Bytes, Pages};

/// `min_free_kbytes` that the kernel computes from the memory that is not in
/// movable zones, in kB: 128 to 262144.
///
/// Source: specs/tiering.md#watermarks.
pub fn min_free_kbytes(lowmem: Pages) -> u64 {
    let kb = lowmem.0 * 4;
    (kb * 16).isqrt().clamp(128, 262_144)
}

/// To what `min_free_kbytes` is raised while huge pages are used, in kB, for
/// `nr_zones` populated zones that are not movable.
///
/// Source: specs/tiering.md#watermarks.
pub fn huge_page_min_free_kbytes(nr_zones: u64, lowmem: Pages) -> u64 {
    4 * (5632 * nr_zones).min(lowmem.0 / 20)
}

/// Marks of one zone, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneMarks {
    /// The zone's kind.
    pub kind: ZoneKind,
    /// Managed pages.
    pub managed: Pages,
    /// Direct reclaim below.
    pub min: Pages,
    /// kswapd is woken below.
    pub low: Pages,
    /// kswapd stops above; promotions need more than this.
    pub high: Pages,
    /// kswapd stops above while tiering is on.
    pub promo: Pages,
    /// Kept from allocations that could also use the higher zones of the node.
    pub reserve: Pages,
}

/// Whether `free` pages satisfy a mark with its reserve: strictly more.
#[inline]
pub const fn is_above(free: Pages, mark: Pages, reserve: Pages) -> bool {
    free.0 > mark.0.saturating_add(reserve.0)
}

impl ZoneMarks {
    /// Whether `free` is above `mark` (one of this zone's, or one plus something).
    #[inline]
    pub const fn is_above(&self, free: Pages, mark: Pages) -> bool {
        is_above(free, mark, self.reserve)
    }
}

/// What the marks of all zones depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkKnobs {
    /// `min_free_kbytes`, written or computed.
    pub min_free_kbytes: u64,
    /// `watermark_scale_factor`.
    pub scale_factor: u32,
    /// Managed pages of all zones of the machine that are not movable.
    pub lowmem: Pages,
    /// How far kswapd aims above high.
    pub margin: Margin,
}

impl MarkKnobs {
    /// The kernel's figures for a machine: `zones` are all zones of all nodes.
    /// Huge pages raise a computed `min_free_kbytes`, not a written one. What is computed is the
    /// part of the machine that this one stands for.
    pub fn new(knobs: &crate::knobs::Knobs, margin: Margin, zones: &[Zone]) -> Self {
        let low = || zones.iter().filter(|z| z.kind != ZoneKind::Movable && z.managed.0 > 0);
        let lowmem: Pages = low().map(|z| z.managed).sum();
        let min_free_kbytes = match knobs.min_free_kbytes {
            Some(kb) => u64::from(kb),
            None => {
                let full = Pages(knobs.scale.whole(lowmem.0));
                let huge = match knobs.transparent_hugepage {
                    crate::knobs::HugePages::Never => 0,
                    crate::knobs::HugePages::Madvise | crate::knobs::HugePages::Always => {
                        huge_page_min_free_kbytes(low().count() as u64, full)
                    }
                };
                knobs.scale.part(min_free_kbytes(full).max(huge))
            }
        };
        Self { min_free_kbytes, scale_factor: knobs.watermark_scale_factor, lowmem, margin }
    }

    /// Marks of the zones of one node.
    ///
    /// Source: specs/tiering.md#watermarks.
    pub fn node(&self, zones: &[Zone]) -> Vec<ZoneMarks> {
        zones
            .iter()
            .map(|z| {
                let higher: u64 =
                    zones.iter().filter(|h| h.kind > z.kind).map(|h| h.managed.0).sum();
                let ratio = match z.kind {
                    ZoneKind::Dma | ZoneKind::Dma32 => 256,
                    ZoneKind::Normal | ZoneKind::Movable => 32,
                };
                self.zone(*z, Pages(higher / ratio))
            })
            .collect()
    }

    /// What kswapd keeps free of a node while tiering is on, which is what promotions don't fill.
    pub fn kept(&self, zones: &[Zone]) -> Pages {
        self.node(zones).iter().map(|m| m.promo).sum()
    }

    fn zone(&self, zone: Zone, reserve: Pages) -> ZoneMarks {
        let managed = zone.managed.0;
        let wide = |a: u64, b: u64, c: u64| match c {
            // All memory is movable: there is nothing that min_free_kbytes could be shared by.
            0 => 0,
            _ => u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX),
        };
        let share = wide(self.min_free_kbytes / 4, managed, self.lowmem.0);
        let d = (share / 4).max(wide(managed, u64::from(self.scale_factor), 10_000));
        let min = match zone.kind {
            // Nothing in there is needed in an emergency: a token amount is kept.
            ZoneKind::Movable => (managed / 1024).clamp(32, 128),
            _ => share,
        };
        let (low, high) = (min + d, min + 2 * d);
        let above = match self.margin {
            Margin::Kernel => d,
            Margin::SeedQuarter => high / 4,
            Margin::PostedQuarter => (high / 4).max(Pages::holding(Bytes(10 << 20)).0),
        };
        ZoneMarks {
            kind: zone.kind,
            managed: zone.managed,
            min: Pages(min),
            low: Pages(low),
            high: Pages(high),
            promo: Pages(high + above),
            reserve,
        }
    }
}

/// Whether a promotion may enter its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Admit {
        /// By which of the zones, counted as they were given.
        zone: usize,
        /// Choice *a* only: what remains is at or below low, so kswapd is woken.
        wake_demotion: bool,
    },
    /// It may not.
    Refuse {
        /// kswapd of the target is woken to demote.
        wake_demotion: bool,
    },
}

impl Admission {
    /// Whether it is admitted.
    #[inline]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admit { .. })
    }
    /// Whether kswapd of the target is woken.
    #[inline]
    pub const fn wakes(self) -> bool {
        match self {
            Self::Admit { wake_demotion, .. } | Self::Refuse { wake_demotion } => wake_demotion,
        }
    }
}

/// Who is woken on a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeFacts {
    /// The tiering bit is set.
    pub tiering: bool,
    /// Demotion is enabled and the target has a slower node to demote to.
    pub can_demote: bool,
}

/// Admission to a node: one zone that has room is enough.
///
/// Source: specs/tiering.md#admission.
#[inline]
pub fn admit_node(
    zones: impl IntoIterator<Item = (Pages, ZoneMarks)>,
    n: Pages,
    choice: AdmissionChoice,
    margin: Margin,
    wake: WakeFacts,
) -> Admission {
    let wakes = wake.tiering && (margin != Margin::PostedQuarter || wake.can_demote);
    for (zone, (free, m)) in zones.into_iter().enumerate() {
        match choice {
            AdmissionChoice::B if m.is_above(free, m.high + n) => {
                return Admission::Admit { zone, wake_demotion: false };
            }
            AdmissionChoice::A if m.is_above(free, m.min + n) => {
                let left = free.saturating_sub(n);
                return Admission::Admit { zone, wake_demotion: !m.is_above(left, m.low) };
            }
            _ => {}
        }
    }
    Admission::Refuse { wake_demotion: wakes }
}

/// Whether a node has so much room that everything is promoted to it: some zone
/// has more than its promo mark and [`super::promote::plenty`] free.
///
/// Source: specs/tiering.md#promotion, step 1.
#[inline]
pub fn has_plenty(zones: impl IntoIterator<Item = (Pages, ZoneMarks)>, present: Pages) -> bool {
    let enough = super::promote::plenty(present);
    zones.into_iter().any(|(free, m)| m.is_above(free, m.promo + enough))
}

/// The mark at which kswapd regards a zone as balanced: promo while tiering is
/// on (the posted margin: only where the node can demote), else high.
///
/// Source: specs/tiering.md#kswapd.
#[inline]
pub fn balance_mark(m: &ZoneMarks, margin: Margin, wake: WakeFacts) -> Pages {
    if wake.tiering && (margin != Margin::PostedQuarter || wake.can_demote) {
        m.promo
    } else {
        m.high
    }
}

/// Whether a node is balanced: some zone is above its mark. A node without
/// zones is balanced.
///
/// * `wants` – pages that somebody wants at once, at least 1: as many more but one are free.
/// * `aim` – the mark: [`balance_mark`], or what stands in its place.
///
/// Source: specs/tiering.md#kswapd.
#[inline]
pub fn is_balanced(
    zones: impl IntoIterator<Item = (Pages, ZoneMarks)>,
    wants: Pages,
    aim: impl Fn(&ZoneMarks) -> Pages,
) -> bool {
    let mut empty = true;
    for (free, m) in zones {
        empty = false;
        if m.is_above(free, aim(&m) + wants.saturating_sub(Pages(1))) {
            return true;
        }
    }
    empty
}

/// MGLRU's early end of a round (6.12 and later): all zones are above the mark and 64 pages.
///
/// Source: specs/tiering.md#kswapd.
#[inline]
pub fn mglru_aborts(
    zones: impl IntoIterator<Item = (Pages, ZoneMarks)>,
    margin: Margin,
    wake: WakeFacts,
) -> bool {
    zones.into_iter().all(|(free, m)| m.is_above(free, balance_mark(&m, margin, wake) + Pages(64)))
}

#[cfg(test)]
mod tests;
