//! One descriptor that can be read when one of others can be.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll of the kernel's.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

/// What a call that makes a descriptor has returned.
pub(super) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Also when that one can be read. It falls out by being closed.
    ///
    /// * `how` – 0, or `EPOLLET`: told once each time, until [`Epoll::clear`].
    pub(super) fn add(&self, fd: RawFd, how: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | how) as u32, u64: 0 };
        // SAFETY: an event of ours, which the kernel copies.
        let r = unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// From now on it can be read when one that was added by its edges is told anew.
    pub(super) fn clear(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event in a local, which outlives the call. That there was
        // none, or a signal came, doesn't matter.
        unsafe { libc::epoll_wait(self.fd(), &mut event, 1, 0) };
    }
}
