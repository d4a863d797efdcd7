//! Signals while something is driven or observed: noted, so that what was set up can be put
//! back, and handed on to the program that was started for it.

use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The last signal, how many came, and whether the terminal sent it (bit 31).
static SIGNAL: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);
const TERMINAL: u32 = 1 << 31;

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid pointer with SA_SIGINFO.
    let from_kernel = unsafe { !info.is_null() && (*info).si_code == libc::SI_KERNEL };
    SIGNAL.store(signal as u32 | if from_kernel { TERMINAL } else { 0 }, SeqCst);
    COUNT.fetch_add(1, SeqCst);
}

/// Whether a signal has come since they were last caught.
pub fn any() -> bool {
    COUNT.load(SeqCst) > 0
}

/// Catches signals until it is dropped.
pub struct Signals {
    old: Vec<(i32, libc::sigaction)>,
    seen: u32,
}

impl Signals {
    /// SIGINT, SIGTERM and SIGHUP from now on.
    pub fn catch() -> Self {
        Self::catch_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
    }
    /// These from now on.
    pub fn catch_these(signals: &[i32]) -> Self {
        COUNT.store(0, SeqCst);
        let caught = signals.iter().map(|&signal| {
            // SAFETY: the handler only stores to atomics; zeroed sigactions are valid.
            unsafe {
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_signal
                    as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)
                    as usize;
                new.sa_flags = libc::SA_SIGINFO;
                libc::sigemptyset(&mut new.sa_mask);
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &new, &mut old);
                (signal, old)
            }
        });
        Self { old: caught.collect(), seen: 0 }
    }
    /// A signal that has come since the last call, and whether the terminal sent it to
    /// everybody in the foreground.
    pub fn arrived(&mut self) -> Option<(i32, bool)> {
        let count = COUNT.load(SeqCst);
        if count == self.seen {
            return None;
        }
        self.seen = count;
        let signal = SIGNAL.load(SeqCst);
        Some(((signal & !TERMINAL) as i32, signal & TERMINAL != 0))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.old {
            // SAFETY: `old` is what sigaction gave.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// Sends a signal to our own child, which has not been waited for.
pub fn forward(child: &Child, signal: i32) {
    // SAFETY: a child that was not waited for keeps its number.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Kills a child of ours that was started with a process group of its own, and all of it.
pub fn kill_group(child: &Child) {
    // SAFETY: a child that was not waited for keeps its number, and so does its group.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
}

/// Whether a child is over, without taking its status: until that is done, the kernel still
/// shows what it knows of it.
pub fn has_ended(child: &Child) -> bool {
    // SAFETY: all zeroes are a structure of this kind.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes into a structure of ours, and leaves the child as it is.
    let told = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, flags) };
    // SAFETY: it was written by the kernel, or is zero.
    told != 0 || unsafe { info.si_pid() } != 0
}

/// Waits until a child is over, without taking its status.
pub fn wait_for_end(pid: u32) {
    loop {
        // SAFETY: all zeroes are a structure of this kind.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes into a structure of ours, and leaves the child as it is.
        let told =
            unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        // One that somebody else has waited for is over too.
        if told == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}
