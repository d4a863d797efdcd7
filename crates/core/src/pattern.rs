//! Access patterns: which pages of a mapping a step accesses.
//!
//! Each is a row of the table below: its name in a scenario's TOML, its parameters with their
//! ranges, and what it is. `homenode-config` reads scenarios by these rows, `homenode list
//! patterns` prints them, and `homenode-sim` has a generator for each.
//!
//! Source: specs/pmbench.md#patterns, specs/workloads.md#drift, specs/workloads.md#search.

use crate::units::Picos;

/// Makes [`Pattern`] and [`PATTERNS`] of the same rows.
macro_rules! patterns {
    (@default) => { None };
    (@default $value:literal) => { Some($value) };
    ($(
        $(#[doc = $about:literal])*
        $Pattern:ident => $name:literal $({
            $($(#[doc = $meaning:literal])* $key:ident: $Type:ty = $allowed:expr $(, else $default:literal)?;)*
        })?,
    )*) => {
        /// Which pages of a mapping are accessed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Pattern {
            $($(#[doc = $about])* $Pattern $({ $($(#[doc = $meaning])* $key: $Type,)* })?,)*
        }

        /// All patterns.
        pub const PATTERNS: &[PatternKind] = &[$(PatternKind {
            name: $name,
            about: concat!($($about),*).trim_ascii(),
            parameters: &[$($(Parameter {
                key: stringify!($key),
                about: concat!($($meaning),*).trim_ascii(),
                allowed: $allowed,
                default: patterns!(@default $($default)?),
            },)*)?],
            make: |_values| Pattern::$Pattern $({ $($key: Value::of(_values.next()),)* })?,
        },)*];
    };
}

patterns! {
    /// All pages alike.
    Uniform => "uniform",
    /// Normal around the middle.
    Gauss => "gauss" {
        /// Deviation in thousandths of the mapping's pages.
        sd: u32 = Allowed::Thousandths(1, 1000);
    },
    /// Rank-frequency, the ranks spread over the mapping.
    Zipf => "zipf" {
        /// Exponent in thousandths.
        theta: u32 = Allowed::Thousandths(1, 2000);
    },
    /// The same of values that lie on pages, of which each rank goes to another one from time to
    /// time.
    ZipfDrift => "zipf-drift" {
        /// Exponent in thousandths.
        theta: u32 = Allowed::Thousandths(1, 2000);
        /// Values on a page.
        values: u32 = Allowed::Number(1, 4096), else 4;
        /// After how much virtual time each rank has gone to another value, each at a time of
        /// its own.
        every: Picos = Allowed::Time;
    },
    /// Searches of a Kronecker graph from one root after the other, each thread its own; says
    /// itself what it writes.
    BreadthFirst => "breadth-first-search" {
        /// Neighbours of a vertex, in the mean.
        degree: u32 = Allowed::Number(1, 1024), else 32;
    },
    /// One page after the other, from the start again at the end.
    Sequential => "sequential",
    /// A hot part, uniform in itself, that moves on.
    HotSpot => "hot-spot" {
        /// Size of the hot part in thousandths of the mapping.
        size: u32 = Allowed::Thousandths(1, 1000);
        /// Share of the accesses that go there, in thousandths.
        share: u32 = Allowed::Thousandths(0, 1000);
        /// After how much virtual time it moves on by its own size.
        every: Picos = Allowed::Time;
    },
    /// Normal around the middle, its deviation in pages; what would lie outside the
    /// mapping goes to the page in the middle. pmbench's normal.
    Normal => "normal" {
        /// Deviation in pages; 1 is pmbench's own.
        deviation: u32 = Allowed::Number(1, 1 << 31), else 1;
    },
    /// The mean of twelve uniform numbers: a deviation of a twelfth of the mapping,
    /// and nothing outside. pmbench's normal_ih.
    NormalIh => "normal_ih",
    /// Bounded Pareto, the hottest page first. pmbench's pareto.
    Pareto => "pareto" {
        /// Index in thousandths; 1000 is pmbench's own.
        alpha: u32 = Allowed::Number(1, 10_000), else 1000;
    },
    /// Every stride-th page, from the next one beside the start again at the end.
    /// pmbench's linear.
    Linear => "linear" {
        /// Pages from one access to the next.
        stride: u32 = Allowed::Number(1, 1 << 31), else 1;
    },
}

/// What there is to know of a pattern before it is used.
#[derive(Clone, Copy, Debug)]
pub struct PatternKind {
    /// What it is called in a scenario.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What else a scenario says of it, in this order.
    pub parameters: &'static [Parameter],
    make: fn(&mut dyn Iterator<Item = u64>) -> Pattern,
}

impl PatternKind {
    /// The pattern with these values, one for each parameter; times in picoseconds.
    pub fn with(&self, values: &[u64]) -> Pattern {
        (self.make)(&mut values.iter().copied())
    }
}

/// A parameter of a pattern.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its key in a scenario.
    pub key: &'static str,
    /// What it means.
    pub about: &'static str,
    /// What it may be.
    pub allowed: Allowed,
    /// What it is where a scenario doesn't say; `None`: it has to.
    pub default: Option<u64>,
}

/// How a parameter is written, and its least and largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Thousandths of something.
    Thousandths(u64, u64),
    /// A whole number.
    Number(u64, u64),
    /// A span of time above 0.
    Time,
}

/// A parameter's value as its pattern holds it. What is missing becomes 0.
trait Value {
    fn of(value: Option<u64>) -> Self;
}
impl Value for u32 {
    fn of(value: Option<u64>) -> Self {
        Self::try_from(value.unwrap_or(0)).unwrap_or(Self::MAX)
    }
}
impl Value for Picos {
    fn of(value: Option<u64>) -> Self {
        Self(value.unwrap_or(0))
    }
}
