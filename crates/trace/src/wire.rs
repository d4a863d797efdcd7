//! What the plugin sends to the process that writes the recording.
//!
//! Every thread of every recorded process writes *frames* into one pipe. A
//! frame is at most [`FRAME_BYTES`] long, so a write is atomic and frames never
//! mix; the pipe's order is the order in which they were sent. All words are
//! little-endian.
//!
//! ```text
//! byte 0    magic  u32     byte 8   pid u32     byte 16  sequence   u32
//! byte 4    length u16     byte 12  tid u32     byte 20  parent tid u32
//! byte 6    flags  u16     byte 24  seven totals, u64 each: the task's so far
//! byte 80   rows: 16 bytes for an access, 32 for any other kind
//!             word 0   insns (32) | reads (16) | writes (16)
//!             word 1   page (52) | argument of an access (4) | kind (8)
//!             word 2   pages            word 3   argument
//! ```
//!
//! A task's sequence begins at 0 in a new process image, so a gap is a lost frame.

use crate::{Kind, Totals};

/// Most bytes in a frame: what Linux writes into a pipe at once.
pub const FRAME_BYTES: usize = 4096;
/// Bytes before the first row.
pub const HEAD_BYTES: usize = 80;
/// Bytes of the longest row.
pub const LONGEST_ROW_BYTES: usize = 32;
/// First word of a frame.
pub const MAGIC: u32 = 0x3152_4e48;

/// Flag: the first frame of a program image; its first row is a [`HELLO`].
pub const FLAG_IMAGE: u16 = 1;
/// Flag: the first frame of a forked process.
pub const FLAG_CHILD: u16 = 2;
/// Flag: the first frame of a thread.
pub const FLAG_THREAD: u16 = 4;

/// A row that only carries instructions: word 3 has their number.
pub const COMPUTE: u8 = 0x40;
/// The image's program: word 3 has the length of its path, which follows, padded to 16 bytes.
pub const HELLO: u8 = 0x41;
/// The slice is full.
pub const SLICE_FULL: u8 = 0x42;
/// The task is about to run a program that cannot be recorded.
pub const UNRECORDED: u8 = 0x43;
/// Most bytes of a path in a [`HELLO`]; longer ones lose their beginning.
pub const HELLO_PATH_BYTES: usize = 1024;

/// Most that an access row counts of reads, and of writes.
pub const COUNT_MAX: u32 = u16::MAX as u32;
/// Page numbers are below this.
pub const PAGE_LIMIT: u64 = 1 << 52;

/// Files in the folder that plugin and parent share: the pipe, and the
/// [`SHARED_BYTES`] that all processes map.
pub const PIPE_NAME: &str = "frames";
/// See [`PIPE_NAME`].
pub const SHARED_NAME: &str = "shared";
/// What a thread has not sent yet stands in a file of this name and its number, in the same
/// folder: the frame that it makes, whole at any moment. So it is there when a signal ends the
/// thread. The file goes when the thread ends by itself.
pub const REST_NAME: &str = "rest-";
/// Length of the shared file: at its beginning a u64, the instructions of all tasks so far,
/// at [`ORDER_AT`] another, the numbers of order given out so far, and at [`LOCKED_AT`] which
/// files may be locked.
pub const SHARED_BYTES: usize = 4096;
/// See [`SHARED_BYTES`]: on a cache line of its own.
pub const ORDER_AT: usize = 128;
/// See [`SHARED_BYTES`]: so many words of 64 bits. The first is 1 where any file was locked
/// ever, the others are a bit for each remainder of an object.
pub const LOCKED_AT: usize = 256;
/// See [`LOCKED_AT`].
pub const LOCKED_WORDS: usize = 65;

/// Instructions of a task in which every page that it touches has a row.
pub const EPOCH_INSNS: u64 = 1 << 24;

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes in all.
    pub len: u16,
    /// `FLAG_*`.
    pub flags: u16,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Counted from 0 in an image.
    pub sequence: u32,
    /// For a first frame of a child or a thread: who made it.
    pub parent_tid: u32,
    /// The task's counts so far.
    pub totals: Totals,
}

impl Head {
    /// Writes the fixed part.
    pub fn encode(&self, out: &mut [u8; HEAD_BYTES]) {
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&self.len.to_le_bytes());
        out[6..8].copy_from_slice(&self.flags.to_le_bytes());
        out[8..12].copy_from_slice(&self.pid.to_le_bytes());
        out[12..16].copy_from_slice(&self.tid.to_le_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        out[20..24].copy_from_slice(&self.parent_tid.to_le_bytes());
        let mut totals = self.totals;
        for (i, w) in totals.each().into_iter().enumerate() {
            out[24 + i * 8..32 + i * 8].copy_from_slice(&w.to_le_bytes());
        }
    }
    /// Reads the fixed part; `None` where `b` is too short or does not begin with a frame.
    pub fn decode(b: &[u8]) -> Option<Head> {
        let b = b.get(..HEAD_BYTES)?;
        let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let long = |i: usize| u64::from(word(24 + i * 8)) | u64::from(word(28 + i * 8)) << 32;
        let len = half(4);
        if word(0) != MAGIC || usize::from(len) < HEAD_BYTES || usize::from(len) > FRAME_BYTES {
            return None;
        }
        let mut totals = Totals::default();
        totals.each().into_iter().enumerate().for_each(|(i, count)| *count = long(i));
        Some(Head {
            len,
            flags: half(6),
            pid: word(8),
            tid: word(12),
            sequence: word(16),
            parent_tid: word(20),
            totals,
        })
    }
}

/// A row on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireRow {
    /// A [`Kind`]'s number, or one of this module's.
    pub kind: u8,
    /// Instructions since the task's previous row.
    pub insns: u32,
    /// See [`crate::Row::reads`].
    pub reads: u16,
    /// See [`crate::Row::writes`].
    pub writes: u16,
    /// See [`crate::Row::page`].
    pub page: u64,
    /// See [`crate::Row::pages`].
    pub pages: u64,
    /// See [`crate::Row::arg`]; task numbers are thread numbers here.
    pub arg: u64,
}

impl WireRow {
    /// Writes the row; returns its length.
    #[inline]
    pub fn encode(&self, out: &mut [u8; LONGEST_ROW_BYTES]) -> usize {
        let access = self.kind == Kind::Access as u8;
        let w0 = u64::from(self.insns) | u64::from(self.reads) << 32 | u64::from(self.writes) << 48;
        let small = if access { self.arg & 15 } else { 0 };
        let w1 = (self.page & (PAGE_LIMIT - 1)) | small << 52 | u64::from(self.kind) << 56;
        out[0..8].copy_from_slice(&w0.to_le_bytes());
        out[8..16].copy_from_slice(&w1.to_le_bytes());
        if access {
            return 16;
        }
        out[16..24].copy_from_slice(&self.pages.to_le_bytes());
        out[24..32].copy_from_slice(&self.arg.to_le_bytes());
        32
    }
    /// Reads a row from the beginning of `b`, and its length; `None` where it is cut off.
    pub fn decode(b: &[u8]) -> Option<(WireRow, usize)> {
        let word = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
        };
        let (w0, w1) = (word(0)?, word(8)?);
        let kind = (w1 >> 56) as u8;
        let access = kind == Kind::Access as u8;
        let (pages, arg) = if access { (1, w1 >> 52 & 15) } else { (word(16)?, word(24)?) };
        let row = WireRow {
            kind,
            insns: w0 as u32,
            reads: (w0 >> 32) as u16,
            writes: (w0 >> 48) as u16,
            page: w1 & (PAGE_LIMIT - 1),
            pages,
            arg,
        };
        Some((row, if access { 16 } else { 32 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back(kind in 0u8..0x44, insns: u32, reads: u16, writes: u16, page in 0..PAGE_LIMIT, pages: u64, arg: u64) {
            let access = kind == 0;
            let row = WireRow { kind, insns, reads, writes, page,
                pages: if access { 1 } else { pages }, arg: if access { arg & 15 } else { arg } };
            let mut b = [0; LONGEST_ROW_BYTES];
            let n = row.encode(&mut b);
            prop_assert_eq!(WireRow::decode(&b[..n]), Some((row, n)));
            prop_assert_eq!(WireRow::decode(&b[..n - 1]), None);
        }

        #[test]
        fn any_bytes_are_a_head_or_none(b in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(h) = Head::decode(&b) {
                let mut out = [0; HEAD_BYTES];
                h.encode(&mut out);
                prop_assert_eq!(&out[..], &b[..HEAD_BYTES]);
            }
        }
    }

    #[test]
    fn heads_come_back() {
        let totals = Totals {
            insns: u64::MAX,
            accesses: 2,
            l1_misses: 3,
            l2_misses: 4,
            read_misses: 5,
            write_misses: 6,
            tlb_misses: 7,
        };
        let h = Head { len: 4096, flags: 3, pid: 9, tid: 10, sequence: 11, parent_tid: 12, totals };
        let mut out = [0; HEAD_BYTES];
        h.encode(&mut out);
        assert_eq!(Head::decode(&out), Some(h));
    }
}
