//! The simulated kernel: virtual time, address spaces, reclaim, migration.
pub mod random;
mod table; mod page; mod hot; mod lists; mod memory; mod space;
