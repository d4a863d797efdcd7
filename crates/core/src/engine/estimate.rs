//! How hot each stretch is, as far as that can be told from chance.
//!
//! A sampled access stands for ten thousand. A block of four pages that one sample
//! named counts as 2500 accesses a second and page by itself, its neighbours as none;
//! both are nearly always wrong, and always in the same direction: what was sampled looks
//! hotter than it is, what was not looks colder. So a stretch is judged by its neighbours
//! too, as much as is needed and no more.
//!
//! The memory of a process is halved, and halved again, where addresses have their
//! next bit. Each half's share of the heat is between its share of the pages and
//! its share of what was observed:
//!
//! ```text
//!            1024 pages, 20 observations                 taken together: 20
//!          ┌──────────────┴──────────────┐
//!     512: 11 observed              512: 9 observed      as chance would have it
//!     share 0.50                    share 0.50
//!   ┌──────┴──────┐               ┌──────┴──────┐
//! 256: 11       256: 0          256: 4        256: 5     chance does not do what it did
//!      0.46          0.04            0.23          0.27  on the left: ρ = 0.32
//! ```
//!
//! How far to trust observations is not set by anybody: it is what halves of such
//! blocks (as large, with as many observations) differ by beyond chance, over the whole
//! process. Let q be a half's share of the pages, m that of n observations. By chance
//! alone (m − q)² is q(1−q)/n in the mean; what it is beyond that, over q(1−q)(1 − 1/n),
//! is the *spread* ρ: 0 where all halves are alike, 1 where one has it all. The share
//! is then B·q + (1−B)·m with B = (1−ρ) / (1−ρ+ρn): the mean of Beta and binomial. Evenly
//! accessed memory has ρ = 0, and however it was sampled, no part is hotter than another.
//! Where there are many observations, B is next to nothing, and so is the difference to
//! what was observed. A parent's heat is shared out and never changed, so a sum over all is
//! what was told.
//!
//! The long average is shared out like that by pages, then the short one by what the long
//! one became: what is new has to differ from what was by more than chance as well.
//!
//! Where pages of a chunk differ, neighbours say nothing about a page, and [`apart`] judges it.
//!
//! Integers: shares are 2^-32, and each division rounds down.

mod apart;

use super::fade::Scales;
use super::heat::{HeatMap, Rate, mean};
use super::page_set::PageSet;
use super::pairs::Pairs;
use crate::units::{NodeId, Picos};

/// A share of 1, and one observation's weight where there is only that one.
pub(super) const ONE: u64 = 1 << 32;
/// Classes of observations: less than 4, 8, and so on.
const CLASSES: usize = 33;
/// Most that a mass may be, so that a share of it fits.
const MOST_MASS: u128 = 1 << 90;

/// `v` · `share`.
fn part(v: u128, share: u64) -> u128 {
    (v * u128::from(share)) >> 32
}

/// Product of two shares.
fn both(a: u64, b: u64) -> u64 {
    let p = (u128::from(a) * u128::from(b)) >> 32;
    u64::try_from(p).unwrap_or(ONE)
}

/// `a` of `b` as a share; `b` is not 0. Of `b` the highest 32 bits count, so that a division
/// of 64 bits will do.
fn share(a: u128, b: u128) -> u64 {
    let shift = 96u32.saturating_sub(b.leading_zeros());
    let (a, b) = (a.min(b) >> shift, b >> shift);
    ((a as u64) << 32) / b as u64
}

/// A stretch that the source has told about.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// Which of the map's.
    index: u32,
    start: u64,
    end: u64,
    /// It is not cut.
    whole: bool,
    /// Blocks as large as two of these and larger, within it, were found to be alike, as a power of
    /// two of pages; [`Self::NEVER`] where nobody compared them.
    alike: u32,
    /// Pages in memory, as far as is known.
    pages: u64,
    /// Short and long average.
    heat: [Rate; 2],
    /// What part of either average one observation has, as a share.
    weight: [u64; 2],
}

impl Leaf {
    /// No memory is so large.
    const NEVER: u32 = 64;
}

/// A node of the tree: parents before children, and all of a left half before the right one.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// A leaf.
    Whole { leaf: u32 },
    /// So much of a leaf, less than all.
    Part { leaf: u32, share: u32 },
    /// Two halves at a bit of the address.
    Halves { bit: u32 },
}

/// What was observed of a node.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// What it would have if nothing told more.
    prior: u128,
    /// What was observed: rate · pages.
    mass: u128,
    /// 1 / observations.
    weight: u64,
}

/// How a node's halves share, and how sure that is; there are many of them, so in few bits.
///
/// ```text
/// bit  0        33         66        99      127
///      │ in the │ in the   │ 1 /     │ class │ 1: of mass and prior one is not told, and
///      │ mass   │ prior    │ observ. │       │    the first has what stands in the mass
/// ```
#[derive(Clone, Copy, Debug)]
struct Shares(u128);

/// Bits of a share, which may be 1.
const SHARE: u128 = (1 << 33) - 1;

impl Shares {
    fn known(first: u64) -> Self {
        Self(1 << 127 | u128::from(first))
    }
    fn judged(mass: u64, prior: u64, weight: u64, class: usize) -> Self {
        let bits = u128::from(mass) | u128::from(prior) << 33 | u128::from(weight) << 66;
        Self(bits | (class as u128) << 99)
    }
    /// The share of the first, by what halves of each class differ by.
    fn first(self, spreads: &[Spread]) -> u64 {
        let bits = |at: u32| ((self.0 >> at) & SHARE) as u64;
        let mass = bits(0);
        if self.0 >> 127 == 1 {
            return mass;
        }
        let (prior, weight) = (bits(33), bits(66));
        let rho = spreads[(self.0 >> 99) as usize].rho;
        let trust = both(weight, ONE - rho);
        // Of a single kind only: nothing is left to be shared out.
        let by = match trust + rho {
            0 => ONE,
            all => share(u128::from(trust), u128::from(all)),
        };
        both(prior, by) + both(mass, ONE - by)
    }
}

/// What halves of one size, with about as many observations, differ by.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    /// Beyond chance.
    beyond: i128,
    /// If one half had it all.
    most: i128,
    /// Square of what chance may add to `beyond`.
    doubt: u128,
    /// The most that it adds to one of them in the mean.
    largest: u64,
    /// All that as a share, once all halves are in it.
    rho: u64,
}

impl Spread {
    /// Two halves more: the first's shares in the mass and in the prior, 1 / observations of
    /// each and of both.
    fn add(&mut self, m: u64, q: u64, halves: [u64; 2], weight: u64) {
        let d = m.abs_diff(q);
        let (m2, q2) = (ONE - m, ONE - q);
        let chance = both(both(both(q2, q2), both(m, m)), halves[0])
            + both(both(both(q, q), both(m2, m2)), halves[1]);
        let room = both(q, q2);
        let more = ONE - weight;
        self.beyond += i128::from(both(d, d)) - i128::from(chance);
        self.most += i128::from(both(room, more));
        let noise = u128::from(both(room, weight));
        self.doubt += part(2 * noise * noise, more);
        self.largest = self.largest.max(u64::try_from(part(noise, more)).unwrap_or(ONE));
    }

    /// So many pairs of halves more that were found to share as their pages do.
    ///
    /// * `weight` – 1 / observations of both.
    fn add_alike(&mut self, nr: u64, weight: u64) {
        // Half of the pages, and half of what was observed.
        let half = ONE / 2;
        let mut one = Self::default();
        one.add(half, half, [weight.saturating_mul(2).min(ONE); 2], weight);
        let times = i128::from(nr);
        self.beyond += one.beyond * times;
        self.most += one.most * times;
        self.doubt += one.doubt * u128::from(nr);
        self.largest = self.largest.max(one.largest);
    }

    /// As a share; what three standard deviations of chance explain does not count: a
    /// decision compares a hundred kinds of blocks, of which two would pass for less.
    fn settle(&mut self) {
        self.rho = 0;
        if self.beyond <= 0 {
            return;
        }
        let deviation = i128::try_from(self.doubt.isqrt()).unwrap_or(i128::MAX);
        // Of few squares, chance makes a large sum more often than a bell curve has it:
        // (3² - 1) / 6 of the skewness more.
        let skew = i128::from(self.largest) * 16 / 3;
        let doubt = deviation.saturating_mul(3).saturating_add(skew);
        let sure = self.beyond.saturating_sub(doubt).max(0);
        if self.most > 0 {
            self.rho = share(sure.unsigned_abs(), self.most.unsigned_abs());
        }
    }
}

/// Shares heat out, process by process, in the same memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimate {
    leaves: Vec<Leaf>,
    nodes: Vec<Node>,
    /// Of nodes, from the last one to the first; nothing of parts.
    shares: Vec<Shares>,
    spreads: Vec<Spread>,
    /// Nodes whose other half, or whose parent, comes next.
    sums: Vec<Sum>,
    heat: Vec<u128>,
    /// Rate · pages of each leaf, by pages and as the averages have it.
    even: Vec<u128>,
    long: Vec<u128>,
    short: Vec<u128>,
    heats: Vec<Rate>,
    rows: Vec<RowHeat>,
    apart: apart::Buffers,
}

/// The heat of pages of a chunk that are told apart and judged together.
#[derive(Clone, Debug)]
pub(super) struct RowHeat {
    /// Which of the map's stretches they are of.
    pub(super) cell: u32,
    pub(super) set: PageSet,
    /// Where they are, if that is known of each.
    pub(super) on: Option<NodeId>,
    /// How many of them are in memory, as far as is known.
    pub(super) pages: u64,
    pub(super) heat: Rate,
}

/// Of all stretches of a map.
#[derive(Clone, Copy)]
pub(super) struct Heats<'a> {
    /// In the map's order; of one whose pages are told apart the mean.
    pub(super) cells: &'a [Rate],
    /// By rising stretch.
    pub(super) rows: &'a [RowHeat],
}

impl<'a> Heats<'a> {
    /// Of each stretch its heat, and its rows where its pages are told apart; in the map's order.
    pub(super) fn by_stretch(self) -> impl Iterator<Item = (Rate, &'a [RowHeat])> {
        let mut left = self.rows;
        (0..).zip(self.cells).map(move |(at, heat)| {
            let its = left.iter().take_while(|row| row.cell == at).count();
            let (rows, others) = left.split_at(its);
            left = others;
            (*heat, rows)
        })
    }
}

impl Estimate {
    /// The heat of each cell of a map now, and of pages that are told apart.
    ///
    /// * `apart` – where pages are told apart: what of them was hit, and how unlike they are.
    ///
    /// Source: specs/engine.md#estimate, specs/engine.md#apart.
    pub(super) fn heats(
        &mut self,
        map: &HeatMap,
        apart: Option<(&Pairs, u64)>,
        now: Picos,
        scales: &Scales,
    ) -> Heats<'_> {
        self.rows.clear();
        match apart {
            Some((pairs, shape)) => self.pages_apart(map, pairs, shape, now, scales),
            None => self.neighbours(map, now, scales),
        }
        Heats { cells: &self.heats, rows: &self.rows }
    }

    /// Each stretch by its neighbours.
    fn neighbours(&mut self, map: &HeatMap, now: Picos, scales: &Scales) {
        self.leaves.clear();
        self.heats.clear();
        for (span, cell) in map.iter() {
            let heat = scales.averages(cell, now);
            let pages = cell.place.as_ref().map_or(span.pages().0, |p| p.present());
            if cell.told && pages > 0 {
                let weight = cell.weights(span.pages().0);
                let (start, end, whole) = (span.start, span.end, cell.whole);
                let alike = map.unit().filter(|_| !whole && !cell.unlike).unwrap_or(Leaf::NEVER);
                let index = self.heats.len() as u32;
                self.leaves.push(Leaf { index, start, end, whole, alike, pages, heat, weight });
            }
            self.heats.push(mean(heat));
        }
        self.halve();
        let [even, mut long, mut short] =
            [&mut self.even, &mut self.long, &mut self.short].map(std::mem::take);
        self.spread_out(&even, 1, &mut long);
        self.spread_out(&long, 0, &mut short);
        for ((l, short), long) in self.leaves.iter().zip(&short).zip(&long) {
            let rate = |v: u128| {
                // Mostly one page, or what fits into 64 bits.
                u64::try_from(v).map_or_else(
                    |_| u64::try_from(v / u128::from(l.pages)).unwrap_or(u64::MAX),
                    |v| if l.pages == 1 { v } else { v / l.pages },
                )
            };
            self.heats[l.index as usize] = mean([rate(*short), rate(*long)]);
        }
        (self.even, self.long, self.short) = (even, long, short);
    }

    /// The tree over the leaves, and what each would have by its pages.
    fn halve(&mut self) {
        self.nodes.clear();
        if let (Some(first), Some(last)) = (self.leaves.first(), self.leaves.last()) {
            grow(&self.leaves, 0, first.start, last.end, &mut self.nodes);
        }
        self.even.clear();
        self.even.extend(self.leaves.iter().map(|l| u128::from(l.pages) << 32));
    }

    /// Shares one average's heat out over the leaves, as `prior` has it where it does not
    /// tell more. Gives rate · pages.
    fn spread_out(&mut self, prior: &[u128], which: usize, out: &mut Vec<u128>) {
        let all = self.gather(prior, which);
        out.clear();
        out.resize(self.leaves.len(), 0);
        self.heat.clear();
        self.heat.push(all);
        for node in &self.nodes {
            // Of each node something was put there by its parent.
            let heat = self.heat.pop().unwrap_or(0);
            match *node {
                Node::Whole { leaf } | Node::Part { leaf, .. } => out[leaf as usize] += heat,
                Node::Halves { .. } => {
                    let first = self.shares.pop().map_or(0, |s| s.first(&self.spreads));
                    let left = part(heat, first);
                    self.heat.push(heat - left);
                    self.heat.push(left);
                }
            }
        }
    }

    /// Sums over all below each node, what halves of each class differ by, and what all is.
    fn gather(&mut self, prior: &[u128], which: usize) -> u128 {
        self.shares.clear();
        self.sums.clear();
        self.spreads.clear();
        self.spreads.resize(64 * CLASSES, Spread::default());
        // Backwards: a node's halves, the first on top, lie there when it is reached.
        for i in (0..self.nodes.len()).rev() {
            let sum = match self.nodes[i] {
                Node::Whole { leaf } => self.leaf(prior, which, leaf, ONE),
                Node::Part { leaf, share } => self.leaf(prior, which, leaf, u64::from(share)),
                Node::Halves { bit } => {
                    let (Some(a), Some(b)) = (self.sums.pop(), self.sums.pop()) else { return 0 };
                    self.halves(bit, a, b)
                }
            };
            self.sums.push(sum);
        }
        self.spreads.iter_mut().for_each(Spread::settle);
        self.sums.pop().map_or(0, |s| s.mass)
    }

    /// So much of a leaf; notes how what is within it shares.
    fn leaf(&mut self, prior: &[u128], which: usize, leaf: u32, s: u64) -> Sum {
        let (l, prior) = (self.leaves[leaf as usize], prior[leaf as usize]);
        let mass = u128::from(l.heat[which]) * u128::from(l.pages);
        if s == ONE {
            let (prior, mass) = (prior.min(MOST_MASS), mass.min(MOST_MASS));
            self.within(&l, ONE, l.weight[which]);
            return Sum { prior, mass, weight: l.weight[which] };
        }
        // Of half a stretch, one observation is twice as much.
        let weight = share(u128::from(l.weight[which]), u128::from(s.max(1)));
        self.within(&l, s, weight);
        Sum { prior: part(prior.min(MOST_MASS), s), mass: part(mass.min(MOST_MASS), s), weight }
    }

    /// Notes the halves inside of a leaf's part that were taken together since they were alike: chance
    /// makes some alike and some unlike, and to note the unlike ones only would be to find a difference
    /// everywhere.
    fn within(&mut self, l: &Leaf, share: u64, weight: u64) {
        let pages = u64::try_from(part(u128::from(l.end - l.start), share)).unwrap_or(u64::MAX);
        let Some(top) = pages.checked_ilog2() else { return };
        for bit in l.alike..top {
            let halves = pages >> (bit + 1);
            // Of so many observations these have one part in `halves`.
            let weight = u128::from(weight) * u128::from(halves);
            // One observation is in one half or in the other.
            let Some(weight) = u64::try_from(weight).ok().filter(|w| *w < ONE) else { continue };
            self.spreads[class(bit, weight)].add_alike(halves, weight);
        }
    }

    /// Takes two halves together, and notes how they share.
    fn halves(&mut self, bit: u32, a: Sum, b: Sum) -> Sum {
        let (m, q) = (share_of(a.mass, b.mass), share_of(a.prior, b.prior));
        let weight =
            m.map_or(ONE, |m| both(both(m, m), a.weight) + both(both(ONE - m, ONE - m), b.weight));
        let sum = Sum { prior: a.prior + b.prior, mass: a.mass + b.mass, weight: weight.min(ONE) };
        let shares = match (m, q) {
            (Some(mass), Some(prior)) => {
                let class = class(bit, sum.weight);
                self.spreads[class].add(mass, prior, [a.weight, b.weight], sum.weight);
                Shares::judged(mass, prior, sum.weight, class)
            }
            (m, q) => Shares::known(m.or(q).unwrap_or(0)),
        };
        self.shares.push(shares);
        sum
    }
}

/// The tree over `from` to before `to`, which some of the leaves overlap.
fn grow(leaves: &[Leaf], first: u32, from: u64, to: u64, nodes: &mut Vec<Node>) {
    let (Some(head), Some(tail)) = (leaves.first(), leaves.last()) else { return };
    let (from, to) = (from.max(head.start), to.min(tail.end));
    if leaves.len() == 1 {
        let part = share(u128::from(to - from), u128::from(head.end - head.start));
        nodes.push(match u32::try_from(part) {
            Ok(share) => Node::Part { leaf: first, share },
            Err(_) => Node::Whole { leaf: first },
        });
        return;
    }
    // The highest bit in which the first and the last page differ.
    let bit = (from ^ (to - 1)).ilog2();
    let mut middle = ((to - 1) >> bit) << bit;
    // Or beside what was told as one: a border of its own says more than one of numbers.
    let over = leaves.partition_point(|l| l.start < middle).checked_sub(1).map(|i| &leaves[i]);
    if let Some(l) = over.filter(|l| l.whole && l.end > middle) {
        let left = l.start > from && (l.end >= to || middle - l.start <= l.end - middle);
        middle = if left { l.start } else { l.end };
    }
    nodes.push(Node::Halves { bit });
    let left = leaves.partition_point(|l| l.start < middle);
    grow(&leaves[..left], first, from, middle, nodes);
    let skip = leaves.partition_point(|l| l.end <= middle);
    grow(&leaves[skip..], first + skip as u32, middle, to, nodes);
}

/// `a` of `a` and `b`.
fn share_of(a: u128, b: u128) -> Option<u64> {
    (a + b > 0).then(|| share(a, a + b))
}

/// By the size of a block, and how many observations it has. One observation alone is
/// in one half or the other and tells nothing; such blocks are taken to be like those
/// with two or three.
fn class(bit: u32, weight: u64) -> usize {
    // The logarithm of ONE / weight, rounded down, without the division.
    let n = weight.max(1).next_power_of_two().ilog2();
    bit as usize * CLASSES + 32u32.saturating_sub(n).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::heat::Told;
    use crate::engine::pairs::CHUNK;
    use crate::policy::seen::Span;
    use crate::splitmix::SplitMix;

    const SCALES: Scales =
        Scales { short: Picos::from_secs(1), long: Picos::from_secs(8), hold: Picos::from_secs(2) };
    const PERIOD: u64 = 10_007;

    fn heats(map: &HeatMap, now: Picos, scales: &Scales) -> Vec<Rate> {
        Estimate::default().heats(map, None, now, scales).cells.to_vec()
    }

    fn at(s: u64) -> Picos {
        Picos::from_secs(s)
    }

    /// Samples of pages of one process, second by second.
    fn sampled(pages: u64, seconds: &[Vec<u64>]) -> (HeatMap, Picos) {
        let mut map = HeatMap::default();
        map.paint(Span { start: 0, end: pages }, at(0), |_| ());
        for (i, samples) in seconds.iter().enumerate() {
            let (since, now) = (at(i as u64), at(i as u64 + 1));
            for vpn in samples {
                let cell = map.at_page(*vpn, 1, now).unwrap();
                cell.count(PERIOD * 1000);
            }
            map.fold_samples(since, at(0), now, &SCALES);
        }
        (map, at(seconds.len() as u64))
    }

    /// Heat in accesses a second of each stretch, and the sum over all pages.
    fn told(map: &HeatMap, now: Picos) -> (Vec<(u64, u64)>, u64) {
        let heats = heats(map, now, &SCALES);
        let sum = map.iter().zip(&heats).map(|((s, _), h)| s.pages().0 * h).sum::<u64>() / 1000;
        (map.iter().zip(heats).map(|((s, _), h)| (s.start, h / 1000)).collect(), sum)
    }

    // specs/engine.md#estimate: eight samples on 4096 pages, no two close together.
    #[test]
    fn what_chance_scatters_is_all_alike() {
        let second: Vec<u64> = (0..8).map(|i| i * 512 + (i * 197) % 512).collect();
        let (map, now) = sampled(4096, &[second]);
        let (heats, sum) = told(&map, now);
        assert!(heats.len() >= 16, "the samples are cells of their own");
        assert!(heats.iter().all(|(_, h)| *h == heats[0].1), "{heats:?}");
        let raw: u64 = map.iter().map(|(s, c)| s.pages().0 * SCALES.heat(c, now)).sum();
        assert!(sum.abs_diff(raw / 1000) <= raw / 1_000_000 + 5, "{sum} of {raw}");
    }

    // specs/engine.md#estimate: evenly used memory, of which the period of samples changes within
    // the first window, and which is taken together where it looks alike, at each decision.
    #[test]
    fn even_memory_stays_even() {
        let pages = 2048 * CHUNK;
        let mut uneven = 0;
        for seed in 0..20 {
            let mut chance = SplitMix::new(seed);
            let mut map = HeatMap::default();
            map.paint(Span { start: 0, end: pages }, at(0), |_| ());
            for tenth in 0..12 {
                let [since, now] = [tenth, tenth + 1].map(|t| Picos::from_ms(100 * t));
                // 20 million accesses a second.
                let mut accesses = 0;
                while accesses < 2_000_000 {
                    let period = if tenth == 0 && accesses < 1_500_000 { 16_007 } else { 1_007 };
                    map.at_page(chance.below(pages), CHUNK, now).unwrap().count(period * 1000);
                    accesses += period;
                }
                map.fold_samples(since, at(0), now, &SCALES);
                map.tidy(30_000, now, &SCALES);
                let heats = heats(&map, now, &SCALES);
                let (least, most) = (heats.iter().min().unwrap(), heats.iter().max().unwrap());
                uneven += u32::from(most - least > most / 20);
            }
        }
        // A decision has some twenty spreads, each of which chance brings beyond three standard deviations once
        // in 740 times.
        assert!(uneven < 12, "{uneven} of 240");
    }

    // specs/engine.md#estimate: one page of 4096 is sampled again and again.
    #[test]
    fn what_chance_does_not_do_is_believed() {
        let second: Vec<u64> = (0..8).map(|i| i * 512 + 7).chain([77; 8]).collect();
        let (map, now) = sampled(4096, &[second.clone(), second.clone(), second]);
        let (heats, _) = told(&map, now);
        let of = |page| heats.iter().rev().find(|(s, _)| *s <= page).unwrap().1;
        let raw =
            map.iter().find(|(s, _)| s.start == 77).map(|(_, c)| SCALES.heat(c, now)).unwrap();
        assert!(of(77) > raw / 2000, "{} of {}", of(77), raw / 1000);
        assert!(of(77) > 50 * of(4000), "{heats:?}");
    }

    // specs/engine.md#estimate: DAMON checks each region 200 times a second.
    #[test]
    fn many_observations_are_believed_as_they_are() {
        let mut map = HeatMap::default();
        let rates = [200, 150, 10, 0, 90, 200, 0, 40];
        for tenth in 10..=200 {
            for (i, rate) in rates.iter().enumerate() {
                let start = i as u64 * 1000;
                let over = Picos::from_ms(100);
                let told = Told { rate: rate * 1000, one: 10_000_000, over, age: at(1) };
                let now = Picos::from_ms(tenth * 100);
                map.region(Span { start, end: start + 1000 }, told, now, &SCALES);
            }
        }
        let (heats, _) = told(&map, at(20));
        let raw: Vec<u64> = map.iter().map(|(_, c)| SCALES.heat(c, at(20)) / 1000).collect();
        for ((_, heat), raw) in heats.iter().zip(&raw) {
            assert!(heat.abs_diff(*raw) <= raw / 20 + 3, "{heats:?} of {raw:?}");
        }
    }

    // specs/engine.md#estimate: nothing known, nothing told, and numbers as large as can be.
    #[test]
    fn odd_maps_have_some_heat() {
        assert!(heats(&HeatMap::default(), at(1), &SCALES).is_empty());
        let mut map = HeatMap::default();
        map.paint(Span { start: 0, end: u64::MAX }, at(0), |_| ());
        assert_eq!(heats(&map, at(1), &SCALES), [0]);
        let most = Told { rate: u64::MAX, one: u64::MAX, over: Picos(0), age: at(9) };
        for (start, end) in [(0, 1), (5, 1 << 40), (1 << 50, u64::MAX)] {
            map.region(Span { start, end }, most, at(2), &SCALES);
        }
        assert_eq!(heats(&map, at(3), &SCALES).len(), map.len());
    }
}
