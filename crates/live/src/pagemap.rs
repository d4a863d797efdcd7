//! `/proc/PID/pagemap`: its entries, page by page, and `PAGEMAP_SCAN` (Linux 6.7), by which the kernel says
//! which pages are what, in runs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt as _;

/// Bit of an entry of `pagemap`: the page is in memory.
pub const IN_MEMORY: u64 = 1 << 63;
/// Bits of an entry: the frame of a page in memory; 0 to who may not see it.
pub const FRAME: u64 = (1 << 55) - 1;

/// Reads the entries of pages from `first` on into a buffer, eight bytes each: those that there are, which are
/// fewer behind the end of the address space, and none where it has gone.
///
/// # Errors
/// As reading the file.
pub fn entries<'b>(
    pagemap: &File,
    first: u64,
    buffer: &'b mut [u8],
) -> io::Result<impl Iterator<Item = u64> + use<'b>> {
    let mut got = 0;
    while got < buffer.len() {
        match pagemap.read_at(&mut buffer[got..], first * 8 + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(buffer[..got].chunks_exact(8).map(word))
}

/// `struct pm_scan_arg` of the kernel's interface.
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`: a run of pages of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PageRegion {
    /// Address of its first byte.
    pub start: u64,
    /// Address behind its last byte.
    pub end: u64,
    /// Those of [`Query::want`] that hold for its pages.
    pub categories: u64,
}

/// Read and write, type 'f', number 16, size of [`PmScanArg`].
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<PmScanArg>() as u64) << 16 | (b'f' as u64) << 8 | 16;

/// In memory.
pub const PRESENT: u64 = 1 << 3;
/// The shared page of zeros.
pub const PFNZERO: u64 = 1 << 5;
/// Part of a huge page that is mapped as a whole.
pub const HUGE: u64 = 1 << 6;
/// Written since soft-dirty was last cleared.
pub const SOFT_DIRTY: u64 = 1 << 7;

/// What to look for.
#[derive(Clone, Copy, Default)]
pub struct Query {
    /// Categories whose absence is meant in `mask` and `any`.
    pub inverted: u64,
    /// Categories that must all hold; none: every page that is not wholly absent.
    pub mask: u64,
    /// Categories of which one must hold, if there are any here.
    pub any: u64,
    /// Categories to be told.
    pub want: u64,
}

/// Calls `each` for every run of pages that match, by rising address.
///
/// * `range` – addresses, multiples of the page size.
///
/// # Errors
/// ENOTTY on kernels without it. A process that is gone is no error: it has no pages.
pub fn scan(
    pagemap: RawFd,
    range: Range<u64>,
    query: Query,
    mut each: impl FnMut(PageRegion),
) -> io::Result<()> {
    let mut found = [PageRegion::default(); 256];
    let mut arg = PmScanArg {
        size: size_of::<PmScanArg>() as u64,
        start: range.start,
        end: range.end,
        vec: found.as_mut_ptr() as u64,
        vec_len: found.len() as u64,
        category_inverted: query.inverted,
        category_mask: query.mask,
        category_anyof_mask: query.any,
        return_mask: query.want,
        ..PmScanArg::default()
    };
    while arg.start < range.end {
        // SAFETY: the argument names our array with its true length, and both
        // outlive the call; the kernel reads page tables.
        let r = unsafe { libc::ioctl(pagemap, PAGEMAP_SCAN as _, &mut arg) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        found[..r as usize].iter().copied().for_each(&mut each);
        if arg.walk_end <= arg.start {
            break;
        }
        arg.start = arg.walk_end;
    }
    Ok(())
}
