//! The best that could have been done: which pages are in the fast tier when, knowing all that
//! comes, paying for each move.
//!
//! Time is cut into slices. Each page gains so much in each slice by being in the fast tier, which
//! has so many slots; going up and coming down cost what moves cost. Three answers:
//!
//! * [`exact`]: a flow of least cost. Slots flow through time; a slot that holds a page takes that
//!   page's gains, and entering and leaving cost. All is whole numbers, so the flow is a plan.
//! * [`bounded`], the bound: each slot has a price in each slice. Each page alone decides when it
//!   is worth the price; what all pages keep, and what all slots earn, is at least what any plan
//!   gains, at whatever prices. The prices fall where slots stay empty and rise where too many want
//!   one; the least sum found is the bound (Lagrange's relaxation).
//! * [`bounded`], the plan: with prices high enough that no slice has more takers than slots, what
//!   the pages decide can be carried out. The best such plan lies below the bound by the gap.
//!
//! Worked example: one slot, two slices, moves for 3 each way, both pages below. Page *a* gains
//! 10 and 0, page *b* 0 and 9. *a* up (−3), its 10, *a* down (−3), *b* up (−3), its 9: 10. Only
//! *a*: 7, only *b*: 6. With moves for 5 each way it is 5, by *a* alone.
//!
//! Source: specs/compare.md#optimum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pages, slots, costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// Pages by whether they begin in the fast tier; what each gains there, by slice. All have
    /// the same number of slices.
    pub pages: Vec<(bool, Vec<u32>)>,
    /// Pages that the fast tier holds.
    pub slots: u64,
    /// What moving a page up and down costs, in the unit of gains.
    pub up: u64,
    /// See `up`.
    pub down: u64,
}

crate::named! {
    /// How an optimum was found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum How {
        /// By a flow of least cost: no plan gains more, and one gains this.
        Exact => "exact",
        /// By prices: no plan gains more than the bound.
        Bound => "bound",
    }
}

/// What could have been gained, moves paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// How it was found.
    pub how: How,
    /// No plan gains more.
    pub most: i64,
    /// A plan gains this.
    pub reached: i64,
}

/// Steps of the flow up to which it is used: pages × slices × slots.
const EXACT_UP_TO: u64 = 20_000_000;
/// Rounds in which prices are bettered.
const ROUNDS: u32 = 120;

impl Case {
    fn slices(&self) -> usize {
        self.pages.first().map_or(0, |p| p.1.len())
    }
    /// Exact where that is small enough, else bounded.
    pub fn solve(&self) -> Optimum {
        let steps = (self.pages.len() * self.slices()) as u64;
        match steps.checked_mul(self.slots.min(self.pages.len() as u64)) {
            Some(all) if all <= EXACT_UP_TO => exact(self),
            _ => bounded(self),
        }
    }
    /// What is gained with no move at all.
    pub fn still(&self) -> i64 {
        let here = self.pages.iter().filter(|p| p.0);
        here.flat_map(|p| &p.1).map(|&g| i64::from(g)).sum()
    }
}

// ── The flow ─────────────────────────────────────────────────────────────────

/// A graph of unit and wider arcs; each has its opposite beside it.
struct Flow {
    /// By node: its arcs.
    from: Vec<Vec<usize>>,
    to: Vec<usize>,
    room: Vec<u64>,
    cost: Vec<i64>,
}

impl Flow {
    fn new(nodes: usize) -> Self {
        Self { from: vec![Vec::new(); nodes], to: vec![], room: vec![], cost: vec![] }
    }
    fn arc(&mut self, a: usize, b: usize, room: u64, cost: i64) {
        for (from, to, room, cost) in [(a, b, room, cost), (b, a, 0, -cost)] {
            self.from[from].push(self.to.len());
            self.to.push(to);
            self.room.push(room);
            self.cost.push(cost);
        }
    }
    /// The least cost of `amount` units from the first node to the last. Nodes are numbered such
    /// that arcs with room lead upwards at first.
    fn least(&mut self, amount: u64) -> i64 {
        let n = self.from.len();
        // Potentials that make all costs positive: distances in a graph without circles.
        let mut potential = vec![i64::MAX; n];
        potential[0] = 0;
        for a in 0..n {
            if potential[a] == i64::MAX {
                continue;
            }
            for &e in &self.from[a] {
                if self.room[e] > 0 {
                    let b = self.to[e];
                    potential[b] = potential[b].min(potential[a] + self.cost[e]);
                }
            }
        }
        let (mut left, mut sum) = (amount, 0);
        while left > 0 {
            let mut far = vec![i64::MAX; n];
            let mut by = vec![usize::MAX; n];
            let mut heap = BinaryHeap::from([Reverse((0, 0))]);
            far[0] = 0;
            while let Some(Reverse((d, a))) = heap.pop() {
                if d > far[a] {
                    continue;
                }
                for &e in &self.from[a] {
                    let b = self.to[e];
                    if self.room[e] == 0 || potential[b] == i64::MAX {
                        continue;
                    }
                    let next = d + self.cost[e] + potential[a] - potential[b];
                    if next < far[b] {
                        (far[b], by[b]) = (next, e);
                        heap.push(Reverse((next, b)));
                    }
                }
            }
            let end = n - 1;
            if far[end] == i64::MAX {
                break;
            }
            for (p, d) in potential.iter_mut().zip(&far) {
                if *p != i64::MAX {
                    *p += *d.min(&far[end]);
                }
            }
            let (mut push, mut at) = (left, end);
            while at != 0 {
                push = push.min(self.room[by[at]]);
                at = self.to[by[at] ^ 1];
            }
            at = end;
            while at != 0 {
                let e = by[at];
                self.room[e] -= push;
                self.room[e ^ 1] += push;
                sum += self.cost[e] * push as i64;
                at = self.to[e ^ 1];
            }
            left -= push;
        }
        sum
    }
}

/// The optimum by a flow of least cost.
///
/// Source: specs/compare.md#optimum.
pub fn exact(case: &Case) -> Optimum {
    let (slices, pages) = (case.slices(), case.pages.len());
    // Per slice: the pool of empty slots, then where each page's stay in it begins and ends.
    let width = 1 + 2 * pages;
    let pool = |t: usize| t * width;
    let begin = |t: usize, p: usize| t * width + 1 + 2 * p;
    let mut flow = Flow::new(slices * width + 1);
    let (up, down) = (case.up as i64, case.down as i64);
    let mut all = 0;
    for t in 0..slices {
        flow.arc(pool(t), pool(t + 1), case.slots, 0);
        for (p, (fast, gains)) in case.pages.iter().enumerate() {
            // Who begins in the fast tier and isn't kept has to go down; keeping saves that.
            let stays = t == 0 && *fast;
            all += if stays { down } else { 0 };
            let (here, end) = (begin(t, p), begin(t, p) + 1);
            flow.arc(pool(t), here, 1, if stays { -down } else { up });
            flow.arc(here, end, 1, -i64::from(gains[t]));
            let last = t + 1 == slices;
            flow.arc(end, pool(t + 1), 1, if last { 0 } else { down });
            if !last {
                flow.arc(end, begin(t + 1, p), 1, 0);
            }
        }
    }
    let gained = -(flow.least(case.slots) + all);
    Optimum { how: How::Exact, most: gained, reached: gained }
}

// ── Prices ───────────────────────────────────────────────────────────────────

/// What all pages decide at some prices.
#[derive(Clone, Debug, Default)]
struct Decided {
    /// What they keep, prices and moves paid.
    kept: i64,
    /// What they gain, moves paid and prices not.
    gained: i64,
    /// By slice: how many are in the fast tier.
    takers: Vec<u64>,
}

/// Each page decides alone, by two states a slice.
fn decide(case: &Case, prices: &[i64]) -> Decided {
    let slices = prices.len();
    let (up, down) = (case.up as i64, case.down as i64);
    let mut out = Decided { takers: vec![0; slices], ..Decided::default() };
    // By slice: whether the better way into the fast, and into the slow state, changes.
    let mut ways = vec![(false, false); slices];
    for (fast, gains) in &case.pages {
        let (mut here, mut there) = if *fast { (0, i64::MIN / 2) } else { (i64::MIN / 2, 0) };
        for t in 0..slices {
            let (enter, leave) = (there - up, here - down);
            ways[t] = (enter > here, leave > there);
            here = here.max(enter) + i64::from(gains[t]) - prices[t];
            there = there.max(leave);
        }
        let mut is_fast = here > there;
        out.kept += here.max(there);
        out.gained += here.max(there);
        for t in (0..slices).rev() {
            if is_fast {
                out.takers[t] += 1;
                out.gained += prices[t];
            }
            let (entered, left) = ways[t];
            is_fast = if is_fast { !entered } else { left };
        }
    }
    out
}

/// The optimum between a bound and a plan.
///
/// Source: specs/compare.md#optimum.
pub fn bounded(case: &Case) -> Optimum {
    let slices = case.slices();
    let slots = case.slots.min(case.pages.len() as u64);
    // What the last page that finds a slot gains in the slice.
    let mut prices: Vec<i64> = (0..slices)
        .map(|t| {
            let mut all: Vec<u32> = case.pages.iter().map(|p| p.1[t]).collect();
            let at = slots as usize;
            if at >= all.len() {
                return 0;
            }
            let (_, last, _) = all.select_nth_unstable_by_key(at, |&g| Reverse(g));
            i64::from(*last)
        })
        .collect();
    let (mut most, mut reached) = (i64::MAX, case.still());
    // The prices of the bound, and how many want a slot at them.
    let mut best = (prices.clone(), Vec::new());
    // As many slots as begin taken can always stay so.
    let fits = |d: &Decided| d.takers.iter().all(|&n| n <= slots);
    // A step as large as a price, at first.
    let mean = prices.iter().sum::<i64>() / (slices.max(1) as i64);
    let mut step = (mean / 4).max((case.up + case.down) as i64 / 8).max(1);
    let mut since = 0;
    for _ in 0..ROUNDS {
        let decided = decide(case, &prices);
        let bound = decided.kept + prices.iter().map(|p| p * slots as i64).sum::<i64>();
        if fits(&decided) {
            reached = reached.max(decided.gained);
        }
        let mut wanted = decided.takers;
        if bound < most {
            (most, since) = (bound, 0);
            best = (prices.clone(), wanted.clone());
        } else {
            since += 1;
            if since >= 4 {
                (step, since) = ((step / 2).max(1), 0);
                (prices, wanted) = best.clone();
            }
        }
        // By the share of the slots that is wanted too often, or not at all.
        for (price, n) in prices.iter_mut().zip(wanted) {
            let over = n as i64 - slots as i64;
            let change = step * over * 8 / slots.max(1) as i64;
            *price = (*price + change.clamp(-step, step)).max(0);
        }
    }
    // The lowest rise of all prices at which everybody finds a slot.
    let (mut low, mut high) = (0i64, 4096);
    while low < high {
        let middle = (low + high) / 2;
        let raised: Vec<i64> =
            best.0.iter().map(|p| p + p.max(&1) * middle / 1024 + middle / 64).collect();
        let decided = decide(case, &raised);
        if fits(&decided) {
            reached = reached.max(decided.gained);
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Optimum { how: How::Bound, most: most.max(reached), reached }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::SplitMix;

    /// All plans of one page after the other, by brute force: for each slice every set of pages
    /// that fits.
    fn by_force(case: &Case) -> i64 {
        let n = case.pages.len();
        let sets = || (0u32..1 << n).filter(|s| u64::from(s.count_ones()) <= case.slots);
        let begins = (0..n).filter(|&p| case.pages[p].0).map(|p| 1u32 << p).sum::<u32>();
        let mut worth: Vec<(u32, i64)> = vec![(begins, 0)];
        for t in 0..case.slices() {
            let next = |set: u32| {
                let gains =
                    (0..n).filter(|p| set >> p & 1 == 1).map(|p| i64::from(case.pages[p].1[t]));
                let gain: i64 = gains.sum();
                let from = |&(before, w): &(u32, i64)| {
                    let ups = i64::from((set & !before).count_ones());
                    let downs = i64::from((before & !set).count_ones());
                    w - ups * case.up as i64 - downs * case.down as i64
                };
                (set, gain + worth.iter().map(from).max().expect("a set before"))
            };
            worth = sets().map(next).collect();
        }
        worth.iter().map(|w| w.1).max().expect("a set")
    }

    fn drawn(seed: u64, pages: usize, slices: usize, slots: u64) -> Case {
        let mut random = SplitMix::new(seed);
        let mut taken = 0;
        let mut page = || {
            let fast = random.below(2) == 0 && taken < slots;
            taken += u64::from(fast);
            // Some pages are hot for a while only.
            let gains = (0..slices).map(|_| (random.below(3) * random.below(20)) as u32).collect();
            (fast, gains)
        };
        let pages = (0..pages).map(|_| page()).collect();
        Case { pages, slots, up: random.below(12), down: random.below(12) }
    }

    #[test]
    fn the_worked_example_comes_out() {
        let pages = vec![(false, vec![10, 0]), (false, vec![0, 9])];
        let case = Case { pages, slots: 1, up: 3, down: 3 };
        assert_eq!(exact(&case), Optimum { how: How::Exact, most: 10, reached: 10 });
        assert_eq!(exact(&Case { up: 5, down: 5, ..case.clone() }).most, 5);
        // One that begins there stays for nothing, and goes for its price.
        let mut stays = case;
        stays.pages[1].0 = true;
        assert_eq!((exact(&stays).most, stays.still()), (9, 9));
        stays.up = 1;
        // Down, up, down, up: 3, 1, 3 and 1.
        assert_eq!(exact(&stays).most, 10 + 9 - 8);
    }

    #[test]
    fn the_flow_finds_what_brute_force_finds() {
        for seed in 0..300 {
            let (pages, slices) = (1 + seed as usize % 5, 1 + seed as usize / 5 % 5);
            let case = drawn(seed, pages, slices, 1 + seed % 3);
            assert_eq!(exact(&case).most, by_force(&case), "seed {seed}: {case:?}");
        }
    }

    #[test]
    fn the_bound_and_the_plan_lie_around_the_flow() {
        let (mut gap, mut all) = (0, 0);
        for seed in 0..60 {
            let case = drawn(seed, 60, 12, 20);
            let (exact, bounded) = (exact(&case), bounded(&case));
            assert!(bounded.reached <= exact.most, "seed {seed}: {bounded:?} {exact:?}");
            assert!(bounded.most >= exact.most, "seed {seed}: {bounded:?} {exact:?}");
            (gap, all) = (gap + bounded.most - exact.most, all + exact.most);
        }
        // Prices find it within a hundredth, though these cases are small and jagged.
        assert!(gap * 100 < all, "{gap} of {all}");
    }

    #[test]
    fn who_has_room_for_all_moves_what_pays() {
        let case = Case { slots: 100, ..drawn(1, 40, 6, 100) };
        let alone = |(fast, gains): &(bool, Vec<u32>)| {
            let pages = vec![(*fast, gains.clone())];
            by_force(&Case { pages, slots: 1, ..case.clone() })
        };
        assert_eq!(exact(&case).most, case.pages.iter().map(alone).sum::<i64>());
        assert_eq!(bounded(&case).most, exact(&case).most);
    }
}
