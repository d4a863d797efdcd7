//! Processes of one's own: made, kept on CPUs, told apart, ended.

use std::fs;
use std::io;
use std::ptr;

use anyhow::{Context, Result, bail};
use homenode_core::units::Picos;

/// Runs `f` in a new process, which ends if `f` does.
pub(crate) fn fork(f: impl FnOnce()) -> Result<i32> {
    // SAFETY: this program has one thread, so that the child may do anything.
    match unsafe { libc::fork() } {
        -1 => bail!("no process: {}", io::Error::last_os_error()),
        0 => {
            f();
            // SAFETY: ends the child, without what the parent does at its end.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits for the end of a child.
pub(crate) fn wait(pid: i32) {
    // SAFETY: waits for a child that was not waited for, or is nobody's.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}

/// Kills a child and waits for its end.
pub(crate) fn end(pid: i32) {
    // SAFETY: signals a child that was not waited for, or is nobody's.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid);
}

/// Keeps a process on these CPUs; this one by the number 0, and then only the calling thread.
pub(crate) fn pin(pid: u32, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a plain array of bits, all of them clear.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: guests have fewer CPUs than it has bits.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: a set of the size that is told.
    let r = unsafe { libc::sched_setaffinity(pid as i32, size_of_val(&set), &set) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// When a process began: field 22 of /proc/PID/stat.
pub(crate) fn started(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit(')').next().context("a stat without a name")?;
    rest.split_whitespace().nth(19).and_then(|word| word.parse().ok()).context("a short stat")
}

/// Nanoseconds that all threads of a process have run.
pub(crate) fn ran(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text = tasks.map(|t| fs::read_to_string(t.path().join("schedstat")).unwrap_or_default());
    text.filter_map(|t| t.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Nanoseconds that all processes have run whose name begins with one of these.
pub(crate) fn named_ran(names: &[&str]) -> u64 {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        names.iter().any(|begin| name.starts_with(begin))
    })
    .map(ran)
    .sum()
}

/// Seconds that a process has spent in the kernel.
pub(crate) fn system(pid: u32) -> f64 {
    /// Ticks of `/proc/PID/stat` a second.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().nth(12).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / TICKS
}

/// Processor time of this process.
pub(crate) fn cpu_time() -> Picos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one structure that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Picos::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
