//! The program that is recorded: waited for, and ended with its group.

use super::RecordError;
use super::error::failed;
use crate::child::{self, Done};
use std::process::Child;

/// Looks whether a child has ended, or waits for it.
pub(super) fn reap(child: &Child, wait: bool) -> Result<Option<Done>, RecordError> {
    child::reap(child.id() as libc::pid_t, wait).map_err(failed("wait for the program"))
}

/// Ends a process group, at once.
pub(super) fn end_group(pid: u32) {
    // SAFETY: a signal to a group that we started.
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}
