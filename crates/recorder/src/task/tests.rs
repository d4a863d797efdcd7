//! A thread without QEMU: what happens to it goes in, and what comes out of the pipe is
//! read as whoever records reads it.

use super::*;
use expect_test::expect;
use homenode_fixtures::Folder;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

/// Argument of a map: readable and writable, private and anonymous.
pub(crate) const ANONYMOUS: u64 = 3 | 0x22 << 32;
/// Instructions and accesses that QEMU would count by itself.
type Inline = &'static mut [u64; 2];

/// A thread, and the other end of its pipe.
pub(crate) struct Rig {
    pub(crate) task: Task,
    inline: Inline,
    pipe: File,
    folder: Folder,
}

/// The arguments that `homenode record` gives, of a machine with small caches.
pub(crate) fn arguments(folder: &Folder, more: &str) -> Vec<String> {
    let text = format!(
        "folder={} qemu=/usr/bin/qemu plugin=/lib/a,b.so l1=4096:2 l2=0:1 llc=65536:4 tlb=4 {more}",
        folder.display()
    );
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

impl Rig {
    /// The first thread of a program.
    pub(crate) fn new() -> Self {
        Self::with("")
    }
    /// The same; `more` are further arguments.
    pub(crate) fn with(more: &str) -> Self {
        let folder = Folder::new().with(wire::SHARED_NAME, [0; wire::SHARED_BYTES]);
        let path = folder.join(wire::PIPE_NAME);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a valid path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let pipe =
            File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).expect("a pipe");
        let config = Config::parse(&arguments(&folder, more)).expect("whole arguments");
        // Threads look at their process as long as it lives.
        let process = Box::leak(Box::new(Process::new(config).expect("a process")));
        process.pid.store(100, Relaxed);
        let inline: Inline = Box::leak(Box::new([0; 2]));
        let counts = [&raw const inline[0], &raw const inline[1]];
        let task = Task::new(process, counts, 100, wire::FLAG_IMAGE, 0);
        Self { task, inline, pipe, folder }
    }
    /// It runs so many instructions.
    pub(crate) fn run(&mut self, insns: u64) {
        self.inline[0] += insns;
    }
    /// It runs one that loads from, or stores to, the first line of a page.
    pub(crate) fn access(&mut self, page: u64, write: bool) {
        self.run(1);
        self.task.core.count();
        self.task.access(page << 6, write);
    }
    /// The frames that have come.
    pub(crate) fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut part = [0; FRAME_BYTES];
        while let Ok(n @ 1..) = self.pipe.read(&mut part) {
            bytes.extend_from_slice(&part[..n]);
        }
        let mut frames = Vec::new();
        while let Some(head) = Head::decode(&bytes) {
            frames.push(bytes.drain(..usize::from(head.len)).collect());
        }
        assert!(bytes.is_empty(), "frames are whole");
        frames
    }
    /// The frames that have come, a line for each and for each of its rows.
    pub(crate) fn told(&mut self) -> String {
        let mut text = String::new();
        for frame in self.frames() {
            let head = Head::decode(&frame).unwrap();
            let first = match head.flags {
                wire::FLAG_IMAGE => "image, ".to_owned(),
                wire::FLAG_CHILD => format!("child of {}, ", head.parent_tid),
                wire::FLAG_THREAD => format!("thread of {}, ", head.parent_tid),
                _ => String::new(),
            };
            writeln!(
                text,
                "{}/{} frame {}: {first}{} instructions, {} accesses, {} missed",
                head.pid,
                head.tid,
                head.sequence,
                head.totals.insns,
                head.totals.accesses,
                head.totals.read_misses + head.totals.write_misses,
            )
            .unwrap();
            let mut rest = &frame[HEAD_BYTES..];
            while let Some((row, n)) = WireRow::decode(rest) {
                rest = &rest[n..];
                let name = match row.kind {
                    wire::COMPUTE => format!("compute {}", row.arg),
                    wire::HELLO => {
                        let path;
                        (path, rest) = rest.split_at((row.arg as usize).next_multiple_of(16));
                        format!("hello {}", String::from_utf8_lossy(&path[..row.arg as usize]))
                    }
                    wire::SLICE_FULL => "the slice is full".to_owned(),
                    wire::UNRECORDED => "unrecorded".to_owned(),
                    kind if kind == Kind::Access as u8 => {
                        format!(
                            "access {:#x}: {} read, {} written",
                            row.page, row.reads, row.writes
                        )
                    }
                    kind => format!(
                        "{:?} {:#x} +{} {:#x}",
                        Kind::from_number(kind).expect("a kind"),
                        row.page,
                        row.pages,
                        row.arg
                    ),
                };
                writeln!(text, "  after {:>3}  {name}", row.insns).unwrap();
            }
        }
        text
    }
}

#[test]
fn a_program_says_its_name_and_then_what_reaches_memory() {
    let mut r = Rig::new();
    r.task.hello(b"/bin/true");
    r.run(10);
    r.access(0x7000, true);
    r.access(0x7001, false);
    // The caches have it.
    r.access(0x7001, false);
    r.run(5);
    r.task.flush();
    expect![[r#"
        100/100 frame 0: image, 0 instructions, 0 accesses, 0 missed
          after   0  hello /bin/true
          after   0  compute 0
        100/100 frame 1: 18 instructions, 3 accesses, 2 missed
          after  11  access 0x7000: 0 read, 1 written
          after   1  access 0x7001: 1 read, 0 written
          after   6  compute 0
    "#]]
    .assert_eq(&r.told());
}

#[test]
fn a_long_name_loses_its_beginning() {
    let mut r = Rig::new();
    r.task.hello(format!("/{}/program", "x".repeat(2000)).as_bytes());
    let told = r.told();
    assert!(told.contains("xxx/program\n") && !told.contains("/x"), "{told}");
}

#[test]
fn frames_are_numbered_and_none_is_too_long() {
    let mut r = Rig::new();
    let pages = 1000;
    (0..pages).for_each(|page| r.access(0x1_0000 + page, false));
    r.task.flush();
    let frames = r.frames();
    let heads: Vec<Head> = frames.iter().map(|f| Head::decode(f).unwrap()).collect();
    assert!(frames.len() > 3 && frames.iter().all(|f| f.len() <= FRAME_BYTES));
    assert!(heads.iter().enumerate().all(|(i, h)| h.sequence == i as u32));
    assert!(heads.is_sorted_by_key(|h| h.totals.insns), "totals are so far");
    assert_eq!(heads[0].flags, wire::FLAG_IMAGE);
    assert!(heads[1..].iter().all(|h| h.flags == 0));
    let last = heads.last().unwrap().totals;
    assert_eq!((last.insns, last.accesses, last.read_misses), (pages, pages, pages));
}

#[test]
fn a_fork_counts_from_the_beginning() {
    let mut r = Rig::new();
    r.run(1000);
    r.access(0x7000, true);
    r.task.flush();
    assert!(r.told().starts_with("100/100 frame 0: image, 1001 instructions, 1 accesses"));
    r.run(1);
    r.task.become_child(200);
    r.run(7);
    r.access(0x7000, true);
    r.task.flush();
    expect![[r#"
        200/200 frame 0: child of 100, 0 instructions, 0 accesses, 0 missed
          after   0  compute 0
        200/200 frame 1: 8 instructions, 1 accesses, 0 missed
          after   8  access 0x7000: 0 read, 0 written
          after   0  compute 0
    "#]]
    .assert_eq(&r.told());
}

#[test]
fn with_a_second_thread_nothing_is_counted_twice() {
    static ZERO: u64 = 0;
    let mut r = Rig::new();
    r.run(100);
    r.inline[1] += 30;
    r.task.leave_inline(&ZERO);
    // From now on QEMU calls at each block.
    r.task.insns += 50;
    r.task.core.count();
    r.task.flush();
    let totals = Head::decode(&r.frames()[0]).unwrap().totals;
    assert_eq!((totals.insns, totals.accesses), (150, 31));
}

#[test]
fn a_program_may_close_the_pipe_and_take_its_number() {
    let mut r = Rig::new();
    let process = r.task.process;
    let fd = process.pipe.load(Relaxed);
    assert!(fd >= PIPE_FD, "out of the way of low numbers");
    let other = Folder::new();
    let file = File::create(other.join("of the program")).unwrap();
    // SAFETY: both are open; the number is the file's from now on.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), fd) }, fd);
    r.run(5);
    r.task.flush();
    assert!(r.told().starts_with("100/100 frame 0: image, 5 instructions"));
    assert_eq!(other.read("of the program"), "", "what is the program's is not written to");
    let _ = file.into_raw_fd();
}

#[test]
fn a_slice_has_its_own_rows_only() {
    let step = SLICE_INSNS;
    let mut r = Rig::with(&format!("skip={} until={}", step, 3 * step));
    let mut page = 0x1000;
    for _ in 0..5 {
        r.access(page, false);
        page += 1;
        r.run(step);
    }
    r.access(page, false);
    r.task.flush();
    expect![[r#"
        100/100 frame 0: image, 786436 instructions, 4 accesses, 3 missed
          after   0  access 0x1001: 1 read, 0 written
          after   0  the slice is full
          after   0  compute 0
        100/100 frame 1: 1310726 instructions, 6 accesses, 6 missed
          after   0  compute 0
    "#]]
    .assert_eq(&r.told());
}

#[test]
fn where_only_instructions_count_the_kernels_accesses_do_not() {
    let accesses = |more| {
        let mut r = Rig::with(more);
        r.task.kernel_access(0x7000_0010, 130, true);
        r.task.flush();
        Head::decode(&r.frames()[0]).unwrap().totals.write_misses
    };
    assert_eq!((accesses(""), accesses("count=1")), (3, 0));
}

#[test]
fn odd_arguments_are_refused() {
    let folder = Folder::new();
    let whole = arguments(&folder, "skip=5");
    let config = Config::parse(&whole).unwrap();
    assert_eq!((config.skip, config.until, config.count_only), (5, u64::MAX, false));
    assert_eq!((config.geometry.l1, config.geometry.tlb), ((4096, 2), 4));
    for i in 0..7 {
        let mut less = whole.clone();
        let lost = less.remove(i);
        assert!(Config::parse(&less).is_none(), "without {lost}");
    }
    for odd in ["l1=4096", "l1=4096:x", "llc=1:2:3", "tlb=-1", "tlb=4294967296"] {
        let mut args = vec![odd.to_owned()];
        args.extend_from_slice(&whole);
        assert!(Config::parse(&args).is_none(), "{odd}");
    }
    assert!(Process::new(config).is_none(), "nobody has made the pipe");
}

/// What a thread has not sent yet stands in a file, as a frame that is whole at any moment.
#[test]
fn what_is_not_sent_is_in_a_file() {
    let mut r = Rig::new();
    r.task.flush();
    let sent = r.frames().len() as u32;
    let file = r.folder.join(format!("{}100", wire::REST_NAME));
    let rest = || {
        let bytes = std::fs::read(&file).expect("a file");
        let head = Head::decode(&bytes).expect("a frame");
        let (mut rows, mut at) = (Vec::new(), &bytes[HEAD_BYTES..usize::from(head.len)]);
        while let Some((row, n)) = WireRow::decode(at) {
            rows.push((row.kind, row.arg));
            at = &at[n..];
        }
        (head.sequence, rows)
    };
    assert_eq!(rest(), (sent, vec![]));
    r.task.row(Kind::Wait as u8, 0, 0, 7);
    r.task.row(Kind::Fork as u8, 0, 0, 8);
    assert_eq!(rest(), (sent, vec![(Kind::Wait as u8, 7), (Kind::Fork as u8, 8)]));
    r.task.flush();
    assert_eq!(rest(), (sent + 1, vec![]));
    // A child has a file of its own, and its parent's stays as it is.
    r.task.row(Kind::Wait as u8, 0, 0, 9);
    r.task.become_child(200);
    assert_eq!(rest(), (sent + 1, vec![(Kind::Wait as u8, 9)]));
    assert!(r.folder.join(format!("{}200", wire::REST_NAME)).exists());
    r.task.over();
    assert!(!r.folder.join(format!("{}200", wire::REST_NAME)).exists());
}
