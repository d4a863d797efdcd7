//! DAMOS, DAMON's operation schemes, as the kernel's sample `mtier` and damo's `mem_tier.sh` set them up
//! for two nodes: regions that are accessed go up from the slow node, regions that are not go down from
//! the fast one. Each scheme has a quota of its own, which follows a goal of its own.
//!
//! ```text
//! every second, for each scheme by itself:
//! goal ─▶ quota · (1 + (goal − now) / goal), 200 MiB at most ──────┐
//! Region ─▶ fits the pattern? ─▶ score of its count and its age ─▶ bytes by score, from the highest down
//!                                                                  └─▶ least score that fits the quota
//! by address, from where the last quota ended: regions of that score on, until the quota is used up
//! ```
//!
//! Worked example: 10 of 20 checks found a region accessed, and for five seconds it has been so. Its
//! count is 50 of 100. The binary logarithm of its age is 2, so its age is 3 of −32 to 32: 54 of 100.
//! The mean is 52, and that of 99 is its hot score, 51; its cold score is 48.
//!
//! The kernel applies a scheme to a region as a whole: what was to move and could not is charged to the
//! quota all the same, and the region's age begins anew for this scheme. Here DAMON does not know the
//! schemes, so they keep when they were applied to what.
//!
//! Left out: the filters of young pages (`mtier` lets only those up and only others down), since
//! accessed bits of single pages are not told. The tuning of DAMON's intervals (4 % of accesses
//! observed, 5 ms to 10 s): they are the machine's. Physical addresses: DAMON watches address spaces
//! here, as it does for these schemes too since 6.17, and a region counts with its pages on the node
//! from which the scheme moves. Counts between two aggregations. The threads, one for each node, which
//! sample nothing while they move.
//!
//! Source: specs/compare.md#damos.

use super::pages::{At, Pages};
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::{Seen, Span, Who};
use homenode_core::policy::{Ledger, Policy};
use homenode_core::scale::Scale;
use homenode_core::topology::Hardware;
use homenode_core::units::{PAGE_SIZE, Picos};
use homenode_machine::Caps;
use std::collections::BTreeMap;

/// Time between two rounds of a scheme, and for which a quota is.
const ROUND: Picos = Picos::from_secs(1);
/// Bytes of a quota at most.
const MOST: u64 = 200 << 20;
/// Goals in ten-thousandths of the fast node: what is used, and what is free.
const USED: u64 = 9970;
const FREE: u64 = 50;
/// What is reached in full.
const GOAL: u64 = 10_000;
/// A quota's ten-thousandths of a byte, and the least that it has.
const LEAST: u64 = 10_000;
/// The highest score.
const TOP: u64 = 99;
/// What counts and ages are scaled to, and the binary logarithm of the highest age.
const PART: u64 = 100;
const AGES: u64 = 32;
/// Unit of ages.
const SECOND: Picos = Picos::from_secs(1);
/// How soon DAMON's thread looks again at what is due: its shortest interval.
const SOON: Picos = Picos::from_ms(5);

/// What a quota is next, in ten-thousandths of a byte.
///
/// * `reached` – how much of the goal is reached, in ten-thousandths.
fn next_quota(last: u64, reached: u64) -> u64 {
    if reached == GOAL {
        return last;
    }
    if reached >= 2 * GOAL {
        return LEAST;
    }
    let by = u128::from(last) * u128::from(reached.abs_diff(GOAL)) / u128::from(GOAL);
    // Less than what it is of, since no goal is missed by more than itself.
    let by = u64::try_from(by).unwrap_or(u64::MAX);
    if reached > GOAL { last.saturating_sub(by).max(LEAST) } else { last.saturating_add(by) }
}

/// How hot a region is, 0 to [`TOP`]: the mean of its count and its age.
///
/// * `second` – unit of ages.
fn hotness(accessed: u32, checks: u32, age: Picos, second: Picos) -> u64 {
    let count = u64::from(accessed) * PART / u64::from(checks.max(1));
    let seconds = age.0 / second.0.max(1);
    let log = seconds.checked_ilog2().map_or(0, |log| u64::from(log) + 1).min(AGES);
    // What nobody accesses is the colder the longer that is so.
    let age = if count == 0 { AGES - log } else { AGES + log };
    let age = age * PART / AGES / 2;
    ((count + age) / 2 * TOP / PART).min(TOP)
}

/// A region as DAMON told it.
#[derive(Clone, Copy, Debug)]
struct Region {
    span: Span,
    accessed: u32,
    checks: u32,
    age: Picos,
}

/// What a scheme was applied to, and when last: the end and the time, by process and first page.
#[derive(Clone, Debug, Default)]
struct Applied(BTreeMap<At, (u64, Picos)>);

impl Applied {
    fn note(&mut self, who: Who, span: Span, now: Picos) {
        let before = self.0.range(..(who, span.start)).next_back().map(|(&at, &v)| (at, v));
        let within = self.0.range((who, span.start)..(who, span.end)).map(|(&at, &v)| (at, v));
        let all = before.into_iter().chain(within).collect::<Vec<_>>();
        for ((of, start), (end, at)) in all {
            if of != who || end <= span.start {
                continue;
            }
            self.0.remove(&(who, start));
            if start < span.start {
                self.0.insert((who, start), (span.start, at));
            }
            if end > span.end {
                self.0.insert((who, span.end), (end, at));
            }
        }
        self.0.insert((who, span.start), (span.end, now));
    }
    /// A region's age for the scheme: of each part since DAMON or the scheme has begun it anew, and the
    /// mean by size, as where DAMON joins regions. What is older than the region itself is forgotten.
    fn age(&mut self, who: Who, region: &Region, now: Picos) -> Picos {
        let Span { start, end } = region.span;
        let before = self.0.range(..(who, start)).next_back().filter(|(at, _)| at.0 == who);
        let parts = before.into_iter().chain(self.0.range((who, start)..(who, end)));
        let (mut younger, mut old) = (0, Vec::new());
        for (&at, &(until, applied)) in parts {
            let pages = until.min(end).saturating_sub(at.1.max(start));
            let since = now.saturating_sub(applied);
            if since < region.age {
                younger += u128::from(pages) * u128::from(region.age.0 - since.0);
            } else if at.1 >= start && until <= end {
                old.push(at);
            }
        }
        old.iter().for_each(|at| {
            self.0.remove(at);
        });
        let younger = younger / u128::from(region.span.pages().0.max(1));
        region.age.saturating_sub(Picos(u64::try_from(younger).unwrap_or(u64::MAX)))
    }
}

/// A scheme with its quota.
struct Scheme {
    /// Hot memory goes up; else cold memory goes down.
    up: bool,
    /// Ten-thousandths of a byte, before the most that there is.
    quota: u64,
    /// Where the last quota ended.
    goes_on: Option<At>,
    applied: Applied,
}

/// What a scheme does in a round.
struct Round {
    now: Picos,
    /// Bytes.
    quota: u64,
    second: Picos,
}

impl Scheme {
    /// How much of the goal is reached, in ten-thousandths.
    fn reached(&self, free: u64, all: u64) -> u64 {
        let all = all.max(1);
        let free = free.min(all);
        let (is, goal) = if self.up { (all - free, USED) } else { (free, FREE) };
        is * GOAL / all * GOAL / goal
    }
    fn score(&mut self, who: Who, region: &Region, round: &Round) -> u64 {
        let age = self.applied.age(who, region, round.now);
        let hot = hotness(region.accessed, region.checks, age, round.second);
        if self.up { hot } else { TOP - hot }
    }
    /// The pages to be moved, by region.
    fn apply(
        &mut self,
        pages: &mut Pages<()>,
        regions: &BTreeMap<Who, Vec<Region>>,
        round: &Round,
    ) -> Vec<Vec<At>> {
        let (up, mut here) = (self.up, Vec::new());
        let mut by_score = [0; TOP as usize + 1];
        for (&who, all) in regions {
            // The pattern: one access up, none down, of any size and age.
            for region in all.iter().filter(|r| r.checks > 0 && (r.accessed > 0) == up) {
                let mut nr = 0;
                pages.within(who, region.span, |_, page| nr += u64::from(page.fast == Some(!up)));
                if nr > 0 {
                    let score = self.score(who, region, round);
                    by_score[score as usize] += nr * PAGE_SIZE;
                    here.push((who, *region, score, nr));
                }
            }
        }
        let (mut sum, mut least) = (0, 0);
        for (score, bytes) in by_score.iter().enumerate().rev() {
            sum += bytes;
            if sum >= round.quota {
                least = score as u64;
                break;
            }
        }
        // Who was last has ended: a new quota begins at the first.
        if self.goes_on.is_some_and(|(who, _)| !regions.contains_key(&who)) {
            self.goes_on = None;
        }
        // No less than a page: a quota of less is used up.
        let mut left = round.quota / PAGE_SIZE;
        let mut moves = Vec::new();
        let mut here = here.into_iter().peekable();
        for (&who, all) in regions {
            for region in all {
                let known = here.next_if(|(w, r, ..)| *w == who && r.span == region.span);
                if left == 0 {
                    continue;
                }
                let mut span = region.span;
                if let Some((of, from)) = self.goes_on {
                    if of != who {
                        continue;
                    }
                    span.start = span.start.max(from);
                    if all.last().is_some_and(|last| last.span == region.span) {
                        self.goes_on = None;
                    }
                }
                let Some((_, _, score, nr)) = known else { continue };
                if score < least || span.start >= span.end {
                    continue;
                }
                let mut part = Vec::with_capacity(nr.min(left) as usize);
                pages.within(who, span, |vpn, page| {
                    if page.fast == Some(!up) && (part.len() as u64) < left {
                        part.push((who, vpn));
                    }
                });
                left -= part.len() as u64;
                // What the quota had no room for is cut off.
                if let (0, Some((_, last))) = (left, part.last()) {
                    span.end = last + 1;
                    self.goes_on = Some((who, span.end));
                }
                self.applied.note(who, span, round.now);
                moves.push(part);
            }
        }
        moves
    }
}

struct Damos {
    pages: Pages<()>,
    scale: u64,
    regions: BTreeMap<Who, Vec<Region>>,
    /// Down and up.
    schemes: [Scheme; 2],
    /// Free pages of the fast node.
    free: u64,
    next: Picos,
    wake: Picos,
}

impl Damos {
    /// An amount of a large machine.
    fn scaled(&self, amount: u64) -> u64 {
        (amount / self.scale).max(1)
    }
    fn round(&mut self, now: Picos) {
        let (all, most) = (self.pages.tiers.room, self.scaled(MOST));
        let second = Picos(self.scaled(SECOND.0));
        let (free, pages, regions) = (self.free, &mut self.pages, &self.regions);
        let [mut down, mut up] = self.schemes.each_mut().map(|scheme| {
            scheme.quota = next_quota(scheme.quota.max(LEAST), scheme.reached(free, all));
            let quota = (scheme.quota / LEAST).min(most);
            scheme.apply(pages, regions, &Round { now, quota, second }).into_iter()
        });
        // Two threads move at once.
        loop {
            let (cold, hot) = (down.next(), up.next());
            if cold.is_none() && hot.is_none() {
                break;
            }
            pages.shift(cold.unwrap_or_default(), false);
            pages.shift(hot.unwrap_or_default(), true);
        }
    }
}

impl Policy for Damos {
    fn handle(&mut self, now: Picos, seen: &[Seen]) {
        for one in seen {
            match one {
                Seen::Region { who, span, accessed, checks, age, .. } => {
                    let all = self.regions.entry(*who).or_default();
                    // They rise: this is the first of an aggregation.
                    if all.last().is_some_and(|last| last.span.end > span.start) {
                        all.clear();
                    }
                    let (accessed, checks) = (*accessed, *checks);
                    all.push(Region { span: *span, accessed, checks, age: *age });
                }
                Seen::Node { node, zones, .. } if *node == self.pages.tiers.fast => {
                    self.free = zones.iter().map(|z| z.free.0).sum();
                }
                Seen::Gone { who } => {
                    self.regions.remove(who);
                    for scheme in &mut self.schemes {
                        scheme.applied.0.retain(|at, _| at.0 != *who);
                    }
                }
                Seen::Node { .. }
                | Seen::Task { .. }
                | Seen::Fault { .. }
                | Seen::Sample { .. }
                | Seen::Loads { .. }
                | Seen::Huge { .. }
                | Seen::Resident { .. }
                | Seen::Done { .. }
                | Seen::Lost { .. }
                | Seen::Stale { .. } => {}
            }
        }
        self.pages.take(seen, |_| {}, |_, _| {});
        // A round ends when its moves have.
        if now >= self.next && self.pages.moving() == 0 && self.pages.fresh {
            self.next = now + Picos(self.scaled(ROUND.0));
            self.round(now);
        }
        self.wake = self.next.max(now + SOON);
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
        self.next = Picos(self.scaled(ROUND.0));
    }
}

pub(super) fn make(machine: &Hardware, _: KernelVersion, caps: &Caps) -> Box<dyn Policy> {
    // The schemes are on since the boot, as the kernel's parameter and damo's service have it: while
    // nearly all of the fast node was free, the quota of what goes up has grown beyond all bounds, and
    // that of what goes down is the least.
    let scheme = |up, quota| Scheme { up, quota, goes_on: None, applied: Applied::default() };
    Box::new(Damos {
        pages: Pages::new(machine, caps.most_pages),
        scale: 1,
        regions: BTreeMap::new(),
        schemes: [scheme(false, LEAST), scheme(true, u64::MAX)],
        free: 0,
        next: ROUND,
        wake: Picos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::order::{Fails, OrderId};
    use homenode_core::units::{NodeId, Pages as Count};

    /// The module's example, and the ends of the scale.
    #[test]
    fn a_score_is_the_mean_of_the_count_and_of_the_logarithm_of_the_age() {
        let hot = |accessed, age| hotness(accessed, 20, Picos::from_secs(age), SECOND);
        assert_eq!(hot(10, 5), 51);
        // No age at all, a second, and as old as can be.
        assert_eq!([hot(20, 0), hot(20, 1), hot(20, 1 << 20)], [74, 74, 90]);
        assert_eq!([hot(1, 0), hot(0, 0), hot(0, 1), hot(0, 100)], [26, 24, 23, 18]);
        // On a machine of 1:10 a second is a tenth.
        assert_eq!(hotness(10, 20, Picos::from_ms(500), Picos::from_ms(100)), 51);
    }

    #[test]
    fn a_quota_grows_by_what_is_missing_and_falls_by_what_is_too_much() {
        assert_eq!(next_quota(50_000, 10_000), 50_000);
        assert_eq!(next_quota(50_000, 0), 100_000);
        assert_eq!(next_quota(50_000, 6_000), 70_000);
        assert_eq!(next_quota(50_000, 10_030), 49_850);
        assert_eq!([next_quota(50_000, 19_000), next_quota(50_000, 20_000)], [LEAST, LEAST]);
        assert_eq!(next_quota(u64::MAX, 1), u64::MAX);
        // The fast node is full but for four thousandths: nothing is missing above, a fifth below.
        let scheme = |up| Scheme { up, quota: LEAST, goes_on: None, applied: Applied::default() };
        assert_eq!([true, false].map(|up| scheme(up).reached(4, 1000)), [9_989, 8_000]);
    }

    /// Two regions below that are as hot, one that is less, one that is not accessed at all, and one
    /// above.
    #[test]
    fn a_round_takes_what_scores_best_by_address_and_goes_on_where_its_quota_ended() {
        let text = include_str!("../../../../machines/small-cxl.toml");
        let machine = homenode_config::parse_machine("small-cxl.toml", text).expect("a machine");
        let who = Who { pid: 7, start: 1 };
        let mut pages = Pages::new(&machine, 1000);
        let resident = |start, on| {
            let span = Span { start, end: start + 64 };
            Seen::Resident { who, span, on: NodeId(on), pages: Count(64) }
        };
        let task = Seen::Task { who, ran: Picos::ZERO, node: None, resident: Count(320) };
        let done = |order| {
            let (tried, moved, fails) = (Count(0), Count(0), Fails::default());
            Seen::Done { order: OrderId(order), tried, moved, fails, took: Picos::ZERO }
        };
        let places = [(0, 1), (64, 1), (128, 1), (192, 1), (256, 0)].map(|(s, on)| resident(s, on));
        let told = [task.clone(), done(1), task].into_iter().chain(places).chain([done(2)]);
        pages.take(&told.collect::<Vec<_>>(), |_| {}, |_, _| {});
        let region = |start, accessed| {
            let span = Span { start, end: start + 64 };
            Region { span, accessed, checks: 20, age: SECOND }
        };
        let all = [(0, 20), (64, 10), (128, 20), (192, 0), (256, 20)].map(|(s, n)| region(s, n));
        let regions = BTreeMap::from([(who, all.to_vec())]);
        let mut scheme = |up| {
            let mut scheme =
                Scheme { up, quota: LEAST, goes_on: None, applied: Applied::default() };
            let mut spans = |quota, seconds| {
                let round = Round {
                    now: Picos::from_secs(seconds),
                    quota: quota * PAGE_SIZE,
                    second: SECOND,
                };
                let moves = scheme.apply(&mut pages, &regions, &round);
                let span = |m: &Vec<At>| m.first().zip(m.last()).map(|(a, b)| (a.1, b.1 + 1));
                moves.iter().filter_map(span).collect::<Vec<_>>()
            };
            [spans(100, 100), spans(100, 101), spans(1000, 102)]
        };
        assert_eq!(
            scheme(true),
            [
                // The less hot one does not fit; of the other the quota takes a part.
                vec![(0, 64), (128, 164)],
                // From there to the end, and no further.
                vec![(164, 192)],
                // All of it fits.
                vec![(0, 64), (64, 128), (128, 192)],
            ]
        );
        // What is above and accessed is nothing for either.
        assert_eq!(scheme(false), [const { Vec::new() }; 3]);
    }

    #[test]
    fn the_age_of_what_a_scheme_was_applied_to_begins_anew() {
        let who = Who { pid: 7, start: 1 };
        let (mut applied, at) = (Applied::default(), Picos::from_secs);
        let span = |start, end| Span { start, end };
        let of = |span, age| Region { span, accessed: 1, checks: 20, age };
        applied.note(who, span(0, 50), at(10));
        let whole = of(span(0, 100), at(30));
        assert_eq!(applied.age(who, &of(span(0, 50), at(30)), at(12)), at(2));
        assert_eq!(applied.age(who, &whole, at(12)), at(16), "half of it two seconds ago");
        // The middle once more: what is left to either side is as old as it was.
        applied.note(who, span(20, 30), at(16));
        assert_eq!(applied.age(who, &of(span(10, 40), at(30)), at(18)), at(6));
        assert_eq!(applied.0.len(), 3);
        // DAMON itself has begun it anew since then: nothing is left to remember.
        assert_eq!(applied.age(who, &of(span(0, 50), at(1)), at(18)), at(1));
        assert!(applied.0.is_empty());
    }
}
