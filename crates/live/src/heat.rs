//! Sources of heat.

pub mod damon;
pub mod samples;
