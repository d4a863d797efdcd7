//! homenode's own daemon: told what a source can show, it answers with orders.
//!
//! ```text
//!  machine ──Seen──▶ handle ─▶ process ─▶ map of heat and place
//!                                              │ every interval
//!                                           decide ─▶ plan ─▶ pump ──Order──▶ machine
//!                                                              ▲  budgets       │
//!                                                              └──Seen::Done────┘
//! ```
//!
//! The engine is built on the rules beside it and knows no machine: the simulated
//! one and Linux run the same code through `homenode-machine`. It has no clock;
//! each call says what time it is. [`crate::policy::seen`] is what crosses the line inwards,
//! [`crate::policy::order`] what crosses it outwards. Evidence that a source lacks is
//! [`Evidence`] in a verdict `Unknown`, never a guess.
//!
//! Worked example, one expander at 275 ns beside DRAM at 90 ns, a page at 50
//! accesses a second, horizon 10 s: moving it up saves 50 · 10 · 185 ns = 92.5 µs
//! and costs 2.7 µs. Where DRAM is full, the coldest page there goes down first,
//! if what it loses and both moves cost less than that.
//!
//! Source: specs/engine.md#engine.

mod along;
mod budget;
mod decide;
mod earns;
mod estimate;
mod fade;
pub(crate) mod heat;
mod home;
mod level;
pub(crate) mod living;
mod lower;
mod nodes;
mod open;
mod page_set;
mod pairs;
mod place;
mod plan;
mod process;
mod pump;
mod settings;
mod tally;
mod waited;

pub use settings::{SETTINGS, SettingKind, SettingUnit, Settings};

use crate::costs::Cost;
use crate::kernel::KernelVersion;
use crate::policy::order::{Act, Benefit, Evidence, Fails, Order, OrderId, Reason};
use crate::policy::period::SamplePeriod;
use crate::policy::seen::{Seen, Shows, Source};
use crate::policy::span::Who;
use crate::policy::{Ledger, Policy, Stretch};
use crate::topology;
use crate::units::{MBps, NodeId, PAGE_SIZE, Pages, Picos};
use budget::{Bucket, Purse};
use estimate::Estimate;
use level::Level;
use living::Living;
use nodes::Nodes;
use open::Open;
use pairs::CHUNK;
use plan::Plan;
use process::Tracked;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// It is not considered more often whether there is enough to decide: looking at processes
/// and zones has a price of its own, and more often than that they are not read.
const CONSIDER: Picos = Picos::from_ms(100);

/// The daemon.
#[derive(Clone, Debug)]
pub struct Engine {
    settings: Settings,
    source: Source,
    lacks: BTreeSet<Evidence>,
    /// Threads may be brought to their memory.
    brings: bool,
    /// Bytes of a last level of caches, and of a line.
    last_level: (u64, u64),
    most_pages: u64,
    /// Processor time of moving one page.
    per_page: u64,
    nodes: Nodes,
    now: Picos,
    next_decision: Option<Picos>,
    /// When it decided last, and what that cost.
    decided: (Picos, Picos),
    /// What was observed since; and before, as much as it still counts.
    news: u64,
    known: u64,
    /// Places have come to be known since.
    looked: bool,
    /// When the first of those that are not sampled yet will have run for long enough.
    begins: Option<Picos>,
    /// Processor time of looking at a process.
    proc_read: u64,
    /// When the budgets allow what waits.
    wake: Option<Picos>,
    silent: bool,
    /// One in how many accesses is sampled.
    period: SamplePeriod,
    processes: BTreeMap<Who, Tracked>,
    living: Living,
    nr_watched: usize,
    /// Stretches of all processes: as many as the last decision left, and those cut out since.
    stretches: u64,
    /// Whose places were told in this batch.
    reported: BTreeSet<Who>,
    plan: Plan,
    /// What estimates are done in, kept from one decision to the next.
    estimate: Estimate,
    /// What was learnt of fast nodes that load makes slow.
    levels: BTreeMap<NodeId, Level>,
    open: BTreeMap<OrderId, Open>,
    out: VecDeque<Order>,
    last_id: u64,
    /// Pages to be moved: so many a second, and those that have paid for their move.
    moved: Purse,
    /// Pages that may be moved in a second at most.
    traffic: Bucket,
    /// Picoseconds of processor time for looks and decisions.
    cpu: Bucket,
    /// The same for moves: a share of a CPU until they have paid, and what they came to save.
    purse: Purse,
    /// What was saved, or lost, and is not yet as much as moving a page takes.
    towards: i128,
    ledger: Ledger,
}

/// Source: specs/engine.md#engine.
impl Policy for Engine {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        self.now = self.now.max(now);
        self.moved.advance(self.now);
        self.traffic.advance(self.now);
        self.cpu.advance(self.now);
        self.purse.advance(self.now);
        let took = self.settings.per_seen.0.saturating_mul(seen.len() as u64);
        self.spend(took);
        self.ledger.observing = Picos(self.ledger.observing.0.saturating_add(took));
        self.ledger.seen += seen.len() as u64;
        for s in seen {
            self.see(s);
        }
        self.locate_unasked();
        self.heed_news();
        if self.next_decision.is_none_or(|at| at <= self.now) {
            self.consider();
        }
        self.heed_begins();
        if self.source.shows() == Shows::Samples {
            self.period.judge(self.now);
        }
        self.pump();
    }

    fn poll(&mut self) -> Option<Order> {
        let order = self.out.pop_front()?;
        self.ledger.hand_out(&order);
        Some(order)
    }

    /// `None` while orders wait for [`Self::poll`]'s caller only.
    fn timeout(&self) -> Option<Picos> {
        let next = self.next_decision.unwrap_or(Picos::ZERO);
        Some(self.wake.map_or(next, |w| w.min(next)))
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn needs_overlap(&self) -> bool {
        self.source.shows() == Shows::Samples && self.settings.most_at_once > 1
    }

    fn period(&self) -> Option<u64> {
        (self.source.shows() == Shows::Samples).then(|| self.period.every())
    }
}

impl Engine {
    /// An engine for a machine.
    ///
    /// * `machine` – nodes, CPUs, links and costs.
    /// * `version` – whose rules make the tiers; 3.8 knows none.
    /// * `source`, `lacks`, `most_pages` – what the machine's caps say: its source
    ///   of heat, what that never tells, and the most pages that an order may name.
    pub fn new(
        settings: Settings,
        machine: &topology::Hardware,
        version: KernelVersion,
        source: Source,
        lacks: &[Evidence],
        most_pages: u64,
    ) -> Self {
        let per_page = machine.costs.get(Cost::MigratePage) + machine.costs.get(Cost::PageCopy);
        let per_page = per_page.max(1);
        let pages = |mbps: MBps| mbps.0.saturating_mul(1_000_000) / PAGE_SIZE;
        let pages_a_second = pages(settings.moved_mbps);
        let most_a_second = pages(settings.most_mbps);
        // A move has to pay within the horizon: over it budgets are counted.
        let over = |rate: u64| {
            let all = u128::from(rate) * u128::from(settings.horizon.0) / 1_000_000_000_000;
            u64::try_from(all).unwrap_or(u64::MAX).max(rate)
        };
        let moved = Purse::new(Bucket::new(pages_a_second, over(pages_a_second)));
        let cpu = u64::from(settings.cpu_permille.min(1000)) * 1_000_000_000;
        // Savings may be kept until they pay for all that may be moved at once.
        let most = if cpu == 0 { 0 } else { moved.depth().saturating_mul(per_page) };
        let purse = Purse::new(Bucket::new(cpu, most.max(over(cpu))).with(over(cpu)));
        let mut lacks: BTreeSet<Evidence> = lacks.iter().copied().collect();
        if source.shows() == Shows::Nothing {
            lacks.insert(Evidence::Heat);
        }
        Self {
            settings,
            source,
            lacks,
            brings: false,
            last_level: machine
                .caches
                .last()
                .map_or((0, 64), |c| (c.size.0, u64::from(c.line.max(1)))),
            most_pages,
            per_page,
            nodes: Nodes::new(settings, machine, version),
            now: Picos::ZERO,
            next_decision: None,
            decided: (Picos::ZERO, Picos::ZERO),
            news: 0,
            known: 0,
            looked: false,
            begins: None,
            proc_read: machine.costs.get(Cost::ProcRead),
            wake: None,
            silent: false,
            period: SamplePeriod::new(Picos(
                machine
                    .costs
                    .get(Cost::PmuSample)
                    .saturating_add(machine.costs.get(Cost::EventRead)),
            )),
            processes: BTreeMap::new(),
            living: Living::default(),
            nr_watched: 0,
            stretches: 0,
            reported: BTreeSet::new(),
            plan: Plan::default(),
            estimate: Estimate::default(),
            levels: BTreeMap::new(),
            open: BTreeMap::new(),
            out: VecDeque::new(),
            last_id: 0,
            moved,
            traffic: Bucket::new(most_a_second, most_a_second),
            cpu: Bucket::new(cpu, over(cpu)),
            purse,
            towards: 0,
            ledger: Ledger::default(),
        }
    }

    /// Orders that have not reported yet, in the order of their numbers, with
    /// whether they move pages.
    pub fn open(&self) -> impl Iterator<Item = (OrderId, bool)> + '_ {
        self.open.iter().map(|(id, o)| (*id, o.between.is_some()))
    }

    /// What is known of a process's memory, by rising addresses; nothing of one that is
    /// not sampled.
    pub fn stretches(&self, who: Who) -> impl Iterator<Item = Stretch> + '_ {
        let scales = self.settings.scales();
        self.processes.get(&who).into_iter().flat_map(move |p| {
            let mut estimate = Estimate::default();
            let told = estimate.heats(&p.map, p.apart(), self.now, &scales);
            let mut out = Vec::with_capacity(told.cells.len());
            for ((span, cell), (heat, rows)) in p.map.iter().zip(told.by_stretch()) {
                if rows.is_empty() {
                    let on = cell.place.as_ref().map(|p| p.on.to_vec());
                    out.push(Stretch { span, heat, on });
                    continue;
                }
                let from = out.len();
                for row in rows {
                    let parts = row.set.spans(span.start / CHUNK);
                    out.extend(parts.map(|part| {
                        let on = row.on.map(|node| vec![(node, part.pages().0)]);
                        Stretch { span: part, heat: row.heat, on }
                    }));
                }
                out[from..].sort_unstable_by_key(|s| s.span);
            }
            out
        })
    }

    /// Whether it takes a node for a fast one.
    pub fn is_fast(&self, node: NodeId) -> bool {
        self.nodes.is_top(node)
    }

    /// Samples that come while none were expected are decided upon as soon as others.
    ///
    /// Source: specs/engine.md#pace.
    fn heed_news(&mut self) {
        if self.source.shows() == Shows::Samples && self.news >= self.enough() {
            let at = Picos(self.decided.0.0.saturating_add(CONSIDER.0)).max(self.when_paid());
            self.next_decision = self.next_decision.map(|next| next.min(at));
        }
    }

    /// So many observations are enough to decide anew: an eighth more than is known. What
    /// differs by less counts as alike.
    fn enough(&self) -> u64 {
        (self.known / 8).max(1)
    }

    /// Decides if there is enough that is new, and sets when to consider it again.
    ///
    /// Source: specs/engine.md#pace.
    fn consider(&mut self) {
        if self.next_decision.is_none() {
            self.decided = (self.now, self.now);
        }
        let since = self.now.saturating_sub(self.decided.0);
        let enough = self.enough();
        // What was asked for to decide is there.
        let answered = self.looked && self.plan.looks.is_empty() && !self.is_looking();
        let due = answered || self.news >= enough || since >= self.settings.long;
        let mut next = self.after(self.settings.interval);
        if due && since.0 > 0 {
            let paid = self.when_paid();
            next = self.soon();
            if paid > self.now {
                self.ledger.postponed += 1;
                next = next.max(paid);
            } else {
                let cost = self.decide();
                self.known = fade::decay(self.known, since, self.settings.long);
                self.known = self.known.saturating_add(std::mem::take(&mut self.news));
                self.decided = (self.now, cost);
                self.looked = false;
                // Samples are each about something else. Regions are told again and again, and
                // faults come by rounds of a scan: more of them soon say little that is new.
                if self.source.shows() != Shows::Samples {
                    next = self.after(self.settings.interval);
                }
            }
        } else if self.news > 0 {
            // When there will be enough, if it goes on like that.
            let rate = u128::from(since.0) * u128::from(enough) / u128::from(self.news);
            let at = u64::try_from(rate).unwrap_or(u64::MAX).saturating_add(self.decided.0.0);
            next = next.min(Picos(at));
        } else if self.known == 0 && self.nr_watched > 0 {
            // The first word may come at any time.
            next = self.soon();
        }
        self.next_decision = Some(next.max(self.soon()));
    }

    /// Comes back when a process will have run for long enough to be sampled, as far as the budget
    /// allows to look at all of them once more for that.
    ///
    /// Source: specs/engine.md#processes.
    fn heed_begins(&mut self) {
        let Some(at) = self.begins.take().map(|at| at.max(self.soon())) else { return };
        let price = self.proc_read.saturating_mul(self.processes.len() as u64);
        // Ten such looks a second are not to use up what looks at memory and decisions have.
        let paid = self.cpu.has() >= price.saturating_mul(8);
        if paid && self.next_decision.is_some_and(|next| at < next) {
            self.spend(price);
            self.next_decision = Some(at);
        }
    }

    /// When the budget allows to decide again: where it holds what several decisions take, so
    /// that looks have theirs, at once; else when half of it has paid for the last one.
    ///
    /// Source: specs/engine.md#pace.
    fn when_paid(&self) -> Picos {
        let (at, last) = self.decided;
        // What is one stretch by now needs not be paid for as many.
        let nr: usize = self.processes.values().map(|p| p.map.weight()).sum();
        let next = self.deciding_costs(nr as u64);
        let cost = Picos(next.min(last.0));
        if self.savings_pay(Picos(next)) {
            return at;
        }
        let share = u64::from(self.settings.cpu_permille.clamp(1, 1000));
        let half = Picos(at.0.saturating_add(cost.0.saturating_mul(2000) / share));
        let several = cost.0.saturating_mul(8).min(self.cpu.depth() / 2).max(1);
        // Both can be had, or neither: no more than the half of the reserve is asked for.
        let soonest = self.cpu.when(1).zip(self.cpu.when(several));
        soonest.map_or(Picos(u64::MAX), |(some, reserve)| some.max(reserve.min(half)))
    }

    /// Whether what moves have saved pays for a decision, and for several more.
    ///
    /// Source: specs/engine.md#pace.
    fn savings_pay(&self, cost: Picos) -> bool {
        self.purse.saved() >= cost.0.saturating_mul(8).max(1)
    }

    /// Whether more stretches may be told apart than need be: deciding over all of them costs
    /// no more than the budget gives from one decision to the next under a steady stream.
    ///
    /// Source: specs/engine.md#pairs.
    fn affords_more(&self) -> bool {
        // The pace is three sixteenths; no division, as each sample asks.
        let given = u128::from(self.settings.long.0) * 3;
        let given = given * u128::from(self.settings.cpu_permille.min(1000));
        u128::from(self.deciding_costs(self.stretches)) * 16_000 < given
    }

    /// Whether what moves have saved pays for more: it holds twice what [`Self::savings_pay`] asks for a
    /// decision over all stretches, so that more of them do not make decisions wait.
    ///
    /// Source: specs/engine.md#pairs.
    fn savings_afford_more(&self) -> bool {
        self.savings_pay(Picos(self.deciding_costs(self.stretches).saturating_mul(2)))
    }

    /// What a decision over so many stretches costs, in picoseconds.
    fn deciding_costs(&self, stretches: u64) -> u64 {
        self.settings.per_span.0.saturating_mul(stretches)
    }

    /// Whether a look or a census is on its way.
    fn is_looking(&self) -> bool {
        self.open.values().any(Open::looks)
    }

    /// Places have come to be known, or to be unknown: that is due for a decision.
    fn decide_soon(&mut self) {
        self.looked = true;
        let soon = self.soon();
        self.next_decision = self.next_decision.map(|at| at.min(soon));
    }

    /// When it may be considered again at the soonest, apart from the budget.
    fn soon(&self) -> Picos {
        self.after(CONSIDER.min(self.settings.interval))
    }

    fn after(&self, dt: Picos) -> Picos {
        Picos(self.now.0.saturating_add(dt.0.max(1)))
    }

    /// Takes processor time out of the budget.
    fn spend(&mut self, time: u64) {
        self.cpu.take(time);
    }

    /// What accesses to memory that was moved came to save, in picoseconds, or to lose.
    ///
    /// Source: specs/engine.md#budgets.
    fn earn(&mut self, came: i128) {
        if came == 0 {
            return;
        }
        let time = u64::try_from(came.unsigned_abs()).unwrap_or(u64::MAX);
        // A page's move for each time that it takes.
        let paid = i128::from(self.per_page);
        self.towards = self.towards.saturating_add(came);
        let pages = u64::try_from((self.towards / paid).unsigned_abs()).unwrap_or(u64::MAX);
        self.towards %= paid;
        let (sum, ledger) = if came < 0 {
            self.purse.lose(time);
            self.moved.lose(pages);
            (self.ledger.forgone, &mut self.ledger.forgone)
        } else {
            self.purse.earn(time);
            self.moved.earn(pages);
            (self.ledger.gained, &mut self.ledger.gained)
        };
        *ledger = Picos(sum.0.saturating_add(time));
    }

    fn lack(&self, what: Evidence) -> bool {
        self.lacks.contains(&what)
    }

    fn see(&mut self, seen: &Seen) {
        match *seen {
            Seen::Task { who, ran, node, resident } => self.see_task(who, ran, node, resident),
            Seen::Gone { who } => self.forget(who),
            Seen::Region { who, span, accessed, checks, every, age } => {
                let rate = |n| heat::region_rate(n, checks, every);
                let over = Picos(u64::from(checks).saturating_mul(every.0));
                let told = rate(accessed).zip(rate(1)).map(|(rate, one)| {
                    let one = one.saturating_mul(span.pages().0);
                    heat::Told { rate, one, over, age }
                });
                self.see_region(who, span, told);
            }
            Seen::Fault { who, vpn, from, on, after } => self.see_fault(who, vpn, from, on, after),
            Seen::Sample { who, vpn, from, period } => self.see_sample(who, vpn, from, period),
            Seen::Loads { who, ref counted } => self.see_loads(who, counted),
            Seen::Resident { who, span, on, pages } => self.see_resident(who, span, on, pages.0),
            // Not asked for: what moves along with a page shows it.
            Seen::Huge { .. } => {}
            Seen::Node { node, ref zones, load, idle } => {
                if !self.nodes.see(node, zones, load, idle) {
                    self.ledger.unknown += u64::from(!zones.is_empty());
                }
                if load.is_some() {
                    self.heed_load();
                }
            }
            Seen::Done { order, tried, moved, fails, took } => {
                self.see_done(order, tried, moved, fails, took);
            }
            Seen::Lost { events } => {
                self.ledger.lost = self.ledger.lost.saturating_add(events);
                self.period.took(events);
            }
            Seen::Stale { .. } => {
                self.ledger.stale += 1;
                self.silent = true;
            }
        }
    }

    /// Nothing more is ordered for a process that has ended, and nothing of it is kept
    /// but its open orders, which still report.
    ///
    /// Source: specs/engine.md#processes.
    fn forget(&mut self, who: Who) {
        // The PID was another's meanwhile: whoever had it before is gone as well.
        if let Some(old) = self.living.at(who.pid).filter(|old| old.start < who.start) {
            self.forget(old);
        }
        self.living.end(who);
        let Some(process) = self.processes.remove(&who) else { return };
        self.nr_watched -= usize::from(process.watched.is_some());
        self.ledger.gone += 1;
        self.plan.forget(who);
        let gone: Vec<OrderId> =
            self.out.iter().filter(|o| o.act.who() == Some(who)).map(|o| o.id).collect();
        self.out.retain(|o| o.act.who() != Some(who));
        for id in gone {
            self.ledger.withdrawn += 1;
            if let Some(open) = self.open.remove(&id) {
                self.release(&open, 0, Picos::ZERO);
            }
        }
    }

    /// Budgets and room that an order held: what it did not use is given back.
    fn release(&mut self, open: &Open, moved: u64, took: Picos) {
        let (more, less) = (took.0.saturating_sub(open.cost), open.cost.saturating_sub(took.0));
        if open.between.is_some() {
            self.purse.take(more);
            self.purse.give(less);
        } else {
            self.cpu.take(more);
            self.cpu.give(less);
        }
        if let Some((from, to)) = open.between {
            let moved = moved.min(open.named);
            self.moved.give(open.named - moved);
            self.traffic.give(open.named - moved);
            self.nodes.arrived(from, to, open.named, moved);
        }
    }

    fn see_done(&mut self, id: OrderId, tried: Pages, moved: Pages, fails: Fails, took: Picos) {
        let Some(open) = self.open.remove(&id) else {
            self.ledger.strays += 1;
            return;
        };
        self.ledger.report(open.why, open.between, tried, moved, &fails, took);
        self.release(&open, moved.0, took);
        if moved.0 > 0 {
            let pays = u128::from(open.pays.0) * u128::from(moved.0);
            let pays = pays / u128::from(open.named.max(moved.0));
            self.period.moved(self.now, Picos(u64::try_from(pays).unwrap_or(u64::MAX)));
        }
        if let Some((_, to)) = open.between.filter(|_| fails.no_room.0 > 0) {
            self.nodes.close(to);
        }
        self.settle(&open, tried, moved, fails);
        if open.between.is_some() {
            self.learn_along(&open, moved, took);
        }
        if open.looks() {
            self.decide_soon();
        }
        if fails.gone.0 > 0 {
            self.forget(open.who);
        }
    }

    fn order(&mut self, act: Act, expect: Benefit, why: Reason) -> OrderId {
        self.last_id += 1;
        let id = OrderId(self.last_id);
        self.out.push_back(Order { id, act, expect, why });
        id
    }
}

#[cfg(test)]
mod tests;
