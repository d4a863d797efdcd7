//! CPUs that decide: rules of Linux's scheduler, and what it counts.
//!
//! A rule is told what it needs and answers; nothing here has a queue of its own time, a clock or
//! a thread: time comes as nanoseconds of a CPU's clock, a CPU is its place, a task a number that
//! the caller gives. Which room holds what stands in `docs/decisions/0016-cpus.md`.

pub mod balance;
pub mod compared;
pub mod course;
pub mod domain;
pub mod fair;
pub mod frequency;
pub mod group;
pub mod idle;
pub mod look;
pub mod pelt;
pub mod speed;
pub mod stats;
pub mod wakelist;
pub mod weight;
