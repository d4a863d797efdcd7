//! How fast a CPU computes: its capacity, its clock, and who else uses its core.
//!
//! The three are factors of one product, so that whoever changes one of them asks here for all.
//!
//! Worked example: a CPU of full capacity at its nominal clock computes at 1024 of
//! [`SCHED_CAPACITY_SCALE`]. While a sibling is busy, on a machine whose cores do 1.25 times as
//! much with two threads as with one, each of them computes at 0.625 of that: 640.
//!
//! Source: specs/workloads.md#speed.

use crate::topology::SCHED_CAPACITY_SCALE;

/// A factor of one, of [`Pace::sibling`].
pub const UNSHARED: u32 = 1000;

/// What a CPU's speed is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Its capacity, of [`SCHED_CAPACITY_SCALE`].
    pub capacity: u32,
    /// Its clock now, and the nominal one, in MHz. Equal where the file says nothing.
    pub mhz: u32,
    /// See `mhz`.
    pub nominal: u32,
    /// What its siblings leave of it, in thousandths; [`UNSHARED`]: all.
    pub sibling: u32,
}

impl Pace {
    /// The speed at which it computes, of [`SCHED_CAPACITY_SCALE`], rounded to the nearest and at
    /// least 1. Above the scale where the clock is above the nominal one.
    ///
    /// Source: specs/workloads.md#speed.
    pub const fn speed(&self) -> u32 {
        let full = self.capacity as u64 * self.mhz as u64 * self.sibling as u64;
        let unit = self.nominal as u64 * UNSHARED as u64;
        let unit = if unit == 0 { 1 } else { unit };
        let speed = (full + unit / 2) / unit;
        match speed {
            0 => 1,
            _ if speed > u32::MAX as u64 => u32::MAX,
            _ => speed as u32,
        }
    }
}

impl Default for Pace {
    /// A CPU at full speed.
    fn default() -> Self {
        Self { capacity: SCHED_CAPACITY_SCALE, mhz: 1, nominal: 1, sibling: UNSHARED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply() {
        let full = Pace::default();
        assert_eq!(full.speed(), 1024);
        assert_eq!(Pace { capacity: 512, ..full }.speed(), 512);
        assert_eq!(Pace { sibling: 625, ..full }.speed(), 640);
        assert_eq!(Pace { mhz: 1200, nominal: 2400, sibling: 625, ..full }.speed(), 320);
        assert_eq!(Pace { mhz: 3600, nominal: 2400, ..full }.speed(), 1536);
        // To the nearest: 0.65 of 1024 are 665.6.
        assert_eq!(Pace { sibling: 650, ..full }.speed(), 666);
        assert_eq!(Pace { capacity: 1, sibling: 1, ..full }.speed(), 1);
        assert_eq!(Pace { nominal: 0, ..full }.speed(), 1024 * 1000);
    }
}
