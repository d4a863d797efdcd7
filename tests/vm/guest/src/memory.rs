//! Memory of one's own on a named node, and calls that move pages and ask where
//! they are.

use std::io;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::Outcome;
use crate::asked::Asked;

pub(crate) const PAGE: usize = 4096;

// Numbers of the kernel's interface.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;
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

/// Private anonymous memory in 4 KiB pages, all of them on one node at first.
pub(crate) struct Memory {
    start: NonNull<u8>,
    pages: usize,
}

impl Memory {
    /// `fill(page)` gives each page's contents: eight bytes, repeated.
    pub(crate) fn on(node: usize, pages: usize, fill: impl Fn(usize) -> u64) -> Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(start != libc::MAP_FAILED, "no memory: {}", io::Error::last_os_error());
        let start = NonNull::new(start.cast()).context("memory at address 0")?;
        let memory = Self { start, pages };
        memory.advise(libc::MADV_NOHUGEPAGE).context("MADV_NOHUGEPAGE")?;
        bind_range(start.as_ptr() as usize, pages * PAGE, Some(node)).context("mbind")?;
        for page in 0..pages {
            memory.write(page, fill(page));
        }
        // Where pages go later is the test's affair, not the policy's.
        bind_range(start.as_ptr() as usize, pages * PAGE, None).context("mbind back")?;
        let there = memory.nodes()?;
        ensure!(there.iter().all(|&n| n == node as i32), "bound to node {node}, on {there:?}");
        Ok(memory)
    }

    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: our own mapping; no advice given here drops contents.
        let r = unsafe { libc::madvise(self.start.as_ptr().cast(), self.pages * PAGE, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives a page new contents.
    pub(crate) fn write(&self, page: usize, word: u64) {
        for i in 0..PAGE / 8 {
            // SAFETY: inside of the mapping, aligned, and nobody holds a reference.
            unsafe { self.at(page).cast::<u64>().add(i).write_volatile(word) };
        }
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
        let addresses: Vec<*mut u8> = pages.iter().map(|&page| self.at(page)).collect();
        let to: Option<Vec<i32>> = to.map(|node| vec![node as i32; pages.len()]);
        let mut status = vec![i32::MIN; pages.len()];
        // SAFETY: three arrays of the same length, which outlive the call.
        let r = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
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
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.pages * PAGE) };
    }
}

/// Binds a range of this process's memory to a node, or takes its policy away; moves
/// nothing.
pub(crate) fn bind_range(start: usize, bytes: usize, node: Option<usize>) -> io::Result<()> {
    let mode = if node.is_some() { MPOL_BIND } else { MPOL_DEFAULT };
    let mask = node.map_or(0u64, |node| 1 << node);
    // SAFETY: the mask outlives the call; the kernel reads one bit less than told.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            mode,
            if node.is_some() { &raw const mask } else { ptr::null() },
            if node.is_some() { 65 } else { 0 },
            0,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// Pages moved from every node to every other are there, with their contents.
pub(crate) fn moves(asked: &Asked) -> Result<Outcome> {
    let nodes = asked.nodes.len();
    if nodes < 2 {
        return Ok(Outcome::Skipped("one node: nowhere to move to".to_owned()));
    }
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
    Ok(Outcome::Passed(json!({"pairs": pairs, "pages_each": PAGES})))
}
