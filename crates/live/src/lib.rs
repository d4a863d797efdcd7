//! Linux: topology from sysfs, measuring, recording, and the truth check's real runs.

pub mod ksm;
pub mod measure;
pub mod merge;
mod pagemap;
pub mod probe;
pub mod record;
pub mod sysfs;
pub mod truth;
pub mod workload;
