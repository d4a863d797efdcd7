//! A machine that carries orders out, and notes what became of those that move pages.

use crate::{ApplyError, Around, Deed, Deeds, Machine, ObserveError};
use homenode_core::policy::order::{Act, Order, OrderId};
use homenode_core::policy::seen::Seen;
use homenode_core::units::Picos;
use std::collections::BTreeMap;

/// A machine that is watched at work.
#[derive(Debug)]
pub struct Acting<M> {
    inner: M,
    /// Moves, of pages or threads, that were taken and have not reported.
    open: BTreeMap<OrderId, Order>,
    deeds: Vec<Deed>,
}

impl<M: Machine> Acting<M> {
    /// Wraps a machine.
    pub fn new(inner: M) -> Self {
        Self { inner, open: BTreeMap::new(), deeds: Vec::new() }
    }
    /// The machine inside, with all that was noted forgotten.
    pub fn into_inner(self) -> M {
        self.inner
    }
}

impl<M: Machine> Deeds for Acting<M> {
    fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }
}

impl<M: Machine> Around for Acting<M> {
    type Inner = M;
    fn inside(&self) -> &M {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        &mut self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let before = out.len();
        let waited = self.inner.wait(until, out);
        let at = self.inner.now();
        for seen in &out[before..] {
            let Seen::Done { order, tried, moved, fails, took } = *seen else { continue };
            if let Some(order) = self.open.remove(&order) {
                self.deeds.push(Deed { at, order, tried, moved, fails, took });
            }
        }
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        self.inner.submit(order)?;
        if matches!(order.act, Act::Move { .. } | Act::Affine { .. }) {
            self.open.insert(order.id, order.clone());
        }
        Ok(())
    }
}
