//! What every machine must do, written once.
//!
//! A body looks at a machine through [`Machine`] and through a [`Stage`], on which
//! programs are started and ended and the truth can be counted. It never calls a rule:
//! what it asserts is what a person would. `Err` says what was found.
//!
//! Each body is held against machines that are broken on purpose, so that it is known
//! to fail (the tests of `homenode-sim`).

use crate::{ApplyError, Around, Caps, Machine, ObserveError, drive};
use homenode_core::engine::{Engine, Settings};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::Policy as _;
use homenode_core::policy::order::{Act, Benefit, Fails, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Span, Who, ZoneSeen};
use homenode_core::units::{MBps, NodeId, Pages, Picos};
use std::collections::BTreeMap;

/// A program that a stage can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Pages of its one mapping, all touched at its start.
    pub pages: u64,
    /// The node where they begin.
    pub on: NodeId,
    /// For how long it then accesses all of them, before it sleeps for ever.
    pub busy: Picos,
}

/// Longer than any test takes.
pub const ALWAYS: Picos = Picos::from_secs(100_000);
const NEVER: Picos = Picos::ZERO;

/// Where programs run beside a machine. All of it is truth: a machine's own word is
/// held against it.
pub trait Stage {
    /// The machine.
    type Machine: Machine;
    /// The machine.
    fn machine(&mut self) -> &mut Self::Machine;
    /// A fast node with memory and a slower one.
    fn nodes(&self) -> (NodeId, NodeId);
    /// Starts a program; its name and its mapping.
    fn start(&mut self, load: Load) -> (Who, Span);
    /// Ends a program.
    fn end(&mut self, who: Who);
    /// Ends a program and starts another under the same PID.
    fn replace(&mut self, who: Who, load: Load) -> (Who, Span);
    /// Makes pages stay on a node, whoever wants to move them.
    fn bind(&mut self, who: Who, span: Span, to: NodeId);
    /// A program's pages by node.
    fn placed(&mut self, who: Who, span: Span) -> BTreeMap<NodeId, Pages>;
    /// A program's processor time.
    fn ran(&mut self, who: Who) -> Option<Picos>;
    /// Pages moved between nodes so far, whoever asked.
    fn moved(&mut self) -> Pages;
    /// A node's zones.
    fn zones(&mut self, node: NodeId) -> Vec<ZoneSeen>;
    /// How many times longer than on a quick machine it may take that something is noticed.
    fn patience(&self) -> u64 {
        1
    }
    /// Free pages that a kernel may take or give at any time for itself.
    fn noise(&self) -> Pages {
        Pages::ZERO
    }
    /// Pages that are left free where a node is filled: more than its program needs beside
    /// its memory.
    fn spare(&self) -> Pages {
        Pages(200)
    }
}

/// What a body found, for people.
pub type Finding = String;

// ── Bodies about the machine alone ─────────────────────────────────────────────

/// A page that a report calls moved is on its target and nowhere else, the others are
/// where they were, and looking says the same.
///
/// # Errors
/// What was found instead.
pub fn moved_pages_are_there<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let (who, span) = start(stage, Load { pages: 600, on: slow, busy: NEVER })?;
    let before = stage.moved();
    let part = Span { start: span.start, end: span.start + 400 };
    let done = carry_out(stage, 1, move_of(who, part, slow, fast))?;
    hold!(done.tried == Pages(400), "400 pages were ordered, {:?} tried", done.tried);
    hold!(done.moved.0 > 0, "nothing moved: {:?}", done.fails);
    let there = stage.placed(who, span);
    let on = |n| there.get(&n).copied().unwrap_or_default();
    hold!(on(fast) == done.moved, "{:?} reported, {:?} on the target", done.moved, on(fast));
    hold!(on(slow) == Pages(600) - done.moved, "{:?} left behind", on(slow));
    let counted = stage.moved() - before;
    hold!(counted == done.moved, "{:?} reported, the machine moved {counted:?}", done.moved);

    let looked = carry_out(stage, 2, Act::Look { who, spans: vec![span] })?;
    hold!(looked.resident == there, "a look says {:?}, it is {there:?}", looked.resident);
    // A program has more than that memory, but no less.
    let counted = carry_out(stage, 3, Act::Census { who })?;
    let misses = there.iter().find(|(n, pages)| counted.resident.get(n).is_none_or(|c| c < pages));
    hold!(misses.is_none(), "a census says {:?}, it is {there:?}", counted.resident);
    hold!(counted.tried.0 > 0, "a census that was answered names no pages");
    // Once more: they are not where the order says.
    let again = carry_out(stage, 4, move_of(who, part, slow, fast))?;
    let most = Pages(400) - done.moved;
    hold!(again.moved <= most, "{:?} moved twice", again.moved);
    stage.end(who);
    Ok(())
}

/// An order of which a part can't be carried out says so: what is bound stays, what is
/// not there is absent, and the counts add up.
///
/// # Errors
/// What was found instead.
pub fn partial_failures_add_up<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let (who, span) = start(stage, Load { pages: 600, on: slow, busy: NEVER })?;
    let bound = Span { start: span.start, end: span.start + 200 };
    stage.bind(who, bound, slow);
    // A quarter of what is ordered lies behind the mapping.
    let all = Span { start: span.start, end: span.start + 800 };
    let done = carry_out(stage, 1, move_of(who, all, slow, fast))?;
    hold!(done.tried == Pages(800), "800 pages were ordered, {:?} tried", done.tried);
    hold!(done.fails.forbidden.0 > 0, "nothing was forbidden: {:?}", done.fails);
    let inside = stage.placed(who, bound);
    hold!(!inside.contains_key(&fast), "bound pages moved: {inside:?}");
    let there = stage.placed(who, span).get(&fast).copied().unwrap_or_default();
    hold!(there == done.moved, "{:?} reported, {there:?} on the target", done.moved);
    hold!(
        done.fails.absent.0 + done.fails.busy.0 >= 200,
        "200 pages are not mapped: {:?}",
        done.fails
    );
    // What makes no sense is not taken.
    let nonsense = [
        (Act::Look { who, spans: Vec::new() }, ApplyError::BadSpan),
        (Act::Look { who, spans: vec![bound, bound] }, ApplyError::BadSpan),
        (move_of(who, span, slow, NodeId(999)), ApplyError::NoNode),
    ];
    for (act, expected) in nonsense {
        let got = submit(stage, 4, act.clone());
        hold!(got == Err(expected), "{act:?}: {got:?} instead of {expected:?}");
    }
    stage.end(who);
    Ok(())
}

/// A process that exits, or is replaced under its PID, while orders for it wait: each
/// order has its report, the new process is left alone, and it is another one.
///
/// # Errors
/// What was found instead.
pub fn exits_and_replacements<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let load = Load { pages: 600, on: slow, busy: NEVER };
    for replaced in [false, true] {
        let (old, span) = start(stage, load)?;
        let mut seen = see(stage, Picos::from_ms(250))?;
        hold!(task(&seen, old), "the process {old} is not seen");
        let half = span.start + 300;
        let parts = [Span { end: half, ..span }, Span { start: half, ..span }];
        let first = OrderId(if replaced { 12 } else { 2 });
        let second = OrderId(first.0 + 1);
        submit(stage, first.0, move_of(old, parts[0], slow, fast)).map_err(|e| e.to_string())?;
        submit(stage, second.0, move_of(old, parts[1], slow, fast)).map_err(|e| e.to_string())?;
        seen.clear();
        wait_for(stage, first, &mut seen)?;
        let new = if replaced {
            Some(stage.replace(old, load))
        } else {
            stage.end(old);
            None
        };
        wait_for(stage, second, &mut seen)?;
        for _ in 0..10 {
            stage_wait(stage, Picos::from_ms(100), &mut seen)?;
        }
        for id in [first, second] {
            let all = reports(&seen, id);
            hold!(all.len() == 1, "order {} has {} reports", id.0, all.len());
            hold!(all[0].adds_up(), "{:?}", all[0]);
        }
        let last = &reports(&seen, second)[0];
        let lost = last.fails.gone + last.fails.absent + last.fails.busy;
        hold!(last.moved + lost == Pages(300), "the process was gone: {last:?}");
        let gone = seen.iter().filter(|s| matches!(s, Seen::Gone { who } if *who == old)).count();
        hold!(gone == 1, "the end of {old} was told {gone} times");
        let told = seen.iter().position(|s| matches!(s, Seen::Gone { who } if *who == old));
        let after = &seen[told.unwrap_or(0)..];
        hold!(!task(after, old), "{old} is seen after its end");
        let again = submit(stage, second.0 + 1, move_of(old, span, slow, fast));
        hold!(again == Err(ApplyError::NoProcess), "an order for the dead {old}: {again:?}");
        let Some((new, new_span)) = new else { continue };
        hold!(new.pid == old.pid && new != old, "{new} is to be told from {old}");
        settle(stage, new, new_span, load)?;
        let on = stage.placed(new, new_span);
        hold!(
            !on.contains_key(&fast) && on.get(&slow) == Some(&Pages(600)),
            "the new process's pages were moved: {on:?}"
        );
        let mut seen = Vec::new();
        stage_wait(stage, Picos::from_ms(250), &mut seen)?;
        hold!(task(&seen, new), "the new process {new} is not seen");
        stage.end(new);
    }
    Ok(())
}

// ── Bodies about the engine on the machine ─────────────────────────────────────

/// Sampling of a process begins after the start delay, once, and not before; a process
/// that ends sooner is never sampled.
///
/// # Errors
/// What was found instead.
pub fn slow_start<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let ms = |ms| Picos::from_ms(ms) * stage.patience();
    let (delay, slice, interval) = (ms(300), ms(20), ms(100));
    let settings = Settings { start_delay: delay, interval, ..eager() };
    let mut engine = engine(stage, settings);
    // Also on a machine that is slow to end it, it stays below the delay.
    let short = stage.start(Load { pages: 64, on: fast, busy: Picos(delay.0 / 4 * 3) }).0;
    let (who, span) = stage.start(Load { pages: 600, on: slow, busy: ALWAYS });
    let mut log = Log::default();
    let (mut watched_at, mut ended) = (None, false);
    for _ in 0..400 {
        let until = stage.machine().now() + slice;
        let mut logged = Logged { inner: stage.machine(), log: &mut log };
        drive(&mut logged, &mut engine, until).map_err(|e| e.to_string())?;
        let ran = stage.ran(who).ok_or("the program has ended by itself")?;
        let watches = log.watches(who);
        hold!(watches <= 1, "sampling of {who} began {watches} times");
        hold!(watches == 1 || log.heat(who) == 0, "{who} was sampled after {ran:?} unasked");
        if watches == 1 && watched_at.is_none() {
            hold!(ran > delay, "sampling began after {ran:?} of processor time");
            watched_at = Some(ran);
        }
        if !ended && stage.ran(short).is_some_and(|r| r > Picos(delay.0 / 2)) {
            stage.end(short);
            ended = true;
        }
        let overdue = delay + interval * 4 + slice * 4;
        hold!(watches == 1 || ran < overdue, "after {ran:?} nobody has begun to sample");
        if log.heat(who) > 0 && ended {
            break;
        }
    }
    hold!(log.heat(who) > 0, "nothing was seen of {who}, of which sampling began");
    hold!(ended, "the short program got no processor");
    hold!(log.watches(short) == 0, "the short program was sampled");
    let _ = span;
    stage.end(who);
    Ok(())
}

/// Into a full fast node as much is promoted as its high mark leaves room for; colder
/// pages are moved away, and hotter ones take their place.
///
/// # Errors
/// What was found instead.
pub fn promotion_stops_at_the_mark<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let high = |z: &ZoneSeen| z.marks.high + z.marks.reserve;
    let room = |zones: &[ZoneSeen]| -> u64 {
        zones.iter().map(|z| z.free.saturating_sub(high(z)).0).sum()
    };
    // All but a little of the room above the mark is taken by a program that works for
    // long enough to be sampled, and then sleeps.
    let free = room(&stage.zones(fast));
    let (spare, noise) = (stage.spare(), stage.noise());
    hold!(free > 5 * spare.0, "the stage's fast node has no room to fill: {free} pages");
    let (cold, cold_span) =
        start(stage, Load { pages: free - spare.0, on: fast, busy: Picos::from_ms(500) })?;
    let wanted = spare * 5;
    let (hot, hot_span) = start(stage, Load { pages: wanted.0, on: slow, busy: ALWAYS })?;
    let mut engine = engine(stage, eager());
    let mut log = Log::default();
    let mut hot_there = Pages::ZERO;
    for _ in 0..300 {
        let until = stage.machine().now() + Picos::from_ms(100);
        let mut logged = Logged { inner: stage.machine(), log: &mut log };
        drive(&mut logged, &mut engine, until).map_err(|e| e.to_string())?;
        for z in stage.zones(fast) {
            hold!(z.free + noise >= high(&z), "{:?} free, the mark is {:?}", z.free, high(&z));
        }
        hot_there = stage.placed(hot, hot_span).get(&fast).copied().unwrap_or_default();
        if hot_there.0 >= wanted.0 * 9 / 10 {
            break;
        }
    }
    hold!(
        hot_there.0 >= wanted.0 * 6 / 10,
        "only {hot_there:?} of {wanted:?} hot pages came up: {}",
        thoughts(&engine)
    );
    let down = log.moves(fast, slow);
    hold!(down > 0, "nothing was moved away to make room");
    let left = stage.placed(cold, cold_span).get(&slow).copied().unwrap_or_default();
    hold!(left.0 > 0, "no cold page went down, though {down} orders said so");
    stage.end(cold);
    stage.end(hot);
    Ok(())
}

/// Over a run of the engine: each order that was taken has one report, each report adds
/// up, and what they call moved together is what the machine counts.
///
/// # Errors
/// What was found instead.
pub fn counters_add_up<S: Stage>(stage: &mut S) -> Result<(), Finding> {
    let (fast, slow) = stage.nodes();
    let before = stage.moved();
    let programs: Vec<Who> = [(300, slow, ALWAYS), (900, fast, NEVER), (200, slow, ALWAYS)]
        .into_iter()
        .map(|(pages, on, busy)| stage.start(Load { pages, on, busy }).0)
        .collect();
    let mut engine = engine(stage, eager());
    let mut log = Log::default();
    for _ in 0..80 {
        let until = stage.machine().now() + Picos::from_ms(100);
        let mut logged = Logged { inner: stage.machine(), log: &mut log };
        drive(&mut logged, &mut engine, until).map_err(|e| e.to_string())?;
    }
    for who in programs {
        stage.end(who);
    }
    // Reports may be late; nothing new is ordered.
    for _ in 0..20 {
        let until = stage.machine().now() + Picos::from_ms(100);
        let mut logged = Logged { inner: stage.machine(), log: &mut log };
        let mut seen = Vec::new();
        match logged.wait(until, &mut seen) {
            Ok(()) | Err(ObserveError::Ended) => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    let mut sum = Pages::ZERO;
    let mut last = OrderId(0);
    for (order, taken) in &log.orders {
        hold!(order.id > last, "order {} came after {}", order.id.0, last.0);
        last = order.id;
        let all = log.reports.get(&order.id).map_or(&[][..], Vec::as_slice);
        let expected = usize::from(*taken);
        hold!(all.len() == expected, "{} reports of {order:?}, taken: {taken}", all.len());
        for r in all {
            hold!(r.adds_up(), "{r:?}");
            if let Act::Move { spans, .. } = &order.act {
                let named: Pages = spans.iter().map(|s| s.pages()).sum();
                hold!(r.tried == named, "{named:?} pages named, {:?} tried", r.tried);
                sum += r.moved;
            }
        }
    }
    let strays = log.reports.keys().find(|id| log.orders.iter().all(|(o, _)| o.id != **id));
    hold!(strays.is_none(), "a report of order {strays:?}, which nobody gave");
    hold!(sum.0 > 0, "nothing moved: {}", thoughts(&engine));
    let counted = stage.moved() - before;
    hold!(sum == counted, "{sum:?} reported as moved, the machine counts {counted:?}");
    Ok(())
}

// ── Beside ─────────────────────────────────────────────────────────────────────

/// Settings with budgets that small tests don't reach.
fn eager() -> Settings {
    Settings {
        start_delay: Picos::from_ms(200),
        interval: Picos::from_ms(200),
        cpu_permille: 1000,
        moved_mbps: MBps(100_000),
        most_mbps: MBps(100_000),
        ..Settings::default()
    }
}
fn engine<S: Stage>(stage: &mut S, settings: Settings) -> Engine {
    let m = stage.machine();
    let Caps { source, lacks, most_pages, .. } = m.caps().clone();
    Engine::new(settings, m.topology(), KernelVersion::default(), source, &lacks, most_pages)
}
/// What an engine has thought so far, for a finding.
fn thoughts(engine: &Engine) -> String {
    let l = engine.ledger();
    format!("{:?}, orders {:?}, moves {:?}", l.verdicts, l.ordered, l.moves)
}
fn move_of(who: Who, span: Span, from: NodeId, to: NodeId) -> Act {
    Act::Move { who, spans: vec![span], from, to }
}

/// Starts a program and waits until its memory is where it is to be.
fn start<S: Stage>(stage: &mut S, load: Load) -> Result<(Who, Span), Finding> {
    let (who, span) = stage.start(load);
    settle(stage, who, span, load)?;
    Ok((who, span))
}
fn settle<S: Stage>(stage: &mut S, who: Who, span: Span, load: Load) -> Result<(), Finding> {
    for _ in 0..200 {
        let there = stage.placed(who, span);
        if there.values().copied().sum::<Pages>() == Pages(load.pages) {
            let on = there.get(&load.on).copied().unwrap_or_default();
            hold!(on == Pages(load.pages), "the stage put {who} elsewhere: {there:?}");
            return Ok(());
        }
        stage_wait(stage, Picos::from_ms(10), &mut Vec::new())?;
    }
    Err(format!("{who} does not touch its memory"))
}
fn stage_wait<S: Stage>(stage: &mut S, span: Picos, out: &mut Vec<Seen>) -> Result<(), Finding> {
    let until = stage.machine().now() + span;
    stage.machine().wait(until, out).map_err(|e| e.to_string())
}
fn see<S: Stage>(stage: &mut S, span: Picos) -> Result<Vec<Seen>, Finding> {
    let mut out = Vec::new();
    stage_wait(stage, span, &mut out)?;
    Ok(out)
}
fn task(seen: &[Seen], of: Who) -> bool {
    seen.iter().any(|s| matches!(s, Seen::Task { who, .. } if *who == of))
}

/// Hands an order in, again while too many wait.
fn submit<S: Stage>(stage: &mut S, id: u64, act: Act) -> Result<(), ApplyError> {
    let order =
        Order { id: OrderId(id), act, expect: Benefit::default(), why: Reason::SourceNeeds };
    let mut got = Err(ApplyError::Full);
    for _ in 0..100 {
        got = stage.machine().submit(&order);
        if got != Err(ApplyError::Full) {
            break;
        }
    }
    got
}
/// Waits for an order's report.
fn wait_for<S: Stage>(stage: &mut S, id: OrderId, seen: &mut Vec<Seen>) -> Result<(), Finding> {
    for _ in 0..200 {
        if !reports(seen, id).is_empty() {
            return Ok(());
        }
        stage_wait(stage, Picos::from_ms(10), seen)?;
    }
    Err(format!("order {} has no report", id.0))
}
/// Hands an order in and waits for its report, the only one.
fn carry_out<S: Stage>(stage: &mut S, id: u64, act: Act) -> Result<Report, Finding> {
    submit(stage, id, act.clone()).map_err(|e| format!("{act:?}: {e}"))?;
    let mut seen = Vec::new();
    wait_for(stage, OrderId(id), &mut seen)?;
    let mut report = reports(&seen, OrderId(id)).remove(0);
    hold!(report.adds_up(), "{report:?}");
    for s in seen {
        if let Seen::Resident { on, pages, .. } = s {
            if pages.0 > 0 {
                *report.resident.entry(on).or_default() += pages;
            }
        }
    }
    Ok(report)
}

/// What an order's report says.
#[derive(Clone, Debug, Default)]
struct Report {
    tried: Pages,
    moved: Pages,
    fails: Fails,
    resident: BTreeMap<NodeId, Pages>,
}

impl Report {
    fn adds_up(&self) -> bool {
        self.moved + self.fails.all() == self.tried
    }
}

fn reports(seen: &[Seen], id: OrderId) -> Vec<Report> {
    let of = |s: &Seen| match *s {
        Seen::Done { order, tried, moved, fails, .. } if order == id => {
            Some(Report { tried, moved, fails, resident: BTreeMap::new() })
        }
        _ => None,
    };
    seen.iter().filter_map(of).collect()
}

/// What passed between an engine and a machine.
#[derive(Default)]
struct Log {
    /// Orders, and whether the machine took them.
    orders: Vec<(Order, bool)>,
    reports: BTreeMap<OrderId, Vec<Report>>,
    heat: BTreeMap<Who, u64>,
}

impl Log {
    fn watches(&self, of: Who) -> usize {
        let all = self.orders.iter().filter(|(o, taken)| *taken && o.act == Act::Watch { who: of });
        all.count()
    }
    fn heat(&self, who: Who) -> u64 {
        self.heat.get(&who).copied().unwrap_or(0)
    }
    fn moves(&self, a: NodeId, b: NodeId) -> usize {
        let mine = |o: &Order| matches!(o.act, Act::Move { from, to, .. } if (from, to) == (a, b));
        self.orders.iter().filter(|(o, taken)| *taken && mine(o)).count()
    }
}

/// A machine whose words are written down.
struct Logged<'a, M: Machine> {
    inner: &'a mut M,
    log: &'a mut Log,
}

impl<M: Machine> Around for Logged<'_, M> {
    type Inner = M;
    fn inside(&self) -> &M {
        self.inner
    }
    fn inside_mut(&mut self) -> &mut M {
        self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let from = out.len();
        let waited = self.inner.wait(until, out);
        for s in &out[from..] {
            match s {
                Seen::Done { order, .. } => {
                    let all = reports(std::slice::from_ref(s), *order);
                    self.log.reports.entry(*order).or_default().extend(all);
                }
                Seen::Region { who, .. } | Seen::Fault { who, .. } | Seen::Sample { who, .. } => {
                    *self.log.heat.entry(*who).or_default() += 1;
                }
                // They are neither an answer to an order nor heat.
                Seen::Task { .. }
                | Seen::Gone { .. }
                | Seen::Loads { .. }
                | Seen::Resident { .. }
                | Seen::Huge { .. }
                | Seen::Node { .. }
                | Seen::Lost { .. }
                | Seen::Stale { .. } => {}
            }
        }
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        let taken = self.inner.submit(order);
        self.log.orders.push((order.clone(), taken.is_ok()));
        taken
    }
}
