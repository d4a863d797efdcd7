//! Pages of a process: which are in memory, anonymous, and in which frame.

use super::maps::Mapping;
use homenode_live::pagemap::{self, FRAME, IN_MEMORY, PRESENT, PageRegion, Query};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes of a page, and the only size that is supported.
pub(super) const PAGE: usize = 4096;

// More bits of an entry of /proc/PID/pagemap.
const OF_A_FILE: u64 = 1 << 61;
const ONE_MAPPER: u64 = 1 << 56;

// Bits of an entry of /proc/kpageflags.
const ANON: u64 = 1 << 12;
const HUGETLB: u64 = 1 << 17;
const KSM: u64 = 1 << 21;
const ZERO_PAGE: u64 = 1 << 24;

/// A page that may be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its number in the address space.
    pub(super) page: u64,
    /// Its frame; `None` where the kernel hides it, which is then its own.
    pub(super) frame: Option<u64>,
    /// Nobody else maps it.
    pub(super) own: bool,
    /// It is a KSM page.
    pub(super) merged: bool,
}

/// What this process may see of the system's frames.
pub(super) struct Sight {
    /// /proc/kpageflags, where it may be read.
    flags: Option<File>,
    /// Frame of the shared page of zeros.
    zero: Option<u64>,
    /// Frame numbers are shown.
    pub(super) frames: bool,
    /// The kernel has merged pages, so that each page is asked whether it is one.
    pub(super) merging: bool,
}

impl Sight {
    /// Tries on two pages of our own.
    pub(super) fn probe(merging: bool) -> Self {
        let none = Self { flags: None, zero: None, frames: false, merging: false };
        let Ok(own) = Own::map(2) else { return none };
        // The first is only read, so it is the shared page of zeros.
        let _ = own.read(0);
        own.write(1, 1);
        let Ok(pagemap) = File::open("/proc/self/pagemap") else { return none };
        let frame_of = |i: usize| word(&pagemap, own.page(i)).unwrap_or(0) & FRAME;
        let (zero, written) = (frame_of(0), frame_of(1));
        let flags = File::open("/proc/kpageflags").ok().filter(|f| {
            // A sandbox may let it be opened but shows nothing.
            written != 0 && flags_of(f, written).is_some_and(|v| v & ANON != 0)
        });
        // Frames without their flags can't tell a driver's page from ours.
        let frames = flags.is_some();
        Self { merging: merging && frames, zero: Some(zero).filter(|_| frames), frames, flags }
    }

    /// Whether a frame that reads as zeros is the shared page of zeros, which
    /// merging has nothing to gain from.
    pub(super) fn is_zero_page(&self, frame: u64) -> bool {
        let flags = self.flags.as_ref().and_then(|f| flags_of(f, frame));
        flags.is_some_and(|v| v & ZERO_PAGE != 0)
    }
}

/// The frame of a page now.
pub(super) fn frame_now(pagemap: &File, page: u64) -> Option<u64> {
    let e = word(pagemap, page).ok().filter(|e| e & IN_MEMORY != 0)?;
    Some(e & FRAME)
}

/// A word of pagemap or kpageflags.
fn word(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at * 8)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn flags_of(flags: &File, frame: u64) -> Option<u64> {
    word(flags, frame).ok()
}

/// Opens a process' pagemap, which stays that of its present address space, also
/// over an exec.
///
/// # Errors
/// As opening a file: gone or refused.
pub(super) fn open(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/pagemap"))
}

/// Pages of a mapping that may be merged and are in memory, by rising number.
/// Returns how many there are beside them that several map, whose frames are hidden.
///
/// Neither swapped-out pages nor those that were never touched are among them, so
/// that reading what is found brings nothing in.
///
/// * `buffer` – room for entries, reused between calls.
///
/// # Errors
/// As reading pagemap.
pub(super) fn find(
    pagemap: &File,
    sight: &Sight,
    mapping: Mapping,
    buffer: &mut Vec<u8>,
    out: &mut Vec<Found>,
) -> io::Result<u64> {
    let mut hidden = 0;
    buffer.resize((mapping.end - mapping.first) as usize * 8, 0);
    for (i, e) in pagemap::entries(pagemap, mapping.first, buffer)?.enumerate() {
        if e & IN_MEMORY == 0 || e & OF_A_FILE != 0 {
            continue;
        }
        let frame = Some(e & FRAME).filter(|_| sight.frames);
        if frame.is_some() && frame == sight.zero {
            continue;
        }
        let mut merged = false;
        if let (Some(frame), Some(flags)) = (frame, &sight.flags) {
            if sight.merging || !mapping.plain {
                let Some(flags) = flags_of(flags, frame) else { continue };
                if flags & ANON == 0 || flags & (HUGETLB | ZERO_PAGE) != 0 {
                    continue;
                }
                merged = flags & KSM != 0;
            }
        }
        // The last mapping of a KSM page must not be read as one's own: that would
        // undo it.
        let own = e & ONE_MAPPER != 0 && !merged;
        if own || frame.is_some() {
            out.push(Found { page: mapping.first + i as u64, frame, own, merged });
        } else {
            hidden += 1;
        }
    }
    Ok(hidden)
}

/// Pages of a mapping that are in memory, as runs that leave out large holes; the
/// mapping itself where the kernel has no scan.
pub(super) fn populated(pagemap: &File, mapping: Mapping) -> Vec<Mapping> {
    /// A smaller hole costs less to read over than another call.
    const HOLE: u64 = 512;
    let mut out: Vec<Mapping> = Vec::new();
    let query = Query { mask: PRESENT, want: PRESENT, ..Query::default() };
    let done = pagemap::scan(pagemap.as_raw_fd(), addresses(mapping), query, |r: PageRegion| {
        let (first, end) = (r.start / PAGE as u64, r.end / PAGE as u64);
        match out.last_mut() {
            Some(last) if first - last.end < HOLE => last.end = end,
            _ => out.push(Mapping { first, end, plain: mapping.plain }),
        }
    });
    if done.is_ok() { out } else { vec![mapping] }
}

/// The addresses of a mapping.
pub(super) fn addresses(mapping: Mapping) -> Range<u64> {
    mapping.first * PAGE as u64..mapping.end * PAGE as u64
}

/// Pages of our own to try things on.
pub(super) struct Own {
    start: *mut u8,
    pages: usize,
}

impl Own {
    pub(super) fn map(pages: usize) -> io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child that another thread forks would map these pages too, until its exec, and
        // who looks meanwhile would take them for shared. Where the kernel refuses, that.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(start, pages * PAGE, libc::MADV_DONTFORK) };
        Ok(Self { start: start.cast(), pages })
    }
    pub(super) fn page(&self, i: usize) -> u64 {
        self.start as u64 / PAGE as u64 + i as u64
    }
    pub(super) fn read(&self, i: usize) -> u8 {
        assert!(i < self.pages);
        // SAFETY: inside the mapping.
        unsafe { self.start.add(i * PAGE).read_volatile() }
    }
    pub(super) fn write(&self, i: usize, value: u8) {
        assert!(i < self.pages);
        // SAFETY: inside the mapping, which nobody else knows.
        unsafe { self.start.add(i * PAGE).write_volatile(value) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference to it is left.
        unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_is_found() {
        let own = Own::map(8).unwrap();
        for i in [1, 2, 6] {
            own.write(i, i as u8);
        }
        let _ = own.read(4);
        let sight = Sight::probe(false);
        let pagemap = open(std::process::id()).unwrap();
        let mapping = Mapping { first: own.page(0), end: own.page(8), plain: true };
        let mut found = Vec::new();
        find(&pagemap, &sight, mapping, &mut Vec::new(), &mut found).unwrap();
        let pages: Vec<u64> = found.iter().map(|f| f.page - own.page(0)).collect();
        assert_eq!(pages, [1, 2, 6]);
        assert!(found.iter().all(|f| f.own && !f.merged));
        assert!(found.iter().all(|f| f.frame.is_some() == sight.frames));
    }

    #[test]
    fn holes_are_left_out() {
        let own = Own::map(4096).unwrap();
        own.write(3, 1);
        own.write(4000, 1);
        let pagemap = open(std::process::id()).unwrap();
        let mapping = Mapping { first: own.page(0), end: own.page(4096), plain: true };
        let runs = populated(&pagemap, mapping);
        if runs != [mapping] {
            let runs: Vec<_> =
                runs.iter().map(|r| (r.first - own.page(0), r.end - own.page(0))).collect();
            assert_eq!(runs, [(3, 4), (4000, 4001)]);
        }
    }
}
