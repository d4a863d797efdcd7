//! Recordings of memory accesses: reading and writing them.
//!
//! A recording says what a program did to memory, as seen behind a model of
//! one machine's caches: which pages its misses went to, how many instructions
//! ran in between, and what happened to its address spaces. It is one Parquet
//! file of eight columns (one [`Row`] each) with a [`Header`] in its metadata.
//!
//! ```text
//! kind    task  insns  page     pages  reads  writes  arg
//! access     0   1200  0x7f21f      1     64       0    1   64 lines of one page came from memory
//! map        0    310  0x7f300    256      0       0  ...   mmap of 1 MiB
//! access     0     90  0x7f300      1      0       1    2   its first page is written: a page fault
//! fork       0     40        0      0      0       0    1   task 1 begins
//! exit       1   9000        0      0      0       0    0   it ends with status 0
//! wait       0     10        0      0      0       0    1   task 0 waited for it
//! ```
//!
//! What a reader may rely on:
//!
//! * `insns` counts instructions of that task since its previous row, so a
//!   task's rows alone are its whole life. Rows of one task are in its own
//!   order; rows of different tasks stand in the order in which they were sent,
//!   which is near the order in which they happened. Of a slice ([`Header::slice`]) only
//!   instructions within it count; rows from before it have 0.
//! * A `fork` or `thread` row stands before every row of its child, an `exit`
//!   row before the `wait` row that collects it.
//! * Page faults are implied: a page's first `access` row after it was mapped,
//!   discarded or (for a write, `arg` bit 1) shared by a fork is where it
//!   faults. Within each epoch ([`Header::epoch_insns`]) every page that a task
//!   touches has an `access` row, and a page that it writes one with bit 1,
//!   also where no miss reached memory (`reads` and `writes` are 0 then).
//! * From version 2 on, `release` and `block` rows say what tasks did for others to go on and
//!   what they waited for; [`waits`] finds who ended which wait. A wait that did not return
//!   has no row.
//! * Pages outside of known mappings (the program's image, its stack) count as
//!   mapped at their first access.
#![forbid(unsafe_code)]

mod checksum;
mod error;
mod header;
mod partial;
mod read;
mod sealed;
mod write;

pub mod look;
pub mod model;
pub mod observation;
pub mod program;
pub mod sched;
pub mod seen;
pub mod waits;
pub mod wire;

pub use error::TraceError;
pub use header::{
    CacheModel, Ended, FIRST_WITH_WAITS, FORMAT_VERSION, Header, Native, Slice, Task, Threads,
    Totals,
};
pub use read::{Batches, Reader};
pub use write::Writer;

/// Rows in a row group of a file: what a writer holds in memory.
pub const ROW_GROUP_ROWS: usize = 256 * 1024;
/// Most rows in a [`Batch`]: what a reader holds in memory.
pub const BATCH_ROWS: usize = 64 * 1024;

/// Bit of an access row's `arg`: the task read the page.
pub const ARG_READ: u64 = 1;
/// Bit of an access row's `arg`: the task wrote the page.
pub const ARG_WRITE: u64 = 2;
/// Bit of an access row's `arg`: most of its lines followed their neighbours, so
/// that a prefetcher would have brought them.
pub const ARG_STREAM: u64 = 4;

/// `reads` of an exit row: the task has ended all others of its process with it.
pub const EXIT_OF_ALL: u32 = 1;
/// An exit row's `arg` from which on a signal has ended the task: its number is what is above.
pub const BY_SIGNAL: u64 = 256;

homenode_core::named! {
    /// What a row says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Kind {
        /// Consecutive misses to one page: `page`, `reads` and `writes` (lines that
        /// came from memory for loads and for stores; both may be 0 for a touch
        /// that the caches answered). `arg`: [`ARG_READ`], [`ARG_WRITE`], [`ARG_STREAM`].
        Access = 0 => "access",
        /// `page`..`page + pages` is mapped anew, and empty. `arg`: protection (`PROT_*`) in
        /// the low 32 bits, flags (`MAP_*`) in the high ones.
        Map = 1 => "map",
        /// `page`..`page + pages` is unmapped.
        Unmap = 2 => "unmap",
        /// The protection of `page`..`page + pages` becomes `arg` (`PROT_*`).
        Protect = 3 => "protect",
        /// The mapping `page`..`page + pages` moves, with its contents, to page `arg`.
        Remap = 4 => "remap",
        /// The contents of `page`..`page + pages` are given up (`madvise`); the mapping stays.
        /// `arg`: the advice.
        Discard = 5 => "discard",
        /// The task forks; `arg` is the child, in an address space that shares all pages.
        Fork = 6 => "fork",
        /// The task starts a thread; `arg` is the child, in the same address space.
        Thread = 7 => "thread",
        /// The task runs another program: its address space is empty now. `page`: as for an exit.
        Exec = 8 => "exec",
        /// The task ends. `arg`: exit status 0 to 255, or [`BY_SIGNAL`] + the signal's number.
        /// `page`: its number of order, 0 where the recorder did not see it. `reads`:
        /// [`EXIT_OF_ALL`], else 0.
        Exit = 9 => "exit",
        /// The task has waited for the task `arg`, which has ended (`u64::MAX`: one that
        /// the recording does not have).
        Wait = 10 => "wait",
        /// The task did something that lets others go on, or tells of who will. `page`: its
        /// number of order; `pages`: the object; `reads`: a [`waits::Release`]; `arg`: by that.
        Release = 11 => "release",
        /// The task asked for something that it may have waited for, and has it. `page`: its
        /// number of order; `pages`: the object; `reads`: a [`waits::Block`]; `arg`: by that.
        Block = 12 => "block",
    }
}

impl Kind {
    /// The kind with that number.
    pub fn from_number(n: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(n)).copied()
    }
}

/// One row of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it says.
    pub kind: Kind,
    /// Who did it: a place in [`Header::tasks`].
    pub task: u32,
    /// Instructions that this task ran since its previous row.
    pub insns: u64,
    /// Virtual page number (address / 4096).
    pub page: u64,
    /// Length in pages of what `page` begins; 1 for an access, 0 where no page is meant.
    pub pages: u64,
    /// Of an access: lines that loads fetched from memory. Of a release or a wait: which it is.
    pub reads: u32,
    /// Of an access: lines that stores fetched from memory.
    pub writes: u32,
    /// By kind; see [`Kind`].
    pub arg: u64,
}

/// Rows that a reader hands over at once; reused from read to read.
pub type Batch = Vec<Row>;
