//! sched_ext, as the kernel shows it, and tasks that are put under it.
//!
//! ```text
//! /sys/kernel/sched_ext:
//!   state      "disabled", "enabled", …   a kernel with sched_ext
//!   root/ops   "homenode"                 whose scheduler is loaded
//! ```
//!
//! A scheduler that runs in part has the tasks of the policy SCHED_EXT; what such a task forks
//! has it too. While no scheduler is loaded the kernel treats them as the fair class's.
//!
//! Source: specs/wake.md#scx.

use std::fs;
use std::io;
use std::path::Path;

/// The policies' numbers.
const SCHED_OTHER: i32 = 0;
const SCHED_EXT: i32 = 7;

/// What a kernel has of sched_ext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedExt {
    /// Nothing.
    None,
    /// No scheduler is loaded.
    Free,
    /// This one is, or one comes or goes.
    Taken(String),
}

impl SchedExt {
    /// Looks below `root`, `/` for this machine.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(root.join("sys/kernel/sched_ext").join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        match read("state").as_deref() {
            None => Self::None,
            Some("disabled") => Self::Free,
            Some(state) => Self::Taken(read("root/ops").unwrap_or_else(|| state.to_owned())),
        }
    }
}

fn set_policy(thread: i32, policy: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: one structure that outlives the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A thread's policy.
fn policy(thread: i32) -> io::Result<i32> {
    // SAFETY: it only asks.
    match unsafe { libc::sched_getscheduler(thread) } {
        -1 => Err(io::Error::last_os_error()),
        // Without SCHED_RESET_ON_FORK.
        policy => Ok(policy & 0x3fff_ffff),
    }
}

/// Runs `f` while this thread is under sched_ext: what it starts stays there.
///
/// # Errors
/// If the kernel refuses the policy; `f` has not run then.
pub fn under<T>(f: impl FnOnce() -> T) -> io::Result<T> {
    set_policy(0, SCHED_EXT)?;
    let done = f();
    set_policy(0, SCHED_OTHER)?;
    Ok(done)
}

/// Puts the threads of a process under sched_ext that are ordinary ones; others keep their policy.
///
/// Returns those that were put there. What has ended meanwhile is no error.
///
/// # Errors
/// If the kernel refuses one.
pub fn join(process: u32) -> io::Result<Vec<u32>> {
    let mut joined = Vec::new();
    for thread in threads(process) {
        let ordinary = policy(thread as i32).is_ok_and(|p| p == SCHED_OTHER);
        if !ordinary {
            continue;
        }
        match set_policy(thread as i32, SCHED_EXT) {
            Ok(()) => joined.push(thread),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(joined)
}

/// Gives the threads of a process back to the fair class that are under sched_ext.
pub fn leave(process: u32) {
    for thread in threads(process) {
        if policy(thread as i32).is_ok_and(|p| p == SCHED_EXT) {
            // One that has ended meanwhile is out of it as well.
            let _ = set_policy(thread as i32, SCHED_OTHER);
        }
    }
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    folder.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let root = std::env::temp_dir().join(format!("homenode-scx-{}", std::process::id()));
        let folder = root.join("sys/kernel/sched_ext");
        assert_eq!(SchedExt::of(&root), SchedExt::None);
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("state"), "disabled\n").unwrap();
        assert_eq!(SchedExt::of(&root), SchedExt::Free);
        fs::write(folder.join("state"), "enabling\n").unwrap();
        assert_eq!(SchedExt::of(&root), SchedExt::Taken("enabling".to_owned()));
        fs::write(folder.join("state"), "enabled\n").unwrap();
        fs::write(folder.join("root/ops"), "simple\n").unwrap();
        assert_eq!(SchedExt::of(&root), SchedExt::Taken("simple".to_owned()));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_thread_is_ordinary_again_afterwards() {
        // A kernel without sched_ext doesn't know the policy.
        match under(|| policy(0).unwrap()) {
            Ok(seen) => assert_eq!(seen, SCHED_EXT),
            Err(error) => println!("this kernel has no SCHED_EXT: {error}"),
        }
        assert_eq!(policy(0).unwrap(), SCHED_OTHER);
        // Nobody has this number.
        assert!(join(u32::MAX >> 1).unwrap().is_empty());
    }
}
