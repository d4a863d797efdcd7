//! Why the scheduler can't be looked at.

use std::path::PathBuf;

/// Why the scheduler can't be looked at. Nothing was loaded into the kernel, or it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The kernel doesn't describe itself.
    #[error(
        "the kernel doesn't describe its types: {} can't be read (it needs \
         CONFIG_DEBUG_INFO_BTF, which distributions' kernels have)",
        path.display()
    )]
    NoBtf {
        /// Where it would.
        path: PathBuf,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A kernel before 5.18.
    #[error(
        "this kernel's tracepoint of switches doesn't tell the task's state: Linux 5.18 or newer \
         is needed (tried on 6.1, 6.12, 6.18 and 7.3)"
    )]
    OldSwitch,
    /// More processes than there are places.
    #[error("more than 4096 processes are named: name their cgroup, or use --system")]
    TooMany,
    /// Something is not as expected.
    #[error("{what}; please report it")]
    Unknown {
        /// What.
        what: String,
    },
    /// The kernel or libbpf refused.
    #[error("the BPF programs that count can't be {step}{}", crate::words::why(source, log))]
    Refused {
        /// What was tried: `loaded`, …
        step: &'static str,
        /// The last lines of libbpf's own log, which has the kernel's words too.
        log: Vec<String>,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
}

impl StatsError {
    /// Whether the system lacks something; else the question was wrong.
    pub fn is_lack(&self) -> bool {
        match self {
            Self::NoBtf { .. } | Self::OldSwitch | Self::Unknown { .. } | Self::Refused { .. } => {
                true
            }
            Self::TooMany => false,
        }
    }
}
