//! Frames read through /proc/kcore, the kernel's own view of memory.
//!
//! `process_vm_readv` pins the pages that it reads, and since Linux 5.19 the kernel
//! gives a page that several map a copy of its own before it pins it: reading a
//! forked or a merged page that way would undo what is shared. The kernel's own view
//! maps no page of a process, so nothing is undone.

use super::pages::PAGE;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where physical memory is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    physical: u64,
    len: u64,
    offset: u64,
}

/// /proc/kcore, opened.
pub(super) struct Kcore {
    file: File,
    parts: Vec<Part>,
}

impl Kcore {
    /// `None` where the kernel has none, or locks it.
    pub(super) fn open() -> Option<Self> {
        let file = File::open("/proc/kcore").ok()?;
        let mut head = vec![0; 64 * 1024];
        let n = file.read_at(&mut head, 0).ok()?;
        let parts = parts(&head[..n])?;
        Some(Self { file, parts })
    }

    /// Reads a frame; `false` if it can't be.
    pub(super) fn read(&self, frame: u64, page: &mut [u8]) -> bool {
        let at = frame * PAGE as u64;
        let part = self.parts.iter().find(|p| at >= p.physical && at - p.physical < p.len);
        part.is_some_and(|p| {
            self.file.read_exact_at(&mut page[..PAGE], p.offset + (at - p.physical)).is_ok()
        })
    }
}

/// Parts of physical memory that the program headers of a 64-bit ELF file name.
fn parts(head: &[u8]) -> Option<Vec<Part>> {
    let word = |at: usize, n: usize| -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..n].copy_from_slice(head.get(at..at.checked_add(n)?)?);
        Some(u64::from_le_bytes(bytes))
    };
    // 64 bits, little end first.
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, n) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    let mut found = Vec::new();
    for i in 0..n {
        let at = usize::try_from(table.checked_add(i * size)?).ok()?;
        let (kind, offset) = (word(at, 4)?, word(at + 8, 8)?);
        let (physical, len) = (word(at + 24, 8)?, word(at + 32, 8)?);
        // Kind 1 is memory; all bits set is memory that is nowhere in particular.
        if kind == 1 && physical != u64::MAX {
            found.push(Part { physical, len, offset });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_from_program_headers() {
        let mut head = vec![0u8; 64 + 3 * 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = 3;
        let mut header = |i: usize, kind: u8, offset: u64, physical: u64, len: u64| {
            let at = 64 + i * 56;
            head[at] = kind;
            head[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            head[at + 24..at + 32].copy_from_slice(&physical.to_le_bytes());
            head[at + 32..at + 40].copy_from_slice(&len.to_le_bytes());
        };
        header(0, 4, 1, 2, 3);
        header(1, 1, 0x5000, 0x10_0000, 0x8000);
        header(2, 1, 0x9000, u64::MAX, 0x1000);
        let found = parts(&head).unwrap();
        assert_eq!(found, [Part { physical: 0x10_0000, len: 0x8000, offset: 0x5000 }]);
        assert_eq!(parts(&head[..100]), None);
        assert_eq!(parts(b"\x7fELF\x01\x01"), None);
    }
}
