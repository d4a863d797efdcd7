//! From the plan to orders, as budgets and room allow.
//!
//! A move names as many pages as a process may be held up for, and no more than
//! the budgets hold at that moment. Where the destination is full, one order makes
//! room first; what waits goes up when that one is done.

use super::Engine;
use super::open::Open;
use super::page_set::PageSet;
use super::pairs::CHUNK;
use super::plan::Piece;
use super::process::Tracked;
use crate::policy::order::{Act, Benefit, Evidence, Reason};
use crate::policy::span::{Span, Who, overlaps};
use crate::units::{NodeId, Pages, Picos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl Engine {
    /// Most pages of one move.
    ///
    /// Source: specs/engine.md#budgets.
    fn move_limit(&self) -> u64 {
        let by_stall = (self.settings.stall.0 / self.per_page).max(1);
        let by_cpu = self.purse.depth() / self.per_page;
        let by_bytes = self.moved.depth().min(self.traffic.depth());
        by_stall.min(self.most_pages).min(by_cpu).min(by_bytes)
    }

    /// Most pages of one look: a quarter of what may be saved up, so that a look does
    /// not hold up moves for long.
    pub(super) fn look_limit(&self) -> u64 {
        let each = self.settings.look_page.0.max(1);
        (self.cpu.depth() / 4 / each).min(self.most_pages)
    }

    /// Orders what the budgets allow now.
    pub(super) fn pump(&mut self) {
        self.wake = None;
        loop {
            let moved = self.pump_moves();
            let looked = self.pump_census() || self.pump_look();
            let brought = self.pump_home();
            if !moved && !looked && !brought {
                return;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.open.values().filter(|o| o.why != Reason::SlowStartOver).count()
            >= self.settings.most_open
    }

    /// Waits for budgets; `None` is for ever.
    fn wait_for(&mut self, at: Option<Picos>) {
        if let Some(at) = at {
            let at = at.max(Picos(self.now.0.saturating_add(1)));
            self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
        }
    }

    fn pump_moves(&mut self) -> bool {
        let nodes: Vec<NodeId> = self.plan.up.keys().copied().collect();
        let mut any = false;
        for node in nodes {
            any |= self.pump_node(node);
        }
        any
    }

    /// One order to or from a fast node.
    ///
    /// Source: specs/engine.md#room-first.
    fn pump_node(&mut self, node: NodeId) -> bool {
        let limit = self.move_limit();
        if limit == 0 || self.is_full() || self.silent || self.lack(Evidence::Marks) {
            return false;
        }
        let mut up = self.plan.up.remove(&node).unwrap_or_default();
        let mut down = self.plan.down.remove(&node).unwrap_or_default();
        self.skip(&mut up);
        self.skip(&mut down);
        // What moves as one is not less for naming a part of it.
        let limit = |queue: &VecDeque<Piece>| {
            let unit = queue.front().map_or(1, |p| p.unit);
            if unit <= self.most_pages { limit.max(unit) } else { limit }
        };
        let (limit, down_limit) = (limit(&up), limit(&down));
        let want = pages(up.iter().take(512)).min(limit);
        let room = self.nodes.room(node, want).unwrap_or(0);
        let leaving = self.open.values().any(|o| o.leaves(node));
        let ordered = if want == 0 {
            // Nobody waits any more: nobody has to go.
            down.clear();
            false
        } else if room < want && !down.is_empty() {
            // One at a time, so that no more goes than is needed.
            !leaving && {
                let to = down.front().map_or(node, |p| p.to);
                let room = self.nodes.room_below(to, down_limit).unwrap_or(0);
                if room == 0 {
                    down.clear();
                }
                self.order_move(&mut down, room.min(down_limit))
            }
        } else if room > 0 && (room == want || !leaving) {
            self.order_move(&mut up, room)
        } else {
            false
        };
        if !up.is_empty() {
            self.plan.up.insert(node, up);
        }
        if !down.is_empty() {
            self.plan.down.insert(node, down);
        }
        ordered
    }

    /// Whether the budgets hold a move of so many pages that takes so long.
    fn can_move(&self, pages: u64, takes: u64) -> bool {
        let held = self.moved.has().min(self.traffic.has());
        held >= pages && self.purse.has() >= takes
    }

    /// When they will; `None` is never.
    fn when_moved(&self, pages: u64, takes: u64) -> Option<Picos> {
        // What moves have earned is known once it has been looked for.
        let soon = self.soon();
        let bytes = self.moved.when(pages)?.min(soon);
        let time = self.purse.when(takes)?.min(soon);
        Some(bytes.max(time).max(self.traffic.when(pages)?))
    }

    /// Drops what can't be ordered any more from the front of a queue.
    fn skip(&self, queue: &mut VecDeque<Piece>) {
        while let Some(p) = queue.front() {
            let fine = |x: &Tracked| match &p.set {
                Some(set) => !x.idle_pages(p.span.start / CHUNK, set).is_empty(),
                None => !x.is_busy(p.span),
            };
            if self.processes.get(&p.who).is_some_and(fine) {
                return;
            }
            queue.pop_front();
        }
    }

    /// Orders up to `limit` pages from the front of a queue: spans of one process
    /// between the same nodes.
    fn order_move(&mut self, queue: &mut VecDeque<Piece>, limit: u64) -> bool {
        let Some((who, from, to, why)) = queue.front().map(|p| (p.who, p.from, p.to, p.why)) else {
            return false;
        };
        let same = |p: &Piece| p.who == who && p.from == from && p.to == to && p.why == why;
        let waits = queue.iter().take_while(|p| same(p)).take(512);
        let most = limit.min(pages(waits));
        let process = self.processes.get(&who);
        let apart = process.is_some_and(|p| p.apart().is_some());
        let limit = process.map_or(0, |p| p.along.may_name(apart, most));
        let price = |n: u64| n.saturating_mul(self.per_page);
        if limit == 0 {
            return false;
        }
        if !self.can_move(limit, price(limit)) {
            self.wait_for(self.when_moved(limit, price(limit)));
            return false;
        }
        let (mut spans, mut named, mut costs) = (BTreeMap::new(), 0, 0u128);
        let (mut saves, mut gains) = (0u128, 0u128);
        while named < limit {
            let Some(p) = queue.front_mut().filter(|p| same(p)) else { break };
            let chunk = p.span.start / CHUNK;
            let process = self.processes.get(&who);
            let set = match (process, &p.set) {
                (None, _) => Some(PageSet::default()),
                (Some(x), Some(set)) => {
                    let named = |page: &Span| overlaps(&spans, *page);
                    let idle = x.idle_pages(chunk, set);
                    let twice = idle.spans(chunk).filter(named).map(PageSet::of);
                    Some(twice.fold(idle, |idle, named| idle.without(&named)))
                }
                (Some(x), None) if x.is_busy(p.span) || overlaps(&spans, p.span) => {
                    Some(PageSet::default())
                }
                (Some(_), None) => None,
            };
            if set.is_some_and(|set| set.is_empty()) {
                queue.pop_front();
                continue;
            }
            let len = p.named();
            let taken = set.map(|set| set.first(limit - named));
            let mut part = taken.map_or(len.min(limit - named), |taken| taken.len());
            if part < len && taken.is_none() {
                part = ((p.span.start + part) / p.unit * p.unit).saturating_sub(p.span.start);
            }
            if part == 0 {
                break;
            }
            let share = |v: u128| v * u128::from(part) / u128::from(len);
            let head = Span { start: p.span.start, end: p.span.start + part };
            let s = share(p.saves);
            let c = share(u128::from(p.pages) * u128::from(self.per_page));
            if s <= c {
                // Its pages are so far apart that none is to be expected here.
                queue.pop_front();
                continue;
            }
            match taken {
                Some(taken) => spans.extend(taken.spans(chunk).map(|s| (s.start, s.end))),
                None => drop(spans.insert(head.start, head.end)),
            }
            named += part;
            costs += c;
            saves += s;
            let g = share(p.gains);
            gains += g;
            if let Some(taken) = taken {
                // Others of it may be busy, and are not left for the next order then.
                let all = set.unwrap_or_default();
                let gone = PageSet::ALL.without(&all.without(&taken));
                if !p.leave_out_pages(&gone) {
                    queue.pop_front();
                }
            } else if part == len {
                queue.pop_front();
            } else {
                p.span.start = head.end;
                p.saves -= s;
                p.gains -= g;
                // Rounded up: what is left must not cost more for each page than the whole.
                let n = (u128::from(p.pages) * u128::from(part)).div_ceil(u128::from(len));
                p.pages = p.pages.saturating_sub(u64::try_from(n).unwrap_or(u64::MAX));
            }
        }
        if spans.is_empty() {
            return false;
        }
        let spans: Vec<Span> = spans.iter().map(|(&start, &end)| Span { start, end }).collect();
        let cost = price(named);
        self.moved.take(named);
        self.traffic.take(named);
        self.purse.take(cost);
        self.nodes.expect(to, named);
        let expect = Benefit {
            saves: Picos(u64::try_from(saves).unwrap_or(u64::MAX)),
            costs: Picos(u64::try_from(costs).unwrap_or(u64::MAX)),
            over: self.settings.horizon,
        };
        let pays = Picos(expect.saves.0.saturating_sub(expect.costs.0));
        if let Some(p) = self.processes.get_mut(&who) {
            p.along.tries(apart);
        }
        let act = Act::Move { who, spans: join(&spans), from, to };
        self.issue(
            act,
            expect,
            Open { who, spans, between: Some((from, to)), named, cost, gains, pays, why },
        );
        true
    }

    /// What counting a process's pages takes. Of one so large that no reserve would do it takes
    /// all there is.
    fn census_cost(&self, resident: Pages) -> u64 {
        resident.0.saturating_mul(self.settings.count_page.0).min(self.cpu.depth())
    }

    /// Whose places need no look, since a census tells them that is on its way, or that the
    /// reserve pays for soon: half of it is the most that such a one takes.
    ///
    /// Source: specs/engine.md#census.
    pub(super) fn counted_soon(&self) -> BTreeSet<Who> {
        let under_way = self.open.values().filter(|o| o.why == Reason::MemoryUnknown);
        let soon = self.plan.censuses.iter().filter(|who| {
            let resident = self.processes.get(who).map_or(Pages(0), |p| p.resident);
            self.census_cost(resident) <= self.cpu.depth() / 2
        });
        // It is counted once it has stopped to grow; looks would use up what that takes.
        let grow = self.processes.iter().filter(|(_, p)| self.is_settling(p)).map(|(who, _)| *who);
        under_way.map(|o| o.who).chain(soon.copied()).chain(grow).collect()
    }

    /// One census.
    ///
    /// Source: specs/engine.md#census.
    fn pump_census(&mut self) -> bool {
        let Some(&who) = self.plan.censuses.front().filter(|_| self.can_look()) else {
            return false;
        };
        let under_way = |o: &Open| o.who == who && o.why == Reason::MemoryUnknown;
        let known = self.processes.get(&who).filter(|_| !self.open.values().any(under_way));
        let Some(resident) = known.map(|p| p.resident) else {
            self.plan.censuses.pop_front();
            return true;
        };
        if self.is_full() || self.cpu.depth() == 0 {
            return false;
        }
        let cost = self.census_cost(resident);
        if self.cpu.has() < cost.max(1) {
            let at = self.cpu.when(cost.max(1));
            self.wait_for(at);
            return false;
        }
        self.plan.censuses.pop_front();
        self.cpu.take(cost);
        let expect = Benefit { saves: Picos(0), costs: Picos(cost), over: self.settings.horizon };
        let why = Reason::MemoryUnknown;
        let open = Open { cost, ..Open::new(who, why) };
        self.issue(Act::Census { who }, expect, open);
        true
    }

    /// One look, at spans of one process.
    ///
    /// Source: specs/engine.md#looking.
    fn pump_look(&mut self) -> bool {
        let limit = self.look_limit();
        if limit == 0 || self.is_full() || self.plan.looks.is_empty() || !self.can_look() {
            return false;
        }
        let each = self.settings.look_page.0;
        let who = self.plan.looks[0].who;
        let waits = self.plan.looks.iter().take_while(|l| l.who == who).take(256);
        let waits = waits.map(|l| l.span.pages().0).fold(0, u64::saturating_add);
        let limit = limit.min(waits);
        let price = limit.saturating_mul(each);
        if self.cpu.has() < price.max(1) {
            let at = self.cpu.when(price.max(1));
            self.wait_for(at);
            return false;
        }
        let Some(block) = self.processes.get(&who).map(|p| p.look_pages()) else {
            self.plan.looks.retain(|l| l.who != who);
            return true;
        };
        let (mut spans, mut named, mut saves) = (BTreeMap::new(), 0, 0u128);
        while named < limit {
            let Some(l) = self.plan.looks.front_mut().filter(|l| l.who == who) else { break };
            let busy = self.processes.get(&who).is_none_or(|x| x.is_busy(l.span));
            if busy || overlaps(&spans, l.span) {
                self.plan.looks.pop_front();
                continue;
            }
            let len = l.span.pages().0;
            // To the next border of a block, so that places are known block by block.
            let border = (l.span.start / block).saturating_add(1).saturating_mul(block);
            let part = len.min(limit - named).min(border - l.span.start);
            let s = l.saves * u128::from(part) / u128::from(len);
            let end = l.span.start + part;
            spans.insert(l.span.start, end);
            named += part;
            saves += s;
            if part == len {
                self.plan.looks.pop_front();
            } else {
                l.span.start = end;
                l.saves -= s;
            }
        }
        if spans.is_empty() {
            return !self.plan.looks.is_empty();
        }
        let spans: Vec<Span> = spans.iter().map(|(&start, &end)| Span { start, end }).collect();
        let cost = named.saturating_mul(each);
        self.cpu.take(cost);
        let expect = Benefit {
            saves: Picos(u64::try_from(saves).unwrap_or(u64::MAX)),
            costs: Picos(cost),
            over: self.settings.horizon,
        };
        let why = Reason::PlaceUnknown;
        let act = Act::Look { who, spans: spans.clone() };
        self.issue(act, expect, Open { spans, named, cost, ..Open::new(who, why) });
        true
    }

    /// Gives an order, which is open until it is reported.
    pub(super) fn issue(&mut self, act: Act, expect: Benefit, open: Open) {
        if let Some(p) = self.processes.get_mut(&open.who) {
            p.busy.extend(open.spans.iter().map(|s| (s.start, s.end)));
        }
        let id = self.order(act, expect, open.why);
        self.open.insert(id, open);
    }
}

/// How many pages all of them name.
fn pages<'a>(pieces: impl Iterator<Item = &'a Piece>) -> u64 {
    pieces.map(Piece::named).fold(0, u64::saturating_add)
}

/// Spans that touch, as one.
fn join(spans: &[Span]) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for s in spans {
        match out.last_mut().filter(|l| l.end == s.start) {
            Some(last) => last.end = s.end,
            None => out.push(*s),
        }
    }
    out
}
