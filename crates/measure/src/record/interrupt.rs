//! Signals that end a recording early.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Signals belong to the process: one recording at a time.
pub(super) static ONE: Mutex<()> = Mutex::new(());

extern "C" fn on_signal(_: i32) {
    INTERRUPTED.store(true, SeqCst);
}

/// Whether a signal has come since [`Signals::catch`].
pub(super) fn interrupted() -> bool {
    INTERRUPTED.load(SeqCst)
}

/// Catches SIGINT and SIGTERM until it is dropped.
pub(super) struct Signals([(i32, libc::sigaction); 2]);

impl Signals {
    /// From now on.
    pub(super) fn catch() -> Self {
        INTERRUPTED.store(false, SeqCst);
        // SAFETY: the handler only stores to an atomic; zeroed sigactions are valid.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
            libc::sigemptyset(&mut new.sa_mask);
            Self([libc::SIGINT, libc::SIGTERM].map(|s| {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(s, &new, &mut old);
                (s, old)
            }))
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (s, old) in &self.0 {
            // SAFETY: `old` is what sigaction gave.
            unsafe { libc::sigaction(*s, old, std::ptr::null_mut()) };
        }
    }
}
