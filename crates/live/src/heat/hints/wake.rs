//! A descriptor that can be read once the ring was half full.
//!
//! The ring itself can be read as soon as one record is in it: whoever slept on it would
//! be woken by each fault. An epoll that was asked for edges reports what the program
//! wakes it for, and no more than that, until it is asked again.

use super::error::HintsError;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The epoll.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn on(ring: BorrowedFd<'_>) -> Result<Self, HintsError> {
        let failed = || HintsError::Wake { source: io::Error::last_os_error() };
        // SAFETY: it takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(failed());
        }
        // SAFETY: a new descriptor that nobody else knows.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut event =
            libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: two open descriptors and a local that outlives the call.
        let r = unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, ring.as_raw_fd(), &mut event) };
        if r < 0 { Err(failed()) } else { Ok(Self(epoll)) }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// From now on it can be read when the program wakes it anew.
    pub(super) fn clear(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event in a local, which outlives the call. That there was
        // none, or a signal came, doesn't matter.
        unsafe { libc::epoll_wait(self.fd(), &mut event, 1, 0) };
    }
}
