//! A small machine that knows the truth, and a language to tell stories in.
//!
//! ```text
//! map 7@100 0-1000 on 1        1000 pages on node 1
//! task 7@100 ran 1001 node 0   processor time in ms; node `-`: spread
//! task 7@100 uses 500 node 0   so many thousandths of a CPU, and 2 s before
//! region 7@100 0-500 20/20 age 2000
//! fault 7@100 5 from 0 on 1 after 4
//! sample 7@100 5 from 0 period 1000
//! loads 7@100 20000 at 8       so many loads, eight under way at once
//! resident 7@100 0-500 on 1
//! idle 0 1000                  of node 0's CPUs so many thousandths are idle
//! load 0 3000                  node 0 takes three times as long as unloaded
//! keep LINE                    said again every 100 ms
//! quiet                        nothing is kept any more
//! nodes                        free pages of all nodes (kept ones come by themselves)
//! forbid | busy | free 7@100 0-10
//! huge                         a page takes its chunk along when it moves
//! slow 54000                   moving a page takes so many ns
//! hold | go                    orders wait, or are carried out at once
//! uncounted                    a census is not answered
//! to 3000                      time passes, in ms; prints the orders
//! stays | ledger               prints what was judged, or done
//! ```

use crate::engine::{Engine, Settings};
use crate::fixtures::{self, Spec, dram};
use crate::kernel::KernelVersion;
use crate::offcore::Offcore;
use crate::policy::Policy as _;
use crate::policy::Verdict;
use crate::policy::order::{Act, Evidence, Fails, Order, OrderId};
use crate::policy::seen::{Seen, Source, Span, Who, ZoneSeen};
use crate::tiering::watermarks::ZoneMarks;
use crate::topology::{Hardware, Medium, ZoneKind};
use crate::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A machine of nodes with their medium, pages, whether they have a CPU; DRAM at 90
/// ns, other memory at 275, another socket 60 more.
pub(super) fn machine(nodes: &[(Medium, u64, bool)]) -> Hardware {
    let spec = |&(medium, pages, cpu): &_| Spec { medium, cpus: u32::from(cpu), ..dram(pages, 0) };
    let mut m = fixtures::machine(&nodes.iter().map(spec).collect::<Vec<_>>());
    // Slow nodes belong to the sockets in turn.
    let sockets = m.cpus.len();
    let distance = |i: usize, j: usize| match (i == j, i % sockets == j % sockets) {
        (true, _) => 10,
        (_, true) => 14,
        _ => 21,
    };
    let ids = 0..nodes.len();
    m.distances = ids.clone().map(|i| ids.clone().map(|j| distance(i, j)).collect()).collect();
    let m = fixtures::with_links(m, |from, to| {
        let far = if to.index() % sockets == from.index() { 0 } else { 60_000 };
        match nodes[to.index()].0 {
            Medium::Dram => (90_000 + far, 20_000),
            _ => (275_000 + far, 10_000),
        }
    });
    m.check().unwrap();
    m
}

/// One socket and an expander, in pages.
pub(super) fn expander(dram: u64, cxl: u64) -> Hardware {
    machine(&[(Medium::Dram, dram, true), (Medium::Cxl, cxl, false)])
}

pub(super) struct Rig {
    pub(super) engine: Engine,
    now: Picos,
    places: BTreeMap<Who, BTreeMap<u64, NodeId>>,
    size: BTreeMap<NodeId, u64>,
    idle: BTreeMap<NodeId, u32>,
    load: BTreeMap<NodeId, u32>,
    forbidden: BTreeSet<(Who, u64)>,
    busy: BTreeSet<(Who, u64)>,
    kept: Vec<String>,
    hold: bool,
    uncounted: bool,
    huge: bool,
    /// What moving a page takes, in ns.
    page_ns: u64,
    waiting: Vec<Order>,
    shown: Vec<Order>,
    /// Marks are these hundredths of a node.
    pub(super) out: String,
}

impl Rig {
    pub(super) fn new(
        m: &Hardware,
        settings: Settings,
        source: Source,
        lacks: &[Evidence],
    ) -> Self {
        Self {
            engine: Engine::new(settings, m, KernelVersion::V6_12, source, lacks, 1 << 16)
                .bringing_threads(true),
            now: Picos::ZERO,
            places: BTreeMap::new(),
            size: m.nodes.iter().map(|n| (n.id, n.managed().0)).collect(),
            idle: BTreeMap::new(),
            load: BTreeMap::new(),
            forbidden: BTreeSet::new(),
            busy: BTreeSet::new(),
            kept: Vec::new(),
            hold: false,
            uncounted: false,
            huge: false,
            page_ns: 2_700,
            waiting: Vec::new(),
            shown: Vec::new(),
            out: String::new(),
        }
    }

    pub(super) fn free(&self, node: NodeId) -> u64 {
        let used: usize =
            self.places.values().map(|p| p.values().filter(|n| **n == node).count()).sum();
        self.size[&node].saturating_sub(used as u64)
    }

    /// Marks of a node: 1, 2, 3 and 4 % of its pages.
    pub(super) fn marks(&self, node: NodeId) -> ZoneMarks {
        let pages = self.size[&node];
        ZoneMarks {
            kind: ZoneKind::Normal,
            managed: Pages(pages),
            min: Pages(pages / 100),
            low: Pages(pages / 50),
            high: Pages(pages * 3 / 100),
            promo: Pages(pages / 25),
            reserve: Pages(0),
        }
    }

    fn nodes(&self) -> Vec<Seen> {
        let zone = |n| ZoneSeen { free: Pages(self.free(n)), marks: self.marks(n) };
        self.size
            .keys()
            .map(|&node| Seen::Node {
                node,
                zones: vec![zone(node)],
                load: self.load.get(&node).copied(),
                idle: self.idle.get(&node).copied(),
            })
            .collect()
    }

    /// Reads one line of a story.
    pub(super) fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let num = |i: usize| words[i].trim_start_matches('#').parse::<u64>().unwrap();
        match words[0] {
            "map" => {
                let pages = self.places.entry(who(words[1])).or_default();
                let node = NodeId(words[4].parse().unwrap());
                pages.extend((span(words[2]).start..span(words[2]).end).map(|v| (v, node)));
            }
            "keep" => self.kept.push(words[1..].join(" ")),
            "idle" => {
                self.idle.insert(NodeId(words[1].parse().unwrap()), num(2) as u32);
            }
            "load" => {
                self.load.insert(NodeId(words[1].parse().unwrap()), num(2) as u32);
            }
            "quiet" => self.kept.clear(),
            "hold" => self.hold = true,
            "uncounted" => self.uncounted = true,
            "huge" => self.huge = true,
            "slow" => self.page_ns = num(1),
            "go" => {
                self.hold = false;
                self.work();
            }
            "forbid" | "busy" | "free" => {
                for vpn in span(words[2]).start..span(words[2]).end {
                    let page = (who(words[1]), vpn);
                    let _ = match words[0] {
                        "forbid" => self.forbidden.insert(page),
                        "busy" => self.busy.insert(page),
                        _ => self.forbidden.remove(&page) | self.busy.remove(&page),
                    };
                }
            }
            "to" => self.to(Picos::from_ms(num(1))),
            "stays" => self.print_verdicts(),
            "ledger" => self.print_ledger(),
            _ => {
                let seen = self.seen(&words);
                self.tell(&seen);
            }
        }
    }

    fn seen(&mut self, words: &[&str]) -> Vec<Seen> {
        let num = |i: usize| words[i].trim_start_matches('#').parse::<u64>().unwrap();
        let node = |i: usize| NodeId(words[i].parse().unwrap());
        let one = match words[0] {
            "nodes" => return self.nodes(),
            "task" => Seen::Task {
                who: who(words[1]),
                ran: match words[2] {
                    "uses" => Picos(2_000_000_000_000 + self.now.0 / 1000 * num(3)),
                    _ => Picos::from_ms(num(3)),
                },
                node: (words[5] != "-").then(|| node(5)),
                resident: Pages(self.places.get(&who(words[1])).map_or(0, |p| p.len() as u64)),
            },
            "gone" => Seen::Gone { who: who(words[1]) },
            "region" => {
                let (accessed, checks) = words[3].split_once('/').unwrap();
                Seen::Region {
                    who: who(words[1]),
                    span: span(words[2]),
                    accessed: accessed.parse().unwrap(),
                    checks: checks.parse().unwrap(),
                    every: Picos::from_ms(5),
                    age: Picos::from_ms(num(5)),
                }
            }
            "fault" => Seen::Fault {
                who: who(words[1]),
                vpn: num(2),
                from: node(4),
                on: node(6),
                after: (words[8] != "-").then(|| Picos::from_ms(num(8))),
            },
            "sample" => {
                Seen::Sample { who: who(words[1]), vpn: num(2), from: node(4), period: num(6) }
            }
            "loads" => {
                let busy = Picos::from_ns(num(2));
                let under_way = Picos(busy.0 * num(4));
                Seen::Loads {
                    who: who(words[1]),
                    counted: Offcore { reads: num(2), busy, under_way },
                }
            }
            "resident" => {
                let span = span(words[2]);
                Seen::Resident { who: who(words[1]), span, on: node(4), pages: span.pages() }
            }
            "lost" => Seen::Lost { events: num(1) },
            "stale" => Seen::Stale { since: Picos::ZERO },
            "done" => {
                self.waiting.retain(|o| o.id != OrderId(num(1)));
                let cause = |name: &str| {
                    let at = words.iter().position(|w| *w == name);
                    Pages(at.map_or(0, |i| words[i + 1].parse().unwrap()))
                };
                Seen::Done {
                    order: OrderId(num(1)),
                    tried: cause("tried"),
                    moved: cause("moved"),
                    fails: Fails {
                        no_room: cause("no_room"),
                        busy: cause("busy"),
                        absent: cause("absent"),
                        forbidden: cause("forbidden"),
                        gone: cause("gone"),
                    },
                    took: Picos::from_us(cause("took").0),
                }
            }
            word => panic!("`{word}` is no word of a story"),
        };
        vec![one]
    }

    /// Tells the engine, takes its orders and, unless held, carries them out.
    pub(super) fn tell(&mut self, seen: &[Seen]) {
        self.engine.handle(self.now, seen);
        self.take();
        self.work();
    }

    fn take(&mut self) {
        while let Some(order) = self.engine.poll() {
            self.shown.push(order.clone());
            self.waiting.push(order);
        }
    }

    fn work(&mut self) {
        // An order can lead to the next: DRAM is emptied and filled batch by batch.
        for _ in 0..10_000 {
            if self.hold || self.waiting.is_empty() {
                return;
            }
            let mut seen = Vec::new();
            for order in std::mem::take(&mut self.waiting) {
                self.carry_out(&order, &mut seen);
            }
            self.engine.handle(self.now, &seen);
            self.take();
        }
        panic!("orders without end at {} ms:\n{:#?}", self.now.as_ms(), self.waiting);
    }

    fn carry_out(&mut self, order: &Order, seen: &mut Vec<Seen>) {
        let mut tried = 0;
        let mut moved = 0;
        let mut cost = 0;
        let mut fails = Fails::default();
        match &order.act {
            Act::Census { who } if !self.uncounted => {
                // What lies together is one mapping.
                let mut all: Vec<(Span, BTreeMap<NodeId, u64>)> = Vec::new();
                for (&vpn, &on) in self.places.get(who).into_iter().flatten() {
                    match all.last_mut().filter(|(span, _)| span.end == vpn) {
                        Some((span, pages)) => {
                            span.end += 1;
                            *pages.entry(on).or_default() += 1;
                        }
                        None => {
                            let span = Span { start: vpn, end: vpn + 1 };
                            all.push((span, BTreeMap::from([(on, 1)])));
                        }
                    }
                }
                for (span, on) in all {
                    tried += span.pages().0;
                    let report = |(on, n)| Seen::Resident { who: *who, span, on, pages: Pages(n) };
                    seen.extend(on.into_iter().map(report));
                }
                moved = tried;
                cost = 47 * tried;
            }
            Act::Look { who, spans } => {
                for &span in spans {
                    let mut on: BTreeMap<NodeId, u64> = BTreeMap::new();
                    for (_, n) in
                        self.places.get(who).into_iter().flat_map(|p| p.range(span.start..span.end))
                    {
                        *on.entry(*n).or_default() += 1;
                    }
                    let on = if on.is_empty() { BTreeMap::from([(NodeId(0), 0)]) } else { on };
                    seen.extend(on.into_iter().map(|(on, pages)| Seen::Resident {
                        who: *who,
                        span,
                        on,
                        pages: Pages(pages),
                    }));
                }
            }
            Act::Move { who, spans, from, to } => {
                let mut free = self.free(*to);
                let min = self.marks(*to).min.0;
                let pages = self.places.entry(*who).or_default();
                for (vpn, node) in spans
                    .iter()
                    .flat_map(|s| s.start..s.end)
                    .filter_map(|v| {
                        let on = *pages.get(&v)?;
                        Some((v, on))
                    })
                    .filter(|(_, on)| on == from)
                    .collect::<Vec<_>>()
                {
                    tried += 1;
                    assert_eq!(node, *from);
                    if self.forbidden.contains(&(*who, vpn)) {
                        fails.forbidden += Pages(1);
                    } else if self.busy.contains(&(*who, vpn)) {
                        fails.busy += Pages(1);
                    } else if free <= min {
                        fails.no_room += Pages(1);
                    } else {
                        pages.insert(vpn, *to);
                        free -= 1;
                        moved += 1;
                    }
                }
                cost = self.page_ns * tried;
                if self.huge && moved > 0 {
                    let chunks: BTreeSet<u64> =
                        spans.iter().flat_map(|s| s.start / 512..=(s.end - 1) / 512).collect();
                    let all = chunks.iter().flat_map(|c| c * 512..(c + 1) * 512);
                    let along: Vec<u64> = all.filter(|v| pages.get(v) == Some(from)).collect();
                    cost += self.page_ns * along.len() as u64;
                    pages.extend(along.into_iter().map(|v| (v, *to)));
                }
            }
            _ => {}
        }
        seen.push(Seen::Done {
            order: order.id,
            tried: Pages(tried),
            moved: Pages(moved),
            fails,
            took: Picos::from_ns(cost),
        });
    }

    /// Time passes; what is kept is said every 100 ms, with the nodes.
    fn to(&mut self, until: Picos) {
        let tick = Picos::from_ms(100);
        loop {
            let beat = Picos((self.now.0 / tick.0 + 1) * tick.0);
            let wants = self.engine.timeout().unwrap_or(beat).max(Picos(self.now.0 + 1));
            let next = beat.min(wants);
            if next > until {
                break;
            }
            self.now = next;
            let mut seen = Vec::new();
            if next == beat && !self.kept.is_empty() {
                seen.extend(self.nodes());
                for line in self.kept.clone() {
                    seen.extend(self.seen(&line.split_whitespace().collect::<Vec<_>>()));
                }
            }
            self.tell(&seen);
        }
        self.now = until;
        self.print_orders();
    }

    /// Orders since the last time, like ones together.
    fn print_orders(&mut self) {
        let mut like: Vec<(String, u64, BTreeMap<u64, u64>, u64)> = Vec::new();
        for order in std::mem::take(&mut self.shown) {
            let (head, spans) = match &order.act {
                Act::Look { who, spans } => (format!("look {who}"), spans.clone()),
                Act::Move { who, spans, from, to } => {
                    (format!("move {who} {from}->{to}"), spans.clone())
                }
                act => (act.to_string(), vec![]),
            };
            let key = format!("{head} ({})", order.why.name());
            let at = like.iter().position(|l| l.0 == key).unwrap_or_else(|| {
                like.push((key, 0, BTreeMap::new(), 0));
                like.len() - 1
            });
            like[at].1 += 1;
            for s in spans {
                let end = like[at].2.entry(s.start).or_default();
                *end = s.end.max(*end);
                like[at].3 += s.pages().0;
            }
        }
        let _ = write!(self.out, "{:<8}", format!("{} ms", self.now.as_ms()));
        if like.is_empty() {
            self.out.push_str("  -");
        }
        for (i, (key, orders, spans, pages)) in like.iter().enumerate() {
            let indent = if i == 0 { "" } else { "        " };
            let _ = write!(self.out, "{indent}  {key}");
            let mut joined: Vec<(u64, u64)> = Vec::new();
            for (&s, &e) in spans {
                match joined.last_mut().filter(|l| l.1 >= s) {
                    Some(l) => l.1 = l.1.max(e),
                    None => joined.push((s, e)),
                }
            }
            for (s, e) in joined.iter().take(4) {
                let _ = write!(self.out, " {s}-{e}");
            }
            if joined.len() > 4 {
                let _ = write!(self.out, " and {} more", joined.len() - 4);
            }
            if *pages > 0 {
                let _ = write!(self.out, ": {orders} orders, {pages} pages");
            }
            self.out.push('\n');
        }
        if like.is_empty() {
            self.out.push('\n');
        }
    }

    fn print_verdicts(&mut self) {
        for (verdict, tally) in &self.engine.ledger().verdicts {
            let text = match verdict {
                Verdict::Move { to, why } => format!("move to {to}, {}", why.name()),
                Verdict::Stay { why } => format!("stay, {}", why.name()),
                Verdict::Unknown { lacks } => format!("unknown {}", lacks.name()),
            };
            let _ = writeln!(self.out, "        {text}: {} pages in {}", tally.pages, tally.times);
        }
    }

    fn print_ledger(&mut self) {
        for ((why, from, to), m) in &self.engine.ledger().moves {
            let f = &m.fails;
            let _ = write!(
                self.out,
                "        {} {from}->{to}: tried {} moved {}",
                why.name(),
                m.tried.0,
                m.moved.0
            );
            for (name, n) in [
                ("no_room", f.no_room),
                ("busy", f.busy),
                ("absent", f.absent),
                ("forbidden", f.forbidden),
                ("gone", f.gone),
            ] {
                if n.0 > 0 {
                    let _ = write!(self.out, " {name} {}", n.0);
                }
            }
            self.out.push('\n');
        }
        let l = self.engine.ledger();
        for (name, n) in [
            ("strays", l.strays),
            ("lost", l.lost),
            ("stale", l.stale),
            ("gone", l.gone),
            ("withdrawn", l.withdrawn),
            ("refused", l.refused),
            ("unknown", l.unknown),
        ] {
            if n > 0 {
                let _ = writeln!(self.out, "        {name} {n}");
            }
        }
    }

    /// Pages of a process by node.
    pub(super) fn where_is(&self, name: &str, pages: std::ops::Range<u64>) -> Vec<(u16, usize)> {
        let mut on: BTreeMap<u16, usize> = BTreeMap::new();
        for (_, n) in self.places[&who(name)].range(pages) {
            *on.entry(n.0).or_default() += 1;
        }
        on.into_iter().collect()
    }
}

pub(super) fn who(text: &str) -> Who {
    let (pid, start) = text.split_once('@').unwrap();
    Who { pid: pid.parse().unwrap(), start: start.parse().unwrap() }
}

fn span(text: &str) -> Span {
    let (start, end) = text.split_once('-').unwrap();
    Span { start: start.parse().unwrap(), end: end.parse().unwrap() }
}
