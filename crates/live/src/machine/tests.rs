//! The order in which a machine asks its parts, with parts made for it.

use super::*;
use homenode_core::policy::order::{Benefit, OrderId, Reason};
use homenode_core::topology::{Cpu, Medium, Node, Zone, ZoneKind};
use homenode_core::units::CpuId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the test lets happen, and what the machine did.
#[derive(Default)]
struct World {
    now: Cell<u64>,
    asleep: Cell<u64>,
    people: RefCell<Vec<Person>>,
    /// Processor time that a look at the people takes.
    look_takes: Cell<u64>,
    /// For how long it waits for a CPU besides.
    held_up: Cell<u64>,
    spent: Cell<u64>,
    heat: RefCell<Vec<Seen>>,
    counted: Cell<Option<Offcore>>,
    did: RefCell<Vec<String>>,
}

struct Fake(Rc<World>);

impl Clock for Fake {
    fn now(&self) -> Picos {
        Picos(self.0.now.get())
    }
    fn suspended(&self) -> Picos {
        Picos(self.0.asleep.get())
    }
    fn spent(&self) -> Picos {
        Picos(self.0.spent.get())
    }
    fn sleep(&self, until: Picos, _: Option<RawFd>) {
        self.0.now.set(self.0.now.get().max(until.0));
    }
}
impl People for Fake {
    fn look(&mut self) -> io::Result<Vec<Person>> {
        let took = self.0.look_takes.get();
        self.0.now.set(self.0.now.get() + took + self.0.held_up.get());
        self.0.spent.set(self.0.spent.get() + took);
        self.0.did.borrow_mut().push("people".to_owned());
        Ok(self.0.people.borrow().clone())
    }
    fn lives(&self, who: Who) -> bool {
        self.0.people.borrow().iter().any(|p| p.who == who)
    }
}
impl Memory for Fake {
    fn look(&mut self) -> io::Result<Vec<(NodeId, Vec<ZoneSeen>)>> {
        Ok(vec![(NodeId(0), Vec::new())])
    }
}
impl Places for Fake {
    fn census(&mut self, _: Who) -> Option<BTreeMap<NodeId, Pages>> {
        Some(BTreeMap::from([(NodeId(0), Pages(7)), (NodeId(1), Pages(2))]))
    }
    fn extents(&mut self, who: Who) -> Option<Vec<(Span, BTreeMap<NodeId, Pages>)>> {
        let there = self.0.people.borrow().iter().any(|p| p.who == who);
        there.then(|| {
            vec![(span(1, 10), BTreeMap::from([(NodeId(0), Pages(7)), (NodeId(1), Pages(2))]))]
        })
    }
    fn within_each(&mut self, who: Who, spans: &[Span]) -> Option<Vec<BTreeMap<NodeId, Pages>>> {
        let there = self.0.people.borrow().iter().any(|p| p.who == who);
        there.then(|| spans.iter().map(|_| BTreeMap::new()).collect())
    }
}
impl Heat for Fake {
    fn source(&self) -> Source {
        Source::Damon
    }
    fn watch(&mut self, who: Who) {
        self.0.did.borrow_mut().push(format!("watch {who}"));
    }
    fn unwatch(&mut self, who: Who) {
        self.0.did.borrow_mut().push(format!("unwatch {who}"));
    }
    fn take(&mut self, _: Picos, out: &mut Vec<Seen>) -> Result<(), String> {
        out.append(&mut self.0.heat.borrow_mut());
        Ok(())
    }
}
impl Loads for Fake {
    fn watch(&mut self, who: Who) {
        self.0.did.borrow_mut().push(format!("count {who}"));
    }
    fn unwatch(&mut self, who: Who) {
        self.0.did.borrow_mut().push(format!("uncount {who}"));
    }
    fn take(&mut self, _: Who) -> Option<Offcore> {
        self.0.counted.take()
    }
}
impl Mover for Fake {
    fn carry(&mut self, _: Who, spans: &[Span], _: NodeId, _: NodeId) -> Carried {
        let all: Pages = spans.iter().map(|s| s.pages()).sum();
        Carried { moved: all, fails: Fails::default() }
    }
}

const ONE: Who = Who { pid: 10, start: 5 };

fn person(who: Who) -> Person {
    let (ran, node) = (Picos::from_ms(3), Some(NodeId(0)));
    Person { who, name: "one".to_owned(), ran, node, resident: Pages(9) }
}

fn topology() -> topology::Hardware {
    let node = |id| Node {
        id: NodeId(id),
        medium: Medium::Dram,
        zones: vec![Zone { kind: ZoneKind::Normal, managed: Pages(1000) }],
    };
    topology::Hardware {
        name: "two".into(),
        about: String::new(),
        nodes: vec![node(0), node(1)],
        cpus: vec![Cpu {
            id: CpuId(0),
            node: NodeId(0),
            core: 0,
            llc: 0,
            capacity: 1024,
            mhz: None,
        }],
        caches: Vec::new(),
        distances: vec![vec![10, 20], vec![20, 10]],
        links: Vec::new(),
        idle_states: Vec::new(),
        curves: Vec::new(),
        loaded: Vec::new(),
        defaults: None,
        costs: Default::default(),
    }
}

fn machine(world: &Rc<World>, moves: bool) -> LiveMachine {
    let fake = || Fake(Rc::clone(world));
    LiveMachine::new(Parts {
        cpus: None,
        threads: None,
        topology: topology(),
        version: KernelVersion::default(),
        root: PathBuf::from("/nowhere"),
        clock: Box::new(fake()),
        people: Box::new(fake()),
        memory: Box::new(fake()),
        places: Box::new(fake()),
        heat: Box::new(fake()),
        loads: Some(Box::new(fake())),
        mover: moves.then(|| Box::new(fake()) as Box<dyn Mover>),
        census: false,
        pace: Pace { permille: 10, longest: Picos::from_secs(60) },
    })
}

fn order(id: u64, act: Act) -> Order {
    Order { id: OrderId(id), act, expect: Benefit::default(), why: Reason::SourceNeeds }
}

fn span(start: u64, end: u64) -> Span {
    Span { start, end }
}

#[test]
fn an_order_is_reported_once_before_what_is_seen_next() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    let mut m = machine(&world, true);
    let spans = vec![span(1, 4), span(6, 7)];
    m.submit(&order(1, Act::Watch { who: ONE })).unwrap();
    m.submit(&order(2, Act::Look { who: ONE, spans: spans.clone() })).unwrap();
    m.submit(&order(3, Act::Move { who: ONE, spans, from: NodeId(0), to: NodeId(1) })).unwrap();
    let mut seen = Vec::new();
    m.wait(Picos::from_ms(1), &mut seen).unwrap();
    let reports: Vec<_> = seen
        .iter()
        .filter_map(|s| match s {
            Seen::Done { order, tried, moved, .. } => Some((order.0, tried.0, moved.0)),
            _ => None,
        })
        .collect();
    assert_eq!(reports, [(1, 0, 0), (2, 4, 4), (3, 4, 4)]);
    assert!(matches!(seen.last(), Some(Seen::Node { .. })));
    assert!(seen.iter().any(|s| matches!(s, Seen::Task { who: ONE, .. })));
    let before = seen.len();
    m.wait(Picos::from_ms(2), &mut seen).unwrap();
    assert_eq!(seen.len() - before, 1, "processes are not read again so soon: {seen:?}");
}

#[test]
fn who_ended_is_told_once_and_no_longer_sampled() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    let mut m = machine(&world, true);
    m.wait(Picos::from_ms(1), &mut Vec::new()).unwrap();
    let all = || vec![span(1, 4)];
    m.submit(&order(1, Act::Move { who: ONE, spans: all(), from: NodeId(0), to: NodeId(1) }))
        .unwrap();
    // Under the same number lives another one.
    let other = Who { pid: 10, start: 900 };
    *world.people.borrow_mut() = vec![person(other)];
    let mut seen = Vec::new();
    m.wait(Picos::from_ms(200), &mut seen).unwrap();
    let Some(Seen::Done { moved, fails, .. }) = seen.first() else { panic!("{seen:?}") };
    assert_eq!((moved.0, fails.gone.0), (0, 3));
    assert_eq!(seen.iter().filter(|s| **s == Seen::Gone { who: ONE }).count(), 1);
    assert!(world.did.borrow().contains(&format!("unwatch {ONE}")));
    assert!(seen.iter().any(|s| matches!(s, Seen::Task { who, .. } if *who == other)));
    let again = m.submit(&order(2, Act::Look { who: ONE, spans: all() }));
    assert_eq!(again, Err(ApplyError::NoProcess));
}

#[test]
fn what_makes_no_sense_or_would_change_something_is_refused() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    let m = &mut machine(&world, true);
    let mv = |spans: Vec<Span>, to| Act::Move { who: ONE, spans, from: NodeId(0), to: NodeId(to) };
    let cases = [
        (mv(vec![], 1), ApplyError::BadSpan),
        (mv(vec![span(4, 4)], 1), ApplyError::BadSpan),
        (mv(vec![span(4, 6), span(5, 7)], 1), ApplyError::BadSpan),
        (mv(vec![span(0, MOST_PAGES + 1)], 1), ApplyError::BadSpan),
        (mv(vec![span(0, u64::MAX), WHOLE], 1), ApplyError::BadSpan),
        (mv(vec![span(4, 6)], 9), ApplyError::NoNode),
        (Act::Affine { who: ONE, node: NodeId(0) }, ApplyError::Unable),
        (Act::Split { who: ONE, spans: vec![span(0, 512)] }, ApplyError::Unable),
        (Act::Watch { who: Who { pid: 1, start: 1 } }, ApplyError::NoProcess),
    ];
    for (act, expected) in cases {
        assert_eq!(m.submit(&order(1, act.clone())), Err(expected), "{act}");
    }
    for n in 0..MOST_ORDERS as u64 {
        m.submit(&order(n, Act::Watch { who: ONE })).unwrap();
    }
    assert_eq!(m.submit(&order(9999, Act::Watch { who: ONE })), Err(ApplyError::Full));
    let mut still = machine(&world, false);
    assert!(!still.caps().moves);
    assert_eq!(still.submit(&order(1, mv(vec![span(4, 6)], 1))), Err(ApplyError::Unable));
}

#[test]
fn loads_that_were_counted_are_told_with_their_process_if_that_is_wanted() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    let mut m = machine(&world, true);
    let counted = Offcore { reads: 4, busy: Picos(200), under_way: Picos(800) };
    let look = |m: &mut LiveMachine, ms| {
        let mut seen = Vec::new();
        m.wait(Picos::from_ms(ms), &mut seen).unwrap();
        seen
    };
    world.counted.set(Some(counted));
    assert!(!look(&mut m, 1).iter().any(|s| matches!(s, Seen::Loads { .. })), "nobody asked");
    m.count_overlap();
    m.count_overlap();
    m.submit(&order(1, Act::Watch { who: ONE })).unwrap();
    let seen = look(&mut m, 200);
    let at = seen.iter().position(|s| matches!(s, Seen::Task { who: ONE, .. })).unwrap();
    assert_eq!(seen[at + 1], Seen::Loads { who: ONE, counted });
    m.submit(&order(2, Act::Unwatch { who: ONE })).unwrap();
    assert!(!look(&mut m, 400).iter().any(|s| matches!(s, Seen::Loads { .. })), "nothing counted");
    m.submit(&order(3, Act::Watch { who: ONE })).unwrap();
    look(&mut m, 600);
    world.people.borrow_mut().clear();
    look(&mut m, 800);
    let did = world.did.borrow();
    let counts: Vec<&String> = did.iter().filter(|d| d.contains("count")).collect();
    let (on, off) = (format!("count {ONE}"), format!("uncount {ONE}"));
    assert_eq!(counts, [&on, &off, &on, &off], "who has gone is not counted any more");
}

#[test]
fn a_look_that_takes_long_is_paid_for_by_waiting() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    world.look_takes.set(Picos::from_ms(400).0);
    // On a busy machine it waits for a CPU. That is not paid for.
    world.held_up.set(Picos::from_ms(300).0);
    let mut m = machine(&world, false);
    for ms in (0..100_000).step_by(500) {
        m.wait(Picos::from_ms(ms), &mut Vec::new()).unwrap();
    }
    // 1 % of 100 s is 1 s: looks of 0.4 s every 40 s, and the first one.
    let looks = || world.did.borrow().iter().filter(|d| *d == "people").count();
    assert_eq!(looks(), 1 + 3);
    // But every ten seconds, if that is wanted; the one before is waited for still.
    m.parts.pace.longest = Picos::from_secs(10);
    for ms in (100_000..200_000).step_by(500) {
        m.wait(Picos::from_ms(ms), &mut Vec::new()).unwrap();
    }
    assert_eq!(looks(), 1 + 3 + 8);
}

#[test]
fn time_in_suspend_is_told_as_silence() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    world.heat.borrow_mut().push(Seen::Lost { events: 3 });
    let mut m = machine(&world, false);
    m.wait(Picos::from_ms(10), &mut Vec::new()).unwrap();
    world.now.set(Picos::from_secs(3600).0);
    world.asleep.set(Picos::from_secs(3500).0);
    let mut seen = Vec::new();
    m.wait(Picos::from_secs(3601), &mut seen).unwrap();
    assert_eq!(seen[0], Seen::Stale { since: Picos::from_ms(10) });
    seen.clear();
    m.wait(Picos::from_secs(3602), &mut seen).unwrap();
    assert!(!seen.iter().any(|s| matches!(s, Seen::Stale { .. })), "told once: {seen:?}");
}

#[test]
fn a_census_names_the_whole_address_space() {
    let world = Rc::new(World { people: vec![person(ONE)].into(), ..World::default() });
    let mut m = machine(&world, false);
    m.parts.census = true;
    let mut seen = Vec::new();
    m.wait(Picos::from_ms(1), &mut seen).unwrap();
    let told: Vec<_> = seen
        .iter()
        .filter_map(|s| match s {
            Seen::Resident { span, on, pages, .. } if *span == WHOLE => Some((on.0, pages.0)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(0, 7), (1, 2)]);
}

#[test]
fn knobs_are_read_and_never_written() {
    let world = Rc::new(World::default());
    let mut m = machine(&world, false);
    let read = m.knob(KnobOp::Read(homenode_core::knobs::Knob::Swappiness)).unwrap_err();
    assert_eq!((read.errno, read.given), (Errno::Enoent, None));
    let wrote = m.knob(KnobOp::Write(homenode_core::knobs::Knob::Swappiness, "1")).unwrap_err();
    assert_eq!(wrote.errno, Errno::Eperm);
}
