//! One descriptor that can be read when there is something to do: the ring is half full,
//! or targets are to be told.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll descriptor over a timer and the ring. Without one nothing is lost but haste.
#[derive(Debug)]
pub(super) struct Wake {
    epoll: OwnedFd,
    timer: OwnedFd,
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: as above.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let wake = Self { epoll, timer };
        wake.also(wake.timer.as_raw_fd())?;
        Ok(wake)
    }

    /// Also when that one can be read. It falls out by being closed.
    pub(super) fn also(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: an event of ours, which the kernel copies.
        let r =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
        self.epoll.as_raw_fd()
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
