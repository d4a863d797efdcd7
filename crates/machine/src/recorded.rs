//! A machine that writes down what passes between it and what drives it.
//!
//! While it does, its clock stands still between two waits: what is decided depends on the time
//! that each call sees, and so the times of the waits are all that has to be written down.
//! Without notes it does nothing at all.
//!
//! Source: specs/advise.md#seen.

use crate::{ApplyError, Belongings, Caps, KnobOp, Machine, ObserveError};
use homenode_core::knobs::KnobError;
use homenode_core::limits::Whose;
use homenode_core::policy::heard::Heard;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::{Seen, Who};
use homenode_core::topology;
use homenode_core::units::{NodeId, Pages, Picos};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Where it is written down: one place for all that is heard, in its order.
#[derive(Clone)]
pub struct Notes(Rc<RefCell<Book>>);

struct Book {
    tell: Box<dyn FnMut(Heard)>,
    names: BTreeMap<Who, String>,
}

impl Notes {
    /// * `tell` – takes what is heard; what goes wrong there is its own to remember.
    pub fn new(tell: impl FnMut(Heard) + 'static) -> Self {
        Self(Rc::new(RefCell::new(Book { tell: Box::new(tell), names: BTreeMap::new() })))
    }
    /// Something was heard.
    pub fn tell(&self, heard: Heard) {
        (self.0.borrow_mut().tell)(heard);
    }
    /// A process has this name; told once, and when it changes.
    pub fn name(&self, who: Who, name: &str) {
        let mut book = self.0.borrow_mut();
        if book.names.get(&who).is_some_and(|known| known == name) {
            return;
        }
        book.names.insert(who, name.to_owned());
        (book.tell)(Heard::Named { who, name: name.to_owned() });
    }
    /// Who is asked whose processes are, with the answers written down.
    pub fn asking(&self, inner: Box<dyn Belongings>) -> Box<dyn Belongings> {
        Box::new(Asking { inner, notes: self.clone() })
    }
}

struct Asking {
    inner: Box<dyn Belongings>,
    notes: Notes,
}

impl Belongings for Asking {
    fn whose(&mut self, who: Who) -> Option<Whose> {
        let whose = self.inner.whose(who);
        self.notes.tell(Heard::Whose { who, whose: whose.clone() });
        whose
    }
    fn pages(&mut self, cgroup: &str, on: &BTreeSet<NodeId>) -> Option<Pages> {
        let pages = self.inner.pages(cgroup, on);
        self.notes.tell(Heard::Has { cgroup: cgroup.to_owned(), pages });
        pages
    }
}

/// A machine whose words are written down.
pub struct Recorded<M> {
    inner: M,
    notes: Option<Notes>,
    now: Picos,
}

impl<M: Machine> Recorded<M> {
    /// Wraps a machine.
    ///
    /// * `notes` – where it is written down, and what the clock says until the first wait.
    pub fn new(inner: M, notes: Option<(Notes, Picos)>) -> Self {
        let (notes, now) = notes.map_or((None, Picos::ZERO), |(notes, now)| (Some(notes), now));
        Self { inner, notes, now }
    }
    /// The machine inside.
    pub fn inside(&self) -> &M {
        &self.inner
    }
    /// The machine inside.
    pub fn into_inner(self) -> M {
        self.inner
    }
    /// Where it is written down, if it is.
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }
}

impl<M: Machine> Machine for Recorded<M> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn topology(&self) -> &topology::Hardware {
        self.inner.topology()
    }
    fn now(&self) -> Picos {
        if self.notes.is_some() { self.now } else { self.inner.now() }
    }
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let before = out.len();
        let waited = self.inner.wait(until, out);
        self.now = self.inner.now();
        if let Some(notes) = &self.notes {
            notes.tell(Heard::Waited { now: self.now, seen: out[before..].to_vec() });
        }
        waited
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        let taken = self.inner.submit(order);
        if let Some(notes) = &self.notes {
            let (act, refused) = (order.act.to_string(), taken.err().map(|e| e.to_string()));
            notes.tell(Heard::Ordered { order: order.id, act, refused });
        }
        taken
    }
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError> {
        self.inner.knob(op)
    }
    /// Not written down: each sample says what it stands for.
    fn sample_every(&mut self, period: u64) {
        self.inner.sample_every(period);
    }
    /// Not written down: what was counted says that it was.
    fn count_overlap(&mut self) {
        self.inner.count_overlap();
    }
    /// Not written down: what was told of huge pages says that it was.
    fn tell_huge(&mut self) {
        self.inner.tell_huge();
    }
    fn thinks(&mut self, time: Picos) {
        self.inner.thinks(time);
    }
}
