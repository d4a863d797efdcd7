//! What a task waits for, by the system call that it is in. Numbers are those of x86-64.

use homenode_core::sched::course::Blocked;

/// Kinds of files, as in their mode.
const FIFO: u8 = 0o01;
const SOCKET: u8 = 0o14;
const REGULAR: u8 = 0o10;
const BLOCK: u8 = 0o06;

/// What a task waits for.
///
/// * `call` – its number, also of no call.
/// * `file` – the kind of the file that is its first argument, if that is one.
/// * `fault` – it is in a page fault.
/// * `iowait` – the kernel counts it as waiting for I/O.
pub(super) fn blocked(call: u16, file: u8, fault: bool, iowait: bool) -> Blocked {
    if iowait {
        return Blocked::Disk;
    }
    if fault {
        return Blocked::Fault;
    }
    match call {
        // read, write, pread64, pwrite64, readv, writev, sendfile, preadv, pwritev, splice, tee, vmsplice,
        // preadv2, pwritev2
        0 | 1 | 17..=20 | 40 | 275 | 276 | 278 | 295 | 296 | 327 | 328 => match file {
            FIFO => Blocked::Pipe,
            SOCKET => Blocked::Socket,
            REGULAR | BLOCK => Blocked::Disk,
            _ => Blocked::Other,
        },
        // connect, accept, sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg, sendmmsg
        42..=47 | 288 | 299 | 307 => Blocked::Socket,
        // fsync, fdatasync, sync, syncfs, sync_file_range, io_getevents
        74 | 75 | 162 | 208 | 277 | 306 => Blocked::Disk,
        // nanosleep, clock_nanosleep
        35 | 230 => Blocked::Timer,
        // futex, futex_waitv, futex_wait
        202 | 449 | 455 => Blocked::Futex,
        // poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2
        7 | 23 | 232 | 270 | 271 | 281 | 441 => Blocked::Poll,
        // vfork, wait4, waitid
        58 | 61 | 247 => Blocked::Child,
        // pause, rt_sigtimedwait, rt_sigsuspend
        34 | 128 | 130 => Blocked::Signal,
        _ => Blocked::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_say_what_is_waited_for() {
        let of = |call, file| blocked(call, file, false, false);
        assert_eq!(of(0, FIFO), Blocked::Pipe);
        assert_eq!(of(1, SOCKET), Blocked::Socket);
        assert_eq!(of(0, 0o02), Blocked::Other, "a terminal");
        assert_eq!(
            [of(202, 0), of(230, 0), of(61, 0)],
            [Blocked::Futex, Blocked::Timer, Blocked::Child]
        );
        assert_eq!(of(u16::MAX, 0), Blocked::Other, "a thread of the kernel");
        assert_eq!(blocked(0, FIFO, false, true), Blocked::Disk);
        assert_eq!(blocked(4, 0, true, false), Blocked::Fault);
    }
}
