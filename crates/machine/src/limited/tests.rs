//! What gets through to a machine that says what the test says.

use super::*;
use crate::Advised;
use crate::told::Told;
use homenode_core::limits::Group;
use homenode_core::policy::order::Benefit;
use homenode_core::policy::seen::Span;
use std::cell::RefCell;
use std::rc::Rc;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const DB: Who = Who { pid: 10, start: 5 };
const SSH: Who = Who { pid: 20, start: 5 };

/// What the kernel would say of processes and cgroups.
#[derive(Clone, Default)]
struct Books {
    people: Rc<RefCell<BTreeMap<Who, Whose>>>,
    /// Pages on the fast node.
    groups: Rc<RefCell<BTreeMap<String, u64>>>,
}

impl Books {
    fn new() -> Self {
        let books = Self::default();
        books.put(DB, "postgres", "/db/1");
        books.put(SSH, "sshd", "/ssh");
        books.count("/db", 1000);
        books
    }
    fn put(&self, who: Who, command: &str, cgroup: &str) {
        let whose = Whose { command: command.to_owned(), cgroup: cgroup.to_owned(), user: 0 };
        self.people.borrow_mut().insert(who, whose);
    }
    fn count(&self, cgroup: &str, pages: u64) {
        self.groups.borrow_mut().insert(cgroup.to_owned(), pages);
    }
}

impl Belongings for Books {
    fn whose(&mut self, who: Who) -> Option<Whose> {
        self.people.borrow().get(&who).cloned()
    }
    fn pages(&mut self, cgroup: &str, on: &BTreeSet<NodeId>) -> Option<Pages> {
        assert_eq!(on.iter().copied().collect::<Vec<_>>(), [FAST]);
        self.groups.borrow().get(cgroup).copied().map(Pages)
    }
}

fn gate(books: &Books, settles: Option<Picos>) -> Gate {
    let limits = Limits {
        excluded: vec![Excluded::Command("sshd".to_owned())],
        groups: vec![Group { path: "/db".to_owned(), floor: Pages(500), priority: 0 }],
    };
    Gate { limits, belongings: Box::new(books.clone()), fast: [FAST].into(), settles }
}
fn order(id: u64, who: Who, pages: u64, from: NodeId, to: NodeId) -> Order {
    let spans = vec![Span { start: id * 1000, end: id * 1000 + pages }];
    let act = Act::Move { who, spans, from, to };
    Order { id: OrderId(id), act, expect: Benefit::default(), why: Reason::MakeRoom }
}
fn down(id: u64, who: Who, pages: u64) -> Order {
    order(id, who, pages, FAST, SLOW)
}
fn done(id: u64, moved: u64) -> Seen {
    let moved = Pages(moved);
    let (fails, took) = (Fails::default(), Picos::ZERO);
    Seen::Done { order: OrderId(id), tried: moved, moved, fails, took }
}
fn task(who: Who) -> Seen {
    Seen::Task { who, ran: Picos::ZERO, node: None, resident: Pages(1) }
}
fn sample(who: Who) -> Seen {
    Seen::Sample { who, vpn: 1, from: FAST, period: 1 }
}
fn wait<M: Machine>(m: &mut Limited<M>, ms: u64) -> Vec<Seen> {
    let mut out = Vec::new();
    m.wait(Picos::from_ms(ms), &mut out).expect("it never breaks");
    out
}

#[test]
fn who_is_left_alone_is_never_told_of() {
    let books = Books::new();
    let mut m = Limited::new(Told::new(), gate(&books, None));
    m.inside_mut().says = vec![task(DB), task(SSH), sample(SSH), sample(DB)];
    assert_eq!(wait(&mut m, 0), [task(DB), sample(DB)]);
    assert_eq!(m.submit(&order(1, SSH, 1, SLOW, FAST)), Err(ApplyError::Refused));
    assert_eq!(m.refusals().excluded, [("command sshd".to_owned(), 2)].into());
    // It becomes another program by exec: from then on it is like one that has ended.
    books.put(DB, "sshd", "/db/1");
    m.inside_mut().says = vec![task(DB)];
    assert_eq!(wait(&mut m, 9_999), [task(DB)], "whose it is was asked a moment ago");
    assert_eq!(m.submit(&order(2, DB, 1, SLOW, FAST)), Err(ApplyError::Refused), "now");
    m.inside_mut().says = vec![task(DB)];
    assert_eq!(wait(&mut m, 10_000), [Seen::Gone { who: DB }]);
    assert_eq!(m.inside().asked, [Act::Unwatch { who: DB }]);
    m.inside_mut().says = vec![task(DB), sample(DB), Seen::Gone { who: DB }];
    assert_eq!(wait(&mut m, 10_001), []);
    // One of whom nothing can be told is left alone too.
    let other = Who { pid: 30, start: 1 };
    m.inside_mut().says = vec![task(other)];
    assert_eq!(wait(&mut m, 10_002), []);
}

#[test]
fn a_floor_holds_while_counts_are_late() {
    let books = Books::new();
    let mut m = Limited::new(Told::new(), gate(&books, Some(Picos::from_secs(2))));
    // 1000 pages of which 500 stay. What is on the way counts.
    assert_eq!(m.submit(&down(1, DB, 300)), Ok(()));
    assert_eq!(m.submit(&down(2, DB, 201)), Err(ApplyError::Refused));
    assert_eq!(m.submit(&down(2, DB, 200)), Ok(()));
    // Of the first half stayed, which is known at once; the count shows nothing of it yet.
    m.inside_mut().says = vec![done(1, 150), done(2, 200)];
    wait(&mut m, 10);
    assert_eq!(m.submit(&down(3, DB, 151)), Err(ApplyError::Refused));
    assert_eq!(m.submit(&down(3, DB, 150)), Ok(()));
    m.inside_mut().says = vec![done(3, 150)];
    wait(&mut m, 20);
    assert_eq!(m.submit(&down(4, DB, 1)), Err(ApplyError::Refused));
    // Two seconds later the kernel's count has it all. Pages that came up have to be counted.
    books.count("/db", 510);
    wait(&mut m, 2_030);
    assert_eq!(m.submit(&order(5, DB, 100, SLOW, FAST)), Ok(()));
    assert_eq!(m.submit(&down(6, DB, 11)), Err(ApplyError::Refused));
    assert_eq!(m.submit(&down(6, DB, 10)), Ok(()));
    assert_eq!(m.refusals().floor, [("/db".to_owned(), 4)].into());
    // The cgroup is gone, as is what was known of it.
    books.groups.borrow_mut().clear();
    assert_eq!(m.submit(&down(7, DB, 1)), Err(ApplyError::Refused));
}

#[test]
fn a_move_that_the_machine_does_not_take_counts_for_nothing() {
    let books = Books::new();
    let mut m = Limited::new(Advised::new(Told::new()), gate(&books, None));
    // Advised has not been told of the process.
    assert_eq!(m.submit(&down(1, DB, 500)), Err(ApplyError::NoProcess));
    m.inside_mut().inside_mut().says = vec![task(DB), resident(0, 10_000)];
    wait(&mut m, 0);
    assert_eq!(m.submit(&down(1, DB, 500)), Ok(()));
    wait(&mut m, 1);
    // Nothing is moved, so the count stays as it is for ever: what was wished is taken off.
    assert_eq!(m.submit(&down(2, DB, 1)), Err(ApplyError::Refused));
    wait(&mut m, 3_600_000);
    assert_eq!(m.submit(&down(2, DB, 1)), Err(ApplyError::Refused));
    // And what would have come up is there.
    assert_eq!(m.submit(&order(1, DB, 300, SLOW, FAST)), Ok(()));
    wait(&mut m, 3_600_001);
    assert_eq!(m.submit(&down(3, DB, 301)), Err(ApplyError::Refused));
    assert_eq!(m.submit(&down(3, DB, 300)), Ok(()));
}

fn resident(start: u64, pages: u64) -> Seen {
    let span = Span { start, end: start + pages };
    Seen::Resident { who: DB, span, on: FAST, pages: Pages(pages) }
}

#[test]
fn while_moves_are_held_there_is_no_room() {
    let books = Books::new();
    let mut m = Limited::new(Told::new(), gate(&books, None));
    m.hold(true);
    assert_eq!(m.submit(&order(1, DB, 64, SLOW, FAST)), Ok(()));
    assert_eq!(m.submit(&order(2, DB, 64, FAST, SLOW)), Ok(()));
    let tried = Pages(64);
    let held = |id| Seen::Done {
        order: OrderId(id),
        tried,
        moved: Pages::ZERO,
        fails: Fails { no_room: tried, ..Fails::default() },
        took: Picos::ZERO,
    };
    assert_eq!(wait(&mut m, 1), [held(1), held(2)]);
    assert_eq!(wait(&mut m, 2), [], "once");
    assert_eq!(m.inside().asked, []);
    m.hold(false);
    assert_eq!(m.submit(&order(3, DB, 64, SLOW, FAST)), Ok(()));
    assert_eq!(m.inside().asked.len(), 1);
}
