//! The simulated kernel and machine: virtual time, address spaces and pages,
//! faults, scans, reclaim, migration.
//!
//! ```text
//! scenario ─▶ steps ─┐          private ops
//! recording ─▶ replay ├─ programs ─────────▶ hot loop ──▶ words of pages
//! daemons ────────────┘    │ acts               │ event: an act
//!      executive ──turns──▶│                    ▼
//!                          └─────▶ kernel: fault, scan, reclaim, migrate ──▶ memory, space
//!                                    │ asks
//!                                    ▼
//!                                  rules of the core
//! ```
//!
//! Reading order: [`Setup`] and [`Simulation`] say what goes in and what comes out;
//! `simulation` is what there is at a moment of time, `timeline`, `cpus`, `tasks` and
//! `program` its parts, `executive` who has the next turn, `files` and `agent` (homenode's
//! task, with its source in `heat`) what works on it meanwhile, `hot` the loop of ordinary
//! accesses, `kernel` what happens at an event, `memory` and `page` what memory is, `lists`
//! how it is ordered.
//!
//! A run is single-threaded and the same on every machine: integers, ordered
//! maps, labelled random streams.

pub mod bench;
pub mod check;
pub mod files;
pub mod latency;
pub mod machine;
pub mod play;
pub mod random;
pub mod replay;
pub mod twin;
pub mod vmstat;
pub mod watch;

mod agent;
mod arrivals;
mod build;
mod caches;
mod channel;
mod content;
mod cpus;
mod device;
mod executive;
mod figures;
mod frequency;
mod groups;
mod heat;
mod homing;
mod hot;
mod hotplug;
mod kernel;
mod lifecycle;
mod lists;
mod load;
mod memory;
mod overlap;
mod page;
mod patterns;
mod program;
mod refill;
mod refit;
mod ring;
mod sched;
mod score;
mod simulation;
mod space;
mod spare;
mod sweep;
mod switch;
mod table;
mod tasks;
#[cfg(test)]
mod tests;
mod timeline;

pub use build::{Setup, SimError};
pub use channel::NetFigures;
pub use cpus::CpuFigures;
pub use figures::{IdleFigures, MergeFigures, Stretch};
pub use groups::{GroupFigures, Vcpu};
pub use kernel::HomingFigures;
pub use memory::MemoryError;
pub use overlap::{MissTime, Overlap};
pub use sched::{TaskFigures, Track};
pub use score::{PageCourse, Score, Slice, Used};
pub use simulation::{PhaseFigures, ProcessFigures, Simulation};
