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
//! Integers: shares are 2^-32, and each division rounds down.

use super::heat::{HeatMap, Rate, Scales, mean};
use crate::units::Picos;

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
struct Leaf {
    /// Which of the map's.
    index: usize,
    start: u64,
    end: u64,
    /// It is not cut.
    whole: bool,
    /// Pages in memory, as far as is known.
    pages: u64,
    /// Short and long average.
    heat: [Rate; 2],
    /// What part of either average one observation has, as a share.
    weight: [u64; 2],
}

/// A node of the tree, parents before children.
enum Node {
    /// So much of a leaf.
    Part { leaf: usize, share: u64 },
    /// Two halves at a bit of the address: one follows, the other is there.
    Halves { bit: u32, right: usize },
}

/// What was observed of a node.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// What it would have if nothing told more.
    prior: u128,
    /// What was observed: rate · pages.
    mass: u128,
    /// 1 / observations.
    weight: u64,
    /// Of halves: the share of the first in the mass and in the prior, where there is any.
    first: [Option<u64>; 2],
}

/// What halves of one size, with about as many observations, differ by.
#[derive(Clone, Copy, Default)]
struct Spread {
    /// Beyond chance.
    beyond: i128,
    /// If one half had it all.
    most: i128,
    /// Square of what chance may add to `beyond`.
    doubt: u128,
    /// The most that it adds to one of them in the mean.
    largest: u64,
}

impl Spread {
    /// As a share; what three standard deviations of chance explain does not count: a
    /// decision compares a hundred kinds of blocks, of which two would pass for less.
    fn share(self) -> u64 {
        if self.beyond <= 0 {
            return 0;
        }
        let deviation = i128::try_from(self.doubt.isqrt()).unwrap_or(i128::MAX);
        // Of few squares, chance makes a large sum more often than a bell curve has it:
        // (3² - 1) / 6 of the skewness more.
        let skew = i128::from(self.largest) * 16 / 3;
        let doubt = deviation.saturating_mul(3).saturating_add(skew);
        let sure = self.beyond.saturating_sub(doubt).max(0);
        match u128::try_from(self.most) {
            Ok(most) if most > 0 => share(sure.unsigned_abs(), most),
            _ => 0,
        }
    }
}

/// The heat of each cell of a map now, in the map's order.
///
/// Source: specs/engine.md#estimate.
pub(super) fn heats(map: &HeatMap, now: Picos, scales: &Scales) -> Vec<Rate> {
    let mut out = Vec::with_capacity(map.len());
    let mut leaves = Vec::new();
    for (index, (span, cell)) in map.iter().enumerate() {
        let heat = scales.averages(cell, now);
        let pages = cell.place.as_ref().map_or(span.pages().0, |p| p.present());
        out.push(mean(heat));
        if cell.told && pages > 0 {
            let weight = cell.weights(span.pages().0);
            let (start, end, whole) = (span.start, span.end, cell.whole);
            leaves.push(Leaf { index, start, end, whole, pages, heat, weight });
        }
    }
    let (Some(first), Some(last)) = (leaves.first(), leaves.last()) else { return out };
    let mut nodes = Vec::with_capacity(leaves.len() * 2);
    grow(&leaves, 0, first.start, last.end, &mut nodes);
    let pages: Vec<u128> = leaves.iter().map(|l| u128::from(l.pages) << 32).collect();
    let long = spread_out(&leaves, &nodes, &pages, 1);
    let short = spread_out(&leaves, &nodes, &long, 0);
    for (i, l) in leaves.iter().enumerate() {
        let rate = |v: u128| u64::try_from(v / u128::from(l.pages)).unwrap_or(u64::MAX);
        out[l.index] = mean([rate(short[i]), rate(long[i])]);
    }
    out
}

/// The tree over `from` to before `to`, which some of the leaves overlap.
fn grow(leaves: &[Leaf], first: usize, from: u64, to: u64, nodes: &mut Vec<Node>) {
    let (Some(head), Some(tail)) = (leaves.first(), leaves.last()) else { return };
    let (from, to) = (from.max(head.start), to.min(tail.end));
    if leaves.len() == 1 {
        let part = share(u128::from(to - from), u128::from(head.end - head.start));
        nodes.push(Node::Part { leaf: first, share: part });
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
    let at = nodes.len();
    nodes.push(Node::Halves { bit, right: 0 });
    let left = leaves.partition_point(|l| l.start < middle);
    grow(&leaves[..left], first, from, middle, nodes);
    let right = nodes.len();
    let skip = leaves.partition_point(|l| l.end <= middle);
    grow(&leaves[skip..], first + skip, middle, to, nodes);
    nodes[at] = Node::Halves { bit, right };
}

/// Shares one average's heat out over the leaves, as `prior` has it where it does not
/// tell more. Gives rate · pages.
fn spread_out(leaves: &[Leaf], nodes: &[Node], prior: &[u128], which: usize) -> Vec<u128> {
    let sums = gather(leaves, nodes, prior, which);
    let spreads = compare(nodes, &sums);
    let mut out = vec![0; leaves.len()];
    let mut heat = vec![0; nodes.len()];
    heat[0] = sums[0].mass;
    for (i, node) in nodes.iter().enumerate() {
        match *node {
            Node::Part { leaf, .. } => out[leaf] += heat[i],
            Node::Halves { bit, right } => {
                let to_left = match (sums[i].first[0], sums[i].first[1]) {
                    (Some(m), Some(q)) => {
                        let rho = spreads[class(bit, sums[i].weight)];
                        let trust = part(u128::from(sums[i].weight), ONE - rho);
                        // Of a single kind only: nothing is left to be shared out.
                        let by = match trust + u128::from(rho) {
                            0 => ONE,
                            all => share(trust, all),
                        };
                        both(q, by) + both(m, ONE - by)
                    }
                    (m, q) => m.or(q).unwrap_or(0),
                };
                heat[i + 1] = part(heat[i], to_left);
                heat[right] = heat[i] - heat[i + 1];
            }
        }
    }
    out
}

/// `a` of `a` and `b`.
fn share_of(a: u128, b: u128) -> Option<u64> {
    (a + b > 0).then(|| share(a, a + b))
}

/// Sums over all below each node.
fn gather(leaves: &[Leaf], nodes: &[Node], prior: &[u128], which: usize) -> Vec<Sum> {
    let mut sums = vec![Sum::default(); nodes.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        sums[i] = match *node {
            Node::Part { leaf, share: s } => {
                let l = &leaves[leaf];
                let mass = u128::from(l.heat[which]) * u128::from(l.pages);
                // Of half a stretch, one observation is twice as much.
                let weight = share(u128::from(l.weight[which]), u128::from(s.max(1)));
                Sum {
                    prior: part(prior[leaf].min(MOST_MASS), s),
                    mass: part(mass.min(MOST_MASS), s),
                    weight,
                    ..Sum::default()
                }
            }
            Node::Halves { right, .. } => {
                let (a, b) = (sums[i + 1], sums[right]);
                let first = [share_of(a.mass, b.mass), share_of(a.prior, b.prior)];
                let weight = first[0].map_or(ONE, |m| {
                    both(both(m, m), a.weight) + both(both(ONE - m, ONE - m), b.weight)
                });
                let (prior, mass) = (a.prior + b.prior, a.mass + b.mass);
                Sum { prior, mass, weight: weight.min(ONE), first }
            }
        };
    }
    sums
}

/// By the size of a block, and how many observations it has. One observation alone is
/// in one half or the other and tells nothing; such blocks are taken to be like those
/// with two or three.
fn class(bit: u32, weight: u64) -> usize {
    let n = (ONE / weight.max(1)).max(2).ilog2();
    bit as usize * CLASSES + n as usize
}

/// The spread of each class, as a share.
fn compare(nodes: &[Node], sums: &[Sum]) -> Vec<u64> {
    let mut all = vec![Spread::default(); 64 * CLASSES];
    for (i, node) in nodes.iter().enumerate() {
        let Node::Halves { bit, right } = *node else { continue };
        let (a, b) = (sums[i + 1], sums[right]);
        let [Some(m), Some(q)] = sums[i].first else { continue };
        let d = m.abs_diff(q);
        let (m2, q2) = (ONE - m, ONE - q);
        let chance = both(both(both(q2, q2), both(m, m)), a.weight)
            + both(both(both(q, q), both(m2, m2)), b.weight);
        let room = both(q, q2);
        let more = ONE - sums[i].weight;
        let s = &mut all[class(bit, sums[i].weight)];
        s.beyond += i128::from(both(d, d)) - i128::from(chance);
        s.most += i128::from(both(room, more));
        let noise = u128::from(both(room, sums[i].weight));
        s.doubt += part(2 * noise * noise, more);
        s.largest = s.largest.max(u64::try_from(part(noise, more)).unwrap_or(ONE));
    }
    all.into_iter().map(Spread::share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::heat::Told;
    use crate::policy::seen::Span;

    const SCALES: Scales =
        Scales { short: Picos::from_secs(1), long: Picos::from_secs(8), hold: Picos::from_secs(2) };
    const PERIOD: u64 = 10_007;

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
                cell.sum += PERIOD * 1000;
                cell.nr += 1;
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
