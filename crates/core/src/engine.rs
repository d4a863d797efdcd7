//! homenode's own daemon: told what a source can show, it answers with orders.
//!
//! ```text
//!  machine ──Seen──▶ engine ──Order──▶ machine ──Seen::Done──▶ engine
//! ```
//!
//! The engine is built on the rules beside it and knows no machine: the simulated
//! one and Linux run the same code through `homenode-machine`. It has no clock;
//! each call says what time it is. [`seen`] is what crosses the line inwards,
//! [`order`] what crosses it outwards. Evidence that a source lacks is
//! [`order::Evidence`] in a verdict `Unknown`, never a guess.

pub mod order;
pub mod seen;
