//! The threads of a guest, by what they do for it.
//!
//! ```text
//! qemu-system-x86, PID 4711
//! ├─ CPU 0/KVM, CPU 1/KVM      vCPUs: the guest's own work
//! ├─ vhost-4711                 its network, in the kernel (a thread of the process since 6.4)
//! └─ qemu-system-x86, IO mon_iothread, worker …     the emulator
//! ```
//!
//! A guest is where its vCPUs are. An emulator's threads sleep nearly all the time, each on the
//! CPU where it was woken last, and would make every guest one that runs on several nodes.
//!
//! Names are given by QEMU with `-name debug-threads=on`, as libvirt starts it, and by
//! Cloud Hypervisor, Firecracker and crosvm. Where threads have no names of their own, a guest is
//! a process like any other.
//!
//! Source: specs/live.md#people.

use super::find;
use std::fs;
use std::path::Path;

/// What a thread does for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs the guest's code.
    Vcpu,
    /// Carries its packets or blocks inside of the kernel.
    Vhost,
    /// Everything else.
    Emulator,
}

impl Role {
    /// Of a thread of that name (`/proc/PID/task/TID/comm`).
    pub fn of(comm: &[u8]) -> Self {
        let text = std::str::from_utf8(comm).unwrap_or_default().trim_end();
        let numbered = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // QEMU's also says by which accelerator; the kernel keeps 15 letters.
        let qemu = text.strip_prefix("CPU ").and_then(|rest| rest.split_once('/'));
        let other = ["fc_vcpu ", "crosvm_vcpu", "vcpu"].iter().find_map(|p| text.strip_prefix(p));
        if qemu.is_some_and(|(number, by)| numbered(number) && !by.is_empty())
            || other.is_some_and(numbered)
        {
            Self::Vcpu
        } else if text.strip_prefix("vhost-").is_some_and(numbered) {
            Self::Vhost
        } else {
            Self::Emulator
        }
    }
}

/// How many threads of each kind a guest has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// [`Role::Vcpu`].
    pub vcpu: u64,
    /// [`Role::Vhost`].
    pub vhost: u64,
    /// [`Role::Emulator`].
    pub emulator: u64,
}

/// Threads of a process by what they do, if it is a guest: if one of them is a vCPU.
///
/// * `root` – the folder that holds `proc`.
pub fn roles(root: &Path, pid: u32) -> Option<Roles> {
    let tasks = root.join("proc").join(pid.to_string()).join("task");
    let mut roles = Roles::default();
    for (tid, _) in find::all(&tasks).ok()? {
        // One that has ended meanwhile does nothing for it.
        let Ok(comm) = fs::read(tasks.join(tid.to_string()).join("comm")) else { continue };
        match Role::of(&comm) {
            Role::Vcpu => roles.vcpu += 1,
            Role::Vhost => roles.vhost += 1,
            Role::Emulator => roles.emulator += 1,
        }
    }
    (roles.vcpu > 0).then_some(roles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_fixtures::Folder;

    #[test]
    fn threads_are_told_apart_by_their_names() {
        for (name, role) in [
            ("CPU 0/KVM", Role::Vcpu),
            ("CPU 127/KVM\n", Role::Vcpu),
            ("CPU 3/TCG", Role::Vcpu),
            ("fc_vcpu 2", Role::Vcpu),
            ("vcpu11", Role::Vcpu),
            ("crosvm_vcpu0", Role::Vcpu),
            ("vhost-4711", Role::Vhost),
            ("qemu-system-x86", Role::Emulator),
            ("IO mon_iothread", Role::Emulator),
            ("vhost-user-gpu", Role::Emulator),
            ("CPU 0", Role::Emulator),
            ("CPU x/KVM", Role::Emulator),
            ("vcpu", Role::Emulator),
            ("", Role::Emulator),
        ] {
            assert_eq!(Role::of(name.as_bytes()), role, "{name}");
        }
        assert_eq!(Role::of(b"\xff\xfe"), Role::Emulator);
    }

    #[test]
    fn only_who_has_vcpus_is_a_guest() {
        let folder = Folder::new();
        for (pid, tid, comm) in [
            (20, 20, "qemu-system-x86\n"),
            (20, 21, "CPU 0/KVM\n"),
            (20, 22, "CPU 1/KVM\n"),
            (20, 23, "vhost-20\n"),
            (20, 24, "worker\n"),
            (30, 30, "server\n"),
        ] {
            folder.write(format!("proc/{pid}/task/{tid}/comm"), comm);
        }
        let of = |pid| roles(&folder, pid);
        assert_eq!(of(20), Some(Roles { vcpu: 2, vhost: 1, emulator: 2 }));
        assert_eq!((of(30), of(40)), (None, None));
    }
}
