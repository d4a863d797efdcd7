//! What became of moves.

use crate::Machine;
use homenode_core::policy::order::{Fails, Order};
use homenode_core::units::{Pages, Picos};

/// A move that was carried out; or, where nothing is, one that would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// When its end was told, by the machine's clock.
    pub at: Picos,
    /// The order; it moves pages, or brings threads.
    pub order: Order,
    /// Pages (or threads) that were tried.
    pub tried: Pages,
    /// Those that got there.
    pub moved: Pages,
    /// The others by cause.
    pub fails: Fails,
    /// Time that it took.
    pub took: Picos,
}

/// A machine that notes what became of moves.
pub trait Deeds: Machine {
    /// Those since the last call, oldest first. They grow until they are taken.
    fn take_deeds(&mut self) -> Vec<Deed>;
}
