//! What system calls mean for a recording.

use crate::order::signals;
use crate::task::Task;
use crate::words::WORDS;
use homenode_trace::Kind;

const PAGE_BITS: u32 = 12;

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(1 << PAGE_BITS)
}

/// On which side of a call its caller is when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It is who called.
    Caller,
    /// It is the one thread of a process that the call has made.
    Child,
}

/// Whether a `clone` with these flags makes a thread.
pub(crate) fn makes_thread(number: i64, flags: u64) -> bool {
    number == libc::SYS_clone
        && flags & libc::CLONE_VM as u64 != 0
        && flags & libc::CLONE_VFORK as u64 == 0
}

fn page(at: u64) -> u64 {
    at >> PAGE_BITS
}

/// What anonymous memory is mapped with by `brk` and a growing `mremap`.
const HEAP: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64
    | ((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64) << 32;

impl Task {
    /// The program makes a call: what the kernel reads for it now, it has accessed.
    pub(crate) fn called(&mut self, number: i64, args: [u64; 6]) {
        self.call = (number, args);
        if number == libc::SYS_sched_yield {
            self.yields();
        }
        self.enter(number, args);
        if matches!(number, libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto) {
            // What the kernel will not take is not looked at: a length may be nonsense.
            self.kernel_access(args[1], args[2].min(1 << 21), false);
        }
    }

    /// The kernel has answered: what that has changed is a row. Other calls than these
    /// change no mapping, make no task and end none.
    pub(crate) fn returned(&mut self, number: i64, result: i64) -> Side {
        let (called, a) = self.call;
        if called != number {
            return Side::Caller;
        }
        self.leave(number, result, a);
        // Results from -4095 to -1 are errors.
        if (-4095..0).contains(&result) {
            return Side::Caller;
        }
        let done = result as u64;
        match number {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_recvfrom => {
                self.kernel_access(a[1], done, true)
            }
            libc::SYS_mmap => {
                let arg = (a[2] & 0xffff_ffff) | a[3] << 32;
                self.row(Kind::Map as u8, page(done), pages(a[1]), arg);
                self.core.forget();
            }
            libc::SYS_munmap => {
                WORDS.forget(a[0], a[1]);
                self.row(Kind::Unmap as u8, page(a[0]), pages(a[1]), 0);
                self.core.forget();
            }
            libc::SYS_mprotect => self.row(Kind::Protect as u8, page(a[0]), pages(a[1]), a[2]),
            libc::SYS_madvise if matches!(a[2] as i32, libc::MADV_DONTNEED | libc::MADV_FREE) => {
                self.row(Kind::Discard as u8, page(a[0]), pages(a[1]), a[2]);
                self.core.forget();
            }
            libc::SYS_mremap => {
                let (old, new) = (pages(a[1]), pages(a[2]));
                if old.min(new) > 0 && done != a[0] {
                    self.row(Kind::Remap as u8, page(a[0]), old.min(new), page(done));
                }
                if new > old {
                    self.row(Kind::Map as u8, page(done) + old, new - old, HEAP);
                } else if old > new {
                    self.row(Kind::Unmap as u8, page(a[0]) + new, old - new, 0);
                }
                self.core.forget();
            }
            libc::SYS_brk => {
                let old = std::mem::replace(&mut self.brk, done);
                let (from, to) = (pages(old), pages(done));
                if old != 0 && to > from {
                    self.row(Kind::Map as u8, from, to - from, HEAP);
                } else if old != 0 && to < from {
                    self.row(Kind::Unmap as u8, to, from - to, 0);
                    self.core.forget();
                }
            }
            libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
                if result == 0 {
                    signals::forked();
                    return Side::Child;
                }
                let kind = if makes_thread(number, a[0]) { Kind::Thread } else { Kind::Fork };
                self.row(kind as u8, 0, 0, done);
                self.flush();
                self.bore(number, done, a);
                // Pages are shared now, so that the next write to each is news.
                self.core.forget();
            }
            libc::SYS_epoll_ctl => self.watches(a),
            libc::SYS_clock_gettime => self.looks_at_clock(a[0] as i32, a[1]),
            libc::SYS_gettimeofday => self.looks_at_day(a[0]),
            libc::SYS_rt_sigaction => signals::handles(a),
            libc::SYS_timer_create => signals::made_timer(a),
            libc::SYS_socketpair => self.paired(a[3]),
            libc::SYS_listen => self.listens(a[0] as i32, a[1]),
            libc::SYS_wait4 if done > 0 => {
                let status = word(a[1]);
                self.row(
                    Kind::Wait as u8,
                    0,
                    u64::from(status.is_some()),
                    done | u64::from(status.unwrap_or(0)) << 32,
                );
                self.flush();
            }
            libc::SYS_waitid if a[2] != 0 => {
                if let Some((pid, status)) = ended_child(a[2]) {
                    let arg = u64::from(pid) | u64::from(status) << 32;
                    self.row(Kind::Wait as u8, 0, 1, arg);
                    self.flush();
                }
            }
            _ => {}
        }
        Side::Caller
    }
}

/// A word that the kernel has just written for the program.
fn word(at: u64) -> Option<u32> {
    // SAFETY: the call succeeded, so the address is good (or null).
    (at != 0).then(|| unsafe { (at as *const u32).read_unaligned() })
}

/// The child that `waitid` tells of and its status as `wait4` has it, if it has ended.
fn ended_child(info: u64) -> Option<(u32, u32)> {
    // `siginfo`: what has happened stands third, the child and its status behind 16 bytes.
    let (code, pid, status) = (word(info + 8)?, word(info + 16)?, word(info + 24)?);
    let status = match code as i32 {
        libc::CLD_EXITED => (status & 255) << 8,
        libc::CLD_KILLED => status & 127,
        libc::CLD_DUMPED => status & 127 | 128,
        // It has stopped or goes on, or nobody has done either.
        _ => return None,
    };
    (pid != 0).then_some((pid, status))
}

#[cfg(test)]
mod tests;
