//! The simulated kernel: virtual time, address spaces, reclaim, migration.
pub mod bench;
pub mod random;
pub mod vmstat;
pub mod watch;
mod build; mod engine; mod figures;
mod hot; mod kernel; mod lists; mod load; mod memory; mod page; mod program; mod replay; mod space; mod table;
pub use figures::Stretch;
pub use build::{Setup, SimError};
pub use memory::MemoryError;
pub use engine::{Simulation, ProcessFigures};
