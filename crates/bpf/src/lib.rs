//! What homenode loads into a running kernel: BPF programs by topic.
//!
//! ```text
//!  bpf/NAME.bpf.c ──build.rs, clang──▶ objects::NAME ──▶ who loads it ──▶ the kernel
//!  bpf/kernel.h      (bytes in the binary)                  │
//!                                                           └── words: what libbpf and the
//!                                                               verifier said, for an error
//! ```
//!
//! `objects` are the compiled programs; `able` tells what is missing before anything is loaded; `record`
//! tells what the scheduler does, `stats` counts it; `scx` is a scheduler of our own, `choices` watches
//! the kernel's; `words` keeps what libbpf says, so that an error can
//! tell it. All that is loaded hangs on descriptors of this process: when they are closed, by
//! whatever end it takes, program and maps are gone.
//!
//! It knows no policy and prints nothing. Source: docs/decisions/0008-bpf.md.

pub mod able;
pub mod choices;
pub mod objects;
pub mod record;
pub mod scx;
pub mod stats;
pub mod words;
