//! The program that is recorded: waited for, and ended with its group.

use super::RecordError;
use super::error::failed;
use crate::child::{self, Done};
use std::process::Child;
use std::time::Duration;

/// How long a program's children may be silent after its own end, before they
/// are ended: a daemon left behind must not hold a recording open for ever.
pub(super) const LINGER: Duration = Duration::from_secs(3);

/// Looks whether a child has ended, or waits for it.
pub(super) fn reap(child: &Child, wait: bool) -> Result<Option<Done>, RecordError> {
    child::reap(child.id() as libc::pid_t, wait).map_err(failed("wait for the program"))
}

/// How long a child that has ended, and is not waited for yet, was ready and had no CPU, in
/// nanoseconds. `None`: it runs still, or this system does not say.
pub(super) fn delayed_of_ended(pid: u32) -> Option<u64> {
    // SAFETY: a structure of ours; the child stays to be waited for.
    let ended = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid, &mut info, how) == 0 && info.si_pid() != 0
    };
    let text = ended.then(|| std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok())??;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Ends a process group, at once.
pub(super) fn end_group(pid: u32) {
    // SAFETY: a signal to a group that we started.
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}
