//! A machine that fails: what it says gets lost or late, what it is asked for is
//! refused or done by half, processes seem to end, the source falls silent.
//!
//! Faults are drawn from a seed, so that a run repeats exactly. What it says stays
//! true in one respect: every order that was taken has one report, whose counts add
//! up and say what was really moved.

use crate::{ApplyError, Around, Machine, ObserveError};
use homenode_core::policy::order::{Act, Order, OrderId};
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::splitmix::SplitMix;
use homenode_core::units::{Pages, Picos};
use std::collections::{BTreeMap, BTreeSet};

/// Which faults, and how often: each in thousandths, 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Chooses among them.
    pub seed: u64,
    /// Of orders: refused, as if too many waited.
    pub refuse: u32,
    /// Of regions, faults and samples: lost, and counted in [`Seen::Lost`].
    pub lose: u32,
    /// Of reports of orders: up to a second late.
    pub delay: u32,
    /// Of moves: only a part is tried, the rest is busy.
    pub partial: u32,
    /// Of waits: a process that was seen ends as far as anybody can tell.
    pub vanish: u32,
    /// Of waits: the source says nothing for one to five seconds ([`Seen::Stale`]).
    pub silence: u32,
}

/// Faults that have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Orders refused.
    pub refused: u64,
    /// Events lost.
    pub lost: u64,
    /// Reports delayed.
    pub delayed: u64,
    /// Moves cut.
    pub cut: u64,
    /// Processes made to vanish.
    pub vanished: u64,
    /// Silences.
    pub silences: u64,
}

/// A machine with faults of its own.
#[derive(Debug)]
pub struct Faulty<M> {
    inner: M,
    plan: FaultPlan,
    random: SplitMix,
    /// Reports that come later, by when.
    held: Vec<(Picos, Seen)>,
    /// Pages that a move was cut by.
    cut: BTreeMap<OrderId, Pages>,
    vanished: BTreeSet<Who>,
    /// The silence: since when and until when.
    silent: Option<(Picos, Picos)>,
    injected: Injected,
}

impl<M: Machine> Faulty<M> {
    /// Wraps a machine.
    pub fn new(inner: M, plan: FaultPlan) -> Self {
        Self {
            inner,
            random: SplitMix::new(plan.seed),
            plan,
            held: Vec::new(),
            cut: BTreeMap::new(),
            vanished: BTreeSet::new(),
            silent: None,
            injected: Injected::default(),
        }
    }
    /// What has been done to it.
    pub fn injected(&self) -> Injected {
        self.injected
    }
    /// The next random number.
    fn bits(&mut self) -> u64 {
        self.random.next()
    }
    fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }
    fn strikes(&mut self, permille: u32) -> bool {
        // No draw where there is nothing to decide: the others' stay the same.
        permille > 0 && self.below(1000) < u64::from(permille)
    }
    fn spoil(&mut self, got: Vec<Seen>, out: &mut Vec<Seen>) {
        let now = self.inner.now();
        if self.silent.is_some_and(|(_, until)| until <= now) {
            self.silent = None;
        }
        if self.silent.is_none() && self.strikes(self.plan.silence) {
            self.injected.silences += 1;
            self.silent = Some((now, now + Picos::from_ms(1000 + self.below(4000))));
        }
        let mut lost = 0;
        let mut alive = Vec::new();
        for seen in got {
            if who_of(&seen).is_some_and(|w| self.vanished.contains(&w)) {
                continue;
            }
            match seen {
                Seen::Done { order, tried, moved, mut fails, took } => {
                    let cut = self.cut.remove(&order).unwrap_or_default();
                    fails.busy += cut;
                    let done = Seen::Done { order, tried: tried + cut, moved, fails, took };
                    if self.strikes(self.plan.delay) {
                        self.injected.delayed += 1;
                        let later = now + Picos::from_ms(1 + self.below(1000));
                        self.held.push((later, done));
                    } else {
                        out.push(done);
                    }
                }
                Seen::Region { .. } | Seen::Fault { .. } | Seen::Sample { .. } => {
                    if self.silent.is_some() || self.strikes(self.plan.lose) {
                        lost += 1;
                    } else {
                        out.push(seen);
                    }
                }
                Seen::Task { who, .. } => {
                    alive.push(who);
                    out.push(seen);
                }
                Seen::Loads { .. }
                | Seen::Huge { .. }
                | Seen::Gone { .. }
                | Seen::Resident { .. }
                | Seen::Node { .. }
                | Seen::Lost { .. }
                | Seen::Stale { .. } => out.push(seen),
            }
        }
        if let Some((since, _)) = self.silent {
            out.push(Seen::Stale { since });
        } else if lost > 0 {
            out.push(Seen::Lost { events: lost });
        }
        self.injected.lost += lost;
        if !alive.is_empty() && self.strikes(self.plan.vanish) {
            let who = alive[self.below(alive.len() as u64) as usize];
            self.injected.vanished += 1;
            self.vanished.insert(who);
            out.push(Seen::Gone { who });
        }
    }
    fn release(&mut self, now: Picos, out: &mut Vec<Seen>) {
        let due: Vec<(Picos, Seen)>;
        (due, self.held) = std::mem::take(&mut self.held).into_iter().partition(|h| h.0 <= now);
        out.extend(due.into_iter().map(|(_, seen)| seen));
    }
}

impl<M: Machine> Around for Faulty<M> {
    type Inner = M;
    fn inside(&self) -> &M {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        &mut self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let mut got = Vec::new();
        let first = self.held.iter().map(|h| h.0).min().unwrap_or(until);
        let waited = self.inner.wait(until.min(first), &mut got);
        self.spoil(got, out);
        let now = if waited.is_err() { Picos(u64::MAX) } else { self.inner.now() };
        self.release(now, out);
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        if order.act.who().is_some_and(|w| self.vanished.contains(&w)) {
            return Err(ApplyError::NoProcess);
        }
        if self.strikes(self.plan.refuse) {
            self.injected.refused += 1;
            return Err(ApplyError::Full);
        }
        if let Act::Move { who, spans, from, to } = &order.act {
            let all: u64 = spans.iter().map(|s| s.pages().0).sum();
            if all > 1 && self.strikes(self.plan.partial) {
                let keep = 1 + self.below(all - 1);
                let spans = first_pages(spans, keep);
                let act = Act::Move { who: *who, spans, from: *from, to: *to };
                self.inner.submit(&Order { act, ..order.clone() })?;
                self.injected.cut += 1;
                self.cut.insert(order.id, Pages(all - keep));
                return Ok(());
            }
        }
        self.inner.submit(order)
    }
}

/// Whom something that was seen is about.
fn who_of(seen: &Seen) -> Option<Who> {
    match seen {
        Seen::Task { who, .. }
        | Seen::Gone { who }
        | Seen::Region { who, .. }
        | Seen::Fault { who, .. }
        | Seen::Sample { who, .. }
        | Seen::Loads { who, .. }
        | Seen::Huge { who, .. }
        | Seen::Resident { who, .. } => Some(*who),
        Seen::Node { .. } | Seen::Done { .. } | Seen::Lost { .. } | Seen::Stale { .. } => None,
    }
}

/// The first `n` pages of some spans.
fn first_pages(spans: &[Span], mut n: u64) -> Vec<Span> {
    let mut first = Vec::new();
    for s in spans {
        if n == 0 {
            break;
        }
        let take = n.min(s.pages().0);
        first.push(Span { start: s.start, end: s.start + take });
        n -= take;
    }
    first
}
