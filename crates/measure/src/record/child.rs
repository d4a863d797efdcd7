//! A child process: waited for, and ended with its group.

use super::RecordError;
use std::io;
use std::process::Child;

/// How a child ended and what it took.
pub(super) struct Done {
    /// As `wait4` gives it.
    pub(super) status: i32,
    pub(super) user_ns: u64,
    pub(super) sys_ns: u64,
    pub(super) max_rss_bytes: u64,
}

fn ns(t: libc::timeval) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(t.tv_usec).unwrap_or(0) * 1_000
}

/// Looks whether a child has ended, or waits for it.
pub(super) fn reap(child: &Child, wait: bool) -> Result<Option<Done>, RecordError> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        let flags = if wait { 0 } else { libc::WNOHANG };
        // SAFETY: both pointers are to locals.
        let got = unsafe { libc::wait4(pid, &mut status, flags, &mut usage) };
        if got == pid {
            return Ok(Some(Done {
                status,
                user_ns: ns(usage.ru_utime),
                sys_ns: ns(usage.ru_stime),
                max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            }));
        }
        if got == 0 {
            return Ok(None);
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(RecordError::System { what: "wait for the program", source });
        }
    }
}

/// Ends a process group, at once.
pub(super) fn end_group(pid: u32) {
    // SAFETY: a signal to a group that we started.
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}
