//! What passes between a machine and what drives it, call by call, so that it can be written
//! down and told again.
//!
//! ```text
//! wait      ▶ Waited    what the clock said afterwards, and what was seen
//! submit    ▶ Ordered   what, and why it was not taken
//! whose?    ▶ Whose     asked where an operator has limits
//! has?      ▶ Has
//!             Moved     a move that was to be made, as the policy ordered it
//!             Named     what people call a process
//! ```
//!
//! The order of these is the order of the calls. Who tells them again needs no clock.
//!
//! Source: specs/advise.md#seen.

use super::order::OrderId;
use super::seen::Seen;
use super::span::Who;
use crate::limits::Whose;
use crate::units::{Pages, Picos};

/// One call, with what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A wait is over.
    Waited {
        /// What the machine's clock says from now on.
        now: Picos,
        /// What was seen, oldest first.
        seen: Vec<Seen>,
    },
    /// An order was handed to the machine.
    Ordered {
        /// Its number.
        order: OrderId,
        /// What it is, in words.
        act: String,
        /// Why it was not taken; `None` if it was.
        refused: Option<String>,
    },
    /// A move that was ordered and counted as made, in words.
    Moved {
        /// Its number.
        order: OrderId,
        /// What it is, in words.
        act: String,
    },
    /// It was asked whose a process is.
    Whose {
        /// Which.
        who: Who,
        /// The answer; `None`: it was gone, or could not be asked.
        whose: Option<Whose>,
    },
    /// It was asked how much a cgroup has on fast nodes.
    Has {
        /// Which.
        cgroup: String,
        /// The answer; `None`: nobody counts that, or it was gone.
        pages: Option<Pages>,
    },
    /// What people call a process.
    Named {
        /// Which.
        who: Who,
        /// Its name.
        name: String,
    },
}
