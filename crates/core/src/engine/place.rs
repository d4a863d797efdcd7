//! Where pages of a stretch are, as far as it was told.
//!
//! Nearly all stretches are on one node, and there are many of them: so one node needs no
//! memory of its own.

use crate::units::{NodeId, Picos};
use std::ops::Deref;

/// Pages by node, rising, none of 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum OnNodes {
    /// Nothing is there.
    #[default]
    Nowhere,
    One((NodeId, u64)),
    Several(Box<[(NodeId, u64)]>),
}

impl OnNodes {
    /// Pages on one node, if there are any.
    pub(super) fn one(node: NodeId, pages: u64) -> Self {
        if pages == 0 { Self::Nowhere } else { Self::One((node, pages)) }
    }
    fn of(all: Vec<(NodeId, u64)>) -> Self {
        match all[..] {
            [] => Self::Nowhere,
            [one] => Self::One(one),
            _ => Self::Several(all.into()),
        }
    }
    fn all_mut(&mut self) -> &mut [(NodeId, u64)] {
        match self {
            Self::Nowhere => &mut [],
            Self::One(one) => std::slice::from_mut(one),
            Self::Several(all) => all,
        }
    }
}

impl Deref for OnNodes {
    type Target = [(NodeId, u64)];
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Nowhere => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(all) => all,
        }
    }
}

/// Where pages of a stretch are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// When that was so.
    pub(super) at: Picos,
    pub(super) on: OnNodes,
}

impl Place {
    pub(super) fn pages_on(&self, node: NodeId) -> u64 {
        self.on.iter().find(|(n, _)| *n == node).map_or(0, |(_, p)| *p)
    }
    /// Whether all pages that are in memory are on nodes for which `is` holds.
    pub(super) fn is_all_on(&self, is: impl Fn(NodeId) -> bool) -> bool {
        self.on.iter().all(|(node, _)| is(*node))
    }
    /// Pages in memory.
    pub(super) fn present(&self) -> u64 {
        self.on.iter().fold(0, |t, (_, p)| t.saturating_add(*p))
    }
    /// Another node's pages are added.
    pub(super) fn add(&mut self, node: NodeId, pages: u64) {
        if pages == 0 {
            return;
        }
        match self.on.binary_search_by_key(&node, |(n, _)| *n) {
            Ok(i) => {
                let known = &mut self.on.all_mut()[i].1;
                *known = known.saturating_add(pages);
            }
            Err(_) if self.on.is_empty() => self.on = OnNodes::one(node, pages),
            Err(i) => {
                let mut all = self.on.to_vec();
                all.insert(i, (node, pages));
                self.on = OnNodes::of(all);
            }
        }
    }
    /// So many pages, or all that is there, went from `from` to `to`.
    pub(super) fn shift(&mut self, from: NodeId, to: NodeId, pages: u64) {
        let all = self.pages_on(from);
        let pages = pages.min(all);
        let left = |&(n, all): &(NodeId, u64)| (n, if n == from { all - pages } else { all });
        self.on = OnNodes::of(self.on.iter().map(left).filter(|(_, p)| *p > 0).collect());
        self.add(to, pages);
    }
    /// The part of `part` of `whole` pages; rounds up where anything is there.
    pub(super) fn share(&self, part: u64, whole: u64) -> Self {
        let mut share = self.clone();
        for (_, p) in share.on.all_mut() {
            let scaled = (u128::from(*p) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
            *p = u64::try_from(scaled).unwrap_or(u64::MAX).min(part);
        }
        share
    }
    /// Whether both are nowhere, or both on the same node and no other.
    pub(super) fn alike(&self, other: &Self) -> bool {
        self.on.len() == other.on.len()
            && self.on.len() <= 1
            && self.on.iter().zip(other.on.iter()).all(|(a, b)| a.0 == b.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/engine.md#memory: places of a stretch are shares.
    #[test]
    fn a_place_holds_one_node_or_several() {
        let mut place = Place { at: Picos(1), on: OnNodes::default() };
        place.add(NodeId(2), 0);
        assert_eq!((place.present(), &place.on), (0, &OnNodes::Nowhere));
        place.add(NodeId(2), 10);
        place.add(NodeId(2), 5);
        assert_eq!(place.on, OnNodes::One((NodeId(2), 15)), "no memory of its own");
        place.add(NodeId(0), 30);
        assert_eq!(place.on[..], [(NodeId(0), 30), (NodeId(2), 15)], "by rising nodes");
        assert_eq!(place.share(1, 10).on[..], [(NodeId(0), 1), (NodeId(2), 1)], "at most all");
        assert_eq!(place.share(10, 45).on[..], [(NodeId(0), 7), (NodeId(2), 4)], "rounded up");
        place.shift(NodeId(0), NodeId(2), 30);
        assert_eq!(place.on, OnNodes::One((NodeId(2), 45)));
        place.shift(NodeId(1), NodeId(0), 9);
        assert_eq!(place.on, OnNodes::One((NodeId(2), 45)), "nothing was there to be moved");
    }
}
