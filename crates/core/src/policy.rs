//! What decides where memory is placed, in place of the kernel or beside it.
//!
//! ```text
//!  machine ──Seen──▶ handle ─▶ whatever it thinks ─▶ poll ──Order──▶ machine
//!                     ▲                                                │
//!                     └────────────── Seen::Done ──────────────────────┘
//! ```
//!
//! homenode's [`crate::engine::Engine`] is one. A policy has no clock, no thread and
//! no machine: each call says what time it is, and the same policy drives a simulated
//! machine and Linux (`homenode_machine::drive`).
//!
//! Worked example: a policy that moves each page up that a hint fault shows on node 1
//! answers `Seen::Fault { on: 1, .. }` with `Act::Move` of this one page from node 1 to
//! node 0, and is told by `Seen::Done` how many got there. `examples/own-policy` is a
//! whole one.

pub mod answers;
pub mod checks;
pub mod choice;
pub mod extents;
pub mod facts;
pub mod heard;
mod ledger;
pub mod matrix;
pub mod order;
pub mod period;
pub mod seen;
pub mod source;
pub(crate) mod span;

pub use ledger::{Ledger, Moved, Stretch, Tally, Verdict, Why};

use crate::scale::Scale;
use crate::units::Picos;
use order::Order;
use seen::Seen;

/// Decides where memory is placed.
pub trait Policy {
    /// Takes in what was seen, oldest first; may be empty. The caller then asks
    /// [`Self::poll`] until there is nothing more.
    ///
    /// * `now` – the machine's clock; it never goes back.
    ///
    /// An order that the machine refused to take comes back as [`Seen::Done`] with
    /// nothing tried.
    fn handle(&mut self, now: Picos, seen: &[Seen]);

    /// The next order that is ready; `None` until the next [`Self::handle`].
    fn poll(&mut self) -> Option<Order>;

    /// When [`Self::handle`] wants to be called again even if nothing is seen; `None`
    /// where a second is soon enough.
    fn timeout(&self) -> Option<Picos>;

    /// Whether it has to be told how much nodes are loaded, as counters of memory controllers
    /// would tell it ([`seen::Seen::Node`]). No live source has them; samples tell it unasked.
    fn needs_load(&self) -> bool {
        false
    }

    /// Whether it wants to know how many loads of a process are under way at once
    /// ([`seen::Seen::Loads`]); asked before the first [`Self::handle`], and whenever it goes on
    /// after a pause. Where CPUs have no counters of that, nothing is told.
    fn needs_overlap(&self) -> bool {
        false
    }

    /// Whether it wants to know which memory huge pages map ([`seen::Seen::Huge`]); asked before the
    /// first [`Self::handle`]. Where the machine can't tell, nothing is told.
    fn needs_huge(&self) -> bool {
        false
    }

    /// How many threads its published code keeps busy all the time, whatever there is to do: they ask
    /// again and again and never sleep. A simulated machine runs so many where a column asks for it
    /// (specs/compare.md#busy); a live one runs none, since here none is needed.
    fn busy_threads(&self) -> u32 {
        0
    }

    /// What the machine stands for, told once before the first [`Self::handle`]: amounts that belong
    /// to a large machine's memory may be taken as a part of it. Who has none leaves it.
    fn stands_for(&mut self, scale: Scale) {
        let _ = scale;
    }

    /// One in how many accesses it wants sampled, asked after each [`Self::handle`]; `None`: as the
    /// source does by itself. [`seen::Seen::Sample`] says what each sample stood for.
    fn period(&self) -> Option<u64> {
        None
    }

    /// What was ordered, done and decided so far, for tables. [`Ledger::hand_out`] and
    /// [`Ledger::report`] keep the part of it that all policies have.
    fn ledger(&self) -> &Ledger;
}
