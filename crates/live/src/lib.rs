//! Linux: topology from sysfs, measuring, recording.

pub mod measure;
pub mod merge;
mod pagemap;
pub mod record;
pub mod sysfs;
