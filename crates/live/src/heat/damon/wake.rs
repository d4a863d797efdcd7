//! One descriptor that can be read when there is something to do: the ring is half full,
//! or targets are to be told.

use crate::heat::epoll::{Epoll, owned};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An epoll descriptor over a timer and the ring. Without one nothing is lost but haste.
#[derive(Debug)]
pub(super) struct Wake {
    epoll: Epoll,
    timer: OwnedFd,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no memory is involved.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let wake = Self { epoll: Epoll::new()?, timer };
        wake.also(wake.timer.as_raw_fd())?;
        Ok(wake)
    }

    /// Also when that one can be read. It falls out by being closed.
    pub(super) fn also(&self, fd: RawFd) -> io::Result<()> {
        self.epoll.add(fd, 0)
    }

    /// When to be woken, in nanoseconds of `CLOCK_MONOTONIC`, a past time being at once;
    /// `None` is never. A ringing timer is silent again.
    pub(super) fn at(&self, ns: Option<u64>) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // 0 would switch it off.
        let ns = ns.map_or(0, |ns| ns.max(1));
        let it_value = libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        };
        let new = libc::itimerspec { it_interval: zero, it_value };
        let fd = self.timer.as_raw_fd();
        // SAFETY: the kernel reads one itimerspec. It can't fail with a valid one.
        unsafe {
            libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &new, std::ptr::null_mut());
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.epoll.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn rings(wake: &Wake) -> bool {
        let mut poll = libc::pollfd { fd: wake.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor in an array of one.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    #[test]
    fn it_rings_by_time_and_by_another_descriptor() {
        let wake = Wake::new().unwrap();
        assert!(!rings(&wake));
        wake.at(Some(0));
        assert!(rings(&wake), "a time that is past");
        wake.at(Some(u64::MAX / 4));
        assert!(!rings(&wake), "far in the future");
        wake.at(None);
        let (read, mut write) = std::io::pipe().unwrap();
        wake.also(read.as_raw_fd()).unwrap();
        assert!(!rings(&wake));
        write.write_all(b"x").unwrap();
        assert!(rings(&wake));
        drop(read);
        assert!(!rings(&wake));
    }
}
