//! The course of observing: looks, watched processes, a row per process and period.
//!
//! ```text
//! |──── period ────|──── period ────|──      a row each at the ends
//! |──|──|──|──|──|─|──|──|──                 a look each second, where a source tells
//! ```
//!
//! It knows no machine: the simulated one is observed by the same code.

use super::sampled::{Change, Sampled};
use homenode_core::engine::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::engine::seen::{Seen, Who};
use homenode_core::units::Picos;
use homenode_core::view::{Row, Totals, View};
use homenode_machine::{Machine, ObserveError};

/// What observing is made of.
pub(super) struct Course<M> {
    pub(super) machine: M,
    view: View,
    sampled: Sampled,
    period: Picos,
    /// Time between two looks, at most a period.
    step: Picos,
    /// End of the running period.
    next: Picos,
    ids: u64,
    /// Whether the first look was made.
    met: bool,
    /// Whether it ends with the last process.
    ends: bool,
    seen: Vec<Seen>,
}

/// How a period came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is over.
    Over,
    /// Somebody wants to stop in the middle of it.
    Stopped,
    /// Nobody is left.
    Empty,
    /// Nothing more can be seen; a sentence, if something broke.
    Broken(Option<String>),
}

impl<M: Machine> Course<M> {
    /// * `step` – time between two looks.
    /// * `most` – processes that are watched at a time.
    /// * `ends` – whether it ends with the last process.
    pub(super) fn new(
        machine: M,
        view: View,
        period: Picos,
        step: Picos,
        most: usize,
        ends: bool,
    ) -> Self {
        let next = machine.now() + period;
        let sampled = Sampled::new(most);
        Self {
            machine,
            view,
            sampled,
            period,
            step,
            next,
            ids: 0,
            met: false,
            ends,
            seen: Vec::new(),
        }
    }

    /// Looks until the period is over.
    ///
    /// * `pause` – waits until that time or a little less; `None` if it is to stop.
    /// * `names` – what people call the processes that were seen last.
    pub(super) fn period(
        &mut self,
        pause: &mut dyn FnMut(&M, Picos) -> Option<()>,
        names: &dyn Fn(&M, &mut dyn FnMut(Who, &str)),
    ) -> Turn {
        loop {
            let now = self.machine.now();
            if self.met && now >= self.next {
                break;
            }
            // The first look is made at once: who is there now is to be watched.
            let until = if self.met { (now + self.step).min(self.next) } else { now };
            if pause(&self.machine, until).is_none() {
                self.look(self.machine.now(), names);
                return Turn::Stopped;
            }
            if let Some(end) = self.look(until, names) {
                return end;
            }
            if !self.met {
                self.met = true;
                self.next = self.machine.now() + self.period;
            }
            if self.ends && self.view.is_empty() {
                return Turn::Empty;
            }
        }
        let changes = self.sampled.exchange();
        self.order(changes);
        // A period that came late makes the next one shorter, or is left out.
        while self.next <= self.machine.now() {
            self.next += self.period;
        }
        Turn::Over
    }

    /// The rows of the period that is over.
    pub(super) fn rows(&mut self) -> Vec<Row> {
        self.view.rows(self.machine.now())
    }
    pub(super) fn totals(&self) -> Totals {
        self.view.totals()
    }
    /// Since when the source is silent, if it is.
    pub(super) fn silent(&self) -> Option<Picos> {
        self.view.silent()
    }
    /// Processes that live, and those of them that are watched.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.view.len(), self.sampled.len())
    }

    fn look(
        &mut self,
        until: Picos,
        names: &dyn Fn(&M, &mut dyn FnMut(Who, &str)),
    ) -> Option<Turn> {
        self.seen.clear();
        let waited = self.machine.wait(until, &mut self.seen);
        self.view.handle(self.machine.now(), &self.seen);
        let view = &mut self.view;
        names(&self.machine, &mut |who, name| view.name(who, name));
        self.sampled.see(&self.seen);
        match waited {
            Ok(()) => {}
            Err(ObserveError::Ended) => return Some(Turn::Broken(None)),
            Err(ObserveError::Source(text)) => return Some(Turn::Broken(Some(text))),
        }
        let changes = self.sampled.fill();
        if self.order(changes) {
            // Orders are carried out when it is waited.
            self.seen.clear();
            let now = self.machine.now();
            if let Err(ObserveError::Source(text)) = self.machine.wait(now, &mut self.seen) {
                return Some(Turn::Broken(Some(text)));
            }
            self.view.handle(self.machine.now(), &self.seen);
            self.sampled.see(&self.seen);
        }
        None
    }

    /// Whether any order was taken. One that isn't is for a process that has just ended, or
    /// one of too many at once: it is watched at a later look.
    fn order(&mut self, changes: Vec<Change>) -> bool {
        let mut taken = false;
        for change in changes {
            self.ids += 1;
            let act = match change {
                Change::Watch(who) => Act::Watch { who },
                Change::Unwatch(who) => Act::Unwatch { who },
            };
            let (id, expect, why) = (OrderId(self.ids), Benefit::default(), Reason::SourceNeeds);
            match (self.machine.submit(&Order { id, act, expect, why }), change) {
                (Ok(()), _) => taken = true,
                (Err(_), Change::Watch(who)) => self.sampled.failed(who),
                (Err(_), Change::Unwatch(_)) => {}
            }
        }
        taken
    }
}
