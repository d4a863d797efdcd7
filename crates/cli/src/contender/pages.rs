//! What published policies of base pages have in common here: a table of pages by process, samples
//! that fall on them, where they are, and orders that move them.
//!
//! ```text
//! Task ─▶ watched; counted anew where it has grown     Sample ─▶ page's counters
//! Resident of a census ─▶ areas of pages on one node   Done ─▶ where pages are
//! Resident of a look ─▶ single pages: of extents that lie on both nodes, of moves that failed
//! Huge of a census ─▶ which pages are huge, for a policy that asks; Done of a split ─▶ one is not
//! ```
//!
//! Nobody else moves pages where such a policy drives, so what a census told once stays right.
//! Kernel policies know their pages' places from `struct page`; here all pay for the census and the
//! looks, at the price of `page_frame`.
//!
//! Source: specs/compare.md#terms.

use super::chunks::Tiers;
use homenode_core::policy::Ledger;
use homenode_core::policy::order::{Act, Benefit, Order, OrderId, Reason};
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{HUGE_PAGES, NodeId, Pages as Count};
use std::collections::{BTreeMap, VecDeque};

/// A page: its process, and its number there.
pub(super) type At = (Who, u64);

/// A page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page<T> {
    /// Whether it is in the fast tier; `None`: it is nowhere, or nobody knows.
    pub(super) fast: Option<bool>,
    /// A move of it has not reported yet.
    pub(super) on_its_way: bool,
    /// It can't be moved.
    pinned: bool,
    /// What the policy keeps.
    pub(super) own: T,
}

impl<T> Page<T> {
    /// Whether it is in that tier and may be moved.
    pub(super) fn is(&self, fast: bool) -> bool {
        self.fast == Some(fast) && !self.on_its_way && !self.pinned
    }
}

/// Pages that follow each other.
struct Area<T> {
    start: u64,
    pages: Vec<Page<T>>,
}

impl<T> Area<T> {
    fn end(&self) -> u64 {
        self.start + self.pages.len() as u64
    }
}

struct Process<T> {
    resident: u64,
    /// Its processor time, in picoseconds.
    ran: u64,
    /// What was resident at the last census.
    counted_at: u64,
    counting: bool,
    /// Looks that have not reported. A census waits for them, so that what is told meanwhile is its.
    looks: u32,
    /// Rising.
    areas: Vec<Area<T>>,
}

impl<T> Default for Process<T> {
    fn default() -> Self {
        Self { resident: 0, ran: 0, counted_at: 0, counting: false, looks: 0, areas: Vec::new() }
    }
}

impl<T> Process<T> {
    fn get_mut(&mut self, vpn: u64) -> Option<&mut Page<T>> {
        let at = self.areas.partition_point(|a| a.end() <= vpn);
        let area = self.areas.get_mut(at)?;
        let nth = vpn.checked_sub(area.start)?;
        area.pages.get_mut(nth as usize)
    }
}

/// What an order was for.
enum Open {
    Watch,
    Census(Who),
    Look(Who),
    Move { who: Who, vpns: Vec<u64>, up: bool },
    Split(At),
}

/// What a policy of base pages knows and has ordered.
pub(super) struct Pages<T> {
    pub(super) tiers: Tiers,
    /// Free pages of the fast node above its high mark, as they were last told.
    pub(super) free: i64,
    /// No move has reported since that was told.
    pub(super) fresh: bool,
    processes: BTreeMap<Who, Process<T>>,
    /// Extents of a census that has not ended.
    told: BTreeMap<Who, Vec<(Span, NodeId)>>,
    /// What huge pages map, by the same.
    told_huge: BTreeMap<Who, Vec<Span>>,
    orders: VecDeque<Order>,
    open: BTreeMap<OrderId, Open>,
    moving: usize,
    most: u64,
    last: u64,
    ledger: Ledger,
}

/// A sample on a known page.
pub(super) struct Sampled<'a, T> {
    pub(super) at: At,
    pub(super) page: &'a mut Page<T>,
    pub(super) period: u64,
}

/// What a batch told beside samples.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// Samples, also those on pages that are not known yet.
    pub(super) samples: u64,
    /// Pages that were found by a census for the first time.
    pub(super) found: u64,
    /// Pages that went up and down.
    pub(super) moved: [u64; 2],
    /// Processes that ended.
    pub(super) gone: u64,
    /// Processor time of programs since the last batch, in picoseconds.
    pub(super) ran: u64,
    /// What huge pages map of processes of which a census was told.
    pub(super) huge: Vec<(Who, Vec<Span>)>,
    /// First pages of huge pages that a split found, or made, to be base pages.
    pub(super) split: Vec<At>,
}

impl<T: Copy + Default> Pages<T> {
    pub(super) fn new(machine: &Hardware, most: u64) -> Self {
        Self {
            tiers: Tiers::of(machine),
            free: 0,
            fresh: false,
            processes: BTreeMap::new(),
            told: BTreeMap::new(),
            told_huge: BTreeMap::new(),
            orders: VecDeque::new(),
            open: BTreeMap::new(),
            moving: 0,
            most: most.max(1),
            last: 0,
            ledger: Ledger::default(),
        }
    }
    fn order(&mut self, act: Act, why: Reason, what: Open) {
        self.last += 1;
        let id = OrderId(self.last);
        self.open.insert(id, what);
        self.orders.push_back(Order { id, act, expect: Benefit::default(), why });
    }
    /// Moves and splits that have not reported.
    pub(super) fn moving(&self) -> usize {
        self.moving
    }
    /// A page, if it is known.
    pub(super) fn get_mut(&mut self, (who, vpn): At) -> Option<&mut Page<T>> {
        self.processes.get_mut(&who)?.get_mut(vpn)
    }
    /// All known pages, by rising addresses.
    pub(super) fn each(&mut self, mut f: impl FnMut(At, &mut Page<T>)) {
        for (&who, process) in &mut self.processes {
            for area in &mut process.areas {
                for (vpn, page) in (area.start..).zip(&mut area.pages) {
                    f((who, vpn), page);
                }
            }
        }
    }
    /// Known pages of a span, by rising addresses.
    pub(super) fn within(&mut self, who: Who, span: Span, mut f: impl FnMut(u64, &mut Page<T>)) {
        let Some(process) = self.processes.get_mut(&who) else { return };
        let first = process.areas.partition_point(|a| a.end() <= span.start);
        for area in process.areas[first..].iter_mut().take_while(|a| a.start < span.end) {
            let [from, to] = [span.start, span.end].map(|vpn| {
                vpn.clamp(area.start, area.start + area.pages.len() as u64) - area.start
            });
            for (vpn, page) in
                (area.start + from..).zip(&mut area.pages[from as usize..to as usize])
            {
                f(vpn, page);
            }
        }
    }
    /// The areas by process, as first page and number of pages.
    fn areas(&self) -> Vec<(Who, u64, u64)> {
        let of = |(who, p): (&Who, &Process<T>)| {
            let who = *who;
            p.areas.iter().map(move |a| (who, a.start, a.pages.len() as u64)).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of).collect()
    }
    /// Goes on around all known pages behind `hand`, at most once around, until `f` has had enough;
    /// says how many pages it went over, and moves the hand.
    pub(super) fn around(
        &mut self,
        hand: &mut Option<At>,
        mut f: impl FnMut(At, &mut Page<T>) -> bool,
    ) -> u64 {
        let areas = self.areas();
        let from = hand.unwrap_or((Who { pid: 0, start: 0 }, 0));
        // Where it goes on, first; then the areas before that.
        let at = areas.partition_point(|&(who, start, n)| (who, start + n) <= from);
        let mut went = 0;
        for (turn, &(who, start, n)) in
            areas[at..].iter().chain(&areas[..at]).chain(areas.get(at)).enumerate()
        {
            // The area in which it began is gone over in two parts.
            let first = if turn == 0 && from.0 == who { from.1.max(start) } else { start };
            let end = if turn == areas.len() { from.1.clamp(start, start + n) } else { start + n };
            let Some(process) = self.processes.get_mut(&who) else { continue };
            for vpn in first..end {
                let Some(page) = process.get_mut(vpn) else { break };
                went += 1;
                if f((who, vpn), page) {
                    *hand = Some((who, vpn + 1));
                    return went;
                }
            }
        }
        went
    }
    /// Pays for a walk over the page tables of so many pages behind `hand`, by looking at them. What
    /// is told is known.
    pub(super) fn pay_walk(&mut self, hand: Option<At>, mut pages: u64) {
        let areas = self.areas();
        let from = hand.unwrap_or((Who { pid: 0, start: 0 }, 0));
        let at = areas.partition_point(|&(who, start, n)| (who, start + n) <= from);
        for (turn, &(who, start, n)) in areas[at..].iter().chain(&areas[..at]).enumerate() {
            let first = if turn == 0 && from.0 == who { from.1.max(start) } else { start };
            let end = (start + n).min(first + pages);
            pages -= end - first;
            if first < end {
                let spans = vec![Span { start: first, end }];
                if let Some(process) = self.processes.get_mut(&who) {
                    process.looks += 1;
                }
                self.order(Act::Look { who, spans }, Reason::PlaceUnknown, Open::Look(who));
            }
        }
    }
    /// Orders pages of one tier up, or down.
    pub(super) fn shift(&mut self, mut pages: Vec<At>, up: bool) {
        if self.tiers.fast == self.tiers.slow {
            return;
        }
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&at| {
            let page = self.get_mut(at).filter(|p| p.is(!up));
            page.map(|p| p.on_its_way = true).is_some()
        });
        for part in pages.chunk_by(|a, b| a.0 == b.0) {
            for part in part.chunks(self.most as usize) {
                let vpns: Vec<u64> = part.iter().map(|p| p.1).collect();
                let (from, to) = self.tiers.way(up);
                let why = if up { Reason::Hot } else { Reason::MakeRoom };
                let act = Act::Move { who: part[0].0, spans: spans(&vpns), from, to };
                self.moving += 1;
                self.order(act, why, Open::Move { who: part[0].0, vpns, up });
            }
        }
    }
    /// Orders a huge page, by its first page, to be split; whether that can be done now.
    pub(super) fn split(&mut self, at: At) -> bool {
        let (who, start) = at;
        let Some(page) = self.get_mut(at) else { return false };
        if page.fast.is_none() || page.on_its_way || page.pinned {
            return false;
        }
        page.on_its_way = true;
        self.moving += 1;
        let spans = vec![Span { start, end: start + HUGE_PAGES }];
        self.order(Act::Split { who, spans }, Reason::HeatInside, Open::Split(at));
        true
    }
    /// Takes in what was seen. Each sample on a page that is known is told to `sampled`, and each
    /// page that was found to `found`.
    pub(super) fn take(
        &mut self,
        seen: &[Seen],
        mut sampled: impl FnMut(Sampled<'_, T>),
        mut found: impl FnMut(At, &mut Page<T>),
    ) -> News {
        let mut news = News::default();
        for one in seen {
            match one {
                Seen::Task { who, resident, ran, .. } => {
                    self.task(*who, resident.0);
                    if let Some(process) = self.processes.get_mut(who) {
                        news.ran +=
                            ran.0.saturating_sub(std::mem::replace(&mut process.ran, ran.0));
                    }
                }
                Seen::Gone { who } => {
                    news.gone += u64::from(self.processes.remove(who).is_some());
                    self.told.remove(who);
                    self.told_huge.remove(who);
                }
                Seen::Sample { who, vpn, period, .. } => {
                    news.samples += 1;
                    let page = self.processes.get_mut(who).and_then(|p| p.get_mut(*vpn));
                    if let Some(page) = page {
                        sampled(Sampled { at: (*who, *vpn), page, period: *period });
                    }
                }
                Seen::Resident { who, span, on, pages } => self.resident(*who, *span, *on, *pages),
                Seen::Huge { who, span } => {
                    self.told_huge.entry(*who).or_default().push(*span);
                }
                Seen::Node { node, zones, .. } => {
                    if *node == self.tiers.fast {
                        let free = zones.iter().map(|z| z.free.0 as i64 - z.marks.high.0 as i64);
                        self.free = free.sum();
                        self.fresh = true;
                    }
                }
                Seen::Done { order, tried, moved, fails, took } => {
                    let Some(open) = self.open.remove(order) else { continue };
                    let (why, between) = match &open {
                        Open::Watch => (Reason::SlowStartOver, None),
                        Open::Census(_) => (Reason::MemoryUnknown, None),
                        Open::Look(_) => (Reason::PlaceUnknown, None),
                        Open::Move { up: true, .. } => (Reason::Hot, Some(self.tiers.way(true))),
                        Open::Move { up: false, .. } => {
                            (Reason::MakeRoom, Some(self.tiers.way(false)))
                        }
                        Open::Split(_) => (Reason::HeatInside, None),
                    };
                    self.ledger.report(why, between, *tried, *moved, fails, *took);
                    match open {
                        Open::Watch => {}
                        Open::Census(who) => {
                            news.found += self.counted(who, &mut found);
                            news.huge.push((who, self.told_huge.remove(&who).unwrap_or_default()));
                        }
                        Open::Look(who) => {
                            let looks = self.processes.get_mut(&who).map(|p| &mut p.looks);
                            looks.into_iter().for_each(|n| *n = n.saturating_sub(1));
                        }
                        Open::Split(at) => {
                            self.moving -= 1;
                            let Some(page) = self.get_mut(at) else { continue };
                            page.on_its_way = false;
                            // What was not huge any more is base pages too.
                            if tried.0 > 0 && fails.absent + *moved == *tried {
                                news.split.push(at);
                            }
                        }
                        Open::Move { who, vpns, up } => {
                            self.moving -= 1;
                            self.fresh = false;
                            news.moved[usize::from(!up)] += moved.0;
                            let all = moved.0 >= vpns.len() as u64;
                            let never = moved.0 == 0 && fails.forbidden.0 > 0;
                            for &vpn in &vpns {
                                let Some(page) = self.get_mut((who, vpn)) else { continue };
                                page.on_its_way = false;
                                page.pinned |= never;
                                // Of some it is not told which: they are looked at.
                                page.fast = if all { Some(up) } else { None };
                            }
                            if !all && !never && self.processes.contains_key(&who) {
                                self.look(who, &vpns);
                            }
                        }
                    }
                }
                Seen::Region { .. }
                | Seen::Loads { .. }
                | Seen::Fault { .. }
                | Seen::Stale { .. } => {}
                Seen::Lost { events } => self.ledger.lost += events,
            }
        }
        news
    }
    /// Asks where single pages are.
    fn look(&mut self, who: Who, vpns: &[u64]) {
        if let Some(process) = self.processes.get_mut(&who) {
            process.looks += 1;
        }
        let spans = vpns.iter().map(|&v| Span { start: v, end: v + 1 }).collect();
        self.order(Act::Look { who, spans }, Reason::PlaceUnknown, Open::Look(who));
    }
    fn resident(&mut self, who: Who, span: Span, on: NodeId, pages: Count) {
        let Some(process) = self.processes.get_mut(&who) else { return };
        if process.counting {
            if pages.0 > 0 {
                self.told.entry(who).or_default().push((span, on));
            }
        } else if let Some(page) = process.get_mut(span.start).filter(|_| span.pages().0 == 1) {
            page.fast = (pages.0 > 0).then_some(on == self.tiers.fast);
        }
    }
    /// A census is over: areas are made anew, and pages keep what is known of them.
    fn counted(&mut self, who: Who, found: &mut impl FnMut(At, &mut Page<T>)) -> u64 {
        let told = self.told.remove(&who).unwrap_or_default();
        let fast = self.tiers.fast;
        let Some(process) = self.processes.get_mut(&who) else { return 0 };
        process.counting = false;
        let mut before = std::mem::take(process);
        (process.resident, process.counted_at) = (before.resident, before.counted_at);
        (process.looks, process.ran) = (before.looks, before.ran);
        let (mut mixed, mut new) = (Vec::new(), 0);
        for (i, &(span, on)) in told.iter().enumerate() {
            let same = |other: Option<&(Span, NodeId)>| other.is_some_and(|o| o.0 == span);
            if same(i.checked_sub(1).and_then(|i| told.get(i))) {
                continue;
            }
            let on = (!same(told.get(i + 1))).then_some(on == fast);
            if on.is_none() {
                mixed.extend(span.start..span.end);
            }
            let follows = process.areas.last().is_some_and(|a| a.end() == span.start);
            if !follows {
                process.areas.push(Area { start: span.start, pages: Vec::new() });
            }
            let Some(area) = process.areas.last_mut() else { continue };
            for vpn in span.start..span.end {
                let mut page = match before.get_mut(vpn) {
                    Some(page) => *page,
                    None => {
                        let mut page = Page { fast: on, ..Page::default() };
                        new += 1;
                        found((who, vpn), &mut page);
                        page
                    }
                };
                // A move on its way may have passed the census.
                if !page.on_its_way {
                    page.fast = on;
                }
                area.pages.push(page);
            }
        }
        if !mixed.is_empty() {
            self.look(who, &mixed);
        }
        new
    }
    fn task(&mut self, who: Who, resident: u64) {
        let Some(process) = self.processes.get_mut(&who) else {
            self.processes.insert(who, Process { resident, ..Process::default() });
            self.order(Act::Watch { who }, Reason::SlowStartOver, Open::Watch);
            return;
        };
        let grows = resident > process.resident + process.resident / 100;
        process.resident = resident;
        let news = resident.abs_diff(process.counted_at) > process.counted_at / 100;
        if grows || process.counting || process.looks > 0 || !news {
            return;
        }
        (process.counted_at, process.counting) = (resident, true);
        self.order(Act::Census { who }, Reason::MemoryUnknown, Open::Census(who));
    }
    pub(super) fn poll(&mut self) -> Option<Order> {
        let order = self.orders.pop_front()?;
        self.ledger.hand_out(&order);
        Some(order)
    }
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// Rising pages as spans.
fn spans(vpns: &[u64]) -> Vec<Span> {
    let parts = vpns.chunk_by(|a, b| a + 1 == *b);
    parts.map(|p| Span { start: p[0], end: p[p.len() - 1] + 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::order::Fails;
    use homenode_core::units::Picos;

    const WHO: Who = Who { pid: 7, start: 1 };

    fn pages() -> Pages<u32> {
        let text = include_str!("../../../../machines/small-cxl.toml");
        let machine = homenode_config::parse_machine("small-cxl.toml", text).expect("a machine");
        Pages::new(&machine, 100)
    }
    fn told(pages: &mut Pages<u32>, seen: &[Seen]) -> Vec<Order> {
        pages.take(seen, |s| s.page.own += 1, |_, _| {});
        std::iter::from_fn(|| pages.poll()).collect()
    }
    fn task(resident: u64) -> Seen {
        let (ran, resident) = (Picos::ZERO, Count(resident));
        Seen::Task { who: WHO, ran, node: None, resident }
    }
    fn resident(start: u64, end: u64, on: NodeId, pages: u64) -> Seen {
        let (span, pages) = (Span { start, end }, Count(pages));
        Seen::Resident { who: WHO, span, on, pages }
    }
    fn done(order: &Order, moved: u64, no_room: u64) -> Seen {
        let fails = Fails { no_room: Count(no_room), ..Fails::default() };
        let (tried, moved) = (Count(moved + no_room), Count(moved));
        Seen::Done { order: order.id, tried, moved, fails, took: Picos::ZERO }
    }

    #[test]
    fn a_census_tells_areas_a_look_what_lies_on_both_nodes_and_a_failed_move_is_looked_at() {
        let mut p = pages();
        let watch = told(&mut p, &[task(300)]);
        let census = told(&mut p, &[done(&watch[0], 0, 0), task(300)]);
        assert!(matches!(census[0].act, Act::Census { .. }), "{census:?}");
        let look = told(
            &mut p,
            &[
                resident(64, 192, NodeId(0), 128),
                resident(192, 256, NodeId(0), 60),
                resident(192, 256, NodeId(1), 4),
                resident(512, 576, NodeId(1), 64),
                done(&census[0], 0, 0),
            ],
        );
        assert_eq!(look[0].act.spans().len(), 64, "the mixed extent, page by page");
        assert_eq!(p.get_mut((WHO, 100)).map(|p| p.fast), Some(Some(true)));
        assert_eq!(p.get_mut((WHO, 200)).map(|p| p.fast), Some(None));
        assert!(p.get_mut((WHO, 300)).is_none(), "between areas is nothing");
        told(&mut p, &[resident(200, 201, NodeId(1), 1), done(&look[0], 0, 0)]);
        assert_eq!(p.get_mut((WHO, 200)).map(|p| p.fast), Some(Some(false)));
        // Up go what is below; two are one span, and what is above already is left out.
        p.shift(vec![(WHO, 513), (WHO, 512), (WHO, 100), (WHO, 200)], true);
        let up: Vec<Order> = std::iter::from_fn(|| p.poll()).collect();
        assert_eq!(
            up[0].act.spans(),
            [Span { start: 200, end: 201 }, Span { start: 512, end: 514 }]
        );
        assert_eq!(p.moving(), 1);
        let look = told(&mut p, &[done(&up[0], 2, 1)]);
        assert_eq!((look[0].act.spans().len(), p.moving()), (3, 0), "which one failed is not told");
        told(&mut p, &[resident(200, 201, NodeId(0), 1), resident(513, 514, NodeId(1), 1)]);
        assert!(p.get_mut((WHO, 200)).is_some_and(|p| p.is(true)));
        assert!(p.get_mut((WHO, 513)).is_some_and(|p| p.is(false)));
    }

    #[test]
    fn a_hand_goes_round_once_and_goes_on_where_it_was() {
        let mut p = pages();
        let watch = told(&mut p, &[task(128)]);
        let census = told(&mut p, &[done(&watch[0], 0, 0), task(128)]);
        told(
            &mut p,
            &[
                resident(0, 64, NodeId(0), 64),
                resident(128, 192, NodeId(1), 64),
                done(&census[0], 0, 0),
            ],
        );
        let mut hand = None;
        let mut first = Vec::new();
        p.around(&mut hand, |at, _| {
            first.push(at.1);
            first.len() == 70
        });
        assert_eq!((first[0], first[69]), (0, 133));
        let mut second = Vec::new();
        let went = p.around(&mut hand, |at, _| {
            second.push(at.1);
            false
        });
        assert_eq!((went, second[0], second[127]), (128, 134, 133), "once around");
    }
}
