//! The pure core: what is decided, and why.
//!
//! Nothing in this crate reads a clock, a file, a thread or a random number.
//! It is told what happened and answers with a decision that carries its
//! reason. The simulated kernel calls the rules inline; the live machine will
//! call the same ones.
//!
//! Reading order: [`units`], [`costs`], [`curve`], [`loaded`], [`topology`], [`pattern`], [`scenario`], [`kernel`],
//! [`knobs`], then the rules by mechanism: [`numa`], [`tiering`], [`ksm`], [`sched`], the [`hooks`] where
//! they stand in a kernel, the [`engine`] on top of
//! them, and the [`view`], which decides nothing and says what is where; last [`advice`], and the [`optimum`] against which
//! decisions are judged.
#![forbid(unsafe_code)]

// The machines of all rooms' tests, for the unit tests here: the same file, since the crate
// `homenode-fixtures` is built on another copy of this one. That file calls it by its name.
#[cfg(test)]
extern crate self as homenode_core;
#[cfg(test)]
#[path = "../../fixtures/src/machine.rs"]
#[allow(dead_code, unreachable_pub, reason = "public for other rooms, which use all of it")]
mod fixtures;

pub mod units;

mod named;

pub mod advice;
pub mod costs;
pub mod curve;
pub mod engine;
pub mod hooks;
pub mod kernel;
pub mod knobs;
pub mod ksm;
pub mod limits;
pub mod list;
pub mod loaded;
pub mod numa;
pub mod offcore;
pub mod optimum;
pub mod pattern;
pub mod policy;
pub mod scale;
pub mod scenario;
pub mod sched;
pub mod splitmix;
pub mod tiering;
pub mod topology;
pub mod view;
