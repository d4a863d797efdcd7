//! Which pages of a span are in memory.
//!
//! ```text
//! Linux 6.7 on   PAGEMAP_SCAN: runs; holes and huge pages in one step
//! before         pagemap: eight bytes per page of the address space, mapped parts only
//! ```
//!
//! The zero page is left out by the first; the second can't tell it, and whoever asks for
//! its node gets none. What is swapped out is not in memory.

use crate::pagemap::{self, FRAME, HUGE, IN_MEMORY, PFNZERO, PRESENT, Query};
use crate::text::addresses;
use homenode_core::policy::seen::Span;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;

/// Pages of a huge page. Cutting larger ones so costs a question more for each part.
const HUGE_PAGES: u64 = 512;
/// Ends of address spaces that a kernel may have, in pages; asking beyond is EFAULT.
/// With five levels of page tables, four on arm64, and four on x86.
const ENDS: [u64; 4] = [(1 << 44) - 1, 1 << 40, 1 << 36, (1 << 35) - 1];
/// Entries of pagemap that are read at once: 512 KiB.
const ENTRIES: u64 = 1 << 16;

/// Pages in memory that lie together, in one of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first one's number.
    pub(crate) page: u64,
    /// How many; at most [`HUGE_PAGES`].
    pub(crate) pages: u64,
}

/// Calls `each` for all pages of the span that are in memory, by rising number.
///
/// # Errors
/// ENOTTY where the kernel does not know the call: [`read`] does it then.
pub(crate) fn scan(pagemap: &File, span: Span, mut each: impl FnMut(Piece)) -> io::Result<()> {
    let query =
        Query { inverted: PFNZERO, mask: PRESENT | PFNZERO, want: HUGE, ..Query::default() };
    let mut got = Ok(());
    for end in ENDS {
        let end = span.end.min(end);
        if end <= span.start {
            return Ok(());
        }
        got = pagemap::scan(pagemap.as_raw_fd(), span.start << 12..end << 12, query, |run| {
            let most = if run.categories & HUGE != 0 { HUGE_PAGES } else { 1 };
            let (mut page, end) = (run.start >> 12, run.end >> 12);
            while page < end {
                let pages = (most - page % most).min(end - page);
                each(Piece { page, pages });
                page += pages;
            }
        });
        // It looks at the range before it looks at anything else.
        if !matches!(&got, Err(e) if e.raw_os_error() == Some(libc::EFAULT)) {
            break;
        }
    }
    got
}

/// As [`scan`], page by page, for older kernels. It goes through holes as well: name only
/// what is mapped. 1 Mi pages take about 5 ms.
///
/// # Errors
/// As reading the file.
pub(crate) fn read(file: &File, span: Span, mut each: impl FnMut(Piece)) -> io::Result<()> {
    let mut buffer = vec![0; (ENTRIES.min(span.pages().0) * 8) as usize];
    for first in (span.start..span.end).step_by(ENTRIES as usize) {
        let most = ((span.end - first).min(ENTRIES) * 8) as usize;
        let mut page = first;
        for entry in pagemap::entries(file, first, &mut buffer[..most])? {
            if entry & IN_MEMORY != 0 {
                each(Piece { page, pages: 1 });
            }
            page += 1;
        }
        // Behind the end of the address space, or it is gone.
        if page < first + most as u64 / 8 {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with the frames of pieces, which rise: of those of several pages the first
/// one's; `None` for what is not in memory. Frame 0 is what may not be seen.
///
/// # Errors
/// As reading the file.
pub(crate) fn frames(
    file: &File,
    pieces: &[Piece],
    mut each: impl FnMut(Piece, Option<u64>),
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        // Pages that lie together are read together.
        let next = |w: &[Piece]| w[0].pages == 1 && w[0].page + 1 == w[1].page && w[1].pages == 1;
        let n = 1 + rest.windows(2).take_while(|w| next(w)).count();
        buffer.resize(n * 8, 0);
        let entries = pagemap::entries(file, first.page, &mut buffer)?;
        for (entry, &piece) in entries.zip(rest) {
            each(piece, (entry & IN_MEMORY != 0).then_some(entry & FRAME));
        }
        rest = &rest[n..];
    }
    Ok(())
}

/// The mappings of a text as `/proc/PID/maps` has it that reach into the span, as a whole.
///
/// # Errors
/// As reading the file.
pub(crate) fn mappings(maps: impl io::Read, span: Span) -> io::Result<Vec<Span>> {
    let mut found = Vec::new();
    let mut lines = BufReader::new(maps);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let Some(mapping) = range(&line) else { continue };
        if mapping.start >= span.end {
            return Ok(found);
        }
        // The half of the address space that is the kernel's has no pages of theirs.
        if mapping.end > span.start && mapping.end <= ENDS[0] {
            found.push(mapping);
        }
    }
}

/// `LO-HI` at the head of a line, as pages.
fn range(line: &[u8]) -> Option<Span> {
    let head = line.split(|b| *b == b' ').next()?;
    let (lo, hi) = addresses(std::str::from_utf8(head).ok()?)?;
    let span = Span { start: lo >> 12, end: hi >> 12 };
    (span.start < span.end).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = "\
1000-3000 r--p 00000000 fe:00 131 /usr/bin/cat
nonsense
5000-5000 r--p 00000000 fe:00 131
7000-b000 rw-p 00000000 00:00 0  [heap]
d000-f000 rw-p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn mappings_that_reach_into_the_span_are_found_as_a_whole() {
        let of = |start, end| -> Vec<(u64, u64)> {
            let found = mappings(MAPS.as_bytes(), Span { start, end }).unwrap();
            found.iter().map(|s| (s.start, s.end)).collect()
        };
        assert_eq!(of(0, 1 << 52), [(1, 3), (7, 11), (13, 15)]);
        assert_eq!(of(8, 9), [(7, 11)]);
        assert!(of(3, 7).is_empty());
    }

    proptest! {
        #[test]
        fn odd_text_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            mappings(bytes.as_slice(), Span { start: 0, end: u64::MAX }).unwrap();
        }
    }
}
