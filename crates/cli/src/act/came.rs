//! What came of moving, as the source of heat shows it: of a process's accesses, the share
//! on fast nodes.
//!
//! ```text
//! stretches of memory: heat, pages by node ─▶ accesses on fast nodes / all of them
//!                                             without the first moves: before
//! ```
//!
//! Source: specs/act.md#came.

use homenode_core::units::NodeId;

/// Accesses whose place is known have to be so many of those that were told, in percent:
/// the share of a few would be that of what was looked at, which is what was to be moved.
const KNOWN: u128 = 90;

/// Accesses of a process by where they go, in thousandths a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accesses {
    fast: u128,
    slow: u128,
    /// Place not known.
    unknown: u128,
}

impl Accesses {
    /// Adds a stretch of memory.
    ///
    /// * `heat` – accesses a page.
    /// * `pages` – how many it has where its place is not known.
    pub(super) fn add(
        &mut self,
        heat: u64,
        pages: u64,
        on: Option<&[(NodeId, u64)]>,
        is_fast: &dyn Fn(NodeId) -> bool,
    ) {
        let of = |pages: u64| u128::from(heat) * u128::from(pages);
        let Some(on) = on else {
            self.unknown += of(pages);
            return;
        };
        for &(node, pages) in on {
            *(if is_fast(node) { &mut self.fast } else { &mut self.slow }) += of(pages);
        }
    }
    /// As it would be had so many accesses not come to fast nodes; less than none left them.
    pub(super) fn without(self, came: i128) -> Self {
        let all = self.fast + self.slow;
        let fast = i128::try_from(self.fast).unwrap_or(i128::MAX).saturating_sub(came).max(0);
        let fast = fast.unsigned_abs().min(all);
        Self { fast, slow: all - fast, ..self }
    }
    /// The share on fast nodes in percent; `None` where too little is known, or there were
    /// no accesses.
    pub(super) fn fast_percent(self) -> Option<f64> {
        let known = self.fast + self.slow;
        let told = known + self.unknown;
        (known > 0 && known * 100 >= told * KNOWN).then(|| self.fast as f64 * 100.0 / known as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_fast(node: NodeId) -> bool {
        node.0 == 0
    }

    #[test]
    fn a_share_is_of_what_is_known() {
        let mut a = Accesses::default();
        assert_eq!(a.fast_percent(), None, "no accesses");
        a.add(1000, 0, Some(&[(NodeId(0), 30), (NodeId(2), 10)]), &is_fast);
        assert_eq!(a.fast_percent(), Some(75.0));
        // A cold stretch counts for nothing, wherever it is.
        a.add(0, 1 << 40, None, &is_fast);
        assert_eq!(a.fast_percent(), Some(75.0));
        // Before twenty of the fast pages came there: 10 of 40.
        assert_eq!(a.without(20_000).fast_percent(), Some(25.0));
        assert_eq!(a.without(-5000).fast_percent(), Some(87.5));
        assert_eq!(a.without(i128::MAX).fast_percent(), Some(0.0));
        // More than a tenth is nobody knows where.
        a.add(1000, 5, None, &is_fast);
        assert_eq!(a.fast_percent(), None);
    }
}
