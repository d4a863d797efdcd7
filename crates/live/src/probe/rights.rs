//! What this process may do here.

use super::calls::Calls;
use super::root::Root;
use crate::text::{capabilities, field};
use homenode_bpf::able::may_load;
use homenode_core::policy::facts::Known;

/// Capabilities that something here asks for, with their bits.
pub const CAPABILITIES: [(&str, u32); 8] = [
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_NICE", 23),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The effective user, from `/proc/self/status`.
    pub euid: Option<u32>,
    /// Effective capabilities as bits.
    pub capabilities: Option<u64>,
    /// Whether this is the machine's own user namespace.
    pub first_userns: Option<bool>,
    /// Whether kernel threads are seen, as in the machine's own PID namespace.
    pub sees_kthreads: bool,
    /// What speaks for a container.
    pub container: Vec<String>,
    /// Whether /sys can only be read.
    pub sys_read_only: Option<bool>,
    /// The same of DAMON's files: systemd's `ReadWritePaths=` opens a part of what is closed.
    pub damon_read_only: Option<bool>,
    /// Whether a seccomp filter is on.
    pub seccomp: Option<bool>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<i32>,
    /// What the kernel is locked down to: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
    /// Soft and hard RLIMIT_MEMLOCK in bytes; `u64::MAX` is none.
    pub memlock: Option<(u64, u64)>,
}

impl Rights {
    /// Whether a capability is effective.
    pub fn has(&self, bit: u32) -> bool {
        self.capabilities.is_some_and(|c| c >> bit & 1 == 1)
    }
    fn first(&self) -> bool {
        self.first_userns == Some(true)
    }
    /// Whether DAMON's files, which belong to root, may be written, and numbers of processes mean there
    /// what they mean here: the kernel looks them up in its own namespace of processes.
    pub fn may_write_damon(&self) -> Known {
        if self.euid.is_none() {
            return Known::Unseen;
        }
        let root = self.euid == Some(0) || self.has(1);
        let own = self.first() && self.sees_kthreads;
        Known::from_bool(own && root && self.damon_read_only != Some(true))
    }
    /// Whether BPF programs that read kernel memory may be loaded.
    pub fn may_bpf(&self) -> Known {
        let Some(capabilities) = self.capabilities else { return Known::Unseen };
        Known::from_bool(
            self.first()
                && may_load(capabilities)
                && self.lockdown.as_deref() != Some("confidentiality"),
        )
    }
    /// Whether processes of other users may be looked into.
    pub fn may_look_into_others(&self) -> Known {
        match self.capabilities {
            None => Known::Unseen,
            Some(_) => Known::from_bool(self.has(19)),
        }
    }
}

/// The word in brackets: `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Whether the mount that a path is on is read-only, from `/proc/self/mountinfo`: its fifth field is
/// where it is, its sixth has its options. The longest that leads to the path counts, and of several
/// in one place the last, which is on top.
fn read_only(mountinfo: &str, path: &str) -> Option<bool> {
    let words = mountinfo.lines().map(|l| l.split_ascii_whitespace().collect::<Vec<_>>());
    let leads = |at: &str| {
        path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let on = words.filter(|w| w.len() > 5 && leads(w[4])).max_by_key(|w| w[4].len())?;
    Some(on[5].split(',').any(|o| o == "ro"))
}

pub(super) fn look(root: &Root, calls: &dyn Calls) -> Rights {
    let status = root.text("proc/self/status").unwrap_or_default();
    let kernel = |name: &str| root.number(&format!("proc/sys/kernel/{name}"));
    let uid_map: Option<Vec<u64>> = root
        .text("proc/self/uid_map")
        .map(|t| t.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect());
    let mounts = root.text("proc/self/mountinfo");
    let signs = [".dockerenv", "run/.containerenv", "run/systemd/container"].into_iter();
    let container = signs.filter(|name| root.has(name)).map(|name| format!("/{name}")).collect();
    Rights {
        euid: field(&status, "Uid:").and_then(|v| v.split_ascii_whitespace().nth(1)?.parse().ok()),
        capabilities: capabilities(&status),
        // All 2^32 - 1 users, each himself.
        first_userns: uid_map.map(|m| m == [0, 0, u64::from(u32::MAX)]),
        sees_kthreads: root.text("proc/2/comm").as_deref() == Some("kthreadd"),
        container,
        sys_read_only: mounts.as_deref().and_then(|t| read_only(t, "/sys")),
        damon_read_only: mounts.as_deref().and_then(|t| read_only(t, "/sys/kernel/mm/damon")),
        seccomp: field(&status, "Seccomp:").map(|v| v != "0"),
        perf_event_paranoid: kernel("perf_event_paranoid"),
        kptr_restrict: kernel("kptr_restrict"),
        unprivileged_bpf_disabled: kernel("unprivileged_bpf_disabled"),
        ptrace_scope: kernel("yama/ptrace_scope"),
        lockdown: root.text("sys/kernel/security/lockdown").and_then(|t| chosen(&t)),
        memlock: calls.memlock(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_and_choices_are_read() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n23 27 0:22 / /sys rw,relatime - x x rw\n\
                      40 23 0:22 / /sys ro,nosuid - sysfs sysfs rw\n41 23 0:2 / /sys/fs rw - a b rw\n";
        assert_eq!(read_only(mounts, "/sys"), Some(true));
        assert_eq!(read_only("1 2 3 / /proc rw", "/sys"), None);
        let damon = "/sys/kernel/mm/damon";
        assert_eq!(read_only(mounts, damon), Some(true), "as /sys is");
        let opened = format!("{mounts}42 40 0:22 /kernel/mm/damon {damon} rw - sysfs sysfs rw\n");
        assert_eq!(read_only(&opened, damon), Some(false), "as a service has it");
        assert_eq!(read_only(&opened, "/sys/kernel/mm/damone"), Some(true));
        assert_eq!(chosen("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn rights_count_in_the_first_user_namespace_only() {
        let all = Rights {
            euid: Some(0),
            capabilities: Some(u64::MAX),
            first_userns: Some(true),
            sees_kthreads: true,
            ..Rights::default()
        };
        assert_eq!((all.may_bpf(), all.may_write_damon()), (Known::Yes, Known::Yes));
        let inside = Rights { first_userns: Some(false), ..all.clone() };
        assert_eq!((inside.may_bpf(), inside.may_write_damon()), (Known::No, Known::No));
        let container = Rights { sees_kthreads: false, ..all.clone() };
        assert_eq!(container.may_write_damon(), Known::No, "other numbers");
        let locked = Rights { lockdown: Some("confidentiality".into()), ..all.clone() };
        assert_eq!((locked.may_bpf(), locked.may_write_damon()), (Known::No, Known::Yes));
        let some = Rights { euid: Some(1000), capabilities: Some(1 << 38 | 1 << 39), ..all };
        assert_eq!((some.may_bpf(), some.may_write_damon()), (Known::Yes, Known::No));
        assert_eq!(some.may_look_into_others(), Known::No);
        assert_eq!(Rights::default().may_bpf(), Known::Unseen);
    }

    proptest! {
        #[test]
        fn odd_texts_never_panic(text in "\\PC{0,60}|[\\[\\] a-z/,\n0-9]{0,80}") {
            let _ = chosen(&text);
            let _ = read_only(&text, "/sys");
        }
    }
}
