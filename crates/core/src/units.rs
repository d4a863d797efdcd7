//! Numbers with a meaning: time, memory sizes, rates and identities.
//!
//! A page is 4 KiB (the base page of x86-64 and of every seed). Virtual time is
//! kept in picoseconds, so that a latency of 89.3 ns is an integer and a run is
//! the same on every machine; 2^64 ps are 213 days.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Bytes in a base page.
pub const PAGE_SIZE: u64 = 4096;
/// Bytes of a line of a cache, the unit of what an access moves.
pub const LINE_SIZE: u64 = 64;
/// Base pages in a huge page (2 MiB).
pub const HUGE_PAGES: u64 = 512;
/// The kernel's tick rate in Debian's builds, per second.
pub const HZ: u64 = 250;

/// So many of something, for sentences: `1 process`, `2 processes`, `0 processes`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);
            /// `self - other`, or zero where that would be negative.
            #[inline]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, o: Self) -> Self { Self(self.0 + o.0) }
        }
        impl Sub for $name {
            type Output = Self;
            #[inline]
            fn sub(self, o: Self) -> Self { Self(self.0 - o.0) }
        }
        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, o: Self) { self.0 += o.0 }
        }
        impl SubAssign for $name {
            #[inline]
            fn sub_assign(&mut self, o: Self) { self.0 -= o.0 }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            #[inline]
            fn mul(self, k: u64) -> Self { Self(self.0 * k) }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(it: I) -> Self { it.fold(Self(0), Add::add) }
        }
    };
}

unit! {
    /// A span of virtual time, or a moment since the simulated boot, in picoseconds.
    Picos
}
unit! {
    /// A number of base pages (4 KiB).
    Pages
}
unit! {
    /// A number of bytes.
    Bytes
}
unit! {
    /// A rate in 10^6 bytes a second (vendors' MB/s, not the kernel's 2^20).
    MBps
}

impl Picos {
    /// Whole nanoseconds as picoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1_000)
    }
    /// Whole microseconds as picoseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000_000)
    }
    /// Whole milliseconds as picoseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000_000)
    }
    /// Whole seconds as picoseconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000_000)
    }
    /// Nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }
    /// Milliseconds, rounded down.
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// Seconds, for printing only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Pages {
    /// The pages that hold `b`, rounded up.
    pub const fn holding(b: Bytes) -> Self {
        Self(b.0.div_ceil(PAGE_SIZE))
    }
    /// The size in bytes.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * PAGE_SIZE)
    }
}

impl MBps {
    /// How long moving `b` takes at this rate, rounded up; a rate of 0 counts as 1.
    pub const fn time_for(self, b: Bytes) -> Picos {
        let rate = if self.0 == 0 { 1 } else { self.0 };
        // bytes / (10^6 bytes/s) = µs = 10^6 ps
        Picos((b.0 * 1_000_000).div_ceil(rate))
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl $name {
            /// The number as an index.
            #[inline]
            pub const fn index(self) -> usize { self.0 as usize }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    };
}

id! {
    /// A memory node, numbered as the kernel numbers it.
    NodeId, u16
}
id! {
    /// A logical CPU, numbered as the kernel numbers it.
    CpuId, u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        let text = [0, 1, 2, 21].map(|n| count(n, "process was", "processes were"));
        assert_eq!(
            text,
            ["0 processes were", "1 process was", "2 processes were", "21 processes were"]
        );
    }
}
