//! Sources that show one access in ten thousand: what is chance, and what is not.

use super::rig::{Rig, expander};
use crate::engine::Settings;
use crate::engine::along::Along;
use crate::policy::Policy as _;
use crate::policy::seen::{Seen, Source, Who};
use crate::units::{NodeId, Picos};

/// Accesses that a sample stands for.
const PERIOD: u64 = 10_007;
const WHO: Who = Who { pid: 7, start: 100 };

/// A process of 16384 pages, of which DRAM is full with the first 3880 and the others are
/// on the expander, and a source that shows `rate` samples a second, by a fixed
/// sequence of chance.
struct Sparse {
    rig: Rig,
    rate: u64,
    chance: u64,
    second: u64,
}

impl Sparse {
    const PAGES: u64 = 16_384;
    const FAST: u64 = 3_880;

    fn new(rate: u64, seed: u64) -> Self {
        Self::with(Settings::default(), rate, seed)
    }

    fn with(settings: Settings, rate: u64, seed: u64) -> Self {
        let m = expander(4_000, 40_000);
        let mut rig = Rig::new(&m, settings, Source::Pmu, &[]);
        let (fast, all) = (Self::FAST, Self::PAGES);
        rig.line(&format!("map 7@100 0-{fast} on 0"));
        rig.line(&format!("map 7@100 {fast}-{all} on 1"));
        Self { rig, rate, chance: seed, second: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        // Knuth's generator; its upper bits are good enough.
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % n
    }

    /// Lets seconds pass; `page` says which page an access goes to.
    fn run(&mut self, seconds: u64, page: impl Fn(&mut Self) -> u64) {
        self.run_tenths(seconds * 10, page);
    }

    fn run_tenths(&mut self, tenths: u64, page: impl Fn(&mut Self) -> u64) {
        for _ in 0..tenths {
            self.rig.line("nodes");
            self.rig.line("task 7@100 ran 2000 node 0");
            let mut seen = Vec::new();
            for _ in 0..self.rate / 10 {
                let vpn = page(self);
                seen.push(Seen::Sample { who: WHO, vpn, from: NodeId(0), period: PERIOD });
            }
            self.rig.tell(&seen);
            self.second += 100;
            self.rig.line(&format!("to {}", self.second));
        }
    }

    fn moved(&self) -> u64 {
        self.rig.engine.ledger().total().moved.0
    }

    /// Whether a page is in DRAM.
    fn is_fast(&self, page: u64) -> bool {
        self.rig.where_is("7@100", page..page + 1).first().is_some_and(|(n, _)| *n == 0)
    }

    /// How many of the hottest pages by [`zipf`] are in DRAM.
    fn of_the_hottest(&self, nr: u64) -> usize {
        (1..=nr).filter(|rank| self.is_fast(page_of(*rank))).count()
    }

    /// What would be saved within the horizon if no access went to the expander.
    fn all(&self) -> Picos {
        Picos(self.rate * PERIOD * 185_000 * 10)
    }
}

// specs/engine.md#estimate: every page is accessed as often as any other, so no move
// gains anything, whatever was sampled; and nothing is promised.
#[test]
fn noise_moves_nothing_and_promises_nothing() {
    for seed in 1..=4 {
        let mut s = Sparse::new(900, seed);
        s.run(20, |s| s.below(Sparse::PAGES));
        let saves = s.rig.engine.ledger().saves;
        assert!(s.moved() < Sparse::PAGES / 20, "seed {seed}: {} pages", s.moved());
        assert!(
            saves.0 < s.all().0 / 200,
            "seed {seed}: {} of {} ns",
            saves.as_ns(),
            s.all().as_ns()
        );
    }
}

// specs/engine.md#estimate: 64 pages that get a third of all accesses, among others of
// which each gets one now and then.
#[test]
fn a_hot_block_among_sparse_samples_is_found() {
    for seed in 1..=4 {
        let mut s = Sparse::new(300, seed);
        let hot = 10_000..10_064;
        let page = |s: &mut Sparse| match s.below(3) {
            0 => 10_000 + s.below(64),
            _ => s.below(Sparse::PAGES),
        };
        s.run(6, page);
        let fast = s.rig.where_is("7@100", hot).first().filter(|(n, _)| *n == 0).map_or(0, |n| n.1);
        assert!(fast >= 60, "seed {seed}: {fast} of 64 pages after 6 s");
        // What is promised is not more than they save, a third of all. It is less, as an order
        // promises what is known when it is made, and the first are made after few samples.
        let saves = s.rig.engine.ledger().saves.0;
        let third = s.all().0 / 3;
        assert!((third / 5..third * 5 / 4).contains(&saves), "seed {seed}: {saves} of {third} ps");
    }
}

// specs/engine.md#estimate: half of the memory is ten times as hot as the other. Few of
// its pages were ever sampled when it is found: silence in a hot neighbourhood is no coldness.
#[test]
fn unsampled_pages_are_as_hot_as_their_neighbours() {
    let mut s = Sparse::new(200, 5);
    // The fast node holds half hot, half cold memory.
    let hot = |s: &mut Sparse| match s.below(11) {
        0 => 1_940 + s.below(Sparse::PAGES - 1_940),
        _ => s.below(1_940),
    };
    s.run(10, hot);
    let gone = s.rig.where_is("7@100", 0..1_900).into_iter().find(|(n, _)| *n == 1);
    assert!(gone.is_none_or(|(_, n)| n < 100), "hot pages were demoted: {gone:?}");
    assert_eq!(s.rig.engine.ledger().unknown, 0);
}

// specs/engine.md#pace: who has much to think about does so less often. Where nothing is to be
// looked at, thinking may have the whole budget, and a quarter of the reserve is left for looks.
#[test]
fn deciding_keeps_a_reserve_for_looks() {
    let mut s = Sparse::new(900, 1);
    let settings = Settings::default();
    let budget = |seconds: u64| u64::from(settings.cpu_permille) * 1_000_000_000 * seconds;
    for second in 1..=40 {
        s.run(1, |s| s.below(Sparse::PAGES));
        let (all, cpu) = (s.rig.engine.ledger(), s.rig.engine.cpu);
        let took = all.observing.0 + all.deciding.0;
        // Of ten seconds before, and of those since.
        assert!(took <= budget(10 + second), "{took} ps after {second} s");
        assert!(cpu.has() >= cpu.depth() / 4, "{} of {} after {second} s", cpu.has(), cpu.depth());
    }
    let decisions = s.rig.engine.ledger().decisions;
    assert!((20..60).contains(&decisions), "{decisions}");
}

// specs/engine.md#pairs: which page a sample names is chance here, so 32 chunks are told apart,
// and what is cut by where memory is.
#[test]
fn pages_that_are_alike_are_not_kept_apart() {
    let mut s = Sparse::new(900, 2);
    s.run(30, |s| s.below(Sparse::PAGES));
    let nr = s.rig.engine.stretches(WHO).count();
    assert!((16..200).contains(&nr), "{nr} stretches");
}

// specs/engine.md#pairs: one page of 64, anywhere, gets half of all accesses.
#[test]
fn pages_that_are_hit_again_are_kept_apart_and_found() {
    let mut s = Sparse::new(900, 3);
    let page = |s: &mut Sparse| match s.below(2) {
        0 => s.below(256) * 64 + 63,
        _ => s.below(Sparse::PAGES),
    };
    s.run(12, page);
    let nr = s.rig.engine.stretches(WHO).count();
    assert!(nr >= 256, "{nr} stretches");
    let fast = (0..256).filter(|i| s.is_fast(i * 64 + 63)).count();
    // By chance it would be 61: the fast node holds 3,880 of 16,384 pages.
    assert!(fast >= 200, "{fast} of 256 are in DRAM");
}

// specs/engine.md#memory: what was not sampled for two long half-lives is taken together.
#[test]
fn what_was_sampled_long_ago_is_not_kept_apart() {
    let mut s = Sparse::new(900, 3);
    s.run(12, |s| s.below(256) * 64 + 63);
    let then = s.rig.engine.stretches(WHO).count();
    s.run(60, |s| s.below(64));
    let now = s.rig.engine.stretches(WHO).count();
    assert!(then >= 256 && now < then / 2 + 256, "{then}, {now} stretches");
}

/// Pages by Zipf's law with exponent 1, hot ones scattered over all.
fn zipf(s: &mut Sparse) -> u64 {
    // As many accesses to the pages of each power of two of ranks.
    let octave = 1 << s.below(u64::from(Sparse::PAGES.ilog2()));
    page_of(octave + s.below(octave))
}

/// The page that has a rank.
fn page_of(rank: u64) -> u64 {
    // The number of pages is a power of two: an odd factor permutes them.
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % Sparse::PAGES
}

// specs/engine.md#apart: a page beside a hot one is no hotter for it. Most of what goes up was sampled, hardly
// anything comes down again, and what goes down was not.
#[test]
fn of_scattered_pages_only_those_go_up_that_were_seen() {
    for seed in 1..=3 {
        let mut s = Sparse::new(900, seed);
        s.run(12, zipf);
        let hot = s.of_the_hottest(256);
        assert!(hot >= 245, "seed {seed}: {hot} of the 256 hottest are in DRAM");
        // Each of about 3,000 that were sampled goes up once, if it is not there, and makes one page go.
        let moved = s.moved();
        assert!(moved < 6_000, "seed {seed}: {moved} pages");
    }
}

// specs/engine.md#pairs: the budget affords 100 stretches here, which are a few chunks of 32. Moves save enough for
// more, so pages are told apart of what is seen on the expander. What is in DRAM could only stay there.
#[test]
fn savings_pay_for_pages_that_may_come_up() {
    let settings = Settings { per_span: Picos::from_us(150), ..Settings::default() };
    for seed in 1..=3 {
        let apart = |all: bool| {
            let mut s = Sparse::with(settings, 900, seed);
            s.run(3, |s| {
                loop {
                    let page = zipf(s);
                    if all || page < Sparse::FAST {
                        return page;
                    }
                }
            });
            s
        };
        let nr = |s: &Sparse| s.rig.engine.processes[&WHO].map.weight();
        let (all, in_dram) = (apart(true), apart(false));
        assert!(
            nr(&all) >= 256 && nr(&in_dram) < 200,
            "seed {seed}: {}, {}",
            nr(&all),
            nr(&in_dram)
        );
        let hot = all.of_the_hottest(256);
        assert!(hot >= 210, "seed {seed}: {hot} of the 256 hottest are in DRAM");
    }
}

// specs/engine.md#processes: four threads use the second of processor time up in a quarter of one, and an
// observer who came by once a second would be three quarters late.
#[test]
fn sampling_begins_soon_after_its_second_of_processor_time() {
    let mut rig = Rig::new(&expander(4_000, 40_000), Settings::default(), Source::Pmu, &[]);
    let mut begun = None;
    for tenth in 0..20 {
        rig.line("nodes");
        rig.line(&format!("task 7@100 ran {} node 0", tenth * 400));
        if tenth == 1 {
            let wants = rig.engine.timeout().unwrap();
            assert!(wants >= Picos::from_ms(250) && wants < Picos::from_ms(251), "{wants:?}");
        }
        begun = begun.or((rig.engine.ledger().watched > 0).then_some(tenth));
        rig.line(&format!("to {}", (tenth + 1) * 100));
    }
    assert_eq!(begun, Some(3), "1.2 s of processor time");
}

// specs/engine.md#along: in huge pages a hot page takes 511 others along, and what makes room takes hot
// ones. Three small orders show it, and from then on chunks are judged as a whole.
#[test]
fn where_pages_move_in_huge_ones_they_are_not_told_apart() {
    let mut s = Sparse::new(900, 1);
    s.rig.line("huge");
    s.run(12, zipf);
    let nr = s.rig.engine.stretches(WHO).count();
    assert!(nr < 200, "{nr} stretches");
    // Chunks differ little: each has hot and cold pages.
    assert!(s.moved() < Sparse::PAGES, "{} pages", s.moved());
}

// specs/engine.md#along: the page that gets a third of all accesses lies in a huge page of cold ones.
// As long as nobody knows that they move together, it must not go down with these.
#[test]
fn the_hottest_page_does_not_go_down_with_its_neighbours() {
    for seed in 1..=4 {
        let mut s = Sparse::new(900, seed);
        s.rig.line("huge");
        for tenth in 0..60 {
            s.run_tenths(1, |s| if s.below(3) == 0 { 1_000 } else { zipf(s) });
            let on = s.rig.where_is("7@100", 1_000..1_001);
            assert_eq!(on, [(0, 1)], "seed {seed}: after {tenth} tenths of a second");
        }
        assert!(s.moved() > 0, "seed {seed}: nothing went anywhere");
    }
}

// specs/engine.md#along: the page that gets a third of all accesses is on the expander, at the beginning of
// its huge page, of which nothing else is used. It goes up, and not down again with the cold end of it
// when other memory comes to be hot.
#[test]
fn what_moves_as_one_is_ordered_as_one() {
    for seed in 1..=4 {
        let mut s = Sparse::new(900, seed);
        s.rig.line("huge");
        let hot = 30 * 512 + 3;
        let mut came = None;
        for tenth in 0..80 {
            let others = (8 + tenth / 20 * 2) * 512;
            s.run_tenths(1, |s| match s.below(3) {
                0 => hot,
                1 => zipf(s) % 4096,
                _ => others + s.below(1024),
            });
            let is_up = s.rig.where_is("7@100", hot..hot + 1) == [(0, 1)];
            came = came.or(is_up.then_some(tenth));
            assert_eq!(came.is_some(), is_up, "seed {seed}: down again after {tenth} tenths");
        }
        assert!(came.is_some(), "seed {seed}: it never went up");
    }
}

// specs/engine.md#along: orders of small parts of huge pages show it, one after the other, without a
// decision between; orders of whole ones show nothing.
#[test]
fn only_small_orders_tell_how_pages_move() {
    let along = |s: &Sparse| s.rig.engine.processes.get(&WHO).map_or(Along::default(), |p| p.along);
    let mut s = Sparse::new(900, 1);
    s.rig.line("huge");
    s.run(4, |s| 20 * 512 + s.below(4 * 512));
    assert!(s.moved() > 1024, "{} pages", s.moved());
    assert!(!along(&s).is_alone(), "four huge pages went up");

    let mut s = Sparse::new(900, 1);
    s.rig.line("huge");
    while along(&s) == Along::default() && s.second < 10_000 {
        s.run_tenths(1, zipf);
    }
    s.run_tenths(1, zipf);
    assert_eq!(along(&s), Along::Together, "three orders within two tenths of a second");
}

// specs/engine.md#pace: where moves have saved more than deciding takes, that pays for it.
#[test]
fn decisions_are_paid_by_what_moves_have_saved() {
    let decisions = |spends: bool| {
        // So dear that a second of the budget is one decision.
        let settings = Settings { per_span: Picos::from_us(100), ..Settings::default() };
        let mut s = Sparse::with(settings, 900, 1);
        let page = |s: &mut Sparse| match s.below(3) {
            0 => 10_000 + s.below(64),
            _ => s.below(Sparse::PAGES),
        };
        s.run(4, page);
        let engine = &mut s.rig.engine;
        assert!(engine.purse.saved() > 0);
        engine.cpu.take(u64::MAX);
        if spends {
            engine.purse.lose(u64::MAX);
        }
        // Other memory is hot by now.
        engine.known = 0;
        let before = engine.ledger().decisions;
        s.run_tenths(5, |s| 12_000 + s.below(64));
        s.rig.engine.ledger().decisions - before
    };
    assert!(decisions(false) >= 3, "{}", decisions(false));
    assert_eq!(decisions(true), 0, "nothing pays for one");
}

// specs/engine.md#kept: what is hot is so for six tenths of a second, in eight chunks that are others each time. A move
// promises ten seconds of that, and when a few have shown what comes of it, fewer are made.
#[test]
fn what_does_not_stay_hot_is_left_where_it_is() {
    let mut s = Sparse::new(900, 4);
    for turn in 0..60 {
        let first = turn * 7 % 24 * 512;
        s.run_tenths(6, |s| 4_096 + (first + s.below(4_096)) % 12_288);
    }
    // If each promise were believed it would be some 85,000.
    let moved = s.moved();
    assert!((1_000..45_000).contains(&moved), "{moved} pages");
}
