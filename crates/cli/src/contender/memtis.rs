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
//! Worked example: 100 pages fit, the bins 15 to 9 have 20, 0, 30, 40, 0, 60 and 900 pages. From bin
//! 12 on there are 90, from 10 on 150: T_hot is 11. More than 75 are filled, so T_warm is 11 too.
//!
//! A kernel's policy, so its times and amounts shrink with the machine as the kernel's own do
//! ([`homenode_core::scale`]): the period of kmigrated and the samples between two adaptations and
//! two coolings are divided by the factor, and so are the bounds of its watermarks. Counts of a page,
//! bins, shares and sampling periods stay.
//!
//! Left out: huge pages, and so their splitting, which has its own histogram ("as if all were base
//! pages"): whoever drives moves pages here, and splits none. Stores as events of their own. Cooling
//! when 10 GB were allocated. The lists' own order: what is cold goes down by address, taken up where
//! the last demotion ended.
//!
//! Source: specs/compare.md#memtis.

use super::pages::{At, Page, Pages, Sampled};
use homenode_core::costs::Cost;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Seen;
use homenode_core::policy::{Ledger, Policy};
use homenode_core::scale::Scale;
use homenode_core::topology::Hardware;
use homenode_core::units::Picos;
use homenode_machine::Caps;
use std::collections::VecDeque;

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
/// Share of the room, in hundredths, below which there is a warm bin.
const WARM: u64 = 75;

/// Counts of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    count: u32,
    /// Not halved at the next cooling.
    new: bool,
    listed: bool,
}

fn bin(count: u32) -> usize {
    (count.saturating_add(1).ilog2() as usize).min(BINS - 1)
}

/// Pages by bin, and what follows from them.
#[derive(Clone, Debug)]
struct Thresholds {
    pages: [u64; BINS],
    hot: usize,
    warm: usize,
    cooled: bool,
}

impl Thresholds {
    fn new() -> Self {
        Self { pages: [0; BINS], hot: 1, warm: 1, cooled: false }
    }
    /// Fits the thresholds to the room; whether the hot one is another now.
    fn adapt(&mut self, room: u64) -> bool {
        let (mut sum, mut fits) = (0, BINS);
        for (bin, pages) in self.pages.iter().enumerate().rev() {
            if sum + pages > room {
                break;
            }
            sum += pages;
            fits = bin;
        }
        // Where the hottest bin alone is too large, it is hot all the same.
        let fits = fits.clamp(1, BINS - 1);
        let before = self.hot;
        if self.cooled {
            self.cooled = false;
            if fits < self.hot {
                self.hot = (self.hot - 1).max(1);
            }
        } else {
            self.hot = self.hot.max(fits);
        }
        self.warm = if sum < room * WARM / 100 { self.hot - 1 } else { self.hot };
        self.hot != before
    }
}

struct Memtis {
    pages: Pages<Heat>,
    scale: u64,
    heat: Thresholds,
    /// Hot pages of the slow tier, in the order in which they became so.
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
    /// The hot pages of the slow tier anew.
    fn relist(&mut self) {
        let (mut up, hot) = (VecDeque::new(), self.heat.hot);
        self.pages.each(|at, page| {
            page.own.listed = page.fast == Some(false) && bin(page.own.count) >= hot;
            if page.own.listed {
                up.push_back(at);
            }
        });
        self.up = up;
        self.all_warm = false;
    }
    fn cool(&mut self) {
        let mut pages = [0; BINS];
        self.pages.each(|_, page| {
            let heat = &mut page.own;
            if !std::mem::take(&mut heat.new) {
                heat.count /= 2;
            }
            pages[bin(heat.count)] += 1;
        });
        self.heat.pages = pages;
        self.heat.cooled = true;
        self.relist();
    }
    /// A round of kmigrated on both nodes.
    fn migrate(&mut self) {
        let free = self.pages.free;
        let (leave, least) = (self.mark(PROMOTE) as i64, self.mark(DEMOTE) as i64);
        let waiting = self.up.len() as i64;
        let enough = if waiting > 0 { waiting + leave } else { least };
        if free < enough && !self.all_warm {
            let wanted = (waiting + leave - free).max(0) as usize;
            let (mut down, warm) = (Vec::new(), self.heat.warm);
            let mut hand = self.hand;
            self.pages.around(&mut hand, |at, page| {
                if page.is(true) && bin(page.own.count) < warm {
                    down.push(at);
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
        // Both closures count in the histogram.
        let bins = std::cell::RefCell::new(&mut heat.pages);
        let hot = heat.hot;
        let sampled = |s: Sampled<'_, Heat>| {
            let Page { fast, own, .. } = s.page;
            let before = bin(own.count);
            own.count = own.count.saturating_add(SAMPLE);
            let after = bin(own.count);
            if before != after {
                let bins = &mut *bins.borrow_mut();
                bins[before] = bins[before].saturating_sub(1);
                bins[after] += 1;
            }
            if after >= hot && *fast == Some(false) && !own.listed {
                own.listed = true;
                up.push_back(s.at);
            }
        };
        let mut found = Vec::new();
        let news = self.pages.take(seen, sampled, |at, page: &mut Page<Heat>| {
            // What is new begins just above the threshold, and skips a cooling.
            page.own = Heat { count: (2 << hot) - 1, new: true, listed: false };
            bins.borrow_mut()[bin(page.own.count)] += 1;
            found.push((at, page.fast));
        });
        for (at, _) in found.into_iter().filter(|(_, fast)| *fast == Some(false)) {
            if let Some(page) = self.pages.get_mut(at) {
                page.own.listed = true;
                self.up.push_back(at);
            }
        }
        if news.gone > 0 {
            let mut pages = [0; BINS];
            self.pages.each(|_, page| pages[bin(page.own.count)] += 1);
            self.heat.pages = pages;
            self.relist();
        }
        self.samples += news.samples;
        if self.samples >= self.cool_at {
            self.cool_at = self.samples + self.scaled(COOL);
            self.cool();
        } else if self.samples >= self.adapt_at {
            self.adapt_at = self.samples + self.scaled(ADAPT);
            let room = self.pages.tiers.room.saturating_sub(self.mark(PROMOTE));
            if self.heat.adapt(room) {
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
    fn stands_for(&mut self, scale: Scale) {
        self.scale = scale.factor();
        (self.adapt_at, self.cool_at) = (self.scaled(ADAPT), self.scaled(COOL));
    }
    fn period(&self) -> Option<u64> {
        Some(PERIODS[self.period])
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, caps: &Caps) -> Box<dyn Policy> {
    Box::new(Memtis {
        pages: Pages::new(machine, caps.most_pages),
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module's example, and how thresholds change between coolings and after one.
    #[test]
    fn the_threshold_is_the_lowest_bin_from_which_on_everything_fits() {
        let mut t = Thresholds::new();
        (t.pages[15], t.pages[13], t.pages[12]) = (20, 30, 40);
        (t.pages[10], t.pages[9]) = (60, 900);
        assert!(t.adapt(100));
        assert_eq!((t.hot, t.warm), (11, 11));
        // Less hot memory: the threshold stays until a cooling, and falls by one then.
        t.pages[12] = 0;
        assert!(!t.adapt(100));
        assert_eq!((t.hot, t.warm), (11, 10), "50 of 100 pages: there is a warm bin");
        t.cooled = true;
        assert!(t.adapt(120));
        assert_eq!(t.hot, 10);
        assert!(!t.adapt(120) && !t.cooled);
        // Everything in the hottest bin: that is the threshold, though it does not fit.
        t.pages = [0; BINS];
        t.pages[15] = 1000;
        assert!(t.adapt(100));
        assert_eq!(t.hot, 15);
    }

    #[test]
    fn a_sample_counts_512_and_a_bin_is_twice_the_one_below() {
        assert_eq!([0, 1, 511, 512, 1024, 1 << 20].map(bin), [0, 1, 9, 9, 10, 15]);
    }
}
