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

/// An error with what caused it, on one line, each said once: some errors already name
/// their cause.
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let one = e.to_string();
        if !text.contains(&one) {
            text = format!("{text}: {one}");
        }
        cause = e.source();
    }
    text
}
