//! Whose processes are, and what cgroups have on which nodes, as the kernel shows it.
//!
//! ```text
//! /proc/PID/status  Name, Uid        /proc/PID/cgroup  0::/system.slice/db.service
//! /sys/fs/cgroup/system.slice/db.service/memory.numa_stat   anon N0=81920 N1=0
//! ```
//!
//! A cgroup's count is its own and that of all below it. It has what processes use, page
//! cache too; only `anon` and `file` can be moved. The kernel adds it up every two seconds,
//! or when much has changed.
//!
//! Source: specs/act.md#limits.

use crate::people::find::cgroup_folder;
use crate::people::stat::start_of;
use crate::place::Place;
use crate::text::field;
use homenode_core::limits::{Limits, Whose};
use homenode_core::policy::seen::Who;
use homenode_core::units::{NodeId, PAGE_SIZE, Pages, Picos};
use homenode_machine::Belongings;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// After so long a cgroup's count shows what was moved: the kernel's interval, and half of it
/// on top.
pub const SETTLES: Picos = Picos::from_secs(3);

/// Reads it.
#[derive(Clone, Debug)]
pub struct Belongs {
    place: Place,
}

impl Belongs {
    /// Below the folder that holds `proc` and `sys`.
    pub fn at(root: &Path) -> Self {
        Self { place: Place::at(root) }
    }

    fn numa_stat(&self, cgroup: &str) -> Option<String> {
        let folder = cgroup_folder(self.place.root(), Path::new(cgroup))?;
        fs::read_to_string(folder.join("memory.numa_stat")).ok()
    }

    /// Sentences on groups that are not there now; they may come.
    ///
    /// # Errors
    /// A sentence on the first group that is there and has no count: its floor, and others'
    /// priority, could not be held.
    pub fn check(&self, limits: &Limits) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        for group in &limits.groups {
            let path = &group.path;
            if cgroup_folder(self.place.root(), Path::new(path)).is_none() {
                notes.push(format!(
                    "cgroup {path} is not there now; what is said of it holds once it is"
                ));
            } else if self.numa_stat(path).is_none() {
                return Err(format!(
                    "cgroup {path} has no memory.numa_stat, so what it has on fast nodes is not \
                     known: enable the memory controller for it (`+memory` in its parent's \
                     cgroup.subtree_control, or MemoryAccounting=yes in its unit), with version 2 \
                     of cgroups"
                ));
            }
        }
        Ok(notes)
    }
}

impl Belongings for Belongs {
    fn whose(&mut self, who: Who) -> Option<Whose> {
        let read = |name: &str| {
            let path = self.place.path(&format!("/proc/{}/{name}", who.pid));
            Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
        };
        let (status, cgroups) = (read("status")?, read("cgroup").unwrap_or_default());
        let user = field(&status, "Uid:")?.split_whitespace().next()?.parse().ok()?;
        let command = field(&status, "Name:").unwrap_or_default().to_owned();
        let cgroup = cgroups.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/").to_owned();
        // The number may be another's by now.
        (start_of(&self.place, who.pid) == Some(who.start)).then_some(Whose {
            command,
            cgroup,
            user,
        })
    }
    fn pages(&mut self, cgroup: &str, on: &BTreeSet<NodeId>) -> Option<Pages> {
        let bytes = bytes_on(&self.numa_stat(cgroup)?, on);
        Some(Pages(bytes / PAGE_SIZE))
    }
}

/// Bytes of `anon` and `file` on some nodes.
fn bytes_on(numa_stat: &str, on: &BTreeSet<NodeId>) -> u64 {
    let mut sum = 0u64;
    for line in numa_stat.lines() {
        let mut words = line.split_ascii_whitespace();
        if !matches!(words.next(), Some("anon" | "file")) {
            continue;
        }
        for (node, bytes) in words.filter_map(|w| w.strip_prefix('N')?.split_once('=')) {
            if node.parse().is_ok_and(|n| on.contains(&NodeId(n))) {
                sum = sum.saturating_add(bytes.parse().unwrap_or(0));
            }
        }
    }
    sum
}

/// The number of a user by `/etc/passwd`.
pub fn user(root: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(root.join("etc/passwd")).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::limits::Group;
    use homenode_fixtures::Folder;

    const TEXT: &str = "anon N0=8192 N1=4096\nfile N0=4096 N1=0\nkernel_stack N0=16384 N1=0\n\
                        shmem N0=4096 N1=0\nfile_mapped N0=4096 N1=0\n";

    #[test]
    fn a_groups_memory_is_what_its_processes_use() {
        let on = |nodes: &[u16]| bytes_on(TEXT, &nodes.iter().copied().map(NodeId).collect());
        assert_eq!((on(&[0]), on(&[1]), on(&[0, 1]), on(&[7])), (12_288, 4096, 16_384, 0));
        assert_eq!(bytes_on("anon N0\nfile Nx=1 N0=y\n\nanon", &[NodeId(0)].into()), 0);
    }

    #[test]
    fn who_i_am() {
        let mut here = Belongs::at(Path::new("/"));
        let pid = std::process::id();
        let start = start_of(&Place::here(), pid).unwrap();
        let whose = here.whose(Who { pid, start }).unwrap();
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        // SAFETY: it only asks.
        assert_eq!((whose.command.as_str(), whose.user), (comm.trim(), unsafe { libc::getuid() }));
        assert!(whose.cgroup.starts_with('/'), "{whose:?}");
        // Another one had the number before.
        assert_eq!(here.whose(Who { pid, start: start + 1 }), None);
        assert_eq!(here.whose(Who { pid: u32::MAX, start }), None);
        assert_eq!(user(Path::new("/"), "root"), Some(0));
        assert_eq!(user(Path::new("/"), "no such user"), None);
    }

    #[test]
    fn a_group_without_a_count_can_have_no_floor() {
        let at = Folder::new();
        let group = |path: &str| Group { path: path.to_owned(), floor: Pages(1), priority: 0 };
        let limits = Limits { excluded: Vec::new(), groups: vec![group("/db")] };
        let mut here = Belongs::at(&at);
        let notes = here.check(&limits).unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let folder = at.join("sys/fs/cgroup/db");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), "").unwrap();
        let why = here.check(&limits).unwrap_err();
        assert!(why.contains("memory.numa_stat") && why.contains("+memory"), "{why}");
        assert_eq!(here.pages("/db", &[NodeId(0)].into()), None);
        fs::write(folder.join("memory.numa_stat"), TEXT).unwrap();
        assert_eq!(here.check(&limits), Ok(Vec::new()));
        assert_eq!(here.pages("/db", &[NodeId(0)].into()), Some(Pages(3)));
        // It vanishes.
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(here.pages("/db", &[NodeId(0)].into()), None);
    }
}
