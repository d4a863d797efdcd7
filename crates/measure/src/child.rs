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

/// What this thread (`RUSAGE_THREAD`), or all our children that have ended (`RUSAGE_CHILDREN`), used.
pub(crate) fn usage(who: i32) -> libc::rusage {
    // SAFETY: all zeros is a valid `rusage`, which the call then fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    }
}

/// Looks whether a child of ours has ended, or waits for it.
pub(crate) fn reap(pid: libc::pid_t, wait: bool) -> io::Result<Option<Done>> {
    wait4(pid, if wait { 0 } else { libc::WNOHANG })
}

/// Children of ours that belong to a process group.
pub(crate) enum Group {
    /// There is none any more.
    Gone,
    /// None has ended since.
    Living,
    /// This one has.
    Ended(Done),
}

/// Looks whether a child of ours has ended that belongs to a process group.
pub(crate) fn reap_of_group(group: u32) -> io::Result<Group> {
    match wait4(-(group as libc::pid_t), libc::WNOHANG) {
        Ok(Some(done)) => Ok(Group::Ended(done)),
        Ok(None) => Ok(Group::Living),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(Group::Gone),
        Err(e) => Err(e),
    }
}

fn wait4(pid: libc::pid_t, flags: i32) -> io::Result<Option<Done>> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals.
        let got = unsafe { libc::wait4(pid, &mut status, flags, &mut usage) };
        if got > 0 {
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
