//! Whose memory: processes by number, by cgroup, or all; their names.

use super::read::may_read;
use super::{MergeError, Targets};
use homenode_core::ksm::saving::Ended;
use homenode_live::people::find::{all, cgroup_folder, of_cgroup};
use homenode_live::people::name::name_of;
use homenode_live::people::stat::Stat;
use homenode_live::text::{capabilities, number};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A process, so named that a reused number is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Its number.
    pub(super) pid: u32,
    /// When it was started, in clock ticks since boot.
    pub(super) start: u64,
    /// A guest's domain, or the command's name.
    pub(super) name: String,
    /// Anonymous pages in memory, as it is told.
    pub(super) pages: u64,
}

/// The processes that are asked for and have memory, by rising number, and how many
/// were left out.
///
/// With CAP_SYS_PTRACE some may refuse all the same, such as those of another user
/// namespace: unless they were named, they are left out.
///
/// # Errors
/// [`MergeError`] if one that was named is not there, or privilege is missing to read
/// one: before anything is read.
pub(super) fn find(targets: &Targets) -> Result<(Vec<Owner>, usize), MergeError> {
    let found = list(targets)?;
    let asked = found.len();
    let named = matches!(targets, Targets::Pids(_));
    sort_out(found, asked, named || !privileged(), |pid| may_read(pid) != Err(Ended::Refused))
}

/// Parts what may be read from what may not, which is an error if `strict` or if
/// nothing else is left.
fn sort_out(
    found: Vec<Owner>,
    asked: usize,
    strict: bool,
    readable: impl Fn(u32) -> bool,
) -> Result<(Vec<Owner>, usize), MergeError> {
    let (fine, refused): (Vec<_>, Vec<_>) = found.into_iter().partition(|p| readable(p.pid));
    match refused.first() {
        Some(first) if strict || fine.is_empty() => Err(MergeError::Refused {
            pid: first.pid,
            name: first.name.clone(),
            others: refused.len() - 1,
            asked,
        }),
        None if fine.is_empty() => Err(MergeError::Nobody),
        _ => Ok((fine, refused.len())),
    }
}

/// Whether this process has CAP_SYS_PTRACE.
fn privileged() -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    has_ptrace(&status)
}

/// Whether bit 19 is set in a text as /proc/PID/status has it.
fn has_ptrace(status: &str) -> bool {
    capabilities(status).is_some_and(|caps| caps & 1 << 19 != 0)
}

/// As [`find`], for a second look: what has gone or refuses now is left out.
pub(super) fn find_again(targets: &Targets) -> Vec<Owner> {
    let found = match targets {
        Targets::Pids(pids) => pids.iter().filter_map(|&pid| describe(pid)).collect(),
        _ => list(targets).unwrap_or_default(),
    };
    found.into_iter().filter(|p| may_read(p.pid).is_ok()).collect()
}

fn list(targets: &Targets) -> Result<Vec<Owner>, MergeError> {
    // Kernel threads have no pages.
    let others = |pid| describe(pid).filter(|p| p.pid != std::process::id() && p.pages > 0);
    let mut found = Vec::new();
    match targets {
        Targets::Pids(pids) => {
            for &pid in pids.iter().collect::<BTreeSet<_>>() {
                match may_read(pid) {
                    Err(Ended::Exited) => return Err(MergeError::NoProcess { pid }),
                    _ => found.push(describe(pid).ok_or(MergeError::NoProcess { pid })?),
                }
            }
        }
        Targets::Cgroup(path) => {
            let folder = cgroup_folder(Path::new("/"), path)
                .ok_or_else(|| MergeError::NoCgroup { path: path.clone() })?;
            let pids =
                of_cgroup(&folder).map_err(|(path, source)| MergeError::Cgroup { path, source })?;
            found.extend(pids.into_iter().filter_map(others));
        }
        Targets::All => {
            let all = all(Path::new("/proc")).map_err(MergeError::Proc)?;
            found.extend(all.into_iter().filter_map(|(pid, _)| others(pid)));
        }
    }
    Ok(found)
}

/// What /proc says about a process; `None` if it is gone.
fn describe(pid: u32) -> Option<Owner> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
    let stat = Stat::parse(&read("stat")?)?;
    let name = name_of(&read("cmdline").unwrap_or_default(), &stat.comm);
    let pages = anon_pages(&String::from_utf8_lossy(&read("status")?));
    Some(Owner { pid, start: stat.start, name, pages })
}

/// `RssAnon:     123 kB` of /proc/PID/status, in pages; 0 where there is none.
fn anon_pages(status: &str) -> u64 {
    number(status, "RssAnon:").map_or(0, |kib| kib / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_pages_are_told_in_kib() {
        assert_eq!(anon_pages("Name: x\nRssAnon:\t    4100 kB\nRssFile: 8 kB\n"), 1025);
        assert_eq!(anon_pages("Name: x\n"), 0);
    }

    #[test]
    fn who_refuses_is_an_error_only_where_privilege_is_missing() {
        let process = |pid| Owner { pid, start: 1, name: format!("p{pid}"), pages: 1 };
        let all = || vec![process(1), process(2), process(3)];
        let (fine, left_out) = sort_out(all(), 3, false, |pid| pid == 2).unwrap();
        assert_eq!((fine, left_out), (vec![process(2)], 2));
        let error = sort_out(all(), 3, true, |pid| pid == 2).unwrap_err().to_string();
        assert!(
            error.contains("process 1 (p1) and 1 more of 3 is refused, nothing was read"),
            "{error}"
        );
        assert!(matches!(sort_out(all(), 3, false, |_| false), Err(MergeError::Refused { .. })));
        assert!(matches!(sort_out(vec![], 0, false, |_| true), Err(MergeError::Nobody)));
        assert!(has_ptrace("Name: x\nCapEff:\t0000000000080000\n"));
        assert!(!has_ptrace("CapEff:\t000000000007ffff\nCapBnd:\tffffffffffffffff\n"));
    }

    #[test]
    fn we_are_here() {
        let us = describe(std::process::id()).unwrap();
        assert!(us.start > 0 && us.pages > 0 && !us.name.is_empty(), "{us:?}");
        assert!(matches!(
            find(&Targets::Pids(vec![1 << 30])),
            Err(MergeError::NoProcess { pid }) if pid == 1 << 30
        ));
        assert!(find_again(&Targets::Pids(vec![1 << 30])).is_empty());
    }
}
