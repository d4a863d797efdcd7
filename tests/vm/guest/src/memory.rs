//! Memory of one's own on a named node, and calls that move pages and ask where
//! they are.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::asked::Asked;
use crate::{TestResult, needs};

pub(crate) const PAGE: usize = 4096;

// Numbers of the kernel's interface.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;
/// With MPOL_BIND: hint faults are taken (since 5.15 for mbind).
const MPOL_F_NUMA_BALANCING: libc::c_int = 1 << 13;
const MPOL_LOCAL: libc::c_int = 4;
const MPOL_MF_MOVE: libc::c_int = 1 << 1;
const MPOL_MF_MOVE_ALL: libc::c_int = 1 << 2;

/// Which pages may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those that this process alone maps.
    Own,
    /// Also those that are mapped several times; needs CAP_SYS_NICE.
    All,
}

/// Pages behind one's memory that nobody can touch, so that nothing else lies there.
const GUARD: usize = 1024;

/// Private anonymous memory in 4 KiB pages, all of them on one node at first.
pub(crate) struct Memory {
    start: NonNull<u8>,
    pages: usize,
}

impl Memory {
    /// `fill(page)` gives each page's contents: eight bytes, repeated.
    pub(crate) fn on(node: usize, pages: usize, fill: impl Fn(usize) -> u64) -> Result<Self> {
        Self::advised(node, pages, libc::MADV_NOHUGEPAGE, fill)
    }

    /// As [`Memory::on`], in pages of the size that the advice brings.
    pub(crate) fn advised(
        node: usize,
        pages: usize,
        advice: libc::c_int,
        fill: impl Fn(usize) -> u64,
    ) -> Result<Self> {
        let memory = Self::reserve(pages).context("no memory")?;
        memory.advise(advice).context("madvise")?;
        memory.bound(node, |page| memory.write(page, fill(page)))?;
        let there = memory.nodes()?;
        ensure!(there.iter().all(|&n| n == node as i32), "bound to node {node}, on {there:?}");
        Ok(memory)
    }

    /// Lets `touch` use each page while all are bound to the node. Where they go later is
    /// the test's affair, not the policy's.
    pub(crate) fn bound(&self, node: usize, touch: impl Fn(usize)) -> Result<()> {
        self.policy(MPOL_BIND, Some(node)).context("mbind")?;
        (0..self.pages).for_each(touch);
        self.policy(MPOL_DEFAULT, None).context("mbind back")
    }

    /// Memory on a node as far as there is room, and beyond it elsewhere.
    pub(crate) fn preferring(node: usize, pages: usize) -> Result<Self> {
        let memory = Self::reserve(pages).context("no memory")?;
        memory.advise(libc::MADV_NOHUGEPAGE).context("MADV_NOHUGEPAGE")?;
        memory.policy(MPOL_PREFERRED, Some(node)).context("mbind")?;
        (0..pages).for_each(|page| memory.touch(page));
        Ok(memory)
    }

    /// Memory of which nothing is touched yet, on a huge page's boundary.
    pub(crate) fn reserve(pages: usize) -> io::Result<Self> {
        const HUGE: usize = 2 << 20;
        let bytes = pages * PAGE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = bytes + GUARD * PAGE + HUGE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), all, libc::PROT_NONE, kind, -1, 0) };
        let Some(start) = NonNull::new(start).filter(|s| s.as_ptr() != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        let skip = start.as_ptr() as usize;
        let skip = skip.next_multiple_of(HUGE) - skip;
        // SAFETY: still inside of what was mapped, by the room added for it.
        let start = unsafe { start.cast::<u8>().add(skip) };
        let modes = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the same; what is around it stays shut.
        let r = unsafe { libc::mprotect(start.as_ptr().cast(), bytes, modes) };
        if r == 0 { Ok(Self { start, pages }) } else { Err(io::Error::last_os_error()) }
    }

    /// Number of its first page.
    pub(crate) fn first(&self) -> u64 {
        self.start.as_ptr() as u64 / PAGE as u64
    }

    /// Ties some pages to a node; those that are elsewhere stay there.
    pub(crate) fn bind(&self, pages: Range<usize>, node: usize) -> io::Result<()> {
        assert!(pages.start < pages.end && pages.end <= self.pages);
        policy(self.at(pages.start), pages.len(), MPOL_BIND, Some(node))
    }

    /// The same, and balancing samples them.
    pub(crate) fn tie(&self, pages: Range<usize>, node: usize) -> io::Result<()> {
        assert!(pages.start < pages.end && pages.end <= self.pages);
        let mode = MPOL_BIND | MPOL_F_NUMA_BALANCING;
        policy(self.at(pages.start), pages.len(), mode, Some(node))
    }

    /// Where a page is.
    pub(crate) fn address(&self, page: usize) -> usize {
        self.at(page) as usize
    }

    /// Writes one word of a page.
    pub(crate) fn write_one(&self, page: usize, word: u64) {
        // SAFETY: inside of the mapping, aligned; other threads write to it by the same means.
        unsafe { AtomicU64::from_ptr(self.at(page).cast()) }.store(word, Ordering::Relaxed);
    }

    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: our own mapping; no advice given here drops contents.
        let r = unsafe { libc::madvise(self.start.as_ptr().cast(), self.pages * PAGE, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Some pages hold nothing any more.
    pub(crate) fn give_back(&self, pages: Range<usize>) -> io::Result<()> {
        assert!(pages.start < pages.end && pages.end <= self.pages);
        let at = self.at(pages.start).cast();
        // SAFETY: our own mapping, inside of it; nobody holds a reference.
        let r = unsafe { libc::madvise(at, pages.len() * PAGE, libc::MADV_DONTNEED) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn policy(&self, mode: libc::c_int, node: Option<usize>) -> io::Result<()> {
        policy(self.start.as_ptr(), self.pages, mode, node)
    }

    /// Gives a page new contents.
    pub(crate) fn write(&self, page: usize, word: u64) {
        for i in 0..PAGE / 8 {
            // SAFETY: inside of the mapping, aligned, and nobody holds a reference.
            unsafe { self.at(page).cast::<u64>().add(i).write_volatile(word) };
        }
    }

    /// Touches a page.
    pub(crate) fn touch(&self, page: usize) {
        // SAFETY: inside of the mapping, and nobody holds a reference.
        unsafe { self.at(page).write_volatile(1) };
    }

    /// Reads a word of a page.
    pub(crate) fn read(&self, page: usize) {
        // SAFETY: inside of the mapping, and nobody holds a reference.
        unsafe { self.at(page).cast::<u64>().read_volatile() };
    }

    /// Whether a page still holds what was written.
    pub(crate) fn holds(&self, page: usize, word: u64) -> bool {
        // SAFETY: as above.
        (0..PAGE / 8).all(|i| unsafe { self.at(page).cast::<u64>().add(i).read_volatile() } == word)
    }

    fn at(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        // SAFETY: just checked to be inside of the mapping.
        unsafe { self.start.as_ptr().add(page * PAGE) }
    }

    /// Each page's node, or a negative errno.
    pub(crate) fn nodes(&self) -> Result<Vec<i32>> {
        let pages: Vec<_> = (0..self.pages).collect();
        self.call(&pages, None, MPOL_MF_MOVE).context("move_pages asked where pages are")
    }

    /// Asks for some pages to be moved; each one's node then, or a negative errno.
    pub(crate) fn move_to(&self, pages: &[usize], to: usize, whose: Whose) -> Result<Vec<i32>> {
        let flag = if whose == Whose::All { MPOL_MF_MOVE_ALL } else { MPOL_MF_MOVE };
        self.call(pages, Some(to), flag).with_context(|| format!("move_pages to node {to}"))
    }

    fn call(&self, pages: &[usize], to: Option<usize>, flag: libc::c_int) -> io::Result<Vec<i32>> {
        let addresses: Vec<usize> = pages.iter().map(|&page| self.at(page) as usize).collect();
        move_pages(0, &addresses, to, flag)
    }
}

/// Each page's node, or a negative errno, of any process.
pub(crate) fn nodes_of(pid: u32, pages: Range<u64>) -> io::Result<Vec<i32>> {
    let addresses: Vec<usize> = pages.map(|page| page as usize * PAGE).collect();
    move_pages(pid, &addresses, None, 0)
}

fn move_pages(
    pid: u32,
    addresses: &[usize],
    to: Option<usize>,
    flag: libc::c_int,
) -> io::Result<Vec<i32>> {
    let to: Option<Vec<i32>> = to.map(|node| vec![node as i32; addresses.len()]);
    let mut status = vec![i32::MIN; addresses.len()];
    // SAFETY: three arrays of the same length, which outlive the call.
    let r = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            to.as_ref().map_or(ptr::null(), |nodes| nodes.as_ptr()),
            status.as_mut_ptr(),
            flag,
        )
    };
    // A positive number counts pages that stayed; their status says why.
    if r >= 0 { Ok(status) } else { Err(io::Error::last_os_error()) }
}

fn policy(start: *mut u8, pages: usize, mode: libc::c_int, node: Option<usize>) -> io::Result<()> {
    let mask = node.map_or(0u64, |node| 1 << node);
    // SAFETY: the mask outlives the call; the kernel reads one bit less than told.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            pages * PAGE,
            mode,
            if node.is_some() { &raw const mask } else { ptr::null() },
            if node.is_some() { 65 } else { 0 },
            0,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// SAFETY: it is a mapping, which all threads see alike; several threads use it by atomics.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), (self.pages + GUARD) * PAGE) };
    }
}

/// Gives this task the policy `MPOL_LOCAL`: with one of its own, whatever it is,
/// balancing leaves its memory alone. Children inherit it.
pub(crate) fn task_policy_local() -> io::Result<()> {
    set_task_policy(MPOL_LOCAL)
}

/// Takes this task's policy away.
pub(crate) fn task_policy_default() -> io::Result<()> {
    set_task_policy(MPOL_DEFAULT)
}

fn set_task_policy(mode: libc::c_int) -> io::Result<()> {
    // SAFETY: these modes take no mask.
    let r = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, ptr::null::<u64>(), 0) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the CPU forget the translations that it keeps, as happens all the time where more
/// than one program runs. An emulated CPU that runs nothing else keeps all of them, and
/// while it does it sets no page's accessed bit again: DAMON then sees nothing.
pub(crate) struct Forget(Memory);

impl Forget {
    /// More than the kernel would invalidate one by one (33).
    const PAGES: usize = 64;

    pub(crate) fn new() -> Result<Self> {
        let memory = Memory::reserve(Self::PAGES).context("no memory")?;
        memory.advise(libc::MADV_NOHUGEPAGE).context("MADV_NOHUGEPAGE")?;
        Ok(Self(memory))
    }

    pub(crate) fn all(&self) {
        (0..Self::PAGES).for_each(|page| self.0.touch(page));
        // Giving them back is what counts; a failure only leaves translations as they are.
        let _ = self.0.advise(libc::MADV_DONTNEED);
    }
}

/// Pages moved from every node to every other are there, with their contents.
pub(crate) fn moves(asked: &Asked) -> TestResult {
    let nodes = asked.nodes.len();
    needs(nodes >= 2, "one node: nowhere to move to")?;
    const PAGES: usize = 64;
    let all: Vec<usize> = (0..PAGES).collect();
    let mut pairs = 0;
    for from in 0..nodes {
        for to in (0..nodes).filter(|&to| to != from) {
            let word = |page: usize| 0x1234_0000 + page as u64;
            let memory = Memory::on(from, PAGES, word)?;
            let status = memory.move_to(&all, to, Whose::Own)?;
            ensure!(status.iter().all(|&s| s == to as i32), "from node {from} to {to}: {status:?}");
            let there = memory.nodes()?;
            ensure!(there == status, "moved to node {to}, but now on {there:?}");
            for page in 0..PAGES {
                ensure!(memory.holds(page, word(page)), "page {page} lost its contents");
            }
            pairs += 1;
        }
    }
    Ok(json!({"pairs": pairs, "pages_each": PAGES}))
}
