//! Linux as a machine that a policy drives: what there is, what can be seen of it, and
//! what can be ordered.

pub mod acting;
pub mod begins;
pub mod belongs;
pub mod counters;
pub mod cpus;
pub mod heat;
pub mod held;
pub mod journal;
pub mod ledger;
pub mod links;
pub mod loads;
pub mod machine;
pub mod memory;
pub mod mover;
pub mod notify;
pub mod pagemap;
pub mod people;
pub mod place;
pub mod places;
pub mod probe;
pub mod registered;
pub mod sched_ext;
pub mod signals;
pub mod stats;
pub mod sysfs;
pub mod text;
pub mod threads;

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
