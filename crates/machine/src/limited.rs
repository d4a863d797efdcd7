//! A machine that takes no move which its operator doesn't want.
//!
//! ```text
//! policy ──Move──▶ Limited ── excluded? floor? priority? held? ──▶ Advised | Acting
//!        ◀─Seen─── without those who are left alone ◀──────────────
//! ```
//!
//! It stands outermost, so that the same moves are admitted where they are only advised.
//! A refused move is one that the machine has not taken, and a policy deals with that anyway.
//! While moves are held (a trial's window without them) each is answered as if there were no
//! room: nothing is known against the pages, and they are tried again soon.
//!
//! What a group has is asked for each move down. The answer may be somewhat old, and where
//! nothing is moved it never changes: moves that it can't show yet are taken off.
//!
//! Source: specs/act.md#limits.

use crate::{ApplyError, Around, Deed, Deeds, Machine, ObserveError};
use homenode_core::limits::{Excluded, Limits, Refused, Whose, is_within};
use homenode_core::policy::order::{Act, Fails, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Who};
use homenode_core::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, BTreeSet};

/// Whose a process is may change: it is asked anew after this time, and for each move.
const ANEW: Picos = Picos::from_secs(10);
/// The number of orders of our own; a policy counts from 1 and gets nowhere near.
const OURS: OrderId = OrderId(u64::MAX);

/// Who knows whose processes are, and what groups have.
pub trait Belongings {
    /// Whose it is now; `None` if it is gone or can't be asked.
    fn whose(&mut self, who: Who) -> Option<Whose>;
    /// Pages that a cgroup, with all below it, has on some nodes; `None` if it is gone or
    /// nobody counts that.
    fn pages(&mut self, cgroup: &str, on: &BTreeSet<NodeId>) -> Option<Pages>;
}

/// Limits, and who can be asked what they are about.
pub struct Gate {
    /// The limits.
    pub limits: Limits,
    /// Who is asked; not at all where there are no limits.
    pub belongings: Box<dyn Belongings>,
    /// Fast nodes.
    pub fast: BTreeSet<NodeId>,
    /// After how long a move shows in what a group has; `None`: it never does, since
    /// nothing is moved.
    pub settles: Option<Picos>,
}

/// What was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Processes that were left alone, by the rule.
    pub excluded: BTreeMap<String, u64>,
    /// Moves by the group whose floor, or want of a count, forbade them.
    pub floor: BTreeMap<String, u64>,
    /// Moves by the group that gives way first.
    pub priority: BTreeMap<String, u64>,
}

/// A process that was told of.
#[derive(Clone, Debug)]
struct Known {
    excluded: bool,
    asked: Picos,
}

/// Pages that went down (or, less than none, came up) and may not be counted yet.
#[derive(Clone, Debug)]
struct Sent {
    cgroup: String,
    pages: i64,
    /// When that was reported; `None` on the way.
    at: Option<Picos>,
}

/// A machine within limits.
pub struct Limited<M> {
    inner: M,
    gate: Gate,
    held: bool,
    people: BTreeMap<Who, Known>,
    sent: BTreeMap<OrderId, Sent>,
    /// By cgroup, where nothing ever settles.
    wished: BTreeMap<String, i64>,
    /// Answers to moves that were held.
    answers: Vec<Seen>,
    refusals: Refusals,
}

impl<M: Machine> Limited<M> {
    /// Wraps a machine.
    pub fn new(inner: M, gate: Gate) -> Self {
        Self {
            inner,
            gate,
            held: false,
            people: BTreeMap::new(),
            sent: BTreeMap::new(),
            wished: BTreeMap::new(),
            answers: Vec::new(),
            refusals: Refusals::default(),
        }
    }
    /// The machine inside.
    pub fn into_inner(self) -> M {
        self.inner
    }
    /// From now on no move is taken, or moves are again.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }
    /// What was refused so far.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Why it is left alone; who can't be asked is, where somebody is to be.
    fn excludes(&mut self, who: Who) -> Option<String> {
        if self.gate.limits.excluded.is_empty() {
            return None;
        }
        match self.gate.belongings.whose(who) {
            None => Some("whose it is can't be told".to_owned()),
            Some(whose) => self.gate.limits.excludes(&whose).map(Excluded::to_string),
        }
    }

    /// Whether a process that was told of is hidden, and whether the policy has to be told
    /// that it is from now on.
    fn hides(&mut self, who: Who) -> (bool, bool) {
        let now = self.inner.now();
        let known = self.people.get(&who).cloned();
        if let Some(k) = known.as_ref().filter(|k| now < Picos(k.asked.0.saturating_add(ANEW.0))) {
            return (k.excluded, false);
        }
        let why = self.excludes(who);
        let excluded = why.is_some();
        let before = known.map(|k| k.excluded);
        if let Some(why) = why.filter(|_| before != Some(true)) {
            *self.refusals.excluded.entry(why).or_default() += 1;
        }
        self.people.insert(who, Known { excluded, asked: now });
        (excluded, excluded && before == Some(false))
    }

    /// Hands on what is to be seen.
    fn tell(&mut self, got: Vec<Seen>, out: &mut Vec<Seen>) {
        for seen in got {
            match seen {
                Seen::Task { who, .. } => match self.hides(who) {
                    (false, _) => out.push(seen),
                    (true, false) => {}
                    (true, true) => {
                        // It became somebody who is left alone: to the policy it has ended.
                        let act = Act::Unwatch { who };
                        let why = Reason::SourceNeeds;
                        let order = Order { id: OURS, act, expect: Default::default(), why };
                        // One that is not there any more need not be unwatched.
                        let _ = self.inner.submit(&order);
                        out.push(Seen::Gone { who });
                    }
                },
                Seen::Gone { who } => {
                    let known = self.people.remove(&who);
                    if known.is_none_or(|k| !k.excluded) {
                        out.push(seen);
                    }
                }
                Seen::Region { who, .. }
                | Seen::Fault { who, .. }
                | Seen::Sample { who, .. }
                | Seen::Loads { who, .. }
                | Seen::Huge { who, .. }
                | Seen::Resident { who, .. } => {
                    if self.people.get(&who).is_none_or(|k| !k.excluded) {
                        out.push(seen);
                    }
                }
                Seen::Done { order, moved, .. } => {
                    if order != OURS {
                        self.settle(order, moved);
                        out.push(seen);
                    }
                }
                Seen::Node { .. } | Seen::Lost { .. } | Seen::Stale { .. } => out.push(seen),
            }
        }
    }

    /// An order was reported.
    fn settle(&mut self, order: OrderId, moved: Pages) {
        let Some(mut sent) = self.sent.remove(&order) else { return };
        let moved = i64::try_from(moved.0).unwrap_or(i64::MAX);
        sent.pages = if sent.pages < 0 { -moved } else { moved };
        match self.gate.settles {
            None => *self.wished.entry(sent.cgroup).or_default() += sent.pages,
            // What came up is there once it is counted, and not before.
            Some(_) if sent.pages <= 0 => {}
            Some(_) => {
                sent.at = Some(self.inner.now());
                self.sent.insert(order, sent);
            }
        }
    }

    /// Whether an order may be carried out.
    fn admits(&mut self, order: &Order) -> Result<(), Refused> {
        let (who, way) = match order.act {
            Act::Move { who, from, to, ref spans } => (who, Some((from, to, spans))),
            Act::Split { who, .. } | Act::Affine { who, .. } => (who, None),
            Act::Watch { .. }
            | Act::Unwatch { .. }
            | Act::Census { .. }
            | Act::Look { .. }
            | Act::SetKnob { .. } => return Ok(()),
        };
        if self.gate.limits.is_empty() {
            return Ok(());
        }
        let unknown = || Refused::Unknown(format!("process {who}"));
        let whose = self.gate.belongings.whose(who).ok_or_else(unknown)?;
        if let Some(rule) = self.gate.limits.excludes(&whose) {
            return Err(Refused::Excluded(rule.clone()));
        }
        let Some((from, to, spans)) = way else { return Ok(()) };
        let Gate { limits, belongings, fast, settles } = &mut self.gate;
        let way = i64::from(fast.contains(&from)) - i64::from(fast.contains(&to));
        let named = spans.iter().fold(0u64, |n, s| n.saturating_add(s.pages().0));
        if way > 0 {
            let now = self.inner.now();
            if let Some(time) = *settles {
                let late = |at: Picos| now >= Picos(at.0.saturating_add(time.0));
                self.sent.retain(|_, s| !s.at.is_some_and(late));
            }
            let (sent, wished) = (&self.sent, &self.wished);
            limits.may_go_down(&whose, Pages(named), &mut |path| {
                let counted = belongings.pages(path, fast)?;
                let gone = sent.values().filter(|s| is_within(&s.cgroup, path));
                // What comes up may yet fail, so it doesn't count before it is there.
                let gone: i64 = gone.map(|s| s.pages.max(0)).sum();
                let wished = wished.iter().filter(|(cgroup, _)| is_within(cgroup, path));
                let all = gone + wished.map(|(_, pages)| *pages).sum::<i64>();
                let counted = i64::try_from(counted.0).unwrap_or(i64::MAX);
                Some(Pages(counted.saturating_sub(all).max(0).unsigned_abs()))
            })?;
        }
        if way != 0 {
            let pages = i64::try_from(named).unwrap_or(i64::MAX) * way;
            self.sent.insert(order.id, Sent { cgroup: whose.cgroup, pages, at: None });
        }
        Ok(())
    }
}

impl<M: Deeds> Deeds for Limited<M> {
    fn take_deeds(&mut self) -> Vec<Deed> {
        self.inner.take_deeds()
    }
}

impl<M: Machine> Around for Limited<M> {
    type Inner = M;
    fn inside(&self) -> &M {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        &mut self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        out.append(&mut self.answers);
        let mut got = Vec::new();
        let waited = self.inner.wait(until, &mut got);
        self.tell(got, out);
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        let moves = match &order.act {
            Act::Move { spans, .. } | Act::Split { spans, .. } => {
                Some(spans.iter().map(|s| s.pages()).sum())
            }
            // As one thread.
            Act::Affine { .. } => Some(Pages(1)),
            Act::Watch { .. }
            | Act::Unwatch { .. }
            | Act::Census { .. }
            | Act::Look { .. }
            | Act::SetKnob { .. } => None,
        };
        if let Some(tried) = moves.filter(|_| self.held) {
            let fails = Fails { no_room: tried, ..Fails::default() };
            let (order, moved, took) = (order.id, Pages::ZERO, Picos::ZERO);
            self.answers.push(Seen::Done { order, tried, moved, fails, took });
            return Ok(());
        }
        if let Err(why) = self.admits(order) {
            let (sums, name) = match why {
                Refused::Excluded(rule) => (&mut self.refusals.excluded, rule.to_string()),
                Refused::Floor(path) | Refused::Unknown(path) => (&mut self.refusals.floor, path),
                Refused::Priority(path) => (&mut self.refusals.priority, path),
            };
            *sums.entry(name).or_default() += 1;
            return Err(ApplyError::Refused);
        }
        let taken = self.inner.submit(order);
        if taken.is_err() {
            self.sent.remove(&order.id);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
