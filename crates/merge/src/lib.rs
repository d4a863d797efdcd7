//! Same-page merging on this machine: what it would save (`estimate`, which reads other
//! processes' memory and changes nothing), and the kernel's own, driven (`ksm`).
//!
//! Of another process' contents nothing, not even a hash, leaves this crate.

pub mod estimate;
pub mod ksm;
