//! Time, and waiting for it.

use homenode_core::units::Picos;
use std::os::fd::RawFd;
use std::time::Duration;

/// A clock that can be waited for.
pub trait Clock {
    /// Time since some moment before, time for which the machine was suspended included.
    /// Never falls.
    fn now(&self) -> Picos;
    /// The part of it for which the machine was suspended.
    fn suspended(&self) -> Picos;
    /// Processor time that the thread that asks has used. Never falls.
    fn spent(&self) -> Picos;
    /// Sleeps until that time, or until the descriptor can be read.
    fn sleep(&self, until: Picos, wakes: Option<RawFd>);
}

/// The kernel's `CLOCK_BOOTTIME` since this was made: in picoseconds, 64 bits end after 213
/// days, and machines run for longer. Steps of the wall clock don't touch it.
#[derive(Clone, Copy, Debug)]
pub struct BootClock {
    began: Duration,
    /// Suspended before.
    before: Duration,
}

impl BootClock {
    /// A clock that begins at 0.
    pub fn start() -> Self {
        Self { began: time_of(libc::CLOCK_BOOTTIME), before: suspended() }
    }
}

impl Clock for BootClock {
    fn now(&self) -> Picos {
        picos(time_of(libc::CLOCK_BOOTTIME).saturating_sub(self.began))
    }
    fn suspended(&self) -> Picos {
        picos(suspended().saturating_sub(self.before))
    }
    fn spent(&self) -> Picos {
        picos(time_of(libc::CLOCK_THREAD_CPUTIME_ID))
    }
    fn sleep(&self, until: Picos, wakes: Option<RawFd>) {
        let left = Duration::from_nanos(until.saturating_sub(self.now()).as_ns());
        let Some(fd) = wakes else {
            std::thread::sleep(left);
            return;
        };
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // Rounded up: a sleep that is cut short would turn round and round.
        let ms = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        // SAFETY: one descriptor in an array of one, which outlives the call. A signal
        // only ends the sleep early.
        unsafe { libc::poll(&mut poll, 1, ms) };
    }
}

fn suspended() -> Duration {
    let boot = time_of(libc::CLOCK_BOOTTIME);
    boot.saturating_sub(time_of(libc::CLOCK_MONOTONIC))
}

fn picos(time: Duration) -> Picos {
    Picos(u64::try_from(time.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX))
}

/// What one of the kernel's clocks says: one that every Linux has.
pub fn time_of(clock: libc::clockid_t) -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours. These clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_nothing_and_sleeps_until_told() {
        let clock = BootClock::start();
        assert!(clock.now() < Picos::from_secs(3600));
        let until = clock.now() + Picos::from_ms(20);
        clock.sleep(until, None);
        assert!(clock.now() >= until);
        clock.sleep(until, None);
        assert_eq!(clock.suspended().as_ms() / 1000, 0);
    }

    #[test]
    fn a_descriptor_that_can_be_read_ends_the_sleep() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"x").unwrap();
        let clock = BootClock::start();
        clock.sleep(clock.now() + Picos::from_secs(60), Some(read.as_raw_fd()));
        assert!(clock.now() < Picos::from_secs(50));
    }
}
