//! Whose memory: processes by number, by cgroup, or all; their names.

use super::read::{Stop, may_read};
use super::{MergeError, Targets};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A process, so named that a reused number is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
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
pub(super) fn find(targets: &Targets) -> Result<(Vec<Process>, usize), MergeError> {
    let found = list(targets)?;
    let asked = found.len();
    let named = matches!(targets, Targets::Pids(_));
    sort_out(found, asked, named || !privileged(), |pid| may_read(pid) != Err(Stop::Refused))
}

/// Parts what may be read from what may not, which is an error if `strict` or if
/// nothing else is left.
fn sort_out(
    found: Vec<Process>,
    asked: usize,
    strict: bool,
    readable: impl Fn(u32) -> bool,
) -> Result<(Vec<Process>, usize), MergeError> {
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

/// Bit 19 of `CapEff:` in a text as /proc/PID/status has it.
fn has_ptrace(status: &str) -> bool {
    status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|v| u64::from_str_radix(v.trim(), 16).ok())
        .is_some_and(|caps| caps & 1 << 19 != 0)
}

/// As [`find`], for a second look: what has gone or refuses now is left out.
pub(super) fn find_again(targets: &Targets) -> Vec<Process> {
    let found = match targets {
        Targets::Pids(pids) => pids.iter().filter_map(|&pid| describe(pid)).collect(),
        _ => list(targets).unwrap_or_default(),
    };
    found.into_iter().filter(|p| may_read(p.pid).is_ok()).collect()
}

fn list(targets: &Targets) -> Result<Vec<Process>, MergeError> {
    let ours = std::process::id();
    let mut found = Vec::new();
    match targets {
        Targets::Pids(pids) => {
            for &pid in pids.iter().collect::<BTreeSet<_>>() {
                match may_read(pid) {
                    Err(Stop::Gone) => return Err(MergeError::NoProcess { pid }),
                    _ => found.push(describe(pid).ok_or(MergeError::NoProcess { pid })?),
                }
            }
        }
        Targets::Cgroup(path) => {
            for pid in of_cgroup(&cgroup_folder(path)?)? {
                found.extend(describe(pid).filter(|p| p.pid != ours && p.pages > 0));
            }
        }
        Targets::All => {
            let folder = fs::read_dir("/proc").map_err(MergeError::Proc)?;
            let mut pids: Vec<u32> = folder
                .flatten()
                .filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok()))
                .collect();
            pids.sort_unstable();
            for pid in pids {
                // Kernel threads have no pages.
                found.extend(describe(pid).filter(|p| p.pid != ours && p.pages > 0));
            }
        }
    }
    Ok(found)
}

/// The folder of a cgroup, which may be named from the root of its hierarchy.
fn cgroup_folder(path: &Path) -> Result<PathBuf, MergeError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    [PathBuf::from(path), Path::new("/sys/fs/cgroup").join(relative)]
        .into_iter()
        .find(|p| p.join("cgroup.procs").is_file())
        .ok_or_else(|| MergeError::NoCgroup { path: path.to_owned() })
}

/// Processes of a cgroup and of all below it.
fn of_cgroup(folder: &Path) -> Result<BTreeSet<u32>, MergeError> {
    let failed = |source| MergeError::Cgroup { path: folder.to_owned(), source };
    let mut pids = BTreeSet::new();
    match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => pids.extend(text.lines().filter_map(|l| l.trim().parse::<u32>().ok())),
        // A threaded cgroup's processes are listed further up.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(pids),
        Err(e) => return Err(failed(e)),
    }
    for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            pids.extend(of_cgroup(&entry.path())?);
        }
    }
    Ok(pids)
}

/// What /proc says about a process; `None` if it is gone.
fn describe(pid: u32) -> Option<Process> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
    let text = |name: &str| read(name).map(|t| String::from_utf8_lossy(&t).into_owned());
    let start = start_time(&text("stat")?)?;
    let words = read("cmdline").unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|b| *b == 0).collect();
    let name = guest_name(&words)
        .or_else(|| text("comm").map(|c| c.trim_end().to_owned()))
        .unwrap_or_default();
    Some(Process { pid, start, name: printable(&name), pages: anon_pages(&text("status")?) })
}

/// A name that does nothing to a terminal.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Field 22 of /proc/PID/stat; the second one may hold blanks and brackets.
fn start_time(stat: &str) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// `RssAnon:     123 kB` of /proc/PID/status, in pages; 0 where there is none.
fn anon_pages(status: &str) -> u64 {
    status
        .lines()
        .find_map(|l| l.strip_prefix("RssAnon:"))
        .and_then(|v| v.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib / 4)
}

/// The name of a QEMU guest: `-name guest=web,debug-threads=on` or `-name web`,
/// with commas in it doubled. libvirt writes the domain's name there.
fn guest_name(words: &[&[u8]]) -> Option<String> {
    let program = String::from_utf8_lossy(words.first()?).into_owned();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    if !["qemu", "kvm"].iter().any(|p| program.starts_with(p)) {
        return None;
    }
    let at = words.iter().position(|w| *w == b"-name" || *w == b"--name")?;
    let value = String::from_utf8_lossy(words.get(at + 1)?).into_owned();
    // Doubled commas are commas; no name holds the stand-in.
    let value = value.replace(",,", "\u{1}");
    let mut parts = value.split(',');
    let first = parts.next()?;
    let name = match first.split_once('=') {
        None => first,
        Some(("guest", name)) => name,
        Some(_) => parts.find_map(|p| p.strip_prefix("guest="))?,
    };
    Some(name.replace('\u{1}', ",")).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_named_by_their_domains() {
        let name = |line: &str| guest_name(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        let qemu = "/usr/bin/qemu-system-x86_64";
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(name(line).as_deref(), expected, "{line}");
        };
        check(&format!("{qemu} -name guest=web-1,debug-threads=on -m 1G"), Some("web-1"));
        check(&format!("{qemu} -m 1G -name plain"), Some("plain"));
        check(&format!("{qemu} -name debug-threads=on,guest=x"), Some("x"));
        check(&format!("{qemu} -name a,,b,process=p"), Some("a,b"));
        check("kvm -name guest=k", Some("k"));
        check(&format!("{qemu} -m 1G -name"), None);
        check(&format!("{qemu} -name debug-threads=on"), None);
        check("find / -name guest=x", None);
        check("", None);
    }

    #[test]
    fn start_times_stand_behind_the_last_bracket() {
        let rest = (3..30).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(start_time(&format!("7 (a) b (c)) {rest}")), Some(22));
        assert_eq!(start_time("7 (a"), None);
        assert_eq!(anon_pages("Name: x\nRssAnon:\t    4100 kB\nRssFile: 8 kB\n"), 1025);
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a?[2Jb");
    }

    #[test]
    fn a_cgroup_is_all_below_it() {
        let folder = std::env::temp_dir().join(format!("homenode-cgroup-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir_all(folder.join("no-procs")).unwrap();
        fs::write(folder.join("cgroup.procs"), "12\n3\n").unwrap();
        fs::write(folder.join("a/cgroup.procs"), "").unwrap();
        fs::write(folder.join("a/b/cgroup.procs"), "4\n12\n").unwrap();
        let pids: Vec<u32> =
            of_cgroup(&cgroup_folder(&folder).unwrap()).unwrap().into_iter().collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(pids, [3, 4, 12]);
        let error = cgroup_folder(Path::new("/no/such/cgroup")).unwrap_err();
        assert!(error.to_string().contains("/no/such/cgroup"), "{error}");
    }

    #[test]
    fn who_refuses_is_an_error_only_where_privilege_is_missing() {
        let process = |pid| Process { pid, start: 1, name: format!("p{pid}"), pages: 1 };
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
