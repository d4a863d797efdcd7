//! Whether pages move by themselves or with the huge page that they are in.
//!
//! No source tells which memory is in huge pages, and it changes. But a page that is moved takes the
//! rest of its huge page along, and that shows: the order takes hundreds of times as long as its pages would.
//! So where pages are told apart, the first order of a process names a few, and others wait for its report:
//!
//! ```text
//! 8 pages took  25 µs  ─▶ each by itself
//! 8 pages took 900 µs  ─▶ the next 8 of the plan; three times in a row ─▶ with the others of its
//!                         chunk: pages of this process are not told apart any more, and
//!                         chunks are ordered whole
//! ```
//!
//! Three times, since an order may be held up for other reasons. As long as nothing is known, a page
//! goes down only where its whole chunk is as cold: else the page that everybody uses goes down with the
//! cold ones beside it. After each order that took long, where the rest of the chunk is has to be
//! looked up, and what was planned for it is dropped.
//!
//! Source: specs/engine.md#along.

use super::Engine;
use super::open::Open;
use super::pairs::CHUNK;
use crate::policy::span::Span;
use crate::units::{Pages, Picos};
use std::collections::BTreeSet;

/// Pages of an order that tries.
pub(super) const TRIED: u64 = 8;
/// So many times of what its pages take by themselves are too many: a thirty-second of a huge page.
const TOO_LONG: u64 = CHUNK / 32;
/// In a row.
const TIMES: u32 = 3;

/// How pages of a process move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Nobody has tried, or so many orders in a row took too long.
    Unknown { long: u32 },
    /// An order is on its way, after so many that took too long.
    Trying { long: u32 },
    /// By themselves, as far as orders have shown.
    Alone,
    /// With the huge page that they are in.
    Together,
}

impl Default for Along {
    fn default() -> Self {
        Self::Unknown { long: 0 }
    }
}

impl Along {
    /// Most pages that an order may name now, of `limit`; 0 while one tries.
    ///
    /// * `apart` – pages of the process are told apart.
    pub(super) fn may_name(self, apart: bool, limit: u64) -> u64 {
        match self {
            _ if !apart => limit,
            Self::Unknown { .. } => limit.min(TRIED),
            Self::Trying { .. } => 0,
            Self::Alone | Self::Together => limit,
        }
    }

    /// Whether orders have shown that pages move by themselves.
    pub(super) fn is_alone(self) -> bool {
        self == Self::Alone
    }

    /// How many pages move as one, as far as orders have shown.
    pub(super) fn unit(self) -> u64 {
        match self {
            Self::Unknown { .. } | Self::Trying { .. } | Self::Alone => 1,
            Self::Together => CHUNK,
        }
    }

    /// An order is given.
    pub(super) fn tries(&mut self, apart: bool) {
        if let (Self::Unknown { long }, true) = (*self, apart) {
            *self = Self::Trying { long };
        }
    }
}

impl Engine {
    /// An order that moves pages has reported.
    pub(super) fn learn_along(&mut self, open: &Open, moved: Pages, took: Picos) {
        let alone = self.per_page.saturating_mul(moved.0);
        let Some(p) = self.processes.get_mut(&open.who) else { return };
        let (long, tried) = match p.along {
            Along::Trying { long } => (long, true),
            Along::Unknown { long } => (long, false),
            Along::Alone if p.apart().is_some() => (0, true),
            Along::Alone | Along::Together => return,
        };
        if moved.0 == 0 {
            // It tells nothing.
            p.along = Along::Unknown { long };
            return;
        }
        if took.0 <= alone.saturating_mul(TOO_LONG) {
            // Of whole chunks all would have come along anyway, in hardly more time.
            let ends =
                open.spans.iter().flat_map(|s| [s.start / CHUNK, s.end.saturating_sub(1) / CHUNK]);
            let chunks = ends.collect::<BTreeSet<u64>>().len() as u64;
            if chunks.saturating_mul(CHUNK) > moved.0.saturating_mul(TOO_LONG) {
                p.along = Along::Alone;
            }
            return;
        }
        if !tried {
            // Nobody tried it: the machine may be slow.
            return;
        }
        // Others have come along, and may be what everybody wants: where they are is not known.
        for span in &open.spans {
            let end = span.end.div_ceil(CHUNK).saturating_mul(CHUNK);
            let chunks = Span { start: span.start / CHUNK * CHUNK, end };
            p.map.visit(chunks, |_, c, _| c.lose());
            // What is planned for them was planned for pages that are elsewhere by now.
            self.plan.leave_out(open.who, chunks);
        }
        if long + 1 < TIMES {
            p.along = Along::Unknown { long: long + 1 };
            return;
        }
        p.along = Along::Together;
        p.map.join_chunks(&self.settings.scales());
        self.plan.forget_moves(open.who);
        self.decide_soon();
    }
}
