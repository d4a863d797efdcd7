//! A machine that tells again what another one has told.
//!
//! ```text
//! recorded    Waited 1.0 s   Ordered look [0,64)   Waited 1.1 s {Resident, Done}
//! told again  wait ▶ 1.0 s   submit ▶ as it was    wait ▶ 1.1 s {Resident, Done}
//! ```
//!
//! As long as who drives it asks what was asked then, it gets what was answered then. Where it
//! first asks something else, that is noted; from there on looks are answered from what had been
//! told until then: the last look that covers a place, shared out evenly within what was one
//! report. What was never told stays unknown, but where a census says that all of a process is on
//! one node. What an observation asked for (it has no policy) is answered like that from the start.
//!
//! It carries nothing out. Around what moved nothing then [`crate::Advised`] stands; what moved then
//! is told again with what became of it, and a move that was not ordered then is answered from what
//! is known, as if it had been made.
//!
//! Source: specs/advise.md#seen.

mod known;
#[cfg(test)]
mod tests;

use crate::{ApplyError, Belongings, Caps, KnobOp, Machine, ObserveError, sound};
use homenode_core::knobs::{Errno, KnobError};
use homenode_core::limits::Whose;
use homenode_core::policy::heard::Heard;
use homenode_core::policy::order::{Act, Fails, Order, OrderId};
use homenode_core::policy::seen::{Seen, Who};
use homenode_core::topology;
use homenode_core::units::{NodeId, Pages, Picos};
use known::Known;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::rc::Rc;

/// Who asked for what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A policy: the same one asks for the same again.
    ByPolicy,
    /// Somebody who only looked.
    ByObserver,
}

/// What was recorded, as far as it has not been told yet. Whoever tells of it has a share.
#[derive(Clone)]
pub struct Log(Rc<RefCell<Rest>>);

type Lines = Box<dyn Iterator<Item = Result<Heard, String>>>;

struct Rest {
    lines: Peekable<Lines>,
    asked: Asked,
    names: BTreeMap<Who, String>,
    /// The answers of then, for who asks otherwise.
    whose: BTreeMap<Who, Option<Whose>>,
    has: BTreeMap<String, Option<Pages>>,
    /// Where what was asked first differed.
    differs: Option<String>,
    /// Why nothing more can be read.
    broke: Option<String>,
    now: Picos,
}

impl Rest {
    /// What comes next. Names are kept on the way.
    fn peek(&mut self) -> Option<&Heard> {
        while let Some(Ok(Heard::Named { .. })) = self.lines.peek() {
            if let Some(Ok(Heard::Named { who, name })) = self.lines.next() {
                self.names.insert(who, name);
            }
        }
        if let Some(Err(_)) = self.lines.peek() {
            self.broke = self.lines.next().and_then(Result::err).or(self.broke.take());
            self.lines = (Box::new(std::iter::empty()) as Lines).peekable();
        }
        self.lines.peek().and_then(|line| line.as_ref().ok())
    }
    fn next(&mut self) -> Option<Heard> {
        self.peek()?;
        self.lines.next()?.ok()
    }
    /// The next one, if it is so.
    fn next_if(&mut self, is: impl Fn(&Heard) -> bool) -> Option<Heard> {
        if self.peek().is_some_and(is) { self.next() } else { None }
    }
    /// Something else was asked than then.
    fn differ(&mut self, is: &str) {
        if self.differs.is_some() || self.asked == Asked::ByObserver {
            return;
        }
        let then = match self.peek() {
            None | Some(Heard::Waited { .. } | Heard::Named { .. }) => "nothing".to_owned(),
            Some(Heard::Ordered { order, act, .. } | Heard::Moved { order, act }) => {
                format!("#{} {act}", order.0)
            }
            Some(Heard::Whose { who, .. }) => format!("whose {who} is"),
            Some(Heard::Has { cgroup, .. }) => format!("what {cgroup} has"),
        };
        let at = self.now.as_secs_f64();
        self.differs = Some(format!("at {at:.3} s it was {then}, and now it is {is}"));
    }
}

impl Log {
    /// * `lines` – what was heard, or why no more of it can be read.
    pub fn new(lines: impl Iterator<Item = Result<Heard, String>> + 'static, asked: Asked) -> Self {
        let lines: Lines = Box::new(lines);
        Self(Rc::new(RefCell::new(Rest {
            lines: lines.peekable(),
            asked,
            names: BTreeMap::new(),
            whose: BTreeMap::new(),
            has: BTreeMap::new(),
            differs: None,
            broke: None,
            now: Picos::ZERO,
        })))
    }
    /// Whether all of it was told.
    pub fn is_over(&self) -> bool {
        self.0.borrow_mut().peek().is_none()
    }
    /// Where what was asked, or was to be moved, first differed from then.
    pub fn differs(&self) -> Option<String> {
        self.0.borrow().differs.clone()
    }
    /// Why no more of it could be read, if something is wrong with it.
    pub fn broke(&self) -> Option<String> {
        self.0.borrow().broke.clone()
    }
    /// Everybody's name so far.
    pub fn names(&self) -> BTreeMap<Who, String> {
        self.0.borrow().names.clone()
    }
    /// A move counts as made now: was it one then?
    pub fn moved(&self, order: &Order) {
        let (id, text) = (order.id, order.act.to_string());
        let mut rest = self.0.borrow_mut();
        let same =
            |h: &Heard| matches!(h, Heard::Moved { order, act } if *order == id && *act == text);
        if rest.next_if(same).is_none() {
            rest.differ(&format!("#{} {text}", id.0));
        }
    }
    /// Who answers whose processes are as it was answered then.
    pub fn belongings(&self) -> Box<dyn Belongings> {
        Box::new(self.clone())
    }
}

impl Belongings for Log {
    fn whose(&mut self, who: Who) -> Option<Whose> {
        let mut rest = self.0.borrow_mut();
        match rest.next_if(|h| matches!(h, Heard::Whose { who: w, .. } if *w == who)) {
            Some(Heard::Whose { whose, .. }) => {
                rest.whose.insert(who, whose.clone());
                whose
            }
            _ => {
                rest.differ(&format!("whose {who} is"));
                rest.whose.get(&who).cloned().flatten()
            }
        }
    }
    fn pages(&mut self, cgroup: &str, _: &BTreeSet<NodeId>) -> Option<Pages> {
        let mut rest = self.0.borrow_mut();
        match rest.next_if(|h| matches!(h, Heard::Has { cgroup: c, .. } if c == cgroup)) {
            Some(Heard::Has { pages, .. }) => {
                rest.has.insert(cgroup.to_owned(), pages);
                pages
            }
            _ => {
                rest.differ(&format!("what {cgroup} has"));
                rest.has.get(cgroup).copied().flatten()
            }
        }
    }
}

/// A machine of what was recorded.
pub struct Retold {
    caps: Caps,
    topology: topology::Hardware,
    log: Log,
    now: Picos,
    people: BTreeMap<Who, Known>,
    /// Orders that were taken then too: what became of them comes from the recording.
    open: BTreeSet<OrderId>,
    /// Our own answers.
    answers: Vec<Seen>,
}

impl Retold {
    /// * `began` – what the clock said before the first wait.
    pub fn new(caps: Caps, topology: topology::Hardware, began: Picos, log: Log) -> Self {
        let (people, open, answers) = Default::default();
        Self { caps, topology, log, now: began, people, open, answers }
    }

    /// Takes in what is told, without what became of orders that were not given.
    fn tell(&mut self, seen: Vec<Seen>, out: &mut Vec<Seen>) {
        let mut last = None;
        for seen in seen {
            match seen {
                Seen::Task { who, .. } => {
                    self.people.retain(|w, _| w.pid != who.pid || *w == who);
                    self.people.entry(who).or_default();
                }
                Seen::Gone { who } => {
                    self.people.remove(&who);
                }
                Seen::Resident { who, span, on, pages } => {
                    if let Some(known) = self.people.get_mut(&who) {
                        known.see(span, on, pages, last != Some((who, span)));
                    }
                }
                Seen::Done { order, .. } => {
                    if !self.open.remove(&order) {
                        continue;
                    }
                }
                Seen::Region { .. }
                | Seen::Fault { .. }
                | Seen::Sample { .. }
                | Seen::Loads { .. }
                | Seen::Huge { .. }
                | Seen::Node { .. }
                | Seen::Lost { .. }
                | Seen::Stale { .. } => {}
            }
            last = match seen {
                Seen::Resident { who, span, .. } => Some((who, span)),
                _ => None,
            };
            out.push(seen);
        }
    }

    /// What then was not asked.
    fn answer(&mut self, order: &Order) -> Result<(), ApplyError> {
        sound(&order.act, &self.topology, self.caps.most_pages)?;
        let known = order.act.who().and_then(|who| self.people.get_mut(&who));
        let known = known.ok_or(ApplyError::NoProcess)?;
        let (mut tried, mut fails) = (Pages::ZERO, Fails::default());
        match &order.act {
            Act::Watch { .. } | Act::Unwatch { .. } => {}
            Act::Census { who } => {
                let all = known.all(*who);
                tried = all.iter().map(|(_, pages)| *pages).sum();
                self.answers.extend(all.into_iter().map(|(seen, _)| seen));
            }
            Act::Look { who, spans } => {
                tried = spans.iter().map(|s| s.pages()).sum();
                for span in spans {
                    self.answers.extend(known.within(*who, *span).into_iter().map(|(s, _)| s));
                }
            }
            Act::Move { spans, from, to, .. } if self.caps.moves => {
                tried = spans.iter().map(|span| known.go(*span, *from, *to)).sum();
                if tried == Pages::ZERO {
                    // Nothing is known to be there; who asked will look again.
                    fails.absent = spans.iter().map(|s| s.pages()).sum();
                }
            }
            Act::Affine { .. } if self.caps.moves => tried = Pages(1),
            // Of huge pages nothing is known here.
            Act::Split { .. } | Act::Move { .. } | Act::Affine { .. } | Act::SetKnob { .. } => {
                return Err(ApplyError::Unable);
            }
        }
        let took = order.expect.costs;
        self.answers.push(Seen::Done { order: order.id, tried, moved: tried, fails, took });
        Ok(())
    }
}

impl Machine for Retold {
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn topology(&self) -> &topology::Hardware {
        &self.topology
    }
    fn now(&self) -> Picos {
        self.now
    }
    /// Returns when it returned then, whatever is wanted now; but for own answers to who was not
    /// there then, which come as soon as that one wants to be told.
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let answers = std::mem::take(&mut self.answers);
        let told = !answers.is_empty();
        out.extend(answers);
        let log = self.log.clone();
        let mut log = log.0.borrow_mut();
        let soon = told && log.asked == Asked::ByObserver;
        loop {
            match log.peek() {
                None => {
                    return Err(match &log.broke {
                        Some(why) => ObserveError::Source(why.clone()),
                        None => ObserveError::Ended,
                    });
                }
                Some(Heard::Waited { now, .. }) => {
                    if soon && *now > until {
                        self.now = self.now.max(until);
                        return Ok(());
                    }
                }
                Some(_) => {
                    log.differ("nothing");
                    log.next();
                    continue;
                }
            }
            let Some(Heard::Waited { now, seen }) = log.next() else { continue };
            self.now = self.now.max(now);
            log.now = self.now;
            self.tell(seen, out);
            return Ok(());
        }
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        let log = self.log.clone();
        let mut log = log.0.borrow_mut();
        let text = order.act.to_string();
        if log.asked == Asked::ByPolicy && log.differs.is_none() {
            let same = |h: &Heard| matches!(h, Heard::Ordered { order: id, act, .. } if *id == order.id && *act == text);
            if let Some(Heard::Ordered { refused, .. }) = log.next_if(same) {
                let Some(why) = refused else {
                    self.open.insert(order.id);
                    return Ok(());
                };
                let known = ApplyError::ALL.into_iter().find(|e| e.to_string() == why);
                return Err(known.unwrap_or(ApplyError::Unable));
            }
            log.differ(&order.to_string());
        }
        self.answer(order)
    }
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError> {
        let (knob, given) = match op {
            KnobOp::Read(knob) => (knob, None),
            KnobOp::Write(knob, text) => (knob, Some(text.to_owned())),
        };
        let allowed = "a recording has no knobs".to_owned();
        Err(KnobError { knob: knob.name(), given, errno: Errno::Enoent, allowed })
    }
}
