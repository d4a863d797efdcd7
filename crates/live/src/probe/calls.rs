//! System calls that tell what the files don't. None changes anything: events are
//! opened switched off and closed at once, page tables are read.

use super::event::{Event, On, open_group};
use crate::pagemap::{self, PRESENT, Query};
use crate::places::call;
use perf_event::SampleFlag;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// What is asked by calls; `None` each time if it isn't asked, as for files of another
/// machine.
pub trait Calls {
    /// Opens events as one group, the first leading, and closes them; the error number of
    /// the first that failed.
    fn perf_open(&self, _group: &[Event]) -> Option<Result<(), i32>> {
        None
    }
    /// Whether `PAGEMAP_SCAN` is answered for a page of our own, else its error number.
    fn pagemap_scan(&self) -> Option<Result<(), i32>> {
        None
    }
    /// Whether a page that was just written reads as soft-dirty.
    fn soft_dirty(&self) -> Option<bool> {
        None
    }
    /// Whether `move_pages(2)` tells the node of a page of our own, else its error number.
    fn page_query(&self) -> Option<Result<(), i32>> {
        None
    }
    /// Soft and hard `RLIMIT_MEMLOCK` in bytes; `u64::MAX` is none.
    fn memlock(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Nothing is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesOnly;

impl Calls for FilesOnly {}

/// The kernel that runs us.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisKernel;

/// A page that is in memory and was written since it was mapped.
fn own_page() -> Vec<u8> {
    let page = homenode_core::units::PAGE_SIZE as usize;
    // Two, so that one is whole wherever the allocator put them.
    let mut bytes = vec![1_u8; 2 * page];
    std::hint::black_box(&mut bytes);
    bytes
}

fn whole_page(bytes: &[u8]) -> u64 {
    (bytes.as_ptr() as u64).next_multiple_of(homenode_core::units::PAGE_SIZE)
}

impl Calls for ThisKernel {
    fn perf_open(&self, group: &[Event]) -> Option<Result<(), i32>> {
        // SAFETY: no arguments.
        let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        // Those that sample are opened as they are used: for all processes of a CPU.
        let samples = group.iter().any(|e| e.period > 0);
        let on = if samples { On::Cpu(cpu) } else { On::Thread(0) };
        // An interface that is younger than the kernel is the only error without a number.
        let number = |e: io::Error| e.raw_os_error().unwrap_or(libc::E2BIG);
        Some(open_group(group, SampleFlag::empty(), on, 0).map(drop).map_err(number))
    }
    fn pagemap_scan(&self) -> Option<Result<(), i32>> {
        let bytes = own_page();
        let at = whole_page(&bytes);
        let query = Query { mask: PRESENT, want: PRESENT, ..Query::default() };
        let range = at..at + homenode_core::units::PAGE_SIZE;
        let done = File::open("/proc/self/pagemap")
            .and_then(|f| pagemap::scan(f.as_raw_fd(), range, query, |_| ()));
        Some(done.map_err(|e| e.raw_os_error().unwrap_or(0)))
    }
    fn soft_dirty(&self) -> Option<bool> {
        let bytes = own_page();
        let entry = whole_page(&bytes) / homenode_core::units::PAGE_SIZE * 8;
        let mut word = [0; 8];
        File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut word, entry).ok()?;
        // Bit 63: in memory; bit 55: soft-dirty, which new memory is where it exists.
        let word = u64::from_ne_bytes(word);
        (word >> 63 == 1).then_some(word >> 55 & 1 == 1)
    }
    fn page_query(&self) -> Option<Result<(), i32>> {
        let (bytes, mut status) = (own_page(), Vec::new());
        Some(match call::query(0, &[whole_page(&bytes) as usize], &mut status) {
            Ok(()) if status[0] >= 0 => Ok(()),
            Ok(()) => Err(-status[0]),
            Err(e) => Err(e.raw_os_error().unwrap_or(0)),
        })
    }
    fn memlock(&self) -> Option<(u64, u64)> {
        // SAFETY: all zeros is a valid `rlimit`, which the call then fills.
        let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a local of the right type.
        let r = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
        (r == 0).then_some((limit.rlim_cur, limit.rlim_max))
    }
}
