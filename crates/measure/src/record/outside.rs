//! How long the program waits natively for what is outside of it: a terminal, a network, a disk,
//! another program.
//!
//! ```text
//! native run   task 1   pipe 0   [0, 10) waited 50 ms   [10, 20) waited 49 ms   [20, 30) ...
//! recorded     task 1   pipe 0   [0, 10) 43 ms          [10, 30) at once, since it came late
//! kept                           [0, 10) 50 ms          [10, 30) 49 ms + ...
//! ```
//!
//! Under the emulator a task comes to such a wait some ten times as late, and finds what it waits
//! for natively. So a run of its own says how long each wait takes, and the recording's rows get
//! these times. A task of that run is known as in [`super::shares`]. An object is known by which
//! of the task's it is, in the order in which it came to them, since their numbers differ from
//! run to run. A wait is known by its place: bytes that came before, or calls.
//!
//! The kernel stops the program at calls that may wait, and only there: a filter of system calls
//! chooses them (seccomp(2), `SECCOMP_RET_TRACE`). Whether anybody of the recording has done what
//! was waited for is not known here, and need not be: who reads the recording knows.
//!
//! Source: specs/waits.md#outside

use homenode_trace::Kind;
use homenode_trace::waits::{Block, DISK, LOOKED, NETWORK, Release};
use homenode_trace::wire::WireRow;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::time::Instant;

/// What is over sooner was not waited for; stops for tracing take some of it too, in nanoseconds.
const AT_ONCE: u64 = 50_000;
/// What comes from a device or disk sooner is none of the waits of a recording, in nanoseconds.
const SHORT: u64 = 1_000_000;
/// A stream's end takes up a place as a byte does.
const END: u64 = 1;

/// What of a task's objects waits have a place of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    /// Bytes come through it, or connections.
    Stream,
    /// Each reading call is a place.
    Device,
    /// So is each call that waits until all is written.
    Disk,
    /// And each that connects over it.
    Network,
}

/// Waits at one object, natively.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Waits {
    /// How far the task came.
    end: u64,
    /// The place of each wait, and how long it took in nanoseconds. Places rise.
    all: Vec<(u64, u64)>,
}

/// Waits of a task, natively: by kind, the objects in the order in which it came to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    of: BTreeMap<Of, Vec<Waits>>,
    /// What it has waited in vain for something to read since its last call, in nanoseconds.
    in_vain: u64,
}

/// Of a task, which of its objects a number stands for.
type Numbers = BTreeMap<(Of, u64), usize>;

fn place(numbers: &mut Numbers, of: Of, object: u64) -> usize {
    let next = numbers.range((of, 0)..=(of, u64::MAX)).count();
    *numbers.entry((of, object)).or_insert(next)
}

impl Outside {
    /// A call of the task is over.
    ///
    /// * `waited` – how long it took, in nanoseconds.
    /// * `by` – how much further it has come.
    fn call(&mut self, numbers: &mut Numbers, (of, object): (Of, u64), waited: u64, by: u64) {
        let at = place(numbers, of, object);
        let waited = waited.saturating_add(std::mem::take(&mut self.in_vain));
        let objects = self.of.entry(of).or_default();
        objects.resize_with(objects.len().max(at + 1), Waits::default);
        let waits = &mut objects[at];
        if waited > AT_ONCE {
            waits.all.push((waits.end, waited));
        }
        waits.end += by;
    }
    /// A call of the task is over, and there was nothing to read: so long it has waited for what
    /// comes next. Under the emulator it may be late, and find that at once.
    fn in_vain(&mut self, waited: u64) {
        if waited > AT_ONCE {
            self.in_vain = self.in_vain.saturating_add(waited);
        }
    }
}

/// Where a recorded task is among its waits of the native run.
#[derive(Default)]
pub(super) struct Twin {
    outside: Option<Outside>,
    numbers: Numbers,
    /// By kind and object: how far it has come, and how many of the native waits are over.
    at: BTreeMap<(Of, usize), (u64, usize)>,
    /// What the connection took that was accepted last, if that is known.
    accepted: Option<u64>,
    /// What it has waited in vain in the recorded run since its last wait that was not, in
    /// nanoseconds: rows of their own tell that.
    in_vain: u64,
}

impl Twin {
    /// * `outside` – what the task waited for natively; `None`: it was not there.
    pub(super) fn new(outside: Option<Outside>) -> Self {
        Self { outside, ..Self::default() }
    }
    /// The task has come further by so much: how long natively it waited there and before, in
    /// nanoseconds. `None`: natively it did not come here.
    fn take(&mut self, of: Of, object: u64, by: u64) -> Option<u64> {
        let number = place(&mut self.numbers, of, object);
        let waits = self.outside.as_ref()?.of.get(&of)?.get(number)?;
        let (at, over) = self.at.entry((of, number)).or_default();
        let until = (*at + by).max(*at + 1);
        let known = *at < waits.end;
        *at += by;
        let all = waits.all.get(*over..).unwrap_or_default();
        let now = all.partition_point(|wait| wait.0 < until);
        *over += now;
        let in_vain = std::mem::take(&mut self.in_vain);
        known.then(|| all[..now].iter().map(|wait| wait.1).sum::<u64>().saturating_sub(in_vain))
    }
    /// A row of the task. With its native time, where it is for what may be outside; `None`: it
    /// is none of the recording's.
    pub(super) fn row(&mut self, kind: Kind, w: &WireRow) -> Option<WireRow> {
        let mut row = *w;
        if kind == Kind::Release && w.reads == Release::Accepted as u16 {
            self.accepted = self.take(Of::Stream, w.arg, 1);
        }
        if kind != Kind::Block {
            return Some(row);
        }
        let (bytes, took) = (w.arg & u64::from(u32::MAX), w.arg >> 32);
        // What was before the slice takes no time.
        let us = |ns: Option<u64>| match ns {
            Some(ns) if took > 0 => (ns / 1000).min(u64::from(u32::MAX)),
            _ => took,
        };
        match Block::ALL.get(usize::from(w.reads)) {
            Some(Block::Bytes) => {
                row.arg = bytes | us(self.take(Of::Stream, w.pages, bytes)) << 32;
            }
            Some(Block::End) => row.arg = us(self.take(Of::Stream, w.pages, END)) << 32,
            // One that has come with another has not been waited for.
            Some(Block::Ready) if took > 0 => {
                row.arg = us(self.take(Of::Stream, w.pages, 0)) << 32;
            }
            Some(Block::Accept) => {
                let accepted = self.accepted.take().filter(|_| w.arg > 0);
                row.arg = accepted.map_or(w.arg, |ns| ns / 1000);
            }
            Some(Block::Outside) => {
                let (of, by) = match w.pages {
                    DISK => (Of::Disk, 1),
                    NETWORK => (Of::Network, 1),
                    device => (Of::Device, u64::from(device & LOOKED == 0)),
                };
                let native = self.take(of, w.pages & !LOOKED, by).filter(|_| w.arg > 0);
                row.arg = native.unwrap_or(w.arg);
                return Some(row).filter(|row| row.arg > SHORT);
            }
            Some(Block::ReadyTimeout) => self.in_vain = self.in_vain.saturating_add(w.arg),
            Some(
                Block::Ready
                | Block::Futex
                | Block::All
                | Block::Room
                | Block::Time
                | Block::FutexTimeout
                | Block::Child
                | Block::Cleared
                | Block::Signal
                | Block::Alarm
                | Block::Lock
                | Block::Refused
                | Block::Handled
                | Block::Writable
                | Block::Queue
                | Block::Spin,
            )
            | None => {}
        }
        Some(row)
    }
}

/// What the tasks of a recording waited for natively, as these begin.
#[derive(Default)]
pub(super) struct Natively {
    tasks: Vec<Option<Outside>>,
    /// By task, or none for the program: its children, in the order of birth.
    children: BTreeMap<Option<usize>, Vec<usize>>,
    /// By recorded task: its twin, and how many children it has had.
    twins: Vec<(Option<usize>, usize)>,
}

impl Natively {
    /// * `tasks` – those of the native run: who began each of them, and what it waited for. Without
    ///   them nothing is known.
    pub(super) fn new(tasks: Vec<(Option<usize>, Outside)>) -> Self {
        let mut new = Self::default();
        for (n, (parent, outside)) in tasks.into_iter().enumerate() {
            new.children.entry(parent).or_default().push(n);
            new.tasks.push(Some(outside));
        }
        new
    }
    /// A recorded task begins, after all that have begun before.
    pub(super) fn begins(&mut self, parent: Option<u32>) -> Twin {
        let twin = match parent {
            None if self.twins.is_empty() => {
                self.children.get(&None).and_then(|all| all.first()).copied()
            }
            // Who began it is not known.
            None => None,
            Some(parent) => self.twins.get_mut(parent as usize).and_then(|(twin, children)| {
                let nth = std::mem::replace(children, *children + 1);
                self.children.get(&Some((*twin)?))?.get(nth).copied()
            }),
        };
        self.twins.push((twin, 0));
        Twin::new(twin.and_then(|twin| self.tasks[twin].take()))
    }
}

/// What a call that may wait does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It reads from its first argument.
    Read,
    /// It accepts from its first argument.
    Accept,
    /// It looks at an array of descriptors.
    Poll,
    /// It looks at sets of descriptors.
    Select,
    /// It waits for the events of its first argument.
    Epoll,
    /// It waits until all is written.
    Sync,
    /// It connects to the address that its second argument is.
    Connect,
}

/// The calls that the recorder has rows for.
#[cfg(target_arch = "x86_64")]
const CALLS: [(i64, Does); 20] = [
    (libc::SYS_read, Does::Read),
    (libc::SYS_readv, Does::Read),
    (libc::SYS_recvfrom, Does::Read),
    (libc::SYS_recvmsg, Does::Read),
    (libc::SYS_splice, Does::Read),
    (libc::SYS_accept, Does::Accept),
    (libc::SYS_accept4, Does::Accept),
    (libc::SYS_poll, Does::Poll),
    (libc::SYS_ppoll, Does::Poll),
    (libc::SYS_select, Does::Select),
    (libc::SYS_pselect6, Does::Select),
    (libc::SYS_epoll_wait, Does::Epoll),
    (libc::SYS_epoll_pwait, Does::Epoll),
    (libc::SYS_fsync, Does::Sync),
    (libc::SYS_fdatasync, Does::Sync),
    (libc::SYS_sync, Does::Sync),
    (libc::SYS_syncfs, Does::Sync),
    (libc::SYS_msync, Does::Sync),
    (libc::SYS_sync_file_range, Does::Sync),
    (libc::SYS_connect, Does::Connect),
];
/// Programs are recorded on x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: [(i64, Does); 0] = [];

/// What linux/audit.h calls x86-64.
const ARCHITECTURE: u32 = 62 | 0xc000_0000;
/// Where a filter finds the call's number and its architecture.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// A filter that stops the program at the calls of interest, for who traces it.
pub(super) fn filter() -> Vec<libc::sock_filter> {
    let op = |code: u32, k: u32, jt: usize, jf: usize| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |at| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let equal = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf);
    let answer = |k| op(libc::BPF_RET | libc::BPF_K, k, 0, 0);
    let n = CALLS.len();
    // Over the number's load, and all comparisons, to the first answer.
    let mut all = vec![load(ARCHITECTURE_AT), equal(ARCHITECTURE, 0, n + 1), load(NUMBER_AT)];
    for (i, (number, _)) in CALLS.iter().enumerate() {
        all.push(equal(*number as u32, n - i, 0));
    }
    all.extend([answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_TRACE)]);
    all
}

/// Sets a filter for the calling thread, and whom it starts.
///
/// # Errors
/// What the kernel says.
pub(super) fn set(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: plain calls, of which the second reads the filter.
    unsafe {
        // Without this, only root may set a filter.
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A call that a task is in.
struct Call {
    does: Does,
    args: [u64; 6],
    since: Instant,
}

/// Calls of a program that is traced.
#[derive(Default)]
pub(super) struct Calls {
    under_way: BTreeMap<i32, Call>,
    /// By task: its objects.
    numbers: Vec<Numbers>,
}

/// What poll and epoll say of a descriptor that can be written to.
const TO_WRITE: u32 = (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND) as u32;

impl Calls {
    /// A thread has stopped where it enters a call that the filter names.
    pub(super) fn entered(&mut self, tid: i32) {
        let Some(info) = info(tid) else { return };
        if info.op != libc::PTRACE_SYSCALL_INFO_SECCOMP {
            return;
        }
        // SAFETY: that is what it tells of.
        let (number, args) = unsafe { (info.u.seccomp.nr as i64, info.u.seccomp.args) };
        if let Some(&(_, does)) = CALLS.iter().find(|c| c.0 == number) {
            self.under_way.insert(tid, Call { does, args, since: Instant::now() });
        }
    }
    /// Whether a thread is in such a call.
    pub(super) fn is_in(&self, tid: i32) -> bool {
        self.under_way.contains_key(&tid)
    }
    /// What a thread was in is over without a return.
    pub(super) fn forget(&mut self, tid: i32) {
        self.under_way.remove(&tid);
    }
    /// A thread of a task has stopped where such a call returns; what the task has waited for is
    /// kept in `outside`.
    pub(super) fn left(&mut self, tid: i32, task: usize, outside: &mut Outside) {
        let Some(call) = self.under_way.remove(&tid) else { return };
        let waited = u64::try_from(call.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Some(info) = info(tid).filter(|i| i.op == libc::PTRACE_SYSCALL_INFO_EXIT) else {
            return;
        };
        // SAFETY: that is what it tells of.
        let result = unsafe { info.u.exit.sval };
        let Ok(result) = u64::try_from(result) else { return };
        self.numbers.resize_with(self.numbers.len().max(task + 1), Numbers::new);
        let numbers = &mut self.numbers[task];
        let mut add = |of, waited, by| outside.call(numbers, of, waited, by);
        let (of, by) = match call.does {
            Does::Sync => ((Of::Disk, 0), 1),
            // Who connects to a local socket waits for another task, if at all.
            Does::Connect => {
                let family = memory(tid, call.args[1]).map(u16::from_ne_bytes).map(i32::from);
                match family {
                    Some(libc::AF_INET | libc::AF_INET6) => ((Of::Network, 0), 1),
                    _ => return,
                }
            }
            Does::Read | Does::Accept => {
                let Some(of) = object(tid, call.args[0]) else { return };
                let by = match (call.does, of.0) {
                    (Does::Read, Of::Stream) => result.max(END),
                    _ => 1,
                };
                (of, by)
            }
            Does::Poll | Does::Select | Does::Epoll if result == 0 => {
                return outside.in_vain(waited);
            }
            // The first has ended the wait; the others have come with it.
            Does::Poll | Does::Select | Does::Epoll => {
                let ready = match call.does {
                    Does::Poll => polled(tid, &call.args),
                    Does::Select => selected(tid, &call.args),
                    _ => event(tid, &call.args, result),
                };
                let Some(of) = ready.and_then(|fd| object(tid, fd)) else { return };
                (of, 0)
            }
        };
        add(of, waited, by);
    }
}

/// What a tracee that has stopped is at.
fn info(tid: i32) -> Option<libc::ptrace_syscall_info> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    // SAFETY: a tracee that has stopped, and room for the answer, for which zeros are a value.
    unsafe {
        let request = libc::PTRACE_GET_SYSCALL_INFO;
        let size = size_of::<libc::ptrace_syscall_info>();
        (libc::ptrace(request, tid, size, info.as_mut_ptr()) > 0).then(|| info.assume_init())
    }
}

/// What a thread's descriptor is, and its number; `None`: nothing whose waits are of interest.
fn object(tid: i32, fd: u64) -> Option<(Of, u64)> {
    let path = CString::new(format!("/proc/{tid}/fd/{}", fd as i32)).ok()?;
    // SAFETY: a valid path, and a buffer that is filled.
    let st = unsafe {
        let mut st: libc::stat = std::mem::zeroed();
        (libc::stat(path.as_ptr(), &mut st) == 0).then_some(st)?
    };
    match st.st_mode & libc::S_IFMT {
        libc::S_IFIFO | libc::S_IFSOCK => Some((Of::Stream, st.st_ino)),
        libc::S_IFCHR => Some((Of::Device, st.st_rdev)),
        _ => None,
    }
}

/// Bytes of a tracee's memory, as many as asked for.
fn memory<const N: usize>(tid: i32, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let own = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let other = libc::iovec { iov_base: at as *mut _, iov_len: N };
    // SAFETY: a buffer of ours; the other is only read, and what is not there is an error.
    let n = unsafe { libc::process_vm_readv(tid, &own, 1, &other, 1, 0) };
    (n == N as isize).then_some(bytes)
}

/// The first descriptor of a poll that can be read from.
fn polled(tid: i32, args: &[u64; 6]) -> Option<u64> {
    (0..args[1].min(1 << 10)).find_map(|i| {
        let [a, b, c, d, _, _, e, f] = memory::<8>(tid, args[0].checked_add(8 * i)?)?;
        let ready = u32::from(u16::from_le_bytes([e, f])) & !TO_WRITE != 0;
        ready.then(|| u64::from(u32::from_le_bytes([a, b, c, d])))
    })
}

/// Likewise of a select: of its three sets the second is for writing.
fn selected(tid: i32, args: &[u64; 6]) -> Option<u64> {
    [args[1], args[3]].into_iter().filter(|&at| at != 0).find_map(|at| {
        let set: [u8; 128] = memory(tid, at).or_else(|| {
            // A program may have given as much as it asks for only.
            let mut set = [0; 128];
            for (i, byte) in set.iter_mut().enumerate().take(args[0].div_ceil(8) as usize) {
                [*byte] = memory(tid, at + i as u64)?;
            }
            Some(set)
        })?;
        (0..args[0].min(1024)).find(|fd| set[*fd as usize / 8] >> (fd % 8) & 1 == 1)
    })
}

/// Likewise of an epoll: /proc says which descriptor an event's data stands for.
fn event(tid: i32, args: &[u64; 6], n: u64) -> Option<u64> {
    let known = std::fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", args[0] as i32)).ok()?;
    (0..n).find_map(|i| {
        let event: [u8; 12] = memory(tid, args[1].checked_add(12 * i)?)?;
        let word = |at: usize| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(|i| event[at + i])));
        let (events, data) = (word(0) as u32, word(4) | word(8) << 32);
        (events & !TO_WRITE != 0).then(|| watched(&known, data)).flatten()
    })
}

/// The descriptor that an epoll watches under these data: `tfd: 5 events: 19 data: 1f pos:0 ...`.
fn watched(info: &str, data: u64) -> Option<u64> {
    info.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let mut behind = |name| words.find(|w| *w == name).and_then(|_| words.next());
        let fd = behind("tfd:")?.parse().ok()?;
        let own = u64::from_str_radix(behind("data:")?, 16).ok()?;
        (own == data).then_some(fd)
    })
}

#[cfg(test)]
mod tests;
