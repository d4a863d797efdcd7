//! The pure core: what is decided, and why.
//!
//! Nothing in this crate reads a clock, a file, a thread or a random number.
//! It is told what happened and answers with a decision that carries its
//! reason. The simulated kernel calls the rules inline; the live machine will
//! call the same ones.
//!
//! Reading order: [`units`], [`costs`], [`topology`], [`pattern`], [`scenario`], [`kernel`],
//! [`knobs`], then the rules by mechanism: [`numa`], [`tiering`], [`ksm`], the [`hooks`] where
//! they stand in a kernel, the [`engine`] on top of
//! them, and the [`view`], which decides nothing and says what is where; last [`advice`].
#![forbid(unsafe_code)]

pub mod units;

mod named;

pub mod advice;
pub mod costs;
pub mod engine;
pub mod hooks;
pub mod kernel;
pub mod knobs;
pub mod ksm;
pub mod list;
pub mod numa;
pub mod pattern;
pub mod policy;
pub mod scenario;
pub mod splitmix;
pub mod tiering;
pub mod topology;
pub mod view;
