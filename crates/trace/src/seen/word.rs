//! Lines of the file, and words of what was seen: arrays, since most of them come by thousands.
//!
//! A process is two numbers (PID, start), a span two page numbers, a node and a time one each.

use homenode_core::limits::Whose;
use homenode_core::offcore::Offcore;
use homenode_core::policy::heard::Heard;
use homenode_core::policy::order::{Fails, OrderId};
use homenode_core::policy::seen::{Seen, Span, Who, ZoneSeen};
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::ZoneKind;
use homenode_core::units::{NodeId, Pages, Picos};
use serde::{Deserialize, Serialize};

/// No clock says more: half of what there is, so that a sum with another time is one.
const LATEST: u64 = u64::MAX / 2;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Line {
    /// The clock, what was seen.
    Waited(u64, Vec<Word>),
    /// Number, what, why not.
    Ordered(u64, String, Option<String>),
    /// Number, what.
    Moved(u64, String),
    /// Process; command, cgroup, user.
    Whose(u32, u64, Option<(String, String, u32)>),
    /// Cgroup, pages.
    Has(String, Option<u64>),
    /// Process, name.
    Named(u32, u64, String),
    End(End),
}

#[derive(Serialize, Deserialize)]
pub(super) struct End {
    /// Lines between the first and this one.
    pub(super) lines: u64,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// Process, time, node, pages.
    Task(u32, u64, u64, Option<u16>, u64),
    /// Process.
    Gone(u32, u64),
    /// Process, span, accessed, checks, every, age.
    Region(u32, u64, u64, u64, u32, u32, u64, u64),
    /// Process, page, from, on, after.
    Fault(u32, u64, u64, u16, u16, Option<u64>),
    /// Process, page, from, period.
    Sample(u32, u64, u64, u16, u64),
    /// Process; loads, time in which one was under way, time that all were.
    Loads(u32, u64, u64, u64, u64),
    /// Process, span, node, pages.
    Resident(u32, u64, u64, u64, u16, u64),
    /// Process, span.
    Huge(u32, u64, u64, u64),
    /// Node, zones, load.
    Node(u16, Vec<Zone>, Option<u32>),
    /// The same, idle CPUs.
    NodeCpus(u16, Vec<Zone>, Option<u32>, u32),
    /// Number, tried, moved; no room, busy, absent, forbidden, gone; took.
    Done(u64, u64, u64, [u64; 5], u64),
    /// Events.
    Lost(u64),
    /// Since.
    Stale(u64),
}

/// Kind, free, managed; min, low, high, promo, reserve.
#[derive(Serialize, Deserialize)]
pub(super) struct Zone(String, u64, u64, [u64; 5]);

impl From<&Heard> for Line {
    fn from(heard: &Heard) -> Self {
        match heard {
            Heard::Waited { now, seen } => Self::Waited(now.0, seen.iter().map(word).collect()),
            Heard::Ordered { order, act, refused } => {
                Self::Ordered(order.0, act.clone(), refused.clone())
            }
            Heard::Moved { order, act } => Self::Moved(order.0, act.clone()),
            Heard::Whose { who, whose } => {
                let whose = whose.clone().map(|w| (w.command, w.cgroup, w.user));
                Self::Whose(who.pid, who.start, whose)
            }
            Heard::Has { cgroup, pages } => Self::Has(cgroup.clone(), pages.map(|p| p.0)),
            Heard::Named { who, name } => Self::Named(who.pid, who.start, name.clone()),
        }
    }
}

impl Line {
    /// What was heard; or it is the last line.
    ///
    /// # Errors
    /// What no machine tells.
    pub(super) fn heard(self) -> Result<Result<Heard, End>, &'static str> {
        Ok(Ok(match self {
            Self::Waited(now, _) if now > LATEST => return Err("a time after all times"),
            Self::Waited(now, seen) => {
                let seen: Vec<Seen> = seen.into_iter().map(seen_of).collect();
                seen.iter().try_for_each(check)?;
                Heard::Waited { now: Picos(now), seen }
            }
            Self::Ordered(order, act, refused) => {
                Heard::Ordered { order: OrderId(order), act, refused }
            }
            Self::Moved(order, act) => Heard::Moved { order: OrderId(order), act },
            Self::Whose(pid, start, whose) => {
                let whose = whose.map(|(command, cgroup, user)| Whose { command, cgroup, user });
                Heard::Whose { who: Who { pid, start }, whose }
            }
            Self::Has(cgroup, pages) => Heard::Has { cgroup, pages: pages.map(Pages) },
            Self::Named(pid, start, name) => Heard::Named { who: Who { pid, start }, name },
            Self::End(end) => return Ok(Err(end)),
        }))
    }
}

/// Whether addresses are some: who is told of them reckons with them.
fn check(seen: &Seen) -> Result<(), &'static str> {
    let fine = match *seen {
        Seen::Region { span, .. } | Seen::Resident { span, .. } | Seen::Huge { span, .. } => {
            span.start < span.end && span.end <= Span::WHOLE.end
        }
        Seen::Fault { vpn, .. } | Seen::Sample { vpn, .. } => Span::WHOLE.holds(vpn),
        Seen::Task { .. }
        | Seen::Gone { .. }
        | Seen::Loads { .. }
        | Seen::Node { .. }
        | Seen::Done { .. }
        | Seen::Lost { .. }
        | Seen::Stale { .. } => true,
    };
    if fine { Ok(()) } else { Err("pages that are in no address space") }
}

fn word(seen: &Seen) -> Word {
    match *seen {
        Seen::Task { who, ran, node, resident } => {
            Word::Task(who.pid, who.start, ran.0, node.map(|n| n.0), resident.0)
        }
        Seen::Gone { who } => Word::Gone(who.pid, who.start),
        Seen::Region { who, span, accessed, checks, every, age } => {
            let Span { start, end } = span;
            Word::Region(who.pid, who.start, start, end, accessed, checks, every.0, age.0)
        }
        Seen::Fault { who, vpn, from, on, after } => {
            Word::Fault(who.pid, who.start, vpn, from.0, on.0, after.map(|t| t.0))
        }
        Seen::Sample { who, vpn, from, period } => {
            Word::Sample(who.pid, who.start, vpn, from.0, period)
        }
        Seen::Loads { who, counted: Offcore { reads, busy, under_way } } => {
            Word::Loads(who.pid, who.start, reads, busy.0, under_way.0)
        }
        Seen::Resident { who, span, on, pages } => {
            Word::Resident(who.pid, who.start, span.start, span.end, on.0, pages.0)
        }
        Seen::Huge { who, span } => Word::Huge(who.pid, who.start, span.start, span.end),
        Seen::Node { node, ref zones, load, idle } => {
            let zones = zones.iter().map(zone).collect();
            match idle {
                None => Word::Node(node.0, zones, load),
                Some(idle) => Word::NodeCpus(node.0, zones, load, idle),
            }
        }
        Seen::Done { order, tried, moved, fails, took } => {
            let Fails { no_room, busy, absent, forbidden, gone } = fails;
            let fails = [no_room, busy, absent, forbidden, gone].map(|p| p.0);
            Word::Done(order.0, tried.0, moved.0, fails, took.0)
        }
        Seen::Lost { events } => Word::Lost(events),
        Seen::Stale { since } => Word::Stale(since.0),
    }
}

fn seen_of(word: Word) -> Seen {
    let who = |pid, start| Who { pid, start };
    match word {
        Word::Task(pid, start, ran, node, resident) => Seen::Task {
            who: who(pid, start),
            ran: Picos(ran),
            node: node.map(NodeId),
            resident: Pages(resident),
        },
        Word::Gone(pid, start) => Seen::Gone { who: who(pid, start) },
        Word::Region(pid, start, from, to, accessed, checks, every, age) => Seen::Region {
            who: who(pid, start),
            span: Span { start: from, end: to },
            accessed,
            checks,
            every: Picos(every),
            age: Picos(age),
        },
        Word::Fault(pid, start, vpn, from, on, after) => Seen::Fault {
            who: who(pid, start),
            vpn,
            from: NodeId(from),
            on: NodeId(on),
            after: after.map(Picos),
        },
        Word::Sample(pid, start, vpn, from, period) => {
            Seen::Sample { who: who(pid, start), vpn, from: NodeId(from), period }
        }
        Word::Loads(pid, start, reads, busy, under_way) => {
            let counted = Offcore { reads, busy: Picos(busy), under_way: Picos(under_way) };
            Seen::Loads { who: who(pid, start), counted }
        }
        Word::Resident(pid, start, from, to, on, pages) => Seen::Resident {
            who: who(pid, start),
            span: Span { start: from, end: to },
            on: NodeId(on),
            pages: Pages(pages),
        },
        Word::Huge(pid, start, from, to) => {
            Seen::Huge { who: who(pid, start), span: Span { start: from, end: to } }
        }
        Word::Node(node, zones, load) => {
            let zones = zones.into_iter().map(zone_of).collect();
            Seen::Node { node: NodeId(node), zones, load, idle: None }
        }
        Word::NodeCpus(node, zones, load, idle) => {
            let zones = zones.into_iter().map(zone_of).collect();
            Seen::Node { node: NodeId(node), zones, load, idle: Some(idle) }
        }
        Word::Done(order, tried, moved, fails, took) => {
            let [no_room, busy, absent, forbidden, gone] = fails.map(Pages);
            Seen::Done {
                order: OrderId(order),
                tried: Pages(tried),
                moved: Pages(moved),
                fails: Fails { no_room, busy, absent, forbidden, gone },
                took: Picos(took),
            }
        }
        Word::Lost(events) => Seen::Lost { events },
        Word::Stale(since) => Seen::Stale { since: Picos(since) },
    }
}

fn zone(zone: &ZoneSeen) -> Zone {
    let ZoneMarks { kind, managed, min, low, high, promo, reserve } = zone.marks;
    let marks = [min, low, high, promo, reserve].map(|p| p.0);
    Zone(kind.name().to_owned(), zone.free.0, managed.0, marks)
}

fn zone_of(Zone(kind, free, managed, marks): Zone) -> ZoneSeen {
    let [min, low, high, promo, reserve] = marks.map(Pages);
    // A kind that is not known would be one of a later version.
    let kind = ZoneKind::ALL.into_iter().find(|k| k.name() == kind).unwrap_or(ZoneKind::Normal);
    let managed = Pages(managed);
    let marks = ZoneMarks { kind, managed, min, low, high, promo, reserve };
    ZoneSeen { free: Pages(free), marks }
}
