//! Linux as a machine that the engine drives.
//!
//! ```text
//!            wait, submit
//! engine ◀───────────────▶ LiveMachine ──▶ People   who is there        /proc
//!                              │           Memory   nodes' free pages   /proc/zoneinfo
//!                              │           Places   where pages are     numa_maps, move_pages, …
//!                              │           Heat     what is accessed    DAMON, hint faults, samples
//!                              │           Loads    under way at once   perf
//!                              │           Mover    moves pages         move_pages
//!                              │           Cpus     who is idle         /proc/stat
//!                              │           Threads  brings threads      sched_setaffinity
//!                              └─ Clock
//! ```
//!
//! This file is only the order in which they are asked; what each of them reads is its
//! own affair, and each can be replaced by a test's. What is lost, late or gone is told
//! in [`Seen`], not as an error: only a source that broke for good is one.
//!
//! Without a [`Mover`] nothing can change where pages are: so do `observe` and `advise`
//! use it. `act` has one.
//!
//! Source: specs/live.md#machine.

mod clock;
#[cfg(test)]
mod tests;

pub use clock::{BootClock, Clock, time_of};

use homenode_core::kernel::KernelVersion;
use homenode_core::knobs::{Errno, KnobError};
use homenode_core::offcore::Offcore;
use homenode_core::policy::extents::Extent;
use homenode_core::policy::order::{Act, Fails, Order};
use homenode_core::policy::seen::{Seen, Source, Span, Who, ZoneSeen};
use homenode_core::topology;
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::{ApplyError, Caps, KnobOp, Machine, ObserveError, sound};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Most pages that an order may name: 64 MiB, as on the simulated machine.
const MOST_PAGES: u64 = 16_384;
/// Orders that may wait.
const MOST_ORDERS: usize = 1024;
/// Processes are read anew after this time at the earliest.
const PEOPLE_EVERY: Picos = Picos::from_ms(100);

/// [`Span::WHOLE`].
pub const WHOLE: Span = Span::WHOLE;

/// A process as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Which.
    pub who: Who,
    /// What people call it: a guest's domain, or the command's name. Safe to print.
    pub name: String,
    /// Processor time of all its threads.
    pub ran: Picos,
    /// Node of the CPUs on which its living threads ran last, if it is one.
    pub node: Option<NodeId>,
    /// Resident pages.
    pub resident: Pages,
}

/// Who is there.
pub trait People {
    /// Reads all processes that are asked for; those that ended while they were read are
    /// left out. In the order of their PIDs.
    ///
    /// # Errors
    /// What makes all of it impossible, as /proc that is gone.
    fn look(&mut self) -> io::Result<Vec<Person>>;
    /// Whether it still lives, under that start.
    fn lives(&self, who: Who) -> bool;
}

/// The nodes' memory.
pub trait Memory {
    /// All nodes that are there now, with their zones; one that went offline is not told.
    ///
    /// # Errors
    /// What makes all of it impossible.
    fn look(&mut self) -> io::Result<Vec<(NodeId, Vec<ZoneSeen>)>>;
}

/// Where pages are.
pub trait Places {
    /// Pages of the process by node. `None` if it is gone or can't be asked.
    fn census(&mut self, who: Who) -> Option<BTreeMap<NodeId, Pages>>;
    /// What memory it has, by rising addresses: what lies together on one node, or mappings
    /// with their pages by node where no more is told. `None` if it is gone or can't be asked.
    fn extents(&mut self, who: Who) -> Option<Vec<Extent>>;
    /// Pages of each span by node, holes left out however large they are. `None` if the
    /// process is gone or can't be asked.
    fn within_each(&mut self, who: Who, spans: &[Span]) -> Option<Vec<BTreeMap<NodeId, Pages>>>;
    /// Of one span.
    fn within(&mut self, who: Who, span: Span) -> Option<BTreeMap<NodeId, Pages>> {
        self.within_each(who, &[span])?.pop()
    }
}

/// What is accessed.
pub trait Heat {
    /// Which source it is.
    fn source(&self) -> Source;
    /// Begins to sample a process; one that is gone or can't be sampled is passed over.
    fn watch(&mut self, who: Who);
    /// Stops sampling it.
    fn unwatch(&mut self, who: Who);
    /// What it has to tell since the last time, oldest first; loss and silence too.
    ///
    /// # Errors
    /// A sentence for people, if it broke for good.
    fn take(&mut self, now: Picos, out: &mut Vec<Seen>) -> Result<(), String>;
    /// How late a node answers, in thousandths of the unloaded latency, if the source shows it.
    fn load(&mut self, now: Picos, node: NodeId) -> Option<u32> {
        let _ = (now, node);
        None
    }
    /// A descriptor that can be read when there is much to be taken.
    fn wakes(&self) -> Option<RawFd> {
        None
    }
    /// Looks as closely as it can from now on, whatever that takes: for some seconds of
    /// advice, which come only once.
    fn closely(&mut self) {}
    /// Samples one in `period` accesses from now on, where it can.
    fn sample_every(&mut self, period: u64) {
        let _ = period;
    }
    /// homenode has moved memory: what came of it is worth a close look.
    fn moved(&mut self) {}
    /// Processor time that threads of the kernel took for it so far; `None` if there are
    /// none.
    fn spent(&self) -> Option<Picos> {
        None
    }
    /// Puts back what it set up. Also done when it is dropped; here with what failed.
    ///
    /// # Errors
    /// A sentence for people: what is not as it was, and what to do.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// No source of heat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoHeat;

impl Heat for NoHeat {
    fn source(&self) -> Source {
        Source::Residency
    }
    fn watch(&mut self, _: Who) {}
    fn unwatch(&mut self, _: Who) {}
    fn take(&mut self, _: Picos, _: &mut Vec<Seen>) -> Result<(), String> {
        Ok(())
    }
}

/// What counters show of processes' loads.
pub trait Loads {
    /// Begins to count a process's; one that is gone or can't be counted is passed over.
    fn watch(&mut self, who: Who);
    /// Stops counting them.
    fn unwatch(&mut self, who: Who);
    /// What was counted since it was asked last; `None` if nothing was.
    fn take(&mut self, who: Who) -> Option<Offcore>;
}

/// What became of pages that were to be moved; with those moved it adds up to those named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Pages that are on their target now and weren't before.
    pub moved: Pages,
    /// The others by cause.
    pub fails: Fails,
}

/// Moves pages.
pub trait Mover {
    /// Moves those pages of the spans that are on `from` to `to`.
    fn carry(&mut self, who: Who, spans: &[Span], from: NodeId, to: NodeId) -> Carried;
}

/// How busy CPUs are.
pub trait Cpus {
    /// How many of each node's CPUs were idle lately, in thousandths of a CPU; a node of which
    /// nothing is known yet, or that has none, is not told.
    fn idle(&mut self, now: Picos) -> &BTreeMap<NodeId, u32>;
}

/// What became of threads that were to be brought to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Threads that the process had.
    pub threads: u64,
    /// Of these so many may not run there, or could not be asked to.
    pub forbidden: u64,
}

/// Brings threads to nodes.
pub trait Threads {
    /// Lets a process's threads run on a node's CPUs only, until a time of the machine's clock.
    ///
    /// # Errors
    /// A sentence for people: nothing was changed.
    fn bring(&mut self, who: Who, to: NodeId, until: Picos) -> Result<Brought, String>;
    /// Lets those whose time is over run where they might before.
    ///
    /// # Errors
    /// A sentence for people.
    fn release(&mut self, now: Picos) -> Result<(), String>;
}

/// Everything that a live machine is made of.
pub struct Parts {
    /// Nodes, CPUs, links and costs, as far as they are known.
    pub topology: topology::Hardware,
    /// Whose knobs' files there are.
    pub version: KernelVersion,
    /// The folder that holds `proc` and `sys`: `/`.
    pub root: PathBuf,
    /// The clock.
    pub clock: Box<dyn Clock>,
    /// Who is there.
    pub people: Box<dyn People>,
    /// Nodes' memory.
    pub memory: Box<dyn Memory>,
    /// How busy CPUs are; not told without it.
    pub cpus: Option<Box<dyn Cpus>>,
    /// Where pages are.
    pub places: Box<dyn Places>,
    /// What is accessed.
    pub heat: Box<dyn Heat>,
    /// What counts loads, for a policy that asks for it; without it they are not told.
    pub loads: Option<Box<dyn Loads>>,
    /// What moves pages; without it nothing is moved.
    pub mover: Option<Box<dyn Mover>>,
    /// What brings threads to nodes; without it none is brought.
    pub threads: Option<Box<dyn Threads>>,
    /// Whether each look also tells where the pages of every process are.
    pub census: bool,
    /// How often processes are looked at.
    pub pace: Pace,
}

/// How often processes are looked at, where the machine is looked at more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Most of one CPU's time that it may take, in thousandths: after a look that took much processor
    /// time it is waited accordingly, but not after the first. 0 is no bound.
    pub permille: u32,
    /// But no longer than this.
    pub longest: Picos,
}

impl Pace {
    /// Whenever the machine is looked at.
    pub const UNBOUND: Self = Self { permille: 0, longest: Picos::ZERO };

    /// So much of one CPU's time, however long it is waited for that.
    pub const fn at_most(permille: u32) -> Self {
        Self { permille, longest: Picos(u64::MAX) }
    }

    /// From the beginning of a look that took so much to the next.
    fn pause(self, took: Picos) -> Picos {
        let share = took.0.saturating_mul(1000).checked_div(self.permille.into()).unwrap_or(0);
        Picos(share.min(self.longest.0).max(PEOPLE_EVERY.0))
    }
}

/// Linux, as the engine sees it.
pub struct LiveMachine {
    parts: Parts,
    caps: Caps,
    known: BTreeMap<Who, Person>,
    orders: VecDeque<Order>,
    /// What counts the loads of those who are watched, once it is asked for.
    loads: Option<Box<dyn Loads>>,
    /// When processes are looked at next.
    people_at: Option<Picos>,
    /// When the source spoke last.
    spoke: Picos,
    /// Time that the machine had been suspended for by then.
    suspended: Picos,
}

impl LiveMachine {
    /// A machine of these parts.
    pub fn new(parts: Parts) -> Self {
        let source = parts.heat.source();
        let caps = Caps {
            source,
            lacks: source.sheet().lacks.to_vec(),
            moves: parts.mover.is_some(),
            affinity: true,
            splits: false,
            knobs: false,
            most_pages: MOST_PAGES,
        };
        let (spoke, suspended) = (parts.clock.now(), parts.clock.suspended());
        Self {
            parts,
            caps,
            known: BTreeMap::new(),
            orders: VecDeque::new(),
            loads: None,
            people_at: None,
            spoke,
            suspended,
        }
    }
    /// The processes that were there at the last look, with their names.
    pub fn people(&self) -> impl Iterator<Item = &Person> {
        self.known.values()
    }
    /// Processor time that the kernel's threads took for the source so far, if it has any.
    pub fn source_spent(&self) -> Option<Picos> {
        self.parts.heat.spent()
    }
    /// Ends the source and puts back what it set up.
    ///
    /// # Errors
    /// A sentence for people: what is not as it was, and what to do.
    pub fn close(mut self) -> Result<(), String> {
        self.parts.heat.close()
    }

    /// Time for which the machine slept is time in which nothing was told.
    fn heed_sleep(&mut self, out: &mut Vec<Seen>) {
        let suspended = self.parts.clock.suspended();
        // The two clocks are not read at the same moment.
        if suspended.0 > self.suspended.0 + Picos::from_ms(50).0 {
            out.push(Seen::Stale { since: self.spoke });
            self.suspended = suspended;
        }
    }

    fn look(&mut self, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let now = self.parts.clock.now();
        if self.people_at.is_none_or(|at| at <= now) {
            let before = self.parts.clock.spent();
            self.look_at_people(out)?;
            let took = self.parts.clock.spent().saturating_sub(before);
            // The first look learns everybody's name, and says little of what the next one takes.
            let took = self.people_at.map_or(Picos::ZERO, |_| took);
            let pause = self.parts.pace.pause(took);
            self.people_at = Some(Picos(now.0.saturating_add(pause.0)));
        }
        let nodes = self.parts.memory.look();
        let nodes = nodes.map_err(|e| ObserveError::Source(format!("zones can't be read: {e}")))?;
        let idle = self.parts.cpus.as_mut().map(|cpus| cpus.idle(now));
        for (node, zones) in nodes {
            let idle = idle.and_then(|idle| idle.get(&node).copied());
            let load = self.parts.heat.load(now, node);
            out.push(Seen::Node { node, zones, load, idle });
        }
        if let Some(threads) = &mut self.parts.threads {
            threads.release(now).map_err(ObserveError::Source)?;
        }
        let before = out.len();
        let taken = self.parts.heat.take(self.parts.clock.now(), out);
        if out.len() > before {
            self.spoke = self.parts.clock.now();
        }
        taken.map_err(ObserveError::Source)
    }

    fn look_at_people(&mut self, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let people = self.parts.people.look();
        let people =
            people.map_err(|e| ObserveError::Source(format!("processes can't be read: {e}")))?;
        let found: BTreeMap<Who, Person> = people.into_iter().map(|p| (p.who, p)).collect();
        let before = std::mem::replace(&mut self.known, found);
        for who in before.into_keys() {
            if self.known.contains_key(&who) {
                continue;
            }
            self.unwatch(who);
            out.push(Seen::Gone { who });
        }
        for p in self.known.values() {
            let (who, ran, node, resident) = (p.who, p.ran, p.node, p.resident);
            out.push(Seen::Task { who, ran, node, resident });
            let counted = self.loads.as_mut().and_then(|loads| loads.take(who));
            out.extend(counted.map(|counted| Seen::Loads { who, counted }));
        }
        if self.parts.census {
            for &who in self.known.keys() {
                let Some(found) = self.parts.places.census(who) else { continue };
                tell(who, WHOLE, found, &self.parts.topology, out);
            }
        }
        Ok(())
    }

    fn watch(&mut self, who: Who) {
        self.parts.heat.watch(who);
        if let Some(loads) = &mut self.loads {
            loads.watch(who);
        }
    }
    fn unwatch(&mut self, who: Who) {
        self.parts.heat.unwatch(who);
        if let Some(loads) = &mut self.loads {
            loads.unwatch(who);
        }
    }

    /// Carries out what waits, until that time; at least one order.
    fn work(&mut self, until: Picos, out: &mut Vec<Seen>) {
        while let Some(order) = self.orders.pop_front() {
            self.carry_out(order, out);
            if self.parts.clock.now() >= until {
                break;
            }
        }
    }
    fn carry_out(&mut self, order: Order, out: &mut Vec<Seen>) {
        let begun = self.parts.clock.now();
        let named: Pages = order.act.spans().iter().map(|s| s.pages()).sum();
        let (mut tried, mut carried) = (Pages::ZERO, Carried::default());
        match order.act {
            Act::Watch { who } => self.watch(who),
            Act::Unwatch { who } => self.unwatch(who),
            Act::Census { who } => {
                for (span, found) in self.parts.places.extents(who).unwrap_or_default() {
                    tried += found.values().copied().sum();
                    tell(who, span, found, &self.parts.topology, out);
                }
                carried.moved = tried;
            }
            Act::Look { who, spans } => {
                let found = self.parts.places.within_each(who, &spans).unwrap_or_default();
                for (span, found) in spans.into_iter().zip(found) {
                    tell(who, span, found, &self.parts.topology, out);
                }
                (tried, carried.moved) = (named, named);
            }
            Act::Move { who, spans, from, to } => {
                tried = named;
                match &mut self.parts.mover {
                    Some(mover) if self.parts.people.lives(who) => {
                        carried = mover.carry(who, &spans, from, to);
                        if carried.moved != Pages::ZERO {
                            self.parts.heat.moved();
                        }
                    }
                    _ => carried.fails.gone = named,
                }
            }
            Act::Affine { who, node } => match &mut self.parts.threads {
                Some(threads) if self.parts.people.lives(who) => {
                    let until = Picos(begun.0.saturating_add(Act::AFFINE_FOR.0));
                    let got = threads.bring(who, node, until).unwrap_or_else(|why| {
                        // It is in the way of this order only.
                        eprintln!("{why}");
                        Brought::default()
                    });
                    tried = Pages(got.threads);
                    carried.fails.forbidden = Pages(got.forbidden);
                    carried.moved = Pages(got.threads.saturating_sub(got.forbidden));
                }
                _ => carried.fails.gone = Pages(1),
            },
            // Refused before.
            Act::Split { .. } | Act::SetKnob { .. } => {}
        }
        let took = self.parts.clock.now().saturating_sub(begun);
        let Carried { moved, fails } = carried;
        out.push(Seen::Done { order: order.id, tried, moved, fails, took });
    }

    fn check(&self, order: &Order) -> Result<(), ApplyError> {
        let act = &order.act;
        match act {
            Act::Split { .. } | Act::SetKnob { .. } => return Err(ApplyError::Unable),
            Act::Affine { .. } if self.parts.threads.is_none() => return Err(ApplyError::Unable),
            Act::Affine { node, .. } if !self.parts.topology.has_cpu(*node) => {
                return Err(ApplyError::NoNode);
            }
            Act::Move { .. } if self.parts.mover.is_none() => return Err(ApplyError::Unable),
            _ => sound(act, &self.parts.topology, self.caps.most_pages)?,
        }
        match act.who() {
            Some(who) if !self.parts.people.lives(who) => Err(ApplyError::NoProcess),
            _ if self.orders.len() >= MOST_ORDERS => Err(ApplyError::Full),
            _ => Ok(()),
        }
    }
}

/// One report per node that has pages, or one with none.
fn tell(
    who: Who,
    span: Span,
    found: BTreeMap<NodeId, Pages>,
    machine: &topology::Hardware,
    out: &mut Vec<Seen>,
) {
    if found.is_empty() {
        let on = machine.nodes.first().map_or(NodeId(0), |n| n.id);
        out.push(Seen::Resident { who, span, on, pages: Pages::ZERO });
    }
    out.extend(found.into_iter().map(|(on, pages)| Seen::Resident { who, span, on, pages }));
}

impl Machine for LiveMachine {
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn topology(&self) -> &topology::Hardware {
        &self.parts.topology
    }
    fn now(&self) -> Picos {
        self.parts.clock.now()
    }
    /// Of those who are watched from now on.
    fn count_overlap(&mut self) {
        self.loads = self.parts.loads.take().or_else(|| self.loads.take());
    }
    /// Looking takes time of its own: the clock is somewhat beyond `until` afterwards.
    fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        self.work(until, out);
        self.parts.clock.sleep(until, self.parts.heat.wakes());
        self.heed_sleep(out);
        self.look(out)
    }
    fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        self.check(order)?;
        self.orders.push_back(order.clone());
        Ok(())
    }
    fn sample_every(&mut self, period: u64) {
        self.parts.heat.sample_every(period);
    }
    fn knob(&mut self, op: KnobOp<'_>) -> Result<String, KnobError> {
        let (knob, given) = match op {
            KnobOp::Read(knob) => (knob, None),
            KnobOp::Write(knob, text) => (knob, Some(text.to_owned())),
        };
        let name = knob.name();
        let fail = |errno, allowed: String| {
            Err(KnobError { knob: name.clone(), given: given.clone(), errno, allowed })
        };
        let Some(path) = knob.path(self.parts.version) else {
            return fail(Errno::Enoent, "this kernel has no such knob".to_owned());
        };
        if given.is_some() {
            return fail(Errno::Eperm, "nothing is written to this machine's knobs".to_owned());
        }
        let below = self.parts.root.join(path.trim_start_matches('/'));
        match std::fs::read_to_string(&below) {
            Ok(text) => Ok(text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                fail(Errno::Enoent, format!("there is no {path}"))
            }
            Err(e) => fail(Errno::Eacces, format!("{path} can't be read: {e}")),
        }
    }
}
