use super::*;
use KernelVersion::{V6_12, V7_3};

fn facts(swappiness: u32, priority: u32) -> Facts {
    Facts { swappiness, priority, version: V6_12 }
}

// specs/mglru.md#passes
#[test]
fn initial_priorities() {
    for (inactive, goal, priority) in [
        (0, 1000, 6),
        (65536, 1000, 6),
        (1_048_576, 1000, 10),
        (16_777_216, 4144, 11),
        (4_000_000, 22528, 6),
        (1_048_576, 64, 12),
        (1_048_576, 32, 12),
    ] {
        assert_eq!(initial_priority(Pages(inactive), Pages(goal)), priority, "{inactive} {goal}");
    }
}

// specs/mglru.md#around
#[test]
fn windows() {
    for (page, from, to) in
        [(0, 0, 64), (32, 0, 64), (100, 68, 132), (479, 447, 511), (480, 448, 512), (511, 448, 512)]
    {
        assert_eq!(window(page, 0, 512), (from, to), "{page}");
    }
    assert_eq!(window(5, 0, 40), (0, 40));
}

fn with(anon: [(u64, u64); TIERS], file: [(u64, u64); TIERS]) -> Generations {
    let mut g = Generations::default();
    for (t, tiers) in [anon, file].into_iter().enumerate() {
        g.tally[t].avg_refaulted = tiers.map(|p| p.0);
        g.tally[t].avg_total = tiers.map(|p| p.1);
    }
    g
}

// specs/mglru.md#types
#[test]
fn types() {
    let first = |p| [p, (0, 0), (0, 0), (0, 0)];
    for (anon, file, takes_file) in [
        ((0, 10000), (63, 1000), true),
        ((0, 10000), (64, 1000), false),
        ((430, 10000), (1000, 10000), false),
        ((431, 10000), (1000, 10000), true),
        ((100, 1000), (500, 10000), true),
    ] {
        let g = with(first(anon), first(file));
        assert_eq!(g.choose(&facts(60, 6)).file, takes_file, "{anon:?} {file:?}");
    }
    let mut g = with(first((0, 0)), first((0, 0)));
    assert!(g.choose(&facts(0, 6)).file);
    assert!(g.choose(&facts(1, 6)).file);
    assert!(!g.choose(&facts(200, 6)).file);
    g.min = [0, 1];
    assert!(!g.choose(&facts(1, 6)).file, "anonymous pages are the older");
    assert!(g.choose(&facts(0, 6)).file);
}

// specs/mglru.md#types
#[test]
fn tiers_that_are_spared() {
    let g = with([(0, 0); TIERS], [(100, 10000), (100, 5000), (300, 5000), (63, 10)]);
    assert_eq!(g.own_choice(true, V6_12).last_tier, 1);
    let g = with([(0, 0); TIERS], [(100, 10000), (120, 5000), (300, 5000), (63, 10)]);
    assert_eq!(g.own_choice(true, V6_12).last_tier, 0);
}

// specs/mglru.md#entry
#[test]
fn where_pages_enter() {
    let g = Generations { max: 6, min: [3, 4], ..Generations::default() };
    let none = Flags::default();
    let seq = |file, how| g.entry(file, how, none, V6_12).seq;
    assert_eq!(seq(false, Arrives::Fault), 6);
    assert_eq!(seq(false, Arrives::HintFault), 6);
    assert_eq!(seq(false, Arrives::Demoted), 5);
    assert_eq!(seq(true, Arrives::Demoted), 4, "the oldest of three");
    assert_eq!(seq(false, Arrives::Moved { active: true }), 6);
    assert_eq!(seq(false, Arrives::Kept { activated: false }), 6);
    let g = Generations { min: [3, 3], ..g };
    assert_eq!(g.entry(true, Arrives::Demoted, none, V6_12).seq, 4, "the second of four");
    // 7.3: a fault is not the newest.
    assert_eq!(g.entry(false, Arrives::Fault, none, V7_3).seq, 5);
    assert!(g.entry(false, Arrives::Fault, none, V7_3).flags.referenced);
    assert_eq!(g.entry(true, Arrives::Fault, none, V7_3).seq, 4);
}

// specs/mglru.md#when: the first vector of specs/mglru.md#example, by numbers alone.
#[test]
fn aging_begins_when_nothing_is_old() {
    let mut g = Generations::default();
    let mut sizes: Sizes = [[0; 2]; MAX_GENS];
    sizes[3][0] = 8192;
    assert_eq!(g.step(&sizes, &facts(60, 6)), Step::Evict(Pages(128)));
    assert!(g.advance(60, V6_12, |i, file| i != 3 || file));
    assert_eq!(g.min, [2, 2]);
    assert!(g.runs_dry(60));
    assert_eq!(g.step(&sizes, &facts(60, 12)), Step::Evict(Pages(0)), "nobody ages at 12");
    assert_eq!(g.step(&sizes, &facts(60, 5)), Step::Age);
    g.begin_next(0);
    assert_eq!(g.step(&sizes, &facts(60, 4)), Step::Age, "its oldest holds too little");
    g.begin_next(0);
    assert_eq!(g.max, 5);
    assert_eq!(g.step(&sizes, &facts(60, 3)), Step::Evict(Pages(1024)));
}

// specs/mglru.md#eviction
#[test]
fn types_advance_together() {
    let mut g = Generations { max: 6, min: [3, 3], ..Generations::default() };
    // Files have nothing in 3 and 4, anonymous pages have.
    assert!(!g.advance(60, V6_12, |_, file| file), "files wait for anonymous pages");
    assert_eq!(g.min, [3, 3]);
    assert!(g.advance(0, V6_12, |_, file| file), "they don't where those can't go");
    assert_eq!(g.min, [3, 5]);
    assert!(g.advance(60, V6_12, |_, _| true));
    assert_eq!(g.min, [5, 5]);
}

// specs/mglru.md#types
#[test]
fn a_page_that_comes_back_while_its_generation_is_the_oldest_counts() {
    let mut g = Generations { max: 6, min: [3, 3], ..Generations::default() };
    let gone = g.evicted(true, Flags::default(), Pages(1), V6_12);
    assert!(g.refaulted(true, gone, V6_12));
    g.drop_oldest(true);
    assert!(!g.refaulted(true, gone, V6_12));
    assert!(g.refaulted(true, gone, V7_3), "7.3 looks back four generations");
}

// specs/mglru.md#walks: 7.3 looks twice.
#[test]
fn two_looks() {
    let none = Flags::default();
    assert_eq!(used(none, V6_12), Used::Lifted(none));
    let Used::Noted(flags) = used(none, V7_3) else { panic!("the first look only notes") };
    assert_eq!(used(flags, V7_3), Used::Lifted(Flags { workingset: true, referenced: false }));
}

// specs/mglru.md#walks
#[test]
fn a_filter_that_never_began_knows_all() {
    let mut g = Generations::default();
    let mut f = Filters::default();
    assert!(f.reads(&g, 7));
    f.begin(&g);
    f.keep(&g, 7);
    g.begin_next(0);
    assert!(f.reads(&g, 7));
    assert!(!f.reads(&g, 8));
    f.report(&g, 8);
    assert!(f.reads(&g, 8));
    f.begin(&g);
    g.begin_next(0);
    assert!(!f.reads(&g, 7), "wiped, and nobody has kept it");
}

// specs/mglru.md#ttl
#[test]
fn a_generation_that_is_too_young_is_not_taken() {
    let g = Generations::new(100);
    let mut sizes: Sizes = [[0; 2]; MAX_GENS];
    sizes[3][0] = 1 << 12;
    assert!(!g.outlives(&sizes, &facts(60, 12), 1000, 1100));
    assert!(g.outlives(&sizes, &facts(60, 12), 1000, 1101));
    assert!(!g.outlives(&Sizes::default(), &facts(60, 12), 1000, 2000));
}
