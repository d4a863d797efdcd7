//! One thread's state, its frames, and the pipe that they go into.

use crate::spins::{Looks, Seen};
use homenode_trace::model::{Core, Geometry, LINE_BITS, Llc, Open, Sink};
use homenode_trace::wire::{self, FRAME_BYTES, HEAD_BYTES, Head, LONGEST_ROW_BYTES, WireRow};
use homenode_trace::{EXIT_OF_ALL, Kind, Totals};
use std::ffi::{CStr, CString};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// A frame is sent at the latest after so many instructions, so that the
/// writer's order of tasks stays near to what happened.
const FLUSH_INSNS: u64 = 1 << 22;
/// How often the shared count is brought up to date where a slice is bounded.
const SLICE_INSNS: u64 = 1 << 18;
/// The pipe's descriptor is moved up here, out of the way of programs that
/// count on low numbers.
const PIPE_FD: i32 = 900;
/// Where a frame says how long it is.
const LEN_AT: usize = 4;

/// What the parent asked for: the same for all processes of a recording.
pub(crate) struct Config {
    /// The arguments as they came, for programs that this one runs.
    pub(crate) raw: Vec<String>,
    /// Folder of the pipe.
    pub(crate) folder: String,
    /// QEMU's path.
    pub(crate) qemu: CString,
    /// The plugin's path.
    pub(crate) plugin: String,
    /// The machine.
    pub(crate) geometry: Geometry,
    /// Instructions before the slice.
    pub(crate) skip: u64,
    /// Instructions at its end.
    pub(crate) until: u64,
    /// Only count instructions.
    pub(crate) count_only: bool,
}

impl Config {
    /// Reads arguments of the form `key=value`; `None` if one is missing or odd.
    pub(crate) fn parse(raw: &[String]) -> Option<Self> {
        let get = |key: &str| raw.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
        let number = |key: &str| get(key)?.parse::<u64>().ok();
        let cache = |key: &str| {
            let (size, ways) = get(key)?.split_once(':')?;
            Some((size.parse().ok()?, ways.parse().ok()?))
        };
        Some(Self {
            folder: get("folder")?.to_owned(),
            qemu: CString::new(get("qemu")?).ok()?,
            plugin: get("plugin")?.to_owned(),
            geometry: Geometry {
                l1: cache("l1")?,
                l2: cache("l2")?,
                llc: cache("llc")?,
                tlb: u32::try_from(number("tlb")?).ok()?,
            },
            skip: number("skip").unwrap_or(0),
            until: number("until").unwrap_or(u64::MAX),
            count_only: number("count").is_some(),
            raw: raw.to_vec(),
        })
    }
}

/// The process's side of the recording.
pub(crate) struct Process {
    pub(crate) config: Config,
    pub(crate) llc: Llc,
    pipe_path: CString,
    pipe: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// What all processes share ([`wire::SHARED_BYTES`]).
    shared: AtomicPtr<AtomicU64>,
    pub(crate) pid: AtomicU32,
    /// The last thread that started a thread.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    pub(crate) starter: AtomicU32,
}

impl Process {
    /// Opens the pipe.
    pub(crate) fn new(config: Config) -> Option<Self> {
        let pipe_path = CString::new(format!("{}/{}", config.folder, wire::PIPE_NAME)).ok()?;
        let llc = Llc::new(&config.geometry);
        let p = Self {
            pipe_path,
            llc,
            pipe: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            shared: AtomicPtr::new(std::ptr::null_mut()),
            // SAFETY: no preconditions.
            pid: AtomicU32::new(unsafe { libc::getpid() } as u32),
            starter: AtomicU32::new(0),
            config,
        };
        if p.open_pipe() < 0 {
            return None;
        }
        p.map_shared()?;
        Some(p)
    }

    fn has_slice(&self) -> bool {
        self.config.skip > 0 || self.config.until < u64::MAX
    }
    /// A word of what all processes share.
    fn shared(&self, at: usize) -> &AtomicU64 {
        // SAFETY: mapped in `map_shared`, which `new` has called; never unmapped. All words
        // that are asked for lie in it.
        unsafe { &*self.shared.load(Relaxed).byte_add(at) }
    }

    fn map_shared(&self) -> Option<()> {
        let path = CString::new(format!("{}/{}", self.config.folder, wire::SHARED_NAME)).ok()?;
        // SAFETY: a valid path; the mapping is shared with other processes, all
        // of which use the word at its beginning as an atomic.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if fd < 0 {
                return None;
            }
            let at = libc::mmap(
                std::ptr::null_mut(),
                wire::SHARED_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            );
            libc::close(fd);
            if at == libc::MAP_FAILED {
                return None;
            }
            self.shared.store(at.cast(), Relaxed);
        }
        Some(())
    }

    fn open_pipe(&self) -> i32 {
        // SAFETY: a valid path, and a stat buffer that fstat fills.
        unsafe {
            let low = libc::open(self.pipe_path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if low < 0 {
                return -1;
            }
            let high = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, PIPE_FD);
            let fd = if high >= 0 { high } else { low };
            if high >= 0 {
                libc::close(low);
            }
            let mut st: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut st) != 0 {
                return -1;
            }
            self.device.store(st.st_dev, Relaxed);
            self.inode.store(st.st_ino, Relaxed);
            self.pipe.store(fd, Relaxed);
            fd
        }
    }

    /// Sends one frame. The recorded program may have closed the descriptor, and
    /// may have given its number to a file of its own: so look before writing.
    fn send(&self, frame: &[u8]) {
        // SAFETY: plain system calls on buffers of ours.
        unsafe {
            let saved = *libc::__errno_location();
            let mut fd = self.pipe.load(Relaxed);
            let mut st: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut st) != 0
                || st.st_dev != self.device.load(Relaxed)
                || st.st_ino != self.inode.load(Relaxed)
            {
                fd = self.open_pipe();
            }
            if fd >= 0 && libc::write(fd, frame.as_ptr().cast(), frame.len()) < 0 {
                let mut tries = 0;
                while *libc::__errno_location() == libc::EINTR && tries < 100 {
                    if libc::write(fd, frame.as_ptr().cast(), frame.len()) >= 0 {
                        break;
                    }
                    tries += 1;
                }
                if *libc::__errno_location() == libc::EPIPE {
                    // Nobody records any more, and the signal's default would
                    // have ended the program: there is no reason to go on.
                    libc::_exit(141);
                }
            }
            *libc::__errno_location() = saved;
        }
    }
}

/// The bytes of a frame in the making, in a file ([`wire::REST_NAME`]): where a signal ends the
/// thread, whoever records finds them there.
struct Buffer {
    bytes: NonNull<[u8; FRAME_BYTES]>,
    file: Option<CString>,
}

impl Buffer {
    fn new(folder: &str, tid: u32) -> Self {
        let path = CString::new(format!("{folder}/{}{tid}", wire::REST_NAME)).ok();
        let mapped = path.and_then(|path| Some((Self::mapped(&path)?, path)));
        match mapped {
            Some((bytes, path)) => Self { bytes, file: Some(path) },
            // Where there can be no file, what a signal catches is lost.
            None => {
                Self { bytes: NonNull::from(Box::leak(Box::new([0; FRAME_BYTES]))), file: None }
            }
        }
    }
    fn mapped(path: &CStr) -> Option<NonNull<[u8; FRAME_BYTES]>> {
        // SAFETY: a valid path and structures of ours; the mapping is as long as the file.
        unsafe {
            // Growing a file beyond the program's limit would end the program.
            let mut limit: libc::rlimit = std::mem::zeroed();
            let long = libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0
                && limit.rlim_cur >= FRAME_BYTES as u64;
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
            let fd = if long { libc::open(path.as_ptr(), flags, 0o600) } else { -1 };
            if fd < 0 {
                return None;
            }
            let sized = libc::ftruncate(fd, FRAME_BYTES as libc::off_t) == 0;
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let null = std::ptr::null_mut();
            let at = if sized {
                libc::mmap(null, FRAME_BYTES, both, libc::MAP_SHARED, fd, 0)
            } else {
                libc::MAP_FAILED
            };
            libc::close(fd);
            (at != libc::MAP_FAILED).then(|| NonNull::new(at.cast())).flatten()
        }
    }
    /// Nothing is left to be found.
    fn remove(&mut self) {
        if let Some(path) = &self.file {
            // SAFETY: a valid path.
            unsafe { libc::unlink(path.as_ptr()) };
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: from `new`, and nobody else's.
        unsafe {
            match self.file {
                Some(_) => drop(libc::munmap(self.bytes.as_ptr().cast(), FRAME_BYTES)),
                None => drop(Box::from_raw(self.bytes.as_ptr())),
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8; FRAME_BYTES];
    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: it lives as long as this does, and is this thread's own.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above.
        unsafe { self.bytes.as_mut() }
    }
}

/// Frames in the making.
struct Frames {
    buffer: Buffer,
    len: usize,
    flags: u16,
    sequence: u32,
    pid: u32,
    tid: u32,
    parent: u32,
    /// Instructions at the last row.
    last: u64,
    /// Instructions at the last frame.
    sent: u64,
    /// Whether access rows are kept: inside of the slice.
    keep: bool,
}

/// What a call under way needs to be judged when it returns.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entered {
    /// Number of order at its entry; 0: the call is not of interest.
    pub(crate) order: u64,
    /// Time on the clock, in nanoseconds.
    pub(crate) at: u64,
    /// What it waits for at most, or what a timer is set to, in nanoseconds.
    pub(crate) timeout: Option<u64>,
    /// The same as a moment, where that is counted from a look at the clock.
    pub(crate) deadline: Option<Deadline>,
    /// Bytes for which a socket that is written to had room, as the kernel reckons.
    pub(crate) room: Option<u64>,
}

/// A moment that a task waits for at most.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    /// Instructions of the task since it looked at the clock.
    pub(crate) ago: u64,
    /// How long after that it is, in nanoseconds.
    pub(crate) ns: u64,
}

/// A look at a clock.
#[derive(Clone, Copy)]
pub(crate) struct Looked {
    /// What it said, in nanoseconds.
    pub(crate) ns: u64,
    /// The task's instructions then.
    pub(crate) insns: u64,
}

/// A thread of the recorded program.
pub(crate) struct Task {
    pub(crate) core: Core,
    /// Instructions, but for those that `inline` counts.
    pub(crate) insns: u64,
    /// A count that QEMU keeps without calling us; only while there is one thread, and of the
    /// second one until all is translated anew.
    inline: *const u64,
    /// Likewise of accesses, and how many of them are in the totals.
    inline_accesses: *const u64,
    taken: u64,
    frames: Frames,
    process: &'static Process,
    /// Instructions when [`Task::check`] is due.
    check_at: u64,
    published: u64,
    told_full: bool,
    /// Number and arguments of the system call under way.
    pub(crate) call: (i64, [u64; 6]),
    /// What of it decides when it returns.
    pub(crate) entered: Entered,
    /// When it looked last at the clock of the day and at the one since boot.
    pub(crate) looked: [Option<Looked>; 2],
    pub(crate) brk: u64,
    /// It has asked for the end of its whole process.
    pub(crate) ends_all: bool,
    /// A signal has ended the last call, and that is told: its handler begins next.
    pub(crate) told_signal: bool,
    /// Words that it looks at in loops.
    pub(crate) looks: Looks,
    /// Its instructions when it gave its CPU to others last (`sched_yield`).
    pub(crate) yielded: u64,
}

struct Rows<'a> {
    frames: &'a mut Frames,
    process: &'static Process,
}

impl Sink for Rows<'_> {
    fn row(&mut self, row: Open, totals: &Totals) {
        self.frames.access(self.process, &row, totals);
    }
}

impl Frames {
    fn access(&mut self, process: &Process, row: &Open, totals: &Totals) {
        if !self.keep {
            return;
        }
        // An open row may have begun before the slice or before another kind of row.
        let at = row.at.max(self.last);
        let insns = self.spend(process, at, totals);
        self.put(
            process,
            &WireRow {
                kind: Kind::Access as u8,
                insns,
                reads: row.reads.min(wire::COUNT_MAX) as u16,
                writes: row.writes.min(wire::COUNT_MAX) as u16,
                page: row.page,
                pages: 1,
                arg: row.arg,
            },
            totals,
        );
    }

    /// Instructions up to `at` that no row has yet; what a row cannot carry goes ahead.
    fn spend(&mut self, process: &Process, at: u64, totals: &Totals) -> u32 {
        let insns = at - self.last;
        self.last = at;
        if let Ok(n) = u32::try_from(insns) {
            return n;
        }
        let row = WireRow { kind: wire::COMPUTE, arg: insns, ..WireRow::default() };
        self.put(process, &row, totals);
        0
    }

    #[inline]
    fn put(&mut self, process: &Process, row: &WireRow, totals: &Totals) {
        if self.len + LONGEST_ROW_BYTES > FRAME_BYTES {
            self.send(process, totals);
        }
        let mut bytes = [0; LONGEST_ROW_BYTES];
        let n = row.encode(&mut bytes);
        self.buffer[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.grown(n);
    }
    /// The frame in the making is longer, and whole again.
    #[inline]
    fn grown(&mut self, n: usize) {
        self.len += n;
        self.buffer[LEN_AT..LEN_AT + 2].copy_from_slice(&(self.len as u16).to_le_bytes());
    }
    /// Begins a frame: one without rows.
    fn begin(&mut self, totals: &Totals) {
        self.len = HEAD_BYTES;
        self.head(totals);
    }
    fn head(&mut self, totals: &Totals) {
        let mut head = [0; HEAD_BYTES];
        Head {
            len: self.len as u16,
            flags: self.flags,
            pid: self.pid,
            tid: self.tid,
            sequence: self.sequence,
            parent_tid: self.parent,
            totals: *totals,
        }
        .encode(&mut head);
        self.buffer[..HEAD_BYTES].copy_from_slice(&head);
    }

    fn send(&mut self, process: &Process, totals: &Totals) {
        self.head(totals);
        process.send(&self.buffer[..self.len]);
        self.sequence += 1;
        self.flags = 0;
        self.begin(totals);
        self.sent = totals.insns;
    }
}

impl Task {
    pub(crate) fn new(
        process: &'static Process,
        [inline, inline_accesses]: [*const u64; 2],
        tid: u32,
        flags: u16,
        parent: u32,
    ) -> Self {
        let frames = Frames {
            buffer: Buffer::new(&process.config.folder, tid),
            len: HEAD_BYTES,
            flags,
            sequence: 0,
            pid: process.pid.load(Relaxed),
            tid,
            parent,
            last: 0,
            sent: 0,
            keep: process.config.skip == 0,
        };
        let mut t = Self {
            core: Core::new(&process.config.geometry),
            insns: 0,
            inline,
            inline_accesses,
            taken: 0,
            frames,
            process,
            check_at: 0,
            published: 0,
            told_full: false,
            call: (-1, [0; 6]),
            entered: Entered::default(),
            looked: [None; 2],
            brk: 0,
            ends_all: false,
            told_signal: false,
            looks: Looks::default(),
            yielded: 0,
        };
        t.frames.begin(&Totals::default());
        t.check(0);
        t
    }

    /// The thread has sent all that it ever will.
    pub(crate) fn over(&mut self) {
        self.frames.buffer.remove();
    }

    /// Instructions so far.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // SAFETY: `inline` points to a static; while QEMU adds to it, this thread
        // is the only one that runs translated code, and it is here.
        self.insns.wrapping_add(unsafe { self.inline.read_volatile() })
    }

    /// Brings the totals up to date.
    #[inline]
    fn settle(&mut self, now: u64) {
        // SAFETY: as in `now`.
        let accesses = unsafe { self.inline_accesses.read_volatile() };
        self.core.settle();
        self.core.totals.accesses += accesses - self.taken;
        self.taken = accesses;
        self.core.totals.insns = now;
    }

    /// The process is about to have a second thread: from now on blocks call us.
    pub(crate) fn leave_inline(&mut self, zero: *const u64) {
        self.settle(self.now());
        self.insns = self.now();
        self.inline = zero;
        self.inline_accesses = zero;
        self.taken = 0;
    }

    /// An access that was not to the latest line of its set.
    #[inline]
    pub(crate) fn access(&mut self, line: u64, write: bool) {
        if let Err(old) = self.core.l1(line, write) {
            self.beyond_l1(line, write, old);
        }
    }

    #[inline(never)]
    fn beyond_l1(&mut self, line: u64, write: bool, old: u64) {
        let now = self.now();
        if now >= self.check_at {
            self.check(now);
        }
        self.settle(now);
        let Self { core, frames, process, .. } = self;
        let mut rows = Rows { frames, process };
        core.access(&process.llc, line, write, old, now, &mut rows);
    }

    /// The kernel reads or writes memory of the program.
    pub(crate) fn kernel_access(&mut self, from: u64, bytes: u64, write: bool) {
        if bytes == 0 || self.process.config.count_only {
            return;
        }
        for line in from >> LINE_BITS..=(from + (bytes - 1)) >> LINE_BITS {
            if !self.core.done(line, u8::from(!write)) {
                self.access(line, write);
            }
        }
    }

    /// Keeps the slice, and sends what has been waiting for long.
    fn check(&mut self, now: u64) {
        let p = self.process;
        let step = if !p.has_slice() {
            FLUSH_INSNS
        } else {
            let new = now - self.published;
            let total = p.shared(0).fetch_add(new, Relaxed) + new;
            self.published = now;
            let keep = total >= p.config.skip && total < p.config.until;
            if keep && !self.frames.keep {
                // The slice begins here: what ran before is not its time.
                self.discard_open();
                self.frames.last = now;
            }
            self.frames.keep = keep;
            if total >= p.config.until && !self.told_full {
                self.told_full = true;
                self.row_at(wire::SLICE_FULL, 0, 0, 0, now);
                self.flush();
            }
            SLICE_INSNS
        };
        self.check_at = now + step;
        if now - self.frames.sent >= FLUSH_INSNS {
            self.flush();
        }
    }

    fn discard_open(&mut self) {
        struct Nowhere;
        impl Sink for Nowhere {
            fn row(&mut self, _: Open, _: &Totals) {}
        }
        self.core.close_all(&mut Nowhere);
    }

    /// A row of another kind than an access.
    pub(crate) fn row(&mut self, kind: u8, page: u64, pages: u64, arg: u64) {
        self.row_at(kind, page, pages, arg, self.now());
    }
    /// Whether what it does now belongs to the slice.
    pub(crate) fn is_kept(&self) -> bool {
        self.frames.keep
    }
    /// The task ends.
    #[cfg_attr(test, allow(dead_code, reason = "what QEMU calls is not there in tests"))]
    pub(crate) fn exits(&mut self, status: u64) {
        let page = self.number();
        let reads = if self.ends_all { EXIT_OF_ALL as u16 } else { 0 };
        let kind = Kind::Exit as u8;
        let row = WireRow { kind, reads, page, arg: status, ..WireRow::default() };
        self.wire_row(row, self.now());
    }
    /// The next number of order of all tasks.
    pub(crate) fn number(&self) -> u64 {
        self.process.shared(wire::ORDER_AT).fetch_add(1, SeqCst) + 1
    }
    /// It looks at a word ([`Looks::look`]).
    #[inline]
    pub(crate) fn look(&mut self, at: u64, value: u64) -> Seen {
        let (now, process, yielded) = (self.now(), self.process, self.yielded);
        let order = || process.shared(wire::ORDER_AT).load(SeqCst) + 1;
        self.looks.look(at, value, now, yielded, order)
    }
    /// The number that the next one gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.process.shared(wire::ORDER_AT).load(SeqCst) + 1
    }
    /// Whether a descriptor is the recorder's own.
    pub(crate) fn is_own(&self, fd: i32) -> bool {
        self.process.pipe.load(Relaxed) == fd
    }
    /// A word of what all processes share.
    pub(crate) fn shared(&self, at: usize) -> &AtomicU64 {
        self.process.shared(at)
    }
    /// A release or a wait.
    pub(crate) fn point(&mut self, kind: Kind, of: u16, object: u64, arg: u64, order: u64) {
        let row = WireRow {
            kind: kind as u8,
            reads: of,
            page: order,
            pages: object,
            arg,
            ..WireRow::default()
        };
        self.wire_row(row, self.now());
    }

    fn row_at(&mut self, kind: u8, page: u64, pages: u64, arg: u64, now: u64) {
        self.wire_row(WireRow { kind, page, pages, arg, ..WireRow::default() }, now);
    }

    fn wire_row(&mut self, row: WireRow, now: u64) {
        self.settle(now);
        let totals = self.core.totals;
        let mut rows = Rows { frames: &mut self.frames, process: self.process };
        self.core.close_all(&mut rows);
        if !self.frames.keep {
            self.frames.last = now;
        }
        let insns = self.frames.spend(self.process, now, &totals);
        self.frames.put(self.process, &WireRow { insns, ..row }, &totals);
    }

    /// Tells the image's program.
    pub(crate) fn hello(&mut self, path: &[u8]) {
        let path = &path[path.len().saturating_sub(wire::HELLO_PATH_BYTES)..];
        self.row(wire::HELLO, 0, 0, path.len() as u64);
        let padded = path.len().next_multiple_of(16);
        let f = &mut self.frames;
        f.buffer[f.len..f.len + path.len()].copy_from_slice(path);
        f.buffer[f.len + path.len()..f.len + padded].fill(0);
        f.grown(padded);
        self.flush();
    }

    /// Sends all that there is, with the instructions up to now.
    pub(crate) fn flush(&mut self) {
        let now = self.now();
        self.row_at(wire::COMPUTE, 0, 0, 0, now);
        let totals = self.core.totals;
        self.frames.send(self.process, &totals);
    }

    /// This is the only thread of a new process now.
    pub(crate) fn become_child(&mut self, pid: u32) {
        let parent = self.frames.tid;
        let f = &mut self.frames;
        (f.pid, f.tid, f.parent, f.sequence) = (pid, pid, parent, 0);
        f.flags = wire::FLAG_CHILD;
        // What stands in the other is the parent's.
        f.buffer = Buffer::new(&self.process.config.folder, pid);
        f.begin(&Totals::default());
        self.discard_open();
        let now = self.now();
        self.settle(now);
        // The parent's instructions are not the child's: count from here.
        self.insns = self.insns.wrapping_sub(now);
        let f = &mut self.frames;
        (f.last, f.sent, self.published, self.check_at) = (0, 0, 0, 0);
        self.core.restart();
        self.flush();
    }
}

#[cfg(test)]
pub(crate) mod tests;
