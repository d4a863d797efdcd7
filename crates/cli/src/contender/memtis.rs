//! MEMTIS, by Lee and others (SOSP'23), as its published kernel has it: a histogram of all memory
//! by heat says from where on it is as much as fits, and that is the threshold of heat.
//!
//! ```text
//! sample ─▶ page's count + 512 ─▶ bin = log2 of it ─▶ histogram of 16 bins
//!                                                        │ every 100,000 samples
//! T_hot: the lowest bin from which on all pages fit ◀────┘
//! T_warm: one below, where less than three quarters are filled     every 2,000,000: all halved
//! every 500 ms: what is below T_warm goes down, as much as room is wanted; T_hot and above go up
//! ```
//!
//! A huge page's count goes up by one, which is as much for each of its bytes; its pages are counted
//! beside. So there is a second histogram, as if all were base pages, and where the fast tier would
//! be hit more by that one, the huge pages whose heat is most uneven are split ([`splits`]).
//!
//! Worked example: 100 pages fit, the bins 15 to 9 have 20, 0, 30, 40, 0, 60 and 900 pages. From bin
//! 12 on there are 90, from 10 on 150: T_hot is 11. More than 75 are filled, so T_warm is 11 too.
//!
//! A kernel's policy, so its times and amounts shrink with the machine as the kernel's own do
//! ([`homenode_core::scale`]): the period of kmigrated and the samples between two adaptations and
//! two coolings are divided by the factor, and so are the bounds of its watermarks. Counts of a page,
//! bins, shares and sampling periods stay.
//!
//! Left out: stores as events of their own. Cooling when 10 GB were allocated. The lists' own order:
//! what is cold goes down by address, taken up where the last demotion ended.
//!
//! Source: specs/compare.md#memtis.

use super::pages::{self, At, Page, Sampled};
use homenode_core::costs::Cost;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::policy::{Ledger, Policy};
use homenode_core::scale::Scale;
use homenode_core::topology::Hardware;
use homenode_core::units::{HUGE_PAGES, Picos};
use homenode_machine::Caps;
use splits::{Inside, Splits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod splits;

/// Periods of sampling between which ksampled chooses.
const PERIODS: [u64; 30] = [
    199, 293, 401, 499, 599, 701, 797, 907, 997, 1201, 1399, 1601, 1801, 1999, 2503, 3001, 3499,
    4001, 4507, 4999, 6007, 7001, 7993, 9001, 10_007, 12_007, 13_999, 16_001, 17_989, 19_997,
];
/// Time after which ksampled looks at itself, and the shares of a CPU, in thousandths, between which
/// it leaves its period.
const REVIEW: Picos = Picos::from_secs(15);
const CPU: [u64; 2] = [25, 35];
/// How often samples are read: it wakes each 2 ms, and rings hold more than 10 ms of them.
const READ: Picos = Picos::from_ms(10);
/// What a sample adds.
const SAMPLE: u32 = 512;
const BINS: usize = 16;
/// Samples between two adaptations of the threshold, and between two coolings.
const ADAPT: u64 = 100_000;
const COOL: u64 = 2_000_000;
/// Time between two rounds of kmigrated.
const ROUND: Picos = Picos::from_ms(500);
/// Marks, in hundredths of the fast tier with least and most pages: what is free below which it
/// demotes by itself, and what promotion leaves.
const DEMOTE: (u64, u64, u64) = (2, 12_800, 256_000);
const PROMOTE: (u64, u64, u64) = (3, 25_600, 384_000);
/// From this bin on a huge page is too hot to be split.
const VERY_HOT: usize = 13;
/// Huge pages of a node that are split in a round.
const SPLITS: u64 = 50;
/// Share of the room, in hundredths, below which there is a warm bin.
const WARM: u64 = 75;

/// Counts of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    count: u32,
    /// Not halved at the next cooling.
    new: bool,
    listed: bool,
    /// It is a part of a huge page, which has a count of its own.
    huge: bool,
    /// It was hot at its last sample, if all were base pages.
    could: bool,
}

/// A huge page, known by its first page.
#[derive(Clone, Copy, Debug, Default)]
struct Huge {
    /// Goes up by one for each sample, as it is 512 times as large.
    count: u32,
    new: bool,
    listed: bool,
    /// The bin of its skew.
    skew: usize,
    /// It is to be split.
    queued: bool,
}

/// The huge page around a page, and its pages.
fn around((who, vpn): At) -> (At, Span) {
    let start = vpn - vpn % HUGE_PAGES;
    ((who, start), Span { start, end: start + HUGE_PAGES })
}
fn is_first(at: At) -> bool {
    at.1 % HUGE_PAGES == 0
}
/// All pages of a huge page.
fn all_of((who, start): At) -> impl Iterator<Item = At> {
    (start..start + HUGE_PAGES).map(move |vpn| (who, vpn))
}

fn bin(count: u32) -> usize {
    (count.saturating_add(1).ilog2() as usize).min(BINS - 1)
}

/// Pages by bin, and what follows from them.
#[derive(Clone, Debug)]
struct Thresholds {
    pages: [u64; BINS],
    /// The same as if all were base pages.
    base: [u64; BINS],
    hot: usize,
    warm: usize,
    /// The hot threshold of `base`.
    base_hot: usize,
    cooled: bool,
}

/// The lowest bin from which on all pages fit, and how many these are.
fn fits(bins: &[u64; BINS], room: u64) -> (usize, u64) {
    let (mut sum, mut fits) = (0, BINS);
    for (bin, pages) in bins.iter().enumerate().rev() {
        if sum + pages > room {
            break;
        }
        sum += pages;
        fits = bin;
    }
    // Where the hottest bin alone is too large, it is hot all the same.
    (fits.clamp(1, BINS - 1), sum)
}

/// Pages change bins.
fn shift(bins: &mut [u64; BINS], before: usize, after: usize, pages: u64) {
    if before != after {
        bins[before] = bins[before].saturating_sub(pages);
        bins[after] += pages;
    }
}

impl Thresholds {
    fn new() -> Self {
        Self { pages: [0; BINS], base: [0; BINS], hot: 1, warm: 1, base_hot: 1, cooled: false }
    }
    /// Fits the thresholds to the room; whether the hot one is another now.
    ///
    /// * `falls` – huge pages were split, so that it may fall between coolings too.
    fn adapt(&mut self, room: u64, falls: bool) -> bool {
        let ((fits, sum), (base, _)) = (fits(&self.pages, room), fits(&self.base, room));
        let before = self.hot;
        if self.cooled {
            self.cooled = false;
            if fits < self.hot {
                self.hot = (self.hot - 1).max(1);
            }
            self.base_hot = self.base_hot.min(base);
        } else {
            self.hot = if falls { fits } else { self.hot.max(fits) };
            self.base_hot = base;
        }
        self.warm = if sum < room * WARM / 100 { self.hot - 1 } else { self.hot };
        self.hot != before
    }
}

struct Memtis {
    pages: pages::Pages<Heat>,
    /// Huge pages by their first one.
    huge: BTreeMap<At, Huge>,
    splits: Splits,
    /// Those that are to be split, in the order in which they were chosen.
    queue: VecDeque<At>,
    coolings: u32,
    scale: u64,
    heat: Thresholds,
    /// Hot pages of the slow tier, in the order in which they became so; of huge ones the first.
    up: VecDeque<At>,
    /// Where the last demotion ended.
    hand: Option<At>,
    /// Nothing cold was found in the fast tier, and no threshold has changed since.
    all_warm: bool,
    samples: u64,
    adapt_at: u64,
    cool_at: u64,
    next: Picos,
    wake: Picos,
    reviewed: (Picos, u64),
    period: usize,
    /// What reading a sample takes.
    each: Picos,
}

impl Memtis {
    /// An amount of a large machine.
    fn scaled(&self, amount: u64) -> u64 {
        (amount / self.scale).max(1)
    }
    fn mark(&self, (percent, least, most): (u64, u64, u64)) -> u64 {
        let room = self.pages.tiers.room;
        let (least, most) = (self.scaled(least), self.scaled(most));
        // The code's own: what is below the larger mark's least becomes the smaller one's.
        let part = room * percent / 100;
        if part < least { self.scaled(DEMOTE.1) } else { part.min(most) }
    }
    /// Samples that averages over coolings stand for, each of which counts half what was before.
    fn records(&self) -> u64 {
        let each = self.scaled(COOL);
        2 * each - each.checked_shr(self.coolings.saturating_sub(1)).unwrap_or(0)
    }
    /// The hot pages of the slow tier anew.
    fn relist(&mut self) {
        let (mut up, hot) = (VecDeque::new(), self.heat.hot);
        let huge = &mut self.huge;
        self.pages.each(|at, page| {
            let below = page.fast == Some(false);
            let listed = if !page.own.huge {
                page.own.listed = below && bin(page.own.count) >= hot;
                page.own.listed
            } else {
                let first = if is_first(at) { huge.get_mut(&at) } else { None };
                first.is_some_and(|h| {
                    h.listed = below && bin(h.count) >= hot;
                    h.listed
                })
            };
            if listed {
                up.push_back(at);
            }
        });
        self.up = up;
        self.all_warm = false;
    }
    /// Pages that wait below.
    fn waiting(&self) -> i64 {
        if self.huge.is_empty() {
            return self.up.len() as i64;
        }
        let pages = |at| if self.huge.contains_key(at) { HUGE_PAGES as i64 } else { 1 };
        self.up.iter().map(pages).sum()
    }
    /// Counts all pages into their bins.
    fn recount(&mut self) {
        let (mut pages, mut base) = ([0; BINS], [0; BINS]);
        self.pages.each(|_, page| {
            base[bin(page.own.count)] += 1;
            pages[bin(page.own.count)] += u64::from(!page.own.huge);
        });
        self.huge.values().for_each(|h| pages[bin(h.count)] += HUGE_PAGES);
        (self.heat.pages, self.heat.base) = (pages, base);
    }
    fn cool(&mut self) {
        self.coolings += 1;
        self.heat.base_hot = self.heat.base_hot.saturating_sub(1);
        let base_hot = self.heat.base_hot;
        let hot = self.heat.hot.min(base_hot);
        let (mut pages, mut base) = ([0; BINS], [0; BINS]);
        let (huge, splits, mut inside) = (&mut self.huge, &mut self.splits, Inside::default());
        splits.clear();
        self.pages.each(|at, page| {
            let heat = &mut page.own;
            let was = bin(heat.count);
            heat.could = was >= base_hot;
            if heat.huge {
                if is_first(at) {
                    inside = Inside::default();
                }
                inside.add(heat.count, was >= hot);
            }
            if !std::mem::take(&mut heat.new) {
                heat.count /= 2;
            }
            let now = bin(heat.count);
            base[now] += 1;
            if !heat.huge {
                pages[now] += 1;
                return;
            }
            let last = (at.1 + 1) % HUGE_PAGES == 0;
            let whole = if last { huge.get_mut(&around(at).0) } else { None };
            let Some(whole) = whole else { return };
            let new = std::mem::take(&mut whole.new);
            if !new {
                whole.count /= 2;
            }
            let now = bin(whole.count);
            pages[now] += HUGE_PAGES;
            whole.skew = if new || now >= VERY_HOT { 0 } else { inside.skew() };
            splits.add(whole.skew, &inside);
        });
        (self.heat.pages, self.heat.base) = (pages, base);
        self.heat.cooled = true;
        self.splits.cooled(base.iter().sum(), self.pages.tiers.room);
        self.relist();
    }
    /// Takes what is huge by a census: all that is and was not, and what was and is not.
    fn census(&mut self, who: Who, spans: &[Span]) {
        let firsts = |s: &Span| (s.start..s.end).step_by(HUGE_PAGES as usize);
        let now: BTreeSet<u64> = spans.iter().flat_map(firsts).collect();
        let known = self.huge.range((who, 0)..=(who, u64::MAX)).map(|(at, _)| *at);
        let (left, gone): (Vec<At>, Vec<At>) = known.partition(|at| now.contains(&at.1));
        gone.into_iter().for_each(|at| self.dissolve(at));
        let left: BTreeSet<u64> = left.into_iter().map(|at| at.1).collect();
        for &start in now.difference(&left) {
            self.adopt((who, start));
        }
    }
    /// Pages are a huge one.
    fn adopt(&mut self, first: At) {
        let (span, hot) = (around(first).1, self.heat.hot);
        let (mut pages, mut counts, mut new, mut below) = (0, 0, false, false);
        self.pages.within(first.0, span, |_, page| {
            pages += 1;
            counts += u64::from(page.own.count);
            new |= page.own.new;
            below |= page.fast == Some(false);
        });
        if pages < HUGE_PAGES {
            return;
        }
        let bins = &mut self.heat.pages;
        self.pages.within(first.0, span, |_, page| {
            let bin = bin(page.own.count);
            bins[bin] = bins[bin].saturating_sub(1);
            (page.own.huge, page.own.listed) = (true, false);
        });
        // As a new page; what was made huge later has its pages' mean.
        let count = if new { (2 << hot) - 1 } else { (counts / HUGE_PAGES) as u32 };
        bins[bin(count)] += HUGE_PAGES;
        let listed = below && bin(count) >= hot;
        if listed {
            self.up.push_back(first);
        }
        self.huge.insert(first, Huge { count, new, listed, ..Huge::default() });
    }
    /// A huge page's pages are pages of their own: each has its own count, and its own place on the
    /// list.
    fn dissolve(&mut self, first: At) {
        let Some(whole) = self.huge.remove(&first) else { return };
        let (bins, up, hot) = (&mut self.heat.pages, &mut self.up, self.heat.hot);
        let was = bin(whole.count);
        bins[was] = bins[was].saturating_sub(HUGE_PAGES);
        self.pages.within(first.0, around(first).1, |vpn, page| {
            let now = bin(page.own.count);
            bins[now] += 1;
            page.own.huge = false;
            page.own.listed = now >= hot && page.fast == Some(false);
            if page.own.listed {
                up.push_back((first.0, vpn));
            }
        });
        self.all_warm = false;
    }
    /// Splits those that were chosen, so many of each node.
    fn split(&mut self) {
        if !self.splits.is_on() {
            return;
        }
        let (most, mut took) = (self.scaled(SPLITS), [0; 2]);
        for _ in 0..self.queue.len() {
            let Some(at) = self.queue.pop_front() else { break };
            if !self.huge.contains_key(&at) {
                continue;
            }
            let fast = self.pages.get_mut(at).is_some_and(|page| page.fast == Some(true));
            let took = &mut took[usize::from(fast)];
            if *took < most && self.pages.split(at) {
                *took += 1;
            } else {
                self.queue.push_back(at);
            }
        }
    }
    /// A round of kmigrated on both nodes.
    fn migrate(&mut self) {
        self.split();
        let free = self.pages.free;
        let (leave, least) = (self.mark(PROMOTE) as i64, self.mark(DEMOTE) as i64);
        let waiting = self.waiting();
        let enough = if waiting > 0 { waiting + leave } else { least };
        if free < enough && !self.all_warm {
            let wanted = (waiting + leave - free).max(0) as usize;
            let (mut down, warm) = (Vec::new(), self.heat.warm);
            let (mut hand, huge) = (self.hand, &self.huge);
            self.pages.around(&mut hand, |at, page| {
                if !page.own.huge {
                    if page.is(true) && bin(page.own.count) < warm {
                        down.push(at);
                    }
                } else if is_first(at)
                    && page.is(true)
                    && huge.get(&at).is_some_and(|h| bin(h.count) < warm)
                {
                    down.extend(all_of(at));
                }
                down.len() >= wanted
            });
            self.hand = hand;
            if down.len() < wanted {
                // Too little is cold: then what is warm may go, and where it may already, nothing
                // is looked for until something has changed.
                if waiting > 0 && self.heat.warm < self.heat.hot {
                    self.heat.warm = self.heat.hot;
                } else {
                    self.all_warm = true;
                }
            }
            self.pages.shift(down, false);
        }
        let room = (free - leave).clamp(0, waiting) as usize;
        let mut up = Vec::with_capacity(room);
        while up.len() < room {
            let Some(at) = self.up.pop_front() else { break };
            let hot = self.heat.hot;
            let Some(page) = self.pages.get_mut(at) else { continue };
            if page.own.huge {
                let Some(whole) = self.huge.get_mut(&at) else { continue };
                whole.listed = false;
                if page.is(false) && bin(whole.count) >= hot {
                    up.extend(all_of(at));
                }
                continue;
            }
            page.own.listed = false;
            if page.is(false) && bin(page.own.count) >= hot {
                up.push(at);
            }
        }
        self.pages.shift(up, true);
    }
    /// ksampled keeps its own CPU time near 3 %.
    fn review(&mut self, now: Picos) {
        let (since, samples) = self.reviewed;
        let took = now.0 - since.0;
        if took < self.scaled(REVIEW.0) {
            return;
        }
        let used = (self.samples - samples) * self.each.0 * 1000 / took.max(1);
        if used > CPU[1] {
            self.period = (self.period + 1).min(PERIODS.len() - 1);
        } else if used < CPU[0] {
            self.period = self.period.saturating_sub(1);
        }
        self.reviewed = (now, self.samples);
    }
}

impl Policy for Memtis {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        let (heat, up) = (&mut self.heat, &mut self.up);
        let (huge, splits, queue) = (&mut self.huge, &mut self.splits, &mut self.queue);
        let (hot, base_hot) = (heat.hot, heat.base_hot);
        // Both closures count in the histograms.
        let bins = std::cell::RefCell::new((&mut heat.pages, &mut heat.base));
        let sampled = |s: Sampled<'_, Heat>| {
            let Page { fast, own, .. } = s.page;
            let before = bin(own.count);
            own.count = own.count.saturating_add(SAMPLE);
            let after = bin(own.count);
            let (pages, base) = &mut *bins.borrow_mut();
            shift(base, before, after, 1);
            splits
                .sampled(*fast == Some(true), std::mem::replace(&mut own.could, after >= base_hot));
            if !own.huge {
                shift(pages, before, after, 1);
                if after >= hot && *fast == Some(false) && !own.listed {
                    own.listed = true;
                    up.push_back(s.at);
                }
                return;
            }
            let first = around(s.at).0;
            let Some(whole) = huge.get_mut(&first) else { return };
            let before = bin(whole.count);
            whole.count = whole.count.saturating_add(1);
            let after = bin(whole.count);
            shift(pages, before, after, HUGE_PAGES);
            if !whole.queued && splits.takes(whole.skew) {
                whole.queued = true;
                queue.push_back(first);
            } else if after >= hot && *fast == Some(false) && !whole.listed {
                whole.listed = true;
                up.push_back(first);
            }
        };
        let mut found = Vec::new();
        let news = self.pages.take(seen, sampled, |at, page: &mut Page<Heat>| {
            // What is new begins just above the threshold, and skips a cooling.
            page.own = Heat { count: (2 << hot) - 1, new: true, ..Heat::default() };
            let (pages, base) = &mut *bins.borrow_mut();
            pages[bin(page.own.count)] += 1;
            base[bin(page.own.count)] += 1;
            found.push((at, page.fast));
        });
        for at in news.split {
            self.splits.split();
            self.dissolve(at);
        }
        for (who, spans) in news.huge {
            self.census(who, &spans);
        }
        for (at, _) in found.into_iter().filter(|(_, fast)| *fast == Some(false)) {
            if let Some(page) = self.pages.get_mut(at).filter(|page| !page.own.huge) {
                page.own.listed = true;
                self.up.push_back(at);
            }
        }
        if news.gone > 0 {
            let pages = &mut self.pages;
            self.huge.retain(|at, _| pages.get_mut(*at).is_some());
            self.recount();
            self.relist();
        }
        self.samples += news.samples;
        if self.samples >= self.cool_at {
            self.cool_at = self.samples + self.scaled(COOL);
            self.cool();
        } else if self.samples >= self.adapt_at {
            self.adapt_at = self.samples + self.scaled(ADAPT);
            let room = self.pages.tiers.room.saturating_sub(self.mark(PROMOTE));
            let cooled = self.heat.cooled;
            let changed = self.heat.adapt(room, self.splits.has_split());
            if cooled {
                self.splits.decide(self.records(), self.pages.tiers.latency);
            }
            if changed {
                self.relist();
            }
        }
        self.review(now);
        // A round ends when its moves have.
        if now >= self.next && self.pages.moving() == 0 && self.pages.fresh {
            self.next = now + Picos(self.scaled(ROUND.0));
            self.migrate();
        }
        self.wake = now + READ;
    }
    fn poll(&mut self) -> Option<Order> {
        self.pages.poll()
    }
    fn timeout(&self) -> Option<Picos> {
        Some(self.wake)
    }
    fn ledger(&self) -> &Ledger {
        self.pages.ledger()
    }
    fn needs_huge(&self) -> bool {
        true
    }
    fn stands_for(&mut self, scale: Scale) {
        self.scale = scale.factor();
        (self.adapt_at, self.cool_at) = (self.scaled(ADAPT), self.scaled(COOL));
    }
    fn period(&self) -> Option<u64> {
        Some(PERIODS[self.period])
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, caps: &Caps) -> Box<dyn Policy> {
    with(machine, caps, true)
}

/// * `splits` – whether huge pages are split, where that pays.
pub(super) fn with(machine: &Hardware, caps: &Caps, splits: bool) -> Box<dyn Policy> {
    Box::new(new(machine, caps.most_pages, splits && caps.splits))
}

fn new(machine: &Hardware, most_pages: u64, splits: bool) -> Memtis {
    Memtis {
        huge: BTreeMap::new(),
        splits: Splits::new(splits),
        queue: VecDeque::new(),
        coolings: 0,
        pages: pages::Pages::new(machine, most_pages),
        scale: 1,
        heat: Thresholds::new(),
        up: VecDeque::new(),
        hand: None,
        all_warm: false,
        samples: 0,
        adapt_at: ADAPT,
        cool_at: COOL,
        next: Picos::ZERO,
        wake: Picos::ZERO,
        reviewed: (Picos::ZERO, 0),
        period: 0,
        each: machine.costs.time(Cost::EventRead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::order::{Act, Fails, OrderId};
    use homenode_core::units::{NodeId, Pages};

    /// The module's example, and how thresholds change between coolings and after one.
    #[test]
    fn the_threshold_is_the_lowest_bin_from_which_on_everything_fits() {
        let mut t = Thresholds::new();
        (t.pages[15], t.pages[13], t.pages[12]) = (20, 30, 40);
        (t.pages[10], t.pages[9]) = (60, 900);
        assert!(t.adapt(100, false));
        assert_eq!((t.hot, t.warm), (11, 11));
        // Less hot memory: the threshold stays until a cooling, and falls by one then.
        t.pages[12] = 0;
        assert!(!t.adapt(100, false));
        assert_eq!((t.hot, t.warm), (11, 10), "50 of 100 pages: there is a warm bin");
        t.cooled = true;
        assert!(t.adapt(120, false));
        assert_eq!(t.hot, 10);
        assert!(!t.adapt(120, false) && !t.cooled);
        // Everything in the hottest bin: that is the threshold, though it does not fit.
        t.pages = [0; BINS];
        t.pages[15] = 1000;
        assert!(t.adapt(100, false));
        assert_eq!(t.hot, 15);
    }

    const WHO: Who = Who { pid: 7, start: 1 };

    /// MEMTIS of a small machine, which knows 1024 pages below: a huge page and as many base pages.
    fn started() -> Memtis {
        let text = include_str!("../../../../machines/small-cxl.toml");
        let machine = homenode_config::parse_machine("small-cxl.toml", text).expect("a machine");
        let mut memtis = new(&machine, 16_384, true);
        tell(&mut memtis, &[task()]);
        let census = tell(&mut memtis, &[done(1, 0, 0), task()]);
        assert!(matches!(census[0].act, Act::Census { .. }), "{census:?}");
        let all = Span { start: 512, end: 1536 };
        let there = Seen::Resident { who: WHO, span: all, on: NodeId(1), pages: Pages(1024) };
        let huge = Seen::Huge { who: WHO, span: Span { start: 512, end: 1024 } };
        tell(&mut memtis, &[there, huge, done(2, 0, 0)]);
        memtis
    }
    fn tell(memtis: &mut Memtis, seen: &[Seen]) -> Vec<Order> {
        memtis.handle(Picos::ZERO, seen);
        std::iter::from_fn(|| memtis.poll()).collect()
    }
    fn task() -> Seen {
        Seen::Task { who: WHO, ran: Picos::ZERO, node: None, resident: Pages(1024) }
    }
    fn done(order: u64, tried: u64, moved: u64) -> Seen {
        let fails = Fails { absent: Pages(tried - moved), ..Fails::default() };
        let (order, took) = (OrderId(order), Picos::ZERO);
        Seen::Done { order, tried: Pages(tried), moved: Pages(moved), fails, took }
    }
    fn sample(vpn: u64) -> Seen {
        Seen::Sample { who: WHO, vpn, from: NodeId(0), period: 199 }
    }

    // specs/compare.md#memtis: new pages are in bin 2, above the threshold of 1. Thirty samples on each
    // of four pages make 120 of the huge page, bin 6, and bin 13 of each of them; of a base page too.
    #[test]
    fn a_huge_page_counts_one_a_sample_and_its_pages_count_as_base_pages_beside() {
        let mut m = started();
        assert_eq!((m.heat.pages[2], m.heat.base[2]), (1024, 1024));
        assert_eq!((m.huge.len(), m.waiting()), (1, 1024), "512 at once, and 512 by themselves");
        for vpn in [512, 600, 700, 1023, 1100] {
            (0..30).for_each(|_| drop(tell(&mut m, &[sample(vpn)])));
        }
        assert_eq!((m.heat.pages[6], m.heat.pages[13], m.heat.pages[2]), (512, 1, 511));
        assert_eq!((m.heat.base[13], m.heat.base[2]), (5, 1019));
        // All is halved but what is new; at the second cooling the huge page has a skew.
        m.cool();
        assert_eq!((m.heat.pages[6], m.huge[&(WHO, 512)].skew), (512, 0));
        (m.heat.hot, m.heat.base_hot) = (12, 13);
        m.cool();
        assert_eq!((m.heat.pages[5], m.heat.base[12]), (512, 5));
        assert!(m.huge[&(WHO, 512)].skew > 15, "{:?}", m.huge);
        assert_eq!(m.heat.pages.iter().sum::<u64>(), 1024);
    }

    // specs/compare.md#memtis: it goes up whole; once it is split its pages go by their own counts.
    #[test]
    fn a_huge_page_goes_up_whole_and_after_a_split_page_by_page() {
        let mut m = started();
        m.pages.free = 100_000;
        m.migrate();
        let up: Vec<Order> = std::iter::from_fn(|| m.poll()).collect();
        assert_eq!(up[0].act.spans(), [Span { start: 512, end: 1536 }]);
        tell(&mut m, &[done(3, 1024, 0)]);
        let look = tell(&mut m, &[]);
        assert!(look.is_empty());

        let mut m = started();
        (0..30).for_each(|_| drop(tell(&mut m, &[sample(600)])));
        m.heat.hot = 10;
        m.relist();
        assert_eq!(m.waiting(), 0, "30 samples of the huge page are bin 5");
        m.queue.push_back((WHO, 512));
        m.migrate();
        let split: Vec<Order> = std::iter::from_fn(|| m.poll()).collect();
        let span = Span { start: 512, end: 1024 };
        assert_eq!(split[0].act, Act::Split { who: WHO, spans: vec![span] });
        assert_eq!(m.pages.moving(), 1, "a round waits for it");
        // As long as it is not answered it is a huge page, which a refusal leaves.
        tell(&mut m, &[done(split[0].id.0, 0, 0)]);
        assert_eq!((m.huge.len(), m.heat.pages[5]), (1, 512));
        m.queue.push_back((WHO, 512));
        m.split();
        let split: Vec<Order> = std::iter::from_fn(|| m.poll()).collect();
        tell(&mut m, &[done(split[0].id.0, 512, 512)]);
        assert_eq!((m.huge.len(), m.heat.pages[5], m.heat.pages[13]), (0, 0, 1));
        assert_eq!(m.heat.pages, m.heat.base);
        assert_eq!(m.up, [(WHO, 600)], "only the page that is hot goes up");
        // A census finds it huge again: as hot as its pages are in the mean.
        m.census(WHO, &[span]);
        assert_eq!((m.huge.len(), m.heat.pages.iter().sum::<u64>()), (1, 1024));
        // And where no huge page is there any more, its pages are base pages without an order.
        m.census(WHO, &[]);
        assert_eq!((m.huge.len(), m.heat.pages), (0, m.heat.base));
    }

    #[test]
    fn a_sample_counts_512_and_a_bin_is_twice_the_one_below() {
        assert_eq!([0, 1, 511, 512, 1024, 1 << 20].map(bin), [0, 1, 9, 9, 10, 15]);
    }
}
