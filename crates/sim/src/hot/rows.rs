//! Accesses in rows of eight: one test for all of them, and their kinds as sums of columns
//! of bits.
//!
//! ```text
//!  operations   r r w r  r w r r      a row without an event: all stand, and count
//!  zones        0 0 1 0  1 1 0 0      reads of zone 0: 8 − 2 writes − 3 of zone 1 + 2 both
//! ```
//!
//! It takes half the instructions of one access after the other, which is left for the row
//! with the event, for what is timed, and for hosts without these vectors.

/// Kinds that rows can tell apart: those of two zones.
pub(super) const FEW: usize = 4;

/// Runs up to `n` operations of [`FEW`] kinds in whole rows, and stops before a row in which
/// there is an event; how many were done, and how many of each kind.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(super) fn rows(ops: &[u32], n: usize, words: &mut [u32]) -> (usize, [u64; FEW]) {
    use super::{AHEAD, OP_PAGE};
    use crate::page::{PRESENT, SHARED, STATE, WRITE, WRITE_SHIFT, YOUNG, ZONE_SHIFT};
    use crate::table::prefetch;
    use std::arch::x86_64::*;

    const ROW: usize = 8;
    const TO_SIGN: i32 = YOUNG.leading_zeros() as i32;
    let next = ops.get(AHEAD..).unwrap_or_default();
    let (mut done, mut store) = (0, false);
    // SAFETY: every x86-64 has SSE2, and the loads and stores are of four words in a row.
    let sums = unsafe {
        let all = |bits: u32| _mm_set1_epi32(bits as i32);
        let (fine, must, one) = (all(PRESENT | WRITE), all(STATE | SHARED), all(1));
        let zero = _mm_setzero_si128();
        // The operations and the words of half a row.
        let half = |row: &[u32; 4], words: &[u32]| {
            let word = |op: u32| words[(op & OP_PAGE) as usize] as i32;
            let [a, b, c, d] = *row;
            (
                _mm_loadu_si128(row.as_ptr().cast()),
                _mm_set_epi32(word(d), word(c), word(b), word(a)),
            )
        };
        // What is in the way of accesses without an event: see `is_event`.
        let events = |write, word| {
            let must = _mm_or_si128(_mm_slli_epi32::<{ WRITE_SHIFT as i32 }>(write), must);
            _mm_and_si128(_mm_xor_si128(word, fine), must)
        };
        let [mut writes, mut second, mut both] = [zero; 3];
        for (row, next) in ops.chunks_exact(ROW).zip(next.chunks_exact(ROW)).take(n / ROW) {
            let (left, right) = row.split_at(ROW / 2);
            let (a, old_a) = half(left.try_into().expect("half a row"), words);
            let (b, old_b) = half(right.try_into().expect("half a row"), words);
            let (a, b) = (_mm_srli_epi32::<31>(a), _mm_srli_epi32::<31>(b));
            let raised = _mm_or_si128(events(a, old_a), events(b, old_b));
            if _mm_movemask_epi8(_mm_cmpeq_epi32(raised, zero)) != 0xffff {
                break;
            }
            for &op in next {
                prefetch(words, (op & OP_PAGE) as usize);
            }
            // Reclaim clears these bits of many pages at a time: where one is clear, more are,
            // and a branch that has to guess for each row costs more than the stores.
            let young = _mm_slli_epi32::<TO_SIGN>(_mm_and_si128(old_a, old_b));
            store |= _mm_movemask_ps(_mm_castsi128_ps(young)) != 0xf;
            if store {
                for &op in row {
                    words[(op & OP_PAGE) as usize] |= YOUNG;
                }
            }
            let zone = |old| _mm_and_si128(_mm_srli_epi32::<{ ZONE_SHIFT as i32 }>(old), one);
            let (zone_a, zone_b) = (zone(old_a), zone(old_b));
            writes = _mm_add_epi32(writes, _mm_add_epi32(a, b));
            second = _mm_add_epi32(second, _mm_add_epi32(zone_a, zone_b));
            let (both_a, both_b) = (_mm_and_si128(a, zone_a), _mm_and_si128(b, zone_b));
            both = _mm_add_epi32(both, _mm_add_epi32(both_a, both_b));
            done += ROW;
        }
        [writes, second, both].map(|column| {
            let mut four = [0u32; 4];
            _mm_storeu_si128(four.as_mut_ptr().cast(), column);
            four.iter().map(|&sum| u64::from(sum)).sum::<u64>()
        })
    };
    let [writes, second, both] = sums;
    (done, [done as u64 + both - writes - second, writes - both, second - both, both])
}

/// Leaves all of them to one after the other.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn rows(_ops: &[u32], _n: usize, _words: &mut [u32]) -> (usize, [u64; FEW]) {
    (0, [0; FEW])
}

#[cfg(test)]
mod tests {
    use super::super::{AHEAD, OP_PAGE, OP_WRITE, is_event};
    use super::*;
    use crate::page::{PRESENT, PROTNONE, SHARED, WRITE, YOUNG, ZONE_SHIFT};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_accesses_one_after_the_other(
            pages in prop::collection::vec((0u32..40, 0u32..2, any::<bool>(), 0u32..4), 64),
            accesses in prop::collection::vec((0u32..64, any::<bool>()), 0..200),
            n in 0usize..250,
        ) {
            // Most pages are there and may be written; a stamp that nobody may change above.
            let mut words: Vec<u32> = pages
                .iter()
                .map(|&(state, zone, young, stamp)| {
                    let state = match state {
                        0 => 0,
                        1 => PROTNONE | WRITE,
                        2 => PRESENT | SHARED | WRITE,
                        3 => PRESENT,
                        _ => PRESENT | WRITE,
                    };
                    state | zone << ZONE_SHIFT | if young { YOUNG } else { 0 } | stamp << 11
                })
                .collect();
            let op = |&(page, write): &(u32, bool)| page | if write { OP_WRITE } else { 0 };
            let ops: Vec<u32> = accesses.iter().map(op).collect();
            let before = words.clone();
            let (done, counts) = rows(&ops, n, &mut words);

            let (mut expected, mut sums) = (before.clone(), [0; FEW]);
            for &op in &ops[..done] {
                let page = (op & OP_PAGE) as usize;
                prop_assert!(!is_event(op, before[page]));
                expected[page] |= YOUNG;
                sums[((before[page] >> ZONE_SHIFT & 1) * 2 + (op >> 31)) as usize] += 1;
            }
            prop_assert_eq!(counts, sums);
            prop_assert!(done <= n);
            prop_assert_eq!(&words, &expected);
            let raises = |&op: &u32| is_event(op, before[(op & OP_PAGE) as usize]);
            let next = done + 8;
            if cfg!(target_arch = "x86_64") && next <= n && next + AHEAD <= ops.len() {
                prop_assert!(ops[done..next].iter().any(raises), "stopped at {done}");
            }
        }
    }
}
