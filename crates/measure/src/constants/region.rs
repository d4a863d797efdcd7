//! Anonymous memory to measure on: mapped, advised, bound to a node, and given
//! back when dropped.

use homenode_core::units::{NodeId, PAGE_SIZE};
use homenode_live::places::call;
use homenode_live::text::addresses;
use std::io;
use std::ptr::{self, NonNull};

/// Bytes of a huge page, to which regions are aligned.
const HUGE: usize = 2 << 20;
/// This process, to a call that takes a process' number.
pub(super) const OURS: u32 = 0;
/// `MPOL_BIND` of the kernel's interface: allocate on these nodes only.
const MPOL_BIND: libc::c_int = 2;

/// Which pages a region wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// 4 KiB only.
    Base,
    /// 2 MiB where the kernel has them.
    Huge,
}

/// A mapping of private anonymous memory, readable and writable.
pub(crate) struct Region {
    map: NonNull<u8>,
    map_len: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is plain memory owned by one value; threads that share it
// for a while go through raw pointers to parts that do not overlap.
unsafe impl Send for Region {}

impl Region {
    /// Maps `len` bytes (rounded up to 2 MiB), bound to `node` if one is named.
    /// Nothing is touched. Children do not inherit it unless `inherit`: a fork
    /// would write-protect it.
    pub(crate) fn map(
        len: usize,
        kind: PageKind,
        node: Option<NodeId>,
        inherit: bool,
    ) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(HUGE);
        let map_len = len + HUGE;
        let map = map_anonymous(map_len)?;
        let skip = map.as_ptr().align_offset(HUGE);
        // SAFETY: `skip` is below HUGE, and the mapping is HUGE longer than `len`.
        let start = unsafe { map.add(skip) };
        let region = Self { map, map_len, start, len };
        let advice = match kind {
            PageKind::Base => libc::MADV_NOHUGEPAGE,
            PageKind::Huge => libc::MADV_HUGEPAGE,
        };
        // A kernel without huge pages refuses both: then pages are small anyway.
        let _ = region.advise(advice);
        if !inherit {
            let _ = region.advise(libc::MADV_DONTFORK);
        }
        if let Some(node) = node {
            region.bind(node)?;
        }
        Ok(region)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    pub(crate) fn pages(&self) -> usize {
        self.len / PAGE_SIZE as usize
    }
    /// First byte of page `i`.
    pub(crate) fn page(&self, i: usize) -> *mut u8 {
        assert!(i < self.pages());
        // SAFETY: just checked to be inside the mapping.
        unsafe { self.start().add(i * PAGE_SIZE as usize) }
    }
    /// A byte at `offset`.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        // SAFETY: just checked to be inside the mapping.
        unsafe { self.start().add(offset) }
    }

    /// Writes a byte into each of the first `pages` pages.
    pub(crate) fn touch(&self, pages: usize) {
        self.touch_range(0..pages.min(self.pages()));
    }

    /// Writes a byte into each page of the range.
    pub(crate) fn touch_range(&self, pages: std::ops::Range<usize>) {
        for i in pages {
            // SAFETY: the page is inside the mapping, which is writable, and
            // nobody else holds a reference into it.
            unsafe { self.page(i).write_volatile(1) };
        }
    }

    /// `madvise` on the whole region.
    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        self.advise_part(0, self.len, advice)
    }

    /// `madvise` on a part.
    pub(crate) fn advise_part(
        &self,
        offset: usize,
        len: usize,
        advice: libc::c_int,
    ) -> io::Result<()> {
        assert!(offset + len <= self.len);
        // SAFETY: the range lies in our own mapping; no reference into it exists,
        // so that contents may go (MADV_DONTNEED).
        let r = unsafe { libc::madvise(self.start().add(offset).cast(), len, advice) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// `mprotect` on the whole region.
    pub(crate) fn protect(&self, prot: libc::c_int) -> io::Result<()> {
        // SAFETY: our own mapping; callers make it accessible again before use.
        let r = unsafe { libc::mprotect(self.start().cast(), self.len, prot) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn bind(&self, node: NodeId) -> io::Result<()> {
        let mut mask = vec![0u64; node.index() / 64 + 1];
        mask[node.index() / 64] = 1 << (node.index() % 64);
        // SAFETY: the range is our mapping, and the mask outlives the call. The
        // kernel reads one bit less than `maxnode` says, hence the addition.
        let r = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start(),
                self.len,
                MPOL_BIND,
                mask.as_ptr(),
                mask.len() * 64 + 1,
                0,
            )
        };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many of up to 64 touched pages, spread over the region, lie on
    /// `node`: (on it, asked). `None` where the kernel does not tell.
    pub(crate) fn placed_on(&self, node: NodeId) -> Option<(usize, usize)> {
        let step = (self.pages() / 64).max(1);
        let pages: Vec<usize> =
            (0..self.pages()).step_by(step).map(|i| self.page(i) as usize).collect();
        let mut status = Vec::new();
        call::query(OURS, &pages, &mut status).ok()?;
        Some((status.iter().filter(|&&s| s == i32::from(node.0)).count(), pages.len()))
    }

    /// Bytes of the region in huge pages, as `/proc/self/smaps` has them.
    pub(crate) fn huge_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let from = self.start() as u64;
        let to = from + self.len as u64;
        let mut inside = false;
        let mut kib = 0;
        for line in text.lines() {
            if let Some((lo, hi)) = addresses(line) {
                inside = lo < to && from < hi;
            } else if let Some(v) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
                kib += v.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
            }
        }
        Some((kib * 1024).min(self.len as u64))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any longer.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}

fn map_anonymous(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let p = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(p.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_bound_to_a_node_are_there() {
        let here = NodeId(0);
        // A kernel without NUMA, or a sandbox, refuses: then there is nothing to see.
        let Ok(region) = Region::map(2 << 20, PageKind::Base, Some(here), false) else { return };
        region.touch(region.pages());
        if let Some((on, asked)) = region.placed_on(here) {
            assert_eq!((on, asked), (64, 64));
            assert_eq!(region.placed_on(NodeId(999)), Some((0, 64)));
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        assert!(Region::map(2 << 20, PageKind::Base, Some(NodeId(999)), false).is_err());
    }

    #[test]
    fn regions_are_aligned_and_zeroed() {
        let region = Region::map(1, PageKind::Huge, None, false).unwrap();
        assert_eq!((region.start() as usize % HUGE, region.len(), region.pages()), (0, HUGE, 512));
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { region.at(HUGE - 1).read() }, 0);
        assert!(region.huge_bytes().is_some_and(|b| b <= HUGE as u64));
    }

    #[test]
    fn lines_of_smaps() {
        assert_eq!(addresses("1000-3000 rw-p 0 00:00 0 [heap]"), Some((0x1000, 0x3000)));
        assert_eq!(addresses("AnonHugePages:      2048 kB"), None);
    }
}
