//! What runs in a process that holds known memory.
//!
//! It must have no memory of its own that ksmd could look at beside what a case maps:
//! after the start nothing is allocated, requests are read and answered from the stack.
//!
//! A request is [`Words`] of 64 bits: for whom, what, and numbers; those that it does not need
//! are 0. For whom is a path of children, the nearest in the lowest [`CHILD_BITS`] bits, each by
//! its place from 1 on: 0 is who reads it. The answer is one word: a number, 0 for none, or
//! below 0 the negative error.
//!
//! | what | numbers | what is done |
//! |---|---|---|
//! | [`MERGE_ANY`] | | `PR_SET_MEMORY_MERGE` |
//! | [`TAKE_OUT`] | FROM BYTES | `MADV_UNMERGEABLE` of what the program itself has |
//! | [`MAP`] | I PAGES FLAGS | map I at its place; flags: 1 mergeable, 2 read only, 4 huge, 8 shared |
//! | [`UNMAP`] | I | |
//! | [`FILL`] | I FIRST N WORD CYCLE | page FIRST + k gets the word of WORD + ((FIRST + k) mod CYCLE) |
//! | [`ZERO`] | I FIRST N | zeroes are written |
//! | [`ADVISE`] | I 0\|1 | `MADV_UNMERGEABLE`, `MADV_MERGEABLE` |
//! | [`FORK`] | | a child that waits for requests; its number |
//! | [`EXIT`] | | |

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
/// A request as it goes down the pipe.
pub(super) type Words = [u64; 7];
/// Bits of a child in a path.
pub(super) const CHILD_BITS: u32 = 5;

pub(super) const MERGE_ANY: u64 = 0;
pub(super) const MAP: u64 = 1;
pub(super) const UNMAP: u64 = 2;
pub(super) const FILL: u64 = 3;
pub(super) const ZERO: u64 = 4;
pub(super) const ADVISE: u64 = 5;
pub(super) const FORK: u64 = 6;
pub(super) const EXIT: u64 = 7;
pub(super) const TAKE_OUT: u64 = 8;

struct Child {
    pid: i32,
    requests: i32,
    answers: i32,
}

/// A process that does what it is told.
struct Puppet {
    /// Pages of each map; 0 where there is none.
    pages: [usize; MAPS],
    children: [Option<Child>; CHILDREN],
    requests: i32,
    answers: i32,
}

/// Obeys requests from standard input until it ends. Call it from the main thread of a
/// program that has no other.
pub fn hold() -> ! {
    // SAFETY: asks to die with the parent, so that nothing is left behind; interrupts
    // are for the parent, which then ends us.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
    let children = [const { None }; CHILDREN];
    Puppet { pages: [0; MAPS], children, requests: 0, answers: 1 }.obey()
}

/// Words from a pipe, where they come as a whole; false at the end of the requests.
fn read(fd: i32, words: &mut [u64]) -> bool {
    // SAFETY: words that are ours.
    let n = unsafe { libc::read(fd, words.as_mut_ptr().cast(), size_of_val(words)) };
    n == size_of_val(words) as isize
}

fn write(fd: i32, words: &[u64]) -> bool {
    // SAFETY: words that are ours, fewer than what a pipe takes at once.
    let n = unsafe { libc::write(fd, words.as_ptr().cast(), size_of_val(words)) };
    n == size_of_val(words) as isize
}

/// A number, or the error that the kernel gave.
type Done = Result<u64, i32>;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Of a call that answers 0 where it went well.
fn done(answer: i32) -> Done {
    if answer == 0 { Ok(0) } else { Err(errno()) }
}

impl Puppet {
    fn obey(mut self) -> ! {
        let mut request: Words = [0; 7];
        while read(self.requests, &mut request) {
            let done = if request[0] == 0 { self.act(request) } else { self.forward(request) };
            let answer = done.unwrap_or_else(|e| i64::from(e).wrapping_neg() as u64);
            if !write(self.answers, &[answer]) || request[..2] == [0, EXIT] {
                break;
            }
        }
        // SAFETY: ends the process; nothing is to be tidied up.
        unsafe { libc::_exit(0) }
    }

    /// A request for a child, and its answer back. Who exits is waited for.
    fn forward(&self, mut request: Words) -> Done {
        let place = request[0] & ((1 << CHILD_BITS) - 1);
        let child = place.checked_sub(1).and_then(|k| self.children.get(k as usize)?.as_ref());
        let child = child.ok_or(libc::ESRCH)?;
        request[0] >>= CHILD_BITS;
        let mut answer = [0];
        if !write(child.requests, &request) || !read(child.answers, &mut answer) {
            return Err(libc::EPIPE);
        }
        if request[..2] == [0, EXIT] {
            // SAFETY: a child of ours; no status is wanted.
            unsafe { libc::waitpid(child.pid, std::ptr::null_mut(), 0) };
        }
        Ok(answer[0])
    }

    fn act(&mut self, [_, what, i, a, b, word, cycle]: Words) -> Done {
        match what {
            MERGE_ANY => merge_any(),
            TAKE_OUT => take_out(i, a),
            MAP => self.map(i as usize, a as usize, b),
            UNMAP => self.unmap(i as usize),
            FILL if cycle > 0 => {
                self.fill(i as usize, a, b, |page| mix(word.wrapping_add(page % cycle)))
            }
            ZERO => self.fill(i as usize, a, b, |_| 0),
            ADVISE => self.advise(i as usize, a != 0),
            FORK => self.fork(),
            EXIT => Ok(0),
            _ => Err(libc::EINVAL),
        }
    }

    fn start(i: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(BASE + i * APART)
    }

    fn map(&mut self, i: usize, pages: usize, flags: u64) -> Done {
        if i >= MAPS || self.pages[i] != 0 || pages == 0 || pages > APART / PAGE / 2 {
            return Err(libc::EINVAL);
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
            return Err(errno());
        }
        if at != Self::start(i) {
            return Err(libc::EEXIST);
        }
        self.pages[i] = pages;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: our own mapping. Kernels without huge pages refuse, which is fine.
        unsafe { libc::madvise(at, pages * PAGE, advice) };
        if mergeable { self.advise(i, true) } else { Ok(0) }
    }

    fn unmap(&mut self, i: usize) -> Done {
        let Some(pages) = self.pages.get(i).copied().filter(|n| *n > 0) else {
            return Err(libc::EINVAL);
        };
        self.pages[i] = 0;
        // SAFETY: our own mapping, to which nobody holds a reference.
        done(unsafe { libc::munmap(Self::start(i), pages * PAGE) })
    }

    fn advise(&mut self, i: usize, mergeable: bool) -> Done {
        let pages = self.pages.get(i).copied().unwrap_or(0);
        let advice = if mergeable { libc::MADV_MERGEABLE } else { libc::MADV_UNMERGEABLE };
        // SAFETY: changes no content. Of a map that is not there the kernel says so.
        done(unsafe { libc::madvise(Self::start(i), pages * PAGE, advice) })
    }

    fn fill(&mut self, i: usize, first: u64, n: u64, word: impl Fn(u64) -> u64) -> Done {
        let pages = self.pages.get(i).copied().unwrap_or(0) as u64;
        if first.checked_add(n).is_none_or(|end| end > pages) {
            return Err(libc::EINVAL);
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
        Ok(0)
    }

    fn fork(&mut self) -> Done {
        let Some(free) = self.children.iter().position(Option::is_none) else {
            return Err(libc::EAGAIN);
        };
        let (mut down, mut up) = ([0; 2], [0; 2]);
        // SAFETY: arrays of two, as the call wants them.
        if unsafe { libc::pipe(down.as_mut_ptr()) != 0 || libc::pipe(up.as_mut_ptr()) != 0 } {
            return Err(errno());
        }
        // SAFETY: one thread; the child goes on in this function with memory of its own.
        match unsafe { libc::fork() } {
            -1 => Err(errno()),
            0 => {
                // SAFETY: as at the start.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::close(down[1]);
                    libc::close(up[0]);
                }
                let children = [const { None }; CHILDREN];
                let (requests, answers) = (down[0], up[1]);
                Puppet { pages: self.pages, children, requests, answers }.obey()
            }
            pid => {
                // SAFETY: the child's ends.
                unsafe {
                    libc::close(down[0]);
                    libc::close(up[1]);
                }
                self.children[free] = Some(Child { pid, requests: down[1], answers: up[0] });
                Ok(pid.unsigned_abs().into())
            }
        }
    }
}

/// `PR_SET_MEMORY_MERGE`.
fn merge_any() -> Done {
    const SET_MEMORY_MERGE: i32 = 67;
    // SAFETY: no pointers.
    done(unsafe { libc::prctl(SET_MEMORY_MERGE, 1, 0, 0, 0) })
}

/// Takes memory out again that the program itself has.
fn take_out(from: u64, bytes: u64) -> Done {
    let at = std::ptr::with_exposed_provenance_mut::<c_void>(from as usize);
    // SAFETY: changes no content. Mappings that can't be merged refuse nothing.
    unsafe { libc::madvise(at, bytes as usize, libc::MADV_UNMERGEABLE) };
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_reach_children_and_their_children() {
        let (mut down, mut up) = ([0; 2], [0; 2]);
        // SAFETY: arrays of two, as the call wants them.
        assert_eq!(unsafe { libc::pipe(down.as_mut_ptr()) | libc::pipe(up.as_mut_ptr()) }, 0);
        // SAFETY: the child goes on with what allocates nothing, and exits there.
        let holder = unsafe { libc::fork() };
        if holder == 0 {
            let children = [const { None }; CHILDREN];
            let (requests, answers) = (down[0], up[1]);
            Puppet { pages: [0; MAPS], children, requests, answers }.obey()
        }
        let tell = |request: Words| {
            let mut answer = [0];
            assert!(write(down[1], &request) && read(up[0], &mut answer), "{request:?}");
            answer[0] as i64
        };
        // The second child of the first, and what is not there.
        let (first, second) = (1, 2 << CHILD_BITS | 1);
        assert_eq!(tell([0, MAP, 3, 5, 0, 0, 0]), 0);
        assert_eq!(tell([0, FILL, 3, 1, 4, 7, 2]), 0);
        let child = tell([0, FORK, 0, 0, 0, 0, 0]);
        assert!(child > 0 && child != i64::from(holder));
        assert_eq!(tell([first, FILL, 3, 0, 5, 1 << 40, u64::MAX]), 0);
        assert!(tell([first, FORK, 0, 0, 0, 0, 0]) > 0 && tell([first, FORK, 0, 0, 0, 0, 0]) > 0);
        assert_eq!(tell([second, UNMAP, 3, 0, 0, 0, 0]), 0);
        assert_eq!(tell([second, UNMAP, 3, 0, 0, 0, 0]), -i64::from(libc::EINVAL));
        assert_eq!(tell([0, FILL, 3, 0, 6, 0, 1]), -i64::from(libc::EINVAL));
        assert_eq!(tell([0, u64::MAX, 0, 0, 0, 0, 0]), -i64::from(libc::EINVAL));
        assert_eq!(tell([2, ZERO, 3, 0, 1, 0, 0]), -i64::from(libc::ESRCH));
        assert_eq!(tell([second, EXIT, 0, 0, 0, 0, 0]), 0);
        assert_eq!(tell([second, ZERO, 3, 0, 1, 0, 0]), -i64::from(libc::EPIPE));
        assert_eq!(tell([0, EXIT, 0, 0, 0, 0, 0]), 0);
        // SAFETY: a child of ours; no status is wanted.
        assert_eq!(unsafe { libc::waitpid(holder, std::ptr::null_mut(), 0) }, holder);
    }
}
