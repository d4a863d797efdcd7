//! What goes where a fast node is slower under its load than the node below it.
//!
//! ```text
//! loads told ─▶ shares of the heat, by node ─▶ Level: how much should be where
//!                  ├─ up to a share: candidates beyond it stay
//!                  └─ down to a share: hottest first, each process the same part of its heat
//! loads told again, and both answer alike ─▶ what is not ordered yet stays
//! ```
//!
//! Source: specs/engine.md#under-load.

use super::Engine;
use super::heat::Rate;
use super::level::{Aim, ONE, is_more};
use super::nodes::{UnderLoad, saving};
use super::plan::{Candidate, Piece, times};
use crate::policy::order::Reason;
use crate::policy::span::Who;
use crate::policy::{Verdict, Why};
use crate::units::NodeId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What might go down.
struct Hot {
    heat: Rate,
    /// What of it is waited for.
    waited: Rate,
    piece: Piece,
}

/// Who serves how much of the heat, as rate times pages.
pub(super) struct Shares {
    takes: UnderLoad,
    fast: u128,
    slow: u128,
    /// What the fast node has, where it is the slower one.
    hot: Vec<Hot>,
    /// Of the process that is judged, something was forbidden to be moved. It keeps its memory
    /// where it wants it, so none of it counts.
    pub(super) refused: bool,
}

impl Shares {
    /// Counts pages of a stretch whose home is the fast node, with their heat and what of it is
    /// waited for; says whether they may go down.
    pub(super) fn add(
        &mut self,
        at_home: bool,
        top: bool,
        is_stale: bool,
        (heat, waited): (Rate, Rate),
        piece: Piece,
    ) -> bool {
        if self.refused {
            return false;
        }
        let all = u128::from(heat) * u128::from(piece.pages);
        if at_home {
            self.fast = self.fast.saturating_add(all);
            if heat > 0 && !is_stale && is_more(self.takes.fast, self.takes.slow) {
                let why = Reason::SlowUnderLoad;
                let piece = Piece { to: self.takes.below, why, ..piece };
                self.hot.push(Hot { heat, waited, piece });
                return true;
            }
        } else if !top {
            self.slow = self.slow.saturating_add(all);
        }
        false
    }
}

impl Engine {
    /// Empty shares of all fast nodes whose load is told.
    pub(super) fn shares_under_load(&self) -> BTreeMap<NodeId, Shares> {
        let told = |node| Some((node, self.nodes.under_load(node)?));
        let empty = |(node, takes)| {
            (node, Shares { takes, fast: 0, slow: 0, hot: Vec::new(), refused: false })
        };
        self.nodes.fast_nodes().into_iter().filter_map(told).map(empty).collect()
    }

    /// Bounds what goes up to a fast node by what it can serve, or plans what goes down.
    ///
    /// Source: specs/engine.md#under-load.
    pub(super) fn under_load(&mut self, node: NodeId, shares: Shares, up: &mut Vec<Candidate>) {
        let all = shares.fast.saturating_add(shares.slow);
        let part = |of: u128| {
            let p = of.saturating_mul(u128::from(ONE)).checked_div(all);
            p.and_then(|p| u64::try_from(p).ok()).unwrap_or(0)
        };
        let heat = |p: u64| all.saturating_mul(u128::from(p)) / u128::from(ONE);
        let p = part(shares.fast);
        let aim = match all {
            0 => Aim::Free,
            _ => self.levels.entry(node).or_default().aim(p, shares.takes.fast, shares.takes.slow),
        };
        let down = match aim {
            Aim::Free => 0,
            Aim::Stay => {
                self.bound_up(up, 0);
                0
            }
            Aim::UpTo(to) => {
                self.bound_up(up, heat(to - p));
                0
            }
            Aim::DownTo(to) => {
                self.bound_up(up, 0);
                heat(p - to)
            }
        };
        self.lower(shares, down);
    }

    /// Of what would come up from slow nodes, hottest first, so much heat may.
    fn bound_up(&mut self, up: &mut Vec<Candidate>, most: u128) {
        let (mut from_slow, mut kept): (Vec<_>, Vec<_>) =
            std::mem::take(up).into_iter().partition(|c| !self.nodes.is_top(c.piece.from));
        from_slow.sort_by(|a, b| b.cmp(a));
        let mut left = most;
        for mut c in from_slow {
            let fits = left / u128::from(c.heat.max(1));
            let fits = u64::try_from(fits).unwrap_or(u64::MAX).min(c.piece.pages);
            let head = c.piece.head(fits);
            let fits = head.as_ref().map_or(0, |h| h.pages);
            let stays = c.piece.pages - fits;
            self.ledger.judge(Verdict::Stay { why: Why::NotWorthIt }, stays);
            left -= left.min(u128::from(c.heat) * u128::from(fits));
            if let Some(head) = head {
                c.piece = c.piece.with(head);
                kept.push(c);
            }
        }
        *up = kept;
    }

    /// Plans that so much heat goes down: the hottest first, of each process the same part.
    fn lower(&mut self, shares: Shares, down: u128) {
        let Shares { takes, fast, mut hot, .. } = shares;
        hot.sort_by_key(|h| (Reverse(h.heat), h.piece.who, h.piece.span));
        let mut left: BTreeMap<Who, u128> = BTreeMap::new();
        for Hot { heat, piece, .. } in &hot {
            let its = left.entry(piece.who).or_default();
            *its = its.saturating_add(u128::from(*heat) * u128::from(piece.pages));
        }
        // Of all that is there, as 2^-32. Sums of heat are below 2^96: a rate is below 2^46.
        let part = down.min(fast).min(u128::MAX >> 32) << 32;
        let part = part.checked_div(fast).unwrap_or(0);
        for its in left.values_mut() {
            *its = its.saturating_mul(part) >> 32;
        }
        // As the difference goes while they go, each saves half of it.
        let gain = takes.fast.saturating_sub(takes.slow) / 2;
        let queue = self.plan.up.entry(takes.below).or_default();
        for Hot { heat, waited, piece } in hot {
            let each = saving(waited, gain, 1, self.settings.horizon);
            let its = left.entry(piece.who).or_default();
            let fits = u64::try_from(*its / u128::from(heat)).unwrap_or(u64::MAX);
            let fits = if each > u128::from(self.per_page) { fits.min(piece.pages) } else { 0 };
            let head = piece.head(fits);
            let stays = piece.pages - head.as_ref().map_or(0, |h| h.pages);
            self.ledger.judge(Verdict::Stay { why: Why::Home }, stays);
            let Some(head) = head else { continue };
            let pages = head.pages;
            *its -= u128::from(heat) * u128::from(pages);
            self.ledger.judge(Verdict::Move { to: piece.to, why: piece.why }, pages);
            queue.push_back(Piece { saves: times(each, pages), gains: 0, ..piece.with(head) });
        }
    }

    /// Loads were told: what was planned to even them out stays where they are even.
    ///
    /// Source: specs/engine.md#under-load.
    pub(super) fn heed_load(&mut self) {
        for (&node, level) in &self.levels {
            let Some(UnderLoad { below, fast, slow }) = self.nodes.under_load(node) else {
                continue;
            };
            if fast <= slow {
                if let Some(queue) = self.plan.up.get_mut(&below) {
                    queue.retain(|p| p.why != Reason::SlowUnderLoad || p.from != node);
                }
            }
            if level.was_slower() && fast >= slow {
                if let Some(queue) = self.plan.up.get_mut(&node) {
                    queue.retain(|p| p.why != Reason::Hot);
                }
            }
        }
    }
}
