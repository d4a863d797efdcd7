//! Sources of heat.

pub mod damon;
pub mod hints;
pub mod samples;
