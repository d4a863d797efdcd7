//! Patterns of accesses: which pages a task goes to, as operations.

mod graph;

use crate::hot::OP_WRITE;
use crate::load::PAGE_LINES;
use crate::random::{Gauss, Normal, NormalIh, Pareto, Stream, Zipf, coprime_step};
use graph::Search;
use homenode_core::scenario::{Pattern, TouchOrder, Until};
use homenode_core::splitmix::mix;

/// Operations made at once. Small enough that a hot spot which moves by time
/// is never more than a window of load behind.
const BATCH: u64 = 1024;

/// Page numbers that a pattern gives, from 0; `Lines` gives each as often as a page has lines.
#[derive(Clone, Debug)]
enum Generator {
    Uniform,
    Gauss(Gauss),
    Normal(Normal),
    NormalIh(NormalIh),
    Pareto(Pareto),
    Zipf(Box<Zipf>),
    ZipfDrift { zipf: Box<Zipf>, every: u64 },
    Search(Box<Search>),
    Sequential { at: u64 },
    Lines { at: u64 },
    Linear { at: u64, stride: u64, phase: u64 },
    MiddleFirst { at: u64 },
    Scattered { at: u64, step: u64 },
    HotSpot { pages: u64, share: u64, every: u64, start: u64 },
}

/// A stretch of a mapping that is being accessed.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Its first page in the columns.
    first: u32,
    pages: u64,
    generator: Generator,
    /// Writes in 2^-16.
    write: u64,
    /// Accesses left; `u64::MAX` where time decides.
    left: u64,
    random: Stream,
}

impl Access {
    /// Begins `pattern` over `pages` pages from `first` in the columns at time `now`.
    ///
    /// * `thread` – which of the process's threads this is, and of how many.
    pub(crate) fn new(
        (first, pages): (u32, u64),
        thread: (u64, u64),
        pattern: Pattern,
        write: u32,
        until: Until,
        now: u64,
        random: Stream,
    ) -> Self {
        let part = |permille: u32| (pages * u64::from(permille) / 1000).clamp(1, pages);
        let generator = match pattern {
            Pattern::Uniform => Generator::Uniform,
            Pattern::Gauss { sd } => Generator::Gauss(Gauss::new(pages, sd)),
            Pattern::Zipf { theta } => Generator::Zipf(Box::new(Zipf::new(pages, theta))),
            Pattern::ZipfDrift { theta, values, every } => Generator::ZipfDrift {
                zipf: Box::new(Zipf::new(pages * u64::from(values.max(1)), theta)),
                every: every.0.max(1),
            },
            Pattern::BreadthFirst { degree } => {
                Generator::Search(Box::new(Search::new(pages, degree, thread)))
            }
            Pattern::Normal { deviation } => Generator::Normal(Normal::new(pages, deviation)),
            Pattern::NormalIh => Generator::NormalIh(NormalIh::new(pages)),
            Pattern::Pareto { alpha } => Generator::Pareto(Pareto::new(pages, alpha)),
            Pattern::Linear { stride } => {
                Generator::Linear { at: 0, stride: u64::from(stride.max(1)), phase: 0 }
            }
            Pattern::Sequential => Generator::Sequential { at: 0 },
            Pattern::HotSpot { size, share, every } => Generator::HotSpot {
                pages: part(size),
                share: u64::from(share),
                every: every.0.max(1),
                start: now,
            },
        };
        let left = match until {
            Until::Accesses(n) => n,
            Until::Time(_) => u64::MAX,
        };
        Self { first, pages, generator, write: in_all(write), left, random }
    }
    /// Lines of `first .. first + pages` in order, again and again.
    pub(crate) fn stream((first, pages): (u32, u64), write: u32, random: Stream) -> Self {
        let generator = Generator::Lines { at: 0 };
        Self { first, pages, generator, write: in_all(write), left: u64::MAX, random }
    }
    /// Every page of `first .. first + pages` once, written.
    pub(crate) fn touch(first: u32, pages: u64, random: Stream) -> Self {
        let generator = Generator::Sequential { at: 0 };
        Self { first, pages, generator, write: 65_536, left: pages, random }
    }
    /// Every page once, written, in an order.
    pub(crate) fn initialize(first: u32, pages: u64, order: TouchOrder, random: Stream) -> Self {
        let mut all = Self::touch(first, pages, random);
        match order {
            TouchOrder::Linear => {}
            TouchOrder::MiddleFirst => all.generator = Generator::MiddleFirst { at: 0 },
            TouchOrder::Scattered => {
                all.generator = Generator::Scattered { at: 0, step: coprime_step(pages) };
            }
        }
        all
    }
    /// Makes the next operations at time `now`, at most so many; none are left if `out`
    /// stays empty.
    pub(crate) fn fill(&mut self, now: u64, most: u64, out: &mut Vec<u32>) {
        out.clear();
        let n = self.left.min(BATCH).min(most);
        if self.left != u64::MAX {
            self.left -= n;
        }
        let (pages, write) = (self.pages, self.write);
        let mut to = Operations { n, first: self.first, write, random: &mut self.random, out };
        match &mut self.generator {
            Generator::Uniform => to.pages(|random| random.below(pages)),
            Generator::Gauss(g) => to.pages(|random| g.draw(random)),
            Generator::Normal(g) => to.pages(|random| g.draw(random)),
            Generator::NormalIh(g) => to.pages(|random| g.draw(random)),
            Generator::Pareto(p) => to.pages(|random| p.draw(random)),
            Generator::Zipf(z) => to.pages(|random| z.draw(random)),
            Generator::ZipfDrift { zipf, every } => to.pages(|random| {
                // Each rank has a time of its own at which another value gets it.
                let rank = zipf.rank(random);
                let since = now % *every + mix(rank) % *every;
                let change = now / *every + since / *every;
                let value = mix(rank ^ mix(change));
                ((u128::from(value) * u128::from(pages)) >> 64) as u64
            }),
            Generator::Search(search) => to.operations(|random| search.next(random)),
            Generator::Linear { at, stride, phase } => to.pages(|_| {
                let page = *at;
                *at += *stride;
                if *at >= pages {
                    // The next lap begins a page further on, until all have been.
                    *phase = (*phase + 1) % (*stride).min(pages);
                    *at = *phase;
                }
                page
            }),
            Generator::MiddleFirst { at } => to.pages(|_| {
                let away = at.div_ceil(2);
                *at += 1;
                if *at % 2 == 1 { pages / 2 + away } else { pages / 2 - away }
            }),
            Generator::Scattered { at, step } => to.pages(|_| {
                let page = *at;
                *at = (page + *step) % pages;
                page
            }),
            Generator::Sequential { at } => to.pages(|_| {
                let page = *at;
                *at = if page + 1 == pages { 0 } else { page + 1 };
                page
            }),
            Generator::Lines { at } => to.pages(|_| {
                let line = *at;
                *at = if line + 1 == pages * PAGE_LINES { 0 } else { line + 1 };
                line / PAGE_LINES
            }),
            Generator::HotSpot { pages: hot, share, every, start } => {
                let moves = now.saturating_sub(*start) / *every;
                let base = (u128::from(moves) * u128::from(*hot) % u128::from(pages)) as u64;
                to.pages(|random| {
                    if random.below(1000) < *share {
                        (base + random.below(*hot)) % pages
                    } else {
                        random.below(pages)
                    }
                });
            }
        }
    }
}

/// A share in thousandths, in 2^-16.
fn in_all(permille: u32) -> u64 {
    u64::from(permille) * 65_536 / 1000
}

/// Operations that are being made.
struct Operations<'a> {
    n: u64,
    first: u32,
    write: u64,
    random: &'a mut Stream,
    out: &'a mut Vec<u32>,
}

impl Operations<'_> {
    /// Those that `next` gives, which says itself what it writes.
    fn operations(&mut self, mut next: impl FnMut(&mut Stream) -> u32) {
        self.out.extend((0..self.n).map(|_| self.first + next(self.random)));
    }
    /// On the pages that `next` gives.
    #[inline]
    fn pages(&mut self, mut next: impl FnMut(&mut Stream) -> u64) {
        let (first, write) = (self.first, self.write);
        // In registers meanwhile.
        let mut random = self.random.clone();
        self.out.extend((0..self.n).map(|_| {
            let page = next(&mut random);
            // All or nothing needs no draw; the common 80:20 takes one.
            let writes = write == 65_536 || (write > 0 && (random.bits() & 0xffff) < write);
            (first + page as u32) | if writes { OP_WRITE } else { 0 }
        }));
        *self.random = random;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::units::Picos;
    use std::collections::BTreeMap;

    #[test]
    fn popularity_drifts_rank_by_rank() {
        let every = Picos::from_secs(60);
        let hottest = |at: Picos| {
            let pattern = Pattern::ZipfDrift { theta: 990, values: 4, every };
            let random = Stream::new(3, "drift");
            let until = Until::Accesses(100_000);
            let mut a = Access::new((0, 10_000), (0, 1), pattern, 0, until, at.0, random);
            let (mut times, mut out) = (BTreeMap::new(), Vec::new());
            loop {
                a.fill(at.0, u64::MAX, &mut out);
                if out.is_empty() {
                    break;
                }
                out.iter().for_each(|&op| *times.entry(op).or_insert(0u64) += 1);
            }
            let mut all: Vec<(u64, u32)> = times.into_iter().map(|(p, n)| (n, p)).collect();
            all.sort_unstable();
            all.into_iter().rev().take(100).map(|(_, p)| p).collect::<Vec<u32>>()
        };
        let first = hottest(Picos::ZERO);
        let stay = |at| hottest(at).iter().filter(|p| first.contains(p)).count();
        let [tenth, half, all] = [6, 30, 61].map(|s| stay(Picos::from_secs(s)));
        assert!(tenth > half && half > all, "{tenth} {half} {all}");
        assert!((75..=99).contains(&tenth), "a tenth has changed: {tenth} are left");
        assert!((30..=70).contains(&half), "half has changed: {half} are left");
        assert!(all < 15, "all have changed: {all} are left");
    }

    #[test]
    fn linear_with_a_stride_is_pmbenchs_order() {
        // Its documentation's example: ten pages, a stride of three.
        let of = |pages, stride, n| {
            let pattern = Pattern::Linear { stride };
            let random = Stream::new(1, "linear");
            let mut a = Access::new((7, pages), (0, 1), pattern, 0, Until::Accesses(n), 0, random);
            let mut out = Vec::new();
            a.fill(0, u64::MAX, &mut out);
            out.iter().map(|op| op - 7).collect::<Vec<u32>>()
        };
        assert_eq!(of(10, 3, 14), [0, 3, 6, 9, 1, 4, 7, 2, 5, 8, 0, 3, 6, 9]);
        assert_eq!(of(3, 1, 5), [0, 1, 2, 0, 1]);
        // A stride beyond the map still reaches every page.
        assert_eq!(of(3, 8, 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn an_order_of_first_touch_reaches_every_page_once() {
        let of = |pages: u64, order| {
            let mut a = Access::initialize(5, pages, order, Stream::new(1, "first"));
            let (mut all, mut out) = (Vec::new(), Vec::new());
            loop {
                a.fill(0, u64::MAX, &mut out);
                if out.is_empty() {
                    return all;
                }
                assert!(out.iter().all(|op| op & OP_WRITE != 0));
                all.extend(out.iter().map(|op| (op & !OP_WRITE) - 5));
            }
        };
        assert_eq!(of(4, TouchOrder::Linear), [0, 1, 2, 3]);
        assert_eq!(of(4, TouchOrder::MiddleFirst), [2, 1, 3, 0]);
        assert_eq!(of(5, TouchOrder::MiddleFirst), [2, 1, 3, 0, 4]);
        for order in [TouchOrder::Linear, TouchOrder::MiddleFirst, TouchOrder::Scattered] {
            for pages in [1, 2, 3, 1000, 4097] {
                let mut all = of(pages, order);
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..pages as u32), "{order:?} {pages}");
            }
        }
        // A tenth of the touches lies on every fifth of the map alike, nearly.
        let early = of(10_000, TouchOrder::Scattered);
        let low = early[..1000].iter().filter(|&&p| p < 2000).count();
        assert!((190..=210).contains(&low), "{low}");
    }

    #[test]
    fn a_share_of_writes_is_kept_by_every_pattern() {
        for pattern in [
            Pattern::NormalIh,
            Pattern::Normal { deviation: 1 },
            Pattern::Pareto { alpha: 1000 },
            Pattern::Linear { stride: 5 },
            Pattern::ZipfDrift { theta: 990, values: 4, every: Picos::from_ms(1) },
        ] {
            let random = Stream::new(3, "writes");
            let mut a =
                Access::new((0, 4096), (0, 1), pattern, 200, Until::Accesses(50_000), 0, random);
            let (mut all, mut writes, mut out) = (0, 0, Vec::new());
            loop {
                a.fill(0, u64::MAX, &mut out);
                if out.is_empty() {
                    break;
                }
                assert!(out.iter().all(|op| op & !OP_WRITE < 4096));
                all += out.len();
                writes += out.iter().filter(|&&op| op & OP_WRITE != 0).count();
            }
            assert_eq!(all, 50_000, "{pattern:?}");
            // Five deviations of a binomial draw.
            assert!((9_550..=10_450).contains(&writes), "{pattern:?}: {writes}");
        }
    }
}
