//! Room in pipes and sockets for what a task writes.
//!
//! A pipe says how much it holds. A socket has what the kernel reckons, with its own overhead: so
//! it is asked before a write how much is left, and a write of more has waited if another task
//! read at the other end meanwhile. A task that does not wait in its write is told that there is
//! no room, and looks for some by poll or epoll.
//!
//! Source: specs/waits.md#who-ends-what

use super::*;
use std::mem::{size_of, size_of_val};

/// What of `SO_MEMINFO` is used: what is sent and not taken, of local sockets and of others, and
/// the most of that.
const SENT: usize = 2;
const MOST: usize = 3;
const QUEUED: usize = 5;
const FIELDS: usize = 9;

/// Objects that had too little room for a write which does not wait, and the number of order then.
static FULL: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Bytes that a socket has room for; `None`: it is no socket.
pub(super) fn left(fd: i32) -> Option<u64> {
    let mut all = [0u32; FIELDS];
    let mut len = size_of_val(&all) as u32;
    // SAFETY: room for as much as it says.
    let failed = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, all.as_mut_ptr().cast(), &mut len)
    };
    let known = failed == 0 && len as usize > QUEUED * size_of::<u32>();
    known.then(|| u64::from(all[MOST].saturating_sub(all[SENT].max(all[QUEUED]))))
}

/// The descriptor that a call writes to, if it does.
pub(super) fn written(number: i64, a: [u64; 6]) -> Option<i32> {
    match number {
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_vmsplice => Some(a[0] as i32),
        libc::SYS_splice => Some(a[2] as i32),
        libc::SYS_tee => Some(a[1] as i32),
        _ => None,
    }
}

/// Bytes that a call was to write, where its arguments say that.
fn wanted(number: i64, a: [u64; 6]) -> Option<u64> {
    match number {
        libc::SYS_write | libc::SYS_sendto => Some(a[2]),
        libc::SYS_writev => Some(bytes_of(a[1], a[2])),
        libc::SYS_sendmsg => {
            // SAFETY: the kernel has just read it: the vectors, and how many.
            let (at, n) = unsafe { (value::<u64>(a[1] + 16)?, value::<u64>(a[1] + 24)?) };
            Some(bytes_of(at, n))
        }
        _ => None,
    }
}

/// Bytes of some vectors that the kernel has just read.
fn bytes_of(at: u64, n: u64) -> u64 {
    // SAFETY: the caller's promise; the kernel takes 1,024 at most.
    let len = |i: u64| unsafe { value::<u64>(at + 16 * i + 8) }.unwrap_or(0);
    (0..n.min(1024)).fold(0, |all, i| all.saturating_add(len(i)))
}

/// Bytes of the messages that `recvmmsg` and `sendmmsg` have taken.
pub(super) fn of_messages(at: u64, n: u64) -> u64 {
    const MESSAGE_BYTES: u64 = 64;
    const LEN_AT: u64 = 56;
    // SAFETY: the kernel has just written these.
    let len = |i: u64| unsafe { value::<u32>(at + MESSAGE_BYTES * i + LEN_AT) }.unwrap_or(0);
    (0..n.min(1024)).map(|i| u64::from(len(i))).sum()
}

fn waits(fd: i32) -> bool {
    // SAFETY: a plain call.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK == 0
}

impl Task {
    /// A write to a stream has returned, which has told what it releases: whether it waited.
    ///
    /// * `bytes` – as many as it has written.
    pub(super) fn wrote(&mut self, number: i64, a: [u64; 6], bytes: u64, entered: Entered) {
        let Entered { order, room, .. } = entered;
        let Some(fd) = written(number, a) else { return };
        let Object::Stream(o) = object(fd) else { return };
        // SAFETY: a plain call; of other descriptors than pipes it fails.
        let holds = unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) };
        // Nobody can have made room if nobody did anything meanwhile.
        let alone = self.next_number() == order + 1;
        match u64::try_from(holds) {
            Ok(holds @ 1..) if !alone => self.wait(Block::Room, o, holds),
            Ok(_) => {}
            // What the kernel adds to what is sent is little where much is sent at once.
            Err(_) => {
                let full = room.is_some_and(|left| bytes.saturating_add(bytes / 8) >= left);
                if !alone && full && waits(fd) {
                    self.writable(o, order);
                }
            }
        }
        if wanted(number, a).is_some_and(|wanted| bytes < wanted) && !waits(fd) {
            self.full(o);
        }
    }
    /// A write to a stream has found no room and does not wait for it.
    pub(super) fn found_no_room(&mut self, number: i64, a: [u64; 6]) {
        // Others may have found nothing to move.
        let moves = matches!(number, libc::SYS_splice | libc::SYS_tee);
        let to = written(number, a).filter(|_| !moves);
        if let Some(Object::Stream(o)) = to.map(object) {
            self.full(o);
        }
    }
    fn full(&self, object: u64) {
        let now = self.next_number().saturating_sub(1);
        if let Ok(mut full) = FULL.try_lock() {
            match full.iter_mut().find(|f| f.0 == object) {
                Some(f) => f.1 = now,
                None => full.push((object, now)),
            }
        }
    }
    /// A call says that a descriptor can be written to.
    pub(super) fn has_room(&mut self, fd: i32) {
        if FULL.try_lock().is_ok_and(|full| full.is_empty()) {
            return;
        }
        let Object::Stream(o) = object(fd) else { return };
        let since = FULL.try_lock().ok().and_then(|mut full| {
            let at = full.iter().position(|f| f.0 == o)?;
            Some(full.swap_remove(at).1)
        });
        if let Some(since) = since {
            self.writable(o, since);
        }
    }
    fn writable(&mut self, object: u64, since: u64) {
        let order = self.number();
        self.point(Kind::Block, Block::Writable as u16, object, order - since, order);
    }
}
