//! What is known of a counter, and the macro by which each is declared once.

use super::Version;

/// Of what something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A task or, as far as it waits and runs, a group of tasks.
    Task,
    /// A CPU.
    Cpu,
    /// A scheduling domain, as seen from one of its CPUs.
    Domain,
    /// A scheduling domain, three times: balancing while busy, idle, newly idle.
    DomainByIdle,
}

/// In what a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How often; also plain numbers that are no time.
    Count,
    /// Nanoseconds. `/proc/PID/sched` prints them as milliseconds with six digits.
    Ns,
    /// Nanoseconds that `/proc/PID/sched` prints as such.
    NsWhole,
}

/// What a later value says against an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It adds up: the difference is what came in between.
    Sum,
    /// The largest so far.
    Max,
    /// Something at that moment: a stamp, a weight.
    Now,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name in the kernel, and where lines have names, as printed.
    pub name: &'static str,
    /// Of what it is.
    pub of: Of,
    /// In what it counts.
    pub unit: Unit,
    /// What a later value says.
    pub kind: Kind,
    /// Bits that the kernel keeps: one of 32 begins at 0 again.
    pub bits: u32,
    /// Versions that print it, at its place in the table.
    pub printed: &'static [Version],
    /// What it counts and what updates it.
    pub about: &'static str,
}

impl Counter {
    /// Whether `version` prints it.
    pub fn printed_in(&self, version: Version) -> bool {
        self.printed.contains(&version)
    }
}

/// All versions.
pub(super) const ALWAYS: &[Version] = &Version::ALL;
/// No version, as Debian builds its kernels.
pub(super) const NEVER: &[Version] = &[];
/// Up to version 16, Linux 6.12.
pub(super) const TO_16: &[Version] = &[Version::V15, Version::V16];
/// From version 16 on, Linux 6.12.
pub(super) const FROM_16: &[Version] = &[Version::V16, Version::V17];
/// Version 15, Linux 6.1.
pub(super) const ONLY_15: &[Version] = &[Version::V15];
/// From version 17 on, Linux 7.3.
pub(super) const FROM_17: &[Version] = &[Version::V17];

/// Counters in the order in which the kernel prints them.
pub trait Counters: Copy + Default {
    /// What is known of each, in the order of [`Counters::each`].
    fn counters() -> Vec<Counter>;
    /// All values, in their order.
    fn each(&self) -> Vec<u64>;
    /// Sets all values, in their order; what is missing stays.
    fn set_each(&mut self, values: &[u64]);
}

/// Declares counters: a flat struct of `u64` and [`Counters`] for it.
///
/// A row is `name: kind unit bits versions`, below the sentences of what it counts.
macro_rules! counters {
    (
        $(#[$about:meta])*
        pub struct $Struct:ident of $of:ident {
            $($(#[doc = $doc:literal])* $field:ident: $kind:ident $unit:ident $bits:literal $printed:ident,)*
        }
        $(with { $(#[doc = $more_doc:literal])* $more:ident: [$More:ident; $n:literal] })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Struct {
            $($(#[doc = $more_doc])* pub $more: [$More; $n],)?
            $($(#[doc = $doc])* pub $field: u64,)*
        }
        impl $Struct {
            /// What is known of each, in the order in which the kernel prints them.
            pub const COUNTERS: &'static [$crate::sched::stats::Counter] = &[
                $($crate::sched::stats::Counter {
                    name: stringify!($field),
                    of: $crate::sched::stats::Of::$of,
                    unit: $crate::sched::stats::Unit::$unit,
                    kind: $crate::sched::stats::Kind::$kind,
                    bits: $bits,
                    printed: $crate::sched::stats::counter::$printed,
                    about: concat!($($doc),*).trim_ascii(),
                },)*
            ];
            /// The values in the order of [`Self::COUNTERS`].
            pub fn values(&self) -> [u64; Self::COUNTERS.len()] {
                [$(self.$field),*]
            }
            /// Sets the values, in the order of [`Self::COUNTERS`].
            pub fn set_values(&mut self, values: [u64; Self::COUNTERS.len()]) {
                [$(self.$field),*] = values;
            }
        }
    };
}
pub(super) use counters;
