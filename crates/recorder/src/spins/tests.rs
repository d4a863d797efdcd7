//! Blocks that may spin, and what looks at words find.

use super::*;

fn spins(block: &[&[u8]]) -> bool {
    let mut at = 0x1000;
    let with_place: Vec<(&[u8], u64)> = block
        .iter()
        .map(|bytes| {
            at += bytes.len() as u64;
            (*bytes, at - bytes.len() as u64)
        })
        .collect();
    may_spin(with_place.into_iter())
}

const LOAD: &[u8] = &[0x8b, 0x07]; // mov (%rdi), %eax
const LOAD_OTHER: &[u8] = &[0x3b, 0x46, 0x08]; // cmp 8(%rsi), %eax
const TEST: &[u8] = &[0x85, 0xc0]; // test %eax, %eax
const JE: &[u8] = &[0x74, 0xf8];
const JNE_FAR: &[u8] = &[0x0f, 0x85, 0, 1, 0, 0];
const PAUSE: &[u8] = &[0xf3, 0x90];
const STORE: &[u8] = &[0x89, 0x07]; // mov %eax, (%rdi)
const TAKE: &[u8] = &[0x86, 0x07]; // xchg %al, (%rdi)
const CMPXCHG: &[u8] = &[0xf0, 0x0f, 0xb1, 0x17]; // lock cmpxchg %edx, (%rdi)
const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];

#[test]
fn short_blocks_that_look_and_store_nothing_may_spin() {
    let may: [&[&[u8]]; 5] = [
        &[LOAD, TEST, JE],
        &[PAUSE, LOAD, TEST, JNE_FAR],
        &[LOAD, LOAD_OTHER, JE],
        &[TAKE, TEST, JE],
        &[CMPXCHG, JE],
    ];
    let not: [&[&[u8]]; 7] = [
        &[],
        &[TEST, JE],
        &[LOAD, TEST],
        &[LOAD, STORE, JE],
        &[LOAD, CALL, JE],
        &[LOAD, &[0xff], JE],
        &[LOAD, TEST, TEST, TEST, TEST, TEST, TEST, TEST, JE],
    ];
    assert!(may.into_iter().all(spins));
    assert!(!not.into_iter().any(spins));
}

#[test]
fn a_word_that_stays_the_same_is_told_once_and_its_change_with_how_long_that_took() {
    let mut looks = Looks::default();
    let seen: Vec<Seen> = (0..334).map(|i| looks.look(0x40, 0, 1000 + 3 * i, 0, || 7)).collect();
    assert_eq!(seen.iter().position(|s| *s == Seen::Often), Some(OFTEN as usize));
    assert_eq!(seen.iter().filter(|s| **s != Seen::Same).count(), 1);
    let spun = Spun { insns: 1002, began: 1000, order: 7 };
    assert_eq!(looks.look(0x40, 1, 2002, 0, || 9), Seen::Changed(spun));
    assert_eq!(looks.look(0x40, 1, 2005, 0, || 9), Seen::Same);
}

#[test]
fn who_did_something_else_meanwhile_has_not_spun() {
    let mut looks = Looks::default();
    for i in 0..100 {
        looks.look(0x40, 0, 3 * i, 0, || 7);
    }
    let Seen::Changed(spun) = looks.look(0x40, 1, 10_000, 0, || 9) else { panic!("it changed") };
    assert_eq!(spun.insns, 0);
    // Looks that lie far from one another are not one loop's.
    let far = (0..200).map(|i| looks.look(0x40, 1, 20_000 + 1000 * i, 0, || 9));
    assert!(far.into_iter().all(|s| s == Seen::Same));
}

#[test]
fn two_words_that_are_looked_at_by_turns_are_two() {
    let mut looks = Looks::default();
    for i in 0..100 {
        assert!(!matches!(looks.look(0x40, 5, 6 * i, 0, || 7), Seen::Changed(_)));
        assert!(!matches!(looks.look(0x44, 6, 6 * i + 3, 0, || 7), Seen::Changed(_)));
    }
    let Seen::Changed(spun) = looks.look(0x44, 7, 603, 0, || 8) else { panic!("it changed") };
    assert_eq!((spun.insns, spun.order), (600, 7));
}

#[test]
fn who_takes_a_word_after_tries_in_vain_has_spun() {
    let mut looks = Looks::default();
    for i in 0..100 {
        looks.look(0x40, 1, 4 * i, 0, || 7);
    }
    assert_eq!(looks.over(0x80, 400), None, "another word in the same place");
    assert_eq!(looks.over(0x40, 400), Some(Spun { insns: 400, began: 0, order: 7 }));
    assert_eq!(looks.over(0x40, 404), None);
    looks.look(0x40, 1, 500, 0, || 8);
    assert_eq!(looks.over(0x40, 504), None, "the first try");
}

#[test]
fn who_gives_its_cpu_away_between_two_looks_waits() {
    let mut looks = Looks::default();
    assert_eq!(looks.look(0x40, 1, 100, 0, || 7), Seen::Same);
    assert_eq!(looks.look(0x40, 1, 120, 110, || 7), Seen::Often);
    assert_eq!(looks.look(0x40, 1, 140, 130, || 7), Seen::Same, "it has been told");
    let spun = Spun { insns: 60, began: 100, order: 7 };
    assert_eq!(looks.look(0x40, 2, 160, 150, || 9), Seen::Changed(spun));
}
