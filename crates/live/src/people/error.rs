//! Why nobody can be looked at.

use std::io;
use std::path::PathBuf;

/// Why processes that were asked for can't be looked at. It is told at the start; what
/// happens to them later is no error.
#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    /// No process of that number.
    #[error(
        "there is no process {pid}, or /proc hides it from this user (mounted with hidepid): \
         `ps -p {pid}` shows whether it is there"
    )]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// It is a thread.
    #[error("{pid} is not a process but a thread of process {of}: give {of}")]
    Thread {
        /// The number that was given.
        pid: u32,
        /// Whose thread it is.
        of: u32,
    },
    /// A kernel thread, or a process that only waits to be collected.
    #[error(
        "process {pid} ({name}) has no memory to look at: it is a thread of the kernel's own, or \
         it has ended and waits for its parent to collect it"
    )]
    NoMemory {
        /// Its number.
        pid: u32,
        /// The command's name.
        name: String,
    },
    /// It may not be looked at.
    #[error(
        "process {pid} may not be looked at: run it as root or as the process' own user, or with \
         a /proc that is mounted without hidepid"
    )]
    Refused {
        /// Its number.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// No cgroup of that name.
    #[error(
        "{}: no cgroup: neither this folder nor the one of this name below /sys/fs/cgroup has a \
         cgroup.procs",
        path.display()
    )]
    NoCgroup {
        /// As it was given.
        path: PathBuf,
    },
    /// A cgroup's processes could not be listed.
    #[error(
        "{}: the cgroup's processes can't be listed: run it as root, or give a cgroup of your own",
        path.display()
    )]
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No processes.
    #[error("{}: processes can't be listed: is /proc mounted?", path.display())]
    Proc {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The numbers there are not those that system calls take.
    #[error(
        "{} shows the processes of another PID namespace than homenode's own, so its numbers mean \
         others here: start homenode with a /proc of its own (`unshare --mount-proc homenode …`), or \
         within the namespace that is shown",
        path.display()
    )]
    Namespace {
        /// The folder.
        path: PathBuf,
    },
}

impl PeopleError {
    /// Whether the system or a privilege is lacking, rather than what was asked for.
    pub const fn is_lack(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Cgroup { .. } | Self::Proc { .. } => true,
            Self::Namespace { .. } => true,
            Self::NoProcess { .. } | Self::Thread { .. } => false,
            Self::NoMemory { .. } | Self::NoCgroup { .. } => false,
        }
    }
}
