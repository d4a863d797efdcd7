//! Why hint faults can't be watched.

use std::io;
use std::path::PathBuf;

/// Why hint faults can't be watched. Nothing was loaded into the kernel, or it is gone again.
#[derive(Debug, thiserror::Error)]
pub enum HintsError {
    /// Flags of pages are known for x86-64 only.
    #[error(
        "hint faults are watched on x86-64 only: where this architecture's kernels keep the node \
         of a page was not tried. Use another source"
    )]
    Architecture,
    /// Balancing is not built in.
    #[error(
        "this kernel has no NUMA balancing ({} is not there; it needs CONFIG_NUMA_BALANCING), so \
         there are no hint faults. Use another source",
        knob.display()
    )]
    NoBalancing {
        /// Its knob.
        knob: PathBuf,
    },
    /// Balancing is off.
    #[error(
        "NUMA balancing is off, so no page is marked and there are no hint faults: sysctl \
         kernel.numa_balancing=1, or 3 with a slow node. The kernel then also moves pages"
    )]
    Off,
    /// What BPF sees is not what we see.
    #[error(
        "this is not the machine's own {what} namespace (a container?): BPF tells processes by \
         other {differs} than are seen here. Run homenode outside of it"
    )]
    Namespace {
        /// Which.
        what: &'static str,
        /// What is not the same in it.
        differs: &'static str,
    },
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
    /// Rights are missing.
    #[error(
        "BPF programs that read kernel memory may not be loaded: it needs root, or CAP_BPF and \
         CAP_PERFMON, in the machine's own user namespace, and a kernel that is not locked down \
         to `confidentiality`"
    )]
    Denied,
    /// The function through which hint faults go is not there, or is another.
    #[error(
        "{what}: hint faults can't be watched on this kernel (Linux 6.1, 6.12 and 7.3 are known \
         to work). Use another source, and please report it"
    )]
    Unknown {
        /// What is not as expected.
        what: String,
    },
    /// A file can't be read or holds something odd.
    #[error("can't tell from {} {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// The kernel or libbpf refused.
    #[error("the BPF program can't be {step}{}{}", hint(source), homenode_bpf::words::behind(log))]
    Refused {
        /// What was tried: `loaded`, …
        step: &'static str,
        /// The last lines of libbpf's own log, which has the kernel's words too.
        log: Vec<String>,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// No descriptor that wakes.
    #[error("the ring of hint faults can't be waited for")]
    Wake {
        /// What the system said.
        source: io::Error,
    },
}

fn hint(source: &libbpf_rs::Error) -> &'static str {
    match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            ". Some kernels refuse programs at their functions whatever one's rights (locked down, \
             or their code may not be patched): use another source"
        }
        _ => "",
    }
}
