//! System calls that tell what the files don't. None changes anything: events are
//! opened switched off and closed at once, page tables are read.

use super::perf::Event;
use crate::pagemap::{self, PRESENT, Query};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// What is asked by calls; `None` each time if it isn't asked, as for files of another
/// machine.
pub trait Calls {
    /// Opens events as one group, the first leading, and closes them; the error number of
    /// the first that failed.
    fn perf_open(&self, group: &[Event]) -> Option<Result<(), i32>>;
    /// Whether `PAGEMAP_SCAN` is answered for a page of our own, else its error number.
    fn pagemap_scan(&self) -> Option<Result<(), i32>>;
    /// Whether a page that was just written reads as soft-dirty.
    fn soft_dirty(&self) -> Option<bool>;
    /// Whether `move_pages(2)` tells the node of a page of our own, else its error number.
    fn page_query(&self) -> Option<Result<(), i32>>;
    /// Soft and hard `RLIMIT_MEMLOCK` in bytes; `u64::MAX` is none.
    fn memlock(&self) -> Option<(u64, u64)>;
}

/// Nothing is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilesOnly;

impl Calls for FilesOnly {
    fn perf_open(&self, _: &[Event]) -> Option<Result<(), i32>> {
        None
    }
    fn pagemap_scan(&self) -> Option<Result<(), i32>> {
        None
    }
    fn soft_dirty(&self) -> Option<bool> {
        None
    }
    fn page_query(&self) -> Option<Result<(), i32>> {
        None
    }
    fn memlock(&self) -> Option<(u64, u64)> {
        None
    }
}

/// The kernel that runs us.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisKernel;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `struct perf_event_attr` of the kernel's interface as far as its second published
/// size, which all kernels take.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

/// Flag bits of the structure: off until switched on; not in the kernel; not in the
/// hypervisor; where the two bits of precision begin.
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const PRECISE_SHIFT: u32 = 15;
/// Parts of a sample: thread, time, address, CPU, where the data came from.
const SAMPLE: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 15;
/// A prime, as `specs/sources.md#pmu` has it.
const SAMPLE_PERIOD: u64 = 10_007;
/// The descriptor is closed by exec.
const CLOEXEC: libc::c_ulong = 1 << 3;

fn open_event(event: &Event, leader: i32) -> Result<OwnedFd, i32> {
    let attr = PerfEventAttr {
        kind: event.kind,
        size: size_of::<PerfEventAttr>() as u32,
        config: event.config,
        config1: event.config1,
        config2: event.config2,
        sample_period: if event.samples { SAMPLE_PERIOD } else { 0 },
        sample_type: if event.samples { SAMPLE } else { 0 },
        flags: DISABLED
            | if event.user_only { EXCLUDE_KERNEL | EXCLUDE_HV } else { 0 }
            | u64::from(event.precise & 3) << PRECISE_SHIFT,
        ..PerfEventAttr::default()
    };
    // SAFETY: the structure is a local of the size that it names; this thread on any CPU.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attr, 0, -1, leader, CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: a new descriptor that nobody else knows.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(errno()),
    }
}

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
        let mut open: Vec<OwnedFd> = Vec::new();
        for event in group {
            let leader = open.first().map_or(-1, AsRawFd::as_raw_fd);
            match open_event(event, leader) {
                Ok(fd) => open.push(fd),
                Err(errno) => return Some(Err(errno)),
            }
        }
        Some(Ok(()))
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
        let bytes = own_page();
        let page = whole_page(&bytes) as *const libc::c_void;
        let mut status = 0_i32;
        // SAFETY: one page and one status, both locals; without nodes nothing is moved.
        let r = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1_usize,
                &page,
                std::ptr::null::<i32>(),
                &mut status,
                0,
            )
        };
        Some(match (r, status) {
            (0, node) if node >= 0 => Ok(()),
            (0, error) => Err(-error),
            _ => Err(errno()),
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
