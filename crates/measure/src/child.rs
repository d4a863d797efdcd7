//! A child process, waited for with what it took.

use std::io;

/// How a child ended and what it took.
pub(crate) struct Done {
    /// As `wait4` gives it.
    pub(crate) status: i32,
    pub(crate) user_ns: u64,
    pub(crate) sys_ns: u64,
    pub(crate) max_rss_bytes: u64,
    /// How often it, or what it waited for, blocked and left its CPU.
    pub(crate) voluntary_switches: u64,
}

/// A time as `rusage` has it, in nanoseconds.
pub(crate) fn ns(t: libc::timeval) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(t.tv_usec).unwrap_or(0) * 1_000
}

/// Looks whether a child of ours has ended, or waits for it.
pub(crate) fn reap(pid: libc::pid_t, wait: bool) -> io::Result<Option<Done>> {
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
                voluntary_switches: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
            }));
        }
        if got == 0 {
            return Ok(None);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}
