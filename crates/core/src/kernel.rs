//! Which Linux release a rule follows.
//!
//! The reference is 6.12. Where kernels differ, a rule takes a [`KernelVersion`]
//! and its documentation says what differs.

use std::fmt;

crate::named! {
    /// A release whose behaviour the rules know, in rising order, so that
    /// `version >= KernelVersion::V6_12` reads as it should.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum KernelVersion {
        /// 3.8: the slow start of the seed (S0).
        V3_8 => "3.8",
        /// 4.5: the runtime switch of schedstats (S2), which it has; CFS.
        V4_5 => "4.5",
        /// 4.15: what the recently used CPU (S3) was made for.
        V4_15 => "4.15",
        /// 5.18: the first tiering (S1).
        V5_18 => "5.18",
        /// 6.1: hot-page selection; Debian 12.
        V6_1 => "6.1",
        /// 6.12: per-VMA scan state, tiers from HMAT; the reference.
        #[default]
        V6_12 => "6.12",
        /// 7.3.
        V7_3 => "7.3",
    }
}

impl KernelVersion {
    /// The version of that name.
    pub fn parse(s: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.name() == s)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Milliseconds as ticks of [`crate::units::HZ`], rounded up, as the kernel does.
#[inline]
pub const fn msecs_to_jiffies(ms: u64) -> u64 {
    // 1000 / 250 = 4 ms a tick; a remainder counts as a whole tick.
    ms.div_ceil(1000 / crate::units::HZ)
}

/// Ticks as milliseconds, in the kernel's 32 bits.
#[inline]
pub const fn jiffies_to_msecs(j: u64) -> u32 {
    (j.wrapping_mul(1000 / crate::units::HZ)) as u32
}

/// Nanoseconds of one tick.
pub const TICK_NSEC: u64 = 1_000_000_000 / crate::units::HZ;
