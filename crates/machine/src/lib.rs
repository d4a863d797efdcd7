//! What the engine drives.
//!
//! A [`Machine`] shows what happens and carries orders out; the simulated kernel is
//! one, Linux another. The engine never sees which.
//!
//! [`drive`] is the loop between the two. [`Faulty`] wraps any machine and spoils what
//! it says and does, as a seed tells it; [`Advised`] moves nothing and tells as if it did,
//! [`Acting`] notes what became of each move: both hand that on as [`Deed`]s. [`Limited`] keeps
//! away what the operator does not want. [`Recorded`] writes down what passes, [`Retold`] tells
//! it again.
//! [`conformance`] holds what every machine must do, as tests that are written once.
//! [`endtoend`] does the same for kernels: what a simulated one does is held against a
//! real one.
#![forbid(unsafe_code)]

/// Ends a body of rules with a finding where something does not hold.
macro_rules! hold {
    ($what:expr, $($text:tt)*) => {
        if !$what {
            return Err(format!($($text)*));
        }
    };
}

pub mod conformance;
pub mod endtoend;

mod acting;
mod advised;
mod deed;
mod drive;
mod faulty;
mod limited;
mod recorded;
mod retold;
#[cfg(test)]
mod told;

pub use acting::Acting;
pub use advised::Advised;
pub use deed::{Deed, Deeds};
pub use drive::drive;
pub use faulty::{FaultPlan, Faulty, Injected};
pub use limited::{Belongings, Gate, Limited, Refusals};
pub use recorded::{Notes, Recorded};
pub use retold::{Asked, Log, Retold};

use homenode_core::knobs::{Knob, KnobError};
use homenode_core::policy::order::{Act, Evidence, Order};
use homenode_core::policy::seen::{Seen, Source};
use homenode_core::topology;
use homenode_core::units::{NodeId, Picos};

/// What a machine offers. Fixed for its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The source of heat in use.
    pub source: Source,
    /// What that source never tells.
    pub lacks: Vec<Evidence>,
    /// Whether orders that move pages can be carried out.
    pub moves: bool,
    /// Whether threads can be brought to a node's CPUs.
    pub affinity: bool,
    /// Whether huge pages can be split.
    pub splits: bool,
    /// Whether knobs can be written.
    pub knobs: bool,
    /// Most pages that one order may name; bounds the time for which a process waits.
    pub most_pages: u64,
}

/// Why nothing can be seen. Loss and staleness are no errors: see [`Seen`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The machine has stopped: all programs have ended, or it ran into its limit.
    #[error("the machine has stopped")]
    Ended,
    /// The source broke; the text says how, for people.
    #[error("{0}")]
    Source(String),
}

/// Why an order was not taken. An order that was taken reports in [`Seen::Done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ApplyError {
    /// No such process (any more).
    #[error("no such process")]
    NoProcess,
    /// No such node, or one without memory.
    #[error("no such node, or it has no memory")]
    NoNode,
    /// Empty, overlapping or too large spans.
    #[error("the spans are empty, overlap, don't rise or are too large")]
    BadSpan,
    /// The machine does not do this: see [`Caps`].
    #[error("this machine does not do that")]
    Unable,
    /// Too many orders wait.
    #[error("too many orders wait")]
    Full,
    /// The operator's limits forbid it: see [`Limited`].
    #[error("the operator's limits forbid it")]
    Refused,
}

impl ApplyError {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::NoProcess, Self::NoNode, Self::BadSpan, Self::Unable, Self::Full, Self::Refused];
}

/// Whether what is ordered makes sense on a machine, whoever it is about: both nodes of a
/// move have memory; spans are there, not empty, rise and don't overlap; and a move, or a split,
/// names no more than `most_pages`.
///
/// # Errors
/// [`ApplyError::NoNode`], then [`ApplyError::BadSpan`].
pub fn sound(act: &Act, machine: &topology::Hardware, most_pages: u64) -> Result<(), ApplyError> {
    if let Act::Move { from, to, .. } = act {
        let there = |id: &NodeId| {
            machine.nodes.iter().find(|n| n.id == *id).is_some_and(|n| n.managed().0 > 0)
        };
        if !there(from) || !there(to) {
            return Err(ApplyError::NoNode);
        }
    }
    if matches!(act, Act::Look { .. } | Act::Move { .. } | Act::Split { .. }) {
        let spans = act.spans();
        let rising = spans.windows(2).all(|w| w[0].end <= w[1].start);
        let empty = spans.is_empty() || spans.iter().any(|s| s.end <= s.start);
        let pages = spans.iter().fold(0u64, |sum, s| sum.saturating_add(s.pages().0));
        let many = !matches!(act, Act::Look { .. }) && pages > most_pages;
        if !rising || empty || many {
            return Err(ApplyError::BadSpan);
        }
    }
    Ok(())
}

/// Reading or writing a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobOp<'a> {
    /// Its text.
    Read(Knob),
    /// Another text for it.
    Write(Knob, &'a str),
}

/// A machine that can be watched and told to act.
pub trait Machine {
    /// What it offers.
    fn caps(&self) -> &Caps;
    /// Its nodes, CPUs, links and costs, as far as they are known.
    fn topology(&self) -> &topology::Hardware;
    /// Its clock: time since boot.
    fn now(&self) -> Picos;
    /// Waits until that time, or less where there is something to say earlier, and
    /// appends what was seen, oldest first.
    ///
    /// # Errors
    /// [`ObserveError`]; what had been seen before is in `out` all the same.
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError>;
    /// Takes an order. Its result comes later, as [`Seen::Done`], exactly once.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing was or will be done.
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError>;
    /// Reads or writes a knob; its text afterwards.
    ///
    /// # Errors
    /// [`KnobError`], with nothing changed.
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError>;
    /// Samples one in `period` accesses from now on, where it can.
    fn sample_every(&mut self, period: u64) {
        let _ = period;
    }
    /// Counts from now on how many loads of the watched processes are under way at once, and tells
    /// it ([`Seen::Loads`]), where its CPUs have counters of that. Said again it changes nothing.
    fn count_overlap(&mut self) {}
    /// From now on a census tells which memory huge pages map ([`Seen::Huge`]), where the machine can.
    fn tell_huge(&mut self) {}
    /// Whoever decides has taken so much processor time for it, by its own estimate, beside taking in
    /// what was seen. A simulated machine spends it on the CPUs of its programs; on a real one it is
    /// gone already.
    fn thinks(&mut self, time: Picos) {
        let _ = time;
    }
}

/// A machine around another one, which it looks at or spoils: what it leaves alone goes
/// straight through.
pub trait Around {
    /// The machine inside.
    type Inner: Machine + ?Sized;
    /// The machine inside.
    fn inside(&self) -> &Self::Inner;
    /// The machine inside.
    fn inside_mut(&mut self) -> &mut Self::Inner;
    /// What becomes of [`Machine::wait`].
    ///
    /// # Errors
    /// As there.
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        self.inside_mut().wait(until, out)
    }
    /// What becomes of [`Machine::submit`].
    ///
    /// # Errors
    /// As there.
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        self.inside_mut().submit(order)
    }
}

impl<A: Around> Machine for A {
    fn caps(&self) -> &Caps {
        self.inside().caps()
    }
    fn topology(&self) -> &topology::Hardware {
        self.inside().topology()
    }
    fn now(&self) -> Picos {
        self.inside().now()
    }
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        self.on_wait(until, out)
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        self.on_submit(order)
    }
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError> {
        self.inside_mut().knob(op)
    }
    fn sample_every(&mut self, period: u64) {
        self.inside_mut().sample_every(period);
    }
    fn count_overlap(&mut self) {
        self.inside_mut().count_overlap();
    }
    fn tell_huge(&mut self) {
        self.inside_mut().tell_huge();
    }
    fn thinks(&mut self, time: Picos) {
        self.inside_mut().thinks(time);
    }
}

/// A machine that is lent is one too.
impl<M: Machine + ?Sized> Around for &mut M {
    type Inner = M;
    fn inside(&self) -> &M {
        self
    }
    fn inside_mut(&mut self) -> &mut M {
        self
    }
}
