//! The conformance bodies on the simulated machine, bare and with injected faults, and
//! on machines that are broken on purpose: each body must find what it is for.

#[path = "support/stage.rs"]
mod stage;
mod support;

use homenode_core::policy::order::{Act, Order, OrderId};
use homenode_core::policy::seen::{Seen, Source, Who};
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_machine::conformance::*;
use homenode_machine::{ApplyError, Around, FaultPlan, Machine, ObserveError};
use homenode_sim::machine::SimMachine;
use stage::*;
use std::collections::{BTreeMap, BTreeSet};

const HOT: [Source; 3] = [Source::Damon, Source::HintFault, Source::Pmu];

fn fine(what: &str, found: Result<(), Finding>) {
    if let Err(finding) = found {
        panic!("{what}: {finding}");
    }
}

#[test]
fn a_moved_page_is_on_its_target_and_nowhere_else() {
    fine("bare", moved_pages_are_there(&mut stage(Source::Damon)));
}

#[test]
fn orders_that_fail_in_part_say_so() {
    fine("bare", partial_failures_add_up(&mut stage(Source::Damon)));
}

#[test]
fn a_process_that_exits_or_is_replaced_is_no_error() {
    fine("bare", exits_and_replacements(&mut stage(Source::Damon)));
}

#[test]
fn sampling_starts_slowly() {
    for source in HOT {
        fine(source.name(), slow_start(&mut stage(source)));
    }
}

#[test]
fn promotion_stops_at_the_mark_and_demotion_is_woken() {
    for source in [Source::Damon, Source::Pmu] {
        fine(source.name(), promotion_stops_at_the_mark(&mut stage(source)));
    }
}

#[test]
fn what_is_reported_is_what_is_counted() {
    for source in HOT {
        fine(source.name(), counters_add_up(&mut stage(source)));
    }
}

#[test]
fn the_same_holds_while_the_machine_fails() {
    // What it says may be lost or late, what it is asked for refused or cut.
    let plan = FaultPlan { refuse: 150, lose: 200, delay: 300, partial: 400, ..Default::default() };
    let mut injected = 0;
    for seed in 1..=6 {
        let plan = FaultPlan { seed, ..plan };
        let on = || faulty(Source::Damon, plan);
        fine("moved pages", moved_pages_are_there(&mut on()));
        fine("partial", partial_failures_add_up(&mut on()));
        fine("exits", exits_and_replacements(&mut on()));
        let mut s = faulty(Source::Damon, plan);
        fine("counters", counters_add_up(&mut s));
        let i = s.machine.injected();
        injected += u64::from(i.refused > 0) + u64::from(i.lost > 0) + u64::from(i.delayed > 0);
        injected += u64::from(i.cut > 0);
    }
    assert!(injected >= 12, "the faults don't happen: {injected}");
    // Processes that vanish and a source that falls silent, too.
    for seed in 1..=4 {
        let plan = FaultPlan { seed, vanish: 15, silence: 30, ..plan };
        let mut s = faulty(Source::Damon, plan);
        fine(
            "counters",
            counters_add_up(&mut s).or_else(|e| match e.as_str() {
                // All of them vanished before anything was moved.
                e if e.starts_with("nothing moved") => Ok(()),
                _ => Err(e),
            }),
        );
        let i = s.machine.injected();
        assert!(i.vanished + i.silences > 0, "{i:?}");
    }
}

#[test]
fn a_faulty_run_repeats_exactly() {
    let plan = FaultPlan {
        seed: 7,
        refuse: 100,
        lose: 100,
        delay: 200,
        partial: 200,
        vanish: 5,
        silence: 10,
    };
    let once = || {
        let mut s = faulty(Source::Damon, plan);
        let found = counters_add_up(&mut s);
        (found, s.machine.injected(), s.machine.sim().hash())
    };
    assert_eq!(once(), once());
}

// ── Machines that are broken on purpose ────────────────────────────────────────

/// What is wrong with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Samples whatever runs, asked or not.
    SamplesAtOnce,
    /// Claims more processor time than a process has used.
    FastClock,
    /// Forgets that it was told to sample.
    ForgetsToSample,
    /// Says that more is free than is.
    HidesThatItIsFull,
    /// Reports moves that it doesn't make.
    OnlyClaims,
    /// Reports moves downwards that it doesn't make.
    OnlyClaimsToDemote,
    /// Moves and reports one page more.
    MiscountsMoved,
    /// Reports failures twice over.
    MiscountsFails,
    /// Looks at another span than it was asked to.
    LooksElsewhere,
    /// Moves pages that are bound.
    IgnoresPolicy,
    /// Knows processes by their PID only.
    PidOnly,
    /// Drops a report now and then.
    LosesReports,
    /// Reports now and then twice.
    RepeatsReports,
    /// Never says that a process has ended.
    HidesEnds,
    /// Takes orders that make no sense.
    TakesNonsense,
}

struct Broken {
    inner: SimMachine,
    bug: Bug,
    claims: BTreeMap<OrderId, Pages>,
    claimed: Vec<Seen>,
    current: BTreeMap<u32, Who>,
    tasks: BTreeSet<Who>,
    nth: u64,
}

impl Broken {
    fn stage(source: Source, bug: Bug) -> SimStage<Self> {
        over(Self {
            inner: booted(source, 1),
            bug,
            claims: BTreeMap::new(),
            claimed: Vec::new(),
            current: BTreeMap::new(),
            tasks: BTreeSet::new(),
            nth: 0,
        })
    }
    fn now_called(&self, who: Who) -> Who {
        self.current.get(&who.pid).copied().unwrap_or(who)
    }
    fn spoil(&mut self, seen: Seen, out: &mut Vec<Seen>) {
        match (self.bug, seen) {
            (Bug::FastClock, Seen::Task { who, ran, node, resident }) => {
                out.push(Seen::Task { who, ran: Picos(ran.0 * 3), node, resident });
            }
            (Bug::HidesThatItIsFull, Seen::Node { node, mut zones, load, idle }) => {
                if node == NodeId(0) {
                    zones[0].free += Pages(2000);
                }
                out.push(Seen::Node { node, zones, load, idle });
            }
            (Bug::MiscountsMoved, Seen::Done { order, tried, moved, mut fails, took }) => {
                // The sum still fits.
                let mut moved = moved;
                if fails.absent.0 > 0 || moved.0 > 0 {
                    let more = Pages(u64::from(fails.absent.0 > 0));
                    fails.absent -= more;
                    moved += more;
                    if more.0 == 0 {
                        fails.busy += Pages(1);
                        moved -= Pages(1);
                    }
                }
                out.push(Seen::Done { order, tried, moved, fails, took });
            }
            (Bug::MiscountsFails, Seen::Done { order, tried, moved, mut fails, took }) => {
                fails.absent = fails.absent * 2;
                fails.forbidden = fails.forbidden * 2;
                fails.gone = fails.gone * 2;
                out.push(Seen::Done { order, tried, moved, fails, took });
            }
            (Bug::LosesReports, seen @ Seen::Done { .. }) => {
                self.nth += 1;
                if self.nth % 3 != 0 {
                    out.push(seen);
                }
            }
            (Bug::RepeatsReports, seen @ Seen::Done { .. }) => {
                self.nth += 1;
                if self.nth % 2 == 0 {
                    out.push(seen.clone());
                }
                out.push(seen);
            }
            (Bug::HidesEnds, Seen::Gone { .. }) => {}
            (_, Seen::Task { who, ran, node, resident }) => {
                self.current.insert(who.pid, who);
                if self.bug == Bug::SamplesAtOnce && self.tasks.insert(who) {
                    out.push(Seen::Sample { who, vpn: 0, from: NodeId(0), period: 1 });
                }
                out.push(Seen::Task { who, ran, node, resident });
            }
            (Bug::ForgetsToSample, seen) if is_heat(&seen) => {}
            (_, seen) => out.push(seen),
        }
    }
}

impl Holds for Broken {
    fn sim(&mut self) -> &mut SimMachine {
        &mut self.inner
    }
}

impl Around for Broken {
    type Inner = SimMachine;
    fn inside(&self) -> &SimMachine {
        &self.inner
    }
    fn inside_mut(&mut self) -> &mut SimMachine {
        &mut self.inner
    }
    fn on_wait(&mut self, until: Picos, out: &mut Vec<Seen>) -> Result<(), ObserveError> {
        let mut got = std::mem::take(&mut self.claimed);
        let waited = self.inner.wait(until, &mut got);
        for seen in got {
            self.spoil(seen, out);
        }
        waited
    }
    fn on_submit(&mut self, order: &Order) -> Result<(), ApplyError> {
        let mut order = order.clone();
        match (self.bug, &mut order.act) {
            (Bug::OnlyClaims, Act::Move { spans, .. }) => {
                let tried = spans.iter().map(|s| s.pages()).sum();
                self.claim(order.id, tried);
                return Ok(());
            }
            (Bug::OnlyClaimsToDemote, Act::Move { spans, from: NodeId(0), .. }) => {
                let tried = spans.iter().map(|s| s.pages()).sum();
                self.claim(order.id, tried);
                return Ok(());
            }
            (Bug::LooksElsewhere, Act::Look { spans, .. }) => {
                for s in spans {
                    s.start += 300;
                    s.end += 300;
                }
            }
            (Bug::IgnoresPolicy, Act::Move { who, spans, .. }) => {
                // As the system call does.
                for s in spans.clone() {
                    self.inner.bind(*who, s, NodeId(0));
                }
            }
            (Bug::PidOnly, act) => match act {
                Act::Watch { who }
                | Act::Unwatch { who }
                | Act::Census { who }
                | Act::Look { who, .. }
                | Act::Move { who, .. }
                | Act::Split { who, .. } => *who = self.now_called(*who),
                Act::Affine { .. } | Act::SetKnob { .. } => {}
            },
            (Bug::TakesNonsense, _) => {
                return match self.inner.submit(&order) {
                    Err(ApplyError::BadSpan | ApplyError::NoNode) => {
                        self.claim(order.id, Pages(0));
                        Ok(())
                    }
                    other => other,
                };
            }
            _ => {}
        }
        self.inner.submit(&order)
    }
}

impl Broken {
    fn claim(&mut self, order: OrderId, tried: Pages) {
        self.claims.insert(order, tried);
        self.claimed.push(Seen::Done {
            order,
            tried,
            moved: tried,
            fails: Default::default(),
            took: Picos(1),
        });
    }
}

type Body = fn(&mut SimStage<Broken>) -> Result<(), Finding>;

/// Each body with the bugs that it is there to find.
#[test]
fn a_broken_machine_is_found() {
    let all: [(&str, Body, &[Bug]); 6] = [
        (
            "moved_pages_are_there",
            moved_pages_are_there,
            &[Bug::OnlyClaims, Bug::MiscountsMoved, Bug::LosesReports, Bug::LooksElsewhere],
        ),
        (
            "partial_failures_add_up",
            partial_failures_add_up,
            &[Bug::OnlyClaims, Bug::MiscountsFails, Bug::IgnoresPolicy, Bug::TakesNonsense],
        ),
        (
            "exits_and_replacements",
            exits_and_replacements,
            &[Bug::PidOnly, Bug::HidesEnds, Bug::RepeatsReports, Bug::OnlyClaims],
        ),
        ("slow_start", slow_start, &[Bug::SamplesAtOnce, Bug::FastClock, Bug::ForgetsToSample]),
        (
            "promotion_stops_at_the_mark",
            promotion_stops_at_the_mark,
            &[Bug::HidesThatItIsFull, Bug::OnlyClaims, Bug::OnlyClaimsToDemote],
        ),
        (
            "counters_add_up",
            counters_add_up,
            &[Bug::LosesReports, Bug::RepeatsReports, Bug::MiscountsMoved, Bug::OnlyClaims],
        ),
    ];
    for (name, body, bugs) in all {
        for &bug in bugs {
            let found = body(&mut Broken::stage(Source::Pmu, bug));
            assert!(found.is_err(), "{name} does not find {bug:?}");
            println!("{name}, {bug:?}: {}", found.unwrap_err());
        }
    }
}
