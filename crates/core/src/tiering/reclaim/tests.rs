use super::*;
use KernelVersion::{V6_1, V6_12};

// specs/tiering.md#rounds: goal = sum over zones of max(high, 32).
#[test]
fn goal() {
    assert_eq!(scan_goal([Pages(4144), Pages(5)]), Pages(4176));
    assert_eq!(scan_goal([]), Pages(0));
}

/// Source: specs/tiering.md#rounds. 12 down to 1; priority falls if less than the goal was
/// scanned or nothing reclaimed.
#[test]
fn priorities() {
    let goal = Pages(100);
    let pass = |r: &mut Round, scanned, reclaimed| {
        r.pass_done(goal, Pages(scanned), Pages(reclaimed), false, V6_12)
    };
    let mut r = Round::default();
    assert!(pass(&mut r, 100, 1));
    assert_eq!(r.priority, 12);
    assert!(pass(&mut r, 99, 1));
    assert!(pass(&mut r, 100, 0));
    assert_eq!((r.priority, r.nr_reclaimed), (10, Pages(2)));
    let mut r = Round::default();
    let passes = 1 + (0..100).take_while(|_| pass(&mut r, 0, 0)).count();
    assert_eq!((passes, r.priority), (12, 0));
}

/// Source: specs/tiering.md#kswapd. Woken for 512 pages, it aims so much higher until it has
/// reclaimed 1024.
#[test]
fn a_round_for_a_huge_page_gives_in() {
    let mut r = Round::asked_for(Pages(512));
    let pass = |r: &mut Round, n| r.pass_done(Pages(100), Pages(n), Pages(n), false, V6_12);
    assert!(pass(&mut r, 1000));
    assert_eq!((r.wants, r.has_given_in()), (Pages(512), false));
    assert!(pass(&mut r, 24));
    assert_eq!((r.wants, r.has_given_in()), (Pages(1), true));
    let mut r = Round::default();
    assert!(pass(&mut r, 100));
    assert!(!r.has_given_in());
}

/// Source: specs/tiering.md#rounds. Where only files were looked at, in vain, a round begins
/// once more for both kinds; 6.1's does not.
#[test]
fn once_more_without_sparing_anonymous_pages() {
    let passes = |trims: bool, found_at: Option<usize>, version| {
        let mut r = Round::default();
        let mut nr = 0;
        loop {
            nr += 1;
            let reclaimed = Pages(u64::from(found_at == Some(nr)));
            let trim = trims && !r.no_cache_trim;
            if !r.pass_done(Pages(100), Pages(0), reclaimed, trim, version) {
                return nr;
            }
        }
    };
    assert_eq!(passes(false, None, V6_12), 12);
    assert_eq!(passes(true, None, V6_12), 24);
    assert_eq!(passes(true, Some(3), V6_12), 12);
    assert_eq!(passes(true, None, V6_1), 12);
}

/// Source: specs/tiering.md#kswapd. Hopeless after 16 rounds without progress; any resets.
#[test]
fn hopeless() {
    let mut k = Kswapd::default();
    for i in 0..16 {
        assert!(k.heeds_wakeup(false), "{i}");
        k.round_done(&Round::default());
    }
    assert!(k.is_hopeless() && !k.heeds_wakeup(false));
    k.note_progress();
    assert!(k.heeds_wakeup(false) && !k.heeds_wakeup(true));
    assert!(!Kswapd { running: true, failures: 0 }.heeds_wakeup(false));
    k.round_done(&Round { nr_reclaimed: Pages(1), ..Round::default() });
    assert_eq!(k.failures, 0);
}

// specs/tiering.md#lists: ratio = isqrt(10·GiB of both lists), 1 below 1 GiB.
#[test]
fn inactive_low() {
    let low = |inactive, active| inactive_is_low(Pages(inactive), Pages(active));
    assert!(!low(100, 100) && low(100, 101));
    let gib = 262_144;
    // 1 GiB: ratio 3. 10 GiB: ratio 10.
    assert!(!low(gib / 4, gib * 3 / 4) && low(gib / 4 - 1, gib * 3 / 4 + 1));
    assert!(!low(238_313, 10 * gib - 238_313) && low(238_312, 10 * gib - 238_312));
    assert!(!low(0, 0));
}

// specs/tiering.md#references: the reference test of an inactive page.
#[test]
fn references() {
    assert_eq!(check_references(0, true, true), Reference::Cold);
    assert_eq!(check_references(1, false, false), Reference::Keep);
    assert_eq!(check_references(1, true, false), Reference::Activate);
    assert_eq!(check_references(2, false, false), Reference::Activate);
    assert_eq!(check_references(1, false, true), Reference::Activate);
    assert!(stays_active(1, true) && !stays_active(0, true) && !stays_active(9, false));
}

fn lists() -> ListFacts {
    ListFacts {
        can_reclaim_anon: true,
        can_age_anon: true,
        inactive_anon: Pages(10_000),
        active_anon: Pages(100_000),
        inactive_file: Pages(10_000),
        active_file: Pages(100_000),
        free: Pages(5000),
        sum_high: Pages(4144),
        anon_refaults: false,
        file_refaults: false,
        swappiness: 60,
        costs: LruCosts::default(),
    }
}

/// The shares of an ordinary pass, which decides itself what may be deactivated.
fn shares_of(l: &ListFacts, priority: u32) -> Shares {
    let may = MayDeactivate::new(l);
    shares(l, priority, may, trims_cache(l, priority, may, true))
}

// specs/tiering.md#shares, in their order.
#[test]
fn which_lists() {
    let l = lists();
    assert_eq!(shares_of(&ListFacts { can_reclaim_anon: false, ..l }, 12), Shares::FILE_ONLY);
    let tiny = ListFacts {
        inactive_file: Pages(1),
        active_file: Pages(1),
        free: Pages(4142),
        inactive_anon: Pages(100_000),
        ..l
    };
    assert_eq!(shares_of(&tiny, 12), Shares::ANON_ONLY);
    assert_ne!(
        shares_of(&ListFacts { inactive_anon: Pages(99_999), ..tiny }, 12),
        Shares::ANON_ONLY
    );
    assert_ne!(shares_of(&ListFacts { free: Pages(4143), ..tiny }, 12), Shares::ANON_ONLY);
    let plenty = ListFacts { inactive_file: Pages(100_000), ..l };
    assert_eq!(shares_of(&plenty, 12), Shares::FILE_ONLY);
    assert_ne!(shares_of(&ListFacts { file_refaults: true, ..plenty }, 12), Shares::FILE_ONLY);
    assert_ne!(
        shares_of(&ListFacts { inactive_file: Pages(100), active_file: Pages(50), ..l }, 12),
        Shares::FILE_ONLY
    );
    assert_eq!(
        shares_of(&ListFacts { inactive_file: Pages(100), active_file: Pages(50), ..l }, 6),
        Shares::FILE_ONLY
    );
}

// specs/tiering.md#shares: anon 60·(3T+1)/(T+a+1), file 140·(3T+1)/(T+f+1).
#[test]
fn by_cost() {
    assert_eq!(shares_of(&lists(), 12), Shares { anon: 60, file: 140, of: 200 });
    let s = shares_of(&ListFacts { costs: LruCosts { anon: 300, file: 100 }, ..lists() }, 12);
    assert_eq!(s, Shares { anon: 60 * 1201 / 701, file: 140 * 1201 / 501, of: 102 + 335 });
    assert_eq!(s.target(false, Pages(1 << 20), 12), Pages(256 * 102 / 437));
    assert_eq!(s.target(true, Pages(1 << 20), 1), Pages((1 << 19) * 335 / 437));
    let never = shares_of(&ListFacts { swappiness: 0, ..lists() }, 12);
    assert_eq!(never.target(false, Pages(1 << 20), 1), Pages(0));
}

// specs/tiering.md#shares: at priority 0 both kinds are scanned whole, whatever they
// cost; only where anonymous pages can't go, or swappiness is 0, they are left alone.
#[test]
fn the_last_pass_looks_at_everything() {
    let l = ListFacts { costs: LruCosts { anon: 300, file: 0 }, ..lists() };
    let s = shares_of(&l, 0);
    assert_eq!(s, Shares::EQUAL);
    assert_eq!(s.target(false, Pages(1000), 0), Pages(1000));
    assert_eq!(s.target(true, Pages(70), 0), Pages(70));
    assert_ne!(shares_of(&l, 1), Shares::EQUAL);
    assert_ne!(shares_of(&ListFacts { swappiness: 0, ..l }, 0), Shares::EQUAL);
    assert_eq!(shares_of(&ListFacts { can_reclaim_anon: false, ..l }, 0), Shares::FILE_ONLY);
}

// specs/tiering.md#shares: +32 a page of I/O, +1 a page rotated, halved beyond a quarter of the
// lists; 6.1.
#[test]
fn costs() {
    let mut c = LruCosts::default();
    c.note(false, 2, 5, Pages(1000), V6_12);
    assert_eq!(c, LruCosts { anon: 69, file: 0 });
    c.note(true, 0, 181, Pages(1000), V6_12);
    assert_eq!(c, LruCosts { anon: 69, file: 181 }, "250 is not more than 1000/4");
    c.note(true, 0, 1, Pages(1000), V6_12);
    assert_eq!(c, LruCosts { anon: 34, file: 91 });
    let mut old = LruCosts::default();
    old.note(false, 2, 5, Pages(1000), V6_1);
    assert_eq!(old, LruCosts { anon: 2, file: 0 });
}

proptest::proptest! {
    // A pass never asks for more of a list than the priority allows, and the
    // denominator is never 0.
    #[test]
    fn targets_are_bounded(
        sizes: [u32; 4], free in 0u64..1 << 30, swappiness in 0u32..=200,
        a in 0u64..1 << 40, f in 0u64..1 << 40, priority in 1u32..=12, anon: bool,
    ) {
        let [ia, aa, inf, af] = sizes.map(|s| Pages(u64::from(s)));
        let l = ListFacts {
            can_reclaim_anon: anon, can_age_anon: anon, inactive_anon: ia, active_anon: aa, inactive_file: inf,
            active_file: af, free: Pages(free), sum_high: Pages(4144),
            anon_refaults: false, file_refaults: false,
            swappiness, costs: LruCosts { anon: a, file: f },
        };
        let s = shares_of(&l, priority);
        proptest::prop_assert!(s.of > 0);
        for (file, size) in [(false, ia), (false, aa), (true, inf), (true, af)] {
            proptest::prop_assert!(s.target(file, size, priority).0 <= size.0 >> priority);
        }
    }
}

/// What a pass looks at, turn by turn, where each page that it scans of an inactive list is
/// reclaimed with a probability of `reclaimed` in a hundred.
fn turns(mut budget: Budget, reclaimed: u64) -> (String, Pages) {
    let (mut text, mut got) = (String::new(), 0);
    while let Some((lru, batch)) = budget.next(Pages(got)) {
        let name = ["a", "A", "f", "F"][lru as usize];
        text += &format!("{name}{} ", batch.0);
        got += if lru.active() { 0 } else { batch.0 * reclaimed / 100 };
    }
    (text.trim_end().to_owned(), Pages(got))
}

fn budget(targets: [u64; 4], goal: u64) -> Budget {
    Budget::new(targets.map(Pages), Pages(goal), true, 12, V6_12)
}

/// Source: specs/tiering.md#turns. Lists take turns of 32 in their order; active anonymous
/// pages don't run on alone, active pages of files do.
#[test]
fn lists_take_turns() {
    let of = |targets| turns(budget(targets, 1000), 0).0;
    assert_eq!(of([70, 40, 33, 1]), "a32 A32 f32 F1 a32 A8 f1 a6");
    assert_eq!(of([1, 100, 0, 0]), "a1 A32");
    assert_eq!(of([0, 100, 0, 0]), "");
    assert_eq!(of([0, 0, 0, 70]), "F32 F32 F6");
    assert_eq!(of([0; 4]), "");
}

/// Source: specs/tiering.md#turns. One kind of lists through and the goal reached: over. It
/// is asked between turns only, so a turn is finished.
#[test]
fn a_pass_ends_at_its_goal() {
    assert_eq!(turns(budget([1000, 1000, 0, 0], 64), 100).0, "a32 A32 a32 A32");
    let all = turns(budget([1000, 0, 0, 0], 64), 50);
    assert_eq!(all.1, Pages(64));
}

/// Source: specs/tiering.md#turns, the nudge: of 1000 and 4000 pages 480 each are done; the
/// smaller kind has 51 % left and stops, the other goes on to 49 % of its 4000.
#[test]
fn the_nudge() {
    let mut b = budget([1000, 0, 4000, 0], 960);
    for _ in 0..15 {
        assert_eq!(b.next(Pages(0)), Some((Lru::InactiveAnon, Pages(32))));
        assert_eq!(b.next(Pages(0)), Some((Lru::InactiveFile, Pages(32))));
    }
    assert_eq!(b.next(Pages(960)), Some((Lru::InactiveFile, Pages(32))));
    assert_eq!(b.left.map(|p| p.0), [0, 0, 1480 - 32, 0]);
    assert_eq!(b.next(Pages(992)), None, "after one more turn it is over");
}

/// Source: specs/tiering.md#turns. Before 6.1 what the nudge left was scanned.
#[test]
fn before_6_1_the_nudge_was_the_last_word() {
    let old = Budget::new([64, 0, 640, 0].map(Pages), Pages(32), true, 12, KernelVersion::V5_18);
    let new = Budget { nudged_for_good: false, ..old };
    assert_eq!(turns(old, 100).1, Pages(32 + 640 * 51 / 100));
    assert_eq!(turns(new, 100).1, Pages(32 + 32 + 32));
}

/// Source: specs/tiering.md#turns. Direct reclaim at its first priority takes its whole
/// budget, at others it stops as kswapd does.
#[test]
fn direct_reclaim_is_proportional_at_first() {
    let direct = |priority| {
        let targets = [320, 0, 0, 0].map(Pages);
        turns(Budget::new(targets, Pages(32), false, priority, V6_12), 100).1
    };
    assert_eq!((direct(12), direct(11)), (Pages(320), Pages(32)));
}

/// Source: specs/tiering.md#direct. In vain: once more as it is ([6.1] not), and with
/// deactivation forced if an active list was found frozen.
#[test]
fn runs_of_direct_reclaim() {
    let runs = |frozen, version| {
        let mut r = DirectRuns::default();
        let mut seen = vec![r.forced];
        while r.again(frozen, version) {
            seen.push(r.forced);
        }
        seen
    };
    assert_eq!(runs(false, V6_12), [false, false]);
    assert_eq!(runs(true, V6_12), [false, false, true]);
    assert_eq!(runs(false, V6_1), [false]);
    assert_eq!(runs(true, V6_1), [false, true]);
}

/// Source: specs/tiering.md#lists. Refaults, or an inactive list that is low, allow it.
#[test]
fn what_may_be_deactivated() {
    let even = ListFacts { inactive_anon: Pages(50_000), inactive_file: Pages(50_000), ..lists() };
    let even = ListFacts { active_anon: Pages(50_000), active_file: Pages(50_000), ..even };
    let may = |l: &ListFacts| {
        let may = MayDeactivate::new(l);
        (may.of(Lru::ActiveAnon), may.of(Lru::ActiveFile))
    };
    assert_eq!(may(&even), (false, false));
    assert_eq!(may(&ListFacts { anon_refaults: true, ..even }), (true, false));
    assert_eq!(may(&ListFacts { file_refaults: true, ..even }), (false, true));
    assert_eq!(may(&lists()), (true, true));
    assert!(lists().ages_anon() && !even.ages_anon());
    assert!(!ListFacts { can_age_anon: false, ..lists() }.ages_anon());
}
