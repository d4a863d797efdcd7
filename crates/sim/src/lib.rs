//! The simulated kernel: virtual time, address spaces, reclaim, migration.
