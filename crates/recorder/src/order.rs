//! Who lets whom go on: rows of releases and waits, with a number of order and an object.
//!
//! | calls | row |
//! |---|---|
//! | futex: wake, requeue, wake-op, unlock | release, of as many as the kernel has woken |
//! | futex: wait, lock | wait, if the kernel says that it was woken, or timed out |
//! | read, recv; write, send | bytes of a pipe, socket or event counter |
//! | splice, tee, sendfile, vmsplice | bytes of one, which are then bytes of the other |
//! | a write that found little room; poll and epoll after it ([`room`]) | wait |
//! | close of a pipe or socket, also by close_range, by running a program, or by the process's end | release |
//! | poll, select, epoll_wait | readiness of each object that it names; time |
//! | sleeps | time |
//! | fsync and the like | time of the disk |
//! | clone with CLONE_CHILD_CLEARTID, vfork | the word that an end clears; wait for the child |
//! | flock, fcntl; close of a file that is locked ([`locks`]) | release; wait |
//! | listen, connect, accept ([`sockets`]); shutdown | release; who is whose peer, and wait; release |
//! | kill and the like; timers; what a signal ended ([`signals`]) | signals and time |
//!
//! Without a call: atomic changes of words that a futex call has named, and that a word was
//! seen which a thread's end has cleared ([`crate::words`]); that a task has looked at a word until
//! another changed it ([`crate::spins`]).
//!
//! A release takes its number when the call is entered, a wait when it returns
//! ([`homenode_trace::waits`]). Which object a descriptor means is asked of the kernel at each
//! call: so it stays the same through dup, fork and passing on.
//!
//! What is outside (a terminal, the network, a disk) has the time that it took here. Whoever
//! writes the recording puts in the native time, where it knows that: so there is a row for each
//! call that may wait, be it over at once under the emulator.
//!
//! Source: specs/waits.md#order, specs/waits.md#objects

mod locks;
mod room;
pub(crate) mod signals;
mod sockets;

use crate::peek::peek;
use crate::spins::{Seen, Spun};
use crate::task::{Deadline, Entered, Looked, Task};
use crate::words::{Change, WORDS};
use homenode_core::splitmix::mix;
use homenode_trace::Kind;
use homenode_trace::waits::{
    ADDRESS_BITS, Block, DISK, LOOKED, NETWORK, READS_ONLY, Release, SHARED, Spin,
};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

/// What a descriptor is, as far as tasks wait for one another by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    /// Bytes come out of it that a task has written.
    Stream(u64),
    /// A counter that a write adds to and a read empties.
    Counter(u64),
    /// Signals are read from it: these, the first as bit 0.
    Signals(u64),
    /// A timer's end is read from it: that of this descriptor.
    Timer(i32),
    /// What comes from it is made outside: which device it is.
    Outside(u64),
    /// Files on disk and the like: nobody waits there for another task.
    Other,
}

/// What an epoll's events mean: by its descriptor and their data. Where another thread held
/// the lock when this process was forked, nothing is known here: hence `try_lock`.
static WATCHED: Mutex<BTreeMap<(i32, u64), i32>> = Mutex::new(BTreeMap::new());

/// How often who sees a word changed looks whether that has been told, at most. It takes some 50 ns,
/// but where the other has lost its CPU just then.
const TRIES: u32 = 1000;

/// What poll and epoll say of a descriptor that can be written to: who waited for that has not
/// waited for what somebody wrote.
const TO_WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;

fn clock() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    nanoseconds(t)
}

fn nanoseconds(t: libc::timespec) -> u64 {
    let (s, ns) = (u64::try_from(t.tv_sec).unwrap_or(0), u64::try_from(t.tv_nsec).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// A value of the recorded program's memory that the kernel has accepted in this call.
///
/// # Safety
/// `at` is null or was good for the call.
unsafe fn value<T: Copy>(at: u64) -> Option<T> {
    // SAFETY: the caller's promise.
    (at != 0).then(|| unsafe { (at as *const T).read_unaligned() })
}

/// A mixture of two numbers that stands for both.
fn mixed(a: u64, b: u64) -> u64 {
    mix(mix(a) ^ b) | SHARED
}

/// What the kernel says of a descriptor; `None`: there is no such one.
fn stat(fd: i32) -> Option<libc::stat> {
    // SAFETY: a stat buffer that fstat fills.
    unsafe {
        let mut st: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut st) == 0).then_some(st)
    }
}

fn object(fd: i32) -> Object {
    let Some(st) = stat(fd) else { return Object::Other };
    match st.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK => Object::Stream(mixed(st.st_dev, st.st_ino)),
        libc::S_IFCHR => Object::Outside(mixed(st.st_dev, st.st_rdev) & !LOOKED),
        // These have one inode; what they are stands in /proc.
        0 => {
            let info = Info::of(fd);
            if let Some(n) = info.value("eventfd-id:").and_then(|n| n.parse().ok()) {
                Object::Counter(mixed(st.st_dev, n))
            } else if let Some(mask) = info.value("sigmask:") {
                Object::Signals(u64::from_str_radix(mask, 16).unwrap_or(0))
            } else if info.value("clockid:").is_some() {
                Object::Timer(fd)
            } else {
                Object::Other
            }
        }
        _ => Object::Other,
    }
}

/// What /proc says of a descriptor.
struct Info(String);

impl Info {
    fn of(fd: i32) -> Self {
        Self(fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default())
    }
    /// What stands behind a name, if it is there.
    fn value(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }
}

/// The number by which the kernel knows a futex's word: an address, or a place in what
/// several address spaces share.
fn word(at: u64, private: bool) -> u64 {
    if private {
        return at;
    }
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return at };
    for line in maps.lines() {
        let mut parts = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(offset), Some(device), Some(inode)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else { continue };
        let hex = |s: &str| u64::from_str_radix(s, 16).unwrap_or(0);
        if !(hex(from)..hex(to)).contains(&at) {
            continue;
        }
        if rights.as_bytes().get(3) != Some(&b's') {
            return at;
        }
        let device = device.split(':').fold(0, |all, part| all << 32 | hex(part));
        let file = mixed(device, inode.parse().unwrap_or(0));
        return mixed(file, hex(offset).wrapping_add(at - hex(from)));
    }
    at
}

/// A moment on a clock, in nanoseconds.
///
/// # Safety
/// As for [`value`].
unsafe fn moment(at: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { value::<libc::timespec>(at) }.map(nanoseconds)
}

/// Time until a moment on a clock.
fn until(id: i32, then: u64) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec of ours.
    unsafe { libc::clock_gettime(id, &mut now) };
    then.saturating_sub(nanoseconds(now))
}

/// Watches a futex's word, if there is one.
fn watch(at: u64, operation: u64) {
    if let Some(at) = readable(at) {
        let private = operation as i32 & libc::FUTEX_PRIVATE_FLAG != 0;
        // SAFETY: it can be read.
        unsafe { WORDS.watch(at, || word(at, private)) };
    }
}

/// Whether a futex call names a second word.
fn names_two(operation: u64) -> bool {
    matches!(
        command(operation),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE | libc::FUTEX_WAKE_OP
    )
}

/// What a futex call does, without its flags.
fn command(operation: u64) -> i32 {
    operation as i32 & libc::FUTEX_CMD_MASK
}

impl Task {
    /// A call is entered: what it may wait for at most is read now, since the kernel may
    /// change it.
    pub(crate) fn enter(&mut self, number: i64, a: [u64; 6]) {
        self.told_signal = false;
        let mut deadline = None;
        // SAFETY: what the kernel refuses to read gives EFAULT after this has read it; the
        // program would have got that signal itself, were it not for the kernel.
        let timeout = unsafe {
            let span = |at: u64| readable(at).and_then(|at| value(at)).map(nanoseconds);
            let ms = |n: u64| u64::try_from(n as i32).ok().map(|n| n * 1_000_000);
            match number {
                libc::SYS_futex => match command(a[1]) {
                    libc::FUTEX_WAIT => span(a[3]),
                    libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI => {
                        let real = a[1] as i32 & libc::FUTEX_CLOCK_REALTIME != 0
                            || command(a[1]) == libc::FUTEX_LOCK_PI;
                        let id = if real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                        let then = readable(a[3]).and_then(|at| moment(at));
                        deadline = then.and_then(|then| self.since_look(id, then));
                        then.map(|then| until(id, then))
                    }
                    _ => None,
                },
                libc::SYS_poll => ms(a[2]),
                libc::SYS_epoll_wait | libc::SYS_epoll_pwait => ms(a[3]),
                libc::SYS_ppoll => span(a[2]),
                libc::SYS_pselect6 => span(a[4]),
                libc::SYS_select => {
                    let span = readable(a[4]).and_then(|at| value::<libc::timeval>(at));
                    let exact = |t: libc::timeval| libc::timespec {
                        tv_sec: t.tv_sec,
                        tv_nsec: t.tv_usec.saturating_mul(1000),
                    };
                    span.map(exact).map(nanoseconds)
                }
                libc::SYS_nanosleep => span(a[0]),
                libc::SYS_clock_nanosleep if a[1] as i32 & libc::TIMER_ABSTIME != 0 => {
                    let then = readable(a[2]).and_then(|at| moment(at));
                    deadline = then.and_then(|then| self.since_look(a[0] as i32, then));
                    then.map(|then| until(a[0] as i32, then))
                }
                libc::SYS_clock_nanosleep => span(a[2]),
                libc::SYS_rt_sigtimedwait => span(a[2]),
                libc::SYS_setitimer
                | libc::SYS_alarm
                | libc::SYS_timer_settime
                | libc::SYS_timerfd_settime => signals::timer_value(number, a),
                libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_recvmmsg
                | libc::SYS_sendmmsg
                | libc::SYS_splice
                | libc::SYS_tee
                | libc::SYS_vmsplice
                | libc::SYS_clone
                | libc::SYS_fork
                | libc::SYS_vfork
                | libc::SYS_wait4
                | libc::SYS_waitid
                | libc::SYS_pause
                | libc::SYS_rt_sigsuspend
                | libc::SYS_connect
                | libc::SYS_accept
                | libc::SYS_accept4
                | libc::SYS_sendfile
                | libc::SYS_kill
                | libc::SYS_tkill
                | libc::SYS_tgkill
                | libc::SYS_rt_sigqueueinfo
                | libc::SYS_rt_tgsigqueueinfo
                | libc::SYS_pidfd_send_signal
                | libc::SYS_fsync
                | libc::SYS_fdatasync
                | libc::SYS_sync
                | libc::SYS_syncfs
                | libc::SYS_msync
                | libc::SYS_sync_file_range => None,
                _ if locks::is_lock(number, a) => None,
                libc::SYS_dup2 | libc::SYS_dup3 if a[0] as i32 != a[1] as i32 => {
                    return self.closed(a[1] as i32);
                }
                libc::SYS_close => return self.closed(a[0] as i32),
                libc::SYS_close_range if a[2] as u32 & libc::CLOSE_RANGE_CLOEXEC == 0 => {
                    let range = a[0] as u32..=a[1] as u32;
                    return self.close_all(|fd| range.contains(&(fd as u32)));
                }
                libc::SYS_shutdown if a[1] as i32 != libc::SHUT_RD => {
                    return self.closed(a[0] as i32);
                }
                _ => return self.entered = Entered::default(),
            }
        };
        if number == libc::SYS_futex {
            // Before it waits: what ends the wait is to be seen.
            watch(a[0], a[1]);
            if names_two(a[1]) {
                watch(a[4], a[1]);
            }
        }
        let room = room::written(number, a).and_then(room::left);
        self.entered = Entered { order: self.number(), at: clock(), timeout, deadline, room };
    }

    /// The task has looked at a clock.
    pub(crate) fn looks_at_clock(&mut self, id: i32, at: u64) {
        // SAFETY: the kernel has just written it.
        let ns = unsafe { moment(at) };
        self.looked_at(id, ns);
    }
    /// The same by the older call.
    pub(crate) fn looks_at_day(&mut self, at: u64) {
        // SAFETY: the kernel has just written it, if it is there.
        let t = unsafe { value::<libc::timeval>(at) };
        let exact = |t: libc::timeval| libc::timespec {
            tv_sec: t.tv_sec,
            tv_nsec: t.tv_usec.saturating_mul(1000),
        };
        self.looked_at(libc::CLOCK_REALTIME, t.map(exact).map(nanoseconds));
    }
    fn looked_at(&mut self, id: i32, ns: Option<u64>) {
        let insns = self.now();
        let slot = usize::try_from(id).ok().and_then(|id| self.looked.get_mut(id));
        if let (Some(slot), Some(ns)) = (slot, ns) {
            *slot = Some(Looked { ns, insns });
        }
    }
    /// A moment on a clock, from the task's last look at it.
    fn since_look(&self, id: i32, then: u64) -> Option<Deadline> {
        let looked = usize::try_from(id).ok().and_then(|id| *self.looked.get(id)?)?;
        let ns = then.checked_sub(looked.ns)?;
        Some(Deadline { ago: self.now().saturating_sub(looked.insns), ns })
    }
    /// What is waited for next has a deadline.
    fn deadline(&mut self, deadline: Option<Deadline>) {
        if let Some(Deadline { ago, ns }) = deadline.filter(|_| self.is_kept()) {
            let order = self.number();
            self.release(Release::Deadline, ago, ns, order);
        }
    }

    /// Which bits a wait or a wake of a word has, told before its row, where it has not all of
    /// them. A wake has its number already.
    fn bits(&mut self, operation: i32, word: u64, bits: u64, order: Option<u64>) {
        let names_some = matches!(operation, libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET);
        if names_some && bits as u32 != u32::MAX {
            let order = order.unwrap_or_else(|| self.number());
            self.release(Release::Bits, word, bits & u64::from(u32::MAX), order);
        }
    }

    /// An atomic instruction has been at a word, or a store.
    ///
    /// # Safety
    /// The program has just accessed it.
    #[inline]
    pub(crate) unsafe fn changed(&mut self, at: u64) {
        // SAFETY: the caller's promise.
        if let Some(Change { object, now, before }) = unsafe { WORDS.changed(at) } {
            let insns = self.now();
            if let Some(spun) = self.looks.over(at, insns) {
                self.has_spun(object, spun);
            }
            let order = self.number();
            self.release(Release::Word, object, u64::from(now) | u64::from(before) << 32, order);
        }
    }
    /// A block that may be a loop's looks at a word of 1, 2, 4 or 8 bytes. `is_atomic`: it tries to
    /// change it, so that another value is no news.
    ///
    /// # Safety
    /// The program has just accessed it.
    #[inline]
    pub(crate) unsafe fn looks_at(&mut self, at: u64, bytes: u32, is_atomic: bool) {
        // SAFETY: the caller's promise.
        let word = unsafe {
            match bytes {
                1 => u64::from((at as *const u8).read_volatile()),
                2 => u64::from((at as *const u16).read_unaligned()),
                4 => u64::from((at as *const u32).read_unaligned()),
                8 => (at as *const u64).read_unaligned(),
                _ => return,
            }
        };
        match self.look(at, word) {
            Seen::Same => {}
            // SAFETY: the caller's promise.
            Seen::Often => unsafe { WORDS.watch_spun(at, bytes, || self::word(at, false)) },
            // SAFETY: the caller's promise.
            Seen::Changed(spun) if !is_atomic => unsafe { self.sees_changed(at, spun) },
            Seen::Changed(_) => {}
        }
    }
    /// A look has found another value than the one before.
    ///
    /// # Safety
    /// As for [`Self::looks_at`].
    #[cold]
    unsafe fn sees_changed(&mut self, at: u64, spun: Spun) {
        let Some(object) = WORDS.object(at) else { return };
        // Whoever has changed it may not have told that yet, and its number has to be the smaller.
        for _ in 0..TRIES {
            // SAFETY: the caller's promise.
            if unsafe { WORDS.is_told(at) } {
                break;
            }
            std::thread::yield_now();
        }
        self.has_spun(object, spun);
    }
    fn has_spun(&mut self, object: u64, Spun { insns, began, order: first }: Spun) {
        let order = self.number();
        let spin = Spin {
            insns: if self.is_kept() { insns } else { 0 },
            ago: order.saturating_sub(first),
            yields: insns > 0 && self.yielded > began,
        };
        self.point(Kind::Block, Block::Spin as u16, object, spin.arg(), order);
    }
    /// The task gives its CPU to others, if some want it.
    pub(crate) fn yields(&mut self) {
        self.yielded = self.now();
    }

    /// A word has been accessed that was not in the line accessed last.
    ///
    /// # Safety
    /// The program has just accessed it.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    #[inline]
    pub(crate) unsafe fn looked(&mut self, at: u64) {
        // SAFETY: the caller's promise.
        if unsafe { WORDS.seen_cleared(at) } {
            self.wait(Block::Cleared, at, 0);
        }
    }

    /// A descriptor is about to be closed.
    fn closed(&mut self, fd: i32) {
        self.entered = Entered::default();
        match object(fd) {
            Object::Stream(object) => {
                let order = self.number();
                // SAFETY: a plain call.
                let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
                let reads_only = flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY;
                let arg = if reads_only { READS_ONLY } else { 0 };
                self.release(Release::Close, object, arg, order);
            }
            Object::Other => self.closed_file(fd),
            Object::Counter(_) | Object::Signals(_) | Object::Timer(_) | Object::Outside(_) => {}
        }
    }

    /// Descriptors are about to be closed: those of the process that are meant.
    fn close_all(&mut self, is_meant: impl Fn(i32) -> bool) {
        self.entered = Entered::default();
        let Ok(all) = fs::read_dir("/proc/self/fd") else { return };
        let number =
            |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let all: Vec<i32> = all.filter_map(number).collect();
        for fd in all {
            if is_meant(fd) && !self.is_own(fd) {
                self.closed(fd);
            }
        }
    }
    /// The process is about to end, and its descriptors with it.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    pub(crate) fn closes_at_end(&mut self) {
        self.close_all(|_| true);
    }
    /// The task is about to run another program: then some of its descriptors are closed.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    pub(crate) fn closes_at_exec(&mut self) {
        // SAFETY: a plain call.
        let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) };
        self.close_all(|fd| flags(fd) >= 0 && flags(fd) & libc::FD_CLOEXEC != 0);
    }

    fn release(&mut self, of: Release, object: u64, arg: u64, order: u64) {
        self.point(Kind::Release, of as u16, object, arg, order);
    }
    fn wait(&mut self, of: Block, object: u64, arg: u64) {
        let arg = match of {
            // What ran before the slice takes no time; who let whom go on still counts.
            Block::Time | Block::FutexTimeout | Block::ReadyTimeout | Block::Alarm
                if !self.is_kept() =>
            {
                return;
            }
            Block::Outside if !self.is_kept() => 0,
            Block::Bytes | Block::End | Block::Ready if !self.is_kept() => {
                arg & u64::from(u32::MAX)
            }
            _ => arg,
        };
        let order = self.number();
        self.point(Kind::Block, of as u16, object, arg, order);
    }

    /// The call returns: what it has released, and what it may have waited for.
    pub(crate) fn leave(&mut self, number: i64, result: i64, a: [u64; 6]) {
        let entered = std::mem::take(&mut self.entered);
        let Entered { order, at, timeout, deadline, .. } = entered;
        if order == 0 {
            return;
        }
        if result == -i64::from(libc::EINTR) || result == signals::AGAIN {
            return self.interrupted(number, result, a, entered);
        }
        let failed = (-4095..0).contains(&result);
        let timed_out = result == -i64::from(libc::ETIMEDOUT);
        match number {
            libc::SYS_futex => {
                let private = a[1] as i32 & libc::FUTEX_PRIVATE_FLAG != 0;
                let woken = u64::try_from(result).unwrap_or(0);
                match command(a[1]) {
                    of @ (libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) if woken > 0 => {
                        self.bits(of, word(a[0], private), a[5], Some(order));
                        self.release(Release::Futex, word(a[0], private), woken, order);
                    }
                    libc::FUTEX_UNLOCK_PI if !failed => {
                        self.release(Release::Futex, word(a[0], private), 1, order);
                    }
                    libc::FUTEX_WAKE_OP if woken > 0 => {
                        let first = woken.min(a[2]);
                        self.release(Release::Futex, word(a[0], private), first, order);
                        let second = word(a[4], private);
                        self.release(Release::Futex, second, woken - first, order);
                    }
                    libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE if woken > 0 => {
                        let (first, from) = (woken.min(a[2]), word(a[0], private));
                        self.release(Release::Futex, from, first, order);
                        let moved = (woken - first).min(u64::from(u16::MAX)) << ADDRESS_BITS;
                        let to = word(a[4], private) & ((1 << ADDRESS_BITS) - 1);
                        self.release(Release::Requeue, from, moved | to, order);
                    }
                    of @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI) => {
                        match timeout {
                            Some(ns) if timed_out => {
                                self.deadline(deadline);
                                self.wait(Block::FutexTimeout, word(a[0], private), ns);
                            }
                            _ if result == 0 => {
                                self.bits(of, word(a[0], private), a[5], None);
                                self.deadline(deadline.or(from_here(timeout)));
                                self.wait(Block::Futex, word(a[0], private), order);
                            }
                            _ => {}
                        }
                    }
                    _ => {}
                }
            }
            _ if result == -i64::from(libc::EAGAIN) && room::written(number, a).is_some() => {
                self.found_no_room(number, a);
            }
            libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg
                if !failed =>
            {
                self.has_read(a, result as u64, entered);
            }
            libc::SYS_recvmmsg if !failed => {
                self.has_read(a, room::of_messages(a[1], result as u64), entered);
            }
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg
                if result > 0 =>
            {
                self.has_written(number, a, result as u64, entered);
            }
            libc::SYS_sendmmsg if result > 0 => {
                self.has_written(number, a, room::of_messages(a[1], result as u64), entered);
            }
            libc::SYS_vmsplice if result > 0 => {
                // SAFETY: a plain call.
                let flags = unsafe { libc::fcntl(a[0] as i32, libc::F_GETFL) };
                if flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY {
                    self.has_read(a, result as u64, entered);
                } else {
                    self.has_written(number, a, result as u64, entered);
                }
            }
            libc::SYS_splice if !failed => {
                self.moved(number, a, a[0] as i32, result as u64, entered)
            }
            libc::SYS_tee if !failed => self.moved(number, a, a[0] as i32, result as u64, entered),
            libc::SYS_sendfile if !failed => {
                self.moved(number, a, a[1] as i32, result as u64, entered);
            }
            libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync
            | libc::SYS_syncfs
            | libc::SYS_msync
            | libc::SYS_sync_file_range
                if !failed =>
            {
                self.wait(Block::Outside, DISK, clock() - at);
            }
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
                if let (Some(ns), false) = (timeout, failed) {
                    self.deadline(deadline);
                    self.wait(Block::Time, 0, ns);
                }
            }
            libc::SYS_poll | libc::SYS_ppoll => {
                let n = (a[1] as usize).min(1 << 16);
                // SAFETY: the kernel has just read and written all of them.
                let each = (0..n).filter_map(|i| unsafe { value(a[0] + 8 * i as u64) });
                let each: Vec<libc::pollfd> = if failed { Vec::new() } else { each.collect() };
                let ready = each.iter().filter(|p| p.revents & !TO_WRITE != 0);
                let ready: Vec<i32> = ready.map(|p| p.fd).collect();
                self.ready(&ready, result, entered);
                for p in each.iter().filter(|p| p.revents & TO_WRITE != 0) {
                    self.has_room(p.fd);
                }
            }
            libc::SYS_select | libc::SYS_pselect6 => {
                let in_set = |at: u64| {
                    // SAFETY: the kernel has just written as much of it.
                    let bit = move |fd: u64| unsafe { value::<u8>(at + fd / 8) };
                    let is_set = move |fd: &u64| {
                        at != 0 && !failed && bit(*fd).is_some_and(|b| b >> (fd % 8) & 1 == 1)
                    };
                    (0..a[0].min(1024)).filter(is_set).map(|fd| fd as i32)
                };
                // Of the three sets the second is for writing.
                let ready: Vec<i32> = in_set(a[1]).chain(in_set(a[3])).collect();
                self.ready(&ready, result, entered);
                in_set(a[2]).for_each(|fd| self.has_room(fd));
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                let n = u64::try_from(result).unwrap_or(0);
                // SAFETY: the kernel has just written so many.
                let event = |i: u64| unsafe {
                    (value::<u32>(a[1] + 12 * i), value::<u64>(a[1] + 12 * i + 4))
                };
                let (mut ready, mut to_write) = (Vec::new(), Vec::new());
                if let Ok(watched) = WATCHED.try_lock() {
                    for (events, data) in (0..n).map(event) {
                        let fd = data.and_then(|data| watched.get(&(a[0] as i32, data)).copied());
                        let (Some(events), Some(fd)) = (events, fd) else { continue };
                        if events & !(TO_WRITE as u32) != 0 {
                            ready.push(fd);
                        }
                        if events & TO_WRITE as u32 != 0 {
                            to_write.push(fd);
                        }
                    }
                }
                self.ready(&ready, result, entered);
                to_write.into_iter().for_each(|fd| self.has_room(fd));
            }
            libc::SYS_rt_sigtimedwait => self.took_signal(result, a, entered),
            libc::SYS_kill
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_rt_sigqueueinfo
            | libc::SYS_rt_tgsigqueueinfo
            | libc::SYS_pidfd_send_signal
                if !failed =>
            {
                self.sent(number, a, order);
            }
            libc::SYS_setitimer
            | libc::SYS_alarm
            | libc::SYS_timer_settime
            | libc::SYS_timerfd_settime
                if !failed =>
            {
                self.armed(number, a, entered);
            }
            libc::SYS_connect if !failed || result == -i64::from(libc::EINPROGRESS) => {
                self.connected(a[0] as i32, order);
                // SAFETY: the kernel has just read the address.
                let family = unsafe { value::<u16>(a[1]) }.map(i32::from);
                let internet = [libc::AF_INET, libc::AF_INET6].map(Some).contains(&family);
                if internet && !failed {
                    self.wait(Block::Outside, NETWORK, clock() - at);
                }
            }
            libc::SYS_accept | libc::SYS_accept4 if !failed => {
                self.accepted(a[0] as i32, result as i32, entered);
            }
            libc::SYS_flock | libc::SYS_fcntl
                if [libc::EAGAIN, libc::EACCES].map(|e| -i64::from(e)).contains(&result) =>
            {
                self.refused(number, a);
            }
            libc::SYS_flock | libc::SYS_fcntl if !failed => self.locked(number, a, order),
            _ => {}
        }
    }

    /// A call has read from its first argument.
    fn has_read(&mut self, a: [u64; 6], bytes: u64, entered: Entered) {
        let took = took_since(entered.at);
        let few = bytes.min(u64::from(u32::MAX));
        match object(a[0] as i32) {
            Object::Stream(o) if few > 0 => self.wait(Block::Bytes, o, few | took),
            Object::Stream(o) => self.wait(Block::End, o, took),
            Object::Counter(o) => self.wait(Block::All, o, 0),
            Object::Signals(_) => self.read_signals(a[1], few, entered),
            Object::Timer(fd) => self.timed(fd),
            Object::Outside(device) => self.wait(Block::Outside, device, clock() - entered.at),
            Object::Other => {}
        }
    }
    /// A call has written to its first argument.
    fn has_written(&mut self, number: i64, a: [u64; 6], bytes: u64, entered: Entered) {
        match object(a[0] as i32) {
            Object::Stream(o) => {
                self.release(Release::Bytes, o, bytes, entered.order);
                self.wrote(number, a, bytes, entered);
            }
            Object::Counter(o) => self.release(Release::Bytes, o, 1, entered.order),
            Object::Signals(_) | Object::Timer(_) | Object::Outside(_) | Object::Other => {}
        }
    }
    /// A call has moved bytes from a descriptor to the one that it writes to.
    fn moved(&mut self, number: i64, a: [u64; 6], from: i32, bytes: u64, entered: Entered) {
        let took = took_since(entered.at);
        let few = bytes.min(u64::from(u32::MAX));
        let mut behind = false;
        match object(from) {
            Object::Stream(o) if few == 0 => self.wait(Block::End, o, took),
            Object::Stream(o) => {
                behind = true;
                // What tee copies stays there.
                let of = if number == libc::SYS_tee { Block::Ready } else { Block::Bytes };
                let arg = if of == Block::Ready { took } else { few | took };
                self.wait(of, o, arg);
            }
            Object::Outside(device) => {
                behind = true;
                self.wait(Block::Outside, device, clock() - entered.at);
            }
            Object::Counter(_) | Object::Signals(_) | Object::Timer(_) | Object::Other => {}
        }
        let to = room::written(number, a).map(object);
        let (Some(Object::Stream(o)), 1..) = (to, few) else { return };
        // Nobody can have waited for what came from a file.
        let order = if behind { self.number() } else { entered.order };
        if behind {
            let ago = (order - entered.order).min(u64::from(u32::MAX));
            self.release(Release::Moved, o, few | ago << 32, order);
        } else {
            self.release(Release::Bytes, o, bytes, order);
        }
        self.wrote(number, a, bytes, entered);
    }

    /// A call says which descriptors are ready.
    fn ready(&mut self, fds: &[i32], result: i64, entered: Entered) {
        if let (0, Some(ns @ 1..)) = (result, entered.timeout) {
            return self.wait(Block::ReadyTimeout, 0, ns);
        }
        // The first has ended the wait; the others have come with it.
        let mut took = took_since(entered.at);
        let mut deadline = from_here(entered.timeout);
        for &fd in fds {
            match object(fd) {
                Object::Stream(o) | Object::Counter(o) => {
                    self.deadline(deadline.take());
                    self.wait(Block::Ready, o, std::mem::take(&mut took));
                }
                Object::Signals(mask) => self.signalled(mask, entered),
                Object::Timer(fd) => self.timed(fd),
                Object::Outside(device) if fds.len() == 1 => {
                    self.wait(Block::Outside, device | LOOKED, clock() - entered.at);
                }
                Object::Outside(_) | Object::Other => {}
            }
        }
    }

    /// An epoll's descriptor is told what to look at.
    pub(crate) fn watches(&mut self, a: [u64; 6]) {
        let (epoll, fd) = (a[0] as i32, a[2] as i32);
        let Ok(mut watched) = WATCHED.try_lock() else { return };
        // SAFETY: the kernel has just read it.
        if let Some(data) = (a[3] != 0).then(|| unsafe { value(a[3] + 4) }).flatten() {
            watched.retain(|known, old| known.0 != epoll || *old != fd);
            watched.insert((epoll, data), fd);
        }
    }

    /// Two sockets have been made that are a pair.
    pub(crate) fn paired(&mut self, at: u64) {
        // SAFETY: the kernel has just written both.
        let Some(fds) = (unsafe { value::<[i32; 2]>(at) }) else { return };
        if let [Object::Stream(one), Object::Stream(other)] = fds.map(object) {
            let order = self.number();
            self.release(Release::Pair, one, other, order);
        }
    }

    /// A child or a thread has been made.
    pub(crate) fn bore(&mut self, number: i64, child: u64, a: [u64; 6]) {
        let flags = if number == libc::SYS_clone { a[0] } else { 0 };
        if flags & libc::CLONE_CHILD_CLEARTID as u64 != 0 && flags & libc::CLONE_VM as u64 != 0 {
            let order = self.number();
            self.release(Release::ClearTid, a[3], child, order);
            WORDS.clears(a[3]);
        }
        if number == libc::SYS_vfork || flags & libc::CLONE_VFORK as u64 != 0 {
            self.wait(Block::Child, 0, child);
        }
    }
}

/// How long a call has taken that was entered then: microseconds, at least one, in the high 32
/// bits.
fn took_since(at: u64) -> u64 {
    ((clock() - at) / 1000).clamp(1, u64::from(u32::MAX)) << 32
}

/// A deadline that is counted from the wait's beginning.
fn from_here(timeout: Option<u64>) -> Option<Deadline> {
    timeout.filter(|&ns| ns > 0).map(|ns| Deadline { ago: 0, ns })
}

/// An address that can be read, or none: the program may give any.
fn readable(at: u64) -> Option<u64> {
    let mut bytes = [0; 16];
    (at != 0 && peek(at, &mut bytes) == bytes.len()).then_some(at)
}

#[cfg(test)]
mod tests;
