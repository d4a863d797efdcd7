use super::*;
use KernelVersion::{V6_1, V6_12};

// SPEC §B.7: goal = sum over zones of max(high, 32).
#[test]
fn goal() {
    assert_eq!(scan_goal([Pages(4144), Pages(5)]), Pages(4176));
    assert_eq!(scan_goal([]), Pages(0));
}

// SPEC §B.7: 12 down to 1; falls if less than the goal was scanned or nothing reclaimed.
#[test]
fn priorities() {
    let goal = Pages(100);
    let mut r = Round::default();
    assert!(r.pass_done(goal, Pages(100), Pages(1), false));
    assert_eq!(r.priority, 12);
    assert!(r.pass_done(goal, Pages(99), Pages(1), false));
    assert!(r.pass_done(goal, Pages(100), Pages(0), false));
    assert_eq!((r.priority, r.nr_reclaimed), (10, Pages(2)));
    assert!(!r.pass_done(goal, Pages(1), Pages(0), true), "balanced ends the round");
    let mut r = Round::default();
    let passes = 1 + (0..100).take_while(|_| r.pass_done(goal, Pages(0), Pages(0), false)).count();
    assert_eq!((passes, r.priority), (12, 0));
}

// SPEC §B.5, §B.7: hopeless after 16 rounds without progress; any progress resets.
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
    k.failures = 15;
    k.round_done(&Round { priority: 3, nr_reclaimed: Pages(1) });
    assert_eq!(k.failures, 0);
}

// SPEC §B.7: ratio = isqrt(10·GiB of both lists), 1 below 1 GiB.
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

// SPEC §B.7: the reference test of an inactive page.
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
        inactive_anon: Pages(10_000),
        active_anon: Pages(100_000),
        inactive_file: Pages(10_000),
        active_file: Pages(100_000),
        free: Pages(5000),
        sum_high: Pages(4144),
        file_refaults: false,
        swappiness: 60,
        costs: LruCosts::default(),
    }
}

// SPEC §B.7 shares, in their order.
#[test]
fn which_lists() {
    let l = lists();
    assert_eq!(shares(&ListFacts { can_reclaim_anon: false, ..l }, 12), Shares::FILE_ONLY);
    let tiny = ListFacts {
        inactive_file: Pages(1),
        active_file: Pages(1),
        free: Pages(4142),
        inactive_anon: Pages(100_000),
        ..l
    };
    assert_eq!(shares(&tiny, 12), Shares::ANON_ONLY);
    assert_ne!(shares(&ListFacts { inactive_anon: Pages(99_999), ..tiny }, 12), Shares::ANON_ONLY);
    assert_ne!(shares(&ListFacts { free: Pages(4143), ..tiny }, 12), Shares::ANON_ONLY);
    let plenty = ListFacts { inactive_file: Pages(100_000), ..l };
    assert_eq!(shares(&plenty, 12), Shares::FILE_ONLY);
    assert_ne!(shares(&ListFacts { file_refaults: true, ..plenty }, 12), Shares::FILE_ONLY);
    assert_ne!(
        shares(&ListFacts { inactive_file: Pages(100), active_file: Pages(50), ..l }, 12),
        Shares::FILE_ONLY
    );
    assert_eq!(
        shares(&ListFacts { inactive_file: Pages(100), active_file: Pages(50), ..l }, 6),
        Shares::FILE_ONLY
    );
}

// SPEC §B.7: anon 60·(3T+1)/(T+a+1), file 140·(3T+1)/(T+f+1).
#[test]
fn by_cost() {
    assert_eq!(shares(&lists(), 12), Shares { anon: 60, file: 140, of: 200 });
    let s = shares(&ListFacts { costs: LruCosts { anon: 300, file: 100 }, ..lists() }, 12);
    assert_eq!(s, Shares { anon: 60 * 1201 / 701, file: 140 * 1201 / 501, of: 102 + 335 });
    assert_eq!(s.target(false, Pages(1 << 20), 12), Pages(256 * 102 / 437));
    assert_eq!(s.target(true, Pages(1 << 20), 1), Pages((1 << 19) * 335 / 437));
    let never = shares(&ListFacts { swappiness: 0, ..lists() }, 12);
    assert_eq!(never.target(false, Pages(1 << 20), 1), Pages(0));
}

// specs/tiering.md#shares: at priority 0 both kinds are scanned whole, whatever they
// cost; only where anonymous pages can't go, or swappiness is 0, they are left alone.
#[test]
fn the_last_pass_looks_at_everything() {
    let l = ListFacts { costs: LruCosts { anon: 300, file: 0 }, ..lists() };
    let s = shares(&l, 0);
    assert_eq!(s, Shares::EQUAL);
    assert_eq!(s.target(false, Pages(1000), 0), Pages(1000));
    assert_eq!(s.target(true, Pages(70), 0), Pages(70));
    assert_ne!(shares(&l, 1), Shares::EQUAL);
    assert_ne!(shares(&ListFacts { swappiness: 0, ..l }, 0), Shares::EQUAL);
    assert_eq!(shares(&ListFacts { can_reclaim_anon: false, ..l }, 0), Shares::FILE_ONLY);
}

// SPEC §B.7: +32 a page of I/O, +1 a page rotated, halved beyond a quarter of the lists; 6.1.
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
            can_reclaim_anon: anon, inactive_anon: ia, active_anon: aa, inactive_file: inf,
            active_file: af, free: Pages(free), sum_high: Pages(4144), file_refaults: false,
            swappiness, costs: LruCosts { anon: a, file: f },
        };
        let s = shares(&l, priority);
        proptest::prop_assert!(s.of > 0);
        for (file, size) in [(false, ia), (false, aa), (true, inf), (true, af)] {
            proptest::prop_assert!(s.target(file, size, priority).0 <= size.0 >> priority);
        }
    }
}

/// Source: specs/tiering.md#rounds.
#[test]
fn a_pass_of_kswapd_ends_at_its_goal() {
    let pages = |n: [u64; 4]| n.map(Pages);
    // One kind of lists only: over.
    let anon = pages([50_000, 0, 0, 0]);
    assert_eq!(after_goal(anon, pages([40_000, 0, 0, 0])), pages([0; 4]));
    // Half of the anonymous lists is left, and more of the files': those go on to half.
    let targets = pages([1000, 1000, 4000, 4000]);
    let cut = after_goal(targets, pages([500, 500, 3000, 3500]));
    assert_eq!(cut, pages([0, 0, 1000, 1500]));
    assert_eq!(after_goal(targets, cut), pages([0; 4]));
    // The other kind is ahead already.
    assert_eq!(after_goal(targets, pages([900, 900, 1000, 900])), pages([0, 0, 0, 0]));
}
