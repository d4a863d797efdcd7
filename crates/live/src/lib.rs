//! Linux: topology from sysfs, measuring, recording.

pub mod measure;
pub mod record;
pub mod sysfs;
