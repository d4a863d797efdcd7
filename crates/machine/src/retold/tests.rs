use super::*;
use crate::told::Told;
use crate::{Advised, Deeds as _, Notes, Recorded};
use expect_test::expect;
use homenode_core::policy::order::{Benefit, Reason};
use homenode_core::policy::seen::Span;

const ONE: Who = Who { pid: 1, start: 5 };

fn order(id: u64, act: Act) -> Order {
    Order { id: OrderId(id), act, expect: Benefit::default(), why: Reason::Hot }
}
fn span(start: u64, end: u64) -> Span {
    Span { start, end }
}
fn look(id: u64, start: u64, end: u64) -> Order {
    order(id, Act::Look { who: ONE, spans: vec![span(start, end)] })
}
fn resident(start: u64, end: u64, on: u16, pages: u64) -> Seen {
    let (span, on, pages) = (span(start, end), NodeId(on), Pages(pages));
    Seen::Resident { who: ONE, span, on, pages }
}
fn task() -> Seen {
    Seen::Task { who: ONE, ran: Picos::from_secs(2), node: Some(NodeId(0)), resident: Pages(9) }
}
fn done(id: u64) -> Seen {
    let (tried, moved) = (Pages(1), Pages(1));
    let (fails, took) = (Fails::default(), Picos(1));
    Seen::Done { order: OrderId(id), tried, moved, fails, took }
}

/// A machine that was told so, for who asks so.
fn retold(lines: Vec<Heard>, asked: Asked) -> (Retold, Log) {
    let log = Log::new(lines.into_iter().map(Ok), asked);
    let told = Told::new();
    let (caps, topology) = (told.caps().clone(), told.topology().clone());
    (Retold::new(caps, topology, Picos::ZERO, log.clone()), log)
}

fn wait(m: &mut impl Machine, ms: u64) -> String {
    let mut seen = Vec::new();
    let waited = m.wait(Picos::from_ms(ms), &mut seen);
    let seen: Vec<String> = seen.iter().map(short).collect();
    let seen = if seen.is_empty() { String::new() } else { format!(" {}", seen.join("; ")) };
    let end = waited.err().map_or(String::new(), |e| format!(" ({e})"));
    format!("{} ms:{seen}{end}\n", m.now().as_ms())
}
fn short(seen: &Seen) -> String {
    match seen {
        Seen::Task { who, .. } => format!("task {who}"),
        Seen::Resident { span, on, pages, .. } => {
            format!("[{},{}) {} on {on}", span.start, span.end, pages.0)
        }
        Seen::Done { order, .. } => format!("done #{}", order.0),
        other => format!("{other:?}"),
    }
}

/// What one machine tells while it is recorded, with orders in between; it moves on its own.
fn recording() -> (Vec<Heard>, String) {
    let heard = Rc::new(RefCell::new(Vec::new()));
    let into = heard.clone();
    let notes = Notes::new(move |h| into.borrow_mut().push(h));
    let mut told = Told::new();
    told.says = vec![task(), resident(0, 100, 1, 40)];
    let mut m = Recorded::new(told, Some((notes.clone(), Picos::ZERO)));
    notes.name(ONE, "web");
    notes.name(ONE, "web");
    let mut out = wait(&mut m, 10);
    m.submit(&look(1, 0, 8)).unwrap();
    out += &wait(&mut m, 20);
    let heard = heard.borrow().clone();
    (heard, out)
}

#[test]
fn what_was_told_is_told_again_to_who_asks_the_same() {
    let (lines, then) = recording();
    let (mut m, log) = retold(lines.clone(), Asked::ByPolicy);
    let mut now = wait(&mut m, 3);
    m.submit(&look(1, 0, 8)).unwrap();
    now += &wait(&mut m, 4);
    assert_eq!(now, then);
    assert_eq!(log.differs(), None);
    assert!(log.is_over());
    assert_eq!(log.names(), BTreeMap::from([(ONE, "web".to_owned())]), "told once");
    assert_eq!(wait(&mut m, 9), "20 ms: (the machine has stopped)\n");
}

#[test]
fn who_asks_otherwise_is_told_where_and_answered_from_what_is_known() {
    let lines = vec![
        Heard::Waited {
            now: Picos::from_ms(10),
            seen: vec![task(), resident(0, 100, 0, 60), resident(0, 100, 1, 40)],
        },
        Heard::Ordered { order: OrderId(1), act: "look 1@5 [0,8)".into(), refused: None },
        Heard::Waited { now: Picos::from_ms(20), seen: vec![resident(20, 30, 1, 10), done(1)] },
        Heard::Waited { now: Picos::from_ms(30), seen: Vec::new() },
    ];
    let (mut m, log) = retold(lines, Asked::ByPolicy);
    let mut out = wait(&mut m, 1);
    m.submit(&look(1, 4, 8)).unwrap();
    out += &wait(&mut m, 1);
    m.submit(&look(2, 25, 40)).unwrap();
    m.submit(&order(3, Act::Census { who: ONE })).unwrap();
    assert_eq!(m.submit(&look(4, 9, 9)), Err(ApplyError::BadSpan));
    let other = Act::Watch { who: Who { pid: 2, start: 0 } };
    assert_eq!(m.submit(&order(5, other)), Err(ApplyError::NoProcess));
    out += &wait(&mut m, 1);
    out += &log.differs().unwrap();
    expect![[r#"
        10 ms: task 1@5; [0,100) 60 on 0; [0,100) 40 on 1
        20 ms: [4,8) 2 on 0; [4,8) 2 on 1; done #1; [20,30) 10 on 1
        30 ms: [25,30) 5 on 1; [30,40) 6 on 0; [30,40) 4 on 1; done #2; [0,20) 12 on 0; [0,20) 8 on 1; [20,30) 10 on 1; [30,100) 42 on 0; [30,100) 28 on 1; done #3
        at 0.010 s it was #1 look 1@5 [0,8), and now it is #1 look 1@5 [4,8) (hot)"#]]
    .assert_eq(&out);
}

// Nobody asked a policy's questions then. Answers come when they are wanted, not with the next look.
#[test]
fn an_observation_answers_from_what_is_known() {
    let whole = Seen::Resident { who: ONE, span: Span::WHOLE, on: NodeId(1), pages: Pages(9) };
    let lines = vec![
        Heard::Waited { now: Picos::from_ms(10), seen: vec![task(), whole] },
        Heard::Ordered { order: OrderId(1), act: "watch 1@5".into(), refused: None },
        Heard::Waited { now: Picos::from_ms(1000), seen: vec![done(1)] },
    ];
    let (mut m, log) = retold(lines, Asked::ByObserver);
    let mut out = wait(&mut m, 1);
    m.submit(&order(1, Act::Watch { who: ONE })).unwrap();
    m.submit(&look(2, 5, 9)).unwrap();
    out += &wait(&mut m, 50);
    out += &wait(&mut m, 60);
    expect![[r"
        10 ms: task 1@5; [0,1) on
        50 ms: done #1; [5,9) 4 on 1; done #2
        1000 ms:
    "]]
    .assert_eq(&out.replace("[0,4503599627370496) 9 on 1", "[0,1) on"));
    assert_eq!(log.differs(), None, "there is nothing to differ from");
}

#[test]
fn moves_and_answers_about_groups_are_held_against_those_of_then() {
    let whose = Whose { command: "web".into(), cgroup: "/w".into(), user: 7 };
    let mv =
        |end| Act::Move { who: ONE, spans: vec![span(0, end)], from: NodeId(1), to: NodeId(0) };
    let lines = vec![
        Heard::Waited { now: Picos::from_ms(10), seen: vec![task(), resident(0, 100, 1, 100)] },
        Heard::Whose { who: ONE, whose: Some(whose.clone()) },
        Heard::Has { cgroup: "/w".into(), pages: Some(Pages(3)) },
        Heard::Waited { now: Picos::from_ms(20), seen: Vec::new() },
        Heard::Moved { order: OrderId(1), act: mv(10).to_string() },
        Heard::Waited { now: Picos::from_ms(30), seen: Vec::new() },
    ];
    let (m, log) = retold(lines, Asked::ByPolicy);
    let mut m = Advised::new(m);
    wait(&mut m, 1);
    let mut asked = log.belongings();
    assert_eq!(asked.whose(ONE), Some(whose.clone()));
    assert_eq!(asked.pages("/w", &BTreeSet::new()), Some(Pages(3)));
    m.submit(&order(1, mv(10))).unwrap();
    wait(&mut m, 1);
    for deed in m.take_deeds() {
        log.moved(&deed.order);
    }
    assert_eq!(log.differs(), None);
    m.submit(&order(2, mv(20))).unwrap();
    wait(&mut m, 1);
    for deed in m.take_deeds() {
        log.moved(&deed.order);
    }
    let differs = log.differs().unwrap();
    assert_eq!(differs, "at 0.030 s it was nothing, and now it is #2 move 1@5 1->0 [0,20)");
    // The last answers, also to who asks more often.
    assert_eq!(asked.whose(ONE), Some(whose));
    assert_eq!(asked.pages("/w", &BTreeSet::new()), Some(Pages(3)));
}

// Moves that were made are told with what became of them; others as if they had been made.
#[test]
fn what_was_moved_then_moves_again() {
    let mv = |id, start, end| {
        let (spans, from, to) = (vec![span(start, end)], NodeId(1), NodeId(0));
        order(id, Act::Move { who: ONE, spans, from, to })
    };
    let came = {
        let (tried, moved, took) = (Pages(10), Pages(7), Picos(5));
        let fails = Fails { busy: Pages(3), ..Fails::default() };
        Seen::Done { order: OrderId(1), tried, moved, fails, took }
    };
    let heard = |ms, seen| Heard::Waited { now: Picos::from_ms(ms), seen };
    let lines = vec![
        heard(10, vec![task(), resident(0, 100, 1, 100)]),
        Heard::Ordered { order: OrderId(1), act: mv(1, 0, 10).act.to_string(), refused: None },
        heard(20, vec![came]),
        heard(30, Vec::new()),
        heard(40, Vec::new()),
    ];
    let (mut m, log) = retold(lines, Asked::ByPolicy);
    m.caps.moves = true;
    let mut m = crate::Acting::new(m);
    wait(&mut m, 1);
    m.submit(&mv(1, 0, 10)).unwrap();
    wait(&mut m, 1);
    let deeds = m.take_deeds();
    assert_eq!((deeds[0].moved, deeds[0].fails.busy), (Pages(7), Pages(3)), "{deeds:?}");
    assert_eq!(log.differs(), None);
    // One that was not made then.
    m.submit(&mv(2, 90, 110)).unwrap();
    m.submit(&look(3, 80, 100)).unwrap();
    m.submit(&mv(4, 90, 110)).unwrap();
    let out = wait(&mut m, 1);
    let deeds = m.take_deeds();
    assert_eq!((deeds[0].tried, deeds[0].moved), (Pages(10), Pages(10)), "as many as were known");
    assert_eq!((deeds[1].moved, deeds[1].fails.absent), (Pages(0), Pages(20)), "they are gone");
    expect![[r"
        30 ms: done #2; [80,90) 10 on 1; [90,100) 10 on 0; done #3; done #4
    "]]
    .assert_eq(&out);
    assert!(log.differs().unwrap().ends_with("now it is #2 move 1@5 1->0 [90,110) (hot)"));
}

// The live machine is always inside of one.
#[test]
fn a_machine_that_is_recorded_samples_as_often_as_it_is_asked_to() {
    let mut m = crate::Acting::new(Recorded::new(Told::new(), None));
    m.sample_every(313);
    assert_eq!(m.into_inner().into_inner().periods, [313]);
}

#[test]
fn a_recording_that_breaks_off_says_why() {
    let lines = [
        Ok(Heard::Waited { now: Picos::from_ms(10), seen: Vec::new() }),
        Err("line 3 makes no sense".to_owned()),
        Ok(Heard::Waited { now: Picos::from_ms(20), seen: Vec::new() }),
    ];
    let told = Told::new();
    let log = Log::new(lines.into_iter(), Asked::ByPolicy);
    let (caps, topology) = (told.caps().clone(), told.topology().clone());
    let mut m = Retold::new(caps, topology, Picos::ZERO, log);
    let out = wait(&mut m, 1) + &wait(&mut m, 1) + &wait(&mut m, 1);
    expect![[r"
        10 ms:
        10 ms: (line 3 makes no sense)
        10 ms: (line 3 makes no sense)
    "]]
    .assert_eq(&out);
}
