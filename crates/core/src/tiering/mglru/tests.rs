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
    assert_eq!(seq(false, Arrives::HintFault { active: false }), 6);
    assert_eq!(seq(false, Arrives::Demoted), 5);
    assert_eq!(seq(true, Arrives::Demoted), 4, "the oldest of three");
    assert_eq!(seq(false, Arrives::Moved { active: true }), 6);
    assert_eq!(seq(false, Arrives::Kept { activated: false }), 6);
    let g = Generations { min: [3, 3], ..g };
    assert_eq!(g.entry(true, Arrives::Demoted, none, V6_12).seq, 4, "the second of four");
}

const NONE: Flags = Flags { referenced: false, workingset: false };
const REFERENCED: Flags = Flags { referenced: true, workingset: false };
const WORKINGSET: Flags = Flags { referenced: false, workingset: true };

// specs/mglru.md#entry
#[test]
fn where_pages_enter_in_7_3() {
    let g = Generations { max: 6, min: [3, 3], ..Generations::default() };
    let (kept, activated) = (Arrives::Kept { activated: false }, Arrives::Kept { activated: true });
    let hint = |active| Arrives::HintFault { active };
    let moved = |active| Arrives::Moved { active };
    for (file, how, flags, seq, then) in [
        (false, Arrives::Fault, NONE, 5, REFERENCED),
        (true, Arrives::Fault, NONE, 4, REFERENCED),
        (false, Arrives::Refault, NONE, 6, WORKINGSET),
        (false, hint(false), NONE, 5, REFERENCED),
        (true, hint(false), NONE, 4, REFERENCED),
        (true, hint(true), NONE, 5, REFERENCED),
        (true, hint(false), WORKINGSET, 6, WORKINGSET),
        (false, moved(true), NONE, 5, NONE),
        (false, moved(true), WORKINGSET, 6, WORKINGSET),
        (true, moved(false), NONE, 3, NONE),
        (true, moved(false), REFERENCED, 4, REFERENCED),
        (false, Arrives::Demoted, NONE, 5, NONE),
        (false, kept, NONE, 5, REFERENCED),
        (true, kept, NONE, 4, REFERENCED),
        (false, activated, REFERENCED, 5, WORKINGSET),
        (false, activated, WORKINGSET, 6, WORKINGSET),
        (true, activated, NONE, 6, WORKINGSET),
        (false, Arrives::Stuck, REFERENCED, 5, REFERENCED),
        (false, Arrives::SwitchedOn { active: true }, REFERENCED, 5, REFERENCED),
        (true, Arrives::SwitchedOn { active: false }, NONE, 3, NONE),
    ] {
        let entry = g.entry(file, how, flags, V7_3);
        assert_eq!(entry, Entry { seq, flags: then }, "{file} {how:?} {flags:?}");
    }
    let g = Generations { min: [5, 4], ..g };
    assert_eq!(g.entry(true, moved(false), NONE, V7_3).seq, 4, "none is older than the oldest");
    let entry = g.entry(true, kept, NONE, V7_3);
    assert_eq!(entry, Entry { seq: 5, flags: NONE }, "nobody is kept in the oldest");
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
    assert_eq!(g.counted(60, 64, true, V6_12), 0, "too few are left");
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
    assert_eq!(g.comes_back(true, gone, V7_3), Arrives::Fault, "it had no workingset");
    let gone = g.evicted(true, WORKINGSET, Pages(1), V7_3);
    assert_eq!(g.comes_back(true, gone, V7_3), Arrives::Refault);
}

// specs/mglru.md#walks: 7.3 looks twice, but at what may be executed.
#[test]
fn two_looks() {
    assert_eq!(used(NONE, false, V6_12), Used::Lifted(NONE));
    assert_eq!(used(NONE, false, V7_3), Used::Noted(REFERENCED));
    assert_eq!(used(REFERENCED, false, V7_3), Used::Lifted(WORKINGSET));
    assert_eq!(used(WORKINGSET, false, V7_3), Used::Lifted(WORKINGSET));
    assert_eq!(used(NONE, true, V7_3), Used::Lifted(WORKINGSET));
}

// specs/mglru.md#eviction: to 7.3 two mappings are as one, and workingset was looked at.
#[test]
fn what_the_test_of_a_page_is_told() {
    for (nr_accessed, flags, version, told) in [
        (2, NONE, V6_12, (2, false)),
        (2, NONE, V7_3, (1, false)),
        (1, WORKINGSET, V6_12, (1, false)),
        (1, WORKINGSET, V7_3, (1, true)),
        (0, WORKINGSET, V7_3, (0, true)),
    ] {
        assert_eq!(looked_at(nr_accessed, flags, version), told);
    }
}

// specs/mglru.md#eviction
#[test]
fn batches() {
    for (isolated, folios, left, version, full) in [
        (64, 64, 1000, V6_12, true),
        (63, 4095, 1, V6_12, false),
        (0, 4096, 1000, V6_12, true),
        (0, 63, 1000, V7_3, false),
        (0, 64, 1000, V7_3, true),
        (0, 8, 8, V7_3, true),
    ] {
        let got = batch_is_full(Pages(isolated), folios, Pages(left), version);
        assert_eq!(got, full, "{isolated} {folios} {left}");
    }
    assert!(!counts_sorted(false, V6_12));
    assert!(counts_sorted(false, V7_3), "what was only sorted counts");
    let g = Generations { max: 6, min: [3, 3], ..Generations::default() };
    assert_eq!(g.counted(60, 64, true, V6_12), 65);
    assert_eq!(g.counted(60, 64, true, V7_3), 64);
    let g = Generations { min: [5, 5], ..g };
    assert_eq!(g.counted(60, 64, true, V7_3), 64, "few generations don't end a pass");
}

// specs/mglru.md#types: (first is files', swappiness, seen, isolated) → the second.
#[test]
fn a_second_type() {
    for (file, swappiness, seen, isolated, then) in [
        (true, 60, 0, 0, [Some(false); 2]),
        (true, 60, 64, 0, [None, Some(true)]),
        (true, 60, 64, 64, [None; 2]),
        (true, 0, 0, 0, [None; 2]),
    ] {
        let again = |version| looks_again(file, swappiness, seen, Pages(isolated), version);
        assert_eq!([again(V6_12), again(V7_3)], then, "{swappiness} {seen} {isolated}");
    }
}

// specs/mglru.md#when: 7.3 counts generations, not pages, and its budget is never anew.
#[test]
fn aging_in_7_3() {
    let at = |min, priority| {
        let g = Generations { max: 6, min, ..Generations::default() };
        let mut sizes: Sizes = [[0; 2]; MAX_GENS];
        sizes[Generations::index(5)][0] = 8192;
        let facts = Facts { version: V7_3, ..facts(60, priority) };
        assert_eq!(g.budget(&sizes, &facts), Pages(8192 >> priority));
        g.step(&sizes, &facts)
    };
    assert_eq!(at([4, 4], 12), Step::Evict(Pages(2)));
    assert_eq!(at([4, 4], 11), Step::Age);
    assert_eq!(at([5, 5], 12), Step::Age);
    assert_eq!(at([3, 5], 6), Step::Evict(Pages(128)), "the oldest of both types");
}

// specs/mglru.md#aging: what aging moves on is spared, and keeps workingset, in 7.3.
#[test]
fn what_aging_moves_on() {
    let mut g = Generations::default();
    assert_eq!(g.moves_on(false, WORKINGSET, Pages(3), V6_12), NONE);
    assert_eq!(g.tally[0].spared, [0; TIERS]);
    let both = Flags { referenced: true, workingset: true };
    assert_eq!(g.moves_on(false, both, Pages(3), V7_3), WORKINGSET);
    assert_eq!(g.tally[0].spared, [0, 0, 0, 3]);
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
