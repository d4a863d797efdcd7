//! Linux: topology from sysfs, measuring, recording, the truth check's real runs, and a
//! machine that the engine drives.

pub mod heat;
pub mod journal;
pub mod ksm;
pub mod links;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod merge;
pub mod mover;
mod pagemap;
pub mod people;
pub mod places;
pub mod probe;
pub mod record;
pub mod signals;
pub mod sysfs;
pub mod truth;
pub mod workload;
