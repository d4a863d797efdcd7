//! What runs in a process that holds known memory.
//!
//! It must have no memory of its own that ksmd could look at beside what a case maps:
//! after the start nothing is allocated, orders are read and answered from the stack.
//!
//! An order is a line, the answer is one too: `ok`, `ok NUMBER` or `error ERRNO`.
//!
//! | order | what is done |
//! |---|---|
//! | `merge_any` | `PR_SET_MEMORY_MERGE`, then all that is there is taken out again |
//! | `map I PAGES FLAGS` | map I at its place; flags: 1 mergeable, 2 read only, 4 huge, 8 shared |
//! | `unmap I` | |
//! | `fill I FIRST N WORD STEP CYCLE` | page FIRST + k gets the word of WORD + STEP · ((FIRST + k) mod CYCLE) |
//! | `zero I FIRST N` | zeroes are written |
//! | `advise I 0\|1` | `MADV_UNMERGEABLE`, `MADV_MERGEABLE` |
//! | `fork` | a child that waits for orders; its number |
//! | `exit` | |
//! | `>K ORDER` | the K-th child does that |

use homenode_core::splitmix::mix;
use std::ffi::c_void;

/// Most maps of a process.
pub const MAPS: usize = 16;
/// Most children of a process.
const CHILDREN: usize = 16;
const PAGE: usize = 4096;
/// Where map 0 lies: far from all that a program has, each next one higher, as in simulation.
const BASE: usize = 0x1000_0000_0000;
/// From one map to the next.
const APART: usize = 1 << 34;
const LINE: usize = 256;

struct Child {
    pid: i32,
    orders: i32,
    answers: i32,
}

struct Process {
    /// Pages of each map; 0 where there is none.
    pages: [usize; MAPS],
    children: [Option<Child>; CHILDREN],
    orders: i32,
    answers: i32,
}

/// Obeys orders from standard input until it ends. Call it from the main thread of a
/// program that has no other.
pub fn hold() -> ! {
    // SAFETY: asks to die with the parent, so that nothing is left behind; interrupts
    // are for the parent, which then ends us.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
    let children = [const { None }; CHILDREN];
    Process { pages: [0; MAPS], children, orders: 0, answers: 1 }.obey()
}

/// A line without its end; `None` at the end of the orders.
fn line(fd: i32, into: &mut [u8; LINE]) -> Option<usize> {
    let mut n = 0;
    loop {
        let at = into.get_mut(n)?;
        // SAFETY: one byte that is ours.
        if unsafe { libc::read(fd, std::ptr::from_mut(at).cast(), 1) } != 1 {
            return None;
        }
        if into[n] == b'\n' {
            return Some(n);
        }
        n += 1;
    }
}

fn write(fd: i32, bytes: &[u8]) -> bool {
    // SAFETY: bytes that are ours. A line is shorter than what a pipe takes at once.
    let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    n == bytes.len() as isize
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `head NUMBER\n`, made without allocating.
fn answer(fd: i32, head: &[u8], number: u64) -> bool {
    let mut text = [b' '; 40];
    text[..head.len()].copy_from_slice(head);
    let mut digits = 1;
    while digits < 20 && number >= 10u64.pow(digits) {
        digits += 1;
    }
    let mut rest = number;
    let end = head.len() + 1 + digits as usize;
    for at in (head.len() + 1..end).rev() {
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text[end] = b'\n';
    write(fd, &text[..=end])
}

fn number(word: &[u8]) -> Option<u64> {
    let digit = |n: Option<u64>, c: &u8| {
        let d = c.checked_sub(b'0').filter(|d| *d < 10)?;
        n?.checked_mul(10)?.checked_add(d.into())
    };
    (!word.is_empty()).then(|| word.iter().fold(Some(0), digit))?
}

/// The numbers of an order, and how many there are.
fn numbers(text: &[u8]) -> Option<([u64; 6], usize)> {
    let (mut found, mut n) = ([0; 6], 0);
    for word in text.split(|c| *c == b' ').filter(|w| !w.is_empty()) {
        *found.get_mut(n)? = number(word)?;
        n += 1;
    }
    Some((found, n))
}

/// What an order comes to.
enum Done {
    Ok,
    Number(u64),
    Errno(i32),
}

impl Process {
    fn obey(mut self) -> ! {
        let mut text = [0; LINE];
        while let Some(n) = line(self.orders, &mut text) {
            let order = &text[..n];
            if let Some(rest) = order.strip_prefix(b">") {
                self.forward(rest);
                continue;
            }
            let end = order.iter().position(|c| *c == b' ').unwrap_or(n);
            let (what, rest) = order.split_at(end);
            let done = match numbers(rest) {
                Some((n, count)) => self.act(what, &n[..count]),
                None => Done::Errno(libc::EINVAL),
            };
            let told = match done {
                Done::Ok => write(self.answers, b"ok\n"),
                Done::Number(n) => answer(self.answers, b"ok", n),
                Done::Errno(e) => answer(self.answers, b"error", e.unsigned_abs().into()),
            };
            if !told || what == b"exit" {
                break;
            }
        }
        // SAFETY: ends the process; nothing is to be tidied up.
        unsafe { libc::_exit(0) }
    }

    /// An order for a child, and its answer back. Who exits is waited for.
    fn forward(&mut self, rest: &[u8]) {
        let end = rest.iter().position(|c| *c == b' ').unwrap_or(rest.len());
        let child = number(&rest[..end]).and_then(|k| self.children.get(k as usize)?.as_ref());
        let Some(child) = child else {
            answer(self.answers, b"error", libc::ESRCH as u64);
            return;
        };
        let order = rest.get(end + 1..).unwrap_or_default();
        let mut text = [0; LINE];
        let told = write(child.orders, order) && write(child.orders, b"\n");
        let Some(n) = line(child.answers, &mut text).filter(|_| told) else {
            answer(self.answers, b"error", libc::EPIPE as u64);
            return;
        };
        if order == b"exit" {
            // SAFETY: a child of ours; no status is wanted.
            unsafe { libc::waitpid(child.pid, std::ptr::null_mut(), 0) };
        }
        text[n] = b'\n';
        write(self.answers, &text[..=n]);
    }

    fn act(&mut self, what: &[u8], n: &[u64]) -> Done {
        match (what, n) {
            (b"merge_any", []) => merge_any(),
            (b"map", &[i, pages, flags]) => self.map(i as usize, pages as usize, flags),
            (b"unmap", &[i]) => self.unmap(i as usize),
            (b"fill", &[i, first, n, word, step, cycle]) if cycle > 0 => {
                let of = |page: u64| mix(word.wrapping_add(step.wrapping_mul(page % cycle)));
                self.fill(i as usize, first, n, of)
            }
            (b"zero", &[i, first, n]) => self.fill(i as usize, first, n, |_| 0),
            (b"advise", &[i, on]) => self.advise(i as usize, on != 0),
            (b"fork", []) => self.fork(),
            (b"exit", []) => Done::Ok,
            _ => Done::Errno(libc::EINVAL),
        }
    }

    fn start(i: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(BASE + i * APART)
    }

    fn map(&mut self, i: usize, pages: usize, flags: u64) -> Done {
        if i >= MAPS || self.pages[i] != 0 || pages == 0 || pages > APART / PAGE / 2 {
            return Done::Errno(libc::EINVAL);
        }
        let (mergeable, read_only, huge, shared) =
            (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0, flags & 8 != 0);
        let protection = if read_only { 0 } else { libc::PROT_WRITE } | libc::PROT_READ;
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        // SAFETY: a new mapping where nothing is, else the kernel refuses.
        let at = unsafe {
            libc::mmap(
                Self::start(i),
                pages * PAGE,
                protection,
                kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Done::Errno(errno());
        }
        if at != Self::start(i) {
            return Done::Errno(libc::EEXIST);
        }
        self.pages[i] = pages;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: our own mapping. Kernels without huge pages refuse, which is fine.
        unsafe { libc::madvise(at, pages * PAGE, advice) };
        if mergeable { self.advise(i, true) } else { Done::Ok }
    }

    fn unmap(&mut self, i: usize) -> Done {
        let Some(pages) = self.pages.get(i).copied().filter(|n| *n > 0) else {
            return Done::Errno(libc::EINVAL);
        };
        self.pages[i] = 0;
        // SAFETY: our own mapping, to which nobody holds a reference.
        match unsafe { libc::munmap(Self::start(i), pages * PAGE) } {
            0 => Done::Ok,
            _ => Done::Errno(errno()),
        }
    }

    fn advise(&mut self, i: usize, mergeable: bool) -> Done {
        let pages = self.pages.get(i).copied().unwrap_or(0);
        let advice = if mergeable { libc::MADV_MERGEABLE } else { libc::MADV_UNMERGEABLE };
        // SAFETY: changes no content. Of a map that is not there the kernel says so.
        match unsafe { libc::madvise(Self::start(i), pages * PAGE, advice) } {
            0 => Done::Ok,
            _ => Done::Errno(errno()),
        }
    }

    fn fill(&mut self, i: usize, first: u64, n: u64, word: impl Fn(u64) -> u64) -> Done {
        let pages = self.pages.get(i).copied().unwrap_or(0) as u64;
        if first.checked_add(n).is_none_or(|end| end > pages) {
            return Done::Errno(libc::EINVAL);
        }
        for page in first..first + n {
            let at = Self::start(i).wrapping_byte_add(page as usize * PAGE).cast::<u64>();
            let mut x = word(page);
            for k in 0..PAGE / 8 {
                // SAFETY: inside our own mapping, aligned; nobody else looks at it here.
                // Volatile: a page of zeroes is written, too.
                unsafe { at.wrapping_add(k).write_volatile(x.to_be()) };
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
            }
        }
        Done::Ok
    }

    fn fork(&mut self) -> Done {
        let Some(free) = self.children.iter().position(Option::is_none) else {
            return Done::Errno(libc::EAGAIN);
        };
        let (mut down, mut up) = ([0; 2], [0; 2]);
        // SAFETY: arrays of two, as the call wants them.
        if unsafe { libc::pipe(down.as_mut_ptr()) != 0 || libc::pipe(up.as_mut_ptr()) != 0 } {
            return Done::Errno(errno());
        }
        // SAFETY: one thread; the child goes on in this function with memory of its own.
        match unsafe { libc::fork() } {
            -1 => Done::Errno(errno()),
            0 => {
                // SAFETY: as at the start.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::close(down[1]);
                    libc::close(up[0]);
                }
                let children = [const { None }; CHILDREN];
                let (orders, answers) = (down[0], up[1]);
                Process { pages: self.pages, children, orders, answers }.obey()
            }
            pid => {
                // SAFETY: the child's ends.
                unsafe {
                    libc::close(down[0]);
                    libc::close(up[1]);
                }
                self.children[free] = Some(Child { pid, orders: down[1], answers: up[0] });
                Done::Number(pid.unsigned_abs().into())
            }
        }
    }
}

/// `PR_SET_MEMORY_MERGE`; then what the program itself has is taken out again, so that
/// only what is mapped from now on may be merged.
fn merge_any() -> Done {
    const SET_MEMORY_MERGE: i32 = 67;
    // The map of a small program has a few thousand bytes.
    let mut text = [0u8; 1 << 15];
    // SAFETY: no pointers.
    if unsafe { libc::prctl(SET_MEMORY_MERGE, 1, 0, 0, 0) } != 0 {
        return Done::Errno(errno());
    }
    let mut n = 0;
    // SAFETY: a path that ends in a zero, and a buffer of ours.
    unsafe {
        let fd = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        while fd >= 0 && n < text.len() {
            match libc::read(fd, text[n..].as_mut_ptr().cast(), text.len() - n) {
                k if k > 0 => n += k as usize,
                _ => break,
            }
        }
        libc::close(fd);
    }
    if n == 0 || n == text.len() {
        return Done::Errno(libc::E2BIG);
    }
    for l in text[..n].split(|c| *c == b'\n') {
        let hex = |word: &[u8]| {
            word.iter().try_fold(0usize, |x, c| {
                Some(x.checked_mul(16)? + (*c as char).to_digit(16)? as usize)
            })
        };
        let range = l.split(|c| *c == b' ').next().unwrap_or_default();
        let mut ends = range.split(|c| *c == b'-').map(hex);
        let (Some(Some(low)), Some(Some(high))) = (ends.next(), ends.next()) else { continue };
        // SAFETY: changes no content. Mappings that can't be merged refuse nothing.
        unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<c_void>(low);
            libc::madvise(at, high.saturating_sub(low), libc::MADV_UNMERGEABLE);
        }
    }
    Done::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"18446744073709551616", b"-1", b"1x", b" 1"] {
            assert_eq!(number(wrong), None);
        }
        assert_eq!(numbers(b" 1  22 3"), Some(([1, 22, 3, 0, 0, 0], 3)));
        assert_eq!(numbers(b" 1 2 3 4 5 6 7"), None);
        let mut ends = [0; 2];
        // SAFETY: an array of two, as the call wants it.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        for (n, told) in
            [(0, "ok 0"), (9, "ok 9"), (10, "ok 10"), (u64::MAX, "ok 18446744073709551615")]
        {
            assert!(answer(ends[1], b"ok", n));
            let mut text = [0; LINE];
            let len = line(ends[0], &mut text).unwrap();
            assert_eq!(std::str::from_utf8(&text[..len]), Ok(told));
        }
    }
}
