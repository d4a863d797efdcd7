//! Running children and taking their times.

use super::{RecordError, run};
use homenode_trace::Native;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

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

/// Runs the command once, to its end. `None` where it was interrupted.
pub(super) fn once(command: &mut Command) -> Result<Native, RecordError> {
    let start = Instant::now();
    let child = command
        .spawn()
        .map_err(|source| RecordError::System { what: "start the program", source })?;
    loop {
        if let Some(done) = reap(&child, false)? {
            return Ok(Native {
                runs: 1,
                user_ns: done.user_ns,
                sys_ns: done.sys_ns,
                wall_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
                max_rss_bytes: done.max_rss_bytes,
            });
        }
        if run::interrupted() {
            run::end_group(child.id());
            reap(&child, true)?;
            return Err(RecordError::Interrupted);
        }
        // Short programs are timed to a fraction of a millisecond; long ones
        // need no such attention.
        let nap = start.elapsed() / 200;
        std::thread::sleep(nap.clamp(Duration::from_micros(50), Duration::from_millis(20)));
    }
}

/// The run whose CPU time is the median, with the largest resident set of all.
pub(super) fn median(mut runs: Vec<Native>) -> Option<Native> {
    runs.sort_by_key(|n| n.user_ns + n.sys_ns);
    let rss = runs.iter().map(|n| n.max_rss_bytes).max()?;
    let mut n = runs[runs.len() / 2].clone();
    n.runs = runs.len() as u32;
    n.max_rss_bytes = rss;
    Some(n)
}
