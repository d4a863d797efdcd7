//! Whether BPF programs that read kernel memory may be loaded here, found before anything is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel's description of its own types.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The machine's own PID namespace has this number (`include/linux/proc_ns.h`).
pub const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;
/// Bits of capabilities: CAP_SYS_ADMIN alone, or CAP_PERFMON and CAP_BPF.
const ADMIN: u64 = 1 << 21;
const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Rights.
    #[error(
        "BPF programs that read kernel memory may not be loaded: it needs root, or CAP_BPF and \
         CAP_PERFMON, in the machine's own user namespace, and a kernel that is not locked down \
         to `confidentiality`"
    )]
    Rights,
    /// What BPF sees is not what we see.
    #[error(
        "this is not the machine's own PID namespace (a container?): BPF tells processes by other \
         PIDs than are seen here. Run homenode outside of it"
    )]
    Namespace,
    /// The kernel doesn't describe itself.
    #[error(
        "the kernel doesn't describe its types: {BTF} is not there (it needs CONFIG_DEBUG_INFO_BTF, \
         which distributions' kernels have)"
    )]
    Btf,
}

/// The effective capabilities in a text as `/proc/PID/status` has it, a bit for each.
#[must_use]
pub fn capabilities(status: &str) -> Option<u64> {
    let held = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(held.trim(), 16).ok()
}

/// Whether these capabilities are enough to load programs that read kernel memory.
#[must_use]
pub const fn may_load(capabilities: u64) -> bool {
    capabilities & ADMIN != 0 || capabilities & PERFMON_AND_BPF == PERFMON_AND_BPF
}

/// What is missing below a root, `/` as a rule; `None`: nothing that is known of.
#[must_use]
pub fn lack(root: &Path) -> Option<Lack> {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    // Where it can't be read the kernel will say.
    if capabilities(&status).is_some_and(|held| !may_load(held)) {
        return Some(Lack::Rights);
    }
    let space = fs::metadata(root.join("proc/self/ns/pid"));
    if space.is_ok_and(|s| s.ino() != FIRST_PID_NAMESPACE) {
        return Some(Lack::Namespace);
    }
    (!root.join(BTF.trim_start_matches('/')).exists()).then_some(Lack::Btf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(caps: &str, btf: bool) -> Option<Lack> {
        // A folder of this process's own, which goes with the test.
        let root =
            std::env::temp_dir().join(format!("homenode-able-{}-{caps}-{btf}", std::process::id()));
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::create_dir_all(root.join("sys/kernel/btf")).unwrap();
        fs::write(root.join("proc/self/status"), format!("Name:\tx\nCapEff:\t{caps}\n")).unwrap();
        if btf {
            fs::write(root.join("sys/kernel/btf/vmlinux"), "").unwrap();
        }
        let found = lack(&root);
        fs::remove_dir_all(&root).unwrap();
        found
    }

    #[test]
    fn rights_come_first_then_what_the_kernel_says_of_itself() {
        assert_eq!(of("0000000000000000", true), Some(Lack::Rights));
        assert_eq!(of("0000004000000000", true), Some(Lack::Rights), "CAP_PERFMON alone");
        assert_eq!(of("000000c000000000", true), None);
        assert_eq!(of("0000000000200000", true), None);
        assert_eq!(of("0000000000200000", false), Some(Lack::Btf));
    }
}
