//! What moves were expected to save, and what came of it.
//!
//! Source: specs/engine.md#kept.

use crate::units::Picos;

/// What accesses to memory that was moved earn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earns {
    /// Until when: within the horizon of the move.
    pub(super) until: Picos,
    /// What an access saves, in picoseconds, or loses, for memory that went down.
    pub(super) each: i64,
    /// What all of them were expected to save by then, and what they came to save so far.
    pub(super) kept: Kept,
    /// How much that was for a page.
    pub(super) class: Class,
}

impl Earns {
    /// What so many thousandths of an access earn, in picoseconds.
    ///
    /// Source: specs/engine.md#budgets.
    pub(super) fn came(&mut self, milli: u128, now: Picos) -> i128 {
        if now > self.until {
            return 0;
        }
        let came = i128::try_from(milli / 1000).unwrap_or(i128::MAX);
        let came = came.saturating_mul(i128::from(self.each));
        let more = Kept { expected: 0, came: u128::try_from(came).unwrap_or(0) };
        self.kept.add(more);
        came
    }

    /// So many pages and so many others, as one.
    pub(super) fn join(&mut self, pages: u64, other: &Self, others: u64) {
        self.each = Self::mean([(self.each, pages), (other.each, others)]);
        self.until = self.until.max(other.until);
        self.kept.add(other.kept);
        self.class = self.class.max(other.class);
    }
    fn mean(all: [(i64, u64); 2]) -> i64 {
        let sum: i128 = all.iter().map(|(each, n)| i128::from(*each) * i128::from(*n)).sum();
        let pages: i128 = all.iter().map(|(_, n)| i128::from(*n)).sum();
        i64::try_from(sum / pages.max(1)).unwrap_or(0)
    }

    /// The same of `part` of `whole` pages.
    pub(super) fn part(all: Option<&Self>, part: u64, whole: u64) -> Option<Box<Self>> {
        all.map(|e| Box::new(Self { kept: e.kept.part(part, whole), ..*e }))
    }

    /// Of so many pages of either.
    pub(super) fn together(
        x: Option<Box<Self>>,
        nx: u64,
        y: Option<Box<Self>>,
        ny: u64,
    ) -> Option<Box<Self>> {
        let ((mut e, n), (other, others)) = match (x, y) {
            (Some(x), y) => ((x, nx), (y, ny)),
            (None, Some(y)) => ((y, ny), (None, nx)),
            (None, None) => return None,
        };
        match other {
            Some(other) => e.join(n, &other, others),
            None => e.each = Self::mean([(e.each, n), (0, others)]),
        }
        Some(e)
    }
}

/// How much a move is expected to save, in powers of two of what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    /// How many there are; the last one is of all that save more.
    pub(super) const ALL: usize = 16;
    pub(super) fn of(gains: u128, costs: u64) -> Self {
        let times = (gains / u128::from(costs.max(1))).max(1).ilog2();
        Self(times.min(Self::ALL as u32 - 1) as u8)
    }
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Savings as they were expected, and as they came, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) expected: u128,
    pub(super) came: u128,
}

impl Kept {
    pub(super) fn add(&mut self, more: Self) {
        self.expected = self.expected.saturating_add(more.expected);
        self.came = self.came.saturating_add(more.came);
    }
    pub(super) fn part(self, part: u64, whole: u64) -> Self {
        let of = |v: u128| v.min(1 << 60) * u128::from(part) / u128::from(whole.max(1));
        Self { expected: of(self.expected), came: of(self.came) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // specs/engine.md#kept
    #[test]
    fn moves_are_told_apart_by_what_they_promise() {
        let class = |gains| Class::of(gains, 10).index();
        assert_eq!([0, 9, 19, 20, 39, 40, 1 << 40].map(class), [0, 0, 0, 1, 1, 2, Class::ALL - 1]);
    }
}
