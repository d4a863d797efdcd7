//! Sources of heat.

pub mod samples;
