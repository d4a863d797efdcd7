//! A machine on which nothing is moved, and which tells as if it were.
//!
//! ```text
//!           Move: written down, reported as done
//! engine ──────────────────────────────────────▶ wishes
//!        ──Watch, Look──────────────▶ machine
//!        ◀─Resident, Node, Fault──┐      │
//!              as they would be   └──────┘ as they are
//! ```
//!
//! So an engine can be asked what it would do: it is told that its moves succeeded, and
//! from then on sees the pages where it wanted them, and the nodes with as much free
//! memory as that would leave. It goes on to what is next, and does not order the same
//! pages to the same node again and again.
//!
//! What no machine can tell before it tries stays unknown: pages that are busy, pinned
//! or bound count as moved, and heat stays what it is although faster memory would be
//! accessed more often. Both make the sum of what is expected an upper estimate of pages
//! and a lower one of accesses.
//!
//! Source: specs/advise.md#advised.

mod places;
#[cfg(test)]
mod tests;

use crate::{ApplyError, Around, Deed, Deeds, Machine, ObserveError, sound};
use homenode_core::policy::order::{Act, Fails, Order};
use homenode_core::policy::seen::{Seen, Span, Who, ZoneSeen};
use homenode_core::units::{NodeId, Pages, Picos};
use places::{Counts, Places};
use std::collections::{BTreeMap, BTreeSet};

/// Orders that may wait.
const MOST_ORDERS: usize = 1024;

/// What is known of a process that lives.
#[derive(Clone, Debug, Default)]
struct Person {
    places: Places,
    /// Nodes from which hint faults were told.
    faulted: BTreeSet<NodeId>,
    /// Where its threads were brought to.
    runs_on: Option<NodeId>,
}

/// A machine whose pages stay where they are.
#[derive(Debug)]
pub struct Advised<M> {
    inner: M,
    people: BTreeMap<Who, Person>,
    /// Taken and not reported yet.
    waiting: Vec<Order>,
    /// When all that waits would be done.
    ready: Picos,
    wishes: Vec<Deed>,
}

impl<M: Machine> Advised<M> {
    /// Wraps a machine. It need not be able to move pages: nothing of [`Act::Move`]
    /// gets to it.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            people: BTreeMap::new(),
            waiting: Vec::new(),
            ready: Picos::ZERO,
            wishes: Vec::new(),
        }
    }
    /// The machine inside, with everything wished forgotten.
    pub fn into_inner(self) -> M {
        self.inner
    }
    /// Reports what waits, as if it had been carried out.
    fn report(&mut self, out: &mut Vec<Seen>) {
        let at = self.inner.now();
        for order in std::mem::take(&mut self.waiting) {
            if let Act::Affine { who, node } = order.act {
                self.bring(at, order, who, node, out);
                continue;
            }
            let Act::Move { who, spans, from, to } = &order.act else { continue };
            let all = named(spans);
            let mut fails = Fails::default();
            let (mut tried, mut moved) = (all, Pages::ZERO);
            match self.people.get_mut(who) {
                None => fails.gone = all,
                Some(person) => {
                    let pages = spans.iter().map(|s| person.places.order(*s, *from, *to)).sum();
                    if pages == 0 {
                        // Nothing is known to be there; the engine will look again.
                        fails.absent = all;
                    } else {
                        (tried, moved) = (Pages(pages), Pages(pages));
                    }
                }
            }
            let (id, took) = (order.id, order.expect.costs);
            if moved.0 > 0 {
                self.wishes.push(Deed { at, order, tried, moved, fails, took });
            }
            out.push(Seen::Done { order: id, tried, moved, fails, took });
        }
    }

    /// Tells of a process's threads from now on as if they ran there.
    fn bring(&mut self, at: Picos, order: Order, who: Who, node: NodeId, out: &mut Vec<Seen>) {
        let (id, took) = (order.id, Picos::ZERO);
        let (tried, mut moved, mut fails) = (Pages(1), Pages(1), Fails::default());
        match self.people.get_mut(&who) {
            None => (moved, fails.gone) = (Pages::ZERO, tried),
            Some(person) => {
                person.runs_on = Some(node);
                self.wishes.push(Deed { at, order, tried, moved, fails, took });
            }
        }
        out.push(Seen::Done { order: id, tried, moved, fails, took });
    }

    /// Hands on what the machine told, as it would be.
    fn tell(&mut self, got: Vec<Seen>, out: &mut Vec<Seen>) {
        let mut got = got.into_iter().peekable();
        while let Some(seen) = got.next() {
            match seen {
                Seen::Resident { who, span, on, pages } => {
                    let mut counts = Counts::from([(on, pages.0)]);
                    // One report a node.
                    while let Some(Seen::Resident { who: w, span: s, on: n, .. }) = got.peek() {
                        if (*w, *s) != (who, span) || counts.contains_key(n) {
                            break;
                        }
                        if let Some(Seen::Resident { on, pages, .. }) = got.next() {
                            counts.insert(on, pages.0);
                        }
                    }
                    let shown = match self.people.get_mut(&who) {
                        Some(person) => person.places.told(span, counts),
                        None => counts,
                    };
                    let tell = |on, pages| Seen::Resident { who, span, on, pages };
                    if shown.is_empty() {
                        out.push(tell(on, Pages::ZERO));
                    }
                    out.extend(shown.into_iter().map(|(on, n)| tell(on, Pages(n))));
                }
                Seen::Fault { who, vpn, from, on, after } => {
                    let on = match self.people.get_mut(&who) {
                        None => Some(on),
                        Some(person) => person.fault(vpn, on),
                    };
                    out.extend(on.map(|on| Seen::Fault { who, vpn, from, on, after }));
                }
                Seen::Node { node, mut zones, load, idle } => {
                    let more = self
                        .people
                        .values_mut()
                        .filter_map(|p| p.places.freed().get(&node))
                        .fold(0i64, |sum, n| sum.saturating_add(*n));
                    shift(&mut zones, more);
                    out.push(Seen::Node { node, zones, load, idle });
                }
                Seen::Task { who, ran, node, resident } => {
                    if !self.people.contains_key(&who) {
                        // The PID means another process now.
                        self.people.retain(|w, _| w.pid != who.pid);
                        self.people.insert(who, Person::default());
                    }
                    let node = self.people.get(&who).and_then(|p| p.runs_on).or(node);
                    out.push(Seen::Task { who, ran, node, resident });
                }
                // A thread that was brought would access from there.
                Seen::Sample { who, vpn, from, period } => {
                    let from = self.people.get(&who).and_then(|p| p.runs_on).unwrap_or(from);
                    out.push(Seen::Sample { who, vpn, from, period });
                }
                Seen::Gone { who } => {
                    self.people.remove(&who);
                    out.push(seen);
                }
                _ => out.push(seen),
            }
        }
    }
}

impl Person {
    /// The node that a hint fault's page would be on. `None` where the kernel marks nothing
    /// on that node, so that there would be no fault: under tiering it marks slow nodes only,
    /// and a fault from a fast one would tell the engine that silence there means cold.
    fn fault(&mut self, vpn: u64, on: NodeId) -> Option<NodeId> {
        self.faulted.insert(on);
        let shown = self.places.told_page(vpn, on);
        self.faulted.contains(&shown).then_some(shown)
    }
}

/// Only moves that would have moved something.
impl<M: Machine> Deeds for Advised<M> {
    fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.wishes)
    }
}

impl<M: Machine> Around for Advised<M> {
    type Inner = M;
    fn inside(&self) -> &M {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        &mut self.inner
    }
    /// Returns early once all that waits would be done.
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let idle = self.waiting.is_empty();
        let end = if idle { until } else { until.min(self.ready.max(self.inner.now())) };
        let mut got = Vec::new();
        let waited = self.inner.wait(end, &mut got);
        if waited.is_err() || self.inner.now() >= self.ready {
            self.report(out);
        }
        self.tell(got, out);
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        match &order.act {
            Act::Move { who, .. } => {
                sound(&order.act, self.inner.topology(), self.inner.caps().most_pages)?;
                if !self.people.contains_key(who) {
                    return Err(ApplyError::NoProcess);
                }
                if self.waiting.len() >= MOST_ORDERS {
                    return Err(ApplyError::Full);
                }
                // One after the other, as a machine does them.
                let begin = self.inner.now().max(self.ready);
                self.ready = Picos(begin.0.saturating_add(order.expect.costs.0));
                self.waiting.push(order.clone());
                Ok(())
            }
            Act::Look { who, spans } => {
                let Some(person) = self.people.get(who) else { return self.inner.submit(order) };
                // Two orders' borders are not to be blurred. Nonsense is the machine's to refuse.
                let spans = spans
                    .iter()
                    .flat_map(|s| if s.start < s.end { person.places.parts(*s) } else { vec![*s] })
                    .collect();
                let act = Act::Look { who: *who, spans };
                self.inner.submit(&Order { act, ..order.clone() })
            }
            Act::Affine { who, node } => {
                if !self.inner.topology().has_cpu(*node) {
                    return Err(ApplyError::NoNode);
                }
                if !self.people.contains_key(who) {
                    return Err(ApplyError::NoProcess);
                }
                self.ready = self.ready.max(self.inner.now());
                self.waiting.push(order.clone());
                Ok(())
            }
            // Nothing else is done to the machine either.
            Act::Split { .. } | Act::SetKnob { .. } => Err(ApplyError::Unable),
            Act::Watch { .. } | Act::Unwatch { .. } | Act::Census { .. } => {
                self.inner.submit(order)
            }
        }
    }
}

fn named(spans: &[Span]) -> Pages {
    Pages(spans.iter().fold(0, |sum, s| sum.saturating_add(s.pages().0)))
}

/// So many pages more are free, in the largest zone as far as they fit.
fn shift(zones: &mut [ZoneSeen], more: i64) {
    let mut order: Vec<usize> = (0..zones.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(zones[i].marks.managed));
    let mut rest = more.unsigned_abs();
    for i in order {
        let z = &mut zones[i];
        let n = if more < 0 { z.free.0 } else { z.marks.managed.0.saturating_sub(z.free.0) };
        let n = n.min(rest);
        z.free = Pages(if more < 0 { z.free.0 - n } else { z.free.0 + n });
        rest -= n;
    }
}
