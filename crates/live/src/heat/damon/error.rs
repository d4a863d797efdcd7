//! What can go wrong with DAMON.

use crate::journal::JournalError;
use homenode_core::policy::facts::Lack;
use std::io;
use std::path::PathBuf;

/// Why DAMON is not used, or what is not as it was.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// Something that it needs isn't there.
    #[error("DAMON can't be used here, nothing was changed: {}", sentences(lacks))]
    Lacking {
        /// What.
        lacks: Vec<Lack>,
    },
    /// The tracepoint isn't there.
    #[error(
        "DAMON tells its regions by a tracepoint, and {} can't be read; nothing was changed. \
         Where tracefs is not mounted: mount -t tracefs tracefs /sys/kernel/tracing (it needs \
         root, and a kernel that is not locked down to confidentiality)",
        path.display()
    )]
    NoTrace {
        /// Its description.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The tracepoint says something else than it did.
    #[error(
        "{}: {what}: this kernel's DAMON tells its regions in another way; nothing was changed. \
         Tell us the kernel's release",
        path.display()
    )]
    OddTrace {
        /// Its description.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The kernel refuses to pass its events on.
    #[error(
        "the kernel does not pass DAMON's regions on (perf_event_open of damon:damon_aggregated): \
         it needs root or CAP_PERFMON in the machine's own namespaces"
    )]
    Perf(#[source] io::Error),
    /// The journal; among others, that another homenode is at work, or one has ended
    /// without taking its slot down.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of DAMON can't be written.
    #[error("can't write {value} to DAMON's {name}{}", busy(source))]
    Write {
        /// The file, below `/sys/kernel/mm/damon/admin/kdamonds`.
        name: String,
        /// The value.
        value: String,
        /// What the system said.
        source: io::Error,
    },
    /// The slot is not as it was left.
    #[error(
        "DAMON's slot 0 is not as homenode left it: somebody else has set it up, and it was not \
         touched. See what damo status says"
    )]
    Theirs,
    /// Targets end faster than they can be told.
    #[error("DAMON does not start: processes end faster than they can be named to it")]
    Restless,
}

fn sentences(lacks: &[Lack]) -> String {
    let all: Vec<String> = lacks.iter().map(|l| format!("{l} ({})", l.remedy())).collect();
    all.join("; ")
}

/// What a refusal means.
fn busy(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EBUSY) => ": somebody else, perhaps a kernel module, has DAMON for itself",
        _ => "",
    }
}
