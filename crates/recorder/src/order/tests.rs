//! Calls on real descriptors of this process, and what they leave in the recording.

use super::*;
use crate::task::tests::Rig;
use expect_test::{Expect, expect};
use homenode_trace::waits::FileLock;
use homenode_trace::wire::{HEAD_BYTES, WireRow};
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A call: its number, its first arguments, and the kernel's answer.
type Call<'a> = (i64, &'a [u64], i64);

fn make(r: &mut Rig, calls: &[Call<'_>]) {
    for (number, args, result) in calls {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        r.task.called(*number, all);
        r.task.returned(*number, *result);
    }
}

/// The releases and waits of a recording: what it is, its name, and the row.
fn ordered(r: &mut Rig) -> Vec<(&'static str, &'static str, WireRow)> {
    r.task.flush();
    let mut all = Vec::new();
    for frame in r.frames() {
        let mut rest = &frame[HEAD_BYTES..];
        while let Some((row, n)) = WireRow::decode(rest) {
            rest = &rest[n..];
            let of = usize::from(row.reads);
            match Kind::from_number(row.kind) {
                Some(Kind::Release) => all.push(("release", Release::ALL[of].name(), row)),
                Some(Kind::Block) => all.push(("wait", Block::ALL[of].name(), row)),
                _ => {}
            }
        }
    }
    all
}

/// The releases and waits of a recording; objects are numbered as they come.
fn points(r: &mut Rig) -> String {
    let (mut text, mut objects) = (String::new(), Vec::new());
    for (kind, name, row) in ordered(r) {
        let mut named = |n: u64| {
            if n & SHARED == 0 {
                return format!("{:#x}", n as u32);
            }
            let known = objects.iter().position(|&o| o == n).unwrap_or(objects.len());
            objects.resize(objects.len().max(known + 1), n);
            format!("object {known}")
        };
        let (object, arg) = (named(row.pages), named(row.arg));
        writeln!(text, "{}: {kind} {name} of {object}, {arg}", row.page).expect("text");
    }
    text
}

fn check(calls: &[Call<'_>], expected: Expect) {
    let mut r = Rig::new();
    make(&mut r, calls);
    expected.assert_eq(&points(&mut r));
}

fn pair(made: [i32; 2]) -> [OwnedFd; 2] {
    // SAFETY: just made, and nobody else's.
    made.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
fn pipe() -> [OwnedFd; 2] {
    let mut made = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe2(made.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    pair(made)
}
fn number(fd: &OwnedFd) -> u64 {
    fd.as_raw_fd() as u64
}

const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;

#[test]
fn a_futex_tells_who_was_woken_and_who_waited() {
    let word = 0u32;
    let at = &raw const word as u64;
    let short = libc::timespec { tv_sec: 0, tv_nsec: 5000 };
    let wake = libc::FUTEX_WAKE as u64 | PRIVATE;
    let wait = libc::FUTEX_WAIT as u64 | PRIVATE;
    let mut r = Rig::new();
    let timed: [u64; 4] = [at, wait, 0, &raw const short as u64];
    make(
        &mut r,
        &[
            // Nobody waited.
            (libc::SYS_futex, &[at, wake, 1], 0),
            (libc::SYS_futex, &[at, wake, 5], 2),
            // The word had another value.
            (libc::SYS_futex, &[at, wait, 1], -i64::from(libc::EAGAIN)),
            (libc::SYS_futex, &[at, wait, 0], 0),
            (libc::SYS_futex, &timed, -i64::from(libc::ETIMEDOUT)),
            // Without the flag a word of one's own memory is the same word.
            (libc::SYS_futex, &[at, libc::FUTEX_WAKE as u64, 1], 1),
        ],
    );
    let said = points(&mut r).replace(&format!("{:#x}", at as u32), "the word");
    expect![[r#"
        2: release futex of the word, 0x2
        5: wait futex of the word, 0x4
        7: wait futex-timeout of the word, 0x1388
        8: release futex of the word, 0x1
    "#]]
    .assert_eq(&said);
}

/// Of what wakes and waits on one word or two: a set of bits, a move, a change with it, priorities.
#[test]
fn calls_of_futexes_of_all_kinds_are_told() {
    // Its last call is ended by a signal, and would take another test's timer for that.
    let _one = HANDLERS.lock().unwrap_or_else(|e| e.into_inner());
    let words = [0u32; 2];
    let [one, two] = [0, 1].map(|i| &raw const words[i] as u64);
    let operation = |of: i32| of as u64 | PRIVATE;
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            (libc::SYS_futex, &[one, operation(libc::FUTEX_WAKE_BITSET), 9, 0, 0, 1], 2),
            (libc::SYS_futex, &[one, operation(libc::FUTEX_WAIT_BITSET), 0, 0, 0, 1], 0),
            // One is woken and three are moved; then one is moved only.
            (libc::SYS_futex, &[one, operation(libc::FUTEX_CMP_REQUEUE), 1, 9, two, 0], 4),
            (libc::SYS_futex, &[one, operation(libc::FUTEX_REQUEUE), 0, 9, two], 1),
            // Two of the first word are woken, and one of the second; then nobody.
            (libc::SYS_futex, &[one, operation(libc::FUTEX_WAKE_OP), 2, 5, two, 0], 3),
            (libc::SYS_futex, &[one, operation(libc::FUTEX_WAKE_OP), 2, 5, two, 0], 0),
            (libc::SYS_futex, &[one, operation(libc::FUTEX_LOCK_PI)], 0),
            (libc::SYS_futex, &[one, operation(libc::FUTEX_UNLOCK_PI)], 0),
            // A signal came, and the program looks again.
            (libc::SYS_futex, &[one, operation(libc::FUTEX_WAIT), 0], -i64::from(libc::EINTR)),
        ],
    );
    let said = points(&mut r);
    let named = [(one, "one"), (two, "two")];
    let said = named.iter().fold(said, |s, (at, n)| s.replace(&format!("{:#x}", *at as u32), n));
    // Which signals have a handler other tests of this process decide.
    let said: String = said
        .lines()
        .map(|l| l.split_once("signal of").map_or(l, |(l, _)| l.trim_end()).to_owned() + "\n")
        .collect();
    expect![[r#"
        1: release bits of one, 0x1
        1: release futex of one, 0x2
        3: release bits of one, 0x1
        4: wait futex of one, 0x2
        5: release futex of one, 0x1
        5: release requeue of one, two
        6: release futex of one, 0x0
        6: release requeue of one, two
        7: release futex of one, 0x2
        7: release futex of two, 0x1
        10: wait futex of one, 0x9
        11: release futex of one, 0x1
        13: wait
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_moment_is_told_by_how_long_it_is_after_the_clock_was_looked_at() {
    let word = 0u32;
    let at = &raw const word as u64;
    let seconds = |tv_sec| libc::timespec { tv_sec, tv_nsec: 0 };
    let [looked, then, before] = [5, 8, 4].map(seconds);
    let [looked, then, before] = [&looked, &then, &before].map(|t| &raw const *t as u64);
    let (boot, day) = (libc::CLOCK_MONOTONIC as u64, libc::CLOCK_REALTIME as u64);
    let until = libc::TIMER_ABSTIME as u64;
    let wait = libc::FUTEX_WAIT_BITSET as u64 | PRIVATE;
    let wait_for = libc::FUTEX_WAIT as u64 | PRIVATE;
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            // Nobody knows from when that counts.
            (libc::SYS_clock_nanosleep, &[boot, until, then, 0], 0),
            (libc::SYS_clock_gettime, &[boot, looked], 0),
            (libc::SYS_clock_nanosleep, &[boot, until, then, 0], 0),
            // Another clock, and a moment that was before.
            (libc::SYS_clock_nanosleep, &[day, until, then, 0], 0),
            (libc::SYS_clock_nanosleep, &[boot, until, before, 0], 0),
        ],
    );
    r.task.insns += 70;
    let timed_out = -i64::from(libc::ETIMEDOUT);
    make(
        &mut r,
        &[
            (libc::SYS_futex, &[at, wait, 0, then, 0, u64::from(u32::MAX)], timed_out),
            // Woken, though it would have waited for so long only.
            (libc::SYS_futex, &[at, wait, 0, then, 0, u64::from(u32::MAX)], 0),
            (libc::SYS_futex, &[at, wait_for, 0, before], 0),
        ],
    );
    let said = points(&mut r).replace(&format!("{:#x}", at as u32), "the word");
    expect![[r#"
        2: wait time of 0x0, 0x0
        4: release deadline of 0x0, 0xb2d05e00
        5: wait time of 0x0, 0x0
        7: wait time of 0x0, 0x0
        9: wait time of 0x0, 0x0
        11: release deadline of 0x46, 0xb2d05e00
        12: wait futex-timeout of the word, 0x0
        14: release deadline of 0x46, 0xb2d05e00
        15: wait futex of the word, 0xd
        17: release deadline of 0x0, 0xee6b2800
        18: wait futex of the word, 0x10
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_word_that_others_map_too_has_their_number() {
    let file = homenode_fixtures::Folder::new().with("shared", [0; 8192]);
    let file = File::options().read(true).write(true).open(file.join("shared")).expect("a file");
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let map = || {
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping.
        unsafe { libc::mmap(null, 8192, both, libc::MAP_SHARED, file.as_raw_fd(), 0) as u64 }
    };
    let (one, other) = (map(), map());
    check(
        &[
            (libc::SYS_futex, &[one + 4096, libc::FUTEX_WAKE as u64, 1], 1),
            (libc::SYS_futex, &[other + 4096, libc::FUTEX_WAIT as u64, 0], 0),
            (libc::SYS_futex, &[other, libc::FUTEX_WAIT as u64, 0], 0),
        ],
        expect![[r#"
            1: release futex of object 0, 0x1
            3: wait futex of object 0, 0x2
            5: wait futex of object 1, 0x4
        "#]],
    );
}

#[test]
fn pipes_have_one_name_for_both_ends() {
    let [out, inn] = pipe();
    // SAFETY: a plain call.
    let copy = pair([unsafe { libc::dup(number(&inn) as i32) }, unsafe {
        libc::dup(number(&out) as i32)
    }]);
    let text = [0u8; 64];
    let at = text.as_ptr() as u64;
    check(
        &[
            (libc::SYS_write, &[number(&copy[0]), at, 64], 64),
            (libc::SYS_read, &[number(&out), at, 100], 64),
            (libc::SYS_write, &[number(&inn), at, 64], -i64::from(libc::EPIPE)),
            (libc::SYS_close, &[number(&copy[0])], 0),
            (libc::SYS_readv, &[number(&copy[1])], 0),
            // A file on disk is not waited for.
            (libc::SYS_read, &[file().as_raw_fd() as u64, at, 64], 64),
            (libc::SYS_read, &[12345, at, 64], -i64::from(libc::EBADF)),
        ],
        expect![[r#"
            1: release bytes of object 0, 0x40
            3: wait bytes of object 0, 0x40
            5: release close of object 0, 0x0
            7: wait end of object 0, 0x0
        "#]],
    );
}

fn file() -> &'static File {
    Box::leak(Box::new(File::open("/proc/self/exe").expect("this program")))
}

#[test]
fn counters_sockets_and_readiness() {
    // SAFETY: plain calls; room for two.
    let (counters, sockets) = unsafe {
        let mut two = [0; 2];
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, two.as_mut_ptr()), 0);
        (pair([libc::eventfd(0, 0), libc::eventfd(0, 0)]), pair(two))
    };
    let both = [&sockets[0], &sockets[1]].map(|s| s.as_raw_fd());
    let text = [1u8; 64];
    let at = text.as_ptr() as u64;
    // The second has no event, the third can be written to.
    let to_write = libc::POLLOUT | libc::POLLWRNORM;
    let polled = [(&counters[1], 1), (&counters[0], 0), (&sockets[0], to_write)];
    let polled =
        polled.map(|(fd, revents)| libc::pollfd { fd: fd.as_raw_fd(), events: 1, revents });
    let mut event = [0u32; 3];
    event[1] = 77;
    let event = event.as_ptr() as u64;
    check(
        &[
            (libc::SYS_write, &[number(&counters[0]), at, 8], 8),
            (libc::SYS_write, &[number(&counters[1]), at, 8], 8),
            (libc::SYS_read, &[number(&counters[0]), at, 8], 8),
            (libc::SYS_poll, &[polled.as_ptr() as u64, 3, 10], 2),
            (libc::SYS_poll, &[polled.as_ptr() as u64, 3, 10], 0),
            (libc::SYS_socketpair, &[1, 1, 0, both.as_ptr() as u64], 0),
            (libc::SYS_sendto, &[number(&sockets[0]), at, 3], 3),
            (libc::SYS_recvfrom, &[number(&sockets[1]), at, 3], 3),
            (libc::SYS_epoll_ctl, &[500, 1, number(&sockets[1]), event], 0),
            (libc::SYS_epoll_wait, &[500, event, 8, u64::MAX], 1),
        ],
        expect![[r#"
            1: release bytes of object 0, 0x1
            2: release bytes of object 1, 0x1
            4: wait all of object 0, 0x0
            6: release deadline of 0x0, 0x989680
            7: wait ready of object 1, 0x0
            9: wait ready-timeout of 0x0, 0x989680
            10: release pair of object 2, object 3
            11: release bytes of object 2, 0x3
            13: wait bytes of object 3, 0x3
        "#]],
    );
}

fn sockets() -> [OwnedFd; 2] {
    let mut two = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, two.as_mut_ptr()) }, 0);
    pair(two)
}
/// A call during which another task does something.
fn not_alone(r: &mut Rig, number: i64, args: &[u64], result: i64) {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    r.task.called(number, all);
    r.task.number();
    r.task.returned(number, result);
}
/// Fills it up, until a write would have to wait. Whether writes wait then is as it was.
fn fill(fd: &OwnedFd) {
    let bytes = [0u8; 4096];
    // SAFETY: a buffer of that length.
    let send = || unsafe {
        libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
    };
    while send() > 0 {}
}
fn does_not_wait(fd: &OwnedFd) {
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

#[test]
fn a_write_to_a_full_socket_may_wait_for_who_reads() {
    let [one, other] = sockets();
    let text = [0u8; 64];
    let at = text.as_ptr() as u64;
    let mut r = Rig::new();
    // There is room: it has not waited. More than there is room for: it has.
    not_alone(&mut r, libc::SYS_write, &[number(&one), at, 64], 64);
    not_alone(&mut r, libc::SYS_writev, &[number(&one), 0, 0], 1 << 20);
    fill(&one);
    not_alone(&mut r, libc::SYS_write, &[number(&one), at, 64], 64);
    // Nobody else did anything.
    make(&mut r, &[(libc::SYS_write, &[number(&one), at, 64], 64)]);
    does_not_wait(&one);
    not_alone(&mut r, libc::SYS_write, &[number(&one), at, 64], 64);
    drop(other);
    expect![[r#"
        1: release bytes of object 0, 0x40
        3: release bytes of object 0, 0x100000
        5: wait writable of object 0, 0x2
        6: release bytes of object 0, 0x40
        8: wait writable of object 0, 0x2
        9: release bytes of object 0, 0x40
        10: release bytes of object 0, 0x40
    "#]]
    .assert_eq(&points(&mut r));
}

#[test]
fn who_is_told_that_there_is_no_room_looks_for_some() {
    let [one, other] = sockets();
    let [_out, inn] = pipe();
    [&one, &other, &inn].into_iter().for_each(does_not_wait);
    let text = [0u8; 64];
    let at = text.as_ptr() as u64;
    let polled = |fd: &OwnedFd, revents| libc::pollfd { fd: fd.as_raw_fd(), events: 5, revents };
    let both = [polled(&one, libc::POLLOUT), polled(&other, libc::POLLIN | libc::POLLOUT)];
    let none = -i64::from(libc::EAGAIN);
    let vectors = [[at, 32u64], [at, 32]];
    let mut event = [0u32; 3];
    (event[0], event[1]) = (libc::EPOLLOUT as u32, 88);
    let event = event.as_ptr() as u64;
    let mut set = [0u64; 16];
    set[one.as_raw_fd() as usize / 64] |= 1 << (one.as_raw_fd() % 64);
    let set = set.as_ptr() as u64;
    check(
        &[
            // Nobody had found it full.
            (libc::SYS_poll, &[both.as_ptr() as u64, 1, 10], 1),
            (libc::SYS_write, &[number(&one), at, 64], none),
            (libc::SYS_writev, &[number(&other), vectors.as_ptr() as u64, 2], 40),
            (libc::SYS_poll, &[both.as_ptr() as u64, 2, 0], 2),
            // It is said once.
            (libc::SYS_poll, &[both.as_ptr() as u64, 1, 10], 1),
            (libc::SYS_sendto, &[number(&one), at, 64], none),
            (libc::SYS_select, &[1024, 0, set, 0, 0], 1),
            (libc::SYS_epoll_ctl, &[501, 1, number(&inn), event], 0),
            (libc::SYS_write, &[number(&inn), at, 64], 10),
            (libc::SYS_epoll_wait, &[501, event, 8, u64::MAX], 1),
            // What finds nothing to move says nothing of room.
            (libc::SYS_splice, &[number(&one), 0, number(&inn), 0, 9, 0], none),
            (libc::SYS_epoll_wait, &[501, event, 8, u64::MAX], 1),
        ],
        expect![[r#"
            3: release bytes of object 0, 0x28
            5: wait ready of object 0, 0x0
            6: wait writable of object 1, 0x4
            7: wait writable of object 0, 0x4
            11: wait writable of object 1, 0x2
            12: release bytes of object 2, 0xa
            14: wait writable of object 2, 0x2
        "#]],
    );
}

#[test]
fn what_is_moved_is_read_and_written() {
    let ([out, inn], [out2, inn2]) = (pipe(), pipe());
    let text = file().as_raw_fd() as u64;
    let (from, to) = (number(&out), number(&inn2));
    let vectors = [[0u64, 5]];
    let vectors = vectors.as_ptr() as u64;
    check(
        &[
            (libc::SYS_sendfile, &[number(&inn), text, 0, 9], 9),
            (libc::SYS_splice, &[from, 0, to, 0, 9, 0], 9),
            (libc::SYS_tee, &[from, to, 9, 0], 4),
            (libc::SYS_splice, &[text, 0, to, 0, 9, 0], 3),
            (libc::SYS_splice, &[from, 0, text, 0, 9, 0], 2),
            (libc::SYS_splice, &[from, 0, to, 0, 9, 0], 0),
            (libc::SYS_vmsplice, &[to, vectors, 1, 0], 5),
            (libc::SYS_vmsplice, &[number(&out2), vectors, 1, 0], 5),
            (libc::SYS_splice, &[from, 0, to, 0, 9, 0], -i64::from(libc::EINVAL)),
        ],
        expect![[r#"
            1: release bytes of object 0, 0x9
            3: wait bytes of object 0, 0x9
            4: release moved of object 1, 0x9
            5: wait room of object 1, 0x10000
            7: wait ready of object 0, 0x0
            8: release moved of object 1, 0x4
            9: wait room of object 1, 0x10000
            10: release bytes of object 1, 0x3
            12: wait bytes of object 0, 0x2
            14: wait end of object 0, 0x0
            15: release bytes of object 1, 0x5
            17: wait bytes of object 1, 0x5
        "#]],
    );
}

#[test]
fn messages_by_the_dozen_are_their_bytes() {
    let [one, other] = sockets();
    let mut messages = [[0u32; 16]; 3];
    for (m, len) in messages.iter_mut().zip([3, 4, 50]) {
        m[14] = len;
    }
    let at = messages.as_ptr() as u64;
    check(
        &[
            (libc::SYS_sendmmsg, &[number(&one), at, 3, 0], 2),
            (libc::SYS_recvmmsg, &[number(&other), at, 3, 0, 0], 3),
            (libc::SYS_recvmmsg, &[number(&other), at, 3, 0, 0], -i64::from(libc::EAGAIN)),
        ],
        expect![[r#"
            1: release bytes of object 0, 0x7
            3: wait bytes of object 1, 0x39
        "#]],
    );
}

#[test]
fn sleeps_last_as_long_as_was_asked() {
    let span = libc::timespec { tv_sec: 1, tv_nsec: 5 };
    let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    let absolute = libc::TIMER_ABSTIME as u64;
    check(
        &[
            (libc::SYS_nanosleep, &[&raw const span as u64], 0),
            (libc::SYS_clock_nanosleep, &[1, 0, &raw const span as u64], 0),
            (libc::SYS_clock_nanosleep, &[1, absolute, &raw const past as u64], 0),
            (libc::SYS_nanosleep, &[8], -i64::from(libc::EFAULT)),
        ],
        expect![[r#"
            2: wait time of 0x0, 0x3b9aca05
            4: wait time of 0x0, 0x3b9aca05
            6: wait time of 0x0, 0x0
        "#]],
    );
}

/// Handlers and timers are a process's own: one test at a time looks at them.
static HANDLERS: Mutex<()> = Mutex::new(());

#[test]
fn signals_are_sent_and_end_calls() {
    let _one = HANDLERS.lock().unwrap_or_else(|e| e.into_inner());
    let [first, second] = [libc::SIGUSR1 as u64, libc::SIGUSR2 as u64];
    let handler = [0x4000u64, 0, 0, 0];
    let at = handler.as_ptr() as u64;
    let held = 1u64 << (first - 1);
    let group = u64::MAX;
    let interrupted = -i64::from(libc::EINTR);
    check(
        &[
            (libc::SYS_rt_sigaction, &[first, at, 0, 8], 0),
            (libc::SYS_rt_sigaction, &[second, at, 0, 8], 0),
            (libc::SYS_kill, &[77, first], 0),
            (libc::SYS_kill, &[77, 0], 0),
            (libc::SYS_kill, &[77, first], -i64::from(libc::ESRCH)),
            (libc::SYS_kill, &[group, second], 0),
            (libc::SYS_tgkill, &[77, 78, first], 0),
            (libc::SYS_pause, &[], interrupted),
            (libc::SYS_rt_sigsuspend, &[&raw const held as u64, 8], interrupted),
            // It is made anew.
            (libc::SYS_wait4, &[u64::MAX], signals::AGAIN),
            (libc::SYS_rt_sigtimedwait, &[&raw const held as u64, 0, 0, 8], first as i64),
        ],
        expect![[r#"
            1: release signal of 0x4d, 0xa
            4: release signal of object 0, 0xc
            5: release signal of 0x4e, 0x10a
            7: wait signal of 0xa00, 0x1
            9: wait signal of 0x800, 0x1
            11: wait signal of 0xa00, 0x1
            13: wait signal of 0x200, 0x1
        "#]],
    );
    let none = [0u64; 4];
    let none = none.as_ptr() as u64;
    check(
        &[
            (libc::SYS_rt_sigaction, &[first, none, 0, 8], 0),
            (libc::SYS_rt_sigaction, &[second, none, 0, 8], 0),
            (libc::SYS_pause, &[], interrupted),
        ],
        expect![[r#"
            2: wait signal of 0x0, 0x1
        "#]],
    );
}

#[test]
fn a_wait_that_a_timer_ends_is_for_time() {
    let _one = HANDLERS.lock().unwrap_or_else(|e| e.into_inner());
    let us = |us| libc::timeval { tv_sec: 0, tv_usec: us };
    let timer = [us(0), us(20_000)];
    let handler = [0x4000u64, 0, 0, 0];
    let alarm = libc::SIGALRM as u64;
    let interrupted = -i64::from(libc::EINTR);
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            (libc::SYS_rt_sigaction, &[alarm, handler.as_ptr() as u64, 0, 8], 0),
            (libc::SYS_setitimer, &[0, timer.as_ptr() as u64], 0),
        ],
    );
    r.task.called(libc::SYS_pause, [0; 6]);
    std::thread::sleep(std::time::Duration::from_millis(21));
    r.task.returned(libc::SYS_pause, interrupted);
    // This one is by another signal: the timer has ended once.
    make(&mut r, &[(libc::SYS_pause, &[], interrupted)]);
    let none = [0u64; 4];
    make(&mut r, &[(libc::SYS_rt_sigaction, &[alarm, none.as_ptr() as u64, 0, 8], 0)]);
    expect![[r#"
        1: release timer of 0x0, 0x1312d00
        3: wait alarm of 0x0, 0x1312d00
        5: wait signal of 0x2000, 0x1
    "#]]
    .assert_eq(&points(&mut r));
}

#[test]
fn signals_and_timers_are_read_from_descriptors() {
    let short = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: 1000 },
    };
    // SAFETY: plain calls, with a set of one signal.
    let [signals, timer] = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        libc::timerfd_settime(timer, 0, &short, std::ptr::null_mut());
        pair([libc::signalfd(-1, &set, 0), timer])
    };
    let mut read = [0u32; 32];
    read[0] = libc::SIGUSR1 as u32;
    let at = read.as_ptr() as u64;
    let both =
        [&signals, &timer].map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: 1, revents: 1 });
    let mut r = Rig::new();
    make(&mut r, &[(libc::SYS_timerfd_settime, &[number(&timer), 0, &raw const short as u64], 0)]);
    std::thread::sleep(std::time::Duration::from_micros(10));
    make(
        &mut r,
        &[
            (libc::SYS_poll, &[both.as_ptr() as u64, 2, u64::MAX], 2),
            (libc::SYS_read, &[number(&signals), at, 128], 128),
            // Its end has been told.
            (libc::SYS_read, &[number(&timer), at, 8], 8),
        ],
    );
    // Its number may be the beginning of another.
    let descriptor = format!("of {:#x},", number(&timer));
    let said = points(&mut r).replace(&descriptor, "of the descriptor,");
    expect![[r#"
        1: release timer of the descriptor, 0x3e8
        3: wait signal of 0x200, 0x1
        4: wait alarm of the descriptor, 0x3e8
        6: wait signal of 0x200, 0x1
    "#]]
    .assert_eq(&said);
}

#[test]
fn locks_of_files_are_taken_and_given_back() {
    let folder = homenode_fixtures::Folder::new().with("locked", [0; 100]);
    let open = || OwnedFd::from(File::open(folder.join("locked")).expect("a file"));
    let (one, other, unlocked) = (open(), open(), file());
    let bytes = |l_type: i32, l_whence: i32, l_start: i64, l_len: i64| libc::flock {
        l_type: l_type as i16,
        l_whence: l_whence as i16,
        l_start,
        l_len,
        l_pid: 0,
    };
    let all = bytes(libc::F_WRLCK, libc::SEEK_SET, 0, 0);
    let last = bytes(libc::F_RDLCK, libc::SEEK_END, 0, -10);
    let none = bytes(libc::F_UNLCK, libc::SEEK_CUR, 5, 10);
    let at = |l: &libc::flock| std::ptr::from_ref(l) as u64;
    let [set, wait, other_set] = [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK];
    let [set, wait, other_set] = [set, wait, other_set].map(|n| n as u64);
    let nonblocking = (libc::LOCK_EX | libc::LOCK_NB) as u64;
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            // Before any lock a close is nothing.
            (libc::SYS_close, &[unlocked.as_raw_fd() as u64], -i64::from(libc::EIO)),
            (libc::SYS_fcntl, &[number(&one), wait, at(&all)], 0),
            (libc::SYS_fcntl, &[number(&one), set, at(&all)], -i64::from(libc::EAGAIN)),
            (libc::SYS_fcntl, &[number(&one), other_set, at(&last)], 0),
            (libc::SYS_fcntl, &[number(&one), set, at(&none)], 0),
            // Descriptors' flags are no lock.
            (libc::SYS_fcntl, &[number(&one), libc::F_GETFD as u64, 0], 0),
            (libc::SYS_dup2, &[number(&one), number(&other)], 0),
            (libc::SYS_flock, &[number(&other), nonblocking], 0),
            (libc::SYS_flock, &[number(&other), libc::LOCK_UN as u64], 0),
            (libc::SYS_close, &[number(&other)], 0),
            (libc::SYS_close, &[unlocked.as_raw_fd() as u64], -i64::from(libc::EIO)),
        ],
    );
    let mut said = String::new();
    for (_, what, row) in ordered(&mut r) {
        let FileLock { exclusive, of_open_file, from, to } = FileLock::unpack(row.arg);
        let to = if to == u64::MAX { "end".to_owned() } else { to.to_string() };
        let flags = [(exclusive, " alone"), (of_open_file, " of the open file")];
        let flags = flags.map(|(is_set, text)| if is_set { text } else { "" }).concat();
        writeln!(said, "{}: {what} {from} to {to}{flags}", row.page).expect("text");
    }
    expect![[r#"
        2: lock 0 to end alone
        4: refused 0 to end alone
        5: unlock 90 to 100 alone of the open file
        6: lock 90 to 100 of the open file
        7: unlock 5 to 15
        8: close 0 to 0
        9: unlock 0 to end alone of the open file
        10: lock 0 to end alone of the open file
        11: unlock 0 to end of the open file
        12: close 0 to 0
        13: close 0 to 0
    "#]]
    .assert_eq(&said);
}

#[test]
fn accepted_sockets_know_their_peers() {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = homenode_fixtures::Folder::new();
    let local = UnixListener::bind(folder.join("socket")).expect("a socket");
    let [first, gone] = [(); 2].map(|()| UnixStream::connect(folder.join("socket")));
    let (first, gone) = (first.expect("connected"), gone.expect("connected"));
    let net = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let over = TcpStream::connect(net.local_addr().expect("its address")).expect("connected");
    let fd = |s: &dyn AsRawFd| s.as_raw_fd() as u64;
    let mut r = Rig::new();
    let connects = [fd(&first), fd(&gone), fd(&over)];
    for fd in connects {
        make(&mut r, &[(libc::SYS_connect, &[fd], 0)]);
    }
    drop(gone);
    let accepted = [local.accept().expect("one").0, local.accept().expect("another").0];
    let accepted_over = net.accept().expect("one").0;
    make(
        &mut r,
        &[
            (libc::SYS_accept, &[fd(&local)], fd(&accepted[0]) as i64),
            (libc::SYS_accept4, &[fd(&local)], fd(&accepted[1]) as i64),
            (libc::SYS_accept4, &[fd(&net)], fd(&accepted_over) as i64),
            (libc::SYS_accept4, &[fd(&net)], -i64::from(libc::EAGAIN)),
            (libc::SYS_shutdown, &[fd(&over), libc::SHUT_WR as u64], 0),
        ],
    );
    // How long it took is not looked at.
    let said = points(&mut r);
    let said: Vec<&str> = said
        .lines()
        .map(|l| if l.contains("wait accept") { l.split(',').next().unwrap_or(l) } else { l })
        .collect();
    expect![[r#"
        1: release connect of object 0, object 1
        2: wait queue of object 0, 0x0
        3: release connect of object 2, object 1
        4: wait queue of object 2, 0x0
        5: release connect of object 3, object 4
        7: release pair of object 5, object 0
        8: release accepted of object 5, object 6
        9: wait accept of object 5
        11: release named of object 7, object 1
        12: release accepted of object 7, object 6
        13: wait accept of object 7
        15: release named of object 8, object 4
        16: release accepted of object 8, object 9
        17: wait accept of object 8
        19: release close of object 3, 0x0
    "#]]
    .assert_eq(&(said.join("\n") + "\n"));
}

/// How long a connect took is told where it went over a network, and has not failed.
#[test]
fn who_connects_over_the_internet_waits_for_what_is_outside() {
    use std::net::{TcpListener, TcpStream};
    let net = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let over = TcpStream::connect(net.local_addr().expect("its address")).expect("connected");
    let fd = over.as_raw_fd() as u64;
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].map(|f| [f as u16; 8]);
    let [four, six, local] = families.each_ref().map(|family| family.as_ptr() as u64);
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            (libc::SYS_connect, &[fd, four, 16], 0),
            (libc::SYS_connect, &[fd, six, 16], 0),
            (libc::SYS_connect, &[fd, local, 16], 0),
            (libc::SYS_connect, &[fd, four, 16], -i64::from(libc::EINPROGRESS)),
            (libc::SYS_connect, &[fd, four, 16], -i64::from(libc::ECONNREFUSED)),
        ],
    );
    let said = points(&mut r);
    let waits: Vec<&str> = said
        .lines()
        .filter(|l| l.contains("wait"))
        .map(|l| l.split(',').next().unwrap_or(l))
        .collect();
    expect![[r#"
        2: wait outside of object 2
        4: wait outside of object 2"#]]
    .assert_eq(&waits.join("\n"));
}

#[test]
fn children_that_borrow_memory_and_threads_that_clear_a_word() {
    let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_CHILD_CLEARTID;
    let borrows = libc::CLONE_VM | libc::CLONE_VFORK;
    check(
        &[
            (libc::SYS_clone, &[thread as u64, 0, 0, 0x7000, 0], 101),
            (libc::SYS_clone, &[borrows as u64], 102),
            (libc::SYS_vfork, &[], 103),
            (libc::SYS_fork, &[], 104),
        ],
        expect![[r#"
            2: release clear-tid of 0x7000, 0x65
            4: wait child of 0x0, 0x66
            6: wait child of 0x0, 0x67
        "#]],
    );
}

/// Whoever writes the recording counts them, so there is a row for each, be it over at once.
#[test]
fn each_wait_for_what_is_outside_has_a_row() {
    let device = File::open("/dev/zero").expect("a device");
    let file = File::open("/proc/self/exe").expect("a file");
    let (device, file) = (device.as_raw_fd() as u64, file.as_raw_fd() as u64);
    let poll = libc::pollfd { fd: device as i32, events: libc::POLLIN, revents: libc::POLLIN };
    let mut r = Rig::new();
    make(
        &mut r,
        &[
            (libc::SYS_read, &[device], 1),
            (libc::SYS_read, &[file], 1),
            (libc::SYS_poll, &[&raw const poll as u64, 1, u64::MAX], 1),
            (libc::SYS_read, &[device], 0),
            (libc::SYS_fsync, &[file], 0),
            (libc::SYS_fsync, &[device], -i64::from(libc::EINVAL)),
        ],
    );
    let rows = ordered(&mut r);
    let first = rows.first().expect("a row").2.pages;
    let told: Vec<_> = rows.iter().map(|(_, name, row)| (*name, row.pages)).collect();
    assert_eq!(first & LOOKED, 0);
    let outside = |object| ("outside", object);
    assert_eq!(told, [first, first | LOOKED, first, DISK].map(outside));
}

/// Two threads: one looks at a flag until the other has set it; then it tries to take a lock until
/// the other has given it back.
#[test]
fn who_looks_at_a_word_until_it_changes_has_spun() {
    let (mut one, mut other) = (Rig::new(), Rig::new());
    let words = [const { std::sync::atomic::AtomicU32::new(0) }; 2];
    let [flag, lock] = &words;
    let (at, lock_at) = (flag.as_ptr() as u64, lock.as_ptr() as u64);
    use std::sync::atomic::Ordering::SeqCst;
    // SAFETY: both words live.
    unsafe {
        one.run(10);
        for i in 0..100 {
            one.run(3);
            one.task.looks_at(at, 4, false);
            if i == 50 {
                make(&mut one, &[(libc::SYS_sched_yield, &[], 0)]);
            }
        }
        flag.store(7, SeqCst);
        other.task.changed(at);
        one.run(3);
        one.task.looks_at(at, 4, false);
        // The lock is had by the other.
        lock.store(1, SeqCst);
        for _ in 0..100 {
            one.run(4);
            one.task.changed(lock_at);
            one.task.looks_at(lock_at, 4, true);
        }
        lock.store(0, SeqCst);
        other.task.changed(lock_at);
        one.run(4);
        lock.store(1, SeqCst);
        one.task.changed(lock_at);
        one.task.looks_at(lock_at, 4, true);
    }
    let spin = |row: &WireRow| Spin::from(row.arg);
    let told = |r: &mut Rig| -> Vec<String> {
        let what = |(_, name, row): &(_, &str, WireRow)| {
            let of = if row.pages == at { "flag" } else { "lock" };
            match *name {
                "spin" => format!("{}: {name} at the {of}, {:?}", row.page, spin(row)),
                _ => format!("{}: {name} of the {of}, {}", row.page, row.arg as u32),
            }
        };
        ordered(r).iter().map(what).collect()
    };
    expect![[r#"
        [
            "1: spin at the flag, Spin { insns: 300, ago: 0, yields: true }",
            "2: spin at the lock, Spin { insns: 400, ago: 0, yields: false }",
            "3: word of the lock, 1",
        ]
    "#]]
    .assert_debug_eq(&told(&mut one));
    expect![[r#"
        [
            "1: word of the flag, 7",
            "2: word of the lock, 0",
        ]
    "#]]
    .assert_debug_eq(&told(&mut other));
}
