//! Measuring: this machine's constants, a program's accesses, and real times that a
//! prediction is held against.

mod child;
pub mod constants;
pub mod jobs;
pub mod record;
pub mod truth;
pub mod workload;
