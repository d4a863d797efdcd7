//! Sources of heat.
