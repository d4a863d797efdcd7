//! The real side of the truth check of merging: processes of known content that do what
//! they are told step by step, and the kernel's own ksmd beside them, pass by pass.
//!
//! ```text
//!           requests down a pipe         madvise, fork, writes
//! Holder ───────────────────────▶ hold ─────────────────────▶ kernel ◀── ksmd
//! Kernel ── knobs, counters: /sys/kernel/mm/ksm ─────────────────┘
//! ```
//!
//! Reading order: [`hold`] is what runs in such a process, [`Holder`] the other end of
//! the pipe, [`Kernel`] the knobs, held as [`homenode_merge::ksm`] holds them: by one at a time on
//! a machine, every one as it was when they are done, by `homenode restore` if need be.

mod hold;
mod holder;
mod kernel;

pub use hold::{MAPS, hold};
pub use holder::{Held, Holder, Request};
pub use kernel::{Kernel, registered};

/// What a page holds, as bytes are made of it.
///
/// The first eight bytes are `word`, the highest first, so that pages are ordered as their
/// words are; the rest follows from it. 0 are zeroes.
pub type Word = u64;
