//! Words of this test are watched, changed and looked at.

use super::*;
use std::sync::atomic::{AtomicU32 as Word, Ordering::SeqCst};

fn at(word: &Word) -> u64 {
    word.as_ptr() as u64
}

#[test]
fn a_change_of_a_watched_word_is_told_once() {
    let (words, word) = (Words::new(), Word::new(1));
    // SAFETY: the word lives.
    unsafe {
        assert_eq!(words.changed(at(&word)), None, "nobody watches it");
        words.watch(at(&word), || 7);
        assert_eq!(words.changed(at(&word)), None, "it is as it was");
        word.store(0, SeqCst);
        assert_eq!(words.changed(at(&word)), Some(Change { object: 7, now: 0, before: 1 }));
        assert_eq!(words.changed(at(&word)), None);
        words.forget(at(&word) - 64, 128);
        word.store(1, SeqCst);
        assert_eq!(words.changed(at(&word)), None, "its memory is gone");
    }
}

#[test]
fn what_processes_share_may_have_changed_each_time() {
    let (words, word) = (Words::new(), Word::new(1));
    // SAFETY: the word lives.
    unsafe {
        words.watch(at(&word), || SHARED | 9);
        assert_eq!(
            words.changed(at(&word)),
            Some(Change { object: SHARED | 9, now: 1, before: 1 })
        );
    }
}

#[test]
fn a_cleared_word_is_seen_once() {
    let (words, word) = (Words::new(), Word::new(4711));
    // SAFETY: the word lives.
    unsafe {
        assert!(!words.seen_cleared(at(&word)));
        words.clears(at(&word));
        assert!(!words.seen_cleared(at(&word)), "the thread lives");
        word.store(0, SeqCst);
        assert!(words.seen_cleared(at(&word)));
        assert!(!words.seen_cleared(at(&word)), "it was told");
        words.clears(at(&word));
        assert!(words.seen_cleared(at(&word)), "another thread had the word");
    }
}

#[test]
fn of_two_words_that_share_a_place_the_later_is_watched() {
    let words = Words::new();
    let place = Words::place(64);
    let other = (65..).map(|i| i * 4).find(|&at| Words::place(at) == place).expect("one");
    words.set(64, 1, 0, WHOLE);
    words.set(other, 2, 0, WHOLE);
    assert!(words.known(64).is_none());
    assert_eq!(words.known(other).map(|p| p.object.load(Relaxed)), Some(2));
}

#[test]
fn of_a_word_that_is_spun_on_only_its_own_bytes_count() {
    let (words, word) = (Words::new(), Word::new(0));
    // SAFETY: the word lives.
    unsafe {
        assert!(!words.is_spun() && words.object(at(&word)).is_none());
        words.watch_spun(at(&word), 1, || 7);
        assert!(words.is_spun() && words.object(at(&word)) == Some(7));
        word.store(0x100, SeqCst);
        assert_eq!(words.changed(at(&word)), None, "the byte beside it");
        assert!(words.is_told(at(&word)));
        word.store(0x101, SeqCst);
        assert!(!words.is_told(at(&word)));
        assert_eq!(words.changed(at(&word)), Some(Change { object: 7, now: 1, before: 0 }));
        assert!(words.is_told(at(&word)));
        words.watch_spun(at(&word), 8, || 9);
        assert_eq!(words.object(at(&word)), Some(7), "it is watched already");
    }
}
