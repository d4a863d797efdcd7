//! What short calls take, and what waking and switching take of a CPU.
//!
//! ```text
//! nothing waits       getppid · pipe write, read · socket send, receive · futex wake
//! a sleeper           a futex wake that wakes one, less one that wakes nobody      ▶ wake_up
//! two, one CPU        wake the other, wait, by turns; less both calls              ▶ context_switch
//! programs            fork · fork, exec and end, less fork and end
//! a busy loop         what is missing of its time, again and again                 ▶ tick
//! ```
//!
//! All of it on one CPU. Nothing here is a workload that is predicted with it:
//! specs/workloads.md#measured.

use super::cpus;
use super::kernel::{Batch, because, fork_and, wait_for};
use super::stats::{Series, timed};
use crate::child;
use homenode_core::units::CpuId;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Something that is called over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Syscall,
    PipeWrite,
    PipeRead,
    SocketSend,
    SocketReceive,
    /// The same over loopback: a segment at once, one behind others that are not sent, one of many bytes.
    TcpSend,
    TcpQueue,
    TcpReceive,
    TcpLarge,
    UdpSend,
    UdpReceive,
    /// A futex call that wakes nobody.
    Futex,
    /// One that wakes a task of this CPU.
    Wake,
    /// One that wakes the other of two, and the wait for that other, with the switch.
    HandOver,
}

impl Call {
    pub(super) const ALL: [Self; 14] = [
        Self::Syscall,
        Self::PipeWrite,
        Self::PipeRead,
        Self::SocketSend,
        Self::SocketReceive,
        Self::TcpSend,
        Self::TcpQueue,
        Self::TcpReceive,
        Self::TcpLarge,
        Self::UdpSend,
        Self::UdpReceive,
        Self::Futex,
        Self::Wake,
        Self::HandOver,
    ];

    /// One batch of it. The thread is bound to one CPU.
    pub(super) fn batch(self) -> Batch {
        match self {
            Self::Syscall => Ok(timed(CALLS, || (0..CALLS).for_each(|_| getppid()))),
            Self::PipeWrite => pipe(true),
            Self::PipeRead => pipe(false),
            Self::SocketSend => socket(true),
            Self::SocketReceive => socket(false),
            Self::TcpSend => tcp(Of::Send(1), false),
            Self::TcpQueue => tcp(Of::Send(1), true),
            Self::TcpReceive => tcp(Of::Receive, false),
            Self::TcpLarge => tcp(Of::Send(LARGE_BYTES), false),
            Self::UdpSend => udp(true),
            Self::UdpReceive => udp(false),
            Self::Futex => {
                let word = AtomicU32::new(0);
                let vain = |_| {
                    wake(&word, 1);
                };
                Ok(timed(CALLS, || (0..CALLS).for_each(vain)))
            }
            Self::Wake => wakes(),
            Self::HandOver => hand_overs(),
        }
    }
}

/// Calls in a batch.
const CALLS: u64 = 1000;
/// Bytes of a call on a pipe: all of a batch fit.
const PIPE_BYTES: usize = 8;
/// Calls on a socket in a batch, and bytes of each: all fit into its buffer.
const SOCKET_CALLS: u64 = 64;
const SOCKET_BYTES: usize = 100;
/// Calls over loopback in a batch, and bytes of a large one.
const NET_CALLS: u64 = 32;
pub(super) const LARGE_BYTES: usize = 16 << 10;
/// Tasks that are woken in a batch.
const SLEEPERS: u64 = 8;
/// Round trips in a batch.
const TRIPS: u64 = 200;
/// Forks in a batch.
const FORKS: u64 = 16;

fn getppid() {
    // SAFETY: only asks.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Times as many writes, or reads, of as many bytes as fit. The other side is not in the time.
fn both_ways(
    mut to: impl Write,
    mut from: impl Read,
    calls: u64,
    bytes: usize,
    write: bool,
) -> Batch {
    let mut buffer = vec![0; bytes];
    let mut one = |writes| match writes {
        true => to.write_all(&buffer),
        false => from.read_exact(&mut buffer),
    };
    let mut all = |writes| -> Batch {
        let began = Instant::now();
        (0..calls).try_for_each(|_| one(writes)).map_err(because("a call"))?;
        Ok((began.elapsed(), calls))
    };
    let (written, read) = (all(true)?, all(false)?);
    Ok(if write { written } else { read })
}

/// Sockets, and messages of each: as for [`Call::SocketSend`].
const NEAR: (usize, usize) = (1, SOCKET_CALLS as usize);
/// Where they go to another CPU some MiB of buffers are under way at once, more than the caches nearest to a core
/// hold, as where a receiver is not at it yet.
const FAR: (usize, usize) = (16, 200);
/// So often they are filled and emptied for one sample, after as often for nothing.
const PASSES: u32 = 2;
/// The longest that a CPU waits for the other's turn.
const PATIENCE: Duration = Duration::from_millis(200);

/// As [`Call::SocketSend`] and [`Call::SocketReceive`], by turns for a slot: this CPU sends to all of many sockets, and then
/// `other` receives all of that. What they take longer so than a few on this CPU alone, by message, in
/// picoseconds.
pub(super) fn socket_far(other: CpuId, slot: Duration) -> Result<[f64; 2], String> {
    let pair = |_| -> Result<(UnixStream, UnixStream), String> {
        let (to, from) = UnixStream::pair().map_err(because("socketpair"))?;
        // What is not there is not waited for for ever, and neither is room.
        from.set_read_timeout(Some(PATIENCE)).map_err(because("a socket"))?;
        to.set_write_timeout(Some(PATIENCE)).map_err(because("a socket"))?;
        Ok((to, from))
    };
    let sockets = (0..FAR.0).map(pair).collect::<Result<Vec<_>, _>>()?;
    // By call.
    let send = |(many, messages): (usize, usize)| -> Result<f64, String> {
        let began = Instant::now();
        for (to, _) in &sockets[..many] {
            let mut to = to;
            (0..messages)
                .try_for_each(|_| to.write_all(&[0; SOCKET_BYTES]))
                .map_err(because("a call"))?;
        }
        Ok(began.elapsed().as_nanos() as f64 * 1e3 / (many * messages) as f64)
    };
    let receive = |(many, messages): (usize, usize)| -> Result<f64, String> {
        let mut buffer = [0; SOCKET_BYTES];
        let began = Instant::now();
        for (_, from) in &sockets[..many] {
            let mut from = from;
            (0..messages)
                .try_for_each(|_| from.read_exact(&mut buffer))
                .map_err(because("a call"))?;
        }
        Ok(began.elapsed().as_nanos() as f64 * 1e3 / (many * messages) as f64)
    };
    let (turn, took) = (AtomicU32::new(PARENT), AtomicU64::new(0));
    let until = |turned: &dyn Fn(u32) -> bool| {
        let since = Instant::now();
        while !turned(turn.load(Ordering::Acquire)) {
            if since.elapsed() > PATIENCE {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    };
    let answer = || {
        if !cpus::pin(other) {
            turn.store(OVER, Ordering::Release);
            return;
        }
        while until(&|now| now != PARENT) && turn.load(Ordering::Acquire) == CHILD {
            let Ok(each) = receive(FAR) else { break };
            took.store(each as u64, Ordering::Release);
            turn.store(PARENT, Ordering::Release);
        }
    };
    // Sending and receiving, on one CPU and on two.
    let mut all: [[Series; 2]; 2] = Default::default();
    thread::scope(|scope| -> Result<(), String> {
        let builder = thread::Builder::new();
        builder.spawn_scoped(scope, answer).map_err(|e| format!("a thread: {e}"))?;
        let (began, mut round) = (Instant::now(), 0);
        let mut rounds = || -> Result<(), String> {
            while round < 6 || began.elapsed() < slot {
                let far = round % 2 == 1;
                for pass in 0..2 * PASSES {
                    let both = match far {
                        true => {
                            let sent = send(FAR)?;
                            turn.store(CHILD, Ordering::Release);
                            if !until(&|now| now != CHILD) {
                                return Err("the two CPUs did not take turns".to_owned());
                            }
                            [sent, took.load(Ordering::Acquire) as f64]
                        }
                        false => [send(NEAR)?, receive(NEAR)?],
                    };
                    // Before that buffers come from where the other round has left them.
                    if pass >= PASSES {
                        for (series, each) in all.iter_mut().zip(both) {
                            series[usize::from(far)].push(Some(each));
                        }
                    }
                }
                round += 1;
            }
            Ok(())
        };
        let done = rounds();
        turn.store(OVER, Ordering::Release);
        done
    })?;
    let more = |[near, far]: [Series; 2]| {
        let more = near.median().zip(far.median()).map(|(near, far)| (far - near).max(0.0));
        more.ok_or_else(|| "no sample was taken".to_owned())
    };
    let [sent, received] = all;
    Ok([more(sent)?, more(received)?])
}

fn pipe(write: bool) -> Batch {
    let mut ends = [0; 2];
    // SAFETY: fills two numbers.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(because("pipe2")(io::Error::last_os_error()));
    }
    // SAFETY: both are new and nobody else's.
    let [from, to] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    both_ways(to, from, CALLS, PIPE_BYTES, write)
}

fn socket(send: bool) -> Batch {
    let (to, from) = UnixStream::pair().map_err(because("socketpair"))?;
    both_ways(to, from, SOCKET_CALLS, SOCKET_BYTES, send)
}

/// What of a connection is in the time.
#[derive(Clone, Copy)]
enum Of {
    /// Sending so many bytes.
    Send(usize),
    /// Receiving one.
    Receive,
}

/// A connection to this process itself. Nobody waits for what is sent; what was sent is received outside of the
/// time, or the other way round. `corked`: nothing is sent until all has been put into the buffer.
fn tcp(of: Of, corked: bool) -> Batch {
    let why = because("a connection over loopback");
    let connect = || -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let to = TcpStream::connect(listener.local_addr()?)?;
        Ok((to, listener.accept()?.0))
    };
    let (mut to, mut from) = connect().map_err(why)?;
    to.set_nodelay(true).map_err(because("TCP_NODELAY"))?;
    let fd = to.as_raw_fd();
    let cork = |on: libc::c_int| {
        let (value, size) = ((&raw const on).cast(), size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the value is a local, and its size is told.
        unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, value, size) }
    };
    if corked && cork(1) != 0 {
        return Err(because("TCP_CORK")(io::Error::last_os_error()));
    }
    let bytes = if let Of::Send(bytes) = of { bytes } else { 1 };
    let mut buffer = vec![0; bytes];
    let mut took = Duration::ZERO;
    if bytes > 1 {
        // One by one, as the buffers begin small; each less one of a byte.
        for _ in 0..NET_CALLS {
            let mut each = [Duration::ZERO; 2];
            for (took, part) in each.iter_mut().zip([bytes, 1]) {
                let began = Instant::now();
                to.write_all(&buffer[..part]).map_err(because("a call"))?;
                *took = began.elapsed();
                from.read_exact(&mut buffer[..part]).map_err(because("a call"))?;
            }
            took += each[0].saturating_sub(each[1]);
        }
        return Ok((took, NET_CALLS));
    }
    let began = Instant::now();
    (0..NET_CALLS).try_for_each(|_| to.write_all(&buffer)).map_err(because("a call"))?;
    let sent = began.elapsed();
    if corked {
        cork(0);
    }
    let began = Instant::now();
    (0..NET_CALLS).try_for_each(|_| from.read_exact(&mut buffer)).map_err(because("a call"))?;
    Ok((if let Of::Receive = of { began.elapsed() } else { sent }, NET_CALLS))
}

/// Datagrams of one byte to a socket of this process itself.
fn udp(send: bool) -> Batch {
    let pair = || -> io::Result<(UdpSocket, UdpSocket)> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (to, from) = (bind()?, bind()?);
        to.connect(from.local_addr()?)?;
        // One that is lost is not waited for for ever.
        from.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok((to, from))
    };
    let (to, from) = pair().map_err(because("sockets over loopback"))?;
    let mut buffer = [0];
    let began = Instant::now();
    (0..NET_CALLS).try_for_each(|_| to.send(&buffer).map(drop)).map_err(because("a call"))?;
    let sent = began.elapsed();
    let began = Instant::now();
    (0..NET_CALLS).try_for_each(|_| from.recv(&mut buffer).map(drop)).map_err(because("a call"))?;
    Ok((if send { sent } else { began.elapsed() }, NET_CALLS))
}

/// Wakes so many who wait for a word; how many there were.
fn wake(word: &AtomicU32, most: i32) -> u64 {
    // SAFETY: the word lives as long as the borrow; the kernel uses its address only.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, most) };
    u64::try_from(woken).unwrap_or(0)
}

/// Waits while a word has this value, a second at most: who should change it may have been killed.
fn wait(word: &AtomicU32, value: u32) {
    let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: as in `wake`; the timeout is a local.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &second) };
}

/// This thread under SCHED_BATCH until dropped: it preempts nobody when it is woken.
struct Patient;

impl Patient {
    fn new() -> Result<Self, String> {
        // SAFETY: only asks.
        if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
            return Err("this process runs under a scheduling policy of its own".to_owned());
        }
        set_policy(libc::SCHED_BATCH).map_err(because("sched_setscheduler"))?;
        Ok(Self)
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        // From SCHED_BATCH everybody may go back.
        let _ = set_policy(libc::SCHED_OTHER);
    }
}

fn set_policy(policy: i32) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is a local; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Wakes threads of this CPU that wait, one a call. They don't preempt, so that a call is over
/// before who was woken runs.
fn wakes() -> Batch {
    let (word, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let sleeper = || {
        // Where that is refused they may preempt; the batch tells by how many it found asleep.
        let _patient = Patient::new();
        while !over.load(Ordering::Acquire) {
            wait(&word, 0);
        }
    };
    thread::scope(|scope| {
        let mut found = Err("no thread was found asleep".to_owned());
        for _ in 0..SLEEPERS {
            // New threads are bound as this one is.
            if let Err(e) = thread::Builder::new().spawn_scoped(scope, sleeper) {
                found = Err(format!("a thread: {e}"));
            }
        }
        for _ in 0..20 {
            // They have the CPU meanwhile, and go to sleep.
            thread::sleep(Duration::from_micros(200));
            let mut woken = 0;
            let (took, _) = timed(0, || woken = (0..SLEEPERS).map(|_| wake(&word, 1)).sum());
            if woken == SLEEPERS {
                found = Ok((took, SLEEPERS));
                break;
            }
        }
        over.store(true, Ordering::Release);
        word.store(1, Ordering::Release);
        wake(&word, i32::MAX);
        found
    })
}

/// Memory that a child shares.
struct Shared(NonNull<Words>);

/// What two processes tell each other.
#[repr(C)]
struct Words {
    turn: AtomicU32,
    result: AtomicU64,
}

impl Shared {
    fn new() -> Result<Self, String> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Words>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let failed = at == libc::MAP_FAILED;
        let at = NonNull::new(at.cast()).filter(|_| !failed);
        at.map(Self).ok_or_else(|| because("mmap")(io::Error::last_os_error()))
    }
    fn words(&self) -> &Words {
        // SAFETY: mapped as long as this lives, zeroed by the kernel, all zeros are valid words.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody borrows it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Words>()) };
    }
}

/// Who has the turn, and that it is over.
const PARENT: u32 = 0;
const CHILD: u32 = 1;
const OVER: u32 = 2;

/// Two processes on this CPU wake each other by turns; a batch counts the turns.
fn hand_overs() -> Batch {
    let shared = Shared::new()?;
    let _patient = Patient::new()?;
    let turn = &shared.words().turn;
    let other = fork_and(|| {
        die_with_parent();
        loop {
            match turn.load(Ordering::Acquire) {
                PARENT => wait(turn, PARENT),
                CHILD => {
                    turn.store(PARENT, Ordering::Release);
                    wake(turn, 1);
                }
                _ => return,
            }
        }
    })
    .map_err(because("fork"))?;
    let trip = || {
        turn.store(CHILD, Ordering::Release);
        wake(turn, 1);
        // A wait is over early where somebody else had the CPU at the wrong moment; ten are not.
        let back = |_| {
            wait(turn, CHILD);
            turn.load(Ordering::Acquire) != CHILD
        };
        turn.load(Ordering::Acquire) != CHILD || (0..10).any(back)
    };
    let mut all = (0..3).all(|_| trip());
    let before = slept();
    let (took, _) = timed(0, || all = all && (0..TRIPS).all(|_| trip()));
    let times = slept() - before;
    turn.store(OVER, Ordering::Release);
    wake(turn, 1);
    wait_for(other, Some(Duration::from_secs(5))).map_err(because("wait4"))?;
    if !all {
        return Err("the other process does not take its turn".to_owned());
    }
    if times < TRIPS * 9 / 10 {
        return Err(format!("two processes of one CPU gave it up {times} times in {TRIPS}"));
    }
    Ok((took, 2 * TRIPS))
}

/// How often this thread has given its CPU up.
fn slept() -> u64 {
    u64::try_from(child::usage(libc::RUSAGE_THREAD).ru_nvcsw).unwrap_or(0)
}

/// A child doesn't outlive us, also where we are killed.
fn die_with_parent() {
    // SAFETY: sets a property of the calling process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// What becomes of a forked child.
#[derive(Clone, Copy)]
enum Then<'a> {
    /// It ends.
    Ends,
    /// It runs this program, which ends.
    Runs(&'a File),
}

/// Forks in a process that has nothing but a copy of this one, and says how long they took:
/// each `fork` alone, or up to the child's end. It has so many mappings of a file more.
fn forks(then: Then<'_>, maps: u64, whole: bool) -> Batch {
    let shared = Shared::new()?;
    let result = &shared.words().result;
    let code = File::open("/proc/self/exe").map_err(because("/proc/self/exe"))?;
    let other = fork_and(|| {
        die_with_parent();
        if !(0..maps).all(|_| map_code(&code)) {
            return;
        }
        // Who is made does not run before its maker goes on.
        let _ = set_policy(libc::SCHED_BATCH);
        let mut sum = Duration::ZERO;
        for _ in 0..FORKS {
            let began = Instant::now();
            // SAFETY: as fork, without the C library's handlers; the child only makes system calls.
            let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            if pid == 0 {
                match then {
                    Then::Ends => {}
                    Then::Runs(program) => run(program),
                }
                // SAFETY: ends the child at once, as one whose program could not be run.
                unsafe { libc::_exit(i32::from(matches!(then, Then::Runs(_)))) };
            }
            let made = began.elapsed();
            let mut status = 0;
            // SAFETY: the pointer is to a local.
            let got = unsafe { libc::wait4(pid as i32, &mut status, 0, std::ptr::null_mut()) };
            if pid < 0 || i64::from(got) != pid || status != 0 {
                return;
            }
            sum += if whole { began.elapsed() } else { made };
        }
        result.store(sum.as_nanos() as u64, Ordering::Release);
    })
    .map_err(because("fork"))?;
    wait_for(other, Some(Duration::from_secs(10))).map_err(because("wait4"))?;
    match result.load(Ordering::Acquire) {
        0 => Err("a child did not end as it should".to_owned()),
        ns => Ok((Duration::from_nanos(ns), FORKS)),
    }
}

/// Maps the beginning of a file, beside a page that nobody has: the next mapping is one of its own.
fn map_code(file: &File) -> bool {
    let (none, page) = (std::ptr::null_mut(), 4096);
    // SAFETY: a new mapping at an address of the kernel's choice, of which half is given back.
    unsafe {
        let (prot, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        let at = libc::mmap(none, 2 * page, prot, private, file.as_raw_fd(), 0);
        at != libc::MAP_FAILED && libc::munmap(at, page) == 0
    }
}

fn run(program: &File) {
    let none = [std::ptr::null::<libc::c_char>()];
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the lists end with null; on success this does not return.
    unsafe {
        let (args, name) = (none.as_ptr(), c"".as_ptr());
        libc::syscall(libc::SYS_execveat, program.as_raw_fd(), name, args, args, flags)
    };
}

/// A fork: until the parent has the child's number.
pub(super) fn fork() -> Batch {
    forks(Then::Ends, 0, false)
}

/// A fork and the child's end.
pub(super) fn fork_and_end() -> Batch {
    forks(Then::Ends, 0, true)
}

/// The two of a process that has so many mappings more, none of whose pages it uses.
pub(super) const MAPS: u64 = 256;

pub(super) fn fork_of_maps() -> Batch {
    forks(Then::Ends, MAPS, false)
}

pub(super) fn fork_and_end_of_maps() -> Batch {
    forks(Then::Ends, MAPS, true)
}

/// A fork, a program of two instructions, and its end.
pub(super) fn fork_and_exec() -> Batch {
    forks(Then::Runs(&program()?), 0, true)
}

/// A program that ends at once: exit(0).
const fn code() -> Option<&'static [u8]> {
    if cfg!(target_arch = "x86_64") {
        // mov eax, 60; xor edi, edi; syscall
        Some(&[0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05])
    } else {
        None
    }
}

/// The same as an ELF file in memory: a header, one segment, the code.
fn program() -> Result<File, String> {
    const AT: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let code = code().ok_or("no program is known for this processor")?;
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    let put = |elf: &mut Vec<u8>, parts: &[(u64, usize)]| {
        parts.iter().for_each(|&(value, bytes)| elf.extend(&value.to_le_bytes()[..bytes]));
    };
    // An executable for x86-64, version 1; entry; the segment's header follows, there are no sections.
    put(&mut elf, &[(2, 2), (62, 2), (1, 4), (AT + HEADERS, 8), (64, 8), (0, 8), (0, 4)]);
    put(&mut elf, &[(64, 2), (56, 2), (1, 2), (64, 2), (0, 2), (0, 2)]);
    // Loaded, read and executed: the whole file, at its address.
    put(&mut elf, &[(1, 4), (5, 4), (0, 8), (AT, 8), (AT, 8), (size, 8), (size, 8), (4096, 8)]);
    elf.extend(code);
    // SAFETY: the name is a constant; the number that comes is new.
    let fd = unsafe { libc::memfd_create(c"homenode-exit".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(because("memfd_create")(io::Error::last_os_error()));
    }
    // SAFETY: as above, nobody else's.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(&elf).map_err(because("a program in memory"))?;
    Ok(file)
}

/// Interruptions of a busy loop: shorter ones are other instructions, longer ones other tasks.
const INTERRUPTED: std::ops::Range<Duration> = Duration::from_nanos(500)..Duration::from_micros(50);
/// How many are needed to tell.
const TICKS_MIN: usize = 5;

/// What the tick takes of a loop, in picoseconds: the median of what is missing of its time.
/// None where hardly anything is: a CPU whose tick is off, or a slot of less than some ticks.
pub(super) fn tick(slot: Duration) -> Option<f64> {
    let began = Instant::now();
    let (mut last, mut gaps) = (began, Series::default());
    while last - began < slot {
        let now = Instant::now();
        if INTERRUPTED.contains(&(now - last)) {
            gaps.push(Some((now - last).as_nanos() as f64 * 1e3));
        }
        last = now;
    }
    gaps.median().filter(|_| gaps.len() >= TICKS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_one_cpu() -> cpus::KeepAffinity {
        let keep = cpus::KeepAffinity::new();
        if let Some(&cpu) = cpus::allowed().first() {
            cpus::pin(cpu);
        }
        keep
    }

    #[test]
    fn every_call_takes_its_time() {
        let _keep = on_one_cpu();
        for call in Call::ALL {
            // A hand-over that another task disturbs says so; it is tried again.
            let done = (0..20).find_map(|_| call.batch().ok());
            let (took, n) = done.unwrap_or_else(|| panic!("{call:?}: {:?}", call.batch()));
            assert!(took > Duration::ZERO && n > 0, "{call:?}: {took:?} for {n}");
        }
        // SAFETY: only asks.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER, "as it was");
    }

    #[test]
    fn a_call_that_finds_nobody_asleep_wakes_nobody() {
        assert_eq!(wake(&AtomicU32::new(0), 1), 0);
        // What is not the value any more is not waited for.
        wait(&AtomicU32::new(1), 0);
    }

    #[test]
    fn programs_are_made_and_run() {
        let _keep = on_one_cpu();
        let (fork, _) = fork().unwrap();
        // Others may have the CPU meanwhile.
        let quickest = |batch: fn() -> Batch| (0..9).map(|_| batch().unwrap().0).min().unwrap();
        let end = quickest(fork_and_end);
        assert!(Duration::ZERO < fork && Duration::ZERO < end);
        // 256 mappings are more than the processes of this program have, and each has to be freed.
        let more = quickest(fork_and_end_of_maps);
        assert!(end < more, "{end:?} {more:?}");
        match fork_and_exec() {
            Ok((_, n)) => assert_eq!(n, FORKS),
            // Another processor, or a system that runs no program from memory.
            Err(why) => println!("skipped: {why}"),
        }
        // What is no program can't be run, and that is noticed.
        let text = File::open("/proc/self/status").unwrap();
        assert!(forks(Then::Runs(&text), 0, true).unwrap_err().contains("did not end"));
    }

    #[test]
    fn messages_go_from_one_cpu_to_another_by_turns() {
        let all = cpus::allowed();
        let _keep = on_one_cpu();
        let _ = socket_far(CpuId(u32::MAX), Duration::ZERO).expect_err("there is no such CPU");
        let Some(&other) = all.get(1) else {
            println!("skipped: one CPU");
            return;
        };
        // Where others have a CPU for a while the two don't take turns in time; that is tried again.
        let far = (0..20).find_map(|_| socket_far(other, Duration::ZERO).ok()).expect("it runs");
        assert!(far.iter().all(|&ps| (0.0..1e9).contains(&ps)), "{far:?}");
    }

    #[test]
    fn a_loop_that_nobody_interrupts_has_no_tick() {
        assert_eq!(tick(Duration::ZERO), None);
    }
}
