//! A program that is merged as a whole, and the signals meanwhile.

use super::KsmError;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// `PR_SET_MEMORY_MERGE`, which libc does not name everywhere.
const SET: libc::c_int = 67;
/// `PR_GET_MEMORY_MERGE`.
const GET: libc::c_int = 68;

/// Whether this kernel can merge a process as a whole.
pub(super) fn can_merge_whole() -> bool {
    // SAFETY: asks about this process; takes no pointer.
    unsafe { libc::prctl(GET, 0, 0, 0, 0) >= 0 }
}

/// The kernel's release, such as `6.1.0-44-amd64`.
pub(super) fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Whether `program` can be started, told before anything is changed.
pub(super) fn resolve(program: &OsStr) -> Result<PathBuf, KsmError> {
    let executable =
        |p: &Path| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let searched = !program.as_bytes().contains(&b'/');
    let found = if searched {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|d| d.join(program)).find(|p| executable(p))
    } else {
        Some(PathBuf::from(program)).filter(|p| executable(p))
    };
    let name = || program.to_string_lossy().into_owned();
    found.filter(|_| !program.is_empty()).ok_or_else(|| match Path::new(program).is_file() {
        true if !searched => {
            KsmError::Launch { program: name(), source: io::Error::from_raw_os_error(libc::EACCES) }
        }
        _ => KsmError::NoProgram { program: name(), searched },
    })
}

/// Starts a program whose memory is registered as a whole, also that of its
/// children.
pub(super) fn launch(command: &[OsString]) -> Result<Child, KsmError> {
    let (program, args) = command
        .split_first()
        .ok_or_else(|| KsmError::NoProgram { program: String::new(), searched: false })?;
    let mut start = Command::new(program);
    start.args(args);
    // SAFETY: one system call, which is allowed between fork and exec.
    unsafe {
        start.pre_exec(|| match libc::prctl(SET, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    start.spawn().map_err(|source| KsmError::Launch {
        program: program.to_string_lossy().into_owned(),
        source,
    })
}

/// Why nobody's memory but that of what is launched is merged: what this kernel
/// answers to `process_madvise(MADV_MERGEABLE)`, asked with an empty list so that
/// nothing changes.
pub fn merging_others(pid: u32) -> io::Result<()> {
    // SAFETY: plain numbers; the list is empty, so that no pointer is followed.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid as i32), 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd as i32);
        let none = std::ptr::null::<libc::iovec>();
        let (advice, nothing) = (libc::c_long::from(libc::MADV_MERGEABLE), 0 as libc::c_long);
        let done = libc::syscall(
            libc::SYS_process_madvise,
            libc::c_long::from(fd.as_raw_fd()),
            none,
            nothing,
            advice,
            nothing,
        );
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

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

/// Catches SIGINT, SIGTERM and SIGHUP until it is dropped.
pub(crate) struct Signals {
    old: Vec<(i32, libc::sigaction)>,
    seen: u32,
}

impl Signals {
    /// From now on.
    pub(crate) fn catch() -> Self {
        COUNT.store(0, SeqCst);
        let old = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].map(|signal| {
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
        Self { old: old.into(), seen: 0 }
    }
    /// A signal that has come since the last call, and whether the terminal sent it to
    /// everybody in the foreground.
    pub(crate) fn arrived(&mut self) -> Option<(i32, bool)> {
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
pub(super) fn forward(child: &Child, signal: i32) {
    // SAFETY: a child that was not waited for keeps its number.
    unsafe { libc::kill(child.id() as i32, signal) };
}
