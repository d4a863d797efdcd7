//! Sources of heat.

pub mod damon;
