//! Accesses in rows of eight: one test for all of them, and their kinds as sums of columns
//! of bits.
//!
//! ```text
//!  operations   r r w r  r w r r      a row without an event: all stand, and count
//!  zones        0 0 1 0  1 1 0 0      reads of zone 0: 8 − 2 writes − 3 of zone 1 + 2 both
//! ```
//!
//! Near the end of the time each row is timed before it is made: its kinds as bits tell how many
//! there are of each, and so what it costs.
//!
//! It takes half the instructions of one access after the other, which is left for the row
//! with the event, for the one that crosses the end, and for hosts without these vectors.

use super::CostTable;

/// Kinds that rows can tell apart: those of two zones.
pub(super) const FEW: usize = 4;

/// Operations in a row.
pub(super) const ROW: usize = 8;

/// Runs up to `n` operations of [`FEW`] kinds in whole rows, and stops before a row in which
/// there is an event; how many were done, and how many of each kind. With `TIMED` it stops
/// before the row with which the sum of `cost` comes to `left`, too.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(super) fn rows<const TIMED: bool>(
    ops: &[u32],
    n: usize,
    words: &mut [u32],
    cost: &CostTable,
    left: u64,
) -> (usize, [u64; FEW]) {
    use super::{AHEAD, OP_PAGE};
    use crate::page::{PRESENT, SHARED, STATE, WRITE, WRITE_SHIFT, YOUNG, ZONE_SHIFT};
    use crate::table::prefetch;
    use std::arch::x86_64::*;

    const TO_SIGN: i32 = YOUNG.leading_zeros() as i32;
    const ZONE_TO_SIGN: i32 = 31 - ZONE_SHIFT as i32;
    let (mut done, mut store, mut spent) = (0, false, 0);
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
        for row in ops.chunks_exact(ROW).take(n / ROW) {
            let (first, last) = row.split_at(ROW / 2);
            let (ops_a, old_a) = half(first.try_into().expect("half a row"), words);
            let (ops_b, old_b) = half(last.try_into().expect("half a row"), words);
            let (a, b) = (_mm_srli_epi32::<31>(ops_a), _mm_srli_epi32::<31>(ops_b));
            let raised = _mm_or_si128(events(a, old_a), events(b, old_b));
            if _mm_movemask_epi8(_mm_cmpeq_epi32(raised, zero)) != 0xffff {
                break;
            }
            if TIMED {
                let signs = |a, b| {
                    let half = |x| _mm_movemask_ps(_mm_castsi128_ps(x)) as usize;
                    half(a) | half(b) << (ROW / 2)
                };
                let zone = |old| _mm_slli_epi32::<ZONE_TO_SIGN>(old);
                let (writes, second) = (signs(ops_a, ops_b), signs(zone(old_a), zone(old_b)));
                let ones = |bits: usize| u64::from(ONES[bits]);
                let both = ones(writes & second);
                let (writes, second) = (ones(writes) - both, ones(second) - both);
                let first = ROW as u64 - writes - second - both;
                let [a, b, c, d] = [0, 1, 2, 3].map(|kind| cost[kind]);
                spent += first * a + writes * b + second * c + both * d;
                if spent >= left {
                    break;
                }
            }
            if let Some(next) = ops.get(done + AHEAD..done + AHEAD + ROW) {
                for &op in next {
                    prefetch(words, (op & OP_PAGE) as usize);
                }
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

/// How many bits of a row are set.
#[cfg(target_arch = "x86_64")]
const ONES: [u8; 1 << ROW] = {
    let mut ones = [0; 1 << ROW];
    let mut bits = 0;
    while bits < ones.len() {
        ones[bits] = bits.count_ones() as u8;
        bits += 1;
    }
    ones
};

/// Leaves all of them to one after the other.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn rows<const TIMED: bool>(
    _ops: &[u32],
    _n: usize,
    _words: &mut [u32],
    _cost: &CostTable,
    _left: u64,
) -> (usize, [u64; FEW]) {
    (0, [0; FEW])
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS, OP_PAGE, OP_WRITE, is_event};
    use super::*;
    use crate::page::{PRESENT, PROTNONE, SHARED, WRITE, YOUNG, ZONE_SHIFT};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_accesses_one_after_the_other(
            pages in prop::collection::vec((0u32..40, 0u32..2, any::<bool>(), 0u32..4), 64),
            accesses in prop::collection::vec((0u32..64, any::<bool>()), 0..200),
            n in 0usize..250,
            left in prop::option::of(0u64..1_000),
        ) {
            // Most pages are there and may be written; a stamp that nobody may change above.
            let before: Vec<u32> = pages
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
            let mut cost = [0; KINDS];
            cost[..FEW].copy_from_slice(&[3, 5, 7, 11]);
            let mut words = before.clone();
            let (done, counts) = match left {
                Some(left) => rows::<true>(&ops, n, &mut words, &cost, left),
                None => rows::<false>(&ops, n, &mut words, &cost, 0),
            };

            let kind = |op: u32| {
                ((before[(op & OP_PAGE) as usize] >> ZONE_SHIFT & 1) * 2 + (op >> 31)) as usize
            };
            let (mut expected, mut sums) = (before.clone(), [0; FEW]);
            for &op in &ops[..done] {
                let page = (op & OP_PAGE) as usize;
                prop_assert!(!is_event(op, before[page]));
                expected[page] |= YOUNG;
                sums[kind(op)] += 1;
            }
            prop_assert_eq!(counts, sums);
            prop_assert!(done <= n);
            prop_assert_eq!(&words, &expected);
            let spent = |ops: &[u32]| ops.iter().map(|&op| cost[kind(op)]).sum::<u64>();
            prop_assert!(left.is_none_or(|left| done == 0 || spent(&ops[..done]) < left));
            let raises = |&op: &u32| is_event(op, before[(op & OP_PAGE) as usize]);
            let next = done + ROW;
            if cfg!(target_arch = "x86_64") && next <= n && next <= ops.len() {
                let event = ops[done..next].iter().any(raises);
                let late = left.is_some_and(|left| spent(&ops[..next]) >= left);
                prop_assert!(event || late, "stopped at {done}");
            }
        }
    }
}
