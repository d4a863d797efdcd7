//! The numbers of processes: all that there are, and those of a cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// All numbers in a `/proc`, rising, each with the inode of its folder: a number that is
/// used again has another one, which tells without reading anything of the process.
///
/// # Errors
/// What the system says if the folder can't be listed.
pub fn all(proc: &Path) -> io::Result<Vec<(u32, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            found.push((pid, entry.ino()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The folder of a cgroup, which may be named from the root of its hierarchy.
pub fn cgroup_folder(root: &Path, path: &Path) -> Option<PathBuf> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    [
        path.to_owned(),
        root.join("sys/fs/cgroup").join(relative),
        // Where both versions are mounted.
        root.join("sys/fs/cgroup/unified").join(relative),
    ]
    .into_iter()
    .find(|p| p.join("cgroup.procs").is_file())
}

/// Processes of a cgroup and of all below it; none if it is gone.
///
/// # Errors
/// The folder that can't be read, and what the system says.
pub fn of_cgroup(folder: &Path) -> Result<BTreeSet<u32>, (PathBuf, io::Error)> {
    let failed = |error| (folder.to_owned(), error);
    let is_gone = |e: &io::Error| {
        e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV)
    };
    let mut pids = BTreeSet::new();
    match fs::read_to_string(folder.join("cgroup.procs")) {
        // 0 is a process that has no number here.
        Ok(text) => {
            let numbers = text.lines().filter_map(|l| l.trim().parse::<u32>().ok());
            pids.extend(numbers.filter(|pid| *pid > 0));
        }
        // A threaded cgroup's processes are listed further up.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(e) if is_gone(&e) => return Ok(pids),
        Err(e) => return Err(failed(e)),
    }
    let entries = match fs::read_dir(folder) {
        Err(e) if is_gone(&e) => return Ok(pids),
        entries => entries.map_err(failed)?,
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            pids.extend(of_cgroup(&entry.path())?);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_all_below_it() {
        let root = PathBuf::from("/");
        let folder = std::env::temp_dir().join(format!("homenode-cgroup-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir_all(folder.join("no-procs")).unwrap();
        fs::write(folder.join("cgroup.procs"), "12\n3\n0\n").unwrap();
        fs::write(folder.join("a/cgroup.procs"), "").unwrap();
        fs::write(folder.join("a/b/cgroup.procs"), "4\n12\n").unwrap();
        let pids: Vec<u32> =
            of_cgroup(&cgroup_folder(&root, &folder).unwrap()).unwrap().into_iter().collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(pids, [3, 4, 12]);
        assert_eq!(cgroup_folder(&root, Path::new("/no/such/cgroup")), None);
        assert!(of_cgroup(&folder).unwrap().is_empty(), "it is gone");
    }
}
