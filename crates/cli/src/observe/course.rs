//! The course of observing: looks, watched processes, a row per process and period.
//!
//! ```text
//! |──── period ────|──── period ────|──      a row each at the ends
//! |──|──|──|──|──|─|──|──|──                 a look each second, where a source tells
//!                 ?│                         where is what was accessed?
//! ```
//!
//! It knows no machine: the simulated one is observed by the same code.

use super::sampled::{Change, Sampled};
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Who};
use homenode_core::units::{Pages, Picos};
use homenode_core::view::{Totals, Usage, View};
use homenode_machine::{Machine, ObserveError};
use std::collections::{BTreeMap, BTreeSet};

/// Pages whose place is asked for, a second: at a quarter of a microsecond each, 0.2 % of
/// one CPU.
const ASKED_PER_SECOND: u64 = 8192;
/// And at most in one go.
const MOST_ASKED: u64 = 1 << 16;
/// Most of one CPU's time for a process's census, in thousandths.
const CENSUS_PERMILLE: u64 = 2;
/// How long it is waited for answers; a wait and at most so many.
const ANSWERS: (Picos, u32) = (Picos::from_ms(10), 5);

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
    /// When a census of each watched process may be taken again, where one is wanted.
    census: Option<BTreeMap<Who, Picos>>,
    seen: Vec<Seen>,
}

/// Says what people call the processes that a machine saw last.
pub(super) type Names<'a, M> = &'a dyn Fn(&M, Named<'_>);
/// Takes a process and its name.
type Named<'a> = &'a mut dyn FnMut(Who, &str);

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
            census: None,
            seen: Vec::new(),
        }
    }

    /// From now on it is asked now and then which mappings watched processes have: not for the
    /// rows, but for who is told all of it later.
    pub(super) fn take_census(&mut self) {
        self.census = Some(BTreeMap::new());
    }

    /// Looks until the period is over.
    ///
    /// * `pause` – waits until that time or a little less; `None` if it is to stop.
    /// * `names` – what people call the processes that were seen last.
    pub(super) fn period(
        &mut self,
        pause: &mut dyn FnMut(&M, Picos) -> Option<()>,
        names: Names<'_, M>,
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
                self.ask();
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
        self.count();
        self.ask();
        let changes = self.sampled.exchange();
        self.order(changes);
        // A period that came late makes the next one shorter, or is left out.
        while self.next <= self.machine.now() {
            self.next += self.period;
        }
        Turn::Over
    }

    /// The rows of the period that is over.
    pub(super) fn rows(&mut self) -> Vec<Usage> {
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

    fn look(&mut self, until: Picos, names: Names<'_, M>) -> Option<Turn> {
        let waited = self.take(until);
        let view = &mut self.view;
        names(&self.machine, &mut |who, name| view.name(who, name));
        match waited {
            Ok(()) => {}
            Err(ObserveError::Ended) => return Some(Turn::Broken(None)),
            Err(ObserveError::Source(text)) => return Some(Turn::Broken(Some(text))),
        }
        let changes = self.sampled.fill();
        if self.order(changes) {
            // Orders are carried out when it is waited.
            if let Err(ObserveError::Source(text)) = self.take(self.machine.now()) {
                return Some(Turn::Broken(Some(text)));
            }
        }
        None
    }

    /// Waits until that time and takes in what was seen.
    fn take(&mut self, until: Picos) -> Result<(), ObserveError> {
        self.seen.clear();
        let waited = self.machine.wait(until, &mut self.seen);
        self.view.handle(self.machine.now(), &self.seen);
        self.sampled.see(&self.seen);
        waited
    }

    /// Whether any order was taken. One that isn't is for a process that has just ended, or
    /// one of too many at once: it is watched at a later look.
    fn order(&mut self, changes: Vec<Change>) -> bool {
        let mut taken = false;
        for change in changes {
            let act = match change {
                Change::Watch(who) => Act::Watch { who },
                Change::Unwatch(who) => Act::Unwatch { who },
            };
            match (self.submit(act), change) {
                (Some(_), _) => taken = true,
                (None, Change::Watch(who)) => self.sampled.failed(who),
                (None, Change::Unwatch(_)) => {}
            }
        }
        taken
    }

    /// An order's number, if it was taken.
    fn submit(&mut self, act: Act) -> Option<OrderId> {
        self.ids += 1;
        let (id, expect, why) = (OrderId(self.ids), Benefit::default(), Reason::SourceNeeds);
        self.machine.submit(&Order { id, act, expect, why }).ok().map(|()| id)
    }

    /// Takes a census of those who are watched, each as often as its cost allows.
    fn count(&mut self) {
        let Some(mut due) = self.census.take() else { return };
        due.retain(|who, _| self.sampled.watches(*who));
        let now = self.machine.now();
        let who: Vec<Who> = self.sampled.watched().collect();
        let mut open = BTreeMap::new();
        for who in who.into_iter().filter(|who| due.get(who).is_none_or(|at| *at <= now)) {
            if let Some(id) = self.submit(Act::Census { who }) {
                open.insert(id, who);
            }
        }
        if !open.is_empty() {
            // What breaks here breaks at the next look too.
            let _ = self.take(now);
            for seen in &self.seen {
                let Seen::Done { order, took, .. } = seen else { continue };
                let Some(who) = open.remove(order) else { continue };
                let pause = took.0.saturating_mul(1000 / CENSUS_PERMILLE);
                due.insert(who, Picos(now.0.saturating_add(pause)));
            }
        }
        self.census = Some(due);
    }

    /// Asks where what was accessed in this period is. Who can't be asked, or has not
    /// answered in time, has a row without it; what breaks here breaks at the next look too.
    fn ask(&mut self) {
        let most = (self.period.as_ms() * ASKED_PER_SECOND / 1000).clamp(1, MOST_ASKED);
        let acts = self.view.ask(Pages(most));
        let mut open: BTreeSet<OrderId> =
            acts.into_iter().filter_map(|act| self.submit(act)).collect();
        let (pause, times) = ANSWERS;
        for _ in 0..times {
            if open.is_empty() {
                return;
            }
            let waited = self.take(self.machine.now() + pause);
            for seen in &self.seen {
                if let Seen::Done { order, .. } = seen {
                    open.remove(order);
                }
            }
            if waited.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::kernel::KernelVersion;
    use homenode_core::knobs::KnobError;
    use homenode_core::policy::order::Evidence;
    use homenode_core::policy::seen::{Source, Span};
    use homenode_core::tiering::tiers::{Firmware, Tiers};
    use homenode_core::topology::{self, Medium, Node, Zone, ZoneKind};
    use homenode_core::units::{NodeId, Pages};
    use homenode_core::view::Settings;
    use homenode_machine::{ApplyError, Caps, KnobOp};

    /// A machine that tells at each wait what its script says.
    struct Scripted {
        caps: Caps,
        topology: topology::Hardware,
        now: Picos,
        script: Vec<Result<Vec<Seen>, ObserveError>>,
        /// What it was asked to do.
        did: Vec<String>,
        full: bool,
    }

    impl Machine for Scripted {
        fn caps(&self) -> &Caps {
            &self.caps
        }
        fn topology(&self) -> &topology::Hardware {
            &self.topology
        }
        fn now(&self) -> Picos {
            self.now
        }
        fn wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
            let carries_out = until == self.now && !self.did.is_empty();
            self.now = self.now.max(until);
            self.did.push(format!("look at {} ms", self.now.as_ms()));
            if carries_out || self.script.is_empty() {
                return Ok(());
            }
            out.extend(self.script.remove(0)?);
            Ok(())
        }
        fn submit(&mut self, order: &Order) -> Result<(), ApplyError> {
            self.did.push(format!("{:?}", order.act));
            if std::mem::take(&mut self.full) { Err(ApplyError::Full) } else { Ok(()) }
        }
        fn knob(&mut self, _: KnobOp<'_>) -> Result<String, KnobError> {
            unreachable!("observing sets no knobs")
        }
    }

    const ONE: Who = Who { pid: 1, start: 0 };

    fn task(ms: u64) -> Seen {
        let (ran, node) = (Picos::from_ms(ms), Some(NodeId(0)));
        Seen::Task { who: ONE, ran, node, resident: Pages(9) }
    }

    /// A machine of so many nodes.
    fn topology(nodes: u16) -> topology::Hardware {
        let zones = vec![Zone { kind: ZoneKind::Normal, managed: Pages(100) }];
        let node = |id| Node { id: NodeId(id), medium: Medium::Dram, zones: zones.clone() };
        topology::Hardware {
            name: String::new(),
            about: String::new(),
            nodes: (0..nodes).map(node).collect(),
            cpus: Vec::new(),
            caches: Vec::new(),
            distances: vec![vec![10; nodes.into()]; nodes.into()],
            links: Vec::new(),
            idle_states: Vec::new(),
            curves: Vec::new(),
            loaded: Vec::new(),
            defaults: None,
            costs: Default::default(),
        }
    }

    fn course(script: Vec<Result<Vec<Seen>, ObserveError>>) -> Course<Scripted> {
        on(topology(1), script)
    }

    fn on(
        topology: topology::Hardware,
        script: Vec<Result<Vec<Seen>, ObserveError>>,
    ) -> Course<Scripted> {
        let tiers = Tiers::new(&topology, Firmware::Silent, KernelVersion::default());
        let view = View::new(Settings::default(), Source::Damon, &topology, &tiers);
        let caps = Caps {
            source: Source::Damon,
            lacks: vec![Evidence::Cpu],
            moves: false,
            affinity: false,
            splits: false,
            knobs: false,
            most_pages: 1,
        };
        let now = Picos::ZERO;
        let machine = Scripted { caps, topology, now, script, did: Vec::new(), full: false };
        Course::new(machine, view, Picos::from_ms(2500), Picos::from_secs(1), 10, true)
    }

    fn period(c: &mut Course<Scripted>) -> Turn {
        c.period(&mut |_, _| Some(()), &|_, tell| tell(ONE, "web"))
    }

    // A look at once, then each second, then at the end of the period.
    #[test]
    fn who_is_there_is_watched_at_once_and_has_a_row_a_period() {
        let region = Seen::Region {
            who: ONE,
            span: Span { start: 0, end: 4 },
            accessed: 20,
            checks: 20,
            every: Picos::from_ms(5),
            age: Picos::ZERO,
        };
        let mut c =
            course(vec![Ok(vec![task(0)]), Ok(vec![]), Ok(vec![region]), Ok(vec![task(250)])]);
        assert_eq!(period(&mut c), Turn::Over);
        let did = [
            "look at 0 ms",
            "Watch { who: Who { pid: 1, start: 0 } }",
            "look at 0 ms",
            "look at 1000 ms",
            "look at 2000 ms",
            "look at 2500 ms",
        ];
        assert_eq!(c.machine.did, did);
        let rows = c.rows();
        assert_eq!((rows[0].name.as_str(), rows[0].cpu), ("web", Some(100)));
        assert_eq!(rows[0].heat.as_ref().map(|h| h.rate), Some(4 * 200_000));
        assert_eq!(c.len(), (1, 1));
        assert_eq!(period(&mut c), Turn::Over);
        assert_eq!(c.machine.now, Picos::from_ms(5000));
    }

    // On several nodes what was accessed is asked for before the rows are made; the answer
    // comes with the next wait, or some waits later, and if it doesn't, without it.
    #[test]
    fn at_the_end_of_a_period_it_is_asked_where_the_hot_memory_is() {
        let span = Span { start: 0, end: 4 };
        let (every, age) = (Picos::from_ms(5), Picos::ZERO);
        let told = || {
            let hot = Seen::Region { who: ONE, span, accessed: 20, checks: 20, every, age };
            Ok(vec![task(250), hot])
        };
        let answer = Seen::Resident { who: ONE, span, on: NodeId(1), pages: Pages(4) };
        let done = Seen::Done {
            order: OrderId(2),
            tried: Pages(4),
            moved: Pages(4),
            fails: Default::default(),
            took: Picos::ZERO,
        };
        let none = || Ok(Vec::new());
        let script =
            vec![Ok(vec![task(0)]), none(), none(), told(), none(), Ok(vec![answer, done]), told()];
        let mut c = on(topology(2), script);
        assert_eq!(period(&mut c), Turn::Over);
        let asked = "Look { who: Who { pid: 1, start: 0 }, spans: [Span { start: 0, end: 4 }] }";
        assert_eq!(c.machine.did[6..], [asked, "look at 2510 ms", "look at 2520 ms"]);
        let there = Some(BTreeMap::from([(NodeId(1), Pages(4))]));
        assert_eq!(c.rows()[0].heat.as_ref().map(|h| h.hot_by_node.clone()), Some(there));
        // Nobody answers: no longer than 50 ms is it waited.
        let before = c.machine.now;
        assert_eq!(period(&mut c), Turn::Over);
        assert!(c.machine.now <= before + c.period + Picos::from_ms(50));
        assert_eq!(c.rows()[0].heat.as_ref().map(|h| h.hot_by_node.clone()), Some(None));
    }

    #[test]
    fn who_could_not_be_watched_is_tried_again() {
        let mut c = course(vec![Ok(vec![task(0)])]);
        c.machine.full = true;
        assert_eq!(period(&mut c), Turn::Over);
        let tries = c.machine.did.iter().filter(|d| d.starts_with("Watch")).count();
        assert_eq!((tries, c.len()), (2, (1, 1)));
    }

    #[test]
    fn it_ends_when_it_is_told_when_nobody_is_left_and_when_the_source_breaks() {
        let mut c = course(vec![Ok(vec![task(0)]), Ok(vec![Seen::Gone { who: ONE }])]);
        assert_eq!(period(&mut c), Turn::Empty);
        assert!(c.rows()[0].gone);
        let mut c = course(vec![Ok(vec![task(0)])]);
        let mut left = 3;
        let mut pause = |_: &Scripted, _| {
            left -= 1;
            (left > 0).then_some(())
        };
        assert_eq!(c.period(&mut pause, &|_, _| ()), Turn::Stopped);
        assert_eq!(c.rows().len(), 1);
        let broken = ObserveError::Source("it broke".to_owned());
        let mut c = course(vec![Ok(vec![task(0)]), Err(broken)]);
        assert_eq!(period(&mut c), Turn::Broken(Some("it broke".to_owned())));
        let mut c = course(vec![Err(ObserveError::Ended)]);
        assert_eq!(period(&mut c), Turn::Broken(None));
    }
}
