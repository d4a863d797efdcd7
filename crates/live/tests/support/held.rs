//! Processes whose memory is known: a program runs itself again as one of them.
//!
//! A plan is words: `own=N` pages like no others, `copies=N/K` pages of K contents
//! that are the same in every process, `zero=N` pages of zeros that were written,
//! `volatile=N` equal pages that change all the time, `absent=N` pages that are
//! never touched, `read=N` pages that are only read, `huge=N` own pages that ask for
//! huge ones, `merge`: asks for merging, `fork`: forks once all is there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that holds a process' plan.
pub(crate) const PLAN: &str = "HOMENODE_HELD_PLAN";

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// Memory that is never given back while the process lives.
#[derive(Clone, Copy)]
struct Pages {
    start: *mut u8,
    n: usize,
}

// SAFETY: the mapping outlives all threads, and each page has one writer.
unsafe impl Send for Pages {}

impl Pages {
    fn map(n: usize, huge: bool) -> Self {
        // SAFETY: a new private mapping, of room for alignment too.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                n * PAGE + HUGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "no memory for {n} pages");
        let start = start.cast::<u8>().wrapping_add(start.cast::<u8>().align_offset(HUGE));
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: inside the mapping. Kernels without huge pages refuse, which is fine.
        unsafe { libc::madvise(start.cast(), n * PAGE, advice) };
        Self { start, n }
    }
    /// Fills a page with what the seed says; 0 gives zeros.
    fn fill(self, page: usize, seed: u64) {
        assert!(page < self.n);
        // SAFETY: inside the mapping, aligned, and nobody else writes this page.
        let words = unsafe {
            std::slice::from_raw_parts_mut(self.start.add(page * PAGE).cast::<u64>(), PAGE / 8)
        };
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for word in words {
            *word = x;
            if x != 0 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
        }
    }
    fn read(self, page: usize) -> u8 {
        assert!(page < self.n);
        // SAFETY: inside the mapping.
        unsafe { self.start.add(page * PAGE).read_volatile() }
    }
}

/// What such a process does if the variable is set: holds its memory until its
/// standard input ends, and obeys what comes there.
pub(crate) fn hold_if_asked() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    // SAFETY: asks to die with the parent, so that nothing is left behind.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (mut own, mut pids) = (Vec::new(), vec![std::process::id()]);
    let mut regions = 0;
    let mut fork = false;
    let unique = u64::from(std::process::id()) << 32;
    for word in plan.split_ascii_whitespace() {
        let (what, value) = word.split_once('=').unwrap_or((word, "0"));
        let (n, k) = value.split_once('/').unwrap_or((value, "1"));
        let (n, k): (usize, u64) = (n.parse().expect("a number"), k.parse().expect("a number"));
        let pages = if n > 0 { Some(Pages::map(n, what == "huge")) } else { None };
        regions += u64::from(n > 0);
        match (what, pages) {
            ("own" | "huge", Some(pages)) => {
                (0..n).for_each(|i| pages.fill(i, unique + regions * (1 << 24) + i as u64 + 1));
                own.push(pages);
            }
            ("copies", Some(pages)) => {
                // Contents take turns, so that equal pages lie far apart.
                (0..n).for_each(|i| pages.fill(i, 1 + i as u64 % k));
            }
            ("zero", Some(pages)) => (0..n).for_each(|i| pages.fill(i, 0)),
            ("absent", Some(_)) => {}
            ("read", Some(pages)) => assert!((0..n).all(|i| pages.read(i) == 0)),
            ("volatile", Some(pages)) => change_for_ever(pages),
            // SAFETY: asks for merging; a kernel that can't says so.
            ("merge", None) => unsafe {
                libc::prctl(67, 1, 0, 0, 0);
            },
            ("fork", None) => fork = true,
            _ => panic!("no plan has `{word}`"),
        }
    }
    if fork {
        // SAFETY: the child only makes system calls.
        match unsafe { libc::fork() } {
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            },
            pid => pids.push(u32::try_from(pid).expect("a child")),
        }
    }
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    println!("\nready {}", words.join(" "));
    obey(&own, unique);
    std::process::exit(0);
}

fn obey(own: &[Pages], unique: u64) {
    let mut line = String::new();
    let mut round = 0;
    while std::io::stdin().read_line(&mut line).is_ok_and(|n| n > 0) {
        round += 1;
        let (what, value) = line.trim().split_once(' ').unwrap_or((line.trim(), "0"));
        let n: usize = value.parse().expect("a number");
        match what {
            // Changes so many of its own pages, spread over all of them.
            "write" => {
                let pages = own[0];
                (0..n).for_each(|i| pages.fill(i * pages.n / n, unique + (round << 28) + i as u64));
            }
            "map" => {
                let pages = Pages::map(n, false);
                (0..n).for_each(|i| pages.fill(i, unique + (round << 29) + i as u64));
            }
            "exec" => {
                use std::os::unix::process::CommandExt;
                println!("done");
                let e = Command::new("sleep").arg("1000").exec();
                panic!("sleep: {e}");
            }
            _ => panic!("nobody can `{what}`"),
        }
        println!("done");
        line.clear();
    }
}

fn change_for_ever(pages: Pages) {
    let begun = Arc::new(AtomicU64::new(0));
    let rounds = begun.clone();
    std::thread::spawn(move || {
        let pages = pages;
        loop {
            let round = rounds.fetch_add(1, Ordering::Relaxed);
            for page in 0..pages.n {
                // SAFETY: inside the mapping; only this thread writes it.
                unsafe { pages.start.add(page * PAGE).cast::<u64>().write_volatile(round + 1) };
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    while begun.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
}

/// A process that holds memory; it ends when this is dropped.
pub(crate) struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Its number, then those that it forked.
    pub(crate) pids: Vec<u32>,
}

impl Held {
    /// Starts one and waits until its memory is there. `command` calls
    /// [`hold_if_asked`].
    pub(crate) fn start(mut command: Command, plan: &str) -> Self {
        let mut child = command
            .env(PLAN, plan)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs itself");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut held = Self { child, stdin, stdout, pids: Vec::new() };
        let line = held.line_with("ready ");
        let words = line.split_ascii_whitespace().skip(1);
        held.pids = words.map(|w| w.parse().expect("a number")).collect();
        held
    }

    fn line_with(&mut self, start: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let n = self.stdout.read_line(&mut line).expect("it answers");
            assert!(n > 0, "it ended before it said `{start}`");
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Has it do something, and waits until it is done.
    pub(crate) fn tell(&mut self, order: &str) {
        let stdin = self.stdin.as_mut().expect("it listens");
        writeln!(stdin, "{order}").expect("it listens");
        self.line_with("done");
    }

    /// Ends it now.
    pub(crate) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}
