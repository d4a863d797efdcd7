//! Locks of files: who takes one, and what may give it back.
//!
//! A lock of `fcntl` belongs to the process, one of `flock` to the open file, which several
//! processes may have. So it ends when it is given back, when a descriptor is closed, or when a
//! task ends. A close is told of files that somebody in the recording has locked; a map of bits
//! that all processes share says which these may be.
//!
//! Source: specs/waits.md#files

use super::*;
use homenode_trace::waits::FileLock;
use homenode_trace::wire::{LOCKED_AT, LOCKED_WORDS};
use std::sync::atomic::Ordering::Relaxed;

/// Locks of the two kinds know nothing of each other.
const OF_OPEN_FILE: u64 = 1;
const OF_RANGES: u64 = 2;

/// Whether a call is about locks of files.
pub(super) fn is_lock(number: i64, a: [u64; 6]) -> bool {
    let command = a[1] as i32;
    number == libc::SYS_flock
        || number == libc::SYS_fcntl
            && matches!(
                command,
                libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW
            )
}

/// What the kernel knows a descriptor's file by, and how long it is.
fn file(fd: i32) -> Option<(u64, u64)> {
    let st = stat(fd)?;
    Some((mixed(st.st_dev, st.st_ino), u64::try_from(st.st_size).unwrap_or(0)))
}

/// The bytes that `fcntl` means.
fn range(fd: i32, l: &libc::flock, size: u64) -> (u64, u64) {
    let base = match i32::from(l.l_whence) {
        libc::SEEK_END => i64::try_from(size).unwrap_or(0),
        // SAFETY: a plain call that changes nothing.
        libc::SEEK_CUR => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) },
        _ => 0,
    };
    let at = base.saturating_add(l.l_start);
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    match l.l_len {
        0 => (positive(at), u64::MAX),
        1.. => (positive(at), positive(at.saturating_add(l.l_len))),
        _ => (positive(at.saturating_add(l.l_len)), positive(at)),
    }
}

/// What a call asks for: a lock of an object, or to give it back.
struct Asked {
    object: u64,
    of: u64,
    lock: FileLock,
    gives_back: bool,
}

fn asked(number: i64, a: [u64; 6]) -> Option<Asked> {
    let fd = a[0] as i32;
    let (file, size) = file(fd)?;
    let (kind, of_open_file, of, (from, to)) = if number == libc::SYS_flock {
        let kind = match a[1] as i32 & !libc::LOCK_NB {
            libc::LOCK_SH => libc::F_RDLCK,
            libc::LOCK_EX => libc::F_WRLCK,
            _ => libc::F_UNLCK,
        };
        (kind, true, OF_OPEN_FILE, (0, u64::MAX))
    } else {
        // SAFETY: the kernel has just read it.
        let l = unsafe { value::<libc::flock>(a[2]) }?;
        let of_open_file = matches!(a[1] as i32, libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
        (i32::from(l.l_type), of_open_file, OF_RANGES, range(fd, &l, size))
    };
    let lock = FileLock { exclusive: kind == libc::F_WRLCK, of_open_file, from, to };
    Some(Asked { object: mixed(file, of), of, lock, gives_back: kind == libc::F_UNLCK })
}

impl Task {
    /// A lock has been taken, or given back.
    pub(super) fn locked(&mut self, number: i64, a: [u64; 6], order: u64) {
        let Some(Asked { object, of, lock, gives_back }) = asked(number, a) else { return };
        // Who asks to share gives back what he had alone; `flock` always gives back first.
        if !lock.exclusive || of == OF_OPEN_FILE {
            let own = FileLock { exclusive: !gives_back, ..lock };
            self.release(Release::Unlock, object, own.pack(), order);
        }
        if !gives_back {
            let (word, bit) = place(object);
            self.shared(word).fetch_or(bit, Relaxed);
            self.shared(LOCKED_AT).store(1, Relaxed);
            self.wait(Block::Lock, object, lock.pack());
        }
    }
    /// Another has the lock that was asked for.
    pub(super) fn refused(&mut self, number: i64, a: [u64; 6]) {
        if let Some(Asked { object, lock, .. }) = asked(number, a) {
            self.wait(Block::Refused, object, lock.pack());
        }
    }

    /// A descriptor of a file is about to be closed.
    pub(super) fn closed_file(&mut self, fd: i32) {
        if self.shared(LOCKED_AT).load(Relaxed) == 0 {
            return;
        }
        let Some((file, _)) = file(fd) else { return };
        for object in [OF_OPEN_FILE, OF_RANGES].map(|of| mixed(file, of)) {
            let (word, bit) = place(object);
            if self.shared(word).load(Relaxed) & bit != 0 {
                let order = self.number();
                self.release(Release::Close, object, 0, order);
            }
        }
    }
}

/// Where it stands that an object may be locked: a word in what all processes share, and a bit.
fn place(object: u64) -> (usize, u64) {
    let word = 1 + (object >> 6) as usize % (LOCKED_WORDS - 1);
    (LOCKED_AT + 8 * word, 1 << (object % 64))
}
