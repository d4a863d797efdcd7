//! A program that is merged as a whole.

use super::KsmError;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// `PR_SET_MEMORY_MERGE`, which libc does not name everywhere.
const SET: libc::c_int = 67;
/// `PR_GET_MEMORY_MERGE`.
const GET: libc::c_int = 68;

/// Whether this kernel can merge a process as a whole.
pub(super) fn can_merge_whole() -> bool {
    // SAFETY: asks about this process; takes no pointer.
    unsafe { libc::prctl(GET, 0, 0, 0, 0) >= 0 }
}

/// The kernel's release, such as `6.1.0-44-amd64`.
pub(super) fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Whether `program` can be started, told before anything is changed.
pub(super) fn resolve(program: &OsStr) -> Result<PathBuf, KsmError> {
    let executable =
        |p: &Path| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let searched = !program.as_bytes().contains(&b'/');
    let found = if searched {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|d| d.join(program)).find(|p| executable(p))
    } else {
        Some(PathBuf::from(program)).filter(|p| executable(p))
    };
    let name = || program.to_string_lossy().into_owned();
    found.filter(|_| !program.is_empty()).ok_or_else(|| match Path::new(program).is_file() {
        true if !searched => {
            KsmError::Launch { program: name(), source: io::Error::from_raw_os_error(libc::EACCES) }
        }
        _ => KsmError::NoProgram { program: name(), searched },
    })
}

/// Starts a program whose memory is registered as a whole, also that of its
/// children.
pub(super) fn launch(command: &[OsString]) -> Result<Child, KsmError> {
    let (program, args) = command
        .split_first()
        .ok_or_else(|| KsmError::NoProgram { program: String::new(), searched: false })?;
    let mut start = Command::new(program);
    start.args(args);
    // SAFETY: one system call, which is allowed between fork and exec.
    unsafe {
        start.pre_exec(|| match libc::prctl(SET, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    start.spawn().map_err(|source| KsmError::Launch {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Why nobody's memory but that of what is launched is merged: what this kernel
/// answers to `process_madvise(MADV_MERGEABLE)`, asked with an empty list so that
/// nothing changes.
pub fn merging_others(pid: u32) -> io::Result<()> {
    // SAFETY: plain numbers; the list is empty, so that no pointer is followed.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid as i32), 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd as i32);
        let none = std::ptr::null::<libc::iovec>();
        let (advice, nothing) = (libc::c_long::from(libc::MADV_MERGEABLE), 0 as libc::c_long);
        let done = libc::syscall(
            libc::SYS_process_madvise,
            libc::c_long::from(fd.as_raw_fd()),
            none,
            nothing,
            advice,
            nothing,
        );
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
