//! A policy of one's own as a column of `homenode sim` and `homenode replay`. The guide's
//! page `own-policy` explains each part.
//!
//! Once a second it moves regions up that DAMON saw accessed in a fifth of its checks, and
//! down those that it saw idle, as DAMON's own schemes `migrate_hot` and `migrate_cold` do.
#![forbid(unsafe_code)]

use homenode_cli::{Candidate, Placement};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Source, Span, Who};
use homenode_core::policy::{Ledger, Policy};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, Picos};
use homenode_machine::Caps;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

struct Thresholds {
    fast: NodeId,
    slow: NodeId,
    /// The largest order that the machine takes.
    most_pages: u64,
    watched: BTreeSet<Who>,
    /// Regions as DAMON last told them, and which part of its checks found them accessed.
    regions: BTreeMap<(Who, u64), (Span, f64)>,
    next: Picos,
    orders: VecDeque<Order>,
    /// Orders that have not reported, and why they were made.
    open: BTreeMap<OrderId, (Reason, Option<(NodeId, NodeId)>)>,
    last: u64,
    ledger: Ledger,
}

impl Thresholds {
    fn order(&mut self, act: Act, why: Reason, between: Option<(NodeId, NodeId)>) {
        self.last += 1;
        let id = OrderId(self.last);
        self.open.insert(id, (why, between));
        self.orders.push_back(Order { id, act, expect: Benefit::default(), why });
    }

    fn shift(&mut self, who: Who, span: Span, why: Reason, from: NodeId, to: NodeId) {
        let mut start = span.start;
        while start < span.end {
            let end = span.end.min(start + self.most_pages);
            let spans = vec![Span { start, end }];
            self.order(Act::Move { who, spans, from, to }, why, Some((from, to)));
            start = end;
        }
    }
}

impl Policy for Thresholds {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        for one in seen {
            match *one {
                // A process that is not watched shows no regions.
                Seen::Task { who, .. } if self.watched.insert(who) => {
                    self.order(Act::Watch { who }, Reason::SlowStartOver, None);
                }
                Seen::Region { who, span, accessed, checks, .. } => {
                    let part = f64::from(accessed) / f64::from(checks);
                    self.regions.insert((who, span.start), (span, part));
                }
                Seen::Done { order, tried, moved, fails, took } => {
                    if let Some((why, between)) = self.open.remove(&order) {
                        self.ledger.report(why, between, tried, moved, &fails, took);
                    }
                }
                // This policy asks for nothing else, and what else comes changes nothing.
                _ => {}
            }
        }
        if now < self.next {
            return;
        }
        self.next = now + Picos::from_secs(1);
        let regions = std::mem::take(&mut self.regions);
        // Down first, which makes the room.
        for (&(who, _), &(span, _)) in regions.iter().filter(|(_, (_, part))| *part == 0.0) {
            self.shift(who, span, Reason::MakeRoom, self.fast, self.slow);
        }
        for (&(who, _), &(span, _)) in regions.iter().filter(|(_, (_, part))| *part >= 0.2) {
            self.shift(who, span, Reason::Hot, self.slow, self.fast);
        }
    }

    fn poll(&mut self) -> Option<Order> {
        let order = self.orders.pop_front()?;
        self.ledger.hand_out(&order);
        Some(order)
    }

    fn timeout(&self) -> Option<Picos> {
        Some(self.next)
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

fn thresholds(machine: &Hardware, _version: KernelVersion, caps: &Caps) -> Box<dyn Policy> {
    let has_cpus = |id: NodeId| machine.cpus_of(id).next().is_some();
    let (fast, slow): (Vec<NodeId>, Vec<NodeId>) =
        machine.nodes.iter().map(|node| node.id).partition(|&id| has_cpus(id));
    let fast = fast.first().copied().unwrap_or(NodeId(0));
    Box::new(Thresholds {
        fast,
        // Where every node has CPUs there is nothing to move between.
        slow: slow.first().copied().unwrap_or(fast),
        most_pages: caps.most_pages,
        watched: BTreeSet::new(),
        regions: BTreeMap::new(),
        next: Picos::ZERO,
        orders: VecDeque::new(),
        open: BTreeMap::new(),
        last: 0,
        ledger: Ledger::default(),
    })
}

fn main() -> std::process::ExitCode {
    homenode_cli::run_with(&[Candidate {
        about: "hot regions up, idle ones down, once a second",
        placement: Placement::Policy { sees: &[Source::Damon], make: thresholds },
        ..Candidate::kernel("thresholds", "thresholds", &[])
    }])
}
