//! Sources of heat.

pub mod hints;
